"""Dual coordinate ascent against the definition of the pseudo-likelihood, and against L-BFGS."""

import os
import signal
import threading
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bbl._ext.pseudo.dual import MAX_LOGITS, DualProblem
from bbl._ext.pseudo.pseudo import CONVERGED, ITMAX, STUCK
from bbl.engines import PseudoLikelihood
from bbl.engines.pseudo import solvers
from bbl.engines.pseudo.solvers import Sites, prefers_dual_ascent
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from tests.ext.test_pseudo import oracle
from tests.ext.test_pseudo_leading import related

N_LEVELS = {
    "equal": np.full(48, 12),
    "seen": np.full(48, 9),
    "mixed": np.resize([2, 33, 5, 21, 65, 3, 9, 17], 24),
}


@cache
def rows(kind="equal"):
    """Return related rows, whose codes are below `N_LEVELS`, and their weights."""
    codes = related()[:, :24] * 7 % N_LEVELS[kind] if kind == "mixed" else related()
    return codes.astype(np.uint8), np.random.default_rng(1).uniform(1.0, 3.0, len(codes))


def solved(kind, lambda_, lambdah, precision="double", tolerance=1e-9, sites=None, epochs=200):
    """Return the solution and the reports of some sites, by default of all.

    Fits start at the frequencies of levels.
    """
    codes, weights = rows(kind)
    n_levels = N_LEVELS[kind]
    problem = DualProblem(codes, weights, n_levels, 0.0, precision == "single")
    D = int(n_levels.sum()) - len(n_levels)
    theta, reports = np.zeros((D, 1 + D)), Sites(len(n_levels))
    counts = [np.bincount(c, weights, L) + 0.1 for c, L in zip(codes.T, n_levels, strict=True)]
    theta[:, 0] = np.concatenate([np.log(own[1:] / own[0]) for own in counts])
    for i in range(len(n_levels)) if sites is None else sites:
        problem.solve(
            i,
            lambda_,
            lambdah,
            max(0.0, 2.0 * lambda_ / (len(n_levels) - 1) - lambdah),
            tolerance,
            epochs,
            theta,
            reports.value,
            reports.norm,
            reports.n_iter,
            reports.n_eval,
            reports.status,
            np.zeros(1, dtype=np.int32),
        )
    return theta, reports


@pytest.mark.parametrize("kind", ["equal", "mixed"])
@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-9), ("single", 2e-5)])
@pytest.mark.parametrize("lambdah", [0.03, 1e-3])
@pytest.mark.long
def test_gradient_of_the_definition_vanishes(kind, precision, tolerance, lambdah):
    theta, reports = solved(kind, 0.03, lambdah, precision, tolerance)
    codes, weights = rows(kind)
    n_levels = N_LEVELS[kind]
    every = ~np.eye(len(n_levels), dtype=bool)
    value, gradient = oracle(codes, weights, n_levels, every, theta, 0.03, lambdah)
    start = np.cumsum(n_levels - 1)[:-1]
    norms = np.array([np.linalg.norm(part) for part in np.split(gradient, start)])
    assert (reports.status == CONVERGED).all()
    assert reports.n_iter.max() < 80
    assert (reports.n_eval > reports.n_iter).all()
    is_double = precision == "double"
    np.testing.assert_allclose(norms, reports.norm, atol=1e-14 if is_double else 5e-6)
    np.testing.assert_allclose(reports.value, value, rtol=1e-13 if is_double else 1e-6)
    for own, part in zip(np.split(theta, start), np.cumsum(n_levels - 1), strict=True):
        assert not own[:, 1 + part - len(own) : 1 + part].any()  # no couplings with itself


