"""Classification by Bayes' rule: class scores, link, probabilities (section 2.5)."""

from __future__ import annotations

import numpy as np

from bbl.stats.ties import first_largest

__all__ = ["class_scores", "least_cost", "link", "log_probabilities", "with_priors"]


def class_scores(energy: np.ndarray, log_z: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return ``ln p_y + E_y(x) - ln Z_y``, shape (n, K); -inf for a group without rows."""
    with np.errstate(divide="ignore"):
        return energy - log_z + np.log(prior)


def log_probabilities(scores: np.ndarray) -> np.ndarray:
    """Return ``ln P(y|x)`` (n, K) of eq. (28), by log-sum-exp."""
    top = scores.max(axis=1, keepdims=True)
    return scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))


def link(scores: np.ndarray) -> np.ndarray:
    """Return ``F_y(x)`` of eq. (29): a group's score less the log-sum of the others'.

    -inf for a group without rows, +inf for one where no other has any.
    """
    n, K = scores.shape
    out = np.empty((n, K))
    for y in range(K):
        other_scores = np.delete(scores, y, axis=1)
        if not K - 1:
            return np.full((n, 1), np.inf)
        top = other_scores.max(axis=1)
        top = np.where(np.isneginf(top), 0.0, top)
        with np.errstate(divide="ignore"):
            out[:, y] = scores[:, y] - (top + np.log(np.exp(other_scores - top[:, None]).sum(axis=1)))
    return out


def with_priors(scores: np.ndarray, shares: np.ndarray, priors: np.ndarray) -> np.ndarray:
    """Return class scores (n, K) of rows with the `priors` of the groups in place of the `shares` behind the scores.

    By Bayes' rule the odds of two groups change by the ratio of their priors' odds to their shares' odds. A group
    without rows has no parameters, and keeps -inf.
    """
    with np.errstate(divide="ignore"):
        shift = np.where(shares > 0.0, np.log(priors) - np.log(np.where(shares > 0.0, shares, 1.0)), -np.inf)
    return scores + shift


def least_cost(log_p: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the group of least expected cost of each row, shape (n,); costs are true by predicted groups.

    Of equally cheap groups the first is taken, as of equally likely ones.
    """
    unit = np.abs(costs).max()
    return first_largest(-np.exp(log_p) @ (costs / unit if unit else costs))
