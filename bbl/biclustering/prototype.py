"""Two-way clustering by prototypes: rows and columns are assigned to groups alternately.

A *line* is a row or a column of the table.
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

# A table has I rows (axis 0) and J columns (axis 1). The n lines (rows or columns) of the axis that
# is being assigned have k groups; the other axis has k_other groups. The prototype of a block is
# the mean of its cells, or the log proportions of their levels. L is the number of levels of a
# categorical cell, and 1 for numeric cells.

METRICS = ("squared", "levels", "pearson")
# maximum number of costs (rows times groups) that are computed at a time: 16 MiB
COSTS_PER_CHUNK = 2**21
# costs are tied if they differ by less than this proportion of the mean `Table.misfit` over rows
TIE = 1e-10


class PrototypeFit(NamedTuple):
    """Result of `alternate`.

    Attributes
    ----------
    rows, columns : ndarray of int32, shape (I,) and (J,)
        Labels of the groups.
    value : float
        Objective; see `Table.objective`.
    history : ndarray
        Objective at the start and after each half-step, which moves either rows or columns; with
        "pearson", the sum over both half-steps after each iteration.
    n_iter : int
    converged : bool
        Whether no row or column was moved in the last iteration.
    """

    rows: np.ndarray
    columns: np.ndarray
    value: float
    history: np.ndarray
    n_iter: int
    converged: bool


class Sums(NamedTuple):
    """Sums over the cells of each row or column by group of the other axis; with "levels", also by
    level.
    """

    counts: np.ndarray  # weights of each line, (n, L k_other)
    sums: np.ndarray  # weighted values of each line, (n, L k_other)
    block_counts: np.ndarray  # weights of each group of lines, (k, L k_other)
    block_sums: np.ndarray  # weighted values of each group of lines, (k, L k_other)


def add_rows(labels: np.ndarray, rows: np.ndarray, groups: int) -> np.ndarray:
    """Return the sums (groups, width) of `rows` (n, width) over the groups with labels (n,)."""
    out = np.empty((groups, rows.shape[1]))
    kernel.add_rows(labels, rows, out)
    return out


@dataclass(frozen=True, eq=False)
class Table:
    """Cells, and the metric that compares rows and columns with prototypes.

    Attributes
    ----------
    cells : Cells
        One cell for each observed pair. With the metric "levels", the shape is (I, J L): each
        column represents one level of a column of the table. All values are 1, and each observed
        level of a pair has a cell.
    metric : {"squared", "levels", "pearson"}
    n_levels : int, default 1
        Number of levels L of a cell.
    fill : float, default 0.0
        Prototype of blocks without cells; with "levels", the prior count that is divided among the
        levels of a block.
    """

    cells: Cells
    metric: str = "squared"
    n_levels: int = 1
    fill: float = 0.0

    @cached_property
    def pairs(self) -> Cells:
        """The observed pairs, represented by an I x J table of cells with value 1 and weight 1.

        With "levels", a pair that was observed with several levels has several cells in the table.
        """
        shape = self.cells.shape[0], self.cells.shape[1] // self.n_levels
        row = self.cells.row
        column = self.cells.column // self.n_levels
        is_new = np.ones(len(row), dtype=bool)  # whether a cell is the first of its pair
        is_new[1:] = (np.diff(row) != 0) | (np.diff(column) != 0)
        ones = np.ones(int(is_new.sum()))
        return Cells.from_sorted(row[is_new], column[is_new], ones, ones, shape)

    def side(self, axis: int) -> Cells:
        """Return the cells by row (axis 0) or by column (axis 1)."""
        return self.cells.T if axis else self.cells

    def size(self, axis: int) -> int:
        """Return the number n of rows (axis 0) or columns (axis 1)."""
        # the columns of `cells` are levels of the columns of the table
        return self.cells.shape[axis] // (self.n_levels if axis else 1)

    def misfit(self, axis: int) -> np.ndarray:
        """Return the part of each line's cost that is the same for all groups, shape (n,).

        This part is not included in `costs`.

        With "squared", this is the weighted sum of squares; otherwise, it is 0.
        """
        if self.metric != "squared":
            return np.zeros(self.size(axis))
        side = self.side(axis)
        return np.bincount(side.row, side.weight * side.value**2, side.shape[0])

    def sums(self, axis: int, labels: np.ndarray, other: np.ndarray, k: int, k_other: int) -> Sums:
        """Return the sums for an axis with `labels` (n,), given the labels `other` of the other
        axis.
        """
        counts, sums = self.grouped(self.side(axis), axis, other, k_other)
        return Sums(counts, sums, add_rows(labels, counts, k), add_rows(labels, sums, k))

    def grouped(
        self, side: Cells, axis: int, other: np.ndarray, k_other: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights and the weighted values of each line (n, L k_other), by level and
        group of `other`.

        `side` is the result of ``side(axis)``; `other` contains the labels of the other axis.
        """
        L = self.n_levels
        if L == 1:
            return side.sums(other, k_other)
        if axis:  # lines are levels of columns, with L consecutive lines for each column
            # (J L, k_other): the L rows of a column are combined into one row
            counts, sums = side.sums(other, k_other)
            return counts.reshape(-1, L * k_other), sums.reshape(-1, L * k_other)
        # a column of the cells is a level of a column of the table; its group is a combination of
        # the level and the group of the column
        group = (np.arange(L) * k_other + other[:, None]).ravel().astype(np.int32)
        return side.sums(group, L * k_other)

    def prototypes(self, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return the prototypes (k, L k_other): block means, or log proportions of levels.

        `counts` and `sums` (k, L k_other) are sums over groups of lines.
        """
        if self.metric != "levels":
            return np.where(counts > 0.0, sums / np.maximum(counts, 1e-300), self.fill)
        smoothed = (counts + self.fill / self.n_levels).reshape(len(counts), self.n_levels, -1)
        with np.errstate(divide="ignore"):
            return np.log(smoothed / smoothed.sum(axis=1, keepdims=True)).reshape(counts.shape)

    def costs(self, counts: np.ndarray, sums: np.ndarray, prototype: np.ndarray) -> np.ndarray:
        """Return the cost of each line in each group, shape (n, k).

        The cost is computed from sums (n, L k_other) and prototypes (k, L k_other).

        "squared": squared distance minus `misfit`; "levels": deviance; "pearson": the weight of the
        line times (1 - r).
        """
        if self.metric == "levels":
            # avoids an infinite log of a proportion of 0, because it is multiplied by counts of 0
            return -2.0 * (counts @ np.maximum(prototype, -1e9).T)
        A = prototype  # named as in the formulas of `alternate`
        if self.metric == "squared":
            cost = counts @ (A * A).T
            cost -= sums @ (2.0 * A).T
            return cost
        # weighted correlation r between a line's means x, by group of the other axis, and the
        # prototype a of each group
        weight = counts.sum(axis=1, keepdims=True)
        positive_counts = np.maximum(counts, 1e-300)
        mean_x = sums.sum(axis=1, keepdims=True) / weight
        mean_a = counts @ A.T / weight
        var_x = (sums * sums / positive_counts).sum(axis=1, keepdims=True) / weight - mean_x**2
        var_a = counts @ (A * A).T / weight - mean_a**2
        scale = np.sqrt(np.maximum(var_x, 0.0) * np.maximum(var_a, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            # 0 if the line or the prototype is constant; values are of the order of 1, see
            # `make_tables`
            r = np.where(scale > 1e-12, (sums @ A.T / weight - mean_x * mean_a) / scale, 0.0)
        return weight * (1.0 - np.clip(r, -1.0, 1.0))

    def objective(self, axis: int, sums: Sums, labels: np.ndarray, other: np.ndarray) -> float:
        """Return the objective for `labels` of one axis and labels `other` of the other axis.

        `sums` contains the sums for these labels.

        "squared": sum of squared residuals; "levels": deviance of counts plus prior counts;
        "pearson": sum of the costs on this axis.
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
    """Return the negative log-likelihood of the observation pattern of the `tied` lines in each
    group.

    The result has shape (len(tied), k). Whether a pair is observed is modelled as a Bernoulli
    variable with one rate for each block. `labels` (n,) contains the labels of the axis, and
    `other` those of the other axis.
    """
    # (n, k_other): observed pairs of each line by group of the other axis
    n_observed = (table.pairs.T if axis else table.pairs).sums(other, k_other)[0]
    size = np.bincount(labels, minlength=k)[:, None]
    size_other = np.bincount(other, minlength=k_other).astype(float)
    # this is also between 0 and 1 in empty blocks
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
    """Return the best group of each line (n,), the cost of the line (n,), and the tolerance for
    tied costs.

    If costs are tied, a line remains in its `old` group (n,), unless another group fits its pattern
    of observed cells better. `other` contains the labels of the other axis, and `misfit` (n,) is
    `Table.misfit`.
    """
    prototypes = table.prototypes(sums.block_counts, sums.block_sums)
    k = len(prototypes)
    n = len(old)
    labels = np.empty(n, dtype=np.int32)
    label_costs = np.empty(n)
    # 1 is used because the misfit is 0 for metrics other than "squared"
    tolerance = TIE * (float(misfit.mean()) or 1.0)
    # patterns contain no information if all pairs are observed
    is_complete = table.pairs.n == table.size(0) * table.size(1)
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
                # a line moves only if the cost of another group is smaller by more than rounding
                # errors
                is_better = (
                    pattern_cost.min(axis=1)
                    < pattern_cost[np.arange(len(tied)), chosen[tied]] - TIE
                )
                chosen[tied] = np.where(is_better, pattern_cost.argmin(axis=1), chosen[tied])
        labels[chunk] = chosen
        label_costs[chunk] = cost[positions, chosen] + misfit[chunk]
    return labels, label_costs, tolerance


def _drop_empty(labels: np.ndarray, k: int) -> tuple[np.ndarray, int]:
    """Renumber `labels` without empty groups; return them and the number of remaining groups."""
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
    """Assign rows and columns alternately to the groups with the smallest cost, until no row or
    column moves.

    The equations of Li (2014, eqs. 2.1 and 2.2) are corrected: a row is compared with prototypes
    only over its observed cells, by ``sum_h n_ih (A_gh - mean_ih)^2``. The sum is over the column
    groups h, n_ih is the number of cells of row i in h, and mean_ih is their mean.

    Parameters
    ----------
    table : Table
    rows, columns : ndarray of int32, shape (I,) and (J,)
        Initial labels 0, 1, ...
    max_iter : int, default 100
    move : {"all", "one"}, default "all"
        Whether all lines of the axis are moved at once, or one after another with blocks updated
        after each move (only for "squared").
    empty : {"reseed", "drop"}, default "reseed"
        Whether an empty group receives the worst-fitting line or is dropped.

    Returns
    -------
    PrototypeFit
        The fit. Labels are 0, 1, ... without gaps; groups that remained empty or were dropped are
        not included.
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
    # number of moves in the last iteration; initially 1
    stop = stop_flag()
    n_moves = 1
    n_iter = 0
    while n_moves and n_iter < max_iter and not stop[0]:
        # values: the objectives after both half-steps
        n_moves = 0
        n_iter = n_iter + 1
        values = []
        for axis in (0, 1):
            axis_labels = labels[axis]
            other_labels = labels[1 - axis]
            sums = table.sums(axis, axis_labels, other_labels, k[axis], k[1 - axis])
            if not history:  # the objective at the start
                history.append(table.objective(axis, sums, axis_labels, other_labels))
            if move == "one":
                moved = axis_labels.copy()
                size = np.bincount(axis_labels, minlength=k[axis]).astype(np.int32)
                # a move must decrease the objective by more than `least_gain`; lines are visited by
                # position
                least_gain = TIE * (misfit[axis].mean() or 1.0)
                order = np.arange(len(axis_labels))
                # the kernel updates the labels `moved`, `size` and the group sums sums[2:] in
                # place, and never empties a group; sums[:2] are the sums of lines
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
            # the sums of lines do not change, but the sums of groups do
            sums = Sums(*sums[:2], *(add_rows(moved, sum_table, k[axis]) for sum_table in sums[:2]))
            values.append(table.objective(axis, sums, moved, other_labels))
        history += values if table.metric != "pearson" else [sum(values)]
        if table.metric != "pearson" or history[-1] < best[0]:
            best = (history[-1], labels.copy(), k.copy())
    # the last iteration or, with "pearson", the best one, because the objective may increase
    value, labels, k = best
    (rows, a), (columns, b) = (
        _drop_empty(axis_labels, size) for axis_labels, size in zip(labels, k, strict=True)
    )
    return PrototypeFit(rows, columns, value, np.array(history), n_iter, converged=not n_moves)


def make_tables(cells: Cells, metric: str, n_levels: int, fill: float) -> tuple[Table, Cells]:
    """Return the table for `alternate`, and the cells for its `Starts`.

    `fill` is the same as in `Table`. The cells for the starts are the table's cells. With "levels",
    each observed cell is replaced by L cells, with 1 at its level and 0 at the other levels.

    Raises
    ------
    DataError
        With "pearson", if the averages of all pairs are equal.
    """
    if metric != "levels":
        means = cells.averaged()
        # centre values, so that fewer digits are lost in squares
        center = float(np.average(means.value, weights=means.weight))
        unit = 1.0
        # scaling does not change correlations, and prevents underflow and overflow in products of
        # two variances (fourth powers). Division by a power of two is exact
        if metric == "pearson":
            spread = np.ptp(means.value)
            rounding = np.spacing(np.abs(means.value).max())
            # constant tables raise an error earlier, but tables with equal averages do not
            if spread <= 4.0 * rounding:
                raise DataError(
                    "metric='pearson': after averaging repeated pairs, all values are equal, so "
                    "correlations are undefined.",
                    argument="metric",
                    hint="Use metric='squared', or 'levels' if the response has few values.",
                )
            unit = 2.0 ** np.floor(np.log2(np.abs(means.value - center).max()))
        scaled = Cells(
            means.shape, means.start, means.column, (means.value - center) / unit, means.weight
        )
        return Table(scaled, metric, 1, (fill - center) / unit), scaled
    # the columns of the new cells are levels of the columns
    level = cells.value.astype(np.int64)
    column = cells.column.astype(np.int64) * n_levels
    shape = (cells.shape[0], cells.shape[1] * n_levels)
    ones = Cells.from_entries(cells.row, column + level, np.ones(cells.n), cells.weight, shape)
    all_levels = np.tile(np.arange(n_levels), cells.n)
    row, column, level, weight = (
        np.repeat(entries, n_levels) for entries in (cells.row, column, level, cells.weight)
    )
    is_level = (all_levels == level).astype(float)
    # `averaged`: a pair with several values is replaced by the proportions of these values
    indicators = Cells.from_entries(row, column + all_levels, is_level, weight, shape).averaged()
    return Table(ones, metric, n_levels, fill), indicators


def fit_once(
    table: Table, starts: Starts, groups: tuple[int, int], seed: int, options: dict
) -> PrototypeFit:
    """Run the algorithm from a single start, which consists of separate clusterings of rows and
    columns.

    `starts` is created from the cells that `make_tables` returned together with `table`; `options`
    contains keyword arguments of `alternate`.
    """
    rng = np.random.default_rng(seed)
    with serial_blas():  # results then do not depend on the number of threads
        rows = starts.labels(0, groups[0], rng)
        columns = starts.labels(1, groups[1], rng)
        solution = alternate(table, rows, columns, **options)
    return solution._replace(rows=canonical(solution.rows), columns=canonical(solution.columns))
