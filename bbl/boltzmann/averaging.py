"""`method="auto"`: a weighted average of the probabilities of several tuned methods.

A *member* is a tuned engine that was fitted to all rows. K, M, N, n and m are the numbers of
groups, members, held-out rows, rows and predictors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.boltzmann.estimate import estimate_path, estimate_without_predictors
from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.member_weights import (
    beats_shares,
    limited_equality,
    losses_of,
    shrinkage_to_shares,
    weigh,
)
from bbl.boltzmann.number_members import (
    NumberIntervals,
    choose_densities,
    interval_data,
    regressor_data,
)
from bbl.boltzmann.prediction_checks import held_out_record
from bbl.boltzmann.refining import refine
from bbl.boltzmann.relevance import SELECTION_ROWS, choose_once, selection_rows
from bbl.boltzmann.tuning import NFOLD, tune, tune_many
from bbl.boltzmann.tuning_record import Tuning
from bbl.boltzmann.validation import Validated
from bbl.crossval import (
    Scored,
    Scores,
    calibrated,
    cross_validate,
    fold_log_shares,
    score_settings,
)
from bbl.design.labels import Labels
from bbl.engines import (
    Boosting,
    Conditional,
    Engine,
    MarkovBlanket,
    MeanField,
    NaiveBayes,
    PseudoLikelihood,
)
from bbl.errors import DataError
from bbl.model.layout import NO_PAIRS
from bbl.model.location import LocationModel
from bbl.parallel import scaled_progress
from bbl.rows.content import order_by_content
from bbl.rows.folds import Folds, shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.averaging import averaged_scores
from bbl.stats.calibration import Calibration, fit_calibration
from bbl.stats.metrics import LossRecord, log_probabilities

__all__ = [
    "Averaged",
    "CrossAverage",
    "Member",
    "average_members",
    "cross_average",
    "fit_average",
    "out_of_fold",
]

# with more distinct rows than this, a single fifth is held out instead of using five folds
SINGLE_HOLDOUT_ABOVE = 5000
# numbers of training and held-out rows for the first comparison of settings if there are many rows
TUNING_ROWS = (5000, 2000)
RELEVANCE = 0.05  # significance level for selecting predictors
# `equality`, in rows, of members that may predict poorly on their own; 1.0 for other members
SUPPLEMENT = 0.01
# Largest models that are tuned, in parameters of all groups together. Pseudo-likelihood takes a
# minute for all folds and settings at 500,000 (barley of `benchmarks.accuracy.wide`). Other members
# take the same time for any number of pairs, but store the parameters of each setting: 40 MB.
MAX_PAIR_PARAMETERS = 250_000  # of members whose time depends on the number of pairs
MAX_STORED_PARAMETERS = 5_000_000  # of other members
# Fewer folds above this product of rows, non-reference levels and groups: each fold takes about 4 s
# at 10 million (barley with 3,000 rows)
MANY_CELLS = 5_000_000
FEWER_FOLDS = 3  # number of folds above `MANY_CELLS`
CALIBRATION = "firm"  # calibration with several folds
CALIBRATION_OF_MANY_ROWS = "temperature"  # calibration with one held-out fold


@dataclass(frozen=True)
class Candidate:
    """A candidate member of the average, with the engines and settings to compare.

    Engines that require complete rows are used only if all rows are complete.

    Attributes
    ----------
    variants : tuple of Engine
        Engines to compare, which differ in options other than the tuned option.
    settings : tuple of float
        Values of the tuned option to compare, in increasing order; empty if no option is tuned.
    on_a_line : bool, default False
        Whether the first variant is intermediate between the second and the third; see `tune`.
    relevance : float, optional
        Significance level for selecting predictors; None to use all predictors.
    fields_only : bool, default False
        Whether to omit the interactions in the formula.
    equality : float, default 1.0
        Strength of the term that keeps the member's weight away from zero, expressed as a number of
        rows; this is `a` in `convex_weights`.
    has_twin : bool, default False
        Whether another candidate uses the same engines with all predictors.
    tolerance : float, optional
        Gradient norm at which the fit to all rows stops; by default, the engine's own tolerance.
    refined : bool, default False
        Whether to add another member that refines the fit by conditional likelihood. This is only
        done for large samples.
    largest : float, optional
        Maximum product of rows, predictors and groups for this candidate; None for no limit.
    most_parameters : int, optional
        Maximum number of parameters in all groups together for this candidate; None for no limit.
    """

    variants: tuple[Engine, ...]
    settings: tuple[float, ...] = ()
    on_a_line: bool = False
    relevance: float | None = None
    fields_only: bool = False
    equality: float = 1.0
    has_twin: bool = False
    tolerance: float | None = None
    refined: bool = False
    largest: float | None = None
    most_parameters: int | None = None

    def specialise(self, spec: FitSpec) -> FitSpec:
        """Return the specification with this candidate's first variant and predictor selection."""
        return replace(spec, engine=self.variants[0], relevance=self.relevance)

    def narrow_data(self, data: FitData) -> FitData:
        """Return the data, restricted to the terms of this candidate."""
        layout = data.layout
        if self.fields_only:
            layout = layout.with_terms(NO_PAIRS)
        return replace(data, layout=layout)

    def takes_part(self, data: FitData, has_others: bool) -> bool:
        """Return whether the candidate can be fitted and differs from the other candidates.

        `has_others` indicates whether the selection excludes any predictors. If it does not, the
        candidate and its twin are identical.
        """
        # order 1: there are no interactions that `fields_only` could omit
        is_distinct = not (self.fields_only and data.layout.order == 1) and (
            has_others or not self.has_twin
        )
        return is_distinct and (data.sample.complete or not self.variants[0].joint)

    def is_too_large(self, data: FitData, chosen: np.ndarray) -> bool:
        """Return whether fits would take too long.

        `chosen` contains the relevant predictors.
        """
        sample = data.sample
        if self.largest is not None and sample.n * data.layout.m * data.K > self.largest:
            return True
        if self.most_parameters is None:
            return False
        layout = self.narrow_data(data).layout
        if self.relevance is not None:
            layout = layout.only(chosen)
        return layout.size * data.K > self.most_parameters

    @property
    def description(self) -> str:
        """The candidate's method and its selection of predictors or terms, as text."""
        if self.relevance is not None:
            return f"{self.variants[0].name} of the relevant predictors"
        return self.variants[0].name + (" without interactions" if self.fields_only else "")


