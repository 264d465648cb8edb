"""Pairwise: fields and couplings of pairs as a vector (D,) and a symmetric matrix (D, D), and back."""

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout

__all__ = ["cells", "from_matrix", "to_matrix"]


def cells(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column among the D non-reference levels of every coupling of a pair, in storage order.

    Two arrays of int32, made once for each layout.
    """
    known = vars(layout)  # the layout keeps them, as it keeps what it works out itself
    if "_cells" not in known:
        known["_cells"] = _cells(layout)
    return known["_cells"]


def _cells(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    i, j = layout.pairs.T
    sizes = np.diff(layout.pair_start)
    start = layout.start.astype(np.int32)  # half of the memory, which for thousands of levels is what counts
    col = np.arange(layout.pair_start[-1] - layout.D, dtype=np.int32)
    col -= np.repeat((layout.pair_start[:-1] - layout.D).astype(np.int32), sizes)
    width = np.repeat(layout.n_levels[j] - 1, sizes)
    row = col // width
    row += np.repeat(start[i], sizes)
    np.remainder(col, width, out=col)
    col += np.repeat(start[j], sizes)
    return row, col


def to_matrix(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(h, J)`` of the pairs of a model: fields (D,) and the symmetric coupling matrix (D, D).

    Examples
    --------
    >>> h, J = to_matrix(Layout([2, 3]), np.arange(5.0))
    >>> J
    array([[0., 3., 4.],
           [3., 0., 0.],
           [4., 0., 0.]])
    """
    row, col = cells(layout)
    J = np.zeros((layout.D, layout.D))
    J[row, col] = theta[layout.D : layout.pair_start[-1]]
    J[col, row] = theta[layout.D : layout.pair_start[-1]]
    return theta[: layout.D].copy(), J


def from_matrix(layout: Layout, h: np.ndarray, J: np.ndarray) -> np.ndarray:
    """Return the flat vector of fields `h` (D,) and couplings `J` (D, D), symmetrised by eq. (18)."""
    row, col = cells(layout)
    theta = np.empty(layout.size)
    theta[: layout.D] = h
    theta[layout.D :] = J[row, col]
    theta[layout.D :] += J[col, row]
    theta[layout.D :] *= 0.5
    return theta
