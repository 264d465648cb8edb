"""Firth's penalised likelihood of P(group | row): the likelihood times Jeffreys' prior."""

# The penalised log-likelihood is the log-likelihood plus half the log determinant of the Fisher
# information. Its maximum is finite even if groups are separated, and its bias is of smaller order
# than with maximum likelihood (Firth 1993, Biometrika 80; Heinze & Schemper 2002, Statistics in
# Medicine 21; for several groups Kosmidis & Firth 2011, Biometrika 98). Letters are as in
# `bbl.engines.conditional.likelihood`.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bbl.engines.conditional.likelihood import DenseDesign, Likelihood, information
from bbl.engines.likelihood.newton import Maximum, maximise

__all__ = ["FirthLikelihood", "FirthProfile", "ProfileInterval", "maximise_firth"]

TOLERANCE = 1e-10  # norm of the gradient of the mean objective; one more step follows
ITMAX = 200  # Newton steps
# maximum number of times a step towards a profile limit is widened by 1.5, before the limit is
# infinite
WIDENINGS = 40
LIMIT_TOLERANCE = 1e-9  # relative error of a profile limit


class FirthLikelihood(Likelihood):
    """The mean of ln P(group | row) plus ``ln det I / (2 W)``, an `Objective` for Newton's method.

    I is the Fisher information matrix of the coefficients of all `columns`, summed over the rows. W
    is the total weight of the rows.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design.
    shares : ndarray, shape (n, k)
        As in `Likelihood`.
    total : float
        Total weight W of the rows.
    columns : ndarray of bool, shape (p,)
        Linearly independent columns of the design, which determine the information matrix.
    fixed : ndarray, shape (k - 1, p), optional
        Values of coefficients that are held fixed; nan for coefficients to be estimated.
    """

    # of ln det I, if rare cells make I nearly singular
    rounding: ClassVar[float] = 1e-12

    def __init__(
        self,
        Z: np.ndarray,
        shares: np.ndarray,
        total: float,
        columns: np.ndarray,
        fixed: np.ndarray | None = None,
    ):
        informed = np.repeat(columns[None], shares.shape[1] - 1, axis=0)
        fixed = np.full(informed.shape, np.nan) if fixed is None else fixed
        is_free = np.isnan(fixed)
        super().__init__(
            DenseDesign(Z), shares, np.ones(shares.shape, dtype=bool), informed & is_free
        )
        self.Z = Z
        self.total = total
        self.columns = columns
        self._held = np.where(is_free, 0.0, fixed)
        self._informed = informed
        self._is_moved = self.free[informed]  # for the coefficients in the information

    def spread(self, theta: np.ndarray) -> np.ndarray:
        """Return the coefficients (k - 1, p), given the vector of estimated coefficients."""
        return super().spread(theta) + self._held

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at `theta`; -inf if the information is singular."""
        log_likelihood = super().value(theta)
        self._fisher = information(self.Z, self.p, self.row_shares * self.total, self._informed)
        sign, log_determinant = np.linalg.slogdet(self._fisher)
        if sign <= 0 or not np.isfinite(log_determinant):
            return -np.inf
        return log_likelihood + 0.5 * float(log_determinant) / self.total

    def _leverages(self) -> np.ndarray:
        """Return ``z_n' (I^-1)_ab z_n`` (n, k - 1, k - 1) for groups a and b after the first."""
        Z = self.Z[:, self.columns]
        k = len(self.free)
        r = Z.shape[1]
        inverse = np.linalg.inv(self._fisher).reshape(k, r, k, r)
        out = np.empty((len(Z), k, k))
        for a in range(k):
            for b in range(a + 1):
                out[:, a, b] = out[:, b, a] = ((Z @ inverse[a, :, b]) * Z).sum(axis=1)
        return out

    def gradient(self) -> np.ndarray:
        """Return the gradient with respect to the estimated coefficients.

        It is evaluated at the most recent argument of `value`.
        """
        p = self.p[:, 1:]
        self._H = self._leverages()
        diagonal = np.diagonal(self._H, axis1=1, axis2=2)
        Hp = np.einsum("nab,nb->na", self._H, p)
        pHp = (p * Hp).sum(axis=1, keepdims=True)
        # sum over b, c of the third cumulants of groups a, b, c times H_bc
        skewness = p * (diagonal - 2.0 * Hp - (p * diagonal).sum(axis=1, keepdims=True) + 2.0 * pHp)
        residual = (self.shares - self.row_shares[:, None] * self.p)[:, 1:]
        residual = residual + 0.5 * self.row_shares[:, None] * skewness
        # leverage of each row: the weight that the penalty adds to its cells, see `curvatures`
        self._leverage = (
            self.total * self.row_shares * ((p * diagonal).sum(axis=1, keepdims=True) - pHp)[:, 0]
        )
        return (residual.T @ self.Z)[self.free]

    def curvatures(self) -> list[np.ndarray]:
        """Return the information of the rows, including the weights that the penalty adds.

        In a saturated model, the penalty adds half an observation to each cell. The result is then
        minus the Hessian.
        """
        k = self.shares.shape[1]
        added = self._leverage * k / (2.0 * max(k - 1, 1)) / self.total
        out = information(self.Z, self.p, self.row_shares + added, self._informed)
        return [out[np.ix_(self._is_moved, self._is_moved)]]


