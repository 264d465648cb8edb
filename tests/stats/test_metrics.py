"""Scores of class predictions."""

import numpy as np
import pytest

from bbl.stats.metrics import calibration_error


def test_calibration_error_is_the_distance_of_bins_from_the_diagonal():
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(3), 400)
    y, weights = rng.integers(0, 3, 400), rng.integers(1, 4, 400).astype(float)
    expected = 0.0
    for k in range(3):
        for low in range(10):
            inside = (p[:, k] * 10 >= low) & (p[:, k] * 10 < low + 1)
            if inside.any():
                gap = np.average(p[inside, k], weights=weights[inside]) - np.average(
                    y[inside] == k, weights=weights[inside]
                )
                expected += abs(gap) * weights[inside].sum() / weights.sum() / 3
    assert calibration_error(p, y, weights) == pytest.approx(expected, abs=1e-14)
    rows = np.repeat(np.arange(400), weights.astype(int))
    assert calibration_error(p[rows], y[rows], np.ones(len(rows))) == pytest.approx(
        expected, abs=1e-14
    )
    # drawn from the first two predictions
    truth = np.array([(rng.random(p.shape[0]) > p[:, 0])]).astype(int)[0]
    two = np.column_stack([p[:, 0], 1.0 - p[:, 0]])
    assert calibration_error(two, truth, np.ones(400)) < 0.08
