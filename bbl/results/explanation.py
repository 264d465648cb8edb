"""Explanation: contributions of terms to a row's log-odds; Importance: loss of predictions without each predictor."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import integer, near_match, verb
from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.model.attribution import Factors, contributions
from bbl.names import distinct_names, label_index
from bbl.report.format import WIDTH
from bbl.report.plot_coefficients import plot_coefficients
from bbl.report.plot_waterfall import plot_waterfall
from bbl.report.text import label_text, table_text
from bbl.stats.loss_record import LossRecord, shares_loss
from bbl.stats.ties import first_largest

__all__ = ["Attribution", "Explanation", "Importance", "explained", "importance_of"]

BASELINE = "(baseline)"
SUMMED = "(summed out)"
DRAWS = "(draws)"


@dataclass(frozen=True)
class Attribution:
    """The terms whose sums are a fitted classifier's scores.

    Attributes
    ----------
    names : list of str
        Names of the terms.
    terms : Factors
        Table (K, L_1, ...) of each term by its predictors.
    shown : list of tuple of int
        Predictors whose values label each term: all of them; of a network the feature without its parents.
    constant : ndarray, shape (K,)
        The summand that all rows share.
    averaged : bool
        Whether scores are averaged over draws: then terms, at the mean of the draws, do not quite add up to them.
    """

    names: list[str]
    terms: Factors
    shown: list[tuple[int, ...]]
    constant: np.ndarray
    averaged: bool = False


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why rows are predicted as they are; made by ``fit.explain()``.

    Attributes
    ----------
    frame : DataFrame
        One row for each that was explained: ``group`` and ``against``, the groups whose log-odds are explained; then
        ``(baseline)``, the contribution of each term, ``(summed out)`` if something is missing in some row, ``(draws)``
        where predictions are averaged over draws (the difference to the terms at the mean of the draws), and
        ``log_odds``, their sum. No two columns have the same name: where a predictor or a term has one of these,
        an underscore is added to it here (``log_odds_``).
    values : DataFrame
        The rows' values of the predictors, as text, under the predictors' names.
    terms : tuple of tuple
        Names of the predictors of each term, in the order of its columns; of a network those of the features.
    verdict : str
        Warning above the printed explanation if the model's log-loss is above that of the shares of the groups.
    """

    frame: pd.DataFrame
    values: pd.DataFrame
    terms: tuple[tuple[Hashable, ...], ...]
    verdict: str = ""

    @verb
    def row(self, row: int = 0) -> pd.Series:
        """Return the contributions to the log-odds of one row, by position, the largest first."""
        contributions, names = self._row(row)
        order = np.argsort(-np.abs(contributions), kind="stable")
        return pd.Series(contributions[order], index=[names[k] for k in order], name="contribution")

    def _row(self, row: int) -> tuple[np.ndarray, list[str]]:
        """Return the contributions to one row's log-odds, baseline first, and their names with the row's values."""
        integer("row", row, 0, len(self.frame) - 1)
        contributions = self.frame.iloc[row, 2:-1].to_numpy(float)
        levels: dict[Any, Any] = dict(zip(self.values.columns, self.values.iloc[row], strict=True))
        names = [", ".join(f"{label_text(name)}={levels[name]}" for name in term) for term in self.terms]
        return contributions, [BASELINE, *names, *self.frame.columns[3 + len(names) : -1]]

    def _groups(self, row: int) -> tuple[str, str]:
        """Return the two groups whose log-odds are explained in a row."""
        return label_text(self.frame.iloc[:, 0].tolist()[row]), label_text(self.frame.iloc[:, 1].tolist()[row])

    @verb
    def plot(self, row: int = 0, top: int = 12, ax=None):
        """Draw how the contributions add up to the log-odds of one row; return the Axes.

        Parameters
        ----------
        row : int, default 0
            Position of the row.
        top : int, default 12
            Contributions that have a bar of their own.
        ax : matplotlib Axes, optional
        """
        contributions, names = self._row(row)
        title = "Log-odds of {} against {}".format(*self._groups(row))
        return plot_waterfall(names, contributions, title=title, top=integer("top", top, 1), ax=ax)

    def __repr__(self) -> str:
        tables = []
        for k in range(min(3, len(self.frame))):
            group, against = self._groups(k)
            row = self.row(k)
            table = pd.DataFrame({"contribution": [*row.head(10), self.frame.iloc[k, -1]]})
            last = "sum" if len(row) <= 10 else f"sum of all {len(row)}"
            table.index = pd.Index([*row.index[:10], last], dtype=object)
            heading = f"Row {label_text(self.frame.index[k])}: log-odds of {group} against {against}"
            tables.append(f"{heading}\n{table_text(table.round(4), left=False)}")
        hidden = len(self.frame) - len(tables)
        verdict = [fill(self.verdict, WIDTH, break_on_hyphens=False)] if self.verdict else []
        return "\n\n".join([*verdict, *tables, *([f"... ({hidden} more rows; .frame has all)"] if hidden > 0 else [])])


