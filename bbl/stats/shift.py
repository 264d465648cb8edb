"""Shift of one sample's log odds ratio from that of two samples together, given the margins of
their tables.

The log odds ratio of a sample is the parameter of a `PowerSeries`, the distribution of a count 0,
1, ..., which holds the observed count `t`, the logarithms `log_c` of the coefficients (one for each
possible count) and the `estimate` of the parameter; ``moments(parameter)`` are the mean and the
variance of the count. A parameter counts as infinite if its absolute value is `FURTHEST` or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl.stats.exact import FURTHEST, PowerSeries, root

__all__ = ["Shift"]


@dataclass(frozen=True)
class Shift:
    """The shift of the first of two samples as a function of the difference of their parameters
    (log odds ratios).

    Given the margins and the sum of both counts, the pooled parameter is a fixed number: the common
    parameter of both samples if there is one. The difference determines both parameters, as their
    mean counts have to sum to the observed sum, and so the shift, the first parameter less the
    pooled one. The shift is zero if the difference is.
    """

    one: PowerSeries  # distribution of the count of the first sample
    other: PowerSeries  # and of the second sample
    pooled: float  # common parameter of the two samples

    @classmethod
    def of(cls, one: PowerSeries, other: PowerSeries) -> Shift | None:
        """Return the shift of `one`; None if the common parameter is infinite."""
        common = _first_parameter(one, other, 0.0)
        return cls(one, other, common) if abs(common) < FURTHEST else None

    def at(self, difference: float, error: float) -> float:
        """Return the limit of the shift that corresponds to a limit of the difference.

        `error` is the standard error of the shift. If it exceeds the standard error given the
        margins, the limit is moved away from the estimate by the ratio of the two errors: a limit
        beyond the estimate linearly; one between zero and the estimate, whose sign has to stay, by
        raising limit / estimate to the power of that ratio.
        """
        limit = self._shift(difference)
        estimate, margins_error = self._observed
        # no ratio of limit and estimate
        if not (np.isfinite(limit) and np.isfinite(estimate) and estimate):
            return limit
        widening = max(1.0, error / margins_error) if np.isfinite(error) else 1.0
        ratio = limit / estimate
        return float(
            estimate * (ratio**widening if 0.0 <= ratio <= 1.0 else 1.0 + widening * (ratio - 1.0))
        )

    @cached_property
    def _observed(self) -> tuple[float, float]:
        """Estimate of the shift, and its standard error given the margins; nan if a parameter is
        infinite.
        """
        first = self.one.estimate
        second = self.other.estimate
        if not abs(first) + abs(second) < np.inf:
            return first - self.pooled, np.nan
        # variances of the counts; their inverses a and b are the variances of the two estimates,
        # and the shift has the variance a^2 / (a + b)
        first_variance = self.one.moments(first)[1]
        second_variance = self.other.moments(second)[1]
        return first - self.pooled, float(
            np.sqrt(second_variance / (first_variance * (first_variance + second_variance)))
        )

    def _shift(self, difference: float) -> float:
        """Return the shift at a difference of the two parameters."""
        first = _first_parameter(self.one, self.other, difference)
        return first - self.pooled if abs(first) < FURTHEST else float(np.copysign(np.inf, first))


def _first_parameter(one: PowerSeries, other: PowerSeries, difference: float) -> float:
    """Return the first parameter if the second is lower by `difference` and mean counts sum to the
    observed sum.
    """
    difference = float(np.clip(difference, -2.0 * FURTHEST, 2.0 * FURTHEST))
    total = one.t + other.t
    # the least and the largest possible sum
    if not 0 < total < len(one.log_c) + len(other.log_c) - 2:
        return np.inf if total else -np.inf

    def excess(first: float) -> tuple[float, float]:
        """Return the sum of the mean counts less the observed sum, if `first` is the first
        parameter, and its slope.
        """
        (mean, variance) = one.moments(first)
        (other_mean, other_variance) = other.moments(first - difference)
        return mean + other_mean - total, variance + other_variance

    return root(excess, 4.0 * FURTHEST)  # -inf or inf if there is no root within these bounds
