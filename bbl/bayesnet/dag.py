"""Dag: the features of a network and their feature parents, as positions; the class is a parent of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Dag", "Family", "directed_forest", "naive"]

Family = tuple[int, tuple[int, ...]]  # a feature and its feature parents, in the order they were added


@dataclass(frozen=True)
class Dag:
    """An augmented naive Bayes structure: the class is a parent of every feature, and features may have others.

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
        """The largest number of feature parents."""
        return max((len(parents) for _, parents in self.families), default=0)

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Features by layers: those without feature parents, then those whose parents are in the layers before."""
        waiting, layers = list(self.features), []
        done: set[int] = set()
        while waiting:
            ready = tuple(i for i in waiting if done.issuperset(self.parents[i]))
            if not ready:
                raise ValueError("the arcs have a cycle")
            done.update(ready)
            waiting = [i for i in waiting if i not in done]
            layers.append(ready)
        return tuple(layers)

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Connected features (supernodes), each in the order of the model, by their first feature."""
        root = {i: i for i in self.features}

        def find(i: int) -> int:
            while root[i] != i:
                root[i] = i = root[root[i]]
            return i

        for p, i in self.arcs:
            root[find(p)] = find(i)
        members: dict[int, list[int]] = {}
        for i in self.features:
            members.setdefault(find(i), []).append(i)
        return tuple(map(tuple, members.values()))

    @property
    def is_semi_naive(self) -> bool:
        """Whether every component is complete: no two features in it without an arc."""
        size = {i: len(component) for component in self.components for i in component}
        arcs = dict.fromkeys(self.components, 0)
        for component in self.components:
            arcs[component] = sum(len(self.parents[i]) for i in component)
        return all(
            2 * arcs[component] == size[component[0]] * (size[component[0]] - 1) for component in self.components
        )

    def ancestors(self, i: int) -> set[int]:
        """Return the features from which arcs lead to `i`."""
        reached: set[int] = set()
        todo = list(self.parents[i])
        while todo:
            p = todo.pop()
            if p not in reached:
                reached.add(p)
                todo.extend(self.parents[p])
        return reached

    def with_parents(self, more: Mapping[int, Iterable[int]]) -> Dag:
        """Return the structure with more parents, each added after those that are there."""
        return Dag(tuple((i, (*parents, *more.get(i, ()))) for i, parents in self.families))

    def without(self, feature: int) -> Dag:
        """Return the structure without a feature and its arcs."""
        remaining = ((i, parents) for i, parents in self.families if i != feature)
        return Dag(tuple((i, tuple(p for p in parents if p != feature)) for i, parents in remaining))


def naive(features: Iterable[int]) -> Dag:
    """Return naive Bayes: features without feature parents."""
    return Dag(tuple((i, ()) for i in features))


def directed_forest(m: int, edges: Iterable[tuple[int, int]], root: int | None = None) -> Dag:
    """Return a forest with its edges directed away from the first feature of each tree, or from `root` in its tree.

    Features are in the order of the model: trees by their first feature, and inside a tree by position.
    """
    near: list[list[int]] = [[] for _ in range(m)]
    for i, j in edges:
        near[i].append(j)
        near[j].append(i)
    parent: dict[int, tuple[int, ...]] = {}
    for start in ([] if root is None else [root]) + list(range(m)):
        if start in parent:
            continue
        parent[start] = ()
        level = [start]
        while level:
            below = []
            for i in level:
                for j in near[i]:
                    if j not in parent:
                        parent[j] = (i,)
                        below.append(j)
            level = below
    by_position = Dag(tuple((i, parent[i]) for i in range(m)))
    return Dag(tuple((i, parent[i]) for component in by_position.components for i in component))
