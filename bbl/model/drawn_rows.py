"""Errors that the sampling of rows causes in standard errors."""

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.rows.sample import Sample

__all__ = ["error_rows", "residuals_on_counts"]

ERROR_ROWS = 3072  # drawn rows that sampling errors are estimated from
CERTAIN_ROWS = 1024  # rows that are always drawn, which only determine means
COLUMNS = 256  # columns of residuals that are computed at a time


def error_rows(drawn_share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of rows that sampling errors are estimated from, and the number of rows
    that each of them represents.

    `drawn_share` (n,) is one minus each row's probability of being drawn.
    """
    chosen = []
    factors = []
    for positions, most in (
        (np.flatnonzero(drawn_share > 0.0), ERROR_ROWS),
        (np.flatnonzero(drawn_share <= 0.0), CERTAIN_ROWS),
    ):
        n = min(len(positions), most)
        chosen.append(positions[np.linspace(0, len(positions) - 1, n).astype(np.intp)])
        factors.append(np.full(n, len(positions) / max(n, 1)))
    return np.concatenate(chosen), np.concatenate(factors)


def residuals_on_counts(changes: np.ndarray, rows: Sample, layout: Layout) -> np.ndarray:
    """Return the residuals of `changes` (n, q) after weighted regressions on levels, by group.

    The array is overwritten.

    The counts of levels in each group are exact, so what depends on them linearly has no error.
    With missing values, only the total weights of groups are exact.
    """
    X = np.ones((rows.n, 1))
    if rows.complete:
        X = np.column_stack([X, one_hot(rows.codes, layout)])
    root = np.sqrt(rows.weights)[:, None]
    groups = np.zeros(rows.n) if rows.y is None else rows.y
    for g in np.unique(groups):
        own = groups == g
        inverse = np.linalg.pinv(X[own] * root[own], rcond=1e-10) * root[own].T
        for first in range(0, changes.shape[1], COLUMNS):
            columns = slice(first, first + COLUMNS)
            changes[own, columns] -= X[own] @ (inverse @ changes[own, columns])
    return changes
