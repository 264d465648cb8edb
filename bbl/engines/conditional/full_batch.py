"""Maximise the conditional likelihood by L-BFGS, using all rows in each step."""

# Letters: n rows, m predictors, C couplings, K groups. R counts the contrasts of all predictors: of
# the levels of nominal predictors (R = D without others), or of the features of ordered levels.
# Another model's class scores s may be an offset; their factor T is the temperature.

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from bbl._ext.conditional.conditional import Climber
from bbl.engines.conditional.coding import coding_of
from bbl.engines.conditional.kernel import shares_and_factors
from bbl.model.layout import Layout
from bbl.model.regressors import pair_cells

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["FullBatch", "inverse_contrasts"]

BATCH = 4096  # rows whose residuals are summed in single precision
MAX_CURVATURE_PAIRS = 6  # number of recent steps and gradient changes that L-BFGS uses
MAX_TRIALS = 30  # step lengths that a line search tries
# a negative slope is accepted up to this fraction of the initial slope (sigma of Hager & Zhang)
MAX_SLOPE_SHARE = 0.9
# a positive slope is accepted up to this fraction of the initial size (1 - 2 delta, delta = 0.1)
MAX_UPHILL_SHARE = 0.8
# largest relative increase of the objective allowed in a step, because of single precision
ROUNDING = 1e-6


