"""Linear response covariances of parameters, based on a factorised variational posterior."""

# The sds of a factorised approximation are too small if parameters depend on each other. Linear
# response estimates the covariance by the derivatives of the posterior means with respect to a
# linear tilt of the log posterior: ``G H^-1 G'``, where H is minus the Hessian of the evidence
# lower bound in the n means and n log sds of the approximation, and G is the Jacobian of the
# parameters' means (Giordano, Broderick & Jordan 2018).
#
# Features are the products of contrasts that are multiplied by parameters in simplex coding. The n
# numbers of the approximation are z (layout.size,), the log scales u (G,) of groups, and the log
# global scales v (2,); u and v may be absent (see `bbl.engines.variational.scaled`).

from __future__ import annotations

import numpy as np

from bbl.engines.variational.priors import NODE_WEIGHTS, NODES, slabbed
from bbl.engines.variational.scaled import Approximation
from bbl.model.gauge import contrasts, reference_covariance
from bbl.model.layout import Layout
from bbl.model.listing import state_codes
from bbl.parallel import serial_blas

__all__ = ["MAX_MULTIPLICATIONS", "count_multiplications", "response_covariance", "response_sd"]

# maximum number of multiplications for the covariance of all features at one draw; all draws
# together take seconds
MAX_MULTIPLICATIONS = 2.0**28
DRAW_PAIRS = 64  # number of pairs of antithetic draws from the approximation
STEP = 1e-5  # step of the difference quotients for the curvature of a prior


def count_multiplications(layout: Layout) -> float:
    """Return the number of multiplications for the covariance of all features over all states."""
    return float(layout.n_levels.astype(float).prod()) * float(layout.size) ** 2


def state_features(layout: Layout) -> np.ndarray:
    """Return the features (states, layout.size) of all states in simplex coding."""
    codes = state_codes(np.arange(int(layout.n_levels.prod())), layout.n_levels)
    out = np.empty((len(codes), layout.size))
    level_contrasts = [contrasts(L)[codes[:, i]] for i, L in enumerate(layout.n_levels)]
    out[:, : layout.D] = np.hstack(level_contrasts)
    for p, (i, j) in enumerate(layout.pairs):
        cells = slice(layout.pair_start[p], layout.pair_start[p + 1])
        out[:, cells] = (level_contrasts[i][:, :, None] * level_contrasts[j][:, None, :]).reshape(
            len(codes), -1
        )
    return out


