"""Select the tuned option by cross-validation, and calibrate class scores on the same folds.

The *grid* contains the possible settings in increasing order, and k is a position in the grid. A
*variant*, with index v, is one of several engines that differ in other options and are tuned over
the same grid. K and D are the numbers of groups and non-reference levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast, get_args

import numpy as np

from bbl.boltzmann.grid_search import NEIGHBOUR_RATIO, descend, walk, walk_variants
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.tuning_record import Tuning
from bbl.boltzmann.validation import Validated, validate
from bbl.choices import TuningRule
from bbl.crossval import calibrated, check_trained, one_standard_error, score_settings
from bbl.engines import Engine
from bbl.engines.base import WarmStarts
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.parallel import scaled_progress
from bbl.rows.fold_assignment import AnyFolds
from bbl.rows.folds import Folds, shuffled_folds
from bbl.rows.on_disk import Rows
from bbl.stats.calibration import fit_calibration

__all__ = ["NFOLD", "RULES", "tune", "tune_many", "tune_relevance"]

RULES = get_args(TuningRule)
NFOLD = 5  # default number of folds
COARSE_FITS = 3  # minimum number of settings of the coarse grid to fit before the search may stop
# number of settings fitted in one call if the settings of a fold share work
SETTINGS_PER_CALL = 4
NEAR = 2  # settings tried for other variants on each side of the first variant's best
MAX_REFITS = 3  # maximum number of settings that are refitted more precisely
REFIT_MARGIN = 1e-3  # relative change in the loss due to a refit, assumed before the first refit
# settings within this multiple of the largest relative change due to a refit are refitted
REFIT_CHANGES = 3.0
MAX_PREPARED_BYTES = 2.0**26  # maximum size of the prepared rows that are kept between fits
# significance levels to compare, from few predictors to all (None)
RELEVANCE_LEVELS = (0.05, 0.5, None)
# negligible difference of log-losses; near a loss of 0, NEIGHBOUR_RATIO would be too strict
LOSS_TIE = 1e-4


def tune(
    data: FitData,
    spec: FitSpec,
    rule: str | None,
    *,
    progress: Callable | None = None,
    folds: AnyFolds | None = None,
    among: tuple[Sequence[Engine], Sequence[float]] | None = None,
    on_a_line: bool = False,
) -> Tuning:
    """Select the engine's tuned option and fit the calibration, using out-of-fold scores.

    Parameters
    ----------
    data : FitData
    spec : FitSpec
        Specification of the fit. The scores of each fold are calibrated on the other folds with
        ``spec.calibrate`` before settings are compared.
    rule : {"cv", "cv-1se"} or None
        Rule for selecting the setting: the setting with the smallest log-loss ("cv"), or the
        simplest setting whose log-loss is within one standard error of the smallest ("cv-1se").
        With None, the engine's setting is kept. For data without classes, the log pseudo-likelihood
        of rows is used.
    progress : callable, optional
    folds : Folds or StoredFolds, optional
        The folds; by default, `NFOLD` shuffled folds.
    among : (sequence of Engine, sequence of float), optional
        Variants of the engine, and the grid. The defaults are ``engine.variants()`` and the grid of
        the tuned option.
    on_a_line : bool, default False
        Whether the first variant is intermediate between the second and the third. If so, engines
        that fit all folds together skip the third variant if the second is clearly better.
    """
    engine = spec.engine
    if folds is None:
        rows = data.rows
        rows = rows.by_state(data.layout.n_levels, data.K) if engine.joint else rows
        data = data.with_sample(rows)
        folds = shuffled_folds(rows, NFOLD, spec.rng)
    variants, settings = among or (engine.variants(), engine.grid)
    # rows in memory, with the same predictors in each fold
    if isinstance(folds, Folds) and spec.relevance is None and spec.location is None:
        # None means fold by fold
        fitted_layout = engine.layout(data.nominal.rows, data.layout)
        score_folds = engine.held_out(data.rows, fitted_layout, data.K, folds)
        if score_folds is not None:
            return _tune_together(
                data,
                spec,
                variants,
                settings,
                rule,
                folds,
                score_folds,
                progress=progress,
                on_a_line=on_a_line,
            )
    variant_progress = scaled_progress(progress, 1.0 / len(variants))
    tunings: list[Tuning] = []
    for variant in variants:
        # the best settings of variants are close to each other
        near = (
            settings
            if rule != "cv" or not tunings
            else _near(settings, tunings[0].values[tunings[0].chosen])
        )
        tunings.append(_tune_one(data, spec.using(variant), near, rule, folds, variant_progress))
    return min(tunings, key=lambda tuning: tuning.loss[tuning.chosen])


def tune_relevance(
    data: FitData,
    spec: FitSpec,
    relevance_rule: str,
    rule: str | None,
    progress: Callable | None = None,
) -> tuple[float | None, Tuning]:
    """Return the best significance level for selecting predictors, and the tuning at this level.

    `relevance_rule` is the rule for selecting the level, with the same values as `rule` in `tune`.
    The first level is the simplest, because it selects the fewest predictors. Predictors are
    selected separately in each fold.
    """
    rows = data.rows
    rows = rows.by_state(data.layout.n_levels, data.K) if spec.engine.joint else rows
    data = data.with_sample(rows)
    folds = shuffled_folds(rows, NFOLD, spec.rng)
    level_progress = scaled_progress(progress, 1.0 / len(RELEVANCE_LEVELS))
    tunings = [
        tune(data, replace(spec, relevance=level), rule, progress=level_progress, folds=folds)
        for level in RELEVANCE_LEVELS
    ]
    losses = np.array([tuning.loss[tuning.chosen] for tuning in tunings])
    best = int(losses.argmin())
    if relevance_rule == "cv-1se":
        scored = [cast(Validated, tuning.scored) for tuning in tunings]
        compared = replace(
            scored[0], scores=np.concatenate([validated.scores for validated in scored])
        )
        # by position
        best = one_standard_error(
            compared, np.arange(len(tunings)), best, spec.calibrate, "smaller"
        )
    return RELEVANCE_LEVELS[best], tunings[best]


def tune_many(
    data: FitData,
    spec: FitSpec,
    folds: Folds,
    sample_folds: Folds,
    progress: Callable | None = None,
) -> tuple[Tuning, Tuning, list[WarmStarts]]:
    """Select the tuned option for many rows, first on a sample of rows and then on all rows.

    More rows require weaker penalties. The search on all rows therefore starts at the best setting
    for the sample and continues with weaker penalties until the log-loss increases. Engines without
    a tuned option are only calibrated.

    Parameters
    ----------
    folds, sample_folds : Folds
        Single folds of all rows and of a sample of rows. The other parameters are the same as in
        `tune`.

    Returns
    -------
    best, last : Tuning
        The tunings at the selected setting and at the weakest penalty tried.
    warm_starts : list of WarmStarts
        The solution for each group at the weakest penalty, fitted to the training rows. Later fits
        start from it.
    """
    sample = data.rows
    engine = spec.engine
    tuned = engine.tuned
    fitted_layout = engine.layout(sample, data.layout)
    if tuned is None:
        calibrated_alone = tune(data, spec, None, folds=folds)
        if progress is not None:
            progress(float(NFOLD))
        return calibrated_alone, calibrated_alone, []
    stepwise = engine.stepwise(sample, fitted_layout)
    # sign: step to a weaker penalty
    grid = np.array(engine.grid)
    sign = -1 if tuned.simpler == "larger" else 1

    def losses_of(
        used_folds: Folds, warm_starts: list[WarmStarts], settings: np.ndarray
    ) -> tuple[np.ndarray, Validated]:
        """Return the losses and scores of settings on one fold, and extend its `warm_starts`."""
        warm_start_sets = [warm_starts] if stepwise else None
        scored = validate(data, spec, settings, used_folds, warm_start_sets=warm_start_sets)
        # column 0: the log-loss
        return score_settings(scored, "logloss", spec.calibrate)[0][:, 0], scored

    (warm_starts,) = _empty_warm_starts(sample, fitted_layout, data.K, 1)
    k = _best_position(grid, sign, stepwise, partial(losses_of, sample_folds, warm_starts))
    if progress is not None:
        progress(0.5 * NFOLD)  # half the steps of a tuning on NFOLD folds
    (warm_starts,) = _empty_warm_starts(sample, fitted_layout, data.K, 1)
    tried: dict[int, tuple[float, Validated]] = {}  # loss and scores by position in the grid

    def try_one(positions: Sequence[int]) -> list[float]:
        """Fit all rows at one setting, record its loss and scores, and return the loss."""
        (k,) = positions
        loss, scored = losses_of(folds, warm_starts, grid[[k]])
        tried[k] = float(loss[0]), scored
        return [tried[k][0]]

    walk(range(k, len(grid) if sign > 0 else -1, sign), try_one, patience=1)
    if progress is not None:
        progress(0.5 * NFOLD)
    weakest = list(tried)[-1]
    tried_ks = sorted(tried)
    losses = np.array([tried[k][0] for k in tried_ks])

    def tuning_at(k: int) -> Tuning:
        """Return the results of the search as a `Tuning` with k as the selected setting."""
        scored = tried[k][1]
        chosen = tried_ks.index(k)
        calibration = fit_calibration(scored.scores[0], scored.y, scored.weights, spec.calibrate)
        chosen_scores = replace(scored, fits=[], found=[])
        best = engine.at(float(grid[k]))
        return Tuning(
            tuned.option,
            grid[tried_ks],
            losses,
            chosen,
            calibration,
            scored.found,
            chosen_scores,
            best,
        )

    value = float(grid[weakest])
    remaining_starts = [
        WarmStarts({value: group_starts[value]} if value in group_starts else {})
        for group_starts in warm_starts
    ]
    return tuning_at(tried_ks[int(losses.argmin())]), tuning_at(weakest), remaining_starts


def _empty_warm_starts(sample: Rows, layout: Layout, K: int, nfold: int) -> list[list[WarmStarts]]:
    """Return empty warm starts for each fold and group.

    They cache the prepared rows if these are small.
    """
    # size of matrices (D, D) and rows, rounded up
    bytes_kept = 16.0 * nfold * (K * layout.D**2 + sample.n * (layout.m + 3))
    return [
        [WarmStarts(keeps=bytes_kept < MAX_PREPARED_BYTES) for _ in range(K)] for _ in range(nfold)
    ]


def _best_position(grid: np.ndarray, sign: int, stepwise: bool, losses_of: Callable) -> int:
    """Return the position with the smallest loss on `grid`.

    The search starts in the middle of the grid if `stepwise` is True, and otherwise at the simplest
    setting. `losses_of` takes an array of settings and returns a tuple; the first element contains
    the losses. `sign` is 1 if the complexity of models increases along the grid, and -1 if it
    decreases.
    """
    if stepwise:
        return descend(
            (len(grid),), (len(grid) // 2,), lambda position: losses_of(grid[list(position)])[0][0]
        )[0]
    simplest_first = range(len(grid))[::sign]
    losses = walk(
        simplest_first,
        lambda positions: losses_of(grid[list(positions)])[0].tolist(),
        patience=1,
        first=SETTINGS_PER_CALL,
        at_once=SETTINGS_PER_CALL,
    )
    return simplest_first[int(np.argmin(losses))]


def _near(settings: Sequence[float], value: float) -> Sequence[float]:
    """Return the settings near `value`, up to `NEAR` on each side."""
    k = int(np.argmin(np.abs(np.array(settings) - value)))
    return settings[max(k - NEAR, 0) : k + NEAR + 1]


def _tune_one(
    data: FitData,
    spec: FitSpec,
    settings: Sequence[float],
    rule: str | None,
    folds: AnyFolds,
    progress: Callable | None,
) -> Tuning:
    """Tune one variant of an engine, fold by fold.

    The arguments are the same as in `tune`.
    """
    engine = spec.engine
    tuned = engine.tuned
    values = np.array(settings) if rule is not None and tuned is not None else None
    score_method = "class_scores" if data.K > 1 else "pseudo_scores"
    fitted_layout = engine.layout(data.nominal.rows, data.layout)
    nominal = data.nominal.sample
    if tuned is not None and values is not None and engine.stepwise(nominal, fitted_layout):
        warm_start_sets = _empty_warm_starts(nominal, fitted_layout, data.K, len(folds))
        if spec.relevance is None:  # solutions of the chosen predictors, not yet known, are small
            check_memory(
                8.0 * fitted_layout.D * (1 + fitted_layout.D) * data.K * len(folds) * len(values),
                (
                    f"Cross-validating {tuned.option} for {data.K} groups with {fitted_layout.D} "
                    "non-reference levels"
                ),
                f"Pass a number for {tuned.option}, or use fewer predictors.",
            )

        def compare(settings: np.ndarray, progress: Callable | None) -> Validated:
            """Return the out-of-fold scores of settings, with warm starts from earlier settings."""
            return validate(
                data,
                spec,
                settings,
                folds,
                progress=progress,
                warm_start_sets=warm_start_sets,
                score_method=score_method,
            )

        values, scored, losses = _search(compare, values, spec.calibrate, rule, progress)
    else:
        scored = validate(data, spec, values, folds, progress=progress, score_method=score_method)
        # column 0: the log-loss
        losses = score_settings(scored, "logloss", spec.calibrate)[0][:, 0]
    chosen = int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))
    if rule == "cv-1se" and tuned is not None and values is not None:
        chosen = one_standard_error(scored, values, chosen, spec.calibrate, tuned.simpler)
    calibration = fit_calibration(scored.scores[chosen], scored.y, scored.weights, spec.calibrate)
    option = None if tuned is None or values is None else tuned.option
    oof_scores = replace(scored, scores=scored.scores[chosen : chosen + 1], fits=[], found=[])
    best = engine if tuned is None or values is None else engine.at(float(values[chosen]))
    return Tuning(
        option,
        np.zeros(1) if values is None else values,
        losses,
        chosen,
        calibration,
        scored.found,
        oof_scores,
        best,
    )


def _tune_together(
    data: FitData,
    spec: FitSpec,
    variants: Sequence[Engine],
    settings: Sequence[float],
    rule: str | None,
    folds: Folds,
    score_folds: Callable[..., np.ndarray],
    *,
    progress: Callable | None,
    on_a_line: bool,
) -> Tuning:
    """Tune an engine that fits all folds together; the arguments are the same as in `tune`.

    ``score_folds(variant, setting, rows, exactly, workers)``, from `Engine.held_out`, returns the
    scores (N, K) of the held-out rows. `rows` contains their positions, fold by fold. If `exactly`
    is True, fits do not stop early.
    """
    sample = data.rows
    engine = spec.engine
    calibrate = spec.calibrate
    tuned = engine.tuned
    assert tuned is not None  # noqa: S101  # what fits folds together is tuned
    grid = np.array([engine.setting] if rule is None else settings)
    check_trained(folds.train.sum(axis=1).min())  # raises if a fold has no training rows
    # (rows, weights, positions of rows)
    validated = [folds.one(f).validation(sample) for f in range(len(folds))]
    positions_by_fold = [rows[2] for rows in validated]
    weights = np.concatenate([rows[1] for rows in validated])
    positions = np.concatenate(positions_by_fold)
    fold = np.repeat(
        np.arange(len(positions_by_fold)),
        [len(fold_positions) for fold_positions in positions_by_fold],
    )
    base = Validated(  # the held-out rows without scores
        scores=np.empty((0, 0, 0)),
        y=sample.response[positions],
        weights=weights,
        fold=fold,
        rows=positions,
        fits=[],
        score_method="class_scores",
        found=[],
    )
    scores_of: dict[tuple[int, int], np.ndarray] = {}
    loss_of: dict[tuple[int, int], float] = {}

    def fit(v: int, k: int, exactly: bool = False) -> float:
        """Fit variant v at setting k, record its scores and loss, and return the loss."""
        scores = score_folds(variants[v], float(grid[k]), positions_by_fold, exactly, spec.workers)
        scores_of[v, k] = scores
        loss_of[v, k] = base.log_loss(calibrated(base, scores, calibrate))
        return loss_of[v, k]

    report_variant = scaled_progress(progress, len(folds) / len(variants))
    walk_variants(fit, len(variants), len(grid) - 1, rule == "cv-1se", report_variant, on_a_line)
    refitted: set[tuple[int, int]] = set()
    # the loss of a fit that was stopped early may be too small
    while (best := min(loss_of, key=loss_of.__getitem__)) not in refitted:
        fit(*best, exactly=True)
        refitted.add(best)
    tried_ks = sorted(k for v, k in scores_of if v == best[0])
    if rule == "cv-1se":
        compared = replace(base, scores=np.array([scores_of[best[0], k] for k in tried_ks]))
        simplest = one_standard_error(
            compared, grid[tried_ks], tried_ks.index(best[1]), calibrate, tuned.simpler
        )
        best = (best[0], tried_ks[simplest])
        fit(*best, exactly=True)
    calibration = fit_calibration(scores_of[best], base.y, base.weights, calibrate)
    oof_scores = replace(base, scores=scores_of[best][None])
    if rule is None:
        return Tuning(
            option=None,
            values=np.zeros(1),
            loss=np.array([loss_of[best]]),
            chosen=0,
            calibration=calibration,
            found=[],
            scored=oof_scores,
            engine=variants[best[0]],
        )
    losses = np.array([loss_of[best[0], k] for k in tried_ks])
    chosen = variants[best[0]].at(float(grid[best[1]]))
    return Tuning(
        tuned.option,
        grid[tried_ks],
        losses,
        tried_ks.index(best[1]),
        calibration,
        [],
        oof_scores,
        chosen,
    )


def _search(
    compare: Callable, grid: np.ndarray, calibrate: str, rule: str | None, progress: Callable | None
) -> tuple[np.ndarray, Validated, np.ndarray]:
    """Search a `grid`, and return the settings tried (S,) with their out-of-fold scores and losses.

    The grid is increasing. ``compare(settings, progress)`` fits the given settings. The search
    first fits every second setting, starting with the last (the strongest penalty), until the loss
    has clearly increased. It then fits the neighbours of the best settings. Finally, up to
    `MAX_REFITS` settings are refitted more precisely: the best setting, and then each setting that
    would become the best if its loss decreased by `REFIT_CHANGES` times the largest relative change
    observed in refits so far.
    """
    scores_of: dict[int, np.ndarray] = {}
    loss_of: dict[int, float] = {}
    scored: list[Validated] = []
    # every second setting, from the strongest penalty on
    coarse = list(range(len(grid) - 1, -1, -2))
    # maximum number of calls of `fit`: first, coarse, neighbours, refits
    max_calls = 1 + len(coarse[COARSE_FITS:]) + 1 + MAX_REFITS

    def fit(positions: Sequence[int]) -> list[float]:
        """Fit the settings at `positions`, record scores and losses, and return the losses."""
        validated = compare(
            grid[list(positions)], progress=scaled_progress(progress, 1.0 / max_calls)
        )
        scored.append(validated)
        for k, scores in zip(positions, validated.scores, strict=True):
            scores_of[k] = scores
            loss_of[k] = validated.log_loss(calibrated(validated, scores, calibrate))
        return [loss_of[k] for k in positions]

    losses = walk(coarse, fit, patience=2, ratio=NEIGHBOUR_RATIO, first=COARSE_FITS)
    near_best = [k for k, loss in loss_of.items() if not loss > NEIGHBOUR_RATIO * np.nanmin(losses)]
    neighbours = {k + side for k in near_best for side in (-1, 1)}
    if rule == "cv-1se":
        neighbours |= set(range(min(near_best), len(grid)))  # simpler settings: larger penalties
    untried = sorted(neighbours.intersection(range(len(grid))) - set(scores_of), reverse=True)
    if untried:
        fit(untried)
    refitted: list[int] = []
    largest_change = REFIT_MARGIN
    while len(refitted) < MAX_REFITS:
        least_loss = np.nanmin(list(loss_of.values()))
        limit = min(NEIGHBOUR_RATIO, 1.0 + REFIT_CHANGES * largest_change) * least_loss
        candidates = {k: loss for k, loss in loss_of.items() if k not in refitted and loss <= limit}
        if not candidates or (NEIGHBOUR_RATIO - 1.0) * least_loss <= LOSS_TIE:
            break
        k = min(candidates, key=candidates.__getitem__)
        fit([k])
        refitted.append(k)
        largest_change = max(largest_change, abs(loss_of[k] / candidates[k] - 1.0))
    if progress is not None:  # the fraction of the fits that were not needed; each fold is a step
        progress((1.0 - len(scored) / max_calls) * len(np.unique(scored[0].fold)))
    tried_ks = sorted(scores_of)
    scores = np.array([scores_of[k] for k in tried_ks])
    problems = [problem for fits in scored for problem in fits.found]
    return (
        grid[tried_ks],
        replace(scored[0], scores=scores, found=problems),
        np.array([loss_of[k] for k in tried_ks]),
    )
