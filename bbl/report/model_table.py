"""ModelTable: coefficients and key figures of several fits side by side, as text, HTML, LaTeX and Markdown."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bbl.report.markup import html_table, latex_table, markdown_table
from bbl.report.text import table_text

__all__ = ["ModelTable"]


@dataclass(frozen=True, repr=False)
class ModelTable:
    """Fits side by side; made by `bbl.etable`.

    Attributes
    ----------
    frame : DataFrame of str
        One column for each model; rows are coefficients with standard errors in brackets, then key figures.
    title : str
    note : str
        Line under the table that explains brackets and stars.
    """

    frame: pd.DataFrame
    title: str
    note: str

    def __repr__(self) -> str:
        return "\n".join([self.title, table_text(self.frame), self.note])

    def as_html(self) -> str:
        """Return the table in HTML; names are escaped."""
        return html_table(self.frame, self.title, self.note)

    _repr_html_ = as_html

    def as_latex(self) -> str:
        """Return the table in LaTeX that needs no package; names are escaped."""
        return latex_table(self.frame, self.title, self.note)

    def as_markdown(self) -> str:
        """Return the table in Markdown; names are escaped."""
        return markdown_table(self.frame, self.title, self.note)
