"""Explanations add up to the scores whatever is missing; importances are what an enumeration
says.
"""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.errors import DataError, OptionError
from bbl.model.attribution import zero_sum_factors
from bbl.stats.metrics import log_probabilities

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def fits(titanic):
    given = {"weights": "Freq"}
    return {
        "bbl": bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, "Freq", missing="marginal"),
        "calibrated": bbl.bbl(
            "Survived ~ .^2", titanic, "Freq", "mf", calibrate="temperature", missing="marginal"
        ),
        "given": bbl.bbl(
            "Survived ~ .", titanic, "Freq", priors={"No": 0.9, "Yes": 0.1}, missing="marginal"
        ),
        "tan": networks.bnc("tan_cl", "Survived ~ .", titanic, 1, **given),
        "shooter": bbl.shooter("Survived ~ .", titanic, lambda_=60, **given),
        "wanbia": networks.bnc("nb", "Survived ~ .", titanic, 1, wanbia=True, **given),
    }


@pytest.fixture(scope="module")
def groups():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 900)
    near = np.where(rng.random(900) < 0.5, y % 3, rng.integers(0, 3, 900))
    return pd.DataFrame(
        {"y": y, "group": near, "b": rng.integers(0, 2, 900), "c": rng.integers(0, 3, 900)}
    )


def parts(found):
    return found.frame.iloc[:, 2:-1].to_numpy(float).sum(axis=1)


