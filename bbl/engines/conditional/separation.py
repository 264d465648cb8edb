"""Which groups lose their probability in which rows at the maximum of the likelihood P(group | row).

A *cell* is a distinct row with a group. The likelihood has a finite maximum if and only if no coefficients separate the
groups: that is, if those that give the observed groups of every row the same score, and no group a higher one, give the
same score to all groups of each row (Albert & Anderson 1984, Biometrika 71). Along others the likelihood rises without
end, and the groups with lower scores lose their probability.

Letters: n distinct rows, k groups that have rows, p columns of the design.
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
        Whether each cell keeps a probability.
    direction : ndarray, shape (k, p)
        Coefficients of each group along which the scores of the other cells fall by about 1 or more below those of the
        row's observed groups, which stay equal.
    """

    support: np.ndarray
    direction: np.ndarray


def zero_margins(codes: np.ndarray, counts: np.ndarray, layout: Layout) -> Separation:
    """Return the separation by margins of zero alone: a group loses rows with a combination of levels it never has.

    The combinations are those of the predictors of each term of the model. Cells that only several terms together
    separate are not found.

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
        combination = np.ravel_multi_index(tuple(codes[:, scope].T.astype(np.intp)), shape)  # of each row, (n,)
        n_combinations = int(np.prod(shape))
        occurs = np.bincount(combination, minlength=n_combinations) > 0
        for g in range(k):
            is_empty = occurs & (np.bincount(combination, counts[:, g], n_combinations) == 0.0)
            step = step_down(layout, scope, is_empty.reshape(shape))
            if step is not None:
                support[:, g] &= ~is_empty[combination]
                # the score -1 in empty combinations: step_down leaves out the intercept, which is the score of
                # combination 0, that of the reference levels
                direction[g] += np.append(-float(is_empty[0]), step)
    return Separation(support, direction)


def separated_cells(Z: np.ndarray, counts: np.ndarray) -> Separation | None:
    """Return the complete separation, by a linear programme; None if that finds no solution.

    The programme is that of `bbl.engines.likelihood.existence`: among coefficients by which all observed groups of a
    row have the same score and no group a higher one, it seeks those by which most other cells have a lower one.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design, of linearly independent columns.
    counts : ndarray, shape (n, k)
        Weight of each row in each group.
    """
    from scipy import sparse

    (n, k), p = counts.shape, Z.shape[1]
    support, direction = np.ones((n, k), dtype=bool), np.zeros((k, p))
    observed_group = counts.argmax(axis=1)  # the most frequent group of each row
    is_other = np.arange(k) != observed_group[:, None]
    # other cells, as (row, group): what has a weight must stay equal, what has none may fall
    observed, empty = (np.argwhere(is_other & occurs) for occurs in (counts > 0.0, counts == 0.0))
    if not len(empty):
        return Separation(support, direction)
    design = sparse.csr_matrix(Z)

    def score_differences(cells: np.ndarray):
        """Return the matrix (cells, (k - 1) p) from coefficients to differences of scores.

        They are the score of each cell (row, group) less that of the row's `observed_group`. The coefficients are those
        of groups 1, 2, ...; those of group 0 are zero.
        """
        row, group = cells.T
        blocks = [
            sparse.diags((group == g).astype(float) - (observed_group[row] == g)) @ design[row]
            if len(row)
            else design[:0]
            for g in range(1, k)
        ]
        return sparse.hstack(blocks, format="csr")

    recession = recede(score_differences(observed), score_differences(empty))
    if recession is None:
        return None
    is_lost, step = recession
    support[tuple(empty[is_lost].T)] = False
    direction[1:] = step.reshape(k - 1, p) if is_lost.any() else 0.0
    return Separation(support, direction)
