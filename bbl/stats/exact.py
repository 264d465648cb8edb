"""Exact conditional tests and intervals of one log odds ratio, from its conditional distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["PowerSeries", "hypergeometric", "root"]

FURTHEST = 60.0  # log odds ratio beyond which a limit counts as infinite
STEPS = 200  # of Newton's method and bisection together; bisection alone takes 50
PRECISION = 1e-10  # of a root
WIDEST = 16  # polynomials of more coefficients are multiplied one by one; a power of 2


def root(increasing: Callable[[float], tuple[float, float]], end: float) -> float:
    """Return where an increasing function is zero; infinite where it is not within `end` of zero.

    Parameters
    ----------
    increasing : callable
        Returns the value and the slope.
    end : float

    Notes
    -----
    Newton's method from 0; bisection where it leaves the bracket, whose ends count as of unlike signs until one is hit.

    Examples
    --------
    >>> root(lambda x: (x**3 - 8.0, 3.0 * x**2), 60.0), root(lambda x: (x - 80.0, 1.0), 60.0)
    (2.0, inf)
    """
    low, high, x = -end, end, 0.0
    for _ in range(STEPS):
        value, slope = increasing(x)
        if value == 0.0:
            return x
        low, high = (x, high) if value < 0.0 else (low, x)
        last, x = x, x - value / slope if slope > 0.0 else np.inf
        if not low < x < high:
            x = 0.5 * (low + high)
        if abs(x - last) < PRECISION:
            break
    return float(np.copysign(np.inf, x)) if end - abs(x) < 2.0 * PRECISION else x


@dataclass(frozen=True)
class PowerSeries:
    """A count with ``P(t) ~ c_t exp(psi t)``, given all that depends on other parameters, and its value.

    Attributes
    ----------
    log_c : ndarray, shape (support,)
        Logarithms of the coefficients.
    t : int
        What was observed, from 0.
    share : float, default 0.5
        How much of ``P(T = t)`` both tails have: one half (mid-p) where margins vary from sample to sample, which keeps
        the level on average over them; all of it for a binomial count, where nothing varies.
    """

    log_c: np.ndarray
    t: int
    share: float = 0.5

    def less(self, other: PowerSeries) -> PowerSeries:
        """Return the distribution for the difference of two parameters, given the sum of both counts."""
        total = self.t + other.t
        counts_here = np.arange(max(0, total - len(other.log_c) + 1), min(total, len(self.log_c) - 1) + 1)
        return PowerSeries(self.log_c[counts_here] + other.log_c[total - counts_here], self.t - int(counts_here[0]))

    def inside(self) -> PowerSeries | None:
        """Return the distribution given that the estimate is finite; None where that leaves nothing to test.

        At the ends of the support the estimate is infinite and no test is made; a test of those that remain holds its
        level only if it knows that.
        """
        if not 0 < self.t < len(self.log_c) - 1:
            return None
        return PowerSeries(self.log_c[1:-1], self.t - 1, self.share)

    def moments(self, psi: float) -> tuple[float, float]:
        """Return the mean and the variance of the count at a value of the parameter."""
        t = np.arange(len(self.log_c))
        log_p = self.log_c + psi * t
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        mean = float(p @ t)
        return mean, float(p @ (t - mean) ** 2)

    def mean(self, psi: float) -> float:
        """Return the mean of the count at a value of the parameter."""
        return self.moments(psi)[0]

    def solve(self, mean: float) -> float:
        """Return the value of the parameter at which the count has this mean; infinite if there is none."""

        if not 0.0 < mean < len(self.log_c) - 1:
            return np.inf if mean > 0.0 else -np.inf

        def excess(psi: float) -> tuple[float, float]:
            at, variance = self.moments(psi)
            return at - mean, variance

        return root(excess, FURTHEST)

    @cached_property
    def estimate(self) -> float:
        """The parameter at which the mean equals the observed value; infinite at the ends of the support."""
        return self.solve(self.t)

    def tails(self, psi: float) -> tuple[float, float]:
        """Return ``P(T <= t)`` and ``P(T >= t)``, with a `share` of ``P(T = t)``, at a value of the parameter."""
        log_p = self.log_c + psi * np.arange(len(self.log_c))
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        share_of_observed = self.share * p[self.t]
        return float(p[: self.t].sum() + share_of_observed), float(p[self.t + 1 :].sum() + share_of_observed)

    def p(self) -> float:
        """Return the two-sided p-value of the parameter being zero: twice the smaller tail."""
        return min(1.0, 2.0 * min(self.tails(0.0)))

    def limits(self, level: float) -> tuple[float, float]:
        """Return the confidence limits of the parameter: the values at which a tail is ``(1 - level) / 2``."""
        return self._limit(1, 0.5 * (1.0 - level)), self._limit(0, 0.5 * (1.0 - level))

    def _limit(self, side: int, alpha: float) -> float:
        """Return the parameter at which the lower (0) or the upper (1) tail is `alpha`; infinite if there is none."""
        t = np.arange(len(self.log_c))
        inside = (t > self.t if side else t < self.t) + self.share * (t == self.t)
        sign = 1.0 if side else -1.0

        def excess(psi: float) -> tuple[float, float]:
            # the logarithm of a tail is nearly linear far out
            log_p = self.log_c + psi * t
            p = np.exp(log_p - log_p.max())
            tail = p * inside
            size, total = float(tail.sum()), float(p.sum())
            if size == 0.0:
                return -sign * np.inf, np.nan
            slope = float(tail @ t) / size - float(p @ t) / total
            return sign * float(np.log(size / total / alpha)), sign * slope

        return root(excess, FURTHEST)


def hypergeometric(n11: np.ndarray, rows: np.ndarray, columns: np.ndarray, n: np.ndarray) -> PowerSeries:
    """Return the distribution of the sum of the first cells of 2 x 2 tables with one common odds ratio.

    Parameters
    ----------
    n11 : ndarray
        First cell of every table.
    rows, columns, n : ndarray
        Sum of the first row, of the first column, and of the whole table.

    Returns
    -------
    PowerSeries
        Given all margins: the product of the tables' hypergeometric generating functions (Birch 1964; Gart 1970).
    """
    from scipy.special import gammaln

    low = np.maximum(0, rows + columns - n)
    size = (np.minimum(rows, columns) - low).astype(np.intp) + 1
    first = round(float((n11 - low).sum()))
    informative = size > 1
    rows, columns, n, low, size = (v[informative] for v in (rows, columns, n, low, size))
    start = np.cumsum(size) - size
    table = np.repeat(np.arange(len(size)), size)
    t = low[table] + np.arange(len(table)) - start[table]
    log_c = -(
        gammaln(t + 1) + gammaln(rows[table] - t + 1) + gammaln(columns[table] - t + 1)
        + gammaln((n - rows - columns)[table] + t + 1)
    )  # fmt: skip
    if len(size):
        log_c -= np.maximum.reduceat(log_c, start)[table]
    with np.errstate(divide="ignore"):
        return PowerSeries(np.log(_product(np.exp(log_c), size, start)), first)


def _product(c: np.ndarray, size: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the product of polynomials, its largest coefficient being 1.

    Parameters
    ----------
    c : ndarray
        Coefficients of one polynomial after the other.
    size, start : ndarray of intp
        How many coefficients each has, and where they begin.

    Notes
    -----
    Strata are many and small, so short polynomials are multiplied two by two, all pairs of one width at once.
    """
    products, width = np.ones((0, 2)), 2
    while width <= WIDEST:
        here = np.flatnonzero((size <= width) & (2 * size > width))
        at = np.arange(width) < size[here, None]
        padded = np.zeros((len(here), width))
        padded[at] = c[(start[here, None] + np.arange(width))[at]]
        products, width = _products_of_pairs(np.concatenate([products, padded])), 2 * width
    out = np.ones(1)
    for factor in [*products, *(c[a : a + n] for a, n in zip(start, size, strict=True) if n > WIDEST)]:
        out = np.convolve(out, factor)
        out /= out.max()
    return out[: int((size - 1).sum()) + 1]


def _products_of_pairs(factors: np.ndarray) -> np.ndarray:
    """Return the products (half as many, twice as wide) of successive polynomials, one in each row."""
    count, width = factors.shape
    out = np.zeros(((count + 1) // 2, 2 * width))
    out[count // 2 :, :width] = factors[count - count % 2 :]
    one, second, product = factors[: count - 1 : 2], factors[1::2], out[: count // 2]
    for k in range(width if count > 1 else 0):
        product[:, k : k + width] += one[:, k : k + 1] * second
    return out / out.max(axis=1, keepdims=True)
