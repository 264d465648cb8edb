"""Joint estimation: all parameters of a model with terms of any order at once, by five methods.

Pseudo-likelihood and exact likelihood are convex, and solved by Newton's method; contrastive divergence, its persistent
variant and damped mean field follow a gradient whose model moments are estimated (Min et al. 2014, section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from bbl.engines.highorder.monomials import Monomials
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.chains import Chains
from bbl.model.conditional import normalised
from bbl.model.higher import split
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.states import MAX_STATES, state_codes
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["REFITS", "Fitted", "fit_jointly"]

REFITS = ("pseudo", "exact", "pcd", "cd", "mf")
MAX_NEWTON_STEPS = 100
MAX_CONJUGATE_STEPS = 500  # of conjugate gradients, in each Newton step
OF_FIELDS = 1e-6  # the most that fields are penalised
STEPS = 1000  # of the gradient methods
RATE = 0.1  # step length of the gradient methods, in units of the variance of a product
DECAY_STEPS = 200.0  # after which the step length is half
MIN_VARIANCE = 0.02  # of a product, that steps are scaled by
JUDGED_EVERY = 5  # steps between evaluations of the objective
CHAINS = 512  # Gibbs chains
SWEEPS = 3  # of the chains for a step
DAMPING = 0.8  # of damped mean field
SETTLED = 0.02  # standard deviations of a product by which sampled moments may miss those of the rows, on average


class Fitted(NamedTuple):
    """Parameters (size,), the objective per observation, the norm of the gradient left, iterations, convergence."""

    theta: np.ndarray
    value: float
    norm: float
    n_iter: int
    converged: bool


class Objective(Protocol):
    """A convex function with its gradient, and products with its Hessian at the last point."""

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient."""
        ...

    def curve(self, v: np.ndarray) -> np.ndarray:
        """Return the Hessian times `v`."""
        ...

    def diagonal(self) -> np.ndarray:
        """Return the diagonal of the Hessian, or what comes near it."""
        ...


class PseudoObjective:
    """Minus the mean log pseudo-likelihood of rows, with a ridge."""

    def __init__(self, layout: Layout, sample: Sample, ridge: float):
        check_memory(32.0 * sample.n * layout.D, f"A joint fit of {sample.n} rows", "Use fewer rows or predictors.")
        self.layout, self.ridge, self.products = layout, _ridges(layout, ridge), Monomials(layout)
        self.X, self.weights = one_hot(sample.codes, layout), sample.weights / sample.total
        self.first = layout.start[:-1][layout.n_levels > 1]
        self.width = layout.n_levels[layout.n_levels > 1] - 1

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        field = self.products.fields(theta, self.X)
        log_norm, self.P = normalised(field, self.layout)
        value = self.weights @ (log_norm.sum(axis=1) - (self.X * field).sum(axis=1))
        gradient = self.products.adjoint(self.X, (self.P - self.X) * self.weights[:, None])
        return float(value + 0.5 * (self.ridge @ theta**2)), gradient + self.ridge * theta

    def curve(self, v: np.ndarray) -> np.ndarray:
        field = self.products.fields(v, self.X)
        mean = np.add.reduceat(self.P * field, self.first, axis=1)
        G = self.P * (field - np.repeat(mean, self.width, axis=1)) * self.weights[:, None]
        return self.products.adjoint(self.X, G) + self.ridge * v

    def diagonal(self) -> np.ndarray:
        return self.products.adjoint(self.X, self.P * (1.0 - self.P) * self.weights[:, None]) + self.ridge


