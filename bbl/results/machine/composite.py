"""Composite-likelihood criteria of a fitted machine: properties of the result classes.

The pseudo-likelihood is a composite likelihood: the product over predictors of P(predictor | all
others).
"""

from __future__ import annotations

import numpy as np

from bbl.errors import DataError
from bbl.results.machine.machine import MachineResults
from bbl.stats.survey.sample import check_single_rows

__all__ = ["CompositeMixin"]


class CompositeMixin(MachineResults):
    """Information criteria of pseudo-likelihood fits."""

    @property
    def claic(self) -> float:
        """Composite-likelihood AIC: ``-2 cl + 2 tr(K H^-1)``, summed over the groups.

        ``cl`` is the log pseudo-likelihood, K the covariance of its score, H its Hessian.

        Compares models of one method on the same rows (Varin & Vidoni 2005); smaller is better. Not
        on the scale of `aic`, which uses the likelihood. With ``missing="marginal"`` it counts the
        complete rows alone, whatever rows each predictor was fitted to, so that formulas of the
        same predictors are compared on the same rows.

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
    def clbic(self) -> float:
        """Composite-likelihood BIC: as `claic`, with the logarithm of each group's number of rows
        as the factor of tr.
        """
        likelihoods_and_df = self._composite_by_group()
        n_groups = len(self.labels.groups)
        rows = self._testable_rows()  # the training rows, whose weights are counts
        # (n_groups,): share times sum of all weights
        group_sizes = self.estimate.class_prior * self.nobs()
        if rows.missing is not None:  # then the complete rows alone count
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
        """Return `claic`, for tables of several models."""
        return self.claic

    def _composite_by_group(self) -> list[tuple[float, float]]:
        """Return for each group (log pseudo-likelihood of its complete rows, effective number of
        parameters).

        The number of parameters is tr(K H^-1), with the covariance K of the score and the Hessian
        H.
        """
        # raises a DataError for a sampling design
        check_single_rows(self.survey, "A composite-likelihood criterion")
        rows = self._testable_rows()  # the training rows; an error if their weights are no counts
        self.engine.check_composite()  # raises an OptionError if the method has no such criteria
        # no complete row
        rowless = np.setdiff1d(np.arange(len(self.labels.groups)), rows.complete_rows.response)
        if len(rowless):
            raise DataError(
                f"no row of group {self.labels.groups[rowless[0]]!r} is complete, but composite "
                f"criteria use complete rows only, so that they are the same for all formulas.",
                hint="Compare aic or bic, or fit with missing='level'.",
            )
        return self._inference.composite  # computed with the standard errors
