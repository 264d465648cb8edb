"""Exact penalised fits with many candidate terms, by descent over a working set.

The objective is ``sum_i w_i (-ln p(y_i | x_i)) + sum_t lambda_|t| Omega(W_t)`` with a free
intercept and weights ``W_t`` (d, q), where Omega is ``sqrt(d) ||W_t||`` (group penalty) or the sum
of the norms of the rows of ``W_t`` (l1). T terms have D features. A *violator* is a term with zero
weights whose gradient exceeds its penalty; such terms are added to the working set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bbl._ext.sparse import sparse as _kernel
from bbl.parallel import stop_flag
from bbl.sparse.products import Problem, Products, Term, candidate_ratios, contrasts

__all__ = ["Penalty", "Stage", "Weights", "minimise", "null_slope"]

# violation of the optimality conditions by candidates, in units of each term's penalty
MAX_VIOLATION = 1e-6
WORKING_SET_VIOLATION = 2e-7  # the same for terms in the working set
MAX_NEWTON_STEPS = 1000
MAX_SWEEPS = 2000  # maximum number of coordinate descent sweeps for each Newton step
# the same for ill-conditioned Hessians, because `_finish_model` follows
FEW_SWEEPS = 100
MAX_MODEL_STEPS = 20  # maximum number of Newton steps in `_finish_model`
# maximum number of consecutive Newton steps whose quadratic model is not minimised
MAX_EXHAUSTED_STEPS = 50
# maximum number of passes over all candidates; each pass adds violators to the working set
MAX_ROUNDS = 1000
FULL_HESSIAN_SIZE = 64  # for up to this many weights, the Hessian is always computed
# for up to this many weights, the Hessian is computed if coordinate descent over rows is slow
GRAM_SIZE = 2048
# coordinate descent is slow if it takes more than one sweep for this many weights
WEIGHTS_PER_SWEEP = 16
# proportion of the diagonal that is added to a Hessian; larger than rounding errors in single
# precision
RIDGE = 1e-6
SMALL_RIDGE = 1e-13  # the same in double precision
ROUNDING = 1e-12  # relative rounding error of the objective
# bounds on the error of a long sum, in units of the rounding error of the summed magnitudes. n
# random errors add up to about sqrt(n) units, and sums are computed in parts. In single precision,
# a bound that is too large only causes more checks in double precision
SUM_ERROR_ULPS = 512
GRADIENT_ERROR_ULPS = 64  # in double precision
# largest rounding error, in units of the penalty, at which single precision is used
MAX_ERROR_SHARE = 0.05
NEW_VIOLATORS = 300  # minimum number of candidates that are checked at a time for the working set
MAX_INTERCEPT = 30.0  # bound on the intercept, for classes without rows

Weights = dict[Term, np.ndarray]


class Penalty(NamedTuple):
    """Penalties on terms."""

    lambdas: tuple[float, ...]  # penalties on the sum of losses, for orders 1, 2, ...
    group: bool = True  # group penalty; if False, l1

    def of_terms(self, problem: Problem, terms: Sequence[Term]) -> np.ndarray:
        """Return the penalties (T,) of T terms, including the factor sqrt(d) of the group
        penalty.
        """
        by_order = np.array([self.lambdas[len(t) - 1] for t in terms], dtype=float)
        return by_order * np.sqrt([problem.size(t) for t in terms]) if self.group else by_order

    def scaled(self, factor: float) -> Penalty:
        """Return the penalties multiplied by a factor."""
        return Penalty(tuple(factor * v for v in self.lambdas), self.group)


@dataclass(frozen=True, eq=False)
class Stage:
    """The minimum over a set of terms."""

    # (d, q) for each term with nonzero weights, in increasing order of size and predictors
    weights: Weights
    intercept: np.ndarray  # (q,)
    loss: float  # weighted sum of -ln p(y | x)
    objective: float  # loss plus penalties
    # largest violation of the optimality conditions by any candidate, in units of its penalty
    violation: float
    rounds: int  # number of passes over all candidates


def row_norms(theta: np.ndarray, starts: np.ndarray, group: bool) -> np.ndarray:
    """Return the norms of weights (D, q): for each term (T,) if `group`, and otherwise for each
    feature (D,).

    The rows of each term start at `starts` (T + 1,); the last entry is D.
    """
    if theta.shape[1] == 1 and (not group or len(theta) == len(starts) - 1):  # of single numbers
        return np.abs(theta[:, 0])
    squares = np.einsum("ij,ij->i", theta, theta)
    # reduceat needs at least one row
    return np.sqrt(np.add.reduceat(squares, starts[:-1]) if group and len(squares) else squares)


def violations(
    theta: np.ndarray, gradient: np.ndarray, starts: np.ndarray, penalty: np.ndarray, group: bool
) -> float:
    """Return the largest violation of the optimality conditions by the weights (D, q).

    The violation is measured in units of the penalties (T,).

    `gradient` (D, q) is the gradient of the loss; the rows of each term start at `starts` (T + 1,).
    At nonzero weights, the gradient of the loss plus the penalty must be zero. At zero weights, the
    gradient of the loss must not exceed the penalty.
    """
    if not len(penalty):
        return 0.0
    sizes = starts[1:] - starts[:-1]
    penalties = penalty if group else np.repeat(penalty, sizes)
    norm = row_norms(theta, starts, group)
    # multiplied by the weights, this is the gradient of the penalty
    shrinkage = penalties / np.where(norm > 0, norm, 1.0)
    residual = gradient + theta * (np.repeat(shrinkage, sizes) if group else shrinkage)[:, None]
    residual_norms = row_norms(residual, starts, group)
    return float(
        (
            np.where(norm > 0, residual_norms, np.maximum(residual_norms - penalties, 0.0))
            / penalties
        ).max()
    )


class Descent:
    """A working set of T terms with their weights, and the minimisation over this set.

    Parameters
    ----------
    problem : Problem
        The n rows, with classes `y` (n,) and `weights` (n,), which have the sum `total`.
    penalty : Penalty
    weights : dict of term to ndarray, shape (d, q)
        Initial terms with starting weights.
    intercept : ndarray, shape (q,)
        Starting value of the intercept.

    Attributes
    ----------
    products : Products
        The terms in the kernels' format: `codes` (T, n) contains the states of the terms in the
        rows, `sizes` (T,) their numbers of features, `starts` (T + 1,) the first row of each term
        in `theta`, and `layout` the feature tables.
    theta : ndarray, shape (D, q)
        Weights of the terms; `intercept` (q,) is stored separately.
    lambdas : ndarray, shape (T,)
        Penalties of the terms.
    to_scores : ndarray, shape (K, q)
        Maps links to class scores.
    link : ndarray, shape (q, n)
        Link at `theta` and `intercept`.
    slope, curve : ndarrays, shapes (q, n) and (n,)
        First derivative of the loss at the most recently evaluated link, and a bound on the second
        derivative.
    loss : float
        Loss at `theta` and `intercept`.
    prefers_hessian : bool
        Whether Hessians are computed up to a larger size, as for K > 2 or after coordinate descent
        over rows was slow.
    is_ill_conditioned : bool
        Whether coordinate descent with a Hessian has reached the maximum number of sweeps. From
        then on, Hessians are computed in double precision, and `_finish_model` is used.
    n_exhausted : int
        Number of consecutive Newton steps, up to the last one, whose model was not minimised.
    max_violation : float
        Violation at which the descent stops, in units of penalties.
    n_steps : int
        Number of Newton steps in the last descent.
    max_steps : int
        Maximum number of Newton steps in a descent.
    """

    def __init__(self, problem: Problem, penalty: Penalty, weights: Weights, intercept: np.ndarray):
        self.problem = problem
        self.penalty = penalty
        self.to_scores = contrasts(problem.K)
        self.products = Products(problem.codes, problem.n_levels, list(weights))
        # the set may be empty
        self.theta = np.concatenate([np.empty((0, problem.K - 1)), *weights.values()])
        self.intercept = intercept.copy()
        self.lambdas = penalty.of_terms(problem, self.products.terms)
        self.slope = np.empty((problem.K - 1, problem.n))
        self.curve = np.empty(problem.n)
        self.link = self.products.link(self.theta, self.intercept)
        self.loss = self.evaluate(self.link)
        # with more than two classes, `curve` is only a bound, so the exact Hessian is computed from
        # the start
        self.prefers_hessian = problem.K > 2
        self.is_ill_conditioned = False
        self.n_exhausted = 0
        self.max_violation = WORKING_SET_VIOLATION
        self.n_steps = 0
        self.max_steps = MAX_NEWTON_STEPS

    def extend(self, terms: Sequence[Term]) -> None:
        """Add terms to the working set, with zero weights."""
        self.products.extend(terms)
        n_new = int(self.products.starts[-1]) - len(self.theta)
        self.theta = np.concatenate([self.theta, np.zeros((n_new, self.problem.K - 1))])
        self.lambdas = self.penalty.of_terms(self.problem, self.products.terms)

    def drop_zeros(self, n_fixed: int) -> None:
        """Remove terms with zero weights; the first `n_fixed` terms are not candidates and are
        always kept.
        """
        norm = row_norms(self.theta, self.products.starts, group=True)
        is_kept = (norm > 0) | (np.arange(len(norm)) < n_fixed)
        self.theta = self.theta[np.repeat(is_kept, self.products.sizes)]
        self.products.keep(np.flatnonzero(is_kept))
        self.lambdas = self.lambdas[is_kept]

    def penalties(self, theta: np.ndarray) -> float:
        """Return the total penalty of weights (D, q)."""
        norm = row_norms(theta, self.products.starts, self.penalty.group)
        lambdas = (
            self.lambdas if self.penalty.group else np.repeat(self.lambdas, self.products.sizes)
        )
        return float(lambdas @ norm)

    def evaluate(self, link: np.ndarray) -> float:
        """Return the loss at a link (q, n), and set `slope` and `curve`."""
        problem = self.problem
        # this sets slope and curve
        return _kernel.slopes(
            link, problem.y, problem.weights, self.to_scores, self.slope, self.curve
        )

    def minimise(self) -> float:
        """Minimise over the working set by proximal Newton steps, and return the remaining
        violation.
        """
        products = self.products
        group = self.penalty.group
        penalty = self.penalties(self.theta)
        least_penalty = float(self.lambdas.min(initial=math.inf))
        if math.isinf(least_penalty):  # without terms, only the intercept is fitted
            least_penalty = min(self.penalty.lambdas)
        # violation that may be due to rounding errors of the gradient, which is a sum over rows
        rounding = GRADIENT_ERROR_ULPS * np.finfo(float).eps * self.problem.total / least_penalty
        if self.problem.has_numbers:  # their features may be larger than those of categories
            rounding *= max(1.0, float(np.abs(products.layout[1]).max(initial=0.0)))
        violation = math.inf
        self.n_exhausted = 0
        max_violation = max(self.max_violation, rounding)
        for step_number in range(self.max_steps):
            self.n_steps = step_number
            gradient = products.gradient(self.slope)
            intercept_gradient = self.slope.sum(axis=1)
            # an intercept at its bound that a downhill step would move beyond it
            is_bounded = (np.abs(self.intercept) >= MAX_INTERCEPT) & (
                intercept_gradient * self.intercept < 0
            )
            violation = violations(self.theta, gradient, products.starts, self.lambdas, group)
            intercept_violation = (
                float(np.abs(np.where(is_bounded, 0.0, intercept_gradient)).max()) / least_penalty
            )
            violation = max(violation, intercept_violation)
            if violation <= max_violation:
                break
            # the quadratic model is considered to be minimised at this violation. It is a
            # proportion of the current violation, which decreases quadratically below 1, but at
            # least a tenth of the final violation
            tolerance = max(0.1 * max_violation, 0.05 * violation * min(1.0, violation))
            theta, intercept = self._newton_target(gradient, intercept_gradient, tolerance)
            step = theta - self.theta
            intercept_step = intercept - self.intercept
            predicted_change = float((gradient * step).sum() + intercept_gradient @ intercept_step)
            predicted_change += self.penalties(theta) - penalty
            # positive if the intercept is at its bound; if the model was not minimised, rounding
            # errors of the objective may exceed the change
            least_change = ROUNDING * abs(self.loss + penalty) if self.n_exhausted else 0.0
            if -predicted_change <= least_change:
                break
            new_penalty = self._line_search(theta, intercept, penalty, predicted_change)
            if new_penalty is None or self.n_exhausted == MAX_EXHAUSTED_STEPS:
                break  # no decrease beyond rounding errors, or hardly any
            penalty = new_penalty
        return violation

    def _newton_target(
        self, gradient: np.ndarray, intercept_gradient: np.ndarray, tolerance: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return weights (D, q) and intercept (q,) that minimise the penalised quadratic model at
        `link`.

        For a step s, the model is ``<gradient, s> + s' H s / 2`` plus the penalty after the step,
        where H is the Hessian of the loss. `gradient` (D, q) and `intercept_gradient` (q,) are
        gradients at the link; `tolerance` is the violation at which coordinate descent stops. With
        few weights, the Hessian of the *active* terms is computed. These are the terms whose
        weights are nonzero or whose gradient exceeds the penalty; other terms remain zero. With
        many weights, coordinate descent over all terms uses the rows instead of the Hessian.
        """
        products = self.products
        group = self.penalty.group
        q = self.problem.K - 1
        is_active = (row_norms(self.theta, products.starts, group=True) > 0) | (
            self._gradient_norms(gradient) > self.lambdas
        )
        active = np.flatnonzero(is_active)
        D = int(products.sizes[active].sum())  # features of active terms
        if (D + 1) * q > (GRAM_SIZE if self.prefers_hessian else FULL_HESSIAN_SIZE):
            theta = self.theta.copy()
            intercept = self.intercept.copy()
            may_form_hessian = not self.prefers_hessian and (D + 1) * q <= GRAM_SIZE
            # if more sweeps are needed, coordinate descent is considered slow, and the Hessian is
            # computed from now on
            max_sweeps = min(MAX_SWEEPS, D // WEIGHTS_PER_SWEEP) if may_form_hessian else MAX_SWEEPS
            # this sets theta, intercept and the copy of the slope; it ends early if the stop flag
            # is set
            n_sweeps = _kernel.descend(
                products.codes,
                *products.layout,
                self.lambdas,
                group,
                self.curve,
                MAX_INTERCEPT,
                tolerance,
                max_sweeps,
                stop_flag(),
                self.slope.copy(),
                theta,
                intercept,
            )
            self.prefers_hessian = self.prefers_hessian or n_sweeps == max_sweeps
            return theta, intercept
        # single precision is usually enough because the Hessian affects the steps, but not the
        # minimum
        dtype, ridge = (np.float64, SMALL_RIDGE) if self.is_ill_conditioned else (np.float32, RIDGE)
        hessian = products.hessian(self.link, self.problem.weights, self.curve, active, dtype)
        hessian.flat[:: len(hessian) + 1] *= 1 + ridge  # the diagonal
        # weights of the active terms, followed by the intercept as a term without a penalty
        rows = np.flatnonzero(np.repeat(is_active, products.sizes))
        starts = np.concatenate([[0], np.cumsum(products.sizes[active]), [D + 1]])
        lambdas = np.append(self.lambdas[active], 0.0)
        weights = np.vstack([self.theta[rows], self.intercept])
        slopes = np.vstack([gradient[rows], intercept_gradient])
        # coordinate descent with the Hessian, without the rows; this sets weights and slopes
        max_sweeps = FEW_SWEEPS if self.is_ill_conditioned else MAX_SWEEPS
        n_sweeps = _kernel.descend_gram(
            hessian, starts, lambdas, group, tolerance, max_sweeps, stop_flag(), slopes, weights
        )
        is_minimised = n_sweeps < max_sweeps
        if not is_minimised:
            self.is_ill_conditioned = True
            is_minimised = _finish_model(
                hessian, starts, lambdas, group, tolerance, slopes, weights
            )
        self.n_exhausted = 0 if is_minimised else self.n_exhausted + 1
        theta = self.theta.copy()
        theta[rows] = weights[:-1]
        return theta, np.clip(weights[-1], -MAX_INTERCEPT, MAX_INTERCEPT)

    def _gradient_norms(self, gradient: np.ndarray) -> np.ndarray:
        """Return the norm (T,) of each term's `gradient` (D, q); for the l1 penalty, return the
        largest norm of a feature's gradient.
        """
        norm = row_norms(gradient, self.products.starts, self.penalty.group)
        if self.penalty.group or not len(norm):  # reduceat needs at least one feature
            return norm
        return np.maximum.reduceat(norm, self.products.starts[:-1])

    def _line_search(
        self, theta: np.ndarray, intercept: np.ndarray, penalty: float, predicted_change: float
    ) -> float | None:
        """Move towards `theta` (D, q) and `intercept` (q,); the step is halved until the objective
        decreases sufficiently.

        `penalty` is the total penalty of the current weights, and `predicted_change` the change
        predicted by the quadratic model for the full step. Set `theta`, `intercept`, `link` and
        `loss`, and return the new penalty, or None if no step decreases the objective.
        """
        link = self.link
        objective = self.loss + penalty
        target_link = self.products.link(theta, intercept)
        step = 1.0
        while step > 1e-10:
            trial_theta = self.theta + step * (theta - self.theta) if step < 1 else theta
            trial_link = link + step * (target_link - link) if step < 1 else target_link
            loss = self.evaluate(trial_link)
            trial_penalty = self.penalties(trial_theta)
            # sufficient decrease (Armijo), except for rounding errors
            if loss + trial_penalty <= objective + 1e-4 * step * predicted_change + ROUNDING * abs(
                objective
            ):
                self.intercept = self.intercept + step * (intercept - self.intercept)
                self.theta = trial_theta
                self.link = trial_link
                self.loss = loss
                return trial_penalty
            step *= 0.5
        self.loss = self.evaluate(link)  # this restores slope and curvature at `theta`
        return None

    def weights(self) -> Weights:
        """Return the nonzero weights (d, q) by term, in increasing order of size and predictors."""
        starts = self.products.starts
        term_weights = {
            t: self.theta[starts[k] : starts[k + 1]].copy()
            for k, t in enumerate(self.products.terms)
        }
        return {
            t: term_weights[t]
            for t in sorted(term_weights, key=lambda t: (len(t), t))
            if term_weights[t].any()
        }


def _finish_model(
    hessian: np.ndarray,
    starts: np.ndarray,
    lambdas: np.ndarray,
    group: bool,
    tolerance: float,
    slopes: np.ndarray,
    weights: np.ndarray,
) -> bool:
    """Minimise the penalised quadratic model over its nonzero weights by Newton's method, and
    return whether the minimum was reached.

    Coordinate descent takes very long if the Hessian is ill-conditioned, as with rows that are
    almost separated. Zero weights remain zero. The arguments are those of the kernel's
    `descend_gram`; `slopes` and `weights` (D, q) are updated.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    q = weights.shape[1]
    sizes = np.diff(starts)
    # the penalty is on the norm of a block: of the features of a term, or of a single feature
    block = np.repeat(np.arange(len(sizes)), sizes) if group else np.arange(len(weights))
    penalty = np.repeat(lambdas, sizes)
    row_penalty = penalty / np.bincount(block)[block]  # each row's part of its block's penalty
    least_penalty = lambdas[lambdas > 0.0].min(initial=np.inf)

    def norms(values: np.ndarray) -> np.ndarray:
        """Return the norm of each row's block (D, 1)."""
        return np.sqrt(np.bincount(block, (values**2).sum(axis=1)))[block, None]

    for _ in range(MAX_MODEL_STEPS):
        norm = norms(weights)
        is_free = (norm[:, 0] > 0.0) | (penalty == 0.0)
        curvature = penalty[:, None] / np.where(norm > 0.0, norm, 1.0)
        gradient = np.where(is_free[:, None], slopes + curvature * weights, 0.0)
        scale = np.where(penalty > 0.0, penalty, least_penalty)[:, None]
        if (norms(gradient) / scale).max() <= tolerance:
            return True
        rows = np.flatnonzero(is_free)
        cells = (rows[:, None] * q + np.arange(q)).ravel()
        matrix = hessian[np.ix_(cells, cells)].astype(float)
        # second derivative of the norm of a block: (I - u u') / norm, with the unit vector u
        direction = (weights / np.where(norm > 0.0, norm, 1.0))[rows]
        cell_block = np.repeat(block[rows], q)
        is_same_block = cell_block[:, None] == cell_block
        row_curvature = np.repeat(curvature[rows, 0], q)
        matrix -= is_same_block * np.outer(row_curvature * direction.ravel(), direction.ravel())
        matrix.flat[:: len(matrix) + 1] += row_curvature  # the diagonal
        try:
            step = -cho_solve(cho_factor(matrix), gradient[rows].ravel())
        except LinAlgError:
            return False
        full_step = np.zeros(weights.shape)
        full_step[rows] = step.reshape(-1, q)
        slope_change = (hessian[:, cells] @ step).reshape(weights.shape)
        slope = float((slopes * full_step).sum())
        bend = float((slope_change * full_step).sum())
        length = 1.0
        while length > 1e-6:
            change = length * slope + 0.5 * length**2 * bend
            change += float(row_penalty @ (norms(weights + length * full_step) - norm)[:, 0])
            if change < 0.0:
                break
            length *= 0.5
        else:
            return False
        weights += length * full_step
        slopes += length * slope_change
    return False


def minimise(
    problem: Problem,
    penalty: Penalty,
    base: Weights,
    parents: Sequence[Term],
    warm: Mapping[Term, np.ndarray],
    intercept: np.ndarray,
    all_pairs: bool = False,
) -> Stage:
    """Return the minimum over the terms in `base` and all products of a parent with one more
    predictor.

    Parameters
    ----------
    problem : Problem
    penalty : Penalty
    base : dict of term to ndarray, shape (d, q)
        Terms with fewer predictors than the products, with starting weights.
    parents : sequence of terms of one order
        ``[()]`` for single predictors.
    warm : mapping of term to ndarray, shape (d, q)
        Products in the initial working set, with starting weights.
    intercept : ndarray, shape (q,)
    all_pairs : bool, default False
        Whether the parents are all single predictors; each pair is then formed only from its first
        predictor.
    """
    descent = Descent(problem, penalty, {**base, **warm}, intercept)
    order = len(parents[0]) + 1 if parents else 1
    # terms with zero weights leave the working set if the states of its terms take more memory than
    # the codes of the rows
    rounds = 0
    max_bytes = problem.codes.nbytes
    while True:
        violation = descent.minimise()
        if not parents:  # no candidates
            break
        rounds += 1
        violation_outside, violators = _violators(
            problem, penalty, descent, parents, order, all_pairs
        )
        if not violators or rounds == MAX_ROUNDS:
            violation = max(violation, violation_outside)
            break
        if descent.products.codes.nbytes > max_bytes:
            # terms in `base` come first and are never removed, because they are not candidates and
            # could not be added again
            descent.drop_zeros(len(base))
        descent.extend(violators)
    objective = descent.loss + descent.penalties(descent.theta)
    return Stage(descent.weights(), descent.intercept, descent.loss, objective, violation, rounds)


def _violators(
    problem: Problem,
    penalty: Penalty,
    descent: Descent,
    parents: Sequence[Term],
    order: int,
    all_pairs: bool,
) -> tuple[float, list[Term]]:
    """Return the largest violation by candidates outside the working set, and the violators.

    The violation is measured in units of the penalties. `order` is the order of the candidates,
    which is one more than the order of the `parents`; `all_pairs` is the same as in `minimise`. All
    candidates are checked in single precision if rounding errors are small enough. Possible
    violators are then checked in double precision, in batches in decreasing order of the ratio of
    gradient to penalty, until a batch contains violators.
    """
    lambda_ = penalty.lambdas[order - 1]
    slope = descent.slope
    # bound on the error of a candidate's ratio of gradient to penalty in single precision; a
    # candidate is a possible violator if its ratio is above 1 minus this bound
    rounding_error = (
        SUM_ERROR_ULPS * float(np.finfo(np.float32).eps) * float(np.abs(slope).sum()) / lambda_
    )
    # numeric features are unbounded, so double precision is used
    is_single = rounding_error < MAX_ERROR_SHARE and not problem.has_numbers
    threshold = 1.0 - rounding_error if is_single else 1.0
    # ratio: a candidate's gradient divided by its penalty
    working_set = set(descent.products.terms)
    ratio_of = {}
    # unit_ratios (m, parents in the block): ratios at lambda = 1, for every predictor times every
    # parent
    for parent_block, unit_ratios in candidate_ratios(
        problem, slope, parents, penalty.group, is_single
    ):
        ratio = unit_ratios / lambda_
        if all_pairs:  # form each pair only from its first predictor
            ratio[
                np.arange(problem.m)[:, None]
                <= np.array([column[0] for column in parent_block])[None]
            ] = 0.0
        rows, columns = np.nonzero(ratio > threshold)  # (predictor, parent)
        for i, column, value in zip(
            rows.tolist(), columns.tolist(), ratio[rows, columns].tolist(), strict=True
        ):
            term = tuple(sorted((*parent_block[column], i)))
            if term not in working_set:
                ratio_of[term] = value
    suspects = sorted(ratio_of, key=lambda t: (-ratio_of[t], t))
    batch_size = max(NEW_VIOLATORS, len(working_set))
    max_violation = 0.0
    for first in range(0, len(suspects), batch_size):
        batch = suspects[first : first + batch_size]
        violation = _scaled_gradient_norms(problem, slope, batch, penalty.group) / lambda_ - 1.0
        max_violation = max(max_violation, float(violation.max()))
        violators = [t for t, v in zip(batch, violation.tolist(), strict=True) if v > MAX_VIOLATION]
        if violators:
            return max_violation, sorted(violators)
    return max(0.0, max_violation), []


def _scaled_gradient_norms(
    problem: Problem, slope: np.ndarray, terms: Sequence[Term], group: bool
) -> np.ndarray:
    """Return the gradient norms (T,) of these terms, in units of their penalties at lambda = 1.

    `slope` (q, n) is the derivative of the loss with respect to the link.
    """
    products = Products(problem.codes, problem.n_levels, terms)
    norm = row_norms(products.gradient(slope), products.starts, group)
    return (
        norm / np.sqrt(products.sizes) if group else np.maximum.reduceat(norm, products.starts[:-1])
    )


def _null_intercept(problem: Problem) -> np.ndarray:
    """Return the intercept (q,) of the class proportions, or zeros if a class has no rows."""
    totals = np.bincount(problem.y, problem.weights, problem.K)
    if not totals.all():
        return np.zeros(problem.K - 1)
    # the columns of contrasts are orthogonal, with squared norm 1/2
    return 2.0 * np.log(totals) @ contrasts(problem.K)


def null_slope(problem: Problem) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the intercept (q,), the slope (q, n) and the loss of the model without terms."""
    # without terms, the penalty is only the unit of the violation at which the descent stops
    descent = Descent(problem, Penalty((1.0,)), {}, _null_intercept(problem))
    descent.minimise()
    return descent.intercept, descent.slope, descent.loss
