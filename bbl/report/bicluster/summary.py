"""Blocks: groups of rows and columns as text, and their summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bbl.report.format import label_text, table_text
from bbl.report.machine.summary import Section, Summary

__all__ = ["CRITERIA", "blocks_summary", "blocks_text"]

CRITERIA = {"prototype": "-2 ICL", "genetic": "Fitness", "mcmc": "Expected loss"}
SHOWN = 12  # groups of a printed table


def _head(call: str, names: tuple, sizes: Sequence[np.ndarray]) -> str:
    lines = ["Call:", f" {call}"]
    for name, size in zip(names, sizes, strict=True):
        shown = ", ".join(map(str, size[:SHOWN])) + (", ..." if len(size) > SHOWN else "")
        lines.append(f" {len(size)} {label_text(name)} group{'s' * (len(size) > 1)} of size {shown}")
    return "\n".join(lines)


def _few(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the first groups, and a note on those that are left out."""
    a, b = table.shape
    if a <= SHOWN and b <= SHOWN:
        return table, ""
    return table.iloc[:SHOWN, :SHOWN], f"The first {min(a, SHOWN)} x {min(b, SHOWN)} of {a} x {b}."


def _flat(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with plain names of columns."""
    if table.columns.nlevels == 1:
        return table
    return table.set_axis([":".join(map(str, name)) for name in table.columns], axis=1)


def blocks_text(call: str, means: pd.DataFrame, names: tuple, sizes: Sequence[np.ndarray]) -> str:
    """Return groups and block means for printing.

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
    table, note = _few(_flat(means))
    return "\n".join([_head(call, names, sizes), "", "Block means:", table_text(table), *([note] if note else [])])


def blocks_summary(
    call: str,
    facts: Mapping[str, Any],
    means: pd.DataFrame,
    counts: pd.DataFrame,
    names: tuple,
    sizes: Sequence[np.ndarray],
) -> Summary:
    """Return the summary of two partitions.

    Parameters
    ----------
    call : str
    facts : mapping of str to object
        Title and value of what is known about the fit.
    means, counts : DataFrame
        By row groups and column groups.
    names : (str, str)
        What rows and columns are called.
    sizes : two ndarrays of int
        Of their groups.
    """
    sections = []
    for heading, table in (("Means", means), ("Observations", counts)):
        first_rows, note = _few(_flat(table))
        sections.append(Section(heading, first_rows, note))
    tables = {"fit": pd.DataFrame({"value": list(facts.values())}, index=list(facts), dtype=object)}
    tables |= {"means": means, "counts": counts}
    return Summary(_head(call, names, sizes), facts, "Blocks:", sections, tables)
