"""Structures: graphs of Bayesian network classifiers with named variables.

The *class* is the response; the other variables are the *features*. A *family* is a variable with
its parents; the class is a parent of every feature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from bbl.bayesnet.dag import Dag
from bbl.bayesnet.learners import LEARNERS
from bbl.checks import integer
from bbl.errors import OptionError
from bbl.report.graph_text import quoted, require_networkx
from bbl.report.network.plot import plot_structure
from bbl.report.network.text import structure_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "AveragedStructure",
    "Inspection",
    "SingleGraph",
    "Structure",
    "make_structure",
    "require_single",
]


@dataclass(frozen=True, repr=False)
class Inspection(ABC):
    """Base class of `Structure` and `AveragedStructure`: graphs and the learner that produced them.

    Attributes
    ----------
    class_var : hashable
        Name of the class.
    columns : tuple of length m
        Names of the candidate features; feature selection may exclude some of them from the graphs.
    dags : tuple of Dag
        Arcs among features, as positions in `columns`: a single graph, or one per averaged network.
    learner : str or None
        Name of the learner; None if the structure was specified by the user.
    options : mapping
        Options of the learner.
    score_log : tuple of float
        Accuracy of the structure at each step of a greedy search, averaged over the folds.
    """

    class_var: Hashable
    columns: tuple[Any, ...]
    dags: tuple[Dag, ...]
    learner: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    score_log: tuple[float, ...] = ()

    @abstractmethod
    def __repr__(self) -> str:
        """Return the printed form: the learner and the numbers of features and arcs."""

    @property
    def features(self) -> tuple[Any, ...]:
        """Names of the features, in the order of the graph."""
        return tuple(self.columns[i] for i in self.dags[0].features)

    @property
    def vars(self) -> tuple[Any, ...]:
        """Names of the class and the features."""
        return (self.class_var, *self.features)


class SingleGraph(ABC):
    """Mixin for `Structure` and fitted networks: families, arcs and properties of a single graph.

    A family is a tuple of the variable, its feature parents in the order of addition, and the
    class.
    """

    @abstractmethod
    def _single_graph(self, attribute: str) -> Structure:
        """Return the graph.

        Raises an AttributeError for the requested `attribute` if there are several graphs.
        """

    @property
    def feature_families(self) -> dict[Hashable, tuple[Any, ...]]:
        """Families of the features, each as a tuple of the feature and its feature parents."""
        graph = self._single_graph("feature_families")
        return {
            graph.columns[i]: (graph.columns[i], *graph._names(parents))
            for i, parents in graph.dag.families
        }

    @property
    def families(self) -> dict[Hashable, tuple[Any, ...]]:
        """Family of each variable, by name. The family of the class contains only the class."""
        graph = self._single_graph("families")
        families = {
            name: (*family, graph.class_var) for name, family in graph.feature_families.items()
        }
        return {**families, graph.class_var: (graph.class_var,)}

    @property
    def arcs(self) -> list[tuple[Any, ...]]:
        """Arcs as (from, to), family by family. The arc from the class is the last in each
        family.
        """
        families = self._single_graph("arcs").families
        return [(parent, family[0]) for family in families.values() for parent in family[1:]]

    @property
    def narcs(self) -> int:
        """Number of arcs."""
        return len(self._single_graph("narcs").arcs)

    @property
    def modelstring(self) -> str:
        """Families as text in the form ``[X|P1:P2:C]``, where variables follow their parents."""
        graph = self._single_graph("modelstring")
        family_texts = [f"[{graph.class_var}]"]
        for layer in graph.dag.layers:  # features with all parents in the preceding layers
            for i in layer:
                parents = ":".join(map(str, (*graph._names(graph.dag.parents[i]), graph.class_var)))
                family_texts.append(f"[{graph.columns[i]}|{parents}]")
        return " ".join(family_texts)

    @property
    def is_anb(self) -> bool:
        """Whether the structure is an augmented naive Bayes.

        Always True, because the class is a parent of every feature.
        """
        self._single_graph("is_anb")  # raises an AttributeError for an average
        return True

    @property
    def is_nb(self) -> bool:
        """Whether the structure is naive Bayes, i.e. has no arcs among the features."""
        # largest number of feature parents
        return self._single_graph("is_nb").dag.most_parents == 0

    @property
    def is_ode(self) -> bool:
        """Whether the structure is a one-dependence estimator, i.e. features have at most one
        feature parent.
        """
        return self._single_graph("is_ode").dag.most_parents <= 1

    @property
    def is_semi_naive(self) -> bool:
        """Whether any two features in a connected component have an arc between them."""
        return self._single_graph("is_semi_naive").dag.is_semi_naive

    def is_kde(self, k: int) -> bool:
        """Return whether all features have at most `k` feature parents.

        Examples
        --------
        >>> from bbl import networks
        >>> graph = networks.structure("c", {"a": [], "b": ["a"]})
        >>> graph.is_kde(0), graph.is_kde(1)
        (False, True)
        """
        return self._single_graph("is_kde").dag.most_parents <= integer("k", k, 0)

    def to_networkx(self) -> Any:
        """Return the graph as a ``networkx.DiGraph``, with the name of the class as graph attribute
        ``class``.

        Examples
        --------
        >>> from bbl import networks
        >>> graph = networks.structure("c", {"a": [], "b": ["a"]})
        >>> sorted(graph.to_networkx().edges)
        [('a', 'b'), ('c', 'a'), ('c', 'b')]
        """
        graph = self._single_graph("to_networkx")
        digraph = require_networkx().DiGraph(**{"class": graph.class_var})
        digraph.add_nodes_from(graph.vars)
        digraph.add_edges_from(graph.arcs)
        return digraph

    def to_dot(self) -> str:
        """Return the graph in the DOT language of Graphviz.

        Examples
        --------
        >>> from bbl import networks
        >>> print(networks.structure("c", {"a": []}).to_dot())
        digraph {
          "c";
          "a";
          "c" -> "a";
        }
        """
        graph = self._single_graph("to_dot")
        lines = [f"  {quoted(name)};" for name in graph.vars]
        lines += [f"  {quoted(parent)} -> {quoted(child)};" for parent, child in graph.arcs]
        return "\n".join(["digraph {", *lines, "}"])


@final
class Structure(SingleGraph, Inspection):
    """The graph of a Bayesian network classifier, as returned by the learners and `structure`.

    A family is a tuple of the variable, its feature parents in the order of addition, and the
    class.

    Examples
    --------
    >>> from bbl import networks
    >>> graph = networks.structure("c", {"a": [], "b": ["a"]})
    >>> graph.families
    {'a': ('a', 'c'), 'b': ('b', 'a', 'c'), 'c': ('c',)}
    >>> graph.modelstring
    '[c] [a|c] [b|a:c]'
    """

    def _single_graph(self, attribute: str) -> Structure:
        """Return the structure itself, because it is a single graph."""
        return self

    @property
    def dag(self) -> Dag:
        """Arcs among the features, as positions in `columns`."""
        return self.dags[0]

    def _names(self, positions: tuple[int, ...]) -> tuple[Any, ...]:
        """Return the names of the features at `positions` of `columns`."""
        return tuple(self.columns[i] for i in positions)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph with the class at the top and features below their parents, and return the
        Axes.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> from bbl import networks
        >>> axis = networks.structure("c", {"a": [], "b": ["a"]}).plot()
        >>> plt.close()
        """
        layers = [self._names(layer) for layer in self.dag.layers]
        return plot_structure(self.class_var, layers, self.arcs, ax=ax)

    def __repr__(self) -> str:
        return structure_text(self.class_var, len(self.features), self.learner, n_arcs=self.narcs)


