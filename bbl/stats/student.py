"""Quantiles and p-values of Student's t distribution, including the normal limit."""

from __future__ import annotations

from typing import overload

import numpy as np

__all__ = ["t_quantile", "two_sided_p"]


@overload
def t_quantile(probability: float, df: float) -> float: ...
@overload
def t_quantile(probability: float, df: np.ndarray) -> np.ndarray: ...
def t_quantile(probability: float, df: float | np.ndarray) -> float | np.ndarray:
    """Return a quantile of the t distribution; normal if `df` is infinite, nan if it is below 1.
    `df` may be an array.
    """
    from scipy.special import ndtri, stdtrit

    if isinstance(df, np.ndarray):
        finite = np.where(np.isfinite(df) & (df >= 1.0), df, 1.0)
        quantile = np.where(np.isinf(df), ndtri(probability), stdtrit(finite, probability))
        return np.where(df >= 1.0, quantile, np.nan)
    if df < 1:
        return np.nan
    return float(ndtri(probability) if np.isinf(df) else stdtrit(df, probability))


def two_sided_p(t: np.ndarray, df: float | np.ndarray) -> np.ndarray:
    """Return the two-sided p-values of `t`; nan if `df` is below 1. `df` may be an array of the
    same shape.

    Examples
    --------
    >>> two_sided_p(np.array([1.96, -2.5]), np.inf).round(3).tolist()
    [0.05, 0.012]
    """
    from scipy.special import ndtr, stdtr

    if isinstance(df, np.ndarray):
        finite = np.where(np.isfinite(df) & (df >= 1.0), df, 1.0)
        p = np.where(np.isinf(df), ndtr(-np.abs(t)), stdtr(finite, -np.abs(t)))
        return np.where(df >= 1.0, 2.0 * p, np.nan)
    if df < 1:
        return np.full_like(t, np.nan)
    return 2.0 * (ndtr(-np.abs(t)) if np.isinf(df) else stdtr(df, -np.abs(t)))