@pytest.mark.long
def test_free_fields_converge():
    """Without a penalty on fields, a proximal term that moves with them takes its place."""
    codes, weights = rows("equal")
    kept = np.flatnonzero([np.bincount(c % 4, minlength=4).min() >= 9 for c in codes.T])
    codes = np.ascontiguousarray(codes[:, kept] % 4)
    n_levels = np.full(len(kept), 4)
    D = 3 * len(kept)
    problem = DualProblem(codes, weights, n_levels, 0.0, False)
    theta, reports = np.zeros((D, 1 + D)), Sites(len(kept))
    arrays = reports.value, reports.norm, reports.n_iter, reports.n_eval, reports.status
    stop = np.zeros(1, dtype=np.int32)
    for i in range(len(kept)):
        problem.solve(i, 0.03, 0.0, 0.06 / D, 1e-6, 99, theta, *arrays, stop)
    every = ~np.eye(len(kept), dtype=bool)
    _, gradient = oracle(codes, weights, n_levels, every, theta, 0.03, 0.0)
    assert (reports.status == CONVERGED).all()
    assert len(kept) > 20
    norms = [np.linalg.norm(part) for part in np.split(gradient, len(kept))]
    assert max(norms) <= 1.0001e-6


@pytest.mark.long
def test_fits_with_diverging_fields_are_left_to_another_solver():
    theta, reports = solved("equal", 0.03, 0.0, tolerance=1e-9)
    assert (reports.status == STUCK).all()
    assert reports.n_iter.max() < 60
    assert reports.norm.max() < 1e-3


@pytest.mark.long
def test_later_starts_converge_to_the_same_point():
    """A fit from the solution with another penalty needs no more epochs than one from zero."""
    codes, weights = rows("equal")
    problem = DualProblem(codes, weights, N_LEVELS["equal"], 0.0, False)
    near, _ = solved("equal", 0.04, 0.04, sites=[5])
    known, reports = solved("equal", 0.03, 0.03, sites=[5])
    later = Sites(48)
    arrays = later.value, later.norm, later.n_iter, later.n_eval, later.status
    stop = np.zeros(1, dtype=np.int32)
    problem.solve(5, 0.03, 0.03, 0.0, 1e-9, 200, near, *arrays, stop)
    np.testing.assert_allclose(near, known, atol=2e-7)
    assert later.n_iter[5] <= reports.n_iter[5] + 1


@pytest.mark.parametrize(
    "options",
    [
        {"lambdah": 0.0},
        {"lambdah": 0.0, "prior_count": 2.0},
        {"lambdah": None, "symmetrize": False},
        {"lambdah": 0.1, "precision": "single", "tolerance": 1e-5},
    ],
    ids=str,
)
@pytest.mark.thinned(2)
def test_fits_equal_those_by_lbfgs(options, monkeypatch):
    codes, weights = rows("equal")
    sample, layout = Sample(codes, weights), Layout(N_LEVELS["equal"])
    engine = PseudoLikelihood(**{"lambda_": 0.05, "tolerance": 1e-7} | options)
    assert prefers_dual_ascent(engine, sample, layout, 0.05)
    fit = engine.fit(sample, layout)
    assert fit.converged.all()
    monkeypatch.setattr(solvers, "DUAL_ROWS", 0.0)
    assert not prefers_dual_ascent(engine, sample, layout, 0.05)
    known = engine.fit(sample, layout)
    atol = 40.0 * engine.tolerance
    couplings = slice(layout.D, None)
    np.testing.assert_allclose(fit.theta[couplings], known.theta[couplings], atol=atol)
    np.testing.assert_allclose(fit.lkh, known.lkh, rtol=2e-6 if options.get("precision") else 1e-8)
    # fields of levels without rows are not determined unless they are penalised
    counts = [np.bincount(column, minlength=12) for column in codes.T]
    seen = np.concatenate([(own[1:] > 0) & (own[0] > 0) for own in counts])
    shown = seen | (options["lambdah"] != 0.0) | ("prior_count" in options)
    np.testing.assert_allclose(
        fit.theta[: layout.D][shown], known.theta[: layout.D][shown], atol=4e3 * engine.tolerance
    )
    if shown.all():
        np.testing.assert_allclose(fit.normaliser(False), known.normaliser(False), rtol=1e-4)


