"""Minimise over a working set with the group penalty, for more than two classes.

Proximal gradient steps find the nonzero terms, and Newton's method finds their weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bbl.parallel import stop_flag
from bbl.sparse.products import Products
from bbl.sparse.workingset import MAX_INTERCEPT, ROUNDING, Descent, row_norms, violations

__all__ = ["minimise_groups"]

# With K > 2 classes, the coordinate descent of `workingset` has only a bound on the curvature and
# takes many steps. Here, the Hessians of the loss and the penalty are exact, and only their
# products with vectors are computed.

FIRST_CURVATURE = 1e-3  # for each unit of row weight; doubled until it bounds the loss along a step
# factor that decreases the curvature after each step, so that steps can become longer
EASING = 0.95
# the curvature is only decreased if the loss changes by at least this many units of its rounding
# error
STEP_BEYOND_ROUNDING = 1e3
MAX_PROXIMAL_STEPS = 60  # maximum number of proximal steps between runs of Newton's method
# Newton's method starts after this many consecutive proximal steps with the same terms
STABLE_STEPS = 5
MAX_CG_STEPS = 200  # maximum number of conjugate gradient steps for each Newton step
# absolute value of an intercept at its bound, except for rounding errors
AT_BOUND = (1.0 - 1e-12) * MAX_INTERCEPT
# maximum number of rounds of both kinds of steps without progress beyond rounding
MAX_STALLED_ROUNDS = 5
# smallest step of the line search; if a smaller step would be needed, proximal steps must first
# drop terms
LEAST_STEP = 1e-3

Floats = NDArray[np.float64]


class Point(NamedTuple):
    """Weights (D, q) and intercept (q,), with the resulting link (q, n) and loss."""

    theta: Floats
    intercept: Floats
    link: Floats
    loss: float


class Slope(NamedTuple):
    """Gradients of the loss with respect to weights (D, q) and intercept (q,), and the violation of
    the optimality conditions.

    Gradients are zero for intercepts that remain at their bound. The violation is measured in units
    of the penalties.
    """

    theta: Floats
    intercept: Floats
    violation: float


def minimise_groups(descent: Descent) -> float:
    """Minimise over the working set of `descent` in place, and return the remaining violation.

    The iteration stops if the violation is at most ``descent.max_violation``, after
    ``descent.max_steps`` steps of either kind, or if no step makes progress beyond rounding errors.
    """
    point = Point(descent.theta, descent.intercept, descent.link, descent.loss)
    curvature = FIRST_CURVATURE * descent.problem.total
    slope = _slope_at(descent, point)
    descent.n_steps = 0
    stop = stop_flag()
    is_done = slope.violation <= descent.max_violation
    least_violation = slope.violation
    n_stalled = 0
    while not is_done:
        before = _objective(descent, point)
        point, curvature = _proximal_steps(descent, point, curvature)
        slope = _slope_at(descent, point)
        if slope.violation > descent.max_violation:
            point, slope = _newton_steps(descent, point, slope)
        # near the minimum, the violation still decreases while the objective changes only by
        # rounding errors
        is_lower = before - _objective(descent, point) > 1e-3 * ROUNDING * abs(before)
        is_better = slope.violation < 0.9 * least_violation
        least_violation = min(least_violation, slope.violation)
        n_stalled = 0 if is_lower or is_better else n_stalled + 1
        is_done = (
            slope.violation <= descent.max_violation
            or descent.n_steps >= descent.max_steps
            or n_stalled == MAX_STALLED_ROUNDS
            or bool(stop[0])
        )
    descent.theta = point.theta
    descent.intercept = point.intercept
    descent.link = point.link
    descent.loss = point.loss
    return slope.violation


def _objective(descent: Descent, point: Point) -> float:
    """Return the loss plus the penalties."""
    return point.loss + descent.penalties(point.theta)


def _slope_at(descent: Descent, point: Point) -> Slope:
    """Return the slope at `point`, which must be where the loss was most recently evaluated."""
    gradient = descent.products.gradient(descent.slope)
    by_intercept = descent.slope.sum(axis=1)
    # an intercept at its bound that a downhill step would move beyond it
    is_bounded = (np.abs(point.intercept) >= AT_BOUND) & (by_intercept * point.intercept < 0.0)
    by_intercept[is_bounded] = 0.0
    largest = float(np.abs(by_intercept).max())
    violation = violations(
        point.theta, gradient, descent.products.starts, descent.lambdas, group=True
    )
    return Slope(gradient, by_intercept, max(violation, largest / float(descent.lambdas.min())))


def _proximal_steps(descent: Descent, point: Point, curvature: float) -> tuple[Point, float]:
    """Take accelerated proximal gradient steps (Beck & Teboulle 2009).

    Stop if the set of nonzero terms does not change any more, and return the point and the last
    curvature.

    The most recent evaluation of the loss must have been at `point`; afterwards, it is at the
    returned point.
    """
    products = descent.products
    ahead = point  # the point at which gradients are taken
    momentum = 1.0
    n_stable = 0
    for _ in range(MAX_PROXIMAL_STEPS):
        descent.n_steps += 1
        gradient = products.gradient(descent.slope)
        by_intercept = descent.slope.sum(axis=1)
        while True:  # find a curvature that bounds the loss along the step
            target = ahead.theta - gradient / curvature
            norms = row_norms(target, products.starts, group=True)
            left = np.maximum(norms - descent.lambdas / curvature, 0.0)
            theta = target * np.repeat(left / np.maximum(norms, 1e-300), products.sizes)[:, None]
            intercept = np.clip(
                ahead.intercept - by_intercept / curvature, -MAX_INTERCEPT, MAX_INTERCEPT
            )
            link = products.link(theta, intercept)
            new = Point(theta, intercept, link, descent.evaluate(link))
            move = theta - ahead.theta
            intercept_move = intercept - ahead.intercept
            squares = float((move * move).sum() + intercept_move @ intercept_move)
            bound = ahead.loss + float((gradient * move).sum() + by_intercept @ intercept_move)
            if new.loss <= bound + 0.5 * curvature * squares + ROUNDING * abs(ahead.loss):
                break
            curvature *= 2.0
        had_weight = row_norms(point.theta, products.starts, group=True) > 0.0
        n_stable = n_stable + 1 if np.array_equal(left > 0.0, had_weight) else 0
        # the momentum points uphill
        if ((ahead.theta - theta) * (theta - point.theta)).sum() > 0.0:
            momentum = 1.0
        next_momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        share = (momentum - 1.0) / next_momentum
        momentum = next_momentum
        ahead_link = new.link + share * (new.link - point.link)
        ahead_theta = theta + share * (theta - point.theta)
        ahead_intercept = intercept + share * (intercept - point.intercept)
        point = new
        if n_stable == STABLE_STEPS or descent.n_steps >= descent.max_steps:
            break
        ahead = Point(ahead_theta, ahead_intercept, ahead_link, descent.evaluate(ahead_link))
        # if the change of the loss is only a rounding error, a curvature that is too small would be
        # accepted
        if curvature * squares > STEP_BEYOND_ROUNDING * ROUNDING * abs(point.loss):
            curvature *= EASING
    else:
        descent.evaluate(point.link)
    return point, curvature


def _newton_steps(descent: Descent, point: Point, slope: Slope) -> tuple[Point, Slope]:
    """Take Newton steps in the nonzero terms.

    Stop if the optimality conditions hold or if other terms become nonzero, and return the point
    and its slope.
    """
    products = descent.products
    problem = descent.problem
    norms = row_norms(point.theta, products.starts, group=True)
    has_weight = norms > 0.0
    rows = np.repeat(has_weight, products.sizes)
    terms = [products.terms[k] for k in np.flatnonzero(has_weight)]
    active = Products(problem.codes, problem.n_levels, terms)
    lambdas = descent.lambdas[has_weight]
    while descent.n_steps < descent.max_steps and slope.violation > descent.max_violation:
        descent.n_steps += 1
        model = _Model(descent, active, lambdas, point, rows, slope)
        move, intercept_move = model.minimum(min(0.05, 0.5 * math.sqrt(slope.violation)))
        predicted = float((model.gradient * move).sum() + model.by_intercept @ intercept_move)
        objective = point.loss + float(lambdas @ model.norms)
        largest_step = _step_to_bound(point.intercept, intercept_move)
        if largest_step < LEAST_STEP:
            return point, slope
        step = largest_step
        while True:
            weights = model.weights + step * move
            intercept = np.clip(
                point.intercept + step * intercept_move, -MAX_INTERCEPT, MAX_INTERCEPT
            )
            link = active.link(weights, intercept)
            loss = descent.evaluate(link)
            new_objective = loss + float(lambdas @ row_norms(weights, active.starts, group=True))
            if new_objective <= objective + 1e-4 * step * predicted + ROUNDING * abs(objective):
                break
            step *= 0.5
            if step < LEAST_STEP * largest_step:
                descent.evaluate(point.link)  # this restores the slope at `point`
                return point, slope
        theta = point.theta.copy()
        theta[rows] = weights
        point = Point(theta, intercept, link, loss)
        slope = _slope_at(descent, point)
        excess = row_norms(slope.theta, products.starts, group=True) / descent.lambdas - 1.0
        # a term becomes nonzero, or is about to become zero
        if step < largest_step or excess[~has_weight].max(initial=0.0) > 0.5 * slope.violation:
            break
    return point, slope


def _step_to_bound(intercept: Floats, move: Floats) -> float:
    """Return the largest step along `move` that keeps all intercepts within their bounds; it is at
    most 1.

    Intercepts that are already at their bound do not change.
    """
    moves = move != 0.0
    room = MAX_INTERCEPT - np.sign(move[moves]) * intercept[moves]
    return float(min(1.0, (room / np.abs(move[moves])).min(initial=1.0)))


class _Model:
    """Quadratic model of the loss and the penalty at a point, for the nonzero terms.

    `weights` (D, q) contains the weights of the terms, and `norms` (T,) their norms; `gradient` (D,
    q) and `by_intercept` (q,) are the gradients of the loss plus the penalty.
    """

    def __init__(
        self,
        descent: Descent,
        active: Products,
        lambdas: Floats,
        point: Point,
        rows: NDArray[np.bool_],
        slope: Slope,
    ):
        from scipy.special import softmax

        self.active = active
        self.to_scores = descent.to_scores
        self.row_weights = descent.problem.weights
        self.weights = point.theta[rows]
        self.norms = row_norms(self.weights, active.starts, group=True)
        # second derivative of the penalty in directions orthogonal to a term's weights; along the
        # weights, it is 0
        self.bend = np.repeat(lambdas / self.norms, active.sizes)[:, None]
        self.gradient = slope.theta[rows] + self.bend * self.weights
        self.by_intercept = slope.intercept
        self.is_free = (np.abs(point.intercept) < AT_BOUND) | (slope.intercept != 0.0)
        self.p = softmax(self.to_scores @ point.link, axis=0)  # (K, n)
        # diagonal of the Hessian, where correlations of features and classes are ignored
        variance = ((self.to_scores**2).T @ self.p) - (self.to_scores.T @ self.p) ** 2
        by_class = np.maximum(variance @ self.row_weights, 1e-9)
        squares = active.features()[:-1] ** 2 @ self.row_weights / self.row_weights.sum()
        self.diagonal = squares[:, None] * by_class + self.bend
        self.intercept_diagonal = by_class

    def curve(self, v: Floats, v_intercept: Floats) -> tuple[Floats, Floats]:
        """Return the Hessian times weights (D, q) and intercept (q,), with zeros for intercepts
        that remain at their bound.
        """
        scores = self.to_scores @ self.active.link(v, v_intercept)
        centred = scores - (self.p * scores).sum(axis=0)
        slope = self.to_scores.T @ (self.p * centred * self.row_weights)
        along = np.add.reduceat((self.weights * v).sum(axis=1), self.active.starts[:-1])
        radial = np.repeat(along / self.norms**2, self.active.sizes)[:, None]
        out = self.active.gradient(np.ascontiguousarray(slope))
        return out + self.bend * (v - self.weights * radial), slope.sum(axis=1) * self.is_free

    def minimum(self, accuracy: float) -> tuple[Floats, Floats]:
        """Return the step to the minimum, computed by preconditioned conjugate gradients.

        The residual is at most `accuracy` times the gradient.
        """
        step = np.zeros_like(self.gradient)
        intercept_step = np.zeros_like(self.by_intercept)
        residual = -self.gradient
        intercept_residual = -self.by_intercept
        direction = residual / self.diagonal
        intercept_direction = intercept_residual / self.intercept_diagonal
        squares = float((residual * direction).sum() + intercept_residual @ intercept_direction)
        target = accuracy**2 * squares
        for _ in range(MAX_CG_STEPS):
            curved, intercept_curved = self.curve(direction, intercept_direction)
            bend = float((direction * curved).sum() + intercept_direction @ intercept_curved)
            if bend <= 0.0:  # flat except for rounding errors
                break
            length = squares / bend
            step += length * direction
            intercept_step += length * intercept_direction
            residual -= length * curved
            intercept_residual -= length * intercept_curved
            scaled = residual / self.diagonal
            intercept_scaled = intercept_residual / self.intercept_diagonal
            new_squares = float((residual * scaled).sum() + intercept_residual @ intercept_scaled)
            if new_squares <= target:
                break
            direction = scaled + new_squares / squares * direction
            intercept_direction = intercept_scaled + new_squares / squares * intercept_direction
            squares = new_squares
        return step, intercept_step
