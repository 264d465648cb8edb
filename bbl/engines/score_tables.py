"""Convert tables of class scores for one or two predictors to fields and couplings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.model.layout import Layout

__all__ = ["add_table"]


def add_table(
    layout: Layout,
    theta: np.ndarray,
    constant: np.ndarray,
    predictors: Sequence[int],
    table: np.ndarray,
    used: np.ndarray,
) -> None:
    """Add a table of class scores to the constants (K,) and parameters `theta` (K, size).

    The affected parameters are marked in `used` (size,). The `table` T (K, L_i, ...) contains
    scores for the levels of at most two `predictors`. For each group, ``T[a, b] = constant + h[a] +
    h'[b] + J[a, b]``, where the parameters of reference level 0 are zero. The constant is therefore
    ``T[0, 0]``, ``h[a] = T[a, 0] - T[0, 0]``, and ``J[a, b] = T[a, b] - T[a, 0] - T[0, b] + T[0,
    0]``.
    """
    constant += table.reshape(len(constant), -1)[:, 0]
    for axis, i in enumerate(predictors, 1):
        # with two predictors, at level 0 of the other one
        fields = table if len(predictors) == 1 else table.take(0, axis=3 - axis)
        layout.table(theta, i)[...] += fields[:, 1:] - fields[:, :1]
        layout.table(used, i)[...] = True
    if len(predictors) == 2:
        couplings = table[:, 1:, 1:] - table[:, 1:, :1] - table[:, :1, 1:] + table[:, :1, :1]
        layout.table(theta, *predictors)[...] += couplings
        layout.table(used, *predictors)[...] = True
