"""ClassifierResults: the contract of every fitted classifier: class scores, predictions,
evaluation, explanation.

n rows, m predictors, K groups. *Class scores* (n, K) are ln P(group, row) up to a constant. From
`ModelResults` come ``_rows()``, the training rows, and ``_counts``, the weighted counts (K, L_i) of
the levels of each predictor.
"""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, Unpack, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.boltzmann.prediction_checks import training_record

# `@verb`: an unknown keyword raises an error that names the closest one
from bbl.checks import choice, share, verb
from bbl.choices import PredictionType, Unseen
from bbl.crossval import Refit
from bbl.design.decisions import Costs, Decisions, Priors, check_costs, check_priors
from bbl.design.frames import to_frame
from bbl.design.weights import name_new_rows, refuse_weights
from bbl.errors import BBLError, OptionError
from bbl.report.page import Part
from bbl.results.classifier_facts import remedy, scored_rows, verdict
from bbl.results.comparison import compare_fits
from bbl.results.effects.fit import ErrorSource
from bbl.results.effects.verbs import (
    avg_comparisons,
    avg_predictions,
    comparisons,
    effects_part,
    predictions,
)
from bbl.results.evaluation import Evaluation, evaluate_rows, judged_rows
from bbl.results.explanation import Attribution, Explanation, Importance, explain_rows
from bbl.results.model import ModelResults
from bbl.results.overview import overview_part
from bbl.results.report_page import evaluation_part
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample
from bbl.stats.loss_record import LossRecord
from bbl.stats.scores import with_priors

__all__ = ["ClassifierResults"]


