"""Limits that hold: tails against closed forms, coverage by enumeration and by simulation."""

import itertools

import numpy as np
import pytest
from scipy import stats

from bbl.stats.gammas import tail
from bbl.stats.limits import area_limits, mean_limits, share_limits, sum_limits
from bbl.stats.metrics import auc


@pytest.mark.parametrize("df", [1, 2, 5, 30])
@pytest.mark.parametrize("p", [0.9, 0.5, 0.05, 1e-8, 1e-20])
def test_a_chi_square_has_its_tail_to_many_digits(df, p):
    assert tail(np.array([2.0]), np.array([df / 2]), stats.chi2.isf(p, df)) == pytest.approx(
        p, rel=1e-9
    )


@pytest.mark.parametrize(
    ("n", "k"), [(1, 0), (2, 1), (10, 0), (100, 3), (10**6, 1000), (10**9, 10)]
)
@pytest.mark.parametrize("p", [0.975, 0.5, 0.025, 1e-6])
def test_signs_may_differ_as_for_a_beta_variable(n, k, p):
    u = stats.beta.isf(p, k + 1, n - k)
    assert tail(np.array([1 - u, -u]), np.array([k + 1.0, n - k])) == pytest.approx(p, rel=1e-6)


def test_a_variable_of_shape_zero_is_zero():
    assert tail(
        np.array([2.0, 1.0]), np.array([0.5, 0.0]), stats.chi2.isf(0.05, 1)
    ) == pytest.approx(0.05, rel=1e-9)
    assert [tail(np.array([2.0]), np.zeros(1), x) for x in (1.0, -1.0)] == [0.0, 1.0]


@pytest.mark.parametrize("rounding", [1e-176, 1e-39])
# the ratio of two chi-squares is a squared Cauchy variable
def test_a_coefficient_of_rounding_is_none(rounding):
    expected = 2.0 / np.pi * np.arctan(np.sqrt(rounding))
    assert tail(np.array([rounding, -1.0]), np.full(2, 0.5)) == pytest.approx(
        expected, rel=1e-9, abs=1e-20
    )
    assert tail(np.array([rounding, -1.0, -2.0 * rounding]), np.array([9.0, 1.0, 1.0])) <= 1e-30


def test_the_tail_of_a_sum_is_that_of_a_simulation():
    rng = np.random.default_rng(1)
    c = np.array([0.1, 0.5, 2.0, -0.7])
    drawn = rng.gamma(0.5, size=(400_000, 4)) @ c
    for x in (-1.0, 0.0, 0.7, 3.0):
        assert tail(c, np.full(4, 0.5), x) == pytest.approx((drawn > x).mean(), abs=0.003)
    assert tail(np.zeros(2), np.ones(2), 0.5) == 0.0 and tail(np.zeros(2), np.ones(2), -0.5) == 1.0


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 30), (3, 30), (30, 30), (4, 10**9)])
def test_limits_of_zeros_and_ones_are_those_of_clopper_and_pearson(k, n):
    low, high = share_limits(np.array([k]), np.array([n]))
    exact = stats.binomtest(k, n).proportion_ci(method="exact")
    assert (low[0], high[0]) == pytest.approx((exact.low, exact.high), rel=1e-9)
    found = mean_limits(np.array([1.0, 0.0]), np.array([k, n - k], dtype=float), 0.0, 1.0)
    assert found == pytest.approx((exact.low, exact.high), rel=1e-6, abs=1e-12)


def test_a_weight_is_a_repeated_row_and_units_do_not_matter():
    rng = np.random.default_rng(0)
    x, w = rng.random(20), rng.integers(1, 5, 20)
    weighted = mean_limits(x, w.astype(float), 0.0, 1.0)
    repeated = np.repeat(x, w)
    assert mean_limits(repeated, np.ones(len(repeated)), 0.0, 1.0) == weighted
    scaled = mean_limits(7 * x - 3, w.astype(float), -3.0, 4.0)
    assert scaled == pytest.approx(7 * np.array(weighted) - 3, abs=1e-8)
    assert mean_limits(np.full(9, 0.3), np.ones(9), 0.3, 0.3) == (0.3, 0.3)


