"""Tests of the verb `shooter`: its options, data of all kinds, and what it refuses or warns of."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import (
    BBLTypeError,
    ConvergenceWarning,
    DataError,
    DataWarning,
    FormulaError,
    OptionError,
)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (300, 5)), columns=list("abcde"))
    link = (2 * data["a"] - 1) * (1 + 2 * (2 * data["b"] - 1))
    return data.assign(y=np.where(link + rng.logistic(size=300) > 0, "yes", "no"))


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


def quick(data, **options):
    return bbl.shooter("y ~ .", data, **{"order": 2, "lambda_": 12.0, "refit": False, **options})


def test_penalties_on_the_mean_are_those_on_the_sum_by_the_number_of_observations(table):
    one = quick(table, lambda_=(12.0, 15.0))
    two = quick(table, lambda_=(12.0 / 300, 15.0 / 300), scale="mean")
    assert one.penalties == pytest.approx(two.penalties)
    assert one.coef().equals(two.coef())


def test_a_weight_is_a_repeated_row_to_the_last_bit_and_threads_make_no_difference(titanic):
    long = bbl.freq2raw(titanic, "Freq").sample(frac=1.0, random_state=1)
    given = {"order": 2, "lambda_": 60.0, "nfold": 3}
    one = bbl.shooter("Survived ~ .", titanic, "Freq", n_jobs=1, **given)
    two = bbl.shooter("Survived ~ .", long, n_jobs=2, **given)
    assert one.coef().equals(two.coef()) and one.path.equals(two.path)
    assert float(one.logLik()) == pytest.approx(float(two.logLik()), rel=1e-14)


def test_l1_and_group_are_one_for_two_levels_and_differ_for_more(table, titanic):
    assert quick(table).coef().equals(quick(table, penalty="l1").coef())
    given = {"weights": "Freq", "order": 1, "lambda_": 50.0, "refit": False}
    group = bbl.shooter("Survived ~ .", titanic, **given)
    each = bbl.shooter("Survived ~ .", titanic, penalty="l1", **given)
    assert (group.chosen[(0,)] != 0).all() and (each.chosen[(0,)] == 0).any()


@pytest.mark.long
def test_the_rules_choose_from_a_path(table):
    for rule, column in (("ebic", "ebic"), ("cv", "held_refit")):
        fit = bbl.shooter("y ~ .", table, order=2, lambda_=rule, refit=True, nfold=3)
        last = fit.path.groupby("point").tail(1)
        best = last.loc[last[column].idxmin()]
        assert best["chosen"] and fit.refitted
        assert {(0,), (0, 1)} <= fit.chosen.keys()
    raw = bbl.shooter("y ~ .", table, order=2, lambda_="cv", refit=False, nfold=3)
    assert not raw.refitted and raw.path["held_refit"].isna().all()


def test_missing_values_are_refused_dropped_or_a_level(table):
    holes = table.astype(object)
    holes.loc[:9, "a"] = None
    with pytest.raises(DataError, match="'a'"):
        quick(holes)
    dropped = quick(holes, missing="drop")
    assert dropped.coef().equals(quick(table.iloc[10:]).coef())
    assert dropped.predict(holes.head(12), type="prob").isna().any(axis=1).sum() == 10
    assert "(missing)" in quick(holes, missing="level").labels.levels[0]
    with pytest.raises(OptionError, match="missing"):
        quick(holes, missing="marginal")


def test_several_groups(table):
    more = table.assign(y=np.where(table["c"] + table["d"] == 2, "maybe", table["y"]))
    fit = quick(more)
    prob = fit.predict(type="prob")
    assert prob.columns.tolist() == ["maybe", "no", "yes", "yhat"]
    assert np.allclose(prob.iloc[:, :3].sum(axis=1), 1)
    assert [c for c in fit.terms.columns if " vs " in c] == ["no vs maybe", "yes vs maybe"]


def test_a_penalty_that_keeps_no_term_is_told(table):
    with pytest.warns(DataWarning, match=r"selects no terms: .* below \d"):
        fit = quick(table, lambda_=1000.0)
    assert len(fit.terms) == 0 and fit.order_counts.sum() == 0
    share = (table["y"] == "yes").mean()
    assert np.allclose(fit.predict(type="prob")["yes"], share)
    assert "No terms" in repr(fit) and fit.summary() is not None
    assert fit.n_parameters == 1


def test_groups_that_are_separated_are_told_with_the_terms(table):
    with pytest.warns(ConvergenceWarning, match="weights of a would grow without bound"):
        fit = quick(table.assign(y=table["a"]), refit=True)
    assert "Separated by" in fit.summary().facts
    assert np.isfinite(fit.coef().iloc[:, -1]).all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"order": 0}, OptionError, "order must be at least 1"),
        ({"lambda_": (1.0, 2.0, 3.0)}, OptionError, "3 penalties, but order=2"),
        ({"lambda_": 0.0}, OptionError, "lambda_ must be in"),
        ({"lambda_": float("nan")}, OptionError, "lambda_ must be in"),
        ({"lambda_": "bic"}, OptionError, "lambda_='bic' is unknown"),
        ({"penalty": "ridge"}, OptionError, "penalty"),
        ({"refit": "yes"}, OptionError, "refit"),
        ({"refit": 1}, BBLTypeError, "refit"),
        ({"screen": "none"}, OptionError, "screen"),
        ({"scale": "n"}, OptionError, "scale"),
        ({"nfold": 1}, OptionError, "nfold"),
        ({"lamda": 1.0}, BBLTypeError, "Did you mean 'lambda_'"),
    ],
)
def test_options_out_of_range_are_named(table, options, error, words):
    with pytest.raises(error, match=words):
        quick(table, **options)


@pytest.mark.long
def test_data_that_cannot_be_used_are_refused(table):
    with pytest.raises(FormulaError, match="interaction a:b"):
        bbl.shooter("y ~ a * b", table, order=1)
    with pytest.raises(DataError, match="'y'"):
        quick(table.assign(y="yes"))
    wide = pd.DataFrame(np.random.default_rng(1).integers(0, 2, (30, 2001)).astype(str))
    wide.columns = [f"x{i}" for i in range(2001)]
    with pytest.raises(OptionError, match="the data has 2001"):
        bbl.shooter("y ~ .", wide.assign(y=wide["x0"]), screen="all", order=2, novarOk=True)


@pytest.mark.long
@pytest.mark.parametrize("n_predictors", [1, 2])
def test_an_order_above_the_number_of_predictors_is_that_number(table, n_predictors):
    few = table[["y", *table.columns.drop("y")[:n_predictors]]]
    fit, capped = bbl.shooter("y ~ .", few), bbl.shooter("y ~ .", few, order=n_predictors)
    assert fit.terms.equals(capped.terms) and fit.order_counts.equals(capped.order_counts)
    given = bbl.shooter("y ~ .", few, lambda_=(1.0, 1.0, 1.0))
    assert given.terms.equals(bbl.shooter("y ~ .", few, order=n_predictors, lambda_=1.0).terms)


@pytest.mark.filterwarnings("ignore:The refitted weights:bbl.errors.ConvergenceWarning")
# of one row each
@pytest.mark.filterwarnings("ignore:On the held-out rows:bbl.errors.DataWarning")
@pytest.mark.parametrize("n_rows", [2, 3])
def test_the_smallest_tables_are_fitted_with_the_defaults(n_rows):
    few = pd.DataFrame({"y": ["s", "t", "t"], "a": [0, 1, 1], "b": [0, 0, 1]}).head(n_rows)
    for rule in ("ebic", "cv"):
        fit = bbl.shooter("y ~ .", few, lambda_=rule, novarOk=True)
        assert np.isfinite(fit.logLik()) and len(fit.predict(few, type="prob")) == n_rows
