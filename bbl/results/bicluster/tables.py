"""Block tables: groups, means, counts and fitted cells with their labels, which `BiclusterResults` has."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.biclustering.cells import Cells
from bbl.design.factors import Factor
from bbl.design.twoway import TwoWay
from bbl.errors import DataError
from bbl.names import distinct_names
from bbl.stats.ties import first_largest

__all__ = ["BlockTables"]


class Observations(int):
    """A number of observations that may be called, as that of other models must be."""

    def __call__(self) -> int:
        return int(self)


class BlockTables:
    """Tables of the cells by groups of rows and columns."""

    table: TwoWay
    method: Any
    rows: np.ndarray
    columns: np.ndarray
    sums: np.ndarray
    history: np.ndarray
    wcss: float
    cells: Cells | None

    def _cells(self) -> Cells:
        if self.cells is None:
            raise DataError("This model was saved without its cells; save it with store_data=True.")
        return self.cells

    @property
    def groups(self) -> tuple[int, int]:
        """Numbers of row groups and of column groups."""
        return self.sums.shape[0], self.sums.shape[1]

    @property
    def row_groups(self) -> pd.Series:
        """The group of each row."""
        return _named(self.rows, self.table.rows)

    @property
    def column_groups(self) -> pd.Series:
        """The group of each column."""
        return _named(self.columns, self.table.columns)

    @property
    def nobs(self) -> Observations:
        """Number of observations, ``nobs()``: the sum of their weights. Without brackets it is deprecated."""
        return Observations(round(float(self.block_counts.to_numpy().sum())))

    @property
    def mse(self) -> float:
        """`wcss` by observation (eq. 2.3 divides by the number of all cells, observed or not)."""
        return self.wcss / self.nobs()

    @property
    def fitness_history(self) -> np.ndarray:
        """`history` under the genetic algorithm's name for it."""
        return self.history

    @cached_property
    def _means(self) -> np.ndarray:
        """Block means (a, b), or the shares of the levels (a, b, L)."""
        if self.table.holds == "levels":
            counts = self.sums + self.method.prior_count / self.sums.shape[2]
            return counts / counts.sum(axis=2, keepdims=True)
        counts, total = self.sums[..., 0], self.sums[..., 1]
        empty = total.sum() / counts.sum()
        if self.method.name == "prototype" and self.method.fill is not None:
            empty = self.method.fill
        return np.where(counts > 0, total / np.maximum(counts, 1e-300), empty)

    def _block_frame(self, values: np.ndarray) -> pd.DataFrame:
        index = pd.RangeIndex(self.groups[0], name=f"{self.table.rows.name} group")
        return pd.DataFrame(values, index=index, columns=pd.RangeIndex(self.groups[1], name=self._column_name))

    @property
    def _column_name(self) -> str:
        return f"{self.table.columns.name} group"

    @property
    def block_means(self) -> pd.DataFrame:
        """The mean of each block, row groups by column groups; in categorical tables the share of each level.

        The mean of a block without cells is the `fill` of the method, or the mean of all cells. Shares have the
        prior count of the method in them.
        """
        means = self._means
        if means.ndim == 2:
            return self._block_frame(means)
        a, b, L = means.shape
        levels = list(self.table.levels.levels) if self.table.levels is not None else range(L)
        names = distinct_names([self.table.response, self._column_name])[::-1]
        columns = pd.MultiIndex.from_product([range(b), levels], names=names)
        index = pd.RangeIndex(a, name=f"{self.table.rows.name} group")
        return pd.DataFrame(means.reshape(a, b * L), index=index, columns=columns)

    @property
    def block_counts(self) -> pd.DataFrame:
        """Observations in each block; of rated and unrated items, its number of pairs."""
        return self._block_frame(self.sums.sum(axis=2) if self.table.holds == "levels" else self.sums[..., 0])

    def fitted(self) -> pd.DataFrame:
        """Return the mean of its block for each cell.

        Returns
        -------
        DataFrame
            Of a matrix: all cells, those that are missing too. Of a long table: its rows and columns, the observed
            response, and ``fitted`` (``fitted_`` beside a column of that name), one row for each observed cell; in
            categorical tables the most frequent level.
        """
        values = self._predicted(self._means)
        if self.table.formula is None:
            rows, columns = pd.Index(self.table.rows.levels), pd.Index(self.table.columns.levels)
            full = np.asarray(values)[self.rows][:, self.columns]
            return pd.DataFrame(full, index=rows.rename(self.table.rows.name), columns=columns)
        cells = self._cells()
        row, column = self.table.rows, self.table.columns
        observed = cells.value
        if self.table.holds == "levels" and self.table.levels is not None:
            observed = np.array(self.table.levels.levels, dtype=object)[observed.astype(int)]
        names = distinct_names([row.name, column.name, self.table.response, "fitted"])
        block_values = values[self.rows[cells.row], self.columns[cells.column]]
        parts = np.array(row.levels)[cells.row], np.array(column.levels)[cells.column], observed, block_values
        return pd.DataFrame(dict(zip(names, parts, strict=True)))

    def _predicted(self, means: np.ndarray) -> np.ndarray:
        if means.ndim == 2 or self.table.levels is None:
            return means
        return np.array(self.table.levels.levels, dtype=object)[first_largest(means)]


def _named(labels: np.ndarray, factor: Factor) -> pd.Series:
    return pd.Series(labels, index=pd.Index(factor.levels, name=factor.name), name=f"{factor.name} group")
