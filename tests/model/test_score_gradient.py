"""Analytic derivatives of averaged probabilities against central differences, on random models."""

import numpy as np
import pytest

from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.model.score_gradient import ScoreGradient

STEP = 1e-5


def model(rng, independent=False):
    """Return a random layout with terms of two and three predictors or none, and coefficients (K, 1
    + size).
    """
    m, K = int(rng.integers(2, 6)), int(rng.integers(2, 5))
    pairs = [
        (i, j) for i in range(m) for j in range(i + 1, m) if rng.random() < 0.6 and not independent
    ]
    triples = [(0, 1, 2)] if m > 2 and rng.random() < 0.5 and not independent else []
    layout = Layout(rng.integers(2, 4, m), [*pairs, *triples])
    return layout, rng.normal(size=(K, 1 + layout.size)) * 0.7


def states(layout):
    return np.array(list(np.ndindex(*layout.n_levels)), dtype=np.uint8)


def indicators(layout, codes):
    """Return the columns (n, 1 + size) of a constant and of each parameter, one at a time."""
    columns = [np.ones(len(codes))]
    for scope in layout.scopes:
        for levels in np.ndindex(*(layout.n_levels[list(scope)] - 1)):
            columns.append((codes[:, scope] == np.array(levels) + 1).all(axis=1))
    return np.column_stack(columns).astype(float)


def agreements(layout, codes, missing):
    """Return the indicators of all states, and whether each row (n, states) agrees with each."""
    everything = states(layout)
    agrees = ((everything[None] == codes[:, None]) | missing[:, None]).all(axis=2)
    return indicators(layout, everything), agrees.astype(float)


def joint_weights(found, coefficients):
    """Return the exponentials of class scores by a sum over all states that agree with a row."""
    of_states, agrees = found
    return agrees @ np.exp(of_states @ coefficients.T)


def probabilities(found, coefficients):
    """Return P(group | row)."""
    joint = joint_weights(found, coefficients)
    return joint / joint.sum(axis=1, keepdims=True)


def check(seed, gaps, independent=False):
    rng = np.random.default_rng(seed)
    layout, coefficients = model(rng, independent)
    codes = np.column_stack([rng.integers(0, L, 9) for L in layout.n_levels]).astype(np.uint8)
    missing = rng.random(codes.shape) < gaps
    codes[missing] = 0
    weights, starts = rng.random(9), np.array([0, 4, 5, 9])
    enumerated = agreements(layout, codes, missing)

    def sums(c):
        p = probabilities(enumerated, c) * weights[:, None]
        return np.add.reduceat(p, starts[:-1], axis=0)

    p = probabilities(enumerated, coefficients)
    gradient = ScoreGradient(layout, coefficients[:, 1:])
    found = gradient.sums(codes, missing if gaps else None, p, weights, starts)
    single = gradient.sums(codes, missing if gaps else None, p, weights, np.arange(10))
    np.testing.assert_allclose(np.add.reduceat(single, starts[:-1], axis=0), found, atol=1e-13)
    numeric = np.empty_like(found)
    for g in range(len(coefficients)):
        for k in range(1 + layout.size):
            up, down = coefficients.copy(), coefficients.copy()
            up[g, k] += STEP
            down[g, k] -= STEP
            numeric[:, :, g, k] = (sums(up) - sums(down)) / (2 * STEP)
    np.testing.assert_allclose(found, numeric, atol=1e-8, rtol=1e-6)
    directions = rng.normal(size=(2, 3, *coefficients.shape))
    of_rows = np.repeat(np.arange(3), np.diff(starts))
    masked = missing if gaps else None
    changes = gradient.score_changes(codes, masked, directions, starts)
    single = gradient.score_changes(codes, masked, directions[:, of_rows], np.arange(10))
    np.testing.assert_allclose(single, changes, atol=1e-13)
    for t, u in np.ndindex(2, 3):
        up, down = (
            np.log(joint_weights(enumerated, coefficients + step * directions[t, u]))
            for step in (STEP, -STEP)
        )
        numeric = ((up - down) / (2 * STEP))[of_rows == u]
        np.testing.assert_allclose(changes[t, of_rows == u], numeric, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.thinned(5)
def test_derivatives_are_those_of_central_differences(seed, gaps):
    check(seed, gaps)


@pytest.mark.parametrize("seed", range(6))
def test_derivatives_of_independent_predictors(seed):
    check(seed, gaps=0.3, independent=True)


def test_independent_predictors_need_no_states_of_missing_cells():
    codes = np.zeros((1, 40), dtype=np.uint8)
    gradient = ScoreGradient(Layout([2] * 40, np.empty((0, 2), dtype=int)), np.zeros((2, 40)))
    found = gradient.sums(codes, codes == 0, np.full((1, 2), 0.5), np.ones(1), np.array([0, 1]))
    np.testing.assert_allclose(found[0, 0, :, 1:], [[0.125] * 40, [-0.125] * 40])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_derivatives_of_200_models(seed, gaps):
    check(seed, gaps)


def test_too_many_states_of_missing_cells_are_refused():
    layout = Layout([2] * 24, [(0, 1)])
    codes = np.zeros((1, 24), dtype=np.uint8)
    with pytest.raises(OptionError, match="se='bootstrap'"):
        ScoreGradient(layout, np.zeros((2, 25))).sums(
            codes, codes == 0, np.full((1, 2), 0.5), np.ones(1), np.array([0, 1])
        )


def test_a_unit_without_rows_beside_one_of_two_has_sums_of_zero():
    gradient = ScoreGradient(Layout([2, 3], [(0, 1)]), np.zeros((2, 5)))
    codes = np.array([[0, 1], [1, 2]], dtype=np.uint8)
    p, weights = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([1.0, 3.0])
    sums = gradient.sums(codes, None, p, weights, np.array([0, 0, 2]))
    rows = gradient.sums(codes, None, p, weights, np.array([0, 1, 2]))
    np.testing.assert_allclose(sums, [np.zeros_like(rows[0]), rows.sum(axis=0)])
