"""`method="auto"`: members, tuned on the same folds, and the weights with which their probabilities are averaged.

A *member* is a tuned engine, fitted to all rows. K counts groups, M members, N validated rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.boltzmann.estimate import estimate
from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.refining import refine
from bbl.boltzmann.relevance import SELECTION_ROWS, choose_relevant, selection_rows
from bbl.boltzmann.task import Run, Task
from bbl.boltzmann.tuning import NFOLD, tune, tune_many
from bbl.boltzmann.tuning_record import Tuning
from bbl.crossval import Scored, calibrated
from bbl.engines import Conditional, Engine, MeanField, NaiveBayes, PseudoLikelihood
from bbl.model.layout import Layout
from bbl.parallel import scaled_progress
from bbl.rows.folds import Folds, shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.averaging import averaged_scores, convex_weights
from bbl.stats.loss_record import HELD_OUT, LossRecord
from bbl.stats.scores import log_probabilities

__all__ = ["PREPARED_AS", "Averaged", "Member", "fit_average", "hide_rows", "out_of_fold", "silent_rows", "weigh"]

SINGLE_HOLDOUT_ABOVE = 5000  # distinct rows; with more, one fifth is held out once instead of five folds
TUNING_ROWS = (5000, 2000)  # training and held-out rows on which settings of many rows are compared first
RELEVANCE = 0.05  # significance level at which predictors are chosen
SUPPLEMENT = 0.01  # share of a row towards the weight of members that can predict badly alone; others have one row
CALIBRATION = "firm"  # calibration of class scores with five folds
CALIBRATION_OF_MANY_ROWS = "temperature"  # calibration of class scores with one held-out fold

PREPARED_AS = MeanField()  # every member accepts the formulas and rows that this one accepts


@dataclass(frozen=True)
class Candidate:
    """What a member of the average is tuned over; an engine that needs complete rows takes part only where all are.

    Attributes
    ----------
    variants : tuple of Engine
        Engines that are compared.
    settings : tuple of float
        Rising settings of their tuned option that are tried; () without one.
    relevance : float, optional
        Significance level at which predictors are chosen; None for all.
    fields_only : bool, default False
        Whether the interactions of the formula are left out.
    equality : float, default 1.0
        Strength with which the weight of the member is drawn up, in rows; see `convex_weights`.
    has_twin : bool, default False
        Whether another candidate has the same engines for all predictors.
    tolerance : float, optional
        Gradient norm at which the fit to all rows stops; that of the engine by default.
    refined : bool, default False
        Whether conditional likelihood refines the fit, as a further member; only of many rows.
    """

    variants: tuple[Engine, ...]
    settings: tuple[float, ...] = ()
    relevance: float | None = None
    fields_only: bool = False
    equality: float = 1.0
    has_twin: bool = False
    tolerance: float | None = None
    refined: bool = False

    def of(self, task: Task) -> Task:
        """Return the task that the member is fitted to."""
        layout = task.layout
        if self.fields_only:
            layout = Layout(layout.n_levels, np.empty((0, 2), dtype=np.intp), n_ordered=layout.n_ordered)
        return replace(task, layout=layout, relevance=self.relevance)

    def takes_part(self, task: Task, chooses: bool) -> bool:
        """Return whether the engines can be fitted to the rows of a task, and would differ from other candidates.

        `chooses` says whether not all predictors are relevant.
        """
        is_own = not (self.fields_only and task.layout.order == 1) and (chooses or not self.has_twin)
        return is_own and (task.sample.complete or not self.variants[0].joint)


PSEUDO = tuple(
    PseudoLikelihood(prior_count=count, tolerance=1e-6) for count in (1.0, 0.1)
)  # 1 biases groups of 10 rows
SCALES = (0.5, 0.1, 2.0)  # prior scales of couplings against fields, as `scale` of conditional likelihood
# the coding of levels that are declared to be in order was decided on beps, contraceptive, german, car and mammographic
CONDITIONAL = tuple(Conditional(scale=scale, early_stopping=True, ordered="cumulative") for scale in SCALES)
RIDGES = tuple(10.0 ** np.arange(-8.0, -0.9))
CANDIDATES = (
    Candidate((MeanField(),), MeanField.tuned.grid),
    Candidate(PSEUDO, PseudoLikelihood.tuned.grid),
    Candidate(CONDITIONAL, RIDGES),
    Candidate((replace(CONDITIONAL[0], scale=1.0),), RIDGES, fields_only=True, equality=SUPPLEMENT),
    Candidate((NaiveBayes(),), NaiveBayes.tuned.grid, RELEVANCE, equality=SUPPLEMENT),
    Candidate(PSEUDO[:1], PseudoLikelihood.tuned.grid, relevance=RELEVANCE, equality=SUPPLEMENT, has_twin=True),
    Candidate(CONDITIONAL[:1], RIDGES[2:], relevance=RELEVANCE, equality=SUPPLEMENT, has_twin=True),
)
COMPARED = PseudoLikelihood(
    prior_count=1.0, tolerance=1e-4, precision="single"
)  # stops early where scores are compared
CANDIDATES_OF_MANY_ROWS = (
    Candidate((MeanField(),)),
    Candidate((COMPARED,), tolerance=1e-5, refined=True),  # rounding in single precision allows no less
    Candidate((COMPARED,), relevance=RELEVANCE, equality=SUPPLEMENT, has_twin=True, tolerance=1e-5),
)


@dataclass(frozen=True)
class Member:
    """A tuned engine and its fit to all rows.

    Attributes
    ----------
    engine : Engine
    estimate : Estimate
        The fit to all rows, with the calibration of `tuning`.
    tuning : Tuning
    equality : float
        See `Candidate`.
    """

    engine: Engine
    estimate: Estimate
    tuning: Tuning
    equality: float = 1.0


@dataclass(frozen=True)
class Averaged:
    """Members and the weights with which their probabilities are averaged.

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
        """Return the logarithms (n, K) of the averaged probabilities of encoded rows (n, m)."""
        silent = [silent_rows(bool(member.engine.joint), missing) for member in self.members]
        scores = [
            member.estimate.class_scores(codes, hide_rows(missing, rows))
            for member, rows in zip(self.members, silent, strict=True)
        ]
        return averaged_scores(scores, self.weights, silent)


