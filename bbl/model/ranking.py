"""Strength of interactions: Frobenius norms of couplings in the zero-sum gauge, and their correction."""

from __future__ import annotations

import numpy as np

from bbl.model.gauge import equal_tables, zero_sum
from bbl.model.layout import Layout

__all__ = ["interaction_strength"]


def interaction_strength(layout: Layout, theta: np.ndarray, apc: bool = False) -> np.ndarray:
    """Return the strength of every pair of `layout`.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
    apc : bool, default False
        Whether to subtract the average-product correction ``F_i. F_.j / F_..`` (Dunn, Wahl & Gloor 2008).

    Returns
    -------
    ndarray, shape (P,)
        Frobenius norm of ``J_ij`` after the means over rows and columns (reference level included) are taken out:
        the gauge in which fields explain as much as they can.
    """
    strength = np.empty(len(layout.pairs))
    for rows, cells, a, b in equal_tables(layout):
        tables = np.zeros((len(rows), a, b))
        tables[:, 1:, 1:] = theta[cells].reshape(-1, a - 1, b - 1)
        strength[rows] = np.sqrt((zero_sum(tables) ** 2).sum(axis=(1, 2)))
    if not apc or not len(strength):
        return strength
    total = np.zeros((layout.m, layout.m))
    total[layout.pairs[:, 0], layout.pairs[:, 1]] = strength
    total += total.T
    degree = np.maximum(layout.mask.sum(axis=1), 1)
    mean = total.sum(axis=1) / degree
    overall = strength.mean()
    return strength - mean[layout.pairs[:, 0]] * mean[layout.pairs[:, 1]] / overall if overall else strength
