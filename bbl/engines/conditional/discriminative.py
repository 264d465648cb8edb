"""Fields and couplings that maximise P(group | row), by a kernel or by minibatches of rows.

The functions are those of the kernel of `bbl.engines.conditional.kernel`, and the penalty is the squared norm that goes
with it. The solution is a sum of ``k(x_p, .)`` over rows x_p, of which as many are taken as make up k; and that is
exactly a table of fields for each predictor and one of couplings for each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bbl._ext.conditional.conditional import Climber
from bbl._ext.conditional.multinomial import Regression
from bbl.engines.conditional.kernel import diagonal, kernel_scale, make_basis, own_levels
from bbl.engines.engine_fit import JointFit
from bbl.model.layout import Layout
from bbl.model.pairwise import cells
from bbl.parallel import stop_flag

__all__ = ["CLOSE", "HARMLESS", "NEAR", "ROUGH", "SLIGHT", "Solution", "Tolerance", "bounded", "minibatches", "solve"]

SLIGHT = 1e-8  # penalty of offsets, so that those of groups without rows end somewhere
LOWEST = 50.0  # how far below the highest score of a row others count
BATCH = 500  # rows of a minibatch
PROBE = 500  # rows of which the largest eigenvalue of the kernel is estimated
MEMORY = 10.0, 40.0  # steps that a velocity lasts: where all is to be learnt, and where next to nothing is
RATE = 1.0  # step in units of the kernel's largest eigenvalue
HARMLESS = 1e-5  # gradient that moves probabilities in the fifth decimal at most


class Tolerance(NamedTuple):
    """Stopping rule of a fit: largest gradient in scaled parameters, least gain of a step, and number of steps."""

    gradient: float
    gain: float
    rounds: int


CLOSE = Tolerance(1e-8, 1e-15, 2000)
NEAR = Tolerance(1e-4, 1e-7, 200)  # of a fit whose scores are calibrated
ROUGH = Tolerance(1e-3, 1e-5, 100)  # of fits that are compared


class Solution(NamedTuple):
    """The maximum of the penalised conditional likelihood.

    Attributes
    ----------
    weights : ndarray, shape (r, K)
        Of the functions of the basis, in each group.
    offset : ndarray, shape (K,)
    temperature : float
        Factor of the scores that were given.
    loss : float
        Log-loss on the rows, without the penalty.
    gradient : float
        Largest component of the gradient in scaled unknowns.
    evaluations : int
        How often the objective was worked out.
    converged : bool
        Whether the gradient is at most ten times what was asked for, or 1e-5.
    unknowns : ndarray, shape (K r + K + 1,)
        All of them in a row, for the next fit to start from.
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
    hits: np.ndarray,
    ridges: Sequence[float],
    scores: np.ndarray | None = None,
    tolerance: Tolerance = CLOSE,
    start: np.ndarray | None = None,
) -> list[Solution]:
    """Minimise ``-mean log softmax_y(T s_y(x) + b_y + f_y(x)) + ridge/2 |f|^2`` over f, b and T, ridge after ridge.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
        Of a `Basis`, at the rows.
    spectrum : ndarray, shape (r,)
    hits : ndarray, shape (n, K)
        Weight of each group at each row.
    ridges : sequence of float
        Falling; each starts from the solution before it. ``inf`` leaves f out.
    scores : ndarray, shape (n, K), optional
        Class scores s of the rows by models that were not fitted to them; T is 1 without them. Offsets and ln T are
        then penalised as in `bbl.stats.calibration`, by the weight of one observation.
    tolerance : Tolerance
    start : ndarray, shape (K r + K + 1,), optional
        ``unknowns`` of an earlier solution.

    Returns
    -------
    list of Solution
        One for each of `ridges`.
    """
    r, K = functions.shape[1], hits.shape[1]
    total, functions = hits.sum(), np.asfortranarray(functions)
    hits = hits / total
    given_scores, slight, curved = np.empty((0, K)), SLIGHT, 1.0
    if scores is not None:
        given_scores, slight = np.ascontiguousarray(bounded(scores)), 1.0 / total
        middle = given_scores - given_scores.mean(axis=1, keepdims=True)
        curved += float(hits.sum(axis=1) @ (middle**2).sum(axis=1)) / K
    x = np.zeros(K * r + K + 1) if start is None else start.copy()
    fits = []
    for ridge in ridges:
        free = bool(np.isfinite(ridge))
        # near the solution the Hessian is about ridge + spectrum p (1 - p), and 1 / K stands for p
        rate = (ridge if free else 1.0) + spectrum * (K - 1.0) / K**2
        scale = np.concatenate([np.tile(1.0 / np.sqrt(rate), K), np.ones(K), [1.0 / np.sqrt(curved)]])
        regression = Regression(functions, hits, given_scores, float(ridge), slight)
        value, gradient, evaluations = regression.minimise(x, scale, *tolerance, stop_flag())
        A, b = x[: r * K].reshape(K, r).T.copy(), x[r * K : -1].copy()
        plain = value - 0.5 * slight * float(x[r * K :] @ x[r * K :])
        plain -= 0.5 * ridge * float((A * A).sum()) if free else 0.0
        heat = float(np.exp(x[-1])) if scores is not None else 1.0
        converged = bool(gradient <= max(10.0 * tolerance.gradient, HARMLESS))
        fits.append(Solution(A, b, heat, plain, gradient, evaluations, converged, x.copy()))
    return fits


