"""Energies, ln Z, class scores and metrics against the oracle and by definition."""

import numpy as np
import pandas as pd
import pytest
import reference as oracle

import bbl
from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.job import FitData, FitSpec
from bbl.engines import PseudoLikelihood
from bbl.errors import OptionError
from bbl.model import logz
from bbl.model.ais import annealing_seconds
from bbl.model.elimination import elimination_order
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.model.logz import exact_log_z, pseudo_log_z, resolve_log_z
from bbl.model.marginal import MarginalEnergy
from bbl.model.moments import level_counts, one_hot, pair_counts
from bbl.model.regressors import to_sites
from bbl.rows.sample import Sample
from bbl.stats.metrics import accuracy, auc, brier, class_scores, link, log_loss, log_probabilities

CASES = [
    ([2, 3, 4, 2], None),
    ([2, 3, 4, 2], []),
    ([3, 2, 2, 2, 3], [(0, 1), (1, 2), (3, 4)]),
    ([2, 2, 3, 2, 2], [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]),
    ([5], None),
]


def tables(layout, theta):
    h = [layout.table(theta, i) for i in range(layout.m)]
    return h, {(int(i), int(j)): layout.table(theta, i, j) for i, j in layout.pairs}


@pytest.mark.parametrize(("levels", "pairs"), CASES)
@pytest.mark.parametrize("K", [1, 2, 3, 7, 10])
def test_energy_and_exact_log_z(levels, pairs, K, monkeypatch):
    layout = Layout(levels, pairs)
    theta = np.random.default_rng(K).normal(scale=2.0, size=(K, layout.size))
    states = oracle.states(levels)
    for dtype in (np.uint8, np.uint16, np.int32):
        E = energies(states.astype(dtype), layout, theta)
        for k in range(K):
            np.testing.assert_allclose(
                E[:, k], oracle.energy(*tables(layout, theta[k]), states), atol=1e-12
            )
    expected = [oracle.log_partition(*tables(layout, t), levels) for t in theta]
    at_once = exact_log_z(layout, theta)
    np.testing.assert_allclose(at_once, expected, atol=1e-12)
    monkeypatch.setattr(logz, "CELLS_AT_ONCE", 1000.0)  # a few models at once, or one
    np.testing.assert_array_equal(exact_log_z(layout, theta), at_once)


def test_log_z_of_large_energies_does_not_overflow():
    layout = Layout([2, 2])
    assert exact_log_z(layout, np.array([[1000.0, -2000.0, 1500.0]]))[0] == pytest.approx(1000.0)


def test_a_chain_of_hundreds_is_exact_and_a_dense_one_refused():
    chain = Layout([3] * 300, [(i, i + 1) for i in range(299)])
    theta = np.random.default_rng(0).normal(size=chain.size)
    transfer = np.zeros(3)
    for i in range(300):  # the textbook transfer-matrix recursion
        weight = np.concatenate([[0.0], chain.table(theta, i)])
        if i:
            table = np.pad(chain.table(theta, i - 1, i), ((1, 0), (1, 0)))
            transfer = np.logaddexp.reduce(transfer[:, None] + table, axis=0)
        transfer = transfer + weight
    assert exact_log_z(chain, theta[None])[0] == pytest.approx(
        np.logaddexp.reduce(transfer), abs=1e-9
    )
    dense = Layout([2] * 60)
    assert resolve_log_z("auto", dense, "half") == "half"
    assert resolve_log_z("auto", chain, "half") == "exact"
    assert resolve_log_z("pseudo", chain, "half") == "pseudo"
    assert elimination_order(dense.n_levels, dense.mask, 1e6) is None
    with pytest.raises(OptionError, match="log_z"):
        exact_log_z(dense, np.zeros((1, dense.size)))


@pytest.mark.parametrize("half", [False, True])
def test_pseudo_log_z(half):
    rng = np.random.default_rng(1)
    levels = [2, 3, 4]
    codes = np.column_stack([rng.integers(0, L, 50) for L in levels])
    weights = rng.integers(1, 4, 50).astype(float)
    exact = oracle.PseudoFit(codes, weights, levels, None, 0.1, 0.1)
    layout = Layout(levels)
    site = np.zeros((layout.D, 1 + layout.D))
    for i in range(3):
        rows = slice(layout.start[i], layout.start[i + 1])
        site[rows, 0] = exact.h[i]
        for j in range(3):
            if i != j:
                site[rows, 1 + layout.start[j] : 1 + layout.start[j + 1]] = exact.J_raw[i, j]
    value = pseudo_log_z(Sample(codes.astype(np.uint8), weights), layout, site, half=half)
    assert value == pytest.approx(exact.log_z(half=half), abs=1e-12)


