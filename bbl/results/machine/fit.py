"""BBLResults: fitted Boltzmann machines of response groups, a classifier by Bayes' rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate, estimate
from bbl.boltzmann.prediction_checks import remedy
from bbl.checks import real, verb
from bbl.model.attribution import zero_sum_factors
from bbl.report.machine.summary import Summary, fit_summary
from bbl.report.text import label_text
from bbl.results.classifier import ClassifierResults
from bbl.results.explanation import Attribution
from bbl.results.machine.density import DensityResults
from bbl.rows.sample import Sample
from bbl.stats.likelihood_ratio import likelihood_ratio
from bbl.stats.scores import class_scores

__all__ = ["BBLResults"]


@dataclass(frozen=True, repr=False)
class BBLResults(DensityResults, ClassifierResults):
    """A fitted Boltzmann Bayes learner; made by `bbl.bbl`.

    Attributes
    ----------
    call : str
        The call that made it.
    design : Design
        Formula, factors and their levels: encodes new data like the training data.
    training : Sample or None
        The encoded training rows; None in a model that was loaded from a file without them.
    index : pandas.Index or None
        Labels of the training rows (those of positive weight).
    engine : Engine
        The inference method and its options.
    estimate : Estimate
        Parameters, ln Z and convergence of every group.
    tuning : Tuning or None
        What cross-validation inside the fit found, if there was any.
    """

    kind = "bbl"

    @property
    def _advice(self) -> str:
        return remedy("none" if self.estimate.calibration is None else "temperature", auto=False)

    @verb
    def summary(self, prior_count: float = 0.0) -> Summary:
        """Summarise the fit, and test each predictor by naive Bayes.

        Parameters
        ----------
        prior_count : float, default 0.0
            Pseudocount of the naive Bayes coefficients in the tables.

        Returns
        -------
        Summary
            Prints as text; has HTML and LaTeX forms and ``.tables``. The tests are the likelihood-ratio tests of
            eq. (27), for every predictor by itself.
        """
        c = real("prior_count", prior_count, 0.0)
        tests = likelihood_ratio(self._counts, c)
        return fit_summary(self.call, self.labels, tests, self._facts(), self._sections)

    @verb
    def predict(
        self,
        newdata: Any = None,
        type: str = "link",
        unseen: str = "raise",
        *,
        priors: Any = None,
        costs: Any = None,
        draws: str = "all",
    ) -> pd.DataFrame | pd.Series:
        """Predict the response group of each row.

        Parameters
        ----------
        newdata, type, unseen, priors, costs
            As in `ClassifierResults.predict`.
        draws : {"all", "mean"}, default "all"
            Where the method has draws from a posterior: whether the probability of a row in a group is averaged over
            them (200 draws, 50 where ln Z is annealed, evenly spaced), or that at their mean.

        Returns
        -------
        DataFrame or Series
            On the index of `newdata`: one column per group, then ``yhat`` (``yhat_`` beside a group of that name); for
            ``type="class"`` the groups alone.

        Raises
        ------
        DataError, LevelError
            If columns are missing, or values are missing in spite of the policy, or unknown; they are named.
        """
        return ClassifierResults.predict(self.plugged(draws), newdata, type, unseen, priors=priors, costs=costs)

    def _shares(self) -> np.ndarray:
        """Shares (K,) of the groups: the model's priors, if it has some."""
        return self.shares_in_use

    def _facts(self) -> dict[str, Any]:
        """Title and value of what the summary says about the fit."""
        facts, calibration = super()._facts(), self.estimate.calibration
        converged = facts.pop("Converged")
        facts["Calibration"] = (
            "none"
            if calibration is None
            else f"temperature {calibration.temperature:.4g}, offsets "
            + ", ".join(f"{g}: {b:.4g}" for g, b in zip(self.labels.groups, calibration.offset, strict=True))
        )
        return facts | self._priors_facts() | self._loss_facts() | {"Converged": converged}

    def _attribution(self) -> Attribution:
        layout, own, names = self.parameters.layout, self.estimate, [label_text(x) for x in self.labels.names]
        terms, constant = zero_sum_factors(layout.factors(self.parameters.theta))
        constant = class_scores(constant[None], own.log_z, own.class_prior)[0]
        if own.calibration is not None:
            terms = {scope: own.calibration.temperature * table for scope, table in terms.items()}
            constant = own.calibration(constant)
        titles = [":".join(names[i] for i in scope) for scope in terms]
        return Attribution(titles, terms, list(terms), constant, averaged=own.predictive is not None)

    def _refit(self, train: Sample, rng: np.random.Generator) -> Estimate:
        told: dict[str, Any] = {"log_z": self.estimate.log_z_kind, "rng": rng, "labels": self.labels}
        found = estimate(train, self.parameters.layout, len(self.labels.groups), self.engine, **told)
        return replace(found, calibration=self.estimate.calibration)

    def __repr__(self) -> str:
        return super().__repr__() + self._loss_text()

    def _plot_evaluation(self, kind: str, newdata: Any, weights: Any, groups: Any, axes: Any):
        return self.evaluate(newdata, weights).plot(kind, groups, axes)
