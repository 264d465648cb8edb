"""Nested models: tests of the terms that one model has and the other has not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl.boltzmann.inference.exact_ratio import ExactRatio, SparseMargin, exact_ratio_test
from bbl.boltzmann.inference.significance import Kind, evidence, of_group
from bbl.boltzmann.inference.survey import effective_rows, linearised, replicated
from bbl.engines import Engine
from bbl.model.conditional import conditionals
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

Groups = Sequence[tuple[Sample, SurveySample | None]]  # rows of each group, and their sampling design


@dataclass(frozen=True)
class RatioTest:
    """The test of the pairs that a smaller model lacks.

    Attributes
    ----------
    statistic : float
        Twice the gain of the log-likelihood or log pseudo-likelihood, summed over groups; nan without a test.
    df : int
        Couplings that the smaller model lacks, in all groups; of the exact likelihood the difference of ranks.
    p : float
        Nan without a test.
    refused : list of (int, int, int, Kind)
        Why there is none: group, pair and the reason of each table that cannot be tested.
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

    By the likelihood ratio where there are rows enough: the exact one (`exact_ratio_test`), or, of pairs, that of the
    pseudo-likelihood (`ratio_test`). Else each term by itself in the larger model, by its joint Wald test or the exact
    conditional tests of its couplings, with Bonferroni's correction. Arguments are those of `ratio_test`, `kept` over
    terms of all orders.
    """
    sparse = None
    if engine.has_likelihood:
        rows = [sample if survey is None else effective_rows(sample) for sample, survey in groups]
        exact = exact_ratio_test(rows, layout, kept, engine)
        if isinstance(exact, SparseMargin):
            sparse = exact
        elif exact.df and groups[0][1] is not None:
            return _design_ratio(groups, layout, theta, kept, engine, exact)
        elif exact.df:
            return RatioTest(exact.statistic, exact.df, exact.p, [])
    elif layout.order == 2:
        ratio = ratio_test(groups, layout, theta, kept)
        if not np.isnan(ratio.p):
            return ratio
    scopes = layout.scopes[layout.m :]
    dropped = np.flatnonzero(~kept)
    sizes = np.diff(layout.cuts)[layout.m :]
    p, refused = [], []
    for g, ((sample, survey), group_theta) in enumerate(zip(groups, theta, strict=True)):
        group_tests = of_group(evidence(sample, layout.of_group(g), group_theta, engine, survey))
        by_term = group_tests.tables()[2][layout.m :]
        p += [by_term[k] for k in dropped if not np.isnan(by_term[k])]
        kinds = [group_tests.verdict[layout.cuts[layout.m + k] : layout.cuts[layout.m + k + 1]] for k in dropped]
        refused += [
            (g, scopes[k], Kind(int(kind.min(initial=Kind.ABSENT))))
            for k, kind in zip(dropped, kinds, strict=True)
            if np.isnan(by_term[k])
        ]
    least = min(1.0, min(p) * len(p)) if p else np.nan
    return TermTests(len(groups) * int(sizes[dropped].sum()), len(p), least, refused, sparse)


def _design_ratio(
    groups: Groups, layout: Layout, theta: np.ndarray, kept: np.ndarray, engine: Engine, ratio: ExactRatio
) -> RatioTest:
    """Return the exact ratio of effective rows with the correction of Rao & Scott; arguments as in `nested_test`."""
    is_dropped = np.repeat(np.concatenate([np.zeros(layout.m, dtype=bool), ~kept]), np.diff(layout.cuts))
    working, deviations = [], []
    for g, ((sample, survey), group_theta) in enumerate(zip(groups, theta, strict=True)):
        group = evidence(sample, layout.of_group(g), group_theta, engine, survey)
        if group.influence is None or group.deviations is None:
            continue
        at = np.flatnonzero(is_dropped & (group.kind <= Kind.FEW))  # those with a finite maximum
        working.append(group.influence.covariance(group.rows)[np.ix_(at, at)])
        deviations.append(group.deviations[:, at])
    surveys = [survey for _, survey in groups]
    return RatioTest(*_corrected(ratio.statistic, ratio.df, working, deviations, surveys), [])


def _corrected(
    statistic: float, df: int, working: list[np.ndarray], deviations: list[np.ndarray], surveys: list
) -> tuple[float, int, float]:
    """Return a working ratio over its mean design effect, its degrees of freedom, and the p-value of `rao_scott`.

    Parameters
    ----------
    working : list of ndarray, shape (q, q)
        For each group the covariance of the dropped parameters, by which the ratio would be a chi-square variable.
    deviations : list of ndarray, shape (u, q)
        Theirs under the sampling design, by which groups are dependent.
    surveys : list of SurveySample
    """
    from scipy.linalg import block_diag

    E = np.hstack(deviations)
    effects = design_effects(E.T @ E, block_diag(*working))
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
        Of the larger model, of pairs.
    theta : ndarray, shape (K, layout.size)
        Its fitted parameters, with whatever penalty.
    kept : ndarray of bool, shape (P,)
        Which of its pairs the smaller model has.

    Returns
    -------
    RatioTest

    Notes
    -----
    Both models are fitted without a penalty. The pseudo-likelihood is no likelihood: each pair counts in the
    conditional distributions of both its predictors. So the statistic is distributed as ``sum lambda_k chi2_1`` with
    the eigenvalues of ``(H^-1)_dd^-1 V_dd``, H its Hessian, V the Godambe covariance and d the couplings that are
    dropped (Kent 1982; Varin, Reid & Firth 2011, section 2.3), whose tail is computed exactly. The test is refused
    where one of these couplings has no normal distribution by the rules of `bbl.boltzmann.inference.significance`.
    Under a sampling design V is the design covariance, of all groups together, and the tail that of `rao_scott`.
    """
    small = Layout(layout.n_levels, layout.pairs[kept])
    tables = [slice(a, b) for a, b in zip(layout.pair_start[:-1], layout.pair_start[1:], strict=True)]
    statistic, scales, refused = 0.0, [], []
    working, deviations = [], []
    df = len(groups) * sum(tables[p].stop - tables[p].start for p in np.flatnonzero(~kept))
    for g, ((sample, survey), group_theta) in enumerate(zip(groups, theta, strict=True)):
        group_evidence = evidence(sample, layout, group_theta, survey=survey)
        worst = [(int(group_evidence.kind[tables[p]].max(initial=Kind.WALD)), p) for p in np.flatnonzero(~kept)]
        refused += [(g, int(layout.pairs[p, 0]), int(layout.pairs[p, 1]), Kind(k)) for k, p in worst if k != Kind.WALD]
        influence = group_evidence.influence
        if refused or not isinstance(influence, Influence):
            continue
        rows = group_evidence.rows
        touched = np.unique(layout.pairs[~kept])
        dropped = _columns(layout, kept)
        start = influence.site_theta.copy()
        start[:, 1:][dropped] = 0.0
        reduced, _ = unpenalised(rows, small, start, touched)
        statistic += 2.0 * (
            _pseudo_likelihood(rows, layout, influence.site_theta, touched)
            - _pseudo_likelihood(rows, small, reduced, touched)
        )
        coupled = {int(i): dropped[layout.start[i]] for i in touched}
        covariance, alone = influence.site_coupling_covariance(rows, coupled)
        scales.append(design_effects(covariance, alone))
        if survey is not None:
            working.append(alone)
            deviations.append(_site_deviations(effective_rows(sample), influence, coupled, survey))
    if refused or not scales:
        return RatioTest(np.nan, df, np.nan, refused)
    if deviations:
        return RatioTest(*_corrected(statistic, df, working, deviations, [survey for _, survey in groups]), [])
    weights = np.concatenate(scales)
    return RatioTest(statistic, df, tail(2.0 * weights, np.full(len(weights), 0.5), max(statistic, 0.0)), [])


