"""Prototype: two-way clustering by prototypes of blocks, rows and columns in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bbl._ext.bicluster import bicluster as kernel
from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import canonical
from bbl.biclustering.starts import one_way, refill
from bbl.parallel import serial_blas, stop_flag

__all__ = ["METRICS", "PrototypeFit", "Table", "alternate", "fit_once", "make_tables"]

METRICS = ("squared", "levels", "pearson")
SLAB = 2**21  # costs (row times group) that are computed at a time
TIE = 1e-10  # costs that differ by less than this share of the mean misfit are equal


class PrototypeFit(NamedTuple):
    """Labels of rows and columns, the objective, its history by half-steps, and whether the alternation converged."""

    rows: np.ndarray
    columns: np.ndarray
    value: float
    history: np.ndarray
    n_iter: int
    converged: bool


class Sums(NamedTuple):
    """Weights and weighted values of each row by column group, (I, b), and of each row group, (a, b)."""

    counts: np.ndarray
    sums: np.ndarray
    block_counts: np.ndarray
    block_sums: np.ndarray


def add_rows(labels: np.ndarray, rows: np.ndarray, groups: int) -> np.ndarray:
    """Return the sum of the rows (n, k) of each group, shape (groups, k)."""
    out = np.empty((groups, rows.shape[1]))
    kernel.add_rows(labels, rows, out)
    return out


@dataclass(frozen=True, eq=False)
class Table:
    """Cells, and the metric by which rows, or columns, are compared with prototypes.

    Attributes
    ----------
    cells : Cells
        One cell for each pair. With the metric "levels" of shape (I, J L), one column for each level, of value 1.
    metric : {"squared", "levels", "pearson"}
    n_levels : int, default 1
        Number of levels L of a cell.
    fill : float, default 0.0
        Prototype of a block without cells; prior count of a block's levels with "levels".
    """

    cells: Cells
    metric: str = "squared"
    n_levels: int = 1
    fill: float = 0.0

    def side(self, axis: int) -> Cells:
        """Return the cells row by row (0) or column by column (1)."""
        return self.cells.T if axis else self.cells

    def size(self, axis: int) -> int:
        """Return the number of rows or columns."""
        return self.cells.shape[axis] // (self.n_levels if axis else 1)

    def misfit(self, axis: int) -> np.ndarray:
        """Return the constant of each row that turns its costs into squared distances from a prototype."""
        if self.metric != "squared":
            return np.zeros(self.size(axis))
        side = self.side(axis)
        return np.bincount(side.row, side.weight * side.value**2, side.shape[0])

    def sums(self, axis: int, labels: np.ndarray, other: np.ndarray, k: int, k_other: int) -> Sums:
        """Add up the cells of each row (or column), and of each of the `k` groups, by the groups of the other side."""
        counts, sums = self.grouped(self.side(axis), axis, other, k_other)
        return Sums(counts, sums, add_rows(labels, counts, k), add_rows(labels, sums, k))

    def grouped(self, side: Cells, axis: int, other: np.ndarray, k_other: int) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and values by groups of the other side; with levels, by level first and then by group."""
        L = self.n_levels
        if L == 1:
            return side.sums(other, k_other)
        if axis:
            counts, sums = side.sums(other, k_other)
            return counts.reshape(-1, L * k_other), sums.reshape(-1, L * k_other)
        group = (np.arange(L) * k_other + other[:, None]).ravel().astype(np.int32)
        return side.sums(group, L * k_other)

    def prototypes(self, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return the mean of each block (or the log of the shares of its levels) from the sums of its group."""
        if self.metric != "levels":
            return np.where(counts > 0.0, sums / np.maximum(counts, 1e-300), self.fill)
        c = (counts + self.fill / self.n_levels).reshape(len(counts), self.n_levels, -1)
        with np.errstate(divide="ignore"):
            return np.log(c / c.sum(axis=1, keepdims=True)).reshape(counts.shape)

    def costs(self, counts: np.ndarray, sums: np.ndarray, prototype: np.ndarray) -> np.ndarray:
        """Return how badly each row fits each prototype, shape (rows, groups)."""
        if self.metric == "levels":
            return -2.0 * (counts @ np.maximum(prototype, -1e9).T)
        A = prototype
        if self.metric == "squared":
            cost = counts @ (A * A).T
            cost -= sums @ (2.0 * A).T
            return cost
        n = counts.sum(axis=1, keepdims=True)
        positive_counts = np.maximum(counts, 1e-300)
        mean_x, mean_a = sums.sum(axis=1, keepdims=True) / n, counts @ A.T / n
        var_x = (sums * sums / positive_counts).sum(axis=1, keepdims=True) / n - mean_x**2
        var_a = counts @ (A * A).T / n - mean_a**2
        scale = np.sqrt(np.maximum(var_x, 0.0) * np.maximum(var_a, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            r = np.where(scale > 1e-12, (sums @ A.T / n - mean_x * mean_a) / scale, 0.0)
        return n * (1.0 - np.clip(r, -1.0, 1.0))

    def objective(self, axis: int, sums: Sums, labels: np.ndarray, other: np.ndarray) -> float:
        """Return the objective of the labels that `sums` was computed with.

        "squared": the sum of squared residuals; "levels": the deviance; "pearson": ``sum n (1 - r)`` over this side.
        """
        A = self.prototypes(sums.block_counts, sums.block_sums)
        if self.metric == "squared":
            return kernel.residual_squares(*self.side(axis).arrays, labels, other, A)
        if self.metric == "levels":
            c = sums.block_counts + self.fill / self.n_levels
            return float(-2.0 * (c * np.where(c > 0.0, A, 0.0)).sum())
        return float(self.costs(sums.counts, sums.sums, A)[np.arange(len(labels)), labels].sum())


def _pattern_costs(table: Table, axis: int, labels, other, k: int, k_other: int, tied: np.ndarray) -> np.ndarray:
    """Return minus the Bernoulli log-likelihood of which cells of the `tied` rows are observed, by group (rows, k)."""
    side = table.side(axis)
    ones = Cells(side.shape, side.start, side.column, side.value, np.ones(side.n))
    n_observed = table.grouped(ones, axis, other, k_other)[0].reshape(len(labels), -1, k_other).sum(axis=1)
    size, width = np.bincount(labels, minlength=k)[:, None], np.bincount(other, minlength=k_other).astype(float)
    rate = (add_rows(labels, n_observed, k) + 0.5) / (size * width + 1.0)
    return -(n_observed[tied] @ np.log(rate).T) - (width - n_observed[tied]) @ np.log1p(-rate).T


def _assign(table: Table, axis: int, sums: Sums, old, other, k_other: int, misfit: np.ndarray):
    """Return the best group of each row, its cost there (n,), and the tolerance within which costs are equal.

    Among equal costs a row stays in its `old` group, unless another fits its pattern of observed cells better.
    """
    A = table.prototypes(sums.block_counts, sums.block_sums)
    k, n = len(A), len(old)
    labels, cost_of = np.empty(n, dtype=np.int32), np.empty(n)
    tolerance = TIE * (float(misfit.mean()) or 1.0)
    complete = len(table.cells.value) == table.size(0) * table.size(1)
    step = max(1, SLAB // k)
    pattern = None
    for first in range(0, n, step):
        row_range = slice(first, min(first + step, n))
        cost = table.costs(sums.counts[row_range], sums.sums[row_range], A)
        positions = np.arange(len(cost))
        least = cost.min(axis=1)
        chosen = np.where(cost[positions, old[row_range]] <= least + tolerance, old[row_range], cost.argmin(axis=1))
        if not complete and k > 1:
            is_best = cost <= (least + tolerance)[:, None]
            tied = np.flatnonzero(is_best.sum(axis=1) > 1)
            if len(tied):
                pattern = _pattern_costs(table, axis, old, other, k, k_other, tied + first)
                pattern[~is_best[tied]] = np.inf
                better = pattern.min(axis=1) < pattern[np.arange(len(tied)), chosen[tied]] - TIE
                chosen[tied] = np.where(better, pattern.argmin(axis=1), chosen[tied])
        labels[row_range], cost_of[row_range] = chosen, cost[positions, chosen] + misfit[row_range]
    return labels, cost_of, tolerance


def _compact(labels: np.ndarray, k: int) -> tuple[np.ndarray, int]:
    """Return labels that number the groups in use 0, 1, ... in their order, and the number of these groups."""
    used = np.bincount(labels, minlength=k) > 0
    return (np.cumsum(used) - 1)[labels].astype(np.int32), int(used.sum())


def alternate(
    table: Table, rows: np.ndarray, columns: np.ndarray, max_iter: int = 100, move: str = "all", empty: str = "reseed"
) -> PrototypeFit:
    """Assign rows, then columns, to the prototypes that fit best, until nothing moves (eqs. 2.1 and 2.2, corrected).

    A row is compared with a prototype over the cells that it has: block means weigh as much as observed cells.

    Parameters
    ----------
    table : Table
    rows, columns : ndarray of int32, shape (I,) and (J,)
        The start, labels 0, 1, ...
    max_iter : int, default 100
    move : {"all", "one"}, default "all"
        Whether all rows move at once, or one after the other with the blocks following each move ("squared" only).
    empty : {"reseed", "drop"}, default "reseed"
        Whether an empty group takes the row that fits worst, or is left out.

    Returns
    -------
    PrototypeFit
        All labels 0..k-1 are in use; k is less than at the start if groups stay empty or are dropped.
    """
    labels = [np.ascontiguousarray(rows, dtype=np.int32), np.ascontiguousarray(columns, dtype=np.int32)]
    k = [int(rows.max()) + 1, int(columns.max()) + 1]
    misfit = [table.misfit(0), table.misfit(1)]
    history: list[float] = []
    best = (np.inf, labels.copy(), k.copy())
    stop, moved, n_iter = stop_flag(), 1, 0
    while moved and n_iter < max_iter and not stop[0]:
        moved, n_iter, values = 0, n_iter + 1, []
        for axis in (0, 1):
            axis_labels, other_labels = labels[axis], labels[1 - axis]
            sums = table.sums(axis, axis_labels, other_labels, k[axis], k[1 - axis])
            if not history:
                history.append(table.objective(axis, sums, axis_labels, other_labels))
            if move == "one":
                new = axis_labels.copy()
                size = np.bincount(axis_labels, minlength=k[axis]).astype(np.int32)
                least, order = TIE * (misfit[axis].mean() or 1.0), np.arange(len(axis_labels))
                moved += kernel.one_by_one(*sums[:2], new, size, *sums[2:], order, least)
            else:
                new, cost, tolerance = _assign(table, axis, sums, axis_labels, other_labels, k[1 - axis], misfit[axis])
                if empty == "reseed":
                    new = refill(new, k[axis], cost, tolerance)
                moved += int((new != axis_labels).sum())
            if empty == "drop":
                new, k[axis] = _compact(new, k[axis])
            labels[axis] = new
            sums = Sums(*sums[:2], *(add_rows(new, sum_table, k[axis]) for sum_table in sums[:2]))
            values.append(table.objective(axis, sums, new, other_labels))
        history += values if table.metric != "pearson" else [sum(values)]
        if table.metric != "pearson" or history[-1] < best[0]:
            best = (history[-1], labels.copy(), k.copy())
    value, labels, k = best  # Pearson's objective may rise: its least value
    (rows, a), (columns, b) = (_compact(axis_labels, size) for axis_labels, size in zip(labels, k, strict=True))
    return PrototypeFit(rows, columns, value, np.array(history), n_iter, not moved)


def make_tables(cells: Cells, metric: str, n_levels: int, fill: float) -> tuple[Table, Cells]:
    """Return the table of the alternation, and the cells in which the starts compare rows and columns.

    The latter has the same cells, but with "levels" one column for each level of a column: 1 for the level that was
    observed, 0 for the others.
    """
    if metric != "levels":
        means = cells.averaged()
        middle = float(np.average(means.value, weights=means.weight))  # centred values: squares lose fewer digits
        unit = 1.0
        if metric == "pearson":  # it does not depend on the scale, and so fourth powers neither vanish nor overflow
            unit = 2.0 ** np.floor(np.log2(np.abs(means.value - middle).max()))
        shifted = Cells(means.shape, means.start, means.column, (means.value - middle) / unit, means.weight)
        return Table(shifted, metric, 1, (fill - middle) / unit), shifted
    level, column = cells.value.astype(np.int64), cells.column.astype(np.int64) * n_levels
    shape = (cells.shape[0], cells.shape[1] * n_levels)
    ones = Cells.from_entries(cells.row, column + level, np.ones(cells.n), cells.weight, shape)
    all_levels = np.tile(np.arange(n_levels), cells.n)
    row, column, level, weight = (
        np.repeat(column_values, n_levels) for column_values in (cells.row, column, level, cells.weight)
    )
    wide = Cells.from_entries(row, column + all_levels, (all_levels == level).astype(float), weight, shape).averaged()
    return Table(ones, metric, n_levels, fill), wide


def fit_once(table: Table, wide: Cells, groups: tuple[int, int], seed: int, options: dict) -> PrototypeFit:
    """Fit from one random start: one-way clusterings of the rows and of the columns of `wide`.

    Parameters
    ----------
    table : Table
    wide : Cells
        As of `make_tables`.
    groups : (int, int)
    seed : int
    options : dict
        For `alternate`.
    """
    rng = np.random.default_rng(seed)
    with serial_blas():
        rows = one_way(wide, groups[0], rng)
        columns = one_way(_tall(wide, table.n_levels), groups[1], rng)
        solution = alternate(table, rows, columns, **options)
    return solution._replace(rows=canonical(solution.rows), columns=canonical(solution.columns))


def _tall(wide: Cells, n_levels: int) -> Cells:
    """Return the transposed table: cells of shape (I, J L) become cells of shape (J, I L)."""
    if n_levels == 1:
        return wide.T
    column, level = np.divmod(wide.column, n_levels)
    row = wide.row * np.int64(n_levels) + level
    return Cells.from_entries(
        column, row, wide.value, wide.weight, (wide.shape[1] // n_levels, wide.shape[0] * n_levels)
    )
