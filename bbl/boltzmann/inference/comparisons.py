"""Tests of differences between groups and between each group and the pooled fit.

D is the number of fields. A *family* is the exact conditional distribution of a parameter, as a
function of the parameter's value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from bbl.boltzmann.inference.covariance import sandwich_of_shift
from bbl.boltzmann.inference.significance import (
    CELL,
    Comparison,
    Evidence,
    Family,
    Kind,
    evidence,
    lacks_exact_test,
    variances,
)
from bbl.model.godambe import term_covariances
from bbl.model.moments import level_counts
from bbl.model.scores import score_information
from bbl.rows.sample import Sample
from bbl.stats.exact import PowerSeries, hypergeometric
from bbl.stats.odds import least_cells, shifts_from_pooled
from bbl.stats.shift import Shift

__all__ = ["compare_groups", "compare_pooled", "no_family"]

# Information (inverse variance) that both sides require for a normal approximation to a difference
# from the pooled fit, which is nonlinear in the parameters of the smaller side. With 5, up to 1 %
# of the p-values of fields are below 0.001, and up to 0.4 % for couplings (6.7 % below 0.05); the
# worst cases have three or more groups with couplings below -1.3.
INFORMATION_OF_FIELDS = 20.0
INFORMATION_OF_COUPLINGS = 10.0
LONGEST_SUPPORT = 20_000  # exact distributions with this many values are not computed


def compare_groups(one: Evidence, other: Evidence, pooled: Evidence | None = None) -> Comparison:
    """Test the differences between two groups, which have no rows in common.

    Fields of predictors without interactions are tested with level counts (see
    `_with_odds_ratios`). Other parameters have Wald tests under the same conditions as in
    `compare_pooled`. With two groups, both tables therefore use the same kind of test. `pooled` is
    the evidence from all rows. Without it, the information in each group is computed from the
    group's own estimates only.
    """
    if one.survey is not None:
        return _compare_under_design(one, other)
    # covariances of independent estimates add
    covariances = (
        [a + b for a, b in zip(one.terms, other.terms, strict=True)]
        if one.terms and other.terms
        else []
    )
    kind = np.maximum(one.kind, other.kind)  # the more cautious kind of test
    # the layout with structural zeros, if any
    layout = one.layout if one.layout.support is not None else other.layout
    lacks_information = _lacks_information((one, other), pooled) & (kind == Kind.WALD)
    kind[lacks_information & ~lacks_exact_test(layout)] = Kind.EXACT
    difference = Comparison(
        layout, one.theta - other.theta, covariances, kind, partial(_difference_family, one, other)
    )
    return _with_odds_ratios(
        difference, one.counts, other.counts, _uncoupled_predictors([one, other])
    )


def compare_pooled(groups: list[Evidence], pooled: Evidence) -> list[Comparison]:
    """Test the differences between each group and the pooled fit.

    If a predictor has no interactions, its log odds in a group equal the pooled log odds if and
    only if they equal the log odds in all other groups together. The fields of such predictors are
    therefore tested against all other groups. Predictors with interactions have separate Wald
    tests, because couplings may be equal in two groups and differ from the pooled coupling
    (Simpson's paradox). If there are too few rows for a Wald test, the exact test against all other
    groups is used. Exact distributions are conditional on the margins. The difference between a
    coupling and the pooled coupling depends on the margins, so confidence limits are not available
    for such couplings. Exact tests do not apply to models with structural zeros.
    """
    if pooled.survey is not None:
        return [
            _compare_under_design(group, pooled, _evidence_of_others(groups, g, pooled))
            for g, group in enumerate(groups)
        ]
    layout = pooled.layout
    influences = [(side.influence, side.rows) for side in groups if side.influence]
    counts = np.array([side.counts for side in groups])
    # one item for each group with a fit, in order
    shift_covariances = iter(
        sandwich_of_shift(layout, influences, pooled.influence) if pooled.influence else []
    )
    uncoupled = _uncoupled_predictors([*groups, pooled])
    has_zeros = any(side.layout.support is not None for side in (*groups, pooled))
    has_no_exact_test = lacks_exact_test(layout) | has_zeros
    comparisons = []
    for g, group in enumerate(groups):
        terms = next(shift_covariances) if group.influence and pooled.influence else []
        kind = np.maximum(group.kind, pooled.kind)
        field_limits = None
        family: Family = no_family
        # with couplings or structural zeros, counts are not sufficient for all tests
        if layout.size > layout.D or has_zeros:
            others_evidence = _evidence_of_others(groups, g, pooled)
            kind = np.maximum(kind, others_evidence.kind)
            lacks_information = _lacks_information((group, others_evidence), pooled) & (
                kind == Kind.WALD
            )
            kind[lacks_information] = np.where(has_no_exact_test, Kind.FEW, Kind.EXACT)[
                lacks_information
            ]
            kind[has_zeros & (kind == Kind.EXACT)] = Kind.FEW
            errors = np.sqrt(variances(terms)) if terms else np.full(layout.size, np.nan)
            family = partial(_difference_family, group, others_evidence)
            field_limits = _FieldLimits(group, others_evidence, errors)
        shift = Comparison(layout, group.theta - pooled.theta, terms, kind, family)
        shift = _with_odds_ratios(shift, counts[g], counts.sum(axis=0) - counts[g], uncoupled)
        comparisons.append(
            replace(
                shift,
                to_limits=partial(_limits_of_shift, counts, g, field_limits, shift, uncoupled),
            )
        )
    return comparisons


def _compare_under_design(
    one: Evidence, other: Evidence, rest: Evidence | None = None
) -> Comparison:
    """Test the differences between two fits, which are dependent under a sampling design.

    If `other` is the pooled fit, `rest` is the evidence from all other groups. A parameter is then
    tested only if it has a test in `one`, `other` and `rest`.
    """
    layout = one.layout
    kind = np.maximum(one.kind, other.kind)
    if rest is not None:
        kind = np.maximum(kind, rest.kind)
    if (
        one.deviations is None
        or other.deviations is None
        or one.survey is None
        or other.survey is None
    ):
        return Comparison(layout, one.theta - other.theta, terms=[], kind=kind, family=no_family)
    deviations = one.deviations - other.deviations
    terms = term_covariances(layout, [(deviations, np.ones(len(deviations)))])
    # a group and the pooled fit share rows, but the Rao-Scott correction is valid for any working
    # covariance
    working = [a + b for a, b in zip(one.working, other.working, strict=True)]
    # the design, restricted to the rows of both samples: `rows` are positions in the design
    both_samples = replace(one.survey, rows=np.union1d(one.survey.rows, other.survey.rows))
    return Comparison(
        layout,
        one.theta - other.theta,
        terms,
        kind,
        no_family,
        df=both_samples.df,
        working=working,
    )


def _evidence_of_others(groups: list[Evidence], g: int, pooled: Evidence) -> Evidence:
    """Return the evidence from the rows of all groups except group `g`, treated as one group."""
    other_groups = [group for k, group in enumerate(groups) if k != g]
    if len(other_groups) == 1:
        return other_groups[0]
    rows = _merge_samples([group.rows for group in other_groups])
    # is_effective: under a design, the weights of each group already sum to its effective rows
    return evidence(
        rows,
        pooled.layout,
        pooled.theta,
        pooled.engine,
        is_effective=pooled.survey is not None,
        fitted=pooled.fitted,
    )


def _merge_samples(samples: list[Sample]) -> Sample:
    """Merge the rows of several samples into one."""
    codes, weights = (
        np.concatenate(arrays)
        for arrays in zip(*((s.codes, s.weights) for s in samples), strict=True)
    )
    if all(s.complete for s in samples):
        return Sample(codes, weights)
    missing = [
        np.zeros(s.codes.shape, dtype=bool) if s.missing is None else s.missing for s in samples
    ]
    return Sample(codes, weights, y=None, missing=np.concatenate(missing))


def _lacks_information(sides: tuple[Evidence, Evidence], pooled: Evidence | None) -> np.ndarray:
    """Return a mask of parameters with too little information for a normal approximation.

    The approximation is applied to the shift from the pooled fit. `sides` contains the evidence
    from a group, and from all other groups together. The information on each side is the smaller of
    two values: the information in its own estimate, and the pooled fit's information, scaled to the
    number of rows on this side. The first value is large if rare levels happen to occur together
    more often than expected. If confidence limits were reported only in this case, they would too
    often exclude the true value.
    """
    layout = sides[0].layout
    least_information = np.where(
        np.arange(layout.size) < layout.D, INFORMATION_OF_FIELDS, INFORMATION_OF_COUPLINGS
    )
    lacks_information = np.zeros(layout.size, dtype=bool)
    for side in sides:
        # of couplings that are linear in scores, otherwise 1
        units, _ = score_information(layout, level_counts(side.rows, layout.n_levels))
        if side.terms:
            lacks_information |= variances(side.terms) * units**2 > 1.0 / least_information
        if side.terms and pooled is not None and pooled.terms:
            expected_variances = (
                variances(pooled.terms) * units**2 * (pooled.rows.total / side.rows.total)
            )
            lacks_information |= expected_variances > 1.0 / least_information
    return lacks_information


def _difference_family(one: Evidence, other: Evidence, k: int, finite: bool) -> PowerSeries | None:
    """Return the exact distribution of the difference in parameter `k`; see `Evidence.family`."""
    one_family = one.family(k, finite)
    other_family = other.family(k, finite)
    # less: the distribution of the difference
    return None if one_family is None or other_family is None else one_family.less(other_family)


def no_family(k: int, finite: bool) -> PowerSeries | None:
    """Return None, because no parameter has an exact distribution (see `Evidence.family`)."""
    return None


@dataclass(frozen=True)
class _FieldLimits:
    """Confidence limits, from exact distributions, for the shifts of fields from the pooled fit.

    The *shift* is the field of a group minus the field of the pooled fit. If the model is correct,
    the shift is zero if and only if the fields are equal in the group and in all other groups
    together.

    Attributes
    ----------
    group, rest : Evidence
        Evidence from the group, and from all other groups together.
    errors : ndarray, shape (layout.size,)
        Standard errors of the shifts, or nan.
    """

    group: Evidence
    rest: Evidence
    errors: np.ndarray

    @cached_property
    def _shifts(self) -> dict[int, Shift | None]:
        """Cache of shifts by field number.

        The entry is None if one of the two sides has no exact distribution.
        """
        return {}

    def shift_at(self, k: int, limit: float) -> float:
        """Convert a limit for the difference in field `k` to a limit for the shift.

        The difference is the field of the group minus the field of all other groups.

        Limits from exact tests are conditional on the margins of the tables. `Shift.at` widens them
        using the standard error of the shift.
        """
        if k not in self._shifts:
            group_family, rest_family = (
                side.family(k, finite=False) for side in (self.group, self.rest)
            )
            self._shifts[k] = (
                None
                if group_family is None or rest_family is None
                else Shift.of(group_family, rest_family)
            )
        shift = self._shifts[k]
        return np.nan if shift is None else shift.at(limit, float(self.errors[k]))


def _uncoupled_predictors(sides: list[Evidence]) -> np.ndarray:
    """Return the predictors without interactions or joint structural zeros."""
    # joined (m, m): whether two predictors share a term or a structural zero
    return np.flatnonzero(~np.any([side.layout.joined.any(axis=1) for side in sides], axis=0))


def _with_odds_ratios(
    comparison: Comparison, one: np.ndarray, other: np.ndarray, uncoupled: np.ndarray
) -> Comparison:
    """Return a comparison with level-count tests for the fields of uncoupled predictors.

    The test is based on a 2 x 2 table of counts: the two samples by the level and the reference
    level. If all observed and expected cell counts are at least `CELL`, the log odds ratio
    ``ln(n_11 n_22 / (n_12 n_21))`` is treated as normal with variance ``sum 1 / n`` over the four
    cells. Otherwise, Fisher's distribution is used.

    Parameters
    ----------
    comparison : Comparison
    one, other : ndarray, shape (3, layout.D)
        `Evidence.counts` of the two samples.
    uncoupled : ndarray of int
        The predictors without interactions.
    """
    # positions in theta
    layout = comparison.layout
    field_positions = comparison.layout.columns(uncoupled)
    cells = np.stack([one[:2], other[:2]])  # (sample, level or reference level, D)
    has_enough_rows = least_cells(*cells) >= CELL
    kind = comparison.kind.copy()
    theta = comparison.theta.copy()
    # by table
    terms = list(comparison.terms) or [
        np.full((size, size), np.nan) for size in np.diff(layout.cuts)
    ]
    kind[field_positions] = np.where(
        (cells == 0.0).any(axis=(0, 1)),
        Kind.ABSENT,
        np.where(has_enough_rows, Kind.WALD, Kind.EXACT),
    )[field_positions]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_odds = np.log(cells[:, 0]) - np.log(cells[:, 1])
        inverse_counts = 1.0 / cells
        theta[field_positions] = (log_odds[0] - log_odds[1])[field_positions]
        for i in uncoupled:
            # sums over both samples, each (L_i - 1,), at each level and at the reference level
            level, reference = inverse_counts[..., layout.start[i] : layout.start[i + 1]].sum(
                axis=0
            )
            # the log odds of a predictor share the counts of its reference level
            terms[i] = np.diag(level) + reference
    family = partial(_fisher_family, set(field_positions.tolist()), cells, comparison.family)
    return replace(comparison, kind=kind, theta=theta, terms=terms, family=family)


def _fisher_family(
    uncoupled: set[int], cells: np.ndarray, other_family: Family, k: int, finite: bool
) -> PowerSeries | None:
    """Return Fisher's distribution if field `k` is in `uncoupled`, else call `other_family`.

    `cells` (2, 2, D) contains counts of two samples by level and reference level; `finite` is the
    same as in `Evidence.family`.
    """
    if k not in uncoupled:
        return other_family(k, finite)
    table = cells[..., k]
    # totals of the first sample, the level, and the table
    margins = table[0].sum(), table[:, 0].sum(), table.sum()
    # the range of possible values of the first cell
    if not 0 < min(margins[:2]) - max(0.0, margins[0] + margins[1] - margins[2]) < LONGEST_SUPPORT:
        return None
    family = hypergeometric(*(np.array([count]) for count in (table[0, 0], *margins)))
    return family.inside() if finite else family  # inside: conditional on a finite estimate


def _limits_of_shift(
    counts: np.ndarray,
    g: int,
    field_limits: _FieldLimits | None,
    shift: Comparison,
    uncoupled: np.ndarray,
    limits: np.ndarray,
) -> np.ndarray:
    """Convert `limits` for the tested difference to limits for the shift from the pooled fit.

    Both arrays have shape (layout.size,) and contain either lower or upper limits for group `g`.
    `counts` (K, 3, D) contains the `Evidence.counts` of all groups; `field_limits` is None if there
    are neither interactions nor structural zeros. Couplings with an exact test have no limits
    (nan).
    """
    # from the log odds ratio against the other groups to the log odds minus the pooled log odds;
    # rows of `counts`: 0 at the level, 1 at the reference level, 2 at any level
    field_positions = shift.layout.columns(uncoupled)
    limits = limits.copy()
    limits[field_positions] = shifts_from_pooled(
        limits[field_positions], counts[:, :2, field_positions], counts[:, 2, field_positions], g
    )
    if field_limits is not None:
        for k in np.setdiff1d(
            np.flatnonzero(shift.verdict == Kind.EXACT), field_positions
        ).tolist():
            limits[k] = field_limits.shift_at(k, float(limits[k])) if k < shift.layout.D else np.nan
    return limits