def explained(
    labels: Labels,
    attribution: Attribution,
    codes: np.ndarray,
    missing: np.ndarray | None,
    scores: np.ndarray,
    index: pd.Index,
    of: tuple[Hashable, Hashable] | None = None,
    verdict: str = "",
) -> Explanation:
    """Return the explanation of class scores (n, K); `of` as in ``fit.explain``, `verdict` of the model's log-loss."""
    n, K = scores.shape
    groups = labels.groups
    if of is None:
        explained_group, reference = (np.full(n, 1), np.full(n, 0)) if K == 2 else _two_likeliest(scores)
    else:
        if not isinstance(of, tuple) or len(of) != 2 or of[0] == of[1]:
            raise OptionError(f"of must be a pair of different groups; got {of!r}.", argument="of")
        for g in of:
            if g not in groups:
                raise OptionError(
                    f"{g!r} is no group{near_match(g, groups)}; groups are {list(groups)}.", argument="of"
                )
        explained_group, reference = (np.full(n, groups.index(g)) for g in of)
    row = np.arange(n)
    by_group = contributions(attribution.terms, K, codes, missing)  # (n, K, terms)
    table = _difference(by_group[row, explained_group], by_group[row, reference])
    total = _difference(scores[row, explained_group], scores[row, reference])
    baseline = _difference(attribution.constant[explained_group], attribution.constant[reference])
    dropped = np.isnan(total)
    table[dropped], baseline[dropped] = np.nan, np.nan
    *titles, group, against, base, summed, draws, log_odds = distinct_names(
        [*attribution.names, "group", "against", BASELINE, SUMMED, DRAWS, "log_odds"]
    )
    columns = {group: [groups[k] for k in explained_group], against: [groups[k] for k in reference], base: baseline}
    columns |= dict(zip(titles, table.T, strict=True))
    with np.errstate(invalid="ignore"):
        remainder = _difference(_difference(total, baseline), table.sum(axis=1))
    is_incomplete = np.zeros(n, dtype=bool) if missing is None else missing.any(axis=1)
    if is_incomplete.any():
        columns[summed] = np.where(is_incomplete, remainder, 0.0)
    if attribution.averaged:
        columns[draws] = np.where(is_incomplete, 0.0, remainder)
    columns[log_odds] = total
    texts = np.empty(codes.shape, dtype=object)
    for i, levels in enumerate(labels.levels):
        texts[:, i] = np.array([label_text(x) for x in levels], dtype=object)[codes[:, i].astype(np.intp)]
    if missing is not None:
        texts[missing] = "?"
    terms = tuple(tuple(labels.names[i] for i in term) for term in attribution.shown)
    return Explanation(
        pd.DataFrame(columns, index=index),
        pd.DataFrame(texts, index=index, columns=label_index(labels.names)),
        terms,
        verdict,
    )


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``a - b``; 0 where both are -inf: a value that neither group shows does not distinguish them."""
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, a - b)


def _two_likeliest(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the most likely group of each row, and the next (n,), of three groups or more."""
    first = first_largest(scores)
    rank = np.arange(scores.shape[1] - 1)
    remaining = rank + (rank >= first[:, None])  # (n, K - 1) groups without the first
    second = first_largest(np.take_along_axis(scores, remaining, axis=1))
    return first, remaining[np.arange(len(scores)), second]


@dataclass(frozen=True, repr=False)
class Importance:
    """Increase of the log-loss without each predictor; made by ``fit.importance()``.

    Attributes
    ----------
    frame : DataFrame
        One row per predictor, the most important first: ``importance``, the mean increase of a row's log-loss where the
        predictor is unknown and summed out; ``se``, its standard error over rows.
    loss : float
        Log-loss with all predictors.
    baseline : float
        Log-loss of the shares of the groups, the same prediction for every row.
    what : str
        Which rows they are, such as "new rows".
    remedy : str
        Advice that lowers a loss above the baseline.
    """

    frame: pd.DataFrame
    loss: float
    baseline: float
    what: str
    remedy: str = ""

    @verb
    def plot(self, top: int = 40, ax=None):
        """Draw the importances with two standard errors to each side; return the Axes."""
        rows = self.frame.head(integer("top", top, 1))
        value, half = rows["importance"].to_numpy(float), 2.0 * rows["se"].to_numpy(float)
        numbers = (value[None], (value - half)[None], (value + half)[None])
        return plot_coefficients(list(rows.index), [""], *numbers, title="Increase of the log-loss", ax=ax)

    def __repr__(self) -> str:
        verdict = LossRecord(self.loss, self.baseline, self.what, self.remedy).verdict
        head = (
            f"Log-loss of the {self.what}: {self.loss:.4g} ({self.baseline:.4g} of the shares of the groups); where a"
        )
        head += "\npredictor is summed out it rises by"
        head = f"{fill(verdict, WIDTH, break_on_hyphens=False)}\n\n{head}" if verdict else head
        hidden = len(self.frame) - 20
        end = [f"... ({hidden} more predictors)"] if hidden > 0 else []
        return "\n".join([head, table_text(self.frame.head(20).round(5)), *end])


def importance_of(
    labels: Labels, losses: np.ndarray, y: np.ndarray, weights: np.ndarray, what: str, remedy: str = ""
) -> Importance:
    """Return the importances from losses (1 + m, n) with all predictors and without each, groups and weights (n,)."""
    total = weights.sum()
    rise = losses[1:] - losses[0]
    mean = rise @ weights / total
    spread = ((rise - mean[:, None]) ** 2) @ weights
    error = np.sqrt(spread / np.maximum(total - 1.0, 1.0) / total)
    frame = pd.DataFrame({"importance": mean, "se": error}, index=label_index(labels.names))
    frame = frame.sort_values("importance", ascending=False, kind="stable")
    baseline = shares_loss(np.bincount(y, weights, len(labels.groups)))
    return Importance(frame, float(losses[0] @ weights / total), baseline, what, remedy)
