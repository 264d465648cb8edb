"""L-BFGS for a convex function of which only gradients are known to full precision."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Minimum", "minimise"]

MEMORY = 30  # curvature pairs
ENOUGH_PROGRESS = 0.9  # largest slope at the end of a step, as a share of that at its start
MAX_TRIALS = 20  # step lengths tried along one direction


class Minimum(NamedTuple):
    """Where `minimise` ended: the point, the norm of the gradient there, and the number of steps."""

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

    Step lengths are judged by slopes alone: near the minimum, differences of function values are rounding.

    Parameters
    ----------
    gradient : callable
    theta : ndarray, shape (size,)
        Start.
    inverse_curvature : ndarray, shape (size,)
        Positive: the inverse of an approximate diagonal of the Hessian.
    tolerance : float
        Norm of the gradient at which the iteration ends.
    itmax : int
    """
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=MEMORY)
    g, n_iter = gradient(theta), 0
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
            theta, g = theta + step, g_new
        elif pairs:  # rounding, or no finite gradient: no step along this direction lowers the slope
            pairs.clear()
        else:
            break
    return Minimum(theta, float(np.linalg.norm(g)), n_iter)


def _step(
    gradient: Callable[[np.ndarray], np.ndarray], theta: np.ndarray, direction: np.ndarray, slope: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return a step along `direction` at whose end the slope is small, and the gradient there.

    Without one, the longest step tried after which the slope is still negative; it is zero if there is none.
    """
    low, high, length = 0.0, np.inf, 1.0
    g_low = np.zeros(len(theta))  # of a step of zero nobody reads the gradient
    for _ in range(MAX_TRIALS):
        g = gradient(theta + length * direction)
        new_slope = float(g @ direction)
        if abs(new_slope) <= -ENOUGH_PROGRESS * slope:
            return length * direction, g
        if new_slope > 0.0 or not np.isfinite(new_slope):
            high = length
        else:
            low, g_low = length, g
        length = 0.5 * (low + high) if np.isfinite(high) else 4.0 * length
    return low * direction, g_low


def _inverse_times(pairs: deque, inverse_curvature: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return the approximate inverse Hessian times `g` by the two loops over curvature pairs."""
    q, shares = g.copy(), []
    for step, change, curvature in reversed(pairs):
        share = float(step @ q) / curvature
        shares.append(share)
        q -= share * change
    if pairs:
        step, change, curvature = pairs[-1]
        q *= curvature / float(change @ (inverse_curvature * change))
    q *= inverse_curvature
    for (step, change, curvature), share in zip(pairs, reversed(shares), strict=True):
        q += step * (share - float(change @ q) / curvature)
    return q