@final
class AveragedStructure(Inspection):
    """The graphs of an average of one-dependence estimators, as returned by `aode`.

    In each graph, one feature is the parent of all other features.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> graphs = networks.aode("Survived ~ .", titanic, weights="Freq")
    >>> graphs.members["Sex"].modelstring
    '[Survived] [Sex|Survived] [Class|Sex:Survived] [Age|Sex:Survived]'
    """

    @property
    def members(self) -> dict[Hashable, Structure]:
        """Graphs, by the name of the feature that is the parent of all others (None if the
        structures have no features).
        """
        # `aode` puts the parent of all other features first
        names = [self.columns[dag.features[0]] if len(dag.features) else None for dag in self.dags]
        return {
            name: Structure(self.class_var, self.columns, (dag,))
            for name, dag in zip(names, self.dags, strict=True)
        }

    def __repr__(self) -> str:
        return structure_text(
            self.class_var, len(self.features), self.learner, n_networks=len(self.dags)
        )


def make_structure(
    class_var: Hashable,
    columns: tuple,
    dags: tuple[Dag, ...],
    learner: str | None,
    options: Mapping[str, Any] | None = None,
    score_log: tuple[float, ...] = (),
) -> Structure | AveragedStructure:
    """Return an `AveragedStructure` if the learner averages networks, and otherwise a
    `Structure`.
    """
    # whether it returns several graphs
    averages = learner is not None and LEARNERS[learner].averages
    return (AveragedStructure if averages else Structure)(
        class_var, columns, dags, learner, options or {}, score_log
    )


def require_single(structure: Structure | AveragedStructure, noun: str) -> Structure:
    """Return `structure` if it is a single graph.

    Otherwise raises an OptionError, where `noun` is the property that an average does not have.
    """
    if isinstance(structure, Structure):
        return structure
    raise OptionError(
        f"{structure.learner} averages {len(structure.dags)} networks, so it has no {noun}.",
        hint="Choose learner='nb' or learner='tan_cl'.",
    )
