"""Variable elimination in factor models: ln Z, margins and the most probable state.

A *factor* is a pair ``(scope, table)``. The first axis of the table corresponds to K models; its
length is K, or 1 if the models share the table. The other axes correspond to the variables in the
scope. Tables contain logarithms; -inf marks impossible states. Eliminating a variable replaces all
tables that contain it by a single table over its *neighbours*, the variables with which it shares a
table. This table is the log-sum-exp over the levels of the variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["Factor", "elimination_order", "log_sum", "most_probable"]

BLOCK_CELLS = 2**16  # table cells of a block, which fit into a processor's cache

Factor = tuple[tuple[int, ...], np.ndarray]


def elimination_order(
    n_levels: np.ndarray, mask: np.ndarray, limit: float
) -> tuple[list[int], float] | None:
    """Return an elimination order and its cost, the total number of table cells.

    The cost is per model. The order is greedy: at each step, the variable whose elimination creates
    the smallest table comes next. The cost ranges from the total number of levels, if variables do
    not share tables, to the number of states, if all variables share tables. Returns None if the
    cost exceeds `limit`.

    Parameters
    ----------
    n_levels : ndarray of int, shape (m,)
        Number of levels of each variable.
    mask : ndarray of bool, shape (m, m)
        Whether two variables share a table; symmetric, and False on the diagonal.
    limit : float
        Largest acceptable cost.

    Examples
    --------
    A chain of three variables is eliminated from its ends:

    >>> chain = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> elimination_order(np.array([2, 3, 2]), chain, 100.0)
    ([0, 1, 2], 14.0)
    """
    m = len(n_levels)
    log_L = np.log(np.asarray(n_levels, dtype=float))  # log of each variable's number of levels
    if not mask.any():
        order = np.argsort(log_L, kind="stable").tolist()
        cost = float(sum(math.exp(log_L[i]) for i in order))
        return None if cost > limit else (order, cost)
    log_cells = log_L + mask @ log_L  # of the table created by eliminating each variable
    if log_cells.min() > math.log(limit):  # even the cheapest first step is too large
        return None
    neighbours = [set(np.flatnonzero(row)) for row in mask]
    remaining = np.ones(m, dtype=bool)
    order = []
    cost = 0.0
    for _ in range(m):
        i = int(np.argmin(np.where(remaining, log_cells, np.inf)))
        cells = math.exp(min(log_cells[i], 700.0))  # exp(710) overflows
        cost += cells
        if cost > limit:
            return None
        clique = neighbours[i] - {i}  # the neighbours now share a table
        order.append(i)
        remaining[i] = False
        for j in clique:
            neighbours[j] = (neighbours[j] | clique) - {i, j}
            log_cells[j] = log_L[j] + sum(log_L[k] for k in neighbours[j])
    return order, cost


def log_sum(factors: Sequence[Factor], order: Sequence[int]) -> np.ndarray:
    """Return ``ln sum exp(sum of the tables)``, summed over the variables in `order`.

    Each step adds the tables that contain a variable, smallest first, and takes the log-sum-exp
    over the variable's levels. All models are processed at once.

    Parameters
    ----------
    factors : sequence of Factor
    order : sequence of int
        The variables to sum over, in this order; `elimination_order` returns an efficient order.

    Returns
    -------
    ndarray, shape (K, ...)
        Log of the margin of the variables that are not in `order`, with an axis for each variable
        in increasing order; (K,) if `order` contains all variables.

    Examples
    --------
    >>> weight = np.log([[[1.0, 2.0], [3.0, 4.0]]])
    >>> np.exp(log_sum([((0, 1), weight)], [0, 1])), np.exp(log_sum([((0, 1), weight)], [1]))
    (array([10.]), array([[3., 7.]]))
    """
    # each factor, and each message (the table created by a step), is used by the first step that
    # eliminates one of its variables; `last_step` collects the tables that remain at the end
    step_of = {i: step for step, i in enumerate(order)}
    last_step = len(order)
    # two lists, because messages come first among tables of the same variables, and the order of a
    # sum affects its rounding
    input_factors: list[list[Factor]] = [[] for _ in range(last_step + 1)]
    message_factors: list[list[Factor]] = [[] for _ in range(last_step + 1)]
    for scope, table in factors:
        input_factors[min((step_of.get(k, last_step) for k in scope), default=last_step)].append(
            (scope, table)
        )
    for step, i in enumerate(order):
        step_factors = message_factors[step] + input_factors[step]
        if not step_factors:
            raise ValueError(f"no table contains variable {i}")
        scope, table = _add_up(step_factors, (i,))
        summed = _log_sum_exp(table)
        receiver = min((step_of.get(k, last_step) for k in scope[1:]), default=last_step)
        message_factors[receiver].append((scope[1:], summed))
    return _add_up(message_factors[last_step] + input_factors[last_step], ())[1]


def _log_sum_exp(table: np.ndarray) -> np.ndarray:
    """Return the log-sum-exp over axis 1 of a table, without this axis.

    Blocks of the longer of the other two axes, the models and all other variables, are processed
    one after the other, since temporary arrays of the size of a large table take most of the time.
    """
    tables = table.reshape(*table.shape[:2], math.prod(table.shape[2:]))
    out = np.empty((len(table), tables.shape[2]))
    by_model = len(table) > tables.shape[2]
    length = max(out.shape)
    step = max(1, BLOCK_CELLS * length // max(1, tables.size))
    with np.errstate(divide="ignore"):
        for first in range(0, length, step):
            block = np.s_[first : first + step] if by_model else np.s_[..., first : first + step]
            largest = tables[block].max(axis=1)
            offset = np.where(np.isneginf(largest), 0.0, largest)  # impossible states stay at -inf
            weights = tables[block] - offset[:, None]
            np.exp(weights, out=weights)
            out[block] = np.log(weights.sum(axis=1)) + offset
    return out.reshape(len(table), *table.shape[2:])


def most_probable(
    factors: Sequence[Factor], order: Sequence[int], n_models: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the state that maximises the sum of the factors' tables, and the maximum.

    This is the max-product algorithm: the sums in `log_sum` are replaced by maxima. In case of
    ties, the first level is returned.

    Parameters
    ----------
    factors : sequence of Factor
    order : sequence of int
        All variables, in the order of elimination.
    n_models : int

    Returns
    -------
    state : ndarray of intp, shape (n_models, len(order))
        The level of each variable; column k belongs to variable ``sorted(order)[k]``.
    value : ndarray, shape (n_models,)

    Examples
    --------
    >>> state, value = most_probable([((0, 1), np.log([[[1.0, 2.0], [3.0, 4.0]]]))], [0, 1], 1)
    >>> state, np.exp(value)
    (array([[1, 1]]), array([4.]))
    """
    remaining = list(factors)
    # for each step: (scope of the variable's neighbours, best level for each of their states)
    best_level = []
    for i in order:
        used = [factor for factor in remaining if i in factor[0]]
        remaining = [factor for factor in remaining if i not in factor[0]]
        scope, table = _add_up(used, (i,))
        best_level.append((scope[1:], table.argmax(axis=1)))
        remaining.append((scope[1:], table.max(axis=1)))
    value = np.broadcast_to(_add_up(remaining, ())[1], (n_models,))
    variables = sorted(order)
    state = np.zeros((n_models, len(variables)), dtype=np.intp)
    models = np.arange(n_models)
    for i, (scope, levels) in reversed(list(zip(order, best_level, strict=True))):
        levels = np.broadcast_to(levels, (n_models, *levels.shape[1:]))
        at = tuple(state[:, variables.index(k)] for k in scope)
        state[:, variables.index(i)] = levels[(models, *at)]
    return state, value


