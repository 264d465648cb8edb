"""Numbers, names and tables as text in R's layout."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence

import pandas as pd

__all__ = [
    "DIGITS",
    "WIDTH",
    "decimal_texts",
    "format_column",
    "format_numbers",
    "label_text",
    "p_texts",
    "statistic_texts",
    "table_text",
    "vector_text",
]

DIGITS = 7  # significant digits, as R prints
WIDTH = 80  # characters of a line
INDENT = 3  # blanks before the cells of a row whose name is on the line above


def format_numbers(values: Iterable[float], digits: int = DIGITS) -> list[str]:
    """Format numbers as R prints a vector: all with the same number of decimals.

    Each number is rounded to `digits` significant digits without trailing zeros; the number of
    decimals is the largest that one of them needs. All numbers are in scientific notation where
    that is shorter.

    Examples
    --------
    >>> format_numbers([0.31397276768, 1.46507523897, 0.043380295630])
    ['0.3139728', '1.4650752', '0.0433803']
    >>> format_numbers([1e-05, 0.01])
    ['1e-05', '1e-02']
    """
    numbers = [float(v) for v in values]
    finite = [v for v in numbers if math.isfinite(v)]
    mantissas_exponents = [f"{abs(v):.{digits - 1}e}".split("e") for v in finite]
    n_significant = [
        max(len(mantissa.replace(".", "").rstrip("0")), 1) for mantissa, _ in mantissas_exponents
    ]
    exponents = [int(e) for _, e in mantissas_exponents]
    # a number with s significant digits and exponent e needs s - 1 - e decimals
    decimals = max(
        0, max((s - 1 - e for s, e in zip(n_significant, exponents, strict=True)), default=0)
    )
    max_significant = max(n_significant, default=1)
    # width of the longest number in either notation: digits, a point if needed, and an exponent
    # such as e-05 or e+100
    fixed_width = max((e for e in exponents if e > 0), default=0) + 1 + decimals + (decimals > 0)
    exponent_width = max((4 + (abs(e) >= 100) for e in exponents), default=0)
    scientific_width = max_significant + (max_significant > 1) + exponent_width
    use_fixed = fixed_width <= scientific_width or not finite
    style = f".{decimals}f" if use_fixed else f".{max_significant - 1}e"
    return [f"{v:{style}}" if math.isfinite(v) else _non_finite_text(v) for v in numbers]


def p_texts(values: Iterable[float], digits: int = 3) -> list[str]:
    """Format p-values one by one, each to `digits` significant digits; a missing one is empty.

    Examples
    --------
    >>> p_texts([1.562274e-25, 0.97241379, 0.00054701968, float("nan")])
    ['1.56e-25', '0.972', '0.000547', '']
    """
    return ["" if math.isnan(v) else f"{v:.{digits}g}" for v in values]


def statistic_texts(values: Iterable[float], digits: int = 4) -> list[str]:
    """Format statistics with equally many decimals, at most as many as `digits` significant digits
    of the largest have; a missing one is empty.

    Examples
    --------
    >>> statistic_texts([26.31548, float("nan"), 3.4])
    ['26.32', '', '3.40']
    """
    numbers = [float(v) for v in values]
    largest = max((abs(v) for v in numbers if math.isfinite(v)), default=0.0)
    decimals = max(0, digits - 1 - (math.floor(math.log10(largest)) if largest > 0 else 0))
    return decimal_texts(numbers, decimals)


def decimal_texts(values: Iterable[float], decimals: int) -> list[str]:
    """Format numbers with this number of decimals; a missing one is empty.

    Examples
    --------
    >>> decimal_texts([0.54321, float("nan"), -1], 2)
    ['0.54', '', '-1.00']
    """
    return [
        "" if math.isnan(v) else f"{v:.{decimals}f}" if math.isfinite(v) else _non_finite_text(v)
        for v in map(float, values)
    ]


def _non_finite_text(v: float) -> str:
    """Return a number that is not finite as R prints it."""
    return "NaN" if math.isnan(v) else "Inf" if v > 0 else "-Inf"


def label_text(label: object) -> str:
    """Return a name or a level for printing: on one line, and without control characters."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(label)
    )


def _width(text: str) -> int:
    """Return the width of a text in characters of a terminal: 2 for a wide character, 0 for a
    combining one.
    """
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    # 0: not a combining character
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _pad(text: str, width: int, left: bool = False) -> str:
    """Return a text filled up with blanks to `width` characters: on its left, or with `left` on its
    right.
    """
    space = " " * (width - _width(text))
    return text + space if left else space + text


def _table_lines(
    row_names: Sequence[str], columns: Sequence[Sequence[str]], left: bool = False
) -> list[str]:
    """Return the lines of a table; columns that do not fit into `WIDTH` follow below, with the row
    names repeated, unless they fit below the names.

    The first of `row_names` and the first text of each column are the heading. `left` aligns the
    cells left.
    """
    name_width = max(map(_width, row_names), default=0)
    widths = [max(map(_width, column)) for column in columns]
    lines = []
    # all columns fit side by side if long names have a line of their own, above their cells
    all_columns = INDENT + sum(widths) + len(widths)
    if len(widths) > 1 and all_columns <= WIDTH < name_width + sum(widths) + len(widths):
        for row, name in enumerate(row_names):
            cells = [_pad(columns[c][row], widths[c], left) for c in range(len(columns))]
            lines += [name] * bool(name) + [" ".join([" " * INDENT, *cells]).rstrip()]
        return lines
    # columns begin..end-1 fit side by side
    begin = 0
    while begin < len(columns):
        end = begin
        line_width = name_width
        while end < len(columns) and (
            end == begin or line_width + widths[end] + (line_width > 0) <= WIDTH
        ):
            line_width += widths[end] + (line_width > 0)  # a blank before the column
            end += 1
        for row, name in enumerate(row_names):
            cells = [_pad(columns[c][row], widths[c], left) for c in range(begin, end)]
            lines.append(
                " ".join(
                    ([_pad(name, name_width, left=True)] if name_width else []) + cells
                ).rstrip()
            )
        begin = end
    return lines


def vector_text(names: Iterable, values: Iterable[float]) -> str:
    """Return a named vector as R prints it: names over numbers, all padded to one width."""
    cells = format_numbers(values)
    headings = [label_text(name) for name in names]
    width = max(map(_width, [*cells, *headings]))
    columns = [(_pad(h, width), _pad(c, width)) for h, c in zip(headings, cells, strict=True)]
    return "\n".join(_table_lines(["", ""], columns))  # without names of the two rows


def format_column(column: pd.Series) -> list[str]:
    """Return the cells of a column: floats with common decimals, everything else as text."""
    if pd.api.types.is_float_dtype(column.dtype):
        return format_numbers(column)
    return [label_text(v) for v in column]


def table_text(frame: pd.DataFrame, left: bool = False) -> str:
    """Return a table as R prints a data frame, with equally many decimals in a column; `left`
    aligns the cells left.
    """
    names = ["", *map(label_text, frame.index)]
    columns = [
        [label_text(c), *format_column(frame.iloc[:, k])] for k, c in enumerate(frame.columns)
    ]
    return "\n".join(_table_lines(names, columns, left))
