"""`Frame`: a table of any type (pandas, polars, pyarrow, dict) as named pandas columns."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import pandas as pd

from bbl.checks import near_match
from bbl.errors import BBLTypeError, DataError

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw
    import pyarrow as pa

__all__ = [
    "DeclaredOrder",
    "Frame",
    "declared_order",
    "decode_arrow",
    "describe_difference",
    "is_dictionary",
    "is_pyarrow",
    "to_frame",
]

ORDER_LOST = (
    "was written as categories but stored without their order: Parquet keeps the order of "
    "categories only if they are strings in a column, not values of other types or directory "
    "names. Write the column as dictionary-encoded categories that are strings"
)


class DeclaredOrder(NamedTuple):
    """The columns of an Arrow schema that were declared as categories.

    A *dictionary* column of pyarrow stores positions in an array of distinct values; these may be
    the categories of a pandas Categorical.
    """

    # columns declared as categories by pandas and stored as dictionaries
    categories: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()  # columns declared as ordered
    # columns declared as categories by pandas, but not stored as dictionaries, so their order is
    # lost
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Frame:
    """A table of any type, represented as named pandas columns.

    Attributes
    ----------
    columns : tuple
        Column names, without duplicates.
    index : pandas.Index
        Row labels; 0..n-1 for tables without row labels.
    get : callable
        ``get(k)`` returns column k as a pandas Series.
    argument : str
        Name of the argument in messages.
    arrow : pyarrow RecordBatch or Table, or None
        The same columns as Arrow arrays.
    declared : DeclaredOrder
        The columns of `arrow` that were declared as categories.
    has_index : bool
        Whether `index` comes from a pandas DataFrame. If so, a Series of weights must have the same
        index.
    """

    columns: tuple[Hashable, ...]
    index: pd.Index
    get: Callable[[int], pd.Series]
    argument: str
    arrow: Any = None
    declared: DeclaredOrder = DeclaredOrder()
    has_index: bool = False

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.index)

    def order_problem(self, name: Hashable) -> str:
        """Return the reason why the declared order of a column is unknown, with a remedy, or "" if
        the order is known.
        """
        if name in self.declared.lost:
            return ORDER_LOST
        if self.arrow is None or name not in self.declared.categories | self.declared.ordered:
            return ""
        # columns of a RecordBatch have no such attribute
        chunks = getattr(self.arrow.column(name), "chunks", ())
        dictionaries = [chunk.dictionary for chunk in chunks if len(chunk.dictionary)]
        other = next(
            (dictionary for dictionary in dictionaries if not dictionary.equals(dictionaries[0])),
            None,
        )
        if other is None:
            return ""
        return describe_difference(dictionaries[0].to_pylist(), other.to_pylist(), "chunks")

    @cached_property
    def _position(self) -> dict[Hashable, int]:
        """Position of each column, by name."""
        return {name: k for k, name in enumerate(self.columns)}

    def has(self, name: object) -> TypeGuard[Hashable]:
        """Return whether there is a column called `name`, which may have any type."""
        try:
            return name in self._position
        except TypeError:  # not hashable
            return False

    def column(self, name: Hashable) -> pd.Series:
        """Return a column; raise a DataError if it does not exist."""
        if name not in self._position:
            shown = ", ".join(map(str, self.columns[:10])) + (
                ", and more" if len(self.columns) > 10 else ""
            )
            near = near_match(name, self.columns)
            raise DataError(
                f"{self.argument} has no column {name!r}. Its columns are: {shown}.",
                column=name,
                argument=self.argument,
                hint=f"{near}Choose one of them.",
            )
        return self.get(self._position[name])


def to_frame(data: Any, argument: str = "data") -> Frame:
    """Return any supported table as a `Frame`, and avoid copies if possible.

    Parameters
    ----------
    data : pandas or polars DataFrame, pyarrow Table, other eager frame of narwhals, or dict
    argument : str, default "data"
        Name of the argument, for messages.

    Returns
    -------
    Frame

    Raises
    ------
    BBLTypeError
        If `data` is not a table.
    DataError
        If a column name is duplicated, or if the columns of a dict differ in length or index.

    Examples
    --------
    >>> to_frame({"a": [1, 2], "b": ["x", "y"]}).columns
    ('a', 'b')
    """
    if isinstance(data, Frame):
        return data
    has_index = isinstance(data, pd.DataFrame)  # determined before a dict is converted
    if isinstance(data, Mapping):
        _check_aligned(data, argument)
        try:
            data = pd.DataFrame({name: _plain_column(column) for name, column in data.items()})
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{argument} is a dict that cannot be read as a table ({error}).",
                argument=argument,
                hint="Pass lists of equal length.",
            ) from None
    if isinstance(data, pd.DataFrame):
        frame = data
        column_names = tuple(data.columns)
        _check_names(list(column_names), argument)

        def get(k: int) -> pd.Series:
            """Return column k.

            Access by name is twice as fast as by position, but a tuple could select several
            columns.
            """
            return frame[column_names[k]] if type(column_names[k]) is str else frame.iloc[:, k]

        return Frame(column_names, frame.index, get, argument, has_index=has_index)
    import narwhals.stable.v2 as nw  # imported here because pandas DataFrames do not need it

    if is_pyarrow(data, "RecordBatch"):
        data = sys.modules["pyarrow"].Table.from_batches([data])
    # pyarrow allows duplicate names, but narwhals does not
    _check_names(list(getattr(data, "column_names", ())), argument)
    try:
        table = nw.from_native(data, eager_only=True)
    except TypeError:
        remedy = "Convert it with pandas.DataFrame(...), and collect lazy frames first."
        if isinstance(data, str | os.PathLike):
            remedy = "Read a file first, for example with pandas.read_csv(...)." + (
                " Pass the formula before the data." if argument == "data" else ""
            )
        type_name = f"{type(data).__module__}.{type(data).__name__}".removeprefix("builtins.")
        raise BBLTypeError(
            f"{argument} must be a pandas or polars DataFrame, a pyarrow Table or a dict of "
            f"lists; got {type_name}.",
            argument=argument,
            hint=remedy,
        ) from None
    names = tuple(table.columns)
    index = pd.RangeIndex(len(table))
    if not is_pyarrow(data, "Table"):
        return Frame(names, index, lambda k: _to_pandas(table[names[k]]), argument)
    declared = declared_order(data.schema)
    return Frame(
        names,
        index,
        lambda k: decode_arrow(data.column(k), names[k] in declared.categories),
        argument,
        data,
        declared,
    )


def _check_names(names: list, argument: str) -> None:
    """Refuse duplicate column names."""
    if len(set(names)) < len(names):
        name, count = next((name, count) for name, count in Counter(names).items() if count > 1)
        raise DataError(
            f"{argument} has the duplicate column name {name!r}, {count} times.",
            column=name,
            argument=argument,
            hint="Rename the columns.",
        )


def _check_aligned(data: Mapping, argument: str) -> None:
    """Raise an error for a dict of Series with different indexes, because they would be matched by
    position.
    """
    series = [(name, column) for name, column in data.items() if isinstance(column, pd.Series)]
    for name, column in series[1:]:
        if not column.index.equals(series[0][1].index):
            raise DataError(
                f"{argument} is a dict of Series, but {name!r} and {series[0][0]!r} have "
                "different indexes.",
                column=name,
                argument=argument,
                hint=(
                    "Align them with pandas.DataFrame(...), or pass .to_numpy() to match by "
                    "position."
                ),
            )


def is_pyarrow(data: object, kind: str) -> bool:
    """Return whether `data` is an instance of pyarrow's class `kind`, without importing pyarrow."""
    return type(data).__module__.partition(".")[0] == "pyarrow" and type(data).__name__ == kind