# a prior count of 1 biases groups of 10 rows
PSEUDO = tuple(PseudoLikelihood(prior_count=count, tolerance=1e-6) for count in (1.0, 0.1))
# prior scales of couplings relative to fields: `scale` of conditional likelihood
SCALES = (0.5, 0.1, 2.0)
# the coding of ordered levels was chosen on the data sets beps, contraceptive, german, car and
# mammographic
CONDITIONAL = tuple(
    Conditional(scale=scale, early_stopping=True, ordered="cumulative") for scale in SCALES
)
# ridges of conditional likelihood, per row: 1e-8, 1e-7, ..., 0.1
RIDGES = tuple(10.0 ** np.arange(-8.0, -0.9))
CANDIDATES = (
    Candidate((MeanField(),), MeanField.tuned.grid, most_parameters=MAX_PAIR_PARAMETERS),
    Candidate(PSEUDO, PseudoLikelihood.tuned.grid, most_parameters=MAX_PAIR_PARAMETERS),
    Candidate(CONDITIONAL, RIDGES, on_a_line=True, most_parameters=MAX_STORED_PARAMETERS),
    Candidate((replace(CONDITIONAL[0], scale=1.0),), RIDGES, fields_only=True, equality=SUPPLEMENT),
    Candidate((NaiveBayes(),), NaiveBayes.tuned.grid, relevance=RELEVANCE, equality=SUPPLEMENT),
    Candidate(
        PSEUDO[:1],
        PseudoLikelihood.tuned.grid,
        relevance=RELEVANCE,
        equality=SUPPLEMENT,
        has_twin=True,
        most_parameters=MAX_PAIR_PARAMETERS,
    ),
    Candidate(
        CONDITIONAL[:1],
        RIDGES[2:],
        relevance=RELEVANCE,
        equality=SUPPLEMENT,
        has_twin=True,
        most_parameters=MAX_STORED_PARAMETERS,
    ),
    Candidate(
        (MarkovBlanket(),),
        MarkovBlanket.tuned.grid,
        equality=SUPPLEMENT,
        most_parameters=MAX_STORED_PARAMETERS,
    ),
    Candidate((Boosting(),), equality=SUPPLEMENT, most_parameters=MAX_STORED_PARAMETERS),
)
# multiplied by densities of numbers: candidates that predict well by themselves, and the blanket
CANDIDATES_WITH_DENSITIES = (*CANDIDATES[:3], CANDIDATES[7])
# if all predictors are numbers
CANDIDATES_WITHOUT_LEVELS = (Candidate((NaiveBayes(),), (1.0,)),)
# on intervals: without mean field and pseudo-likelihood, whose exact ln Z took 30 of 36 s for heart
# (13 predictors, 4 of them numbers), and without selections of predictors; the log-loss
# on titanic, penguins, heart, saheart, german and birthwt changed by -.0027 to .0003.
CANDIDATES_ON_INTERVALS = (*CANDIDATES[2:4], *CANDIDATES[7:])
# on the numbers themselves
REGRESSIONS = (
    Candidate(CONDITIONAL, RIDGES, on_a_line=True, most_parameters=MAX_STORED_PARAMETERS),
    Candidate((replace(CONDITIONAL[0], scale=1.0),), RIDGES, fields_only=True),
)
REGRESSIONS_OF_MANY_ROWS = (Candidate(CONDITIONAL[:1], RIDGES[::2], largest=5e6),)
# stops early, for comparing scores
FAST_PSEUDO = PseudoLikelihood(prior_count=1.0, tolerance=1e-4, precision="single")
CANDIDATES_OF_MANY_ROWS = (
    Candidate((MeanField(),)),
    # the smallest tolerance possible in single precision
    Candidate((FAST_PSEUDO,), tolerance=1e-5, refined=True),
    Candidate(
        (FAST_PSEUDO,), relevance=RELEVANCE, equality=SUPPLEMENT, has_twin=True, tolerance=1e-5
    ),
    Candidate((Boosting(),), equality=SUPPLEMENT, largest=5e6),  # takes up to a minute
)


