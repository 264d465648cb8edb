"""Tables of the command line: read CSV and Parquet files as data frames."""

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

# the types that users can choose; see `types` of `read_table` for the others
TYPES = ("text", "number")
MISSING_TEXTS = ("", "NA", "N/A", "#N/A", "<NA>", "n/a", "NaN", "nan", "NULL", "null", "None")
STDIN = Path("-")  # standard input
# numbers that are probably names: 01 is not 1, and float64 cannot represent all 19-digit integers
CODE = re.compile(r"\s*[+-]?(?:0\d|\d{19})")
TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def is_read_in_batches(path: Path) -> bool:
    """Return whether a path is a folder or glob of Parquet files, which are read in batches."""
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


def read_table(
    path: Path,
    missing: Collection[str] = MISSING_TEXTS,
    types: Mapping[Any, str] | None = None,
    levels: Mapping[Any, Collection[str]] | None = None,
    sep: str | None = None,
    decimal: str = ".",
) -> pd.DataFrame:
    """Read a table from a CSV, tab-separated or Parquet file, or from standard input.

    Parameters
    ----------
    path : Path
        ``-`` for standard input, which must be CSV. Compressed files such as ``.csv.gz`` are
        supported.
    missing : collection of str
        Cells of a CSV file that represent missing values.
    types : mapping of column to {"text", "number", "numbers", "truth"}, optional
        Column types of a CSV file; the key None applies to all other columns. "number" requires
        numbers. "numbers" and "truth" convert cells that are numbers, or True and False, and keep
        others as text. Without a type, a column is converted if all its cells are numbers, or True
        and False, unless a number looks like a code (with a leading zero or over 18 digits).
    levels : mapping of column to collection of str, optional
        Levels of a column, which are not read as missing even if listed in `missing`.
    sep : str, optional
        Field separator; by default a comma, or a tab for files that end in ``.tsv`` or ``.tab``.
        With a decimal comma, the default is a semicolon instead of a comma.
    decimal : {".", ","}, default "."
        Decimal mark of numbers in a CSV file.
    """
    suffixes = [ending.lower() for ending in path.suffixes]
    if _is_parquet(path):
        return _read_naming_file(path, lambda: pd.read_parquet(path))
    # standard input is kept in memory, because the header is read before the rows
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
    # for each column, the texts that mean a missing value, except its levels
    missing_by_column = {
        name: sorted(set(missing) - set((levels or {}).get(name, ()))) for name in names
    }
    table = _read_naming_file(
        path, lambda: pd.read_csv(source, dtype=str, na_values=missing_by_column, **options)
    )
    table.columns = pd.Index(names, dtype=object)  # read_csv renames duplicate columns
    # if rows have two or more surplus cells, pandas makes the first ones an index
    if table.index.nlevels > 1:
        raise DataError(
            f"Some rows of {path} have more fields than the header.",
            hint="Give every column a name in the header.",
        )
    # row names as written by R's write.csv
    has_unnamed_column = len(names) > 1 and names[0].strip() == ""
    # or by R's write.table
    if has_unnamed_column or not isinstance(table.index, pd.RangeIndex):
        message = (
            f"the first column of {path} has no name, so it is assumed to contain row names and is "
            "left out."
        )
        warnings.warn(DataWarning(message), stacklevel=2)
        # row names are either a column or the index
        table = table.iloc[:, int(has_unnamed_column) :].reset_index(drop=True)
    types = types or {}
    columns = [
        _convert_column(name, table.iloc[:, k], types.get(name, types.get(None)), decimal)
        for k, name in enumerate(table.columns)
    ]
    return pd.concat(columns, axis=1) if columns else table


def _default_separator(suffixes: Collection[str], decimal: str) -> str:
    """Return the default field separator of a file with the extensions `suffixes`."""
    if {".tsv", ".tab"} & set(suffixes):
        return "\t"
    return ";" if decimal == "," else ","


def _check_separator(path: Path, names: list[str]) -> None:
    """Raise an error if a header with a single name contains another separator."""
    if len(names) != 1:
        return
    for character, option in ((";", "--sep ';'"), ("\t", "--sep tab"), ("|", "--sep '|'")):
        if character in names[0]:
            raise DataError(
                f"{path} has a single column, {names[0][:60]!r}.",
                column=names[0],
                argument="sep",
                hint=f"Specify the field separator: {option}.",
            )


def read_parquet_order(path: Path) -> DeclaredOrder:
    """Return the category order declared by a Parquet file; other files declare none."""
    if not _is_parquet(path):
        return DeclaredOrder()
    return declared_order(pyarrow_for("A Parquet file").parquet.read_schema(path))


def _is_parquet(path: Path) -> bool:
    """Return whether a path has the extension of a Parquet file."""
    return path.suffix.lower() in SUFFIXES


def list_missing_texts(markers: Collection[str] | None) -> tuple[str, ...]:
    """Return the cells that represent missing values, given the --na options."""
    return MISSING_TEXTS if markers is None else ("", *markers)


def list_model_types(design: Design) -> dict[Any, str]:
    """Return the `types` of `read_table` for new data, which match those of the model's levels."""
    types = {}
    for factor in (*design.predictors, design.response):
        is_numeric = factor.binned or "number" in factor.kinds or factor.is_measured
        types[str(factor.name)] = (
            "numbers" if is_numeric else "truth" if "bool" in factor.kinds else "text"
        )
    return types


def list_model_levels(design: Design) -> dict[Any, set[str]]:
    """Return the `levels` of `read_table` for new data: the levels of each of the model's columns,
    as text.
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
    """Call ``read()`` to read the file `path`, and return the result. ValueErrors are re-raised as
    DataErrors with the file name.
    """
    try:
        return read()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} cannot be decoded as UTF-8 ({error.reason}).",
            hint=("Save it as a CSV file in UTF-8."),
        ) from error
    except (ValueError, EOFError) as error:  # errors of pandas and pyarrow are ValueErrors
        message = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as a table ({message}).") from error


def _convert_column(
    name: Hashable, texts: pd.Series, kind: str | None, decimal: str = "."
) -> pd.Series:
    """Convert a column of strings (n,) to the type `kind`, one of the `types` of `read_table`. With
    None, the type is detected.

    `decimal` is the decimal mark.
    """
    # convert the distinct strings only; missing cells have the code -1
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
        # a type for integers with missing values
        values = pd.array(numbers.to_numpy())
    elif kind == "numbers":
        values = cells.copy()
        # keep other cells as strings
        values[is_number] = pd.to_numeric(pd.Series(number_texts[is_number])).astype(object)
    elif kind == "truth":
        values = np.array([TRUTH.get(cell, cell) for cell in cells], dtype=object)
    # missing where the code is -1
    expanded = pd.api.extensions.take(values, codes, allow_fill=True)
    return pd.Series(expanded, name=name)
