"""Predictions of fitted classifiers, accuracy, residuals, importance of predictors: methods of the
result classes.

n rows, m predictors, K groups. *Class scores* (n, K) are ln P(group, row) up to a constant.

The functions use these parts of a `ClassifierResults`. ``_rows()``: the training rows, a `Sample`
with ``codes`` (n, m), ``missing`` (n, m) or None, ``response`` and ``weights`` (n,); ``total`` is
the sum of the weights. ``_index()``: their labels. ``_encode_rows(newdata, unseen)``: codes,
missing cells, dropped rows (n,) or None, and labels of rows. ``_encoded_scores``: class scores of
encoded rows, nan for dropped ones; ``_new_scores``: of the rows of a table. ``_refit(train, rng)``:
a fit to other rows. ``log_loss`` and ``_advice``: the log-loss of the fit, and how to lower it.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from typing import Any, Literal, Unpack, get_args, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import choice, generator, integer, verb
from bbl.choices import PredictionType, Unseen
from bbl.design.decisions import Costs, Decisions, Priors, check_costs
from bbl.design.frames import to_frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.weights import name_new_rows, refuse_weights
from bbl.errors import DataError
from bbl.importance import losses_without, validated_losses
from bbl.parallel import n_workers, progress_bar
from bbl.results.batches import new_frames, prediction_frame, write_frames
from bbl.results.classifier import ClassifierResults
from bbl.results.classifier_facts import remedy
from bbl.results.evaluation import judged_rows
from bbl.results.explanation import Importance, summarise_importance
from bbl.rows.folds import shuffled_folds
from bbl.stats.ties import first_largest

__all__ = ["accuracy_score", "fitted", "importance", "predict_batches", "predict_rows", "residuals"]

TYPES = get_args(PredictionType)  # values of the argument `type`


@overload
def predict_rows(
    self: ClassifierResults,
    newdata: object,
    type: Literal["class"],
    unseen: Unseen = ...,
    **options: Unpack[Decisions],
) -> pd.Series: ...
@overload
def predict_rows(
    self: ClassifierResults,
    newdata: object = ...,
    *,
    type: Literal["class"],
    unseen: Unseen = ...,
    **options: Unpack[Decisions],
) -> pd.Series: ...
@overload
def predict_rows(
    self: ClassifierResults,
    newdata: object = ...,
    type: Literal["link", "prob"] = ...,
    unseen: Unseen = ...,
    **options: Unpack[Decisions],
) -> pd.DataFrame: ...
@verb
def predict_rows(
    self: ClassifierResults,
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
        Rows with the predictors' columns; others are ignored. None for the training rows. For data
        that are read in batches, the result is an iterator of frames, as from `predict_batches`.
    type : {"link", "prob", "class"}, default "link"
        ``F_y(x)`` of eq. (29) of Woo & Wang (2022), the class scores; the probabilities of eq.
        (28); or the most likely group alone.
    unseen : {"raise", "ignore"}, default "raise"
        Whether an unknown level is an error, or its predictor is summed out in that row.
    priors : mapping or Series by group, array_like of shape (K,), or ``"equal"``, optional
        Class shares that replace the shares of the training rows (or the model's `priors`), for
        populations with other shares. Probabilities follow by Bayes' rule. An array, here and for
        `costs`, needs groups whose order was declared, or that are numbers or booleans; groups that
        are text need names.
    costs : DataFrame, dict of dicts, or array_like of shape (K, K), optional
        Cost of predicting a group (column) where another (row) is true; ``yhat`` is then the group
        of least expected cost, not the most likely one. In ``{true: {predicted: cost}}`` absent
        entries are 0.

    Returns
    -------
    DataFrame or Series
        On the index of `newdata`: one column per group, then ``yhat`` (``yhat_`` beside a group of
        that name); for ``type="class"`` the groups alone. A missing value is treated as in the fit
        (`missing` of `bbl.bbl`): as an error, as a level, summed out, or, where the fit dropped
        such rows, by a missing prediction.

    Raises
    ------
    DataError, LevelError
        If columns are missing, or values are missing in spite of the policy, or unknown; they are
        named.

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
        # read in batches: an iterator of frames; annotated as a table, as the return type declares
        # tables alone
        batches: pd.DataFrame = predict_batches(
            self, newdata, type, unseen, priors=priors, costs=costs
        )
        return batches
    cost_matrix = None if costs is None else check_costs(costs, self.design.response)
    codes, missing, dropped, row_labels = self._encode_rows(newdata, unseen)
    scores = self._encoded_scores(codes, missing, dropped, priors)
    return prediction_frame(
        scores, self.labels.groups, type, row_labels, self.labels.response, cost_matrix
    )


@verb
def predict_batches(
    self: ClassifierResults,
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
        A Parquet file for the predictions, in the order of the rows; it exists only once all are
        written.
    verbose : int, default 1
        0 for no progress bar.

    Returns
    -------
    iterator of DataFrame (or Series, for ``type="class"``), or with `to` the number of rows that
    were written

    Raises
    ------
    DataError, LevelError
        As of `predict`; or if a file cannot be read.

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


@verb
def accuracy_score(
    self: ClassifierResults,
    newdata: object = None,
    weights: Hashable | ArrayLike = None,
    *,
    priors: Priors = None,
    costs: Costs = None,
) -> float:
    """Return the accuracy: the weighted share of rows whose group is predicted; arguments as in
    `evaluate`.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> round(fit.score(titanic, weights="Freq"), 4)
    0.7856
    """
    return self.evaluate(newdata, weights, priors=priors, costs=costs).accuracy


@verb
def importance(
    self: ClassifierResults,
    newdata: object = None,
    weights: Hashable | ArrayLike = None,
    *,
    nfold: int = 5,
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
) -> Importance:
    """Return the increase of the log-loss if each predictor in turn is unknown, and summed out
    exactly.

    Parameters
    ----------
    newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
        Rows with predictors and response. None for a cross-validation on the training rows with the
        settings, and the network structure, of this fit.
    weights : column name or array_like of shape (n,), optional
        Weights of the new rows. By default those in the column that has the
        weights of the training data (``weights="Freq"`` of the fit), if `newdata` has it; else
        all rows count alike.
    nfold : int, default 5
        Number of shuffled folds of the cross-validation.
    seed : int, numpy.random.Generator or None, default 0
        For the shuffling of the folds.
    n_jobs : int, optional
        Threads; results do not depend on it.

    Returns
    -------
    Importance
        ``.frame``: the increase of the log-loss for each predictor, and its standard error over
        rows; ``.plot()``. Nothing is permuted or imputed: the model predicts without the predictor.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> fit.importance().frame.round(3)
           importance     se
    Sex         0.095  0.008
    Class       0.038  0.006
    Age         0.005  0.002
    """
    if newdata is None:
        refuse_weights(weights)
        rows = self._rows(takes_newdata=True)
        rows = rows.rows(rows.response >= 0)  # those whose group is known
        workers = n_workers(n_jobs)
        rng = generator(seed)
        # at most a fold for each observation; `integer` raises an error for other numbers of folds
        folds = shuffled_folds(rows, integer("nfold", nfold, 2, max(2, int(rows.total))), rng)
        # losses (1 + m, N) of the N validated rows, with all m predictors and without each; groups
        # and weights (N,); each fold has a random generator for its fit
        losses, y, row_weights = validated_losses(
            rows, folds, self._refit, rng.spawn(len(folds)), workers
        )
        subject = f"validated rows of {len(folds)} folds"
        # `remedy`: the advice that is kept with the log-loss of the fit; `_advice` if that log-loss
        # is not known
        return summarise_importance(
            self.labels, losses, y, row_weights, subject, remedy(self.log_loss, self._advice)
        )
    frame = to_frame(newdata, "newdata")
    row_weights, weights_column = self.design.weigh(frame, weights)
    rows = judged_rows(self.design, frame, row_weights)
    losses = losses_without(self, rows)  # (1 + m, n)
    return summarise_importance(
        self.labels,
        losses,
        rows.response,
        rows.weights,
        name_new_rows(weights_column),
        remedy(self.log_loss, self._advice),
    )


def fitted(self: ClassifierResults) -> pd.DataFrame:
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


def residuals(self: ClassifierResults) -> pd.Series:
    """Return, as R does, 1 where the predicted group is the observed one, else 0; missing without a
    group.

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
