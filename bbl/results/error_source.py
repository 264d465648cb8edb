"""Sources of standard errors of effects: a covariance, posterior draws or survey replicates."""

from __future__ import annotations

from dataclasses import dataclass

from bbl.boltzmann.inference.score_covariance import ScoreCovariance
from bbl.crossval import Scores
from bbl.model.location_gradient import NumberScoreGradient
from bbl.model.score_gradient import ScoreGradient
from bbl.stats.survey.sample import SurveySample

__all__ = ["DeltaMethod", "ErrorSource"]


@dataclass(frozen=True)
class DeltaMethod:
    """Delta method: covariance of the coefficients of a fit, and derivatives of probabilities. The
    coefficients of a group are an intercept and the parameters of the group.

    Attributes
    ----------
    covariance : ScoreCovariance
        Covariance of the coefficients of all groups.
    gradient : ScoreGradient
        Derivatives of average probabilities with respect to the coefficients of all groups.
    """

    covariance: ScoreCovariance
    gradient: ScoreGradient | NumberScoreGradient


@dataclass(frozen=True)
class ErrorSource:
    """Source of the standard errors of a fit without a bootstrap: a covariance, draws or survey
    replicates.

    Attributes
    ----------
    delta : DeltaMethod or None
        For methods with a covariance; None if standard errors come from draws or a survey.
    draws : tuple of Scores
        Class score functions, one for each posterior draw; empty if the method has no draws.
    unbounded : frozenset of (int, int)
        Levels, as (predictor, code), of parameters without a finite optimum.
    survey : SurveySample or None
        A sampling design with replicate weights; the model is refitted to each set of weights.
    """

    delta: DeltaMethod | None
    draws: tuple[Scores, ...] = ()
    unbounded: frozenset[tuple[int, int]] = frozenset()
    survey: SurveySample | None = None
