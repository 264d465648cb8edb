"""Iterative proportional fitting of many graphical models of one table at once."""

from __future__ import annotations

import numpy as np

__all__ = ["fit_cliques"]

TOLERANCE = 1e-9  # largest difference of fitted and observed shares; the likelihood is off by its square
MAX_SWEEPS = 400
SWEEPS_AT_ONCE = 8  # after which models that have converged are set aside
CELLS_AT_ONCE = 2**21  # cells of the models that are fitted together


def fit_cliques(counts: np.ndarray, models: list[list[tuple[int, ...]]]) -> np.ndarray:
    """Return the largest log-likelihood of log-linear models of a table; nan where they have not converged.

    Parameters
    ----------
    counts : ndarray, shape (L_1, .., L_m)
    models : list of lists of tuples of int
        The largest terms of each model: axes of the table, whose margins are fitted.

    Returns
    -------
    ndarray, shape (len(models),)
        ``sum n ln p`` with the fitted probabilities p.
    """
    step = max(1, CELLS_AT_ONCE // counts.size)
    chunks = [_fit_chunk(counts, models[first : first + step]) for first in range(0, len(models), step)]
    return np.concatenate([*chunks, np.empty(0)])


def _fit_chunk(counts: np.ndarray, models: list[list[tuple[int, ...]]]) -> np.ndarray:
    total, out = counts.sum(), np.full(len(models), np.nan)
    shares = counts / total
    start = np.ones(counts.shape)
    for axis in range(counts.ndim):
        margin = shares.sum(axis=tuple(i for i in range(counts.ndim) if i != axis), keepdims=True)
        start = start * margin
    is_filled = counts > 0.0
    p = np.repeat(start[..., None], len(models), axis=-1)  # the models are the last axis, along which loops are fast
    waiting = np.arange(len(models))
    for _ in range(0, MAX_SWEEPS, SWEEPS_AT_ONCE):
        by_clique = _by_clique([models[k] for k in waiting])
        for _ in range(SWEEPS_AT_ONCE):
            error = _sweep(p, shares, by_clique)
        converged = error < TOLERANCE
        logs = np.log(np.ascontiguousarray(p[is_filled][:, converged].T))
        out[waiting[converged]] = (logs * counts[is_filled]).sum(axis=1)  # the same bits for any number of models
        waiting, p = waiting[~converged], np.ascontiguousarray(p[..., ~converged])
        if not len(waiting):
            break
    return out


def _by_clique(models: list[list[tuple[int, ...]]]) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Return each margin that a model fits, with the positions of the models that fit it."""
    positions: dict[tuple[int, ...], list[int]] = {}
    for k, cliques in enumerate(models):
        for clique in cliques:
            positions.setdefault(clique, []).append(k)
    # A lone model stands twice: numpy adds the cells of a single column in another order, with other last bits.
    return [(clique, np.array(numbers * 2 if len(numbers) == 1 else numbers)) for clique, numbers in positions.items()]


def _sweep(p: np.ndarray, shares: np.ndarray, by_clique: list[tuple[tuple[int, ...], np.ndarray]]) -> np.ndarray:
    """Scale the probabilities (.., B) of models to each of their margins, in place; return the largest errors (B,)."""
    error = np.zeros(p.shape[-1])
    for clique, numbers in by_clique:
        others = tuple(axis for axis in range(shares.ndim) if axis not in clique)
        target = shares.sum(axis=others, keepdims=True)[..., None]
        part = np.take(p, numbers, axis=-1)  # contiguous, unlike p[..., numbers]
        margin = part.sum(axis=others, keepdims=True)
        difference = np.abs(margin - target).max(axis=tuple(range(shares.ndim)))
        error[numbers] = np.maximum(error[numbers], difference)
        part *= np.divide(target, margin, out=np.zeros_like(margin), where=margin > 0.0)
        p[..., numbers] = part
    return error