class ExactObjective:
    """Minus the mean log-likelihood given the means of all products, with a ridge, by listing all states."""

    def __init__(self, layout: Layout, means: np.ndarray, ridge: float):
        states = math.prod(layout.n_levels.tolist())
        if states > MAX_STATES:
            raise OptionError(
                f"refit='exact' would list {states:.3g} states (at most {MAX_STATES}); take refit='pseudo'.",
                argument="refit",
            )
        check_memory(16.0 * states * layout.D, f"A list of {states} states", "Take refit='pseudo'.")
        self.means, self.ridge, self.products = means, _ridges(layout, ridge), Monomials(layout)
        self.X = one_hot(state_codes(np.arange(states), layout.n_levels), layout)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        energy = self.products.energies(theta, self.X)
        top = energy.max()
        p = np.exp(energy - top)
        self.p = p / p.sum()
        self.moments = self.products.sums(self.X, self.p)
        value = top + np.log(p.sum()) - theta @ self.means
        return float(value + 0.5 * (self.ridge @ theta**2)), self.moments - self.means + self.ridge * theta

    def curve(self, v: np.ndarray) -> np.ndarray:
        along = self.products.energies(v, self.X)
        return self.products.sums(self.X, self.p * (along - self.moments @ v)) + self.ridge * v

    def diagonal(self) -> np.ndarray:
        return self.moments * (1.0 - self.moments) + self.ridge


def _ridges(layout: Layout, ridge: float) -> np.ndarray:
    """Return the penalty of each parameter: fields are only kept finite."""
    return np.where(np.arange(layout.size) < layout.D, min(ridge, OF_FIELDS), ridge)


def minimise(objective: Objective, theta: np.ndarray, tolerance: float, itmax: int = MAX_NEWTON_STEPS) -> Fitted:
    """Return the minimum of a convex function, by Newton's method with conjugate gradients and halved steps."""
    value, gradient = objective(theta)
    for step_number in range(itmax):
        norm = float(np.linalg.norm(gradient))
        if norm <= tolerance:
            return Fitted(theta, -value, norm, step_number, True)
        direction = _conjugate(objective, -gradient, min(0.1, math.sqrt(norm)))
        slope, step = float(gradient @ direction), 1.0
        while step > 1e-10:
            new = theta + step * direction
            new_value, at = objective(new)
            if new_value <= value + 1e-4 * step * slope + 1e-15 * abs(value):
                break
            step *= 0.5
        else:
            value, gradient = objective(theta)
            break
        theta, value, gradient = new, new_value, at
    norm = float(np.linalg.norm(gradient))
    return Fitted(theta, -value, norm, itmax, norm <= 100.0 * tolerance)


def _conjugate(objective: Objective, right: np.ndarray, accuracy: float) -> np.ndarray:
    """Return the inverse of the Hessian times `right`, about."""
    scale = 1.0 / np.maximum(objective.diagonal(), 1e-300)
    out, residual = np.zeros_like(right), right.copy()
    ready = scale * residual
    direction, length = ready, float(residual @ ready)
    enough = accuracy**2 * length
    for _ in range(MAX_CONJUGATE_STEPS):
        image = objective.curve(direction)
        bend = float(direction @ image)
        if bend <= 0.0:  # flat to rounding
            break
        step = length / bend
        out, residual = out + step * direction, residual - step * image
        ready = scale * residual
        longer = float(residual @ ready)
        if longer <= enough:
            break
        direction, length = ready + longer / length * direction, longer
    return out if out.any() else scale * right


def fit_jointly(
    layout: Layout,
    sample: Sample,
    method: str,
    ridge: float,
    tolerance: float,
    theta: np.ndarray,
    rng: np.random.Generator,
    progress: Callable | None = None,
) -> Fitted:
    """Fit all parameters of a layout to rows by one of `REFITS`, starting at `theta`.

    Parameters
    ----------
    layout : Layout
    sample : Sample
        Rows without missing values.
    method : {"pseudo", "exact", "pcd", "cd", "mf"}
    ridge : float
        L2 penalty per observation of all terms; fields have 1e-6 at most.
    tolerance : float
        Norm of the gradient at which the convex methods end.
    theta : ndarray, shape (layout.size,)
    rng : numpy.random.Generator
        For "pcd" and "cd".
    """
    with serial_blas():
        if method == "pseudo":
            return minimise(PseudoObjective(layout, sample, ridge), theta, tolerance)
        X, weights = one_hot(sample.codes, layout), sample.weights / sample.total
        means = Monomials(layout).sums(X, weights)
        if method == "exact":
            return minimise(ExactObjective(layout, means, ridge), theta, tolerance)
        return _ascend(layout, sample, means, method, ridge, theta, rng)