def test_fits_do_not_depend_on_threads_or_shares():
    """Each site is a problem of its own, in one process, in threads or on a cluster."""
    codes, weights = rows("equal")
    sample, layout = Sample(codes, weights), Layout(N_LEVELS["equal"])
    engine = PseudoLikelihood(0.05, lambdah=0.05, tolerance=1e-6)
    fit = engine.fit(sample, layout)
    np.testing.assert_array_equal(engine.fit(sample, layout, workers=2).theta, fit.theta)
    start = np.zeros(fit.site_theta.shape)
    arguments = (engine, layout, "double", 0.05, 0.05, start)
    theta = start.copy()
    owner = np.repeat(np.arange(layout.m), np.diff(layout.start))
    for k in range(3):
        predictors, part, sites = solvers._solve_share(sample, arguments, 0.0, (k, 3))
        theta[np.isin(owner, predictors)] = part
        np.testing.assert_allclose(sites.norm[predictors], fit.grad_norm[predictors], rtol=1.0)
    np.testing.assert_allclose(theta, fit.site_theta, atol=1e-4)  # other starts of the fields


@pytest.mark.long
def test_the_scale_of_weights_does_not_matter():
    codes, weights = rows("equal")
    layout = Layout(N_LEVELS["equal"])
    engine = PseudoLikelihood(0.05, lambdah=0.05, tolerance=1e-6)
    fit = engine.fit(Sample(codes, weights), layout)
    for factor in (1e-6, 1e6):
        scaled = engine.fit(Sample(codes, factor * weights), layout)
        np.testing.assert_allclose(scaled.site_theta[:, 1:], fit.site_theta[:, 1:], atol=5e-5)


@pytest.mark.long
def test_unfinished_fits_go_on_by_lbfgs(monkeypatch):
    codes, weights = rows("equal")
    sample, layout = Sample(codes, weights), Layout(N_LEVELS["equal"])
    engine = PseudoLikelihood(0.05, lambdah=0.05, tolerance=1e-7)
    known = engine.fit(sample, layout)
    monkeypatch.setattr(solvers, "DUAL_EPOCHS", 2)
    fit = engine.fit(sample, layout)
    assert fit.converged.all()
    assert (fit.n_iter > 3).all()
    np.testing.assert_allclose(fit.theta, known.theta, atol=1e-5)
    few = replace(engine, itmax=2).fit(sample, layout)
    assert not few.converged.any()
    assert (few.n_iter == 2).all()
    assert few.notes[0].what == "did not converge"


def test_weak_penalties_and_few_levels_are_left_to_lbfgs():
    codes, weights = rows("equal")
    sample, layout = Sample(codes, weights), Layout(N_LEVELS["equal"])
    engine = PseudoLikelihood(0.05)
    assert prefers_dual_ascent(engine, sample, layout, 0.05)
    assert not prefers_dual_ascent(engine, sample, layout, 1e-4)
    assert not prefers_dual_ascent(engine, sample, layout, 0.0)
    assert not prefers_dual_ascent(replace(engine, gauge="zero-sum"), sample, layout, 0.05)
    one = Sample(codes, np.where(np.arange(len(codes)) == 0, 1e6, weights))
    assert not prefers_dual_ascent(engine, one, layout, 0.05)  # a row with all the weight
    assert not prefers_dual_ascent(engine, sample, layout, 0.02)
    many = Sample(np.repeat(codes, 8, axis=0), np.ones(8 * len(codes)))
    assert not prefers_dual_ascent(engine, many, layout, 0.05)
    few = Layout(N_LEVELS["equal"], [np.array([[0, 1], [1, 2]])])
    assert not prefers_dual_ascent(engine, sample, few, 0.05)
    binary = Layout(np.full(600, 2))
    assert not prefers_dual_ascent(engine, Sample(codes[:, [0] * 600] % 2, weights), binary, 0.05)


