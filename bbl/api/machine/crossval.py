"""The public function `crossVal`: cross-validation of Boltzmann machines over a grid of settings.

An *engine* is a method with its options; *S* settings are values of the option that is tuned;
*auto* is ``method="auto"``, an average of several methods. K is the number of groups. Out-of-fold
scores are in a `Scored`: `scores` (S, N, K) of the N validated rows of all folds, with their `fold`
and their position `rows` in the sample, each (N,). `validate` returns one with `found`, problems of
the fits in the folds, and `last`, the S estimates of the last fold. ``call.row_positions`` are the
positions of the sample's rows in the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

import numpy as np

from bbl.api.machine.average import AUTO_REFUSALS, check_auto, cross_auto, is_auto
from bbl.api.machine.call import (
    log_loss_advice,
    prepare,
    rows_of_last_fold,
    shown_call,
    survey_folds,
    with_training_summary,
)
from bbl.api.machine.signatures import CrossValKeywords, CrossValOptions
from bbl.api.machine.zeros import refuse_zeros, shown_zeros
from bbl.api.training_data import refuse_batches, user_folds
from bbl.boltzmann.averaging import PREPARED_AS
from bbl.boltzmann.convergence_warnings import warn_problems
from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.job import FitData
from bbl.boltzmann.prediction_checks import check_validation, warn_ordered
from bbl.boltzmann.validation import validate
from bbl.checks import any_real, choice, flag, integer, reals
from bbl.choices import Method
from bbl.crossval import Scored, calibrated, score_settings
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import Batches, RowFolds, TableLike, Weights
from bbl.engines import DEFAULT, Engine, engine_class
from bbl.errors import OptionError
from bbl.parallel import progress_bar
from bbl.results.machine.density import DensityResults
from bbl.results.machine.fit import BBLResults
from bbl.results.together.cv import CVResults, score_frame
from bbl.rows.dealing import AnyFolds, Deal
from bbl.rows.folds import Folds, consecutive_folds, shuffled_folds
from bbl.stats.calibration import fit_calibration

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["crossVal"]


@overload
def crossVal(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = ...,
    method: Method | Engine = ...,
    **options: Unpack[CrossValOptions],
) -> CVResults: ...
@overload
def crossVal(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None,
    method: Literal["auto"],
    **options: Unpack[CrossValKeywords],
) -> CVResults: ...
@overload
def crossVal(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = ...,
    *,
    method: Literal["auto"],
    **options: Unpack[CrossValKeywords],
) -> CVResults: ...
def crossVal(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = None,
    method: str | Engine = DEFAULT,
    *,
    design: SurveyDesign | None = None,
    nfold: int = 5,
    use_auc: bool = True,
    score: str | None = None,
    cv: RowFolds | None = None,
    shuffle: bool = False,
    seed: int | np.random.Generator | None = None,
    refit: bool = True,
    xlevels: Mapping[Any, Any] | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    log_z: str = "auto",
    calibrate: str = "none",
    relevance: float | str | None = None,
    structural_zeros: TableLike | str | None = None,
    n_jobs: int | None = None,
    client: Client | None = None,
    verbose: int = 1,
    **options: Any,
) -> CVResults:
    """Cross-validate over a grid of ``lambda_`` (method "pseudo"), ``eps`` ("mf") or
    ``prior_count`` ("naive").

    Parameters
    ----------
    formula, data, weights, method, design, xlevels, novarOk, missing, log_z, calibrate, relevance,
    structural_zeros, n_jobs, client
        As in `bbl`; each fold is calibrated on the others.
    nfold : int, default 5
        Number of folds. As in R, each is a consecutive block of the rows of every response group,
        and the last takes the rest. Copies of a weighted row may fall into different folds. With a
        `design` folds are whole clusters; of single rows if it has columns of replicate weights,
        which name no clusters: then give those in `cv`.
    use_auc : bool, default True
        Whether two groups are scored by AUC (with DeLong's 95% interval); otherwise by accuracy.
    score : {"auc", "accuracy", "logloss", "brier", "pnll"}, optional
        Overrules `use_auc`. Without a response: "logloss", the mean of ``-ln P(x)`` of left-out
        rows, or "pnll", the mean of their negative log pseudo-likelihood, which does not need ln Z.
    cv : scikit-learn splitter or iterable of (train, validation) row positions, optional
        Overrules `nfold` and `shuffle`. A fold is trained on its training positions only. Positions
        count all rows of `data`, also those that the fit does not use. A splitter is called as
        ``cv.split(data, y)``; for a splitter that needs groups, give ``list(splitter.split(X, y,
        groups))``.
    shuffle : bool, default False
        Whether rows are dealt to the folds at random, within each group. Needed if the rows are
        ordered.
    seed : int or numpy.random.Generator, optional
        For `shuffle`, and for sampling ln Z.
    refit : bool, default True
        Whether ``model`` is fitted to all rows at the best setting; False keeps the last fold's
        fit, as R does.
    verbose : int, default 1
        0 for no progress bar.
    **options
        Options of the method, as in `bbl`; ``lambda_`` or ``eps`` may be a grid.

    Returns
    -------
    CVResults
        ``cvframe``, ``regstar``, ``maxscore``, ``predict()``, ``plot()``.

    Raises
    ------
    OptionError
        If `nfold`, `score`, `cv` or an option of the method is out of range.

    Warns
    -----
    ConvergenceWarning
        As `bbl`; names the fold too.
    DataWarning
        If predictors differ between consecutive folds more than by chance (a test of level 1 %); or
        if the validation log-loss at the best setting is above that of naive Bayes or of predicting
        the shares of the groups, as after an error of ln Z between the groups, which AUC does not
        show.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> bbl.crossVal(
    ...     "Survived ~ .^2", titanic, "Freq", method="mf", eps=[0, 0.5, 0.9], shuffle=True, seed=1
    ... )
    Optimal epsilon = 0.5
    Max. score: 0.7531476
    <BLANKLINE>
      epsilon       AUC       ci1       ci2
    0     0.0 0.7086512 0.6824595 0.7348429
    1     0.5 0.7531476 0.7294412 0.7768539
    2     0.9 0.7461265 0.7225567 0.7696963
    """
    uses_auto = is_auto(method)
    shown_method = method
    if uses_auto:
        check_auto(
            options | ({} if relevance is None else {"relevance": relevance}),
            calibrate,
            True,
            design,
        )
        refuse_zeros(structural_zeros, AUTO_REFUSALS)
        refuse_batches(data, "method='auto'", "method")
        # its rules for formula and rows; averages calibrate themselves
        calibrate = "none"
        method = PREPARED_AS
    settings = _pop_grid(method, options)
    refit = flag("refit", refit)
    shuffle = flag("shuffle", shuffle)
    call_string = shown_call(
        "crossVal",
        formula,
        data,
        weights,
        shown_method,
        options,
        design,
        missing=(missing, "raise"),
        relevance=(relevance, None),
        structural_zeros=(shown_zeros(structural_zeros), None),
    )
    if cv is not None:
        refuse_batches(data, "cv, which gives positions of rows,", "cv")

    def make_deal(_: Engine, rng: np.random.Generator) -> Deal:
        """Return the folds to which rows are dealt while they are read in batches; the engine does
        not matter.
        """
        return Deal(integer("nfold", nfold, 2), rng if shuffle else None)

    _refuse_rule(relevance)
    spec, encoded = prepare(
        crossVal,
        formula,
        data,
        weights,
        method,
        options,
        xlevels=xlevels,
        novarOk=novarOk,
        missing=missing,
        structural_zeros=structural_zeros,
        design=design,
        log_z=log_z,
        calibrate=calibrate,
        relevance=relevance,
        seed=seed,
        n_jobs=n_jobs,
        client=client,
        verbose=verbose,
        make_deal=make_deal,
        needs_counts=uses_auto,
    )
    # `design` is the sampling design, `encoded.design` the formula read against the data
    has_classes = encoded.design.classes
    score = _score_name(score, flag("use_auc", use_auc), encoded.K, has_classes)
    folds = encoded.dealt_folds
    if folds is None:
        folds = (
            _stratified_folds(encoded, nfold, spec.rng if shuffle else None)
            if cv is None
            else user_folds(cv, cast(TableLike, data), encoded)
        )
    if uses_auto:  # the second check: only the data tell whether there are classes
        check_auto(options, calibrate, has_classes)
        frame, oof_scores, average = cross_auto(
            call_string, encoded, spec, cast(Folds, folds), score, refit, verbose
        )
        # there is one setting, at position 0
        validated_rows = _validated_rows(oof_scores, encoded, folds)
        return CVResults(frame, 0, score, validated_rows, oof_scores, "none", average)
    with progress_bar(len(folds), "crossVal", verbose) as progress:
        # the method of `Estimate` that scores rows
        judge = "pseudo_scores" if score == "pnll" else "class_scores"
        validated = validate(encoded, spec, settings, folds, progress=progress, judge=judge)
    # (S, 1), or (S, 3) with the limits of the AUC; position of the best setting
    score_table, best_position = score_settings(validated, score, calibrate)
    warn_problems(validated.found)
    labels = encoded.design.labels
    # clusters differ by more than chance
    if cv is None and not shuffle and encoded.survey is None:
        warn_ordered(encoded.sample, folds, labels)
    if settings is not None:
        spec = spec.using(spec.engine.at(float(settings[best_position])))
    scores = calibrated(validated, validated.scores[best_position], calibrate)
    loss = check_validation(
        encoded.sample,
        labels,
        encoded.layout,
        spec.engine,
        folds,
        validated,
        scores,
        spec.workers,
        log_loss_advice(encoded, calibrate),
    )
    if refit:
        estimate = estimate_path(encoded, spec, pooled=has_classes)[0]
        model_data = encoded
    else:
        estimate = validated.last[best_position]
        model_data = rows_of_last_fold(encoded, folds)
    if calibrate != "none":
        calibration = fit_calibration(
            validated.scores[best_position], validated.y, validated.weights, calibrate
        )
        estimate = replace(estimate, calibration=calibration)
    fit_arguments = (
        call_string,
        encoded.design,
        model_data.training,
        model_data.index,
        spec.engine,
        estimate,
    )
    model: BBLResults | DensityResults
    if has_classes:
        model = BBLResults(*fit_arguments, survey=model_data.survey, stored_loss=loss)
    else:
        model = DensityResults(*fit_arguments, survey=model_data.survey)
    tuned = spec.engine.tuned
    frame = score_frame(
        score_table,
        score,
        "setting" if tuned is None else tuned.column,
        # engine.setting: value of the option that is tuned, nan if there is none
        np.array([spec.engine.setting]) if settings is None else settings,
    )
    return CVResults(
        frame,
        best_position,
        score,
        _validated_rows(validated, encoded, folds),
        validated,
        calibrate,
        with_training_summary(model, model_data, spec.engine),
    )


def _validated_rows(oof_scores: Scored, encoded: FitData, folds: AnyFolds) -> list[np.ndarray]:
    """Return, for each fold, the positions in the data of its validated rows; empty if they were
    read in batches.
    """
    if encoded.index is None:
        return [encoded.row_positions[[]] for _ in range(len(folds))]  # empty arrays
    return [
        encoded.row_positions[oof_scores.rows[oof_scores.fold == fold]]
        for fold in range(len(folds))
    ]


def _refuse_rule(relevance: object) -> None:
    """Raise an OptionError for a rule, such as "cv", in place of a significance level."""
    if isinstance(relevance, str):
        raise OptionError(
            f"relevance={relevance!r} is not a significance level, which crossVal needs.",
            argument="relevance",
            hint="Call crossVal for each level, or give the rule to bbl.",
            value=relevance,
        )


def _pop_grid(method: str | Engine, options: dict) -> np.ndarray | None:
    """Remove the values of the tuned option from `options`, and return them, shape (S,); None if it
    is not given.
    """
    engine_type = engine_class(method)
    tuned = engine_type.tuned
    # rules: words that the engine takes in place of a number, such as lambda_="ebic"; they stay in
    # `options`
    if tuned is None or options.get(tuned.option) is None or options[tuned.option] in tuned.rules:
        return None

    def check_value(option: str, value: object) -> float:
        """Return a value of the tuned option, as the engine stores it."""
        engine = engine_type(**{option: any_real(option, value)})  # the engine checks the range
        return float(getattr(engine, option))

    return reals(tuned.option, options.pop(tuned.option), check_value)


def _score_name(score: str | None, use_auc: bool, K: int, has_classes: bool) -> str:
    """Return the name of the score: `score`, or the default for K groups; without a response
    `has_classes` is False.
    """
    if score is None:
        score = "logloss" if not has_classes else "auc" if use_auc and K == 2 else "accuracy"
    choice("score", score, ("auc", "accuracy", "logloss", "brier", "pnll"))
    if not has_classes and score not in ("logloss", "pnll"):
        raise OptionError(
            f"score={score!r} is for classes, and the formula has no response.",
            argument="score",
            hint="Give score='logloss' or 'pnll'.",
            value=score,
        )
    if has_classes and score == "pnll":
        raise OptionError(
            "score='pnll' is for models without a response.",
            argument="score",
            hint="Give score='logloss'.",
        )
    if score == "auc" and K != 2:
        raise OptionError(
            f"score='auc' needs two response groups, not {K}.",
            argument="score",
            hint="Give score='accuracy'.",
        )
    return score


def _stratified_folds(encoded: FitData, nfold: int, rng: np.random.Generator | None) -> Folds:
    """Return `nfold` folds of each group's rows: shuffled by `rng`, or consecutive blocks as in
    R.
    """
    sample = encoded.rows
    integer("nfold", nfold, 2, int(sample.total) if sample.whole else sample.n)
    if encoded.survey is not None:
        return survey_folds(encoded, nfold, rng)
    return consecutive_folds(sample, nfold) if rng is None else shuffled_folds(sample, nfold, rng)
