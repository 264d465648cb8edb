"""Likelihood: criteria that choose the number of groups, on the scale of minus twice a log-likelihood."""

from __future__ import annotations

import numpy as np

from bbl.biclust.cells import Cells

__all__ = ["block_criterion", "integrated_completed", "levels_deviance", "normal_deviance"]


def normal_deviance(squares: float, total: float, resolution: float) -> float:
    """Return minus twice the log-likelihood of normal cells of one variance, at its estimate.

    Parameters
    ----------
    squares : float
        Sum of squared differences from the block means.
    total : float
        Number of observations.
    resolution : float
        Smallest gap between distinct values: their variance is not taken to be less than that of rounding,
        ``resolution**2 / 12``, or a table without noise would have no likelihood.
    """
    variance = max(squares / total, resolution**2 / 12.0, np.finfo(float).tiny)
    return float(total * np.log(2.0 * np.pi * variance) + squares / variance)


def levels_deviance(counts: np.ndarray) -> float:
    """Return minus twice the log-likelihood of blocks with their own distribution of levels, counts (..., L)."""
    n = counts.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_share = np.where(counts > 0.0, np.log(counts / n), 0.0)
    return float(-2.0 * (counts * log_share).sum())


def integrated_completed(deviance: float, sizes: tuple[np.ndarray, np.ndarray], parameters: int, total: float) -> float:
    """Return minus twice the integrated completed likelihood (Keribin et al. 2015), less is better.

    Parameters
    ----------
    deviance : float
        Minus twice the log-likelihood of the cells given the groups.
    sizes : two ndarrays
        Numbers of rows, and of columns, of each group.
    parameters : int
        Free parameters of all blocks.
    total : float
        Number of observed cells.

    References
    ----------
    Keribin C, Brault V, Celeux G, Govaert G (2015). Estimation and selection for the latent block model on
    categorical data. Statistics and Computing 25, 1201-1216.
    """
    value = deviance + parameters * np.log(total)
    for size in sizes:
        n = size.sum()
        value += -2.0 * (size * np.log(size / n)).sum() + (len(size) - 1) * np.log(n)
    return float(value)


def block_criterion(cells: Cells, rows: np.ndarray, columns: np.ndarray, squares: float, n_levels: int) -> float:
    """Return minus twice the integrated completed likelihood of two partitions of a table.

    Parameters
    ----------
    cells : Cells
        All observations: a pair may have several.
    rows, columns : ndarray of int
        Labels.
    squares : float
        Sum of squared differences of the means of the pairs from the block means.
    n_levels : int
        Levels of a categorical table; 1 for numbers.
    """
    sizes = np.bincount(rows), np.bincount(columns)
    a, b, total = len(sizes[0]), len(sizes[1]), float(cells.weight.sum())
    if n_levels > 1:
        counts = np.zeros((a, b, n_levels))
        np.add.at(counts, (rows[cells.row], columns[cells.column], cells.value.astype(int)), cells.weight)
        return integrated_completed(levels_deviance(counts), sizes, a * b * (n_levels - 1), total)
    means = cells.averaged()  # repeated pairs differ from their means, whatever the groups are
    middle = float(np.average(means.value, weights=means.weight))
    within = float(cells.weight @ (cells.value - middle) ** 2 - means.weight @ (means.value - middle) ** 2)
    gaps = np.diff(np.unique(cells.value))
    deviance = normal_deviance(squares + max(within, 0.0), total, float(gaps.min()))
    return integrated_completed(deviance, sizes, a * b + 1, total)
