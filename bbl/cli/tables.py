"""Tables of the command line: CSV and Parquet files as data frames, with rules for which columns are numbers."""

from __future__ import annotations

import glob
import io
import re
import sys
import warnings
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.design import Design
from bbl.design.frames import Frame, declared_order, to_frame
from bbl.design.streams.source import pyarrow_for
from bbl.errors import DataError, DataWarning, OptionError

__all__ = ["MISSING_TEXTS", "TYPES", "in_batches", "model_levels", "model_types", "read_table", "read_training"]

TYPES = ("text", "number")
MISSING_TEXTS = ("", "NA", "N/A", "#N/A", "<NA>", "n/a", "NaN", "nan", "NULL", "null", "None")
STDIN = Path("-")
# digits that are a name and no quantity: 01 and 1 differ, and float64 does not tell 19 digits apart
CODE = re.compile(r"\s*[+-]?(?:0\d|\d{19})")
TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def in_batches(path: Path) -> bool:
    """Return whether a path is a folder or a glob of Parquet files, which are read in batches."""
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


def read_table(
    path: Path,
    missing: Collection[str] = MISSING_TEXTS,
    types: Mapping[Any, str] | None = None,
    levels: Mapping[Any, Collection[str]] | None = None,
) -> pd.DataFrame:
    """Return the table in a CSV, tab-separated or Parquet file, or in standard input.

    Parameters
    ----------
    path : Path
        ``-`` for standard input, which holds CSV. Endings such as ``.csv.gz`` are unpacked.
    missing : collection of str
        Cells of a CSV file that stand for missing values.
    types : mapping of column to {"text", "number", "numbers", "truth"}, optional
        How its columns are read; None stands for all others. "number" refuses what is none; "numbers" and "truth" leave
        it as text. A column without a type is one of numbers, or of True and False, if all its cells are, and
        no number looks like a code: has a leading zero, or over 18 digits.
    levels : mapping of column to collection of str, optional
        Cells that are levels of these columns, whatever `missing` says.

    Raises
    ------
    DataError
        If the file is no such table.
    OSError
        If it cannot be read.
    """
    endings = [ending.lower() for ending in path.suffixes]
    if _is_parquet(path):
        return _parsed(path, lambda: pd.read_parquet(path))
    source: io.BytesIO | Path = io.BytesIO(sys.stdin.buffer.read()) if path == STDIN else path
    options: dict[str, Any] = {
        "sep": "\t" if {".tsv", ".tab"} & set(endings) else ",",
        "encoding": "utf-8-sig",
        "keep_default_na": False,
    }
    first = _parsed(path, lambda: pd.read_csv(source, header=None, nrows=1, dtype=str, **options))
    if isinstance(source, io.BytesIO):
        source.seek(0)
    names = first.iloc[0].tolist()
    markers = {name: sorted(set(missing) - set((levels or {}).get(name, ()))) for name in names}
    table = _parsed(path, lambda: pd.read_csv(source, dtype=str, na_values=markers, **options))
    table.columns = pd.Index(names, dtype=object)  # as they are: pandas numbers names that occur twice
    if table.index.nlevels > 1:
        raise DataError(f"the rows of {path} have more cells than its header has names. Name every column.")
    unnamed = len(names) > 1 and names[0].strip() == ""
    if unnamed or not isinstance(table.index, pd.RangeIndex):  # as R's write.csv and write.table write them
        message = f"the first column of {path} has no name and is taken for the names of the rows: it is left out."
        warnings.warn(message, DataWarning, stacklevel=2)
        table = table.iloc[:, int(unnamed) :].reset_index(drop=True)
    kinds = types or {}
    columns = [
        _column(table.columns[k], table.iloc[:, k], kinds.get(table.columns[k], kinds.get(None)))
        for k in range(table.shape[1])
    ]
    return pd.concat(columns, axis=1) if columns else table


def read_training(path: Path, missing: Collection[str], types: Mapping[Any, str]) -> Frame:
    """Return the table of `read_table`, which says of which columns a Parquet file has lost the order of categories."""
    frame = to_frame(read_table(path, missing, types))
    if not _is_parquet(path):
        return frame
    return replace(frame, declared=declared_order(pyarrow_for("A Parquet file").parquet.read_schema(path)))


def _is_parquet(path: Path) -> bool:
    """Return whether the ending of a path is that of a Parquet file."""
    return path.suffix.lower() in (".parquet", ".pq")


def model_types(design: Design) -> dict[Any, str]:
    """Return how the columns of new data are read, for `read_table`: as the levels are that a model knows."""
    words = {"number": "numbers", "bool": "truth"}
    return {
        str(factor.name): "numbers"
        if factor.binned
        else next((words[kind] for kind in words if kind in factor.kinds), "text")
        for factor in design.predictors
    }


def model_levels(design: Design) -> dict[Any, set[str]]:
    """Return the texts that are levels of a model's predictors."""
    return {
        str(factor.name): {level for level, kind in zip(factor.levels, factor.kinds, strict=True) if kind == "string"}
        for factor in design.predictors
    }


def _parsed(path: Path, read: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return the result of `read`; its ValueErrors become DataErrors that name the file."""
    try:
        return read()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8 ({error.reason}). Save it as CSV in UTF-8.") from error
    except (ValueError, EOFError) as error:  # pandas' and pyarrow's own errors are ValueErrors
        message = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as a table ({message}).") from error


def _column(name: Hashable, texts: pd.Series, kind: str | None) -> pd.Series:
    """Return a column of texts as `kind` of `read_table`; with None, as the type that all its cells have."""
    codes, distinct = pd.factorize(texts)
    cells = np.asarray(distinct, dtype=object)
    numbers = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce")
    is_number = np.isfinite(numbers.to_numpy(dtype=float))
    is_truth = np.array([cell in TRUTH for cell in cells], dtype=bool)
    if kind == "number" and not is_number.all():
        raise OptionError(f"column {name!r} holds {cells[~is_number][0]!r}, which is no number.", argument="dtype")
    if kind is None and len(cells):
        is_code = any(map(CODE.match, cells))
        kind = "numbers" if is_number.all() and not is_code else "truth" if is_truth.all() else "text"
    values: Any = cells
    if kind in ("number", "numbers") and is_number.all():
        values = pd.array(numbers.to_numpy())
    elif kind == "numbers":
        values = cells.copy()
        values[is_number] = pd.to_numeric(pd.Series(cells[is_number])).astype(object)
    elif kind == "truth":
        values = np.array([TRUTH.get(cell, cell) for cell in cells], dtype=object)
    expanded = pd.api.extensions.take(values, codes, allow_fill=True)  # code -1 is missing
    return pd.Series(expanded, name=name)