def silent_rows(needs_complete_rows: bool, missing: np.ndarray | None) -> np.ndarray | None:
    """Return which rows (n,) have missing values, for a method that needs complete rows; None if all can be scored."""
    return np.asarray(missing.any(axis=1)) if missing is not None and needs_complete_rows else None


def hide_rows(missing: np.ndarray | None, silent: np.ndarray | None) -> np.ndarray | None:
    """Return the missing cells (n, m) of rows, with all cells missing in the rows that are `silent` (n,).

    Every method scores a row without known predictors by the shares of the groups. `silent` is as `silent_rows` returns
    it: if it is an array, the other rows are complete.
    """
    return missing if missing is None or silent is None else np.repeat(silent[:, None], missing.shape[1], axis=1)


def out_of_fold(scored: Scored, calibrate: str) -> np.ndarray:
    """Return the log-probability (N,) of each validated row's own group; a fold is calibrated on the other folds."""
    scores = calibrated(scored, scored.scores[0], calibrate)
    return log_probabilities(scores)[np.arange(len(scored.y)), scored.y]


def _fit_member(task: Task, engine: Engine, tuning: Tuning, equality: float, run: Run) -> Member:
    """Fit a tuned engine to all rows."""
    fitted = estimate(task, engine, run.reporting(None))
    return Member(engine, replace(fitted, calibration=tuning.calibration), replace(tuning, engine=engine), equality)


def _candidates(task: Task, table: tuple[Candidate, ...]) -> list[Candidate]:
    """Return the candidates that take part.

    Predictors are chosen where the choice can look at all rows, or at enough; candidates that have a twin with all
    predictors take part only if not all are chosen.
    """
    sample, layout = cast(Sample, task.sample), task.layout
    if selection_rows(sample.n, layout, task.K) < min(sample.n, SELECTION_ROWS[1]):
        return [candidate for candidate in table if candidate.relevance is None and candidate.takes_part(task, False)]
    has_others = len(choose_relevant(sample, layout, task.K, RELEVANCE).chosen) < layout.m
    return [candidate for candidate in table if candidate.takes_part(task, has_others)]


def _members(task: Task, folds: Folds, run: Run) -> list[Member]:
    """Return the members, tuned on all folds."""
    members, candidates = [], _candidates(task, CANDIDATES)
    step = run.reporting(scaled_progress(run.progress, 1.0 / len(candidates)))
    for candidate in candidates:
        own, first = candidate.of(task), candidate.variants[0]
        among = (candidate.variants, candidate.settings)
        tuned = tune(own, first, "cv", CALIBRATION, step, folds=folds, among=among)
        members.append(_fit_member(own, tuned.engine or first, tuned, candidate.equality, run))
    return members