@dataclass(frozen=True)
class Member:
    """A tuned engine, with its fit to all rows.

    Attributes
    ----------
    engine : Engine
    estimate : Estimate
        The fit to all rows, with the calibration of `tuning`.
    tuning : Tuning
    equality : float
        See `Candidate`.
    labels : Labels, optional
        Names of the member's predictors and levels, for warnings.
    intervals : NumberIntervals, optional
        Intervals that replace the values of numeric predictors before rows are scored.
    candidate : Candidate, optional
        The candidate that was tuned.
    """

    engine: Engine
    estimate: Estimate
    tuning: Tuning
    equality: float = 1.0
    labels: Labels | None = None
    intervals: NumberIntervals | None = None
    candidate: Candidate | None = None

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows."""
        own_codes = codes if self.intervals is None else self.intervals(codes)
        return self.estimate.class_scores(own_codes, missing)


@dataclass(frozen=True)
class Averaged:
    """The members and the weights used to average their probabilities.

    Attributes
    ----------
    members : tuple of Member
    weights : ndarray, shape (M,)
    losses : ndarray, shape (M,)
        Out-of-fold log-loss of each member.
    log_loss : LossRecord or None
        Out-of-fold log-loss of the average.
    left_out : tuple of str
        Descriptions of the candidates that were too large to be tuned.
    rows : tuple of int
        Number of rows that each member was fitted to, if this number differs between members; see
        `bbl.boltzmann.averaging_all_rows`.
    setting_rows : int
        Number of sampled rows used to select the settings; 0 if all rows were used.
    """

    members: tuple[Member, ...]
    weights: np.ndarray
    losses: np.ndarray
    log_loss: LossRecord | None
    left_out: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    setting_rows: int = 0

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the logs (n, K) of averaged probabilities of rows; see `average_members`."""
        needed = [member.estimate.needed for member in self.members]
        score_functions = [member.class_scores for member in self.members]
        return average_members(score_functions, needed, self.weights, codes, missing)


