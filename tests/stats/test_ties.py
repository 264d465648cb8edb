"""Tests of ties: rounding decides nothing, the first of equal ones is taken."""

import numpy as np
import pytest

from bbl.stats.metrics import accuracy, auc, falling_order, first_largest, least_cost, rising_ranks


def test_the_first_of_the_largest_is_the_same_however_terms_are_added():
    rng = np.random.default_rng(0)
    terms = np.log(rng.random((1000, 30)))
    sums = np.column_stack(
        [rng.permuted(terms, axis=1).sum(axis=1) for _ in range(4)] + [terms.sum(axis=1) - 1e-9]
    )
    assert len(np.unique(sums[:, :4].argmax(axis=1))) > 1  # rounding would decide
    assert not first_largest(sums).any()
    assert (first_largest(sums[:, ::-1]) == 1).all()  # what is less by more than rounding is less
    assert (first_largest(sums.T, axis=0) == 0).all()
    assert (first_largest(1e8 * sums) == 0).all()


def test_infinite_scores_are_compared_like_others():
    scores = np.array([[-np.inf, -np.inf], [-np.inf, 0.0], [np.inf, np.inf], [3.0, np.inf]])
    assert first_largest(scores).tolist() == [0, 1, 0, 1]


def test_equal_numbers_keep_their_order():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 5, 200)
    rounded = levels + rng.normal(size=200) * 1e-16
    assert (falling_order(rounded) == np.argsort(-levels, kind="stable")).all()
    assert falling_order(np.zeros(0)).tolist() == []


@pytest.mark.parametrize("unit", [1e-15, 1.0, 1e15])
def test_groups_of_equal_cost_go_to_the_first_in_any_unit(unit):
    log_p = np.log([[0.1 + 0.2, 1.0 - (0.1 + 0.2)], [0.3, 0.7], [0.31, 0.69]])
    assert least_cost(log_p, unit * np.array([[0.0, 7.0], [3.0, 0.0]])).tolist() == [0, 0, 0]
    assert least_cost(log_p, unit * np.array([[0.0, 6.9], [3.0, 0.0]])).tolist() == [1, 1, 0]
    assert not least_cost(log_p, np.zeros((2, 2))).any()


def test_accuracy_counts_the_predicted_group():
    log_p = np.log([[0.3, 0.1 + 0.2], [0.1 + 0.2, 0.3]])
    assert accuracy(log_p, np.zeros(2, dtype=int), np.ones(2)) == 1.0


def test_scores_that_differ_by_rounding_are_ties_of_the_auc():
    positive = np.array([True, False, True, False, True])
    weights = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    score = np.array([0.3, 0.3, 0.1, 0.1, -np.inf])
    rounded = score + np.array([0.0, 4e-17, -1e-17, 3e-17, 0.0])
    rounded[0] = 0.1 + 0.2
    assert (rounded != score).any()
    np.testing.assert_array_equal(auc(rounded, positive, weights), auc(score, positive, weights))
    order = np.random.default_rng(0).normal(size=50).round(1)
    np.testing.assert_array_equal(rising_ranks(order), np.unique(order, return_inverse=True)[1])
    np.testing.assert_array_equal(
        rising_ranks(np.array([np.inf, -np.inf, 0.0, np.inf, -np.inf])), [2, 0, 1, 2, 0]
    )
