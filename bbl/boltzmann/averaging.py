"""The average of methods that `method="auto"` stands for: its members tuned on the same folds, and their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from bbl.boltzmann.estimate import Estimate, estimate
from bbl.boltzmann.refining import refine
from bbl.boltzmann.task import Run, Task
from bbl.boltzmann.tuning import NFOLD, Tuning, tune, tune_many
from bbl.crossval import Scored, calibrated
from bbl.engines import Conditional, Engine, MeanField, PseudoLikelihood
from bbl.rows.folds import Folds, shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.averaging import averaged_scores, convex_weights
from bbl.stats.loss_record import HELD_OUT, LossRecord
from bbl.stats.scores import log_probabilities

__all__ = ["PREPARED_AS", "Averaged", "Member", "fit_average", "out_of_fold", "silent_rows", "weigh"]

SINGLE_HOLDOUT_ABOVE = 5000  # distinct rows: beyond, one fifth is held out once, and a member may be refined
TUNING_ROWS = (5000, 2000)  # of many rows: those that settings are first fitted to, and those they are compared on
PRIOR_COUNTS = (1.0, 0.1)  # of pseudo-likelihood; 0.1 as well, because one observation is much of a small group
TOLERANCE = 1e-6  # gradient norm of pseudo-likelihood
CALIBRATION = "firm"  # of class scores
CALIBRATION_OF_MANY_ROWS = "temperature"  # of class scores, with a single held-out fold
CONDITIONAL_SCALES = (0.5, 0.1, 2.0)  # prior scales of couplings, as `scale` of conditional likelihood
CONDITIONAL_RIDGES = tuple(10.0 ** np.arange(-8.0, -0.9))
SINGLE_PRECISION_TOLERANCE = 1e-5  # of many rows, which are fitted in single precision: its rounding allows no less
COMPARISON_TOLERANCE = 1e-4  # of fits of many rows whose scores are only compared

PREPARED_AS = MeanField()  # every member accepts the formulas and rows that this one accepts


@dataclass(frozen=True)
class Member:
    """A method with its setting.

    Attributes
    ----------
    engine : Engine
    estimate : Estimate
        Of all rows, with its calibration.
    tuning : Tuning
    """

    engine: Engine
    estimate: Estimate
    tuning: Tuning


@dataclass(frozen=True)
class Averaged:
    """An average of members on the scale of probabilities.

    Attributes
    ----------
    members : tuple of Member
    weights : ndarray, shape (M,)
    losses : ndarray, shape (M,)
        Out-of-fold log-loss of each member by itself.
    log_loss : LossRecord or None
        Out-of-fold log-loss of the average.
    """

    members: tuple[Member, ...]
    weights: np.ndarray
    losses: np.ndarray
    log_loss: LossRecord | None

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the logarithms of the averaged probabilities (n, K)."""
        silent = [silent_rows(bool(member.engine.joint), missing) for member in self.members]
        scores = [
            member.estimate.class_scores(codes, missing if rows is None else blank(missing, rows))
            for member, rows in zip(self.members, silent, strict=True)
        ]
        return averaged_scores(scores, self.weights, silent)


def silent_rows(needs_complete_rows: bool, missing: np.ndarray | None) -> np.ndarray | None:
    """Return the incomplete rows (n,) if a method cannot sum out missing values, so that its scores say nothing."""
    return np.asarray(missing.any(axis=1)) if missing is not None and needs_complete_rows else None


