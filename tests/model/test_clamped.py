"""Models of some predictors given the others, with terms of any order, against the enumeration of
all states.
"""

import itertools

import numpy as np
import pytest

from bbl.errors import OptionError
from bbl.model.clamped import Clamped, margins
from bbl.model.fields import Fields, pseudo_log_likelihood
from bbl.model.layout import Layout
from bbl.model.moments import one_hot

LAYOUT = Layout([2, 3, 2, 4, 2], [(0, 1), (1, 2), (0, 1, 3), (2, 3, 4), (0, 2, 3, 4)])
STATES = np.array(list(itertools.product(*map(range, LAYOUT.n_levels))), dtype=np.uint8)


def energies(layout, theta, codes):
    """Add up the tables of all terms, row by row."""
    scopes = [(i,) for i in range(layout.m)] + [tuple(t) for terms in layout.terms for t in terms]
    out = np.zeros(len(codes))
    for r, x in enumerate(codes):
        out[r] = sum(
            layout.table(theta, *s)[tuple(x[list(s)] - 1)] for s in scopes if x[list(s)].all()
        )
    return out


@pytest.fixture(scope="module")
def theta():
    return np.random.default_rng(1).normal(size=LAYOUT.size)


def test_fields_are_differences_of_energies(theta):
    fields = Fields(LAYOUT, theta)(one_hot(STATES, LAYOUT))
    for i in range(LAYOUT.m):
        rows = STATES.copy()
        rows[:, i] = 0
        base = energies(LAYOUT, theta, rows)
        for a in range(1, LAYOUT.n_levels[i]):
            rows[:, i] = a
            np.testing.assert_allclose(
                fields[:, LAYOUT.start[i] + a - 1], energies(LAYOUT, theta, rows) - base
            )


def test_the_pseudo_likelihood_is_that_of_all_conditional_probabilities(theta):
    p = np.exp(energies(LAYOUT, theta, STATES)).reshape(LAYOUT.n_levels)
    expected = sum(np.log(p / p.sum(axis=i, keepdims=True)) for i in range(LAYOUT.m))
    np.testing.assert_allclose(
        pseudo_log_likelihood(LAYOUT, theta, STATES), expected.ravel(), atol=1e-12
    )


@pytest.mark.parametrize("unknown", [[0], [1, 3], [0, 2, 4], [0, 1, 2, 3, 4]])
def test_the_smaller_model_has_the_conditional_probabilities(theta, unknown):
    unknown = np.array(unknown)
    given = Clamped(LAYOUT, unknown)
    small = np.array(list(itertools.product(*map(range, LAYOUT.n_levels[unknown]))), dtype=np.uint8)
    for row in STATES[::17]:
        own = given.theta(theta, row[None])[0]
        whole = np.repeat(row[None], len(small), axis=0)
        whole[:, unknown] = small
        gap = energies(LAYOUT, theta, whole) - energies(given.layout, own, small)
        np.testing.assert_allclose(gap, gap[0], atol=1e-12)


def test_exact_margins_are_those_of_all_states_and_the_others_come_near(theta):
    p = np.exp(energies(LAYOUT, theta, STATES))
    p /= p.sum()
    expected = p @ one_hot(STATES, LAYOUT)
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(margins(LAYOUT, theta[None], "exact", rng)[0], expected, atol=1e-12)
    parts = Layout([2, 3, 2, 2], [(0, 1)])
    own = rng.normal(size=(3, parts.size))
    np.testing.assert_allclose(
        margins(parts, own, "auto", rng), margins(parts, own, "exact", rng), atol=1e-14
    )
    weak = margins(LAYOUT, 0.1 * theta[None], "exact", rng)
    np.testing.assert_allclose(margins(LAYOUT, 0.1 * theta[None], "mf", rng), weak, atol=0.01)


def test_margins_that_take_too_long_are_refused():
    whole = Layout([2] * 40)
    with pytest.raises(OptionError, match="method='gibbs'"):
        margins(whole, np.zeros((1, whole.size)), "exact", np.random.default_rng(0))
