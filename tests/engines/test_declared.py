"""An engine declares all that others need: one made up here runs through every verb, without
touching another file.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.checks import real
from bbl.engines import ENGINES, Engine, EngineFit, Tuned
from bbl.engines.traits import PosteriorTraits
from bbl.errors import BBLTypeError, OptionError
from bbl.model.layout import Layout
from bbl.model.moments import frequencies, log_ratio, pair_counts
from bbl.model.regressors import from_matrix
from bbl.rows.sample import Sample


@dataclass(frozen=True)
class Shrunken(Engine):
    """Fields of naive Bayes, and couplings that are centred counts of pairs times `tau`."""

    tau: float = 0.5
    name = "shrunken"
    tuned = Tuned("tau", "tau", r"$\tau$", r"Share $\tau$", (0.0, 0.5, 1.0), "smaller")
    needs = "pairs"

    def __post_init__(self):
        object.__setattr__(self, "tau", real("tau", self.tau, 0.0, 2.0))

    def path(
        self,
        sample: Sample,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
    ):
        f = frequencies(sample, layout, 1.0)
        p = np.concatenate([own[1:] for own in f])
        J = pair_counts(sample, layout) / sample.total - np.outer(p, p)
        h = np.concatenate([log_ratio(own) for own in f])
        return [
            EngineFit(
                from_matrix(layout, h, float(tau) * J), 0.0, converged=np.ones(layout.m, dtype=bool)
            )
            for tau in ([self.tau] if values is None else values)
        ]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(ENGINES, "shrunken", Shrunken)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 2, (3, 200))
    y = np.where(rng.random(200) < 0.8, a ^ b, c)
    return pd.DataFrame({"y": np.array(["no", "yes"])[y], "a": a, "b": b, "c": c})


def test_it_fits_prints_draws_and_is_kept(data, tmp_path):
    fit = bbl.bbl("y ~ .^2", data, method="shrunken", tau=1.5)
    assert "tau = 1.5" in str(fit.summary()) and "shrunken" in str(fit.summary())
    assert fit.plot()
    assert fit.predict(data, type="class").eq(data["y"]).mean() > 0.5
    fit.save(tmp_path / "m.bbl")
    back = bbl.load(tmp_path / "m.bbl")
    assert back.engine == fit.engine
    pd.testing.assert_frame_equal(back.predict(data, type="prob"), fit.predict(data, type="prob"))
    with pytest.raises(OptionError, match="solve likelihood equations"):
        fit.inference()
    assert fit.interactions()["p"].isna().all()


def test_its_option_is_tuned_by_name_and_as_an_instance(data):
    for method in ("shrunken", Shrunken(0.1)):
        cv = bbl.crossVal("y ~ .^2", data, method=method, tau=[0.0, 1.0, 2.0], shuffle=True, seed=1)
        assert list(cv.cvframe.columns[:1]) == ["tau"] and cv.model.engine.tau == cv.regstar > 0.0
        assert r"\tau" in cv.plot().get_xlabel()
        fit = bbl.bbl("y ~ .^2", data, method=method, tau="cv", calibrate="temperature")
        assert fit.tuning.option == "tau" and fit.tuning.values.tolist() == [0.0, 0.5, 1.0]
        assert fit.engine.tau == fit.tuning.values[fit.tuning.chosen] == 1.0
        assert fit.estimate.calibration is not None
    with pytest.raises(OptionError, match=r"tau.*\[0, 2\]"):
        bbl.crossVal("y ~ .^2", data, method="shrunken", tau=[3.0])
    with pytest.raises(OptionError, match="tau='best' is unknown"):
        bbl.bbl("y ~ .^2", data, method="shrunken", tau="best")
    with pytest.raises(BBLTypeError, match="'tua' is not an option.*'tau'"):
        bbl.bbl("y ~ .^2", data, method="shrunken", tua=1.0)


def test_what_it_needs_of_missing_values_is_asked_for(data):
    apart = data.astype({"a": object, "b": object})
    apart.loc[::2, "a"] = None
    apart.loc[1::2, "b"] = None
    with pytest.raises(bbl.errors.DataError, match="'a' and 'b' are never.*known in"):
        bbl.bbl("y ~ a * b", apart, method="shrunken", missing="marginal")


def test_it_is_an_estimator(data):
    sklearn = pytest.importorskip("bbl.sklearn")
    for model in (
        sklearn.BBLClassifier("shrunken", options={"tau": 2.0}),
        sklearn.BBLClassifier(Shrunken(2.0)),
    ):
        model.fit(data[["a", "b", "c"]], data["y"])
        assert model.result_.engine == Shrunken(2.0)
        assert model.score(data[["a", "b", "c"]], data["y"]) > 0.7


@dataclass(frozen=True)
class Noisy(Shrunken):
    """Draws of fields of naive Bayes, half of a row's worth apart; tells how far it is."""

    name = "noisy"
    samples = True
    posterior = PosteriorTraits(
        lambda engine: "draws around naive Bayes", lambda engine, layout: "draws"
    )

    def path(self, sample, layout, values=None, workers=1, *, rng, progress):
        fits = super().path(sample, layout, values, workers)
        draws = fits[0].theta + rng.normal(size=(2, 300, layout.size))
        if progress is not None:
            progress(0.25, "a quarter")
            progress(0.75)
        return [
            replace(fit, theta=draws.mean(axis=(0, 1)), sd=draws.std(axis=(0, 1)), draws=draws)
            for fit in fits
        ]


