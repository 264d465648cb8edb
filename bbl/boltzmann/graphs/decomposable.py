"""Greedy search among decomposable graphical models, whose likelihoods have a closed form.

An edge may be added if the common neighbours of its ends separate them, and dropped if they are all joined; the graph
then stays decomposable, and its likelihood changes by that of four saturated models (Giudici & Green 1999, Biometrika
86; Deshpande, Garofalakis & Jordan 2001, UAI).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from bbl.boltzmann.graphs.scores import GraphScores, Margins, members

__all__ = ["greedy_graphs"]

LEAST_GAIN = 1e-7  # of the criterion, for which a step is taken: less is rounding
NEGLIGIBLE = 60.0  # graphs whose criterion is so much above the least have no weight: exp(-30)


def greedy_graphs(margins: Margins, k: float, progress: Callable) -> GraphScores:
    """Add or drop the edge that lowers ``-2 log-likelihood + k parameters`` the most, from no edge on, until none does.

    Parameters
    ----------
    margins : Margins
    k : float
        Penalty of a parameter.
    progress : callable
        ``progress(1.0, note)`` is called after each step; how many there will be is not known.

    Returns
    -------
    GraphScores
        All graphs that were compared on the way, without those whose weight ``exp(-criterion / 2)`` is negligible.
    """
    m = len(margins.n_levels)
    pairs = list(combinations(range(m), 2))
    neighbours = [0] * m  # sets as bits
    log_likelihood = sum(margins.log_likelihood(1 << i) for i in range(m))
    n_parameters = float(sum(margins.n_levels) - m)
    has_edge = np.zeros(len(pairs), dtype=bool)
    # a graph, the pair that is changed (-1 for none), and its score
    visited = [(has_edge.copy(), -1, log_likelihood, n_parameters)]
    least = -2.0 * log_likelihood + k * n_parameters
    while True:
        steps = _steps(margins, pairs, neighbours)
        candidates = [(e, log_likelihood + gain, n_parameters + more) for e, gain, more in steps]
        visited += [(has_edge, *candidate) for candidate in candidates]
        best = min(candidates, key=lambda candidate: -2.0 * candidate[1] + k * candidate[2], default=None)
        if best is None or -2.0 * best[1] + k * best[2] > least - LEAST_GAIN:
            return _scores(np.array(pairs), visited, least, k)
        e, log_likelihood, n_parameters = best
        least = -2.0 * log_likelihood + k * n_parameters
        has_edge = has_edge.copy()  # graphs that were visited share the old one
        has_edge[e] ^= True
        i, j = pairs[e]
        neighbours[i] ^= 1 << j
        neighbours[j] ^= 1 << i
        progress(1.0, f"{int(has_edge.sum())} edges, criterion {least:.6g}")


def _steps(margins: Margins, pairs: list[tuple[int, int]], neighbours: list[int]) -> list[tuple[int, float, float]]:
    """Return the edges that can be changed, with the changes of log-likelihood and number of parameters."""
    steps = []
    for e, (i, j) in enumerate(pairs):
        common = neighbours[i] & neighbours[j]
        is_edge = bool(neighbours[i] >> j & 1)
        if not (_is_complete(common, neighbours) if is_edge else _separates(common, i, j, neighbours)):
            continue
        one, other = common | 1 << i, common | 1 << j
        gain = margins.log_likelihood(one | other) + margins.log_likelihood(common)
        gain -= margins.log_likelihood(one) + margins.log_likelihood(other)
        more = float(np.prod([float(margins.n_levels[v]) for v in members(common)]))
        more *= (margins.n_levels[i] - 1) * (margins.n_levels[j] - 1)
        sign = -1.0 if is_edge else 1.0
        steps.append((e, sign * gain, sign * more))
    return steps


def _is_complete(mask: int, neighbours: list[int]) -> bool:
    """Return whether all predictors of a set are joined."""
    return all((neighbours[i] | 1 << i) & mask == mask for i in members(mask))


def _separates(mask: int, i: int, j: int, neighbours: list[int]) -> bool:
    """Return whether every way from i to j leads through a set of predictors."""
    reached = front = 1 << i
    while front:
        around = 0
        for v in members(front):
            around |= neighbours[v]
        front = around & ~mask & ~reached
        reached |= front
        if reached >> j & 1:
            return False
    return True


def _scores(pairs: np.ndarray, visited: list[tuple], least: float, k: float) -> GraphScores:
    """Return the record of the visited graphs, each once."""
    graphs: dict[bytes, tuple[np.ndarray, float, float]] = {}
    for base, e, value, size in visited:
        if -2.0 * value + k * size > least + NEGLIGIBLE:
            continue
        edges = base.copy()
        if e >= 0:
            edges[e] ^= True
        graphs.setdefault(edges.tobytes(), (edges, value, size))
    edges, values, sizes = zip(*graphs.values(), strict=True)
    return GraphScores(pairs, np.array(edges), np.array(values), np.array(sizes), len(visited), False)