def _add_up(factors: list[Factor], leading: tuple[int, ...]) -> Factor:
    """Return the sum of tables as a factor with the axes ``(model, *leading, other variables)``,
    where the other variables are in increasing order.
    """
    # the last variables first: the sum then grows by a leading axis, which numpy adds much faster
    factors = sorted(factors, key=lambda factor: (factor[1].ndim, [-k for k in factor[0]]))
    scope: tuple[int, ...] = ()
    total = None
    for table_scope, table in factors:
        union = (*leading, *sorted((set(scope) | set(table_scope)) - set(leading)))
        aligned = _align(table, table_scope, union)
        total = aligned if total is None else _align(total, scope, union) + aligned
        scope = union
    assert total is not None  # noqa: S101  # callers pass at least one table
    return scope, total


def _align(table: np.ndarray, table_scope: tuple[int, ...], scope: tuple[int, ...]) -> np.ndarray:
    """Permute the axes of `table` from `table_scope` to the order of `scope`, and add axes of
    length 1 for the other variables.
    """
    ordered = sorted(table_scope, key=scope.index)
    table = table.transpose(0, *(1 + table_scope.index(k) for k in ordered))
    shape = [len(table)] + [table.shape[1 + ordered.index(k)] if k in ordered else 1 for k in scope]
    return table.reshape(shape)
