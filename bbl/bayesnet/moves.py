"""Moves of greedy searches, which return the structures that differ from the current one by a
single step.

Features are column positions 0, 1, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bbl.bayesnet.dag import Dag

__all__ = ["MOVES", "Moves"]


@dataclass(frozen=True)
class Moves:
    """The limits of a search, and the function that chooses among structures.

    Attributes
    ----------
    m : int
        Number of features.
    kdbk : int
        Maximum number of feature parents per feature.
    choose : callable
        Function that takes the candidate structures and the current structure and returns the
        position of the best candidate.
    """

    m: int
    kdbk: int
    choose: Callable[[Sequence[Dag], Dag], int]


def _orphans(dag: Dag) -> list[int]:
    """Return the features without feature parents."""
    return [i for i, parents in dag.families if not parents]


def _add_arc_to_orphan(_: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one additional arc to an orphan (TAN-HC).

    An orphan is a feature without feature parents.

    The two possible arcs between two orphans are equivalent, so only the arc from the later to the
    earlier orphan is considered.
    """
    orphans = _orphans(dag)
    if len(orphans) < 2:
        return []
    out = []
    for f, parents in dag.families:
        if parents:
            ancestors = dag.ancestors(f)
            # avoids cycles
            out += [dag.with_parents({o: (f,)}) for o in orphans if o not in ancestors]
    by_position = sorted(orphans)  # regardless of their order in the model
    out += [
        dag.with_parents({i: (j,)}) for a, i in enumerate(by_position) for j in by_position[a + 1 :]
    ]
    return out


def _add_arc_of_super_parent(moves: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one additional arc, from the best super-parent to an orphan
    (TAN-HCSP).

    An orphan is a feature without feature parents. A super-parent has arcs to all orphans that are
    not its ancestors; the best super-parent is the one with the best score.
    """
    orphans = _orphans(dag)
    children = {}  # orphans that are possible children of each super-parent
    for f in dag.features:
        ancestors = dag.ancestors(f)
        possible_children = [o for o in orphans if o != f and o not in ancestors]
        if possible_children:
            children[f] = possible_children
    if not children:
        return []
    super_parents = list(children)
    best = super_parents[
        moves.choose([dag.with_parents({o: (f,) for o in children[f]}) for f in super_parents], dag)
    ]
    return [dag.with_parents({o: (best,)}) for o in children[best]]


def _include_or_join(moves: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one additional feature (FSSJ).

    The new feature has no parents, or all features of a connected component as its parents.
    """
    out = []
    for g in range(moves.m):
        if g not in dag.parents:  # not in the model
            out.append(Dag((*dag.families, (g, ()))))
            out += [Dag((*dag.families, (g, component))) for component in dag.components]
    return out


def _exclude_or_join(_: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one feature removed, or two components joined (BSEJ).

    All features of one component become parents of all features of the other.
    """
    out = [dag.without(i) for i in dag.features]
    components = dag.components
    for a, first in enumerate(components):
        # each feature of the first component receives all features of the second component as
        # parents
        out += [dag.with_parents(dict.fromkeys(first, second)) for second in components[a + 1 :]]
    return out


def _add_arc(moves: Moves, dag: Dag) -> list[Dag]:
    """Return the structures with one additional arc and up to `kdbk` parents per feature (kDB)."""
    ancestors = {i: dag.ancestors(i) for i in dag.features}
    return [
        dag.with_parents({o: (f,)})
        for f in dag.features
        for o, parents in dag.families
        if o != f and len(parents) < moves.kdbk and f not in parents and o not in ancestors[f]
    ]


MOVES: dict[str, Callable[[Moves, Dag], list[Dag]]] = {
    "tan_hc": _add_arc_to_orphan,
    "tan_hcsp": _add_arc_of_super_parent,
    "fssj": _include_or_join,
    "bsej": _exclude_or_join,
    "kdb": _add_arc,
}
