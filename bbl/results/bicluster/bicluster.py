"""BiclusterResults: rows and columns of a table in groups, and the blocks that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd

from bbl.biclustering.bicluster_fit import BiclusterFit
from bbl.biclustering.blocks import best_groups, ordered
from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import rand_index
from bbl.checks import flag
from bbl.design.factors import Factor
from bbl.design.twoway import TwoWay
from bbl.errors import BBLTypeError, DataError, LevelError
from bbl.report.bicluster import summary as report
from bbl.report.bicluster.plot import plot_blocks, plot_selection, plot_similarity
from bbl.report.machine.summary import Summary
from bbl.results.bicluster.archive import pack, population_frame, selection_frame, unpack
from bbl.results.bicluster.posterior import Posterior
from bbl.results.bicluster.tables import BlockTables
from bbl.stats.ties import first_largest
from bbl.storage import write_model

__all__ = ["BiclusterResults"]


@final
@dataclass(frozen=True, repr=False, eq=False)
class BiclusterResults(BlockTables):
    """Groups of rows and of columns; made by `bbl.bicluster`.

    Attributes
    ----------
    call : str
        The call that made it.
    table : TwoWay
        What rows, columns and cells are called.
    method : Prototype, Genetic or Mcmc
        The method and its options.
    rows, columns : ndarray of int32
        Labels 0..a-1 and 0..b-1. Groups are in order of their mean; those of categorical tables of their size.
    sums : ndarray, shape (a, b, L)
        Observations of each level in each block; for numbers L is 2, the observations and their sum.
    criterion : float
        What compares partitions, less is better: minus twice the integrated completed likelihood ("prototype"), the
        fitness ("genetic"), the posterior expected loss of the partitions in rows and columns ("mcmc").
    history : ndarray
        The objective after each half-step of the best start ("prototype"; it never rises but for "pearson"), the best
        fitness of each generation ("genetic"), the log posterior of all draws, chain by chain ("mcmc").
    n_iter : int
    converged : bool
        Whether the alternation ended by itself, not by `max_iter` ("prototype"); whether no move of one row or column
        improves the fitness, as `refine` sees to ("genetic"); whether the split R-hat of the chains is at most 1.1
        ("mcmc").
    wcss : float
        Sum of squared differences of the observed cells from their block means; nan for categorical tables.
    selection : DataFrame or None
        The numbers of groups that were tried, with objective and criterion.
    population : DataFrame or None
        The last population of the genetic algorithm: ``fitness``, and the group of every row and column.
    posterior : Posterior or None
        Draws of both partitions, and what they say ("mcmc").
    cells : Cells or None
        The observed cells; None in a model that was loaded from a file without them.
    """

    call: str
    table: TwoWay
    method: Any
    rows: np.ndarray
    columns: np.ndarray
    sums: np.ndarray
    criterion: float
    history: np.ndarray
    n_iter: int
    converged: bool
    wcss: float
    selection: pd.DataFrame | None = None
    population: pd.DataFrame | None = None
    posterior: Posterior | None = None
    cells: Cells | None = None

    kind: ClassVar[str] = "bicluster"

    @classmethod
    def from_found(cls, call: str, table: TwoWay, method: Any, cells: Cells, found: BiclusterFit) -> BiclusterResults:
        """Name what a method found; groups are put in order."""
        n_levels = len(table.levels.levels) if table.levels is not None and table.holds == "levels" else 0
        rows, columns, sums, wcss = ordered(cells, found.rows, found.columns, n_levels, table.holds == "rated")
        selection = population = posterior = None
        if found.selection is not None:
            selection = selection_frame(np.array(found.selection))
        if found.evolved is not None:
            population = population_frame(table, found.evolved.population, found.evolved.population_fitness)
        if found.draws is not None and found.share is not None:
            posterior = Posterior(table.rows, table.columns, found.draws, *found.share)
        return cls(
            call,
            table,
            method,
            rows,
            columns,
            sums,
            found.criterion,
            found.history,
            found.n_iter,
            found.converged,
            wcss,
            selection,
            population,
            posterior,
            cells,
        )

    def predict(self, newdata: Any = None, type: str = "response") -> pd.Series | pd.DataFrame:
        """Predict cells by the mean of their block.

        Parameters
        ----------
        newdata : table, optional
            Of a long table: pairs to predict. A row that the model does not know (a new user) goes to the group that
            fits best what the response in `newdata` says of it. Of a matrix: new rows, nan where missing. None for
            `fitted`.
        type : {"response", "prob"}, default "response"
            In categorical tables the most frequent level, or the shares of all levels.

        Returns
        -------
        Series or DataFrame
            On the index of `newdata`; for a matrix all cells of its rows.

        Raises
        ------
        LevelError
            If a column is unknown, or a row is and nothing is known of it.
        """
        shares = self.table.holds == "levels" and type == "prob"
        if type not in ("response", "prob") or (type == "prob" and not shares):
            raise BBLTypeError(f"type={type!r} is 'response', or 'prob' for categorical tables.", argument="type")
        if newdata is None:
            return self.fitted()
        values = self._means if shares else self._predicted(self._means)
        if self.table.formula is None:
            entries, index = self.table.read_matrix(newdata)
            labels = self._best(Cells.from_entries(*entries, (len(index), self.table.shape[1])), index)
            full = values[labels][:, self.columns]
            if shares:
                raise BBLTypeError("type='prob' needs a long table.", argument="type")
            return pd.DataFrame(full, index=index, columns=pd.Index(self.table.columns.levels))
        i, j, _, labels = self._new_rows(newdata)
        block_mean = values[labels[i], self.columns[j]]
        index = newdata.index if isinstance(newdata, pd.DataFrame) else pd.RangeIndex(len(i))
        if shares and self.table.levels is not None:
            return pd.DataFrame(block_mean, index=index, columns=pd.Index(self.table.levels.levels, dtype=object))
        return pd.Series(block_mean, index=index, name=self.table.response)

    def assign(self, newdata: Any) -> pd.Series:
        """Return the group that fits best for each row in `newdata`, known or not, from the cells given there.

        Parameters
        ----------
        newdata : table
            As for `predict`; of a long table with the response.
        """
        if self.table.formula is None:
            entries, index = self.table.read_matrix(newdata)
            labels = self._best(Cells.from_entries(*entries, (len(index), self.table.shape[1])), index)
            return pd.Series(labels, index=index, name=f"{self.table.rows.name} group")
        i, _, fresh, labels = self._new_rows(newdata)
        used = np.unique(i)
        names = [*self.table.rows.levels, *fresh.levels]
        index = pd.Index([names[k] for k in used], name=self.table.rows.name)
        return pd.Series(labels[used], index=index, name=f"{self.table.rows.name} group")

    def _new_rows(self, newdata: Any) -> tuple[np.ndarray, np.ndarray, Factor, np.ndarray]:
        """Return row and column codes of a long table, the rows that are new, and the groups of old and new rows."""
        i, j, value, fresh = self.table.read(newdata)
        n = self.table.shape[0]
        if not len(fresh.levels):
            return i, j, fresh, self.rows
        new = i >= n
        if self.table.holds == "rated" and value is None:
            value = np.ones(len(i))
        is_observed = np.zeros(len(i), dtype=bool) if value is None else ~np.isnan(value) & new
        if self.table.holds == "rated" and value is not None:
            is_observed &= value == 1.0
        entries = (
            i[is_observed] - n,
            j[is_observed],
            value[is_observed] if value is not None else None,
            np.ones(is_observed.sum()),
        )
        if not is_observed.any():
            entries = (i[is_observed], j[is_observed], np.zeros(0), np.zeros(0))
        cells = Cells.from_entries(*entries, (len(fresh.levels), self.table.shape[1]))
        return i, j, fresh, np.concatenate([self.rows, self._best(cells, pd.Index(fresh.levels))])

    def _best(self, cells: Cells, names: pd.Index) -> np.ndarray:
        """Return the best group of new rows."""
        none = np.flatnonzero(np.diff(cells.start) == 0)
        if len(none):
            raise LevelError(
                f"{self.table.rows.name!r} {names[none[0]]!r} is new, and no cell in newdata tells its group. "
                f"Give some of its cells: the column {self.table.response!r}.",
                column=self.table.rows.name,
                argument="newdata",
            )
        holds, means = self.table.holds, self._means
        if holds == "levels":
            return best_groups(cells, self.columns, first_largest(means), np.log(np.maximum(means, 1e-300)))
        if holds == "ordinal":
            codes = Cells(cells.shape, cells.start, cells.column, cells.value - self.method.scale[0], cells.weight)
            return best_groups(codes, self.columns, means, self.method.log_shares(means))
        return best_groups(cells, self.columns, means, rated=holds == "rated")

    def rand_index(self, other: Any) -> pd.DataFrame:
        """Compare the partitions with others: how many pairs of rows (columns) are together, or apart, in both.

        Parameters
        ----------
        other : BiclusterResults, or a pair of label sequences for rows and columns
            The same rows and columns, in the same order.

        Returns
        -------
        DataFrame
            Rows and columns by ``rand`` and ``adjusted`` (0 is chance).
        """
        pair = (other.rows, other.columns) if isinstance(other, BiclusterResults) else tuple(other)
        if len(pair) != 2 or any(len(p) != n for p, n in zip(pair, self.table.shape, strict=False)):
            raise DataError(f"other must have labels for {self.table.shape[0]} rows and {self.table.shape[1]} columns.")
        values = [
            rand_index(partition, np.asarray(p)) for partition, p in zip((self.rows, self.columns), pair, strict=True)
        ]
        return pd.DataFrame(values, index=["rows", "columns"], columns=["rand", "adjusted"])

    def summary(self) -> Summary:
        """Summarise the fit: facts, and the blocks.

        Returns
        -------
        Summary
            Prints as text; has HTML and LaTeX forms and ``.tables``.
        """
        names = (self.table.rows.name, self.table.columns.name)
        facts = {
            "Method": self.method.name,
            "Table": f"{self.table.shape[0]} x {self.table.shape[1]} ({names[0]} x {names[1]})",
            "Observations": self.nobs(),
            **({"Repeated pairs": self.table.repeats} if self.table.repeats else {}),
            "Groups": f"{self.groups[0]} x {self.groups[1]}",
            **({} if np.isnan(self.wcss) else {"Sum of squares": self.wcss, "Mean squared error": self.mse}),
            report.CRITERIA[self.method.name]: self.criterion,
            "Iterations": self.n_iter,
            "Converged": "yes" if self.converged else "no",
        }
        if self.posterior is not None:
            facts["R-hat"] = ", ".join(f"{name}: {value:.3f}" for name, value in self.posterior.rhat.items())
        sizes = [np.bincount(self.rows), np.bincount(self.columns)]
        return report.blocks_summary(self.call, facts, self.block_means, self.block_counts, names, sizes)

    def plot(self, fitted: bool = False, ax=None):
        """Draw the table with rows and columns in their groups, and lines between the blocks.

        Parameters
        ----------
        fitted : bool, default False
            Whether to draw block means in place of cells: all there is to see of a table that is mostly missing.
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        table, cells = self.table, None
        means = self._means if self._means.ndim == 2 else first_largest(self._means).astype(float)
        if not flag("fitted", fitted):
            c = self._cells()
            cells = (c.row, c.column, c.value, c.weight)
        levels = None if table.levels is None or table.holds != "levels" else table.levels.levels
        names = (table.rows.name, table.columns.name, table.response if table.holds != "rated" else "rated")
        ends = (table.rows.levels, table.columns.levels)
        return plot_blocks(self.rows, self.columns, means, cells, names, ends, levels, table.holds == "rated", ax)

    def plot_selection(self, ax=None):
        """Draw the criterion over the numbers of groups that were tried; return the Axes."""
        if self.selection is None:
            raise DataError("the numbers of groups were given, not chosen. Fit with groups=None.")
        names = (self.table.rows.name, self.table.columns.name)
        return plot_selection(self.selection, names, ax)

    def plot_similarity(self, axes=None):
        """Draw how often each two rows, and each two columns, are in one group; return the two Axes."""
        if self.posterior is None:
            raise DataError("there is no posterior. Fit with method='mcmc'.")
        shares = (self.posterior.row_share, self.posterior.column_share)
        names = (self.table.rows.name, self.table.columns.name)
        ends = (self.table.rows.levels, self.table.columns.levels)
        return plot_similarity(shares, (self.rows, self.columns), names, ends, axes)

    def save(self, path, *, store_data: bool = False) -> None:
        """Write the model to a file that `bbl.load` reads: versioned, checked by a digest, without pickle.

        Parameters
        ----------
        path : str or path-like
        store_data : bool, default False
            Whether the cells go into the file too; without them, `fitted` of a long table and `plot` of cells are not
            there after loading.

        Raises
        ------
        OSError, BBLTypeError
            If the file cannot be written; an older file of that name is then left as it was.
        """
        write_model(path, *self.pack(flag("store_data", store_data)), kind=self.kind)

    def pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return what a model file holds: names and options as a dict, numbers as arrays."""
        return pack(self, store_data)

    @classmethod
    def unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> BiclusterResults:
        """Return the model of `pack`, after checking that its content can be what `pack` stored."""
        return cls(**unpack(meta, arrays))

    def __repr__(self) -> str:
        sizes = [np.bincount(self.rows), np.bincount(self.columns)]
        names = (self.table.rows.name, self.table.columns.name)
        return report.blocks_text(self.call, self.block_means, names, sizes)
