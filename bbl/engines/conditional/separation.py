"""Which groups lose their probability in which rows at the maximum of the likelihood P(group | row).

A *cell* is a distinct row with a group. The likelihood has a finite maximum if and only if no coefficients separate the
groups: none score the observed groups of every row equally and highest (Albert & Anderson 1984, Biometrika 71). If some
do, the likelihood rises along them without end, and the groups with lower scores lose their probability.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.engines.likelihood.existence import recede, step_down
from bbl.model.layout import Layout

__all__ = ["MAX_CELLS", "Separation", "separated_cells", "zero_margins"]

MAX_CELLS = 2**22  # cells times columns of the design; larger tables have only their zero margins found


class Separation(NamedTuple):
    """The cells that keep a probability.

    Attributes
    ----------
    support : ndarray of bool, shape (n, k)
    direction : ndarray, shape (k, p)
        Coefficients along which the scores of the other cells fall by about 1 or more below those of the row's observed
        groups, which stay equal.
    """

    support: np.ndarray
    direction: np.ndarray


def zero_margins(codes: np.ndarray, counts: np.ndarray, layout: Layout) -> Separation:
    """Return the cells of combinations of levels, of the terms of a model, that never occur in a group.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
        Distinct rows.
    counts : ndarray, shape (n, k)
        Their weight in each group.
    layout : Layout
    """
    k = counts.shape[1]
    support, direction = np.ones(counts.shape, dtype=bool), np.zeros((k, 1 + layout.size))
    for scope in layout.scopes:
        shape = tuple(int(L) for L in layout.n_levels[list(scope)])
        level = np.ravel_multi_index(tuple(codes[:, scope].T.astype(np.intp)), shape)
        size = int(np.prod(shape))
        occurs = np.bincount(level, minlength=size) > 0
        for g in range(k):
            empty = occurs & (np.bincount(level, counts[:, g], size) == 0.0)
            step = step_down(layout, scope, empty.reshape(shape))
            if step is not None:
                support[:, g] &= ~empty[level]
                # step_down leaves out the constant: the energy at the reference levels of all predictors
                direction[g] += np.append(-float(empty[0]), step)
    return Separation(support, direction)


def separated_cells(Z: np.ndarray, counts: np.ndarray) -> Separation | None:
    """Return the cells that keep a probability, by a linear programme; None if that finds no solution.

    The programme is that of `bbl.engines.likelihood.existence`, with a constant for each row.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design, of linearly independent columns.
    counts : ndarray, shape (n, k)
    """
    from scipy import sparse

    (n, k), p = counts.shape, Z.shape[1]
    support, direction = np.ones((n, k), dtype=bool), np.zeros((k, p))
    first = counts.argmax(axis=1)  # an observed group of each row
    is_other = np.arange(k) != first[:, None]
    observed, empty = (np.argwhere(is_other & occurs) for occurs in (counts > 0.0, counts == 0.0))
    if not len(empty):
        return Separation(support, direction)
    rows = sparse.csr_matrix(Z)

    def change(cells: np.ndarray):
        """Return the score of each cell less that of the row's first group, by direction: (cells, (k - 1) p)."""
        at, group = cells.T
        blocks = [
            sparse.diags((group == g).astype(float) - (first[at] == g)) @ rows[at] if len(at) else rows[:0]
            for g in range(1, k)
        ]
        return sparse.hstack(blocks, format="csr")

    recession = recede(change(observed), change(empty))
    if recession is None:
        return None
    off, step = recession
    support[tuple(empty[off].T)] = False
    direction[1:] = step.reshape(k - 1, p) if off.any() else 0.0
    return Separation(support, direction)
