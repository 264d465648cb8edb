"""The likelihood P(group | row) of distinct rows, and its Fisher information."""

# The *design* of a row consists of a one, for the intercept, and the indicators of its fields and
# couplings. Numeric predictors are standardised, because rounding errors in products of values far
# from zero would be large; `bbl.model.number_terms.to_raw` converts their coefficients. A *cell* is
# a combination of a distinct row and a group. Letters: n distinct rows, k groups with rows, p
# columns of the design.

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bbl.engines.conditional.products import DesignProducts, has_products
from bbl.engines.likelihood.influence import row_indicators
from bbl.engines.likelihood.newton import Objective
from bbl.model.layout import Layout

__all__ = [
    "DenseDesign",
    "Likelihood",
    "TableDesign",
    "assemble_information",
    "design",
    "independent_columns",
    "independent_of_gram",
    "information",
    "information_weights",
    "is_large",
    "make_design",
    "raw_design",
]

MIN_PIVOT = 1e-6  # smallest pivot of linearly independent design columns, scaled to unit norm
GRAM_PIVOT = 1e-5  # the same for products of columns, whose rounding errors are larger
# smaller components of a flat direction are rounding errors: their coefficients do not change
ZERO_LOADING = 1e-6
MAX_DENSE = 2**22  # numbers in a design; larger ones of nominal predictors are not formed


