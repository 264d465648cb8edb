"""Moves: the structures to which each greedy search may go next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bbl.bayesnet.dag import Dag

__all__ = ["MOVES", "Moves"]


@dataclass(frozen=True)
class Moves:
    """The state that moves depend on.

    Attributes
    ----------
    m : int
        Features of the data.
    kdbk : int
        Most feature parents of a feature.
    choose : callable
        From structures, and one that they are near, to the position of the best of them.
    """

    m: int
    kdbk: int
    choose: Callable[[Sequence[Dag], Dag], int]


def _orphans(dag: Dag) -> list[int]:
    return [i for i, parents in dag.families if not parents]


def _add_arc_to_orphan(_: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one more arc to a feature without feature parents (TAN-HC).

    Of the two arcs between such features, which are equivalent, the one from the later to the earlier.
    """
    orphans = _orphans(dag)
    if len(orphans) < 2:
        return []
    out = []
    for f, parents in dag.families:
        if parents:
            above = dag.ancestors(f)
            out += [dag.with_parents({o: (f,)}) for o in orphans if o not in above]
    by_position = sorted(orphans)
    out += [dag.with_parents({i: (j,)}) for a, i in enumerate(by_position) for j in by_position[a + 1 :]]
    return out


def _add_arc_of_super_parent(moves: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with an arc from the best super-parent to one feature without feature parents (TAN-HCSP).

    The super-parent is the feature that, as a parent of all those features, scores best.
    """
    orphans = _orphans(dag)
    children = {}
    for f in dag.features:
        above = dag.ancestors(f)
        free = [o for o in orphans if o != f and o not in above]
        if free:
            children[f] = free
    if not children:
        return []
    fathers = list(children)
    f = fathers[moves.choose([dag.with_parents({o: (f,) for o in children[f]}) for f in fathers], dag)]
    return [dag.with_parents({o: (f,)}) for o in children[f]]


def _include_or_join(moves: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one more feature, by itself or with a supernode as parents (FSSJ)."""
    out = []
    for g in range(moves.m):
        if g not in dag.parents:
            out.append(Dag((*dag.families, (g, ()))))
            out += [Dag((*dag.families, (g, component))) for component in dag.components]
    return out


def _exclude_or_join(_: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one feature less, or with two supernodes joined (BSEJ)."""
    out = [dag.without(i) for i in dag.features]
    parts = dag.components
    for a, first in enumerate(parts):
        out += [dag.with_parents(dict.fromkeys(first, second)) for second in parts[a + 1 :]]
    return out


def _add_arc(moves: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one more arc, no feature having over `kdbk` feature parents (kDB)."""
    above = {i: dag.ancestors(i) for i in dag.features}
    return [
        dag.with_parents({o: (f,)})
        for f in dag.features
        for o, parents in dag.families
        if o != f and len(parents) < moves.kdbk and f not in parents and o not in above[f]
    ]


MOVES: dict[str, Callable[[Moves, Dag], list[Dag]]] = {
    "tan_hc": _add_arc_to_orphan,
    "tan_hcsp": _add_arc_of_super_parent,
    "fssj": _include_or_join,
    "bsej": _exclude_or_join,
    "kdb": _add_arc,
}
