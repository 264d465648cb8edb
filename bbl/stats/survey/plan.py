"""`SamplingPlan`: strata, clusters and finite populations, and design covariances of totals.

*Units* are drawn at each stage: first clusters within strata, then clusters within clusters, and
finally rows.

A unit is *lonely* if it is the only unit drawn from a stratum or cluster with several units.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bbl.memory import check_memory

__all__ = ["LONELY", "SamplingPlan"]

LONELY = ("error", "adjust", "remove", "average")


class _Stage(NamedTuple):
    """One sampling stage, with u units in q strata or clusters."""

    parent: np.ndarray  # (u,): stratum or cluster of each unit
    n_drawn: np.ndarray  # (q,): number of units drawn from each stratum or cluster
    share: np.ndarray  # (q,): proportion of units drawn; 0 without a finite population
    shares_before: np.ndarray  # (q,): product of these proportions over earlier stages

    @property
    def is_lonely(self) -> np.ndarray:
        """Whether each stratum or cluster (q,) has a lonely unit."""
        return (self.n_drawn == 1) & (self.share < 1.0)


@dataclass(frozen=True)
class SamplingPlan:
    """Sampling plan of n rows.

    Attributes
    ----------
    weights : ndarray, shape (n,)
        Positive sampling weights.
    strata : ndarray of intp, shape (n,)
        Stratum of each row, numbered from 0.
    clusters : tuple of ndarray of intp, shape (n,)
        For each stage, the unit of each row, numbered from 0 over all units of the stage.
    population : tuple of ndarray, shape (n,), or None
        For each stage, the population size (number of units) of the row's stratum or cluster; None
        for sampling with replacement, where only the first stage contributes to the variance.
    lonely : {"error", "adjust", "remove", "average"}
        Contribution of strata with a lonely unit to the variance. "error": zero, because callers
        check `lonely_strata` and raise an error; "adjust": the squared deviation of the unit's
        total from 0; "remove": zero; "average": the mean contribution of the other strata at the
        first stage (nan if there are none), and zero at later stages.
    """

    weights: np.ndarray
    strata: np.ndarray
    clusters: tuple[np.ndarray, ...]
    population: tuple[np.ndarray, ...] | None = None
    lonely: str = "error"

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.weights)

    @property
    def units(self) -> np.ndarray:
        """Unit (n,) of each row at the last stage that contributes to the variance."""
        return self.clusters[0 if self.population is None else -1]

    @property
    def n_units(self) -> int:
        """Number of distinct `units`."""
        return int(self.units.max(initial=-1)) + 1  # 0 without rows

    @cached_property
    def _stages(self) -> list[_Stage]:
        """Stages that contribute to the variance: only the first stage if sampling is with
        replacement.
        """
        # row_parents (n,): the stratum, or the unit of the previous stage, of each row's unit
        stages = []
        row_parents = self.strata
        shares_before = np.ones(int(self.strata.max(initial=-1)) + 1)
        for k in range(1 if self.population is None else len(self.clusters)):
            row_units = self.clusters[k]
            first_row = _first_rows(row_units)  # first row of each unit
            parent = row_parents[first_row]
            n_drawn = np.bincount(parent, minlength=len(shares_before)).astype(float)
            share = np.zeros(len(shares_before))
            if self.population is not None:
                share[parent] = n_drawn[parent] / self.population[k][first_row]
            stages.append(_Stage(parent, n_drawn, share, shares_before))
            row_parents = row_units
            shares_before = (shares_before * share)[parent]
        return stages

    @property
    def lonely_strata(self) -> tuple[int, np.ndarray]:
        """First stage with lonely units, and the strata or clusters that contain them (an empty
        array if there are no lonely units).
        """
        for k, stage in enumerate(self._stages):
            if stage.is_lonely.any():
                return k, np.flatnonzero(stage.is_lonely)
        return 0, np.zeros(0, dtype=np.intp)

    @property
    def is_census(self) -> bool:
        """Whether the sample includes the entire population, so that the sampling error is zero."""
        return self.population is not None and all(
            bool((stage.share[stage.n_drawn > 0] >= 1.0).all()) for stage in self._stages
        )

    @property
    def oversampled_stage(self) -> tuple[int, int] | None:
        """First stage where a stratum or cluster has more units than its population, and the
        position of a row in it; None if there is no such stage.
        """
        for k, stage in enumerate(self._stages):
            if (stage.share > 1.0).any():
                unit = int((stage.share[stage.parent] > 1.0).argmax())
                return k, int((self.clusters[k] == unit).argmax())
        return None

    @property
    def uneven_stage(self) -> tuple[int, int, int] | None:
        """First stage where population sizes differ within a stratum or cluster, or None.

        The positions of two rows with different sizes are also included.
        """
        row_parents = self.strata
        for k, population in enumerate(self.population or ()):
            first_row = _first_rows(row_parents)[row_parents]
            differs = population != population[first_row]
            if differs.any():
                row = int(differs.argmax())
                return k, int(first_row[row]), row
            row_parents = self.clusters[k]
        return None

    def degrees_of_freedom(self, rows: np.ndarray | slice = slice(None)) -> int:
        """Return the number of first-stage clusters minus the number of strata.

        Only clusters and strata that contain `rows` of a domain are counted.
        """
        return len(np.unique(self.clusters[0][rows])) - len(np.unique(self.strata[rows]))

    def totals(self, values: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        """Add values (k, p) of the rows at positions `rows` (k,) to the unit totals `out`.

        `out` (n_units, p) is modified in place. Values must already be multiplied by the weights of
        the rows.
        """
        from scipy.sparse import csr_matrix

        # row_unit (k,): positions in `units`
        units, row_unit = np.unique(self.units[rows], return_inverse=True)
        indicator = csr_matrix(
            (np.ones(len(rows)), (row_unit.ravel(), np.arange(len(rows)))), (len(units), len(rows))
        )
        out[units] += indicator @ values

    def deviations(self, totals: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return a matrix E (., p) such that ``E'E`` is the covariance of the sum of unit totals.

        Unit totals have shape (n_units, p). Each stage contributes
        ``(1 - f) u/(u - 1) sum (t - mean t)(t - mean t)'`` over the u units in each stratum or
        cluster, where f is the proportion of units drawn. The contribution is multiplied by the
        proportions of earlier stages (Särndal, Swensson & Wretman 1992, section 4.3). With
        ``lonely="average"``, the average is over the strata that contain `rows` of the domain.
        """
        stage_deviations = []
        # last stage first; unit totals are then summed within the units of the previous stage
        for k, stage in reversed(list(enumerate(self._stages))):
            # bytes for the unit totals and their deviations
            check_memory(
                16.0 * totals.size, f"Totals of {len(totals):,} clusters", "Use fewer predictors."
            )
            stage_deviations.append(
                self._centre_totals(stage, totals, self.strata[rows] if not k else None)
            )
            if k:
                totals = _sum_by(stage.parent, totals, len(stage.n_drawn))
        return np.concatenate(stage_deviations)

    def _centre_totals(
        self, stage: _Stage, totals: np.ndarray, strata: np.ndarray | None
    ) -> np.ndarray:
        """Return the rows of `deviations` for a stage, given its unit totals (u, p).

        `strata` contains the strata of the rows of the domain at the first stage, and is None at
        later stages.
        """
        lonely = stage.is_lonely
        n_drawn = stage.n_drawn
        # (q,): factor of the squared deviations in each stratum or cluster
        factor = (
            stage.shares_before * (1.0 - stage.share) * n_drawn / np.maximum(n_drawn - 1.0, 1.0)
        )
        mean = _sum_by(stage.parent, totals, len(n_drawn)) / np.maximum(n_drawn, 1.0)[:, None]
        if self.lonely == "adjust":
            # replaces the stratum's mean by the mean of all scores, whose sum is 0
            mean[lonely] = 0.0
        else:
            factor[lonely] = 0.0
        if self.lonely == "average" and strata is not None:
            has_rows = np.bincount(strata, minlength=len(n_drawn)) > 0
            # strata with a lonely unit contribute the mean of the other strata, whose weights are
            # increased
            n_averaged = int((has_rows & ~lonely).sum())
            if not n_averaged:  # no other strata
                return np.full((1, totals.shape[1]), np.nan)
            factor *= has_rows.sum() / n_averaged
        contributes = factor[stage.parent] > 0.0
        parent = stage.parent[contributes]
        return (totals[contributes] - mean[parent]) * np.sqrt(factor[parent])[:, None]


def _first_rows(codes: np.ndarray) -> np.ndarray:
    """Return the position of the first row with each code in `codes` (n,)."""
    return np.unique(codes, return_index=True)[1]


def _sum_by(groups: np.ndarray, values: np.ndarray, n_groups: int) -> np.ndarray:
    """Return the sums (n_groups, p) of the rows of `values` (n, p) within `groups` (n,)."""
    from scipy.sparse import csr_matrix

    n = len(groups)
    return csr_matrix((np.ones(n), (groups, np.arange(n))), (n_groups, n)) @ values
