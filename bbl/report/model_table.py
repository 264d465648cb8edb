"""ModelTable: coefficients and key figures of several fits side by side, as text, HTML, LaTeX or
Markdown.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bbl.report.markup import html_table, latex_table, markdown_table
from bbl.report.text import table_text

__all__ = ["ModelTable"]

SHOWN_COEFFICIENTS = 60  # printed rows of coefficients


@dataclass(frozen=True, repr=False)
class ModelTable:
    """Several fits side by side, as returned by `bbl.etable`.

    Attributes
    ----------
    frame : DataFrame of str
        One column per model; rows are coefficients with standard errors in parentheses, then key
        figures.
    title : str
    note : str
        Line below the table that explains parentheses and stars.
    n_facts : int
        Number of rows of key figures.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fits = [bbl.bbl(f"Survived ~ Sex {sign} Age", titanic, "Freq") for sign in "+*"]
    >>> table = bbl.etable(fits)
    >>> print(table.as_markdown().splitlines()[0])
    **Models of Survived**
    """

    frame: pd.DataFrame
    title: str
    note: str
    n_facts: int = 0

    def _printed(self) -> tuple[pd.DataFrame, str]:
        """Return the printed table (the first coefficients and all key figures) and the note below
        it.
        """
        n_hidden = len(self.frame) - self.n_facts - SHOWN_COEFFICIENTS
        if n_hidden <= 0:
            return self.frame, self.note
        table = pd.concat([self.frame.head(SHOWN_COEFFICIENTS), self.frame.tail(self.n_facts)])
        hidden_note = (
            f"{n_hidden:,} more coefficients: see .frame or as_html() for all, or select with "
            f"keep= and pairs=."
        )
        return table, f"{hidden_note} {self.note}"

    def __repr__(self) -> str:
        table, note = self._printed()
        return "\n".join([self.title, table_text(table), note])

    def as_html(self) -> str:
        """Return the table in HTML, with names escaped.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fits = [bbl.bbl(f"Survived ~ Sex {sign} Age", titanic, "Freq") for sign in "+*"]
        >>> "<table" in bbl.etable(fits).as_html()
        True
        """
        return html_table(self.frame, self.title, self.note)

    def _repr_html_(self) -> str:
        table, note = self._printed()
        return html_table(table, self.title, note)

    def as_latex(self) -> str:
        """Return the table in LaTeX that needs no packages, with names escaped.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fits = [bbl.bbl(f"Survived ~ Sex {sign} Age", titanic, "Freq") for sign in "+*"]
        >>> "tabular" in bbl.etable(fits).as_latex()
        True
        """
        return latex_table(self.frame, self.title, self.note)

    def as_markdown(self) -> str:
        """Return the table in Markdown, with names escaped.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fits = [bbl.bbl(f"Survived ~ Sex {sign} Age", titanic, "Freq") for sign in "+*"]
        >>> print(bbl.etable(fits).as_markdown().splitlines()[0])
        **Models of Survived**
        """
        return markdown_table(self.frame, self.title, self.note)
