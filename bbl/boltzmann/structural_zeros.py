"""Structural zeros of a fit: the possible states, and errors for rows in impossible cells."""

from __future__ import annotations

import numpy as np

from bbl.design.labels import Labels
from bbl.design.zeros import ImpossibleCells
from bbl.engines.likelihood.solve import MAX_STATES
from bbl.errors import DataError, OptionError
from bbl.model.support import Support
from bbl.report.text import label_text
from bbl.rows.sample import Sample

__all__ = ["ImpossibleRowsError", "make_support", "refuse_impossible_rows", "refuse_observed_rows"]


class ImpossibleRowsError(DataError):
    """Raised if new rows are in impossible cells.

    Attributes
    ----------
    rows : ndarray of bool, shape (n,)
        Whether each of the n rows is in an impossible cell.
    n_groups : int
        Number of groups in the fit.
    """

    def __init__(self, message: str, rows: np.ndarray, n_groups: int):
        super().__init__(message, argument="newdata", hint="Leave such rows out of newdata.")
        self.rows = rows
        self.n_groups = n_groups


def make_support(cells: ImpossibleCells, labels: Labels) -> Support | None:
    """Return the possible combinations of levels, or None if all combinations are possible.

    The impossible `cells` contain the positions of k `predictors`, the `codes` (cells, k) of their
    levels, and `groups` (cells,), which is None if the cells are impossible in all groups.

    Raises
    ------
    OptionError
        If the predictors have more than 65,536 combinations of levels, or if a group has no
        possible combination.
    """
    shape = [len(labels.levels[i]) for i in cells.predictors]
    if np.prod(np.array(shape, dtype=float)) > MAX_STATES:
        raise OptionError(
            f"structural_zeros involve {len(shape)} predictors with "
            f"{np.prod(np.array(shape, dtype=float)):.3g} combinations, but at most "
            f"{MAX_STATES:,} are supported.",
            argument="structural_zeros",
            hint="Use a table with only the columns that define the zeros.",
        )
    n_groups = 1 if cells.groups is None else len(labels.groups)
    # one axis for the groups, then one for each predictor
    possible = np.ones((n_groups, *shape), dtype=bool)
    possible[(0 if cells.groups is None else cells.groups, *cells.codes.T)] = False
    if possible.all():
        return None
    if (possible == possible[:1]).all():
        possible = possible[:1]  # the same in all groups
    # `possible` may have one table for all groups
    for group, table in zip(labels.groups, possible, strict=False):
        if not table.any():
            group_clause = f" in group {label_text(group)}" if len(possible) > 1 else ""
            raise OptionError(
                f"structural_zeros exclude every combination{group_clause}.",
                argument="structural_zeros",
                hint="Leave some out.",
            )
    return Support(cells.predictors, possible)


def refuse_observed_rows(support: Support, rows: Sample, labels: Labels) -> None:
    """Raise a DataError that names the first impossible cell with rows, if there is one."""
    possible = support.rows(rows.codes, rows.missing)
    group = rows.response if support.n_groups > 1 else np.zeros(rows.n, dtype=np.intp)
    is_impossible = ~possible[np.arange(rows.n), group] & (rows.weights > 0.0)
    if not is_impossible.any():
        return
    k = int(is_impossible.argmax())  # the first such row
    in_group = f", of group {label_text(labels.groups[group[k]])}" if support.n_groups > 1 else ""
    raise DataError(
        "structural_zeros declare that "
        f"{_cell_text(support, labels, rows.codes[k], _missing_in(rows.missing, k))}{in_group} "
        "cannot occur, but the data contain such rows. The total weight of rows in impossible "
        f"cells is {rows.weights[is_impossible].sum():g}.",
        argument="structural_zeros",
        hint=(
            "Leave the cell out of structural_zeros, or drop these rows to analyse the table "
            "without them."
        ),
    )


def refuse_impossible_rows(
    support: Support | None,
    labels: Labels,
    codes: np.ndarray,
    missing: np.ndarray | None,
    groups: np.ndarray | None = None,
) -> None:
    """Raise an ImpossibleRowsError if rows (n, m) are in a cell that is impossible in all groups.

    `groups` (n,) optionally contains the group of each row, or -1. If it is given, rows in cells
    that are impossible in their own group are also rejected. `missing` is a mask (n, m) of missing
    values, or None.
    """
    if support is None or not len(codes):
        return
    by_group = support.rows(codes, missing)
    possible = by_group.any(axis=1)
    if groups is not None and support.n_groups > 1:
        # rows of unknown groups are accepted; -1 is only replaced to get a valid position
        possible &= (groups < 0) | by_group[np.arange(len(codes)), np.maximum(groups, 0)]
    if not possible.all():
        k = int((~possible).argmax())
        raise ImpossibleRowsError(
            f"row {k} of newdata cannot be predicted: its cell, "
            f"{_cell_text(support, labels, codes[k], _missing_in(missing, k))}, is a structural "
            "zero.",
            np.logical_not(possible),
            len(labels.groups),
        )


def _missing_in(missing: np.ndarray | None, row: int) -> np.ndarray | None:
    """Return a mask (m,) of predictors missing in a row; None if no values are missing."""
    return None if missing is None else missing[row]


def _cell_text(
    support: Support, labels: Labels, codes: np.ndarray, missing: np.ndarray | None
) -> str:
    """Describe a row by its known levels of the predictors with structural zeros.

    Arrays have shape (m,).
    """
    return ", ".join(
        f"{label_text(labels.names[i])}={label_text(labels.levels[i][codes[i]])}"
        for i in support.scope
        if missing is None or not missing[i]
    )
