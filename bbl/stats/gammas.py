"""Tail probabilities of weighted sums of gamma variables: of quadratic forms, and of means under a Dirichlet."""

from __future__ import annotations

import numpy as np

__all__ = ["tail"]

STEP = 0.1  # between nodes of the trapezoid rule
NODES = 25  # in a block
MAX_BLOCKS = 40


def tail(coefficient: np.ndarray, shape: np.ndarray, x: float = 0.0) -> float:
    """Return ``P(sum_i c_i G_i > x)`` of independent gamma variables ``G_i`` of scale one.

    Parameters
    ----------
    coefficient, shape : ndarray, shape (r,)
        Weights ``c_i``, of either sign, and shapes of the variables. A chi-square with d degrees of freedom is twice a
        gamma variable of shape ``d / 2``.
    x : float, default 0.0

    Returns
    -------
    float
        With about ten significant digits, in the tails too.

    Notes
    -----
    The inversion integral of the moment generating function, by the trapezoid rule on a contour that crosses the real
    axis near the saddle point and bends away from it, where the integrand falls fast (Rice 1980; Daniels 1987).

    Examples
    --------
    >>> round(tail(np.array([2.0]), np.array([0.5]), 3.841458820694124), 10)  # chi-square with one degree of freedom
    0.05
    """
    coefficient, shape = np.asarray(coefficient, dtype=float), np.asarray(shape, dtype=float)
    used = coefficient != 0.0
    coefficient, shape = coefficient[used], shape[used]
    spread = np.abs(coefficient).max(initial=0.0)
    if not spread:
        return float(x < 0.0)
    c, x = coefficient / spread, x / spread
    if x < float(shape @ c):
        return 1.0 - _upper(-c, shape, -x)
    return _upper(c, shape, x)


def _upper(c: np.ndarray, a: np.ndarray, x: float) -> float:
    """Return the upper tail at an `x` that is not below the mean."""
    top = c.max()
    if top <= 0.0 and x >= 0.0:
        return 0.0
    end = 1.0 / top if top > 0.0 else np.inf
    at = max(_saddle(c, a, x, end), min(0.5 / np.sqrt(float(a @ c**2)), 0.5 * end))
    scale = min(1.0 / np.sqrt(float(a @ (c / (1.0 - c * at)) ** 2)), end - at)
    # beyond the saddle the factor exp(-s x) is made to fall; where there are many variables, they fall by themselves
    bend = np.sign(x) / max(1.0, float(a.sum()))
    total = peak = 0.0
    for block in range(MAX_BLOCKS):
        v = STEP * (NODES * block + np.arange(NODES))
        s = at + scale * (bend * (np.cosh(v) - 1.0) + 1j * np.sinh(v))
        slope = scale * (bend * np.sinh(v) + 1j * np.cosh(v))
        log_f = -(a @ np.log(1.0 - np.multiply.outer(c, s))) - s * x
        f = np.exp(log_f) * slope / s
        if not block:
            f[0] *= 0.5
            peak = float(np.abs(f).max())
        total += float(f.imag.sum())
        if np.abs(f[-1]) <= 1e-17 * peak:
            break
    return min(max(STEP * total / np.pi, 0.0), 1.0)


def _saddle(c: np.ndarray, a: np.ndarray, x: float, end: float) -> float:
    """Return where the derivative of the cumulant generating function is `x`, at 0 or right of it."""
    low, high = 0.0, end
    if not np.isfinite(high):
        high = 1.0
        while float(a @ (c / (1.0 - c * high))) < x:
            high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(a @ (c / (1.0 - c * middle))) < x else (low, middle)
        if high - low < 1e-3 * high:
            break
    return low
