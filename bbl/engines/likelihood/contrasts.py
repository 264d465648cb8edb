"""Convert the energies of the cells of a table to the parameters of its terms."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from bbl.model.layout import Layout

__all__ = ["add_parameters"]


def add_parameters(
    layout: Layout, theta: np.ndarray, scope: tuple[int, ...], energy: np.ndarray
) -> bool:
    """Add the parameters that reproduce a table's energies, up to a constant, to `theta` in place.

    A parameter is an alternating sum of energies, i.e. the result of taking differences from the
    reference level (code 0) along each axis.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
    scope : tuple of int
        The predictor on each axis of the table, in any order.
    energy : ndarray, shape (L_i, L_j, ...)
        Energy of each cell of the table.

    Returns
    -------
    bool
        Whether the model contains all terms that are needed. If False, only some entries of `theta`
        have been changed.
    """
    energy = energy.copy()
    for axis in range(len(scope)):  # keep level 0, replace other levels by differences from it
        by_level = energy.swapaxes(0, axis)  # a view
        by_level[1:] -= by_level[:1]
    for order in range(1, len(scope) + 1):
        for axes in combinations(range(len(scope)), order):
            table = energy[
                tuple(slice(1, None) if axis in axes else 0 for axis in range(len(scope)))
            ]
            members = [scope[axis] for axis in axes]
            if order == 1 or layout.index(*members) >= 0:  # -1: the term is not in the model
                # a view of the table in theta, with axes in the order of members
                layout.table(theta, *members)[...] += table
            elif table.any():
                return False
    return True
