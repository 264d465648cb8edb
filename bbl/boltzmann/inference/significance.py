"""Tests and confidence intervals for parameters, or the reasons why a test is not available.

A *table* consists of the fields of a predictor or the couplings of a term. A *family* is the exact
conditional distribution of a parameter, as a function of the parameter's value.
"""

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
from bbl.model.scores import (
    free_sizes,
    is_scored,
    score_information,
    score_map,
    scored_tables,
    site_scores_of,
)
from bbl.model.unpenalised import cell_sizes
from bbl.rows.sample import Sample
from bbl.stats.exact import PowerSeries
from bbl.stats.student import t_quantile, two_sided_p
from bbl.stats.survey.rao_scott import rao_scott_wald
from bbl.stats.survey.sample import SurveySample
from bbl.stats.wald import wald

__all__ = [
    "CELL",
    "MID_P",
    "Comparison",
    "Evidence",
    "Fitted",
    "Kind",
    "evidence",
    "lacks_exact_test",
    "of_group",
    "variances",
]

# expected rows required in the smallest cell for a Wald test (benchmarks.coverage); with 10, normal
# tails would be too thin for Holm's adjustment: 7.5 % instead of 5 % over six pairs
CELL = 20.0
# parameters with a smaller inverse variance have an exact test (benchmarks.coverage)
INFORMATION = 5.0
# rows required to fit a site, per parameter of the log odds of a level
ROWS_PER_PARAMETER = 10.0
# Sites with more parameters than the first limit are only fitted if one of their couplings may have
# a Wald test; sites with more than the second are never fitted. Their tests are exact, and take
# seconds instead of the minutes of the fit, whose time is cubic.
MAX_SPARSE_PARAMETERS = 1000
MAX_SITE_PARAMETERS = 2000
# The same limits under a sampling design, where exact tests are not available: rows are effective
# rows and the tails are t tails (benchmarks.coverage).
SURVEY_CELL = 10.0
SURVEY_INFORMATION = 2.0
# maximum change of an estimate due to the penalty, in standard errors, if the unpenalised optimum
# is found from a sample of the rows
LONGEST_SHIFT = 5.0
ROUNDING_VARIANCE = 1e-20  # smaller variances are rounding errors of deviations that cancel


class Kind(IntEnum):
    """Kind of test for a parameter, or reason why there is none, from most to least reliable."""

    WALD = 0
    EXACT = 1
    FEW = 2
    MOVED = 3
    UNBOUNDED = 4
    SEPARATED = 5
    ABSENT = 6
    REFERENCE = 7

    @property
    def text(self) -> str:
        """The text that is printed for this kind in tables."""
        return (
            "Wald",
            "exact",
            "too few rows",
            "not tested: the penalty is too strong",
            "not estimable: no finite optimum",
            "not estimable: separation",
            "not estimable: no rows",
            "zero: the reference group",
        )[self]


MID_P = "exact (mid-p)"  # text of an exact test that counts half of the observed probability
Family = Callable[[int, bool], PowerSeries | None]  # as `Evidence.family`


@dataclass(frozen=True)
class Fitted:
    """The fit to all rows of a group, if only a random sample of these rows is available.

    Attributes
    ----------
    site_theta : ndarray, shape (layout.D, 1 + D), or None
        The site solution; None if the method does not have one, or if it was not kept.
    kept : Sample
        All kept rows of the group. Standard errors may use only some of them.
    """

    site_theta: np.ndarray | None
    kept: Sample


