"""Effects: predictions and comparisons on the scale of probabilities, as a frame, a figure, HTML
and LaTeX.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import pandas as pd

from bbl.checks import integer, verb
from bbl.design.labels import Labels
from bbl.report.canvas import group_numbers
from bbl.report.machine.summary import Section, Summary
from bbl.report.plot_effects import plot_effects
from bbl.report.text import label_text

__all__ = ["Effects"]

SHOWN = 30  # rows that are printed
# columns of `Effects.frame`
NUMBERS = ("estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high")


@final
@dataclass(frozen=True, repr=False)
class Effects:
    """Probabilities of the groups, or their contrasts; made by ``fit.avg_comparisons()`` and the
    verbs like it.

    Attributes
    ----------
    frame : DataFrame
        ``group``, ``term`` and ``contrast`` (both empty in predictions that set no predictor); the
        columns of `by`, or ``row``, the label of a row; ``estimate``, ``std_error``, ``statistic``,
        ``p_value``, ``conf_low``, ``conf_high``; and ``note``, why a row has no interval or what to
        think of it. Beside a column of `by` of the same name the package's has a trailing
        underscore.
    columns : dict of str to str
        Name in `frame` of each column of the package, by its name without an underscore.
    title : str
        Heading of tables and figures, such as "Difference of probabilities".
    note : str
        Source of the standard errors, or why there are none.
    labels : Labels
        Names of groups and predictors.
    level : float
        Coverage of the intervals.
    null : float or None
        Value of the estimates without any effect, 0 or 1; None for predictions, which have none.

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

    @verb
    def plot(self, groups: Sequence | None = None, top: int = 40, axes=None):
        """Draw the estimates with their intervals, a panel for each group.

        Parameters
        ----------
        groups : sequence, optional
            Groups to draw; all by default. With two groups, differences of one are those of the
            other with the other sign: by default only the second group is drawn.
        top : int, default 40
            Number of rows of a panel.
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
        # rows of `frame` of each group: groups change fastest in it
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
        """Return the same effects, sorted by the largest absolute estimate of their term, the
        largest first.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> effects = bbl.bbl("Survived ~ Age + Sex", titanic, weights="Freq").avg_comparisons()
        >>> effects.frame["term"].tolist(), effects.strongest_first().frame["term"].tolist()
        (['Age', 'Age', 'Sex', 'Sex'], ['Sex', 'Sex', 'Age', 'Age'])
        """
        magnitude = self.frame[self.columns["estimate"]].astype(float).abs()
        # for each row; terms are told apart by their text
        largest_of_term = magnitude.groupby(self.frame[self.columns["term"]].map(str)).transform(
            "max"
        )
        # stable: rows of a term stay in order; terms without an estimate come last
        order = np.argsort(-largest_of_term.fillna(-1.0).to_numpy(), kind="stable")
        return replace(self, frame=self.frame.iloc[order].reset_index(drop=True))

    def _row_text(self, row: int) -> str:
        """Return the name of row number `row` of `frame`: its term and contrast, then its values of
        `by` or label.
        """
        package_columns = set(self.columns.values())
        cells = self.frame.iloc[row]
        term, contrast = (label_text(cells[self.columns[name]]) for name in ("term", "contrast"))
        # either may be empty: both in predictions that set no predictor, one if a name or a level
        # is ""
        texts = [f"{term}: {contrast}" if term and contrast else term or contrast]
        for name, value in zip(self.frame.columns, cells, strict=True):
            # a column of `by`, or the row's label
            if name not in package_columns or name == self.columns.get("row"):
                texts.append(f"{label_text(name)}={label_text(value)}")
        return ", ".join(text for text in texts if text) or "all rows"

    @cached_property
    def _summary(self) -> Summary:
        """The first `SHOWN` rows as a table for text, HTML and LaTeX."""
        shown = self.frame.head(SHOWN)
        number_columns = [self.columns[name] for name in NUMBERS]
        row_texts = [
            f"{label_text(group)}: {self._row_text(k)}"
            for k, group in enumerate(shown[self.columns["group"]].tolist())
        ]
        table = shown[number_columns].astype(float)
        # short names of `NUMBERS`
        table = table.set_axis(["estimate", "se", "z", "p", "lower", "upper"], axis=1)
        table = table.dropna(axis=1, how="all")  # such as those of tests, if there are none
        if self.columns["note"] in shown and shown[self.columns["note"]].any():
            table["note"] = shown[self.columns["note"]].to_numpy()
        numeric = table.select_dtypes("number").columns
        table[numeric] = table[numeric].round({name: 4 for name in numeric if name != "p"})
        if "p" in table:
            # 4 significant digits: 4 decimals would print 0
            table["p"] = [float(f"{p:.4g}") for p in table["p"]]
        table.index = pd.Index(row_texts, dtype=object)
        n_hidden = len(self.frame) - len(shown)
        heading = f"{self.title}, {100 * self.level:g} % intervals"
        heading += f" (the first {len(shown)} of {len(self.frame)} rows)" if n_hidden else ""
        sections: list[Any] = [Section(heading, table, self.note)]
        head = f"Probabilities of {label_text(self.labels.response)}"
        # no key figures; no complete tables, as `frame` is one
        return Summary(head=head, facts={}, title="Effects:", sections=sections, tables={})

    def as_html(self) -> str:
        """Return the table as a fragment of HTML; names are escaped.

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
        """Return the table as LaTeX, which needs no package; names are escaped.

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
