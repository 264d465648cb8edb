"""Structure: what a learner found, under its names; its inspection, figure and exports."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bbl.bayesnet.dag import Dag
from bbl.bayesnet.learners import LEARNERS
from bbl.checks import integer
from bbl.errors import OptionError
from bbl.report.network.plot import plot_structure
from bbl.report.network.text import structure_text

__all__ = ["AveragedStructure", "Inspection", "Structure", "make_structure"]


@dataclass(frozen=True, repr=False)
class Inspection:
    """Base of structures and fitted networks: properties of the graph.

    Attributes
    ----------
    class_var : hashable
        Name of the class.
    columns : tuple of length m
        Names of the features among which the structure was learnt; positions in `dags` are positions here.
    dags : tuple of Dag
    learner : str or None
        Name of the learner; None of a structure given by hand.
    options : mapping
        Its options.
    score_log : tuple of float
        Score of every structure that a greedy search went through: the mean over folds of the accuracy.
    """

    class_var: Hashable
    columns: tuple
    dags: tuple[Dag, ...]
    learner: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    score_log: tuple[float, ...] = ()

    @property
    def features(self) -> tuple:
        """Names of the features of the model, in its order."""
        return tuple(self.columns[i] for i in self.dags[0].features)

    @property
    def vars(self) -> tuple:
        """Names of the class and the features."""
        return (self.class_var, *self.features)


class Structure(Inspection):
    """The graph of a Bayesian network classifier; made by the learners, and by `structure`.

    The class is a parent of every feature. Families are written with the variable first, then its feature parents in
    the order in which they were added, and the class last.

    Examples
    --------
    >>> from bbl import networks
    >>> graph = networks.structure("c", {"a": [], "b": ["a"]})
    >>> graph.families
    {'a': ('a', 'c'), 'b': ('b', 'a', 'c'), 'c': ('c',)}
    >>> graph.modelstring
    '[c] [a|c] [b|a:c]'
    """

    @property
    def dag(self) -> Dag:
        """The structure on positions of `columns`."""
        return self.dags[0]

    @property
    def feature_families(self) -> dict[Hashable, tuple]:
        """For each feature: itself, and its feature parents."""
        return {self.columns[i]: (self.columns[i], *self._names(parents)) for i, parents in self.dag.families}

    @property
    def families(self) -> dict[Hashable, tuple]:
        """For each variable: itself, its feature parents, and the class."""
        families = {name: (*family, self.class_var) for name, family in self.feature_families.items()}
        return {**families, self.class_var: (self.class_var,)}

    @property
    def arcs(self) -> list[tuple]:
        """Arcs as (from, to), family by family; that from the class is the last of each."""
        return [(p, family[0]) for family in self.families.values() for p in family[1:]]

    @property
    def narcs(self) -> int:
        """Number of arcs."""
        return len(self.arcs)

    @property
    def modelstring(self) -> str:
        """The families as ``[X|P1:P2:C]``, a variable after its parents."""
        parts = [f"[{self.class_var}]"]
        for layer in self.dag.layers:
            for i in layer:
                parents = ":".join(map(str, (*self._names(self.dag.parents[i]), self.class_var)))
                parts.append(f"[{self.columns[i]}|{parents}]")
        return " ".join(parts)

    @property
    def is_anb(self) -> bool:
        """Whether it is an augmented naive Bayes; every structure is: the class is a parent of all."""
        return True

    @property
    def is_nb(self) -> bool:
        """Whether it is naive Bayes: no arcs among the features."""
        return self.dag.most_parents == 0

    @property
    def is_ode(self) -> bool:
        """Whether it is a one-dependence estimator: no feature has two feature parents."""
        return self.dag.most_parents <= 1

    @property
    def is_semi_naive(self) -> bool:
        """Whether features that are connected all have arcs between them."""
        return self.dag.is_semi_naive

    def is_kde(self, k: int) -> bool:
        """Return whether no feature has more than `k` feature parents."""
        return self.dag.most_parents <= integer("k", k, 0)

    def _names(self, positions: tuple[int, ...]) -> tuple:
        return tuple(self.columns[i] for i in positions)

    def plot(self, ax=None):
        """Draw the graph, the class on top and every feature below its parents; return the Axes.

        Arcs from the class, which go to all features, are pale.
        """
        layers = [self._names(layer) for layer in self.dag.layers]
        return plot_structure(self.class_var, layers, self.arcs, ax=ax)

    def to_networkx(self):
        """Return the graph as a ``networkx.DiGraph``; its attribute ``class`` is the name of the class."""
        try:
            import networkx
        except ImportError as error:
            raise ImportError("to_networkx needs networkx: pip install networkx") from error
        graph = networkx.DiGraph(**{"class": self.class_var})
        graph.add_nodes_from(self.vars)
        graph.add_edges_from(self.arcs)
        return graph

    def to_dot(self) -> str:
        """Return the graph in the language of Graphviz."""
        lines = [f"  {_dot(name)};" for name in self.vars]
        lines += [f"  {_dot(a)} -> {_dot(b)};" for a, b in self.arcs]
        return "\n".join(["digraph {", *lines, "}"])

    def __repr__(self) -> str:
        return structure_text(self.class_var, len(self.features), self.learner, narcs=self.narcs)


class AveragedStructure(Inspection):
    """The graphs of an average of one-dependence estimators; made by `aode`."""

    @property
    def members(self) -> dict[Hashable, Structure]:
        """The structure in which each feature is a parent of all others, by that feature."""
        names = [self.columns[dag.features[0]] if len(dag.features) else None for dag in self.dags]
        return {
            name: Structure(self.class_var, self.columns, (dag,)) for name, dag in zip(names, self.dags, strict=True)
        }

    def __repr__(self) -> str:
        return structure_text(self.class_var, len(self.features), self.learner, members=len(self.dags))


def make_structure(**parts: Any) -> Structure | AveragedStructure:
    """Return the structure of these parts, averaged if its learner averages."""
    learner = parts["learner"]
    averages = learner is not None and LEARNERS[learner].averages
    return (AveragedStructure if averages else Structure)(**parts)


def only(structure: Structure | AveragedStructure, what: str) -> Structure:
    """Return a structure that is one graph, or say that an average has no `what`."""
    if isinstance(structure, Structure):
        return structure
    raise OptionError(
        f"{structure.learner} averages {len(structure.dags)} networks, so it has no {what}; use the learner nb or "
        "tan_cl."
    )


def _dot(name: object) -> str:
    text = re.sub(r"[\r\n]+", " ", str(name))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
