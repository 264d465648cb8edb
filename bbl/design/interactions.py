"""Sets of interaction terms over numbered predictors, with their sums, differences, products and
powers.

A *term* of order k is a set of k predictors, stored as a row of k rising numbers; T terms of an
order are an array (T, k). A *cube* is the set of all terms of order 2 to k of some predictors; its
terms are not listed until they are needed: 784 predictors have 80 million terms of order 3.
*Couplings* are the parameters of a term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bbl.memory import check_memory

__all__ = ["Cube", "Interactions", "TermSet", "term_keys"]

NO_PREDICTORS = np.empty(0, dtype=np.intp)
PRODUCT_COST = 300  # number of terms that take as long to make as a product of two small sets
TermsByOrder = dict[int, np.ndarray]  # from order k to terms (T, k)


class Cube(NamedTuple):
    """All terms of order 2 to `order` of the predictors `columns` (rising numbers)."""

    columns: np.ndarray = NO_PREDICTORS
    order: int = 1

    def count(self, order: int) -> int:
        """Return the number of terms of one order."""
        return math.comb(len(self.columns), order) if 2 <= order <= self.order else 0

    @property
    def n_terms(self) -> int:
        """Number of terms of all orders."""
        return sum(self.count(k) for k in range(2, self.order + 1))

    def contains(self, terms: np.ndarray) -> np.ndarray:
        """Return whether each of the `terms` (T, k) is in the cube, shape (T,)."""
        return np.isin(terms, self.columns).all(axis=1) & (terms.shape[1] <= self.order)

    def list_terms(self, order: int) -> np.ndarray:
        """Return the terms of one order, shape (T, order), in lexicographic order."""
        n = len(self.columns)
        if not self.count(order):
            return np.empty((0, order), dtype=np.intp)
        terms = np.arange(n)[:, None]
        for _ in range(order - 1):  # extend every term by each number above its last one
            n_extensions = n - 1 - terms[:, -1]
            terms = np.repeat(terms, n_extensions, axis=0)
            # 0, 1, ... within each term: position of the row less that of the term's first row
            extension = np.arange(len(terms)) - np.repeat(
                np.cumsum(n_extensions) - n_extensions, n_extensions
            )
            terms = np.column_stack([terms, terms[:, -1] + 1 + extension])
        return self.columns[terms]  # from positions in `columns` to numbers of predictors


@dataclass(frozen=True, eq=False)
class Interactions:
    """The terms of a model: those of a cube, with `added` ones (outside of it) and without
    `removed` ones (inside).

    Terms are not listed until they are needed.

    Examples
    --------
    >>> terms = Interactions(Cube(np.arange(784), 3))
    >>> terms.count(2), terms.count(3), terms.n_couplings(np.full(784, 2))
    (306936, 80007984, 80314920)
    """

    cube: Cube
    # from order k to distinct terms (T, k)
    added: Mapping[int, np.ndarray] = field(default_factory=dict)
    removed: Mapping[int, np.ndarray] = field(default_factory=dict)  # likewise

    def count(self, order: int) -> int:
        """Return the number of terms of one order."""
        return (
            self.cube.count(order)
            + len(self.added.get(order, ()))
            - len(self.removed.get(order, ()))
        )

    @cached_property
    def order(self) -> int:
        """The highest order of a term; 1 if there are no terms."""
        bound = max([self.cube.order, *self.added])  # no term has a higher order
        return next((k for k in range(bound, 1, -1) if self.count(k)), 1)

    def are_all_pairs(self, m: int) -> bool:
        """Return whether the terms are all pairs of `m` predictors, and no others."""
        return self.order <= 2 and self.count(2) == math.comb(m, 2)

    def n_couplings(self, n_levels: Sequence[int] | np.ndarray) -> int:
        """Return the number of couplings: the sum over terms of the product of (levels - 1) of
        their predictors.
        """
        # the sum over all terms of order k of a cube is the elementary symmetric polynomial e_k of
        # the numbers L_i - 1; with a further column i, e_k becomes e_k + e_(k-1) (L_i - 1)
        n_free_levels = [int(L) - 1 for L in n_levels]
        # polynomials[k]: of degree k, in the cube's columns so far
        polynomials = [1] + [0] * self.cube.order
        for i in self.cube.columns:
            # falling, so that polynomials[k - 1] is still without column i
            for k in range(self.cube.order, 0, -1):
                polynomials[k] += polynomials[k - 1] * n_free_levels[i]
        total = sum(polynomials[2:])
        for sign, terms_by_order in ((1, self.added), (-1, self.removed)):
            for terms in terms_by_order.values():
                total += sign * sum(
                    math.prod(n_free_levels[i] for i in term) for term in terms.tolist()
                )
        return total

    def find_term(self, order: int) -> tuple[int, ...] | None:
        """Return one term of the lowest order from `order` on; None if there is none."""
        for k in range(order, self.order + 1):
            removed = set(map(tuple, self.removed[k].tolist())) if k in self.removed else set()
            if self.cube.count(k) > len(removed):  # a term of the cube is left
                return next(
                    term
                    for term in combinations(self.cube.columns.tolist(), k)
                    if term not in removed
                )
            if k in self.added:
                return tuple(self.added[k][0].tolist())
        return None

    def renumbered(self, number: np.ndarray) -> Interactions:
        """Return the same terms with predictor i called ``number[i]``; `number` must rise with
        i.
        """
        added, removed = (
            {k: number[terms] for k, terms in terms_by_order.items()}
            for terms_by_order in (self.added, self.removed)
        )
        return Interactions(Cube(number[self.cube.columns], self.cube.order), added, removed)

    @cached_property
    def _terms_by_order(self) -> TermsByOrder:
        """Results of `list_terms` so far, by order."""
        return {}

    def list_terms(self, order: int) -> np.ndarray:
        """Return the terms of one order, shape (T, order), lexicographic, read-only; a BBLError if
        memory is short.
        """
        if order not in self._terms_by_order:
            n = self.count(order)
            # 8 bytes for each predictor of a term, three times: the list, and copies while terms
            # are added and sorted
            check_memory(
                24.0 * order * n, f"A list of {n} terms of order {order}", "Ask for fewer terms."
            )
            terms = self.cube.list_terms(order)
            if order in self.removed:
                keys, removed_keys = term_keys(terms, self.removed[order])
                terms = terms[~np.isin(keys, removed_keys)]
            if order in self.added:
                terms = np.concatenate([terms, self.added[order]])
                terms = terms[np.argsort(term_keys(terms)[0])]  # [0]: keys of the one array
            terms.setflags(write=False)
            self._terms_by_order[order] = terms
        return self._terms_by_order[order]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Terms of order 2, 3, ..., one array (T, k) for each order; that of order 2 may be
        empty.
        """
        return tuple(self.list_terms(k) for k in range(2, max(self.order, 2) + 1))


