"""Read columns as codes and distinct values, and raise errors for values that cannot be levels."""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

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


MAX_SHOWN = 5  # maximum number of columns whose problems are described in full


class ColumnProblems:
    """Collected errors about the columns of a table.

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
        """Collect an error that is raised in the ``with`` block, for `refuse` to raise later."""
        try:
            yield
        except (DataError, BBLTypeError) as error:
            self.errors.append(error)

    def refuse(self) -> None:
        """Raise all errors as one error of the class of the first one; raise a single error
        unchanged.
        """
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
    """Return the message of an error, beginning with a capital letter."""
    return error.message[:1].upper() + error.message[1:]


def _join_hints(errors: list[BBLError]) -> Hint | None:
    """Return one hint for each kind of problem, with the names of the affected columns.

    Problems are of the same kind if their hints differ only in the column name.
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
        """Return the hints as worded for Python (""), the command line or the estimators."""
        texts = []
        for alike in errors_by_kind.values():
            hint = alike[0].hint
            text = str(getattr(hint, words, hint))
            names = [repr(error.column) for error in alike]
            if any(mention in text for mention in _mentions(alike[0].column)):
                same = f" Do the same for {_shorten(names[1:])}." if names[1:] else ""
                texts.append(f"{text}{same}")
            elif len(errors_by_kind) > 1:
                texts.append(f"{_shorten(names)}: {text}")
            else:
                texts.append(text)
        return " ".join(texts)

    return Hint(join(""), command_line=join("command_line"), estimators=join("estimators"))


def _mentions(column: object) -> tuple[str, ...]:
    """Return a column's name in the three forms used in hints: as a value, in a formula and in an
    option.
    """
    return repr(column), f"- {column})", f"'{column}="


def _shorten(names: list[str]) -> str:
    """Join up to ten names, and add the number of the remaining names."""
    return ", ".join(names[:10]) + f", and {len(names) - 10} more" * (len(names) > 10)


KINDS = ("bool", "number", "string", "other", "missing")
# these types are accepted as levels only if they are declared categories
TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period)
UNUSABLE = (complex, np.complexfloating, list, tuple, dict, set, frozenset, np.ndarray, pd.Series)


