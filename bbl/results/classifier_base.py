"""ClassifierBase: class scores, priors and log-loss of a fitted classifier, and refits to other
rows.

Below, n, m and K are the numbers of rows, predictors and groups.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from bbl.boltzmann.prediction_checks import training_record
from bbl.crossval import Refit
from bbl.design.decisions import Priors, check_priors
from bbl.errors import OptionError
from bbl.results.classifier_facts import scored_rows
from bbl.results.deprecated import Deprecated
from bbl.results.error_source import ErrorSource
from bbl.results.model import ModelResults
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample
from bbl.stats.metrics import LossRecord, with_priors

__all__ = ["ClassifierBase"]


@dataclass(frozen=True, repr=False)
class ClassifierBase(ModelResults):
    """Class scores of a fitted classifier, used for predictions, effects and evaluation.

    Attributes
    ----------
    priors : ndarray, shape (K,), or None
        Class proportions for predictions; None for the proportions in the training rows.
    """

    priors: np.ndarray | None = field(default=None, kw_only=True, repr=False)
    # log-loss from a cross-validation inside the fit or from a model file; otherwise `log_loss` is
    # computed on the training rows
    _stored_loss: LossRecord | None = field(default=None, kw_only=True, repr=False)

    _can_refit: ClassVar[bool] = False  # whether `_refit` is available

    class_scores = Deprecated("_class_scores", "predict(type='prob')")
    shares_in_use = Deprecated("_shares_in_use", "priors or class_shares")
    stored_loss = Deprecated("_stored_loss", "log_loss")
    training_loss = Deprecated("_training_loss", "log_loss")

    @abstractmethod
    def _class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of rows with level `codes` (n, m).

        Predictors marked in `missing` (n, m) are averaged over.
        """

    @property
    @abstractmethod
    def _advice(self) -> str:
        """A sentence of advice if the log-loss exceeds the baseline (class proportions)."""

    def _error_source(self, rng: np.random.Generator) -> ErrorSource:
        """Return the source of the standard errors of effects.

        Raises an OptionError or DataError if there is none.
        """
        # a model that cannot be bootstrapped has a reason under "effects_bootstrap"
        advice = "se=False" if "effects_bootstrap" in self._refusals else "se='bootstrap'"
        raise OptionError(f"{self._refusals['effects']}.", argument="se", hint=f"Use {advice}.")

    @property
    @abstractmethod
    def _bootstrap_members(self) -> Sequence[tuple[ClassifierBase, float]]:
        """The fits that a bootstrap refits, with their weights in predictions; there may be
        none.
        """

    def _refit(self, train: Sample, rng: np.random.Generator, warm: bool = False) -> Refit:
        """Refit the model to other rows with the same settings.

        Raises an OptionError if `_can_refit` is False.

        If `warm`, iterations start from the solution of this fit. Use this for the same rows with
        different weights, not for different rows.
        """
        raise OptionError(
            f"{type(self).__name__} cannot be refitted to cross-validate its predictions.",
            argument="newdata",
            hint="Pass newdata=.",
        )

    def _redraw(self, rows: Sample, rng: np.random.Generator) -> tuple[Refit, np.ndarray] | None:
        """Return a draw of the model from its posterior given `rows`, and the class proportions
        (K,).

        Returns None if the bootstrap refits the model to resampled rows instead.
        """
        return None

    def with_priors(self, priors: Priors) -> Self:
        """Return the model with other class proportions for predictions.

        With None, the proportions in the training rows are used again.

        Parameters
        ----------
        priors : mapping or Series by group, array_like of shape (K,), ``"equal"`` or None
            As in `predict`.

        Returns
        -------
        ClassifierResults
            A model of the same class. It is not refitted, because the parameters of a group do not
            depend on the class proportions.

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
        # the class is frozen, but the copy has not been shared yet
        object.__setattr__(model, "priors", shares)
        return model

    @property
    def _shares_in_use(self) -> np.ndarray:
        """Class proportions (K,) used for predictions: the priors of the model, or the proportions
        in the training rows.

        A group without training rows has no parameters, so its proportion is 0.
        """
        if self.priors is None:
            return self.class_shares
        shares = np.where(self.class_shares > 0.0, self.priors, 0.0)
        return shares / shares.sum()

    def _prior_shifted(self, scores: np.ndarray, priors: Priors) -> np.ndarray:
        """Return class scores for other class proportions, shape (n, K).

        By default, `priors` is taken from the model.
        """
        shares = self.priors if priors is None else check_priors(priors, self.design.response)
        # from `bbl.stats.metrics`
        return scores if shares is None else with_priors(scores, self.class_shares, shares)

    def _new_scores(self, newdata: object, unseen: str, priors: Priors = None) -> np.ndarray:
        """Return the class scores of new rows, shape (n, K).

        Scores are nan for rows that the design drops because of missing values.
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
        """Return the class scores (n, K) of encoded rows, given `priors` or the priors of the
        model.

        Scores are nan for rows marked in `dropped` (n,).
        """
        if dropped is None:
            return self._prior_shifted(self._class_scores(codes, missing), priors)
        scores = np.full((len(codes), len(self.labels.groups)), np.nan)
        valid = ~dropped
        scores[valid] = self._encoded_scores(
            codes[valid], None if missing is None else missing[valid], None, priors
        )
        return scores

    @cached_property
    def log_loss(self) -> LossRecord | None:
        """Log-loss of the model, and log-loss of predicting the class proportions for every row.

        It is computed on held-out rows if the fit was tuned, calibrated or averaged by
        cross-validation, and otherwise on the training rows. It does not depend on `priors`. For
        very large training data, only a sample is scored, and the value is None unless the log-loss
        exceeds the baseline. It is also None for models saved without training rows by earlier
        versions.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> print(bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_="cv").log_loss)
        0.48 on held-out rows; 0.629 for the class proportions
        """
        if self._stored_loss is not None or self.training is None:
            return self._stored_loss
        return self._training_loss(self.training)

    def _training_loss(self, rows: Rows) -> LossRecord | None:
        """Return the log-loss of the training rows or, for large data, of a sample.

        For a sample, the result is None unless the log-loss exceeds the baseline.
        """
        # not complete: a sample, which is sufficient for a warning
        sample, is_complete = scored_rows(rows, self.design)
        if not sample.n:
            return None
        scores = self._class_scores(sample.codes, sample.missing)
        return training_record(sample, is_complete, scores, self.class_shares, self._advice)
