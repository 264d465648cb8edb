"""Bins: numbers to intervals, and rare levels to one; a fit does the same to new data by itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.checks import choice, integer, near_match, verb
from bbl.design.frames import Frame, to_frame
from bbl.design.intervals import RARE_LEVEL
from bbl.design.values import factorise
from bbl.design.weights import named_weights
from bbl.errors import DataError, OptionError
from bbl.stats.cuts import CUTS, mdl_cuts, quantile_cuts, width_cuts

if TYPE_CHECKING:
    from bbl.design.table_types import TableLike, Weights
    from bbl.design.values import Column

__all__ = ["bin", "find_cuts", "lump"]


@verb
def bin(  # noqa: A001  # the word of the field
    data: TableLike | Frame,
    columns: Hashable | Sequence | None = None,
    *,
    bins: int = 5,
    method: str = "quantile",
    response: Hashable = None,
    weights: Weights | None = None,
) -> pd.DataFrame:
    """Return a table with columns of numbers cut into intervals.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
    columns : name or list of names, optional
        Which columns; by default all of numbers with more than `bins` different values, but the response and the column
        that holds `weights`.
    bins : int, default 5
        How many at most; with ``"mdl"``, of what is cut by default.
    method : {"quantile", "width", "mdl"}, default "quantile"
        About as many rows in each; equal widths; or the cuts that tell the groups of `response` apart by more than they
        cost to describe (Fayyad & Irani 1993), which may be none.
    response : name of a column, optional
        For ``"mdl"``. Never binned by default.
    weights : column name or array of length n, optional
        Frequencies, or any positive weights. Give those of the fit here too: that keeps their column from being binned.

    Returns
    -------
    DataFrame
        The same table with ordered categories of intervals, the first from minus infinity, the last to infinity, so
        that every number is in one. Missing values stay missing. A column that no cut divides is left out of what is
        binned by default, and is one interval if it is named.

    Raises
    ------
    DataError, OptionError
        If a column is absent, holds no numbers, or holds the weights.

    Notes
    -----
    A model that is fitted to intervals knows them: new data may hold the numbers themselves, which `predict` puts
    into the intervals of the training data, also after `bbl.load`. The same holds for columns of `pandas.cut`.

    References
    ----------
    Fayyad UM, Irani KB (1993). Multi-interval discretization of continuous-valued attributes for classification
    learning. IJCAI-93, 1022-1027.

    Examples
    --------
    >>> import bbl
    >>> data = {"y": ["no", "no", "yes", "yes"] * 10, "age": [20.5, 31.0, 40.0, 71.5] * 10}
    >>> table = bbl.bin(data, bins=2)
    >>> table["age"].cat.categories.astype(str).tolist()
    ['(-inf, 35.5]', '(35.5, inf]']
    >>> fit = bbl.bbl("y ~ age", table)
    >>> fit.predict({"age": [18, 99]}, type="class").tolist()
    ['no', 'yes']
    """
    frame, count = to_frame(data), integer("bins", bins, 2)
    choice("method", method, CUTS)
    named, counts = named_weights(weights, frame, whole=False)
    y = None
    if method == "mdl":
        if response is None:
            raise OptionError("method='mdl' needs the groups to tell apart; give response=.", argument="response")
        column = factorise(response, frame.column(response), "keep")
        none = column.missing()
        y = column.codes if none is None else np.where(none, -1, column.codes)
    column_names = _names(columns, frame, named)
    out = {name: frame.column(name) for name in frame.columns}
    for name in frame.columns if column_names is None else column_names:
        numbers = _numbers(frame.column(name))
        if numbers is None:
            if column_names is not None:
                raise DataError(f"column {name!r} holds what is no number, so it cannot be binned.", column=name)
            continue
        is_number = ~np.isnan(numbers) & (counts > 0)
        is_weights = name == named or (weights is not None and np.array_equal(numbers, counts))
        if column_names is None and (name == response or is_weights or len(np.unique(numbers[is_number])) <= count):
            continue
        is_usable = is_number if y is None else is_number & (y >= 0)
        cuts = find_cuts(numbers[is_usable], counts[is_usable], method, count, None if y is None else y[is_usable])
        if len(cuts) or column_names is not None:
            out[name] = pd.Series(_intervals(numbers, cuts), index=frame.index)
    return _table(out, frame)


@verb
def lump(
    data: TableLike | Frame,
    columns: Hashable | Sequence | None = None,
    *,
    min_count: int = 10,
    response: Hashable = None,
    weights: Weights | None = None,
) -> pd.DataFrame:
    """Return a table with the rare levels of each column put together as the level ``"(rare)"``.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
    columns : name or list of names, optional
        Which columns; by default all of strings, categories and booleans, but the response and weights.
    min_count : int, default 10
        Levels that occur less often, by sum of weights, are rare.
    response : name of a column, optional
        Never lumped by default.
    weights : column name or array of length n, optional
        Frequencies, or any positive weights.

    Returns
    -------
    DataFrame
        The same table. Columns with rare levels are categories, with ``"(rare)"`` as the last; others are as they
        were, and so are booleans of which one is rare: there are no others to come. Missing values stay missing.

    Notes
    -----
    A model that is fitted to such a column takes levels that it does not know for ``"(rare)"``, in place of an error;
    with ``missing="level"`` missing values too, where the training rows had none.

    Examples
    --------
    >>> import bbl
    >>> table = bbl.lump({"town": ["Bern"] * 20 + ["Chur", "Thun", "Visp"]})
    >>> table["town"].value_counts().to_dict()
    {'Bern': 20, '(rare)': 3}
    """
    frame, least = to_frame(data), integer("min_count", min_count, 1)
    named, counts = named_weights(weights, frame, whole=False)
    column_names = _names(columns, frame, named)
    out = {name: frame.column(name) for name in frame.columns}
    for name in frame.columns if column_names is None else column_names:
        series = frame.column(name)
        if column_names is None and (name in (response, named) or pd.api.types.is_numeric_dtype(series.dtype)):
            continue
        column = factorise(name, series, "keep")
        if column_names is None and "number" in column.kinds and "string" not in column.kinds:
            continue
        total = np.bincount(column.codes, counts, len(column.values))
        is_level = np.array([kind != "missing" for kind in column.kinds])
        rare = is_level & ((total < least) | np.array([value == RARE_LEVEL for value in column.values]))
        n_rare = int((rare & (total > 0)).sum())
        if n_rare > 1 or (n_rare == 1 and set(column.kinds) - {"missing"} != {"bool"}):
            out[name] = _lumped(series, column, rare)
    return _table(out, frame)


def _lumped(series: pd.Series, column: Column, rare: np.ndarray) -> pd.Series:
    common_values = [k for k, kind in enumerate(column.kinds) if not rare[k] and kind != "missing"]
    if not column.ordered:
        common_values.sort(key=lambda k: (column.kinds[k], column.values[k]))
    levels = [column.values[k] for k in common_values]
    place = np.full(len(column.values), -1)
    place[common_values] = np.arange(len(common_values))
    place[rare] = len(common_values)
    labels = pd.Index([*levels, RARE_LEVEL], dtype=object)
    return pd.Series(pd.Categorical.from_codes(place[column.codes], labels, ordered=True), index=series.index)


def _table(columns: dict, frame: Frame) -> pd.DataFrame:
    names = pd.Index(frame.columns, dtype=object, tupleize_cols=False).infer_objects()
    return pd.DataFrame(columns, index=frame.index, columns=names)


def _names(columns: Hashable | Sequence[Hashable] | None, frame: Frame, weights: Hashable) -> list | None:
    """Return the names that are asked for, each a column and none that of the weights; None for the default."""
    if columns is None:
        return None
    names = [columns] if isinstance(columns, str) or not isinstance(columns, Sequence) else list(columns)
    for name in names:
        if not frame.has(name):
            hint = near_match(name, frame.columns) or "."
            raise DataError(f"columns names {name!r}, which is no column of the data{hint}", column=name)
        if weights is not None and name == weights:
            raise OptionError(f"columns names {name!r}, which holds the weights. Leave it out.", argument="columns")
    return names


def _numbers(series: pd.Series) -> np.ndarray | None:
    """Return a column of numbers as floats, nan where it is missing; None if it holds anything else."""
    if pd.api.types.is_bool_dtype(series.dtype) or not pd.api.types.is_numeric_dtype(series.dtype):
        return None
    if isinstance(series.dtype, pd.CategoricalDtype) or getattr(series.dtype, "kind", "") == "c":
        return None
    numbers = pd.to_numeric(series, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    if np.isinf(numbers).any():
        raise DataError(f"column {series.name!r} holds infinite numbers. Drop these rows.", column=series.name)
    return numbers


def find_cuts(x: np.ndarray, weights: np.ndarray, method: str, bins: int, y: np.ndarray | None) -> np.ndarray:
    """Return the cuts of known numbers by a method of `bin`."""
    if not len(x):
        return np.empty(0)
    if y is not None:
        return mdl_cuts(x, weights, y)
    return (quantile_cuts if method == "quantile" else width_cuts)(x, weights, bins)


def _intervals(numbers: np.ndarray, cuts: np.ndarray) -> pd.Categorical:
    ends = np.concatenate([[-np.inf], cuts, [np.inf]])
    codes = np.where(np.isnan(numbers), -1, np.searchsorted(cuts, numbers, side="left"))
    return pd.Categorical.from_codes(codes, pd.IntervalIndex.from_breaks(ends), ordered=True)
