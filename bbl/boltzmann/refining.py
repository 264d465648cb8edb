"""The conditional-likelihood member of `method="auto"` for many rows.

This member is fitted either on its own or as a refinement of a pseudo-likelihood fit. K is the
number of groups and m the number of predictors.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bbl.boltzmann.estimate import estimate_jointly, estimate_path
from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.grid_search import descend
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.tuning_record import Tuning
from bbl.boltzmann.validation import Validated, validate
from bbl.crossval import calibrated
from bbl.engines import Conditional, PseudoLikelihood
from bbl.engines.base import WarmStarts
from bbl.engines.engine_fit import JointFit
from bbl.engines.traits import OutOfFoldScores
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration

__all__ = ["refine"]

# The grid of settings for the conditional fit: start, prior scale of couplings, and ridge.
STARTS: tuple[str | None, ...] = (None, "pseudo")
SCALES = (0.1, 0.5, 8.0)  # relative to the prior scale of fields
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)  # to be divided by the number of observations
FIRST = (1, 1, 2)  # positions in STARTS, SCALES and RIDGES at which the search starts
EPOCHS = 12  # minimum number of passes over the rows in the final fit
# minimum number of rows times passes in the final fit: fewer rows require more passes
MIN_VISITS = 240_000
COMPARISON_EPOCHS = 8  # passes over the rows for comparing settings
COMPARISON_ROWS = (6000, 5000)  # numbers of training and held-out rows for comparing settings


def refine(
    data: FitData,
    spec: FitSpec,
    folds: Folds,
    generative: Tuning,
    warm_starts: list[WarmStarts],
) -> tuple[Estimate, Tuning]:
    """Fit all rows by conditional likelihood, at the setting with the smallest held-out log-loss.

    Combinations of start, scale and ridge are fitted to the training rows of the first of the
    `folds`, and compared by their log-loss on its held-out rows. A fit starts from zero or from
    out-of-fold pseudo-likelihood scores. The scores of held-out rows are taken from the tuning, and
    the scores of training rows from fits to the other folds. These fits include the held-out rows.
    The held-out rows therefore affect the scores of training rows, but no other part of the
    refinement.

    Parameters
    ----------
    data : FitData
    spec : FitSpec
        Specification of the fit; its engine is ignored.
    folds : Folds
        The folds; `generative` was tuned on the first of them.
    generative : Tuning
        The tuning of pseudo-likelihood.
    warm_starts : list of WarmStarts
        The solution for each group on the first fold, used to start fits on the other folds.

    Returns
    -------
    estimate : Estimate
        The uncalibrated fit to all rows.
    tuning : Tuning
        The held-out scores at the selected setting, with their calibration.

    Notes
    -----
    Pseudo-likelihood requires a weaker penalty if its fit is refined, because refinement can
    correct overconfident scores but cannot restore effects that a penalty has shrunk.
    """
    sample = data.rows
    layout = data.layout
    K = data.K
    rng = spec.rng
    start_engine = generative.engine
    held_out_scores = generative.scored
    assert isinstance(start_engine, PseudoLikelihood) and held_out_scores is not None  # noqa: S101  # as tuned
    start_spec = spec.using(start_engine)
    oof_scores = _score_by_start(data, start_spec, folds, held_out_scores, warm_starts)
    # positions in `oof_scores` of the rows that the first fold holds out, and of its training rows
    held_out, training = np.split(np.arange(len(oof_scores.rows)), [len(held_out_scores.rows)])

    def score_held_out(
        engine: Conditional, fitted: np.ndarray, scored: np.ndarray
    ) -> tuple[Validated, float]:
        """Fit the rows in `fitted`, and return the scores and the log-loss of the rows in `scored`.

        Both arguments contain positions in `oof_scores`.
        """
        refined = _fit_by_batches(engine, sample, layout, K, oof_scores, fitted, rng)
        scores = (
            energies(sample.codes[oof_scores.rows[scored]], layout, refined.theta)
            + refined.constant
        )
        scores += refined.temperature * oof_scores.scores[scored] if engine.start else 0.0
        # groups without training rows keep the score -inf
        scores = np.where(np.isneginf(oof_scores.scores[scored]), -np.inf, scores)
        # a copy of the held-out record with other rows and scores, all in fold 0
        scored_fit = replace(
            held_out_scores,
            scores=scores[None],
            fits=[],
            found=[],
            y=sample.response[oof_scores.rows[scored]],
        )
        fold = np.zeros(len(scored), dtype=np.intp)
        scored_fit = replace(
            scored_fit, weights=oof_scores.weights[scored], rows=oof_scores.rows[scored], fold=fold
        )
        return scored_fit, scored_fit.log_loss(calibrated(scored_fit, scores, "temperature"))

    def engine_at(position: tuple[int, ...], total: float, epochs: int) -> Conditional:
        """Return the engine at a grid position (start, scale, ridge), given the `total` weight."""
        ridge = RIDGES[position[2]] / total
        return Conditional(
            ridge=ridge,
            scale=SCALES[position[1]],
            start=STARTS[position[0]],
            lambda_=start_engine.setting,
            epochs=epochs,
            early_stopping=True,
        )

    sampled_rows = [  # from the training rows, then from the held-out rows
        np.sort(rng.permutation(positions)[:n_rows])
        for positions, n_rows in zip((training, held_out), COMPARISON_ROWS, strict=True)
    ]
    total = float(oof_scores.weights[sampled_rows[0]].sum())
    with serial_blas():
        sizes = len(STARTS), len(SCALES), len(RIDGES)
        best = descend(
            sizes,
            FIRST,
            lambda position: score_held_out(
                engine_at(position, total, COMPARISON_EPOCHS), *sampled_rows
            )[1],
        )
        epochs = max(EPOCHS, -(-MIN_VISITS // sample.n))  # rounded up
        scored_fit, loss = score_held_out(
            engine_at(best, float(oof_scores.weights[training].sum()), epochs), training, held_out
        )
    engine = engine_at(best, sample.total, epochs)
    calibration = fit_calibration(
        scored_fit.scores[0], scored_fit.y, scored_fit.weights, "temperature"
    )
    refined_tuning = Tuning(
        option=None,
        values=np.zeros(1),
        loss=np.array([loss]),
        chosen=0,
        calibration=calibration,
        found=[],
        scored=scored_fit,
        engine=engine,
    )
    start = (oof_scores, estimate_path(data, start_spec)[0]) if engine.start else None
    refined = estimate_jointly(data, spec.using(engine), generative=start)[0]
    return refined, refined_tuning


def _score_by_start(
    data: FitData,
    spec: FitSpec,
    folds: Folds,
    held_out_scores: Validated,
    warm_starts: list[WarmStarts],
) -> OutOfFoldScores:
    """Return the out-of-fold scores of the fit that the refinement starts from.

    This fit uses the engine of `spec`. The scores of the first fold's held-out rows come first;
    these are `held_out_scores`, which the tuning has computed. The scores of all other rows follow,
    and are computed from fits to the other folds. `warm_starts` is the same as in `refine`.
    """
    # train, held (folds, n): weights of rows in the training and the validation of each fold
    other_folds = Folds(folds.train[1:], folds.validation_weights[1:])
    setting = [float(spec.engine.setting)]
    # for each other fold, copies of the solutions by group
    warm_start_sets = [
        [WarmStarts(group_starts) for group_starts in warm_starts] for _ in range(len(other_folds))
    ]
    training_scores = validate(data, spec, setting, other_folds, warm_start_sets=warm_start_sets)
    score_arrays = [
        (validated.rows, validated.weights, validated.scores[0])
        for validated in (held_out_scores, training_scores)
    ]
    return OutOfFoldScores(*(np.concatenate(arrays) for arrays in zip(*score_arrays, strict=True)))


def _fit_by_batches(
    engine: Conditional,
    sample: Sample,
    layout: Layout,
    K: int,
    oof_scores: OutOfFoldScores,
    positions: np.ndarray,
    rng: np.random.Generator,
) -> JointFit:
    """Fit the rows at `positions` in `oof_scores`, starting from their scores if required."""
    rows = replace(sample.rows(oof_scores.rows[positions]), weights=oof_scores.weights[positions])
    batch_scores = (
        OutOfFoldScores(
            np.arange(len(positions)), oof_scores.weights[positions], oof_scores.scores[positions]
        )
        if engine.start
        else None
    )
    return engine.by_batches(rows, layout, K, batch_scores, rng)
