"""Monomials of models with terms of any order, and their sums over rows."""

# Each parameter of a term of order k is multiplied by a monomial, the product of indicators of k
# non-reference levels; a field is multiplied by a single indicator. Indicators are columns of X (n,
# D).

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bbl.model.layout import Layout, term_columns

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Monomials"]

CELLS = 2**17  # number of monomials (rows times parameters) at once: 1 MiB, which caches hold


class Monomials:
    """The monomials ``prod 1[x_i = a]`` of the `size` parameters of a layout.

    The methods accept the indicators X (n, D) of rows, or means of such indicators.

    Attributes
    ----------
    orders : list of tuples
        An entry for each order k >= 2 that has T > 0 parameters. It contains the positions (T,) of
        the parameters, the columns (k, T) of their indicators, the columns (k - 1, R) of the R
        distinct products of all but one of the indicators, and a sparse matrix (R, D) of the
        positions of the parameters of such a product and the remaining indicator.

    Examples
    --------
    >>> products = Monomials(Layout([2, 2]))
    >>> X = np.array([[1.0, 1.0], [1.0, 0.0]])
    >>> products.sums(X, np.ones(2))
    array([2., 1., 1.])
    >>> products.fields(np.array([1.0, 2.0, 4.0]), X)
    array([[5., 6.],
           [1., 6.]])
    """

    def __init__(self, layout: Layout):
        self.D = layout.D
        self.size = layout.size
        # (highest order, size): columns in X of each parameter's indicators, padded with -1
        columns = term_columns(layout)
        order = (columns >= 0).sum(axis=0)
        self.orders: list[tuple[np.ndarray, np.ndarray, np.ndarray, csr_array]] = []
        for k in range(2, layout.order + 1):
            positions = np.flatnonzero(order == k)
            factor_columns = columns[:k, positions]
            if len(positions):
                rest_columns, parameters = _link_factors(positions, factor_columns, layout.D)
                self.orders.append((positions, factor_columns, rest_columns, parameters))
        # rows of a chunk; the ones in max prevent division by zero and chunks without rows
        self._rows = max(1, CELLS // max([1, *(len(positions) for positions, *_ in self.orders)]))

    def _chunks(self, n: int) -> Iterator[slice]:
        """Return slices of n rows such that a slice has at most `CELLS` monomials of one order."""
        return (slice(first, first + self._rows) for first in range(0, n, self._rows))

    def sums(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the sum (size,) of each monomial over rows with `weights` (n,)."""
        out = np.zeros(self.size)
        out[: self.D] = weights @ X
        for rows in self._chunks(len(X)):
            chunk = X[rows]
            for positions, columns, _, _ in self.orders:
                out[positions] += weights[rows] @ _product(chunk, columns)
        return out

    def energies(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the sum (n,) of each row's monomials times `theta` (size,)."""
        out = X @ theta[: self.D]
        for rows in self._chunks(len(X)):
            chunk = X[rows]
            for positions, columns, _, _ in self.orders:
                out[rows] += _product(chunk, columns) @ theta[positions]
        return out

    def fields(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the field (n, D) of each level in each row.

        A field is the derivative of the energy with respect to the level's indicator. `theta`
        (size,) contains the parameters, and `X` (n, D) contains the indicators.
        """
        from scipy.sparse import csr_array

        out = np.tile(theta[: self.D], (len(X), 1))
        for rows in self._chunks(len(X)):
            chunk = X[rows]
            for _, _, rest_columns, parameters in self.orders:
                structure = parameters.indices, parameters.indptr
                values = csr_array((theta[parameters.data], *structure), shape=parameters.shape)
                out[rows] += _product(chunk, rest_columns) @ values
        return out

    def adjoint(self, X: np.ndarray, G: np.ndarray) -> np.ndarray:
        """Return ``sum_r sum_c G[r, c] d fields[r, c] / d theta``, shape (size,).

        If G (n, D) contains the derivatives of a loss with respect to the `fields` at `X`, the
        result is the gradient of the loss with respect to theta.
        """
        out = np.zeros(self.size)
        out[: self.D] = G.sum(axis=0)
        for rows in self._chunks(len(X)):
            chunk = X[rows]
            G_chunk = G[rows]
            for positions, columns, _, _ in self.orders:
                for axis in range(len(columns)):
                    other_products = _product(chunk, np.delete(columns, axis, axis=0))
                    out[positions] += np.einsum(
                        "rt,rt->t", other_products, G_chunk[:, columns[axis]]
                    )
        return out


def _product(X: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return T products (n, T), each of k columns of X (n, D), given the column indices (k, T)."""
    out = X[:, columns[0]]
    for column in columns[1:]:
        out = out * X[:, column]
    return out


def _link_factors(
    positions: np.ndarray, columns: np.ndarray, D: int
) -> tuple[np.ndarray, csr_array]:
    """Return the last two items of an entry of `Monomials.orders`, given the first two."""
    from scipy.sparse import csr_array

    k = len(columns)
    rests = np.concatenate([np.delete(columns, axis, axis=0) for axis in range(k)], axis=1)
    rest_columns, rest = np.unique(rests, axis=1, return_inverse=True)
    cells = rest.ravel(), columns.ravel()
    shape = rest_columns.shape[1], D
    return rest_columns, csr_array((np.tile(positions, k), cells), shape=shape)