def blank(missing: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Return `missing` (n, m) where nothing is known of `rows`: any method gives these the shares of the groups."""
    return np.repeat(rows[:, None], 0 if missing is None else missing.shape[1], axis=1)


def out_of_fold(scored: Scored, calibrate: str) -> np.ndarray:
    """Return the log-probabilities (N,) of the groups of validated rows, each fold calibrated on the others."""
    scores = calibrated(scored, scored.scores[0], calibrate)
    return log_probabilities(scores)[np.arange(len(scored.y)), scored.y]


def _fitted(task: Task, engine: Engine, found: Tuning, run: Run) -> Member:
    """Return a member that is fitted to all rows."""
    fitted = estimate(task, engine, run.reporting(None))
    return Member(engine, replace(fitted, calibration=found.calibration), replace(found, engine=engine))


def _members(task: Task, folds: Folds, run: Run) -> list[Member]:
    """Return the members, tuned on all folds."""
    counts = [PseudoLikelihood(prior_count=count, tolerance=TOLERANCE) for count in PRIOR_COUNTS]
    scales = [Conditional(scale=scale, early_stopping=True) for scale in CONDITIONAL_SCALES]
    kinds: list[tuple[Engine, Any]] = [(MeanField(), None), (counts[0], (counts, PseudoLikelihood.tuned.grid))]
    if task.sample.complete:
        kinds.append((Conditional(early_stopping=True), (scales, CONDITIONAL_RIDGES)))
    members = []
    for engine, among in kinds:
        tuned = tune(task, engine, "cv", CALIBRATION, run, folds=folds, among=among)
        members.append(_fitted(task, tuned.engine or engine, tuned, run))
    return members


def _members_of_many(task: Task, folds: Folds, run: Run) -> list[Member]:
    """Return the members for many rows, tuned on a sample of the first fold, then on the whole first fold."""
    first_fold = Folds(folds.train[:1], folds.held[:1])
    sample_folds = Folds(
        *(
            _sample_weights(fold_rows, n_rows, run.rng)
            for fold_rows, n_rows in zip((first_fold.train, first_fold.held), TUNING_ROWS, strict=True)
        )
    )
    calibrate = CALIBRATION_OF_MANY_ROWS
    tuned, _, _ = tune_many(task, MeanField(), first_fold, sample_folds, calibrate, run)
    assert tuned.engine is not None  # noqa: S101  # a fresh tuning has it
    members = [_fitted(task, tuned.engine, tuned, run)]
    pseudo_likelihood = PseudoLikelihood(prior_count=1.0, tolerance=COMPARISON_TOLERANCE, precision="single")
    tuned, last, warm_starts = tune_many(task, pseudo_likelihood, first_fold, sample_folds, calibrate, run)
    assert isinstance(tuned.engine, PseudoLikelihood)  # noqa: S101
    members.append(_fitted(task, replace(tuned.engine, tolerance=SINGLE_PRECISION_TOLERANCE), tuned, run))
    if task.sample.complete:
        fitted, tuned = refine(task, folds, last, warm_starts, run.reporting(None))
        assert tuned.engine is not None  # noqa: S101
        members.append(Member(tuned.engine, replace(fitted, calibration=tuned.calibration), tuned))
    if run.progress is not None:
        run.progress(float(NFOLD))
    return members


def _sample_weights(weights: np.ndarray, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return the weights (1, n) of at most `n_rows` rows drawn at random; those of all other rows are zero."""
    out, rows = np.zeros_like(weights), rng.permutation(np.flatnonzero(weights[0]))[:n_rows]
    out[0, rows] = weights[0, rows]
    return out


def fit_average(task: Task, run: Run) -> Averaged:
    """Tune, fit and calibrate mean field, pseudo-likelihood and conditional likelihood, and weigh them.

    All are compared on the same shuffled folds; over 5,000 rows on one fold, and their settings on some of the rows.
    There conditional likelihood may refine pseudo-likelihood. Where values are missing, it is left out. Neither
    repeated rows, against weights, nor the order of rows make a difference.
    """
    sample = cast(Sample, task.sample).by_state(task.layout.n_levels, task.K)
    task, folds = task.of(sample), shuffled_folds(sample, NFOLD, run.rng)
    fit_members, kind = (
        (_members_of_many, CALIBRATION_OF_MANY_ROWS) if sample.n > SINGLE_HOLDOUT_ABOVE else (_members, CALIBRATION)
    )
    members = fit_members(task, folds, run)
    scored: list[Any] = [member.tuning.scored for member in members]
    log_p = np.array([out_of_fold(oof_scores, kind) for oof_scores in scored])
    totals = np.bincount(sample.response, sample.weights, task.K)
    weights, losses, record = weigh(log_p, scored[0], totals)
    return Averaged(tuple(members), weights, losses, record)


def weigh(
    log_p: np.ndarray, scored: Scored, totals: np.ndarray, advice: str = ""
) -> tuple[np.ndarray, np.ndarray, LossRecord | None]:
    """Return the weights (M,) of members, the log-loss (M,) of each by itself, and that of the average.

    Parameters
    ----------
    log_p : ndarray, shape (M, N)
        Log-probabilities of the groups of validated rows by every member.
    scored : Scored
        Of one of the members: groups, weights and folds of the rows.
    totals : ndarray, shape (K,)
        Weights of the groups in all rows.
    advice : str
        What lowers a log-loss above that of the shares of the groups.
    """
    v, weights = scored.weights, convex_weights(log_p, scored.weights)
    is_scored = np.isfinite(log_p).all(axis=0)  # of the other rows, some fold had no training row of their group
    if not is_scored.any():
        return weights, np.full(len(log_p), np.nan), None
    shares = scored.log_shares(totals)[scored.fold, scored.y]
    averaged = np.logaddexp.reduce(log_p + np.log(weights)[:, None], axis=0)
    losses, loss, baseline = (
        -(log_probability[..., is_scored] @ v[is_scored]) / v[is_scored].sum()
        for log_probability in (log_p, averaged, shares)
    )
    return weights, losses, LossRecord(float(loss), float(baseline), HELD_OUT, advice)
