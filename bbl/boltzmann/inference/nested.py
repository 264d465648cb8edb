"""Tests of nested models, which compare a larger model with a model without some of its terms.

K, D and q are the numbers of groups, non-reference levels and tested couplings. A *site solution*
(D, 1 + D) contains the intercept and the couplings of each non-reference level, as estimated at its
own site, before the two estimates of each coupling are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl.boltzmann.inference.exact_ratio import (
    ExactRatio,
    SparseMargin,
    exact_ratio_test,
    smaller_layout,
)
from bbl.boltzmann.inference.significance import Kind, evidence, of_group
from bbl.boltzmann.inference.survey import effective_rows, linearised, replicated
from bbl.engines import Engine
from bbl.model.energy import conditionals
from bbl.model.godambe import Influence
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.regressors import regressors
from bbl.model.scores import ScoreMap, free_sizes, score_map
from bbl.model.site_hessians import ROWS
from bbl.model.unpenalised import unpenalised
from bbl.rows.sample import Sample
from bbl.stats.gammas import tail
from bbl.stats.survey.rao_scott import design_effects, rao_scott
from bbl.stats.survey.sample import SurveySample

__all__ = ["RatioTest", "TermTests", "nested_test", "ratio_test"]

# rows of each group, and their sampling design
Groups = Sequence[tuple[Sample, SurveySample | None]]


@dataclass(frozen=True)
class RatioTest:
    """Joint test of all pairs that are missing from the smaller model.

    Attributes
    ----------
    statistic : float
        Twice the gain in log-likelihood or log pseudo-likelihood, summed over groups; nan if
        nothing was tested.
    df : int
        Number of couplings that are missing from the smaller model, over all groups; for the exact
        likelihood, the difference in rank.
    p : float
        nan if nothing was tested.
    refused : list of (int, int, int, Kind)
        Group, both predictors and the reason, for each table of couplings that cannot be tested.
    """

    statistic: float
    df: int
    p: float
    refused: list[tuple[int, int, int, Kind]]


@dataclass(frozen=True)
class TermTests:
    """Results of separate tests of the terms that are missing from the smaller model.

    Attributes
    ----------
    df : int
        Number of couplings that are missing from the smaller model, over all groups.
    tested : int
        Number of terms with a test, over all groups.
    p : float
        The smallest p-value times the number of tested terms, capped at 1; nan if nothing was
        tested.
    refused : list of (int, tuple of int, Kind)
        Group, predictors and the reason, for each term that was not tested.
    sparse : SparseMargin or None
        Margin that makes the exact likelihood ratio test unreliable; None if there is none.
    """

    df: int
    tested: int
    p: float
    refused: list[tuple[int, tuple[int, ...], Kind]]
    sparse: SparseMargin | None


def nested_test(
    groups: Groups,
    layout: Layout,
    theta: np.ndarray,
    kept: np.ndarray,
    engine: Engine,
    scores: Sequence[np.ndarray | None] | None = None,
) -> RatioTest | TermTests:
    """Test whether terms can be dropped from a model, or made linear in level scores.

    Under the null hypothesis, the couplings of terms that are not `kept` are zero in all groups,
    and the others are linear in the smaller model's level `scores`, in the form used by `Layout`.
    If there are enough rows, a likelihood ratio test is used. It is based on the exact likelihood
    (`exact_ratio_test`) if the engine supports it, and otherwise on the pseudo-likelihood for
    models of pairs (`ratio_test`). If there are too few rows, each term is tested separately in the
    larger model, by a joint Wald test or by exact conditional tests of its couplings, with
    Bonferroni's correction. The arguments are the same as in `ratio_test`, except that `kept` (T,)
    has an entry for each of the T terms of all orders.
    """
    sparse = None
    small_layout = smaller_layout(layout, kept, scores)
    tied = tied_terms(layout, small_layout)
    if engine.has_likelihood:
        rows = [sample if survey is None else effective_rows(sample) for sample, survey in groups]
        exact = exact_ratio_test(rows, layout, kept, engine, scores)
        if isinstance(exact, SparseMargin):
            sparse = exact
        # with df 0 there is no ratio test: terms are tested separately below
        elif exact.df and groups[0][1] is not None:  # all groups have a sampling design, or none
            return _test_ratio_under_design(groups, layout, theta, small_layout, engine, exact)
        elif exact.df:
            return RatioTest(exact.statistic, exact.df, exact.p, [])
    elif layout.order == 2:
        ratio = ratio_test(groups, layout, theta, kept, scores)
        if not np.isnan(ratio.p):
            return ratio
    if tied:  # tests of single terms are tests of zero, not of a line
        n_free = int(free_sizes(layout).sum() - free_sizes(small_layout).sum())
        refused_ties = [(g, scope, Kind.FEW) for g in range(len(groups)) for scope in tied]
        return TermTests(len(groups) * n_free, 0, np.nan, refused_ties, sparse)
    scopes = layout.scopes[layout.m :]
    dropped = np.flatnonzero(~kept)
    sizes = free_sizes(layout)[layout.m :]
    p = []
    refused = []
    for g, ((sample, survey), group_theta) in enumerate(zip(groups, theta, strict=True)):
        group_tests = of_group(evidence(sample, layout.of_group(g), group_theta, engine, survey))
        # `tables` returns statistic, df, p, words of each table
        p_by_term = group_tests.tables()[2][layout.m :]
        p += [p_by_term[k] for k in dropped if not np.isnan(p_by_term[k])]
        kinds = [
            group_tests.verdict[layout.cuts[layout.m + k] : layout.cuts[layout.m + k + 1]]
            for k in dropped
        ]
        # the reason is the least cautious kind of its parameters, so that a term is only absent if
        # all of them are
        refused += [  # `initial`: a term with predictors of one level has no parameters
            (g, scopes[k], Kind(int(kind.min(initial=Kind.ABSENT))))
            for k, kind in zip(dropped, kinds, strict=True)
            if np.isnan(p_by_term[k])
        ]
    smallest_p = min(1.0, min(p) * len(p)) if p else np.nan
    return TermTests(len(groups) * int(sizes[dropped].sum()), len(p), smallest_p, refused, sparse)


def _test_ratio_under_design(
    groups: Groups,
    layout: Layout,
    theta: np.ndarray,
    small_layout: Layout,
    engine: Engine,
    ratio: ExactRatio,
) -> RatioTest:
    """Return the exact likelihood ratio test under a sampling design, with Rao-Scott correction.

    The arguments are the same as in `nested_test` and `ratio_test`.
    """
    working = []
    deviations = []
    for g, ((sample, survey), group_theta) in enumerate(zip(groups, theta, strict=True)):
        group = evidence(sample, layout.of_group(g), group_theta, engine, survey)
        if group.influence is None or group.deviations is None:
            continue
        # parameters of kinds above FEW (unbounded, absent) have no finite estimate
        estimable = np.flatnonzero(group.kind <= Kind.FEW)
        contrasts = zero_contrasts(layout, small_layout, estimable)
        covariance = group.influence.covariance(group.rows)[np.ix_(estimable, estimable)]
        working.append(contrasts.T @ covariance @ contrasts)
        deviations.append(group.deviations[:, estimable] @ contrasts)
    surveys = [survey for _, survey in groups]
    return RatioTest(*_correct_ratio(ratio.statistic, ratio.df, working, deviations, surveys), [])


def _correct_ratio(
    statistic: float,
    df: int,
    working: list[np.ndarray],
    deviations: list[np.ndarray],
    surveys: list,
) -> tuple[float, int, float]:
    """Return the design-corrected ratio, its df and its Rao-Scott p-value.

    The ratio is divided by its mean design effect. A design effect is the ratio of a variance under
    the sampling design to the variance without it. Design effects are the eigenvalues of
    ``working^-1 E'E`` for all groups together.

    Parameters
    ----------
    working : list of ndarray, shape (q, q)
        For each group, the covariance of its q dropped parameters without the sampling design. With
        this covariance, the ratio would have a chi-squared distribution.
    deviations : list of ndarray, shape (u, q)
        For each group, a matrix E such that ``E'E`` is the parameters' covariance under the design.
        The rows of E refer to the same clusters or replicates in all groups, so the groups are
        dependent.
    surveys : list of SurveySample
        Sampling designs of all groups.
    """
    from scipy.linalg import block_diag

    E = np.hstack(deviations)
    effects = design_effects(E.T @ E, block_diag(*working))
    # positions of all groups' rows in the design
    rows = np.unique(np.concatenate([survey.rows for survey in surveys]))
    test = rao_scott(statistic, effects, replace(surveys[0], rows=rows).df)
    return test.statistic, df, test.p


def tied_terms(layout: Layout, small_layout: Layout) -> list[tuple[int, ...]]:
    """Return the terms that have fewer free parameters in the smaller model."""
    sizes = dict(zip(layout.scopes, free_sizes(layout).tolist(), strict=True))
    small_sizes = zip(small_layout.scopes, free_sizes(small_layout).tolist(), strict=True)
    return [scope for scope, size in small_sizes if size < sizes[scope]]


def zero_contrasts(layout: Layout, small_layout: Layout, positions: np.ndarray) -> np.ndarray:
    """Return the linear combinations (q, r) of parameters that are zero in the smaller model.

    `positions` (q,) contains the parameters' positions in the larger model; other parameters are
    not used. Parameters of terms that are missing from the smaller model are themselves zero. Each
    of the other parameters is compared with the first parameter that depends on the same free
    parameter in the smaller model.
    """
    identity = ScoreMap(np.arange(layout.size), np.ones(layout.size), layout.size)
    large = score_map(layout) or identity
    # the smaller model, with all terms of the larger model
    all_terms = None if layout.complete else layout.terms
    small = score_map(Layout(layout.n_levels, all_terms, scores=small_layout.scores)) or identity
    small_scopes = set(small_layout.scopes)
    is_kept = np.repeat([scope in small_scopes for scope in layout.scopes], np.diff(layout.cuts))
    # the first of the positions that each free parameter of the larger model determines
    represents = np.unique(large.index[positions], return_index=True)[1]
    base_of: dict[int, int] = {}  # by free parameter of the smaller model: its first row in `out`
    columns = []
    for row in np.sort(represents):
        k = positions[row]
        column = np.zeros(len(positions))
        if is_kept[k]:
            base = base_of.setdefault(int(small.index[k]), int(row))
            if base == row:
                continue
            # the free parameter of the larger model is this factor times that of the smaller
            base_k = positions[base]
            slope = small.factor[k] / large.factor[k]
            base_slope = small.factor[base_k] / large.factor[base_k]
            column[base] = -slope / large.factor[base_k]
            column[row] = base_slope / large.factor[k]
        else:
            column[row] = 1.0 / large.factor[k]
        columns.append(column)
    return np.array(columns).T if columns else np.zeros((len(positions), 0))


def ratio_test(
    groups: Groups,
    layout: Layout,
    theta: np.ndarray,
    kept: np.ndarray,
    scores: Sequence[np.ndarray | None] | None = None,
) -> RatioTest:
    """Test whether pairs can be dropped from a model, or made linear in level scores.

    Parameters
    ----------
    groups : sequence of K pairs of a Sample and a SurveySample or None
        Training rows without missing values and their sampling design, for each group.
    layout : Layout
        Layout of the larger model, which has pairs only. All predictors have at least two levels;
        a second level has been added to constant predictors.
    theta : ndarray, shape (K, layout.size)
        Fitted parameters of the larger model, with any penalty.
    kept : ndarray of bool, shape (P,)
        Whether each pair is in the smaller model.
    scores : sequence, optional
        Level scores of the smaller model, in the form used by `Layout`.

    Returns
    -------
    RatioTest

    Notes
    -----
    Under the null hypothesis, the couplings of pairs that are not `kept` are zero in all groups,
    and the others are linear in the level `scores`. Both models are fitted without a penalty. The
    pseudo-likelihood is not a likelihood, because each pair contributes to the conditional
    distributions of both of its predictors. The statistic is therefore distributed as ``sum
    lambda_k chi2_1``, where lambda_k are the eigenvalues of ``(H^-1)_dd^-1 V_dd``, H is the
    Hessian, V the Godambe covariance and d the dropped couplings, or the contrasts of couplings
    that level scores set to zero (Kent 1982; Varin, Reid & Firth 2011, section 2.3). The tail
    probability is computed exactly. The test is not performed if the normal approximation is
    inaccurate for one of these couplings, by the rules of `bbl.boltzmann.inference.significance`.
    Under a sampling design, V is the design covariance of all groups together, and the tail is
    computed by `rao_scott`.
    """
    small_layout = smaller_layout(layout, kept, scores)
    is_removed = _dropped_entries(layout, kept)
    tied = set(tied_terms(layout, small_layout))
    if tied:  # pairs with the same couplings in both models
        kept = kept & [tuple(pair) not in tied for pair in layout.pairs.tolist()]
    table_slices = [
        slice(begin, end)
        for begin, end in zip(layout.pair_start[:-1], layout.pair_start[1:], strict=True)
    ]
    statistic = 0.0
    eigenvalues = []
    refused = []
    working = []
    deviations = []
    df = len(groups) * int(free_sizes(layout).sum() - free_sizes(small_layout).sum())
    for g, ((sample, survey), group_theta) in enumerate(zip(groups, theta, strict=True)):
        group_evidence = evidence(sample, layout, group_theta, survey=survey)
        # (most cautious kind, pair number); WALD for a table without parameters
        worst_kinds = [
            (int(group_evidence.kind[table_slices[pair]].max(initial=Kind.WALD)), pair)
            for pair in np.flatnonzero(~kept)
        ]
        refused += [
            (g, int(layout.pairs[pair, 0]), int(layout.pairs[pair, 1]), Kind(kind))
            for kind, pair in worst_kinds
            if kind != Kind.WALD
        ]
        influence = group_evidence.influence
        # test all tables in all groups, or none
        if refused or not isinstance(influence, Influence):
            continue
        rows = group_evidence.rows
        sites = np.unique(layout.pairs[~kept])
        is_dropped = _dropped_entries(layout, kept)
        site_start = influence.site_theta.copy()
        site_start[:, 1:][is_removed] = 0.0
        # the fit of the smaller model starts from the larger model, with dropped couplings set to 0
        small_site_theta, _ = unpenalised(rows, small_layout, site_start, sites)
        statistic += 2.0 * (
            _pseudo_likelihood(rows, layout, influence.site_theta, sites)
            - _pseudo_likelihood(rows, small_layout, small_site_theta, sites)
        )
        # which columns (D,) are tested at each site; the rows of all levels of a site are the same
        couplings_of_site = {int(i): is_dropped[layout.start[i]] for i in sites}
        # (q, q) each: V_dd and (H^-1)_dd of the notes
        godambe_covariance, working_covariance = influence.site_coupling_covariance(
            rows, couplings_of_site
        )
        if layout.scores is not None or small_layout.scores is not None:
            contrasts = _site_contrasts(influence, small_layout, couplings_of_site)
            godambe_covariance = contrasts.T @ godambe_covariance @ contrasts
            working_covariance = contrasts.T @ working_covariance @ contrasts
        # lambda_k of the notes
        eigenvalues.append(design_effects(godambe_covariance, working_covariance))
        if survey is not None:
            working.append(working_covariance)
            site_deviations = _site_deviations(
                effective_rows(sample), influence, couplings_of_site, survey
            )
            deviations.append(
                site_deviations
                if layout.scores is None and small_layout.scores is None
                else site_deviations @ contrasts
            )
    if refused or not eigenvalues:
        return RatioTest(statistic=np.nan, df=df, p=np.nan, refused=refused)
    if deviations:
        return RatioTest(
            *_correct_ratio(statistic, df, working, deviations, [survey for _, survey in groups]),
            [],
        )
    weights = np.concatenate(eigenvalues)  # w chi2_1 is a gamma variable of scale 2 w and shape 1/2
    return RatioTest(
        statistic, df, tail(2.0 * weights, np.full(len(weights), 0.5), max(statistic, 0.0)), []
    )


def _site_contrasts(
    influence: Influence, small_layout: Layout, couplings_of_site: dict[int, np.ndarray]
) -> np.ndarray:
    """Return combinations (q, r) of couplings at each site that are zero in the smaller model."""
    from scipy.linalg import block_diag

    blocks = [
        zero_contrasts(influence.layout, small_layout, influence.flat_positions(i)[positions])
        for i, positions in influence.site_coupling_positions(couplings_of_site).items()
    ]
    return block_diag(*blocks)


def _site_deviations(
    sample: Sample,
    influence: Influence,
    couplings_of_site: dict[int, np.ndarray],
    survey: SurveySample,
) -> np.ndarray:
    """Return the deviations (u, q) of a group's tested couplings under its sampling design.

    `couplings_of_site` marks the tested columns (D,) of each site's solution, as in
    `Influence.site_coupling_covariance`. `sample` contains the effective rows. `influence` is the
    influence of these rows on the fit with the site solution ``influence.site_theta``. The number
    of clusters or replicates is u.
    """
    layout = influence.layout
    positions = influence.site_coupling_positions(couplings_of_site)
    # for each site: positions of its tested couplings among all its parameters, level by level

    def couplings(site_theta: np.ndarray) -> np.ndarray:
        """Return the tested couplings (q,) in a site solution, in the order of the sites."""
        columns = regressors(layout).columns  # columns of each site's parameters in a site solution
        by_site = [
            site_theta[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel()[tested]
            for i, tested in positions.items()
        ]
        return np.concatenate(by_site)

    def estimate(reweighted: Sample) -> np.ndarray:
        """Return unpenalised estimates of the tested couplings from a replicate's rows."""
        sites = np.array(list(positions), dtype=np.intp)
        # `unpenalised` returns the site solution, and which of its entries are estimable
        return couplings(
            unpenalised(reweighted.collapsed(layout.n_levels), layout, influence.site_theta, sites)[
                0
            ]
        )

    if survey.replicates is None:
        return linearised(
            lambda chunk: influence.site_influences(chunk, positions),
            sum(map(len, positions.values())),
            sample,
            survey,
        )
    return replicated(estimate, couplings(influence.site_theta), sample, survey)


