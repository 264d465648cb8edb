"""Network summary: facts of a Bayesian network classifier, its features, and its small tables."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from bbl.design.labels import Labels
from bbl.names import distinct_names
from bbl.report.format import label_text
from bbl.report.machine.summary import Section, Summary
from bbl.report.text import head_text

__all__ = ["network_summary"]

FEATURES = 20  # features in the table of a summary
TABLES = 10  # probability tables in a summary
ROWS = 12  # of a probability table
COLUMNS = 10  # of a probability table


def network_summary(
    call: str, labels: Labels, facts: Mapping[str, Any], features: pd.DataFrame, params: Mapping[Hashable, pd.DataFrame]
) -> Summary:
    """Return the summary of a Bayesian network classifier.

    Parameters
    ----------
    call : str
        As made by `bbl.report.text.call_text`.
    labels : Labels
    facts : mapping of str to object
        Title and value, in the order in which they are to be shown.
    features : DataFrame
        A row for each feature; the column ``information`` is that about the class, in nats.
    params : mapping of name to DataFrame
        Tables of probabilities by variable; small ones are shown.

    Returns
    -------
    Summary
        ``tables`` has every table of `params` under its variable's name, ``"fit"`` and ``"features"`` (with an
        underscore after them where a variable has that name).
    """
    shown = features
    count_note = ""
    if len(features) > FEATURES:
        shown = features.nlargest(FEATURES, "information").sort_index(
            key=lambda names: features.index.get_indexer(names)
        )
        count_note = f" ({FEATURES} that tell most of {len(features)})"
    note = "information: mutual information with the class, in nats, over the rows in which the feature is known."
    sections = [Section(f"features{count_note}", shown, note)] if len(shown) else []
    small = [name for name, table in params.items() if table.shape[0] <= ROWS and table.shape[1] <= COLUMNS]
    for name in [n for n in small if n in (*shown.index, labels.response)][: TABLES + 1]:
        table = params[name]
        parents_text = "" if name == labels.response else f" | {', '.join(map(label_text, table.index.names))}"
        sections.append(Section(f"P({label_text(name)}{parents_text})", _flat(table)))
    facts_frame = pd.DataFrame({"value": list(facts.values())}, index=list(facts))
    names = distinct_names([*map(str, params), "fit", "features"])
    tables = dict(zip(names, [*params.values(), facts_frame, features], strict=True))
    return Summary(head_text(call, labels), dict(facts), "Bayesian network classifier:", sections, tables)


def _flat(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one text for each row's configuration."""
    names = [", ".join(map(label_text, row)) if isinstance(row, tuple) else label_text(row) for row in table.index]
    if table.index.names == [None]:
        names = [""] * len(table)
    return table.set_axis(pd.Index(names, dtype=object)).set_axis([label_text(c) for c in table.columns], axis=1)
