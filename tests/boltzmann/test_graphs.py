"""Graphical models on arrays: likelihoods against fits of all graphs, and the greedy search against
an own one.
"""

from itertools import combinations

import numpy as np
import pytest

from bbl.boltzmann.graphs.decomposable import greedy_graphs
from bbl.boltzmann.graphs.exhaustive import all_graphs
from bbl.boltzmann.graphs.scaling import fit_cliques
from bbl.boltzmann.graphs.scores import Margins, members
from bbl.engines import make_engine
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

ENGINE = make_engine("ml", {}, [])


def draw(n_levels, n, seed, strength=0.4):
    """Draw rows in which each predictor copies the one before, or the first, with probability
    `strength`.
    """
    rng = np.random.default_rng(seed)
    x = rng.integers(0, n_levels, (n, len(n_levels)))
    for i in range(1, len(n_levels)):
        source = x[:, i - 1] if i % 2 else x[:, 0]
        x[:, i] = np.where(rng.random(n) < strength, source % n_levels[i], x[:, i])
    return Sample(x.astype(np.uint8), rng.integers(1, 4, n).astype(float))


def all_scores(rows, n_levels, k=2.0, n_best=2**15):
    return all_graphs(Margins(rows, np.array(n_levels)), ENGINE, k, n_best, lambda *_: None)


def fitted(rows, n_levels, pairs):
    """Return log-likelihood and number of parameters of the graph of `pairs`, by a fit of its
    formula.
    """
    joined = set(pairs)
    sets = (t for k in range(2, len(n_levels) + 1) for t in combinations(range(len(n_levels)), k))
    layout = Layout(n_levels, [t for t in sets if joined.issuperset(combinations(t, 2))])
    return ENGINE.maximum_likelihood(rows.collapsed(n_levels), layout)[0], layout.size


@pytest.mark.parametrize(
    ("n_levels", "n"),
    [((2, 2, 2, 2), 400), ((3, 2, 4, 2), 500), ((2, 3, 2, 2), 9), ((3, 3, 3, 3), 25)],
)
@pytest.mark.long
def test_all_graphs_of_four_against_fits(n_levels, n):
    rows = draw(n_levels, n, 1)
    scores = all_scores(rows, n_levels)
    assert scores.edges.shape == (64, 6) and scores.is_exhaustive
    assert len(np.unique(scores.edges, axis=0)) == 64
    for edges, value, size in zip(
        scores.edges, scores.log_likelihood, scores.n_parameters, strict=True
    ):
        expected, expected_size = fitted(
            rows, np.array(n_levels), [tuple(p) for p in scores.pairs[edges].tolist()]
        )
        assert value == pytest.approx(expected, abs=1e-6)
        assert size == expected_size