def declared_order(schema: pa.Schema, partition_keys: Collection[str] = ()) -> DeclaredOrder:
    """Return the columns of an Arrow schema that were declared as categories.

    The declared categories are determined from dictionary types and pandas metadata.
    `partition_keys` are columns whose values are taken from directory names.
    """
    # one dict for each column of the DataFrame
    column_metadata = (schema.pandas_metadata or {}).get("columns", ())
    by_pandas = {  # categories declared by pandas: whether those of each column are ordered
        column["field_name"]: bool((column["metadata"] or {}).get("ordered"))
        for column in column_metadata
        if column["pandas_type"] == "categorical"
    }
    type_by_name = {field.name: field.type for field in schema if field.name not in partition_keys}
    dictionary_names = {name for name, type_ in type_by_name.items() if is_dictionary(type_)}
    ordered_names = {name for name in dictionary_names if type_by_name[name].ordered}
    ordered_names |= {name for name, is_ordered in by_pandas.items() if is_ordered}
    return DeclaredOrder(
        frozenset(by_pandas.keys() & dictionary_names),
        frozenset(ordered_names),
        frozenset(by_pandas.keys() - dictionary_names),
    )


def describe_difference(first: list, second: list, part_word: str) -> str:
    """Return an error message about a column whose categories differ between parts of the data.

    The different categories are `first` and `second`; `part_word` is the word for several parts:
    "chunks" or "batches".
    """
    return (
        f"has categories that differ between {part_word}: {first} and {second}. Declare the same "
        "categories everywhere"
    )


