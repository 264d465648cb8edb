"""Terms of any order over numbered predictors: sets of them, their sums, differences, products and powers.

All terms of up to k of some predictors are a `Cube`, which lists itself only when asked: 784 predictors have 80 million
terms of three.
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

NONE = np.empty(0, dtype=np.intp)
Rows = dict[int, np.ndarray]


class Cube(NamedTuple):
    """All terms of two to `order` of the predictors `columns`, which are in rising order."""

    columns: np.ndarray = NONE
    order: int = 1

    def count(self, order: int) -> int:
        """Return the number of its terms of this order."""
        return math.comb(len(self.columns), order) if 2 <= order <= self.order else 0

    @property
    def n_terms(self) -> int:
        """Number of terms of all orders."""
        return sum(self.count(k) for k in range(2, self.order + 1))

    def holds(self, rows: np.ndarray) -> np.ndarray:
        """Return which of some terms (T, k) are in it, shape (T,)."""
        return np.isin(rows, self.columns).all(axis=1) & (rows.shape[1] <= self.order)

    def listed(self, order: int) -> np.ndarray:
        """Return its terms of this order, shape (T, order), lexicographic."""
        n = len(self.columns)
        if not self.count(order):
            return np.empty((0, order), dtype=np.intp)
        rows = np.arange(n)[:, None]
        for _ in range(order - 1):  # every row goes on with each number after its last
            after = n - 1 - rows[:, -1]
            rows = np.repeat(rows, after, axis=0)
            step = np.arange(len(rows)) - np.repeat(np.cumsum(after) - after, after)
            rows = np.column_stack([rows, rows[:, -1] + 1 + step])
        return self.columns[rows]


@dataclass(frozen=True, eq=False)
class Interactions:
    """The terms of a model: a cube, `more` beside it, and `less` that it lacks; nothing is listed until asked.

    Attributes
    ----------
    cube : Cube
    more, less : mapping of int to ndarray of intp, shape (T, k)
        Terms by order, each in rising order and distinct; none of `more` and all of `less` are in the cube.

    Examples
    --------
    >>> terms = Interactions(Cube(np.arange(784), 3))
    >>> terms.count(2), terms.count(3), terms.n_couplings(np.full(784, 2))
    (306936, 80007984, 80314920)
    """

    cube: Cube
    more: Mapping[int, np.ndarray] = field(default_factory=dict)
    less: Mapping[int, np.ndarray] = field(default_factory=dict)

    def count(self, order: int) -> int:
        """Return the number of terms of this order."""
        return self.cube.count(order) + len(self.more.get(order, ())) - len(self.less.get(order, ()))

    @cached_property
    def order(self) -> int:
        """The highest order of a term; 1 if there are none."""
        top = max([self.cube.order, *self.more])
        return next((k for k in range(top, 1, -1) if self.count(k)), 1)

    def are_all_pairs(self, m: int) -> bool:
        """Return whether these are all pairs of `m` predictors, and nothing else."""
        return self.order <= 2 and self.count(2) == math.comb(m, 2)

    def n_couplings(self, n_levels: Sequence[int] | np.ndarray) -> int:
        """Return the number of couplings for predictors of these numbers of levels."""
        width = [int(L) - 1 for L in n_levels]
        products_of_widths = [1] + [0] * self.cube.order  # sums of products of k widths
        for i in self.cube.columns:
            for k in range(self.cube.order, 0, -1):
                products_of_widths[k] += products_of_widths[k - 1] * width[i]
        total = sum(products_of_widths[2:])
        for sign, terms in ((1, self.more), (-1, self.less)):
            total += sign * sum(math.prod(width[i] for i in row) for rows in terms.values() for row in rows.tolist())
        return total

    def first(self, order: int) -> tuple[int, ...] | None:
        """Return a term of this order or a higher one; None if there is none."""
        for k in range(order, self.order + 1):
            less = set(map(tuple, self.less[k].tolist())) if k in self.less else set()
            if self.cube.count(k) > len(less):
                return next(term for term in combinations(self.cube.columns.tolist(), k) if term not in less)
            if k in self.more:
                return tuple(self.more[k][0].tolist())
        return None

    def renumbered(self, number: np.ndarray) -> Interactions:
        """Return the terms with predictor i called ``number[i]``; the order of predictors must stay."""
        added, removed = ({k: number[rows] for k, rows in terms.items()} for terms in (self.more, self.less))
        return Interactions(Cube(number[self.cube.columns], self.cube.order), added, removed)

    @cached_property
    def _known(self) -> Rows:
        return {}

    def listed(self, order: int) -> np.ndarray:
        """Return the terms of this order, shape (T, order), each in rising order, lexicographic; read-only.

        Raises
        ------
        BBLError
            If there is no memory for them.
        """
        if order not in self._known:
            n = self.count(order)
            check_memory(24.0 * order * n, f"A list of {n} terms of order {order}", "Ask for fewer terms.")
            rows = self.cube.listed(order)
            if order in self.less:
                key, less = term_keys(rows, self.less[order])
                rows = rows[~np.isin(key, less)]
            if order in self.more:
                rows = np.concatenate([rows, self.more[order]])
                rows = rows[np.argsort(term_keys(rows)[0])]
            rows.setflags(write=False)
            self._known[order] = rows
        return self._known[order]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Terms of order 2, 3, ..., as a `Layout` has them; of order 2 there may be none."""
        return tuple(self.listed(k) for k in range(2, max(self.order, 2) + 1))


