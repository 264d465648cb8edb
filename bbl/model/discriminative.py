"""Fields and couplings that maximise P(group | row): a kernel of centred levels and their products, and tables again.

The functions are those of ``k(x, x') = (g / a + tau g2 / b) / (1 + tau)``: `g` is the inner product of the rows'
centred indicators of levels, `g2` sums the products of those of interacting predictors, `a` and `b` are their means
over the rows. The penalty is the squared norm that goes with k. What solves it is a sum of ``k(x_p, .)`` over rows x_p,
of which as many are taken (by pivoted Cholesky) as make up k; and that is exactly a table of fields for each
predictor and one of couplings for each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bbl._ext.conditional import Climber
from bbl.model.layout import Layout
from bbl.model.pairwise import cells
from bbl.stats.scores import log_probabilities

__all__ = ["Basis", "JointFit", "Solution", "bounded", "make_basis", "minibatches", "solve", "to_tables"]

EXACT = 1e-10  # share of the kernel's trace that may be left out
SLIGHT = 1e-8  # penalty of offsets, so that those of groups without rows end somewhere
LOWEST = 50.0  # how far below the highest score of a row others count
CLOSE = 1e-8  # gradient at which a fit has converged
ROUNDS, ROUGH_ROUNDS = 500, 200  # of L-BFGS, of a fit and of one that is compared with others
ROUGH = 1e-9  # relative decrease of the objective at which the latter ends
BATCH, MOMENTUM, PROBE = 500, 0.9, 500
RATE = 3.0  # step in units of the kernel's largest eigenvalue
HARMLESS = 1e-5  # gradient that moves probabilities in the fifth decimal at most


@dataclass(frozen=True)
class Basis:
    """Functions of a row that span those of the kernel, orthogonal over the rows they were made of.

    Attributes
    ----------
    layout : Layout
        Fields, and the pairs that interact.
    means : ndarray, shape (sum(n_levels),)
        Shares of all levels of all predictors, which are taken off their indicators.
    points : ndarray, shape (r, sum(n_levels))
        Centred indicators of the rows x_p.
    scale : tuple of float
        Factors of g and g2.
    mix : ndarray, shape (r, r)
        ``k(x, x_p) @ mix`` are the functions at x.
    spectrum : ndarray, shape (r,)
        Weighted mean square of each function.
    """

    layout: Layout
    means: np.ndarray
    points: np.ndarray
    scale: tuple[float, float]
    mix: np.ndarray
    spectrum: np.ndarray

    def __call__(self, codes: np.ndarray, size: int = 4096) -> np.ndarray:
        """Return the functions at encoded rows (n, m), as an array (n, r)."""
        out = np.empty((len(codes), len(self.spectrum)))
        for first in range(0, len(codes), size):
            rows = _indicators(codes[first : first + size], self.layout.n_levels) - self.means
            out[first : first + size] = _kernel(rows, self.points, self.layout, self.scale) @ self.mix
        return out


class Solution(NamedTuple):
    """What maximises the penalised conditional likelihood.

    Attributes
    ----------
    weights : ndarray, shape (r, K)
        Of the functions of the basis, in each group.
    offset : ndarray, shape (K,)
    temperature : float
        Factor of the scores that were given.
    loss : float
        Log-loss on the rows, without the penalty.
    converged : bool
    """

    weights: np.ndarray
    offset: np.ndarray
    temperature: float
    loss: float
    converged: bool


class JointFit(NamedTuple):
    """All groups fitted together: class scores are energies + `constant` + `temperature` times the scores given.

    Attributes
    ----------
    theta : ndarray, shape (K, layout.size)
        In the reference gauge.
    constant : ndarray, shape (K,)
    temperature : float
    loss : float
        Log-loss on the rows, without the penalty.
    converged : bool
    """

    theta: np.ndarray
    constant: np.ndarray
    temperature: float
    loss: float
    converged: bool


def _indicators(codes: np.ndarray, n_levels: np.ndarray) -> np.ndarray:
    """Return the indicators (n, sum(n_levels)) of all levels of all predictors."""
    first = np.concatenate(([0], np.cumsum(n_levels)))
    out = np.zeros((len(codes), first[-1]))
    out[np.arange(len(codes))[:, None], codes + first[:-1]] = 1.0
    return out


def _own(layout: Layout) -> list[slice]:
    """Return where the levels of each predictor stand among all levels."""
    first = np.concatenate(([0], np.cumsum(layout.n_levels))).tolist()
    return [slice(a, b) for a, b in zip(first[:-1], first[1:], strict=True)]


def _products(rows: np.ndarray, points: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return g and g2 (n, r) of centred rows (n, sum(n_levels)) with others (r, sum(n_levels))."""
    g, own = rows @ points.T, _own(layout)
    if not layout.count(2):
        return g, np.zeros_like(g)
    if layout.complete:
        twice = g * g
        for part in own:
            single = rows[:, part] @ points[:, part].T
            twice -= single * single
        return g, 0.5 * twice
    g2 = np.zeros_like(g)
    for i in np.unique(layout.pairs[:, 0]):
        others = np.concatenate(
            [np.arange(own[j].start, own[j].stop) for j in layout.pairs[layout.pairs[:, 0] == i, 1]]
        )
        g2 += (rows[:, own[i]] @ points[:, own[i]].T) * (rows[:, others] @ points[:, others].T)
    return g, g2


