"""Explanation: contributions of terms to the log-odds of rows. Importance: log-loss without each
predictor. There are n rows, m predictors, K groups and T terms.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, integer, near_match
from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.model.attribution import Factors, contributions
from bbl.model.cumulative import odds_logits
from bbl.report.markup import Section
from bbl.report.notebook import Notebook, first_rows
from bbl.report.plot_coefficients import plot_coefficients
from bbl.report.plot_waterfall import plot_waterfall
from bbl.report.text import DIGITS, distinct_names, fill, label_index, label_text, table_text
from bbl.stats.metrics import LossRecord, first_largest, log_probabilities, shares_loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Attribution", "Explanation", "Importance", "explain_rows", "summarise_importance"]

BASELINE = "(baseline)"  # column of the constant
SUMMED = "(summed out)"  # column of the effect of missing values
DRAWS = "(draws)"  # column of the effect of averaging over posterior draws


@dataclass(frozen=True)
class Attribution:
    """Terms of additive class scores.

    Attributes
    ----------
    names : list of str
        Names of the terms.
    terms : Factors
        Mapping from the positions of a term's predictors to its table (K, L_1, ...).
    shown : list of tuple of int
        For each term, the predictors whose values label it: all of its predictors or, in a
        network, only the feature without its parents.
    constant : ndarray, shape (K,)
        Constant part of the class scores, the same for all rows.
    of_rows : callable or None
        ``of_rows(codes, missing)`` returns the contributions (n, K, E) of E additional terms, which
        have no tables; their names follow those of `terms`. None if there are none.
    origins : dict of int to float
        Values of numeric regressors at which their terms are zero, by position.
    averaged : bool
        Whether scores are averaged over draws. If so, the terms are computed at the mean of the
        draws and only approximately add up to the scores.
    cumulative : bool
        Whether the sums are cumulative logits of an ordered response instead of class scores: the
        log-odds of a group and all higher groups against the lower groups.
    """

    names: list[str]
    terms: Factors
    shown: list[tuple[int, ...]]
    constant: np.ndarray
    averaged: bool = False
    cumulative: bool = False
    of_rows: Callable[[np.ndarray, np.ndarray | None], np.ndarray] | None = None
    origins: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Explanation(Notebook):
    """Contributions of the terms to the log-odds of two groups, row by row, as returned by
    ``fit.explain()``.

    Attributes
    ----------
    frame : DataFrame
        One row for each explained row: ``group`` and ``against``, the groups whose log-odds are
        explained; then ``(baseline)``, the contribution of each term, ``(summed out)`` if some row
        has a missing value, ``(draws)`` if predictions are averaged over draws (the difference from
        the terms at the mean of the draws), and ``log_odds``, the sum. A trailing underscore is
        added to such a name if a predictor or term has the same name (``log_odds_``).
    values : DataFrame
        Levels of the predictors in each row, as text; ``?`` for missing values.
    terms : tuple of tuple
        Names of the predictors that label each term, in the order of the columns of `frame`.
    verdict : str
        Warning printed above the explanation if the model's log-loss is above the baseline, the
        log-loss of the class proportions.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> explanation = fit.explain(titanic.head(1))
    >>> explanation
    Row 0: log-odds of Yes against No
                        contribution
    Class=1st                 1.2317
    Sex=Male                 -1.1855
    Class=1st, Sex=Male      -0.5141
    Sex=Male, Age=Child       0.4153
    (baseline)                0.3247
    Age=Child                 0.1335
    sum                       0.4057
    """

    frame: pd.DataFrame
    values: pd.DataFrame
    terms: tuple[tuple[Hashable, ...], ...]
    verdict: str = ""

    @check_keywords
    def row(self, row: int = 0) -> pd.Series:
        """Return the contributions to the log-odds of the row at position `row`, largest first.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> explanation = fit.explain(titanic.head(1))
        >>> explanation.row(0).head(2).round(2).to_dict()
        {'Class=1st': 1.23, 'Sex=Male': -1.19}
        """
        amounts, names = self._contributions(row)
        order = np.argsort(-np.abs(amounts), kind="stable")
        return pd.Series(amounts[order], index=[names[k] for k in order], name="contribution")

    def _contributions(self, row: int) -> tuple[np.ndarray, list[str]]:
        """Return the contributions to a row's log-odds, baseline first, and their names, such as
        ``Sex=Male``.

        `row` is the position of the row in `frame`.
        """
        integer("row", row, 0, len(self.frame) - 1)  # raises an error if it is out of range
        # columns 0 and 1 are groups, the last is the sum
        amounts = self.frame.iloc[row, 2:-1].to_numpy(float)
        level_by_predictor: dict[Any, Any] = dict(
            zip(self.values.columns, self.values.iloc[row], strict=True)
        )
        term_names = [
            ", ".join(f"{label_text(name)}={level_by_predictor[name]}" for name in term)
            for term in self.terms
        ]
        # after two groups, the baseline and the terms come columns such as "(summed out)", which
        # keep their names
        return amounts, [BASELINE, *term_names, *self.frame.columns[3 + len(term_names) : -1]]

    def _groups(self, row: int) -> tuple[str, str]:
        """Return the names of the group and the reference group whose log-odds are explained in a
        row.
        """
        return label_text(self.frame.iloc[:, 0].tolist()[row]), label_text(
            self.frame.iloc[:, 1].tolist()[row]
        )

    @check_keywords
    def plot(self, row: int = 0, top: int = 12, ax: Axes | None = None) -> Axes:
        """Draw a waterfall plot of the contributions to the log-odds of one row and return the
        Axes.

        Parameters
        ----------
        row : int, default 0
            Position of the row.
        top : int, default 12
            Number of contributions that are drawn as separate bars.
        ax : matplotlib Axes, optional

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> explanation = fit.explain(titanic.head(1))
        >>> axis = explanation.plot(0)
        >>> plt.close()
        """
        amounts, names = self._contributions(row)
        title = "Log-odds of {} against {}".format(*self._groups(row))
        return plot_waterfall(names, amounts, title=title, top=integer("top", top, 1), ax=ax)

    def _row_sections(self) -> list[Section]:
        """Return tables of the 10 largest contributions to the log-odds of each of the first 3
        rows.
        """
        sections = []
        for position in range(min(3, len(self.frame))):
            group, against = self._groups(position)
            amounts = self.row(position)  # largest first
            # the last column is the sum
            table = pd.DataFrame(
                {"contribution": [*amounts.head(10), self.frame.iloc[position, -1]]}
            )
            sum_name = "sum" if len(amounts) <= 10 else f"sum of all {len(amounts)}"
            table.index = pd.Index([*amounts.index[:10], sum_name], dtype=object)
            heading = (
                f"Row {label_text(self.frame.index[position])}: log-odds of {group} against "
                f"{against}"
            )
            sections.append(Section(heading, table.round(4)))
        return sections

    def _end(self, n_shown: int) -> list[str]:
        """Return a line about the rows after the first `n_shown`, in a list that is empty if all
        rows are shown.
        """
        n_hidden = len(self.frame) - n_shown
        return [f"... ({n_hidden} more rows; see .frame)"] if n_hidden > 0 else []

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text above the tables (the warning or "") and the tables for notebooks."""
        sections = self._row_sections()
        if sections:
            sections[-1] = replace(sections[-1], note="".join(self._end(len(sections))))
        return self.verdict, sections

    def __repr__(self) -> str:
        sections = self._row_sections()
        tables = [
            f"{section.heading}\n{table_text(section.table, left=False)}" for section in sections
        ]
        verdict = [fill(self.verdict)] if self.verdict else []
        return "\n\n".join([*verdict, *tables, *self._end(len(sections))])


