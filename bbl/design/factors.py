"""`Factor`: the levels of a categorical column, and the encoding of values as level codes.

Columns that look like continuous variables or identifiers raise errors.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from bbl.design.formula import as_term
from bbl.design.intervals import RARE_LEVEL, Ends, interval_codes, interval_ends
from bbl.design.values import (
    KINDS,
    Column,
    Counted,
    is_missing,
    level_key,
    plain_level,
)
from bbl.errors import BBLTypeError, DataError, Hint, LevelError
from bbl.rows.sample import code_dtype

__all__ = [
    "MAX_FRACTIONS",
    "MAX_INTEGERS",
    "Factor",
    "check_discrete",
    "has_many_fractions",
    "refuse_identifier",
]


MAX_SHOWN = 5  # maximum number of levels shown in a message
UNSEEN_REMEDY = Hint(
    "Refit with these levels (or list them in xlevels), or pass unseen='ignore' to ignore the "
    "predictor in those rows.",
    command_line="Refit with these levels, or pass --unseen ignore to ignore the predictor in "
    "those rows.",
    estimators="Refit with these levels, or pass unseen='ignore' to ignore the predictor in those "
    "rows.",
)


@dataclass(frozen=True)
class Factor:
    """The name and the L levels of a column, with methods that convert values to level codes.

    Attributes
    ----------
    name : hashable
    levels : tuple of length L
        Plain Python values; code ``a`` represents ``levels[a]``, and code 0 the reference level.
    kinds : tuple of length L
        Kind of each level: "bool", "number", "string", "other", or "missing" for the level that
        represents missing values.
    ordered : bool
        Whether the levels are declared as ordered.
    declared : bool
        Whether the levels were listed, as the categories of the column or in `xlevels`.
    """

    name: Hashable
    levels: tuple
    kinds: tuple[str, ...]
    ordered: bool = False
    declared: bool = False

    @cached_property
    def _codes(self) -> dict[tuple[str, Any], int]:
        """A dict from the `level_key` of each level's kind and value to the level's code."""
        return {
            level_key(kind, value): a
            for a, (kind, value) in enumerate(zip(self.kinds, self.levels, strict=True))
        }

    @cached_property
    def _intervals(self) -> list[tuple[Ends, int]]:
        """The `Ends` and code of each level if the levels are numeric intervals; otherwise
        empty.
        """
        return interval_codes(self.levels, self.kinds)

    @property
    def has_known_order(self) -> bool:
        """Whether the order of the levels is declared, or evident because they are numbers or
        booleans.
        """
        has_natural_order = len(self.levels) < 2 or set(self.kinds) in ({"number"}, {"bool"})
        return self.declared or self.ordered or has_natural_order

    @property
    def is_measured(self) -> bool:
        """Whether this is a numeric predictor of a Boltzmann machine; see
        `NumberFactor.of_moments`.
        """
        return False

    @property
    def binned(self) -> bool:
        """Whether the levels are numeric intervals; numbers are then encoded by the interval that
        contains them.
        """
        return bool(self._intervals)

    @classmethod
    def collect(cls, column: Column | Counted, *, unused: bool = False) -> Factor:
        """Return the factor of the levels that occur in a column; missing values are ignored.

        Declared levels keep their order, unless this order is unknown (`Column.order_problem`).
        Other levels are sorted: first booleans, then numbers by value, then strings by code point.

        Parameters
        ----------
        column : Column or Counted
        unused : bool, default False
            Whether to keep declared levels that do not occur.

        Raises
        ------
        LevelError
            If the column contains a boolean and an equal number, or another value and its text.
        """
        # positions of the values that become levels: all values, or those that occur
        positions = (
            np.arange(len(column.values))
            if unused and column.declared
            else np.flatnonzero(column.used())
        )
        # pairs (kind, value)
        levels = [
            (column.kinds[k], column.values[k]) for k in positions if column.kinds[k] != "missing"
        ]
        _check_distinguishable(column.name, levels, "data")
        if not column.declared or column.order_problem:
            levels = _sort_levels(levels)
        kinds = tuple(kind for kind, _ in levels)
        values = tuple(value for _, value in levels)
        return cls(column.name, values, kinds, column.ordered, column.declared)

    @classmethod
    def from_list(cls, name: Hashable, levels: Iterable[Hashable]) -> Factor:
        """Return the factor with the listed levels, in the same order.

        Raises
        ------
        BBLTypeError, LevelError
            If `levels` is not a sequence, or contains a missing value, a duplicate, a boolean and
            an equal number, or another value and its text.
        """
        if isinstance(levels, str | bytes | Mapping) or not isinstance(levels, Iterable):
            raise BBLTypeError(
                f"xlevels[{name!r}] must be a list of levels; got {levels!r}.",
                column=name,
                argument="xlevels",
                value=levels,
            )
        values = list(levels)
        if any(is_missing(v) for v in values):
            raise LevelError(
                f"xlevels[{name!r}] contains a missing value.",
                column=name,
                argument="xlevels",
                hint="Leave it out.",
            )
        typed_levels = [plain_level(name, v, declared=True) for v in values]  # (kind, value)
        factor = cls(
            name,
            tuple(v for _, v in typed_levels),
            tuple(kind for kind, _ in typed_levels),
            declared=True,
        )
        if len(factor._codes) < len(typed_levels):  # equal levels have the same key
            raise LevelError(
                f"xlevels[{name!r}] contains a duplicate level: {values!r}.",
                column=name,
                argument="xlevels",
                hint="List each level only once.",
            )
        _check_distinguishable(name, typed_levels, "xlevels")
        return factor

    def padded(self) -> Factor:
        """Return the factor with at least two levels; a single level is supplemented by
        ``"(other)"``.
        """
        return self._extended("other", "string") if len(self.levels) == 1 else self

    def with_missing(self) -> Factor:
        """Return the factor with an additional last level ``"(missing)"`` for missing values."""
        return self._extended("missing", "missing")

    def _extended(self, word: str, kind: str) -> Factor:
        """Return the factor with an additional level ``"(word)"``, or ``"(word 2)"``, ... if this
        name is taken.
        """
        labels = itertools.chain([f"({word})"], (f"({word} {k})" for k in itertools.count(2)))
        label = next(label for label in labels if label not in self.levels)
        return replace(self, levels=(*self.levels, label), kinds=(*self.kinds, kind))

    def encode(
        self,
        column: Column,
        unseen: str = "raise",
        argument: str = "data",
        skip_missing: bool = False,
        remedy: str = UNSEEN_REMEDY,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the code of each row: the position of its value among the levels.

        Parameters
        ----------
        column : Column
            The distinct values and their positions in the rows, as returned by `factorise`.
        unseen : {"raise", "ignore"}, default "raise"
            Whether a value that is not a level raises an error, or has code 0 and is marked in
            `is_unseen`.
        argument : str, default "data"
            Name of the argument that contains the column, for messages.
        skip_missing : bool, default False
            Whether missing values have code 0 and are not marked in `is_unseen`. If False, they are
            treated like other values.
        remedy : str, optional
            Hint in the error about unseen values.

        Returns
        -------
        codes : ndarray of uint8, uint16 or int32, shape (n,)
        is_unseen : ndarray of bool, shape (n,), or None
            Mask of rows with a value that is not a level; None if all values are levels.

        Raises
        ------
        LevelError
            If `unseen` is "raise" and a value is not a level.
        """
        code_of_value = np.array(
            [
                self._code(k, v, skip_missing)
                for k, v in zip(column.kinds, column.values, strict=True)
            ],
            dtype=np.int64,
        )
        value_is_unseen = code_of_value < 0  # for each distinct value
        if skip_missing and "missing" in column.kinds:
            value_is_unseen[-1] = False  # missing values are the last value of a column
        if value_is_unseen.any():
            value_is_unseen &= column.used()  # ignore values that do not occur
        if value_is_unseen.any() and unseen == "raise":
            unseen_values = np.flatnonzero(value_is_unseen)
            self._raise_unseen(
                [column.kinds[k] for k in unseen_values],
                [column.values[k] for k in unseen_values],
                argument,
                remedy,
            )
        # the values are the levels in the same order, so they are already the codes
        if np.array_equal(code_of_value, np.arange(len(code_of_value))):
            codes = column.codes.astype(code_dtype(len(self.levels)))
        else:
            # values that are not levels (-1) are coded 0
            codes = np.maximum(code_of_value, 0).astype(code_dtype(len(self.levels)))[column.codes]
        return codes, value_is_unseen[column.codes] if value_is_unseen.any() else None

    def _code(self, kind: str, value: Any, skip_missing: bool) -> int:
        """Return the code of the level or interval that contains a value; otherwise, the code of
        the level ``"(rare)"``, or -1 if this level does not exist.

        With `skip_missing`, missing values are not coded as ``"(rare)"``.
        """
        code = self._codes.get(level_key(kind, value), -1)
        if code < 0 and kind in ("string", "other"):
            # Intervals and dates are matched by their text, because files only store the text. No
            # factor contains both.
            code = self._codes.get(("other" if kind == "string" else "string", str(value)), -1)
        if code < 0 and kind in ("string", "other") and (ends := interval_ends(value)):
            code = next((a for other, a in self._intervals if other == ends), -1)
        if code < 0 and kind == "number" and self._intervals:
            code = next((a for ends, a in self._intervals if ends.contains(value)), -1)
        if code < 0 and not (kind == "missing" and skip_missing):
            code = self._codes.get(("string", RARE_LEVEL), -1)
        return code

    def _raise_unseen(self, kinds: list[str], values: list, argument: str, remedy: str) -> NoReturn:
        """Raise an error about `values` (of `kinds`) that are not levels.

        `argument` and `remedy` are the same as in `encode`.
        """
        unseen = values
        values = ["missing values" if v is None else repr(v) for v in values]
        shown = ", ".join(values[:MAX_SHOWN]) + (
            f", and {len(values) - MAX_SHOWN} more" * (len(values) > MAX_SHOWN)
        )
        shown_levels = ", ".join(map(repr, self.levels[:MAX_SHOWN])) + (
            ", and more" * (len(self.levels) > MAX_SHOWN)
        )
        if argument == "xlevels":
            raise LevelError(
                f"column {self.name!r} has levels that are not in xlevels: {shown}.",
                hint=f"Add them to {shown_levels}.",
                column=self.name,
                argument=argument,
            )
        raise LevelError(
            f"column {self.name!r} has unknown levels: {shown}. The model was fitted with "
            f"{shown_levels}.",
            hint=self.type_remedy(kinds, unseen, argument) or remedy,
            column=self.name,
            argument=argument,
        )

    def type_remedy(
        self, kinds: Sequence[str], values: Sequence[Any], argument: str
    ) -> Hint | None:
        """Return a hint if values and levels have different types (``"1"`` and 1), otherwise None.

        `kinds` and `values` are from a column of the table `argument`.
        """
        level_kinds = set(self.kinds) - {"missing"}
        value_kinds = set(kinds) - {"missing"}
        if "other" in level_kinds | value_kinds or not value_kinds or level_kinds & value_kinds:
            return None
        column = f"{argument}[{self.name!r}]"
        conversions = {
            frozenset({"number"}): f"pandas.to_numeric({column})",
            frozenset({"string"}): f"{column}.astype(str)",
            frozenset({"bool"}): f"{column}.astype(bool)",
        }
        # astype would convert all strings to True
        if level_kinds == {"bool"} and value_kinds == {"string"}:
            conversion = f'{column} == "True"'
        else:
            conversion = conversions.get(frozenset(level_kinds), "")
        level = next(
            v for v, kind in zip(self.levels, self.kinds, strict=True) if kind != "missing"
        )
        value = next(v for v, kind in zip(values, kinds, strict=True) if kind != "missing")
        type_text = (
            f"the model has levels such as {level!r} ({self._type_names(level_kinds)}), but the "
            f"column contains {value!r} ({self._type_names(value_kinds)})"
        )
        start = "Use the same type as in the training data"
        return Hint(
            f"{start}{f', {conversion}' * bool(conversion)}: {type_text}.",
            command_line=f"{start} (--dtype): {type_text}.",
        )

    @staticmethod
    def _type_names(kinds: set[str]) -> str:
        """Return the names of level kinds, for messages."""
        names = {"bool": "boolean", "number": "number", "string": "text"}
        return " and ".join(sorted(names[kind] for kind in kinds))


