"""The pseudo-likelihood kernel against a slow numpy oracle, finite differences and scipy's
optimisers.
"""

import itertools
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.optimize import minimize

from bbl._ext.model.eigen import eigenvectors
from bbl._ext.pseudo import pseudo
from bbl._ext.pseudo.plan import widths
from bbl._ext.pseudo.pseudo import PseudoProblem, memory_estimate

FIELDS = ("grad_norm", "n_iter", "n_eval", "status", "value")


def design(n_levels):
    start = np.concatenate(([0], np.cumsum(np.asarray(n_levels) - 1)))
    return start, int(start[-1])


def free_columns(n_levels, mask, i):
    """Columns of theta that are parameters of predictor `i`."""
    start, _ = design(n_levels)
    cols = [
        1 + np.arange(start[j], start[j + 1]) for j in range(len(n_levels)) if mask[i, j] and j != i
    ]
    return np.concatenate([[0], *cols]).astype(int)


def indicators(codes, n_levels):
    return np.concatenate(
        [codes[:, [j]] == np.arange(1, L) for j, L in enumerate(n_levels)], axis=1
    ).astype(float)


def oracle(codes, weights, n_levels, mask, theta, lambda_, lambdah):
    """Value and gradient of every predictor by the definition, dense and slow."""
    start, D = design(n_levels)
    X = np.column_stack((np.ones(len(codes)), indicators(codes, n_levels)))
    value, gradient = np.zeros(len(n_levels)), np.zeros((D, 1 + D))
    for i, L in enumerate(n_levels):
        rows, cols = np.arange(start[i], start[i + 1]), free_columns(n_levels, mask, i)
        par = theta[np.ix_(rows, cols)]
        logit = np.column_stack((np.zeros(len(codes)), X[:, cols] @ par.T))
        log_p = logit - np.logaddexp.reduce(logit, axis=1, keepdims=True)
        penalty = np.full(par.shape, lambda_)
        penalty[:, 0] = lambdah
        value[i] = (
            -weights @ log_p[np.arange(len(codes)), codes[:, i]] / weights.sum()
            + (penalty * par**2).sum() / 2
        )
        error = np.exp(log_p[:, 1:]) - (codes[:, [i]] == np.arange(1, L))
        gradient[np.ix_(rows, cols)] = (error * weights[:, None]).T @ X[
            :, cols
        ] / weights.sum() + penalty * par
    return value, gradient


def example(seed, n=None, m=None, most=7, density=0.7):
    rng = np.random.default_rng(seed)
    m = m or int(rng.integers(1, 20))
    n = n or int(rng.integers(1, 1500))
    n_levels = rng.integers(2, most, m).astype(np.int32)
    base = rng.random((n, 1))
    mixed = np.where(rng.random((n, m)) < 0.4, base, rng.random((n, m))) ** rng.uniform(0.5, 2, m)
    codes = np.minimum((mixed * n_levels).astype(np.uint8), (n_levels - 1).astype(np.uint8))
    mask = np.triu(rng.random((m, m)) < density, 1)
    mask = mask | mask.T
    weights = rng.integers(1, 5, n).astype(float) if seed % 2 else np.full(n, 2.0)
    _, D = design(n_levels)
    theta = np.zeros((D, 1 + D))
    start, _ = design(n_levels)
    for i in range(m):
        block = np.ix_(np.arange(start[i], start[i + 1]), free_columns(n_levels, mask, i))
        theta[block] = rng.normal(size=theta[block].shape)
    return codes, weights, n_levels, mask, theta


def fit(problem, lambda_, lambdah=0.0, tolerance=1e-10, itmax=2000, theta=None, order=None, **more):
    theta = problem.start() if theta is None else theta.copy()
    m = len(problem.objective(theta, 0.0, 0.0)[0])
    out = {
        name: np.zeros(m) if name in ("grad_norm", "value") else np.zeros(m, dtype=np.int32)
        for name in FIELDS
    }
    for task in order if order is not None else range(problem.n_tasks):
        problem.solve(task, lambda_, lambdah, tolerance, itmax, theta, **out, **more)
    return theta, out


@cache
def known(seed, scale):
    """An example and its value and gradient, which every width has to give."""
    codes, weights, n_levels, mask, theta = example(seed, density=[0.15, 0.7, 1.0][seed % 3])
    return (
        codes,
        weights,
        n_levels,
        mask,
        theta,
        oracle(codes, weights, n_levels, mask, scale * theta, 0.1, 0.2),
    )


