"""Strength of interactions: Frobenius norms of couplings in the zero-sum gauge, and their correction."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from bbl.model.gauge import equal_tables, zero_sum
from bbl.model.layout import Layout

__all__ = ["interaction_strength"]


def interaction_strength(layout: Layout, theta: np.ndarray, apc: bool = False) -> np.ndarray:
    """Return the strength of every interaction of `layout`.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
    apc : bool, default False
        Whether to subtract the average-product correction ``F_i. F_.j / F_..`` (Dunn, Wahl & Gloor 2008) from the
        strengths of pairs; there is none for terms of more predictors, which stay as they are.

    Returns
    -------
    ndarray, shape (T,)
        Of pairs, then of terms of three, and so on: the Frobenius norm of ``J_ij`` after the means over rows and
        columns (reference level included) are taken out, the gauge in which terms of fewer predictors explain as much
        as they can. What a term of more predictors says of a pair on average belongs to the pair.
    """
    strength = np.empty(len(layout.pairs))
    if layout.order > 2:
        both = _by_term(layout, theta)
        strength, higher = both[: len(strength)], both[len(strength) :]
    else:
        higher = np.empty(0)
        for rows, cells, a, b in equal_tables(layout):
            tables = np.zeros((len(rows), a, b))
            tables[:, 1:, 1:] = theta[cells].reshape(-1, a - 1, b - 1)
            strength[rows] = np.sqrt((zero_sum(tables) ** 2).sum(axis=(1, 2)))
    if apc and len(strength):
        strength = _corrected(layout, strength)
    return np.concatenate([strength, higher]) if len(higher) else strength


def _corrected(layout: Layout, strength: np.ndarray) -> np.ndarray:
    total = np.zeros((layout.m, layout.m))
    total[layout.pairs[:, 0], layout.pairs[:, 1]] = strength
    total += total.T
    degree = np.maximum(layout.mask.sum(axis=1), 1) if layout.order <= 2 else np.maximum((total > 0).sum(axis=1), 1)
    mean = total.sum(axis=1) / degree
    overall = strength.mean()
    return strength - mean[layout.pairs[:, 0]] * mean[layout.pairs[:, 1]] / overall if overall else strength


def _by_term(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the strengths of all terms, those of more predictors averaged into those of fewer."""
    tables = {scope: np.pad(layout.table(theta, *scope), [(1, 0)] * len(scope)) for scope in layout.scopes[layout.m :]}
    total = {scope: table.copy() for scope, table in tables.items()}
    for scope, table in tables.items():
        for k in range(2, len(scope)):
            for sub_scope in combinations(scope, k):
                if sub_scope in total:
                    total[sub_scope] += table.mean(axis=tuple(a for a, i in enumerate(scope) if i not in sub_scope))
    return np.array([np.sqrt((zero_sum(table, len(scope)) ** 2).sum()) for scope, table in total.items()])
