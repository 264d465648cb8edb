"""Nested models: tests of the terms in the larger model that the smaller model does not have.

K, D and q are the numbers of groups, non-reference levels and tested couplings. A *site solution*
(D, 1 + D) contains the intercept and the couplings of each non-reference level as estimated at its
site, before the two estimates of each coupling are averaged.
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
    """The test of the pairs that the smaller model does not have.

    Attributes
    ----------
    statistic : float
        Twice the gain of the log-likelihood or log pseudo-likelihood, summed over groups; nan
        without a test.
    df : int
        Number of couplings that are not in the smaller model, in all groups; for the exact
        likelihood, the difference of ranks.
    p : float
        nan without a test.
    refused : list of (int, int, int, Kind)
        Why there is no test: group, both predictors and reason for each table of couplings that
        cannot be tested.
    """

    statistic: float
    df: int
    p: float
    refused: list[tuple[int, int, int, Kind]]


@dataclass(frozen=True)
class TermTests:
    """Separate tests of the terms that the smaller model does not have.

    Attributes
    ----------
    df : int
        Number of couplings that are not in the smaller model, in all groups.
    tested : int
        Number of terms with a test, in all groups.
    p : float
        The smallest p-value times the number of tested terms, at most 1; nan if there are none.
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

    With enough rows this is a likelihood ratio test, of the exact likelihood (`exact_ratio_test`)
    if the engine supports it, else of the pseudo-likelihood for models of pairs (`ratio_test`).
    Otherwise each term is tested separately in the larger model, by its joint Wald test or the
    exact conditional tests of its couplings, with Bonferroni's correction. The arguments are as in
    `ratio_test`, but `kept` (T,) has an entry for each of the T terms of all orders.
    """
    sparse = None
    if engine.has_likelihood:
        rows = [sample if survey is None else effective_rows(sample) for sample, survey in groups]
        exact = exact_ratio_test(rows, layout, kept, engine)
        if isinstance(exact, SparseMargin):
            sparse = exact
        # with df 0 there is no ratio test: terms are tested separately below
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
    kept: np.ndarray,
    engine: Engine,
    ratio: ExactRatio,
) -> RatioTest:
    """Return the exact ratio test of effective rows with the correction of Rao & Scott.

    The arguments are as in `nested_test`.
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
        # parameters of kinds above FEW (unbounded, absent) have no finite estimate
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
    """Return a working ratio divided by its mean design effect, its df, and the Rao-Scott p-value.

    Design effects, the factors by which the sampling design increases variances, are the
    eigenvalues of ``working^-1 E'E`` for all groups together.

    Parameters
    ----------
    working : list of ndarray, shape (q, q)
        For each group, the covariance of its q dropped parameters without the sampling design, for
        which the ratio would have a chi-squared distribution.
    deviations : list of ndarray, shape (u, q)
        For each group, the matrix E, where ``E'E`` is their covariance under the design. Its rows
        are the same clusters or replicates in all groups, which are therefore dependent.
    surveys : list of SurveySample
        The designs of all groups.
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
        Training rows without missing values, and their sampling design, for each group.
    layout : Layout
        Layout of the larger model, with pairs only. All predictors have at least two levels,
        because a second level is added to constant ones.
    theta : ndarray, shape (K, layout.size)
        Fitted parameters of the larger model, with any penalty.
    kept : ndarray of bool, shape (P,)
        Which of the pairs are in the smaller model.

    Returns
    -------
    RatioTest

    Notes
    -----
    Both models are fitted without a penalty. The pseudo-likelihood is not a likelihood, because
    each pair contributes to the conditional distributions of both its predictors. The statistic is
    therefore distributed as ``sum lambda_k chi2_1``, where lambda_k are the eigenvalues of
    ``(H^-1)_dd^-1 V_dd``, H is the Hessian, V the Godambe covariance and d the dropped couplings
    (Kent 1982; Varin, Reid & Firth 2011, section 2.3). Its tail is computed exactly. The test is
    refused if, by the rules of `bbl.boltzmann.inference.significance`, one of these couplings does
    not have a normal distribution. Under a sampling design, V is the design covariance of all
    groups together, and the tail is computed by `rao_scott`.
    """
    small_layout = layout.with_terms(layout.pairs[kept])
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
        # if one table in any group cannot be tested, there is no test
        if refused or not isinstance(influence, Influence):
            continue
        rows = group_evidence.rows
        sites = np.unique(layout.pairs[~kept])
        is_dropped = _dropped_entries(layout, kept)
        site_start = influence.site_theta.copy()
        site_start[:, 1:][is_dropped] = 0.0
        # the fit of the smaller model starts at the larger one, with dropped couplings set to 0
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
    """Return the deviations (u, q) of a group's tested couplings under its sampling design.

    `couplings_of_site` marks the tested columns (D,) of the solution of each site, as in
    `Influence.site_coupling_covariance`. `sample` contains the effective rows; `influence` belongs
    to the fit with the site solution ``influence.site_theta``. Here u is the number of clusters or
    replicates.
    """
    layout = influence.layout
    positions = influence.site_coupling_positions(couplings_of_site)
    # for each site: positions of its tested couplings among all its parameters, level by level

    def couplings(site_theta: np.ndarray) -> np.ndarray:
        """Return the tested couplings (q,) from a site solution, site by site."""
        columns = regressors(layout).columns  # columns of each site's parameters in a site solution
        by_site = [
            site_theta[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel()[tested]
            for i, tested in positions.items()
        ]
        return np.concatenate(by_site)

    def estimate(reweighted: Sample) -> np.ndarray:
        """Return the unpenalised estimates of these couplings from a replicate's rows."""
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
    """Return which entries of the coupling matrix (D, D) belong to pairs not `kept` (P,)."""
    is_dropped_pair = np.zeros((layout.m, layout.m), dtype=bool)
    i, j = layout.pairs[~kept].T
    is_dropped_pair[i, j] = is_dropped_pair[j, i] = True
    predictor_of_level = np.repeat(np.arange(layout.m), np.diff(layout.start))
    return is_dropped_pair[np.ix_(predictor_of_level, predictor_of_level)]


def _pseudo_likelihood(
    rows: Sample, layout: Layout, site_theta: np.ndarray, sites: np.ndarray
) -> float:
    """Return the weighted sum over rows of the log conditional probabilities of the `sites`.

    For predictor i at level a of a row x, it is ``h_i(a) + sum_j J_ij(a, x_j) - ln Z_i(x)``, with
    the intercepts h and couplings J of the site solution `site_theta` (D, 1 + D). Both are 0 at the
    reference level; J is also 0 within a predictor. All `sites` must have at least two levels,
    because others have no normaliser Z_i.
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
