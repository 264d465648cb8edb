"""NumbersMixin: the numeric predictors of a fitted machine."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import pandas as pd

from bbl.checks import check_keywords
from bbl.report.canvas import group_numbers
from bbl.report.machine.numbers import covariance_frame, mean_frame
from bbl.results.machine.machine import MachineResults

__all__ = ["NumbersMixin"]


@dataclass(frozen=True, repr=False)
class NumbersMixin(MachineResults):
    """The location model of numeric predictors: means and covariances."""

    @check_keywords
    def means(self) -> pd.DataFrame:
        """Return the coefficients of the means of the numeric predictors.

        Returns
        -------
        DataFrame
            A row for each ``number`` and ``term``, a column for each group. The mean at the
            reference levels, and the differences of other levels from it; only the ``mean`` of a
            number that interacts with no categorical predictor. With ``transform="normal"`` the
            means of the normal scores.

        Raises
        ------
        DataError
            If no predictor is numeric.

        Examples
        --------
        >>> import bbl
        >>> data = {"y": ["a", "a", "a", "b", "b", "b"], "u": [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]}
        >>> bbl.bbl("y ~ u", data, numeric="u").means().round(2).loc["u"].T
        term  mean
        a     2.33
        b     4.67
        """
        return mean_frame(self.labels, self._location(), self.design.number_centers)

    @check_keywords
    def covariances(self, group: Hashable = None) -> pd.DataFrame:
        """Return the covariance of the numeric predictors given the levels of the others.

        Parameters
        ----------
        group : group, optional
            One group; by default all, as the first level of the index.

        Raises
        ------
        DataError
            If no predictor is numeric.
        OptionError
            If the group is unknown.

        Examples
        --------
        >>> import bbl
        >>> data = {"y": ["a", "a", "a", "b", "b", "b"], "u": [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]}
        >>> bbl.bbl("y ~ u", data, numeric="u").covariances("b").round(2)
              u
        u  2.33
        """
        location = self._location()
        if group is not None:
            return covariance_frame(self.labels, location, group_numbers(self.labels, [group])[0])
        return pd.concat(
            {
                name: covariance_frame(self.labels, location, g)
                for g, name in enumerate(self.labels.groups)
            },
            names=["group", "number"],
        )
