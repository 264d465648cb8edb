"""Sets of interaction terms of numbered predictors.

T terms of order k are stored as an array (T, k) of increasing predictor numbers. A *cube* is the
set of all terms of order 2 to k of some predictors; its terms are listed only when needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bbl.memory import check_memory

__all__ = ["Cube", "Interactions", "term_keys"]

NO_PREDICTORS = np.empty(0, dtype=np.intp)
TermsByOrder = dict[int, np.ndarray]  # maps order k to terms (T, k)


class Cube(NamedTuple):
    """All terms of order 2 to `order` of the predictors `columns` (increasing numbers).

    The terms are not listed until they are needed, because 784 predictors have 80 million terms of
    order 3.
    """

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
        # extend every term by each number that is larger than its last number
        for _ in range(order - 1):
            n_extensions = n - 1 - terms[:, -1]
            terms = np.repeat(terms, n_extensions, axis=0)
            # 0, 1, ... for the extensions of each term: position of the row minus position of the
            # term's first row
            extension = np.arange(len(terms)) - np.repeat(
                np.cumsum(n_extensions) - n_extensions, n_extensions
            )
            terms = np.column_stack([terms, terms[:, -1] + 1 + extension])
        return self.columns[terms]  # convert positions in `columns` to numbers of predictors


@dataclass(frozen=True, eq=False)
class Interactions:
    """The terms of a model: a cube, plus the terms `added` outside it, without the terms `removed`
    from it.

    Terms are not listed until they are needed.

    Examples
    --------
    >>> terms = Interactions(Cube(np.arange(784), 3))
    >>> terms.count(2), terms.count(3), terms.n_couplings(np.full(784, 2))
    (306936, 80007984, 80314920)
    """

    cube: Cube
    # maps order k to distinct terms (T, k)
    added: Mapping[int, np.ndarray] = field(default_factory=dict)
    # maps order k to the removed terms (T, k)
    removed: Mapping[int, np.ndarray] = field(default_factory=dict)

    def count(self, order: int) -> int:
        """Return the number of terms of one order."""
        return (
            self.cube.count(order)
            + len(self.added.get(order, ()))
            - len(self.removed.get(order, ()))
        )

    @cached_property
    def order(self) -> int:
        """The highest order of a term, or 1 if the set is empty."""
        bound = max([self.cube.order, *self.added])  # upper bound on the order
        return next((k for k in range(bound, 1, -1) if self.count(k)), 1)

    def are_all_pairs(self, m: int) -> bool:
        """Return whether the terms are exactly all pairs of `m` predictors."""
        return self.order <= 2 and self.count(2) == math.comb(m, 2)

    def n_couplings(self, n_levels: Sequence[int] | np.ndarray) -> int:
        """Return the number of couplings, which is the sum over terms of the product of (L_i - 1)
        over the predictors of a term.
        """
        # The sum over all terms of order k of a cube is the elementary symmetric polynomial e_k of
        # the numbers L_i - 1. Adding a column i changes e_k to e_k + e_(k-1) (L_i - 1).
        n_free_levels = [int(L) - 1 for L in n_levels]
        # polynomials[k]: e_k of the cube's columns so far
        polynomials = [1] + [0] * self.cube.order
        for i in self.cube.columns:
            # decreasing k, so that polynomials[k - 1] does not yet include column i
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
        """Return one term of the lowest order that is at least `order`, or None."""
        for k in range(order, self.order + 1):
            removed = set(map(tuple, self.removed[k].tolist())) if k in self.removed else set()
            if self.cube.count(k) > len(removed):  # a term of the cube remains
                return next(
                    term
                    for term in combinations(self.cube.columns.tolist(), k)
                    if term not in removed
                )
            if k in self.added:
                return tuple(self.added[k][0].tolist())
        return None

    def renumbered(self, number: np.ndarray) -> Interactions:
        """Return the same terms with predictor i renumbered as ``number[i]``, which must increase
        with i.
        """
        added, removed = (
            {k: number[terms] for k, terms in terms_by_order.items()}
            for terms_by_order in (self.added, self.removed)
        )
        return Interactions(Cube(number[self.cube.columns], self.cube.order), added, removed)

    @cached_property
    def _terms_by_order(self) -> TermsByOrder:
        """The terms listed by `list_terms` so far, by order."""
        return {}

    def list_terms(self, order: int) -> np.ndarray:
        """Return the terms of one order in lexicographic order, as a read-only array (T, order).

        Raise a BBLError if they do not fit into memory.
        """
        if order not in self._terms_by_order:
            n = self.count(order)
            # 8 bytes for each predictor of a term, three times: the list, and the copies that are
            # made while terms are added and sorted
            check_memory(
                24.0 * order * n, f"A list of {n} terms of order {order}", "Request fewer terms."
            )
            terms = self.cube.list_terms(order)
            if order in self.removed:
                keys, removed_keys = term_keys(terms, self.removed[order])
                terms = terms[~np.isin(keys, removed_keys)]
            if order in self.added:
                terms = np.concatenate([terms, self.added[order]])
                terms = terms[np.argsort(term_keys(terms)[0])]  # [0]: the keys of the only array
            terms.setflags(write=False)
            self._terms_by_order[order] = terms
        return self._terms_by_order[order]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The terms of order 2, 3, ..., with one array (T, k) for each order; order 2 is always
        included.
        """
        return tuple(self.list_terms(k) for k in range(2, max(self.order, 2) + 1))


def term_keys(*arrays: np.ndarray) -> list[np.ndarray]:
    """Return an integer key for each term of the arrays (T, k), shape (T,); keys have the same
    order as terms.

    The key of a term with predictors i_1 < i_2 < ... < i_k has these predictors as its digits:
    ``sum_j i_j base^(k - j)``. Keys that would overflow are replaced by ranks.
    """
    terms = np.concatenate(arrays)
    base = int(terms.max(initial=0)) + 1
    # the first digit
    keys = terms[:, 0]
    key_bound = base
    for column in terms.T[1:]:
        if key_bound > 2**62 // base:  # all keys are smaller than `key_bound`
            keys = np.unique(keys, return_inverse=True)[1].ravel()  # ranks
            key_bound = len(keys) + 1
        keys = keys * base + column
        key_bound = key_bound * base
    return np.split(keys, np.cumsum([len(array) for array in arrays])[:-1])
