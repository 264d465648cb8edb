"""The kernel of fields and couplings, a basis of its functions, and tables of their parameters."""

# The kernel is ``k(x, x') = (g / a + tau g2 / b) / (1 + tau)`` with ``g = sum_i g_i``. Here g_i is
# the inner product of predictor i's centred level features in x and x' (indicators, or the features
# of a `Coding` of ordered levels), g2 is the sum of ``g_i g_j`` over interacting pairs, a and b are
# the means of g(x, x) and g2(x, x) over the rows, and tau weights couplings relative to fields.
#
# Letters: n rows, m predictors with F features in all (predictor i has L_i levels and d_i
# features), r basis functions, K groups.

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.engines.conditional.coding import Coding, coding_of
from bbl.model.layout import Layout
from bbl.model.regressors import pair_cells

__all__ = [
    "Basis",
    "Kernel",
    "determined",
    "kernel_scale",
    "make_basis",
    "shares_and_factors",
    "to_tables",
]

NEGLIGIBLE_TRACE = 1e-10  # fraction of the kernel's trace that the basis may leave out
BLOCK = 32  # rows whose kernel columns are computed at once
# fraction of a parameter's squared norm that may lie outside the span of the rows, by rounding
UNDETERMINED = 1e-6
# a row of a block becomes a pivot if its residual is at least this fraction of the largest
PIVOT_SHARE = 0.25
CHUNK = 4096  # rows whose kernel is computed at once
PRODUCTS_AT_ONCE = 2**21  # weighted features of points that are multiplied at once


