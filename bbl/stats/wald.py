"""Wald tests of parameter tables, and adjustment of p-values for multiple testing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["adjust", "wald"]


def wald(
    tables: Sequence[np.ndarray], covariances: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Test the hypothesis that each parameter table is zero.

    Parameters
    ----------
    tables : sequence of ndarray, shape (q,)
        Estimated parameters of each table.
    covariances : sequence of ndarray, shape (q, q)
        Covariance matrix V of each table.

    Returns
    -------
    statistic, df, p : ndarray, shape (number of tables,)
        ``theta' V^-1 theta``, the rank of V, and the upper tail probability of the chi-square
        distribution; nan for a table without parameters.

    Examples
    --------
    >>> statistic, df, p = wald([np.array([2.0])], [np.eye(1)])
    >>> statistic, df, p.round(4)
    (array([4.]), array([1]), array([0.0455]))
    """
    from scipy.special import chdtrc

    sizes = np.array([len(estimates) for estimates in tables], dtype=np.intp)
    # nan and 0 for tables without parameters
    statistic = np.full(len(tables), np.nan)
    df = sizes.copy()
    # tables with one parameter, all at once
    single = [k for k, size in enumerate(sizes) if size == 1]
    if single:
        estimate = np.array([tables[k][0] for k in single])
        variance = np.array([covariances[k][0, 0] for k in single])
        statistic[single] = estimate**2 / variance
    for k in (k for k, size in enumerate(sizes) if size > 1):
        # V may be singular: use the least-squares solution and the rank of V
        solution, _, df[k], _ = np.linalg.lstsq(covariances[k], tables[k], rcond=1e-12)
        statistic[k] = tables[k] @ solution
    return statistic, df, np.where(df > 0, chdtrc(np.maximum(df, 1), statistic), np.nan)


def adjust(p: np.ndarray, method: str) -> np.ndarray:
    """Return p-values (n,) adjusted for multiple testing.

    NaN values (no test was performed) remain NaN and are not counted.

    Parameters
    ----------
    p : ndarray
    method : {"holm", "fdr_bh"}
        "holm" (Holm 1979) controls the probability of any false rejection, and "fdr_bh" (Benjamini
        & Hochberg 1995) controls the expected proportion of false rejections. If n p-values are
        sorted in increasing order, the adjusted k-th value is the largest ``(n - j + 1) p_j`` for j
        <= k ("holm") or the smallest ``n p_j / j`` for j >= k ("fdr_bh"), but at most 1.

    Examples
    --------
    >>> adjust(np.array([0.01, np.nan, 0.02]), "holm")
    array([0.02,  nan, 0.02])
    """
    # statsmodels' `multipletests` gives the same values (tested), but importing it takes 0.6 s
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    n = len(order)
    if method == "fdr_bh":
        scaled_p = p[order] / (np.arange(1, n + 1) / n)
        adjusted[order] = np.minimum(np.minimum.accumulate(scaled_p[::-1])[::-1], 1.0)
    else:
        adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(n, 0, -1)), 1.0)
    return adjusted
