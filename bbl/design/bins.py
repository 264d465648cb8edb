"""Cut numeric columns into intervals (`bin`), and merge rare levels (`lump`)."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, choice, integer, near_match
from bbl.design.frames import Frame, to_frame
from bbl.design.intervals import RARE_LEVEL
from bbl.design.values import ColumnProblems, factorise, is_missing
from bbl.design.weights import named_weights
from bbl.errors import BBLTypeError, DataError, DataWarning, OptionError
from bbl.stats.cuts import CUTS, mdl_cuts, quantile_cuts, width_cuts

if TYPE_CHECKING:
    from bbl.design.table_types import TableLike, Weights
    from bbl.design.values import Column

__all__ = ["bin", "find_cuts", "lump", "refuse_text", "to_numbers"]


@check_keywords  # unknown keywords raise an error
def bin(  # noqa: A001  # the word of the field
    data: TableLike | Frame,
    columns: Hashable | Sequence[Any] | None = None,
    *,
    bins: int = 5,
    method: str = "quantile",
    response: Hashable = None,
    weights: Weights | None = None,
) -> pd.DataFrame:
    """Cut numeric columns of a table into intervals.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
    columns : name or list of names, optional
        Columns to cut; by default, all numeric columns with more than `bins` distinct values,
        except the response and the column of `weights`.
    bins : int, default 5
        Maximum number of intervals. With ``method="mdl"``, it only determines the default
        `columns`.
    method : {"quantile", "width", "mdl"}, default "quantile"
        "quantile": intervals with about equal numbers of rows. "width": intervals of equal width.
        "mdl": the method of Fayyad & Irani (1993), which adds a cut if this shortens the
        description of the groups of `response` by more than the length of the description of the
        cut. This method may find no cuts for a column.
    response : name of a column, optional
        Column with the groups, required for ``"mdl"``.
    weights : column name or array of length n, optional
        Frequencies, or any positive weights. Pass the weights that will be used in the fit; the
        column of weights is not binned.

    Returns
    -------
    DataFrame
        The table with intervals as ordered categories; the first interval starts at minus infinity
        and the last ends at infinity. Missing values remain missing. A column without cuts is left
        unchanged, or becomes a single interval if it is listed in `columns`.

    Raises
    ------
    DataError, OptionError
        If a column is absent, is not numeric, or is the column of weights.

    Warns
    -----
    DataWarning
        If ``"mdl"`` does not find any cuts in a column.

    Notes
    -----
    Models fitted to intervals, including those from `pandas.cut`, accept numbers in new data:
    `predict` assigns them to the intervals of the training data, even after `bbl.load`.

    References
    ----------
    Fayyad UM, Irani KB (1993). Multi-interval discretization of continuous-valued attributes for
    classification learning. IJCAI-93, 1022-1027.

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
    frame = to_frame(data)
    max_bins = integer("bins", bins, 2)
    choice("method", method, CUTS)
    weights_name, row_weights = named_weights(weights, frame, whole=False)
    y = None
    if method == "mdl":
        if response is None:
            raise OptionError(
                "method='mdl' requires response.",
                argument="response",
                hint="Set response to the column with the groups.",
            )
        column = factorise(response, frame.column(response), missing="keep")
        unknown = column.missing()
        # -1: unknown group
        y = column.codes if unknown is None else np.where(unknown, -1, column.codes)
    column_names = _check_column_names(columns, frame, weights_name)
    series_by_name = {name: frame.column(name) for name in frame.columns}
    problems = ColumnProblems()
    uncut = []  # columns without cuts by "mdl"
    for name in frame.columns if column_names is None else column_names:
        numbers = to_numbers(frame.column(name))
        # by default (None), cut all numeric columns with more than max_bins distinct values
        if numbers is None:
            if column_names is not None:
                with problems.of_column():
                    refuse_text(name, frame.column(name))
            continue
        is_number = ~np.isnan(numbers) & (row_weights > 0)
        # An array of weights may also be a column of the table, which should not be binned either.
        is_weights = name == weights_name or (
            weights is not None and np.array_equal(numbers, row_weights)
        )
        if column_names is None and (
            name == response or is_weights or len(np.unique(numbers[is_number])) <= max_bins
        ):
            continue
        is_usable = is_number if y is None else is_number & (y >= 0)
        cuts = find_cuts(
            numbers[is_usable],
            row_weights[is_usable],
            method,
            max_bins,
            None if y is None else y[is_usable],
        )
        if y is not None and not len(cuts):
            uncut.append(name)
        if len(cuts) or column_names is not None:
            series_by_name[name] = pd.Series(_cut_into_intervals(numbers, cuts), index=frame.index)
    problems.refuse()
    if uncut:
        shown = ", ".join(map(repr, uncut[:5])) + f", and {len(uncut) - 5} more" * (len(uncut) > 5)
        outcome = "are unchanged" if column_names is None else "have a single interval each"
        warnings.warn(
            DataWarning(
                f"method='mdl' found no cut in {shown}, because no single cut separates the groups "
                f"of {response!r} well enough. These columns {outcome}.",
                hint="Leave them out of the formula, or cut them with method='quantile'.",
                argument="method",
                column=uncut[0],
            ),
            stacklevel=3,  # the caller of the public function
        )
    return _make_table(series_by_name, frame)


