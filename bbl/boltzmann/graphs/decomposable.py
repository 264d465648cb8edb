"""Greedy search among decomposable graphical models, which have closed-form likelihoods.

An edge may be added if its ends are separated by their common neighbours. It may be removed if the
common neighbours of its ends are all joined to each other. The graph then remains decomposable, and
its likelihood changes by a combination of four saturated likelihoods (Giudici & Green 1999,
Biometrika 86; Deshpande, Garofalakis & Jordan 2001, UAI).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from bbl.boltzmann.graphs.scores import GraphScores, Margins, members

__all__ = ["greedy_graphs"]

LEAST_GAIN = 1e-7  # smallest decrease of the criterion for a step; smaller ones are rounding errors
NEGLIGIBLE = 60.0  # graphs with a criterion above the minimum plus this have no weight: exp(-30)


def greedy_graphs(margins: Margins, k: float, progress: Callable) -> GraphScores:
    """Add or drop edges as long as ``-2 log-likelihood + k parameters`` decreases.

    The search starts from the empty graph. Each step changes the edge for which the criterion
    decreases most.

    Parameters
    ----------
    margins : Margins
    k : float
        Penalty per parameter.
    progress : callable
        ``progress(1.0, note)`` is called after each step; the number of steps is not known.

    Returns
    -------
    GraphScores
        All graphs compared, except those with a negligible weight ``exp(-criterion / 2)``.
    """
    m = len(margins.n_levels)
    pairs = list(combinations(range(m), 2))
    neighbours = [0] * m  # a bit set for each predictor: bit i represents predictor i
    log_likelihood = sum(margins.log_likelihood(1 << i) for i in range(m))
    n_parameters = float(sum(margins.n_levels) - m)
    has_edge = np.zeros(len(pairs), dtype=bool)
    # edges of a graph, the edge that a step changes (-1 for none), and the two scores after it
    visited = [(has_edge.copy(), -1, log_likelihood, n_parameters)]
    least_criterion = -2.0 * log_likelihood + k * n_parameters
    while True:
        steps = _possible_steps(margins, pairs, neighbours)
        # the changed edge, and the log-likelihood and number of parameters after the step
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
        has_edge = has_edge.copy()  # the visited graphs refer to the old array
        has_edge[edge] ^= True
        i, j = pairs[edge]
        neighbours[i] ^= 1 << j
        neighbours[j] ^= 1 << i
        progress(1.0, f"{int(has_edge.sum())} edges, criterion {least_criterion:.6g}")


def _possible_steps(
    margins: Margins, pairs: list[tuple[int, int]], neighbours: list[int]
) -> list[tuple[int, float, float]]:
    """Return the edges that can be changed, with changes in log-likelihood and parameter count.

    Edges are returned as positions in `pairs`. `neighbours` contains a bit set of the neighbours of
    each predictor.
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
        # the edge has one coupling for each state of the common neighbours and each pair of
        # non-reference levels of its ends
        n_changed = float(np.prod([float(margins.n_levels[v]) for v in members(common)]))
        n_changed *= (margins.n_levels[i] - 1) * (margins.n_levels[j] - 1)
        sign = -1.0 if is_edge else 1.0
        steps.append((edge, sign * gain, sign * n_changed))
    return steps


def _is_complete(mask: int, neighbours: list[int]) -> bool:
    """Return whether all predictors in the bit set `mask` are joined to each other."""
    return all((neighbours[i] | 1 << i) & mask == mask for i in members(mask))


def _separates(mask: int, i: int, j: int, neighbours: list[int]) -> bool:
    """Return whether every path from predictor i to j passes through the bit set `mask`."""
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
    """Return the scores of the distinct visited graphs, except those with negligible weight.

    For each graph, `visited` contains the edges before a step (E,), the edge that the step changes
    (-1 for none), the log-likelihood and the number of parameters. `least_criterion` is the
    smallest criterion of all graphs. `pairs` has shape (E, 2). The attribute `n_graphs` of the
    result is the number of distinct graphs.
    """
    keys = set()  # edges of all visited graphs, as bits
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