@pytest.mark.long
def test_a_posterior_has_sds_and_intervals_and_no_tests(data, monkeypatch):
    monkeypatch.setitem(ENGINES, "noisy", Noisy)
    fit = bbl.bbl("y ~ .^2", data, method="noisy", seed=3)
    pd.testing.assert_frame_equal(
        fit.tidy(), bbl.bbl("y ~ .^2", data, method=Noisy(), seed=3, n_jobs=2).tidy()
    )
    assert not fit.tidy().equals(bbl.bbl("y ~ .^2", data, method="noisy", seed=4).tidy())
    table = fit.inference().table(level=0.9)
    assert table["p"].isna().all() and (table["test"] == "draws around naive Bayes").all()
    np.testing.assert_allclose(
        table["se"], np.concatenate([own.sd for own in fit.estimate.fits[:2]])
    )
    np.testing.assert_allclose(
        table["lower"][0], np.quantile(fit.estimate.fits[0].draws[..., 0], 0.05)
    )
    between = fit.inference().table(("yes", "no"))
    np.testing.assert_allclose(
        between["se"], np.hypot(*(own.sd for own in fit.estimate.fits[1::-1]))
    )
    assert fit.conf_int()["upper"].gt(fit.conf_int()["lower"]).all() and fit.bse.gt(0.5).all()
    pairs = fit.interactions()
    assert pairs["sd"].between(0.1, 0.5).all() and pairs["inclusion"].between(0.5, 1.0).all()
    assert fit.inference().interactions(tau=9.0)["inclusion"].eq(0.0).all()
    with pytest.raises(OptionError, match="posterior distribution, not tests"):
        fit.inference().tests()
    with pytest.raises(OptionError, match="posterior distribution, not tests"):
        print(fit.claic)
    with pytest.raises(OptionError, match="share rows"):
        fit.inference().table("pooled")
    one = bbl.mlestimate(data[["a", "b", "c"]], method="noisy", seed=3)
    assert one.sd_h[0].shape == one.h[0].shape and one.sd_J[0, 1].shape == one.J[0, 1].shape


def test_an_engine_tells_how_far_it_is(data, monkeypatch):
    told = []
    monkeypatch.setattr(
        "bbl.parallel._Steps.__call__", lambda self, share=1.0, note="": told.append((share, note))
    )
    bbl.bbl("y ~ .^2", data, method=Noisy(), testNull=False)
    assert sum(share for share, _ in told) == 2.0 and (0.25, "a quarter") in told


