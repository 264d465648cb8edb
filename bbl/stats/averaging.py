"""Averages of class probabilities over several classifiers (members), with convex weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.stats.metrics import log_probabilities

__all__ = ["averaged_scores", "convex_weights"]

# the optimum is reached when all derivatives by a ln w_m are below this proportion of the total
# weight
MAX_GRADIENT = 1e-12
MAX_STEPS = 200
ROUNDING = 1e-15  # relative rounding error of the objective


def averaged_scores(
    scores: Sequence[np.ndarray], weights: np.ndarray, abstaining: Sequence[np.ndarray | None] = ()
) -> np.ndarray:
    """Return ``ln sum_m w_m P_m(y|x)``, shape (n, K).

    Parameters
    ----------
    scores : sequence of M ndarrays, shape (n, K)
        Class scores of each member.
    weights : ndarray, shape (M,)
        Positive weights w_m of the members.
    abstaining : sequence of M ndarrays of bool, shape (n,), or None
        Rows for which a member makes no prediction; its weight is distributed among the other
        members. The result is nan for rows where all members abstain.

    Examples
    --------
    >>> np.exp(
    ...     averaged_scores([np.log([[0.2, 0.8]]), np.log([[0.6, 0.4]])], np.array([0.5, 0.5]))
    ... ).round(3)
    array([[0.4, 0.6]])
    """
    log_p = np.array([log_probabilities(member_scores) for member_scores in scores])
    log_w = np.log(np.repeat(weights[:, None], log_p.shape[1], axis=1))  # (M, n)
    for m, rows in enumerate(abstaining):
        if rows is not None:
            log_w[m, rows] = -np.inf
    log_w -= np.logaddexp.reduce(log_w, axis=0)
    return np.logaddexp.reduce(log_w[:, :, None] + log_p, axis=0)


def convex_weights(
    log_p: np.ndarray, weights: np.ndarray, a: float | np.ndarray = 1.0
) -> np.ndarray:
    """Return positive weights with sum 1 that maximise a penalised log-likelihood, shape (M,).

    Parameters
    ----------
    log_p : ndarray, shape (M, N)
        Out-of-fold log-probability of each row's observed class under each member.
    weights : ndarray, shape (N,)
        Row weights v.
    a : float or ndarray, shape (M,), default 1.0
        Strength of the penalty (positive), which shrinks the weights towards ``a / sum(a)`` and
        keeps them positive.

    Notes
    -----
    The weights maximise ``sum_k v_k ln sum_m w_m p_mk + sum_m a_m ln w_m``. They are computed by
    applying Newton's method to this expression minus ``(sum_k v_k + sum_m a_m) sum_m w_m``. This
    difference is a concave function of w, and its maximum over all positive w has sum 1. Rows with
    probability 0 under all members are omitted.

    Examples
    --------
    >>> convex_weights(np.log([[0.9, 0.9, 0.8], [0.9, 0.1, 0.2]]), np.ones(3)).round(2)
    array([0.72, 0.28])
    """
    is_scored = np.isfinite(log_p).any(axis=0)
    log_p = log_p[:, is_scored]
    weights = weights[is_scored]
    a = np.broadcast_to(a, len(log_p))
    w = a / a.sum()
    if not is_scored.any():
        return w
    # a common factor of a row's p_mk does not change the maximiser
    p = np.exp(log_p - log_p.max(axis=0))
    total = weights.sum() + a.sum()

    def objective(w: np.ndarray) -> float:
        """Return the objective that `convex_weights` maximises, up to a constant."""
        return float(weights @ np.log(w @ p)) + float(a @ np.log(w)) - total * float(w.sum())

    value = objective(w)
    for _ in range(MAX_STEPS):
        mixture = w @ p
        gradient = p @ (weights / mixture) + a / w - total
        if np.abs(w * gradient).max() <= MAX_GRADIENT * total:
            break
        # Newton's direction: minus the Hessian is sum_k v_k p_k p_k' / (w'p_k)^2 + diag(a / w^2)
        direction = np.linalg.solve(
            (p * (weights / mixture**2)) @ p.T + np.diag(a / w**2), gradient
        )
        # go at most 0.9 of the way to w_m = 0
        step = min(1.0, 0.9 / max(1e-300, float((-direction / w).max())))
        slope = float(direction @ gradient)
        new_value = objective(w + step * direction)
        # Armijo's rule, unless the expected gain is below rounding error
        while not new_value >= value + 1e-4 * step * slope and step * slope > ROUNDING * abs(value):
            step *= 0.5
            new_value = objective(w + step * direction)
        w = w + step * direction
        value = new_value
        if slope <= ROUNDING * abs(value):
            break
    return w / w.sum()
