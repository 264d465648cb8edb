"""`SurveySample`: sampling design of all N rows of a table, and the rows used in a fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bbl.errors import DataError
from bbl.stats.survey.plan import SamplingPlan
from bbl.stats.survey.replicates import Replicates

__all__ = ["SurveySample", "check_single_rows", "have_same_design"]


@dataclass(frozen=True)
class SurveySample:
    """Sampling design of N rows, and the positions of a domain of n rows.

    Rows outside the domain have zero scores, but their clusters and strata contribute to the
    variance.

    Attributes
    ----------
    plan : SamplingPlan
        Sampling plan of all N rows.
    replicates : Replicates or None
        Replicate weights of all N rows; None if covariances are estimated by linearisation.
    rows : ndarray of intp, shape (n,)
        Positions of the rows in the domain.
    fitted_rows : ndarray of intp or None
        Positions of all fitted rows if `rows` contains the rows of one response group; otherwise
        None. With ``lonely="average"``, the average is over the strata of the fit, so a stratum is
        counted even if its lonely cluster does not contain any rows of the group.
    """

    plan: SamplingPlan
    replicates: Replicates | None
    rows: np.ndarray
    fitted_rows: np.ndarray | None = None

    def of_group(self, selected: np.ndarray) -> SurveySample:
        """Return the rows of a response group, which are `selected` by a mask (n,) or positions."""
        fitted_rows = self.rows if self.fitted_rows is None else self.fitted_rows
        return replace(self, rows=self.rows[selected], fitted_rows=fitted_rows)

    def deviations(self, totals: np.ndarray) -> np.ndarray:
        """Return a matrix E (., p) such that ``E'E`` is the covariance of the sum of unit totals.

        Unit totals have shape (n_units, p); see `SamplingPlan.deviations`.
        """
        rows = self.rows if self.fitted_rows is None else self.fitted_rows
        return self.plan.deviations(totals, rows)

    def only(self, selected: np.ndarray) -> SurveySample:
        """Return a smaller domain with the rows that are `selected` by a mask (n,) or positions."""
        return replace(self, rows=self.rows[selected])

    def of_rows(self, rows: np.ndarray, weights: np.ndarray) -> SurveySample:
        """Return the design of the fitted rows at positions `rows` (n,), with encoded `weights`
        (n,).

        Sampling weights are replaced by `weights`. Replicate weights are divided by a common
        factor, so their sums over the rows have mean ``weights.sum()``.
        """
        unit = self.plan.weights[rows[0]] / weights[0]
        plan = replace(self.plan, weights=self.plan.weights / unit)
        replicates = self.replicates
        if replicates is not None:
            mean_total = replicates.weights[rows].sum(axis=0).mean()
            scale = weights.sum() / mean_total if mean_total > 0.0 else 1.0
            replicates = replace(replicates, weights=replicates.weights * scale)
        return replace(self, plan=plan, replicates=replicates, rows=rows)

    @cached_property
    def df(self) -> int:
        """Degrees of freedom: the number of clusters minus the number of strata, or the rank of the
        replicate weights minus 1.
        """
        # rank for replicates, clusters minus strata for the plan
        return (self.replicates or self.plan).degrees_of_freedom(self.rows)

    @property
    def clusters(self) -> np.ndarray:
        """First-stage cluster (n,) of each row in the domain."""
        return self.plan.clusters[0][self.rows]

    @property
    def strata(self) -> np.ndarray:
        """Stratum (n,) of each row in the domain."""
        return self.plan.strata[self.rows]

    def __repr__(self) -> str:
        return f"<Sampling design of {len(self.rows):,} rows: {self.text}>"

    @property
    def errors(self) -> str:
        """Method of the standard errors, as the start of a sentence."""
        method = "Linearised" if self.replicates is None else "Replicate"
        return f"{method} standard errors, which account for the sampling design ({self.text})"

    @property
    def text(self) -> str:
        """Description of the design for summaries."""
        n_strata = len(np.unique(self.strata))
        n_clusters = len(np.unique(self.clusters))
        words = [f"{n_strata:,} strata"] if n_strata > 1 else []
        noun = "single row" if n_clusters == len(self.rows) else "cluster"
        words += [f"{n_clusters:,} {noun}{'s' * (n_clusters != 1)}"]
        if self.plan.population is not None:
            words.append("finite populations")
        if self.replicates is not None:
            words = [f"{self.replicates.weights.shape[1]:,} replicates"]
        return f"{', '.join(words)}; {self.df:,} degrees of freedom"


def have_same_design(one: SurveySample | None, other: SurveySample | None) -> bool:
    """Return whether two fits have the same sampling design and use the same rows."""
    if one is None or other is None:
        return one is other
    # `lonely`: the rule for strata with a single drawn unit
    return one.plan.lonely == other.plan.lonely and all(
        map(np.array_equal, _list_arrays(one), _list_arrays(other))
    )


def _list_arrays(survey: SurveySample) -> list[np.ndarray]:
    """Return the arrays of a design: rows, weights, strata, populations, replicates and clusters.

    Absent parts are empty.
    """
    plan = survey.plan
    replicates = survey.replicates
    scales = (
        np.zeros(0)
        if replicates is None
        else np.append(replicates.rscales * replicates.scale, replicates.mse)
    )
    return [
        survey.rows,
        plan.weights,
        plan.strata,
        np.array(plan.population or ()),
        np.array(plan.clusters),
        np.zeros(0) if replicates is None else replicates.weights,
        scales,
    ]


def check_single_rows(
    survey: SurveySample | None,
    what: str,
    *,
    hint: str = "Use inference(), whose tests account for the design.",
) -> None:
    """Raise a DataError if there is a sampling design.

    `what` is the beginning of the message and names the method that ignores the design. `hint`
    names an alternative.
    """
    if survey is not None:
        raise DataError(
            f"{what} assumes independently sampled rows, but this model was fitted with a "
            "sampling design.",
            hint=hint,
        )