def test_an_option_that_others_tune_can_be_tuned_in_an_instance(data):
    cv = bbl.crossVal("y ~ .^2", data, method=bbl.MeanField(), eps=[0.0, 0.9], shuffle=True, seed=1)
    assert cv.cvframe["epsilon"].tolist() == [0.0, 0.9]
    fit = bbl.bbl("y ~ .", data, method="naive", prior_count="cv")
    assert fit.tuning.option == "prior_count" and fit.engine.prior_count in fit.tuning.values


@dataclass(frozen=True)
class Weighted(Shrunken):
    """The same for weights of any size."""

    name = "weighted"
    weights = "real"


@pytest.fixture
def weighted(data, monkeypatch):
    monkeypatch.setitem(ENGINES, "weighted", Weighted)
    return data.assign(w=np.random.default_rng(2).uniform(0.0, 3.0, len(data)))


def effective(weights):
    """Return weights that sum to their effective number of rows, as fits use them."""
    w = weights.to_numpy()
    return w * w.sum() / (w**2).sum()


def test_weights_that_are_no_counts_are_refused_unless_the_engine_takes_them(weighted):
    with pytest.raises(bbl.errors.DataError, match=r"w.* integers, but row 0 has .* integer"):
        bbl.bbl("y ~ .^2", weighted, "w", method="shrunken")
    with pytest.raises(
        bbl.errors.DataError,
        match=r"finite and non-negative, but row 0 has -1.* one non-negative number",
    ):
        bbl.bbl("y ~ .^2", weighted.assign(w=-1.0), "w", method="weighted")
    fit = bbl.bbl("y ~ .^2", weighted, "w", method="weighted")
    assert fit.nobs() == pytest.approx(effective(weighted["w"]).sum(), rel=1e-12)
    group = weighted[weighted["y"] == "no"]
    h = bbl.mlestimate(
        group[["a", "b", "c"]].to_numpy(), group["w"].to_numpy(), method="weighted"
    ).h
    counts = np.array([np.bincount(group[name], effective(group["w"]), 2) + 0.5 for name in "abc"])
    np.testing.assert_allclose(np.concatenate(h), np.log(counts[:, 1] / counts[:, 0]), rtol=1e-12)


def test_whole_numbers_are_counts_for_it_too(weighted):
    counted = weighted.assign(w=np.floor(weighted["w"]) + 1.0)
    fits = [bbl.bbl("y ~ .^2", counted, "w", method=method) for method in ("shrunken", "weighted")]
    np.testing.assert_array_equal(
        fits[0].estimate.parameters.theta, fits[1].estimate.parameters.theta
    )
    assert fits[1].nobs() == int(counted["w"].sum()) and isinstance(fits[1].nobs(), int)
    cvs = [
        bbl.crossVal("y ~ .^2", counted, "w", method=method, tau=[0.5, 1.0], shuffle=True, seed=3)
        for method in ("shrunken", "weighted")
    ]
    pd.testing.assert_frame_equal(cvs[0].cvframe, cvs[1].cvframe)


def test_rows_of_such_weights_stay_together_in_folds(weighted):
    for shuffle in (False, True):
        cv = bbl.crossVal(
            "y ~ .^2",
            weighted,
            "w",
            method="weighted",
            tau=[0.5, 1.0],
            shuffle=shuffle,
            seed=3,
            score="logloss",
        )
        validated = np.concatenate(cv.folds)
        assert np.array_equal(np.sort(validated), np.arange(len(weighted)))
        np.testing.assert_allclose(cv.scored.weights, effective(weighted["w"])[validated])
    with pytest.raises(OptionError, match=r"nfold.*200"):
        bbl.crossVal("y ~ .^2", weighted, "w", method="weighted", nfold=201)
    fit = bbl.bbl("y ~ .^2", weighted, "w", method="weighted", tau="cv")
    assert fit.tuning.option == "tau"


