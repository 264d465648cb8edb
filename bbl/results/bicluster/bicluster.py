"""BiclusterResults: a two-way clustering of a table.

The table has I rows in a groups and J columns in b groups; a *block* contains the cells of one row
group and one column group. A *long* table lists its observed cells; a *matrix* contains all cells.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import pandas as pd

from bbl.biclustering.bicluster_fit import BiclusterFit
from bbl.biclustering.blocks import best_groups, ordered
from bbl.biclustering.cells import Cells
from bbl.checks import flag
from bbl.design.factors import Factor
from bbl.design.twoway import TwoWay
from bbl.errors import BBLTypeError, DataError, LevelError
from bbl.report.bicluster import summary as report
from bbl.report.bicluster.plot import (
    plot_blocks,
    plot_history,
    plot_selection,
    plot_similarity,
)
from bbl.report.machine.summary import Summary
from bbl.results.bicluster.archive import pack, population_frame, selection_frame, unpack
from bbl.results.bicluster.posterior import Posterior
from bbl.results.bicluster.tables import BlockTables
from bbl.results.deprecated import Deprecated, DeprecatedNames
from bbl.stats.metrics import first_largest
from bbl.storage import write_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BiclusterResults"]


@final
@dataclass(frozen=True, repr=False, eq=False)
class BiclusterResults(BlockTables, DeprecatedNames):
    """Groups of rows and of columns, as returned by `bbl.bicluster`.

    Attributes
    ----------
    call : str
        The call to `bbl.bicluster`.
    table : TwoWay
        Names of rows, columns and values; ``formula``, None for a matrix; ``holds``, the kind of
        cells: "numeric", "ordinal" (ordered numbers), "levels" (codes of a categorical table), or
        "rated" (rated pairs have the value 1, and unrated pairs have no cell).
    method : Prototype, Genetic or Mcmc
        The method with its options.
    rows, columns : ndarray of int32, shape (I,) and (J,)
        Groups 0..a-1 of the rows and 0..b-1 of the columns, ordered by mean or, in categorical
        tables, by size.
    sums : ndarray, shape (a, b, L)
        Number of observations of each level in each block; for numeric cells L is 2: number and
        sum of observations.
    criterion : float
        Value for comparing partitions; smaller is better: minus twice the integrated completed
        likelihood ("prototype"), the fitness ("genetic"), the posterior expected loss or, for
        "vi", its lower bound ("mcmc").
    history : ndarray
        The objective after each half-step of the best start ("prototype"; it never increases,
        except with the metric "pearson"), the best fitness of each generation ("genetic"), or the
        log posterior of all draws by chain ("mcmc").
    n_iter : int
    converged : bool
        Whether the alternation ended before `max_iter` ("prototype"); whether no move of a
        single row or column improves the fitness, which the option `refine` ensures
        ("genetic"); whether the split R-hat is at most 1.1 ("mcmc").
    wcss : float
        Sum of squared differences between the observed cells and their block means; nan for
        categorical tables.
    selection : DataFrame or None
        Candidate numbers of groups, with their objective and criterion; None if the numbers were
        specified.
    population : DataFrame or None
        The last population of the genetic algorithm, with the ``fitness`` of each member and its
        groups of all rows and columns.
    posterior : Posterior or None
        Draws of both partitions with diagnostics ("mcmc").
    cells : Cells or None
        The observed cells; None in a model loaded from a file without them.

    Examples
    --------
    >>> import numpy as np
    >>> import bbl
    >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
    >>> fit = bbl.bicluster(None, table, groups=(2, 2))
    >>> fit.groups, fit.nobs(), fit.converged
    ((2, 2), 48, True)
    >>> fit.block_means.to_numpy().tolist()
    [[1.0, 4.0], [2.0, 5.0]]
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

    _kind: ClassVar[str] = "bicluster"

    kind = Deprecated("_kind")
    from_found = Deprecated("_from_found")

    @classmethod
    def _from_found(
        cls, call: str, table: TwoWay, method: Any, cells: Cells, fit: BiclusterFit
    ) -> BiclusterResults:
        """Return the result of a clustering, with groups renumbered by their means or sizes."""
        # 0: numeric
        n_levels = (
            len(table.levels.levels) if table.levels is not None and table.holds == "levels" else 0
        )
        rows, columns, sums, wcss = ordered(
            cells, fit.rows, fit.columns, n_levels, table.holds == "rated"
        )
        selection = population = posterior = None
        if fit.selection is not None:
            # (tried, 4), see `selection_frame`
            selection = selection_frame(np.array(fit.selection))
        # "genetic": the last population, groups (members, I + J) with fitness (members,)
        if fit.evolved is not None:
            population = population_frame(
                table, fit.evolved.population, fit.evolved.population_fitness
            )
        # "mcmc"; share: proportion of draws where two items are in one group
        if fit.draws is not None and fit.share is not None:
            posterior = Posterior(table.rows, table.columns, fit.draws, *fit.share)
        return cls(
            call,
            table,
            method,
            rows,
            columns,
            sums,
            fit.criterion,
            fit.history,
            fit.n_iter,
            fit.converged,
            wcss,
            selection,
            population,
            posterior,
            cells,
        )

    def predict(self, newdata: Any = None, type: str = "response") -> pd.Series | pd.DataFrame:
        """Predict cells by their block means.

        Parameters
        ----------
        newdata : table, optional
            A long table contains the (row, column) pairs to predict. A new row (e.g. a new user) is
            assigned to the group that fits its responses in `newdata` best. A matrix contains new
            rows, with nan for missing cells. If None, the `fitted` values are returned.
        type : {"response", "prob"}, default "response"
            For categorical tables, the most frequent level or the proportions of all levels.

        Returns
        -------
        Series or DataFrame
            Predictions with the index of `newdata`; for a matrix, predictions of all cells.

        Raises
        ------
        LevelError
            If a column is unknown, or a new row has no response in `newdata`.

        Examples
        --------
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> fit = bbl.bicluster(None, table, groups=(2, 2))
        >>> fit.predict().shape
        (6, 8)
        """
        wants_shares = self.table.holds == "levels" and type == "prob"
        if type not in ("response", "prob") or (type == "prob" and not wants_shares):
            raise BBLTypeError(
                f"type={type!r} is not available for this table.",
                argument="type",
                hint="Pass 'response', or 'prob' for categorical tables.",
                value=type,
            )
        if newdata is None:
            return self.fitted()
        # (a, b, L) or (a, b)
        block_values = self._means if wants_shares else self._block_predictions(self._means)
        if self.table.formula is None:
            # first, so that errors in newdata come before an error in `type`
            groups, index = self._assign_matrix_rows(newdata)
            if wants_shares:
                raise BBLTypeError("type='prob' requires a long table.", argument="type")
            matrix = block_values[groups][:, self.columns]
            return pd.DataFrame(matrix, index=index, columns=pd.Index(self.table.columns.levels))
        i, j, _, groups = self._assign_listed_rows(newdata)  # row and column codes of the pairs
        predicted = block_values[groups[i], self.columns[j]]  # (pairs, L) or (pairs,)
        index = newdata.index if isinstance(newdata, pd.DataFrame) else pd.RangeIndex(len(i))
        if wants_shares and self.table.levels is not None:
            return pd.DataFrame(
                predicted, index=index, columns=pd.Index(self.table.levels.levels, dtype=object)
            )
        return pd.Series(predicted, index=index, name=self.table.response)

    def assign(self, newdata: Any) -> pd.Series:
        """Return the group that fits each row in `newdata` best.

        Training rows of a long table keep their groups.

        Parameters
        ----------
        newdata : table
            As in `predict`; a long table with the response.

        Examples
        --------
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> fit = bbl.bicluster(None, table, groups=(2, 2))
        >>> fit.assign(table[:2]).tolist()
        [0, 0]
        """
        name = f"{self.table.rows.name} group"
        if self.table.formula is None:
            groups, index = self._assign_matrix_rows(newdata)
            return pd.Series(groups, index=index, name=name)
        i, _, new_rows, groups = self._assign_listed_rows(newdata)
        assigned_codes = np.unique(i)  # codes of the rows that `newdata` lists
        row_names = [*self.table.rows.levels, *new_rows.levels]
        index = pd.Index([row_names[k] for k in assigned_codes], name=self.table.rows.name)
        return pd.Series(groups[assigned_codes], index=index, name=name)

    def _assign_matrix_rows(self, newdata: Any) -> tuple[np.ndarray, pd.Index]:
        """Return the best group of each row of a matrix, shape (rows,), and the row names."""
        # cells: row, column, value and weight of each
        entries, index = self.table.read_matrix(newdata)
        return self._best_row_groups(
            Cells.from_entries(*entries, (len(index), self.table.shape[1])), index
        ), index

    def _assign_listed_rows(
        self, newdata: Any
    ) -> tuple[np.ndarray, np.ndarray, Factor, np.ndarray]:
        """Read a long table of n pairs, and assign its new rows to groups.

        Return the row codes (n,) and column codes (n,) of the pairs, the names of the r new rows,
        and the groups (I + r,) of the I training rows and the new rows. The row codes of new rows
        start at I.
        """
        # value: None if there are no new rows or no response
        i, j, value, new_rows = self.table.read(newdata)
        n_training_rows = self.table.shape[0]
        if not len(new_rows.levels):
            return i, j, new_rows, self.rows
        is_new = i >= n_training_rows
        if self.table.holds == "rated" and value is None:
            value = np.ones(len(i))  # without a response, listed pairs are rated
        is_observed = np.zeros(len(i), dtype=bool) if value is None else ~np.isnan(value) & is_new
        if self.table.holds == "rated" and value is not None:
            is_observed &= value == 1.0  # other pairs are unrated, like pairs without a cell
        observed_values = np.zeros(0) if value is None else value[is_observed]
        entries = (
            i[is_observed] - n_training_rows,
            j[is_observed],
            observed_values,
            np.ones(len(observed_values)),
        )
        cells = Cells.from_entries(*entries, (len(new_rows.levels), self.table.shape[1]))
        new_groups = self._best_row_groups(cells, pd.Index(new_rows.levels))
        return i, j, new_rows, np.concatenate([self.rows, new_groups])

    def _best_row_groups(self, cells: Cells, names: pd.Index) -> np.ndarray:
        """Return the best groups (r,) of r new rows, given their `cells` (r, J).

        Raises a LevelError if a row has no cells.
        """
        # `start` bounds the cells of each row
        without_cells = np.flatnonzero(np.diff(cells.start) == 0)
        if len(without_cells):
            raise LevelError(
                f"{self.table.rows.name!r} {names[without_cells[0]]!r} is new, but newdata "
                "contains no cells to estimate its group.",
                column=self.table.rows.name,
                argument="newdata",
                hint=(
                    "Add some of its cells to newdata, including the column "
                    f"{self.table.response!r}."
                ),
            )
        holds, means = self.table.holds, self._means  # (a, b); for levels, proportions (a, b, L)
        # arguments of `best_groups`: cells, groups of the columns, block means (a, b), ln P(level |
        # block) (a, b, L)
        if holds == "levels":  # codes of the best levels are used as means
            # avoid log 0
            return best_groups(
                cells, self.columns, first_largest(means), np.log(np.maximum(means, 1e-300))
            )
        if holds == "ordinal":  # codes: ratings minus the lowest of the scale
            codes = Cells(
                cells.shape,
                cells.start,
                cells.column,
                cells.value - self.method.scale[0],
                cells.weight,
            )
            # ln P(rating | block mean)
            return best_groups(codes, self.columns, means, self.method.log_shares(means))
        return best_groups(cells, self.columns, means, rated=holds == "rated")

    def summary(self) -> Summary:
        """Summarise the fit: key statistics, and the means and counts of the blocks.

        Returns
        -------
        Summary
            Can be displayed as text, HTML or LaTeX; the attribute ``tables`` contains the tables.

        Examples
        --------
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> fit = bbl.bicluster(None, table, groups=(2, 2))
        >>> list(fit.summary().tables)
        ['fit', 'means', 'counts']
        """
        names = (self.table.rows.name, self.table.columns.name)
        facts = {
            "Method": self.method.name,
            "Table": f"{self.table.shape[0]} x {self.table.shape[1]} ({names[0]} x {names[1]})",
            "Observations": self.nobs(),
            # observations after the first
            **({"Repeated pairs": self.table.repeats} if self.table.repeats else {}),
            "Groups": f"{self.groups[0]} x {self.groups[1]}",
            **(
                {}
                if np.isnan(self.wcss)
                else {"Sum of squares": self.wcss, "Mean squared error": self.mse}
            ),
            report.CRITERIA[self.method.name]: self.criterion,  # under the criterion's title
            "Iterations": self.n_iter,
            "Converged": "yes" if self.converged else "no",
        }
        if self.posterior is not None:
            facts["R-hat"] = ", ".join(
                f"{name}: {value:.3f}" for name, value in self.posterior.rhat.items()
            )
        sizes = [np.bincount(self.rows), np.bincount(self.columns)]
        return report.blocks_summary(
            self.call, facts, self.block_means, self.block_counts, names, sizes
        )

    def plot(self, fitted: bool = False, ax: Axes | None = None) -> Axes:
        """Draw the table with rows and columns sorted by group and lines between the blocks.

        Parameters
        ----------
        fitted : bool, default False
            Whether to draw block means instead of cells. This is useful if most cells are missing.
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> fit = bbl.bicluster(None, table, groups=(2, 2))
        >>> axis = fit.plot()
        >>> plt.close()
        """
        # entries: None to draw the block means
        table = self.table
        entries = None
        # (a, b); for a categorical table, means (a, b, L) are level proportions: draw the code of
        # the largest
        means = self._means if self._means.ndim == 2 else first_largest(self._means).astype(float)
        if not flag("fitted", fitted):
            cells = self._require_cells()
            entries = (cells.row, cells.column, cells.value, cells.weight)
        levels = None if table.levels is None or table.holds != "levels" else table.levels.levels
        names = (
            table.rows.name,
            table.columns.name,
            table.response if table.holds != "rated" else "rated",
        )
        items = (table.rows.levels, table.columns.levels)
        return plot_blocks(
            self.rows,
            self.columns,
            means,
            entries,
            names,
            items,
            levels,
            table.holds == "rated",
            ax,
        )

    def plot_selection(self, ax: Axes | None = None) -> Axes:
        """Draw the criterion for all candidate numbers of groups and return the Axes.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import numpy as np
        >>> import bbl
        >>> rng = np.random.default_rng(0)
        >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4))) + rng.normal(0, 0.1, (6, 8))
        >>> fit = bbl.bicluster(None, table, verbose=0)
        >>> axis = fit.plot_selection()
        >>> plt.close()
        """
        if self.selection is None:
            raise DataError(
                "The numbers of groups were given, not selected.", hint="Fit with groups=None."
            )
        names = (self.table.rows.name, self.table.columns.name)
        return plot_selection(self.selection, names, ax)

    def plot_history(self, ax: Axes | None = None) -> Axes:
        """Draw the objective at each step of the search.

        This is the best fitness in each generation for the genetic algorithm; the objective of the
        best start, initially and after each half-step of the alternation (or each iteration with
        the metric "pearson"), for "prototype"; and the log posterior of each chain's draws for
        "mcmc".

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron([[1, 4], [2, 5]], np.ones((3, 4)))
        >>> fit = bbl.bicluster(None, table, method="genetic", generations=200, verbose=0)
        >>> axis = fit.plot_history()
        >>> plt.close()
        """
        history = self.history[None]
        reached = None
        if self.posterior is not None:
            history = self.posterior.draws.log_posterior
            axis_names = ("Draw", "Log posterior")
        elif self.method.name == "genetic":
            axis_names = ("Generation", "Best fitness")
            # single moves after the last generation may have decreased it
            if self.criterion < self.history.min():
                reached = self.criterion
        else:
            steps = "Iteration" if self.method.metric == "pearson" else "Half-step"
            objective = report.OBJECTIVES[self.method.metric]
            axis_names = (steps, objective[0].upper() + objective[1:])
        return plot_history(history, axis_names, reached, ax)

    def plot_similarity(self, axes: Sequence[Axes] | None = None) -> list[Axes]:
        """Draw the posterior probabilities that two rows, or two columns, are in the same group.

        Returns two Axes.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron(np.eye(2), np.ones((4, 5)))
        >>> fit = bbl.bicluster(None, table, method="mcmc", seed=1, verbose=0)
        >>> axes = fit.plot_similarity()
        >>> plt.close()
        """
        if self.posterior is None:
            raise DataError("This fit has no posterior.", hint="Fit with method='mcmc'.")
        shares = (self.posterior.row_share, self.posterior.column_share)
        names = (self.table.rows.name, self.table.columns.name)
        items = (self.table.rows.levels, self.table.columns.levels)
        return plot_similarity(shares, (self.rows, self.columns), names, items, axes)

    def save(self, path: str | os.PathLike[str], *, store_data: bool = False) -> None:
        """Write the model to a file for `bbl.load`. The format is versioned, has a checksum and
        does not use pickle.

        Parameters
        ----------
        path : str or path-like
        store_data : bool, default False
            Whether to store the cells as well. Without the cells, a loaded model cannot plot them
            or, for a long table, compute `fitted`.

        Raises
        ------
        OSError, BBLTypeError
            If the file cannot be written. An existing file with the same name then remains
            unchanged.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import bbl
        >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> fit = bbl.bicluster(None, table, groups=(2, 2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(Path(folder, "table.bbl"))
        ...     loaded = bbl.load(Path(folder, "table.bbl"))
        >>> loaded.row_groups.equals(fit.row_groups)
        True
        """
        write_model(path, *self._pack(flag("store_data", store_data)), kind=self._kind)

    def _pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the content of a model file: a dict of names and options, and a dict of arrays."""
        return pack(self, store_data)

    @classmethod
    def _unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> BiclusterResults:
        """Return the model stored by `_pack`, after checking every value."""
        return cls(**unpack(meta, arrays))

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    def __repr__(self) -> str:
        sizes = [np.bincount(self.rows), np.bincount(self.columns)]
        names = (self.table.rows.name, self.table.columns.name)
        return report.blocks_text(self.call, self.block_means, names, sizes)
