"""Tests of the parameters of groups that are fitted together, to P(group | row), without a penalty.

P(group | row) depends on differences of groups alone: parameters are those of each group less those
of the reference group, as in multinomial logistic regression. K is the number of groups; a group
has one intercept and ``layout.size`` parameters, so intercepts are column 0 of arrays of ``1 +
size`` coefficients. ``engine.joint`` holds the functions (`JointTraits`) of an engine that fits all
groups together. A `JointInfluence` has the number `reference` of the reference group,
`coefficients` (K, 1 + size), a `covariance()` (K, 1 + size, K, 1 + size), and says in
``determined(a, b)`` (1 + size,) which differences of two groups the rows determine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.covariance import occurring
from bbl.boltzmann.inference.significance import Comparison, Kind
from bbl.boltzmann.inference.survey import effective_rows, joint_deviations, step_deviations
from bbl.engines import Engine
from bbl.engines.traits import JointTraits
from bbl.model.godambe import term_covariances
from bbl.rows.sample import Sample
from bbl.stats.survey.rao_scott import CorrectedTest, design_effects, rao_scott
from bbl.stats.survey.sample import SurveySample

__all__ = ["JointTests"]


class JointTests:
    """Wald tests from the Fisher information of all groups.

    Parameters
    ----------
    sample : Sample
        Training rows of all groups.
    estimate : Estimate
    engine : Engine
        It fits all groups together.
    survey : SurveySample, optional
        The sampling design of the rows. Tests then take the design covariance; the Fisher
        information, of the effective number of rows, gives the working covariance that design
        effects compare it with.

    Attributes
    ----------
    influence : JointInfluence
        Influence of rows on the coefficients of a fit without a penalty, and their Fisher
        information.
    """

    def __init__(
        self, sample: Sample, estimate: Estimate, engine: Engine, survey: SurveySample | None = None
    ):
        layout = estimate.parameters.layout
        K = len(estimate.parameters.theta)
        # the effective number of rows over their total weight, 1 without a sampling design, scales
        # likelihood ratios
        self._survey = survey
        self._effective_share = 1.0
        if survey is not None:
            effective = effective_rows(sample)
            self._effective_share = effective.total / sample.total
            sample = effective
        traits = cast(JointTraits, engine.joint)
        start = estimate.coefficients
        fit_unpenalised = partial(traits.maximum, engine, layout=layout, K=K, start=start)
        self.influence = fit_unpenalised(sample)
        # (u, K, 1 + size), whose cross-products are the design covariance: see
        # `bbl.boltzmann.inference.survey`
        self._deviations = (
            None
            if survey is None
            else joint_deviations(self.influence, fit_unpenalised, sample, survey)
        )
        self._sample = sample
        # (size,): whether all levels that a parameter compares occur in some group
        self._occurs = occurring(sample, layout)
        self._comparisons: dict[tuple[int, int], Comparison] = {}  # results of `between`, by (a, b)

    @property
    def deviations(self) -> np.ndarray:
        """Deviations (u, K, 1 + size) of all coefficients under the sampling design."""
        assert self._deviations is not None  # noqa: S101  # checked by its callers
        return self._deviations

    def corrected_ratio(
        self, ratio: float, dropped: np.ndarray, df: int, small: np.ndarray
    ) -> CorrectedTest:
        """Return the test of the likelihood ratio `ratio` of the fit against one without some
        parameters.

        The ratio is that of all rows, and is scaled to their effective number, as the working
        covariance is. Parameters that separate groups have no covariance: with one of them, design
        effects are those of one Newton step from the smaller model, where all of them have one.

        Parameters
        ----------
        ratio : float
        dropped : ndarray of bool, shape (size,)
            Parameters that the smaller model lacks in every group.
        df : int
            Degrees of freedom of the ratio.
        small : ndarray, shape (K, 1 + size)
            Coefficients of the smaller model; 0 where it has none.
        """
        assert self._survey is not None and self._deviations is not None  # noqa: S101  # checked by its caller
        influence = self.influence
        deviations = self._deviations
        is_dropped = np.append(False, dropped)  # never the intercept
        # (K, 1 + size): coefficients with a variance that the smaller model lacks
        tested = np.array(
            [
                is_dropped
                & influence.determined(g, influence.reference)
                & (g != influence.reference)
                for g in range(len(influence.coefficients))
            ]
        )
        if int(tested.sum()) < df:
            influence = self.influence.at(small)
            deviations = step_deviations(influence, self._sample, self._survey)
            variances = np.einsum("gkgk->gk", influence.covariance())
            tested = is_dropped & (variances > 0.0)
        # q tested coefficients: deviations (u, q), and the covariance (q, q) without the sampling
        # design
        groups, columns = np.nonzero(tested)
        E = deviations[:, groups, columns]
        working = influence.covariance()[groups[:, None], columns[:, None], groups, columns]
        effects = design_effects(E.T @ E, working)
        if 0 < len(effects) < df:  # directions in which the ratio gains nothing
            effects = np.append(effects, np.full(df - len(effects), effects.mean()))
        return rao_scott(ratio * self._effective_share, effects, self._survey.df)

    def of_group(self, g: int) -> Comparison:
        """Return the test of the parameters of group `g` less those of the reference group."""
        return self.between(g, self.influence.reference)

    def between(self, a: int, b: int) -> Comparison:
        """Return the test of the parameters of group `a` less those of group `b`."""
        if (a, b) not in self._comparisons:
            # theta (size,), determined (size,), covariances by table
            difference = self.influence.between(a, b)
            kind = np.where(difference.determined, Kind.WALD, Kind.UNBOUNDED).astype(np.int8)
            kind[self.influence.separated(a, b)[1:]] = Kind.SEPARATED
            has_rows = (self._sample.group_totals(len(self.influence.coefficients)) > 0.0)[[a, b]]
            kind[~difference.determined & ~(self._occurs & has_rows.all())] = Kind.ABSENT
            if a == b:
                kind[:] = Kind.REFERENCE
            # the last argument says that no parameter has an exact distribution
            test = Comparison(
                difference.layout,
                difference.theta,
                difference.terms(),
                kind,
                lambda k, finite: None,
            )
            if self._survey is not None and self._deviations is not None:
                deviations = self._deviations[:, a, 1:] - self._deviations[:, b, 1:]
                kind[
                    (kind == Kind.WALD)
                    & (~np.isfinite(deviations).all(axis=0) | (self._survey.df < 1))
                ] = Kind.FEW
                terms = term_covariances(
                    difference.layout, [(deviations, np.ones(len(deviations)))]
                )
                test = replace(test, terms=terms, df=self._survey.df, working=test.terms)
            self._comparisons[a, b] = test
        return self._comparisons[a, b]

    def covariance(self, groups: list[int]) -> np.ndarray:
        """Return the covariance (q, q) of the q parameters of `groups`, without intercepts, group
        by group.
        """
        n_parameters = len(groups) * self.influence.layout.size
        if self._deviations is not None:
            deviations = self._deviations[:, groups, 1:].reshape(-1, n_parameters)
            return deviations.T @ deviations
        covariance = self.influence.covariance()[groups][:, 1:, groups, 1:]
        return covariance.reshape(n_parameters, n_parameters)