def _dropped_entries(layout: Layout, kept: np.ndarray) -> np.ndarray:
    """Return a mask (D, D) of the coupling matrix entries of pairs that are not `kept` (P,)."""
    is_dropped_pair = np.zeros((layout.m, layout.m), dtype=bool)
    i, j = layout.pairs[~kept].T
    is_dropped_pair[i, j] = is_dropped_pair[j, i] = True
    predictor_of_level = np.repeat(np.arange(layout.m), np.diff(layout.start))
    return is_dropped_pair[np.ix_(predictor_of_level, predictor_of_level)]


def _pseudo_likelihood(
    rows: Sample, layout: Layout, site_theta: np.ndarray, sites: np.ndarray
) -> float:
    """Return the weighted sum over rows of the log conditional probabilities of the `sites`.

    For predictor i at level a in a row x, the log probability is ``h_i(a) + sum_j J_ij(a, x_j) - ln
    Z_i(x)``, with intercepts h and couplings J from the site solution `site_theta` (D, 1 + D). Both
    h and J are 0 at the reference level, and J is also 0 between levels of the same predictor. All
    `sites` must have at least two levels, because Z_i is not computed for constant predictors.
    """
    varying = np.flatnonzero(layout.n_levels > 1)
    total = 0.0
    for chunk in rows.blocks(ROWS):
        indicators = one_hot(chunk.codes, layout)
        # log_normalisers (n, varying predictors); log_weights (n, D): exponents at the observed
        # levels, else 0; np.searchsorted: positions of the sites among the varying predictors
        log_normalisers, _ = conditionals(
            indicators @ site_theta[:, 1:].T + site_theta[:, 0], layout
        )
        log_weights = indicators * (indicators @ site_theta[:, 1:].T + site_theta[:, 0])
        total += float(chunk.weights @ log_weights[:, layout.columns(sites)].sum(axis=1))
        total -= float(
            chunk.weights @ log_normalisers[:, np.searchsorted(varying, sites)].sum(axis=1)
        )
    return total
