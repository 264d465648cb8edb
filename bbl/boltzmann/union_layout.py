"""One layout for groups that chose different terms: it has the terms of all groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bbl.engines import Engine, EngineFit
from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.layout import Layout
from bbl.model.logz import approximate_log_z, exact_log_z, resolve_log_z
from bbl.rows.sample import Sample

__all__ = ["MergedFits", "log_z_of_chosen", "merge_layouts"]


class MergedFits(NamedTuple):
    """One layout, and the fits of all groups over it.

    Parameters of terms that a group did not choose are zero, and false in its ``state["free"]`` (size,).
    ``state["votes"]`` (size,) counts the predictors that chose each parameter's term; ``state["nodes"]`` (order, size)
    holds the estimate of each parameter by the first, second, ... predictor of its term.
    """

    layout: Layout
    fits: list[EngineFit]


def merge_layouts(layout: Layout, fits: Sequence[EngineFit]) -> MergedFits:
    """Return fits with different layouts as fits over one layout; `layout` is that of fits that name none."""
    fit_layouts = [layout if fit.layout is None else fit.layout for fit in fits]
    union = Layout(layout.n_levels, [terms for each in fit_layouts for terms in each.terms])
    out = []
    for each, fit in zip(fit_layouts, fits, strict=True):
        positions = _positions(each, union)
        free = np.zeros(union.size, dtype=bool)
        free[positions] = True
        theta = np.zeros(union.size)
        theta[positions] = fit.theta
        state = {"free": free}
        state["votes"], state["nodes"] = np.zeros(union.size), np.full((max(union.order, 2), union.size), np.nan)
        if fit.state:
            state["votes"][positions] = fit.state["votes"]
            state["nodes"][: len(fit.state["nodes"]), positions] = fit.state["nodes"]
        out.append(replace(fit, theta=theta, state=state))
    return MergedFits(union, out)


def _positions(part: Layout, whole: Layout) -> np.ndarray:
    """Return the position (part.size,) of each parameter of `part` in `whole`, a layout that has all of its terms."""
    whole_positions, out = np.arange(whole.size), np.arange(part.size)
    for terms in part.terms:
        for term in terms.tolist():
            part.table(out, *term)[...] = whole.table(whole_positions, *term)
    return out


def log_z_of_chosen(
    fits: Sequence[EngineFit],
    layout: Layout,
    group_samples: Sequence[Sample],
    engine: Engine,
    log_z: str,
    rngs: Sequence[np.random.Generator],
    workers: int,
) -> tuple[np.ndarray, str, np.ndarray]:
    """Return ln Z (K,) of groups that chose different terms, how it was computed, and its standard errors (K,).

    All are computed in the same way: exactly only if that is possible for each group. Standard errors are 0 unless ln Z
    is annealed. `layout` is that of fits that name none; a group without rows has ln Z = 0 unless computed exactly.
    """
    kinds = [resolve_log_z(log_z, fit.layout or layout, engine.log_z) for fit in fits]
    kind = next((each for each in kinds if each != "exact"), "exact")
    value, error = np.zeros(len(fits)), np.zeros(len(fits))
    for k, (fit, group_sample, rng) in enumerate(zip(fits, group_samples, rngs, strict=True)):
        fit_layout = fit.layout or layout
        if kind == "exact":
            value[k] = exact_log_z(fit_layout, fit.theta[None])[0]
        elif group_sample.n:
            rows = engine.prepare(group_sample.collapsed(fit_layout.n_levels), fit_layout)
            if kind == "ais":
                sampled = annealed_log_z(
                    fit_layout, fit.theta, annealing_start(rows, fit_layout), rng=rng, n_jobs=workers
                )
                value[k], error[k] = sampled.log_z, sampled.standard_error
            else:
                value[k] = approximate_log_z(kind, rows, fit_layout, fit.theta)
    return value, kind, error
