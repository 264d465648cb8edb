"""Features of products of predictors in a multinomial logistic regression, and gradients of all
candidate products.

*Term*: a tuple of numbers of predictors in rising order. *Features*: a predictor with L levels is
coded by L - 1 zero-sum contrasts, the corners of a simplex (-1 and +1 for two levels); a term has
the d products of its predictors' contrasts. *State* of a term in a row: a number for the joint
level of its predictors, as far as features differ. *Link*, shape (q, n): the q = K - 1 linear
predictors of each row, from which `contrasts` make the scores of K classes. *Slope*, shape (q, n):
derivative of the loss, the weighted sum of ``-ln p`` of the n rows' classes, by the link. T terms
have D features in all. There are m predictors.
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

MAX_STATES = 65536  # terms with more joint levels are no candidates
SIGNS = np.array([[-1.0], [1.0]])  # the simplex of two levels
EMPTY_TERM = np.ones((1, 1))  # the feature of a term without predictors
KEPT_STATES = 64  # features of terms with up to so many states are computed once
TRANSPOSED_ROWS = 512  # transposed at a time, which stay in the cache
BLOCK_SIZE = 2**21  # numbers in a block of features, or of slopes times features of parents


def simplex(levels: int) -> np.ndarray:
    """Return the corners of a simplex as rows, (L, L - 1): columns are orthogonal, of mean 0 and
    mean square 1.
    """
    out = np.zeros((levels, levels - 1))
    for k in range(1, levels):
        scale = math.sqrt(levels / (k * (k + 1)))
        out[:k, k - 1], out[k, k - 1] = -scale, k * scale
    return out


def contrasts(K: int) -> np.ndarray:
    """Return the matrix (K, K - 1) from links to scores of classes; for K = 2 the link is the log
    odds.

    Its columns are orthogonal, of sum 0 and squared norm 1/2.
    """
    return simplex(K) / math.sqrt(2 * K)


@dataclass(frozen=True, eq=False)
class Problem:
    """A regression of a class on predictors, with one weighted row for all equal rows."""

    # (m, n), C-contiguous: level codes as uint8, uint16 or int32, a row for each predictor; with
    # numbers float64, see `feature_values`
    codes: np.ndarray
    n_levels: tuple[int, ...]  # (m,)
    y: np.ndarray  # (n,) of intp: classes 0..K-1
    K: int
    weights: np.ndarray  # (n,) of float64

    @classmethod
    def make(
        cls, codes: np.ndarray, n_levels: Levels, y: np.ndarray, K: int, weights: np.ndarray
    ) -> Problem:
        """Return the problem of `codes` (n, m), with equal rows merged and sorted.

        Repeated rows and weights, in any order of the rows, thus give the same result to the last
        bit.
        """
        levels = tuple(int(L) for L in n_levels)
        has_numbers = np.asarray(codes).dtype.kind == "f"
        dtype = np.dtype(np.float64) if has_numbers else code_dtype(levels)
        codes = np.asarray(codes, dtype=dtype)
        if has_numbers:
            codes = codes + 0.0  # -0.0 becomes 0.0, so that equal rows have equal bytes
        # keys that are equal if the rows are: the codes or, with two levels each, bits, eight
        # predictors to a byte; then y, in a type that holds codes, too, so that keys and y are one
        # array
        is_binary = max(levels, default=2) == 2 and not has_numbers
        keys = np.packbits(codes.astype(np.uint8, copy=False), axis=1) if is_binary else codes
        y_dtype = dtype if has_numbers else code_dtype((K, *levels))
        first_rows, merged_weights = _merge_equal_rows(
            np.column_stack([keys, np.asarray(y, dtype=y_dtype)]),
            np.asarray(weights, dtype=float),
        )
        # transposed, by blocks of rows
        distinct_codes = np.empty((len(levels), len(first_rows)), dtype=codes.dtype)
        for first in range(0, len(first_rows), TRANSPOSED_ROWS):
            row_block = slice(first, first + TRANSPOSED_ROWS)
            distinct_codes[:, row_block] = codes[first_rows[row_block]].T
        return cls(
            distinct_codes, levels, np.asarray(y, dtype=np.intp)[first_rows], int(K), merged_weights
        )

    def weighted(self, weights: np.ndarray) -> Problem:
        """Return the problem with other weights (n,), without the rows of weight 0."""
        rows = np.flatnonzero(weights > 0)
        codes = np.ascontiguousarray(self.codes[:, rows])
        return Problem(
            codes, self.n_levels, self.y[rows], self.K, np.ascontiguousarray(weights[rows])
        )

    @property
    def has_numbers(self) -> bool:
        """Whether some predictors are numbers, so that codes are floats."""
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
        """Return the number d of features of a term."""
        return math.prod(self.n_levels[i] - 1 for i in term)


def _merge_equal_rows(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of one of each set of equal rows, in sorted order, and the summed weights of
    each set.

    `rows` (n, width) are compared by their bytes; `weights` (n,) are theirs.
    """
    if not rows.size:  # nothing to merge
        return np.arange(len(rows)), weights
    contiguous = np.ascontiguousarray(rows)
    # one number of many bytes for each row, so that rows are sorted and compared as a whole
    row_keys = contiguous.view(np.dtype((np.void, contiguous.itemsize * contiguous.shape[1])))[:, 0]
    order = np.argsort(row_keys, kind="stable")
    sorted_keys = row_keys[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = sorted_keys[1:] != sorted_keys[:-1]
    return order[is_first], np.add.reduceat(weights[order], np.flatnonzero(is_first))


def feature_values(codes: np.ndarray, n_levels: Levels, is_number: np.ndarray) -> np.ndarray:
    """Return codes (n, m) in the form that this module takes.

    `is_number` (m,) marks the predictors that are numbers. Without one, the codes are returned as
    they are. Otherwise codes 0 and 1 of the categories with two levels become -1 and 1.
    """
    if not is_number.any():
        return codes
    values = np.array(codes, dtype=np.float64)
    binary = np.flatnonzero((np.asarray(n_levels) == 2) & ~is_number)
    values[:, binary] = 2.0 * values[:, binary] - 1.0
    return values


def term_states(codes: np.ndarray, n_levels: Levels, term: Term) -> tuple[np.ndarray, np.ndarray]:
    """Return the state of a term in every row (n,), and its features in every state (S, d).

    `codes` is (m, n). All predictors with two levels together have two states, the sign of their
    product: 1 if it is positive, else 0. The joint levels of the other predictors are numbered, the
    last predictor running fastest. A term with predictors of both kinds has the state 2 number +
    sign. If codes are floats, the distinct values of the product of two-level predictors are
    numbered instead of the signs.
    """
    if codes.dtype.kind == "f":
        return _value_states(codes, n_levels, term)
    binary = [i for i in term if n_levels[i] == 2]
    multilevel = [i for i in term if n_levels[i] > 2]
    # (n,): 1 where the product of the contrasts, -1 or 1, is positive: where an even number of
    # codes is 0. Start as if all codes were 0, and flip for each code 1. Without binary predictors
    # it is not needed, and empty
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
    """Return the states and features of a term as `term_states` does, for codes that are floats."""
    value = np.ones(codes.shape[1])
    for i in term:
        if n_levels[i] == 2:
            value = value * codes[i]
    distinct, value_state = np.unique(value, return_inverse=True)
    state = np.zeros(codes.shape[1], dtype=np.intp)
    multilevel = [i for i in term if n_levels[i] > 2]
    for i in multilevel:
        state = state * n_levels[i] + codes[i].astype(np.intp)
    # with all combinations, features stay orthogonal over states, as the kernels assume
    table = np.kron(
        _features_of_states(tuple(int(n_levels[i]) for i in multilevel)), distinct[:, None]
    )
    state = state * len(distinct) + value_state
    return state.astype(code_dtype(len(table))), table


def _features_of_states(levels: tuple[int, ...]) -> np.ndarray:
    """Return the features (S, d) of a term in its S states: the Kronecker product of its
    predictors' contrasts.
    """
    table: np.ndarray = EMPTY_TERM.copy()  # made read-only below
    for L in levels:
        table = np.kron(table, simplex(L))
    table.flags.writeable = False  # terms may share it
    return table


_kept_features = lru_cache(maxsize=1024)(_features_of_states)


class Products:
    """Terms of a problem in the form that the kernels take: states (T, n) and tables, never a
    matrix of features.

    Parameters
    ----------
    codes : ndarray of int, shape (m, n)
        Level codes of the rows, kept as `source`.
    n_levels : sequence of m ints
    terms : sequence of T tuples

    Attributes
    ----------
    terms : list of T tuples
    codes : ndarray of int, shape (T, n)
        State of each term in each row.
    tables : list of T ndarrays, shapes (S, d)
        Features of each term in each of its states.
    sizes : ndarray of intp, shape (T,)
        Number of features d of each term.
    starts : ndarray of intp, shape (T + 1,)
        First of the D features of each term, and D.
    layout : tuple of ndarrays
        The tables as the kernels take them: numbers of states (T,), all tables one after the other,
        first entry of each table (T + 1,), and `starts`.
    """

    def __init__(self, codes: np.ndarray, n_levels: Levels, terms: Sequence[Term]):
        self.source = codes
        self.n_levels = n_levels
        self.terms: list[Term] = []
        self.codes = np.empty((0, codes.shape[1]), dtype=np.uint8)
        self.tables: list[np.ndarray] = []
        self.extend(terms)

    def extend(self, terms: Sequence[Term]) -> None:
        """Add terms at the end."""
        new_states = [term_states(self.source, self.n_levels, term) for term in terms]
        tables = self.tables + [table for _, table in new_states]
        codes = np.empty(
            (len(tables), self.source.shape[1]), dtype=code_dtype([len(t) for t in tables])
        )
        codes[: len(self.codes)] = self.codes  # the states of earlier terms, maybe in a wider type
        for t, (state, _) in enumerate(new_states):
            codes[len(self.codes) + t] = state
        self.terms.extend(terms)
        self._set(codes, tables)

    def keep(self, which: np.ndarray) -> None:
        """Keep only the terms at the positions `which`."""
        self.terms = [self.terms[t] for t in which]
        self._set(np.ascontiguousarray(self.codes[which]), [self.tables[t] for t in which])

    def _set(self, states: np.ndarray, tables: list[np.ndarray]) -> None:
        """Set the states (T, n) and tables, and what follows from them."""
        self.codes = states
        self.tables = tables
        n_states = np.array([len(table) for table in tables], dtype=np.intp)
        self.sizes = np.array([table.shape[1] for table in tables], dtype=np.intp)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.intp)
        table_starts = np.concatenate([[0], np.cumsum(n_states * self.sizes)]).astype(np.intp)
        joined = np.concatenate([table.ravel() for table in tables]) if tables else np.empty(0)
        self.layout = (n_states, joined, table_starts, self.starts)

    def link(self, theta: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """Return the link (q, n) of weights `theta` (D, q) and `intercept` (q,)."""
        out = np.repeat(intercept[:, None], self.codes.shape[1], axis=1)
        _kernel.add_terms(self.codes, *self.layout, np.ascontiguousarray(theta), out)
        return out

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """Return the gradient (D, q) of the loss by the weights, given the slope (q, n)."""
        out = np.empty((int(self.starts[-1]), len(slope)))
        _kernel.gradients(self.codes, *self.layout, slope, out)
        return out

    def features(
        self, rows: slice = slice(None), which: np.ndarray | None = None, dtype: DTypeLike = float
    ) -> np.ndarray:
        """Return a matrix (D + 1, n) of features of the terms at `which` (all by default), then a
        row of ones.

        Columns are those of the slice `rows`.
        """
        which = np.arange(len(self.terms)) if which is None else which
        codes = self.codes[which, rows]
        start = np.concatenate([[0], np.cumsum(self.sizes[which])])
        out = np.ones((int(start[-1]) + 1, codes.shape[1]), dtype=dtype)
        # states 0, 1 become features -1, 1
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
        """Return the Hessian ((D + 1) q, (D + 1) q) of the loss at a link (q, n), by the weights
        and the intercept.

        The q weights of a feature are neighbours; the intercept is last. For two classes the second
        derivative of the loss by the link is `curve` (n,); for more it follows from the link and
        the `weights` (n,) of the rows. `which` are the terms, all by default; features are
        multiplied as `dtype`.
        """
        from scipy.special import softmax

        which = np.arange(len(self.terms)) if which is None else which
        q, n = link.shape
        n_features = int(self.sizes[which].sum()) + 1  # with the constant
        # to_scores (K, q)
        out = np.zeros((n_features, q, n_features, q))
        to_scores = contrasts(q + 1)
        # blocks have features, and scores of q + 1 classes
        block_rows = max(1, BLOCK_SIZE // max(n_features, q + 1))
        for first in range(0, n, block_rows):
            rows = slice(first, first + block_rows)
            feature_block = self.features(rows, which, dtype)
            if q == 1:
                feature_block *= np.sqrt(curve[rows]).astype(dtype)
                # one matrix times itself: half of the work
                out[:, 0, :, 0] += feature_block @ feature_block.T
                continue
            p = softmax(to_scores @ link[:, rows], axis=0)
            mean = to_scores.T @ p
            for a in range(q):
                for b in range(a + 1):
                    # second derivative of the loss by links a and b: the covariance of the
                    # contrasts under p
                    curvature = (
                        (to_scores[:, a] * to_scores[:, b]) @ p - mean[a] * mean[b]
                    ) * weights[rows]
                    block = (feature_block * curvature.astype(dtype)) @ feature_block.T
                    out[:, a, :, b] += block
                    if a != b:
                        out[:, b, :, a] += block
        return out.reshape(n_features * q, n_features * q)


def candidate_ratios(
    problem: Problem, slope: np.ndarray, parents: Sequence[Term], group: bool, single: bool = False
) -> Iterator[tuple[Sequence[Term], np.ndarray]]:
    """Yield, for each block of parents, the ratios (m, parents) of gradient norm to penalty at
    lambda 1.

    A candidate is the product of a parent (a term) and one more predictor. For the `group` penalty,
    its ratio is the norm of the gradient (d, q) over the square root of d; otherwise it is the
    largest norm of a feature's gradient (q,). It is 0 if the parent holds the predictor or the
    product has too many states. The features of all candidates are never stored: blocks of
    predictors' features are multiplied with blocks of slopes times parents' features, in `single`
    precision or double.
    """
    q, n = slope.shape
    dtype = np.float32 if single else np.float64
    levels = np.array(problem.n_levels, dtype=float)  # as floats, whose products do not overflow
    # single predictors, products of the empty term, all with two levels
    # a faster way to the same ratios, without features
    if parents == [()] and set(problem.n_levels) == {2} and not problem.has_numbers:
        yield parents, _binary_ratios(problem, slope)
        return
    max_features = max(1, BLOCK_SIZE // max(1, n * q))
    for parent_block in _runs(parents, [problem.size(parent) for parent in parents], max_features):
        parent_products = Products(problem.codes, problem.n_levels, parent_block)
        # slopes times parents' features, of which the last is the row of ones
        slope_products = np.empty((int(parent_products.starts[-1]), q, n), dtype=dtype)
        np.multiply(
            parent_products.features()[:-1, None, :],
            slope[None],
            out=slope_products,
            casting="same_kind",
        )
        ratios = np.zeros((problem.m, len(parent_block)))
        # sums: gradients of all products, (features of the predictors, features of the parents
        # times q)
        for predictors in _runs(
            range(problem.m), [L - 1 for L in problem.n_levels], max(1, BLOCK_SIZE // max(1, n))
        ):
            sums = _predictor_features(problem, predictors, dtype) @ slope_products.reshape(-1, n).T
            sizes = [problem.n_levels[i] - 1 for i in predictors]
            ratios[predictors[0] : predictors[-1] + 1] = _reduce_to_ratios(
                sums, sizes, parent_products.sizes, q, group
            )
        for column, parent in enumerate(parent_block):
            ratios[list(parent), column] = 0.0  # no product with a predictor of the parent
            n_states = levels[list(parent)].prod()
            # whether the product with any predictor has too many states; initial: for a problem
            # without predictors
            if levels.max(initial=1) * n_states > MAX_STATES:
                ratios[levels * n_states > MAX_STATES, column] = 0.0
        yield parent_block, ratios


def _binary_ratios(problem: Problem, slope: np.ndarray) -> np.ndarray:
    """Return the ratios (m, 1) of `candidate_ratios` for single predictors, all with two levels:
    gradient norms.
    """
    m = problem.m
    starts = np.arange(m + 1, dtype=np.intp)
    gradient = np.empty((m, len(slope)))
    # as `Products.layout`: numbers of states, tables one after the other, and where tables and
    # features start
    layout = np.full(m, 2, dtype=np.intp), np.tile(SIGNS[:, 0], m), 2 * starts, starts
    _kernel.gradients(problem.codes, *layout, slope, gradient)
    return np.sqrt((gradient * gradient).sum(axis=1, keepdims=True))


def _predictor_features(problem: Problem, which: list[int], dtype: DTypeLike) -> np.ndarray:
    """Return the features (sum of L - 1, n) of single predictors; `which` holds consecutive
    numbers.
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
        out -= 1  # codes 0, 1 are now contrasts -1, 1
        return out
    tables = [simplex(problem.n_levels[i]).astype(dtype) for i in which]
    return np.concatenate(
        [table.T[:, codes] for table, codes in zip(tables, predictor_codes, strict=True)]
    )


def _runs(items: Sequence, sizes: Sequence[int], max_size: int) -> Iterator[list]:
    """Yield runs of consecutive items of a sequence, with total size at most `max_size` or of a
    single item.

    `sizes` holds the size of each item.
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

    `sums` (features of all predictors, features of all parents times q) holds the gradients of the
    products' features, the q numbers of a parent's feature side by side; `row_sizes` and
    `col_sizes` are the numbers of features of each predictor and of each parent. Both axes are
    reduced from features to predictors or parents: by the mean square for the `group` penalty, else
    by the maximum.
    """
    square = sums * sums
    square = square.reshape(len(sums), -1, q).sum(axis=2) if q > 1 else square
    for axis, sizes in ((0, np.asarray(row_sizes)), (1, col_sizes)):
        if len(sizes) == square.shape[axis] and (sizes == 1).all():  # nothing to reduce
            continue
        nonempty = np.flatnonzero(sizes)  # predictors of one level have no features, and norm 0
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
