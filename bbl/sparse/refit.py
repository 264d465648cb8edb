"""Refit selected terms by maximum likelihood, and identify weights without a finite optimum.

D is the number of features of all terms, and q = K - 1 for K classes; *link* and *slope* are
defined in the glossary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl._ext.sparse import sparse as _kernel
from bbl.memory import check_memory
from bbl.sparse.products import Problem, Products, Term, contrasts
from bbl.sparse.workingset import Weights

__all__ = ["Objective", "Refit", "maximise", "refit"]

RIDGE = 1e-7  # for each observation; makes all optima finite and unique
MAX_GRADIENT = 1e-9  # for each observation and weight; Newton's method stops at this gradient
MAX_NEWTON_STEPS = 100
MAX_CONJUGATE_STEPS = 200  # maximum number of conjugate gradient steps for each Newton step
# a weight has no finite optimum if a Newton step without the ridge changes it by more than this
UNBOUNDED_SHIFT = 0.05


class Refit(NamedTuple):
    """Terms with maximum-likelihood weights."""

    weights: Weights  # (d, q) for each term
    intercept: np.ndarray  # (q,)
    loss: float  # weighted sum of -ln p
    # terms that separate classes, so that some weights have no finite optimum
    unbounded: tuple[Term, ...]


class Objective:
    """The weighted loss plus ``ridge / 2 |theta|^2``, as a function of the weights theta (D + 1,
    q).

    Parameters
    ----------
    problem : Problem
        The n rows, with classes `y` (n,) and `weights` (n,), which have the sum `total`.
    Z : ndarray, shape (D + 1, n)
        Features of the rows, followed by a row of ones for the intercept.

    Attributes
    ----------
    ridge : float
        1e-7 times the sum of the weights.
    to_scores : ndarray, shape (K, q)
        Maps links to class scores.
    link, slope : ndarrays, shape (q, n)
        Values at the most recently evaluated weights.
    curve : ndarray, shape (n,)
        Second derivative of the loss with respect to the link at these weights. It is exact for two
        classes, and otherwise an upper bound.
    """

    def __init__(self, problem: Problem, Z: np.ndarray):
        n = problem.n
        self.problem = problem
        self.to_scores = contrasts(problem.K)
        self.ridge = RIDGE * problem.total
        self.Z = Z
        self.slope = np.empty((problem.K - 1, n))
        self.curve = np.empty(n)

    def value(self, theta: np.ndarray) -> tuple[float, float]:
        """Return the objective and the loss at `theta`, and set `link`, `slope` and `curve`."""
        problem = self.problem
        self.link = np.ascontiguousarray(theta.T @ self.Z)
        # this sets slope and curve
        loss = _kernel.slopes(
            self.link, problem.y, problem.weights, self.to_scores, self.slope, self.curve
        )
        return loss + 0.5 * self.ridge * float((theta * theta).sum()), loss

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Return the gradient (D + 1, q) at `theta` (D + 1, q), the argument of the most recent
        call to `value`.
        """
        return self.Z @ self.slope.T + self.ridge * theta

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return the inverse Hessian times `right` (D + 1, q), computed by preconditioned conjugate
        gradients.

        The preconditioner is a Cholesky factor of ``Z diag(curve) Z' + ridge`` (D + 1, D + 1),
        which is the same for each of the q links. For two classes, this matrix is the Hessian, so
        the first step is exact; for more classes, it is an upper bound.
        """
        from scipy.linalg import cho_factor
        from scipy.linalg.lapack import dpotrs  # cho_solve without its checks
        from scipy.special import softmax

        scaled = self.Z * np.sqrt(self.curve)
        # a matrix times its own transpose takes half of the work
        curvature_matrix = scaled @ scaled.T
        curvature_matrix.flat[:: len(curvature_matrix) + 1] += self.ridge  # the diagonal
        # the matrix is symmetric, so its transpose avoids a copy
        factor, _ = cho_factor(curvature_matrix.T, overwrite_a=True, check_finite=False)
        if self.problem.K == 2:
            return dpotrs(factor, right)[0]
        p = softmax(self.to_scores @ self.link, axis=0)  # class probabilities (K, n)
        solution = np.zeros_like(right)
        residual = right.copy()
        direction = preconditioned = dpotrs(factor, residual)[0]
        squared_norm = float((residual * preconditioned).sum())
        # no step is needed if `right` is zero
        for _ in range(MAX_CONJUGATE_STEPS if squared_norm > 0 else 0):
            # change along the direction in the scores, then in the weighted probabilities
            row_change = self.to_scores @ (direction.T @ self.Z)
            row_change = p * (row_change - (p * row_change).sum(axis=0)) * self.problem.weights
            hessian_direction = self.Z @ (self.to_scores.T @ row_change).T + self.ridge * direction
            step = squared_norm / float((direction * hessian_direction).sum())
            solution = solution + step * direction
            residual = residual - step * hessian_direction
            preconditioned = dpotrs(factor, residual)[0]
            new_squared_norm = float((residual * preconditioned).sum())
            # a relative residual of 1e-10
            if new_squared_norm <= 1e-20 * float((right * solution).sum()):
                break
            direction = preconditioned + new_squared_norm / squared_norm * direction
            squared_norm = new_squared_norm
        return solution


def maximise(objective: Objective, theta: np.ndarray) -> tuple[np.ndarray, float]:
    """Minimise the objective by Newton's method, starting from `theta`; return the weights (D + 1,
    q) and the loss.

    The loss does not include the ridge.
    """
    total = objective.problem.total
    value, loss = objective.value(theta)
    for _ in range(MAX_NEWTON_STEPS):
        gradient = objective.gradient(theta)
        if np.abs(gradient).max() <= MAX_GRADIENT * total:
            break
        direction = objective.solve(-gradient)
        predicted_change = float((gradient * direction).sum())
        step = 1.0
        while step > 1e-10:
            trial = theta + step * direction
            new_value, new_loss = objective.value(trial)
            # sufficient decrease (Armijo), except for rounding errors
            if new_value <= value + 1e-4 * step * predicted_change + 1e-14 * abs(value):
                break
            step *= 0.5
        else:  # no step decreases the objective: restore link, slope and curvature at `theta`
            objective.value(theta)
            break
        theta = trial
        value = new_value
        loss = new_loss
    return theta, loss


def refit(problem: Problem, weights: Weights, intercept: np.ndarray) -> Refit:
    """Fit terms by maximum likelihood, starting from penalised weights (d, q) and `intercept`.

    A ridge of 1e-7 per observation keeps weights finite if classes are separated, and makes them
    unique if features coincide. Weights are reported as unbounded if a Newton step without the
    ridge would change them by more than 0.05.
    """
    products = Products(problem.codes, problem.n_levels, list(weights))
    # starts (T + 1,): first feature of each term, and D
    D = int(products.starts[-1])
    n = problem.n
    # in bytes: the features and a scaled copy, the Hessian and its factor
    check_memory(
        16.0 * (D + 1) * (n + D),
        f"A refit with {D} weights",
        "Select fewer terms, or use refit=False.",
    )
    Z = products.features()
    scale = np.ones((D + 1, 1))
    if problem.has_numbers:  # the ridge and the test for bounds require features of similar size
        rms = np.sqrt((Z * Z) @ problem.weights / problem.total)
        scale = np.where(rms > 0, rms, 1.0)[:, None]
        Z /= scale
    objective = Objective(problem, Z)
    start = np.concatenate([*weights.values(), intercept[None]])
    theta, loss = maximise(objective, start * scale)
    # change of the weights by a Newton step for the loss alone, whose gradient at the optimum is
    # -ridge theta; the Hessian includes the ridge so that it is not singular. If classes are
    # separated, the curvature is near 0, and the step is long
    shift = np.abs(objective.solve(objective.ridge * theta))[:-1]
    rows = {
        t: slice(products.starts[k], products.starts[k + 1]) for k, t in enumerate(products.terms)
    }
    theta = theta / scale
    unbounded = tuple(
        t for t, term_rows in rows.items() if shift[term_rows].max(initial=0.0) > UNBOUNDED_SHIFT
    )
    return Refit({t: theta[term_rows] for t, term_rows in rows.items()}, theta[-1], loss, unbounded)
