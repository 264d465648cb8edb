"""Evaluation of any number of rows in constant memory: sums over rows, and bins of losses and
log-odds.

Below, n and K are the numbers of rows and groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.stats.evaluation import (
    CALIBRATION_BINS,
    CalibrationCounts,
    Curve,
    Losses,
    calibration_counts,
    confusion_counts,
)
from bbl.stats.metrics import (
    LEAST,
    TIE,
    brier_loss,
    first_largest,
    least_cost,
    link,
    log_probabilities,
    row_loss,
)

__all__ = ["BinnedRows", "ScoreBins"]

MAX_BINS = 2**16  # bins of the log-odds of each group
MIN_BINS = 2**8
# Smallest scale of the bins (see `_AreaBins`): later rows may have other log-odds than the first
MIN_SCALE = 0.1
MAX_CELLS = 2**21  # bins of all groups together: with more than 32 groups, each has fewer bins
# Bins of losses have a relative width of at most 2^-10: the leading bits of a floating-point
# number, with 10 of the 52 bits of the mantissa, increase with the number. Losses below 2^-52 are
# in the first bin.
DROPPED_BITS = 42
FIRST_LOSS, LAST_LOSS = (
    int(np.array(bound).view(np.int64)) >> DROPPED_BITS for bound in (2.0**-52, 64.0)
)


class _LossBins:
    """Sum of losses between 0 and 64, and their distribution in bins."""

    def __init__(self) -> None:
        self.sum = 0.0
        self.bin_weights = np.zeros(LAST_LOSS - FIRST_LOSS + 1)
        self.bin_sums = np.zeros(LAST_LOSS - FIRST_LOSS + 1)

    def add(self, loss: np.ndarray, weights: np.ndarray) -> None:
        """Add the losses (n,) of rows."""
        self.sum += float(weights @ loss)
        leading_bits = loss.view(np.int64) >> DROPPED_BITS
        number = np.clip(leading_bits, FIRST_LOSS, LAST_LOSS) - FIRST_LOSS
        n_bins = len(self.bin_weights)
        self.bin_weights += np.bincount(number, weights, n_bins)
        self.bin_sums += np.bincount(number, weights * loss, n_bins)

    def losses(self, total: float, scale: float, largest: float) -> Losses:
        """Return the losses, given the total weight; weights are multiplied by `scale`."""
        has_weight = self.bin_weights > 0
        bin_weights = self.bin_weights[has_weight]
        values = self.bin_sums[has_weight] / bin_weights
        return Losses(self.sum / total, values, scale * bin_weights, largest)


@dataclass(frozen=True)
class _AreaBins:
    """Log-odds of a group against all others, in bins that contain rows, in increasing order.

    Attributes
    ----------
    low, high : ndarray, shape (bins,)
        Smallest and largest log-odds in each bin.
    cases, controls : ndarray, shape (bins,)
        Weight of the rows in the group, and of all others.
    centre, scale : float
        Log-odds where bins are narrowest, and the distance from there at which they are twice as
        wide.
    """

    low: np.ndarray
    high: np.ndarray
    cases: np.ndarray
    controls: np.ndarray
    centre: float = 0.0
    scale: float = 1.0

    @classmethod
    def empty(cls, n_bins: int, log_odds: np.ndarray) -> _AreaBins:
        """Return bins without rows, which are narrow where the given log-odds (n,) are dense."""
        zeros = np.zeros((2, n_bins))
        low = np.full(n_bins, np.inf)
        finite = log_odds[np.isfinite(log_odds)]
        if not len(finite):
            return cls(low, -low, zeros[0], zeros[1])
        quartile, median, upper_quartile = np.quantile(finite, [0.25, 0.5, 0.75])
        scale = max(MIN_SCALE, 0.5 * float(upper_quartile - quartile))
        return cls(low, -low, zeros[0], zeros[1], float(median), scale)

    def add(self, log_odds: np.ndarray, is_case: np.ndarray, weights: np.ndarray) -> None:
        """Add rows to the bins, which cover the real line: bins of equal width of the arc
        tangent.
        """
        n_bins = len(self.low)
        position = n_bins * (np.arctan((log_odds - self.centre) / self.scale) / np.pi + 0.5)
        number = np.clip(position, 0, n_bins - 1).astype(np.intp)
        self.cases[:] += np.bincount(number, weights * is_case, n_bins)
        self.controls[:] += np.bincount(number, weights * ~is_case, n_bins)
        np.minimum.at(self.low, number, log_odds)
        np.maximum.at(self.high, number, log_odds)

    def joined(self, scale: float) -> _AreaBins:
        """Return the bins with rows, with weights multiplied by `scale`.

        Adjacent bins are joined if log-odds on either side of their border are equal up to
        rounding errors.
        """
        has_rows = self.low <= self.high
        low, high = self.low[has_rows], self.high[has_rows]
        is_apart = ~_are_tied(high[:-1], low[1:])
        starts = np.flatnonzero(np.append(True, is_apart))
        return _AreaBins(
            low[starts],
            high[np.append(starts[1:] - 1, len(high) - 1)],
            scale * np.add.reduceat(self.cases[has_rows], starts),
            scale * np.add.reduceat(self.controls[has_rows], starts),
        )

    @property
    def complement(self) -> _AreaBins:
        """The bins of the other group, if there are two."""
        return _AreaBins(-self.high[::-1], -self.low[::-1], self.controls[::-1], self.cases[::-1])

    @property
    def curve(self) -> Curve:
        """Two rows for each bin, with its cases and its controls.

        Their log-odds are the smallest in the bin, so that the points of the ROC curve are exact.
        """
        n_bins = len(self.low)
        return Curve(
            np.tile(self.low, 2),
            np.repeat([True, False], n_bins),
            np.concatenate([self.cases, self.controls]),
        )

    @property
    def area_error(self) -> float:
        """Largest possible error of the area under the ROC curve.

        A case and a control in the same bin count one half. The error of this is at most one half,
        and zero if all log-odds in the bin are equal.
        """
        pairs = self.cases.sum() * self.controls.sum()
        if not pairs:
            return 0.0
        is_mixed = ~_are_tied(self.low, self.high)
        return float(self.cases[is_mixed] @ self.controls[is_mixed] / (2.0 * pairs))


def _are_tied(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return whether values are equal up to rounding errors (see `TIE`); ``low <= high``."""
    is_finite = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):  # inf - inf
        is_near = high - low <= TIE * np.maximum(1.0, np.abs(low))
    return (low == high) | (is_finite & is_near)


