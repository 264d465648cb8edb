"""Answers to contrasts of effects: standard errors from a covariance, draws or refits; notes; and
the frame.

The contrasts are Q quantities, contrasts of average probabilities; each is estimated in U units of
rows for K groups. A unit is a set of rows that are averaged, or a single row. Levels are pairs
(predictor, code). See `Contrasts`, `EffectRows`, `EffectValues` and `ErrorOptions` for the
attributes of the arguments of these names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

# rows from which on a Wald test holds its level
from bbl.boltzmann.inference.significance import CELL
from bbl.boltzmann.structural_zeros import ImpossibleRowsError
from bbl.checks import generator
from bbl.errors import DataError, OptionError
from bbl.report.text import distinct_names
from bbl.results.classifier_base import ClassifierBase
from bbl.results.effects.contrasts import Contrasts
from bbl.results.effects.error_source import Scores
from bbl.results.effects.refits import ErrorOptions, refit_bootstrap, refit_replicates
from bbl.results.effects.rows import EffectRows
from bbl.results.effects.table import Effects
from bbl.results.effects.values import (
    EffectValues,
    estimate_by_delta_method,
    estimate_by_design_replicates,
    estimate_by_replicates,
    estimate_effects,
)
from bbl.stats.contrasts import TRANSFORMS

__all__ = ["find_effects"]

BOUND = 1e-9  # a standard error below this is rounding: the probability is 0 or 1
# texts below the table, with places for numbers or a description
BOOTSTRAP_NOTE = "Standard errors and percentile intervals from {}."
DESIGN_NOTE = (
    "Standard errors from refits to {} replicates of the sampling design; t distribution with {} "
    "degrees of freedom."
)
DRAWS_NOTE = (
    "Standard deviations and central intervals from {} posterior draws; there are no tests."
)
# texts of the column ``note``
UNDETERMINED = "a parameter is not estimable: no interval"
FEW_CLUSTERS = "too few clusters or replicates: no interval"
PARTIAL = "some replicates have no rows at these levels and are left out"
AT_BOUND = "no variation, as at a probability of 0 or 1: no interval"
CENSUS = "the whole population was drawn: no sampling error"
UNDEFINED = "undefined: a probability is 0 or 1"
IMPOSSIBLE = "undefined: some rows would be structural zeros"
# the last level is that of confidence
RARE = "few rows at these levels: the interval may be too narrow"
UNBOUNDED = "a parameter of this predictor has no finite estimate or did not converge"
TITLES = {
    "difference": "Difference in probability",
    "ratio": "Ratio of probabilities",
    "lift": "Lift: relative difference of probabilities",
    "lnoddsratio": "Log odds ratio",
}


def find_effects(
    fit: ClassifierBase, contrasts: Contrasts, rows: EffectRows, errors: ErrorOptions
) -> Effects:
    """Return the table of the quantities of `contrasts` in each unit of `rows`, with errors as
    `errors` asks.
    """
    if not contrasts.quantities:  # no predictor has two levels
        raise OptionError(
            "There is nothing to compare: no predictor in the model has two levels.",
            argument="variables",
        )

    def scores(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
        """Return the class scores (n, K) of rows, with the class shares of the fit."""
        # None: no dropped rows, no other shares
        return fit._encoded_scores(codes, missing, dropped=None, priors=None)

    # levels of parameters without a finite optimum, if known
    unbounded: frozenset[tuple[int, int]] = frozenset()
    if errors.se is False:
        effect_values = estimate_effects(contrasts, rows, scores)
        note = "No standard errors (se=False)."
    elif errors.se == "bootstrap":
        # a function for class scores for each refit
        replicates, description = refit_bootstrap(fit, errors)
        effect_values = estimate_by_replicates(
            contrasts, rows, scores, replicates, errors.level, has_tests=True
        )
        note = BOOTSTRAP_NOTE.format(description)
    else:
        effect_values, note, unbounded = _effects_by_source(fit, contrasts, rows, scores, errors)
    kind = TITLES[contrasts.transform] if contrasts.is_comparison else "Probability"
    # `rows.text` describes the rows, such as "training rows"
    title = f"{kind}, {'' if rows.is_rowwise else 'averaged over '}{rows.text}"
    notes = _make_notes(fit, contrasts, effect_values, unbounded)
    frame, columns = _make_frame(fit, contrasts, rows, effect_values, notes)
    # the value without any effect (0, or 1 for ratios); None for probabilities, which are not
    # compared with a value
    null = TRANSFORMS[contrasts.transform].null if contrasts.is_comparison else None
    # only machines have `survey`
    statistic = "z" if getattr(fit, "survey", None) is None else "t"
    return Effects(frame, columns, title, note, fit.labels, errors.level, null, statistic)


def _effects_by_source(
    fit: ClassifierBase,
    contrasts: Contrasts,
    rows: EffectRows,
    scores: Scores,
    errors: ErrorOptions,
) -> tuple[EffectValues, str, frozenset[tuple[int, int]]]:
    """Return (effects, note on their standard errors, levels of parameters without a finite
    optimum).

    Standard errors come from survey replicates, posterior draws or the delta method, whichever the
    fit has. If it has none of these, they are nan, and the note says why.
    """
    try:
        # an `ErrorSource`: one of `survey` (a design with replicate weights), `delta` (a
        # covariance), and `draws` (functions for class scores); and `unbounded`, levels of
        # parameters without a finite optimum
        source = fit._error_source(generator(errors.seed))
        if source.survey is not None:
            replicates = refit_replicates(fit, source.survey, errors)
            effect_values = estimate_by_design_replicates(
                contrasts, rows, scores, replicates, source.survey, errors.level
            )
            return (
                effect_values,
                DESIGN_NOTE.format(f"{len(replicates):,}", f"{source.survey.df:,}"),
                source.unbounded,
            )
        if source.delta is None:
            effect_values = estimate_by_replicates(
                contrasts, rows, scores, source.draws, errors.level, has_tests=False
            )
            return effect_values, DRAWS_NOTE.format(len(source.draws)), source.unbounded
        effect_values = estimate_by_delta_method(
            contrasts, rows, scores, source.delta, errors.level
        )
        return effect_values, f"Delta method. {source.delta.covariance.note}", source.unbounded
    except ImpossibleRowsError:  # the rows cannot occur, so they have no estimates either
        raise
    except (DataError, OptionError) as error:
        return (
            estimate_effects(contrasts, rows, scores),
            f"No standard errors: {error}",
            frozenset(),
        )


def _make_notes(
    fit: ClassifierBase,
    contrasts: Contrasts,
    values: EffectValues,
    unbounded: frozenset[tuple[int, int]],
) -> np.ndarray:
    """Return the note on each effect, shape (Q, U, K), "" where there is nothing to say.

    Writes in place: errors, limits and tests of `values` become nan where an effect is constant or
    undefined. `unbounded` are the levels, as (predictor, code), of parameters without a finite
    optimum.
    """
    notes = np.full(values.estimate.shape, "", dtype=object)
    is_undefined = ~np.isfinite(values.estimate)
    if values.has_errors:
        # a single group has the probability 1 everywhere, which needs no note
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
        # errors of constant effects are nan since the lines above, which is no sign of an
        # undetermined parameter
        notes[np.isnan(values.std_error) & ~is_constant] = UNDETERMINED
        # limits are nan if a t distribution has less than one degree of freedom
        notes[np.isfinite(values.std_error) & np.isnan(values.low)] = FEW_CLUSTERS
        if values.is_partial is not None:  # effects that are undefined in some survey replicates
            # replaces UNDETERMINED: the replicates that are left are too few
            notes[values.is_partial & np.isnan(values.std_error) & ~is_constant] = FEW_CLUSTERS
            notes[values.is_partial & (notes == "")] = PARTIAL
        effective_share = _effective_share(fit)
        # an interval is trusted if each level has an effective number of `CELL` rows; `_counts[i]`
        # (K, L_i) are the weighted counts of the levels of predictor i, `quantity.levels` pairs (i,
        # code)
        for q, quantity in enumerate(contrasts.quantities):
            # notes[q] (U, K) is a view: it is written in place
            if unbounded.intersection(quantity.levels):
                notes[q][notes[q] == ""] = UNBOUNDED
            if contrasts.is_comparison:
                least_weight = min(
                    float(fit._counts[i].sum(axis=0)[code]) for i, code in quantity.levels
                )
                if least_weight * effective_share < CELL:
                    notes[q][notes[q] == ""] = RARE
    notes[is_undefined] = UNDEFINED  # after the others, which these notes replace
    if values.is_impossible is not None:
        notes[values.is_impossible] = IMPOSSIBLE
    return notes


def _effective_share(fit: ClassifierBase) -> float:
    """Return Kish's (1965) effective number of rows of a sampling design per unit of weight; 1
    without a design.

    It is ``(sum w)^2 / sum w^2`` over ``sum w``.
    """
    if getattr(fit, "survey", None) is None or fit.training is None:  # only machines have `survey`
        return 1.0
    weights = fit.training.weights
    return float(weights.sum() / (weights @ weights))


def _make_frame(
    fit: ClassifierBase,
    contrasts: Contrasts,
    rows: EffectRows,
    values: EffectValues,
    notes: np.ndarray,
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return (the frame of effects, a row for each (quantity, unit, group); the names of the
    package's columns in it).

    The names are a dict by plain name, such as ``"estimate"``: beside a user's column of that name
    the package's column has a trailing underscore.
    """
    # groups change fastest from row to row, quantities slowest, as in the arrays (Q, U, K)
    Q = len(contrasts.quantities)
    U = values.estimate.shape[1]
    K = len(fit.labels.groups)
    # `rows.keys` has a row for each unit: its values of the columns of `by`, or its label in the
    # column "row"
    user_columns: list[Any] = [] if rows.is_rowwise else list(rows.keys.columns)
    package_columns = [
        "group",
        "term",
        "contrast",
        *(["row"] if rows.is_rowwise else []),
        "estimate",
        "std_error",
        "statistic",
        "p_value",
        "conf_low",
        "conf_high",
        "note",
    ]
    # the user's columns keep their names; the package's, which come after them, are made distinct
    # from these
    columns = dict(
        zip(
            package_columns,
            distinct_names([*user_columns, *package_columns])[len(user_columns) :],
            strict=True,
        )
    )

    def repeat_each(items: list, times: int) -> pd.Series:
        """Return a column with each item `times` times in succession."""
        column = pd.Series([item for item in items for _ in range(times)], dtype=object)
        # 1 beside a missing value would become 1.0
        return column if column.isna().any() else column.infer_objects()

    frame_columns: dict[Any, Any] = {
        columns["group"]: pd.Series(
            list(fit.labels.groups) * (Q * U), dtype=object
        ).infer_objects(),
        columns["term"]: repeat_each([q.term for q in contrasts.quantities], U * K),
        columns["contrast"]: repeat_each([q.contrast for q in contrasts.quantities], U * K),
    }
    for name in rows.keys.columns:
        frame_columns[columns["row"] if rows.is_rowwise else name] = repeat_each(
            rows.keys[name].tolist() * Q, K
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
    index = pd.Index(list(frame_columns), dtype=object, tupleize_cols=False)
    return pd.concat(list(map(pd.Series, frame_columns.values())), axis=1).set_axis(
        index, axis=1
    ), columns