def average_members(
    score_functions: Sequence[Scores],
    needed: Sequence[np.ndarray | None],
    weights: np.ndarray,
    codes: np.ndarray,
    missing: np.ndarray | None,
) -> np.ndarray:
    """Return the logs (n, K) of a weighted average of the probabilities of several models.

    Each function in `score_functions` returns a model's class scores (n, K) of encoded rows. A
    model is *silent* for rows with a missing value in a predictor that it requires. Its weight is
    then distributed among the other models. For each model, `needed` contains the required
    predictors, or None if there are none.
    """
    scores = []
    silent_masks = []
    for class_scores, predictors in zip(score_functions, needed, strict=True):
        silent: np.ndarray | None = None  # which rows (n,)
        if missing is not None and predictors is not None:
            # all models can score rows without known predictors, by the class proportions
            silent = np.asarray(missing[:, predictors].any(axis=1) & ~missing.all(axis=1))
        # mark all cells of silent rows as missing, so that the model can score them; these scores
        # are not used
        hidden = missing if missing is None or silent is None else missing | silent[:, None]
        scores.append(class_scores(codes, hidden))
        silent_masks.append(silent)
    return averaged_scores(scores, weights, silent_masks)


def out_of_fold(scored: Scored, calibrate: str) -> np.ndarray:
    """Return the log-probability (N,) of the observed group in each held-out row.

    `scored` contains the scores at the selected setting. The scores of each fold are calibrated
    with the method `calibrate`, which is fitted to the other folds.
    """
    scores = calibrated(scored, scored.scores[0], calibrate)
    return log_probabilities(scores)[np.arange(len(scored.y)), scored.y]


def _fit_member(data: FitData, spec: FitSpec, tuning: Tuning, equality: float) -> Member:
    """Fit a tuned engine to all rows, and apply the calibration in `tuning`."""
    engine = spec.engine
    fitted = estimate_path(data, spec)[0]  # without progress, which tuning reports
    return Member(
        engine,
        replace(fitted, calibration=tuning.calibration),
        replace(tuning, engine=engine),
        equality,
        data.labels,
    )


def _class_proportions(
    data: FitData, scored: Scored, shares_log_p: np.ndarray, location: LocationModel | None
) -> Member:
    """Return a member without predictors, which predicts the class proportions.

    `shares_log_p` (N,) contains the log-probability that this member assigns to the observed group
    of each held-out row in `scored`. The numeric predictors in `location` are replaced by
    intervals.
    """
    intervals = None
    if location is not None:
        intervals = NumberIntervals.of_rows(data.rows, data.layout.n_levels, location.numbers)
        data = interval_data(data, location, intervals)
    engine = NaiveBayes()
    no_calibration = Calibration(1.0, np.zeros(data.K))
    is_scored = np.isfinite(shares_log_p)
    row_weights = scored.weights[is_scored]
    loss = -(row_weights @ shares_log_p[is_scored]) / row_weights.sum()
    tuning = Tuning(
        None, np.array([np.nan]), np.array([loss]), 0, no_calibration, [], engine=engine
    )
    fitted = estimate_without_predictors(data, engine, RELEVANCE)
    estimate = replace(fitted, calibration=no_calibration)
    return Member(engine, estimate, tuning, labels=data.labels, intervals=intervals)


