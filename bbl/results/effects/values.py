"""Effects as numbers: averages of probabilities in scenarios, their contrasts, standard errors and intervals.

S scenarios, Q quantities, U units of rows, K groups, R replicates (refits, or draws from a posterior).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl.boltzmann.structural_zeros import ImpossibleRowsError
from bbl.memory import check_memory
from bbl.results.effects.fit import DeltaMethod, Scores
from bbl.results.effects.questions import Questions, Scenario
from bbl.results.effects.rows import EffectRows
from bbl.stats.contrasts import TRANSFORMS, contrast_values
from bbl.stats.scores import log_probabilities
from bbl.stats.student import t_quantile, two_sided_p
from bbl.stats.survey.sample import SurveySample

__all__ = ["EffectValues", "by_delta_method", "by_design_replicates", "by_replicates", "estimates"]

BLOCK = 2**22  # numbers in the derivatives that are held at a time


@dataclass(frozen=True)
class EffectValues:
    """Estimates of all quantities, shape (Q, U, K), with standard errors and limits; nan where there are none.

    `has_errors` says whether standard errors were looked for, and `is_partial` which of them are those of some
    replicates only, because others have no estimate; `is_impossible` (Q, U) says which set rows to levels that cannot
    occur together (structural zeros).
    """

    estimate: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    statistic: np.ndarray
    p: np.ndarray
    has_errors: bool = True
    is_partial: np.ndarray | None = None
    is_impossible: np.ndarray | None = None


def set_levels(rows: EffectRows, scenario: Scenario) -> tuple[np.ndarray, np.ndarray | None]:
    """Return codes and missing cells of rows whose predictors are set to the levels of a scenario."""
    codes, missing = rows.codes.copy(), None if rows.missing is None else rows.missing.copy()
    for i, code in scenario:
        codes[:, i] = code
        if missing is not None:
            missing[:, i] = False
    return codes, missing if missing is not None and missing.any() else None


def averages(questions: Questions, rows: EffectRows, scores: Scores) -> np.ndarray:
    """Return the average probabilities (S, U, K)."""
    return np.array([_average(_probabilities(scores, rows, scenario)[2], rows) for scenario in questions.scenarios])


def _probabilities(
    scores: Scores, rows: EffectRows, scenario: Scenario
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return codes, missing cells and probabilities (n, K) of rows in a scenario.

    Probabilities are nan where the scenario moves a row to a cell that cannot occur.
    """
    codes, missing = set_levels(rows, scenario)
    try:
        with np.errstate(invalid="ignore"):  # refits do not refuse rows, and have no score for such ones in any group
            return codes, missing, np.exp(log_probabilities(scores(codes, missing)))
    except ImpossibleRowsError as error:
        if not scenario:  # the rows themselves cannot occur
            raise
        possible = ~error.rows
    part = replace(rows, codes=codes[possible], missing=None if missing is None else missing[possible])
    known = _probabilities(scores, part, scenario)[2] if possible.any() else np.empty((0, 1))
    p = np.full((len(codes), known.shape[1]), np.nan)
    p[possible] = known
    return codes, missing, p


def _average(p: np.ndarray, rows: EffectRows) -> np.ndarray:
    """Return the weighted sums (U, K) of probabilities (n, K) over the rows of each unit."""
    return np.add.reduceat(p * rows.weights[:, None], rows.starts[:-1], axis=0)


def contrasts(questions: Questions, averages: np.ndarray) -> np.ndarray:
    """Return the quantities (Q, ...) from averages (S, ...)."""
    transform = questions.transform
    return np.array([contrast_values(transform, averages[q.scenarios], q.signs)[0] for q in questions.quantities])


def estimates(questions: Questions, rows: EffectRows, scores: Scores) -> EffectValues:
    """Return estimates without standard errors."""
    averaged = averages(questions, rows, scores)
    value = contrasts(questions, averaged)
    nothing = np.full(value.shape, np.nan)
    return EffectValues(value, *(nothing,) * 5, has_errors=False, is_impossible=_is_impossible(questions, averaged))


def _is_impossible(questions: Questions, averaged: np.ndarray) -> np.ndarray:
    """Return which quantities (Q, U) have a scenario without an average, from averages (S, U, K)."""
    return np.array([np.isnan(averaged[q.scenarios]).any(axis=(0, 2)) for q in questions.quantities])


