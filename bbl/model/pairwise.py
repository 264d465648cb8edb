"""Conversion of pairwise parameters between a flat vector and fields (D,) with a coupling matrix
(D, D); checks.

D counts the non-reference levels (codes 1, 2, ...) of all predictors. Eq. (18) is that of Woo &
Wang (2022): the mean of the two estimates of a coupling, ``J_ij`` and ``J_ji``. In a `Layout`
``pairs`` (P, 2) lists the pairs (i, j), ``pair_start`` (P + 1,) the starts of their tables in the
flat vector, then the end of the last; ``start`` (m + 1,) holds the first column of each predictor
among the D, ``n_levels`` (m,) its number of levels.
"""

from __future__ import annotations

import numpy as np

from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.layout import Layout

__all__ = [
    "cells",
    "check_levels",
    "check_model",
    "check_shapes",
    "from_matrix",
    "pair_matrix",
    "to_floats",
    "to_matrix",
]

LARGEST = 1e30  # absolute value of a parameter up to which energies stay finite in single precision


def cells(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column in the coupling matrix of every pair coupling, in storage
    order.

    Both are int32 arrays (couplings,), computed once for each layout.
    """
    attributes = vars(layout)  # a cache, like the cached properties of the layout
    if "_cells" not in attributes:
        attributes["_cells"] = _cells(layout)
    return attributes["_cells"]


def _cells(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Compute the row and the column of `cells`.

    The table of a pair is stored row by row. To save memory, the arrays are changed in place from
    positions in a table to those in the matrix.
    """
    i, j = layout.pairs.T
    # start of each table among the couplings, then their number
    table_start = layout.pair_start - layout.D
    sizes = table_start[1:] - table_start[:-1]
    # int32 saves half of the memory, which matters for thousands of levels
    start = layout.start.astype(np.int32)
    col = np.arange(table_start[-1], dtype=np.int32)
    col -= table_start[:-1].astype(np.int32).repeat(sizes)  # as yet the position in the flat table
    row_length = (layout.n_levels[j] - 1).repeat(sizes)
    row = col // row_length  # in the table
    row += start[i].repeat(sizes)  # in the matrix
    np.remainder(col, row_length, out=col)  # in the table
    col += start[j].repeat(sizes)  # in the matrix
    return row, col


def to_matrix(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(h, J)`` of a model of pairs: fields (D,) and the symmetric coupling matrix (D, D).

    Raises ValueError if the model has terms of more than two predictors.

    Examples
    --------
    >>> h, J = to_matrix(Layout([2, 3]), np.arange(5.0))
    >>> J
    array([[0., 3., 4.],
           [3., 0., 0.],
           [4., 0., 0.]])
    """
    if layout.order > 2:
        raise ValueError("terms of more than two predictors do not fit into the shape of a matrix")
    return pair_matrix(layout, theta)


def pair_matrix(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(h, J)`` of the fields and pairs of a model, without its other terms."""
    row, col = cells(layout)
    # the fields are followed by the couplings of pairs, which end at `pair_start[-1]`
    J = np.zeros((layout.D, layout.D))
    pair_couplings = theta[layout.D : layout.pair_start[-1]]
    J[row, col] = pair_couplings
    J[col, row] = pair_couplings
    return theta[: layout.D].copy(), J


def from_matrix(layout: Layout, h: np.ndarray, J: np.ndarray) -> np.ndarray:
    """Return the flat vector of fields `h` (D,) and pair couplings `J` (D, D), averaged with its
    transpose (eq. 18).
    """
    row, col = cells(layout)
    theta = np.empty(layout.size)
    theta[: layout.D] = h
    theta[layout.D :] = J[row, col]
    theta[layout.D :] += J[col, row]
    theta[layout.D :] *= 0.5
    return theta


def check_levels(n_levels) -> np.ndarray:
    """Return `n_levels` as int32 array (m,); raise an error if they are unusable."""
    levels = np.asarray(n_levels)
    is_usable = levels.ndim == 1 and levels.size and levels.dtype.kind in "iu"
    if not is_usable or levels.min() < 2 or levels.max() >= 2**31:
        raise OptionError(
            "n_levels must contain one integer of at least 2 (and below 2**31) per predictor.",
            argument="n_levels",
        )
    return np.ascontiguousarray(levels, dtype=np.int32)


def check_model(h, J, n_levels) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return checked `h` (D,), `J` (D, D), `n_levels` (m,) and first columns of predictors (m +
    1,).
    """
    levels = check_levels(n_levels)
    start = np.concatenate(([0], np.cumsum(levels.astype(np.intp) - 1)))
    D = int(start[-1])
    h = to_floats("h", h)
    J = to_floats("J", J)
    check_shapes(h, J, D)
    for name, array in (("h", h), ("J", J)):
        if not (np.abs(array) < LARGEST).all():
            raise DataError(
                f"{name} contains values that are not finite or exceed {LARGEST:g}.",
                argument=name,
                hint="Refit with a penalty.",
            )
    if not np.array_equal(J, J.T):
        raise DataError(
            "J is not symmetric.", argument="J", hint="Give both triangles with equal values."
        )
    for lo, hi in zip(start[:-1], start[1:], strict=True):
        if J[lo:hi, lo:hi].any():
            raise DataError(
                "J couples levels of one predictor.", argument="J", hint="Set those blocks to 0."
            )
    return h, J, levels, start


def check_shapes(h: np.ndarray, J: np.ndarray, D: int) -> None:
    """Raise an error unless `h` is (D,) and `J` is (D, D)."""
    for name, array, shape in (("h", h, (D,)), ("J", J, (D, D))):
        if array.shape != shape:
            raise DataError(
                f"{name} has shape {array.shape}; n_levels needs {shape}.", argument=name
            )


def to_floats(argument: str, value) -> np.ndarray:
    """Return `value` as a contiguous float64 array; raise an error that names the argument if it
    has no numbers.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise BBLTypeError(
            f"{argument} must be an array of numbers; got dtype {array.dtype}.", argument=argument
        )
    return np.ascontiguousarray(array, dtype=np.float64)
