"""Tables of estimators: X and y as a *Frame*, a lazy view of a table, with named columns; n rows, m
columns.

A Frame has the names `columns` (m,), the row labels `index` (n,), and ``get(k)``, which returns
column k as a Series.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from bbl.design.factors import Factor
from bbl.design.frames import Frame, to_frame
from bbl.design.values import factorise
from bbl.errors import BBLTypeError, DataError, DataWarning
from bbl.names import distinct_names

__all__ = [
    "as_frame",
    "column_of_used_categories",
    "fractions_as_categories",
    "keep_numbers",
    "response_name",
    "with_response",
]


def as_frame(X: object) -> Frame | None:
    """Return a table X as a Frame; None for an array or nested lists."""
    if issparse(X):  # some sparse formats are dicts, which would pass for tables
        return None
    try:
        return to_frame(X, "X")
    except BBLTypeError:
        return None


def keep_numbers(X: Any) -> Any:
    """Return nested lists with strings as an object array; numpy would turn the numbers in them
    into strings.
    """
    if isinstance(X, list | tuple):
        try:
            # "U": strings
            return np.array(X, dtype=object) if np.asarray(X).dtype.kind == "U" else X
        except ValueError:  # ragged; scikit-learn raises the error
            return X
    return X


def fractions_as_categories(array: np.ndarray) -> pd.DataFrame:
    """Return an array (n, m) as a DataFrame whose columns with fractional numbers are categorical.

    A fit to a table refuses a column of many different fractions as continuous, unless the column
    is categorical. A column of an array that would be refused in a DataFrame gives a warning
    instead.
    """
    data = pd.DataFrame(array)
    if array.dtype.kind != "f":
        return data
    continuous = []
    # columns with a fractional number
    for k in np.flatnonzero((np.isfinite(array) & (array != np.floor(array))).any(axis=0)):
        column = factorise(k, data[k], "keep")  # its distinct values; missing values are kept
        try:
            Factor.collect(column)  # called for its error: a DataError for a continuous column
        except DataError:
            continuous.append(k)
        data[k] = data[k].astype("category")
    if continuous:
        shown = ", ".join(map(str, continuous[:5])) + (
            f", and {len(continuous) - 5} more" * (len(continuous) > 5)
        )
        warnings.warn(
            DataWarning(
                f"Columns of X that look continuous: {shown}. Every number in them is a level of "
                "its own, so nothing is learnt about the numbers between.",
                hint="Bin them first, for example with KBinsDiscretizer(encode='ordinal').",
            ),
            stacklevel=4,  # the line in `fit`
        )
    return data


def column_of_used_categories(table: Frame, rows: np.ndarray, k: int) -> pd.Series:
    """Return column k of a table; a categorical one with only the categories that occur in the rows
    at `rows`.
    """
    column = table.get(k)
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return column
    return column.cat.set_categories(
        column.iloc[rows].cat.remove_unused_categories().cat.categories
    )


def response_name(name: object, columns: Sequence[Hashable]) -> str:
    """Return the name of the column of classes: that of the Series y, else "y"; underscores make it
    distinct from X.
    """
    return distinct_names([*columns, name if isinstance(name, str) and name else "y"])[-1]


def with_response(table: Frame, response: str, y: np.ndarray, classes: np.ndarray) -> Frame:
    """Return the table with y as a further, categorical column; labels that are not among `classes`
    are missing.
    """
    class_index = pd.Index(classes)
    # get_indexer returns -1, the code of a missing value, for labels that are not among the classes
    y_column = pd.Series(
        pd.Categorical.from_codes(class_index.get_indexer(y), class_index), index=table.index
    )
    m = len(table.columns)
    return replace(
        table,
        columns=(*table.columns, response),
        get=lambda k: y_column if k == m else table.get(k),
    )
