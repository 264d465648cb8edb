"""EffectsMixin: effects of predictors on the probability scale, with standard errors from the delta
method, posterior draws, survey replicates or refits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.boltzmann.averaging import average_members
from bbl.boltzmann.inference.significance import CELL
from bbl.boltzmann.structural_zeros import ImpossibleRowsError
from bbl.checks import any_real, check_keywords, choice, flag, generator, integer, share
from bbl.crossval import Scores
from bbl.design.numbers import NumberFactor
from bbl.errors import BBLError, BBLTypeError, DataError, OptionError, with_hint
from bbl.model.moments import level_counts
from bbl.parallel import n_workers, progress_bar, run_tasks
from bbl.report.page import Part, figure_html
from bbl.report.text import distinct_names
from bbl.results.classifier_base import ClassifierBase
from bbl.results.effect_contrasts import (
    TRANSFORMS,
    Contrasts,
    find_predictors,
    make_comparison_contrasts,
    make_prediction_contrasts,
    make_slope_contrasts,
)
from bbl.results.effect_table import Effects
from bbl.results.effect_values import (
    EffectRows,
    EffectValues,
    StreamedRows,
    estimate_by_delta_method,
    estimate_by_design_replicates,
    estimate_by_replicates,
    estimate_effects,
    estimate_streamed,
    make_effect_rows,
    make_streamed_rows,
)
from bbl.rows.sample import Sample
from bbl.stats.metrics import with_priors
from bbl.stats.survey.sample import SurveySample, check_single_rows

__all__ = ["EffectsMixin", "ErrorOptions", "find_effects", "refit_bootstrap", "refit_replicates"]


# step of the difference quotients of slopes, in standard deviations: the error is about its square
SLOPE_STEP = 1e-4
SE_OPTIONS = ("auto", "bootstrap")  # values of the argument `se` other than False


@dataclass(frozen=True)
class ErrorOptions:
    """Validated arguments for the standard errors of ``fit.avg_comparisons`` and related methods.

    Attributes
    ----------
    se : {"auto", "bootstrap", False}
    level : float
        Coverage of the intervals.
    nboot : int
        Number of refits or draws of the bootstrap.
    seed : int, numpy.random.Generator or None
    n_jobs : int or None
        Number of threads for refits.
    verbose : int
        0 hides the progress bar.
    """

    se: object
    level: float
    nboot: int
    seed: object
    n_jobs: int | None
    verbose: int

    def __post_init__(self) -> None:
        """Raise an OptionError or a BBLTypeError for an unknown or out-of-range option."""
        if self.se is not False:
            if self.se is True:
                raise BBLTypeError(
                    "se must be 'auto', 'bootstrap' or False; got True.", argument="se"
                )
            choice("se", self.se, SE_OPTIONS)
        share("level", self.level)
        integer("nboot", self.nboot, 2)


def refit_bootstrap(fit: ClassifierBase, errors: ErrorOptions) -> tuple[list[Scores], str]:
    """Return a class score function for each bootstrap refit, and a description of the bootstrap.

    Models are refitted to rows that are drawn with replacement. For networks, probability tables
    are drawn from their posterior instead.
    """
    rows = fit._all_rows()  # the training rows
    # excludes rows of an unknown group, which has the code -1; `response` is `y`, or zeros if that
    # is None
    rows = rows.rows(rows.response >= 0) if rows.y is not None else rows
    # raises a DataError under a sampling design
    check_single_rows(
        getattr(fit, "survey", None),
        "The bootstrap",
        hint=(
            "Omit the se argument. For bootstrap replicate weights, pass type='bootstrap' to "
            "bbl.survey()."
        ),
    )
    # raises a DataError for weights that are not counts
    rows.check_whole("The bootstrap requires")
    members = fit._bootstrap_members  # pairs (fit, weight)
    if not members:
        reason = fit._refusals.get(
            "effects_bootstrap", "A member of this average cannot be refitted"
        )
        raise OptionError(f"{reason}.", argument="se", hint="Use se=False.")
    # whether the model draws its tables itself; this first draw is discarded
    is_redrawn = (
        len(members) == 1 and members[0][0]._redraw(rows, generator(errors.seed)) is not None
    )

    def refit_drawn_rows(rng: np.random.Generator) -> Scores:
        """Return the class score function of one refit, or of one draw of the tables."""
        drawn_model_and_shares = members[0][0]._redraw(rows, rng) if is_redrawn else None
        if drawn_model_and_shares is not None:
            drawn_model, drawn_shares = drawn_model_and_shares
            return _replace_shares(drawn_model.class_scores, fit.priors, drawn_shares)
        # how often each row is drawn: `rows.total`, the sum of the weights, is the number of draws
        drawn_weights = rng.multinomial(round(rows.total), rows.weights / rows.total).astype(float)
        return _refit_scores(fit, rows.weighted(drawn_weights), rng)

    # one generator per refit
    tasks = [(rng,) for rng in generator(errors.seed).spawn(errors.nboot)]
    with progress_bar(len(tasks), "bootstrap", errors.verbose) as step:
        # shared: threads, because nested functions cannot be sent to other processes
        scores_by_refit = run_tasks(
            refit_drawn_rows, tasks, n_workers(errors.n_jobs), step, shared=True
        )
    description = (
        "Dirichlet draws of the tables" if is_redrawn else "refits to rows drawn with replacement"
    )
    return scores_by_refit, f"{errors.nboot} {description}"


def refit_replicates(
    fit: ClassifierBase, survey: SurveySample, errors: ErrorOptions
) -> list[Scores]:
    """Return a class score function for the refit to each set of replicate weights of a sampling
    design.

    Scores are nan in rows with a level that does not occur in the replicate.
    """
    assert survey.replicates is not None  # noqa: S101  # checked by its caller
    # weights (n, R) of the training rows in R replicates; `survey.rows` are their positions in
    # the complete sample
    rows = fit._all_rows()
    replicate_weights = survey.replicates.weights[survey.rows]
    n_levels = fit.design.n_levels
    # for each predictor a mask (L_i,) of the levels that occur; `level_counts` returns m arrays
    # (L_i,)
    is_number = fit.design.is_number

    def counts_of_levels(sample: Sample) -> list[np.ndarray]:
        """Return the weights (L_i,) of each predictor's levels."""
        return level_counts(sample.pooled.nominal(is_number, n_levels), n_levels)

    occurring_levels = [counts > 0.0 for counts in counts_of_levels(rows)]

    def refit_replicate(r: int, rng: np.random.Generator) -> Scores:
        """Return the class score function of the refit to replicate number `r`."""
        replicate = rows.weighted(replicate_weights[:, r])  # without rows of weight 0
        try:
            refit_scores = _refit_scores(fit, replicate, rng)
        except DataError:  # a covariance of numeric predictors is singular in this replicate
            K = len(fit.labels.groups)
            return lambda codes, missing: np.full((len(codes), K), np.nan)
        levels_and_counts = zip(occurring_levels, counts_of_levels(replicate), strict=True)
        absent_levels = [occurs & (counts == 0.0) for occurs, counts in levels_and_counts]
        return (
            _hide_absent_levels(refit_scores, absent_levels)
            if any(is_absent.any() for is_absent in absent_levels)
            else refit_scores
        )

    # (number of the replicate, its generator)
    tasks = list(enumerate(generator(errors.seed).spawn(replicate_weights.shape[1])))
    # shared: threads, as in `refit_bootstrap`
    with progress_bar(len(tasks), "replicates", errors.verbose) as step:
        return run_tasks(refit_replicate, tasks, n_workers(errors.n_jobs), step, shared=True)


