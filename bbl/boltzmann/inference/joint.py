"""Tests of the parameters of groups that are fitted together, to P(group | row), without a penalty.

P(group | row) depends on differences of groups alone: the parameters of a group are those less the parameters of the
reference group, as in multinomial logistic regression.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.covariance import occurring
from bbl.boltzmann.inference.significance import Comparison, Kind
from bbl.boltzmann.inference.survey import effective_rows, joint_deviations
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
        The sampling design of the rows. The Fisher information, of the effective number of rows, is then the working
        one.
    """

    def __init__(self, sample: Sample, estimate: Estimate, engine: Engine, survey: SurveySample | None = None):
        layout, K = estimate.parameters.layout, len(estimate.parameters.theta)
        self._survey, self._share = survey, 1.0
        if survey is not None:
            effective = effective_rows(sample)
            self._share, sample = effective.total / sample.total, effective
        traits, start = cast(JointTraits, engine.joint), estimate.coefficients
        maximum = partial(traits.maximum, engine, layout=layout, K=K, start=start)
        self.influence = maximum(sample)
        self._deviations = None if survey is None else joint_deviations(self.influence, maximum, sample, survey)
        self._occurs = [occurring(sample.group(g), layout) for g in range(K)]
        self._comparisons: dict[tuple[int, int], Comparison] = {}

    def corrected_ratio(self, ratio: float, dropped: np.ndarray) -> CorrectedTest:
        """Return the test of a likelihood ratio of the fit against one without the parameters `dropped` (size,)."""
        assert self._survey is not None and self._deviations is not None  # noqa: S101  # checked by its caller
        influence, covariance = self.influence, self.influence.covariance()
        at = [
            (g, 1 + k)
            for g in range(len(influence.coefficients))
            for k in np.flatnonzero(dropped & influence.determined(g, influence.reference)[1:])
            if g != influence.reference
        ]
        groups, columns = np.array(at, dtype=np.intp).reshape(-1, 2).T
        E = self._deviations[:, groups, columns]
        working = covariance[groups[:, None], columns[:, None], groups, columns]
        return rao_scott(ratio * self._share, design_effects(E.T @ E, working), self._survey.df)

    def of_group(self, g: int) -> Comparison:
        """Return the test of the parameters of group `g` less those of the reference group."""
        return self.between(g, self.influence.reference)

    def between(self, a: int, b: int) -> Comparison:
        """Return the test of the parameters of group `a` less those of group `b`."""
        if (a, b) not in self._comparisons:
            difference = self.influence.between(a, b)
            kind = np.where(difference.determined, Kind.WALD, Kind.UNBOUNDED).astype(np.int8)
            kind[~difference.determined & ~(self._occurs[a] & self._occurs[b])] = Kind.ABSENT
            if a == b:
                kind[:] = Kind.REFERENCE
            test = Comparison(difference.layout, difference.theta, difference.terms(), kind, lambda k, finite: None)
            if self._survey is not None and self._deviations is not None:
                E = self._deviations[:, a, 1:] - self._deviations[:, b, 1:]
                kind[(kind == Kind.WALD) & (~np.isfinite(E).all(axis=0) | (self._survey.df < 1))] = Kind.FEW
                terms = term_covariances(difference.layout, [(E, np.ones(len(E)))])
                test = replace(test, terms=terms, df=self._survey.df, working=test.terms)
            self._comparisons[a, b] = test
        return self._comparisons[a, b]

    def covariance(self, groups: list[int]) -> np.ndarray:
        """Return the covariance of the parameters of `groups`, group by group."""
        q = len(groups) * self.influence.layout.size
        if self._deviations is not None:
            E = self._deviations[:, groups, 1:].reshape(-1, q)
            return E.T @ E
        covariance = self.influence.covariance()[groups][:, 1:, groups, 1:]
        return covariance.reshape(q, q)