def bounded(scores: np.ndarray) -> np.ndarray:
    """Return class scores (n, K) of which none is further than 50 below the highest of its row."""
    return np.maximum(scores, scores.max(axis=1, keepdims=True) - LOWEST)


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
    """Minimise the objective of `solve`, but for the temperature, by Nesterov's method on minibatches of shuffled rows.

    The products of indicators are never made: a batch adds up residuals at the pairs of levels of its rows. The step is
    a multiple of what the kernel's largest eigenvalue allows, and falls linearly to zero. Velocities last the longer,
    the less the scores leave to learn. Couplings are in single precision.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    y : ndarray of intp, shape (n,)
    weights : ndarray, shape (n,)
    layout : Layout
    K : int
    tau, ridge : float
    epochs : int
    rng : numpy.random.Generator
        Shuffles the rows.
    scores : ndarray, shape (n, K), optional
        Class scores that are added to.
    """
    n = len(codes)
    share = weights / weights.sum()
    means = np.concatenate([np.bincount(codes[:, i], share, L) for i, L in enumerate(layout.n_levels)])
    g = g2 = 0.0
    for lo in range(0, n, 4096):
        row_range = slice(lo, lo + 4096)
        parts = diagonal(codes[row_range], means, layout)
        g, g2 = g + float(share[row_range] @ parts[0]), g2 + float(share[row_range] @ parts[1])
    probe_rows = rng.permutation(n)[:PROBE]
    largest = make_basis(codes[probe_rows], weights[probe_rows], layout, tau, len(probe_rows)).spectrum.max()
    rate = RATE / float(largest)
    columns = np.concatenate([means[row_range][1:] for row_range in own_levels(layout)])
    pairs = np.ascontiguousarray(layout.pairs.T, dtype=np.intp)
    climber = Climber(layout.start.astype(np.intp), pairs, columns, K, kernel_scale(g, g2, tau))
    given_scores = np.empty((0, K)) if scores is None else np.ascontiguousarray(scores)
    momentum = 1.0 - 1.0 / _memory(given_scores, y, share, K)
    loss, free = np.nan, np.isfinite(ridge)
    for e in range(epochs if free else 0):
        now, then = rate * (1.0 - e / epochs), rate * (1.0 - (e + 1) / epochs)
        order = rng.permutation(n)
        loss = climber.epoch(codes, y.astype(np.intp), weights * (n / weights.sum()), given_scores, order, BATCH, now,
                             then, momentum, ridge)  # fmt: skip
    theta = np.zeros((K, layout.size))
    theta[:, : layout.D] = climber.h.T
    if layout.count(2):
        row, col = cells(layout)
        theta[:, layout.D :] = climber.J[row, col].T
    return JointFit(theta, climber.b + climber.shift, 1.0, loss, np.nan, 0, False)


def _memory(given: np.ndarray, y: np.ndarray, share: np.ndarray, K: int) -> float:
    """Return how many steps a velocity lasts: the more, the less scores leave to learn, as batches then differ less.

    That is the variance of the group given the scores, in units of that without them.
    """
    if not len(given):
        return MEMORY[0]
    p = np.exp(given - np.logaddexp.reduce(given, axis=1, keepdims=True))
    groups = np.bincount(y, share, K)
    unexplained = 1.0 - float(share @ (p**2).sum(axis=1))
    return float(np.clip(MEMORY[0] * (1.0 - groups @ groups) / max(unexplained, 1e-300), *MEMORY))