def refuse_text(name: Hashable, series: pd.Series) -> NoReturn:
    """Raise an error about a column that cannot be binned because it contains non-numeric
    values.
    """
    # keyed by text because lists cannot be hashed
    cell_by_text = {repr(cell): cell for cell in series.dropna() if not _is_number(cell)}
    cells = list(cell_by_text)
    if not cells:
        raise DataError(
            f"column {name!r} has the type {series.dtype}, so it cannot be binned.",
            column=name,
            hint=f"Convert it to numbers: data[{name!r}].astype(float).",
        )
    raise DataError(
        f"column {name!r} contains values that are not numbers, so it cannot be binned: "
        f"{', '.join(cells[:5])}{' and more' * (len(cells) > 5)}.",
        column=name,
        value=cell_by_text[cells[0]],
        hint="Replace these cells with numbers or missing values, or leave the column out.",
    )


@check_keywords  # unknown keywords raise an error
def lump(
    data: TableLike | Frame,
    columns: Hashable | Sequence[Any] | None = None,
    *,
    min_count: int = 10,
    response: Hashable = None,
    weights: Weights | None = None,
) -> pd.DataFrame:
    """Merge the rare levels of each column into the level ``"(rare)"``.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
    columns : name or list of names, optional
        Columns to change; by default, all columns of strings, categories or booleans, except the
        response and the weights.
    min_count : int, default 10
        Levels with a smaller sum of weights are rare.
    response : name of a column, optional
        Column that is left unchanged unless it is listed in `columns`.
    weights : column name or array of length n, optional
        Frequencies, or any positive weights.

    Returns
    -------
    DataFrame
        The table with rare levels merged. Columns with rare levels become categorical, with
        ``"(rare)"`` as the last category; all other columns are unchanged, including boolean
        columns with only one rare level. Missing values remain missing.

    Notes
    -----
    Models fitted to such a column treat unknown levels in new data as ``"(rare)"`` instead of
    raising an error. With ``missing="level"``, missing values are also treated as ``"(rare)"`` if
    the training data had none.

    Examples
    --------
    >>> import bbl
    >>> table = bbl.lump({"town": ["Bern"] * 20 + ["Chur", "Thun", "Visp"]})
    >>> table["town"].value_counts().to_dict()
    {'Bern': 20, '(rare)': 3}
    """
    frame = to_frame(data)
    min_count = integer("min_count", min_count, 1)
    weights_name, row_weights = named_weights(weights, frame, whole=False)
    column_names = _check_column_names(columns, frame, weights_name)
    series_by_name = {name: frame.column(name) for name in frame.columns}
    for name in frame.columns if column_names is None else column_names:
        series = frame.column(name)
        # by default (None), all columns except the response, the weights and numeric columns
        if column_names is None and (
            name in (response, weights_name) or pd.api.types.is_numeric_dtype(series.dtype)
        ):
            continue
        try:
            column = factorise(name, series, missing="keep")
        except BBLTypeError:
            if column_names is None:
                continue  # dates and nested values; the fit raises an error for them
            raise
        if column_names is None and "number" in column.kinds and "string" not in column.kinds:
            continue  # numbers in a column of Python objects or of categories
        weight_of_value = np.bincount(
            column.codes, weights=row_weights, minlength=len(column.values)
        )
        is_level = np.array([kind != "missing" for kind in column.kinds])
        # existing "(rare)" values are merged with the rare levels
        is_rare = is_level & (
            (weight_of_value < min_count)
            | np.array([value == RARE_LEVEL for value in column.values])
        )
        n_rare = int((is_rare & (weight_of_value > 0)).sum())  # counts only the levels that occur
        # a single rare level is also renamed, except in a boolean column
        if n_rare > 1 or (n_rare == 1 and set(column.kinds) - {"missing"} != {"bool"}):
            series_by_name[name] = _merge_rare(series, column, is_rare)
    return _make_table(series_by_name, frame)


