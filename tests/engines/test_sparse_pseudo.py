"""Pseudo-likelihood with penalties that make couplings zero: optima, zeros, means, errors."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

import bbl
from bbl.engines import PseudoLikelihood
from bbl.engines.pseudo import sparse_sites
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from bbl.sparse.workingset import Descent


def fitted(codes, n_levels, penalty, grid, weights=None, **options):
    """Return the fits of all pairs at each penalty of `grid`."""
    layout = Layout(n_levels, list(combinations(range(len(n_levels)), 2)))
    weights = np.ones(len(codes)) if weights is None else weights
    engine = PseudoLikelihood(grid[0], penalty=penalty, **options)
    return layout, engine.path(Sample(codes.astype(np.uint8), weights), layout, grid)


def draw(n_levels, n=300, seed=0):
    """Return codes in which predictor 1 often follows predictor 0."""
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, L, n) for L in n_levels])
    codes[:, 1] = np.where(rng.random(n) < 0.6, codes[:, 0] % n_levels[1], codes[:, 1])
    return codes


@pytest.mark.parametrize("lambda_", [0.005, 0.03])
def test_l1_is_node_by_node_that_of_scikit_learn(lambda_):
    codes = draw([2] * 5)
    # a path, whose last fit starts from those before
    _, fits = fitted(codes, [2] * 5, "l1", [0.1, lambda_])
    fit = fits[1]
    for i in range(5):
        others = [j for j in range(5) if j != i]
        model = LogisticRegression(
            C=1.0 / (lambda_ * len(codes)),
            l1_ratio=1.0,
            solver="saga",
            tol=1e-12,
            max_iter=100_000,
            random_state=0,
        ).fit(codes[:, others], codes[:, i])
        np.testing.assert_allclose(fit.site_theta[i, 1:][others], model.coef_[0], atol=1e-6)
        share = codes[:, i].mean()
        # without any coupling the solver there stops before the intercept is right
        field = model.intercept_[0] if model.coef_.any() else np.log(share / (1.0 - share))
        np.testing.assert_allclose(fit.site_theta[i, 0], field, atol=1e-6)
    assert fit.converged.all()
    assert (fit.grad_norm < 1e-8).all()


def test_l1_couplings_are_means_of_both_sites_and_some_are_zero():
    layout, (fit,) = fitted(draw([2] * 5), [2] * 5, "l1", [0.03])
    J = fit.site_theta[:, 1:]
    pairs = np.array(list(combinations(range(5), 2)))
    expected = 0.5 * (J[pairs[:, 0], pairs[:, 1]] + J[pairs[:, 1], pairs[:, 0]])
    np.testing.assert_allclose(fit.theta[layout.D :], expected, atol=1e-14)
    assert fit.theta[layout.D] > 0.5
    assert (fit.theta[layout.D :] == 0.0).sum() >= 5


def test_group_meets_its_conditions_of_optimality():
    n_levels = [2, 3, 4, 3]
    lambda_, codes = 0.04, draw([2, 3, 4, 3])
    layout, (fit,) = fitted(codes, n_levels, "group", [lambda_])
    n_zero = 0
    for i, j in [(i, j) for i in range(4) for j in range(4) if i != j]:
        rows = slice(layout.start[i], layout.start[i + 1])
        scores = np.zeros((len(codes), n_levels[i]))
        one_hot = np.zeros((len(codes), layout.D))
        for k in range(4):
            for a in range(1, n_levels[k]):
                one_hot[:, layout.start[k] + a - 1] = codes[:, k] == a
        scores[:, 1:] = fit.site_theta[rows, 0] + one_hot @ fit.site_theta[rows, 1:].T
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        residual = p - np.eye(n_levels[i])[codes[:, i]]
        np.testing.assert_allclose(residual.mean(axis=0), 0.0, atol=1e-8)
        # the gradient by a table in the zero-sum gauge, without what fields take up
        gradient = residual.T @ np.eye(n_levels[j])[codes[:, j]] / len(codes)
        gradient -= gradient.mean(axis=1, keepdims=True)
        table = np.zeros((n_levels[i], n_levels[j]))
        columns = slice(1 + layout.start[j], 1 + layout.start[j + 1])
        table[1:, 1:] = fit.site_theta[rows, columns]
        table -= table.mean(axis=0)
        table -= table.mean(axis=1, keepdims=True)
        size = np.linalg.norm(table)
        n_zero += size == 0.0
        if size > 0.0:
            np.testing.assert_allclose(gradient, -lambda_ * table / size, atol=1e-8)
        else:
            assert np.linalg.norm(gradient) <= lambda_ + 1e-8
    assert 0 < n_zero < 12


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("lambda_", [0.004, 0.02, 0.1, 1.0])
def test_both_solvers_have_one_minimum(monkeypatch, lambda_, absent):
    n_levels = [4, 5, 3, 4, 3]
    codes = draw(n_levels, 150, seed=3)
    codes[:, 3] = np.where(codes[:, 0] == 1, codes[:, 2], codes[:, 3])
    if absent:
        codes[codes[:, 1] == 2, 1] = 0
    found = []
    for solver in (sparse_sites.minimise_groups, Descent.minimise):
        monkeypatch.setattr(sparse_sites, "minimise_groups", solver)
        layout, (fit,) = fitted(codes, n_levels, "group", [lambda_], tolerance=1e-9)
        assert fit.converged.all() and fit.grad_norm.max() < 1e-8
        found.append(fit)
    assert_allclose(found[0].lkh, found[1].lkh, rtol=1e-9)
    couplings = slice(layout.D, None)
    assert_allclose(found[0].theta[couplings], found[1].theta[couplings], atol=1e-5)
    assert ((found[0].theta == 0) == (found[1].theta == 0)).all()
    if lambda_ == 1.0:
        assert not found[0].theta[couplings].any()


def test_a_site_of_many_levels_converges_to_rounding():
    n_levels = [20] * 8
    codes = draw(n_levels, 200, seed=4)
    sample = Sample(codes.astype(np.uint8), np.ones(len(codes)))
    fits = PseudoLikelihood(0.02, penalty="group").path(sample, Layout(n_levels), [0.05, 0.02])
    assert fits[1].converged.all() and fits[1].grad_norm.max() < 1e-8
    assert fits[0].n_iter.max() < 100 and fits[1].n_iter.max() < 300
    J = [fits[1].site_theta[:19, 1 + 19 * j : 1 + 19 * (j + 1)] for j in (1, 2)]
    assert np.abs(J[0]).max() > 0.1


def test_a_site_without_neighbours_has_its_level_shares():
    codes = draw([3, 4])
    for pairs in ([], [(0, 1)]):
        layout = Layout([3, 4, 3], pairs)
        sample = Sample(np.column_stack([codes, codes[:, 0]]).astype(np.uint8), np.ones(300))
        fit = PseudoLikelihood(0.02, penalty="group").fit(sample, layout)
        shares = np.bincount(codes[:, 0]) / 300
        assert_allclose(fit.theta[layout.start[2] :][:2], np.log(shares[1:] / shares[0]), atol=1e-7)


@pytest.mark.long
def test_fields_of_absent_levels_end_at_their_bound():
    # most of the 20 levels are rare or absent, so that their fields fall to the bound
    codes = draw([20] * 6, 200, seed=5) ** 3 // 400
    sample = Sample(codes.astype(np.uint8), np.ones(len(codes)))
    fits = PseudoLikelihood(0.02, penalty="group").path(sample, Layout([20] * 6), [0.04, 0.01])
    for fit in fits:
        assert fit.grad_norm.max() < 1e-8 and fit.n_iter.max() < 300


def test_strengths_are_norms_of_the_averaged_tables():
    codes = draw([2, 3, 4])
    table = pd.DataFrame(codes, columns=[*"abc"]).astype(str)
    fit = bbl.bbl("~ .^2", table, penalty="group", lambda_=0.02, verbose=0)
    layout, (alone,) = fitted(codes, [2, 3, 4], "group", [0.02])
    ranking = fit.interactions(pvalues=None).set_index(["predictor", "predictor2"])["strength"]
    for i, j in combinations(range(3), 2):
        rows = [slice(layout.start[k], layout.start[k + 1]) for k in (i, j)]
        J = alone.site_theta[:, 1:]
        # eq. (18)
        full = np.zeros((layout.n_levels[i], layout.n_levels[j]))
        full[1:, 1:] = 0.5 * (J[rows[0], rows[1]] + J[rows[1], rows[0]].T)
        full -= full.mean(axis=0)
        full -= full.mean(axis=1, keepdims=True)
        assert_allclose(ranking["abc"[i], "abc"[j]], np.linalg.norm(full), atol=1e-8)


def test_weights_are_repeated_rows_and_threads_change_nothing():
    codes, n_levels = draw([2, 3, 3], 60), [2, 3, 3]
    weights = np.arange(60) % 3 + 1.0
    repeated = np.repeat(codes, weights.astype(int), axis=0)
    _, (weighted,) = fitted(codes, n_levels, "group", [0.05], weights)
    _, (copied,) = fitted(repeated, n_levels, "group", [0.05])
    np.testing.assert_allclose(weighted.theta, copied.theta, atol=1e-8)
    layout = Layout(n_levels, list(combinations(range(3), 2)))
    engine = PseudoLikelihood(0.05, penalty="group")
    sample = Sample(codes.astype(np.uint8), weights)
    (threaded,) = engine.path(sample, layout, None, 3)
    assert (threaded.theta == weighted.theta).all()


def test_verbs_take_the_penalty_and_say_that_there_are_no_errors(tmp_path):
    codes = draw([2, 3, 3, 2], 200)
    codes[::2, 3] = codes[::2, 2] > 0
    table = pd.DataFrame(codes, columns=[*"abcd"]).astype(str)
    fit = bbl.bbl("d ~ .^2", table, penalty="group", lambda_=0.02, n_jobs=1, verbose=0)
    assert "no standard errors" in str(fit.summary())
    with pytest.raises(OptionError, match="Hint: Use penalty='l2'"):
        fit.inference().table()
    fit.save(tmp_path / "fit.bbl")
    again = bbl.load(tmp_path / "fit.bbl")
    pd.testing.assert_frame_equal(
        again.predict(table, type="prob"), fit.predict(table, type="prob")
    )
    cv = bbl.crossVal(
        "d ~ .^2", table, penalty="group", lambda_=[0.02, 0.1], n_jobs=1, verbose=0, seed=1
    )
    assert list(cv.cvframe["lambda"]) == [0.02, 0.1]
    for method in ("pseudo", "mpf"):
        density = bbl.bbl(
            "~ .^2", table, method=method, penalty="group", lambda_="cv", seed=1, verbose=0
        )
        assert_allclose(density.tuning.values[[0, -1]], [10**-2.5, 10**-0.5])
        assert density.engine.lambda_ == density.tuning.values[density.tuning.loss.argmin()] < 0.2
    X = table.drop(columns="d")
    options = {"penalty": "group", "lambda_": 0.05}
    estimator = bbl.BBLClassifier(method="pseudo", options=options, n_jobs=1)
    assert estimator.fit(X, table["d"]).predict(X).shape == (200,)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"penalty": "l1", "lambda_": 0.1}, "penalty='group'"),
        ({"penalty": "group", "lambda_": 0.0}, "positive lambda_"),
        ({"penalty": "group", "lambdah": 0.1}, "lambdah=0"),
        ({"penalty": "group", "prior_count": 1.0}, "prior_count=0"),
        ({"penalty": "l0"}, "penalty"),
    ],
)
def test_what_does_not_go_together_is_refused(options, match):
    table = pd.DataFrame(draw([3, 3, 2], 50), columns=[*"abc"]).astype(str)
    with pytest.raises(OptionError, match=match):
        bbl.bbl("~ .^2", table, n_jobs=1, verbose=0, **options)


def test_terms_of_three_are_refused():
    table = pd.DataFrame(draw([2, 2, 2], 50), columns=[*"abc"]).astype(str)
    with pytest.raises(OptionError, match="terms of 3 predictors"):
        bbl.bbl("~ .^3", table, penalty="l1", lambda_=0.1, n_jobs=1, verbose=0)
