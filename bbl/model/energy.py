"""Energies of encoded rows, and conditional probabilities of levels. An energy is the exponent in
eq. 6 of Woo & Wang (2022).
"""

from __future__ import annotations

from typing import cast

import numpy as np

from bbl._ext.model import energy as kernel
from bbl.memory import check_memory
from bbl.model.higher import higher
from bbl.model.layout import Layout, LevelBlocks, term_columns
from bbl.model.moments import level_counts, one_hot, pair_counts
from bbl.model.regressors import pair_cells
from bbl.rows.sample import Rows, Sample

__all__ = ["Energy", "conditionals", "energies", "known_energy", "parameter_counts"]


# maximum number of non-reference levels per predictor for which a loop over levels is faster than
# `reduceat`
FEW_LEVELS = 8
MAX_PRODUCTS = 2**22  # products of numbers and indicators that are in memory at once


def conditionals(field: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the log normalisers of all sites and the probabilities of all non-reference levels.

    The largest field of each predictor is subtracted before taking exponentials, to avoid overflow.

    Parameters
    ----------
    field : ndarray, shape (n, layout.D)
        Log odds of each non-reference level a of site i against the reference level, given the rest
        of the row: ``X @ J.T + h``, where X (n, D) contains the indicators of the row's levels (see
        `Regressors`), and row (i, a) of J contains the couplings ``J_i(a; j, b)``.
    layout : Layout

    Returns
    -------
    log_norm : ndarray, shape (n, number of predictors with more than one level)
        ``ln Z_i`` of eq. 12.
    P : ndarray, shape (n, layout.D)
        ``P_i(a | others)``, a >= 1.
    """
    sites = layout.level_blocks
    # the reference level has field 0
    largest = np.maximum(_reduce_levels(np.maximum, field, sites), 0.0)
    P = np.exp(field - _repeat_levels(largest, sites))
    total = np.exp(-largest) + _reduce_levels(np.add, P, sites)
    P /= _repeat_levels(total, sites)
    return largest + np.log(total), P


def _repeat_levels(values: np.ndarray, sites: LevelBlocks) -> np.ndarray:
    """Return `values` (n, number of predictors), repeated for the levels of each predictor."""
    if sites.common_width == 1:
        return values
    return np.repeat(values, sites.width, axis=1)


def _reduce_levels(ufunc: np.ufunc, level_values: np.ndarray, sites: LevelBlocks) -> np.ndarray:
    """Reduce `level_values` (n, D) over the levels of each predictor.

    The result (n, number of predictors) equals ``ufunc.reduceat(level_values, start, axis=1)``. If
    all predictors have the same small number of levels, this function is about ten times as fast.
    """
    width = sites.common_width
    if not 0 < width <= FEW_LEVELS:
        return ufunc.reduceat(level_values, sites.start, axis=1)
    out = level_values[:, ::width].copy()
    for a in range(1, width):
        ufunc(out, level_values[:, a::width], out=out)
    return out


CHUNK_ROWS = 65536  # rows per chunk read from a file


class Energy:
    """Computes energies of rows under K models with the same layout. Couplings are converted to
    matrices only once.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
        One parameter vector per model.

    Attributes
    ----------
    layout : Layout
    h : ndarray, shape (D, K)
        Fields of the D non-reference levels.
    J : ndarray, shape (D, D, K)
        Couplings of pairs, above the diagonal; of shape (0, 0, K) if the model has no pairs.
    higher : Higher or None
        The terms of three or more predictors.
    values : ndarray, shape (higher.size, K)
        The couplings of these terms; not set if `higher` is None.

    Examples
    --------
    >>> layout = Layout([2, 2])
    >>> Energy(layout, np.array([[1.0, 2.0, 4.0]]))(np.array([[1, 1], [0, 1]], dtype=np.uint8))
    array([[7.],
           [2.]])
    """

    def __init__(self, layout: Layout, theta: np.ndarray):
        self.layout = layout
        K = len(theta)
        D = layout.D
        self.h = np.ascontiguousarray(theta[:, :D].T)
        self.J = np.zeros((0, 0, K))
        self.higher = None
        if layout.numbers is not None:
            self.columns = term_columns(layout)
            self.theta = theta
            return
        if layout.count(2):
            check_memory(
                8.0 * D * D * K,
                f"Prediction with {D} levels and {K} groups",
                "Predict with fewer predictors.",
            )
            self.J = np.zeros((D, D, K))
            # position of each pair coupling in the matrix, in the order of the parameter vector
            row, col = pair_cells(layout)
            self.J[row, col] = theta[:, D : layout.pair_start[-1]].T
        self.higher = higher(layout) if layout.order > 2 else None
        if self.higher is not None:
            # `cells`: slice of the couplings of higher terms
            self.values = np.ascontiguousarray(theta[:, self.higher.cells].T)

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """Return the energies (n, K) of `codes` (n, m)."""
        out = np.empty((len(codes), self.h.shape[1]))
        if self.layout.numbers is not None:
            self._sum_products(codes, out)
            return out
        scratch = np.empty(self.layout.m, dtype=np.intp)  # holds the columns of a row's levels
        if len(codes) and self.h.shape[1]:
            kernel.energies(codes, self.layout.start, self.h, self.J, scratch, out)
            if self.higher is not None:
                # each term's members (T, k), their strides in its table (T, k), and the start of
                # its table (T,)
                terms = self.higher
                kernel.add_terms(codes, terms.members, terms.stride, terms.first, self.values, out)
        return out

    def _sum_products(self, codes: np.ndarray, out: np.ndarray) -> None:
        """Write the energies (n, K) of rows with numeric regressors to `out`."""
        size = max(1, MAX_PRODUCTS // max(self.layout.size, 1))
        for first in range(0, len(codes), size):
            rows = slice(first, first + size)
            X = np.column_stack([one_hot(codes[rows], self.layout), np.ones(len(codes[rows]))])
            products = X[:, self.columns[0]]
            for columns in self.columns[1:]:
                products = products * X[:, columns]
            out[rows] = products @ self.theta.T


def energies(codes: np.ndarray, layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the energies (n, K) of `codes` (n, m) under K parameter vectors `theta` (K, size)."""
    return Energy(layout, theta)(codes)


