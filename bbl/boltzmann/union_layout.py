"""Merge the layouts of groups with different selected terms into one layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bbl.engines import Engine, EngineFit
from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.layout import Layout
from bbl.model.logz import (
    AUTO_CELLS,
    AUTO_CELLS_OF_DRAWS,
    approximate_log_z,
    exact_log_z,
    resolve_log_z,
)
from bbl.rows.sample import Sample

__all__ = ["MergedFits", "compute_log_z", "merge_layouts"]


class MergedFits(NamedTuple):
    """A layout with the terms of all groups, and the fits of the groups in this layout.

    Attributes
    ----------
    layout : Layout
    fits : list of EngineFit
        The fit of each group, with `theta` (layout.size,).

    Notes
    -----
    If a term is not selected in a group, its parameters are zero, and their entries in
    ``state["free"]`` (size,) are False. ``state["votes"]`` (size,) is the number of predictors with
    a regression that contains the parameter's term. ``state["nodes"]`` (order, size) contains the
    estimate of each parameter from the regression of the first, second, ... predictor in its term,
    or nan.
    """

    layout: Layout
    fits: list[EngineFit]


def merge_layouts(layout: Layout, fits: Sequence[EngineFit]) -> MergedFits:
    """Convert fits with different layouts to one layout.

    Fits without their own layout use `layout`.
    """
    fit_layouts = [layout if fit.layout is None else fit.layout for fit in fits]
    union_layout = Layout(
        layout.n_levels, [terms for fit_layout in fit_layouts for terms in fit_layout.terms]
    )
    merged_fits = []
    for fit_layout, fit in zip(fit_layouts, fits, strict=True):
        positions = _positions(fit_layout, union_layout)
        is_free = np.zeros(union_layout.size, dtype=bool)
        is_free[positions] = True
        theta = np.zeros(union_layout.size)
        theta[positions] = fit.theta
        state = {"free": is_free}
        state["votes"], state["nodes"] = (
            np.zeros(union_layout.size),
            # at least 2, like "nodes" of fits without terms
            np.full((max(union_layout.order, 2), union_layout.size), np.nan),
        )
        if fit.state:  # empty for a group without rows
            state["votes"][positions] = fit.state["votes"]
            state["nodes"][: len(fit.state["nodes"]), positions] = fit.state["nodes"]
        merged_fits.append(replace(fit, theta=theta, state=state))
    return MergedFits(union_layout, merged_fits)


def _positions(fit_layout: Layout, union_layout: Layout) -> np.ndarray:
    """Return the positions (fit_layout.size,) of parameters in `union_layout`."""
    # fields have the same positions in both layouts
    union_positions = np.arange(union_layout.size)
    out = np.arange(fit_layout.size)
    for terms in fit_layout.terms:
        for term in terms.tolist():
            fit_layout.table(out, *term)[...] = union_layout.table(union_positions, *term)
    return out


def compute_log_z(
    fits: Sequence[EngineFit],
    layout: Layout,
    group_samples: Sequence[Sample],
    engine: Engine,
    log_z: str,
    rngs: Sequence[np.random.Generator],
    workers: int,
) -> tuple[np.ndarray, str, np.ndarray]:
    """Return ln Z (K,) for groups with different terms, its kind, and standard errors (K,).

    ln Z is computed in the same way for all groups, and is exact only if exact computation is
    possible for each of them. Standard errors are 0 unless ln Z was estimated by annealing. Fits
    without their own layout use `layout`. Groups without rows have ln Z = 0 unless ln Z is exact.
    `log_z` is the same as in `bbl.bbl`.
    """
    max_cells = AUTO_CELLS_OF_DRAWS if engine.samples else AUTO_CELLS
    kinds = [resolve_log_z(log_z, fit.layout or layout, engine.log_z, max_cells) for fit in fits]
    # only the exact kind can be unavailable for some groups
    kind = next((kind_of_fit for kind_of_fit in kinds if kind_of_fit != "exact"), "exact")
    log_z_values = np.zeros(len(fits))
    standard_error = np.zeros(len(fits))
    for g, (fit, group_sample, rng) in enumerate(zip(fits, group_samples, rngs, strict=True)):
        fit_layout = fit.layout or layout
        if kind == "exact":
            log_z_values[g] = exact_log_z(fit_layout, fit.theta[None])[0]
        elif group_sample.n:
            rows = engine.prepare(group_sample.collapsed(fit_layout.n_levels), fit_layout)
            if kind == "ais":
                sampled = annealed_log_z(
                    fit_layout,
                    fit.theta,
                    annealing_start(rows, fit_layout),
                    rng=rng,
                    n_jobs=workers,
                )
                log_z_values[g] = sampled.log_z
                standard_error[g] = sampled.standard_error
            else:
                log_z_values[g] = approximate_log_z(kind, rows, fit_layout, fit.theta)
    return log_z_values, kind, standard_error
