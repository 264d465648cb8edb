"""Tests and intervals that hold their level: what the rows say of each parameter, or that they cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np

from bbl.boltzmann.inference.strata import MAX_HELD, coupling_family, field_family, pair_strata
from bbl.boltzmann.inference.survey import effective_rows, unpenalised_deviations
from bbl.engines import BASELINE, Engine
from bbl.model.godambe import RowInfluence, term_covariances
from bbl.model.layout import Layout
from bbl.model.moments import level_counts, usable_weight
from bbl.model.regressors import from_sites, regressors
from bbl.model.unpenalised import cell_sizes
from bbl.rows.sample import Sample
from bbl.stats.exact import PowerSeries
from bbl.stats.student import t_quantile, two_sided_p
from bbl.stats.survey.rao_scott import rao_scott_wald
from bbl.stats.survey.sample import SurveySample
from bbl.stats.wald import wald

__all__ = ["CELL", "Comparison", "Evidence", "Kind", "crowded", "evidence", "of_group", "variances"]

# Rows that a cell must be expected to hold, and information that an estimate must have, for a normal distribution. With
# 10 rows its tails are still too thin for Holm's adjustment: 7.5 % in place of 5 over six pairs.
CELL = 20.0  # rows expected in the smallest cell from which on a parameter has a Wald test (benchmarks.coverage)
INFORMATION = 5.0  # inverse variance of a parameter below which it has an exact test (benchmarks.coverage)
ROWS_PER_PARAMETER = 10.0
# The same under a sampling design, where there is no exact test to fall back on: rows count by their effective number
# and tails are those of t (benchmarks.coverage).
SURVEY_CELL = 10.0
SURVEY_INFORMATION = 2.0


class Kind(IntEnum):
    """The test of a parameter, or the reason why it has none."""

    WALD = 0
    EXACT = 1
    FEW = 2
    UNBOUNDED = 3
    ABSENT = 4
    REFERENCE = 5

    @property
    def text(self) -> str:
        """Text of the kind in tables."""
        return (
            "Wald",
            "exact",
            "too few rows to say",
            "not estimable: no finite optimum",
            "not estimable: no such rows",
            "zero: the reference group",
        )[self]


Family = Callable[[int, bool], PowerSeries | None]


@dataclass(frozen=True)
class Evidence:
    """Unpenalised estimates, covariances and kinds of test of the parameters of one group.

    Attributes
    ----------
    layout : Layout
    rows : Sample
    theta : ndarray, shape (layout.size,)
        Optimum without a penalty, where there is one.
    influence : RowInfluence or None
        At that optimum; None for a group without rows.
    terms : list of ndarray
        Covariance of every table.
    kind : ndarray of int8, shape (layout.size,)
        A `Kind` each. EXACT are those that a normal distribution may not be trusted with.
    engine : Engine
        The method of the estimates.
    survey : SurveySample or None
        The sampling design of the rows; then weights of `rows` sum to their effective number.
    deviations : ndarray, shape (u, layout.size), or None
        Under a sampling design, E with ``E'E`` the covariance of the estimates.
    """

    layout: Layout
    rows: Sample
    theta: np.ndarray
    influence: RowInfluence | None
    terms: list[np.ndarray]
    kind: np.ndarray
    engine: Engine = BASELINE
    survey: SurveySample | None = None
    deviations: np.ndarray | None = None

    @cached_property
    def working(self) -> list[np.ndarray]:
        """Covariance of every table as if the effective rows were drawn one by one; empty without a design."""
        return [] if self.deviations is None or not self.influence else self.influence.terms(self.rows)

    @cached_property
    def counts(self) -> np.ndarray:
        """Observations (3, layout.D) at each level other than the reference, at the reference, and at any level."""
        counts = level_counts(self.rows, self.layout.n_levels)
        columns = [np.array([n[1:], np.full(len(n) - 1, n[0]), np.full(len(n) - 1, n.sum())]) for n in counts]
        return np.concatenate(columns, axis=1)

    @cached_property
    def _families(self) -> dict[int, PowerSeries | None]:
        return {}

    @cached_property
    def _strata(self) -> dict[int, np.ndarray | None]:
        return {}

    def family(self, k: int, finite: bool) -> PowerSeries | None:
        """Return the conditional distribution of parameter `k`; None if that tells nothing, or with structural zeros.

        If `finite`, given that its estimate is. Under a sampling design there is none.
        """
        if self.layout.support is not None or self.survey is not None:
            return None
        if k not in self._families:
            layout = self.layout
            if k < layout.D:
                i = int(np.searchsorted(layout.start, k, side="right")) - 1
                self._families[k] = field_family(self.rows, layout, i, k - int(layout.start[i]) + 1)
            else:
                p = int(np.searchsorted(layout.pair_start, k, side="right")) - 1
                self._families[k] = self._coupling(p, k - int(layout.pair_start[p]))
        family = self._families[k]
        return family.inside() if finite and family is not None else family

    def _coupling(self, p: int, at: int) -> PowerSeries | None:
        i, j = (int(v) for v in self.layout.pairs[p])
        if p not in self._strata:
            self._strata.clear()  # of one pair after the other
            self._strata[p] = pair_strata(self.rows, self.layout, i, j)
        number = self._strata[p]
        a, b = divmod(at, int(self.layout.n_levels[j]) - 1)
        return None if number is None else coupling_family(self.rows, number, i, a + 1, j, b + 1)


def variances(terms: list[np.ndarray]) -> np.ndarray:
    """Return the variances (layout.size,) of all parameters."""
    return np.concatenate([t.diagonal() for t in terms])


def evidence(
    sample: Sample,
    layout: Layout,
    start: np.ndarray,
    engine: Engine = BASELINE,
    survey: SurveySample | None = None,
    is_effective: bool = False,
) -> Evidence:
    """Return what the rows of a group say of its parameters.

    Parameters
    ----------
    sample : Sample
    layout : Layout
    start : ndarray, shape (layout.size,)
        Its fitted parameters, with whatever penalty.
    engine : Engine
        Its method, which fits the rows without a penalty (see `Engine.unpenalised`); by default one that does so by
        pseudo-likelihood.
    survey : SurveySample, optional
        The sampling design of the rows.
    is_effective : bool, default False
        Whether rows have the weights of effective rows of a design already, so that its limits hold.
    """
    if survey is not None:
        sample = effective_rows(sample)
    rows = sample.collapsed(layout.n_levels)
    kind = np.full(layout.size, Kind.ABSENT, dtype=np.int8)
    if not rows.n:
        return Evidence(layout, rows, np.zeros(layout.size), None, [], kind, engine, survey)
    wide = regressors(layout)
    columns = 1.0 + wide.mask @ (wide.n_levels - 1)
    enough = usable_weight(rows, layout) >= ROWS_PER_PARAMETER * columns
    sites = np.flatnonzero(enough & (layout.n_levels > 1))
    theta, is_determined, influence = start, np.zeros(layout.size, dtype=bool), None
    if enough.any():
        theta, is_determined, influence = engine.unpenalised(rows, layout, start, sites)
    terms, deviations = influence.terms(rows) if influence else [], None
    cell, information = CELL, INFORMATION
    if survey is not None or is_effective:
        cell, information = SURVEY_CELL, SURVEY_INFORMATION
    if survey is not None and influence:
        deviations = unpenalised_deviations(influence, sample, theta, sites, engine, survey)
        terms = term_covariances(layout, [(deviations, np.ones(len(deviations)))])
    is_fitted = np.repeat(enough, layout.n_levels - 1).astype(float)
    all_of_them = from_sites(layout, np.broadcast_to(is_fitted[:, None], (layout.D, 1 + wide.D))) == 1.0
    least, absent = cell_sizes(rows, layout)
    expected = np.concatenate([np.full(layout.D, np.inf), least])
    kind[:] = Kind.WALD
    kind[~all_of_them | (expected < cell)] = Kind.EXACT
    if influence:
        kind[variances(terms) > 1.0 / information] = Kind.EXACT
    if survey is not None and survey.df < 1:
        kind[:] = Kind.FEW
    if deviations is not None:
        kind[~np.isfinite(deviations).all(axis=0)] = Kind.FEW  # too few replicates have an estimate
    kind[crowded(layout) & (kind == Kind.EXACT)] = Kind.FEW
    kind[all_of_them & ~is_determined] = Kind.UNBOUNDED
    counts = level_counts(rows, layout.n_levels)
    kind[np.concatenate([*((n[1:] == 0) | (n[0] == 0) for n in counts), absent])] = Kind.ABSENT
    return Evidence(layout, rows, theta, influence, terms, kind, engine, survey, deviations)


def crowded(layout: Layout) -> np.ndarray:
    """Return which parameters have no exact test.

    Couplings of three predictors and more, those for which it would fix too many predictors, and all parameters of a
    model with structural zeros.
    """
    if layout.support is not None:
        return np.ones(layout.size, dtype=bool)
    degree = layout.mask.sum(axis=1)[layout.pairs].min(axis=1, initial=layout.m) - 1
    out = np.zeros(layout.size, dtype=bool)
    out[layout.D : layout.pair_start[-1]] = np.repeat(degree > MAX_HELD, np.diff(layout.pair_start))
    out[layout.pair_start[-1] :] = True
    return out


@dataclass(frozen=True)
class Comparison:
    """The null hypothesis that the parameters of a group, or the differences of two sets of them, are zero.

    Attributes
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
        Estimates of what is zero if the hypothesis holds.
    terms : list of ndarray
        Covariance of every table; empty where nothing has a normal distribution.
    kind : ndarray of int8, shape (layout.size,)
    family : callable
        Number of a parameter, and whether given a finite estimate, to its exact conditional distribution.
    to_limits : callable, optional
        Limits (layout.size,) of what `theta` estimates to those of the difference that is asked for, which has the same
        sign; by default the two are the same.
    df : float
        Degrees of freedom of the covariances; infinity unless they are those of a sampling design.
    working : list of ndarray
        Covariances of every table without the sampling design; empty without a design.
    """

    layout: Layout
    theta: np.ndarray
    terms: list[np.ndarray]
    kind: np.ndarray
    family: Family
    to_limits: Callable[[np.ndarray], np.ndarray] | None = None
    df: float = np.inf
    working: list[np.ndarray] = field(default_factory=list)

    @cached_property
    def exact(self) -> dict[int, PowerSeries]:
        """Distributions of the parameters that have an exact test."""
        families = {}
        for k in np.flatnonzero(self.kind == Kind.EXACT):
            family = self.family(int(k), True)
            if family is not None and len(family.log_c) > 1:
                families[int(k)] = family
        return families

    @cached_property
    def verdict(self) -> np.ndarray:
        """The `kind` of each parameter; FEW if the exact distribution is degenerate."""
        kind = self.kind.copy()
        kind[kind == Kind.EXACT] = Kind.FEW
        kind[list(self.exact)] = Kind.EXACT
        return kind

    @cached_property
    def z(self) -> np.ndarray:
        """Estimate without a penalty over its standard error; nan without a Wald test."""
        z = np.full(self.layout.size, np.nan)
        normal = self.verdict == Kind.WALD
        if normal.any():
            z[normal] = self.theta[normal] / np.sqrt(variances(self.terms)[normal])
        return z

    @cached_property
    def p(self) -> np.ndarray:
        """Two-sided p-value of every parameter; nan where there is no test."""
        p = two_sided_p(self.z, self.df)
        for k, family in self.exact.items():
            p[k] = family.p()
        return p

    @property
    def unpenalised(self) -> np.ndarray:
        """Estimates without a penalty; nan without a test, or where it is of something else of the same sign."""
        tested = self.verdict <= Kind.EXACT if self.to_limits is None else np.zeros(self.layout.size, dtype=bool)
        return np.where(tested, self.theta, np.nan)

    def limits(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the confidence limits of every parameter; nan where there is no test."""
        lower, upper = np.full((2, self.layout.size), np.nan)
        normal = self.verdict == Kind.WALD
        if normal.any():
            half = t_quantile(0.5 + level / 2, self.df) * np.sqrt(variances(self.terms)[normal])
            lower[normal], upper[normal] = self.theta[normal] - half, self.theta[normal] + half
        for k, family in self.exact.items():
            lower[k], upper[k] = family.limits(level)
        if self.to_limits is not None:
            return self.to_limits(lower), self.to_limits(upper)
        return lower, upper

    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Test every table (fields of a predictor, couplings of a pair) as a whole.

        Returns
        -------
        statistic, df, p : ndarray
            Joint Wald test of those parameters of a table that have one; where none has, the smallest exact p-value
            times their number, without a statistic. That takes no finite estimates: rows of which two levels never
            go together, though expected to, tell of an interaction whatever its strength. Under a sampling design the
            Wald test of the `working` covariance, corrected by Rao & Scott.
        words : ndarray of str
            How it was tested, or why it was not.
        """
        layout, verdict = self.layout, self.verdict
        cuts = layout.cuts
        normal = verdict == Kind.WALD
        count = np.add.reduceat(np.append(normal, False), cuts[:-1]) * (np.diff(cuts) > 0)
        statistic, p = np.full((2, len(count)), np.nan)
        df = np.zeros(len(count), dtype=np.intp)
        tested = np.flatnonzero(count)
        chosen = [normal[cuts[k] : cuts[k + 1]] for k in tested]
        parts = [self.theta[cuts[k] : cuts[k + 1]][c] for k, c in zip(tested, chosen, strict=True)]
        blocks = [self.terms[k][np.ix_(c, c)] for k, c in zip(tested, chosen, strict=True)]
        if self.working:
            working = [self.working[k][np.ix_(c, c)] for k, c in zip(tested, chosen, strict=True)]
            statistic[tested], df[tested], p[tested] = rao_scott_wald(parts, blocks, working, self.df)
        else:
            statistic[tested], df[tested], p[tested] = wald(parts, blocks)
        table_of = np.repeat(np.arange(len(count)), np.diff(cuts))
        alone: dict[int, list[float]] = {}
        for k in np.flatnonzero((count[table_of] == 0) & ~crowded(layout)):
            family = self.family(int(k), False)
            if family is not None and len(family.log_c) > 1:
                alone.setdefault(int(table_of[k]), []).append(family.p())
        for at, exact_tests in alone.items():
            p[at], df[at] = min(1.0, min(exact_tests) * len(exact_tests)), len(exact_tests)
        return statistic, df, p, self._words(cuts, count, df)

    def _words(self, cuts: np.ndarray, count: np.ndarray, df: np.ndarray) -> np.ndarray:
        size = np.diff(cuts)
        # what cannot be estimated is said of a table only if it is all there is
        least = np.minimum.reduceat(np.append(self.verdict, max(Kind)), cuts[:-1])
        kinds = np.where(size > 0, least, Kind.ABSENT)
        kinds[(df > 0) & (count == 0)] = Kind.EXACT
        words = np.array([kind.text for kind in Kind], dtype=object)[kinds]
        words[(kinds == Kind.WALD) & bool(self.working)] = "Rao-Scott"
        for k in np.flatnonzero((df > 0) & (df < size)):
            words[k] += f", {df[k]} of {size[k]}"
        return words


def of_group(group: Evidence) -> Comparison:
    """Return the test of a group's own parameters."""
    df = np.inf if group.survey is None else group.survey.df
    return Comparison(group.layout, group.theta, group.terms, group.kind, group.family, df=df, working=group.working)
