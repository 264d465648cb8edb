"""Estimates: parameters, standard errors, p-values and limits, with names and shapes as in
statsmodels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.significance import Kind
from bbl.checks import check_keywords, choice, flag, near_match, real
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.report.machine.inference_table import labelled, plot_table
from bbl.report.markup import Section
from bbl.report.notebook import Notebook, first_rows
from bbl.report.text import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Compared", "Estimates", "resolve_jointly", "resolve_of", "without_reference"]

Compared = str | tuple[Hashable, Hashable]  # "group", "pooled", or a pair of groups


class Estimates(Notebook, ABC):
    """Attributes with the columns of `table`, indexed by group and parameter like ``params``.

    The argument `of` selects the estimates of each group ("group"), their differences from the
    pooled fit to all rows ("pooled"), or the differences of a pair of groups. Attribute names
    follow statsmodels' discrete models, with groups as outcomes.
    """

    _labels: Labels  # names of the groups (`groups`), the predictors and their levels

    @abstractmethod
    def table(self, of: Compared = "group", level: float = 0.95) -> pd.DataFrame:
        """Return the selected parameters with standard errors, z, p and confidence limits."""

    @abstractmethod
    def tests(self, of: Compared = "group") -> pd.DataFrame:
        """Return joint tests of the fields of each predictor and the couplings of each pair.

        Raises an OptionError if the method has no tests.
        """

    @abstractmethod
    def interactions(self, of: Compared = "group", apc: bool = False) -> pd.DataFrame:
        """Return the interacting pairs, strongest first. If `apc` is True, the average-product
        correction is subtracted from the strengths.
        """

    @abstractmethod
    def __repr__(self) -> str:
        """Return the numbers of parameters and groups, and the note on standard errors."""

    @abstractmethod
    def _covariance(self, groups: list[int]) -> np.ndarray:
        """Return the covariance (q, q) of all q estimates of `groups` (positions), ordered by
        group.
        """

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text and the first rows of the table of parameters for display in
        notebooks.
        """
        try:
            return repr(self), [first_rows(self.table(), "Parameters", ".table()")]
        # only differences between groups have standard errors: show the first
        except OptionError:
            of = (self._labels.groups[1], self._labels.groups[0])
            heading = "Differences of {} from {}".format(*map(label_text, of))
            return repr(self), [first_rows(self.table(of), heading, f".table(of={of!r})")]

    @property
    def params(self) -> pd.Series:
        """Estimate of every parameter, indexed by group and parameter name."""
        return labelled(self.table(), "estimate")

    @property
    def bse(self) -> pd.Series:
        """Standard error or posterior standard deviation of every parameter; missing if not
        available.
        """
        return labelled(self.table(), "se")

    @property
    def tvalues(self) -> pd.Series:
        """Statistic z, or t under a sampling design, of every parameter; missing for exact tests
        and untested parameters.
        """
        table = self.table()
        return labelled(table, "t" if "t" in table else "z")

    @property
    def pvalues(self) -> pd.Series:
        """P-value of every parameter; missing for untested parameters.

        The column ``test`` of `table` states the reason.
        """
        return labelled(self.table(), "p")

    @check_keywords
    def conf_int(self, alpha: float = 0.05, of: Compared = "group") -> pd.DataFrame:
        """Return confidence limits of every parameter that `of` selects.

        Parameters
        ----------
        alpha : float, default 0.05
            One minus the coverage, at most 0.5: 0.05 for 95 % intervals.
        of : "group", "pooled" or (group, group), default "group"
            As in `table`.

        Returns
        -------
        DataFrame
            ``lower`` and ``upper``, with the same index as ``params``. Limits of exact tests may be
            infinite. Limits of untested parameters are missing.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> inference = fit.inference()
        >>> inference.conf_int(alpha=0.1).loc["Yes"].head(2).round(
        ...     2
        ... )  # doctest: +NORMALIZE_WHITESPACE
                   lower  upper
        parameter
        Class=2nd  -0.64  -0.20
        Class=3rd  -0.67  -0.23
        """
        return labelled(
            self.table(of, 1.0 - real("alpha", alpha, 0.0, 0.5, open_low=True)), ["lower", "upper"]
        )

    @check_keywords
    def cov_params(self, group: Hashable = None) -> pd.DataFrame:
        """Return the covariance of the penalised estimates. The diagonal contains the squares of
        ``bse``.

        Parameters
        ----------
        group : optional
            All groups by default. Different groups have different rows, so the covariance of their
            estimates is zero unless all groups are fitted jointly or share clusters of a sampling
            design.

        Returns
        -------
        DataFrame
            Rows and columns are indexed like ``params``. Values are missing for parameters without
            a standard error.

        Raises
        ------
        OptionError
            If the group is unknown, or the method has no covariances.
        MemoryLimitError
            If the covariance would not fit into memory.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> inference = fit.inference()
        >>> inference.cov_params("Yes").shape
        (9, 9)
        """
        groups = list(self._labels.groups)
        se = self.bse
        if group is not None and group not in groups:
            raise OptionError(
                f"{group!r} is not a group.",
                argument="group",
                hint=f"{near_match(group, groups)}Choose one of {groups}.",
            )
        size = len(se) // len(groups)  # number of parameters of a group
        group_positions = list(range(len(groups))) if group is None else [groups.index(group)]
        # one group, or all; the rows of a group are contiguous
        se = se.iloc[group_positions[0] * size : (group_positions[-1] + 1) * size]
        check_memory(
            8.0 * float(len(se)) ** 2,
            f"A covariance of {len(se)} parameters",
            "Pass one group, or use bse.",
        )
        covariance = self._covariance(group_positions)
        has_no_se = se.isna().to_numpy()
        covariance[has_no_se], covariance[:, has_no_se] = np.nan, np.nan  # its rows and columns
        return pd.DataFrame(covariance, index=se.index, columns=se.index)

    @check_keywords
    def plot(
        self,
        of: Compared = "group",
        level: float = 0.95,
        *,
        pairs: bool = False,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the fields or the couplings with their intervals and return the Axes.

        Parameters
        ----------
        of, level
            As in `table`.
        pairs : bool, default False
            Whether to draw couplings instead of fields.
        ax : matplotlib Axes, optional

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> inference = fit.inference()
        >>> axis = inference.plot()
        >>> plt.close()
        """
        return plot_table(self.table(of, level), flag("pairs", pairs), level, ax)


def resolve_of(of: Compared, groups: list, pooled: bool) -> str | tuple[int, int]:
    """Return the selection of `of`: "group", "pooled" or the positions of two groups. Raises an
    OptionError for any other value. `pooled` indicates whether the model has a pooled fit, i.e. a
    fit to all rows.
    """
    if isinstance(of, tuple) and len(of) == 2:
        for g in of:
            if g not in groups:
                raise OptionError(
                    f"{g!r} is not a group.",
                    argument="of",
                    hint=f"{near_match(g, groups)}Choose from the groups {groups}.",
                )
        if of[0] == of[1]:
            raise OptionError(
                f"of must be a pair of different groups; got {of!r}.", argument="of", value=of
            )
        return groups.index(of[0]), groups.index(of[1])
    if choice("of", of, ("group", "pooled")) == "pooled" and not pooled:
        raise OptionError(
            "This fit has no pooled fit for comparison.",
            argument="of",
            hint="Fit with testNull=True.",
        )
    return of


def resolve_jointly(of: Compared, groups: list, engine: Engine) -> str | tuple[int, int]:
    """Return the result of `resolve_of` for a joint fit of all groups, which does not have a pooled
    fit.
    """
    if of == "pooled":  # `refusals` maps unavailable features to reasons
        raise OptionError(
            f"{engine.refusals()['pooled']}.", argument="of", hint="Pass two groups, of=(a, b)."
        )
    selection = resolve_of(of, groups, pooled=False)
    if engine.cumulative and isinstance(selection, tuple) and 0 not in selection:
        raise OptionError(
            "With logits='cumulative', the effects are the same for all groups above "
            f"{groups[0]!r}, so differences between them are zero.",
            argument="of",
            hint=f"Pass of=({groups[1]!r}, {groups[0]!r}) for the effects.",
            value=of,
        )
    return selection


def without_reference(table: pd.DataFrame) -> pd.DataFrame:
    """Return `table` without the reference group of a joint fit, because its parameters are all
    zero.

    The rows of this group are identified by the column ``test``. Other tables are returned
    unchanged.
    """
    return table[table["test"] != Kind.REFERENCE.text].reset_index(drop=True)
