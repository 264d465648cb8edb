"""Influence of rows on the estimates of a joint model of P(group | row) and on group differences.

P(group | row) depends only on differences between groups, so all coefficients are relative to a
reference group. Column 0 of the coefficients is the intercept; the other columns are the parameters
of the layout. A row's influence is the derivative of an estimate with respect to the row's weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["DifferenceInfluence", "JointInfluence"]


class JointInfluence(ABC):
    """Influence of rows on the coefficients of all groups, and the covariance of the coefficients.

    Attributes
    ----------
    layout : Layout
    total : float
        Total weight of the fitted rows.
    coefficients : ndarray, shape (K, 1 + layout.size)
        Intercepts and parameters of each group minus the values of the reference group.
    reference : int
        The reference group; its coefficients are zero, with zero influence and variance.
    """

    layout: Layout
    total: float
    coefficients: np.ndarray
    reference: int

    @property
    @abstractmethod
    def flat(self) -> np.ndarray:
        """Directions (K, 1 + size, d) along which the fit is constant or improves without bound."""

    @property
    def distinct(self) -> np.ndarray:
        """Groups (q,) with free parameters. The parameters of other groups are functions of
        these.
        """
        return np.setdiff1d(np.arange(len(self.coefficients)), [self.reference])

    @property
    @abstractmethod
    def unbounded(self) -> set[tuple[int, int]]:
        """Levels, as (predictor, code), of parameters that diverge."""

    @abstractmethod
    def scores(self, rows: Sample) -> np.ndarray:
        """Return the derivatives (n, K, 1 + size) of ln P(group | row) for the observed groups."""

    @abstractmethod
    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, K, 1 + size) of rows with a known response, times `total`."""

    @abstractmethod
    def covariance(self) -> np.ndarray:
        """Return the covariance of all coefficients, shape (K, 1 + size, K, 1 + size).

        If some coefficients are not identified, this is the covariance of one of several estimates
        with the same fit.
        """

    @abstractmethod
    def covariance_between(self, a: int, b: int) -> np.ndarray:
        """Return the covariance of differences between groups `a` and `b`,
        shape (1 + size, 1 + size).
        """

    @abstractmethod
    def determined(self, a: int, b: int) -> np.ndarray:
        """Return a mask of the identified differences between groups `a` and `b`,
        shape (1 + size,).
        """

    @abstractmethod
    def separated(self, a: int, b: int) -> np.ndarray:
        """Return a mask of the differences that diverge because of separation,
        shape (1 + size,).
        """

    @abstractmethod
    def at(self, coefficients: np.ndarray) -> JointInfluence:
        """Return the influence on the estimate after one Newton step from other `coefficients`
        (K, 1 + size), such as the coefficients of a smaller model.
        """

    def sampling_errors(self, rows: Sample, expansion: np.ndarray) -> np.ndarray:
        """Return the relative error (K, 1 + size) that the sampling of rows causes in each standard
        error. The `rows` were drawn with probabilities ``1 / expansion`` (n,). The errors are only
        available for models fitted to sampled rows.
        """
        raise NotImplementedError

    def profile(self, a: int, b: int, quantile: float) -> np.ndarray:
        """Return test statistics and confidence limits (3, size) from the profile of the penalised
        likelihood. They refer to the parameter differences between groups `a` and `b`, and are only
        available for engines with `has_profiles`.
        """
        raise NotImplementedError

    def penalised_ratio(self, dropped: np.ndarray) -> float:
        """Return twice the decrease in penalised log-likelihood when the parameters `dropped` are
        removed. `dropped` is a mask (size,). This is only available for engines with
        `has_profiles`.
        """
        raise NotImplementedError

    def between(self, a: int, b: int) -> DifferenceInfluence:
        """Return the influence on the parameter differences between groups `a` and `b`."""
        return DifferenceInfluence(self, a, b)


class DifferenceInfluence(RowInfluence):
    """Influence of rows on the parameter differences between two groups, and their covariance.

    Parameters
    ----------
    joint : JointInfluence
    a, b : int
        The groups.

    Attributes
    ----------
    theta : ndarray, shape (size,)
        The differences: parameters of group `a` minus parameters of group `b`.
    determined : ndarray of bool, shape (size,)
        Whether each difference is finite and identified by the rows.
    """

    def __init__(self, joint: JointInfluence, a: int, b: int):
        self.layout = joint.layout
        self.total = joint.total
        self._joint = joint
        self._pair = (a, b)
        self.theta = (joint.coefficients[a] - joint.coefficients[b])[1:]  # without the intercept
        self.determined = joint.determined(a, b)[1:]

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, size) of rows, with zeros for unidentified parameters."""
        a, b = self._pair
        influences = self._joint(rows)
        return (influences[:, a, 1:] - influences[:, b, 1:]) * self.determined

    def covariance(self, rows: Sample | None = None) -> np.ndarray:
        """Return the covariance (size, size), which is NaN for unidentified parameters; `rows` is
        ignored.
        """
        out = self._joint.covariance_between(*self._pair)[1:, 1:]
        out[~self.determined] = np.nan
        out[:, ~self.determined] = np.nan
        return out

    def terms(self, rows: Sample | None = None) -> list[np.ndarray]:
        """Return the covariance of each table, fields before couplings; `rows` is ignored."""
        covariance = self.covariance()
        cuts = self.layout.cuts
        return [covariance[a:b, a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