@dataclass(frozen=True)
class Evidence:
    """Unpenalised estimates of one group's parameters, with covariances and the kinds of test.

    Attributes
    ----------
    layout : Layout
    rows : Sample
        Rows of the group, one row for each distinct state.
    theta : ndarray, shape (layout.size,)
        Unpenalised estimates of the parameters, where these exist.
    influence : RowInfluence or None
        Influence of rows on the estimates; None if there are too few rows for an unpenalised fit.
    terms : list of ndarray
        Covariance of each table.
    kind : ndarray of int8, shape (layout.size,)
        The `Kind` of each parameter; EXACT if the normal approximation may be inaccurate.
    engine : Engine
        The estimation method.
    survey : SurveySample or None
        The sampling design of the rows. If given, the weights of `rows` sum to the effective number
        of rows.
    deviations : ndarray, shape (u, layout.size), or None
        Under a sampling design, the matrix E for which ``E'E`` is the covariance of the estimates.
    fitted : Fitted or None
        The fit to all rows, if `rows` is a random sample of them.
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
    fitted: Fitted | None = None

    @cached_property
    def working(self) -> list[np.ndarray]:
        """Covariance of each table if the effective rows had been sampled individually."""
        return (
            [] if self.deviations is None or not self.influence else self.influence.terms(self.rows)
        )

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of rows (3, D) with each non-reference level, its reference level or any level."""
        counts = level_counts(self.rows, self.layout.n_levels)
        if self.fitted is not None:  # the weights of a sample add up to counts only approximately
            counts = [np.round(n) for n in counts]
        # n (L_i,): number of rows at each level of a predictor
        columns = [
            np.array([n[1:], np.full(len(n) - 1, n[0]), np.full(len(n) - 1, n.sum())])
            for n in counts
        ]
        return np.concatenate(columns, axis=1)

    @cached_property
    def _families(self) -> dict[int, PowerSeries | None]:
        """Cache of `family`, by parameter position."""
        return {}

    @cached_property
    def _strata(self) -> dict[int, np.ndarray | None]:
        """Cache of `pair_strata`, by pair number, for the most recent pair only."""
        return {}

    def family(self, k: int, finite: bool) -> PowerSeries | None:
        """Return the exact conditional distribution of parameter `k`, or None.

        The result is None with structural zeros, under a sampling design, for a random sample of
        the rows, or if the rows contain no information. If `finite` is True, the distribution is
        also conditional on a finite estimate.
        """
        if self.layout.support is not None or self.survey is not None or self.fitted is not None:
            return None
        if k not in self._families:
            layout = self.layout
            if k < layout.D:
                i = int(np.searchsorted(layout.start, k, side="right")) - 1
                # levels are numbered from 1
                self._families[k] = field_family(self.rows, layout, i, k - int(layout.start[i]) + 1)
            else:
                pair_number = int(np.searchsorted(layout.pair_start, k, side="right")) - 1
                self._families[k] = self._coupling_family(
                    pair_number, k - int(layout.pair_start[pair_number])
                )
        family = self._families[k]
        return family.inside() if finite and family is not None else family

    def _coupling_family(self, pair_number: int, table_position: int) -> PowerSeries | None:
        """Return the family of a coupling, given its pair and its position in the table."""
        i, j = (int(v) for v in self.layout.pairs[pair_number])
        if pair_number not in self._strata:
            # parameters are requested pair by pair, so the strata of one pair are enough
            self._strata.clear()
            self._strata[pair_number] = pair_strata(self.rows, self.layout, i, j)
        stratum_of_row = self._strata[pair_number]
        a, b = divmod(table_position, int(self.layout.n_levels[j]) - 1)
        return (
            None
            if stratum_of_row is None
            else coupling_family(self.rows, stratum_of_row, i, a + 1, j, b + 1)
        )


def variances(terms: list[np.ndarray]) -> np.ndarray:
    """Return the variances (layout.size,) of all parameters, from the covariances of all tables."""
    return np.concatenate([t.diagonal() for t in terms])


