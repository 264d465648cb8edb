"""Features of products of predictors in a multinomial logistic regression, with gradients.
*Features*, *link* and *slope* are defined in the glossary.

A term's *state* in a row is the number of the joint level of its predictors; joint levels with the
same features have the same state. T terms have D features in total, and q = K - 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import DTypeLike

from bbl._ext.sparse import sparse as _kernel
from bbl.rows.sample import code_dtype

__all__ = [
    "Levels",
    "Problem",
    "Products",
    "Term",
    "candidate_ratios",
    "contrasts",
    "feature_values",
    "simplex",
    "term_states",
]

Term = tuple[int, ...]
Levels = Sequence[int] | np.ndarray

MAX_STATES = 65536  # terms with more joint levels are not candidates
SIGNS = np.array([[-1.0], [1.0]])  # simplex of two levels
EMPTY_TERM = np.ones((1, 1))  # feature of the empty term
KEPT_STATES = 64  # features of terms with at most this many states are cached
TRANSPOSED_ROWS = 512  # number of rows that are transposed at a time and fit into the cache
# maximum number of values in a block of features, or of slopes times parents' features
BLOCK_SIZE = 2**21


def simplex(levels: int) -> np.ndarray:
    """Return the corners of a simplex as the rows of an array (L, L - 1).

    The columns are orthogonal, with mean 0 and mean square 1.
    """
    out = np.zeros((levels, levels - 1))
    for k in range(1, levels):
        scale = math.sqrt(levels / (k * (k + 1)))
        out[:k, k - 1], out[k, k - 1] = -scale, k * scale
    return out


def contrasts(K: int) -> np.ndarray:
    """Return the matrix that maps links to class scores, shape (K, K - 1).

    The columns are orthogonal, with sum 0 and squared norm 1/2. For K = 2, the link is the log
    odds.
    """
    return simplex(K) / math.sqrt(2 * K)


@dataclass(frozen=True, eq=False)
class Problem:
    """A regression of the class on predictors, with identical rows merged into weighted rows."""

    # (m, n), C-contiguous: level codes as uint8, uint16 or int32, with one row for each predictor;
    # float64 if some predictors are numeric, see `feature_values`
    codes: np.ndarray
    n_levels: tuple[int, ...]  # (m,)
    y: np.ndarray  # (n,) of intp: classes 0..K-1
    K: int
    weights: np.ndarray  # (n,) of float64

    @classmethod
    def make(
        cls, codes: np.ndarray, n_levels: Levels, y: np.ndarray, K: int, weights: np.ndarray
    ) -> Problem:
        """Return the problem for `codes` (n, m), with equal rows merged and sorted.

        Results with repeated rows and with weights are therefore bitwise identical, for any order
        of rows.
        """
        levels = tuple(int(L) for L in n_levels)
        has_numbers = np.asarray(codes).dtype.kind == "f"
        dtype = np.dtype(np.float64) if has_numbers else code_dtype(levels)
        codes = np.asarray(codes, dtype=dtype)
        if has_numbers:
            codes = codes + 0.0  # -0.0 is replaced by 0.0, so that equal rows have equal bytes
        # keys that are equal for equal rows: the codes or, if all predictors have two levels, bits,
        # with eight predictors in each byte. The last key is y. The type also fits the codes, so
        # that keys and y form one array
        is_binary = max(levels, default=2) == 2 and not has_numbers
        keys = np.packbits(codes.astype(np.uint8, copy=False), axis=1) if is_binary else codes
        y_dtype = dtype if has_numbers else code_dtype((K, *levels))
        first_rows, merged_weights = _merge_equal_rows(
            np.column_stack([keys, np.asarray(y, dtype=y_dtype)]),
            np.asarray(weights, dtype=float),
        )
        # transpose by blocks of rows
        distinct_codes = np.empty((len(levels), len(first_rows)), dtype=codes.dtype)
        for first in range(0, len(first_rows), TRANSPOSED_ROWS):
            row_block = slice(first, first + TRANSPOSED_ROWS)
            distinct_codes[:, row_block] = codes[first_rows[row_block]].T
        return cls(
            distinct_codes, levels, np.asarray(y, dtype=np.intp)[first_rows], int(K), merged_weights
        )

    def weighted(self, weights: np.ndarray) -> Problem:
        """Return the problem with different weights (n,), without rows of weight 0."""
        rows = np.flatnonzero(weights > 0)
        codes = np.ascontiguousarray(self.codes[:, rows])
        return Problem(
            codes, self.n_levels, self.y[rows], self.K, np.ascontiguousarray(weights[rows])
        )

    @property
    def has_numbers(self) -> bool:
        """Whether some predictors are numeric; codes are then floats."""
        return self.codes.dtype.kind == "f"

    @property
    def m(self) -> int:
        """Number of predictors."""
        return len(self.n_levels)

    @property
    def n(self) -> int:
        """Number of distinct rows."""
        return len(self.y)

    @cached_property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    def size(self, term: Term) -> int:
        """Return the number d of a term's features."""
        return math.prod(self.n_levels[i] - 1 for i in term)


