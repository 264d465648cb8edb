"""Sums over a table of all states: energies, probabilities, moments and covariances."""

# States are listed with the last predictor varying fastest. In the table of indicators, the cell
# with codes x contains the product of the indicators of the levels ``x_i > 0``.

from __future__ import annotations

from functools import cached_property

import numpy as np

from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["StateTable", "row_states"]

PAIRS_AT_ONCE = 2**22  # pairs of parameters to look up at once


class StateTable:
    """The states of a layout, and the positions of its parameters in the table of indicators.

    Parameters
    ----------
    layout : Layout

    Attributes
    ----------
    n : int
        Number of states.
    size : int
        Number of parameters.
    shape : tuple of int
        Number of levels of each predictor, which is the shape of a table of all states.
    strides : ndarray of intp, shape (m,)
        For each predictor, the difference in position between states with successive levels.
    cells : ndarray of intp, shape (size,)
        Position of each parameter in the table of indicators.
    possible : ndarray of bool, shape (n,), or None
        Possible states; None if all states are possible.
    """

    def __init__(self, layout: Layout):
        self.layout = layout
        self.size = layout.size
        self.shape = tuple(int(L) for L in layout.n_levels)
        self.n = int(np.prod(self.shape, dtype=float))  # float: integers could overflow
        strides = np.ones(layout.m, dtype=np.intp)  # the position of codes x is x @ strides
        if layout.m > 1:
            # products of the lengths of all later axes
            strides[:-1] = np.cumprod(self.shape[:0:-1])[::-1]
        self.strides = strides
        self.cells = self._cells()
        self.possible: np.ndarray | None = None
        if layout.support is not None:
            # structural zeros; (1, n): a layout of one group
            (self.possible,) = layout.support.states(self.shape)

    def _cells(self) -> np.ndarray:
        """Return the position (size,) of each parameter in the table of indicators."""
        out = np.zeros(self.layout.size, dtype=np.intp)
        cuts = self.layout.cuts  # where each scope's parameters begin in the parameter vector
        for scope, first, stop in zip(self.layout.scopes, cuts[:-1], cuts[1:], strict=True):
            cell = np.zeros(1, dtype=np.intp)
            for i in scope:
                cell = (cell[:, None] + self.strides[i] * np.arange(1, self.shape[i])).ravel()
            out[first:stop] = cell
        return out

    @property
    def margin_scopes(self) -> list[tuple[int, ...]]:
        """Scopes with parameters that form a full marginal table, i.e. all scopes of the layout."""
        return self.layout.scopes

    def of_margin(self, direction: np.ndarray) -> np.ndarray:
        """Return the direction (layout.size,) unchanged, because all parameters are free."""
        return direction

    def energies(self, theta: np.ndarray) -> np.ndarray:
        """Return the energies (n,) of all states for the parameters `theta` (size,).

        A parameter contributes to the state of its cell. It also contributes to all states that
        differ from this state only in predictors with level 0 in the cell.
        """
        table = np.zeros(self.n)
        table[self.cells] = theta
        return self._spread(table)

    def _spread(self, table: np.ndarray) -> np.ndarray:
        """Add values (n,) at level 0 to the values at all other levels along each axis, in place.

        The value of a state is then the sum over all cells that have, for each predictor, either
        the state's level or level 0.
        """
        for L, stride in zip(self.shape, self.strides, strict=True):
            by_level = table.reshape(-1, L, stride)  # a view: the middle axis is the predictor
            by_level[:, 1:] += by_level[:, :1]
        return table

    def indicator_sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of `values` (n,) over states with indicator 1, for each cell (n,).

        Level 0 in a cell matches any level of a state, so each axis is summed over all levels.
        """
        table = values.copy()
        for L, stride in zip(self.shape, self.strides, strict=True):
            by_level = table.reshape(-1, L, stride)  # a view: the middle axis is the predictor
            by_level[:, 0] = by_level.sum(axis=1)
        return table

    def moments(self, values: np.ndarray) -> np.ndarray:
        """Return the sum (size,) of each indicator over states, weighted by `values` (n,)."""
        return self.indicator_sums(values)[self.cells]

    def indicator_products(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (size, size) of products of two indicators over weighted states.

        `values` (n,) contains the weights.
        """
        # the last element, at n, is for products that are always 0
        cell_sums = np.append(self.indicator_sums(values), 0.0)
        size = self.layout.size
        out = np.empty((size, size))
        step = max(1, PAIRS_AT_ONCE // max(size, 1))
        for first in range(0, size, step):
            out[first : first + step] = cell_sums[self._joint_cells(slice(first, first + step))]
        return out

    def quadratic_forms(self, matrix: np.ndarray) -> np.ndarray:
        """Return ``T(x)' matrix T(x)`` (n,) for all states x, where T(x) (size,) are indicators.

        `matrix` has shape (size, size). The product of two indicators is the indicator of their
        joint cell. If the entries of the matrix are summed by joint cell, the quadratic form is
        therefore an energy (see `energies`).
        """
        table = np.zeros(self.n + 1)  # the last element, at n, is for products that are always 0
        size = self.layout.size
        step = max(1, PAIRS_AT_ONCE // max(size, 1))
        for first in range(0, size, step):
            rows = slice(first, first + step)
            table += np.bincount(self._joint_cells(rows).ravel(), matrix[rows].ravel(), self.n + 1)
        return self._spread(table[:-1])

    def covariances(self, p: np.ndarray, mu: np.ndarray) -> np.ndarray:
        """Return the Fisher information, i.e. the covariances (size, size) of all indicators.

        Parameters
        ----------
        p : ndarray, shape (n,)
            Probabilities of all states.
        mu : ndarray, shape (size,)
            Moments of all parameters.
        """
        return self.indicator_products(p) - np.multiply.outer(mu, mu)

    def _joint_cells(self, rows: slice) -> np.ndarray:
        """Return `_find_joint_cells` for `rows`, using a cache if the result is not too large."""
        if self.layout.size * self.layout.size <= PAIRS_AT_ONCE:
            return self._all_joint_cells[rows]
        return self._find_joint_cells(rows)

    @cached_property
    def _all_joint_cells(self) -> np.ndarray:
        """The joint cells (size, size) of all pairs of parameters."""
        return self._find_joint_cells(slice(None))

    def _find_joint_cells(self, rows: slice) -> np.ndarray:
        """Return the cells (len(rows), size) of products of two indicators.

        The first parameter is one of `rows`, and the second is any parameter. The cell of a product
        has the levels of both parameters. If the parameters have different levels of the same
        predictor, their product is always 0, and the result is n, which is not a cell.
        """
        codes = self.codes(self.cells)
        is_possible = np.ones((len(codes[rows]), self.layout.size), dtype=bool)
        joint_cells = np.zeros(is_possible.shape, dtype=np.intp)
        for i in range(len(self.shape)):
            level = codes[rows, i, None]
            other_level = codes[:, i]
            is_possible &= (level == other_level) | (level == 0) | (other_level == 0)
            joint_cells += np.maximum(level, other_level) * self.strides[i]
        return np.where(is_possible, joint_cells, self.n)

    def indicators(self) -> np.ndarray:
        """Return the indicators (n, size) of all parameters in all states."""
        codes = self.codes(np.arange(self.n))
        out = np.ones((self.n, self.layout.size))
        for column, cell_codes in enumerate(self.codes(self.cells)):
            members = np.flatnonzero(cell_codes)  # the predictors of the parameter
            out[:, column] = (codes[:, members] == cell_codes[members]).all(axis=1)
        return out

    def codes(self, states: np.ndarray) -> np.ndarray:
        """Return the codes (len(states), m) of states, given their positions."""
        return states[:, None] // self.strides % np.array(self.shape)

    def spread(self, total: float) -> np.ndarray:
        """Return equal counts (n,) for all possible states, which sum to `total`."""
        if self.possible is None:
            return np.full(self.n, total / self.n)
        return self.possible * (total / self.possible.sum())

    def log_partition(
        self, theta: np.ndarray, support: np.ndarray | None = None
    ) -> tuple[float, np.ndarray]:
        """Return ln Z and the probabilities (n,) of all states.

        States outside the mask `support` (n,) have probability 0. The default mask contains all
        possible states.
        """
        energy = self.energies(theta)
        support = self.possible if support is None else support
        if support is not None:
            energy[~support] = -np.inf
        largest = float(energy.max())
        p = np.exp(energy - largest)
        total = float(p.sum())
        p /= total
        return largest + float(np.log(total)), p

    def counts(self, rows: Sample) -> np.ndarray:
        """Return the total weight (n,) of the complete rows in each state."""
        return np.bincount(row_states(self, rows.codes), rows.weights, self.n)


def row_states(table: StateTable, codes: np.ndarray) -> np.ndarray:
    """Return the positions (len(codes),) of encoded rows in the table of states."""
    return codes.astype(np.intp) @ table.strides