def _check_distinguishable(name: Hashable, levels: list[tuple[str, Any]], argument: str) -> None:
    """Raise an error for levels (kind, value) with equal labels: True and 1, or an interval and its
    text.

    `argument` is "xlevels" if the levels are listed there; it is named in the message.
    """
    numbers = [value for kind, value in levels if kind == "number"]
    strings = {value for kind, value in levels if kind == "string"}
    for kind, value in levels:
        twin = None  # the other level with the same label
        if kind == "bool":
            # True equals 1, and False equals 0
            twin = next((number for number in numbers if number == value), None)
        elif kind == "other" and str(value) in strings:  # represented by its text
            twin = str(value)
        if twin is not None:
            where = f"xlevels[{name!r}]" if argument == "xlevels" else f"column {name!r}"
            raise LevelError(
                f"{where} contains both {value!r} and {twin!r}, which have the same label.",
                column=name,
                argument=argument,
                hint="Replace one with the other, or convert them to different strings.",
            )


def _sort_levels(levels: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return levels (kind, value) sorted by kind and value, or by text if values are unordered."""
    try:
        return sorted(levels, key=lambda level: (KINDS.index(level[0]), level[1]))
    except TypeError:
        # sort by text
        return sorted(levels, key=lambda level: (KINDS.index(level[0]), level_key(*level)[1]))


# if there are more distinct numbers than this, some of them fractional, a column looks continuous
MAX_FRACTIONS = 12
# if there are more distinct integers than this, a column looks continuous if at least half of them
# have fewer than FEW_ROWS rows
MAX_INTEGERS = 30
FEW_ROWS = 6
# names of columns that usually contain counts or weights
COUNT_NAMES = frozenset(
    ("count", "counts", "freq", "frequency", "n", "number", "weight", "weights", "wt")
)


def has_many_fractions(kinds: Sequence[str], values: Sequence[Any]) -> bool:
    """Return whether a column has more than 12 distinct numbers, some of them fractional."""
    numbers = [v for v, kind in zip(values, kinds, strict=True) if kind == "number"]
    return len(numbers) > MAX_FRACTIONS and any(v != int(v) for v in numbers)


def check_discrete(
    column: Column | Counted, rows: np.ndarray | None = None, numbers_advice: str = ""
) -> None:
    """Raise an error if a column of undeclared numeric levels looks continuous.

    A column looks continuous if it has more than 12 distinct numbers, some of them fractional, or
    more than 30 distinct integers, at least half of them with fewer than 6 rows. `rows` (number of
    values,) contains the number of rows with each value (by default, counted in the column); a row
    with frequency k counts as k rows. `numbers_advice` is the same as in `EncodingRules`.
    """
    if column.declared or len(column.values) <= MAX_FRACTIONS:
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
        _refuse_numbers(column, values, float(rows.sum()), numbers_advice)


def _refuse_numbers(
    column: Column | Counted, values: list, n_rows: float, numbers_advice: str
) -> NoReturn:
    """Raise an error about a column that looks continuous; `values` are its distinct numbers."""
    name = column.name
    # if almost every row has a different integer, the column may also be an identifier
    is_identifier = bool(n_rows < 2 * len(values) and all(v == int(v) for v in values))
    what = "like an identifier or a quantity" if is_identifier else "continuous"
    remedy = _numbers_remedy(name, isinstance(column, Counted))
    if numbers_advice and not is_identifier:
        remedy = Hint(f"{remedy} {numbers_advice}", command_line=remedy.command_line)
    raise DataError(
        f"column {name!r} looks {what}: {len(values)} distinct numbers in {n_rows:.0f} rows, and "
        f"each would be a separate level.",
        hint=_leave_out(name, remedy) if is_identifier else remedy,
        column=name,
    )


def refuse_identifier(
    name: Hashable, L: int, n_rows: float, are_numbers: bool = False, in_batches: bool = False
) -> NoReturn:
    """Raise an error about a column with `L` distinct values in only `n_rows` observations."""
    remedy = Hint(
        "Group its values. If each value is a level, list the values in xlevels.",
        command_line="Group its values.",
    )
    if are_numbers:
        remedy = _numbers_remedy(name, in_batches)
    elif not in_batches:
        remedy = Hint(
            "Group its values. If each value is a level, convert the column to a category: "
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
    """Return a hint for a column that looks continuous; it differs for data read in batches."""
    if in_batches:
        return Hint(
            "Cut it into intervals with the same bounds in all batches, for example with "
            "pandas.cut. If each number is a category, store it as text.",
            command_line=(
                "Cut it into intervals before the file is written. If each number is a category, "
                "store it as text."
            ),
        )
    return Hint(
        f"Cut it into intervals with bbl.bin(data, {name!r}) or pandas.cut. If each number is a "
        f'category, declare it: data[{name!r}].astype("category").',
        command_line=(
            "Cut it into intervals (--bin quantile). If each number is a category, pass --dtype "
            f"'{name}=text'."
        ),
    )


def _leave_out(name: Hashable, remedy: Hint) -> Hint:
    """Return a hint that suggests leaving a column out of the formula or following `remedy`."""
    # if this is a table of counts without `weights=`, dropping the column would ignore the counts
    is_count = str(name).lower().strip("._ ") in COUNT_NAMES
    start = f"Leave it out of the formula (- {as_term(name)}), or "
    if is_count:
        start = (
            f"If it contains counts, pass weights={name!r}. Otherwise, leave it out of the formula "
            f"(- {as_term(name)}), or "
        )
    other = remedy.command_line
    return Hint(
        start + remedy[0].lower() + remedy[1:],
        command_line=start + other[0].lower() + other[1:],
    )
