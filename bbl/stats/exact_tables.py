"""Exact test of independence in a table of counts, by enumeration of all tables with the same
margins.
"""

from __future__ import annotations

import numpy as np

__all__ = ["enumerated_p"]

ROUNDING = 1e-11  # relative rounding error of statistics
MAX_STATES = 5_000  # with more partial tables, those with nearly equal statistics are merged
# sums of n ln n within a bin of this width are merged to their mean, which changes p by less than
# 1e-4 of its value
BIN = 0.01
MAX_BOUNDS = 5 * 10**7  # maximum number of steps for bounds on the completions of two rows


def enumerated_p(table: np.ndarray, budget: int) -> float | None:
    """Return the exact p-value of the likelihood ratio statistic of a table, given its margins.

    Returns None if more than `budget` partial tables would be required.

    Tables with the same margins are filled column by column. Partial tables with the same remaining
    row sums and the same statistic are merged. Partial tables are dropped if none of their
    completions reaches the observed statistic, and counted immediately if all do (the network
    algorithm of Mehta & Patel 1983, JASA 78). Small p-values therefore require few steps. If there
    are many partial tables, tables with nearly equal statistics are also merged. At least three
    digits of p remain correct.

    Parameters
    ----------
    table : ndarray, shape (K, L)
        Integer counts, without empty rows or columns.
    budget : int

    Examples
    --------
    >>> round(enumerated_p(np.array([[3, 1, 0], [0, 5, 4]]), 1000), 4)
    0.0154
    """
    from scipy.special import gammaln, xlogy

    # the state of a partial table is its remaining row sums, so use the shorter margin for rows
    counts = np.rint(table if table.shape[0] <= table.shape[1] else table.T).astype(np.int64)
    # larger columns first, as they leave fewer possible remaining row sums
    counts = counts[:, np.argsort(-counts.sum(axis=0), kind="stable")]
    columns = counts.sum(axis=0)
    if columns.sum() > budget:
        return None
    log_factorial = gammaln(np.arange(counts.sum() + 1.0) + 1.0)
    n_log_n = xlogy(np.arange(counts.sum() + 1.0), np.arange(counts.sum() + 1.0))
    observed = n_log_n[counts].sum()
    observed -= ROUNDING * max(observed, 1.0)
    # minimum and maximum of the sum of n ln n over later columns
    bounds = _bounds_of_two_rows(counts) if len(counts) == 2 else None
    # partial tables: remaining row sums, sum of n ln n over the filled cells, log of the sum of 1 /
    # product of factorials
    remaining = counts.sum(axis=1)[None]
    statistic = np.zeros(1)
    log_weight = np.zeros(1)
    log_tail: list[np.ndarray] = []
    for j, size in enumerate(columns):
        rest = columns[j + 1 :]
        filled = _fill_column(remaining, int(size), budget)
        if filled is None:
            return None
        origin, cells = filled
        budget -= len(origin)
        remaining = remaining[origin] - cells
        statistic = statistic[origin] + n_log_n[cells].sum(axis=1)
        log_weight = log_weight[origin] - log_factorial[cells].sum(axis=1)
        if bounds is None:
            # at least the value under independence, at most either margin's n ln n
            row_part = n_log_n[remaining].sum(axis=1)
            column_part = n_log_n[rest].sum()
            least = row_part + column_part - n_log_n[rest.sum()]
            most = np.minimum(row_part, column_part)
        else:
            least, most = bounds[j][:, remaining.min(axis=1)]
        is_in_tail = statistic + least >= observed
        log_completions = (
            log_factorial[rest.sum()]
            - log_factorial[rest].sum()
            - log_factorial[remaining[is_in_tail]].sum(axis=1)
        )
        log_tail.append(log_weight[is_in_tail] + log_completions)
        is_open = ~is_in_tail & (statistic + most >= observed)
        remaining, statistic, log_weight = _merge(
            remaining[is_open],
            statistic[is_open],
            log_weight[is_open],
            ROUNDING * max(observed, 1.0),
        )
        if len(remaining) > MAX_STATES:
            remaining, statistic, log_weight = _merge(remaining, statistic, log_weight, BIN)
        if not len(remaining):
            break
    log_total = (
        log_factorial[counts.sum()]
        - log_factorial[counts.sum(axis=1)].sum()
        - log_factorial[columns].sum()
    )
    return min(1.0, float(np.exp(np.concatenate(log_tail) - log_total).sum()))