def explain_rows(
    labels: Labels,
    attribution: Attribution,
    codes: np.ndarray,
    missing: np.ndarray | None,
    scores: np.ndarray,
    index: pd.Index,
    of: tuple[Hashable, Hashable] | None = None,
    verdict: str = "",
) -> Explanation:
    """Return the explanation of class scores (n, K) of rows with level codes (n, m) and missing
    cells (n, m).

    `of` is a pair (group, reference); by default (None), the second group against the first if
    there are two groups, and otherwise the most probable group of each row against the second most
    probable. `index` contains the row labels, and `verdict` is described in `Explanation`.
    """
    n, K = scores.shape
    groups: tuple[Hashable, ...] = labels.groups
    if attribution.cumulative:
        if of is not None:
            raise OptionError(
                "With cumulative logits, the log-odds of two groups are not sums of terms.",
                argument="of",
                hint="Omit of= to explain the log-odds of each row's most probable group or a "
                "higher one.",
                value=of,
            )
        target = np.maximum(first_largest(np.where(np.isnan(scores), -np.inf, scores)), 1)
        reference = np.zeros(n, dtype=np.intp)
        # the score of the first group is 0: it stands for all groups below
        scores = np.column_stack(
            [0.0 * scores[:, 0], odds_logits(np.exp(log_probabilities(scores)))]
        )
        groups = ("lower", *(f"{label_text(group)} or higher" for group in groups[1:]))
    elif of is None:
        # numbers (n,) of the groups in the log-odds, target against reference
        target, reference = (np.full(n, 1), np.full(n, 0)) if K == 2 else _two_most_probable(scores)
    else:
        if not isinstance(of, tuple) or len(of) != 2 or of[0] == of[1]:
            raise OptionError(
                f"of must be a pair of different groups; got {of!r}.", argument="of", value=of
            )
        for group in of:
            if group not in groups:
                raise OptionError(
                    f"{group!r} is not a group.",
                    argument="of",
                    hint=f"{near_match(group, groups)}Choose one of {list(groups)}.",
                )
        target, reference = (np.full(n, groups.index(group)) for group in of)
    row_numbers = np.arange(n)
    # (n, K, T); 0 if a predictor is missing
    score_parts = contributions(attribution.terms, K, codes, missing, attribution.origins)
    if attribution.of_rows is not None:
        score_parts = np.concatenate([score_parts, attribution.of_rows(codes, missing)], axis=2)
    # (n, T)
    log_odds_parts = _difference(
        score_parts[row_numbers, target], score_parts[row_numbers, reference]
    )
    log_odds = _difference(scores[row_numbers, target], scores[row_numbers, reference])
    # without terms, one number for all groups
    constant = np.broadcast_to(attribution.constant, scores.shape[1])
    baseline = constant[target]
    if not attribution.cumulative:
        baseline = _difference(baseline, constant[reference])
    is_dropped = np.isnan(log_odds)  # rows dropped for missing values have scores nan
    log_odds_parts[is_dropped] = np.nan
    baseline[is_dropped] = np.nan
    *term_names, group_name, against_name, baseline_name, summed_name, draws_name, log_odds_name = (
        distinct_names(
            [*attribution.names, "group", "against", BASELINE, SUMMED, DRAWS, "log_odds"]
        )
    )
    columns: dict[str, Any] = {
        group_name: [groups[g] for g in target],
        against_name: [groups[g] for g in reference],
    }
    columns |= {baseline_name: baseline, **dict(zip(term_names, log_odds_parts.T, strict=True))}
    # difference from baseline and terms: the effect of missing values in incomplete rows,
    # otherwise of averaging over draws
    with np.errstate(invalid="ignore"):  # inf - inf
        remainder = _difference(_difference(log_odds, baseline), log_odds_parts.sum(axis=1))
    is_incomplete = np.zeros(n, dtype=bool) if missing is None else missing.any(axis=1)
    if is_incomplete.any():
        columns[summed_name] = np.where(is_incomplete, remainder, 0.0)
    if attribution.averaged:
        columns[draws_name] = np.where(is_incomplete, 0.0, remainder)
    columns[log_odds_name] = log_odds
    level_texts = np.empty(codes.shape, dtype=object)
    for i, levels in enumerate(labels.levels):
        if i in labels.measured:
            values = codes[:, i] + labels.center(i)
            level_texts[:, i] = [f"{value:.{DIGITS}g}" for value in values]
            continue
        level_texts[:, i] = np.array([label_text(x) for x in levels], dtype=object)[
            codes[:, i].astype(np.intp)
        ]
    if missing is not None:
        level_texts[missing] = "?"
    terms = tuple(tuple(labels.names[i] for i in term) for term in attribution.shown)
    return Explanation(
        pd.DataFrame(columns, index=index),
        pd.DataFrame(level_texts, index=index, columns=label_index(labels.names)),
        terms,
        verdict,
    )


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``a - b``, or 0 where both are -inf, because a level that does not occur in either
    group does not distinguish them.
    """
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, a - b)


def _two_most_probable(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable (n,) and second most probable groups (n,), given class scores (n, K)
    with K > 2.
    """
    most_probable = first_largest(scores)
    position = np.arange(scores.shape[1] - 1)  # among all groups except the most probable
    # their numbers (n, K - 1); + 1 skips the most probable group
    other_groups = position + (position >= most_probable[:, None])
    best_position = first_largest(np.take_along_axis(scores, other_groups, axis=1))
    return most_probable, other_groups[np.arange(len(scores)), best_position]


