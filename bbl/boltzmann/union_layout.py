"""Fits of groups whose terms were chosen for each by itself, over one layout that holds the terms of all."""

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

    What a group has not is zero, and false in ``state["free"]``; ``state["votes"]`` are the predictors that asked for
    each parameter's term, ``state["nodes"]`` what its first, second, ... member says of it.
    """

    layout: Layout
    fits: list[EngineFit]


def merge_layouts(layout: Layout, fits: Sequence[EngineFit]) -> MergedFits:
    """Return fits with layouts of their own as fits over one that holds the terms of all.

    `layout` is that of a group without rows, whose fit has none of its own.
    """
    fit_layouts = [layout if fit.layout is None else fit.layout for fit in fits]
    union = Layout(layout.n_levels, [terms for each in fit_layouts for terms in each.terms])
    out = []
    for each, fit in zip(fit_layouts, fits, strict=True):
        to = _positions(each, union)
        free = np.zeros(union.size, dtype=bool)
        free[to] = True
        theta = np.zeros(union.size)
        theta[to] = fit.theta
        state = {"free": free}
        state["votes"], state["nodes"] = np.zeros(union.size), np.full((max(union.order, 2), union.size), np.nan)
        if fit.state:
            state["votes"][to] = fit.state["votes"]
            state["nodes"][: len(fit.state["nodes"]), to] = fit.state["nodes"]
        out.append(replace(fit, theta=theta, state=state))
    return MergedFits(union, out)


def _positions(part: Layout, whole: Layout) -> np.ndarray:
    """Return where the parameters of a layout lie in one that has all of its terms."""
    number, out = np.arange(whole.size), np.arange(part.size)
    for terms in part.terms:
        for term in terms.tolist():
            part.table(out, *term)[...] = whole.table(number, *term)
    return out


def log_z_of_chosen(
    fits: Sequence[EngineFit],
    layout: Layout,
    parts: Sequence[Sample],
    engine: Engine,
    log_z: str,
    rngs: Sequence[np.random.Generator],
    workers: int,
) -> tuple[np.ndarray, str, np.ndarray]:
    """Return ln Z of the groups (K,), how it was computed, and its standard errors, each from the group's own terms."""
    kinds = [resolve_log_z(log_z, fit.layout or layout, engine.log_z) for fit in fits]
    kind = next((k for k in kinds if k != "exact"), "exact")  # one for all groups
    value, error = np.zeros(len(fits)), np.zeros(len(fits))
    for k, (fit, group_sample, rng) in enumerate(zip(fits, parts, rngs, strict=True)):
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