def _select_candidates(
    data: FitData, table: tuple[Candidate, ...]
) -> tuple[list[Candidate], tuple[str, ...]]:
    """Return the candidates in `table` that are used for these data, and those that are too large.

    Candidates that select predictors are used if the selection can be based on all rows, or on at
    least as many rows as the maximum in `SELECTION_ROWS`. Candidates with a twin are used only if
    the selection excludes predictors.
    """
    sample = data.rows
    layout = data.layout
    chosen = np.arange(layout.m)
    # the number of rows that the choice can use, compared with all rows or the maximum
    if selection_rows(sample.n, layout, data.K) < min(sample.n, SELECTION_ROWS[1]):
        table = tuple(candidate for candidate in table if candidate.relevance is None)
    else:
        chosen = choose_once(data, RELEVANCE).chosen
    has_others = len(chosen) < layout.m
    table = tuple(candidate for candidate in table if candidate.takes_part(data, has_others))
    left_out = [candidate for candidate in table if candidate.is_too_large(data, chosen)]
    return (
        [candidate for candidate in table if candidate not in left_out],
        tuple(candidate.description for candidate in left_out),
    )


def _tune_members(
    data: FitData,
    spec: FitSpec,
    candidates: list[Candidate],
    folds: Folds,
    progress: Callable | None,
) -> list[Member]:
    """Tune the candidates on all folds, and return the members fitted to all rows."""
    members: list[Member] = []
    if not candidates:
        return members
    # a tuning counts as NFOLD steps
    member_progress = scaled_progress(progress, NFOLD / (len(folds) * len(candidates)))
    for candidate in candidates:
        member_data = candidate.narrow_data(data)
        member_spec = candidate.specialise(spec)
        tuning = tune(
            member_data,
            member_spec,
            rule="cv",
            progress=member_progress,
            folds=folds,
            among=(candidate.variants, candidate.settings),
            on_a_line=candidate.on_a_line,
        )
        # the variant at the chosen setting; None only in a tuning from a model file
        engine = cast(Engine, tuning.engine)
        member = _fit_member(member_data, member_spec.using(engine), tuning, candidate.equality)
        members.append(replace(member, candidate=candidate))
    return members


def _tune_members_of_many_rows(
    data: FitData,
    spec: FitSpec,
    candidates: list[Candidate],
    folds: Folds,
    progress: Callable | None,
) -> list[Member]:
    """Return members for many rows, tuned first on a sample and then on all rows of the first fold.

    The members are fitted to all rows. Conditional likelihood and boosting are used only if no
    values are missing.
    """
    # weights (1, n) in training and in validation
    first_fold = Folds(folds.train[:1], folds.validation_weights[:1])
    sample_folds = Folds(
        *(
            _sample_weights(fold_rows, n_rows, spec.rng)
            for fold_rows, n_rows in zip(
                (first_fold.train, first_fold.validation_weights), TUNING_ROWS, strict=True
            )
        )
    )
    members = []
    is_refined_flags = [candidate.refined and data.sample.complete for candidate in candidates]
    member_progress = scaled_progress(progress, 1.0 / (len(candidates) + sum(is_refined_flags)))
    for candidate, is_refined in zip(candidates, is_refined_flags, strict=True):
        member_data = candidate.narrow_data(data)
        member_spec = candidate.specialise(spec)
        # tuning at the best penalty and at the weakest; solutions of the first fold at the weakest
        tuning, weakest_tuning, warm_starts = tune_many(
            member_data, member_spec, first_fold, sample_folds, member_progress
        )
        engine = cast(Engine, tuning.engine)  # None only in a tuning from a model file
        if candidate.tolerance is not None:
            # `tolerance` is an option of pseudo-likelihood
            engine = replace(engine, **{"tolerance": candidate.tolerance})
        members.append(
            _fit_member(member_data, member_spec.using(engine), tuning, candidate.equality)
        )
        if is_refined:
            refined_fit, tuning = refine(
                member_data, member_spec, folds, weakest_tuning, warm_starts
            )
            calibrated_fit = replace(refined_fit, calibration=tuning.calibration)
            members.append(Member(cast(Engine, tuning.engine), calibrated_fit, tuning))
            if member_progress is not None:
                # a member counts as many steps as a tuning on NFOLD folds
                member_progress(float(NFOLD))
    return members


