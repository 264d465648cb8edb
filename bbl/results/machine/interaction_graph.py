"""Methods of fitted Boltzmann machines that export interactions as graphs for other programs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from bbl.checks import check_keywords
from bbl.model.ranking import interaction_strength
from bbl.report.graph_text import quoted, require_networkx
from bbl.report.text import label_text
from bbl.results.machine.machine import MachineResults, of_categories

__all__ = ["GraphMixin"]


class GraphMixin(MachineResults):
    """Exports the graph of interacting predictors."""

    @check_keywords
    @of_categories
    def to_networkx(self) -> Any:
        """Return the interacting pairs of predictors as a ``networkx.MultiGraph``, with one edge
        per group.

        Returns
        -------
        networkx.MultiGraph
            Nodes are the predictors. Edges, keyed by group, have the attributes ``group`` and
            ``strength``, the Frobenius norm of the couplings in the zero-sum gauge as in
            `interactions`; pairs with strength 0 (at most 1e-12) are omitted. Terms of three or
            more predictors do not have their own edges, but contribute to the strengths of their
            pairs (see `terms`). To export the graph to Gephi, Cytoscape or igraph, call
            ``networkx.write_graphml(fit.to_networkx(), path, edge_id_from_attribute="edge")``: the
            attribute ``edge`` is a unique name for each edge, as GraphML requires.

        Raises
        ------
        ImportError
            If networkx is not installed.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> graph = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq").to_networkx()
        >>> list(graph.nodes)
        ['Class', 'Sex', 'Age']
        >>> [(*edge, round(strength, 3)) for *edge, strength in graph.edges(data="strength")]
        [('Class', 'Sex', 2.085), ('Class', 'Sex', 1.937)]
        """
        graph = require_networkx().MultiGraph()
        graph.add_nodes_from(self.labels.names)
        for edge_number, (group, predictor, other_predictor, strength) in enumerate(
            self._interacting_pairs(), 1
        ):
            graph.add_edge(
                predictor,
                other_predictor,
                key=group,
                group=group,
                strength=strength,
                edge=f"e{edge_number}",
            )
        return graph

    @check_keywords
    @of_categories
    def to_dot(self) -> str:
        """Return the interacting pairs of predictors in the DOT language of Graphviz, with one edge
        per group.

        Returns
        -------
        str
            An undirected graph; edges are labelled by group and strength, as in `to_networkx`.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> print(bbl.bbl("~ Class + Sex * Survived", titanic, weights="Freq").to_dot())
        graph {
          "Class";
          "Sex";
          "Survived";
          "Sex" -- "Survived" [label="1.158"];
        }
        """
        lines = [f"  {quoted(name)};" for name in self.labels.names]
        for group, predictor, other_predictor, strength in self._interacting_pairs():
            label = (
                f"{strength:.4g}"
                if self.labels.response is None
                else f"{label_text(group)}: {strength:.4g}"
            )
            lines.append(
                f"  {quoted(predictor)} -- {quoted(other_predictor)} [label={quoted(label)}];"
            )
        return "\n".join(["graph {", *lines, "}"])

    def _interacting_pairs(self) -> Iterator[tuple[Hashable, Hashable, Hashable, float]]:
        """Yield (group, predictor, other predictor, strength) for each interacting pair, group by
        group.
        """
        # `pairs` (P, 2) are the positions of interacting predictors, `theta` (size,) the parameters
        # of a group
        layout = self.estimate.parameters.layout
        names = self.labels.names
        for group, theta in zip(self.labels.groups, self.estimate.parameters.theta, strict=True):
            # couplings of larger terms follow the pairs
            strengths = interaction_strength(layout, theta)[: len(layout.pairs)]
            for (i, j), strength in zip(layout.pairs.tolist(), strengths.tolist(), strict=True):
                if strength > 0.0:  # also false for nan, the strength in a group without rows
                    yield group, names[i], names[j], strength
