"""Pseudo-likelihood with a pseudocount: naive Bayes without couplings, mixed targets, files,
standard errors.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import CategoricalNB

import bbl
from bbl._ext.pseudo.plan import widths
from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.engines import NaiveBayes, PseudoLikelihood
from bbl.engines.pseudo import engine as engine_module
from bbl.model.godambe import Influence
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.regressors import regressors
from bbl.rows.sample import Sample

LEVELS = [2, 3, 4, 2]
TERMS = [(0, 1), (0, 2), (1, 2), (1, 3), (0, 1, 2)]


def make_sample(n=60, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, max(L - 1, 2), n) for L in LEVELS]).astype(
        np.uint8
    )  # the last level is absent
    unknown = rng.random(codes.shape) < missing
    codes = np.where(unknown, 0, codes).astype(np.uint8)
    return Sample(codes, rng.integers(1, 4, n).astype(float), None, unknown if missing else None)


@pytest.fixture(params=["newton", "lbfgs"])
def solver(request, monkeypatch):
    monkeypatch.setattr(engine_module, "is_small", lambda *_: request.param == "newton")
    return request.param


def mixed_loss(sample, layout, site_theta, c):
    """Return minus the mean log conditional of each predictor, with targets that are mixed level by
    level.
    """
    wide, w = regressors(layout), sample.weights / sample.total
    X, mix = one_hot(wide.codes(sample.codes), wide), c / (sample.total + c)
    out = np.zeros(layout.m)
    for i, L in enumerate(layout.n_levels):
        own = slice(layout.start[i], layout.start[i + 1])
        field = np.column_stack(
            [np.zeros(sample.n), site_theta[own, 0] + X @ site_theta[own, 1:].T]
        )
        log_p = field - np.logaddexp.reduce(field, axis=1)[:, None]
        target = (1 - mix) * (sample.codes[:, [i]] == np.arange(L)) + mix / L
        out[i] = -w @ (target * log_p).sum(axis=1)
    return out


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_without_couplings_it_is_naive_bayes_with_that_prior_count(solver, missing):
    sample, layout = make_sample(missing=missing), Layout(LEVELS, [])
    for c in (0.3, 1.0, 20.0):
        fit = PseudoLikelihood(lambda_=1.0, prior_count=c).fit(sample, layout)
        np.testing.assert_allclose(
            fit.theta, NaiveBayes(prior_count=c).fit(sample, layout).theta, atol=1e-8
        )
        assert fit.converged.all() and not fit.notes


def test_a_huge_penalty_leaves_the_classes_of_categorical_naive_bayes():
    rng = np.random.default_rng(1)
    codes, y = rng.integers(0, 3, (80, 3)), rng.integers(0, 3, 80)
    codes[y == 1, 0] = np.minimum(codes[y == 1, 0], 1)  # a level that a class lacks
    data = pd.DataFrame(codes.astype(str), columns=list("abc")).assign(y=y.astype(str))
    fit = bbl.bbl("y ~ .^2", data, lambda_=1e9, prior_count=1.5, log_z="exact", verbose=0)
    truth = CategoricalNB(alpha=1.5 / 3).fit(codes, y).predict_proba(codes)
    np.testing.assert_allclose(
        fit.predict(data, type="prob").iloc[:, :3].to_numpy(), truth, atol=1e-7
    )


@pytest.mark.parametrize("width", widths())
def test_the_kernel_has_the_mixed_objective_and_its_gradient(width):
    sample, layout = make_sample(), Layout(LEVELS, TERMS)
    wide = regressors(layout)
    problem = PseudoProblem(
        wide.codes(sample.codes),
        sample.weights,
        wide.n_levels,
        wide.mask,
        width=width,
        prior_count=2.5,
    )
    near = np.column_stack([np.ones(layout.D), np.zeros((layout.D, wide.D))])
    for i, own in enumerate(wide.columns):
        near[layout.start[i] : layout.start[i + 1], own] = 1.0
    theta = np.random.default_rng(3).normal(size=near.shape) * near
    value, gradient = problem.objective(theta, 0.0, 0.0)
    np.testing.assert_allclose(value, mixed_loss(sample, layout, theta, 2.5), atol=1e-12)
    for row, col in np.argwhere(near)[::7]:
        step = np.zeros_like(theta)
        step[row, col] = 1e-5
        slope = (
            mixed_loss(sample, layout, theta + step, 2.5)
            - mixed_loss(sample, layout, theta - step, 2.5)
        ).sum()
        assert gradient[row, col] == pytest.approx(slope / 2e-5, abs=1e-8)


@pytest.mark.parametrize("terms", [None, TERMS])
def test_both_solvers_reach_the_minimum_of_the_mixed_objective(monkeypatch, terms):
    sample, layout, found = make_sample(), Layout(LEVELS, terms), []
    for small in (True, False):
        monkeypatch.setattr(engine_module, "is_small", lambda *_, small=small: small)
        fit = PseudoLikelihood(lambda_=0.01, prior_count=1.0).fit(sample, layout)
        assert fit.converged.all()
        found.append(fit)
    np.testing.assert_allclose(found[0].site_theta, found[1].site_theta, atol=1e-8)
    best = mixed_loss(sample, layout, found[0].site_theta, 1.0) + 0.005 * (
        found[0].site_theta[:, 1:] ** 2
    ).sum(1) @ (np.repeat(np.arange(4), np.diff(layout.start))[:, None] == np.arange(4))
    np.testing.assert_allclose(found[0].lkh, -best.sum(), atol=1e-10)


def test_weights_are_repeated_rows(solver):
    sample, layout = make_sample(), Layout(LEVELS)
    repeated = Sample(
        np.repeat(sample.codes, sample.weights.astype(int), axis=0), np.ones(int(sample.total))
    )
    engine = PseudoLikelihood(lambda_=0.01, prior_count=1.0)
    np.testing.assert_allclose(
        engine.fit(sample, layout).theta, engine.fit(repeated, layout).theta, atol=1e-10
    )


def test_no_pseudocount_leaves_every_bit_as_it_is(solver):
    sample, layout = make_sample(), Layout(LEVELS)
    plain = PseudoLikelihood(lambda_=0.01, lambdah=0.1)
    assert (
        plain.fit(sample, layout).theta
        == PseudoLikelihood(0.01, 0.1, prior_count=0).fit(sample, layout).theta
    ).all()


def test_constant_predictors_and_absent_levels_have_finite_fields_without_a_warning():
    data = pd.DataFrame(
        {"a": ["x", "y"] * 10, "b": ["p"] * 10 + ["p", "q"] * 5, "y": ["1"] * 10 + ["2"] * 10}
    )
    fit = bbl.bbl("y ~ a * b", data, prior_count=1.0, verbose=0)
    assert np.abs(fit.estimate.parameters.theta).max() < 30.0
    assert (
        len(
            fit.engine.prepare(
                Sample(np.zeros((3, 1), np.uint8), np.ones(3)), Layout([2], [])
            ).weights
        )
        == 3
    )


def test_influences_are_the_change_of_the_estimate_with_a_rows_weight():
    sample, layout = make_sample(40), Layout(LEVELS, [(0, 1), (1, 2)])
    c, share = 2.0, 2.0 / (sample.total + 2.0)
    engine = PseudoLikelihood(lambda_=0.02, lambdah=0.01, prior_count=c)
    solved = engine.equations(sample, layout)
    assert solved.prior_count == c
    influence = Influence(
        solved.rows, layout, solved.site_theta, solved.lambda_, solved.lambdah, solved.prior_count
    )
    psi = influence(sample)
    np.testing.assert_allclose(sample.weights @ psi, 0.0, atol=1e-6)
    for k in (0, 7):  # with the share of the uniform distribution held
        moved = []
        for side in (1.0, -1.0):
            weights = sample.weights.copy()
            weights[k] += side * 1e-3
            own = share * weights.sum() / (1.0 - share)
            fit = PseudoLikelihood(lambda_=0.02, lambdah=0.01, prior_count=own).fit(
                Sample(sample.codes, weights), layout
            )
            moved.append(fit.theta)
        np.testing.assert_allclose((moved[0] - moved[1]) / 2e-3 * sample.total, psi[k], atol=2e-4)


# groups that do not differ
@pytest.mark.filterwarnings("ignore:On the held-out rows:bbl.errors.DataWarning")
def test_fits_with_a_pseudocount_are_tuned_saved_and_cross_validated(tmp_path):
    data = pd.DataFrame(make_sample(90).codes.astype(str), columns=list("abcd"))
    fit = bbl.bbl("a ~ .^2", data, lambda_="cv", prior_count=1.0, verbose=0)
    assert fit.engine.prior_count == 1.0 and fit.tuning.option == "lambda_"
    fit.save(tmp_path / "fit.bbl")
    again = bbl.load(tmp_path / "fit.bbl")
    assert again.engine == fit.engine
    np.testing.assert_array_equal(
        again.predict(data, type="prob").iloc[:, 0], fit.predict(data, type="prob").iloc[:, 0]
    )
    cv = bbl.crossVal(
        "a ~ .^2", data, lambda_=[0.01, 0.1], prior_count=1.0, shuffle=True, seed=0, verbose=0
    )
    assert cv.model.engine.prior_count == 1.0
