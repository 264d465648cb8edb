"""Effects as numbers: averages of probabilities in scenarios, their contrasts, standard errors and
intervals.

A *scenario* sets some predictors of every row to a level each; a *quantity* is a contrast of the
averages of some scenarios; a *unit* is a set of rows that are averaged, or a single row. S
scenarios, Q quantities, U units, K groups, n rows of m predictors, R replicates (refits, or draws
from a posterior). `Scores` are functions of codes and missing cells (n, m) with class scores (n, K)
as values; `level` is the coverage of intervals.

A `Quantity` has ``scenarios``, the positions of s of the S scenarios, and ``signs`` (s,), 1 or -1.
`EffectRows` are sorted by unit: unit u has the rows ``starts[u]:starts[u + 1]``.
``contrast_values(transform, averages, signs)`` returns the contrast of averages (s, U, K), shape
(U, K), and its derivatives by them, shape (s, U, K).

With coefficients b of covariance V, a quantity q of averages A_s has by the delta method the
variance ``g' V g`` with ``g = sum_s (dq / dA_s) (dA_s / db)``. The statistic is (q - null) / se,
where ``null`` is the value of q without an effect: 0, or 1 for ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl.boltzmann.structural_zeros import ImpossibleRowsError
from bbl.memory import check_memory
from bbl.results.effects.contrasts import Contrasts, Scenario
from bbl.results.effects.error_source import DeltaMethod, Scores
from bbl.results.effects.rows import EffectRows
from bbl.stats.contrasts import TRANSFORMS, contrast_values
from bbl.stats.metrics import log_probabilities
from bbl.stats.student import t_quantile, two_sided_p
from bbl.stats.survey.sample import SurveySample

__all__ = [
    "EffectValues",
    "estimate_by_delta_method",
    "estimate_by_design_replicates",
    "estimate_by_replicates",
    "estimate_effects",
]

BLOCK = 2**22  # numbers in the derivatives that are in memory at a time: 32 MiB


@dataclass(frozen=True)
class EffectValues:
    """Estimates of all quantities with standard errors, limits and tests.

    Attributes
    ----------
    estimate : ndarray, shape (Q, U, K)
    std_error, low, high, statistic, p : ndarray, shape (Q, U, K)
        Standard errors, limits of the intervals, test statistics and p-values; nan where there are
        none.
    has_errors : bool
        Whether standard errors were computed.
    is_partial : ndarray of bool, shape (Q, U, K), or None
        Whether the estimate is not finite in some replicates of a survey, which the standard error
        then leaves out; None for other sources of standard errors.
    is_impossible : ndarray of bool, shape (Q, U), or None
        Whether a scenario of the quantity sets rows to levels that cannot occur together
        (structural zeros).
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


def _set_levels(rows: EffectRows, scenario: Scenario) -> tuple[np.ndarray, np.ndarray | None]:
    """Return codes (n, m) and missing cells (n, m) or None of rows set to the levels of a
    scenario.
    """
    codes = rows.codes.copy()
    missing = None if rows.missing is None else rows.missing.copy()
    for i, code in scenario:
        codes[:, i] = code
        if missing is not None:
            missing[:, i] = False
    return codes, missing if missing is not None and missing.any() else None


def average_probabilities(contrasts: Contrasts, rows: EffectRows, scores: Scores) -> np.ndarray:
    """Return the average probabilities (S, U, K) of the groups in each scenario and unit."""
    # `_row_probabilities` returns codes, missing cells and, at [2], the probabilities
    return np.array(
        [
            _average_by_unit(_row_probabilities(scores, rows, scenario)[2], rows)
            for scenario in contrasts.scenarios
        ]
    )


