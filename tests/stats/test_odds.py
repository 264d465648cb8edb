"""Odds in two samples: which cells decide, limits against both together, shifts given the
margins.
"""

import numpy as np
import pytest
from scipy.optimize import brentq

from bbl.stats.exact import hypergeometric
from bbl.stats.odds import least_cells, shifts_from_pooled
from bbl.stats.shift import Shift


def family(n11, row, column, n):
    return hypergeometric(*(np.array([float(v)]) for v in (n11, row, column, n)))


def test_the_least_cell_is_observed_or_expected_in_either_sample():
    one, other = np.array([[30.0, 100.0], [60.0, 8.0]]), np.array([[500.0, 1000.0], [900.0, 90.0]])
    found = least_cells(one, other)
    assert found.tolist() == [30.0, 8.0]
    np.testing.assert_array_equal(least_cells(other, one), found)
    assert least_cells(np.array([[50.0], [0.0]]), np.array([[0.0], [60.0]])).tolist() == [0.0]


@pytest.mark.parametrize("ratio", [-3.0, -0.2, 0.0, 0.4, 5.0])
def test_a_log_odds_ratio_determines_the_cells_and_so_the_shift(ratio):
    # the estimate is 0: limits as they are
    counts = np.array([[[40.0], [60.0]], [[40.0], [60.0]], [[40.0], [60.0]]])
    shift = shifts_from_pooled(np.array([ratio]), counts, np.full((3, 1), 100.0), 0)[0]
    odds = np.exp(shift + np.log(40 / 60))
    cell = 100 * odds / (1 + odds)
    rest = np.log((120 - cell) / (180 - (100 - cell)))
    assert np.log(odds) - rest == pytest.approx(ratio, abs=1e-9)
    assert (
        shift == pytest.approx(0.0, abs=1e-12) if ratio == 0.0 else np.sign(shift) == np.sign(ratio)
    )


def test_infinite_limits_end_where_the_margins_do():
    counts = np.array([[[40.0], [60.0]], [[20.0], [300.0]]])
    sizes = np.array([[100.0], [320.0]])
    low, high = (shifts_from_pooled(np.array([v]), counts, sizes, 0)[0] for v in (-np.inf, np.inf))
    assert low == -np.inf and np.isfinite(high) and high > np.log(40 / 60) - np.log(60 / 360)
    assert np.isnan(shifts_from_pooled(np.array([np.nan]), counts, sizes, 0)[0])


def test_half_widths_are_those_given_the_sizes_of_the_groups():
    """Shares of .5 and .9: the margins alone would leave out a part of the scatter."""
    rng, n = np.random.default_rng(0), 20_000
    a, b = rng.binomial(n, 0.5, 4000), rng.binomial(n, 0.9, 4000)
    shifts = np.log(a / (n - a)) - np.log((a + b) / (2 * n - a - b))
    counts, sizes = np.array([[[0.5], [0.5]], [[0.9], [0.1]]]) * n, np.full((2, 1), float(n))
    ratio, error = np.log(1 / 9), np.sqrt((4 + 1 / 0.09) / n)
    low, high = (
        shifts_from_pooled(np.array([ratio + v * error]), counts, sizes, 0)[0] for v in (-0.5, 0.5)
    )
    assert high - low == pytest.approx(shifts.std(), rel=0.04)


@pytest.mark.parametrize("ratio", [0.2, 1.0, -4.0])
def test_limits_beyond_zero_or_the_estimate_move_away_from_it_by_the_ratio_of_the_errors(ratio):
    counts, sizes = np.array([[[5.0], [5.0]], [[9.0], [1.0]]]), np.full((2, 1), 10.0)
    pooled = np.log(14 / 6)
    # given the margins: the cell with this log odds ratio, and the standard error of the shift
    cell = brentq(
        lambda c: np.log(c / (10 - c)) - np.log((14 - c) / (c - 4)) - ratio, 4 + 1e-9, 10 - 1e-9
    )
    a, b = 1 / 5 + 1 / 5, 1 / 9 + 1 / 1
    # given the sizes: shares .5 and .9, and the derivatives of the shift by them
    slope, other_slope = 10 * (a - (1 / 14 + 1 / 6)), -10 * (1 / 14 + 1 / 6)
    widening = np.sqrt((slope**2 * 0.25 + other_slope**2 * 0.09) / 10 / (a**2 / (a + b)))
    expected = -pooled + widening * np.log(cell / (10 - cell))
    assert shifts_from_pooled(np.array([ratio]), counts, sizes, 0)[0] == pytest.approx(
        expected, rel=1e-6
    )
    assert widening > 1.0 and (expected > 0.0) == (ratio > 0.0)


def test_a_shift_is_zero_where_the_difference_is_and_has_its_sign():
    one, other = family(12, 30, 25, 60), family(9, 40, 35, 90)
    shift = Shift.of(one, other)
    assert shift.at(0.0, np.nan) == pytest.approx(0.0, abs=1e-7)
    assert shift.one.mean(shift.pooled) + shift.other.mean(shift.pooled) == pytest.approx(
        21.0, abs=1e-5
    )
    for error in (np.nan, 0.1, 2.0):
        assert shift.at(-0.5, error) < 0 < shift.at(0.5, error) < shift.at(1.5, error)
    assert abs(shift.at(-3.0, 2.0)) > abs(shift.at(-3.0, np.nan))
    # the second count can be 0, and then the first one is 21 of at most 25
    assert shift.at(np.inf, np.nan) == pytest.approx(one.solve(21.0) - shift.pooled, abs=1e-6)
    assert shift.at(-np.inf, np.nan) == -np.inf
    assert Shift.of(family(0, 30, 25, 60), family(0, 40, 35, 90)) is None


def test_moments_and_their_inverse():
    found = family(9, 20, 18, 60)
    mean, variance = found.moments(0.0)
    assert mean == pytest.approx(6.0) and variance == pytest.approx(6 * 42 / 60 * 40 / 59)
    assert found.mean(found.solve(9.0)) == pytest.approx(9.0) and found.solve(18.0) == np.inf
    assert found.solve(0.0) == -np.inf