def test_sites_that_do_not_converge_say_so():
    theta, reports = solved("equal", 0.03, 0.03, sites=[0], epochs=3)
    assert reports.status[0] == ITMAX
    assert reports.n_iter[0] == 3
    assert reports.norm[0] > 1e-9
    assert theta.any()


def slow_problem():
    codes = np.random.default_rng(0).integers(0, 12, (20000, 48)).astype(np.uint8)
    problem = DualProblem(codes, np.ones(20000), N_LEVELS["equal"], 0.0, False)
    reports = Sites(48)
    arrays = reports.value, reports.norm, reports.n_iter, reports.n_eval, reports.status

    def solve(stop):
        theta = np.zeros((528, 529))
        problem.solve(0, 1e-6, 1e-6, 0.0, 0.0, 10**6, theta, *arrays, stop)
        return theta, reports.status[0]

    return solve


def test_a_stop_flag_ends_a_fit():
    solve, stop = slow_problem(), np.zeros(1, dtype=np.int32)
    timer = threading.Timer(0.05, stop.__setitem__, (0, 1))
    timer.start()
    began = time.perf_counter()
    theta, status = solve(stop)
    assert time.perf_counter() - began < 2.0
    timer.join()
    assert status == 4
    assert not theta.any()


@pytest.mark.skipif(os.name == "nt", reason="signals are sent by number")
def test_keyboard_interrupt():
    solve = slow_problem()
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        solve(np.zeros(1, dtype=np.int32))
    assert time.perf_counter() - began < 2.0
    timer.join()


def test_bad_input_is_refused():
    codes, weights = rows("equal")
    n_levels = N_LEVELS["equal"]
    with pytest.raises(ValueError, match="predictor 2 has a code outside"):
        DualProblem(codes, weights, np.where(np.arange(48) == 2, 5, n_levels), 0.0, True)
    with pytest.raises(ValueError, match="has a code outside"):
        DualProblem(codes.astype(np.int32) - 9, weights, n_levels, 0.0, True)
    with pytest.raises(ValueError, match="weights must be positive"):
        DualProblem(codes, weights * 0.0, n_levels, 0.0, True)
    with pytest.raises(ValueError, match="do not fit together"):
        DualProblem(codes, weights[:-1], n_levels, 0.0, True)
    for most in (1, MAX_LOGITS + 2):
        with pytest.raises(ValueError, match="n_levels must lie"):
            DualProblem(codes * 0, weights, np.full(48, most), 0.0, True)
    problem = DualProblem(codes, weights, n_levels, 0.0, True)
    reports, stop = Sites(48), np.zeros(1, dtype=np.int32)
    arrays = reports.value, reports.norm, reports.n_iter, reports.n_eval, reports.status
    theta = np.zeros((528, 529))
    with pytest.raises(ValueError, match="site must lie"):
        problem.solve(48, 0.1, 0.1, 0.0, 1e-4, 9, theta, *arrays, stop)
    with pytest.raises(ValueError, match="theta must have shape"):
        problem.solve(0, 0.1, 0.1, 0.0, 1e-4, 9, theta[:, 1:].copy(), *arrays, stop)
    with pytest.raises(ValueError, match="penalties must be positive"):
        problem.solve(0, 0.0, 0.1, 0.0, 1e-4, 9, theta, *arrays, stop)
    with pytest.raises(ValueError, match="penalties must be positive"):
        problem.solve(0, 0.1, 0.0, 0.0, 1e-4, 9, theta, *arrays, stop)
    with pytest.raises(ValueError, match="results need"):
        problem.solve(0, 0.1, 0.1, 0.0, 1e-4, 9, theta, reports.value[:9], *arrays[1:], stop)
