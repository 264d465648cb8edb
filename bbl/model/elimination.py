"""Sums over all states of a product of tables, by variable elimination: ln Z, and margins of any factor model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["Factor", "elimination_order", "log_sum"]

Factor = tuple[tuple[int, ...], np.ndarray]


def elimination_order(n_levels: np.ndarray, mask: np.ndarray, limit: float) -> tuple[list[int], float] | None:
    """Return the order in which variables are summed out, and its cost.

    Greedy: the variable whose elimination makes the smallest table goes next. If none share a table the cost is the
    number of levels, if all do it is the number of states.

    Parameters
    ----------
    n_levels : ndarray of int, shape (m,)
        Number of levels of each variable.
    mask : ndarray of bool, shape (m, m)
        Which variables share a table; symmetric, the diagonal is not looked at.
    limit : float
        Largest total number of table cells per model.

    Returns
    -------
    (order, cost) or None
        None if `limit` is passed.

    Examples
    --------
    A chain of three variables is summed out from its ends:

    >>> chain = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> elimination_order(np.array([2, 3, 2]), chain, 100.0)
    ([0, 1, 2], 14.0)
    """
    m = len(n_levels)
    log_L = np.log(np.asarray(n_levels, dtype=float))
    if not mask.any():
        order = np.argsort(log_L, kind="stable").tolist()
        cost = float(sum(math.exp(log_L[i]) for i in order))
        return None if cost > limit else (order, cost)
    weight = log_L + mask @ log_L
    if weight.min() > math.log(limit):
        return None
    neighbours = [set(np.flatnonzero(row)) for row in mask]
    remaining = np.ones(m, dtype=bool)
    order, cost = [], 0.0
    for _ in range(m):
        i = int(np.argmin(np.where(remaining, weight, np.inf)))
        cells = math.exp(min(weight[i], 700.0))
        cost += cells
        if cost > limit:
            return None
        around = neighbours[i] - {i}
        order.append(i)
        remaining[i] = False
        for j in around:
            neighbours[j] = (neighbours[j] | around) - {i, j}
            weight[j] = log_L[j] + sum(log_L[k] for k in neighbours[j])
    return order, cost


def log_sum(factors: Sequence[Factor], order: Sequence[int]) -> np.ndarray:
    """Return the log of the sum, over the variables in `order`, of the product of the tables' exponentials.

    Each step adds up the tables that hold a variable (smallest first) and takes the log-sum over its levels; all models
    go together along the first axis.

    Parameters
    ----------
    factors : sequence of (scope, table)
        `scope` names the variables of a table's axes after the first, which is that of the models (of length K, or 1
        where they share it). Logarithms; -inf stands for a state that cannot be.
    order : sequence of int
        The variables to sum out, in that order; `elimination_order` finds a cheap one.

    Returns
    -------
    ndarray, shape (K, ...)
        With an axis for each variable that is not in `order`, by number: the log of a margin; (K,) if none is left.

    Examples
    --------
    >>> weight = np.log([[[1.0, 2.0], [3.0, 4.0]]])
    >>> np.exp(log_sum([((0, 1), weight)], [0, 1])), np.exp(log_sum([((0, 1), weight)], [1]))
    (array([10.]), array([[3., 7.]]))
    """
    step = {i: at for at, i in enumerate(order)}
    never = len(order)
    input_factors: list[list[Factor]] = [[] for _ in range(never + 1)]
    message_factors: list[list[Factor]] = [[] for _ in range(never + 1)]
    for scope, table in factors:
        input_factors[min((step.get(k, never) for k in scope), default=never)].append((scope, table))
    for at, i in enumerate(order):
        bucket = message_factors[at] + input_factors[at]
        if not bucket:
            raise ValueError(f"no table holds variable {i}")
        scope, table = _add_up(bucket, (i,))
        top = table.max(axis=1)
        shift = np.where(np.isneginf(top), 0.0, top)  # a state that cannot be stays at -inf
        with np.errstate(divide="ignore"):
            summed = np.log(np.exp(table - shift[:, None]).sum(axis=1)) + shift
        message_factors[min((step.get(k, never) for k in scope[1:]), default=never)].append((scope[1:], summed))
    return _add_up(message_factors[never] + input_factors[never], ())[1]


def _add_up(factors: list[Factor], first: tuple[int, ...]) -> Factor:
    """Return the sum of tables, with axes (model, *first, other variables by number), and their names."""
    factors = sorted(factors, key=lambda t: t[1].ndim)
    scope: tuple[int, ...] = ()
    total = None
    for names, table in factors:
        wider = (*first, *sorted((set(scope) | set(names)) - set(first)))
        spread_table = _spread(table, names, wider)
        total = spread_table if total is None else _spread(total, scope, wider) + spread_table
        scope = wider
    assert total is not None  # noqa: S101  # the callers hand over at least one table
    return scope, total


def _spread(table: np.ndarray, names: tuple[int, ...], scope: tuple[int, ...]) -> np.ndarray:
    """Return `table` with its axes in the order of `scope`, length one where it does not depend on a variable."""
    ordered = sorted(names, key=scope.index)
    table = table.transpose(0, *(1 + names.index(k) for k in ordered))
    shape = [len(table)] + [table.shape[1 + ordered.index(k)] if k in ordered else 1 for k in scope]
    return table.reshape(shape)
