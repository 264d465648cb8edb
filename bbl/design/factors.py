"""Factors: levels and codes of a column, keyed by kind and value; any data frame that narwhals reads."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from bbl.checks import near_match
from bbl.design.sample import code_dtype
from bbl.errors import BBLTypeError, DataError, LevelError

__all__ = ["Column", "Factor", "Table", "key"]

FEW = 20
OTHER = "(other)"


def key(value: Any) -> tuple[str, Any]:
    """Return what identifies a level: its kind and value. 1, True and '1' differ; 1 and 1.0 are the same."""
    if isinstance(value, bool | np.bool_):
        return "bool", bool(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return "number", int(number) if number.is_integer() else number
    if isinstance(value, str):
        return "str", str(value)
    return type(value).__name__, value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class Column:
    """One column, factorised: ``values[codes[k]]`` is row k, code -1 a missing value.

    Attributes
    ----------
    values : list
        Distinct values; for categories all declared ones, in declared order.
    codes : ndarray of intp, shape (n,)
    declared, ordered : bool
        Whether the order of `values` was declared, and declared to mean something.
    """

    values: list
    codes: np.ndarray
    declared: bool = False
    ordered: bool = False


class Table:
    """Named columns of the user's data, one interface for every kind of data frame.

    Parameters
    ----------
    data : pandas or polars DataFrame, pyarrow Table, or mapping of names to columns
    argument : str
        What to call it in messages.

    Raises
    ------
    BBLTypeError
        If `data` is something else.
    DataError
        If a column name occurs twice, or columns of a mapping differ in length.
    """

    def __init__(self, data: Any, argument: str = "data"):
        self.argument = argument
        self.index: pd.Index | None = None
        if isinstance(data, Mapping):
            lengths = {k: len(v) if hasattr(v, "__len__") else -1 for k, v in data.items()}
            if len(set(lengths.values())) > 1 or -1 in lengths.values() or any(isinstance(v, str) for v in data.values()):
                raise DataError(f"{argument}: the columns of a dict must be lists of one length; got {lengths}.")
            self.columns, self.n = list(data), max(lengths.values(), default=0)
            self._get = lambda name: data[name]
        elif isinstance(data, pd.DataFrame):
            self.columns, self.n, self.index = list(data.columns), len(data), data.index
            self._get = lambda name: data.iloc[:, self.columns.index(name)]
        else:
            try:
                frame = nw.from_native(data, eager_only=True)
            except TypeError:
                raise BBLTypeError(
                    f"{argument} must be a data frame (pandas, polars), a pyarrow Table or a dict of lists; "
                    f"got {type(data).__name__}.",
                    argument=argument,
                ) from None
            if not hasattr(frame, "columns"):
                raise BBLTypeError(f"{argument} must be a data frame, not a single column.", argument=argument)
            self.columns, self.n = list(frame.columns), len(frame)
            self._get = frame.get_column
        seen: set = set()
        for name in self.columns:
            if name in seen:
                raise DataError(f"{argument} has the column {name!r} twice (duplicate); rename one.", column=name)
            seen.add(name)

    def check(self, name: Hashable, what: str = "column") -> None:
        """Raise if there is no column `name`."""
        if name not in self.columns:
            shown = ", ".join(map(repr, self.columns[:10])) + (", ..." if len(self.columns) > 10 else "")
            raise DataError(
                f"{what} {name!r} is not in {self.argument}{near_match(name, self.columns)}. It has the columns {shown}.",
                column=name,
            )

    def values(self, name: Hashable) -> np.ndarray:
        """Return a column as it is, as a numpy array."""
        column = self._get(name)
        return column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)

    def column(self, name: Hashable, rows: np.ndarray | None = None) -> Column:
        """Return a column factorised, at the positions `rows` only."""
        try:
            return _factorise(self._get(name), rows)
        except (TypeError, ValueError, pd.errors.ParserError):
            raise BBLTypeError(
                f"column {name!r} of {self.argument} holds values that cannot be levels (lists or other containers); "
                "give strings, numbers or booleans.",
                column=name,
            ) from None


def _factorise(column: Any, rows: np.ndarray | None) -> Column:
    if isinstance(column, nw.Series):
        if column.dtype in (nw.Categorical, nw.Enum):
            column = _narwhals_categories(column)
        else:
            native = column.to_list()
            column = pd.Series(native, dtype=object) if column.dtype == nw.String else pd.Series(native)
    if isinstance(column, pd.Categorical):
        column = pd.Series(column)
    if isinstance(column, pd.Series) and isinstance(column.dtype, pd.CategoricalDtype):
        codes = np.asarray(column.cat.codes, dtype=np.intp)
        return Column(column.cat.categories.tolist(), codes if rows is None else codes[rows], True, column.cat.ordered)
    series = column if isinstance(column, pd.Series) else _series(column)
    if rows is not None:
        series = series.iloc[rows]
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    if series.dtype == object and pd.api.types.infer_dtype(series, skipna=True).startswith("mixed"):
        # 1 and True hash alike: distinguish them by kind
        missing = series.isna().to_numpy()
        found: dict[tuple, int] = {}
        codes = np.array(
            [-1 if gone else found.setdefault(key(v), len(found)) for v, gone in zip(series, missing, strict=True)],
            dtype=np.intp,
        )
        firsts = {c: _plain(v) for v, c in zip(series[::-1], codes[::-1], strict=True)}
        return Column([firsts[c] for c in range(len(found))], codes)
    codes, values = pd.factorize(series)
    return Column([_plain(v) for v in pd.Index(values).tolist()], codes.astype(np.intp))


def _series(column: Any) -> pd.Series:
    """Return a list or array as a Series; strings and mixtures stay Python objects."""
    array = column if isinstance(column, np.ndarray) else np.asarray(list(column), dtype=object)
    if array.ndim != 1:
        raise TypeError("not one-dimensional")
    return pd.Series(array, dtype=object).infer_objects() if array.dtype == object else pd.Series(array)


def _narwhals_categories(column: nw.Series) -> pd.Series:
    values = column.to_list()
    if column.dtype == nw.Enum:
        categories = column.cat.get_categories().to_list()
    else:
        categories = sorted({v for v in values if v is not None})
    return pd.Series(pd.Categorical(values, categories=categories, ordered=column.dtype == nw.Enum))


def _check_kinds(name: Hashable, values: Sequence) -> None:
    for value in values:
        kind = type(value).__name__
        if isinstance(value, complex | list | dict | set | bytes) or kind in ("datetime", "date", "Timestamp", "Timedelta"):
            raise BBLTypeError(
                f"column {name!r} holds values of type {kind}, which cannot be levels; make strings or bins of them.",
                column=name,
            )


def _check_continuous(name: Hashable, values: Sequence, n: int) -> None:
    numbers_ = [v for v in values if isinstance(v, float)]
    if len(numbers_) > max(FEW, n / 10) and any(math.isfinite(v) and not float(v).is_integer() for v in numbers_):
        raise DataError(
            f"column {name!r} is continuous: {len(numbers_)} distinct numbers in {n} rows. Bin it into levels first, "
            "for example with pandas.cut or pandas.qcut.",
            column=name,
        )


def _sorted(values: Sequence) -> list:
    try:
        return sorted(values, key=lambda v: (0, *key(v)) if key(v)[0] in ("bool", "number") else (1, *key(v)))
    except TypeError:
        return sorted(values, key=lambda v: (key(v)[0], str(v)))


@dataclass(frozen=True)
class Factor:
    """A named factor: its levels in order; the first is the reference level.

    Attributes
    ----------
    name : hashable
    levels : tuple
    """

    name: Hashable
    levels: tuple

    @classmethod
    def collect(
        cls, name: Hashable, column: Column, *, response: bool = False, known: Sequence | None = None, novarOk: bool = False
    ) -> Factor:
        """Find the levels of a column.

        Levels of a declared order keep it if it is ordered (for the response: in any case); others are sorted,
        numbers numerically. Categories that do not occur are dropped. `known` gives all levels in order instead.

        Raises
        ------
        DataError, LevelError, BBLTypeError
            Missing values, a continuous column, a single level, values that cannot be levels.
        """
        gone = int((column.codes < 0).sum())
        if gone:
            raise DataError(
                f"column {name!r} has {gone} missing value{'s' if gone > 1 else ''}; drop those rows (dropna) or give "
                "them a level of their own (fillna).",
                column=name,
            )
        used = np.flatnonzero(np.bincount(column.codes, minlength=len(column.values)))
        values = [_plain(column.values[u]) for u in used]
        _check_kinds(name, values)
        if not column.declared:
            _check_continuous(name, values, len(column.codes))
        if known is not None:
            return cls._given(name, known, values)
        if not (column.ordered or (response and column.declared)):
            values = _sorted(values)
        if len(values) < 2:
            if response:
                raise DataError(
                    f"the response {name!r} has one level only ({values[0]!r}); there is nothing to tell apart.", column=name
                )
            if not novarOk:
                raise LevelError(
                    f"predictor {name!r} is constant ({values[0]!r} in all rows); drop it, by removeConst(data) or "
                    f"'- {name}', or give novarOk=True.",
                    column=name,
                )
            values.append(OTHER if values[0] != OTHER else OTHER + "2")
        return cls(name, tuple(values))

    @classmethod
    def _given(cls, name: Hashable, known: Sequence, values: Sequence) -> Factor:
        if isinstance(known, str) or not isinstance(known, Sequence | np.ndarray | pd.Index) or len(known) < 2:
            raise DataError(f"xlevels[{name!r}] must list at least two levels; got {known!r}.", argument="xlevels", column=name)
        levels = [_plain(v) for v in known]
        if len({key(v) for v in levels}) < len(levels):
            raise DataError(f"xlevels[{name!r}] has a level twice: {levels!r}.", argument="xlevels", column=name)
        lacking = [v for v in values if key(v) not in {key(k) for k in levels}]
        if lacking:
            raise LevelError(
                f"xlevels[{name!r}] lacks the level{'s' if len(lacking) > 1 else ''} {', '.join(map(repr, lacking[:5]))} of "
                "the data; add them.",
                argument="xlevels",
                column=name,
            )
        return cls(name, tuple(levels))

    @cached_property
    def _position(self) -> dict:
        return {key(v): i for i, v in enumerate(self.levels)}

    def encode(self, column: Column, unseen: str = "raise") -> tuple[np.ndarray, np.ndarray | None]:
        """Return the codes of a column, and where its level is unknown (None for nowhere).

        Raises
        ------
        DataError
            If values are missing.
        LevelError
            If a level is unknown and `unseen` is "raise".
        """
        if (column.codes < 0).any():
            raise DataError(
                f"column {self.name!r} has {int((column.codes < 0).sum())} missing values; drop those rows or fill them.",
                column=self.name,
            )
        table = np.array([self._position.get(key(v), -1) for v in column.values] or [0], dtype=np.int64)
        codes = table[column.codes]
        unknown = codes < 0
        if not unknown.any():
            return codes.astype(code_dtype(len(self.levels))), None
        if unseen == "raise":
            names = [repr(_plain(column.values[u])) for u in np.unique(column.codes[unknown])]
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            raise LevelError(
                f"column {self.name!r} has the level{'s' if len(names) > 1 else ''} {shown}, unknown to the model, whose "
                f"levels are {', '.join(map(repr, self.levels[:10]))}. Fit with xlevels=, or predict with unseen='ignore'.",
                column=self.name,
            )
        return np.where(unknown, 0, codes).astype(code_dtype(len(self.levels))), unknown
