"""The verbs with pseudo-likelihood on data read in batches, more rows than are fitted in memory."""

import numpy as np
import pandas as pd
import pytest
from lazydata import keep_few

import bbl
from bbl.engines.pseudo import blocks as pseudo_blocks
from bbl.errors import OptionError
from bbl.rows import fold_assignment
from tests.design.test_cluster import make_frame


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    keep_few(monkeypatch, 1500)
    monkeypatch.setattr(fold_assignment, "MAX_TABLE_CELLS", 100)


@pytest.fixture(scope="module")
def frame():
    return make_frame(n=10_000)


def both(frame, verb, formula="y ~ .^2", **options):
    """Results for the table, and for its rows in batches."""

    def batches():
        return (frame.iloc[first : first + 3000] for first in range(0, len(frame), 3000))

    return [verb(formula, data, verbose=0, **options) for data in (frame, batches)]


@pytest.mark.parametrize("log_z", ["half", "pseudo", "mf", "exact", "ais"])
@pytest.mark.thinned(2)
def test_parameters_and_log_z_are_those_of_the_table(frame, log_z):
    whole, fit = both(frame, bbl.bbl, lambda_=1e-2, log_z=log_z)
    assert fit.summary().facts["Fitted"].startswith("by rows: a sample of 1,5")
    np.testing.assert_allclose(
        fit.estimate.parameters.theta, whole.estimate.parameters.theta, atol=1e-8
    )
    np.testing.assert_allclose(
        fit.estimate.parameters.pooled, whole.estimate.parameters.pooled, atol=1e-8
    )
    np.testing.assert_allclose(fit.log_z, whole.log_z, atol=1e-7)
    assert fit.lkh == pytest.approx(whole.lkh, rel=1e-12)
    assert float(fit.logLik()) == pytest.approx(float(whole.logLik()), rel=1e-8)


def test_the_zero_sum_gauge_is_for_rows_that_are_few_enough_for_memory(frame, monkeypatch):
    options = {"lambda_": 1e-2, "lambdah": 1e-3, "gauge": "zero-sum"}
    with pytest.raises(
        OptionError, match="there are 10,000 rows.*Omit the gauge argument"
    ) as error:
        both(frame, bbl.bbl, **options)
    assert error.value.argument == "gauge"
    monkeypatch.setattr(pseudo_blocks, "MIN_SAMPLE", 5000)
    whole, fit = both(frame, bbl.bbl, **options)
    assert fit.estimate.parameters.theta.tobytes() == whole.estimate.parameters.theta.tobytes()
    np.testing.assert_allclose(fit.log_z, whole.log_z, atol=1e-12)


def test_one_group_without_a_response(frame):
    whole, fit = both(frame, bbl.bbl, "~ .^2 - y", lambda_=1e-2)
    np.testing.assert_allclose(
        fit.estimate.parameters.theta, whole.estimate.parameters.theta, atol=1e-8
    )


def test_tuning_and_calibration_choose_what_they_choose_for_the_table(frame):
    whole, fit = both(frame.head(6000), bbl.bbl, lambda_="cv", calibrate="temperature", seed=1)
    assert fit.engine.lambda_ == whole.engine.lambda_
    np.testing.assert_allclose(fit.tuning.loss, whole.tuning.loss, atol=1e-4)
    calibration, other = fit.estimate.calibration, whole.estimate.calibration
    assert calibration.temperature == pytest.approx(other.temperature, abs=1e-3)


@pytest.mark.long
def test_cross_validation_has_the_table_of_the_table(frame):
    tables = [
        cv.cvframe for cv in both(frame, bbl.crossVal, lambda_=[1e-2, 1e-1], shuffle=True, seed=2)
    ]
    pd.testing.assert_frame_equal(*tables, atol=1e-6)


def test_missing_values_are_levels_or_refused(frame):
    gaps = frame.copy()
    gaps.loc[gaps.index[::50], "x1"] = None
    whole, fit = both(gaps, bbl.bbl, lambda_=1e-2, missing="level")
    np.testing.assert_allclose(
        fit.estimate.parameters.theta, whole.estimate.parameters.theta, atol=1e-8
    )
    with pytest.raises(OptionError, match="marginal"):
        both(gaps, bbl.bbl, missing="marginal")
