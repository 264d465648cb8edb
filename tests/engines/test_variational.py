"""The engine "pvi": options, data at the edge, every verb, files, posteriors with their labels."""

import json
import signal
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import bbl
from bbl.engines import PersistentVI
from bbl.errors import BBLTypeError, ConvergenceWarning, DataError, OptionError
from bbl.memory import MemoryLimitError
from bbl.model.gauge import to_simplex
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

QUICK = {"n_iter": 400, "chains": 32, "draws": 1, "sweeps": 2}
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*had not converged:bbl.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 2, (3, 300))
    c = np.where(rng.random(300) < 0.8, a, c)
    y = np.where(rng.random(300) < 0.8, a ^ b, c)
    return pd.DataFrame(
        {"y": np.array(["no", "yes"])[y], "a": a, "b": b, "c": rng.integers(0, 3, 300) * c}
    )


@pytest.mark.parametrize(
    ("option", "value", "match"),
    [
        ("prior", "spike", "prior='spike' is unknown"),
        ("likelihood", "mean", "likelihood='mean' is unknown"),
        ("scale", -0.1, r"scale must be in \(0, inf\)"),
        ("scale", 0.0, "scale"),
        ("scale", float("inf"), "scale"),
        ("slab", 0.0, "slab"),
        ("slab", float("nan"), "slab"),
        ("n_iter", 0, "n_iter must be at least 1"),
        ("sweeps", 0, "sweeps"),
        ("chains", 2, "chains=2 is less than draws=3"),
        ("draws", 0, "draws"),
        ("lr", 0.0, "lr"),
        ("average", 1.5, "average"),
        ("tol", 0.0, "tol"),
        ("seed", -1, "seed"),
    ],
)
def test_options_out_of_range_are_named(option, value, match):
    with pytest.raises(OptionError, match=match) as caught:
        PersistentVI(**{option: value})
    assert caught.value.argument == option


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"prior": "flat", "scale": 0.1}, "scale"),
        ({"prior": "flat", "centred": True}, "centred"),
        ({"prior": "flat", "empirical_bayes": True}, "empirical_bayes"),
        ({"centred": True, "empirical_bayes": True}, "empirical_bayes"),
        ({"centred": True, "sd": "lrvb"}, "sd"),
        ({"empirical_bayes": True, "sd": "lrvb"}, "sd"),
    ],
)
def test_options_that_exclude_each_other_are_named(options, argument):
    with pytest.raises(OptionError, match="(?s)Hint: ") as caught:
        PersistentVI(**options)
    assert caught.value.argument == argument
    with pytest.raises(BBLTypeError, match="must be True or False"):
        PersistentVI(grouped=1)


@pytest.fixture(scope="module")
def plain_fit(data):
    return bbl.bbl("y ~ .^2", data, method="pvi", seed=1, **QUICK)


@pytest.mark.parametrize(
    "options",
    [
        {"prior": "flat"},
        {"prior": "flat", "sd": "lrvb"},
        {"centred": True},
        {"centred": True, "prior": "gaussian"},
        {"grouped": False},
        {"empirical_bayes": True},
    ],
    ids=str,
)
@pytest.mark.thinned(3)
def test_other_approximations_are_saved_and_opened(data, plain_fit, tmp_path, options):
    fit = bbl.bbl("y ~ .^2", data, method="pvi", seed=1, **options, **QUICK)
    fit.save(tmp_path / "m.bbl")
    back = bbl.load(tmp_path / "m.bbl")
    assert back.engine == fit.engine
    table = fit.inference().table()
    assert (table["lower"] < table["estimate"]).all() and table["se"].gt(0).all()
    pd.testing.assert_frame_equal(back.inference().table(), table)
    pd.testing.assert_frame_equal(back.interactions(), fit.interactions())
    theta = fit.estimate.parameters.theta[0]
    assert not np.allclose(theta, plain_fit.estimate.parameters.theta[0])


@pytest.mark.long
def test_without_a_prior_means_are_near_maximum_likelihood():
    rng = np.random.default_rng(7)
    x = rng.integers(0, 2, (4000, 3))
    x[:, 1] = np.where(rng.random(4000) < 0.7, x[:, 0], x[:, 1])
    fit = bbl.mlestimate(x, method="pvi", prior="flat", sd="lrvb", seed=0, n_iter=4000)
    exact = bbl.mlestimate(x, method="pseudo", lambda_=0)  # two coupled predictors: the same
    assert abs(fit.J[0, 1] - exact.J[0, 1])[0, 0] < 0.5 * fit.sd_J[0, 1][0, 0]
    counts = np.array([[np.sum((x[:, 0] == a) & (x[:, 1] == b)) for b in (0, 1)] for a in (0, 1)])
    assert_allclose(fit.sd_J[0, 1][0, 0], np.sqrt((1 / counts).sum()), rtol=0.05)  # Woolf


