"""Tables of estimators: X and y as a `Frame`, a lazy view of a table with named columns."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from bbl.design.factors import MAX_INTEGERS, check_discrete
from bbl.design.frames import Frame, to_frame
from bbl.design.values import factorise
from bbl.errors import BBLTypeError, DataError, DataWarning
from bbl.report.text import distinct_names

__all__ = [
    "amounts_as_categories",
    "as_frame",
    "column_of_used_categories",
    "keep_numbers",
    "response_name",
    "with_response",
]


def as_frame(X: object) -> Frame | None:
    """Return the table X as a Frame, or None if X is an array or nested lists."""
    if issparse(X):  # some sparse formats are dicts, and would be taken for tables
        return None
    try:
        return to_frame(X, "X")
    except BBLTypeError:
        return None


def keep_numbers(X: Any) -> Any:
    """Return nested lists with strings as an object array, because numpy would convert numbers to
    strings.
    """
    if isinstance(X, list | tuple):
        try:
            # "U": strings
            return np.array(X, dtype=object) if np.asarray(X).dtype.kind == "U" else X
        except ValueError:  # ragged lists; scikit-learn raises the error
            return X
    return X


def amounts_as_categories(array: np.ndarray) -> pd.DataFrame:
    """Return an array (n, m) as a DataFrame in which columns of fractional numbers, or of many rare
    integers, are categorical.

    The fit rejects such columns in a table unless they are categorical. For an array, a warning is
    issued instead.
    """
    data = pd.DataFrame(array)
    if array.dtype.kind not in "iuf" or not len(array):
        return data
    continuous = []
    for k in range(array.shape[1]):
        numbers = array[np.isfinite(array[:, k]), k]
        is_fractional = bool((numbers != np.floor(numbers)).any())
        if not is_fractional and (not len(numbers) or numbers.max() - numbers.min() < MAX_INTEGERS):
            continue  # too few distinct values for a continuous column
        column = factorise(k, data[k], "keep")  # distinct values, with missing ones kept
        try:
            check_discrete(column)
        except DataError:
            continuous.append(k)
        if is_fractional or k in continuous[-1:]:
            data[k] = data[k].astype("category")
    if continuous:
        shown = ", ".join(map(str, continuous[:5])) + (
            f", and {len(continuous) - 5} more" * (len(continuous) > 5)
        )
        warnings.warn(
            DataWarning(
                f"Columns of X that look continuous: {shown}. Each distinct number is a "
                "separate level, so the model does not interpolate between them.",
                hint="Bin them first, for example with BinningTransformer() in the pipeline.",
            ),
            stacklevel=4,  # the line that calls `fit`
        )
    return data


def column_of_used_categories(table: Frame, rows: np.ndarray, k: int) -> pd.Series:
    """Return column k of a table. A categorical column keeps only the categories that occur in the
    rows at `rows`.
    """
    column = table.get(k)
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return column
    return column.cat.set_categories(
        column.iloc[rows].cat.remove_unused_categories().cat.categories
    )


def response_name(name: object, columns: Sequence[Hashable]) -> str:
    """Return the name of the class column: the name of the Series y, or "y", with underscores
    appended if X has such a column.
    """
    return distinct_names([*columns, name if isinstance(name, str) and name else "y"])[-1]


def with_response(
    table: Frame, response: str, y: np.ndarray, classes: np.ndarray, ordered: bool = False
) -> Frame:
    """Return the table with y as an additional categorical column. Labels that are not in `classes`
    are missing. `ordered` indicates whether the classes are ordered.
    """
    class_index = pd.Index(classes)
    # get_indexer returns -1, the code of a missing value, for labels outside `classes`
    y_column = pd.Series(
        pd.Categorical.from_codes(class_index.get_indexer(y), class_index, ordered=ordered),
        index=table.index,
    )
    m = len(table.columns)
    return replace(
        table,
        columns=(*table.columns, response),
        get=lambda k: y_column if k == m else table.get(k),
    )
