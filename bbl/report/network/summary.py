"""Summary of a Bayesian network classifier: its key figures, its features, and its smaller
probability tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from bbl.design.labels import Labels
from bbl.report.machine.summary import Section, Summary
from bbl.report.text import distinct_names, head_text, label_text

__all__ = ["network_summary"]

MAX_FEATURES = 20  # rows of the table of features
MAX_TABLES = 10  # probability tables of features in a summary, in addition to the class's
MAX_ROWS = 12  # rows of the largest probability table shown
MAX_COLUMNS = 10  # columns of the largest probability table shown


def network_summary(
    call: str,
    labels: Labels,
    facts: Mapping[str, Any],
    features: pd.DataFrame,
    params: Mapping[Hashable, pd.DataFrame],
) -> Summary:
    """Return the summary of a Bayesian network classifier.

    Parameters
    ----------
    call : str
        The call as text (`bbl.report.text.call_text`).
    labels : Labels
    facts : mapping of str to object
        Key figures by title, in display order.
    features : DataFrame
        A row for each feature; the column ``information`` is the mutual information with the
        class, in nats. The `MAX_FEATURES` most informative features are shown, in the order of
        `features`.
    params : mapping of name to DataFrame
        Probability table of each variable, with levels as columns; tables of at most
        (`MAX_ROWS`, `MAX_COLUMNS`) are shown.

    Returns
    -------
    Summary
        ``tables`` contains every table of `params` under its variable's name, the facts as
        ``"fit"`` and the features as ``"features"``; these two get a trailing underscore if a
        variable has that name.
    """
    shown_features = features
    count_note = ""
    if len(features) > MAX_FEATURES:
        # the most informative features, in the order of `features`
        shown_features = features.nlargest(MAX_FEATURES, "information").sort_index(
            key=lambda names: features.index.get_indexer(names)
        )
        count_note = f" ({MAX_FEATURES} most informative of {len(features)})"
    note = (
        "information: mutual information with the class, in nats, over the rows where the "
        "feature is known."
    )
    sections = (
        [Section(f"features{count_note}", shown_features, note)] if len(shown_features) else []
    )
    small_tables = [
        name
        for name, table in params.items()
        if table.shape[0] <= MAX_ROWS and table.shape[1] <= MAX_COLUMNS
    ]
    variables_in_sections = (*shown_features.index, labels.response)
    # 1: of the class
    shown_tables = [name for name in small_tables if name in variables_in_sections][
        : MAX_TABLES + 1
    ]
    for name in shown_tables:
        table = params[name]
        parents_text = (
            "" if name == labels.response else f" | {', '.join(map(label_text, table.index.names))}"
        )
        sections.append(Section(f"P({label_text(name)}{parents_text})", _with_text_labels(table)))
    facts_frame = pd.DataFrame({"value": list(facts.values())}, index=list(facts))
    names = distinct_names([*map(str, params), "fit", "features"])
    tables = dict(zip(names, [*params.values(), facts_frame, features], strict=True))
    return Summary(
        head_text(call, labels),
        dict(facts),
        title="Bayesian network classifier:",
        sections=sections,
        tables=tables,
    )


def _with_text_labels(table: pd.DataFrame) -> pd.DataFrame:
    """Return a probability table with row labels as text: the parents' levels, joined by
    commas.
    """
    texts = [
        ", ".join(map(label_text, row)) if isinstance(row, tuple) else label_text(row)
        for row in table.index
    ]
    # the class has no parents: its table has one row without a name
    if table.index.names == [None]:
        texts = [""] * len(table)
    return table.set_axis(pd.Index(texts, dtype=object)).set_axis(
        [label_text(c) for c in table.columns], axis=1
    )
