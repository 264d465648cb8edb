"""What effects ask of a fitted classifier, as an interface, and what a classifier answers on its standard errors."""

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

Scores = Callable[[np.ndarray, "np.ndarray | None"], np.ndarray]  # class scores (n, K) of codes and missing cells


@dataclass(frozen=True)
class DeltaMethod:
    """What the delta method needs of a fit.

    Attributes
    ----------
    covariance : ScoreCovariance
    gradient : ScoreGradient
    temperature : float
        Factor of the class scores, before they become probabilities, in rows with a known predictor.
    """

    covariance: ScoreCovariance
    gradient: ScoreGradient
    temperature: float = 1.0


@dataclass(frozen=True)
class ErrorSource:
    """What gives the standard errors of a fit without drawing rows.

    Attributes
    ----------
    delta : DeltaMethod or None
        For methods with a covariance.
    draws : tuple of Scores
        Class scores under each draw from a posterior, for methods that have draws.
    unbounded : frozenset of (int, int)
        Levels, as (predictor, code), of parameters without a finite optimum.
    survey : SurveySample or None
        A sampling design with replicates, to which the fit has to be refitted.
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
    """Raise an OptionError: the kind of model has no covariance of its estimates."""
    advice = "se=False" if "effects_bootstrap" in self.refusals else "se='bootstrap'"
    raise OptionError(f"{self.refusals['effects']}; give {advice}.", argument="se")


def no_redraw(self: EffectFit, rows: Sample, rng: np.random.Generator) -> None:
    """Return None: a bootstrap refits the model to drawn rows."""
