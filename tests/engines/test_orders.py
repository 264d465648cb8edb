"""Pseudo-likelihood with terms of any order against the oracle: both solvers, penalties by order,
missing values.
"""

import itertools

import numpy as np
import pytest
import reference as oracle

from bbl._ext.pseudo.plan import widths
from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.engines import PseudoLikelihood
from bbl.engines.pseudo import engine as engine_module
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.model.regressors import penalties, regressors
from bbl.rows.sample import Sample

LEVELS = [2, 3, 3, 2, 2]
TERMS = [(0, 1), (0, 2), (1, 2), (3, 4), (0, 1, 2), (1, 3, 4), (0, 1, 2, 3)]


def make_sample(n=400, seed=0, levels=LEVELS, missing=0.0):
    rng = np.random.default_rng(seed)
    common = rng.random(n)
    columns = [
        np.minimum((L * (0.4 * common + 0.6 * rng.random(n))).astype(int), L - 1) for L in levels
    ]
    codes = np.column_stack(columns).astype(np.uint8)
    unknown = rng.random(codes.shape) < missing
    return Sample(
        np.where(unknown, 0, codes).astype(np.uint8),
        rng.integers(1, 4, n).astype(float),
        None,
        unknown if missing else None,
    )


def oracle_fit(sample, **options):
    x = sample.codes.astype(int)
    if sample.missing is not None:
        x = np.where(sample.missing, -1, x)
    return oracle.TermFit(x, sample.weights, LEVELS, TERMS, **options)


def assert_model(layout, theta, tables, atol):
    for scope in layout.scopes:
        np.testing.assert_allclose(
            layout.table(theta, *scope), tables[scope], atol=atol, err_msg=str(scope)
        )


@pytest.fixture(params=["newton", "lbfgs"])
def solver(request, monkeypatch):
    monkeypatch.setattr(engine_module, "is_small", lambda *_: request.param == "newton")
    return request.param


@pytest.mark.parametrize("lambda_", [0.05, 1e-4, (0.0, 0.1, 0.3), (0.2, 0.01, 0.05)])
def test_both_solvers_match_the_oracle(solver, lambda_):
    sample, layout = make_sample(), Layout(LEVELS, TERMS)
    fit = PseudoLikelihood(lambda_=lambda_, lambdah=0.01).fit(sample, layout)
    by_order = dict(enumerate(lambda_, 2)) if isinstance(lambda_, tuple) else lambda_
    truth = oracle_fit(sample, lambda_=by_order, lambdah=0.01)
    assert fit.converged.all()
    assert_model(layout, fit.theta, truth.tables, 1e-7)
    assert fit.lkh == pytest.approx(truth.lkh, abs=1e-9)
    for half in (False, True):
        if fit.normaliser is not None:
            assert fit.normaliser(half) == pytest.approx(truth.log_z(half), abs=1e-6)


def test_a_grid_gives_what_single_fits_do(solver):
    sample, layout = make_sample(), Layout(LEVELS, TERMS)
    engine = PseudoLikelihood(lambdah=0.01)
    for value, fit in zip((1.0, 0.01), engine.path(sample, layout, [1.0, 0.01]), strict=True):
        alone = engine.at(value).fit(sample, layout)
        np.testing.assert_allclose(fit.theta, alone.theta, atol=1e-7)


def test_missing_values_leave_each_predictor_its_rows(solver):
    sample, layout = make_sample(missing=0.06), Layout(LEVELS, TERMS)
    fit = PseudoLikelihood(lambda_=0.02, lambdah=0.01).fit(sample, layout)
    assert_model(layout, fit.theta, oracle_fit(sample, lambda_=0.02, lambdah=0.01).tables, 1e-7)