def _merge_equal_rows(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of one row from each set of equal rows, and the total weight of each set.

    Positions are in sorted order. `rows` (n, width) are compared by their bytes; `weights` (n,)
    contains their weights.
    """
    if not rows.size:  # there is nothing to merge
        return np.arange(len(rows)), weights
    contiguous = np.ascontiguousarray(rows)
    # view each row as one item of many bytes, so that rows are sorted and compared as a whole
    row_keys = contiguous.view(np.dtype((np.void, contiguous.itemsize * contiguous.shape[1])))[:, 0]
    order = np.argsort(row_keys, kind="stable")
    sorted_keys = row_keys[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = sorted_keys[1:] != sorted_keys[:-1]
    return order[is_first], np.add.reduceat(weights[order], np.flatnonzero(is_first))


def feature_values(codes: np.ndarray, n_levels: Levels, is_number: np.ndarray) -> np.ndarray:
    """Return the codes in the form that this module requires, shape (n, m).

    `is_number` (m,) marks numeric predictors. Without numeric predictors, the codes are returned
    unchanged. Otherwise, the codes 0 and 1 of two-level categories are replaced by -1 and 1.
    """
    if not is_number.any():
        return codes
    values = np.array(codes, dtype=np.float64)
    binary = np.flatnonzero((np.asarray(n_levels) == 2) & ~is_number)
    values[:, binary] = 2.0 * values[:, binary] - 1.0
    return values


def term_states(codes: np.ndarray, n_levels: Levels, term: Term) -> tuple[np.ndarray, np.ndarray]:
    """Return the state of a term in each row (n,), and the features of the term in each state (S,
    d).

    `codes` has shape (m, n). All two-level predictors together have two states, given by the sign
    of their product: 1 if it is positive, and 0 otherwise. The joint levels of the other predictors
    are numbered; the level of the last predictor varies fastest. A term with predictors of both
    kinds has state 2 * number + sign. If codes are floats, the distinct values of the product of
    two-level predictors are numbered instead of the signs.
    """
    if codes.dtype.kind == "f":
        return _value_states(codes, n_levels, term)
    binary = [i for i in term if n_levels[i] == 2]
    multilevel = [i for i in term if n_levels[i] > 2]
    # (n,): 1 where the product of the contrasts -1 or 1 is positive, which means that an even
    # number of codes is 0. Start as if all codes were 0, and flip the sign for each code of 1.
    # Empty without binary predictors
    sign: np.ndarray = np.full(
        codes.shape[1] if binary else 0, (len(binary) + 1) % 2, dtype=np.uint8
    )
    for i in binary:
        sign ^= codes[i].astype(np.uint8, copy=False)
    if not multilevel:  # the most frequent kind of term
        return (sign, SIGNS) if binary else (np.zeros(codes.shape[1], dtype=np.uint8), EMPTY_TERM)
    levels = [int(n_levels[i]) for i in multilevel]
    state = codes[multilevel[0]].astype(code_dtype(math.prod(levels) * (2 if binary else 1)))
    for i, L in zip(multilevel[1:], levels[1:], strict=True):
        state = state * L + codes[i]
    state_levels = (*levels, 2) if binary else tuple(levels)
    table = (
        _kept_features(state_levels)
        if math.prod(state_levels) <= KEPT_STATES
        else _features_of_states(state_levels)
    )
    return (state * 2 + sign, table) if binary else (state, table)


def _value_states(codes: np.ndarray, n_levels: Levels, term: Term) -> tuple[np.ndarray, np.ndarray]:
    """Return the states and features of a term with float codes, in the same form as
    `term_states`.
    """
    value = np.ones(codes.shape[1])
    for i in term:
        if n_levels[i] == 2:
            value = value * codes[i]
    distinct, value_state = np.unique(value, return_inverse=True)
    state = np.zeros(codes.shape[1], dtype=np.intp)
    multilevel = [i for i in term if n_levels[i] > 2]
    for i in multilevel:
        state = state * n_levels[i] + codes[i].astype(np.intp)
    # all combinations are included, because kernels assume that features are orthogonal over states
    table = np.kron(
        _features_of_states(tuple(int(n_levels[i]) for i in multilevel)), distinct[:, None]
    )
    state = state * len(distinct) + value_state
    return state.astype(code_dtype(len(table))), table


def _features_of_states(levels: tuple[int, ...]) -> np.ndarray:
    """Return the features (S, d) of the states of a term: Kronecker products of contrasts."""
    table: np.ndarray = EMPTY_TERM.copy()  # made read-only below
    for L in levels:
        table = np.kron(table, simplex(L))
    table.flags.writeable = False  # read-only because it is used for several terms
    return table


_kept_features = lru_cache(maxsize=1024)(_features_of_states)


class Products:
    """The terms of a problem in the form that the kernels require.

    The terms are represented by states (T, n) and tables, without a full feature matrix.

    Parameters
    ----------
    codes : ndarray of int, shape (m, n)
        Level codes of the rows; stored as `source`.
    n_levels : sequence of m ints
    terms : sequence of T tuples

    Attributes
    ----------
    terms : list of T tuples
    codes : ndarray of int, shape (T, n)
        State of each term in each row.
    tables : list of T ndarrays, shapes (S, d)
        Features of each term in each state.
    sizes : ndarray of intp, shape (T,)
        Number d of features of each term.
    starts : ndarray of intp, shape (T + 1,)
        First feature of each term; the last entry is D.
    layout : tuple of ndarrays
        The tables in the format of the kernels: the numbers of states (T,), all tables
        concatenated, the first entry of each table (T + 1,), and `starts`.
    """

    def __init__(self, codes: np.ndarray, n_levels: Levels, terms: Sequence[Term]):
        self.source = codes
        self.n_levels = n_levels
        self.terms: list[Term] = []
        self.codes = np.empty((0, codes.shape[1]), dtype=np.uint8)
        self.tables: list[np.ndarray] = []
        self.extend(terms)

    def extend(self, terms: Sequence[Term]) -> None:
        """Append terms."""
        new_states = [term_states(self.source, self.n_levels, term) for term in terms]
        tables = self.tables + [table for _, table in new_states]
        codes = np.empty(
            (len(tables), self.source.shape[1]), dtype=code_dtype([len(t) for t in tables])
        )
        codes[: len(self.codes)] = self.codes  # states of earlier terms, possibly in a wider type
        for t, (state, _) in enumerate(new_states):
            codes[len(self.codes) + t] = state
        self.terms.extend(terms)
        self._set(codes, tables)

    def keep(self, which: np.ndarray) -> None:
        """Keep only the terms at the positions `which`."""
        self.terms = [self.terms[t] for t in which]
        self._set(np.ascontiguousarray(self.codes[which]), [self.tables[t] for t in which])

    def _set(self, states: np.ndarray, tables: list[np.ndarray]) -> None:
        """Set the states (T, n) and the tables, and the attributes derived from them."""
        self.codes = states
        self.tables = tables
        n_states = np.array([len(table) for table in tables], dtype=np.intp)
        self.sizes = np.array([table.shape[1] for table in tables], dtype=np.intp)
        self.starts = _offsets(self.sizes)
        table_starts = _offsets(n_states * self.sizes)
        joined = np.concatenate([table.ravel() for table in tables]) if tables else np.empty(0)
        self.layout = (n_states, joined, table_starts, self.starts)

    def link(self, theta: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """Return the link (q, n) for weights `theta` (D, q) and `intercept` (q,)."""
        out = np.repeat(intercept[:, None], self.codes.shape[1], axis=1)
        _kernel.add_terms(self.codes, *self.layout, np.ascontiguousarray(theta), out)
        return out

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """Return the gradient (D, q) of the loss with respect to the weights, given a slope
        (q, n).
        """
        out = np.empty((int(self.starts[-1]), len(slope)))
        _kernel.gradients(self.codes, *self.layout, slope, out)
        return out

    def features(
        self, rows: slice = slice(None), which: np.ndarray | None = None, dtype: DTypeLike = float
    ) -> np.ndarray:
        """Return the features (D + 1, n) of the terms at `which` (default: all), and a row of ones.

        The slice `rows` selects the columns.
        """
        which = np.arange(len(self.terms)) if which is None else which
        codes = self.codes[which, rows]
        start = _offsets(self.sizes[which])
        out = np.ones((int(start[-1]) + 1, codes.shape[1]), dtype=dtype)
        # the states 0 and 1 are replaced by the features -1 and 1
        if len(which) and all(self.tables[t] is SIGNS for t in which):
            np.multiply(codes, 2, out=out[:-1], casting="unsafe")
            out[:-1] -= 1
            return out
        for k, t in enumerate(which):
            out[start[k] : start[k + 1]] = self.tables[t].T[:, codes[k]]
        return out

    def hessian(
        self,
        link: np.ndarray,
        weights: np.ndarray,
        curve: np.ndarray,
        which: np.ndarray | None = None,
        dtype: DTypeLike = float,
    ) -> np.ndarray:
        """Return the Hessian ((D + 1) q, (D + 1) q) of the loss at a link (q, n).

        The q weights of a feature are adjacent, and the intercept comes last. For two classes,
        `curve` (n,) is the second derivative of the loss with respect to the link; for more
        classes, it is computed from the link and the row `weights` (n,). `which` selects terms
        (default: all); features are multiplied in the precision of `dtype`.
        """
        from scipy.special import softmax

        which = np.arange(len(self.terms)) if which is None else which
        q, n = link.shape
        n_features = int(self.sizes[which].sum()) + 1  # including the constant
        out = np.zeros((n_features, q, n_features, q))
        # a block contains features, and scores of q + 1 classes
        block_rows = max(1, BLOCK_SIZE // max(n_features, q + 1))
        for first in range(0, n, block_rows):
            rows = slice(first, first + block_rows)
            feature_block = self.features(rows, which, dtype)
            if q == 1:
                feature_block *= np.sqrt(curve[rows]).astype(dtype)
                # a matrix times its own transpose takes half of the work
                out[:, 0, :, 0] += feature_block @ feature_block.T
                continue
            to_scores = contrasts(q + 1)  # (K, q)
            p = softmax(to_scores @ link[:, rows], axis=0)
            mean = to_scores.T @ p
            for a in range(q):
                for b in range(a + 1):
                    # second derivative of the loss with respect to links a and b: covariance of the
                    # contrasts under p
                    curvature = (
                        (to_scores[:, a] * to_scores[:, b]) @ p - mean[a] * mean[b]
                    ) * weights[rows]
                    block = (feature_block * curvature.astype(dtype)) @ feature_block.T
                    out[:, a, :, b] += block
                    if a != b:
                        out[:, b, :, a] += block
        return out.reshape(n_features * q, n_features * q)


def _offsets(sizes: np.ndarray) -> np.ndarray:
    """Return the position (T + 1,) at which each of T parts of these sizes starts, and the total
    size.
    """
    out = np.zeros(len(sizes) + 1, dtype=np.intp)
    np.cumsum(sizes, out=out[1:])
    return out


def candidate_ratios(
    problem: Problem, slope: np.ndarray, parents: Sequence[Term], group: bool, single: bool = False
) -> Iterator[tuple[Sequence[Term], np.ndarray]]:
    """Yield the ratios (m, parents) of gradient norm to penalty at lambda = 1, one block of parents
    at a time.

    A candidate is the product of a parent term and one more predictor. For the `group` penalty, the
    ratio is the norm of the gradient (d, q) divided by sqrt(d); otherwise, it is the largest norm
    of a feature's gradient (q,). The ratio is 0 if the parent contains the predictor, or if the
    product has too many states. The features of candidates are never stored. Instead, blocks of the
    predictors' features are multiplied by blocks of the slopes times the parents' features, in
    `single` or double precision.
    """
    q, n = slope.shape
    dtype = np.float32 if single else np.float64
    # as floats, because their products do not overflow
    levels = np.array(problem.n_levels, dtype=float)
    # single predictors with two levels each (products of the empty term): the same ratios can be
    # computed faster without features
    if parents == [()] and set(problem.n_levels) == {2} and not problem.has_numbers:
        yield parents, _binary_ratios(problem, slope)
        return
    max_features = max(1, BLOCK_SIZE // max(1, n * q))
    for parent_block in _runs(parents, [problem.size(parent) for parent in parents], max_features):
        parent_products = Products(problem.codes, problem.n_levels, parent_block)
        # slopes times parents' features, except for the last row, which contains ones
        slope_products = np.empty((int(parent_products.starts[-1]), q, n), dtype=dtype)
        np.multiply(
            parent_products.features()[:-1, None, :],
            slope[None],
            out=slope_products,
            casting="same_kind",
        )
        ratios = np.zeros((problem.m, len(parent_block)))
        # sums: gradients for all products, shape (predictors' features, parents' features times q)
        for predictors in _runs(
            range(problem.m), [L - 1 for L in problem.n_levels], max(1, BLOCK_SIZE // max(1, n))
        ):
            sums = _predictor_features(problem, predictors, dtype) @ slope_products.reshape(-1, n).T
            sizes = [problem.n_levels[i] - 1 for i in predictors]
            ratios[predictors[0] : predictors[-1] + 1] = _reduce_to_ratios(
                sums, sizes, parent_products.sizes, q, group
            )
        for column, parent in enumerate(parent_block):
            ratios[list(parent), column] = 0.0  # a parent is not multiplied by its own predictors
            n_states = levels[list(parent)].prod()
            # whether the product with any predictor has too many states; `initial` is needed for
            # problems without predictors
            if levels.max(initial=1) * n_states > MAX_STATES:
                ratios[levels * n_states > MAX_STATES, column] = 0.0
        yield parent_block, ratios


def _binary_ratios(problem: Problem, slope: np.ndarray) -> np.ndarray:
    """Return the ratios (m, 1) of `candidate_ratios` for single two-level predictors, which are the
    norms of their gradients.
    """
    m = problem.m
    starts = np.arange(m + 1, dtype=np.intp)
    gradient = np.empty((m, len(slope)))
    # as in `Products.layout`: numbers of states, concatenated tables, and positions of tables and
    # features
    layout = np.full(m, 2, dtype=np.intp), np.tile(SIGNS[:, 0], m), 2 * starts, starts
    _kernel.gradients(problem.codes, *layout, slope, gradient)
    return np.sqrt((gradient * gradient).sum(axis=1, keepdims=True))


def _predictor_features(problem: Problem, which: list[int], dtype: DTypeLike) -> np.ndarray:
    """Return the features (sum of L - 1, n) of single predictors, whose numbers `which` are
    consecutive.
    """
    predictor_codes = problem.codes[which[0] : which[-1] + 1]
    if problem.has_numbers:
        values = [
            row[None]
            if problem.n_levels[i] == 2
            else simplex(problem.n_levels[i]).T[:, row.astype(np.intp) * (problem.n_levels[i] > 2)]
            for i, row in zip(which, predictor_codes, strict=True)
        ]
        return np.concatenate(values).astype(dtype)
    if all(problem.n_levels[i] == 2 for i in which):
        out = np.multiply(predictor_codes, 2, dtype=dtype)
        out -= 1  # the codes 0 and 1 are replaced by the contrasts -1 and 1
        return out
    tables = [simplex(problem.n_levels[i]).astype(dtype) for i in which]
    return np.concatenate(
        [table.T[:, codes] for table, codes in zip(tables, predictor_codes, strict=True)]
    )


def _runs(items: Sequence, sizes: Sequence[int], max_size: int) -> Iterator[list]:
    """Yield runs of consecutive items with a total size of at most `max_size`; a larger item is a
    run by itself.

    `sizes` contains the size of each item.
    """
    run: list = []
    run_size = 0
    for item, size in zip(items, sizes, strict=True):
        if run and run_size + size > max_size:
            yield run
            run = []
            run_size = 0
        run.append(item)
        run_size += size
    if run:
        yield run


def _reduce_to_ratios(
    sums: np.ndarray, row_sizes: list[int], col_sizes: np.ndarray, q: int, group: bool
) -> np.ndarray:
    """Return the ratios (predictors, parents) of `candidate_ratios`.

    `sums` (features of all predictors, features of all parents times q) contains the gradients of
    the products' features, where the q numbers of a parent's feature are adjacent. `row_sizes` and
    `col_sizes` are the numbers of features of each predictor and of each parent. Features are
    combined into predictors and parents by the mean square for the `group` penalty, and by the
    maximum otherwise.
    """
    square = sums * sums
    square = square.reshape(len(sums), -1, q).sum(axis=2) if q > 1 else square
    for axis, sizes in ((0, np.asarray(row_sizes)), (1, col_sizes)):
        if len(sizes) == square.shape[axis] and (sizes == 1).all():  # there is nothing to reduce
            continue
        # predictors with a single level have no features and a norm of 0
        nonempty = np.flatnonzero(sizes)
        start = (np.cumsum(sizes) - sizes)[nonempty]  # first feature of each predictor or parent
        reduced = (
            np.add.reduceat(square, start, axis=axis)
            if group
            else np.maximum.reduceat(square, start, axis=axis)
        )
        square = np.zeros(
            (len(sizes), square.shape[1]) if axis == 0 else (square.shape[0], len(sizes))
        )
        if axis == 0:
            square[nonempty] = reduced / sizes[nonempty, None] if group else reduced
        else:
            square[:, nonempty] = reduced / sizes[nonempty] if group else reduced
    return np.sqrt(square)
