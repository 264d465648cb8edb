"""Composite-likelihood criteria of fitted machines."""

from __future__ import annotations

import numpy as np

from bbl.errors import DataError
from bbl.results.machine.machine import MachineResults, of_categories
from bbl.stats.survey.sample import check_single_rows

__all__ = ["CompositeMixin"]


class CompositeMixin(MachineResults):
    """Information criteria of pseudo-likelihood fits."""

    @property
    @of_categories
    def claic(self) -> float:
        """Composite-likelihood AIC: ``-2 cl + 2 tr(K H^-1)``, summed over the groups.

        ``cl`` is the log pseudo-likelihood (the sum over predictors of log P(predictor | all
        others)), K is the covariance of its score, and H is its Hessian.

        It is used to compare models that were fitted to the same rows by the same method (Varin &
        Vidoni 2005); smaller is better. It cannot be compared with `aic`, which is based on the
        likelihood. With ``missing="marginal"``, only complete rows are used, although predictors
        may have been fitted to more rows. Formulas with the same predictors are therefore compared
        on the same rows.

        Raises
        ------
        DataError
            If no row of a group is complete.
        """
        likelihoods_and_df = self._composite_by_group()
        return -2.0 * sum(cl for cl, _ in likelihoods_and_df) + 2.0 * sum(
            df for _, df in likelihoods_and_df
        )

    @property
    @of_categories
    def clbic(self) -> float:
        """Composite-likelihood BIC: like `claic`, but each group's trace is multiplied by ln(number
        of rows) instead of 2.
        """
        likelihoods_and_df = self._composite_by_group()
        n_groups = len(self.labels.groups)
        rows = self._countable_rows()  # whose weights are counts
        # (n_groups,): proportion times total weight
        group_sizes = self.estimate.class_prior * self.nobs()
        if rows.missing is not None:  # then only the complete rows count
            group_sizes = np.bincount(
                rows.complete_rows.response, rows.complete_rows.weights, n_groups
            ).astype(float)
        return float(
            sum(
                -2.0 * cl + np.log(n) * df
                for (cl, df), n in zip(likelihoods_and_df, group_sizes, strict=True)
            )
        )

    def _composite_aic(self) -> float:
        """Return `claic` for tables of several models."""
        return self.claic

    @of_categories
    def _composite_by_group(self) -> list[tuple[float, float]]:
        """Return the log pseudo-likelihood of the complete rows and the effective number of
        parameters, for each group.

        The effective number of parameters is tr(K H^-1), with the covariance K of the score and the
        Hessian H.
        """
        # raises a DataError for a sampling design
        check_single_rows(self.survey, "A composite-likelihood criterion")
        rows = self._countable_rows()  # raises for weights that are not counts
        self.engine.check_composite()  # raises an OptionError if the method has no such criteria
        # no complete row
        rowless = np.setdiff1d(np.arange(len(self.labels.groups)), rows.complete_rows.response)
        if len(rowless):
            raise DataError(
                f"group {self.labels.groups[rowless[0]]!r} has no complete rows, but composite "
                "criteria use only complete rows to be comparable across formulas.",
                hint="Compare aic or bic, or fit with missing='level'.",
            )
        return self._inference.composite  # computed with the standard errors
