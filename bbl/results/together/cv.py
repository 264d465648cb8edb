"""CVResults: a cross-validation: score of every setting, pooled predictions of validated rows, refitted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, share, verb
from bbl.crossval import Scored, calibrated
from bbl.design.decisions import Costs, Priors, check_costs, check_priors
from bbl.errors import ClassError
from bbl.report import text
from bbl.report.format import WIDTH
from bbl.report.machine import plot
from bbl.report.plot_check import plot_calibration
from bbl.results.batches import prediction_frame
from bbl.results.evaluation import FIGURES, Evaluation, evaluate_rows
from bbl.results.machine.density import DensityResults
from bbl.results.machine.fit import BBLResults
from bbl.results.machine.machine import MachineResults
from bbl.results.together.average import AverageResults
from bbl.stats.calibration import CALIBRATE
from bbl.stats.metrics import SCORES, auc
from bbl.stats.scores import link, log_probabilities, with_priors

__all__ = ["CVResults", "score_frame"]


def score_frame(
    table: np.ndarray, score: str, column: str, settings: float | Sequence[float] | np.ndarray
) -> pd.DataFrame:
    """Return the table of scores (S, 1), or of AUC with its limits (S, 3), under the `column` of `settings`."""
    frame = pd.DataFrame(table, columns={"auc": ["AUC", "ci1", "ci2"]}.get(score, ["score"]))
    frame.insert(0, column, settings)
    return frame


@dataclass(frozen=True, repr=False)
class CVResults:
    """Cross-validation; made by `bbl.crossVal`.

    Attributes
    ----------
    cvframe : DataFrame
        One row per setting: ``lambda`` or ``epsilon``, and ``AUC``, ``ci1``, ``ci2`` or ``score``.
    best : int
        Row of the best setting.
    score : str
        Name of the score.
    folds : list of ndarray
        Validated rows of each fold, as positions in the data, in the order they were pooled. A weighted row stands
        once in each fold that has copies of it; ``observed`` says how many.
    scored : Scored
        Class scores of the validated rows at every setting, fold by fold, with their groups and weights.
    calibrate : str
        How scores were calibrated before they were compared.
    model : BBLResults, DensityResults or AverageResults
        The refit on all rows at `regstar`, or R's fit of the last fold.
    """

    cvframe: pd.DataFrame
    best: int
    score: str
    folds: list[np.ndarray]
    scored: Scored
    calibrate: str
    model: BBLResults | DensityResults | AverageResults

    @property
    def regstar(self) -> float:
        """The best setting."""
        return float(self.cvframe.to_numpy()[self.best, 0])

    @property
    def maxscore(self) -> float:
        """Its score."""
        return float(self.cvframe.to_numpy()[self.best, 1])

    @property
    def _best_scores(self) -> np.ndarray:
        """Calibrated class scores (N, K) of the validated rows at `regstar`."""
        return calibrated(self.scored, self.scored.scores[self.best], self.calibrate)

    @property
    def pooled(self) -> pd.DataFrame:
        """Validation predictions at `regstar`, fold by fold: the link of each group, then ``yhat``.

        Without a response it is the log-probability of each row, ``log_prob``, or its log pseudo-likelihood ``log_pl``.
        """
        index = pd.RangeIndex(len(self.scored.y))
        if not self.model.design.classes:
            name = "log_pl" if self.score == "pnll" else "log_prob"
            return pd.DataFrame(self._best_scores, index=index, columns=[name])
        return pd.DataFrame(prediction_frame(self._best_scores, self.model.labels.groups, "link", index, None))

    @property
    def observed(self) -> pd.DataFrame:
        """Observed group ``y`` and ``weights`` of the rows of `pooled`."""
        groups = pd.Index(self.model.labels.groups, dtype=object).infer_objects()
        return pd.DataFrame({"y": pd.Categorical.from_codes(self.scored.y, groups), "weights": self.scored.weights})

    def compare(self) -> pd.DataFrame:
        """Return accuracy, AUC, log-loss and Brier score of every setting under every calibration.

        Returns
        -------
        DataFrame
            The setting, ``calibrate``, ``accuracy``, ``AUC`` (two groups only), ``logloss``, ``brier``.

        Raises
        ------
        ClassError
            If there is no response.
        """
        self._need_classes("compare")
        scored, name = self.scored, self.cvframe.columns[0]
        rows = []
        for value, setting in zip(self.cvframe[name], scored.scores, strict=True):
            for kind in CALIBRATE:
                scores = calibrated(scored, setting, kind)
                row = {name: value, "calibrate": kind}
                log_p = log_probabilities(scores)
                row |= {k: measure(log_p, scored.y, scored.weights) for k, measure in SCORES.items()}
                if scores.shape[1] == 2:
                    row["AUC"] = auc(link(scores)[:, 1], scored.y == 1, scored.weights)[0]
                rows.append(row)
        return pd.DataFrame(rows)

    @verb
    def predict(
        self,
        newdata: object = None,
        type: str = "link",
        unseen: str = "raise",
        *,
        priors: Priors = None,
        costs: Costs = None,
    ) -> pd.DataFrame | pd.Series:
        """Predict with `model`; see `BBLResults.predict`."""
        predicted: pd.DataFrame | pd.Series = self.model.predict(newdata, type, unseen, priors=priors, costs=costs)
        return predicted

    def _need_classes(self, name: str) -> None:
        """Raise a ClassError that names the method if there is no response."""
        if not self.model.design.classes:
            raise ClassError(
                f"{name}() is of the probabilities of classes, and {self.model.formula!r} has no response; cvframe has "
                "the scores of all settings.",
                argument="formula",
            )

    @verb
    def evaluate(self, *, level: float = 0.95, priors: Priors = None, costs: Costs = None) -> Evaluation:
        """Compare the validation predictions at `regstar` with the observed groups; see `BBLResults.evaluate`.

        The intervals take the rows for independent, and do not know of the choice among settings.
        """
        self._need_classes("evaluate")
        share("level", level)
        scored, labels, response = self.scored, self.model.labels, self.model.design.response
        scores = self._best_scores
        if priors is not None:
            scores = with_priors(scores, self.model.class_shares, check_priors(priors, response))
        cost_matrix = None if costs is None else check_costs(costs, response)
        subject = f"validated rows of {len(self.folds)} folds"
        return evaluate_rows(labels, scores, scored.y, scored.weights, subject, level, cost_matrix, self.model._remedy)

    @verb
    def plot(self, ax=None, *, kind: str = "cv"):
        """Draw the score against the setting (the paper's Figures 3, 5a, 6, 8), or a figure of the predictions.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"cv", "confusion", "roc", "calibration"}, default "cv"
            The score of every setting, or what ``evaluate().plot(kind)`` draws.

        Returns
        -------
        matplotlib Axes, or a list of them for ``"calibration"``
        """
        if choice("kind", kind, ("cv", *FIGURES)) in FIGURES:
            return self.evaluate().plot(kind, ax=ax)
        tuned = self.model.engine.tuned if isinstance(self.model, MachineResults) else None
        if tuned is None:
            return plot.plot_cv(self.cvframe, best=self.regstar, ax=ax)
        axis: dict[str, Any] = {"symbol": tuned.symbol, "title": tuned.title, "logarithmic": tuned.logarithmic}
        return plot.plot_cv(self.cvframe, best=self.regstar, ax=ax, **axis)

    @verb
    def plot_calibration(self, bins: int = 10, groups=None, axes=None):
        """Draw how often each group was observed where it was predicted with a given probability.

        Parameters
        ----------
        bins : int, default 10
            Bins of equal width between 0 and 1, of the validation predictions at `regstar`.
        groups : sequence, optional
            Which groups; all by default, but the second alone of two.
        axes : sequence of matplotlib Axes, optional
            Two, for the diagrams and histograms of all groups, or two for each; a new figure by default.

        Returns
        -------
        list of matplotlib Axes
            A diagram and a histogram for each group. Points bear 95 % intervals of a binomial share; a calibrated
            model keeps to the diagonal.
        """
        self._need_classes("plot_calibration")
        scored = self.scored
        p = np.exp(log_probabilities(self._best_scores))
        return plot_calibration(self.model.labels, p, scored.y, scored.weights, bins=bins, groups=groups, axes=axes)

    def __repr__(self) -> str:
        verdict = self.model._verdict if self.model.design.classes else ""
        warning = f"\n\n{fill(verdict, WIDTH, break_on_hyphens=False)}" if verdict else ""
        return text.cv_text(self.cvframe, self.regstar, self.maxscore, self.score) + warning
