"""Nested models: tests of the terms that one model has and the other has not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bbl.boltzmann.inference.significance import Kind, evidence, of_group
from bbl.engines import Engine
from bbl.model.conditional import conditionals
from bbl.model.godambe import ROWS, Influence
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.unpenalised import unpenalised
from bbl.rows.sample import Sample
from bbl.stats.gammas import tail

__all__ = ["RatioTest", "TermTests", "likelihood_ratio_test", "nested_test", "ratio_test"]


@dataclass(frozen=True)
class RatioTest:
    """The test of the pairs that a smaller model lacks.

    Attributes
    ----------
    statistic : float
        Twice the gain of the log-likelihood or log pseudo-likelihood, summed over groups; nan without a test.
    df : int
        Couplings that the smaller model lacks, in all groups; of the exact likelihood those with a finite maximum.
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
    """

    df: int
    tested: int
    p: float
    refused: list[tuple[int, tuple[int, ...], Kind]]


def nested_test(
    groups: Sequence[Sample], layout: Layout, theta: np.ndarray, kept: np.ndarray, engine: Engine
) -> RatioTest | TermTests:
    """Test whether the terms that are not `kept` have couplings of zero in all groups.

    By the likelihood ratio where the cells of all terms are well filled: the exact one, or, of pairs, that of the
    pseudo-likelihood (`ratio_test`). Else each term by itself in the larger model, by its joint Wald test or the exact
    conditional tests of its couplings, with Bonferroni's correction. Arguments are those of `ratio_test`, `kept` over
    terms of all orders.
    """
    ratio = None
    if engine.has_likelihood:
        ratio = likelihood_ratio_test(groups, layout, theta, kept, engine)
    elif layout.order == 2:
        ratio = ratio_test(groups, layout, theta, kept)
    if ratio is not None and not np.isnan(ratio.p):
        return ratio
    scopes = layout.scopes[layout.m :]
    dropped = np.flatnonzero(~kept)
    sizes = np.diff(layout.cuts)[layout.m :]
    p, refused = [], []
    for g, (sample, group_theta) in enumerate(zip(groups, theta, strict=True)):
        group_tests = of_group(evidence(sample, layout, group_theta, engine))
        by_term = group_tests.tables()[2][layout.m :]
        p += [by_term[k] for k in dropped if not np.isnan(by_term[k])]
        kinds = [group_tests.verdict[layout.cuts[layout.m + k] : layout.cuts[layout.m + k + 1]] for k in dropped]
        refused += [
            (g, scopes[k], Kind(int(kind.min(initial=Kind.ABSENT))))
            for k, kind in zip(dropped, kinds, strict=True)
            if np.isnan(by_term[k])
        ]
    least = min(1.0, min(p) * len(p)) if p else np.nan
    return TermTests(len(groups) * int(sizes[dropped].sum()), len(p), least, refused)


def likelihood_ratio_test(
    groups: Sequence[Sample], layout: Layout, theta: np.ndarray, kept: np.ndarray, engine: Engine
) -> RatioTest | None:
    """Test by the exact likelihood whether the terms that are not `kept` have couplings of zero in all groups.

    None where one of these couplings has no normal distribution by the rules of
    `bbl.boltzmann.inference.significance`. Degrees of freedom are differences of ranks. Arguments are those of
    `nested_test`.
    """
    from scipy.stats import chi2

    scopes = layout.scopes[layout.m :]
    small = Layout(layout.n_levels, [scope for scope, is_kept in zip(scopes, kept, strict=True) if is_kept])
    is_dropped = np.repeat(np.concatenate([np.zeros(layout.m, dtype=bool), ~kept]), np.diff(layout.cuts))
    statistic, df = 0.0, 0
    for sample, group_theta in zip(groups, theta, strict=True):
        group_evidence = evidence(sample, layout, group_theta, engine)
        if (group_evidence.kind[is_dropped] != Kind.WALD).any():
            return None
        (value, rank), (small_value, small_rank) = (
            engine.maximum_likelihood(group_evidence.rows, model) for model in (layout, small)
        )
        statistic += 2.0 * (value - small_value)
        df += rank - small_rank
    return RatioTest(statistic, df, float(chi2.sf(max(statistic, 0.0), df)), [])


def ratio_test(groups: Sequence[Sample], layout: Layout, theta: np.ndarray, kept: np.ndarray) -> RatioTest:
    """Test whether the pairs that are not `kept` have couplings of zero in all groups.

    Parameters
    ----------
    groups : sequence of K Samples
        Their training rows, without missing values.
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
    """
    small = Layout(layout.n_levels, layout.pairs[kept])
    tables = [slice(a, b) for a, b in zip(layout.pair_start[:-1], layout.pair_start[1:], strict=True)]
    statistic, scales, refused = 0.0, [], []
    df = len(groups) * sum(tables[p].stop - tables[p].start for p in np.flatnonzero(~kept))
    for g, (sample, group_theta) in enumerate(zip(groups, theta, strict=True)):
        group_evidence = evidence(sample, layout, group_theta)
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
        scales.append(_eigenvalues(*influence.joint(rows, {int(i): dropped[layout.start[i]] for i in touched})))
    if refused or not scales:
        return RatioTest(np.nan, df, np.nan, refused)
    weights = np.concatenate(scales)
    return RatioTest(statistic, df, tail(2.0 * weights, np.full(len(weights), 0.5), max(statistic, 0.0)), [])


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


def _eigenvalues(covariance: np.ndarray, alone: np.ndarray) -> np.ndarray:
    """Return the eigenvalues of ``alone^-1 covariance``, both symmetric; rounding below zero is none."""
    from scipy.linalg import eigh

    return np.maximum(eigh(covariance, alone, eigvals_only=True), 0.0)
