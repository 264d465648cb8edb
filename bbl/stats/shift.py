"""Shift of a sample's log odds ratio from the pooled log odds ratio, given all margins.

The log odds ratio of a sample is the parameter of a `PowerSeries`. It is treated as infinite if its
absolute value is at least `FURTHEST`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl.stats.exact import FURTHEST, PowerSeries, root

__all__ = ["Shift"]


@dataclass(frozen=True)
class Shift:
    """Shift of the first of two samples as a function of the difference between their log odds
    ratios.

    The margins and the sum of both counts determine the pooled parameter, i.e. the parameter under
    the assumption that it is the same in both samples. The difference determines both parameters,
    because the mean counts must add up to the observed sum. It therefore also determines the shift,
    which is the first parameter minus the pooled parameter. If the difference is zero, the shift is
    zero.
    """

    one: PowerSeries  # distribution of the first sample's count
    other: PowerSeries  # distribution of the second sample's count
    pooled: float  # common parameter of the two samples

    @classmethod
    def of(cls, one: PowerSeries, other: PowerSeries) -> Shift | None:
        """Return the shift of `one`, or None if the common parameter is infinite."""
        common = _first_parameter(one, other, 0.0)
        return cls(one, other, common) if abs(common) < FURTHEST else None

    def at(self, difference: float, error: float) -> float:
        """Return the limit for the shift that corresponds to a limit for the difference.

        `error` is the standard error of the shift. If it exceeds the standard error given the
        margins, the limit is moved away from the estimate by the ratio of the two errors. For a
        limit beyond the estimate, the distance from the estimate is multiplied by this ratio. For a
        limit between zero and the estimate, whose sign must be preserved, limit / estimate is
        raised to the power of this ratio.
        """
        limit = self._shift(difference)
        estimate, margins_error = self._observed
        # the ratio of the limit to the estimate is undefined
        if not (np.isfinite(limit) and np.isfinite(estimate) and estimate):
            return limit
        widening = max(1.0, error / margins_error) if np.isfinite(error) else 1.0
        ratio = limit / estimate
        return float(
            estimate * (ratio**widening if 0.0 <= ratio <= 1.0 else 1.0 + widening * (ratio - 1.0))
        )

    @cached_property
    def _observed(self) -> tuple[float, float]:
        """Estimate of the shift and its standard error given the margins; they are nan if not
        finite.
        """
        first = self.one.estimate
        second = self.other.estimate
        if not abs(first) + abs(second) < np.inf:
            return first - self.pooled, np.nan
        # variances of the counts; their inverses a and b are the variances of the two estimates,
        # and the variance of the shift is a^2 / (a + b)
        first_variance = self.one.moments(first)[1]
        second_variance = self.other.moments(second)[1]
        return first - self.pooled, float(
            np.sqrt(second_variance / (first_variance * (first_variance + second_variance)))
        )

    def _shift(self, difference: float) -> float:
        """Return the shift for a difference between the two parameters."""
        first = _first_parameter(self.one, self.other, difference)
        return first - self.pooled if abs(first) < FURTHEST else float(np.copysign(np.inf, first))


def _first_parameter(one: PowerSeries, other: PowerSeries, difference: float) -> float:
    """Return the first parameter, given its `difference` from the second and the observed sum."""
    difference = float(np.clip(difference, -2.0 * FURTHEST, 2.0 * FURTHEST))
    total = one.t + other.t
    # smallest and largest possible sum
    if not 0 < total < len(one.log_c) + len(other.log_c) - 2:
        return np.inf if total else -np.inf

    def excess(first: float) -> tuple[float, float]:
        """Return the sum of mean counts minus the observed sum, and its slope."""
        (mean, variance) = one.moments(first)
        (other_mean, other_variance) = other.moments(first - difference)
        return mean + other_mean - total, variance + other_variance

    return root(excess, 4.0 * FURTHEST)  # -inf or inf if there is no root within these bounds
