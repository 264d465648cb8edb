"""Conditional distributions of every predictor given all others (eqs. 11-13), from a site solution.

*Site*: the predictor whose conditional distribution is modelled. *Field*: log odds of a level against the reference.
"""

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout

__all__ = ["conditionals", "normalised"]

FEW_LEVELS = 8  # besides the reference level, that are taken one after the other


def conditionals(X: np.ndarray, layout: Layout, h: np.ndarray, J: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-normalisers of all sites and the probabilities of all non-reference levels.

    Parameters
    ----------
    X : ndarray, shape (n, D)
        Indicators of the rows' non-reference levels, and joint levels (see `Regressors`).
    layout : Layout
    h : ndarray, shape (layout.D,)
        Fields.
    J : ndarray, shape (layout.D, D)
        Row (i, a) holds the couplings ``J_i(a; j, b)`` of the solution of site i.

    Returns
    -------
    log_norm : ndarray, shape (n, number of predictors with more than one level)
        ``ln Z_i`` of eq. (12).
    P : ndarray, shape (n, layout.D)
        ``P_i(a | others)``, a >= 1.
    """
    return normalised(X @ J.T + h, layout)


def normalised(field: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the results of `conditionals`, given the fields (n, layout.D) of all levels."""
    varies = layout.n_levels > 1
    start, width = layout.start[:-1][varies], layout.n_levels[varies] - 1
    # the reference level has field 0
    largest = np.maximum(_reduced(np.maximum, field, start, width), 0.0)
    P = np.exp(field - np.repeat(largest, width, axis=1))
    total = np.exp(-largest) + _reduced(np.add, P, start, width)
    P /= np.repeat(total, width, axis=1)
    return largest + np.log(total), P


def _reduced(ufunc: np.ufunc, of_levels: np.ndarray, start: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return ``ufunc.reduceat(of_levels, start, axis=1)``, at a tenth of its cost for few levels."""
    if not len(width) or (width != width[0]).any() or width[0] > FEW_LEVELS:
        return ufunc.reduceat(of_levels, start, axis=1)
    out = of_levels[:, :: width[0]].copy()
    for a in range(1, width[0]):
        ufunc(out, of_levels[:, a :: width[0]], out=out)
    return out
