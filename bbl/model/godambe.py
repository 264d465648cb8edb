"""Sandwich (Godambe) covariance of the pseudo-likelihood estimator, with the symmetrisation of the couplings in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bbl.errors import DataError
from bbl.memory import check_memory
from bbl.model.conditional import conditionals
from bbl.model.layout import Layout
from bbl.model.moments import one_hot, usable_rows, usable_weight
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["Influence", "term_covariances"]

ROWS = 1024


class Influence:
    """Influence of a row on the estimate of one group.

    For predictor i with score ``u_i(x)`` and mean Hessian ``H_i`` (penalty included) of its own objective at its
    own solution, a row moves the solution by ``psi_i(x) / W``, ``psi_i(x) = H_i^-1 (u_i(x) - penalty_i)``. A coupling
    is the average of two solutions (eq. 18), and so is its influence. The covariance of any set of estimates is the
    weighted sum of products of their influences over ``W^2``: the Godambe covariance ``H^-1 K H^-1`` with frequency
    weights as replications (Besag 1975; Nguyen & Wood 2016). With a penalty in force it is the covariance of the
    penalised estimator, which says nothing of its bias. With missing values a predictor has the rows in which it and
    its neighbours are known, of weight ``W_i`` in place of W; in all others its ``psi_i`` is zero.

    Parameters
    ----------
    sample : Sample
        The rows that the group was fitted to.
    layout : Layout
    site_theta : ndarray, shape (D, 1 + D)
        Unsymmetrised solution (see EngineFit).
    lambda_, lambdah : float
        Penalties of couplings and fields.

    Raises
    ------
    DataError
        If a predictor's Hessian is singular: there is no penalty and a parameter that the data do not determine.
    """

    def __init__(self, sample: Sample, layout: Layout, site_theta: np.ndarray, lambda_: float, lambdah: float):
        self.layout, self.total = layout, sample.total
        self._totals = usable_weight(sample, layout)
        self.site_theta = site_theta
        self._columns = [self._neighbour_columns(i) for i in range(layout.m)]
        sizes = [(layout.n_levels[i] - 1) * len(c) for i, c in enumerate(self._columns)]
        check_memory(
            8.0 * sum(float(p) ** 2 for p in sizes) + 16.0 * ROWS * layout.size,
            f"Standard errors of {layout.size} parameters",
            "Fit fewer predictors or fewer interactions.",
        )
        hessian = [np.zeros((p, p)) for p in sizes]
        with serial_blas():
            for lo in range(0, sample.n, ROWS):
                part = sample.rows(slice(lo, lo + ROWS))
                Z, P = self._blocks(part.codes)
                usable = usable_rows(part, layout)
                for i in range(layout.m):
                    own = part.weights * usable[:, i]
                    self._add_hessian(hessian[i], Z[:, self._columns[i]], self._own(P, i), own)
            self._factors = [self._factor(i, hessian[i], lambda_, lambdah) for i in range(layout.m)]
        self._pull = [self._penalty(i, lambda_, lambdah) for i in range(layout.m)]

    def _neighbour_columns(self, i: int) -> np.ndarray:
        """Columns of the site matrix that predictor i uses: the constant and its neighbours' levels."""
        starts = self.layout.start
        parts = [np.arange(starts[j], starts[j + 1]) + 1 for j in np.flatnonzero(self.layout.mask[i])]
        return np.concatenate([[0], *parts]).astype(np.intp)

    def _own(self, array: np.ndarray, i: int) -> np.ndarray:
        return array[:, self.layout.start[i] : self.layout.start[i + 1]]

    def _blocks(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the design with its constant (n, 1 + D) and all conditional probabilities (n, D) of eq. (11)."""
        X = one_hot(codes, self.layout)
        _, P = conditionals(X, self.layout, self.site_theta[:, 0], self.site_theta[:, 1:])
        return np.column_stack([np.ones(len(codes)), X]), P

    @staticmethod
    def _add_hessian(H: np.ndarray, Z: np.ndarray, P: np.ndarray, w: np.ndarray) -> None:
        q, c = P.shape[1], Z.shape[1]
        for a in range(q):
            for b in range(a + 1):
                weight = w * (P[:, a] * (a == b) - P[:, a] * P[:, b])
                block = Z.T @ (Z * weight[:, None])
                H[a * c : (a + 1) * c, b * c : (b + 1) * c] += block
                if a != b:
                    H[b * c : (b + 1) * c, a * c : (a + 1) * c] += block

    def _penalties(self, i: int, lambda_: float, lambdah: float) -> np.ndarray:
        own = np.full(len(self._columns[i]), lambda_)
        own[0] = lambdah
        return np.tile(own, self.layout.n_levels[i] - 1)

    def _factor(self, i: int, H: np.ndarray, lambda_: float, lambdah: float):
        from scipy.linalg import cho_factor

        H /= self._totals[i]
        H.flat[:: len(H) + 1] += self._penalties(i, lambda_, lambdah)
        try:
            factor = cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            factor = None
        pivots = np.ones(1) if factor is None else np.abs(factor[0].diagonal())
        if factor is None or pivots.min() < 1e-9 * pivots.max():
            raise DataError(
                f"Standard errors need a determined optimum, but the Hessian of predictor {i} is singular: a level or "
                "a pair of levels never occurs. Fit with lambda_ > 0 and lambdah > 0."
            )
        return factor

    def _penalty(self, i: int, lambda_: float, lambdah: float) -> np.ndarray:
        own = slice(self.layout.start[i], self.layout.start[i + 1])
        return self._penalties(i, lambda_, lambdah) * self.site_theta[own][:, self._columns[i]].ravel()

    def _sites(self, rows: Sample) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each predictor with the penalised scores of the rows and ``psi W/W_i``, both (n, parameters)."""
        from scipy.linalg import cho_solve

        layout, usable = self.layout, usable_rows(rows, self.layout)
        Z, P = self._blocks(rows.codes)
        for i in range(layout.m):
            residual = Z[:, 1 + layout.start[i] : 1 + layout.start[i + 1]] - self._own(P, i)
            score = (residual[:, :, None] * Z[:, None, self._columns[i]]).reshape(rows.n, -1) - self._pull[i]
            score *= usable[:, [i]]
            psi = cho_solve(self._factors[i], score.T, check_finite=False).T
            yield i, score, psi * (self.total / self._totals[i])

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, layout.size) of rows on fields and symmetrised couplings."""
        out = np.zeros((rows.n, self.layout.size))
        for i, _, psi in self._sites(rows):
            self._scatter(out, i, psi.reshape(rows.n, int(self.layout.n_levels[i]) - 1, -1))
        return out

    def composite(self, rows: Sample) -> tuple[float, float]:
        """Return the log pseudo-likelihood of `rows` and its effective number of parameters.

        The latter is ``tr(K H^-1)``, H the Hessian and K the covariance of the score (Varin, Reid & Firth 2011,
        section 2.3); H is block diagonal over predictors, so only K's blocks matter. With missing values each predictor
        counts in the rows that it was fitted to.
        """
        layout, varies = self.layout, self.layout.n_levels > 1
        value = effective = 0.0
        for lo in range(0, rows.n, ROWS):
            part = rows.rows(slice(lo, lo + ROWS))
            usable, w = usable_rows(part, layout), part.weights
            X = one_hot(part.codes, layout)
            log_norm, _ = conditionals(X, layout, self.site_theta[:, 0], self.site_theta[:, 1:])
            field = X * (X @ self.site_theta[:, 1:].T + self.site_theta[:, 0])
            field *= np.repeat(usable, layout.n_levels - 1, axis=1)
            value += float(w @ (field.sum(axis=1) - (log_norm * usable[:, varies]).sum(axis=1)))
            effective += sum(float(w @ (score * psi).sum(axis=1)) for _, score, psi in self._sites(part))
        return value, effective / self.total

    def _scatter(self, out: np.ndarray, i: int, psi: np.ndarray) -> None:
        """Add the influences (n, q, columns) of predictor i's solution, couplings at one half (eq. 18)."""
        layout = self.layout
        layout.table(out, i)[...] = psi[:, :, 0]
        at = 1
        for j in np.flatnonzero(layout.mask[i]):
            width = int(layout.n_levels[j]) - 1
            layout.table(out, i, int(j))[...] += 0.5 * psi[:, :, at : at + width]
            at += width


def term_covariances(layout: Layout, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Return the covariance matrix of each table of fields, then of each table of couplings (flattened).

    Parameters
    ----------
    layout : Layout
    blocks : iterable of (influence, weights)
        Influences (n, layout.size) of blocks of rows, already divided by the sum of weights, and their weights (n,).
    """
    cuts = [slice(a, b) for a, b in zip(layout.start[:-1], layout.start[1:], strict=True)]
    cuts += [slice(a, b) for a, b in zip(layout.pair_start[:-1], layout.pair_start[1:], strict=True)]
    out = [np.zeros((c.stop - c.start,) * 2) for c in cuts]
    for psi, w in blocks:
        for total, cut in zip(out, cuts, strict=True):
            part = psi[:, cut]
            total += part.T @ (part * w[:, None])
    return out
