"""Training tables of the command line: missing responses, order of levels, bins, rare levels.

`args` are the parsed arguments; options that were not given are None.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import bbl
from bbl.checks import near_match
from bbl.cli.output import print_note
from bbl.cli.tables import is_read_in_batches, list_missing_texts, read_parquet_order, read_table
from bbl.design.formula import parse
from bbl.design.frames import Frame, to_frame
from bbl.errors import DataWarning, LevelError, OptionError

__all__ = ["TrainingInput", "drop_unknown_groups", "read_training_input"]

TrainingInput = Frame | pd.DataFrame | str  # a table, or the path of data read in batches
# arguments whose options need the whole table in memory
IN_MEMORY = ("dtype", "na", "sep", "decimal", "levels", "bin", "lump")
# cells in a column of numbers that are neither words nor numbers, such as "-" or "?": probably
# missing values
MARKER = r"[^\w\s]+"


def read_training_input(args: argparse.Namespace) -> TrainingInput:
    """Return the user's table, prepared according to the options, or the path of data read in
    batches.
    """
    if is_read_in_batches(args.data):
        for name in IN_MEMORY:
            if getattr(args, name) is not None:
                raise OptionError(
                    f"{name} requires a table in memory, but {args.data} is read in batches.",
                    argument=name,
                    hint="Prepare the files first.",
                )
        return str(args.data)
    # pairs (column, type); column None stands for all other columns, see `read_table`
    types = dict(args.dtype or [])
    if args.weights is not None:
        types.setdefault(args.weights, "number")
    table = read_table(
        args.data,
        list_missing_texts(args.na),
        types,
        sep=args.sep,
        decimal=args.decimal or ".",
    )
    # columns that `.` in a formula excludes, and their contents
    exclude = {} if args.weights is None else {args.weights: "the weights"}
    response: Hashable = None
    if table.columns.is_unique:  # otherwise the fit reports the duplicate name
        # only the response is needed, so formulas that the fit may reject are accepted (order,
        # empty, one_sided)
        response = parse(
            args.formula, tuple(table.columns), exclude, order=None, empty=True, one_sided=True
        ).response
        _warn_of_markers(table)
        table = drop_unknown_groups(table, response)
    table, ordered_names = _order_levels(table, args.levels or [])
    file_order = read_parquet_order(args.data)
    # declared: categorical columns of a Parquet file; those in `lost` have no known order. --levels
    # orders the columns `ordered_names`
    frame = replace(
        to_frame(table), declared=file_order._replace(lost=file_order.lost - ordered_names)
    )
    return _bin_and_lump(args, frame, response)


def _bin_and_lump(
    args: argparse.Namespace, data: Frame, response: Hashable
) -> Frame | pd.DataFrame:
    """Return the table with numbers binned (--bin) and rare levels lumped (--lump), except in the
    `response`.

    Columns of strata and clusters stay unchanged.
    """
    table: Frame | pd.DataFrame = data
    design_columns = [
        name for name in (*(args.strata or ()), *(args.cluster or ())) if data.has(name)
    ]
    if args.bin is not None:  # a pair (method, number of intervals)
        table = bbl.bin(
            table, method=args.bin[0], bins=args.bin[1], response=response, weights=args.weights
        )
    if args.lump is not None:
        table = bbl.lump(table, min_count=args.lump, response=response, weights=args.weights)
    if design_columns and isinstance(table, pd.DataFrame):  # `bin` and `lump` return DataFrames
        for name in design_columns:
            table[name] = data.column(name)
    return table


def drop_unknown_groups(table: pd.DataFrame, response: Hashable) -> pd.DataFrame:
    """Return the table without rows whose response is missing; a note reports their number."""
    if response not in table.columns:
        return table
    is_unknown = table[response].isna().to_numpy()
    # the fit reports a response that is entirely missing
    if not is_unknown.any() or is_unknown.all():
        return table
    print_note(
        f"{int(is_unknown.sum())} of {len(table)} rows were left out because {str(response)!r} is "
        "missing"
    )
    return table[~is_unknown].reset_index(drop=True)


def _order_levels(
    table: pd.DataFrame, level_lists: list[str]
) -> tuple[pd.DataFrame, frozenset[Hashable]]:
    """Convert columns to ordered categories (see `_order_column`); return the table and the
    columns' names.

    `level_lists` are the --levels options: ``COL=A,B,...``, or ``A,B,...`` for all columns with
    these levels. The columns are changed in place.
    """
    ordered_names: set[Hashable] = set()
    for text in level_lists:
        name, levels = _parse_levels(text, list(table.columns))
        names = _find_columns_with_levels(table, levels, text) if name is None else [name]
        ordered_names.update(names)
        for column in names:
            table[column] = _order_column(table[column], levels)
    return table, frozenset(ordered_names)


def _parse_levels(text: str, columns: list[str]) -> tuple[str | None, list[str]]:
    """Split ``COL=A,B,...`` into (column, levels), and ``A,B,...`` into (None, levels).

    Names and levels may contain ``=``: the column is the longest name in the table that precedes an
    ``=``. Levels with a comma must be in double quotes.
    """
    sign_positions = [
        k for k, character in enumerate(text) if character == "=" and text[:k] in columns
    ]
    name = text[: sign_positions[-1]] if sign_positions else None
    if name is None and "=" in text:
        text_before_sign = text.partition("=")[0]
        near = near_match(text_before_sign, columns)
        raise OptionError(
            f"levels={text!r}: the table has no column {text_before_sign!r}.",
            argument="levels",
            hint=f"{near}Use one of its columns.",
            value=text,
        )
    # split at commas outside of quotes
    levels = [
        level.strip()
        for level in next(
            csv.reader([text if name is None else text[sign_positions[-1] + 1 :]]), []
        )
    ]
    if len(levels) < 2 or len(set(levels)) < len(levels) or "" in levels:
        raise OptionError(
            f"levels={text!r} must list two or more different levels.",
            argument="levels",
            hint="Write them as in Never,Sometimes,Often.",
            value=text,
        )
    return name, levels


def _find_columns_with_levels(table: pd.DataFrame, levels: list[str], text: str) -> list[Hashable]:
    """Return the columns with at least two of the levels and no other values; warn about columns
    with other values.

    `text` is the option's value, for the error if there are no such columns.
    """
    names: list[Hashable] = []
    for name in table.columns:
        texts = set(table[name].dropna().map(str))
        if len(texts & set(levels)) < 2:
            continue
        if unlisted := sorted(texts - set(levels)):
            warnings.warn(
                DataWarning(
                    f"column {name!r} has the level {unlisted[0]!r}, which is not in "
                    f"--levels, so its levels are sorted alphabetically."
                ),
                stacklevel=2,
            )
        else:
            names.append(name)
    if not names:
        raise OptionError(
            f"levels={text!r}: no column has exactly these levels.", argument="levels", value=text
        )
    return names


def _order_column(series: pd.Series, levels: list[str]) -> pd.Categorical:
    """Return a column as ordered categories, `levels`. Numbers and booleans keep their type."""
    value_of_text: dict[str, Any] = {str(value): value for value in series.dropna().unique()}
    if unlisted := sorted(set(value_of_text) - set(levels)):
        raise LevelError(
            f"column {series.name!r} has the level {unlisted[0]!r}, which --levels does not list.",
            column=series.name,
            value=unlisted[0],
            hint="Add it to --levels.",
        )
    if absent := [level for level in levels if level not in value_of_text]:
        warnings.warn(
            DataWarning(
                f"no row has the level {absent[0]!r}, which --levels lists for column "
                f"{series.name!r}.",
                column=series.name,
                value=absent[0],
            ),
            stacklevel=2,
        )
    categories = [value_of_text[level] for level in levels if level in value_of_text]
    return pd.Categorical(series, categories=categories, ordered=True)


def _warn_of_markers(table: pd.DataFrame) -> None:
    """Warn about columns that would be numeric except for cells such as "-" or "?", which may be
    missing values.
    """
    markers_by_column: dict[str, list[str]] = {}
    for name in table.columns:
        texts = table[name].dropna()
        if pd.api.types.is_numeric_dtype(texts.dtype) or pd.api.types.is_bool_dtype(texts.dtype):
            continue
        cells = pd.Series(texts.map(str).unique(), dtype=object)
        is_marker = cells.str.fullmatch(MARKER).to_numpy(bool)
        numbers = pd.to_numeric(cells[~is_marker], errors="coerce").to_numpy(float)
        if is_marker.any() and len(numbers) and np.isfinite(numbers).all():
            markers_by_column[str(name)] = cells[is_marker].tolist()
    # --na replaces the default texts, so the hint adds NA again
    if markers_by_column:
        name, markers = next(iter(markers_by_column.items()))
        count_text = (
            f" (and {len(markers_by_column) - 1} more)" if len(markers_by_column) > 1 else ""
        )
        options = " ".join(f"--na {mark}" for mark in markers)
        warnings.warn(
            DataWarning(
                f"column {name!r} contains {markers[0]!r} as well as numbers{count_text}, so "
                f"it is read as text.",
                column=name,
                value=markers[0],
                hint=f"If they are missing values, add --na NA {options}.",
            ),
            stacklevel=2,
        )
