"""Evaluation of predictions: confusion matrix, report by class, scores with their limits, ROC curves."""

from __future__ import annotations

import numpy as np

from bbl.stats.limits import area_limits, mean_limits, share_limits, sum_limits
from bbl.stats.metrics import LEAST, auc, brier_loss, row_loss
from bbl.stats.scores import link, log_probabilities

__all__ = ["areas", "class_report", "confusion_counts", "roc_curve", "score_table"]


def confusion_counts(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray, K: int) -> np.ndarray:
    """Return how often each group (row) was predicted to be each group (column), shape (K, K)."""
    return np.bincount(y * K + predicted, weights, K * K).reshape(K, K)


def class_report(counts: np.ndarray) -> np.ndarray:
    """Return precision, recall, F1 and support of every group from a confusion matrix, shape (K, 4).

    Nan where nothing was predicted (precision) or observed (recall) of a group.

    Examples
    --------
    >>> class_report(np.array([[8.0, 2.0], [1.0, 9.0]])).round(3)
    array([[ 0.889,  0.8  ,  0.842, 10.   ],
           [ 0.818,  0.9  ,  0.857, 10.   ]])
    """
    hit, observed, predicted = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.column_stack([hit / predicted, hit / observed, 2.0 * hit / (observed + predicted), observed])


def score_table(
    scores: np.ndarray, y: np.ndarray, predicted: np.ndarray, weights: np.ndarray, level: float = 0.95
) -> np.ndarray:
    """Return accuracy, balanced accuracy, log-loss, Brier score and AUC, each with its limits, shape (5, 4).

    Parameters
    ----------
    scores : ndarray, shape (n, K)
        Class scores.
    y, predicted : ndarray of int, shape (n,)
        Observed and predicted group of each row.
    weights : ndarray, shape (n,)
        Frequencies.
    level : float, default 0.95

    Returns
    -------
    ndarray
        Estimate, lower, upper limit, and what the shares of the groups get: the same prediction for every row. Balanced
        accuracy is the mean recall of the groups that occur; the AUC of more than two groups is the mean of those of
        each group against all others. Limits are those of `bbl.stats.limits`. Those of a mean AUC are the means of
        the groups' limits, wide enough whatever the correlation of the groups.
    """
    K, total = scores.shape[1], weights.sum()
    counts = confusion_counts(y, predicted, weights, K)
    observed, hit = counts.sum(axis=1), counts.diagonal()
    share = observed / total
    low, high = share_limits(hit.sum(), total, level)
    table = [[hit.sum() / total, float(low), float(high), share.max()]]
    seen = observed > 0
    low, high = share_limits(hit[seen], observed[seen], level)
    recall, factors = hit[seen] / observed[seen], np.full(int(seen.sum()), 1.0 / seen.sum())
    table.append([float(factors @ recall), *sum_limits(recall, low, high, factors), 1.0 / seen.sum()])
    log_p = log_probabilities(scores)
    worst = -max(float(log_p.min()), LEAST)
    for loss, most, same in (
        (row_loss(log_p, y), worst, -float(share[seen] @ np.log(share[seen]))),
        (brier_loss(log_p, y), 2.0, 1.0 - float(share @ share)),
    ):
        table.append([float(weights @ loss / total), *mean_limits(loss, weights, 0.0, most, level), same])
    each = areas(scores, y, weights, level)
    each = each[1:] if K == 2 else each[~np.isnan(each[:, 0])]
    table.append([*(each.mean(axis=0) if len(each) else [np.nan] * 3), 0.5])
    return np.array(table)


def areas(scores: np.ndarray, y: np.ndarray, weights: np.ndarray, level: float = 0.95) -> np.ndarray:
    """Return the AUC of each group against all others with its limits, shape (K, 3); nan where there is but one."""
    out = []
    for k, score in enumerate(link(scores).T):
        positive = y == k
        area, *wald = auc(score, positive, weights, level)
        limits = area_limits(area, weights @ positive, weights @ ~positive, level, (wald[0], wald[1]))
        out.append([area, *limits])
    return np.array(out)


def roc_curve(
    score: np.ndarray, positive: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return false positive rate, true positive rate and threshold of a ROC curve, from the highest threshold down.

    Examples
    --------
    >>> roc_curve(np.array([0.1, 0.4, 0.8]), np.array([False, True, True]), np.ones(3))
    (array([0., 0., 0., 1.]), array([0. , 0.5, 1. , 1. ]), array([inf, 0.8, 0.4, 0.1]))
    """
    threshold, at = np.unique(-score, return_inverse=True)
    cases, controls = (np.cumsum(np.bincount(at, weights * is_class)) for is_class in (positive, ~positive))
    with np.errstate(invalid="ignore"):
        rates = [np.append(0.0, cumulative / cumulative[-1]) for cumulative in (controls, cases)]
    return rates[0], rates[1], np.append(np.inf, -threshold)
