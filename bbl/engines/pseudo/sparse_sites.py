"""Pseudo-likelihood with sparse penalties, by a sparse logistic regression for each site."""

# The site is i, its regressors are the predictors j that interact with it. Regressions use the
# coding of `bbl.sparse`: the levels of the site and of its regressors are corners of a simplex.
# Their tables of couplings are in the zero-sum gauge.

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bbl._ext.pseudo.pseudo import CONVERGED, ITMAX
from bbl.engines.pseudo.solvers import FLOOR, Sites, Solution
from bbl.model.layout import Layout
from bbl.model.logz import pseudo_log_z
from bbl.model.regressors import regressors
from bbl.parallel import run_tasks
from bbl.rows.sample import Sample, code_dtype
from bbl.sparse.many_classes import minimise_groups
from bbl.sparse.products import Problem, contrasts, simplex
from bbl.sparse.workingset import MAX_INTERCEPT, Descent, Penalty

__all__ = ["solve_sparse"]

# smallest violation of the optimality conditions, per row, at which a fit ends; rounding errors in
# sums over rows prevent smaller violations
LEAST_VIOLATION = 1e-9
# minimum proportion of a level at the start: the field of an absent level diverges, and this
# proportion is the violation that remains
LEAST_SHARE = 1e-9


def solve_sparse(
    engine: Any, sample: Sample, layout: Layout, grid: list, workers: int
) -> list[Solution]:
    """Fit complete rows at each penalty in `grid`, in decreasing order, with warm starts.

    `engine` is a `PseudoLikelihood` with ``penalty="l1"`` or ``"group"``. Solutions are returned in
    the order of `grid`.
    """
    D = regressors(layout).D
    solutions = [np.zeros((layout.D, 1 + D)) for _ in grid]
    reports = [Sites(layout.m) for _ in grid]
    tasks = [
        (engine, sample, layout, grid, i, solutions, reports)
        for i in range(layout.m)
        if layout.n_levels[i] > 1
    ]
    run_tasks(_solve_site, tasks, workers, shared=True)
    return [
        (site_theta, sites, partial(_normaliser, sample, layout, site_theta))
        for site_theta, sites in zip(solutions, reports, strict=True)
    ]


def _normaliser(sample: Sample, layout: Layout, site_theta: np.ndarray, half: bool) -> float:
    """Return ln Z of a solution, computed by eq. (31)."""
    return pseudo_log_z(sample, layout, site_theta, half=half)


def _solve_site(
    engine: Any,
    sample: Sample,
    layout: Layout,
    grid: list,
    i: int,
    solutions: list[np.ndarray],
    reports: list[Sites],
) -> None:
    """Fit site `i` at each penalty in `grid`, and fill in `solutions` and `reports`."""
    n_levels = layout.n_levels
    neighbours = np.flatnonzero(layout.mask[i] & (n_levels > 1))
    codes = sample.codes[:, neighbours].astype(code_dtype(n_levels[neighbours])).T
    problem = Problem(
        np.ascontiguousarray(codes),
        tuple(int(L) for L in n_levels[neighbours]),
        sample.codes[:, i].astype(np.intp),
        int(n_levels[i]),
        np.asarray(sample.weights, dtype=float),
    )
    q = problem.K - 1
    zeros: dict[tuple[int, ...], np.ndarray] = {
        (k,): np.zeros((problem.n_levels[k] - 1, q)) for k in range(problem.m)
    }
    # start at the proportions of the levels, so that only important tables have gradients above
    # penalties
    counts = np.bincount(problem.y, problem.weights, problem.K)
    log_shares = np.log(np.maximum(counts / problem.total, LEAST_SHARE))
    start = np.clip(2.0 * contrasts(problem.K).T @ log_shares, -MAX_INTERCEPT, MAX_INTERCEPT)
    descent = Descent(problem, Penalty((1.0,)), zeros, start)
    descent.max_steps = engine.itmax
    # ratio of the penalised norm to the norm of a table's weights: the Frobenius norm in the
    # zero-sum gauge, or for two levels each the coupling itself, which is twice as large
    to_norm = np.sqrt(0.5 * np.array(problem.n_levels, dtype=float))
    if engine.penalty == "l1":
        to_norm *= 2.0
    has_groups = problem.K > 2 and problem.m > 0
    for k in sorted(range(len(grid)), key=lambda k: grid[k], reverse=True):
        descent.lambdas = grid[k] * problem.total * to_norm
        largest = grid[k] * float(to_norm.max(initial=1.0))  # per row
        descent.max_violation = max(engine.tolerance, LEAST_VIOLATION) / largest
        norm = largest * (minimise_groups(descent) if has_groups else descent.minimise())
        _write_site(layout, i, neighbours, descent, solutions[k])
        sites = reports[k]
        sites.value[i] = (descent.loss + descent.penalties(descent.theta)) / problem.total
        sites.norm[i] = norm
        sites.n_iter[i] = descent.n_steps
        is_converged = norm <= max(engine.tolerance, FLOOR["double"])
        sites.status[i] = CONVERGED if is_converged else ITMAX


def _write_site(
    layout: Layout, i: int, neighbours: np.ndarray, descent: Descent, site_theta: np.ndarray
) -> None:
    """Write the fields and couplings of site `i`, in the reference gauge, to `site_theta`."""
    rows = slice(layout.start[i], layout.start[i + 1])
    to_scores = descent.to_scores
    fields = to_scores @ descent.intercept
    starts = descent.products.starts
    # the tables of other neighbours are zero, as `site_theta` is
    nonzero_rows = np.flatnonzero(descent.theta.any(axis=1))
    coupled = np.unique(np.searchsorted(starts, nonzero_rows, side="right") - 1)
    n_levels = layout.n_levels[neighbours[coupled]]
    for L in np.unique(n_levels).tolist():
        which = coupled[n_levels == L]  # neighbours with L levels
        levels = np.arange(L - 1)
        weights = descent.theta[starts[which, None] + levels]
        tables = simplex(L) @ weights @ to_scores.T  # (neighbours, L, L_i)
        fields += tables[:, 0].sum(axis=0)
        couplings = tables[:, 1:, 1:] - tables[:, :1, 1:] - tables[:, 1:, :1] + tables[:, :1, :1]
        columns = 1 + layout.start[neighbours[which], None] + levels
        site_theta[rows, columns.ravel()] = couplings.reshape(columns.size, -1).T
    site_theta[rows, 0] = fields[1:] - fields[0]
