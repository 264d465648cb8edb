"""Analytic derivatives of averaged group probabilities with respect to score coefficients.

The class score of group g in a row is ``c_g0 + sum_k c_gk t_k(x)``, where t_k are the indicators of
the parameters of a layout. The *coefficients* of a group are its intercept c_g0 (column 0) and its
parameters.
"""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np

from bbl.errors import OptionError
from bbl.model.cumulative import logit_slopes
from bbl.model.energy import Energy
from bbl.model.layout import Layout, term_columns
from bbl.model.moments import one_hot
from bbl.model.regressors import pair_cells

__all__ = ["MAX_STATES", "ScoreGradient"]

MAX_STATES = 2**20  # maximum number of states of the missing cells of all rows
# largest number of products of indicators (rows times parameters) computed at once
MAX_PRODUCTS = 2**24
MATRIX_ADVANTAGE = 20  # speed of a matrix product relative to products of single columns


class ScoreGradient:
    """Computes derivatives of weighted sums of P(group | row) with respect to score coefficients.

    With ``P_y = exp(s_y) / sum_g exp(s_g)``, the derivative of ``P_y`` with respect to the
    coefficients of group g is ``P_y (1[y=g] - P_g) z_g(x)``. In a complete row,
    ``z_g = (1, t(x))``. In a row with missing cells, z_g is the mean of ``(1, t(x))`` over the
    states of the missing cells, given the known cells and group g.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
        Parameters of the groups, used to weight the states of missing cells.
    cumulative : bool, default False
        Whether the sums ``c_g0 + sum_k c_gk t_k(x)`` are cumulative logits instead of class scores.
        If so, rows must be complete.
    """

    def __init__(self, layout: Layout, theta: np.ndarray, cumulative: bool = False):
        self.cumulative = cumulative
        self.layout = layout
        self.theta = theta
        # (max(order, 2), size): columns in the one-hot codes X of each parameter's levels. Terms of
        # lower order are padded with -1, which selects the last column of X, a column of ones added
        # for these products.
        self._columns = term_columns(layout)
        self._energy = Energy(layout, theta)
        self.n_groups = len(theta)
        self.n_coefficients = 1 + layout.size  # of a group: the intercept, then parameters

    def sums(
        self,
        codes: np.ndarray,
        missing: np.ndarray | None,
        p: np.ndarray,
        weights: np.ndarray,
        starts: np.ndarray,
    ) -> np.ndarray:
        """Return the derivatives (U, K, K, 1 + size) of U sums of ``weights * P_y``.

        Derivatives are with respect to the coefficients of group g. Each sum is over the rows of a
        *unit*. The axes correspond to units, y, g and coefficients.

        Parameters
        ----------
        codes : ndarray, shape (n, m)
        missing : ndarray of bool, shape (n, m), or None
        p : ndarray, shape (n, K)
            Probabilities of the groups.
        weights : ndarray, shape (n,)
        starts : ndarray of int, shape (U + 1,)
            Unit u consists of the rows ``starts[u]:starts[u + 1]``.
        """
        K = p.shape[1]
        if self.cumulative:
            slopes = (logit_slopes(p) * weights[:, None, None]).reshape(len(p), -1)
            return self._sum_units(codes, slopes, starts).reshape(len(starts) - 1, K, K, -1)
        # score_derivatives: derivatives of P_y with respect to the class score of group g, P_y
        # (1[y=g] - P_g), times the weight of the row
        if missing is None or not missing.any():
            # all groups have the same indicators, so derivatives are symmetric in y and g, and sum
            # to zero over g
            y, g = np.triu_indices(K, 1)
            score_derivatives = -p[:, y] * p[:, g] * weights[:, None]
            out = np.zeros((len(starts) - 1, K, K, 1 + self.layout.size))
            out[:, y, g] = out[:, g, y] = self._sum_units(codes, score_derivatives, starts)
            diagonal = np.arange(K)
            out[:, diagonal, diagonal] = -out.sum(axis=2)
            return out
        score_derivatives = -p[:, :, None] * p[:, None, :]
        score_derivatives[:, np.arange(K), np.arange(K)] += p
        if self._is_independent:
            return self._sums_of_independent(
                codes, missing, score_derivatives * weights[:, None, None], starts
            )
        row, codes, share = self._list_states(codes, missing)
        score_derivatives = (score_derivatives * weights[:, None, None])[row] * share[:, None, :]
        # first state of each unit, then the number of states
        state_starts = np.searchsorted(row, starts)
        return self._sum_units(
            codes, score_derivatives.reshape(len(codes), -1), state_starts
        ).reshape(len(starts) - 1, K, K, -1)

    def score_changes(
        self,
        codes: np.ndarray,
        missing: np.ndarray | None,
        directions: np.ndarray,
        starts: np.ndarray,
    ) -> np.ndarray:
        """Return the derivatives (T, n, K) of rows' class scores along T directions in coefficient
        space.

        Parameters
        ----------
        codes : ndarray, shape (n, m)
        missing : ndarray of bool, shape (n, m), or None
        directions : ndarray, shape (T, U, K, 1 + size)
            T directions for each unit of rows.
        starts : ndarray of int, shape (U + 1,)
            Unit u consists of the rows ``starts[u]:starts[u + 1]``.
        """
        T, U, K, n_coefficients = directions.shape
        out = np.empty((T, len(codes), K))
        is_complete = missing is None or not missing.any()
        if is_complete and len(codes) > U:
            for u, (lo, hi) in enumerate(itertools.pairwise(starts)):
                own = directions[:, u].reshape(T * K, n_coefficients)
                energy = Energy(self.layout, np.ascontiguousarray(own[:, 1:]))
                changes = own[:, 0] + energy(codes[lo:hi])
                out[:, lo:hi] = changes.reshape(-1, T, K).swapaxes(0, 1)
            return out
        unit = np.repeat(np.arange(U), np.diff(starts))
        n_rows = max(1, MAX_PRODUCTS // (K * n_coefficients))
        for first in range(0, len(codes), n_rows):
            rows = slice(first, first + n_rows)
            z = self._mean_indicators(codes[rows], None if missing is None else missing[rows])
            for changes, own in zip(out, directions, strict=True):
                changes[rows] = (z * own[unit[rows]]).sum(axis=2)
        return out

    def _mean_indicators(self, codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
        """Return the mean (n, K, 1 + size) of ``(1, t(x))`` over the states of the missing cells of
        rows, given their known cells in each group; shape (n, 1, 1 + size) for complete rows.
        """
        if missing is None or not missing.any():
            z = np.empty((len(codes), 1, self.n_coefficients))
            self._write_row_sums(codes, np.ones((len(codes), 1)), z)
            return z
        if self._is_independent:
            # missing cells are at the reference level, which has no indicators
            known = self._mean_indicators(np.where(missing, 0, codes).astype(codes.dtype), None)
            z = np.repeat(known, self.n_groups, axis=1)
            z[:, :, 1:] += missing[:, None, self._predictor_of_field] * self._level_shares
            return z
        row, states, share = self._list_states(codes, missing)
        of_states = self._mean_indicators(states, None)
        first_states = np.searchsorted(row, np.arange(len(codes)))
        return np.stack(
            [
                np.add.reduceat(of_states[:, 0] * share[:, [g]], first_states, axis=0)
                for g in range(self.n_groups)
            ],
            axis=1,
        )

    @property
    def _is_independent(self) -> bool:
        """Whether the model has no couplings and no structural zeros."""
        return self.layout.size == self.layout.D and self.layout.support is None

    @cached_property
    def _predictor_of_field(self) -> np.ndarray:
        """The predictor of each field, shape (D,)."""
        return np.repeat(np.arange(self.layout.m), np.diff(self.layout.start))

    @cached_property
    def _level_shares(self) -> np.ndarray:
        """Probabilities (K, D) of the non-reference levels of independent predictors."""
        # for each predictor, (K,): log-sum of the exponentials of its fields, including 0 for the
        # reference level
        log_sum = [
            np.logaddexp.reduce(np.pad(self.theta[:, lo:hi], ((0, 0), (1, 0))), axis=1)
            for lo, hi in itertools.pairwise(self.layout.start)
        ]
        return np.exp(self.theta - np.array(log_sum).T[:, self._predictor_of_field])

    def _sums_of_independent(
        self,
        codes: np.ndarray,
        missing: np.ndarray,
        score_derivatives: np.ndarray,
        starts: np.ndarray,
    ) -> np.ndarray:
        """Return the result of `sums` for independent predictors, given `score_derivatives`
        (n, K, K).

        The indicators of a missing cell are replaced by the level probabilities of its predictor in
        each group, because these do not depend on the known cells of the row.
        """
        # q = K K
        layout = self.layout
        (K, size) = self.theta.shape
        q = score_derivatives[0].size
        # missing cells are at the reference level, which has no indicators
        out = self._sum_units(
            np.where(missing, 0, codes).astype(codes.dtype),
            score_derivatives.reshape(-1, q),
            starts,
        )
        unit_bounds = itertools.pairwise(starts)
        # (U, K K, m): sums of the derivatives over the rows where each predictor is missing
        missing_sums = np.array(
            [
                score_derivatives[lo:hi].reshape(-1, q).T @ missing[lo:hi].astype(float)
                for lo, hi in unit_bounds
            ]
        )
        out = out.reshape(len(out), K, K, 1 + size)  # units, y, g, coefficients
        out[..., 1:] += (
            missing_sums.reshape(len(out), K, K, layout.m)[..., self._predictor_of_field]
            * self._level_shares  # indexed by group g
        )
        return out

    def _sum_units(
        self, codes: np.ndarray, score_derivatives: np.ndarray, starts: np.ndarray
    ) -> np.ndarray:
        """Return the sums (U, q, 1 + size) of ``score_derivatives[:, k] z`` over the rows of each
        of U units.

        `score_derivatives` (n, q) has a column k for each of q pairs of groups, and ``z = (1,
        t(x))``. Unit u consists of the rows ``starts[u]:starts[u + 1]``.
        """
        out = np.empty((len(starts) - 1, score_derivatives.shape[1], 1 + self.layout.size))
        if (np.diff(starts) == 1).all():  # every unit is a single row
            self._write_row_sums(codes, score_derivatives, out)
        else:
            for u, (first, stop) in enumerate(itertools.pairwise(starts)):
                out[u] = self._sum_rows(codes[first:stop], score_derivatives[first:stop])
        return out

    def _list_states(
        self, codes: np.ndarray, missing: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all states that the missing cells of rows (n, m) can take, sorted by row.

        Returns
        -------
        row : ndarray of int, shape (states,)
            The row of each state.
        expanded : ndarray, shape (states, m)
            Codes of each state.
        share : ndarray, shape (states, K)
            Probability of each state in each group, given the known cells of its row:
            ``exp(energy)``, normalised over the states of the row.
        """
        n_states = np.where(missing, self.layout.n_levels.astype(float), 1.0).prod(axis=1)
        if n_states.sum() > MAX_STATES:
            raise OptionError(
                f"Standard errors would require sums over {n_states.sum():.0e} states of the "
                f"missing cells, but the limit is {MAX_STATES:.0e}.",
                argument="se",
                hint="Use se='bootstrap' or se=False, or rows with fewer missing cells.",
            )
        # `pattern_of_row` has shape (n, 1) in numpy 2.0
        patterns, pattern_of_row = np.unique(missing, axis=0, return_inverse=True)
        rows = []
        states = []
        for k, pattern in enumerate(patterns):
            pattern_rows = np.flatnonzero(pattern_of_row.ravel() == k)
            unknown = np.flatnonzero(pattern)
            unknown_codes = np.array(
                list(itertools.product(*(range(int(self.layout.n_levels[i])) for i in unknown)))
            )
            expanded = np.repeat(codes[pattern_rows], len(unknown_codes), axis=0)
            # otherwise `unknown_codes` is one empty row: a complete row has one state
            if len(unknown):
                expanded[:, unknown] = np.tile(unknown_codes, (len(pattern_rows), 1)).astype(
                    codes.dtype
                )
            rows.append(np.repeat(pattern_rows, len(unknown_codes)))
            states.append(expanded)
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        row = row[order]
        expanded = np.ascontiguousarray(np.concatenate(states)[order])
        energy = self._energy(expanded)
        first_states = np.searchsorted(row, np.arange(len(codes)))
        # `rows`: whether each state can occur, (states, K), or (states, 1) if it is the same for
        # all groups
        if self.layout.support is not None:
            energy[~np.broadcast_to(self.layout.support.rows(expanded), energy.shape)] = -np.inf
        largest = np.maximum.reduceat(energy, first_states)[row]
        share = np.exp(energy - np.where(np.isfinite(largest), largest, 0.0))
        # zero in a group where the row cannot occur
        total = np.add.reduceat(share, first_states)[row]
        return row, expanded, np.divide(share, total, out=np.zeros_like(share), where=total > 0.0)

    def _write_row_sums(
        self, codes: np.ndarray, score_derivatives: np.ndarray, out: np.ndarray
    ) -> None:
        """Write ``score_derivatives z`` for each row into `out` (n, q, 1 + size), given
        `score_derivatives` (n, q).
        """
        out[:, :, 0] = score_derivatives
        X = np.column_stack([one_hot(codes, self.layout), np.ones(len(codes))])
        for k in range(self.layout.size):
            indicator = X[:, self._columns[:, k]].prod(axis=1)
            np.multiply(score_derivatives, indicator[:, None], out=out[:, :, 1 + k])

    def _sum_rows(self, codes: np.ndarray, score_derivatives: np.ndarray) -> np.ndarray:
        """Return the sums (q, 1 + size) of ``score_derivatives z`` over rows (n, m), given
        `score_derivatives` (n, q).
        """
        layout = self.layout
        q = score_derivatives.shape[1]
        out = np.zeros((q, 1 + layout.size))
        X = one_hot(codes, layout)
        out[:, 0] = score_derivatives.sum(axis=0)
        out[:, 1 : 1 + layout.D] = score_derivatives.T @ X
        first_term = layout.D  # first parameter not yet summed
        # with many pair couplings, compute the sums for all pairs of columns at once and select the
        # couplings
        n_couplings = int(layout.pair_start[-1]) - layout.D
        if n_couplings * MATRIX_ADVANTAGE > layout.D**2:
            row, column = pair_cells(layout)  # columns of the two levels of each pair coupling
            first_term = layout.D + n_couplings
            for k in range(q):
                out[k, 1 + layout.D : 1 + first_term] = (X.T @ (X * score_derivatives[:, [k]]))[
                    row, column
                ]
        if first_term < layout.size:
            X = np.column_stack([X, np.ones(len(X))])
            chunk_size = max(1, MAX_PRODUCTS // max(len(X), 1))
            for first in range(first_term, layout.size, chunk_size):
                columns = self._columns[:, first : first + chunk_size]
                products = X[:, columns[0]]
                for other in columns[1:]:
                    products = products * X[:, other]
                out[:, 1 + first : 1 + first + products.shape[1]] = score_derivatives.T @ products
        return out
