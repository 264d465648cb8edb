"""Fits with `relevance`: what was not chosen cancels, and everything else is as in a fit of what
was chosen.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import OptionError
from tests import reference

METHODS = ["pseudo", "mf", "naive", "ml", "conditional"]


@pytest.fixture(scope="module")
def table():
    """Groups that depend on a and b; c copies a in part, d and e are noise."""
    rng = np.random.default_rng(0)
    n = 400
    a, b, d = rng.integers(0, 3, n), rng.integers(0, 2, n), rng.integers(0, 2, n)
    c = np.where(rng.random(n) < 0.5, a, rng.integers(0, 3, n))
    y = np.where(rng.random(n) < 0.7, (a + 2 * b > 2) * 1, rng.integers(0, 2, n))
    codes = {"d": d, "a": a, "e": rng.integers(0, 4, n), "b": b, "c": c}
    return pd.DataFrame(
        {name: x.astype(str) for name, x in codes.items()} | {"y": np.array(["no", "yes"])[y]}
    )


def fitted(table, method, relevance=0.05, formula="y ~ .^2", **options):
    """Return a fit with a penalty, so that each method has a finite optimum."""
    penalty = {"pseudo": "lambda_", "ml": "lambda_", "conditional": "ridge"}
    if method in penalty:
        options = {penalty[method]: 1e-3} | options
    return bbl.bbl(formula, table, method=method, relevance=relevance, verbose=0, **options)


def probabilities(fit, rows):
    return fit.predict(rows, type="prob")[["no", "yes"]].to_numpy()


@pytest.mark.parametrize("method", METHODS)
def test_probabilities_are_those_of_a_fit_of_the_chosen_predictors(table, method):
    fit = fitted(table, method)
    assert set(fit.relevant().index[fit.relevant()["order"] == 1]) == {"a", "b"}
    alone = fitted(table, method, None, "y ~ a * b")
    np.testing.assert_allclose(probabilities(fit, table), probabilities(alone, table), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_what_was_not_chosen_changes_no_probability(table, method):
    fit, shuffled = fitted(table, method), table.copy()
    rng = np.random.default_rng(1)
    for name in ("c", "d", "e"):
        shuffled[name] = rng.permutation(table[name])
    np.testing.assert_array_equal(
        probabilities(fit, shuffled).round(12), probabilities(fit, table).round(12)
    )


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive", "ml"])
def test_ln_z_is_the_sum_over_all_states(table, method):
    fit = fitted(table, method)
    layout = fit.estimate.parameters.layout
    for theta, log_z in zip(fit.estimate.parameters.theta, fit.log_z, strict=True):
        h = [layout.table(theta, i) for i in range(layout.m)]
        J = {(i, j): layout.table(theta, i, j) for i, j in layout.pairs.tolist()}
        assert log_z == pytest.approx(
            reference.log_partition(h, J, layout.n_levels.tolist()), abs=1e-10
        )


def test_shared_fields_are_the_log_shares_of_all_rows(table):
    h = fitted(table, "pseudo").coef().h
    counts = table["d"].value_counts() + 0.5
    assert h["no"]["d"].to_numpy() == pytest.approx(np.log(counts["1"] / counts["0"]))
    pd.testing.assert_series_equal(h["no"]["e"], h["yes"]["e"])


@pytest.mark.parametrize("method", METHODS)
def test_weights_are_repeated_rows(table, method):
    w = np.random.default_rng(2).integers(1, 4, len(table))
    weighted = fitted(table, method, weights=w)
    repeated = fitted(table.loc[table.index.repeat(w)], method)
    np.testing.assert_allclose(
        probabilities(weighted, table), probabilities(repeated, table), rtol=1e-9
    )


@pytest.mark.filterwarnings("ignore:weights are not all integers")
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_weights_times_a_number_choose_the_same_predictors_also_from_a_sample_of_the_rows(factor):
    """Predictors are chosen from 20,000 of these rows."""
    rng = np.random.default_rng(0)
    n = 20_500
    y = rng.integers(0, 2, n)
    rows = pd.DataFrame(rng.integers(0, 3, (n, 4)), columns=list("bcde"))
    rows = rows.assign(y=y, a=np.where(rng.random(n) < 0.05, y, rng.integers(0, 2, n)))
    weights = rng.uniform(0.5, 1.5, n)
    one, other = (
        bbl.bbl("y ~ .", rows, w, method="naive", relevance=0.05)
        for w in (weights, weights * factor)
    )
    assert list(one.relevant().index) == ["a"]
    pd.testing.assert_series_equal(other.relevant()["p_value"], one.relevant()["p_value"])


def test_weights_of_billions_leave_no_tests_of_negative_statistics():
    rows = pd.DataFrame(
        {
            "y": ["b", "a", "a", "a"],
            "x": ["u", "u", "v", "u"],
            "z": ["p", "q", "q", "p"],
            "w": [2_000_000_000, 3_000_000_000, 1_000_000_000, 3_000_000_000],
        }
    )
    fit = bbl.bbl("y ~ x + z", rows, weights="w", relevance=0.5, verbose=0)
    assert len(fit.relevant())
    assert fit.relevant()["p_value"].between(0.0, 1.0).all()


def test_order_of_rows_and_predictors_does_not_matter(table):
    other = table.sample(frac=1.0, random_state=3)[["c", "b", "y", "a", "e", "d"]]
    np.testing.assert_allclose(
        probabilities(fitted(other, "pseudo"), table),
        probabilities(fitted(table, "pseudo"), table),
        rtol=1e-8,
    )


def test_missing_values_are_summed_out(table):
    rows = table.copy()
    rows.loc[::7, "a"] = None
    rows.loc[::5, "d"] = None
    fit = fitted(rows, "mf", missing="marginal")
    whole = probabilities(fit, rows[["d", "a", "e", "b", "c"]].assign(d=None))
    np.testing.assert_allclose(whole, probabilities(fit, rows), rtol=1e-9)


def test_missing_values_are_refused_also_where_no_predictor_is_chosen(table):
    rows = table.copy()
    rows.loc[::5, "d"] = None
    with pytest.raises(OptionError, match="cannot average over missing values"):
        fitted(rows, "conditional", missing="marginal", relevance=1e-300)


@pytest.mark.filterwarnings("ignore::bbl.errors.DataWarning")  # three rows predict badly
def test_a_predictor_that_no_row_of_a_fold_knows_is_not_chosen():
    data = pd.DataFrame({"y": ["v0", "v2", "v2"], "a": ["v2", None, None], "b": list("pqp")})
    fit = bbl.bbl(
        "y ~ a + b",
        data,
        calibrate="offset",
        relevance=0.5,
        missing="marginal",
        novarOk=True,
        verbose=0,
    )
    assert np.isfinite(fit.predict(data).iloc[:, :-1].to_numpy(float)).all()


def test_saved_model_is_the_same(table, tmp_path):
    fit = fitted(table, "pseudo")
    fit.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl")
    pd.testing.assert_frame_equal(loaded.relevant(), fit.relevant())
    np.testing.assert_array_equal(probabilities(loaded, table), probabilities(fit, table))
    loaded.save(tmp_path / "again.bbl")
    assert (tmp_path / "again.bbl").read_bytes() == (tmp_path / "fit.bbl").read_bytes()


@pytest.mark.parametrize("rule", ["cv", "cv-1se"])
@pytest.mark.thinned(2)
def test_level_is_chosen_with_the_penalty(table, rule):
    fit = fitted(table, "pseudo", rule, lambda_="cv")
    assert fit.tuning.option == "lambda_"
    assert {"a", "b"} <= set(fit.relevant().index)
    assert fit.log_loss.loss < fit.log_loss.baseline


def test_nothing_is_relevant_in_noise():
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(rng.integers(0, 3, (300, 8)).astype(str)).add_prefix("x")
    rows["y"] = rng.integers(0, 3, 300).astype(str)
    for method in METHODS:
        fit = bbl.bbl("y ~ .^2", rows, method=method, relevance=0.001, verbose=0)
        assert fit.relevant().empty
        shares = rows["y"].value_counts(normalize=True).sort_index().to_numpy()
        np.testing.assert_allclose(
            fit.predict(rows, type="prob").iloc[:, :3], np.tile(shares, (300, 1))
        )


@pytest.mark.long
def test_folds_choose_for_themselves(table):
    noise = table.assign(
        **{
            f"z{k}": np.random.default_rng(k).integers(0, 3, len(table)).astype(str)
            for k in range(20)
        }
    )
    chosen = bbl.crossVal(
        "y ~ .", noise, method="naive", relevance=0.05, score="logloss", verbose=0
    )
    everything = bbl.crossVal("y ~ .", noise, method="naive", score="logloss", verbose=0)
    assert chosen.maxscore < everything.maxscore


@pytest.mark.long
def test_bootstrap_of_effects_chooses_anew(table):
    effects = fitted(table, "naive").avg_comparisons(
        variables="a", se="bootstrap", nboot=20, seed=1
    )
    assert (effects.frame["std_error"] > 0).all()


@pytest.mark.parametrize(
    "ask",
    [
        lambda fit: fit.inference(),
        lambda fit: fit.claic,
        lambda fit: fit.bootstrap(nboot=2),
        lambda fit: fit.odds_ratios(),
    ],
    ids=["inference", "claic", "bootstrap", "odds ratios"],
)
def test_there_are_no_tests_of_what_the_rows_have_chosen(table, ask):
    with pytest.raises(OptionError, match="selected on the same rows"):
        ask(fitted(table, "pseudo"))


def test_goodness_of_fit_and_step_are_refused(table):
    fit = bbl.bbl("y ~ a * b", table, method="ml", relevance=0.05)
    with pytest.raises(OptionError, match="selected on the same rows"):
        fit.goodness_of_fit()
    with pytest.raises(OptionError, match="step selects terms automatically"):
        bbl.step(fit)


def test_interactions_and_report_say_why_there_are_no_tests(table, tmp_path, undrawn):
    fit = fitted(table, "pseudo")
    strongest = fit.interactions().iloc[0]
    assert (strongest["predictor"], strongest["predictor2"]) == ("a", "b")
    assert "selected on the same rows" in strongest["test"]
    fit.report(tmp_path / "report.html")
    assert "selected on the same rows" in (tmp_path / "report.html").read_text()


def test_effects_say_why_they_have_no_errors(table):
    effects = fitted(table, "pseudo").avg_comparisons(variables="a")
    assert "selected on the same rows. Hint: Use se='bootstrap'" in effects.note
    assert "std_error" not in effects.frame or effects.frame["std_error"].isna().all()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"relevance": 0.0}, "strictly between 0 and 1"),
        ({"relevance": "best"}, "Choose one of 'cv', 'cv-1se'"),
        ({"method": "pvi", "relevance": 0.05}, "has priors"),
        ({"method": "shbm", "relevance": 0.05}, "selects terms automatically"),
        ({"formula": "~ .", "relevance": 0.05}, "has no response"),
        (
            {"method": "ml", "relevance": 0.05, "structural_zeros": "zero"},
            "Leave out relevance or structural_zeros",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(table, arguments, text):
    with pytest.raises(OptionError, match=text):
        bbl.bbl(
            arguments.pop("formula", "y ~ a + b"),
            table.assign(zero=["0", "1"] * 200),
            verbose=0,
            **arguments,
        )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long
def test_an_average_of_noise_predicts_the_shares_and_uses_nothing(tmp_path, seed):
    rng = np.random.default_rng(seed)
    noise = pd.DataFrame(rng.integers(0, 3, (300, 8)).astype(str)).add_prefix("x")
    noise["y"] = np.where(rng.random(300) < 0.3, "yes", "no")
    fit = bbl.bbl("y ~ .^2", noise, method="auto", verbose=0)
    assert fit.relevant().empty and "The class proportions" in str(fit)
    shares = noise["y"].value_counts(normalize=True)[["no", "yes"]]
    np.testing.assert_allclose(probabilities(fit, noise), np.tile(shares, (300, 1)), rtol=1e-12)
    fit.save(tmp_path / "noise.bbl")
    loaded = bbl.load(tmp_path / "noise.bbl")
    assert str(loaded) == str(fit) and loaded.relevant().empty
    np.testing.assert_array_equal(probabilities(loaded, noise), probabilities(fit, noise))


@pytest.mark.long
def test_many_weak_predictors_none_of_them_relevant_are_still_used_together():
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (400, 60))
    y = rng.random(400) < 1 / (1 + np.exp(-0.35 * (2 * x - 1).sum(axis=1)))
    table = pd.DataFrame(x.astype(str)).add_prefix("x").assign(y=np.where(y, "yes", "no"))
    assert bbl.bbl("y ~ .", table, method="naive", relevance=0.05 / 60, verbose=0).relevant().empty
    fit = bbl.bbl("y ~ .", table, method="auto", verbose=0)
    assert len(fit.relevant()) == 60


@pytest.mark.long
def test_average_tells_what_its_members_use(table):
    noise = table.assign(
        **{
            f"z{k}": np.random.default_rng(k).integers(0, 3, len(table)).astype(str)
            for k in range(12)
        }
    )
    fit = bbl.bbl("y ~ .", noise, method="auto", verbose=0)
    used = fit.relevant()
    assert used.loc[["a", "b"], "weight"].to_numpy() == pytest.approx(1.0)
    assert (used.loc["z0", "weight"] < 0.5) and used["weight"].is_monotonic_decreasing
