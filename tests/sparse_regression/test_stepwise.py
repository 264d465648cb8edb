"""The stepwise choice of terms: what it finds, and what its terms depend on."""

import numpy as np
import pytest

from bbl.sparse.products import Problem
from bbl.sparse.stepwise import add_subterms, choose_stepwise


def problem(codes, y, weights=None, n_levels=None):
    n_levels = (2,) * codes.shape[1] if n_levels is None else n_levels
    weights = np.ones(len(codes)) if weights is None else weights
    return Problem.make(codes, n_levels, y, int(y.max()) + 1, weights)


def draw(link, rng):
    return (link + rng.logistic(size=len(link)) > 0).astype(int)


def test_an_interaction_of_one_state_is_found_at_any_levels():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (600, 6)).astype(np.uint8)
    for levels in ((1, 1), (0, 1), (0, 0)):
        y = draw(2.5 * (codes[:, 1] == levels[0]) * (codes[:, 4] == levels[1]) - 0.5, rng)
        assert choose_stepwise(problem(codes, y), 2, [(1,)]) == [(1,), (4,), (1, 4)]


def test_two_predictors_that_act_by_themselves_are_no_interaction():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, (900, 6)).astype(np.uint8)
    y = draw(1.5 * codes[:, 0] + 1.5 * codes[:, 2] - 1.5, rng)
    assert choose_stepwise(problem(codes, y), 2, [], "all") == [(0,), (2,)]


def test_noise_has_no_terms_and_parents_say_which_products_are_candidates():
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 2, (1000, 5)).astype(np.uint8)
    assert choose_stepwise(problem(codes, rng.integers(0, 2, 1000)), 2, [], "all") == []
    parity = draw(3.0 * (2.0 * (codes[:, 0] ^ codes[:, 3]) - 1), rng)
    assert choose_stepwise(problem(codes, parity), 2, []) == []
    assert (0, 3) in choose_stepwise(problem(codes, parity), 2, [(0,)])
    assert (0, 3) in choose_stepwise(problem(codes, parity), 2, [], "all")
    assert choose_stepwise(problem(codes, parity), 1, [(0,)], "all") == []


@pytest.mark.parametrize("n_classes", [2, 3])
def test_terms_do_not_depend_on_the_order_of_rows_levels_and_predictors_and_weights_are_rows(
    n_classes,
):
    rng = np.random.default_rng(3)
    n_levels = (3, 2, 4, 2)
    codes = np.column_stack([rng.integers(0, L, 2000) for L in n_levels]).astype(np.uint8)
    y = draw(2.0 * (codes[:, 0] == 2) * (codes[:, 2] == 1) + 1.0 * (codes[:, 3] == 1), rng)
    y = y if n_classes == 2 else np.where(rng.random(2000) < 0.3, 2, y)
    terms = choose_stepwise(problem(codes, y, n_levels=n_levels), 2, [(0,)])
    assert (0, 2) in terms and (3,) in terms
    rows = rng.permutation(2000)
    assert choose_stepwise(problem(codes[rows], y[rows], n_levels=n_levels), 2, [(0,)]) == terms
    turned = np.asarray(n_levels, dtype=np.uint8) - 1 - codes
    assert (
        choose_stepwise(problem(turned, n_classes - 1 - y, n_levels=n_levels), 2, [(0,)]) == terms
    )
    backwards = choose_stepwise(problem(codes[:, ::-1], y, n_levels=n_levels[::-1]), 2, [(3,)])
    assert sorted(tuple(sorted(3 - i for i in t)) for t in backwards) == sorted(terms)
    both = np.column_stack([codes, y])
    distinct, counts = np.unique(both, axis=0, return_counts=True)
    weighted = problem(
        distinct[:, :4].astype(np.uint8), distinct[:, 4], counts.astype(float), n_levels
    )
    assert choose_stepwise(weighted, 2, [(0,)]) == terms


def test_problems_without_predictors_or_of_separated_classes_have_an_end():
    y = np.array([0, 1, 1, 0])
    assert choose_stepwise(problem(np.empty((4, 0), dtype=np.uint8), y), 1, []) == []
    codes = np.column_stack([y, 1 - y]).astype(np.uint8)
    assert choose_stepwise(problem(np.repeat(codes, 50, axis=0), np.repeat(y, 50)), 2, []) in (
        [(0,)],
        [(1,)],
    )


def test_close_brings_all_sub_terms():
    assert add_subterms([(0, 2, 5), (1,)]) == [
        (0,),
        (1,),
        (2,),
        (5,),
        (0, 2),
        (0, 5),
        (2, 5),
        (0, 2, 5),
    ]