@pytest.mark.parametrize("width", ["avx512", "avx2", "sse2", "plain"])
@pytest.mark.parametrize("seed", range(8))
def test_objective_is_the_definition(seed, width):
    if width not in widths():
        pytest.skip(f"this processor has no {width}")
    for scale in (0.2, 1.0, 60.0):  # the largest needs the shifted exponentials
        codes, weights, n_levels, mask, theta, expected = known(seed, scale)
        got = PseudoProblem(codes, weights, n_levels, mask, width=width).objective(
            scale * theta, 0.1, 0.2
        )
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-12)
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", widths())
@pytest.mark.parametrize("seed", range(8))
def test_objective_in_single_precision(seed, width):
    codes, weights, n_levels, mask, theta, _ = known(seed, 1.0)
    problem = PseudoProblem(codes, weights, n_levels, mask, width=width, precision="single")
    for scale in (0.2, 1.0, 10.0):  # the largest needs the shifted exponentials
        value, gradient = known(seed, scale)[-1]
        got = problem.objective(scale * theta, 0.1, 0.2)
        np.testing.assert_allclose(got[0], value, rtol=3e-6)
        np.testing.assert_allclose(got[1], gradient, atol=1e-5 * max(1.0, scale))


@pytest.mark.parametrize("width", widths())
@pytest.mark.parametrize("levels", [2, 21])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.thinned(3)
def test_gradient_where_another_level_than_the_first_is_the_most_frequent(width, levels, weighted):
    """Sums over the rows of the most frequent joint state are derived from those of the others."""
    rng = np.random.default_rng(levels)
    shares = rng.dirichlet(np.full(levels, 0.3), 9)
    shares[:, 1:] += 0.6 * (np.arange(1, levels) == rng.integers(1, levels, (9, 1)))
    shares[:3, 0] += 3.0  # here the first level is the most frequent, in others it is rare
    cuts = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
    codes = (rng.random((2600, 9, 1)) > cuts[:, :-1]).sum(axis=2).astype(np.uint8)
    codes[:, 4] = levels - 1  # a constant
    weights = rng.integers(1, 9, 2600).astype(float) if weighted else np.full(2600, 3.0)
    n_levels, mask = np.full(9, levels), ~np.eye(9, dtype=bool)
    theta = rng.normal(size=(9 * (levels - 1), 1 + 9 * (levels - 1)))
    start, _ = design(n_levels)
    for i in range(9):
        theta[start[i] : start[i + 1], 1 + start[i] : 1 + start[i + 1]] = 0.0
    expected = oracle(codes, weights, n_levels, mask, theta, 0.0, 0.0)
    for precision, error in (("double", 1e-13), ("single", 5e-6)):
        got = PseudoProblem(
            codes, weights, n_levels, mask, width=width, precision=precision
        ).objective(theta, 0.0, 0.0)
        np.testing.assert_allclose(got[0], expected[0], rtol=20 * error)
        np.testing.assert_allclose(got[1], expected[1], atol=error)


@pytest.mark.parametrize("width", widths())
@pytest.mark.parametrize(("n", "m", "most"), [(1500, 12, 3), (1500, 13, 7), (60, 12, 7)])
def test_single_precision_reaches_its_gradient_norm(width, n, m, most):
    codes, weights, n_levels, mask, _ = example(5, n=n, m=m, most=most, density=1.0)
    problem = PseudoProblem(codes, weights, n_levels, mask, width=width, precision="single")
    theta, out = fit(problem, 1e-3, tolerance=1e-5)
    assert (out["status"] == 0).all()
    gradient = oracle(codes, weights, n_levels, mask, theta, 1e-3, 0.0)[1]
    start, _ = design(n_levels)
    norms = [np.linalg.norm(gradient[start[i] : start[i + 1]]) for i in range(m)]
    assert max(norms) < 1.5e-5
    assert problem.log_normaliser(theta) == pytest.approx(
        PseudoProblem(codes, weights, n_levels, mask).log_normaliser(theta), rel=1e-6
    )


@pytest.mark.parametrize("width", widths())
@pytest.mark.long
def test_single_precision_keeps_its_digits_over_many_rows(width):
    """A million rows are more than a sum of 24 bits can count one by one."""
    rng = np.random.default_rng(0)
    codes = (rng.random((1_000_000, 5)) < [0.5, 0.3, 0.9, 0.6, 0.01]).astype(np.uint8)
    codes = np.hstack(
        [codes, rng.integers(0, 200, (1_000_000, 1)).astype(np.uint8), codes[:, :1] ^ codes[:, 1:2]]
    )
    n_levels, mask = np.array([2, 2, 2, 2, 2, 200, 2]), ~np.eye(7, dtype=bool)
    weights = np.ones(len(codes))
    double = PseudoProblem(codes, weights, n_levels, mask)
    single = PseudoProblem(codes, weights, n_levels, mask, precision="single", width=width)
    theta = double.start()
    theta[:, 1:] = 0.0
    theta[:4, 2:5] = rng.normal(size=(4, 3)) * (~np.eye(4, 3, k=-1, dtype=bool))
    for a, b in zip(
        double.objective(theta, 0.0, 0.0), single.objective(theta, 0.0, 0.0), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=3e-6)


