"""Quantiles and p-values of Student's t distribution, including the normal limit."""

from __future__ import annotations

import numpy as np

__all__ = ["t_quantile", "two_sided_p"]


def t_quantile(probability: float, df: float) -> float:
    """Return a quantile of the t distribution; normal if `df` is infinite, nan if it is below 1."""
    from scipy.special import ndtri, stdtrit

    if df < 1:
        return np.nan
    return float(ndtri(probability) if np.isinf(df) else stdtrit(df, probability))


def two_sided_p(t: np.ndarray, df: float) -> np.ndarray:
    """Return the two-sided p-values of `t`; nan if `df` is below 1.

    Examples
    --------
    >>> two_sided_p(np.array([1.96, -2.5]), np.inf).round(3).tolist()
    [0.05, 0.012]
    """
    from scipy.special import ndtr, stdtr

    if df < 1:
        return np.full_like(t, np.nan)
    return 2.0 * (ndtr(-np.abs(t)) if np.isinf(df) else stdtr(df, -np.abs(t)))
