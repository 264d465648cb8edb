"""Evaluation of predictions: scores with intervals, confusion matrix, report by group, figures."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import choice, near_match, verb
from bbl.design.design import Design
from bbl.design.frames import Frame
from bbl.design.labels import Labels
from bbl.design.weights import named_weights
from bbl.errors import DataError, OptionError
from bbl.report.machine.summary import Section, Summary
from bbl.report.plot_check import plot_calibration
from bbl.report.plot_evaluation import plot_confusion, plot_roc
from bbl.stats.evaluation import areas, class_report, confusion_counts, roc_curve, score_table
from bbl.stats.loss_record import LossRecord
from bbl.stats.metrics import FLOOR, LEAST
from bbl.stats.scores import least_cost, link, log_probabilities
from bbl.stats.ties import first_largest

__all__ = ["FIGURES", "Evaluation", "evaluated", "new_rows"]

FIGURES = ("confusion", "roc", "calibration")
NAMES = ("accuracy", "balanced accuracy", "log-loss", "Brier score", "AUC")
TRAINING_NOTE = "The model has seen these rows: new rows, or cross-validation, tell what it is worth."


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Predictions compared with observed groups; made by ``fit.evaluate()`` and ``cv.evaluate()``.

    Prints as text, shows as HTML in a notebook, and has a LaTeX form.

    Attributes
    ----------
    labels : Labels
        Names of the response and its groups.
    class_scores : ndarray, shape (n, K)
        Class scores of the rows.
    observed, predicted : ndarray of int, shape (n,)
        Group of each row, by its number.
    weights : ndarray, shape (n,)
        Frequencies, or other weights.
    what : str
        Which rows they are, such as "training rows".
    level : float
        Coverage of the intervals.
    left_out : float
        Observations that have no prediction or no group.
    costs : ndarray, shape (K, K), or None
        Costs of predicting a group (column) where another (row) is true, by which groups were decided.
    remedy : str
        What lowers a log-loss above that of the shares of the groups.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> fit.evaluate(titanic, weights="Freq").scores.round(3)
                       estimate  lower  upper  baseline
    accuracy              0.786  0.768  0.803     0.677
    balanced accuracy     0.675  0.657  0.694     0.500
    log-loss              0.487  0.464  0.511     0.629
    Brier score           0.315  0.297  0.335     0.437
    AUC                   0.764  0.742  0.786     0.500
    """

    labels: Labels
    class_scores: np.ndarray
    observed: np.ndarray
    predicted: np.ndarray
    weights: np.ndarray
    what: str
    level: float = 0.95
    left_out: float = 0.0
    costs: np.ndarray | None = None
    remedy: str = ""

    @property
    def log_loss(self) -> LossRecord:
        """Log-loss of these rows beside that of their shares of the groups, with a verdict where it is above."""
        loss, baseline = self.scores.loc["log-loss", ["estimate", "baseline"]].to_numpy(float)
        return LossRecord(float(loss), float(baseline), self.what, self.remedy)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Scores of all rows, with their limits.

        ``estimate``, ``lower``, ``upper``, and ``baseline``: the score of the shares of the groups, as the same
        prediction for every row. Limits hold in small samples, too: that of the accuracy is Clopper & Pearson's, those
        of the balanced accuracy are made of them (Zou & Donner 2008); of log-loss and Brier score they are Gaffke's
        (2005) for numbers that are bounded, a log-loss by the worst that these rows could have had; of the AUC they are
        the wider ones of Newcombe's (2006) and DeLong's. With more than two groups the AUC is the mean of those of each
        group against the rest. Weights that are no counts are scaled to the effective number of rows (Kish 1965: the
        squared sum of the weights over the sum of their squares). A log-loss takes a probability below 1e-15 for 1e-15,
        see `floored`.
        """
        table = score_table(self.class_scores, self.observed, self.predicted, self._effective, self.level)
        frame = pd.DataFrame(table, index=list(NAMES), columns=["estimate", "lower", "upper", "baseline"])
        if self.costs is not None:
            counts = self._counts
            cheapest = (counts.sum(axis=1) @ self.costs).min()
            row = [float((counts * self.costs).sum()) / counts.sum(), np.nan, np.nan, cheapest / counts.sum()]
            frame.loc["cost"] = row
        return frame

    @cached_property
    def floored(self) -> tuple[float, float]:
        """Observations whose group has a probability below 1e-15, which the log-loss takes for 1e-15, and those of 0.

        Without that floor the log-loss would be larger, and infinite where a probability is 0: of a group whose prior
        is 0, or that has no training rows (of a fold).
        """
        log_p = log_probabilities(self.class_scores)[np.arange(len(self.observed)), self.observed]
        return float(self.weights[log_p < LEAST].sum()), float(self.weights[np.isneginf(log_p)].sum())

    @property
    def _floor_note(self) -> str:
        """Note on observations below the floor of probabilities; empty if there are none."""
        below, zero = self.floored
        if not below:
            return ""
        zeros = f", and of {zero:g} of them it is 0: without the floor the log-loss is infinite" * bool(zero)
        return f" log-loss: a probability of at least {FLOOR:g}; that of {below:g} observations is smaller{zeros}."

    @property
    def _effective(self) -> np.ndarray:
        """Weights (n,): counts unchanged, others scaled to sum to the effective number of rows."""
        w = self.weights
        return w if (w == np.floor(w)).all() else w * (w.sum() / float(w @ w))

    @property
    def accuracy(self) -> float:
        """Weighted share of rows whose group is predicted."""
        return float(self._counts.diagonal().sum() / self._counts.sum())

    @cached_property
    def _counts(self) -> np.ndarray:
        """Weighted counts (K, K) by observed and predicted group."""
        return confusion_counts(self.observed, self.predicted, self.weights, len(self.labels.groups))

    @property
    def confusion(self) -> pd.DataFrame:
        """Confusion matrix: observations by observed (rows) and predicted group (columns)."""
        is_whole = (self._counts == np.floor(self._counts)).all()
        counts = self._counts.astype(np.int64) if is_whole else self._counts
        groups = pd.Index(self.labels.groups, dtype=object, tupleize_cols=False)
        return pd.DataFrame(counts, index=groups.rename("observed"), columns=groups.rename("predicted"))

    @cached_property
    def report(self) -> pd.DataFrame:
        """Precision, recall, F1, support and AUC against the rest, of every group; missing where undefined."""
        groups = pd.Index(self.labels.groups, dtype=object, tupleize_cols=False)
        columns = ["precision", "recall", "F1", "support"]
        table = pd.DataFrame(class_report(self._counts), index=groups, columns=columns)
        area = areas(self.class_scores, self.observed, self._effective, self.level)
        return table.assign(AUC=area[:, 0], lower=area[:, 1], upper=area[:, 2])

    @verb
    def roc(self, group: Hashable = None) -> pd.DataFrame:
        """Return the ROC curve of a group against the rest.

        Parameters
        ----------
        group : optional
            The second of two groups by default; of more it has to be named.

        Returns
        -------
        DataFrame
            ``fpr`` and ``tpr``, the shares of the rest and of the group that are taken for the group, at each
            ``threshold`` of its probability, from the highest down.
        """
        groups = list(self.labels.groups)
        if group is None and len(groups) == 2:
            group = groups[1]
        if group not in groups:
            raise OptionError(
                f"{group!r} is no group{near_match(group, groups) or '.'} Groups are {', '.join(map(repr, groups))}.",
                argument="group",
            )
        k = groups.index(group)
        fpr, tpr, threshold = roc_curve(link(self.class_scores)[:, k], self.observed == k, self.weights)
        with np.errstate(over="ignore"):
            threshold = np.append(np.inf, 1.0 / (1.0 + np.exp(-threshold[1:])))
        return pd.DataFrame({"fpr": fpr, "tpr": tpr, "threshold": threshold})

    @verb
    def plot(self, kind: str = "confusion", groups: Sequence | None = None, ax=None):
        """Draw the confusion matrix, ROC curves, or how predicted probabilities hold.

        Parameters
        ----------
        kind : {"confusion", "roc", "calibration"}, default "confusion"
        groups : sequence, optional
            Of ``"roc"`` and ``"calibration"``: which groups; all by default, but the second alone of two.
        ax : matplotlib Axes, or a sequence of two for ``"calibration"``, optional

        Returns
        -------
        matplotlib Axes, or a list of them for ``"calibration"``
        """
        if choice("kind", kind, FIGURES) == "confusion":
            return plot_confusion(self.labels, self._counts, ax=ax)
        if kind == "calibration":
            p = np.exp(log_probabilities(self.class_scores))
            return plot_calibration(self.labels, p, self.observed, self.weights, groups=groups, axes=ax)
        return plot_roc(self.labels, link(self.class_scores), self.observed, self.weights, groups=groups, ax=ax)

    @cached_property
    def _summary(self) -> Summary:
        """Facts and tables for text, HTML and LaTeX."""
        percent = f"{100 * self.level:g} %"
        total = float(self.weights.sum())
        facts: dict[str, Any] = {"Rows": self.what, "Observations": int(total) if total == int(total) else total}
        if self.log_loss.is_worse:
            facts["Log-loss"] = self.log_loss.verdict
        if self.left_out:
            facts["Left out"] = f"{self.left_out:g} with a missing value"
        if self.costs is not None:
            facts["Groups"] = "of least expected cost"
        note = "baseline: the same prediction for every row, from the shares of the groups."
        if len(self.labels.groups) > 2:
            note = "AUC: mean over the groups, each against the rest; " + note
        note += self._floor_note
        if self.what == "training rows":
            note += " " + TRAINING_NOTE
        confusion = self.confusion.rename_axis(index=None, columns=None)
        sections = [
            Section(f"Scores with {percent} intervals", self.scores.round(4), note),
            Section("Observed (rows) against predicted groups (columns)", confusion),
            Section("By group", self.report.drop(columns=["lower", "upper"]).round(4)),
        ]
        tables = {"scores": self.scores, "confusion": self.confusion, "report": self.report}
        return Summary(f"Predictions of {self.labels.response}", facts, "Evaluation:", sections, tables)

    def as_html(self) -> str:
        """Return the evaluation as a fragment of HTML; names are escaped."""
        return self._summary.as_html()

    _repr_html_ = as_html

    def as_latex(self) -> str:
        """Return the evaluation as LaTeX, which needs no package; names are escaped."""
        return self._summary.as_latex()

    def __repr__(self) -> str:
        return str(self._summary)


def new_rows(design: Design, frame: Frame, weights: Hashable | ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return group (n,) and frequency (n,) of new rows; `weights` are a column's name or an array."""
    counts = named_weights(weights, frame, whole=False)[1]
    return design.encode_response(frame), counts


def evaluated(
    labels: Labels,
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    what: str,
    level: float = 0.95,
    costs: np.ndarray | None = None,
    remedy: str = "",
) -> Evaluation:
    """Return the evaluation of class scores (n, K); rows without a score, a group or a weight are left out."""
    is_judged = ~np.isnan(scores).any(axis=1) & (y >= 0) & (weights > 0)
    if not is_judged.any():
        raise DataError(f"None of the {what} has a prediction and a group; give rows that have both.")
    left_out = float(weights[~is_judged].sum())
    scores, y, weights = scores[is_judged], y[is_judged], weights[is_judged]
    predicted = first_largest(scores) if costs is None else least_cost(log_probabilities(scores), costs)
    return Evaluation(labels, scores, y, predicted, weights, what, level, left_out, costs, remedy)
