"""Influence of rows on the estimates of groups that are fitted jointly by maximising P(group |
row), and on their differences.

P(group | row) depends only on differences between groups, so all coefficients are relative to a
reference group. Column 0 of the coefficients is the intercept; the others are the parameters of the
layout. The influence of a row is the derivative of an estimate with respect to the row's weight.
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
        Total weight of the rows that were fitted.
    coefficients : ndarray, shape (K, 1 + layout.size)
        Intercepts and parameters of each group minus those of the reference group.
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
        """The d directions (K, 1 + size, d) along which the fit stays the same or improves without
        bound.
        """

    @property
    def distinct(self) -> np.ndarray:
        """Groups (q,) whose parameters are not functions of those of other groups."""
        return np.setdiff1d(np.arange(len(self.coefficients)), [self.reference])

    @property
    @abstractmethod
    def unbounded(self) -> set[tuple[int, int]]:
        """Levels, as (predictor, code), of parameters that diverge."""

    @abstractmethod
    def scores(self, rows: Sample) -> np.ndarray:
        """Return the derivatives (n, K, 1 + size) of ln P(group | row) with respect to all
        coefficients, for rows with a response.
        """

    @abstractmethod
    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, K, 1 + size) of rows with a response on all coefficients, times
        `total`.
        """

    @abstractmethod
    def covariance(self) -> np.ndarray:
        """Return the covariance (K, 1 + size, K, 1 + size) of all coefficients.

        Undetermined coefficients have the covariance of one choice among the values that fit
        equally well.
        """

    @abstractmethod
    def covariance_between(self, a: int, b: int) -> np.ndarray:
        """Return the covariance (1 + size, 1 + size) of the differences of coefficients between
        groups `a` and `b`.
        """

    @abstractmethod
    def determined(self, a: int, b: int) -> np.ndarray:
        """Return whether each difference of coefficients (1 + size,) between groups `a` and `b` is
        determined by the rows.
        """

    @abstractmethod
    def separated(self, a: int, b: int) -> np.ndarray:
        """Return whether each difference of coefficients (1 + size,) between groups `a` and `b`
        diverges because it separates the groups.
        """

    @abstractmethod
    def at(self, coefficients: np.ndarray) -> JointInfluence:
        """Return the influence on one Newton step from other `coefficients` (K, 1 + size), such as
        the coefficients of a smaller model.
        """

    def profile(self, a: int, b: int, quantile: float) -> np.ndarray:
        """Return the test statistic and the confidence limits (3, size) of each difference of
        parameters between groups `a` and `b`, from the profile of a penalised likelihood; only for
        engines with `has_profiles`.
        """
        raise NotImplementedError

    def penalised_ratio(self, dropped: np.ndarray) -> float:
        """Return twice the decrease of the penalised log-likelihood when the parameters `dropped`
        (size,) are removed; available only for engines that implement it.
        """
        raise NotImplementedError

    def between(self, a: int, b: int) -> DifferenceInfluence:
        """Return the influence on the differences of parameters between groups `a` and `b`."""
        return DifferenceInfluence(self, a, b)


class DifferenceInfluence(RowInfluence):
    """Influence of rows on the differences of parameters between two groups, and the covariance of
    the differences.

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
        Whether the rows determine each difference, with a finite value.
    """

    def __init__(self, joint: JointInfluence, a: int, b: int):
        self.layout = joint.layout
        self.total = joint.total
        self._joint = joint
        self._pair = (a, b)
        self.theta = (joint.coefficients[a] - joint.coefficients[b])[1:]  # without the intercept
        self.determined = joint.determined(a, b)[1:]

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, size) of rows of all groups; zero for parameters that are not
        determined.
        """
        a, b = self._pair
        influences = self._joint(rows)
        return (influences[:, a, 1:] - influences[:, b, 1:]) * self.determined

    def covariance(self, rows: Sample | None = None) -> np.ndarray:
        """Return the covariance (size, size), which is NaN if undetermined; `rows` is not used."""
        out = self._joint.covariance_between(*self._pair)[1:, 1:]
        out[~self.determined] = np.nan
        out[:, ~self.determined] = np.nan
        return out

    def terms(self, rows: Sample | None = None) -> list[np.ndarray]:
        """Return the covariance of each table of fields, then of each table of couplings; `rows` is
        not used.
        """
        covariance = self.covariance()
        cuts = self.layout.cuts
        return [covariance[a:b, a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
