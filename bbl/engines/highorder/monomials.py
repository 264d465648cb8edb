"""Monomials of models with terms of any order, and their sums over rows."""

# Each parameter of a term of order k is multiplied by a monomial, the product of indicators of k
# non-reference levels; a field is multiplied by a single indicator. Indicators are columns of X (n,
# D).

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bbl.model.layout import Layout, term_columns

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Monomials"]

CELLS = 2**17  # number of monomials (rows times parameters) at once: 1 MiB, which caches hold


class OrderTerms(NamedTuple):
    """The T parameters of one order k.

    Attributes
    ----------
    positions : ndarray, shape (T,)
        Positions of the parameters.
    columns : ndarray, shape (k, T)
        Columns of their indicators.
    rest_columns : ndarray, shape (k - 1, R)
        Columns of the R distinct products of all but one of the indicators.
    parameters : csr_array, shape (R, D)
        Position of the parameter of such a product and the remaining indicator.
    """

    positions: np.ndarray
    columns: np.ndarray
    rest_columns: np.ndarray
    parameters: csr_array

    @classmethod
    def of_parameters(cls, positions: np.ndarray, columns: np.ndarray, D: int) -> OrderTerms:
        """Return the entry for given `positions` and `columns`."""
        from scipy.sparse import csr_array

        k = len(columns)
        rests = np.concatenate([np.delete(columns, axis, axis=0) for axis in range(k)], axis=1)
        rest_columns, rest = np.unique(rests, axis=1, return_inverse=True)
        cells = rest.ravel(), columns.ravel()
        shape = rest_columns.shape[1], D
        parameters = csr_array((np.tile(positions, k), cells), shape=shape)
        return cls(positions, columns, rest_columns, parameters)


class Monomials:
    """The monomials ``prod 1[x_i = a]`` of the `size` parameters of a layout.

    The methods accept the indicators X (n, D) of rows, or means of such indicators.

    Attributes
    ----------
    orders : list of OrderTerms
        An entry for each order k >= 2 that has parameters.

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
        self.orders: list[OrderTerms] = []
        for k in range(2, layout.order + 1):
            positions = np.flatnonzero(order == k)
            if len(positions):
                self.orders.append(
                    OrderTerms.of_parameters(positions, columns[:k, positions], layout.D)
                )
        # rows of a chunk; the ones in max prevent division by zero and chunks without rows
        self._rows = max(1, CELLS // max([1, *(len(terms.positions) for terms in self.orders)]))

    def _chunks(self, n: int) -> Iterator[slice]:
        """Return slices of n rows such that a slice has at most `CELLS` monomials of one order."""
        return (slice(first, first + self._rows) for first in range(0, n, self._rows))

    def sums(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the sum (size,) of each monomial over rows with `weights` (n,)."""
        out = np.zeros(self.size)
        out[: self.D] = weights @ X
        for rows in self._chunks(len(X)):
            chunk = X[rows]
            for terms in self.orders:
                out[terms.positions] += weights[rows] @ _product(chunk, terms.columns)
        return out

    def energies(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the sum (n,) of each row's monomials times `theta` (size,)."""
        out = X @ theta[: self.D]
        for rows in self._chunks(len(X)):
            chunk = X[rows]
            for terms in self.orders:
                out[rows] += _product(chunk, terms.columns) @ theta[terms.positions]
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
            for terms in self.orders:
                parameters = terms.parameters
                structure = parameters.indices, parameters.indptr
                values = csr_array((theta[parameters.data], *structure), shape=parameters.shape)
                out[rows] += _product(chunk, terms.rest_columns) @ values
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
            for terms in self.orders:
                for axis, column in enumerate(terms.columns):
                    other_products = _product(chunk, np.delete(terms.columns, axis, axis=0))
                    out[terms.positions] += np.einsum(
                        "rt,rt->t", other_products, G_chunk[:, column]
                    )
        return out


def _product(X: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return T products (n, T), each of k columns of X (n, D), given the column indices (k, T)."""
    out = X[:, columns[0]]
    for column in columns[1:]:
        out = out * X[:, column]
    return out
