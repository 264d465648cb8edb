"""Fits of an engine to each response group (and to all rows pooled), and the ln Z of each group.

K counts groups, m predictors, n rows. *Energy*: the exponent of P(row | group), ln P(row | group) + ln Z.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from bbl.boltzmann.convergence_warnings import group_text
from bbl.boltzmann.cost_limits import check_annealing, check_known, guard_memory, stalled
from bbl.boltzmann.fitted import Estimate, Relevance
from bbl.boltzmann.joint import joint_path
from bbl.boltzmann.predictive import predictive
from bbl.boltzmann.relevance import choose_relevant, of_all_predictors, of_chosen
from bbl.boltzmann.task import Run, Task
from bbl.boltzmann.union_layout import log_z_of_chosen, merge_layouts
from bbl.design.labels import Labels
from bbl.engines import Engine, EngineFit
from bbl.engines.engine_fit import NoProgress
from bbl.engines.traits import OutOfFoldScores
from bbl.engines.warm_starts import WarmStarts
from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.elimination import log_sum
from bbl.model.layout import Layout
from bbl.model.logz import OF_ROWS, approximate_log_z, exact_order, resolve_log_z
from bbl.model.parameters import Parameters
from bbl.parallel import run_tasks
from bbl.rows.sample import Rows, Sample

__all__ = ["estimate", "estimate_jointly", "estimate_path", "fit_group"]

MIN_WORK_FOR_THREADS = 200_000  # rows times levels times settings; smaller fits run in one thread


def fit_group(
    sample: Rows,
    layout: Layout,
    engine: Engine,
    values: Sequence[float] | None,
    log_z: str,
    run: Run,
    keep_sites: bool = False,
    warm_starts: WarmStarts | None = None,
) -> list[tuple[EngineFit, float, float]]:
    """Fit one group at each of `values` of the tuned option; None for the engine's own setting.

    Returns a list of (fit, ln Z, standard error of ln Z); ln Z is nan if it is "exact", which is computed for all
    groups together. With `warm_starts`, fits are just precise enough to compare settings. The fits' matrices (D, D) of
    site solutions are dropped unless `keep_sites` or `warm_starts` ask for them. A group without rows gets parameters
    of zero and a share of zero. Engines that sample use ``run.rng`` and ``run.progress``, ``log_z="ais"`` the former.
    """
    if not sample.n:
        if run.progress is not None:
            run.progress()
        empty = EngineFit(np.zeros(layout.size), 0.0, mf_log_z=0.0, converged=np.ones(layout.m, dtype=bool))
        return [(empty, 0.0, 0.0)] * (1 if values is None else len(values))

    def prepare_rows() -> Sample:
        collapses = engine.collapses or log_z in OF_ROWS or not sample.exact
        return engine.prepare(sample.collapsed(layout.n_levels) if collapses else sample, layout)

    rows = prepare_rows() if warm_starts is None else warm_starts.once("rows", prepare_rows)
    out = []
    path: Callable[..., list[EngineFit]] = engine.path
    if warm_starts is not None:
        fits = engine.compare(rows, layout, values, warm_starts)
    elif engine.samples:
        fits = path(rows, layout, values, run.workers, rng=run.rng, progress=run.progress)
    elif engine.takes_start and run.start is not None:
        fits = path(rows, layout, values, run.workers, start=run.start[1:])
    else:
        fits = path(rows, layout, values, run.workers)
    for fit in fits:
        value, error = np.nan, 0.0
        if log_z == "ais":
            sampled = annealed_log_z(layout, fit.theta, annealing_start(rows, layout), rng=run.rng, n_jobs=run.workers)
            value, error = sampled.log_z, sampled.standard_error
        elif log_z != "exact":
            engine_log_z = fit.log_z(log_z)
            value = (
                approximate_log_z(log_z, rows, layout, fit.theta, fit.site_theta)
                if engine_log_z is None
                else engine_log_z
            )
        kept_sites = fit.site_theta if keep_sites or warm_starts is not None else None
        out.append((replace(fit, site_theta=kept_sites, normaliser=None), float(value), error))
    return out


def estimate_path(
    task: Task,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    run: Run,
    warm_start_sets: Sequence[WarmStarts] | None = None,
) -> list[Estimate]:
    """Fit all K groups (and the pooled rows) at each of `values` of the engine's tuned option.

    `warm_start_sets`, one for each fit, ask for fits that are just precise enough to compare settings.

    Returns
    -------
    list of Estimate
        One for each of `values`; one if `values` is None.
    """
    if task.relevance is not None:
        return _estimates_of_chosen(task, engine, values, run, warm_start_sets)
    sample, K, labels, workers = task.sample, task.K, task.labels, run.workers
    layout = engine.layout(cast(Sample, sample), task.layout)
    if engine.joint:
        return estimate_jointly(replace(task, layout=layout), engine, values, run)
    wide = engine.widened(layout)  # with hidden units, if the engine has any
    # the ln Z of an engine that chooses its terms is resolved after the fit
    kind = "exact" if engine.chooses else resolve_log_z(task.log_z, wide, engine.log_z)
    check_annealing(kind, layout, K * (1 if values is None else len(values)), workers)
    order = exact_order(layout) if kind == "exact" else []  # raises before the fit if it costs too much
    pooled = task.pooled and not engine.chooses  # the pooled fit would choose terms of its own
    parts = [sample.group(y) for y in range(K)] + ([sample.pooled] if pooled else [])
    layouts = [layout.of_group(y) for y in range(K)] + ([layout.of_pooled] if pooled else [])
    for y, group_sample in enumerate(parts):
        group, names = (f"group {y}", range(layout.m)) if labels is None else (group_text(labels, y), labels.names)
        check_known(group_sample, layout, engine, kind, group, names)
    if not engine.samples and sample.n * layout.D * (1 if values is None else len(values)) < MIN_WORK_FOR_THREADS:
        workers = 1
    n_parallel_fits = min(workers, len(parts))
    guard_memory(sample, layout, K, engine, values, n_parallel_fits, extra=int(pooled))
    rngs = engine.generator(run.rng).spawn(len(parts))
    workers_of_fit = max(1, workers // n_parallel_fits)
    kinds = [kind] * K + ["exact"] * pooled  # the pooled fit is never asked for its ln Z
    warm_starts = [None] * len(parts) if warm_start_sets is None else warm_start_sets
    # an engine that samples reports shares of a fit; of the others, each finished fit is reported
    fit_progress, group_progress = (run.progress, None) if engine.samples else (None, run.progress)
    starts = [None] * len(parts) if run.start is None else [*run.start, *[None] * pooled]
    runs = [Run(workers_of_fit, rng, fit_progress, start) for rng, start in zip(rngs, starts, strict=True)]
    fit_arguments = [
        (group_sample, group_layout, engine, values, k, group_run, False, group_starts)
        for group_sample, group_layout, k, group_run, group_starts in zip(
            parts, layouts, kinds, runs, warm_starts, strict=True
        )
    ]
    settings = list(zip(*_fit_groups(sample, fit_arguments, n_parallel_fits, group_progress, labels), strict=True))
    groups = parts[:K]
    if engine.chooses:
        shared_arguments = (layout, cast(list[Sample], groups), engine, task.log_z, rngs, workers)
        return [_estimate_of_chosen([fit for fit, _, _ in fits], *shared_arguments) for fits in settings]
    totals, out = np.array([g.total for g in groups]), []
    for group_fits in settings:
        fits = [fit for fit, _, _ in group_fits]
        theta = np.array([fit.theta for fit in fits[:K]])
        ln_z = (
            log_sum(layout.factors(theta), order)
            if kind == "exact"
            else np.array([value for _, value, _ in group_fits[:K]])
        )
        lkh = float(sum(t * fit.lkh for t, fit in zip(totals, fits[:K], strict=True)))
        parameters = Parameters(layout, theta, fits[K].theta if pooled else None)
        error = np.array([standard_error for _, _, standard_error in group_fits[:K]])
        annealing_starts = (
            [annealing_start(group_sample, layout) for group_sample in groups]
            if kind == "ais" and engine.samples
            else [None] * K
        )
        draws = predictive(wide, fits[:K], kind, annealing_starts, rngs[:K], workers, wide.m - layout.m)
        shares = totals / totals.sum()
        out.append(Estimate(parameters, ln_z, kind, shares, lkh, tuple(fits), error, predictive=draws))
    return out


def _estimates_of_chosen(
    task: Task,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    run: Run,
    warm_start_sets: Sequence[WarmStarts] | None,
) -> list[Estimate]:
    """Choose the predictors that differ between groups, and fit them alone; the others have shared fields."""
    sample, level = cast(Sample, task.sample), cast(float, task.relevance)
    engine.check_missing(sample)  # also of predictors that are not chosen, whose gaps predictions would meet

    def choose() -> Relevance:
        return choose_relevant(sample, task.layout, task.K, level)

    relevance = warm_start_sets[0].once("relevance", choose) if warm_start_sets else choose()
    small = of_chosen(task, relevance)
    if small.layout.m:
        estimates = estimate_path(small, engine, values, run, warm_start_sets)
    else:
        estimates = [_without_predictors(small, engine)] * (1 if values is None else len(values))
    return [of_all_predictors(estimate, task, relevance) for estimate in estimates]


def _without_predictors(task: Task, engine: Engine) -> Estimate:
    """Return the fit of a task without predictors: the shares of the groups."""
    fits = (EngineFit(np.zeros(0), 0.0, mf_log_z=0.0),) * (task.K + task.pooled)
    parameters = Parameters(task.layout, np.zeros((task.K, 0)), np.zeros(0) if task.pooled else None)
    share, zeros = task.sample.group_totals(task.K) / task.sample.total, np.zeros(task.K)
    return Estimate(parameters, zeros, "none" if engine.joint else "exact", share, 0.0, fits, zeros)


def _fit_groups(
    sample: Rows, fit_arguments: list[tuple], workers: int, progress: Callable | None, labels: Labels | None
) -> list[list[tuple[EngineFit, float, float]]]:
    """Return `fit_group` of each of `fit_arguments`; `progress` is called after each pass over rows in a file.

    The largest are fitted first, so that no thread waits for the last: the pooled fit takes half of the time.
    """
    if progress is not None:
        sample.on_pass(lambda count: progress(0.0, f"pass {count}"))
    order = sorted(range(len(fit_arguments)), key=lambda k: -fit_arguments[k][0].n)
    try:
        tasks = [fit_arguments[k] for k in order]
        fits = run_tasks(fit_group, tasks, workers, progress, shared=not sample.in_memory)
        return [fits[order.index(k)] for k in range(len(order))]
    except NoProgress as stall:
        raise stalled(stall, labels) from stall
    finally:
        sample.on_pass(None)


def _estimate_of_chosen(
    fits: list[EngineFit],
    layout: Layout,
    groups: list[Sample],
    engine: Engine,
    log_z: str,
    rngs: Sequence[np.random.Generator],
    workers: int,
) -> Estimate:
    """Return the estimate of groups that chose their own terms, over one layout with the terms of all groups."""
    ln_z, kind, error = log_z_of_chosen(fits, layout, groups, engine, log_z, rngs, workers)
    union, fits = merge_layouts(layout, fits)
    totals = np.array([g.total for g in groups])
    lkh = float(sum(t * fit.lkh for t, fit in zip(totals, fits, strict=True) if t))
    parameters = Parameters(union, np.array([fit.theta for fit in fits]))
    return Estimate(parameters, ln_z, kind, totals / totals.sum(), lkh, tuple(fits), error)


def estimate_jointly(
    task: Task,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    run: Run,
    start: tuple[OutOfFoldScores, Estimate] | None = None,
) -> list[Estimate]:
    """Fit all groups at once, to P(group | row), at each of `values`; `Estimate.log_z_kind` is "none".

    `start` holds out-of-fold scores of the generative start and its fit to all rows, if they are known already.
    """

    def fit_start(rows: Sample, start_engine: Engine, grid: Sequence[float] | None, rng: np.random.Generator):
        return estimate_path(replace(task.of(rows), labels=None), start_engine, grid, Run(run.workers, rng))

    sample, K = cast(Sample, task.sample), task.K
    share = np.bincount(sample.response, sample.weights, K) / sample.total
    log_share, error = np.log(np.where(share > 0.0, share, 1.0)), np.zeros(K)
    out = []
    for joint_fit in joint_path(sample, task.layout, K, engine, values, fit_start, run.rng, start, run.start):
        ln_z = np.where(share > 0.0, log_share - joint_fit.constant, 0.0)
        lkh = sample.total * joint_fit.fits[0].lkh
        out.append(Estimate(Parameters(task.layout, joint_fit.theta), ln_z, "none", share, lkh, joint_fit.fits, error))
    if run.progress is not None:
        run.progress(float(K))
    return out


def estimate(task: Task, engine: Engine, run: Run | None = None) -> Estimate:
    """Fit all K groups at the engine's own settings."""
    return estimate_path(task, engine, None, run or Run())[0]
