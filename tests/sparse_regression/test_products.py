"""Codings, gauges and sums of products against plain loops."""

from itertools import product

import numpy as np
import pytest
import reference_sparse as reference

from bbl.sparse.products import Problem, Products, candidate_ratios, contrasts, simplex
from bbl.sparse.tables import log_odds, reference_tables, term_features, term_links, zero_sum_table

LEVELS = (2, 3, 2, 4)
STATES = np.array(list(product(*map(range, LEVELS))), dtype=np.uint8)


def weights(terms, q, seed=0):
    rng = np.random.default_rng(seed)
    return {t: rng.normal(size=(int(np.prod([LEVELS[i] - 1 for i in t])), q)) for t in terms}


@pytest.mark.parametrize("L", [2, 3, 7])
def test_corners_of_a_simplex_are_all_alike(L):
    corners = simplex(L)
    assert np.allclose(corners.sum(axis=0), 0)
    assert np.allclose(corners.T @ corners, L * np.eye(L - 1))
    assert np.allclose(corners @ corners.T, L * np.eye(L) - 1)
    assert L > 2 or corners.tolist() == [[-1.0], [1.0]]


def test_the_link_of_two_classes_is_their_log_odds():
    assert np.allclose(contrasts(2), [[-0.5], [0.5]])
    assert np.allclose(log_odds(np.array([1.7])), [1.7])


def test_features_of_a_term_are_products_of_those_of_its_predictors():
    for term in [(0,), (1,), (0, 2), (0, 1), (1, 3), (0, 1, 2, 3)]:
        ours = term_features(STATES, LEVELS, [term], None)
        theirs = reference.features(STATES, LEVELS, term)
        assert np.allclose(ours @ ours.T, theirs @ theirs.T)  # the same up to a rotation
    signs = (2.0 * STATES[:, 0] - 1) * (2.0 * STATES[:, 2] - 1)
    assert (term_features(STATES, LEVELS, [(0, 2)], None)[:, 0] == signs).all()


def test_both_gauges_give_the_link_at_every_state():
    given = weights([(0,), (3,), (0, 1), (1, 2, 3)], 2)
    link = term_links(STATES, LEVELS, given, None, 2)
    zero_sum = {t: zero_sum_table(t, LEVELS, w) for t, w in given.items()}
    for t, table in zero_sum.items():
        assert table.shape == (*(LEVELS[i] for i in t), 2)
        assert all(np.allclose(table.sum(axis=a), 0) for a in range(len(t)))
    for tables in (zero_sum, reference_tables(zero_sum)):
        total = sum(
            np.array([table[tuple(x[list(t)])] for x in STATES]) for t, table in tables.items()
        )
        assert np.allclose(total, link)
    for t, table in reference_tables(zero_sum).items():
        assert all(np.allclose(np.take(table, 0, axis=a), 0) for a in range(len(t)))


def test_a_missing_predictor_takes_the_mean_over_its_levels():
    given = weights([(0,), (0, 1), (1, 3)], 1)
    missing = np.zeros(STATES.shape, dtype=bool)
    missing[:, 1] = True
    link = term_links(STATES, LEVELS, given, None, 1).reshape(*LEVELS)
    found = term_links(STATES, LEVELS, given, missing, 1).reshape(*LEVELS)
    assert np.allclose(found, link.mean(axis=1, keepdims=True) * np.ones((1, 3, 1, 1)))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("group", [False, True])
def test_sums_of_all_candidates_are_those_of_their_columns(group, single):
    rng = np.random.default_rng(1)
    codes = np.column_stack([rng.integers(0, L, 60) for L in LEVELS]).astype(np.uint8)
    problem = Problem(np.ascontiguousarray(codes.T), LEVELS, rng.integers(0, 3, 60), 3, np.ones(60))
    slope = rng.normal(size=(2, 60))
    parents = [(0,), (1,), (0, 3)]
    ((some, ratio),) = candidate_ratios(problem, slope, parents, group, single)
    assert some == parents
    for p, parent in enumerate(parents):
        for i in range(4):
            if i in parent:
                assert ratio[i, p] == 0
                continue
            sums = Products(problem.codes, LEVELS, [tuple(sorted((*parent, i)))]).gradient(slope)
            want = (
                np.linalg.norm(sums) / np.sqrt(len(sums))
                if group
                else np.linalg.norm(sums, axis=1).max()
            )
            assert ratio[i, p] == pytest.approx(want, rel=1e-4 if single else 1e-12)


def test_the_hessian_is_the_slope_of_the_gradient():
    rng = np.random.default_rng(2)
    codes = np.column_stack([rng.integers(0, L, 40) for L in LEVELS]).astype(np.uint8)
    y, w = rng.integers(0, 4, 40), rng.integers(1, 5, 40).astype(float)
    for K in (2, 4):
        products = Products(np.ascontiguousarray(codes.T), LEVELS, [(0,), (1, 2)])
        theta, intercept = rng.normal(size=(3, K - 1)), rng.normal(size=K - 1)

        def gradient(theta, products=products, intercept=intercept, K=K):
            link = products.link(theta, intercept)
            log_p = reference.log_p(link.T @ contrasts(K).T)
            rest = np.exp(log_p)
            rest[np.arange(40), y % K] -= 1
            return products.gradient(
                np.ascontiguousarray(((w[:, None] * rest) @ contrasts(K)).T)
            ).ravel()

        link = products.link(theta, intercept)
        p = np.exp(reference.log_p(link.T @ contrasts(K).T))[:, 0]
        hessian = products.hessian(link, w, w * p * (1 - p))[: theta.size, : theta.size]
        for k in range(theta.size):
            step = np.zeros(theta.size)
            step[k] = 1e-5
            step = step.reshape(theta.shape)
            slope = (gradient(theta + step) - gradient(theta - step)) / 2e-5
            assert np.allclose(hessian[:, k], slope, rtol=1e-6, atol=1e-6)
