"""The exact likelihood ratio of nested log-linear models: when it is trusted, its degrees of
freedom, its level.
"""

import numpy as np
import pandas as pd
import pytest
import reference as oracle
from scipy import stats

import bbl
from bbl.boltzmann.inference.exact_ratio import ExactRatio, SparseMargin, exact_ratio_test
from bbl.engines import MaximumLikelihood
from bbl.engines.likelihood.states import StateTable
from bbl.model.layout import Layout
from bbl.model.states import random_parameters
from bbl.rows.sample import Sample

ENGINE = MaximumLikelihood()


def rows_of(counts):
    """Return the rows of a table of counts, one axis for each predictor."""
    counts = np.asarray(counts, dtype=float)
    codes = oracle.states(counts.shape).astype(np.uint8)
    filled = counts.ravel() > 0
    return Sample(np.ascontiguousarray(codes[filled]), counts.ravel()[filled])


def ratio_of(counts, terms, dropped, engine=ENGINE):
    """Test the `dropped` of the `terms` of a table of counts."""
    layout = Layout(np.shape(counts), terms)
    kept = np.array([tuple(scope) not in dropped for scope in layout.scopes[layout.m :]])
    return exact_ratio_test([rows_of(counts)], layout, kept, engine)


def frame(counts, names):
    return pd.DataFrame(oracle.states(np.shape(counts)), columns=list(names)).assign(
        n=np.ravel(counts)
    )


@pytest.mark.parametrize("engine", [ENGINE, MaximumLikelihood(lambda_=0.3, prior_count=2.0)])
def test_of_independence_it_is_that_of_the_table_whatever_the_penalty_of_the_fit(engine):
    counts = np.array([[30, 12, 9], [14, 20, 25]])
    found = ratio_of(counts, [(0, 1)], [(0, 1)], engine)
    expected = stats.chi2_contingency(counts, correction=False, lambda_="log-likelihood")
    assert (found.statistic, found.df, found.p) == pytest.approx(
        expected[:1] + (2, expected[1]), rel=1e-9
    )


def test_cells_below_twenty_rows_are_no_reason_against_it():
    counts = np.array([[6, 20, 20], [14, 30, 15], [20, 14, 25]])
    assert np.min(np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()) < 12
    assert isinstance(ratio_of(counts, [(0, 1)], [(0, 1)]), ExactRatio)


@pytest.mark.parametrize(
    ("counts", "scope"),
    [
        ([[40, 12], [3, 0]], (0, 1)),  # a cell expected to hold less than 1
        ([[9, 9, 9, 8], [4, 4, 4, 5], [4, 5, 4, 4]], (0, 1)),  # more than a fifth expected below 5
        ([[60, 0], [30, 9]], (0, 1)),  # empty although 6 rows are expected
        ([[6, 6], [7, 7]], (0,)),  # 26 rows for two parameters
    ],
)
def test_with_few_rows_it_is_not_trusted_and_the_margin_is_named(counts, scope):
    assert ratio_of(np.array(counts), [(0, 1)], [(0, 1)]) == SparseMargin(0, scope)


def test_an_empty_cell_that_lower_terms_explain_is_none_of_the_dropped_term():
    """No child was among the crew: the pair fits that, and a term of three loses a degree of
    freedom.
    """
    counts = np.array([[[30, 40], [50, 20], [33, 61]], [[24, 30], [40, 52], [0, 0]]])
    found = ratio_of(counts, [(0, 1), (0, 2), (1, 2), (0, 1, 2)], [(0, 1, 2)])
    assert found.df == 1  # of two: one stratum has one row of the table
    strata = [
        stats.chi2_contingency(counts[:, b], correction=False, lambda_="log-likelihood")[0]
        for b in range(2)
    ]
    assert 0.0 < found.statistic < sum(strata)


def test_two_rows_in_each_of_many_strata_are_too_few_however_full_the_margin_of_the_pair_is():
    rng = np.random.default_rng(0)
    matched = rng.multinomial(2, [0.25] * 4, 300).T.reshape(2, 2, 300)
    terms = [(0, 1), (0, 2), (1, 2)]
    assert matched.sum(axis=2).min() > 100
    assert ratio_of(matched, terms, [(0, 1)]).scope == (0,)
    assert isinstance(
        ratio_of(matched.reshape(2, 2, 6, 50).sum(axis=3), terms, [(0, 1)]), ExactRatio
    )


