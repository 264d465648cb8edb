"""method="bayes": options, samplers it chooses, what it refuses, seeds and threads, hidden
units.
"""

import itertools
import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
import reference as oracle

import bbl
from bbl.boltzmann.fitted import Predictive, thinned
from bbl.engines import Posterior
from bbl.engines.bayes.hidden import hidden_draws, visible_columns, widened
from bbl.errors import (
    BBLError,
    BBLTypeError,
    ConvergenceWarning,
    DataError,
    DataWarning,
    OptionError,
)
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

FORMULA = "Survived ~ Class * Sex + Sex * Age"
SHORT = {"chains": 2, "warmup": 60, "draws": 60}


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


def fitted(data, formula=FORMULA, weights="Freq", **options):
    call = {"method": "bayes", "testNull": False, "verbose": 0, "n_jobs": 1, **SHORT, **options}
    return bbl.bbl(formula, data, weights, **call)


@pytest.fixture
def quick(recwarn):
    """Short chains are told of; here nobody minds."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def wide_table(m, n=60, seed=0):
    rng = np.random.default_rng(seed)
    common = rng.random((n, 1)) < 0.5
    X = np.where(rng.random((n, m)) < 0.7, common, rng.random((n, m)) < 0.5).astype(int)
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(m)]).assign(
        y=np.where(rng.random(n) < 0.5, "a", "b")
    )


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"prior": "flat"}, "prior"),
        ({"sampler": "nuts"}, "sampler"),
        ({"draws": 0}, "draws"),
        ({"draws": 3}, "draws"),
        ({"warmup": 0}, "warmup"),
        ({"chains": 0}, "chains"),
        ({"tau": -1.0}, "tau"),
        ({"tau": 0.0}, "tau"),
        ({"tau": float("nan")}, "tau"),
        ({"tau": float("inf")}, "tau"),
        ({"sweeps": 0}, "sweeps"),
        ({"seed": -1}, "seed"),
        ({"c": 2.0}, "c"),
        ({"hidden": 2}, "hidden"),
        ({"hidden": -1, "prior": "conjugate"}, "hidden"),
        ({"hidden": 1, "prior": "conjugate", "hidden_pairs": True}, "hidden_pairs"),
        ({"c": -2.0, "prior": "conjugate"}, "c"),
        ({"prior": "conjugate", "sampler": "exact"}, "sampler"),
        ({"sampler": "conjugate"}, "sampler"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options, argument):
    with pytest.raises(OptionError) as caught:
        Posterior(**options)
    assert caught.value.argument == argument


def test_options_of_the_wrong_type_are_refused():
    for options in ({"draws": 10.5}, {"tau": "1"}, {"adjust": "yes"}, {"seed": 1.5}):
        with pytest.raises(BBLTypeError):
            Posterior(**options)
    assert Posterior(prior="horseshoe", tau=np.inf).tau == np.inf


@pytest.mark.parametrize(
    ("levels", "pairs", "sampler"),
    [
        ([2] * 16, None, "exact"),
        ([2] * 17, [(0, 1)], "exchange"),
        ([2] * 17, None, "pseudo"),
        ([4, 2, 2], None, "exact"),
    ],
)
def test_auto_takes_the_best_that_can_be_had_and_says_why(levels, pairs, sampler):
    layout = Layout(levels, pairs)
    assert Posterior().resolve(layout) == sampler
    text = Posterior().describe(layout)
    assert ("chosen because" in text) == (sampler != "exact")
    assert ("Godambe" in text) == (sampler == "pseudo")
    assert "too narrow" in Posterior(sampler="pseudo", adjust=False).describe(layout)


def test_a_sampler_that_is_too_small_says_how_large_the_model_is_and_names_the_next():
    with pytest.raises(OptionError, match=r"17 predictors have 1.31e\+05 .*'exchange' or 'pseudo'"):
        fitted(wide_table(17), "y ~ .", None, sampler="exact")
    layout, rows = Layout([2] * 17), Sample(np.zeros((1, 17), dtype=np.uint8), np.array([2e6]))
    with pytest.raises(OptionError, match="draws 2,000,000 rows.*sampler='pseudo'"):
        Posterior(sampler="exchange").layout(rows, layout)


def test_missing_values_and_weights_that_are_no_counts_are_refused(titanic):
    some = titanic.assign(Sex=titanic["Sex"].astype(object))
    some.loc[2, "Sex"] = None
    with pytest.raises(OptionError, match="does not average over missing values.*missing='drop'"):
        fitted(some, missing="marginal")
    for bad in (np.nan, 0.5, -1.0):
        with pytest.raises(DataError, match="weights.*row 0"):
            fitted(titanic.drop(columns="Freq"), weights=[bad] + [1] * 31)


def test_memory_of_draws_is_estimated_before_they_are_made(monkeypatch):
    monkeypatch.setattr("bbl.memory.available_memory", lambda: 2**27)
    with pytest.raises(BBLError, match="would need about .* GiB"):
        fitted(wide_table(3), "y ~ .^2", None, draws=2_000_000)


@pytest.mark.parametrize(
    "options", [{}, {"sampler": "exchange"}, {"sampler": "pseudo"}, {"prior": "conjugate"}], ids=str
)
@pytest.mark.thinned(2)
def test_seeds_reproduce_and_threads_do_not_matter(titanic, quick, options):
    one = fitted(titanic, seed=3, **options).posterior.draws
    assert np.array_equal(one, fitted(titanic, seed=3, n_jobs=4, **options).posterior.draws)
    other = fitted(titanic, seed=4, **options).posterior.draws
    assert not np.array_equal(one, other)
    own = Posterior(**SHORT, **options, seed=3)
    kept = {"testNull": False, "verbose": 0, "n_jobs": 1}
    first, second = (
        bbl.bbl(FORMULA, titanic, "Freq", own, seed=s, **kept).posterior.draws for s in (1, 2)
    )
    assert np.array_equal(first, second)


@pytest.mark.parametrize("sampler", ["exact", "pseudo", "exchange"])
def test_rows_and_weights_are_the_same_fit(titanic, quick, sampler):
    rows = bbl.freq2raw(titanic, "Freq").sample(frac=1.0, random_state=1)
    by_weight, by_row = (
        fitted(titanic, sampler=sampler),
        fitted(rows, weights=None, sampler=sampler),
    )
    order = [list(by_row.labels.groups).index(g) for g in by_weight.labels.groups]
    assert by_row.labels.levels == by_weight.labels.levels
    assert np.array_equal(by_weight.posterior.draws, by_row.posterior.draws[:, :, order])


def test_constant_and_perfectly_correlated_predictors_have_a_posterior(quick):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 80)
    data = pd.DataFrame(
        {"y": np.where(rng.random(80) < 0.5, "u", "v"), "a": a, "b": a, "c": rng.integers(0, 2, 80)}
    )
    data.loc[data["y"] == "u", "c"] = 0  # constant in one group
    for options in ({}, {"sampler": "pseudo"}, {"prior": "horseshoe"}, {"sampler": "exchange"}):
        fit = fitted(data, "y ~ .^2", None, **{"warmup": 200, "draws": 200, **options})
        assert np.isfinite(fit.posterior.draws).all() and np.abs(fit.tidy()["estimate"]).max() < 30
        assert fit.coef().J["u"]["a", "b"].iloc[0, 0] > 2
        assert np.isfinite(fit.predict(data, type="prob").iloc[:, :2].to_numpy()).all()


def test_weights_of_a_billion_on_three_rows_have_a_posterior(quick):
    rows = pd.DataFrame({"y": list("abb"), "x": list("cba"), "z": list("caa"), "v": list("bba")})
    fit = fitted(rows, "y ~ .^2", np.array([3e9, 3e9, 1e9]))
    assert np.isfinite(fit.posterior.draws).all()


def test_chains_that_are_too_short_are_told_of(titanic):
    with pytest.warns(ConvergenceWarning, match=r"chains have not mixed, or are too short.*R-hat"):
        fit = fitted(titanic, warmup=10, draws=6, sampler="exchange")
    assert not fit.converged


def test_conjugate_draws_under_a_small_c_are_warned_of(titanic):
    with pytest.warns(DataWarning) as caught:
        fitted(titanic, prior="conjugate", c=10.0, draws=500)
    assert any(
        "c=10 is less than a tenth of a group's 1,490 observations" in str(w.message)
        for w in caught
    )
    fit = fitted(titanic, prior="conjugate", draws=2000)
    assert fit.posterior.summary()["ess_bulk"].min() > 3000


@pytest.mark.long
def test_six_groups_one_of_them_nearly_empty_and_many_predictors_are_fitted(quick):
    data = wide_table(19, n=90).assign(y=lambda d: np.array([*"abcde"] * 18)[: len(d)])
    data.loc[0, "y"] = "f"
    fit = fitted(data, "y ~ .^2", None, log_z="half", draws=30)
    assert fit.posterior.draws.shape == (2, 30, 6, 19 + 171)
    assert "pseudo-likelihood, adjusted" in repr(fit.posterior)
    # that ln Z is not of a draw: predictions plug in the mean
    assert fit.estimate.predictive is None
    p = fit.predict(data.head(4), type="prob").iloc[:, :6].to_numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1.0)


@pytest.mark.long
def test_where_states_are_too_many_ln_z_of_some_draws_is_annealed(quick):
    fit = fitted(wide_table(19), "~ .^2 - y", None, draws=30)
    assert fit.estimate.log_z_kind == "ais" and fit.estimate.predictive.theta.shape == (
        1,
        50,
        19 + 171,
    )
    plugged = fit._with_point_estimate("mean").score_samples()
    assert np.isfinite(plugged).all() and abs((fit.score_samples() - plugged).mean()) < 2.0


def test_the_exchange_algorithm_with_too_many_states_draws_by_sweeps(quick):
    data = wide_table(17, n=50)
    fit = fitted(data, "y ~ . + x0:x1", None, sampler="exchange", sweeps=1, warmup=30, draws=30)
    assert "rows by Gibbs sweeps" in repr(fit.posterior) and np.isfinite(fit.posterior.draws).all()


def test_ctrl_c_stops_the_chains(titanic):
    began = time.monotonic()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        fitted(titanic, sampler="exchange", warmup=500_000)
    assert time.monotonic() - began < 20


def hidden_truth(h, J, L, units):
    """ln Z and energies of all states of the oracle's machine, its last `units` predictors summed
    out.
    """
    visible = oracle.states(L[: len(L) - units])
    rows = np.hstack([visible, np.full((len(visible), units), -1)])
    return visible, oracle.marginal_energy(h, J, L, rows)


def test_hidden_units_are_summed_out_exactly():
    layout, rng = Layout([2, 3], [(0, 1)]), np.random.default_rng(0)
    wide = widened(layout, 2)
    theta = rng.normal(size=(1, 3, wide.size))
    own = [
        (
            [wide.table(t, i) for i in range(wide.m)],
            {(i, j): wide.table(t, i, j) for i, j in wide.pairs.tolist()},
        )
        for t in theta[0]
    ]
    truth = [hidden_truth(h, J, [2, 3, 2, 2], 2) for h, J in own]
    codes = truth[0][0].astype(np.uint8)
    log_z = np.array([[oracle.logsumexp(E) for _, E in truth]])
    found = Predictive(wide, theta, log_z, 2)
    E = np.array([E for _, E in truth])
    np.testing.assert_allclose(found.free_energy(codes)[:, 0], E.mean(axis=0))
    mean = oracle.logsumexp(E - log_z[0][:, None], axis=0) - np.log(3)
    np.testing.assert_allclose(found.energy(np.array([0.0]))(codes)[:, 0], mean)
    np.testing.assert_allclose(np.exp(mean).sum(), 1.0)
    parts = [wide.table(np.arange(wide.size), *term).ravel() for term in ((0,), (1,), (0, 1))]
    assert visible_columns(wide, layout).tolist() == np.concatenate(parts).tolist()


def test_hidden_units_freeze_as_the_warning_says(titanic):
    rows = Sample(np.array([[0, 0], [0, 1], [1, 1]], dtype=np.uint8), np.array([40.0, 20.0, 60.0]))
    found = hidden_draws(rows, Layout([2, 2], []), 3, 1.0, (50, 50), np.random.default_rng(1))
    assert found.flips == 0.0 and found.aligned > 0.3
    assert found.coefficients.shape == (50, widened(Layout([2, 2], []), 3).size)
    warm = hidden_draws(rows, Layout([2, 2], []), 3, 1e4, (50, 50), np.random.default_rng(1))
    assert warm.flips > 0.4  # where c is large the units are coins
    with pytest.warns() as caught:
        fit = fitted(titanic, "Survived ~ .", prior="conjugate", hidden=2)
    assert any("freeze" in str(w.message) for w in caught if w.category is DataWarning)
    assert fit.posterior.state[0]["flips"].max() < 0.05
    p = fit.predict(titanic, type="prob")
    assert np.isfinite(p.iloc[:, :2].to_numpy()).all() and np.isfinite(fit.logLik())
    with pytest.raises(OptionError, match="mean of the draws is no.*model"):
        fit.predict(titanic, draws="mean")
    assert bbl.log_scores(fit, titanic).shape == (32, 2)


@pytest.mark.long
def test_hidden_units_that_are_coupled_have_the_distribution_of_the_oracle():
    """With the coefficients integrated out, signs of the units have a probability proportional to
    exp(|S|^2 / 4c).
    """
    rows, c, n = Sample(np.array([[0], [1]], dtype=np.uint8), np.array([1.0, 2.0])), 2.0, 3
    layout = Layout([2], [])
    wide = widened(layout, 2, coupled=True)
    x, S = np.array([-1.0, 1.0, 1.0]), []
    for signs in itertools.product([-1.0, 1.0], repeat=2 * n):
        u, v = np.reshape(signs, (2, n))
        S.append([u.sum(), v.sum(), x @ u, x @ v, u @ v])  # in the order of the layout's parameters
    S = np.array(S)
    p = np.exp((S**2).sum(axis=1) / (4.0 * c))
    truth = (p / p.sum()) @ (S / (2.0 * c)) ** 2 + 1.0 / (2.0 * c)
    cross = (p / p.sum()) @ (S[:, 0] * S[:, 1] * S[:, 4]) / (2.0 * c) ** 3
    found = hidden_draws(
        rows, layout, 2, c, (100, 20_000), np.random.default_rng(4), coupled=True
    ).coefficients[:, 1:]
    assert wide.pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose((found**2).mean(axis=0), truth, rtol=0.06)
    np.testing.assert_allclose((found[:, 0] * found[:, 1] * found[:, 4]).mean(), cross, rtol=0.12)


def test_coupled_hidden_units_are_summed_out_and_stored(titanic, tmp_path):
    options = {
        "prior": "conjugate",
        "hidden": 3,
        "hidden_pairs": True,
        "chains": 2,
        "draws": 20,
        "warmup": 20,
    }
    with pytest.warns() as caught:
        fit = fitted(titanic, "Survived ~ Class + Sex", **options)
    assert any("freeze" in str(w.message) and "annealed" not in str(w.message) for w in caught)
    assert "3 hidden units, coupled to each other" in str(fit.posterior)
    own = fit.estimate.predictive
    assert own.layout.pairs.tolist()[-3:] == [[2, 3], [2, 4], [3, 4]]
    codes = oracle.states([4, 2]).astype(np.uint8)
    t = own.theta[0, 0]
    h = [own.layout.table(t, i) for i in range(5)]
    J = {(i, j): own.layout.table(t, i, j) for i, j in own.layout.pairs.tolist()}
    E = hidden_truth(h, J, [4, 2, 2, 2, 2], 3)[1]
    one = Predictive(own.layout, own.theta[:1, :1], own.log_z[:1, :1], 3)
    np.testing.assert_allclose(one.free_energy(codes)[:, 0], E, rtol=1e-12)
    np.testing.assert_allclose(own.log_z[0, 0], oracle.logsumexp(E))
    fit.save(tmp_path / "fit.npz")
    again = bbl.load(tmp_path / "fit.npz")
    pd.testing.assert_frame_equal(
        again.predict(titanic, type="prob"), fit.predict(titanic, type="prob")
    )


def test_states_of_many_coupled_units_are_said_not_to_be_summed(titanic):
    engine = Posterior(prior="conjugate", hidden=40, hidden_pairs=True)
    rows = Sample(np.array([[0], [1]], dtype=np.uint8), np.ones(2))
    with pytest.warns(DataWarning, match="approximated by annealing"):
        engine.layout(rows, Layout([2], []))


def test_averages_over_draws_are_those_of_the_oracle(titanic, quick):
    fit = fitted(titanic, "Survived ~ Class + Sex + Class:Sex")
    scores = bbl.log_scores(fit, titanic, normalised=True)
    layout, codes = fit.estimate.parameters.layout, fit.design.encode(titanic)[0].astype(int)
    for g, group in enumerate(fit.labels.groups):
        drawn = thinned(fit.posterior.draws[:, :, g], 200)
        p = np.zeros(len(codes))
        for theta in drawn:
            h = [layout.table(theta, i) for i in range(2)]
            J = {(0, 1): layout.table(theta, 0, 1)}
            p += np.exp(oracle.energy(h, J, codes) - oracle.log_partition(h, J, [4, 2])) / len(
                drawn
            )
        np.testing.assert_allclose(scores[group], np.log(p), rtol=1e-10)
    plugged = bbl.log_scores(fit, titanic)
    link = fit.predict(titanic, draws="mean")
    E = plugged - fit.estimate.log_z + np.log(fit.estimate.class_prior)
    np.testing.assert_allclose(link["Yes"].to_numpy(), (E["Yes"] - E["No"]).to_numpy(), rtol=1e-10)


def test_a_single_group_of_codes_has_a_posterior_mean(quick):
    rng = np.random.default_rng(0)
    xi = rng.integers(0, 2, (200, 3))
    fit = bbl.mlestimate(xi, method="bayes", **SHORT)
    assert np.isfinite(fit.J[0, 1]).all() and np.isfinite(fit.lz)
