"""`FitData`: the rows, groups and terms of a fit. `FitSpec`: the validated options of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from bbl.design.labels import Labels
from bbl.engines import (
    Engine,
)
from bbl.model.layout import Layout
from bbl.model.location import LocationModel
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

if TYPE_CHECKING:
    import pandas as pd

    from bbl.boltzmann.fitted import Relevance
    from bbl.design.design import Design
    from bbl.design.frames import Frame
    from bbl.design.streams.source import TrainingSource
    from bbl.rows.fold_assignment import AnyFolds
    from bbl.stats.survey.sample import SurveySample

__all__ = ["FitData", "FitSpec"]


@dataclass(frozen=True)
class FitSpec:
    """The validated options for fitting Boltzmann machines.

    Attributes
    ----------
    engine : Engine
        The method and its options.
    log_z, calibrate : str
        The arguments `log_z` and `calibrate` of `bbl.bbl`.
    relevance : float or None
        Significance level for selecting predictors that differ between groups; None to use all
        predictors, or if the level is selected by cross-validation.
    workers : int
        Number of threads; results do not depend on it.
    rng : Generator
        Random generator; by default, with a fixed seed.
    location : LocationModel or None
        The model for the numeric predictors; None if there are none.
    """

    engine: Engine
    log_z: str = "auto"
    calibrate: str = "none"
    relevance: float | None = None
    workers: int = 1
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    location: LocationModel | None = field(default=None, kw_only=True)

    def using(self, engine: Engine) -> FitSpec:
        """Return a copy with a different engine."""
        return replace(self, engine=engine)


@dataclass(frozen=True)
class FitData:
    """Encoded rows of all groups, and the terms to fit.

    The attributes after `labels` describe the table that contains the rows. They are not set for
    refits and folds.

    Attributes
    ----------
    sample : Sample, StoredSample or a sample on a cluster
        The n rows to fit; a `Sample` unless the data were read in batches.
    layout : Layout
        Predictors and terms in the formula, before an engine changes them; None for models other
        than Boltzmann machines.
    K : int
        Number of response groups; 1 if the formula has no response.
    labels : Labels, optional
        Names of groups and predictors, for results and errors.
    design : Design, optional
        The formula applied to the data: response, predictors and levels.
    index : pandas.Index of length n, optional
        Row labels; None if the data were read in batches, because models do not keep such rows.
    frame : Frame, optional
        The table; None if the data were read in batches.
    row_positions : ndarray of int, shape (n,)
        Positions of the rows in `frame`; empty if the data were read in batches.
    assigned_folds : Folds or StoredFolds, optional
        Folds of the rows, assigned while the data were read in batches.
    survey : SurveySample, optional
        Sampling design of the rows of `frame`, which includes the positions of the n rows.
    source : TrainingSource, optional
        Source for reading data in batches again; None for a table.
    selections : dict, optional
        Cache of selected predictors for `bbl.boltzmann.relevance.choose_once`, shared by the fits
        of different engines to the same rows.
    """

    sample: Rows
    layout: Layout
    K: int
    labels: Labels | None = None
    design: Design = field(default=cast("Design", None), kw_only=True)
    index: pd.Index | None = field(default=None, kw_only=True)
    frame: Frame | None = field(default=None, kw_only=True)
    row_positions: np.ndarray = field(
        default_factory=lambda: np.zeros(0, dtype=np.intp), kw_only=True
    )
    assigned_folds: AnyFolds | None = field(default=None, kw_only=True)
    survey: SurveySample | None = field(default=None, kw_only=True)
    source: TrainingSource | None = field(default=None, kw_only=True)
    selections: dict[bytes, Relevance] | None = field(default=None, kw_only=True)

    @property
    def nominal(self) -> FitData:
        """The same rows in the form used by engines, where each numeric predictor has one level."""
        if self.labels is None or not self.labels.measured:
            return self
        is_number = np.zeros(self.layout.m, dtype=bool)
        is_number[list(self.labels.measured)] = True
        return replace(self, sample=self.sample.nominal(is_number, self.layout.n_levels))

    def without_numbers(self, model: LocationModel) -> FitData:
        """Return the rows and terms without the numeric predictors of a location model."""
        chosen = model.categories
        levels = self.sample.nominal(model.is_number, model.n_levels)
        return replace(self, sample=levels).only(chosen)

    def only(self, predictors: np.ndarray) -> FitData:
        """Return the rows and terms of some categorical predictors."""
        labels = None if self.labels is None else self.labels.only(predictors)
        return FitData(self.sample.only(predictors), self.layout.only(predictors), self.K, labels)

    @property
    def rows(self) -> Sample:
        """The `sample`, for callers that require a `Sample` and do not support batches."""
        return cast(Sample, self.sample)

    @property
    def training(self) -> Sample | None:
        """The rows that fitted models keep, or None if the data were read in batches."""
        return None if self.index is None else self.rows

    def with_sample(self, sample: Rows) -> FitData:
        """Return a copy with other rows for the same predictors and terms, without the table."""
        return FitData(sample, self.layout, self.K, self.labels, selections=self.selections)
