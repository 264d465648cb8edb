"""Methods of fitted Boltzmann machines for goodness of fit, cell counts and mosaic plots.

``G2 = 2 sum O ln(O / E)`` and ``X2 = sum (O - E)^2 / E`` compare the observed count O and the
fitted count E of each cell. A cell contributes ``2 (O ln(O / E) - O + E)`` to G2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.goodness import (
    GroupCells,
    check_cells,
    group_cells,
    leverages,
    simulated_statistics,
)
from bbl.boltzmann.relevance import CHOSEN_BY_ROWS
from bbl.checks import check_keywords, generator, integer
from bbl.errors import DataError, OptionError
from bbl.model.listing import state_codes
from bbl.report.machine.plot_mosaic import check_mosaic, draw_mosaic
from bbl.report.machine.tables import category_frame
from bbl.report.text import distinct_names
from bbl.results.machine.machine import MachineResults, of_categories
from bbl.stats.goodness import (
    STATISTICS,
    adjusted_residuals,
    chi_square_p,
    deviance_residuals,
    goodness_statistics,
    is_sparse,
    pearson_residuals,
)
from bbl.stats.survey.sample import check_single_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GoodnessMixin"]

# texts of the column ``test``
CHI_SQUARE = "chi-square"
SPARSE = "chi-square, unreliable: many expected counts are small"
PENALISED = "no chi-square: the fit is penalised"
# appended to `SPARSE` or `PENALISED`, without and with a bootstrap
BOOTSTRAP = ("; use bootstrap=999", "; see p_bootstrap")
SATURATED = "no test: no degrees of freedom"


def _counts_and_residuals(tables: list[GroupCells]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the observed counts, fitted counts and Pearson residuals of all cells, group by
    group.
    """
    observed, fitted = (
        np.concatenate([getattr(table, name) for table in tables])
        for name in ("observed", "fitted")
    )
    return observed, fitted, pearson_residuals(observed, fitted)


