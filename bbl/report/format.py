"""Numbers, names and tables as text in R's layout."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence

import pandas as pd

__all__ = ["DIGITS", "WIDTH", "format_column", "format_numbers", "label_text", "table_text", "vector_text"]

DIGITS = 7  # significant digits, as R prints
WIDTH = 80


def format_numbers(values: Iterable[float], digits: int = DIGITS) -> list[str]:
    """Format numbers as R prints a vector: all with the same decimals, `digits` significant ones at most.

    The decimals are those that the number in most need of them takes for `digits` significant digits, trailing
    zeros dropped; exponents are used for all where that is shorter.

    Parameters
    ----------
    values : iterable of float
    digits : int, default 7

    Returns
    -------
    list of str

    Examples
    --------
    >>> format_numbers([0.31397276768, 1.46507523897, 0.043380295630])
    ['0.3139728', '1.4650752', '0.0433803']
    >>> format_numbers([1e-05, 0.01])
    ['1e-05', '1e-02']
    """
    numbers = [float(v) for v in values]
    finite = [v for v in numbers if math.isfinite(v)]
    parts = [f"{abs(v):.{digits - 1}e}".split("e") for v in finite]
    significant = [max(len(mantissa.replace(".", "").rstrip("0")), 1) for mantissa, _ in parts]
    exponents = [int(e) for _, e in parts]
    decimals = max((s - 1 - e for s, e in zip(significant, exponents, strict=True)), default=0)
    decimals, most = max(decimals, 0), max(significant, default=1)
    fixed = max((e for e in exponents if e > 0), default=0) + 1 + decimals + (decimals > 0)
    scientific = most + (most > 1) + max((4 + (abs(e) >= 100) for e in exponents), default=0)
    style = f".{decimals}f" if fixed <= scientific or not finite else f".{most - 1}e"
    return [f"{v:{style}}" if math.isfinite(v) else _not_finite(v) for v in numbers]


def _not_finite(v: float) -> str:
    return "NaN" if math.isnan(v) else "Inf" if v > 0 else "-Inf"


def label_text(label: object) -> str:
    """Return a name or a level for printing: on one line, and without control characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(label))


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal: two for a wide character, none for a combining one."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _pad(text: str, width: int, left: bool = False) -> str:
    space = " " * (width - _width(text))
    return text + space if left else space + text


def _columns(names: Sequence[str], columns: Sequence[Sequence[str]], left: bool = False) -> list[str]:
    """Return lines of row names and columns; the first entry of each column is its heading. Wraps at WIDTH."""
    stub = max(map(_width, names), default=0)
    widths = [max(map(_width, column)) for column in columns]
    lines, at = [], 0
    while at < len(columns):
        end, used = at, stub
        while end < len(columns) and (end == at or used + widths[end] + (used > 0) <= WIDTH):
            used += widths[end] + (used > 0)
            end += 1
        for r, name in enumerate(names):
            cells = [_pad(columns[c][r], widths[c], left) for c in range(at, end)]
            lines.append(" ".join(([_pad(name, stub, left=True)] if stub else []) + cells).rstrip())
        at = end
    return lines


def vector_text(names: Iterable, values: Iterable[float]) -> str:
    """Return a named vector as R prints it: names over numbers of one common width."""
    cells = format_numbers(values)
    width = max(map(_width, cells))
    headings = [label_text(name) for name in names]
    width = max(width, *map(_width, headings))
    columns = [(_pad(h, width), _pad(c, width)) for h, c in zip(headings, cells, strict=True)]
    return "\n".join(_columns(["", ""], columns))


def format_column(column: pd.Series) -> list[str]:
    """Return the cells of a column: floats with common decimals, everything else as text."""
    if pd.api.types.is_float_dtype(column.dtype):
        return format_numbers(column)
    return [label_text(v) for v in column]


def table_text(frame: pd.DataFrame, left: bool = False) -> str:
    """Return a table as R prints a matrix or a data frame: each column has its own number of decimals."""
    names = ["", *map(label_text, frame.index)]
    columns = [[label_text(c), *format_column(frame.iloc[:, k])] for k, c in enumerate(frame.columns)]
    return "\n".join(_columns(names, columns, left))
