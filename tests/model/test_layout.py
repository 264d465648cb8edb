"""Layout: positions, views, terms of any order; sums over all states of its tables."""

import itertools

import numpy as np
import pytest

from bbl.model.elimination import elimination_order, log_sum
from bbl.model.layout import Layout


@pytest.mark.parametrize("pairs", [None, [], [(2, 0), (1, 2), (0, 2)]])
def test_tables_tile_the_vector(pairs):
    layout = Layout([2, 3, 4], pairs)
    seen = np.zeros(layout.size)
    for i in range(3):
        layout.table(seen, i)[...] += 1
    for i, j in layout.pairs:
        layout.table(seen, i, j)[...] += 1
    assert (seen == 1).all()
    expected = (1 + 2 + 3) + sum(
        (layout.n_levels[i] - 1) * (layout.n_levels[j] - 1) for i, j in layout.pairs
    )
    assert layout.size == expected


@pytest.mark.parametrize("levels", [[], [3], [1, 1], [2, 3], [2, 1, 4, 3], [2] * 6])
def test_all_pairs_are_what_a_list_of_them_says_and_are_not_listed(levels):
    m = len(levels)
    layout, pairs = Layout(levels), list(itertools.combinations(range(m), 2))
    expected = sum((levels[i] - 1) * (levels[j] - 1) for i, j in pairs)
    assert (layout.size, layout.count(2), layout.n_terms) == (
        layout.D + expected,
        len(pairs),
        len(pairs),
    )
    assert layout.order == (2 if pairs else 1) and layout.count(3) == layout.count(1) == 0
    assert layout.mask.tolist() == [[i != j for j in range(m)] for i in range(m)]
    assert [layout.index(i, j) for i, j in pairs] == list(range(len(pairs)))
    assert {layout.index(i, i) for i in range(m)} <= {-1}
    assert "terms" not in vars(layout) and repr(layout) == repr(Layout(levels, pairs))
    listed = Layout(levels, pairs[::-1])
    assert listed.complete and layout == listed
    assert layout.pairs.tolist() == list(map(list, pairs)) and layout.pairs.dtype == np.intp
    assert (
        np.array_equal(layout.pair_start, listed.pair_start)
        and layout.pair_start[-1] == layout.size
    )
    assert layout.without_constants() == listed.without_constants()


def test_a_pair_beyond_the_predictors_is_refused():
    with pytest.raises(IndexError):
        Layout([2, 2], [(0, 5)])


def test_pairs_are_sorted_and_unique():
    layout = Layout([2, 3, 4], [(2, 0), (1, 2), (0, 2)])
    assert layout.pairs.tolist() == [[0, 2], [1, 2]]
    assert layout.mask.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert layout.index(2, 1) == 1
    assert layout.index(0, 1) == -1
    with pytest.raises(KeyError):
        layout.table(np.zeros(layout.size), 0, 1)


def test_table_is_a_view_and_transposes():
    layout = Layout([2, 3, 4])
    theta = np.arange(float(layout.size))
    layout.table(theta, 1, 2)[0, 1] = -1.0
    assert (theta == -1.0).sum() == 1
    np.testing.assert_array_equal(layout.table(theta, 2, 1), layout.table(theta, 1, 2).T)
    stacked = np.stack([theta, 2 * theta])
    assert layout.table(stacked, 1, 2).shape == (2, 2, 3)
    assert layout.table(stacked, 2, 1).shape == (2, 3, 2)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_terms_of_any_order_tile_the_vector(order):
    levels = [2, 3, 4, 1, 3]
    terms = [t for k in range(2, order + 1) for t in itertools.combinations(range(5), k)]
    layout = Layout(levels, [tuple(reversed(t)) for t in terms])
    assert layout.order == (1 if order == 1 else order)
    seen = np.zeros(layout.size)
    for scope in [(i,) for i in range(5)] + terms:
        layout.table(seen, *scope)[...] += 1
    assert (seen == 1).all()
    assert layout.size == sum(
        np.prod([levels[i] - 1 for i in scope]) for scope in [(i,) for i in range(5)] + terms
    )
    assert [tuple(t) for found in layout.terms for t in found] == terms
    assert layout == Layout(levels, layout.terms)