class _Step(NamedTuple):
    """Predictors and terms that are added or dropped together: `singles`, and cube + added -
    removed.
    """

    sign: int  # 1 to add, -1 to drop
    singles: np.ndarray  # predictors by themselves (terms of order 1), rising
    cube: Cube
    added: TermsByOrder  # terms beside the cube; with sign -1 the terms to drop
    removed: TermsByOrder  # empty in all but the first step of a set
    # predictors of added terms; they remain if all their terms are dropped again
    used: np.ndarray = NO_PREDICTORS


class TermSet:
    """A set of predictors and terms, kept as `steps` (list of `_Step`) that add or drop some, in
    their order.

    So a long sum takes linear time: its steps are resolved into one set of terms only at the end.

    Parameters
    ----------
    width : int
        A number above those of all predictors.
    spend : callable
        ``spend(n)`` is called before n terms are made; it raises an error if they are too many.
    singles : ndarray of int, optional
        Rising numbers of the predictors of the new set; it has no interactions.
    """

    def __init__(
        self, width: int, spend: Callable[[int], None], singles: np.ndarray = NO_PREDICTORS
    ):
        self.width = width
        self.spend = spend
        self.steps = [_Step(1, singles, Cube(), {}, {})]
        spend(len(singles))

    def _from_step(self, step: _Step) -> TermSet:
        """Return a new set of one step."""
        result = TermSet(self.width, self.spend, step.singles)  # calls `spend` for the singles
        result.steps = [step]
        # the terms of a cube are not listed; its pairs stand for its cost
        self.spend(step.cube.count(2) + sum(map(len, step.added.values())))
        return result

    def add(self, other: TermSet, sign: int) -> TermSet:
        """Add (sign 1) or drop (-1) the predictors and terms of `other`, in place; return this set.

        All terms of a dropped predictor are dropped.
        """
        if sign > 0 and all(step.sign > 0 and not step.removed for step in other.steps):
            self.steps.extend(other.steps)  # steps that only add need not be resolved
            return self
        step = other.resolve()
        if sign < 0 and np.isin(step.cube.columns, step.singles).all():
            # the cube's terms are dropped with their predictors
            step = step._replace(cube=Cube(), removed={})
        # only the first step of a set may have removed terms (those of a later one would drop terms
        # of earlier steps), and steps that drop have no cube: their terms are listed
        if step.removed or sign < 0:
            step = step._replace(cube=Cube(), added=self._list_step(step), removed={})
        self.steps.append(step._replace(sign=sign))
        return self

    def resolve(self) -> _Step:
        """Return the remaining predictors and terms as one step, which replaces the steps of this
        set.
        """
        if len(self.steps) > 1:
            self.steps = [self._replay()]
        return self.steps[0]

    def predictors(self) -> np.ndarray:
        """Return all predictors, rising: singles, those of remaining terms, and those of terms
        dropped again.
        """
        step = self.resolve()
        return np.unique(
            np.concatenate(
                [step.singles, step.used, step.cube.columns, *map(np.ravel, step.added.values())]
            )
        )

    def interactions(self) -> Interactions:
        """Return the remaining terms."""
        step = self.resolve()
        return Interactions(step.cube, step.added, step.removed)

    def _replay(self) -> _Step:
        """Return the result of all steps as one step.

        The last event that names a term decides whether it is in, unless a later step drops one of
        its predictors. Times order the events: step number s adds or drops at 2 s, and takes
        `removed` out of its cube at 2 s + 1.
        """
        # of each predictor: whether it is in the set by itself, and whether by added terms
        # (`_Step.used`)
        is_single, is_used = np.zeros((2, self.width), dtype=bool)
        drop_time = np.full(self.width, -1)  # when each predictor was last dropped
        # by order: time, whether added, terms (T, k)
        changes: dict[int, list[tuple[int, bool, np.ndarray]]] = {}
        for time, step in zip(range(0, 2 * len(self.steps), 2), self.steps, strict=True):
            is_single[step.singles] = step.sign > 0
            if step.sign > 0:
                is_used[step.used] = is_used[step.cube.columns] = True
            else:
                is_used[step.singles] = False  # dropped with all of their terms
                drop_time[step.singles] = time
            for k, terms in step.added.items():
                is_used[terms] |= step.sign > 0
                changes.setdefault(k, []).append((time, step.sign > 0, terms))
            for k, terms in step.removed.items():
                changes.setdefault(k, []).append((time + 1, False, terms))
        cube_time, cube = self._keep_largest_cube(drop_time, changes)
        added: TermsByOrder = {}
        removed: TermsByOrder = {}
        for k, order_changes in changes.items():
            # latest first: np.unique finds the last change of a term
            order_changes.sort(key=lambda change: -change[0])
            terms = np.concatenate([change_terms for _, _, change_terms in order_changes])
            lengths = [len(change_terms) for _, _, change_terms in order_changes]
            # of each distinct term
            _, last_change = np.unique(term_keys(terms)[0], return_index=True)
            terms = terms[last_change]
            # of each term: when it was last changed, and whether it was added then
            times = np.repeat([change_time for change_time, _, _ in order_changes], lengths)[
                last_change
            ]
            is_added = np.repeat([adds for _, adds, _ in order_changes], lengths)[last_change]
            # the cube has lost predictors that were dropped after it
            in_cube = cube.contains(terms)
            is_removed = in_cube & ~is_added & (times > cube_time)
            # added after each of its predictors was last dropped: (T, 1) against (T, k)
            is_extra = ~in_cube & is_added & (times[:, None] > drop_time[terms]).all(axis=1)
            # of order k: terms that the result's cube lacks, and terms beside the cube
            removed |= {k: terms[is_removed]} if is_removed.any() else {}
            added |= {k: terms[is_extra]} if is_extra.any() else {}
        return _Step(1, np.flatnonzero(is_single), cube, added, removed, np.flatnonzero(is_used))

    def _keep_largest_cube(
        self, drop_time: np.ndarray, changes: dict[int, list]
    ) -> tuple[int, Cube]:
        """Return the time and the cube of the step with the most terms; add the terms of other
        cubes to `changes`.

        A step has one cube: the largest stays unlisted, as that saves most. Cubes lose the
        predictors that later steps drop. Arguments are as in `_replay`.
        """
        cubes = []
        for time, step in zip(range(0, 2 * len(self.steps), 2), self.steps, strict=True):
            columns = step.cube.columns[drop_time[step.cube.columns] < time]
            if len(columns) > 1:  # else the cube has no terms
                cubes.append((time, Cube(columns, min(step.cube.order, len(columns)))))
        cube_time, cube = max(
            cubes, key=lambda pair: (pair[1].n_terms, pair[0]), default=(-1, Cube())
        )
        for time, other in cubes:
            # a cube within the largest one adds nothing, unless it is later: then it brings back
            # removed terms
            is_within = (
                time <= cube_time
                and other.order <= cube.order
                and np.isin(other.columns, cube.columns).all()
            )
            if not is_within:
                self.spend(other.n_terms)
                for k in range(2, other.order + 1):
                    changes.setdefault(k, []).append((time, True, other.list_terms(k)))
        return cube_time, cube

    def _list_step(self, step: _Step) -> TermsByOrder:
        """Return all terms of a step, those of its cube too."""
        self.spend(step.cube.n_terms)
        terms = Interactions(step.cube, step.added, step.removed)
        return {k: terms.list_terms(k) for k in range(2, terms.order + 1) if terms.count(k)}

    def product(self, other: TermSet) -> TermSet:
        """Return ``self:other``: the unions of each predictor or term of one set with each of the
        other.
        """
        self.spend(PRODUCT_COST)
        a = self.resolve()
        b = other.resolve()
        # both have all terms of their predictors up to an order
        if _complete_order(a) and _complete_order(b):
            if np.array_equal(a.singles, b.singles):
                return self._from_predictors(a.singles, _complete_order(a) + _complete_order(b))
            if len(a.singles) == len(b.singles) == 1:  # short cut: long sums consist of pairs
                pair = np.sort(np.concatenate([a.singles, b.singles]))[None]
                return self._from_step(_Step(1, NO_PREDICTORS, Cube(), {2: pair}, {}))
        # by order: all terms of a factor, its single predictors as terms of order 1
        terms_a, terms_b = ({1: step.singles[:, None]} | self._list_step(step) for step in (a, b))
        terms_by_size: dict[int, list[np.ndarray]] = {}
        for k, left in terms_a.items():
            for q, right in terms_b.items():
                # in units of pairs: a term of up to k + q predictors takes the memory of (k + q) /
                # 2 pairs
                self.spend(len(left) * len(right) * max(1, (k + q) // 2))
                # each term of `left` beside each of `right`; they may share predictors
                rows = np.column_stack(
                    [np.repeat(left, len(right), axis=0), np.tile(right, (len(left), 1))]
                )
                for terms in _drop_repeats(rows, self.width):
                    terms_by_size.setdefault(terms.shape[1], []).append(terms)
        terms_by_order = {k: _union(arrays) for k, arrays in terms_by_size.items()}
        singles = terms_by_order.pop(1, NO_PREDICTORS[:, None])[:, 0]  # (T, 1) to (T,)
        return self._from_step(_Step(1, singles, Cube(), terms_by_order, {}))

    def power(self, exponent: int) -> TermSet:
        """Return ``self**exponent``: the unions of up to `exponent` predictors or terms of the
        set.
        """
        base_step = self.resolve()
        if exponent == 1:
            return self
        if _complete_order(base_step):
            result = self._from_predictors(base_step.singles, _complete_order(base_step) * exponent)
        else:
            result = self
            factor = self._from_step(base_step)
            for _ in range(exponent - 1):
                counts_before = _count_by_order(result)
                result = result.product(factor)
                # then further factors add nothing either
                if _count_by_order(result) == counts_before:
                    break
        # a predictor whose terms were all dropped from the base stays a predictor
        result.steps.append(_Step(1, NO_PREDICTORS, Cube(), {}, {}, base_step.used))
        return result

    def _from_predictors(self, columns: np.ndarray, order: int) -> TermSet:
        """Return the set of predictors `columns` and all their terms of up to `order`."""
        # refuse them before the cube is made; `_from_step` counts pairs again
        self.spend(len(columns) ** 2 // 2)
        cube = Cube(columns, min(order, len(columns))) if len(columns) > 1 else Cube()
        return self._from_step(_Step(1, columns, cube, {}, {}))


def _complete_order(step: _Step) -> int:
    """Return k if a step consists of its `singles` and all their terms of up to order k, else 0."""
    if step.added or step.removed:
        return 0
    return (
        step.cube.order
        if step.cube.order == 1 or np.array_equal(step.cube.columns, step.singles)
        else 0
    )


def _count_by_order(terms: TermSet) -> dict[int, int]:
    """Return the number of terms of each order; single predictors have order 1."""
    interactions = terms.interactions()
    return {1: len(terms.resolve().singles)} | {
        k: interactions.count(k) for k in range(2, interactions.order + 1)
    }


def term_keys(*arrays: np.ndarray) -> list[np.ndarray]:
    """Return integer keys (T,) of the terms of each array (T, k); keys compare as terms do
    lexicographically.

    A term's predictors i_1 < i_2 < ... < i_k are the digits of its key, ``sum_j i_j base^(k - j)``.
    Where keys would overflow, ranks replace them.
    """
    terms = np.concatenate(arrays)
    base = int(terms.max(initial=0)) + 1
    # the first digit
    keys = terms[:, 0]
    key_bound = base
    for column in terms.T[1:]:
        if key_bound > 2**62 // base:  # all keys are below `key_bound`
            keys = np.unique(keys, return_inverse=True)[1].ravel()  # ranks
            key_bound = len(keys) + 1
        keys = keys * base + column
        key_bound = key_bound * base
    return np.split(keys, np.cumsum([len(array) for array in arrays])[:-1])


def _union(arrays: list[np.ndarray]) -> np.ndarray:
    """Return the distinct terms of some arrays (T, k) of one order, in lexicographic order."""
    terms = np.concatenate(arrays)
    # the position of the first of equal terms, for each distinct key
    return terms[np.unique(term_keys(terms)[0], return_index=True)[1]]


def _drop_repeats(rows: np.ndarray, placeholder: int) -> list[np.ndarray]:
    """Return the terms of the distinct predictors in each of the `rows` (T, q), one array (T_k, k)
    for each order k.

    `placeholder` is a number above those of all predictors.
    """
    rows = np.sort(rows, axis=1)
    is_repeat = np.zeros(rows.shape, dtype=bool)
    is_repeat[:, 1:] = rows[:, 1:] == rows[:, :-1]
    orders = rows.shape[1] - is_repeat.sum(axis=1)
    rows = np.sort(np.where(is_repeat, placeholder, rows), axis=1)  # repeats go to the end
    return [_union([rows[orders == k, :k]]) for k in np.unique(orders)]
