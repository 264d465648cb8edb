"""Tail probabilities of weighted sums of gamma variables, such as quadratic forms in normal
variables.
"""

from __future__ import annotations

import numpy as np

__all__ = ["tail"]

STEP = 0.1  # distance between nodes of the trapezoid rule
BLOCK_NODES = 25  # number of nodes summed at a time
MAX_BLOCKS = 40
MAX_BISECTIONS = 60
# coefficients below this proportion of the largest one are treated as rounding errors of zero
NEGLIGIBLE = 1e-40


def tail(coefficient: np.ndarray, shape: np.ndarray, x: float = 0.0) -> float:
    """Return ``P(sum_i c_i G_i > x)`` for independent gamma variables ``G_i`` with scale 1.

    The result is accurate to about ten digits.

    Parameters
    ----------
    coefficient, shape : ndarray, shape (r,)
        Weights ``c_i``, which may be negative, and shapes of the variables. A chi-square variable
        with d degrees of freedom is twice a gamma variable with shape ``d / 2``.
    x : float, default 0.0
        Threshold for the sum.

    Notes
    -----
    The moment generating function is inverted by numerical integration with the trapezoid rule. The
    contour crosses the real axis near the saddle point and bends away from it, so the integrand
    decreases rapidly along the contour (Rice 1980; Daniels 1987).

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
    # a variable with shape 0 is 0
    nonzero = (np.abs(coefficient) > NEGLIGIBLE * scale) & (shape > 0.0)
    coefficient = coefficient[nonzero]
    shape = shape[nonzero]
    if not scale:  # the sum is always 0
        return float(x < 0.0)
    c = coefficient / scale
    x = x / scale
    if x < float(shape @ c):  # below the mean, compute the tail of the negated sum
        return 1.0 - _upper_tail(-c, shape, -x)
    return _upper_tail(c, shape, x)


def _upper_tail(c: np.ndarray, a: np.ndarray, x: float) -> float:
    """Return ``P(sum_i c_i G_i > x)`` for coefficients `c` and shapes `a` (r,), with `x` at or
    above the mean.

    The result is ``1/pi`` times the integral of the imaginary part of ``M(s) exp(-s x) / s ds/dv``
    over v from 0 to infinity, where ``M(s) = prod_i (1 - c_i s)^-a_i`` is the moment generating
    function. The contour is ``s(v) = saddle + scale (bend (cosh v - 1) + i sinh v)``.
    """
    c_max = c.max()
    if c_max <= 0.0 and x >= 0.0:
        return 0.0
    pole = 1.0 / c_max if c_max > 0.0 else np.inf
    # any point between the poles 0 and `pole` is valid, but near a pole the integrand is steep and
    # needs more nodes: keep at least half of 1 / sd away from 0 (a @ c**2 is the variance of the
    # sum), or go half of the way to `pole`
    saddle = max(_find_saddle(c, a, x, pole), min(0.5 / np.sqrt(float(a @ c**2)), 0.5 * pole))
    # width of the integrand's peak, from the second derivative of the cumulant generating function;
    # stay left of the pole
    scale = min(1.0 / np.sqrt(float(a @ (c / (1.0 - c * saddle)) ** 2)), pole - saddle)
    # bend the contour so that exp(-s x) decreases; less with many variables, whose generating
    # function decreases by itself
    bend = np.sign(x) / max(1.0, float(a.sum()))
    total = peak = 0.0
    for block in range(MAX_BLOCKS):
        v = STEP * (BLOCK_NODES * block + np.arange(BLOCK_NODES))
        s = saddle + scale * (bend * (np.cosh(v) - 1.0) + 1j * np.sinh(v))
        ds_dv = scale * (bend * np.sinh(v) + 1j * np.cosh(v))
        # the logarithms of 1 - c s, in real arithmetic: eight times as fast as complex logarithms
        real = 1.0 - np.multiply.outer(c, s.real)
        imaginary = np.multiply.outer(-c, s.imag)
        log_modulus = 0.5 * (a @ np.log(real**2 + imaginary**2))
        angle = a @ np.arctan2(imaginary, real)
        log_integrand = -log_modulus - 1j * angle - s * x
        integrand = np.exp(log_integrand) * ds_dv / s
        if not block:
            integrand[0] *= 0.5  # endpoint of the trapezoid rule
            peak = float(np.abs(integrand).max())
        total += float(integrand.imag.sum())
        # further nodes are below the rounding error of the sum
        if np.abs(integrand[-1]) <= 1e-17 * peak:
            break
    return min(max(STEP * total / np.pi, 0.0), 1.0)


def _find_saddle(c: np.ndarray, a: np.ndarray, x: float, pole: float) -> float:
    """Return the saddle point in [0, pole), where the cumulant generating function has slope `x`.

    The relative accuracy is 0.1 %.

    It is the root s of ``sum_i a_i c_i / (1 - c_i s) = x``. `c` and `a` (r,) contain the
    coefficients and shapes of the gamma variables; `pole` is the singularity 1 / max(c) of the
    generating function, or inf.
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
