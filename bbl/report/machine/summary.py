"""Summary of a fit: its key figures (*facts*) and tables as text, HTML or LaTeX. The text has R's
layout.

A `LikelihoodRatio` contains the naive Bayes fields of m predictors, ``h`` (K, L_i - 1) by group and
``h0`` (L_i - 1,) for all groups together, and their tests: ``chisq``, ``df``, ``p``, ``exact``
(m,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.labels import Labels
from bbl.report.machine.tables import level_index
from bbl.report.markup import Section, html_fragment, html_table, html_text, latex_table, latex_text
from bbl.report.text import (
    DIGITS,
    distinct_names,
    fill,
    format_numbers,
    head_text,
    label_index,
    label_text,
    p_texts,
    statistic_texts,
    table_text,
)
from bbl.stats.likelihood_ratio import LikelihoodRatio
from bbl.stats.metrics import first_largest

__all__ = [
    "Section",
    "Summary",
    "coefficient_section",
    "density_summary",
    "estimate_summary",
    "fit_summary",
    "own_summary",
    "shown_note",
    "sections_of_tests",
]

SHOWN = 10  # up to 10 predictors have a table each; with more, one table shows 10 of them
FEW = 4  # terms that are named in a note
LINES = 70  # total number of lines of the predictors' tables, at most
ODDS_NOTE = (
    "Odds ratios come from the exact tests. For a term with several parameters, the odds ratio "
    "with the smallest p-value is shown."
)
CORRECTED = "Rao-Scott"  # a table's test under a sampling design
REST_NOTE = "All tests: fit.inference().tests({})."


@dataclass(frozen=True, repr=False)
class Summary:
    """The result of ``summary()``, which can be printed as text, displayed as HTML, or converted to
    LaTeX.

    Attributes
    ----------
    head : str
        Text at the top: the call, the levels of the predictors, and the response groups.
    facts : mapping of str to object
        Key figures by title, in order.
    title : str
        Heading above all sections.
    sections : sequence of Section
    tables : dict of str to DataFrame
        Complete tables: the facts as ``"fit"``; for classifiers also the test of every predictor
        as ``"tests"`` and the naive Bayes fields by predictor and level as ``"h"``.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> summary = fit.summary()
    >>> list(summary.tables)  # doctest: +NORMALIZE_WHITESPACE
    ['fit', 'tests', 'h', 'Tests of the fields, dh = 0 (Yes - No)',
     'Tests of the couplings, dJ = 0 (Yes - No)']
    """

    head: str
    facts: Mapping[str, Any]
    title: str
    sections: Sequence[Section]
    tables: dict[str, pd.DataFrame]

    def __str__(self) -> str:
        facts = [
            fill(f"{name}: {_fact_text(value)}", indent="    ")
            for name, value in self.facts.items()
        ]
        parts = ["\n".join(facts)] if facts else []
        for k, section in enumerate(self.sections):
            # only the first section has the title above it
            lines = [self.title] * (k == 0 and bool(self.title)) + [f"{section.heading}:"]
            lines += [table_text(section.table)] * bool(len(section.table))
            note = fill(section.note)
            parts.append("\n".join(lines + [note] * bool(note)))  # an empty note takes no line
        return "\n\n".join([self.head, *parts])

    __repr__ = __str__

    def as_html(self) -> str:
        """Return the summary as an HTML fragment, with names and values escaped.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.summary().as_html().startswith("<div")
        True
        """
        facts = [html_table(self._facts_frame(), header=False)] if self.facts else []
        return html_fragment(self.head, self.sections, [*facts, f"<p>{html_text(self.title)}</p>"])

    _repr_html_ = as_html

    def as_latex(self) -> str:
        """Return the summary as LaTeX that needs no packages, with names and values escaped.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> "flushleft" in fit.summary().as_latex()
        True
        """
        # ~: LaTeX drops blanks at the start of a line
        lines = [
            "~" * (len(line) - len(line.lstrip())) + latex_text(line.lstrip())
            for line in self.head.splitlines()
        ]
        parts = ["\\begin{flushleft}\\ttfamily\n" + " \\\\\n".join(lines) + "\n\\end{flushleft}"]
        if self.facts:
            parts.append(latex_table(self._facts_frame(), header=False))
        parts.append(latex_text(self.title))
        parts += [
            latex_table(section.table, section.heading, section.note) for section in self.sections
        ]
        return "\n\n".join(parts)

    def _facts_frame(self) -> pd.DataFrame:
        """Return the facts as text in the column ``value``, indexed by title."""
        return pd.DataFrame(
            {"value": [_fact_text(v) for v in self.facts.values()]},
            index=list(self.facts),
            dtype=object,
        )


def _fact_text(value: object) -> str:
    """Return a key figure as text, a float with `DIGITS` significant digits."""
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else label_text(value)


def sections_of_tests(
    tests: pd.DataFrame, of: object, note: str, classes: bool = True
) -> list[Section]:
    """Return the joint tests of the fields and of the couplings, one section each.

    Each section shows at most the `SHOWN` rows with the smallest p-values. Terms without a test are
    listed below.

    Parameters
    ----------
    tests : DataFrame
        A row for each group and term, as from ``Inference.tests()``: ``group``, ``predictor``,
        ``predictor2`` and so on (missing in terms of fewer predictors), ``chisq``, ``df``, ``p``,
        ``p_holm`` (adjusted p), ``test`` (the kind of test, or why it is missing) and, with exact
        tests, ``odds_ratio``.
    of : object
        Argument of ``Inference.tests`` that returns these tests. With "group", parameters of the
        groups are tested, and otherwise differences.
    note : str
        Line below the last table, which describes the standard errors of the tests.
    classes : bool, default True
        Whether the model has a response. The groups are then in the row names or, if there is
        only one, in the heading.
    """
    # the symbols h and J, or dh and dJ for differences; and the argument as written in a call
    d = "" if of == "group" else "d"
    of_text = "" if of == "group" else f"of={of!r}"
    is_coupling = tests["predictor2"].notna()
    has_one_group = classes and tests["group"].nunique() == 1
    of_group = f" ({label_text(tests['group'].iloc[0])})" if has_one_group else ""
    sections = []
    # fields, then couplings
    for rows, symbol in ((tests[~is_coupling], "h"), (tests[is_coupling], "J")):
        if not len(rows):
            continue
        names = _term_names(rows)
        if classes and not has_one_group:
            names = rows["group"].map(label_text) + ": " + names
        is_tested = rows["p"].notna()
        tested = rows[is_tested]
        # the rows with the smallest p, in the order of `tests`
        shown = tested.sort_values("p", kind="stable").head(SHOWN).sort_index()
        kind = "fields" if symbol == "h" else "couplings"
        heading = f"Tests of the {kind}, {d}{symbol} = 0{of_group}{shown_note(shown, tested)}"
        untested = rows[~is_tested].assign(name=names[~is_tested])
        sections.append(
            Section(heading, _test_table(shown, names[shown.index]), _untested_note(untested))
        )
    if sections:
        has_odds_ratios = any("odds ratio" in section.table for section in sections)
        is_cut = any("smallest p" in section.heading for section in sections)
        notes = [
            sections[-1].note,
            note,
            ODDS_NOTE * has_odds_ratios,
            REST_NOTE.format(of_text) * is_cut,
        ]
        sections[-1] = replace(sections[-1], note=" ".join(text.strip() for text in notes if text))
    return sections


def _term_names(tests: pd.DataFrame) -> pd.Series:
    """Return the names of the terms, such as ``a:b``, with the same index as `tests`."""
    # "predictor", "predictor2", ...: missing in terms with fewer predictors
    columns = [column for column in tests.columns if str(column).startswith("predictor")]
    names = tests[columns[0]].map(label_text)
    for column in columns[1:]:
        names = names + tests[column].map(
            lambda name: "" if pd.isna(name) else f":{label_text(name)}"
        )
    return names


def _test_table(tests: pd.DataFrame, names: pd.Series) -> pd.DataFrame:
    """Return the statistics and p-values of `tests` as text, without empty columns."""
    columns = {}
    if tests["test"].str.startswith(CORRECTED).any():
        # the p-values belong to F
        tests = tests.assign(F=tests["chisq"] / tests["df"], chisq=np.nan)
    for column, title in (("chisq", "chisq"), ("F", "F"), ("odds_ratio", "odds ratio")):
        if column in tests and tests[column].notna().any():
            columns[title] = statistic_texts(tests[column])
    columns["df"] = tests["df"].tolist()
    columns["p"] = p_texts(tests["p"])
    columns["Holm"] = p_texts(tests["p_holm"])
    columns["test"] = tests["test"].tolist()
    return pd.DataFrame(columns, index=pd.Index(names, dtype=object))


def _untested_note(untested: pd.DataFrame) -> str:
    """Return sentences that list the terms without a test, grouped by reason. The text is empty if
    all terms have a test.
    """
    return " ".join(
        f"Not tested ({reason}): {_first_names(rows['name'].tolist())}."
        for reason, rows in untested.groupby("test", sort=False)
    )


def _first_names(names: list[str]) -> str:
    """Return the first names of a list as text, followed by the total number if there are more."""
    text = ", ".join(names[:FEW])
    return text if len(names) <= FEW else f"{text}, ... ({len(names)} in all)"


def shown_note(shown: pd.DataFrame, table: pd.DataFrame) -> str:
    """Return the end of a heading, which states that `shown` contains the rows of `table` with the
    smallest p-values. The text is empty if `shown` contains all rows.
    """
    if len(shown) == len(table):
        return ""
    if table["p"].isna().all():
        return f" (the first {len(shown)} of {len(table)}; none has a test)"
    return f" (the {len(shown)} of {len(table)} with the smallest p)"


def fit_summary(
    call: str,
    labels: Labels,
    tests: LikelihoodRatio,
    facts: Mapping[str, Any],
    sections: Sequence[Section] = (),
    head: str | None = None,
) -> Summary:
    """Return the summary of a classifier: its facts, and naive Bayes tests of its predictors.

    As in R, the fields of each predictor are shown in a table if there are at most `SHOWN`
    predictors and these tables have at most `LINES` lines in total. Otherwise, the tests with the
    largest chi-squares are shown.

    Parameters
    ----------
    call : str
        The call as text (`bbl.report.text.call_text`).
    labels : Labels
    tests : LikelihoodRatio
        Naive Bayes fields of every predictor, and its likelihood-ratio test (eq. 27 of Woo & Wang
        2022).
    facts : mapping of str to object
        Key figures by title, in display order.
    sections : sequence of Section
        Tables below the naive Bayes tests.
    head : str, optional
        Text at the top if the model's predictors differ from `labels`.
    """
    names = label_index(labels.names)
    table = pd.DataFrame(
        {"chisq": tests.chisq, "df": tests.df, "Pr(>chisq)": tests.p, "test": tests.test},
        index=names,
    )
    h = pd.DataFrame(
        # (levels, K + 1); the first parts allow for models without predictors
        np.column_stack(
            (
                np.hstack([np.empty((len(labels.groups), 0)), *tests.h]).T,
                np.concatenate([np.empty(0), *tests.h0]),
            )
        ),
        index=level_index(labels, first=1),
        columns=label_index(distinct_names([*labels.groups, "pooled"])),
    )
    tables = {
        "fit": pd.DataFrame({"value": list(facts.values())}, index=list(facts)),
        "tests": table,
        "h": h,
    }
    # lines of a table: heading, column names, groups and pooled fit, test, and an empty line
    n_lines = sum((len(labels.groups) + 2) * -(-len(h) // SHOWN) + 3 for h in tests.h0)
    if len(names) <= SHOWN and n_lines <= LINES:
        title = "naive Bayes coefficients:"
        predictor_sections = [_h_section(labels, tests, i) for i in range(len(names))]
    else:
        largest = np.argsort(-tests.chisq, kind="stable")[:SHOWN]
        title = "naive Bayes likelihood-ratio tests:"
        shown = table.iloc[largest]
        texts = pd.DataFrame(
            {
                "chisq": statistic_texts(shown["chisq"]),
                "df": shown["df"].tolist(),
                "Pr(>chisq)": [
                    f"< {text}" if is_bound else text
                    for text, is_bound in zip(
                        p_texts(shown["Pr(>chisq)"]), tests.is_bound[largest], strict=True
                    )
                ],
                "test": [text.partition(",")[0] for text in tests.test[largest]],
            },
            index=shown.index,
        )
        heading = f"the {len(shown)} of {len(names)} predictors with the largest chi-squares"
        predictor_sections = [Section(heading, texts, 'Coefficients: fit.summary().tables["h"].')]
    tables |= {section.heading: section.table for section in sections}
    if not predictor_sections:
        title = ""
    return Summary(
        head or head_text(call, labels),
        dict(facts),
        title,
        [*predictor_sections, *sections],
        tables,
    )


def own_summary(
    call: str, labels: Labels, facts: Mapping[str, Any], sections: Sequence[Section]
) -> Summary:
    """Return the summary of a classifier, which contains only its facts and its own tables.

    Naive Bayes likelihood-ratio tests are omitted. These tests ignore the order of a response and,
    under a sampling design, would treat the weights as counts of independent rows.
    """
    tables = {"fit": pd.DataFrame({"value": list(facts.values())}, index=list(facts))}
    tables |= {section.heading: section.table for section in sections}
    return Summary(head_text(call, labels), dict(facts), "", list(sections), tables)


def coefficient_section(
    coefficients: pd.DataFrame, heading: str = "Coefficients", note: str = ""
) -> Section:
    """Return a regression's coefficients with their tests as a section.

    `coefficients` has the columns ``Estimate``, ``Std. Error``, the statistic, and its p-value
    such as ``Pr(>|t|)``.
    """
    texts = {
        name: p_texts(column) if str(name).startswith("Pr(") else statistic_texts(column, 4)
        for name, column in coefficients.items()
    }
    return Section(heading, pd.DataFrame(texts, index=coefficients.index), note)


def density_summary(
    call: str,
    labels: Labels,
    counts: Sequence[np.ndarray],
    prior_count: float,
    facts: Mapping[str, Any],
    sections: Sequence[Section] = (),
) -> Summary:
    """Return the summary of a fit without classes: its facts, and the predictors' most frequent
    levels and entropies.

    With more than `SHOWN` predictors, those with the largest entropy are shown.
    ``tables["levels"]`` contains the count and proportion of every level.

    Parameters
    ----------
    call, labels, facts, sections
        As in `fit_summary`.
    counts : sequence of m ndarrays, shape (L_i,)
        Weighted count of every level.
    prior_count : float
        Pseudocount of a predictor, divided evenly among its levels.
    """
    # level proportions (L_i,) of a predictor: p_a = (n_a + c / L_i) / (n + c) with pseudocount c;
    # the entropy is -sum p_a log2 p_a
    shares = [(n + prior_count / len(n)) / (n.sum() + prior_count) for n in counts]
    level_columns = {"count": np.concatenate(counts), "share": np.concatenate(shares)}
    level_frame = pd.DataFrame(level_columns, level_index(labels))
    table = pd.DataFrame(
        {
            "levels": [len(p) for p in shares],
            "most frequent": [
                str(levels[first_largest(p)])
                for levels, p in zip(labels.levels, shares, strict=True)
            ],
            "share": [float(p.max()) for p in shares],
            # 0 log 0 = 0
            "entropy (bits)": [
                -float(np.log2(p, where=p > 0, out=np.zeros_like(p)) @ p) for p in shares
            ],
        },
        index=label_index(labels.names),
    )
    shown = table
    heading = "level proportions"
    if len(table) > SHOWN:
        largest = np.argsort(-table["entropy (bits)"].to_numpy(), kind="stable")[:SHOWN]
        shown = table.iloc[largest]
        heading = f"the {SHOWN} of {len(table)} predictors with the largest entropies"
    sections = [Section(heading, shown), *sections]
    tables = {
        "fit": pd.DataFrame({"value": list(facts.values())}, index=list(facts)),
        "levels": level_frame,
    }
    tables |= {section.heading: section.table for section in sections}
    return Summary(
        head_text(call, labels),
        dict(facts),
        title="marginal distributions:",
        sections=sections,
        tables=tables,
    )


def estimate_summary(head: str, facts: Mapping[str, Any], frame: pd.DataFrame) -> Summary:
    """Return the summary of the parameters of one group: `facts`, fields and couplings.

    `frame` contains a row for each parameter, as in ``coef().to_frame()``, and optionally a column
    ``sd``. If there are more than `SHOWN` fields or couplings, only the largest are shown.
    """
    is_coupling = frame["term"] == "J"
    values = [name for name in ("estimate", "sd") if name in frame]
    sections = []
    for rows, kind in ((frame[~is_coupling], "fields h"), (frame[is_coupling], "couplings J")):
        if not len(rows):
            continue
        largest = rows["estimate"].abs().sort_values(ascending=False, kind="stable").index[:SHOWN]
        shown = rows.loc[sorted(largest)]
        names = [
            ", ".join(
                f"{label_text(row[f'predictor{k}'])} = {label_text(row[f'level{k}'])}"
                for k in (("",) if kind.startswith("fields") else ("", "2"))
            )
            for _, row in shown.iterrows()
        ]
        more = f", the {SHOWN} largest of {len(rows)}" if len(rows) > SHOWN else ""
        table = pd.DataFrame(shown[values].to_numpy(), index=names, columns=values)
        sections.append(Section(f"{kind}{more}", table))
    tables = {
        "fit": pd.DataFrame({"value": list(facts.values())}, index=list(facts)),
        "parameters": frame,
    }
    return Summary(head, dict(facts), "parameters:", sections, tables)


def _h_section(labels: Labels, tests: LikelihoodRatio, i: int) -> Section:
    """Return R's table of predictor i: naive Bayes fields by group and non-reference level, with
    the predictor's test as a note.
    """
    table = pd.DataFrame(
        np.vstack((tests.h[i], tests.h0[i])),
        index=distinct_names([*map(label_text, labels.groups), "pooled"]),
        columns=[label_text(x) for x in labels.levels[i][1:]],
    )
    chisq, p = (format_numbers([v])[0] for v in (tests.chisq[i], tests.p[i]))
    kind = " (Monte Carlo)" if tests.is_drawn[i] else " (exact)" if tests.exact[i] else ""
    sign = "<" if tests.is_bound[i] else "="
    note = f"chisq = {chisq}, df = {tests.df[i]}, Pr(>chisq) {sign} {p}{kind}"
    return Section(f"h_{label_text(labels.names[i])}", table, note)
