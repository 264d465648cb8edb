"""Penalties in the zero-sum gauge against enumeration; predictions do not depend on which levels
are the references.
"""

import numpy as np
import pandas as pd
import pytest
import reference as oracle

import bbl
import bbl.engines.pseudo.engine as engine_module
from bbl._ext.pseudo.plan import widths
from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.engines import MeanField, PseudoLikelihood
from bbl.errors import BBLTypeError, OptionError
from bbl.model.godambe import Influence
from bbl.model.layout import Layout
from bbl.model.regressors import to_matrix
from bbl.rows.sample import Sample
from bbl.sklearn import BBLClassifier

LEVELS = [2, 3, 2, 4]
PAIRS = [(0, 1), (0, 3), (1, 2), (1, 3)]
LAMBDA, LAMBDAH = 0.05, 0.02


def make_sample(n=150, missing=False):
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, L, n) for L in LEVELS])
    near = rng.random(n) < 0.4
    codes[near, 1] = codes[near, 3] % 3
    unknown = rng.random(codes.shape) < 0.1 if missing else None
    return Sample(codes.astype(np.uint8), rng.integers(1, 4, n).astype(float), missing=unknown)


def own_solution(layout, site_theta, i):
    """Return fields and couplings {j: table} of a predictor's own solution."""
    rows = site_theta[layout.start[i] : layout.start[i + 1]]
    J = {
        j: rows[:, 1 + layout.start[j] : 1 + layout.start[j + 1]]
        for j in np.flatnonzero(layout.mask[i]).tolist()
    }
    return rows[:, 0], J


def objective(layout, sample, site_theta, i):
    """Return the objective of a predictor by the definition."""
    h, J = own_solution(layout, site_theta, i)
    X = oracle.site_design(sample.codes, LEVELS, set(PAIRS), i)
    theta = np.column_stack([h, *J.values()])
    value = oracle.site_objective(theta, X, sample.codes[:, i], sample.weights, 0.0, 0.0)[0]
    return value + oracle.zero_sum_penalty(i, h, J, LEVELS, LAMBDA, LAMBDAH)


def gradient(layout, sample, site_theta):
    """Return all objectives and their gradients, by differences of four points."""
    out, step = np.zeros_like(site_theta), 1e-3
    for i in range(layout.m):
        used = np.append(0, 1 + np.flatnonzero(np.repeat(layout.mask[i], layout.n_levels - 1)))
        for cell in np.ndindex(out.shape):
            if layout.start[i] <= cell[0] < layout.start[i + 1] and cell[1] in used:
                for times, weight in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
                    moved = site_theta.copy()
                    moved[cell] += times * step
                    out[cell] += weight * objective(layout, sample, moved, i) / (12.0 * step)
    return np.array([objective(layout, sample, site_theta, i) for i in range(layout.m)]), out


@pytest.fixture(params=["newton", "lbfgs"])
def solver(request, monkeypatch):
    monkeypatch.setattr(engine_module, "is_small", lambda *_: request.param == "newton")


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("width", widths())
@pytest.mark.thinned(3)
def test_the_kernel_has_the_penalty_of_the_zero_sum_gauge_and_its_gradient(width, precision):
    sample, layout = make_sample(), Layout(LEVELS, PAIRS)
    used = np.hstack([np.ones((layout.D, 1)), *[np.zeros((layout.D, layout.D))]])
    for i in range(layout.m):
        own = slice(layout.start[i], layout.start[i + 1])
        used[own, 1:] = np.repeat(layout.mask[i], layout.n_levels - 1)
    theta = used * np.random.default_rng(1).normal(size=used.shape)
    problem = PseudoProblem(
        sample.codes, sample.weights, layout.n_levels, layout.mask, width=width, precision=precision
    )
    value, slope = problem.objective(theta, LAMBDA, LAMBDAH, zero_sum=True)
    wanted = gradient(layout, sample, theta)
    tolerance = 1e-9 if precision == "double" else 2e-5
    np.testing.assert_allclose(value, wanted[0], rtol=tolerance)
    np.testing.assert_allclose(slope, wanted[1], atol=tolerance)


def test_both_solvers_end_at_the_optimum(solver):
    sample, layout = make_sample(), Layout(LEVELS, PAIRS)
    fit = PseudoLikelihood(LAMBDA, LAMBDAH, gauge="zero-sum").fit(sample, layout)
    assert fit.converged.all()
    value, slope = gradient(layout, sample, fit.site_theta)
    assert np.abs(slope).max() < 1e-9
    assert fit.lkh == pytest.approx(-value.sum(), abs=1e-12)


