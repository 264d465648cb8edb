"""Fits of P(group | row) for K groups at once: by functions that span a kernel, or by minibatches of rows.

The log-odds f are functions of the kernel k of `bbl.engines.conditional.kernel`, penalised by their squared norm. A sum
of ``k(x_p, .)`` over chosen rows x_p equals a table of fields for each predictor and of couplings for each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bbl._ext.conditional.conditional import Climber
from bbl._ext.conditional.multinomial import Regression
from bbl.engines.conditional.coding import coding_of
from bbl.engines.conditional.kernel import kernel_means, kernel_scale, make_basis
from bbl.engines.engine_fit import JointFit
from bbl.model.layout import Layout
from bbl.model.pairwise import cells
from bbl.parallel import stop_flag

__all__ = [
    "CALIBRATION",
    "COMPARISON",
    "FINAL",
    "HARMLESS",
    "OFFSET_PENALTY",
    "Solution",
    "Tolerance",
    "bounded",
    "minibatches",
    "solve",
]

OFFSET_PENALTY = 1e-8  # keeps the offsets of groups without rows finite
SCORE_RANGE = 50.0  # scores further below the highest of their row are raised to this distance
BATCH = 500  # rows of a minibatch
PROBE = 500  # rows from which the largest eigenvalue of the kernel is estimated
MIN_MEMORY = 10.0  # steps over which a velocity decays, where the scores explain nothing
MAX_MEMORY = 40.0  # the same where the scores explain nearly all
RATE = 1.0  # step in units of the inverse of the kernel's largest eigenvalue
HARMLESS = 1e-5  # gradient that moves probabilities in the fifth decimal at most


class Tolerance(NamedTuple):
    """Stopping rule: largest gradient component in scaled parameters, least gain of a step, largest number of steps."""

    gradient: float
    gain: float
    rounds: int


FINAL = Tolerance(1e-8, 1e-15, 2000)  # for estimates
CALIBRATION = Tolerance(1e-4, 1e-7, 200)  # for out-of-fold scores that are calibrated
COMPARISON = Tolerance(1e-3, 1e-5, 100)  # for out-of-fold scores by which settings are compared


class Solution(NamedTuple):
    """The maximum of the penalised conditional likelihood.

    Attributes
    ----------
    weights : ndarray, shape (r, K)
        Weights of the r basis functions in each group.
    offset : ndarray, shape (K,)
    temperature : float
        Factor T of the given scores; 1 without them.
    loss : float
        Log-loss on the rows, without the penalty.
    gradient : float
        Largest component of the gradient in scaled parameters.
    evaluations : int
        Number of evaluations of the objective.
    converged : bool
        Whether the gradient is at most ten times the tolerance, or 1e-5.
    unknowns : ndarray, shape (K r + K + 1,)
        Weights, group by group, offsets and ln T: a warm start of the next fit.
    """

    weights: np.ndarray
    offset: np.ndarray
    temperature: float
    loss: float
    gradient: float
    evaluations: int
    converged: bool
    unknowns: np.ndarray


def solve(
    functions: np.ndarray,
    spectrum: np.ndarray,
    group_weights: np.ndarray,
    ridges: Sequence[float],
    scores: np.ndarray | None = None,
    tolerance: Tolerance = FINAL,
    start: np.ndarray | None = None,
) -> list[Solution]:
    """Minimise ``-mean log softmax_y(T s_y(x) + b_y + f_y(x)) + ridge/2 |f|^2`` over f, b and T for each ridge.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
        Basis functions at the rows.
    spectrum : ndarray, shape (r,)
        Weighted mean square of each basis function.
    group_weights : ndarray, shape (n, K)
        Weight of each group at each row.
    ridges : sequence of float
        Falling; each fit starts from the one before. ``inf`` leaves f out.
    scores : ndarray, shape (n, K), optional
        Out-of-fold class scores s; without them T is 1. Offsets and ln T are then penalised by the weight of one
        observation, as in `bbl.stats.calibration`.
    tolerance : Tolerance
    start : ndarray, shape (K r + K + 1,), optional
        ``unknowns`` of an earlier solution.

    Returns
    -------
    list of Solution
        One for each of `ridges`.
    """
    r, K = functions.shape[1], group_weights.shape[1]
    total, functions = group_weights.sum(), np.asfortranarray(functions)
    shares = group_weights / total
    kernel_scores, offset_penalty, temperature_curvature = np.empty((0, K)), OFFSET_PENALTY, 1.0
    if scores is not None:
        kernel_scores, offset_penalty = np.ascontiguousarray(bounded(scores)), 1.0 / total
        centred = kernel_scores - kernel_scores.mean(axis=1, keepdims=True)
        temperature_curvature += float(shares.sum(axis=1) @ (centred**2).sum(axis=1)) / K
    x = np.zeros(K * r + K + 1) if start is None else start.copy()
    fits = []
    for ridge in ridges:
        has_functions = bool(np.isfinite(ridge))
        # near the solution the Hessian is about ridge + spectrum p (1 - p), and 1 / K stands for p
        curvature = (ridge if has_functions else 1.0) + spectrum * (K - 1.0) / K**2
        weight_scale = np.tile(1.0 / np.sqrt(curvature), K)
        scale = np.concatenate([weight_scale, np.ones(K), [1.0 / np.sqrt(temperature_curvature)]])
        regression = Regression(functions, shares, kernel_scores, float(ridge), offset_penalty)
        value, gradient, evaluations = regression.minimise(x, scale, *tolerance, stop_flag())
        weights, offset = x[: r * K].reshape(K, r).T.copy(), x[r * K : -1].copy()
        loss = value - 0.5 * offset_penalty * float(x[r * K :] @ x[r * K :])
        loss -= 0.5 * ridge * float((weights * weights).sum()) if has_functions else 0.0
        temperature = float(np.exp(x[-1])) if scores is not None else 1.0
        converged = bool(gradient <= max(10.0 * tolerance.gradient, HARMLESS))
        fits.append(Solution(weights, offset, temperature, loss, gradient, evaluations, converged, x.copy()))
    return fits


def bounded(scores: np.ndarray) -> np.ndarray:
    """Return class scores (n, K), raised to at most 50 below the highest of their row."""
    return np.maximum(scores, scores.max(axis=1, keepdims=True) - SCORE_RANGE)


def minibatches(
    codes: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    layout: Layout,
    K: int,
    tau: float,
    ridge: float,
    epochs: int,
    rng: np.random.Generator,
    scores: np.ndarray | None = None,
) -> JointFit:
    """Minimise the objective of `solve` with T = 1 by Nesterov's method on minibatches of shuffled rows.

    A batch adds up residuals at the pairs of levels of its rows, without an array of all products of indicators. The
    step starts at the inverse of the kernel's largest eigenvalue, or of 2 `ridge` if that is smaller, and falls
    linearly to zero: the loss has at most half the kernel's curvature. Couplings are in single precision.

    The rows have `codes` (n, m), groups `y` (n,), `weights` (n,) and, optionally, class scores `scores` (n, K). `tau`
    is the weight of couplings against fields, `ridge` the penalty, `epochs` the number of passes over the rows.
    """
    n = len(codes)
    share = weights / weights.sum()
    level_shares = [np.bincount(codes[:, i], share, L) for i, L in enumerate(layout.n_levels)]
    nominal = coding_of(layout, "nominal")
    factors = kernel_scale(*kernel_means(codes, share, nominal.means(level_shares), layout, nominal), tau)
    probe_rows = rng.permutation(n)[:PROBE]
    largest = make_basis(codes[probe_rows], weights[probe_rows], layout, tau, len(probe_rows)).spectrum.max()
    rate = RATE / max(float(largest), 2.0 * ridge if np.isfinite(ridge) else 0.0)
    centres = np.concatenate([shares[1:] for shares in level_shares])
    pairs = np.ascontiguousarray(layout.pairs.T, dtype=np.intp)
    climber = Climber(layout.start.astype(np.intp), pairs, centres, K, factors)
    kernel_scores = np.empty((0, K)) if scores is None else np.ascontiguousarray(scores)
    momentum = 1.0 - 1.0 / _memory(kernel_scores, y, share, K)
    loss = np.nan
    for e in range(epochs if np.isfinite(ridge) else 0):
        first_step, last_step = rate * (1.0 - e / epochs), rate * (1.0 - (e + 1) / epochs)
        order = rng.permutation(n)
        loss = climber.epoch(codes, y.astype(np.intp), weights * (n / weights.sum()), kernel_scores, order, BATCH,
                             first_step, last_step, momentum, ridge)  # fmt: skip
    theta = np.zeros((K, layout.size))
    theta[:, : layout.D] = climber.h.T
    if layout.count(2):
        row, col = cells(layout)
        theta[:, layout.D :] = climber.J[row, col].T
    return JointFit(theta, climber.b + climber.shift, 1.0, loss, np.nan, 0, False)


def _memory(scores: np.ndarray, y: np.ndarray, share: np.ndarray, K: int) -> float:
    """Return the number of steps over which a velocity decays, in inverse proportion to the variance left by scores.

    That is the variance of the group given the `scores`, (n, K) or without rows, as a share of the variance without
    them; the less is left, the less do batches differ. `share` (n,) holds the rows' shares of the weight.
    """
    if not len(scores):
        return MIN_MEMORY
    p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
    group_shares = np.bincount(y, share, K)
    unexplained = 1.0 - float(share @ (p**2).sum(axis=1))
    memory = MIN_MEMORY * (1.0 - group_shares @ group_shares) / max(unexplained, 1e-300)
    return float(np.clip(memory, MIN_MEMORY, MAX_MEMORY))