def design(codes: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the design (n, 1 + size) of rows (n, m), with standardised numeric predictors."""
    if layout.numbers is not None:
        standardised = (codes - layout.numbers[:, 0]) / layout.numbers[:, 1]
        codes = np.where(layout.is_number, standardised, codes)
    return raw_design(codes, layout)


def raw_design(codes: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the design (n, 1 + size) of rows (n, m), with unscaled numeric predictors."""
    return np.column_stack([np.ones(len(codes)), row_indicators(layout, codes)])


class DenseDesign:
    """A design as a matrix.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
    """

    def __init__(self, Z: np.ndarray):
        self.Z = Z
        self.shape = Z.shape

    def scores(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the scores (n, k) for `coefficients` (k, p)."""
        return self.Z @ coefficients.T

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (k, p) over rows of `values` (n, k) times the design."""
        return values.T @ self.Z

    def information(self, p: np.ndarray, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Return the Fisher information of the `free` coefficients; see `information`."""
        return information(self.Z, p, weights, free)

    def occurs(self) -> np.ndarray:
        """Return a mask (p,) of the columns that are nonzero in at least one row."""
        return np.asarray(self.Z.any(axis=0))

    def independent_columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Return linearly independent and dependent columns; see `independent_columns`."""
        return independent_columns(self.Z)


class TableDesign:
    """A design that is not stored as a matrix, for nominal predictors and at most pairwise terms.

    Sums over rows are computed from tables. With many columns, this takes much less time than
    matrix products, and the rows of the design need no memory.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    layout : Layout
    """

    def __init__(self, codes: np.ndarray, layout: Layout):
        self.codes = codes
        self.products = DesignProducts(layout)
        self.shape = (len(codes), 1 + layout.size)

    def scores(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the scores (n, k) for `coefficients` (k, p)."""
        return self.products.scores(self.codes, coefficients)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (k, p) over rows of `values` (n, k) times the design."""
        return self.products.sums(self.codes, values)

    def information(self, p: np.ndarray, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Return the Fisher information of the `free` coefficients; see `information`."""
        grams = self.products.grams(self.codes, information_weights(p, weights))
        return assemble_information(grams, free)

    def gram(self) -> np.ndarray:
        """Return the inner products (p, p) of all columns, which are row counts."""
        return self.products.gram(self.codes, np.ones(len(self.codes)))

    def occurs(self) -> np.ndarray:
        """Return a mask (p,) of the columns that are nonzero in at least one row."""
        return np.asarray(self.sums(np.ones((len(self.codes), 1)))[0] > 0.0)

    def independent_columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Return linearly independent and dependent columns; see `independent_columns`."""
        return independent_of_gram(self.gram())


def independent_columns(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a mask (p,) of a basis of a design's columns (n, p), and a mask of dependent columns.

    All columns that are independent of the others are in the basis. If there are at least as many
    rows as columns, a Cholesky factor of Z'Z quickly shows whether all columns are independent. If
    not, the rank is computed by a QR factorisation with pivoting.
    """
    from scipy.linalg import lapack, qr, solve_triangular

    n, p = Z.shape
    scale = np.sqrt((Z * Z).sum(axis=0))
    scaled = Z / np.where(scale > 0.0, scale, 1.0)
    if n >= p:
        # failed: not 0 if a pivot is not positive
        factor, failed = lapack.dpotrf(scaled.T @ scaled, lower=1)
        if not failed and factor.diagonal().min() > MIN_PIVOT:
            return np.ones(p, dtype=bool), np.zeros(p, dtype=bool)
        scaled = qr(scaled, mode="r")[0][:p]  # (p, p), with the same linear dependences
    R, pivots = qr(scaled, mode="r", pivoting=True)
    diagonal = np.abs(R.diagonal())
    r = int((diagonal > MIN_PIVOT * diagonal.max(initial=0.0)).sum())
    columns = np.zeros(p, dtype=bool)
    aliased = np.zeros(p, dtype=bool)
    columns[pivots[:r]] = True
    aliased[pivots[r:]] = True
    # columns of the basis that others depend on
    aliased[pivots[:r]] = (
        np.abs(solve_triangular(R[:r, :r], R[:r, r:])).max(axis=1, initial=0.0) > ZERO_LOADING
    )
    return columns, aliased


def independent_of_gram(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `independent_columns`, given the products (p, p) of a design's columns.

    It is computed by a Cholesky factorisation with pivoting, which selects independent columns
    first.
    """
    from scipy.linalg import lapack, solve_triangular

    diagonal = gram.diagonal()
    scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    scaled = gram / np.outer(scale, scale)
    p = len(gram)
    factor, failed = lapack.dpotrf(scaled, lower=1)
    if not failed and factor.diagonal().min() > GRAM_PIVOT:
        return np.ones(p, dtype=bool), np.zeros(p, dtype=bool)
    R, pivots, r, _ = lapack.dpstrf(scaled, tol=GRAM_PIVOT**2)
    pivots = pivots - 1  # counted from 1
    columns = np.zeros(p, dtype=bool)
    aliased = np.zeros(p, dtype=bool)
    columns[pivots[:r]] = True
    aliased[pivots[r:]] = True
    loadings = solve_triangular(R[:r, :r], R[:r, r:])
    aliased[pivots[:r]] = np.abs(loadings).max(axis=1, initial=0.0) > ZERO_LOADING
    return columns, aliased


def information_weights(p: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weights of rows in each block of the information, for groups a >= b >= 1."""
    return np.array(
        [
            weights * p[:, a] * (np.maximum(1.0 - p[:, a], 0.0) if a == b else -p[:, b])
            for a in range(1, p.shape[1])
            for b in range(1, a + 1)
        ]
    )


def assemble_information(blocks: Iterable[np.ndarray], free: np.ndarray) -> np.ndarray:
    """Return the information of the free coefficients from blocks (p, p) for groups a >= b >= 1."""
    stops = np.cumsum(free.sum(axis=1))
    starts = stops - free.sum(axis=1)
    out = np.empty((int(free.sum()),) * 2)
    pairs = [(a, b) for a in range(len(free)) for b in range(a + 1)]
    for (a, b), block in zip(pairs, blocks, strict=True):
        own = block[np.ix_(free[a], free[b])]
        out[starts[a] : stops[a], starts[b] : stops[b]] = own
        out[starts[b] : stops[b], starts[a] : stops[a]] = own.T
    return out


def is_large(n: int, layout: Layout) -> bool:
    """Return whether `TableDesign` is used instead of a matrix for `n` rows."""
    return n * (1.0 + layout.size) > MAX_DENSE and has_products(layout)


def make_design(codes: np.ndarray, layout: Layout) -> DenseDesign | TableDesign:
    """Return the design of rows (n, m), stored as a matrix unless the matrix would be too large."""
    if is_large(len(codes), layout):
        return TableDesign(codes, layout)
    return DenseDesign(design(codes, layout))


def information(Z: np.ndarray, p: np.ndarray, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return ``sum_n w_n (diag(p_n) - p_n p_n') kron z_n z_n'`` for the `free` coefficients.

    These are coefficients of all groups except the first. `Z` (n, c) contains z_n, `p` (n, k) the
    probabilities of the groups, `weights` (n,) w_n, and `free` (k - 1, c) marks the coefficients to
    include. The result is a square matrix with one row for each included coefficient, group by
    group.
    """
    # positions of each group's free coefficients in the result: starts[a] .. stops[a]
    stops = np.cumsum(free.sum(axis=1))
    starts = stops - free.sum(axis=1)
    out = np.empty((int(free.sum()),) * 2)
    for a in range(len(free)):
        root_weights = np.sqrt(weights * p[:, 1 + a] * np.maximum(1.0 - p[:, 1 + a], 0.0))
        scaled = Z[:, free[a]] * root_weights[:, None]
        # a symmetric product takes half the work
        out[starts[a] : stops[a], starts[a] : stops[a]] = scaled.T @ scaled
        for b in range(a):
            cross_weights = -weights * p[:, 1 + a] * p[:, 1 + b]
            block = (Z[:, free[a]] * cross_weights[:, None]).T @ Z[:, free[b]]
            out[starts[a] : stops[a], starts[b] : stops[b]] = block
            out[starts[b] : stops[b], starts[a] : stops[a]] = block.T
    return out


class Likelihood(Objective):
    """The mean of ln P(group | row), as an `Objective` for Newton's method.

    Parameters
    ----------
    rows : DenseDesign or TableDesign, shape (n, p)
    shares : ndarray, shape (n, k)
        Fraction of the total weight in each cell. Only groups with rows are included, and the
        reference group is the first.
    support : ndarray of bool, shape (n, k)
        Cells with positive probability.
    free : ndarray of bool, shape (k - 1, p)
        Coefficients to estimate; the others are zero.

    Attributes
    ----------
    row_shares : ndarray, shape (n,)
        Fraction of the total weight in each row.
    observed : ndarray of bool, shape (n, k)
        Cells with positive weight.
    p : ndarray, shape (n, k)
        Group probabilities at the most recent argument of `value`.
    log_likelihood : float
        Mean log-likelihood at the most recent argument of `value`.
    """

    def __init__(
        self,
        rows: DenseDesign | TableDesign,
        shares: np.ndarray,
        support: np.ndarray,
        free: np.ndarray,
    ):
        self.rows = rows
        self.shares = shares
        self.support = support
        self.free = free
        self.row_shares = shares.sum(axis=1)
        self.observed = shares > 0.0

    def spread(self, theta: np.ndarray) -> np.ndarray:
        """Return the coefficients (k - 1, p) of later groups, given the free coefficients."""
        out = np.zeros(self.free.shape)
        out[self.free] = theta
        return out

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at the free coefficients `theta`, and set `p`."""
        scores = np.zeros(self.shares.shape)
        scores[:, 1:] = self.rows.scores(self.spread(theta))
        scores[~self.support] = -np.inf
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        norm = p.sum(axis=1)
        self.p = p / norm[:, None]
        self.log_likelihood = float(
            self.shares[self.observed] @ scores[self.observed] - self.row_shares @ np.log(norm)
        )
        return self.log_likelihood

    def gradient(self) -> np.ndarray:
        """Return the gradient with respect to the free coefficients.

        It is evaluated at the most recent argument of `value`.
        """
        residual = self.shares - self.row_shares[:, None] * self.p
        return self.rows.sums(residual[:, 1:])[self.free]

    def curvatures(self) -> list[np.ndarray]:
        """Return the Fisher information of one observation, as a list with one element."""
        return [self.rows.information(self.p, self.row_shares, self.free)]