def _site_deviations(
    sample: Sample, influence: Influence, coupled: dict[int, np.ndarray], survey: SurveySample
) -> np.ndarray:
    """Return the deviations (u, q) of the couplings that are `coupled` in site solutions, under the sampling design."""
    layout, at = influence.layout, influence.site_coupling_positions(coupled)

    def couplings(site_theta: np.ndarray) -> np.ndarray:
        """Return the entries (q,) of a site solution that are the couplings in question, site after site."""
        columns = regressors(layout).columns
        by_site = [site_theta[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel()[k] for i, k in at.items()]
        return np.concatenate(by_site)

    def estimate(chosen: Sample) -> np.ndarray:
        """Return these couplings, estimated from a replicate's rows without a penalty."""
        sites = np.array(list(at), dtype=np.intp)
        return couplings(unpenalised(chosen.collapsed(layout.n_levels), layout, influence.site_theta, sites)[0])

    if survey.replicates is None:
        return linearised(
            lambda chunk: influence.site_influences(chunk, at), sum(map(len, at.values())), sample, survey
        )
    return replicated(estimate, couplings(influence.site_theta), sample, survey)


def _columns(layout: Layout, kept: np.ndarray) -> np.ndarray:
    """Return which entries of the matrix (D, D) of couplings belong to the pairs that are not kept."""
    gone = np.zeros((layout.m, layout.m), dtype=bool)
    i, j = layout.pairs[~kept].T
    gone[i, j] = gone[j, i] = True
    predictor = np.repeat(np.arange(layout.m), np.diff(layout.start))
    return gone[np.ix_(predictor, predictor)]


def _pseudo_likelihood(rows: Sample, layout: Layout, site_theta: np.ndarray, only: np.ndarray) -> float:
    """Return the weighted sum of the log conditional probabilities of some predictors."""
    varies = np.flatnonzero(layout.n_levels > 1)
    total = 0.0
    for chunk in rows.blocks(ROWS):
        X = one_hot(chunk.codes, layout)
        log_norm, _ = conditionals(X, layout, site_theta[:, 0], site_theta[:, 1:])
        field = X * (X @ site_theta[:, 1:].T + site_theta[:, 0])
        total += float(chunk.weights @ field[:, layout.columns(only)].sum(axis=1))
        total -= float(chunk.weights @ log_norm[:, np.searchsorted(varies, only)].sum(axis=1))
    return total
