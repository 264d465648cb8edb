"""The public function `bbl`, which fits Boltzmann machines.

The *pooled* model is fitted to the rows of all K response groups together. `FitSpec` contains the
checked arguments, and `Tuning` the out-of-fold scores of the settings.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np

from bbl.api.machine.average import AUTO_REFUSALS, check_auto, fit_auto
from bbl.api.machine.call import (
    NumberOptions,
    average_with_training_summary,
    is_auto,
    out_of_fold_record,
    pop_rule,
    prepare,
    refuse_zeros,
    shown_call,
    shown_zeros,
    with_training_summary,
)
from bbl.api.machine.signatures import FitKeywords, FitOptions
from bbl.boltzmann.averaging_all_rows import MANY_ROWS, auto_assignment, tune_on_sample
from bbl.boltzmann.cross_fit import survey_folds
from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.fitted import list_problems, warn_problems
from bbl.boltzmann.prediction_checks import check_training, log_loss_advice, untuned_option
from bbl.boltzmann.tuning import NFOLD, tune, tune_relevance
from bbl.checks import flag
from bbl.choices import Covariance, Divisor, Method, NumberTransform
from bbl.design.decisions import Priors, check_priors
from bbl.design.design import Design
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import Batches, TableLike, Weights
from bbl.engines import DEFAULT, PREPARED_AS, Engine
from bbl.errors import OptionError
from bbl.parallel import progress_bar
from bbl.results.comparisons.average import AverageResults
from bbl.results.machine.density import DensityResults
from bbl.results.machine.fit import BBLResults
from bbl.rows.fold_assignment import FoldAssignment

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["bbl"]


@overload
def bbl(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = ...,
    method: Method | Engine = ...,
    **options: Unpack[FitOptions],
    # Any, because the type cannot express that a formula without a response returns DensityResults
) -> BBLResults | Any: ...
@overload
def bbl(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None,
    method: Literal["auto"],
    **options: Unpack[FitKeywords],
) -> AverageResults: ...
@overload
def bbl(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = ...,
    *,
    method: Literal["auto"],
    **options: Unpack[FitKeywords],
) -> AverageResults: ...
def bbl(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = None,
    method: str | Engine = DEFAULT,
    *,
    design: SurveyDesign | None = None,
    xlevels: Mapping[Any, Any] | None = None,
    testNull: bool = True,
    novarOk: bool = False,
    missing: str = "raise",
    log_z: str = "auto",
    calibrate: str = "none",
    relevance: float | str | None = None,
    priors: Priors = None,
    structural_zeros: TableLike | str | None = None,
    numeric: bool | Hashable | Sequence[Hashable] | None = None,
    covariance: Covariance = "group",
    divisor: Divisor = "moment",
    shrink: float | Literal["cv"] = 0.0,
    transform: NumberTransform = "none",
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    client: Client | None = None,
    verbose: int = 1,
    **options: Any,
) -> BBLResults | DensityResults | AverageResults:
    """Fit a Boltzmann Bayes learner: one Boltzmann machine for each response group, combined by
    Bayes' rule.

    Without a response (``"~ ."``), one Boltzmann machine is fitted to all rows and estimates their
    distribution.

    Parameters
    ----------
    formula : str
        ``"y ~ a + b + a:b"``, ``"y ~ a*b"``, ``"y ~ (a + b + c)^2"``, ``"y ~ ."``, ``"y ~ .^2"`` or
        ``"y ~ .^3"``; ``- d`` or ``- a:b`` removes a predictor or a term. Names in backticks may
        contain any character. With ``"~ .^2"``, which has no response, a single model is fitted to
        all rows. Formulas are never evaluated as code.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        One row per observation, or per distinct row with `weights`. Methods "pseudo", "ml", "mf",
        "naive", "auto" and "conditional" (with all its options for up to 500,000 rows per group)
        also accept data read in batches: a Parquet path, list, glob or folder, a pyarrow Dataset or
        RecordBatchReader, a DuckDB relation, a polars LazyFrame, a Dask DataFrame, or a function
        that returns an iterator of tables. Methods "boosting" and "blanket" accept such data too,
        but load the codes into memory. For data read in batches, `weights` must be the name of a
        column, and the fitted model stores the rows without their order, or a sample of them, for
        standard errors, tests and effects.
    weights : column name or array of length n, optional
        Integer frequencies; a row of weight w counts as w identical rows. "pseudo", "ml", "mf",
        "naive", "pvi", "pcd", "mpf" and "conditional" accept any positive numbers, but then provide
        no tests or standard errors; to obtain these, use `design`.
    method : str or Engine, default "pseudo"
        * "pseudo": pseudo-likelihood.
        * "ml": exact maximum likelihood.
        * "mf": mean field.
        * "naive": naive Bayes.
        * "conditional": conditional likelihood, for prediction; with ``ridge=0``, logistic and
          multinomial regression.
        * "blanket": the Markov blanket of the response in a Bayesian network, for prediction from a
          few of many predictors.
        * "boosting": boosting, for prediction when many levels have similar effects.
        * "pvi", "bayes": the posterior under sparse priors, by persistent variational inference or
          by Markov chains.
        * "shbm": a sparse high-order Boltzmann machine, which selects its terms.
        * "pcd", "mpf": persistent contrastive divergence and minimum probability flow, for
          comparison.
        * "auto": an average of "pseudo", "mf", "conditional", "naive", "blanket" and "boosting",
          each with all predictors and with only the relevant predictors. The models are tuned,
          calibrated and weighted by cross-validation.
    design : SurveyDesign, optional
        Sampling design of the rows, from `bbl.survey`, used instead of `weights`. Standard errors,
        intervals and tests then account for strata, clusters and sampling weights. Available for
        "pseudo", "ml", "naive", and "conditional" with ``ridge=0``.
    xlevels : dict of predictor name to list of levels, optional
        All levels that a predictor may have, in order; the first is the reference level.
    testNull : bool, default True
        Whether to also fit all rows as one group, and report each group's differences from this
        pooled fit, ``dh`` and ``dJ``.
    novarOk : bool, default False
        Whether to accept predictors with a single level.
    missing : {"raise", "drop", "level", "marginal"}, default "raise"
        Treatment of missing values (None, nan, NA, NaT). "raise" raises an error, "drop" drops rows
        with missing values, "level" treats missing values as a level ``"(missing)"`` of their
        predictor, and "marginal" fits the model to the known values of each row (see Notes).
        `predict` follows the same rule; under "marginal" it marginalises over missing predictors.
    log_z : {"auto", "exact", "pseudo", "half", "mf", "ais"}, default "auto"
        How ln Z is computed. "exact": the sum over all states. "half": eq. (31) of Woo & Wang
        (2022), with its factor 1/2. "pseudo": the same without the factor, which is the default in
        the paper. "mf": its eq. (32). "ais": annealed importance sampling. "auto": "exact" if this
        is fast, otherwise "half", which is the most accurate approximation in the accuracy
        benchmark.
    calibrate : {"none", "offset", "temperature"}, default "none"
        Correction of class scores: "offset" fits an offset for each group; "temperature" fits
        offsets and a common temperature. Both use the out-of-fold scores of 5 shuffled folds.
    relevance : float, "cv" or "cv-1se", optional
        Select the predictors whose distributions differ between groups. All other predictors have
        the same fields in every group and no interactions, so they do not affect class
        probabilities. Predictors are added one at a time by score tests in a logistic regression of
        the groups, at this significance level divided by the number of tests (see
        `bbl.stats.relevance`). ``"cv"`` chooses between level .05, level .5 and no selection by
        out-of-fold log-loss; ``"cv-1se"`` uses the fewest predictors within one standard error of
        the best log-loss. ``fit.relevant()`` lists the predictors used for prediction. Standard
        errors and tests are not available, because they would ignore the selection.
    priors : mapping or Series by group, array_like of shape (K,), or ``"equal"``, optional
        Class proportions for predictions instead of the training proportions: use this if groups
        were sampled separately, or if their proportions are different in new data. Parameters and
        likelihood do not depend on them. An array is in the order of the groups, which must then be
        numbers, booleans or levels with a declared order.
    structural_zeros : table or name of a column, optional
        Cells that cannot occur, for ``method="ml"``. Each row of a table is a combination of
        levels; its columns are predictors, and the response if the zeros differ between groups.
        Alternatively, a column of `data` marks the rows of impossible cells by True or 1; these
        rows must have a weight of 0. These cells are excluded from sums over states, and therefore
        from ln Z, probabilities and degrees of freedom.
    numeric : column name, list of column names, or True, optional
        Numeric predictors: given the levels of the other predictors, they are modelled as normally
        distributed in each group. In the formula, ``u`` alone has a mean and a variance in each
        group; with ``a:u`` its mean also depends on the level of a, and with ``u:v`` the two
        numeric predictors are correlated. With ``method="conditional"`` they are regressors, and
        the formula can contain squares ``u:u``. ``method="auto"`` averages both kinds of models,
        and models with binned numeric predictors. True selects float columns, and integer columns
        with more than 20 distinct values.
    covariance : {"group", "shared", "cv"}, default "group"
        Whether each group has its own covariance matrix of the numeric predictors, as in quadratic
        discriminant analysis, or all groups have the same covariance matrix, as in linear
        discriminant analysis. "cv" chooses by 5-fold cross-validation of the log-loss. If several
        of `covariance`, `shrink` and `transform` are "cv", they are chosen jointly; categorical
        predictors are treated as in naive Bayes.
    divisor : {"moment", "ml"}, default "moment"
        Whether covariances are sums of squares divided by their degrees of freedom, or by the
        number of rows, as in maximum likelihood.
    shrink : float or "cv", default 0.0
        Weight of the diagonal of the pooled covariance in each covariance, between 0 and 1.
    transform : {"none", "normal", "cv"}, default "none"
        With "normal", each value is replaced by the normal score of its rank among all training
        rows. Log-likelihoods and densities then refer to these scores.
    seed : int, numpy.random.Generator or None, default 0
        Seed for the folds and for methods that sample; None uses fresh entropy.
    n_jobs : int, optional
        Number of threads; None or -1 uses all cores. Results do not depend on it.
    client : dask.distributed.Client, optional
        Cluster whose workers read the data, store the codes and compute sums over them; by default,
        the active client if `data` is a Dask DataFrame. The workers must be able to read the files
        of Parquet data or of a pyarrow Dataset.
    verbose : int, default 1
        0 hides the progress bar.
    **options
        Options of the method: see `HighOrder`, `MaximumLikelihood`, `PersistentVI`, `Posterior`,
        `ContrastiveDivergence`, `ProbabilityFlow`, `PseudoLikelihood` (``lambda_``, ``lambdah``,
        ``prior_count``, ``tolerance``, ``itmax``, ``symmetrize``, ``precision``, ``gauge``),
        `MeanField` (``eps``, ``prior_count``, ``gauge``), `NaiveBayes` (``prior_count``),
        `MarkovBlanket` (``iss``), `Boosting` (``rate``, ``pairs``) and `Conditional` (``ridge``,
        ``scale``, ``start``, ``lambda_``, ``epochs``, ``early_stopping``, ``ordered``, ``logits``).
        ``lambda_="cv"``, ``eps="cv"``, ``ridge="cv"`` and ``iss="cv"`` choose the setting with the
        smallest log-loss in 5 shuffled folds, and ``"cv-1se"`` chooses the simplest setting within
        one standard error of it; ``fit.tuning`` contains the losses. Without a response, the
        criterion is the negative log pseudo-likelihood of the left-out rows
        (`DensityResults.pnll`).

    Returns
    -------
    BBLResults, DensityResults or AverageResults
        Usually BBLResults; DensityResults if the formula has no response, and AverageResults if
        ``method="auto"``.

    Raises
    ------
    FormulaError, DataError, LevelError, OptionError, BBLTypeError
        The message names the column or argument and suggests a remedy.

    Warns
    -----
    ConvergenceWarning
        If the optimisation for a predictor did not converge or has no finite optimum. The message
        names the group and the predictor.
    DataWarning
        If the probabilities have a larger log-loss than the class proportions, in cross-validation
        or on the training rows, or a larger log-loss on the training rows than naive Bayes; see
        ``fit.log_loss``. It is also issued if a predictor has over 100 levels, most of them rare;
        if the response has over 25 integer groups; or if the rows look like a table of counts
        without weights.

    Notes
    -----
    With ``missing="marginal"``, naive Bayes and mean field use the frequencies of each predictor
    over the rows where it is known, and of each pair over the rows where both are known.
    Pseudo-likelihood fits each predictor to the rows where this predictor and all predictors that
    interact with it are known. If all pairs interact, only complete rows are used; with fewer
    interactions, more rows are used. All methods assume that values are missing completely at
    random within a group. Without missing values, the estimates are bitwise identical to those with
    ``missing="raise"``.

    References
    ----------
    Woo J, Wang J (2022). bbl: Boltzmann Bayes Learner for High-Dimensional Inference with Discrete
    Predictors in R. Journal of Statistical Software.

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
    test_null = flag("testNull", testNull)
    numbers = NumberOptions(numeric, covariance, divisor, shrink, transform)
    uses_auto = is_auto(method)
    call_string = shown_call(
        "bbl",
        formula,
        data,
        weights,
        method,
        options,
        design,
        missing=(missing, "raise"),
        log_z=(log_z, "auto"),
        calibrate=(calibrate, "none"),
        relevance=(relevance, None),
        priors=(priors if isinstance(priors, str | None) else "given", None),
        structural_zeros=(shown_zeros(structural_zeros), None),
        **numbers.shown(),
    )
    if uses_auto:
        check_auto(
            options | ({} if relevance is None else {"relevance": relevance}) | numbers.settings,
            calibrate,
            classes=True,
            design=design,
        )
        refuse_zeros(structural_zeros, AUTO_REFUSALS)
        # the formula and the rows follow the rules of `PREPARED_AS`; averages do their own
        # calibration
        calibrate = "none"
        method = PREPARED_AS
    tuning_rule = pop_rule(method, options)

    def make_assignment(engine: Engine, rng: np.random.Generator) -> FoldAssignment | None:
        """Return the fold assignment of data read in batches.

        Rows that are loaded into memory are assigned to folds afterwards, like the rows of a table.
        """
        if uses_auto:
            return auto_assignment()
        if not engine.streams or not _needs_folds(engine, tuning_rule, calibrate):
            return None
        return FoldAssignment(NFOLD, rng)

    # an average with numeric predictors has members that need all rows
    most_rows = sys.maxsize if numbers.columns else MANY_ROWS
    spec, encoded = prepare(
        bbl,
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
        extra_fits=int(test_null),
        make_assignment=make_assignment,
        needs_counts=uses_auto,
        most_rows=most_rows if uses_auto else None,
        has_folds=calibrate != "none",
    )
    # `design` is the sampling design; `encoded.design` is the formula read against the data
    if uses_auto:  # check again, because the classes were not known before
        check_auto(options, calibrate, encoded.design.classes)
    class_shares = _checked_priors(priors, formula, encoded.design)
    if uses_auto:
        average = fit_auto(call_string, encoded, spec, class_shares, verbose)
        average = average_with_training_summary(average, encoded)
        encoded.sample.close()
        return average
    tuning = None
    tuned_data = encoded
    if isinstance(relevance, str):
        with progress_bar(NFOLD, "tuning", verbose) as progress:
            level, tuning = tune_relevance(encoded, spec, relevance, tuning_rule, progress)
        spec = replace(spec, relevance=level)
    elif _needs_folds(spec.engine, tuning_rule, calibrate) and not (
        encoded.sample.in_memory or spec.engine.streams
    ):  # the rows remain in a file, but folds have to be in memory
        with progress_bar(NFOLD, "tuning", verbose) as progress:
            tuning, tuned_data = tune_on_sample(encoded, spec, tuning_rule, progress)
    elif _needs_folds(spec.engine, tuning_rule, calibrate):
        # for rows in memory without a sampling design, this is None and `tune` draws the folds
        folds = (
            encoded.assigned_folds
            if encoded.survey is None
            else survey_folds(encoded, NFOLD, spec.rng)
        )
        with progress_bar(NFOLD, "tuning", verbose) as progress:
            tuning = tune(encoded, spec, tuning_rule, progress=progress, folds=folds)
    if tuning is not None and tuning.engine is not None:
        spec = spec.using(tuning.engine)
    # without classes, all rows are in a single group
    fits_pooled = test_null and encoded.design.classes and not spec.engine.joint
    with progress_bar(encoded.K + fits_pooled, "bbl", verbose) as progress:
        (estimate,) = estimate_path(encoded, spec, pooled=fits_pooled, progress=progress)
    if calibrate != "none" and tuning is not None:
        estimate = replace(estimate, calibration=tuning.calibration)
    labels = encoded.design.labels
    warn_problems(list_problems(estimate.fits, labels))
    # tuning.option is None if only a calibration was fitted
    option = (
        untuned_option(spec.engine, estimate.parameters.layout)
        if tuning is None or tuning.option is None
        else None
    )
    loss = check_training(
        encoded.sample,
        estimate,
        labels,
        spec.engine,
        log_loss_advice(encoded, calibrate, option),
        out_of_fold_record(tuned_data, spec, tuning, option),
    )
    fit_arguments = (
        call_string,
        encoded.design,
        encoded.training,
        encoded.index,
        spec.engine,
        estimate,
        tuning,
    )
    fit: BBLResults | DensityResults
    if encoded.design.classes:
        fit = BBLResults(
            *fit_arguments, survey=encoded.survey, priors=class_shares, _stored_loss=loss
        )
    else:
        fit = DensityResults(*fit_arguments, survey=encoded.survey)
    fit = with_training_summary(fit, encoded, spec.engine)
    encoded.sample.close()
    return fit


def _needs_folds(engine: Engine, tuning_rule: str | None, calibrate: str) -> bool:
    """Return whether a fit needs cross-validation: to tune an option, to calibrate, or to choose
    among variants of the engine.
    """
    return tuning_rule is not None or calibrate != "none" or len(engine.variants()) > 1


def _checked_priors(priors: Priors, formula: str, design: Design) -> np.ndarray | None:
    """Check `priors`, and return the class proportions (K,), or None if `priors` is None."""
    if priors is None:
        return None
    if not design.classes:
        raise OptionError(
            f"priors are class probabilities, but {formula!r} has no response.",
            argument="priors",
            hint="Omit the priors argument.",
        )
    return check_priors(priors, design.response)