@dataclass(frozen=True)
class Kernel:
    """The kernel, with means and factors computed from the training rows.

    Attributes
    ----------
    layout : Layout
        The interacting pairs and the positions of parameters in a flat vector. `pairs` has shape
        (P, 2), and `complete` is True if all pairs interact.
    coding : Coding
        The features of levels. ``columns[i]`` is predictor i's slice among the F features;
        `is_nominal` is True if all features are indicators.
    means : ndarray, shape (F,)
        Means of all features; for nominal predictors, the proportions of the levels.
    scale : tuple of float
        Factors of g and g2; see `kernel_scale`.
    """

    layout: Layout
    coding: Coding
    means: np.ndarray
    scale: tuple[float, float]

    def __call__(self, rows: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return the kernel values k(x, x_p), shape (n, r).

        `rows` (n, F) contains the features of x, and `points` (r, F) the centred features of x_p.
        """
        layout = self.layout
        coding = self.coding
        # (x - mean)'p = x'(p - mean'p), as the indicators x of a predictor sum to one
        if coding.is_nominal:
            factors = points.T.copy()  # (F, r): g is rows @ factors
            for columns in coding.columns:
                factors[columns] -= self.means[columns] @ factors[columns]
        else:
            rows = rows - self.means
            factors = points.T
        g = rows @ factors
        if not self.scale[1]:  # no couplings
            return self.scale[0] * g
        if layout.complete:  # all pairs interact
            if coding.is_nominal:
                # g_i is the factor of predictor i's level, so its square is a sum over indicators
                g_i_squares = rows @ (factors * factors)
            else:
                g_i_squares = sum(
                    (rows[:, columns] @ factors[columns]) ** 2 for columns in coding.columns
                )
            g2 = 0.5 * (g * g - g_i_squares)
        else:  # g_i times the sum of g_j over the partners j of i
            g2 = np.zeros_like(g)
            for i in np.unique(layout.pairs[:, 0]):
                partners = layout.pairs[layout.pairs[:, 0] == i, 1]
                column_ranges = [
                    np.arange(coding.columns[j].start, coding.columns[j].stop) for j in partners
                ]
                partner_columns = np.concatenate(column_ranges)
                g_i = rows[:, coding.columns[i]] @ factors[coding.columns[i]]
                g2 += g_i * (rows[:, partner_columns] @ factors[partner_columns])
        return self.scale[0] * g + self.scale[1] * g2


@dataclass(frozen=True)
class Basis:
    """Functions of a row that span the kernel and are orthogonal over the training rows.

    Attributes
    ----------
    kernel : Kernel
    points : ndarray, shape (r, F)
        Centred features of the selected training rows x_p, one for each function.
    mix : ndarray, shape (r, r)
        Matrix that defines the functions: their values at x are ``k(x, x_p) @ mix``.
    spectrum : ndarray, shape (r,)
        Weighted mean square of each function.
    functions : ndarray, shape (n, r)
        Values of the functions at the training rows, in Fortran order.
    """

    kernel: Kernel
    points: np.ndarray
    mix: np.ndarray
    spectrum: np.ndarray
    functions: np.ndarray

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """Return the values (n, r) of the functions at encoded rows (n, m)."""
        out = np.empty((len(codes), len(self.spectrum)))
        for first in range(0, len(codes), CHUNK):
            rows = self.kernel.coding.row_features(codes[first : first + CHUNK])
            out[first : first + CHUNK] = self.kernel(rows, self.points) @ self.mix
        return out


def diagonal(
    codes: np.ndarray, means: np.ndarray, layout: Layout, coding: Coding
) -> tuple[np.ndarray, np.ndarray]:
    """Return g(x, x) and g2(x, x), each (n,), at encoded rows x (n, m).

    `means` (F,) are the means of all features.
    """
    # g_i (n, m): the squared distance of each predictor's features from the means
    g_i = np.empty(codes.shape)
    for i, columns in enumerate(coding.columns):
        if coding.is_number(i):
            g_i[:, i] = (coding.standardised(i, codes[:, i]) - means[columns]) ** 2
        else:
            own = codes[:, i].astype(np.intp)
            g_i[:, i] = coding.squared_distances(i, means[columns])[own]
    g = g_i.sum(axis=1)
    if layout.complete:  # all pairs interact
        return g, 0.5 * (g**2 - (g_i**2).sum(axis=1))
    i, j = layout.pairs.T
    adjacent = np.zeros((layout.m, layout.m))
    adjacent[i, j] = 1.0
    return g, ((g_i @ adjacent) * g_i).sum(axis=1)


def _kernel_means(
    codes: np.ndarray, share: np.ndarray, means: np.ndarray, layout: Layout, coding: Coding
) -> tuple[float, float]:
    """Return the means a and b of g(x, x) and g2(x, x) over encoded rows x (n, m).

    `share` (n,) contains each row's fraction of the total weight, and `means` (F,) the means of all
    features.
    """
    a = b = 0.0
    for first in range(0, len(codes), CHUNK):
        chunk = slice(first, first + CHUNK)
        g, g2 = diagonal(codes[chunk], means, layout, coding)
        a = a + float(share[chunk] @ g)
        b = b + float(share[chunk] @ g2)
    return a, b


def kernel_scale(a: float, b: float, tau: float) -> tuple[float, float]:
    """Return the factors of g and g2 in the kernel, for which the mean of k(x, x) is 1.

    `a` and `b` are the means of g(x, x) and g2(x, x), and `tau` is the weight of g2 relative to g.
    Without interactions, b and the factor of g2 are 0.
    """
    if not b:
        return 1.0 / (a or 1.0), 0.0  # a is 0 if no predictor varies
    return 1.0 / (a or 1.0) / (1.0 + tau), tau / b / (1.0 + tau)


def shares_and_factors(
    codes: np.ndarray, row_shares: np.ndarray, layout: Layout, coding: Coding, tau: float
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Return the proportions (L_i,) of each predictor's levels, and the factors in the kernel.

    `row_shares` (n,) contains the fraction of the total weight in each of the rows `codes` (n, m).
    The factors are described in `kernel_scale`.
    """
    level_shares = [np.bincount(codes[:, i], row_shares, L) for i, L in enumerate(layout.n_levels)]
    means = _kernel_means(codes, row_shares, coding.feature_means(level_shares), layout, coding)
    return level_shares, kernel_scale(*means, tau)


def make_basis(
    codes: np.ndarray,
    weights: np.ndarray,
    layout: Layout,
    tau: float,
    rank: int,
    ordered: str = "nominal",
) -> Basis:
    """Return a basis of the kernel, from a pivoted Cholesky factorisation over the rows.

    The next pivot is the row with the largest weighted residual, i.e. the part of k(x, x) that the
    factor does not yet explain. Kernel columns are computed for blocks of rows with large
    residuals.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    weights : ndarray, shape (n,)
        Positive row weights.
    layout : Layout
    tau : float
        Weight of couplings relative to fields.
    rank : int
        Maximum number of functions. If the number of levels and pairs of levels is smaller, the
        basis spans the kernel exactly.
    ordered : {"nominal", "linear", "cumulative"}, default "nominal"
        Coding of ordered predictors.
    """
    from scipy.linalg import solve_triangular

    coding = coding_of(layout, ordered)
    rows = coding.row_features(codes)
    share = weights / weights.sum()
    means = share @ rows
    centred = rows - means
    g, g2 = diagonal(codes, means, layout, coding)
    kernel = Kernel(layout, coding, means, kernel_scale(float(share @ g), float(share @ g2), tau))
    # (n,): k(x, x) minus the part that the factor explains
    residual = kernel.scale[0] * g + kernel.scale[1] * g2
    negligible = NEGLIGIBLE_TRACE * (residual @ share)
    max_rank = min(rank, len(rows))
    # the matrix of k at all pairs of rows is approximately factor' factor
    factor = np.empty((max_rank, len(rows)))
    pivots: list[int] = []  # selected rows
    while len(pivots) < max_rank and residual @ share > negligible:
        # n_explained: number of rows of the factor that are already subtracted in `columns` below
        n_explained = len(pivots)
        weighted_residual = residual * share
        block = np.argsort(-weighted_residual, kind="stable")[:BLOCK]
        # (block, n): kernel columns of the block, minus the part that the factor explains
        columns = (
            kernel(rows, centred[block]).T - factor[:n_explained, block].T @ factor[:n_explained]
        )
        # below this residual, a new block is worthwhile
        least_residual = PIVOT_SHARE * weighted_residual[block[0]]
        while len(pivots) < max_rank:
            row_in_block = int((residual[block] * share[block]).argmax())
            p = int(block[row_in_block])
            if (
                residual[p] <= 0.0
                or residual[p] * share[p] < least_residual
                or residual @ share <= negligible
            ):
                break
            k = len(pivots)
            # (n,): the pivot's kernel column; rows that the factor gained within this block are
            # subtracted too
            column = columns[row_in_block] - factor[n_explained:k, p] @ factor[n_explained:k]
            if column[p] <= 0.0:  # the residual was a rounding error
                residual[p] = 0.0
                continue
            factor[k] = column / np.sqrt(column[p])
            residual = np.maximum(residual - factor[k] ** 2, 0.0)
            residual[p] = 0.0
            pivots.append(p)
    r = len(pivots)
    # rotate the functions (rows of the factor) so that they are orthogonal over the rows
    weighted = factor[:r] * np.sqrt(share)
    # a symmetric product takes half the work
    spectrum, rotation = np.linalg.eigh(weighted @ weighted.T)
    # C = factor[:r, pivots]' is lower triangular, and k at the pivots is C C': the factor at x is
    # k(x, x_p) C'^-1, so that mix is C'^-1 rotation
    mix = solve_triangular(factor[:r, pivots].T, rotation, lower=True, trans="T")
    functions = (rotation.T @ factor[:r]).T  # Fortran-contiguous
    return Basis(kernel, centred[pivots], mix, np.maximum(spectrum, 0.0), functions)


def to_tables(basis: Basis, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the fields, couplings and constants of the K functions ``basis(x) @ weights``.

    `weights` has shape (r, K). Fields and couplings (K, layout.size) are in the reference gauge:
    zero at the first level of each predictor. The constants (K,) are the values of the functions at
    the row of reference levels.
    """
    layout = basis.kernel.layout
    coding = basis.kernel.coding
    scale = basis.kernel.scale
    # (F,): centred features of the reference levels
    reference = coding.row_features(np.zeros((1, layout.m), dtype=np.intp))[0] - basis.kernel.means
    alpha = (basis.mix @ weights).T  # (K, r): function k is sum_p alpha_kp k(x, x_p)
    slopes = scale[0] * (alpha @ basis.points)  # (K, F), of the centred features
    theta = np.zeros((len(alpha), layout.size))
    constant = slopes @ reference
    theta[:, : layout.D] = coding.differences(range(layout.m), slopes)
    for i in np.unique(layout.pairs[:, 0]):
        pairs = np.flatnonzero(layout.pairs[:, 0] == i)
        partners = layout.pairs[pairs, 1]
        columns = np.concatenate(
            [np.arange(coding.columns[j].start, coding.columns[j].stop) for j in partners]
        )
        # (K, d_i, q): slopes of the products of i's features with the q features of its partners
        pair_slopes = scale[1] * _products_of_features(
            alpha, basis.points[:, coding.columns[i]], basis.points[:, columns]
        )
        # (K, q): slopes where i has its reference level
        at_reference = reference[coding.columns[i]] @ pair_slopes
        # (K, L_i - 1, q)
        by_level = coding.differences([i], pair_slopes.swapaxes(1, 2)).swapaxes(1, 2)
        constant += at_reference @ reference[columns]
        theta[:, layout.start[i] : layout.start[i + 1]] += by_level @ reference[columns]
        theta[:, layout.columns(partners)] += coding.differences(partners, at_reference)
        couplings = coding.differences(partners, by_level)  # (K, L_i - 1, D of the partners)
        ends = np.cumsum(layout.n_levels[partners] - 1)[:-1]
        for pair, table in zip(pairs, np.split(couplings, ends, axis=2), strict=True):
            theta[:, layout.pair_start[pair] : layout.pair_start[pair + 1]] = table.reshape(
                len(theta), -1
            )
    return theta, constant


def _products_of_features(alpha: np.ndarray, P: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Return ``sum_p alpha_kp P_pa Q_pb`` (K, d, q), given alpha (K, r), P (r, d) and Q (r, q)."""
    out = np.empty((len(alpha), P.shape[1], Q.shape[1]))
    at_once = max(1, PRODUCTS_AT_ONCE // max(P.size, 1))  # functions k
    for first in range(0, len(alpha), at_once):
        weighted = alpha[first : first + at_once, None] * P.T  # (functions, d, r)
        # one product of matrices, which is faster than a stack of products
        products = weighted.reshape(len(weighted) * P.shape[1], len(P)) @ Q
        out[first : first + at_once] = products.reshape(len(weighted), P.shape[1], Q.shape[1])
    return out


def determined(basis: Basis, tables: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return whether each parameter is determined by the training rows rather than by the penalty.

    Each parameter is the inner product of f with an element of the kernel's space, and the squared
    norm of this element is known. The basis functions are orthonormal in that space, so the sum of
    squares of a column of `tables` is the squared norm of the element's projection onto the span of
    the rows. A parameter is determined by the rows if the element equals its projection. If a
    combination of the functions is constant over all rows, it is confounded with the offset, which
    has almost no penalty. The parameters in such a combination are therefore not determined.

    Let s_a be the squared distance between the features of level a and the reference level, and d_j
    the squared distance between predictor j's reference features and their means. The squared norm
    for a field is ``s_a (scale[0] + scale[1] sum_j d_j)``, where the sum is over the predictors j
    that interact with the field's predictor. The squared norm for a coupling is ``scale[1] s_a
    s_b``.

    Parameters
    ----------
    basis : Basis
    tables : ndarray, shape (r, layout.size)
        Parameters of each function, from `to_tables`.
    weights : ndarray, shape (n,)
        Weights of the training rows.

    Returns
    -------
    ndarray of bool, shape (layout.size,)
    """
    layout = basis.kernel.layout
    coding = basis.kernel.coding
    scale = basis.kernel.scale
    means = basis.kernel.means
    reference_distance = np.array(  # (m,): d_j, from the reference level's features to the means
        [coding.squared_distances(i, means[columns])[0] for i, columns in enumerate(coding.columns)]
    )
    partner_distance = np.zeros(layout.m)  # sum of d_j over the predictors j that i interacts with
    for i, j in layout.pairs:
        # the slope of a square is twice its coefficient times the reference
        factor = 2.0 if i == j else 1.0
        partner_distance[i] += factor * reference_distance[j]
        partner_distance[j] += factor * reference_distance[i]
    steps = coding.squared_steps()  # (D,): s_a of all non-reference levels
    # squared norm of the element whose inner product with f is the parameter
    squared_norm = np.empty(layout.size)
    squared_norm[: layout.D] = steps * np.repeat(
        scale[0] + scale[1] * partner_distance, np.diff(layout.start)
    )
    if layout.count(2):
        # the two non-reference levels, 0 ... D - 1, of each coupling
        row, column = pair_cells(layout)
        squared_norm[layout.D :] = scale[1] * steps[row] * steps[column]
    spanned_norm = (tables**2).sum(axis=0)
    is_determined = spanned_norm >= (1.0 - UNDETERMINED) * squared_norm
    # functions that are more than rounding errors
    has_spectrum = basis.spectrum > 1e-12 * basis.spectrum.max(initial=0.0)
    mean = weights / weights.sum() @ basis.functions
    # c (r,): the weights of the functions' best approximation to the constant 1, in mean square
    c = np.where(has_spectrum, mean / np.where(has_spectrum, basis.spectrum, 1.0), 0.0)
    if 1.0 - mean @ c < UNDETERMINED:  # the functions do combine to 1
        # determined if c is orthogonal to the column of tables: their squared cosine is at most
        # UNDETERMINED
        is_determined &= np.abs(c @ tables) <= np.sqrt(UNDETERMINED * spanned_norm * (c @ c))
    return is_determined
