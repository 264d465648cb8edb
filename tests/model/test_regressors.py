"""Terms of any order as joint levels that predictors are regressed on, against the oracle."""

import gc
import itertools
import weakref

import numpy as np
import pytest
import reference as oracle

from bbl.model.energy import conditionals, energies
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.regressors import from_matrix, from_sites, regressors, to_matrix, to_sites

LEVELS = [3, 2, 4, 3]
TERMS = [(0, 1), (1, 2), (0, 1, 2), (1, 2, 3), (0, 1, 2, 3)]


def tables_of(layout, theta):
    return {scope: layout.table(theta, *scope) for scope in layout.scopes}


@pytest.fixture
def model():
    layout = Layout(LEVELS, TERMS)
    return layout, np.random.default_rng(0).normal(size=layout.size)


def test_codes_count_joint_levels(model):
    layout, _ = model
    wide, codes = regressors(layout), oracle.states(LEVELS).astype(np.uint8)
    found, at = wide.codes(codes), layout.m
    for sets in wide.sets:
        for members in sets:
            joint = np.ravel_multi_index(
                tuple(np.maximum(codes[:, members].T.astype(int) - 1, 0)),
                tuple(layout.n_levels[members] - 1),
            )
            expected = np.where((codes[:, members] > 0).all(axis=1), joint + 1, 0)
            np.testing.assert_array_equal(found[:, at], expected)
            at += 1
    assert found.shape[1] == at == len(wide.n_levels)


def test_conditionals_are_those_of_the_joint_distribution(model):
    layout, theta = model
    wide, codes = regressors(layout), oracle.states(LEVELS)
    sites = to_sites(layout, theta)
    norm, P = conditionals(one_hot(wide.codes(codes), wide) @ sites[:, 1:].T + sites[:, 0], layout)
    p = oracle.term_probabilities(tables_of(layout, theta), LEVELS).reshape(LEVELS)
    for i in range(layout.m):
        conditional = p / p.sum(axis=i, keepdims=True)
        for a in range(1, LEVELS[i]):
            expected = np.broadcast_to(np.take(conditional, [a], axis=i), p.shape).ravel()
            np.testing.assert_allclose(P[:, layout.start[i] + a - 1], expected, atol=1e-12)
        at_reference = np.exp(-norm[:, i])  # field 0 there
        expected = np.broadcast_to(np.take(conditional, [0], axis=i), p.shape).ravel()
        np.testing.assert_allclose(at_reference, expected, atol=1e-12)


def test_energies_are_those_of_the_oracle(model):
    layout, theta = model
    codes = oracle.states(LEVELS).astype(np.uint8)
    found = energies(codes, layout, np.stack([theta, 2 * theta]))
    expected = oracle.term_energy(tables_of(layout, theta), codes)
    np.testing.assert_allclose(found, np.stack([expected, 2 * expected], axis=1), atol=1e-12)


def test_sites_and_back(model):
    layout, theta = model
    sites = to_sites(layout, theta)
    np.testing.assert_allclose(from_sites(layout, sites), theta, rtol=1e-15)
    np.testing.assert_array_equal(from_sites(layout, sites, False), theta)


def test_a_coupling_is_the_mean_of_what_its_members_say(model):
    layout, _ = model
    rng, wide = np.random.default_rng(1), regressors(layout)
    J = rng.normal(size=(layout.D, wide.D))
    theta = from_sites(layout, np.column_stack([np.zeros(layout.D), J]))
    for term in TERMS:
        for levels in itertools.product(*(range(1, LEVELS[i]) for i in term)):
            level_of = dict(zip(term, levels, strict=True))
            said = []
            for i in term:
                others = sorted((j, level_of[j]) for j in term if j != i)
                column = next(c for c in range(wide.D) if sorted(wide.members(c)) == others)
                said.append(J[layout.start[i] + level_of[i] - 1, column])
            found = layout.table(theta, *term)[tuple(a - 1 for a in levels)]
            assert found == pytest.approx(np.mean(said), rel=1e-14)


def test_of_pairs_nothing_is_added():
    layout = Layout(LEVELS, [(0, 1), (1, 3), (2, 3)])
    wide, codes = regressors(layout), oracle.states(LEVELS).astype(np.uint8)
    assert wide.codes(codes) is codes
    assert wide.mask is layout.mask
    assert wide.D == layout.D
    J = np.random.default_rng(2).normal(size=(layout.D, layout.D))
    h = np.arange(float(layout.D))
    np.testing.assert_array_equal(
        from_sites(layout, np.column_stack([h, J])), from_matrix(layout, h, J)
    )
    theta = from_sites(layout, np.column_stack([h, J]))
    np.testing.assert_array_equal(
        to_sites(layout, theta), np.column_stack(to_matrix(layout, theta))
    )


def test_a_term_alone_is_no_pair():
    wide = regressors(Layout([2, 2, 2], [(0, 1, 2)]))
    assert wide.mask[:, :3].sum() == 0
    assert wide.mask[:, 3:].sum(axis=1).tolist() == [1, 1, 1]


def test_a_term_of_four_alone_has_sets_of_three():
    layout = Layout([2, 3, 2, 2], [(0, 1, 2, 3)])
    wide = regressors(layout)
    assert [len(found) for found in wide.sets] == [0, 4]
    assert wide.order.tolist() == [2] * 5 + [4] * (2 + 2 + 1 + 2)
    theta = np.arange(7.0)
    sites = to_sites(layout, theta)
    np.testing.assert_array_equal(from_sites(layout, sites), theta)


@pytest.mark.parametrize("terms", [[(0, 1), (1, 2)], TERMS])
def test_a_layout_goes_without_the_garbage_collector(terms):
    layout = Layout(LEVELS, terms)
    to_sites(layout, np.zeros(layout.size))
    held, codes = weakref.ref(layout), regressors(layout).codes
    gc.disable()
    try:
        del layout
        assert held() is None
    finally:
        gc.enable()
    # what it has worked out does without it
    assert len(codes(oracle.states(LEVELS).astype(np.uint8))) == 72
