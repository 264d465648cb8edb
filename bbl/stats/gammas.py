"""Tail probabilities of weighted sums of gamma variables, as of quadratic forms and of means under
a Dirichlet.
"""

from __future__ import annotations

import numpy as np

__all__ = ["tail"]

STEP = 0.1  # between nodes of the trapezoid rule
BLOCK_NODES = 25  # nodes that are summed at a time
MAX_BLOCKS = 40
MAX_BISECTIONS = 60
# a coefficient that is a smaller share of the largest counts as a rounding error of zero
NEGLIGIBLE = 1e-40


def tail(coefficient: np.ndarray, shape: np.ndarray, x: float = 0.0) -> float:
    """Return ``P(sum_i c_i G_i > x)`` of independent gamma variables ``G_i`` of scale one, to about
    ten digits.

    Parameters
    ----------
    coefficient, shape : ndarray, shape (r,)
        Weights ``c_i``, of either sign, and shapes of the variables. A chi-square with d degrees of
        freedom is twice a gamma variable of shape ``d / 2``.
    x : float, default 0.0
        Threshold of the sum.

    Notes
    -----
    The inversion integral of the moment generating function, by the trapezoid rule on a contour
    that crosses the real axis near the saddle point and bends away from it, where the integrand
    falls fast (Rice 1980; Daniels 1987).

    Examples
    --------
    >>> round(
    ...     tail(np.array([2.0]), np.array([0.5]), 3.841458820694124), 10
    ... )  # chi-square with one degree of freedom
    0.05
    """
    coefficient = np.asarray(coefficient, dtype=float)
    shape = np.asarray(shape, dtype=float)
    scale = np.abs(coefficient[shape > 0.0]).max(initial=0.0)
    # a variable of shape 0 is 0
    nonzero = (np.abs(coefficient) > NEGLIGIBLE * scale) & (shape > 0.0)
    coefficient = coefficient[nonzero]
    shape = shape[nonzero]
    if not scale:  # the sum is always 0
        return float(x < 0.0)
    c = coefficient / scale
    x = x / scale
    if x < float(shape @ c):  # below the mean, the tail of the negative sum is computed
        return 1.0 - _upper_tail(-c, shape, -x)
    return _upper_tail(c, shape, x)


def _upper_tail(c: np.ndarray, a: np.ndarray, x: float) -> float:
    """Return ``P(sum_i c_i G_i > x)`` for coefficients `c` and shapes `a` (r,), at an `x` that is
    not below the mean.

    ``1/pi`` times the integral, over v from 0 to infinity, of the imaginary part of ``M(s) exp(-s
    x) / s ds/dv``, with the moment generating function ``M(s) = prod_i (1 - c_i s)^-a_i`` of the
    sum. The contour is ``s(v) = saddle + scale (bend (cosh v - 1) + i sinh v)``.
    """
    c_max = c.max()
    if c_max <= 0.0 and x >= 0.0:
        return 0.0
    pole = 1.0 / c_max if c_max > 0.0 else np.inf
    # any point between the poles, 0 and `pole`, is valid, but near one the integrand is steep and
    # needs more nodes: at least half of 1 / sd from 0 (a @ c**2 is the variance of the sum), or
    # half of the way to `pole`
    saddle = max(_find_saddle(c, a, x, pole), min(0.5 / np.sqrt(float(a @ c**2)), 0.5 * pole))
    # width of the integrand's peak, by the second derivative of the cumulant generating function;
    # left of the pole
    scale = min(1.0 / np.sqrt(float(a @ (c / (1.0 - c * saddle)) ** 2)), pole - saddle)
    # bend the contour so that exp(-s x) falls; less with many variables, whose generating function
    # falls by itself
    bend = np.sign(x) / max(1.0, float(a.sum()))
    total = peak = 0.0
    for block in range(MAX_BLOCKS):
        v = STEP * (BLOCK_NODES * block + np.arange(BLOCK_NODES))
        s = saddle + scale * (bend * (np.cosh(v) - 1.0) + 1j * np.sinh(v))
        ds_dv = scale * (bend * np.sinh(v) + 1j * np.cosh(v))
        log_integrand = -(a @ np.log(1.0 - np.multiply.outer(c, s))) - s * x
        integrand = np.exp(log_integrand) * ds_dv / s
        if not block:
            integrand[0] *= 0.5  # the end of the trapezoid rule
            peak = float(np.abs(integrand).max())
        total += float(integrand.imag.sum())
        # further nodes are below the rounding error of the sum
        if np.abs(integrand[-1]) <= 1e-17 * peak:
            break
    return min(max(STEP * total / np.pi, 0.0), 1.0)


def _find_saddle(c: np.ndarray, a: np.ndarray, x: float, pole: float) -> float:
    """Return the saddle point in [0, pole), where the derivative of the cumulant generating
    function is `x`, to 0.1 %.

    It is the root s of ``sum_i a_i c_i / (1 - c_i s) = x``.

    `c` and `a` (r,) are the coefficients and shapes of the gamma variables, `pole` is the
    singularity 1 / max(c) of the generating function, inf if there is none on the right.
    """
    low = 0.0
    high = pole
    if not np.isfinite(high):
        high = 1.0
        while float(a @ (c / (1.0 - c * high))) < x:
            high *= 2.0
    for _ in range(MAX_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(a @ (c / (1.0 - c * middle))) < x else (low, middle)
        if high - low < 1e-3 * high:
            break
    return low
