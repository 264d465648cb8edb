"""Tuning inside a fit: the penalty by cross-validation, and the calibration of class scores on the same folds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bbl.boltzmann.estimate import Problem
from bbl.crossval import cross_validate, one_standard_error, score_settings
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.model.layout import Layout
from bbl.rows.folds import shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import Calibration, fit_calibration

__all__ = ["GRIDS", "NFOLD", "RULES", "Tuning", "tune"]

GRIDS = {
    "lambda_": 10.0 ** np.arange(-4.0, 1.01, 0.5),
    "eps": np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
}
RULES = ("cv", "cv-1se")
SIMPLER = {"lambda_": "larger", "eps": "smaller"}
NFOLD = 5


@dataclass(frozen=True)
class Tuning:
    """What cross-validation inside a fit found.

    Attributes
    ----------
    option : str or None
        The option that was tuned; None if only a calibration was fitted.
    values : ndarray, shape (S,)
        Its settings.
    loss : ndarray, shape (S,)
        Out-of-fold log-loss of each.
    chosen : int
        Position of the one taken.
    calibration : Calibration
    found : list of Problem
        What did not converge.
    """

    option: str | None
    values: np.ndarray
    loss: np.ndarray
    chosen: int
    calibration: Calibration
    found: list[Problem]


def tune(
    sample: Sample,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    rule: str | None,
    *,
    calibrate: str,
    log_z: str,
    workers: int,
    rng: np.random.Generator,
    progress: Callable | None = None,
) -> Tuning:
    """Choose the engine's tuned option and fit the calibration on the out-of-fold scores of shuffled folds.

    Parameters
    ----------
    rule : {"cv", "cv-1se"} or None
        The setting of least log-loss, or the simplest within one standard error of it; None keeps the engine's own.
    calibrate : {"none", "offset", "temperature"}
        Scores are calibrated before they are compared, each fold by the others.
    """
    values = GRIDS[str(engine.tuned)] if rule is not None else None
    folds = shuffled_folds(sample, NFOLD, rng)
    scored = cross_validate(
        sample, labels, layout, engine, values, folds, log_z=log_z, workers=workers, rng=rng, progress=progress
    )
    table, chosen = score_settings(scored, "logloss", calibrate)
    if rule == "cv-1se" and values is not None:
        chosen = one_standard_error(scored, values, chosen, calibrate, SIMPLER[str(engine.tuned)])
    calibration = fit_calibration(scored.scores[chosen], scored.y, scored.weights, calibrate)
    option = None if values is None else engine.tuned
    return Tuning(option, np.zeros(1) if values is None else values, table[:, 0], chosen, calibration, scored.found)
