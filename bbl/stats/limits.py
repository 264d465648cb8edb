"""Confidence limits for proportions, means of bounded variables and AUCs that are valid in small
samples.
"""

from __future__ import annotations

import numpy as np

from bbl.stats.gammas import tail

__all__ = ["area_limits", "mean_limits", "share_limits", "sum_limits"]

# more distinct values are binned into this many bins, and replaced by their bin's mean
MAX_DISTINCT = 2048


def share_limits(
    hits: np.ndarray, total: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact limits of proportions ``hits / total`` (Clopper & Pearson 1934).

    The limits are 0 and 1 if `total` is 0.

    Examples
    --------
    >>> low, high = share_limits(np.array([9.0]), np.array([10.0]))
    >>> low.round(4), high.round(4)
    (array([0.555]), array([0.9975]))
    """
    from scipy.special import betaincinv

    hits = np.asarray(hits, dtype=float)
    total = np.asarray(total, dtype=float)
    misses = total - hits
    alpha = (1.0 - level) / 2
    # 1.0 is a placeholder where the beta distribution does not exist and the limit is 0 or 1
    low = np.where(hits > 0, betaincinv(np.where(hits > 0, hits, 1.0), misses + 1.0, alpha), 0.0)
    high = np.where(
        misses > 0, betaincinv(hits + 1.0, np.where(misses > 0, misses, 1.0), 1.0 - alpha), 1.0
    )
    return low, high


def mean_limits(
    values: np.ndarray, weights: np.ndarray, low: float, high: float, level: float = 0.95
) -> tuple[float, float]:
    """Return confidence limits for the mean of values in [`low`, `high`] with any distribution.

    Parameters
    ----------
    values : ndarray, shape (n,)
    weights : ndarray, shape (n,)
        Frequencies; a value with weight w counts as w identical values.
    low, high : float
        Smallest and largest possible values.
    level : float, default 0.95

    Notes
    -----
    The limit of Gaffke (2005) is a quantile of a weighted mean with random Dirichlet(1, ..., 1)
    weights. The mean is over the values and one additional value at `low` or `high`. For zeros and
    ones, the limit equals the exact limit of Clopper & Pearson. Learned-Miller & Thomas (2020) did
    not find a case where it is invalid.

    Examples
    --------
    >>> lower, upper = mean_limits(np.array([1.0, 0.0]), np.array([9.0, 1.0]), 0.0, 1.0)
    >>> round(lower, 4), round(upper, 4)
    (0.555, 0.9975)
    """
    values, weights = _merge_equal_values(np.clip(values, low, high), weights)
    alpha = (1.0 - level) / 2
    # the lower limit is minus the upper limit of the negated values
    return -_find_upper_limit(-values, weights, -low, alpha), _find_upper_limit(
        values, weights, high, alpha
    )


def _merge_equal_values(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct values and their total weights.

    If the number of values is too large, they are binned in a way that preserves the overall mean.
    """
    distinct, value_index = np.unique(values, return_inverse=True)
    if len(distinct) > MAX_DISTINCT:
        width = (distinct[-1] - distinct[0]) / MAX_DISTINCT
        value_index = np.minimum(((values - distinct[0]) / width).astype(np.intp), MAX_DISTINCT - 1)
    value_weights = np.bincount(value_index, weights)
    has_weight = value_weights > 0
    return np.bincount(value_index, weights * values)[has_weight] / value_weights[
        has_weight
    ], value_weights[has_weight]


def _find_upper_limit(values: np.ndarray, weights: np.ndarray, high: float, alpha: float) -> float:
    """Return the upper limit for the mean of values of at most `high`, with tail probability
    `alpha`.

    The random mean (see `mean_limits`) is ``sum v_i G_i / sum G_i``, where the G_i are gamma
    variables whose shapes are the weights of the values v_i. The random mean exceeds a limit if
    ``sum (v_i - limit) G_i > 0``.
    """
    from scipy.optimize import brentq

    rounding = 1e-12 * max(1.0, abs(high))
    if values.min() >= high - rounding:
        return high
    mean = float(weights @ values / weights.sum())
    # add one value at the bound
    extended = np.append(values, high)
    shapes = np.append(weights, 1.0)

    def excess(limit: float) -> float:
        """Return the probability that the random mean exceeds `limit`, minus `alpha`."""
        return tail(extended - limit, shapes) - alpha

    return float(brentq(excess, mean, high, xtol=rounding, rtol=1e-10))


def sum_limits(
    shares: np.ndarray, low: np.ndarray, high: np.ndarray, factors: np.ndarray
) -> tuple[float, float]:
    """Return limits for ``factors @ shares``, given the limits `low` and `high` for `shares`.

    The estimates must be independent (Zou & Donner 2008). The distance of the limits from the
    estimate is ``sqrt(sum_i (factor_i (limit_i - share_i))^2)``; factors must not be negative.
    """
    estimate = float(factors @ shares)
    below, above = (
        float(np.sqrt(((factors * (limit - shares)) ** 2).sum())) for limit in (low, high)
    )
    return estimate - below, estimate + above


def area_limits(
    area: float,
    cases: float,
    controls: float,
    level: float = 0.95,
    wald: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """Return confidence limits for an area under a ROC curve, by method 5 of Newcombe (2006).

    This is a score interval: the variance is evaluated at the limit instead of the estimate. The
    lower limit for an area of 1 is therefore below 1. The variance is Hanley & McNeil's (1982), ``a
    (1 - a) (1 + (N - 1) ((1 - a)/(2 - a) + a/(1 + a))) / (cases controls)``, where N is the mean
    size of both groups; it assumes that the scores have the same spread in both groups.

    Parameters
    ----------
    area : float
        The estimated area.
    cases, controls : float
        Sizes of the two groups; both limits are nan if one is empty.
    level : float, default 0.95
    wald : (float, float), optional
        Limits based on DeLong's variance, which does not assume equal spread but is zero for an
        area of 1. On each side, the limit farther from `area` is returned.

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
    z = float(ndtri(0.5 + level / 2))
    mean_size_less_one = 0.5 * (cases + controls) - 1.0

    def relative_spread(a: float) -> float:
        """Return the squared half-width of the interval at area `a`, divided by ``a (1 - a)``."""
        return (
            z**2
            * (1.0 + mean_size_less_one * ((1.0 - a) / (2.0 - a) + a / (1.0 + a)))
            / (cases * controls)
        )

    def excess(a: float) -> float:
        """Return the squared distance of `a` from the estimate minus the squared half-width."""
        return (area - a) ** 2 - a * (1.0 - a) * relative_spread(a)

    # an area of 0 or 1 is itself a root of `excess` but not a limit. Divide this root out: with b
    # the distance of a from it, solve ``excess / b = 0``; `relative_spread` is the same at b and 1
    # - b
    if area <= 0.0 or area >= 1.0:
        width = float(brentq(lambda b: b - (1.0 - b) * relative_spread(b), 0.0, 1.0, xtol=1e-30))
        lower, upper = (0.0, width) if area <= 0.0 else (1.0 - width, 1.0)
    else:
        lower = float(brentq(excess, 0.0, area))
        upper = float(brentq(excess, area, 1.0))
    if wald is not None and not np.isnan(wald).any():
        lower = min(lower, wald[0])
        upper = max(upper, wald[1])
    return lower, upper
