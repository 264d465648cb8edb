"""Conditional likelihood over all rows at once: objective, gradient and coordinates against
explicit columns.
"""

import numpy as np
import pytest

from bbl.engines.conditional.full_batch import FullBatch
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.stats.metrics import log_probabilities

RIDGE, SLIGHT, TAU = 0.01, 1e-3, 0.5


def columns(codes, weights, layout):
    """Return the columns whose squared norm is the penalty: centred levels, then products of those
    of pairs.
    """
    share = weights / weights.sum()
    X = np.column_stack(
        [codes[:, [i]] == np.arange(L) for i, L in enumerate(layout.n_levels)]
    ).astype(float)
    X -= share @ X
    own = np.split(np.arange(X.shape[1]), np.cumsum(layout.n_levels)[:-1])
    one = X / np.sqrt(share @ (X**2).sum(axis=1))
    if not len(layout.pairs):
        return one
    two = np.column_stack(
        [X[:, [a]] * X[:, [b]] for i, j in layout.pairs for a in own[i] for b in own[j]]
    )
    two *= np.sqrt(TAU / (share @ (two**2).sum(axis=1)))
    return np.column_stack([one, two]) / np.sqrt(1.0 + TAU)


def make_problem(pairs, given, levels=(2, 3, 1, 4), n=200, K=3):
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, L, n) for L in levels]).astype(np.uint8)
    y, w = (
        (codes[:, 0] + codes[:, 1] * codes[:, 3] + rng.integers(0, 2, n)) % K,
        rng.integers(1, 4, n).astype(float),
    )
    scores = rng.normal(size=(n, K)) if given else None
    layout = Layout(levels, pairs)
    return (
        codes,
        y,
        w,
        scores,
        layout,
        FullBatch(codes, y, w, layout, K, TAU, RIDGE, SLIGHT, scores),
    )


@pytest.mark.parametrize("pairs", [None, [(0, 1), (1, 3)], []])
@pytest.mark.parametrize("given", [False, True])
def test_objective_and_gradient_are_those_of_explicit_columns(pairs, given):
    codes, y, w, s, layout, full = make_problem(pairs, given)
    x = np.random.default_rng(1).normal(size=len(full.scale)) * 0.3
    x[-1] *= given
    theta, constant, temperature = full.tables(x)
    np.testing.assert_allclose(full.to_vector(theta, constant, temperature), x, atol=1e-12)
    rest, f = (x * full.scale)[-4:], energies(codes, layout, theta) + constant
    A = np.linalg.lstsq(columns(codes, w, layout), f - rest[:-1], rcond=None)[0]
    log_p = log_probabilities(f + (temperature * s if given else 0.0))
    loss = -(w @ log_p[np.arange(len(y)), y]) / w.sum()
    value, gradient = full(x)
    assert full.loss == pytest.approx(loss, abs=1e-6)
    assert value == pytest.approx(
        loss + 0.5 * RIDGE * (A**2).sum() + 0.5 * SLIGHT * rest @ rest, abs=1e-6
    )
    slope = np.array([(full(x + d)[0] - full(x - d)[0]) / 2e-3 for d in 1e-3 * np.eye(len(x))])
    np.testing.assert_allclose(gradient, slope, atol=5e-5)


@pytest.mark.parametrize("given", [False, True])
def test_its_minimum_is_reached_from_anywhere(given):
    *_, full = make_problem(None, given)
    ends = [
        full.minimise(start, 5e-6, 500)
        for start in np.random.default_rng(2).normal(size=(2, len(full.scale)))
    ]
    for end in ends:
        assert np.abs(full(end)[1]).max() <= 5e-6
    moved = ends[0] - ends[1]
    moved[-1] *= given
    np.testing.assert_allclose(moved, 0.0, atol=3e-3)
