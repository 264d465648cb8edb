"""Derivatives of probabilities of groups by the coefficients of class scores: analytic, averaged over rows.

n rows, K groups. The *class score* of group g in a row is ``c_g0 + sum_k c_gk t_k(x)``, with the indicators t_k of the
parameters of a layout. The *coefficients* of a group are its intercept c_g0, in column 0, and its parameters.
"""

from __future__ import annotations

import itertools

import numpy as np

from bbl.errors import OptionError
from bbl.model.energy import Energy
from bbl.model.layout import Layout, term_columns
from bbl.model.moments import one_hot
from bbl.model.pairwise import cells

__all__ = ["MAX_STATES", "ScoreGradient"]

MAX_STATES = 2**20  # states of all missing cells of the rows that are averaged
ROWS = 4096  # of a chunk whose indicators are products of columns
MATRIX_ADVANTAGE = 20  # a matrix product sums so many times faster than products of single columns


class ScoreGradient:
    """Derivatives of weighted sums of P(group | row) by the coefficients of the class scores.

    With ``P_y = exp(s_y) / sum_g exp(s_g)`` the derivative of ``P_y`` by the coefficients of group g is ``P_y (1[y=g] -
    P_g) z_g(x)``. In a complete row ``z_g = (1, t(x))``; where cells are missing it is the mean of that over the states
    of the missing cells, given the known ones in group g.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
        Parameters of the groups, which weigh the states of missing cells.
    """

    def __init__(self, layout: Layout, theta: np.ndarray):
        self.layout, self.theta = layout, theta
        self._columns = term_columns(layout)
        self._energy = Energy(layout, theta)

    def sums(
        self, codes: np.ndarray, missing: np.ndarray | None, p: np.ndarray, weights: np.ndarray, starts: np.ndarray
    ) -> np.ndarray:
        """Return the derivatives (U, K, K, 1 + size) of U sums of ``weights * P_y`` by the coefficients of groups g.

        Parameters
        ----------
        codes : ndarray, shape (n, m)
        missing : ndarray of bool, shape (n, m), or None
        p : ndarray, shape (n, K)
            Probabilities of the groups.
        weights : ndarray, shape (n,)
        starts : ndarray of int, shape (U + 1,)
            Sum u is over the rows ``starts[u]:starts[u + 1]``.
        """
        K = p.shape[1]
        if missing is None or not missing.any():
            # the same indicators for all groups: derivatives are symmetric in y and g, and sum to zero over g
            y, g = np.triu_indices(K, 1)
            change = -p[:, y] * p[:, g] * weights[:, None]
            out = np.zeros((len(starts) - 1, K, K, 1 + self.layout.size))
            out[:, y, g] = out[:, g, y] = self._sums(codes, change, starts)
            diagonal = np.arange(K)
            out[:, diagonal, diagonal] = -out.sum(axis=2)
            return out
        change = -p[:, :, None] * p[:, None, :]
        change[:, np.arange(K), np.arange(K)] += p
        if self.layout.size == self.layout.D and self.layout.support is None:
            return self._of_independent(codes, missing, change * weights[:, None, None], starts)
        row, codes, share = self._states(codes, missing)
        change = (change * weights[:, None, None])[row] * share[:, None, :]
        starts = np.searchsorted(row, starts)
        return self._sums(codes, change.reshape(len(codes), -1), starts).reshape(len(starts) - 1, K, K, -1)

    def _of_independent(
        self, codes: np.ndarray, missing: np.ndarray, change: np.ndarray, starts: np.ndarray
    ) -> np.ndarray:
        """Return the sums of predictors that are independent within groups, for `change` (n, K, K).

        A missing cell has the shares of its predictor's levels in a group, whatever else is known of the row.
        """
        layout, (K, size), q = self.layout, self.theta.shape, change[0].size
        out = self._sums(np.where(missing, 0, codes).astype(codes.dtype), change.reshape(-1, q), starts)
        units = itertools.pairwise(starts)
        amount = np.array([change[lo:hi].reshape(-1, q).T @ missing[lo:hi].astype(float) for lo, hi in units])
        predictor = np.repeat(np.arange(layout.m), np.diff(layout.start))  # of each parameter
        log_sum = [
            np.logaddexp.reduce(np.pad(self.theta[:, lo:hi], ((0, 0), (1, 0))), axis=1)
            for lo, hi in itertools.pairwise(layout.start)
        ]
        share = np.exp(self.theta - np.array(log_sum).T[:, predictor])
        out = out.reshape(len(out), K, K, 1 + size)
        out[..., 1:] += amount.reshape(len(out), K, K, layout.m)[..., predictor] * share
        return out

    def _sums(self, codes: np.ndarray, change: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return the sums (U, q, 1 + size) of ``change z`` over the rows of each unit, for `change` (n, q)."""
        out = np.empty((len(starts) - 1, change.shape[1], 1 + self.layout.size))
        if len(codes) == len(out):
            self._of_rows(codes, change, out)
        else:
            for u, (first, stop) in enumerate(itertools.pairwise(starts)):
                out[u] = self._sum(codes[first:stop], change[first:stop])
        return out

    def _states(self, codes: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all states of rows with missing cells: (row of each, codes, share (states, K) in its row)."""
        n_states = np.where(missing, self.layout.n_levels.astype(float), 1.0).prod(axis=1)
        if n_states.sum() > MAX_STATES:
            raise OptionError(
                f"Standard errors would sum over {n_states.sum():.0e} states of missing cells, more than "
                f"{MAX_STATES:.0e}. Give se='bootstrap' or se=False, or rows with fewer missing cells.",
                argument="se",
            )
        patterns, pattern_of_row = np.unique(missing, axis=0, return_inverse=True)
        rows, states = [], []
        for k, pattern in enumerate(patterns):
            of_pattern, unknown = np.flatnonzero(pattern_of_row.ravel() == k), np.flatnonzero(pattern)
            levels = np.array(list(itertools.product(*(range(int(self.layout.n_levels[i])) for i in unknown))))
            expanded = np.repeat(codes[of_pattern], len(levels), axis=0)
            if len(unknown):
                expanded[:, unknown] = np.tile(levels, (len(of_pattern), 1)).astype(codes.dtype)
            rows.append(np.repeat(of_pattern, len(levels)))
            states.append(expanded)
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        row, expanded = row[order], np.ascontiguousarray(np.concatenate(states)[order])
        energy, first = self._energy(expanded), np.searchsorted(row, np.arange(len(codes)))
        if self.layout.support is not None:
            energy[~np.broadcast_to(self.layout.support.rows(expanded), energy.shape)] = -np.inf
        largest = np.maximum.reduceat(energy, first)[row]
        share = np.exp(energy - np.where(np.isfinite(largest), largest, 0.0))
        total = np.add.reduceat(share, first)[row]  # zero in a group in which the row cannot occur
        return row, expanded, np.divide(share, total, out=np.zeros_like(share), where=total > 0.0)

    def _of_rows(self, codes: np.ndarray, change: np.ndarray, out: np.ndarray) -> None:
        """Write the sums of each row by itself into `out` (n, q, 1 + size)."""
        out[:, :, 0] = change
        X = np.column_stack([one_hot(codes, self.layout), np.ones(len(codes))])
        for k in range(self.layout.size):
            indicator = X[:, self._columns[:, k]].prod(axis=1)
            np.multiply(change, indicator[:, None], out=out[:, :, 1 + k])

    def _sum(self, codes: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Return the sums (q, 1 + size) over rows (n, m) of ``change z``, for `change` (n, q)."""
        layout, q = self.layout, change.shape[1]
        out = np.zeros((q, 1 + layout.size))
        X = one_hot(codes, layout)
        out[:, 0] = change.sum(axis=0)
        out[:, 1 : 1 + layout.D] = change.T @ X
        first_term = layout.D
        if layout.count(2) * MATRIX_ADVANTAGE > layout.D**2:
            row, column = cells(layout)
            first_term = int(layout.pair_start[-1])
            for k in range(q):
                out[k, 1 + layout.D : 1 + first_term] = (X.T @ (X * change[:, [k]]))[row, column]
        if first_term < layout.size:
            X = np.column_stack([X, np.ones(len(X))])
            step = max(1, ROWS * ROWS // max(len(X), 1))
            for first in range(first_term, layout.size, step):
                columns = self._columns[:, first : first + step]
                products = X[:, columns[0]]
                for other in columns[1:]:
                    products = products * X[:, other]
                out[:, 1 + first : 1 + first + products.shape[1]] = change.T @ products
        return out
