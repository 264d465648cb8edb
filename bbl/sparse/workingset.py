"""The exact minimum over very many candidate terms: descent over a working set, grown by what violates optimality.

Minimised is ``sum_i w_i (-ln p(y_i | x_i)) + sum_t lambda_|t| Omega(W_t)`` with a free intercept. For the group
penalty ``Omega = sqrt(d) ||W_t||`` (Frobenius), for l1 the sum of the lengths of its d rows; a row holds one feature's
weights in all contrasts of the classes, of which two classes have one.
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

TOLERANCE = 1e-6  # largest violation of the optimality conditions, in units of each term's penalty
INNER = 2e-7  # the same on the working set
MAX_NEWTON_STEPS = 1000
MAX_SWEEPS = 2000  # of coordinate descent, in each Newton step
MAX_ROUNDS = 1000  # in which violators join the working set
FULL_HESSIAN_SIZE = 64  # weights up to which the Hessian is formed at once
GRAM_SIZE = 2048  # weights up to which the Hessian is formed if coordinate descent is slow
PATIENCE = 16  # weights for each sweep after which they are held to be
RIDGE = 1e-6  # of the Hessian's diagonal, beyond its rounding
ROUNDING = 1e-12  # of the objective
SUM_ROUNDING = 512  # units in the last place of a long sum in single precision
ROUNDING_SHARE = 0.05  # of a penalty that such a rounding error may be
WORST = 300  # violators that join the working set at a time
LIMIT = 30.0  # of the intercept, for classes that no row has

Weights = dict[Term, np.ndarray]


class Penalty(NamedTuple):
    """Penalties of the terms.

    Attributes
    ----------
    lambdas : tuple of floats
        On the sum of losses, for orders 1, 2, ...
    group : bool
        Whether terms are chosen as a whole, else feature by feature.
    """

    lambdas: tuple[float, ...]
    group: bool = True

    def of(self, problem: Problem, terms: Sequence[Term]) -> np.ndarray:
        """Return the penalty of each term, shape (T,)."""
        each = np.array([self.lambdas[len(t) - 1] for t in terms], dtype=float)
        return each * np.sqrt([problem.size(t) for t in terms]) if self.group else each

    def scaled(self, factor: float) -> Penalty:
        """Return all penalties times a factor."""
        return Penalty(tuple(factor * v for v in self.lambdas), self.group)


@dataclass(frozen=True, eq=False)
class Stage:
    """The minimum over some terms.

    Attributes
    ----------
    weights : dict of term to ndarray, shape (d, q)
        Of the terms that are not zero, in rising order of size and predictors.
    intercept : ndarray, shape (q,)
    loss : float
        Weighted sum of ``-ln p(y | x)``.
    objective : float
        With the penalties.
    violation : float
        Largest violation of the optimality conditions over all candidates, in units of their penalties.
    rounds : int
        How often all candidates were looked at.
    """

    weights: Weights
    intercept: np.ndarray
    loss: float
    objective: float
    violation: float
    rounds: int


def row_norms(theta: np.ndarray, at: np.ndarray, group: bool) -> np.ndarray:
    """Return the norms of the blocks of weights (D, q), one a term (group) or one a feature."""
    square = np.einsum("ij,ij->i", theta, theta)
    return np.sqrt(np.add.reduceat(square, at[:-1]) if group and len(square) else square)


def violations(theta: np.ndarray, gradient: np.ndarray, at: np.ndarray, penalty: np.ndarray, group: bool) -> float:
    """Return the largest violation of the optimality conditions of the terms (T,), in units of their penalties."""
    if not len(penalty):
        return 0.0
    sizes = np.diff(at)
    each = penalty if group else np.repeat(penalty, sizes)
    norm = row_norms(theta, at, group)
    pull = each / np.where(norm > 0, norm, 1.0)
    residual = gradient + theta * (np.repeat(pull, sizes) if group else pull)[:, None]
    residual_norms = row_norms(residual, at, group)
    return float((np.where(norm > 0, residual_norms, np.maximum(residual_norms - each, 0.0)) / each).max())


class Descent:
    """A working set of terms with their weights, and its minimum."""

    def __init__(self, problem: Problem, penalty: Penalty, weights: Weights, intercept: np.ndarray):
        self.problem, self.penalty, self.scores = problem, penalty, contrasts(problem.K)
        self.products = Products(problem.codes, problem.n_levels, list(weights))
        self.theta = _stack(list(weights.values()), problem.K - 1)
        self.intercept = intercept.copy()
        self.lambdas = penalty.of(problem, self.products.terms)
        self.slope = np.empty((problem.K - 1, problem.n))
        self.curve = np.empty(problem.n)
        self.loss, self.slow = math.nan, problem.K > 2

    def extend(self, terms: Sequence[Term]) -> None:
        """Let terms join, with weights of zero."""
        self.products.extend(terms)
        n_new = int(self.products.at[-1]) - len(self.theta)
        self.theta = np.concatenate([self.theta, np.zeros((n_new, self.problem.K - 1))])
        self.lambdas = self.penalty.of(self.problem, self.products.terms)

    def drop_zeros(self, first: int) -> None:
        """Let terms from `first` on without weight leave."""
        norm = row_norms(self.theta, self.products.at, True)
        kept_terms = np.flatnonzero((norm > 0) | (np.arange(len(norm)) < first))
        self.theta = self.theta[np.repeat(np.isin(np.arange(len(norm)), kept_terms), self.products.sizes)]
        self.products.keep(kept_terms)
        self.lambdas = self.lambdas[kept_terms]

    def penalties(self, theta: np.ndarray) -> float:
        """Return the sum of the penalties of weights."""
        norm = row_norms(theta, self.products.at, self.penalty.group)
        each = self.lambdas if self.penalty.group else np.repeat(self.lambdas, self.products.sizes)
        return float(each @ norm)

    def _look(self, link: np.ndarray) -> float:
        """Return the loss at a link; slope and curvature are those there from now on."""
        problem = self.problem
        return _kernel.slopes(link, problem.y, problem.weights, self.scores, self.slope, self.curve)

    def minimise(self) -> float:
        """Minimise over the working set by proximal Newton steps; return the violation that is left."""
        products, group = self.products, self.penalty.group
        link = products.link(self.theta, self.intercept)
        self.loss = self._look(link)
        value = self.loss + self.penalties(self.theta)
        least = float(self.lambdas.min(initial=math.inf))
        if math.isinf(least):
            least = min(self.penalty.lambdas)
        rounding = 64 * np.finfo(float).eps * self.problem.total / least
        violation = math.inf
        for _ in range(MAX_NEWTON_STEPS):
            gradient = products.gradient(self.slope)
            total_slope = self.slope.sum(axis=1)
            held = (np.abs(self.intercept) >= LIMIT) & (total_slope * self.intercept < 0)
            violation = violations(self.theta, gradient, products.at, self.lambdas, group)
            violation = max(violation, float(np.abs(np.where(held, 0.0, total_slope)).max()) / least)
            if violation <= max(INNER, rounding):
                break
            tolerance = max(0.1 * max(INNER, rounding), 0.05 * violation * min(1.0, violation))
            theta, intercept = self._newton(link, gradient, total_slope, tolerance)
            expected = float((gradient * (theta - self.theta)).sum() + total_slope @ (intercept - self.intercept))
            expected += self.penalties(theta) - self.penalties(self.theta)
            new_point = self._step(link, theta, intercept, value, expected)
            if new_point is None:
                break  # nothing left but rounding
            link, value = new_point
        return violation

    def _newton(
        self, link: np.ndarray, gradient: np.ndarray, whole: np.ndarray, tolerance: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights and intercept that minimise the quadratic model at a link."""
        products, group, q = self.products, self.penalty.group, self.problem.K - 1
        moving = (row_norms(self.theta, products.at, True) > 0) | (self._lengths(gradient) > self.lambdas)
        near = np.flatnonzero(moving)
        D = int(products.sizes[near].sum())
        if (D + 1) * q > (GRAM_SIZE if self.slow else FULL_HESSIAN_SIZE):
            theta, intercept = self.theta.copy(), self.intercept.copy()
            most = min(MAX_SWEEPS, D // PATIENCE) if not self.slow and (D + 1) * q <= GRAM_SIZE else MAX_SWEEPS
            descent_state = _kernel.descend(
                products.codes, *products.layout, self.lambdas, group, self.curve, LIMIT, tolerance, most,
                stop_flag(), self.slope.copy(), theta, intercept,
            )  # fmt: skip
            self.slow = self.slow or descent_state == most
            return theta, intercept
        # of the step, not of where the minimum lies: single precision is enough
        hessian = products.hessian(link, self.problem.weights, self.curve, near, np.float32)
        hessian[np.diag_indices_from(hessian)] *= 1 + RIDGE
        rows = np.flatnonzero(np.repeat(moving, products.sizes))
        at, free = np.concatenate([[0], np.cumsum(products.sizes[near]), [D + 1]]), np.append(self.lambdas[near], 0.0)
        both, pull = np.vstack([self.theta[rows], self.intercept]), np.vstack([gradient[rows], whole])
        _kernel.descend_gram(hessian, at, free, group, tolerance, MAX_SWEEPS, stop_flag(), pull, both)
        theta = self.theta.copy()
        theta[rows] = both[:-1]
        return theta, np.clip(both[-1], -LIMIT, LIMIT)

    def _lengths(self, gradient: np.ndarray) -> np.ndarray:
        """Return the length of the gradient of each term: of all of its features, or of the steepest."""
        norm = row_norms(gradient, self.products.at, self.penalty.group)
        if self.penalty.group or not len(norm):
            return norm
        return np.maximum.reduceat(norm, self.products.at[:-1])

    def _step(self, link, theta, intercept, value: float, expected: float) -> tuple[np.ndarray, float] | None:
        """Move towards new weights by backtracking, until the objective falls by a share of the expected decrease."""
        there, step = self.products.link(theta, intercept), 1.0
        while step > 1e-10:
            new = self.theta + step * (theta - self.theta) if step < 1 else theta
            at = link + step * (there - link) if step < 1 else there
            loss = self._look(at)
            objective = loss + self.penalties(new)
            if objective <= value + 1e-4 * step * expected + ROUNDING * abs(value):
                self.intercept = self.intercept + step * (intercept - self.intercept)
                self.theta, self.loss = new, loss
                return at, objective
            step *= 0.5
        self.loss = self._look(link)
        return None

    def weights(self) -> Weights:
        """Return the weights of the terms that have any, in rising order of size and predictors."""
        at = self.products.at
        term_weights = {t: self.theta[at[k] : at[k + 1]].copy() for k, t in enumerate(self.products.terms)}
        return {t: term_weights[t] for t in sorted(term_weights, key=lambda t: (len(t), t)) if term_weights[t].any()}


def minimise(
    problem: Problem,
    penalty: Penalty,
    base: Weights,
    parents: Sequence[Term],
    warm: Mapping[Term, np.ndarray],
    intercept: np.ndarray,
    once: bool = False,
) -> Stage:
    """Return the minimum over the terms `base` and all products of a parent and one more predictor.

    Parameters
    ----------
    problem : Problem
    penalty : Penalty
    base : dict of term to ndarray, shape (d, q)
        Terms, all of fewer predictors than the products, with weights to start from.
    parents : sequence of terms of one order
        ``[()]`` for single predictors.
    warm : mapping of term to ndarray, shape (d, q)
        Products that are likely to be chosen, with weights to start from.
    intercept : ndarray, shape (q,)
    once : bool, default False
        Whether the parents are all single predictors, so that a product need be looked at from its first one alone.

    Returns
    -------
    Stage
    """
    descent = Descent(problem, penalty, {**base, **warm}, intercept)
    order = len(parents[0]) + 1 if parents else 1
    rounds, most = 0, problem.codes.nbytes
    while True:
        violation = descent.minimise()
        if not parents:
            break
        rounds += 1
        outside, worst = _violators(problem, penalty, descent, parents, order, once)
        if not worst or rounds == MAX_ROUNDS:
            violation = max(violation, outside)
            break
        if descent.products.codes.nbytes > most:
            descent.drop_zeros(len(base))
        descent.extend(worst)
    objective = descent.loss + descent.penalties(descent.theta)
    return Stage(descent.weights(), descent.intercept, descent.loss, objective, violation, rounds)


def _violators(
    problem: Problem, penalty: Penalty, descent: Descent, parents: Sequence[Term], order: int, once: bool
) -> tuple[float, list[Term]]:
    """Return the largest violation among products outside the working set, and the worst of them.

    Where rounding allows it, all are looked at in single precision, and in double those that may violate.
    """
    level, slope = penalty.lambdas[order - 1], descent.slope
    margin = SUM_ROUNDING * float(np.finfo(np.float32).eps) * float(np.abs(slope).sum()) / level
    single = margin < ROUNDING_SHARE
    least = 1.0 - margin if single else 1.0
    inside, violation_of = set(descent.products.terms), {}
    for term_block, ratio in candidate_ratios(problem, slope, parents, penalty.group, single):
        ratio = ratio / level
        if once:
            ratio[np.arange(problem.m)[:, None] <= np.array([p[0] for p in term_block])[None]] = 0.0
        rows, columns = np.nonzero(ratio > least)
        for i, p, value in zip(rows.tolist(), columns.tolist(), ratio[rows, columns].tolist(), strict=True):
            term = tuple(sorted((*term_block[p], i)))
            if term not in inside:
                violation_of[term] = value
    near, batch, largest = sorted(violation_of, key=lambda t: (-violation_of[t], t)), max(WORST, len(inside)), 0.0
    for first in range(0, len(near), batch):
        term_block = near[first : first + batch]
        over = _ratios(problem, slope, term_block, penalty.group) / level - 1.0
        largest = max(largest, float(over.max()))
        worst = [t for t, by in zip(term_block, over.tolist(), strict=True) if by > TOLERANCE]
        if worst:
            return largest, sorted(worst)
    return max(0.0, largest), []


def _ratios(problem: Problem, slope: np.ndarray, terms: Sequence[Term], group: bool) -> np.ndarray:
    """Return the lengths of the gradients of some terms, in units of their penalties where those of features are 1."""
    products = Products(problem.codes, problem.n_levels, terms)
    norm = row_norms(products.gradient(slope), products.at, group)
    return norm / np.sqrt(products.sizes) if group else np.maximum.reduceat(norm, products.at[:-1])


def _stack(blocks: list[np.ndarray], q: int) -> np.ndarray:
    return np.concatenate(blocks) if blocks else np.empty((0, q))


def null_slope(problem: Problem) -> tuple[np.ndarray, np.ndarray, float]:
    """Return intercept (q,), slope (q, n) and loss of the model without terms."""
    descent = Descent(problem, Penalty((1.0,)), {}, np.zeros(problem.K - 1))
    descent.minimise()
    return descent.intercept, descent.slope, descent.loss