@dataclass(frozen=True, repr=False)
class ClassifierResults(ModelResults):
    """A fitted classifier: a model with a response. Each family of models implements the abstract
    methods.

    Attributes
    ----------
    priors : ndarray, shape (K,), or None
        Class shares for predictions; they replace the shares of the training rows.
    stored_loss : LossRecord or None
        Log-loss from a cross-validation inside the fit or from a model file; else `log_loss` is of
        the training rows.
    """

    priors: np.ndarray | None = field(default=None, kw_only=True, repr=False)
    stored_loss: LossRecord | None = field(default=None, kw_only=True, repr=False)

    _can_refit: ClassVar[bool] = False  # whether `_refit` fits other rows

    avg_comparisons = avg_comparisons
    avg_predictions = avg_predictions
    comparisons = comparisons
    predictions = predictions

    @abstractmethod
    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of rows with level `codes` (n, m), summing out `missing`
        (n, m) predictors.
        """

    @overload
    @abstractmethod
    def predict(
        self,
        newdata: object,
        type: Literal["class"],
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.Series: ...
    @overload
    @abstractmethod
    def predict(
        self,
        newdata: object = ...,
        *,
        type: Literal["class"],
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.Series: ...
    @overload
    @abstractmethod
    def predict(
        self,
        newdata: object = ...,
        type: Literal["link", "prob"] = ...,
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.DataFrame: ...
    @abstractmethod
    def predict(
        self,
        newdata: object = None,
        type: PredictionType = "link",
        unseen: Unseen = "raise",
        *,
        priors: Priors = None,
        costs: Costs = None,
    ) -> pd.DataFrame | pd.Series:
        """Predict the response group of each row; see `bbl.results.predictions.predict_rows`."""

    @abstractmethod
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
        """Predict rows batch by batch; see `bbl.results.predictions.predict_batches`."""

    @abstractmethod
    def score(
        self,
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
        *,
        priors: Priors = None,
        costs: Costs = None,
    ) -> float:
        """Return the accuracy."""

    @abstractmethod
    def importance(
        self,
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
        *,
        nfold: int = 5,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
    ) -> Importance:
        """Return the increase of the log-loss without each predictor; see
        `bbl.results.predictions.importance`.
        """

    @abstractmethod
    def fitted(self) -> pd.DataFrame:
        """Return the probability of each group for the training rows."""

    @abstractmethod
    def residuals(self) -> pd.Series:
        """Return 1 where the predicted group is the observed one, else 0."""

    @property
    @abstractmethod
    def _advice(self) -> str:
        """The remedy for a log-loss above that of the shares of the groups, as a sentence."""

    def _error_source(self, rng: np.random.Generator) -> ErrorSource:
        """Return the source of the standard errors of effects; an OptionError or DataError if there
        are none.
        """
        # a model that cannot be bootstrapped gives the reason under "effects_bootstrap"
        advice = "se=False" if "effects_bootstrap" in self.refusals else "se='bootstrap'"
        raise OptionError(f"{self.refusals['effects']}.", argument="se", hint=f"Give {advice}.")

    @property
    @abstractmethod
    def _bootstrap_members(self) -> Sequence[tuple[ClassifierResults, float]]:
        """The fits that a bootstrap refits, with their weights in predictions; empty if there is
        none.
        """

    @abstractmethod
    def _attribution(self) -> Attribution:
        """Return the terms whose sums are the class scores; an OptionError if class scores are no
        sums of terms.
        """

    def _refit(self, train: Sample, rng: np.random.Generator, warm: bool = False) -> Refit:
        """Return a fit to other rows with the same settings; an OptionError unless `_can_refit`.

        Iterations begin at this fit's solution if `warm`: for its own rows with other weights, not
        for other rows.
        """
        raise OptionError(
            f"{type(self).__name__} is not refitted for a cross-validation of its predictions.",
            argument="newdata",
            hint="Give newdata=.",
        )

    def _redraw(self, rows: Sample, rng: np.random.Generator) -> tuple[Refit, np.ndarray] | None:
        """Return (a draw of the model from its posterior given `rows`, class shares (K,)); None to
        refit drawn rows.
        """
        return None

    def with_priors(self, priors: Priors) -> Self:
        """Return the model with other class shares for predictions; None for the shares of the
        training rows.

        Parameters
        ----------
        priors : mapping or Series by group, array_like of shape (K,), ``"equal"`` or None
            As in `predict`.

        Returns
        -------
        ClassifierResults
            Of the same class. Nothing is refitted: the parameters of a group do not depend on the
            shares.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.with_priors({"No": 0.9, "Yes": 0.1}).predict(titanic.head(1), type="prob").round(3)
              No    Yes yhat
        0  0.741  0.259   No
        """
        model = copy.copy(self)
        shares = None if priors is None else check_priors(priors, self.design.response)
        # the class is frozen, but nobody else has the copy yet
        object.__setattr__(model, "priors", shares)
        return model

    @property
    def shares_in_use(self) -> np.ndarray:
        """Shares (K,) of the groups that predictions assume: the model's priors, or the shares of
        the training rows.

        The share of a group without training rows is 0, because it has no parameters.
        """
        if self.priors is None:
            return self.class_shares
        shares = np.where(self.class_shares > 0.0, self.priors, 0.0)
        return shares / shares.sum()

    def _prior_shifted(self, scores: np.ndarray, priors: Priors) -> np.ndarray:
        """Return class scores (n, K) with other class shares: `priors`, or by default the priors of
        the model.
        """
        shares = self.priors if priors is None else check_priors(priors, self.design.response)
        # of `bbl.stats.scores`
        return scores if shares is None else with_priors(scores, self.class_shares, shares)

    def _new_scores(self, newdata: object, unseen: str, priors: Priors = None) -> np.ndarray:
        """Return the class scores (n, K) of new rows; nan for rows that the design drops for
        missing values.
        """
        codes, missing = self.design.encode(newdata, unseen)  # (n, m); missing: None if no value is
        return self._encoded_scores(codes, missing, self.design.dropped(newdata), priors)

    def _encoded_scores(
        self,
        codes: np.ndarray,
        missing: np.ndarray | None,
        dropped: np.ndarray | None,
        priors: Priors,
    ) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows under `priors` or the model's; nan where
        `dropped` (n,).
        """
        if dropped is None:
            return self._prior_shifted(self.class_scores(codes, missing), priors)
        scores = np.full((len(codes), len(self.labels.groups)), np.nan)
        valid = ~dropped
        scores[valid] = self._encoded_scores(
            codes[valid], None if missing is None else missing[valid], None, priors
        )
        return scores

    @verb
    def evaluate(
        self,
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
        *,
        level: float = 0.95,
        unseen: Unseen = "raise",
        priors: Priors = None,
        costs: Costs = None,
    ) -> Evaluation:
        """Compare predictions with observed groups.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with predictors and response. None for the training rows, on which scores of any
            model are too good.
        weights : column name or array_like of shape (n,), optional
            Frequencies of the new rows, or other weights. By default those in the column that has
            the weights of the training data (``weights="Freq"`` of the fit), if `newdata` has it;
            else all rows count alike.
        level : float, default 0.95
            Coverage of the intervals.
        unseen, priors, costs
            As in `predict`.

        Returns
        -------
        Evaluation
            ``.scores`` (accuracy, balanced accuracy, log-loss, Brier score, AUC, with intervals),
            ``.confusion``, ``.report`` (precision, recall, F1 of each group), ``.plot()``; prints,
            and has HTML and LaTeX forms.

        Raises
        ------
        DataError, LevelError
            If a column is missing, the response is unknown in some row, or is at a level that the
            model does not know.

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
        cost_matrix = None if costs is None else check_costs(costs, self.design.response)
        if newdata is None:
            refuse_weights(weights)
            rows = self._rows(takes_newdata=True)
            scores = self._encoded_scores(rows.codes, rows.missing, dropped=None, priors=priors)
            y = rows.response
            row_weights = rows.weights
            subject = "training rows"
        else:
            newdata = to_frame(newdata, "newdata")
            scores = self._new_scores(newdata, unseen, priors)
            y = self.design.encode_response(newdata)
            row_weights, weights_column = self.design.weigh(newdata, weights)
            subject = name_new_rows(weights_column)
        advice = remedy(self.log_loss, self._advice)
        return evaluate_rows(
            self.labels,
            scores,
            y,
            row_weights,
            subject,
            level,
            cost_matrix,
            advice,
            # only machines have `survey`
            sampled=getattr(self, "survey", None) is not None,
        )

    @verb
    def explain(
        self,
        newdata: object = None,
        of: tuple[Hashable, Hashable] | None = None,
        unseen: Unseen = "raise",
        *,
        priors: Priors = None,
    ) -> Explanation:
        """Explain predictions: the contribution of each term to the log-odds of two groups, for
        each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns. None for the training rows.
        of : (group, group), optional
            Log-odds of the first group against the second. By default, of two groups the second
            against the first, and of three or more the most likely group of a row against the next
            likely.
        unseen, priors
            As in `predict`.

        Returns
        -------
        Explanation
            ``.frame``, ``.row(k)``, ``.plot(k)``. The terms of a Boltzmann machine are in the
            zero-sum gauge, which does not depend on reference levels: a field is the mean effect of
            a level, a coupling the additional effect of a pair of levels. The terms of a network
            are the features given their parents. Baseline (priors and ln Z), terms and the
            summed-out missing values add up to the difference of the class scores. A row that is
            dropped for missing values has no numbers. A network without prior counts may have
            infinite contributions, which do not add up: a level that never occurs in a group is
            impossible in that group.

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
        # its `constant` (K,), scores without terms, is shifted like a row of scores
        attribution = self._attribution()
        attribution = replace(
            attribution, constant=self._prior_shifted(attribution.constant[None], priors)[0]
        )
        codes, missing, dropped, row_labels = self._encode_rows(newdata, unseen)
        scores = self._encoded_scores(codes, missing, dropped, priors)
        return explain_rows(
            self.labels, attribution, codes, missing, scores, row_labels, of, verdict(self.log_loss)
        )

    def compare(self, *others: ModelResults) -> pd.DataFrame:
        """Return a table of this fit and `others`, each tested against the previous one; see
        `bbl.anova`.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> smaller = bbl.bbl("Survived ~ Class + Sex + Age", titanic, weights="Freq")
        >>> smaller.compare(fit)[["parameters", "AIC"]].round(1).to_numpy().tolist()
        [[10.0, 8162.3], [18.0, 7767.6]]
        """
        return compare_fits((self, *others))

    @cached_property
    def log_loss(self) -> LossRecord | None:
        """Log-loss, and the log-loss of predicting the shares of the groups for every row.

        On validated rows if the fit was tuned, calibrated or averaged by cross-validation, else on
        the training rows; independent of `priors`. Of very many training rows only a sample is
        scored; then the record is None unless the log-loss is above that of the shares. None also
        for a model from an earlier version's file without rows.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> print(bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_="cv").log_loss)
        0.48 of validated rows; 0.629 of the shares of the groups
        """
        if self.stored_loss is not None or self.training is None:
            return self.stored_loss
        return self.training_loss(self.training)

    def training_loss(self, rows: Rows) -> LossRecord | None:
        """Return the log-loss of training rows; of a sample of very many, None unless above that of
        the shares.
        """
        # not complete: a sample, enough to warn
        sample, is_complete = scored_rows(rows, self.design)
        if not sample.n:
            return None
        scores = self.class_scores(sample.codes, sample.missing)
        return training_record(sample, is_complete, scores, self.class_shares, self._advice)

    def _evaluation_parts(self, newdata: object, weights: Hashable | ArrayLike) -> list[Part]:
        """Return the report's sections on predictions and effects; the first says why if there is
        no evaluation.
        """
        try:
            evaluation = self.evaluate(newdata, weights)
            design = self.design
            is_new = newdata is not None
            if is_new:
                frame = to_frame(newdata, "newdata")
                rows = judged_rows(design, frame, design.weigh(frame, weights)[0])
            else:
                rows = scored_rows(self._rows(takes_newdata=True), design)[0]
        except BBLError as error:
            return [
                Part("Evaluation", [f"There is none: {error}"]),
                effects_part(self, newdata, weights),
            ]
        overview = overview_part(evaluation, self, self._counts, self.class_shares, rows, is_new)
        return [overview, evaluation_part(evaluation), effects_part(self, newdata, weights)]
