"""CVResults: a cross-validation, its scores and its pooled predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bbl.report import plot, text
from bbl.results.fit import BBLResults, prediction_frame

__all__ = ["CVResults"]


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
        Which score was taken.
    folds : list of ndarray
        Validated rows of each fold, as positions in the weight-expanded data, in the order they were pooled.
    scores : ndarray, shape (N, K)
        Class scores of the validated rows at the best setting, fold by fold.
    y : ndarray of int, shape (N,)
        Their groups.
    weights : ndarray, shape (N,)
    model : BBLResults
        The refit on all rows at `regstar`, or R's fit of the last fold.
    """

    cvframe: pd.DataFrame
    best: int
    score: str
    folds: list[np.ndarray]
    scores: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    model: BBLResults

    @property
    def regstar(self) -> float:
        """The best setting."""
        return float(self.cvframe.to_numpy()[self.best, 0])

    @property
    def maxscore(self) -> float:
        """Its score."""
        return float(self.cvframe.to_numpy()[self.best, 1])

    @property
    def pooled(self) -> pd.DataFrame:
        """Validation predictions at `regstar`, fold by fold: the link of each group, then ``yhat``."""
        index = pd.RangeIndex(len(self.y))
        return pd.DataFrame(prediction_frame(self.scores, self.model.labels.groups, "link", index, None))

    @property
    def observed(self) -> pd.DataFrame:
        """What belongs to the rows of `pooled`: the group ``y`` observed and its ``weights``."""
        groups = pd.Index(self.model.labels.groups, dtype=object).infer_objects()
        return pd.DataFrame({"y": pd.Categorical.from_codes(self.y, groups), "weights": self.weights})

    def predict(self, newdata=None, type: str = "link", unseen: str = "raise") -> pd.DataFrame | pd.Series:
        """Predict with `model`; see `BBLResults.predict`."""
        return self.model.predict(newdata, type, unseen)

    def plot(self, ax=None):
        """Draw the score against the setting (the paper's Figures 3, 5a, 6, 8); return the Axes."""
        return plot.plot_cv(self.cvframe, best=self.regstar, ax=ax)

    def __repr__(self) -> str:
        return text.cv_text(self.cvframe, self.regstar, self.maxscore, self.score)
