"""Design covariances of estimates, by linearisation or refits with replicate weights.

*Deviations* form a matrix E (u, size) such that ``E'E`` is the design covariance of `size`
estimates. Its u rows correspond to clusters or replicates. These are the same for all groups of a
fit, so ``E_a'E_b`` is the covariance between the estimates of groups a and b. K is the number of
groups. A row's *influence* is the derivative of the estimate with respect to its weight.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bbl.engines import Engine
from bbl.errors import DataError, DataWarning
from bbl.memory import check_memory
from bbl.model.godambe import RowInfluence
from bbl.model.joint_influence import JointInfluence
from bbl.model.layout import Layout
from bbl.model.location import Location
from bbl.model.location_gradient import LocationInfluence
from bbl.rows.sample import Sample, level_counts
from bbl.stats.survey.sample import SurveySample

__all__ = [
    "effective_rows",
    "joint_deviations",
    "linearised",
    "location_deviations",
    "penalised_deviations",
    "replicated",
    "share_deviations",
    "step_deviations",
    "unpenalised_deviations",
]

# maximum number of entries of the influence matrix (rows, parameters) in memory at a time
MAX_INFLUENCES = 2**22
FLAT = 1e-8  # smaller entries of unit directions are rounding errors


def effective_rows(sample: Sample) -> Sample:
    """Return rows with weights scaled to sum to the effective number ``(sum w)^2 / sum w^2``."""
    total = sample.total
    squares = float(sample.weights @ sample.weights)
    return replace(sample, weights=sample.weights * (total / squares)) if sample.n else sample


def linearised(
    influences: Callable[[Sample], np.ndarray], size: int, rows: Sample, survey: SurveySample
) -> np.ndarray:
    """Return the deviations (u, size) of an estimate, which are row influences summed by cluster.

    ``influences(chunk)`` returns the influences (n, size), per unit of weight, for a chunk of n
    rows.
    """
    plan = survey.plan
    check_memory(  # four matrices (clusters, size) with 8 bytes per entry
        32.0 * plan.n_units * size,
        f"Score totals of {size} parameters in {plan.n_units:,} clusters",
        "Use fewer predictors or fewer interactions.",
    )
    totals = np.zeros((plan.n_units, size))
    offset = 0
    for chunk in rows.blocks(max(1, MAX_INFLUENCES // max(size, 1))):
        # adds to `totals` in place
        plan.totals(
            influences(chunk) * chunk.weights[:, None],
            survey.rows[offset : offset + chunk.n],
            totals,
        )
        offset += chunk.n
    # centred within strata and scaled, so that E'E is the covariance
    return survey.deviations(totals)


def replicated(
    estimate: Callable[[Sample], np.ndarray],
    full_estimate: np.ndarray,
    rows: Sample,
    survey: SurveySample,
    for_test: bool = False,
) -> np.ndarray:
    """Return the deviations (u, size) of estimates with each of u sets of replicate weights.

    ``estimate(rows)`` returns an estimate (size,), or nan if there is none. `full_estimate` (size,)
    is the estimate with the full survey weights. Deviations are differences from the full estimate
    or from the mean of the replicates (option `mse`), multiplied by the square roots of the
    replicates' scales. If a replicate has no rows or no estimate, its deviations are 0 and a
    DataWarning is issued. If an estimate is infinite in a replicate but finite in `full_estimate`,
    all deviations of this estimate are nan, because the value at which the iterations stopped is
    arbitrary. A DataWarning is issued in this case as well, unless `for_test` is True, because
    tables of tests state the reason.
    """
    assert survey.replicates is not None  # noqa: S101  # checked by its callers
    weights = survey.replicates.weights[survey.rows]  # (n, u)
    estimates = np.full((weights.shape[1], len(full_estimate)), np.nan)
    for replicate in range(len(estimates)):
        reweighted = rows.weighted(weights[:, replicate])
        if reweighted.n:
            estimates[replicate] = estimate(reweighted)
    separated = np.isinf(estimates)
    # (size,): estimates that are finite in all rows, but not in some replicate
    is_lost = separated.any(axis=0) & np.isfinite(full_estimate)
    if is_lost.any() and not for_test:
        n_separated = int(separated[:, is_lost].any(axis=1).sum())
        warnings.warn(
            DataWarning(
                f"In {n_separated} of {len(estimates)} replicates, {int(is_lost.sum())} of "
                f"{len(is_lost)} estimates for a group are infinite, because a level is absent or "
                "separates the groups. These estimates have no standard errors.",
                hint=(
                    "Omit the type argument to get linearised standard errors, merge rare levels, "
                    "or set prior_count if the method supports it."
                ),
            ),
            stacklevel=2,
        )
    estimates = np.where(separated, full_estimate, estimates)
    n_lost = int((~np.isfinite(estimates).all(axis=1)).sum())
    if n_lost:
        warnings.warn(
            DataWarning(
                f"{n_lost} of {len(estimates)} replicates contain no rows of one of the groups "
                "and were left out, so standard errors may be too small.",
                hint=(
                    "Merge rare groups, or omit the type argument of the design to get linearised "
                    "standard errors."
                ),
            ),
            stacklevel=2,
        )
    deviations = survey.replicates.deviations(estimates, full_estimate)
    deviations[:, is_lost] = np.nan
    return deviations


def penalised_deviations(
    influence: RowInfluence, rows: Sample, theta: np.ndarray, engine: Engine, survey: SurveySample
) -> np.ndarray:
    """Return the deviations (u, size) of a group's `theta` (size,), as estimated by `Engine.fit`.

    `influence` is the influence of the group's `rows`, which is used for linearisation if the
    design has no replicate weights.
    """
    layout = influence.layout

    def fit_rows(reweighted: Sample) -> tuple[np.ndarray, np.ndarray]:
        """Return the parameters (size,) fitted to rows, and a mask of infinite parameters."""
        prepared = engine.prepare(reweighted.collapsed(layout.n_levels), layout)
        fit = engine.fit(prepared, layout, start=theta)
        lost_levels = {(note.predictor, note.level) for note in fit.notes if note.level >= 0}
        lost_levels |= {(i, code) for i, code, *_ in fit.unbounded}
        # the engine has added a row with levels that do not occur
        if isinstance(prepared, Sample) and prepared.total > reweighted.total + 0.5:
            lost_levels |= _absent_levels(reweighted, layout)
        return fit.theta, _uses(layout, lost_levels)

    def estimate(reweighted: Sample) -> np.ndarray:
        """Return the parameters (size,) fitted to a replicate's rows.

        Parameters are infinite if they are estimable from all rows but not from the replicate.
        """
        reweighted_theta, is_lost = fit_rows(reweighted)
        return np.where(is_lost & ~is_lost_in_all, np.inf, reweighted_theta)

    if survey.replicates is not None:
        _, is_lost_in_all = fit_rows(rows)
        return replicated(estimate, theta, rows, survey)
    return linearised(lambda chunk: influence(chunk) / influence.total, layout.size, rows, survey)


def unpenalised_deviations(
    influence: RowInfluence,
    rows: Sample,
    theta: np.ndarray,
    is_determined: np.ndarray,
    sites: np.ndarray,
    engine: Engine,
    survey: SurveySample,
) -> np.ndarray:
    """Return the deviations (u, size) of a group's `theta`, as estimated by `Engine.unpenalised`.

    `is_determined` (size,) marks the estimable parameters; `sites` contains the predictors with
    fitted conditional distributions. The other arguments are the same as in `penalised_deviations`.
    """
    layout = influence.layout

    def estimate(reweighted: Sample) -> np.ndarray:
        """Return the unpenalised parameters (size,) fitted to a replicate's rows."""
        reweighted_theta, determined, _ = engine.unpenalised(
            reweighted.collapsed(layout.n_levels), layout, theta, sites
        )
        return np.where(determined | ~is_determined, reweighted_theta, np.inf)

    if survey.replicates is not None:
        return replicated(estimate, theta, rows, survey, for_test=True)
    return linearised(lambda chunk: influence(chunk) / influence.total, layout.size, rows, survey)


