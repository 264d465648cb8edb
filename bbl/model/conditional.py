"""Conditional distributions of every predictor given all others (eqs. 11-13), from a site solution.

Equation numbers are those of Woo & Wang (2022): with the field F_a of each level a >= 1 of a
predictor i, ``Z_i = 1 + sum_a exp F_a`` is its normaliser, and ``P_i(a | others) = exp(F_a) /
Z_i``.

*Site*: the predictor whose conditional distribution is modelled. *Site solution*: the fields h and
couplings J of the levels of all sites, a row for each. *Field* of a level in a row: its log odds
against the reference level given the other predictors, h plus the couplings with their levels.
Columns are the non-reference levels of all predictors: ``layout.start`` (m + 1,) holds the first
column of each, and ``layout.n_levels`` (m,) its number of levels.
"""

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout

__all__ = ["conditionals", "normalised"]

# non-reference levels of each predictor up to which a loop over levels is faster than `reduceat`
FEW_LEVELS = 8


def conditionals(
    X: np.ndarray, layout: Layout, h: np.ndarray, J: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-normalisers of all sites and the probabilities of all non-reference levels.

    Parameters
    ----------
    X : ndarray, shape (n, D)
        Indicators of the rows' non-reference levels, and joint levels (see `Regressors`).
    layout : Layout
    h : ndarray, shape (layout.D,)
        The part of each level's field that does not depend on the row.
    J : ndarray, shape (layout.D, D)
        Row (i, a) holds the couplings ``J_i(a; j, b)`` of level a of site i, for all levels b of
        other predictors j.

    Returns
    -------
    log_norm : ndarray, shape (n, number of predictors with more than one level)
        ``ln Z_i`` of eq. (12).
    P : ndarray, shape (n, layout.D)
        ``P_i(a | others)``, a >= 1.
    """
    return normalised(X @ J.T + h, layout)


def normalised(field: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-normalisers and probabilities of `conditionals`, given the fields (n,
    layout.D) of all levels.

    The largest field of a predictor is subtracted before exponentials are taken, so that they
    cannot overflow.
    """
    varies = layout.n_levels > 1
    start = layout.start[:-1][varies]
    n_nonreference = layout.n_levels[varies] - 1
    # the reference level has field 0
    largest = np.maximum(_reduce_levels(np.maximum, field, start, n_nonreference), 0.0)
    P = np.exp(field - np.repeat(largest, n_nonreference, axis=1))
    total = np.exp(-largest) + _reduce_levels(np.add, P, start, n_nonreference)
    P /= np.repeat(total, n_nonreference, axis=1)
    return largest + np.log(total), P


def _reduce_levels(
    ufunc: np.ufunc, level_values: np.ndarray, start: np.ndarray, n_nonreference: np.ndarray
) -> np.ndarray:
    """Reduce `level_values` (n, D) over the levels of each predictor: (n, number of predictors).

    The result is ``ufunc.reduceat(level_values, start, axis=1)``, at a tenth of its cost if all
    predictors have the same, small number of levels. `start` and `n_nonreference` hold each
    predictor's first column and number of columns.
    """
    if (
        not len(n_nonreference)
        or (n_nonreference != n_nonreference[0]).any()
        or n_nonreference[0] > FEW_LEVELS
    ):
        return ufunc.reduceat(level_values, start, axis=1)
    out = level_values[:, :: n_nonreference[0]].copy()
    for a in range(1, n_nonreference[0]):
        ufunc(out, level_values[:, a :: n_nonreference[0]], out=out)
    return out