def _hide_absent_levels(scores: Scores, absent_levels: list[np.ndarray]) -> Scores:
    """Return the function `scores`, modified to return nan for rows with an absent level.

    `absent_levels` contains a mask (L_i,) of the levels of each predictor.
    """

    def scores_or_nan(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
        """Return the class scores (n, K), which are nan for rows with an absent level in a known
        cell.
        """
        row_scores = scores(codes, missing)
        for i, is_absent_level in enumerate(absent_levels):
            if not is_absent_level.any():
                continue
            is_hidden_row = is_absent_level[codes[:, i].astype(np.intp)]
            row_scores[is_hidden_row if missing is None else is_hidden_row & ~missing[:, i]] = (
                np.nan
            )
        return row_scores

    return scores_or_nan


def _refit_scores(fit: ClassifierBase, train: Sample, rng: np.random.Generator) -> Scores:
    """Return the class score function of `fit` with its members refitted to `train`.

    With several members, it returns the logarithm of the weighted average of their probabilities.
    """
    members = fit._bootstrap_members
    # warm: each refit starts at its member's solution
    refits = []
    score_functions: list[Scores] = []
    for member, _ in members:
        # the member of an average may have intervals in place of numbers
        to_member = partial(member.design.from_numbers, design=fit.design)
        own_rows = replace(train, codes=to_member(train.codes))
        refit = member._refit(own_rows, rng, warm=True)
        refits.append(refit)
        score_functions.append(partial(_score_recoded, refit.class_scores, to_member))
    # (K,): class proportions in the rows `train`
    train_shares = train.group_totals(len(fit.labels.groups)) / train.total
    if len(refits) == 1:
        return _replace_shares(score_functions[0], fit.priors, train_shares)

    weights = np.array([weight for _, weight in members])
    needed = [refit.needed for refit in refits]
    return _replace_shares(
        lambda codes, missing: average_members(score_functions, needed, weights, codes, missing),
        fit.priors,
        train_shares,
    )


def _score_recoded(
    scores: Scores,
    recode: Callable[[np.ndarray], np.ndarray],
    codes: np.ndarray,
    missing: np.ndarray | None,
) -> np.ndarray:
    """Apply `recode` to the codes of rows and return their `scores` (n, K)."""
    return scores(recode(codes), missing)


def _replace_shares(scores: Scores, priors: np.ndarray | None, shares: np.ndarray) -> Scores:
    """Return the function `scores` with the class proportions `shares` (K,) replaced by `priors`
    (K,).

    If `priors` is None, `scores` is returned unchanged.
    """
    if priors is None:
        return scores
    return lambda codes, missing: with_priors(scores(codes, missing), shares, priors)


BOUND = 1e-9  # a smaller standard error is due to rounding: the probability is 0 or 1
# texts below the table, with placeholders for numbers or a description
BOOTSTRAP_NOTE = "Standard errors and percentile intervals from {}."
DESIGN_NOTE = (
    "Standard errors from refits to {} replicates of the sampling design, and a t distribution "
    "with {} degrees of freedom."
)
DRAWS_NOTE = "Standard deviations and central intervals from {} posterior draws, without tests."
# texts of the column ``note``
UNDETERMINED = "a parameter is not estimable: no interval"
FEW_CLUSTERS = "too few clusters or replicates: no interval"
PARTIAL = "some replicates have no rows at these levels and are left out"
AT_BOUND = "no variation, for example at a probability of 0 or 1: no interval"
CENSUS = "the whole population was sampled: no sampling error"
UNDEFINED = "undefined: a probability is 0 or 1"
IMPOSSIBLE = "undefined: some rows would be in cells that are structural zeros"
# the last level is the confidence level
RARE = "few rows at these levels: the interval may be too narrow"
UNBOUNDED = "a parameter of this predictor has no finite estimate or did not converge"
TITLES = {
    "difference": "Difference in probability",
    "ratio": "Ratio of probabilities",
    "lift": "Lift: relative difference of probabilities",
    "lnoddsratio": "Log odds ratio",
}


def find_effects(
    fit: ClassifierBase,
    contrasts: Contrasts,
    rows: EffectRows | StreamedRows,
    errors: ErrorOptions,
) -> Effects:
    """Compute the quantities of `contrasts` in each unit of `rows`, with the standard errors
    specified by `errors`.
    """
    if not contrasts.quantities:  # no predictor has two levels
        raise OptionError(
            "There is nothing to compare: no predictor in the model has two levels.",
            argument="variables",
        )

    if isinstance(rows, StreamedRows):
        return _find_streamed_effects(fit, contrasts, rows, errors)
    # class scores (n, K) of rows, using the fit's class proportions
    scores = partial(fit._encoded_scores, dropped=None, priors=None)
    # levels of parameters without a finite optimum, if known
    unbounded: frozenset[tuple[int, int]] = frozenset()

    # 1. Estimates, and their standard errors from survey replicates, posterior draws or the delta
    # method, whichever is available
    if errors.se is False:
        effect_values = estimate_effects(contrasts, rows, scores)
        note = "No standard errors (se=False)."
    elif errors.se == "bootstrap":
        # a class score function for each refit
        replicates, description = refit_bootstrap(fit, errors)
        effect_values = estimate_by_replicates(
            contrasts, rows, scores, replicates, errors.level, has_tests=True
        )
        note = BOOTSTRAP_NOTE.format(description)
    else:
        try:
            source = fit._error_source(generator(errors.seed))
            if source.survey is not None:
                replicates = refit_replicates(fit, source.survey, errors)
                effect_values = estimate_by_design_replicates(
                    contrasts, rows, scores, replicates, source.survey, errors.level
                )
                note = DESIGN_NOTE.format(f"{len(replicates):,}", f"{source.survey.df:,}")
            elif source.delta is None:
                effect_values = estimate_by_replicates(
                    contrasts, rows, scores, source.draws, errors.level, has_tests=False
                )
                note = DRAWS_NOTE.format(len(source.draws))
            else:
                effect_values = estimate_by_delta_method(
                    contrasts, rows, scores, source.delta, errors.level
                )
                note = f"Delta method. {source.delta.covariance.note}"
            unbounded = source.unbounded
        except ImpossibleRowsError:  # the rows cannot occur, so that they have no estimates either
            raise
        except (DataError, OptionError) as error:
            effect_values = estimate_effects(contrasts, rows, scores)
            note = f"No standard errors: {error}"

    # 2. The table, with a note on each effect that needs one
    # `rows.text` describes the rows, such as "training rows"
    text = f"{'' if rows.is_rowwise else 'averaged over '}{rows.text}"
    return _make_effects(
        fit,
        contrasts,
        rows.keys,
        rows.is_rowwise,
        text,
        effect_values,
        unbounded,
        note,
        errors.level,
    )


def _find_streamed_effects(
    fit: ClassifierBase, contrasts: Contrasts, rows: StreamedRows, errors: ErrorOptions
) -> Effects:
    """Return the result of `find_effects` for rows that are read in batches, in one pass.

    Standard errors are computed from a covariance, because other sources would require one pass for
    each refit or draw.
    """
    scores = partial(fit._encoded_scores, dropped=None, priors=None)
    unbounded: frozenset[tuple[int, int]] = frozenset()
    delta = None
    if errors.se is False:
        note = "No standard errors (se=False)."
    elif errors.se == "bootstrap":
        raise OptionError(
            "The bootstrap would have to read the data again for each refit.",
            argument="se",
            hint="Omit the se argument, or pass newdata=bbl.sample_rows(data, 100_000).",
        )
    else:
        try:
            source = fit._error_source(generator(errors.seed))
            delta = source.delta
            unbounded = source.unbounded
            note = (
                "No standard errors: the data would have to be read again for each draw or "
                "replicate."
                if delta is None
                else f"Delta method. {delta.covariance.note}"
            )
        except (DataError, OptionError) as error:
            advice = error.hint
            if advice is not None and "bootstrap" in advice:  # refits would read the data again
                advice = "Fit with method='conditional' and ridge=0."
            note = f"No standard errors: {with_hint(error.message, advice)}"
    values, keys = estimate_streamed(contrasts, rows, scores, delta, errors.level)
    text = f"averaged over {rows.text}"
    return _make_effects(fit, contrasts, keys, False, text, values, unbounded, note, errors.level)


def _make_effects(
    fit: ClassifierBase,
    contrasts: Contrasts,
    keys: pd.DataFrame,
    is_rowwise: bool,
    text: str,
    values: EffectValues,
    unbounded: frozenset[tuple[int, int]],
    note: str,
    level: float,
) -> Effects:
    """Return the table of effects, with notes.

    `keys` contains a row for each unit, `text` describes the rows in the title, and `unbounded`
    contains the levels of parameters without a finite optimum.
    """
    kind = TITLES[contrasts.transform] if contrasts.is_comparison else "Probability"
    notes = _make_notes(fit, contrasts, values, unbounded)
    frame, columns = _make_frame(fit, contrasts, keys, is_rowwise, values, notes)
    # the value under no effect (0, or 1 for ratios); None for probabilities, which are not
    # tested
    null = TRANSFORMS[contrasts.transform].null if contrasts.is_comparison else None
    # only machines have `survey`
    statistic = "z" if getattr(fit, "survey", None) is None else "t"
    return Effects(frame, columns, f"{kind}, {text}", note, fit.labels, level, null, statistic)


def _make_notes(
    fit: ClassifierBase,
    contrasts: Contrasts,
    values: EffectValues,
    unbounded: frozenset[tuple[int, int]],
) -> np.ndarray:
    """Return the notes (Q, U, K) on the effects. A note may be empty.

    Modifies `values` in place: standard errors, limits and tests become nan if an effect is
    constant or undefined. `unbounded` contains the levels, as (predictor, code), of parameters
    without a finite optimum.
    """
    notes = np.full(values.estimate.shape, "", dtype=object)
    is_undefined = ~np.isfinite(values.estimate)
    if values.has_errors:
        # a single group has the probability 1 everywhere, which does not need a note
        is_constant = (values.std_error < BOUND) & (len(fit.labels.groups) > 1)
        for array in (values.std_error, values.low, values.high, values.statistic, values.p):
            array[is_constant | is_undefined] = np.nan
        notes[is_constant] = AT_BOUND
        # only machines have `survey`
        survey = getattr(fit, "survey", None)
        if survey is not None and survey.plan.is_census:
            is_known = is_constant & ~is_undefined
            values.std_error[is_known] = 0.0
            values.low[is_known] = values.estimate[is_known]
            values.high[is_known] = values.estimate[is_known]
            notes[is_known] = CENSUS
        # errors of constant effects were set to nan above, which does not indicate an unidentified
        # parameter
        notes[np.isnan(values.std_error) & ~is_constant] = UNDETERMINED
        # limits are nan if a t distribution has less than one degree of freedom
        notes[np.isfinite(values.std_error) & np.isnan(values.low)] = FEW_CLUSTERS
        if values.is_partial is not None:  # effects that are undefined in some survey replicates
            # replaces UNDETERMINED: too few replicates remain
            notes[values.is_partial & np.isnan(values.std_error) & ~is_constant] = FEW_CLUSTERS
            notes[values.is_partial & (notes == "")] = PARTIAL
        effective_share = _effective_share(fit)
        # an interval is reliable if each level has an effective number of at least `CELL` rows;
        # `_counts[i]` (K, L_i) are the weighted level counts of predictor i, `quantity.levels`
        # pairs (i, code)
        for q, quantity in enumerate(contrasts.quantities):
            # notes[q] (U, K) is a view, modified in place
            if unbounded.intersection(quantity.levels):
                notes[q][notes[q] == ""] = UNBOUNDED
            if contrasts.is_comparison:
                least_weight = min(
                    (float(fit._counts[i].sum(axis=0)[code]) for i, code in quantity.levels),
                    default=np.inf,
                )
                if least_weight * effective_share < CELL:
                    notes[q][notes[q] == ""] = RARE
    notes[is_undefined] = UNDEFINED  # last, as it replaces the other notes
    if values.is_impossible is not None:
        notes[values.is_impossible] = IMPOSSIBLE
    return notes


def _effective_share(fit: ClassifierBase) -> float:
    """Return the ratio of Kish's (1965) effective number of rows to the total weight of a sampling
    design.

    This ratio is ``(sum w)^2 / sum w^2`` divided by ``sum w``, or 1 if the model has no sampling
    design.
    """
    if getattr(fit, "survey", None) is None or fit.training is None:  # only machines have `survey`
        return 1.0
    weights = fit.training.weights
    return float(weights.sum() / (weights @ weights))


def _make_frame(
    fit: ClassifierBase,
    contrasts: Contrasts,
    keys: pd.DataFrame,
    is_rowwise: bool,
    values: EffectValues,
    notes: np.ndarray,
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the frame of effects, with a row for each (quantity, unit, group), and the names of
    its standard columns.

    The names are a dict that maps plain names, such as ``"estimate"``, to the names in the frame: a
    trailing underscore is added if a user's column has the same name.
    """
    # rows are ordered as in the arrays (Q, U, K): groups vary fastest, quantities slowest
    Q = len(contrasts.quantities)
    U = values.estimate.shape[1]
    K = len(fit.labels.groups)
    # `keys` has a row for each unit: the values of its `by` columns, or its label in the
    # column "row"
    user_columns: list[Any] = [] if is_rowwise else list(keys.columns)
    package_columns = [
        "group",
        "term",
        "contrast",
        *(["row"] if is_rowwise else []),
        "estimate",
        "std_error",
        "statistic",
        "p_value",
        "conf_low",
        "conf_high",
        "note",
    ]
    # users' columns keep their names; the package's columns, which follow, are renamed if
    # necessary
    columns = dict(
        zip(
            package_columns,
            distinct_names([*user_columns, *package_columns])[len(user_columns) :],
            strict=True,
        )
    )

    # shared by all columns, so that they need not be aligned
    index = pd.RangeIndex(Q * U * K)

    def repeat_each(items: list, times: int) -> pd.Series:
        """Return a column where each item is repeated `times` times."""
        cells = [item for item in items for _ in range(times)]
        column = pd.Series(cells, index=index, dtype=object)
        # dtype object: next to a missing value, 1 would become 1.0
        return column if column.isna().any() else column.infer_objects()

    frame_columns: dict[Any, Any] = {
        columns["group"]: pd.Series(
            list(fit.labels.groups) * (Q * U), index=index, dtype=object
        ).infer_objects(),
        columns["term"]: repeat_each([q.term for q in contrasts.quantities], U * K),
        columns["contrast"]: repeat_each([q.contrast for q in contrasts.quantities], U * K),
    }
    for name in keys.columns:
        frame_columns[columns["row"] if is_rowwise else name] = repeat_each(
            keys[name].tolist() * Q, K
        )
    estimate_arrays = (
        values.estimate,
        values.std_error,
        values.statistic,
        values.p,
        values.low,
        values.high,
    )
    estimate_columns = ("estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high")
    frame_columns |= {
        columns[name]: array.ravel()
        for name, array in zip(estimate_columns, estimate_arrays, strict=True)
    }
    frame_columns[columns["note"]] = notes.ravel()
    # numbered first, because `DataFrame` would turn names that are tuples into a MultiIndex
    frame = pd.DataFrame(dict(enumerate(frame_columns.values())), index=index)
    names = pd.Index(list(frame_columns), dtype=object, tupleize_cols=False)
    return frame.set_axis(names, axis=1), columns


# largest number of cells of training rows (rows times predictors) for which a report has effects
MAX_REPORTED = 20_000_000
MAX_COMPARED = 60  # largest number of predictors in a report's effects


class EffectsMixin(ClassifierBase):
    """Predictions and comparisons of levels on the probability scale, with standard errors."""

    @check_keywords
    def predictions(
        self,
        newdata: object = None,
        variables: object = None,
        *,
        weights: Hashable | ArrayLike = None,
        grid: object = None,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return the probability of each group in each row, with standard errors.

        Parameters
        ----------
        newdata, variables, weights, grid, se, level, nboot, seed, n_jobs, verbose
            As in `avg_predictions`, except that equal rows are not merged, and weights are used
            only to exclude rows with weight 0.

        Returns
        -------
        Effects
            The frame has a column ``row`` with the row labels.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
        >>> fit.predictions(grid="mode").frame[["group", "estimate", "std_error"]].round(3)
          group  estimate  std_error
        0    No     0.785      0.014
        1   Yes     0.215      0.014
        """
        contrasts = make_prediction_contrasts(self.labels, variables)
        rows = make_effect_rows(self, newdata, weights, grid, by=None, is_rowwise=True)
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    @check_keywords
    def avg_predictions(
        self,
        by: object = None,
        variables: object = None,
        newdata: object = None,
        grid: object = None,
        *,
        weights: Hashable | ArrayLike = None,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return the average probability of each group, with standard errors.

        Parameters
        ----------
        by : name or list of names, optional
            Predictors, or columns of `newdata`; rows are averaged separately for each of their
            values.
        variables : name, list of names, or dict of name to list of levels, optional
            Predictors that are set to each of their levels (or the given levels) in every row.
        newdata : table, or data read in batches, optional
            Rows with the predictors' columns: a DataFrame (pandas, polars), pyarrow Table or dict
            of lists, or files and other data as in `predict_batches`, which are read in one pass.
            By default, the weighted training rows, which are read again if a model fitted to files
            keeps only a sample of them.
        grid : {"balanced", "mode"} or dict of name to levels, optional
            Rows to generate instead of `newdata`. "balanced": all combinations of levels. "mode": a
            single row with the most frequent level of every predictor. A dict: all combinations of
            the given levels of some predictors; other predictors have their most frequent level.
            Cells in `structural_zeros` are omitted.
        weights : column name or array_like of shape (n,), optional
            Weights of the new rows in the average. By default, the column that contained the
            training weights, such as ``"Freq"`` after ``weights="Freq"``, if `newdata` has it;
            otherwise all rows have equal weight.
        se : {"auto", "bootstrap", False}, default "auto"
            Source of standard errors. ``"auto"``: the delta method, posterior draws, or refits to
            survey replicates, whichever is available. If none is available, the note states the
            reason. ``"bootstrap"``: refits to rows drawn with replacement or, for networks, draws
            of their tables from Dirichlet posteriors. False: no standard errors.
        level : float, default 0.95
            Coverage of the intervals.
        nboot : int, default 200
            Number of refits or draws for ``se="bootstrap"``.
        seed : int or numpy.random.Generator, default 0
            Seed for the bootstrap, and for draws of the class proportions of a posterior.
        n_jobs : int, optional
            Number of threads for refits; results do not depend on it.
        verbose : int, default 1
            0 hides the progress bar.

        Returns
        -------
        Effects
            Standard errors treat the distribution of the predictors as fixed. Missing cells are
            averaged over as in ``predict``.

        Raises
        ------
        OptionError
            If a predictor or level is unknown, or the model does not support the bootstrap.
        DataError
            If the model has no training rows and neither `newdata` nor `grid` is given.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
        >>> fit.avg_predictions(by="Sex").frame[["group", "Sex", "estimate", "std_error"]].round(3)
          group     Sex  estimate  std_error
        0    No  Female     0.259      0.017
        1   Yes  Female     0.741      0.017
        2    No    Male     0.790      0.010
        3   Yes    Male     0.210      0.010
        """
        contrasts = make_prediction_contrasts(self.labels, variables)
        rows = make_streamed_rows(self, newdata, weights, grid, by, verbose) or make_effect_rows(
            self, newdata, weights, grid, by, is_rowwise=False
        )
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    @check_keywords
    def comparisons(
        self,
        variables: object = None,
        contrast: object = "reference",
        transform: str = "difference",
        newdata: object = None,
        grid: object = None,
        *,
        cross: bool = False,
        step: object = None,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return comparisons of predictor levels in each row, with standard errors.

        Parameters
        ----------
        variables, contrast, transform, newdata, grid, cross, step, se, level, nboot, seed, \
n_jobs, verbose
            As in `avg_comparisons`.

        Returns
        -------
        Effects
            The frame has a column ``row`` with the row labels.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
        >>> effects = fit.comparisons("Sex", grid={"Class": ["1st", "3rd"]})
        >>> effects.frame[["group", "row", "estimate", "std_error"]].round(3)
          group  row  estimate  std_error
        0    No    0     0.637      0.038
        1   Yes    0    -0.637      0.038
        2    No    1     0.281      0.039
        3   Yes    1    -0.281      0.039
        """
        contrasts = make_comparison_contrasts(
            self.labels, variables, contrast, transform, flag("cross", cross), self._steps(step)
        )
        rows = make_effect_rows(self, newdata, None, grid, by=None, is_rowwise=True)
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    @check_keywords
    def avg_comparisons(
        self,
        variables: object = None,
        contrast: object = "reference",
        transform: str = "difference",
        by: object = None,
        newdata: object = None,
        grid: object = None,
        *,
        cross: bool = False,
        step: object = None,
        weights: Hashable | ArrayLike = None,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return comparisons of predictor levels in terms of average probabilities, with standard
        errors.

        Every row is set to one level and then to the other, with all other predictors unchanged,
        and the average probabilities of each group are compared.

        Parameters
        ----------
        variables : name, list of names, or dict of name to pairs or contrast, optional
            Predictors whose levels are compared; all by default. The values of a dict are a pair
            (high, low) of levels, a list of such pairs, or a name as in `contrast`. For a numeric
            predictor, they are a pair of values or a list of pairs; by default, the predictor is
            increased by `step`.
        contrast : {"reference", "pairwise", "sequential"} or (high, low), default "reference"
            "reference": each level against the first. "pairwise": all pairs of levels.
            "sequential": each level against the previous one. (high, low): one pair of levels.
        transform : {"difference", "ratio", "lift", "lnoddsratio"}, default "difference"
            Comparison of the average probabilities; "lift" is (high - low) / low.
        by, newdata, grid, weights, se, level, nboot, seed, n_jobs, verbose
            As in `avg_predictions`.
        cross : bool, default False
            Whether to compute cross-contrasts of the predictors: differences of differences, or
            ratios of ratios.
        step : number or dict of name to number, optional
            Increase of numeric predictors in every row; by default one standard
            deviation of the training rows.

        Returns
        -------
        Effects
            Standard errors treat the distribution of the predictors as fixed. Intervals and tests
            are of Wald type, on the scale of the estimate. With posterior draws or bootstrap
            refits, the intervals are percentile intervals. The column ``note`` indicates intervals
            that are not available or may not have their nominal coverage.

        Raises
        ------
        OptionError
            If a predictor or level is unknown, or the model does not support the bootstrap.
        DataError
            If the model has no training rows and neither `newdata` nor `grid` is given.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
        >>> effects = fit.avg_comparisons({"Class": ("3rd", "1st")}, by="Sex")
        >>> effects.frame[["group", "contrast", "Sex", "estimate"]].round(3)
          group   contrast     Sex  estimate
        0    No  3rd - 1st  Female     0.505
        1   Yes  3rd - 1st  Female    -0.505
        2    No  3rd - 1st    Male     0.170
        3   Yes  3rd - 1st    Male    -0.170
        """
        contrasts = make_comparison_contrasts(
            self.labels, variables, contrast, transform, flag("cross", cross), self._steps(step)
        )
        rows = make_streamed_rows(self, newdata, weights, grid, by, verbose) or make_effect_rows(
            self, newdata, weights, grid, by, is_rowwise=False
        )
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    @check_keywords
    def avg_slopes(
        self,
        variables: object = None,
        by: object = None,
        newdata: object = None,
        grid: object = None,
        *,
        weights: Hashable | ArrayLike = None,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return the average slopes of probabilities with respect to numeric predictors, with
        standard errors.

        Parameters
        ----------
        variables : name or list of names, optional
            Numeric predictors; all by default.
        by, newdata, grid, weights, se, level, nboot, seed, n_jobs, verbose
            As in `avg_predictions`.

        Returns
        -------
        Effects
            The change in the probability of each group per unit of the predictor, computed as a
            symmetric difference quotient with a step of 1e-4 standard deviations.

        Raises
        ------
        OptionError
            If a predictor is unknown or not numeric.

        Examples
        --------
        >>> import bbl
        >>> data = {"y": ["a", "a", "a", "b", "b", "b"], "u": [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]}
        >>> fit = bbl.bbl("y ~ u", data, numeric="u", covariance="shared")
        >>> fit.avg_slopes().frame[["group", "contrast", "estimate"]].round(3)
          group  contrast  estimate
        0     a  per unit    -0.151
        1     b  per unit     0.151
        """
        labels = self.labels
        positions = (
            list(labels.measured)
            if variables is None
            else find_predictors(labels, variables, "variables")
        )
        others = [labels.names[i] for i in positions if i not in labels.measured]
        if others or not positions:
            raise OptionError(
                f"{others[0]!r} is not a numeric predictor."
                if others
                else "The model has no numeric predictors.",
                argument="variables",
                hint="Compare levels with avg_comparisons(), or fit with numeric=.",
            )
        steps = self._steps(None)
        contrasts = make_slope_contrasts(labels, {i: SLOPE_STEP * steps[i] for i in positions})
        rows = make_effect_rows(self, newdata, weights, grid, by, is_rowwise=False)
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    def _steps(self, step: object) -> dict[int, float]:
        """Return the increase of each numeric predictor, by its position.

        `step` is None for one standard deviation, a number for all predictors, or a dict by name.
        """
        labels = self.labels
        if step is not None and not labels.measured:
            raise OptionError(
                "step applies to numeric predictors, but there are none.",
                argument="step",
                hint="Omit the step argument.",
            )
        if step is not None and not isinstance(step, Mapping):
            return dict.fromkeys(labels.measured, any_real("step", step))
        steps = {i: cast(NumberFactor, self.design.predictors[i]).sd for i in labels.measured}
        for name, value in (step or {}).items():
            (i,) = find_predictors(labels, [name], "step")
            if i not in labels.measured:
                raise OptionError(
                    f"step contains {name!r}, which is not a numeric predictor.",
                    argument="step",
                    hint="Choose from the numeric predictors "
                    f"{', '.join(repr(labels.names[j]) for j in labels.measured)}.",
                )
            steps[i] = any_real("step", value)
        return steps

    def _effects_part(self, newdata: object, weights: Any) -> Part:
        """Return the section of the report on effects: a table and a figure, or the reason why they
        are missing.

        Effects are averaged over `newdata` with `weights`, or over the training rows if `newdata`
        is None.
        """
        predictors = list(self.labels.names)
        # only training rows are limited; without them and without newdata, avg_comparisons raises
        # the error that is shown
        n_rows = self.training.n if newdata is None and self.training is not None else 0
        if n_rows * len(predictors) > MAX_REPORTED:
            return Part(
                "Effects",
                [
                    "There are too many rows to compute effects for the report. Call "
                    "avg_comparisons() instead."
                ],
            )
        try:
            # None for a model without predictors, so that the error mentions that; [] would be
            # rejected as an empty list
            effects = self.avg_comparisons(
                predictors[:MAX_COMPARED] or None, newdata=newdata, weights=weights
            )
        except BBLError as error:
            return Part("Effects", [f"Not available: {error}"])
        texts = [
            "For each level of a predictor, the probability of each group if all rows had this "
            "level, compared with the first level. Everything else is unchanged, and the largest "
            "differences come first."
        ]
        if len(predictors) > MAX_COMPARED:
            texts.append(f"Showing the first {MAX_COMPARED} of {len(predictors)} predictors.")
        effects = effects.strongest_first()
        alt_text = (
            "Differences in probability with their intervals. The numbers are in the table above."
        )
        figure = figure_html(
            effects.plot()[0].figure,
            alt_text,
            "Differences in probability, with intervals where available.",
        )
        return Part("Effects", texts, [effects.as_html(), figure])
