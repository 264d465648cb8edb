"""Minimum probability flow and persistent contrastive divergence against enumeration."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime

import bbl
from bbl.engines import ContrastiveDivergence, ProbabilityFlow
from bbl.engines.pairwise.flow import Flow, minimise
from bbl.engines.pairwise.penalties import TablePenalty
from bbl.errors import ConvergenceWarning, OptionError
from bbl.model.gauge import simplex_gradient, to_reference
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from tests import reference

LEVELS = [2, 3, 2, 4]
PAIRS = list(combinations(range(4), 2))


def as_tables(layout, theta):
    """Return fields and couplings as the reference takes them."""
    h = [layout.table(theta, i) for i in range(layout.m)]
    return h, {(i, j): layout.table(theta, i, j) for i, j in layout.pairs.tolist()}


def drawn(levels, n=400, seed=1, scale=0.6):
    """Return a layout, a model, and rows drawn from it."""
    rng = np.random.default_rng(seed)
    layout = Layout(levels)
    theta = rng.normal(0, scale, layout.size)
    states = reference.states(levels)
    p = reference.probabilities(*as_tables(layout, theta), levels)
    codes = states[rng.choice(len(states), n, p=p)]
    return layout, theta, codes.astype(np.uint8)


def penalty(layout, theta, lambda_, kind):
    """Return the penalty of couplings, from their tables in the zero-sum gauge."""
    sizes = np.array(
        [
            np.linalg.norm(reference.centred_table(layout.table(theta, i, j)))
            for i, j in layout.pairs
        ]
    )
    return lambda_ * {"l2": 0.5 * (sizes**2).sum(), "group": sizes.sum()}[kind]


def test_flow_and_its_gradient_are_those_of_the_neighbouring_states():
    layout, _, codes = drawn(LEVELS, 60)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, len(codes))
    flow = Flow(Sample(codes, weights), layout)
    simplex = rng.normal(0, 0.4, layout.size)

    def value(x):
        tables = as_tables(layout, to_reference(layout, x))
        return 0.5 * reference.flow(*tables, codes, weights)

    found, gradient = flow(simplex)
    assert_allclose(found, value(simplex), rtol=1e-12)
    assert_allclose(gradient, approx_fprime(simplex, value, 1e-6), atol=1e-5)


def test_flow_has_its_minimum_at_the_model_of_the_rows():
    layout, theta, _ = drawn(LEVELS)
    p = reference.probabilities(*as_tables(layout, theta), LEVELS)
    everything = Sample(reference.states(LEVELS).astype(np.uint8), p)
    fit = ProbabilityFlow(0.0).fit(everything, layout)
    assert_allclose(fit.theta, theta, atol=1e-6)
    assert fit.converged.all() and not fit.notes


@pytest.mark.parametrize("kind", ["l2", "group"])
def test_penalised_flow_is_minimal(kind):
    layout, _, codes = drawn(LEVELS)
    weights = np.ones(len(codes))
    fit = ProbabilityFlow(0.03, penalty=kind).fit(Sample(codes, weights), layout)

    def value(theta):
        return 0.5 * reference.flow(*as_tables(layout, theta), codes, weights) + penalty(
            layout, theta, 0.03, kind
        )

    best = value(fit.theta)
    rng = np.random.default_rng(2)
    for size in (1e-2, 1e-4):
        for _ in range(10):
            assert value(fit.theta + rng.normal(0, size, layout.size)) > best
    assert fit.grad_norm[0] < 1e-8
    if kind == "group":
        zero = [not layout.table(fit.theta, i, j).any() for i, j in PAIRS]
        assert 0 < sum(zero) < len(PAIRS)


def test_l1_of_two_levels_is_that_of_the_reference_gauge():
    layout, _, codes = drawn([2] * 5, scale=0.5)
    weights = np.ones(len(codes))
    (loose, fit) = ProbabilityFlow(penalty="l1").path(Sample(codes, weights), layout, [0.005, 0.02])

    def value(theta):
        return 0.5 * reference.flow(*as_tables(layout, theta), codes, weights)

    gradient = approx_fprime(fit.theta, value, 1e-6)
    J = fit.theta[layout.D :]
    assert_allclose(gradient[: layout.D], 0.0, atol=1e-5)
    assert_allclose(gradient[layout.D :][J != 0], -0.02 * np.sign(J[J != 0]), atol=1e-5)
    assert (np.abs(gradient[layout.D :][J == 0]) < 0.02).all()
    assert 0 < (J == 0).sum() < 10 and (loose.theta[layout.D :] == 0).sum() < (J == 0).sum()


@pytest.mark.parametrize(("kind", "lambda_"), [("l2", 0.02), ("group", 0.03)])
def test_divergence_is_near_maximum_likelihood(kind, lambda_):
    levels = [2, 3, 2]
    layout, _, codes = drawn(levels, 500)

    def features(rows):
        columns = [rows[:, [i]] == np.arange(1, L) for i, L in enumerate(levels)]
        products = [
            (columns[i][:, :, None] & columns[j][:, None, :]).reshape(len(rows), -1)
            for i, j in layout.pairs
        ]
        return np.hstack(columns + products).astype(float)

    of_states = features(reference.states(levels))
    means = features(codes).mean(axis=0)

    def objective(simplex):
        theta = to_reference(layout, simplex)
        tables = as_tables(layout, theta)
        gradient = of_states.T @ reference.probabilities(*tables, levels) - means
        value = reference.log_partition(*tables, levels) - means @ theta
        return value, simplex_gradient(layout, gradient)

    table_penalty = TablePenalty(layout, kind, lambda_, 0.0)
    exact = minimise(objective, table_penalty, np.zeros(layout.size), 1e-9, 2000)
    best = to_reference(layout, exact.simplex)
    assert_allclose(
        table_penalty.value(exact.simplex), penalty(layout, best, lambda_, kind), rtol=1e-10
    )
    engine = ContrastiveDivergence(lambda_, penalty=kind)
    fit = engine.fit(Sample(codes, np.ones(len(codes))), layout, rng=np.random.default_rng(3))
    assert_allclose(fit.theta, best, atol=0.05)
    assert fit.converged.all() and not fit.notes
    if kind == "group":
        sizes = [np.abs(layout.table(fit.theta, i, j)).max() for i, j in layout.pairs]
        assert sizes[1] == 0.0 == np.abs(layout.table(best, 0, 2)).max() and min(sizes) == 0.0


def test_divergence_is_reproducible_and_short_runs_are_named():
    layout, _, codes = drawn([2] * 6, 200)
    sample = Sample(codes, np.ones(len(codes)))
    engine = ContrastiveDivergence(n_iter=60, chains=40)
    fits = [engine.fit(sample, layout, workers, rng=np.random.default_rng(4)) for workers in (1, 3)]
    assert (fits[0].theta == fits[1].theta).all()
    assert "had not converged" in fits[0].notes[0].what and not fits[0].converged.any()
    assert engine.n_chains == 64
    on_grid = engine.path(sample, layout, [0.1, 1e-5], rng=np.random.default_rng(4))
    assert (on_grid[1].theta == fits[0].theta).all()
    assert np.abs(on_grid[0].theta[6:]).sum() < np.abs(fits[0].theta[6:]).sum()
    table = pd.DataFrame(codes).add_prefix("x").assign(y=codes[:, 0])
    with pytest.warns(ConvergenceWarning, match="Increase n_iter"):
        bbl.bbl("y ~ x1 * x2", table, method="pcd", n_iter=30, seed=0, verbose=0)


@pytest.mark.parametrize("method", ["mpf", "pcd"])
def test_verbs_take_both_methods(method, tmp_path):
    _, _, codes = drawn([2, 3, 2, 2], 300)
    table = pd.DataFrame(codes, columns=[*"abcd"]).astype(str)
    options = {"method": method, "lambda_": 0.01, "seed": 1, "verbose": 0, "testNull": False}
    if method == "pcd":
        options |= {"n_iter": 500}
    fit = bbl.bbl("d ~ .^2", table, penalty="group", **options)
    fit.save(tmp_path / "fit.bbl")
    again = bbl.load(tmp_path / "fit.bbl")
    assert again.engine == fit.engine
    pd.testing.assert_frame_equal(
        again.predict(table, type="prob"), fit.predict(table, type="prob")
    )
    repeated = table.value_counts().rename("n").reset_index()
    weighted = bbl.bbl("d ~ .^2", repeated, "n", penalty="group", **options)
    xlevels = {name: sorted(table[name].unique()) for name in "abc"}
    copied = bbl.bbl("d ~ .^2", table, penalty="group", xlevels=xlevels, **options)
    pd.testing.assert_frame_equal(
        weighted.predict(table, type="prob"), copied.predict(table, type="prob"), rtol=1e-10
    )
    with pytest.raises(OptionError, match=f"not for method='{method}'"):
        fit.inference()
    with pytest.raises(OptionError, match="Hint: Use penalty='group'"):
        bbl.bbl("d ~ .^2", table, penalty="l1", **options)
    alone = bbl.mlestimate(codes[:, :1], method=method)
    assert_allclose(alone.h[0], np.log((1 / (1 - codes[:, 0].mean())) - 1), atol=0.05)
    gaps = table.copy()
    gaps.loc[::9, "b"] = None
    if method == "pcd":
        partial = bbl.bbl("d ~ .^2", gaps, missing="marginal", **options)
        assert np.isfinite(partial.estimate.parameters.theta).all()
    else:
        with pytest.raises(OptionError, match="requires complete rows"):
            bbl.bbl("d ~ .^2", gaps, missing="marginal", **options)


def test_fields_of_absent_levels_are_named_and_bounded_by_their_penalty():
    _, _, codes = drawn([2, 3, 2], 200)
    table = pd.DataFrame(codes[(codes[:, 0] == 0) | (codes[:, 1] < 2)], columns=["y", "a", "b"])
    with pytest.warns(ConvergenceWarning, match="lambdah > 0"):
        bbl.bbl("y ~ a * b", table, method="mpf", verbose=0)
    fit = bbl.bbl("y ~ a * b", table, method="mpf", lambdah=1e-3, verbose=0)
    assert np.abs(fit.estimate.parameters.theta).max() < 20
    with pytest.warns(ConvergenceWarning, match="lambdah > 0"):
        bbl.mlestimate(codes[codes[:, 0] == 0, :2], method="pcd", L=[2, 3], n_iter=500)
    short = {"method": "mpf", "penalty": "group", "lambda_": 1e-3, "itmax": 1, "verbose": 0}
    with pytest.warns(ConvergenceWarning, match="Increase itmax"):
        bbl.bbl("~ a * b", table, lambdah=1e-3, **short)
    fit = bbl.bbl("~ a * b", table, lambdah=1e-3, **short | {"itmax": 5000})
    assert fit.converged