class FullBatch:
    """The objective ``-mean ln softmax_y(T s_y(x) + b_y + f_y(x)) + ridge/2 |f|^2`` on all rows.

    The unknowns are the fields of the R contrasts of predictor levels, the couplings of pairs of
    contrasts, and the offsets b, each for K groups, followed by ln T. A predictor's contrasts are
    orthonormal in the kernel and uncorrelated over the rows. The norm of f is the norm of the
    vector of fields and couplings. *Scaled* unknowns are unknowns divided by the attribute `scale`,
    which approximates the inverse square root of their curvature.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    y : ndarray of intp, shape (n,)
        Groups.
    weights : ndarray, shape (n,)
    layout : Layout
    K : int
    tau : float
        Weight of couplings relative to fields.
    ridge : float
        Penalty on f. With ``inf``, f remains 0.
    offset_penalty : float
        Penalty on the offsets b and on ln T.
    scores : ndarray, shape (n, K), optional
        Fixed class scores s. If there are none, T is 1.
    ordered : {"nominal", "linear", "cumulative"}, default "nominal"
        Coding of ordered predictors.

    Attributes
    ----------
    fits_f : bool
        Whether the ridge is finite.
    ridge : float
        Value of the ridge; 0 if the ridge is infinite, because f is then 0 and needs no penalty.
    means : ndarray, shape (D,)
        Proportions of the non-reference levels.
    kernel_factors : (float, float)
        Factors of fields and couplings in the kernel.
    basis : sparse array, shape (D, R)
        Values of the contrasts at the non-reference levels. This matrix maps parameters of
        contrasts to the reference gauge.
    inverse : sparse array, shape (R, D)
        The inverse map, by least squares.
    level_cells, contrast_cells : pairs of ndarrays of int, shape (C,)
        The two levels (out of D), or the two contrasts (out of R), of each coupling. The number C
        of couplings may differ between levels and contrasts.
    climber : Climber
        The compiled kernel. It stores the evaluation point in the reference gauge: fields `h` (D,
        K), couplings `J` (D, D, K), and offsets `b` and `shift`, each (K,). The sum of the offsets
        is the score of the row of reference levels.
    residual_sums : tuple of ndarrays, shapes (D, D, K), (D, K) and (K,)
        Sums of residuals over pairs of levels, over levels and over all rows, at the last
        evaluation. A residual is the fitted probability minus the group indicator, multiplied by
        the row's fraction of the total weight.
    residuals : ndarray, shape (n, K)
        Residual of each row, for the gradient with respect to ln T; empty unless scores are given.
    scale : ndarray
        Factors that convert scaled unknowns to unknowns.
    evaluations : int
        Number of evaluations of the objective.
    loss : float
        Log-loss at the most recent evaluation.
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
        offset_penalty: float,
        scores: np.ndarray | None = None,
        ordered: str = "nominal",
    ):
        from scipy.sparse import block_diag, coo_array

        self.codes = codes
        self.y = y.astype(np.intp)
        self.weights = weights / weights.sum()
        self.layout = layout
        self.K = K
        self.offset_penalty = offset_penalty
        self.fits_f = bool(np.isfinite(ridge))
        self.ridge = ridge if np.isfinite(ridge) else 0.0
        self.scores = np.empty((0, K)) if scores is None else np.ascontiguousarray(scores)
        coding = coding_of(layout, ordered)
        level_shares, self.kernel_factors = shares_and_factors(
            codes, self.weights, layout, coding, tau
        )
        self.means = np.concatenate([predictor_shares[1:] for predictor_shares in level_shares])
        # for each predictor, values (L - 1, r) of r contrasts at the non-reference levels and
        # variances (r,)
        contrasts = [
            coding.uncorrelated_contrasts(i, predictor_shares)
            for i, predictor_shares in enumerate(level_shares)
        ]
        self.basis = block_diag([coo_array(values) for values, _ in contrasts], format="csr")
        self.inverse = block_diag(
            [coo_array(inverse_contrasts(values)) for values, _ in contrasts], format="csr"
        )
        self.level_cells = pair_cells(layout)
        self.contrast_cells = pair_cells(coding.contrast_layout(layout))
        pairs = np.ascontiguousarray(layout.pairs.T, dtype=np.intp)
        self.climber = Climber(
            layout.start.astype(np.intp), pairs, self.means, K, self.kernel_factors
        )
        self.scale = self._scale(np.concatenate([variance for _, variance in contrasts]))
        side = layout.D if layout.count(2) else 0  # no table without pairs
        self.residual_sums = np.empty((side, side, K)), np.empty((layout.D, K)), np.empty(K)
        self.residuals = np.empty(self.scores.shape)
        self.evaluations = 0
        self.loss = np.nan

    def _scale(self, variance: np.ndarray) -> np.ndarray:
        """Return the scale of each unknown: the approximate inverse square root of its curvature.

        `variance` (R,) is the variance of each contrast over the rows. In the curvature P (1 - P),
        each probability P is approximated by 1 / K.
        """
        K = self.K
        (row, column) = self.contrast_cells
        (field_factor, coupling_factor) = self.kernel_factors
        f_variance = np.concatenate(
            [field_factor * variance, coupling_factor * variance[row] * variance[column]]
        )
        # 1 is a rough value for the ridge if f is not fitted, and for the curvatures of the offsets
        f_curvature = (self.ridge if self.fits_f else 1.0) + f_variance * (K - 1.0) / K**2
        centred = self.scores - self.scores.mean(axis=1, keepdims=True)
        t_curvature = 1.0 + (
            float(self.weights @ (centred**2).sum(axis=1)) / K if len(centred) else 0.0
        )
        return np.concatenate(
            [np.repeat(1.0 / np.sqrt(f_curvature), K), np.ones(K), [1.0 / np.sqrt(t_curvature)]]
        )

    def _change_basis(self, tables: np.ndarray, basis: csr_array) -> np.ndarray:
        """Return ``basis @ table @ basis.T`` for each of K tables (D, D, K) or (R, R, K)."""
        # the second iteration multiplies the other axis and restores the order of axes
        for _ in range(2):
            product = (basis @ tables.reshape(len(tables), -1)).reshape(basis.shape[0], -1, self.K)
            tables = product.swapaxes(0, 1)
        return tables

    def _scatter(
        self, couplings: np.ndarray, positions: tuple[np.ndarray, np.ndarray], side: int
    ) -> np.ndarray:
        """Return tables (side, side, K) with `couplings` (C, K) at `positions` and zeros elsewhere.

        `positions` is a pair of arrays (C,).
        """
        out = np.zeros((side, side, self.K))
        out[positions] = couplings
        return out

    def to_vector(
        self, theta: np.ndarray, constant: np.ndarray, temperature: float = 1.0
    ) -> np.ndarray:
        """Return the scaled unknowns as a vector (inverse of `tables`).

        `theta` (K, layout.size) contains the fields and couplings, `constant` (K,) the constants,
        and `temperature` the factor T.
        """
        D = self.layout.D
        m = self.means
        h = theta[:, :D].T
        J = np.empty((0, self.K))
        # fields where all other indicators are at their means
        centred_h = h.copy()
        J_at_means = np.zeros(self.K)
        if len(self.level_cells[0]):
            # (D, D, K): J, zero below the diagonal
            tables = self._scatter(theta[:, D:].T, self.level_cells, D)
            # contributions (D, K) of couplings to the fields of first and second levels, with the
            # other level's indicator at its mean
            first_means = np.einsum("cdk,d->ck", tables, m)
            second_means = np.einsum("cdk,c->dk", tables, m)
            centred_h = h + first_means + second_means
            J_at_means = m @ first_means
            # with a factor of 0, couplings do not contribute to f, so J is arbitrary: use 1.0
            J = self._change_basis(tables, self.inverse)[self.contrast_cells] / np.sqrt(
                self.kernel_factors[1] or 1.0
            )
        fields = self.inverse @ centred_h / np.sqrt(self.kernel_factors[0])
        # the score with all indicators at their means is constant + m'h + m'Jm; m'centred_h
        # contains m'Jm twice
        b = constant + m @ centred_h - J_at_means
        x = np.concatenate([fields.ravel(), J.ravel(), b, [np.log(temperature)]])
        return x / self.scale

    def tables(self, unknowns: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Return reference-gauge parameters (K, layout.size), constants (K,) and T."""
        R = self.basis.shape[1]
        K = self.K
        m = self.means
        x = unknowns * self.scale
        fields = x[: R * K].reshape(R, K)
        couplings = x[R * K : -K - 1].reshape(-1, K)
        h = np.sqrt(self.kernel_factors[0]) * (self.basis @ fields)
        constant = x[-K - 1 : -1] - m @ h
        J = couplings
        if len(couplings):
            contrast_tables = self._scatter(
                np.sqrt(self.kernel_factors[1]) * couplings, self.contrast_cells, R
            )
            tables = self._change_basis(contrast_tables, self.basis)
            # as in `to_vector`: contributions of couplings to fields, the other indicator at its
            # mean
            first_means = np.einsum("cdk,d->ck", tables, m)
            second_means = np.einsum("cdk,c->dk", tables, m)
            h = h - first_means - second_means
            constant = constant + m @ first_means
            J = tables[self.level_cells]
        return np.concatenate([h, J]).T, constant, float(np.exp(x[-1]))

    def __call__(self, unknowns: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective at scaled unknowns and its gradient.

        This also sets `loss` and increments `evaluations`.
        """
        K = self.K
        m = self.means
        x = unknowns * self.scale
        theta, constant, temperature = self.tables(unknowns)
        climber = self.climber
        D = self.layout.D
        climber.h[:], climber.b[:], climber.shift[:] = theta[:, :D].T, constant, 0.0
        row, column = self.level_cells
        if len(row):
            climber.J[row, column] = theta[:, D:].T
        scores = temperature * self.scores
        # overwrites residual_sums and residuals, and returns the log-loss
        value = climber.residual_sums(
            self.codes, self.y, self.weights, scores, BATCH, *self.residual_sums, self.residuals
        )
        self.loss = value
        self.evaluations = self.evaluations + 1
        pair_sums, level_sums, total = self.residual_sums
        gradient = np.zeros(len(x))
        # offset_part includes ln T
        f_part = slice(0, len(x) - K - 1)
        offset_part = slice(len(x) - K - 1, None)
        if self.fits_f:
            fields = np.sqrt(self.kernel_factors[0]) * (
                self.basis.T @ (level_sums - m[:, None] * total)
            )
            couplings = np.empty((0, K))
            if len(row):
                # sums of the products of centred indicators with the residuals
                row_mean = m[row, None]
                column_mean = m[column, None]
                centred = pair_sums[row, column] - level_sums[row] * column_mean
                centred = centred - level_sums[column] * row_mean + total * row_mean * column_mean
                tables = self._change_basis(self._scatter(centred, (row, column), D), self.basis.T)
                couplings = np.sqrt(self.kernel_factors[1]) * tables[self.contrast_cells]
            gradient[f_part] = np.concatenate([fields, couplings]).ravel() + self.ridge * x[f_part]
        gradient[offset_part] = self.offset_penalty * x[offset_part]
        gradient[-K - 1 : -1] += total  # in the offsets; the last component is in ln T
        if len(self.scores):  # in ln T: T times the sum of residuals times scores
            gradient[-1] += temperature * float((self.residuals * self.scores).sum())
        squared_norms = (float(x[part] @ x[part]) for part in (f_part, offset_part))
        value += sum(
            0.5 * penalty * norm
            for penalty, norm in zip((self.ridge, self.offset_penalty), squared_norms, strict=True)
        )
        return value, gradient * self.scale

    def minimise(self, x: np.ndarray, tolerance: float, rounds: int) -> np.ndarray:
        """Minimise the objective by L-BFGS from `x` and return the scaled unknowns.

        The iteration stops when no component of the gradient exceeds `tolerance`, after `rounds`
        steps, or when the line search does not find a step. Near the minimum, changes in the
        objective are too small for single precision. Steps are therefore assessed by their slopes,
        as in the approximate Wolfe conditions of Hager & Zhang (2005).
        """
        curvature_pairs: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=MAX_CURVATURE_PAIRS)
        value, gradient = self(x)
        for _ in range(rounds):
            if np.abs(gradient).max() <= tolerance:
                break
            direction = _direction(gradient, curvature_pairs)
            step = self._line_search(x, value, gradient, direction)
            if step is None:
                break
            value, new_gradient, displacement = step
            if displacement @ (new_gradient - gradient) > 0.0:
                curvature_pairs.append((displacement, new_gradient - gradient))
            x = x + displacement
            gradient = new_gradient
        return x

    def _line_search(
        self, x: np.ndarray, value: float, gradient: np.ndarray, direction: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        """Return the objective, gradient and displacement of a step along `direction`, or None.

        The step ends at a point where the slope is small enough. The result is None if no step was
        found. `value` and `gradient` are evaluated at `x`. The step length is doubled until it is
        too long, and then bisected between `low`, which is too short, and `high`, which is too
        long.
        """
        slope = float(gradient @ direction)
        step = 1.0
        low = 0.0
        high = np.inf
        for _ in range(MAX_TRIALS):
            new_value, new_gradient = self(x + step * direction)
            new_slope = float(new_gradient @ direction)
            if new_slope > -MAX_UPHILL_SHARE * slope or not new_value <= value + ROUNDING * abs(
                value
            ):
                high = step
            elif new_slope < MAX_SLOPE_SHARE * slope:
                low = step
            else:
                return new_value, new_gradient, step * direction
            step = 0.5 * (low + high) if np.isfinite(high) else 2.0 * step
        return None


def _direction(
    gradient: np.ndarray, curvature_pairs: deque[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Return the L-BFGS direction, computed by the two-loop recursion.

    `curvature_pairs` contains the displacement and the gradient change of each step, oldest first.
    """
    out = -gradient
    projections = []
    for displacement, gradient_change in reversed(curvature_pairs):
        projections.append(float(displacement @ out) / float(displacement @ gradient_change))
        out = out - projections[-1] * gradient_change
    if curvature_pairs:
        displacement, gradient_change = curvature_pairs[-1]
        out = out * (
            float(displacement @ gradient_change) / float(gradient_change @ gradient_change)
        )
    for (displacement, gradient_change), projection in zip(
        curvature_pairs, reversed(projections), strict=True
    ):
        out = (
            out
            + (projection - float(gradient_change @ out) / float(displacement @ gradient_change))
            * displacement
        )
    return out


def inverse_contrasts(values: np.ndarray) -> np.ndarray:
    """Return the inverse (r, L - 1) of contrasts (L - 1, r), or the pseudo-inverse if r < L - 1."""
    return np.linalg.inv(values) if values.shape[0] == values.shape[1] else np.linalg.pinv(values)
