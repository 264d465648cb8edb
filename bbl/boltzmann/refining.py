"""The conditional member of `method="auto"` where rows are many: alone, or refining a pseudo-likelihood fit."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from bbl.boltzmann.estimate import estimate, estimate_jointly
from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.task import Run, Task
from bbl.boltzmann.tuning import descend
from bbl.boltzmann.tuning_record import Tuning
from bbl.boltzmann.validation import Validated, validate
from bbl.crossval import calibrated
from bbl.engines import Conditional, PseudoLikelihood
from bbl.engines.engine_fit import JointFit
from bbl.engines.traits import OutOfFoldScores
from bbl.engines.warm_starts import WarmStarts
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration

__all__ = ["refine"]

STARTS: tuple[str | None, ...] = (None, "pseudo")  # of the conditional fit; the three lists make a grid
SCALES = (0.1, 0.5, 8.0)
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)  # divided by the number of observations
FIRST = (1, 1, 2)  # positions in STARTS, SCALES and RIDGES at which the search begins
EPOCHS = 12  # passes over the rows
MIN_VISITS = 240_000  # rows times passes; few rows are passed more often
COMPARISON_EPOCHS = 8  # passes over the rows where settings are compared
COMPARISON_ROWS = (6000, 5000)  # training and held-out rows where settings are compared


def refine(
    task: Task, folds: Folds, generative: Tuning, warm_starts: list[WarmStarts], run: Run
) -> tuple[Estimate, Tuning]:
    """Return the conditional-likelihood fit to all rows, with the start, scale and ridge of least held-out log-loss.

    The rows that the first of `folds` holds out judge fits to its training rows. A fit starts from nothing or from the
    out-of-fold scores of pseudo-likelihood: those of held-out rows come from the tuning, those of training rows from
    fits to the other folds. These fits use held-out rows; the refinement sees them only through these scores.

    Parameters
    ----------
    folds : Folds
        The first is the one that `generative` was tuned on.
    generative : Tuning
        The tuning of pseudo-likelihood.
    warm_starts : list of WarmStarts
        The solution of each group on the first fold, where fits on the other folds start.

    Notes
    -----
    Pseudo-likelihood that is refined needs a weaker penalty than alone: the refinement corrects scores that are too
    sure, but does not bring back effects that a penalty has shrunk.
    """
    sample, layout, K, rng = cast(Sample, task.sample), task.layout, task.K, run.rng
    start_engine, scored = generative.engine, generative.scored
    assert isinstance(start_engine, PseudoLikelihood) and scored is not None  # noqa: S101  # a fresh tuning has both
    other_folds, setting = Folds(folds.train[1:], folds.held[1:]), [float(start_engine.setting)]
    starts = [[WarmStarts(group_starts) for group_starts in warm_starts] for _ in range(len(other_folds))]
    other_scored = validate(task, start_engine, setting, other_folds, run, warm_start_sets=starts)
    scored_arrays = [(validated.rows, validated.weights, validated.scores[0]) for validated in (scored, other_scored)]
    oof = OutOfFoldScores(*(np.concatenate(arrays) for arrays in zip(*scored_arrays, strict=True)))
    held_out, training = np.split(np.arange(len(oof.rows)), [len(scored.rows)])

    def judge(engine: Conditional, training: np.ndarray, held_out: np.ndarray) -> tuple[Validated, float]:
        """Return the scores of held-out rows by a fit to the training rows (both positions), and their log-loss."""
        refined = _by_batches(engine, sample, layout, K, oof, training, rng)
        scores = energies(sample.codes[oof.rows[held_out]], layout, refined.theta) + refined.constant
        scores += refined.temperature * oof.scores[held_out] if engine.start else 0.0
        # groups without training rows keep the score -inf
        scores = np.where(np.isneginf(oof.scores[held_out]), -np.inf, scores)
        out = replace(scored, scores=scores[None], fits=[], found=[], y=sample.response[oof.rows[held_out]])
        fold = np.zeros(len(held_out), dtype=np.intp)
        out = replace(out, weights=oof.weights[held_out], rows=oof.rows[held_out], fold=fold)
        return out, out.log_loss(calibrated(out, scores, "temperature"))

    def engine_at(place: tuple[int, ...], total: float, epochs: int) -> Conditional:
        ridge = RIDGES[place[2]] / total
        return Conditional(ridge, SCALES[place[1]], STARTS[place[0]], start_engine.setting, epochs, early_stopping=True)

    sampled_rows = [
        np.sort(rng.permutation(positions)[:n_rows])
        for positions, n_rows in zip((training, held_out), COMPARISON_ROWS, strict=True)
    ]
    total = float(oof.weights[sampled_rows[0]].sum())
    with serial_blas():
        sizes = len(STARTS), len(SCALES), len(RIDGES)
        best = descend(sizes, FIRST, lambda place: judge(engine_at(place, total, COMPARISON_EPOCHS), *sampled_rows)[1])
        epochs = max(EPOCHS, -(-MIN_VISITS // sample.n))
        out, loss = judge(engine_at(best, float(oof.weights[training].sum()), epochs), training, held_out)
    engine = engine_at(best, sample.total, epochs)
    calibration = fit_calibration(out.scores[0], out.y, out.weights, "temperature")
    refined = Tuning(None, np.zeros(1), np.array([loss]), 0, calibration, [], out, engine)
    start = (oof, estimate(task, start_engine, run)) if engine.start else None
    return estimate_jointly(task, engine, None, run, start)[0], refined


def _by_batches(
    engine: Conditional,
    sample: Sample,
    layout: Layout,
    K: int,
    oof: OutOfFoldScores,
    positions: np.ndarray,
    rng: np.random.Generator,
) -> JointFit:
    """Fit to the rows at `positions` of the out-of-fold scores `oof`, which are used if the engine has a start."""
    rows = replace(sample.rows(oof.rows[positions]), weights=oof.weights[positions])
    batch_scores = (
        OutOfFoldScores(np.arange(len(positions)), oof.weights[positions], oof.scores[positions])
        if engine.start
        else None
    )
    return engine.by_batches(rows, layout, K, batch_scores, rng)
