"""The minimum over the terms of each order, against the optimality conditions of all candidates and
scikit-learn.
"""

from itertools import combinations

import numpy as np
import pytest
import reference_sparse as reference

from bbl.sparse.choice import choose
from bbl.sparse.orders import grow
from bbl.sparse.products import Problem, Products, contrasts
from bbl.sparse.workingset import Penalty


def table(levels, K, n=300, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, L, n) for L in levels]).astype(np.uint8)
    eta = np.zeros((n, K))
    for c in range(1, K):
        eta[:, c] = 1.5 * np.where(codes[:, 0] == codes[:, 1] % levels[0], 1, -1) * c + (
            codes[:, 2] == 0
        )
    eta += rng.gumbel(size=(n, K))
    return codes, eta.argmax(axis=1), rng.integers(1, 4, n).astype(float)


def link_of(codes, levels, K, stage):
    """Links in the coordinates of the reference, which differ by a rotation."""
    products = Products(np.ascontiguousarray(codes.T), levels, list(stage.weights))
    theta = np.concatenate([*stage.weights.values(), np.empty((0, K - 1))])
    scores = products.link(theta, stage.intercept).T @ contrasts(K).T
    own = reference.simplex(K) / np.sqrt(2 * K)
    return scores @ own / 0.5


@pytest.mark.parametrize(
    ("levels", "K"), [((2, 2, 2, 2, 2), 2), ((3, 2, 4, 2), 2), ((2, 3, 2, 3), 3), ((2, 2, 3, 2), 5)]
)
def test_each_order_is_the_minimum_over_its_candidates(levels, K):
    codes, y, w = table(levels, K)
    lambdas, before = (9.0, 11.0, 13.0), []
    stages = grow(Problem.make(codes, levels, y, K, w), Penalty(lambdas))
    assert len(stages) == 3
    for k, stage in enumerate(stages, 1):
        products = [
            t
            for t in combinations(range(len(levels)), k)
            if k == 1 or {*combinations(t, k - 1)} & {*before}
        ]
        link = link_of(codes, levels, K, stage)
        chosen = [*stage.weights]
        objective, violation = reference.judged(
            codes, levels, y, w, link, chosen, [*before, *products], lambdas
        )
        assert violation <= 1.1e-6
        assert stage.violation <= 1e-6
        assert stage.objective == pytest.approx(objective, rel=1e-12)
        before = chosen


@pytest.mark.parametrize("group", [True, False])
def test_order_one_equals_scikit_learn(group):
    sklearn = pytest.importorskip("sklearn.linear_model")
    codes, y, w = table((2,) * 12, 2)
    stage = grow(Problem.make(codes, (2,) * 12, y, 2, w), Penalty((20.0,), group))[0]
    theirs = sklearn.LogisticRegression(
        l1_ratio=1, C=1 / 20, solver="saga", tol=1e-10, max_iter=100000
    )
    theirs.fit(2.0 * codes - 1, y, w)
    ours = np.zeros(12)
    ours[[t[0] for t in stage.weights]] = [v[0, 0] for v in stage.weights.values()]
    assert np.allclose(ours, theirs.coef_[0], atol=1e-6)
    assert np.allclose(stage.intercept, theirs.intercept_, atol=1e-6)


@pytest.mark.long
def test_repeated_rows_are_weights_and_order_is_nothing_to_the_last_bit():
    levels = (2, 3, 2, 2)
    codes, y, w = table(levels, 3)
    long = np.repeat(np.arange(len(y)), w.astype(int))
    np.random.default_rng(1).shuffle(long)
    for lambda_ in ("ebic", (8.0, 8.0)):
        given = {"order": 2, "lambda_": lambda_, "refit": "auto", "nfold": 3}
        one = choose(Problem.make(codes, levels, y, 3, w), rng=np.random.default_rng(2), **given)
        again = Problem.make(codes[long], levels, y[long], 3, np.ones(len(long)))
        two = choose(again, rng=np.random.default_rng(2), workers=2, **given)
        assert one.weights.keys() == two.weights.keys()
        assert all((one.weights[t] == two.weights[t]).all() for t in one.weights)
        assert (one.path[one.chosen].held_out_loss == two.path[two.chosen].held_out_loss).all()
