"""Averages of classifiers: probabilities with convex weights, which are fitted to out-of-fold probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.stats.scores import log_probabilities

__all__ = ["averaged_scores", "convex_weights"]

AT_REST = 1e-12  # change of a weight at which the optimum is reached
ROUNDS = 200  # at most
EVEN = 1e-15  # rise that rounding hides


def averaged_scores(
    scores: Sequence[np.ndarray], weights: np.ndarray, silent: Sequence[np.ndarray | None] = ()
) -> np.ndarray:
    """Return ``ln sum_m w_m P_m(y|x)``, shape (n, K).

    Parameters
    ----------
    scores : sequence of M ndarrays, shape (n, K)
        Class scores of each member.
    weights : ndarray, shape (M,)
        Positive.
    silent : sequence of M ndarrays of bool, shape (n,), or None
        Rows of which a member says nothing; the others then share its weight.

    Examples
    --------
    >>> np.exp(averaged_scores([np.log([[0.2, 0.8]]), np.log([[0.6, 0.4]])], np.array([0.5, 0.5]))).round(3)
    array([[0.4, 0.6]])
    """
    log_p = np.array([log_probabilities(each) for each in scores])
    log_w = np.log(np.repeat(weights[:, None], log_p.shape[1], axis=1))
    for m, rows in enumerate(silent):
        if rows is not None:
            log_w[m, rows] = -np.inf
    log_w -= np.logaddexp.reduce(log_w, axis=0)
    return np.logaddexp.reduce(log_w[:, :, None] + log_p, axis=0)


def convex_weights(log_p: np.ndarray, weights: np.ndarray, a: float = 1.0) -> np.ndarray:
    """Return the weights w (M,), positive and of sum 1, that maximise ``sum_k v_k ln sum_m w_m p_mk + a sum_m ln w_m``.

    Parameters
    ----------
    log_p : ndarray, shape (M, N)
        Log-probability that each member gave to what was observed in rows that it was not fitted to.
    weights : ndarray, shape (N,)
        Weights v of the rows.
    a : float, default 1.0
        What draws the weights to one another; it keeps them positive.

    Notes
    -----
    Newton's method on ``sum_k v_k ln sum_m w_m p_mk + a sum_m ln w_m - (sum_k v_k + a M) sum_m w_m``, which is concave
    and whose maximum over all positive w lies where they sum to 1. Rows of which all members say that they cannot be
    tell nothing.

    Examples
    --------
    >>> convex_weights(np.log([[0.9, 0.9, 0.8], [0.9, 0.1, 0.2]]), np.ones(3)).round(2)
    array([0.72, 0.28])
    """
    is_scored = np.isfinite(log_p).any(axis=0)
    log_p, weights = log_p[:, is_scored], weights[is_scored]
    w = np.full(len(log_p), 1.0 / len(log_p))
    if not is_scored.any():
        return w
    p = np.exp(log_p - log_p.max(axis=0))
    total = weights.sum() + a * len(w)

    def value(w: np.ndarray) -> float:
        return float(weights @ np.log(w @ p)) + a * float(np.log(w).sum()) - total * float(w.sum())

    now = value(w)
    for _ in range(ROUNDS):
        q = w @ p
        gradient = p @ (weights / q) + a / w - total
        if np.abs(w * gradient).max() <= AT_REST * total:
            break
        step = np.linalg.solve((p * (weights / q**2)) @ p.T + np.diag(a / w**2), gradient)
        length = min(1.0, 0.9 / max(1e-300, float((-step / w).max())))
        rise = float(step @ gradient)
        while not (new := value(w + length * step)) >= now + 1e-4 * length * rise and length * rise > EVEN * abs(now):
            length *= 0.5
        w, now = w + length * step, new
        if rise <= EVEN * abs(now):
            break
    return w / w.sum()
