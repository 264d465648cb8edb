"""Energies of rows, with unknown predictors marginalised exactly or by annealing."""

from __future__ import annotations

import numpy as np

from bbl.errors import OptionError
from bbl.model.ais import annealed_log_z
from bbl.model.elimination import elimination_order, log_sum
from bbl.model.energy import Energy
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.parallel import serial_blas

__all__ = ["MarginalEnergy"]

CELLS = 2**19  # largest number of table cells of an exact sum for a row; larger sums are annealed
BATCH_CELLS = 2**20  # table cells of the rows that are processed at once
BATCH_ROWS = 4096  # maximum number of rows that are processed at once
# With these, an annealed sum has an error of 0.01 to 0.05 in ln Z and takes as long as `CELLS`.
ANNEALING_STEPS = 100  # temperatures
ANNEALING_CHAINS = 256  # independent chains of a row


class MarginalEnergy(Energy):
    """Computes energies of rows with unknown predictors under K models; impossible rows have the
    energy -inf.

    The energy of a row with unknown predictors is ``ln sum exp(E)`` over their levels. With this
    definition, ``E - ln Z`` is the log-probability of the known predictors. Given the known
    predictors, the unknown predictors have a smaller model with the fields ``h + sum J``. Couplings
    of three or more predictors are handled in the same way. The log-sum is the ln Z of this model.
    It is computed by variable elimination for up to half a million table cells per row, and
    otherwise by annealing with a fixed seed. Rows with the same unknown predictors are processed
    together.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
        One parameter vector per model.

    Attributes
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
        The argument `theta`.
    h : ndarray, shape (D, K)
        Fields.
    J : ndarray, shape (D, D, K)
        Couplings of pairs, above the diagonal; of shape (0, 0, K) if the model has no pairs.

    Examples
    --------
    >>> energy = MarginalEnergy(Layout([2, 2]), np.array([[1.0, 2.0, 4.0]]))
    >>> codes = np.array([[1, 1], [1, 0]], dtype=np.uint8)
    >>> energy(codes, np.array([[False, False], [False, True]])).round(4)
    array([[7.    ],
           [7.0025]])
    """

    def __init__(self, layout: Layout, theta: np.ndarray):
        super().__init__(layout, theta)
        self.theta = theta

    def __call__(self, codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
        """Return the energies (n, K) of `codes` (n, m), marginalised over the cells in `unknown`
        (n, m).
        """
        support = self.layout.support
        if unknown is None or not unknown.any():
            out = super().__call__(codes)
            if support is not None:
                # `support.rows`: whether a row can occur, (n, K), or (n, 1) if it is the same for
                # all models
                out[~np.broadcast_to(support.rows(codes), out.shape)] = -np.inf
            return out
        # the reference level contributes nothing to the energy of the known predictors
        codes = np.where(unknown, 0, codes).astype(codes.dtype)
        out = super().__call__(codes)
        if support is not None:
            out[~np.broadcast_to(support.rows(codes, unknown), out.shape)] = -np.inf
        if self.layout.size == self.layout.D and support is None:  # no couplings
            # predictors are independent: each adds its own log-sum
            for i in np.flatnonzero(unknown.any(axis=0)):
                h = self.theta[:, self.layout.start[i] : self.layout.start[i + 1]]
                out[unknown[:, i]] += np.logaddexp.reduce(np.pad(h, ((0, 0), (1, 0))), axis=1)
            return out
        rows = np.flatnonzero(unknown.any(axis=1))
        patterns, pattern_of_row = np.unique(unknown[rows], axis=0, return_inverse=True)
        for p, pattern in enumerate(patterns):
            pattern_rows = rows[pattern_of_row.ravel() == p]
            out[pattern_rows] += self._sum_out(codes[pattern_rows], np.flatnonzero(pattern))
        return out

    def _sum_out(self, codes: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """Return the log-sums (n, K) over the levels of the predictors `unknown` (u,), given the
        codes of the others.

        Each log-sum is the ln Z of a model for the unknown predictors, given a row and one of the K
        models. The fields of this model include couplings with the known levels of the row. Its
        couplings include the couplings of higher terms whose other members are known.
        """
        layout = self.layout
        # only known predictors that share a term or structural zeros with an unknown predictor
        # matter
        is_unknown = np.zeros(layout.m, dtype=bool)
        is_unknown[unknown] = True
        neighbours = np.flatnonzero(layout.joined[unknown].any(axis=0) & ~is_unknown)
        # a context is a combination of the neighbours' levels
        first_rows = context_of_row = np.zeros(1, dtype=np.intp)
        if len(codes) > 1:  # many patterns occur once
            _, first_rows, context_of_row = np.unique(
                codes[:, neighbours], axis=0, return_index=True, return_inverse=True
            )
        # rows in the same context have the same log-sum
        codes = codes[first_rows]
        # pairs of two unknown predictors
        pairs = np.flatnonzero(is_unknown[layout.pairs].all(axis=1))
        pair_positions = np.searchsorted(unknown, layout.pairs[pairs])
        # a term with a single unknown member contributes only to that member's field
        higher_terms = self._list_higher_terms(unknown)
        terms = [
            pair_positions,
            *(positions for _, positions, _ in higher_terms if len(positions) > 1),
        ]
        # the model has all pairs if `layout` has, and need not list them
        unknown_layout = Layout(layout.n_levels[unknown], None if layout.complete else terms)
        couplings = self._pair_couplings(pairs)
        structural_zeros = None if layout.support is None else self._condition_zeros(codes, unknown)
        joined = unknown_layout.mask  # whether two unknown predictors share a table
        if structural_zeros is not None:
            # their positions in `unknown`; they share a table, too; (n, G, ...)
            zero_scope, zero_table = structural_zeros
            joined = joined.copy()
            joined[np.ix_(zero_scope, zero_scope)] = True
        # (order, table cells per row and model); None if there are more than `CELLS`
        elimination = elimination_order(unknown_layout.n_levels, joined, CELLS)
        K = len(self.theta)
        batch_size = (
            BATCH_ROWS
            if elimination is None
            else min(BATCH_ROWS, max(1, int(BATCH_CELLS / (elimination[1] * K))))
        )
        out = np.empty((len(codes), K))
        for first in range(0, len(codes), batch_size):
            rows = codes[first : first + batch_size]
            fields = self._conditional_fields(rows, unknown)
            # theta (rows, K, size): the models of the unknown predictors
            if not higher_terms:  # only the fields depend on the row
                theta = np.concatenate(
                    [fields, np.broadcast_to(couplings, (len(fields), *couplings.shape))], axis=2
                )
            else:
                theta = np.zeros((len(rows), K, unknown_layout.size))
                theta[:, :, : unknown_layout.D] = fields
                for pair, positions in zip(layout.pairs[pairs], pair_positions, strict=True):
                    unknown_layout.table(theta, *positions)[...] += layout.table(self.theta, *pair)
                for unknown_members, positions, known_members in higher_terms:
                    table = unknown_layout.table(theta, *positions)
                    self._add_couplings(
                        table, rows[:, known_members], unknown_members, known_members
                    )
            theta = theta.reshape(-1, unknown_layout.size)
            if elimination is None:
                log_z = _anneal_log_z(unknown_layout, theta, structural_zeros is not None)
            else:
                factors = unknown_layout.factors(theta)
                if structural_zeros is not None:
                    # (rows, G, ...) to (rows K, ...), like `theta`
                    table = zero_table[first : first + batch_size]
                    table = np.broadcast_to(table, (len(rows), K, *table.shape[2:]))
                    factors.append((zero_scope, table.reshape(-1, *table.shape[2:])))
                log_z = log_sum(factors, elimination[0])
            out[first : first + batch_size] = log_z.reshape(-1, K)
        return out[context_of_row.ravel()]

    def _condition_zeros(
        self, codes: np.ndarray, unknown: np.ndarray
    ) -> tuple[tuple[int, ...], np.ndarray] | None:
        """Return the structural zeros, given the levels of the known predictors, as a factor.

        Returns None if all predictors with structural zeros are known.

        The factor consists of the positions in `unknown` (u,) of the predictors with structural
        zeros, and a table (n, G, L_i, ...) that is 0 for levels that can occur together with the
        `codes` (n, m) of a row, and -inf otherwise. G is 1 if all groups have the same structural
        zeros, and otherwise the number of groups. If a row is impossible, all entries of its table
        are -inf.
        """
        assert self.layout.support is not None  # noqa: S101  # the caller has checked it
        members, possible = self.layout.support.condition_on(codes, unknown)
        if not members:
            return None
        with np.errstate(divide="ignore"):
            return tuple(int(p) for p in np.searchsorted(unknown, members)), np.log(
                possible.astype(float)
            )

    def _list_higher_terms(
        self, unknown: np.ndarray
    ) -> list[tuple[tuple[int, ...], tuple[int, ...], list[int]]]:
        """Return the terms of three or more predictors that have unknown members, as tuples.

        Each tuple contains the unknown members, their positions in `unknown` (u,), and the known
        members.
        """
        out = []
        for terms in self.layout.terms[1:]:
            for term in terms[np.isin(terms, unknown).any(axis=1)].tolist():
                unknown_members = [i for i in term if i in unknown]
                positions = tuple(int(p) for p in np.searchsorted(unknown, unknown_members))
                out.append(
                    (
                        tuple(unknown_members),
                        positions,
                        [i for i in term if i not in unknown_members],
                    )
                )
        return out

    def _add_couplings(
        self,
        out: np.ndarray,
        known_codes: np.ndarray,
        unknown_members: tuple[int, ...],
        known_members: list[int],
    ) -> None:
        """Add the couplings of a term, given the codes (n, known members) of its known members, to
        `out`.

        `out` (n, K, L_i - 1, ...) is modified in place; the axes after the first two correspond to
        the unknown members. The couplings are zero if a known member is at its reference level.
        """
        # (K, L_i - 1 of known members, L_i - 1 of unknown members)
        table = self.layout.table(self.theta, *known_members, *unknown_members)
        rows = np.flatnonzero((known_codes > 0).all(axis=1))
        levels = tuple(known_codes[rows].T.astype(np.intp) - 1)
        out[rows] += np.moveaxis(table, 0, len(known_members))[levels] if known_members else table

    def _pair_couplings(self, pairs: np.ndarray) -> np.ndarray:
        """Return the concatenated couplings of the given rows of `layout.pairs`,
        shape (K, cells).
        """
        start = self.layout.pair_start
        cells = np.concatenate(
            [np.empty(0, dtype=np.intp), *(np.arange(start[p], start[p + 1]) for p in pairs)]
        )
        return self.theta[:, cells]

    def _conditional_fields(self, codes: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """Return the fields of the predictors in `unknown`, shape (n, K, non-reference levels).

        The fields are ``h_i(a) + sum_j J_ij(a, x_j)``, summed over the known predictors j. Unknown
        predictors have code 0 and do not contribute.
        """
        columns = self.layout.columns(unknown)
        h = self.h[columns].T
        if not len(self.J):
            return np.broadcast_to(h, (len(codes), *h.shape))
        # one of the two is zero, because self.J is triangular
        J = self.J[:, columns] + self.J[columns].swapaxes(0, 1)
        with serial_blas():  # one thread, so that sums do not depend on the number of threads
            conditional_fields = one_hot(codes, self.layout) @ J.reshape(len(J), -1)
        return conditional_fields.reshape(len(codes), *J.shape[1:]).swapaxes(1, 2) + h


def _anneal_log_z(layout: Layout, theta: np.ndarray, has_zeros: bool) -> np.ndarray:
    """Return ln Z (n,) of the models `theta` (n, size) by annealing with a fixed seed."""
    if has_zeros:
        raise OptionError(
            f"Averaging over {layout.m} missing predictors of a row, some of them with structural "
            f"zeros, would require more than {CELLS:,} table cells.",
            argument="newdata",
            hint="Pass rows with fewer missing values.",
        )
    return np.array(
        [
            annealed_log_z(  # starts from the independent model with half of the fields
                layout,
                parameters,
                0.5 * parameters[: layout.D],
                ANNEALING_STEPS,
                ANNEALING_CHAINS,
                rng=0,
            ).log_z
            for parameters in theta
        ]
    )