@pytest.mark.parametrize("symmetrize", [True, False])
def test_couplings_are_averaged_and_ln_z_is_had_in_the_zero_sum_gauge(symmetrize):
    sample, layout = make_sample(), Layout(LEVELS, PAIRS)
    fit = PseudoLikelihood(LAMBDA, LAMBDAH, gauge="zero-sum", symmetrize=symmetrize).fit(
        sample, layout
    )
    found = [
        oracle.zero_sum_tables(i, *own_solution(layout, fit.site_theta, i), LEVELS)
        for i in range(layout.m)
    ]
    x = oracle.states(LEVELS)
    energy = sum(H[x[:, i]] for i, (H, _) in enumerate(found))
    for i, j in PAIRS:
        K = 0.5 * (found[i][1][j] + found[j][1][i].T) if symmetrize else found[i][1][j]
        energy += K[x[:, i], x[:, j]]
    h = [layout.table(fit.theta, i) for i in range(layout.m)]
    J = {(i, j): layout.table(fit.theta, i, j) for i, j in PAIRS}
    np.testing.assert_allclose(oracle.energy(h, J, x), energy - energy[0], atol=1e-12)
    for half, kind in ((False, "pseudo"), (True, "half")):
        total = 0.0
        for H, K in found:
            field = H + sum(
                (0.5 if half else 1.0) * table[:, sample.codes[:, j]].T for j, table in K.items()
            )
            total += sample.weights @ oracle.logsumexp(field) / sample.total
        assert fit.log_z(kind) == pytest.approx(total - energy[0], abs=1e-10)


def table(n, missing=False):
    rng = np.random.default_rng(3)
    codes = np.column_stack([rng.integers(0, L, n) for L in (2, 3, 4, 3)])
    codes[:, 1] = np.where(rng.random(n) < 0.4, codes[:, 2] % 3, codes[:, 1])
    data = pd.DataFrame(codes, columns=list("abcd")).astype(str)
    data["y"] = np.where(codes[:, 1] + rng.integers(0, 3, n) > 2, "u", "v")
    if missing:
        data = data.mask((rng.random(data.shape) < 0.1) & (data.columns != "y"))
    return data.assign(w=rng.integers(1, 4, n))


def relevelled(data, last, columns="abcd"):
    return {c: sorted(data[c].dropna().unique(), reverse=last) for c in columns}


@pytest.mark.parametrize("missing", ["raise", "marginal"])
@pytest.mark.parametrize("log_z", ["exact", "half", "pseudo"])
@pytest.mark.parametrize("n", [60, 500])
@pytest.mark.thinned(3)
def test_probabilities_do_not_depend_on_reference_levels(n, log_z, missing):
    data = table(n, missing == "marginal")
    got = {}
    for gauge in ("reference", "zero-sum"):
        options = {
            "lambda_": 0.02,
            "lambdah": 0.01,
            "gauge": gauge,
            "log_z": log_z,
            "missing": missing,
            "weights": "w",
        }
        fits = [
            bbl.bbl("y ~ .^2 - w", data, xlevels=relevelled(data, last), verbose=0, **options)
            for last in (0, 1)
        ]
        first, last = (fit.predict(data, type="prob")[["u", "v"]].to_numpy() for fit in fits)
        got[gauge] = np.abs(first - last).max()
    assert got["zero-sum"] < 1e-8 < 1e-3 < got["reference"]


@pytest.mark.parametrize("missing", ["raise", "marginal"])
@pytest.mark.parametrize("log_z", ["exact", "half", "pseudo", "mf"])
@pytest.mark.parametrize("right", [".^2 - w", "a*b + b*c*d - b:c:d"])
@pytest.mark.thinned(4)
def test_probabilities_of_mean_field_do_not_either(log_z, missing, right):
    data = table(200, missing == "marginal")
    data.loc[data["y"] == "u", "a"] = "1"  # constant in a group, and one level absent of another
    data.loc[(data["y"] == "v") & (data["c"] == "2"), "c"] = "1"
    got = {}
    for gauge in ("reference", "zero-sum"):
        options = {
            "method": "mf",
            "eps": 0.6,
            "gauge": gauge,
            "log_z": log_z,
            "missing": missing,
            "weights": "w",
        }
        fits = [
            bbl.bbl(f"y ~ {right}", data, xlevels=relevelled(data, last), **options)
            for last in (0, 1)
        ]
        first, last = (fit.predict(data, type="prob")[["u", "v"]].to_numpy() for fit in fits)
        got[gauge] = np.abs(first - last).max()
    assert got["zero-sum"] < 1e-9 < 1e-3 < got["reference"]


