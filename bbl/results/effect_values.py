"""Effects as numbers: averages of probabilities in scenarios, their contrasts, standard errors and intervals.

S scenarios, Q quantities, U units of rows, K groups, R replicates (refits, or draws from a posterior).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl.memory import check_memory
from bbl.results.effect_fit import DeltaMethod, Scores
from bbl.results.effect_questions import Questions
from bbl.results.effect_rows import EffectRows
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
    replicates only, because others have no estimate.
    """

    estimate: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    statistic: np.ndarray
    p: np.ndarray
    has_errors: bool = True
    is_partial: np.ndarray | None = None


def set_levels(
    rows: EffectRows, scenario: Iterable[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray | None]:  # fmt: skip
    """Return codes and missing cells of rows whose predictors are set to the levels of a scenario."""
    codes, missing = rows.codes.copy(), None if rows.missing is None else rows.missing.copy()
    for i, code in scenario:
        codes[:, i] = code
        if missing is not None:
            missing[:, i] = False
    return codes, missing if missing is not None and missing.any() else None


def averages(questions: Questions, rows: EffectRows, scores: Scores) -> np.ndarray:
    """Return the average probabilities (S, U, K)."""
    return np.array([_average(_probabilities(scores, *set_levels(rows, s)), rows) for s in questions.scenarios])


def _probabilities(scores: Scores, codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
    return np.exp(log_probabilities(scores(codes, missing)))


def _average(p: np.ndarray, rows: EffectRows) -> np.ndarray:
    """Return the weighted sums (U, K) of probabilities (n, K) over the rows of each unit."""
    return np.add.reduceat(p * rows.weights[:, None], rows.starts[:-1], axis=0)


def contrasts(questions: Questions, averages: np.ndarray) -> np.ndarray:
    """Return the quantities (Q, ...) from averages (S, ...)."""
    transform = questions.transform
    return np.array([contrast_values(transform, averages[q.scenarios], q.signs)[0] for q in questions.quantities])


def estimates(questions: Questions, rows: EffectRows, scores: Scores) -> EffectValues:
    """Return estimates without standard errors."""
    value = contrasts(questions, averages(questions, rows, scores))
    nothing = np.full(value.shape, np.nan)
    return EffectValues(value, *(nothing,) * 5, has_errors=False)


def by_delta_method(
    questions: Questions, rows: EffectRows, scores: Scores, delta: DeltaMethod, level: float
) -> EffectValues:
    """Return estimates with standard errors by the delta method, and limits of a normal or t distribution."""
    K, width = delta.covariance.determined.shape
    step = max(1, BLOCK // (len(questions.scenarios) * K * K * width))
    blocks = [
        _delta_block(questions, rows.units(first, min(first + step, rows.n_units)), scores, delta)
        for first in range(0, rows.n_units, step)
    ]
    value, variance = (np.concatenate(arrays, axis=1) for arrays in zip(*blocks, strict=True))
    return _with_limits(questions, value, np.sqrt(variance), delta.covariance.df, level)


def _delta_block(
    questions: Questions, rows: EffectRows, scores: Scores, delta: DeltaMethod
) -> tuple[np.ndarray, np.ndarray]:
    """Return quantities and variances (Q, U, K) of a block of units."""
    averaged, derivatives = [], []
    for scenario in questions.scenarios:
        codes, missing = set_levels(rows, scenario)
        p = _probabilities(scores, codes, missing)
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
    return np.array(values), np.array(variances)


def by_replicates(
    questions: Questions, rows: EffectRows, scores: Scores, replicates: Sequence[Scores], level: float, has_tests: bool
) -> EffectValues:
    """Return estimates with the standard deviations and percentiles of replicates.

    `has_tests` says whether there are statistics and p-values, by a normal distribution.
    """
    value, drawn = _replicated(questions, rows, scores, replicates)
    with np.errstate(divide="ignore", invalid="ignore"):
        se = drawn.std(axis=0, ddof=1)
        low, high = np.quantile(drawn, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        z = (value - TRANSFORMS[questions.transform].null) / se if has_tests else np.full(value.shape, np.nan)
    return EffectValues(value, se, low, high, z, two_sided_p(z, np.inf))


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
    value, drawn = _replicated(questions, rows, scores, replicates)
    flat, full = drawn.reshape(len(drawn), -1), value.reshape(-1, 1)
    is_partial = ~np.isfinite(flat).all(axis=0)
    E = survey.replicates.deviations(np.where(is_partial, 0.0, flat), np.where(is_partial, 0.0, full[:, 0]))
    for k in np.flatnonzero(is_partial & np.isfinite(full[:, 0])):  # each has replicates of its own
        E[:, [k]] = survey.replicates.deviations(flat[:, [k]], full[k])
    se = np.sqrt((E**2).sum(axis=0)).reshape(value.shape)
    found = _with_limits(questions, value, se, survey.df, level)
    return replace(found, is_partial=is_partial.reshape(value.shape))


def _replicated(
    questions: Questions, rows: EffectRows, scores: Scores, replicates: Sequence[Scores]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the quantities (Q, U, K), and those of every replicate (R, Q, U, K)."""
    value = contrasts(questions, averages(questions, rows, scores))
    check_memory(
        8.0 * value.size * len(replicates), f"{len(replicates)} replicates of {value.size:,} effects",
        "Name fewer predictors in variables, or average over rows.",
    )  # fmt: skip
    return value, np.array([contrasts(questions, averages(questions, rows, replicate)) for replicate in replicates])


def _with_limits(questions: Questions, value: np.ndarray, se: np.ndarray, df: float, level: float) -> EffectValues:
    """Return estimates with limits and tests of a t distribution; of a normal one if `df` is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        half, t = t_quantile(0.5 + level / 2, df) * se, (value - TRANSFORMS[questions.transform].null) / se
    return EffectValues(value, se, value - half, value + half, t, two_sided_p(t, df))