def _kernel(rows: np.ndarray, points: np.ndarray, layout: Layout, scale: tuple[float, float]) -> np.ndarray:
    g, g2 = _products(rows, points, layout)
    return scale[0] * g + scale[1] * g2


def _diagonal(rows: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return g and g2 of each centred row with itself."""
    single = np.column_stack([(rows[:, part] ** 2).sum(axis=1) for part in _own(layout)])
    i, j = layout.pairs.T
    adjacent = np.zeros((layout.m, layout.m))
    adjacent[i, j] = 1.0
    return single.sum(axis=1), ((single @ adjacent) * single).sum(axis=1)


def kernel_scale(a: float, b: float, tau: float) -> tuple[float, float]:
    """Return the factors of g and g2 whose means over the rows are `a` and `b`; their sum has a mean of 1."""
    if not b:
        return 1.0 / (a or 1.0), 0.0
    return 1.0 / (a or 1.0) / (1.0 + tau), tau / b / (1.0 + tau)


def make_basis(codes: np.ndarray, weights: np.ndarray, layout: Layout, tau: float, rank: int) -> Basis:
    """Choose rows whose kernels make up that of all rows, and turn them into orthogonal functions.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    weights : ndarray, shape (n,)
        Positive.
    layout : Layout
    tau : float
        How much products weigh against single levels.
    rank : int
        At most so many functions. Where levels and pairs of levels are fewer, the kernel is made up exactly.
    """
    from scipy.linalg import solve_triangular

    rows = _indicators(codes, layout.n_levels)
    share = weights / weights.sum()
    means = share @ rows
    rows -= means
    g, g2 = _diagonal(rows, layout)
    scale = kernel_scale(float(share @ g), float(share @ g2), tau)
    left = scale[0] * g + scale[1] * g2
    total, most = left @ share, min(rank, len(rows))
    factor, chosen = np.empty((most, len(rows))), []
    for k in range(most):
        p = int((left * share).argmax())
        if left @ share <= EXACT * total or left[p] <= 0.0:
            break
        column = _kernel(rows, rows[p : p + 1], layout, scale)[:, 0] - factor[:k, p] @ factor[:k]
        factor[k] = column / np.sqrt(column[p])
        left = np.maximum(left - factor[k] ** 2, 0.0)
        left[p] = 0.0
        chosen.append(p)
    r = len(chosen)
    spectrum, rotation = np.linalg.eigh((factor[:r] * share) @ factor[:r].T)
    lower = factor[:r, chosen].T
    mix = solve_triangular(lower, rotation, lower=True, trans="T")
    return Basis(layout, means, rows[chosen], scale, mix, np.maximum(spectrum, 0.0))


def solve(
    functions: np.ndarray,
    spectrum: np.ndarray,
    hits: np.ndarray,
    ridges: Sequence[float],
    scores: np.ndarray | None = None,
    tolerance: float = CLOSE,
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
    tolerance : float
        Of the gradient in the scaled parameters.

    Returns
    -------
    list of Solution
        One for each of `ridges`.
    """
    from scipy.optimize import minimize

    (n, r), K = functions.shape, hits.shape[1]
    total = hits.sum()
    hits, of_row = hits / total, hits.sum(axis=1) / total
    given = np.zeros((n, K)) if scores is None else bounded(scores)
    slight = SLIGHT if scores is None else 1.0 / total
    x, found = np.zeros(r * K + K + 1), []
    for ridge in ridges:
        free = np.isfinite(ridge)
        rate = ridge if free else 1.0
        # near the solution the Hessian is about ridge + spectrum p (1 - p), and 1 / K stands for p
        step = np.concatenate([np.repeat(1.0 / np.sqrt(rate + spectrum * (K - 1.0) / K**2), K), np.ones(K + 1)])

        def loss(u: np.ndarray, rate=rate, free=free, step=step) -> tuple[float, np.ndarray]:
            own = u * step
            A, b, heat = own[: r * K].reshape(r, K), own[r * K : -1], np.exp(own[-1])
            log_p = heat * given + b
            if free:
                log_p = log_p + functions @ A
            log_p = log_probabilities(log_p)
            residual = of_row[:, None] * np.exp(log_p) - hits
            value = -float((hits * log_p).sum()) + 0.5 * slight * float(own[r * K :] @ own[r * K :])
            gradient = np.zeros_like(own)
            gradient[r * K : -1] = residual.sum(axis=0)
            if scores is not None:
                gradient[-1] = heat * float((residual * given).sum())
            gradient[r * K :] += slight * own[r * K :]
            if free:
                value += 0.5 * rate * float((A * A).sum())
                gradient[: r * K] = (functions.T @ residual + rate * A).ravel()
            return value, gradient * step

        rough = tolerance > CLOSE
        options = {"maxiter": ROUGH_ROUNDS if rough else ROUNDS, "gtol": tolerance, "ftol": ROUGH if rough else 1e-14}
        result = minimize(loss, x / step, jac=True, method="L-BFGS-B", options=options)
        x = result.x * step
        A, b = x[: r * K].reshape(r, K).copy(), x[r * K : -1].copy()
        plain = result.fun - 0.5 * slight * float(x[r * K :] @ x[r * K :])
        plain -= 0.5 * rate * free * float((A * A).sum())
        heat = float(np.exp(x[-1])) if scores is not None else 1.0
        found.append(Solution(A, b, heat, plain, bool(np.abs(result.jac).max() <= max(10.0 * tolerance, HARMLESS))))
    return found


def bounded(scores: np.ndarray) -> np.ndarray:
    """Return class scores (n, K) of which none is further than 50 below the highest of its row."""
    return np.maximum(scores, scores.max(axis=1, keepdims=True) - LOWEST)


def to_tables(basis: Basis, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return fields and couplings that are the functions ``basis(x) @ weights``, and what is left over.

    Parameters
    ----------
    basis : Basis
    weights : ndarray, shape (r, K)

    Returns
    -------
    theta : ndarray, shape (K, layout.size)
        In the reference gauge.
    constant : ndarray, shape (K,)
        The functions at the row of reference levels.
    """
    layout, own = basis.layout, _own(basis.layout)
    alpha = (basis.mix @ weights).T
    K = len(alpha)
    theta, constant = np.zeros((K, layout.size)), np.zeros(K)

    def fields(i: int, table: np.ndarray) -> None:
        """Add a table (K, L_i)."""
        theta[:, layout.start[i] : layout.start[i + 1]] += table[:, 1:] - table[:, :1]
        constant[:] += table[:, 0]

    for i, part in enumerate(own):
        sums = alpha @ basis.points[:, part] * basis.scale[0]
        fields(i, sums - (sums @ basis.means[part])[:, None])
    for (i, j), at in zip(layout.pairs, layout.pair_start, strict=False):
        P, Q = basis.points[:, own[i]], basis.points[:, own[j]]
        both = (P[:, :, None] * Q[:, None, :]).reshape(len(P), -1)
        M = (alpha @ both).reshape(K, P.shape[1], Q.shape[1]) * basis.scale[1]
        M = M - (M @ basis.means[own[j]])[:, :, None]
        M = M - np.einsum("a,kab->kb", basis.means[own[i]], M)[:, None, :]
        corner = M[:, 0, 0]
        theta[:, at : at + (P.shape[1] - 1) * (Q.shape[1] - 1)] = (
            M[:, 1:, 1:] - M[:, 1:, :1] - M[:, :1, 1:] + corner[:, None, None]
        ).reshape(K, -1)
        theta[:, layout.start[i] : layout.start[i + 1]] += M[:, 1:, 0] - corner[:, None]
        theta[:, layout.start[j] : layout.start[j + 1]] += M[:, 0, 1:] - corner[:, None]
        constant += corner
    return theta, constant


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
    a multiple of what the kernel's largest eigenvalue allows, and falls linearly to zero. Couplings are in single
    precision.

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
        own = slice(lo, lo + 4096)
        parts = _diagonal(_indicators(codes[own], layout.n_levels) - means, layout)
        g, g2 = g + float(share[own] @ parts[0]), g2 + float(share[own] @ parts[1])
    few = rng.permutation(n)[:PROBE]
    largest = make_basis(codes[few], weights[few], layout, tau, len(few)).spectrum.max()
    rate = RATE / float(largest)
    columns = np.concatenate([means[own][1:] for own in _own(layout)])
    pairs = np.ascontiguousarray(layout.pairs.T, dtype=np.intp)
    climber = Climber(layout.start.astype(np.intp), pairs, columns, K, kernel_scale(g, g2, tau))
    given = np.empty((0, K)) if scores is None else np.ascontiguousarray(scores)
    loss, free = np.nan, np.isfinite(ridge)
    for e in range(epochs if free else 0):
        now, then = rate * (1.0 - e / epochs), rate * (1.0 - (e + 1) / epochs)
        order = rng.permutation(n)
        loss = climber.epoch(codes, y.astype(np.intp), weights * (n / weights.sum()), given, order, BATCH, now, then,
                             MOMENTUM, ridge)  # fmt: skip
    theta = np.zeros((K, layout.size))
    theta[:, : layout.D] = climber.h.T
    if layout.count(2):
        row, col = cells(layout)
        theta[:, layout.D :] = climber.J[row, col].T
    return JointFit(theta, climber.b + climber.shift, 1.0, loss, bool(np.isfinite(theta).all()))
