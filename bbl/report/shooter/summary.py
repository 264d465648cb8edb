"""Printed form, tables of weights and summary of a sparse regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.labels import Labels
from bbl.report.machine.summary import Section, Summary
from bbl.report.text import distinct_names, head_text, label_text

__all__ = [
    "contrast_names",
    "list_terms",
    "shooter_summary",
    "shooter_text",
    "term_name",
    "weight_frame",
]

MAX_ROWS = 20  # rows of the table of terms in a summary
MAX_NAMED = 5  # terms named in a sentence

Tables = Mapping[tuple[int, ...], np.ndarray]  # of each term, its log odds (L_1, ..., L_k, K - 1)


def contrast_names(labels: Labels) -> list[str]:
    """Return the names of the K - 1 columns of log odds: each group against the first."""
    first = label_text(labels.groups[0])
    return distinct_names(f"{label_text(group)} vs {first}" for group in labels.groups[1:])


def term_name(labels: Labels, term: tuple[int, ...]) -> str:
    """Return the names of a term's predictors, joined by colons."""
    return ":".join(label_text(labels.names[i]) for i in term)


def list_terms(labels: Labels, terms: Sequence[tuple[int, ...]]) -> str:
    """Return the first `MAX_NAMED` terms as text, followed by the number of remaining terms."""
    count_note = f" and {len(terms) - MAX_NAMED} more" if len(terms) > MAX_NAMED else ""
    return ", ".join(term_name(labels, term) for term in terms[:MAX_NAMED]) + count_note


def weight_frame(labels: Labels, tables: Tables, first: int) -> pd.DataFrame:
    """Return the log odds of each term as a frame with a row for each joint level; in `tables`,
    they have shape (L_1, ..., L_k, K - 1).

    Columns are ``order``, ``predictors`` and ``levels`` (tuples), and the log odds, named by
    `contrast_names`. With ``first=1``, rows with the first level of any predictor are omitted; with
    ``first=0``, all rows are kept.
    """
    rows: list[tuple] = []
    values = [np.empty((0, len(labels.groups) - 1))]  # an empty part, needed without terms
    for term, table in tables.items():
        # without the first `first` levels of each predictor
        shown = table[tuple(slice(first, None) for _ in term)]
        names = tuple(labels.names[i] for i in term)
        rows += [
            (len(term), names, levels)
            for levels in product(*(labels.levels[i][first:] for i in term))
        ]
        values.append(shown.reshape(-1, table.shape[-1]))
    frame = pd.DataFrame(rows, columns=["order", "predictors", "levels"])
    numbers = pd.DataFrame(np.concatenate(values), columns=contrast_names(labels))
    return pd.concat([frame, numbers], axis=1)


def shooter_text(call: str, labels: Labels, counts: pd.Series, refitted: bool) -> str:
    """Return the printed fit: call, number of terms of each order (`counts`), and whether weights
    are penalised.
    """
    if not counts.sum():
        return f"{head_text(call, labels)}\n\nNo terms: all predictions are the class proportions."
    counts_text = ", ".join(f"{n} of order {k}" for k, n in counts.items())
    penalty_text = "unpenalised" if refitted else "penalised"
    return f"{head_text(call, labels)}\n\nTerms: {counts_text}\nWeights: {penalty_text}"


def shooter_summary(
    call: str, labels: Labels, facts: Mapping[str, Any], terms: pd.DataFrame
) -> Summary:
    """Return the summary of a fit: key figures (`facts`, by title) and the strongest `terms`.

    `terms` contains a row for each combination of levels of a term, strongest term first: its
    ``order``, ``predictors`` and ``levels``, the ``step`` of the path at which it entered, its
    ``strength`` (root mean square contribution to the log odds over the joint levels), and its
    weights.

    The summary's ``tables`` are the facts as ``"fit"`` and all `terms` as ``"terms"``.
    """
    shown = terms.head(MAX_ROWS)
    numbers_note = (
        " For numeric predictors, the table shows log odds per unit and the size of the weights."
    )
    names = [
        ":".join(f"{label_text(p)}[{label_text(x)}]" for p, x in zip(*term, strict=True))
        for term in zip(shown["predictors"], shown["levels"], strict=True)
    ]
    # the row names contain the predictors and levels
    table = shown.drop(columns=["predictors", "levels"]).set_axis(pd.Index(names, dtype=object))
    heading = (
        f"terms (the first {MAX_ROWS} of {len(terms)} rows)" if len(terms) > MAX_ROWS else "terms"
    )
    note = (
        "The vs columns show log odds at these levels, excluding lower-order terms. At the "
        "first level, they are 0. The strength is the root mean square of the term over all "
        "combinations of levels, each counted once." + (numbers_note if labels.numbers else "")
    )
    tables = {
        "fit": pd.DataFrame({"value": list(facts.values())}, index=list(facts)),
        "terms": terms,
    }
    sections = [Section(heading, table, note)] if len(shown) else []
    return Summary(
        head_text(call, labels),
        dict(facts),
        title="Sparse regression:",
        sections=sections,
        tables=tables,
    )