class _Step(NamedTuple):
    """Terms that are added or dropped together; only the first of a set's steps may lack terms of its cube."""

    sign: int
    singles: np.ndarray
    cube: Cube
    more: Rows
    less: Rows
    brought: np.ndarray = NONE  # predictors that stay from terms which are gone again


class TermSet:
    """A set of predictors and terms, kept as steps that add or drop; worked out when it is asked for.

    Keeping the steps makes long sums linear in their length.

    Parameters
    ----------
    width : int
        All predictors have numbers below it.
    spend : callable
        Told the number of terms that are made, before they are.
    singles : ndarray of int
        Predictors, in rising order.
    """

    def __init__(self, width: int, spend: Callable[[int], None], singles: np.ndarray = NONE):
        self.width, self.spend = width, spend
        self.steps = [_Step(1, singles, Cube(), {}, {})]
        spend(len(singles))

    def _with(self, step: _Step) -> TermSet:
        out = TermSet(self.width, self.spend, step.singles)
        out.steps = [step]
        self.spend(step.cube.count(2) + sum(map(len, step.more.values())))
        return out

    def add(self, other: TermSet, sign: int) -> TermSet:
        """Add (or drop) the terms of `other`, in place; with a predictor all its terms are dropped."""
        if sign > 0 and all(step.sign > 0 and not step.less for step in other.steps):
            self.steps.extend(other.steps)
            return self
        step = other.resolve()
        if sign < 0 and np.isin(step.cube.columns, step.singles).all():
            step = step._replace(cube=Cube(), less={})  # goes with its predictors
        if step.less or sign < 0:
            step = step._replace(cube=Cube(), more=self._listed(step), less={})
        self.steps.append(step._replace(sign=sign))
        return self

    def resolve(self) -> _Step:
        """Return the remaining terms as one step."""
        if len(self.steps) > 1:
            self.steps = [self._replay()]
        return self.steps[0]

    def predictors(self) -> np.ndarray:
        """Return all predictors that are left, those of terms and of terms that are gone again too."""
        step = self.resolve()
        return np.unique(
            np.concatenate([step.singles, step.brought, step.cube.columns, *map(np.ravel, step.more.values())])
        )

    def interactions(self) -> Interactions:
        """Return the terms that are left."""
        step = self.resolve()
        return Interactions(step.cube, step.more, step.less)

    def _replay(self) -> _Step:
        """Work the steps out: the last one that touches a term decides, unless a predictor of it is dropped later."""
        present, brought = np.zeros((2, self.width), dtype=bool)
        dropped = np.full(self.width, -1)
        touched: dict[int, list[tuple[int, bool, np.ndarray]]] = {}
        for when, step in zip(range(0, 2 * len(self.steps), 2), self.steps, strict=True):
            present[step.singles] = step.sign > 0
            if step.sign > 0:
                brought[step.brought] = brought[step.cube.columns] = True
            else:
                brought[step.singles] = False
                dropped[step.singles] = when
            for k, rows in step.more.items():
                brought[rows] |= step.sign > 0
                touched.setdefault(k, []).append((when, step.sign > 0, rows))
            for k, rows in step.less.items():
                touched.setdefault(k, []).append((when + 1, False, rows))
        best_step, cube = self._largest(dropped, touched)
        added: Rows = {}
        less: Rows = {}
        for k, touched_rows in touched.items():
            touched_rows.sort(key=lambda touch: -touch[0])
            rows = np.concatenate([rows for _, _, rows in touched_rows])
            length = [len(rows) for _, _, rows in touched_rows]
            _, last = np.unique(term_keys(rows)[0], return_index=True)
            rows = rows[last]
            time = np.repeat([when for when, _, _ in touched_rows], length)[last]
            alive = np.repeat([alive for _, alive, _ in touched_rows], length)[last]
            inside = cube.holds(rows)
            gone = inside & ~alive & (time > best_step)
            extra = ~inside & alive & (time[:, None] > dropped[rows]).all(axis=1)
            less |= {k: rows[gone]} if gone.any() else {}
            added |= {k: rows[extra]} if extra.any() else {}
        return _Step(1, np.flatnonzero(present), cube, added, less, np.flatnonzero(brought))

    def _largest(self, dropped: np.ndarray, touched: dict[int, list]) -> tuple[int, Cube]:
        """Return the largest remaining cube and the number of its step; list other cubes among the terms `touched`."""
        cubes = []
        for when, step in zip(range(0, 2 * len(self.steps), 2), self.steps, strict=True):
            columns = step.cube.columns[dropped[step.cube.columns] < when]
            if len(columns) > 1:
                cubes.append((when, Cube(columns, min(step.cube.order, len(columns)))))
        best_step, cube = max(cubes, key=lambda found: (found[1].n_terms, found[0]), default=(-1, Cube()))
        for when, other_cube in cubes:
            within = (
                when <= best_step and other_cube.order <= cube.order and np.isin(other_cube.columns, cube.columns).all()
            )
            if not within:
                self.spend(other_cube.n_terms)
                for k in range(2, other_cube.order + 1):
                    touched.setdefault(k, []).append((when, True, other_cube.listed(k)))
        return best_step, cube

    def _listed(self, step: _Step) -> Rows:
        """Return the terms of a step without a cube."""
        self.spend(step.cube.n_terms)
        terms = Interactions(step.cube, step.more, step.less)
        return {k: terms.listed(k) for k in range(2, terms.order + 1) if terms.count(k)}

    def product(self, other: TermSet) -> TermSet:
        """Return all terms made of one term of each: ``self:other``."""
        self.spend(300)
        a, b = self.resolve(), other.resolve()
        if _full(a) and _full(b):
            if np.array_equal(a.singles, b.singles):
                return self._cube(a.singles, _full(a) + _full(b))
            if len(a.singles) == len(b.singles) == 1:  # what long sums are made of
                pair = np.sort(np.concatenate([a.singles, b.singles]))[None]
                return self._with(_Step(1, NONE, Cube(), {2: pair}, {}))
        ours, theirs = ({1: step.singles[:, None]} | self._listed(step) for step in (a, b))
        products: dict[int, list[np.ndarray]] = {}
        for k, first in ours.items():
            for q, second in theirs.items():
                self.spend(len(first) * len(second) * max(1, (k + q) // 2))
                rows = np.column_stack([np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))])
                for product_rows in _distinct(rows, self.width):
                    products.setdefault(product_rows.shape[1], []).append(product_rows)
        terms = {k: _union(rows) for k, rows in products.items()}
        singles = terms.pop(1, NONE[:, None])[:, 0]
        return self._with(_Step(1, singles, Cube(), terms, {}))

    def power(self, exponent: int) -> TermSet:
        """Return the terms made of up to `exponent` terms."""
        base = self.resolve()
        if exponent == 1:
            return self
        if _full(base):
            result = self._cube(base.singles, _full(base) * exponent)
        else:
            result, alone = self, self._with(base)
            for _ in range(exponent - 1):
                before, result = _counts(result), result.product(alone)
                if _counts(result) == before:
                    break
        result.steps.append(_Step(1, NONE, Cube(), {}, {}, base.brought))
        return result

    def _cube(self, columns: np.ndarray, order: int) -> TermSet:
        """Return `columns` and all their terms of up to `order`."""
        self.spend(len(columns) ** 2 // 2)
        cube = Cube(columns, min(order, len(columns))) if len(columns) > 1 else Cube()
        return self._with(_Step(1, columns, cube, {}, {}))


def _full(step: _Step) -> int:
    """Return the order k if a step is all terms of up to k of its predictors, else 0."""
    if step.more or step.less:
        return 0
    return step.cube.order if step.cube.order == 1 or np.array_equal(step.cube.columns, step.singles) else 0


def _counts(terms: TermSet) -> dict[int, int]:
    listed = terms.interactions()
    return {1: len(terms.resolve().singles)} | {k: listed.count(k) for k in range(2, listed.order + 1)}


def term_keys(*arrays: np.ndarray) -> list[np.ndarray]:
    """Return numbers that order and tell apart the terms (T, k) of some arrays as their rows do."""
    rows = np.concatenate(arrays)
    base = int(rows.max(initial=0)) + 1
    key, bound = rows[:, 0], base
    for column in rows.T[1:]:
        if bound > 2**62 // base:  # go on from their ranks
            key = np.unique(key, return_inverse=True)[1].ravel()
            bound = len(key) + 1
        key, bound = key * base + column, bound * base
    return np.split(key, np.cumsum([len(array) for array in arrays])[:-1])


def _union(arrays: list[np.ndarray]) -> np.ndarray:
    """Return the distinct ones of some terms of one order, lexicographic."""
    rows = np.concatenate(arrays)
    return rows[np.unique(term_keys(rows)[0], return_index=True)[1]]


def _distinct(rows: np.ndarray, width: int) -> list[np.ndarray]:
    """Return products (T, k) as terms of the distinct predictors in them, one array for each order."""
    rows = np.sort(rows, axis=1)
    again = np.zeros(rows.shape, dtype=bool)
    again[:, 1:] = rows[:, 1:] == rows[:, :-1]
    order = rows.shape[1] - again.sum(axis=1)
    rows = np.sort(np.where(again, width, rows), axis=1)  # what came again goes to the end
    return [_union([rows[order == k, :k]]) for k in np.unique(order)]
