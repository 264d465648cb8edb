"""ErrorSource: the sources of standard errors of effects.

n rows, m predictors, K groups. The *coefficients* of a group are an intercept and `size`
parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bbl.boltzmann.inference.score_covariance import ScoreCovariance
from bbl.model.score_gradient import ScoreGradient
from bbl.stats.survey.sample import SurveySample

__all__ = ["DeltaMethod", "ErrorSource", "Scores"]

# A function from level codes (n, m) and missing cells (n, m) or None to class scores (n, K).
Scores = Callable[[np.ndarray, "np.ndarray | None"], np.ndarray]


@dataclass(frozen=True)
class DeltaMethod:
    """Covariance of the coefficients of a fit, and derivatives of probabilities by them, for the
    delta method.

    Attributes
    ----------
    covariance : ScoreCovariance
        Covariance of the coefficients of all groups.
    gradient : ScoreGradient
        Derivatives of averages of probabilities by the coefficients of all groups.
    """

    covariance: ScoreCovariance
    gradient: ScoreGradient


@dataclass(frozen=True)
class ErrorSource:
    """Source of the standard errors of a fit without a bootstrap: a covariance, draws or survey
    replicates.

    Attributes
    ----------
    delta : DeltaMethod or None
        For methods with a covariance; None if standard errors come from draws or a survey.
    draws : tuple of Scores
        A function for the class scores under each draw from a posterior; empty for methods without
        draws.
    unbounded : frozenset of (int, int)
        Levels, as (predictor, code), of parameters without a finite optimum.
    survey : SurveySample or None
        A sampling design with replicate weights; the model is refitted with the weights of each
        replicate.
    """

    delta: DeltaMethod | None
    draws: tuple[Scores, ...] = ()
    unbounded: frozenset[tuple[int, int]] = frozenset()
    survey: SurveySample | None = None
