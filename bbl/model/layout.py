"""Layout: the positions of fields and couplings in a group's flat parameter vector."""

from __future__ import annotations

import copy
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bbl.memory import check_memory
from bbl.model.support import Support

__all__ = ["NO_PAIRS", "Layout", "LevelBlocks", "term_columns"]


NO_PAIRS = np.empty((0, 2), dtype=np.intp)  # terms of a layout without interactions
NO_PAIRS.setflags(write=False)


class LevelBlocks(NamedTuple):
    """The columns of the non-reference levels of each predictor that has any.

    Attributes
    ----------
    start, width : ndarray
        First column and number of columns of each predictor.
    common_width : int
        The width if it is the same for all predictors, otherwise 0.
    """

    start: np.ndarray
    width: np.ndarray
    common_width: int


class Layout:
    """Positions of the parameters of one group in a flat float64 vector.

    The vector contains the fields ``h_i(x)``, ``x = 1..L_i-1``, predictor by predictor, then the
    tables ``J_ij(x, x')`` pair by pair (``i < j``, lexicographic), then the tables of terms with
    three predictors, and so on. Each table is stored in C order. Parameters that involve a
    reference level are zero and are not stored (Woo & Wang, section 2.1).

    Parameters
    ----------
    n_levels : array_like of int, shape (m,)
        Number of levels ``L_i`` of each predictor; a predictor with a single level has no
        parameters.
    terms : sequence of tuples of int, or arrays of shape (T, k), optional
        Sets of two or more interacting predictors, in any order; None for all pairs.
    support : Support, optional
        The possible combinations of levels, if there are structural zeros.
    n_ordered : array_like of int, shape (m,), optional
        Number of ordered levels of each predictor, counted from the first level; 0 (default) for
        nominal predictors. Positions do not depend on this argument.
    scores : sequence of m items, optional
        Level scores of predictors with couplings that are linear in a score. For each predictor,
        None (nominal) or an array (L_i - 1,) with the scores of the non-reference levels relative
        to the reference level, in (0, 1]; nan for levels with separate couplings. Positions do not
        depend on the scores: see `bbl.model.scores`.
    numbers : ndarray, shape (m, 2), optional
        Mean and standard deviation of each numeric regressor, and nan for other predictors; None if
        the model has no numeric regressors. A numeric regressor is treated as a predictor with two
        levels: its parameters are slopes, and its value replaces the indicator of level 1.

    Attributes
    ----------
    m : int
        Number of predictors.
    n_levels, n_ordered : ndarrays of int, shape (m,)
    complete : bool
        Whether the terms are all pairs. If so, they are only listed when they are accessed, because
        5,000 predictors have 12 million pairs.
    terms : tuple of ndarrays of intp, shapes (T_k, k)
        Terms of order k = 2, 3, ..., each with ``i < j < ...``, in lexicographic order; the array
        of order 2 may be empty.
    start : ndarray of intp, shape (m + 1,)
        First column of the non-reference levels of each predictor among the ``D`` columns.
    D : int
        Number of non-reference levels, ``sum(L_i - 1)``; also the number of fields.
    support : Support or None
        The argument `support`. Its `scope` contains the predictors with structural zeros, and its
        `factor` a table of 0 and -inf for their levels.
    scores : tuple or None
        The argument `scores`; None if all predictors are nominal.
    numbers : ndarray or None
        The argument `numbers`.
    size : int
        Length of the parameter vector. This is the number of free parameters of a group (eq. 7,
        restricted to `terms`), except with `scores`, where several parameters may be multiples of
        one free parameter.

    Examples
    --------
    >>> layout = Layout([2, 3, 2], [(0, 1), (0, 1, 2)])
    >>> theta = np.arange(float(layout.size))
    >>> layout.table(theta, 1)
    array([1., 2.])
    >>> layout.table(theta, 0, 1)
    array([[4., 5.]])
    >>> layout.table(theta, 0, 1, 2).shape
    (1, 2, 1)
    """

    support: Support | None

    def __init__(
        self, n_levels, terms=None, support=None, n_ordered=None, scores=None, numbers=None
    ):
        self.support = support
        self.numbers = numbers
        self.scores = None if scores is None else tuple(scores)
        self.n_levels = np.ascontiguousarray(n_levels, dtype=np.int32)
        self.m = len(self.n_levels)
        self.n_ordered = (
            np.zeros(self.m, dtype=np.int32) if n_ordered is None else np.asarray(n_ordered)
        )
        width = self.n_levels.astype(np.intp) - 1  # number D_i of non-reference levels
        self.start = np.zeros(self.m + 1, dtype=np.intp)
        np.cumsum(width, out=self.start[1:])
        self.D = int(self.start[-1])
        self.complete = terms is None
        if terms is not None:
            self.terms = _group_by_order(terms, self.m, self.is_number)
            # the terms are all pairs if the number of distinct pairs is the maximum for m
            # predictors, and all their positions are below m
            has_all_pairs = (
                len(self.terms) == 1 and len(self.terms[0]) == self.m * (self.m - 1) // 2
            )
            # `initial=0` and the bound of at least 1 cover m < 2, where a layout without pairs is
            # complete
            self.complete = has_all_pairs and int(self.terms[0].max(initial=0)) < max(self.m, 1)
            # squares are not pairs of different predictors
            self.complete &= not (self.terms[0][:, 0] == self.terms[0][:, 1]).any()
        # all pairs have (D^2 - sum of D_i^2) / 2 couplings; otherwise the vector ends with the last
        # table
        self.size = (
            (self.D * (self.D + 2) - int(width @ width)) // 2
            if self.complete
            else int(self.term_start[-1][-1])
        )
        self.n_levels.setflags(write=False)
        self.start.setflags(write=False)

    def __repr__(self) -> str:
        higher_terms = () if self.complete else self.terms[1:]
        higher_counts = "".join(
            f", order {k}={len(terms)}" for k, terms in enumerate(higher_terms, 3)
        )
        return (
            f"Layout(m={self.m}, pairs={self.count(2)}{higher_counts}, D={self.D}, "
            f"size={self.size})"
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Layout)  # `n_ordered` may differ, as positions do not depend on it
            and np.array_equal(self.n_levels, other.n_levels)
            and self.support == other.support
            and self.complete == other.complete  # avoids listing all pairs
            and (self.complete or len(self.terms) == len(other.terms))
            and (self.complete or all(map(np.array_equal, self.terms, other.terms)))
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def terms(self) -> tuple[np.ndarray, ...]:
        """All pairs, listed on first access; other terms are set in `__init__`."""
        # bytes: 16 per pair in each of `nonzero`, `argwhere` and the contiguous copy
        check_memory(
            48.0 * self.count(2), f"A list of {self.count(2)} pairs", "Use fewer predictors."
        )
        predictors = np.arange(self.m)
        pairs = np.ascontiguousarray(np.argwhere(predictors[:, None] < predictors))
        pairs.setflags(write=False)
        return (pairs,)

    @cached_property
    def term_start(self) -> tuple[np.ndarray, ...]:
        """Starts of the tables of each order in the parameter vector, and the end of the last."""
        n_nonreference = self.n_levels.astype(np.intp) - 1
        position = self.D
        starts = []
        for terms in self.terms:
            start = np.zeros(len(terms) + 1, dtype=np.intp)
            # along the first axis, which is ten times as fast
            np.cumsum(n_nonreference[terms.T].prod(axis=0), out=start[1:])
            start += position
            start.setflags(write=False)
            starts.append(start)
            position = int(start[-1])
        return tuple(starts)

    def count(self, order: int) -> int:
        """Return the number of terms of an order without listing them."""
        if self.complete:
            return self.m * (self.m - 1) // 2 if order == 2 else 0
        return len(self.terms[order - 2]) if 2 <= order <= len(self.terms) + 1 else 0

    @property
    def is_number(self) -> np.ndarray:
        """Mask of the predictors that are numeric regressors, shape (m,)."""
        if self.numbers is None:
            return np.zeros(self.m, dtype=bool)
        return np.asarray(self.numbers[:, 1] > 0.0)

    @property
    def n_terms(self) -> int:
        """Number of terms of all orders."""
        return self.count(2) if self.complete else sum(map(len, self.terms))

    @property
    def pairs(self) -> np.ndarray:
        """Interacting pairs, shape (P, 2): the terms of order 2."""
        return self.terms[0]

    @property
    def pair_start(self) -> np.ndarray:
        """Start of each table of `pairs` in the parameter vector, shape (P + 1,)."""
        return self.term_start[0]

    @property
    def cuts(self) -> np.ndarray:
        """Start of each table in the parameter vector, followed by the vector's length."""
        return np.concatenate([self.start, *(start[1:] for start in self.term_start)])

    @property
    def scopes(self) -> list[tuple[int, ...]]:
        """Predictors of each table, in the order of `cuts`."""
        return [(i,) for i in range(self.m)] + [
            tuple(term) for terms in self.terms for term in terms.tolist()
        ]

    @cached_property
    def level_blocks(self) -> LevelBlocks:
        """The columns of each predictor with more than one level."""
        varies = self.n_levels > 1
        width = self.n_levels[varies] - 1
        is_common = len(width) > 0 and (width == width[0]).all()
        return LevelBlocks(self.start[:-1][varies], width, int(width[0]) if is_common else 0)

    @property
    def order(self) -> int:
        """Highest order of the terms, or 1 if there are none."""
        if self.complete:
            return 2 if self.m > 1 else 1
        return len(self.terms) + 1 if any(map(len, self.terms)) else 1

    @cached_property
    def mask(self) -> np.ndarray:
        """Whether two predictors share a term of any order, shape (m, m), like ``qJ`` in R."""
        mask = np.full((self.m, self.m), self.complete)
        np.fill_diagonal(mask, False)
        for terms in () if self.complete else self.terms:
            for a, b in combinations(range(terms.shape[1]), 2):
                mask[terms[:, a], terms[:, b]] = True
        mask |= mask.T
        np.fill_diagonal(mask, False)  # squares
        mask.setflags(write=False)
        return mask

    @property
    def joined(self) -> np.ndarray:
        """Whether two predictors share a term or structural zeros, shape (m, m)."""
        if self.support is None:
            return self.mask
        joined = self.mask.copy()
        joined[np.ix_(self.support.scope, self.support.scope)] = True
        np.fill_diagonal(joined, False)
        return joined

    @cached_property
    def connected(self) -> tuple[int, np.ndarray]:
        """Number of connected components of `joined`, and the component (m,) of each predictor."""
        from scipy.sparse.csgraph import connected_components

        return connected_components(self.joined, directed=False)

    def of_group(self, group: int) -> Layout:
        """Return the layout with the structural zeros of one group."""
        return self if self.support is None else self.with_support(self.support.of_group(group))

    @property
    def of_pooled(self) -> Layout:
        """The layout with only the structural zeros that all groups share."""
        return self if self.support is None else self.with_support(self.support.pooled)

    def with_support(self, support: Support) -> Layout:
        """Return a layout with the same terms and a different `support`."""
        layout = copy.copy(self)
        layout.support = support if support.n_zeros else None
        vars(layout).pop("connected", None)  # depends on the support
        return layout

    def with_terms(self, terms) -> Layout:
        """Return a layout with the same predictors and different terms, as passed to the class."""
        return Layout(self.n_levels, terms, self.support, self.n_ordered, self.scores, self.numbers)

    def beside(self, *predictors: int) -> np.ndarray:
        """Return the other members of all larger terms that contain `predictors`, sorted."""
        members = [np.empty(0, dtype=np.intp)]
        # higher orders only; `terms[0]` is of order 2
        for terms in self.terms[len(predictors) - 1 :]:
            members.append(terms[np.isin(terms, predictors).sum(axis=1) == len(predictors)].ravel())
        return np.setdiff1d(np.concatenate(members), predictors)

    def without_constants(self) -> Layout:
        """Return the layout without constant predictors; the parameter vector does not change."""
        return self.only(np.flatnonzero(self.n_levels > 1))

    def only(self, predictors: np.ndarray) -> Layout:
        """Return the layout of the given predictors (in increasing order) and their terms, without
        `support`.
        """
        n_ordered = self.n_ordered[predictors]
        scores = None if self.scores is None else [self.scores[i] for i in predictors]
        numbers = None if self.numbers is None else self.numbers[predictors]
        if self.complete:
            return Layout(
                self.n_levels[predictors], n_ordered=n_ordered, scores=scores, numbers=numbers
            )
        new_index = np.full(self.m, -1)
        new_index[predictors] = np.arange(len(predictors))
        # -1 for predictors that are left out
        renumbered_terms = [new_index[terms] for terms in self.terms]
        kept_terms = [terms[(terms >= 0).all(axis=1)] for terms in renumbered_terms]
        return Layout(self.n_levels[predictors], kept_terms, None, n_ordered, scores, numbers)

    def index(self, *predictors: int) -> int:
        """Return the row of a term in the `terms` of its order, or -1 if it does not exist."""
        order = len(predictors)
        if not self.count(order):
            return -1
        if order == 2:
            i, j = sorted(map(int, predictors))
            if self.complete:  # position in lexicographic order
                return i * (2 * self.m - i - 1) // 2 + j - i - 1 if 0 <= i < j < self.m else -1
            keys = self._pair_keys
            key = i * self.m + j
            row = int(np.searchsorted(keys, key))
            return row if row < len(keys) and keys[row] == key else -1
        return self._higher_rows.get(tuple(sorted(map(int, predictors))), -1)

    @cached_property
    def _pair_keys(self) -> np.ndarray:
        """Key ``i m + j`` of each pair, in increasing order."""
        return self.pairs[:, 0] * self.m + self.pairs[:, 1]

    @cached_property
    def _higher_rows(self) -> dict[tuple[int, ...], int]:
        """Row of each higher term (three or more predictors) in the `terms` of its order."""
        return {
            tuple(term): row for terms in self.terms[1:] for row, term in enumerate(terms.tolist())
        }

    def levels_of(self, is_selected: np.ndarray) -> set[tuple[int, int]]:
        """Return the levels, as (predictor, code), of the parameters in `is_selected` (size,)."""
        tables = [(scope, np.argwhere(self.table(is_selected, *scope))) for scope in self.scopes]
        # index 0 of a table's axis is level 1
        return {
            (i, int(a) + 1)
            for scope, cells in tables
            for cell in cells
            for i, a in zip(scope, cell, strict=True)
        }

    def predictors_of(self, is_selected: np.ndarray) -> np.ndarray:
        """Return a mask (m,) of the predictors with a parameter in `is_selected` (size,)."""
        # number of selected parameters before each position
        n_before = np.concatenate([[0], np.cumsum(is_selected)])
        has_selected = n_before[self.start[1:]] > n_before[self.start[:-1]]
        for terms, start in zip(self.terms, self.term_start, strict=True):
            has_selected[terms[n_before[start[1:]] > n_before[start[:-1]]]] = True
        return has_selected

    def table(self, theta: np.ndarray, *predictors: int) -> np.ndarray:
        """Return a view of the fields of one predictor in `theta`, or of the couplings of a term.

        `theta` has shape (..., size). Leading axes are kept. The axes of the table (L_i - 1, L_j -
        1, ...) are in the order of `predictors`. `theta` can be any array whose last axis has
        length `size`, such as gradients or standard errors.
        """
        if len(predictors) == 1:
            return theta[..., self.start[predictors[0]] : self.start[predictors[0] + 1]]
        row = self.index(*predictors)
        if row < 0:
            raise KeyError(predictors)
        start = self.term_start[len(predictors) - 2]  # for terms of this order
        stored_order = sorted(predictors)
        table = theta[..., start[row] : start[row + 1]]
        table = table.reshape(*theta.shape[:-1], *(self.n_levels[i] - 1 for i in stored_order))
        n_leading = theta.ndim - 1
        if stored_order == list(predictors):  # also for squares
            return table
        return table.transpose(
            *range(n_leading), *(n_leading + stored_order.index(i) for i in predictors)
        )

    def factors(self, theta: np.ndarray) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """Return a factor ``(predictors, table)`` for each table of `theta` (K, size).

        The result can be passed to `elimination.log_sum`. Each table (K, L_i, L_j, ...) includes
        the zeros of the reference levels. The last factor contains the structural zeros, if there
        are any.
        """
        # the scope and a table of 0 and -inf
        zeros = [] if self.support is None else [self.support.factor]
        return [
            (scope, _with_reference(self.table(theta, *scope), len(scope))) for scope in self.scopes
        ] + zeros

    def columns(self, predictors) -> np.ndarray:
        """Return the concatenated columns of the given predictors' non-reference levels."""
        ranges = [np.arange(self.start[i], self.start[i + 1]) for i in predictors]
        return np.concatenate([np.empty(0, dtype=np.intp), *ranges])


