"""Blocks of a two-way table, and groups for new rows.

A table has I rows in `a` groups and J columns in `b` groups; a pair consists of a row and a column.
Each cell of a categorical table has one of L levels.
"""

from __future__ import annotations

import numpy as np

from bbl._ext.bicluster import bicluster as kernel
from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import canonical
from bbl.stats.metrics import first_largest

__all__ = ["best_groups", "ordered"]


def block_sums(
    cells: Cells, rows: np.ndarray, columns: np.ndarray, n_levels: int, rated: bool
) -> np.ndarray:
    """Return sums over each block: the weights of the levels (a, b, L), or the weight and the
    weighted sum of the values (a, b, 2).

    `rows` (I,) and `columns` (J,) are labels; `n_levels` is 0 for a numeric table. If `rated`, a
    cell indicates that the row rated the column, and a pair without a cell is an observed zero. The
    weight of a block is then its number of pairs.
    """
    a = int(rows.max()) + 1
    b = int(columns.max()) + 1
    block = rows[cells.row].astype(np.int64) * b + columns[cells.column]
    if n_levels:
        block = block * n_levels + cells.value.astype(np.int64)
        return np.bincount(block, cells.weight, a * b * n_levels).reshape(a, b, n_levels)
    counts = np.bincount(block, cells.weight, a * b)
    total = np.bincount(block, cells.weight * cells.value, a * b)
    if rated:
        counts = np.outer(np.bincount(rows), np.bincount(columns)).astype(float).ravel()
    return np.stack([counts, total], axis=1).reshape(a, b, 2)


def ordered(
    cells: Cells, rows: np.ndarray, columns: np.ndarray, n_levels: int, rated: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Renumber the groups by increasing mean or, in categorical tables, by decreasing size.

    The arguments are the same as in `block_sums`. Return the row labels, the column labels, the
    block sums and the within-block sum of squares, which is nan for categorical tables.
    """
    # ties are resolved by the order of first appearance
    labels = [canonical(rows), canonical(columns)]
    sums = block_sums(cells, labels[0], labels[1], n_levels, rated)
    for axis in (0, 1):
        group_sums = sums.sum(axis=1 - axis)
        sort_key = -np.bincount(labels[axis]) if n_levels else group_sums[:, 1] / group_sums[:, 0]
        order = np.argsort(sort_key, kind="stable")
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order))  # new label of each group
        labels[axis] = rank[labels[axis]]
    rows, columns = labels
    sums = block_sums(cells, rows, columns, n_levels, rated)
    if n_levels:
        return rows, columns, sums, float("nan")
    # (a, b); 0 in blocks without cells
    mean = np.ascontiguousarray(sums[..., 1] / np.maximum(sums[..., 0], 1e-300))
    if rated:  # zeros and ones with mean p: n p (1 - p)
        return rows, columns, sums, float((sums[..., 0] * mean * (1.0 - mean)).sum())
    # `averaged`: one cell for each pair, with the mean value of the pair
    return (
        rows,
        columns,
        sums,
        kernel.residual_squares(*cells.averaged().arrays, rows, columns, mean),
    )


def best_groups(
    cells: Cells,
    columns: np.ndarray,
    means: np.ndarray,
    log_shares: np.ndarray | None = None,
    rated: bool = False,
) -> np.ndarray:
    """Return the label of the best row group for each new row, int32 (new rows,).

    `cells` contains the cells of the new rows, `columns` the column labels, and `means` (a, b) the
    block means. If `log_shares` (a, b, L) contains the log proportions of levels in each block,
    values are level codes and are compared with these proportions instead. If `rated`, `means`
    contains the proportions of rated pairs, and pairs without a cell are unrated.
    """
    b = means.shape[1]
    if rated:
        rated_share = np.clip(means, 1e-6, 1.0 - 1e-6)  # avoids infinite logarithms
        counts, _ = cells.sums(columns, b)  # (new rows, b): number of rated columns in each group
        group_size = np.bincount(columns, minlength=b)
        # negative log-likelihood of rated and unrated columns
        costs = -counts @ np.log(rated_share).T - (group_size - counts) @ np.log1p(-rated_share).T
    elif log_shares is not None:
        costs = _level_costs(cells, columns, b, log_shares)
    else:
        # weights, and weighted values, by column group
        counts, sums = cells.averaged().sums(columns, b)
        # squared distances, except for a constant in each row
        costs = counts @ (means * means).T - 2.0 * sums @ means.T
    # the group with the smallest cost, or the first of them in case of ties
    return first_largest(-costs).astype(np.int32)


def _level_costs(cells: Cells, columns: np.ndarray, b: int, log_shares: np.ndarray) -> np.ndarray:
    """Return the negative log-likelihood of each row in each row group, shape (rows, a).

    `columns` (J,) contains the column labels, and `log_shares` (a, b, L) the log proportions of
    levels in each block.
    """
    L = log_shares.shape[2]
    # cells of a table with b L columns, which are the pairs of a column group and a level
    group_level = (
        columns[cells.column].astype(np.int64) * L + cells.value.astype(np.int64)
    ).astype(np.int32)
    by_group_level = Cells(
        (cells.shape[0], b * L), cells.start, group_level, cells.value, cells.weight
    )
    counts, _ = by_group_level.sums(np.arange(b * L, dtype=np.int32), b * L)
    return -counts @ log_shares.reshape(len(log_shares), -1).T
