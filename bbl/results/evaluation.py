"""Evaluation of predictions: scores with intervals, confusion matrix, report by group, and figures.

Below, n and K are the numbers of rows and groups. The *baseline* predicts the class proportions for
every row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, choice, near_match
from bbl.choices import EvaluationFigure
from bbl.design.design import Design
from bbl.design.frames import Frame
from bbl.design.labels import Labels
from bbl.design.weights import are_whole, as_rows
from bbl.errors import DataError, OptionError
from bbl.memory import check_memory
from bbl.report.machine.summary import Section, Summary
from bbl.report.plot_check import plot_calibration
from bbl.report.plot_evaluation import plot_confusion, plot_roc
from bbl.report.text import distinct_names
from bbl.results.batches import Block
from bbl.rows.sample import Sample
from bbl.stats.evaluation import areas, class_report, confusion_counts, roc_curve, score_table
from bbl.stats.metrics import (
    FLOOR,
    LEAST,
    LossRecord,
    first_largest,
    least_cost,
    link,
    log_probabilities,
)

__all__ = [
    "FIGURES",
    "Evaluation",
    "ScoredRows",
    "evaluate_rows",
    "evaluation_rows",
    "score_blocks",
]

MERGED_ROWS = 2**24  # rows with equal scores are merged beyond this number
FIGURES = get_args(EvaluationFigure)  # values of the argument `kind` of `Evaluation.plot`
# rows of `Evaluation.scores`
SCORES = ("accuracy", "balanced accuracy", "log-loss", "Brier score", "AUC")
TRAINING_NOTE = (
    "These are the training rows. For an unbiased estimate, evaluate on new rows or use "
    "cross-validation."
)


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Predictions compared with observed groups, as returned by ``fit.evaluate()`` or
    ``cv.evaluate()``.

    The evaluation can be displayed as text, HTML (in notebooks) or LaTeX.

    Attributes
    ----------
    labels : Labels
        Names of the response and its groups.
    class_scores : ndarray, shape (n, K)
        Class scores of the rows.
    observed, predicted : ndarray of int, shape (n,)
        Group number of each row.
    weights : ndarray, shape (n,)
        Frequencies or other weights.
    what : str
        Description of the rows, such as "training rows".
    level : float
        Coverage of the intervals.
    left_out : float
        Number of observations without a prediction or without a known group.
    costs : ndarray, shape (K, K), or None
        Cost of predicting a group (column) if another (row) is true; `predicted` minimises the
        expected cost.
    remedy : str
        Advice for lowering a log-loss above the baseline.

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
        """Log-loss of these rows and of the baseline.

        The attribute ``verdict`` contains a warning if predictions are worse than the baseline.
        """
        loss, baseline = self.scores.loc["log-loss", ["estimate", "baseline"]].to_numpy(float)
        return LossRecord(float(loss), float(baseline), self.what, self.remedy)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Scores over all rows with confidence limits: ``estimate``, ``lower``, ``upper`` and
        ``baseline``.

        The limits have coverage `level`, even in small samples. Accuracy: the limits of Clopper &
        Pearson. Balanced accuracy: limits combined from the limits of each group's recall (Zou &
        Donner 2008). Log-loss and Brier score: the limits of Gaffke (2005) for bounded values; the
        log-loss is bounded by the largest loss that these predictions can have. AUC: on each side,
        the wider of the limits of Newcombe (2006) and DeLong. With more than two groups, the AUC is
        the mean over the groups, each compared with the rest. Weights that are not counts are
        scaled to the effective number of rows (sum w)^2 / sum w^2 (Kish 1965). For the log-loss,
        probabilities below 1e-15 are replaced with 1e-15; see `floored`. With `costs`, the row
        ``cost`` contains the mean cost, without limits. Its baseline is the mean cost of always
        predicting the group with the lowest cost.
        """
        # (5, 4): a row for each of `SCORES`; estimate, lower and upper limits, baseline
        table = score_table(
            self.class_scores, self.observed, self.predicted, self._effective_weights, self.level
        )
        frame = pd.DataFrame(
            table, index=list(SCORES), columns=["estimate", "lower", "upper", "baseline"]
        )
        if self.costs is not None:
            counts = self._counts
            # sums over all rows; the baseline predicts the group with the lowest cost for every row
            cost = float((counts * self.costs).sum())
            baseline_cost = (counts.sum(axis=1) @ self.costs).min()
            frame.loc["cost"] = [cost / counts.sum(), np.nan, np.nan, baseline_cost / counts.sum()]
        return frame

    @cached_property
    def floored(self) -> tuple[float, float]:
        """Number of observations whose group has a predicted probability below 1e-15, and number
        with probability 0.

        For the log-loss these probabilities are replaced with 1e-15. A probability is 0 if the
        prior of the group is 0, or if the group has no rows in the training data (of a fold).
        """
        # (n,): of the observed groups; LEAST is the logarithm of 1e-15
        log_p = log_probabilities(self.class_scores)[np.arange(len(self.observed)), self.observed]
        return float(self.weights[log_p < LEAST].sum()), float(
            self.weights[np.isneginf(log_p)].sum()
        )

    @property
    def _floor_note(self) -> str:
        """Note on observations with a probability below the floor of the log-loss; empty if there
        are none.
        """
        n_below, n_zero = self.floored
        if not n_below:
            return ""
        note = (
            f" log-loss: probabilities are floored at {FLOOR:g}, which affects {n_below:g} "
            "observations."
        )
        if n_zero:
            note += (
                f" Of these, {n_zero:g} have probability 0, and the log-loss would be infinite "
                "without the floor."
            )
        return note

    @property
    def _effective_weights(self) -> np.ndarray:
        """Weights (n,), which are scaled to sum to the effective number of rows unless they are
        counts.
        """
        weights = self.weights
        return (
            weights
            if (weights == np.floor(weights)).all()
            else weights * (weights.sum() / float(weights @ weights))
        )

    @property
    def accuracy(self) -> float:
        """Weighted proportion of correctly classified rows."""
        return float(self._counts.diagonal().sum() / self._counts.sum())

    @cached_property
    def _counts(self) -> np.ndarray:
        """Weighted counts (K, K) of rows by observed and predicted group."""
        return confusion_counts(
            self.observed, self.predicted, self.weights, len(self.labels.groups)
        )

    @property
    def confusion(self) -> pd.DataFrame:
        """Confusion matrix: observations by observed group (rows) and predicted group (columns)."""
        is_whole = (self._counts == np.floor(self._counts)).all()
        counts = self._counts.astype(np.int64) if is_whole else self._counts
        # a tuple as a group is one label
        groups = pd.Index(self.labels.groups, dtype=object, tupleize_cols=False)
        # an index name that differs from all groups, so that reset_index() works
        index_name = distinct_names([*groups, "observed"])[-1]
        return pd.DataFrame(
            counts, index=groups.rename(index_name), columns=groups.rename("predicted")
        )

    @cached_property
    def report(self) -> pd.DataFrame:
        """Precision, recall, F1, support and one-against-rest AUC of every group; undefined values
        are missing.
        """
        groups = pd.Index(self.labels.groups, dtype=object, tupleize_cols=False)
        columns = ["precision", "recall", "F1", "support"]
        table = pd.DataFrame(class_report(self._counts), index=groups, columns=columns)  # (K, 4)
        # AUC and its limits, (K,) each
        auc, lower, upper = areas(
            self.class_scores, self.observed, self._effective_weights, self.level
        ).T
        return table.assign(AUC=auc, lower=lower, upper=upper)

    @check_keywords
    def roc(self, group: Hashable = None) -> pd.DataFrame:
        """Return the ROC curve of a group against the rest.

        Parameters
        ----------
        group : optional
            The second group by default if there are two groups; required if there are more.

        Returns
        -------
        DataFrame
            ``threshold``, a probability of the group, in decreasing order; ``fpr`` and ``tpr``, the
            proportions of other rows and of rows in the group whose probability is at least the
            threshold.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> evaluation = fit.evaluate(titanic, weights="Freq")
        >>> evaluation.roc("Yes").head(3).round(3)
             fpr    tpr  threshold
        0  0.000  0.000        inf
        1  0.003  0.197      0.972
        2  0.003  0.198      0.951
        """
        groups = list(self.labels.groups)
        if group is None and len(groups) == 2:
            group = groups[1]
        if group not in groups:
            raise OptionError(
                f"{group!r} is not a group.",
                argument="group",
                hint=f"{near_match(group, groups)}Choose one of {', '.join(map(repr, groups))}.",
            )
        position = groups.index(group)
        log_odds = link(self.class_scores)[:, position]  # of the group against all others
        fpr, tpr, threshold = roc_curve(log_odds, self.observed == position, self.weights)
        # log odds to probabilities; the first threshold exceeds them all
        with np.errstate(over="ignore"):
            threshold = np.append(np.inf, 1.0 / (1.0 + np.exp(-threshold[1:])))
        return pd.DataFrame({"fpr": fpr, "tpr": tpr, "threshold": threshold})

    @check_keywords
    def plot(
        self,
        kind: EvaluationFigure = "confusion",
        groups: Sequence[Any] | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the confusion matrix, ROC curves, or a calibration plot of observed proportions
        against predicted probabilities.

        Parameters
        ----------
        kind : {"confusion", "roc", "calibration"}, default "confusion"
        groups : sequence, optional
            Groups for ``"roc"`` and ``"calibration"``; by default, all groups, or only the second
            if there are two.
        ax : matplotlib Axes, or a sequence of two for ``"calibration"``, optional

        Returns
        -------
        matplotlib Axes, or a list of them for ``"calibration"``

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> evaluation = fit.evaluate(titanic, weights="Freq")
        >>> evaluation.plot("roc").get_xlabel()
        'False positive rate'
        >>> plt.close()
        """
        if choice("kind", kind, FIGURES) == "confusion":
            return plot_confusion(self.labels, self._counts, ax=ax)
        if kind == "calibration":
            p = np.exp(log_probabilities(self.class_scores))
            return plot_calibration(
                self.labels, p, self.observed, self.weights, groups=groups, axes=ax
            )
        log_odds = link(self.class_scores)  # (n, K): each group against all others
        return plot_roc(self.labels, log_odds, self.observed, self.weights, groups=groups, ax=ax)

    @cached_property
    def _summary(self) -> Summary:
        """Facts and tables for text, HTML and LaTeX."""
        return self._summarise()

    def _summarise(self, min_count: float = 0.0) -> Summary:
        """Return facts and tables, where numbers of rows below `min_count` are suppressed."""
        coverage = f"{100 * self.level:g} %"
        total = float(self.weights.sum())
        effective = f"{len(self.weights):,} rows (effective number {total:,.1f})"
        facts: dict[str, Any] = {
            "Rows": self.what,
            "Observations": int(total) if total == int(total) else effective,
        }
        if self.log_loss.is_worse:
            facts["Log-loss"] = self.log_loss.verdict
        if self.left_out:
            facts["Left out"] = f"{self.left_out:g} with a missing value"
        if self.costs is not None:
            facts["Groups"] = "with the lowest expected cost"
        note = "baseline: predicting the class proportions for every row."
        if len(self.labels.groups) > 2:
            note = "AUC: mean over the groups, each against the rest; " + note
        note += self._floor_note
        if self.what == "training rows":
            note += " " + TRAINING_NOTE
        confusion = self.confusion.rename_axis(index=None, columns=None)
        by_group = self.report.drop(columns=["lower", "upper"]).round(4)
        if (by_group["support"] % 1 == 0).all():
            by_group["support"] = by_group["support"].astype(int)
        hidden_note = ""
        if min_count:
            hidden = f"<{min_count:g}"
            if (self._counts < min_count).any():
                hidden_note = (
                    f"Counts below {min_count:g} are shown as {hidden}; row totals and rates may "
                    "still reveal them."
                )
            confusion = confusion.astype(object).where(confusion >= min_count, hidden)
            has_rows = by_group["support"] >= min_count
            by_group["support"] = by_group["support"].astype(object).where(has_rows, hidden)
        sections = [
            Section(f"Scores with {coverage} intervals", self.scores.round(4), note),
            Section(
                "Observed groups (rows) against predicted groups (columns)", confusion, hidden_note
            ),
            Section("By group", by_group),
        ]
        tables = {"scores": self.scores, "confusion": self.confusion, "report": self.report}
        head = f"Predictions of {self.labels.response}"
        return Summary(
            head=head, facts=facts, title="Evaluation:", sections=sections, tables=tables
        )

    def as_html(self) -> str:
        """Return the evaluation as an HTML fragment with escaped names.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> evaluation = fit.evaluate(titanic, weights="Freq")
        >>> evaluation.as_html().startswith("<div")
        True
        """
        return self._summary.as_html()

    _repr_html_ = as_html

    def as_latex(self) -> str:
        """Return the evaluation as LaTeX with escaped names. Packages are not required.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> evaluation = fit.evaluate(titanic, weights="Freq")
        >>> "flushleft" in evaluation.as_latex()
        True
        """
        return self._summary.as_latex()

    def __repr__(self) -> str:
        return str(self._summary)


def evaluation_rows(design: Design, frame: Frame, row_weights: np.ndarray) -> Sample:
    """Return the encoded rows of new data that can be evaluated.

    These have a prediction, a known group and a positive weight in `row_weights` (n,). Raises a
    DataError if none remain.
    """
    y = design.encode_response(frame)
    codes, missing = design.encode(frame)
    dropped = design.dropped(frame)  # (n,), or None if the design drops no rows
    is_judged = (y >= 0) & (row_weights > 0) & (True if dropped is None else ~dropped)
    judged = Sample(codes, row_weights, y, missing).rows(is_judged)
    if not judged.n:
        raise DataError(
            "newdata has no rows with both a prediction and a group.",
            hint="Pass rows that have both.",
        )
    return judged


@dataclass(frozen=True)
class ScoredRows:
    """Class scores (n, K), groups (n,) and weights (n,) of rows; equal rows may be merged.

    `left_out` is the weight of rows without a prediction.
    """

    scores: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    left_out: float


def score_blocks(
    blocks: Iterator[Block], encoded_scores: Callable[..., np.ndarray], priors: Any
) -> ScoredRows:
    """Return the scores of the rows in all blocks. Equal rows are merged if there are many rows.

    ``encoded_scores(codes, missing, dropped, priors)`` returns the class scores (n, K) of encoded
    rows.
    """
    parts: list[np.ndarray] = []  # columns: scores, group, weight
    n_waiting = 0
    left_out = 0.0
    limit = MERGED_ROWS
    is_whole = True
    for block in blocks:
        scores = encoded_scores(block.codes, block.missing, None, priors)
        parts.append(np.column_stack([scores, block.y, block.weights]))
        left_out += block.left_out
        n_waiting += len(scores)
        is_whole = is_whole and are_whole(block.weights)
        # the effective number of rows depends on the weights of single rows if these are not counts
        if n_waiting > limit and is_whole:
            parts = [_merge_rows(np.concatenate(parts))]
            n_waiting = len(parts[0])
            limit = max(MERGED_ROWS, 2 * n_waiting)
            check_memory(
                3.0 * parts[0].nbytes,
                f"The scores of {n_waiting:,} rows",
                "Evaluate bbl.sample_rows(newdata, 1_000_000).",
            )
    if not parts:
        raise DataError("newdata has no rows.", argument="newdata")
    rows = np.concatenate(parts)
    return ScoredRows(rows[:, :-2], rows[:, -2].astype(np.intp), rows[:, -1], left_out)


def _merge_rows(rows: np.ndarray) -> np.ndarray:
    """Merge rows (n, K + 2) with equal scores and groups.

    The last column contains the weights, which are added.
    """
    order = np.lexsort(rows[:, :-1].T)
    rows = rows[order]
    is_new = np.append(True, (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1))
    starts = np.flatnonzero(is_new)
    merged = rows[starts]
    merged[:, -1] = np.add.reduceat(rows[:, -1], starts)
    return merged


def evaluate_rows(
    labels: Labels,
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    what: str,
    level: float = 0.95,
    costs: np.ndarray | None = None,
    remedy: str = "",
    sampled: bool = False,
    left_out: float = 0.0,
) -> Evaluation:
    """Return the evaluation of class scores (n, K) of rows with group numbers `y` (n,), which are
    -1 if unknown.

    Rows without a score, a group or a weight are left out. `sampled` indicates whether the weights
    belong to a sampling design, i.e. are not counts, and `left_out` is the weight of rows that have
    already been left out. See `Evaluation` for the other arguments.
    """
    is_judged = ~np.isnan(scores).any(axis=1) & (y >= 0) & (weights > 0)
    if not is_judged.any():
        raise DataError(
            f"None of the {what} has both a prediction and a group.",
            hint="Pass rows that have both.",
        )
    left_out += float(weights[~is_judged].sum())
    if sampled or not are_whole(weights[is_judged]):
        left_out = float((weights[~is_judged] > 0).sum())
        weights = weights.copy()
        weights[is_judged] = as_rows(weights[is_judged])
    scores = scores[is_judged]
    y = y[is_judged]
    weights = weights[is_judged]
    predicted = (
        first_largest(scores) if costs is None else least_cost(log_probabilities(scores), costs)
    )
    return Evaluation(labels, scores, y, predicted, weights, what, level, left_out, costs, remedy)