def _row_probabilities(
    scores: Scores, rows: EffectRows, scenario: Scenario
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return codes (n, m), missing cells (n, m) or None, and probabilities (n, K) of rows in a
    scenario.

    Probabilities are nan where the scenario moves a row to a cell that cannot occur. `scores`
    reports such rows in one of two ways: a fit raises an `ImpossibleRowsError`, its refits return
    the scores -inf for all groups.
    """
    codes, missing = _set_levels(rows, scenario)
    try:
        with np.errstate(invalid="ignore"):  # -inf - -inf is nan
            return codes, missing, np.exp(log_probabilities(scores(codes, missing)))
    except ImpossibleRowsError as error:
        if not scenario:  # the rows themselves cannot occur
            raise
        # (n,): the rows whose scores are refused are those that cannot occur
        possible = ~error.rows
        K = error.n_groups
    # a second call scores the other rows, if there are any; it does not use weights and units of
    # `possible_rows`
    possible_rows = replace(
        rows, codes=codes[possible], missing=None if missing is None else missing[possible]
    )
    p = np.full((len(codes), K), np.nan)
    if possible.any():
        p[possible] = _row_probabilities(scores, possible_rows, scenario)[2]
    return codes, missing, p


def _average_by_unit(p: np.ndarray, rows: EffectRows) -> np.ndarray:
    """Return the averages (U, K) of probabilities (n, K) over the rows of each unit, whose weights
    sum to 1.
    """
    # sums from each start to the next one, or to the end
    return np.add.reduceat(p * rows.weights[:, None], rows.starts[:-1], axis=0)


def compute_contrasts(contrasts: Contrasts, average_by_scenario: np.ndarray) -> np.ndarray:
    """Return the quantities (Q, U, K) from the averages (S, U, K)."""
    transform = contrasts.transform
    return np.array(  # [0]: without derivatives
        [
            contrast_values(transform, average_by_scenario[q.scenarios], q.signs)[0]
            for q in contrasts.quantities
        ]
    )


def estimate_effects(contrasts: Contrasts, rows: EffectRows, scores: Scores) -> EffectValues:
    """Return estimates; standard errors, limits and tests are nan."""
    average_by_scenario = average_probabilities(contrasts, rows, scores)
    estimates = compute_contrasts(contrasts, average_by_scenario)
    no_values = np.full(estimates.shape, np.nan)
    return EffectValues(
        estimates,
        *(no_values,) * 5,  # std_error, low, high, statistic, p
        has_errors=False,
        is_impossible=_find_impossible(contrasts, average_by_scenario),
    )


def _find_impossible(contrasts: Contrasts, average_by_scenario: np.ndarray) -> np.ndarray:
    """Return whether quantities (Q, U) have a scenario whose average is nan, from averages (S, U,
    K).
    """
    return np.array(
        [np.isnan(average_by_scenario[q.scenarios]).any(axis=(0, 2)) for q in contrasts.quantities]
    )


def estimate_by_delta_method(
    contrasts: Contrasts, rows: EffectRows, scores: Scores, delta: DeltaMethod, level: float
) -> EffectValues:
    """Return estimates with standard errors by the delta method, and limits of a normal or t
    distribution.

    ``delta.covariance.df`` are the degrees of freedom of the t distribution, infinite without a
    sampling design. The units are taken in blocks, because the derivatives of all units may not fit
    into memory.
    """
    # ``delta.gradient.theta`` (K, size) are the parameters of each group
    # the intercept, then parameters
    K = len(delta.gradient.theta)
    n_coefficients = 1 + delta.gradient.layout.size
    # derivatives of a unit: (S, K, K, n_coefficients), of K probabilities by the coefficients of K
    # groups
    block_units = max(1, BLOCK // (len(contrasts.scenarios) * K * K * n_coefficients))
    blocks = [
        _delta_block(
            contrasts,
            rows.units(first_unit, min(first_unit + block_units, rows.n_units)),
            scores,
            delta,
        )
        for first_unit in range(0, rows.n_units, block_units)
    ]
    estimates, variance, is_impossible = (
        np.concatenate(arrays, axis=1) for arrays in zip(*blocks, strict=True)
    )
    effect_values = _add_t_limits(
        contrasts, estimates, np.sqrt(variance), delta.covariance.df, level
    )
    return replace(effect_values, is_impossible=is_impossible)


def _delta_block(
    contrasts: Contrasts, rows: EffectRows, scores: Scores, delta: DeltaMethod
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (quantities (Q, U, K), their variances (Q, U, K), whether they are impossible (Q, U))
    of a block of units.

    The gradient g of the module's docstring comes from the derivatives (s, U, K) of a quantity by
    its averages, and the derivatives (U, K, K, 1 + size) of each of the S scenarios: of its K
    averages by the intercept and the `size` parameters of each of K groups.
    """
    scenario_averages = []
    derivatives_by_scenario = []
    for scenario in contrasts.scenarios:
        codes, missing, p = _row_probabilities(scores, rows, scenario)
        scenario_averages.append(_average_by_unit(p, rows))
        derivatives_by_scenario.append(
            delta.gradient.sums(codes, missing, p, rows.weights, rows.starts)
        )
    # the first is (S, U, K)
    average_by_scenario = np.array(scenario_averages)
    estimates = []
    variances = []
    for quantity in contrasts.quantities:
        contrast, derivatives_by_average = contrast_values(
            contrasts.transform, average_by_scenario[quantity.scenarios], quantity.signs
        )
        # 0 / 0 and x / 0, where probabilities are 0
        with np.errstate(invalid="ignore", over="ignore"):
            contrast_gradient = sum(  # (U, K, K, 1 + size)
                derivative_by_average[:, :, None, None] * derivatives_by_scenario[s]
                for derivative_by_average, s in zip(
                    derivatives_by_average, quantity.scenarios, strict=True
                )
            )
            variances.append(delta.covariance.variances(contrast_gradient))  # (U, K)
        estimates.append(contrast)
    return (
        np.array(estimates),
        np.array(variances),
        _find_impossible(contrasts, average_by_scenario),
    )


def estimate_by_replicates(
    contrasts: Contrasts,
    rows: EffectRows,
    scores: Scores,
    replicates: Sequence[Scores],
    level: float,
    has_tests: bool,
) -> EffectValues:
    """Return estimates with the standard deviations and percentiles of `replicates`, R functions
    for class scores.

    They are nan for a quantity that some replicate leaves undefined. With `has_tests` there are z
    statistics and p-values of a normal distribution, else these are nan.
    """
    estimates, replicate_estimates, is_impossible = _estimate_replicates(
        contrasts, rows, scores, replicates
    )
    # `null` is the value without any effect; no warning where a replicate is undefined or a
    # standard error is 0
    with np.errstate(divide="ignore", invalid="ignore"):
        se = replicate_estimates.std(axis=0, ddof=1)
        low, high = np.quantile(replicate_estimates, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        z = (
            (estimates - TRANSFORMS[contrasts.transform].null) / se
            if has_tests
            else np.full(estimates.shape, np.nan)
        )
    # infinite degrees of freedom: p-values of a normal distribution
    return EffectValues(
        estimates, se, low, high, z, two_sided_p(z, np.inf), is_impossible=is_impossible
    )


def estimate_by_design_replicates(
    contrasts: Contrasts,
    rows: EffectRows,
    scores: Scores,
    replicates: Sequence[Scores],
    survey: SurveySample,
    level: float,
) -> EffectValues:
    """Return estimates with errors from refits to the replicate weights of a survey, and limits of
    a t distribution.

    `replicates` are R functions for class scores, one for each refit;
    ``survey.replicates.deviations(estimates, full)`` returns scaled deviations (R, p) of p
    estimates in the replicates (R, p) from those of all rows, `full` (p,).
    """
    assert survey.replicates is not None  # noqa: S101  # checked by its caller
    estimates, replicate_values, is_impossible = _estimate_replicates(
        contrasts, rows, scores, replicates
    )
    # (R, Q U K); and (Q U K, 1), so that ``flat_estimates[k]`` is a vector (1,), as `deviations`
    # needs it
    flat_replicates = replicate_values.reshape(len(replicate_values), -1)
    flat_estimates = estimates.reshape(-1, 1)
    is_partial = ~np.isfinite(flat_replicates).all(axis=0)  # (Q U K,)
    # (R, Q U K): their squares sum to the variances. Zeros stand in for the partial quantities
    deviations = survey.replicates.deviations(
        np.where(is_partial, 0.0, flat_replicates), np.where(is_partial, 0.0, flat_estimates[:, 0])
    )
    # `deviations` leaves out replicates that are not finite in all of its columns, so each partial
    # quantity has a call of its own, which replaces its zeros
    for k in np.flatnonzero(is_partial & np.isfinite(flat_estimates[:, 0])):
        deviations[:, [k]] = survey.replicates.deviations(
            flat_replicates[:, [k]], flat_estimates[k]
        )
    se = np.sqrt((deviations**2).sum(axis=0)).reshape(estimates.shape)
    effect_values = _add_t_limits(contrasts, estimates, se, survey.df, level)
    return replace(
        effect_values, is_partial=is_partial.reshape(estimates.shape), is_impossible=is_impossible
    )


def _estimate_replicates(
    contrasts: Contrasts, rows: EffectRows, scores: Scores, replicates: Sequence[Scores]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (quantities (Q, U, K), those of each replicate (R, Q, U, K), whether they are
    impossible (Q, U)).
    """
    average_by_scenario = average_probabilities(contrasts, rows, scores)
    estimates = compute_contrasts(contrasts, average_by_scenario)
    check_memory(
        8.0 * estimates.size * len(replicates),
        f"{len(replicates)} replicates of {estimates.size:,} effects",
        "Name fewer predictors in variables, or average over rows.",
    )
    replicate_estimates = np.array(
        [
            compute_contrasts(contrasts, average_probabilities(contrasts, rows, replicate))
            for replicate in replicates
        ]
    )
    return estimates, replicate_estimates, _find_impossible(contrasts, average_by_scenario)


def _add_t_limits(
    contrasts: Contrasts, estimates: np.ndarray, se: np.ndarray, df: float, level: float
) -> EffectValues:
    """Return estimates (Q, U, K) with limits and tests by a t distribution; a normal one if `df` is
    infinite.

    `se` (Q, U, K) are their standard errors.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        half_width = t_quantile(0.5 + level / 2, df) * se
        t = (estimates - TRANSFORMS[contrasts.transform].null) / se
    return EffectValues(
        estimates, se, estimates - half_width, estimates + half_width, t, two_sided_p(t, df)
    )
