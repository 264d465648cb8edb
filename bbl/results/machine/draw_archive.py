"""Pack posterior draws into the arrays of a model file, and unpack them.

``draws`` (n_runs, chains, draws, size): draws of the `size` parameters in each engine run (one per
group, and one for the pooled fit if there is one). ``draws_log_z`` (K, T): ln Z of the T draws of
each group that predictions are averaged over. ``draws_hidden`` (K, T, size with hidden units): the
same T draws with hidden units, if the model has any.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.boltzmann.fitted import Predictive, thinned
from bbl.engines import EngineFit
from bbl.model.layout import Layout

__all__ = ["pack_draws", "unpack_draws", "unpack_predictive"]


def pack_draws(runs: Sequence[EngineFit], predictive: Predictive | None) -> dict[str, np.ndarray]:
    """Return the arrays of draws by name, with nan for groups without rows, or an empty dict if the
    fit has no draws.
    """
    run_draws = [run.draws for run in runs if run.draws is not None]
    if not run_draws:
        return {}
    no_draws = np.full_like(run_draws[0], np.nan)
    arrays = {"draws": np.array([no_draws if run.draws is None else run.draws for run in runs])}
    if predictive is not None:
        arrays["draws_log_z"] = predictive.log_z
        # number of hidden units; without any, the draws are thinned again from "draws"
        if predictive.hidden:
            arrays["draws_hidden"] = predictive.theta
    return arrays


def unpack_draws(arrays: dict[str, np.ndarray], n_runs: int) -> list[np.ndarray | None]:
    """Return the draws (chains, draws, size) of each of `n_runs` runs, or None for runs without
    draws.

    Raises a ValueError if the number of chains or draws is zero.
    """
    if "draws" not in arrays:
        return [None] * n_runs
    if 0 in arrays["draws"].shape[1:3]:
        raise ValueError("'draws' is malformed")
    return [None if np.isnan(draws).any() else draws for draws in arrays["draws"]]


def unpack_predictive(
    layout: Layout, hidden_layout: Layout, arrays: dict[str, np.ndarray]
) -> Predictive | None:
    """Return the T draws of each group with their ln Z, or None if the file does not contain draws.

    `layout` contains the predictors, and `hidden_layout` also contains any hidden units. The T
    draws are stored with hidden units; otherwise, they are obtained by thinning ``draws``. The
    parameters of a group without rows are 0. Raises a ValueError for inconsistent arrays.
    """
    n_hidden = hidden_layout.m - layout.m
    # a model with draws has "draws_hidden" if and only if it has hidden units
    if "draws" in arrays and (n_hidden > 0) != ("draws_hidden" in arrays):
        raise ValueError("'draws_hidden' is malformed")
    if "draws_log_z" not in arrays:
        return None
    log_z = arrays["draws_log_z"]
    K = len(log_z)
    T = log_z.shape[1]
    # a group's T draws are a subset of its draws in all chains
    if "draws" not in arrays or np.prod(arrays["draws"].shape[1:3]) < T:
        raise ValueError("'draws_log_z' is malformed")
    if n_hidden:
        return Predictive(hidden_layout, arrays["draws_hidden"], log_z, n_hidden)
    group_draws = unpack_draws(arrays, K)[:K]  # without the pooled run
    # (T, size) of each group: T draws, evenly spaced in the chains
    theta = [
        np.zeros((T, layout.size)) if draws is None else thinned(draws, T) for draws in group_draws
    ]
    if any(len(draws) != T for draws in theta):
        raise ValueError("'draws_log_z' contains invalid values")
    return Predictive(layout, np.array(theta), log_z)
