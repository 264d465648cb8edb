"""Pseudo-likelihood of one group over a grid of penalties, for rows in memory, complete or with
missing values.

A site is a predictor in the role of the response; each of m sites is fitted by itself. Solutions
`site_theta` have shape (layout.D, 1 + D): a row for each non-reference level of each site, with its
field and its couplings to the D columns of the `Regressors`: the non-reference levels of all
predictors and, if there are terms of three or more, the joint levels of `sets` of predictors.
`Sites` holds reports (m,) on the fits of the sites: objective, gradient norm, iterations, status. A
`Solution` is (site_theta, sites, normaliser); ``normaliser(half)`` returns ln Z by eq. (31), and is
None if the solver has none. `WarmStarts` is a dictionary of solutions by penalty; its ``once(name,
make)`` calls ``make()`` and keeps the result by its name, if there is memory. Neighbours of a site
are the predictors that interact with it, by the mask `layout.mask` (m, m).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bbl.engines.pseudo.nodes import by_nodes, n_shares
from bbl.engines.pseudo.solvers import (
    Sites,
    Solution,
    by_lbfgs,
    by_newton,
    is_small,
    prepare_problem,
)
from bbl.engines.pseudo.sparse_sites import solve_sparse
from bbl.engines.warm_starts import WarmStarts
from bbl.model.layout import Layout
from bbl.model.moments import level_counts, log_ratio, smoothed
from bbl.model.regressors import regressors
from bbl.rows.sample import Sample

__all__ = ["CLOSE_COMPARISON_NORM", "extrapolate", "solve_available", "solve_complete"]

COMPARISON_NORM = 3e-4  # gradient norm that suffices to compare penalties
# gradient norm that suffices to compare penalties of nearly equal losses
CLOSE_COMPARISON_NORM = 2e-5
# a solver stops where the probability of an absent level, which is the gradient by its field, is
# about tolerance ** ABSENT_POWER: over 1, as its last step goes far beyond the tolerance; the
# number is empirical
ABSENT_POWER = 1.84


def solve_available(
    engine: Any,
    sample: Sample,
    layout: Layout,
    usable: np.ndarray,
    grid: list,
    workers: int,
    warm_starts: Mapping[float, np.ndarray] | None,
    start: np.ndarray | None = None,
) -> list[Solution]:
    """Fit each site to its usable rows at each penalty of `grid`, sites with the same rows
    together.

    `engine` is a `PseudoLikelihood`. `usable` (n, m) marks the rows in which a site and its
    neighbours are known. Sites with the same usable rows are a group, which is fitted as a model of
    its own. `warm_starts` holds earlier solutions by penalty; `start` is as in `solve_complete`.
    """
    all_columns = regressors(layout)
    out: list[Solution] = [
        (np.zeros((layout.D, 1 + all_columns.D)), Sites(layout.m), None) for _ in grid
    ]
    sites_by_rows: dict[bytes, list[int]] = {}
    for i in range(layout.m):
        sites_by_rows.setdefault(usable[:, i].tobytes(), []).append(i)
    for site_group in sites_by_rows.values():
        # a model of these sites and their neighbours: the solutions of the neighbours in it are not
        # used
        is_kept = np.array(layout.mask[site_group].any(axis=0))
        is_kept[site_group] = True
        # the predictors of this model, and the number of each in it
        predictors = np.flatnonzero(is_kept)
        number = np.cumsum(is_kept) - 1
        # the terms of the group's sites, in each order
        terms = [
            number[term_array[np.isin(term_array, site_group).any(axis=1)]]
            for term_array in layout.terms
        ]
        sub_layout = Layout(layout.n_levels[predictors], terms)
        usable_data = sample.rows(usable[:, site_group[0]])
        sub_sample = Sample(
            np.ascontiguousarray(usable_data.codes[:, predictors]), usable_data.weights
        ).collapsed(sub_layout.n_levels)
        # entries (rows, columns) of the whole solution, and rows of the group's solution, that
        # belong to the group's sites; column 0 is the field
        entries = np.ix_(
            layout.columns(site_group),
            np.append(0, 1 + all_columns.positions(sub_layout, predictors)),
        )
        sub_levels = sub_layout.columns(number[site_group])
        share = sub_sample.total / sample.total

        def restrict(site_theta: np.ndarray) -> np.ndarray:
            """Return the group's solution with the entries of its sites from a whole one, and zero
            for neighbours.
            """
            out = np.zeros((sub_layout.D, entries[1].size))  # noqa: B023  # called at once
            out[sub_levels] = site_theta[entries]  # noqa: B023
            return out

        sub_starts = (
            None
            if warm_starts is None
            else WarmStarts({k: restrict(v) for k, v in warm_starts.items()})
        )
        sub_start = None if start is None else restrict(start)
        solutions = solve_complete(
            engine, sub_sample, sub_layout, grid, workers, sub_starts, start=sub_start
        )
        for (site_theta, sites, _), (sub_theta, sub_sites, _) in zip(out, solutions, strict=True):
            site_theta[entries] = sub_theta[sub_levels]
            # copies the reports on the group's sites; objectives are multiplied by the share of the
            # rows, over which they are means
            sites.take(site_group, sub_sites, number[site_group], share)
    return out


def solve_complete(
    engine: Any,
    sample: Sample,
    layout: Layout,
    grid: list,
    workers: int,
    warm_starts: WarmStarts | None = None,
    counts: list[np.ndarray] | None = None,
    start: np.ndarray | None = None,
) -> list[Solution]:
    """Fit complete rows at each penalty of `grid`, the largest first, each fit starting from the
    one before.

    With `warm_starts`, fits are only good enough to compare penalties, see
    `PseudoLikelihood.compare`, and their solutions are added to it. `counts` holds the weights
    (L_i,) of each predictor's levels, None to count them. The first fit begins at the solution
    `start` (layout.D, 1 + D), if it is given, else without couplings. Solutions are returned in the
    order of `grid`.
    """
    if engine.sparse:
        return solve_sparse(engine, sample, layout, grid, workers)
    out: list[Any] = [None] * len(grid)
    solve: Any = None
    # what does not depend on the penalty is computed once for all comparisons, if there is memory
    # to keep it
    once = WarmStarts().once if warm_starts is None else warm_starts.once
    takes_newton = once("small", partial(is_small, sample.n, layout))
    # without a penalty the field of an absent level falls until its gradient is well within the
    # tolerance: start there
    starts_at_stop = warm_starts is not None and not takes_newton and engine.diverges(min(grid))
    site_theta = np.empty((0, 0))
    if start is not None:
        site_theta = start.copy()
    elif not warm_starts:
        site_theta = _start(
            engine, counts or level_counts(sample, layout.n_levels), layout, starts_at_stop
        )
    sample = once("codes", partial(_joint_levels, sample, layout))
    # fit_engine: the engine with the tolerance and precision of the last fit
    sites = None
    fit_engine = engine
    for k in sorted(range(len(grid)), key=lambda k: grid[k], reverse=True):
        lambda_ = grid[k]
        # all fits of a comparison but its first, which is exact unless it starts where exact fits
        # stop
        if warm_starts is not None and (warm_starts or starts_at_stop):
            site_theta = extrapolate(warm_starts, lambda_) if warm_starts else site_theta
            comparison_norm = CLOSE_COMPARISON_NORM if lambda_ in warm_starts else COMPARISON_NORM
            tolerance = max(engine.tolerance, comparison_norm)
            # a solver that has prepared the rows in double precision does not serve these fits
            solve = solve if fit_engine.precision == "single" else None
            # kept, as `replace` checks all options again
            fit_engine = once(
                f"to {tolerance}", partial(replace, engine, tolerance=tolerance, precision="single")
            )
        elif sites is not None:  # not the first fit: the last one keeps its array
            site_theta = site_theta.copy()
        if solve is None:
            solve = (
                by_newton
                if takes_newton
                else once(fit_engine.precision, partial(_solver, fit_engine, sample, layout))
            )
        sites = Sites(layout.m)
        normaliser = solve(
            fit_engine,
            sample,
            layout,
            lambda_,
            engine.lambdah_at(lambda_),
            site_theta,
            sites,
            workers,
        )
        if warm_starts is not None:
            warm_starts[lambda_] = site_theta
        out[k] = (site_theta, sites, normaliser)
    return out


def _start(
    engine: Any, counts: list[np.ndarray], layout: Layout, starts_at_stop: bool
) -> np.ndarray:
    """Return the solution without couplings, (layout.D, 1 + D), from the weights (L_i,) of each
    predictor's levels.

    Levels have a prior count or, if it `starts_at_stop`, absent levels the probability at which a
    solver would stop.
    """
    site_theta = np.zeros((layout.D, 1 + regressors(layout).D))
    level_shares = smoothed(counts, 0.0 if starts_at_stop else engine.prior_count or 1.0)
    least_share = engine.tolerance**ABSENT_POWER if starts_at_stop else 0.0
    site_theta[:, 0] = np.concatenate(
        [np.empty(0), *(log_ratio(np.maximum(shares, least_share)) for shares in level_shares)]
    )
    return site_theta


def _joint_levels(sample: Sample, layout: Layout) -> Sample:
    """Return the rows with the codes of the `Regressors`, which are joint levels too for terms of
    three or more.
    """
    regs = regressors(layout)
    return replace(sample, codes=regs.codes(sample.codes)) if regs.sets else sample


def _solver(engine: Any, sample: Sample, layout: Layout) -> Callable:
    """Return the L-BFGS solver of all sites, on a cluster if the rows have one."""
    if n_shares(sample) > 1:
        return by_nodes(sample, layout, engine.precision, engine.prior_count)
    return by_lbfgs(
        prepare_problem(sample, layout, engine.precision, engine.prior_count), engine.precision
    )


def extrapolate(warm_starts: Mapping[float, np.ndarray], lambda_: float) -> np.ndarray:
    """Return the solution at `lambda_` by linear inter- or extrapolation in the logarithm of the
    penalty.

    The line goes through the solutions at the next stronger and the next weaker penalty, or the two
    strongest or weakest; with one solution or a penalty of 0, the nearest solution is copied.
    """
    fitted_penalties = sorted(warm_starts)
    if len(fitted_penalties) == 1 or lambda_ <= 0.0 or fitted_penalties[0] <= 0.0:
        return warm_starts[min(fitted_penalties, key=lambda other: abs(other - lambda_))].copy()
    # position of the next stronger penalty, such that there is a weaker one before it
    upper = min(max(int(np.searchsorted(fitted_penalties, lambda_)), 1), len(fitted_penalties) - 1)
    weak = fitted_penalties[upper - 1]
    strong = fitted_penalties[upper]
    share = float(np.log(lambda_ / weak) / np.log(strong / weak))
    out = share * warm_starts[strong]
    out += (1.0 - share) * warm_starts[weak]
    return out