def _fill_column(
    remaining: np.ndarray, size: int, budget: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return all ways to distribute the `size` counts of a column over rows with `remaining` sums.

    If there are T ways, the result contains their positions (T,) in `remaining` (S, K) and their
    cells (T, K). Returns None if the number of ways exceeds `budget`.
    """
    origin = np.arange(len(remaining))
    cells = np.zeros((len(remaining), 0), dtype=np.int64)
    left = np.full(len(remaining), size)  # counts of the column not yet assigned to a cell
    # capacity of the rows below row k, for each partial table
    room_below = remaining.sum(axis=1)
    for k in range(remaining.shape[1]):
        room_below = room_below - remaining[:, k]
        lowest = np.maximum(0, left - room_below[origin])
        n_values = np.minimum(left, remaining[origin, k]) - lowest + 1
        total = int(n_values.sum())
        if total > budget:
            return None
        source = np.repeat(np.arange(len(origin)), n_values)
        step = np.arange(total) - np.repeat(np.cumsum(n_values) - n_values, n_values)
        cell = lowest[source] + step
        origin = origin[source]
        left = left[source] - cell
        cells = np.column_stack([cells[source], cell])
    return origin, cells


def _merge(
    remaining: np.ndarray, statistic: np.ndarray, log_weight: np.ndarray, width: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge partial tables with the same remaining row sums (in any order) and similar statistics.

    Statistics are similar if they are in the same bin of size `width`. Weights are added, and
    statistics are averaged.
    """
    if not len(remaining):
        return remaining, statistic, log_weight
    # completions do not depend on the order of rows
    remaining = np.sort(remaining, axis=1)
    bins = np.rint(statistic / width)
    order = np.lexsort([statistic, bins, *remaining.T])
    remaining = remaining[order]
    statistic = statistic[order]
    log_weight = log_weight[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (remaining[1:] != remaining[:-1]).any(axis=1) | (np.diff(bins[order]) != 0.0)
    start = np.flatnonzero(is_first)
    total = np.logaddexp.reduceat(log_weight, start)
    weight = np.exp(log_weight - np.repeat(total, np.diff(np.append(start, len(order)))))
    return remaining[start], np.add.reduceat(weight * statistic, start), total


def _bounds_of_two_rows(counts: np.ndarray) -> list[np.ndarray] | None:
    """Return bounds on the sum of n ln n over all later columns, for each column of a table (2, L).

    The minimum and maximum are the rows of an array (2, sums), indexed by the smaller row sum of
    the later columns. Returns None if this takes too long.
    """
    from scipy.special import xlogy

    n_sums = int(counts.sum(axis=1).min()) + 1
    columns = counts.sum(axis=0)
    if n_sums * int(columns.sum()) > MAX_BOUNDS:
        return None
    # no columns left: the sum is 0
    least = np.full(n_sums, np.inf)
    least[0] = 0.0
    most = np.full(n_sums, -np.inf)
    most[0] = 0.0
    bounds = [np.stack([least, most])]
    for size in columns[:0:-1]:
        cell = np.arange(min(int(size), n_sums - 1) + 1)
        cost = xlogy(cell, cell) + xlogy(size - cell, size - cell)
        next_least = np.full(n_sums, np.inf)
        next_most = np.full(n_sums, -np.inf)
        for x in cell:
            np.minimum(next_least[x:], least[: n_sums - x] + cost[x], out=next_least[x:])
            np.maximum(next_most[x:], most[: n_sums - x] + cost[x], out=next_most[x:])
        least = next_least
        most = next_most
        bounds.append(np.stack([least, most]))
    return bounds[::-1]