@pytest.mark.long
def test_contributions_add_up_to_the_difference_of_scores(fits, titanic):
    some = titanic.head(12)
    for name, fit in fits.items():
        found = fit.explain(some)
        p = fit.predict(some, type="prob")
        odds = np.log(p["Yes"] / p["No"])
        np.testing.assert_allclose(parts(found), odds, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(found.frame["log_odds"], odds, atol=1e-9)
        np.testing.assert_allclose(
            fit.explain(some, of=("No", "Yes")).frame["log_odds"], -odds, atol=1e-9
        )
        own = fit.explain(some, priors="equal")
        np.testing.assert_allclose(own.frame.iloc[:, 3:-1], found.frame.iloc[:, 3:-1], atol=1e-12)
        np.testing.assert_allclose(parts(own), own.frame["log_odds"], atol=1e-9)


def test_what_is_missing_is_told_apart(fits, titanic):
    some = titanic.head(6).astype(object)
    some.loc[0, "Sex"] = None
    for name, fit in fits.items():
        lacking = titanic.head(6).astype(object).assign(Sex=["?", *some["Sex"][1:]])
        own, how = (lacking, "ignore") if name == "shooter" else (some, "raise")
        found = fit.explain(own, unseen=how)
        p = fit.predict(own, type="prob", unseen=how)
        np.testing.assert_allclose(parts(found), np.log(p["Yes"] / p["No"]), atol=1e-9)
        assert (found.frame["(summed out)"].to_numpy()[1:] == 0).all()
        touched = [c for c in found.frame.columns[3:-2] if "Sex" in str(c)]
        assert (found.frame.loc[0, touched].to_numpy(float) == 0).all()
        assert "Sex=?" in found.row(0).index or len(touched) == 1


def test_effects_do_not_depend_on_reference_levels(titanic):
    turned = {"Sex": ["Male", "Female"], "Class": ["Crew", "3rd", "2nd", "1st"]}
    # whose solutions of Sex and Age agree, so that the fits are one model
    formula = "Survived ~ Class + Sex * Age"
    one, other = (bbl.bbl(formula, titanic, "Freq", lambda_=0.0, xlevels=x) for x in (None, turned))
    first, second = one.explain(titanic.head(5)).frame, other.explain(titanic.head(5)).frame
    np.testing.assert_allclose(
        first.iloc[:, 3:].astype(float), second.iloc[:, 3:].astype(float), atol=1e-4
    )
    assert list(first.columns) == list(second.columns)


def test_zero_sum_terms_have_the_same_energies_of_any_order():
    rng = np.random.default_rng(0)
    tables = [((0,), rng.normal(size=(2, 3))), ((1,), rng.normal(size=(2, 2)))]
    tables += [((0, 1), rng.normal(size=(2, 3, 2))), ((0, 1, 2), rng.normal(size=(2, 3, 2, 2)))]
    terms, constant = zero_sum_factors(tables)
    for a in range(3):
        for b in range(2):
            for c in range(2):
                x = (a, b, c)
                direct = sum(t[(slice(None), *(x[i] for i in scope))] for scope, t in tables)
                found = sum(t[(slice(None), *(x[i] for i in scope))] for scope, t in terms.items())
                np.testing.assert_allclose(found + constant, direct, atol=1e-12)
    for table in terms.values():
        for axis in range(1, table.ndim):
            np.testing.assert_allclose(table.sum(axis=axis), 0.0, atol=1e-12)


def test_of_many_groups_the_likeliest_two_are_compared(groups):
    fit = bbl.bbl("y ~ .^2", groups, lambda_=0.1)
    found = fit.explain()
    p = fit.predict(type="prob").iloc[:, :-1].to_numpy()
    order = np.argsort(-p, axis=1, kind="stable")
    np.testing.assert_array_equal(found.frame.iloc[:, 0], np.array(fit.labels.groups)[order[:, 0]])
    assert (found.frame["log_odds"] >= 0).all()
    np.testing.assert_allclose(parts(found), found.frame["log_odds"], atol=1e-9)
    assert "log-odds of " in repr(found) and "more rows" in repr(found)
    ax = found.plot(2, top=2)
    assert [t.get_text() for t in ax.get_yticklabels()][-2:] == ["4 others", "sum"]
    assert f"of {found.frame.iloc[2, 0]} against {found.frame.iloc[2, 1]}" in ax.get_xlabel()
    for wrong in (("a", 1), (1, 1), 3):
        with pytest.raises(OptionError, match="of|group"):
            fit.explain(of=wrong)
    with pytest.raises(OptionError, match="row"):
        found.plot(900)
    plt.close("all")


def test_an_average_of_networks_has_no_sum(titanic):
    with pytest.raises(OptionError, match="averages"):
        networks.bnc("aode", "Survived ~ .", titanic, 1, weights="Freq").explain(titanic)


def test_importance_on_new_rows_is_the_enumerated_marginal(fits, titanic):
    fit = fits["bbl"]
    found = fit.importance(titanic, "Freq")
    w, y = titanic["Freq"].to_numpy(), (titanic["Survived"] == "Yes").to_numpy().astype(int)

    def loss(without):
        scores = 0.0
        levels = (
            [None] if without is None else list(fit.labels.levels[fit.labels.names.index(without)])
        )
        for level in levels:
            rows = titanic if level is None else titanic.assign(**{without: level})
            energy = fit._class_scores(*fit.design.encode(rows))
            scores = energy if np.isscalar(scores) else np.logaddexp(scores, energy)
        log_p = log_probabilities(scores)
        return -(w @ log_p[np.arange(len(y)), y]) / w.sum()

    assert found.loss == pytest.approx(loss(None))
    for name in fit.labels.names:
        assert found.frame.loc[name, "importance"] == pytest.approx(
            loss(name) - loss(None), abs=1e-9
        )
    assert list(found.frame["importance"]) == sorted(found.frame["importance"], reverse=True)
    raw = bbl.freq2raw(titanic, "Freq")
    pd.testing.assert_frame_equal(fit.importance(raw).frame, found.frame, rtol=1e-6)


def test_cross_validated_importance_is_reproducible_and_of_refits(fits, titanic):
    with pytest.raises(OptionError, match="newdata"):
        fits["shooter"].importance()
    assert fits["shooter"].importance(titanic, "Freq").frame.index[0] == "Sex"
    for name, fit in ((name, fit) for name, fit in fits.items() if name != "shooter"):
        one, other = fit.importance(seed=1), fit.importance(seed=1, n_jobs=2)
        pd.testing.assert_frame_equal(one.frame, other.frame, check_exact=True)
        assert (
            one.frame.index[0] == "Sex"
            and one.frame.loc["Sex", "importance"] > 5 * one.frame.loc["Sex", "se"]
        ), name
    seen = fits["bbl"].importance(titanic, "Freq").loss
    assert fits["bbl"].importance().loss > seen  # the rows of a fold are unknown to its fit
    cv = bbl.crossVal(
        "Survived ~ Class * Sex + Sex * Age", titanic, "Freq", shuffle=True, seed=0, score="logloss"
    )
    assert fits["bbl"].importance(seed=0).loss == pytest.approx(cv.maxscore, abs=1e-6)
    ax = one.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == list(one.frame.index)
    with pytest.raises(DataError, match="no row"):
        fits["tan"].importance(titanic.assign(Freq=1).head(0))
    plt.close("all")


def test_what_no_group_shows_is_zero_and_what_one_shows_is_infinite():
    """Without prior counts a network knows zeros: ln 0 of both groups is no difference, and no
    warning.
    """
    data = {"y": ["a", "b"], "u": ["p", "q"], "v": ["q", "p"]}
    fit = networks.bnc("nb", "y ~ .", data)
    new = {"u": ["p", "q", "p"], "v": ["q", "q", None]}
    frame = fit.explain(new).frame
    assert frame.iloc[:, 3].tolist() == [-np.inf, np.inf, -np.inf]
    assert frame.iloc[:, 4].tolist() == [-np.inf, -np.inf, 0.0]
    assert frame.iloc[:, -1].tolist() == [-np.inf, 0.0, -np.inf]
    wide = networks.bnc(
        "tan_cl", "y ~ .", {**data, "y": ["a", "b"], "u": ["p", "p"]}, xlevels={"u": ["p", "q"]}
    )
    assert np.isfinite(wide.explain({"u": ["q"], "v": ["q"]}).frame.iloc[0, 3])


@pytest.mark.parametrize("method", ["conditional", "naive"])
def test_rows_that_the_policy_drops_have_no_numbers(method):
    data = pd.DataFrame({"y": list("abab"), "u": ["p", "q", "q", "q"], "v": ["s", "t", "s", None]})
    fit = bbl.bbl("y ~ .", data, method=method, missing="drop")
    rows = data[["u", "v"]]
    for found in (
        fit.predict(rows, type="prob"),
        fit.explain(rows).frame.iloc[:, 2:],
        *fit.predict_batches(rows),
    ):
        assert found.iloc[3].isna().all() and not found.iloc[:3].isna().any().any()
    assert fit.evaluate(data).left_out == 1


@pytest.mark.parametrize("gap", [False, True])
def test_what_averaging_over_draws_adds_has_a_column(gap):
    data = pd.DataFrame({"y": list("abcabcaa"), "u": list("pqpqrrpq"), "v": list("stststst")})
    fit = bbl.bbl(
        "y ~ .^2",
        data,
        method="bayes",
        draws=300,
        warmup=200,
        chains=4,
        missing="marginal" if gap else "raise",
    )
    found = fit.explain(data.head(2).assign(v=[None, "t"]) if gap else data.head(2), of=("a", "b"))
    frame = found.frame
    np.testing.assert_allclose(frame.iloc[:, 2:-1].sum(axis=1), frame["log_odds"], atol=1e-12)
    assert (
        ("(summed out)" in frame) == gap
        and frame["(draws)"].iloc[1] != 0
        and found.row(1).index.is_unique
    )
    assert (
        "(draws)" in found.row(1)
        and "(draws)" not in fit._with_point_estimate("mean").explain(data).frame
    )