@pytest.mark.long
@pytest.mark.parametrize(("m", "n", "n_checked"), [(5, 40, 60), (6, 1000, 30), (6, 60, 30)])
def test_graphs_of_more_against_fits(m, n, n_checked):
    n_levels = np.full(m, 2)
    rows = draw(n_levels, n, m + n)
    scores = all_scores(rows, n_levels)
    assert len(scores.edges) == 2 ** (m * (m - 1) // 2)
    for k in np.random.default_rng(0).choice(len(scores.edges), n_checked, replace=False):
        pairs = [tuple(p) for p in scores.pairs[scores.edges[k]].tolist()]
        assert scores.log_likelihood[k] == pytest.approx(fitted(rows, n_levels, pairs)[0], abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("k", "n_best"), [(2.0, 1), (6.0, 1), (6.0, 700)])
@pytest.mark.long
def test_graphs_that_are_not_fitted_have_no_weight_and_are_none_of_the_best(seed, k, n_best):
    rows = draw((2, 3, 2, 3, 2), 300, seed, 0.7)
    every, few = all_scores(rows, (2, 3, 2, 3, 2), k), all_scores(rows, (2, 3, 2, 3, 2), k, n_best)
    assert few.n_graphs == every.n_graphs == len(every.edges) and few.is_exhaustive
    assert (n_best > 600) or len(few.edges) < len(every.edges)
    criterion = {tuple(e): c for e, c in zip(every.edges.tolist(), every.criterion(k), strict=True)}
    found = {tuple(e): c for e, c in zip(few.edges.tolist(), few.criterion(k), strict=True)}
    assert all(c == pytest.approx(criterion[e], abs=1e-7) for e, c in found.items())
    left_out = [c for e, c in criterion.items() if e not in found]
    best = sorted(criterion.values())
    assert min(left_out, default=np.inf) > max(best[0] + 100.0, best[n_best - 1]) - 1e-6


@pytest.mark.long
def test_small_tables_have_their_cores_fitted_in_few_rounds(monkeypatch):
    """Nearly independent predictors: most graphs are near the best, and all of their cores have to
    be fitted.
    """
    from bbl.boltzmann.graphs import exhaustive

    calls = []
    monkeypatch.setattr(
        exhaustive, "fit_cliques", lambda *of: calls.append(len(of[1])) or fit_cliques(*of)
    )
    scores = all_scores(draw((2,) * 6, 200, 7, 0.1), (2,) * 6, np.log(400.0), 20)
    assert sum(calls) > 1000 and max(calls) > 300
    assert scores.is_exhaustive


def test_larger_graphs_have_larger_likelihoods():
    scores = all_scores(draw((2, 3, 2, 2, 2), 80, 4), (2, 3, 2, 2, 2))
    numbers = scores.edges @ (1 << np.arange(10))
    by_number = dict(zip(numbers.tolist(), scores.log_likelihood.tolist(), strict=True))
    for number, value in by_number.items():
        assert all(by_number[number | 1 << e] >= value - 1e-8 for e in range(10))


def test_models_that_proportional_fitting_does_not_reach_are_fitted_by_newton(monkeypatch):
    from bbl.boltzmann.graphs import scaling

    rows = draw((2, 2, 2, 2), 50, 2)
    scores = all_scores(rows, (2, 2, 2, 2))
    monkeypatch.setattr(scaling, "MAX_SWEEPS", 1)
    monkeypatch.setattr(scaling, "TOLERANCE", 0.0)
    again = all_scores(rows, (2, 2, 2, 2))
    np.testing.assert_allclose(scores.log_likelihood, again.log_likelihood, rtol=0, atol=1e-7)


def test_chunks_of_models_change_nothing(monkeypatch):
    from bbl.boltzmann.graphs import scaling

    counts = np.random.default_rng(5).integers(1, 30, (2, 3, 2, 2)).astype(float)
    cycles = [
        [(0, 1), (1, 2), (2, 3), (0, 3)],
        [(0, 2), (1, 2), (1, 3), (0, 3)],
        [(0, 1), (1, 3), (2, 3), (0, 2)],
    ]
    values = fit_cliques(counts, cycles)
    monkeypatch.setattr(scaling, "CELLS_AT_ONCE", counts.size)
    np.testing.assert_array_equal(values, fit_cliques(counts, cycles))
    assert fit_cliques(counts, []).shape == (0,)


def is_decomposable(neighbours):
    """Return whether predictors can be taken away one after the other whose neighbours are all
    joined.
    """
    left = {i: set(near) for i, near in neighbours.items()}
    while left:
        simplicial = next(
            (i for i in left if all(b in left[a] for a, b in combinations(left[i], 2))), None
        )
        if simplicial is None:
            return False
        for j in left.pop(simplicial):
            left[j].discard(simplicial)
    return True


@pytest.mark.parametrize("seed", range(4))
def test_greedy_steps_are_the_best_decomposable_ones(seed):
    """Each step is the best of all decomposable graphs that differ in one edge, with likelihoods of
    all graphs.
    """
    n_levels, k = (2, 2, 3, 2, 2), 2.0
    rows = draw(n_levels, 120, seed, 0.6)
    scores = all_scores(rows, n_levels)
    criterion = {
        tuple(edges): c for edges, c in zip(scores.edges.tolist(), scores.criterion(k), strict=True)
    }
    here = (False,) * 10
    while True:
        near = [tuple(e ^ (i == j) for j, e in enumerate(here)) for i in range(10)]
        joined = [
            {
                v: {a + b - v for a, b in scores.pairs[list(g)].tolist() if v in (a, b)}
                for v in range(5)
            }
            for g in near
        ]
        near = [
            graph
            for graph, neighbours in zip(near, joined, strict=True)
            if is_decomposable(neighbours)
        ]
        best = min(near, key=criterion.__getitem__)
        if criterion[best] >= criterion[here]:
            break
        here = best
    found = greedy_graphs(Margins(rows, np.array(n_levels)), k, lambda *_: None)
    order = np.argsort(found.criterion(k))
    assert tuple(found.edges[order[0]].tolist()) == here
    assert not found.is_exhaustive
    for edges, c in zip(found.edges.tolist(), found.criterion(k), strict=True):
        assert c == pytest.approx(criterion[tuple(edges)], abs=1e-6)
    assert len(np.unique(found.edges, axis=0)) == len(found.edges)


def test_a_search_counts_graphs_that_several_steps_compared_once():
    """Two pairs of copies: one of the two edges comes first, and both graphs of one edge are
    compared by two steps.
    """
    states = np.array([[a, a, b, b] for a in (0, 1) for b in (0, 1)], dtype=np.uint8)
    found = greedy_graphs(
        Margins(Sample(states, np.array([9.0, 6.0, 5.0, 9.0])), np.full(4, 2)), 4.0, lambda *_: None
    )
    assert found.edges[np.argmin(found.criterion(4.0))].tolist() == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    # no edge; one of 6; the first and one of 5 others; both and one of 4. Steps that drop an edge
    # meet no others
    assert found.n_graphs == 1 + 6 + 5 + 4


def test_tables_too_large_to_be_held_are_counted(monkeypatch):
    from bbl.boltzmann.graphs import scores

    rows = draw((3,) * 8, 200, 9)
    values = [Margins(rows, np.full(8, 3)).log_likelihood(mask) for mask in (0, 1, 7, 255)]
    monkeypatch.setattr(scores, "MAX_COUNTED_CELLS", 10)
    assert values == pytest.approx(
        [Margins(rows, np.full(8, 3)).log_likelihood(mask) for mask in (0, 1, 7, 255)]
    )
    assert members(0b10110) == [1, 2, 4]
