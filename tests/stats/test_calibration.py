"""The loss of calibrated class scores and its derivatives, and the optimum."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bbl._ext.model.calibration import CalibrationLoss
from bbl.stats.calibration import FIRM_PENALTY, fit_calibration
from bbl.stats.metrics import log_probabilities


def draw(n, K, scale=1.0):
    """Return scores (n, K) of rows, their groups, and their weights."""
    rng = np.random.default_rng(n + K)
    return (
        scale * rng.normal(size=(n, K)),
        rng.integers(0, K, n),
        rng.integers(1, 4, n).astype(float),
    )


def loss_of(x, scores, y, shares, fits_temperature=True, ridge=0.0):
    """Return the mean log-loss at the offsets and ln T, with the penalty."""
    T = np.exp(x[-1]) if fits_temperature else 1.0
    loss = -(shares * log_probabilities(T * scores + x[:-1])[np.arange(len(y)), y]).sum()
    return loss + 0.5 * ridge * float(x @ x)


@pytest.mark.parametrize("fits_temperature", [False, True])
@pytest.mark.parametrize(
    ("n", "K", "scale"), [(1, 2, 1.0), (8, 3, 1.0), (61, 2, 30.0), (100, 6, 0.1), (9, 1, 1.0)]
)
def test_the_kernel_returns_the_loss_with_first_and_second_derivatives(
    n, K, scale, fits_temperature
):
    scores, y, weights = draw(n, K, scale)
    shares, x = weights / weights.sum(), np.random.default_rng(1).normal(size=K + 1) / 3.0
    given = scores, y, shares, fits_temperature, 0.3
    kernel = CalibrationLoss(*given)
    value, gradient, hessian = kernel(x)
    assert value == pytest.approx(loss_of(x, *given), rel=1e-13, abs=1e-13)
    steps = 1e-5 * np.eye(K + 1)
    slope = [(loss_of(x + d, *given) - loss_of(x - d, *given)) / 2e-5 for d in steps]
    np.testing.assert_allclose(gradient, slope, atol=2e-9 * max(1.0, scale))
    curvature = [(kernel(x + d)[1] - kernel(x - d)[1]) / 2e-5 for d in steps]
    np.testing.assert_allclose(hessian, curvature, atol=1e-8 * max(1.0, scale) ** 2)


@pytest.mark.parametrize(
    ("kind", "penalty"), [("offset", 1.0), ("temperature", 1.0), ("firm", FIRM_PENALTY)]
)
def test_the_calibration_is_the_optimum(kind, penalty):
    scores, y, weights = draw(90, 4)
    total = weights.sum()
    keep = np.append(np.ones(4), float(kind != "offset"))  # the temperature is 1 in "offset"

    def objective(x):
        return loss_of(x * keep, scores, y, weights / total) + 0.5 * penalty / total * float(
            (x * keep) @ (x * keep)
        )

    best = minimize(objective, np.zeros(5), tol=1e-12).x * keep
    found = fit_calibration(scores, y, weights, kind)
    np.testing.assert_allclose(found.offset, best[:4] - best[:4].mean(), atol=1e-5)
    assert found.temperature == pytest.approx(np.exp(best[4]), abs=1e-5)
    repeated = np.repeat(np.arange(90), weights.astype(int))
    same = fit_calibration(scores[repeated], y[repeated], np.ones(len(repeated)), kind)
    np.testing.assert_allclose(same.offset, found.offset, atol=1e-12)


def test_scores_of_minus_infinity_of_other_groups_count_as_impossible():
    scores, y, weights = draw(60, 3)
    scores[y == 0, 2] = -np.inf
    low = np.where(np.isinf(scores), -1e5, scores)
    np.testing.assert_allclose(
        fit_calibration(scores, y, weights, "firm").offset,
        fit_calibration(low, y, weights, "firm").offset,
        atol=1e-12,
    )
