"""Cuts have few digits, so that intervals have short names, and part the same values as exact
middles do.
"""

import numpy as np
import pytest

from bbl.stats.cuts import mdl_cuts, quantile_cuts, width_cuts


def test_cuts_have_no_digits_of_rounding_errors():
    x = np.array([11.84, 11.86])
    assert quantile_cuts(x, np.ones(2), 2).tolist() == [11.85]
    assert width_cuts(np.array([0.0, 10.0]), np.ones(2), 3).tolist() == [3.333, 6.667]
    assert quantile_cuts(np.array([170.123456, 170.139876]), np.ones(2), 2).tolist() == [170.132]
    assert width_cuts(np.array([0.0, 3e6]), np.ones(2), 2).tolist() == [1.5e6]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e12, 1e300])
def test_no_value_changes_sides(scale):
    rng = np.random.default_rng(2)
    x = np.unique(rng.normal(size=300)) * scale
    y = (x > 0.3 * scale).astype(int)
    for cuts in (quantile_cuts(x, np.ones(len(x)), 40), mdl_cuts(x, np.ones(len(x)), y)):
        below = np.searchsorted(x, cuts, side="right")
        assert len(cuts) and (x[below - 1] <= cuts).all() and (cuts < x[below]).all()
        middle = x[below - 1] + (x[below] - x[below - 1]) / 2
        np.testing.assert_allclose((cuts - middle) / (x[below] - x[below - 1]), 0.0, atol=0.05)


def test_neighbouring_numbers_are_parted():
    x = np.array([1.0, np.nextafter(1.0, 2.0)])
    cut = quantile_cuts(x, np.ones(2), 2)
    assert x[0] <= cut[0] < x[1]
