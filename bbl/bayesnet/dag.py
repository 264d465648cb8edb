"""Structures of networks: features and their feature parents, as column positions.

The class is a parent of all features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Dag", "Family", "directed_forest", "naive"]

# a feature and its feature parents, in order of addition
Family = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Dag:
    """An augmented naive Bayes structure.

    Each feature has the class and possibly other features as its parents.

    Attributes
    ----------
    families : tuple of (int, tuple of int)
        Each feature and its feature parents, in the order of the model.

    Examples
    --------
    >>> dag = Dag(((0, ()), (1, (0,)), (2, ())))
    >>> dag.features, dag.arcs, dag.components
    ((0, 1, 2), ((0, 1),), ((0, 1), (2,)))
    """

    families: tuple[Family, ...]

    @property
    def features(self) -> tuple[int, ...]:
        """Positions of the features, in the order of the model."""
        return tuple(i for i, _ in self.families)

    @cached_property
    def parents(self) -> dict[int, tuple[int, ...]]:
        """Feature parents of each feature."""
        return dict(self.families)

    @property
    def arcs(self) -> tuple[tuple[int, int], ...]:
        """Arcs among the features, as (parent, child)."""
        return tuple((p, i) for i, parents in self.families for p in parents)

    @property
    def most_parents(self) -> int:
        """Maximum number of feature parents."""
        return max((len(parents) for _, parents in self.families), default=0)

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Features in topological layers; all parents of a feature are in earlier layers."""
        waiting = list(self.features)
        layers = []
        done: set[int] = set()
        while waiting:
            layer = tuple(i for i in waiting if done.issuperset(self.parents[i]))
            if not layer:
                raise ValueError("the arcs have a cycle")
            done.update(layer)
            waiting = [i for i in waiting if i not in done]
            layers.append(layer)
        return tuple(layers)

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Connected components (supernodes), ordered by their first features; features are in the
        order of the model.
        """
        # union-find: each feature points to the representative of its component, directly or
        # through other features
        representative = {i: i for i in self.features}

        def find_component(i: int) -> int:
            """Return the representative of the component that contains feature i (union-find with
            path halving).
            """
            while representative[i] != i:
                representative[i] = i = representative[representative[i]]
            return i

        for p, i in self.arcs:
            representative[find_component(p)] = find_component(i)
        # features of each component, by its representative
        members: dict[int, list[int]] = {}
        for i in self.features:
            members.setdefault(find_component(i), []).append(i)
        return tuple(map(tuple, members.values()))

    @property
    def is_semi_naive(self) -> bool:
        """Whether all components are complete, so that any two features of a component are joined
        by an arc.
        """
        # within each component c
        n_arcs = (sum(len(self.parents[i]) for i in c) for c in self.components)
        return all(
            2 * n == len(c) * (len(c) - 1) for n, c in zip(n_arcs, self.components, strict=True)
        )

    def ancestors(self, i: int) -> set[int]:
        """Return the features with a directed path to `i`."""
        reached: set[int] = set()
        todo = list(self.parents[i])
        while todo:
            p = todo.pop()
            if p not in reached:
                reached.add(p)
                todo.extend(self.parents[p])
        return reached

    def with_parents(self, added_parents: Mapping[int, Iterable[int]]) -> Dag:
        """Return the structure with additional parents, which are appended to the existing parents
        of the features.
        """
        return Dag(
            tuple((i, (*parents, *added_parents.get(i, ()))) for i, parents in self.families)
        )

    def without(self, feature: int) -> Dag:
        """Return the structure without a feature and the arcs of this feature."""
        remaining = ((i, parents) for i, parents in self.families if i != feature)
        return Dag(
            tuple((i, tuple(p for p in parents if p != feature)) for i, parents in remaining)
        )


def naive(features: Iterable[int]) -> Dag:
    """Return naive Bayes: features without feature parents."""
    return Dag(tuple((i, ()) for i in features))


def directed_forest(m: int, edges: Iterable[tuple[int, int]], root: int | None = None) -> Dag:
    """Return the forest over m features whose edges are directed away from `root`.

    In other trees, edges are directed away from the first feature.

    Features are ordered by the first feature of their tree, then by position.
    """
    neighbours: list[list[int]] = [[] for _ in range(m)]
    for i, j in edges:
        neighbours[i].append(j)
        neighbours[j].append(i)
    parents: dict[int, tuple[int, ...]] = {}
    for tree_root in ([] if root is None else [root]) + list(range(m)):
        if tree_root in parents:
            continue
        parents[tree_root] = ()
        reached = [tree_root]
        for i in reached:  # breadth-first search; the list grows during the loop
            for j in neighbours[i]:
                if j not in parents:
                    parents[j] = (i,)
                    reached.append(j)
    forest = Dag(tuple((i, parents[i]) for i in range(m)))
    return Dag(tuple((i, parents[i]) for component in forest.components for i in component))
