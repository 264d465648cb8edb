"""Tests of the parameters of unpenalised joint fits of P(group | row).

Parameters are differences from the reference group, as in multinomial logistic regression. K is the
number of groups. Column 0 of the coefficients (K, 1 + size) contains the intercepts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.comparisons import no_family
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
    """Wald tests based on the joint Fisher information of all groups.

    Parameters
    ----------
    sample : Sample
        Training rows of all groups.
    estimate : Estimate
    engine : Engine
        An engine that fits all groups jointly.
    survey : SurveySample, optional
        The sampling design of the rows. If given, tests use the design covariance, and design
        effects are relative to the inverse Fisher information, scaled to the effective number of
        rows.
    expansion : ndarray, shape (n,), optional
        Inverse probabilities of the rows, if they are a random sample of the rows of the fit.

    Attributes
    ----------
    influence : JointInfluence
        Influence of rows on the coefficients of an unpenalised fit, and the Fisher information.
    """

    def __init__(
        self,
        sample: Sample,
        estimate: Estimate,
        engine: Engine,
        survey: SurveySample | None = None,
        expansion: np.ndarray | None = None,
    ):
        layout = estimate.parameters.layout
        K = len(estimate.parameters.theta)
        # Likelihood ratios are scaled by the effective number of rows divided by the total weight,
        # which is 1 without a sampling design.
        self._survey = survey
        self._effective_share = 1.0
        if survey is not None:
            effective = effective_rows(sample)
            self._effective_share = effective.total / sample.total
            sample = effective
        traits = cast(JointTraits, engine.joint)
        start = estimate.coefficients
        self._fit_unpenalised = partial(traits.maximum, engine, layout=layout, K=K, start=start)
        self.influence = (
            self._fit_unpenalised(sample)
            if expansion is None
            else traits.maximum_of_sample(engine, sample, layout, K, start, expansion)
        )
        self._sample = sample
        # (size,): whether all levels that a parameter compares occur in at least one group
        self._occurs = occurring(sample, layout)
        self._comparisons: dict[tuple[int, int], Comparison] = {}  # cache of `between`, by (a, b)

    @cached_property
    def deviations(self) -> np.ndarray:
        """Deviations (u, K, 1 + size) of all coefficients under the sampling design.

        Their cross-products are the design covariance, see `bbl.boltzmann.inference.survey`.
        """
        assert self._survey is not None  # noqa: S101  # checked by its callers
        return joint_deviations(self.influence, self._fit_unpenalised, self._sample, self._survey)

    def corrected_ratio(
        self, ratio: float, dropped: np.ndarray, df: int, small: np.ndarray
    ) -> CorrectedTest:
        """Return the design-corrected likelihood ratio test for dropping some parameters.

        The ratio for all rows is scaled to the effective number of rows, like the working
        covariance. Parameters that separate groups have no covariance. If there are such
        parameters, design effects are computed for one Newton step from the smaller model, where
        all parameters have a covariance.

        Parameters
        ----------
        ratio : float
        dropped : ndarray of bool, shape (size,)
            Parameters that are in no group's smaller model.
        df : int
            Degrees of freedom of the ratio.
        small : ndarray, shape (K, 1 + size)
            Coefficients of the smaller model; 0 for dropped parameters.
        """
        assert self._survey is not None  # noqa: S101  # checked by its caller
        influence = self.influence
        is_dropped = np.append(False, dropped)  # never the intercept
        # (K, 1 + size): dropped coefficients that have a variance
        tested = np.array(
            [
                is_dropped
                & influence.determined(g, influence.reference)
                & (g in influence.distinct)
                for g in range(len(influence.coefficients))
            ]
        )
        if int(tested.sum()) >= df:
            deviations = self.deviations
        else:
            influence = self.influence.at(small)
            deviations = step_deviations(influence, self._sample, self._survey)
            variances = np.einsum("gkgk->gk", influence.covariance())
            tested = is_dropped & (variances > 0.0)
            tested[np.setdiff1d(np.arange(len(tested)), influence.distinct)] = False
        # for q tested coefficients: deviations (u, q), and the covariance (q, q) without the design
        groups, columns = np.nonzero(tested)
        E = deviations[:, groups, columns]
        working = influence.covariance()[groups[:, None], columns[:, None], groups, columns]
        effects = design_effects(E.T @ E, working)
        if 0 < len(effects) < df:  # directions that do not contribute to the ratio
            effects = np.append(effects, np.full(df - len(effects), effects.mean()))
        return rao_scott(ratio * self._effective_share, effects, self._survey.df)

    def of_group(self, g: int) -> Comparison:
        """Test the differences between the parameters of group `g` and the reference group."""
        return self.between(g, self.influence.reference)

    def between(self, a: int, b: int) -> Comparison:
        """Test the differences between the parameters of groups `a` and `b`."""
        if (a, b) not in self._comparisons:
            # theta (size,), which are estimable (size,), covariances by table
            difference = self.influence.between(a, b)
            kind = np.where(difference.determined, Kind.WALD, Kind.UNBOUNDED).astype(np.int8)
            kind[self.influence.separated(a, b)[1:]] = Kind.SEPARATED
            has_rows = (self._sample.group_totals(len(self.influence.coefficients)) > 0.0)[[a, b]]
            kind[~difference.determined & ~(self._occurs & has_rows.all())] = Kind.ABSENT
            if a == b:
                kind[:] = Kind.REFERENCE
            test = Comparison(
                difference.layout, difference.theta, difference.terms(), kind, no_family
            )
            if self._survey is not None:
                deviations = self.deviations[:, a, 1:] - self.deviations[:, b, 1:]
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
        """Return the covariance (q, q) of the parameters of `groups`, excluding intercepts."""
        n_parameters = len(groups) * self.influence.layout.size
        if self._survey is not None:
            deviations = self.deviations[:, groups, 1:].reshape(-1, n_parameters)
            return deviations.T @ deviations
        covariance = self.influence.covariance()[groups][:, 1:, groups, 1:]
        return covariance.reshape(n_parameters, n_parameters)
