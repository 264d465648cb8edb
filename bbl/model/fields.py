"""The field on every level given the other predictors, for terms of any order, and the pseudo-likelihood of rows."""

from __future__ import annotations

import numpy as np

from bbl.memory import check_memory
from bbl.model.conditional import normalised
from bbl.model.layout import Layout, term_columns
from bbl.model.marginal import MarginalEnergy
from bbl.model.moments import one_hot
from bbl.model.pairwise import to_matrix
from bbl.parallel import serial_blas

__all__ = ["Fields", "pseudo_log_likelihood"]

ROWS = 2048  # rows at a time
CELLS = 2**22  # products of levels at a time


class Fields:
    """Log odds of every level against the reference level, given the other predictors: the exponent of eq. (13).

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)

    Examples
    --------
    >>> fields = Fields(Layout([2, 2]), np.array([1.0, 2.0, 4.0]))
    >>> fields(np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([[1., 6.],
           [3., 4.]])
    """

    def __init__(self, layout: Layout, theta: np.ndarray):
        from scipy.sparse import csr_array

        check_memory(8.0 * layout.D**2, f"Fields of {layout.D} levels", "Use fewer predictors.")
        self.D = layout.D
        pairs = layout if layout.order <= 2 else Layout(layout.n_levels, layout.pairs)
        self.h, self.J = to_matrix(pairs, theta[: pairs.size])
        self.parts: list[tuple[np.ndarray, csr_array]] = []
        if layout.order > 2:
            columns = term_columns(layout)
            order = (columns >= 0).sum(axis=0)
            for k in range(3, layout.order + 1):
                at = np.flatnonzero((order == k) & (theta != 0.0))
                set_columns = columns[:k, at]
                for axis in range(k):
                    to = csr_array((theta[at], (np.arange(len(at)), set_columns[axis])), shape=(len(at), layout.D))
                    self.parts.append((np.delete(set_columns, axis, axis=0), to))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the fields (n, D) for indicators of levels, or their means, `X` (n, D)."""
        with serial_blas():
            out = X @ self.J + self.h
        step = max(1, CELLS // max([1, *(factor_columns.shape[1] for factor_columns, _ in self.parts)]))
        for lo in range(0, len(X), step):
            chunk = X[lo : lo + step]
            for factor_columns, to in self.parts:
                out[lo : lo + step] += chunk[:, factor_columns].prod(axis=1) @ to
        return out


def pseudo_log_likelihood(
    layout: Layout, theta: np.ndarray, codes: np.ndarray, missing: np.ndarray | None = None
) -> np.ndarray:
    """Return ``sum_i ln P(x_i | the other predictors)`` of rows under one model, shape (n,).

    Missing predictors are summed out, and add nothing of their own.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
    codes : ndarray, shape (n, m)
    missing : ndarray of bool, shape (n, m), optional

    Examples
    --------
    >>> theta = np.array([1.0, 2.0, 4.0])
    >>> pseudo_log_likelihood(Layout([2, 2]), theta, np.array([[1, 1]], dtype=np.uint8)).round(4)
    array([-0.0092])
    """
    out = np.zeros(len(codes))
    is_complete = np.ones(len(codes), dtype=bool) if missing is None else ~missing.any(axis=1)
    if is_complete.any():
        fields, complete_rows = Fields(layout, theta), np.flatnonzero(is_complete)
        for lo in range(0, len(complete_rows), ROWS):
            at = complete_rows[lo : lo + ROWS]
            X = one_hot(codes[at], layout)
            field = fields(X)
            out[at] = (X * field).sum(axis=1) - normalised(field, layout)[0].sum(axis=1)
    if missing is not None and not is_complete.all():
        at = np.flatnonzero(~is_complete)
        out[at] = _with_missing(layout, theta, codes[at], missing[at])
    return out


def _with_missing(layout: Layout, theta: np.ndarray, codes: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return what `pseudo_log_likelihood` does, for rows of which each lacks something."""
    energy, out = MarginalEnergy(layout, theta[None]), np.zeros(len(codes))
    for i in range(layout.m):
        at = np.flatnonzero(~missing[:, i])
        by_level = np.empty((len(at), layout.n_levels[i]))
        for a in range(layout.n_levels[i]):
            rows = codes[at].copy()
            rows[:, i] = a
            by_level[:, a] = energy(rows, missing[at])[:, 0]
        by_level -= by_level.max(axis=1, keepdims=True)
        log_p = by_level - np.log(np.exp(by_level).sum(axis=1, keepdims=True))
        out[at] += log_p[np.arange(len(at)), codes[at, i]]
    return out
