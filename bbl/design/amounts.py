"""Refuse columns of amounts and of identifiers: each of their values would be a level of its own.

A `Column` has `codes` of rows into its distinct `values`, and the `kinds` of these values; a
`Counted` has the number of rows of each value instead, and stands for data that are read in
batches. Both say whether the values are declared categories, and ``value_rows()`` returns the
number of rows of each value.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NoReturn

import numpy as np

from bbl.design.formula import as_term
from bbl.design.values import Column, Counted
from bbl.errors import DataError, Hint

__all__ = ["MAX_INTEGERS", "check_discrete", "has_many_fractions", "refuse_identifier"]

# more distinct numbers, some of them fractional, are amounts rather than levels
MAX_FRACTIONS = 12
# more distinct integers are amounts if at least half of them have fewer than FEW_ROWS rows
MAX_INTEGERS = 30
FEW_ROWS = 6
# names of columns that usually hold counts or weights
COUNT_NAMES = frozenset(
    ("count", "counts", "freq", "frequency", "n", "number", "weight", "weights", "wt")
)


def has_many_fractions(kinds: Sequence[str], values: Sequence[Any]) -> bool:
    """Return whether a column has over 12 distinct numbers, some of them fractional."""
    numbers = [v for v, kind in zip(values, kinds, strict=True) if kind == "number"]
    return len(numbers) > MAX_FRACTIONS and any(v != int(v) for v in numbers)


def check_discrete(column: Column | Counted, rows: np.ndarray | None = None) -> None:
    """Refuse a column of undeclared numbers that are amounts rather than levels.

    These are over 12 distinct numbers of which some are fractional, or over 30 distinct integers of
    which at least half have fewer than 6 rows. `rows` (number of values,) has the number of rows of
    each value, where a row of frequency k counts as k rows; by default that of the column.
    """
    if column.declared:
        return
    if rows is None:
        rows = column.value_rows()
    used = np.flatnonzero(rows > 0)
    values = [column.values[k] for k in used if column.kinds[k] == "number"]
    rows_of_numbers = np.array([rows[k] for k in used if column.kinds[k] == "number"])
    n_rare = int((rows_of_numbers < FEW_ROWS).sum())
    if has_many_fractions(["number"] * len(values), values) or (
        len(values) > MAX_INTEGERS and 2 * n_rare >= len(values)
    ):
        _refuse_numbers(column, values, float(rows.sum()))


def _refuse_numbers(column: Column | Counted, values: list, n_rows: float) -> NoReturn:
    """Raise the error of a column of amounts, whose distinct numbers are `values`."""
    name = column.name
    # all integers, almost one for each row: an identifier as likely as an amount
    is_identifier = bool(n_rows < 2 * len(values) and all(v == int(v) for v in values))
    what = "like an identifier or an amount" if is_identifier else "continuous"
    remedy = _numbers_remedy(name, isinstance(column, Counted))
    raise DataError(
        f"column {name!r} looks {what}: {len(values)} distinct numbers in {n_rows:.0f} rows, and "
        "each number would be a level of its own.",
        hint=_leave_out(name, remedy) if is_identifier else remedy,
        column=name,
    )


def refuse_identifier(
    name: Hashable, L: int, n_rows: float, are_numbers: bool = False, in_batches: bool = False
) -> NoReturn:
    """Raise the error of a column with `L` distinct values in only `n_rows` observations."""
    remedy = Hint(
        "Group its values; if each value is a level, list them in xlevels.",
        command_line="Group its values.",
    )
    if are_numbers:
        remedy = _numbers_remedy(name, in_batches)
    elif not in_batches:
        remedy = Hint(
            "Group its values (bbl.lump); if each value is a level, make it a category, "
            f'data[{name!r}].astype("category").',
            command_line="Group its rare values (--lump).",
        )
    raise DataError(
        f"column {name!r} looks like an identifier: {L} distinct values in {n_rows:.0f} "
        "observations.",
        hint=_leave_out(name, remedy),
        column=name,
    )


def _numbers_remedy(name: Hashable, in_batches: bool) -> Hint:
    """Return advice about a column of amounts, which may be read in batches."""
    if in_batches:
        return Hint(
            "Cut it into intervals with the same bounds in all batches, for example with "
            "pandas.cut; if each number is a category, store it as text.",
            command_line="Cut it into intervals before the file is written; if each number is a "
            "category, store it as text.",
        )
    return Hint(
        f"Cut it into intervals with bbl.bin(data, {name!r}) or pandas.cut; if each number is a "
        f'category, declare it: data[{name!r}].astype("category").',
        command_line="Cut it into intervals (--bin quantile); if each number is a category, pass "
        f"--dtype '{name}=text'.",
    )


def _leave_out(name: Hashable, remedy: Hint) -> Hint:
    """Return advice to leave a column out, or else to follow `remedy`."""
    # a table of counts without `weights=`: leaving the column out would ignore the counts
    is_count = str(name).lower().strip("._ ") in COUNT_NAMES
    start = (
        f"If it contains counts, give weights={name!r}. Otherwise leave" if is_count else "Leave"
    )
    start += f" it out of the formula (- {as_term(name)}), or "
    other = remedy.command_line
    return Hint(
        start + remedy[0].lower() + remedy[1:],
        command_line=start + other[0].lower() + other[1:],
    )
