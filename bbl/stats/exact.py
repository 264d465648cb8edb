"""Exact conditional tests and intervals of one log odds ratio, from its conditional distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["PowerSeries", "hypergeometric"]

FURTHEST = 60.0  # log odds ratio beyond which a limit counts as infinite


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
        mine = np.arange(max(0, total - len(other.log_c) + 1), min(total, len(self.log_c) - 1) + 1)
        return PowerSeries(self.log_c[mine] + other.log_c[total - mine], self.t - int(mine[0]))

    def inside(self) -> PowerSeries | None:
        """Return the distribution given that the estimate is finite; None where that leaves nothing to test.

        At the ends of the support the estimate is infinite and no test is made; a test of those that remain holds its
        level only if it knows that.
        """
        if not 0 < self.t < len(self.log_c) - 1:
            return None
        return PowerSeries(self.log_c[1:-1], self.t - 1, self.share)

    def tilted(self, psi: float) -> PowerSeries:
        """Return the distribution with the parameter counted from `psi` on."""
        return PowerSeries(self.log_c + psi * np.arange(len(self.log_c)), self.t, self.share)

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
        from scipy.optimize import brentq

        if self.mean(-FURTHEST) >= mean:
            return -np.inf
        if self.mean(FURTHEST) <= mean:
            return np.inf
        return float(brentq(lambda psi: self.mean(psi) - mean, -FURTHEST, FURTHEST, xtol=1e-10))

    def tails(self, psi: float) -> tuple[float, float]:
        """Return ``P(T <= t)`` and ``P(T >= t)``, with a `share` of ``P(T = t)``, at a value of the parameter."""
        log_p = self.log_c + psi * np.arange(len(self.log_c))
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        own = self.share * p[self.t]
        return float(p[: self.t].sum() + own), float(p[self.t + 1 :].sum() + own)

    def p(self) -> float:
        """Return the two-sided p-value of the parameter being zero: twice the smaller tail."""
        return min(1.0, 2.0 * min(self.tails(0.0)))

    def limits(self, level: float) -> tuple[float, float]:
        """Return the confidence limits of the parameter: the values at which a tail is ``(1 - level) / 2``."""
        from scipy.optimize import brentq

        alpha = 0.5 * (1.0 - level)
        out = []
        for side, sign in ((1, -1.0), (0, 1.0)):
            # the tail on this side falls below alpha as the limit moves away, unless the count is at the end
            if self.tails(sign * FURTHEST)[side] > alpha:
                out.append(sign * np.inf)
            else:
                out.append(brentq(lambda psi, k=side: self.tails(psi)[k] - alpha, -FURTHEST, FURTHEST, xtol=1e-9))
        return out[0], out[1]


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

    low, high = np.maximum(0, rows + columns - n), np.minimum(rows, columns)
    c = np.ones(1)
    for k in np.flatnonzero(high > low):
        t = np.arange(low[k], high[k] + 1.0)
        log_own = -(
            gammaln(t + 1) + gammaln(rows[k] - t + 1) + gammaln(columns[k] - t + 1)
            + gammaln(n[k] - rows[k] - columns[k] + t + 1)
        )  # fmt: skip
        c = np.convolve(c, np.exp(log_own - log_own.max()))
        c /= c.max()
    with np.errstate(divide="ignore"):
        return PowerSeries(np.log(c), round(float((n11 - low).sum())))
