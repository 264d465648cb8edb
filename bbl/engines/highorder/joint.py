"""Joint estimation of all parameters of a model with terms of any order."""

# Pseudo-likelihood and exact likelihood are convex, and solved by Newton's method. Contrastive
# divergence, its persistent variant and damped mean field follow a gradient with estimated moments
# of the model (Min et al. 2014, section 3.3). The moments are the means of the monomials, the
# products of indicators that are multiplied by the parameters. A row has D indicators, one for each
# non-reference level of each predictor, which are the columns of X (n, D).

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bbl.engines.highorder.monomials import Monomials
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.chains import Chains
from bbl.model.energy import conditionals
from bbl.model.higher import split
from bbl.model.layout import Layout
from bbl.model.listing import MAX_STATES, state_codes
from bbl.model.moments import one_hot
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["REFITS", "Ascent", "Fitted", "fit_jointly"]

REFITS = ("pseudo", "exact", "pcd", "cd", "mf")
MAX_NEWTON_STEPS = 100  # maximum number of Newton steps of a fit
MAX_CG_STEPS = 500  # maximum number of conjugate gradient steps in each Newton step
MAX_FIELD_RIDGE = 1e-6  # maximum penalty on fields
DECAY_STEPS = 200.0  # number of steps after which the step length is halved
MIN_VARIANCE = 0.02  # minimum variance of a monomial for scaling steps
EVALUATE_EVERY = 5  # mean-field steps between evaluations of the pseudo-likelihood
CHAINS = 512  # Gibbs chains for estimating moments
# largest mean gradient of a converged sampled fit, in standard deviations of a monomial
SETTLED = 0.02


class Ascent(NamedTuple):
    """Options for the gradient methods."""

    sweeps: int  # number of Gibbs sweeps, or mean-field updates, per step
    steps: int
    rate: float  # initial step length, in units of a monomial's inverse variance
    damping: float  # weight of the previous means in a damped mean-field update


class Fitted(NamedTuple):
    """Result of `fit_jointly`: parameters (size,), objective per observation, and status.

    The objective `value` is the log-likelihood or log pseudo-likelihood minus the penalty, or nan
    if gradients were sampled. `norm` is the norm of the final gradient.
    """

    theta: np.ndarray
    value: float
    norm: float
    n_iter: int
    converged: bool


class Objective(ABC):
    """A convex function of parameters (size,), with its Hessian at the latest evaluation point."""

    @abstractmethod
    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient (size,)."""

    @abstractmethod
    def curve(self, v: np.ndarray) -> np.ndarray:
        """Return the Hessian times `v` (size,)."""

    @abstractmethod
    def diagonal(self) -> np.ndarray:
        """Return the diagonal (size,) of the Hessian, or an approximation."""


class PseudoObjective(Objective):
    """Minus the mean log pseudo-likelihood of rows plus a ridge penalty.

    `ridge` is the penalty per observation on terms. `P` (n, D) contains the conditional
    probabilities of all levels at the latest evaluation point.
    """

    def __init__(self, layout: Layout, sample: Sample, ridge: float):
        # four arrays (n, D) with 8 bytes per number
        check_memory(
            32.0 * sample.n * layout.D,
            f"A joint fit to {sample.n} rows",
            "Use fewer rows or predictors.",
        )
        self.layout = layout
        self.ridge = _ridges(layout, ridge)
        self.monomials = Monomials(layout)
        self.X = one_hot(sample.codes, layout)
        self.weights = sample.weights / sample.total
        # first column and number of columns in X, for predictors that have any
        self.first_column = layout.start[:-1][layout.n_levels > 1]
        self.n_columns = layout.n_levels[layout.n_levels > 1] - 1

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient (size,) at `theta` (size,)."""
        field = self.monomials.fields(theta, self.X)  # (n, D); log_norm (n, m)
        log_norm, self.P = conditionals(field, self.layout)
        value = self.weights @ (log_norm.sum(axis=1) - (self.X * field).sum(axis=1))
        gradient = self.monomials.adjoint(self.X, (self.P - self.X) * self.weights[:, None])
        return float(value + 0.5 * (self.ridge @ theta**2)), gradient + self.ridge * theta

    def curve(self, v: np.ndarray) -> np.ndarray:
        """Return the Hessian at the latest evaluation point, multiplied by `v` (size,)."""
        field = self.monomials.fields(v, self.X)
        # change of the probabilities if the parameters change by v: the fields minus their mean for
        # each predictor
        mean_field = np.add.reduceat(self.P * field, self.first_column, axis=1)
        G = self.P * (field - np.repeat(mean_field, self.n_columns, axis=1)) * self.weights[:, None]
        return self.monomials.adjoint(self.X, G) + self.ridge * v

    def diagonal(self) -> np.ndarray:
        """Return the diagonal (size,) of the Hessian at the latest evaluation point."""
        return (
            self.monomials.adjoint(self.X, self.P * (1.0 - self.P) * self.weights[:, None])
            + self.ridge
        )


