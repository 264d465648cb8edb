"""The maximum-likelihood fit of chosen terms, without their penalties, and which of them have no finite one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bbl._ext.sparse import sparse as _kernel
from bbl.memory import check_memory
from bbl.sparse.products import Problem, Products, Term, contrasts
from bbl.sparse.workingset import Weights

__all__ = ["Objective", "Refit", "maximise", "refit"]

RIDGE = 1e-7  # per observation: it tells where an optimum lies that is not finite, or not unique
GRADIENT = 1e-9  # largest entry per observation at which Newton's method ends
MAX_NEWTON_STEPS = 100
MAX_CONJUGATE_STEPS = 200  # of conjugate gradients, in each Newton step
UNBOUNDED = 0.05  # how far the ridge alone holds a weight back, in log odds


class Refit(NamedTuple):
    """Terms with weights of maximum likelihood.

    Attributes
    ----------
    weights : dict of term to ndarray, shape (d, q)
    intercept : ndarray, shape (q,)
    loss : float
    unbounded : tuple of terms
        Those that grow without end: they separate classes.
    """

    weights: Weights
    intercept: np.ndarray
    loss: float
    unbounded: tuple[Term, ...]


class Objective:
    """Loss and ridge of features Z (D + 1, n), the last a row of ones for the intercept; theta is (D + 1, q)."""

    def __init__(self, problem: Problem, Z: np.ndarray):
        n = problem.n
        self.problem, self.scores, self.ridge, self.Z = problem, contrasts(problem.K), RIDGE * problem.total, Z
        self.slope, self.curve = np.empty((problem.K - 1, n)), np.empty(n)

    def value(self, theta: np.ndarray) -> tuple[float, float]:
        """Return objective and loss; slope, curvature and probabilities are those there from now on."""
        problem = self.problem
        self.link = np.ascontiguousarray(theta.T @ self.Z)
        loss = _kernel.slopes(self.link, problem.y, problem.weights, self.scores, self.slope, self.curve)
        return loss + 0.5 * self.ridge * float((theta * theta).sum()), loss

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.Z @ self.slope.T + self.ridge * theta

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return the inverse of the Hessian times `right` (D + 1, q), by conjugate gradients; exact at once for two."""
        from scipy.linalg import cho_factor, cho_solve

        factor = cho_factor((self.Z * self.curve) @ self.Z.T + self.ridge * np.eye(len(self.Z)), overwrite_a=True)
        if self.problem.K == 2:
            return cho_solve(factor, right)
        score = self.scores @ self.link
        p = np.exp(score - score.max(axis=0))
        p /= p.sum(axis=0)
        out, residual = np.zeros_like(right), right.copy()
        direction = ready = cho_solve(factor, residual)
        length = float((residual * ready).sum())
        for _ in range(MAX_CONJUGATE_STEPS if length > 0 else 0):
            along = self.scores @ (direction.T @ self.Z)
            along = p * (along - (p * along).sum(axis=0)) * self.problem.weights
            image = self.Z @ (self.scores.T @ along).T + self.ridge * direction
            step = length / float((direction * image).sum())
            out, residual = out + step * direction, residual - step * image
            ready = cho_solve(factor, residual)
            longer = float((residual * ready).sum())
            if longer <= 1e-20 * float((right * out).sum()):
                break
            direction, length = ready + longer / length * direction, longer
        return out


def maximise(objective: Objective, theta: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the weights (D + 1, q) of maximum likelihood and their loss, by Newton's method from `theta`."""
    total = objective.problem.total
    value, loss = objective.value(theta)
    for _ in range(MAX_NEWTON_STEPS):
        gradient = objective.gradient(theta)
        if np.abs(gradient).max() <= GRADIENT * total:
            break
        direction = objective.solve(-gradient)
        expected, step = float((gradient * direction).sum()), 1.0
        while step > 1e-10:
            new = theta + step * direction
            new_loss, at = objective.value(new)
            if new_loss <= value + 1e-4 * step * expected + 1e-14 * abs(value):
                break
            step *= 0.5
        else:
            objective.value(theta)
            break
        theta, value, loss = new, new_loss, at
    return theta, loss


def refit(problem: Problem, weights: Weights, intercept: np.ndarray) -> Refit:
    """Fit chosen terms by maximum likelihood, starting from their penalised weights.

    Parameters
    ----------
    problem : Problem
    weights : dict of term to ndarray, shape (d, q)
    intercept : ndarray, shape (q,)

    Notes
    -----
    A ridge of 1e-7 per observation keeps the weights finite where classes are separated, and unique where features
    coincide. A weight that it alone holds back, by over 0.05 in a Newton step, is told as unbounded.
    """
    products = Products(problem.codes, problem.n_levels, list(weights))
    D, n = int(products.at[-1]), problem.n
    check_memory(16.0 * (D + 1) * (n + D), f"A refit of {D} weights", "Choose fewer terms, or take refit=False.")
    objective = Objective(problem, products.features())
    theta, loss = maximise(objective, np.concatenate([*weights.values(), intercept[None]]))
    held = np.abs(objective.solve(objective.ridge * theta))[:-1]
    at_ = products.at
    parts = {t: theta[at_[k] : at_[k + 1]] for k, t in enumerate(products.terms)}
    return Refit(parts, theta[-1], loss, _unbounded(products.terms, at_, held))


def _unbounded(terms: Sequence[Term], at: np.ndarray, held: np.ndarray) -> tuple[Term, ...]:
    return tuple(t for k, t in enumerate(terms) if held[at[k] : at[k + 1]].max(initial=0.0) > UNBOUNDED)
