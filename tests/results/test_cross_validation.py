"""`crossVal` and `mcSample` as methods; what a cross-validation hands on to its model."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold

import bbl
from bbl.errors import BBLTypeError, DataError, OptionError

GRIDS = {
    "pseudo": {"lambda_": [1e-3, 0.1]},
    "mf": {"eps": [0.2, 0.9]},
    "naive": {"prior_count": [0.0, 5.0]},
    "conditional": {},
    "ml": {},
    "blanket": {},
    "boosting": {},
}


@pytest.fixture(scope="module")
def rows():
    """200 passengers, and their ages in three classes, one row for each."""
    table = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq").sample(300, random_state=0)
    return table.reset_index(drop=True)


def quiet(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, verbose=0, **options)


def equal(one, other):
    pd.testing.assert_frame_equal(one.cvframe, other.cvframe)
    pd.testing.assert_frame_equal(one.pooled, other.pooled)
    assert (one.best, one.score, one.calibrate) == (other.best, other.score, other.calibrate)
    assert all(np.array_equal(a, b) for a, b in zip(one.folds, other.folds, strict=True))
    theta = one.model.estimate.parameters.theta
    np.testing.assert_array_equal(theta, other.model.estimate.parameters.theta)
    np.testing.assert_array_equal(one.model.log_z, other.model.log_z)


@pytest.mark.parametrize("method", GRIDS)
def test_the_method_is_the_function_with_the_rows_of_the_fit(rows, method):
    fit = quiet(bbl.bbl, "Survived ~ .^2", rows, method=method)
    options = {"nfold": 4, "shuffle": True, "seed": 3}
    cv = quiet(fit.crossVal, **options, **GRIDS[method])
    of_function = quiet(
        bbl.crossVal, "Survived ~ .^2", rows, method=method, **options, **GRIDS[method]
    )
    if method in ("conditional", "blanket", "boosting"):  # no ln Z
        pd.testing.assert_frame_equal(cv.cvframe, of_function.cvframe)
        pd.testing.assert_frame_equal(cv.pooled, of_function.pooled)
    else:
        equal(cv, of_function)
    assert cv.model.call.startswith("crossVal(bbl(formula = Survived ~ .^2")
    assert type(cv.model) is type(fit) and cv.model.training is fit.training


def test_options_weights_and_calibration_of_the_fit_stay(rows):
    titanic = bbl.datasets.load_titanic()
    given = {"lambda_": 0.02, "lambdah": 0.01, "log_z": "half", "calibrate": "temperature"}
    fit = quiet(bbl.bbl, "Survived ~ Class * Sex + Age", titanic, "Freq", **given)
    cv = quiet(fit.crossVal, shuffle=True, seed=5)
    del given["lambda_"]
    other = quiet(
        bbl.crossVal,
        "Survived ~ Class * Sex + Age",
        titanic,
        "Freq",
        shuffle=True,
        seed=5,
        lambda_=0.02,
        **given,
    )
    pd.testing.assert_frame_equal(cv.cvframe, other.cvframe)
    pd.testing.assert_frame_equal(cv.pooled, other.pooled)
    ours = cv.model.estimate.calibration
    assert ours.temperature == other.model.estimate.calibration.temperature
    assert cv.calibrate == "temperature" and cv.model.estimate.log_z_kind == "half"
    relevant = quiet(bbl.bbl, "Survived ~ .^2", rows, relevance=0.05)
    assert quiet(relevant.crossVal, nfold=3).model.estimate.relevance.level == 0.05


def test_without_a_response_and_with_the_last_fold(rows):
    fit = quiet(bbl.bbl, "~ .^2", rows, method="mf")
    for options in ({}, {"refit": False}, {"score": "pnll"}):
        equal(
            quiet(fit.crossVal, nfold=3, eps=[0.1, 0.5], **options),
            quiet(bbl.crossVal, "~ .^2", rows, method="mf", nfold=3, eps=[0.1, 0.5], **options),
        )
    last = quiet(fit.crossVal, nfold=3, refit=False).model
    assert last.nobs() == 200 and len(last.model_frame) == 200


def test_given_folds_are_positions_of_the_rows_of_the_fit(rows):
    fit = quiet(bbl.bbl, "Survived ~ .", rows)
    splitter = KFold(3, shuffle=True, random_state=0)
    of_splitter = quiet(fit.crossVal, cv=splitter)
    of_pairs = quiet(fit.crossVal, cv=list(splitter.split(rows)))
    equal(of_splitter, of_pairs)
    equal(of_splitter, quiet(bbl.crossVal, "Survived ~ .", rows, cv=splitter))
    with pytest.raises(OptionError, match="cv=3 is not a splitter. Hint: Use nfold=3"):
        fit.crossVal(cv=3)


def test_clusters_of_a_sampling_design_stay_together(rows):
    table = rows.assign(village=np.arange(len(rows)) // 10, w=1.5)
    design = bbl.survey(weights="w", cluster="village")
    fit = quiet(bbl.bbl, "Survived ~ .", table, design=design)
    equal(
        quiet(fit.crossVal, nfold=3, shuffle=True, seed=1),
        quiet(bbl.crossVal, "Survived ~ .", table, design=design, nfold=3, shuffle=True, seed=1),
    )


@pytest.mark.long
def test_an_average_by_auto_is_validated_on_its_rows(rows):
    fit = quiet(bbl.bbl, "Survived ~ .", rows, method="auto")
    options = {"nfold": 2, "shuffle": True, "seed": 1}
    cv = quiet(fit.crossVal, **options)
    other = quiet(bbl.crossVal, "Survived ~ .", rows, method="auto", **options)
    pd.testing.assert_frame_equal(cv.cvframe, other.cvframe)
    pd.testing.assert_frame_equal(cv.pooled, other.pooled)
    np.testing.assert_array_equal(cv.model.member_weights, other.model.member_weights)
    for name in ("coef", "mcSample"):
        with pytest.raises(OptionError, match="Hint: Call.*members"):
            getattr(cv, name)()
    assert "Survived" in str(cv.summary())
    with pytest.raises(OptionError, match="does not model.*Hint: Call mcSample.*members"):
        fit.mcSample()
    given = bbl.average([quiet(bbl.bbl, "Survived ~ .", rows, method=m) for m in ("mf", "naive")])
    with pytest.raises(OptionError, match="Hint: Call crossVal.. on each of fit.members"):
        given.crossVal()


def test_where_rows_are_absent_the_hint_works(rows, tmp_path):
    fit = quiet(bbl.bbl, "Survived ~ Sex", rows)
    fit.save(tmp_path / "without.bbl")
    without = bbl.load(tmp_path / "without.bbl")
    with pytest.raises(
        DataError, match=r"does not contain them.*Hint: Call bbl.crossVal\("
    ) as caught:
        without.crossVal()
    assert "formula='Survived ~ Sex'" in caught.value.hint
    assert "store_data=True" in caught.value.hint
    fit.save(tmp_path / "with.bbl", store_data=True)
    equal(quiet(bbl.load(tmp_path / "with.bbl").crossVal), quiet(fit.crossVal))


def test_unknown_options_are_named(rows):
    fit = quiet(bbl.bbl, "Survived ~ Sex", rows)
    with pytest.raises(BBLTypeError, match="'lambda' is not an option.*Did you mean 'lambda_'"):
        fit.crossVal(**{"lambda": 0.1})
    with pytest.raises(OptionError, match="nfold"):
        fit.crossVal(nfold=1)
    with pytest.raises(OptionError, match="score"):
        fit.crossVal(score="pnll")


def test_a_cross_validation_hands_on_to_its_model(rows):
    cv = quiet(bbl.crossVal, "Survived ~ .^2", rows, method="mf", eps=[0.2, 0.9])
    pd.testing.assert_frame_equal(cv.coef().to_frame(), cv.model.coef().to_frame())
    assert str(cv.summary()) == str(cv.model.summary())
    pd.testing.assert_frame_equal(cv.predict(rows), cv.model.predict(rows))
    ours, models = (of.mcSample(50, seed=1, draws=True, verbose=0) for of in (cv, cv.model))
    pd.testing.assert_frame_equal(ours.xmax, models.xmax)
    pd.testing.assert_frame_equal(ours.draws["Yes"], models.draws["Yes"])


def test_mcsample_is_the_function(rows):
    for formula in ("Survived ~ .^2", "~ ."):
        fit = quiet(bbl.bbl, formula, rows)
        method = fit.mcSample(50, seed=1, verbose=0)
        function = bbl.mcSample(fit, 50, seed=1, verbose=0)
        pd.testing.assert_frame_equal(method.xmax, function.xmax)
        pd.testing.assert_series_equal(method.emax, function.emax)


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive", "pvi"])
def test_an_estimate_of_codes_has_coefficients_and_a_summary(method):
    codes = np.random.default_rng(0).integers(0, [2, 3, 2], (200, 3))
    options = {"n_iter": 1000, "chains": 64} if method == "pvi" else {}
    par = bbl.mlestimate(codes, method=method, **options, verbose=0)
    coef = par.coef()
    for i in range(3):
        np.testing.assert_array_equal(coef.h["all"][i].to_numpy(), par.h[i])
    for (i, j), table in par.J.items():
        np.testing.assert_allclose(coef.J["all"][i, j].to_numpy(), table)
    summary = par.summary()
    assert f"ln Z: {par.lz:.7g}" in str(summary) and "fields h" in str(summary)
    frame = summary.tables["parameters"]
    assert len(frame) == 4 + (0 if method == "naive" else 2 + 1 + 2)
    assert ("sd" in frame) == (method == "pvi")
    if method == "pvi":
        assert frame["sd"].iloc[1] == par.sd_h[1][0]


def test_two_estimates_of_a_coupling_are_averaged():
    codes = np.random.default_rng(0).integers(0, 2, (50, 2))
    par = bbl.mlestimate(codes, symmetrize=False, lambda_=0.1, verbose=0)
    mean = 0.5 * (par.J[0, 1] + par.J[1, 0].T)
    np.testing.assert_allclose(par.coef().J["all"][0, 1].to_numpy(), mean)
