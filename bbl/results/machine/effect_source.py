"""Source of the standard errors of effects of a machine: its covariance, posterior draws, or
replicates of a survey.

n rows, m predictors, K groups. *Effects* are contrasts of average probabilities of the groups.
Class scores are ``ln share + energy - ln Z`` of each group; the *energy* is ln P(row | group) + ln
Z.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bbl.boltzmann.inference.score_covariance import score_covariance
from bbl.boltzmann.relevance import CHOSEN_BY_ROWS
from bbl.errors import DataError, Hint, OptionError
from bbl.model.marginal import MarginalEnergy
from bbl.model.score_gradient import ScoreGradient
from bbl.results.effects.error_source import DeltaMethod, ErrorSource, Scores
from bbl.stats.metrics import with_priors

if TYPE_CHECKING:
    from bbl.boltzmann.fitted import Estimate
    from bbl.results.machine.fit import BBLResults

__all__ = ["check_calibration", "delta_method", "machine_error_source"]

# Larger parameters have no finite optimum: naive Bayes without a prior count takes ln 1e-300 (-690)
# for ln 0.
LARGEST_LOG_ODDS = 100.0
CALIBRATED = " The calibration of class scores is taken as fixed."
TEMPERATURE = (
    "calibrate='temperature' multiplied the class scores by an estimated factor, whose uncertainty "
    "standard errors would leave out."
)


def machine_error_source(fit: BBLResults, rng: np.random.Generator) -> ErrorSource:
    """Return the source of standard errors: posterior draws if the method has them, survey
    replicates, or a covariance.

    An OptionError or a DataError, with the reason, if the fit has none. `rng` draws class shares
    for posterior draws.
    """
    if fit.training is None and not fit.engine.posterior:
        raise DataError(
            "This model has no training rows, from which the effects are computed: it was "
            "saved without them, or fitted to data that were read in batches.",
            hint=Hint("Save it with store_data=True.", command_line="Save it with --store-data."),
        )
    check_calibration(fit.estimate)
    # `unbounded`: levels (predictor, code) of parameters that grow without end as the fit improves;
    # effects that use them get a note
    estimate = fit.estimate
    unbounded = _unbounded_levels(fit)
    if fit.engine.posterior:
        if estimate.predictive is None:  # the draws with their ln Z, over which predictions average
            lacking = fit.engine.refusals().get(
                "effects", "The draws of this fit are not kept with an exact ln Z"
            )
            raise OptionError(f"{lacking}.", argument="se", hint="Give se='bootstrap'.")
        return ErrorSource(delta=None, draws=tuple(_scores_by_draw(fit, rng)), unbounded=unbounded)
    # why the engine has no such errors
    if (reason := fit.engine.refusals().get("effects")) is not None:
        raise OptionError(f"{reason}.", argument="se", hint="Give se='bootstrap'.")
    if fit.estimate.relevance is not None:  # the predictors were chosen by the same rows
        raise OptionError(
            f"{CHOSEN_BY_ROWS}.",
            argument="se",
            hint="Give se='bootstrap', which chooses them in each refit.",
        )
    if fit.survey is not None and fit.survey.replicates is not None:
        # neither a covariance nor draws: refits to the replicate weights of the survey
        return ErrorSource(delta=None, draws=(), unbounded=unbounded, survey=fit.survey)
    delta = fit._delta_method  # or the error that says why there is no covariance
    return ErrorSource(delta, draws=(), unbounded=unbounded | delta.covariance.unbounded)


def _unbounded_levels(fit: BBLResults) -> frozenset[tuple[int, int]]:
    """Return all levels (predictor, code) of predictors that have a huge parameter, or did not
    converge.

    A huge parameter has no finite optimum. It is a log odds against the first level, and either of
    the two levels may be the one without rows: so all levels are returned. `converged` (m,) says
    whether a predictor reached its optimum.
    """
    layout = fit.parameters.layout
    theta = fit.parameters.theta
    # a run for each of the K groups (that on all rows pooled may follow); a posterior has no
    # optimum to be missed
    runs = () if fit.engine.posterior else fit.estimate.fits[: len(theta)]
    predictors = {int(i) for run in runs for i in np.flatnonzero(~run.converged)}
    # (size,): parameters that are huge in some group; `levels_of` returns the levels (predictor,
    # code) of parameters
    is_huge = (np.abs(theta) > LARGEST_LOG_ODDS).any(axis=0)
    predictors |= {i for i, _ in layout.levels_of(is_huge)}
    return frozenset((i, code) for i in predictors for code in range(int(layout.n_levels[i])))


def check_calibration(estimate: Estimate) -> None:
    """Raise an OptionError if class scores were multiplied by an estimated temperature."""
    calibration = estimate.calibration
    if calibration is not None and calibration.temperature != 1.0:
        raise OptionError(
            TEMPERATURE,
            hint="Fit with calibrate='none' or 'offset', or give se=False.",
            argument="se",
        )


def delta_method(fit: BBLResults) -> DeltaMethod:
    """Return the covariance and gradient for the delta method; an OptionError or DataError if the
    fit has none.
    """
    estimate = fit.estimate
    parameters = fit.parameters
    # else the class shares are estimated too, from the rows
    has_given_shares = fit.priors is not None
    covariance = score_covariance(
        fit._testable_rows(), estimate, fit.engine, has_given_shares, fit.survey
    )
    gradient = ScoreGradient(parameters.layout, parameters.theta)
    if estimate.calibration is None:
        return DeltaMethod(covariance, gradient)
    covariance = replace(covariance, note=covariance.note + CALIBRATED)
    return DeltaMethod(covariance, gradient)


def _scores_by_draw(fit: BBLResults, rng: np.random.Generator) -> list[Scores]:
    """Return functions for the class scores, one for each of T draws of the parameters.

    Each draw has class shares (K,) of its own, from a Dirichlet distribution with the group sizes
    as parameters.
    """
    estimate = fit.estimate
    priors = fit.priors
    # draws of parameters `theta` (K, T, size) and of ln Z `log_z` (K, T)
    draws = estimate.predictive
    assert draws is not None  # noqa: S101  # the caller has checked it
    totals = estimate.class_prior * fit.nobs()  # (K,): observations in each group
    # (T, K); 0 for a group without rows
    drawn_shares = np.zeros((draws.theta.shape[1], len(totals)))
    drawn_shares[:, totals > 0] = rng.dirichlet(totals[totals > 0], len(drawn_shares))

    def make_scores(t: int) -> Scores:
        """Return the function for the class scores under draw number `t`."""
        energy = MarginalEnergy(draws.layout, draws.theta[:, t])
        drawn_estimate = replace(estimate, log_z=draws.log_z[:, t], class_prior=drawn_shares[t])

        def energy_with_hidden(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
            """Return the energies (n, K) of rows; hidden units are appended as missing cells, which
            are summed out.
            """
            return energy(*draws.with_units(codes, missing))

        def scores(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
            """Return the class scores (n, K) of rows under draw `t`, with the model's priors if it
            has any.
            """
            class_scores = drawn_estimate.scores_by(energy_with_hidden, codes, missing)
            return (
                class_scores
                if priors is None
                else with_priors(class_scores, drawn_shares[t], priors)
            )

        return scores

    return [make_scores(t) for t in range(len(drawn_shares))]