def test_precision_is_checked():
    codes, weights, n_levels, mask, _ = example(0)
    for call in (
        lambda: PseudoProblem(codes, weights, n_levels, mask, precision="half"),
        lambda: memory_estimate(10, n_levels, precision="half"),
    ):
        with pytest.raises(ValueError, match="precision"):
            call()


@pytest.mark.parametrize("seed", range(3))
def test_gradient_is_the_finite_difference(seed):
    codes, weights, n_levels, mask, theta = example(seed, n=200, m=4, most=4)
    problem = PseudoProblem(codes, weights, n_levels, mask)
    gradient = problem.objective(theta, 0.1, 0.2)[1]
    start, _ = design(n_levels)
    for i in range(4):
        for r, c in itertools.product(
            range(start[i], start[i + 1]), free_columns(n_levels, mask, i)
        ):
            values = []
            for step in (1e-5, -1e-5):
                moved = theta.copy()
                moved[r, c] += step
                values.append(problem.objective(moved, 0.1, 0.2)[0][i])
            assert abs((values[0] - values[1]) / 2e-5 - gradient[r, c]) < 1e-8


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long
def test_optimum_is_scipys(seed):
    codes, weights, n_levels, mask, _ = example(seed, n=150, m=4, most=4)
    start, _ = design(n_levels)
    for lambda_, lambdah in ((1e-2, 0.0), (0.3, 0.1)):
        theta, out = fit(PseudoProblem(codes, weights, n_levels, mask), lambda_, lambdah)
        assert (out["status"] == 0).all()
        assert (out["grad_norm"] <= 1e-10).all()
        for i in range(4):
            block = np.ix_(np.arange(start[i], start[i + 1]), free_columns(n_levels, mask, i))

            def objective(x, i=i, block=block, lambda_=lambda_, lambdah=lambdah, shape=theta.shape):
                point = np.zeros(shape)
                point[block] = x.reshape(len(block[0]), -1)
                value, gradient = oracle(codes, weights, n_levels, mask, point, lambda_, lambdah)
                return value[i], gradient[block].ravel()

            # scipy's value suffers from rounding long before its gradient: so many digits can be
            # asked for
            best = minimize(
                objective,
                np.zeros(theta[block].size),
                jac=True,
                method="BFGS",
                options={"gtol": 1e-9},
            )
            np.testing.assert_allclose(theta[block].ravel(), best.x, atol=1e-7)
            np.testing.assert_allclose(out["value"][i], best.fun, rtol=1e-10)
        outside = np.ones_like(theta, dtype=bool)
        for i in range(4):
            outside[np.ix_(np.arange(start[i], start[i + 1]), free_columns(n_levels, mask, i))] = (
                False
            )
        assert (theta[outside] == 0.0).all()


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("width", widths())
@pytest.mark.parametrize(("n", "m", "most"), [(1500, 12, 3), (1500, 13, 7), (60, 12, 7)])
@pytest.mark.thinned(5)
def test_all_widths_and_metrics_reach_the_gradient_norm(width, n, m, most, precision):
    codes, weights, n_levels, mask, _ = example(5, n=n, m=m, most=most, density=1.0)
    problem = PseudoProblem(codes, weights, n_levels, mask, width=width, precision=precision)
    assert problem.metric == ("kronecker" if n == 1500 else "blocks")
    theta, out = fit(problem, 1e-3)
    assert (out["status"] == 0).all()
    gradient = oracle(codes, weights, n_levels, mask, theta, 1e-3, 0.0)[1]
    start, _ = design(n_levels)
    norms = [np.linalg.norm(gradient[start[i] : start[i + 1]]) for i in range(m)]
    np.testing.assert_allclose(norms, out["grad_norm"], atol=1e-12)
    np.testing.assert_allclose(
        out["value"], oracle(codes, weights, n_levels, mask, theta, 1e-3, 0.0)[0], rtol=1e-12
    )


