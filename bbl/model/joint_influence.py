"""Influence of rows on the estimates of groups that are fitted together, to P(group | row), and on
their differences.

A *coefficient* is the intercept of a group, column 0, or a parameter of the layout. P(group | row)
depends on differences of groups alone, so coefficients are those of each group less those of one of
them, the reference group. The *influence* of a row is the change of an estimate per unit of the
row's weight. *Tables* hold the fields of a predictor, or the couplings of a term.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["DifferenceInfluence", "JointInfluence"]


class JointInfluence(ABC):
    """Influence of rows on the coefficients of all groups, and the covariance of these.

    Attributes
    ----------
    layout : Layout
    total : float
        Total weight of the rows that were fitted.
    coefficients : ndarray, shape (K, 1 + layout.size)
        Intercepts and parameters of each group less those of the reference group.
    reference : int
        The reference group: its coefficients are zero, and have no influences and no variance.
    """

    layout: Layout
    total: float
    coefficients: np.ndarray
    reference: int

    @property
    @abstractmethod
    def flat(self) -> np.ndarray:
        """The d directions (K, 1 + size, d) along which the fit stays the same, or improves without
        end.
        """

    @property
    @abstractmethod
    def unbounded(self) -> set[tuple[int, int]]:
        """Levels, as (predictor, code), of parameters that move without end."""

    @abstractmethod
    def scores(self, rows: Sample) -> np.ndarray:
        """Return the derivatives (n, K, 1 + size) of ln P(group | row) of rows with a response by
        all coefficients.
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
        """Return the covariance (1 + size, 1 + size) of the coefficients of group `a` less those of
        `b`.
        """

    @abstractmethod
    def determined(self, a: int, b: int) -> np.ndarray:
        """Return whether rows determine each coefficient (1 + size,) of group `a` less that of
        `b`.
        """

    @abstractmethod
    def separated(self, a: int, b: int) -> np.ndarray:
        """Return which coefficients (1 + size,) of group `a` less those of `b` grow without end, as
        they separate the groups.
        """

    @abstractmethod
    def at(self, coefficients: np.ndarray) -> JointInfluence:
        """Return the influence on one Newton step from other `coefficients` (K, 1 + size), such as
        those of a smaller model.
        """

    def profile(self, a: int, b: int, quantile: float) -> np.ndarray:
        """Return the statistic and the limits (3, size) of each parameter of group `a` less that of
        `b`, from the profile of a penalised likelihood, for engines that have it (`has_profiles`).
        """
        raise NotImplementedError

    def penalised_ratio(self, dropped: np.ndarray) -> float:
        """Return twice the loss of the penalised log-likelihood without the parameters `dropped`
        (size,), for engines that have it.
        """
        raise NotImplementedError

    def between(self, a: int, b: int) -> DifferenceInfluence:
        """Return the influence on the parameters of group `a` less those of group `b`."""
        return DifferenceInfluence(self, a, b)


class DifferenceInfluence(RowInfluence):
    """Influence of rows on the parameters of one group less those of another, and their
    covariances.

    Parameters
    ----------
    joint : JointInfluence
    a, b : int
        The groups.

    Attributes
    ----------
    theta : ndarray, shape (size,)
        The differences.
    determined : ndarray of bool, shape (size,)
        Whether the rows determine each of them, with a finite value.
    """

    def __init__(self, joint: JointInfluence, a: int, b: int):
        self.layout = joint.layout
        self.total = joint.total
        # as given
        self._joint = joint
        self._pair = (a, b)
        self.theta = (joint.coefficients[a] - joint.coefficients[b])[1:]  # without the intercept
        self.determined = joint.determined(a, b)[1:]

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, size) of rows of all groups; zero on parameters that are not
        determined.
        """
        a, b = self._pair
        influences = self._joint(rows)
        return (influences[:, a, 1:] - influences[:, b, 1:]) * self.determined

    def covariance(self, rows: Sample | None = None) -> np.ndarray:
        """Return the covariance (size, size), nan where it is not determined; `rows` is not
        used.
        """
        out = self._joint.covariance_between(*self._pair)[1:, 1:]
        out[~self.determined] = np.nan
        out[:, ~self.determined] = np.nan
        return out

    def terms(self, rows: Sample | None = None) -> list[np.ndarray]:
        """Return the covariance of each table of fields, then of each table of couplings; `rows` is
        not used.
        """
        # start of each table, then the vector's end
        covariance = self.covariance()
        cuts = self.layout.cuts
        return [covariance[a:b, a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
