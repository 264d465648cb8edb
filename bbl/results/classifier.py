"""ClassifierResults: what every fitted classifier has besides: class scores, predictions, residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, verb
from bbl.results.model import ModelResults
from bbl.stats.scores import link, log_probabilities

__all__ = ["ClassifierResults", "prediction_frame"]

TYPES = ("link", "prob", "class")


def prediction_frame(
    scores: np.ndarray, groups: tuple, type: str, index: pd.Index, response: Any
) -> pd.DataFrame | pd.Series:
    """Return class scores (n, K) as R's frame of predictions, or the most likely groups alone."""
    columns = pd.Index(groups, dtype=object)
    codes = np.where(np.isnan(scores).any(axis=1), -1, scores.argmax(axis=1))
    best = pd.Series(pd.Categorical.from_codes(codes, columns.infer_objects()), index=index, name="yhat")
    if type == "class":
        return best.rename(response)
    values = link(scores) if type == "link" else np.exp(log_probabilities(scores))
    # not by assignment: a group may be called "yhat" itself
    return pd.concat([pd.DataFrame(values, index=index, columns=columns), best], axis=1)


@dataclass(frozen=True, repr=False)
class ClassifierResults(ModelResults):
    """A fitted classifier: a model with a response. A family of models adds `class_scores` too."""

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(y, x)`` of encoded rows but for what groups share, shape (n, K); sums out where `missing`."""
        raise NotImplementedError

    def _new_scores(self, newdata: Any, unseen: str) -> np.ndarray:
        """Class scores (n, K) of new rows; nan where the row is dropped."""
        scores = self.class_scores(*self.design.encode(newdata, unseen))
        if (dropped := self.design.dropped(newdata)) is not None:
            scores[dropped] = np.nan
        return scores

    def _own_scores(self) -> np.ndarray:
        """Class scores (n, K) of the training rows."""
        return self.class_scores(self._rows().codes, self._rows().missing)

    @verb
    def predict(self, newdata=None, type: str = "link", unseen: str = "raise") -> pd.DataFrame | pd.Series:
        """Predict the response group of each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns; others are ignored. None for the training rows.
        type : {"link", "prob", "class"}, default "link"
            ``F_y(x)`` of eq. (29), the probabilities of eq. (28), or the most likely group alone.
        unseen : {"raise", "ignore"}, default "raise"
            Whether a level that the model does not know is an error, or its predictor is summed out in that row.

        Returns
        -------
        DataFrame or Series
            On the index of `newdata`: one column per group, then ``yhat``; for ``type="class"`` the groups alone. A
            missing value is treated as in the fit (`missing` of `bbl.bbl`): it is an error, is a level like others, is
            summed out, or (where the fit dropped such rows) its row is missing here.

        Raises
        ------
        DataError, LevelError
            If columns are missing, or values are missing in spite of the policy, or unknown; they are named.
        """
        choice("type", type, TYPES)
        choice("unseen", unseen, ("raise", "ignore"))
        if newdata is None:
            return self._frame(self._own_scores(), type, self._index())
        return self._frame(self._new_scores(newdata, unseen), type, self.design.index(newdata))

    def _frame(self, scores: np.ndarray, type: str, index: pd.Index) -> pd.DataFrame | pd.Series:
        return prediction_frame(scores, self.labels.groups, type, index, self.labels.response)

    def fitted(self) -> pd.DataFrame:
        """Return the probability of each group for the training rows."""
        return pd.DataFrame(self.predict(type="prob")).iloc[:, :-1]

    def residuals(self) -> pd.Series:
        """Return, as R does, 1 where the predicted group is the observed one and 0 elsewhere."""
        rows = self._rows()
        hit = self._own_scores().argmax(axis=1) == rows.response
        return pd.Series(hit.astype(int), index=self._index(), name="residuals")