class Column(NamedTuple):
    """A column as codes and distinct values.

    Attributes
    ----------
    name : hashable
    codes : ndarray of int, shape (n,)
        Positions in `values`.
    values : list
        Distinct values as plain Python objects; missing values are represented by a final None.
    kinds : list of {"bool", "number", "string", "other", "missing"}
        Kind of each value.
    declared, ordered : bool
        Whether the values are declared categories (of pandas or Arrow), and whether the categories
        are declared as ordered.
    order_problem : str
        Reason why the declared order is unknown (`Frame.order_problem`); empty if it is known.
    """

    name: Hashable
    codes: np.ndarray
    values: list
    kinds: list[str]
    declared: bool
    ordered: bool
    order_problem: str = ""

    def used(self) -> np.ndarray:
        """Return a mask of the values that occur."""
        return self.value_rows() > 0

    def value_rows(self, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the number of rows with each value, or the sum of their `weights` (n,)."""
        return np.bincount(self.codes, weights, minlength=len(self.values))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def missing(self) -> np.ndarray | None:
        """Return a mask (n,) of rows with a missing value, or None if there are none."""
        return self.codes == len(self.kinds) - 1 if "missing" in self.kinds else None

    @property
    def n_missing(self) -> int:
        """The number of rows with a missing value."""
        is_missing = self.missing()
        return 0 if is_missing is None else int(is_missing.sum())


class Counted(NamedTuple):
    """The distinct values of a column and their counts, without the rows of the column.

    The other attributes are the same as in `Column`.
    """

    name: Hashable
    counts: np.ndarray  # number of rows with each value, (number of values,)
    values: list
    kinds: list[str]
    declared: bool
    ordered: bool
    order_problem: str = ""

    def used(self) -> np.ndarray:
        """Return a mask of the values that occur."""
        return self.counts > 0

    def value_rows(self) -> np.ndarray:
        """Return the number of rows with each value."""
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
    """Return the codes (n,) of a Series (-1 for missing values), its distinct values, and its
    categories.

    The categories are None if the Series is not categorical. Raise a TypeError or
    NotImplementedError for values that cannot be hashed.
    """
    if isinstance(series.dtype, pd.ArrowDtype) and str(series.dtype).startswith("dictionary"):
        # categorical only if the dictionary is ordered
        series = decode_arrow(series.array.__arrow_array__())
    if isinstance(series.dtype, pd.CategoricalDtype):
        # the accessor `series.cat` creates a Series of the codes, which takes longer than the rest
        categorical = cast(pd.Categorical, series.array)
        return categorical.codes, categorical.categories.tolist(), series.dtype
    if isinstance(series.dtype, pd.SparseDtype):
        series = pd.Series(series.array.to_dense())
    if series.dtype == object and pd.api.types.infer_dtype(series, skipna=True).startswith("mixed"):
        # True and 1 have the same hash, so booleans are coded separately
        cells = series.to_numpy()
        is_bool = np.fromiter(
            (isinstance(v, bool | np.bool_) for v in cells), dtype=bool, count=len(cells)
        )
        without_bools = cells.copy()
        without_bools[is_bool] = None
        codes, other_values = pd.factorize(without_bools)
        codes[is_bool] = len(other_values) + cells[is_bool].astype(bool)
        return codes, [*other_values.tolist(), False, True], None
    # without an Index of the values, half of the time of short columns
    codes, values = pd.factorize(series) if series.dtype == object else series.array.factorize()
    return codes, values.tolist(), None


def factorise(name: Hashable, series: pd.Series, missing: str = "raise") -> Column:
    """Return a column as codes and distinct values.

    Raise an error for dates, lists, and complex or infinite numbers. With ``missing="raise"``,
    missing values also raise an error; with "keep", the last value represents them and has the kind
    "missing".
    """
    # "m", "M", "c": time differences, times, complex numbers
    kind = getattr(series.dtype, "kind", "O")
    if kind in "mMc" or isinstance(series.dtype, pd.PeriodDtype):
        _refuse(name, f"values of type {series.dtype}")
    try:
        codes, values, dtype = find_distinct(series)
    except (TypeError, NotImplementedError):  # pyarrow raises the latter
        _refuse(name, "lists or other nested values", nested=True)
    # the last entry is for rows with code -1
    is_missing_value = np.array([is_missing(v) for v in values] + [True])
    is_missing_row = is_missing_value[codes] if is_missing_value[:-1].any() else codes < 0
    n_missing = int(is_missing_row.sum())
    declared = dtype is not None
    if n_missing and missing == "raise":
        refuse_missing_training(name, n_missing)
    # Missing rows receive the last code. If `values` contains a missing value, it remains with kind
    # "other" although no row has it, so that the codes of the other values do not change.
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
    """Return a column of a table as codes and distinct values; the last value represents missing
    values.
    """
    # The columns of a Table are divided into chunks, each with a separate dictionary.
    # `frame.column` raises an error for an absent column.
    if is_pyarrow(frame.arrow, "RecordBatch") and frame.has(name):
        column = _read_arrow_column(
            name, frame.arrow.column(name), declared=name in frame.declared.categories
        )
    else:
        column = factorise(name, frame.column(name), missing="keep")
    return with_order(frame, column)


def with_order(frame: Frame, column: Column) -> Column:
    """Set the `order_problem` of a column of `frame` if its declared order is unknown."""
    problem = frame.order_problem(column.name)
    # if the dictionaries are not used, only the schema (`declared`) shows whether categories are
    # ordered
    return (
        column._replace(order_problem=problem, ordered=column.name in frame.declared.ordered)
        if problem
        else column
    )


def _read_arrow_column(name: Hashable, array: pa.Array, declared: bool = False) -> Column:
    """Return a pyarrow array as codes and distinct values, checked as in `factorise`.

    Only the distinct values are converted to Python objects. The values are declared categories if
    `declared` is True or the Arrow dictionary is ordered.
    """
    import pyarrow as pa

    try:
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    except pa.ArrowNotImplementedError:
        _refuse(name, f"values of type {array.type}", nested=True)
    try:
        dictionary_values = encoded.dictionary.to_pandas()
    except pa.ArrowInvalid:  # times with nanoseconds
        _refuse(name, f"values of type {array.type}")
    if declared or encoded.type.ordered:
        dictionary_values = pd.Series(
            pd.Categorical(
                dictionary_values, dictionary_values.dropna().unique(), ordered=encoded.type.ordered
            )
        )
    # the codes map entries of the dictionary to values
    column = factorise(name, dictionary_values, missing="keep")
    arrow_codes = encoded.indices.cast("int64")  # the dictionary entry of each row
    if not arrow_codes.null_count:
        return column._replace(codes=column.codes[arrow_codes.to_numpy()])
    if "missing" not in column.kinds:
        column = column._replace(values=[*column.values, None], kinds=[*column.kinds, "missing"])
    codes = np.append(column.codes, len(column.kinds) - 1)  # the last code is for nulls
    return column._replace(codes=codes[arrow_codes.fill_null(len(dictionary_values)).to_numpy()])


def refuse_missing_training(
    name: Hashable, count: int, sums_out: bool = True, also: str = ""
) -> None:
    """Raise an error about `count` missing values in a training column with ``missing="raise"``.

    `sums_out` is the same as in `missing_remedy`; `also` is an additional sentence of the message
    about all columns.
    """
    raise DataError(
        f"column {name!r} has {count} missing value{'s' * (count > 1)}.{also}",
        column=name,
        hint=missing_remedy(sums_out),
    )


def missing_remedy(sums_out: bool) -> str:
    """Return a hint about missing values in training data.

    `sums_out` indicates whether the engine can marginalise over missing values.
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
    """Raise an error about a column that contains `what`, which cannot be levels.

    `nested` indicates whether the values consist of parts, like lists.
    """
    remedy = (
        "Convert it to strings, numbers or categories. For dates, extract a part such as the month."
    )
    if nested:
        remedy = "Put each part into a separate column, or convert the values to strings."
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
    """Return the kind of a level of column `name` and its plain Python value.

    Times are refused unless `declared`.
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

    The keys of levels of different kinds (``1``, ``"1"``, ``True``) always differ. Numbers are
    compared by value (``1`` equals ``1.0``), and values of kind "other" (intervals, bytes) are
    compared by their text. All missing values are equal.
    """
    return kind, str(value) if kind == "other" else None if kind == "missing" else value
