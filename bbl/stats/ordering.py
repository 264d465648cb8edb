"""Test whether levels of a predictor are spread over folds as by random order of the rows: a bound
on an exact p.
"""

from __future__ import annotations

import numpy as np

__all__ = ["log_p_bound"]


def log_p_bound(tables: np.ndarray) -> np.ndarray:
    """Return an upper bound (...) of the log p-value of tables of counts, under random order of the
    rows.

    Parameters
    ----------
    tables : ndarray, shape (..., K, F, L)
        Numbers of rows in each of K groups, F folds and L levels.

    Notes
    -----
    p is the probability, given the totals of folds and levels, of tables that are at most as
    probable as the observed ones. A table has the probability ``prod N_f! prod n_l! / (N! prod
    o_fl!)``, for N_f rows in fold f, n_l at level l, o_fl in both, and N in all. The bound is the
    observed probability times the number of tables with these totals, itself bounded by the ways to
    spread all levels but one over the folds, or all folds but one over the levels. The bounds of
    the K groups are multiplied. So the test keeps its level exactly, however sparse the tables are.

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
    folds = tables.sum(axis=-1)
    levels = tables.sum(axis=-2)
    total = tables.sum(axis=(-1, -2))
    F = tables.shape[-2]
    L = tables.shape[-1]
    log_p = gammaln(folds + 1).sum(axis=-1) + gammaln(levels + 1).sum(axis=-1)
    log_p -= gammaln(total + 1) + gammaln(tables + 1).sum(axis=(-1, -2))
    # for each level, ways to spread its rows over the folds (..., L); for each fold, over the
    # levels (..., F)
    log_ways = (
        gammaln(levels + F) - gammaln(levels + 1) - gammaln(F),
        gammaln(folds + L) - gammaln(folds + 1) - gammaln(L),
    )
    # all but the level or fold with most ways, whose counts follow from the totals
    log_n_tables = [log_way.sum(axis=-1) - log_way.max(axis=-1) for log_way in log_ways]
    return (log_p + np.minimum(*log_n_tables)).sum(axis=-1)
