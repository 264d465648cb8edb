"""Calibration of class scores by an offset per group and a common temperature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np

from bbl._ext.model.calibration import CalibrationLoss
from bbl.choices import CalibrationKind

__all__ = ["CALIBRATE", "Calibration", "fit_calibration"]

CALIBRATE = get_args(CalibrationKind)
FIRM_PENALTY = 10.0  # weight of the penalty for "firm", in observations; otherwise 1
LEAST_SCORE = -1e6  # replaces scores of -inf


@dataclass(frozen=True)
class Calibration:
    """Calibration of class scores: ``temperature * score + offset``."""

    # T multiplies scores (in physics it divides): below 1, probabilities are less extreme
    temperature: float
    offset: np.ndarray  # (K,): added to each group's score; sums to zero

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return the calibrated class scores (n, K)."""
        return self.temperature * scores + self.offset


def fit_calibration(
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    kind: str,
    start: Calibration | None = None,
) -> Calibration:
    """Fit the calibration by minimising the penalised log-loss.

    The penalty corresponds to a normal prior on the offsets and ``ln T`` with the weight of one
    observation. A small number of rows therefore hardly changes the scores. The offsets remove any
    error in ln Z that is the same for all rows.

    Parameters
    ----------
    scores : ndarray, shape (N, K)
        Out-of-fold class scores.
    y : ndarray of int, shape (N,)
        Observed groups.
    weights : ndarray, shape (N,)
    kind : {"none", "offset", "temperature", "firm"}
        "none": no calibration. "offset": an offset per group. "temperature": offsets and a common
        temperature. "firm": the same as "temperature", but the penalty has the weight of ten
        observations. Use "firm" to select settings by calibrated losses. Otherwise, settings with a
        calibration that overfits a few rows would be favoured.
    start : Calibration, optional
        Initial calibration, for example one fitted to similar rows.

    Examples
    --------
    >>> scores = np.array([[0.0, 5.0], [0.0, 6.0], [0.0, 4.0], [0.0, 7.0]])
    >>> calibration = fit_calibration(scores, np.array([0, 1, 0, 1]), np.full(4, 100.0), "offset")
    >>> bool(calibration.offset[0] - calibration.offset[1] > 4.0)
    True
    """
    K = scores.shape[1]
    # rows whose group did not occur in their fold's training rows have score -inf and contain no
    # information on the scale
    is_possible = np.isfinite(scores[np.arange(len(y)), y])
    if kind == "none" or not is_possible.any():
        return Calibration(1.0, np.zeros(K))
    if not is_possible.all():
        scores = scores[is_possible]
        y = y[is_possible]
        weights = weights[is_possible]
    finite_scores = np.maximum(scores, LEAST_SCORE)  # other groups may have score -inf
    start_x = (
        np.zeros(K + 1) if start is None else np.append(start.offset, np.log(start.temperature))
    )
    fits_temperature = kind != "offset"
    penalty = FIRM_PENALTY if kind == "firm" else 1.0
    total = weights.sum()  # the loss is divided by the total weight
    x = CalibrationLoss(
        finite_scores, y, weights / total, fits_temperature, penalty / total
    ).minimise(start_x)
    return Calibration(float(np.exp(x[K])) if fits_temperature else 1.0, x[:K] - x[:K].mean())
