"""The kernel of centred levels and their products, functions that make it up, and tables again.

It is ``k(x, x') = (g / a + tau g2 / b) / (1 + tau)``: `g` is the inner product of the rows' centred indicators of
levels, `g2` sums the products of those of interacting predictors, `a` and `b` are their means over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.model.layout import Layout

__all__ = [
    "Basis",
    "Kernel",
    "determined",
    "diagonal",
    "indicators",
    "kernel_scale",
    "make_basis",
    "own_levels",
    "to_tables",
]

EXACT = 1e-10  # share of the kernel's trace that may be left out
BLOCK = 32  # rows whose kernels are worked out at once
SAME = 1e-6  # share of a parameter that rows may leave open
WORTH = 0.25  # a row of a block is taken if as much is left of it, compared with the block's first


@dataclass(frozen=True)
class Kernel:
    """The kernel of some rows.

    Attributes
    ----------
    layout : Layout
        Fields, and the pairs that interact.
    means : ndarray, shape (sum(n_levels),)
        Shares of all levels of all predictors, which are taken off their indicators.
    scale : tuple of float
        Factors of g and g2.
    """

    layout: Layout
    means: np.ndarray
    scale: tuple[float, float]

    def __call__(self, rows: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return the kernel (n, r) of indicators of rows (n, sum(n_levels)) with centred points (r, sum(n_levels))."""
        layout, level_columns = self.layout, own_levels(self.layout)
        level = points.T.copy()  # what each level of a row gives with each point, as the row's own are not centred
        for columns in level_columns:
            level[columns] -= self.means[columns] @ level[columns]
        g = rows @ level
        if not self.scale[1]:
            return self.scale[0] * g
        if layout.complete:
            g2 = 0.5 * (g * g - rows @ (level * level))
        else:
            g2 = np.zeros_like(g)
            for i in np.unique(layout.pairs[:, 0]):
                at = [
                    np.arange(level_columns[j].start, level_columns[j].stop)
                    for j in layout.pairs[layout.pairs[:, 0] == i, 1]
                ]
                other_columns = np.concatenate(at)
                g2 += (rows[:, level_columns[i]] @ level[level_columns[i]]) * (
                    rows[:, other_columns] @ level[other_columns]
                )
        return self.scale[0] * g + self.scale[1] * g2


@dataclass(frozen=True)
class Basis:
    """Functions of a row that span those of the kernel, orthogonal over the rows they were made of.

    Attributes
    ----------
    kernel : Kernel
    points : ndarray, shape (r, sum(n_levels))
        Centred indicators of the rows x_p.
    mix : ndarray, shape (r, r)
        ``k(x, x_p) @ mix`` are the functions at x.
    spectrum : ndarray, shape (r,)
        Weighted mean square of each function.
    functions : ndarray, shape (n, r)
        At the rows they were made of; column by column in memory, as they are fitted.
    """

    kernel: Kernel
    points: np.ndarray
    mix: np.ndarray
    spectrum: np.ndarray
    functions: np.ndarray

    def __call__(self, codes: np.ndarray, size: int = 4096) -> np.ndarray:
        """Return the functions at encoded rows (n, m), as an array (n, r)."""
        out = np.empty((len(codes), len(self.spectrum)))
        for first in range(0, len(codes), size):
            rows = indicators(codes[first : first + size], self.kernel.layout.n_levels)
            out[first : first + size] = self.kernel(rows, self.points) @ self.mix
        return out


def _starts(n_levels: np.ndarray) -> np.ndarray:
    """Return where the levels of each predictor begin among all levels, and where the last ones end."""
    return np.concatenate(([0], np.cumsum(n_levels)))


def indicators(codes: np.ndarray, n_levels: np.ndarray) -> np.ndarray:
    """Return the indicators (n, sum(n_levels)) of all levels of all predictors."""
    first = _starts(n_levels)
    out = np.zeros((len(codes), first[-1]))
    out[np.arange(len(codes))[:, None], codes + first[:-1]] = 1.0
    return out