@pytest.mark.parametrize("width", widths())
@pytest.mark.parametrize(("density", "weighted"), [(1.0, False), (0.3, True)])
@pytest.mark.thinned(3)
def test_mixed_precision_ends_where_double_does_though_predictors_need_unequal_steps(
    width, density, weighted
):
    """Some predictors almost follow from another: their lanes go on long after the others are done,
    and move.
    """
    rng = np.random.default_rng(1)
    m, n = 90, 300
    codes = (rng.random((n, m)) < rng.uniform(0.1, 0.9, m)).astype(np.uint8)
    codes[:, 60:70] = codes[:, :10] ^ (rng.random((n, 10)) < 0.01)
    codes[:, 80:] += (rng.random((n, 10)) < 0.2).astype(np.uint8)  # and some have three levels
    n_levels, weights = np.where(np.arange(m) < 80, 2, 3), rng.integers(1, 5, n).astype(float)
    weights = weights if weighted else np.ones(n)
    mask = np.triu(rng.random((m, m)) < density, 1)
    mask |= mask.T
    given = codes, weights, n_levels, mask
    double, (theta, out) = (
        PseudoProblem(*given),
        fit(PseudoProblem(*given, width=width, precision="mixed"), 1e-3, 1e-4),
    )
    assert (out["status"] == 0).all()
    assert out["n_iter"].max() > 2 * out["n_iter"].min()
    value, gradient = double.objective(theta, 1e-3, 1e-4)
    np.testing.assert_allclose(out["value"], value, rtol=1e-12)
    start = np.append(0, np.cumsum(n_levels - 1))
    norms = [np.linalg.norm(gradient[start[i] : start[i + 1]]) for i in range(m)]
    np.testing.assert_allclose(norms, out["grad_norm"], atol=1e-13)
    assert max(norms) < 1.01e-10
    np.testing.assert_allclose(theta, fit(double, 1e-3, 1e-4)[0], atol=1e-6)


def test_mixed_precision_from_a_point_with_few_steps_and_without_any():
    codes, weights, n_levels, mask, theta = example(3, n=400, m=20, most=4)
    problem, double = (
        PseudoProblem(codes, weights, n_levels, mask, precision=p) for p in ("mixed", "double")
    )
    before = double.objective(theta, 0.1, 0.1)[0]
    near, out = fit(problem, 0.1, 0.1, itmax=3, theta=theta)
    assert set(out["status"]) == {1}
    assert out["n_iter"].max() == 3
    np.testing.assert_allclose(out["value"], double.objective(near, 0.1, 0.1)[0], rtol=1e-12)
    assert (out["value"] < before).all()
    best, out = fit(problem, 0.1, 0.1, theta=near)
    assert not out["status"].any()
    again, out = fit(problem, 0.1, 0.1, tolerance=1e-9, theta=best)
    assert not out["n_iter"].any()
    np.testing.assert_allclose(again, best, rtol=1e-12, atol=1e-14)


@pytest.mark.long
def test_more_than_forty_levels():
    rng = np.random.default_rng(3)
    codes = np.column_stack(
        (rng.integers(0, 60, 900), rng.integers(0, 2, 900), rng.integers(0, 130, 900))
    )
    codes[:, 1] = (codes[:, 0] + codes[:, 1] * 20) > 40
    codes = codes.astype(np.int32)
    n_levels, mask = np.array([60, 2, 130]), ~np.eye(3, dtype=bool)
    theta, out = fit(PseudoProblem(codes, np.ones(900), n_levels, mask), 1e-3, 1e-3, tolerance=1e-8)
    assert (out["status"] == 0).all()
    gradient = oracle(codes, np.ones(900), n_levels, mask, theta, 1e-3, 1e-3)[1]
    assert np.abs(gradient).max() < 1.1e-8


def test_weights_are_repeated_rows():
    codes, _, n_levels, mask, theta = example(7, n=400, m=9)
    weights = np.random.default_rng(0).integers(1, 6, 400)
    once = PseudoProblem(codes, weights, n_levels, mask)
    often = PseudoProblem(np.repeat(codes, weights, axis=0), np.ones(weights.sum()), n_levels, mask)
    for half in (False, True):
        assert once.log_normaliser(theta, half) == pytest.approx(
            often.log_normaliser(theta, half), rel=1e-13
        )
    np.testing.assert_allclose(fit(once, 1e-2)[0], fit(often, 1e-2)[0], atol=1e-8)


def test_merged_rows_are_the_same_problem():
    """Three predictors have few joint states, so rows are merged; a fourth, irrelevant one prevents
    it.
    """
    codes, weights, n_levels, _, _ = example(2, n=1200, m=3, most=5)
    mask = ~np.eye(3, dtype=bool)
    rare = np.random.default_rng(1).integers(0, 100, (1200, 1))
    wide = PseudoProblem(
        np.hstack((codes, rare)).astype(np.uint16),
        weights,
        np.append(n_levels, 100),
        np.pad(mask, ((0, 1), (0, 1))),
    )
    narrow = PseudoProblem(codes, weights, n_levels, mask)
    _, D = design(n_levels)
    theta = fit(narrow, 1e-3)[0]
    other, out = fit(wide, 1e-3, tolerance=1e-9)
    assert (out["status"] == 0).all()
    np.testing.assert_allclose(theta, other[:D, : 1 + D], atol=1e-6)


