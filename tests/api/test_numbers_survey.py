"""Sampling designs of fits with numeric predictors."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose

import bbl
from bbl.errors import OptionError

FORMULA = "y ~ a + b + a:u + b:u + a:v + b:v + u:v + u + v"
OPTIONS = {"numeric": ["u", "v"], "divisor": "ml", "lambda_": 0.0, "verbose": 0}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    n = 90
    y = rng.integers(0, 2, n)
    a = (rng.random(n) < 0.3 + 0.4 * y).astype(int)
    b = rng.integers(0, 3, n)
    u = rng.normal(size=n) + y + 0.8 * a
    v = 0.5 * u + rng.normal(size=n)
    return pd.DataFrame(
        {
            "y": np.array(["n", "s"])[y], "a": a, "b": b, "u": u, "v": v,
            "w": rng.random(n) + 0.3, "stratum": rng.integers(0, 3, n),
            "cluster": np.arange(n) // 3,
        }
    )  # fmt: skip


def fitted(table, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bbl.DataWarning)
        return bbl.bbl(FORMULA, table, **OPTIONS | options)


@pytest.mark.parametrize("covariance", ["group", "shared"])
@pytest.mark.thinned(2)
def test_effects_have_linearised_errors(table, covariance):
    """Linearised by hand, with influences from refits to slightly changed weights."""
    table = table.head(60).assign(stratum=lambda own: own["cluster"] % 3)
    design = bbl.survey("w", strata="stratum", cluster="cluster")
    fit = fitted(table, design=design, covariance=covariance)
    new = table[["a", "b", "u", "v"]].head(8)
    effects = [fit.avg_comparisons({"a": (1, 0)}, newdata=new), fit.avg_slopes("u", newdata=new)]

    def estimates(w):
        other = fitted(table, weights=w, covariance=covariance)
        return [
            other.avg_comparisons({"a": (1, 0)}, newdata=new, se=False).frame["estimate"][0],
            other.avg_slopes("u", newdata=new, se=False).frame["estimate"][0],
        ]

    w = table["w"].to_numpy()
    totals = np.empty((len(w), 2))
    for k in range(len(w)):
        h = np.zeros(len(w))
        h[k] = 1e-4 * w[k]
        totals[k] = (np.array(estimates(w + h)) - estimates(w - h)) / 2e-4
    V = np.zeros((2, 2))
    for stratum in range(3):
        own = table["stratum"] == stratum
        sums = pd.DataFrame(totals[own]).groupby(table.loc[own, "cluster"].to_numpy()).sum()
        deviations = (sums - sums.mean()).to_numpy()
        V += len(sums) / (len(sums) - 1) * deviations.T @ deviations
    found = [effect.frame["std_error"][0] for effect in effects]
    assert_allclose(found, np.sqrt(V.diagonal()), rtol=1e-4)
    plain = fitted(table, weights=w, covariance=covariance)
    assert_allclose(fit.means(), plain.means(), rtol=1e-9)


def test_tests_of_means_use_the_design(table):
    design = bbl.survey("w", strata="stratum", cluster="cluster", nested=True)
    tests = fitted(table, design=design).inference().tests(of=("s", "n"))
    estimates = np.zeros(2)
    influences = np.zeros((len(table), 2))
    for sign, group in ((1.0, "s"), (-1.0, "n")):
        own = (table["y"] == group).to_numpy()
        rows = table[own]
        z = np.column_stack([np.ones(len(rows)), rows["a"] == 1, rows["b"] == 1, rows["b"] == 2])
        z = z.astype(float)
        regression = sm.WLS(rows["u"], z, weights=rows["w"]).fit()
        bread = np.linalg.inv(z.T @ (z * rows["w"].to_numpy()[:, None]))
        psi = (z * (regression.resid * rows["w"]).to_numpy()[:, None]) @ bread
        influences[own] += sign * psi[:, 2:]
        estimates += sign * regression.params.to_numpy()[2:]
    V = np.zeros((2, 2))
    for stratum in range(3):
        own = (table["stratum"] == stratum).to_numpy()
        sums = pd.DataFrame(influences[own]).groupby(table.loc[own, "cluster"].to_numpy()).sum()
        deviations = (sums - sums.mean()).to_numpy()
        V += len(sums) / (len(sums) - 1) * deviations.T @ deviations
    row = tests[(tests["predictor"] == "b") & (tests["predictor2"] == "u")]
    assert_allclose(row["chisq"].item(), estimates @ np.linalg.solve(V, estimates), rtol=1e-6)
    assert row["df"].item() == 2


def test_replicate_weights_refit_the_means(table):
    rng = np.random.default_rng(3)
    weights = rng.exponential(size=(len(table), 20)) * table["w"].to_numpy()[:, None]
    replicates = pd.DataFrame(weights, columns=[f"r{k}" for k in range(20)])
    drawn = pd.concat([table, replicates], axis=1)
    design = bbl.survey("w", replicates=list(replicates), type="bootstrap")
    fit = fitted(drawn, design=design)
    tests = fit.inference().tests(of=("s", "n"))

    def difference(w):
        out = 0.0
        for sign, group in ((1.0, "s"), (-1.0, "n")):
            own = (table["y"] == group).to_numpy()
            rows = table[own]
            z = np.column_stack(
                [np.ones(len(rows)), rows["a"] == 1, rows["b"] == 1, rows["b"] == 2]
            )
            out += sign * sm.WLS(rows["v"], z.astype(float), weights=w[own]).fit().params.iloc[1]
        return out

    found = np.array([difference(weights[:, k]) for k in range(20)])
    variance = ((found - found.mean()) ** 2).sum() / 19
    row = tests[(tests["predictor"] == "a") & (tests["predictor2"] == "v")]
    assert_allclose(
        row["chisq"].item(), difference(table["w"].to_numpy()) ** 2 / variance, rtol=1e-6
    )
    effects = fit.avg_comparisons("u", newdata=table.head(5)[["a", "b", "u", "v"]])
    refits = [
        fitted(table, weights=weights[:, k]).avg_comparisons(
            "u", newdata=table.head(5)[["a", "b", "u", "v"]], se=False,
            step=fit.design.predictors[list(fit.labels.names).index("u")].sd,
        ).frame["estimate"][0]
        for k in range(20)
    ]  # fmt: skip
    assert_allclose(effects.frame["std_error"][0], np.std(refits, ddof=1), rtol=1e-6)


REGRESSION = {"numeric": ["u", "v"], "method": "conditional", "ridge": 0, "verbose": 0}


def logistic(table, weights):
    """Return the regressors, the estimates and their influences by statsmodels."""
    X = np.column_stack(
        [np.ones(len(table)), table["a"] == 1, table[["u", "v"]], (table["a"] == 1) * table["u"]]
    ).astype(float)
    y = (table["y"] == "s").to_numpy(float)
    fit = sm.GLM(y, X, sm.families.Binomial(), freq_weights=weights).fit(tol=1e-13, maxiter=99)
    p = fit.fittedvalues
    bread = np.linalg.inv((X * (weights * p * (1 - p))[:, None]).T @ X)
    return X, fit.params, (X * (weights * (y - p))[:, None]) @ bread


def increase(X, params, weights):
    """Return the average effect of u + 0.5."""
    moved = X + 0.5 * np.column_stack(
        [np.zeros(len(X)), np.zeros(len(X)), np.ones(len(X)), np.zeros(len(X)), X[:, 1]]
    )
    rise = 1 / (1 + np.exp(-moved @ params)) - 1 / (1 + np.exp(-X @ params))
    return np.average(rise, weights=weights)


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_regressions_on_numbers_have_linearised_errors(table, unit):
    """By hand, in any unit of the numeric predictors."""
    design = bbl.survey("w", strata="stratum", cluster="cluster", nested=True)
    scaled = table.assign(u=table["u"] * unit, v=table["v"] * unit)
    fit = bbl.bbl("y ~ a*u + v", scaled, design=design, **REGRESSION)
    w = table["w"].to_numpy()
    X, params, influences = logistic(table, w)
    V = np.zeros((5, 5))
    for stratum in range(3):
        own = (table["stratum"] == stratum).to_numpy()
        sums = pd.DataFrame(influences[own]).groupby(table.loc[own, "cluster"].to_numpy()).sum()
        deviations = (sums - sums.mean()).to_numpy()
        V += len(sums) / (len(sums) - 1) * deviations.T @ deviations
    frame = fit.inference().table().query("group == 's'")
    units = np.array([1.0, unit, unit, unit])  # a, u, v, a:u
    assert_allclose(frame["estimate"], params[1:] / units, rtol=1e-7)
    assert_allclose(frame["se"], np.sqrt(V.diagonal())[1:] / units, rtol=1e-6)
    effect = fit.avg_comparisons("u", step=0.5 * unit).frame.query("group == 's'").iloc[0]
    slopes = [
        (increase(X, params + h, w) - increase(X, params - h, w)) / 2e-6 for h in 1e-6 * np.eye(5)
    ]
    assert_allclose(effect["estimate"], increase(X, params, w), rtol=1e-7)
    assert_allclose(effect["std_error"], np.sqrt(slopes @ V @ slopes), rtol=1e-5)
    tests = fit.inference().tests(of=("s", "n"))
    other = bbl.bbl("y ~ a*u + v", table, design=design, **REGRESSION)
    assert_allclose(tests["p"], other.inference().tests(of=("s", "n"))["p"], rtol=1e-5)


@pytest.mark.long
def test_regressions_on_numbers_are_refitted_to_replicates(table):
    weights = np.random.default_rng(3).exponential(size=(len(table), 12)) + 0.2
    replicates = pd.DataFrame(weights, columns=[f"r{k}" for k in range(12)])
    design = bbl.survey("w", replicates=list(replicates), type="bootstrap")
    fit = bbl.bbl(
        "y ~ a*u + v", pd.concat([table, replicates], axis=1), design=design, **REGRESSION
    )
    w = table["w"].to_numpy()
    refits = [logistic(table, weights[:, k])[1] for k in range(12)]
    frame = fit.inference().table().query("group == 's'")
    assert_allclose(frame["se"], np.std(refits, axis=0, ddof=1)[1:], rtol=1e-6)
    effect = fit.avg_comparisons("u", step=0.5).frame.query("group == 's'").iloc[0]
    X = logistic(table, w)[0]
    effects = [increase(X, params, w) for params in refits]
    assert_allclose(effect["std_error"], np.std(effects, ddof=1), rtol=1e-6)


def test_what_assumes_single_rows_is_refused(table, tmp_path):
    design = bbl.survey("w", cluster="cluster")
    fit = fitted(table, design=design)
    compared = bbl.anova(fitted(table, design=design, covariance="shared"), fit)
    assert compared["p"].isna().all()
    assert compared["test"].str.contains("independently sampled").any()
    with pytest.raises(OptionError, match="Omit the shrink argument"):
        fitted(table, design=design, shrink="cv")
    fit.save(tmp_path / "fit.bbl", store_data=True)
    loaded = bbl.load(tmp_path / "fit.bbl")
    one = fit.inference().tests(of=("s", "n"))
    assert one.equals(loaded.inference().tests(of=("s", "n")))
    assert "analysis of variance" not in str(fit.summary())