def test_chains_are_dealt_to_the_draws_in_packs():
    assert PersistentVI().n_chains == 32 and PersistentVI(chains=120).n_chains == 64
    assert PersistentVI(chains=40, draws=1).n_chains == 64
    with pytest.raises(BBLTypeError, match="n_iter must be an integer"):
        PersistentVI(n_iter=1e3)


@pytest.mark.long
def test_it_runs_through_every_verb(data, tmp_path):
    fit = bbl.bbl("y ~ .^2", data, method="pvi", seed=1, **QUICK)
    again = bbl.bbl("y ~ .^2", data, method=PersistentVI(seed=1, **QUICK), n_jobs=3)
    pd.testing.assert_frame_equal(
        fit.tidy(), bbl.bbl("y ~ .^2", data, method="pvi", seed=1, n_jobs=3, **QUICK).tidy()
    )
    pd.testing.assert_frame_equal(
        again.tidy(), bbl.bbl("y ~ .^2", data, method=PersistentVI(seed=1, **QUICK), seed=9).tidy()
    )
    assert not fit.tidy().equals(bbl.bbl("y ~ .^2", data, method="pvi", seed=2, **QUICK).tidy())
    assert fit.predict(data, type="class").eq(data["y"]).mean() > 0.7
    assert "prior = horseshoe" in str(fit.summary()) and fit.plot()
    history = fit.history
    assert history.columns.tolist() == [
        "group",
        "iteration",
        "gradient",
        "change",
        "scale_fields",
        "scale_couplings",
    ]
    assert history["group"].unique().tolist() == ["no", "yes", "pooled"] and len(history) == 3 * 40
    table = fit.inference().table()
    assert (table["lower"] < table["estimate"]).all() and table["p"].isna().all()
    assert_allclose(table["upper"] - table["lower"], 2 * 1.959964 * table["se"], rtol=1e-6)
    pairs = fit.interactions()
    assert pairs["inclusion"].between(0, 1).all() and pairs["sd"].gt(0).all()
    fit.save(tmp_path / "m.bbl")
    back = bbl.load(tmp_path / "m.bbl")
    pd.testing.assert_frame_equal(back.inference().table(), table)
    pd.testing.assert_frame_equal(back.interactions(), pairs)
    with pytest.raises(DataError, match="which does not contain it"):
        print(back.history)
    boot = fit.bootstrap(2, seed=0)
    assert boot["se"].notna().all()


@pytest.mark.long
def test_the_scale_is_tuned(data):
    told = {"method": "pvi", "shuffle": True, "seed": 1, "nfold": 2, "refit": False, **QUICK}
    cv = bbl.crossVal("y ~ a * b", data, scale=[0.1, 1.0], **told)
    assert cv.cvframe["scale"].tolist() == [0.1, 1.0] and cv.model.engine.scale == cv.regstar
    one = bbl.crossVal("y ~ a * b", data, **told)
    assert np.isnan(one.cvframe["scale"][0])
    with pytest.raises(OptionError, match="scale"):
        bbl.crossVal("y ~ a * b", data, method="pvi", scale=[0.0], **QUICK)


def test_a_small_scale_draws_couplings_to_zero(data):
    X = data[["a", "b", "c"]]
    wide, narrow = (
        bbl.mlestimate(X, method="pvi", scale=s, prior="gaussian", **QUICK) for s in (1.0, 0.01)
    )
    assert abs(narrow.J[0, 2]).max() < 0.1 * abs(wide.J[0, 2]).max()
    assert narrow.sd_J[0, 2].max() < 0.1 and len(wide.history) == 40
    assert narrow.sd_h[2].shape == narrow.h[2].shape


@pytest.mark.long
def test_it_is_an_estimator(data):
    sklearn = pytest.importorskip("bbl.sklearn")
    model = sklearn.BBLClassifier("pvi", options=QUICK).fit(data[["a", "b", "c"]], data["y"])
    assert model.score(data[["a", "b", "c"]], data["y"]) > 0.7
    weights = np.full(len(data), 0.5)
    model.fit(data[["a", "b", "c"]], data["y"], weights)


