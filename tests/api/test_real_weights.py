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
TAKEN = ("pseudo", "ml", "mf", "naive", "pvi", "conditional", "pcd", "mpf")
pytestmark = pytest.mark.filterwarnings(
    "ignore:weights are not all integers", "ignore:On the held-out rows"
)


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


def test_methods_say_whether_they_take_them(titanic):
    assert {name for name, engine in ENGINES.items() if engine.weights == "real"} == set(TAKEN)
    for method in sorted(set(ENGINES) - set(TAKEN)) + ["auto"]:
        with pytest.raises(DataError, match=r"weights must .* integers, but row 2 has 17\.5"):
            bbl.bbl(
                FORMULA, titanic.assign(Freq=titanic["Freq"] / 2), weights="Freq", method=method
            )


FACTORS = (1e-6, 0.37, 1e6)


@pytest.fixture(scope="module")
def real(titanic):
    """The Titanic with real-valued weights that no factor of `FACTORS` makes whole."""
    weights = titanic["Freq"] * np.random.default_rng(0).uniform(0.5, 1.5, len(titanic))
    return titanic.assign(Freq=weights), float(weights.sum())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("pseudo", {}),
        ("pseudo", {"prior_count": 1.0}),
        ("ml", {"prior_count": 2.0}),
        ("mf", {}),
        ("naive", {}),
        ("conditional", {}),
        ("pseudo", {"calibrate": "temperature", "lambda_": 0.01}),
        ("pseudo", {"calibrate": "offset", "lambda_": 0.01}),
    ],
)
@pytest.mark.thinned(3)
def test_the_scale_of_weights_does_not_matter(real, method, options):
    data, total = real
    plain = bbl.bbl(FORMULA, data, "Freq", method, seed=1, **options)
    for factor in (*FACTORS, 1.0 / total):
        scaled = data.assign(Freq=data["Freq"] * factor)
        fit = bbl.bbl(FORMULA, scaled, "Freq", method, seed=1, **options)
        assert_allclose(
            fit.estimate.parameters.theta, plain.estimate.parameters.theta, atol=1e-6, rtol=1e-6
        )
        assert_allclose(
            fit.predict(data, type="prob")["Yes"],
            plain.predict(data, type="prob")["Yes"],
            atol=1e-7,
        )
        assert fit.nobs() == pytest.approx(plain.nobs(), rel=1e-9)
        assert str(fit.log_loss) == str(plain.log_loss)
        if method != "conditional":
            assert_allclose(
                [fit.logLik(), fit.aic, fit.bic], [plain.logLik(), plain.aic, plain.bic]
            )


def test_real_weights_sum_to_the_effective_number_of_rows(real):
    data, total = real
    fit = bbl.bbl(FORMULA, data, "Freq")
    assert fit.nobs() == pytest.approx(total**2 / (data["Freq"] ** 2).sum(), rel=1e-12)
    # equal weights are those of single rows
    equal = bbl.bbl(FORMULA, data, np.full(len(data), 0.3))
    assert equal.nobs() == len(data)
    assert_allclose(equal.bse, bbl.bbl(FORMULA, data).bse)


def test_the_scale_does_not_matter_to_data_in_batches(real, tmp_path):
    data, _ = real
    plain = bbl.bbl(FORMULA, data, "Freq", method="naive")
    for factor in FACTORS:
        scaled = data.assign(Freq=data["Freq"] * factor)
        path = tmp_path / "rows.parquet"
        scaled.to_parquet(path)
        fit = bbl.bbl(FORMULA, path, "Freq", method="naive")
        assert_allclose(
            fit.estimate.parameters.theta, plain.estimate.parameters.theta, rtol=1e-10, atol=1e-12
        )
        assert fit.nobs() == pytest.approx(plain.nobs(), rel=1e-9)