def known_energy(sample: Rows, layout: Layout, theta: np.ndarray) -> tuple[float, float]:
    """Return the total weight of the complete rows and the weighted sum of their energies.

    If a file has no missing values and the model has only pairs, both are computed from the counts
    of levels and pairs of levels. Otherwise, the rows are read in chunks.
    """
    if not sample.in_memory:
        if sample.complete and layout.order <= 2:
            if not layout.count(2):  # avoids a matrix of pairs
                counts = [
                    level_weights[1:]
                    for level_weights in level_counts(sample.pooled, layout.n_levels)
                ]
                return sample.total, float(np.concatenate(counts) @ theta)
            return sample.total, float(
                parameter_counts(pair_counts(sample, layout), layout) @ theta
            )
        totals = [known_energy(chunk, layout, theta) for chunk in sample.blocks(CHUNK_ROWS)]
        return sum(total for total, _ in totals), sum(energy for _, energy in totals)
    known_rows = cast(Sample, sample).complete_rows  # rows without missing values
    return known_rows.total, float(
        known_rows.weights @ energies(known_rows.codes, layout, theta[None])[:, 0]
    )


def parameter_counts(counts: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the total weight of the rows that have the levels of each parameter, shape (size,).

    The model has pairs only. `counts` (D, D) is the result of `pair_counts` for complete rows. The
    weighted sum of the energies is the inner product of the result and a parameter vector.
    """
    row, col = pair_cells(layout)  # position of each pair coupling in the counts
    return np.concatenate([counts.diagonal(), counts[row, col]])