def _ascend(
    layout: Layout,
    sample: Sample,
    means: np.ndarray,
    method: str,
    ridge: float,
    theta: np.ndarray,
    rng: np.random.Generator,
) -> Fitted:
    """Follow the gradient of the log-likelihood with estimated moments of the model.

    A step is in units of each product's variance, and gets shorter with time. Where the moments are sampled, the
    parameters of the second half are averaged (Polyak & Juditsky 1992); the norm is the largest component of the mean
    gradient of that half, in standard deviations of the products, and says whether the fit has converged. The gradient
    of mean field need not be zero anywhere: of its way the parameters of largest pseudo-likelihood are taken, and it
    has converged if these are not the last ones.
    """
    products = Monomials(layout)
    scale, ridges = np.maximum(means * (1.0 - means), MIN_VARIANCE), _ridges(layout, ridge)
    moments = (
        _mean_field(layout, products, sample)
        if method == "mf"
        else _chains(layout, products, sample, theta, method, rng)
    )
    judge = PseudoObjective(layout, sample, ridge) if method == "mf" else None
    best, averaged_theta, kept_at, drift = math.inf, theta, 0, np.zeros(len(theta))
    for step in range(STEPS):
        gradient = means - moments(theta) - ridges * theta
        theta = theta + RATE / (1.0 + step / DECAY_STEPS) * gradient / scale
        if judge is None and 2 * step >= STEPS:
            share = 1.0 / (step - (STEPS - 1) // 2)
            averaged_theta, drift = (
                averaged_theta + (theta - averaged_theta) * share,
                drift + (gradient - drift) * share,
            )
        elif judge is not None and step % JUDGED_EVERY == 0 and (value := judge(theta)[0]) < best:
            best, averaged_theta, kept_at = value, theta, step
    if judge is not None:
        return Fitted(averaged_theta, -best, float(np.linalg.norm(gradient)), STEPS, kept_at + JUDGED_EVERY < STEPS)
    norm = float(np.abs(drift / np.sqrt(scale)).max(initial=0.0))
    return Fitted(averaged_theta, float("nan"), norm, STEPS, norm <= SETTLED)


def _mean_field(layout: Layout, products: Monomials, sample: Sample) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of the moments of a model by damped mean field from each row: ``r <- .2 r + .8 P(x | r)``.

    Products of means stand for means of products.
    """
    X, share = one_hot(sample.codes, layout), sample.weights / sample.total

    def moments(theta: np.ndarray) -> np.ndarray:
        r = X
        for _ in range(SWEEPS):
            r = r + DAMPING * (normalised(products.fields(theta, r), layout)[1] - r)
        return products.sums(r, share)

    return moments


def _chains(
    layout: Layout, products: Monomials, sample: Sample, theta: np.ndarray, method: str, rng: np.random.Generator
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of the moments of a model by Gibbs chains: that go on, or that start at rows each time."""
    h, J, higher_terms = split(layout, theta)
    chains = Chains(h, J, layout.n_levels, CHAINS, rng, more=higher_terms)
    share = sample.weights / sample.total

    def moments(theta: np.ndarray) -> np.ndarray:
        h, J, higher_terms = split(layout, theta)
        chains.update(h, J, None if higher_terms is None else higher_terms.values)
        if method == "cd":
            chains.restart(sample.codes[rng.choice(sample.n, CHAINS, p=share)])
        chains.sweep(SWEEPS)
        return products.sums(one_hot(chains.codes, layout), np.full(CHAINS, 1.0 / CHAINS))

    return moments
