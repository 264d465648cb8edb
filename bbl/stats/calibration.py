"""Calibration of class scores: an offset per group, and one temperature, fitted on out-of-fold scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.stats.scores import log_probabilities

__all__ = ["CALIBRATE", "Calibration", "fit_calibration"]

CALIBRATE = ("none", "offset", "temperature")


@dataclass(frozen=True)
class Calibration:
    """What is done to class scores: ``temperature * score + offset``.

    Attributes
    ----------
    temperature : float
        Factor of the scores; below 1 makes probabilities less extreme.
    offset : ndarray, shape (K,)
        Added to the score of each group; sums to zero.
    """

    temperature: float
    offset: np.ndarray

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return the calibrated class scores (n, K)."""
        return self.temperature * scores + self.offset


def fit_calibration(scores: np.ndarray, y: np.ndarray, weights: np.ndarray, kind: str) -> Calibration:
    """Fit the calibration by penalised log-loss.

    Parameters
    ----------
    scores : ndarray, shape (N, K)
        Class scores of rows by models that were not fitted to them.
    y : ndarray of int, shape (N,)
    weights : ndarray, shape (N,)
    kind : {"none", "offset", "temperature"}
        Nothing; an offset for each group; or offsets and one temperature.

    Returns
    -------
    Calibration

    Notes
    -----
    An error of ln Z is the same for all rows, so an offset per group takes it out whatever its size. The penalty
    weighs as much as one observation: with few rows the scores are left nearly as they are.

    Examples
    --------
    >>> scores = np.array([[0.0, 5.0], [0.0, 6.0], [0.0, 4.0], [0.0, 7.0]])
    >>> found = fit_calibration(scores, np.array([0, 1, 0, 1]), np.full(4, 100.0), "offset")
    >>> bool(found.offset[0] - found.offset[1] > 4.0)
    True
    """
    K = scores.shape[1]
    # rows of a group that their fold's training rows did not have tell nothing of how well scores are scaled
    told = np.isfinite(scores[np.arange(len(y)), y])
    if kind == "none" or not told.any():
        return Calibration(1.0, np.zeros(K))
    from scipy.optimize import minimize

    scores, y, weights = scores[told], y[told], weights[told]
    share = weights / weights.sum()
    prior = 1.0 / weights.sum()
    finite = np.maximum(scores, -1e6)  # any other group may score -inf
    hit = np.zeros_like(scores)
    hit[np.arange(len(y)), y] = 1.0

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        temperature = float(np.exp(x[K])) if kind == "temperature" else 1.0
        log_p = log_probabilities(temperature * finite + x[:K])
        residual = share[:, None] * (np.exp(log_p) - hit)
        value = -float(share @ log_p[np.arange(len(y)), y]) + 0.5 * prior * float(x @ x)
        gradient = prior * x
        gradient[:K] += residual.sum(axis=0)
        if kind == "temperature":
            gradient[K] += temperature * float((residual * finite).sum())
        return value, gradient

    def hessian(x: np.ndarray) -> np.ndarray:
        temperature = float(np.exp(x[K])) if kind == "temperature" else 1.0
        p = np.exp(log_probabilities(temperature * finite + x[:K]))
        out = prior * np.eye(K + 1)
        out[:K, :K] += np.diag(share @ p) - (p * share[:, None]).T @ p
        if kind == "temperature":
            slope = temperature * finite
            spread = share[:, None] * p * (slope - (p * slope).sum(axis=1, keepdims=True))
            out[:K, K] = out[K, :K] = spread.sum(axis=0)
            out[K, K] += float((spread * slope).sum() + (share[:, None] * (p - hit) * slope).sum())
        return out

    start = np.zeros(K + 1)
    x = minimize(loss, start, jac=True, hess=hessian, method="trust-exact", options={"gtol": 1e-9, "maxiter": 500}).x
    return Calibration(float(np.exp(x[K])) if kind == "temperature" else 1.0, x[:K] - x[:K].mean())
