"""Classification by Bayes' rule (Woo & Wang 2022, section 2.5, and equations).

*Class scores* (n, K): log probabilities of K groups for n rows, each row up to a constant.
"""

from __future__ import annotations

import numpy as np

from bbl.stats.ties import first_largest

__all__ = ["class_scores", "least_cost", "link", "log_probabilities", "with_priors"]


def class_scores(energy: np.ndarray, log_z: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return ``ln p_y + E_y(x) - ln Z_y``, shape (n, K); -inf for a group with `prior` 0.

    `energy` (n, K) holds the un-normalised log-probabilities ``E_y(x)``, `log_z` (K,) the
    logarithms of their normalisers, `prior` (K,) the probabilities ``p_y`` of the groups.
    """
    with np.errstate(divide="ignore"):
        return energy - log_z + np.log(prior)


def log_probabilities(scores: np.ndarray) -> np.ndarray:
    """Return ``ln P(y|x)`` (n, K) of eq. (28), by log-sum-exp; -inf for all groups if all scores of
    a row are.
    """
    top = scores.max(axis=1, keepdims=True)  # subtracted so that exponentials cannot overflow
    if np.isneginf(top).any():
        top = np.where(np.isneginf(top), 0.0, top)
    total = np.exp(scores - top).sum(axis=1, keepdims=True)
    return scores - top - np.log(np.where(total > 0.0, total, 1.0))


def link(scores: np.ndarray) -> np.ndarray:
    """Return ``F_y(x)`` of eq. (29), shape (n, K): a group's score less the log-sum-exp of the
    other scores.

    -inf for a group of score -inf, inf if all other scores are -inf.
    """
    n, K = scores.shape
    out = np.empty((n, K))
    for y in range(K):
        other_scores = np.delete(scores, y, axis=1)
        if not K - 1:  # a single group, without others
            return np.full((n, 1), np.inf)
        largest = other_scores.max(axis=1)
        largest = np.where(np.isneginf(largest), 0.0, largest)
        with np.errstate(divide="ignore"):
            out[:, y] = scores[:, y] - (
                largest + np.log(np.exp(other_scores - largest[:, None]).sum(axis=1))
            )
    return out


def with_priors(scores: np.ndarray, shares: np.ndarray, priors: np.ndarray) -> np.ndarray:
    """Return class scores (n, K) with `priors` (K,) in place of the `shares` (K,) of the groups in
    the training rows.

    A group without rows has no parameters, and keeps -inf.
    """
    with np.errstate(divide="ignore"):
        shift = np.where(
            shares > 0.0, np.log(priors) - np.log(np.where(shares > 0.0, shares, 1.0)), -np.inf
        )
    return scores + shift


def least_cost(log_p: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the group g of least ``sum_y P(y|x) costs[y, g]`` of each row (n,); y is the true
    group, g the predicted.

    The first of several groups of equal cost is taken.
    """
    # so that which costs are equal up to rounding does not depend on their unit
    scale = np.abs(costs).max()
    return first_largest(-np.exp(log_p) @ (costs / scale if scale else costs))
