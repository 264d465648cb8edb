"""Answers to questions of effects: standard errors from a covariance, draws or refits; notes; and the frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.significance import CELL
from bbl.boltzmann.structural_zeros import ImpossibleRowsError
from bbl.checks import generator
from bbl.errors import DataError, OptionError
from bbl.names import distinct_names
from bbl.results.effects.fit import EffectFit, Scores
from bbl.results.effects.questions import Questions
from bbl.results.effects.refits import ErrorOptions, bootstrap_scores, replicate_scores
from bbl.results.effects.rows import EffectRows
from bbl.results.effects.table import Effects
from bbl.results.effects.values import EffectValues, by_delta_method, by_design_replicates, by_replicates, estimates
from bbl.stats.contrasts import TRANSFORMS

__all__ = ["find_effects"]

BOUND = 1e-9  # a standard error below this belongs to a probability of 0 or 1
BOOTSTRAP_NOTE = "Standard errors and percentile intervals of {}."
DESIGN_NOTE = (
    "Standard errors from refits to {} replicates of the sampling design: t distribution of {} degrees of freedom."
)
DRAWS_NOTE = "Standard deviations and central intervals of {} draws from the posterior; there are no tests."
UNDETERMINED = "the rows do not determine a parameter: no interval"
FEW_CLUSTERS = "too few clusters or replicates: no interval"
PARTIAL = "some replicates have no rows at these levels, and do not count"
AT_BOUND = "no variation, as at a probability of 0 or 1: no interval"
UNDEFINED = "undefined: a probability is 0 or 1"
IMPOSSIBLE = "undefined: rows would be in cells that cannot occur (structural_zeros)"
RARE = "few rows at these levels: the interval may not hold its level"
UNBOUNDED = "a parameter of this predictor has no finite optimum, or it was not reached"
TITLES = {
    "difference": "Difference of probabilities",
    "ratio": "Ratio of probabilities",
    "lnoddsratio": "Log odds ratio",
}


def find_effects(fit: EffectFit, questions: Questions, rows: EffectRows, errors: ErrorOptions) -> Effects:
    """Return the effects that questions ask of rows."""
    if not questions.quantities:
        raise OptionError("There is nothing to compare: the model has no predictor with two levels.",
                          argument="variables")  # fmt: skip

    def scores(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
        return fit._encoded_scores(codes, missing, None, None)

    unbounded: frozenset[tuple[int, int]] = frozenset()
    if errors.se is False:
        values, note = estimates(questions, rows, scores), "Without standard errors, as se=False asks."
    elif errors.se == "bootstrap":
        replicates, description = bootstrap_scores(fit, errors)
        values = by_replicates(questions, rows, scores, replicates, errors.level, has_tests=True)
        note = BOOTSTRAP_NOTE.format(description)
    else:
        values, note, unbounded = _by_source(fit, questions, rows, scores, errors)
    kind = TITLES[questions.transform] if questions.is_comparison else "Probability"
    title = kind if rows.text == "" else f"{kind}, {'' if rows.is_rowwise else 'averaged over '}{rows.text}"
    notes = _notes(fit, questions, values, unbounded)
    frame, columns = _frame(fit, questions, rows, values, notes)
    null = TRANSFORMS[questions.transform].null if questions.is_comparison else None
    return Effects(frame, columns, title, note, fit.labels, errors.level, null)


def _by_source(
    fit: EffectFit, questions: Questions, rows: EffectRows, scores: Scores, errors: ErrorOptions
) -> tuple[EffectValues, str, frozenset[tuple[int, int]]]:
    """Return effects by the delta method or posterior draws, else without errors; with the note on them."""
    try:
        source = fit._error_source(generator(errors.seed))
        if source.survey is not None:
            replicates = replicate_scores(fit, source.survey, errors)
            values = by_design_replicates(questions, rows, scores, replicates, source.survey, errors.level)
            return values, DESIGN_NOTE.format(f"{len(replicates):,}", f"{source.survey.df:,}"), source.unbounded
        if source.delta is None:
            values = by_replicates(questions, rows, scores, source.draws, errors.level, has_tests=False)
            return values, DRAWS_NOTE.format(len(source.draws)), source.unbounded
        values = by_delta_method(questions, rows, scores, source.delta, errors.level)
        return values, f"Delta method. {source.delta.covariance.note}", source.unbounded
    except ImpossibleRowsError:  # of the rows themselves, which have no estimates either
        raise
    except (DataError, OptionError) as error:
        reason = str(error).rstrip(".")
        return estimates(questions, rows, scores), f"There are no standard errors: {reason}.", frozenset()


def _notes(
    fit: EffectFit, questions: Questions, values: EffectValues, unbounded: frozenset[tuple[int, int]]
) -> np.ndarray:
    """Return the note on each effect (Q, U, K), empty for most; limits of what has no variation become nan in place."""
    notes = np.full(values.estimate.shape, "", dtype=object)
    undefined = ~np.isfinite(values.estimate)
    if values.has_errors:
        flat = (values.std_error < BOUND) & (len(fit.labels.groups) > 1)
        for array in (values.std_error, values.low, values.high, values.statistic, values.p):
            array[flat | undefined] = np.nan
        notes[flat] = AT_BOUND
        notes[np.isnan(values.std_error) & ~flat] = UNDETERMINED
        notes[np.isfinite(values.std_error) & np.isnan(values.low)] = FEW_CLUSTERS
        if values.is_partial is not None:
            notes[values.is_partial & np.isnan(values.std_error) & ~flat] = FEW_CLUSTERS
            notes[values.is_partial & (notes == "")] = PARTIAL
        effective_share = _effective_share(fit)
        for q, quantity in enumerate(questions.quantities):
            if unbounded.intersection(quantity.levels):
                notes[q][notes[q] == ""] = UNBOUNDED
            if questions.is_comparison:
                rarest = min(float(fit._counts[i].sum(axis=0)[code]) for i, code in quantity.levels)
                if rarest * effective_share < CELL:
                    notes[q][notes[q] == ""] = RARE
    notes[undefined] = UNDEFINED
    if values.is_impossible is not None:
        notes[values.is_impossible] = IMPOSSIBLE
    return notes


def _effective_share(fit: EffectFit) -> float:
    """Return the effective number of rows of a sampling design for a unit of weight (Kish 1965); 1 without one."""
    if getattr(fit, "survey", None) is None or fit.training is None:
        return 1.0
    weights = fit.training.weights
    return float(weights.sum() / (weights @ weights))


def _frame(
    fit: EffectFit, questions: Questions, rows: EffectRows, values: EffectValues, notes: np.ndarray
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the frame of effects, and the names in it of the package's columns."""
    Q, U, K = values.estimate.shape
    users: list[Any] = [] if rows.is_rowwise else list(rows.keys.columns)
    ours = ["group", "term", "contrast", *(["row"] if rows.is_rowwise else []), "estimate", "std_error", "statistic",
            "p_value", "conf_low", "conf_high", "note"]  # fmt: skip
    columns = dict(zip(ours, distinct_names([*users, *ours])[len(users) :], strict=True))

    def repeated(items: list, times: int) -> pd.Series:
        column = pd.Series([item for item in items for _ in range(times)], dtype=object)
        return column if column.isna().any() else column.infer_objects()  # 1 beside a missing value would become 1.0

    frame: dict[Any, Any] = {
        columns["group"]: pd.Series(list(fit.labels.groups) * (Q * U), dtype=object).infer_objects(),
        columns["term"]: repeated([q.term for q in questions.quantities], U * K),
        columns["contrast"]: repeated([q.contrast for q in questions.quantities], U * K),
    }
    for name in rows.keys.columns:
        frame[columns["row"] if rows.is_rowwise else name] = repeated(rows.keys[name].tolist() * Q, K)
    numbers = (values.estimate, values.std_error, values.statistic, values.p, values.low, values.high)
    names = ("estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high")
    frame |= {columns[name]: array.ravel() for name, array in zip(names, numbers, strict=True)}
    frame[columns["note"]] = notes.ravel()
    index = pd.Index(list(frame), dtype=object, tupleize_cols=False)
    return pd.concat(list(map(pd.Series, frame.values())), axis=1).set_axis(index, axis=1), columns
