"""EffectFit, the interface of a fitted classifier that effects use; and ErrorSource, the sources of
standard errors.

n rows, m predictors, K groups. The *coefficients* of a group are an intercept and `size`
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.score_covariance import ScoreCovariance
from bbl.capabilities import MethodTraits
from bbl.crossval import Refit
from bbl.design.decisions import Priors
from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.model.score_gradient import ScoreGradient
from bbl.rows.sample import Sample
from bbl.stats.survey.sample import SurveySample

__all__ = ["DeltaMethod", "EffectFit", "ErrorSource", "Scores"]

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


class EffectFit(Protocol):
    """The part of a fitted classifier that effects need; see `ClassifierResults` for each
    member.
    """

    @property
    def labels(self) -> Labels: ...  # names of the groups, the predictors and their levels
    @property
    def design(self) -> Design: ...  # formula and levels: encodes new data like the training data
    @property
    def training(self) -> Sample | None: ...  # the training rows, None in a model without them
    @property
    # (K,): class shares for predictions; None for those of training rows
    def priors(self) -> np.ndarray | None: ...

    refusals: ClassVar[Mapping[str, str]]  # reasons, by what this kind of model cannot do

    @cached_property
    # m arrays (K, L_i): weighted counts of the L_i levels of a predictor
    def _counts(self) -> list[np.ndarray]: ...
    @property
    # properties of the method, such as whether it `converged`
    def _traits(self) -> MethodTraits: ...
    @property
    # fits to be refitted, and their weights
    def _bootstrap_members(self) -> Sequence[tuple[EffectFit, float]]: ...
    def _rows(self) -> Sample: ...  # the training rows, or a DataError
    def _index(self) -> pd.Index: ...  # labels of the training rows
    # a fit to other rows; `warm` starts at the solution of this fit
    def _refit(self, train: Sample, rng: np.random.Generator, warm: bool = False) -> Refit: ...
    # (a draw of the model from its posterior, its class shares (K,)), or None if the model is
    # refitted to drawn rows
    def _redraw(
        self, rows: Sample, rng: np.random.Generator
    ) -> tuple[Refit, np.ndarray] | None: ...
    # or an OptionError or DataError
    def _error_source(self, rng: np.random.Generator) -> ErrorSource: ...
    # class scores (n, K) of rows under `priors`, None for the model's; nan in rows that are
    # `dropped` (n,)
    def _encoded_scores(
        self,
        codes: np.ndarray,
        missing: np.ndarray | None,
        dropped: np.ndarray | None,
        priors: Priors,
    ) -> np.ndarray: ...
