"""Reconstruction: unknown predictors of rows filled with their probabilities given the known ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bbl.memory import check_memory
from bbl.model.clamped import Clamped, margins
from bbl.model.layout import Layout
from bbl.model.marginal import MarginalEnergy
from bbl.model.moments import one_hot
from bbl.parallel import run_tasks

__all__ = ["reconstruct"]


def reconstruct(
    layout: Layout,
    theta: np.ndarray,
    posterior: np.ndarray,
    codes: np.ndarray,
    unknown: np.ndarray,
    method: str,
    rng: np.random.Generator,
    workers: int = 1,
    progress: Callable | None = None,
) -> np.ndarray:
    """Return the probability of every non-reference level of rows; 1 or 0 for known predictors.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
    posterior : ndarray, shape (n, K)
        Probability of each group given the known predictors of a row.
    codes : ndarray, shape (n, m)
    unknown : ndarray of bool, shape (n, m)
    method : {"auto", "exact", "gibbs", "mf"}
        See `bbl.model.clamped.margins`.
    rng : numpy.random.Generator
    workers : int, default 1
        Threads; results do not depend on it.

    Returns
    -------
    ndarray, shape (n, layout.D)
    """
    check_memory(16.0 * len(codes) * layout.D, f"Reconstruction of {len(codes)} rows", "Give fewer rows at a time.")
    out = one_hot(np.where(unknown, 0, codes), layout)
    rows = np.flatnonzero(unknown.any(axis=1))
    patterns, pattern_of_row = np.unique(unknown[rows], axis=0, return_inverse=True)
    parts = [rows[pattern_of_row.ravel() == p] for p in range(len(patterns))]
    fill = _fill if layout.support is None else _fill_by_energies
    tasks = [
        (layout, theta, posterior[pattern_rows], codes[pattern_rows], np.flatnonzero(pattern), method, stream)
        for pattern_rows, pattern, stream in zip(parts, patterns, rng.spawn(len(parts)), strict=True)
    ]
    for pattern_rows, pattern, filled in zip(parts, patterns, run_tasks(fill, tasks, workers, progress), strict=True):
        out[np.ix_(pattern_rows, layout.columns(np.flatnonzero(pattern)))] = filled
    return out


def _fill(
    layout: Layout,
    theta: np.ndarray,
    posterior: np.ndarray,
    codes: np.ndarray,
    unknown: np.ndarray,
    method: str,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the probability of each non-reference level of the `unknown` predictors, the same ones in all rows."""
    clamped = Clamped(layout, unknown)
    out = np.zeros((len(codes), clamped.layout.D))
    for k, group_theta in enumerate(theta):
        rows = np.flatnonzero(posterior[:, k] > 0.0)
        if len(rows):
            models, model_of_row = np.unique(clamped.theta(group_theta, codes[rows]), axis=0, return_inverse=True)
            filled = margins(clamped.layout, models, method, rng)
            out[rows] += posterior[rows, k, None] * filled[model_of_row.ravel()]
    return out


def _fill_by_energies(
    layout: Layout,
    theta: np.ndarray,
    posterior: np.ndarray,
    codes: np.ndarray,
    unknown: np.ndarray,
    method: str,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return what `_fill` does for a model with structural zeros: exactly, from the energies of all levels."""
    energy = MarginalEnergy(layout, theta)
    others = np.zeros(codes.shape, dtype=bool)
    others[:, unknown] = True
    out = []
    for i in unknown:
        others[:, i] = False
        rows, by_level = codes.copy(), []
        for level in range(layout.n_levels[i]):
            rows[:, i] = level
            by_level.append(energy(rows, others))
        others[:, i] = True
        log_p = np.stack(by_level)  # (levels, n, K)
        largest = log_p.max(axis=0)
        p = np.exp(log_p - np.where(np.isneginf(largest), 0.0, largest))
        total = p.sum(axis=0)  # 0 where a row cannot occur in a group, which then has no share in `posterior`
        p /= np.where(total > 0.0, total, 1.0)
        out.append((p[1:] * posterior).sum(axis=2).T)
    return np.concatenate(out, axis=1)
