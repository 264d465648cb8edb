"""Fits in which only relevant predictors differ between groups: chosen from the rows, fitted alone, put back into all.

m predictors, K groups. *Shared*: the fields of a predictor that was not chosen, equal in all groups; it takes part in
no interaction, so that it cancels in class scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate, Relevance
from bbl.boltzmann.task import Task
from bbl.design.labels import Labels
from bbl.engines import EngineFit
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.model.moments import frequencies, log_ratio, one_hot
from bbl.model.parameters import Parameters
from bbl.rows.sample import Sample
from bbl.stats.relevance import select_predictors

__all__ = ["CHOSEN_BY_ROWS", "SELECTION_ROWS", "choose_relevant", "of_all_predictors", "of_chosen", "selection_rows"]

CHOSEN_BY_ROWS = "Standard errors and tests do not hold for predictors that the same rows have chosen"
SELECTION_ROWS = (2_000, 20_000)  # least and most rows on which predictors are chosen: a systematic sample of more
SELECTION_WORK = 5e9  # rows times columns squared times groups that are looked at, if the rows are not the least
PARAMETERS = 100.0  # of a regression of chosen predictors, for the estimate of its memory
NEGLIGIBLE_COUNT = 1e-9  # prior count of shares that stand for missing values, for predictors that no row knows
SHARED_PRIOR_COUNT = 1.0  # of the shares of levels from which shared fields come


def selection_rows(n: int, layout: Layout, K: int) -> int:
    """Return on how many of n rows predictors are chosen: fewer with many levels and groups."""
    least, most = SELECTION_ROWS
    return min(n, int(np.clip(SELECTION_WORK / max(1.0, float(layout.D) ** 2 * (K - 1)), least, most)))


def choose_relevant(sample: Sample, layout: Layout, K: int, level: float) -> Relevance:
    """Choose predictors by score tests (see `select_predictors`); missing values have the shares of the known ones."""
    n = selection_rows(sample.n, layout, K)
    check_memory(
        8.0 * layout.D * (3.0 * n + PARAMETERS * (K - 1.0) ** 2),
        f"Choosing among predictors with {layout.D} non-reference levels for {K} groups",
        "Leave relevance out, or fit fewer predictors.",
    )
    rows = sample.systematic_sample(n).by_state(layout.n_levels, K)
    columns = one_hot(rows.codes, layout)
    if rows.missing is not None:
        for i, f in enumerate(frequencies(rows.pooled, layout, NEGLIGIBLE_COUNT)):
            columns[rows.missing[:, i], layout.start[i] : layout.start[i + 1]] = f[1:]
    weights = rows.weights if sample.whole else rows.weights * (sample.n / sample.total)
    groups, y = np.unique(rows.response, return_inverse=True)
    if len(groups) < 2:
        return Relevance(level, np.empty(0, dtype=np.intp), np.empty(0))
    selection = select_predictors(columns, layout.start, y, weights, level)
    order = np.argsort(selection.predictors).astype(np.intp)
    return Relevance(level, np.array(selection.predictors, dtype=np.intp)[order], np.array(selection.p_value)[order])


def of_chosen(task: Task, relevance: Relevance) -> Task:
    """Return the task of the chosen predictors alone."""
    sample, chosen = cast(Sample, task.sample), relevance.chosen
    missing = None if sample.missing is None else np.ascontiguousarray(sample.missing[:, chosen])
    if missing is not None and not missing.any():
        missing = None
    rows = replace(sample, codes=np.ascontiguousarray(sample.codes[:, chosen]), missing=missing)
    labels = task.labels
    if labels is not None:
        names, levels = ([values[i] for i in chosen] for values in (labels.names, labels.levels))
        labels = Labels(labels.response, labels.groups, tuple(names), tuple(levels))
    return replace(task, sample=rows, layout=task.layout.only(chosen), labels=labels, relevance=None)


def of_all_predictors(small: Estimate, task: Task, relevance: Relevance) -> Estimate:
    """Return a fit of the chosen predictors as one of all predictors of `task`, the others with shared fields."""
    chosen, layout = relevance.chosen, small.parameters.layout
    n_levels, n_ordered = task.layout.n_levels, task.layout.n_ordered
    union = Layout(n_levels, [chosen[terms] for terms in layout.terms], n_ordered=n_ordered)
    positions = np.concatenate([union.columns(chosen), np.arange(union.D, union.size)])
    others = np.setdiff1d(np.arange(union.m), chosen)
    shared, log_z, log_p = np.zeros(union.size), 0.0, 0.0
    models_predictors = small.log_z_kind != "none"
    if models_predictors:
        sample = cast(Sample, task.sample)
        shares = frequencies(sample.pooled, task.layout, SHARED_PRIOR_COUNT)
        for i in others:
            union.table(shared, int(i))[:] = log_ratio(shares[i])
            log_z -= float(np.log(shares[i][0]))
            log_p += _log_share(sample, int(i), shares[i])

    n_shared = len(union.columns(others)) if models_predictors else 0

    def embedded(theta: np.ndarray) -> np.ndarray:
        out = np.broadcast_to(shared, (*theta.shape[:-1], union.size)).copy()
        out[..., positions] = theta
        return out

    fits = tuple(
        _embedded(fit, embedded(fit.theta), chosen, union.m, extra=n_shared * (y == 0))
        for y, fit in enumerate(small.fits)
    )
    pooled = small.parameters.pooled
    parameters = Parameters(union, embedded(small.parameters.theta), None if pooled is None else embedded(pooled))
    return replace(
        small, parameters=parameters, log_z=small.log_z + log_z, lkh=small.lkh + log_p, fits=fits, relevance=relevance
    )


def _log_share(sample: Sample, i: int, shares: np.ndarray) -> float:
    """Return the log-likelihood of the known values of predictor `i`."""
    weights = sample.weights if sample.missing is None else sample.weights * ~sample.missing[:, i]
    return float(np.bincount(sample.codes[:, i], weights, len(shares)) @ np.log(shares))


def _embedded(fit: EngineFit, theta: np.ndarray, chosen: np.ndarray, m: int, extra: int) -> EngineFit:
    """Return the fit of a group with parameters `theta` of all predictors; `extra` more parameters are determined."""

    def of_all(values: np.ndarray, other: float) -> np.ndarray:
        if not len(values):
            return values
        out = np.full(m, other, dtype=values.dtype)
        out[chosen] = values
        return out

    def at(position: int) -> int:
        return int(chosen[position]) if position >= 0 else position

    unbounded = tuple(tuple(at(value) if k % 2 == 0 else value for k, value in enumerate(one)) for one in fit.unbounded)
    return replace(
        fit,
        theta=theta,
        grad_norm=of_all(fit.grad_norm, 0.0),
        n_iter=of_all(fit.n_iter, 0),
        converged=of_all(fit.converged, 1) if len(fit.converged) else np.ones(m, dtype=bool),
        notes=tuple(note._replace(predictor=at(note.predictor)) for note in fit.notes),
        unbounded=unbounded,
        rank=(len(fit.theta) if fit.rank is None else fit.rank) + extra,
    )