def evidence(
    sample: Sample,
    layout: Layout,
    start: np.ndarray,
    engine: Engine = BASELINE,
    survey: SurveySample | None = None,
    is_effective: bool = False,
    fitted: Fitted | None = None,
) -> Evidence:
    """Return a group's unpenalised estimates, with the kind of test available for each parameter.

    Parameters
    ----------
    sample : Sample
        Rows of the group.
    layout : Layout
    start : ndarray, shape (layout.size,)
        The group's fitted parameters, possibly penalised, which are used to start the unpenalised
        fit.
    engine : Engine
        The method for the unpenalised fit (see `Engine.unpenalised`); by default,
        pseudo-likelihood.
    survey : SurveySample, optional
        The sampling design of the rows.
    is_effective : bool, default False
        Whether row weights already sum to the effective number of rows of a sampling design (see
        `effective_rows`), so that `SURVEY_CELL` and `SURVEY_INFORMATION` apply.
    fitted : Fitted, optional
        The fit to all rows, if `sample` is a random sample of them (`bbl.rows.kept.KeptRows`).
        Exact tests are then not computed.
    """
    if survey is not None:
        sample = effective_rows(sample)
    rows = sample.collapsed(layout.n_levels)
    kind = np.full(layout.size, Kind.ABSENT, dtype=np.int8)
    if not rows.n:
        return Evidence(
            layout,
            rows,
            theta=np.zeros(layout.size),
            influence=None,
            terms=[],
            kind=kind,
            engine=engine,
            survey=survey,
            fitted=fitted,
        )
    all_regressors = regressors(layout)
    # parameters of the log odds of a level, for each site (m,): the intercept, and one for each
    # non-reference level of a regressor
    n_site_parameters = 1.0 + all_regressors.mask @ (all_regressors.n_levels - 1)
    if layout.scores is not None:
        site_scores = site_scores_of(layout)
        n_site_parameters = np.array([1.0 + site_scores.n_features(i) for i in range(layout.m)])
    has_enough_rows = usable_weight(rows, layout) >= ROWS_PER_PARAMETER * n_site_parameters
    # (couplings,) each: the smallest expected count, and whether any cell is empty
    least_expected, is_absent = cell_sizes(rows, layout)
    has_exact_tests = survey is None and not is_effective and fitted is None
    if has_exact_tests and not lacks_exact_test(layout).any():
        size = (layout.n_levels - 1) * n_site_parameters
        is_filled = _has_filled_cells(layout, least_expected, is_absent)
        has_enough_rows &= (size <= MAX_SPARSE_PARAMETERS) | is_filled
        has_enough_rows &= size <= MAX_SITE_PARAMETERS
    sites = np.flatnonzero(has_enough_rows & (layout.n_levels > 1))
    theta = start
    is_determined = np.zeros(layout.size, dtype=bool)
    influence = None
    if has_enough_rows.any():
        theta, is_determined, influence = (
            engine.unpenalised(rows, layout, start, sites)
            if fitted is None
            else engine.unpenalised_from(rows, layout, start, fitted.site_theta, sites, fitted.kept)
        )
    terms = influence.terms(rows) if influence else []
    deviations = None
    least_cell = CELL
    least_information = INFORMATION
    if survey is not None or is_effective:
        least_cell = SURVEY_CELL
        least_information = SURVEY_INFORMATION
    if survey is not None and influence:
        deviations = unpenalised_deviations(
            influence, sample, theta, is_determined, sites, engine, survey
        )
        terms = term_covariances(layout, [(deviations, np.ones(len(deviations)))])
    is_site_fitted = np.repeat(has_enough_rows, layout.n_levels - 1).astype(float)
    # `from_sites` averages each coupling over the sites of its term; the mean is 1 if all sites are
    # fitted
    has_all_sites = (
        from_sites(
            layout, np.broadcast_to(is_site_fitted[:, None], (layout.D, 1 + all_regressors.D))
        )
        == 1.0
    )
    # the rule about cells does not apply to fields
    expected_counts = np.concatenate([np.full(layout.D, np.inf), least_expected])
    # n (L_i,) of each predictor; code 0 is the reference level
    counts = level_counts(rows, layout.n_levels)
    # couplings with scores use the rows of all levels, so they have no rule about cells either
    has_scores = scored_tables(layout)
    units, lacks_scores = score_information(layout, counts)
    expected_counts[has_scores] = np.inf
    kind[:] = Kind.WALD  # each of the lines below overrides the previous ones
    kind[~has_all_sites | (expected_counts < least_cell)] = Kind.EXACT
    if influence:
        kind[variances(terms) * units**2 > 1.0 / least_information] = Kind.EXACT
    if survey is not None and survey.df < 1:
        kind[:] = Kind.FEW
    if deviations is not None:
        kind[~np.isfinite(deviations).all(axis=0)] = Kind.FEW  # too few replicates have an estimate
        # all rows for the estimate are in one cluster; the variance of a census is 0
        variance = (deviations**2).sum(axis=0)
        kind[(variance > 0.0) & (variance < ROUNDING_VARIANCE)] = Kind.FEW
    kind[lacks_exact_test(layout) & (kind == Kind.EXACT)] = Kind.FEW
    kind[has_all_sites & ~is_determined] = Kind.UNBOUNDED
    is_absent_level = np.concatenate([(n[1:] == 0) | (n[0] == 0) for n in counts])
    if fitted is None:
        has_no_rows = np.concatenate([is_absent_level, is_absent])
        kind[np.where(has_scores, lacks_scores, has_no_rows)] = Kind.ABSENT
    else:
        _mark_sampled(
            layout, kind, is_absent_level, is_absent & ~has_scores[layout.D :], theta - start, terms
        )
        kind[has_scores & lacks_scores] = Kind.ABSENT
    return Evidence(layout, rows, theta, influence, terms, kind, engine, survey, deviations, fitted)