def test_mean_field_is_shrunk_towards_independent_levels():
    """The covariance of all levels is mixed with a multiple of the projection onto contrasts."""
    sample, layout, eps = make_sample(), Layout(LEVELS), 0.7
    fit = MeanField(eps, gauge="zero-sum").fit(sample, layout)
    f, pairs = oracle.frequencies(sample.codes, sample.weights, LEVELS, 1.0)
    own = np.split(np.arange(sum(LEVELS)), np.cumsum(LEVELS)[:-1])
    C = np.zeros((sum(LEVELS), sum(LEVELS)))
    P = np.zeros_like(C)
    for i, L in enumerate(LEVELS):
        P[np.ix_(own[i], own[i])] = np.eye(L) - 1.0 / L
        for j in range(len(LEVELS)):
            joint = np.diag(f[i]) if i == j else pairs[i, j] if i < j else pairs[j, i].T
            C[np.ix_(own[i], own[j])] = joint - np.outer(f[i], f[j])
    J = -np.linalg.pinv(eps * C + (1.0 - eps) * np.trace(C) / layout.D * P, hermitian=True)
    _, found = to_matrix(layout, fit.theta)
    for i, j in layout.pairs:
        zero_sum = J[np.ix_(own[i], own[j])]
        table = zero_sum[1:, 1:] - zero_sum[:1, 1:] - zero_sum[1:, :1] + zero_sum[0, 0]
        np.testing.assert_allclose(
            found[layout.start[i] : layout.start[i + 1], layout.start[j] : layout.start[j + 1]],
            table,
            atol=1e-10,
        )
    assert not MeanField(0.0, gauge="zero-sum").fit(sample, layout).theta[layout.D :].any()
    two = Sample((sample.codes > 0).astype(np.uint8), sample.weights)
    np.testing.assert_allclose(
        MeanField(eps, gauge="zero-sum").fit(two, Layout([2] * 4)).theta,
        MeanField(eps).fit(two, Layout([2] * 4)).theta,
        atol=1e-12,
    )


def test_mean_field_takes_it_from_files_too(tmp_path):
    data = table(300).drop(columns="w")
    data.to_parquet(tmp_path / "rows.parquet")
    options = {"method": "mf", "gauge": "zero-sum", "log_z": "half", "xlevels": relevelled(data, 1)}
    one, other = (
        bbl.bbl("y ~ .^2", source, **options) for source in (data, tmp_path / "rows.parquet")
    )
    np.testing.assert_allclose(one.log_z, other.log_z, atol=1e-10)
    np.testing.assert_array_equal(one.estimate.parameters.theta, other.estimate.parameters.theta)
    one.save(tmp_path / "fit.bbl")
    assert bbl.load(tmp_path / "fit.bbl").engine == one.engine == MeanField(gauge="zero-sum")
    tuned = bbl.bbl("y ~ .^2", data, method="mf", eps="cv", gauge="zero-sum", verbose=0)
    assert tuned.engine.gauge == "zero-sum"


def test_a_constant_predictor_and_an_absent_level_do_not_bring_them_back():
    data = table(60)
    data.loc[data["y"] == "u", "a"] = "1"
    data = data[(data["y"] == "v") | (data["c"] != "2")]
    options = {"lambda_": 0.02, "lambdah": 0.01, "gauge": "zero-sum", "verbose": 0}
    found = [
        bbl.bbl("y ~ a + b*c", data, xlevels=relevelled(data, last, "abc"), **options).predict(
            data, type="link"
        )[["u", "v"]]
        for last in (0, 1)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-7)


def test_two_levels_have_the_penalty_of_a_quarter():
    rng = np.random.default_rng(5)
    sample, layout = (
        Sample(rng.integers(0, 2, (200, 4)).astype(np.uint8), np.ones(200)),
        Layout([2] * 4),
    )
    found = PseudoLikelihood(0.4, 0.0, gauge="zero-sum").fit(sample, layout)
    wanted = PseudoLikelihood(0.1, 0.0).fit(sample, layout)
    np.testing.assert_allclose(found.site_theta, wanted.site_theta, atol=1e-9)


def test_a_huge_penalty_leaves_no_couplings(solver):
    sample, layout = make_sample(), Layout(LEVELS)
    fit = PseudoLikelihood(1e9, 0.0, gauge="zero-sum").fit(sample, layout)
    np.testing.assert_allclose(fit.theta[layout.D :], 0.0, atol=1e-8)
    counts = [np.bincount(sample.codes[:, i], sample.weights, L) for i, L in enumerate(LEVELS)]
    fields = np.concatenate([np.log(n[1:] / n[0]) for n in counts])
    np.testing.assert_allclose(fit.theta[: layout.D], fields, atol=1e-7)


