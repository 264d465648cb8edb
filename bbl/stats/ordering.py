"""Whether the levels of a predictor are spread over folds as by chance: a bound on an exact p-value."""

from __future__ import annotations

import numpy as np

__all__ = ["log_p_bound"]


def log_p_bound(tables: np.ndarray) -> np.ndarray:
    """Bound the logarithm of the p-value of tables of counts, under random order of the rows.

    Parameters
    ----------
    tables : ndarray, shape (..., K, F, L)
        How many rows of each of K groups, F folds and L levels there are.

    Returns
    -------
    ndarray, shape (...)
        At least the logarithm of the probability, given the totals of folds and of levels, of tables that are as
        improbable as these or more so.

    Notes
    -----
    A table has the probability ``prod N_f! prod n_l! / (N! prod o_fl!)``. Those that are no more probable than the one
    seen are at most as many as there are tables with these totals: at most the ways to spread each level but one
    over the folds, or each fold but one over the levels. So the level holds exactly, however sparse the tables are.

    Examples
    --------
    Ten rows of either level in order, and in turn, in four folds:

    >>> ordered = np.array([[[5, 0], [5, 0], [0, 5], [0, 5]]])
    >>> float(np.exp(log_p_bound(ordered)).round(4))
    0.0012
    >>> bool(log_p_bound(np.array([[[2, 3], [3, 2], [2, 3], [3, 2]]])) > 0)
    True
    """
    from scipy.special import gammaln

    tables = np.asarray(tables, dtype=float)
    folds, levels, total = tables.sum(axis=-1), tables.sum(axis=-2), tables.sum(axis=(-1, -2))
    F = tables.shape[-2]
    L = tables.shape[-1]
    log_p = gammaln(folds + 1).sum(axis=-1) + gammaln(levels + 1).sum(axis=-1)
    log_p -= gammaln(total + 1) + gammaln(tables + 1).sum(axis=(-1, -2))
    spread = (
        gammaln(levels + F) - gammaln(levels + 1) - gammaln(F),
        gammaln(folds + L) - gammaln(folds + 1) - gammaln(L),
    )
    ways = [s.sum(axis=-1) - s.max(axis=-1) for s in spread]
    return (log_p + np.minimum(*ways)).sum(axis=-1)