@pytest.mark.parametrize("half", [False, True])
def test_log_normaliser_is_equation_31(half):
    codes, weights, n_levels, mask, theta = example(3, n=500, m=10)
    start, _ = design(n_levels)
    X = indicators(codes, n_levels)
    expected = 0.0
    for i in range(10):
        rows = theta[start[i] : start[i + 1]]
        logit = rows[:, 0] + (0.5 if half else 1.0) * X @ rows[:, 1:].T
        expected += (
            weights
            @ np.logaddexp.reduce(np.column_stack((np.zeros(len(X)), logit)), axis=1)
            / weights.sum()
        )
    got = PseudoProblem(codes, weights, n_levels, mask).log_normaliser(theta, half)
    assert got == pytest.approx(expected, rel=1e-12)


def test_start_is_the_independent_model():
    codes, weights, n_levels, mask, _ = example(1, n=300, m=5)
    theta = PseudoProblem(codes, weights, n_levels, mask).start()
    assert (theta[:, 1:] == 0.0).all()
    expected = []
    for i, L in enumerate(n_levels):
        share = np.bincount(codes[:, i], weights, minlength=L)
        share = np.maximum(share, 0.5)
        expected.extend(np.log(share[1:] / share[0]))
    np.testing.assert_allclose(theta[:, 0], expected, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["double", "mixed", "single"])
def test_bits_do_not_depend_on_threads_or_order(precision):
    codes, weights, n_levels, mask, _ = example(
        3, n=700, m=100 if precision == "mixed" else 40, most=5
    )
    problem = PseudoProblem(codes, weights, n_levels, mask, precision=precision)
    theta, out = fit(problem, 1e-4)
    backwards, _ = fit(problem, 1e-4, order=reversed(range(problem.n_tasks)))
    assert theta.tobytes() == backwards.tobytes()
    for workers in (2, 8):
        shared = problem.start()
        arrays = {name: np.zeros_like(out[name]) for name in FIELDS}
        with ThreadPoolExecutor(workers) as pool:
            jobs = [
                pool.submit(problem.solve, task, 1e-4, 0.0, 1e-10, 2000, shared, **arrays)
                for task in range(problem.n_tasks)
            ]
            for job in jobs:
                job.result()
        assert theta.tobytes() == shared.tobytes()
        assert all(out[name].tobytes() == arrays[name].tobytes() for name in FIELDS)


def test_code_types_and_read_only_input():
    codes, weights, n_levels, mask, _ = example(4, n=200, m=6)
    bits = set()
    for dtype in (np.uint8, np.uint16, np.int32):
        given = [codes.astype(dtype), weights.copy(), n_levels.copy(), mask.copy()]
        for array in given:
            array.setflags(write=False)
        bits.add(fit(PseudoProblem(*given), 1e-3)[0].tobytes())
    assert len(bits) == 1


def test_memory_map(tmp_path):
    codes, weights, n_levels, mask, _ = example(4, n=200, m=6)
    np.save(tmp_path / "codes.npy", codes)
    mapped = np.load(tmp_path / "codes.npy", mmap_mode="r")
    theta = fit(PseudoProblem(mapped, weights, n_levels, mask), 1e-3)[0]
    assert theta.tobytes() == fit(PseudoProblem(codes, weights, n_levels, mask), 1e-3)[0].tobytes()


@pytest.mark.parametrize("lambda_", [0.0, 1e-5, 1e-2])
def test_constant_predictors_and_empty_cells_stay_finite(lambda_):
    codes, weights, n_levels, mask, _ = example(2, n=120, m=8, density=1.0)
    codes = codes.copy()
    codes[:, 1] = 0
    codes[:, 3] = n_levels[3] - 1
    codes[:, 5] = codes[:, 6] % n_levels[5]  # as good as determined by another predictor
    n_levels = n_levels + 1  # every predictor has a level that does not occur
    theta, out = fit(
        PseudoProblem(codes, weights, n_levels, mask), lambda_, tolerance=1e-6, itmax=500
    )
    assert np.isfinite(theta).all()
    assert np.isfinite(out["value"]).all()
    assert (out["status"] == 0).all()


def test_one_row_and_one_predictor():
    one = np.zeros((1, 1), dtype=np.uint8)
    theta, out = fit(PseudoProblem(one, [1.0], [2], [[False]]), 0.0, tolerance=1e-6)
    assert np.isfinite(theta).all()
    assert out["status"][0] == 0
    codes, weights, n_levels, mask, _ = example(6, n=1, m=5)
    theta, out = fit(PseudoProblem(codes, weights, n_levels, mask), 1e-3, tolerance=1e-6)
    assert np.isfinite(theta).all()
    assert (out["status"] == 0).all()


