"""Tables of the command line: CSV and Parquet files as data frames.

The *type* of a column, see `read_table`, says whether its cells become numbers, booleans or remain
texts. A `Design` has the columns of a model as factors, `predictors` and `response`: `name`,
`levels`, their `kinds` ("number", "bool", "string", ...), and `binned`, whether the levels are
intervals of numbers.
"""

from __future__ import annotations

import glob
import io
import re
import sys
import warnings
from collections.abc import Callable, Collection, Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.design import Design
from bbl.design.frames import DeclaredOrder, declared_order
from bbl.design.streams.parquet import SUFFIXES
from bbl.design.streams.source import pyarrow_for
from bbl.errors import DataError, DataWarning, OptionError

__all__ = [
    "MISSING_TEXTS",
    "STDIN",
    "TYPES",
    "is_read_in_batches",
    "list_missing_texts",
    "list_model_levels",
    "list_model_types",
    "read_parquet_order",
    "read_table",
]

TYPES = ("text", "number")  # that users can give; see `types` of `read_table` for those of models
MISSING_TEXTS = ("", "NA", "N/A", "#N/A", "<NA>", "n/a", "NaN", "nan", "NULL", "null", "None")
STDIN = Path("-")  # stands for standard input
# digits that are a name, not a quantity: 01 is not 1, and float64 does not represent all numbers of
# 19 digits
CODE = re.compile(r"\s*[+-]?(?:0\d|\d{19})")
TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def is_read_in_batches(path: Path) -> bool:
    """Return whether a path is a folder or a glob of Parquet files, which are read in batches."""
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


def read_table(
    path: Path,
    missing: Collection[str] = MISSING_TEXTS,
    types: Mapping[Any, str] | None = None,
    levels: Mapping[Any, Collection[str]] | None = None,
    sep: str | None = None,
    decimal: str = ".",
) -> pd.DataFrame:
    """Return the table in a CSV, tab-separated or Parquet file, or in standard input.

    Parameters
    ----------
    path : Path
        ``-`` for standard input, which holds CSV. Endings such as ``.csv.gz`` are unpacked.
    missing : collection of str
        Texts of cells of a CSV file that mean a missing value.
    types : mapping of column to {"text", "number", "numbers", "truth"}, optional
        Types of columns of a CSV file; the key None is for all other columns. "number": a cell that
        is no number is an error. "numbers", "truth": cells that are no numbers, or neither True nor
        False, remain texts. A column without a type becomes one of numbers, or of True and False,
        if all its cells are; but of texts, if a number looks like a code (has a leading zero, or
        over 18 digits).
    levels : mapping of column to collection of str, optional
        Texts that are levels of a column, even if they are in `missing`.
    sep : str, optional
        Character between cells; by default a comma, or a tab in files that end in ``.tsv`` or
        ``.tab``. With a decimal comma the default is a semicolon instead of a comma.
    decimal : {".", ","}, default "."
        The decimal mark of numbers in a CSV file.
    """
    suffixes = [ending.lower() for ending in path.suffixes]
    if _is_parquet(path):
        return _read_naming_file(path, lambda: pd.read_parquet(path))
    # standard input is read once, into memory, as its rows are read after its header
    source: io.BytesIO | Path = io.BytesIO(sys.stdin.buffer.read()) if path == STDIN else path
    options: dict[str, Any] = {
        "sep": sep or _default_separator(suffixes, decimal),
        "encoding": "utf-8-sig",
        "keep_default_na": False,
    }
    header = _read_naming_file(
        path, lambda: pd.read_csv(source, header=None, nrows=1, dtype=str, **options)
    )
    if isinstance(source, io.BytesIO):
        source.seek(0)
    names = header.iloc[0].tolist()
    if sep is None:
        _check_separator(path, names)
    # for each column, the texts of missing values that are no levels of it
    missing_by_column = {
        name: sorted(set(missing) - set((levels or {}).get(name, ()))) for name in names
    }
    table = _read_naming_file(
        path, lambda: pd.read_csv(source, dtype=str, na_values=missing_by_column, **options)
    )
    table.columns = pd.Index(names, dtype=object)  # read_csv changes names that occur twice
    # pandas makes an index of two or more surplus cells at the beginning of rows
    if table.index.nlevels > 1:
        raise DataError(
            f"The rows of {path} have more cells than its header has names.",
            hint="Name every column.",
        )
    # as R's write.csv writes row names
    has_unnamed_column = len(names) > 1 and names[0].strip() == ""
    # or as R's write.table does
    if has_unnamed_column or not isinstance(table.index, pd.RangeIndex):
        message = (
            f"the first column of {path} has no name, so it is assumed to contain row names and is "
            "left out."
        )
        warnings.warn(DataWarning(message), stacklevel=2)
        # row names are a column or the index
        table = table.iloc[:, int(has_unnamed_column) :].reset_index(drop=True)
    types = types or {}
    columns = [
        _convert_column(name, table.iloc[:, k], types.get(name, types.get(None)), decimal)
        for k, name in enumerate(table.columns)
    ]
    return pd.concat(columns, axis=1) if columns else table


