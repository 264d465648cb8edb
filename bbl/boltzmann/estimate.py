"""Fit an engine to each response group (and to the pooled rows), and compute ln Z of each group.

Before a fit starts, an error is raised if it would take too much time or memory, or if there are
too few rows. K is the number of groups, m the number of predictors, and D the number of
non-reference levels.
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
from bbl.boltzmann.location_search import choose_location
from bbl.boltzmann.relevance import choose_once, extend_to_all_predictors
from bbl.boltzmann.union_layout import compute_log_z, merge_layouts
from bbl.design.labels import Labels
from bbl.engines import Engine, EngineFit
from bbl.engines.base import WarmStarts
from bbl.engines.engine_fit import NoProgress
from bbl.engines.traits import OutOfFoldScores
from bbl.errors import DataError, OptionError
from bbl.memory import check_memory
from bbl.model.ais import annealed_log_z, annealing_seconds, annealing_start
from bbl.model.layout import NO_PAIRS, Layout
from bbl.model.location import Location, LocationModel, NumberNames
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
from bbl.model.scores import n_free
from bbl.parallel import run_tasks
from bbl.rows.sample import Rows, Sample
from bbl.rows.stored import CHUNK_ROWS

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


# Site solutions (D, 1 + D) are the parameters before the two estimates of each coupling are
# averaged. Fits keep them for standard errors if they have up to this many numbers (2 MB).
MAX_KEPT_SITES = 250_000
MAX_ANNEALING_SECONDS = 4 * 3600.0  # ``log_z="ais"`` is refused if it would take longer


def check_annealing(log_z: str, layout: Layout, n_models: int, workers: int) -> None:
    """Raise an OptionError if ``log_z="ais"`` would take more than 4 hours for `n_models` models.

    `n_models` is the product of the numbers of groups, settings and, in cross-validation, folds.
    """
    if log_z != "ais":
        return
    seconds = annealing_seconds(layout) * n_models / workers
    if seconds > MAX_ANNEALING_SECONDS:
        raise OptionError(
            f"log_z='ais' would take about {seconds / 3600:.0f} hours for {n_models} models "
            f"of {layout.m} predictors.",
            argument="log_z",
            hint="Use log_z='auto' or 'half', or fewer groups, folds or settings.",
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
    """Raise a MemoryError if K groups and `extra` pooled fits would not fit into memory.

    Up to `workers` groups are fitted at the same time. `values` contains the settings, or is None
    for the engine's own setting. `folds` is the number of folds whose results are stored.
    """
    n_settings = 1 if values is None else len(values)
    # 8 bytes per parameter. Parameters of groups are stored twice: in each group's fit, and in an
    # array of all groups.
    result_bytes = 8.0 * layout.size * (2 * K + extra) * n_settings * folds
    working_memory = engine.memory if sample.in_memory else engine.stored_memory
    check_memory(
        result_bytes + workers * working_memory(sample.n, layout, n_settings),
        f"Fitting {K} groups with {layout.D} non-reference levels",
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
    """Raise a MemoryError, before listing pairs, if a model with all pairs would be too large.

    `models` is the number of settings times the number of folds, and `stored` indicates whether
    rows are read in batches. The other arguments are the same as in `guard_memory`.
    """
    if engine.order == 1:
        return
    n_fields = n_levels - 1.0  # for each predictor
    D = float(n_fields.sum())
    m = len(n_levels)
    n_couplings = (D**2 - float((n_fields**2).sum())) / 2.0
    result_bytes = 8.0 * (D + n_couplings) * (2 * K + extra) * models  # as in `guard_memory`
    working_memory = engine.stored_memory if stored else engine.memory
    # working memory of a model without pairs, a lower bound that does not depend on the settings
    needed_bytes = result_bytes + workers * working_memory(n, Layout(n_levels, NO_PAIRS), models)
    check_memory(
        needed_bytes,
        (
            f"Fitting {K} groups with {m * (m - 1) // 2:,} pairs of predictors and "
            f"{n_couplings:,.0f} couplings each"
        ),
        _memory_tip(
            engine, "Use fewer predictors or levels, or a formula with fewer interactions."
        ),
    )


def _memory_tip(engine: Engine, remedy: str) -> str:
    """Return a hint on saving memory: lower the options that affect memory use, or `remedy`."""
    # `sized_by`: names of the options; "a, b or c" as text
    options = " or ".join(filter(None, (", ".join(engine.sized_by[:-1]), *engine.sized_by[-1:])))
    return f"Lower {options}, or {remedy[0].lower()}{remedy[1:]}" if options else remedy


def check_known(
    sample: Rows, layout: Layout, engine: Engine, log_z: str, group: str, names: Sequence
) -> None:
    """Raise a DataError if a predictor or a fitted pair is not observed in any row of a group.

    `sample` contains the rows of the group, `group` is its name, and `names` are the names of the
    predictors. `Engine.needs` specifies which values must be observed in the same row: a predictor
    and its neighbours, or each pair.
    """
    if sample.complete:
        return
    remedy = (
        "Leave it out of the formula, or make missing values a separate level (missing='level')."
    )
    # pooled: ignores the response, so that counts of levels have shape (L_i,) for each predictor
    never_known = np.flatnonzero(
        [not counts.any() for counts in level_counts(sample.pooled, layout.n_levels)]
    )
    if len(never_known):
        name = names[never_known[0]]
        raise DataError(
            f"In {group}, all values of {name!r} are missing.", column=name, hint=remedy
        )
    if engine.needs == "neighbours" or log_z in OF_ROWS:  # OF_ROWS: ln Z is a mean over rows
        # usable_weight (m,): weight of the rows where a predictor and all its neighbours are
        # known
        without_rows = np.flatnonzero(usable_weight(sample, layout) == 0.0)
        if len(without_rows):
            name = names[without_rows[0]]
            option = (
                f"method={engine.name!r}" if engine.needs == "neighbours" else f"log_z={log_z!r}"
            )
            raise DataError(
                f"In {group}, {option} requires rows in which {name!r} and all predictors it "
                f"interacts with are known, but there are none.",
                column=name,
                hint=(
                    "Use a formula with fewer interactions, choose method='mf' with log_z='ais', "
                    "or make missing values a separate level (missing='level')."
                ),
            )
    if engine.needs == "pairs" and layout.order > 1:
        # known_counts()[0] (m, m): weight of the rows where two predictors are known
        never_together = np.argwhere(np.triu(known_counts(sample, layout)[0] == 0.0))
        if len(never_together):
            i, j = (names[k] for k in never_together[0])
            raise DataError(
                f"In {group}, {i!r} and {j!r} are never both known in the same row.",
                column=i,
                hint=remedy,
            )


def no_progress_error(stall: NoProgress, labels: Labels | None) -> DataError:
    """Return the error to raise if a fit to rows in a file makes no progress.

    `stall` contains the index of the `predictor`, its gradient `norm`, the number `n` of rows in
    the file, and the number `rows` of rows in the sample that determined the starting point.
    """
    name = stall.predictor if labels is None else labels.names[stall.predictor]
    return DataError(
        f"The fit to {stall.n:,} rows stopped improving on a sample of {stall.rows:,} rows: the "
        f"gradient norm of {name!r} is {stall.norm:.2g}, and there is not enough memory for a "
        "larger sample. Levels of this predictor, or of a predictor it interacts with, are too "
        "rare.",
        column=name,
        hint=(
            "Merge rare levels (bbl.lump), use a larger lambda_, or use a computer with "
            "more memory."
        ),
    )


# rows x non-reference levels x settings; smaller fits run in a single thread
MIN_WORK_FOR_THREADS = 200_000


@dataclass(frozen=True)
class GroupFit:
    """The fit of one group at one setting, with ln Z and its standard error."""

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
    """Fit one group at each of the `values` of the tuned option, or at the engine's own setting.

    Parameters
    ----------
    sample : Rows
        Rows of the group; the parameters of a group without rows are zero.
    layout : Layout
    engine : Engine
    values : sequence of float, or None
        Settings.
    log_z : str
        How ln Z is computed: "exact", "pseudo", "half", "mf" or "ais". With "exact", the caller
        computes ln Z for all groups together, so ln Z is nan in the `GroupFit`.
    workers : int, default 1
        Number of threads.
    rng : Generator, optional
        Random generator for engines that sample, and for ``log_z="ais"``.
    progress : callable, optional
        Progress function for engines that sample.
    coefficients : ndarray, shape (1 + layout.size,), optional
        Initial intercept and parameters for iterative engines.
    warm_starts : WarmStarts, optional
        Site solutions at other settings, used as starting values. If given, fits stop as soon as
        they are precise enough to compare settings.
    keep_sites : bool, default False
        Whether to keep site solutions regardless of their size.
    """
    if not sample.n or not layout.D:  # without rows or parameters, nothing to fit
        if progress is not None:
            progress()
        empty = EngineFit(
            np.zeros(layout.size),
            lkh=0.0,
            mf_log_z=0.0,
            converged=np.ones(layout.m, dtype=bool),
            rank=None if layout.scores is None else n_free(layout),
        )
        # this ln Z is not used, because the class proportion is 0
        return [GroupFit(empty, 0.0, 0.0)] * (1 if values is None else len(values))

    varying = np.flatnonzero(layout.n_levels > 1)
    if len(varying) < layout.m:
        # kernels do not accept predictors with one level (numbers), which have no parameters
        smaller = fit_group(
            sample.only(varying),
            layout.only(varying),
            engine,
            values,
            log_z,
            workers=workers,
            rng=rng,
            progress=progress,
            coefficients=coefficients,
            warm_starts=warm_starts,
            keep_sites=keep_sites,
        )
        return [replace(one, fit=one.fit.of_predictors(varying, layout)) for one in smaller]

    def prepare_rows() -> Sample:
        """Return the rows in the form that the engine accepts.

        Identical rows are merged if the engine or ln Z requires it. They are also merged if sums of
        weights are rounded (`exact` is False): merged rows are sorted, so that the sums do not
        depend on the row order.
        """
        collapses = engine.collapses or log_z in OF_ROWS or not sample.exact
        return engine.prepare(sample.collapsed(layout.n_levels) if collapses else sample, layout)

    # `cached` reuses the result of an earlier call
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
        # rows that are not in memory cannot be fitted again for standard errors
        keeps = is_small or keep_sites or warm_starts is not None or not rows.in_memory
        kept_sites = fit.site_theta if keeps else None
        # `normaliser` is a function for ln Z with a reference to the rows
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
    """Fit all K groups, and optionally the pooled rows, at each value of the tuned option.

    Parameters
    ----------
    data : FitData
    spec : FitSpec
    values : sequence of float, optional
        Settings; by default, only the engine's own.
    pooled : bool, default False
        Whether all rows are also fitted as a single group.
    progress : callable, optional
        ``progress(share=1.0, note="")`` is called to report progress.
    coefficients : ndarray, shape (K, 1 + layout.size), optional
        Initial intercepts and parameters for iterative engines, from a fit to the same rows with
        different weights.
    warm_start_sets : sequence of WarmStarts, optional
        Solutions at other settings, used as starting values, for each group and then for the pooled
        rows. If given, fits stop as soon as they are precise enough to compare settings.

    Returns
    -------
    list of Estimate
        One estimate for each of `values`; a single one if `values` is None.
    """
    if spec.location is not None:
        locations = _fit_locations(data, spec, values)
        estimates = estimate_path(
            data.without_numbers(spec.location),
            replace(spec, location=None),
            values,
            pooled=pooled,
            progress=progress,
            coefficients=coefficients,
            warm_start_sets=warm_start_sets,
        )
        return [
            estimate.with_numbers(location, data.layout)
            for estimate, location in zip(estimates, locations, strict=True)
        ]
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

    # 1. Choose how to compute ln Z, and check that it is possible
    n_settings = 1 if values is None else len(values)
    wide = engine.widened(layout)  # the layout with the engine's hidden units, if any
    # for engines that choose their terms, how to compute ln Z is decided after the fit
    max_cells = AUTO_CELLS_OF_DRAWS if engine.samples else AUTO_CELLS
    log_z = "exact" if engine.chooses else resolve_log_z(spec.log_z, wide, engine.log_z, max_cells)
    if wide.m > layout.m and log_z not in AVERAGED:
        raise OptionError(
            f"log_z={log_z!r} is computed from the rows, but hidden units are not observed.",
            hint="Use log_z='auto'.",
            argument="log_z",
        )
    check_annealing(log_z, layout, K * n_settings, spec.workers)
    # (order, cells) for the exact ln Z; raises an error before the fit if it is too expensive
    elimination = exact_elimination(layout) if log_z == "exact" else None

    # 2. The rows of each group, then all rows. Engines that choose terms have no pooled fit, which
    # would choose other terms.
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
    # from the engine's seed if it has one, else from the caller's generator
    rngs = engine.generator(spec.rng).spawn(len(groups))

    # 4. Fits of the groups
    calls = [
        partial(
            fit_group,
            groups[g],
            layouts[g],
            engine,
            cast(Sequence[float] | None, values),
            log_z if g < K else "exact",  # the ln Z of the pooled fit is not needed
            workers=max(1, workers // n_parallel),
            rng=rngs[g],
            # engines that sample report partial progress; others report each finished fit
            progress=progress if engine.samples else None,
            coefficients=None if coefficients is None or g == K else coefficients[g],
            warm_starts=None if warm_start_sets is None else warm_start_sets[g],
        )
        for g in range(len(groups))
    ]
    fits_done = None if engine.samples else progress
    if fits_done is not None:  # after each pass over rows in a file
        sample.on_pass(lambda count: fits_done(0.0, f"pass {count}"))
    # the largest groups first, so that threads finish at about the same time
    largest_first = sorted(range(len(groups)), key=lambda g: -groups[g].n)
    try:
        # shared: rows in a file cannot be pickled, so these fits run in threads of this process
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


def _fit_locations(
    data: FitData, spec: FitSpec, values: Sequence[float] | np.ndarray | None
) -> list[Location]:
    """Return the location model at each of the `values` of the engine's tuned option.

    The location model only depends on the tuned option if that is the prior count.
    """
    model = cast(LocationModel, spec.location)
    if model.undecided:
        model = choose_location(data.rows, data.K, model)
    if model.keeps_prior_count:
        return [fit_location(data, model)] * (1 if values is None else len(values))
    engines = [spec.engine] if values is None else [spec.engine.at(float(v)) for v in values]
    counts = [float(getattr(engine, "prior_count", 0.0) or 0.0) for engine in engines]
    by_count: dict[float, Location] = {}
    for count in counts:
        if count not in by_count:
            by_count[count] = fit_location(data, replace(model, prior_count=count))
    return [by_count[count] for count in counts]


def fit_location(data: FitData, model: LocationModel) -> Location:
    """Fit the location model for the numeric predictors to all groups.

    Raises
    ------
    DataError
        If a covariance matrix is singular, or if a row has a missing value in a predictor that
        affects a mean.
    """
    rows = data.sample
    labels = cast(Labels, data.labels)
    if not rows.complete:
        has_missing = np.zeros(rows.m, dtype=bool)
        for block in rows.chunks(CHUNK_ROWS):
            if block.missing is not None:
                has_missing |= block.missing.any(axis=0)
        unknown = model.used[has_missing[model.used]]
        if len(unknown):
            raise DataError(
                f"column {labels.names[unknown[0]]!r} has missing values, but the mean of "
                "a numeric predictor depends on it.",
                column=labels.names[unknown[0]],
                argument="missing",
                hint="Drop these rows (missing='drop'), make missing values a level "
                "(missing='level'), or remove the interaction.",
            )
    names = NumberNames([labels.names[i] for i in model.numbers], labels.groups)
    return model.fit(rows, data.K, names)


def _log_z_of_settings(
    setting_fits: Sequence[Sequence[GroupFit]],
    layout: Layout,
    elimination: tuple[list[int], float] | None,
) -> np.ndarray:
    """Return ln Z (S, K) for S settings and K groups.

    If `elimination`, the result of `exact_elimination`, is not None, ln Z is exact.
    """
    if not layout.D:  # a single state with weight 1
        return np.zeros((len(setting_fits), len(setting_fits[0])))
    if elimination is None:
        return np.array([[group.log_z for group in fits] for fits in setting_fits])
    # (S, K, size)
    theta = np.array([[group.fit.theta for group in fits] for fits in setting_fits])
    if layout.support is None:  # all groups at once
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
    """Return the estimate at one setting, given the fits of all groups and any pooled fit.

    `ln_z` (K,) replaces the ln Z of `group_fits`. `wide` is the layout that includes any hidden
    units. The other arguments are the same as in `fit_group` and `estimate_path`.
    """
    K = len(group_rows)
    totals = np.array([rows.total for rows in group_rows])
    fits = [group.fit for group in group_fits]
    theta = np.array([fit.theta for fit in fits[:K]])
    lkh = float(sum(total * fit.lkh for total, fit in zip(totals, fits[:K], strict=True)))
    parameters = Parameters(layout, theta, fits[K].theta if len(fits) > K else None)
    # fields (D,) at which annealing starts, for the ln Z of each posterior draw
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
    """Apply `estimate_path` to the selected predictors, which differ between groups.

    The other predictors have the same fields in all groups.
    """
    level = cast(float, spec.relevance)
    # also checks predictors that are not chosen, because predictions need them too
    spec.engine.check_missing(data.rows)

    def choose() -> Relevance:
        """Select the predictors that differ between the groups in these rows."""
        return choose_once(data, level)

    relevance = warm_start_sets[0].cached("relevance", choose) if warm_start_sets else choose()
    chosen_data = data.only(relevance.chosen)
    all_predictors = replace(spec, relevance=None)
    if not chosen_data.layout.m:  # all settings have the same fit
        without = _without_predictors(chosen_data, spec.engine, pooled)
        n_settings = 1 if values is None else len(values)
        return extend_to_all_predictors([without], data, relevance) * n_settings
    estimates = estimate_path(
        chosen_data,
        all_predictors,
        values,
        pooled=pooled,
        progress=progress,
        coefficients=coefficients,
        warm_start_sets=warm_start_sets,
    )
    return extend_to_all_predictors(estimates, data, relevance)


def estimate_without_predictors(data: FitData, engine: Engine, level: float) -> Estimate:
    """Return the result of `estimate_path` if no predictor is relevant at significance `level`."""
    relevance = Relevance(level, chosen=np.empty(0, dtype=np.intp), p_value=np.empty(0))
    without = _without_predictors(data.only(relevance.chosen), engine, pooled=False)
    return extend_to_all_predictors([without], data, relevance)[0]


def _without_predictors(data: FitData, engine: Engine, pooled: bool) -> Estimate:
    """Return a fit without predictors, which predicts the class proportions."""
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
    """Combine groups with separately selected terms into one estimate, with a layout of all terms.

    `group_fits`, `groups` (rows) and `rngs` (random generators) have an entry for each group. Each
    fit has its own layout.
    """
    fits = [group.fit for group in group_fits]
    ln_z, kind, errors = compute_log_z(fits, layout, groups, spec.engine, spec.log_z, rngs, workers)
    union, fits = merge_layouts(layout, fits)
    totals = np.array([group_rows.total for group_rows in groups])
    # `if total`: groups without rows contribute nothing
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
    """Fit P(group | row) for all groups jointly at each of the `values` of the tuned option.

    In the results, `log_z_kind` is "none".

    The joint fit starts from a generative fit. `generative` contains the out-of-fold scores of the
    generative fit, and the generative fit to all rows; by default, `fit_start` computes both.
    `coefficients` contains the starting values for an unpenalised fit.
    """

    def fit_start(
        rows: Sample,
        start_engine: Engine,
        start_values: Sequence[float] | None,
        rng: np.random.Generator,
    ) -> list[Estimate]:
        """Return the generative fits to `rows` at each of `start_values`; see `joint_path`."""
        # labels=None: names are only needed for errors that complete rows in memory do not raise
        return estimate_path(
            replace(data.with_sample(rows), labels=None),
            replace(spec, engine=start_engine, rng=rng),
            start_values,
        )

    sample = data.rows
    K = data.K
    totals = sample.group_totals(K)
    shares = totals / sample.total
    log_shares = np.log(np.where(shares > 0.0, shares, 1.0))
    errors = np.zeros(K)
    out = []
    if progress is not None and not sample.in_memory:  # after each pass over rows in a file
        sample.on_pass(lambda count: progress(0.0, f"pass {count}"))
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
        # so that the class score, energy - ln_z + ln (class proportion), is the energy plus the
        # constant of the joint fit
        ln_z = np.where(shares > 0.0, log_shares - joint_fit.constant, 0.0)
        lkh = sample.total * joint_fit.fits[0].lkh  # all groups share one objective
        parameters = Parameters(data.layout, joint_fit.theta)
        out.append(
            Estimate(
                parameters,
                ln_z,
                "none",
                shares,
                lkh,
                joint_fit.fits,
                errors,
                cumulative=spec.engine.cumulative,
            )
        )
    if progress is not None:
        progress(float(K))  # all groups are done
    return out
