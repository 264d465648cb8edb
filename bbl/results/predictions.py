"""PredictionsMixin: predictions of fitted classifiers, for rows in memory and in batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal, Unpack, get_args, overload

import pandas as pd

from bbl.checks import check_keywords, choice
from bbl.choices import PredictionType, Unseen
from bbl.design.decisions import Costs, Decisions, Priors, check_costs
from bbl.design.streams.adapters import lazy_source
from bbl.errors import DataError
from bbl.parallel import progress_bar
from bbl.results.batches import (
    as_polars,
    is_polars,
    new_frames,
    prediction_frame,
    write_frames,
)
from bbl.results.classifier_base import ClassifierBase
from bbl.stats.metrics import first_largest

__all__ = ["PredictionsMixin"]

TYPES = get_args(PredictionType)  # values of the argument `type`


class PredictionsMixin(ClassifierBase):
    """Predictions of new rows and of the training rows, in memory and in batches."""

    @overload
    def predict(
        self,
        newdata: object,
        type: Literal["class"],
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.Series: ...
    @overload
    def predict(
        self,
        newdata: object = ...,
        *,
        type: Literal["class"],
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.Series: ...
    @overload
    def predict(
        self,
        newdata: object = ...,
        type: Literal["link", "prob"] = ...,
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.DataFrame: ...
    @check_keywords
    def predict(
        self,
        newdata: object = None,
        type: PredictionType = "link",
        unseen: Unseen = "raise",
        *,
        priors: Priors = None,
        costs: Costs = None,
    ) -> pd.DataFrame | pd.Series:
        """Predict the response group of each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns; others are ignored. None for the training rows. For
            data read in batches, the result is an iterator of frames, as from
            `predict_batches`.
        type : {"link", "prob", "class"}, default "link"
            ``F_y(x)`` of eq. (29) of Woo & Wang (2022), the class scores; the probabilities of eq.
            (28); or the most probable group only.
        unseen : {"raise", "ignore"}, default "raise"
            Whether an unknown level is an error, or its predictor is summed out in that row.
        priors : mapping or Series by group, array_like of shape (K,), or ``"equal"``, optional
            Class shares that replace the shares of the training rows (or the model's `priors`), for
            populations with other shares. Probabilities follow by Bayes' rule. An array, here and
            for `costs`, needs groups whose order was declared, or that are numbers or booleans;
            groups that are text need names.
        costs : DataFrame, dict of dicts, or array_like of shape (K, K), optional
            Cost of predicting a group (column) where another (row) is true; ``yhat`` is then the
            group with the lowest expected cost instead of the most probable one. In
            ``{true: {predicted: cost}}`` absent entries are 0.

        Returns
        -------
        DataFrame or Series
            On the index of `newdata`: one column per group, then ``yhat`` (``yhat_`` beside a group
            of that name); for ``type="class"`` the groups alone. A missing value is treated as in
            the fit (`missing` of `bbl.bbl`): as an error, as a level, summed out, or, where the fit
            dropped such rows, by a missing prediction. For a polars DataFrame the same in polars,
            in the order of the rows.

        Raises
        ------
        DataError, LevelError
            If columns are missing, or values are missing in spite of the policy, or unknown; they
            are named.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.predict(titanic.head(2), type="prob", priors="equal").round(3)
              No    Yes yhat
        0  0.241  0.759  Yes
        1  0.529  0.471   No
        """
        choice("type", type, TYPES)
        choice("unseen", unseen, ("raise", "ignore"))
        if lazy_source(newdata, "newdata") is not None:
            # read in batches: an iterator of frames; annotated as a table, as the return type
            # declares tables alone
            batches: pd.DataFrame = self.predict_batches(
                newdata, type, unseen, priors=priors, costs=costs
            )
            return batches
        cost_matrix = None if costs is None else check_costs(costs, self.design.response)
        codes, missing, dropped, row_labels = self._encode_rows(newdata, unseen)
        scores = self._encoded_scores(codes, missing, dropped, priors)
        predictions = prediction_frame(
            scores, self.labels.groups, type, row_labels, self.labels.response, cost_matrix
        )
        return as_polars(predictions) if is_polars(newdata) else predictions

    @check_keywords
    def predict_batches(
        self,
        newdata: object,
        type: PredictionType = "prob",
        unseen: Unseen = "raise",
        *,
        to: str | os.PathLike[str] | None = None,
        priors: Priors = None,
        costs: Costs = None,
        verbose: int = 1,
    ) -> Any:
        """Predict rows that are too many for memory, batch by batch.

        Parameters
        ----------
        newdata : rows that are read in batches, or a table in memory
            A Parquet path, list, glob or folder, Arrow Dataset or stream, DuckDB relation, polars
            LazyFrame, Dask DataFrame or callable. Rows with the predictors' columns; others are not
            read.
        type : {"prob", "link", "class"}, default "prob"
        unseen, priors, costs
            As in `predict`.
        to : path, optional
            A CSV or Parquet file for the predictions, as its name ends, in the order of the rows;
            it is written batch by batch, and has this name once all are written.
        verbose : int, default 1
            0 for no progress bar.

        Returns
        -------
        iterator of DataFrame (or Series, for ``type="class"``), or with `to` the number of rows
        that were written

        Raises
        ------
        DataError, LevelError
            As of `predict`; or if a file cannot be read.
        OptionError
            If the name `to` ends neither in .csv nor in .parquet.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> def rows():  # in place of a file
        ...     yield titanic.head(1)
        ...     yield titanic.tail(2)
        >>> for frame in fit.predict_batches(rows):
        ...     print(frame["yhat"].tolist())
        ['Yes']
        ['No', 'Yes']
        """
        choice("type", type, TYPES)
        choice("unseen", unseen, ("raise", "ignore"))
        if newdata is None:
            raise DataError(
                "newdata is missing.",
                argument="newdata",
                hint="Give newdata; predict() without it predicts the training rows.",
            )
        # source: None for a table in memory
        source = lazy_source(newdata, "newdata")
        labels = self.labels
        cost_matrix = None if costs is None else check_costs(costs, self.design.response)

        def yield_predictions() -> Iterator[pd.DataFrame | pd.Series]:
            """Yield the predictions of one batch after the other."""
            # None: the number of batches is not known
            with progress_bar(None, "predicting", verbose) as step:
                for rows in new_frames(self.design, newdata, source):
                    scores = self._new_scores(rows, unseen, priors)
                    yield prediction_frame(
                        scores, labels.groups, type, rows.index, labels.response, cost_matrix
                    )
                    step()

        if to is None:
            return yield_predictions()
        # a Series becomes one column
        return write_frames((pd.DataFrame(frame) for frame in yield_predictions()), to)

    def fitted(self) -> pd.DataFrame:
        """Return the probability of each group for the training rows.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.fitted().head(2).round(3)
              No    Yes
        2  0.648  0.352
        6  0.679  0.321
        """
        return pd.DataFrame(self.predict(type="prob")).iloc[:, :-1]  # the last column is yhat

    def residuals(self) -> pd.Series:
        """Return, as R does, 1 where the predicted group is the observed one, else 0; missing
        without a group.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.residuals().head(3).tolist()
        [1, 1, 1]
        """
        rows = self._rows(takes_newdata=True)
        observed = rows.response  # group numbers (n,), -1 if unknown
        is_right = (
            first_largest(self._encoded_scores(rows.codes, rows.missing, dropped=None, priors=None))
            == observed
        ).astype(int)
        indicators = pd.Series(is_right, index=self._index(), name="residuals")
        has_no_group = observed < 0
        return indicators.astype("Int64").mask(has_no_group) if has_no_group.any() else indicators
