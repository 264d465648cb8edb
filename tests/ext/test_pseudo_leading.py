"""The metric of leading eigenvectors: many columns, more than eight levels, related rows."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from scipy.linalg import eigh

from bbl._ext.pseudo import pseudo
from bbl._ext.pseudo.plan import N_LEADING, leading_metric, widths
from bbl._ext.pseudo.pseudo import PseudoProblem, memory_estimate
from tests.ext.test_pseudo import oracle

N, M, L, ABSENT = 400, 48, 12, 3
N_LEVELS, EVERY = np.full(M, L), ~np.eye(M, dtype=bool)


@cache
def related():
    """Rows that descend from each other; the last levels do not occur."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(L - ABSENT, 0.5), M)
    codes = np.zeros((N, M), dtype=np.uint8)
    for k in range(N):
        drawn = np.array([rng.choice(L - ABSENT, p=own) for own in shares])
        codes[k] = np.where(
            (rng.random(M) < 0.15) | (k == 0), drawn, codes[rng.integers(max(k, 1))]
        )
    return codes


def problem(width=None, precision="double", weights=None):
    return PseudoProblem(
        related(), np.ones(N) if weights is None else weights, N_LEVELS, EVERY, width, precision
    )


def fitted(own, lambda_=0.01, tolerance=1e-7, tasks=(0,), **more):
    theta = own.start()
    found = [own.solve(task, lambda_, 0.0, tolerance, 1000, theta, **more) for task in tasks]
    return theta, found[0]


@pytest.mark.parametrize("width", widths())
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("double", 1e-8), ("mixed", 1e-8), ("single", 1e-4)]
)
@pytest.mark.long
def test_gradient_of_the_definition_vanishes(width, precision, tolerance):
    weights = np.random.default_rng(1).integers(1, 4, N).astype(float)
    own = problem(width, precision, weights)
    assert own.metric == "leading"
    theta, found = fitted(own, tolerance=tolerance)
    sites = own.order[: own.lanes]
    assert not found["status"].any()
    value, gradient = oracle(related(), weights, N_LEVELS, EVERY, theta, 0.01, 0.0)
    norms = np.sqrt((gradient.reshape(M, -1) ** 2).sum(axis=1))[sites]
    np.testing.assert_allclose(
        norms, found["grad_norm"][sites], atol=1e-10 if precision != "single" else 2e-5
    )
    # in single precision, fields of 47 couplings are rounded at about 5e-6, whatever the value
    bound = {"rtol": 1e-10} if precision != "single" else {"rtol": 0.0, "atol": 1e-5}
    np.testing.assert_allclose(found["value"][sites], value[sites], **bound)


@pytest.mark.long
@pytest.mark.parametrize(
    ("lambda_", "times"), [(0.1, 1.0), (0.01, 1.5), pytest.param(1e-4, 1.0, marks=pytest.mark.long)]
)
def test_related_rows_take_fewer_gradients(lambda_, times, monkeypatch):
    theta, found = fitted(problem(), lambda_)
    monkeypatch.setattr(pseudo, "leading_pays", lambda *_: False)
    own = problem()
    assert own.metric == "blocks"
    known, before = fitted(own, lambda_)
    sites = own.order[: own.lanes]
    assert times * found["n_eval"][sites].mean() < before["n_eval"][sites].mean()
    rows = np.arange(own.lanes * (L - 1)).reshape(-1, L - 1)[:, : L - 1 - ABSENT].ravel()
    np.testing.assert_allclose(theta[rows, 1:], known[rows, 1:], atol=2e-7 / lambda_)


def test_unrelated_rows_keep_the_metric_of_each_predictor():
    codes = np.random.default_rng(0).integers(0, 10, (4000, 60)).astype(np.uint8)
    given = codes, np.ones(4000), np.full(60, 10), ~np.eye(60, dtype=bool)
    own = PseudoProblem(*given)
    assert own.metric == "blocks"
    found = fitted(own, 0.1)[1]
    assert not found["status"].any()
    assert found["n_eval"].max() < 12


@pytest.mark.long
def test_bits_do_not_depend_on_threads():
    own = problem(precision="single")
    known, _ = fitted(own, tolerance=1e-4, tasks=range(own.n_tasks))
    theta = own.start()
    with ThreadPoolExecutor(3) as pool:
        list(
            pool.map(
                lambda task: own.solve(task, 0.01, 0.0, 1e-4, 1000, theta),
                reversed(range(own.n_tasks)),
            )
        )
    assert theta.tobytes() == known.tobytes()
    assert (
        fitted(problem(precision="single"), tolerance=1e-4, tasks=range(own.n_tasks))[0].tobytes()
        == known.tobytes()
    )


def test_leading_eigenvectors_are_lapacks():
    X = np.concatenate([related()[:, [j]] == np.arange(1, L) for j in range(M)], axis=1).astype(
        float
    )
    mean, D = X.mean(axis=0), X.shape[1]
    second = X.T @ X / N
    project, expand, eigenvalues = leading_metric(second, mean, D)
    values, vectors = eigh(second - np.outer(mean, mean))
    np.testing.assert_allclose(eigenvalues[:16], values[::-1][:16], rtol=0.01)
    assert len(eigenvalues) == D
    np.testing.assert_allclose(eigenvalues.sum(), values.sum(), rtol=1e-6)
    V = project.transpose(1, 0, 2).reshape(D, N_LEADING)
    np.testing.assert_allclose(V.T @ V, np.eye(N_LEADING), atol=1e-5)
    np.testing.assert_array_equal(expand.transpose(0, 2, 1).reshape(D, N_LEADING), V)
    assert np.linalg.norm(V.T @ vectors[:, -8:]) ** 2 > 7.9


@pytest.mark.long
def test_penalties_of_columns_and_of_the_zero_sum_gauge():
    own = problem()
    more = np.repeat(np.linspace(0.0, 0.02, M), L - 1)
    for options in ({"more": more}, {"zero_sum": True}):
        theta, found = fitted(own, **options)
        assert not found["status"].any()
        gradient = own.objective(theta, 0.01, 0.0, **options)[1].reshape(M, -1)
        assert np.linalg.norm(gradient[own.order[: own.lanes]], axis=1).max() < 1.1e-7


def test_memory_estimate_covers_it():
    own = problem(precision="single")
    shared, task = memory_estimate(N, N_LEVELS, precision="single")
    assert own.nbytes < shared
    assert task > 4 * own.lanes * (L - 1) * own.start().shape[1] * 12