def _default_separator(suffixes: Collection[str], decimal: str) -> str:
    """Return the character between cells of a file with the endings `suffixes`."""
    if {".tsv", ".tab"} & set(suffixes):
        return "\t"
    return ";" if decimal == "," else ","


def _check_separator(path: Path, names: list[str]) -> None:
    """Refuse a header of a single name that contains another separator."""
    if len(names) != 1:
        return
    for character, option in ((";", "--sep ';'"), ("\t", "--sep tab"), ("|", "--sep '|'")):
        if character in names[0]:
            raise DataError(
                f"{path} has a single column, {names[0][:60]!r}.",
                column=names[0],
                argument="sep",
                hint=f"Give the separator of its cells: {option}.",
            )


def read_parquet_order(path: Path) -> DeclaredOrder:
    """Return the order that the categories of a Parquet file declare; of other files none."""
    if not _is_parquet(path):
        return DeclaredOrder()
    return declared_order(pyarrow_for("A Parquet file").parquet.read_schema(path))


def _is_parquet(path: Path) -> bool:
    """Return whether the ending of a path is that of a Parquet file."""
    return path.suffix.lower() in SUFFIXES


def list_missing_texts(markers: Collection[str] | None) -> tuple[str, ...]:
    """Return the texts of cells that mean a missing value, from those that --na gives."""
    return MISSING_TEXTS if markers is None else ("", *markers)


def list_model_types(design: Design) -> dict[Any, str]:
    """Return the `types` of `read_table` for new data: columns are read as the levels that the
    model knows.
    """
    types = {}
    for factor in (*design.predictors, design.response):
        is_numeric = factor.binned or "number" in factor.kinds
        types[str(factor.name)] = (
            "numbers" if is_numeric else "truth" if "bool" in factor.kinds else "text"
        )
    return types


def list_model_levels(design: Design) -> dict[Any, set[str]]:
    """Return the `levels` of `read_table` for new data: the texts that are levels of each column of
    the model.
    """
    return {
        str(factor.name): {
            level
            for level, kind in zip(factor.levels, factor.kinds, strict=True)
            if kind == "string"
        }
        for factor in (*design.predictors, design.response)
    }


def _read_naming_file(path: Path, read: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return ``read()``, which reads the file `path`; its ValueErrors become DataErrors that name
    the file.
    """
    try:
        return read()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not text in UTF-8 ({error.reason}).", hint="Save it as CSV in UTF-8."
        ) from error
    except (ValueError, EOFError) as error:  # pandas' and pyarrow's own errors are ValueErrors
        message = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as a table ({message}).") from error


def _convert_column(
    name: Hashable, texts: pd.Series, kind: str | None, decimal: str = "."
) -> pd.Series:
    """Return a column of texts (n,) converted to the type `kind`, see `types` of `read_table`; None
    finds the type.

    `decimal` is the decimal mark.
    """
    # only the distinct texts are converted; a missing cell has the code -1
    codes, distinct = pd.factorize(texts)
    cells = np.asarray(distinct, dtype=object)
    # with a decimal comma, 1.5 is not a number
    marks = str.maketrans(",.", ".,") if decimal == "," else {}
    number_texts = np.array([cell.translate(marks) for cell in cells], dtype=object)
    numbers = pd.to_numeric(pd.Series(number_texts, dtype=object), errors="coerce")
    is_number = np.isfinite(numbers.to_numpy(dtype=float))
    is_truth = np.array([cell in TRUTH for cell in cells], dtype=bool)
    if kind == "number" and not is_number.all():
        raise OptionError(
            f"Column {name!r} contains {cells[~is_number][0]!r}, which is not a number.",
            argument="dtype",
        )
    if kind is None and len(cells):
        is_code = any(map(CODE.match, cells))
        kind = (
            "numbers" if is_number.all() and not is_code else "truth" if is_truth.all() else "text"
        )
    values: Any = cells
    if kind in ("number", "numbers") and is_number.all():
        # of a type that holds whole numbers beside missing values
        values = pd.array(numbers.to_numpy())
    elif kind == "numbers":
        values = cells.copy()
        # other cells remain texts
        values[is_number] = pd.to_numeric(pd.Series(number_texts[is_number])).astype(object)
    elif kind == "truth":
        values = np.array([TRUTH.get(cell, cell) for cell in cells], dtype=object)
    # missing where the code is -1
    expanded = pd.api.extensions.take(values, codes, allow_fill=True)
    return pd.Series(expanded, name=name)
