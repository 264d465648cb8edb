"""Boltzmann machines with hidden layers for predictors in [-1, 1], under Li's (2014) prior."""

# A row x of m numbers has the energy ``alpha'x + sum_{j<l} beta_jl x_j x_l``. Units are -1 or 1.
# Units of the first layer are coupled to the numbers, units of each further layer to the previous
# one, and each unit has a field; the units of a single layer may be coupled to each other. n is the
# number of rows, q the number of units in a layer.

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bbl.memory import check_memory
from bbl.parallel import serial_blas

__all__ = ["MAX_COUPLED", "GreyMachine", "fit_grey", "truncated_exponential"]

MEAN_FIELD_STEPS = 50  # for the units of two or more layers
MAX_COUPLED = 16  # maximum number of units coupled to each other: scores sum over all their states
ENERGIES_PER_CHUNK = 2**21  # number of energies (rows by unit states) at once: 16 MiB
SMALL_SLOPE = 1e-6  # up to this slope, exp(ax) is treated as uniform on [-1, 1]


@dataclass(frozen=True)
class GreyMachine:
    """Parameters of a Boltzmann machine for numeric predictors in [-1, 1].

    Attributes
    ----------
    alpha : ndarray, shape (m,)
        Fields.
    beta : ndarray, shape (m, m)
        Symmetric couplings, with a diagonal of zero.
    fields : tuple of ndarray, shape (q,)
        Fields of the units of each layer.
    weights : tuple of ndarray, shape (m or q, q)
        Couplings of each layer's units to the previous layer, or to the predictors for the first
        layer.
    unit_pairs : ndarray, shape (q, q), or None
        Couplings between the units of a single layer, symmetric with a diagonal of zero; None if
        there are none.
    """

    alpha: np.ndarray
    beta: np.ndarray
    fields: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]
    unit_pairs: np.ndarray | None = None

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return the unnormalised scores (n,) of rows, marginalised over the units.

        With one layer, the result is exact. It is the sum of ``ln 2 cosh`` over the units' fields,
        or a sum over all states if units are coupled to each other. With several layers, it is the
        mean-field lower bound.
        """
        with serial_blas():
            visible = X @ self.alpha + 0.5 * ((X @ self.beta) * X).sum(axis=1)
            if not self.fields:
                return visible
            if len(self.fields) == 1:
                field = self._field_from_rows(X)
                if self.unit_pairs is not None:
                    return visible + _sum_states(field, self.unit_pairs)
                return visible + np.logaddexp(field, -field).sum(axis=1)
            return visible + self._mean_field(X)

    def _mean_field(self, X: np.ndarray) -> np.ndarray:
        """Return the lower bound (n,) of the log of the sum over the units of several layers."""
        means = [np.zeros((len(X), len(field))) for field in self.fields]
        from_rows = self._field_from_rows(X)  # the same in all steps
        for _ in range(MEAN_FIELD_STEPS):
            for k in range(len(means)):
                means[k] = np.tanh(self._unit_field(k, from_rows, means))
        bound = np.zeros(len(X))
        below = X
        for field, weight, mean in zip(self.fields, self.weights, means, strict=True):
            bound += (mean * (field + below @ weight)).sum(axis=1)
            for p in (0.5 * (1.0 + mean), 0.5 * (1.0 - mean)):
                bound -= np.where(p > 0.0, p * np.log(np.where(p > 0.0, p, 1.0)), 0.0).sum(axis=1)
            below = mean
        return bound

    def _field_from_rows(self, X: np.ndarray) -> np.ndarray:
        """Return the fields (n, q) of the units in the first layer, given the predictors only."""
        return self.fields[0] + X @ self.weights[0]

    def _unit_field(self, k: int, from_rows: np.ndarray, units: list[np.ndarray]) -> np.ndarray:
        """Return the fields (n, q) of the units in layer k, given `_field_from_rows` and the other
        layers.
        """
        field = from_rows if k == 0 else self.fields[k] + units[k - 1] @ self.weights[k]
        if k + 1 < len(units):
            field = field + units[k + 1] @ self.weights[k + 1].T
        return field

    def draw_units(self, X: np.ndarray, units: list[np.ndarray], rng: np.random.Generator) -> None:
        """Draw the units of each layer in place, given the predictors and all other units."""
        if not units:
            return
        from_rows = self._field_from_rows(X)
        for k in range(len(units)):
            field = self._unit_field(k, from_rows, units)
            if self.unit_pairs is None:  # the units of a layer are independent
                units[k] = draw_signs(field, rng)
                continue
            for j in range(field.shape[1]):
                units[k][:, j] = draw_signs(field[:, j] + units[k] @ self.unit_pairs[:, j], rng)

    def sample(self, n: int, sweeps: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows (n, m) from n Gibbs chains with `sweeps` sweeps over units and predictors.

        The conditional density of a predictor is proportional to ``exp(a x)`` on [-1, 1]. Chains
        start at the fields, scaled to this interval. If all fields were zero, the negative of a
        probable row would also be a mode. The fields make this mode improbable, but a chain that
        started there would not leave it.
        """
        start = self.alpha / max(float(np.abs(self.alpha).max()), 1e-300)
        X = np.tile(start, (n, 1))
        # zero until they are drawn, from the first layer upwards
        units = [np.zeros((n, len(field))) for field in self.fields]
        has_pairs = bool(self.beta.any())
        with serial_blas():
            for _ in range(sweeps):
                self.draw_units(X, units, rng)
                slope = self.alpha + (units[0] @ self.weights[0].T if units else 0.0)
                slope = np.broadcast_to(slope, X.shape)
                if not has_pairs:  # predictors are independent given the units
                    X = truncated_exponential(slope, rng)
                    continue
                for i in range(X.shape[1]):
                    X[:, i] = truncated_exponential(slope[:, i] + X @ self.beta[:, i], rng)
        return X