def test_a_table_has_its_axes_in_the_order_that_is_asked_for():
    layout = Layout([2, 3, 4, 3], [(3, 0, 2), (1, 0)])
    theta = np.random.default_rng(0).normal(size=(2, layout.size))
    stored = layout.table(theta, 0, 2, 3)
    assert stored.shape == (2, 1, 3, 2) and stored.base is not None
    for turned in itertools.permutations(range(3)):
        scope = [(0, 2, 3)[k] for k in turned]
        np.testing.assert_array_equal(
            layout.table(theta, *scope), stored.transpose(0, *(1 + k for k in turned))
        )
    assert layout.index(3, 2, 0) == 0 and layout.index(0, 1, 2) == layout.index(0, 1, 2, 3) == -1
    assert layout.mask.sum() == 8 and not layout.mask[1, 2]
    assert layout.pairs.tolist() == [[0, 1]]


@pytest.mark.parametrize("terms", [[(0, 1, 1)], [(2,)], [(0, 1), (1, 1)]])
def test_a_term_has_two_different_predictors_at_least(terms):
    with pytest.raises(ValueError, match="a term"):
        Layout([2, 2, 2], terms)


def test_factors_add_up_to_the_energy_at_every_order():
    levels = [2, 3, 2, 2]
    layout = Layout(levels, [t for k in (2, 3, 4) for t in itertools.combinations(range(4), k)])
    theta = np.random.default_rng(1).normal(size=(2, layout.size))
    states = np.array(list(itertools.product(*map(range, levels))))
    energy = sum(
        table[(slice(None), *states[:, scope].T)] for scope, table in layout.factors(theta)
    )
    expected = np.zeros((2, len(states)))
    # the definition: a term counts where no level of it is the reference
    for s, state in enumerate(states):
        for k in range(1, 5):
            for scope in itertools.combinations(range(4), k):
                if all(state[i] for i in scope):
                    expected[:, s] += layout.table(theta, *scope)[
                        (slice(None), *(state[i] - 1 for i in scope))
                    ]
    np.testing.assert_allclose(energy, expected, atol=1e-13)
    order, _ = elimination_order(layout.n_levels, layout.mask, 1e6)
    np.testing.assert_allclose(
        log_sum(layout.factors(theta), order), np.logaddexp.reduce(expected, axis=1), atol=1e-12
    )
    margin = log_sum(layout.factors(theta), [3, 1])  # what is not summed out stays, by number
    table = expected.reshape(2, *levels)
    np.testing.assert_allclose(
        margin, np.logaddexp.reduce(np.logaddexp.reduce(table, axis=4), axis=2), atol=1e-12
    )


def test_a_state_that_cannot_be_adds_nothing():
    table = np.log(
        np.array([[[0.0, 0.25], [0.0, 0.75]]]),
        where=[[[False, True]] * 2],
        out=np.full((1, 2, 2), -np.inf),
    )
    assert log_sum([((0, 1), table)], [1, 0])[0] == pytest.approx(0.0)
    np.testing.assert_allclose(log_sum([((0, 1), table)], [0])[0], [-np.inf, 0.0], atol=1e-12)


@pytest.mark.parametrize("terms", [None, [], [(0, 1, 3), (0, 1), (0, 3), (1, 3), (2, 3)]])
def test_predictors_of_parameters_are_those_of_their_levels(terms):
    layout, rng = Layout([2, 3, 1, 4, 2], terms), np.random.default_rng(0)
    for share in (0.0, 0.05, 0.3, 1.0):
        is_selected = rng.random(layout.size) < share
        found = np.flatnonzero(layout.predictors_of(is_selected)).tolist()
        assert found == sorted({i for i, _ in layout.levels_of(is_selected)})
