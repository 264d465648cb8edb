"""Firth's penalised likelihood of P(group | row): the log-likelihood plus half the log determinant
of the Fisher information, which is Jeffreys' prior.

Its maximum is finite where groups are separated, and its bias is of a smaller order than that of
the maximum of the likelihood (Firth 1993, Biometrika 80; Heinze & Schemper 2002, Statistics in
Medicine 21; for several groups Kosmidis & Firth 2011, Biometrika 98). Letters are those of
`bbl.engines.conditional.likelihood`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bbl.engines.conditional.likelihood import Likelihood, information
from bbl.engines.likelihood.newton import Maximum, maximise

__all__ = ["FirthLikelihood", "FirthProfile", "ProfileInterval", "maximise_firth"]

TOLERANCE = 1e-10  # norm of the gradient of the mean objective; one more step follows
ITMAX = 200  # Newton steps
WIDENINGS = 40  # of the step towards a limit, by a factor of 1.5 each; above, there is no limit
LIMIT_TOLERANCE = 1e-9  # relative error of a limit of a profile interval


class FirthLikelihood(Likelihood):
    """The mean of ln P(group | row) plus ``ln det I / (2 W)``, an `Objective` of Newton's method.

    I is the Fisher information of all rows, of weight W, about the coefficients of all `columns`.

    Parameters
    ----------
    Z, shares : ndarrays
        As of `Likelihood`.
    total : float
        Weight W of the rows.
    columns : ndarray of bool, shape (p,)
        Linearly independent columns of the design, whose coefficients enter the information.
    fixed : ndarray, shape (k - 1, p), optional
        Values of coefficients that are held fixed; nan for those that are estimated.
    """

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
        super().__init__(Z, shares, np.ones(shares.shape, dtype=bool), informed & is_free)
        self.total = total
        self.columns = columns
        self._held = np.where(is_free, 0.0, fixed)
        self._informed = informed
        self._is_moved = self.free[informed]  # of the coefficients in the information

    def spread(self, theta: np.ndarray) -> np.ndarray:
        """Return the coefficients (k - 1, p), from the vector of those that are estimated."""
        return super().spread(theta) + self._held

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at `theta`; minus infinity where the information is singular."""
        log_likelihood = super().value(theta)
        self._fisher = information(self.Z, self.p, self.row_shares * self.total, self._informed)
        sign, log_determinant = np.linalg.slogdet(self._fisher)
        if sign <= 0 or not np.isfinite(log_determinant):
            return -np.inf
        return log_likelihood + 0.5 * float(log_determinant) / self.total

    def _leverages(self) -> np.ndarray:
        """Return ``z_n' (I^-1)_ab z_n`` (n, k - 1, k - 1), for groups a and b after the first."""
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
        """Return the gradient by the estimated coefficients, at the point of the last `value`."""
        p = self.p[:, 1:]
        self._H = self._leverages()
        diagonal = np.diagonal(self._H, axis1=1, axis2=2)
        Hp = np.einsum("nab,nb->na", self._H, p)
        pHp = (p * Hp).sum(axis=1, keepdims=True)
        # sum over b, c of the third cumulants of groups a, b, c times H_bc
        skewness = p * (diagonal - 2.0 * Hp - (p * diagonal).sum(axis=1, keepdims=True) + 2.0 * pHp)
        residual = (self.shares - self.row_shares[:, None] * self.p)[:, 1:]
        residual = residual + 0.5 * self.row_shares[:, None] * skewness
        # leverage of each row: what its cells would weigh more as data, see `curvatures`
        self._leverage = (
            self.total * self.row_shares * ((p * diagonal).sum(axis=1, keepdims=True) - pHp)[:, 0]
        )
        return (residual.T @ self.Z)[self.free]

    def curvatures(self) -> list[np.ndarray]:
        """Return the information of the rows with the weight that the penalty adds.

        In a saturated model the penalty is half an observation more in each cell, and this is minus
        the Hessian.
        """
        k = self.shares.shape[1]
        added = self._leverage * k / (2.0 * max(k - 1, 1)) / self.total
        out = information(self.Z, self.p, self.row_shares + added, self._informed)
        return [out[np.ix_(self._is_moved, self._is_moved)]]


def maximise_firth(likelihood: FirthLikelihood, start: np.ndarray) -> Maximum:
    """Return the maximum, from the coefficients `start` (k - 1, p) on, or from 0 if the information
    is singular there.
    """
    theta = start[likelihood.free]
    if not np.isfinite(likelihood.value(theta)):
        theta = np.zeros(len(theta))
    maximum = maximise(likelihood, theta, TOLERANCE, ITMAX)
    likelihood.value(maximum.theta)  # so that `gradient` is that at the maximum
    return maximum._replace(norm=float(np.linalg.norm(likelihood.gradient())))


@dataclass(frozen=True)
class ProfileInterval:
    """Test and interval of one coefficient from the profile of the penalised likelihood.

    Attributes
    ----------
    statistic : float
        Twice the loss of the penalised log-likelihood where the coefficient is 0.
    lower, upper : float
        Values at which that loss is the quantile that was asked for.
    """

    statistic: float
    lower: float
    upper: float


class FirthProfile:
    """Profiles and ratios of the penalised likelihood; the information is that of all coefficients,
    fixed ones included.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design.
    counts : ndarray, shape (n, k)
        Weight of each cell; the first group is the reference.
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
        """Return twice the loss of the penalised log-likelihood with coefficients `fixed`, and all
        coefficients there; both are (k - 1, p), and `fixed` is nan where they are free.
        """
        likelihood = FirthLikelihood(self.Z, self.shares, self.total, self.columns, fixed)
        maximum = maximise_firth(likelihood, self.coefficients if start is None else start)
        loss = 2.0 * self.total * (self.maximum.value - maximum.value)
        return max(loss, 0.0), likelihood.spread(maximum.theta)

    def interval(self, group: int, column: int, quantile: float) -> ProfileInterval:
        """Return the test and interval of the coefficient of a column in a group after the first,
        numbered from 0.
        """
        estimate = float(self.coefficients[group, column])
        error = float(self.errors[group, column])

        def loss_from(start: np.ndarray) -> Callable[[float], float]:
            """Return the function that gives the loss at a value, each from the last solution."""
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
    """Return where a loss that increases from `estimate` on, in the direction of `step`, reaches
    `quantile`; infinite if it does not.
    """
    from scipy.optimize import brentq

    inside = estimate
    outside = estimate + step * np.sqrt(quantile)
    for _ in range(WIDENINGS):
        if loss(outside) >= quantile:
            break
        step *= 1.5
        inside, outside = outside, outside + step
    else:
        return float(np.copysign(np.inf, step))
    return float(
        brentq(
            lambda value: loss(value) - quantile,
            inside,
            outside,
            xtol=LIMIT_TOLERANCE * max(1.0, abs(outside)),
        )
    )
