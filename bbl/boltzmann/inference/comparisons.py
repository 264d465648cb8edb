"""Tests of differences between groups, and of each group from the pooled fit, judged by the rows of both sides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from bbl.boltzmann.inference.covariance import sandwich_of_shift
from bbl.boltzmann.inference.significance import CELL, Comparison, Evidence, Family, Kind, crowded, evidence, variances
from bbl.model.godambe import term_covariances
from bbl.rows.sample import Sample
from bbl.stats.exact import PowerSeries, hypergeometric
from bbl.stats.odds import least_cells, shifts_from_pooled
from bbl.stats.shift import Shift

__all__ = ["compare_groups", "compare_pooled"]

# Information that both sides need for a normal distribution of a difference from the pooled fit, which is not linear in
# the parameters of the smaller side. With 5, up to 1 % of p-values of fields are below .001, and up to .4 % of those of
# couplings (6.7 % below .05), the most in three and more groups with couplings of -1.3 and less.
INFORMATION_OF_FIELDS = 20.0
INFORMATION_OF_COUPLINGS = 10.0
LONGEST_SUPPORT = 20_000


def compare_groups(one: Evidence, other: Evidence) -> Comparison:
    """Return the test of the difference of two groups, which share no rows.

    Fields of predictors without interactions are tested by counts of levels, see `_with_odds_ratios`.
    """
    if one.survey is not None:
        return _under_design(one, other)
    # covariances of independent estimates add
    covariances = [a + b for a, b in zip(one.terms, other.terms, strict=True)] if one.terms and other.terms else []
    kind = np.maximum(one.kind, other.kind)  # the more cautious kind of test
    layout = one.layout if one.layout.support is not None else other.layout  # structural zeros of either count
    difference = Comparison(layout, one.theta - other.theta, covariances, kind, partial(_difference, one, other))
    return _with_odds_ratios(difference, one.counts, other.counts, _uncoupled([one, other]))


def compare_pooled(groups: list[Evidence], pooled: Evidence) -> list[Comparison]:
    """Return the tests of the difference of each group from the pooled fit.

    The log odds of a level are those of all groups together if and only if they are those of the other groups together.
    So the field of a predictor without interactions has the test of two groups, the second being all others. Parameters
    of interacting predictors have Wald tests of their own: couplings of two groups can be equal and differ from those
    of both together (Simpson's paradox). Where rows are too few for that, they have the exact test of the group against
    all others: what the difference from the pooled fit would be if there were none depends on the margins of the
    tables, which exact distributions hold fixed, so that of a coupling there are no limits. With structural zeros there
    are no exact tests.
    """
    if pooled.survey is not None:
        return [_under_design(group, pooled, _rest(groups, at, pooled)) for at, group in enumerate(groups)]
    layout, with_rows = pooled.layout, [(g.influence, g.rows) for g in groups if g.influence]
    counts = np.array([g.counts for g in groups])
    shifts = iter(sandwich_of_shift(layout, with_rows, pooled.influence) if pooled.influence else [])
    uncoupled = _uncoupled([*groups, pooled])
    has_zeros = any(side.layout.support is not None for side in (*groups, pooled))
    has_no_exact_test = crowded(layout) | has_zeros
    comparisons = []
    for at, group in enumerate(groups):
        terms = next(shifts) if group.influence and pooled.influence else []
        kind, limits = np.maximum(group.kind, pooled.kind), None
        family: Family = _no_family
        if layout.size > layout.D or has_zeros:
            others_evidence = _rest(groups, at, pooled)
            kind = np.maximum(kind, others_evidence.kind)
            uneven = _uneven((group, others_evidence), pooled) & (kind == Kind.WALD)
            kind[uneven] = np.where(has_no_exact_test, Kind.FEW, Kind.EXACT)[uneven]
            kind[has_zeros & (kind == Kind.EXACT)] = Kind.FEW
            errors = np.sqrt(variances(terms)) if terms else np.full(layout.size, np.nan)
            family, limits = partial(_difference, group, others_evidence), _FieldLimits(group, others_evidence, errors)
        shift = Comparison(layout, group.theta - pooled.theta, terms, kind, family)
        shift = _with_odds_ratios(shift, counts[at], counts.sum(axis=0) - counts[at], uncoupled)
        comparisons.append(replace(shift, to_limits=partial(_shift_limits, counts, at, limits, shift, uncoupled)))
    return comparisons


def _under_design(one: Evidence, other: Evidence, rest: Evidence | None = None) -> Comparison:
    """Return the test of a difference under a sampling design, by which estimates of groups are dependent.

    A difference from the pooled fit is as uncertain as what the `rest` of the groups say.
    """
    layout, kind = one.layout, np.maximum(one.kind, other.kind)
    if rest is not None:
        kind = np.maximum(kind, rest.kind)
    if one.deviations is None or other.deviations is None or one.survey is None or other.survey is None:
        return Comparison(layout, one.theta - other.theta, [], kind, _no_family)
    deviations = one.deviations - other.deviations
    terms = term_covariances(layout, [(deviations, np.ones(len(deviations)))])
    working = [a + b for a, b in zip(one.working, other.working, strict=True)]
    both = replace(one.survey, rows=np.union1d(one.survey.rows, other.survey.rows))
    return Comparison(layout, one.theta - other.theta, terms, kind, _no_family, df=both.df, working=working)


def _rest(groups: list[Evidence], at: int, pooled: Evidence) -> Evidence:
    """Return what the rows of all groups but one say."""
    other_groups = [g for k, g in enumerate(groups) if k != at]
    if len(other_groups) == 1:
        return other_groups[0]
    rows = _merge([g.rows for g in other_groups])
    return evidence(rows, pooled.layout, pooled.theta, pooled.engine, is_effective=pooled.survey is not None)


def _merge(samples: list[Sample]) -> Sample:
    """Return the rows of several samples as one."""
    codes, weights = (np.concatenate(parts) for parts in zip(*((s.codes, s.weights) for s in samples), strict=True))
    if all(s.complete for s in samples):
        return Sample(codes, weights)
    gaps = [np.zeros(s.codes.shape, dtype=bool) if s.missing is None else s.missing for s in samples]
    return Sample(codes, weights, None, np.concatenate(gaps))


def _uneven(sides: tuple[Evidence, Evidence], pooled: Evidence) -> np.ndarray:
    """Return which parameters have too little information on one side for a normal shift from the pooled fit.

    That is the information of the estimate, and that which as many rows of all groups together would have. The first
    alone is largest where rare levels go together more often than expected by chance, so limits would be there only
    where they miss.
    """
    layout = pooled.layout
    least = np.where(np.arange(layout.size) < layout.D, INFORMATION_OF_FIELDS, INFORMATION_OF_COUPLINGS)
    uneven = np.zeros(layout.size, dtype=bool)
    for side in sides:
        if side.terms and pooled.terms:
            expected = variances(pooled.terms) * (pooled.rows.total / side.rows.total)
            uneven |= np.maximum(variances(side.terms), expected) > 1.0 / least
    return uneven


def _difference(one: Evidence, other: Evidence, k: int, finite: bool) -> PowerSeries | None:
    """Return the exact distribution of the difference of parameter k; None without one. See `Evidence.family`."""
    first, second = one.family(k, finite), other.family(k, finite)
    return None if first is None or second is None else first.less(second)


def _no_family(k: int, finite: bool) -> PowerSeries | None:
    return None


@dataclass(frozen=True)
class _FieldLimits:
    """Limits of the shifts of fields from the pooled fit, by exact distributions.

    If the model is right, the pooled field is that of the group if and only if it is that of the others.

    Attributes
    ----------
    group, rest : Evidence
        Of a group, and of all other groups together.
    errors : ndarray, shape (layout.size,)
        Standard errors of the shifts; nan where there is none.
    """

    group: Evidence
    rest: Evidence
    errors: np.ndarray

    @cached_property
    def _shifts(self) -> dict[int, Shift | None]:
        return {}

    def at(self, k: int, limit: float) -> float:
        """Return the shift of field `k` at a limit of the difference of the group and the others."""
        if k not in self._shifts:
            one, others_family = (side.family(k, False) for side in (self.group, self.rest))
            self._shifts[k] = None if one is None or others_family is None else Shift.of(one, others_family)
        shift = self._shifts[k]
        return np.nan if shift is None else shift.at(limit, float(self.errors[k]))


def _uncoupled(sides: list[Evidence]) -> np.ndarray:
    """Return the predictors without interactions, and without structural zeros together with others."""
    return np.flatnonzero(~np.any([side.layout.joined.any(axis=1) for side in sides], axis=0))


def _with_odds_ratios(comparison: Comparison, one: np.ndarray, other: np.ndarray, uncoupled: np.ndarray) -> Comparison:
    """Return a comparison in which the fields of predictors without interactions are tested by counts of levels.

    The 2 x 2 tables of two samples by level and reference level decide how: the normal distribution of the log odds
    ratio where no cell holds fewer than `CELL` rows, nor would if the odds were the same; else Fisher's distribution.

    Parameters
    ----------
    comparison : Comparison
    one, other : ndarray, shape (3, layout.D)
        As `Evidence.counts`, of the two samples.
    uncoupled : ndarray of int
        The predictors without interactions.
    """
    layout, at = comparison.layout, comparison.layout.columns(uncoupled)
    cells = np.stack([one[:2], other[:2]])
    dense = least_cells(*cells) >= CELL
    kind, theta = comparison.kind.copy(), comparison.theta.copy()
    terms = list(comparison.terms) or [np.full((q, q), np.nan) for q in np.diff(layout.cuts)]
    kind[at] = np.where((cells == 0.0).any(axis=(0, 1)), Kind.ABSENT, np.where(dense, Kind.WALD, Kind.EXACT))[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_odds, inverse = np.log(cells[:, 0]) - np.log(cells[:, 1]), 1.0 / cells
        theta[at] = (log_odds[0] - log_odds[1])[at]
        for i in uncoupled:
            level, reference = inverse[..., layout.start[i] : layout.start[i + 1]].sum(axis=0)
            terms[i] = np.diag(level) + reference
    family = partial(_fisher, set(at.tolist()), cells, comparison.family)
    return replace(comparison, kind=kind, theta=theta, terms=terms, family=family)


def _fisher(uncoupled: set[int], cells: np.ndarray, otherwise: Family, k: int, finite: bool) -> PowerSeries | None:
    """Return Fisher's distribution for the field `k` of a predictor without interactions, else that of `otherwise`."""
    if k not in uncoupled:
        return otherwise(k, finite)
    table = cells[..., k]
    margins = table[0].sum(), table[:, 0].sum(), table.sum()
    if not 0 < min(margins[:2]) - max(0.0, margins[0] + margins[1] - margins[2]) < LONGEST_SUPPORT:
        return None
    family = hypergeometric(*(np.array([count]) for count in (table[0, 0], *margins)))
    return family.inside() if finite else family


def _shift_limits(
    counts: np.ndarray,
    g: int,
    field_limits: _FieldLimits | None,
    shift: Comparison,
    uncoupled: np.ndarray,
    limits: np.ndarray,
) -> np.ndarray:
    """Return limits of the difference of group `g` from the pooled fit, given limits of the tested difference."""
    at, limits = shift.layout.columns(uncoupled), limits.copy()
    limits[at] = shifts_from_pooled(limits[at], counts[:, :2, at], counts[:, 2, at], g)
    if field_limits is not None:
        for k in np.setdiff1d(np.flatnonzero(shift.verdict == Kind.EXACT), at).tolist():
            limits[k] = field_limits.at(k, float(limits[k])) if k < shift.layout.D else np.nan
    return limits
