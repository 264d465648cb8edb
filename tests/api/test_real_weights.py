"""Weights that are no counts: where they are taken, what they mean, and what refuses them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import bbl
from bbl.engines import ENGINES
from bbl.errors import DataError, DataWarning

FORMULA = "Survived ~ Class * Sex + Age"
TAKEN = ("pseudo", "ml", "mf", "naive", "pvi", "conditional")
pytestmark = pytest.mark.filterwarnings("ignore:weights are not all whole numbers")


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


def test_methods_say_whether_they_take_them(titanic):
    assert {name for name, engine in ENGINES.items() if engine.weights == "real"} == set(TAKEN)
    for method in sorted(set(ENGINES) - set(TAKEN)) + ["auto"]:
        with pytest.raises(DataError, match=r"weights are not all counts: row 2 has 17\.5"):
            bbl.bbl(
                FORMULA, titanic.assign(Freq=titanic["Freq"] / 2), weights="Freq", method=method
            )


@pytest.mark.parametrize(
    ("method", "options", "count"),
    [("pseudo", {"lambda_": 0.01}, 0.0), ("mf", {}, 1.0), ("naive", {}, 1.0)],
)
def test_weights_times_a_number_are_the_same_shares(titanic, method, options, count):
    counts, factor = titanic["Freq"].to_numpy(), 0.37
    whole = bbl.bbl(FORMULA, titanic, weights=counts, method=method, prior_count=count, **options)
    part = bbl.bbl(
        FORMULA,
        titanic,
        weights=counts * factor,
        method=method,
        prior_count=count * factor,
        **options,
    )
    assert_allclose(part.estimate.parameters.theta, whole.estimate.parameters.theta, atol=1e-7)
    assert_allclose(part.estimate.lkh / part.nobs(), whole.estimate.lkh / whole.nobs(), rtol=1e-9)
    found, expected = (fit.predict(titanic, type="prob")[["No", "Yes"]] for fit in (part, whole))
    assert_allclose(found, expected, atol=1e-8)
    assert_allclose(part.logLik(), factor * whole.logLik(), rtol=1e-9)
    assert part.nobs() == pytest.approx(factor * whole.nobs())


@pytest.mark.parametrize("absent", ["1st", "Crew", None])  # the reference level, another one
@pytest.mark.parametrize("formula", ["Survived ~ .", "Survived ~ .^2", "Survived ~ .^3"])
def test_mean_field_ln_z_does_not_depend_on_their_scale(titanic, absent, formula):
    """Whole weights have a prior count of one more where all levels occur."""
    counts = (
        titanic["Freq"]
        .where((titanic["Class"] != absent) | (titanic["Survived"] == "No"), 0)
        .to_numpy()
    )
    data, options = titanic.drop(columns="Freq"), {"lambda_": 0.01, "lambdah": 0.01}
    part, much, whole = (
        bbl.bbl(formula, data, w, log_z="mf", **options)
        for w in (counts * 0.37, counts / 3e-4, counts)
    )
    assert_allclose(part.log_z, much.log_z, atol=1e-8)
    assert_allclose(part.log_z, whole.log_z, atol=0.02)
    assert_allclose(
        part.log_z, bbl.bbl(formula, data, counts, log_z="exact", **options).log_z, atol=0.6
    )


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive"])
def test_shares_of_a_row_add_up(titanic, method):
    rng = np.random.default_rng(0)
    twice = pd.concat([titanic, titanic], ignore_index=True)
    share = rng.random(len(titanic))
    weights = np.r_[titanic["Freq"] * share, titanic["Freq"] * (1 - share)]
    split, whole = (
        bbl.bbl(FORMULA, twice, weights=weights, method=method),
        bbl.bbl(FORMULA, titanic, "Freq", method),
    )
    assert_allclose(split.estimate.parameters.theta, whole.estimate.parameters.theta, atol=1e-8)


def test_whole_numbers_are_counts_whatever_their_type(titanic):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = bbl.bbl(FORMULA, titanic, weights=titanic["Freq"].astype(float))
    assert fit.inference().table()["p"].notna().any()


def test_a_fit_warns_and_what_counts_rows_refuses(titanic, tmp_path):
    data = titanic.assign(Freq=titanic["Freq"] * 0.37)
    with pytest.warns(DataWarning, match="weights are not all whole numbers") as caught:
        fit = bbl.bbl(FORMULA, data, weights="Freq")
    assert caught[0].filename == __file__
    for refused in (
        fit.inference,
        fit.conf_int,
        lambda: fit.bootstrap(2),
        lambda: fit.interactions(pvalues="permutation"),
    ):
        with pytest.raises(DataError, match="weights of this fit are not whole numbers"):
            refused()
    assert (
        fit.interactions()["p"].isna().all()
        and "not whole numbers" in fit.interactions()["test"][0]
    )
    assert fit.summary().tables["tests"]["Pr(>chisq)"].isna().all()
    nested = bbl.bbl("Survived ~ Class + Sex + Age", data, weights="Freq")
    assert bbl.anova(nested, fit)["p"].isna().all()
    fit.save(tmp_path / "m.bbl", store_data=True)
    back = bbl.load(tmp_path / "m.bbl")
    pd.testing.assert_frame_equal(back.predict(data, type="prob"), fit.predict(data, type="prob"))
    with pytest.raises(DataError, match="not whole numbers"):
        back.inference()


@pytest.mark.filterwarnings("ignore:On the validated rows")
def test_a_row_with_such_a_weight_lies_in_one_fold(titanic):
    data = titanic[titanic["Freq"] > 0].assign(Freq=lambda d: d["Freq"] * 0.37)
    cv = bbl.crossVal(
        FORMULA,
        data,
        weights="Freq",
        lambda_=[0.01, 0.1],
        lambdah=0.01,
        nfold=3,
        shuffle=True,
        seed=1,
    )
    assert cv.cvframe["AUC"].between(0, 1).all()
    assert sorted(np.concatenate(cv.folds)) == list(range(len(data)))


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive"])
def test_one_group_takes_them_from_codes(method):
    x = np.random.default_rng(1).integers(0, 3, (60, 3))
    weights = bbl.effective_weights(x, identity=0.6)
    assert (weights < 1).any()
    options = (
        {"lambda_": 0.01}
        if method == "pseudo"
        else {"prior_count": 0.0}
        if method == "naive"
        else {"prior_count": 0.5}
    )
    fit = bbl.mlestimate(x, weights, method=method, **options)
    f = np.bincount(x[:, 0], weights, minlength=3) / weights.sum()
    if method == "naive":
        assert_allclose(fit.h[0], np.log(f[1:] / f[0]), atol=1e-12)
    scaled = bbl.mlestimate(
        x, weights * 3, method=method, **options | ({"prior_count": 1.5} if method == "mf" else {})
    )
    assert_allclose(scaled.h[0], fit.h[0], atol=1e-7)
    assert_allclose(scaled.lkh, fit.lkh, rtol=1e-8)
