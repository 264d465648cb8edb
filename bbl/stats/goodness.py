"""Goodness of fit of a table: fit statistics, p-values and residuals."""

from __future__ import annotations

import numpy as np

__all__ = [
    "STATISTICS",
    "adjusted_residuals",
    "chi_square_p",
    "deviance_residuals",
    "goodness_statistics",
    "is_sparse",
    "pearson_residuals",
]

STATISTICS = ("G2", "X2", "Freeman-Tukey")
# expected counts below this are small in Cochran's rule (1954) for chi-square distributions
SMALL_COUNT = 5.0
SMALL_SHARE = 0.2  # maximum proportion of small expected counts in Cochran's rule
LEAST_COUNT = 1.0  # minimum expected count in Cochran's rule
ROUNDING = 1e-9  # relative rounding error of expected counts allowed for in these rules
# with a leverage this close to 1, the model reproduces any count in the cell
SATURATED = 1e-9


def goodness_statistics(observed: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return the likelihood ratio, Pearson and Freeman-Tukey statistics (see `STATISTICS`).

    They are ``2 sum n ln(n / m)``, ``sum (n - m)^2 / m`` and ``4 sum (sqrt(n) - sqrt(m))^2``.

    Parameters
    ----------
    observed, fitted : ndarray, shape (n,)
        Counts n and expected counts m of all cells, with equal sums. Cells where both are 0 do not
        contribute.

    Examples
    --------
    >>> goodness_statistics(np.array([30.0, 10.0]), np.array([20.0, 20.0])).round(3).tolist()
    [10.465, 10.0, 10.904]
    """
    likelihood_ratio = _deviances(observed, fitted).sum()
    pearson = (pearson_residuals(observed, fitted) ** 2).sum()
    return np.array(
        [likelihood_ratio, pearson, 4.0 * ((np.sqrt(observed) - np.sqrt(fitted)) ** 2).sum()]
    )


def chi_square_p(statistics: np.ndarray, df: int) -> np.ndarray:
    """Return the p-values of chi-square statistics with `df` degrees of freedom, or nan if `df` is
    0.
    """
    from scipy.special import chdtrc

    return chdtrc(df, statistics) if df > 0 else np.full(len(statistics), np.nan)


def is_sparse(fitted: np.ndarray) -> bool:
    """Return whether expected counts (n,) are too small for Cochran's rule.

    The rule applies to tests based on a chi-square distribution. Cells with an expected count of 0
    are ignored.
    """
    positive = fitted[fitted > 0.0] * (1.0 + ROUNDING)
    return bool((positive < LEAST_COUNT).any() or (positive < SMALL_COUNT).mean() > SMALL_SHARE)


def pearson_residuals(observed: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return ``(n - m) / sqrt(m)`` for each cell, or 0 where both counts are 0."""
    excess = observed - fitted
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(excess == 0.0, 0.0, excess / np.sqrt(fitted))


def deviance_residuals(observed: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return the signed square roots of the contributions ``2 (n ln(n / m) - n + m)`` of cells to
    G2.
    """
    return np.sign(observed - fitted) * np.sqrt(_deviances(observed, fitted))


def _deviances(observed: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return ``2 (n ln(n / m) - n + m) >= 0`` for each cell; the result is accurate even for nearly
    equal counts.
    """
    from scipy.special import xlog1py

    excess = observed - fitted
    with np.errstate(divide="ignore", invalid="ignore"):
        relative_excess = np.where(excess == 0.0, 0.0, excess / fitted)
    return np.maximum(2.0 * (xlog1py(observed, relative_excess) - excess), 0.0)


def adjusted_residuals(
    observed: np.ndarray, fitted: np.ndarray, leverage: np.ndarray
) -> np.ndarray:
    """Return Pearson residuals divided by ``sqrt(1 - leverage)``, their standard errors.

    See Haberman (1973, Biometrics 29). If the model is correct, the residuals are standard normal
    in large samples. They are nan in cells that the model always fits exactly. `leverage` (n,)
    contains the diagonal of the hat matrix, which is close to 1 in such cells.
    """
    variance = 1.0 - leverage
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            variance > SATURATED, pearson_residuals(observed, fitted) / np.sqrt(variance), np.nan
        )