def response_sd(
    approx: Approximation, feature_sums: np.ndarray, total: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the sds (layout.size,) of the parameters in the reference gauge.

    See `response_covariance`.
    """
    covariance = reference_covariance(
        approx.layout, response_covariance(approx, feature_sums, total, rng)
    )
    return np.sqrt(np.maximum(covariance.diagonal(), 0.0))


def response_covariance(
    approx: Approximation, feature_sums: np.ndarray, total: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the covariance (layout.size, layout.size) of the parameters in simplex coding.

    `feature_sums` (layout.size,) contains the features summed over rows with total weight `total`.
    The Hessian of the log posterior is averaged over points drawn with `rng`. If the bound is not
    concave at the approximation, which is then not an optimum, the result is nan.
    """
    noise = rng.standard_normal((DRAW_PAIRS, len(approx.mean)))
    with serial_blas():
        curvature = -bound_hessian(approx, feature_sums, total, np.concatenate([noise, -noise]))
        slopes = mean_slopes(approx)
        try:
            root = np.linalg.cholesky(curvature)
        except np.linalg.LinAlgError:
            return np.full((approx.layout.size, approx.layout.size), np.nan)
        whitened_slopes = np.linalg.solve(root, slopes.T)
        return whitened_slopes.T @ whitened_slopes


def _log_scale_entries(approx: Approximation) -> np.ndarray:
    """Return the position (G,) of each group's log scale among the n means; -1 if it is fixed.

    The log scale is u or, if all groups have the global scale, v.
    """
    if approx.prior.slope:
        return approx.layout.size + np.arange(len(approx.groups))
    v_entry = np.repeat(
        [-2, -1], (approx.groups.fields, len(approx.groups) - approx.groups.fields)
    ) + len(approx.mean)
    return v_entry if approx.scale is None else np.full(len(approx.groups), -1)


def bound_hessian(
    approx: Approximation, feature_sums: np.ndarray, total: float, noise: np.ndarray
) -> np.ndarray:
    """Return the Hessian (2n, 2n) of the evidence lower bound with respect to means and log sds.

    The Hessian is averaged over draws `noise` (Q, n). `feature_sums` and `total` are the same as in
    `response_covariance`. In the second derivative with respect to a log sd, the term with the
    gradient of the log posterior is replaced by its value at an optimum. This value is -1, because
    at an optimum the gradient of the bound is zero, and the derivative of the entropy with respect
    to each log sd is 1.
    """
    F = state_features(approx.layout)
    n = len(approx.mean)
    sd = np.exp(approx.log_sd)
    out = np.zeros((2, n, 2, n))  # axes 0 and 2: means (0) or log sds (1)
    for draw in noise:
        # the derivative of the point in a log sd is its deviation from the mean
        H = log_posterior_hessian(approx, F, feature_sums, total, approx.mean + sd * draw)
        deviation = sd * draw
        by_log_sd = H * deviation
        out[0, :, 0] += H
        out[0, :, 1] += by_log_sd
        out[1, :, 1] += by_log_sd * deviation[:, None]
    out /= len(noise)
    out[1, :, 0] = out[0, :, 1].T
    out[1, np.arange(n), 1, np.arange(n)] -= 1.0
    return out.reshape(2 * n, 2 * n)


def log_posterior_hessian(
    approx: Approximation, F: np.ndarray, feature_sums: np.ndarray, total: float, x: np.ndarray
) -> np.ndarray:
    """Return the Hessian (n, n) of the log posterior of z, u and v at a point x (n,).

    Let theta (size,) be the parameters, J their derivatives with respect to x, and g and -R'R the
    gradient and the Hessian of the log-likelihood with respect to theta. The result is ``-J' R'R J
    + sum_k g_k (second derivatives of theta_k)`` plus the Hessian of the log prior, which is -1 for
    each z and is computed from difference quotients of the prior's slopes for u and v. `F` (states,
    size) contains the `state_features` of all states. `feature_sums` and `total` are the same as in
    `response_covariance`.
    """
    size = approx.layout.size
    group_of = approx.groups.of_parameter
    entries = _log_scale_entries(approx)
    v = x[-2:] if approx.scale is None else np.full(2, np.log(approx.scale))
    u = x[entries] if approx.prior.slope else approx.groups.repeat_by_kind(v)
    scale, log_slope = slabbed(u, approx.slab)
    # first and second derivatives of each parameter's scale in its log scale; log_slope s is the
    # derivative of the log of the bounded scale, and has itself the derivative -2 s (1 - s)
    slope = (scale * log_slope)[group_of]
    second = (scale * log_slope * (3.0 * log_slope - 2.0))[group_of]
    scale = scale[group_of]
    z = x[:size]
    log_p = F @ (scale * z)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    expected = p @ F
    gradient = feature_sums - total * expected  # g
    root = np.sqrt(p * total)[:, None] * (F - expected)  # R, (states, size)
    H = np.zeros((len(x), len(x)))
    J = np.zeros((size, len(x)))  # derivatives of the parameters in x
    J[np.arange(size), np.arange(size)] = scale
    if not approx.prior.flat:
        H[np.arange(size), np.arange(size)] = -1.0  # the standard normal prior of z
    has_scale = entries[group_of] >= 0  # parameters whose log scale is an entry of x
    z_entry = np.flatnonzero(has_scale)
    scale_entry = entries[group_of][has_scale]
    J[z_entry, scale_entry] = (z * slope)[has_scale]
    # second derivatives of the parameters in z and the log scale, times the gradient
    np.add.at(H, (z_entry, scale_entry), (gradient * slope)[has_scale])
    np.add.at(H, (scale_entry, z_entry), (gradient * slope)[has_scale])
    np.add.at(H, (scale_entry, scale_entry), (gradient * z * second)[has_scale])
    H -= J.T @ (root.T @ root) @ J
    if approx.prior.slope:  # the prior of w = u - v
        w = u - approx.groups.repeat_by_kind(v)
        curvature = (approx.prior.slope(w + STEP) - approx.prior.slope(w - STEP)) / (2.0 * STEP)
        H[entries, entries] += curvature
        if approx.scale is None:
            global_entries = np.repeat(
                [-2, -1], (approx.groups.fields, len(entries) - approx.groups.fields)
            ) + len(x)
            # .at: all groups of a kind contribute to the same entries of H
            np.subtract.at(H, (entries, global_entries), curvature)
            np.subtract.at(H, (global_entries, entries), curvature)
            np.add.at(H, (global_entries, global_entries), curvature)
    if approx.scale is None:  # the hyperprior of v
        v_entry = np.array([len(x) - 2, len(x) - 1])
        H[v_entry, v_entry] += (
            approx.prior.hyper_slope(v + STEP) - approx.prior.hyper_slope(v - STEP)
        ) / (2.0 * STEP)
    return H


def mean_slopes(approx: Approximation) -> np.ndarray:
    """Return derivatives (layout.size, 2n) of parameter means with respect to means and log sds."""
    size = approx.layout.size
    n = len(approx.mean)
    group_of = approx.groups.of_parameter
    entries = _log_scale_entries(approx)
    mean, sd = approx.log_scales  # (G,) each, of the log scales
    scale, log_slope = slabbed(mean + sd * NODES[:, None], approx.slab)
    # the mean scale of each group (G,), and its derivatives in the mean and the log sd of the log
    # scale
    mean_scale = NODE_WEIGHTS @ scale
    by_mean = NODE_WEIGHTS @ (scale * log_slope)
    by_log_sd = NODE_WEIGHTS @ (scale * log_slope * sd * NODES[:, None])
    out = np.zeros((size, 2 * n))
    z = approx.mean[:size]
    out[np.arange(size), np.arange(size)] = mean_scale[group_of]
    has_scale = entries[group_of] >= 0  # parameters whose log scale is not fixed
    parameter = np.flatnonzero(has_scale)
    scale_entry = entries[group_of][has_scale]
    out[parameter, scale_entry] = (z * by_mean[group_of])[has_scale]
    out[parameter, n + scale_entry] = (z * by_log_sd[group_of])[has_scale]
    return out