def joint_deviations(
    influence: JointInfluence,
    fit_unpenalised: Callable[[Sample], JointInfluence],
    rows: Sample,
    survey: SurveySample,
) -> np.ndarray:
    """Return the deviations (u, K, 1 + size) of the coefficients of jointly fitted groups.

    ``fit_unpenalised(rows)`` fits the groups, and `influence` is its result for the rows with the
    full survey weights.
    """
    K, n_coefficients = influence.coefficients.shape
    moves = _moves(influence)

    def estimate(reweighted: Sample) -> np.ndarray:
        """Return the coefficients (K (1 + size),) fitted to a replicate's rows."""
        # coefficients of groups without rows have no estimate
        if not reweighted.group_totals(K).all():
            return np.full(K * n_coefficients, np.nan)
        fitted = fit_unpenalised(reweighted)
        is_lost = _moves(fitted) & ~moves
        return np.where(is_lost, np.inf, fitted.coefficients).ravel()

    if survey.replicates is None:
        return linearised(
            lambda chunk: _joint_influences(influence, chunk), K * n_coefficients, rows, survey
        ).reshape(-1, K, n_coefficients)
    return replicated(estimate, influence.coefficients.ravel(), rows, survey).reshape(
        -1, K, n_coefficients
    )


def location_deviations(
    influence: LocationInfluence, rows: Sample, survey: SurveySample
) -> np.ndarray:
    """Return the deviations (u, K, d) of the parameters of a location model.

    Any transformation of the numeric predictors is treated as fixed. `rows` contains the rows of
    all groups, because groups may have a common covariance.
    """
    location = influence.location
    model = location.model
    K = len(location.n)
    number, column = influence.coefficients
    i, j = influence.edges
    n_means = len(number)

    def influences(chunk: Sample) -> np.ndarray:
        """Return the influences (n, K d) of rows per unit of weight."""
        out = np.zeros((chunk.n, K, influence.size))
        for g in np.unique(chunk.response[chunk.response >= 0]):
            own = np.flatnonzero(chunk.response == g)
            codes = chunk.codes[own]
            out[own, g, :n_means] = influence.coefficient_influences(codes, int(g))
            affected = range(K) if model.covariance == "shared" else (int(g),)
            for h in affected:
                out[own, h, n_means:] = influence.covariance_influences(codes, int(g))
        return out.reshape(chunk.n, -1)

    def parameters(fitted: Location) -> np.ndarray:
        """Return the parameters (K d,) of all groups."""
        return np.hstack([fitted.C[:, column, number], fitted.S[:, i, j]]).ravel()

    def estimate(reweighted: Sample) -> np.ndarray:
        """Return the parameters fitted to a replicate's rows; nan if a group has no covariance."""
        if not (reweighted.group_totals(K)[location.n > 0.0] > 0.0).all():
            return np.full(K * influence.size, np.nan)
        T = model.moments(reweighted, K, location.scores)
        try:
            return parameters(model.from_moments(T, location.scores))
        except DataError:
            return np.full(K * influence.size, np.nan)

    deviations = (
        linearised(influences, K * influence.size, rows, survey)
        if survey.replicates is None
        else replicated(estimate, parameters(location), rows, survey)
    )
    return deviations.reshape(-1, K, influence.size)


