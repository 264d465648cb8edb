"""Fits of an engine to each response group (and to all rows pooled), and the ln Z of each group.

K is the number of groups, m of predictors. Z is the normalising constant of the model of a group.
The *sites* of a fit are its predictors as responses of regressions on all others; a *site solution*
(D, 1 + D) holds their parameters before the two estimates of each coupling are averaged, D being
the number of non-reference levels. An engine says by its attributes what it does: `joint` (not
None: it fits all groups together, to P(group | row)), `chooses` (it chooses the terms of each
group), `samples` (it draws random numbers), `takes_start`, `collapses` (it takes equal rows
merged), and `log_z`, how ln Z is computed where the exact one is too costly. An `EngineFit` has
parameters `theta` (size,), the maximised objective `lkh` per observation, and a site solution
`site_theta` or None. `WarmStarts` are site solutions of a group by setting, at which fits of other
settings begin. A setting is a value of the option that is tuned. A `Layout` lists the parameters;
``engine.layout(sample, layout)`` lists those that the engine fits of them, ``layout.of_group(g)``
and ``layout.of_pooled`` have the structural zeros of a group, or of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from bbl.boltzmann.convergence_warnings import group_text
from bbl.boltzmann.cost_limits import check_annealing, check_known, guard_memory, no_progress_error
from bbl.boltzmann.fitted import Estimate, Relevance
from bbl.boltzmann.joint import joint_path
from bbl.boltzmann.predictive import AVERAGED, build_predictive
from bbl.boltzmann.relevance import choose_once, extend_to_all_predictors, restrict_to_chosen
from bbl.boltzmann.task import Run, Task
from bbl.boltzmann.union_layout import compute_log_z, merge_layouts
from bbl.design.labels import Labels
from bbl.engines import Engine, EngineFit
from bbl.engines.engine_fit import NoProgress
from bbl.engines.traits import OutOfFoldScores
from bbl.engines.warm_starts import WarmStarts
from bbl.errors import OptionError
from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.layout import Layout
from bbl.model.logz import OF_ROWS, approximate_log_z, exact_elimination, exact_log_z, resolve_log_z
from bbl.model.parameters import Parameters
from bbl.parallel import run_tasks
from bbl.rows.sample import Rows, Sample

__all__ = ["estimate", "estimate_jointly", "estimate_path", "fit_group"]

# rows times non-reference levels times settings; smaller fits run in one thread
MIN_WORK_FOR_THREADS = 200_000


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

    Parameters
    ----------
    sample : Rows
        Rows of the group; a group without rows gets parameters of zero.
    layout : Layout
    engine : Engine
    values : sequence of float, or None
        Settings.
    log_z : str
        How ln Z is computed, "exact", "pseudo", "half", "mf" or "ais".
    run : Run
        Engines that sample use its `rng` and `progress`, and ``log_z="ais"`` its `rng`.
    keep_sites : bool, default False
        Whether fits keep their site solutions, which are large.
    warm_starts : WarmStarts, optional
        Asks for fits that are just precise enough to compare settings, with their site solutions.

    Returns
    -------
    list of (EngineFit, float, float)
        Fit, ln Z and standard error of ln Z of each setting. ln Z is nan if `log_z` is "exact": the
        caller computes it for all groups together.
    """
    if not sample.n:
        if run.progress is not None:
            run.progress()
        empty = EngineFit(
            np.zeros(layout.size), lkh=0.0, mf_log_z=0.0, converged=np.ones(layout.m, dtype=bool)
        )
        # this ln Z is not used: the share of the group is 0
        return [(empty, 0.0, 0.0)] * (1 if values is None else len(values))

    def prepare_rows() -> Sample:
        """Return the rows as the engine takes them.

        Equal rows are merged if the engine or ln Z needs that, or if sums of weights are rounded
        (not `exact`): those of merged rows, which are sorted, do not depend on the order of the
        rows.
        """
        collapses = engine.collapses or log_z in OF_ROWS or not sample.exact
        return engine.prepare(sample.collapsed(layout.n_levels) if collapses else sample, layout)

    # `once` calls the function only if it has not kept the result from another call
    rows = prepare_rows() if warm_starts is None else warm_starts.once("rows", prepare_rows)
    results = []
    fit_path: Callable[..., list[EngineFit]] = engine.path
    if warm_starts is not None:
        fits = engine.compare(rows, layout, values, warm_starts)
    elif engine.samples:
        fits = fit_path(rows, layout, values, run.workers, rng=run.rng, progress=run.progress)
    elif engine.takes_start and run.start is not None:
        # without the intercept
        fits = fit_path(rows, layout, values, run.workers, start=run.start[1:])
    else:
        fits = fit_path(rows, layout, values, run.workers)
    for fit in fits:
        log_z_value = np.nan
        standard_error = 0.0
        if log_z == "ais":
            sampled = annealed_log_z(
                layout, fit.theta, annealing_start(rows, layout), rng=run.rng, n_jobs=run.workers
            )
            log_z_value = sampled.log_z
            standard_error = sampled.standard_error
        elif log_z != "exact":
            engine_log_z = fit.log_z(log_z)  # None if the engine has not computed it
            log_z_value = (
                approximate_log_z(log_z, rows, layout, fit.theta, fit.site_theta)
                if engine_log_z is None
                else engine_log_z
            )
        kept_sites = fit.site_theta if keep_sites or warm_starts is not None else None
        # `normaliser` is a function for ln Z, which holds on to the rows
        results.append(
            (
                replace(fit, site_theta=kept_sites, normaliser=None),
                float(log_z_value),
                standard_error,
            )
        )
    return results


