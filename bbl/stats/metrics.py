"""Scores of class predictions with frequency weights: accuracy, AUC with DeLong's interval, log-loss, Brier."""

from __future__ import annotations

import numpy as np

from bbl.stats.ties import first_largest

__all__ = ["FLOOR", "LEAST", "SCORES", "accuracy", "auc", "brier", "brier_loss", "log_loss", "mean_loss", "row_loss"]

FLOOR = 1e-15  # the least probability that a log-loss takes into account
LEAST = float(np.log(FLOOR))


def accuracy(log_p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted share of rows whose most likely group is theirs (eqs. 33, 34)."""
    return float(weights @ (first_largest(log_p) == y) / weights.sum())


def row_loss(log_p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return ``-ln P(y|x)`` of each row, shape (n,), P being at least `FLOOR`.

    A group that a fold's training rows do not have gets probability 0 there, which must not decide everything.
    """
    return -np.maximum(log_p[np.arange(len(y)), y], LEAST)


def log_loss(log_p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted mean of `row_loss`."""
    return mean_loss(row_loss(log_p, y), weights)


def mean_loss(loss: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted mean of the losses (n,) of rows."""
    return float(weights @ loss / weights.sum())


def brier_loss(log_p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the squared distance of each row's probabilities from the outcome, summed over groups, shape (n,)."""
    error = np.exp(log_p)
    error[np.arange(len(y)), y] -= 1.0
    return (error**2).sum(axis=1)


def brier(log_p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted mean of `brier_loss`."""
    return mean_loss(brier_loss(log_p, y), weights)


SCORES = {"accuracy": accuracy, "logloss": log_loss, "brier": brier}


def auc(
    score: np.ndarray, positive: np.ndarray, weights: np.ndarray, level: float = 0.95
) -> tuple[float, float, float]:
    """Return the area under the ROC curve and DeLong's confidence limits.

    Parameters
    ----------
    score : ndarray, shape (n,)
        Larger for the positive group; ties count one half.
    positive : ndarray of bool, shape (n,)
    weights : ndarray, shape (n,)
        Whole-number frequencies: a weight is the same as repeating the row.
    level : float
        Coverage of the interval.

    Returns
    -------
    (auc, lower, upper)
        Limits are clipped to [0, 1]; all nan if a group is empty.

    Notes
    -----
    DeLong, DeLong & Clarke-Pearson (1988), by mid-ranks as in Sun & Xu (2014).
    """
    from scipy.special import ndtri

    # the rank of a weighted row among repeated rows: all below it, and half of its ties
    _, rank = np.unique(score, return_inverse=True)
    cases, controls = weights * positive, weights * ~positive
    n1, n0 = cases.sum(), controls.sum()
    if not n1 or not n0:
        return float("nan"), float("nan"), float("nan")
    below1, below0 = (_mid_ranks(np.bincount(rank, c)) for c in (cases, controls))
    v10 = below0[rank] / n0  # for a case: share of controls below it
    v01 = 1.0 - below1[rank] / n1  # for a control: share of cases above it
    area = float(cases @ v10 / n1)
    if n1 < 2 or n0 < 2:
        return area, float("nan"), float("nan")
    s10 = cases @ (v10 - area) ** 2 / (n1 - 1)
    s01 = controls @ (v01 - area) ** 2 / (n0 - 1)
    half = float(ndtri(0.5 + level / 2) * np.sqrt(s10 / n1 + s01 / n0))
    return area, max(0.0, area - half), min(1.0, area + half)


def _mid_ranks(count: np.ndarray) -> np.ndarray:
    """Return, for each distinct score, how much lies below it plus half of what ties with it."""
    return np.cumsum(count) - 0.5 * count
