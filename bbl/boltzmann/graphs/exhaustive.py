"""All graphical models of few predictors, with their exact likelihoods.

A predictor whose neighbours are all joined (a *simplicial* one) is split off: the likelihood of a graph is that of the
graph without it, times that of the predictor given its neighbours, which is a quotient of two saturated models
(Lauritzen 1996, Graphical Models, section 4.4). Decomposable graphs are split up to nothing. What is left of the others
has no such predictor, as a cycle of four: such a *core* is fitted numerically, once for all graphs that have it.

A graph whose decomposable supergraphs fit too badly for their parameters is not fitted: the largest of their
log-likelihoods bounds that of the graph.
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

Graph = tuple[int, int]  # predictors, and edges between them, as sets

NEGLIGIBLE = 100.0  # graphs whose criterion is so much above the least have no weight, all of them together: exp(-39)
CORES_AT_ONCE = 48  # fitted at least before the bounds are compared again with the best graphs
CELLS_AT_ONCE = 2**15  # of the tables of the cores that are fitted before: those of small tables take little time


class _Splitter:
    """Splits graphs into cores, and adds up the likelihoods of what is split off."""

    def __init__(self, margins: Margins, pairs: list[tuple[int, int]]):
        self.margins, self.pairs = margins, pairs
        m = len(margins.n_levels)
        self.between = [  # edges between the predictors of each set
            sum(1 << e for e, (i, j) in enumerate(pairs) if mask >> i & 1 and mask >> j & 1) for mask in range(1 << m)
        ]
        self._splits: dict[Graph, tuple[Graph, float]] = {(0, 0): ((0, 0), 0.0)}

    def split(self, graph: Graph) -> tuple[Graph, float]:
        """Return the core of a graph, (0, 0) if nothing is left, and the log-likelihood of what was split off."""
        if graph not in self._splits:
            found = self._simplicial(graph)
            if found is None:
                self._splits[graph] = graph, 0.0
            else:
                rest, closed, around = found
                core, value = self.split(rest)
                value += self.margins.log_likelihood(closed) - self.margins.log_likelihood(around)
                self._splits[graph] = core, value
        return self._splits[graph]

    def _simplicial(self, graph: Graph) -> tuple[Graph, int, int] | None:
        """Return the graph without a simplicial predictor, its neighbours with it, and without; None if none is."""
        vertices, edges = graph
        for i in members(vertices):
            around = self.neighbours(graph, i)
            if edges & self.between[around] == self.between[around]:
                rest = vertices ^ (1 << i)
                return (rest, edges & self.between[rest]), around | 1 << i, around
        return None

    def neighbours(self, graph: Graph, i: int) -> int:
        """Return the neighbours of a predictor, as a set."""
        vertices, edges = graph
        return sum(1 << j for j in members(vertices) if j != i and edges & self.between[1 << i | 1 << j])

    def cliques(self, graph: Graph) -> list[int]:
        """Return the largest sets of predictors that are all joined."""
        vertices, edges = graph
        complete = [
            mask
            for mask in range(1, vertices + 1)
            if mask & vertices == mask and edges & self.between[mask] == self.between[mask]
        ]
        return [mask for mask in complete if not any(mask != other and mask & other == mask for other in complete)]


def all_graphs(margins: Margins, engine: Engine, k: float, n_best: int, progress: Callable) -> GraphScores:
    """Return the scores of all graphs that are among the `n_best` by their criterion, or have a weight.

    Parameters
    ----------
    margins : Margins
    engine : Engine
        Exact maximum likelihood, for cores that proportional fitting does not fit.
    k : float
        Penalty of a parameter in the criterion, ``-2 log-likelihood + k parameters``.
    n_best : int
        Number of best graphs that are to be listed.
    progress : callable
        ``progress(share, note)`` is called up to a sum of 1.
    """
    m = len(margins.n_levels)
    pairs = list(combinations(range(m), 2))
    everything, n_graphs = (1 << m) - 1, 1 << len(pairs)
    splitter = _Splitter(margins, pairs)
    cores, split_off = zip(*[splitter.split((everything, edges)) for edges in range(n_graphs)], strict=True)
    distinct = list(dict.fromkeys(cores))
    position = {core: at for at, core in enumerate(distinct)}
    core_of = np.array([position[core] for core in cores])
    core_values = np.full(len(distinct), np.nan)
    core_values[position[(0, 0)]] = 0.0
    values = np.array(split_off) + core_values[core_of]
    numbers, n_parameters = np.arange(n_graphs), np.zeros(n_graphs)
    for mask in range(1, everything + 1):
        within = splitter.between[mask]
        size = float(np.prod([margins.n_levels[i] - 1.0 for i in members(mask)]))
        n_parameters += size * (numbers & within == within)
    progress(0.2, "fitting cores")
    at_once = max(CORES_AT_ONCE, int(CELLS_AT_ONCE // np.prod(np.array(margins.n_levels, dtype=float))))
    share = 0.8
    bounds = _upper_bounds(values, len(pairs))
    while len(near := _within_reach(values, -2.0 * bounds + k * n_parameters, n_best)):
        wanted = np.array(list(dict.fromkeys(core_of[near].tolist())))
        step = share * min(1.0, at_once / len(wanted))
        wanted = wanted[:at_once]
        core_values[wanted] = _fit_cores(splitter, [distinct[at] for at in wanted], engine)
        values = np.array(split_off) + core_values[core_of]
        share -= step
        progress(step)
    progress(share)
    has_edge = (numbers[:, None] >> np.arange(len(pairs)) & 1).astype(bool)
    listed = ~np.isnan(values)
    edge_pairs = np.array(pairs).reshape(-1, 2)
    return GraphScores(edge_pairs, has_edge[listed], values[listed], n_parameters[listed], n_graphs, True)


def _upper_bounds(values: np.ndarray, n_pairs: int) -> np.ndarray:
    """Return upper bounds of the log-likelihoods of all graphs, those of their supergraphs with one edge more.

    `values` (graphs,) are exact, and nan for graphs that are to be bounded.
    """
    bounds, numbers = values.copy(), np.arange(len(values))
    n_edges = (numbers[:, None] >> np.arange(n_pairs) & 1).sum(axis=1)
    for size in range(n_pairs - 1, -1, -1):
        graphs = numbers[(n_edges == size) & np.isnan(values)]
        larger = [np.where(graphs >> e & 1, np.inf, bounds[graphs | 1 << e]) for e in range(n_pairs)]
        bounds[graphs] = np.min(larger, axis=0)
    return bounds


def _within_reach(values: np.ndarray, least_criterion: np.ndarray, n_best: int) -> np.ndarray:
    """Return the graphs without a value (nan) that may be among the best or have a weight, the most promising first.

    `least_criterion` are lower bounds of the criterion, exact for graphs with a value.
    """
    known = ~np.isnan(values)
    criterion = np.sort(least_criterion[known])
    reach = max(criterion[0] + NEGLIGIBLE, criterion[n_best - 1]) if n_best <= len(criterion) else np.inf
    near = np.flatnonzero(~known & (least_criterion <= reach))
    return near[np.argsort(least_criterion[near], kind="stable")]


def _fit_cores(splitter: _Splitter, cores: list[Graph], engine: Engine) -> np.ndarray:
    """Return the log-likelihoods (len(cores),) of cores; those of the same predictors are fitted together."""
    by_vertices: dict[int, list[int]] = {}
    for at, (vertices, _) in enumerate(cores):
        by_vertices.setdefault(vertices, []).append(at)
    out = np.empty(len(cores))
    for vertices, positions in by_vertices.items():
        axes = members(vertices)
        models = [[tuple(map(axes.index, members(mask))) for mask in splitter.cliques(cores[at])] for at in positions]
        values = fit_cliques(splitter.margins.counts(vertices), models)
        for k in np.flatnonzero(np.isnan(values)):
            values[k] = _newton(splitter.margins, axes, models[k], engine)
        out[positions] = values
    return out


def _newton(margins: Margins, axes: list[int], cliques: list[tuple[int, ...]], engine: Engine) -> float:
    """Return the log-likelihood of a core by `engine`; `cliques` are positions in its predictors `axes`."""
    rows, n_levels = margins.rows, np.array([margins.n_levels[i] for i in axes])
    part = type(rows)(np.ascontiguousarray(rows.codes[:, axes]), rows.weights).collapsed(n_levels)
    terms = {term for clique in cliques for k in range(2, len(clique) + 1) for term in combinations(clique, k)}
    return engine.maximum_likelihood(part, Layout(n_levels, sorted(terms)))[0]
