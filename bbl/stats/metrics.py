"""Class scores by Bayes' rule (Woo & Wang 2022, section 2.5) and metrics with frequency weights.

Log-probabilities `log_p` have shape (n, K); group codes `y` and `weights` have shape (n,).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.errors import with_hint

__all__ = [
    "FLOOR",
    "HELD_OUT",
    "LEAST",
    "SCORES",
    "TIE",
    "TRAINING",
    "LossRecord",
    "accuracy",
    "auc",
    "brier",
    "brier_loss",
    "calibration_error",
    "class_scores",
    "falling_order",
    "first_largest",
    "least_cost",
    "link",
    "log_loss",
    "log_probabilities",
    "log_share",
    "mean_loss",
    "rising_ranks",
    "row_loss",
    "shares_loss",
    "with_priors",
]


HELD_OUT = "held-out rows"
TRAINING = "training rows"
# an excess over the baseline up to this proportion is tolerated: pseudocounts and ridges can cause
# it
TOLERANCE = 1e-3
# numbers of significant digits to try until the printed losses differ
DIGITS = range(3, 12)


@dataclass(frozen=True)
class LossRecord:
    """Log-loss of a fitted classifier and of the baseline.

    Attributes
    ----------
    loss : float
        Mean of ``-ln P(y | x)``.
    baseline : float
        Mean loss if the class proportions in the training rows are predicted for every row.
    rows : str
        The rows used: "held-out rows" of a cross-validation inside the fit, or "training rows".
    remedy : str
        Advice on how to reduce the loss; may be empty.

    Examples
    --------
    >>> record = LossRecord(0.674, 0.565, HELD_OUT, "Use calibrate='temperature'.")
    >>> record.is_worse
    True
    >>> print(record)
    0.674 on held-out rows; 0.565 for the class proportions
    """

    loss: float
    baseline: float
    rows: str
    remedy: str = ""

    @property
    def is_worse(self) -> bool:
        """Whether the loss exceeds the baseline by more than 0.1 %."""
        return self.loss > self.baseline * (1.0 + TOLERANCE)

    @property
    def verdict(self) -> str:
        """Warning about a loss above the baseline, with the remedy; "" unless `is_worse`."""
        if not self.is_worse:
            return ""
        return with_hint(self.finding, self.remedy)

    @property
    def finding(self) -> str:
        """Sentence that compares a loss above the baseline with the baseline, without the
        remedy.
        """
        loss, baseline = self._formatted
        text = (
            f"On the {self.rows}, the log-loss is {loss}, compared with {baseline} for the class "
            "proportions: predicting the class proportions for every row would do better than "
            "this model."
        )
        if self.remedy:
            return text
        return f"{text} No better prediction was found with these predictors and terms."

    @property
    def _formatted(self) -> tuple[str, str]:
        """Loss and baseline as text, with the number of digits needed to distinguish them (three if
        equal).
        """
        for digits in DIGITS:
            loss = f"{self.loss:.{digits}g}"
            baseline = f"{self.baseline:.{digits}g}"
            if loss != baseline:
                return loss, baseline
        return f"{self.loss:.3g}", f"{self.baseline:.3g}"

    def __str__(self) -> str:
        loss, baseline = self._formatted
        return f"{loss} on {self.rows}; {baseline} for the class proportions"


def log_share(totals: np.ndarray) -> np.ndarray:
    """Return log proportions (..., K) of groups with total weights `totals` (..., K), which are
    -inf for empty groups.
    """
    with np.errstate(divide="ignore"):
        return np.log(totals / totals.sum(axis=-1, keepdims=True))


def shares_loss(totals: np.ndarray) -> float:
    """Return the log-loss of predicting the class proportions, given total weights `totals` (K,).

    Examples
    --------
    >>> shares_loss(np.array([3.0, 3.0, 0.0]))
    0.6931471805599453
    """
    present = totals[totals > 0.0]
    return float(-(present / present.sum()) @ log_share(present))


# sums that differ by less than this are equal; rounding error of a sum of a thousand logarithms is
# about 1e-14
TIE = 1e-12


def first_largest(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the position of the largest value along an axis (the first in case of ties).

    Values are tied if they differ by less than 1e-12 times the maximum of 1 and the largest
    absolute value.

    Examples
    --------
    >>> first_largest(np.array([[0.3, 0.1 + 0.2, 0.2], [-np.inf, 1.0, 1.1]])).tolist()
    [0, 2]
    """
    largest = values.max(axis=axis, keepdims=True)
    tolerance = np.where(np.isfinite(largest), TIE * np.maximum(1.0, np.abs(largest)), 0.0)
    return (values >= largest - tolerance).argmax(axis=axis)


