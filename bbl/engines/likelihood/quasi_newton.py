"""L-BFGS for a convex function with accurate gradients but inaccurate values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Minimum", "minimise"]

MEMORY = 30  # number of curvature pairs: a step and the change in the gradient along it
# largest absolute slope at the end of a step, relative to the slope at its start (Wolfe)
LARGEST_SLOPE_SHARE = 0.9
MAX_TRIALS = 20  # step lengths tried along one direction


class Minimum(NamedTuple):
    """Result of `minimise`: the point, its gradient norm, and the number of steps."""

    theta: np.ndarray
    norm: float
    n_iter: int


def minimise(
    gradient: Callable[[np.ndarray], np.ndarray],
    theta: np.ndarray,
    inverse_curvature: np.ndarray,
    tolerance: float,
    itmax: int,
) -> Minimum:
    """Minimise a convex function by L-BFGS (Nocedal & Wright 2006, algorithm 7.5).

    Step lengths are based only on slopes, because rounding errors dominate the differences between
    function values near the minimum.

    Parameters
    ----------
    gradient : callable
        ``gradient(theta)`` returns the gradient (size,).
    theta : ndarray, shape (size,)
        Starting point.
    inverse_curvature : ndarray, shape (size,)
        Inverse of an approximate diagonal of the Hessian; must be positive.
    tolerance : float
        Norm of the gradient at which the iteration stops.
    itmax : int
        Maximum number of steps.
    """
    # step, gradient change, and their inner product
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=MEMORY)
    g = gradient(theta)
    n_iter = 0
    while n_iter < itmax:
        n_iter += 1
        norm = float(np.linalg.norm(g))
        if norm <= tolerance:
            break
        direction = -_inverse_times(pairs, inverse_curvature, g)
        slope = float(g @ direction)
        step, g_new = _step(gradient, theta, direction, slope)
        change = g_new - g
        curvature = float(step @ change)
        if curvature > 0.0:
            pairs.append((step, change, curvature))
            theta = theta + step
            g = g_new
        # no step along this direction reduces the slope: try again without curvature pairs
        elif pairs:
            pairs.clear()
        else:
            break
    return Minimum(theta, float(np.linalg.norm(g)), n_iter)


def _step(
    gradient: Callable[[np.ndarray], np.ndarray],
    theta: np.ndarray,
    direction: np.ndarray,
    slope: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a step along `direction` that ends at a small slope, and the gradient there.

    `slope` is the inner product of the gradient and the direction at `theta`. The length of the
    step is quadrupled as long as the slope at its end is negative, and then bisected. If no slope
    is small enough, the longest step with a negative slope is returned. If there is none, the
    result is zero.
    """
    # low: longest step with a negative slope; high: last step with a positive slope
    low = 0.0
    high = np.inf
    length = 1.0
    g_low = np.zeros(len(theta))  # gradient after the step `low`; not read if this stays zero
    for _ in range(MAX_TRIALS):
        g = gradient(theta + length * direction)
        new_slope = float(g @ direction)
        if abs(new_slope) <= -LARGEST_SLOPE_SHARE * slope:
            return length * direction, g
        if new_slope > 0.0 or not np.isfinite(new_slope):
            high = length
        else:
            low = length
            g_low = g
        length = 0.5 * (low + high) if np.isfinite(high) else 4.0 * length
    return low * direction, g_low


def _inverse_times(pairs: deque, inverse_curvature: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return the approximate inverse Hessian times `g` (size,), by the two-loop recursion.

    The initial inverse Hessian is the diagonal `inverse_curvature` (size,), scaled to match the
    most recent pair.
    """
    q = g.copy()
    factors = []
    for step, change, curvature in reversed(pairs):
        factor = float(step @ q) / curvature
        factors.append(factor)
        q -= factor * change
    if pairs:
        step, change, curvature = pairs[-1]
        q *= curvature / float(change @ (inverse_curvature * change))
    q *= inverse_curvature
    for (step, change, curvature), factor in zip(pairs, reversed(factors), strict=True):
        q += step * (factor - float(change @ q) / curvature)
    return q