def test_no_neighbours_is_the_independent_model():
    codes, weights, n_levels, _, _ = example(8, n=300, m=12, most=4)
    problem = PseudoProblem(codes, weights, n_levels, np.zeros((12, 12), dtype=bool))
    start = problem.start()
    start[:, 0] += 1.0
    theta, out = fit(problem, 1e-3, theta=start)
    assert (out["status"] == 0).all()
    np.testing.assert_allclose(theta, problem.start(), atol=1e-8)


def test_warm_start_saves_evaluations():
    codes, weights, n_levels, mask, _ = example(9, n=1000, m=12)
    problem = PseudoProblem(codes, weights, n_levels, mask)
    theta, cold = fit(problem, 1e-3, tolerance=1e-8)
    again, warm = fit(problem, 1e-3, tolerance=1e-7, theta=theta)
    assert (warm["n_eval"] == 1).all()
    np.testing.assert_allclose(theta, again, rtol=1e-12, atol=1e-14)
    near = fit(problem, 0.9e-3, tolerance=1e-8, theta=theta)[1]
    assert near["n_eval"].mean() < cold["n_eval"].mean()


def test_iteration_limit_and_unreachable_tolerance():
    codes, weights, n_levels, mask, _ = example(3, n=500, m=9, density=1.0)
    problem = PseudoProblem(codes, weights, n_levels, mask)
    _, out = fit(problem, 1e-4, itmax=2)
    assert (out["status"] == 1).all()
    assert (out["n_iter"] == 2).all()
    theta, out = fit(problem, 1e-4, tolerance=0.0)
    assert set(out["status"]) <= {0, 2}
    assert (out["grad_norm"] < 1e-12).all()
    assert (out["n_eval"] < 500).all()
    bad = theta.copy()
    bad[:, 0] = np.nan
    assert (fit(problem, 1e-4, theta=bad)[1]["status"] == 3).all()


def slow_problem():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (20000, 60)).astype(np.uint8)
    return PseudoProblem(codes, np.ones(20000), np.full(60, 4), ~np.eye(60, dtype=bool))


def test_stop_flag():
    problem = slow_problem()
    theta = problem.start()
    stop = np.zeros(1, dtype=np.int32)
    timer = threading.Timer(0.05, stop.__setitem__, (0, 1))
    timer.start()
    began = time.perf_counter()
    out = problem.solve(0, 1e-9, 0.0, 0.0, 10**6, theta, stop=stop)
    assert time.perf_counter() - began < 2.0
    timer.join()
    assert (out["status"][:8] == 4).any()
    assert np.isfinite(theta).all()


@pytest.mark.skipif(os.name == "nt", reason="signals are sent by number")
def test_keyboard_interrupt():
    problem = slow_problem()
    theta = problem.start()
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(1000):
            problem.solve(0, 1e-9, 0.0, 0.0, 10**6, problem.start(theta))
    assert time.perf_counter() - began < 2.0
    timer.join()
    assert (problem.solve(0, 1e-2, 0.0, 1e-6, 100, problem.start(theta))["status"] == 0).all()


def test_bad_input_is_refused():
    codes, weights, n_levels, mask, theta = example(1, n=50, m=4)
    with pytest.raises(ValueError, match="predictor 2 has a code outside"):
        PseudoProblem(
            codes, weights, np.where(np.arange(4) == 2, codes[:, 2].max(), n_levels), mask
        )
    with pytest.raises(ValueError, match="predictor 0 has a code outside"):
        PseudoProblem(codes.astype(np.int32) - 9, weights, n_levels, mask)
    with pytest.raises(ValueError, match="weights must be positive"):
        PseudoProblem(codes, weights * 0.0, n_levels, mask)
    with pytest.raises(ValueError, match="do not fit together"):
        PseudoProblem(codes, weights[:-1], n_levels, mask)
    with pytest.raises(ValueError, match="n_levels must lie"):
        PseudoProblem(codes * 0, weights, n_levels * 0 + 1, mask)
    with pytest.raises(ValueError, match="width must be one of"):
        PseudoProblem(codes, weights, n_levels, mask, width="mmx")
    problem = PseudoProblem(codes, weights, n_levels, mask)
    with pytest.raises(ValueError, match="theta must have shape"):
        problem.objective(theta[:-1], 0.0, 0.0)
    with pytest.raises(ValueError, match="task must lie"):
        problem.solve(problem.n_tasks, 0.0, 0.0, 1e-6, 1, theta)


