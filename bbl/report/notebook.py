"""Display of results in notebooks: lines of text and HTML tables, with names and values escaped."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pandas as pd

from bbl.report.markup import Section, html_fragment

__all__ = ["Notebook", "first_rows"]

SHOWN_ROWS = 20  # of a table


class Notebook(ABC):
    """Mixin for results that notebooks show as text and tables instead of their printed form."""

    @abstractmethod
    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the notebook display: one or more lines of text, and the tables below them."""

    def _repr_html_(self) -> str:
        return html_fragment(*self._notebook())


def first_rows(frame: pd.DataFrame, heading: str, source: str, note: str = "") -> Section:
    """Return the first 20 rows of a table for a notebook. If there are more, a note refers to
    `source`.

    Examples
    --------
    >>> section = first_rows(pd.DataFrame({"x": range(30)}), "Numbers", ".frame")
    >>> len(section.table), section.note
    (20, '... (10 more rows; see .frame)')
    """
    table = frame.head(SHOWN_ROWS)
    if isinstance(table.index, pd.RangeIndex):  # row numbers carry no information
        table = table.set_axis([""] * len(table), axis=0)
    n_hidden = len(frame) - len(table)
    hidden_note = [f"... ({n_hidden:,} more rows; see {source})"] if n_hidden else []
    return Section(heading, table, " ".join([*hidden_note, *([note] if note else [])]))
