"""The shift of one sample's log odds ratio from that of two samples together, given the margins of their tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.stats.exact import FURTHEST, PowerSeries

__all__ = ["Shift"]


@dataclass(frozen=True)
class Shift:
    """Parameters of two samples whose counts have a given sum, as their difference varies.

    Given the margins and the sum of both counts, the parameter of the two samples together is a fixed number: the one
    that both have if they have a common one. The difference of the two determines the mean of both counts, so both
    parameters, so the shift of the first, which is zero where the difference is.

    Attributes
    ----------
    one, other : PowerSeries
        Distributions of the counts of both samples.
    pooled : float
        Parameter of the two samples together.
    """

    one: PowerSeries
    other: PowerSeries
    pooled: float

    @classmethod
    def of(cls, one: PowerSeries, other: PowerSeries) -> Shift | None:
        """Return the shift of `one`; None if no finite common parameter is that of the observed counts."""
        common = _first_parameter(one, other, 0.0)
        return cls(one, other, common) if abs(common) < FURTHEST else None

    def at(self, difference: float, error: float) -> float:
        """Return the shift of the first sample at a limit of the difference of the two.

        `error` is the standard error of the shift. If it is larger than that given the margins, the limit is moved away
        from the estimate by that factor, or towards zero by that power: its sign stays.
        """
        first, second = self.one.solve(self.one.t), self.other.solve(self.other.t)
        limit = self._shift(difference)
        estimate = self._shift(first - second)
        if not (np.isfinite(limit) and np.isfinite(estimate) and estimate):
            return limit
        v, w = self.one.moments(first)[1], self.other.moments(second)[1]
        factor = max(1.0, error / np.sqrt(w / (v * (v + w)))) if np.isfinite(error) else 1.0
        ratio = limit / estimate
        return float(estimate * (ratio**factor if 0.0 <= ratio <= 1.0 else 1.0 + factor * (ratio - 1.0)))

    def _shift(self, difference: float) -> float:
        first = _first_parameter(self.one, self.other, difference)
        return first - self.pooled if abs(first) < FURTHEST else float(np.copysign(np.inf, first))


def _first_parameter(one: PowerSeries, other: PowerSeries, difference: float) -> float:
    """Return the parameter of the first sample at which both counts have the mean sum that was observed."""
    from scipy.optimize import brentq

    difference = float(np.clip(difference, -2.0 * FURTHEST, 2.0 * FURTHEST))
    total, end = one.t + other.t, 4.0 * FURTHEST

    def excess(first: float) -> float:
        return one.mean(first) + other.mean(first - difference) - total

    if excess(-end) >= 0.0:
        return -np.inf
    return float(brentq(excess, -end, end, xtol=1e-10)) if excess(end) > 0.0 else np.inf