def is_dictionary(type_: pa.DataType) -> bool:
    """Return whether an Arrow type is a dictionary type."""
    return str(type_).startswith("dictionary")


def decode_arrow(arrow: pa.Array | pa.ChunkedArray, declared: bool = False) -> pd.Series:
    """Return a pyarrow array as a pandas Series.

    A dictionary is converted to a categorical Series only if it is ordered (as for polars Enums) or
    was created from pandas categories (`declared`). In any other dictionary, the order of the
    values is only the order of storage, so the column is not categorical.
    """
    if is_dictionary(arrow.type) and not (declared or arrow.type.ordered):
        arrow = arrow.cast(arrow.type.value_type)
    if str(arrow.type).startswith("decimal"):  # pandas would convert them to objects
        try:
            return arrow.cast("int64" if arrow.type.scale == 0 else "float64").to_pandas()
        except ValueError:  # an integer is too large; ArrowInvalid of pyarrow is a ValueError
            return arrow.cast("float64").to_pandas()
    return arrow.to_pandas()


def _plain_column(column: Any) -> Any:
    """Convert a column of a dict for pandas, and keep the levels declared in polars and pyarrow."""
    if isinstance(column, pd.Series):
        return column.array
    if type(column).__module__.partition(".")[0] == "pyarrow" and hasattr(column, "to_pandas"):
        return decode_arrow(column).array
    import narwhals.stable.v2 as nw

    # lists and arrays are returned unchanged
    series = nw.from_native(column, series_only=True, pass_through=True)
    return _to_pandas(series).array if isinstance(series, nw.Series) else column


def _to_pandas(series: nw.Series) -> pd.Series:
    """Convert a narwhals Series to a pandas Series, and keep the declared levels."""
    import narwhals.stable.v2 as nw

    if isinstance(series.dtype, nw.Enum):
        return pd.Series(
            pd.Categorical(series.to_numpy(), list(series.dtype.categories), ordered=True)
        )
    if series.dtype.is_nested():
        # Python objects, which raise an error with the column name when they are used
        return pd.Series(series.to_list(), dtype=object)
    if series.dtype in (nw.Int128, nw.UInt128) and series.abs().max() in range(2**63):
        return pd.Series(series.cast(nw.Int64).to_numpy())
    if series.dtype in (nw.Decimal, nw.Int128, nw.UInt128):
        return pd.Series(series.cast(nw.Float64).to_numpy())
    # polars orders categories by first appearance, so their order is not declared
    if series.dtype in (nw.String, nw.Categorical):
        try:
            return series.cast(nw.String).to_pandas()  # fast, but requires pyarrow
        except ImportError:
            return pd.Series(series.to_numpy(), dtype=object)
    return pd.Series(series.to_numpy())