def own_levels(layout: Layout) -> list[slice]:
    """Return where the levels of each predictor stand among all levels."""
    first = _starts(layout.n_levels).tolist()
    return [slice(a, b) for a, b in zip(first[:-1], first[1:], strict=True)]


def diagonal(codes: np.ndarray, means: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return g and g2 (n,) of each encoded row with itself."""
    of_level = 1.0 - 2.0 * means
    for columns in own_levels(layout):
        of_level[columns] += means[columns] @ means[columns]
    single = of_level[codes + _starts(layout.n_levels)[:-1]]
    total = single.sum(axis=1)
    if layout.complete:
        return total, 0.5 * (total**2 - (single**2).sum(axis=1))
    i, j = layout.pairs.T
    adjacent = np.zeros((layout.m, layout.m))
    adjacent[i, j] = 1.0
    return total, ((single @ adjacent) * single).sum(axis=1)


def kernel_scale(a: float, b: float, tau: float) -> tuple[float, float]:
    """Return the factors of g and g2 whose means over the rows are `a` and `b`; their sum has a mean of 1."""
    if not b:
        return 1.0 / (a or 1.0), 0.0
    return 1.0 / (a or 1.0) / (1.0 + tau), tau / b / (1.0 + tau)


def make_basis(codes: np.ndarray, weights: np.ndarray, layout: Layout, tau: float, rank: int) -> Basis:
    """Choose rows whose kernels make up that of all rows, and turn them into orthogonal functions.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    weights : ndarray, shape (n,)
        Positive.
    layout : Layout
    tau : float
        How much products weigh against single levels.
    rank : int
        At most so many functions. Where levels and pairs of levels are fewer, the kernel is made up exactly.

    Notes
    -----
    Pivoted Cholesky, the rows of which most is left first, block by block.
    """
    from scipy.linalg import solve_triangular

    rows = indicators(codes, layout.n_levels)
    share = weights / weights.sum()
    means = share @ rows
    centred = rows - means
    g, g2 = diagonal(codes, means, layout)
    kernel = Kernel(layout, means, kernel_scale(float(share @ g), float(share @ g2), tau))
    residual_diagonal = kernel.scale[0] * g + kernel.scale[1] * g2
    total, most = residual_diagonal @ share, min(rank, len(rows))
    factor = np.empty((most, len(rows)))
    chosen: list[int] = []
    while len(chosen) < most and residual_diagonal @ share > EXACT * total:
        first, worth = len(chosen), residual_diagonal * share
        block = np.argsort(-worth, kind="stable")[:BLOCK]
        columns = kernel(rows, centred[block]).T - factor[:first, block].T @ factor[:first]
        least = WORTH * worth[block[0]]
        while len(chosen) < most:
            at = int((residual_diagonal[block] * share[block]).argmax())
            p = int(block[at])
            if (
                residual_diagonal[p] <= 0.0
                or residual_diagonal[p] * share[p] < least
                or residual_diagonal @ share <= EXACT * total
            ):
                break
            k = len(chosen)
            column = columns[at] - factor[first:k, p] @ factor[first:k]
            if column[p] <= 0.0:  # what was left of it was rounding
                residual_diagonal[p] = 0.0
                continue
            factor[k] = column / np.sqrt(column[p])
            residual_diagonal = np.maximum(residual_diagonal - factor[k] ** 2, 0.0)
            residual_diagonal[p] = 0.0
            chosen.append(p)
    r = len(chosen)
    spectrum, rotation = np.linalg.eigh((factor[:r] * share) @ factor[:r].T)
    mix = solve_triangular(factor[:r, chosen].T, rotation, lower=True, trans="T")
    return Basis(kernel, centred[chosen], mix, np.maximum(spectrum, 0.0), np.asfortranarray(factor[:r].T @ rotation))


def to_tables(basis: Basis, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return fields, couplings and constant that equal the functions ``basis(x) @ weights``.

    Parameters
    ----------
    basis : Basis
    weights : ndarray, shape (r, K)

    Returns
    -------
    theta : ndarray, shape (K, layout.size)
        In the reference gauge.
    constant : ndarray, shape (K,)
        The functions at the row of reference levels.
    """
    layout, level_columns = basis.kernel.layout, own_levels(basis.kernel.layout)
    means, scale = basis.kernel.means, basis.kernel.scale
    alpha = (basis.mix @ weights).T
    K = len(alpha)
    theta, constant = np.zeros((K, layout.size)), np.zeros(K)

    def fields(i: int, table: np.ndarray) -> None:
        """Add a table (K, L_i)."""
        theta[:, layout.start[i] : layout.start[i + 1]] += table[:, 1:] - table[:, :1]
        constant[:] += table[:, 0]

    for i, columns in enumerate(level_columns):
        sums = alpha @ basis.points[:, columns] * scale[0]
        fields(i, sums - (sums @ means[columns])[:, None])
    for (i, j), at in zip(layout.pairs, layout.pair_start, strict=False):
        P = basis.points[:, level_columns[i]]
        Q = basis.points[:, level_columns[j]]
        both = (P[:, :, None] * Q[:, None, :]).reshape(len(P), P.shape[1] * Q.shape[1])
        M = (alpha @ both).reshape(K, P.shape[1], Q.shape[1]) * scale[1]
        M = M - (M @ means[level_columns[j]])[:, :, None]
        M = M - np.einsum("a,kab->kb", means[level_columns[i]], M)[:, None, :]
        corner = M[:, 0, 0]
        theta[:, at : at + (P.shape[1] - 1) * (Q.shape[1] - 1)] = (
            M[:, 1:, 1:] - M[:, 1:, :1] - M[:, :1, 1:] + corner[:, None, None]
        ).reshape(K, -1)
        theta[:, layout.start[i] : layout.start[i + 1]] += M[:, 1:, 0] - corner[:, None]
        theta[:, layout.start[j] : layout.start[j + 1]] += M[:, 0, 1:] - corner[:, None]
        constant += corner
    return theta, constant


def determined(basis: Basis, tables: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return which parameters (layout.size,) the functions at the rows determine, an offset being free.

    Parameters
    ----------
    basis : Basis
    tables : ndarray, shape (r, layout.size)
        Parameters of each function, as `to_tables` returns them.
    weights : ndarray, shape (n,)
        Those of the rows that the basis was made of.

    Notes
    -----
    A parameter is an inner product with one element of the kernel's space, whose squared norm is known; the functions
    are orthonormal in that space, so that `tables` hold what lies in the span of the rows. An offset can take its place
    where functions add up to a constant.
    """
    layout, scale, means = basis.kernel.layout, basis.kernel.scale, basis.kernel.means
    apart = np.zeros(layout.m)  # squared distance of the reference level from the means
    for i, columns in enumerate(own_levels(layout)):
        level_means = means[columns].copy()
        level_means[:1] -= 1.0
        apart[i] = level_means @ level_means
    near = np.zeros(layout.m)
    for i, j in layout.pairs:
        near[i] += apart[j]
        near[j] += apart[i]
    norm = np.full(layout.size, 4.0 * scale[1])
    norm[: layout.D] = np.repeat(2.0 * (scale[0] + scale[1] * near), np.diff(layout.start))
    inside = (tables**2).sum(axis=0)
    is_determined = inside >= (1.0 - SAME) * norm
    has_spectrum = basis.spectrum > 1e-12 * basis.spectrum.max(initial=0.0)
    mean = weights / weights.sum() @ basis.functions
    constant = np.where(has_spectrum, mean / np.where(has_spectrum, basis.spectrum, 1.0), 0.0)
    if 1.0 - mean @ constant < SAME:
        is_determined &= np.abs(constant @ tables) <= np.sqrt(SAME * inside * (constant @ constant))
    return is_determined
