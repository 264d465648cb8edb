"""Draws of a fit as what the model file holds, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.boltzmann.predictive import Predictive, thinned
from bbl.engines import EngineFit
from bbl.model.layout import Layout
from bbl.results.array_table import ArraySpec

__all__ = ["draw_table", "pack_draws", "unpack_draws", "unpack_predictive"]


def pack_draws(fits: Sequence[EngineFit], predictive: Predictive | None) -> dict[str, np.ndarray]:
    """Return the draws of all fits as one array, nan for a group without rows, and ln Z of those that predict."""
    drawn = [fit.draws for fit in fits if fit.draws is not None]
    if not drawn:
        return {}
    nothing = np.full_like(drawn[0], np.nan)
    arrays = {"draws": np.array([nothing if fit.draws is None else fit.draws for fit in fits])}
    if predictive is not None:
        arrays["draws_log_z"] = predictive.log_z
        if predictive.hidden:
            arrays["draws_hidden"] = predictive.theta
    return arrays


def draw_table(layout: Layout, wide: Layout, K: int, fits: int, arrays: dict[str, np.ndarray]) -> dict[str, ArraySpec]:
    """Return the table of the arrays of `pack_draws`; `wide` is the layout with hidden variables."""
    if "draws" not in arrays:
        return {}
    chains, n = (*arrays["draws"].shape, 0, 0, 0)[1:3]
    count = (*arrays.get("draws_log_z", np.zeros(0)).shape, 0, 0)[1]
    if min(chains, n) < 1 or count > chains * n:
        raise ValueError("'draws' is not as saved")
    if (wide.m > layout.m) != ("draws_hidden" in arrays):
        raise ValueError("'draws_hidden' is not as saved")
    return {
        "draws": ArraySpec("f", (fits, chains, n, layout.size)),
        "draws_log_z": ArraySpec("f", (K, count), required=False),
        "draws_hidden": ArraySpec("f", (K, count, wide.size), required=False),
    }


def unpack_draws(arrays: dict[str, np.ndarray], fits: int) -> list[np.ndarray | None]:
    """Return the draws of each fit."""
    if "draws" not in arrays:
        return [None] * fits
    return [None if np.isnan(draws).any() else draws for draws in arrays["draws"]]


def unpack_predictive(
    layout: Layout, wide: Layout, theta: np.ndarray, arrays: dict[str, np.ndarray]
) -> Predictive | None:
    """Return what predictions average over."""
    if "draws_log_z" not in arrays:
        return None
    log_z = arrays["draws_log_z"]
    if "draws_hidden" in arrays:
        if not np.isfinite(log_z).all() or not np.isfinite(arrays["draws_hidden"]).all():
            raise ValueError("'draws_hidden' holds what cannot have been saved")
        return Predictive(wide, arrays["draws_hidden"], log_z, wide.m - layout.m)
    groups = zip(theta, unpack_draws(arrays, len(theta)), strict=False)
    drawn = [np.zeros((log_z.shape[1], len(t))) if d is None else thinned(d, log_z.shape[1]) for t, d in groups]
    if not np.isfinite(log_z).all() or len({len(d) for d in drawn} | {log_z.shape[1]}) > 1:
        raise ValueError("'draws_log_z' holds what cannot have been saved")
    return Predictive(layout, np.array(drawn), log_z)
