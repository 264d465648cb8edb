"""Conditional distributions of every predictor given all others (eqs. 11-13), from a site matrix."""

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.pairwise import to_matrix
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["conditionals", "log_pseudo_likelihood", "normalised"]

ROWS = 2048


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


def log_pseudo_likelihood(sample: Sample, layout: Layout, theta: np.ndarray) -> float:
    """Return the mean log pseudo-likelihood of the complete rows: the sum of eq. (11) over predictors.

    Parameters
    ----------
    sample : Sample
    layout : Layout
        Of fields and pairs.
    theta : ndarray, shape (layout.size,)
    """
    if sample.missing is not None:
        sample = sample.rows(~sample.missing.any(axis=1))
    if not sample.n:
        return float("nan")
    (h, J), total = to_matrix(layout, theta), 0.0
    with serial_blas():
        for part in sample.blocks(ROWS):
            X = one_hot(part.codes, layout)
            norm, _ = conditionals(X, layout, h, J)
            own = (X * (X @ J + h)).sum(axis=1)
            total += float(part.weights @ (own - norm.sum(axis=1)))
    return total / sample.total
