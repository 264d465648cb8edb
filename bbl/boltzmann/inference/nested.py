"""Nested models: tests of the terms that the larger model has and the smaller model lacks.

A *term* is a set of interacting predictors, whose *couplings* are its parameters. K is the number
of groups, D the number of non-reference levels of all predictors. A *site* is a predictor as the
response of a regression on all others; a *site solution* (D, 1 + D) holds the intercept and the
couplings of each non-reference level, as fitted at the site, so that each coupling stands in it
twice. q is the number of tested couplings. ``layout.scopes`` lists the predictors of each table of
parameters: m tables of fields, then one for each term; ``layout.cuts`` are the positions at which
tables start in the parameter vector, and its end. An `Evidence` has for one group the `kind` of
test (size,) of each parameter (larger kinds are more cautious), the fitted `rows`, and the
`influence` of rows (None without a fit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl.boltzmann.inference.exact_ratio import ExactRatio, SparseMargin, exact_ratio_test
from bbl.boltzmann.inference.significance import Kind, evidence, of_group
from bbl.boltzmann.inference.survey import effective_rows, linearised, replicated
from bbl.engines import Engine
from bbl.model.energy import conditionals
from bbl.model.godambe import Influence
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.regressors import regressors
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
    """The test of the pairs that a smaller model lacks.

    Attributes
    ----------
    statistic : float
        Twice the gain of the log-likelihood or log pseudo-likelihood, summed over groups; nan
        without a test.
    df : int
        Couplings that the smaller model lacks, in all groups; of the exact likelihood the
        difference of ranks.
    p : float
        nan without a test.
    refused : list of (int, int, int, Kind)
        Why there is no test: group, both predictors and reason of each table of couplings that
        cannot be tested.
    """

    statistic: float
    df: int
    p: float
    refused: list[tuple[int, int, int, Kind]]


@dataclass(frozen=True)
class TermTests:
    """The tests of the terms that a smaller model lacks, one by one.

    Attributes
    ----------
    df : int
        Couplings that the smaller model lacks, in all groups.
    tested : int
        Terms with a test, in all groups.
    p : float
        The least of their p-values times their number, at most 1; nan if none has a test.
    refused : list of (int, tuple of int, Kind)
        Group, predictors and reason of each term without a test.
    sparse : SparseMargin or None
        Why the exact likelihood ratio is not trusted.
    """

    df: int
    tested: int
    p: float
    refused: list[tuple[int, tuple[int, ...], Kind]]
    sparse: SparseMargin | None


def nested_test(
    groups: Groups, layout: Layout, theta: np.ndarray, kept: np.ndarray, engine: Engine
) -> RatioTest | TermTests:
    """Test whether the terms that are not `kept` have couplings of zero in all groups.

    The test is a likelihood ratio if there are enough rows: of the exact likelihood
    (`exact_ratio_test`) if the engine has it, else of the pseudo-likelihood for models of pairs
    (`ratio_test`). Otherwise each term is tested by itself in the larger model, by its joint Wald
    test or the exact conditional tests of its couplings, with Bonferroni's correction. Arguments
    are those of `ratio_test`, but `kept` (T,) has an entry for each of the T terms of all orders.
    """
    sparse = None
    if engine.has_likelihood:
        rows = [sample if survey is None else effective_rows(sample) for sample, survey in groups]
        exact = exact_ratio_test(rows, layout, kept, engine)
        if isinstance(exact, SparseMargin):
            sparse = exact
        # with df 0 there is no ratio: terms are tested one by one below
        elif exact.df and groups[0][1] is not None:  # all groups have a sampling design, or none
            return _test_ratio_under_design(groups, layout, theta, kept, engine, exact)
        elif exact.df:
            return RatioTest(exact.statistic, exact.df, exact.p, [])
    elif layout.order == 2:
        ratio = ratio_test(groups, layout, theta, kept)
        if not np.isnan(ratio.p):
            return ratio
    scopes = layout.scopes[layout.m :]
    dropped = np.flatnonzero(~kept)
    sizes = np.diff(layout.cuts)[layout.m :]
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
        # a term is refused for the least cautious kind of its parameters: only if all are absent,
        # it is absent
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
    kept: np.ndarray,
    engine: Engine,
    ratio: ExactRatio,
) -> RatioTest:
    """Return the exact ratio of effective rows with the correction of Rao & Scott; arguments as in
    `nested_test`.
    """
    is_dropped = np.repeat(
        np.concatenate([np.zeros(layout.m, dtype=bool), ~kept]), np.diff(layout.cuts)
    )
    working = []
    deviations = []
    for g, ((sample, survey), group_theta) in enumerate(zip(groups, theta, strict=True)):
        group = evidence(sample, layout.of_group(g), group_theta, engine, survey)
        if group.influence is None or group.deviations is None:
            continue
        # parameters of kinds above FEW (unbounded, absent) have no finite maximum
        dropped_positions = np.flatnonzero(is_dropped & (group.kind <= Kind.FEW))
        working.append(
            group.influence.covariance(group.rows)[np.ix_(dropped_positions, dropped_positions)]
        )
        deviations.append(group.deviations[:, dropped_positions])
    surveys = [survey for _, survey in groups]
    return RatioTest(*_correct_ratio(ratio.statistic, ratio.df, working, deviations, surveys), [])


def _correct_ratio(
    statistic: float,
    df: int,
    working: list[np.ndarray],
    deviations: list[np.ndarray],
    surveys: list,
) -> tuple[float, int, float]:
    """Return a working ratio over its mean design effect, its degrees of freedom, and the p-value
    of `rao_scott`.

    Design effects are the eigenvalues of ``working^-1 E'E``, all groups together: by how much the
    sampling design multiplies variances.

    Parameters
    ----------
    working : list of ndarray, shape (q, q)
        For each group the covariance of its q dropped parameters without the sampling design, under
        which the ratio would be a chi-square variable.
    deviations : list of ndarray, shape (u, q)
        For each group the matrix E whose ``E'E`` is the covariance of these under the design; its
        rows are the same clusters or replicates in all groups, which are dependent.
    surveys : list of SurveySample
        Designs of all groups.
    """
    from scipy.linalg import block_diag

    E = np.hstack(deviations)
    effects = design_effects(E.T @ E, block_diag(*working))
    # positions of all groups' rows in the design
    rows = np.unique(np.concatenate([survey.rows for survey in surveys]))
    test = rao_scott(statistic, effects, replace(surveys[0], rows=rows).df)
    return test.statistic, df, test.p


def ratio_test(groups: Groups, layout: Layout, theta: np.ndarray, kept: np.ndarray) -> RatioTest:
    """Test whether the pairs that are not `kept` have couplings of zero in all groups.

    Parameters
    ----------
    groups : sequence of K pairs of a Sample and a SurveySample or None
        Their training rows, without missing values, and the sampling design of these.
    layout : Layout
        Of the larger model, of pairs. All predictors have two levels or more: formulas give a
        constant one a second.
    theta : ndarray, shape (K, layout.size)
        Its fitted parameters, with whatever penalty.
    kept : ndarray of bool, shape (P,)
        Which of its pairs the smaller model has.

    Returns
    -------
    RatioTest

    Notes
    -----
    Both models are fitted without a penalty. The pseudo-likelihood is no likelihood: each pair
    counts in the conditional distributions of both its predictors. So the statistic is distributed
    as ``sum lambda_k chi2_1`` with the eigenvalues of ``(H^-1)_dd^-1 V_dd``, H its Hessian, V the
    Godambe covariance and d the couplings that are dropped (Kent 1982; Varin, Reid & Firth 2011,
    section 2.3), whose tail is computed exactly. The test is refused where one of these couplings
    has no normal distribution by the rules of `bbl.boltzmann.inference.significance`. Under a
    sampling design V is the design covariance, of all groups together, and the tail that of
    `rao_scott`.
    """
    small_layout = Layout(layout.n_levels, layout.pairs[kept])
    table_slices = [
        slice(begin, end)
        for begin, end in zip(layout.pair_start[:-1], layout.pair_start[1:], strict=True)
    ]
    statistic = 0.0
    eigenvalues = []
    refused = []
    working = []
    deviations = []
    df = len(groups) * sum(
        table_slices[pair].stop - table_slices[pair].start for pair in np.flatnonzero(~kept)
    )
    for g, ((sample, survey), group_theta) in enumerate(zip(groups, theta, strict=True)):
        group_evidence = evidence(sample, layout, group_theta, survey=survey)
        # (most cautious kind, number of the pair); WALD for a table without parameters
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
        # one refusal, in any group, refuses the whole test
        if refused or not isinstance(influence, Influence):
            continue
        rows = group_evidence.rows
        sites = np.unique(layout.pairs[~kept])
        is_dropped = _dropped_entries(layout, kept)
        site_start = influence.site_theta.copy()
        site_start[:, 1:][is_dropped] = 0.0
        # the fit of the smaller model starts from that of the larger one, dropped couplings set to
        # 0
        small_site_theta, _ = unpenalised(rows, small_layout, site_start, sites)
        statistic += 2.0 * (
            _pseudo_likelihood(rows, layout, influence.site_theta, sites)
            - _pseudo_likelihood(rows, small_layout, small_site_theta, sites)
        )
        # for each site which columns (D,) are tested: the row of its first level, equal to those of
        # its other levels
        couplings_of_site = {int(i): is_dropped[layout.start[i]] for i in sites}
        # (q, q) each: V_dd and (H^-1)_dd of the notes
        godambe_covariance, working_covariance = influence.site_coupling_covariance(
            rows, couplings_of_site
        )
        # lambda_k of the notes
        eigenvalues.append(design_effects(godambe_covariance, working_covariance))
        if survey is not None:
            working.append(working_covariance)
            deviations.append(
                _site_deviations(effective_rows(sample), influence, couplings_of_site, survey)
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


def _site_deviations(
    sample: Sample,
    influence: Influence,
    couplings_of_site: dict[int, np.ndarray],
    survey: SurveySample,
) -> np.ndarray:
    """Return the deviations (u, q) of tested couplings of the site solution of a group under its
    sampling design.

    `couplings_of_site` says for each site which columns (D,) of its solution are tested, as in
    `Influence.site_coupling_covariance`. `sample` holds the effective rows; `influence` is that of
    the fit, whose site solution is ``influence.site_theta``. u is the number of clusters or
    replicates.
    """
    layout = influence.layout
    positions = influence.site_coupling_positions(couplings_of_site)
    # positions: for each site those of its tested couplings among all its parameters, level after
    # level

    def couplings(site_theta: np.ndarray) -> np.ndarray:
        """Return the entries (q,) of a site solution that are the couplings in question, site after
        site.
        """
        columns = regressors(layout).columns  # of a site solution, those of each site's parameters
        by_site = [
            site_theta[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel()[tested]
            for i, tested in positions.items()
        ]
        return np.concatenate(by_site)

    def estimate(reweighted: Sample) -> np.ndarray:
        """Return these couplings, estimated from a replicate's rows without a penalty."""
        sites = np.array(list(positions), dtype=np.intp)
        # `unpenalised` returns the site solution, and which of its entries are determined
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
    """Return which entries of the matrix (D, D) of couplings belong to the pairs that are not
    `kept` (P,).
    """
    is_dropped_pair = np.zeros((layout.m, layout.m), dtype=bool)
    i, j = layout.pairs[~kept].T
    is_dropped_pair[i, j] = is_dropped_pair[j, i] = True
    predictor_of_level = np.repeat(np.arange(layout.m), np.diff(layout.start))
    return is_dropped_pair[np.ix_(predictor_of_level, predictor_of_level)]