def test_what_counts_rows_refuses_such_weights_and_the_rest_takes_them(weighted, tmp_path):
    fit = bbl.bbl("y ~ .^2", weighted, "w", method="weighted")
    with pytest.raises(
        bbl.errors.DataError, match="Standard errors and tests require integer weights"
    ):
        fit.bootstrap(10)
    with pytest.raises(bbl.errors.DataError, match="Permutation tests require integer weights"):
        fit.interactions(pvalues="permutation")
    assert fit.interactions()["p"].isna().all()
    assert fit.predict(weighted, type="class").eq(weighted["y"]).mean() > 0.5
    fit.save(tmp_path / "m.bbl", store_data=True)
    back = bbl.load(tmp_path / "m.bbl")
    assert back.nobs() == fit.nobs() and str(back.summary()) == str(fit.summary())
    np.testing.assert_allclose(back.weights, effective(weighted["w"]))


def test_a_sparse_table_of_such_weights_has_no_test(weighted):
    weighted["a"] = np.where(np.arange(len(weighted)) < 3, "rare", weighted["a"].astype(str))
    for weights, tested in ((weighted["w"], False), (np.ceil(weighted["w"]), True)):
        text = str(bbl.bbl("y ~ a + b", weighted, weights, method="weighted").summary())
        assert ("Pr(>chisq) = NaN" in text) is not tested


def test_an_estimator_takes_such_weights_where_the_engine_does(weighted):
    sklearn = pytest.importorskip("bbl.sklearn")
    X, y, w = weighted[["a", "b", "c"]], weighted["y"], weighted["w"]
    model = sklearn.BBLClassifier("weighted").fit(X, y, w)
    np.testing.assert_array_equal(
        model.predict_proba(X),
        bbl.bbl("y ~ .^2", weighted, "w", method="weighted").fitted().to_numpy(),
    )
    with pytest.raises(ValueError, match="must all be non-negative integers"):
        sklearn.BBLClassifier("shrunken").fit(X, y, w)


# -- no other layer names an engine ----------------------------------------------------------------
PACKAGE = Path(bbl.__file__).parent
ELSEWHERE = {  # words that are names of engines, and mean something else here
    "choices.py": set(ENGINES),  # the words of public signatures, for type checkers
    "api/machine/signatures.py": {"pseudo", "mf", "pcd"},  # `refit=`
    "results/machine/distribution.py": {"mf"},  # how the margins are computed
    "api/machine/onegroup.py": {"naive"},  # R's argument
    "model/location.py": {"ml"},  # a divisor
    "results/machine/nested_numbers.py": {"ml"},  # a divisor
    "model/clamped.py": {"mf"},  # how the margins are computed
    "model/logz.py": {"pseudo", "mf"},  # eqs. (31) and (32)
    "bayesnet/dag.py": {"naive"},  # a structure
}
# what an average of methods is made of
AVERAGE = {
    "boltzmann/averaging.py",
    "boltzmann/averaging_all_rows.py",
    "boltzmann/refining.py",
}


@functools.cache
def outside():
    """Return the Python files outside `bbl/engines`, as syntax trees."""
    engines = PACKAGE / "engines"
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if engines not in path.parents]
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in files
    }


def test_no_other_layer_names_an_engine_or_its_options():
    engines = [own for name, own in ENGINES.items() if name != "shrunken"]
    names, classes = {own.name for own in engines}, {own.__name__ for own in engines}
    options = {each.name for own in engines for each in fields(own)} - set(dir(Engine))
    assert {"eps", "lambda_", "prior_count", "start"} <= options
    named, asked, imported = set(), set(), set()
    for file, tree in outside().items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value in names
            ):
                named |= (
                    {(file, node.value)} if node.value not in ELSEWHERE.get(file, ()) else set()
                )
            elif isinstance(node, ast.Attribute) and node.attr in options:
                asked |= (
                    {(file, node.attr)}
                    if ast.unparse(node.value).split(".")[-1] == "engine"
                    else set()
                )
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bbl.engines"):
                imported |= {file for each in node.names if each.name in classes}
    assert {file for file, _ in named | asked} <= AVERAGE
    assert imported <= AVERAGE | {"__init__.py"}


def test_cross_validation_imports_no_engine():
    modules = {
        node.module
        for node in ast.walk(outside()["crossval.py"])
        if isinstance(node, ast.ImportFrom)
    }
    assert not {name for name in modules if name.startswith(("bbl.engines", "bbl.boltzmann"))}
