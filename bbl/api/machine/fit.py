"""The public functions that fit Boltzmann machines: `bbl` and `crossVal`.

Terms: an *engine* is a method with its options; a *layout* has the positions of the parameters of the formula's terms;
a *tuning rule* is "cv" or "cv-1se" in place of a number; *S* settings are values of the option that is tuned; the
*pooled* fit is one to the rows of all K response groups together; *auto* is ``method="auto"``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bbl.api.machine.average import check_auto, cross_auto, fit_auto, is_auto
from bbl.api.machine.call import Call, RunOptions, pop_rule, prepare, shown_call
from bbl.api.training_data import TrainingData, refuse_batches, user_folds
from bbl.boltzmann.averaging import PREPARED_AS
from bbl.boltzmann.convergence_warnings import problems, warn_problems
from bbl.boltzmann.prediction_checks import check_training, check_validation, warn_ordered
from bbl.boltzmann.tuning import NFOLD, tune
from bbl.boltzmann.validation import validate
from bbl.checks import any_real, choice, flag, integer, reals
from bbl.crossval import Scored, calibrated, score_settings
from bbl.design.decisions import Priors, check_priors
from bbl.design.design import Design
from bbl.design.table_types import Batches, RowFolds, TableLike, Weights
from bbl.engines import DEFAULT, Engine, engine_class
from bbl.errors import OptionError
from bbl.parallel import progress_bar
from bbl.results.machine.density import DensityResults
from bbl.results.machine.fit import BBLResults
from bbl.results.together.average import AverageResults
from bbl.results.together.cv import CVResults, score_frame
from bbl.rows.dealing import AnyFolds, Deal
from bbl.rows.folds import Folds, consecutive_folds, shuffled_folds
from bbl.stats.calibration import fit_calibration

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["bbl", "crossVal"]


def bbl(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = None,
    method: str | Engine = DEFAULT,
    *,
    xlevels: dict | None = None,
    testNull: bool = True,
    novarOk: bool = False,
    missing: str = "raise",
    log_z: str = "auto",
    calibrate: str = "none",
    priors: Priors = None,
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    client: Client | None = None,
    verbose: int = 1,
    **options: Any,
) -> BBLResults | DensityResults | AverageResults:
    """Fit a Boltzmann Bayes learner: a Boltzmann machine for each response group, classified by Bayes' rule.

    Without a response (``"~ ."``) one Boltzmann machine is fitted to all rows: a model of how likely rows are.

    Parameters
    ----------
    formula : str
        ``"y ~ a + b + a:b"``, ``"y ~ a*b"``, ``"y ~ (a + b + c)^2"``, ``"y ~ ."``, ``"y ~ .^2"``, ``"y ~ .^3"``, with
        ``- d`` or ``- a:b`` to drop; names in backticks may hold anything; ``"~ .^2"`` for one group without a
        response. Never evaluated as code.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        One row per observation, or per distinct row with `weights`. Or data that are read in batches, for methods
        "pseudo", "ml", "mf" and "naive": a Parquet path, list, glob or folder, a pyarrow Dataset or RecordBatchReader,
        a DuckDB relation, a polars LazyFrame, a Dask DataFrame, a function that returns an iterator of tables.
        `weights` is then the name of a column, and the fitted model does not keep the training rows.
    weights : column name or array of length n, optional
        Frequencies, whole numbers; a weight is the same as repeating the row. "pseudo", "ml", "mf", "naive" and "pvi"
        take any positive numbers, but then without tests and standard errors.
    method : {"pseudo", "ml", "mf", "naive", "conditional", "pvi", "bayes", "shbm", "auto"} or Engine, default "pseudo"
        In this order: pseudo-likelihood; exact maximum likelihood; mean field; naive Bayes; conditional likelihood, for
        prediction only; a posterior under sparse priors by persistent variational inference, or by Markov chains; a
        sparse high-order Boltzmann machine, which chooses its terms itself; an average of "pseudo", "mf" and
        "conditional", tuned, calibrated and weighted by cross-validation.
    xlevels : dict of predictor name to list of levels, optional
        All levels a predictor may have, in order; the first is the reference.
    testNull : bool, default True
        Whether to fit all rows as one group too, to show the groups' differences from it, ``dh`` and ``dJ``.
    novarOk : bool, default False
        Whether predictors with one level are allowed.
    missing : {"raise", "drop", "level", "marginal"}, default "raise"
        Missing values (None, nan, NA, NaT) are an error; or their rows are dropped; or they are a level
        ``"(missing)"`` of their predictor; or the model is fitted to the known values of each row (see Notes).
        `predict` treats them in the same way, and sums missing predictors out under "marginal".
    log_z : {"auto", "exact", "pseudo", "half", "mf", "ais"}, default "auto"
        How ln Z is computed. "exact": the sum over all states. "pseudo", "half": eq. (31) without its factor 1/2 (the
        paper's default), or with it. "mf": eq. (32). "ais": annealed importance sampling. "auto": "exact" where that
        is cheap, else "half", the best in the accuracy benchmark.
    calibrate : {"none", "offset", "temperature"}, default "none"
        Correction of class scores: by an offset for each group; or by offsets and a common temperature. Both are fitted
        to the out-of-fold scores of 5 shuffled folds.
    priors : mapping or Series by group, array_like of shape (K,), or ``"equal"``, optional
        Class shares for predictions, in place of the shares in the training rows: for groups that were sampled
        separately, or will be more or less frequent in new rows. Parameters and likelihood do not depend on them. An
        array is in the order of the groups, and needs groups of declared order, numbers or booleans.
    seed : int, numpy.random.Generator or None, default 0
        For the folds, and for methods that sample; None for fresh entropy.
    n_jobs : int, optional
        Threads; None or -1 for all cores. Results do not depend on it.
    client : dask.distributed.Client, optional
        Cluster whose workers read the data, keep the codes and compute sums over them; for a Dask DataFrame the
        active client by default. The workers must have access to Parquet files and to those of a pyarrow Dataset.
    verbose : int, default 1
        0 for no progress bar.
    **options
        Options of the method, see `HighOrder`, `MaximumLikelihood`, `PersistentVI`, `Posterior`, `PseudoLikelihood`
        (``lambda_``, ``lambdah``, ``prior_count``, ``tolerance``, ``itmax``, ``symmetrize``, ``precision``, ``gauge``),
        `MeanField` (``eps``, ``prior_count``, ``gauge``), `NaiveBayes` (``prior_count``) and `Conditional`
        (``ridge``, ``scale``, ``start``, ``lambda_``, ``epochs``, ``early_stopping``). ``lambda_="cv"``, ``eps="cv"``
        and ``ridge="cv"`` choose the setting of least log-loss in 5 shuffled folds, ``"cv-1se"`` the simplest setting
        within one standard error of it; ``fit.tuning`` holds the losses. Without a response, the negative log pseudo-
        likelihood of the left-out rows (`DensityResults.pnll`) takes the place of the log-loss.

    Returns
    -------
    BBLResults, or DensityResults of a formula without a response, or AverageResults with ``method="auto"``

    Raises
    ------
    FormulaError, DataError, LevelError, OptionError, BBLTypeError
        Each names the column or argument, and what to do.

    Warns
    -----
    ConvergenceWarning
        If the fit of a predictor did not converge, or has no finite optimum; names group and predictor.
    DataWarning
        If the log-loss on the validated rows of the tuning, or on the training rows, is above that of predicting the
        shares of the groups, or that on the training rows above that of naive Bayes; it names the remedy, and
        ``fit.log_loss`` has the numbers. Or if a predictor has over 100 levels, most of them rare.

    Notes
    -----
    With ``missing="marginal"``, naive Bayes and mean field use the frequencies of each predictor over the rows in
    which it is known, and of each pair over the rows in which both are. Pseudo-likelihood fits each predictor to the
    rows in which it and all predictors that it interacts with are known: only the complete rows if all pairs interact,
    more rows with fewer interactions. All methods assume that values are missing completely at random within a group.
    Without missing values the fit is bitwise that of ``missing="raise"``.

    References
    ----------
    Woo J, Wang J (2022). bbl: Boltzmann Bayes Learner for High-Dimensional Inference with Discrete Predictors
    in R. Journal of Statistical Software.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> fit.predict(titanic.head(2), type="prob").round(3)
          No    Yes yhat
    0  0.400  0.600  Yes
    1  0.702  0.298   No
    """
    test_null, auto = flag("testNull", testNull), is_auto(method)
    call_string = shown_call(
        "bbl", formula, weights, method, options, missing=(missing, "raise"), log_z=(log_z, "auto"),
        calibrate=(calibrate, "none"), priors=(priors if isinstance(priors, str | None) else "given", None),
    )  # fmt: skip
    if auto:
        check_auto(options, calibrate, classes=True)
        refuse_batches(data, "method='auto'", "method")
        calibrate, method = "none", PREPARED_AS
    tuning_rule = pop_rule(method, options)

    def make_deal(engine: Engine, rng: np.random.Generator) -> Deal | None:
        """Return the folds to which rows are dealt while they are read in batches."""
        return Deal(NFOLD, rng) if _needs_folds(engine, tuning_rule, calibrate) else None

    training = TrainingData(formula, data, weights, xlevels, novarOk, missing)
    run = RunOptions(log_z, calibrate, seed, n_jobs, client, verbose)
    call = prepare(
        bbl, training, method, options, run, extra_fits=int(test_null), make_deal=make_deal, needs_counts=auto
    )
    design, sample, engine, tuning = call.design, call.sample, call.engine, None
    if auto:
        check_auto(options, calibrate, design.classes)
    fits_pooled = test_null and design.classes and not engine.joint  # without classes the one group has all rows
    class_shares = _checked_priors(priors, formula, design)
    if auto:
        return fit_auto(call_string, call, class_shares, verbose)
    if _needs_folds(engine, tuning_rule, calibrate):
        with progress_bar(NFOLD, "tuning", verbose) as progress:
            tuning = tune(call.task, engine, tuning_rule, calibrate, call.run(progress), folds=call.dealt_folds)
        engine = tuning.engine or engine
    with progress_bar(call.K + fits_pooled, "bbl", verbose) as progress:
        estimate = call.estimate(engine, fits_pooled, progress)
    if calibrate != "none" and tuning is not None:
        estimate = replace(estimate, calibration=tuning.calibration)
    warn_problems(problems(estimate.fits, design.labels))
    loss = check_training(sample, estimate, design.labels, engine, call.advice, call.held_out(tuning))
    fit_arguments = (call_string, design, call.training, call.index, engine, estimate, tuning)
    if not design.classes:
        return call.with_training_summary(DensityResults(*fit_arguments))
    return call.with_training_summary(BBLResults(*fit_arguments, priors=class_shares, stored_loss=loss))


def _needs_folds(engine: Engine, tuning_rule: str | None, calibrate: str) -> bool:
    """Return whether a fit cross-validates: to tune an option, to calibrate, or to choose among engine variants."""
    return tuning_rule is not None or calibrate != "none" or len(engine.variants()) > 1


def _checked_priors(priors: Priors, formula: str, design: Design) -> np.ndarray | None:
    """Check `priors` and return them as class shares (K,); None if they are None."""
    if priors is None:
        return None
    if not design.classes:
        raise OptionError(f"priors are of classes, and {formula!r} has no response; leave them out.", argument="priors")
    return check_priors(priors, design.response)


def crossVal(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = None,
    method: str | Engine = DEFAULT,
    *,
    nfold: int = 5,
    use_auc: bool = True,
    score: str | None = None,
    cv: RowFolds | None = None,
    shuffle: bool = False,
    seed: int | np.random.Generator | None = None,
    refit: bool = True,
    xlevels: dict | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    log_z: str = "auto",
    calibrate: str = "none",
    n_jobs: int | None = None,
    client: Client | None = None,
    verbose: int = 1,
    **options: Any,
) -> CVResults:
    """Cross-validate over a grid of ``lambda_`` (method "pseudo"), ``eps`` ("mf") or ``prior_count`` ("naive").

    Parameters
    ----------
    formula, data, weights, method, xlevels, novarOk, missing, log_z, calibrate, n_jobs, client
        As in `bbl`; each fold is calibrated on the others.
    nfold : int, default 5
        Number of folds. As in R, each is a consecutive block of the rows of every response group, and the last takes
        the rest. Copies of a weighted row may fall into different folds.
    use_auc : bool, default True
        Whether two groups are scored by AUC (with DeLong's 95% interval); otherwise by accuracy.
    score : {"auc", "accuracy", "logloss", "brier", "pnll"}, optional
        Overrules `use_auc`. Without a response: "logloss", the mean of ``-ln P(x)`` of left-out rows, or "pnll", the
        mean of their negative log pseudo-likelihood, which does not need ln Z.
    cv : scikit-learn splitter or iterable of (train, validation) row positions, optional
        Overrules `nfold` and `shuffle`. A fold is trained on its training positions only. Positions count all rows
        of `data`, also those that the fit does not use. A splitter is called as ``cv.split(data, y)``; for a splitter
        that needs groups, give ``list(splitter.split(X, y, groups))``.
    shuffle : bool, default False
        Whether rows are dealt to the folds at random, within each group. Needed if the rows are ordered.
    seed : int or numpy.random.Generator, optional
        For `shuffle`, and for sampling ln Z.
    refit : bool, default True
        Whether ``model`` is fitted to all rows at the best setting; False keeps the last fold's fit, as R does.
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
        If predictors differ between consecutive folds more than by chance (a test of level 1 %); or if the validation
        log-loss at the best setting is above that of naive Bayes or of predicting the shares of the groups, as after an
        error of ln Z between the groups, which AUC does not show.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> bbl.crossVal("Survived ~ .^2", titanic, "Freq", method="mf", eps=[0, 0.5, 0.9], shuffle=True, seed=1)
    Optimal epsilon = 0.5
    Max. score: 0.7531476
    <BLANKLINE>
      epsilon       AUC       ci1       ci2
    0     0.0 0.7086512 0.6824595 0.7348429
    1     0.5 0.7531476 0.7294412 0.7768539
    2     0.9 0.7461265 0.7225567 0.7696963
    """
    auto, shown_method = is_auto(method), method
    if auto:
        check_auto(options, calibrate, classes=True)
        refuse_batches(data, "method='auto'", "method")
        calibrate, method = "none", PREPARED_AS
    settings, refit, shuffle = _pop_grid(method, options), flag("refit", refit), flag("shuffle", shuffle)
    call_string = shown_call("crossVal", formula, weights, shown_method, options, missing=(missing, "raise"))
    if cv is not None:
        refuse_batches(data, "cv, which gives positions of rows,", "cv")

    def make_deal(_: Engine, rng: np.random.Generator) -> Deal:
        return Deal(integer("nfold", nfold, 2), rng if shuffle else None)

    training = TrainingData(formula, data, weights, xlevels, novarOk, missing)
    run = RunOptions(log_z, calibrate, seed, n_jobs, client, verbose)
    call = prepare(crossVal, training, method, options, run, make_deal=make_deal, needs_counts=auto)
    design, sample, layout, engine, labels = call.design, call.sample, call.layout, call.engine, call.design.labels
    score = _score_name(score, flag("use_auc", use_auc), call.K, design.classes)
    folds = call.dealt_folds
    if folds is None:
        folds = _stratified_folds(call, nfold, shuffle) if cv is None else user_folds(cv, cast(TableLike, data), call)
    if auto:
        check_auto(options, calibrate, design.classes)
        frame, oof, average = cross_auto(call_string, call, cast(Folds, folds), score, refit, verbose)
        return CVResults(frame, 0, score, _validated_rows(oof, call, folds), oof, "none", average)
    with progress_bar(len(folds), "crossVal", verbose) as progress:
        judge = "pseudo_scores" if score == "pnll" else "class_scores"
        validated = validate(call.task, engine, settings, folds, call.run(progress), judge=judge)
    score_table, best = score_settings(validated, score, calibrate)
    warn_problems(validated.found)
    if cv is None and not shuffle:
        warn_ordered(sample, folds, labels)
    if settings is not None:
        engine = engine.at(float(settings[best]))
    scores = calibrated(validated, validated.scores[best], calibrate)
    loss = check_validation(sample, labels, layout, engine, folds, validated, scores, call.workers, call.advice)
    estimate = call.estimate(engine, design.classes) if refit else validated.last[best]
    if calibrate != "none":
        calibration = fit_calibration(validated.scores[best], validated.y, validated.weights, calibrate)
        estimate = replace(estimate, calibration=calibration)
    model_call = call if refit else call.of_last_fold(folds)
    fit_arguments = (call_string, design, model_call.training, model_call.index, engine, estimate)
    model: BBLResults | DensityResults
    if design.classes:
        model = model_call.with_training_summary(BBLResults(*fit_arguments, stored_loss=loss))
    else:
        model = model_call.with_training_summary(DensityResults(*fit_arguments))
    column = "setting" if engine.tuned is None else engine.tuned.column
    frame = score_frame(score_table, score, column, np.array([engine.setting]) if settings is None else settings)
    return CVResults(frame, best, score, _validated_rows(validated, call, folds), validated, calibrate, model)


def _validated_rows(oof: Scored, call: Call, folds: AnyFolds) -> list[np.ndarray]:
    """Return, for each fold, the positions in the data of its validated rows; empty if they were read in batches."""
    if call.index is None:
        return [call.row_positions[[]] for _ in range(len(folds))]
    return [call.row_positions[oof.rows[oof.fold == f]] for f in range(len(folds))]


def _pop_grid(method: str | Engine, options: dict) -> np.ndarray | None:
    """Remove the values of the tuned option from `options`, and return them, shape (S,); None if it is not given."""
    engine_type = engine_class(method)
    tuned = engine_type.tuned
    if tuned is None or options.get(tuned.option) is None or options[tuned.option] in tuned.rules:
        return None

    def check_value(option: str, value: object) -> float:
        engine = engine_type(**{option: any_real(option, value)})  # the engine checks the range
        return float(getattr(engine, option))

    return reals(tuned.option, options.pop(tuned.option), check_value)


def _score_name(score: str | None, use_auc: bool, K: int, classes: bool) -> str:
    """Return the name of the score: `score`, or the default for K groups; `classes` is False without a response."""
    if score is None:
        score = "logloss" if not classes else "auc" if use_auc and K == 2 else "accuracy"
    choice("score", score, ("auc", "accuracy", "logloss", "brier", "pnll"))
    if not classes and score not in ("logloss", "pnll"):
        text = f"score={score!r} is of classes, and the formula has no response; use 'logloss' or 'pnll'."
        raise OptionError(text, argument="score")
    if classes and score == "pnll":
        raise OptionError("score='pnll' is of models without a response; use 'logloss'.", argument="score")
    if score == "auc" and K != 2:
        raise OptionError(f"score='auc' needs two response groups, not {K}; use 'accuracy'.", argument="score")
    return score


def _stratified_folds(call: Call, nfold: int, shuffle: bool) -> Folds:
    """Return `nfold` folds of each group's rows: shuffled, or consecutive blocks as in R."""
    sample = call.rows
    integer("nfold", nfold, 2, int(sample.total) if sample.whole else sample.n)
    return shuffled_folds(sample, nfold, call.rng) if shuffle else consecutive_folds(sample, nfold)
