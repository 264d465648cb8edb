"""Tuning inside a fit: the penalty by cross-validation, and the calibration of class scores on the same folds.

Where fits cost so much that it is worth it, settings are tried from the strongest on: first every second one, until the
log-loss has clearly risen, then those between the best ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np

from bbl.boltzmann.convergence_warnings import Problem
from bbl.boltzmann.validation import Validated, validate
from bbl.crossval import calibrated, check_trained, one_standard_error, score_settings
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.engines.warm_starts import WarmStarts
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.parallel import scaled_progress
from bbl.rows.dealing import AnyFolds
from bbl.rows.folds import Folds, shuffled_folds
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample
from bbl.stats.calibration import Calibration, fit_calibration

__all__ = ["NFOLD", "RULES", "Tuning", "descend", "tune", "tune_many"]

RULES = ("cv", "cv-1se")
NFOLD = 5
FIRST = 3  # settings of the coarse grid that are fitted before any is judged
RISEN = 1.1  # two settings in a row whose loss is this much above the least end the search
NEIGHBOUR_RATIO = 1.03  # neighbours of settings whose loss is at most this multiple of the least are tried too
AT_ONCE = 4  # settings of those that share their work
BEST = 3  # so many of these are fitted again, the best first,
REFIT_MARGIN = 1e-3  # relative loss above the best at which no setting is fitted again
REFIT_CHANGES = 3.0  # multiples of the largest change by a refit, beyond which no setting is fitted again
KEPT = 2.0**26  # bytes of prepared rows up to which all folds keep theirs
TIE = 1e-4  # where that is less than so much log-loss, it makes no difference


@dataclass(frozen=True)
class Tuning:
    """Result of cross-validation inside a fit.

    Attributes
    ----------
    option : str or None
        The option that was tuned; None if only a calibration was fitted.
    values : ndarray, shape (S,)
        Its settings that were tried, in the order of the grid.
    loss : ndarray, shape (S,)
        Out-of-fold log-loss of each.
    chosen : int
        Position of the one taken.
    calibration : Calibration
    found : list of Problem
        What did not converge.
    scored : Validated or None
        The out-of-fold scores of the setting taken, before they are calibrated; not kept in model files.
    engine : Engine or None
        The engine with the setting taken; not kept in model files.
    """

    option: str | None
    values: np.ndarray
    loss: np.ndarray
    chosen: int
    calibration: Calibration
    found: list[Problem]
    scored: Validated | None = field(default=None, repr=False)
    engine: Engine | None = field(default=None, repr=False)


def tune(
    sample: Rows,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    rule: str | None,
    *,
    calibrate: str,
    log_z: str,
    workers: int,
    rng: np.random.Generator,
    progress: Callable | None = None,
    folds: AnyFolds | None = None,
    among: tuple[Sequence[Engine], Sequence[float]] | None = None,
) -> Tuning:
    """Choose the engine's tuned option and fit the calibration on the out-of-fold scores of shuffled folds.

    Parameters
    ----------
    rule : {"cv", "cv-1se"} or None
        The setting of least log-loss, or the simplest within one standard error of it; None keeps the engine's own.
        Of one group without classes it is the log pseudo-likelihood of rows that counts.
    calibrate : {"none", "offset", "temperature", "firm"}
        Scores are calibrated before they are compared, each fold by the others.
    folds : Folds or StoredFolds, optional
        In place of shuffled ones of its own.
    among : (sequence of Engine, sequence of float), optional
        Variants of the engine and rising settings in place of its own ones.
    """
    if folds is None:
        rows = cast(Sample, sample)
        sample = rows = rows.by_state(layout.n_levels, len(labels.groups)) if engine.joint else rows
        folds = shuffled_folds(rows, NFOLD, rng)
    fitting_options: dict[str, Any] = {"calibrate": calibrate, "log_z": log_z, "workers": workers, "rng": rng}
    variants, settings = among or (engine.variants(), () if engine.tuned is None else engine.tuned.grid)
    if isinstance(folds, Folds):  # of rows in memory
        sample = cast(Sample, sample)
        held_out = engine.held_out(sample, engine.layout(sample, layout), len(labels.groups), folds)
        if held_out is not None:
            return _tune_together(
                sample, engine, variants, settings, rule, folds, held_out, calibrate, workers, progress
            )
    tuned = []
    for variant in variants:
        step = scaled_progress(progress, 1.0 / len(variants))
        tuned.append(
            _tune_one(sample, labels, layout, variant, settings, rule, folds, progress=step, **fitting_options)
        )
    return min(tuned, key=lambda each: each.loss[each.chosen])


def tune_many(
    sample: Sample,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    folds: Folds,
    drawn: Folds,
    *,
    calibrate: str,
    progress: Callable | None = None,
    **told: Any,
) -> tuple[Tuning, Tuning, list[WarmStarts]]:
    """Choose the engine's tuned option for many rows: first on a sample, then weaker penalties on all rows.

    The more rows, the less is gained by a simple model. So from the setting of least log-loss on some rows on, settings
    of less simple models are compared on all, until the log-loss rises.

    Parameters
    ----------
    folds, drawn : Folds
        One of all rows, and one of some.
    told : dict
        `log_z`, `workers` and `rng` of `tune`, which see for the rest.

    Returns
    -------
    found, last : Tuning
        That of the setting taken, and that of the last one tried, the least simple.
    warm_starts : list of WarmStarts
        Of each group the solution of that one on the training rows, where the next fits may start.
    """
    tuned, fitted = engine.tuned, engine.layout(sample, layout)
    assert tuned is not None  # noqa: S101  # it is asked for
    stepwise = engine.stepwise(sample, fitted)
    grid, sign = np.array(tuned.grid), -1 if tuned.simpler == "larger" else 1

    def losses_of(own: Folds, warm_starts: list[WarmStarts], settings: np.ndarray) -> tuple[np.ndarray, Validated]:
        warm_start_sets = [warm_starts] if stepwise else None
        scored = validate(sample, labels, layout, engine, settings, own, warm_start_sets=warm_start_sets, **told)
        return score_settings(scored, "logloss", calibrate)[0][:, 0], scored

    (warm_starts,) = _trails(sample, fitted, len(labels.groups), 1)
    k = _climb(grid, sign, stepwise, partial(losses_of, drawn, warm_starts))
    if progress is not None:
        progress(0.5 * NFOLD)
    (warm_starts,) = _trails(sample, fitted, len(labels.groups), 1)
    tried: dict[int, tuple[float, Validated]] = {}
    while 0 <= k < len(grid) and (
        not tried or tried[k - sign][0] <= min(fold_prediction for fold_prediction, _ in tried.values())
    ):
        loss, new = losses_of(folds, warm_starts, grid[[k]])
        tried[k] = float(loss[0]), new
        k += sign
    if progress is not None:
        progress(0.5 * NFOLD)
    order, last = sorted(tried), k - sign
    losses = np.array([tried[at][0] for at in order])

    def taken(at: int) -> Tuning:
        scored = tried[at][1]
        heat = fit_calibration(scored.scores[0], scored.y, scored.weights, calibrate)
        fold_prediction, best = replace(scored, fits=[], found=[]), engine.at(float(grid[at]))
        return Tuning(tuned.option, grid[order], losses, order.index(at), heat, scored.found, fold_prediction, best)

    value = float(grid[last])
    remaining_starts = [WarmStarts({value: each[value]} if value in each else {}) for each in warm_starts]
    return taken(order[int(losses.argmin())]), taken(last), remaining_starts


def _trails(sample: Rows, layout: Layout, K: int, nfold: int) -> list[list[WarmStarts]]:
    """Return what the comparisons of every fold and group begin with."""
    bytes_kept = 16.0 * nfold * (K * layout.D**2 + sample.n * (layout.m + 3))
    return [[WarmStarts(keeps=bytes_kept < KEPT) for _ in range(K)] for _ in range(nfold)]


def _climb(grid: np.ndarray, sign: int, stepwise: bool, losses_of: Callable) -> int:
    """Return where on a grid the loss is least: from the middle, or from its simple end on, some settings at once."""
    if stepwise:
        return descend((len(grid),), (len(grid) // 2,), lambda at: losses_of(grid[list(at)])[0][0])[0]
    simplest, loss = np.arange(len(grid))[::sign], np.empty(0)
    while not len(loss) or (loss.argmin() == len(loss) - 1 and len(loss) < len(grid)):
        loss = np.append(loss, losses_of(grid[simplest[len(loss) : len(loss) + AT_ONCE]])[0])
    return int(simplest[loss.argmin()])


def descend(sizes: tuple[int, ...], at: tuple[int, ...], loss: Callable[[tuple[int, ...]], float]) -> tuple[int, ...]:
    """Return the place of least `loss` on a grid, from `at` on, along one axis after the other, neighbour by neighbour.

    Examples
    --------
    >>> descend((9, 9), (4, 4), lambda at: (at[0] - 7) ** 2 + (at[1] - 2) ** 2)
    (7, 2)
    """
    tried = {at: loss(at)}
    axis, still = len(sizes) - 1, 0
    while still < len(sizes):
        before = at
        for step in (-1, 1):
            while 0 <= (new := at[axis] + step) < sizes[axis]:
                place = (*at[:axis], new, *at[axis + 1 :])
                if place not in tried:
                    tried[place] = loss(place)
                if not tried[place] < tried[at]:
                    break
                at = place
        still = still + 1 if at == before else 0
        axis = (axis - 1) % len(sizes)
    return at


def _tune_one(
    sample: Rows,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    settings: Sequence[float],
    rule: str | None,
    folds: AnyFolds,
    *,
    calibrate: str,
    log_z: str,
    workers: int,
    rng: np.random.Generator,
    progress: Callable | None,
) -> Tuning:
    """Return what `tune` does of one variant of an engine."""
    tuned = engine.tuned
    values = np.array(settings) if rule is not None and tuned is not None else None
    judge = "class_scores" if len(labels.groups) > 1 else "pseudo_scores"
    common: dict[str, Any] = {"folds": folds, "log_z": log_z, "workers": workers, "rng": rng, "judge": judge}

    def run(values: np.ndarray | None, **more: Any) -> Validated:
        return validate(sample, labels, layout, engine, values, **common, **more)

    fitted = engine.layout(cast(Sample, sample), layout)
    if tuned is not None and values is not None and engine.stepwise(sample, fitted):
        warm_start_sets = _trails(sample, fitted, len(labels.groups), len(folds))
        check_memory(
            8.0 * fitted.D * (1 + fitted.D) * len(labels.groups) * len(folds) * len(values),
            f"Choosing {tuned.option} for {len(labels.groups)} groups with {fitted.D} non-reference levels",
            f"Give a number for {tuned.option}, or use fewer predictors.",
        )
        compare = partial(run, warm_start_sets=warm_start_sets)
        values, scored, loss = _search(compare, values, calibrate, rule, progress)
    else:
        scored = run(values, progress=progress)
        loss = score_settings(scored, "logloss", calibrate)[0][:, 0]
    chosen = int(np.argmin(np.where(np.isnan(loss), np.inf, loss)))
    if rule == "cv-1se" and tuned is not None and values is not None:
        chosen = one_standard_error(scored, values, chosen, calibrate, tuned.simpler)
    calibration = fit_calibration(scored.scores[chosen], scored.y, scored.weights, calibrate)
    option = None if tuned is None or values is None else tuned.option
    chosen_prediction = replace(scored, scores=scored.scores[chosen : chosen + 1], fits=[], found=[])
    best = engine if tuned is None or values is None else engine.at(float(values[chosen]))
    return Tuning(
        option,
        np.zeros(1) if values is None else values,
        loss,
        chosen,
        calibration,
        scored.found,
        chosen_prediction,
        best,
    )


def _tune_together(
    sample: Sample,
    engine: Engine,
    variants: Sequence[Engine],
    settings: Sequence[float],
    rule: str | None,
    folds: Folds,
    held_out: Callable[..., np.ndarray],
    calibrate: str,
    workers: int,
    progress: Callable | None,
) -> Tuning:
    """Return what `tune` does of an engine that fits all folds together."""
    tuned = engine.tuned
    assert tuned is not None  # noqa: S101  # what fits folds together is tuned
    grid = np.array([engine.setting] if rule is None else settings)
    check_trained(folds.train.sum(axis=1).min())
    parts = [folds.one(f).validation(sample) for f in range(len(folds))]
    rows, weights = [prediction[2] for prediction in parts], np.concatenate([prediction[1] for prediction in parts])
    at = np.concatenate(rows)
    fold = np.repeat(np.arange(len(rows)), [len(fold_rows) for fold_rows in rows])
    base = Validated(np.empty((0, 0, 0)), sample.response[at], weights, fold, at, [], "class_scores", [])
    tried: dict[tuple[int, int], np.ndarray] = {}
    loss: dict[tuple[int, int], float] = {}

    def fit(v: int, k: int, exactly: bool = False) -> float:
        scores = held_out(variants[v], float(grid[k]), rows, exactly, workers)
        tried[v, k], loss[v, k] = scores, base.log_loss(calibrated(base, scores, calibrate))
        return loss[v, k]

    report_share = scaled_progress(progress, len(folds) / len(variants))
    _walk_variants(fit, len(variants), len(grid) - 1, rule == "cv-1se", report_share)
    exact: set[tuple[int, int]] = set()
    while (best := min(loss, key=loss.__getitem__)) not in exact:  # what ends early may be better than what does not
        fit(*best, exactly=True)
        exact.add(best)
    order = sorted(k for v, k in tried if v == best[0])
    if rule == "cv-1se":
        compared = replace(base, scores=np.array([tried[best[0], k] for k in order]))
        simplest = one_standard_error(compared, grid[order], order.index(best[1]), calibrate, tuned.simpler)
        best = (best[0], order[simplest])
        fit(*best, exactly=True)
    calibration = fit_calibration(tried[best], base.y, base.weights, calibrate)
    fold_rows = replace(base, scores=tried[best][None])
    if rule is None:
        return Tuning(None, np.zeros(1), np.array([loss[best]]), 0, calibration, [], fold_rows, variants[best[0]])
    losses = np.array([loss[best[0], k] for k in order])
    chosen = variants[best[0]].at(float(grid[best[1]]))
    return Tuning(tuned.option, grid[order], losses, order.index(best[1]), calibration, [], fold_rows, chosen)


def _walk_variants(fit: Callable[[int, int], float], n: int, top: int, every: bool, told: Callable | None) -> None:
    """Call ``fit(variant, k)``, which returns the loss, for what may be best of `n` variants and settings 0 to `top`.

    Each variant is tried from the strongest setting on, until its loss has risen; with `every` at all settings.
    """
    for v in range(n):
        risen, least = 0, np.inf
        for k in range(top, -1, -1):
            loss = fit(v, k)
            least = min(least, loss)
            risen = risen + 1 if loss > NEIGHBOUR_RATIO * least else 0
            if risen == 2 and not every:
                break
        if told is not None:
            told()


def _search(
    compare: Callable, grid: np.ndarray, calibrate: str, rule: str | None, progress: Callable | None
) -> tuple[np.ndarray, Validated, np.ndarray]:
    """Compare settings of a rising `grid`; return those tried, in its order, with their predictions and losses.

    The last is the strongest, and where the search begins. At the end the best one is fitted again, more exactly, and
    others as long as what that changes may make them the best.
    """
    tried: dict[int, np.ndarray] = {}
    losses: dict[int, float] = {}
    scored: list[Validated] = []
    coarse = list(range(len(grid) - 1, -1, -2))
    most_fits = 1 + len(coarse[FIRST:]) + 1 + BEST

    def fit(which: list[int]) -> np.ndarray:
        """Fit some settings; return the losses of all that were tried, in the order in which they were first tried."""
        new = compare(grid[which], progress=scaled_progress(progress, 1.0 / most_fits))
        scored.append(new)
        for k, scores in zip(which, new.scores, strict=True):
            tried[k], losses[k] = scores, new.log_loss(calibrated(new, scores, calibrate))
        return np.array([losses[k] for k in tried])

    loss = fit(coarse[:FIRST])
    for k in coarse[FIRST:]:
        if (loss[-2:] > RISEN * np.nanmin(loss)).all():
            break
        loss = fit([k])
    good = [
        k for k, setting_loss in zip(tried, loss, strict=True) if not setting_loss > NEIGHBOUR_RATIO * np.nanmin(loss)
    ]
    between = {k + side for k in good for side in (-1, 1)}
    if rule == "cv-1se":
        between |= set(range(min(good), len(grid)))
    untried = sorted(between.intersection(range(len(grid))) - set(tried), reverse=True)
    if untried:
        loss = fit(untried)
    again: list[int] = []
    moved = REFIT_MARGIN
    while len(again) < BEST:
        least = np.nanmin(list(losses.values()))
        near = min(NEIGHBOUR_RATIO, 1.0 + REFIT_CHANGES * moved) * least
        near_best = {k: setting_loss for k, setting_loss in losses.items() if k not in again and setting_loss <= near}
        if not near_best or (NEIGHBOUR_RATIO - 1.0) * least <= TIE:
            break
        k = min(near_best, key=near_best.__getitem__)
        fit([k])
        again.append(k)
        moved = max(moved, abs(losses[k] / near_best[k] - 1.0))
    if progress is not None:  # of the fits that were not needed
        progress((1.0 - len(scored) / most_fits) * len(np.unique(scored[0].fold)))
    order = sorted(tried)
    scores, messages = np.array([tried[k] for k in order]), [text for each in scored for text in each.found]
    return grid[order], replace(scored[0], scores=scores, found=messages), np.array([losses[k] for k in order])