def test_margins_that_share_no_predictor_with_dropped_terms_may_be_sparse():
    rng = np.random.default_rng(1)
    counts = rng.multinomial(400, np.full(2 * 2 * 12 * 12, 1 / 576)).reshape(2, 2, 12, 12)
    found = ratio_of(counts, [(0, 1), (2, 3)], [(0, 1)])
    alone = stats.chi2_contingency(
        counts.sum(axis=(2, 3)), correction=False, lambda_="log-likelihood"
    )
    assert (found.statistic, found.df) == (pytest.approx(alone[0], rel=1e-7, abs=1e-8), 1)
    assert ratio_of(counts, [(0, 1), (2, 3)], [(2, 3)]).scope == (2, 3)


@pytest.mark.long
def test_the_verdict_does_not_depend_on_the_order_of_predictors_and_levels():
    rng = np.random.default_rng(2)
    verdicts = set()
    for _ in range(60):
        shape = tuple(rng.integers(2, 4, 3))
        counts = rng.poisson(rng.uniform(1, 8), shape)
        order, terms = rng.permutation(3), [(0, 1), (0, 2), (1, 2)]
        turned = np.flip(counts.transpose(order), axis=0)
        position = np.argsort(order)
        pair = tuple(sorted(int(position[i]) for i in (0, 1)))
        found, again = ratio_of(counts, terms, [(0, 1)]), ratio_of(turned, terms, [pair])
        assert type(found) is type(again)
        if isinstance(found, ExactRatio):
            assert (found.statistic, found.df) == pytest.approx(
                (again.statistic, again.df), rel=1e-7, abs=1e-8
            )
        verdicts.add(type(found))
    assert verdicts == {ExactRatio, SparseMargin}


def test_groups_without_rows_add_nothing_and_sparse_ones_refuse_for_all():
    counts = np.array([[30, 12], [14, 20]])
    layout, kept = Layout([2, 2], [(0, 1)]), np.array([False])
    full, none, few = rows_of(counts), rows_of(np.zeros((2, 2))), rows_of(counts // 6)
    alone = exact_ratio_test([full], layout, kept, ENGINE)
    assert exact_ratio_test([none, full], layout, kept, ENGINE) == alone
    assert exact_ratio_test([full, few], layout, kept, ENGINE) == SparseMargin(1, (0,))


def test_anova_says_in_words_why_it_has_no_ratio():
    rng = np.random.default_rng(3)
    sparse = frame(rng.poisson(6, (3, 4)) + np.arange(4), "ab")
    fits = [bbl.bbl(f"~ {right}", sparse, weights="n", method="ml") for right in ("a + b", "a * b")]
    row = bbl.anova(*fits).iloc[1]
    assert np.isnan(row["ratio"]) == row["test"].startswith(("smallest p", "test of one term"))
    few = sparse.assign(n=np.minimum(sparse["n"], 3))
    fits = [bbl.bbl(f"~ {right}", few, weights="n", method="ml") for right in ("a + b", "a * b")]
    row = bbl.anova(*fits).iloc[1]
    assert np.isnan(row["ratio"]) and 0 < row["p"] <= 1
    assert row["test"] == (
        "test of one term, because there are too few rows for a likelihood ratio of the "
        "parameters of a"
    )
    both = pd.concat([sparse.assign(n=sparse["n"] * 9, y="much"), few.assign(y="little")])
    fits = [bbl.bbl(f"y ~ {right}", both, weights="n", method="ml") for right in ("a + b", "a * b")]
    assert bbl.anova(*fits).iloc[1]["test"].endswith("of the parameters of a in little")


@pytest.mark.long
@pytest.mark.parametrize(
    ("levels", "n", "spread"),
    [
        ((2, 2, 2), 80, 0.3),
        ((2, 3, 4), 200, 0.3),
        ((4, 4, 2), 592, 0.6),
        ((3, 3, 3), 200, 0.6),
        ((2, 2, 30), 800, 0.2),
    ],
)
def test_it_holds_its_level(levels, n, spread):
    layout, kept = Layout(levels), np.ones(3, dtype=bool)
    kept[0] = False  # the pair of the first two predictors
    states, p = StateTable(layout), []
    codes = np.ascontiguousarray(states.codes(np.arange(states.n)), dtype=np.uint8)
    for seed in range(600):
        rng = np.random.default_rng([seed, n])
        theta = random_parameters(layout, "norm", dh=spread, dJ=spread, rng=rng)[0]
        layout.table(theta, 0, 1)[...] = 0.0
        counts = rng.multinomial(n, states.log_partition(theta)[1]).astype(float)
        found = exact_ratio_test(
            [Sample(codes[counts > 0], counts[counts > 0])], layout, kept, ENGINE
        )
        p += [found.p] if isinstance(found, ExactRatio) else []
    assert len(p) > 150
    for alpha, largest in ((0.01, 0.015), (0.05, 0.065), (0.1, 0.12)):
        assert np.mean(np.array(p) < alpha) < largest + 3 * np.sqrt(alpha * (1 - alpha) / len(p))
