"""The conditional member of `method="auto"` where rows are many: alone, or refining a pseudo-likelihood fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bbl.boltzmann.estimate import Estimate, estimate_jointly
from bbl.boltzmann.tuning import Tuning
from bbl.boltzmann.validation import validate
from bbl.design.labels import Labels
from bbl.engines import Conditional, PseudoLikelihood
from bbl.engines.base import Given, JointFit
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration

__all__ = ["refine"]

SCALE, RIDGE = 8.0, 1e-5
EPOCHS, VISITS = 8, 480_000  # how often each row is taken, and how many rows at least
NEAR = 1e-4  # gradient at which pseudo-likelihood fits end whose scores are started from


def refine(
    sample: Sample,
    labels: Labels,
    layout: Layout,
    folds: Folds,
    generative: Tuning,
    whole: Estimate,
    *,
    log_z: str,
    workers: int,
    rng: np.random.Generator,
) -> tuple[Estimate, Tuning]:
    """Fit conditional likelihood to the rows that the first of `folds` does not hold, and to all.

    Alone or on the scores of pseudo-likelihood, whichever predicts the held rows better. Those scores are out of fold:
    of the held rows they are known from the tuning, of the others from fits to the other folds' training rows. The
    latter have seen the held rows, of which the refinement hears nothing but through them.

    Parameters
    ----------
    folds : Folds
        The first is the one that `generative` was tuned on.
    generative : Tuning
        Of pseudo-likelihood.
    whole : Estimate
        Its fit to all rows, not calibrated.
    """
    K, chosen, scored = len(labels.groups), generative.engine, generative.scored
    assert isinstance(chosen, PseudoLikelihood) and scored is not None  # noqa: S101  # a fresh tuning has both
    told: dict[str, Any] = {"log_z": log_z, "workers": workers, "rng": rng}
    others = Folds(folds.train[1:], folds.held[1:])
    near = replace(chosen, tolerance=max(chosen.tolerance, NEAR))
    rest = validate(sample, labels, layout, near, None, others, **told)
    seen = Given(rest.rows, rest.weights, rest.scores[0])
    parts = zip((scored.rows, scored.weights, scored.scores[0]), seen, strict=True)
    every = Given(*(np.concatenate(both) for both in parts))

    codes = sample.codes[scored.rows]

    def scores_of(found: JointFit) -> np.ndarray:
        return energies(codes, layout, found.theta) + found.constant

    epochs = max(EPOCHS, -(-VISITS // sample.n))
    refined = Conditional(RIDGE, SCALE, "pseudo", chosen.setting, epochs)
    alone = Conditional(RIDGE, SCALE, epochs=epochs)
    with serial_blas():
        own = refined.by_batches(sample, layout, K, seen, rng)
        by_itself = alone.by_batches(sample.weighted(folds.train[0]), layout, K, None, rng)
    tried = []
    for engine, scores in (
        (refined, scores_of(own) + own.temperature * scored.scores[0]),
        (alone, scores_of(by_itself)),
    ):
        absent = ~np.isfinite(scored.scores[0])
        result = replace(scored, scores=np.where(absent, -np.inf, scores)[None], fits=[], found=[])
        heat = fit_calibration(result.scores[0], scored.y, scored.weights, "temperature")
        loss = result.log_loss(heat(result.scores[0]))
        tried.append(Tuning(None, np.zeros(1), np.array([loss]), 0, heat, [], result, engine))
    best = min(tried, key=lambda each: each.loss[0])
    assert best.engine is not None  # noqa: S101
    start = (every, whole) if best.engine is refined else None
    return estimate_jointly(sample, layout, K, best.engine, None, log_z, workers, rng, None, start)[0], best