def _pseudo_likelihood(
    rows: Sample, layout: Layout, site_theta: np.ndarray, sites: np.ndarray
) -> float:
    """Return the weighted sum over rows of the log conditional probabilities of the predictors
    `sites`.

    That of predictor i, at the level a that a row has, is ``h_i(a) + sum_j J_ij(a, x_j) - ln
    Z_i(x)``, with the intercepts h and couplings J of the site solution `site_theta` (D, 1 + D).
    Both are 0 at the reference level, and J within a predictor. Only predictors with two levels or
    more have a normaliser Z_i, and `sites` are such.
    """
    varying = np.flatnonzero(layout.n_levels > 1)
    total = 0.0
    for chunk in rows.blocks(ROWS):
        indicators = one_hot(chunk.codes, layout)
        # log_normalisers (n, varying predictors); log_weights (n, D): exponents at the observed
        # levels, else 0 np.searchsorted: positions of the sites among the varying predictors
        log_normalisers, _ = conditionals(
            indicators @ site_theta[:, 1:].T + site_theta[:, 0], layout
        )
        log_weights = indicators * (indicators @ site_theta[:, 1:].T + site_theta[:, 0])
        total += float(chunk.weights @ log_weights[:, layout.columns(sites)].sum(axis=1))
        total -= float(
            chunk.weights @ log_normalisers[:, np.searchsorted(varying, sites)].sum(axis=1)
        )
    return total