def rising_ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank (n,) of each value, starting at 0 for the smallest.

    Tied values have the same rank, and infinite values are only tied with each other. Adjacent
    values in increasing order are tied if they differ by less than 1e-12 times the maximum of 1 and
    their absolute value.

    Examples
    --------
    >>> rising_ranks(np.array([0.3, 0.1, 0.1 + 0.2, np.inf])).tolist()
    [1, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    rising = values[order]
    below = rising[:-1]
    above = rising[1:]
    with np.errstate(invalid="ignore"):  # inf - inf
        is_near = above - below <= TIE * np.maximum(1.0, np.abs(below))
    is_near &= np.isfinite(below) & np.isfinite(above)
    rank = np.zeros(len(values), dtype=np.intp)
    rank[order[1:]] = np.cumsum(~is_near & (above != below))
    return rank


def falling_order(values: np.ndarray) -> np.ndarray:
    """Return the positions that sort finite values (n,) in decreasing order; tied values keep their
    order.

    Adjacent values in decreasing order are tied if they differ by less than 1e-12 times the maximum
    of 1 and their absolute value.

    Examples
    --------
    >>> falling_order(np.array([0.1, 0.3, 0.1 + 0.2])).tolist()
    [1, 2, 0]
    """
    order = np.argsort(-values, kind="stable")
    falling = values[order]
    tolerance = TIE * np.maximum(1.0, np.abs(falling[:-1]))
    rank = np.zeros(len(values), dtype=np.intp)
    rank[order[1:]] = np.cumsum(falling[:-1] - falling[1:] > tolerance)
    return np.argsort(rank, kind="stable")


def class_scores(energy: np.ndarray, log_z: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return ``ln p_y + E_y(x) - ln Z_y``, shape (n, K), which is -inf for a group with `prior` 0.

    `energy` (n, K) contains the unnormalised log-probabilities ``E_y(x)``, `log_z` (K,) the log
    normalising constants, and `prior` (K,) the group probabilities ``p_y``.
    """
    with np.errstate(divide="ignore"):
        return energy - log_z + np.log(prior)


def log_probabilities(scores: np.ndarray) -> np.ndarray:
    """Return ``ln P(y|x)`` (n, K) by eq. 28, using log-sum-exp.

    The result is -inf for all groups if all scores in a row are -inf.
    """
    top = scores.max(axis=1, keepdims=True)  # avoids overflow of exponentials
    if np.isneginf(top).any():
        top = np.where(np.isneginf(top), 0.0, top)
    total = np.exp(scores - top).sum(axis=1, keepdims=True)
    return scores - top - np.log(np.where(total > 0.0, total, 1.0))


def link(scores: np.ndarray) -> np.ndarray:
    """Return ``F_y(x)`` (n, K) by eq. 29: a score minus the log-sum-exp of the other scores.

    The result is -inf for a group with score -inf, and inf if all other scores are -inf.
    """
    n, K = scores.shape
    if K == 2:
        return scores - scores[:, ::-1]
    out = np.empty((n, K))
    for y in range(K):
        other_scores = np.delete(scores, y, axis=1)
        if not K - 1:  # a single group
            return np.full((n, 1), np.inf)
        largest = other_scores.max(axis=1)
        largest = np.where(np.isneginf(largest), 0.0, largest)
        with np.errstate(divide="ignore"):
            out[:, y] = scores[:, y] - (
                largest + np.log(np.exp(other_scores - largest[:, None]).sum(axis=1))
            )
    return out


def with_priors(scores: np.ndarray, shares: np.ndarray, priors: np.ndarray) -> np.ndarray:
    """Return class scores (n, K) for `priors` (K,) instead of the training proportions `shares`.

    The score of a group without rows, which does not have parameters, remains -inf.
    """
    with np.errstate(divide="ignore"):
        shift = np.where(
            shares > 0.0, np.log(priors) - np.log(np.where(shares > 0.0, shares, 1.0)), -np.inf
        )
    return scores + shift


def least_cost(log_p: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the group g with the lowest expected cost ``sum_y P(y|x) costs[y, g]`` in each row
    (n,).

    Here, y is the true group and g the predicted group. In case of ties, the first group is
    returned.
    """
    # normalise, so that ties up to rounding do not depend on the unit of costs
    scale = np.abs(costs).max()
    return first_largest(-np.exp(log_p) @ (costs / scale if scale else costs))


FLOOR = 1e-15  # lower bound on probabilities in log-losses
LEAST = float(np.log(FLOOR))  # lower bound on log-probabilities in log-losses


def accuracy(log_p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted proportion of correctly classified rows (Woo & Wang, eqs. 33, 34)."""
    return float(weights @ (first_largest(log_p) == y) / weights.sum())


def row_loss(log_p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return ``-ln P(y|x)`` (n,) of each row, with P bounded below by `FLOOR`.

    Without this bound, a group without training rows in a fold, which has probability 0, would make
    the loss infinite.
    """
    return -np.maximum(log_p[np.arange(len(y)), y], LEAST)


def log_loss(log_p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted mean of `row_loss`."""
    return mean_loss(row_loss(log_p, y), weights)


def mean_loss(loss: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted mean of the losses (n,) of all rows."""
    return float(weights @ loss / weights.sum())


def brier_loss(log_p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the Brier loss of each row, shape (n,).

    The Brier loss is the sum, over groups, of the squared difference between the probability and
    the indicator of the group.
    """
    error = np.exp(log_p)
    error[np.arange(len(y)), y] -= 1.0
    return (error**2).sum(axis=1)


def brier(log_p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted mean of `brier_loss`."""
    return mean_loss(brier_loss(log_p, y), weights)


def calibration_error(p: np.ndarray, y: np.ndarray, weights: np.ndarray, bins: int = 10) -> float:
    """Return the mean distance between predicted probabilities `p` and observed proportions.

    For each group, the predictions (a column of `p` (n, K)) are divided into `bins` of equal width
    between 0 and 1. In each bin, the distance is the absolute difference between the mean
    prediction and the proportion of rows that belong to the group. It is averaged over rows and
    groups (the classwise expected calibration error of Kull et al. 2019).

    Examples
    --------
    >>> calibration_error(np.array([[0.25, 0.75], [0.25, 0.75]]), np.array([0, 1]), np.ones(2))
    0.25
    """
    total_distance = 0.0
    K = p.shape[1]
    for k in range(K):
        bin_of = np.minimum((p[:, k] * bins).astype(np.intp), bins - 1)
        total_distance += np.abs(np.bincount(bin_of, weights * (p[:, k] - (y == k)), bins)).sum()
    return float(total_distance / (K * weights.sum()))


SCORES = {"accuracy": accuracy, "logloss": log_loss, "brier": brier}


def auc(
    score: np.ndarray, positive: np.ndarray, weights: np.ndarray, level: float = 0.95
) -> tuple[float, float, float]:
    """Return the area under the ROC curve and DeLong's confidence limits: ``(auc, lower, upper)``.

    The limits are ``auc`` plus or minus the normal quantile times ``sqrt(s10 / n1 + s01 / n0)`` for
    n1 positive and n0 other rows, clipped to [0, 1]. They are computed from mid-ranks (DeLong,
    DeLong & Clarke-Pearson 1988; Sun & Xu 2014). All three values are nan if a group is empty.

    Parameters
    ----------
    score : ndarray, shape (n,)
        Score that is larger for the positive group; ties count one half.
    positive : ndarray of bool, shape (n,)
    weights : ndarray, shape (n,)
        Integer frequencies; a row with weight w counts as w identical rows.
    level : float
        Coverage of the interval.
    """
    from scipy.special import ndtri

    # scores that differ by rounding error are ties; otherwise the result would depend on the order
    # of rows and the scale of weights
    rank = rising_ranks(score)
    cases = weights * positive
    controls = weights * ~positive
    n1 = cases.sum()
    n0 = controls.sum()
    if not n1 or not n0:
        return float("nan"), float("nan"), float("nan")
    cases_below, controls_below = (_mid_ranks(np.bincount(rank, c)) for c in (cases, controls))
    v10 = controls_below[rank] / n0  # for a case: proportion of controls below it
    v01 = 1.0 - cases_below[rank] / n1  # for a control: proportion of cases above it
    area = float(cases @ v10 / n1)
    if n1 < 2 or n0 < 2:
        return area, float("nan"), float("nan")
    # s10, s01: variances of v10 over cases and of v01 over controls
    s10 = cases @ (v10 - area) ** 2 / (n1 - 1)
    s01 = controls @ (v01 - area) ** 2 / (n0 - 1)
    half_width = float(ndtri(0.5 + level / 2) * np.sqrt(s10 / n1 + s01 / n0))
    return area, max(0.0, area - half_width), min(1.0, area + half_width)


def _mid_ranks(count: np.ndarray) -> np.ndarray:
    """Return the mid-rank of each distinct score: the weight of smaller scores plus half of its own
    weight `count`.
    """
    return np.cumsum(count) - 0.5 * count
