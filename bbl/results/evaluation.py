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
from bbl.design.weights import WeightSums, are_whole, as_rows
from bbl.errors import DataError, OptionError
from bbl.report.machine.summary import Section, Summary
from bbl.report.plot_check import draw_calibration
from bbl.report.plot_evaluation import plot_confusion, plot_roc
from bbl.report.text import distinct_names
from bbl.results.batches import Block
from bbl.rows.sample import Sample
from bbl.stats.evaluation import (
    JudgedRows,
    ScoredRows,
    areas,
    class_report,
    roc_curve,
    score_table,
)
from bbl.stats.metrics import FLOOR, LossRecord, first_largest, least_cost, log_probabilities
from bbl.stats.score_bins import ScoreBins

__all__ = [
    "FIGURES",
    "Evaluation",
    "evaluate_blocks",
    "evaluate_rows",
    "evaluation_rows",
]

# Data read in batches: with more rows, equal rows are merged, and if more than half of the rows
# remain, only sums over rows are kept
EXACT_ROWS = 1_000_000
MAX_SCORES = 2**27  # the same for numbers of scores, groups, and weights; 1 GB
CHUNK_ROWS = 2**16  # rows that are added to the sums together
MIN_AREA_ERROR = 1e-5  # smaller possible errors of the AUC are not shown
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
    rows : JudgedRows
        Predictions and observed groups: of single rows, or sums over more than a million rows that
        were read in batches.
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
    rows: JudgedRows
    what: str
    level: float = 0.95
    left_out: float = 0.0
    costs: np.ndarray | None = None
    remedy: str = ""

    @property
    def _scored_rows(self) -> ScoredRows:
        """Single rows. Raises an OptionError if only sums over rows are stored."""
        if isinstance(self.rows, ScoredRows):
            return self.rows
        raise OptionError(
            f"The evaluation of {self.rows.n:,} rows read in batches contains sums over rows, but "
            "no values for single rows.",
            hint=f"Evaluate newdata=bbl.sample_rows(data, {EXACT_ROWS:_}).",
        )

    @property
    def class_scores(self) -> np.ndarray:
        """Class scores (n, K) of the rows. Not available for more than a million rows read in
        batches, unless they have few distinct scores.
        """
        return self._scored_rows.scores

    @property
    def observed(self) -> np.ndarray:
        """Number of the observed group of each row (n,); available if `class_scores` is."""
        return self._scored_rows.y

    @property
    def predicted(self) -> np.ndarray:
        """Number of the predicted group of each row (n,); available if `class_scores` is."""
        return self._scored_rows.predicted

    @property
    def weights(self) -> np.ndarray:
        """Frequencies or other weights (n,) of the rows; available if `class_scores` is."""
        return self._scored_rows.weights

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
        predicting the group with the lowest cost. With more than a million rows that were read in
        batches, the AUC may have a small error; see `auc_error`.
        """
        # (5, 4): a row for each of `SCORES`; estimate, lower and upper limits, baseline
        table = score_table(self.rows, self.level)
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
    def auc_error(self) -> float:
        """Largest possible error of the AUC in `scores`; 0 for tables in memory.

        If more than a million rows with more than half a million distinct scores are read in
        batches, the AUC is computed from 65,536 bins of the log-odds (fewer with more than 32
        groups). Pairs of rows in one bin count as ties, so the error is at most half of their
        proportion, unless they have the same score. Rows whose weights are not counts are not
        merged, and are counted in bins if there are more than a million.
        """
        groups = np.flatnonzero(self._counts.sum(axis=1) > 0).tolist()
        errors = [self.rows.area_error(k) for k in groups]
        # the AUC of two groups is the same; that of more is a mean over the groups that occur
        return float(np.mean(errors)) if len(groups) > 1 else 0.0

    @property
    def _area_note(self) -> str:
        """Note on the error of the AUC; empty if it is negligible."""
        error = self.auc_error
        return (
            "" if error <= MIN_AREA_ERROR else f" AUC: from bins, with an error up to {error:.1g}."
        )

    @property
    def floored(self) -> tuple[float, float]:
        """Number of observations whose group has a predicted probability below 1e-15, and number
        with probability 0.

        For the log-loss these probabilities are replaced with 1e-15. A probability is 0 if the
        prior of the group is 0, or if the group has no rows in the training data (of a fold).
        """
        return self.rows.floored

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
    def accuracy(self) -> float:
        """Weighted proportion of correctly classified rows."""
        return float(self._counts.diagonal().sum() / self._counts.sum())

    @property
    def _counts(self) -> np.ndarray:
        """Weighted counts (K, K) of rows by observed and predicted group."""
        return self.rows.counts

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
        auc, lower, upper = areas(self.rows, self.level).T
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
            threshold. There is one row for each distinct probability; if `auc_error` is not 0, at
            most 65,536.

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
        fpr, tpr, threshold = roc_curve(*self.rows.curve(position))
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
            return draw_calibration(self.labels, self.rows.calibration, groups, ax)
        return plot_roc(self.labels, self.rows.curve, groups=groups, ax=ax)

    @cached_property
    def _summary(self) -> Summary:
        """Facts and tables for text, HTML and LaTeX."""
        return self._summarise()

    def _summarise(self, min_count: float = 0.0) -> Summary:
        """Return facts and tables, where numbers of rows below `min_count` are suppressed."""
        coverage = f"{100 * self.level:g} %"
        total = self.rows.total
        effective = f"{self.rows.n:,} rows (effective number {total:,.1f})"
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
        note += self._area_note + self._floor_note
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


def evaluate_blocks(
    labels: Labels,
    blocks: Iterator[Block],
    encoded_scores: Callable[..., np.ndarray],
    priors: Any,
    what: str,
    level: float = 0.95,
    costs: np.ndarray | None = None,
    remedy: str = "",
    sampled: bool = False,
) -> Evaluation:
    """Return the evaluation of rows that are read in blocks.

    Scores are kept up to `EXACT_ROWS` rows. With more rows, those with equal scores are merged if
    weights are counts. If too many remain, only sums over rows are kept.

    ``encoded_scores(codes, missing, dropped, priors)`` returns the class scores (n, K) of encoded
    rows. See `evaluate_rows` for the other arguments.
    """
    waiting: list[np.ndarray] = []  # columns: scores, group, weight
    n_waiting = 0
    left_out = _LeftOut()
    weight_sums = WeightSums()
    limit = min(EXACT_ROWS, MAX_SCORES // (len(labels.groups) + 2))
    max_merged = limit // 2
    first_scores: np.ndarray | None = None
    bins: ScoreBins | None = None
    n_judged = 0
    has_rows = False
    for block in blocks:
        has_rows = True
        scores = encoded_scores(block.codes, block.missing, None, priors)
        is_judged = _are_judged(scores, block.y, block.weights)
        left_out.add(block.left_out, block.n_left_out)
        left_out.add_rows(block.weights[~is_judged])
        rows = np.column_stack([scores, block.y, block.weights])[is_judged]
        weight_sums.add_weights(rows[:, -1])
        waiting.append(rows)
        n_waiting += len(rows)
        n_judged += len(rows)
        if bins is None and n_waiting > limit:
            rows = np.concatenate(waiting)
            if first_scores is None:
                # a sample of the first rows, which does not depend on the size of the blocks
                first_scores = rows[: limit : -(-limit // CHUNK_ROWS), :-2]
            # the effective number of rows depends on the weights of single rows if these are not
            # counts
            if weight_sums.whole and _count_distinct(rows[:, 0]) <= max_merged:
                rows = _merge_rows(rows)
            waiting = [rows]
            n_waiting = len(rows)
            if n_waiting > max_merged:
                bins = ScoreBins(first_scores, costs)
        if bins is not None and n_waiting >= CHUNK_ROWS:
            waiting = [_add_chunks(bins, np.concatenate(waiting))]
            n_waiting = len(waiting[0])
    if not has_rows:
        raise DataError("newdata has no rows.", argument="newdata")
    rows = np.concatenate(waiting)
    if bins is None:
        return evaluate_rows(
            labels,
            rows[:, :-2],
            rows[:, -2].astype(np.intp),
            rows[:, -1],
            what,
            level,
            costs,
            remedy,
            sampled,
            left_out,
        )
    _add_rows(bins, rows)
    is_scaled = sampled or not weight_sums.whole
    scale = 1.0 / weight_sums.divisor if is_scaled else 1.0
    return Evaluation(
        labels, bins.rows(n_judged, scale), what, level, left_out.amount(is_scaled), costs, remedy
    )


def _add_chunks(bins: ScoreBins, rows: np.ndarray) -> np.ndarray:
    """Add chunks of `CHUNK_ROWS` rows to the sums, and return the remaining rows.

    Chunks do not depend on the size of the blocks, which therefore does not affect the sums.
    """
    n_added = len(rows) - len(rows) % CHUNK_ROWS
    for start in range(0, n_added, CHUNK_ROWS):
        _add_rows(bins, rows[start : start + CHUNK_ROWS])
    return rows[n_added:].copy()


def _add_rows(bins: ScoreBins, rows: np.ndarray) -> None:
    """Add rows with columns for scores, group and weight."""
    bins.add(rows[:, :-2], rows[:, -2].astype(np.intp), rows[:, -1])


def _are_judged(scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return whether rows have a prediction, a known group and a positive weight."""
    return ~np.isnan(scores).any(axis=1) & (y >= 0) & (weights > 0)


