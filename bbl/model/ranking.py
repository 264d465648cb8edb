"""Strength of interactions: Frobenius norms of zero-sum couplings, with an optional correction."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from bbl.model.gauge import equal_tables, zero_sum
from bbl.model.layout import Layout
from bbl.stats.metrics import TIE

__all__ = ["interaction_strength"]


def interaction_strength(layout: Layout, theta: np.ndarray, apc: bool = False) -> np.ndarray:
    """Return the strengths (T,) of all interactions in `layout`, in increasing order of terms.

    The strength is the Frobenius norm of the table in the zero-sum gauge, including reference
    levels. This gauge attributes as much as possible to lower-order terms. The table of a pair
    includes the tables of higher terms, averaged over their other members. Strengths of at most
    1e-12 are rounding errors, and are returned as 0.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
    apc : bool, default False
        Whether to subtract the average-product correction ``F_i. F_.j / F_..`` (Dunn, Wahl & Gloor
        2008) from the strengths of pairs; higher terms are not corrected.
    """
    if layout.order > 2:
        strength = _strengths_of_terms(layout, theta)
    else:
        strength = np.empty(len(layout.pairs))
        for pair_rows, cells, L_i, L_j in equal_tables(layout):
            tables = np.zeros((len(pair_rows), L_i, L_j))  # with reference levels
            tables[:, 1:, 1:] = theta[cells].reshape(-1, L_i - 1, L_j - 1)
            strength[pair_rows] = np.sqrt((zero_sum(tables) ** 2).sum(axis=(1, 2)))
    strength[strength <= TIE] = 0.0
    n_pairs = len(layout.pairs)
    if apc and n_pairs:
        strength[:n_pairs] = _subtract_apc(layout, strength[:n_pairs])
    return strength


def _subtract_apc(layout: Layout, strength: np.ndarray) -> np.ndarray:
    """Return the strengths of pairs minus the average-product correction, shape (P,).

    The correction of pair (i, j) is ``mean_i mean_j / overall mean``, where ``mean_i`` is the mean
    over the pairs that contain predictor i. The partners of a predictor are given by `layout.mask`
    (m, m). With higher terms, partners with strength zero are not counted.
    """
    F = np.zeros((layout.m, layout.m))
    F[layout.pairs[:, 0], layout.pairs[:, 1]] = strength
    F += F.T
    n_partners = (
        np.maximum(layout.mask.sum(axis=1), 1)
        if layout.order <= 2
        else np.maximum((F > 0).sum(axis=1), 1)
    )
    mean = F.sum(axis=1) / n_partners
    overall = strength.mean()
    return (
        strength - mean[layout.pairs[:, 0]] * mean[layout.pairs[:, 1]] / overall
        if overall
        else strength
    )


def _strengths_of_terms(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the strengths (T,) of all terms, where averages of higher terms are added to lower
    terms.
    """
    # `scopes`: the predictors of each table; the first m tables contain fields
    tables = {
        scope: np.pad(layout.table(theta, *scope), [(1, 0)] * len(scope))
        for scope in layout.scopes[layout.m :]
    }
    with_means = {scope: table.copy() for scope, table in tables.items()}
    for scope, table in tables.items():
        for k in range(2, len(scope)):
            for sub_scope in combinations(scope, k):
                if sub_scope in with_means:
                    with_means[sub_scope] += table.mean(
                        axis=tuple(axis for axis, i in enumerate(scope) if i not in sub_scope)
                    )
    return np.array(
        [np.sqrt((zero_sum(table, len(scope)) ** 2).sum()) for scope, table in with_means.items()]
    )
