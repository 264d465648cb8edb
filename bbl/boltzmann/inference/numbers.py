"""Wald tests of whether numeric predictors have equal means and equal level effects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl.boltzmann.inference.significance import Kind
from bbl.boltzmann.inference.survey import linearised, replicated
from bbl.model.location import Location
from bbl.model.location_gradient import LocationInfluence
from bbl.rows.sample import Sample
from bbl.stats.survey.sample import SurveySample
from bbl.stats.wald import wald

__all__ = ["MeanTest", "NumberTests"]

EXACT_FIT = 1e-12  # smaller variances, relative to that of a mean of all rows, are rounding errors


@dataclass(frozen=True)
class MeanTest:
    """Test of the coefficients in the mean of a numeric predictor.

    Attributes
    ----------
    scope : tuple of int
        A numeric predictor, or a categorical predictor and a numeric predictor whose mean depends
        on its level.
    statistic, p : float
        Statistic and p-value of the Wald test; nan if no coefficient is estimable.
    df : int
        Number of tested coefficients.
    text : str
        How the coefficients were tested, or why they were not tested.
    """

    scope: tuple[int, ...]
    statistic: float
    df: int
    p: float
    text: str


@dataclass(frozen=True, eq=False)
class NumberTests:
    """Wald tests of the coefficients in the means of numeric predictors, with sandwich covariances.

    Attributes
    ----------
    location : Location
    sample : Sample
        Training rows of all groups.
    survey : SurveySample or None
        The sampling design of the rows.
    """

    location: Location
    sample: Sample
    survey: SurveySample | None = None

    def of_group(self, g: int) -> list[MeanTest]:
        """Test the null hypothesis that levels have no effect on the means in group g."""
        estimates = self._estimates(g)
        deviations = self._deviations(g)
        covariance = deviations.T @ deviations
        return [
            self._test(scope, estimates, covariance, self._is_estimable(g))
            for scope in self._scopes
            if len(scope) > 1
        ]

    def between(self, a: int, b: int) -> list[MeanTest]:
        """Test whether groups a and b have equal means at the reference levels and equal level
        effects.
        """
        estimates = self._estimates(a) - self._estimates(b)
        one = self._deviations(a)
        other = self._deviations(b)
        # under a design, groups share clusters or replicates; otherwise they are independent
        deviations = np.vstack([one, other]) if self.survey is None else one - other
        covariance = deviations.T @ deviations
        is_estimable = self._is_estimable(a) & self._is_estimable(b)
        return [self._test(scope, estimates, covariance, is_estimable) for scope in self._scopes]

    @cached_property
    def _influence(self) -> LocationInfluence:
        """Influence of each row on the coefficients."""
        return LocationInfluence(self.location)

    @cached_property
    def _scopes(self) -> list[tuple[int, ...]]:
        """The numeric predictors, followed by pairs of a categorical and a numeric predictor."""
        model = self.location.model
        scopes: list[tuple[int, ...]] = [(int(j),) for j in model.numbers]
        for i in model.used:
            scopes += [
                (int(i), int(model.numbers[k])) for k in np.flatnonzero(model.partners[:, i])
            ]
        return scopes

    def _estimates(self, g: int) -> np.ndarray:
        """Return the coefficients (d,) of a group, in the order of `LocationInfluence`."""
        number, column = self._influence.coefficients
        return self.location.C[g][column, number]

    def _is_estimable(self, g: int) -> np.ndarray:
        """Return a mask (d,) of the coefficients that are estimable from the group's rows."""
        d = len(self._influence.coefficients[0])
        if not self.location.n[g]:
            return np.zeros(d, dtype=bool)
        moves = self._influence.directions(g)[:d] != 0.0
        return np.asarray(~moves.any(axis=1))

    def _deviations(self, g: int) -> np.ndarray:
        """Return a matrix E (., d) such that ``E'E`` is the covariance of a group's coefficients.

        E has a row for each row of the group, or for each cluster or replicate of the design.
        """
        rows = self.sample.group(g)
        influence = self._influence
        d = len(influence.coefficients[0])
        if self.survey is None:
            if not rows.n:
                return np.zeros((0, d))
            own = influence.coefficient_influences(rows.codes, g)
            return own * np.sqrt(rows.weights)[:, None]
        design = self.survey.of_group(self.sample.response == g)
        if design.replicates is None:
            return linearised(
                lambda chunk: influence.coefficient_influences(chunk.codes, g), d, rows, design
            )
        return replicated(self._refit, self._estimates(g), rows, design, for_test=True)

    def _refit(self, rows: Sample) -> np.ndarray:
        """Return the coefficients (d,) fitted to a group's rows with different weights."""
        model = self.location.model
        number, column = self._influence.coefficients
        C = model.coefficients(model.moments(rows, 1, self.location.scores))
        return C[0][column, number]

    def _test(
        self,
        scope: tuple[int, ...],
        estimates: np.ndarray,
        covariance: np.ndarray,
        is_estimable: np.ndarray,
    ) -> MeanTest:
        """Test whether the coefficients of a `scope` are zero.

        The coefficients are a numeric predictor's mean at the reference levels, or the effects of
        another predictor's levels on this mean.
        """
        model = self.location.model
        number, column = self._influence.coefficients
        owner = -1 if len(scope) == 1 else scope[0]
        own = (model.numbers[number] == scope[-1]) & (model.owner[column] == owner)
        if not (own & is_estimable).any():
            return MeanTest(scope, np.nan, 0, np.nan, Kind.ABSENT.text)
        # a mean of as many rows as it has coefficients fits them exactly, and has no sandwich
        spread = self.location.S[:, number, number].max(axis=0) / max(float(self.sample.total), 1.0)
        tested = np.flatnonzero(own & is_estimable & (covariance.diagonal() > EXACT_FIT * spread))
        if not len(tested):
            return MeanTest(scope, np.nan, 0, np.nan, Kind.FEW.text)
        (statistic,), (df,), (p,) = wald([estimates[tested]], [covariance[np.ix_(tested, tested)]])
        if self.survey is not None:
            p = _design_p(float(statistic), int(df), self.survey.df)
        text = Kind.WALD.text
        if len(tested) < own.sum():
            text += f", {len(tested)} of {own.sum()}"
        return MeanTest(scope, float(statistic), int(df), float(p), text)


def _design_p(statistic: float, df: int, design_df: float) -> float:
    """Return the p-value of a Wald statistic with the degrees of freedom of a sampling design.

    The p-value is from the F distribution of Korn & Graubard (1990).
    """
    from scipy.special import fdtrc

    residual_df = design_df - df + 1
    if residual_df <= 0:
        return np.nan
    return float(fdtrc(df, residual_df, statistic * residual_df / (design_df * df)))
