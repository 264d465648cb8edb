"""Covariances under a sampling design: of the estimates of a group, linearised or from refits to replicate weights.

*Deviations*: a matrix E (u, size) with ``E'E`` the design covariance of the estimates. Its u rows are clusters or
replicates, the same for all groups of a fit, so that ``E_a'E_b`` is the covariance of the estimates of two groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bbl.engines import Engine
from bbl.errors import DataWarning
from bbl.memory import check_memory
from bbl.model.godambe import RowInfluence
from bbl.model.joint_influence import JointInfluence
from bbl.rows.sample import Sample
from bbl.stats.survey.sample import SurveySample

__all__ = [
    "effective_rows",
    "joint_deviations",
    "linearised",
    "penalised_deviations",
    "replicated",
    "share_deviations",
    "unpenalised_deviations",
]

BLOCK = 2**22  # influences of rows on parameters that are held at a time


def effective_rows(sample: Sample) -> Sample:
    """Return the rows with weights that sum to their effective number ``(sum w)^2 / sum w^2`` (Kish 1965)."""
    total, squares = sample.total, float(sample.weights @ sample.weights)
    return replace(sample, weights=sample.weights * (total / squares)) if sample.n else sample


def linearised(influences: Callable[[Sample], np.ndarray], size: int, rows: Sample, survey: SurveySample) -> np.ndarray:
    """Return the deviations (u, size) of an estimate from the influences (n, size) of its rows, per unit of weight."""
    plan = survey.plan
    check_memory(
        32.0 * plan.n_units * size,
        f"Totals of {size} parameters in {plan.n_units:,} clusters",
        "Fit fewer predictors or fewer interactions.",
    )
    totals, first = np.zeros((plan.n_units, size)), 0
    for chunk in rows.blocks(max(1, BLOCK // max(size, 1))):
        plan.totals(influences(chunk) * chunk.weights[:, None], survey.rows[first : first + chunk.n], totals)
        first += chunk.n
    return plan.deviations(totals, survey.rows)


def replicated(
    estimate: Callable[[Sample], np.ndarray], full: np.ndarray, rows: Sample, survey: SurveySample
) -> np.ndarray:
    """Return the deviations (u, size) of an estimate `full` (size,) from estimates of rows reweighted by replicates.

    Replicates without rows, or without an estimate, count nothing, with a DataWarning.
    """
    assert survey.replicates is not None  # noqa: S101  # checked by its callers
    weights = survey.replicates.weights[survey.rows]
    estimates = np.full((weights.shape[1], len(full)), np.nan)
    for r in range(len(estimates)):
        chosen = rows.weighted(weights[:, r])
        if chosen.n:
            estimates[r] = estimate(chosen)
    n_lost = int((~np.isfinite(estimates).all(axis=1)).sum())
    if n_lost:
        warnings.warn(
            f"{n_lost} of {len(estimates)} replicates have no rows of a group, and count nothing, so that standard "
            "errors may be too small. Merge rare groups, or make the design without replicates (type).",
            DataWarning,
            stacklevel=2,
        )
    return survey.replicates.deviations(estimates, full)


def penalised_deviations(
    influence: RowInfluence, rows: Sample, theta: np.ndarray, engine: Engine, survey: SurveySample
) -> np.ndarray:
    """Return the deviations (u, size) of the fitted parameters `theta` of a group, with the influence of its rows."""
    layout = influence.layout

    def estimate(chosen: Sample) -> np.ndarray:
        return engine.fit(engine.prepare(chosen.collapsed(layout.n_levels), layout), layout, start=theta).theta

    if survey.replicates is not None:
        return replicated(estimate, theta, rows, survey)
    return linearised(lambda chunk: influence(chunk) / influence.total, layout.size, rows, survey)


def unpenalised_deviations(
    influence: RowInfluence, rows: Sample, theta: np.ndarray, sites: np.ndarray, engine: Engine, survey: SurveySample
) -> np.ndarray:
    """Return the deviations (u, size) of the estimates `theta` of a group by `Engine.unpenalised`."""
    layout = influence.layout

    def estimate(chosen: Sample) -> np.ndarray:
        fitted, _, _ = engine.unpenalised(chosen.collapsed(layout.n_levels), layout, theta, sites)
        return fitted

    if survey.replicates is not None:
        return replicated(estimate, theta, rows, survey)
    return linearised(lambda chunk: influence(chunk) / influence.total, layout.size, rows, survey)


def joint_deviations(
    influence: JointInfluence, maximum: Callable[[Sample], JointInfluence], rows: Sample, survey: SurveySample
) -> np.ndarray:
    """Return the deviations (u, K, 1 + size) of the coefficients of groups that `maximum` fits together to rows."""
    K, p = influence.coefficients.shape

    def estimate(chosen: Sample) -> np.ndarray:
        if not chosen.group_totals(K).all():
            return np.full(K * p, np.nan)
        return maximum(chosen).coefficients.ravel()

    def influences(chunk: Sample) -> np.ndarray:
        return influence(chunk).reshape(chunk.n, K * p) / influence.total

    if survey.replicates is None:
        return linearised(influences, K * p, rows, survey).reshape(-1, K, p)
    return replicated(estimate, influence.coefficients.ravel(), rows, survey).reshape(-1, K, p)


def share_deviations(rows: Sample, survey: SurveySample) -> np.ndarray:
    """Return the deviations (u, 1) of the logarithm of the total weight of the rows of a group."""
    total = rows.total
    if survey.replicates is None:
        return linearised(lambda chunk: np.full((chunk.n, 1), 1.0 / total), 1, rows, survey)
    return replicated(lambda chosen: np.log([chosen.total]), np.log([total]), rows, survey)
