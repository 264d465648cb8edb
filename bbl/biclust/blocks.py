"""Blocks: what two partitions make of the cells, and how well new rows fit the groups."""

from __future__ import annotations

import numpy as np

from bbl._ext import biclust as kernel
from bbl.biclust.cells import Cells
from bbl.biclust.partition import canonical

__all__ = ["level_costs", "ordered", "squared_costs"]


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


def squared_costs(cells: Cells, columns: np.ndarray, b: int, means: np.ndarray) -> np.ndarray:
    """Return the squared distance of each row from the means (a, b) of each group, up to what is the same for all."""
    counts, sums = cells.sums(columns, b)
    return counts @ (means * means).T - 2.0 * sums @ means.T


def level_costs(cells: Cells, columns: np.ndarray, b: int, log_share: np.ndarray) -> np.ndarray:
    """Return minus twice the log-likelihood of each row in each group, from the logs of level shares (a, b, L)."""
    L = log_share.shape[2]
    code = (columns[cells.column].astype(np.int64) * L + cells.value.astype(np.int64)).astype(np.int32)
    counted = Cells((cells.shape[0], b * L), cells.start, code, cells.value, cells.weight)
    counts, _ = counted.sums(np.arange(b * L, dtype=np.int32), b * L)
    return -2.0 * counts @ log_share.reshape(len(log_share), -1).T