def estimate_path(
    task: Task,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    run: Run,
    warm_start_sets: Sequence[WarmStarts] | None = None,
) -> list[Estimate]:
    """Fit all K groups, and the pooled rows if asked for, at each of `values` of the engine's tuned
    option.

    `warm_start_sets`, one for each group and then the pooled rows, hold solutions of other settings
    where fits begin. If they are given, fits are just precise enough to compare settings.

    Returns
    -------
    list of Estimate
        One for each of `values`; one if `values` is None.
    """
    if task.relevance is not None:
        return _estimates_of_chosen(task, engine, values, run, warm_start_sets)
    sample = task.sample
    K = task.K
    labels = task.labels
    workers = run.workers
    layout = engine.layout(cast(Sample, sample), task.layout)
    if engine.joint:
        return estimate_jointly(replace(task, layout=layout), engine, values, run)
    wide = engine.widened(layout)  # the layout with hidden units, if the engine has any
    # the ln Z of an engine that chooses its terms is resolved after the fit
    log_z_kind = "exact" if engine.chooses else resolve_log_z(task.log_z, wide, engine.log_z)
    if wide.m > layout.m and log_z_kind not in AVERAGED:
        raise OptionError(
            f"log_z={log_z_kind!r} is computed from the rows, in which hidden units have no "
            "values.",
            hint="Leave log_z='auto'.",
            argument="log_z",
        )
    check_annealing(log_z_kind, layout, K * (1 if values is None else len(values)), workers)
    # (order, cells), for the exact ln Z; raises before the fit if it costs too much
    elimination = exact_elimination(layout) if log_z_kind == "exact" else None
    has_pooled = task.pooled and not engine.chooses  # the pooled fit would choose terms of its own
    group_samples = [sample.group(g) for g in range(K)] + ([sample.pooled] if has_pooled else [])
    layouts = [layout.of_group(g) for g in range(K)] + ([layout.of_pooled] if has_pooled else [])
    for g, group_sample in enumerate(group_samples):
        group_name, names = (
            (f"group {g}", range(layout.m))
            if labels is None
            else (group_text(labels, g), labels.names)
        )
        check_known(group_sample, layout, engine, log_z_kind, group_name, names)
    if (
        not engine.samples
        and sample.n * layout.D * (1 if values is None else len(values)) < MIN_WORK_FOR_THREADS
    ):
        workers = 1
    n_parallel_fits = min(workers, len(group_samples))
    guard_memory(sample, layout, K, engine, values, n_parallel_fits, extra=int(has_pooled))
    # of the engine's seed if it has one, else of the run
    rngs = engine.generator(run.rng).spawn(len(group_samples))
    workers_of_fit = max(1, workers // n_parallel_fits)
    kinds = [log_z_kind] * K + ["exact"] * has_pooled  # the pooled fit is never asked for its ln Z
    warm_starts = [None] * len(group_samples) if warm_start_sets is None else warm_start_sets
    # engines that sample report shares of a fit as they go on; others report each finished fit
    fit_progress, group_progress = (run.progress, None) if engine.samples else (None, run.progress)
    # `run.start` holds the coefficients of each group
    starts = (
        [None] * len(group_samples) if run.start is None else [*run.start, *[None] * has_pooled]
    )
    runs = [
        Run(workers_of_fit, rng, fit_progress, start)
        for rng, start in zip(rngs, starts, strict=True)
    ]
    fit_arguments = [  # of `fit_group`, with keep_sites=False
        (group_sample, group_layout, engine, values, kind, group_run, False, group_starts)
        for group_sample, group_layout, kind, group_run, group_starts in zip(
            group_samples, layouts, kinds, runs, warm_starts, strict=True
        )
    ]
    # of each setting, then each group: fit, ln Z and its standard error
    setting_fits = list(
        zip(
            *_fit_groups(sample, fit_arguments, n_parallel_fits, group_progress, labels),
            strict=True,
        )
    )
    group_rows = group_samples[:K]
    if engine.chooses:
        shared_arguments = (
            layout,
            cast(list[Sample], group_rows),
            engine,
            task.log_z,
            rngs,
            workers,
        )
        return [
            _estimate_of_chosen([fit for fit, _, _ in fits], *shared_arguments)
            for fits in setting_fits
        ]
    log_z = _log_z_of_settings([fits[:K] for fits in setting_fits], layout, elimination)
    assembled_with = (group_rows, layout, wide, log_z_kind, engine, rngs, workers)
    return [
        _assemble(fits, ln_z, *assembled_with)
        for fits, ln_z in zip(setting_fits, log_z, strict=True)
    ]


def _log_z_of_settings(
    setting_fits: Sequence[Sequence[tuple[EngineFit, float, float]]],
    layout: Layout,
    elimination: tuple[list[int], float] | None,
) -> np.ndarray:
    """Return ln Z (S, K) of S settings and K groups, from (fit, ln Z, its standard error) of each.

    With the `elimination` of `exact_elimination` it is the exact one.
    """
    if elimination is None:
        return np.array([[value for _, value, _ in fits] for fits in setting_fits])
    theta = np.array([[fit.theta for fit, _, _ in fits] for fits in setting_fits])  # (S, K, size)
    if layout.support is None:  # all at once
        return exact_log_z(layout, theta.reshape(-1, layout.size), elimination).reshape(
            theta.shape[:2]
        )
    return np.array([exact_log_z(layout, setting_theta, elimination) for setting_theta in theta])


def _assemble(
    group_fits: Sequence[tuple[EngineFit, float, float]],
    ln_z: np.ndarray,
    group_rows: Sequence[Rows],
    layout: Layout,
    wide: Layout,
    log_z_kind: str,
    engine: Engine,
    rngs: list[np.random.Generator],
    workers: int,
) -> Estimate:
    """Return the estimate of the fits of all groups, and of the pooled rows if they are the last,
    at one setting.

    `group_fits` holds (fit, ln Z, its standard error) of each, and `ln_z` (K,) the ln Z that is
    taken instead. `wide` is the layout with hidden units, if there are any. The other arguments are
    those of the fits.
    """
    K = len(group_rows)
    totals = np.array([rows.total for rows in group_rows])
    fits, _, standard_errors = zip(*group_fits, strict=True)
    theta = np.array([fit.theta for fit in fits[:K]])
    lkh = float(sum(total * fit.lkh for total, fit in zip(totals, fits[:K], strict=True)))
    parameters = Parameters(layout, theta, fits[K].theta if len(fits) > K else None)
    # fields (D,) from which annealing begins, for the ln Z of each posterior draw
    annealing_starts = (
        [annealing_start(rows, layout) for rows in group_rows]
        if log_z_kind == "ais" and engine.samples
        else [None] * K
    )
    # the last argument is the number of hidden units
    draws = build_predictive(
        wide, fits[:K], log_z_kind, annealing_starts, rngs[:K], workers, wide.m - layout.m
    )
    errors = np.array(standard_errors[:K])
    shares = totals / totals.sum()
    return Estimate(
        parameters, ln_z, log_z_kind, shares, lkh, tuple(fits), errors, predictive=draws
    )


def _estimates_of_chosen(
    task: Task,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    run: Run,
    warm_start_sets: Sequence[WarmStarts] | None,
) -> list[Estimate]:
    """Return `estimate_path` of the predictors that are chosen as differing between groups; see
    there.

    The other predictors have fields that are equal in all groups.
    """
    sample = cast(Sample, task.sample)
    significance_level = cast(float, task.relevance)
    # also in predictors that are not chosen, which predictions need too
    engine.check_missing(sample)

    def choose() -> Relevance:
        """Return the predictors that differ between the groups of these rows."""
        return choose_once(task, significance_level)

    relevance = warm_start_sets[0].once("relevance", choose) if warm_start_sets else choose()
    small_task = restrict_to_chosen(task, relevance)
    if small_task.layout.m:
        estimates = estimate_path(small_task, engine, values, run, warm_start_sets)
    else:
        estimates = [_without_predictors(small_task, engine)] * (
            1 if values is None else len(values)
        )
    return [extend_to_all_predictors(estimate, task, relevance) for estimate in estimates]


def _without_predictors(task: Task, engine: Engine) -> Estimate:
    """Return the fit of a task without predictors: the shares of the groups."""
    fits = (EngineFit(np.zeros(0), lkh=0.0, mf_log_z=0.0),) * (task.K + task.pooled)
    parameters = Parameters(
        task.layout, np.zeros((task.K, 0)), np.zeros(0) if task.pooled else None
    )
    shares = task.sample.group_totals(task.K) / task.sample.total
    zeros = np.zeros(task.K)
    return Estimate(
        parameters,
        log_z=zeros,
        log_z_kind="none" if engine.joint else "exact",
        class_prior=shares,
        lkh=0.0,
        fits=fits,
        log_z_error=zeros,
    )


def _fit_groups(
    sample: Rows,
    fit_arguments: list[tuple],
    workers: int,
    progress: Callable | None,
    labels: Labels | None,
) -> list[list[tuple[EngineFit, float, float]]]:
    """Return `fit_group` of each of `fit_arguments`; `progress` is called after each pass over rows
    in a file.

    `sample` holds the rows of all groups. The largest groups are fitted first, so that threads end
    at about the same time: the pooled fit has as many rows as all groups.
    """
    if progress is not None:
        sample.on_pass(lambda count: progress(0.0, f"pass {count}"))  # called until on_pass(None)
    # by the number of rows of each group, whose rows are the first argument
    largest_first = sorted(
        range(len(fit_arguments)), key=lambda position: -fit_arguments[position][0].n
    )
    try:
        tasks = [fit_arguments[position] for position in largest_first]
        # shared: rows in a file cannot be pickled, so their fits stay in threads of this process
        fits = run_tasks(fit_group, tasks, workers, progress, shared=not sample.in_memory)
        # back in the order of `fit_arguments`
        return [fits[largest_first.index(position)] for position in range(len(largest_first))]
    except NoProgress as stall:
        raise no_progress_error(stall, labels) from stall
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
    """Return the estimate of groups that chose their own terms, over one layout with the terms of
    all groups.

    `fits` and `groups` (rows) have an entry for each group; each fit has a layout of its own.
    `log_z` is what the user asked for, and `rngs` are the generators of the groups.
    """
    ln_z, kind, errors = compute_log_z(fits, layout, groups, engine, log_z, rngs, workers)
    union, fits = merge_layouts(layout, fits)
    totals = np.array([group_rows.total for group_rows in groups])
    # `if total`: a group without rows adds nothing
    lkh = float(sum(total * fit.lkh for total, fit in zip(totals, fits, strict=True) if total))
    parameters = Parameters(union, np.array([fit.theta for fit in fits]))
    return Estimate(parameters, ln_z, kind, totals / totals.sum(), lkh, tuple(fits), errors)


def estimate_jointly(
    task: Task,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    run: Run,
    start: tuple[OutOfFoldScores, Estimate] | None = None,
) -> list[Estimate]:
    """Fit all groups at once, to P(group | row), at each of `values`; `Estimate.log_z_kind` is
    "none".

    `start` holds the out-of-fold scores of the generative fit that the joint fit starts from, and
    that fit to all rows, if the caller has them; else `fit_start` makes them. `run.start` are
    coefficients at which the iteration of a fit without a penalty begins.
    """

    def fit_start(
        rows: Sample,
        start_engine: Engine,
        start_values: Sequence[float] | None,
        rng: np.random.Generator,
    ):
        """Return the generative fits to `rows` at each of `start_values`; see `joint_path`."""
        # labels=None: names are for errors that complete rows in memory do not raise
        return estimate_path(
            replace(task.with_sample(rows), labels=None),
            start_engine,
            start_values,
            Run(run.workers, rng),
        )

    sample = cast(Sample, task.sample)
    K = task.K
    shares = np.bincount(sample.response, sample.weights, K) / sample.total
    log_shares = np.log(np.where(shares > 0.0, shares, 1.0))
    errors = np.zeros(K)
    out = []
    for joint_fit in joint_path(
        sample, task.layout, K, engine, values, fit_start, run.rng, start, run.start
    ):
        # so that the class score, energy - ln_z + ln share, is the energy plus the constant of the
        # joint fit
        ln_z = np.where(shares > 0.0, log_shares - joint_fit.constant, 0.0)
        lkh = sample.total * joint_fit.fits[0].lkh  # the objective is one for all groups
        out.append(
            Estimate(
                Parameters(task.layout, joint_fit.theta),
                ln_z,
                "none",
                shares,
                lkh,
                joint_fit.fits,
                errors,
            )
        )
    if run.progress is not None:
        run.progress(float(K))  # all groups are done
    return out


def estimate(task: Task, engine: Engine, run: Run | None = None) -> Estimate:
    """Fit all K groups at the engine's own settings."""
    return estimate_path(task, engine, values=None, run=run or Run())[0]
