"""PredictionsMixin: predictions of fitted classifiers for rows in memory and in batches."""

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
            Rows with the columns of the predictors; other columns are ignored. If None, the
            training rows are used. For data that are read in batches, the result is an iterator of
            frames, as in `predict_batches`.
        type : {"link", "prob", "class"}, default "link"
            The class scores ``F_y(x)`` of eq. 29 of Woo & Wang (2022), the probabilities of eq.
            28, or only the most probable group.
        unseen : {"raise", "ignore"}, default "raise"
            Whether to raise an error for an unknown level, or to average over the predictor in that
            row.
        priors : mapping or Series by group, array_like of shape (K,), or ``"equal"``, optional
            Class proportions to use instead of the training proportions (or the `priors` of the
            model), for populations with different proportions. Probabilities are adjusted by Bayes'
            rule. Here and for `costs`, an array is only allowed if groups have a declared order or
            are numbers or booleans; otherwise, values must be specified by group name.
        costs : DataFrame, dict of dicts, or array_like of shape (K, K), optional
            Cost of predicting a group (column) if another (row) is true; ``yhat`` is then the group
            with the lowest expected cost instead of the most probable one. Missing entries in
            ``{true: {predicted: cost}}`` are 0.

        Returns
        -------
        DataFrame or Series
            Predictions with the index of `newdata`: one column per group, followed by ``yhat`` (or
            ``yhat_`` if a group has that name). For ``type="class"``, only the predicted groups.
            Missing values are treated as in the fit (`missing` of `bbl.bbl`): they raise an error,
            are a separate level or are averaged over. If the fit dropped such rows, their
            predictions are missing. For a polars DataFrame, the result is a polars object with rows
            in the same order.

        Raises
        ------
        DataError, LevelError
            If a column is missing, a value is unknown, or a value is missing although the fit does
            not allow it; the message names the column or value.

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
            # read in batches: an iterator of frames, annotated as a table because the return type
            # only has tables
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
        """Predict data that do not fit into memory, batch by batch.

        Parameters
        ----------
        newdata : data that are read in batches, or a table in memory
            A Parquet path, list, glob or folder, Arrow Dataset or stream, DuckDB relation, polars
            LazyFrame, Dask DataFrame or callable, with the columns of the predictors; other columns
            are not read.
        type : {"prob", "link", "class"}, default "prob"
        unseen, priors, costs
            As in `predict`.
        to : path, optional
            CSV or Parquet file (by its extension) for the predictions, in the order of the rows.
            The file is written batch by batch under a temporary name and renamed when it is
            complete.
        verbose : int, default 1
            0 hides the progress bar.

        Returns
        -------
        iterator of DataFrame (or Series, for ``type="class"``), or int, with `to`
        With `to`, the number of rows written.

        Raises
        ------
        DataError, LevelError
            As in `predict`, and if a file cannot be read.
        OptionError
            If the name `to` does not end in .csv or .parquet.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> def rows():  # instead of a file
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
                hint=(
                    "Pass newdata, or call predict() without arguments to predict the training "
                    "rows."
                ),
            )
        # source: None for a table in memory
        source = lazy_source(newdata, "newdata")
        labels = self.labels
        cost_matrix = None if costs is None else check_costs(costs, self.design.response)

        def yield_predictions() -> Iterator[pd.DataFrame | pd.Series]:
            """Yield the predictions batch by batch."""
            # None: the number of batches is unknown
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
        """Return 1 for correctly classified training rows and 0 for other rows, as in R.

        Values are missing for rows with an unknown group.

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