class ExactObjective(Objective):
    """Minus the mean log-likelihood plus a ridge penalty, computed by enumerating all states.

    `means` (size,) contains the means of the monomials over the rows. `moments` (size,) contains
    their means over all states, which have probabilities `p` at the latest evaluation point.
    """

    def __init__(self, layout: Layout, means: np.ndarray, ridge: float):
        states = math.prod(layout.n_levels.tolist())
        if states > MAX_STATES:
            raise OptionError(
                f"refit='exact' would enumerate {states:.3g} states, but the limit is "
                f"{MAX_STATES}.",
                argument="refit",
                hint="Use refit='pseudo'.",
            )
        # two arrays (states, D) with 8 bytes per number
        check_memory(16.0 * states * layout.D, f"A list of {states} states", "Use refit='pseudo'.")
        self.means = means
        self.ridge = _ridges(layout, ridge)
        self.monomials = Monomials(layout)
        self.X = one_hot(state_codes(np.arange(states), layout.n_levels), layout)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient (size,) at `theta` (size,)."""
        energy = self.monomials.energies(theta, self.X)
        largest = energy.max()
        p = np.exp(energy - largest)
        self.p = p / p.sum()
        self.moments = self.monomials.sums(self.X, self.p)
        value = largest + np.log(p.sum()) - theta @ self.means
        return float(
            value + 0.5 * (self.ridge @ theta**2)
        ), self.moments - self.means + self.ridge * theta

    def curve(self, v: np.ndarray) -> np.ndarray:
        """Return the Hessian at the latest evaluation point, multiplied by `v` (size,)."""
        energy = self.monomials.energies(v, self.X)
        return self.monomials.sums(self.X, self.p * (energy - self.moments @ v)) + self.ridge * v

    def diagonal(self) -> np.ndarray:
        """Return the diagonal (size,) of the Hessian at the latest evaluation point."""
        return self.moments * (1.0 - self.moments) + self.ridge


def _ridges(layout: Layout, ridge: float) -> np.ndarray:
    """Return the penalty (size,) of each parameter.

    The penalty on fields is just large enough to keep them finite.
    """
    return np.where(np.arange(layout.size) < layout.D, min(ridge, MAX_FIELD_RIDGE), ridge)


def minimise(
    objective: Objective, theta: np.ndarray, tolerance: float, itmax: int = MAX_NEWTON_STEPS
) -> Fitted:
    """Minimise from `theta` (size,) by Newton's method with conjugate gradients and step halving.

    `tolerance` is the gradient norm at which the iteration stops. If no step reduces the objective,
    or after `itmax` steps, the fit is considered converged if the gradient norm is at most 100
    times the tolerance. `n_iter` in the result is the number of steps.
    """
    value, gradient = objective(theta)
    n_steps = 0
    while n_steps < itmax:
        norm = float(np.linalg.norm(gradient))
        if norm <= tolerance:
            return Fitted(theta, -value, norm, n_steps, converged=True)
        # an inexact Newton step, more accurate as the norm decreases
        direction = _solve_newton(objective, -gradient, min(0.1, math.sqrt(norm)))
        slope = float(gradient @ direction)
        step = 1.0
        while step > 1e-10:
            new_theta = theta + step * direction
            new_value, new_gradient = objective(new_theta)
            # Armijo's rule, up to rounding errors
            if new_value <= value + 1e-4 * step * slope + 1e-15 * abs(value):
                break
            step *= 0.5
        # no step reduces it; evaluate at theta again, so that the stored Hessian belongs to theta
        # too
        else:
            value, gradient = objective(theta)
            break
        theta = new_theta
        value = new_value
        gradient = new_gradient
        n_steps += 1
    norm = float(np.linalg.norm(gradient))
    return Fitted(theta, -value, norm, n_steps, converged=norm <= 100.0 * tolerance)


def _solve_newton(objective: Objective, right: np.ndarray, accuracy: float) -> np.ndarray:
    """Return the solution (size,) of ``Hessian @ x = right`` by preconditioned conjugate gradients.

    The iteration stops when the preconditioned norm of the residual has decreased to `accuracy`
    times the norm of `right` (size,).
    """
    # the bound only prevents division by zero
    preconditioner = 1.0 / np.maximum(objective.diagonal(), 1e-300)
    out = np.zeros_like(right)
    residual = right.copy()
    scaled = preconditioner * residual
    direction = scaled
    squared_norm = float(residual @ scaled)
    target = accuracy**2 * squared_norm
    for _ in range(MAX_CG_STEPS):
        hessian_direction = objective.curve(direction)
        curvature = float(direction @ hessian_direction)
        if curvature <= 0.0:  # flat, up to rounding errors
            break
        step = squared_norm / curvature
        out = out + step * direction
        residual = residual - step * hessian_direction
        scaled = preconditioner * residual
        new_squared_norm = float(residual @ scaled)
        if new_squared_norm <= target:
            break
        direction = scaled + new_squared_norm / squared_norm * direction
        squared_norm = new_squared_norm
    # the latter if not even the first step was possible
    return out if out.any() else preconditioner * right


def fit_jointly(
    layout: Layout,
    sample: Sample,
    method: str,
    ridge: float,
    tolerance: float,
    theta: np.ndarray,
    rng: np.random.Generator,
    ascent: Ascent,
    progress: Callable | None = None,
) -> Fitted:
    """Fit all parameters jointly to complete rows, starting from `theta` (layout.size,).

    `method` is one of `REFITS`. `ridge` is the L2 penalty per observation on all terms, and the
    penalty on fields is at most 1e-6. `tolerance` is the gradient norm at which "pseudo" and
    "exact" stop. `rng` is used by "pcd" and "cd", and `ascent` by "pcd", "cd" and "mf". `progress`
    is not used, because callers report the progress of the whole fit.
    """
    with serial_blas():
        if method == "pseudo":
            return minimise(PseudoObjective(layout, sample, ridge), theta, tolerance)
        X = one_hot(sample.codes, layout)
        weights = sample.weights / sample.total
        means = Monomials(layout).sums(X, weights)
        if method == "exact":
            return minimise(ExactObjective(layout, means, ridge), theta, tolerance)
        return _ascend(layout, sample, means, method, ridge, theta, rng, ascent)


def _ascend(
    layout: Layout,
    sample: Sample,
    means: np.ndarray,
    method: str,
    ridge: float,
    theta: np.ndarray,
    rng: np.random.Generator,
    ascent: Ascent,
) -> Fitted:
    """Maximise the log-likelihood by gradient ascent, with estimated model moments.

    The gradient is ``means - moments - ridges * theta``, where `means` (size,) contains the means
    of the monomials over the rows. Steps are divided by the variances of the monomials and decrease
    in size. With sampled moments, the result is the average over the second half of the steps
    (Polyak & Juditsky 1992), and `norm` is the largest component of the mean gradient in that half,
    in standard deviations of the monomials. A mean-field gradient may not vanish anywhere. The
    result is then the iterate with the largest pseudo-likelihood, and the fit has converged unless
    this is the last iterate. `method` is "pcd", "cd" or "mf", and the fit starts from `theta`
    (size,).
    """
    monomials = Monomials(layout)
    scale = np.maximum(means * (1.0 - means), MIN_VARIANCE)
    ridges = _ridges(layout, ridge)
    if method == "mf":
        moments = _mean_field_moments(layout, monomials, sample, ascent)
        pseudo = PseudoObjective(layout, sample, ridge)
    else:
        moments = _chain_moments(layout, monomials, sample, theta, method, rng, ascent.sweeps)
        pseudo = None
    # with sampled moments, averages over the second half of the steps; with mean field, the best
    # evaluation
    average = theta
    mean_gradient = np.zeros(len(theta))
    best = theta
    best_step = 0
    best_value = math.inf
    steps = ascent.steps
    for step in range(steps):
        gradient = means - moments(theta) - ridges * theta
        theta = theta + ascent.rate / (1.0 + step / DECAY_STEPS) * gradient / scale
        if pseudo is None and 2 * step >= steps:
            # weight of this step in the running average: 1, 1/2, 1/3, ...
            share = 1.0 / (step - (steps - 1) // 2)
            average = average + (theta - average) * share
            mean_gradient = mean_gradient + (gradient - mean_gradient) * share
        elif (
            pseudo is not None
            and step % EVALUATE_EVERY == 0
            and (value := pseudo(theta)[0]) < best_value
        ):
            best_value = value
            best = theta
            best_step = step
    if pseudo is not None:
        is_last = best_step + EVALUATE_EVERY >= steps  # the last evaluation
        return Fitted(
            best, -best_value, float(np.linalg.norm(gradient)), steps, converged=not is_last
        )
    norm = float(np.abs(mean_gradient / np.sqrt(scale)).max(initial=0.0))
    return Fitted(average, float("nan"), norm, steps, converged=norm <= SETTLED)


def _mean_field_moments(
    layout: Layout, monomials: Monomials, sample: Sample, ascent: Ascent
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that maps parameters to moments (size,) by damped mean field.

    The means r (n, D) of the level indicators start at the rows and are updated by ``r <- d r + (1
    - d) P(x | r)``, with damping d. The mean of a monomial is approximated by the product of the
    means of its indicators.
    """
    X = one_hot(sample.codes, layout)
    share = sample.weights / sample.total

    def moments(theta: np.ndarray) -> np.ndarray:
        """Return the moments (size,) at `theta` (size,)."""
        r = X
        for _ in range(ascent.sweeps):
            # [1]: probabilities (n, D)
            r = r + (1.0 - ascent.damping) * (
                conditionals(monomials.fields(theta, r), layout)[1] - r
            )
        return monomials.sums(r, share)

    return moments


