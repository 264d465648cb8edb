"""Linear response: the covariance of parameters from a factorised variational posterior.

A factorised approximation has sds that are too small where parameters depend on each other. Linear response takes as
covariance the derivatives of the posterior means by a linear tilt of the log posterior: ``G H^-1 G'``, where H is minus
the Hessian of the evidence lower bound by the n means and n log sds of the approximation, and G is the Jacobian of the
parameters' means (Giordano, Broderick & Jordan 2018). Features are the products of contrasts that parameters in
simplex coding multiply; z, u and v are as in `bbl.engines.variational.scaled`.
"""

from __future__ import annotations

import numpy as np

from bbl.engines.variational.priors import NODE_WEIGHTS, NODES, slabbed
from bbl.engines.variational.scaled import Approximation
from bbl.model.gauge import contrasts, reference_covariance
from bbl.model.layout import Layout
from bbl.model.listing import state_codes
from bbl.parallel import serial_blas

__all__ = ["MOST_WORK", "response_covariance", "response_sd", "work"]

MOST_WORK = 2.0**28  # multiplications for the covariance of all features at one draw; all draws take seconds
DRAW_PAIRS = 64  # pairs of antithetic draws from the approximation
STEP = 1e-5  # step of the difference quotients for the curvature of a prior


def work(layout: Layout) -> float:
    """Return the multiplications for the covariance of all features over all states."""
    return float(layout.n_levels.astype(float).prod()) * float(layout.size) ** 2


def features(layout: Layout) -> np.ndarray:
    """Return the features of all states in simplex coding, shape (states, layout.size)."""
    codes = state_codes(np.arange(int(layout.n_levels.prod())), layout.n_levels)
    out = np.empty((len(codes), layout.size))
    level_contrasts = [contrasts(L)[codes[:, i]] for i, L in enumerate(layout.n_levels)]
    out[:, : layout.D] = np.hstack(level_contrasts)
    for p, (i, j) in enumerate(layout.pairs):
        cells = slice(layout.pair_start[p], layout.pair_start[p + 1])
        out[:, cells] = (level_contrasts[i][:, :, None] * level_contrasts[j][:, None, :]).reshape(len(codes), -1)
    return out


def response_sd(approx: Approximation, sums: np.ndarray, total: float, rng: np.random.Generator) -> np.ndarray:
    """Return the sds (layout.size,) of the parameters in the reference gauge; see `response_covariance`."""
    covariance = reference_covariance(approx.layout, response_covariance(approx, sums, total, rng))
    return np.sqrt(np.maximum(covariance.diagonal(), 0.0))


def response_covariance(approx: Approximation, sums: np.ndarray, total: float, rng: np.random.Generator) -> np.ndarray:
    """Return the covariance (layout.size, layout.size) of the parameters in simplex coding.

    `sums` (layout.size,) holds the features summed over rows of weight `total`; `rng` draws the points over which the
    Hessian of the log posterior is averaged. All nan if the bound is not concave at the approximation, so that this is
    no optimum.
    """
    noise = rng.standard_normal((DRAW_PAIRS, len(approx.mean)))
    with serial_blas():
        curvature = -bound_hessian(approx, sums, total, np.concatenate([noise, -noise]))
        slopes = mean_slopes(approx)
        try:
            root = np.linalg.cholesky(curvature)
        except np.linalg.LinAlgError:
            return np.full((approx.layout.size, approx.layout.size), np.nan)
        whitened_slopes = np.linalg.solve(root, slopes.T)
        return whitened_slopes.T @ whitened_slopes


def _log_scale_entries(approx: Approximation) -> np.ndarray:
    """Return the position (G,) of each group's log scale, u or v, in the approximation; -1 if it is fixed."""
    if approx.prior.slope:
        return approx.layout.size + np.arange(len(approx.groups))
    kinds = np.repeat([-2, -1], (approx.groups.fields, len(approx.groups) - approx.groups.fields)) + len(approx.mean)
    return kinds if approx.scale is None else np.full(len(approx.groups), -1)