@pytest.mark.parametrize("likelihood", ["sampled", "pseudo"])
@pytest.mark.long
def test_weights_are_repeated_rows_and_may_be_real(data, likelihood):
    X = data[["a", "b", "c"]].to_numpy()
    weights = np.random.default_rng(2).integers(1, 4, len(X))
    options = {"method": "pvi", "likelihood": likelihood, "seed": 3, **QUICK}
    weighted, repeated = (
        bbl.mlestimate(X, weights, **options),
        bbl.mlestimate(np.repeat(X, weights, axis=0), **options),
    )
    assert_allclose(weighted.J[0, 2], repeated.J[0, 2], atol=1e-8)
    assert_allclose(weighted.sd_h[0], repeated.sd_h[0], atol=1e-8)
    # weights count as the effective number of rows: all when they are equal, few when they are not
    plain = bbl.mlestimate(X, **options)
    tenth = bbl.mlestimate(X, np.full(len(X), 0.1), **options)
    assert_allclose(tenth.sd_J[0, 1], plain.sd_J[0, 1], rtol=1e-8)
    uneven = bbl.mlestimate(X, np.where(np.arange(len(X)) % 10, 0.01, 1.0), **options)
    assert uneven.sd_J[0, 1].mean() > 1.5 * plain.sd_J[0, 1].mean()
    with pytest.raises(DataError, match="weights"):
        bbl.mlestimate(X, np.where(np.arange(len(X)) == 5, np.nan, 1.0), method="pvi", **QUICK)


@pytest.mark.parametrize("prior", ["horseshoe", "laplace", "student", "gaussian"])
def test_perfect_correlation_is_finite_and_said(prior):
    x = np.random.default_rng(4).integers(0, 2, (200, 3))
    x[:, 1] = 1 - x[:, 0]
    with pytest.warns(ConvergenceWarning, match="and another predictor determine each other"):
        fit = bbl.mlestimate(x, method="pvi", prior=prior, **QUICK)
    J = fit.J[0, 1][0, 0] / 4
    assert -6.0 < J < -0.3 and np.isfinite(fit.sd_J[0, 1]).all()


def test_constant_predictors_and_levels_that_do_not_occur_are_finite():
    x = np.random.default_rng(5).integers(0, 2, (50, 3))
    x[:, 2] = 0
    fit = bbl.mlestimate(x, L=[2, 3, 2], method="pvi", **QUICK)
    assert all(np.isfinite(h).all() for h in fit.h) and fit.h[2][0] < 0 and fit.h[1][1] < 0
    alone = bbl.mlestimate(x[:, :1], method="pvi", **QUICK)
    assert alone.J == {} and np.isfinite(alone.sd_h[0]).all()


@pytest.mark.long
def test_groups_without_interactions_and_few_rows(data):
    fit = bbl.bbl("y ~ a + b + c", data.iloc[:6], method="pvi", novarOk=True, **QUICK)
    assert fit.inference().table()["se"].gt(0).all() and fit.interactions().empty


def test_missing_values_take_the_rows_that_are_known(data):
    gaps = data.astype(object)
    gaps.loc[::7, "c"] = None
    fit = bbl.bbl("y ~ .^2", gaps, method="pvi", missing="marginal", **QUICK)
    assert np.isfinite(fit.estimate.parameters.theta).all()
    pseudo = bbl.bbl(
        "y ~ .^2", gaps, method="pvi", likelihood="pseudo", missing="marginal", **QUICK
    )
    assert np.isfinite(pseudo.estimate.parameters.theta).all()


def test_a_fit_that_is_too_short_says_what_to_do():
    x = np.random.default_rng(6).integers(0, 2, (300, 12))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = bbl.mlestimate(x, method="pvi", n_iter=50, chains=32, draws=1)
    assert "Increase n_iter" in str(caught[0].message) and "global scale" in str(caught[0].message)
    assert not fit.converged


def test_what_would_not_fit_into_memory_is_refused_before():
    with pytest.raises(MemoryLimitError, match="Variational inference of"):
        PersistentVI().fit(
            Sample(np.zeros((2, 60000), np.uint8), np.ones(2)), Layout(np.full(60000, 2))
        )


def test_an_interrupt_leaves_no_fit():
    x = np.random.default_rng(7).integers(0, 2, (100, 20))
    timer = threading.Timer(0.4, signal.raise_signal, [signal.SIGINT])
    began = time.monotonic()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            bbl.mlestimate(x, method="pvi", n_iter=10_000_000)
    finally:
        timer.cancel()
    assert time.monotonic() - began < 60.0


@pytest.mark.long
@pytest.mark.parametrize(("seed", "ratio"), [(0, 0.60), (1, 0.80)])
def test_on_a_spin_glass_it_errs_by_much_less_than_node_wise_l1(shared, seed, ratio):
    with np.load(shared / f"data/posterior/ising_glass_s{seed}.npz") as stored:
        x, truth = (stored["x"][:500] > 0).astype(np.uint8), stored["J"]
    known = json.loads((shared / "data/posterior/baselines.json").read_text())[
        f"ising_glass_s{seed}"
    ]["500"]
    layout = Layout([2] * 100)
    fit = PersistentVI(n_iter=3000 if seed == 0 else 5000, seed=0).fit(
        Sample(x, np.ones(500)), layout
    )
    J = to_simplex(layout, fit.theta)[100:]
    error = np.sqrt(np.mean((J - truth[layout.pairs[:, 0], layout.pairs[:, 1]]) ** 2))
    assert error <= ratio * known["plm_l1"]["rms"]
