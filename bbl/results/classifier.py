"""ClassifierResults: what every fitted classifier has besides: class scores, predictions and their evaluation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, generator, integer, share, verb
from bbl.design.decisions import check_costs, check_priors
from bbl.design.frames import to_frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.weights import own_weights
from bbl.errors import DataError, OptionError
from bbl.importance import losses_without, validated_losses
from bbl.parallel import n_workers, progress_bar
from bbl.results.batches import new_frames, prediction_frame, write_frames
from bbl.results.comparison import compared_fits
from bbl.results.evaluation import Evaluation, evaluated, new_rows
from bbl.results.explanation import Attribution, Explanation, Importance, explained, importance_of
from bbl.results.losses import LossResults
from bbl.rows.folds import shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.scores import with_priors
from bbl.stats.ties import first_largest

__all__ = ["ClassifierResults"]

TYPES = ("link", "prob", "class")


@dataclass(frozen=True, repr=False)
class ClassifierResults(LossResults):
    """A fitted classifier: a model with a response. A family of models adds `class_scores` and `class_shares` too.

    Attributes
    ----------
    priors : ndarray, shape (K,), or None
        Class shares that predictions take in place of those of the training rows.
    stored_loss : LossRecord or None
        As in `LossResults`.
    """

    priors: np.ndarray | None = field(default=None, kw_only=True, repr=False)

    def with_priors(self, priors: Any):
        """Return the model with these class shares for its predictions; None for those of its training rows.

        Parameters
        ----------
        priors : mapping or Series by group, array_like of shape (K,), ``"equal"`` or None
            As in `predict`.

        Returns
        -------
        ClassifierResults
            Of the same class. Nothing is fitted anew: the parameters of the groups do not depend on their shares.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.with_priors({"No": 0.9, "Yes": 0.1}).predict(titanic.head(1), type="prob").round(3)
              No    Yes yhat
        0  0.741  0.259   No
        """
        found = copy.copy(self)
        shares = None if priors is None else check_priors(priors, self.design.response)
        object.__setattr__(found, "priors", shares)  # on a copy that nobody has seen yet
        return found

    @property
    def shares_in_use(self) -> np.ndarray:
        """Shares (K,) of the groups in the population that is predicted: the model's priors, or the training shares.

        A group without training rows has no parameters, and so a share of 0.
        """
        if self.priors is None:
            return self.class_shares
        shares = np.where(self.class_shares > 0.0, self.priors, 0.0)
        return shares / shares.sum()

    def _shifted(self, scores: np.ndarray, priors: Any = None) -> np.ndarray:
        """Class scores with the priors that are given, or those of the model, in place of the training rows' shares."""
        own = self.priors if priors is None else check_priors(priors, self.design.response)
        return scores if own is None else with_priors(scores, self.class_shares, own)

    def _new_scores(self, newdata: Any, unseen: str, priors: Any = None) -> np.ndarray:
        """Class scores (n, K) of new rows; nan where the row is dropped."""
        codes, missing = self.design.encode(newdata, unseen)
        return self._kept_scores(codes, missing, self.design.dropped(newdata), priors)

    def _kept_scores(
        self, codes: np.ndarray, missing: np.ndarray | None, dropped: np.ndarray | None, priors: Any
    ) -> np.ndarray:
        """Class scores (n, K) of encoded rows; nan where `dropped`: such rows never reach the model."""
        if dropped is None:
            return self._shifted(self.class_scores(codes, missing), priors)
        kept = ~dropped
        scores = np.full((len(codes), len(self.labels.groups)), np.nan)
        scores[kept] = self._shifted(self.class_scores(codes[kept], None if missing is None else missing[kept]), priors)
        return scores

    def _own_scores(self, priors: Any = None) -> np.ndarray:
        """Class scores (n, K) of the training rows."""
        return self._shifted(self.class_scores(self._rows().codes, self._rows().missing), priors)

    @verb
    def predict(
        self, newdata=None, type: str = "link", unseen: str = "raise", *, priors: Any = None, costs: Any = None
    ) -> pd.DataFrame | pd.Series:
        """Predict the response group of each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns; others are ignored. None for the training rows. Of data that are read in
            batches it returns what `predict_batches` does: an iterator of such frames.
        type : {"link", "prob", "class"}, default "link"
            ``F_y(x)`` of eq. (29), the probabilities of eq. (28), or the most likely group alone.
        unseen : {"raise", "ignore"}, default "raise"
            Whether a level that the model does not know is an error, or its predictor is summed out in that row.
        priors : mapping or Series by group, array_like of shape (K,), or ``"equal"``, optional
            Class shares in place of those of the training rows (or of the model's own `priors`): where groups are
            commoner or rarer than in the training rows. Probabilities follow by Bayes' rule. An array goes by the order
            of the groups, which has to be declared, or that of numbers or booleans; text needs names. So for `costs`.
        costs : DataFrame, dict of dicts, or array_like of shape (K, K), optional
            What it costs to predict a group (column) where another (row) is true; ``yhat`` is then the group of least
            expected cost, not the most likely one. In ``{true: {predicted: cost}}``, what is left out costs nothing.

        Returns
        -------
        DataFrame or Series
            On the index of `newdata`: one column per group, then ``yhat`` (``yhat_`` beside a group of that name); for
            ``type="class"`` the groups alone. A missing value is treated as in the fit (`missing` of `bbl.bbl`): it is
            an error, is a level like others, is summed out, or (where the fit dropped such rows) its row is missing
            here.

        Raises
        ------
        DataError, LevelError
            If columns are missing, or values are missing in spite of the policy, or unknown; they are named.
        """
        choice("type", type, TYPES)
        choice("unseen", unseen, ("raise", "ignore"))
        groups = self.labels.groups
        if lazy_source(newdata, "newdata") is not None:
            return self.predict_batches(newdata, type, unseen, priors=priors, costs=costs)
        charged = None if costs is None else check_costs(costs, self.design.response)
        if newdata is None:
            return prediction_frame(
                self._own_scores(priors), groups, type, self._index(), self.labels.response, charged
            )
        rows = to_frame(newdata, "newdata")
        scores, index = self._new_scores(rows, unseen, priors), self.design.index(rows)
        return prediction_frame(scores, groups, type, index, self.labels.response, charged)

    @verb
    def predict_batches(
        self,
        newdata: Any,
        type: str = "prob",
        unseen: str = "raise",
        *,
        to: Any = None,
        priors: Any = None,
        costs: Any = None,
        verbose: int = 1,
    ) -> Any:
        """Predict rows that are too many for memory, batch by batch.

        Parameters
        ----------
        newdata : Parquet path, list, glob or folder, Arrow Dataset or stream, DuckDB relation, polars LazyFrame, \
Dask DataFrame, callable, or a table in memory
            Rows with the predictors' columns; others are not read.
        type : {"prob", "link", "class"}, default "prob"
        unseen, priors, costs
            As in `predict`.
        to : path, optional
            A Parquet file for the predictions, in the order of the rows. It is there when all are in it.
        verbose : int, default 1
            0 for no progress bar.

        Returns
        -------
        iterator of DataFrame (or Series, for ``type="class"``), or with `to` the number of rows that were written

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
                "newdata has to be given; predict() without it is of the training rows.", argument="newdata"
            )
        source, charged = (
            lazy_source(newdata, "newdata"),
            None if costs is None else check_costs(costs, self.design.response),
        )

        def frames() -> Iterator[Any]:
            with progress_bar(None, "predicting", verbose) as step:
                for rows in new_frames(self.design, newdata, source):
                    scores = self._new_scores(rows, unseen, priors)
                    yield prediction_frame(scores, self.labels.groups, type, rows.index, self.labels.response, charged)
                    step()

        if to is None:
            return frames()
        return write_frames((own.to_frame() if isinstance(own, pd.Series) else own for own in frames()), to)

    @verb
    def evaluate(
        self,
        newdata=None,
        weights: Any = None,
        *,
        level: float = 0.95,
        unseen: str = "raise",
        priors: Any = None,
        costs: Any = None,
    ) -> Evaluation:
        """Compare predictions with what was observed.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors and the response. None for the training rows, for which any model looks better
            than it is.
        weights : column name or array_like of shape (n,), optional
            Frequencies of the new rows, or other weights.
        level : float, default 0.95
            Coverage of the intervals.
        unseen, priors, costs
            As in `predict`.

        Returns
        -------
        Evaluation
            ``.scores`` (accuracy, balanced accuracy, log-loss, Brier score, AUC, each with its interval),
            ``.confusion``, ``.report`` (precision, recall, F1 of each group), ``.plot()``; prints, and has HTML and
            LaTeX forms.

        Raises
        ------
        DataError, LevelError
            If a column is missing, the response is unknown in some row, or is at a level that the model does not know.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.evaluate(titanic, weights="Freq").confusion  # doctest: +NORMALIZE_WHITESPACE
        predicted    No  Yes
        observed
        No         1470   20
        Yes         452  259
        """
        share("level", level)
        charged = None if costs is None else check_costs(costs, self.design.response)
        if newdata is None:
            own_weights(weights)
            rows = self._rows()
            scores, y, counts, what = self._own_scores(priors), rows.response, rows.weights, "training rows"
        else:
            scores = self._new_scores(newdata, unseen, priors)
            y, counts = new_rows(self.design, newdata, weights)
            what = "new rows"
        return evaluated(self.labels, scores, y, counts, what, level, charged, self._remedy)

    def _attribution(self) -> Attribution:
        """What the class scores are sums of."""
        raise OptionError(f"{self.refusals['explain']}, so it explains none.")

    def _refit(self, train: Sample, rng: np.random.Generator) -> Any:
        """Fit other rows as these were; return what has class scores."""
        raise OptionError(
            f"{type(self).__name__} is not refitted for a cross-validation of its predictors; give newdata=.",
            argument="newdata",
        )

    @verb
    def explain(self, newdata=None, of: Any = None, unseen: str = "raise", *, priors: Any = None) -> Explanation:
        """Return why each row is predicted as it is: what each term adds to the log-odds of two groups.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns. None for the training rows.
        of : (group, group), optional
            Log-odds of the first against the second. By default of the second of two groups against the first; of more,
            of the most likely group of each row against the next.
        unseen, priors
            As in `predict`.

        Returns
        -------
        Explanation
            ``.frame``, ``.row(k)``, ``.plot(k)``. The terms of a Boltzmann machine are in the zero-sum gauge, which
            does not depend on reference levels: a field is the mean effect of a level, a coupling what a pair of
            levels adds to it. Those of a network are the features given their parents. Baseline (priors and ln Z),
            terms and what is summed out of missing values add up to the difference of the class scores. A row that the
            policy drops has no numbers. A network without prior counts may have infinite ones, which do not add up:
            what a group never shows is impossible in it.

        Raises
        ------
        OptionError
            If the model is an average of networks, whose scores are no sums; or a group is unknown.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.explain(titanic.head(1)).row().head(3).round(2)
        Class=1st              1.23
        Sex=Male              -1.19
        Class=1st, Sex=Male   -0.51
        Name: contribution, dtype: float64
        """
        choice("unseen", unseen, ("raise", "ignore"))
        found = self._attribution()
        own = self.priors if priors is None else check_priors(priors, self.design.response)
        if own is not None:
            constant = with_priors(found.constant[None], self.class_shares, own)[0]
            found = replace(found, constant=constant)
        if newdata is None:
            rows = self._rows()
            codes, missing, dropped, index = rows.codes, rows.missing, None, self._index()
        else:
            (codes, missing), index = self.design.encode(newdata, unseen), self.design.index(newdata)
            dropped = self.design.dropped(newdata)
        scores = self._kept_scores(codes, missing, dropped, priors)
        return explained(self.labels, found, codes, missing, scores, index, of, self._verdict)

    @verb
    def importance(
        self,
        newdata=None,
        weights: Any = None,
        *,
        nfold: int = 5,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
    ) -> Importance:
        """Return how much worse predictions are where each predictor is unknown, and summed out exactly.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with predictors and response. None for a cross-validation on the training rows: settings, and the
            structure of a network, stay as they are.
        weights : column name or array_like of shape (n,), optional
            Of the new rows.
        nfold : int, default 5
            Shuffled folds of the cross-validation.
        seed : int, numpy.random.Generator or None, default 0
            For the folds.
        n_jobs : int, optional
            Threads; results do not depend on it.

        Returns
        -------
        Importance
            ``.frame``: the increase of the log-loss for each predictor, and its standard error over rows; ``.plot()``.
            Nothing is permuted or imputed: the model tells itself what it predicts without a predictor.
        """
        if newdata is None:
            own_weights(weights)
            rows = self._rows()
            rows = rows.rows(rows.response >= 0)
            workers, rng = n_workers(n_jobs), generator(seed)
            folds = shuffled_folds(rows, integer("nfold", nfold, 2, max(2, int(rows.total))), rng)
            losses, y, counts = validated_losses(rows, folds, self._refit, rng.spawn(len(folds)), workers)
            what = f"validated rows of {len(folds)} folds"
            return importance_of(self.labels, losses, y, counts, what, self._remedy)
        y, counts = new_rows(self.design, newdata, weights)
        codes, missing = self.design.encode(newdata)
        dropped = self.design.dropped(newdata)
        kept = (y >= 0) & (counts > 0) & (True if dropped is None else ~dropped)
        rows = Sample(codes, counts, y, missing).rows(kept)
        if not rows.n:
            raise DataError("newdata has no row with a prediction and a group; give rows that have both.")
        losses = losses_without(self, rows)
        return importance_of(self.labels, losses, rows.response, rows.weights, "new rows", self._remedy)

    def compare(self, *others: Any) -> pd.DataFrame:
        """Return this fit beside others, each tested against the one before it; see `bbl.anova`."""
        return compared_fits((self, *others))

    @verb
    def score(self, newdata=None, weights: Any = None, *, priors: Any = None, costs: Any = None) -> float:
        """Return the accuracy: the weighted share of rows whose group is predicted; arguments as in `evaluate`."""
        return self.evaluate(newdata, weights, priors=priors, costs=costs).accuracy

    def fitted(self) -> pd.DataFrame:
        """Return the probability of each group for the training rows."""
        return pd.DataFrame(self.predict(type="prob")).iloc[:, :-1]

    def residuals(self) -> pd.Series:
        """Return, as R does, 1 where the predicted group is the observed one and 0 elsewhere."""
        rows = self._rows()
        hit = first_largest(self._own_scores()) == rows.response
        return pd.Series(hit.astype(int), index=self._index(), name="residuals")

    def _priors_facts(self) -> dict[str, str]:
        """What a summary says of the class shares, if they were given."""
        if self.priors is None:
            return {}
        return {"Priors": ", ".join(f"{g}: {p:.4g}" for g, p in zip(self.labels.groups, self.priors, strict=True))}