def maximise_firth(likelihood: FirthLikelihood, start: np.ndarray) -> Maximum:
    """Maximise the penalised likelihood, starting at the coefficients `start` (k - 1, p).

    If the information is singular at `start`, the iteration starts at 0.
    """
    maximum = _maximise_from(likelihood, start)
    likelihood.value(maximum.theta)  # so that `gradient` is evaluated at the maximum
    return maximum._replace(norm=float(np.linalg.norm(likelihood.gradient())))


def _maximise_from(likelihood: FirthLikelihood, start: np.ndarray) -> Maximum:
    """Return the result of `maximise_firth`, with the norm of the last Newton step's gradient."""
    theta = start[likelihood.free]
    if not np.isfinite(likelihood.value(theta)):
        theta = np.zeros(len(theta))
    return maximise(likelihood, theta, TOLERANCE, ITMAX)


@dataclass(frozen=True)
class ProfileInterval:
    """Test and interval for one coefficient from the profile of the penalised likelihood.

    Attributes
    ----------
    statistic : float
        Twice the decrease in the penalised log-likelihood when the coefficient is set to 0.
    lower, upper : float
        Values of the coefficient at which the decrease reaches the requested quantile.
    """

    statistic: float
    lower: float
    upper: float


class FirthProfile:
    """Profile likelihoods and likelihood ratios under Firth's penalty.

    The information matrix covers all coefficients, including fixed ones.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design.
    counts : ndarray, shape (n, k)
        Weight of each cell; the first group is the reference group.
    columns : ndarray of bool, shape (p,)
        Linearly independent columns.
    start : ndarray, shape (k - 1, p)
        Coefficients near the maximum.
    """

    def __init__(self, Z: np.ndarray, counts: np.ndarray, columns: np.ndarray, start: np.ndarray):
        self.Z = Z
        self.shares = counts / counts.sum()
        self.total = float(counts.sum())
        self.columns = columns
        likelihood = FirthLikelihood(Z, self.shares, self.total, columns)
        self.maximum = maximise_firth(likelihood, start)
        self.coefficients = likelihood.spread(self.maximum.theta)
        informed = np.repeat(columns[None], len(self.coefficients), axis=0)
        fisher = information(Z, likelihood.p, likelihood.row_shares * self.total, informed)
        self.errors = np.zeros(self.coefficients.shape)
        self.errors[informed] = np.sqrt(np.linalg.inv(fisher).diagonal())

    def ratio(self, fixed: np.ndarray, start: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """Return twice the decrease in the penalised log-likelihood, and all coefficients.

        Coefficients are held at their values in `fixed`, where nan marks free coefficients. Both
        arrays have shape (k - 1, p).
        """
        likelihood = FirthLikelihood(self.Z, self.shares, self.total, self.columns, fixed)
        maximum = _maximise_from(likelihood, self.coefficients if start is None else start)
        loss = 2.0 * self.total * (self.maximum.value - maximum.value)
        return max(loss, 0.0), likelihood.spread(maximum.theta)

    def interval(self, group: int, column: int, quantile: float) -> ProfileInterval:
        """Return the test and profile interval of one coefficient.

        `group` is counted from 0, excluding the reference group, and `column` is a column of the
        design.
        """
        estimate = float(self.coefficients[group, column])
        error = float(self.errors[group, column])

        def loss_from(start: np.ndarray) -> Callable[[float], float]:
            """Return the loss as a function of the coefficient, with warm starts."""
            last = start

            def loss(value: float) -> float:
                nonlocal last
                fixed = np.full(self.coefficients.shape, np.nan)
                fixed[group, column] = value
                ratio, last = self.ratio(fixed, last)
                return ratio

            return loss

        lower, upper = (
            _cross(loss_from(self.coefficients), estimate, side * error, quantile)
            for side in (-1.0, 1.0)
        )
        return ProfileInterval(loss_from(self.coefficients)(0.0), lower, upper)


def _cross(loss: Callable[[float], float], estimate: float, step: float, quantile: float) -> float:
    """Return the point where a loss, which increases away from `estimate`, reaches `quantile`.

    The search proceeds in the direction of `step`. The result is infinite if the loss remains below
    the quantile.
    """
    from scipy.optimize import brentq

    root = np.sqrt(quantile)
    inside = estimate
    outside = estimate + step * root
    # root of the loss minus that of the quantile, which is nearly linear, at both ends
    excess = {inside: -root}
    for _ in range(WIDENINGS):
        excess[outside] = np.sqrt(loss(outside)) - root
        if excess[outside] >= 0.0:
            break
        step *= 1.5
        inside, outside = outside, outside + step
    else:
        return float(np.copysign(np.inf, step))
    return float(
        brentq(
            lambda value: excess[value] if value in excess else np.sqrt(loss(value)) - root,
            inside,
            outside,
            xtol=LIMIT_TOLERANCE * max(1.0, abs(outside)),
        )
    )
