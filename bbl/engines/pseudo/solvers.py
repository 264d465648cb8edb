"""Solvers of the pseudo-likelihood: Newton's method and L-BFGS.

A site is a predictor in the role of the response; each of m sites is fitted by itself, from and to its rows of a
solution `site_theta` (layout.D, 1 + D): a row for each non-reference level of the site, with its field and its
couplings to the D columns of the `Regressors`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bbl._ext.pseudo import newton
from bbl._ext.pseudo.pseudo import CONVERGED, ITMAX, STUCK, PseudoProblem
from bbl.model.gauge import penalty_metric
from bbl.model.layout import Layout
from bbl.model.logz import log_normaliser
from bbl.model.regressors import penalties, regressors
from bbl.parallel import run_tasks, serial_blas, stop_flag
from bbl.rows.sample import Sample

__all__ = ["FINEST", "FLOOR", "POLISH_SIZE", "Sites", "Solution", "by_lbfgs", "by_newton", "is_small", "prepared"]

FINEST = {"double": 0.0, "single": 1e-5}  # least tolerance of the gradient norm in each precision
FLOOR = {"double": 1e-8, "single": 1e-4}  # gradient norm at which a stuck fit counts as converged
NEWTON_WORK = 3e4  # multiplications for a site's Hessian up to which Newton's method is used alone
NEWTON_SIZE = 256  # parameters of a site up to which Newton's method is used alone
POLISH_SIZE = 1024  # parameters of a site up to which Newton's method follows L-BFGS


class Sites:
    """Reports on each site, (m,): objective, gradient norm, iterations, evaluations, and status of the kernel."""

    def __init__(self, m: int):
        self.value, self.norm = np.zeros(m), np.zeros(m)
        self.n_iter, self.n_eval, self.status = (np.zeros(m, dtype=np.int32) for _ in range(3))

    def take(self, to: list[int], other: Sites, source: np.ndarray, share: float) -> None:
        """Copy the reports of `other` on its sites `source` to sites `to`; their rows are a `share` of all rows."""
        for name, values in vars(self).items():
            values[to] = getattr(other, name)[source] * (share if name == "value" else 1)


# site_theta, reports, and the function normaliser(half) of eq. (31) if the solver has one
Solution = tuple[np.ndarray, Sites, Callable | None]


def is_small(n: int, layout: Layout) -> bool:
    """Return whether Hessians of `n` rows are cheap enough for Newton's method (under a millisecond)."""
    max_levels = float(layout.n_levels.max()) - 1.0
    if n * max_levels**2 >= NEWTON_WORK:
        return False
    wide = regressors(layout)
    max_regressors = 1.0 + wide.mask.sum(axis=1).max(initial=0)
    max_parameters = max_levels * (1.0 + (wide.mask @ (wide.n_levels - 1)).max(initial=0))
    return n * (max_levels * max_regressors) ** 2 < NEWTON_WORK and max_parameters < NEWTON_SIZE


def by_newton(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers, only=None, linear=None) -> None:
    """Fit all sites, or those of `only`, by Newton's method, writing `site_theta` and `sites` in place.

    The codes of `sample` are those of the `Regressors`; `linear` (layout.D, 1 + D) is subtracted from the gradients.
    """
    fitted_sites, wide = np.arange(layout.m) if only is None else only, regressors(layout)
    newton.solve_sites(
        sample.codes,
        sample.weights,
        sample.total,
        wide.start,
        wide.mask.view(np.uint8),
        fitted_sites.astype(np.int32),
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


def _solve_task(problem: PseudoProblem, task: int, settings: tuple, out: dict) -> None:
    """Fit the sites of a task by L-BFGS; `out` holds options and the arrays for the reports."""
    lambda_, lambdah, tolerance, itmax, theta = settings
    problem.solve(task, lambda_, lambdah, tolerance, itmax, theta, stop=stop_flag(), **out)


def prepared(sample: Sample, layout: Layout, precision: str, prior_count: float = 0.0, counted: bool = True):
    """Return the rows as the L-BFGS kernel reads them; the codes are those of the `Regressors`."""
    wide = regressors(layout)
    with serial_blas():
        return PseudoProblem(
            sample.codes, sample.weights, wide.n_levels, wide.mask, None, precision, prior_count, counted
        )


def by_lbfgs(problem: PseudoProblem, precision: str, share: tuple[int, int] = (0, 1)):
    """Return the function that fits all sites of `prepared` rows at given penalties, in place.

    With ``share=(k, shares)`` it fits the sites of the tasks k, k + shares, ... alone. Its argument `tolerance` (m,)
    replaces the engine's, `linear` (layout.D, 1 + D) is subtracted from the gradients. It returns the normaliser of a
    `Solution`.
    """
    task_sites = np.split(problem.order, range(problem.lanes, len(problem.order), problem.lanes))

    def solve(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers, tolerance=None, linear=None):
        """Write `site_theta` and `sites` in place."""
        wide = regressors(layout)
        site_tolerance = np.full(layout.m, engine.tolerance) if tolerance is None else tolerance
        site_tolerance = np.maximum(site_tolerance, FINEST[precision])
        column_penalties = penalties(layout, lambda_)
        # the penalty of pairs: the columns of single predictors come first
        pair_penalty = float(column_penalties[0]) if len(column_penalties) else 0.0
        out = {
            "linear": linear,
            "zero_sum": engine.zero_sum,
            "more": None if (column_penalties == pair_penalty).all() else column_penalties - pair_penalty,
            "grad_norm": sites.norm,
            "n_iter": sites.n_iter,
            "n_eval": sites.n_eval,
            "status": sites.status,
            "value": sites.value,
        }
        tasks = [
            (task, (pair_penalty, lambdah, float(site_tolerance[members].min()), engine.itmax, site_theta), out)
            for task, members in enumerate(task_sites)
        ]
        stop = stop_flag()
        run_tasks(partial(_solve_task, problem), tasks[share[0] :: share[1]], workers, shared=True)
        if stop[0]:  # interrupted: the fit is not used
            return None
        # near rounding a quasi-Newton line search may fail, and on flat objectives progress is slow
        unfinished = np.flatnonzero((sites.status == ITMAX) | (sites.status == STUCK))
        if len(unfinished) and precision == "double" and wide.D * (layout.n_levels[unfinished].max() - 1) < POLISH_SIZE:
            by_newton(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers, unfinished, linear)
        # the remaining gradient is rounding
        sites.status[(sites.status == STUCK) & (sites.norm <= FLOOR[precision])] = CONVERGED
        return partial(log_normaliser, problem, layout, site_theta)

    return solve