@dataclass(frozen=True, repr=False)
class Importance(Notebook):
    """Increase in log-loss when each predictor is unknown, as returned by ``fit.importance()``.

    Attributes
    ----------
    frame : DataFrame
        One row per predictor, most important first: ``importance``, the mean increase in
        log-loss if the predictor is unknown and averaged over; ``se``, the standard error of
        this mean over rows.
    loss : float
        Log-loss with all predictors.
    baseline : float
        Log-loss of predicting the class proportions for every row.
    what : str
        Description of the rows, such as "new rows".
    remedy : str
        Advice for lowering a loss above the baseline.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> importance = fit.importance(titanic, weights="Freq")
    >>> importance.frame.round(3)
           importance     se
    Sex         0.097  0.008
    Class       0.039  0.006
    Age         0.005  0.002
    """

    frame: pd.DataFrame
    loss: float
    baseline: float
    what: str
    remedy: str = ""

    @check_keywords
    def plot(self, top: int = 40, ax: Axes | None = None) -> Axes:
        """Draw the `top` importances with error bars of two standard errors, and return the Axes.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> importance = fit.importance(titanic, weights="Freq")
        >>> axis = importance.plot()
        >>> plt.close()
        """
        rows = self.frame.head(integer("top", top, 1))
        mean = rows["importance"].to_numpy(float)
        half_width = 2.0 * rows["se"].to_numpy(float)
        # (1, predictors): for a single group
        limits = ((mean - half_width)[None], (mean + half_width)[None])
        return plot_coefficients(
            list(rows.index), [""], mean[None], *limits, title="Increase in log-loss", ax=ax
        )

    def _head(self) -> str:
        """Return the lines above the table: the log-loss, with a warning if it is above the
        baseline.
        """
        verdict = LossRecord(self.loss, self.baseline, self.what, self.remedy).verdict
        losses_text = (
            f"Log-loss on the {self.what}: {self.loss:.4g} ({self.baseline:.4g} for the class "
            f"proportions)"
        )
        head = f"{losses_text}; increase\nwhen averaging over a predictor:"
        return f"{fill(verdict)}\n\n{head}" if verdict else head

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text above the table, and the table of the first rows without a heading, for
        notebooks.
        """
        return self._head(), [first_rows(self.frame.round(5), heading="", source=".frame")]

    def __repr__(self) -> str:
        n_hidden = len(self.frame) - 20
        end = [f"... ({n_hidden} more predictors)"] if n_hidden > 0 else []
        return "\n".join([self._head(), table_text(self.frame.head(20).round(5)), *end])


def summarise_importance(
    labels: Labels,
    losses: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    what: str,
    remedy: str = "",
) -> Importance:
    """Return the importances, given log-losses (1 + m, n).

    Row 0 contains the losses with all m predictors, and row 1 + i the losses without predictor i.
    `y` (n,) contains the groups of the rows, and `weights` (n,) contains their weights; `what` and
    `remedy` are described in `Importance`.
    """
    total = weights.sum()
    increases = losses[1:] - losses[0]
    mean = increases @ weights / total
    sum_of_squares = ((increases - mean[:, None]) ** 2) @ weights
    # sqrt(variance / W) for W = sum w observations, with variance sum w (d - mean)^2 / (W - 1) of
    # the increases d; the divisor is at least 1, as weights may sum to less than 2
    se = np.sqrt(sum_of_squares / np.maximum(total - 1.0, 1.0) / total)
    frame = pd.DataFrame({"importance": mean, "se": se}, index=label_index(labels.names))
    frame = frame.sort_values("importance", ascending=False, kind="stable")
    # from each group's total weight
    baseline = shares_loss(np.bincount(y, weights, len(labels.groups)))
    return Importance(frame, float(losses[0] @ weights / total), baseline, what, remedy)
