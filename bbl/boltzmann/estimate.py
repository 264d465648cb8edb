"""Fits of an engine to each response group (and to all rows pooled), and the ln Z of each group;
before them, checks of their time, memory and rows.

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
from dataclasses import dataclass, replace
from functools import partial
from operator import call
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import AVERAGED, Estimate, Relevance, build_predictive, group_text
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.joint import joint_path
from bbl.boltzmann.relevance import choose_once, extend_to_all_predictors, restrict_to_chosen
from bbl.boltzmann.union_layout import compute_log_z, merge_layouts
from bbl.design.labels import Labels
from bbl.engines import Engine, EngineFit
from bbl.engines.base import WarmStarts
from bbl.engines.engine_fit import NoProgress
from bbl.engines.traits import OutOfFoldScores
from bbl.errors import DataError, OptionError
from bbl.memory import check_memory
from bbl.model.ais import annealed_log_z, annealing_seconds, annealing_start
from bbl.model.layout import Layout
from bbl.model.logz import (
    AUTO_CELLS,
    AUTO_CELLS_OF_DRAWS,
    OF_ROWS,
    approximate_log_z,
    exact_elimination,
    exact_log_z,
    resolve_log_z,
)
from bbl.model.moments import known_counts, level_counts, usable_weight
from bbl.model.parameters import Parameters
from bbl.parallel import run_tasks
from bbl.rows.sample import Rows, Sample

__all__ = [
    "GroupFit",
    "announce_terms",
    "check_annealing",
    "check_known",
    "estimate_jointly",
    "estimate_path",
    "estimate_without_predictors",
    "fit_group",
    "guard_memory",
    "no_progress_error",
]


NO_PAIRS = np.empty((0, 2), dtype=np.intp)  # terms of a layout whose pairs are not listed yet
# numbers of the site solutions of a group up to which fits keep them, for standard errors: 2 MB
MAX_KEPT_SITES = 250_000
MAX_ANNEALING_SECONDS = 4 * 3600.0  # estimated time from which on ``log_z="ais"`` is refused


def check_annealing(log_z: str, layout: Layout, n_models: int, workers: int) -> None:
    """Raise an OptionError if ``log_z="ais"`` would take over 4 hours for `n_models` models.

    The number of models is the product of the numbers of groups, settings and folds.
    """
    if log_z != "ais":
        return
    seconds = annealing_seconds(layout) * n_models / workers
    if seconds > MAX_ANNEALING_SECONDS:
        raise OptionError(
            f"log_z='ais' would take about {seconds / 3600:.0f} hours for {n_models} models "
            f"of {layout.m} predictors.",
            argument="log_z",
            hint="Give log_z='auto' or 'half', or use fewer groups, folds or settings.",
        )


def guard_memory(
    sample: Rows,
    layout: Layout,
    K: int,
    engine: Engine,
    values: Sequence | np.ndarray | None,
    workers: int,
    extra: int = 0,
    folds: int = 1,
) -> None:
    """Raise a MemoryError if fits of K groups and `extra` pooled ones do not fit into memory,
    `workers` at a time.

    `values` are the settings that are fitted (None for the engine's own), `folds` is the number of
    folds whose results are kept.
    """
    n_settings = 1 if values is None else len(values)
    # 8 bytes a parameter; those of groups are stored twice: in the fit of each group, and in an
    # array of all groups
    result_bytes = 8.0 * layout.size * (2 * K + extra) * n_settings * folds
    working_memory = engine.memory if sample.in_memory else engine.stored_memory
    check_memory(
        result_bytes + workers * working_memory(sample.n, layout, n_settings),
        f"A fit of {K} groups with {layout.D} non-reference levels",
        _memory_tip(
            engine,
            (
                "Use fewer predictors, fewer levels, a formula with fewer interactions, or a "
                "smaller n_jobs."
            ),
        ),
    )


def announce_terms(
    n: int,
    K: int,
    n_levels: np.ndarray,
    engine: Engine,
    workers: int,
    extra: int = 0,
    models: int = 1,
    stored: bool = False,
) -> None:
    """Raise a MemoryError if a model of all pairs of predictors does not fit into memory, before
    pairs are listed.

    `models` is the number of settings times folds, whose results are kept; `stored` says whether
    rows are read in batches; the other arguments are those of `guard_memory`.
    """
    if engine.order == 1:
        return
    n_fields = n_levels - 1.0  # of each predictor
    D = float(n_fields.sum())
    m = len(n_levels)
    n_couplings = (D**2 - float((n_fields**2).sum())) / 2.0
    result_bytes = 8.0 * (D + n_couplings) * (2 * K + extra) * models  # as in `guard_memory`
    working_memory = engine.stored_memory if stored else engine.memory
    # working memory of a model without pairs, a lower bound, in which the number of settings makes
    # no difference
    needed_bytes = result_bytes + workers * working_memory(n, Layout(n_levels, NO_PAIRS), models)
    check_memory(
        needed_bytes,
        (
            f"A fit of {K} groups with {m * (m - 1) // 2:,} pairs of predictors and "
            f"{n_couplings:,.0f} couplings each"
        ),
        _memory_tip(
            engine, "Use fewer predictors or levels, or a formula with fewer interactions."
        ),
    )


def _memory_tip(engine: Engine, remedy: str) -> str:
    """Return advice on how to save memory: lower the options of the engine that memory grows with,
    or the `remedy`.
    """
    # `sized_by`: names of the options; "a, b or c" as text
    options = " or ".join(filter(None, (", ".join(engine.sized_by[:-1]), *engine.sized_by[-1:])))
    return f"Lower {options}, or {remedy[0].lower()}{remedy[1:]}" if options else remedy


def check_known(
    sample: Rows, layout: Layout, engine: Engine, log_z: str, group: str, names: Sequence
) -> None:
    """Raise a DataError if a predictor of a group, or a pair that is fitted, has no row in which it
    is known.

    `sample` holds the rows of the group, `group` is its name, and `names` are those of the
    predictors. `Engine.needs` says which values a fit needs together: those of a predictor and its
    neighbours, or of each pair.
    """
    if sample.complete:
        return
    remedy = (
        "Leave it out of the formula, or make missing values a separate level (missing='level')."
    )
    # pooled: without the response, so that counts of levels are (L_i,) for each predictor
    never_known = np.flatnonzero(
        [not counts.any() for counts in level_counts(sample.pooled, layout.n_levels)]
    )
    if len(never_known):
        name = names[never_known[0]]
        raise DataError(
            f"In {group}, all values of {name!r} are missing.", column=name, hint=remedy
        )
    if engine.needs == "neighbours" or log_z in OF_ROWS:  # a ln Z that is a mean over rows
        # usable_weight (m,): weight of the rows in which a predictor and all that it interacts with
        # are known
        without_rows = np.flatnonzero(usable_weight(sample, layout) == 0.0)
        if len(without_rows):
            name = names[without_rows[0]]
            option = (
                f"method={engine.name!r}" if engine.needs == "neighbours" else f"log_z={log_z!r}"
            )
            raise DataError(
                f"In {group}, {option} needs rows in which {name!r} and all predictors it "
                f"interacts with are known, and there are none.",
                column=name,
                hint=(
                    "Give a formula with fewer interactions, choose method='mf' with "
                    "log_z='ais', or make missing values a separate level (missing='level')."
                ),
            )
    if engine.needs == "pairs" and layout.order > 1:
        # known_counts()[0] (m, m): weight of the rows in which two predictors are known
        never_together = np.argwhere(np.triu(known_counts(sample, layout)[0] == 0.0))
        if len(never_together):
            i, j = (names[k] for k in never_together[0])
            raise DataError(
                f"In {group}, {i!r} and {j!r} are never both known in the same row.",
                column=i,
                hint=remedy,
            )


def no_progress_error(stall: NoProgress, labels: Labels | None) -> DataError:
    """Return the error for a fit to rows in a file that makes no progress, with the name of the
    predictor.

    `stall` has the number `predictor`, its gradient norm `norm`, the number `n` of rows in the
    file, and the number `rows` of those in the sample from which the fit started.
    """
    name = stall.predictor if labels is None else labels.names[stall.predictor]
    return DataError(
        f"The fit of {stall.n:,} rows makes no progress on a sample of {stall.rows:,}: the "
        f"gradient norm of {name!r} stays at {stall.norm:.2g}, and there is not enough memory "
        "for a larger sample. Its levels, or those of its neighbours, are too rare.",
        column=name,
        hint=(
            "Merge rare levels (bbl.lump), give a larger lambda_, or use a computer with "
            "more memory."
        ),
    )


# rows times non-reference levels times settings; smaller fits run in one thread
MIN_WORK_FOR_THREADS = 200_000


@dataclass(frozen=True)
class GroupFit:
    """The fit of one group at one setting, with its ln Z and the standard error of ln Z."""

    fit: EngineFit
    log_z: float
    log_z_error: float


def fit_group(
    sample: Rows,
    layout: Layout,
    engine: Engine,
    values: Sequence[float] | None = None,
    log_z: str = "exact",
    *,
    workers: int = 1,
    rng: np.random.Generator | None = None,
    progress: Callable | None = None,
    coefficients: np.ndarray | None = None,
    warm_starts: WarmStarts | None = None,
    keep_sites: bool = False,
) -> list[GroupFit]:
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
        How ln Z is computed, "exact", "pseudo", "half", "mf" or "ais". With "exact", the `GroupFit`
        has nan: the caller computes ln Z for all groups together.
    workers : int, default 1
        Threads.
    rng, progress
        For engines that sample; ``log_z="ais"`` uses `rng` too.
    coefficients : ndarray, shape (1 + layout.size,), optional
        Intercept and parameters at which engines that iterate begin.
    warm_starts : WarmStarts, optional
        Asks for fits that are just precise enough to compare settings, with their site solutions.
    keep_sites : bool, default False
        Whether fits keep their site solutions, however large they are.
    """
    if not sample.n or not layout.m:  # no rows, or no predictors: there are no parameters
        if progress is not None:
            progress()
        empty = EngineFit(
            np.zeros(layout.size), lkh=0.0, mf_log_z=0.0, converged=np.ones(layout.m, dtype=bool)
        )
        # this ln Z is not used: the share of the group is 0
        return [GroupFit(empty, 0.0, 0.0)] * (1 if values is None else len(values))

    def prepare_rows() -> Sample:
        """Return the rows as the engine takes them.

        Equal rows are merged if the engine or ln Z needs that, or if sums of weights are rounded
        (not `exact`): those of merged rows, which are sorted, do not depend on the order of the
        rows.
        """
        collapses = engine.collapses or log_z in OF_ROWS or not sample.exact
        return engine.prepare(sample.collapsed(layout.n_levels) if collapses else sample, layout)

    # `once` calls the function only if it has not kept the result from another call
    rows = prepare_rows() if warm_starts is None else warm_starts.cached("rows", prepare_rows)
    fit_path: Callable[..., list[EngineFit]] = engine.path
    if warm_starts is not None:
        fits = engine.compare(rows, layout, values, warm_starts)
    elif engine.samples:
        fits = fit_path(rows, layout, values, workers, rng=rng, progress=progress)
    elif engine.takes_start and coefficients is not None:
        # without the intercept
        fits = fit_path(rows, layout, values, workers, start=coefficients[1:])
    else:
        fits = fit_path(rows, layout, values, workers)
    results = []
    for fit in fits:
        log_z_value = np.nan
        standard_error = 0.0
        if log_z == "ais":
            start = annealing_start(rows, layout)
            sampled = annealed_log_z(layout, fit.theta, start, rng=rng, n_jobs=workers)
            log_z_value = sampled.log_z
            standard_error = sampled.standard_error
        elif log_z != "exact":
            engine_log_z = fit.log_z(log_z)  # None if the engine has not computed it
            log_z_value = (
                approximate_log_z(log_z, rows, layout, fit.theta, fit.site_theta)
                if engine_log_z is None
                else engine_log_z
            )
        is_small = fit.site_theta is not None and fit.site_theta.size <= MAX_KEPT_SITES
        kept_sites = fit.site_theta if is_small or keep_sites or warm_starts is not None else None
        # `normaliser` is a function for ln Z, which holds on to the rows
        kept_fit = replace(fit, site_theta=kept_sites, normaliser=None)
        results.append(GroupFit(kept_fit, float(log_z_value), standard_error))
    return results


def estimate_path(
    data: FitData,
    spec: FitSpec,
    values: Sequence[float] | np.ndarray | None = None,
    *,
    pooled: bool = False,
    progress: Callable | None = None,
    coefficients: np.ndarray | None = None,
    warm_start_sets: Sequence[WarmStarts] | None = None,
) -> list[Estimate]:
    """Fit all K groups, and the pooled rows if asked for, at each of `values` of the engine's tuned
    option.

    Parameters
    ----------
    data : FitData
    spec : FitSpec
    values : sequence of float, optional
        Settings; by default the engine's own one.
    pooled : bool, default False
        Whether all rows are fitted too, as one group.
    progress : callable, optional
        ``progress(share=1.0, note="")`` is called as the fits go on.
    coefficients : ndarray, shape (K, 1 + layout.size), optional
        Intercepts and parameters of a fit to the same rows with other weights, at which engines
        that iterate begin.
    warm_start_sets : sequence of WarmStarts, optional
        One for each group and then the pooled rows: solutions of other settings where fits begin.
        If given, fits are just precise enough to compare settings.

    Returns
    -------
    list of Estimate
        One for each of `values`; one if `values` is None.
    """
    if spec.relevance is not None:
        return _estimate_chosen_predictors(
            data,
            spec,
            values,
            pooled=pooled,
            progress=progress,
            coefficients=coefficients,
            warm_start_sets=warm_start_sets,
        )
    engine = spec.engine
    sample = data.sample
    K = data.K
    layout = engine.layout(data.rows, data.layout)
    if engine.joint:
        return estimate_jointly(
            replace(data, layout=layout),
            spec,
            values,
            progress=progress,
            coefficients=coefficients,
        )

    # 1. How ln Z is computed, and whether it can be
    n_settings = 1 if values is None else len(values)
    wide = engine.widened(layout)  # the layout with hidden units, if the engine has any
    # the ln Z of an engine that chooses its terms is resolved after the fit
    max_cells = AUTO_CELLS_OF_DRAWS if engine.samples else AUTO_CELLS
    log_z = "exact" if engine.chooses else resolve_log_z(spec.log_z, wide, engine.log_z, max_cells)
    if wide.m > layout.m and log_z not in AVERAGED:
        raise OptionError(
            f"log_z={log_z!r} is computed from the rows, but hidden units are not observed.",
            hint="Leave log_z='auto'.",
            argument="log_z",
        )
    check_annealing(log_z, layout, K * n_settings, spec.workers)
    # (order, cells), for the exact ln Z; raises before the fit if it costs too much
    elimination = exact_elimination(layout) if log_z == "exact" else None

    # 2. The rows of each group, then all rows; the pooled fit would choose terms of its own
    has_pooled = pooled and not engine.chooses
    groups = [sample.group(g) for g in range(K)]
    layouts = [layout.of_group(g) for g in range(K)]
    if has_pooled:
        groups.append(sample.pooled)
        layouts.append(layout.of_pooled)
    for g, rows in enumerate(groups):
        group_name = f"group {g}" if data.labels is None else group_text(data.labels, g)
        names = range(layout.m) if data.labels is None else data.labels.names
        check_known(rows, layout, engine, log_z, group_name, names)

    # 3. Threads, memory and random numbers
    workers = spec.workers
    if not engine.samples and sample.n * layout.D * n_settings < MIN_WORK_FOR_THREADS:
        workers = 1
    n_parallel = min(workers, len(groups))
    if layout.m:
        guard_memory(sample, layout, K, engine, values, n_parallel, extra=int(has_pooled))
    # of the engine's seed if it has one, else of the caller's generator
    rngs = engine.generator(spec.rng).spawn(len(groups))

    # 4. Fits of the groups
    calls = [
        partial(
            fit_group,
            groups[g],
            layouts[g],
            engine,
            cast(Sequence[float] | None, values),
            log_z if g < K else "exact",  # the pooled fit is never asked for its ln Z
            workers=max(1, workers // n_parallel),
            rng=rngs[g],
            # engines that sample report shares of a fit; others report each finished fit
            progress=progress if engine.samples else None,
            coefficients=None if coefficients is None or g == K else coefficients[g],
            warm_starts=None if warm_start_sets is None else warm_start_sets[g],
        )
        for g in range(len(groups))
    ]
    fits_done = None if engine.samples else progress
    if fits_done is not None:  # after each pass over rows in a file
        sample.on_pass(lambda count: fits_done(0.0, f"pass {count}"))
    # the largest groups first, so that threads end at about the same time
    largest_first = sorted(range(len(groups)), key=lambda g: -groups[g].n)
    try:
        # shared: rows in a file cannot be pickled, so their fits stay in threads of this process
        tasks = [(calls[g],) for g in largest_first]
        done = run_tasks(call, tasks, n_parallel, fits_done, shared=not sample.in_memory)
    except NoProgress as stall:
        raise no_progress_error(stall, data.labels) from stall
    finally:
        sample.on_pass(None)
    group_fits = [done[largest_first.index(g)] for g in range(len(groups))]

    # 5. The estimate of all groups at each setting
    setting_fits = [list(fits) for fits in zip(*group_fits, strict=True)]
    if engine.chooses:
        chosen_groups = cast(list[Sample], groups[:K])
        return [
            _assemble_chosen_terms(fits, layout, chosen_groups, spec, rngs, workers)
            for fits in setting_fits
        ]
    ln_z = _log_z_of_settings([fits[:K] for fits in setting_fits], layout, elimination)
    return [
        _assemble(fits, ln_z[s], groups[:K], layout, wide, log_z, engine, rngs, workers)
        for s, fits in enumerate(setting_fits)
    ]


def _log_z_of_settings(
    setting_fits: Sequence[Sequence[GroupFit]],
    layout: Layout,
    elimination: tuple[list[int], float] | None,
) -> np.ndarray:
    """Return ln Z (S, K) of S settings and K groups.

    With the `elimination` of `exact_elimination` it is the exact one.
    """
    if not layout.m:  # one state, of weight 1
        return np.zeros((len(setting_fits), len(setting_fits[0])))
    if elimination is None:
        return np.array([[group.log_z for group in fits] for fits in setting_fits])
    # (S, K, size)
    theta = np.array([[group.fit.theta for group in fits] for fits in setting_fits])
    if layout.support is None:  # all at once
        return exact_log_z(layout, theta.reshape(-1, layout.size), elimination).reshape(
            theta.shape[:2]
        )
    return np.array([exact_log_z(layout, setting_theta, elimination) for setting_theta in theta])


def _assemble(
    group_fits: Sequence[GroupFit],
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

    `ln_z` (K,) replaces the ln Z of `group_fits`. `wide` is the layout with hidden units, if there
    are any. The other arguments are those of the fits.
    """
    K = len(group_rows)
    totals = np.array([rows.total for rows in group_rows])
    fits = [group.fit for group in group_fits]
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
    errors = np.array([group.log_z_error for group in group_fits[:K]])
    shares = totals / totals.sum()
    return Estimate(
        parameters, ln_z, log_z_kind, shares, lkh, tuple(fits), errors, predictive=draws
    )


def _estimate_chosen_predictors(
    data: FitData,
    spec: FitSpec,
    values: Sequence[float] | np.ndarray | None,
    *,
    pooled: bool,
    progress: Callable | None,
    coefficients: np.ndarray | None,
    warm_start_sets: Sequence[WarmStarts] | None,
) -> list[Estimate]:
    """Return `estimate_path` of the predictors that are chosen as differing between groups.

    The other predictors have fields that are equal in all groups.
    """
    level = cast(float, spec.relevance)
    # also in predictors that are not chosen, which predictions need too
    spec.engine.check_missing(data.rows)

    def choose() -> Relevance:
        """Return the predictors that differ between the groups of these rows."""
        return choose_once(data, level)

    relevance = warm_start_sets[0].cached("relevance", choose) if warm_start_sets else choose()
    chosen_data = restrict_to_chosen(data, relevance)
    all_predictors = replace(spec, relevance=None)
    if chosen_data.layout.m:
        estimates = estimate_path(
            chosen_data,
            all_predictors,
            values,
            pooled=pooled,
            progress=progress,
            coefficients=coefficients,
            warm_start_sets=warm_start_sets,
        )
    else:
        without = _without_predictors(chosen_data, spec.engine, pooled)
        estimates = [without] * (1 if values is None else len(values))
    return [extend_to_all_predictors(estimate, data, relevance) for estimate in estimates]


def estimate_without_predictors(data: FitData, engine: Engine, level: float) -> Estimate:
    """Return the fit that `estimate_path` returns where no predictor is relevant at a significance
    `level`.
    """
    relevance = Relevance(level, chosen=np.empty(0, dtype=np.intp), p_value=np.empty(0))
    without = _without_predictors(restrict_to_chosen(data, relevance), engine, pooled=False)
    return extend_to_all_predictors(without, data, relevance)


def _without_predictors(data: FitData, engine: Engine, pooled: bool) -> Estimate:
    """Return the fit of rows without predictors: the class proportions."""
    fits = (EngineFit(np.zeros(0), lkh=0.0, mf_log_z=0.0),) * (data.K + pooled)
    parameters = Parameters(data.layout, np.zeros((data.K, 0)), np.zeros(0) if pooled else None)
    shares = data.sample.group_totals(data.K) / data.sample.total
    zeros = np.zeros(data.K)
    return Estimate(
        parameters,
        log_z=zeros,
        log_z_kind="none" if engine.joint else "exact",
        class_prior=shares,
        lkh=0.0,
        fits=fits,
        log_z_error=zeros,
    )


def _assemble_chosen_terms(
    group_fits: Sequence[GroupFit],
    layout: Layout,
    groups: list[Sample],
    spec: FitSpec,
    rngs: Sequence[np.random.Generator],
    workers: int,
) -> Estimate:
    """Return the estimate of groups that chose their own terms, over one layout with the terms of
    all groups.

    `group_fits` and `groups` (rows) have an entry for each group; each fit has a layout of its own.
    `rngs` are the generators of the groups.
    """
    fits = [group.fit for group in group_fits]
    ln_z, kind, errors = compute_log_z(fits, layout, groups, spec.engine, spec.log_z, rngs, workers)
    union, fits = merge_layouts(layout, fits)
    totals = np.array([group_rows.total for group_rows in groups])
    # `if total`: a group without rows adds nothing
    lkh = float(sum(total * fit.lkh for total, fit in zip(totals, fits, strict=True) if total))
    parameters = Parameters(union, np.array([fit.theta for fit in fits]))
    return Estimate(parameters, ln_z, kind, totals / totals.sum(), lkh, tuple(fits), errors)


def estimate_jointly(
    data: FitData,
    spec: FitSpec,
    values: Sequence[float] | np.ndarray | None = None,
    *,
    progress: Callable | None = None,
    coefficients: np.ndarray | None = None,
    generative: tuple[OutOfFoldScores, Estimate] | None = None,
) -> list[Estimate]:
    """Fit all groups at once, to P(group | row), at each of `values`; `Estimate.log_z_kind` is
    "none".

    `generative` holds the out-of-fold scores of the generative fit that the joint fit starts from,
    and that fit to all rows, if the caller has them; else `fit_start` makes them. `coefficients`
    are those at which the iteration of a fit without a penalty begins.
    """

    def fit_start(
        rows: Sample,
        start_engine: Engine,
        start_values: Sequence[float] | None,
        rng: np.random.Generator,
    ) -> list[Estimate]:
        """Return the generative fits to `rows` at each of `start_values`; see `joint_path`."""
        # labels=None: names are for errors that complete rows in memory do not raise
        return estimate_path(
            replace(data.with_sample(rows), labels=None),
            replace(spec, engine=start_engine, rng=rng),
            start_values,
        )

    sample = data.rows
    K = data.K
    shares = np.bincount(sample.response, sample.weights, K) / sample.total
    log_shares = np.log(np.where(shares > 0.0, shares, 1.0))
    errors = np.zeros(K)
    out = []
    for joint_fit in joint_path(
        sample,
        data.layout,
        K,
        spec.engine,
        values,
        fit_start,
        spec.rng,
        generative,
        coefficients,
    ):
        # so that the class score, energy - ln_z + ln share, is the energy plus the constant of the
        # joint fit
        ln_z = np.where(shares > 0.0, log_shares - joint_fit.constant, 0.0)
        lkh = sample.total * joint_fit.fits[0].lkh  # the objective is one for all groups
        parameters = Parameters(data.layout, joint_fit.theta)
        out.append(Estimate(parameters, ln_z, "none", shares, lkh, joint_fit.fits, errors))
    if progress is not None:
        progress(float(K))  # all groups are done
    return out
