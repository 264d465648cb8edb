"""Enumeration of all states of a small model: energies, codes, and the most probable state.

States are listed in lexicographic order, with the last predictor varying fastest.
"""

from __future__ import annotations

import numpy as np

from bbl.errors import OptionError
from bbl.model.higher import Tables
from bbl.model.regressors import check_model
from bbl.rows.sample import code_dtype
from bbl.stats.metrics import first_largest

__all__ = ["MAX_STATES", "map_state", "state_codes", "state_energies"]

MAX_STATES = 2**20  # maximum number of states to list


def state_energies(h, J, n_levels, more: Tables | None = None) -> np.ndarray:
    """Return the energies (prod(n_levels),) of all states.

    Parameters
    ----------
    h, J, n_levels, more
        The model (see `Chains`).

    Raises
    ------
    OptionError
        If there are more than 2**20 states.

    Examples
    --------
    >>> state_energies([0.5, -1.0], [[0.0, 3.0], [3.0, 0.0]], [2, 2])
    array([ 0. , -1. ,  0.5,  2.5])
    """
    h, J, levels, start = check_model(h, J, n_levels)
    if levels.prod(dtype=float) > MAX_STATES:
        raise OptionError(
            f"{levels.prod(dtype=float):.3g} states are too many to list. The limit is "
            f"{MAX_STATES}.",
            argument="n_levels",
            hint="Draw some with gibbs().",
        )
    # tables, padded with a leading row and column of zeros for level 0, are added by broadcasting:
    # axis i of E is predictor i (assignment is many times faster than np.pad)
    E = np.zeros(tuple(levels))
    m = len(levels)
    for i in range(m):
        level_columns = slice(start[i], start[i + 1])
        field = np.zeros(levels[i])
        field[1:] = h[level_columns]
        E += field.reshape(-1, *(1,) * (m - 1 - i))
        for j in range(i + 1, m):
            coupling = J[level_columns, start[j] : start[j + 1]]
            if coupling.any():
                table = np.zeros((levels[i], levels[j]))
                table[1:, 1:] = coupling
                E += table.reshape(levels[i], *(1,) * (j - i - 1), levels[j], *(1,) * (m - 1 - j))
    if more is not None:
        for members, table_start in zip(more.terms.members, more.terms.first, strict=True):
            # terms of lower than the maximum order are padded with -1
            scope = members[members >= 0]
            shape = levels[scope] - 1
            table = np.pad(
                more.values[table_start : table_start + shape.prod()].reshape(shape),
                [(1, 0)] * len(scope),
            )
            E += table.reshape([levels[i] if i in scope else 1 for i in range(m)])
    return E.ravel()


def state_codes(index, n_levels) -> np.ndarray:
    """Return the codes (n, m) of the states with positions `index` (n,) in lexicographic order."""
    levels = np.asarray(n_levels)
    if not len(levels):
        return np.zeros((len(index), 0), dtype=np.uint8)
    return np.column_stack(np.unravel_index(index, tuple(levels))).astype(code_dtype(levels))


def map_state(h, J, n_levels) -> tuple[np.ndarray, float]:
    """Return the most probable state (m,) and its energy by enumerating all states.

    In case of ties, the first state is returned. See `state_energies` for the arguments and errors.

    Examples
    --------
    >>> codes, energy = map_state([0.5, -1.0], [[0.0, 3.0], [3.0, 0.0]], [2, 2])
    >>> codes.tolist(), energy
    ([1, 1], 2.5)
    """
    E = state_energies(h, J, n_levels)
    best = int(first_largest(E))
    return state_codes([best], n_levels)[0], float(E[best])
