"""MethodTraits: properties of the method of a fit, by which averages and tables of fits treat it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MethodTraits"]


@dataclass(frozen=True)
class MethodTraits:
    """Properties of the method of a fit, for averages and tables of several fits.

    Attributes
    ----------
    name : str
        The engine of a Boltzmann machine, the kind of any other model.
    learner : str
        `name`, or the learner of a Bayesian network's structure.
    setting : str
        Tuned options as ``option=value``, comma-separated.
    converged : bool
        Whether the optimum was reached; True for estimates in closed form.
    stops_early : bool
        Whether the method is meant to stop before its optimum.
    needs_complete_rows : bool
        Whether rows with missing values have no class scores, because the method cannot sum the values out.
    calibration : str
        ``"temperature"`` or ``"none"``.
    can_calibrate : bool
        Whether the method can be calibrated, and the fit is not.
    models_predictors : bool
        Whether a likelihood is that of response and predictors, P(x, y), not P(y|x).
    """

    name: str
    learner: str
    setting: str = ""
    converged: bool = True
    stops_early: bool = False
    needs_complete_rows: bool = False
    calibration: str = "none"
    can_calibrate: bool = False
    models_predictors: bool = True
