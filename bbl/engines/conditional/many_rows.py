"""Conditional fits to many rows, by minibatches followed by L-BFGS on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bbl.engines.conditional.coding import coding_of
from bbl.engines.conditional.discriminative import HARMLESS, OFFSET_PENALTY, Tolerance, bound_scores
from bbl.engines.conditional.folds import EARLY
from bbl.engines.conditional.full_batch import FullBatch
from bbl.engines.engine_fit import JointFit
from bbl.engines.traits import OutOfFoldScores
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["fit_many_rows"]

# for L-BFGS on all rows, at half the gradient that counts as converged
FINISHED = Tolerance(gradient=0.5 * HARMLESS, gain=0.0, rounds=1000)


def fit_many_rows(
    engine: Any,
    sample: Sample,
    layout: Layout,
    K: int,
    ridges: Sequence[float],
    oof_scores: OutOfFoldScores | None,
    rng: np.random.Generator,
) -> list[JointFit]:
    """Fit all K groups at each of the `ridges`, from the largest to the smallest.

    The first fit starts with minibatches, and each later fit starts from the previous fit. All fits
    are completed by L-BFGS. With ``early_stopping``, however, every fit consists of minibatches
    only. Minibatches use one parameter per level. If ordered predictors have a different coding, a
    few steps of L-BFGS follow the minibatches even with ``early_stopping``.

    Parameters
    ----------
    engine : Conditional
        The engine. All of its options except the ridge are used.
    sample : Sample
    layout : Layout
    K : int
    ridges : sequence of float
    oof_scores : OutOfFoldScores or None
        Fixed class scores, used as an offset in the fit: `scores` (N, K) of N rows of the sample,
        with positions `rows` (N,) and weights `weights` (N,).
    rng : Generator

    Returns
    -------
    list of JointFit
        One fit for each ridge, in the order of `ridges`.
    """
    rows = (
        sample
        if oof_scores is None
        else replace(sample.rows(oof_scores.rows), weights=oof_scores.weights)
    )
    scores = None
    offset_penalty = OFFSET_PENALTY
    if oof_scores is not None:
        # the penalties on the offsets and the temperature have the weight of one observation
        scores = bound_scores(oof_scores.scores)
        offset_penalty = 1.0 / rows.total
    ends_with_minibatches = engine.early_stopping and coding_of(layout, engine.ordered).is_nominal
    fit, fits = None, {}  # the previous `JointFit`; all fits, by position in `ridges`
    for k in sorted(range(len(ridges)), key=lambda k: ridges[k], reverse=True):
        objective = FullBatch(
            rows.codes,
            rows.response,
            rows.weights,
            layout,
            K,
            float(engine.scale),
            ridges[k],
            offset_penalty,
            scores,
            engine.ordered,
        )
        if fit is None or engine.early_stopping:
            fit = replace(engine, ridge=ridges[k]).by_batches(sample, layout, K, oof_scores, rng)
        # the scaled unknowns: fields and couplings (K, size), constants (K,) and temperature in one
        # vector
        unknowns = objective.to_vector(fit.theta, fit.constant, fit.temperature)
        if not ends_with_minibatches:
            tolerance = EARLY if engine.early_stopping else FINISHED
            unknowns = objective.minimise(unknowns, tolerance.gradient, tolerance.rounds)
            theta, constant, temperature = objective.tables(unknowns)
            fit = fit._replace(theta=theta, constant=constant, temperature=temperature)
        # [0] is the objective; the call also sets `loss`
        gradient = float(np.abs(objective(unknowns)[1]).max())
        fit = fit._replace(
            loss=objective.loss, gradient=gradient, evaluations=objective.evaluations
        )
        fit = fits[k] = fit._replace(converged=gradient <= HARMLESS)
    return [fits[k] for k in range(len(ridges))]
