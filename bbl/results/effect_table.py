"""Effects: predictions and comparisons of probabilities, as a frame, figure, HTML or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from string import ascii_lowercase
from typing import final

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, integer
from bbl.design.labels import Labels
from bbl.report.canvas import group_numbers
from bbl.report.machine.summary import Section, Summary
from bbl.report.plot_effects import plot_effects
from bbl.report.text import decimal_texts, label_text, p_texts

__all__ = ["Effects"]

SHOWN = 30  # printed rows
# columns of `Effects.frame`
NUMBERS = ("estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high")


@final
@dataclass(frozen=True, repr=False)
class Effects:
    """Probabilities of the groups, or their contrasts, as returned by ``fit.avg_comparisons()`` and
    related methods.

    Attributes
    ----------
    frame : DataFrame
        ``group``, ``term`` and ``contrast`` (both empty for predictions without `variables`); the
        columns of `by`, or the row labels in ``row``; ``estimate``, ``std_error``, ``statistic``,
        ``p_value``, ``conf_low``, ``conf_high``; and ``note``, which explains missing intervals or
        contains a caution. A trailing underscore is added to these names if a column of `by` has
        the same name.
    columns : dict of str to str
        Names of these columns in `frame`, keyed by the names without an underscore.
    title : str
        Heading of tables and figures, such as "Difference in probability".
    note : str
        Source of the standard errors, or the reason why they are missing.
    labels : Labels
        Names of groups and predictors.
    level : float
        Coverage of the intervals.
    null : float or None
        Value of the estimates without an effect, 0 or 1; None for predictions.
    statistic : str
        Printed name of the test statistic: "z", or "t" under a sampling design.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
    >>> fit.avg_comparisons("Sex").frame[["group", "contrast", "estimate", "std_error"]].round(3)
      group       contrast  estimate  std_error
    0    No  Male - Female     0.542      0.033
    1   Yes  Male - Female    -0.542      0.033
    """

    frame: pd.DataFrame
    columns: dict[str, str]
    title: str
    note: str
    labels: Labels
    level: float
    null: float | None
    statistic: str = "z"

    @check_keywords
    def plot(self, groups: Sequence | None = None, top: int = 40, axes=None):
        """Draw the estimates with their intervals, one panel per group.

        Parameters
        ----------
        groups : sequence, optional
            Groups to draw; all by default. With two groups, only the second is drawn by default,
            because the effects on the two groups differ only in sign.
        top : int, default 40
            Maximum number of rows in a panel.
        axes : sequence of matplotlib Axes, optional
            One per group; a new figure by default.

        Returns
        -------
        list of matplotlib Axes

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> effects = bbl.bbl("Survived ~ Sex + Age", titanic, weights="Freq").avg_comparisons(
        ...     "Sex"
        ... )
        >>> len(effects.plot())
        1
        """
        n_rows = integer("top", top, 1)
        group_positions = group_numbers(self.labels, groups)
        # differences, or log odds ratios
        if groups is None and len(group_positions) == 2 and self.null == 0.0:
            group_positions = group_positions[1:]
        frame = self.frame
        group_names = [self.labels.groups[k] for k in group_positions]
        # rows of `frame` for each group: groups vary fastest
        rows_by_group = [
            list(range(k, len(frame), len(self.labels.groups))) for k in group_positions
        ]
        columns = [self.columns[name] for name in ("estimate", "conf_low", "conf_high")]
        # (groups, 3, rows of a group)
        estimates_and_limits = np.array(
            [frame.iloc[rows][columns].to_numpy(float).T for rows in rows_by_group]
        )
        row_texts = [self._row_text(k) for k in rows_by_group[0]]  # the same for all groups
        return plot_effects(
            self.labels,
            group_names,
            row_texts,
            estimates_and_limits,
            self.title,
            self.null,
            n_rows,
            axes,
        )

    def strongest_first(self) -> Effects:
        """Return the effects sorted by term, in decreasing order of the largest absolute estimate.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> effects = bbl.bbl("Survived ~ Age + Sex", titanic, weights="Freq").avg_comparisons()
        >>> effects.frame["term"].tolist(), effects.strongest_first().frame["term"].tolist()
        (['Age', 'Age', 'Sex', 'Sex'], ['Sex', 'Sex', 'Age', 'Age'])
        """
        magnitude = self.frame[self.columns["estimate"]].astype(float).abs()
        # for each row; terms are identified by their text
        largest_of_term = magnitude.groupby(self.frame[self.columns["term"]].map(str)).transform(
            "max"
        )
        # stable: the order of rows within a term is kept; terms without an estimate come last
        order = np.argsort(-largest_of_term.fillna(-1.0).to_numpy(), kind="stable")
        return replace(self, frame=self.frame.iloc[order].reset_index(drop=True))

    def _row_text(self, row: int) -> str:
        """Return the name of row number `row` of `frame`: its term and contrast, followed by its
        values of `by` or its label.
        """
        package_columns = set(self.columns.values())
        cells = self.frame.iloc[row]
        term, contrast = (label_text(cells[self.columns[name]]) for name in ("term", "contrast"))
        # both are empty in predictions that set no predictor, one is empty if a name or level is ""
        texts = [f"{term}: {contrast}" if term and contrast else term or contrast]
        for name, value in zip(self.frame.columns, cells, strict=True):
            # a column of `by`, or the row's label
            if name not in package_columns or name == self.columns.get("row"):
                texts.append(f"{label_text(name)}={label_text(value)}")
        return ", ".join(text for text in texts if text) or "all rows"

    @cached_property
    def _summary(self) -> Summary:
        """Table of the first `SHOWN` rows for text, HTML and LaTeX.

        With two groups, only the second is shown, because the results for the first follow from it.
        """
        groups = self.frame[self.columns["group"]].tolist()
        shows_second = len(self.labels.groups) == 2 and self.null in (0.0, None)
        # groups vary fastest
        rows = list(range(len(groups)))[1::2] if shows_second else list(range(len(groups)))
        n_rows = len(rows)
        rows = rows[:SHOWN]
        shown = self.frame.iloc[rows]
        number_columns = [self.columns[name] for name in NUMBERS]
        row_texts = [
            self._row_text(k) if shows_second else f"{label_text(groups[k])}: {self._row_text(k)}"
            for k in rows
        ]
        notes = shown[self.columns["note"]].tolist() if self.columns["note"] in shown else []
        # long notes are printed below the table, with letters after the row names
        letters = dict(zip(dict.fromkeys(filter(None, notes)), ascii_lowercase, strict=False))
        if letters:
            row_texts = [
                f"{text} ({letters[note]})" if note in letters else text
                for text, note in zip(row_texts, notes, strict=True)
            ]
        numbers = shown[number_columns].astype(float)
        # short names of `NUMBERS`
        numbers = numbers.set_axis(
            ["estimate", "se", self.statistic, "p", "lower", "upper"], axis=1
        )
        numbers = numbers.dropna(axis=1, how="all")  # e.g. statistics without tests
        if self.null is None:  # testing that a probability is zero makes no sense
            numbers = numbers.drop(columns=[self.statistic, "p"], errors="ignore")
        texts_by_column = {
            name: p_texts(column)
            if name == "p"
            else decimal_texts(column, 2 if name == self.statistic else 4)
            for name, column in numbers.items()
        }
        table = pd.DataFrame(texts_by_column, index=pd.Index(row_texts, dtype=object))
        heading = f"{self.title}, {100 * self.level:g} % intervals"
        is_cut = n_rows > len(shown)
        heading += f" (the first {len(shown)} of {n_rows} rows; see .frame)" if is_cut else ""
        texts = [self.note, *(f"({letter}) {text}" for text, letter in letters.items())]
        section = Section(heading, table, " ".join(text for text in texts if text))
        head = f"Probabilities of {label_text(self.labels.response)}"
        head += f" = {label_text(self.labels.groups[1])}" if shows_second else ""
        # no key figures; no complete tables, since `frame` is complete
        return Summary(head=head, facts={}, title="Effects:", sections=[section], tables={})

    def as_html(self) -> str:
        """Return the table as an HTML fragment with escaped names.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> effects = bbl.bbl("Survived ~ Sex + Age", titanic, weights="Freq").avg_comparisons(
        ...     "Sex"
        ... )
        >>> "Sex: Male - Female" in effects.as_html()
        True
        """
        return self._summary.as_html()

    _repr_html_ = as_html

    def as_latex(self) -> str:
        """Return the table as LaTeX with escaped names. Packages are not required.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> effects = bbl.bbl("Survived ~ Sex + Age", titanic, weights="Freq").avg_comparisons(
        ...     "Sex"
        ... )
        >>> "tabular" in effects.as_latex()
        True
        """
        return self._summary.as_latex()

    def __repr__(self) -> str:
        return str(self._summary)