def test_memory_estimate_covers_the_problem():
    for n, n_levels in (
        (10_000, np.full(50, 4)),
        (37, np.full(3, 2)),
        (500, np.array([30, 2, 9, 2, 2, 14])),
    ):
        shared, task = memory_estimate(n, n_levels)
        rng = np.random.default_rng(0)
        m, D = len(n_levels), int((n_levels - 1).sum())
        codes = rng.integers(0, n_levels, (n, m)).astype(np.uint8)
        problem = PseudoProblem(codes, np.ones(n), n_levels, ~np.eye(m, dtype=bool))
        assert problem.nbytes < shared < 4 * problem.nbytes + 60 * D**2 + 1e5
        assert task > 8 * problem.lanes * (n_levels.max() - 1) * (1 + D) * 16
    codes = np.random.default_rng(0).integers(0, 2, (600, 520)).astype(np.uint8)
    problem = PseudoProblem(codes, np.ones(600), np.full(520, 2), ~np.eye(520, dtype=bool))
    shared, task = memory_estimate(600, np.full(520, 2))
    assert problem.nbytes < shared
    assert task > 4 * problem.lanes * 521 * 20
    many = [memory_estimate(n, np.full(50, 4))[1] for n in (10**5, 10**7)]
    assert many[0] == many[1]  # a task's memory does not grow with the rows


@pytest.mark.parametrize(
    ("m", "levels", "n", "times"),
    [(520, 2, 600, 3), (520, 2, 200, 2), (172, 4, 1040, 2), (172, 4, 600, 1.5)],
)
@pytest.mark.long
def test_wide_problems_take_fewer_gradients_with_the_covariance(m, levels, n, times, monkeypatch):
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n, 5))
    scores = [
        factors @ rng.normal(size=(5, levels)) + rng.gumbel(size=(n, levels)) for _ in range(m)
    ]
    codes = np.column_stack([own.argmax(axis=1) for own in scores]).astype(np.uint8)
    counts, thetas = {}, {}
    for metric in ("inverse", "blocks"):
        if metric == "blocks":
            monkeypatch.setattr(pseudo, "kronecker_pays", lambda *_: False)
        problem = PseudoProblem(codes, np.ones(n), np.full(m, levels), ~np.eye(m, dtype=bool))
        assert problem.metric == metric
        thetas[metric] = problem.start()
        found = problem.solve(0, 0.01, 0.0, 1e-8, 1000, thetas[metric])
        assert not found["status"].any()
        counts[metric] = found["n_eval"][problem.order[: problem.lanes]].mean()
    assert times * counts["inverse"] < counts["blocks"]
    # rows of the first task, which is the smaller one without the metric
    both = slice(0, problem.lanes * (levels - 1))
    np.testing.assert_allclose(thetas["inverse"][both], thetas["blocks"][both], atol=1e-5)


@pytest.mark.parametrize(("noise", "lambda_"), [(0.05, 0.01), (0.2, 1e-5)])
def test_wide_problems_of_few_patterns_in_unrelated_blocks_converge(noise, lambda_, monkeypatch):
    """The covariance is singular, and the column of largest variance has no part in its leading
    eigenvector.
    """
    rng, k, m = np.random.default_rng(0), 30, 520
    free, same = (
        rng.random((k, m - 80)) < 0.5,
        (np.arange(k)[:, None] < 9) ^ (rng.random((k, 80)) < noise),
    )
    one, other = np.divmod(np.arange(k * k), k)
    codes = np.hstack((free[one], same[other])).astype(np.uint8)
    found = {}
    for metric in ("inverse", "blocks"):
        if metric == "blocks":
            monkeypatch.setattr(pseudo, "kronecker_pays", lambda *_: False)
        problem = PseudoProblem(codes, np.ones(k * k), np.full(m, 2), ~np.eye(m, dtype=bool))
        assert problem.metric == metric
        found[metric], out = fit(problem, lambda_, order=[problem.n_tasks - 1])
        assert not out["status"].any()
    # the smaller task is the one without the metric
    last = problem.order[(problem.n_tasks - 1) * problem.lanes :]
    assert len(last) and (found["inverse"][last] != problem.start()[last]).any(axis=1).all()
    np.testing.assert_allclose(found["inverse"][last], found["blocks"][last], atol=1e-4)


def test_what_few_rows_leave_undetermined_stays_small_without_a_penalty():
    codes = np.random.default_rng(0).integers(0, 2, (300, 530)).astype(np.uint8)
    problem = PseudoProblem(codes, np.ones(300), np.full(530, 2), ~np.eye(530, dtype=bool))
    assert problem.metric == "inverse"
    theta, out = fit(problem, 0.0, tolerance=1e-8, order=[0])
    assert not out["status"].any()
    assert np.abs(theta).max() < 200.0