def test_binning_of_many_numbers_changes_next_to_nothing():
    x = np.random.default_rng(0).exponential(size=9000)
    # few distinct values, so not binned
    fine = mean_limits(np.round(x, 2), np.ones(9000), 0.0, 20.0)
    assert mean_limits(x, np.ones(9000), 0.0, 20.0) == pytest.approx(fine, abs=2e-3)


@pytest.mark.parametrize(
    ("values", "p"), [((0.0, 0.1, 1.0), (0.6, 0.35, 0.05)), ((0.0, 0.5, 0.6), (0.9, 0.05, 0.05))]
)
@pytest.mark.long
def test_limits_of_a_bounded_mean_cover_by_enumeration(values, p):
    n, covered = 12, 0.0
    mean = float(np.dot(values, p))
    for a, b in itertools.product(range(n + 1), repeat=2):
        if a + b <= n:
            counts = np.array([a, b, n - a - b], dtype=float)
            low, high = mean_limits(np.array(values), counts, 0.0, 1.0)
            covered += stats.multinomial.pmf(counts, n, p) * (low <= mean <= high)
    assert covered >= 0.95


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.9), (0.97, 0.7), (0.99, 0.99)])
def test_limits_of_a_mean_of_shares_cover_by_enumeration(p, q):
    n, m = 5, 30
    k, j = (v.ravel() for v in np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing="ij"))
    chance = stats.binom.pmf(k, n, p) * stats.binom.pmf(j, m, q)
    covered = 0.0
    for a, b, weight in zip(k, j, chance, strict=True):
        total = np.array([n, m])
        low, high = share_limits(np.array([a, b]), total)
        lower, upper = sum_limits(np.array([a, b]) / total, low, high, np.array([0.5, 0.5]))
        covered += weight * (lower <= (p + q) / 2 <= upper)
    assert covered >= 0.95


def test_limits_of_an_area_of_one_are_no_point_and_an_empty_group_has_none():
    low, high = area_limits(1.0, 5, 5, wald=(1.0, 1.0))
    assert 0.5 < low < 0.75 and high == 1.0
    assert area_limits(0.0, 5, 5) == pytest.approx((0.0, 1.0 - low), abs=1e-6)
    assert np.isnan(area_limits(np.nan, 0, 5)).all()
    assert area_limits(0.8, 50, 50, wald=(0.1, 0.9))[0] == 0.1


@pytest.mark.parametrize("n", [1, 10, 10**4, 10**9, 10**15])
def test_limits_of_a_perfect_area_are_there_for_any_number_of_rows(n):
    lower, upper = area_limits(1.0, n, 2 * n)
    assert upper == 1.0 and 0.0 < lower < 1.0 and 1.0 - lower < 5 / n
    assert area_limits(0.0, n, 2 * n) == (0.0, pytest.approx(1.0 - lower))


@pytest.mark.long
@pytest.mark.parametrize(("cases", "controls"), [(5, 5), (10, 40), (30, 30)])
@pytest.mark.parametrize(("mean", "sd"), [(0.5, 1.0), (2.5, 1.0), (2.5, 2.0)])
def test_limits_of_an_area_hold_their_level(cases, controls, mean, sd):
    rng = np.random.default_rng(0)
    true = stats.norm.cdf(mean / np.hypot(1.0, sd))
    covered = 0
    for _ in range(2000):
        score = np.concatenate([rng.normal(mean, sd, cases), rng.normal(size=controls)])
        positive = np.arange(len(score)) < cases
        area, *wald = auc(score, positive, np.ones(len(score)))
        low, high = area_limits(area, cases, controls, wald=tuple(wald))
        covered += low <= true <= high
    assert covered / 2000 > 0.935


def test_numbers_that_differ_by_rounding_from_the_most_that_they_can_be_have_it_as_their_limit():
    most = np.log(2.0)
    values = np.array([most, np.nextafter(most, 0.0)])
    assert mean_limits(values, np.array([2.0, 10.0]), 0.0, most)[1] == most
