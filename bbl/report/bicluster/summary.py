"""Printed form and summary of two-way clusterings: sizes of the row and column groups, and tables
of blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bbl.report.machine.summary import Section, Summary
from bbl.report.text import label_text, table_text

__all__ = ["CRITERIA", "OBJECTIVES", "blocks_summary", "blocks_text"]

# title of each method's criterion; ICL is the integrated completed likelihood
CRITERIA = {"prototype": "-2 ICL", "genetic": "Fitness", "mcmc": "Expected loss"}
# name of each metric's objective
OBJECTIVES = {
    "squared": "sum of squares",
    "levels": "deviance",
    "pearson": "1 - r, summed over rows and columns",
}
MAX_GROUPS = 12  # groups in a printed table


def _head_text(call: str, names: tuple, sizes: Sequence[np.ndarray]) -> str:
    """Return the call and, for rows and for columns, a line with the number of groups and their
    sizes.

    `names` and `sizes` are the same as in `blocks_text`.
    """
    lines = ["Call:", f" {call}"]
    for name, size in zip(names, sizes, strict=True):
        shown = ", ".join(map(str, size[:MAX_GROUPS])) + (", ..." if len(size) > MAX_GROUPS else "")
        lines.append(
            f" {len(size)} {label_text(name)} group{'s' * (len(size) > 1)} of size {shown}"
        )
    return "\n".join(lines)


def _first_groups(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the first `MAX_GROUPS` rows and columns, and a note about the others. The note is
    empty if all are returned.
    """
    a, b = table.shape
    if a <= MAX_GROUPS and b <= MAX_GROUPS:
        return table, ""
    return table.iloc[
        :MAX_GROUPS, :MAX_GROUPS
    ], f"Showing the first {min(a, MAX_GROUPS)} x {min(b, MAX_GROUPS)} of {a} x {b} blocks."


def _with_text_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with columns (group, level) renamed to ``group:level``."""
    if table.columns.nlevels == 1:
        return table
    return table.set_axis([":".join(map(str, name)) for name in table.columns], axis=1)


def blocks_text(call: str, means: pd.DataFrame, names: tuple, sizes: Sequence[np.ndarray]) -> str:
    """Return the printed form of a clustering: call, sizes of the groups, and block means.

    `names` contains the names of rows and columns, and `sizes` contains the sizes (a,) and (b,) of
    their groups.

    Examples
    --------
    >>> sizes = [np.array([2, 1]), np.array([3])]
    >>> print(blocks_text("bicluster(...)", pd.DataFrame([[1.5], [4.0]]), ("user", "movie"), sizes))
    Call:
     bicluster(...)
     2 user groups of size 2, 1
     1 movie group of size 3
    <BLANKLINE>
    Block means:
        0
    0 1.5
    1 4.0
    """
    table, note = _first_groups(_with_text_columns(means))
    return "\n".join(
        [
            _head_text(call, names, sizes),
            "",
            "Block means:",
            table_text(table),
            *([note] if note else []),
        ]
    )


def blocks_summary(
    call: str,
    facts: Mapping[str, Any],
    means: pd.DataFrame,
    counts: pd.DataFrame,
    names: tuple,
    sizes: Sequence[np.ndarray],
) -> Summary:
    """Return the summary of a clustering: key figures (`facts`, by title), block means, and numbers
    of observations.

    `names` and `sizes` are the same as in `blocks_text`.
    """
    sections = []
    for heading, table in (("Means", means), ("Observations", counts)):
        sections.append(Section(heading, *_first_groups(_with_text_columns(table))))
    tables = {"fit": pd.DataFrame({"value": list(facts.values())}, index=list(facts), dtype=object)}
    tables |= {"means": means, "counts": counts}
    return Summary(
        _head_text(call, names, sizes), facts, title="Blocks:", sections=sections, tables=tables
    )
