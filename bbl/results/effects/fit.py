"""EffectFit, the interface of a fitted classifier that effects use; and ErrorSource, the sources of standard errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NoReturn, Protocol

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.score_covariance import ScoreCovariance
from bbl.capabilities import MethodTraits
from bbl.crossval import Classifier
from bbl.design.decisions import Priors
from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.model.score_gradient import ScoreGradient
from bbl.rows.sample import Sample
from bbl.stats.survey.sample import SurveySample

__all__ = ["DeltaMethod", "EffectFit", "ErrorSource", "Scores", "no_error_source", "no_redraw"]

# A function from level codes (n, m) and missing cells (n, m) or None to class scores (n, K).
Scores = Callable[[np.ndarray, "np.ndarray | None"], np.ndarray]


@dataclass(frozen=True)
class DeltaMethod:
    """Covariance of the coefficients of a fit, and derivatives of probabilities by them.

    Attributes
    ----------
    covariance : ScoreCovariance
        Covariance of the intercepts and parameters of all groups.
    gradient : ScoreGradient
        Derivatives of averages of probabilities by these.
    temperature : float
        Factor of the calibrated class scores. Rows whose predictors are all missing have none.
    """

    covariance: ScoreCovariance
    gradient: ScoreGradient
    temperature: float = 1.0


@dataclass(frozen=True)
class ErrorSource:
    """Source of the standard errors of a fit other than a bootstrap: one of a covariance, draws and survey replicates.

    Attributes
    ----------
    delta : DeltaMethod or None
        For methods with a covariance.
    draws : tuple of Scores
        A function for the class scores under each draw from a posterior; empty for methods without draws.
    unbounded : frozenset of (int, int)
        Levels, as (predictor, code), of parameters without a finite optimum.
    survey : SurveySample or None
        A sampling design with replicate weights; the model is refitted with each.
    """

    delta: DeltaMethod | None
    draws: tuple[Scores, ...] = ()
    unbounded: frozenset[tuple[int, int]] = frozenset()
    survey: SurveySample | None = None


class EffectFit(Protocol):
    """The part of a fitted classifier that effects need; see `ClassifierResults` for each member."""

    @property
    def labels(self) -> Labels: ...
    @property
    def design(self) -> Design: ...
    @property
    def training(self) -> Sample | None: ...
    @property
    def priors(self) -> np.ndarray | None: ...

    refusals: ClassVar[Mapping[str, str]]

    @cached_property
    def _counts(self) -> list[np.ndarray]: ...
    @property
    def _traits(self) -> MethodTraits: ...
    @property
    def _bootstrap_members(self) -> Sequence[tuple[EffectFit, float]]: ...
    def _rows(self) -> Sample: ...
    def _index(self) -> pd.Index: ...
    def _refit(self, train: Sample, rng: np.random.Generator, warm: bool = False) -> Classifier: ...
    def _redraw(self, rows: Sample, rng: np.random.Generator) -> tuple[Classifier, np.ndarray] | None: ...
    def _error_source(self, rng: np.random.Generator) -> ErrorSource: ...
    def _encoded_scores(
        self, codes: np.ndarray, missing: np.ndarray | None, dropped: np.ndarray | None, priors: Priors
    ) -> np.ndarray: ...


def no_error_source(self: EffectFit, rng: np.random.Generator) -> NoReturn:
    """Raise an OptionError: this kind of model has no covariance of its estimates; the message says what to give."""
    advice = "se=False" if "effects_bootstrap" in self.refusals else "se='bootstrap'"
    raise OptionError(f"{self.refusals['effects']}; give {advice}.", argument="se")


def no_redraw(self: EffectFit, rows: Sample, rng: np.random.Generator) -> None:
    """Return None, which says that a bootstrap refits the model to drawn rows; see `ClassifierResults._redraw`."""
