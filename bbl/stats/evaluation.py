"""Evaluation of predictions: confusion matrix, class report, scores and ROC curve.

Below, n and K are the numbers of rows and groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from bbl.stats.limits import area_limits, mean_limits, share_limits, sum_limits
from bbl.stats.metrics import LEAST, auc, brier_loss, link, log_probabilities, row_loss

__all__ = [
    "CALIBRATION_BINS",
    "CalibrationCounts",
    "Curve",
    "JudgedRows",
    "Losses",
    "ScoredRows",
    "areas",
    "calibration_counts",
    "class_report",
    "confusion_counts",
    "roc_curve",
    "score_table",
]

CALIBRATION_BINS = 10  # bins of the predicted probabilities, of equal width between 0 and 1


class Losses(NamedTuple):
    """Losses between 0 and `largest`: their weighted mean, and their distribution."""

    mean: float
    values: np.ndarray
    weights: np.ndarray
    largest: float


class Curve(NamedTuple):
    """Log-odds of a group against all others, whether they belong to rows of the group, and
    weights.
    """

    score: np.ndarray
    positive: np.ndarray
    weights: np.ndarray


class CalibrationCounts(NamedTuple):
    """For each group and bin of its predicted probability, arrays (K, bins): total weight of the
    rows, weight of the rows in the group, and weighted sum of the probabilities.
    """

    total: np.ndarray
    in_group: np.ndarray
    p_sum: np.ndarray


class JudgedRows(Protocol):
    """Predictions and observed groups of rows, as needed by an evaluation: single rows
    (`ScoredRows`), or sums over rows (`bbl.stats.score_bins.BinnedRows`).

    Attributes
    ----------
    n : int
        Number of rows.
    counts : ndarray, shape (K, K)
        Weighted counts of rows by observed and predicted group.
    floored : (float, float)
        Weight of the rows whose group has a predicted probability below `FLOOR`, and of those
        whose group has probability 0.
    calibration : CalibrationCounts
    """

    @property
    def n(self) -> int: ...
    @property
    def total(self) -> float:
        """Total weight of the rows."""
        ...

    @property
    def counts(self) -> np.ndarray: ...
    @property
    def floored(self) -> tuple[float, float]: ...
    @property
    def calibration(self) -> CalibrationCounts: ...
    def losses(self) -> tuple[Losses, Losses]:
        """Return the log-losses and the Brier losses."""
        ...

    def curve(self, k: int) -> Curve:
        """Return the log-odds of group `k` against all others."""
        ...

    def area_error(self, k: int) -> float:
        """Return the largest possible error of the AUC of group `k`."""
        ...


@dataclass(frozen=True)
class ScoredRows:
    """Class scores, groups and weights of rows (see `JudgedRows`).

    Attributes
    ----------
    scores : ndarray, shape (n, K)
    y, predicted : ndarray of int, shape (n,)
        Observed and predicted group of each row.
    weights : ndarray, shape (n,)
        Row frequencies.
    """

    scores: np.ndarray
    y: np.ndarray
    predicted: np.ndarray
    weights: np.ndarray

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def total(self) -> float:
        return float(self.weights.sum())

    @cached_property
    def counts(self) -> np.ndarray:
        return confusion_counts(self.y, self.predicted, self.weights, self.scores.shape[1])

    @cached_property
    def floored(self) -> tuple[float, float]:
        # (n,): of the observed groups
        log_p = log_probabilities(self.scores)[np.arange(self.n), self.y]
        # LEAST is the logarithm of FLOOR
        return (
            float(self.weights[log_p < LEAST].sum()),
            float(self.weights[np.isneginf(log_p)].sum()),
        )

    @property
    def calibration(self) -> CalibrationCounts:
        p = np.exp(log_probabilities(self.scores))
        return calibration_counts(p, self.y, self.weights, CALIBRATION_BINS)

    def losses(self) -> tuple[Losses, Losses]:
        log_p = log_probabilities(self.scores)
        # largest loss of any group in these rows; `LEAST` bounds log-probabilities from below
        largest = -max(float(log_p.min()), LEAST)
        log_loss = row_loss(log_p, self.y)
        brier = brier_loss(log_p, self.y)
        total = self.weights.sum()
        return (
            Losses(float(self.weights @ log_loss / total), log_loss, self.weights, largest),
            Losses(float(self.weights @ brier / total), brier, self.weights, 2.0),
        )

    @cached_property
    def _log_odds(self) -> np.ndarray:
        """Log-odds (n, K) of each group against all others."""
        return link(self.scores)

    def curve(self, k: int) -> Curve:
        return Curve(self._log_odds[:, k], self.y == k, self.weights)

    def area_error(self, k: int) -> float:
        return 0.0


def calibration_counts(
    p: np.ndarray, y: np.ndarray, weights: np.ndarray, bins: int
) -> CalibrationCounts:
    """Return the counts of a calibration plot, given probabilities `p` (n, K) and groups `y`
    (n,).
    """
    K = p.shape[1]
    counts = CalibrationCounts(*np.empty((3, K, bins)))
    for k in range(K):
        # p = 1 belongs to the last bin
        bin_of_row = np.minimum((p[:, k] * bins).astype(np.intp), bins - 1)
        counts.total[k] = np.bincount(bin_of_row, weights, bins)
        counts.in_group[k] = np.bincount(bin_of_row, weights * (y == k), bins)
        counts.p_sum[k] = np.bincount(bin_of_row, weights * p[:, k], bins)
    return counts


def confusion_counts(
    y: np.ndarray, predicted: np.ndarray, weights: np.ndarray, K: int
) -> np.ndarray:
    """Return the confusion matrix (K, K), by observed group (row) and predicted group (column).

    `y` and `predicted` (n,) contain group codes, and `weights` (n,) the row weights.
    """
    return np.bincount(y * K + predicted, weights, K * K).reshape(K, K)


def class_report(counts: np.ndarray) -> np.ndarray:
    """Return the precision, recall, F1 score and support (K, 4) of each group, given a confusion
    matrix.

    Precision is nan for groups that are never predicted, and recall is nan for groups that are
    never observed.

    Examples
    --------
    >>> class_report(np.array([[8.0, 2.0], [1.0, 9.0]])).round(3)
    array([[ 0.889,  0.8  ,  0.842, 10.   ],
           [ 0.818,  0.9  ,  0.857, 10.   ]])
    """
    correct = counts.diagonal()
    observed = counts.sum(axis=1)
    predicted = counts.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.column_stack(
            [
                correct / predicted,
                correct / observed,
                2.0 * correct / (observed + predicted),
                observed,
            ]
        )


def score_table(rows: JudgedRows, level: float = 0.95) -> np.ndarray:
    """Return a table (5, 4) of accuracy, balanced accuracy, log-loss, Brier score and AUC.

    Parameters
    ----------
    rows : JudgedRows
    level : float, default 0.95
        Coverage of the confidence limits.

    Returns
    -------
    ndarray
        Columns: estimate, lower limit, upper limit (see `bbl.stats.limits`), and baseline, the
        score obtained by predicting the class proportions in every row (balanced accuracy: one over
        the number of groups that occur; AUC: 0.5). Balanced accuracy is the mean recall of the
        groups that occur. With more than two groups, the AUC is the mean of each group's AUC
        against all others; its limits are the means of the limits of all groups, which are
        conservative for any correlation between groups.
    """
    total = rows.total
    counts = rows.counts
    K = len(counts)
    observed = counts.sum(axis=1)
    correct = counts.diagonal()
    share = observed / total
    lower, upper = share_limits(correct.sum(), np.asarray(total), level)
    table = [[correct.sum() / total, float(lower), float(upper), share.max()]]
    occurs = observed > 0
    lower, upper = share_limits(correct[occurs], observed[occurs], level)
    # balanced accuracy is the mean recall: the sum of `factors` times recalls
    recall = correct[occurs] / observed[occurs]
    factors = np.full(int(occurs.sum()), 1.0 / occurs.sum())
    table.append(
        [float(factors @ recall), *sum_limits(recall, lower, upper, factors), 1.0 / occurs.sum()]
    )
    baselines = (-float(share[occurs] @ np.log(share[occurs])), 1.0 - float(share @ share))
    for losses, baseline in zip(rows.losses(), baselines, strict=True):
        limits = mean_limits(losses.values, losses.weights, 0.0, losses.largest, level)
        table.append([losses.mean, *limits, baseline])
    group_areas = areas(rows, level)
    # with two groups, both have the same AUC
    group_areas = group_areas[1:] if K == 2 else group_areas[~np.isnan(group_areas[:, 0])]
    table.append([*(group_areas.mean(axis=0) if len(group_areas) else [np.nan] * 3), 0.5])
    return np.array(table)


def areas(rows: JudgedRows, level: float = 0.95) -> np.ndarray:
    """Return the AUC of each group against all others and its confidence limits, shape (K, 3); all
    are nan if there is only one group.
    """
    areas_and_limits = []
    for k in range(len(rows.counts)):
        score, positive, weights = rows.curve(k)
        # wald: limits from DeLong's variance
        area, *wald = auc(score, positive, weights, level)
        limits = area_limits(
            area, weights @ positive, weights @ ~positive, level, (wald[0], wald[1])
        )
        areas_and_limits.append([area, *limits])
    return np.array(areas_and_limits)


def roc_curve(
    score: np.ndarray, positive: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the false positive rates, true positive rates and thresholds of a ROC curve.

    Thresholds are decreasing. `score`, `positive` and `weights` have shape (n,); the results have
    one entry more than the number of distinct scores.

    Examples
    --------
    >>> roc_curve(np.array([0.1, 0.4, 0.8]), np.array([False, True, True]), np.ones(3))
    (array([0., 0., 0., 1.]), array([0. , 0.5, 1. , 1. ]), array([inf, 0.8, 0.4, 0.1]))
    """
    # negated distinct scores, in increasing order
    threshold, score_index = np.unique(-score, return_inverse=True)
    cases, controls = (
        np.cumsum(np.bincount(score_index, weights * is_class))
        for is_class in (positive, ~positive)
    )
    with np.errstate(invalid="ignore"):
        rates = [np.append(0.0, cumulative / cumulative[-1]) for cumulative in (controls, cases)]
    return rates[0], rates[1], np.append(np.inf, -threshold)
