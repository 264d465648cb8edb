"""The public function `crossVal`: cross-validation of Boltzmann machines over a grid of settings.

S is the number of settings of the tuned option, K the number of groups, and N the number of
held-out rows in all folds. `Scored` contains the out-of-fold scores (S, N, K).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

import numpy as np

from bbl.api.machine.average import AUTO_REFUSALS, check_auto
from bbl.api.machine.call import (
    NumberOptions,
    is_auto,
    prepare,
    refuse_zeros,
    shown_call,
    shown_zeros,
    with_training_summary,
)
from bbl.api.machine.signatures import CrossValKeywords, CrossValOptions
from bbl.api.training_data import refuse_batches, user_folds
from bbl.boltzmann.averaging import cross_average
from bbl.boltzmann.cross_fit import (
    Judging,
    cross_fit,
    make_crossval_folds,
    pop_grid,
    rows_of_last_fold,
    score_name,
)
from bbl.boltzmann.job import FitData
from bbl.boltzmann.prediction_checks import warn_record
from bbl.checks import flag, integer
from bbl.choices import Covariance, Divisor, Method, NumberTransform
from bbl.crossval import Scored
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import Batches, RowFolds, TableLike, Weights
from bbl.engines import DEFAULT, PREPARED_AS, Engine, engine_class
from bbl.errors import OptionError
from bbl.parallel import progress_bar
from bbl.results.comparisons.average import auto_results, average_cv
from bbl.results.machine.cv import CVResults, cv_results
from bbl.results.machine.density import DensityResults
from bbl.results.machine.fit import BBLResults
from bbl.rows.fold_assignment import AnyFolds, FoldAssignment
from bbl.rows.folds import Folds

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
    numeric: bool | Hashable | Sequence[Hashable] | None = None,
    covariance: Covariance = "group",
    divisor: Divisor = "moment",
    shrink: float | Literal["cv"] = 0.0,
    transform: NumberTransform = "none",
    n_jobs: int | None = None,
    client: Client | None = None,
    verbose: int = 1,
    **options: Any,
) -> CVResults:
    """Cross-validate over a grid of settings: ``lambda_`` (method "pseudo"), ``eps`` ("mf") or
    ``prior_count`` ("naive").

    Parameters
    ----------
    formula, data, weights, method, design, xlevels, novarOk, missing, log_z, calibrate, relevance,
    structural_zeros, n_jobs, client
        As in `bbl`. Each fold is calibrated on the other folds.
    nfold : int, default 5
        Number of folds. As in R, each fold is a block of consecutive rows within each response
        group; the last fold also contains the remaining rows. Copies of a weighted row may be
        assigned to different folds. With a `design`, folds consist of whole clusters. Designs with
        replicate weights do not identify clusters, so rows are assigned to folds individually; pass
        folds of whole clusters in `cv` instead.
    use_auc : bool, default True
        If True, two groups are scored by AUC (with DeLong's 95% interval); otherwise, by accuracy.
    score : {"auc", "accuracy", "logloss", "brier", "pnll"}, optional
        Overrides `use_auc`. Without a response: "logloss", the mean of ``-ln P(x)`` over left-out
        rows, or "pnll", the mean of their negative log pseudo-likelihood, which does not need ln Z.
    cv : scikit-learn splitter or iterable of (train, validation) row positions, optional
        Overrides `nfold` and `shuffle`. Each model is trained only on the training positions of its
        fold. Positions refer to all rows of `data`, including rows that are not used in the fit. A
        splitter is called as ``cv.split(data, y)``; for a splitter that needs groups, pass
        ``list(splitter.split(X, y, groups))``.
    shuffle : bool, default False
        Whether rows are assigned to folds at random, within each group. Use this if the rows are
        ordered.
    seed : int or numpy.random.Generator, optional
        Seed for `shuffle` and for sampling ln Z.
    refit : bool, default True
        Whether ``model`` is fitted to all rows at the best setting. If False, the model of the last
        fold is kept, as in R.
    verbose : int, default 1
        0 hides the progress bar.
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
        As in `bbl`; the message also names the fold.
    DataWarning
        If predictors differ between consecutive folds more than expected by chance, at the 1 %
        level. It is also issued if naive Bayes or the class proportions have a smaller validation
        log-loss than the best setting. The reason may be that the errors in ln Z differ between the
        groups, which AUC does not detect.

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
    numbers = NumberOptions(numeric, covariance, divisor, shrink, transform)
    shown_method = method
    if uses_auto:
        check_auto(
            options | ({} if relevance is None else {"relevance": relevance}) | numbers.settings,
            calibrate,
            True,
            design,
        )
        refuse_zeros(structural_zeros, AUTO_REFUSALS)
        refuse_batches(data, "method='auto'", "method")
        # the formula and the rows follow the rules of `PREPARED_AS`; averages do their own
        # calibration
        calibrate = "none"
        method = PREPARED_AS
    settings = pop_grid(engine_class(method), options)
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
        **numbers.shown(),
    )
    if cv is not None:
        refuse_batches(data, "cv, which gives row positions,", "cv")

    def make_assignment(_: Engine, rng: np.random.Generator) -> FoldAssignment:
        """Return the fold assignment of data read in batches, which does not depend on the
        engine.
        """
        return FoldAssignment(integer("nfold", nfold, 2), rng if shuffle else None)

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
        numbers=numbers,
        seed=seed,
        n_jobs=n_jobs,
        client=client,
        verbose=verbose,
        make_assignment=make_assignment,
        needs_counts=uses_auto,
    )
    # `design` is the sampling design; `encoded.design` is the formula read against the data
    has_classes = encoded.design.classes
    score = score_name(score, flag("use_auc", use_auc), encoded.K, has_classes)
    folds = encoded.assigned_folds
    if folds is None:
        folds = (
            make_crossval_folds(encoded, nfold, spec.rng if shuffle else None)
            if cv is None
            else user_folds(cv, cast(TableLike, data), encoded)
        )
    if uses_auto:  # check again, because the classes were not known before
        check_auto(options, calibrate, has_classes)
        with progress_bar(len(folds), "crossVal", verbose) as progress:
            crossed = cross_average(encoded, spec, cast(Folds, folds), score, refit, progress)
        warn_record(crossed.loss)
        data_fields = (call_string, encoded.design, encoded.rows, encoded.index)
        average = auto_results(data_fields, crossed.averaged, crossed.loss)
        positions = _validated_rows(crossed.scored, encoded, folds)
        return average_cv(crossed, score, positions, average)
    # whether clusters differ by more than expected by chance
    ordered = cv is None and not shuffle and encoded.survey is None
    judging = Judging(score, refit, ordered, stacklevel=3)
    with progress_bar(len(folds), "crossVal", verbose) as progress:
        found = cross_fit(encoded, spec, settings, folds, judging, progress)
    model_data = encoded if refit else rows_of_last_fold(encoded, folds)
    fit_arguments = (
        call_string,
        encoded.design,
        model_data.training,
        model_data.index,
        found.engine,
        found.estimate,
    )
    model: BBLResults | DensityResults
    if has_classes:
        model = BBLResults(*fit_arguments, survey=model_data.survey, _stored_loss=found.loss)
    else:
        model = DensityResults(*fit_arguments, survey=model_data.survey)
    model = with_training_summary(model, model_data, found.engine)
    positions = _validated_rows(found.validated, encoded, folds)
    return cv_results(found, score, calibrate, positions, model)


def _validated_rows(oof_scores: Scored, encoded: FitData, folds: AnyFolds) -> list[np.ndarray]:
    """Return the positions of each fold's held-out rows in the data, or an empty result if the data
    were read in batches.
    """
    if encoded.index is None:
        return [encoded.row_positions[[]] for _ in range(len(folds))]  # empty arrays
    return [
        encoded.row_positions[oof_scores.rows[oof_scores.fold == fold]]
        for fold in range(len(folds))
    ]


def _refuse_rule(relevance: object) -> None:
    """Raise an OptionError if a rule, such as "cv", is given instead of a significance level."""
    if isinstance(relevance, str):
        raise OptionError(
            f"relevance must be a significance level in crossVal; got {relevance!r}.",
            argument="relevance",
            hint=f"Call crossVal once for each level, or call bbl() with relevance={relevance!r}.",
            value=relevance,
        )
