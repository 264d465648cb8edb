"""Read columns as codes into their distinct values; find missing values and refuse values that
cannot be levels.

Each value has a *kind*, one of `KINDS`. The categories of pandas and Arrow are *declared* values.
An Arrow *dictionary* has codes (`indices`) into its distinct values (`dictionary`). A `Frame` is a
table; its attribute `arrow` has the same columns as Arrow arrays, or is None, and `declared` (a
`DeclaredOrder`) has the names of its columns of categories and of ordered ones.
"""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from bbl.design.frames import Frame, decode_arrow, is_pyarrow
from bbl.errors import BBLError, BBLTypeError, DataError, Hint

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "KINDS",
    "Column",
    "ColumnProblems",
    "Counted",
    "factorise",
    "find_distinct",
    "frame_column",
    "is_missing",
    "level_key",
    "missing_remedy",
    "plain_level",
    "refuse_missing_training",
    "with_order",
]


MAX_SHOWN = 5  # columns whose problems are told in full


class ColumnProblems:
    """The errors of the columns of a table.

    Attributes
    ----------
    errors : list of DataError or BBLTypeError

    Examples
    --------
    >>> problems = ColumnProblems()
    >>> for name in ("a", "b"):
    ...     with problems.of_column():
    ...         raise DataError(f"column {name!r} is empty.", column=name, hint="Leave it out.")
    >>> problems.refuse()
    Traceback (most recent call last):
    ...
    bbl.errors.DataError: column 'a' is empty. Column 'b' is empty. Hint: Leave it out.
    """

    def __init__(self) -> None:
        self.errors: list[BBLError] = []

    @contextmanager
    def of_column(self) -> Iterator[None]:
        """Keep an error of the ``with`` block for `refuse`."""
        try:
            yield
        except (DataError, BBLTypeError) as error:
            self.errors.append(error)

    def refuse(self) -> None:
        """Raise all errors as one, of the class of the first; a single one as it is."""
        if not self.errors:
            return
        first = self.errors[0]
        if len(self.errors) == 1:
            raise first
        message = " ".join([first.message, *map(_as_sentence, self.errors[1:MAX_SHOWN])])
        others = [repr(error.column) for error in self.errors[MAX_SHOWN:]]
        if others:
            message += f" Other columns cannot be used either: {_shorten(others)}."
        error_class: type[BBLError] = type(first)
        if len({type(error) for error in self.errors}) > 1:
            error_class = BBLTypeError if isinstance(first, BBLTypeError) else DataError
        raise error_class(
            message,
            hint=_join_hints(self.errors),
            argument=first.argument,
            column=first.column,
            value=first.value,
        ) from None


def _as_sentence(error: BBLError) -> str:
    """Return the message of an error with a capital letter."""
    return error.message[:1].upper() + error.message[1:]


def _join_hints(errors: list[BBLError]) -> Hint | None:
    """Return the hint of each kind of problem, with the columns that it is for.

    Problems are of one kind if their hints differ in the name of the column alone.
    """
    errors_by_kind: dict[str, list[BBLError]] = {}
    for error in errors:
        if error.hint:
            kind = error.hint
            for text in _mentions(error.column):
                kind = kind.replace(text, "")
            errors_by_kind.setdefault(kind, []).append(error)
    if not errors_by_kind:
        return None

    def join(words: str) -> str:
        """Return the hints in the words of Python (""), the command line or the estimators."""
        texts = []
        for alike in errors_by_kind.values():
            hint = alike[0].hint
            text = str(getattr(hint, words, hint))
            names = [repr(error.column) for error in alike]
            if any(mention in text for mention in _mentions(alike[0].column)):
                same = f" The same for {_shorten(names[1:])}." if names[1:] else ""
                texts.append(f"{text}{same}")
            elif len(errors_by_kind) > 1:
                texts.append(f"{_shorten(names)}: {text}")
            else:
                texts.append(text)
        return " ".join(texts)

    return Hint(join(""), command_line=join("command_line"), estimators=join("estimators"))


def _mentions(column: object) -> tuple[str, ...]:
    """Return how a hint may name a column: as a value, in a formula or in an option."""
    return repr(column), f"- {column})", f"'{column}="


def _shorten(names: list[str]) -> str:
    """Return up to ten names, and how many more there are."""
    return ", ".join(names[:10]) + f", and {len(names) - 10} more" * (len(names) > 10)


KINDS = ("bool", "number", "string", "other", "missing")
# levels only if they are declared categories
TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period)
UNUSABLE = (complex, np.complexfloating, list, tuple, dict, set, frozenset, np.ndarray, pd.Series)