def _chain_moments(
    layout: Layout,
    monomials: Monomials,
    sample: Sample,
    theta: np.ndarray,
    method: str,
    rng: np.random.Generator,
    sweeps: int,
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that maps parameters to moments (size,), estimated by Gibbs chains.

    Chains start at random states and are persistent. With `method` "cd", they restart from random
    rows at each call. `theta` (size,) only defines the shapes of the chains' parameters, and its
    values are replaced before the first sweep.
    """
    # fields (D,), couplings (D, D), and a `Tables` of the terms of order 3 or more (with parameters
    # `values`), or None
    h, J, higher_terms = split(layout, theta)
    chains = Chains(h, J, layout.n_levels, CHAINS, rng, more=higher_terms)
    share = sample.weights / sample.total

    def moments(theta: np.ndarray) -> np.ndarray:
        """Return the moments (size,) at `theta` (size,)."""
        h, J, higher_terms = split(layout, theta)
        chains.update(h, J, None if higher_terms is None else higher_terms.values)
        if method == "cd":
            chains.restart(sample.codes[rng.choice(sample.n, CHAINS, p=share)])
        chains.sweep(sweeps)  # changes `chains.codes` (CHAINS, m), the states
        return monomials.sums(one_hot(chains.codes, layout), np.full(CHAINS, 1.0 / CHAINS))

    return moments
