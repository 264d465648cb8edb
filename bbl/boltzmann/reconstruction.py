"""Reconstruct the values of unknown predictors from the known predictors.

The probability of level a of an unknown predictor i is ``sum_g P(g | known) P(x_i = a | known, g)``
over groups g. K, n, m and D are the numbers of groups, rows, predictors and non-reference levels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bbl.memory import check_memory
from bbl.model.clamped import Clamped, joint_mode, margins
from bbl.model.layout import Layout
from bbl.model.marginal import MarginalEnergy
from bbl.model.moments import one_hot
from bbl.parallel import run_tasks

__all__ = ["reconstruct", "reconstruct_jointly"]


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
    """Return the probability of each non-reference level in each row; 0 or 1 for known predictors.

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
        Number of threads; results do not depend on it.
    progress : callable, optional
        Function called after each set of rows with the same unknown predictors.

    Returns
    -------
    ndarray, shape (n, layout.D)
    """
    # two arrays (n, D) with 8 bytes per entry
    check_memory(
        16.0 * len(codes) * layout.D,
        f"Reconstruction of {len(codes)} rows",
        "Pass fewer rows at a time.",
    )
    out = one_hot(np.where(unknown, 0, codes), layout)
    rows = np.flatnonzero(unknown.any(axis=1))
    # a pattern is a mask (m,) of unknown predictors; rows of a pattern are processed together
    patterns, pattern_of_row = np.unique(unknown[rows], axis=0, return_inverse=True)
    pattern_rows = [
        rows[pattern_of_row.ravel() == pattern_number] for pattern_number in range(len(patterns))
    ]
    fill = _fill_unknown if layout.support is None else _fill_by_energies
    tasks = [
        (
            layout,
            theta,
            posterior[rows_of_pattern],
            codes[rows_of_pattern],
            np.flatnonzero(pattern),
            method,
            stream,
        )
        for rows_of_pattern, pattern, stream in zip(
            pattern_rows, patterns, rng.spawn(len(pattern_rows)), strict=True
        )
    ]
    for rows_of_pattern, pattern, filled in zip(
        pattern_rows, patterns, run_tasks(fill, tasks, workers, progress), strict=True
    ):
        out[np.ix_(rows_of_pattern, layout.columns(np.flatnonzero(pattern)))] = filled
    return out


def reconstruct_jointly(
    layout: Layout,
    theta: np.ndarray,
    posterior: np.ndarray,
    codes: np.ndarray,
    unknown: np.ndarray,
    allowed: list[np.ndarray],
) -> np.ndarray:
    """Fill in the unknown values of rows (n, m) with their jointly most probable levels.

    The probability is maximised jointly over the levels and the group. `allowed` contains a mask
    (L_i,) of the levels that may be used for each predictor. The other arguments are the same as in
    `reconstruct`.
    """
    out = codes.astype(np.intp)
    rows = np.flatnonzero(unknown.any(axis=1))
    patterns, pattern_of_row = np.unique(unknown[rows], axis=0, return_inverse=True)
    for pattern_number, pattern in enumerate(patterns):
        rows_of_pattern = rows[pattern_of_row.ravel() == pattern_number]
        columns = np.flatnonzero(pattern)
        clamped = Clamped(layout, columns)
        best = np.full(len(rows_of_pattern), -np.inf)
        for g, group_theta in enumerate(theta):
            positions = np.flatnonzero(posterior[rows_of_pattern, g] > 0.0)
            if not len(positions):
                continue
            in_group = rows_of_pattern[positions]
            states, log_p = joint_mode(
                clamped.layout,
                clamped.theta(group_theta, codes[in_group]),
                [allowed[i] for i in columns],
            )
            log_p = log_p + np.log(posterior[in_group, g])
            is_better = log_p > best[positions]
            out[np.ix_(in_group[is_better], columns)] = states[is_better]
            best[positions[is_better]] = log_p[is_better]
    return out


def _fill_unknown(
    layout: Layout,
    theta: np.ndarray,
    posterior: np.ndarray,
    codes: np.ndarray,
    unknown: np.ndarray,
    method: str,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the probabilities (n, D') of the D' non-reference levels of the `unknown` predictors.

    These predictors are unknown in all n rows. The other arguments are the same as in
    `reconstruct`, restricted to these rows.
    """
    # the model of the unknown predictors; its parameters depend on the known ones
    clamped = Clamped(layout, unknown)
    out = np.zeros((len(codes), clamped.layout.D))
    for g, group_theta in enumerate(theta):
        rows = np.flatnonzero(posterior[:, g] > 0.0)
        if len(rows):
            # clamped.theta: (rows, size of the smaller model); rows with equal known levels have
            # the same parameters
            distinct_theta, theta_of_row = np.unique(
                clamped.theta(group_theta, codes[rows]), axis=0, return_inverse=True
            )
            level_probabilities = margins(clamped.layout, distinct_theta, method, rng)
            out[rows] += posterior[rows, g, None] * level_probabilities[theta_of_row.ravel()]
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
    """Compute `_fill_unknown` by exact sums for a model with structural zeros.

    `method` and `rng` are not used, but are part of the signature of `_fill_unknown`.
    """
    # energy(codes, unknown) (n, K): log-sum-exp over unknown levels
    energy = MarginalEnergy(layout, theta)
    summed_out = np.zeros(codes.shape, dtype=bool)
    summed_out[:, unknown] = True
    columns = []
    for i in unknown:
        summed_out[:, i] = False
        filled_codes = codes.copy()
        level_energies = []
        for level in range(layout.n_levels[i]):
            filled_codes[:, i] = level
            level_energies.append(energy(filled_codes, summed_out))
        summed_out[:, i] = True
        log_p = np.stack(level_energies)  # (levels, n, K)
        largest = log_p.max(axis=0)
        # P(level | known, g) up to a factor; the maximum is subtracted to prevent overflow, or 0 if
        # all levels are impossible
        p = np.exp(log_p - np.where(np.isneginf(largest), 0.0, largest))
        # 0 if a row cannot occur in a group; its `posterior` is then also 0
        total_p = p.sum(axis=0)
        p /= np.where(total_p > 0.0, total_p, 1.0)
        columns.append((p[1:] * posterior).sum(axis=2).T)  # (n, L_i - 1), averaged over groups
    return np.concatenate(columns, axis=1)
