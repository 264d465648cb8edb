"""Conditional likelihood of fields and couplings over all rows at once: its gradient, and its minimum by L-BFGS."""

from __future__ import annotations

from collections import deque

import numpy as np

from bbl._ext.conditional.conditional import Climber
from bbl.engines.conditional.kernel import diagonal, kernel_scale, own_levels
from bbl.model.gauge import contrasts
from bbl.model.layout import Layout
from bbl.model.pairwise import cells

__all__ = ["FullBatch"]

BATCH = 4096  # rows whose residuals are summed in single precision
CORRECTIONS = 6  # curvature pairs of L-BFGS
BLOCK = 4096
TRIALS = 30  # of lengths of a step
FLAT = 0.9  # a step ends where the slope has fallen to this share,
UPHILL = 0.8  # and beyond the minimum has not risen to this one
ROUNDING = 1e-6  # share of the objective that single precision may change


class FullBatch:
    """``-mean ln softmax_y(T s_y(x) + b_y + f_y(x)) + ridge/2 |f|^2`` of all rows, and its gradient.

    The unknowns are in coordinates in which the norm of f is that of the vector: fields and couplings of orthonormal
    contrasts of each predictor's levels, uncorrelated over the rows. Each is scaled by the root of about its curvature.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    y : ndarray of intp, shape (n,)
    weights : ndarray, shape (n,)
    layout : Layout
        Of fields and pairs.
    K : int
    tau, ridge : float
        `scale` and `ridge` of the objective; ``ridge=inf`` leaves f at 0.
    slight : float
        Penalty of the offsets b and of ln T.
    scores : ndarray, shape (n, K), optional
        Class scores s; T is 1 without them.

    Attributes
    ----------
    evaluations : int
        How often the objective was worked out.
    loss : float
        The log-loss when it last was.
    """

    def __init__(
        self,
        codes: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        layout: Layout,
        K: int,
        tau: float,
        ridge: float,
        slight: float,
        scores: np.ndarray | None = None,
    ):
        from scipy.sparse import block_diag

        self.codes, self.y, self.weights = codes, y.astype(np.intp), weights / weights.sum()
        self.layout, self.K, self.slight = layout, K, slight
        self.free, self.ridge = bool(np.isfinite(ridge)), ridge if np.isfinite(ridge) else 0.0
        self.scores = np.empty((0, K)) if scores is None else np.ascontiguousarray(scores)
        shares = np.concatenate([np.bincount(codes[:, i], self.weights, L) for i, L in enumerate(layout.n_levels)])
        level_columns = own_levels(layout)
        self.means = np.concatenate([shares[columns][1:] for columns in level_columns])
        self.norms = kernel_scale(*self._kernel_means(shares), tau)
        bases = [_uncorrelated(shares[columns]) for columns in level_columns]
        self.basis = block_diag([basis for basis, _ in bases], format="csr")  # contrasts to the reference gauge
        self.inverse = block_diag([np.linalg.inv(basis) for basis, _ in bases], format="csr")
        self.row, self.col = cells(layout)
        pairs = np.ascontiguousarray(layout.pairs.T, dtype=np.intp)
        self.climber = Climber(layout.start.astype(np.intp), pairs, self.means, K, self.norms)
        self.scale = self._scale(np.concatenate([variance for _, variance in bases]))
        side = layout.D if layout.count(2) else 0
        self.sums = np.empty((side, side, K)), np.empty((layout.D, K)), np.empty(K)
        self.residuals, self.evaluations, self.loss = np.empty(self.scores.shape), 0, np.nan

    def _kernel_means(self, shares: np.ndarray) -> tuple[float, float]:
        g = g2 = 0.0
        for first in range(0, len(self.codes), BLOCK):
            block = slice(first, first + BLOCK)
            single, product = diagonal(self.codes[block], shares, self.layout)
            g, g2 = g + float(self.weights[block] @ single), g2 + float(self.weights[block] @ product)
        return g, g2

    def _scale(self, variance: np.ndarray) -> np.ndarray:
        """Return the units of the unknowns: about 1 over the root of their curvatures, where 1 / K stands for P."""
        K = self.K
        spread = np.concatenate([self.norms[0] * variance, self.norms[1] * variance[self.row] * variance[self.col]])
        rate = (self.ridge if self.free else 1.0) + spread * (K - 1.0) / K**2
        middle = self.scores - self.scores.mean(axis=1, keepdims=True)
        heated = 1.0 + (float(self.weights @ (middle**2).sum(axis=1)) / K if len(middle) else 0.0)
        return np.concatenate([np.repeat(1.0 / np.sqrt(rate), K), np.ones(K), [1.0 / np.sqrt(heated)]])

    def _change(self, tables: np.ndarray, basis) -> np.ndarray:
        """Return ``basis @ table @ basis.T`` of each table of couplings (D, D, K)."""
        D = len(tables)
        K = self.K
        for _ in range(2):
            tables = (basis @ tables.reshape(D, -1)).reshape(D, D, K).swapaxes(0, 1)
        return tables

    def _spread(self, couplings: np.ndarray) -> np.ndarray:
        """Return couplings (C, K) as tables (D, D, K), the smaller column first."""
        out = np.zeros(self.sums[0].shape)
        out[self.row, self.col] = couplings
        return out

    def unknowns(self, theta: np.ndarray, constant: np.ndarray, temperature: float = 1.0) -> np.ndarray:
        """Return fields and couplings (K, layout.size) of the reference gauge, and the rest, as scaled unknowns."""
        D, m = self.layout.D, self.means
        h, J = theta[:, :D].T, self._spread(theta[:, D:].T)
        u, at_means = h.copy(), np.zeros(self.K)
        if len(J):
            row_means, column_means = np.einsum("cdk,d->ck", J, m), np.einsum("cdk,c->dk", J, m)
            u, at_means = h + row_means + column_means, m @ row_means
            J = self._change(J, self.inverse)[self.row, self.col] / np.sqrt(self.norms[1] or 1.0)
        fields = self.inverse @ u / np.sqrt(self.norms[0])
        b = constant + m @ u - at_means
        x = np.concatenate([fields.ravel(), J.ravel(), b, [np.log(temperature)]])
        return x / self.scale

    def tables(self, unknowns: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Return fields and couplings (K, layout.size) of the reference gauge, the constant (K,), and T."""
        D, K, m = self.layout.D, self.K, self.means
        x = unknowns * self.scale
        fields, couplings = x[: D * K].reshape(D, K), x[D * K : -K - 1].reshape(-1, K)
        h = np.sqrt(self.norms[0]) * (self.basis @ fields)
        constant, J = x[-K - 1 : -1] - m @ h, couplings
        if len(couplings):
            tables = self._change(self._spread(np.sqrt(self.norms[1]) * couplings), self.basis)
            row_means, column_means = np.einsum("cdk,d->ck", tables, m), np.einsum("cdk,c->dk", tables, m)
            h, constant, J = h - row_means - column_means, constant + m @ row_means, tables[self.row, self.col]
        return np.concatenate([h, J]).T, constant, float(np.exp(x[-1]))

    def __call__(self, unknowns: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective at scaled unknowns, and its gradient."""
        K, m, x = self.K, self.means, unknowns * self.scale
        theta, constant, temperature = self.tables(unknowns)
        climber, D = self.climber, self.layout.D
        climber.h[:], climber.b[:], climber.shift[:] = theta[:, :D].T, constant, 0.0
        if len(self.row):
            climber.J[self.row, self.col] = theta[:, D:].T
        scaled_scores = temperature * self.scores
        value = climber.residual_sums(
            self.codes, self.y, self.weights, scaled_scores, BATCH, *self.sums, self.residuals
        )
        self.loss, self.evaluations = value, self.evaluations + 1
        pairs, levels, total = self.sums
        gradient = np.zeros(len(x))
        f, offset_part = slice(0, len(x) - K - 1), slice(len(x) - K - 1, None)
        if self.free:
            fields = np.sqrt(self.norms[0]) * (self.basis.T @ (levels - m[:, None] * total))
            couplings = np.empty((0, K))
            if len(self.row):
                a, b = m[self.row, None], m[self.col, None]
                centred = pairs[self.row, self.col] - levels[self.row] * b - levels[self.col] * a + total * a * b
                couplings = np.sqrt(self.norms[1]) * self._change(self._spread(centred), self.basis.T)
                couplings = couplings[self.row, self.col]
            gradient[f] = np.concatenate([fields, couplings]).ravel() + self.ridge * x[f]
        gradient[offset_part] = self.slight * x[offset_part]
        gradient[-K - 1 : -1] += total
        if len(self.scores):
            gradient[-1] += temperature * float((self.residuals * self.scores).sum())
        value += 0.5 * self.ridge * float(x[f] @ x[f]) + 0.5 * self.slight * float(x[offset_part] @ x[offset_part])
        return value, gradient * self.scale

    def minimise(self, x: np.ndarray, tolerance: float, rounds: int) -> np.ndarray:
        """Return the scaled unknowns at which no component of the gradient exceeds `tolerance`, or where steps end.

        L-BFGS from `x` on. Near the minimum a step changes the objective by less than the single precision of couplings
        does, so that steps are judged by slopes, as in the approximate Wolfe conditions of Hager & Zhang (2005).
        """
        curvature: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=CORRECTIONS)
        value, gradient = self(x)
        for _ in range(rounds):
            if np.abs(gradient).max() <= tolerance:
                break
            direction = _direction(gradient, curvature)
            step = self._step(x, value, gradient, direction)
            if step is None:
                break
            value, new, move = step
            if move @ (new - gradient) > 0.0:
                curvature.append((move, new - gradient))
            x, gradient = x + move, new
        return x

    def _step(
        self, x: np.ndarray, value: float, gradient: np.ndarray, direction: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        """Return objective, gradient and move of a step after which the slope is flat enough; None if there is none."""
        slope, step, low, high = float(gradient @ direction), 1.0, 0.0, np.inf
        for _ in range(TRIALS):
            value_at, gradient_at = self(x + step * direction)
            slope_at = float(gradient_at @ direction)
            if slope_at > -UPHILL * slope or not value_at <= value + ROUNDING * abs(value):
                high = step
            elif slope_at < FLAT * slope:
                low = step
            else:
                return value_at, gradient_at, step * direction
            step = 0.5 * (low + high) if np.isfinite(high) else 2.0 * step
        return None


def _direction(gradient: np.ndarray, curvature: deque[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return minus the inverse Hessian times the gradient, as moves and changes of the gradient, oldest first, tell."""
    out, factors = -gradient, []
    for move, change in reversed(curvature):
        factors.append(float(move @ out) / float(move @ change))
        out = out - factors[-1] * change
    if curvature:
        move, change = curvature[-1]
        out = out * (float(move @ change) / float(change @ change))
    for (move, change), factor in zip(curvature, reversed(factors), strict=True):
        out = out + (factor - float(change @ out) / float(move @ change)) * move
    return out


def _uncorrelated(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return contrasts of the levels of a predictor in the reference gauge, orthonormal and uncorrelated over the rows.

    Returns
    -------
    basis : ndarray, shape (L - 1, L - 1)
        Each column is a contrast less its value at the reference level.
    variance : ndarray, shape (L - 1,)
    """
    L = len(shares)
    C = contrasts(L) * np.sqrt(1.0 - 1.0 / L)
    mean = shares @ C
    variance, rotation = np.linalg.eigh((C * shares[:, None]).T @ C - np.outer(mean, mean))
    H = C @ rotation
    return H[1:] - H[0], np.maximum(variance, 0.0)
