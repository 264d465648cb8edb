"""Goodness of fit on arrays: statistics against scipy, residuals against their definitions,
Cochran's rule.
"""

import numpy as np
import pytest
from scipy.stats import chi2, power_divergence

from bbl.stats.goodness import (
    adjusted_residuals,
    chi_square_p,
    deviance_residuals,
    goodness_statistics,
    is_sparse,
    pearson_residuals,
)

RNG = np.random.default_rng(0)
FITTED = RNG.gamma(2.0, 5.0, 30)
OBSERVED = 1.0 + RNG.poisson(FITTED)
FITTED *= OBSERVED.sum() / FITTED.sum()


def test_statistics_are_those_of_the_power_divergence_family():
    kinds = ("log-likelihood", "pearson", "freeman-tukey")
    expected = [power_divergence(OBSERVED, FITTED, lambda_=kind).statistic for kind in kinds]
    np.testing.assert_allclose(goodness_statistics(OBSERVED, FITTED), expected, rtol=1e-12)


def test_cells_that_are_empty_on_both_sides_add_nothing():
    padded = [np.append(counts, [0.0, 0.0]) for counts in (OBSERVED, FITTED)]
    np.testing.assert_allclose(
        goodness_statistics(*padded), goodness_statistics(OBSERVED, FITTED), rtol=1e-14
    )
    assert pearson_residuals(*padded)[-1] == deviance_residuals(*padded)[-1] == 0.0
    assert np.isinf(goodness_statistics(np.array([1.0, 1.0]), np.array([2.0, 0.0]))[:2]).all()


def test_residuals_add_up_to_their_statistics_and_have_the_sign_of_the_excess():
    statistics = goodness_statistics(OBSERVED, FITTED)
    pearson, deviance = pearson_residuals(OBSERVED, FITTED), deviance_residuals(OBSERVED, FITTED)
    np.testing.assert_allclose(
        [(deviance**2).sum(), (pearson**2).sum()], statistics[:2], rtol=1e-12
    )
    assert (np.sign(pearson) == np.sign(OBSERVED - FITTED)).all()
    assert (np.sign(deviance) == np.sign(OBSERVED - FITTED)).all()


def test_a_perfect_fit_has_no_residual_but_for_rounding():
    nearly = OBSERVED * (1.0 + 1e-15)
    assert np.abs(deviance_residuals(OBSERVED, nearly)).max() < 1e-13


def test_adjusted_residuals_are_missing_where_nothing_is_left_to_vary():
    leverage = np.where(np.arange(30) < 3, 1.0, 0.5)
    adjusted = adjusted_residuals(OBSERVED, FITTED, leverage)
    assert np.isnan(adjusted[:3]).all()
    np.testing.assert_allclose(
        adjusted[3:], pearson_residuals(OBSERVED, FITTED)[3:] * np.sqrt(2.0), rtol=1e-14
    )


@pytest.mark.parametrize(
    ("counts", "sparse"),
    [
        ([5, 5, 5, 5, 4.9], False),
        ([5, 5, 5, 4.9, 4.9], True),
        ([50] * 20 + [0.9], True),
        ([50, 0.0, 0.0], False),
    ],
)
def test_counts_are_sparse_by_the_rule_of_cochran(counts, sparse):
    assert is_sparse(np.array(counts, dtype=float)) is sparse


def test_p_is_the_tail_of_the_chi_square_and_missing_without_degrees_of_freedom():
    statistics = np.array([0.0, 3.0, 700.0])
    np.testing.assert_allclose(chi_square_p(statistics, 4), chi2.sf(statistics, 4), rtol=1e-12)
    assert np.isnan(chi_square_p(statistics, 0)).all()
