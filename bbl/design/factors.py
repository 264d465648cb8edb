"""Factors: the levels of a column, and values as their codes; unseen values are found here."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bbl.design.intervals import RARE_LEVEL, Ends, interval_codes
from bbl.design.values import KINDS, Column, Counted, check_discrete, is_missing, level_key, plain_level
from bbl.errors import BBLTypeError, LevelError
from bbl.rows.sample import code_dtype

__all__ = ["Factor"]

SHOWN = 5  # levels shown in a message
KNOWN_PREDICTOR = (
    "Refit with them (or list them in xlevels), or pass unseen='ignore' to leave the predictor out in those rows"
)


@dataclass(frozen=True)
class Factor:
    """A column name and its levels; turns values into codes.

    Attributes
    ----------
    name : hashable
    levels : tuple of length L
        Plain Python values; code ``a`` stands for ``levels[a]``, and code 0 is the reference level.
    kinds : tuple of length L
        Kind of each level: "bool", "number", "string", "other", or "missing" for the level of missing values.
    ordered : bool
        Whether the column declared its levels to be in order.
    declared : bool
        Whether somebody listed the levels: the column, as its categories, or the user, in `xlevels`.
    """

    name: Hashable
    levels: tuple
    kinds: tuple[str, ...]
    ordered: bool = False
    declared: bool = False

    @cached_property
    def _codes(self) -> dict[tuple[str, Any], int]:
        return {level_key(kind, value): a for a, (kind, value) in enumerate(zip(self.kinds, self.levels, strict=True))}

    @cached_property
    def _intervals(self) -> list[tuple[Ends, int]]:
        return interval_codes(self.levels, self.kinds)

    @property
    def has_known_order(self) -> bool:
        """Whether users know the order of the levels without looking: they declared it, or it is that of numbers."""
        is_natural = len(self.levels) < 2 or set(self.kinds) in ({"number"}, {"bool"})
        return self.declared or self.ordered or is_natural

    @property
    def binned(self) -> bool:
        """Whether the levels are intervals of numbers, and numbers are put into them."""
        return bool(self._intervals)

    @classmethod
    def collect(cls, column: Column | Counted, *, keep_order: bool = False, unused: bool = False) -> Factor:
        """Collect the levels that occur in a column; with `unused` all that it declares, in their order.

        Declared levels keep their order if they are declared as ordered, or with `keep_order` (the response).
        All others are sorted: numbers by value, strings by code point, and booleans before numbers before strings.

        Raises
        ------
        DataError
            If the column is continuous: over 20 distinct fractional numbers, which are over half of the rows or
            over 1,000.
        LevelError
            If it holds a boolean and its number, or another value and its text.
        """
        used = np.arange(len(column.values)) if unused and column.declared else np.flatnonzero(column.used())
        typed_values = [(column.kinds[k], column.values[k]) for k in used if column.kinds[k] != "missing"]
        _check_apart(column.name, typed_values, "data")
        if not column.declared:
            check_discrete(column.name, typed_values, column.n)
        if not column.declared or not (column.ordered or keep_order or unused):
            typed_values = _sorted(typed_values)
        return cls(
            column.name,
            tuple(v for _, v in typed_values),
            tuple(k for k, _ in typed_values),
            column.ordered,
            column.declared,
        )

    @classmethod
    def given(cls, name: Hashable, levels: Iterable[Hashable]) -> Factor:
        """Make a factor of levels that the user gives, in their order.

        Raises
        ------
        BBLTypeError, LevelError
            If `levels` is no sequence, or a level is missing or given twice, or is a boolean beside its
            number or another value beside its text.
        """
        if isinstance(levels, str | bytes | Mapping) or not isinstance(levels, Iterable):
            raise BBLTypeError(
                f"xlevels[{name!r}] must be a list of levels; got {levels!r}.", column=name, argument="xlevels"
            )
        values = list(levels)
        if any(is_missing(v) for v in values):
            raise LevelError(f"xlevels[{name!r}] holds a missing value. Leave it out.", column=name, argument="xlevels")
        typed_values = [plain_level(name, v, True) for v in values]
        factor = cls(name, tuple(v for _, v in typed_values), tuple(k for k, _ in typed_values), declared=True)
        if len(factor._codes) < len(typed_values):
            raise LevelError(
                f"xlevels[{name!r}] gives a level twice: {values!r}. Name each level once.",
                column=name,
                argument="xlevels",
            )
        _check_apart(name, typed_values, "xlevels")
        return factor

    def padded(self) -> Factor:
        """Return the factor with a second level ``"(other)"``, which never occurs, if it has but one."""
        return self._extended("other", "string") if len(self.levels) == 1 else self

    def with_missing(self) -> Factor:
        """Return the factor with a last level ``"(missing)"``, which stands for missing values."""
        return self._extended("missing", "missing")

    def _extended(self, word: str, kind: str) -> Factor:
        """Add a level called ``(word)``, with a number where a level is called so already."""
        labels = itertools.chain([f"({word})"], (f"({word} {k})" for k in itertools.count(2)))
        label = next(x for x in labels if x not in self.levels)
        return replace(self, levels=(*self.levels, label), kinds=(*self.kinds, kind))

    def encode(
        self,
        column: Column,
        unseen: str = "raise",
        argument: str = "data",
        skip_missing: bool = False,
        remedy: str = KNOWN_PREDICTOR,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the codes of a column.

        Parameters
        ----------
        column : Column
            See `factorise`.
        unseen : {"raise", "ignore"}, default "raise"
            Whether a value that is no level is an error, or is coded 0 and marked.
        skip_missing : bool, default False
            Whether missing values are coded 0 and not marked, instead of being values like all others.
        remedy : str, optional
            What helps where a value is no level.

        Returns
        -------
        codes : ndarray of uint8, uint16 or int32, shape (n,)
        strange : ndarray of bool, shape (n,), or None
            Rows whose value is no level; None if there are none.

        Raises
        ------
        LevelError
            If `unseen` is "raise" and there are any; names column and levels.
        """
        where = [self._code(k, v, skip_missing) for k, v in zip(column.kinds, column.values, strict=True)]
        lookup = np.array(where, dtype=np.int64)
        strange = lookup < 0
        if skip_missing and "missing" in column.kinds:
            strange[-1] = False
        if strange.any() and (strange := strange & column.used()).any() and unseen == "raise":
            self._raise_unseen([v for v, s in zip(column.values, strange, strict=True) if s], argument, remedy)
        if np.array_equal(lookup, np.arange(len(lookup))):  # as of declared levels
            codes = column.codes.astype(code_dtype(len(self.levels)))
        else:
            codes = np.maximum(lookup, 0).astype(code_dtype(len(self.levels)))[column.codes]
        return codes, strange[column.codes] if strange.any() else None

    def _code(self, kind: str, value: Any, skip_missing: bool) -> int:
        """Return the code of a value: of its level, of its interval, or of the level for rare values; else -1."""
        code = self._codes.get(level_key(kind, value), -1)
        if code < 0 and kind == "number" and self._intervals:
            code = next((a for ends, a in self._intervals if ends.holds(value)), -1)
        if code < 0 and not (kind == "missing" and skip_missing):
            code = self._codes.get(("string", RARE_LEVEL), -1)
        return code

    def _raise_unseen(self, values: list, argument: str, remedy: str) -> None:
        values = ["missing values" if v is None else repr(v) for v in values]
        shown = ", ".join(values[:SHOWN]) + (f", and {len(values) - SHOWN} more" * (len(values) > SHOWN))
        shown_levels = ", ".join(map(repr, self.levels[:SHOWN])) + (", and more" * (len(self.levels) > SHOWN))
        if argument == "xlevels":
            text = f"column {self.name!r} has levels that xlevels does not list: {shown}. Add them to {shown_levels}"
        else:
            text = f"column {self.name!r} has levels that the model does not know: {shown}; "
            text += f"it knows {shown_levels}. {remedy}"
        raise LevelError(text + ".", column=self.name, argument=argument)


def _check_apart(name: Hashable, levels: list[tuple[str, Any]], argument: str) -> None:
    """Refuse True beside 1, and an interval beside its text: tables and look-ups by label cannot tell them apart."""
    values_of_kind = {kind: {v: v for k, v in levels if k == kind} for kind in ("number", "string")}
    for kind, value in levels:
        label, other_kind = (str(value), "string") if kind == "other" else (value, "number")
        if kind in ("bool", "other") and label in values_of_kind[other_kind]:
            where = f"xlevels[{name!r}]" if argument == "xlevels" else f"column {name!r}"
            raise LevelError(
                f"{where} holds both {value!r} and {values_of_kind[other_kind][label]!r}, which cannot be told apart "
                "as labels. Write them as different strings, or one of them as the other.",
                column=name,
                argument=argument,
            )


def _sorted(levels: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    try:
        return sorted(levels, key=lambda level: (KINDS.index(level[0]), level[1]))
    except TypeError:  # other kinds may have no order
        return sorted(levels, key=lambda level: (KINDS.index(level[0]), level_key(*level)[1]))