@pytest.mark.parametrize("scale", [0.3, 30.0, 1e6])
@pytest.mark.parametrize("levels", [[2, 3, 4, 1, 2], [1, 3, 300, 2], [1, 4], [1, 1]])
@pytest.mark.parametrize("weights", ["counts", "huge", "tiny"])
def test_pseudo_log_z_of_constant_predictors_strong_couplings_and_any_weights(
    levels, scale, weights
):
    rng = np.random.default_rng(6)
    codes = np.column_stack([rng.integers(0, L, 77) for L in levels]).astype(np.uint16)
    w = {
        "counts": rng.integers(1, 5, 77),
        "huge": rng.integers(1, 10**9, 77),
        "tiny": rng.random(77) * 1e-12,
    }[weights]
    layout = Layout(levels)
    site = to_sites(layout, rng.normal(0.0, scale, layout.size))
    for half in (False, True):
        fields = one_hot(codes, layout) @ site[:, 1:].T * (0.5 if half else 1.0) + site[:, 0]
        total = sum(
            oracle.logsumexp(
                np.pad(fields[:, layout.start[i] : layout.start[i + 1]], ((0, 0), (1, 0)))
            )
            for i in range(layout.m)
        )
        value = pseudo_log_z(Sample(codes, w.astype(float)), layout, site, half=half)
        assert value == pytest.approx(np.sum(w / w.sum() * total), rel=1e-12, abs=1e-12)


def test_pseudo_log_z_goes_over_many_rows_block_by_block(monkeypatch):
    rng = np.random.default_rng(7)
    layout = Layout([2, 3, 4])
    sample = Sample(
        np.column_stack([rng.integers(0, L, 1000) for L in (2, 3, 4)]).astype(np.uint8),
        rng.random(1000),
    )
    site = to_sites(layout, rng.normal(size=layout.size))
    whole = pseudo_log_z(sample, layout, site, half=True)
    monkeypatch.setattr("bbl.model.logz.BLOCK", 170)
    assert pseudo_log_z(sample, layout, site, half=True) == pytest.approx(whole, rel=1e-14)


@pytest.mark.parametrize(
    "terms", [None, np.empty((0, 2), dtype=int)], ids=["all pairs", "independent"]
)
def test_unknown_predictors_are_summed_out(terms):
    levels = [2, 3, 4]
    layout = Layout(levels, terms)
    theta = np.random.default_rng(2).normal(size=(2, layout.size))
    states = oracle.states(levels)
    E = energies(states.astype(np.uint8), layout, theta)
    codes = np.array([[1, 0, 2], [1, 0, 0], [0, 1, 3]], dtype=np.uint8)
    unknown = np.array([[False, True, False], [False, True, True], [False, False, False]])
    got = MarginalEnergy(layout, theta)(codes, unknown)
    for k, (row, hidden) in enumerate(zip(codes, unknown, strict=True)):
        match = (states[:, ~hidden] == row[~hidden]).all(axis=1)
        np.testing.assert_allclose(got[k], np.logaddexp.reduce(E[match], axis=0), atol=1e-12)


def test_sums_are_exact_where_unknown_predictors_do_not_interact_with_each_other():
    star = Layout([4] * 8, [(0, j) for j in range(1, 8)])
    theta = np.random.default_rng(3).normal(size=(1, star.size))
    row = np.full((1, 8), 2, dtype=np.uint8)
    hidden = np.arange(8) > 0
    fixed = np.zeros(4)
    for j in range(1, 8):
        h, J = star.table(theta[0], j), star.table(theta[0], 0, j)[1]
        fixed[0] += np.logaddexp.reduce(np.concatenate([[0.0], h + J]))
    expected = star.table(theta[0], 0)[1] + fixed[0]
    assert MarginalEnergy(star, theta)(row, hidden[None])[0, 0] == pytest.approx(expected)


def test_moments_by_both_ways_and_by_definition():
    rng = np.random.default_rng(3)
    levels = [2, 5, 3, 2]
    codes = np.column_stack([rng.integers(0, L, 333) for L in levels]).astype(np.uint8)
    weights = rng.integers(1, 4, 333).astype(float)
    layout = Layout(levels)
    X = one_hot(codes, layout)
    for w in (np.ones(333), weights):
        expected = sum(wk * np.outer(x, x) for wk, x in zip(w, X, strict=True))
        np.testing.assert_array_equal(pair_counts(Sample(codes, w), layout), expected)
    counts = level_counts(Sample(codes, weights, (codes[:, 0] == 1).astype(np.intp)), levels)
    assert counts[1].shape == (2, 5)
    assert counts[1][1, 3] == weights[(codes[:, 0] == 1) & (codes[:, 1] == 3)].sum()


@pytest.mark.parametrize("n", [5, 900])
@pytest.mark.parametrize(
    "weights", ["one two", "small", "bytes", "about a byte", "large", "mixed", "twos", "halves"]
)
def test_counts_of_pairs_are_exact_whatever_the_weights(n, weights):
    rng = np.random.default_rng(4)
    levels = [2, 5, 3, 2]
    codes = np.column_stack([rng.integers(0, L, n) for L in levels]).astype(np.uint8)
    w = {
        "one two": np.where(np.arange(n) == 3, 2, 1),
        "small": rng.integers(1, 6, n),
        "bytes": rng.integers(1, 256, n),
        "about a byte": rng.integers(254, 259, n),
        "large": rng.integers(1, 10**9, n),
        "mixed": np.where(rng.random(n) < 0.1, rng.integers(1, 10**9, n), 1),
        "twos": np.full(n, 2),
        "halves": rng.integers(1, 1000, n) / 2,  # no counts, but exact
    }[weights]
    layout = Layout(levels)
    X = one_hot(codes, layout).astype(np.int64)
    found = pair_counts(Sample(codes, w.astype(float)), layout)
    np.testing.assert_array_equal(found, X.T @ (X * (2 * w).astype(np.int64)[:, None]) / 2)


