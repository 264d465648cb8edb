"""Differences between groups and from the pooled fit: one hypothesis one p-value, limits that
agree, levels.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.boltzmann.inference.comparisons import compare_groups, compare_pooled
from bbl.boltzmann.inference.significance import Kind, evidence
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

RARE = (0.45, 0.42, 0.09, 0.04)


def log_odds(n):
    """Return the log odds of states with counts n against the first, with 1/2 for 0."""
    log = np.log(np.maximum(n, 0.5))
    return log - log[0]


def rows_of(counts):
    """Return the Evidence of groups with these counts (K, L) of the levels of one predictor, and of
    all together, from their log odds.
    """
    counts = np.asarray(counts, dtype=float)
    layout, codes = Layout([counts.shape[1]]), np.arange(counts.shape[1], dtype=np.uint8)[:, None]
    found = [
        evidence(Sample(codes[n > 0], n[n > 0]), layout, log_odds(n)[1:])
        for n in (*counts, counts.sum(axis=0))
    ]
    return found[:-1], found[-1]


def agree(comparison):
    """Whether every p-value is below .05 where the interval of 95 % leaves out 0, and there
    only.
    """
    lower, upper = comparison.limits(0.95)
    tested = ~np.isnan(lower)
    exact_couplings = (comparison.verdict == Kind.EXACT) & (
        np.arange(comparison.layout.size) >= comparison.layout.D
    )
    assert (np.isnan(upper) == ~tested).all() and (
        (np.isnan(comparison.p) | exact_couplings) >= ~tested
    ).all()
    return ((comparison.p < 0.05) == ((lower > 0) | (upper < 0)))[tested].all()


def test_a_small_group_beside_a_large_one_says_the_same_of_both():
    data = pd.DataFrame(
        {"y": ["small"] * 2 + ["big"] * 3, "a": [0, 1, 0, 1, 2], "n": [24, 6, 2400, 510, 90]}
    )
    with pytest.warns(match="never occurs"):
        inference = bbl.bbl("y ~ a", data, "n", verbose=0).inference()
    tests, table = inference.tests(of="pooled"), inference.table(of="pooled")
    assert tests["p"][0] == pytest.approx(0.830357, abs=1e-6)
    np.testing.assert_allclose(tests["p"], inference.tests(of=("big", "small"))["p"][0], rtol=1e-9)
    p = table["p"].to_numpy().reshape(2, 2)
    np.testing.assert_allclose(p[0], p[1], rtol=1e-9)
    assert p[0, 0] == pytest.approx(0.70, abs=0.01) and np.isnan(p[0, 1])
    tested = table["p"].notna()
    assert (table.loc[tested, "lower"] < 0).all() and (table.loc[tested, "upper"] > 0).all()


@pytest.mark.parametrize("sizes", [(25, 2000), (300, 300), (40, 70), (3000, 1000)])
def test_two_groups_have_one_p_value_whoever_is_compared(sizes):
    rng = np.random.default_rng(sum(sizes))
    for _ in range(5):
        groups, pooled = rows_of([rng.multinomial(n, RARE) for n in sizes])
        one, other = compare_pooled(groups, pooled)
        between = compare_groups(*groups)
        assert (one.verdict == other.verdict).all() and (one.verdict == between.verdict).all()
        for p in (other.p, between.p):
            np.testing.assert_allclose(p, one.p, rtol=1e-9)
        for p in (other.tables()[2], between.tables()[2]):
            np.testing.assert_allclose(p, one.tables()[2], rtol=1e-9)
        assert agree(one) and agree(other) and agree(between)


@pytest.mark.long
def test_p_values_and_limits_agree_for_any_groups():
    rng = np.random.default_rng(1)
    for _ in range(25):
        K, L = rng.integers(2, 7, 2)
        sizes = np.exp(rng.uniform(np.log(25), np.log(3000), K)).astype(int)
        q = np.exp(0.5 * rng.normal(size=(K, L)))
        groups, pooled = rows_of(
            [rng.multinomial(n, row / row.sum()) for n, row in zip(sizes, q, strict=True)]
        )
        assert all(agree(c) for c in compare_pooled(groups, pooled))


def test_dense_groups_have_the_wald_test_of_the_log_odds_ratio_of_a_group_and_the_others():
    counts = np.array([[300, 200], [250, 250], [100, 60]])
    groups, pooled = rows_of(counts)
    for g, found in enumerate(compare_pooled(groups, pooled)):
        rest = counts.sum(axis=0) - counts[g]
        ratio = np.log(counts[g, 1] / counts[g, 0] * rest[0] / rest[1])
        assert found.verdict[0] == Kind.WALD
        assert found.z[0] == pytest.approx(
            ratio / np.sqrt((1 / counts[g]).sum() + (1 / rest).sum())
        )
        shift = np.log(counts[g, 1] / counts[g, 0]) - np.log(
            counts[:, 1].sum() / counts[:, 0].sum()
        )
        lower, upper = (limit[0] for limit in found.limits(0.95))
        assert lower < shift < upper


def test_equal_couplings_differ_from_that_of_all_rows_where_margins_do():
    # independent in each group, not in both together
    high = np.outer([0.25, 0.75], [0.25, 0.75]).ravel() * 1600
    states = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], dtype=np.uint8)
    layout = Layout([2, 2])
    for size, kind in ((1.0, Kind.WALD), (0.1, Kind.EXACT)):
        counts = np.rint(np.array([high, high[::-1]]) * size)
        groups = [evidence(Sample(states, n), layout, np.zeros(3)) for n in counts]
        pooled = evidence(Sample(states, counts.sum(axis=0)), layout, np.zeros(3))
        between = compare_groups(*groups)
        assert between.p[2] > 0.9
        for found in compare_pooled(groups, pooled):
            assert found.verdict[2] == kind and agree(found)
            if kind == Kind.WALD:  # of the difference from all rows
                assert found.p[2] < 0.03 and found.limits(0.95)[1][2] < 0
            else:  # of the difference of the groups, with no limits of another one
                assert found.p[2] == pytest.approx(between.p[2], rel=1e-9) and np.isnan(
                    found.limits(0.95)[1][2]
                )


@pytest.mark.long
def test_couplings_of_sparse_groups_have_tests_that_agree_with_their_limits():
    rng, layout = np.random.default_rng(2), Layout([2, 3])
    states = np.array([(a, b) for a in range(2) for b in range(3)], dtype=np.uint8)
    kinds = set()
    for _ in range(20):
        sizes = np.exp(rng.uniform(np.log(40), np.log(2000), rng.integers(2, 4))).astype(int)
        counts = np.array(
            [rng.multinomial(n, rng.dirichlet(np.full(6, 5.0))) for n in sizes], dtype=float
        )
        groups = [
            evidence(Sample(states[n > 0], n[n > 0]), layout, np.zeros(layout.size)) for n in counts
        ]
        pooled = evidence(Sample(states, counts.sum(axis=0)), layout, np.zeros(layout.size))
        for found in compare_pooled(groups, pooled):
            assert agree(found)
            kinds |= set(found.verdict.tolist())
    assert {int(Kind.WALD), int(Kind.EXACT)} <= kinds


def test_fields_are_judged_by_the_other_groups_too():
    groups, pooled = rows_of([[24, 6], [2400, 510]])
    assert all(c.verdict[0] == Kind.EXACT for c in compare_pooled(groups, pooled))
    groups, pooled = rows_of([[30, 4], [900, 110], [700, 80]])
    assert [int(c.verdict[0]) for c in compare_pooled(groups, pooled)] == [
        Kind.EXACT,
        Kind.WALD,
        Kind.WALD,
    ]


PAIR = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], dtype=np.uint8)


def pairs_of(counts):
    """Return the Evidence of groups with these counts (K, 4) of the states of two binary
    predictors, and of all, from their log odds.
    """
    layout, found = Layout([2, 2]), []
    for n in (*counts, counts.sum(axis=0)):
        energy = log_odds(n)
        start = np.array([energy[2], energy[1], energy[3] - energy[2] - energy[1]])
        found.append(evidence(Sample(PAIR[n > 0], n[n > 0]), layout, start))
    return found[:-1], found[-1]


@pytest.mark.parametrize(("together", "kind"), [(8.0, Kind.EXACT), (30.0, Kind.WALD)])
def test_couplings_have_a_normal_shift_only_with_enough_information_on_both_sides(together, kind):
    # 20 and more rows are expected together, of which few are
    counts = np.array(
        [[330.0, 95.0, 95.0, together], [1400.0, 300.0, 300.0, 100.0], [900.0, 200.0, 200.0, 60.0]]
    )
    groups, pooled = pairs_of(counts)
    assert groups[0].kind[2] == Kind.WALD
    for g, found in enumerate(compare_pooled(groups, pooled)):
        assert found.verdict[2] == (kind if g == 0 else Kind.WALD) and agree(found)


@pytest.mark.long
@pytest.mark.parametrize("q", [(0.25, -1.8), (0.1, -1.3)])
def test_negative_couplings_of_three_groups_hold_the_level(q):
    """400 samples; with a normal distribution 6.6 % of p-values are below .05, and .4 % below
    .001.
    """
    share, coupling = q
    field, rng = np.log(share / (1 - share)), np.random.default_rng(5)
    p = np.exp([0.0, field, field, 2 * field + coupling])
    n, values = 600 if share > 0.2 else 2500, []
    for _ in range(400):
        groups, pooled = pairs_of(rng.multinomial(n, p / p.sum(), 3).astype(float))
        values += [found.p[2] for found in compare_pooled(groups, pooled)]
    values = np.array(values)[~np.isnan(values)]
    assert (values < 0.05).mean() < 0.065 and (values < 0.001).mean() < 0.005


def level(sizes, q, replicates, rng, spread=0.0):
    """Return the shares of p-values below .05 and .001, also of joint tests, and of limits that
    hold the truth.
    """
    K, L = len(sizes), len(q)
    shares = np.log(q) + spread * rng.normal(size=(K, L))
    shares = np.exp(shares) / np.exp(shares).sum(axis=1, keepdims=True)
    all_rows = np.asarray(sizes) @ shares
    truth = np.log(shares[:, 1:] / shares[:, :1]) - np.log(all_rows[1:] / all_rows[0])
    p, joint, held = [], [], []
    for _ in range(replicates):
        groups, pooled = rows_of(
            [rng.multinomial(n, row) for n, row in zip(sizes, shares, strict=True)]
        )
        for g, found in enumerate(compare_pooled(groups, pooled)):
            lower, upper = found.limits(0.95)
            tested = ~np.isnan(found.p)
            p += found.p[tested].tolist()
            held += ((lower <= truth[g]) & (truth[g] <= upper))[tested].tolist()
            joint.append(found.tables()[2][0])
    p, joint = np.array(p), np.array(joint)
    return (p < 0.05).mean(), (p < 0.001).mean(), np.nanmean(joint < 0.05), np.mean(held)


@pytest.mark.long
def test_a_rare_level_of_a_small_group_is_not_found_significant_in_the_large_one():
    at_5, at_01, joint, held = level((25, 2000), RARE, 60, np.random.default_rng(3))
    assert at_5 < 0.08 and at_01 < 0.02 and joint < 0.1 and held > 0.93


@pytest.mark.long
def test_levels_hold_for_any_mix_of_groups():
    """300 samples of random cells: groups of 25 to 3,000, levels of 3 % and more; Monte-Carlo
    errors are clustered.
    """
    rng = np.random.default_rng(4)
    for cell in range(4):
        K, L = rng.integers(2, 5), rng.integers(2, 6)
        sizes = np.exp(rng.uniform(np.log(25), np.log(3000), K)).astype(int)
        q = 0.03 + (1 - 0.03 * L) * rng.dirichlet(np.full(L, 1.5))
        at_5, at_01, joint, held = level(sizes, q, 300, rng, spread=0.5 * (cell % 2))
        if cell % 2:
            assert held > 0.93, (sizes, q)
        else:
            assert at_5 < 0.065 and at_01 < 0.004 and joint < 0.075 and held > 0.93, (sizes, q)


def test_zeros_of_one_group_count_in_either_order_of_the_groups():
    rows = pd.DataFrame({"y": list("uuuuuuvvvvv"), "x": list("aaabbccbbcc")})
    zeros = {"x": ["a"], "y": ["v"]}
    with pytest.warns(bbl.ConvergenceWarning, match="never occurs"):
        inference = bbl.bbl(
            "y ~ x", rows, method="ml", structural_zeros=zeros, verbose=0
        ).inference()
    one, other = inference.tests(("u", "v")), inference.tests(("v", "u"))
    assert one["test"].tolist() == other["test"].tolist() == ["not estimable: no rows"]
    assert one["p"].isna().all() and other["p"].isna().all()
