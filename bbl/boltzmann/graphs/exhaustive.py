"""All graphical models of few predictors, with their exact likelihoods.

A predictor whose neighbours are all joined (a *simplicial* one) is split off: the likelihood of a graph is that of the
graph without it, times that of the predictor given its neighbours, which is a quotient of two saturated models
(Lauritzen 1996, Graphical Models, section 4.4). Decomposable graphs are split up to nothing. What is left of the others
has no such predictor, as a cycle of four: such a *core* is fitted numerically, once for all graphs that have it.
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


class _Splitter:
    """Splits graphs into cores, and adds up their likelihoods.

    Attributes
    ----------
    cores : dict of Graph to float
        Log-likelihoods of the graphs that cannot be split; nan before they are fitted.
    """

    def __init__(self, margins: Margins, pairs: list[tuple[int, int]]):
        self.margins, self.pairs = margins, pairs
        m = len(margins.n_levels)
        self.between = [  # edges between the predictors of each set
            sum(1 << e for e, (i, j) in enumerate(pairs) if mask >> i & 1 and mask >> j & 1) for mask in range(1 << m)
        ]
        self.cores: dict[Graph, float] = {}
        self._splits: dict[Graph, tuple[Graph, int, int] | None] = {}
        self._values: dict[Graph, float] = {(0, 0): 0.0}

    def split(self, graph: Graph) -> None:
        """Split a graph and what is left of it, until a core is left."""
        while graph[0] and graph not in self._splits:
            self._splits[graph] = found = self._simplicial(graph)
            if found is None:
                self.cores[graph] = np.nan
                return
            graph = found[0]

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

    def log_likelihood(self, graph: Graph) -> float:
        """Return the log-likelihood of a graph that was split and whose core was fitted."""
        if graph not in self._values:
            split = self._splits[graph]
            if split is None:
                self._values[graph] = self.cores[graph]
            else:
                rest, closed, around = split
                value = self.margins.log_likelihood(closed) - self.margins.log_likelihood(around)
                self._values[graph] = self.log_likelihood(rest) + value
        return self._values[graph]

    def cliques(self, graph: Graph) -> list[int]:
        """Return the largest sets of predictors that are all joined."""
        vertices, edges = graph
        complete = [
            mask
            for mask in range(1, vertices + 1)
            if mask & vertices == mask and edges & self.between[mask] == self.between[mask]
        ]
        return [mask for mask in complete if not any(mask != other and mask & other == mask for other in complete)]


def all_graphs(margins: Margins, engine: Engine, progress: Callable) -> GraphScores:
    """Return the scores of all graphs.

    Parameters
    ----------
    margins : Margins
    engine : Engine
        Exact maximum likelihood, for cores that proportional fitting does not fit.
    progress : callable
        ``progress(share, note)`` is called up to a sum of 1.
    """
    m = len(margins.n_levels)
    pairs = list(combinations(range(m), 2))
    everything, n_graphs = (1 << m) - 1, 1 << len(pairs)
    splitter = _Splitter(margins, pairs)
    for edges in range(n_graphs):
        splitter.split((everything, edges))
    progress(0.2, "fitting cores")
    _fit_cores(splitter, engine, progress)
    values = np.array([splitter.log_likelihood((everything, edges)) for edges in range(n_graphs)])
    numbers, n_parameters = np.arange(n_graphs), np.zeros(n_graphs)
    for mask in range(1, everything + 1):
        within = splitter.between[mask]
        size = float(np.prod([margins.n_levels[i] - 1.0 for i in members(mask)]))
        n_parameters += size * (numbers & within == within)
    has_edge = (numbers[:, None] >> np.arange(len(pairs)) & 1).astype(bool)
    return GraphScores(np.array(pairs).reshape(-1, 2), has_edge, values, n_parameters, n_graphs, True)


def _fit_cores(splitter: _Splitter, engine: Engine, progress: Callable) -> None:
    """Fit all cores, those of the same predictors together."""
    by_vertices: dict[int, list[Graph]] = {}
    for graph in splitter.cores:
        by_vertices.setdefault(graph[0], []).append(graph)
    for vertices, graphs in by_vertices.items():
        axes = members(vertices)
        models = [[tuple(map(axes.index, members(mask))) for mask in splitter.cliques(graph)] for graph in graphs]
        values = fit_cliques(splitter.margins.counts(vertices), models)
        for k in np.flatnonzero(np.isnan(values)):
            values[k] = _newton(splitter.margins, axes, models[k], engine)
        splitter.cores.update(zip(graphs, values.tolist(), strict=True))
        progress(0.8 * len(graphs) / len(splitter.cores))


def _newton(margins: Margins, axes: list[int], cliques: list[tuple[int, ...]], engine: Engine) -> float:
    """Return the log-likelihood of a core by `engine`; `cliques` are positions in its predictors `axes`."""
    rows, n_levels = margins.rows, np.array([margins.n_levels[i] for i in axes])
    part = type(rows)(np.ascontiguousarray(rows.codes[:, axes]), rows.weights).collapsed(n_levels)
    terms = {term for clique in cliques for k in range(2, len(clique) + 1) for term in combinations(clique, k)}
    return engine.maximum_likelihood(part, Layout(n_levels, sorted(terms)))[0]
