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
    """Return a quantile of the t distribution (normal if `df` is infinite, nan if it is below 1).
    `df` may be an array.
    """
    from scipy.special import ndtri, stdtrit

    is_known, finite = _split(df)
    quantile = np.where(np.isinf(df), ndtri(probability), stdtrit(finite, probability))
    # [()]: a number for a number
    return np.where(is_known, quantile, np.nan)[()]


def two_sided_p(t: np.ndarray, df: float | np.ndarray) -> np.ndarray:
    """Return the two-sided p-values of `t`, or nan if `df` is below 1. `df` may be an array of the
    same shape.

    Examples
    --------
    >>> two_sided_p(np.array([1.96, -2.5]), np.inf).round(3).tolist()
    [0.05, 0.012]
    """
    from scipy.special import ndtr, stdtr

    is_known, finite = _split(df)
    p = np.where(np.isinf(df), ndtr(-np.abs(t)), stdtr(finite, -np.abs(t)))
    return np.where(is_known, 2.0 * p, np.nan)


def _split(df: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a mask of valid degrees of freedom, and `df` with 1 for invalid and infinite
    values.
    """
    df = np.asarray(df, dtype=float)
    is_known = df >= 1.0
    return is_known, np.where(is_known & np.isfinite(df), df, 1.0)
