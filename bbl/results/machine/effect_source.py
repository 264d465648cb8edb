"""Where standard errors of effects of a machine come from: its covariance, posterior draws, replicates of a survey."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bbl.boltzmann.inference.score_covariance import score_covariance
from bbl.boltzmann.relevance import CHOSEN_BY_ROWS
from bbl.errors import DataError, OptionError
from bbl.model.marginal import MarginalEnergy
from bbl.model.score_gradient import ScoreGradient
from bbl.results.effects.fit import DeltaMethod, EffectFit, ErrorSource, Scores
from bbl.stats.scores import with_priors

if TYPE_CHECKING:
    from bbl.boltzmann.fitted import Estimate
    from bbl.engines import Engine
    from bbl.model.parameters import Parameters
    from bbl.rows.sample import Sample
    from bbl.stats.survey.sample import SurveySample

__all__ = ["delta_method", "machine_error_source"]

LARGEST_LOG_ODDS = 100.0  # naive Bayes without a prior count has logarithms of numbers that stand for zero
CALIBRATED = " The calibration of class scores is taken as fixed."


class MachineFit(EffectFit, Protocol):
    """The part of a fitted machine with classes that its error source needs; see `BBLResults` for each member."""

    @property
    def engine(self) -> Engine: ...
    @property
    def estimate(self) -> Estimate: ...
    @property
    def parameters(self) -> Parameters: ...
    @property
    def survey(self) -> SurveySample | None: ...
    @property
    def _delta_method(self) -> DeltaMethod: ...
    def nobs(self) -> float: ...
    def _testable_rows(self) -> Sample: ...


def machine_error_source(self: MachineFit, rng: np.random.Generator) -> ErrorSource:
    """Return the covariance of a fit, its draws, or its replicates; an OptionError or DataError if it has none."""
    if self.training is None and not self.engine.posterior:
        raise DataError(
            "This model has no training rows, from which they come: it was saved without them, or fitted to data that "
            "were read in batches. Save it with store_data=True."
        )
    estimate, unbounded = self.estimate, _unbounded(self)
    if self.engine.posterior:
        if estimate.predictive is None:
            lacking = self.engine.refusals().get("effects", "The draws of this fit are not kept with an exact ln Z")
            raise OptionError(f"{lacking}; give se='bootstrap'.", argument="se")
        return ErrorSource(None, tuple(_draws(self, rng)), unbounded)
    if (reason := self.engine.refusals().get("effects")) is not None:
        raise OptionError(f"{reason}; give se='bootstrap'.", argument="se")
    if self.estimate.relevance is not None:
        raise OptionError(f"{CHOSEN_BY_ROWS}; give se='bootstrap', which chooses them in each refit.", argument="se")
    if self.survey is not None and self.survey.replicates is not None:
        return ErrorSource(None, (), unbounded, self.survey)
    delta = self._delta_method
    return ErrorSource(delta, (), unbounded | delta.covariance.unbounded)


def _unbounded(fit: MachineFit) -> frozenset[tuple[int, int]]:
    """Return all levels of predictors with a parameter that has no finite optimum, or did not reach it, or is huge."""
    layout, theta = fit.parameters.layout, fit.parameters.theta
    fits = () if fit.engine.posterior else fit.estimate.fits[: len(theta)]
    named = {int(i) for of_group in fits for i in np.flatnonzero(~of_group.converged)}  # which files keep
    is_huge = (np.abs(theta) > LARGEST_LOG_ODDS).any(axis=0)
    named |= {i for i, _ in layout.levels_of(is_huge)}
    return frozenset((i, code) for i in named for code in range(int(layout.n_levels[i])))


def delta_method(self: MachineFit) -> DeltaMethod:
    """Return what the delta method needs of the fit; an OptionError or DataError if it has no covariance."""
    estimate, parameters = self.estimate, self.parameters
    has_given_shares = self.priors is not None
    covariance = score_covariance(self._testable_rows(), estimate, self.engine, has_given_shares, self.survey)
    gradient = ScoreGradient(parameters.layout, parameters.theta)
    if estimate.calibration is None:
        return DeltaMethod(covariance, gradient)
    covariance = replace(covariance, note=covariance.note + CALIBRATED)
    return DeltaMethod(covariance, gradient, estimate.calibration.temperature)


def _draws(fit: MachineFit, rng: np.random.Generator) -> list[Scores]:
    """Return class scores under each draw of the parameters, with class shares drawn from a Dirichlet distribution."""
    estimate, priors = fit.estimate, fit.priors
    draws = estimate.predictive
    assert draws is not None  # noqa: S101  # the caller has checked it
    totals = estimate.class_prior * fit.nobs()
    shares = np.zeros((draws.theta.shape[1], len(totals)))
    shares[:, totals > 0] = rng.dirichlet(totals[totals > 0], len(shares))

    def scores_of(t: int) -> Scores:
        energy = MarginalEnergy(draws.layout, draws.theta[:, t])
        drawn = replace(estimate, log_z=draws.log_z[:, t], class_prior=shares[t])

        def with_hidden(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
            if draws.hidden:
                missing = np.zeros(codes.shape, dtype=bool) if missing is None else missing
                missing = np.pad(missing, ((0, 0), (0, draws.hidden)), constant_values=True)
                codes = np.pad(codes, ((0, 0), (0, draws.hidden)))
            return energy(codes, missing)

        def scores(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
            class_scores = drawn.scores_by(with_hidden, codes, missing)
            return class_scores if priors is None else with_priors(class_scores, shares[t], priors)

        return scores

    return [scores_of(t) for t in range(len(shares))]