def _members_of_many(task: Task, folds: Folds, run: Run) -> list[Member]:
    """Return the members for many rows: tuned on a sample of the first fold, then on the whole first fold.

    Conditional likelihood only takes part if no value is missing.
    """
    first_fold = Folds(folds.train[:1], folds.held[:1])
    sample_folds = Folds(
        *(
            _sample_weights(fold_rows, n_rows, run.rng)
            for fold_rows, n_rows in zip((first_fold.train, first_fold.held), TUNING_ROWS, strict=True)
        )
    )
    members, candidates = [], _candidates(task, CANDIDATES_OF_MANY_ROWS)
    refines = [candidate.refined and task.sample.complete for candidate in candidates]
    step = run.reporting(scaled_progress(run.progress, 1.0 / (len(candidates) + sum(refines))))
    for candidate, is_refined in zip(candidates, refines, strict=True):
        own = candidate.of(task)
        tuned, last, warm_starts = tune_many(
            own, candidate.variants[0], first_fold, sample_folds, CALIBRATION_OF_MANY_ROWS, step
        )
        engine = cast(Engine, tuned.engine)  # a fresh tuning has it
        if candidate.tolerance is not None:
            engine = replace(engine, **{"tolerance": candidate.tolerance})
        members.append(_fit_member(own, engine, tuned, candidate.equality, run))
        if is_refined:
            fitted, tuned = refine(own, folds, last, warm_starts, run.reporting(None))
            calibrated_fit = replace(fitted, calibration=tuned.calibration)
            members.append(Member(cast(Engine, tuned.engine), calibrated_fit, tuned))
            if step.progress is not None:
                step.progress(float(NFOLD))
    return members


def _sample_weights(weights: np.ndarray, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Keep the weights (1, n) of at most `n_rows` rows, drawn at random, and set all others to zero."""
    out, rows = np.zeros_like(weights), rng.permutation(np.flatnonzero(weights[0]))[:n_rows]
    out[0, rows] = weights[0, rows]
    return out


def fit_average(task: Task, run: Run) -> Averaged:
    """Tune, fit and calibrate the members, and weigh them.

    The members are those of `CANDIDATES`, tuned and compared on the same five shuffled folds. Of more
    than `SINGLE_HOLDOUT_ABOVE` distinct rows one fold is held out, and mean field, pseudo-likelihood and conditional
    likelihood are tuned on a sample of rows first. The result depends neither on the order of rows nor on whether rows
    are repeated or weighted.
    """
    sample = cast(Sample, task.sample).by_state(task.layout.n_levels, task.K)
    task, folds = task.of(sample), shuffled_folds(sample, NFOLD, run.rng)
    has_many_rows = sample.n > SINGLE_HOLDOUT_ABOVE
    members = (_members_of_many if has_many_rows else _members)(task, folds, run)
    calibrate = CALIBRATION_OF_MANY_ROWS if has_many_rows else CALIBRATION
    scored = [cast(Scored, member.tuning.scored) for member in members]
    log_p = np.array([out_of_fold(oof_scores, calibrate) for oof_scores in scored])
    totals = np.bincount(sample.response, sample.weights, task.K)
    equality = np.array([member.equality for member in members])
    weights, losses, record = weigh(log_p, scored[0], totals, equality=equality)
    return Averaged(tuple(members), weights, losses, record)


def weigh(
    log_p: np.ndarray, scored: Scored, totals: np.ndarray, advice: str = "", equality: float | np.ndarray = 1.0
) -> tuple[np.ndarray, np.ndarray, LossRecord | None]:
    """Return the weights of members (M,), the log-loss of each (M,), and the log-loss of their average.

    Parameters
    ----------
    log_p : ndarray, shape (M, N)
        Log-probability of each validated row's own group, by each member.
    scored : Scored
        Validated rows of any member: groups, weights and folds.
    totals : ndarray, shape (K,)
        Total weight of each group in all rows.
    advice : str
        Advice for a log-loss above that of predicting the groups' shares.
    equality : float or ndarray, shape (M,), default 1.0
        Strength with which weights are drawn towards equality, `a` of `convex_weights`.
    """
    row_weights, weights = scored.weights, convex_weights(log_p, scored.weights, equality)
    is_scored = np.isfinite(log_p).all(axis=0)  # not where a fold has no training row of the row's group
    if not is_scored.any():
        return weights, np.full(len(log_p), np.nan), None
    shares = scored.log_shares(totals)[scored.fold, scored.y]
    averaged = np.logaddexp.reduce(log_p + np.log(weights)[:, None], axis=0)
    losses, loss, baseline = (
        -(log_probability[..., is_scored] @ row_weights[is_scored]) / row_weights[is_scored].sum()
        for log_probability in (log_p, averaged, shares)
    )
    return weights, losses, LossRecord(float(loss), float(baseline), HELD_OUT, advice)
