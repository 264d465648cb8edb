"""Fit P(group | row) for K groups jointly, in a basis of the kernel or on minibatches of rows.

The log-odds f are functions in the space of the kernel in `bbl.engines.conditional.kernel`. Their
squared norm is penalised.
"""

# A sum of ``k(x_p, .)`` over selected rows x_p equals a table of fields for each predictor and a
# table of couplings for each pair. Letters: n rows, m predictors, r basis functions, K groups.
# Fixed scores s are another model's class scores, used as an offset; their factor T is the
# temperature.

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bbl._ext.conditional.conditional import Climber
from bbl._ext.conditional.multinomial import Panels, Regression
from bbl.engines.conditional.coding import coding_of
from bbl.engines.conditional.kernel import make_basis, shares_and_factors
from bbl.engines.engine_fit import JointFit
from bbl.model.layout import Layout
from bbl.model.regressors import pair_cells
from bbl.parallel import stop_flag

__all__ = [
    "CALIBRATION",
    "COMPARISON",
    "FINAL",
    "HARMLESS",
    "OFFSET_PENALTY",
    "Solution",
    "Tolerance",
    "bound_scores",
    "fit_minibatches",
    "solve",
]

OFFSET_PENALTY = 1e-8  # keeps the offsets of groups without rows finite
SCORE_RANGE = 50.0  # scores are raised to at most this distance below the highest of their row
BATCH = 500  # rows of a minibatch
PROBE = 500  # number of rows to estimate the largest eigenvalue of the kernel
# steps over which Nesterov's velocity decays if fixed scores explain nothing
MIN_DECAY_STEPS = 10.0
MAX_DECAY_STEPS = 40.0  # the same if fixed scores explain nearly all variation
RATE = 1.0  # step in units of the inverse of the kernel's largest eigenvalue
HARMLESS = 1e-5  # gradients up to this change probabilities in the fifth decimal at most


class Tolerance(NamedTuple):
    """Stopping rule: a fit stops as soon as one of the criteria is met.

    Attributes
    ----------
    gradient : float
        Bound on the largest absolute component of the gradient with respect to scaled parameters.
    gain : float
        Bound on the decrease in the objective in a single step.
    rounds : int
        Maximum number of steps.
    """

    gradient: float
    gain: float
    rounds: int


FINAL = Tolerance(gradient=1e-8, gain=1e-15, rounds=2000)  # for estimates
# for out-of-fold scores used for calibration
CALIBRATION = Tolerance(gradient=1e-4, gain=1e-7, rounds=200)
# for out-of-fold scores used to compare settings
COMPARISON = Tolerance(gradient=1e-3, gain=1e-5, rounds=100)


