"""Engines against the oracle: naive Bayes, mean field, pseudo-likelihood on mixed levels, partial
pairs, weights.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import reference as oracle

from bbl.boltzmann.estimate import fit_group
from bbl.engines import MeanField, NaiveBayes, PseudoLikelihood, make_engine
from bbl.errors import BBLTypeError, OptionError
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

LEVELS = [2, 3, 4, 2]
PARTIAL = [(0, 1), (1, 3), (0, 2)]


def make_sample(n=120, levels=LEVELS, seed=0, weighted=True):
    rng = np.random.default_rng(seed)
    common = rng.random(n)
    columns = [
        np.minimum((L * (0.6 * common + 0.4 * rng.random(n))).astype(int), L - 1) for L in levels
    ]
    codes = np.column_stack(columns).astype(np.uint8)
    weights = rng.integers(1, 5, n).astype(float) if weighted else np.ones(n)
    return Sample(codes, weights)


def repeated(sample):
    w = sample.weights.astype(int)
    return Sample(np.repeat(sample.codes, w, axis=0), np.ones(w.sum()))


def as_oracle(pairs):
    return None if pairs is None else [tuple(p) for p in pairs]


def assert_tables(layout, theta, h, J, tolerance):
    for i in range(layout.m):
        np.testing.assert_allclose(layout.table(theta, i), h[i], atol=tolerance)
    for i, j in layout.pairs:
        np.testing.assert_allclose(layout.table(theta, i, j), J[i, j], atol=tolerance)


def test_naive_matches_the_oracle():
    sample = make_sample()
    layout = NaiveBayes().layout(sample, Layout(LEVELS))
    for c in (0.0, 1.0, 2.5):
        fit = NaiveBayes(prior_count=c).fit(sample, layout)
        h = oracle.naive_bayes(sample.codes, sample.weights, LEVELS, c)
        np.testing.assert_allclose(
            fit.theta, np.concatenate(h[0] if isinstance(h, tuple) else h), atol=1e-12
        )


@pytest.mark.parametrize("pairs", [None, PARTIAL, []])
@pytest.mark.parametrize(("eps", "c"), [(0.9, 1.0), (0.0, 1.0), (0.3, 0.0), (1.0, 2.0)])
def test_mean_field_matches_the_oracle(pairs, eps, c):
    sample, layout = make_sample(), Layout(LEVELS, pairs)
    fit = MeanField(eps=eps, prior_count=c).fit(sample, layout)
    h, J, log_z, _ = oracle.mean_field(
        sample.codes, sample.weights, LEVELS, as_oracle(pairs), eps, c
    )
    assert_tables(layout, fit.theta, h, J, 1e-10)
    assert fit.mf_log_z == pytest.approx(log_z, abs=1e-10)


def test_mean_field_grid_is_the_single_fits():
    sample, layout = make_sample(), Layout(LEVELS)
    grid = [0.0, 0.2, 0.9, 1.0]
    for eps, fit in zip(grid, MeanField().path(sample, layout, grid), strict=True):
        single = MeanField(eps=eps).fit(sample, layout)
        np.testing.assert_allclose(fit.theta, single.theta, atol=1e-10)
        assert fit.lkh == pytest.approx(single.lkh, abs=1e-10)


def test_mean_field_of_a_singular_covariance_is_finite_and_says_so():
    codes = np.zeros((4, 6), dtype=np.uint8)
    codes[2:, :] = 1
    fit = MeanField(eps=1.0, prior_count=0.0).fit(Sample(codes, np.ones(4)), Layout([2] * 6))
    assert np.isfinite(fit.theta).all()
    assert not fit.converged.all()
    assert "singular" in fit.notes[0][2]
    assert fit.notes[0].predictor == -1  # of none alone


@pytest.mark.parametrize("eps", [0.0, 0.5, 1.0])
def test_mean_field_of_rows_that_do_not_vary_has_no_couplings(eps):
    codes = np.array([[1, 0]], dtype=np.uint8)
    fit = MeanField(eps=eps, prior_count=0.0).fit(Sample(codes, np.ones(1)), Layout([2, 2]))
    assert np.isfinite(fit.theta).all() and not fit.theta[2:].any()


@pytest.mark.parametrize("pairs", [None, PARTIAL, []])
@pytest.mark.parametrize(("lambda_", "lambdah"), [(1e-5, 0.0), (0.1, None), (0.01, 0.5)])
def test_pseudo_matches_the_oracle(pairs, lambda_, lambdah):
    sample, layout = make_sample(), Layout(LEVELS, pairs)
    fit = PseudoLikelihood(lambda_=lambda_, lambdah=lambdah).fit(sample, layout)
    exact = oracle.PseudoFit(
        sample.codes,
        sample.weights,
        LEVELS,
        as_oracle(pairs),
        lambda_,
        lambda_ if lambdah is None else lambdah,
    )
    assert_tables(layout, fit.theta, exact.h, exact.J, 1e-8)
    assert fit.lkh == pytest.approx(exact.lkh, abs=1e-12)
    assert fit.converged.all()
    assert fit.grad_norm.max() <= 1e-8


def test_pseudo_without_symmetrisation_keeps_both_solutions():
    sample, layout = make_sample(), Layout(LEVELS)
    fit = PseudoLikelihood(lambda_=0.05, symmetrize=False).fit(sample, layout)
    exact = oracle.PseudoFit(sample.codes, sample.weights, LEVELS, None, 0.05, 0.0)
    for (i, j), table in exact.J_raw.items():
        block = fit.site_theta[
            layout.start[i] : layout.start[i + 1], 1 + layout.start[j] : 1 + layout.start[j + 1]
        ]
        np.testing.assert_allclose(block, table, atol=1e-8)
    np.testing.assert_allclose(layout.table(fit.theta, 0, 2), exact.J_raw[0, 2], atol=1e-8)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_single_precision_is_near_double(n_jobs):
    rng = np.random.default_rng(4)
    common = rng.random((4000, 1))
    codes = (3 * (0.6 * rng.random((4000, 30)) + 0.4 * common)).astype(np.uint8)
    sample, layout = Sample(codes, np.ones(4000)), Layout(np.full(30, 3))
    double, single = (PseudoLikelihood(lambda_=0.01, precision=p) for p in ("double", "single"))
    exact, fast = double.fit(sample, layout), single.fit(sample, layout, n_jobs)
    assert fast.converged.all()
    assert 1e-10 < fast.grad_norm.max() <= 1e-5
    assert 0.0 < np.abs(fast.theta - exact.theta).max() < 1e-3
    assert fast.lkh == pytest.approx(exact.lkh, rel=1e-5)
    assert fast.theta.tobytes() == single.fit(sample, layout).theta.tobytes()


def test_small_fits_are_computed_in_double_precision():
    sample, layout = make_sample(), Layout(LEVELS)
    fits = [PseudoLikelihood(precision=p).fit(sample, layout) for p in ("double", "single")]
    assert fits[0].theta.tobytes() == fits[1].theta.tobytes()


def test_pseudo_path_is_the_single_fits():
    sample, layout = make_sample(), Layout(LEVELS)
    grid = [1e-3, 1.0, 1e-2]
    for value, fit in zip(grid, PseudoLikelihood().path(sample, layout, grid), strict=True):
        np.testing.assert_allclose(
            fit.theta, PseudoLikelihood(lambda_=value).fit(sample, layout).theta, atol=1e-8
        )


@pytest.mark.parametrize(
    ("engine", "tolerance"),
    [(NaiveBayes(), 1e-10), (MeanField(), 1e-10), (PseudoLikelihood(lambda_=1e-3), 1e-7)],
    ids=lambda e: getattr(e, "name", ""),
)
def test_weights_are_repeated_rows(engine, tolerance):
    sample = make_sample()
    layout = engine.layout(make_sample(), Layout(LEVELS))
    one, other = engine.fit(sample, layout), engine.fit(repeated(sample), layout)
    np.testing.assert_allclose(one.theta, other.theta, atol=tolerance)
    assert one.lkh == pytest.approx(other.lkh, abs=tolerance)


def test_collapsing_makes_weights_repetition_to_the_last_bit():
    sample = make_sample()
    one, other = sample.collapsed(LEVELS), repeated(sample).collapsed(LEVELS)
    np.testing.assert_array_equal(one.codes, other.codes)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert one.total == sample.total


@pytest.mark.parametrize("engine", [NaiveBayes(), MeanField()], ids=lambda e: e.name)
@pytest.mark.parametrize("log_z", ["exact", "half", "pseudo", "mf", "ais"])
@pytest.mark.parametrize("weights", ["counts", "real", "huge"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.usefixtures("short_annealing")
@pytest.mark.thinned(4)
def test_neither_repetition_nor_the_order_of_rows_changes_a_bit(engine, log_z, weights, missing):
    sample, rng = make_sample(400), np.random.default_rng(2)
    scale = {"counts": 1.0, "real": 1 / 3, "huge": 2.0**52}[weights]
    unknown = rng.random(sample.codes.shape) < 0.1 if missing else None
    codes = sample.codes if unknown is None else np.where(unknown, 0, sample.codes).astype(np.uint8)
    sample = Sample(codes, sample.weights * scale, missing=unknown)
    layout = engine.layout(sample, Layout(LEVELS))
    others = [sample.collapsed(LEVELS)]
    if weights == "counts":
        again = rng.permutation(np.repeat(np.arange(sample.n), sample.weights.astype(int)))
        others.append(replace(sample.rows(again), weights=np.ones(len(again))))
    grid = (0.0, 0.5)
    found, *same = (
        fit_group(s, layout, engine, grid, log_z, rng=np.random.default_rng(1))
        for s in (sample, *others)
    )
    for fits in same:
        for one, other in zip(found, fits, strict=True):
            np.testing.assert_array_equal(one.fit.theta, other.fit.theta)
            assert one.fit.lkh == other.fit.lkh
            np.testing.assert_array_equal(
                [one.log_z, one.log_z_error], [other.log_z, other.log_z_error]
            )


@pytest.mark.parametrize("constant", [0, 2])
def test_constant_predictor_is_augmented_as_in_the_paper(constant):
    sample = make_sample()
    codes = sample.codes.copy()
    codes[:, 2] = constant
    sample, layout = Sample(codes, sample.weights), Layout(LEVELS)
    engine = PseudoLikelihood(lambda_=0.1, lambdah=0.1)
    rows = engine.prepare(sample, layout)
    assert rows.n == sample.n + 1
    assert rows.codes[-1].tolist() == [0, 0, 1 if constant == 0 else 0, 0]
    exact = oracle.PseudoFit(codes, sample.weights, LEVELS, None, 0.1, 0.1)
    assert_tables(layout, engine.fit(rows, layout).theta, exact.h, exact.J, 1e-8)


def test_absent_level_stays_finite_and_is_noted():
    sample = make_sample()
    codes = sample.codes.copy()
    codes[codes[:, 2] == 3, 2] = 1
    layout = Layout(LEVELS)
    fit = PseudoLikelihood(lambda_=1e-3).fit(Sample(codes, sample.weights), layout)
    assert np.isfinite(fit.theta).all()
    assert any(note[0] == 2 and note[1] == 3 for note in fit.notes)
    assert (
        not PseudoLikelihood(lambda_=1e-3, lambdah=1e-3)
        .fit(Sample(codes, sample.weights), layout)
        .notes
    )


def test_too_few_iterations_are_reported():
    fit = PseudoLikelihood(lambda_=1e-3, itmax=1).fit(make_sample(), Layout(LEVELS))
    assert not fit.converged.any()
    assert "did not converge" in fit.notes[0][2]


# whose flat objectives stopped L-BFGS at a gradient of 1e-3
@pytest.mark.parametrize("seed", [6, 16, 72])
def test_fewer_rows_than_predictors_converge(seed):
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, 4, 13)]
    for _ in range(23):
        columns.append(
            np.where(rng.random(13) < 0.5, columns[-1], rng.integers(0, rng.integers(2, 5), 13))
        )
    codes = np.column_stack(
        [np.unique(column, return_inverse=True)[1] for column in columns]
    ).astype(np.uint8)
    layout, engine = Layout(codes.max(axis=0) + 1), PseudoLikelihood(lambdah=0.1)
    fit = engine.fit(Sample(codes, np.ones(13)), layout)
    assert fit.converged.all() and not fit.notes


def test_newtons_method_finishes_sites_with_few_of_many_columns():
    """A predictor of a chain has 78 parameters, although there are 240 columns."""
    codes = np.random.default_rng(0).integers(0, 7, (100, 40)).astype(np.uint8)
    layout = Layout(np.full(40, 7), [(i, i + 1) for i in range(39)])
    fit = PseudoLikelihood(itmax=20).fit(Sample(codes, np.ones(100)), layout)
    assert fit.converged.all() and fit.grad_norm.max() <= 1e-10


def test_parameters_are_recovered():
    rng = np.random.default_rng(3)
    layout = Layout([3, 3, 2, 2])
    truth = rng.normal(scale=0.7, size=layout.size)
    states = oracle.states([3, 3, 2, 2])
    h = [layout.table(truth, i) for i in range(4)]
    J = {(int(i), int(j)): layout.table(truth, i, j) for i, j in layout.pairs}
    counts = np.round(1e7 * oracle.probabilities(h, J, [3, 3, 2, 2]))
    keep = counts > 0
    sample = Sample(states[keep].astype(np.uint8), counts[keep])
    fit = PseudoLikelihood(lambda_=0.0).fit(sample, layout)
    np.testing.assert_allclose(fit.theta, truth, atol=2e-3)


@pytest.mark.parametrize(
    ("method", "options", "name"),
    [
        ("pseudo", {"lambda_": -1.0}, "lambda_"),
        ("pseudo", {"lambda_": float("nan")}, "lambda_"),
        ("pseudo", {"lambda_": float("-inf")}, "lambda_"),
        ("pseudo", {"lambda_": "x"}, "lambda_"),
        ("pseudo", {"lambda_": [0.1, -2.0]}, "lambda_"),
        ("pseudo", {"lambdah": -0.1}, "lambdah"),
        ("pseudo", {"tolerance": 0.0}, "tolerance"),
        ("pseudo", {"itmax": 0}, "itmax"),
        ("pseudo", {"itmax": 1.5}, "itmax"),
        ("pseudo", {"symmetrize": "yes"}, "symmetrize"),
        ("pseudo", {"precision": "float32"}, "precision"),
        ("pseudo", {"prior_count": -1.0}, "prior_count"),
        ("pseudo", {"lamda_": 1.0}, "lamda_"),
        ("pseudo", {"eps": 0.5}, "eps"),
        ("mf", {"eps": 1.5}, "eps"),
        ("mf", {"eps": -0.1}, "eps"),
        ("mf", {"eps": float("nan")}, "eps"),
        ("mf", {"eps": "x"}, "eps"),
        ("mf", {"prior_count": -1.0}, "prior_count"),
        ("naive", {"prior_count": float("nan")}, "prior_count"),
        ("foo", {}, "method"),
        (7, {}, "method"),
        (MeanField(), {"eps": 0.5}, "eps"),
    ],
)
def test_bad_options_are_named(method, options, name):
    with (
        warnings.catch_warnings(),
        pytest.raises((OptionError, BBLTypeError), match=name.replace("_", ".")) as caught,
    ):
        make_engine(method, options)
    assert name in str(caught.value.argument)


def test_near_match_of_a_misspelt_option():
    with pytest.raises(BBLTypeError, match="Did you mean 'lambda_'"):
        make_engine("pseudo", {"lamda_": 1.0})
