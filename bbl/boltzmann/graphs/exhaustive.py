"""Exact likelihoods of all graphical models for a small number of predictors.

The model of a graph contains all terms of predictors that are joined pairwise. A *simplicial*
predictor is one whose neighbours are all joined to each other. It is split off: the log-likelihood
is the sum of the remaining graph's log-likelihood and the predictor's log-likelihood given its
neighbours. The latter is a difference of two saturated log-likelihoods (Lauritzen 1996, Graphical
Models, section 4.4). Decomposable graphs are split up completely. Otherwise, the remaining *core*,
such as a cycle of four predictors, is fitted numerically, once for all graphs that share this core.
No graph has a higher likelihood than its supergraphs with one more edge. Graphs for which this
bound is too low for their number of parameters are not fitted.

Sets of predictors and sets of edges are *bit sets*: integers with bit i for predictor i, or for
edge i in the list of all pairs. The number of a graph of all predictors is the bit set of its
edges.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from bbl.boltzmann.graphs.scaling import fit_cliques
from bbl.boltzmann.graphs.scores import GraphScores, Margins, members
from bbl.engines import Engine
from bbl.model.layout import Layout

__all__ = ["all_graphs"]

Graph = tuple[int, int]  # bit set of predictors, and bit set of the edges between them

# Graphs with a criterion above the minimum plus this have no weight: exp(-39) all together.
NEGLIGIBLE = 100.0
# Number of cores to fit before the bounds are compared again with the best graphs: CELLS_AT_ONCE
# divided by the number of cells of the full table, because fits to small tables are fast, but at
# least CORES_AT_ONCE.
CORES_AT_ONCE = 48
CELLS_AT_ONCE = 2**15


class _Splitter:
    """Splits graphs into cores, and sums the log-likelihoods of the split-off predictors.

    Parameters
    ----------
    margins : Margins
    pairs : list of (int, int)
        All pairs of predictors; edge e joins the predictors ``pairs[e]``.
    """

    def __init__(self, margins: Margins, pairs: list[tuple[int, int]]):
        self.margins = margins
        self.pairs = pairs
        m = len(margins.n_levels)
        # all possible edges between the predictors of each bit set, as a bit set
        self.edges_among = [
            sum(1 << e for e, (i, j) in enumerate(pairs) if mask >> i & 1 and mask >> j & 1)
            for mask in range(1 << m)
        ]
        # results of `split`; complete splitting ends with the empty graph, which has an empty core
        self._splits: dict[Graph, tuple[Graph, float]] = {(0, 0): ((0, 0), 0.0)}

    def split(self, graph: Graph) -> tuple[Graph, float]:
        """Return a graph's core and the log-likelihood of the predictors that were split off.

        The core is (0, 0) if the graph was split up completely.
        """
        if graph not in self._splits:
            simplicial = self._split_simplicial(graph)
            if simplicial is None:
                self._splits[graph] = graph, 0.0
            else:
                remainder, closed_set, neighbour_set = simplicial
                core, log_split_off = self.split(remainder)
                log_split_off += self.margins.log_likelihood(
                    closed_set
                ) - self.margins.log_likelihood(neighbour_set)
                self._splits[graph] = core, log_split_off
        return self._splits[graph]

    def _split_simplicial(self, graph: Graph) -> tuple[Graph, int, int] | None:
        """Return the graph without its first simplicial predictor i, and two bit sets.

        The first bit set contains i and its neighbours, and the second only the neighbours. Returns
        None for graphs without simplicial predictors.
        """
        vertices, edges = graph
        for i in members(vertices):
            neighbours = self.neighbours(graph, i)
            if edges & self.edges_among[neighbours] == self.edges_among[neighbours]:
                remainder = vertices ^ (1 << i)
                return (
                    (remainder, edges & self.edges_among[remainder]),
                    neighbours | 1 << i,
                    neighbours,
                )
        return None

    def neighbours(self, graph: Graph, i: int) -> int:
        """Return the bit set of the neighbours of predictor i."""
        vertices, edges = graph
        return sum(
            1 << j
            for j in members(vertices)
            if j != i and edges & self.edges_among[1 << i | 1 << j]
        )

    def cliques(self, graph: Graph) -> list[int]:
        """Return the maximal cliques of a graph as bit sets."""
        vertices, edges = graph
        joined = [
            mask
            for mask in range(1, vertices + 1)
            if mask & vertices == mask and edges & self.edges_among[mask] == self.edges_among[mask]
        ]
        return [
            mask
            for mask in joined
            if not any(mask != larger and mask & larger == mask for larger in joined)
        ]


def all_graphs(
    margins: Margins, engine: Engine, k: float, n_best: int, progress: Callable
) -> GraphScores:
    """Return the scores of the `n_best` graphs, and of all graphs with non-negligible weight.

    Parameters
    ----------
    margins : Margins
    engine : Engine
        Exact maximum likelihood engine, for cores where proportional fitting fails.
    k : float
        Penalty per parameter in the criterion ``-2 log-likelihood + k parameters``.
    n_best : int
        Number of best graphs to list.
    progress : callable
        ``progress(share, note)`` is called with fractions of the work that sum to 1.
    """
    m = len(margins.n_levels)
    pairs = list(combinations(range(m), 2))
    all_predictors = (1 << m) - 1
    n_graphs = 1 << len(pairs)
    splitter = _Splitter(margins, pairs)
    cores, split_off = zip(
        *[splitter.split((all_predictors, edges)) for edges in range(n_graphs)], strict=True
    )
    distinct_cores = list(dict.fromkeys(cores))
    # `split_off` has the log-likelihood of the split-off predictors of each graph
    core_number = {core: number for number, core in enumerate(distinct_cores)}
    core_of_graph = np.array([core_number[core] for core in cores])
    core_log_likelihoods = np.full(len(distinct_cores), np.nan)
    # the empty core of decomposable graphs is not fitted
    core_log_likelihoods[core_number[(0, 0)]] = 0.0
    # (graphs,): each graph's log-likelihood, its core's plus the split-off predictors'; nan until
    # the core is fitted
    log_likelihoods = np.array(split_off) + core_log_likelihoods[core_of_graph]
    graph_numbers = np.arange(n_graphs)
    n_parameters = np.zeros(n_graphs)
    # a graph has the term of a bit set if it has all edges in the set
    for mask in range(1, all_predictors + 1):
        clique_edges = splitter.edges_among[mask]
        n_couplings = float(np.prod([margins.n_levels[i] - 1.0 for i in members(mask)]))
        n_parameters += n_couplings * (graph_numbers & clique_edges == clique_edges)
    progress(0.2, "fitting cores")
    n_at_once = max(
        CORES_AT_ONCE, int(CELLS_AT_ONCE // np.prod(np.array(margins.n_levels, dtype=float)))
    )
    remaining_share = 0.8  # share of the progress, after 0.2 for splitting
    while len(candidates := _within_reach(log_likelihoods, n_parameters, k, n_best)):
        core_numbers = np.array(list(dict.fromkeys(core_of_graph[candidates].tolist())))
        step_share = remaining_share * min(1.0, n_at_once / len(core_numbers))
        core_numbers = core_numbers[:n_at_once]
        core_log_likelihoods[core_numbers] = _fit_cores(
            splitter, [distinct_cores[number] for number in core_numbers], engine
        )
        log_likelihoods = np.array(split_off) + core_log_likelihoods[core_of_graph]
        remaining_share -= step_share
        progress(step_share)
    progress(remaining_share)
    has_edge = (graph_numbers[:, None] >> np.arange(len(pairs)) & 1).astype(bool)
    is_listed = ~np.isnan(log_likelihoods)
    edge_pairs = np.array(pairs).reshape(-1, 2)
    return GraphScores(
        edge_pairs,
        has_edge[is_listed],
        log_likelihoods[is_listed],
        n_parameters[is_listed],
        n_graphs,
        is_exhaustive=True,
    )


def _upper_bounds(log_likelihoods: np.ndarray, n_pairs: int) -> np.ndarray:
    """Return upper bounds (graphs,) on the log-likelihoods of graphs, in order of graph number.

    `log_likelihoods` (graphs,) is nan for graphs that are not fitted. For fitted graphs, the bound
    is the log-likelihood. For other graphs, it is the smallest bound of the supergraphs with one
    more edge.
    """
    bounds = log_likelihoods.copy()
    graph_numbers = np.arange(len(log_likelihoods))
    n_edges = (graph_numbers[:, None] >> np.arange(n_pairs) & 1).sum(axis=1)
    # from many edges to few, so that supergraphs already have bounds; the complete graph is
    # saturated and needs none
    for n_edges_below in range(n_pairs - 1, -1, -1):
        graphs = graph_numbers[(n_edges == n_edges_below) & np.isnan(log_likelihoods)]
        # for each edge e, the bounds (len(graphs),) of the graphs with e added; inf if they have e
        supergraph_bounds = [
            np.where(graphs >> e & 1, np.inf, bounds[graphs | 1 << e]) for e in range(n_pairs)
        ]
        bounds[graphs] = np.min(supergraph_bounds, axis=0)
    return bounds


def _within_reach(
    log_likelihoods: np.ndarray, n_parameters: np.ndarray, k: float, n_best: int
) -> np.ndarray:
    """Return the numbers of unfitted graphs that may be listed or have non-negligible weight.

    `log_likelihoods` (graphs,) is nan for graphs that have not been fitted, and `n_parameters` has
    the same shape. The `n_best` graphs are listed. Graphs are sorted by their bounds on the
    criterion.
    """
    n_pairs = len(log_likelihoods).bit_length() - 1  # there are 2 ** n_pairs graphs
    # lower bounds on the criterion, exact for fitted graphs
    criterion_bounds = -2.0 * _upper_bounds(log_likelihoods, n_pairs) + k * n_parameters
    is_scored = ~np.isnan(log_likelihoods)
    criteria = np.sort(criterion_bounds[is_scored])
    # without n_best fitted graphs, any graph may be among the best
    largest_criterion = (
        max(criteria[0] + NEGLIGIBLE, criteria[n_best - 1]) if n_best <= len(criteria) else np.inf
    )
    candidates = np.flatnonzero(~is_scored & (criterion_bounds <= largest_criterion))
    return candidates[np.argsort(criterion_bounds[candidates], kind="stable")]


def _fit_cores(splitter: _Splitter, cores: list[Graph], engine: Engine) -> np.ndarray:
    """Return the log-likelihoods (len(cores),) of cores.

    Cores with the same predictors are fitted together. `engine` is used for cores where
    proportional fitting does not converge.
    """
    by_vertices: dict[int, list[int]] = {}
    for core, (vertices, _) in enumerate(cores):
        by_vertices.setdefault(vertices, []).append(core)
    out = np.empty(len(cores))
    for vertices, core_numbers in by_vertices.items():  # positions of cores in `cores`
        predictors = members(vertices)
        models = [  # the cliques of each core, as positions in `predictors`
            [tuple(map(predictors.index, members(mask))) for mask in splitter.cliques(cores[core])]
            for core in core_numbers
        ]
        log_likelihoods = fit_cliques(splitter.margins.counts(vertices), models)
        for model in np.flatnonzero(np.isnan(log_likelihoods)):
            log_likelihoods[model] = _fit_by_engine(
                splitter.margins, predictors, models[model], engine
            )
        out[core_numbers] = log_likelihoods
    return out


def _fit_by_engine(
    margins: Margins, predictors: list[int], cliques: list[tuple[int, ...]], engine: Engine
) -> float:
    """Return the log-likelihood of a core, fitted by `engine`.

    `cliques` contains tuples of positions in `predictors`.
    """
    rows = margins.rows
    n_levels = np.array([margins.n_levels[i] for i in predictors])
    # type(rows) is `Sample`, here with codes and weights; collapsed: identical rows are merged
    core_rows = type(rows)(np.ascontiguousarray(rows.codes[:, predictors]), rows.weights).collapsed(
        n_levels
    )
    terms = {
        term
        for clique in cliques
        for k in range(2, len(clique) + 1)
        for term in combinations(clique, k)
    }
    return engine.maximum_likelihood(core_rows, Layout(n_levels, sorted(terms))).log_likelihood