def _merge_rare(series: pd.Series, column: Column, is_rare: np.ndarray) -> pd.Series:
    """Return a column as categories, with its rare values replaced by ``"(rare)"``.

    `column` contains the codes and the distinct values of `series`, and `is_rare` marks the rare
    values.
    """
    common_positions = [
        k for k, kind in enumerate(column.kinds) if not is_rare[k] and kind != "missing"
    ]
    if not column.declared:
        # otherwise keep the declared order
        common_positions.sort(key=lambda k: (column.kinds[k], column.values[k]))
    new_code = np.full(len(column.values), -1)  # new code of each value; -1 if it is missing
    new_code[common_positions] = np.arange(len(common_positions))
    new_code[is_rare] = len(common_positions)
    levels = pd.Index([*(column.values[k] for k in common_positions), RARE_LEVEL], dtype=object)
    return pd.Series(
        pd.Categorical.from_codes(new_code[column.codes], levels, ordered=column.ordered),
        index=series.index,
    )


def _make_table(columns: dict[Hashable, pd.Series], frame: Frame) -> pd.DataFrame:
    """Return a DataFrame with these columns, and with the column names and row labels of
    `frame`.
    """
    # tuples remain names (no MultiIndex), and names that are all numbers have a numeric dtype again
    names = pd.Index(frame.columns, dtype=object, tupleize_cols=False).infer_objects()
    return pd.DataFrame(columns, index=frame.index, columns=names)


def _check_column_names(
    columns: Hashable | Sequence[Hashable] | None, frame: Frame, weights_name: Hashable
) -> list | None:
    """Return `columns` as a list of names, or None; raise an error for unknown names and for
    `weights_name`.
    """
    if columns is None:
        return None
    names = (
        [columns]
        if isinstance(columns, str) or not isinstance(columns, Sequence)
        else list(columns)
    )
    for name in names:
        if not frame.has(name):
            near = near_match(name, frame.columns)
            raise DataError(
                f"columns includes {name!r}, which is not a column of the data.",
                column=name,
                hint=f"{near}Name columns of the data.",
            )
        if weights_name is not None and name == weights_name:
            raise OptionError(
                f"columns includes {name!r}, which contains the weights.",
                argument="columns",
                hint="Leave it out.",
            )
    return names


def _is_number(cell: object) -> bool:
    """Return whether a cell is a number or a numeric string."""
    try:
        return bool(np.isfinite(float(cell)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def to_numbers(series: pd.Series) -> np.ndarray | None:
    """Return a numeric column as floats (n,), with nan for missing values, or None for columns of
    other types.

    Infinite numbers are refused.
    """
    if pd.api.types.infer_dtype(series, skipna=True) == "decimal":
        series = pd.Series(
            [np.nan if is_missing(value) else float(value) for value in series], name=series.name
        )
    is_bool_or_complex = (
        pd.api.types.is_bool_dtype(series.dtype) or getattr(series.dtype, "kind", "") == "c"
    )
    if is_bool_or_complex or not pd.api.types.is_numeric_dtype(
        series.dtype
    ):  # categories are not, even if they are numbers
        return None
    numbers = pd.to_numeric(series, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    if np.isinf(numbers).any():
        raise DataError(
            f"column {series.name!r} contains infinite numbers.",
            column=series.name,
            hint="Drop these rows.",
        )
    return numbers


def find_cuts(
    x: np.ndarray, weights: np.ndarray, method: str, bins: int, y: np.ndarray | None
) -> np.ndarray:
    """Return increasing cuts of the values `x` (n,), found by one of the methods of `bin`.

    `weights` (n,) contains their weights. `bins` is the maximum number of intervals, ignored by
    "mdl". `y` (n,) contains the groups for "mdl" and is None for other methods.
    """
    if not len(x):
        return np.empty(0)
    if y is not None:  # the method is "mdl"
        return mdl_cuts(x, weights, y)
    return (quantile_cuts if method == "quantile" else width_cuts)(x, weights, bins)


def _cut_into_intervals(numbers: np.ndarray, cuts: np.ndarray) -> pd.Categorical:
    """Return the interval between increasing `cuts` that contains each value, or a missing value
    for nan.
    """
    breaks = np.concatenate([[-np.inf], cuts, [np.inf]])
    codes = np.where(np.isnan(numbers), -1, np.searchsorted(cuts, numbers, side="left"))
    return pd.Categorical.from_codes(codes, pd.IntervalIndex.from_breaks(breaks), ordered=True)
