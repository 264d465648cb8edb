"""Exact conditional tests and confidence limits for a log odds ratio.

Given the margins of 2 x 2 tables, a count T (the sufficient statistic of the log odds ratio psi)
has the distribution ``P(T = t) ~ c_t exp(psi t)``: a `PowerSeries`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["PowerSeries", "hypergeometric", "root"]

FURTHEST = 60.0  # a log odds ratio with a larger absolute value is treated as infinite
MAX_STEPS = 200  # maximum number of Newton and bisection steps; bisection alone takes 50
PRECISION = 1e-10  # stop after a step shorter than this
MAX_PAIRED_WIDTH = 16  # polynomials with more coefficients are multiplied one by one; a power of 2
# minimum log coefficient of the observed count, if the largest is 0; exp(-745) underflows to zero
LEAST_LOG_COEFFICIENT = -500.0


def root(increasing: Callable[[float], tuple[float, float]], end: float) -> float:
    """Return the root of an increasing function, or -inf or inf if it is not in [-end, end].

    `increasing` returns the value and the slope at a point. Newton's method starts from 0, and a
    step outside the bracket is replaced by bisection.

    Examples
    --------
    >>> root(lambda x: (x**3 - 8.0, 3.0 * x**2), 60.0), root(lambda x: (x - 80.0, 1.0), 60.0)
    (2.0, inf)
    """
    low = -end
    high = end
    x = 0.0
    for _ in range(MAX_STEPS):
        value, slope = increasing(x)
        if value == 0.0:
            return x
        low, high = (x, high) if value < 0.0 else (low, x)
        previous = x
        x = x - value / slope if slope > 0.0 else np.inf
        if not low < x < high:
            x = 0.5 * (low + high)
        if abs(x - previous) < PRECISION:
            break
    # a bracket that has shrunk to an end contains no root
    return float(np.copysign(np.inf, x)) if end - abs(x) < 2.0 * PRECISION else x


@dataclass(frozen=True)
class PowerSeries:
    """Conditional distribution ``P(T = t) ~ c_t exp(psi t)`` of a count.

    Attributes
    ----------
    log_c : ndarray, shape (support,)
        Log coefficients of t = 0, 1, ...
    t : int
        Observed count.
    share : float, default 0.5
        Proportion of ``P(T = t)`` included in each tail. Use one half (mid-p) if margins vary from
        sample to sample; the level is then valid on average over margins. Use 1 for a binomial
        count, where margins are fixed.
    """

    log_c: np.ndarray
    t: int
    share: float = 0.5

    def less(self, other: PowerSeries) -> PowerSeries:
        """Return the distribution of this count given the sum of this and another count.

        Its parameter is the difference between the parameters of the two counts.

        The coefficients are ``c_t d_(s - t)``, where c and d are the coefficients of the two counts
        and s is their observed sum. The tails include one half of ``P(T = t)``.
        """
        total = self.t + other.t
        # possible values of this count given the sum; the result is counted from the first
        counts = np.arange(
            max(0, total - len(other.log_c) + 1), min(total, len(self.log_c) - 1) + 1
        )
        return PowerSeries(
            self.log_c[counts] + other.log_c[total - counts], self.t - int(counts[0])
        )

    def inside(self) -> PowerSeries | None:
        """Return the distribution conditional on a finite estimate, or None if the estimate is
        infinite.

        The estimate is infinite at the ends of the support. In this case, a test is not performed.
        The remaining tests have the correct level only if the distribution is conditional on a
        finite estimate.
        """
        if not 0 < self.t < len(self.log_c) - 1:
            return None
        return PowerSeries(self.log_c[1:-1], self.t - 1, self.share)

    def moments(self, psi: float) -> tuple[float, float]:
        """Return the mean and variance of the count at the parameter `psi`."""
        t = np.arange(len(self.log_c))
        log_p = self.log_c + psi * t
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        mean = float(p @ t)
        return mean, float(p @ (t - mean) ** 2)

    def mean(self, psi: float) -> float:
        """Return the mean of the count at the parameter `psi`."""
        return self.moments(psi)[0]

    def solve(self, mean: float) -> float:
        """Return the parameter at which the count has a given mean; it may be infinite."""
        if not 0.0 < mean < len(self.log_c) - 1:
            return np.inf if mean > 0.0 else -np.inf

        def excess(psi: float) -> tuple[float, float]:
            """Return the mean of the count at `psi` minus the target mean, and its slope (the
            variance).
            """
            mean_at_psi, variance = self.moments(psi)
            return mean_at_psi - mean, variance

        return root(excess, FURTHEST)

    @cached_property
    def estimate(self) -> float:
        """Maximum likelihood estimate of psi, at which the mean equals `t`; infinite at the ends of
        the support.
        """
        return self.solve(self.t)

    def tails(self, psi: float) -> tuple[float, float]:
        """Return ``P(T <= t)`` and ``P(T >= t)`` at `psi`, each including the proportion `share` of
        ``P(T = t)``.
        """
        log_p = self.log_c + psi * np.arange(len(self.log_c))
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        share_of_observed = self.share * p[self.t]
        return float(p[: self.t].sum() + share_of_observed), float(
            p[self.t + 1 :].sum() + share_of_observed
        )

    def p(self) -> float:
        """Return the two-sided p-value of ``psi = 0``: twice the smaller tail."""
        return min(1.0, 2.0 * min(self.tails(0.0)))

    def limits(self, level: float) -> tuple[float, float]:
        """Return the confidence limits of psi, where a tail probability equals
        ``(1 - level) / 2``.
        """
        # the upper tail (side 1) increases with psi and gives the lower limit
        return self._limit(1, 0.5 * (1.0 - level)), self._limit(0, 0.5 * (1.0 - level))

    def _limit(self, side: int, alpha: float) -> float:
        """Return the psi at which the lower (side 0) or upper (side 1) tail probability is `alpha`;
        it may be infinite.
        """
        t = np.arange(len(self.log_c))
        tail_share = (t > self.t if side else t < self.t) + self.share * (t == self.t)
        sign = 1.0 if side else -1.0

        def excess(psi: float) -> tuple[float, float]:
            """Return `sign` times ``ln(tail / alpha)`` and its slope.

            This function is nearly linear far from the estimate.
            """
            log_p = self.log_c + psi * t
            p = np.exp(log_p - log_p.max())
            tail_p = p * tail_share
            tail_sum = float(tail_p.sum())
            p_sum = float(p.sum())
            if tail_sum == 0.0:
                return -sign * np.inf, np.nan
            slope = float(tail_p @ t) / tail_sum - float(p @ t) / p_sum
            return sign * float(np.log(tail_sum / p_sum / alpha)), sign * slope

        return root(excess, FURTHEST)


def hypergeometric(
    n11: np.ndarray, rows: np.ndarray, columns: np.ndarray, n: np.ndarray
) -> PowerSeries:
    """Return the distribution of the sum of the first cells of 2 x 2 tables, given all margins.

    The tables have a common odds ratio. The distribution is the product of the tables'
    hypergeometric generating functions (Birch 1964; Gart 1970): polynomials with coefficients ``1 /
    (t! (r - t)! (c - t)! (n - r - c + t)!)`` for a first cell t in a table with first row sum r,
    first column sum c and total n.

    Parameters
    ----------
    n11 : ndarray, shape (tables,)
        First cell of each table.
    rows, columns, n : ndarray, shape (tables,)
        Sums over the first row, the first column, and the whole table.
    """
    from scipy.special import gammaln

    lowest = np.maximum(0, rows + columns - n)
    n_coefficients = (np.minimum(rows, columns) - lowest).astype(np.intp) + 1
    # counted from the smallest possible sum of first cells
    observed = round(float((n11 - lowest).sum()))
    # in other tables the first cell is fixed, and adds nothing to `observed`
    is_informative = n_coefficients > 1
    rows, columns, n, lowest, n_coefficients = (
        v[is_informative] for v in (rows, columns, n, lowest, n_coefficients)
    )
    # position of each table's first coefficient in `log_c`
    start = np.cumsum(n_coefficients) - n_coefficients
    table_index = np.repeat(np.arange(len(n_coefficients)), n_coefficients)
    # the first cell that corresponds to each coefficient
    t = lowest[table_index] + np.arange(len(table_index)) - start[table_index]
    log_c = -(
        gammaln(t + 1)
        + gammaln(rows[table_index] - t + 1)
        + gammaln(columns[table_index] - t + 1)
        + gammaln((n - rows - columns)[table_index] + t + 1)
    )
    log_product = _multiply_log_polynomials(log_c, n_coefficients, start)
    # avoid underflow by centring the distribution on the observed count
    if log_product[observed] < LEAST_LOG_COEFFICIENT:
        tilt = _find_centre(log_c, n_coefficients, start, observed)
        # undo the factors exp(tilt t) of the tables' coefficients in the product
        tilted_product = _multiply_log_polynomials(
            log_c + tilt * (t - lowest[table_index]), n_coefficients, start
        )
        log_product = tilted_product - tilt * np.arange(len(tilted_product))
        log_product -= log_product.max()
    return PowerSeries(log_product, observed)


def _find_centre(
    log_c: np.ndarray, n_coefficients: np.ndarray, start: np.ndarray, total: int
) -> float:
    """Return the psi at which the sum of the counts of all tables has mean `total`.

    `log_c` contains the logarithms of `c` in `_multiply_polynomials`. The other arguments are
    described there.
    """
    # the count of each coefficient, from 0 in each table
    t = np.arange(len(log_c)) - np.repeat(start, n_coefficients)

    def excess(psi: float) -> tuple[float, float]:
        """Return the mean of the sum at `psi` minus `total`, and its slope, the sum of the
        variances.
        """
        log_p = log_c + psi * t
        p = np.exp(log_p - np.repeat(np.maximum.reduceat(log_p, start), n_coefficients))
        p /= np.repeat(np.add.reduceat(p, start), n_coefficients)
        mean = np.add.reduceat(p * t, start)
        return float(mean.sum()) - total, float(
            np.add.reduceat(p * t**2, start).sum() - (mean**2).sum()
        )

    return float(np.clip(root(excess, FURTHEST), -FURTHEST, FURTHEST))


def _multiply_log_polynomials(
    log_c: np.ndarray, n_coefficients: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Return the log coefficients of a product of polynomials, scaled to a maximum of 0.

    See `_multiply_polynomials` for the other arguments.
    """
    if len(n_coefficients):
        log_c = log_c - np.repeat(np.maximum.reduceat(log_c, start), n_coefficients)
    with np.errstate(divide="ignore"):
        return np.log(_multiply_polynomials(np.exp(log_c), n_coefficients, start))