def _sample_weights(weights: np.ndarray, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Keep the weights (1, n) of at most `n_rows` random rows, and set the others to zero."""
    sampled_weights = np.zeros_like(weights)
    rows = rng.permutation(np.flatnonzero(weights[0]))[:n_rows]
    sampled_weights[0, rows] = weights[0, rows]
    return sampled_weights


def _make_members(
    data: FitData,
    spec: FitSpec,
    folds: Folds,
    progress: Callable | None,
    table: tuple[Candidate, ...] | None = None,
) -> tuple[list[Member], tuple[str, ...]]:
    """Return the tuned members, and the descriptions of candidates that are too large.

    `table` contains the candidates for data without many rows; the default is `CANDIDATES`.
    """
    has_many_rows = data.rows.n > SINGLE_HOLDOUT_ABOVE
    tune_members = _tune_members_of_many_rows if has_many_rows else _tune_members
    candidates, left_out = _select_candidates(
        data, CANDIDATES_OF_MANY_ROWS if has_many_rows else table or CANDIDATES
    )
    return tune_members(data, spec, candidates, folds, progress), left_out


def _make_members_with_numbers(
    data: FitData, spec: FitSpec, folds: Folds, progress: Callable | None
) -> tuple[list[Member], tuple[str, ...]]:
    """Return the members for data with numeric predictors, and the descriptions of candidates that
    are too large.

    There are three types of members. The first type combines methods for categorical predictors
    with the normal density of the numeric predictors given the levels. The second type applies the
    same methods to intervals of the numeric predictors. The third type is a regression on the
    numeric predictors by conditional likelihood.
    """
    model = cast(LocationModel, spec.location)
    spec = replace(spec, location=None)
    part_progress = scaled_progress(progress, 1.0 / 3.0)
    of_levels = replace(data.without_numbers(model), selections={})
    members, left_out = (
        _make_members(of_levels, spec, folds, part_progress, CANDIDATES_WITH_DENSITIES)
        if of_levels.layout.m
        else (_tune_members(of_levels, spec, list(CANDIDATES_WITHOUT_LEVELS), folds, None), ())
    )
    # with many rows, only the first fold is held out
    is_single = data.rows.n > SINGLE_HOLDOUT_ABOVE
    held_out = Folds(folds.train[:1], folds.validation_weights[:1]) if is_single else folds
    members = _multiply_by_densities(members, data, model, held_out, spec.calibrate)
    if data.sample.complete:
        regression = regressor_data(data, model)
        candidates = [
            candidate
            for candidate in (REGRESSIONS_OF_MANY_ROWS if is_single else REGRESSIONS)
            if candidate.takes_part(regression, has_others=True)
            and not candidate.is_too_large(regression, np.arange(data.layout.m))
        ]
        members += _tune_members(regression, spec, candidates, held_out, part_progress)
    # with a single fold, cuts are those of its training rows
    cut_rows = held_out.one(0).training(data.rows) if is_single else data.rows
    intervals = NumberIntervals.of_rows(cut_rows, data.layout.n_levels, model.numbers)
    # the candidates on intervals need complete rows
    table = CANDIDATES_ON_INTERVALS if data.sample.complete else CANDIDATES
    binned, left_out_intervals = _make_members(
        interval_data(data, model, intervals), spec, folds, part_progress, table
    )
    members += [
        replace(member, intervals=intervals)
        if is_single
        else _with_cuts_of_folds(member, data, model, intervals, spec, folds)
        for member in binned
    ]
    return members, tuple(dict.fromkeys(left_out + left_out_intervals))


def _multiply_by_densities(
    members: list[Member], data: FitData, model: LocationModel, folds: Folds, calibrate: str
) -> list[Member]:
    """Combine members for categorical predictors with the density of the best location model.

    Return an empty list if no location model can be fitted.
    """
    scored = [cast(Scored, member.tuning.scored) for member in members]
    best = choose_densities(data, model, folds, scored, calibrate)
    if best is None:
        return []
    try:
        location = best.model.fit(data.rows, data.K)
    except DataError:  # singular, although not in the folds
        return []
    out = []
    for member, own in zip(members, scored, strict=True):
        scores = own.scores[0] + best.log_density
        calibration = fit_calibration(scores, own.y, own.weights, calibrate)
        tuning = replace(
            member.tuning,
            calibration=calibration,
            scored=cast(Validated, replace(own, scores=scores[None])),
        )
        estimate = replace(
            member.estimate.with_numbers(location, data.layout), calibration=calibration
        )
        out.append(replace(member, estimate=estimate, tuning=tuning, labels=data.labels))
    return out


def _with_cuts_of_folds(
    member: Member,
    data: FitData,
    model: LocationModel,
    intervals: NumberIntervals,
    spec: FitSpec,
    folds: Folds,
) -> Member:
    """Recompute a member's out-of-fold scores with intervals from the training rows of each fold.

    The member uses intervals of the numeric predictors, and is fitted at the selected setting.
    """
    candidate = cast(Candidate, member.candidate)

    def fit(train: Sample, rng: np.random.Generator) -> list[Member]:
        """Fit the member to the training rows of a fold."""
        own = NumberIntervals.of_rows(train, data.layout.n_levels, model.numbers)
        fold_data = candidate.narrow_data(interval_data(data.with_sample(train), model, own))
        fold_spec = replace(candidate.specialise(spec), engine=member.engine, rng=rng, workers=1)
        return [replace(member, estimate=estimate_path(fold_data, fold_spec)[0], intervals=own)]

    scored = cross_validate(
        data.rows,
        folds,
        fit,
        [(rng,) for rng in spec.rng.spawn(len(folds))],
        workers=spec.workers,
    )
    calibration = fit_calibration(scored.scores[0], scored.y, scored.weights, spec.calibrate)
    validated = Validated(**{**vars(scored), "fits": []}, found=[])
    return replace(
        member,
        estimate=replace(member.estimate, calibration=calibration),
        tuning=replace(member.tuning, calibration=calibration, scored=validated),
        intervals=intervals,
    )


def _order_rows(sample: Sample, n_levels: np.ndarray, location: LocationModel | None) -> np.ndarray:
    """Return an order of the rows that does not depend on the names of predictors or levels.

    The values of numeric predictors are replaced by their ranks.
    """
    if location is None:
        return order_by_content(sample, n_levels).rows
    codes = sample.codes.copy()
    n_levels = np.array(n_levels)
    for i in location.numbers:
        values, codes[:, i] = np.unique(codes[:, i], return_inverse=True)
        n_levels[i] = len(values)
    return order_by_content(replace(sample, codes=codes), n_levels).rows


def fit_average(data: FitData, spec: FitSpec, progress: Callable | None = None) -> Averaged:
    """Tune, fit and calibrate the members, and compute their weights.

    The members, from `CANDIDATES`, are tuned and compared on the same five shuffled folds, or on
    `FEWER_FOLDS` folds if the data have more than `MANY_CELLS` cells. Candidates that are too large
    are omitted. With more than `SINGLE_HOLDOUT_ABOVE` distinct rows, the members are chosen from
    `CANDIDATES_OF_MANY_ROWS` instead. In this case, only one fold is held out, and settings are
    first compared on a sample of rows. If the average is not clearly better than the class
    proportions on the held-out rows, a member that predicts the class proportions is added, with
    the weight from `shrinkage_to_shares`. If no predictor is relevant, this is the only member. The
    result does not depend on the order of the rows, or on whether rows are repeated or weighted.
    """
    # one row for each state and group, in an order that no name changes
    sample = data.rows.by_state(data.layout.n_levels, data.K)
    sample = sample.rows(_order_rows(sample, data.layout.n_levels, spec.location))
    data = replace(data.with_sample(sample), selections={})
    has_many_rows = sample.n > SINGLE_HOLDOUT_ABOVE
    has_many_cells = not has_many_rows and sample.n * data.layout.D * data.K > MANY_CELLS
    folds = shuffled_folds(sample, FEWER_FOLDS if has_many_cells else NFOLD, spec.rng)
    calibrate = CALIBRATION_OF_MANY_ROWS if has_many_rows else CALIBRATION
    make_members = _make_members if spec.location is None else _make_members_with_numbers
    members, left_out = make_members(data, replace(spec, calibrate=calibrate), folds, progress)
    # all members have the same held-out rows
    scored = [cast(Scored, member.tuning.scored) for member in members]
    log_p = np.array([out_of_fold(oof_scores, calibrate) for oof_scores in scored])
    totals = np.bincount(sample.response, sample.weights, data.K)
    equality = limited_equality(
        np.array([member.equality for member in members]), log_p, scored[0].weights
    )
    weights, losses, record = weigh(log_p, scored[0], totals, equality=equality)
    # (N,) log proportion of each validated row's group in the training rows of its fold
    shares_log_p = scored[0].log_shares(totals)[scored[0].fold, scored[0].y]
    if beats_shares(log_p, weights, scored[0].weights, shares_log_p):
        return Averaged(tuple(members), weights, losses, record, left_out)
    # 1 if a member has chosen no predictor; otherwise the weight of the class proportions. The
    # choice is among levels, and says little about numbers.
    shares_weight = (
        1.0
        if spec.location is None and any(member.estimate.has_no_predictors for member in members)
        else shrinkage_to_shares(log_p, weights, scored[0].weights, shares_log_p)
    )
    if shares_weight == 1.0:
        members = []
        log_p = log_p[:0]
        weights = weights[:0]
    if shares_weight > 0.0:
        members.append(_class_proportions(data, scored[0], shares_log_p, spec.location))
        log_p = np.vstack([log_p, shares_log_p])
        weights = np.append(weights * (1.0 - shares_weight), shares_weight)
        losses, record = losses_of(log_p, weights, scored[0], totals)
    return Averaged(tuple(members), weights, losses, record, left_out)


@dataclass(frozen=True)
class CrossAverage:
    """Cross-validation of ``method="auto"``, which has a single setting.

    Attributes
    ----------
    table : ndarray, shape (1, 1) or (1, 3)
        The score, followed by a confidence interval if the score is the AUC.
    scored : Scored
        Out-of-fold class scores.
    averaged : Averaged
        The average fitted to all rows, or to the training rows of the last fold.
    loss : LossRecord
        Log-loss of the held-out rows.
    """

    table: np.ndarray
    scored: Scored
    averaged: Averaged
    loss: LossRecord


def cross_average(
    data: FitData,
    spec: FitSpec,
    folds: Folds,
    score: str,
    refit: bool,
    progress: Callable | None = None,
) -> CrossAverage:
    """Cross-validate ``method="auto"``, and fit the average to all rows if `refit` is True."""

    def fit(train: Sample, rng: np.random.Generator) -> list[Averaged]:
        """Fit the average to the training rows of a fold, and return a list with this fit."""
        return [fit_average(data.with_sample(train), replace(spec, rng=rng, workers=1))]

    fold_rngs = [(rng,) for rng in spec.rng.spawn(len(folds))]
    scored = cross_validate(
        data.rows, folds, fit, fold_rngs, workers=spec.workers, progress=progress
    )
    table, _ = score_settings(scored, score)
    averaged = scored.fits[-1][0]  # last fold, only setting
    if refit:
        averaged = fit_average(data, spec)
    # (folds, K): log class proportions in the training rows
    baseline = fold_log_shares(data.rows, folds, data.K)
    loss = held_out_record(scored, scored.scores[0], baseline, advice="")
    return CrossAverage(table, scored, averaged, loss)