@dataclass
class _LeftOut:
    """Weight and number of the rows without a prediction or without a known group."""

    weight: float = 0.0
    n: int = 0

    def add(self, weight: float, n: int) -> None:
        """Add `n` rows of this weight."""
        self.weight += weight
        self.n += n

    def add_rows(self, weights: np.ndarray) -> None:
        """Add rows with these weights."""
        self.add(float(weights.sum()), int((weights > 0).sum()))

    def amount(self, is_scaled: bool) -> float:
        """Return the number of rows if weights are scaled, otherwise their weight."""
        return float(self.n) if is_scaled else self.weight


def _count_distinct(values: np.ndarray) -> int:
    """Return the number of distinct values."""
    ordered = np.sort(values)  # faster than `numpy.unique`, which uses hashes
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


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
    left_out: _LeftOut | None = None,
) -> Evaluation:
    """Return the evaluation of class scores (n, K) of rows with group numbers `y` (n,), which are
    -1 if unknown.

    Rows without a score, a group or a weight are left out. `sampled` indicates whether the weights
    belong to a sampling design, i.e. are not counts, and `left_out` contains rows that have already
    been left out. See `Evaluation` for the other arguments.
    """
    is_judged = _are_judged(scores, y, weights)
    if not is_judged.any():
        raise DataError(
            f"None of the {what} has both a prediction and a group.",
            hint="Pass rows that have both.",
        )
    left_out = left_out or _LeftOut()
    left_out.add_rows(weights[~is_judged])
    is_scaled = sampled or not are_whole(weights[is_judged])
    if is_scaled:
        weights = weights.copy()
        weights[is_judged] = as_rows(weights[is_judged])
    scores = scores[is_judged]
    y = y[is_judged]
    weights = weights[is_judged]
    predicted = (
        first_largest(scores) if costs is None else least_cost(log_probabilities(scores), costs)
    )
    rows = ScoredRows(scores, y, predicted, weights)
    return Evaluation(labels, rows, what, level, left_out.amount(is_scaled), costs, remedy)
