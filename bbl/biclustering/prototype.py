"""Two-way clustering by prototypes: rows, then columns, go in turn to the group whose block
prototypes fit best.

A table has I rows, axis 0, and J columns, axis 1. The n lines (rows or columns) of the axis that
moves have k groups, those of the other axis k_other groups. A block is a group of rows by a group
of columns; its prototype is the mean of its cells, or the log shares of their levels. A pair is a
row and a column; L is the number of levels of a categorical cell, 1 for numeric cells. `Cells` are
n observed cells sorted by row, with `row`, `column`, `value` and `weight`, (n,) each; `start` (I +
1,) is the first cell of each row, `T` the transposed table, `arrays` (start, column, value,
weight). Its `sums` adds up weights, and weights times values, of each row by group of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bbl._ext.bicluster import bicluster as kernel
from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import canonical
from bbl.biclustering.starts import Starts, refill_empty_groups
from bbl.errors import DataError
from bbl.parallel import serial_blas, stop_flag

__all__ = ["METRICS", "PrototypeFit", "Table", "alternate", "fit_once", "make_tables"]

METRICS = ("squared", "levels", "pearson")
COSTS_PER_CHUNK = 2**21  # costs (rows times groups) that are computed at a time: 16 MiB
# costs are equal if they differ by less than this share of the mean over rows of `Table.misfit`
TIE = 1e-10


class PrototypeFit(NamedTuple):
    """Result of `alternate`.

    Attributes
    ----------
    rows, columns : ndarray of int32, shape (I,) and (J,)
        Labels of the groups.
    value : float
        Objective, see `Table.objective`.
    history : ndarray
        Objective of the start, then after each half-step, which moves rows or columns; with
        "pearson", after each iteration the sum over both half-steps.
    n_iter : int
    converged : bool
        Whether nothing moved in the last iteration.
    """

    rows: np.ndarray
    columns: np.ndarray
    value: float
    history: np.ndarray
    n_iter: int
    converged: bool


class Sums(NamedTuple):
    """Sums of the cells of each line by group of the other axis; with "levels" by level, then by
    group.
    """

    counts: np.ndarray  # weights of each line, (n, L k_other)
    sums: np.ndarray  # weighted values of each line, (n, L k_other)
    block_counts: np.ndarray  # weights of each group of lines, (k, L k_other)
    block_sums: np.ndarray  # weighted values of each group of lines, (k, L k_other)


def add_rows(labels: np.ndarray, rows: np.ndarray, groups: int) -> np.ndarray:
    """Return the sums (groups, width) of `rows` (n, width) over each group; `labels` (n,) are those
    of the rows.
    """
    out = np.empty((groups, rows.shape[1]))
    kernel.add_rows(labels, rows, out)
    return out


@dataclass(frozen=True, eq=False)
class Table:
    """Cells, and the metric by which rows and columns are compared with prototypes.

    Attributes
    ----------
    cells : Cells
        One cell for each observed pair. With the metric "levels" the shape is (I, J L), the columns
        are levels of columns, and all values are 1: one cell for each level of an observed pair.
    metric : {"squared", "levels", "pearson"}
    n_levels : int, default 1
        Number of levels L of a cell.
    fill : float, default 0.0
        Prototype of a block without cells; with "levels" the prior count, spread over the levels of
        a block.
    """

    cells: Cells
    metric: str = "squared"
    n_levels: int = 1
    fill: float = 0.0

    @cached_property
    def pairs(self) -> Cells:
        """The observed pairs, as cells of shape (I, J) with value and weight 1.

        With "levels" a pair that was observed with several levels has several of the table's cells.
        """
        shape = self.cells.shape[0], self.cells.shape[1] // self.n_levels
        pairs = np.unique(self.cells.row * np.int64(shape[1]) + self.cells.column // self.n_levels)
        row, column = np.divmod(pairs, shape[1])
        ones = np.ones(len(pairs))
        return Cells.from_entries(row, column, ones, ones, shape)

    def side(self, axis: int) -> Cells:
        """Return the cells row by row if `axis` is 0, column by column if it is 1."""
        return self.cells.T if axis else self.cells

    def size(self, axis: int) -> int:
        """Return the number n of rows (0) or columns (1)."""
        # columns of `cells` are levels of columns
        return self.cells.shape[axis] // (self.n_levels if axis else 1)

    def misfit(self, axis: int) -> np.ndarray:
        """Return the part of each line's cost (n,) that is the same in all groups, and that `costs`
        leaves out.

        With "squared" it is the weighted sum of squares, else 0.
        """
        if self.metric != "squared":
            return np.zeros(self.size(axis))
        side = self.side(axis)
        return np.bincount(side.row, side.weight * side.value**2, side.shape[0])

    def sums(self, axis: int, labels: np.ndarray, other: np.ndarray, k: int, k_other: int) -> Sums:
        """Return the sums of the cells of an axis; `labels` (n,) are its labels, `other` those of
        the other axis.
        """
        counts, sums = self.grouped(self.side(axis), axis, other, k_other)
        return Sums(counts, sums, add_rows(labels, counts, k), add_rows(labels, sums, k))

    def grouped(
        self, side: Cells, axis: int, other: np.ndarray, k_other: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and weighted values of each line, each (n, L k_other), by level, then by
        group of `other`.

        `side` holds the cells of `side(axis)`; `other` are the labels of the other axis.
        """
        L = self.n_levels
        if L == 1:
            return side.sums(other, k_other)
        if axis:  # lines of the cells are levels of columns: L after each other for each column
            # (J L, k_other): L rows of a column become one row
            counts, sums = side.sums(other, k_other)
            return counts.reshape(-1, L * k_other), sums.reshape(-1, L * k_other)
        # a column of the cells is a level of a column of the table: its group is the level and the
        # column's group
        group = (np.arange(L) * k_other + other[:, None]).ravel().astype(np.int32)
        return side.sums(group, L * k_other)

    def prototypes(self, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return the prototypes (k, L k_other): the mean of each block, or the log shares of its
        levels.

        `counts` and `sums` (k, L k_other) are the sums of groups of lines.
        """
        if self.metric != "levels":
            return np.where(counts > 0.0, sums / np.maximum(counts, 1e-300), self.fill)
        smoothed = (counts + self.fill / self.n_levels).reshape(len(counts), self.n_levels, -1)
        with np.errstate(divide="ignore"):
            return np.log(smoothed / smoothed.sum(axis=1, keepdims=True)).reshape(counts.shape)

    def costs(self, counts: np.ndarray, sums: np.ndarray, prototype: np.ndarray) -> np.ndarray:
        """Return the cost of each line in each group, (n, k), from sums (n, L k_other) and
        prototypes (k, L k_other).

        "squared": squared distance less `misfit`; "levels": deviance; "pearson": the line's weight
        times (1 - r).
        """
        if self.metric == "levels":
            # the logarithm of a share of 0 becomes finite, as counts of 0 are multiplied with it
            return -2.0 * (counts @ np.maximum(prototype, -1e9).T)
        A = prototype  # as in the formulas of `alternate`
        if self.metric == "squared":
            cost = counts @ (A * A).T
            cost -= sums @ (2.0 * A).T
            return cost
        # weighted correlation r of a line's means x by group of the other axis and the prototype a
        # of each group
        weight = counts.sum(axis=1, keepdims=True)
        positive_counts = np.maximum(counts, 1e-300)
        mean_x = sums.sum(axis=1, keepdims=True) / weight
        mean_a = counts @ A.T / weight
        var_x = (sums * sums / positive_counts).sum(axis=1, keepdims=True) / weight - mean_x**2
        var_a = counts @ (A * A).T / weight - mean_a**2
        scale = np.sqrt(np.maximum(var_x, 0.0) * np.maximum(var_a, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            # 0 where the line or the prototype is constant, for values of about 1, see
            # `make_tables`
            r = np.where(scale > 1e-12, (sums @ A.T / weight - mean_x * mean_a) / scale, 0.0)
        return weight * (1.0 - np.clip(r, -1.0, 1.0))

    def objective(self, axis: int, sums: Sums, labels: np.ndarray, other: np.ndarray) -> float:
        """Return the objective of `labels` of an axis and `other` of the other one, from which
        `sums` were computed.

        "squared": the sum of squared residuals; "levels": the deviance of counts plus prior counts;
        "pearson": the sum of the costs on this axis.
        """
        A = self.prototypes(sums.block_counts, sums.block_sums)  # (k, L k_other)
        if self.metric == "squared":
            return kernel.residual_squares(*self.side(axis).arrays, labels, other, A)
        if self.metric == "levels":
            smoothed = sums.block_counts + self.fill / self.n_levels
            return float(-2.0 * (smoothed * np.where(smoothed > 0.0, A, 0.0)).sum())
        return float(self.costs(sums.counts, sums.sums, A)[np.arange(len(labels)), labels].sum())


def _pattern_costs(
    table: Table, axis: int, labels, other, k: int, k_other: int, tied: np.ndarray
) -> np.ndarray:
    """Return minus the log-likelihood of the pattern of observed pairs of lines `tied` in each
    group, (len(tied), k).

    Whether a pair is observed is a Bernoulli variable with one rate for each block. `labels` (n,)
    are those of the axis, `other` those of the other axis.
    """
    # (n, k_other): observed pairs of each line by group of the other axis
    n_observed = (table.pairs.T if axis else table.pairs).sums(other, k_other)[0]
    size = np.bincount(labels, minlength=k)[:, None]
    size_other = np.bincount(other, minlength=k_other).astype(float)
    # between 0 and 1 in empty blocks too
    rate = (add_rows(labels, n_observed, k) + 0.5) / (size * size_other + 1.0)
    return (
        -(n_observed[tied] @ np.log(rate).T) - (size_other - n_observed[tied]) @ np.log1p(-rate).T
    )


def _assign_lines(
    table: Table,
    axis: int,
    sums: Sums,
    old: np.ndarray,
    other: np.ndarray,
    k_other: int,
    misfit: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the best group of each line (n,), its cost there (n,), and the tolerance within which
    costs are equal.

    Among equal costs a line stays in its `old` group (n,), unless another group fits its pattern of
    observed cells better. `other` holds the labels of the other axis, `misfit` (n,) is that of
    `Table.misfit`.
    """
    prototypes = table.prototypes(sums.block_counts, sums.block_sums)
    k = len(prototypes)
    n = len(old)
    labels = np.empty(n, dtype=np.int32)
    label_costs = np.empty(n)
    # 1: the misfit is 0 with other metrics than "squared"
    tolerance = TIE * (float(misfit.mean()) or 1.0)
    is_complete = table.pairs.n == table.size(0) * table.size(1)  # then patterns tell nothing
    step = max(1, COSTS_PER_CHUNK // k)
    for first in range(0, n, step):
        chunk = slice(first, min(first + step, n))
        cost = table.costs(sums.counts[chunk], sums.sums[chunk], prototypes)
        positions = np.arange(len(cost))
        least = cost.min(axis=1)
        chosen = np.where(
            cost[positions, old[chunk]] <= least + tolerance, old[chunk], cost.argmin(axis=1)
        )
        if not is_complete and k > 1:
            is_best = cost <= (least + tolerance)[:, None]
            tied = np.flatnonzero(is_best.sum(axis=1) > 1)
            if len(tied):
                pattern_cost = _pattern_costs(table, axis, old, other, k, k_other, tied + first)
                pattern_cost[~is_best[tied]] = np.inf
                # a line moves if another group is better by more than rounding
                is_better = (
                    pattern_cost.min(axis=1)
                    < pattern_cost[np.arange(len(tied)), chosen[tied]] - TIE
                )
                chosen[tied] = np.where(is_better, pattern_cost.argmin(axis=1), chosen[tied])
        labels[chunk] = chosen
        label_costs[chunk] = cost[positions, chosen] + misfit[chunk]
    return labels, label_costs, tolerance


def _drop_empty(labels: np.ndarray, k: int) -> tuple[np.ndarray, int]:
    """Return labels that skip the empty ones of `k` groups, in the same order, and the number of
    groups in use.
    """
    used = np.bincount(labels, minlength=k) > 0
    return (np.cumsum(used) - 1)[labels].astype(np.int32), int(used.sum())


def alternate(
    table: Table,
    rows: np.ndarray,
    columns: np.ndarray,
    max_iter: int = 100,
    move: str = "all",
    empty: str = "reseed",
) -> PrototypeFit:
    """Assign rows, then columns, to the groups of least cost, until nothing moves (Li 2014, eqs.
    2.1 and 2.2).

    The equations are corrected: a row is compared with prototypes over its observed cells only,
    ``sum_h n_ih (A_gh - mean_ih)^2`` over the groups h of columns, where n_ih counts the cells of
    row i in h, and mean_ih is their mean.

    Parameters
    ----------
    table : Table
    rows, columns : ndarray of int32, shape (I,) and (J,)
        Labels 0, 1, ... of the start.
    max_iter : int, default 100
    move : {"all", "one"}, default "all"
        Whether all lines of an axis move at once, or one after the other with the blocks following
        each move ("squared" only).
    empty : {"reseed", "drop"}, default "reseed"
        Whether an empty group takes the line that fits worst, or is left out.

    Returns
    -------
    PrototypeFit
        All labels 0, 1, ... are in use; groups that stayed empty or were dropped are left out.
    """
    labels = [
        np.ascontiguousarray(rows, dtype=np.int32),
        np.ascontiguousarray(columns, dtype=np.int32),
    ]
    k = [int(rows.max()) + 1, int(columns.max()) + 1]
    misfit = [table.misfit(0), table.misfit(1)]
    history: list[float] = []
    # objective, labels and numbers of groups of the best iteration
    best = (np.inf, labels.copy(), k.copy())
    # n_moves: of the last iteration, 1 to begin with
    stop = stop_flag()
    n_moves = 1
    n_iter = 0
    while n_moves and n_iter < max_iter and not stop[0]:
        # values: objectives after both half-steps
        n_moves = 0
        n_iter = n_iter + 1
        values = []
        for axis in (0, 1):
            axis_labels = labels[axis]
            other_labels = labels[1 - axis]
            sums = table.sums(axis, axis_labels, other_labels, k[axis], k[1 - axis])
            if not history:  # the objective of the start
                history.append(table.objective(axis, sums, axis_labels, other_labels))
            if move == "one":
                moved = axis_labels.copy()
                size = np.bincount(axis_labels, minlength=k[axis]).astype(np.int32)
                # a move has to lower the objective by more than `least_gain`; lines are visited by
                # position
                least_gain = TIE * (misfit[axis].mean() or 1.0)
                order = np.arange(len(axis_labels))
                # the kernel updates the labels `moved`, `size`, and the sums of groups, sums[2:],
                # in place, and never empties a group; sums[:2] are those of lines
                n_moves += kernel.one_by_one(*sums[:2], moved, size, *sums[2:], order, least_gain)
            else:
                moved, cost, tolerance = _assign_lines(
                    table, axis, sums, axis_labels, other_labels, k[1 - axis], misfit[axis]
                )
                if empty == "reseed":
                    moved = refill_empty_groups(moved, k[axis], cost, tolerance)
                n_moves += int((moved != axis_labels).sum())
            if empty == "drop":
                moved, k[axis] = _drop_empty(moved, k[axis])
            labels[axis] = moved
            # the sums of lines stay, those of groups change
            sums = Sums(*sums[:2], *(add_rows(moved, sum_table, k[axis]) for sum_table in sums[:2]))
            values.append(table.objective(axis, sums, moved, other_labels))
        history += values if table.metric != "pearson" else [sum(values)]
        if table.metric != "pearson" or history[-1] < best[0]:
            best = (history[-1], labels.copy(), k.copy())
    # the last iteration, or with "pearson", whose objective may rise, the one of least value
    value, labels, k = best
    (rows, a), (columns, b) = (
        _drop_empty(axis_labels, size) for axis_labels, size in zip(labels, k, strict=True)
    )
    return PrototypeFit(rows, columns, value, np.array(history), n_iter, converged=not n_moves)


def make_tables(cells: Cells, metric: str, n_levels: int, fill: float) -> tuple[Table, Cells]:
    """Return the table for `alternate`, and the cells for its `Starts`.

    `fill` is as in `Table`. The cells for the starts are the table's cells, but with "levels" an
    observed cell becomes L cells, 1 at its level and 0 at the others.

    Raises
    ------
    DataError
        If all averages of pairs are equal, with "pearson".
    """
    if metric != "levels":
        means = cells.averaged()
        # centred values: squares lose fewer digits
        center = float(np.average(means.value, weights=means.weight))
        unit = 1.0
        # correlations do not change; products of two variances, fourth powers, neither vanish nor
        # overflow. A power of two divides exactly
        if metric == "pearson":
            spread = np.ptp(means.value)
            rounding = np.spacing(np.abs(means.value).max())
            # a table of one value is refused before, but not one of equal averages
            if spread <= 4.0 * rounding:
                raise DataError(
                    "metric='pearson': the averages of repeated pairs are all equal, so "
                    "correlations are undefined.",
                    argument="metric",
                    hint="Give metric='squared', or 'levels' if the response has few values.",
                )
            unit = 2.0 ** np.floor(np.log2(np.abs(means.value - center).max()))
        scaled = Cells(
            means.shape, means.start, means.column, (means.value - center) / unit, means.weight
        )
        return Table(scaled, metric, 1, (fill - center) / unit), scaled
    # the columns of the new cells are levels of columns
    level = cells.value.astype(np.int64)
    column = cells.column.astype(np.int64) * n_levels
    shape = (cells.shape[0], cells.shape[1] * n_levels)
    ones = Cells.from_entries(cells.row, column + level, np.ones(cells.n), cells.weight, shape)
    all_levels = np.tile(np.arange(n_levels), cells.n)
    row, column, level, weight = (
        np.repeat(entries, n_levels) for entries in (cells.row, column, level, cells.weight)
    )
    is_level = (all_levels == level).astype(float)
    # `averaged`: a pair with several values has their shares
    indicators = Cells.from_entries(row, column + all_levels, is_level, weight, shape).averaged()
    return Table(ones, metric, n_levels, fill), indicators


def fit_once(
    table: Table, starts: Starts, groups: tuple[int, int], seed: int, options: dict
) -> PrototypeFit:
    """Fit from one start: one-way clusterings of the rows and of the columns.

    `starts` are of the cells that `make_tables` returns with `table`; `options` holds the keyword
    arguments of `alternate`.
    """
    rng = np.random.default_rng(seed)
    with serial_blas():  # so that results do not depend on the number of threads
        rows = starts.labels(0, groups[0], rng)
        columns = starts.labels(1, groups[1], rng)
        solution = alternate(table, rows, columns, **options)
    return solution._replace(rows=canonical(solution.rows), columns=canonical(solution.columns))