def test_counts_that_would_be_rounded_are_summed_in_the_order_of_the_rows():
    rng = np.random.default_rng(5)
    codes, layout = rng.integers(0, 3, (300, 4)).astype(np.uint8), Layout([3] * 4)
    X = one_hot(codes, layout)
    for weights in (np.r_[2.0**53, np.ones(299)], rng.random(300)):
        expected = X.T @ (X * weights[:, None])
        np.testing.assert_array_equal(pair_counts(Sample(codes, weights), layout), expected)


def test_link_and_probabilities_agree():
    scores = np.random.default_rng(4).normal(scale=5.0, size=(20, 3))
    p = np.exp(log_probabilities(scores))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(link(scores), np.log(p / (1.0 - p)), atol=1e-9)
    far = np.array([[2000.0, 0.0], [0.0, 3000.0]])
    assert np.isfinite(log_probabilities(far)).all()
    np.testing.assert_array_equal(link(far), [[2000.0, -2000.0], [-3000.0, 3000.0]])
    assert link(np.zeros((2, 1))).tolist() == [[np.inf], [np.inf]]
    assert class_scores(np.zeros((1, 2)), np.zeros(2), np.array([1.0, 0.0])).tolist() == [
        [0.0, -np.inf]
    ]


def test_auc_counts_pairs_and_weights_are_repetition():
    rng = np.random.default_rng(5)
    score, positive = rng.integers(0, 6, 60).astype(float), rng.random(60) < 0.4
    weights = rng.integers(1, 4, 60)
    cases, controls = score[positive], score[~positive]
    pairs = (cases[:, None] > controls).mean() + 0.5 * (cases[:, None] == controls).mean()
    assert auc(score, positive, np.ones(60))[0] == pytest.approx(pairs, abs=1e-12)
    again = auc(np.repeat(score, weights), np.repeat(positive, weights), np.ones(weights.sum()))
    assert auc(score, positive, weights.astype(float)) == pytest.approx(again, abs=1e-12)
    area, variance = oracle.delong(np.repeat(score, weights), np.repeat(positive, weights))[:2]
    assert again[0] == pytest.approx(area, abs=1e-12)
    assert all(np.isnan(auc(score, np.zeros(60, dtype=bool), np.ones(60))))


def test_scores_by_definition():
    p = np.array([[0.7, 0.3], [0.2, 0.8], [0.6, 0.4]])
    y, w = np.array([0, 1, 1]), np.array([1.0, 2.0, 1.0])
    assert accuracy(np.log(p), y, w) == pytest.approx(0.75)
    assert log_loss(np.log(p), y, w) == pytest.approx(
        -(np.log(0.7) + 2 * np.log(0.8) + np.log(0.4)) / 4
    )
    assert brier(np.log(p), y, w) == pytest.approx((2 * 0.09 + 2 * 2 * 0.04 + 2 * 0.36) / 4)


@pytest.mark.parametrize(
    ("log_z", "m", "words"),
    [("exact", 60, "table cells"), ("ais", 500, "hours for 4000 models of 500 predictors")],
)
def test_costly_ln_z_is_refused_before_anything_is_fitted(monkeypatch, log_z, m, words):
    layout = Layout([2] * m)
    codes = np.random.default_rng(0).integers(0, 2, (40, m)).astype(np.uint8)
    sample = Sample(codes, np.ones(40), np.arange(40) % 2)
    monkeypatch.setattr(PseudoLikelihood, "path", None)  # called, it would be a TypeError
    with pytest.raises(OptionError, match=words) as caught:
        spec = FitSpec(PseudoLikelihood(), log_z)
        estimate_path(FitData(sample, layout, 2), spec, np.full(2000, 0.1))
    assert caught.value.argument == "log_z"


def test_cross_validation_counts_its_folds_before_it_begins():
    m = 300
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (60, m)), columns=[f"x{i}" for i in range(m)])
    data["y"] = np.arange(60) % 2
    with pytest.raises(OptionError, match="hours for 20000 models"):
        bbl.crossVal("y ~ .^2", data, lambda_=np.geomspace(0.1, 1.0, 1000), nfold=10, log_z="ais")


def test_annealing_takes_longer_for_more():
    small, wide, deep = (
        annealing_seconds(Layout(levels)) for levels in ([2] * 10, [2] * 20, [20] * 10)
    )
    assert small < wide
    assert small < deep
    assert annealing_seconds(Layout([2] * 10), 1000) == pytest.approx(2 * small)
