"""Products of predictors: their features in the zero-sum coding, and the sums of all candidates.

A predictor with L levels has L - 1 features, the corners of a simplex; of two levels, -1 and +1. A term, a rising tuple
of predictors, has the products of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bbl._ext.sparse import sparse as _kernel
from bbl.rows.sample import code_dtype

__all__ = ["Levels", "Problem", "Products", "Term", "candidate_ratios", "contrasts", "simplex", "term_states"]

Term = tuple[int, ...]
Levels = Sequence[int] | np.ndarray

STATES = 65536  # joint levels of a term beyond which it is no candidate
SIGNS = np.array([[-1.0], [1.0]])  # the simplex of two levels
ROWS = 512  # that are transposed at a time
BLOCK = 2**21  # numbers in a block of features, or of slopes times parents


def simplex(levels: int) -> np.ndarray:
    """Return the corners of a simplex as rows, shape (L, L - 1): orthogonal columns of mean 0 and mean square 1."""
    out = np.zeros((levels, levels - 1))
    for k in range(1, levels):
        scale = math.sqrt(levels / (k * (k + 1)))
        out[:k, k - 1], out[k, k - 1] = -scale, k * scale
    return out


def contrasts(K: int) -> np.ndarray:
    """Return the matrix (K, K - 1) from links to scores of the classes; of two, the link is their log odds."""
    return simplex(K) / math.sqrt(2 * K)


@dataclass(frozen=True, eq=False)
class Problem:
    """A regression of a class on predictors.

    Attributes
    ----------
    codes : ndarray of uint8, uint16 or int32, shape (m, n), C-contiguous
        Level codes, a row for each predictor.
    n_levels : tuple of m ints
    y : ndarray of intp, shape (n,)
        Classes ``0..K-1``.
    K : int
    weights : ndarray of float64, shape (n,)
    """

    codes: np.ndarray
    n_levels: tuple[int, ...]
    y: np.ndarray
    K: int
    weights: np.ndarray

    @classmethod
    def make(cls, codes: np.ndarray, n_levels: Levels, y: np.ndarray, K: int, weights: np.ndarray) -> Problem:
        """Return the problem of rows (n, m), with equal rows made one: repeated rows are then weights to the last bit.

        The order of rows makes no difference either.
        """
        levels = tuple(int(L) for L in n_levels)
        codes = np.asarray(codes, dtype=code_dtype(levels))
        key = np.packbits(codes, axis=1) if max(levels, default=2) == 2 else codes
        first_rows, merged = _merged(
            np.column_stack([key, np.asarray(y, dtype=code_dtype((K, *levels)))]), np.asarray(weights, dtype=float)
        )
        distinct_codes = np.empty((len(levels), len(first_rows)), dtype=codes.dtype)
        for first in range(0, len(first_rows), ROWS):  # a block of rows at a time stays in the cache
            row_block = slice(first, first + ROWS)
            distinct_codes[:, row_block] = codes[first_rows[row_block]].T
        return cls(distinct_codes, levels, np.asarray(y, dtype=np.intp)[first_rows], int(K), merged)

    def weighted(self, weights: np.ndarray) -> Problem:
        """Return the problem with other weights (n,); rows of weight 0 are left out."""
        weighted_rows = np.flatnonzero(weights > 0)
        codes = np.ascontiguousarray(self.codes[:, weighted_rows])
        return Problem(
            codes, self.n_levels, self.y[weighted_rows], self.K, np.ascontiguousarray(weights[weighted_rows])
        )

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


def _merged(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the distinct ones of some rows are, in a fixed order of rows, and the sums of their weights."""
    if not rows.size:
        return np.arange(len(rows)), weights
    key = np.ascontiguousarray(rows)
    row_keys = key.view(np.dtype((np.void, key.itemsize * key.shape[1])))[:, 0]
    order = np.argsort(row_keys, kind="stable")
    ordered = row_keys[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return order[new], np.add.reduceat(weights[order], np.flatnonzero(new))


def term_states(codes: np.ndarray, n_levels: Levels, term: Term) -> tuple[np.ndarray, np.ndarray]:
    """Return the state of a term in every row (n,), and its features in every state (S, d).

    All its predictors of two levels have one state of two between them, the sign of their product.
    """
    binary = [i for i in term if n_levels[i] == 2]
    multilevel = [i for i in term if n_levels[i] > 2]
    sign: np.ndarray = np.full(codes.shape[1] if binary else 0, (len(binary) + 1) % 2, dtype=np.uint8)
    for i in binary:
        sign ^= codes[i].astype(np.uint8, copy=False)
    if binary and not multilevel:  # of these there are very many terms: no Kronecker product for each
        return sign, SIGNS
    state = np.zeros(codes.shape[1], dtype=np.intp)
    table = np.ones((1, 1))
    for i in multilevel:
        state = state * n_levels[i] + codes[i]
        table = np.kron(table, simplex(n_levels[i]))
    return (state * 2 + sign, np.kron(table, SIGNS)) if binary else (state, table)


class Products:
    """Chosen terms of a problem as the kernels take them: states (T, n) and tables, never a matrix of features.

    Attributes
    ----------
    terms : list of tuples
    sizes : ndarray of intp, shape (T,)
        Numbers of features.
    at : ndarray of intp, shape (T + 1,)
        Where the weights of each term begin.
    """

    def __init__(self, codes: np.ndarray, n_levels: Levels, terms: Sequence[Term]):
        self.source, self.n_levels = codes, n_levels
        self.terms: list[Term] = []
        self.codes = np.empty((0, codes.shape[1]), dtype=np.uint8)
        self.tables: list[np.ndarray] = []
        self.extend(terms)

    def extend(self, terms: Sequence[Term]) -> None:
        """Add terms at the end."""
        new_states = [term_states(self.source, self.n_levels, term) for term in terms]
        tables = self.tables + [table for _, table in new_states]
        codes = np.empty((len(tables), self.source.shape[1]), dtype=code_dtype([len(t) for t in tables]))
        codes[: len(self.codes)] = self.codes
        for t, (state, _) in enumerate(new_states):
            codes[len(self.codes) + t] = state
        self.terms.extend(terms)
        self._set(codes, tables)

    def keep(self, which: np.ndarray) -> None:
        """Keep the terms of these positions alone."""
        self.terms = [self.terms[t] for t in which]
        self._set(np.ascontiguousarray(self.codes[which]), [self.tables[t] for t in which])

    def _set(self, codes: np.ndarray, tables: list[np.ndarray]) -> None:
        self.codes, self.tables = codes, tables
        self.states = np.array([len(table) for table in tables], dtype=np.intp)
        self.sizes = np.array([table.shape[1] for table in tables], dtype=np.intp)
        self.at = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.intp)
        cells = np.concatenate([[0], np.cumsum(self.states * self.sizes)]).astype(np.intp)
        table = np.concatenate([table.ravel() for table in tables]) if tables else np.empty(0)
        self.layout = (self.states, table, cells, self.at)

    def link(self, theta: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """Return the link (q, n) of weights (D, q)."""
        out = np.repeat(intercept[:, None], self.codes.shape[1], axis=1)
        _kernel.add_terms(self.codes, *self.layout, np.ascontiguousarray(theta), out)
        return out

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """Return the gradient (D, q) from the slope (q, n)."""
        out = np.empty((int(self.at[-1]), len(slope)))
        _kernel.gradients(self.codes, *self.layout, slope, out)
        return out

    def features(self, rows: slice = slice(None), which: np.ndarray | None = None, number: Any = float) -> np.ndarray:
        """Return all features (or those of some terms), and a last row of ones, of some rows as a matrix (D + 1, n)."""
        which = np.arange(len(self.terms)) if which is None else which
        codes = self.codes[which, rows]
        end = np.concatenate([[0], np.cumsum(self.sizes[which])])
        out = np.ones((int(end[-1]) + 1, codes.shape[1]), dtype=number)
        if len(which) and all(self.tables[t] is SIGNS for t in which):
            np.multiply(codes, 2, out=out[:-1], casting="unsafe")
            out[:-1] -= 1
            return out
        for k, t in enumerate(which):
            out[end[k] : end[k + 1]] = self.tables[t].T[:, codes[k]]
        return out

    def hessian(
        self,
        link: np.ndarray,
        weights: np.ndarray,
        curve: np.ndarray,
        which: np.ndarray | None = None,
        number: Any = float,
    ) -> np.ndarray:
        """Return the Hessian of the loss at a link (q, n) in the weights of all features, the last the intercept.

        Shape ((D + 1) q, (D + 1) q), the contrasts of a feature side by side; `curve` (n,) is that of two classes.
        `which` are the terms, if not all. The features of a block of rows are multiplied as numbers of type `number`.
        """

        from scipy.special import softmax

        which = np.arange(len(self.terms)) if which is None else which
        q, n = link.shape
        D = int(self.sizes[which].sum()) + 1
        out, scores = np.zeros((D, q, D, q)), contrasts(q + 1)
        size = max(1, BLOCK // max(D, q + 1))
        for first in range(0, n, size):
            rows = slice(first, first + size)
            feature_block = self.features(rows, which, number)
            if q == 1:
                out[:, 0, :, 0] += (feature_block * curve[rows].astype(number)) @ feature_block.T
                continue
            p = softmax(scores @ link[:, rows], axis=0)
            mean = scores.T @ p
            for a in range(q):
                for b in range(a + 1):
                    each = ((scores[:, a] * scores[:, b]) @ p - mean[a] * mean[b]) * weights[rows]
                    block = (feature_block * each.astype(number)) @ feature_block.T
                    out[:, a, :, b] += block
                    if a != b:
                        out[:, b, :, a] += block
        return out.reshape(D * q, D * q)


def candidate_ratios(
    problem: Problem, slope: np.ndarray, parents: Sequence[Term], group: bool, single: bool = False
) -> Iterator[tuple[Sequence[Term], np.ndarray]]:
    """Yield, for blocks of parents, the length of the gradient of every parent times every predictor, (m, parents).

    In units of the square root of the number of features for the group penalty, of the longest one of a single feature
    otherwise; 0 where there is no such term. The matrix of candidates is never made: blocks of predictors' features are
    multiplied with blocks of slopes times parents, in `single` precision or in double.
    """
    q, n = slope.shape
    number = np.float32 if single else np.float64
    levels = np.array(problem.n_levels, dtype=float)
    if parents == [()] and set(problem.n_levels) == {2}:
        yield parents, _signs(problem, slope)
        return
    step = max(1, BLOCK // max(1, n * q))
    for parent_block in _blocks(parents, [problem.size(p) for p in parents], step):
        parent_products = Products(problem.codes, problem.n_levels, parent_block)
        right = np.empty((int(parent_products.at[-1]), q, n), dtype=number)  # (feature, contrast) by rows
        np.multiply(parent_products.features()[:-1, None, :], slope[None], out=right, casting="same_kind")
        out = np.zeros((problem.m, len(parent_block)))
        for first in _blocks(range(problem.m), [L - 1 for L in problem.n_levels], max(1, BLOCK // max(1, n))):
            single_features, sizes = _singles(problem, first, number), [problem.n_levels[i] - 1 for i in first]
            out[first[0] : first[-1] + 1] = _lengths(
                single_features @ right.reshape(-1, n).T, sizes, parent_products.sizes, q, group
            )
        for p, parent in enumerate(parent_block):
            out[list(parent), p] = 0.0
            states = levels[list(parent)].prod()
            if levels.max(initial=1) * states > STATES:
                out[levels * states > STATES, p] = 0.0
        yield parent_block, out


def _signs(problem: Problem, slope: np.ndarray) -> np.ndarray:
    """Return the lengths of the gradients of single predictors of two levels, (m, 1)."""
    m = problem.m
    at = np.arange(m + 1, dtype=np.intp)
    out = np.empty((m, len(slope)))
    _kernel.gradients(problem.codes, np.full(m, 2, dtype=np.intp), np.tile(SIGNS[:, 0], m), 2 * at, at, slope, out)
    return np.sqrt((out * out).sum(axis=1, keepdims=True))


def _singles(problem: Problem, which: list[int], number: Any) -> np.ndarray:
    """Return the features (sum of L - 1, n) of consecutive predictors."""
    predictor_codes = problem.codes[which[0] : which[-1] + 1]
    if all(problem.n_levels[i] == 2 for i in which):
        out = np.multiply(predictor_codes, 2, dtype=number)
        out -= 1
        return out
    tables = [simplex(problem.n_levels[i]).astype(number) for i in which]
    return np.concatenate([table.T[:, codes] for table, codes in zip(tables, predictor_codes, strict=True)])


def _blocks(items: Sequence, sizes: Sequence[int], most: int) -> Iterator[list]:
    """Cut a sequence into runs whose sizes sum to at most `most` (or of one item)."""
    run: list = []
    filled = 0
    for item, size in zip(items, sizes, strict=True):
        if run and filled + size > most:
            yield run
            run, filled = [], 0
        run.append(item)
        filled += size
    if run:
        yield run


def _lengths(sums: np.ndarray, rows: list[int], columns: np.ndarray, q: int, group: bool) -> np.ndarray:
    """Return lengths (rows, columns) of the blocks of gradients (features, features times contrasts)."""
    square = sums * sums
    square = square.reshape(len(sums), -1, q).sum(axis=2) if q > 1 else square
    for axis, sizes in ((0, np.asarray(rows)), (1, columns)):
        if len(sizes) == square.shape[axis] and (sizes == 1).all():
            continue
        present = np.flatnonzero(sizes)
        start = (np.cumsum(sizes) - sizes)[present]
        joined = np.add.reduceat(square, start, axis=axis) if group else np.maximum.reduceat(square, start, axis=axis)
        square = np.zeros((len(sizes), square.shape[1]) if axis == 0 else (square.shape[0], len(sizes)))
        if axis == 0:
            square[present] = joined / sizes[present, None] if group else joined
        else:
            square[:, present] = joined / sizes[present] if group else joined
    return np.sqrt(square)
