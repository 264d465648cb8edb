"""Tests of equal group means of numeric variables: one-way ANOVA and Wilks' lambda."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["MeanTests", "WilksTest", "equal_means", "wilks"]


@dataclass(frozen=True)
class MeanTests:
    """One-way analyses of variance of q variables.

    Attributes
    ----------
    F, p : ndarray, shape (q,)
        F statistics and p-values; nan if there are no residual degrees of freedom.
    df, residual_df : float
        Degrees of freedom, the same for all variables.
    """

    F: np.ndarray
    p: np.ndarray
    df: float
    residual_df: float


@dataclass(frozen=True)
class WilksTest:
    """Test of equal mean vectors of several variables.

    Attributes
    ----------
    lambda_ : float
        Wilks' lambda, ``|W| / |T|``, from the within-group and total sums of squares and products.
    F, df, residual_df, p : float
        Rao's approximation by an F distribution, which is exact for two groups and for one or two
        variables.
    """

    lambda_: float
    F: float
    df: float
    residual_df: float
    p: float


def equal_means(n: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> MeanTests:
    """Return the one-way analyses of variance of q variables in K groups (R's ``aov(u ~ y)``).

    Parameters
    ----------
    n : ndarray, shape (K,)
        Number of rows in each group.
    sums, squares : ndarray, shape (K, q)
        Sums of the variables and of their squares, centred near their means.

    Examples
    --------
    >>> test = equal_means(np.array([3, 3]), np.array([[7.0], [14.0]]), np.array([[21.0], [70.0]]))
    >>> test.F.round(3), test.p.round(4), test.df, test.residual_df
    (array([3.5]), array([0.1347]), 1.0, 4.0)
    """
    from scipy.special import fdtrc

    used = n > 0.0
    n = n[used]
    sums = sums[used]
    within = (squares[used] - sums**2 / n[:, None]).sum(axis=0)
    between = (sums**2 / n[:, None]).sum(axis=0) - sums.sum(axis=0) ** 2 / n.sum()
    df = float(len(n) - 1)
    residual_df = float(n.sum() - len(n))
    if df <= 0.0 or residual_df <= 0.0:
        nothing = np.full(sums.shape[1], np.nan)
        return MeanTests(nothing, nothing, df, residual_df)
    with np.errstate(divide="ignore", invalid="ignore"):
        F = np.maximum(between, 0.0) / df / (within / residual_df)
    return MeanTests(F, fdtrc(df, residual_df, F), df, residual_df)


def wilks(n: np.ndarray, sums: np.ndarray, products: np.ndarray) -> WilksTest | None:
    """Return Wilks' test of equal mean vectors, or None if the number of rows is too small or
    the variables are linearly dependent.

    Parameters
    ----------
    n : ndarray, shape (K,)
        Number of rows in each group.
    sums : ndarray, shape (K, q)
        Sums of the variables, centred near their means.
    products : ndarray, shape (K, q, q)
        Sums of squares and products of the variables.
    """
    from scipy.special import fdtrc

    used = n > 0.0
    n = n[used]
    sums = sums[used]
    q = sums.shape[1]
    df = len(n) - 1.0
    residual_df = n.sum() - len(n)
    if df <= 0.0 or residual_df < q:
        return None
    within = (products[used] - sums[:, :, None] * sums[:, None, :] / n[:, None, None]).sum(axis=0)
    total = products[used].sum(axis=0) - np.outer(sums.sum(axis=0), sums.sum(axis=0)) / n.sum()
    scale = np.sqrt(total.diagonal())
    _, log_within = np.linalg.slogdet(within / scale[:, None] / scale)
    _, log_total = np.linalg.slogdet(total / scale[:, None] / scale)
    log_lambda = float(log_within - log_total)
    # Rao (1951)
    squares = q**2 + df**2 - 5.0
    s = np.sqrt((q**2 * df**2 - 4.0) / squares) if squares > 0.0 and q * df != 2.0 else 1.0
    first = q * df
    second = (residual_df - (q - df + 1.0) / 2.0) * s - (q * df - 2.0) / 2.0
    # too few rows for the approximation, or variables that are linearly dependent
    if second <= 0.0 or not np.isfinite(log_total):
        return None
    root = np.exp(log_lambda / s)
    F = (1.0 - root) / root * second / first if root > 0.0 else np.inf
    return WilksTest(
        float(np.exp(log_lambda)), float(F), first, float(second), float(fdtrc(first, second, F))
    )
