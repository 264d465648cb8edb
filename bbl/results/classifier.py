"""ClassifierResults, the base class of fitted classifiers: predictions, evaluation and explanation.

Below, n, m and K are the numbers of rows, predictors and groups.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

# `@check_keywords`: an unknown keyword raises an error that suggests the closest one
from bbl.checks import check_keywords, choice, generator, integer, share
from bbl.choices import Unseen
from bbl.design.decisions import Costs, Priors, check_costs
from bbl.design.frames import to_frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.weights import name_new_rows, refuse_weights
from bbl.errors import BBLError, OptionError
from bbl.importance import losses_without, validated_losses
from bbl.parallel import n_workers
from bbl.report.page import Part
from bbl.results.batches import find_weights_column, new_blocks
from bbl.results.classifier_facts import remedy, scored_rows, verdict
from bbl.results.comparison import compare_fits
from bbl.results.effects import EffectsMixin
from bbl.results.evaluation import (
    Evaluation,
    evaluate_blocks,
    evaluate_rows,
    evaluation_rows,
)
from bbl.results.explanation import (
    Attribution,
    Explanation,
    Importance,
    explain_rows,
    summarise_importance,
)
from bbl.results.model import ModelResults
from bbl.results.overview import overview_part
from bbl.results.predictions import PredictionsMixin
from bbl.results.report_page import evaluation_part
from bbl.rows.folds import shuffled_folds

__all__ = ["ClassifierResults"]


@dataclass(frozen=True, repr=False)
class ClassifierResults(PredictionsMixin, EffectsMixin):
    """A fitted classifier: a model with a response. Each model family implements the abstract
    methods.

    Attributes
    ----------
    priors : ndarray, shape (K,), or None
        Class proportions for predictions; None for the proportions in the training rows.
    """

    @abstractmethod
    def _attribution(self) -> Attribution:
        """Return the terms of the class scores.

        Raises an OptionError if class scores are not sums of terms.
        """

    @check_keywords
    def evaluate(
        self,
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
        *,
        level: float = 0.95,
        unseen: Unseen = "raise",
        priors: Priors = None,
        costs: Costs = None,
        verbose: int = 1,
    ) -> Evaluation:
        """Compare predictions with observed groups.

        Parameters
        ----------
        newdata : table, or data read in batches, optional
            Rows with predictors and response: a DataFrame (pandas, polars), pyarrow Table or dict
            of lists, or files and other data as in `predict_batches`, which are read in one pass.
            Of more than a million rows, only sums and bins of scores are kept in memory.
            If None, the training rows are used; they overestimate the performance of any model.
        weights : column name or array_like of shape (n,), optional
            Frequencies or other weights of the new rows; must be a column name for data read in
            batches. By default, the column that contained the training weights, such as ``"Freq"``
            after ``weights="Freq"``, if `newdata` has it; otherwise all rows have equal weight.
        level : float, default 0.95
            Coverage of the intervals.
        unseen, priors, costs
            As in `predict`.
        verbose : int, default 1
            0 hides the progress bar, which is shown for data read in batches.

        Returns
        -------
        Evaluation
            ``.scores`` (accuracy, balanced accuracy, log-loss, Brier score, AUC, with intervals),
            ``.confusion``, ``.report`` (precision, recall, F1 of each group), ``.plot()``; can be
            displayed as text, HTML or LaTeX.

        Raises
        ------
        DataError, LevelError
            If a column is missing, or the response is unknown in some row or has a level that is
            not in the model.

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
        training = self._rereads if newdata is None else None
        source = lazy_source(newdata, "newdata") if training is None else training.source
        advice = remedy(self.log_loss, self._advice)
        # only machines have `survey`
        is_sampled = getattr(self, "survey", None) is not None
        if source is not None:
            if training is not None:
                refuse_weights(weights)
            column = find_weights_column(self.design, source, weights)
            blocks = new_blocks(
                self.design,
                source,
                column,
                "evaluating",
                unseen=unseen,
                has_response=True,
                training=training,
                verbose=verbose,
            )
            is_default = weights is None and training is None
            subject = "training rows" if training else name_new_rows(column if is_default else None)
            return evaluate_blocks(
                self.labels,
                blocks,
                self._encoded_scores,
                priors,
                subject,
                level,
                cost_matrix,
                advice,
                is_sampled,
            )
        if newdata is None:
            refuse_weights(weights)
            rows = self._all_rows(takes_newdata=True)
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
        return evaluate_rows(
            self.labels,
            scores,
            y,
            row_weights,
            subject,
            level,
            cost_matrix,
            advice,
            is_sampled,
        )

    @check_keywords
    def score(
        self,
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
        *,
        priors: Priors = None,
        costs: Costs = None,
    ) -> float:
        """Return the accuracy, i.e. the weighted proportion of correctly classified rows.

        See `evaluate` for the arguments.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> round(fit.score(titanic, weights="Freq"), 4)
        0.7856
        """
        return self.evaluate(newdata, weights, priors=priors, costs=costs).accuracy

    @check_keywords
    def explain(
        self,
        newdata: object = None,
        of: tuple[Hashable, Hashable] | None = None,
        unseen: Unseen = "raise",
        *,
        priors: Priors = None,
    ) -> Explanation:
        """Explain each row's prediction by the contributions of terms to the log-odds of two
        groups.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns. If None, the training rows are used.
        of : (group, group), optional
            Log-odds of the first group against the second. With two groups, the default is the
            second against the first; with three or more groups, it is the most probable group of
            each row against the second most probable.
        unseen, priors
            As in `predict`.

        Returns
        -------
        Explanation
            ``.frame``, ``.row(k)``, ``.plot(k)``. The terms of a Boltzmann machine are in the
            zero-sum gauge, which does not depend on reference levels. In this gauge, a field is the
            mean effect of a level, and a coupling is the additional effect of a pair of levels. The
            terms of a network are the features given their parents. The baseline (priors and ln Z),
            the terms and the contribution of missing values add up to the difference in class
            scores. For rows that are dropped because of missing values, all columns are missing. A
            network without prior counts may have infinite contributions, which do not add up,
            because a level that never occurs in a group is impossible in that group.

        Raises
        ------
        OptionError
            If a group is unknown, or the model is an average, whose scores are not sums of terms.

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
        if attribution.cumulative and priors is not None:
            raise OptionError(
                "With priors, the probabilities no longer follow a model with cumulative logits, "
                "so log-odds are not sums over terms.",
                argument="priors",
                hint="Omit the priors argument.",
            )
        attribution = replace(
            attribution, constant=self._prior_shifted(attribution.constant[None], priors)[0]
        )
        codes, missing, dropped, row_labels = self._encode_rows(newdata, unseen)
        scores = self._encoded_scores(codes, missing, dropped, priors)
        return explain_rows(
            self.labels, attribution, codes, missing, scores, row_labels, of, verdict(self.log_loss)
        )

    @check_keywords
    def importance(
        self,
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
        *,
        nfold: int = 5,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
    ) -> Importance:
        """Return the increase in log-loss when each predictor is treated as unknown.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with predictors and response. If None, the training rows are cross-validated with
            the settings and the network structure of this fit.
        weights : column name or array_like of shape (n,), optional
            Weights of the new rows. By default, the column that contained the training weights,
            such as ``"Freq"`` after ``weights="Freq"``, if `newdata` has it; otherwise all rows
            have equal weight.
        nfold : int, default 5
            Number of shuffled folds of the cross-validation.
        seed : int, numpy.random.Generator or None, default 0
            Seed for shuffling the folds.
        n_jobs : int, optional
            Number of threads; results do not depend on it.

        Returns
        -------
        Importance
            ``.frame``: the increase in log-loss for each predictor, and its standard error over
            rows; ``.plot()``. The probabilities are averaged exactly over the predictor; its values
            are not permuted or imputed.

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
            rows = self._all_rows(takes_newdata=True)
            rows = rows.rows(rows.response >= 0)  # rows with a known group
            workers = n_workers(n_jobs)
            rng = generator(seed)
            # at most one fold per observation; `integer` raises an error for other numbers of folds
            folds = shuffled_folds(rows, integer("nfold", nfold, 2, max(2, int(rows.total))), rng)
            # losses (1 + m, N) of the N held-out rows, with all m predictors and without each;
            # groups and weights (N,); each fold has its own random generator
            losses, y, row_weights = validated_losses(
                rows, folds, self._refit, rng.spawn(len(folds)), workers
            )
            subject = f"held-out rows of {len(folds)} folds"
            # `remedy`: the advice stored with the log-loss of the fit; `_advice` if that log-loss
            # is unknown
            return summarise_importance(
                self.labels, losses, y, row_weights, subject, remedy(self.log_loss, self._advice)
            )
        frame = to_frame(newdata, "newdata")
        row_weights, weights_column = self.design.weigh(frame, weights)
        rows = evaluation_rows(self.design, frame, row_weights)
        losses = losses_without(self._class_scores, rows)  # (1 + m, n)
        return summarise_importance(
            self.labels,
            losses,
            rows.response,
            rows.weights,
            name_new_rows(weights_column),
            remedy(self.log_loss, self._advice),
        )

    def compare(self, *others: ModelResults) -> pd.DataFrame:
        """Return a table of this fit and `others`, with a test of each against the previous one.

        See `bbl.anova`.

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

    def _evaluation_parts(self, newdata: object, weights: Hashable | ArrayLike) -> list[Part]:
        """Return the sections of the report on predictions and effects.

        If the evaluation is missing, the first section states the reason.
        """
        # rows that are read in batches have no overview, which needs all of them
        is_streamed = lazy_source(newdata, "newdata") is not None or (
            newdata is None and self._rereads is not None
        )
        try:
            evaluation = self.evaluate(newdata, weights)
            if is_streamed:
                return [evaluation_part(evaluation), self._effects_part(newdata, weights)]
            design = self.design
            is_new = newdata is not None
            if is_new:
                frame = to_frame(newdata, "newdata")
                rows = evaluation_rows(design, frame, design.weigh(frame, weights)[0])
            else:
                rows = scored_rows(self._all_rows(takes_newdata=True), design)[0]
        except BBLError as error:
            return [
                Part("Evaluation", [f"Not available: {error}"]),
                self._effects_part(newdata, weights),
            ]
        overview = overview_part(
            evaluation, self._class_scores, self._counts, self.class_shares, rows, is_new
        )
        return [overview, evaluation_part(evaluation), self._effects_part(newdata, weights)]