def _mark_sampled(
    layout: Layout,
    kind: np.ndarray,
    is_absent_level: np.ndarray,
    is_absent_cell: np.ndarray,
    shift: np.ndarray,
    terms: list[np.ndarray],
) -> None:
    """Update the array `kind` (size,) for tests that are based on a random sample of the rows.

    Exact tests are not available, because a cell without sampled rows may have a few rows in the
    full data. `shift` (size,) is the change from the penalised estimates. If it is too large, the
    sampling error cannot be ignored.
    """
    kind[kind == Kind.EXACT] = Kind.FEW
    if terms:
        has_moved = np.abs(shift) > LONGEST_SHIFT * np.sqrt(np.maximum(variances(terms), 0.0))
        kind[has_moved] = np.maximum(kind[has_moved], Kind.MOVED)
    has_no_rows = np.concatenate([np.zeros(layout.D, dtype=bool), is_absent_cell])
    kind[has_no_rows] = Kind.FEW
    kind[: layout.D][is_absent_level] = Kind.ABSENT
    for scope, begin, end in zip(layout.scopes, layout.cuts[:-1], layout.cuts[1:], strict=True):
        if len(scope) > 1 and not is_scored(layout, scope):
            absent = _absent_in_table(layout, scope, is_absent_level)
            kind[begin:end][absent] = Kind.ABSENT


def _absent_in_table(layout: Layout, scope: tuple[int, ...], absent: np.ndarray) -> np.ndarray:
    """Return a mask of the couplings of the term `scope` that involve a level without rows.

    `absent` (D,) marks the non-reference levels that have no rows, and those whose reference level
    has no rows.
    """
    table = np.zeros(tuple(int(L) - 1 for L in layout.n_levels[list(scope)]), dtype=bool)
    for axis, i in enumerate(scope):
        shape = [1] * len(scope)
        shape[axis] = -1
        table |= absent[layout.start[i] : layout.start[i + 1]].reshape(shape)
    return table.ravel()


def _has_filled_cells(
    layout: Layout, least_expected: np.ndarray, is_absent: np.ndarray
) -> np.ndarray:
    """Return a mask (m,) of predictors with a coupling that has enough rows for a Wald test.

    `least_expected` and `is_absent` (couplings,) are the results of `cell_sizes` for pairs.
    """
    out = np.zeros(layout.m, dtype=bool)
    is_filled = (least_expected >= CELL) & ~is_absent
    starts = layout.pair_start - layout.D
    for pair, start, end in zip(layout.pairs, starts[:-1], starts[1:], strict=True):
        out[pair] |= bool(is_filled[start:end].any())
    return out


def lacks_exact_test(layout: Layout) -> np.ndarray:
    """Return a mask (layout.size,) of parameters without an exact test.

    These are couplings of three or more predictors, couplings of pairs with a test that would
    condition on more than `MAX_HELD` predictors, couplings that are linear in scores, and all
    parameters of models with structural zeros.
    """
    if layout.support is not None:
        return np.ones(layout.size, dtype=bool)
    n_neighbours = layout.mask.sum(axis=1)  # mask (m, m): whether two predictors share a term
    # the test of a pair conditions on the smaller of the two predictors' neighbourhoods, without
    # the other predictor
    n_conditioned = n_neighbours[layout.pairs].min(axis=1) - 1
    out = np.zeros(layout.size, dtype=bool)
    out[layout.D : layout.pair_start[-1]] = np.repeat(
        n_conditioned > MAX_HELD, np.diff(layout.pair_start)
    )
    out[layout.pair_start[-1] :] = True
    return out | scored_tables(layout)


