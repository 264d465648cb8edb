"""Read structural zeros from a table of combinations, or from a column that marks rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.design.design import Design
from bbl.design.frames import Frame, to_frame
from bbl.design.values import Column, frame_column
from bbl.errors import BBLTypeError, DataError

__all__ = ["ImpossibleCells", "read_zeros"]

ARGUMENT = "structural_zeros"
UNKNOWN_LEVEL = (
    "Leave these rows out: levels that never occur need no structural zeros. If the levels can "
    "occur in other data, list them in xlevels"
)


class ImpossibleCells(NamedTuple):
    """Impossible combinations of levels.

    Attributes
    ----------
    predictors : tuple of int
        Positions of the predictors, in increasing order.
    codes : ndarray of int, shape (n, number of predictors)
        Level codes of the predictors in each of the n combinations.
    groups : ndarray of int, shape (n,), or None
        Groups of the response; None if the combinations are impossible in all groups.
    """

    predictors: tuple[int, ...]
    codes: np.ndarray
    groups: np.ndarray | None


def read_zeros(zeros: object, design: Design, frame: Frame) -> ImpossibleCells:
    """Read structural zeros, as given in the argument of `bbl.bbl`.

    Parameters
    ----------
    zeros : table, or name of a column of `frame`
    design : Design
        The design of the data.
    frame : Frame
        The data.

    Raises
    ------
    BBLTypeError
        If `zeros` is neither a table nor the name of a column.
    DataError, LevelError
        If a column is not in the formula, the marks are not boolean, or a level is unknown or
        missing.
    """
    if frame.has(zeros):
        return _read_marks(frame_column(frame, zeros), design, frame)
    if isinstance(zeros, str):
        raise DataError(
            f"structural_zeros={zeros!r} is not a column of the data.",
            argument=ARGUMENT,
            column=zeros,
            hint=(
                "Pass the name of a column that marks rows, or a table of the combinations that "
                "cannot occur."
            ),
            value=zeros,
        )
    try:
        table = to_frame(zeros, ARGUMENT)
    except BBLTypeError as error:
        raise BBLTypeError(
            "structural_zeros must be a table of combinations, or the name of a column that "
            f"marks rows; got {type(zeros).__name__}.",
            argument=ARGUMENT,
        ) from error
    return _read_table(table, design)


def _read_table(table: Frame, design: Design) -> ImpossibleCells:
    """Return the combinations in a table of predictors and, optionally, the response."""
    names = [factor.name for factor in design.predictors]
    formula_names = [*names, *([design.response.name] if design.classes else [])]
    for name in table.columns:
        if name not in formula_names:
            raise DataError(
                f"structural_zeros has the column {name!r}, which is not in the formula.",
                argument=ARGUMENT,
                column=name,
                hint="Remove all columns from the table that are not in the formula.",
            )
    used_predictors = tuple(i for i, name in enumerate(names) if name in table.columns)
    if not used_predictors:
        raise DataError(
            "structural_zeros has no predictor columns.",
            argument=ARGUMENT,
            hint="Add a column for each predictor in the impossible combinations.",
        )
    codes = np.empty((table.n, len(used_predictors)), dtype=np.intp)
    for position, i in enumerate(used_predictors):
        column = frame_column(table, names[i])
        if design.missing != "level":  # otherwise, missing values are a level
            _refuse_missing(column, np.ones(table.n, dtype=bool))
        codes[:, position] = design.predictors[i].encode(
            column, "raise", ARGUMENT, remedy=UNKNOWN_LEVEL
        )[0]
    groups = None
    if design.classes and design.response.name in table.columns:
        column = frame_column(table, design.response.name)
        _refuse_missing(column, np.ones(table.n, dtype=bool))
        groups = design.response.encode(column, "raise", ARGUMENT, remedy=UNKNOWN_LEVEL)[0].astype(
            np.intp
        )
    return ImpossibleCells(used_predictors, codes, groups)


def _read_marks(marks: Column, design: Design, frame: Frame) -> ImpossibleCells:
    """Return the cells of those rows of `frame` that are marked in the column `marks`.

    The design does not contain levels that occur only in marked rows; cells with such levels are
    omitted.
    """
    _refuse_missing(marks, np.ones(frame.n, dtype=bool))
    occurring = marks.used()
    for value, kind, occurs in zip(marks.values, marks.kinds, occurring, strict=True):
        if occurs and not (kind in ("bool", "number") and value in (0, 1)):
            raise DataError(
                f"structural_zeros: column {marks.name!r} contains {value!r}.",
                argument=ARGUMENT,
                column=marks.name,
                hint=(
                    "Mark the rows of cells that cannot occur with True or 1, and the others "
                    "with False or 0."
                ),
            )
    is_marked = np.array([bool(value) for value in marks.values])[marks.codes]
    codes = np.empty((frame.n, len(design.predictors)), dtype=np.intp)
    is_known = is_marked.copy()  # marked rows where all levels are known
    for i, factor in enumerate(design.predictors):
        column = frame_column(frame, factor.name)
        if design.missing != "level":
            _refuse_missing(column, is_marked)
        codes[:, i], is_unseen = factor.encode(
            column, "ignore", skip_missing=design.missing != "level"
        )
        is_known &= True if is_unseen is None else ~is_unseen
    groups = np.zeros(frame.n, dtype=np.intp)
    if design.classes:
        column = frame_column(frame, design.response.name)
        _refuse_missing(column, is_marked)
        encoded, is_unseen = design.response.encode(column, "ignore", skip_missing=True)
        groups[:] = encoded
        is_known &= True if is_unseen is None else ~is_unseen
    predictors = tuple(range(len(design.predictors)))
    return ImpossibleCells(
        predictors, codes[is_known], groups[is_known] if design.classes else None
    )


def _refuse_missing(column: Column, rows: np.ndarray) -> None:
    """Raise a DataError if a column has missing values in the marked rows; `rows` (n,) is their
    mask.
    """
    is_missing = column.missing()
    if is_missing is not None and (is_missing & rows).any():
        raise DataError(
            f"structural_zeros: column {column.name!r} is missing in row "
            f"{int((is_missing & rows).argmax())}.",
            argument=ARGUMENT,
            column=column.name,
            hint="Specify a level for every column in each combination that cannot occur.",
        )
