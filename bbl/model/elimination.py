"""Exact ln Z by variable elimination over the interaction graph."""

from __future__ import annotations

import math

import numpy as np

from bbl.model.layout import Layout

__all__ = ["elimination_order", "log_partition"]


def elimination_order(layout: Layout, limit: float) -> tuple[list[tuple[int, tuple[int, ...]]], float] | None:
    """Return the order in which predictors are summed out, and its cost.

    Greedy: the predictor whose elimination makes the smallest table goes next. Without pairs the cost is the
    number of levels, with all pairs it is the number of states.

    Parameters
    ----------
    layout : Layout
    limit : float
        Largest total number of table cells per model.

    Returns
    -------
    (order, cost) or None
        Each step of `order` is a predictor and its neighbours at that moment; None if `limit` is passed.
    """
    log_L = np.log(layout.n_levels.astype(float))
    weight = log_L + (layout.mask @ log_L if len(layout.pairs) else 0.0)
    if weight.min() > math.log(limit):
        return None
    neighbours = [set(np.flatnonzero(row)) for row in layout.mask]
    left = np.ones(layout.m, dtype=bool)
    order, cost = [], 0.0
    for _ in range(layout.m):
        i = int(np.argmin(np.where(left, weight, np.inf)))
        cells = math.exp(min(weight[i], 700.0))
        cost += cells
        if cost > limit:
            return None
        around = neighbours[i]
        order.append((i, tuple(sorted(int(j) for j in around))))
        left[i] = False
        for j in around:
            neighbours[j] = (neighbours[j] | around) - {i, j}
            weight[j] = log_L[j] + sum(log_L[k] for k in neighbours[j])
    return order, cost


def log_partition(layout: Layout, theta: np.ndarray, order: list[tuple[int, tuple[int, ...]]]) -> np.ndarray:
    """Return the true ln Z (K,) of the parameter vectors `theta` (K, size).

    Each step adds up the tables that hold a predictor (smallest first) and takes the log-sum over its levels;
    all models go together along the first axis.
    """
    K = len(theta)
    total = np.zeros(K)
    tables: list[tuple[tuple[int, ...], np.ndarray]] = []
    done: set[int] = set()
    for i, around in order:
        mine = [t for t in tables if i in t[0]]
        tables = [t for t in tables if i not in t[0]]
        mine.append(((i,), _with_reference(layout.table(theta, i), 1)))
        for j in around:
            if j not in done and layout.pair_index(i, j) >= 0:
                mine.append(((i, j), _with_reference(layout.table(theta, i, j), 2)))
        scope, table = _add_up(mine, i)
        top = table.max(axis=1)
        summed = np.log(np.exp(table - top[:, None]).sum(axis=1)) + top
        done.add(i)
        if scope:
            tables.append((scope, summed))
        else:
            total += summed
    return total


def _with_reference(table: np.ndarray, axes: int) -> np.ndarray:
    """Put the zeros of the reference level in front of the last `axes` axes."""
    out = np.zeros((len(table), *(n + 1 for n in table.shape[1:])))  # much quicker than np.pad
    out[(slice(None), *(slice(1, None),) * axes)] = table
    return out


def _add_up(tables: list[tuple[tuple[int, ...], np.ndarray]], i: int) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the other predictors in order, and the sum of `tables` with axes (model, i, others)."""
    tables = sorted(tables, key=lambda t: t[1].ndim)
    scope, total = tables[0]
    for names, table in tables[1:]:
        wider = (i, *sorted((set(scope) | set(names)) - {i}))
        total = _spread(total, scope, wider) + _spread(table, names, wider)
        scope = wider
    return scope[1:], total


def _spread(table: np.ndarray, names: tuple[int, ...], scope: tuple[int, ...]) -> np.ndarray:
    """Return `table` with its axes in the order of `scope`, length one where it does not depend on a predictor."""
    ordered = sorted(names, key=scope.index)
    table = table.transpose(0, *(1 + names.index(k) for k in ordered))
    shape = [len(table)] + [table.shape[1 + ordered.index(k)] if k in ordered else 1 for k in scope]
    return table.reshape(shape)
