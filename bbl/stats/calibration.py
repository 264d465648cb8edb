"""Calibration of class scores: an offset per group, and one temperature, fitted on out-of-fold scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["CALIBRATE", "Calibration", "fit_calibration"]

CALIBRATE = ("none", "offset", "temperature")
HELD = {"firm": 10.0}  # what the penalty weighs in observations, where that is not one
AT_REST = 1e-10  # change of a parameter at which the optimum is reached
ROUNDS = 200  # at most
LONGEST = 5.0  # change of an offset or of ln T in a step
EVEN = 1e-15  # decrease that rounding hides


@dataclass(frozen=True)
class Calibration:
    """Calibration of class scores: ``temperature * score + offset``.

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


def fit_calibration(
    scores: np.ndarray, y: np.ndarray, weights: np.ndarray, kind: str, start: Calibration | None = None
) -> Calibration:
    """Fit the calibration by penalised log-loss.

    Parameters
    ----------
    scores : ndarray, shape (N, K)
        Class scores of rows by models that were not fitted to them.
    y : ndarray of int, shape (N,)
    weights : ndarray, shape (N,)
    kind : {"none", "offset", "temperature", "firm"}
        Nothing; an offset for each group; or offsets and one temperature, which the penalty may hold firmly.
    start : Calibration, optional
        Where to begin: what was found on much the same rows.

    Returns
    -------
    Calibration

    Notes
    -----
    An error of ln Z is the same for all rows, so an offset per group takes it out whatever its size. The penalty
    weighs as much as one observation: with few rows the scores are left nearly as they are. ``"firm"`` lets it weigh as
    much as ten, for settings that are chosen by calibrated losses: of many settings, on a hundred rows, the one that
    wins is else the one whose calibration follows chance best.

    Examples
    --------
    >>> scores = np.array([[0.0, 5.0], [0.0, 6.0], [0.0, 4.0], [0.0, 7.0]])
    >>> found = fit_calibration(scores, np.array([0, 1, 0, 1]), np.full(4, 100.0), "offset")
    >>> bool(found.offset[0] - found.offset[1] > 4.0)
    True
    """
    K = scores.shape[1]
    # rows of a group that their fold's training rows did not have tell nothing of how well scores are scaled
    is_possible = np.isfinite(scores[np.arange(len(y)), y])
    if kind == "none" or not is_possible.any():
        return Calibration(1.0, np.zeros(K))
    scores, y, weights = scores[is_possible], y[is_possible], weights[is_possible]
    finite = np.maximum(scores, -1e6)  # any other group may score -inf
    start_x = np.zeros(K + 1) if start is None else np.append(start.offset, np.log(start.temperature))
    tempered = kind != "offset"
    x = _minimum(np.ascontiguousarray(finite.T), y, weights, tempered, start_x, HELD.get(kind, 1.0))
    return Calibration(float(np.exp(x[K])) if tempered else 1.0, x[:K] - x[:K].mean())


def _minimum(
    scores: np.ndarray, y: np.ndarray, weights: np.ndarray, tempered: bool, x: np.ndarray, held: float
) -> np.ndarray:
    """Return offsets and ln T (K + 1,) of least penalised log-loss of `scores` (K, N), from `x` on.

    Newton's method with the absolute eigenvalues of the Hessian, since the loss is not convex in ln T.
    """
    K = len(scores)
    share, prior = weights / weights.sum(), held / weights.sum()
    own_scores = scores[y, np.arange(len(y))]
    hits, hit = np.bincount(y, share, K), float(share @ own_scores)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return value, probabilities times shares (K, N), and tempered scores."""
        z = np.exp(x[K]) * scores if tempered else scores
        p = z + x[:K, None]
        top = p.max(axis=0)
        p -= top
        np.exp(p, out=p)
        total = p.sum(axis=0)
        value = float(share @ (np.log(total) + top)) - float(hits @ x[:K]) + 0.5 * prior * float(x @ x)
        value -= (float(np.exp(x[K])) if tempered else 1.0) * hit
        p *= share / total
        return value, p, z

    value, p, z = loss(x)
    for _ in range(ROUNDS):
        mean = p.sum(axis=1)
        gradient, hessian = prior * x, prior * np.eye(K + 1)
        gradient[:K] += mean - hits
        hessian[:K, :K] += np.diag(mean) - (p / share) @ p.T
        if tempered:
            slope = p * z
            centre = slope.sum(axis=0) / share
            spread = slope - p * centre
            extra = float(slope.sum()) - float(np.exp(x[K])) * hit
            gradient[K] += extra
            hessian[:K, K] = hessian[K, :K] = spread.sum(axis=1)
            hessian[K, K] += float((spread * z).sum()) + extra
        if np.abs(gradient).max() <= AT_REST:
            break
        values, vectors = np.linalg.eigh(hessian)
        step = -vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), prior))
        step /= max(1.0, np.abs(step).max() / LONGEST)
        slope, length = float(step @ gradient), 1.0
        while True:
            new = loss(x + length * step)
            if new[0] <= value + 1e-4 * length * slope or -length * slope < EVEN * (1.0 + abs(value)):
                break
            length *= 0.5
        still = -slope < EVEN * (1.0 + abs(value))
        x, (value, p, z) = x + length * step, new
        if still:  # Newton's step is exact here to the last bits
            break
    return x
