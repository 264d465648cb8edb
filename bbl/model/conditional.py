"""Conditional distributions of every predictor given all others (eqs. 11-13), from a site matrix."""

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout

__all__ = ["conditionals", "normalised"]


def conditionals(X: np.ndarray, layout: Layout, h: np.ndarray, J: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-normalisers of all predictors and the probabilities of all non-reference levels.

    Parameters
    ----------
    X : ndarray, shape (n, D)
        Indicators of the rows' non-reference levels, and joint levels (see `Regressors`).
    layout : Layout
    h : ndarray, shape (layout.D,)
        Fields.
    J : ndarray, shape (layout.D, D)
        Row (i, a) holds the couplings ``J_i(a; j, b)`` of predictor i's own solution.

    Returns
    -------
    log_norm : ndarray, shape (n, number of predictors with more than one level)
        ``ln Z_i`` of eq. (12).
    P : ndarray, shape (n, layout.D)
        ``P_i(a | others)``, a >= 1.
    """
    return normalised(X @ J.T + h, layout)


def normalised(field: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return what `conditionals` does, from the fields (n, D) of all levels."""
    varies = layout.n_levels > 1
    first, width = layout.start[:-1][varies], layout.n_levels[varies] - 1
    # the reference level adds exp(0)
    top = np.maximum(np.maximum.reduceat(field, first, axis=1), 0.0)
    P = np.exp(field - np.repeat(top, width, axis=1))
    total = np.exp(-top) + np.add.reduceat(P, first, axis=1)
    P /= np.repeat(total, width, axis=1)
    return top + np.log(total), P
