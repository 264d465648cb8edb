"""Which groups lose their probability in which rows at the maximum of the likelihood P(group |
row).

A *cell* is a distinct row with a group. The likelihood has a finite maximum if and only if no
coefficients separate the groups: that is, if those that give the observed groups of every row the
same score, and no group a higher one, give the same score to all groups of each row (Albert &
Anderson 1984, Biometrika 71). Along others the likelihood rises without end, and the groups with
lower scores lose their probability.

Letters: n distinct rows, k groups that have rows, p columns of the design.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.engines.likelihood.existence import recede, step_down
from bbl.model.layout import Layout

__all__ = ["MAX_CELLS", "Separation", "separated_cells", "zero_margins"]

# cells times columns of the design; larger tables have only their zero margins found
MAX_CELLS = 2**22


class Separation(NamedTuple):
    """The cells that keep a probability.

    Attributes
    ----------
    support : ndarray of bool, shape (n, k)
        Whether each cell keeps a probability.
    direction : ndarray, shape (k, p)
        Coefficients of each group along which the scores of the other cells fall by about 1 or more
        below those of the row's observed groups, which stay equal.
    """

    support: np.ndarray
    direction: np.ndarray


def zero_margins(codes: np.ndarray, counts: np.ndarray, layout: Layout) -> Separation:
    """Return the separation by zero margins alone: a group loses the rows with a combination of
    levels it never has.

    The combinations are those of the levels of one predictor, or of the predictors of a term of the
    model. Cells that only several terms together separate are not found.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
        Distinct rows.
    counts : ndarray, shape (n, k)
        Their weight in each group.
    layout : Layout
        Its `scopes` are the predictors of each table of parameters: (i,) for fields, all predictors
        of a term.
    """
    k = counts.shape[1]
    support = np.ones(counts.shape, dtype=bool)
    direction = np.zeros((k, 1 + layout.size))
    for scope in layout.scopes:
        shape = tuple(int(L) for L in layout.n_levels[list(scope)])
        # of each row, (n,)
        combination = np.ravel_multi_index(tuple(codes[:, scope].T.astype(np.intp)), shape)
        n_combinations = int(np.prod(shape))
        occurs = np.bincount(combination, minlength=n_combinations) > 0
        for g in range(k):
            is_empty = occurs & (np.bincount(combination, counts[:, g], n_combinations) == 0.0)
            # parameters (size,) that give the score -1 to the empty combinations, up to a constant;
            # None if none can
            step = step_down(layout, scope, is_empty.reshape(shape))
            if step is not None:
                support[:, g] &= ~is_empty[combination]
                # combination 0, of reference levels, has no parameters: the intercept is its score,
                # -1 if it is empty
                direction[g] += np.append(-float(is_empty[0]), step)
    return Separation(support, direction)


def separated_cells(Z: np.ndarray, counts: np.ndarray) -> Separation | None:
    """Return the complete separation, by a linear programme; None if the solver fails.

    The programme is that of `bbl.engines.likelihood.existence.recede`. The coefficients must give
    all observed groups of a row the same score, and no group a higher one. Among these coefficients
    it seeks those that give a lower score to as many cells as possible.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design, of linearly independent columns.
    counts : ndarray, shape (n, k)
        Weight of each row in each group.
    """
    from scipy import sparse

    (n, k) = counts.shape
    p = Z.shape[1]
    support = np.ones((n, k), dtype=bool)
    direction = np.zeros((k, p))
    modal_group = counts.argmax(axis=1)  # (n,): the most frequent group of each row
    is_other = np.arange(k) != modal_group[:, None]
    # the cells of other groups, as (row, group): those with a weight must keep the score of the
    # row's modal group, the empty ones may fall below it
    tied_cells, empty_cells = (
        np.argwhere(is_other & selected) for selected in (counts > 0.0, counts == 0.0)
    )
    if not len(empty_cells):
        return Separation(support, direction)
    design = sparse.csr_matrix(Z)

    def score_differences(cells: np.ndarray):
        """Return the matrix (cells, (k - 1) p) from coefficients to differences of scores.

        They are the score of each cell (row, group) less that of the row's modal group. The
        coefficients are those of groups 1, 2, ...; those of group 0 are zero.
        """
        row, group = cells.T
        # the coefficients of group g raise the difference if g is the cell's group, and lower it if
        # g is the modal one
        signs = [(group == g).astype(float) - (modal_group[row] == g) for g in range(1, k)]
        return sparse.hstack([sparse.diags(sign) @ design[row] for sign in signs], format="csr")

    recession = recede(score_differences(tied_cells), score_differences(empty_cells))
    if recession is None:
        return None
    # which empty cells fall; the coefficients ((k - 1) p,) along which they do
    is_lost, step = recession
    support[tuple(empty_cells[is_lost].T)] = False
    direction[1:] = step.reshape(k - 1, p) if is_lost.any() else 0.0
    return Separation(support, direction)
