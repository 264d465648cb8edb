"""Blocks: what two partitions make of the cells, and how well new rows fit the groups."""

from __future__ import annotations

import numpy as np

from bbl._ext.bicluster import bicluster as kernel
from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import canonical
from bbl.stats.ties import first_largest

__all__ = ["best_groups", "ordered"]


def block_sums(cells: Cells, rows: np.ndarray, columns: np.ndarray, n_levels: int, rated: bool) -> np.ndarray:
    """Return observations of each level in each block, shape (a, b, L); of numbers the observations and their sum.

    Where pairs are `rated` or not, all pairs of a block are observed.
    """
    a, b = int(rows.max()) + 1, int(columns.max()) + 1
    block = rows[cells.row].astype(np.int64) * b + columns[cells.column]
    if n_levels:
        block = block * n_levels + cells.value.astype(np.int64)
        return np.bincount(block, cells.weight, a * b * n_levels).reshape(a, b, n_levels)
    counts = np.bincount(block, cells.weight, a * b)
    total = np.bincount(block, cells.weight * cells.value, a * b)
    if rated:
        counts = np.outer(np.bincount(rows), np.bincount(columns)).astype(float).ravel()
    return np.stack([counts, total], axis=1).reshape(a, b, 2)


def ordered(cells: Cells, rows: np.ndarray, columns: np.ndarray, n_levels: int, rated: bool):
    """Return the labels with groups in order of their means (of their sizes in categorical tables), sums and WCSS."""
    labels = [canonical(rows), canonical(columns)]
    sums = block_sums(cells, labels[0], labels[1], n_levels, rated)
    for axis in (0, 1):
        side = sums.sum(axis=1 - axis)
        key = -np.bincount(labels[axis]) if n_levels else side[:, 1] / side[:, 0]
        order = np.argsort(key, kind="stable")
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order))
        labels[axis] = rank[labels[axis]]
    sums = block_sums(cells, labels[0], labels[1], n_levels, rated)
    if n_levels:
        return *labels, sums, float("nan")
    mean = np.ascontiguousarray(sums[..., 1] / np.maximum(sums[..., 0], 1e-300))
    if rated:  # of all pairs, those that are not rated being zeros
        return *labels, sums, float((sums[..., 0] * mean * (1.0 - mean)).sum())
    squares = kernel.residual_squares(*cells.averaged().arrays, labels[0], labels[1], mean)
    return *labels, sums, squares


def best_groups(
    cells: Cells, columns: np.ndarray, means: np.ndarray, log_shares: np.ndarray | None = None, rated: bool = False
) -> np.ndarray:
    """Return the group that fits each of some new rows best.

    Parameters
    ----------
    cells : Cells
        Of the new rows; their values are codes of levels if there are `log_shares`.
    columns : ndarray of int32
        Labels of the columns.
    means : ndarray, shape (a, b)
        Of the blocks.
    log_shares : ndarray, shape (a, b, L), optional
        Logs of the shares of the levels of each block, which are then compared with.
    rated : bool, default False
        Whether the means are shares of rated pairs, and cells that are not there are not rated.
    """
    b = means.shape[1]
    if rated:
        share = np.clip(means, 1e-6, 1.0 - 1e-6)
        counts, _ = cells.sums(columns, b)
        size = np.bincount(columns, minlength=b)
        costs = -counts @ np.log(share).T - (size - counts) @ np.log1p(-share).T
    elif log_shares is not None:
        costs = _level_costs(cells, columns, b, log_shares)
    else:
        counts, sums = cells.averaged().sums(columns, b)
        costs = counts @ (means * means).T - 2.0 * sums @ means.T
    return first_largest(-costs).astype(np.int32)


def _level_costs(cells: Cells, columns: np.ndarray, b: int, log_share: np.ndarray) -> np.ndarray:
    """Return minus the log-likelihood of each row in each group."""
    L = log_share.shape[2]
    code = (columns[cells.column].astype(np.int64) * L + cells.value.astype(np.int64)).astype(np.int32)
    counted = Cells((cells.shape[0], b * L), cells.start, code, cells.value, cells.weight)
    counts, _ = counted.sums(np.arange(b * L, dtype=np.int32), b * L)
    return -counts @ log_share.reshape(len(log_share), -1).T