def _multiply_polynomials(
    c: np.ndarray, n_coefficients: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Return the coefficients (support,) of the product of polynomials, scaled to a maximum of 1.

    `c` contains the coefficients of all polynomials. Polynomial i has `n_coefficients[i]`
    coefficients, which start at `start[i]`. There may be many small strata, so short polynomials
    are padded to equal widths and multiplied in pairs, all at once.
    """
    # (polynomials, width): none so far
    products = np.ones((0, 2))
    width = 2
    # at each width, multiply pairs of the current products and the polynomials of about this width
    while width <= MAX_PAIRED_WIDTH:
        polynomials = np.flatnonzero((n_coefficients <= width) & (2 * n_coefficients > width))
        is_coefficient = np.arange(width) < n_coefficients[polynomials, None]
        padded = np.zeros((len(polynomials), width))
        padded[is_coefficient] = c[(start[polynomials, None] + np.arange(width))[is_coefficient]]
        # half as many products of twice the width join the polynomials of the next width
        products = _multiply_pairs(np.concatenate([products, padded]))
        width = 2 * width
    product = np.ones(1)
    wide = [
        c[a : a + n] for a, n in zip(start, n_coefficients, strict=True) if n > MAX_PAIRED_WIDTH
    ]
    for factor in [*products, *wide]:
        product = np.convolve(product, factor)
        product /= product.max()
    return product[: int((n_coefficients - 1).sum()) + 1]  # without the zeros from padding


def _multiply_pairs(factors: np.ndarray) -> np.ndarray:
    """Return the products of polynomials 0 and 1, 2 and 3, ...: `factors` (count, width) become
    (count / 2, 2 width).

    If the count is odd, the last polynomial remains unmultiplied. All are scaled to a maximum
    coefficient of 1.
    """
    count, width = factors.shape
    products = np.zeros(((count + 1) // 2, 2 * width))
    products[count // 2 :, :width] = factors[count - count % 2 :]
    first = factors[: count - 1 : 2]
    second = factors[1::2]
    pair_products = products[: count // 2]
    for k in range(width if count > 1 else 0):
        pair_products[:, k : k + width] += first[:, k : k + 1] * second
    return products / products.max(axis=1, keepdims=True)