class Column(NamedTuple):
    """A column as codes into its distinct values.

    Attributes
    ----------
    name : hashable
    codes : ndarray of int, shape (n,)
        Positions in `values`.
    values : list
        Distinct values as plain Python objects; missing values are None, the last one.
    kinds : list of {"bool", "number", "string", "other", "missing"}
        Kind of each of the values.
    declared, ordered : bool
        Whether the values are declared categories, and whether these are declared to be in order.
    order_problem : str
        Why the declared order is unknown (`Frame.order_problem`); empty if it is known.
    """

    name: Hashable
    codes: np.ndarray
    values: list
    kinds: list[str]
    declared: bool
    ordered: bool
    order_problem: str = ""

    def used(self) -> np.ndarray:
        """Return which of the values occur, shape (number of values,)."""
        return self.value_rows() > 0

    def value_rows(self, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the number of rows of each value, or the sum of their `weights` (n,)."""
        return np.bincount(self.codes, weights, minlength=len(self.values))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def missing(self) -> np.ndarray | None:
        """Return which rows have a missing value, shape (n,); None if there are no such rows."""
        return self.codes == len(self.kinds) - 1 if "missing" in self.kinds else None

    @property
    def n_missing(self) -> int:
        """Number of rows with a missing value."""
        is_missing = self.missing()
        return 0 if is_missing is None else int(is_missing.sum())


class Counted(NamedTuple):
    """The distinct values of a column and their counts, without its rows; other attributes as in
    `Column`.
    """

    name: Hashable
    counts: np.ndarray  # rows with each value, (number of values,)
    values: list
    kinds: list[str]
    declared: bool
    ordered: bool
    order_problem: str = ""

    def used(self) -> np.ndarray:
        """Return which of the values occur, shape (number of values,)."""
        return self.counts > 0

    def value_rows(self) -> np.ndarray:
        """Return the number of rows of each value."""
        return self.counts

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())

    @property
    def n_missing(self) -> int:
        """Number of rows with a missing value."""
        return int(
            sum(n for n, kind in zip(self.counts, self.kinds, strict=True) if kind == "missing")
        )


def find_distinct(series: pd.Series) -> tuple[np.ndarray, list, pd.CategoricalDtype | None]:
    """Return the codes (n,) of a Series into its distinct values (-1 for missing), these values,
    and its type.

    The type is None if the Series is not categorical. Values that cannot be hashed raise a
    TypeError or NotImplementedError.
    """
    if isinstance(series.dtype, pd.ArrowDtype) and str(series.dtype).startswith("dictionary"):
        # categorical only if the dictionary is ordered
        series = decode_arrow(series.array.__arrow_array__())
    if isinstance(series.dtype, pd.CategoricalDtype):
        return series.cat.codes.to_numpy(), series.cat.categories.tolist(), series.dtype
    if isinstance(series.dtype, pd.SparseDtype):
        series = pd.Series(series.array.to_dense())
    if series.dtype == object and pd.api.types.infer_dtype(series, skipna=True).startswith("mixed"):
        # True and 1 hash alike: code the booleans separately
        cells = series.to_numpy()
        is_bool = np.fromiter(
            (isinstance(v, bool | np.bool_) for v in cells), dtype=bool, count=len(cells)
        )
        without_bools = cells.copy()
        without_bools[is_bool] = None
        codes, other_values = pd.factorize(without_bools)
        codes[is_bool] = len(other_values) + cells[is_bool].astype(bool)
        return codes, [*other_values.tolist(), False, True], None
    codes, values = pd.factorize(series)
    return codes, values.tolist(), None


def factorise(name: Hashable, series: pd.Series, missing: str = "raise") -> Column:
    """Return a column as codes and distinct values; refuse dates, lists, complex and infinite
    numbers.

    With ``missing="raise"`` missing values are refused, too; with "keep" they are the last value,
    of kind "missing".
    """
    # "m", "M", "c": differences of times, times, complex numbers
    kind = getattr(series.dtype, "kind", "O")
    if kind in "mMc" or isinstance(series.dtype, pd.PeriodDtype):
        _refuse(name, f"type {series.dtype}")
    try:
        codes, values, dtype = find_distinct(series)
    except (TypeError, NotImplementedError):  # the latter from pyarrow
        _refuse(name, "lists or other nested values", nested=True)
    # the last is for rows of code -1
    is_missing_value = np.array([is_missing(v) for v in values] + [True])
    is_missing_row = is_missing_value[codes] if is_missing_value[:-1].any() else codes < 0
    n_missing = int(is_missing_row.sum())
    declared = dtype is not None
    if n_missing and missing == "raise":
        refuse_missing_training(name, n_missing)
    # missing rows get the last code; a missing value among `values` stays, of kind "other", though
    # no row has it any more: so the codes of the other values stay
    kind_value_pairs = [
        ("other", None) if is_missing(v) else plain_level(name, v, declared) for v in values
    ]
    if n_missing:
        codes = np.where(is_missing_row, len(values), codes)
        kind_value_pairs.append(("missing", None))
    plain_values = [value for _, value in kind_value_pairs]
    kinds = [kind for kind, _ in kind_value_pairs]
    return Column(
        name, codes, plain_values, kinds, declared, bool(dtype is not None and dtype.ordered)
    )


def frame_column(frame: Frame, name: Hashable) -> Column:
    """Return a column of a table as codes and distinct values; missing values are the last
    value.
    """
    # columns of a Table are in chunks, each with its own dictionary; an absent column is refused by
    # `frame.column`
    if is_pyarrow(frame.arrow, "RecordBatch") and frame.has(name):
        column = _read_arrow_column(
            name, frame.arrow.column(name), declared=name in frame.declared.categories
        )
    else:
        column = factorise(name, frame.column(name), missing="keep")
    return with_order(frame, column)


def with_order(frame: Frame, column: Column) -> Column:
    """Return a column of `frame` with its `order_problem` set, if its declared order is unknown."""
    problem = frame.order_problem(column.name)
    # without the dictionaries, only the schema (`declared`) tells whether the categories are
    # ordered
    return (
        column._replace(order_problem=problem, ordered=column.name in frame.declared.ordered)
        if problem
        else column
    )


def _read_arrow_column(name: Hashable, array: pa.Array, declared: bool = False) -> Column:
    """Return a pyarrow array as codes and distinct values, checked as in `factorise`.

    Only the distinct values become Python objects. They are declared categories if `declared` is
    True or the Arrow dictionary is ordered.
    """
    import pyarrow as pa

    try:
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    except pa.ArrowNotImplementedError:
        _refuse(name, f"type {array.type}", nested=True)
    try:
        dictionary_values = encoded.dictionary.to_pandas()
    except pa.ArrowInvalid:  # times with nanoseconds
        _refuse(name, f"type {array.type}")
    if declared or encoded.type.ordered:
        dictionary_values = pd.Series(
            pd.Categorical(
                dictionary_values, dictionary_values.dropna().unique(), ordered=encoded.type.ordered
            )
        )
    # its codes lead from dictionary entries to values
    column = factorise(name, dictionary_values, missing="keep")
    arrow_codes = encoded.indices.cast("int64")  # of each row: its dictionary entry
    if not arrow_codes.null_count:
        return column._replace(codes=column.codes[arrow_codes.to_numpy()])
    if "missing" not in column.kinds:
        column = column._replace(values=[*column.values, None], kinds=[*column.kinds, "missing"])
    codes = np.append(column.codes, len(column.kinds) - 1)  # the last is that of nulls
    return column._replace(codes=codes[arrow_codes.fill_null(len(dictionary_values)).to_numpy()])


def refuse_missing_training(
    name: Hashable, count: int, sums_out: bool = True, also: str = ""
) -> None:
    """Raise the error of `count` missing values in a column of training data with
    ``missing="raise"``.

    `sums_out` is as in `missing_remedy`; `also` is a sentence about all columns.
    """
    raise DataError(
        f"column {name!r} has {count} missing value{'s' * (count > 1)}.{also}",
        column=name,
        hint=missing_remedy(sums_out),
    )


def missing_remedy(sums_out: bool) -> str:
    """Return advice about missing values in training data; `sums_out` says whether the engine can
    sum them out.
    """
    if sums_out:
        return (
            "Drop the rows (missing='drop'), make missing values a separate level "
            "(missing='level'), or average over them (missing='marginal')."
        )
    return (
        "Drop the rows (missing='drop'), or make missing values a separate level (missing='level')."
    )


def _refuse(name: Hashable, what: str, nested: bool = False) -> NoReturn:
    """Raise the error of a column that contains `what`, which cannot be levels; `nested` says that
    its values have parts.
    """
    remedy = (
        "Turn it into strings, numbers or categories; for dates, extract a part such as the month."
    )
    if nested:
        remedy = "Put each part into a separate column, or turn the values into strings."
    raise BBLTypeError(
        f"column {name!r} contains {what}, which cannot be levels.", column=name, hint=remedy
    ) from None


def is_missing(value: object) -> bool:
    """Return whether a value is None, NA, NaT or nan."""
    return (
        value is None
        or value is pd.NA
        or value is pd.NaT
        or (isinstance(value, float | Decimal) and value != value)
    )


def plain_level(name: Hashable, value: Hashable, declared: bool) -> tuple[str, Any]:
    """Return the kind and the plain Python object of a level of column `name`; refuse times unless
    `declared`.
    """
    if isinstance(value, bool | np.bool_):
        return "bool", bool(value)
    if isinstance(value, numbers.Integral):
        return "number", int(value)
    if isinstance(value, numbers.Real | Decimal):
        if not math.isfinite(value):
            raise DataError(
                f"{value} is not a level of column {name!r}.",
                column=name,
                hint="Bin the column, or drop the rows.",
            )
        return "number", float(value)
    if isinstance(value, str):
        return "string", str(value)
    if isinstance(value, UNUSABLE) or (isinstance(value, TIMES) and not declared):
        _refuse(
            name, f"values of type {type(value).__name__}", not isinstance(value, (complex, *TIMES))
        )
    return "other", value


def level_key(kind: str, value: Hashable) -> tuple[str, Any]:
    """Return a key that is equal for equal levels.

    Levels of different kinds differ: ``1``, ``"1"`` and ``True``. Numbers are compared by value
    (``1`` equals ``1.0``), values of kind "other" (intervals, bytes) by their text. All missing
    values are equal.
    """
    return kind, str(value) if kind == "other" else None if kind == "missing" else value
