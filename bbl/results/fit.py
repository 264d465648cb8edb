"""BBLResults: fitted Boltzmann machines of response groups, a classifier by Bayes' rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bbl.checks import real, verb
from bbl.report.summary import Summary, fit_summary
from bbl.results.classifier import ClassifierResults
from bbl.results.density import DensityResults
from bbl.stats.likelihood_ratio import likelihood_ratio

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
        return facts | self._priors_facts() | {"Converged": converged}

    def _plot_evaluation(self, kind: str, newdata: Any, weights: Any, groups: Any, axes: Any):
        return self.evaluate(newdata, weights).plot(kind, groups, axes)
