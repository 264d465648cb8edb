"""Separation of groups: cells with vanishing probability at the maximum of P(group | row)."""

# A *cell* is a combination of a distinct row and a group. Consider coefficients that give all
# observed groups of a row the same score, and no other group a higher one. The likelihood has a
# finite maximum if and only if all such coefficients give the same score to every group of each
# row; otherwise some of them separate the groups (Albert & Anderson 1984, Biometrika 71), the
# likelihood increases along them indefinitely, and the probability of groups with lower scores
# tends to zero.
#
# Letters: n distinct rows, k groups with rows, p columns of the design.

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.engines.likelihood.existence import recede, step_down
from bbl.model.layout import Layout

__all__ = [
    "MAX_CELLS",
    "Separation",
    "margins_of_sums",
    "pair_tables",
    "separated_cells",
    "zero_margins",
]

# cells times columns of the design; for larger tables only zero margins are found
MAX_CELLS = 2**22


class Separation(NamedTuple):
    """The cells with a probability that remains positive, and a direction of separation.

    Attributes
    ----------
    support : ndarray of bool, shape (n, k)
        Whether the probability of each cell remains positive.
    direction : ndarray, shape (k, p)
        Coefficients of each group. If they are added, the observed groups of a row keep equal
        scores, and the scores of all other cells decrease by about 1 or more relative to them.
    """

    support: np.ndarray
    direction: np.ndarray


def zero_margins(codes: np.ndarray, counts: np.ndarray, layout: Layout) -> Separation:
    """Return the separation by zero margins, i.e. by level combinations that a group never has.

    The combinations are levels of a single predictor, or joint levels of a model term. Cells that
    are only separated by several terms jointly are not found.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
        Distinct rows.
    counts : ndarray, shape (n, k)
        Weight of the rows in each group.
    layout : Layout
        The layout. `scopes` contains the predictors of each table of parameters: (i,) for fields,
        and all predictors of a term for couplings.
    """
    k = counts.shape[1]
    support = np.ones(counts.shape, dtype=bool)
    direction = np.zeros((k, 1 + layout.size))
    for scope in layout.scopes:
        if layout.is_number[list(scope)].any():
            continue
        shape = tuple(int(L) for L in layout.n_levels[list(scope)])
        # combination of levels in each row, (n,)
        combination = np.ravel_multi_index(tuple(codes[:, scope].T.astype(np.intp)), shape)
        n_combinations = int(np.prod(shape))
        occurs = np.bincount(combination, minlength=n_combinations) > 0
        for g in range(k):
            is_empty = occurs & (np.bincount(combination, counts[:, g], n_combinations) == 0.0)
            # parameters (size,) that give the empty combinations a score of -1, up to a constant;
            # None if there are none
            step = step_down(layout, scope, is_empty.reshape(shape))
            if step is not None:
                support[:, g] &= ~is_empty[combination]
                # combination 0, of reference levels, has no parameters: its score is the intercept,
                # -1 if it is empty
                direction[g] += np.append(-float(is_empty[0]), step)
    return Separation(support, direction)


def margins_of_sums(counts: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the direction (k, p) of `zero_margins`, given the counts (k, p) of columns.

    Terms have at most two predictors. Along the direction, the score of a group decreases by the
    number of combinations of levels in a row that the group never has.
    """
    k = len(counts)
    direction = np.zeros((k, 1 + layout.size))
    level_tables = [_level_counts(own, layout) for own in counts]
    tables = [
        [*of_levels, *pair_tables(own, layout)]
        for own, of_levels in zip(counts, level_tables, strict=True)
    ]
    for number, scope in enumerate(layout.scopes):
        own = np.array([of_group[number] for of_group in tables])
        occurs = own.sum(axis=0) > 0.0
        for g in range(k):
            is_empty = occurs & (own[g] == 0.0)
            step = step_down(layout, scope, is_empty)
            if step is not None:
                direction[g] += np.append(-float(is_empty.flat[0]), step)
    return direction


def _level_counts(counts: np.ndarray, layout: Layout) -> list[np.ndarray]:
    """Return the counts (L_i,) of each predictor's levels, given the counts (p,) of columns."""
    out = []
    for i in range(layout.m):
        own = counts[1 + layout.start[i] : 1 + layout.start[i + 1]]
        out.append(np.append(counts[0] - own.sum(), own))
    return out


def pair_tables(counts: np.ndarray, layout: Layout) -> list[np.ndarray]:
    """Return the counts (L_i, L_j) of pairs of levels of each interacting pair of predictors.

    `counts` (p,) contains the number or proportion of rows that have a 1 in each column of the
    design.
    """
    of_levels = _level_counts(counts, layout)
    out = []
    for (i, j), start in zip(layout.pairs.tolist(), layout.pair_start[:-1], strict=True):
        shape = (int(layout.n_levels[i]), int(layout.n_levels[j]))
        table = np.zeros(shape)
        size = (shape[0] - 1) * (shape[1] - 1)
        table[1:, 1:] = counts[1 + start : 1 + start + size].reshape(shape[0] - 1, -1)
        table[1:, 0] = of_levels[i][1:] - table[1:, 1:].sum(axis=1)
        table[0] = of_levels[j] - table[1:].sum(axis=0)
        out.append(table)
    return out


def separated_cells(Z: np.ndarray, counts: np.ndarray) -> Separation | None:
    """Return the complete separation found by a linear programme, or None if the solver fails.

    The programme is described in `bbl.engines.likelihood.existence.recede`. All observed groups of
    a row must have the same score, and no other group may have a higher score. Among the
    coefficients that satisfy this, the programme selects those with a lower score in as many cells
    as possible.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design matrix with linearly independent columns.
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
    # the cells of other groups, as (row, group): observed cells must have the same score as the
    # row's modal group, the score of empty cells may be lower
    tied_cells, empty_cells = (
        np.argwhere(is_other & selected) for selected in (counts > 0.0, counts == 0.0)
    )
    if not len(empty_cells):
        return Separation(support, direction)
    design = sparse.csr_matrix(Z)

    def score_differences(cells: np.ndarray):
        """Return the matrix (cells, (k - 1) p) that maps coefficients to differences of scores.

        Each difference is the cell's score minus the score of the row's modal group. The
        coefficients of groups 1, 2, ... are free, and the coefficients of group 0 are zero.
        """
        row, group = cells.T
        # coefficients of group g have a plus sign if g is the cell's group, and a minus sign if g
        # is the modal group
        signs = [(group == g).astype(float) - (modal_group[row] == g) for g in range(1, k)]
        return sparse.hstack([sparse.diags(sign) @ design[row] for sign in signs], format="csr")

    recession = recede(score_differences(tied_cells), score_differences(empty_cells))
    if recession is None:
        return None
    # which empty cells lose their probability, and coefficients ((k - 1) p,) along which this
    # happens
    is_lost, step = recession
    support[tuple(empty_cells[is_lost].T)] = False
    direction[1:] = step.reshape(k - 1, p) if is_lost.any() else 0.0
    return Separation(support, direction)
