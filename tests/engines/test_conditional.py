"""Conditional likelihood: the kernel and both solvers against oracles, its limits, and what it
refuses.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import bbl
from bbl._ext.conditional.conditional import Climber
from bbl._ext.conditional.multinomial import Panels, Regression
from bbl.engines import Conditional
from bbl.engines.conditional import engine as engine_module
from bbl.engines.conditional import many_rows
from bbl.engines.conditional.discriminative import JointFit, bound_scores, fit_minibatches, solve
from bbl.engines.conditional.folds import EARLY
from bbl.engines.conditional.kernel import make_basis, to_tables
from bbl.errors import BBLTypeError, ConvergenceWarning, OptionError
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.model.regressors import pair_cells
from bbl.rows.folds import shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration
from bbl.stats.metrics import log_probabilities

LEVELS = np.array([2, 3, 4, 2])
PAIRS = [None, [(0, 1), (1, 3)], []]


def make_rows(n=200, K=3, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, L, n) for L in LEVELS]).astype(np.uint8)
    y = ((codes[:, 0] + codes[:, 1] * codes[:, 2]) % K + (rng.random(n) < 0.3)) % K
    return codes, y.astype(np.intp), rng.integers(1, 4, n).astype(float)


def make_frame(n=200, K=3, seed=0):
    codes, y, w = make_rows(n, K, seed)
    return pd.DataFrame(codes.astype(str), columns=list("abcd")).assign(
        y=y.astype(str), w=w.astype(int)
    )


def centred(codes, weights, levels=LEVELS):
    X = np.column_stack([codes[:, [i]] == np.arange(L) for i, L in enumerate(levels)]).astype(float)
    return X - np.average(X, axis=0, weights=weights)


def hits_of(y, w, K=3):
    out = np.zeros((len(y), K))
    out[np.arange(len(y)), y] = w
    return out


def explicit_functions(codes, weights, pairs, tau, levels=LEVELS):
    """Return the columns whose inner products are the kernel: levels, then products of levels of
    pairs.
    """
    X = centred(codes, weights, levels)
    own = np.split(np.arange(X.shape[1]), np.cumsum(levels)[:-1])
    products = [X[:, [a]] * X[:, [b]] for i, j in pairs for a in own[i] for b in own[j]]
    share = weights / weights.sum()
    one = X / np.sqrt(share @ (X**2).sum(axis=1))
    if not products:
        return one
    two = np.column_stack(products)
    two /= np.sqrt(share @ (two**2).sum(axis=1))
    return np.column_stack([one, np.sqrt(tau) * two]) / np.sqrt(1 + tau)


@pytest.mark.parametrize("pairs", PAIRS)
def test_the_basis_is_the_kernel_of_centred_levels_and_products(pairs):
    (codes, _, w), layout = make_rows(), Layout(LEVELS, pairs)
    basis = make_basis(codes, w, layout, 0.5, 500)
    Z, F = basis(codes), explicit_functions(codes, w, layout.pairs, 0.5)
    np.testing.assert_allclose(Z @ Z.T, F @ F.T, atol=1e-9)
    np.testing.assert_allclose(
        (Z * (w / w.sum())[:, None]).T @ Z, np.diag(basis.spectrum), atol=1e-9
    )
    assert len(basis.spectrum) <= F.shape[1]


@pytest.mark.parametrize("pairs", PAIRS)
def test_fields_and_couplings_are_the_scores(pairs):
    (codes, y, w), layout = make_rows(), Layout(LEVELS, pairs)
    basis = make_basis(codes, w, layout, 0.5, 500)
    found = solve(basis(codes), basis.spectrum, hits_of(y, w), [1e-2, 1e-4])
    theta, constant = to_tables(basis, found[-1].weights)
    scores = basis(codes) @ found[-1].weights
    np.testing.assert_allclose(
        energies(codes, layout, theta) + constant, scores, atol=1e-10 * np.abs(scores).max()
    )


def test_the_solution_is_the_minimum_over_explicit_functions():
    (codes, y, w), layout = make_rows(60), Layout(LEVELS, [(0, 1)])
    given, hits = np.random.default_rng(1).normal(size=(60, 3)), hits_of(y, w)
    basis = make_basis(codes, w, layout, 2.0, 500)
    for scores in (None, given):
        (found,) = solve(basis(codes), basis.spectrum, hits, [0.01], scores)
        F, total = explicit_functions(codes, w, layout.pairs, 2.0), w.sum()
        A = np.linalg.lstsq(F, basis(codes) @ found.weights, rcond=None)[0]
        slight = 1e-8 if scores is None else 1.0 / total

        def loss(x, scores=scores, F=F, slight=slight, total=total):
            A, b, heat = x[:-4].reshape(-1, 3), x[-4:-1], x[-1]
            log_p = log_probabilities(
                F @ A + b + (0.0 if scores is None else np.exp(heat) * scores)
            )
            return (
                -(hits * log_p).sum() / total
                + 0.005 * (A**2).sum()
                + 0.5 * slight * (x[-4:] ** 2).sum()
            )

        x = np.concatenate([A.ravel(), found.offset, [np.log(found.temperature)]])
        slope = np.array([(loss(x + d) - loss(x - d)) / 2e-5 for d in 1e-5 * np.eye(len(x))])
        np.testing.assert_allclose(slope, 0.0, atol=1e-7)
        log_p = log_probabilities(
            basis(codes) @ found.weights
            + found.offset
            + (0.0 if scores is None else found.temperature * scores)
        )
        assert found.loss == pytest.approx(-(hits * log_p).sum() / total, abs=1e-10)
        assert found.converged


@pytest.mark.parametrize("given", [False, True])
def test_the_kernel_returns_the_objective_and_its_gradient(given):
    rng = np.random.default_rng(4)
    F, hits, s = rng.normal(size=(30, 5)), rng.random((30, 3)), rng.normal(size=(30, 3))
    hits /= hits.sum()
    scores = s if given else np.empty((0, 3))

    def loss(x):
        A, b, heat = x[:15].reshape(3, 5).T, x[15:18], np.exp(x[18]) if given else 0.0
        log_p = log_probabilities(F @ A + b + heat * s)
        return -(hits * log_p).sum() + 0.01 * (A**2).sum() + 0.05 * (x[15:] ** 2).sum()

    x, ones = rng.normal(size=19), np.ones(19)
    slope = np.array([(loss(x + d) - loss(x - d)) / 2e-5 for d in 1e-5 * np.eye(19)])
    regression = Regression(Panels(F), hits, scores, 0.02, 0.1)
    same = x.copy()
    value, steepest, evaluations = regression.minimise(
        same, ones, np.inf, 0.0, 1, np.zeros(1, np.int32)
    )
    np.testing.assert_array_equal(same, x)
    assert value == pytest.approx(loss(x), rel=1e-12) and evaluations == 1
    assert steepest == pytest.approx(np.abs(slope).max(), rel=1e-6)
    value, steepest, _ = regression.minimise(x, ones, 1e-7, 0.0, 500, np.zeros(1, np.int32))
    slope = np.array([(loss(x + d) - loss(x - d)) / 2e-5 for d in 1e-5 * np.eye(19)])
    assert steepest <= 1e-7 and value == pytest.approx(loss(x), rel=1e-12)
    np.testing.assert_allclose(slope, 0.0, atol=2e-7)
    before = x.copy()
    regression.minimise(x, ones, 0.0, 0.0, 500, np.ones(1, np.int32))
    np.testing.assert_array_equal(x, before)  # told to stop


@pytest.mark.parametrize(("precision", "error"), [("double", 1e-12), ("single", 2e-6)])
@pytest.mark.parametrize("K", [1, 2, 4, 6, 7])
@pytest.mark.parametrize(("n", "r"), [(1, 1), (32, 33), (300, 40), (700, 3)])
def test_panels_blocks_and_chunks_of_any_size_give_the_objective(n, r, K, precision, error):
    """Panels have 32 rows, 64 in single precision, and blocks four panels; rows without weight are
    left out.
    """
    rng = np.random.default_rng(n)
    F, hits, s = rng.normal(size=(n, r)), rng.random((n, K)), rng.normal(size=(n, K))
    hits[40:140] = 0.0  # a panel and parts of others
    hits /= hits.sum()
    x = rng.normal(size=K * r + K + 1)
    A, b = x[: K * r].reshape(K, r).T, x[K * r : -1]
    log_p = log_probabilities(F @ A + b + np.exp(x[-1]) * s)
    objective = -(hits * log_p).sum() + 0.01 * (A**2).sum() + 0.05 * (x[K * r :] ** 2).sum()
    gap = hits.sum(axis=1, keepdims=True) * np.exp(log_p) - hits
    gradient = np.concatenate(
        [
            (F.T @ gap + 0.02 * A).T.ravel(),
            gap.sum(axis=0) + 0.1 * b,
            [np.exp(x[-1]) * (gap * s).sum() + 0.1 * x[-1]],
        ]
    )
    regression, run = (
        Regression(Panels(F, precision), hits, s, 0.02, 0.1),
        (np.inf, 0.0, 1, np.zeros(1, np.int32)),
    )
    # `minimise` tells the largest component: each alone, by its scale
    for k in rng.permutation(len(x))[:12]:
        value, component, _ = regression.minimise(
            x.copy(), (np.arange(len(x)) == k).astype(float), *run
        )
        assert component == pytest.approx(abs(gradient[k]), rel=1e3 * error, abs=error)
    assert value == pytest.approx(objective, rel=error)


def test_all_folds_over_one_kernel_are_fits_of_each_fold(monkeypatch):
    """The folds' own kernels differ in what they centre by and are scaled with, so scores are close
    and not equal.
    """
    rng = np.random.default_rng(3)
    codes, y, _ = make_rows(400, seed=3)
    sample = Sample(codes, np.ones(400), y)
    folds, layout, engine = shuffled_folds(sample, 4, rng), Layout(LEVELS), Conditional(0.01, 0.5)
    rows = [folds.one(f).validation(sample)[2] for f in range(4)]
    together = engine.held_out(sample, layout, 3, folds)
    near = together(engine, 0.01, rows, exactly=True)
    far = together(engine, 0.1, rows)
    own = []
    for weights, held in zip(folds.train, rows, strict=True):
        (found,) = engine.fit_groups(sample.weighted(weights), layout, 3, None, None, rng)
        own.append(energies(codes[held], layout, found.theta) + found.constant)
    gap = np.abs(
        np.exp(log_probabilities(near)) - np.exp(log_probabilities(np.concatenate(own)))
    ).max()
    assert (
        gap < 0.02 < np.abs(np.exp(log_probabilities(near)) - np.exp(log_probabilities(far))).max()
    )
    assert engine_module.Conditional(start="pseudo").held_out(sample, layout, 3, folds) is None
    monkeypatch.setattr(engine_module, "ROWS", 100)
    assert engine.held_out(sample, layout, 3, folds) is None


def test_a_fit_that_stops_early_is_the_end_of_a_path_of_falling_ridges_of_folds_too():
    codes, y, w = make_rows(300, seed=5)
    layout, rng, engine = (
        Layout(LEVELS),
        np.random.default_rng(0),
        Conditional(1e-5, early_stopping=True),
    )
    sample = Sample(codes, w, y)
    states, at = np.unique(codes, axis=0, return_inverse=True)
    hits = np.zeros((len(states), 3))
    np.add.at(hits, (at.ravel(), y), w)
    basis = make_basis(states, hits.sum(axis=1), layout, 0.5, 600)
    on_path = solve(
        basis.functions, basis.spectrum, hits, [0.1, 0.01, 0.001, 1e-4, 1e-5], None, EARLY
    )[-1]
    (found,) = engine.fit_groups(sample, layout, 3, None, None, rng)
    scores = energies(states, layout, found.theta) + found.constant
    np.testing.assert_allclose(
        scores, basis.functions @ on_path.weights + on_path.offset, atol=1e-9
    )
    (same,) = engine.fit_groups(sample, layout, 3, [1e-5], None, rng)
    np.testing.assert_array_equal(same.theta, found.theta)
    # those of a path that goes on are fitted once, others anew; the same ridge may come again.
    # Tables of several fits come from one product of matrices, whose sums have another order
    on_the_way = engine.fit_groups(sample, layout, 3, [1e-5, 3e-4, 1e-5, 1e-3], None, rng)
    for ridge, each in zip((1e-5, 3e-4, 1e-5, 1e-3), on_the_way, strict=True):
        (alone,) = engine.fit_groups(sample, layout, 3, [ridge], None, rng)
        np.testing.assert_allclose(each.theta, alone.theta, rtol=1e-12, atol=1e-12)
    repeated = np.repeat(np.arange(300), w.astype(int))
    many = Sample(codes[repeated], np.ones(len(repeated)), y[repeated])
    np.testing.assert_array_equal(
        engine.fit_groups(many, layout, 3, None, None, rng)[0].theta, found.theta
    )
    (exact,) = Conditional(1e-5).fit_groups(sample, layout, 3, None, None, rng)
    assert not found.converged and found.gradient > 1e-4 and found.loss > exact.loss + 1e-5

    folds = shuffled_folds(sample, 4, rng)
    rows = [folds.one(f).validation(sample)[2] for f in range(4)]
    at_once, on_the_way = (engine.held_out(sample, layout, 3, folds) for _ in range(2))
    for ridge in (0.1, 0.01, 1e-5, 1e-3):
        last = on_the_way(engine, ridge, rows)
        np.testing.assert_array_equal(at_once(engine, ridge, rows, exactly=True), last)
    hits = np.zeros((len(states), 3))
    np.add.at(hits, (at.ravel(), y), folds.train[0])
    # the states that the first fold does not train on come first, then those of the second;
    # products are single
    is_left_out = [np.bincount(at.ravel(), weights) == 0.0 for weights in folds.train]
    order = np.argsort(
        [next((f for f in range(4) if is_left_out[f][k]), 4) for k in range(len(states))],
        kind="stable",
    )
    basis = make_basis(states[order], np.bincount(at.ravel(), w)[order], layout, 0.5, 600)
    path, rank = ([0.1, 0.01, 0.001], None, EARLY), np.argsort(order)[at.ravel()[rows[0]]]
    truth = solve(Panels(basis.functions, "single"), basis.spectrum, hits[order], *path)[-1]
    np.testing.assert_array_equal(
        last[: len(rows[0])], (basis.functions @ truth.weights + truth.offset)[rank]
    )
    in_double = solve(basis.functions, basis.spectrum, hits[order], *path)[-1]
    np.testing.assert_allclose(truth.weights, in_double.weights, atol=1e-4)


def test_a_fit_that_stops_early_has_no_standard_errors_and_keeps_its_option_in_files(tmp_path):
    options = {"ridge": 1e-4, "early_stopping": True, "calibrate": "temperature", "verbose": 0}
    fit = bbl.bbl("y ~ .^2", make_frame(), "w", method="conditional", **options)
    with pytest.raises(OptionError, match="stopped early"):
        fit.inference().table(of=("0", "1"))
    fit.save(tmp_path / "fit.bbl")
    again = bbl.load(tmp_path / "fit.bbl")
    assert again.engine == fit.engine == Conditional(1e-4, early_stopping=True)
    tuned = bbl.bbl(
        "y ~ .^2", make_frame(), "w", method="conditional", **{**options, "ridge": "cv"}
    )
    chosen = bbl.bbl(
        "y ~ .^2",
        make_frame(),
        "w",
        method="conditional",
        **{**options, "ridge": tuned.engine.ridge},
    )
    np.testing.assert_array_equal(tuned.estimate.parameters.theta, chosen.estimate.parameters.theta)


def test_without_pairs_it_is_penalised_multinomial_logistic_regression():
    codes, y, w = make_rows()
    fit = bbl.bbl(
        "y ~ a + b + c + d", make_frame(), "w", method="conditional", ridge=0.01, verbose=0
    )
    X = explicit_functions(codes, w, [], 0.0)
    other = LogisticRegression(C=1.0 / (0.01 * w.sum()), tol=1e-10, max_iter=5000).fit(X, y, w)
    ours = fit.predict(make_frame(), type="prob").iloc[:, :3].to_numpy()
    np.testing.assert_allclose(ours, other.predict_proba(X), atol=1e-5)


def spy_on_joint_fits(monkeypatch, calls):
    """Add the arguments of each joint fit to `calls`."""
    joint = Conditional.joint
    spy = replace(joint, fit_groups=lambda *a: calls.append(a) or joint.fit_groups(*a))
    monkeypatch.setattr(Conditional, "joint", spy)


@pytest.mark.parametrize("rows", [5000, 10])
def test_an_infinite_ridge_is_the_calibration_of_the_start(monkeypatch, rows):
    monkeypatch.setattr(engine_module, "ROWS", rows)
    frame, caught = make_frame(), []
    spy_on_joint_fits(monkeypatch, caught)
    options = {"start": "pseudo", "lambda_": 0.1}
    fit = bbl.bbl("y ~ .^2", frame, method="conditional", ridge=np.inf, verbose=0, **options)
    given, sample = caught[0][5], caught[0][1]
    heat = fit_calibration(given.scores, sample.response[given.rows], given.weights, "temperature")
    start = bbl.bbl("y ~ .^2", frame, lambda_=0.1, prior_count=1.0, log_z="auto", verbose=0)
    truth = np.exp(log_probabilities(heat(start._class_scores(sample.codes))))
    np.testing.assert_allclose(
        np.exp(log_probabilities(fit._class_scores(sample.codes))), truth, atol=1e-6
    )
    assert fit.converged


@pytest.mark.parametrize("pairs", PAIRS)
def test_minibatches_meet_the_exact_solution(pairs):
    (codes, y, w), layout = make_rows(300), Layout(LEVELS, pairs)
    w = w / w.mean()
    basis = make_basis(codes, w, layout, 0.5, 500)
    for given in (None, np.random.default_rng(2).normal(size=(300, 3))):
        if given is None:
            (found,) = solve(basis(codes), basis.spectrum, hits_of(y, w), [1e-2])
            theta, constant = to_tables(basis, found.weights)
            truth = log_probabilities(energies(codes, layout, theta) + constant + found.offset)
        means = np.concatenate(
            [m[1:] for m in np.split(basis.kernel.means, np.cumsum(LEVELS)[:-1])]
        )
        climber = Climber(
            layout.start.astype(np.intp),
            np.ascontiguousarray(layout.pairs.T.astype(np.intp)),
            means,
            3,
            basis.kernel.scale,
        )
        none = np.empty((0, 3)) if given is None else given
        for _ in range(500):
            climber.epoch(codes, y, w, none, np.arange(300), 300, 1.0, 1.0, 0.9, 1e-2)
        if given is None:
            np.testing.assert_allclose(climber.h.T, theta[:, : layout.D], atol=2e-4)
            plain = theta
        own = np.zeros_like(plain)
        own[:, : layout.D] = climber.h.T
        for (i, j), at in zip(layout.pairs, layout.pair_start[:-1], strict=True):
            block = climber.J[
                layout.start[i] : layout.start[i + 1], layout.start[j] : layout.start[j + 1]
            ]
            own[:, at : at + block[..., 0].size] = block.reshape(-1, 3).T
        scores = energies(codes, layout, own) + climber.b + climber.shift
        if given is None:
            np.testing.assert_allclose(log_probabilities(scores), truth, atol=2e-4)
        else:  # the minimum with scores that are added: the gradient in explicit functions is zero
            F = explicit_functions(codes, w, layout.pairs, 0.5)
            A = np.linalg.lstsq(F, scores - climber.b, rcond=None)[0]
            residual = np.exp(log_probabilities(scores + given)) * w[:, None] - hits_of(y, w)
            np.testing.assert_allclose(F.T @ residual / w.sum() + 0.01 * A, 0.0, atol=1e-4)


@pytest.mark.parametrize("levels", [[2, 2, 2, 2, 2], [2, 3, 2, 2, 4]])
@pytest.mark.parametrize("pairs", [None, [(0, 1), (0, 3), (0, 4), (2, 3), (3, 4)]])
@pytest.mark.parametrize("K", [2, 3, 4, 10, 17])
def test_steps_are_those_of_nesterovs_method_on_explicit_columns(levels, pairs, K):
    rng, layout, n, tau, ridge, momentum = (
        np.random.default_rng(K),
        Layout(levels, pairs),
        90,
        2.0,
        0.02,
        0.9,
    )
    codes = np.column_stack([rng.integers(0, L, n) for L in levels]).astype(np.uint8)
    y, w, given = (
        rng.integers(0, K, n),
        rng.integers(1, 4, n).astype(float),
        rng.normal(size=(n, K)),
    )
    F = explicit_functions(codes, w, layout.pairs, tau, levels)
    A, V, b, v = np.zeros((F.shape[1], K)), np.zeros((F.shape[1], K)), np.zeros(K), np.zeros(K)
    order, rates = rng.permutation(n), [0.3, 0.2, 0.1]
    for rows, rate in zip(np.split(order, 3), rates, strict=True):
        p = np.exp(log_probabilities(F[rows] @ A + b + given[rows]))
        p[np.arange(30), y[rows]] -= 1.0
        p *= (w[rows] / w[rows].sum())[:, None]
        for x, velocity, gradient in ((A, V, F[rows].T @ p + ridge * A), (b, v, p.sum(axis=0))):
            velocity[:] = momentum * velocity - rate * gradient
            x += momentum * velocity - rate * gradient
    means = np.concatenate(
        [
            np.average(codes[:, [i]] == np.arange(1, L), axis=0, weights=w)
            for i, L in enumerate(levels)
        ]
    )
    size = make_basis(codes, w, layout, tau, 5).kernel.scale
    climber = Climber(
        layout.start.astype(np.intp),
        np.ascontiguousarray(layout.pairs.T.astype(np.intp)),
        means,
        K,
        size,
    )
    climber.epoch(codes, y, w, given, order, 30, 0.3, 0.0, momentum, ridge)
    theta = np.zeros((K, layout.size))
    theta[:, : layout.D] = climber.h.T
    theta[:, layout.D :] = climber.J[pair_cells(layout)].T
    found = energies(codes, layout, theta) + climber.b + climber.shift
    np.testing.assert_allclose(found, F @ A + b, atol=3e-6)


@pytest.mark.long
def test_shuffled_minibatches_come_close():
    (codes, y, w), layout = make_rows(3000), Layout(LEVELS)
    basis = make_basis(codes, w, layout, 0.5, 500)
    (found,) = solve(basis(codes), basis.spectrum, hits_of(y, w), [1e-3])
    truth = np.exp(log_probabilities(basis(codes) @ found.weights + found.offset))
    error = []
    for epochs in (20, 400):
        near = fit_minibatches(codes, y, w, layout, 3, 0.5, 1e-3, epochs, np.random.default_rng(0))
        assert isinstance(near, JointFit) and not near.converged and np.isnan(near.gradient)
        p = np.exp(log_probabilities(energies(codes, layout, near.theta) + near.constant))
        error.append(np.abs(p - truth).max())
    assert error[1] < 0.01 < error[0] < 0.15


@pytest.mark.parametrize("ridge", [0.1, 10.0, 1e3])
def test_minibatches_do_not_diverge_where_the_penalty_is_steeper_than_the_loss(ridge):
    """As of many independent predictors, whose kernel has no large eigenvalue."""
    rng = np.random.default_rng(0)
    codes, y, layout = (
        rng.integers(0, 4, (2000, 20)).astype(np.uint8),
        rng.integers(0, 2, 2000),
        Layout([4] * 20),
    )
    found = fit_minibatches(codes, y, np.ones(2000), layout, 2, 0.5, ridge, 8, rng)
    assert np.abs(found.theta).max() < 0.1 / ridge


# of an infinite ridge, which leaves all predictors out
@pytest.mark.filterwarnings("ignore:On the training rows")
@pytest.mark.parametrize("ridge", [1e-3, 1e-6, np.inf])
def test_many_rows_reach_the_optimum_that_few_rows_have(monkeypatch, ridge):
    frame, options = make_frame(600), {"method": "conditional", "ridge": ridge, "verbose": 0}
    few = bbl.bbl("y ~ a * b + b * c + d", frame, "w", **options)
    monkeypatch.setattr(engine_module, "ROWS", 50)
    many = bbl.bbl("y ~ a * b + b * c + d", frame, "w", **options)
    assert many.converged and few.converged
    assert many.lkh == pytest.approx(few.lkh, abs=0.02)
    assert np.array_equal(many.params, few.params) == np.isinf(ridge)  # another solver
    p, q = (fit.predict(frame, type="prob").iloc[:, :3].to_numpy() for fit in (many, few))
    np.testing.assert_allclose(p, q, atol=2e-3)
    observed = frame["y"].astype(int).to_numpy()
    assert many.lkh == pytest.approx(frame["w"] @ np.log(p[np.arange(600), observed]), rel=1e-6)


def test_a_fit_that_has_not_converged_tells_its_gradient(monkeypatch, tmp_path):
    monkeypatch.setattr(engine_module, "ROWS", 50)
    monkeypatch.setattr(many_rows, "FINISHED", many_rows.FINISHED._replace(rounds=2))
    frame, options = make_frame(600), {"method": "conditional", "ridge": 1e-6, "verbose": 0}
    with pytest.warns(
        ConvergenceWarning,
        match=r"\(largest gradient [\d.e-]+ in scaled parameters\).*Increase ridge",
    ):
        fit = bbl.bbl("y ~ a * b + b * c + d", frame, "w", **options)
    fit.save(tmp_path / "fit.bbl")
    for each in (fit, bbl.load(tmp_path / "fit.bbl")):
        assert not each.converged and re.search(
            r"Converged: no \(largest gradient [\d.e-]+\)", str(each.summary())
        )
    early = bbl.bbl("y ~ a * b + b * c + d", frame, "w", early_stopping=True, **options)
    assert not early.converged and "Converged: no, stopped early (largest gradient" in str(
        early.summary()
    )
    monkeypatch.undo()
    fit = bbl.bbl("y ~ a * b + b * c + d", frame, "w", **options)
    assert fit.converged and re.search(
        r"Converged: yes \(largest gradient [\d.]+e-\d+\)", str(fit.summary())
    )


def test_minibatches_that_stop_early_are_left_as_they_are(monkeypatch):
    (codes, y, w), layout, engine = (
        make_rows(300),
        Layout(LEVELS),
        Conditional(1e-4, early_stopping=True),
    )
    monkeypatch.setattr(engine_module, "ROWS", 50)
    (found,) = engine.fit_groups(
        Sample(codes, w, y), layout, 3, None, None, np.random.default_rng(1)
    )
    alone = fit_minibatches(codes, y, w, layout, 3, 0.5, 1e-4, 8, np.random.default_rng(1))
    np.testing.assert_array_equal(found.theta, alone.theta)
    np.testing.assert_array_equal(found.constant, alone.constant)
    log_p = log_probabilities(energies(codes, layout, found.theta) + found.constant)
    assert found.loss == pytest.approx(-(w @ log_p[np.arange(300), y]) / w.sum(), abs=1e-6)
    assert not found.converged and found.gradient > 1e-3


@pytest.mark.parametrize("start", [{}, {"start": "pseudo", "lambda_": 0.1}, {"start": "pseudo"}])
@pytest.mark.parametrize(
    "others", [{}, {"early_stopping": True}, {"ridge": "cv"}, {"calibrate": "temperature"}]
)
@pytest.mark.parametrize("rows", [pytest.param(5000, marks=pytest.mark.long), 50])
@pytest.mark.long
def test_weights_are_repeated_rows(monkeypatch, start, others, rows):
    """Of as many rows as distinct ones, and of more, whose weights are fewer than the limit and
    whose sum is more.
    """
    frame = make_frame(150)
    repeated = frame.loc[frame.index.repeat(frame["w"])].sample(frac=1.0, random_state=0)
    monkeypatch.setattr(engine_module, "ROWS", rows)
    options = {"method": "conditional", "epochs": 3, "verbose": 0, "seed": 1, **start, **others}
    one, other = (
        bbl.bbl("y ~ a * b + c", data, w, **options) for data, w in ((frame, "w"), (repeated, None))
    )
    np.testing.assert_array_equal(one.estimate.parameters.theta, other.estimate.parameters.theta)
    np.testing.assert_array_equal(
        one._class_scores(one.training.codes), other._class_scores(one.training.codes)
    )


def test_many_rows_of_few_states_are_fitted_like_their_weights():
    titanic = bbl.datasets.load_titanic()
    titanic["Freq"] *= 10
    one, other = (
        bbl.bbl("Survived ~ .^2", data, w, method="conditional", verbose=0)
        for data, w in ((titanic, "Freq"), (bbl.freq2raw(titanic, "Freq"), None))
    )
    np.testing.assert_array_equal(one.estimate.parameters.theta, other.estimate.parameters.theta)
    assert other.converged and one.inference().table(of=("Yes", "No"))["se"].notna().any()
    pd.testing.assert_frame_equal(
        *(fit.inference().table(of=("Yes", "No")) for fit in (one, other))
    )


def test_scores_of_the_start_are_out_of_fold(monkeypatch):
    """Of pure noise, a start that is hardly penalised scores its own rows well, and others no
    better than chance.
    """
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 3, (150, 8)).astype(str), columns=list("abcdefgh"))
    frame["y"] = rng.integers(0, 2, 150).astype(str)
    caught = []
    spy_on_joint_fits(monkeypatch, caught)
    fit = bbl.bbl(
        "y ~ .^2", frame, method="conditional", ridge=10.0, start="pseudo", lambda_=1e-3, verbose=0
    )
    given, sample = caught[0][5], caught[0][1]
    np.testing.assert_array_equal(np.bincount(given.rows, given.weights), sample.weights)
    own = log_probabilities(given.scores)[np.arange(150), sample.response[given.rows]]
    assert -np.average(own, weights=given.weights) > 1.2  # in sample it is below 0.1
    fresh = pd.DataFrame(rng.integers(0, 3, (500, 8)).astype(str), columns=list("abcdefgh"))
    assert np.abs(fit.predict(fresh, type="prob").iloc[:, 0] - 0.5).mean() < 0.2


def test_bounded_scores_keep_absent_groups_finite():
    np.testing.assert_array_equal(
        bound_scores(np.array([[1.0, -np.inf, 0.0]])), [[1.0, -49.0, 0.0]]
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {"scale": "cv"},
        {"start": "pseudo", "lambda_": 0.1},
        {"start": "pseudo", "lambda_": 0.1, "ridge": np.inf},
    ],
)
def test_fits_are_tuned_saved_and_printed(tmp_path, options):
    frame = make_frame(120)
    fit = bbl.bbl(
        "y ~ a * b + c",
        frame,
        method="conditional",
        calibrate="temperature",
        verbose=0,
        **({"ridge": "cv"} | options),
    )
    assert "conditional" in str(fit.summary()) and "ln Z" not in str(fit.summary())
    assert fit.engine.scale != "cv" and np.isfinite(fit.tuning.loss).all()
    fit.save(tmp_path / "fit.bbl")
    again = bbl.load(tmp_path / "fit.bbl")
    assert again.engine == fit.engine and str(again.summary()) == str(fit.summary())
    pd.testing.assert_frame_equal(
        again.predict(frame, type="prob"), fit.predict(frame, type="prob")
    )
    assert len(fit.interactions()) == 3 and fit.plot()


def test_it_is_cross_validated():
    cv = bbl.crossVal(
        "y ~ .^2",
        make_frame(),
        method="conditional",
        ridge=[1e-3, 1.0],
        score="logloss",
        shuffle=True,
        seed=0,
        verbose=0,
    )
    assert cv.regstar == 1e-3 and cv.maxscore < np.log(3)


def test_what_needs_a_model_of_the_predictors_says_so():
    frame = make_frame(80)
    fit = bbl.bbl(
        "y ~ .", frame.drop(columns="w"), method="conditional", missing="marginal", verbose=0
    )
    unknown = frame.drop(columns="w").astype(object)
    unknown.loc[0, "a"] = None
    for call in (
        fit.logLik,
        lambda: fit.log_z,
        lambda: fit.aic,
        lambda: bbl.mcSample(fit),
        fit.sample,
        fit.score_samples,
        fit.pnll,
        lambda: fit.reconstruct(unknown),
        lambda: fit.bootstrap(2),
    ):
        with pytest.raises(OptionError, match=r"P\(x\|y\).*method='pseudo'"):
            call()
    with pytest.raises(OptionError, match="averaged over"):
        fit.predict(unknown)
    with pytest.raises(OptionError, match="missing='level'"):
        bbl.bbl("y ~ .", unknown, method="conditional", missing="marginal", verbose=0)
    with pytest.raises(OptionError, match="no standard errors"):
        fit.inference().table()
    with pytest.raises(OptionError, match="response"):
        bbl.bbl("~ .", frame, method="conditional", verbose=0)
    with pytest.raises(OptionError, match="a number to crossVal"):
        bbl.crossVal("y ~ .", frame, method="conditional", scale="cv", shuffle=True, verbose=0)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"ridge": -1.0}, "ridge"),
        ({"scale": -1}, "scale"),
        ({"scale": "x"}, "scale"),
        ({"start": "mf"}, "start"),
        ({"epochs": 0}, "epochs"),
        ({"lambda_": "x"}, "lambda_"),
    ],
)
def test_bad_options_are_named(options, name):
    with pytest.raises(OptionError, match=name):
        Conditional(**options)
    with pytest.raises(BBLTypeError, match="early_stopping"):
        Conditional(early_stopping="yes")


def test_a_group_that_is_absent_is_never_predicted():
    frame = make_frame(60).assign(y=lambda f: pd.Categorical(f["y"], ["0", "1", "2", "3"]))
    fit = bbl.bbl("y ~ a + b", frame, method="conditional", verbose=0)
    assert (
        list(fit.labels.groups) == ["0", "1", "2"]
        or fit.predict(frame, type="prob")["3"].eq(0.0).all()
    )


@pytest.mark.parametrize(
    ("options", "rtol"), [({}, 1e-6), ({"start": None}, 1e-6), ({"early_stopping": True}, 0.02)]
)
def test_predictors_that_do_not_vary_leave_the_shares_of_the_groups(options, rtol):
    data = pd.DataFrame({"y": ["no", "yes", "yes"], "a": ["u"] * 3, "b": ["v"] * 3})
    fit = bbl.bbl("y ~ a*b", data, method="conditional", novarOk=True, verbose=0, **options)
    np.testing.assert_allclose(fit.predict(data, type="prob")["yes"], 2 / 3, rtol=rtol)


def test_the_default_ridge_vanishes_against_many_rows():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (200_000, 3))
    score = (codes[:, 0] == 1) - 0.7 * (codes[:, 1] == 2) + 0.9 * (codes.prod(axis=1) == 1) - 4.0
    data = pd.DataFrame(codes, columns=list("abc")).astype(str)
    data["y"] = (rng.random(len(data)) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    table = data.value_counts().rename("n").reset_index()
    fit = bbl.bbl("y ~ .^2", table, "n", method="conditional", verbose=0)
    p = fit.predict(table, type="prob")[1].to_numpy(dtype=float)
    for rows in (p <= np.quantile(p, 0.25), p >= np.quantile(p, 0.9), np.ones(len(p), dtype=bool)):
        observed = np.average(table["y"][rows], weights=table["n"][rows])
        assert np.average(p[rows], weights=table["n"][rows]) == pytest.approx(observed, rel=0.05)
    assert fit.engine.ridge == 5 / 200_000  # weights are rows
    few = bbl.bbl("y ~ .^2", data[:4000], method="conditional", verbose=0)
    given = bbl.bbl("y ~ .^2", data[:4000], method="conditional", ridge=1e-3, verbose=0)
    assert np.array_equal(few.estimate.parameters.theta, given.estimate.parameters.theta)
