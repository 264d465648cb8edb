"""Linear response: the covariance of parameters under a factorised posterior, from how its means answer to a force.

A factorised approximation has the means about right, and the sds of dependent parameters too small. But its optimum
moves when the log posterior is tilted by a multiple of a parameter, and the rate at which the means move is a
covariance, of all parameters with all others: the inverse of the Hessian of the evidence lower bound, between the
gradients of the means (Giordano, Broderick & Jordan 2018).
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

MOST_WORK = 2.0**28  # products for the covariance of all features at one draw
PAIRS = 64  # of draws from the approximation, each with its mirror image
STEP = 1e-5  # of the difference quotient that is the curvature of a prior


def work(layout: Layout) -> float:
    """Return the products that the covariance of all features over all states takes."""
    return float(layout.n_levels.astype(float).prod()) * float(layout.size) ** 2


def features(layout: Layout) -> np.ndarray:
    """Return the features (states, layout.size) in simplex coding of all states."""
    codes = state_codes(np.arange(int(layout.n_levels.prod())), layout.n_levels)
    out = np.empty((len(codes), layout.size))
    level_contrasts = [contrasts(L)[codes[:, i]] for i, L in enumerate(layout.n_levels)]
    out[:, : layout.D] = np.hstack(level_contrasts)
    for p, (i, j) in enumerate(layout.pairs):
        cells = slice(layout.pair_start[p], layout.pair_start[p + 1])
        out[:, cells] = (level_contrasts[i][:, :, None] * level_contrasts[j][:, None, :]).reshape(len(codes), -1)
    return out


def response_sd(at: Approximation, sums: np.ndarray, total: float, rng: np.random.Generator) -> np.ndarray:
    """Return the sds (layout.size,) of the parameters in the reference gauge; see `response_covariance`."""
    covariance = reference_covariance(at.layout, response_covariance(at, sums, total, rng))
    return np.sqrt(np.maximum(covariance.diagonal(), 0.0))


def response_covariance(at: Approximation, sums: np.ndarray, total: float, rng: np.random.Generator) -> np.ndarray:
    """Return the covariance (layout.size, layout.size) of the parameters in simplex coding.

    Parameters
    ----------
    at : Approximation
        At the optimum.
    sums : ndarray, shape (layout.size,)
        Of the features over the rows.
    total : float
        Weight of the rows.
    rng : numpy.random.Generator
        Of the draws over which the Hessian of the log posterior is averaged.

    Returns
    -------
    ndarray
        All nan if the bound is not concave there, so that it is no optimum.
    """
    noise = rng.standard_normal((PAIRS, len(at.mean)))
    with serial_blas():
        curvature = -bound_hessian(at, sums, total, np.concatenate([noise, -noise]))
        slopes = mean_slopes(at)
        try:
            root = np.linalg.cholesky(curvature)
        except np.linalg.LinAlgError:
            return np.full((at.layout.size, at.layout.size), np.nan)
        half = np.linalg.solve(root, slopes.T)
        return half.T @ half


def _own_scale(at: Approximation) -> np.ndarray:
    """Return which entry of the approximation is the log scale of each group; -1 where it is fixed."""
    if at.prior.slope:
        return at.layout.size + np.arange(len(at.groups))
    kinds = np.repeat([-2, -1], (at.groups.fields, len(at.groups) - at.groups.fields)) + len(at.mean)
    return kinds if at.scale is None else np.full(len(at.groups), -1)


def bound_hessian(at: Approximation, sums: np.ndarray, total: float, noise: np.ndarray) -> np.ndarray:
    """Return the Hessian (2n, 2n) of the evidence lower bound by means and log sds, averaged over draws `noise` (Q, n).

    At an optimum the gradient by a log sd is zero, which settles the one term that has no second derivative in it.
    """
    F, n, sd = features(at.layout), len(at.mean), np.exp(at.log_sd)
    out = np.zeros((2, n, 2, n))
    for e in noise:
        H, away = log_posterior_hessian(at, F, sums, total, at.mean + sd * e), sd * e
        right = H * away
        out[0, :, 0] += H
        out[0, :, 1] += right
        out[1, :, 1] += right * away[:, None]
    out /= len(noise)
    out[1, :, 0] = out[0, :, 1].T
    out[1, np.arange(n), 1, np.arange(n)] -= 1.0
    return out.reshape(2 * n, 2 * n)


def log_posterior_hessian(
    at: Approximation, F: np.ndarray, sums: np.ndarray, total: float, x: np.ndarray
) -> np.ndarray:
    """Return the Hessian (n, n) of the log posterior of z, u and v at one point."""
    size, of, table_scales = at.layout.size, at.groups.of, _own_scale(at)
    v = x[-2:] if at.scale is None else np.full(2, np.log(at.scale))
    u = x[table_scales] if at.prior.slope else at.groups.of_kind(v)
    scale, share = slabbed(u, at.slab)
    slope, bend = (scale * share)[of], (scale * share * (3.0 * share - 2.0))[of]
    scale, z = scale[of], x[:size]
    energy = F @ (scale * z)
    p = np.exp(energy - energy.max())
    p /= p.sum()
    expected = p @ F
    gradient = sums - total * expected
    root = np.sqrt(p * total)[:, None] * (F - expected)
    H = np.zeros((len(x), len(x)))
    J = np.zeros((size, len(x)))
    J[np.arange(size), np.arange(size)] = scale
    H[np.arange(size), np.arange(size)] = -1.0
    moves = table_scales[of] >= 0
    k, column = np.flatnonzero(moves), table_scales[of][moves]
    J[k, column] = (z * slope)[moves]
    np.add.at(H, (k, column), (gradient * slope)[moves])
    np.add.at(H, (column, k), (gradient * slope)[moves])
    np.add.at(H, (column, column), (gradient * z * bend)[moves])
    H -= J.T @ (root.T @ root) @ J
    if at.prior.slope:
        w = u - at.groups.of_kind(v)
        c = (at.prior.slope(w + STEP) - at.prior.slope(w - STEP)) / (2.0 * STEP)
        H[table_scales, table_scales] += c
        if at.scale is None:
            kind = np.repeat([-2, -1], (at.groups.fields, len(table_scales) - at.groups.fields)) + len(x)
            np.subtract.at(H, (table_scales, kind), c)
            np.subtract.at(H, (kind, table_scales), c)
            np.add.at(H, (kind, kind), c)
    if at.scale is None:
        last = np.array([len(x) - 2, len(x) - 1])
        H[last, last] += (at.prior.hyper_slope(v + STEP) - at.prior.hyper_slope(v - STEP)) / (2.0 * STEP)
    return H


def mean_slopes(at: Approximation) -> np.ndarray:
    """Return the slopes (layout.size, 2n) of the means of the parameters by those and by the log sds."""
    size, n, of, table_scales = at.layout.size, len(at.mean), at.groups.of, _own_scale(at)
    mean, sd = at.log_scales
    scale, share = slabbed(mean + sd * NODES[:, None], at.slab)
    first, by_mean = NODE_WEIGHTS @ scale, NODE_WEIGHTS @ (scale * share)
    by_log_sd = NODE_WEIGHTS @ (scale * share * sd * NODES[:, None])
    out, z = np.zeros((size, 2 * n)), at.mean[:size]
    out[np.arange(size), np.arange(size)] = first[of]
    moves = table_scales[of] >= 0
    k, column = np.flatnonzero(moves), table_scales[of][moves]
    out[k, column] = (z * by_mean[of])[moves]
    out[k, n + column] = (z * by_log_sd[of])[moves]
    return out
