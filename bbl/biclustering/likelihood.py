"""Criteria for the number of groups, on the scale of -2 times a log-likelihood.

Smaller values are better. A table has `a` row groups and `b` column groups; a pair consists of a
row and a column. Cells are numeric or have L levels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.biclustering.cells import Cells

__all__ = ["Noise", "block_criterion", "integrated_completed", "levels_deviance", "normal_deviance"]


def normal_deviance(squares: float, total: float, resolution: float) -> float:
    """Return -2 times the maximised log-likelihood of normal cells with a common variance.

    `squares` is the sum of squared differences from the block means over `total` observations. The
    variance is at least the variance of rounding errors for `resolution`, the smallest gap between
    values: ``resolution**2 / 12``. Without this bound, the likelihood of a table without noise
    would be infinite.
    """
    variance = max(squares / total, resolution**2 / 12.0, np.finfo(float).tiny)
    return float(total * np.log(2.0 * np.pi * variance) + squares / variance)


def levels_deviance(counts: np.ndarray) -> float:
    """Return -2 times the log-likelihood of blocks with separate distributions of L levels.

    `counts` (..., L) contains the counts of levels in each block.
    """
    n = counts.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_share = np.where(counts > 0.0, np.log(counts / n), 0.0)
    return float(-2.0 * (counts * log_share).sum())


def integrated_completed(
    deviance: float, sizes: tuple[np.ndarray, np.ndarray], parameters: int, total: float
) -> float:
    """Return -2 times the log of the integrated completed likelihood (Keribin et al. 2015).

    The large-sample form is ``deviance + parameters ln total``, plus ``-2 sum_g n_g ln(n_g / n) +
    (k - 1) ln n`` for the rows and for the columns, where n is the number of rows or columns, and
    n_g the number of those in group g of k groups.

    Parameters
    ----------
    deviance : float
        -2 times the log-likelihood of the cells given the groups.
    sizes : two ndarrays
        Numbers of rows and of columns in each group.
    parameters : int
        Number of free parameters of all blocks.
    total : float
        Number of observed cells.

    References
    ----------
    Keribin C, Brault V, Celeux G, Govaert G (2015). Estimation and selection for the latent block
    model on categorical data. Statistics and Computing 25, 1201-1216.
    """
    criterion = deviance + parameters * np.log(total)
    for size in sizes:
        n = size.sum()  # rows, or columns
        criterion += -2.0 * (size * np.log(size / n)).sum() + (len(size) - 1) * np.log(n)
    return float(criterion)


class Noise(NamedTuple):
    """The noise in the values, which does not depend on the groups.

    Pairs (row, column) may be observed repeatedly.

    Attributes
    ----------
    total : float
        Number of observations.
    within : float
        Sum of squared differences between repeated observations and the mean of their pair.
    resolution : float
        Smallest gap between distinct values.
    """

    total: float
    within: float
    resolution: float

    @classmethod
    def from_cells(cls, cells: Cells) -> Noise:
        """Return the noise in the values of a table's cells."""
        means = cells.averaged()
        total = float(cells.weight.sum())
        gaps = np.diff(np.unique(cells.value))
        # centre first, so that fewer digits are lost in squares
        center = float(np.average(means.value, weights=means.weight))
        within = float(
            cells.weight @ (cells.value - center) ** 2 - means.weight @ (means.value - center) ** 2
        )
        # `averaged` returns the cells themselves if no pair is repeated
        return cls(total, max(within, 0.0) if means is not cells else 0.0, float(gaps.min()))


def block_criterion(
    cells: Cells, rows: np.ndarray, columns: np.ndarray, squares: float, n_levels: int, noise: Noise
) -> float:
    """Return -2 times the log of the integrated completed likelihood of two partitions of a table.

    `cells` contains all observations, including repeated ones. `rows` and `columns` are labels.
    `squares` is the sum of squared differences between the means of the pairs and the block means;
    it is not used for categorical tables. `n_levels` is 1 for numeric cells.
    """
    sizes = np.bincount(rows), np.bincount(columns)
    a = len(sizes[0])
    b = len(sizes[1])
    if n_levels > 1:
        counts = np.zeros((a, b, n_levels))
        np.add.at(
            counts, (rows[cells.row], columns[cells.column], cells.value.astype(int)), cells.weight
        )
        return integrated_completed(
            levels_deviance(counts), sizes, a * b * (n_levels - 1), noise.total
        )
    deviance = normal_deviance(squares + noise.within, noise.total, noise.resolution)
    # the means, and a single variance
    return integrated_completed(deviance, sizes, a * b + 1, noise.total)
