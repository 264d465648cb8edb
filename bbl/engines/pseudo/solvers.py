"""Solvers of the pseudo-likelihood: Newton's method and L-BFGS, and their reports for each predictor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bbl._ext.pseudo import newton
from bbl._ext.pseudo.pseudo import CONVERGED, STUCK, PseudoProblem
from bbl.model.gauge import penalty_metric
from bbl.model.layout import Layout
from bbl.model.logz import log_normaliser
from bbl.model.regressors import penalties, regressors
from bbl.parallel import run_tasks, serial_blas, stop_flag
from bbl.rows.sample import Sample

__all__ = ["FINEST", "FLOOR", "POLISH_SIZE", "Sites", "Solution", "by_lbfgs", "by_newton", "is_small", "prepared"]

FINEST = {"double": 0.0, "single": 1e-5}  # gradient norm that a precision can be asked for,
FLOOR = {"double": 1e-8, "single": 1e-4}  # and at which it has converged where it gets no further
NEAR = 1e-3  # gradient norm from which Newton's method takes few steps to the optimum
NEWTON_WORK = 3e4  # largest cost of a predictor's Hessian that Newton's method takes on alone
NEWTON_SIZE = 256  # largest number of a predictor's parameters for Newton's method
POLISH_SIZE = 1024  # largest number of a predictor's parameters for Newton steps after L-BFGS


class Sites:
    """Reports of the kernels for each predictor."""

    def __init__(self, m: int):
        self.value, self.norm = np.zeros(m), np.zeros(m)
        self.n_iter, self.n_eval, self.status = (np.zeros(m, dtype=np.int32) for _ in range(3))

    def take(self, to: list[int], other: Sites, source: np.ndarray, share: float) -> None:
        """Copy what `other` reports of the predictors `source`, whose objective counts for a `share` of all rows."""
        for name, values in vars(self).items():
            values[to] = getattr(other, name)[source] * (share if name == "value" else 1)


Solution = tuple[np.ndarray, Sites, Callable | None]


def is_small(n: int, layout: Layout) -> bool:
    """Whether Newton's Hessians of `n` rows are cheap enough to be worth their exactness (less than a millisecond)."""
    top = float(layout.n_levels.max()) - 1.0
    if n * top**2 >= NEWTON_WORK:
        return False
    wide = regressors(layout)
    active = 1.0 + wide.mask.sum(axis=1).max(initial=0)
    widest = top * (1.0 + (wide.mask @ (wide.n_levels - 1)).max(initial=0))
    return n * (top * active) ** 2 < NEWTON_WORK and widest < NEWTON_SIZE


def by_newton(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers, only=None, linear=None) -> None:
    """Solve all predictors, or those of `only`, by Newton's method; the codes are those of the `Regressors`."""
    predictors, wide = np.arange(layout.m) if only is None else only, regressors(layout)
    newton.solve_sites(
        sample.codes,
        sample.weights,
        sample.total,
        wide.start,
        wide.mask.view(np.uint8),
        predictors.astype(np.int32),
        np.zeros(1 + wide.D) if engine.zero_sum else np.append(lambdah, penalties(layout, lambda_)),
        engine.prior_count,
        engine.tolerance,
        engine.itmax,
        site_theta,
        sites.value,
        sites.norm,
        sites.n_iter,
        sites.status,
        linear,
        penalty_metric(layout, float(np.max(lambda_)), lambdah) if engine.zero_sum else None,
    )


def _solve_task(problem: PseudoProblem, task: int, numbers: tuple, out: dict) -> None:
    lambda_, lambdah, tolerance, itmax, theta = numbers
    problem.solve(task, lambda_, lambdah, tolerance, itmax, theta, stop=stop_flag(), **out)


def prepared(sample: Sample, layout: Layout, precision: str, prior_count: float = 0.0, counted: bool = True):
    """Return the rows as the vectorised kernel reads them; the codes are those of the `Regressors`."""
    wide = regressors(layout)
    with serial_blas():
        return PseudoProblem(
            sample.codes, sample.weights, wide.n_levels, wide.mask, None, precision, prior_count, counted
        )


def by_lbfgs(problem: PseudoProblem, precision: str):
    """Return the solver of `prepared` rows, for all penalties.

    It takes a `tolerance` (m,) of each predictor in place of the engine's, a `linear` term of the objectives, and a
    `share`, of which only every so many-th task is solved from some number on.
    """

    parts = np.split(problem.order, range(problem.lanes, len(problem.order), problem.lanes))

    def solve(
        engine, sample, layout, lambda_, lambdah, site_theta, sites, workers, tolerance=None, linear=None, share=(0, 1)
    ):
        wide, least = regressors(layout), max(engine.tolerance, FINEST[precision])
        site_tolerance = np.full(layout.m, least) if tolerance is None else np.maximum(tolerance, FINEST[precision])
        each = penalties(layout, lambda_)
        base = float(each[0]) if len(each) else 0.0  # that of pairs: the columns of single predictors come first
        out = {
            "linear": linear,
            "zero_sum": engine.zero_sum,
            "more": None if (each == base).all() else each - base,
            "grad_norm": sites.norm,
            "n_iter": sites.n_iter,
            "n_eval": sites.n_eval,
            "status": sites.status,
            "value": sites.value,
        }
        tasks = [
            (task, (base, lambdah, float(site_tolerance[site_range].min()), engine.itmax, site_theta), out)
            for task, site_range in enumerate(parts)
        ]
        stop = stop_flag()
        run_tasks(partial(_solve_task, problem), tasks[share[0] :: share[1]], workers, shared=True)
        if stop[0]:  # told to give up: nobody looks at this fit, and what is unfinished is not to be polished
            return None
        # near rounding a quasi-Newton line search may find nothing better, and on flat objectives it creeps
        near = (sites.status != CONVERGED) & (sites.norm <= NEAR)
        stuck = np.flatnonzero(near | (sites.status == STUCK))
        if len(stuck) and precision == "double" and wide.D * (layout.n_levels[stuck].max() - 1) < POLISH_SIZE:
            by_newton(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers, stuck, linear)
        # what is left there is the floor that rounding sets
        sites.status[(sites.status == STUCK) & (sites.norm <= FLOOR[precision])] = CONVERGED
        return partial(log_normaliser, problem, layout, site_theta)

    return solve
