"""Exact conditional tests: against Fisher's distribution, by enumeration, and their level."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from bbl.stats.exact import PowerSeries, hypergeometric, root
from bbl.stats.wald import adjust, wald


def table(n11, row, column, n):
    return hypergeometric(*(np.array([float(v)]) for v in (n11, row, column, n)))


def test_one_table_has_the_hypergeometric_distribution():
    found = table(3, 7, 6, 20)
    p = np.exp(found.log_c)
    np.testing.assert_allclose(p / p.sum(), hypergeom.pmf(np.arange(7), 20, 7, 6), rtol=1e-12)
    assert found.t == 3
    low, high = found.tails(0.0)
    assert low == pytest.approx(hypergeom.cdf(2, 20, 7, 6) + 0.5 * hypergeom.pmf(3, 20, 7, 6))
    assert low + high == pytest.approx(1.0)


def test_strata_are_convolved_and_groups_compared_given_their_sum():
    both = hypergeometric(*(np.array(v, dtype=float) for v in ([1, 2], [3, 4], [2, 5], [8, 9])))
    one, other = (np.exp(table(*v).log_c) for v in ((1, 3, 2, 8), (2, 4, 5, 9)))
    joint = np.convolve(one, other)
    np.testing.assert_allclose(
        np.exp(both.log_c) / np.exp(both.log_c).sum(), joint / joint.sum(), rtol=1e-12
    )
    difference = table(1, 3, 2, 8).less(table(2, 4, 5, 9))
    wanted = np.array([one[t] * other[3 - t] for t in range(3)])
    np.testing.assert_allclose(
        np.exp(difference.log_c) / np.exp(difference.log_c).sum(), wanted / wanted.sum(), rtol=1e-12
    )
    assert difference.t == 1


@pytest.mark.parametrize("strata", [1, 3])
def test_counts_far_from_independence_are_compared_although_coefficients_underflow(strata):
    """Both groups have log odds ratios of about 5: at 0, coefficients near the observed counts are
    below exp(-745).
    """
    tables = [
        tuple(count // strata for count in counts)
        for counts in ((870, 1000, 1000, 3000), (465, 500, 520, 1500))
    ]
    integers = []
    for _, row, column, n in tables:
        table_of_one = np.array(
            [comb(row, t) * comb(n - row, column - t) for t in range(row + 1)], dtype=object
        )
        product = np.array([1], dtype=object)
        for _ in range(strata):
            product = np.convolve(product, table_of_one)
        integers.append(product)
    ours = [hypergeometric(*(np.full(strata, float(v)) for v in one)) for one in tables]
    found = ours[0].less(ours[1])
    total = sum(one.t for one in ours)
    first = max(0, total - len(integers[1]) + 1)
    last = min(total, len(integers[0]) - 1)
    wanted = [int(integers[0][t] * integers[1][total - t]) for t in range(first, last + 1)]
    at = ours[0].t - first
    below = Fraction(2 * sum(wanted[:at]) + wanted[at], 2 * sum(wanted))
    assert found.t == at
    assert found.p() == pytest.approx(float(2 * min(below, 1 - below)), rel=1e-6)
    low, high = found.limits(0.95)
    assert low < found.estimate < high


def test_limits_are_where_the_tails_are_small_and_agree_with_the_test():
    found = table(9, 20, 18, 60).inside()
    low, high = found.limits(0.95)
    assert found.tails(low)[1] == pytest.approx(0.025, abs=1e-6)
    assert found.tails(high)[0] == pytest.approx(0.025, abs=1e-6)
    assert (low > 0 or high < 0) == (found.p() < 0.05)
    assert table(1, 20, 18, 60).inside().limits(0.95)[0] == -np.inf
    assert table(0, 20, 18, 60).inside() is None


@pytest.mark.parametrize(("n", "a", "b"), [(50, 0.2, 0.2), (50, 0.1, 0.05), (100, 0.05, 0.1)])
@pytest.mark.long
def test_level_over_random_margins_also_given_that_a_test_is_made(n, a, b):
    rejected = made = 0.0
    for row in range(n + 1):
        for column in range(n + 1):
            chance = binom.pmf(row, n, a) * binom.pmf(column, n, b)
            if chance < 1e-4:
                continue
            first = max(0, row + column - n)
            for t in range(first + 1, min(row, column)):
                inside = table(t, row, column, n).inside()
                weight = chance * hypergeom.pmf(t, n, row, column)
                made += weight
                rejected += weight * (inside.p() < 0.05)
    assert rejected / made <= 0.05


def test_a_binomial_count_covers_at_least_its_level():
    n, p = 45, 0.1
    k = np.arange(n + 1.0)
    log_c = np.log(binom.pmf(k, n, 0.5))
    missed = 0.0
    for t in range(1, 20):
        low, high = PowerSeries(log_c, t, share=1.0).inside().limits(0.95)
        missed += binom.pmf(t, n, p) * (not low <= np.log(p / (1 - p)) <= high)
    assert missed <= 0.05


def test_adjusted_p_values_leave_out_tests_that_were_not_made():
    p = np.array([0.04, np.nan, 0.01, 0.03])
    np.testing.assert_allclose(adjust(p, "holm"), [0.06, np.nan, 0.03, 0.06])
    np.testing.assert_allclose(adjust(p, "fdr_bh"), [0.04, np.nan, 0.03, 0.04])
    assert np.isnan(adjust(np.array([np.nan]), "holm")).all()
    statistic, df, p = wald(
        [np.array([2.0]), np.empty(0), np.array([1.0, 1.0])],
        [np.eye(1), np.empty((0, 0)), np.eye(2)],
    )
    np.testing.assert_allclose(statistic, [4.0, np.nan, 2.0])
    assert df.tolist() == [1, 0, 2] and np.isnan(p[1])


@pytest.mark.parametrize("strata", [1, 2, 7, 60, 301])
def test_many_strata_have_the_distribution_of_one_convolution_after_the_other(strata):
    rng = np.random.default_rng(strata)
    n = rng.choice([2, 3, 5, 12, 40, 90], strata)
    row, column = (rng.integers(0, n + 1) for _ in range(2))
    n11 = rng.integers(np.maximum(0, row + column - n), np.minimum(row, column) + 1)
    found = hypergeometric(*(np.asarray(v, dtype=float) for v in (n11, row, column, n)))
    wanted, low = np.ones(1), np.maximum(0, row + column - n)
    for a, r, s, total in zip(low, row, column, n, strict=True):
        wanted = np.convolve(wanted, hypergeom.pmf(np.arange(a, min(r, s) + 1), total, r, s))
        wanted /= wanted.max()
    assert found.t == (n11 - low).sum() and len(found.log_c) == len(wanted)
    np.testing.assert_allclose(np.exp(found.log_c), wanted, rtol=1e-9, atol=1e-300)


def test_roots_are_found_also_where_steps_of_newton_leave_the_bracket():
    assert root(
        lambda x: (np.arctan(x - 7.0), 1.0 / (1.0 + (x - 7.0) ** 2)), 60.0
    ) == pytest.approx(7.0, abs=1e-10)
    assert root(
        lambda x: (np.sign(x + 3.0) * abs(x + 3.0) ** (1 / 3), np.nan), 60.0
    ) == pytest.approx(-3.0, abs=1e-9)
    assert (
        root(lambda x: (x - 61.0, 1.0), 60.0) == np.inf
        and root(lambda x: (x + 61.0, 1.0), 60.0) == -np.inf
    )


@pytest.mark.parametrize(
    "counts", [(1, 2, 2, 4), (40, 50, 60, 100), (1, 2000, 500, 5000), (499, 2000, 500, 2600)]
)
@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
def test_limits_leave_the_tails_that_they_promise(counts, level):
    found = table(*counts)
    low, high = found.limits(level)
    assert low < found.estimate < high
    if low > -np.inf:
        assert found.tails(low)[1] == pytest.approx((1 - level) / 2, rel=1e-6)
    if high < np.inf:
        assert found.tails(high)[0] == pytest.approx((1 - level) / 2, rel=1e-6)
    assert np.isfinite(found.limits(0.5)).all()