def _sum_states(field: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the log of the sum (n,) of ``exp(field u + u' pairs u / 2)`` over all states u."""
    from scipy.special import logsumexp

    q = len(pairs)
    states = 2.0 * ((np.arange(2**q)[:, None] >> np.arange(q)) & 1) - 1.0
    of_pairs = 0.5 * ((states @ pairs) * states).sum(axis=1)
    step = max(1, ENERGIES_PER_CHUNK // len(states))
    sums = [
        logsumexp(field[first : first + step] @ states.T + of_pairs, axis=1)
        for first in range(0, len(field), step)
    ]
    return np.concatenate([np.zeros(0), *sums])


def draw_signs(field: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw signs (-1 or 1), where the log odds of 1 are twice the `field`."""
    # a logistic variable is below the log odds with the probability of +1
    return np.where(rng.logistic(size=field.shape) < 2.0 * field, 1.0, -1.0)


def truncated_exponential(slope: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw from the densities proportional to ``exp(a x)`` on [-1, 1] by inversion, for slopes a.

    See Li (2014), appendix B.

    Examples
    --------
    >>> x = truncated_exponential(np.full(5, 100.0), np.random.default_rng(0))
    >>> bool((x > 0.9).all() and (x <= 1.0).all())
    True
    """
    u = rng.random(slope.shape)
    a = np.abs(slope)
    safe = np.maximum(a, SMALL_SLOPE)
    # measured from the end with the highest density, so that exp(-2a) cannot overflow
    x = 1.0 + np.log(u + (1.0 - u) * np.exp(-2.0 * safe)) / safe
    x = np.where(a > SMALL_SLOPE, x, 2.0 * u - 1.0)
    return np.clip(np.where(slope < 0.0, -x, x), -1.0, 1.0)


def fit_grey(
    X: np.ndarray,
    c: float,
    hidden: tuple[int, ...] = (),
    pairs: bool = True,
    sweeps: int = 50,
    rng: np.random.Generator | None = None,
    hidden_pairs: bool = False,
) -> GreyMachine:
    """Fit a Boltzmann machine to rows `X` (n, m), and return the machine at the posterior mean.

    Under the prior ``Z^n exp(-c |phi|^2)``, the mean of a coefficient is the sum of its feature
    over the rows, divided by 2c, and its variance is 1 / 2c (Li 2014, section 3.2.2). Units and
    coefficients are drawn in `sweeps` Gibbs sweeps. The mean is conditional on the last draw of the
    units. An average over draws would not be meaningful, because a unit may have different signs in
    different draws. If `hidden_pairs` is True, the units of the only layer are also coupled to each
    other.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    n, m = X.shape
    check_memory(
        24.0 * n * (sum(hidden) + m), f"{sum(hidden)} hidden units", "Use fewer hidden units."
    )
    units = [rng.choice([-1.0, 1.0], (n, q)) for q in hidden]
    sd = 1.0 / np.sqrt(2.0 * c)

    def noisy(mean: np.ndarray) -> np.ndarray:
        """Draw coefficients from their posterior with the given means."""
        return mean + sd * rng.normal(size=mean.shape)

    with serial_blas():
        beta = X.T @ X / (2.0 * c) if pairs else np.zeros((m, m))
        np.fill_diagonal(beta, 0.0)
        alpha = X.sum(axis=0) / (2.0 * c)
        for _ in range(sweeps if hidden else 0):
            mean = _given_units(X, units, c, alpha, beta, hidden_pairs)
            unit_pairs = None
            if mean.unit_pairs is not None:
                upper = np.triu(noisy(mean.unit_pairs), 1)
                unit_pairs = upper + upper.T
            drawn = replace(
                mean,
                fields=tuple(map(noisy, mean.fields)),
                weights=tuple(map(noisy, mean.weights)),
                unit_pairs=unit_pairs,
            )
            drawn.draw_units(X, units, rng)
        return _given_units(X, units, c, alpha, beta, hidden_pairs)


def _given_units(
    X: np.ndarray,
    units: list[np.ndarray],
    c: float,
    alpha: np.ndarray,
    beta: np.ndarray,
    hidden_pairs: bool,
) -> GreyMachine:
    """Return the Boltzmann machine at the posterior mean of its coefficients, given the units."""
    below = [X, *units][: len(units)]
    fields = tuple(layer.sum(axis=0) / (2.0 * c) for layer in units)
    weights = tuple(lower.T @ layer / (2.0 * c) for lower, layer in zip(below, units, strict=True))
    unit_pairs = None
    if hidden_pairs:
        unit_pairs = units[0].T @ units[0] / (2.0 * c)
        np.fill_diagonal(unit_pairs, 0.0)
    return GreyMachine(alpha, beta, fields, weights, unit_pairs)
