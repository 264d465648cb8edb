"""Exact likelihood ratio tests of nested log-linear models, if there are enough rows.

The *margin* of a term is the table of counts of its predictors, summed over all other predictors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bbl.engines import Engine
from bbl.engines.likelihood.states import StateTable
from bbl.model.layout import Layout
from bbl.model.regressors import regressors
from bbl.model.scores import free_sizes, is_scored, score_map, site_scores_of
from bbl.rows.sample import Sample
from bbl.stats.goodness import is_sparse

__all__ = ["ExactRatio", "SparseMargin", "exact_ratio_test", "smaller_layout"]

# Rows required for each predictor of a dropped term, per parameter of the log odds of a level given
# the other predictors (benchmarks.studies.likelihood).
ROWS_PER_PARAMETER = 15.0
NO_SHARE = 1e-12  # cells with a smaller expected proportion of the rows are empty under the model

Term = tuple[int, ...]


@dataclass(frozen=True)
class ExactRatio:
    """The likelihood ratio test of two nested models.

    Attributes
    ----------
    statistic : float
        Twice the gain in log-likelihood, summed over groups.
    df : int
        Difference in the number of estimable parameters, summed over groups.
    p : float
        nan if `df` is 0.
    """

    statistic: float
    df: int
    p: float


@dataclass(frozen=True)
class SparseMargin:
    """A margin that has too few rows for a likelihood ratio test: its predictors and its group."""

    group: int
    scope: Term


def exact_ratio_test(
    groups: Sequence[Sample],
    layout: Layout,
    kept: np.ndarray,
    engine: Engine,
    scores: Sequence[np.ndarray | None] | None = None,
) -> ExactRatio | SparseMargin:
    """Test whether terms can be dropped or made linear in level scores, using the exact likelihood.

    Parameters
    ----------
    groups : sequence of K Samples
        Training rows of each group, without missing values.
    layout : Layout
        Layout of the larger model.
    kept : ndarray of bool, shape (T,)
        Whether each term of the larger model is also in the smaller model.
    engine : Engine
        An engine whose attribute `has_likelihood` is True.
    scores : sequence, optional
        Level scores of the smaller model, in the form used by `Layout`.

    Notes
    -----
    The chi-squared distribution is used if three conditions hold in each group with rows. First,
    Cochran's rule (`bbl.stats.goodness.is_sparse`) holds in the margins of the largest terms of the
    larger model that share a predictor with a dropped term; expected counts are computed from the
    terms of the smaller model within the margin. Second, the margins of dropped terms have no empty
    cell where rows are expected. Third, for each predictor of a dropped term, there are at least 15
    rows per parameter in the log odds of a level. A test at the 5 % level then rejects at most 6.2
    % of tables drawn from the smaller model (`benchmarks.studies.likelihood`). It is not sufficient
    to check only the margins of the dropped terms. With two rows in each of many strata, for
    example, the ratio for a pair is twice as large as it should be, regardless of the number of
    rows in the pair's own margin (Neyman & Scott 1948, Econometrica 16).
    """
    from scipy.stats import chi2

    # the first m tables of a layout contain fields
    small_layout = smaller_layout(layout, kept, scores)
    sizes = dict(zip(small_layout.scopes, free_sizes(small_layout).tolist(), strict=True))
    # terms whose couplings differ in the smaller model
    dropped = [
        scope
        for scope, size in zip(layout.scopes, free_sizes(layout).tolist(), strict=True)
        if len(scope) > 1 and sizes.get(scope) != size
    ]
    statistic = 0.0
    df = 0
    for g, sample in enumerate(groups):
        rows = sample.collapsed(layout.n_levels)
        if not rows.n:
            continue
        group_layouts = [model_layout.of_group(g) for model_layout in (layout, small_layout)]
        sparse_scope = _find_sparse_margin(rows, group_layouts[0], small_layout, dropped, engine)
        if sparse_scope is not None:
            return SparseMargin(g, sparse_scope)
        large, small = (
            engine.maximum_likelihood(rows, group_layout) for group_layout in group_layouts
        )
        statistic += 2.0 * (large.log_likelihood - small.log_likelihood)
        df += large.rank - small.rank
    return ExactRatio(statistic, df, float(chi2.sf(max(statistic, 0.0), df)) if df else np.nan)


def smaller_layout(
    layout: Layout, kept: np.ndarray, scores: Sequence[np.ndarray | None] | None
) -> Layout:
    """Return the layout of the smaller model, with the `kept` (T,) terms and level `scores`."""
    scopes = layout.scopes[layout.m :]
    terms = [scope for scope, is_kept in zip(scopes, kept, strict=True) if is_kept]
    return Layout(layout.n_levels, terms, layout.support, layout.n_ordered, scores)


def _find_sparse_margin(
    rows: Sample, layout: Layout, small_layout: Layout, dropped: list[Term], engine: Engine
) -> Term | None:
    """Return the predictors of the first margin with too few rows to test the `dropped` terms.

    Dropped terms have fewer couplings in the smaller model, or none. The result is None if all
    margins have enough rows. The rules are given in the notes of `exact_ratio_test`. A single
    predictor is returned if there are too few rows for the parameters of its conditional
    distribution given the other predictors.
    """
    tested_predictors = {i for term in dropped for i in term}
    # mask: regressors of each predictor; n_levels: numbers of levels of regressors
    all_regressors = regressors(layout)
    # parameters of the log odds of a level, for each predictor: the intercept, and one for each
    # non-reference level of a regressor
    n_parameters = 1.0 + all_regressors.mask @ (all_regressors.n_levels - 1)
    if layout.scores is not None:
        site_scores = site_scores_of(layout)
        n_parameters = np.array([1.0 + site_scores.n_features(i) for i in range(layout.m)])
    for i in sorted(tested_predictors):
        if rows.total < ROWS_PER_PARAMETER * n_parameters[i]:
            return (i,)
    terms = [tuple(int(i) for i in scope) for scope in layout.scopes]  # includes single predictors
    small_terms = set(small_layout.scopes)
    for scope in _maximal_terms(terms):
        # couplings that are linear in scores do not need rows in all cells
        if tested_predictors.isdisjoint(scope) or is_scored(layout, scope):
            continue
        inner_terms = [term for term in terms if set(term) <= set(scope)]
        observed, expected = _fit_margin(
            rows,
            layout,
            scope,
            [term for term in inner_terms if term in small_terms],
            engine,
            small_layout.scores,
        )
        if is_sparse(expected.ravel()):
            return scope
        for term in inner_terms:
            other_axes = tuple(axis for axis, i in enumerate(scope) if i not in term)
            is_empty = observed.sum(axis=other_axes) == 0.0
            if term in dropped and (expected.sum(axis=other_axes)[is_empty] > 0.0).any():
                return term
    return None


def _maximal_terms(terms: list[Term]) -> list[Term]:
    """Return the terms that are not contained in another term."""
    scopes = [frozenset(term) for term in terms]
    return [
        term
        for term, scope in zip(terms, scopes, strict=True)
        if not any(scope < larger for larger in scopes)
    ]


def _fit_margin(
    rows: Sample,
    layout: Layout,
    scope: Term,
    terms: list[Term],
    engine: Engine,
    scores: Sequence[np.ndarray | None] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the observed margin of the predictors in `scope`, and its expectation under `terms`.

    Expected counts are computed with the level scores of the smaller model. Margins have one axis
    for each predictor. `terms` contains sets of predictors in `scope`, including single predictors.
    The expected counts of impossible cells are zero.
    """
    n_levels = layout.n_levels[list(scope)]
    axis_of = {i: axis for axis, i in enumerate(scope)}
    support = None if layout.support is None else layout.support.margin(scope)
    model = Layout(
        n_levels,
        [tuple(axis_of[i] for i in term) for term in terms if len(term) > 1],
        support,
        scores=None if scores is None else [scores[i] for i in scope],
    )
    codes = np.ascontiguousarray(rows.codes[:, scope])
    margin = Sample(codes, rows.weights).collapsed(n_levels)
    table = StateTable(model)
    observed = table.counts(margin)
    expected = observed  # a model with the term of all predictors in `scope` is saturated
    if scope not in terms or score_map(model) is not None:
        theta = engine.maximum_likelihood(margin, model).theta
        # times the probabilities of all cells
        expected = margin.total * table.log_partition(theta)[1]
        expected[expected < NO_SHARE * margin.total] = 0.0
    return observed.reshape(table.shape), expected.reshape(table.shape)
