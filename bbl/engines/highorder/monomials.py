"""Products of levels, one for each parameter of a model with terms of any order, and sums of them over rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bbl.model.layout import Layout, term_columns

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Monomials"]

CELLS = 2**22  # products at a time


class Monomials:
    """The indicator products ``prod 1[x_i = a]`` that the parameters of a layout multiply.

    Rows are indicators of levels (n, D), or their means.

    Parameters
    ----------
    layout : Layout

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
        self.D, self.size = layout.D, layout.size
        columns = term_columns(layout)
        order = (columns >= 0).sum(axis=0)
        self.parts: list[tuple[np.ndarray, np.ndarray, list[csr_array]]] = []
        for k in range(2, layout.order + 1):
            at = np.flatnonzero(order == k)
            member_columns = columns[:k, at]
            to = [_scatter(member_columns[axis], layout.D) for axis in range(k)]
            if len(at):
                self.parts.append((at, member_columns, to))
        self._rows = max(1, CELLS // max([1, *(len(at) for at, _, _ in self.parts)]))

    def _blocks(self, n: int) -> Iterator[slice]:
        return (slice(lo, lo + self._rows) for lo in range(0, n, self._rows))

    def sums(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weighted sum over rows of every product, shape (size,)."""
        out = np.zeros(self.size)
        out[: self.D] = weights @ X
        for rows in self._blocks(len(X)):
            row_block = X[rows]
            for at, columns, _ in self.parts:
                out[at] += weights[rows] @ _product(row_block, columns)
        return out

    def energies(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the sum of all products times their parameters, shape (n,)."""
        out = X @ theta[: self.D]
        for rows in self._blocks(len(X)):
            row_block = X[rows]
            for at, columns, _ in self.parts:
                out[rows] += _product(row_block, columns) @ theta[at]
        return out

    def fields(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the contributions (n, D) of each level to the energy given the other predictors."""
        out = np.tile(theta[: self.D], (len(X), 1))
        for rows in self._blocks(len(X)):
            row_block = X[rows]
            for at, columns, to in self.parts:
                for axis in range(len(columns)):
                    other_columns = np.delete(columns, axis, axis=0)
                    out[rows] += (_product(row_block, other_columns) * theta[at]) @ to[axis]
        return out

    def adjoint(self, X: np.ndarray, G: np.ndarray) -> np.ndarray:
        """Return ``sum_r sum_c G[r, c] d fields[r, c] / d theta``, shape (size,)."""
        out = np.zeros(self.size)
        out[: self.D] = G.sum(axis=0)
        for rows in self._blocks(len(X)):
            row_block, gradient_block = X[rows], G[rows]
            for at, columns, _ in self.parts:
                for axis in range(len(columns)):
                    other_columns = np.delete(columns, axis, axis=0)
                    out[at] += np.einsum(
                        "rt,rt->t", _product(row_block, other_columns), gradient_block[:, columns[axis]]
                    )
        return out


def _product(X: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the products (n, T) of columns (k, T)."""
    out = X[:, columns[0]]
    for column in columns[1:]:
        out = out * X[:, column]
    return out


def _scatter(columns: np.ndarray, D: int) -> csr_array:
    """Return the matrix (T, D) that adds up values by their columns."""
    from scipy.sparse import csr_array

    T = len(columns)
    return csr_array((np.ones(T), (np.arange(T), columns)), shape=(T, D))