def step_deviations(influence: JointInfluence, rows: Sample, survey: SurveySample) -> np.ndarray:
    """Return the deviations (u, K, 1 + size) of one Newton step of all coefficients.

    `influence` is the influence of `rows` at the starting point of the step (`JointInfluence.at`).
    A step is a linear function of the weights, so replicates do not have to be refitted.
    """
    K, n_coefficients = influence.coefficients.shape

    def step(reweighted: Sample) -> np.ndarray:
        """Return the step (K (1 + size),) for a replicate's rows."""
        return reweighted.weights @ _joint_influences(influence, reweighted)

    deviations = (
        linearised(
            lambda chunk: _joint_influences(influence, chunk), K * n_coefficients, rows, survey
        )
        if survey.replicates is None
        else replicated(step, step(rows), rows, survey)
    )
    return deviations.reshape(-1, K, n_coefficients)


def _joint_influences(influence: JointInfluence, rows: Sample) -> np.ndarray:
    """Return the influences (n, K (1 + size)) of rows on all coefficients, per unit of weight."""
    return influence(rows).reshape(rows.n, influence.coefficients.size) / influence.total


def _moves(influence: JointInfluence) -> np.ndarray:
    """Return a mask (K, 1 + size) of the coefficients that change along unidentified directions."""
    return (np.abs(influence.flat) > FLAT).any(axis=2)


def _absent_levels(rows: Sample, layout: Layout) -> set[tuple[int, int]]:
    """Return the levels that do not occur, as pairs (predictor, code)."""
    counts = level_counts(rows, layout.n_levels)
    return {(i, int(code)) for i, n in enumerate(counts) for code in np.flatnonzero(n == 0.0)}


def _uses(layout: Layout, levels: set[tuple[int, int]]) -> np.ndarray:
    """Return a mask (size,) of parameters that involve any of the `levels` (predictor, code).

    Code 0 is the reference level, which is involved in all parameters of its predictor.
    """
    out = np.zeros(layout.size, dtype=bool)
    for scope in layout.scopes if levels else ():
        positions = layout.table(np.arange(layout.size), *scope)
        for axis, predictor in enumerate(scope):
            for i, code in levels:
                if i == predictor:
                    compared = positions if code == 0 else positions.take(code - 1, axis)
                    out[compared] = True
    return out


def share_deviations(rows: Sample, survey: SurveySample) -> np.ndarray:
    """Return the deviations (u, 1) of the logarithm of the total weight of a group's `rows`."""
    total = rows.total  # the derivative of ln(total) with respect to a row's weight is 1 / total
    if survey.replicates is None:
        return linearised(lambda chunk: np.full((chunk.n, 1), 1.0 / total), 1, rows, survey)
    return replicated(lambda reweighted: np.log([reweighted.total]), np.log([total]), rows, survey)
