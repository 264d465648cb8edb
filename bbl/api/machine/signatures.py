"""Keyword types of `bbl` and `crossVal` for type checkers: arguments and options of methods."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import numpy as np

from bbl.choices import (
    CalibrationKind,
    Covariance,
    Divisor,
    Gauge,
    LevelCoding,
    Logits,
    LogZ,
    MissingPolicy,
    NumberTransform,
    PairPenalty,
    ScoreName,
    TuningRule,
)
from bbl.design.decisions import Priors
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import RowFolds, TableLike

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["CrossValKeywords", "CrossValOptions", "FitKeywords", "FitOptions"]

Grid: TypeAlias = float | Sequence[float] | np.ndarray


class _Call(TypedDict, total=False):
    """Keywords of both functions."""

    design: SurveyDesign | None
    xlevels: Mapping[Any, Any] | None
    novarOk: bool
    missing: MissingPolicy
    log_z: LogZ
    calibrate: CalibrationKind
    relevance: float | TuningRule | None
    structural_zeros: TableLike | str | None
    numeric: bool | Hashable | Sequence[Hashable] | None
    covariance: Covariance
    divisor: Divisor
    shrink: float | Literal["cv"]
    transform: NumberTransform
    seed: int | np.random.Generator | None
    n_jobs: int | None
    client: Client | None
    verbose: int


class _Options(TypedDict, total=False):
    """Options of all methods; a call accepts only the options of the chosen method."""

    lambda_: Grid | TuningRule | Literal["ebic"]
    lambdah: float | None
    eps: Grid | TuningRule
    prior_count: Grid
    tolerance: float
    itmax: int
    symmetrize: bool
    precision: Literal["double", "single"]
    gauge: Gauge
    ridge: Grid | TuningRule | Literal["firth"] | None
    scale: float | str | None
    start: str | None
    epochs: int
    early_stopping: bool
    ordered: LevelCoding | Literal["cv"]
    logits: Logits | Literal["cv"]
    level_scores: Mapping[Any, Sequence[float]] | None
    iss: Grid | TuningRule
    rate: float
    pairs: int | None
    order: int
    combine: Literal["or", "and", "max"]
    penalty: PairPenalty
    screen: str
    prior: str
    sampler: Literal["auto", "conjugate", "exact", "exchange", "pseudo"]
    likelihood: Literal["sampled", "pseudo"]
    chains: int
    warmup: int
    draws: int
    hidden: int
    hidden_pairs: bool
    adjust: bool
    sweeps: int
    c: float | None
    tau: float
    slab: float
    n_iter: int
    tol: float | None
    lr: float
    damping: float
    average: float
    sd: Literal["factorised", "lrvb"]
    centred: bool
    grouped: bool
    empirical_bayes: bool


class FitKeywords(_Call, total=False):
    """Keywords of `bbl` that are not options of a method."""

    testNull: bool
    priors: Priors


class FitOptions(FitKeywords, _Options, total=False):
    """All keywords of `bbl`."""

    refit: Literal["pseudo", "exact", "pcd", "cd", "mf"]


class CrossValKeywords(_Call, total=False):
    """Keywords of `crossVal` that are not options of a method."""

    nfold: int
    use_auc: bool
    score: ScoreName | None
    cv: RowFolds | None
    shuffle: bool
    refit: bool


class CrossValOptions(CrossValKeywords, _Options, total=False):
    """All keywords of `crossVal`."""
