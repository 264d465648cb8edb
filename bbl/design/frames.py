"""Frames: tables of any kind (pandas, polars, pyarrow, dicts) seen as named pandas columns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import pandas as pd

from bbl.checks import near_match
from bbl.errors import BBLTypeError, DataError

__all__ = ["Frame", "decoded", "pandas_categories", "to_frame"]


@dataclass(frozen=True)
class Frame:
    """A table of any kind, seen as named pandas columns.

    Attributes
    ----------
    columns : tuple
        Column names, all different.
    index : pandas.Index
        Row labels; 0..n-1 for tables that have none.
    get : callable
        From the position of a column to a pandas Series.
    argument : str
        What the table is called in messages.
    arrow : pyarrow RecordBatch or None
        The same columns, of a batch whose values are looked at but once for each distinct one.
    declared : frozenset of str
        Columns of `arrow` that are categories of pandas.
    """

    columns: tuple[Hashable, ...]
    index: pd.Index
    get: Callable[[int], pd.Series]
    argument: str
    arrow: Any = None
    declared: frozenset[str] = frozenset()

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.index)

    @cached_property
    def _position(self) -> dict[Hashable, int]:
        return {name: k for k, name in enumerate(self.columns)}

    def has(self, name: object) -> bool:
        """Return whether `name`, of any type, is the name of a column."""
        try:
            return name in self._position
        except TypeError:  # not hashable
            return False

    def column(self, name: Hashable) -> pd.Series:
        """Return a column, or raise a DataError that names it."""
        if name not in self._position:
            shown = ", ".join(map(str, self.columns[:10])) + (", and more" if len(self.columns) > 10 else "")
            hint = near_match(name, self.columns) or "."
            raise DataError(
                f"{self.argument} has no column {name!r}{hint} Its columns are: {shown}.",
                column=name,
                argument=self.argument,
            )
        return self.get(self._position[name])


def to_frame(data: Any, argument: str = "data") -> Frame:
    """Return any supported table as a `Frame`; nothing is copied where that can be helped, nothing is changed.

    Parameters
    ----------
    data : pandas or polars DataFrame, pyarrow Table, any other eager frame that narwhals knows, or dict of columns
    argument : str, default "data"
        Name of the argument, for messages.

    Returns
    -------
    Frame

    Raises
    ------
    BBLTypeError
        If `data` is no table.
    DataError
        If a column name occurs twice, or the columns of a dict differ in length or, as Series, in their index.

    Examples
    --------
    >>> to_frame({"a": [1, 2], "b": ["x", "y"]}).columns
    ('a', 'b')
    """
    if isinstance(data, Frame):
        return data
    if isinstance(data, Mapping):
        _check_aligned(data, argument)
        try:
            data = pd.DataFrame({k: v.array if isinstance(v, pd.Series) else v for k, v in data.items()})
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{argument} is a dict that makes no table ({error}). Give lists of equal length.", argument=argument
            ) from None
    if isinstance(data, pd.DataFrame):
        frame, own = data, tuple(data.columns)
        _check_names(list(own), argument)

        def get(k: int) -> pd.Series:  # by name it takes half the time, but a tuple might stand for several columns
            return frame[own[k]] if type(own[k]) is str else frame.iloc[:, k]

        return Frame(own, frame.index, get, argument)
    _check_names(list(getattr(data, "column_names", ())), argument)  # pyarrow allows repeats, narwhals does not
    try:
        table = nw.from_native(data, eager_only=True)
    except TypeError:
        remedy = "Make one with pandas.DataFrame(...), and collect lazy frames first."
        if isinstance(data, str | os.PathLike):
            remedy = "Read a file first, with pandas.read_csv(...) for one; the formula comes before the data."
        what = f"{type(data).__module__}.{type(data).__name__}".removeprefix("builtins.")
        raise BBLTypeError(
            f"{argument} must be a pandas or polars DataFrame, a pyarrow Table or a dict of lists; got {what}. "
            f"{remedy}",
            argument=argument,
        ) from None
    names, declared = tuple(table.columns), pandas_categories(data)
    return Frame(
        names, pd.RangeIndex(len(table)), lambda k: _to_pandas(table[names[k]], names[k] in declared), argument
    )


def _check_names(names: list, argument: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(
            f"{argument} has the duplicate column name {twice!r}, {names.count(twice)} times. Rename the columns.",
            column=twice,
            argument=argument,
        )


def _check_aligned(data: Mapping, argument: str) -> None:
    """Refuse a dict of Series of different rows, or of the same ones in another order: it would go by position."""
    series = [(name, column) for name, column in data.items() if isinstance(column, pd.Series)]
    for name, column in series[1:]:
        if not column.index.equals(series[0][1].index):
            raise DataError(
                f"{argument} is a dict of Series, and the index of {name!r} differs from that of {series[0][0]!r}. "
                "Align them with pandas.DataFrame(...), or pass .to_numpy() to go by position.",
                column=name,
                argument=argument,
            )


def pandas_categories(data: Any) -> set[str]:
    """Return the columns of a pyarrow table that were categories when pandas made it, as the table says itself."""
    metadata = getattr(getattr(data, "schema", None), "pandas_metadata", None) or {}
    return {column["field_name"] for column in metadata.get("columns", ()) if column["pandas_type"] == "categorical"}


def decoded(arrow: Any, declared: bool = False) -> pd.Series:
    """Return a pyarrow array as a pandas Series.

    A dictionary is a way to store values, and its order that of their appearance: nothing is declared, unless the
    dictionary is said to be ordered (as those of polars Enums are) or comes from pandas categories (`declared`).
    """
    if str(arrow.type).startswith("dictionary") and not (declared or arrow.type.ordered):
        arrow = arrow.cast(arrow.type.value_type)
    return arrow.to_pandas()


def _to_pandas(series: Any, declared: bool) -> pd.Series:
    """Return a narwhals Series as a pandas Series; declared levels stay declared."""
    if series.implementation.is_pyarrow():
        return decoded(series.to_native(), declared)
    if isinstance(series.dtype, nw.Enum):
        return pd.Series(pd.Categorical(series.to_numpy(), list(series.dtype.categories), ordered=True))
    if series.dtype in (nw.String, nw.Categorical):  # polars orders categories by appearance: nothing is declared
        try:
            return series.cast(nw.String).to_pandas()  # quick, if pyarrow is there
        except ImportError:
            return pd.Series(series.to_numpy(), dtype=object)
    return pd.Series(series.to_numpy())