class ScoreBins:
    """Sums over rows that are added in parts.

    Parameters
    ----------
    first_scores : ndarray, shape (n, K)
        Class scores of some rows, from which the width of bins is determined. These rows are not
        added.
    costs : ndarray, shape (K, K), optional
        See `Evaluation.costs`.
    """

    def __init__(self, first_scores: np.ndarray, costs: np.ndarray | None = None) -> None:
        self.costs = costs
        n_groups = first_scores.shape[1]
        self.counts = np.zeros((n_groups, n_groups))
        self.log_losses = _LossBins()
        self.brier_losses = _LossBins()
        self.least_log_p = 0.0
        self.n_below = 0.0
        self.n_zero = 0.0
        self.calibration = CalibrationCounts(*np.zeros((3, n_groups, CALIBRATION_BINS)))
        n_bins = MAX_BINS
        while n_bins * n_groups > MAX_CELLS and n_bins > MIN_BINS:
            n_bins //= 2
        # the log-odds of two groups are each other's negatives
        self.curve_groups = [1] if n_groups == 2 else list(range(n_groups))
        log_odds = link(first_scores)
        self.area_bins = [_AreaBins.empty(n_bins, log_odds[:, k]) for k in self.curve_groups]

    def add(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        """Add rows with class scores (n, K), groups `y` (n,) and weights (n,), all positive."""
        if not len(y):
            return
        K = len(self.counts)
        scores = np.asfortranarray(scores)  # sums over a few groups are then faster
        log_p = log_probabilities(scores)
        predicted = first_largest(scores) if self.costs is None else least_cost(log_p, self.costs)
        self.counts += confusion_counts(y, predicted, weights, K)
        self.log_losses.add(row_loss(log_p, y), weights)
        self.brier_losses.add(brier_loss(log_p, y), weights)
        self.least_log_p = min(self.least_log_p, float(log_p.min()))
        own_log_p = log_p[np.arange(len(y)), y]
        self.n_below += float(weights[own_log_p < LEAST].sum())
        self.n_zero += float(weights[np.isneginf(own_log_p)].sum())
        added = calibration_counts(np.exp(log_p), y, weights, CALIBRATION_BINS)
        for count, addition in zip(self.calibration, added, strict=True):
            count += addition
        log_odds = link(scores)
        for k, bins in zip(self.curve_groups, self.area_bins, strict=True):
            bins.add(log_odds[:, k], y == k, weights)

    def rows(self, n: int, scale: float = 1.0) -> BinnedRows:
        """Return the sums over all `n` rows, whose weights are multiplied by `scale`."""
        total = float(self.counts.sum())
        area_bins = [bins.joined(scale) for bins in self.area_bins]
        if len(self.counts) == 2:
            area_bins = [area_bins[0].complement, area_bins[0]]
        return BinnedRows(
            n,
            scale * self.counts,
            (scale * self.n_below, scale * self.n_zero),
            CalibrationCounts(*(scale * count for count in self.calibration)),
            self.log_losses.losses(total, scale, -max(self.least_log_p, LEAST)),
            self.brier_losses.losses(total, scale, 2.0),
            area_bins,
        )


@dataclass(frozen=True)
class BinnedRows:
    """Sums over rows, as returned by `ScoreBins.rows` (see `JudgedRows`).

    All scores except the AUC are exact.
    """

    n: int
    counts: np.ndarray
    floored: tuple[float, float]
    calibration: CalibrationCounts
    log_losses: Losses
    brier_losses: Losses
    area_bins: list[_AreaBins]

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    def losses(self) -> tuple[Losses, Losses]:
        return self.log_losses, self.brier_losses

    def curve(self, k: int) -> Curve:
        return self.area_bins[k].curve

    def area_error(self, k: int) -> float:
        return self.area_bins[k].area_error