def test_standard_errors_are_of_the_estimate():
    """A row's influence is the derivative of the estimate by its weight, fields moved by averaging
    included.
    """
    sample, layout = make_sample(), Layout(LEVELS, PAIRS)
    engine = PseudoLikelihood(LAMBDA, LAMBDAH, tolerance=1e-13, gauge="zero-sum")
    solved = engine.equations(sample, layout)
    assert solved.zero_sum
    psi = Influence(
        solved.rows, layout, solved.site_theta, solved.lambda_, solved.lambdah, zero_sum=True
    )(sample)
    for k in (0, 7):
        moved = []
        for step in (1e-3, -1e-3):
            weights = sample.weights.copy()
            weights[k] += step
            moved.append(engine.fit(Sample(sample.codes, weights), layout).theta)
        np.testing.assert_allclose(psi[k], (moved[0] - moved[1]) / 2e-3 * sample.total, atol=1e-5)


def test_standard_errors_of_probabilities_do_not_depend_on_reference_levels():
    data = table(400)
    options = {"lambda_": 0.02, "lambdah": 0.01, "gauge": "zero-sum", "weights": "w", "verbose": 0}
    first, last = (
        bbl.bbl("y ~ a*b", data, xlevels=relevelled(data, last, "ab"), **options)
        .inference()
        .table("group")
        for last in (0, 1)
    )
    # with two levels a coupling changes but its sign where a reference does; of a and b's outer
    # levels it is so
    one = first[
        (first["predictor"] == "a") & (first["predictor2"] == "b") & (first["level2"] == "2")
    ]
    other = last[(last["predictor"] == "a") & (last["predictor2"] == "b") & (last["level2"] == "0")]
    np.testing.assert_allclose(one["estimate"], other["estimate"], atol=1e-8)
    np.testing.assert_allclose(one["se"], other["se"], atol=1e-8)


@pytest.mark.long
def test_the_option_travels(tmp_path):
    data = table(150).drop(columns="w")
    options = {"lambdah": 0.01, "gauge": "zero-sum", "verbose": 0}
    fit = bbl.bbl("y ~ .^2", data, lambda_=0.02, **options)
    fit.save(tmp_path / "fit.bbl", store_data=True)
    loaded = bbl.load(tmp_path / "fit.bbl")
    assert loaded.engine == fit.engine and loaded.engine.gauge == "zero-sum"
    pd.testing.assert_frame_equal(
        loaded.inference().table(), fit.inference().table(), check_exact=True
    )
    cv = bbl.crossVal("y ~ .^2", data, lambda_=[0.02, 0.2], seed=1, **options)
    assert cv.model.engine.gauge == "zero-sum"
    tuned = bbl.bbl("y ~ .^2", data, lambda_="cv", seed=1, **options)
    assert tuned.engine.gauge == "zero-sum" and tuned.engine.lambda_ > 0
    own = {"gauge": "zero-sum"}
    estimator = BBLClassifier("pseudo", lambda_=0.02, lambdah=0.01, options=own).fit(
        data[list("abcd")], data["y"]
    )
    np.testing.assert_allclose(
        estimator.predict_proba(data[list("abcd")]),
        fit.predict(data, type="prob")[["u", "v"]],
        atol=1e-12,
    )


def test_where_it_does_not_apply_an_error_says_so():
    data = table(60).drop(columns="w")
    with pytest.raises(
        OptionError,
        match=(
            "gauge='zero-sum' supports terms of up to two predictors, but the model has terms of 3"
        ),
    ):
        bbl.bbl("y ~ a*b*c", data, gauge="zero-sum", verbose=0)
    with pytest.raises(OptionError, match="gauge='zero' is unknown.*'reference', 'zero-sum'"):
        bbl.bbl("y ~ a*b", data, gauge="zero", verbose=0)
    with pytest.raises(BBLTypeError, match="'gauge' is not an option of method='naive'"):
        bbl.bbl("y ~ a*b", data, method="naive", gauge="zero-sum", verbose=0)


@pytest.mark.long
def test_the_reference_level_matters_in_few_rows_and_never_in_the_zero_sum_gauge():
    moved = {}
    for n in (30, 3000):
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 3, (n, 5))
        p = 0.2 + 0.3 * (codes[:, 1] == 1) + 0.25 * (codes[:, 2] == codes[:, 3])
        data = pd.DataFrame(codes, columns=list("abcde")).astype(str)
        data["y"] = np.where(rng.random(n) < p, "p", "q")
        for gauge in ("reference", "zero-sum"):
            probabilities = [
                bbl.bbl(
                    "y ~ .^2", data, gauge=gauge, prior_count=1, xlevels=xlevels, verbose=0
                ).predict(data, type="prob")["p"]
                for xlevels in (None, {name: ["2", "1", "0"] for name in "abcde"})
            ]
            moved[n, gauge] = np.abs(np.subtract(*map(np.asarray, probabilities))).max()
    assert moved[30, "reference"] > 0.5 and moved[3000, "reference"] < 0.005
    assert max(moved[30, "zero-sum"], moved[3000, "zero-sum"]) < 1e-6
