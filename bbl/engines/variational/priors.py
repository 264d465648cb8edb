"""Scale mixtures of normals as priors, with hyperpriors and a slab that bounds the scales."""

# A group of parameters (a table in simplex coding) is ``sigma z`` with standard normal z. The
# density of the log scale ``u = ln sigma`` depends only on ``w = u - v``, where ``v = ln s`` and s
# is the global scale of all fields or of all couplings (Ingraham & Marks 2017, Table 1). There are
# G groups.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["PRIORS", "ScalePrior", "scale_moments", "slabbed"]

STUDENT_SHAPE = 1.5  # half the degrees of freedom of the Student prior


@dataclass(frozen=True)
class ScalePrior:
    """The prior distribution of the scales of parameter groups.

    All functions operate elementwise.

    Attributes
    ----------
    name : str
    log_density : callable, or None
        ``ln p(u | v)`` as a function of ``w = u - v``; None if all groups have the global scale.
    slope : callable, or None
        Derivative of `log_density` with respect to w.
    log_hyper : callable
        ``ln p(v)``, the log hyperprior.
    hyper_slope : callable
        Derivative of `log_hyper` with respect to v.
    heavy : bool
        Whether the tails are heavy. Without a slab, parameters without a finite optimum then
        diverge.
    flat : bool, default False
        Whether the prior density of the parameters is constant. Scales are then not used.
    """

    name: str
    log_density: Callable[[np.ndarray], np.ndarray] | None
    slope: Callable[[np.ndarray], np.ndarray] | None
    log_hyper: Callable[[np.ndarray], np.ndarray]
    hyper_slope: Callable[[np.ndarray], np.ndarray]
    heavy: bool
    flat: bool = False


def _half_cauchy(w: np.ndarray) -> np.ndarray:
    """Return the log density of a log half-Cauchy variable: ``ln 2/pi + w - ln(1 + e^2w)``."""
    return np.log(2.0 / np.pi) + w - np.logaddexp(0.0, 2.0 * w)


def _half_cauchy_slope(w: np.ndarray) -> np.ndarray:
    """Return the derivative of `_half_cauchy`."""
    return -np.tanh(w)


def _student(w: np.ndarray) -> np.ndarray:
    """Return the log density of w for the Student prior.

    ``exp(2 w)`` is inverse gamma with shape and rate a.
    """
    from scipy.special import gammaln

    a = STUDENT_SHAPE
    return np.log(2.0) + a * np.log(a) - gammaln(a) - 2.0 * a * w - a * np.exp(-2.0 * w)


PRIORS = {
    prior.name: prior
    for prior in (
        # sigma ~ C+(0, s), s ~ C+(0, 1) (Carvalho, Polson & Scott 2010)
        ScalePrior(
            "horseshoe",
            _half_cauchy,
            _half_cauchy_slope,
            _half_cauchy,
            _half_cauchy_slope,
            heavy=True,
        ),
        # sigma^2 exponential with rate 1/s^2, which is C+(0, 1): Laplace; for several parameters,
        # the multivariate version of Eltoft, Kim & Lee (2006)
        ScalePrior(
            "laplace",
            lambda w: np.log(2.0) + 2.0 * w - np.exp(2.0 * w),
            lambda w: 2.0 - 2.0 * np.exp(2.0 * w),
            lambda v: np.log(2.0) + _half_cauchy(-2.0 * v),
            lambda v: -2.0 * _half_cauchy_slope(-2.0 * v),
            heavy=False,
        ),
        # sigma^2 inverse gamma: Student's t with 3 degrees of freedom and scale s, s ~ C+(0, 1)
        ScalePrior(
            "student",
            _student,
            lambda w: 2.0 * STUDENT_SHAPE * np.expm1(-2.0 * w),
            _half_cauchy,
            _half_cauchy_slope,
            heavy=True,
        ),
        # sigma = s for all groups, ln s standard normal
        ScalePrior(
            "gaussian",
            None,
            None,
            lambda v: -0.5 * v**2 - 0.5 * np.log(2.0 * np.pi),
            lambda v: -v,
            heavy=False,
        ),
        # no prior: the parameters themselves, with all scales fixed at 1
        ScalePrior("flat", None, None, np.zeros_like, np.zeros_like, heavy=False, flat=True),
    )
}


def slabbed(u: np.ndarray, slab: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounded scales f for log scales `u`, and ``d ln f / du``.

    These are ``f = sigma / sqrt(1 + (sigma/c)^2)`` with ``u = ln sigma``, as in the regularised
    horseshoe (Piironen & Vehtari 2017). Small scales hardly change, and large scales are bounded by
    c, the `slab`. With ``inf``, scales are not bounded.
    """
    sigma = np.exp(u)
    if np.isinf(slab):
        return sigma, np.ones_like(sigma)
    log_slope = 1.0 / (1.0 + (sigma / slab) ** 2)  # d ln f / du
    return sigma * np.sqrt(log_slope), log_slope


# Gauss-Hermite quadrature: for standard normal x, the mean of g(x) is about NODE_WEIGHTS @ g(NODES)
_RULE = np.polynomial.hermite_e.hermegauss(15)
NODES = _RULE[0]  # (15,)
NODE_WEIGHTS = _RULE[1] / _RULE[1].sum()  # (15,), with sum 1


def scale_moments(mean: np.ndarray, sd: np.ndarray, slab: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the first two moments, each (G,), of `slabbed` scales.

    The log scales are normally distributed with `mean` and `sd` (G,).
    """
    if np.isinf(slab):  # moments of log-normal variables
        return np.exp(mean + 0.5 * sd**2), np.exp(2.0 * mean + 2.0 * sd**2)
    scale, _ = slabbed(mean + sd * NODES[:, None], slab)
    return NODE_WEIGHTS @ scale, NODE_WEIGHTS @ scale**2
