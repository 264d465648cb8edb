"""Pseudo-likelihood of one group over a grid of penalties: rows in memory, complete or with missing values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bbl.engines.pseudo.nodes import by_nodes, n_shares
from bbl.engines.pseudo.solvers import Sites, Solution, by_lbfgs, by_newton, is_small, prepared
from bbl.engines.warm_starts import WarmStarts
from bbl.model.layout import Layout
from bbl.model.moments import level_counts, log_ratio, smoothed
from bbl.model.regressors import regressors
from bbl.rows.sample import Sample

__all__ = ["CLOSER", "on_the_line", "solve_available", "solve_complete"]

COMPARED = 3e-4  # gradient norm that is enough to compare penalties
CLOSER = 2e-5  # gradient norm to compare penalties whose losses are close
FALLEN = 1.84  # power of the tolerance that the probability of an absent level has when a solver stops


def solve_available(
    engine: Any,
    sample: Sample,
    layout: Layout,
    usable: np.ndarray,
    grid: list,
    workers: int,
    warm_starts: Mapping[float, np.ndarray] | None,
) -> list[Solution]:
    """Solve each predictor on its own rows; those with the same rows go together, with their neighbours."""
    all_columns = regressors(layout)
    out: list[Solution] = [(np.zeros((layout.D, 1 + all_columns.D)), Sites(layout.m), None) for _ in grid]
    alike: dict[bytes, list[int]] = {}
    for i in range(layout.m):
        alike.setdefault(usable[:, i].tobytes(), []).append(i)
    for same_rows in alike.values():
        near = np.array(layout.mask[same_rows].any(axis=0))
        near[same_rows] = True
        involved = np.flatnonzero(near)
        position = np.cumsum(near) - 1
        terms = [position[term_array[np.isin(term_array, same_rows).any(axis=1)]] for term_array in layout.terms]
        sub_layout = Layout(layout.n_levels[involved], terms)
        rows = sample.rows(usable[:, same_rows[0]])
        sub_sample = Sample(np.ascontiguousarray(rows.codes[:, involved]), rows.weights).collapsed(sub_layout.n_levels)
        to, wide = layout.columns(same_rows), np.append(0, 1 + all_columns.positions(sub_layout, involved))
        share = sub_sample.total / sample.total
        rows_of_own = sub_layout.columns(position[same_rows])
        before = (
            None
            if warm_starts is None
            else WarmStarts({lambda_: np.zeros((sub_layout.D, len(wide))) for lambda_ in warm_starts})
        )
        for lambda_, own_theta in (before or {}).items():
            own_theta[rows_of_own] = warm_starts[lambda_][np.ix_(to, wide)]  # type: ignore[index]
        for (site_theta, sites, _), solved in zip(
            out, solve_complete(engine, sub_sample, sub_layout, grid, workers, before), strict=True
        ):
            site_theta[np.ix_(to, wide)] = solved[0][rows_of_own]
            sites.take(same_rows, solved[1], position[same_rows], share)
    return out


def solve_complete(
    engine: Any,
    sample: Sample,
    layout: Layout,
    grid: list,
    workers: int,
    warm_starts: WarmStarts | None = None,
    counts: list[np.ndarray] | None = None,
) -> list[Solution]:
    """Solve complete rows at each penalty, from the strongest to the weakest with warm starts.

    With a `warm_starts`, see `PseudoLikelihood.compare`; it gets what is solved. `counts` of levels save counting them.
    """
    out: list[Any] = [None] * len(grid)
    solve: Any = None
    once = WarmStarts().once if warm_starts is None else warm_starts.once
    small = once("small", partial(is_small, sample.n, layout))
    # without a penalty the field of an absent level falls until its gradient is well within the tolerance
    ended = warm_starts is not None and not small and engine.bare(min(grid))
    site_theta = np.empty((0, 0))
    if not warm_starts:
        site_theta = _start(engine, counts or level_counts(sample, layout.n_levels), layout, ended)
    sample = once("codes", partial(_joint_levels, sample, layout))
    sites, used = None, engine
    for at in sorted(range(len(grid)), key=lambda at: grid[at], reverse=True):
        lambda_ = grid[at]
        if warm_starts is not None and (warm_starts or ended):
            site_theta = on_the_line(warm_starts, lambda_) if warm_starts else site_theta
            tolerance = max(engine.tolerance, CLOSER if lambda_ in warm_starts else COMPARED)
            solve = solve if used.precision == "single" else None
            used = once(f"to {tolerance}", partial(replace, engine, tolerance=tolerance, precision="single"))
        elif sites is not None:  # a warm start; the finished fit keeps its own
            site_theta = site_theta.copy()
        if solve is None:
            solve = by_newton if small else once(used.precision, partial(_solver, used, sample, layout))
        sites = Sites(layout.m)
        normaliser = solve(used, sample, layout, lambda_, engine.lambdah_at(lambda_), site_theta, sites, workers)
        if warm_starts is not None:
            warm_starts[lambda_] = site_theta
        out[at] = (site_theta, sites, normaliser)
    return out


def _start(engine: Any, counts: list[np.ndarray], layout: Layout, ended: bool) -> np.ndarray:
    """Return the independent model; the fields of absent levels are where they end, if they have `ended`."""
    site_theta = np.zeros((layout.D, 1 + regressors(layout).D))
    f = smoothed(counts, 0.0 if ended else engine.prior_count or 1.0)
    least = engine.tolerance**FALLEN if ended else 0.0
    site_theta[:, 0] = np.concatenate([log_ratio(np.maximum(shares, least)) for shares in f])
    return site_theta


def _joint_levels(sample: Sample, layout: Layout) -> Sample:
    """Return the rows with the codes of the `Regressors`."""
    wide = regressors(layout)
    return replace(sample, codes=wide.codes(sample.codes)) if wide.sets else sample


def _solver(engine: Any, sample: Sample, layout: Layout) -> Callable:
    """Return what solves all predictors of rows that Newton's method is too costly for."""
    if n_shares(sample) > 1:
        return by_nodes(sample, layout, engine.precision, engine.prior_count)
    return by_lbfgs(prepared(sample, layout, engine.precision, engine.prior_count), engine.precision)


def on_the_line(warm_starts: Mapping[float, np.ndarray], lambda_: float) -> np.ndarray:
    """Return the point at `lambda_` of the line, in the logarithm of the penalty, through the two nearest solutions.

    They are the next stronger and the next weaker one, or the two strongest or weakest.
    """
    fitted_penalties = sorted(warm_starts)
    if len(fitted_penalties) == 1 or lambda_ <= 0.0 or fitted_penalties[0] <= 0.0:
        return warm_starts[min(fitted_penalties, key=lambda other: abs(other - lambda_))].copy()
    at = min(max(int(np.searchsorted(fitted_penalties, lambda_)), 1), len(fitted_penalties) - 1)
    weak, strong = fitted_penalties[at - 1], fitted_penalties[at]
    share = float(np.log(lambda_ / weak) / np.log(strong / weak))
    out = share * warm_starts[strong]
    out += (1.0 - share) * warm_starts[weak]
    return out
