"""Evaluation of predictions: confusion matrix, class report, scores and ROC curve."""

from __future__ import annotations

import numpy as np

from bbl.stats.limits import area_limits, mean_limits, share_limits, sum_limits
from bbl.stats.metrics import LEAST, auc, brier_loss, link, log_probabilities, row_loss

__all__ = ["areas", "class_report", "confusion_counts", "roc_curve", "score_table"]


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


def score_table(
    scores: np.ndarray,
    y: np.ndarray,
    predicted: np.ndarray,
    weights: np.ndarray,
    level: float = 0.95,
) -> np.ndarray:
    """Return a table (5, 4) of accuracy, balanced accuracy, log-loss, Brier score and AUC.

    Parameters
    ----------
    scores : ndarray, shape (n, K)
        Class scores.
    y, predicted : ndarray of int, shape (n,)
        Observed and predicted group of each row.
    weights : ndarray, shape (n,)
        Row frequencies.
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
    K = scores.shape[1]
    total = weights.sum()
    counts = confusion_counts(y, predicted, weights, K)
    observed = counts.sum(axis=1)
    correct = counts.diagonal()
    share = observed / total
    lower, upper = share_limits(correct.sum(), total, level)
    table = [[correct.sum() / total, float(lower), float(upper), share.max()]]
    occurs = observed > 0
    lower, upper = share_limits(correct[occurs], observed[occurs], level)
    # balanced accuracy is the mean recall: the sum of `factors` times recalls
    recall = correct[occurs] / observed[occurs]
    factors = np.full(int(occurs.sum()), 1.0 / occurs.sum())
    table.append(
        [float(factors @ recall), *sum_limits(recall, lower, upper, factors), 1.0 / occurs.sum()]
    )
    log_p = log_probabilities(scores)
    # largest loss of any group in these rows; `LEAST` bounds log-probabilities from below
    max_log_loss = -max(float(log_p.min()), LEAST)
    for loss, max_loss, baseline in (
        (row_loss(log_p, y), max_log_loss, -float(share[occurs] @ np.log(share[occurs]))),
        (brier_loss(log_p, y), 2.0, 1.0 - float(share @ share)),
    ):
        table.append(
            [
                float(weights @ loss / total),
                *mean_limits(loss, weights, 0.0, max_loss, level),
                baseline,
            ]
        )
    group_areas = areas(scores, y, weights, level)
    # with two groups, both have the same AUC
    group_areas = group_areas[1:] if K == 2 else group_areas[~np.isnan(group_areas[:, 0])]
    table.append([*(group_areas.mean(axis=0) if len(group_areas) else [np.nan] * 3), 0.5])
    return np.array(table)


def areas(
    scores: np.ndarray, y: np.ndarray, weights: np.ndarray, level: float = 0.95
) -> np.ndarray:
    """Return the AUC of each group against all others and its confidence limits, shape (K, 3); all
    are nan if there is only one group.
    """
    areas_and_limits = []
    for k, score in enumerate(link(scores).T):  # (n,): log-odds of group k against all others
        positive = y == k
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