def test_the_scale_does_not_matter_to_the_interval_of_a_cross_validated_auc(real):
    data, _ = real
    found = []
    for factor in (*FACTORS, 1.0):
        scaled = data.assign(Freq=data["Freq"] * factor)
        options = {"lambda_": [0.01], "lambdah": 0.01, "nfold": 3, "shuffle": True, "seed": 1}
        cv = bbl.crossVal(FORMULA, scaled, "Freq", **options)
        found.append(cv.cvframe[["AUC", "ci1", "ci2"]].iloc[0].to_numpy(float))
    assert_allclose(found, np.tile(found[-1], (4, 1)), atol=1e-6)
    assert found[-1][2] - found[-1][1] > 0.1  # of a few rows, whatever their weights sum to


@pytest.mark.parametrize(
    ("method", "options"),
    [("pseudo", {"lambda_": 0.01}), ("mf", {"prior_count": 0.0}), ("naive", {"prior_count": 0.0})],
)
def test_real_weights_are_shares_of_the_rows(titanic, method, options):
    """Without prior counts they give the estimates of counts in the same proportions."""
    counts = titanic["Freq"].to_numpy()
    whole = bbl.bbl(FORMULA, titanic, weights=counts, method=method, **options)
    part = bbl.bbl(FORMULA, titanic, weights=counts * 0.37, method=method, **options)
    assert_allclose(part.estimate.parameters.theta, whole.estimate.parameters.theta, atol=1e-7)
    assert_allclose(part.estimate.lkh / part.nobs(), whole.estimate.lkh / whole.nobs(), rtol=1e-9)
    assert_allclose(part.logLik() / part.nobs(), whole.logLik() / whole.nobs(), rtol=1e-9)
    found = part.predict(titanic, type="prob")["Yes"]
    assert_allclose(found, whole.predict(titanic, type="prob")["Yes"], atol=1e-8)


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


@pytest.mark.parametrize(
    ("method", "options"),
    [("pseudo", {}), ("mf", {"prior_count": 0.0}), ("naive", {"prior_count": 0.0})],
)
def test_shares_of_a_row_add_up(titanic, method, options):
    rng = np.random.default_rng(0)
    twice = pd.concat([titanic, titanic], ignore_index=True)
    share = rng.random(len(titanic))
    weights = np.r_[titanic["Freq"] * share, titanic["Freq"] * (1 - share)]
    split, whole = (
        bbl.bbl(FORMULA, twice, weights=weights, method=method, **options),
        bbl.bbl(FORMULA, titanic, "Freq", method, **options),
    )
    assert_allclose(split.estimate.parameters.theta, whole.estimate.parameters.theta, atol=1e-8)


def test_whole_numbers_are_counts_whatever_their_type(titanic):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = bbl.bbl(FORMULA, titanic, weights=titanic["Freq"].astype(float))
    assert fit.inference().table()["p"].notna().any()


def test_a_fit_warns_and_what_counts_rows_refuses(titanic, tmp_path):
    data = titanic.assign(Freq=titanic["Freq"] * 0.37)
    with pytest.warns(DataWarning, match="weights are not all integers") as caught:
        fit = bbl.bbl(FORMULA, data, weights="Freq")
    assert caught[0].filename == __file__
    for refused in (
        fit.inference,
        fit.conf_int,
        lambda: fit.bootstrap(2),
        lambda: fit.interactions(pvalues="permutation"),
    ):
        with pytest.raises(DataError, match="weights of this fit are not integers"):
            refused()
    assert fit.interactions()["p"].isna().all() and "not integers" in fit.interactions()["test"][0]
    assert fit.summary().tables["tests"]["Pr(>chisq)"].isna().all()
    nested = bbl.bbl("Survived ~ Class + Sex + Age", data, weights="Freq")
    assert bbl.anova(nested, fit)["p"].isna().all()
    fit.save(tmp_path / "m.bbl", store_data=True)
    back = bbl.load(tmp_path / "m.bbl")
    pd.testing.assert_frame_equal(back.predict(data, type="prob"), fit.predict(data, type="prob"))
    with pytest.raises(DataError, match="not integers"):
        back.inference()


@pytest.mark.filterwarnings("ignore:On the held-out rows")
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
    scaled = bbl.mlestimate(x, weights * 0.1, method=method, **options)
    assert_allclose(scaled.h[0], fit.h[0], atol=1e-7)
    assert_allclose(scaled.lkh, fit.lkh, rtol=1e-8)
