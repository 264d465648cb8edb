"""All states of a small model: their energies, their codes, and the most probable state.

A *state* is a level code for each of m predictors; states are listed with the last predictor
running fastest. Its *energy* is the sum of its fields h and couplings J, which are zero at level 0.
`Tables` hold the couplings of terms of three predictors and more: ``more.terms.members`` (T, k) are
the predictors of each term, ``more.terms.first`` (T,) the start of its table in ``more.values``.
"""

from __future__ import annotations

import numpy as np

from bbl.errors import OptionError
from bbl.model.higher import Tables
from bbl.model.regressors import check_model
from bbl.rows.sample import code_dtype
from bbl.stats.metrics import first_largest

__all__ = ["MAX_STATES", "map_state", "state_codes", "state_energies"]

MAX_STATES = 2**20  # largest number of states that are listed


def state_energies(h, J, n_levels, more: Tables | None = None) -> np.ndarray:
    """Return the energies (prod(n_levels),) of all states.

    Parameters
    ----------
    h, J, n_levels, more
        The model, see `Chains`.

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
            f"{levels.prod(dtype=float):.3g} states are too many to list (at most {MAX_STATES}).",
            argument="n_levels",
            hint="Draw some with gibbs().",
        )
    # tables, padded with (1, 0) by zeros for level 0, are added by broadcasting: axis i of E is
    # predictor i
    E = np.zeros(tuple(levels))
    m = len(levels)
    for i in range(m):
        level_columns = slice(start[i], start[i + 1])
        E += np.pad(h[level_columns], (1, 0)).reshape(-1, *(1,) * (m - 1 - i))
        for j in range(i + 1, m):
            table = np.pad(J[level_columns, start[j] : start[j + 1]], ((1, 0), (1, 0)))
            if table.any():
                E += table.reshape(levels[i], *(1,) * (j - i - 1), levels[j], *(1,) * (m - 1 - j))
    if more is not None:
        for members, table_start in zip(more.terms.members, more.terms.first, strict=True):
            # -1 fills the rows of terms with fewer members than the largest
            scope = members[members >= 0]
            shape = levels[scope] - 1
            table = np.pad(
                more.values[table_start : table_start + shape.prod()].reshape(shape),
                [(1, 0)] * len(scope),
            )
            E += table.reshape([levels[i] if i in scope else 1 for i in range(m)])
    return E.ravel()


def state_codes(index, n_levels) -> np.ndarray:
    """Return the codes (n, m) of the states at positions `index` (n,) in the list of all states."""
    levels = np.asarray(n_levels)
    return np.column_stack(np.unravel_index(index, tuple(levels))).astype(code_dtype(levels))


def map_state(h, J, n_levels) -> tuple[np.ndarray, float]:
    """Return the most probable state (m,) and that energy, by listing all states (at most
    2**20).

    The first of equal states is taken. Arguments and errors as for `state_energies`.

    Examples
    --------
    >>> codes, energy = map_state([0.5, -1.0], [[0.0, 3.0], [3.0, 0.0]], [2, 2])
    >>> codes.tolist(), energy
    ([1, 1], 2.5)
    """
    E = state_energies(h, J, n_levels)
    best = int(first_largest(E))
    return state_codes([best], n_levels)[0], float(E[best])
