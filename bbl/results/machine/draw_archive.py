"""Pack posterior draws into the arrays of a model file, and unpack them.

``draws`` (n_runs, chains, draws, size): of each engine run, one for each of K groups and one for all rows pooled.
``draws_log_z`` (K, T): ln Z of the T draws of each group that predictions average over.
``draws_hidden`` (K, T, size with hidden units): these draws, in models with hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.boltzmann.predictive import Predictive, thinned
from bbl.engines import EngineFit
from bbl.model.layout import Layout
from bbl.results.array_table import ArraySpec

__all__ = ["draw_specs", "pack_draws", "unpack_draws", "unpack_predictive"]


def pack_draws(runs: Sequence[EngineFit], predictive: Predictive | None) -> dict[str, np.ndarray]:
    """Return the arrays by name, draws of a group without rows as nan; empty if no run has draws."""
    run_draws = [run.draws for run in runs if run.draws is not None]
    if not run_draws:
        return {}
    no_draws = np.full_like(run_draws[0], np.nan)
    arrays = {"draws": np.array([no_draws if run.draws is None else run.draws for run in runs])}
    if predictive is not None:
        arrays["draws_log_z"] = predictive.log_z
        if predictive.hidden:
            arrays["draws_hidden"] = predictive.theta
    return arrays


def draw_specs(
    layout: Layout, hidden_layout: Layout, K: int, n_runs: int, arrays: dict[str, np.ndarray]
) -> dict[str, ArraySpec]:
    """Return the expected dtype and shape of the arrays by name; `hidden_layout` has any hidden units in addition."""
    if "draws" not in arrays:
        return {}
    chains, n_draws = (*arrays["draws"].shape, 0, 0, 0)[1:3]  # zeros: an array of a file may lack axes
    T = (*arrays.get("draws_log_z", np.zeros(0)).shape, 0, 0)[1]
    if min(chains, n_draws) < 1 or chains * n_draws < T:
        raise ValueError("'draws' is not as saved")
    if (hidden_layout.m > layout.m) != ("draws_hidden" in arrays):
        raise ValueError("'draws_hidden' is not as saved")
    return {
        "draws": ArraySpec("f", (n_runs, chains, n_draws, layout.size)),
        "draws_log_z": ArraySpec("f", (K, T), required=False),
        "draws_hidden": ArraySpec("f", (K, T, hidden_layout.size), required=False),
    }


def unpack_draws(arrays: dict[str, np.ndarray], n_runs: int) -> list[np.ndarray | None]:
    """Return the draws (chains, draws, size) of each run, None for a run without draws."""
    if "draws" not in arrays:
        return [None] * n_runs
    return [None if np.isnan(draws).any() else draws for draws in arrays["draws"]]


def unpack_predictive(layout: Layout, hidden_layout: Layout, arrays: dict[str, np.ndarray]) -> Predictive | None:
    """Return the T draws of each group with their ln Z, or None; without hidden units thinned from ``draws``."""
    if "draws_log_z" not in arrays:
        return None
    log_z = arrays["draws_log_z"]
    K, T = log_z.shape
    if "draws_hidden" in arrays:
        if not np.isfinite(log_z).all() or not np.isfinite(arrays["draws_hidden"]).all():
            raise ValueError("'draws_hidden' holds what cannot have been saved")
        return Predictive(hidden_layout, arrays["draws_hidden"], log_z, hidden_layout.m - layout.m)
    group_draws = unpack_draws(arrays, K)[:K]
    theta = [np.zeros((T, layout.size)) if draws is None else thinned(draws, T) for draws in group_draws]  # no rows: 0
    if not np.isfinite(log_z).all() or any(len(draws) != T for draws in theta):
        raise ValueError("'draws_log_z' holds what cannot have been saved")
    return Predictive(layout, np.array(theta), log_z)
