"""Observed cells of a two-way table, stored as compressed sparse rows.

A pair consists of a row and a column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl._ext.bicluster import bicluster as kernel

__all__ = ["Cells"]


@dataclass(frozen=True, eq=False)
class Cells:
    """The observed cells of an I x J table, sorted by row, column and value.

    Pairs may have several values.

    Attributes
    ----------
    shape : (int, int)
        Numbers of rows I and columns J.
    start : ndarray of intp, shape (I + 1,)
        Position of the first cell of each row; the last entry is n.
    column : ndarray of int32, shape (n,)
        Column of each cell.
    value : ndarray of float64, shape (n,)
        Value of each cell.
    weight : ndarray of float64, shape (n,)
        Frequency of the value in its row and column.
    """

    shape: tuple[int, int]
    start: np.ndarray
    column: np.ndarray
    value: np.ndarray
    weight: np.ndarray

    @classmethod
    def from_entries(cls, row, column, value, weight, shape: tuple[int, int]) -> Cells:
        """Sort entries, and merge entries with equal row, column and value by adding their weights.

        The arguments are arrays of equal length.
        """
        cell = np.asarray(row, dtype=np.intp) * shape[1] + column
        # distinct cells are often sorted already, as those of a matrix
        is_sorted = (np.diff(cell) > 0).all()
        order = slice(None) if is_sorted else np.lexsort((value, column, row))
        row, column, value, weight = (
            np.asarray(entries)[order] for entries in (row, column, value, weight)
        )
        is_new = np.ones(len(row), dtype=bool)  # whether an entry differs from the previous one
        is_new[1:] = (np.diff(row) != 0) | (np.diff(column) != 0) | (value[1:] != value[:-1])
        first = np.flatnonzero(is_new)
        merged_weight = np.add.reduceat(weight, first) if len(first) else np.zeros(0)
        return cls.from_sorted(row[first], column[first], value[first], merged_weight, shape)

    @classmethod
    def from_sorted(cls, row, column, value, weight, shape: tuple[int, int]) -> Cells:
        """Return cells, given rows, columns, values and weights (n,) that are sorted by row."""
        start = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=shape[0])))).astype(
            np.intp
        )
        value, weight = (
            np.ascontiguousarray(entries, dtype=np.float64) for entries in (value, weight)
        )
        return cls(shape, start, np.ascontiguousarray(column, dtype=np.int32), value, weight)

    @classmethod
    def stored(cls, start, column, value, weight, shape: tuple[int, int]) -> Cells:
        """Return the cells, given arrays whose dtypes and ranges have been validated.

        Raise a ValueError if `start` is inconsistent with the other arrays.
        """
        n = len(value)
        if n == 0 or start[0] != 0 or start[-1] != n or (np.diff(start) < 0).any():
            raise ValueError("the cells are malformed")
        row = np.repeat(np.arange(shape[0]), np.diff(start))
        return cls.from_sorted(row, column, value, weight, shape)

    @property
    def n(self) -> int:
        """Number of observed cells."""
        return len(self.value)

    @property
    def row(self) -> np.ndarray:
        """Row of each cell, shape (n,)."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.start))

    @cached_property
    def T(self) -> Cells:
        """Cells of the transposed table."""
        order = np.argsort(self.column, kind="stable")
        row, column, value, weight = (
            entries[order] for entries in (self.column, self.row, self.value, self.weight)
        )
        return self.from_sorted(row, column, value, weight, self.shape[::-1])

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Arrays for the kernels: start, column, value, weight."""
        return self.start, self.column, self.value, self.weight

    def averaged(self) -> Cells:
        """Return the table with one cell for each observed pair, which contains the weighted mean
        of the pair's values.
        """
        is_first = np.ones(self.n, dtype=bool)  # whether a cell is the first of its pair
        is_first[1:] = self.column[1:] != self.column[:-1]
        # first cell of each row; the last rows may be empty
        is_first[self.start[:-1][self.start[:-1] < self.n]] = True
        if is_first.all():
            return self
        first = np.flatnonzero(is_first)
        weight = np.add.reduceat(self.weight, first)
        weighted_sum = np.add.reduceat(self.weight * self.value, first)
        # keep the value x itself, because w x / w may differ by a rounding error
        is_single = np.diff(np.append(first, self.n)) == 1
        mean = np.where(is_single, self.value[first], weighted_sum / weight)
        return self.from_sorted(self.row[first], self.column[first], mean, weight, self.shape)

    def sums(self, group: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights and the weighted values of each row, summed by column group, each with
        shape (I, groups).

        `group` (J,) contains the column labels, and `groups` is the number of groups.
        """
        counts, sums = np.empty((2, self.shape[0], groups))
        kernel.group_sums(*self.arrays, group, counts, sums)
        return counts, sums