def by_delta_method(
    questions: Questions, rows: EffectRows, scores: Scores, delta: DeltaMethod, level: float
) -> EffectValues:
    """Return estimates with standard errors by the delta method, and limits of a normal or t distribution."""
    K, width = len(delta.gradient.theta), 1 + delta.gradient.layout.size
    step = max(1, BLOCK // (len(questions.scenarios) * K * K * width))
    blocks = [
        _delta_block(questions, rows.units(first, min(first + step, rows.n_units)), scores, delta)
        for first in range(0, rows.n_units, step)
    ]
    value, variance, is_impossible = (np.concatenate(arrays, axis=1) for arrays in zip(*blocks, strict=True))
    found = _with_limits(questions, value, np.sqrt(variance), delta.covariance.df, level)
    return replace(found, is_impossible=is_impossible)


def _delta_block(
    questions: Questions, rows: EffectRows, scores: Scores, delta: DeltaMethod
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return quantities and variances (Q, U, K) of a block of units, and which are impossible (Q, U)."""
    averaged, derivatives = [], []
    for scenario in questions.scenarios:
        codes, missing, p = _probabilities(scores, rows, scenario)
        averaged.append(_average(p, rows))
        weights = rows.weights * delta.temperature
        if missing is not None:  # a row without known predictors has the shares of the groups, at no temperature
            weights = np.where(missing.all(axis=1), rows.weights, weights)
        derivatives.append(delta.gradient.sums(codes, missing, p, weights, rows.starts))
    by_scenario, values, variances = np.array(averaged), [], []
    for quantity in questions.quantities:
        value, factors = contrast_values(questions.transform, by_scenario[quantity.scenarios], quantity.signs)
        with np.errstate(invalid="ignore", over="ignore"):  # ratios of probabilities of zero
            gradient = sum(
                factor[:, :, None, None] * derivatives[s] for factor, s in zip(factors, quantity.scenarios, strict=True)
            )
            variances.append(delta.covariance.variances(gradient))
        values.append(value)
    return np.array(values), np.array(variances), _is_impossible(questions, by_scenario)


def by_replicates(
    questions: Questions, rows: EffectRows, scores: Scores, replicates: Sequence[Scores], level: float, has_tests: bool
) -> EffectValues:
    """Return estimates with the standard deviations and percentiles of replicates.

    `has_tests` says whether there are statistics and p-values, by a normal distribution.
    """
    value, drawn, is_impossible = _replicated(questions, rows, scores, replicates)
    with np.errstate(divide="ignore", invalid="ignore"):
        se = drawn.std(axis=0, ddof=1)
        low, high = np.quantile(drawn, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        z = (value - TRANSFORMS[questions.transform].null) / se if has_tests else np.full(value.shape, np.nan)
    return EffectValues(value, se, low, high, z, two_sided_p(z, np.inf), is_impossible=is_impossible)


def by_design_replicates(
    questions: Questions,
    rows: EffectRows,
    scores: Scores,
    replicates: Sequence[Scores],
    survey: SurveySample,
    level: float,
) -> EffectValues:
    """Return estimates with errors from refits to the replicate weights of a survey, and limits of a t distribution."""
    assert survey.replicates is not None  # noqa: S101  # checked by its caller
    value, drawn, is_impossible = _replicated(questions, rows, scores, replicates)
    flat, full = drawn.reshape(len(drawn), -1), value.reshape(-1, 1)
    is_partial = ~np.isfinite(flat).all(axis=0)
    E = survey.replicates.deviations(np.where(is_partial, 0.0, flat), np.where(is_partial, 0.0, full[:, 0]))
    for k in np.flatnonzero(is_partial & np.isfinite(full[:, 0])):  # each has replicates of its own
        E[:, [k]] = survey.replicates.deviations(flat[:, [k]], full[k])
    se = np.sqrt((E**2).sum(axis=0)).reshape(value.shape)
    values = _with_limits(questions, value, se, survey.df, level)
    return replace(values, is_partial=is_partial.reshape(value.shape), is_impossible=is_impossible)


def _replicated(
    questions: Questions, rows: EffectRows, scores: Scores, replicates: Sequence[Scores]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the quantities (Q, U, K), those of every replicate (R, Q, U, K), and which are impossible (Q, U)."""
    averaged = averages(questions, rows, scores)
    value = contrasts(questions, averaged)
    check_memory(
        8.0 * value.size * len(replicates), f"{len(replicates)} replicates of {value.size:,} effects",
        "Name fewer predictors in variables, or average over rows.",
    )  # fmt: skip
    drawn = np.array([contrasts(questions, averages(questions, rows, replicate)) for replicate in replicates])
    return value, drawn, _is_impossible(questions, averaged)


def _with_limits(questions: Questions, value: np.ndarray, se: np.ndarray, df: float, level: float) -> EffectValues:
    """Return estimates with limits and tests of a t distribution; of a normal one if `df` is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        half, t = t_quantile(0.5 + level / 2, df) * se, (value - TRANSFORMS[questions.transform].null) / se
    return EffectValues(value, se, value - half, value + half, t, two_sided_p(t, df))