class Solution(NamedTuple):
    """The maximum of the penalised conditional likelihood.

    Attributes
    ----------
    weights : ndarray, shape (r, K)
        Weights of the r basis functions in each group.
    offset : ndarray, shape (K,)
    temperature : float
        Factor T of the fixed scores; 1 if there are none.
    loss : float
        Log-loss on the fitted rows, excluding the penalty.
    gradient : float
        Largest component of the gradient with respect to scaled parameters.
    evaluations : int
        Number of evaluations of the objective.
    converged : bool
        Whether the gradient is at most ten times the tolerance, or at most 1e-5.
    unknowns : ndarray, shape (K r + K + 1,)
        Weights (group by group), offsets and ln T, which can be used as a warm start for the next
        fit.
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
    functions: np.ndarray | Panels,
    spectrum: np.ndarray,
    group_weights: np.ndarray,
    ridges: Sequence[float],
    scores: np.ndarray | None = None,
    tolerance: Tolerance = FINAL,
    start: np.ndarray | None = None,
) -> list[Solution]:
    """Minimise ``-mean log softmax_y(T s_y(x) + b_y + f_y(x)) + ridge/2 |f|^2`` over f, b and T.

    The mean is weighted. The function f_y is the sum of the basis functions, each multiplied by its
    weight in group y. The functions are orthonormal in the kernel's space, so ``|f|^2`` is the sum
    of squares of all weights (r, K).

    Parameters
    ----------
    functions : ndarray, shape (n, r), or Panels
        Basis functions evaluated at the rows; `Panels` if several calls share them.
    spectrum : ndarray, shape (r,)
        Weighted mean square of each basis function.
    group_weights : ndarray, shape (n, K)
        Weight of each group in each row.
    ridges : sequence of float
        Penalties in decreasing order. Each fit starts from the previous one. With ``inf``, f is
        omitted.
    scores : ndarray, shape (n, K), optional
        Fixed out-of-fold class scores s. If given, the penalty on offsets and ln T has the weight
        of one observation, as in `bbl.stats.calibration`. Otherwise, T is 1.
    tolerance : Tolerance
    start : ndarray, shape (K r + K + 1,), optional
        The ``unknowns`` of an earlier solution.

    Returns
    -------
    list of Solution
        One solution for each of the `ridges`.
    """
    r = len(spectrum)
    K = group_weights.shape[1]
    total = group_weights.sum()
    panels = functions if isinstance(functions, Panels) else Panels(functions)
    shares = group_weights / total
    fixed_scores = np.empty((0, K))
    offset_penalty = OFFSET_PENALTY
    temperature_curvature = 1.0
    if scores is not None:
        fixed_scores = np.ascontiguousarray(bound_scores(scores))
        offset_penalty = 1.0 / total
        # curvature along ln T at T = 1 and equal class probabilities; 1 is added so that it is
        # positive
        centred = fixed_scores - fixed_scores.mean(axis=1, keepdims=True)
        temperature_curvature += float(shares.sum(axis=1) @ (centred**2).sum(axis=1)) / K
    # weights, group by group, offsets and ln T
    x = np.zeros(K * r + K + 1) if start is None else start.copy()
    fits = []
    for ridge in ridges:
        fits_f = bool(np.isfinite(ridge))
        # near the solution, the Hessian in the weights is about ridge + spectrum p (1 - p), here
        # with p = 1 / K
        curvature = (ridge if fits_f else 1.0) + spectrum * (K - 1.0) / K**2
        weight_scale = np.tile(1.0 / np.sqrt(curvature), K)
        # inverse roots of the curvatures (1 for offsets): in these units the curvature of the
        # objective is about the same in all directions
        scale = np.concatenate([weight_scale, np.ones(K), [1.0 / np.sqrt(temperature_curvature)]])
        regression = Regression(panels, shares, fixed_scores, float(ridge), offset_penalty)
        # overwrites x; returns the objective, the largest gradient component in scaled unknowns,
        # and the number of evaluations
        value, largest_gradient, evaluations = regression.minimise(
            x, scale, *tolerance, stop_flag()
        )
        weights = x[: r * K].reshape(K, r).T.copy()
        offset = x[r * K : -1].copy()
        # the loss is the objective without its penalties; x[r * K :] are the offsets and ln T (0
        # without scores)
        loss = value - 0.5 * offset_penalty * float(x[r * K :] @ x[r * K :])
        loss -= 0.5 * ridge * float((weights * weights).sum()) if fits_f else 0.0
        temperature = float(np.exp(x[-1])) if scores is not None else 1.0
        converged = bool(largest_gradient <= max(10.0 * tolerance.gradient, HARMLESS))
        fits.append(
            Solution(
                weights,
                offset,
                temperature,
                loss,
                largest_gradient,
                evaluations,
                converged,
                x.copy(),
            )
        )
    return fits


def bound_scores(scores: np.ndarray) -> np.ndarray:
    """Return class scores (n, K) that are at most 50 below the highest score in their row.

    Lower scores, including -inf, are raised to this bound.
    """
    return np.maximum(scores, scores.max(axis=1, keepdims=True) - SCORE_RANGE)


def fit_minibatches(
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
    """Minimise the objective of `solve` with T = 1 by Nesterov's method on shuffled minibatches.

    For each batch, residuals are summed over the pairs of levels that occur in its rows, without
    forming an array of all products of indicators. The curvature of the loss is at most half the
    largest eigenvalue of the kernel. The initial step is the inverse of this eigenvalue, or of 2
    `ridge` if that is larger, and it decreases linearly to zero. Couplings are computed in single
    precision.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
        Levels of the rows.
    y : ndarray of int, shape (n,)
        Groups.
    weights : ndarray, shape (n,)
    layout : Layout
    K : int
    tau : float
        Weight of couplings relative to fields.
    ridge : float
        Penalty on f. With ``inf``, f and the offsets remain 0.
    epochs : int
        Number of passes over the rows.
    rng : Generator
    scores : ndarray, shape (n, K), optional
        Fixed class scores s.

    Returns
    -------
    JointFit
        Its loss is the mean over the last epoch. The loss of each row is evaluated when the row is
        visited.
    """
    n = len(codes)
    row_shares = weights / weights.sum()
    # kernel_factors: the factors of fields and of couplings in the kernel
    level_shares, kernel_factors = shares_and_factors(
        codes, row_shares, layout, coding_of(layout, "nominal"), tau
    )
    probe_rows = rng.permutation(n)[:PROBE]
    largest_eigenvalue = make_basis(
        codes[probe_rows], weights[probe_rows], layout, tau, len(probe_rows)
    ).spectrum.max()
    rate = RATE / max(float(largest_eigenvalue), 2.0 * ridge if np.isfinite(ridge) else 0.0)
    # means (D,) of the indicators of non-reference levels
    means = np.concatenate([shares[1:] for shares in level_shares])
    # (2, pairs): the two predictors of each
    pairs = np.ascontiguousarray(layout.pairs.T, dtype=np.intp)
    # State of the fit: fields h (D, K), couplings J (D, D, K), and two offsets (K,). b is the
    # score with all indicators at their means, and b + shift the score of the row of reference
    # levels.
    climber = Climber(layout.start.astype(np.intp), pairs, means, K, kernel_factors)
    fixed_scores = np.empty((0, K)) if scores is None else np.ascontiguousarray(scores)
    momentum = 1.0 - 1.0 / _velocity_decay_steps(fixed_scores, y, row_shares, K)
    loss = np.nan
    for epoch in range(epochs if np.isfinite(ridge) else 0):
        # step lengths at the beginning and the end of the epoch; the weights are scaled to mean 1
        first_step = rate * (1.0 - epoch / epochs)
        last_step = rate * (1.0 - (epoch + 1) / epochs)
        order = rng.permutation(n)
        loss = climber.epoch(
            codes,
            y.astype(np.intp),
            weights * (n / weights.sum()),
            fixed_scores,
            order,
            BATCH,
            first_step,
            last_step,
            momentum,
            ridge,
        )
    theta = np.zeros((K, layout.size))
    theta[:, : layout.D] = climber.h.T
    if layout.count(2):  # there are pairs
        row, col = pair_cells(layout)  # the two non-reference levels, 0 ... D - 1, of each coupling
        theta[:, layout.D :] = climber.J[row, col].T
    return JointFit(
        theta,
        climber.b + climber.shift,
        temperature=1.0,
        loss=loss,
        gradient=np.nan,
        evaluations=0,
        converged=False,
    )


def _velocity_decay_steps(
    scores: np.ndarray, y: np.ndarray, row_shares: np.ndarray, K: int
) -> float:
    """Return the number d of steps over which the velocity decays; momentum is 1 - 1/d.

    The number d is ``10 (1 - sum_k share_k^2) / (1 - mean sum_k p_k^2)``, limited to values between
    10 and 40, where p are the probabilities computed from the fixed scores. It is inversely
    proportional to the fraction of the group indicators' variance that the scores do not explain.
    If the scores explain more, the signal in each batch is smaller, and the average should include
    more steps.

    Parameters
    ----------
    scores : ndarray, shape (n, K) or (0, K)
        Fixed class scores. If there are none, d has its minimum value, 10.
    y : ndarray of int, shape (n,)
        Groups.
    row_shares : ndarray, shape (n,)
        Fraction of the total weight in each row.
    K : int
    """
    if not len(scores):
        return MIN_DECAY_STEPS
    p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
    group_shares = np.bincount(y, row_shares, K)
    # mean variance of the group's indicators, given scores
    unexplained = 1.0 - float(row_shares @ (p**2).sum(axis=1))
    decay_steps = MIN_DECAY_STEPS * (1.0 - group_shares @ group_shares) / max(unexplained, 1e-300)
    return float(np.clip(decay_steps, MIN_DECAY_STEPS, MAX_DECAY_STEPS))
