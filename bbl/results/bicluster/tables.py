"""Base class of `BiclusterResults`: groups, block means, block counts and fitted cells as labelled
tables.

The table has I rows in a groups and J columns in b groups; a *block* contains the cells of one row
group and one column group. Cells of a *categorical* table are levels (``table.holds == "levels"``);
there are L levels.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import rand_index
from bbl.design.factors import Factor
from bbl.design.twoway import TwoWay
from bbl.errors import DataError, Hint
from bbl.report.text import distinct_names
from bbl.stats.metrics import first_largest

__all__ = ["BlockTables"]


class Observations(int):
    """A number of observations that is also callable.

    When called, it returns itself, because ``nobs`` is a method in other models.
    """

    def __call__(self) -> int:
        return int(self)


class BlockTables:
    """Tables of groups, blocks and fitted cells. See `BiclusterResults` for the attributes."""

    # names of rows, columns and values; its `formula` is None if the data were a matrix
    table: TwoWay
    method: Any  # the method of clustering with its options
    rows: np.ndarray  # group of each row, (I,)
    columns: np.ndarray  # group of each column, (J,)
    # (a, b, L): number of observations of each level in each block; numeric cells (a, b, 2): count,
    # sum
    sums: np.ndarray
    history: np.ndarray  # objective after each step
    wcss: float  # sum of squared differences between the cells and their block means
    cells: Cells | None  # the observed cells

    def _require_cells(self) -> Cells:
        """Return the observed cells. Raises a DataError if the model was loaded without them."""
        if self.cells is None:
            raise DataError(
                "This model was saved without its cells.",
                hint=Hint(
                    "Save it with store_data=True.", command_line="Save it with --store-data."
                ),
            )
        return self.cells

    @property
    def groups(self) -> tuple[int, int]:
        """Number of row groups and number of column groups, (a, b)."""
        return self.sums.shape[0], self.sums.shape[1]

    @property
    def row_groups(self) -> pd.Series:
        """The group of each row."""
        return _group_series(self.rows, self.table.rows)

    @property
    def column_groups(self) -> pd.Series:
        """The group of each column."""
        return _group_series(self.columns, self.table.columns)

    @property
    def nobs(self) -> Observations:
        """Number of observations, ``nobs()``: the total weight. Use without parentheses is
        deprecated.
        """
        return Observations(round(float(self.block_counts.to_numpy().sum())))

    @property
    def mse(self) -> float:
        """`wcss` divided by the number of observations (eq. 2.3 of Li 2014 divides by the number of
        all cells).
        """
        return self.wcss / self.nobs()

    @property
    def fitness_history(self) -> np.ndarray:
        """Alias of `history`, used with the genetic algorithm."""
        return self.history

    @cached_property
    def _means(self) -> np.ndarray:
        """Block means (a, b) or, in categorical tables, smoothed level proportions (a, b, L); see
        `block_means`.
        """
        if self.table.holds == "levels":
            # a block's prior count, divided evenly
            counts = self.sums + self.method.prior_count / self.sums.shape[2]
            return counts / counts.sum(axis=2, keepdims=True)
        counts = self.sums[..., 0]
        value_sums = self.sums[..., 1]
        # a block without cells gets the mean of all cells
        mean_without_cells = value_sums.sum() / counts.sum()
        if self.method.name == "prototype" and self.method.fill is not None:
            mean_without_cells = self.method.fill
        # 1e-300: avoids 0 / 0
        return np.where(counts > 0, value_sums / np.maximum(counts, 1e-300), mean_without_cells)

    def _block_frame(self, values: np.ndarray) -> pd.DataFrame:
        """Return values of blocks (a, b) as a frame with group numbers on both axes."""
        index = pd.RangeIndex(self.groups[0], name=f"{self.table.rows.name} group")
        return pd.DataFrame(
            values, index=index, columns=pd.RangeIndex(self.groups[1], name=self._column_axis_name)
        )

    @property
    def _column_axis_name(self) -> str:
        """Name of the columns axis in a frame of blocks."""
        return f"{self.table.columns.name} group"

    @property
    def block_means(self) -> pd.DataFrame:
        """Mean of each block, or level proportions in categorical tables.

        A block without cells has the value of the option `fill` or, if it was not specified, the
        mean of all cells. Proportions are smoothed by the method's prior count.
        """
        means = self._means
        if means.ndim == 2:
            return self._block_frame(means)
        a, b, L = means.shape
        levels = list(self.table.levels.levels) if self.table.levels is not None else range(L)
        # one name is changed if both groups have the same name; reversed, so that names are in the
        # order (group, level)
        names = distinct_names([self.table.response, self._column_axis_name])[::-1]
        columns = pd.MultiIndex.from_product([range(b), levels], names=names)
        index = pd.RangeIndex(a, name=f"{self.table.rows.name} group")
        return pd.DataFrame(means.reshape(a, b * L), index=index, columns=columns)

    @property
    def block_counts(self) -> pd.DataFrame:
        """Number of observations in each block.

        If cells only indicate which pairs were rated, this is the number of all pairs in the block.
        """
        return self._block_frame(
            self.sums.sum(axis=2) if self.table.holds == "levels" else self.sums[..., 0]
        )

    def fitted(self) -> pd.DataFrame:
        """Return the block mean of each cell or, in categorical tables, the most frequent level in
        its block.

        Returns
        -------
        DataFrame
            For a matrix, the fitted values of all cells, including missing cells. For a long table,
            a row for each observed cell with the names of its row and column, the observed
            response, and ``fitted`` (or ``fitted_`` if another column has that name).

        Examples
        --------
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> fit = bbl.bicluster(None, table, groups=(2, 2))
        >>> bool((fit.fitted().to_numpy() == table).all())
        True
        """
        block_values = self._block_predictions(self._means)
        if self.table.formula is None:
            rows = pd.Index(self.table.rows.levels)
            columns = pd.Index(self.table.columns.levels)
            matrix = np.asarray(block_values)[self.rows][:, self.columns]
            return pd.DataFrame(matrix, index=rows.rename(self.table.rows.name), columns=columns)
        cells = self._require_cells()
        row_factor = self.table.rows
        column_factor = self.table.columns
        observed = cells.value
        if self.table.holds == "levels" and self.table.levels is not None:
            # from codes to levels
            observed = np.array(self.table.levels.levels, dtype=object)[observed.astype(int)]
        names = distinct_names([row_factor.name, column_factor.name, self.table.response, "fitted"])
        fitted = block_values[self.rows[cells.row], self.columns[cells.column]]
        values = (
            np.array(row_factor.levels)[cells.row],
            np.array(column_factor.levels)[cells.column],
            observed,
            fitted,
        )
        return pd.DataFrame(dict(zip(names, values, strict=True)))

    def rand_index(self, other: Any) -> pd.DataFrame:
        """Compare the row and column partitions with other partitions, using Rand indices.

        Parameters
        ----------
        other : BiclusterResults, or a pair of label sequences for rows and columns
            Partitions of the same rows and columns, in the same order.

        Returns
        -------
        DataFrame
            For ``rows`` and ``columns``: ``rand``, the proportion of pairs that are together in
            both partitions or separate in both, and ``adjusted``, the index adjusted for chance,
            which is 0 for independent partitions.

        Examples
        --------
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> fit = bbl.bicluster(None, table, groups=(2, 2))
        >>> fit.rand_index(fit)
                 rand  adjusted
        rows      1.0       1.0
        columns   1.0       1.0
        """
        partitions = (other.rows, other.columns) if isinstance(other, BlockTables) else tuple(other)
        # labels of rows and of columns must have lengths (I, J)
        if len(partitions) != 2 or any(
            len(p) != n for p, n in zip(partitions, self.table.shape, strict=False)
        ):
            raise DataError(
                f"other must have labels for {self.table.shape[0]} rows and {self.table.shape[1]} "
                "columns."
            )
        values = [
            rand_index(self.rows, np.asarray(partitions[0])),
            rand_index(self.columns, np.asarray(partitions[1])),
        ]
        return pd.DataFrame(values, index=["rows", "columns"], columns=["rand", "adjusted"])

    def _block_predictions(self, means: np.ndarray) -> np.ndarray:
        """Return the prediction for each block, shape (a, b): its mean, or its most frequent level
        given level proportions (a, b, L).
        """
        if means.ndim == 2 or self.table.levels is None:
            return means
        return np.array(self.table.levels.levels, dtype=object)[first_largest(means)]


def _group_series(labels: np.ndarray, factor: Factor) -> pd.Series:
    """Return the group `labels` of all rows or columns as a series indexed by the names in
    `factor`.
    """
    return pd.Series(
        labels, index=pd.Index(factor.levels, name=factor.name), name=f"{factor.name} group"
    )
