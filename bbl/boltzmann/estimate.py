"""Estimation: one engine run for each response group (and for all rows pooled), and the ln Z that goes with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from bbl.boltzmann.convergence_warnings import group_text
from bbl.boltzmann.cost_limits import check_annealing, check_known, guard_memory, stalled
from bbl.boltzmann.joint import joint_path
from bbl.boltzmann.predictive import Predictive, predictive
from bbl.boltzmann.task import Run, Task
from bbl.boltzmann.union_layout import log_z_of_chosen, merge_layouts
from bbl.design.labels import Labels
from bbl.engines import Engine, EngineFit
from bbl.engines.engine_fit import NoProgress
from bbl.engines.traits import OutOfFoldScores
from bbl.engines.warm_starts import WarmStarts
from bbl.errors import OptionError
from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.elimination import log_sum
from bbl.model.fields import pseudo_log_likelihood
from bbl.model.layout import Layout
from bbl.model.logz import OF_ROWS, approximate_log_z, exact_order, resolve_log_z
from bbl.model.marginal import MarginalEnergy
from bbl.model.parameters import Parameters
from bbl.parallel import run_tasks
from bbl.rows.sample import Rows, Sample
from bbl.stats.calibration import Calibration
from bbl.stats.scores import class_scores

__all__ = ["Estimate", "estimate", "estimate_jointly", "estimate_path", "fit_group"]

SMALL = 200_000


@dataclass(frozen=True)
class Estimate:
    """A fitted model as plain arrays.

    Attributes
    ----------
    parameters : Parameters
    log_z : ndarray, shape (K,)
        ln Z of each group.
    log_z_kind : str
        How `log_z` was computed: one of "exact", "pseudo", "half", "mf", "ais"; "none" if P(x|y) is not modelled, and
        `log_z` is but what the scores of the groups lack.
    class_prior : ndarray, shape (K,)
        Weighted share of each group.
    lkh : float
        Maximised objective, summed over predictors and observations of all groups.
    fits : tuple of EngineFit
        One per group, then the pooled one if it was made.
    log_z_error : ndarray, shape (K,)
        Standard error of `log_z`; zero unless it was sampled.
    calibration : Calibration or None
        What is done to class scores before they become probabilities.
    predictive : Predictive or None
        The draws that class scores average over, where the method has draws.
    """

    parameters: Parameters
    log_z: np.ndarray
    log_z_kind: str
    class_prior: np.ndarray
    lkh: float
    fits: tuple[EngineFit, ...]
    log_z_error: np.ndarray
    calibration: Calibration | None = None
    predictive: Predictive | None = None

    def energy(self) -> Callable:
        """Return the function of energies that `scores_by` takes: averaged over draws, if there are any."""
        if self.predictive is not None:
            return self.predictive.energy(self.log_z)
        return MarginalEnergy(self.parameters.layout, self.parameters.theta)

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows, calibrated if the model is.

        Parameters
        ----------
        codes : ndarray, shape (n, m)
        missing : ndarray of bool, shape (n, m), optional
            Predictors that are summed out. A row of which nothing is known has the logarithms of the groups' shares,
            whatever ln Z is.
        """
        return self.scores_by(self.energy(), codes, missing)

    def scores_by(self, energy: Callable, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return `class_scores` by a function that has the energies of `parameters` ready."""
        silent = np.zeros(len(codes), dtype=bool) if missing is None else np.array(missing.all(axis=1))
        summed = None if missing is None else missing & ~silent[:, None]
        if self.log_z_kind == "none" and summed is not None and summed.any():
            raise OptionError(
                "This model does not model the predictors, P(x|y), so missing or unseen values cannot be summed out. "
                "Give complete rows of known levels, or fit method='pseudo'.",
                argument="newdata",
            )
        scores = class_scores(energy(codes, summed), self.log_z, self.class_prior)
        if self.calibration is not None:
            scores = self.calibration(scores)
        with np.errstate(divide="ignore"):
            scores[silent] = np.log(self.class_prior)
        return scores

    def log_density(self, energy: Callable, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln sum_y P(y) P(x|y)`` of encoded rows, shape (n,), never calibrated; `energy` as in `scores_by`."""
        scores = replace(self, calibration=None).scores_by(energy, codes, missing)
        return np.logaddexp.reduce(scores, axis=1)

    def pseudo_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the log pseudo-likelihood (n, K) of encoded rows under each group's model."""
        layout, theta = self.parameters.layout, self.parameters.theta
        return np.column_stack([pseudo_log_likelihood(layout, group_theta, codes, missing) for group_theta in theta])

    def pnll(self, codes: np.ndarray, missing: np.ndarray | None, y: np.ndarray, weights: np.ndarray) -> float:
        """Return the weighted mean of the negative log pseudo-likelihood of rows under their own groups' models."""
        layout, theta, total = self.parameters.layout, self.parameters.theta, 0.0
        for k, group_theta in enumerate(theta):
            rows = np.flatnonzero((y == k) & (weights > 0.0))
            if len(rows):
                group_missing = None if missing is None else missing[rows]
                total -= float(weights[rows] @ pseudo_log_likelihood(layout, group_theta, codes[rows], group_missing))
        return total / float(weights.sum())

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of all groups: those of terms that a group has not are none."""
        K, size = self.parameters.theta.shape
        return sum(int(fit.state["free"].sum()) if "free" in fit.state else size for fit in self.fits[:K])

    @property
    def converged(self) -> bool:
        """Whether every predictor of every group reached its optimum."""
        return all(fit.converged.all() for fit in self.fits)


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
    """Fit one group at each of `values`; return each fit, its ln Z (nan where it is exact, later), and its error.

    The (D, D) site matrices are dropped unless `keep_sites`, or with `warm_starts` of earlier fits: then fits are just
    precise enough to compare settings. A group without rows gets zeros; its share is zero, so it is never predicted.
    Only an engine that samples uses ``run.rng`` and ``run.progress``.
    """
    if not sample.n:
        if run.progress is not None:
            run.progress()
        empty = EngineFit(np.zeros(layout.size), 0.0, mf_log_z=0.0, converged=np.ones(layout.m, dtype=bool))
        return [(empty, 0.0, 0.0)] * (1 if values is None else len(values))

    def prepared() -> Any:
        collapses = engine.collapses or log_z in OF_ROWS or not sample.exact
        return engine.prepare(sample.collapsed(layout.n_levels) if collapses else sample, layout)

    rows = prepared() if warm_starts is None else warm_starts.once("rows", prepared)
    out = []
    path: Callable[..., list[EngineFit]] = engine.path
    if warm_starts is not None:
        fits = engine.compare(rows, layout, values, warm_starts)
    elif engine.samples:
        fits = path(rows, layout, values, run.workers, rng=run.rng, progress=run.progress)
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

    `warm_start_sets`, one for each group, ask for fits that are just precise enough to compare settings.

    Returns
    -------
    list of Estimate
        One for each of `values`; one if `values` is None.
    """
    sample, K, labels, workers = task.sample, task.K, task.labels, run.workers
    layout = engine.layout(cast(Sample, sample), task.layout)
    if engine.joint:
        return estimate_jointly(replace(task, layout=layout), engine, values, run)
    wide = engine.widened(layout)
    # of terms that are yet to be chosen, ln Z comes later
    kind = "exact" if engine.chooses else resolve_log_z(task.log_z, wide, engine.log_z)
    check_annealing(kind, layout, K * (1 if values is None else len(values)), workers)
    order = exact_order(layout) if kind == "exact" else []  # raises where it costs too much, before anything is fitted
    pooled = task.pooled and not engine.chooses  # what all rows share has terms of its own
    parts = [sample.group(y) for y in range(K)] + ([sample.pooled] if pooled else [])
    for y, group_sample in enumerate(parts):
        group, names = (f"group {y}", range(layout.m)) if labels is None else (group_text(labels, y), labels.names)
        check_known(group_sample, layout, engine, kind, group, names)
    if not engine.samples and sample.n * layout.D * (1 if values is None else len(values)) < SMALL:
        workers = 1
    outer = min(workers, len(parts))
    guard_memory(sample, layout, K, engine, values, outer, extra=int(pooled))
    rngs = engine.generator(run.rng).spawn(len(parts))
    inner = max(1, workers // outer)
    kinds = [kind] * K + ["exact"] * pooled  # the pooled fit is never asked for its ln Z
    warm_starts = [None] * len(parts) if warm_start_sets is None else warm_start_sets
    inside, outside = (run.progress, None) if engine.samples else (None, run.progress)
    fit_arguments = [
        (group_sample, layout, engine, values, k, Run(inner, r, inside), False, group_starts)
        for group_sample, k, r, group_starts in zip(parts, kinds, rngs, warm_starts, strict=True)
    ]
    settings = list(zip(*_fit_groups(sample, fit_arguments, outer, outside, labels), strict=True))
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
        starts = (
            [annealing_start(group_sample, layout) for group_sample in groups]
            if kind == "ais" and engine.samples
            else [None] * K
        )
        drawn = predictive(wide, fits[:K], kind, starts, rngs[:K], workers, wide.m - layout.m)
        shares = totals / totals.sum()
        out.append(Estimate(parameters, ln_z, kind, shares, lkh, tuple(fits), error, predictive=drawn))
    return out


def _fit_groups(
    sample: Rows, fit_arguments: list[tuple], workers: int, progress: Callable | None, labels: Labels | None
) -> list[list[tuple[EngineFit, float, float]]]:
    """Return `fit_group` of each of `fit_arguments`; `progress` is called after each pass over rows in a file."""
    if progress is not None:
        sample.on_pass(lambda count: progress(0.0, f"pass {count}"))
    try:
        return run_tasks(fit_group, fit_arguments, workers, progress, shared=not sample.in_memory)
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
    """Return the estimate of groups that chose their own terms, over one layout."""
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
    """Fit all groups at once; in place of ln Z stands what makes the class scores.

    `start` are out-of-fold scores of a generative start and its fit to all rows, where they are known.
    """

    def generative(rows: Sample, own: Engine, grid: Sequence[float] | None, stream: np.random.Generator):
        return estimate_path(replace(task.of(rows), labels=None), own, grid, Run(run.workers, stream))

    sample, K = cast(Sample, task.sample), task.K
    share = np.bincount(sample.response, sample.weights, K) / sample.total
    log_share, error = np.log(np.where(share > 0.0, share, 1.0)), np.zeros(K)
    out = []
    for joint_fit in joint_path(sample, task.layout, K, engine, values, generative, run.rng, start):
        ln_z = np.where(share > 0.0, log_share - joint_fit.constant, 0.0)
        lkh = sample.total * joint_fit.fits[0].lkh
        out.append(Estimate(Parameters(task.layout, joint_fit.theta), ln_z, "none", share, lkh, joint_fit.fits, error))
    if run.progress is not None:
        run.progress(float(K))
    return out


def estimate(task: Task, engine: Engine, run: Run | None = None) -> Estimate:
    """Fit all K groups at the engine's own settings."""
    return estimate_path(task, engine, None, run or Run())[0]
