"""Layout: where each table of fields h and couplings J lies in the flat parameter vector of a group."""

from __future__ import annotations

from functools import cached_property

import numpy as np

__all__ = ["Layout"]


class Layout:
    """Positions of all parameters of one group in a flat float64 vector.

    The vector holds the fields ``h_i(x)``, ``x = 1..L_i-1``, predictor by predictor, then the tables
    ``J_ij(x, x')`` pair by pair (``i < j``, lexicographic), each in C order. Parameters of the reference
    level (code 0) are zero and are not stored (Woo & Wang, section 2.1).

    Parameters
    ----------
    n_levels : array_like of int, shape (m,)
        Number of levels ``L_i`` of each predictor; one with a single level has no parameters.
    pairs : array_like of int, shape (P, 2), optional
        Interacting pairs of predictors, in any order; None for all pairs.

    Attributes
    ----------
    m : int
        Number of predictors.
    n_levels : ndarray of int32, shape (m,)
    pairs : ndarray of intp, shape (P, 2)
        Interacting pairs, ``i < j``, lexicographic.
    start : ndarray of intp, shape (m + 1,)
        Column at which the non-reference levels of predictor ``i`` start among the ``D`` columns.
    D : int
        Number of non-reference levels, ``sum(L_i - 1)``; also the number of fields.
    size : int
        Length of the parameter vector: the degrees of freedom of a group (eq. 7 restricted to `pairs`).

    Examples
    --------
    >>> layout = Layout([2, 3], [(0, 1)])
    >>> theta = np.arange(5.0)
    >>> layout.table(theta, 1)
    array([1., 2.])
    >>> layout.table(theta, 0, 1)
    array([[3., 4.]])
    """

    def __init__(self, n_levels, pairs=None):
        self.n_levels = np.ascontiguousarray(n_levels, dtype=np.int32)
        self.m = len(self.n_levels)
        if pairs is None:
            found = np.column_stack(np.triu_indices(self.m, 1)).astype(np.intp, copy=False)
        else:
            found = np.sort(np.asarray(pairs, dtype=np.intp).reshape(-1, 2), axis=1)
            keys = np.unique(found[:, 0] * self.m + found[:, 1])
            found = np.column_stack(np.divmod(keys, max(self.m, 1))).astype(np.intp)
        self.pairs = found
        width = self.n_levels.astype(np.intp) - 1
        self.start = np.concatenate(([0], np.cumsum(width)))
        self.D = int(self.start[-1])
        cells = width[found[:, 0]] * width[found[:, 1]]
        self.pair_start = self.D + np.concatenate(([0], np.cumsum(cells)))
        self.size = int(self.pair_start[-1])
        for array in (self.n_levels, self.pairs, self.start, self.pair_start):
            array.setflags(write=False)

    def __repr__(self) -> str:
        return f"Layout(m={self.m}, pairs={len(self.pairs)}, D={self.D}, size={self.size})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Layout)
            and np.array_equal(self.n_levels, other.n_levels)
            and np.array_equal(self.pairs, other.pairs)
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def mask(self) -> np.ndarray:
        """Symmetric bool matrix (m, m): which predictors interact (R's ``qJ``)."""
        mask = np.zeros((self.m, self.m), dtype=bool)
        mask[self.pairs[:, 0], self.pairs[:, 1]] = True
        mask |= mask.T
        mask.setflags(write=False)
        return mask

    def pair_index(self, i: int, j: int) -> int:
        """Return the row of pair ``(i, j)`` in `pairs`, or -1 if it does not interact."""
        if i > j:
            i, j = j, i
        keys = self._keys
        at = int(np.searchsorted(keys, i * self.m + j))
        return at if at < len(keys) and keys[at] == i * self.m + j else -1

    @cached_property
    def _keys(self) -> np.ndarray:
        return self.pairs[:, 0] * self.m + self.pairs[:, 1]

    def table(self, theta: np.ndarray, i: int, j: int | None = None) -> np.ndarray:
        """Return the fields of predictor `i`, or the couplings of the pair (`i`, `j`), as a view of `theta`.

        Works on any array whose last axis has length ``size`` (parameters, gradients, standard errors).
        """
        if j is None:
            return theta[..., self.start[i] : self.start[i + 1]]
        p = self.pair_index(i, j)
        if p < 0:
            raise KeyError((i, j))
        a, b = sorted((i, j))
        block = theta[..., self.pair_start[p] : self.pair_start[p + 1]]
        block = block.reshape(*theta.shape[:-1], self.n_levels[a] - 1, self.n_levels[b] - 1)
        return block if i == a else np.swapaxes(block, -1, -2)

    def columns(self, predictors) -> np.ndarray:
        """Return the columns of the non-reference levels of some predictors, one predictor after the other."""
        ranges = [np.arange(self.start[i], self.start[i + 1]) for i in predictors]
        return np.concatenate([np.empty(0, dtype=np.intp), *ranges])

    @cached_property
    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column among the D non-reference levels of every coupling, in storage order."""
        i, j = self.pairs.T
        cells = np.diff(self.pair_start)
        start = self.start.astype(np.int32)  # half of the memory, which for thousands of levels is what counts
        col = np.arange(self.size - self.D, dtype=np.int32)
        col -= np.repeat((self.pair_start[:-1] - self.D).astype(np.int32), cells)
        width = np.repeat(self.n_levels[j] - 1, cells)
        row = col // width
        row += np.repeat(start[i], cells)
        np.remainder(col, width, out=col)
        col += np.repeat(start[j], cells)
        return row, col

    def to_matrix(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(h, J)``: fields (D,) and the symmetric coupling matrix (D, D) over non-reference levels."""
        row, col = self.cells
        J = np.zeros((self.D, self.D))
        J[row, col] = theta[self.D :]
        J[col, row] = theta[self.D :]
        return theta[: self.D].copy(), J

    def from_matrix(self, h: np.ndarray, J: np.ndarray) -> np.ndarray:
        """Return the flat vector of fields `h` (D,) and couplings `J` (D, D), symmetrised by eq. (18)."""
        row, col = self.cells
        theta = np.empty(self.size)
        theta[: self.D] = h
        theta[self.D :] = J[row, col]
        theta[self.D :] += J[col, row]
        theta[self.D :] *= 0.5
        return theta
