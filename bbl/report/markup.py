"""Tables as HTML, LaTeX and Markdown, with names and values from the data escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from bbl.report.text import format_column, label_text

__all__ = [
    "Section",
    "html_fragment",
    "html_table",
    "html_text",
    "latex_table",
    "latex_text",
    "markdown_table",
]

LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # at the start of a row, LaTeX would read "[" and "*" as options of the preceding row break
    "[": "{[}",
    "*": "{*}",
}
# names of columns
P_VALUES = ("p", "Pr(>|z|)", "Pr(>chisq)", "Pr(>F)", "Holm", "BH", "p_value", "p_holm", "p_bh")
# longest HTML cell or row name that counts as short; longer ones are wrapped
MAX_CELL = 24
INFINITE = {"Inf": r"$\infty$", "-Inf": r"$-\infty$"}


@dataclass(frozen=True)
class Section:
    """A table with a heading above it and a note below it."""

    heading: str
    table: pd.DataFrame
    note: str = ""


def html_text(text: object) -> str:
    """Return text escaped for HTML, on one line."""
    return html.escape(label_text(text))


def latex_text(text: object) -> str:
    """Return text escaped for LaTeX, on one line. Two hyphens are not converted to a dash."""
    return "".join(LATEX.get(c, c) for c in label_text(text)).replace("--", "-{}-")


def _latex_cell(cell: str) -> str:
    """Return a cell for LaTeX: numbers in math mode, ``1e-05`` as a power of ten."""
    if cell in INFINITE:
        return INFINITE[cell]
    number = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:e([+-]\d+))?", cell, re.ASCII)
    if number is None:
        return latex_text(cell)
    power = rf" \times 10^{{{int(number[2])}}}" if number[2] else ""
    return f"${number[1]}{power}$"


def html_table(frame: pd.DataFrame, title: str = "", note: str = "", header: bool = True) -> str:
    """Return a table in HTML, with the caption `title`, the line `note` below it, and, if `header`,
    the column names.

    Examples
    --------
    >>> print(html_table(pd.DataFrame({"p<q": [0.5]}, index=["a&b"])))
    <table>
    <thead><tr><td></td><th scope="col">p&lt;q</th></tr></thead>
    <tbody>
    <tr><th scope="row">a&amp;b</th><td>0.5</td></tr>
    </tbody>
    </table>
    """
    columns = [_html_cells(name, column) for name, column in frame.items()]
    # for each column, the HTML attribute of its cells: long cells are left-aligned and wrapped
    classes = [
        ' class="text"' if max(map(len, cells), default=0) > MAX_CELL else "" for cells in columns
    ]
    # with short cells and some long row name, a narrow page puts each row name on a line above
    # its cells
    is_long = (
        header
        and not any(classes)
        and max((len(label_text(name)) for name in frame.index), default=0) > MAX_CELL
    )
    lines = [f'<table class="long" style="--columns: {len(columns)}">' if is_long else "<table>"]
    if title:
        lines.append(f"<caption>{html_text(title)}</caption>")
    if header:
        names = "".join(
            f'<th scope="col"{css}>{html_text(c)}</th>'
            for c, css in zip(frame.columns, classes, strict=True)
        )
        lines.append(f"<thead><tr><td></td>{names}</tr></thead>")
    lines.append("<tbody>")
    for name, *cells in zip(frame.index, *columns, strict=True):
        data_cells = "".join(
            f"<td{css}>{html_text(c)}</td>" for c, css in zip(cells, classes, strict=True)
        )
        row_label = f'<th scope="row">{html_text(name)}</th>' if label_text(name) else "<td></td>"
        lines.append(f"<tr>{row_label}{data_cells}</tr>")
    lines.append("</tbody>")
    if note:
        lines.append(
            f'<tfoot><tr><td colspan="{frame.shape[1] + 1}">{html_text(note)}</td></tr></tfoot>'
        )
    return "\n".join([*lines, "</table>"])


def _html_cells(name: object, column: pd.Series) -> list[str]:
    """Return a column's cells as text. P-values have four decimals, or two significant digits if
    they are below 0.0001.

    A missing value in a column that is not numeric is shown as an empty cell.
    """
    if not pd.api.types.is_float_dtype(column.dtype):
        return ["" if pd.api.types.is_scalar(v) and pd.isna(v) else label_text(v) for v in column]
    if name in P_VALUES:
        # p-values of 0 or nan are formatted as in other columns
        return [
            f"{p:.4f}" if p >= 1e-4 else f"{p:.2g}" if p > 0 else format_column(pd.Series([p]))[0]
            for p in column
        ]
    return format_column(column)


def html_fragment(text: str, sections: Sequence[Section], between: Sequence[str] = ()) -> str:
    """Return an HTML fragment: `text`, line by line, then the HTML in `between`, then the tables
    of `sections`.
    """
    lines = (
        [f"<pre>{'<br>'.join(html_text(line) for line in text.splitlines())}</pre>"] if text else []
    )
    tables = [html_table(section.table, section.heading, section.note) for section in sections]
    return "\n".join(['<div class="bbl-summary">', *lines, *between, *tables, "</div>"])


def latex_table(frame: pd.DataFrame, title: str = "", note: str = "", header: bool = True) -> str:
    r"""Return a table in LaTeX that needs no packages; the arguments are the same as in
    `html_table`.

    Examples
    --------
    >>> print(latex_table(pd.DataFrame({"p_1": [-0.5, 0.25]}, index=["a & b", "c"])))
    \begin{tabular}{lr}
    \hline
     & p\_1 \\
    \hline
    a \& b & $-0.50$ \\
    c & $0.25$ \\
    \hline
    \end{tabular}
    """
    columns = [
        [_latex_cell(cell) for cell in format_column(frame.iloc[:, k])]
        for k in range(frame.shape[1])
    ]
    n = len(columns) + 1  # including the column of row names
    align = "".join("r" if pd.api.types.is_numeric_dtype(dtype) else "l" for dtype in frame.dtypes)
    lines = [rf"\begin{{tabular}}{{l{align}}}"]
    if title:
        lines.append(rf"\multicolumn{{{n}}}{{l}}{{{latex_text(title)}}} \\")
    lines.append(r"\hline")
    if header:
        lines += [" & ".join(["", *map(latex_text, frame.columns)]) + r" \\", r"\hline"]
    lines += [
        " & ".join([latex_text(name), *cells]) + r" \\"
        for name, *cells in zip(frame.index, *columns, strict=True)
    ]
    lines.append(r"\hline")
    if note:
        lines.append(rf"\multicolumn{{{n}}}{{l}}{{{latex_text(note)}}} \\")
    return "\n".join([*lines, r"\end{tabular}"])


def markdown_table(frame: pd.DataFrame, title: str = "", note: str = "") -> str:
    r"""Return a table in GitHub Markdown; the arguments are the same as in `html_table`.

    Examples
    --------
    >>> print(markdown_table(pd.DataFrame({"p|q": [0.5]}, index=["a_b"])))
    |  | p\|q |
    | --- | ---: |
    | a\_b | 0.5 |
    """
    columns = [format_column(frame.iloc[:, k]) for k in range(frame.shape[1])]
    align = ["---:" if pd.api.types.is_numeric_dtype(dtype) else ":---" for dtype in frame.dtypes]
    lines = [f"**{_markdown_text(title)}**", ""] if title else []
    lines += [
        f"| {' | '.join(['', *map(_markdown_text, frame.columns)])} |",
        f"| {' | '.join(['---', *align])} |",
    ]
    for name, *cells in zip(frame.index, *columns, strict=True):
        lines.append(f"| {' | '.join(map(_markdown_text, [name, *cells]))} |")
    return "\n".join([*lines, "", _markdown_text(note)] if note else lines)


def _markdown_text(text: object) -> str:
    """Return text escaped for Markdown, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", label_text(text))
