"""Energies of rows in which some predictors are unknown and summed out, exactly or by annealing."""

from __future__ import annotations

import numpy as np

from bbl.model.ais import annealed_log_z
from bbl.model.elimination import elimination_order, log_sum
from bbl.model.energy import Energy
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.parallel import serial_blas

__all__ = ["MarginalEnergy"]

CELLS = 2**19  # table cells of a row's sum up to which it is exact
BLOCK = 2**20  # table cells of rows that are summed together
ROWS = 4096
ANNEALING_STEPS = 100  # beyond that number of cells: errors of 0.01 to 0.05 at the cost of 2**19 cells
ANNEALING_CHAINS = 256


class MarginalEnergy(Energy):
    """Energies of rows under K models, where predictors may be unknown.

    The energy of a row is then ``ln sum exp(E)`` over the levels of its unknown predictors, so that ``E - ln Z`` stays
    the log-probability of what is known. Given the known predictors, the unknown ones are a smaller model, with
    fields ``h + sum J`` of the known ones (and couplings likewise, where a term of three or more reaches into both);
    the log-sum is its ln Z. It is exact by variable elimination up to half a million table cells for a row, and
    annealed from a fixed seed beyond. Rows with the same unknown predictors go together.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
        One parameter vector per model.

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
        """Return the energies (n, K) of `codes` (n, m); predictors are summed out where `unknown` (n, m) is set."""
        if unknown is None or not unknown.any():
            return super().__call__(codes)
        # the reference level adds nothing to the energy of the known predictors
        codes = np.where(unknown, 0, codes).astype(codes.dtype)
        out = super().__call__(codes)
        rows = np.flatnonzero(unknown.any(axis=1))
        patterns, pattern_of_row = np.unique(unknown[rows], axis=0, return_inverse=True)
        for p, pattern in enumerate(patterns):
            at = rows[pattern_of_row.ravel() == p]
            out[at] += self._log_sum(codes[at], np.flatnonzero(pattern))
        return out

    def _log_sum(self, codes: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """Return ln Z (n, K) of the predictors `unknown`, given the other predictors of each row."""
        layout = self.layout
        near = np.flatnonzero(layout.mask[unknown].any(axis=0))
        near = near[~np.isin(near, unknown)]
        _, first, context_of_row = np.unique(codes[:, near], axis=0, return_index=True, return_inverse=True)
        codes = codes[first]  # rows that differ elsewhere have the same sum
        inside = np.flatnonzero(np.isin(layout.pairs, unknown).all(axis=1))
        reached = self._reached(unknown)
        terms = [
            np.searchsorted(unknown, layout.pairs[inside]),
            *(unknown_members for _, unknown_members, _ in reached if len(unknown_members) > 1),
        ]
        unknown_layout = Layout(layout.n_levels[unknown], terms)
        couplings = self._couplings(inside)
        elimination = elimination_order(unknown_layout.n_levels, unknown_layout.mask, CELLS)
        K = len(self.theta)
        block = ROWS if elimination is None else min(ROWS, max(1, int(BLOCK / (elimination[1] * K))))
        out = np.empty((len(codes), K))
        for lo in range(0, len(codes), block):
            rows = codes[lo : lo + block]
            fields = self._fields(rows, unknown)
            if not reached:
                theta = np.concatenate([fields, np.broadcast_to(couplings, (len(fields), *couplings.shape))], axis=2)
            else:
                theta = np.zeros((len(rows), K, unknown_layout.size))
                theta[:, :, : unknown_layout.D] = fields
                for pair, pair_positions in zip(inside, np.searchsorted(unknown, layout.pairs[inside]), strict=True):
                    unknown_layout.table(theta, *pair_positions)[...] += layout.table(self.theta, *layout.pairs[pair])
                for term, unknown_members, known_members in reached:
                    self._add_given(
                        unknown_layout.table(theta, *unknown_members), rows[:, known_members], term, known_members
                    )
            theta = theta.reshape(-1, unknown_layout.size)
            log_z = (
                _annealed(unknown_layout, theta)
                if elimination is None
                else log_sum(unknown_layout.factors(theta), elimination[0])
            )
            out[lo : lo + block] = log_z.reshape(-1, K)
        return out[context_of_row.ravel()]

    def _reached(self, unknown: np.ndarray) -> list[tuple[tuple[int, ...], tuple[int, ...], list[int]]]:
        """Return the terms of three and more with members among `unknown`: positions of these in it, and the others."""
        out = []
        for terms in self.layout.terms[1:]:
            for term in terms[np.isin(terms, unknown).any(axis=1)].tolist():
                unknown_members = [i for i in term if i in unknown]
                at = tuple(int(p) for p in np.searchsorted(unknown, unknown_members))
                out.append((tuple(unknown_members), at, [i for i in term if i not in unknown_members]))
        return out

    def _add_given(self, to: np.ndarray, codes: np.ndarray, left: tuple[int, ...], known: list[int]) -> None:
        """Add to tables (n, K, ...) of `left` its couplings at the `codes` (n, ...) of the `known` members."""
        table = self.layout.table(self.theta, *known, *left)  # (K, levels of known, levels of left)
        rows = np.flatnonzero((codes > 0).all(axis=1))
        at = tuple(codes[rows].T.astype(np.intp) - 1)
        to[rows] += np.moveaxis(table, 0, len(known))[at] if known else table

    def _couplings(self, pairs: np.ndarray) -> np.ndarray:
        """Return the couplings (K, cells) of some pairs, one table after the other."""
        start = self.layout.pair_start
        cells = np.concatenate([np.empty(0, dtype=np.intp), *(np.arange(start[p], start[p + 1]) for p in pairs)])
        return self.theta[:, cells]

    def _fields(self, codes: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """Return the fields (n, K, levels) of the predictors `unknown`: their own, and from the known ones."""
        columns = self.layout.columns(unknown)
        h = self.h[columns].T
        if not len(self.J):
            return np.broadcast_to(h, (len(codes), *h.shape))
        J = self.J[:, columns] + self.J[columns].swapaxes(0, 1)
        with serial_blas():
            conditional_fields = one_hot(codes, self.layout) @ J.reshape(len(J), -1)
        return conditional_fields.reshape(len(codes), *J.shape[1:]).swapaxes(1, 2) + h


def _annealed(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return ln Z of each of the models `theta` by annealing; the same model always has the same."""
    return np.array(
        [annealed_log_z(layout, t, 0.5 * t[: layout.D], ANNEALING_STEPS, ANNEALING_CHAINS, rng=0).log_z for t in theta]
    )