def test_weights_are_repeated_rows(solver):
    sample, layout = make_sample(), Layout(LEVELS, TERMS)
    engine = PseudoLikelihood(lambda_=0.01)
    often = Sample(
        np.repeat(sample.codes, sample.weights.astype(int), axis=0), np.ones(int(sample.total))
    )
    found = [engine.fit(rows.collapsed(LEVELS), layout).theta for rows in (sample, often)]
    np.testing.assert_array_equal(*found)


def test_without_symmetrisation_the_first_member_speaks():
    sample, layout = make_sample(), Layout(LEVELS, TERMS)
    fit = PseudoLikelihood(lambda_=0.05, symmetrize=False).fit(sample, layout)
    truth = oracle_fit(sample, lambda_=0.05)
    for term in map(tuple, itertools.chain(*(t.tolist() for t in layout.terms))):
        np.testing.assert_allclose(
            layout.table(fit.theta, *term), truth.raw[term[0]][term[1:]], atol=1e-6
        )


@pytest.mark.parametrize("width", widths())
@pytest.mark.parametrize("more", [False, True])
def test_the_gradient_is_that_of_the_objective(width, more):
    sample, layout = make_sample(120), Layout(LEVELS, TERMS)
    wide, rng = regressors(layout), np.random.default_rng(1)
    problem = PseudoProblem(
        wide.codes(sample.codes), sample.weights, wide.n_levels, wide.mask, width=width
    )
    extra = penalties(layout, (0.0, 0.2, 0.7)) if more else None
    used = np.zeros((layout.D, 1 + wide.D), dtype=bool)
    for i, columns in enumerate(wide.columns):
        used[layout.start[i] : layout.start[i + 1], columns] = True
    theta = np.where(used, rng.normal(size=used.shape), 0.0)
    site = np.repeat(np.arange(layout.m), layout.n_levels - 1)
    _, gradient = problem.objective(theta, 0.1, 0.2, extra)
    assert not gradient[~used].any()
    for row, column in rng.permutation(np.argwhere(used))[:12]:
        step = np.zeros_like(theta)
        step[row, column] = 1e-5
        up, down = (
            problem.objective(theta + sign * step, 0.1, 0.2, extra)[0][site[row]]
            for sign in (1, -1)
        )
        assert gradient[row, column] == pytest.approx((up - down) / 2e-5, abs=1e-8)


def test_eigenvectors_of_joint_levels_serve_the_optimiser():
    rng = np.random.default_rng(3)
    m = 8
    layout = Layout([2] * m, [t for k in (2, 3) for t in itertools.combinations(range(m), k)])
    codes = (rng.random((3000, m)) < 0.4).astype(np.uint8)
    codes[:, 1] |= codes[:, 0]
    wide = regressors(layout)
    problem = PseudoProblem(wide.codes(codes), np.ones(3000), wide.n_levels, wide.mask)
    assert problem.metric == "kronecker"
    theta = problem.start()
    for task in range(problem.n_tasks):
        out = problem.solve(task, 0.01, 0.01, 1e-9, 500, theta)
    assert out["status"].max() == 0
    truth = oracle.TermFit(codes[:, :], np.ones(3000), [2] * m, layout.scopes[m:], 0.01, 0.01)
    for i, own in enumerate(truth.raw):
        expected = np.concatenate([truth.tables[i,], *(table.ravel() for table in own.values())])
        np.testing.assert_allclose(theta[i, wide.columns[i]], expected, atol=1e-6)


def test_a_penalty_for_each_order_is_asked_for():
    layout = Layout(LEVELS, TERMS)
    with pytest.raises(OptionError, match="each order from 2 to 4, but it contains 2"):
        PseudoLikelihood(lambda_=[0.1, 0.2]).layout(make_sample(10), layout)
    with pytest.raises(OptionError, match="crossVal"):
        PseudoLikelihood(lambda_=[0.1, 0.2]).layout(make_sample(10), Layout(LEVELS))
    with pytest.raises(OptionError, match="combinations of levels"):
        PseudoLikelihood().layout(make_sample(10), Layout([2, 300, 300], [(0, 1, 2)]))
