"""Greedy search among decomposable graphical models, whose likelihoods have a closed form.

An edge may be added if the common neighbours of its two ends separate these, and dropped if the
common neighbours are all joined to each other; the graph then stays decomposable, and its
likelihood changes by that of four saturated models (Giudici & Green 1999, Biometrika 86; Deshpande,
Garofalakis & Jordan 2001, UAI).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from bbl.boltzmann.graphs.scores import GraphScores, Margins, members

__all__ = ["greedy_graphs"]

LEAST_GAIN = 1e-7  # least decrease of the criterion for which a step is taken: less is rounding
NEGLIGIBLE = 60.0  # graphs whose criterion exceeds the least one by more have no weight: exp(-30)


def greedy_graphs(margins: Margins, k: float, progress: Callable) -> GraphScores:
    """Add or drop the edge that lowers ``-2 log-likelihood + k parameters`` the most, from no edge
    on, until none does.

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
        All graphs that were compared on the way, without those whose weight ``exp(-criterion / 2)``
        is negligible.
    """
    m = len(margins.n_levels)
    pairs = list(combinations(range(m), 2))
    neighbours = [0] * m  # for each predictor a bit set: bit i of the number stands for predictor i
    log_likelihood = sum(margins.log_likelihood(1 << i) for i in range(m))
    n_parameters = float(sum(margins.n_levels) - m)
    has_edge = np.zeros(len(pairs), dtype=bool)
    # which edges a graph had, the edge that a step changes (-1 for none), and the two scores after
    # the step
    visited = [(has_edge.copy(), -1, log_likelihood, n_parameters)]
    least_criterion = -2.0 * log_likelihood + k * n_parameters
    while True:
        steps = _possible_steps(margins, pairs, neighbours)
        # the edge that is changed, log-likelihood and number of parameters after the step
        candidates = [
            (edge, log_likelihood + gain, n_parameters + change) for edge, gain, change in steps
        ]
        visited += [(has_edge, *candidate) for candidate in candidates]
        best = min(
            candidates, key=lambda candidate: -2.0 * candidate[1] + k * candidate[2], default=None
        )
        if best is None or -2.0 * best[1] + k * best[2] > least_criterion - LEAST_GAIN:
            return _make_record(np.array(pairs), visited, least_criterion, k)
        edge, log_likelihood, n_parameters = best
        least_criterion = -2.0 * log_likelihood + k * n_parameters
        has_edge = has_edge.copy()  # graphs that were visited share the old one
        has_edge[edge] ^= True
        i, j = pairs[edge]
        neighbours[i] ^= 1 << j
        neighbours[j] ^= 1 << i
        progress(1.0, f"{int(has_edge.sum())} edges, criterion {least_criterion:.6g}")


def _possible_steps(
    margins: Margins, pairs: list[tuple[int, int]], neighbours: list[int]
) -> list[tuple[int, float, float]]:
    """Return the edges that can be changed, with the changes of the log-likelihood and of the
    number of parameters.

    An edge is its position in `pairs`; `neighbours` holds the bit set of each predictor's
    neighbours.
    """
    steps = []
    for edge, (i, j) in enumerate(pairs):
        common = neighbours[i] & neighbours[j]
        is_edge = bool(neighbours[i] >> j & 1)
        if not (
            _is_complete(common, neighbours) if is_edge else _separates(common, i, j, neighbours)
        ):
            continue
        with_i = common | 1 << i
        with_j = common | 1 << j
        gain = margins.log_likelihood(with_i | with_j) + margins.log_likelihood(common)
        gain -= margins.log_likelihood(with_i) + margins.log_likelihood(with_j)
        # the edge has a coupling for each state of the common neighbours and non-reference levels
        # of both ends
        n_changed = float(np.prod([float(margins.n_levels[v]) for v in members(common)]))
        n_changed *= (margins.n_levels[i] - 1) * (margins.n_levels[j] - 1)
        sign = -1.0 if is_edge else 1.0
        steps.append((edge, sign * gain, sign * n_changed))
    return steps


def _is_complete(mask: int, neighbours: list[int]) -> bool:
    """Return whether all predictors of the bit set `mask` are joined to each other."""
    return all((neighbours[i] | 1 << i) & mask == mask for i in members(mask))


def _separates(mask: int, i: int, j: int, neighbours: list[int]) -> bool:
    """Return whether every path from predictor i to j leads through the bit set `mask`."""
    reached = frontier = 1 << i
    while frontier:
        adjacent = 0
        for v in members(frontier):
            adjacent |= neighbours[v]
        frontier = adjacent & ~mask & ~reached
        reached |= frontier
        if reached >> j & 1:
            return False
    return True


def _make_record(
    pairs: np.ndarray, visited: list[tuple], least_criterion: float, k: float
) -> GraphScores:
    """Return the record of the visited graphs, each once, without those of negligible weight.

    `visited` holds for each graph the edges before a step (E,), the edge that the step changes (-1
    for none), and its log-likelihood and number of parameters; `least_criterion` is that of the
    best graph. `pairs` has shape (E, 2). The record's `n_graphs` counts a graph once that several
    steps compared.
    """
    keys = set()  # of all visited graphs: their edges as bits
    # edges, log-likelihood, parameters; by key
    graphs: dict[bytes, tuple[np.ndarray, float, float]] = {}
    for has_edge, edge, log_likelihood, n_parameters in visited:
        graph_edges = has_edge.copy()
        if edge >= 0:
            graph_edges[edge] ^= True
        key = np.packbits(graph_edges).tobytes()
        keys.add(key)
        if -2.0 * log_likelihood + k * n_parameters <= least_criterion + NEGLIGIBLE:
            graphs.setdefault(key, (graph_edges, log_likelihood, n_parameters))
    edges, log_likelihoods, sizes = zip(*graphs.values(), strict=True)
    return GraphScores(
        pairs,
        np.array(edges),
        np.array(log_likelihoods),
        np.array(sizes),
        n_graphs=len(keys),
        is_exhaustive=False,
    )
