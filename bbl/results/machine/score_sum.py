"""Class scores of Boltzmann machines as sums of tables, for HTML pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.errors import OptionError
from bbl.model.location import Location
from bbl.report.explore.score_model import (
    ScoreMixture,
    ScoreModel,
    ScoreNumbers,
    ScoreSum,
    ScoreTerm,
    check_size,
    list_terms,
)
from bbl.stats.metrics import class_scores, log_share

__all__ = ["machine_scores"]

CUMULATIVE = "With cumulative logits, the log-odds of two groups are not sums of terms."
ZEROS_OF_GROUPS = "With structural zeros in only some groups, class scores are not sums of terms."


def machine_scores(
    estimate: Estimate, names: Sequence[str], centers: Sequence[float] = ()
) -> ScoreModel:
    """Return the class scores of fitted machines.

    `names` (m,) contains the names of the predictors, and `centers` (q,) contains the values of
    numeric predictors that have code 0. Raises an OptionError for hidden units, normal scores of
    numeric predictors, and models that are too large for a page.
    """
    layout = estimate.parameters.layout
    K = len(estimate.parameters.theta)
    draws = estimate.predictive  # only without numbers
    if draws is not None and draws.hidden:
        raise OptionError(
            "The class scores of a machine with hidden units are not sums of tables.",
            argument="hidden",
            hint="Fit with hidden=0.",
        )
    check_size(K * layout.size * (1 if draws is None else draws.theta.shape[1]))
    densities = None
    if estimate.location is not None:
        densities = _number_densities(estimate.location, names, np.asarray(centers))
    zero_sum = estimate.zero_sum_terms()
    factors = layout.factors(estimate.parameters.theta)
    zeros = [ScoreTerm(scope, table) for scope, table in factors[len(layout.scopes) :]]
    # calibration, and the class proportions for a row without known predictors, which cannot be
    # predicted if there are regressors
    common: dict[str, Any] = {
        "empty": None if zero_sum.origins else log_share(estimate.class_prior)
    }
    if estimate.calibration is not None:
        common["temperature"] = estimate.calibration.temperature
        common["offset"] = estimate.calibration.offset
    needed = estimate.needed
    at_estimates = ScoreSum(
        constant=class_scores(zero_sum.constant[None], estimate.log_z, estimate.class_prior)[0],
        terms=[*list_terms(zero_sum.terms, names, zero_sum.origins), *zeros],
        sums_unknown=needed is None,
        needed=() if needed is None else tuple(needed.tolist()),
        is_cumulative=estimate.cumulative,
        numbers=densities,
        **common,
    )
    scores: ScoreSum | ScoreMixture = at_estimates
    if draws is not None:
        n_draws = draws.theta.shape[1]
        members = [
            ScoreSum(
                constant=class_scores(np.zeros((1, K)), draws.log_z[:, t], estimate.class_prior)[0],
                terms=[ScoreTerm(*factor) for factor in layout.factors(draws.theta[:, t])],
            )
            for t in range(n_draws)
        ]
        weights = np.full(n_draws, 1.0 / n_draws)
        scores = ScoreMixture(weights=weights, members=members, averages_posteriors=False, **common)
    if estimate.cumulative:
        return ScoreModel(scores, None, CUMULATIVE)
    if layout.support is not None and layout.support.n_groups > 1:
        return ScoreModel(scores, None, ZEROS_OF_GROUPS)
    return ScoreModel(scores, at_estimates)


def _number_densities(
    location: Location, names: Sequence[str], centers: np.ndarray
) -> ScoreNumbers:
    """Return the normal densities of the numeric predictors. Raises an OptionError for normal
    scores.
    """
    model = location.model
    if location.scores is not None:
        raise OptionError(
            "Normal scores of numeric predictors are interpolated between all training values, "
            "but a page does not contain these values.",
            argument="transform",
            hint="Fit with transform='none'.",
        )
    titles = []
    components = []
    for component in model.components:
        titles.append(":".join(names[i] for i in component))
        components.append(tuple(np.searchsorted(model.numbers, component).tolist()))
    return ScoreNumbers(
        numbers=tuple(model.numbers.tolist()),
        names=tuple(titles),
        components=tuple(components),
        centers=centers,
        partners=tuple(model.used.tolist()),
        needs=tuple(tuple(np.flatnonzero(own).tolist()) for own in model.partners),
        means=location.C,
        covariances=location.S,
    )
