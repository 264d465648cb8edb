"""The conditional member of `method="auto"` where rows are many: alone, or refining a pseudo-likelihood fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bbl.boltzmann.estimate import Estimate, estimate, estimate_jointly
from bbl.boltzmann.tuning import Tuning, descend
from bbl.boltzmann.validation import Validated, validate
from bbl.crossval import calibrated
from bbl.design.labels import Labels
from bbl.engines import Conditional, PseudoLikelihood
from bbl.engines.base import OutOfFoldScores
from bbl.engines.engine_fit import JointFit
from bbl.engines.warm_starts import WarmStarts
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration

__all__ = ["refine"]

STARTS: tuple[str | None, ...] = (None, "pseudo")
SCALES = (0.1, 0.5, 8.0)
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)  # by the number of observations
FIRST = (1, 1, 2)  # where the search among these begins
EPOCHS = 12  # passes over the rows
MIN_VISITS = 240_000  # visits of rows in all passes: few rows are passed more often
COMPARISON_EPOCHS = 8  # passes over the rows where settings are compared
COMPARISON_ROWS = (6000, 5000)  # rows of a fit, and held-out rows, where settings are compared


def refine(
    sample: Sample,
    labels: Labels,
    layout: Layout,
    folds: Folds,
    generative: Tuning,
    warm_starts: list[WarmStarts],
    *,
    log_z: str,
    workers: int,
    rng: np.random.Generator,
) -> tuple[Estimate, Tuning]:
    """Fit conditional likelihood to the rows that the first of `folds` does not hold, and to all.

    Alone or on the scores of pseudo-likelihood, with the scale and the ridge that predict some held rows best. Those
    scores are out of fold: of the held rows they are known from the tuning, of the others from fits to the other folds'
    training rows. The latter have seen the held rows, of which the refinement hears nothing but through them.

    Parameters
    ----------
    folds : Folds
        The first is the one that `generative` was tuned on.
    generative : Tuning
        Of pseudo-likelihood.
    warm_starts : list of WarmStarts
        Of each group the solution on the first fold, where fits on the others start.

    Notes
    -----
    What is refined is better penalised less than what stands alone: the refinement mends scores that are too sure, but
    not what a penalty has taken out of them.
    """
    K, near, scored = len(labels.groups), generative.engine, generative.scored
    assert isinstance(near, PseudoLikelihood) and scored is not None  # noqa: S101  # a fresh tuning has both
    fitting_options: dict[str, Any] = {"log_z": log_z, "workers": workers, "rng": rng}
    other_folds, setting = Folds(folds.train[1:], folds.held[1:]), [float(near.setting)]
    starts = [[WarmStarts(group_trail) for group_trail in warm_starts] for _ in range(len(other_folds))]
    other_predictions = validate(
        sample, labels, layout, near, setting, other_folds, warm_start_sets=starts, **fitting_options
    )
    parts = (
        (scored.rows, scored.weights, scored.scores[0]),
        (other_predictions.rows, other_predictions.weights, other_predictions.scores[0]),
    )
    every = OutOfFoldScores(*(np.concatenate(both) for both in zip(*parts, strict=True)))
    held, seen = np.split(np.arange(len(every.rows)), [len(scored.rows)])

    def judged(engine: Conditional, seen: np.ndarray, held: np.ndarray) -> tuple[Validated, float]:
        """Return the scores of held rows by a fit to those that are seen, and their log-loss."""
        refined = _by_batches(engine, sample, layout, K, every, seen, rng)
        scores = energies(sample.codes[every.rows[held]], layout, refined.theta) + refined.constant
        scores += refined.temperature * every.scores[held] if engine.start else 0.0
        # of groups that the fold's training rows have not
        scores = np.where(np.isneginf(every.scores[held]), -np.inf, scores)
        out = replace(scored, scores=scores[None], fits=[], found=[], y=sample.response[every.rows[held]])
        out = replace(out, weights=every.weights[held], rows=every.rows[held], fold=np.zeros(len(held), dtype=np.intp))
        return out, out.log_loss(calibrated(out, scores, "temperature"))

    def engine_at(place: tuple[int, ...], total: float, epochs: int) -> Conditional:
        ridge = RIDGES[place[2]] / total
        return Conditional(ridge, SCALES[place[1]], STARTS[place[0]], near.setting, epochs, early_stopping=True)

    sampled_rows = [
        np.sort(rng.permutation(each)[:most]) for each, most in zip((seen, held), COMPARISON_ROWS, strict=True)
    ]
    total = float(every.weights[sampled_rows[0]].sum())
    with serial_blas():
        sizes = len(STARTS), len(SCALES), len(RIDGES)
        best = descend(sizes, FIRST, lambda place: judged(engine_at(place, total, COMPARISON_EPOCHS), *sampled_rows)[1])
        epochs = max(EPOCHS, -(-MIN_VISITS // sample.n))
        out, loss = judged(engine_at(best, float(every.weights[seen].sum()), epochs), seen, held)
    engine = engine_at(best, sample.total, epochs)
    heat = fit_calibration(out.scores[0], out.y, out.weights, "temperature")
    refined = Tuning(None, np.zeros(1), np.array([loss]), 0, heat, [], out, engine)
    start = (every, estimate(sample, layout, K, near, labels=labels, **fitting_options)) if engine.start else None
    return estimate_jointly(sample, layout, K, engine, None, log_z, workers, rng, None, start)[0], refined


def _by_batches(
    engine: Conditional,
    sample: Sample,
    layout: Layout,
    K: int,
    every: OutOfFoldScores,
    at: np.ndarray,
    rng: np.random.Generator,
) -> JointFit:
    """Fit to those of the rows `every` of which scores are known that stand `at` some positions."""
    rows = replace(sample.rows(every.rows[at]), weights=every.weights[at])
    given_scores = OutOfFoldScores(np.arange(len(at)), every.weights[at], every.scores[at]) if engine.start else None
    return engine.by_batches(rows, layout, K, given_scores, rng)
