"""Newton's method for the exact likelihood of one group, on a table of all states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from bbl._ext.model import eigen
from bbl.engines.likelihood.states import StateTable

__all__ = ["Maximum", "Objective", "StateLikelihood", "maximise"]

# smallest increase of the objective, as a fraction of the increase predicted by its slope (Armijo)
SUFFICIENT_INCREASE = 1e-4
SHORTEST_STEP = 2.0**-30  # fraction of a Newton step at which halving ends
NO_INFORMATION = 1e-18  # variances of an indicator up to this are rounding errors
# smallest Cholesky pivot of a scaled information that is solved without its eigenvectors
MIN_PIVOT = 1e-7
# eigenvalues of a scaled information up to this, times its size, are rounding errors
ZERO_EIGENVALUE = 1e-12


class Objective(ABC):
    """A function of parameters (size,) to be maximised.

    All results are per observation.

    Attributes
    ----------
    rounding : float
        Rounding error of the objective, relative to its size or to the largest parameter.
    """

    rounding: ClassVar[float] = 1e-14

    @abstractmethod
    def value(self, theta: np.ndarray) -> float:
        """Return the objective at `theta`.

        The other methods are then evaluated at the same point.
        """

    @abstractmethod
    def gradient(self) -> np.ndarray:
        """Return the gradient (size,)."""

    @abstractmethod
    def curvatures(self) -> list[np.ndarray]:
        """Return minus the Hessian (size, size), followed by positive semidefinite matrices.

        The positive semidefinite matrices guarantee an ascent direction.
        """


class Maximum(NamedTuple):
    """Result of `maximise`: the point, the objective, its gradient norm, and the number of steps.

    The norm is evaluated at the point. If the iteration stopped after `itmax` steps, it is
    evaluated before the last step.
    """

    theta: np.ndarray
    value: float
    norm: float
    n_iter: int


class StateLikelihood(Objective):
    """`Objective` of complete rows: ``target . theta - ln Z(theta) - sum(penalty theta^2) / 2``.

    Parameters
    ----------
    table : StateTable
    target : ndarray, shape (size,)
        Observed moments.
    penalty : ndarray, shape (size,)
        L2 penalty of each parameter.
    support : ndarray of bool, shape (n,), or None
        States included in ln Z; None for all possible states.
    basis : ndarray of bool, shape (size,)
        Parameters that are sufficient to describe these states (see `existence.rank`). The other
        parameters remain constant, because the information matrix of all parameters would not have
        a Cholesky factor.

    Attributes
    ----------
    theta : ndarray, shape (size,)
        The most recent argument of `value`.
    p : ndarray, shape (n,)
        Probabilities of all states at `theta`.
    mu : ndarray, shape (size,)
        Moments at `theta`, after a call to `gradient`.
    """

    def __init__(
        self,
        table: StateTable,
        target: np.ndarray,
        penalty: np.ndarray,
        support: np.ndarray | None,
        basis: np.ndarray,
    ):
        self.table = table
        self.target = target
        self.penalty = penalty
        self.support = support
        self.basis = basis

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at `theta`."""
        log_z, self.p = self.table.log_partition(theta, self.support)
        self.theta = theta
        return float(self.target @ theta - log_z - 0.5 * self.penalty @ theta**2)

    def gradient(self) -> np.ndarray:
        """Return the gradient (size,): observed minus expected moments, minus ridge times theta."""
        self.mu = self.table.moments(self.p)
        return self.target - self.mu - self.penalty * self.theta

    def curvatures(self) -> list[np.ndarray]:
        """Return the penalised Fisher information, with zeros for parameters outside the basis."""
        information = self.table.covariances(self.p, self.mu)
        information[~self.basis] = 0.0
        information[:, ~self.basis] = 0.0
        return [information + np.diag(self.penalty)]


def maximise(
    objective: Objective, start: np.ndarray, tolerance: float, itmax: int, aim: float = np.inf
) -> Maximum:
    """Maximise a function by Newton's method with step halving.

    Parameters
    ----------
    objective : Objective
    start : ndarray, shape (size,)
    tolerance : float
        Norm of the gradient at which the iteration stops. One more step is then taken to make small
        probabilities accurate.
    itmax : int
        Maximum number of steps.
    aim : float, optional
        A smaller norm, for states with frequencies below `tolerance`. The iteration continues until
        this norm is reached, as long as each step at least halves the norm.
    """
    theta = start.copy()
    within_tolerance = False
    norm = np.inf
    n_iter = 0
    value = objective.value(theta)
    while n_iter < itmax:
        n_iter += 1
        gradient = objective.gradient()
        last_norm = norm
        norm = float(np.linalg.norm(gradient))
        if norm == 0.0 or (within_tolerance and (norm <= aim or norm > 0.5 * last_norm)):
            break
        # the step below is the last one unless `aim` requires more
        within_tolerance = norm <= tolerance
        step = _uphill_step(objective.curvatures(), gradient)
        # length: fraction of the Newton step
        slope = float(gradient @ step)
        length = 1.0
        error = objective.rounding * max(abs(value), float(np.abs(theta).max(initial=0.0)))
        while True:
            candidate = theta + length * step
            new_value = objective.value(candidate)
            is_better = new_value >= value + SUFFICIENT_INCREASE * length * slope - error
            if is_better or length < SHORTEST_STEP:
                break
            length *= 0.5
        if not is_better:
            value = objective.value(theta)  # evaluate the objective at the returned point
            break
        theta = candidate
        value = new_value
    return Maximum(theta, value, norm, n_iter)


def _uphill_step(curvatures: list[np.ndarray], gradient: np.ndarray) -> np.ndarray:
    """Return the Newton step (size,) for the first matrix that has no negative eigenvalues.

    The step is zero for parameters without information and along directions without curvature.
    """
    from scipy.linalg import lapack

    for curvature in curvatures:
        is_informed = curvature.diagonal() > NO_INFORMATION
        scale = np.sqrt(np.where(is_informed, curvature.diagonal(), 1.0))
        scaled_gradient = np.where(is_informed, gradient, 0.0) / scale
        scaled = np.where(
            np.outer(is_informed, is_informed), curvature / np.outer(scale, scale), 0.0
        )
        scaled[~is_informed, ~is_informed] = 1.0  # on the diagonal: their step is then 0
        factor, failed = lapack.dpotrf(scaled, lower=1)
        if not failed and factor.diagonal().min() > MIN_PIVOT:
            return lapack.dpotrs(factor, scaled_gradient, lower=1)[0] / scale
        eigenvalues, eigenvectors = eigen.eigenvectors(scaled)  # in increasing order
        rounding = ZERO_EIGENVALUE * len(scaled)
        # negative eigenvalues of the last matrix are rounding errors
        if curvature is curvatures[-1] or eigenvalues[0] > -rounding:
            break
    is_curved = eigenvalues > rounding
    vectors = eigenvectors[:, is_curved]
    return (vectors / eigenvalues[is_curved]) @ (vectors.T @ scaled_gradient) / scale