def bound_hessian(approx: Approximation, sums: np.ndarray, total: float, noise: np.ndarray) -> np.ndarray:
    """Return the Hessian (2n, 2n) of the evidence lower bound by means and log sds, averaged over draws `noise` (Q, n).

    The term with the gradient by a log sd is replaced by -1, its value at an optimum, where that gradient is zero.
    """
    F, n, sd = features(approx.layout), len(approx.mean), np.exp(approx.log_sd)
    out = np.zeros((2, n, 2, n))
    for draw in noise:
        H, deviation = log_posterior_hessian(approx, F, sums, total, approx.mean + sd * draw), sd * draw
        by_log_sd = H * deviation
        out[0, :, 0] += H
        out[0, :, 1] += by_log_sd
        out[1, :, 1] += by_log_sd * deviation[:, None]
    out /= len(noise)
    out[1, :, 0] = out[0, :, 1].T
    out[1, np.arange(n), 1, np.arange(n)] -= 1.0
    return out.reshape(2 * n, 2 * n)


def log_posterior_hessian(
    approx: Approximation, F: np.ndarray, sums: np.ndarray, total: float, x: np.ndarray
) -> np.ndarray:
    """Return the Hessian (n, n) of the log posterior of z, u and v at a point x (n,); F: `features` of all states."""
    size, of, entries = approx.layout.size, approx.groups.of, _log_scale_entries(approx)
    v = x[-2:] if approx.scale is None else np.full(2, np.log(approx.scale))
    u = x[entries] if approx.prior.slope else approx.groups.of_kind(v)
    scale, log_slope = slabbed(u, approx.slab)
    slope, second = (scale * log_slope)[of], (scale * log_slope * (3.0 * log_slope - 2.0))[of]  # of scales by u
    scale, z = scale[of], x[:size]
    log_p = F @ (scale * z)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    expected = p @ F
    gradient = sums - total * expected  # by parameters
    root = np.sqrt(p * total)[:, None] * (F - expected)
    H = np.zeros((len(x), len(x)))
    J = np.zeros((size, len(x)))  # derivatives of the parameters by x
    J[np.arange(size), np.arange(size)] = scale
    H[np.arange(size), np.arange(size)] = -1.0
    has_scale = entries[of] >= 0  # parameters whose log scale is an entry of x
    k, column = np.flatnonzero(has_scale), entries[of][has_scale]
    J[k, column] = (z * slope)[has_scale]
    np.add.at(H, (k, column), (gradient * slope)[has_scale])
    np.add.at(H, (column, k), (gradient * slope)[has_scale])
    np.add.at(H, (column, column), (gradient * z * second)[has_scale])
    H -= J.T @ (root.T @ root) @ J
    if approx.prior.slope:
        w = u - approx.groups.of_kind(v)
        curvature = (approx.prior.slope(w + STEP) - approx.prior.slope(w - STEP)) / (2.0 * STEP)
        H[entries, entries] += curvature
        if approx.scale is None:
            global_entries = np.repeat([-2, -1], (approx.groups.fields, len(entries) - approx.groups.fields)) + len(x)
            np.subtract.at(H, (entries, global_entries), curvature)
            np.subtract.at(H, (global_entries, entries), curvature)
            np.add.at(H, (global_entries, global_entries), curvature)
    if approx.scale is None:
        last = np.array([len(x) - 2, len(x) - 1])
        H[last, last] += (approx.prior.hyper_slope(v + STEP) - approx.prior.hyper_slope(v - STEP)) / (2.0 * STEP)
    return H


def mean_slopes(approx: Approximation) -> np.ndarray:
    """Return the derivatives (layout.size, 2n) of the parameters' means by means and log sds of the approximation."""
    size, n, of, entries = approx.layout.size, len(approx.mean), approx.groups.of, _log_scale_entries(approx)
    mean, sd = approx.log_scales
    scale, log_slope = slabbed(mean + sd * NODES[:, None], approx.slab)
    mean_scale, by_mean = NODE_WEIGHTS @ scale, NODE_WEIGHTS @ (scale * log_slope)
    by_log_sd = NODE_WEIGHTS @ (scale * log_slope * sd * NODES[:, None])
    out, z = np.zeros((size, 2 * n)), approx.mean[:size]
    out[np.arange(size), np.arange(size)] = mean_scale[of]
    has_scale = entries[of] >= 0
    k, column = np.flatnonzero(has_scale), entries[of][has_scale]
    out[k, column] = (z * by_mean[of])[has_scale]
    out[k, n + column] = (z * by_log_sd[of])[has_scale]
    return out
