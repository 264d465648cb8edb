"""The shift of one sample's log odds ratio from that of two samples together, given the margins of their tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl.stats.exact import FURTHEST, PowerSeries, root

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
        limit = self._shift(difference)
        estimate, given_margins = self._observed
        if not (np.isfinite(limit) and np.isfinite(estimate) and estimate):
            return limit
        factor = max(1.0, error / given_margins) if np.isfinite(error) else 1.0
        ratio = limit / estimate
        return float(estimate * (ratio**factor if 0.0 <= ratio <= 1.0 else 1.0 + factor * (ratio - 1.0)))

    @cached_property
    def _observed(self) -> tuple[float, float]:
        """Estimate of the shift, and its standard error given the margins."""
        first, second = self.one.estimate, self.other.estimate
        if not abs(first) + abs(second) < np.inf:
            return first - self.pooled, np.nan
        v, w = self.one.moments(first)[1], self.other.moments(second)[1]
        return first - self.pooled, float(np.sqrt(w / (v * (v + w))))

    def _shift(self, difference: float) -> float:
        first = _first_parameter(self.one, self.other, difference)
        return first - self.pooled if abs(first) < FURTHEST else float(np.copysign(np.inf, first))


def _first_parameter(one: PowerSeries, other: PowerSeries, difference: float) -> float:
    """Return the parameter of the first sample at which both counts have the mean sum that was observed."""
    difference = float(np.clip(difference, -2.0 * FURTHEST, 2.0 * FURTHEST))
    total = one.t + other.t
    if not 0 < total < len(one.log_c) + len(other.log_c) - 2:
        return np.inf if total else -np.inf

    def excess(first: float) -> tuple[float, float]:
        (a, v), (b, w) = one.moments(first), other.moments(first - difference)
        return a + b - total, v + w

    return root(excess, 4.0 * FURTHEST)