@pytest.mark.long
def test_wide_problems_never_end_higher_than_they_began():
    """From far away, where all probabilities are 0 or 1, slopes in single precision mislead."""
    rng, m = np.random.default_rng(1), 520
    common = rng.normal(size=(1500, 3)) @ rng.normal(size=(3, m))
    codes = (common + rng.normal(size=(1500, m)) > 2.5).astype(np.uint8)
    problem = PseudoProblem(codes, np.ones(1500), np.full(m, 2), ~np.eye(m, dtype=bool))
    assert problem.metric == "inverse"
    start = problem.start()
    start[:, 0] += rng.normal(0.0, 20.0, m)
    first, _ = problem.objective(start, 1e-3, 0.0)
    _, out = fit(problem, 1e-3, tolerance=1e-8, theta=start, itmax=100, order=[0])
    assert (out["value"] <= first * (1.0 + 1e-6)).all()


@pytest.mark.parametrize(("m", "levels", "absent"), [(520, 2, 0.0), (270, 3, 0.0), (520, 2, 0.9)])
@pytest.mark.parametrize("width", widths())
@pytest.mark.long
def test_rows_and_columns_of_wide_problems_change_places_and_the_gradient_stays(
    width, m, levels, absent, monkeypatch
):
    """They do unless most predictors are at their reference level."""
    # some row blocks, the last of them with rows that fill no table
    rng, n = np.random.default_rng(0), 1103
    codes = rng.integers(0, levels, (n, m)).astype(np.uint8) * (rng.random((n, m)) >= absent)
    found = []
    for wide in (True, False):
        if not wide:
            monkeypatch.setattr(pseudo, "kronecker_pays", lambda *_: False)
        problem = PseudoProblem(
            codes, 1.0 + np.arange(n) % 3, np.full(m, levels), ~np.eye(m, dtype=bool), width
        )
        assert problem.metric == ("inverse" if wide else "blocks")
        theta = np.random.default_rng(1).normal(0.0, 0.1, problem.start().shape)
        found.append(problem.objective(theta, 0.1, 0.1))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.long
def test_a_wide_problem_has_a_metric_for_each_penalty_that_threads_ask_for():
    rng, m = np.random.default_rng(0), 520
    codes = (rng.random((700, m)) < rng.uniform(0.02, 0.5, m)).astype(np.uint8)

    def made():
        return PseudoProblem(codes, np.ones(700), np.full(m, 2), ~np.eye(m, dtype=bool))

    def solved(problem, lambda_):
        theta = problem.start()
        found = problem.solve(0, lambda_, 0.0, 1e-9, 1000, theta)
        assert not found["status"].any()
        return theta

    both = made()
    with ThreadPoolExecutor(2) as pool:
        at_once = list(pool.map(partial(solved, both), (0.1, 1e-3, 0.1, 1e-3)))
    for theta, lambda_ in zip(at_once, (0.1, 1e-3, 0.1, 1e-3), strict=True):
        np.testing.assert_array_equal(theta, solved(made(), lambda_))


@pytest.mark.long
def test_large_eigenvectors_are_lapacks_and_other_threads_run_meanwhile():
    A = np.random.default_rng(0).normal(size=(1000, 700))
    A = A.T @ A
    A = (A + A.T) / 2000.0
    value, vector = eigh(A.copy().T, overwrite_a=True, driver="evr", check_finite=False)
    ended, ticks = threading.Event(), [0]

    def tick():
        while not ended.is_set():
            ticks[0] += 1

    other = threading.Thread(target=tick)
    other.start()
    own = A.copy()
    before = ticks[0]
    got = eigenvectors(own)
    meanwhile = ticks[0] - before
    ended.set()
    other.join()
    np.testing.assert_array_equal(got[0], value)
    np.testing.assert_array_equal(got[1], vector)
    # with the GIL held all the time, only what is before and after LAPACK would be left to the
    # other thread
    assert meanwhile > 10_000


def test_shares_of_equally_weighted_rows_are_exact():
    """With a weight of 0.1 too, of which the sum over rows is rounded."""
    codes = np.random.default_rng(0).integers(0, 2, (777, 20)).astype(np.uint8)
    codes[:, 0], codes[:, 1] = 1, 0  # always one, and never
    levels, mask = np.full(20, 2, dtype=np.int32), ~np.eye(20, dtype=bool)
    problem = PseudoProblem(codes, np.full(777, 0.1), levels, mask)
    fields = problem.start()[:, 0]
    assert fields[0] == -fields[1] == pytest.approx(np.log(77.7 / 0.5), rel=1e-12)
    share = codes[:, 2:].mean(axis=0)
    np.testing.assert_allclose(fields[2:], np.log(share / (1 - share)), rtol=1e-13, atol=1e-15)
