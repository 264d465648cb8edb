"""Cross-validation of Boltzmann machines over settings, and the fit at the best setting.

S is the number of settings (values of the tuned option), and K the number of groups. `bbl.crossVal`
and the method `crossVal` of fitted machines wrap `CrossFit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.fitted import Estimate, warn_problems
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.prediction_checks import check_validation, log_loss_advice, warn_ordered
from bbl.boltzmann.validation import Validated, validate
from bbl.checks import any_real, choice, integer, reals
from bbl.crossval import calibrated, score_settings
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.errors import OptionError
from bbl.rows.fold_assignment import AnyFolds
from bbl.rows.folds import (
    Folds,
    WeightedFold,
    cluster_folds,
    consecutive_folds,
    shuffled_folds,
)
from bbl.stats.calibration import fit_calibration
from bbl.stats.metrics import LossRecord

__all__ = [
    "CrossFit",
    "Judging",
    "cross_fit",
    "pop_grid",
    "rows_of_last_fold",
    "score_name",
    "make_crossval_folds",
    "survey_folds",
]


@dataclass(frozen=True)
class Judging:
    """Options for comparing settings and for the model that is fitted afterwards.

    Attributes
    ----------
    score : str
        Name of the score; see `score_name`.
    refit : bool
        Whether to refit the model to all rows at the best setting. If False, the fit to the last
        fold is returned.
    ordered : bool
        Whether folds consist of consecutive rows. In this case, a warning is issued if the rows do
        not appear to be in random order.
    stacklevel : int
        Stack level of warnings, counted from the caller of `cross_fit`.
    """

    score: str
    refit: bool
    ordered: bool
    stacklevel: int


@dataclass(frozen=True)
class CrossFit:
    """Scores of S settings, and the model fitted at the best setting.

    Attributes
    ----------
    table : ndarray, shape (S, 1) or (S, 3)
        Scores, with confidence limits for the AUC.
    settings : ndarray, shape (S,)
    best : int
        Position of the best setting.
    validated : Validated
    engine : Engine
        The engine at the best setting.
    estimate : Estimate
    loss : LossRecord or None
        Validation log-loss at the best setting; None if the formula has no response.
    """

    table: np.ndarray
    settings: np.ndarray
    best: int
    validated: Validated
    engine: Engine
    estimate: Estimate
    loss: LossRecord | None

    @property
    def setting_name(self) -> str:
        """Name of the column that contains the settings."""
        return "setting" if self.engine.tuned is None else self.engine.tuned.column


def cross_fit(
    data: FitData,
    spec: FitSpec,
    settings: np.ndarray | None,
    folds: AnyFolds,
    judging: Judging,
    progress: Callable | None = None,
) -> CrossFit:
    """Compare settings on the validation rows of each fold, and fit the model at the best setting.

    `settings` (S,) contains values of the tuned option. If it is None, the engine's own value is
    used.
    """
    labels = cast(Labels, data.labels)
    score = judging.score
    calibrate = spec.calibrate
    stacklevel = judging.stacklevel + 1
    # the method of `Estimate` that scores rows
    score_method = "pseudo_scores" if score == "pnll" else "class_scores"
    validated = validate(data, spec, settings, folds, progress=progress, score_method=score_method)
    table, best = score_settings(validated, score, calibrate)
    warn_problems(validated.found, stacklevel=stacklevel)
    if judging.ordered:
        warn_ordered(data.nominal.sample, folds, labels, stacklevel=stacklevel)
    if settings is not None:
        spec = spec.using(spec.engine.at(float(settings[best])))
    scores = calibrated(validated, validated.scores[best], calibrate)
    loss = check_validation(
        data.nominal.sample,
        labels,
        data.layout,
        spec.engine,
        folds,
        validated,
        scores,
        spec.workers,
        log_loss_advice(data, calibrate),
        validated.last[best].log_z_kind,
        stacklevel=stacklevel,
    )
    estimate = validated.last[best]
    if judging.refit:
        estimate = estimate_path(data, spec, pooled=data.design.classes)[0]
    if calibrate != "none":
        calibration = fit_calibration(
            validated.scores[best], validated.y, validated.weights, calibrate
        )
        estimate = replace(estimate, calibration=calibration)
    # engine.setting: value of the tuned option, or nan
    used_settings = np.array([spec.engine.setting]) if settings is None else settings
    return CrossFit(table, used_settings, best, validated, spec.engine, estimate, loss)


def pop_grid(engine_type: type[Engine], options: dict) -> np.ndarray | None:
    """Remove the tuned option from `options` and return its values (S,), or None."""
    tuned = engine_type.tuned
    # rules: words that the engine accepts instead of a number, such as lambda_="ebic"; they remain
    # in `options`
    if tuned is None or options.get(tuned.option) is None or options[tuned.option] in tuned.rules:
        return None

    def check_value(option: str, value: object) -> float:
        """Validate a value of the tuned option, and return it as the engine stores it."""
        engine = engine_type(**{option: any_real(option, value)})  # the engine checks the range
        return float(getattr(engine, option))

    return reals(tuned.option, options.pop(tuned.option), check_value)


def score_name(score: str | None, use_auc: bool, K: int, has_classes: bool) -> str:
    """Return the name of the score: `score` if given, otherwise the default for K groups.

    `has_classes` indicates whether there is a response.
    """
    if score is None:
        score = "logloss" if not has_classes else "auc" if use_auc and K == 2 else "accuracy"
    choice("score", score, ("auc", "accuracy", "logloss", "brier", "pnll"))
    if not has_classes and score not in ("logloss", "pnll"):
        raise OptionError(
            f"score={score!r} requires classes, but the formula has no response.",
            argument="score",
            hint="Use score='logloss' or 'pnll'.",
            value=score,
        )
    if has_classes and score == "pnll":
        raise OptionError(
            "score='pnll' is only available for models without a response.",
            argument="score",
            hint="Use score='logloss'.",
        )
    if score == "auc" and K != 2:
        raise OptionError(
            f"score='auc' requires two groups, but the response has {K}.",
            argument="score",
            hint="Use score='accuracy'.",
        )
    return score


def make_crossval_folds(encoded: FitData, nfold: int, rng: np.random.Generator | None) -> Folds:
    """Assign the rows of each group to `nfold` folds.

    The rows are shuffled with `rng`. If it is None, folds consist of consecutive rows, as in R.
    """
    sample = encoded.rows
    integer("nfold", nfold, 2, int(sample.total) if sample.whole else sample.n)
    if encoded.survey is not None:
        return survey_folds(encoded, nfold, rng)
    return consecutive_folds(sample, nfold) if rng is None else shuffled_folds(sample, nfold, rng)


def survey_folds(data: FitData, nfold: int, rng: np.random.Generator | None) -> Folds:
    """Return folds that keep sampling clusters together, shuffled if `rng` is given."""
    survey = data.survey
    assert survey is not None  # noqa: S101  # checked by its callers
    n_clusters = len(np.unique(survey.clusters))
    if n_clusters < nfold:
        raise OptionError(
            f"Cross-validation with {nfold} folds requires at least {nfold} clusters, but the "
            f"sampling design has {n_clusters}.",
            argument="nfold",
            hint=(
                "Use fewer folds in crossVal (nfold), or pass a number instead of 'cv' or 'cv-1se'."
            ),
        )
    return cluster_folds(data.rows, survey.strata, survey.clusters, nfold, rng)


def rows_of_last_fold(data: FitData, folds: AnyFolds) -> FitData:
    """Return the training rows of the last fold."""
    fold = folds.one(len(folds) - 1)
    index = None
    survey = data.survey
    # for rows in memory; `train` are their training weights, 0 if left out
    if isinstance(fold, WeightedFold):
        index = None if data.index is None else data.index[fold.train > 0]
        survey = None if survey is None else survey.only(fold.train > 0)
    return replace(data, sample=fold.training(data.sample), index=index, survey=survey)