@dataclass(frozen=True)
class Comparison:
    """Tests of whether a group's parameters, or differences between groups, are zero.

    Attributes
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
        Estimates of the parameters or differences that are zero under the null hypothesis.
    terms : list of ndarray
        Covariance of each table; empty if no parameter has an approximately normal distribution.
    kind : ndarray of int8, shape (layout.size,), as in `Evidence`
    family : callable
        ``family(k, finite)`` returns the exact conditional distribution of parameter `k`; see
        `Evidence.family`.
    to_limits : callable, optional
        ``to_limits(limits)`` converts confidence limits (layout.size,) for `theta` to limits for
        the requested difference, which has the same sign as `theta`. By default, limits are not
        converted.
    df : float
        Degrees of freedom of the covariances; infinite unless there is a sampling design.
    working : list of ndarray
        Covariance of each table ignoring the sampling design; empty unless there is a design.
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
        """The non-degenerate exact distributions of EXACT parameters, by parameter position."""
        families = {}
        for k in np.flatnonzero(self.kind == Kind.EXACT):
            family = self.family(int(k), True)  # conditional on a finite estimate
            if family is not None and len(family.log_c) > 1:  # `log_c` has an entry for each value
                families[int(k)] = family
        return families

    @cached_property
    def verdict(self) -> np.ndarray:
        """The `kind` of each parameter, or FEW if its exact distribution is degenerate."""
        kind = self.kind.copy()
        kind[kind == Kind.EXACT] = Kind.FEW
        kind[list(self.exact)] = Kind.EXACT
        return kind

    @property
    def verdict_texts(self) -> np.ndarray:
        """The text for each parameter's `verdict`, which also shows whether p is a mid-p-value."""
        texts = np.array([kind.text for kind in Kind], dtype=object)[self.verdict]
        texts[[k for k, family in self.exact.items() if family.share < 1.0]] = MID_P
        return texts

    @cached_property
    def z(self) -> np.ndarray:
        """Wald statistics (estimate divided by standard error); nan for other tests."""
        z = np.full(self.layout.size, np.nan)
        is_wald = self.verdict == Kind.WALD
        if is_wald.any():
            # infinite for a census, which has no variance
            with np.errstate(divide="ignore", invalid="ignore"):
                z[is_wald] = self.theta[is_wald] / np.sqrt(variances(self.terms)[is_wald])
        return z

    @cached_property
    def p(self) -> np.ndarray:
        """Two-sided p-value of each parameter, or nan for parameters that have no test."""
        p = two_sided_p(self.z, self.df)
        for k, family in self.exact.items():
            p[k] = family.p()
        return p

    @property
    def unpenalised(self) -> np.ndarray:
        """Unpenalised estimates; nan for parameters without a test, or if `to_limits` is set."""
        tested = (
            self.verdict <= Kind.EXACT
            if self.to_limits is None
            else np.zeros(self.layout.size, dtype=bool)
        )
        return np.where(tested, self.theta, np.nan)

    def limits(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return each parameter's confidence limits, or nan for parameters that have no test."""
        lower, upper = np.full((2, self.layout.size), np.nan)
        is_wald = self.verdict == Kind.WALD
        if is_wald.any():
            half_width = t_quantile(0.5 + level / 2, self.df) * np.sqrt(
                variances(self.terms)[is_wald]
            )
            lower[is_wald] = self.theta[is_wald] - half_width
            upper[is_wald] = self.theta[is_wald] + half_width
        for k, family in self.exact.items():
            lower[k], upper[k] = family.limits(level)
        if self.to_limits is not None:
            return self.to_limits(lower), self.to_limits(upper)
        return lower, upper

    def tables(
        self, progress: Callable | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Test every table (fields of a predictor, couplings of a pair) as a whole.

        `progress` is called with the completed fraction of the work. Exact tests take most of the
        time.

        Returns
        -------
        statistic, df, p : ndarray
            Joint Wald test of those parameters of the table that have a Wald test; `df` is the
            number of these parameters. If there are none, `p` is the smallest exact p-value times
            the number `df` of exact tests, and `statistic` is nan. The p-value of a parameter is
            `self.p` if its estimate is finite. Exact tests do not require finite estimates. If two
            levels never occur together although some rows are expected to have both, this is
            evidence of an interaction, but its strength is unknown. Under a sampling design, the
            Wald test uses the `working` covariance with the Rao-Scott correction.
        words : ndarray of str
            How each table was tested, or why it was not tested.
        """
        layout = self.layout
        sparse = np.flatnonzero(self.kind == Kind.EXACT)
        if progress is not None:
            for k in sparse:  # caches the families for the tests below
                self.family(int(k), True)
                progress(1.0 / len(sparse))
        verdict = self.verdict
        cuts = layout.cuts
        is_wald = verdict == Kind.WALD
        shared = score_map(layout)
        if shared is not None:  # one of the parameters that share a free one
            is_wald &= shared.firsts(np.ones(shared.n, dtype=bool))
        # by table; for an empty table, reduceat returns the entry at its start, which belongs to
        # the next table or is the appended one
        n_wald = np.add.reduceat(np.append(is_wald, False), cuts[:-1]) * (np.diff(cuts) > 0)
        statistic, p = np.full((2, len(n_wald)), np.nan)
        df = np.zeros(len(n_wald), dtype=np.intp)
        tested = np.flatnonzero(n_wald)
        masks = [is_wald[cuts[t] : cuts[t + 1]] for t in tested]  # t: a table, k below: a parameter
        estimates = [
            self.theta[cuts[t] : cuts[t + 1]][mask] for t, mask in zip(tested, masks, strict=True)
        ]
        covariances = [
            self.terms[t][np.ix_(mask, mask)] for t, mask in zip(tested, masks, strict=True)
        ]
        if self.working:
            working = [
                self.working[t][np.ix_(mask, mask)] for t, mask in zip(tested, masks, strict=True)
            ]
            statistic[tested], df[tested], p[tested] = rao_scott_wald(
                estimates, covariances, working, self.df
            )
        else:
            statistic[tested], df[tested], p[tested] = wald(estimates, covariances)
        table_of = np.repeat(np.arange(len(n_wald)), np.diff(cuts))  # for each parameter
        exact_p_values: dict[int, list[float]] = {}
        is_mid_p = np.zeros(len(n_wald), dtype=bool)
        for k in np.flatnonzero((n_wald[table_of] == 0) & ~lacks_exact_test(layout)):
            # if the estimate is not finite, the distribution must not be conditional on it
            family = self.exact.get(int(k)) or self.family(int(k), False)
            if family is not None and len(family.log_c) > 1:
                exact_p_values.setdefault(int(table_of[k]), []).append(family.p())
                is_mid_p[table_of[k]] = family.share < 1.0
        for table, p_values in exact_p_values.items():
            p[table] = min(1.0, min(p_values) * len(p_values))
            df[table] = len(p_values)
        return statistic, df, p, self._describe_tests(cuts, n_wald, df, is_mid_p)

    def odds_ratios(self) -> np.ndarray:
        """Return the odds ratio with the smallest p-value in each table that has an exact test."""
        cuts = self.layout.cuts
        has_family = ~lacks_exact_test(self.layout)
        ratios = np.full(len(cuts) - 1, np.nan)
        for t in range(len(ratios)):
            parameters = np.arange(cuts[t], cuts[t + 1])
            if (self.verdict[parameters] == Kind.WALD).any():
                continue
            families = [self.family(int(k), False) for k in parameters[has_family[parameters]]]
            informative = [family for family in families if family and len(family.log_c) > 1]
            if informative:
                with np.errstate(over="ignore"):
                    ratios[t] = np.exp(min(informative, key=PowerSeries.p).estimate)
        return ratios

    def _describe_tests(
        self, cuts: np.ndarray, n_wald: np.ndarray, df: np.ndarray, is_mid_p: np.ndarray
    ) -> np.ndarray:
        """Return the `words` that the method `tables` returns.

        `cuts` is the layout's `cuts`. `n_wald` and `df` contain, for each table, the number of
        parameters with a Wald test and with any test. `is_mid_p` marks tables with mid-p-values.
        """
        sizes = free_sizes(self.layout)
        # A table is only called not estimable if none of its parameters is estimable, so the least
        # cautious kind is used.
        least_kind = np.minimum.reduceat(np.append(self.verdict, max(Kind)), cuts[:-1])
        kinds = np.where(sizes > 0, least_kind, Kind.ABSENT)
        kinds[(df > 0) & (n_wald == 0)] = Kind.EXACT
        words = np.array([kind.text for kind in Kind], dtype=object)[kinds]
        words[(kinds == Kind.EXACT) & is_mid_p] = MID_P
        words[(kinds == Kind.WALD) & bool(self.working)] = "Rao-Scott"
        for k in np.flatnonzero((df > 0) & (df < sizes)):
            words[k] += f", {df[k]} of {sizes[k]}"
        return words


def of_group(group: Evidence) -> Comparison:
    """Test each parameter of one group against zero."""
    df = np.inf if group.survey is None else group.survey.df
    return Comparison(
        group.layout,
        group.theta,
        group.terms,
        group.kind,
        group.family,
        df=df,
        working=group.working,
    )