class GoodnessMixin(MachineResults):
    """Goodness of fit of Boltzmann machines: observed and expected cell counts."""

    @check_keywords
    @of_categories
    def goodness_of_fit(
        self, bootstrap: int = 0, seed: int | np.random.Generator | None = 0
    ) -> pd.DataFrame:
        """Compare the observed and fitted counts of all cells by the G2, Pearson X2 and
        Freeman-Tukey statistics.

        This requires ``method="ml"``. With a response, the statistics and their degrees of freedom
        are summed over the groups.

        Parameters
        ----------
        bootstrap : int, default 0
            Number of tables that are drawn from the fit and refitted. The resulting p-values are
            valid with small expected counts or a penalty; the column ``test`` indicates when they
            are needed.
        seed : int or numpy.random.Generator, default 0
            Seed for the bootstrap.

        Returns
        -------
        DataFrame
            Indexed by ``statistic``: ``"G2"`` (likelihood ratio against the saturated model),
            ``"X2"`` (Pearson) and ``"Freeman-Tukey"`` (``4 sum (sqrt(O) - sqrt(E))^2``, with
            observed counts O and fitted counts E). The columns are ``value``, ``df``, ``p`` (from
            the chi-square distribution), ``p_bootstrap`` (only if `bootstrap` is positive) and
            ``test``. The degrees of freedom are the number of cells with a positive expected count,
            minus 1, minus the number of estimable parameters. They are therefore also correct if
            some margins are zero.

            The chi-square distribution is inaccurate if an expected count is below 1, or if more
            than a fifth of them are below 5 (Cochran 1954, Biometrics 10).

        Raises
        ------
        OptionError
            If the method does not maximise the likelihood, or there are over 2**20 cells.
        DataError
            If values are missing, weights are not counts, or the model was saved without its rows.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("~ Class*Sex + Survived", titanic, "Freq", method="ml", verbose=0)
        >>> fit.goodness_of_fit()[["value", "df"]].loc["G2"].round(2).tolist()
        [605.72, 7.0]
        """
        n_tables = integer("bootstrap", bootstrap, 0)
        rng = generator(seed)
        if self.estimate.relevance is not None:
            raise OptionError(
                f"{CHOSEN_BY_ROWS}.", argument="relevance", hint="Fit without relevance."
            )
        tables = self._group_tables("goodness_of_fit()")  # one for each group
        # raises a DataError for a sampling design
        check_single_rows(self.survey, "A test of goodness of fit")
        # raises a DataError for weights that are not counts
        self._all_rows().check_whole("Goodness-of-fit tests require")
        # (3,), summed over the groups: the statistics named in `STATISTICS`
        statistics = np.sum(
            [goodness_statistics(table.observed, table.fitted) for table in tables], axis=0
        )
        df = sum(table.df for table in tables)
        p = (
            np.full(len(STATISTICS), np.nan)
            if self.engine.penalised
            else chi_square_p(statistics, df)
        )
        frame = pd.DataFrame(
            {"value": statistics, "df": df, "p": p}, index=pd.Index(STATISTICS, name="statistic")
        )
        if n_tables:
            # (n_tables, 3): statistics of tables that are drawn from the fit and refitted
            simulated = simulated_statistics(
                tables, self.estimate.parameters.layout, self.engine, n_tables, rng
            )
            tolerance = 1e-9 * (
                1.0 + statistics
            )  # statistics of equal tables differ only by rounding
            # the observed table counts as one of the drawn tables, so that p is never 0
            frame["p_bootstrap"] = (1.0 + (simulated >= statistics - tolerance).sum(axis=0)) / (
                1.0 + n_tables
            )
        test = CHI_SQUARE
        if self.engine.penalised:
            test = PENALISED + BOOTSTRAP[n_tables > 0]  # True is position 1
        elif df <= 0:
            test = SATURATED
        elif is_sparse(np.concatenate([table.fitted for table in tables])):
            test = SPARSE + BOOTSTRAP[n_tables > 0]
        return frame.assign(test=test)

    @check_keywords
    @of_categories
    def cells(self) -> pd.DataFrame:
        """Return all cells with their observed and fitted counts and residuals, for
        ``method="ml"``.

        Returns
        -------
        DataFrame
            One row for each combination of levels, with the last predictor varying fastest; with a
            response, one row for each combination and group, where the first column is ``group``.
            The columns of the predictors are followed by the ``observed`` and ``fitted`` counts and
            the residuals ``pearson``, ``deviance`` (signed root of the cell's contribution to G2)
            and ``adjusted`` (Haberman's residuals, which are standard normal in large samples if
            the model is correct). ``adjusted`` is missing if there is a penalty, and in cells that
            the model always fits exactly. A trailing underscore is added to the name of a column if
            a predictor has the same name.

        Raises
        ------
        OptionError
            If the method does not maximise the likelihood, or there are over 2**20 cells.
        DataError
            If values are missing, or the model was saved without its rows.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("~ Class * Sex + Survived", titanic, "Freq", method="ml", verbose=0)
        >>> fit.cells().drop(columns="deviance").head(2).round(2)
          Class     Sex Survived  observed  fitted  pearson  adjusted
        0   1st  Female       No       4.0   98.16    -9.50     -17.3
        1   1st  Female      Yes     141.0   46.84    13.76      17.3
        """
        tables = self._group_tables("cells()")
        labels = self.labels
        layout = self.estimate.parameters.layout
        observed, fitted, pearson = _counts_and_residuals(tables)
        adjusted = np.full(len(fitted), np.nan)
        if not self.engine.penalised:
            # diagonal of the hat matrix; the adjusted residual is the Pearson residual divided by
            # sqrt(1 - leverage)
            leverage = np.concatenate(
                [leverages(layout.of_group(g), table.fitted) for g, table in enumerate(tables)]
            )
            adjusted = adjusted_residuals(observed, fitted, leverage)
        n_cells = len(tables[0].observed)
        # level codes (n, m) of all cells, repeated for each group
        codes = np.tile(state_codes(np.arange(n_cells), layout.n_levels), (len(tables), 1))
        names = distinct_names(
            [*labels.names, "group", "observed", "fitted", "pearson", "deviance", "adjusted"]
        )
        group_name, *count_names = names[layout.m :]
        # by name: (codes, levels) of a categorical column
        columns = dict(zip(labels.names, zip(codes.T, labels.levels, strict=True), strict=True))
        if self.design.classes:
            columns = {
                group_name: (np.repeat(np.arange(len(tables)), n_cells), labels.groups)
            } | columns
        frame = category_frame(columns, pd.RangeIndex(len(codes)))
        count_columns = (observed, fitted, pearson, deviance_residuals(observed, fitted), adjusted)
        for name, column in zip(count_names, count_columns, strict=True):
            frame[name] = column
        return frame

    @check_keywords
    @of_categories
    def plot_mosaic(self, ax: Axes | None = None) -> Axes:
        """Draw a mosaic of the observed counts, shaded by the Pearson residuals of the fit, for
        ``method="ml"``.

        The area of a tile is proportional to the count of its cell. Tiles are split successively by
        the response, if any, and the predictors: first into columns (labelled below), then into
        rows (left), columns (above) and rows (right). Red cells are observed more often than
        expected under the model. Blue cells, which have a dashed edge, are observed less often. The
        shading starts at 2 standard deviations of a Poisson count and becomes darker at 4 (Friendly
        1994, JASA 89).

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        OptionError
            If the method does not maximise the likelihood, or there are over 4 variables or 400
            cells.
        DataError
            If values are missing, or the model was saved without its rows.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("~ Class * Sex + Survived", titanic, "Freq", method="ml", verbose=0)
        >>> axis = fit.plot_mosaic()
        >>> len(axis.patches) > 0
        True
        >>> plt.close()
        """
        labels = self.labels
        names = list(labels.names)
        levels = list(labels.levels)
        if self.design.classes:
            names = [labels.response, *names]
            levels = [labels.groups, *levels]
        # raises an OptionError if there are too many variables or cells
        check_mosaic([len(x) for x in levels])
        observed, _, pearson = _counts_and_residuals(self._group_tables("plot_mosaic()"))
        # one axis per variable: cells are in C order, group by group
        shape = tuple(len(x) for x in levels)
        return draw_mosaic(names, levels, observed.reshape(shape), pearson.reshape(shape), ax)

    def _group_tables(self, what: str) -> list[GroupCells]:
        """Return the observed and fitted counts of the cells of each group.

        `what` is the name of the call for the OptionError or DataError that is raised if there are
        no such counts.
        """
        # `refusals` maps unavailable features to reasons
        if (reason := self.engine.refusals().get("goodness_of_fit")) is not None:
            raise OptionError(
                f"{what} requires an exact fit: {reason}.",
                argument="method",
                hint="Choose method='ml'.",
            )
        # raises an OptionError if there are too many
        check_cells(self.estimate.parameters.layout, len(self.labels.groups))
        rows = self._all_rows()
        if not rows.complete:
            raise DataError(
                f"{what} compares the counts of complete rows, but some rows of this fit have "
                f"missing values.",
                argument="missing",
                hint="Fit with missing='drop' or missing='level'.",
            )
        return group_cells(rows, self.estimate)
