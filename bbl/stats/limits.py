"""Confidence limits that hold in small samples: of shares, of means of bounded numbers, of areas under ROC curves."""

from __future__ import annotations

import numpy as np

from bbl.stats.gammas import tail

__all__ = ["area_limits", "mean_limits", "share_limits", "sum_limits"]

DISTINCT = 2048  # numbers beyond which they are put in that many narrow bins, each at its own mean


def share_limits(hits: np.ndarray, total: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact limits of binomial shares ``hits / total`` (Clopper & Pearson 1934); 0 and 1 where total is 0.

    Examples
    --------
    >>> low, high = share_limits(np.array([9.0]), np.array([10.0]))
    >>> low.round(4), high.round(4)
    (array([0.555]), array([0.9975]))
    """
    from scipy.special import betaincinv

    hits, total = np.asarray(hits, dtype=float), np.asarray(total, dtype=float)
    misses, side = total - hits, (1.0 - level) / 2
    low = np.where(hits > 0, betaincinv(np.where(hits > 0, hits, 1.0), misses + 1.0, side), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1.0, np.where(misses > 0, misses, 1.0), 1.0 - side), 1.0)
    return low, high


def mean_limits(
    values: np.ndarray, weights: np.ndarray, low: float, high: float, level: float = 0.95
) -> tuple[float, float]:
    """Return confidence limits of the mean of numbers that lie in [`low`, `high`].

    Parameters
    ----------
    values : ndarray, shape (n,)
    weights : ndarray, shape (n,)
        Frequencies: a weight is the same as repeating the number.
    low, high : float
        What the numbers can be at the least and at the most.
    level : float, default 0.95

    Returns
    -------
    (lower, upper)

    Notes
    -----
    The bound of Gaffke (2005): the mean of the numbers and one more at the bound, weighted at random by the gaps
    between uniform variables; the limit is a quantile of that. No distribution is taken for granted. For zeros and ones
    it is the exact limit of Clopper & Pearson. Learned-Miller & Thomas (2020) found no case in which it does not hold.

    Examples
    --------
    >>> lower, upper = mean_limits(np.array([1.0, 0.0]), np.array([9.0, 1.0]), 0.0, 1.0)
    >>> round(lower, 4), round(upper, 4)
    (0.555, 0.9975)
    """
    values, weights = _distinct(np.clip(values, low, high), weights)
    side = (1.0 - level) / 2
    return -_upper(-values, weights, -low, side), _upper(values, weights, high, side)


def _distinct(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct numbers with their weights; many are binned, which leaves their mean as it is."""
    distinct_values, at = np.unique(values, return_inverse=True)
    if len(distinct_values) > DISTINCT:
        width = (distinct_values[-1] - distinct_values[0]) / DISTINCT
        at = np.minimum(((values - distinct_values[0]) / width).astype(np.intp), DISTINCT - 1)
    total = np.bincount(at, weights)
    has_weight = total > 0
    return np.bincount(at, weights * values)[has_weight] / total[has_weight], total[has_weight]


def _upper(values: np.ndarray, weights: np.ndarray, most: float, side: float) -> float:
    from scipy.optimize import brentq

    rounding = 1e-12 * max(1.0, abs(most))
    if values.min() >= most - rounding:
        return most
    mean = float(weights @ values / weights.sum())
    numbers, shapes = np.append(values, most), np.append(weights, 1.0)

    def excess(limit: float) -> float:
        return tail(numbers - limit, shapes) - side

    return float(brentq(excess, mean, most, xtol=rounding, rtol=1e-10))


def sum_limits(shares: np.ndarray, low: np.ndarray, high: np.ndarray, factors: np.ndarray) -> tuple[float, float]:
    """Return limits of a weighted sum of independent estimates from the limits of each (Zou & Donner 2008)."""
    middle = float(factors @ shares)
    below, above = (float(np.sqrt(((factors * (end - shares)) ** 2).sum())) for end in (low, high))
    return middle - below, middle + above


def area_limits(
    area: float, cases: float, controls: float, level: float = 0.95, wald: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Return confidence limits of an area under a ROC curve, by the method 5 of Newcombe (2006).

    A score interval: the variance is that of the area in question, not of the estimate, so that an area of 1 has a
    lower limit below it. The variance is Hanley & McNeil's (1982), with the mean size for both groups, which takes for
    granted that scores scatter alike in both.

    Parameters
    ----------
    area : float
    cases, controls : float
        Sizes of the two groups; both limits are nan if one is empty.
    level : float, default 0.95
    wald : (float, float), optional
        Limits by DeLong's variance, which does not, but is zero for an area of 1. The wider limits are returned.

    Examples
    --------
    >>> lower, upper = area_limits(1.0, 10, 10)
    >>> round(lower, 3), upper
    (0.8, 1.0)
    """
    from scipy.optimize import brentq
    from scipy.special import ndtri

    if not cases or not controls:
        return float("nan"), float("nan")
    z, mean_size_less_one = float(ndtri(0.5 + level / 2)), 0.5 * (cases + controls) - 1.0

    def spread(a: float) -> float:
        """Return the squared half-width of an interval around a, as a share of ``a (1 - a)``."""
        return z**2 * (1.0 + mean_size_less_one * ((1.0 - a) / (2.0 - a) + a / (1.0 + a))) / (cases * controls)

    def excess(a: float) -> float:
        return (area - a) ** 2 - a * (1.0 - a) * spread(a)

    if area <= 0.0 or area >= 1.0:  # the area itself is a root of `excess`, of no interest
        width = float(brentq(lambda b: b - (1.0 - b) * spread(b), 0.0, 1.0, xtol=1e-30))
        lower, upper = (0.0, width) if area <= 0.0 else (1.0 - width, 1.0)
    else:
        lower, upper = float(brentq(excess, 0.0, area)), float(brentq(excess, area, 1.0))
    if wald is not None and not np.isnan(wald).any():
        lower, upper = min(lower, wald[0]), max(upper, wald[1])
    return lower, upper