def term_columns(layout: Layout) -> np.ndarray:
    """Return the columns of the levels of each parameter, an int32 array (max(order, 2), size).

    Entry (k, t) is the column (0 to D - 1) of the level of the k-th predictor in the term of
    parameter t, or -1 if the term has fewer predictors.

    Examples
    --------
    >>> term_columns(Layout([2, 3])).tolist()
    [[0, 1, 2, 0, 0], [-1, -1, -1, 1, 2]]
    """
    out = np.full((max(layout.order, 2), layout.size), -1, dtype=np.int32)
    out[0, : layout.D] = np.arange(layout.D)
    n_nonreference = np.diff(layout.start)
    for terms, start in zip(layout.terms, layout.term_start, strict=True):
        sizes = np.diff(start)
        position = np.arange(start[-1] - start[0], dtype=np.int32)
        # flat position in the table of the term
        position -= np.repeat((start[:-1] - start[0]).astype(np.int32), sizes)
        # the digits of the position, starting with the last predictor's, are its levels, where 0 is
        # the first non-reference level
        for axis in range(terms.shape[1] - 1, -1, -1):
            predictors = terms[:, axis]
            axis_length = np.repeat(n_nonreference[predictors].astype(np.int32), sizes)
            out[axis, start[0] : start[-1]] = position % axis_length
            out[axis, start[0] : start[-1]] += np.repeat(
                layout.start[predictors].astype(np.int32), sizes
            )
            position //= axis_length
    return out


def _group_by_order(terms, m: int, is_number: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the distinct terms of order 2, 3, ... as arrays (T_k, k).

    Predictors are sorted within terms, and terms are sorted lexicographically. `terms` is an array
    (T, k) or a sequence of such arrays and tuples. m is the number of predictors.
    """
    # arrays of shape (T, k); tuples are grouped by length and converted to such arrays
    arrays: list[np.ndarray] = []
    tuples: dict[int, list] = {}
    for term in (terms,) if isinstance(terms, np.ndarray) else terms:
        if isinstance(term, np.ndarray) and term.ndim == 2:
            arrays.append(term)
        else:
            tuples.setdefault(len(term), []).append(term)
    arrays += [np.array(terms_of_order) for terms_of_order in tuples.values()]
    arrays_by_order: dict[int, list] = {2: [np.empty((0, 2), dtype=np.intp)]}
    for array in arrays:
        if array.size:
            arrays_by_order.setdefault(array.shape[1], []).append(array)
    if min(arrays_by_order) < 2:
        raise ValueError("a term must have at least two predictors")
    sorted_by_order = []
    for order in range(2, max(arrays_by_order) + 1):
        unsorted_terms = np.ascontiguousarray(
            np.concatenate(arrays_by_order.get(order, [np.empty((0, order))])), dtype=np.intp
        )
        sorted_terms = np.sort(unsorted_terms, axis=1)
        is_repeated = sorted_terms[:, 1:] == sorted_terms[:, :-1]
        if order == 2:  # squares of numbers
            is_repeated &= ~is_number[sorted_terms[:, :1]]
        if is_repeated.any():
            raise ValueError("a term contains a predictor twice")
        if order == 2:  # one key i m + j per pair: np.unique is much faster on numbers than on rows
            keys = sorted_terms[:, 0] * m + sorted_terms[:, 1]
            if (keys[1:] <= keys[:-1]).any():
                sorted_terms = np.column_stack(np.divmod(np.unique(keys), m))
        else:
            sorted_terms = np.unique(sorted_terms, axis=0)
        sorted_terms.setflags(write=False)
        sorted_by_order.append(sorted_terms)
    return tuple(sorted_by_order)


def _with_reference(table: np.ndarray, n_axes: int) -> np.ndarray:
    """Return `table` with zeros added for the reference levels on its last `n_axes` axes."""
    out = np.zeros((len(table), *(n + 1 for n in table.shape[1:])))  # much faster than np.pad
    out[(slice(None), *(slice(1, None),) * n_axes)] = table
    return out
