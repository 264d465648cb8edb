"""Missing values: the four policies in fits, predictions, files, and at the edges, against the
enumeration.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import reference as oracle
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import bbl
from bbl.__main__ import main
from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.inference.covariance import Covariances, bootstrap
from bbl.boltzmann.job import FitData, FitSpec
from bbl.design.design import Design
from bbl.engines import MeanField, NaiveBayes, PseudoLikelihood
from bbl.engines.meanfield import covariance
from bbl.errors import ConvergenceWarning, DataError, LevelError, OptionError
from bbl.model.elimination import elimination_order, log_sum
from bbl.model.godambe import Influence
from bbl.model.layout import Layout
from bbl.model.logz import pseudo_log_z
from bbl.model.marginal import CELLS, MarginalEnergy
from bbl.model.moments import pair_counts
from bbl.model.regressors import from_matrix, to_matrix
from bbl.rows.sample import Sample
from bbl.sklearn import BBLClassifier

LEVELS = [2, 3, 2, 4]
PAIRS = [(0, 1), (1, 2), (2, 3)]


def coded(n=400, share=0.15, levels=LEVELS, seed=0):
    """Return codes with -1 where missing, dependent from column to column, and weights."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.integers(0, L, n) for L in levels])
    for j in range(1, len(levels)):
        x[:, j] = np.where(rng.random(n) < 0.4, x[:, j - 1] % levels[j], x[:, j])
    x[rng.random(x.shape) < share] = -1
    return x, rng.integers(1, 4, n).astype(float)


def as_sample(x, w, y=None):
    missing = x < 0
    codes = np.where(missing, 0, x).astype(np.uint8)
    return Sample(codes, np.asarray(w, float), y, missing if missing.any() else None)


def tables(layout, theta):
    h = [layout.table(theta, i) for i in range(layout.m)]
    return h, {(int(i), int(j)): layout.table(theta, i, j) for i, j in layout.pairs}


def frame(n=300, share=0.1, seed=0):
    """Return a data frame of strings with missing predictors, and weights."""
    x, w = coded(n, share, seed=seed)
    rng = np.random.default_rng(seed + 1)
    data = pd.DataFrame(
        {f"x{j}": [None if v < 0 else "abcd"[v] for v in x[:, j]] for j in range(4)}
    )
    data["y"] = np.where((x[:, 0] + x[:, 1] + rng.normal(size=n)) > 1, "yes", "no")
    return data, w.astype(int)


FORMULA = "y ~ x0*x1 + x1*x2 + x2*x3"
METHODS = {
    "pseudo": {"lambda_": 0.05, "lambdah": 0.01},
    "mf": {"eps": 0.7},
    "naive": {"prior_count": 0.5},
}


class TestEngines:
    """Available-case fits of one group are those of the enumeration."""

    @pytest.mark.parametrize("pairs", [None, PAIRS, []])
    def test_pseudo_likelihood(self, pairs):
        x, w = coded()
        layout = Layout(LEVELS, pairs)
        exact = oracle.PseudoFit(x, w, LEVELS, pairs, 0.05, 0.01)
        engine = PseudoLikelihood(lambda_=0.05, lambdah=0.01)
        sample = as_sample(x, w)
        fit = engine.fit(sample, layout)
        h, J = tables(layout, fit.theta)
        for i in range(4):
            np.testing.assert_allclose(h[i], exact.h[i], atol=1e-8)
        for pair in J:
            np.testing.assert_allclose(J[pair], exact.J[pair], atol=1e-8)
        assert fit.lkh == pytest.approx(exact.lkh, abs=1e-10)
        assert fit.converged.all()
        for half in (False, True):
            value = pseudo_log_z(sample, layout, fit.site_theta, half=half)
            assert value == pytest.approx(exact.log_z(half=half), abs=1e-8)

    def test_both_solvers_agree(self, monkeypatch):
        x, w = coded(2000)
        layout = Layout(LEVELS, PAIRS)
        engine = PseudoLikelihood(lambda_=0.02, lambdah=0.02)
        small = engine.path(as_sample(x, w), layout, [0.02, 0.2])
        monkeypatch.setattr("bbl.engines.pseudo.solvers.NEWTON_WORK", 0.0)
        large = engine.path(as_sample(x, w), layout, [0.02, 0.2], workers=2)
        for a, b in zip(small, large, strict=True):
            np.testing.assert_allclose(a.theta, b.theta, atol=1e-8)
        assert np.abs(small[0].theta - small[1].theta).max() > 0.1

    def test_all_pairs_use_complete_rows_alone(self):
        x, w = coded()
        layout, engine = Layout(LEVELS), PseudoLikelihood(lambda_=0.05)
        complete = (x >= 0).all(axis=1)
        expected = engine.fit(as_sample(x[complete], w[complete]).collapsed(LEVELS), layout)
        assert np.array_equal(engine.fit(as_sample(x, w), layout).theta, expected.theta)

    @pytest.mark.parametrize("eps", [0.5, [0.3, 0.8]])
    def test_mean_field(self, eps):
        x, w = coded()
        layout, sample = Layout(LEVELS), as_sample(x, w)
        for k, one in enumerate(np.atleast_1d(eps)):
            h, J, lz, _ = oracle.mean_field(x, w, LEVELS, eps=one)
            fit = MeanField().path(sample, layout, np.atleast_1d(eps))[k]
            got_h, got_J = tables(layout, fit.theta)
            for i in range(4):
                np.testing.assert_allclose(got_h[i], h[i], atol=1e-10)
            for pair in J:
                np.testing.assert_allclose(got_J[pair], J[pair], atol=1e-10)
            assert fit.mf_log_z == pytest.approx(lz, abs=1e-10)

    def test_naive_bayes(self):
        x, w = coded()
        h, _, _ = oracle.naive_bayes(x, w, LEVELS, 0.5)
        fit = NaiveBayes(prior_count=0.5).fit(as_sample(x, w), Layout(LEVELS, []))
        np.testing.assert_allclose(fit.theta, np.concatenate(h), atol=1e-12)
        f, _ = oracle.frequencies(x, w, LEVELS, 0.5)
        expected = sum(
            float(w[k] * np.log(f[i][x[k, i]]))
            for i in range(4)
            for k in range(len(x))
            if x[k, i] >= 0
        )
        assert fit.lkh * w.sum() == pytest.approx(expected)

    def test_extra_instance_where_the_usable_rows_are_constant(self):
        # predictor 0 varies, but not in the rows where its neighbour is known
        x = np.array([[0, -1], [1, 0], [1, 1], [1, 0], [0, -1]])
        rows = PseudoLikelihood().prepare(as_sample(x, np.ones(5)), Layout([2, 2]))
        assert rows.codes[-1].tolist() == [0, 0] and not rows.missing[-1].any()
        assert rows.n == 6 and rows.missing[:-1].sum() == 2
        free = PseudoLikelihood().prepare(as_sample(x, np.ones(5)), Layout([2, 2], []))
        assert free.n == 5

    def test_indefinite_covariance(self):
        # each pair is known in other rows: two alike, two alike, and two opposite cannot be
        # together
        alike, opposite = [[0, 0], [1, 1]] * 10, [[0, 1], [1, 0]] * 10
        x = np.full((60, 3), -1)
        x[:20, :2], x[20:40, 1:], x[40:, ::2] = alike, alike, opposite
        sample, layout = as_sample(x, np.ones(60)), Layout([2, 2, 2])
        assert (
            np.linalg.eigvalsh(
                covariance(pair_counts(sample, layout), sample, layout, np.full(3, 0.5), 1.0)
            ).min()
            < -0.1
        )
        h, J, lz, _ = oracle.mean_field(x, np.ones(60), [2, 2, 2])
        fit = MeanField(eps=0.9).fit(sample, layout)
        np.testing.assert_allclose(
            fit.theta, np.concatenate([*h, *(J[p].ravel() for p in sorted(J))]), atol=1e-9
        )
        assert fit.mf_log_z == pytest.approx(lz) and fit.converged.all()
        assert not MeanField(eps=1.0).fit(sample, layout).converged.all()

    def test_pairs_have_their_own_means(self):
        # predictor 0 is 1 more often where predictor 1 is missing: no sign of a dependence
        x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 10 + [[1, -1]] * 40)
        fit = MeanField(eps=0.9, prior_count=0.0).fit(as_sample(x, np.ones(80)), Layout([2, 2]))
        np.testing.assert_allclose(fit.theta, [np.log(3), 0.0, 0.0], atol=1e-12)


class TestSumming:
    """Missing predictors are summed out."""

    @pytest.mark.parametrize("pairs", [None, PAIRS, []])
    def test_against_enumeration(self, pairs):
        layout = Layout(LEVELS, pairs)
        theta = np.random.default_rng(1).normal(size=(3, layout.size))
        x, _ = coded(200, 0.4)
        got = MarginalEnergy(layout, theta)(
            np.where(x < 0, 3, x).astype(np.uint8) % np.array(LEVELS, np.uint8), x < 0
        )
        for k in range(3):
            np.testing.assert_allclose(
                got[:, k], oracle.marginal_energy(*tables(layout, theta[k]), LEVELS, x), atol=1e-12
            )

    def test_blocks_of_rows(self, monkeypatch):
        layout = Layout(LEVELS)
        theta = np.random.default_rng(1).normal(size=(2, layout.size))
        x, _ = coded(300, 0.4)
        energy, codes = MarginalEnergy(layout, theta), np.where(x < 0, 0, x).astype(np.uint8)
        whole = energy(codes, x < 0)
        monkeypatch.setattr("bbl.model.marginal.BATCH_CELLS", 1)
        np.testing.assert_allclose(energy(codes, x < 0), whole, atol=1e-12)

    def test_annealed_beyond(self):
        layout = Layout([2] * 22)
        rng = np.random.default_rng(2)
        theta = rng.normal(scale=0.4, size=(1, layout.size))
        codes = rng.integers(0, 2, (2, 22)).astype(np.uint8)
        unknown = np.zeros((2, 22), dtype=bool)
        unknown[:, :21] = True
        part = Layout([2] * 21)
        assert elimination_order(part.n_levels, part.mask, CELLS) is None
        energy = MarginalEnergy(layout, theta)
        got = energy(codes, unknown)
        order = elimination_order(part.n_levels, part.mask, 1e8)[0]
        h, J = to_matrix(layout, theta[0])
        for k in range(2):
            fields = h[:21] + J[:21, 21] * codes[k, 21]
            inside = from_matrix(part, fields, J[:21, :21])
            exact = log_sum(part.factors(inside[None]), order)[0] + h[21] * codes[k, 21]
            assert got[k, 0] == pytest.approx(exact, abs=0.05)
        # whatever the other rows are
        assert np.array_equal(energy(codes[1:], unknown[1:]), got[1:])


class TestFit:
    """`bbl` under each policy."""

    @pytest.mark.parametrize("method", METHODS)
    def test_scores_and_likelihood(self, method):
        data, w = frame()
        fit = bbl.bbl(
            FORMULA, data, w, method, missing="marginal", log_z="exact", **METHODS[method]
        )
        layout = fit.estimate.parameters.layout
        x = np.where(fit.training.missing, -1, fit.training.codes.astype(int))
        E = np.column_stack(
            [
                oracle.marginal_energy(*tables(layout, t), LEVELS, x)
                for t in fit.estimate.parameters.theta
            ]
        )
        link, prob = oracle.posterior(E, fit.log_z, fit.estimate.class_prior)
        np.testing.assert_allclose(fit.fitted(), prob, atol=1e-10)
        np.testing.assert_allclose(fit.predict(data).iloc[:, :2].astype(float), link, atol=1e-9)
        y = fit.training.y
        assert float(fit.logLik()) == pytest.approx(
            float(w @ (E[np.arange(len(y)), y] - fit.log_z.to_numpy()[y]))
        )
        assert fit.nobs() == w.sum() == fit.design.incomplete + w[data.notna().all(axis=1)].sum()
        assert fit.residuals().tolist() == (prob.argmax(axis=1) == y).astype(int).tolist()
        assert fit.model_frame.isna().equals(data[fit.model_frame.columns].isna())

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("log_z", ["exact", "half", "mf", "ais"])
    @pytest.mark.usefixtures("short_annealing")
    @pytest.mark.long
    def test_complete_data_give_the_same(self, method, log_z):
        data, w = frame(share=0.0)
        fits = [
            bbl.bbl(FORMULA, data, w, method, missing=m, log_z=log_z, **METHODS[method])
            for m in ("raise", "drop", "level", "marginal")
        ]
        for fit in fits[1:]:
            assert np.array_equal(fit.estimate.parameters.theta, fits[0].estimate.parameters.theta)
            assert np.array_equal(fit.estimate.log_z, fits[0].estimate.log_z)
            assert fit.predict(data).equals(fits[0].predict(data))
            assert fit.logLik() == fits[0].logLik() and fit.lkh == fits[0].lkh
            assert fit.design.incomplete == 0
            assert log_z != "exact" or "Missing values: none" in str(fit.summary())
        assert log_z != "exact" or "Missing" not in str(fits[0].summary())

    @pytest.mark.parametrize("missing", ["drop", "level", "marginal"])
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.thinned(4)
    def test_weights_are_repeated_rows(self, method, missing):
        data, w = frame()
        args = {"missing": missing, "log_z": "half", "method": method, **METHODS[method]}
        a = bbl.bbl(FORMULA, data, w, **args)
        b = bbl.bbl(FORMULA, data.loc[data.index.repeat(w)], **args)
        assert np.array_equal(a.estimate.parameters.theta, b.estimate.parameters.theta)
        assert np.array_equal(a.estimate.log_z, b.estimate.log_z)
        assert a.nobs() == b.nobs() and a.design.incomplete == b.design.incomplete > 0
        np.testing.assert_allclose(a.logLik(), b.logLik(), rtol=1e-12)
        if method == "pseudo":
            np.testing.assert_allclose(a.bse, b.bse, rtol=1e-9)

    def test_threads_make_no_difference(self):
        data, w = frame(2000)
        one, two = (bbl.bbl(FORMULA, data, w, missing="marginal", n_jobs=k) for k in (1, 2))
        assert np.array_equal(one.estimate.parameters.theta, two.estimate.parameters.theta)

    def test_drop(self):
        data, w = frame()
        data.index = [f"r{k}" for k in range(len(data))]
        data.loc["r3", "y"] = None
        fit = bbl.bbl(FORMULA, data, w, missing="drop")
        whole = data.notna().all(axis=1)
        same = bbl.bbl(FORMULA, data[whole], w[whole])
        assert np.array_equal(fit.estimate.parameters.theta, same.estimate.parameters.theta)
        assert fit.nobs() == w[whole].sum() and fit.design.incomplete == w[~whole].sum()
        assert f"{w[~whole].sum()} observations with missing values dropped" in str(fit.summary())
        assert f"{w[~whole].sum()} observations with missing values dropped" in repr(fit)
        for part in (fit.fitted(), fit.residuals(), fit.weights, fit.model_frame, fit.predict()):
            assert part.index.equals(data.index[whole])
        predicted = fit.predict(data, type="prob")
        gone = data[["x0", "x1", "x2", "x3"]].isna().any(axis=1)
        assert predicted.index.equals(data.index)
        assert predicted[gone].isna().all(axis=None) and predicted[~gone].notna().all(axis=None)
        assert fit.predict(data[gone], type="class").isna().all()
        assert predicted[~gone].equals(same.predict(data[~gone], type="prob"))

    def test_drop_looks_at_the_formula_alone(self):
        data = pd.DataFrame({"y": ["a", "b"] * 4, "x": [0, 1, 1, 0] * 2, "other": [None] * 8})
        assert bbl.bbl("y ~ x", data, missing="drop").nobs() == 8
        with pytest.raises(
            DataError, match="every row has a missing value.*missing='level'"
        ) as caught:
            bbl.bbl("y ~ x + other", data, missing="drop")
        assert caught.value.argument == "missing"

    def test_level(self):
        data, w = frame()
        fit = bbl.bbl(FORMULA, data, w, missing="level", lambdah=0.01)
        filled = bbl.bbl(FORMULA, data.fillna("zz"), w, lambdah=0.01)
        assert fit.labels.levels[0] == ("a", "b", "(missing)")
        assert np.array_equal(fit.estimate.parameters.theta, filled.estimate.parameters.theta)
        assert fit.predict(data).equals(filled.predict(data.fillna("zz")))
        assert (fit.model_frame["x0"] == "(missing)").equals(data["x0"].isna())

    def test_level_does_not_collide(self):
        data = pd.DataFrame({"y": ["a", "b"] * 4, "x": ["(missing)", None, "(missing 2)", "u"] * 2})
        fit = bbl.bbl("y ~ x", data, missing="level", lambdah=0.1)
        assert fit.labels.levels[0] == ("(missing 2)", "(missing)", "u", "(missing 3)")
        assert fit.design.encode(data)[0][:4, 0].tolist() == [1, 3, 0, 2]

    def test_level_that_the_fit_did_not_see(self):
        data = pd.DataFrame({"y": ["a", "b"] * 4, "x": ["u", "v", "v", "v"] * 2})
        fit, new = bbl.bbl("y ~ x", data, missing="level"), {"x": [None, "u"]}
        with pytest.raises(LevelError, match="column 'x' has unknown levels: missing values") as e:
            fit.predict(new)
        assert e.value.column == "x"
        prob = fit.predict(new, type="prob", unseen="ignore")
        np.testing.assert_allclose(prob.iloc[0, :2].astype(float), [0.5, 0.5])
        assert prob.iloc[1].equals(fit.predict(data[:1], type="prob").iloc[0].rename(1))

    @pytest.mark.long
    def test_row_without_anything_known_has_the_prior(self):
        data, w = frame()
        data.loc[5, ["x0", "x1", "x2", "x3"]] = None
        for options in ({}, {"log_z": "half"}, {"calibrate": "temperature"}):
            fit = bbl.bbl(FORMULA, data, w, missing="marginal", **options)
            row = fit.predict(data.loc[[5]], type="prob").iloc[0, :2].astype(float)
            np.testing.assert_allclose(row, fit.estimate.class_prior)
            np.testing.assert_allclose(fit.fitted().loc[5], fit.estimate.class_prior)
        without = w.copy()
        without[5] = 0
        y = fit.training.y
        log_p = bbl.log_scores(fit, normalised=True).to_numpy()[np.arange(len(y)), y]
        assert float(fit.logLik()) == pytest.approx(float(without @ log_p))

    @pytest.mark.parametrize("missing", ["level", "marginal"])
    def test_response_must_be_known(self, missing):
        data, w = frame()
        data.loc[:1, "y"] = None
        with pytest.raises(
            DataError, match="column 'y' has 2 missing values, but the response.*'drop'"
        ) as caught:
            bbl.bbl(FORMULA, data, w, missing=missing)
        assert caught.value.column == "y"

    def test_raise_is_the_default(self):
        data, w = frame()
        with pytest.raises(
            DataError, match="column 'x0' has .* missing values.*'drop'.*'level'.*'marginal'"
        ):
            bbl.bbl(FORMULA, data, w)
        whole = data.dropna()
        fit = bbl.bbl(FORMULA, whole)
        for unseen in ("raise", "ignore"):
            with pytest.raises(DataError, match="column 'x0' of newdata has .* missing='marginal'"):
                fit.predict(data, unseen=unseen)
        with pytest.raises(OptionError, match="missing"):
            bbl.bbl(FORMULA, whole, missing="ignore")

    def test_unseen_levels_besides(self):
        data, w = frame()
        fit = bbl.bbl(FORMULA, data, w, missing="marginal")
        new = pd.DataFrame(
            {"x0": ["zz", None], "x1": ["a", "a"], "x2": [None, None], "x3": ["b", "b"]}
        )
        with pytest.raises(LevelError, match="'zz'"):
            fit.predict(new)
        both = fit.predict(new, unseen="ignore")
        assert both.iloc[0].equals(both.iloc[1].rename(0))


class TestNothingKnown:
    """What missing values leave without rows is named."""

    def data(self):
        data, _ = frame(60, 0.0)
        return data

    def test_predictor_in_a_group(self):
        data = self.data()
        data.loc[data["y"] == "yes", "x2"] = None
        for method in METHODS:
            with pytest.raises(
                DataError, match="group 'yes', all values of 'x2' are missing"
            ) as caught:
                bbl.bbl(FORMULA, data, method=method, missing="marginal")
            assert caught.value.column == "x2"

    def test_predictor_with_its_neighbours(self):
        data = self.data()
        no = data.index[data["y"] == "no"]
        data.loc[no[::2], "x0"], data.loc[no[1::2], "x1"] = None, None
        with pytest.raises(
            DataError, match="In group 'no', .* requires rows in which 'x0' and all predictors"
        ) as caught:
            bbl.bbl("y ~ x0*x1 + x3", data, missing="marginal")
        assert caught.value.column == "x0"
        with pytest.raises(DataError, match="group 'no', 'x0' and 'x1' are never.*known in"):
            bbl.bbl("y ~ x0*x1 + x3", data, method="mf", missing="marginal")
        assert bbl.bbl("y ~ x0 + x1 + x3", data, missing="marginal").converged

    def test_ln_z_that_needs_rows(self):
        data, _ = frame(400, 0.0)
        for k, name in enumerate(["x0", "x1", "x2", "x3"]):
            data.loc[data.index[k::4], name] = None  # no row is complete
        formula = "y ~ (x0 + x1 + x2 + x3)^2"
        with pytest.raises(DataError, match="log_z='half' requires rows.*log_z='ais'"):
            bbl.bbl(formula, data, method="mf", eps=0.5, missing="marginal", log_z="half")
        fit = bbl.bbl(formula, data, method="mf", eps=0.5, missing="marginal")
        assert fit.estimate.log_z_kind == "exact" and np.isfinite(fit.logLik())

    def test_whole_column(self):
        data = self.data().assign(x1=None)
        for missing in ("level", "marginal"):
            with pytest.raises(DataError, match="column 'x1'.*missing") as caught:
                bbl.bbl(FORMULA, data, missing=missing)
            assert caught.value.column == "x1"

    def test_fold(self):
        data = self.data()
        data.loc[data.index[5:], "x2"] = None
        with pytest.raises(DataError, match="In the training rows of a fold:.*group.*'x2'"):
            bbl.crossVal("y ~ x0 + x2", data, missing="marginal", nfold=2)


KINDS = {
    "object": lambda v: pd.Series([None if x is None else f"l{x}" for x in v], dtype=object),
    "string": lambda v: pd.Series([pd.NA if x is None else f"l{x}" for x in v], dtype="string"),
    "float": lambda v: pd.Series([np.nan if x is None else float(x) for x in v]),
    "Int64": lambda v: pd.Series(v, dtype="Int64"),
    "boolean": lambda v: pd.Series([None if x is None else x > 0 for x in v], dtype="boolean"),
    "category": lambda v: pd.Series(pd.Categorical([None if x is None else f"l{x}" for x in v])),
    "NaT": lambda v: pd.Series([pd.NaT if x is None else f"l{x}" for x in v], dtype=object),
    "polars str": lambda v: pl.Series([None if x is None else f"l{x}" for x in v]),
    "polars int": lambda v: pl.Series(v),
    "arrow": lambda v: pa.array([None if x is None else f"l{x}" for x in v]),
    "arrow dictionary": lambda v: pa.array(
        [None if x is None else f"l{x}" for x in v]
    ).dictionary_encode(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", ["drop", "level", "marginal"])
def test_kinds_of_columns(kind, missing):
    values = [None, 0, 1, 1, 0, None, 1, 0] * 5
    y, z = ["a", "b"] * 20, [0, 1, 1, 0, 0] * 8
    column = KINDS[kind](values)
    if isinstance(column, pl.Series):
        data = pl.DataFrame({"y": y, "x": column, "z": z})
    elif isinstance(column, pa.Array):
        data = pa.table({"y": y, "x": column, "z": z})
    else:
        data = pd.DataFrame({"y": y, "x": column, "z": z})
    plain = pd.DataFrame({"y": y, "x": [None if v is None else f"l{v}" for v in values], "z": z})
    fit, same = (bbl.bbl("y ~ x*z", d, missing=missing, lambdah=0.01) for d in (data, plain))
    assert (
        np.array_equal(fit.estimate.parameters.theta, same.estimate.parameters.theta)
        and fit.design.incomplete == 10
    )
    for a, b in zip(fit.predict(data).to_numpy().T, same.predict(plain).to_numpy().T, strict=True):
        assert pd.Series(a).equals(pd.Series(b))


# groups that do not differ
@pytest.mark.filterwarnings("ignore:On the training rows:bbl.errors.DataWarning")
def test_new_columns_without_any_value():
    data = {"y": ["a", "b"] * 4, "x": ["u", "v", "v", "v"] * 2, "z": [0, 1, 1, 0] * 2}
    fit = bbl.bbl("y ~ x*z", data, missing="marginal", lambdah=0.01)
    expected = fit.predict(pd.DataFrame({"x": [None, None], "z": [0, 1]}))
    for make in (pl.DataFrame, pa.table):
        new = make({"x": [None, None], "z": [0, 1]})
        predicted = fit.predict(new)
        columns = [list(predicted[name]) for name in expected.columns]
        assert columns == [list(expected[name]) for name in expected.columns]
    assert not expected.iloc[0, :2].equals(expected.iloc[1, :2])


class TestCrossValidation:
    """Folds under `missing="marginal"`."""

    def test_out_of_fold_scores(self):
        data, _ = frame(200)
        cv = [(np.arange(100, 200), np.arange(100)), (np.arange(100), np.arange(100, 200))]
        run = bbl.crossVal(
            FORMULA, data, lambda_=[0.1, 1.0], missing="marginal", cv=cv, refit=False
        )
        levels = {f"x{j}": list("abcd"[:L]) for j, L in enumerate(LEVELS)}
        fit = bbl.bbl(FORMULA, data[:100], lambda_=run.regstar, missing="marginal", xlevels=levels)
        expected = fit._class_scores(*fit.design.encode(data[100:]))
        order = np.argsort(run.scored.y[100:], kind="stable")
        y = fit.design.encode_response(data[100:])
        np.testing.assert_allclose(
            run.scored.scores[run.best][100:][order],
            expected[np.argsort(y, kind="stable")],
            atol=1e-9,
        )
        assert run.model.nobs() == 100

    @pytest.mark.long
    @pytest.mark.parametrize("method", ["pseudo", "mf"])
    def test_tuning_and_calibration(self, method):
        data, w = frame()
        name = {"pseudo": "lambda_", "mf": "eps"}[method]
        fit = bbl.bbl(
            FORMULA, data, w, method, missing="marginal", calibrate="temperature", **{name: "cv"}
        )
        assert np.isfinite(fit.tuning.loss).all() and fit.estimate.calibration is not None
        settings = {
            "missing": "marginal",
            "calibrate": "offset",
            "shuffle": True,
            "seed": 1,
            name: [0.1, 0.5],
        }
        run = bbl.crossVal(FORMULA, data, w, method, **settings)
        assert 0.6 < run.maxscore <= 1.0
        assert "missing = 'marginal'" in run.model.call


class TestUncertainty:
    """Standard errors with missing values are the spread of the estimates."""

    LAYOUT = Layout([2, 3, 2], [(0, 1), (1, 2)])

    THETA = np.random.default_rng(5).normal(scale=0.7, size=LAYOUT.size)
    P = oracle.probabilities(*tables(LAYOUT, THETA), [2, 3, 2])

    def simulated(self, rng, n=600):
        theta, states, p = self.THETA, oracle.states([2, 3, 2]), self.P
        x = states[rng.choice(len(states), size=n, p=p)]
        x[rng.random(x.shape) < [0.1, 0.2, 0.3]] = -1
        return theta, x

    @pytest.mark.long
    def test_standard_errors(self):
        layout, engine, rng = self.LAYOUT, PseudoLikelihood(lambda_=0.0), np.random.default_rng(3)
        estimates, errors = [], []
        for _ in range(200):
            theta, x = self.simulated(rng)
            sample = as_sample(x, np.ones(len(x)), np.zeros(len(x), dtype=np.intp))
            (result,) = estimate_path(FitData(sample, layout, 1), FitSpec(engine))
            found = Covariances(sample, result, engine)
            estimates.append(result.parameters.theta[0])
            errors.append(found.standard_errors(found.group[0]))
        spread, mean = np.std(estimates, axis=0, ddof=1), np.mean(errors, axis=0)
        np.testing.assert_allclose(mean, spread, rtol=0.13)
        covered = np.abs(np.array(estimates) - theta) < 1.96 * np.array(errors)
        assert 0.93 < covered.mean() < 0.97

    def test_derivative_of_the_estimate(self):
        _, x = self.simulated(np.random.default_rng(4))
        layout, engine = self.LAYOUT, PseudoLikelihood(lambda_=0.05, lambdah=0.02, tolerance=1e-13)
        sample = as_sample(x, np.full(len(x), 2.0))
        fit = engine.fit(sample, layout)
        influence = Influence(sample, layout, fit.site_theta, 0.05, 0.02)(sample)
        for k in (0, 7, int(np.flatnonzero((x < 0).sum(axis=1) == 1)[0])):
            moved = []
            for sign in (1e-3, -1e-3):
                weights = sample.weights.copy()
                weights[k] += sign
                moved.append(
                    engine.fit(Sample(sample.codes, weights, None, sample.missing), layout).theta
                )
            np.testing.assert_allclose(
                influence[k], (moved[0] - moved[1]) / 2e-3 * sample.total, atol=1e-4
            )

    def test_naive_bayes_has_the_multinomial_errors_of_what_is_known(self):
        data = {"y": ["a"] * 70 + ["b"] * 70, "x": ["u"] * 20 + ["v"] * 40 + [None] * 10}
        data["x"] += ["u"] * 30 + ["v"] * 30 + [None] * 10
        fit = bbl.bbl("y ~ x", data, method="naive", prior_count=0.0, missing="marginal")
        np.testing.assert_allclose(
            fit.bse, [np.sqrt(1 / 20 + 1 / 40), np.sqrt(1 / 30 + 1 / 30)], rtol=1e-6
        )

    def test_bootstrap_keeps_what_is_missing(self):
        _, x = self.simulated(np.random.default_rng(6), 1500)
        sample = as_sample(x, np.ones(len(x)), np.zeros(len(x), dtype=np.intp))
        engine = PseudoLikelihood(lambda_=0.0)
        (result,) = estimate_path(FitData(sample, self.LAYOUT, 1), FitSpec(engine))
        refits = bootstrap(sample, result, engine, 150, np.random.default_rng(0), 1)[:, 0]
        found = Covariances(sample, result, engine)
        np.testing.assert_allclose(
            refits.std(axis=0, ddof=1), found.standard_errors(found.group[0]), rtol=0.15
        )

    def test_composite_criteria(self):
        data, w = frame()
        with pytest.warns(ConvergenceWarning, match="no finite estimate"):
            fit = bbl.bbl(FORMULA, data, w, missing="marginal", lambda_=0.0, testNull=False)
        layout, rows = fit.estimate.parameters.layout, fit.training
        every = complete = 0.0
        for g in range(2):
            solved = fit.engine.equations(
                rows.group(g).collapsed(layout.n_levels), layout
            )._asdict()
            own = solved.pop("rows")
            influence = Influence(own, layout, **solved)
            every += influence.composite(own)[0]
            complete += influence.composite(own.rows(~own.missing.any(axis=1)))[0]
        assert every == pytest.approx(fit.lkh, abs=1e-6)
        composite = fit.inference().composite
        assert composite[0][0] + composite[1][0] == pytest.approx(complete, abs=1e-6)
        assert np.isfinite([fit.claic, fit.clbic, fit.aic, fit.bic]).all()

    @pytest.mark.long
    def test_available_cases_are_closer_than_complete_ones(self):
        rng = np.random.default_rng(7)
        layout = Layout([2] * 8, [(j, j + 1) for j in range(7)])
        theta = rng.normal(scale=0.8, size=(1, layout.size))
        states = oracle.states([2] * 8)
        p = oracle.probabilities(*tables(layout, theta[0]), [2] * 8)
        for engine in (MeanField(eps=0.9), PseudoLikelihood(lambda_=0.0)):
            squares = []
            for _ in range(10):
                x = states[rng.choice(len(states), size=2000, p=p)]
                gaps = np.where(rng.random(x.shape) < 0.15, -1, x)
                whole = (gaps >= 0).all(axis=1)
                full, available, dropped = (
                    engine.fit(as_sample(v, np.ones(len(v))), layout).theta
                    for v in (x, gaps, gaps[whole])
                )
                squares.append([((v - full) ** 2).mean() for v in (available, dropped)])
            available, dropped = np.mean(squares, axis=0)
            assert available < 0.5 * dropped and available < 0.02


class TestStorage:
    """Model files keep the policy; older files have none."""

    @pytest.mark.parametrize("missing", ["drop", "level", "marginal"])
    def test_round_trip(self, tmp_path, missing):
        data, w = frame()
        fit = bbl.bbl(FORMULA, data, w, missing=missing, lambdah=0.01)
        for store_data in (False, True):
            fit.save(tmp_path / "fit.bbl", store_data=store_data)
            loaded = bbl.load(tmp_path / "fit.bbl")
            assert (
                loaded.design.missing == missing
                and loaded.design.incomplete == fit.design.incomplete
            )
            assert loaded.predict(data).equals(fit.predict(data))
            assert loaded.nobs() == fit.nobs() and loaded.logLik() == fit.logLik()
            assert str(loaded.summary()).split("naive")[0] == str(fit.summary()).split("naive")[0]
        assert loaded.model_frame.equals(fit.model_frame) and loaded.fitted().equals(fit.fitted())

    def test_file_without_the_entry(self):
        data, w = frame(share=0.0)
        stored = bbl.bbl(FORMULA, data, w).design.to_dict()
        assert stored.pop("missing") == "raise" and stored.pop("incomplete") == 0
        assert Design.from_dict(stored).missing == "raise"
        wrong_counts = [{"incomplete": count} for count in (-1, "3", 1)]
        for wrong in ({"missing": "guess"}, {"missing": ["raise"]}, *wrong_counts):
            with pytest.raises(DataError, match="corrupt"):
                Design.from_dict(stored | wrong)


class TestOneGroup:
    """`mlestimate` with nan in the codes."""

    def test_policies(self):
        x, w = coded()
        xi = np.where(x < 0, np.nan, x)
        exact = oracle.PseudoFit(x, w, LEVELS, PAIRS, 0.05, 0.01)
        qJ = Layout(LEVELS, PAIRS).mask
        options = {"lambda_": 0.05, "lambdah": 0.01}
        fit = bbl.mlestimate(xi, w, qJ, missing="marginal", **options)
        np.testing.assert_allclose(fit.J[1, 2], exact.J[1, 2], atol=1e-8)
        whole = (x >= 0).all(axis=1)
        dropped, same = (
            bbl.mlestimate(a, b, missing=m, **options)
            for a, b, m in ((xi, w, "drop"), (x[whole], w[whole], "raise"))
        )
        assert np.array_equal(dropped.J[0, 1], same.J[0, 1])
        filled = bbl.mlestimate(np.where(x < 0, LEVELS, x), w, **options)
        assert np.array_equal(
            bbl.mlestimate(xi, w, missing="level", **options).J[0, 3], filled.J[0, 3]
        )

    def test_errors(self):
        xi = np.array([[0.0, 1.0], [1.0, np.nan], [np.nan, 0.0]])
        with pytest.raises(DataError, match="xi has 2 missing entries"):
            bbl.mlestimate(xi)
        with pytest.raises(DataError, match="row of xi is complete"):
            bbl.mlestimate(xi[1:], missing="drop")
        with pytest.raises(DataError, match="In xi, .* requires rows in which .* all predictors"):
            bbl.mlestimate(xi[1:], missing="marginal")
        with pytest.raises(OptionError, match="missing"):
            bbl.mlestimate(xi, missing="omit")


class TestClassifier:
    """`BBLClassifier(missing=...)`."""

    @pytest.mark.parametrize("missing", ["level", "marginal"])
    def test_is_the_model_by_formula(self, missing):
        data, w = frame()
        X, y = data.drop(columns="y"), data["y"]
        model = BBLClassifier("pseudo", missing=missing, lambdah=0.01).fit(X, y, w)
        fit = bbl.bbl("y ~ .^2", data, w, missing=missing, lambdah=0.01)
        prob = fit.predict(data, type="prob").iloc[:, :2].astype(float)
        assert np.array_equal(model.predict_proba(X), prob)
        assert model.predict(X).tolist() == fit.predict(data, type="class").tolist()

    def test_arrays(self):
        x, _ = coded(300)
        X, y = np.where(x < 0, np.nan, x), np.arange(300) % 2
        for missing in ("level", "marginal"):
            model = BBLClassifier("pseudo", missing=missing).fit(X, y)
            assert model.__sklearn_tags__().input_tags.allow_nan
            assert np.isfinite(make_pipeline(model).fit(X, y).predict_proba(X)).all()
        assert not BBLClassifier("pseudo").__sklearn_tags__().input_tags.allow_nan
        with pytest.raises(ValueError, match="NaN"):
            BBLClassifier("pseudo").fit(X, y)

    def test_drop(self):
        data, _ = frame()
        X, y = data.drop(columns="y"), data["y"].where(data["x0"].notna(), "third")
        model = BBLClassifier("pseudo", missing="drop").fit(X, y)
        assert model.classes_.tolist() == ["no", "yes"]
        whole = X.notna().all(axis=1).to_numpy()
        prob = model.predict_proba(X)
        assert np.isnan(prob[~whole]).all() and np.isfinite(prob[whole]).all()
        best = model.predict(X)
        assert pd.isna(best).tolist() == (~whole).tolist()
        assert best[whole].tolist() == model.predict(X[whole]).tolist()
        numbers = BBLClassifier("pseudo", missing="drop").fit(X, np.arange(len(X)) % 3).predict(X)
        assert np.isnan(numbers).tolist() == (~whole).tolist()

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("method", "missing"),
        [
            ("naive", "marginal"),
            *(pytest.param("naive", m, marks=pytest.mark.long) for m in ("drop", "level")),
            *(
                pytest.param("pseudo", m, marks=pytest.mark.long)
                for m in ("drop", "level", "marginal")
            ),
        ],
    )
    @pytest.mark.filterwarnings("ignore")
    def test_conventions_of_scikit_learn(self, missing, method):
        # a firm penalty, with which fits to 15 rows of 30 predictors take few steps
        penalty = {"lambda_": 0.01} if method == "pseudo" else {}
        checks = check_estimator(BBLClassifier(method, missing=missing, **penalty), on_fail=None)
        assert not [c["check_name"] for c in checks if c["status"] == "failed"]
        assert sum(c["status"] == "passed" for c in checks) > 50

    def test_columns_constant_but_for_gaps(self):
        X = pd.DataFrame({"a": ["u", "v"] * 10, "b": ["w", None] * 10, "c": [None] * 20})
        y = [0, 0, 1, 1] * 5
        names = {
            m: [
                f.name
                for f in BBLClassifier("pseudo", missing=m)
                .fit(X[["a", "b"]], y)
                .result_.design.predictors
            ]
            for m in ("level", "marginal")
        }
        assert names == {"level": ["a", "b"], "marginal": ["a"]}
        assert BBLClassifier("pseudo", missing="marginal").fit(X, y).result_.labels.names == ("a",)


@pytest.mark.long
def test_command_line(tmp_path, capsys):
    data, _ = frame()
    data.to_csv(tmp_path / "data.csv", index=False)
    assert main([FORMULA, str(tmp_path / "data.csv")]) == 1
    assert "--missing drop" in capsys.readouterr().err
    args = [
        FORMULA,
        str(tmp_path / "data.csv"),
        "--missing",
        "marginal",
        "--newdata",
        str(tmp_path / "data.csv"),
    ]
    assert main(args) == 0
    assert len(capsys.readouterr().out.splitlines()) == 301


def test_a_bootstrap_of_more_rows_than_memory_holds_is_refused():
    data = pd.DataFrame({"y": ["u", "v"] * 10, "a": [0, 1, 1, 0] * 5, "b": [None, 1, 0, 1, 0] * 4})
    fit = bbl.bbl("y ~ a * b", data, np.full(20, 10**12), "naive", missing="marginal", verbose=0)
    with pytest.raises(MemoryError, match="inference"):
        fit.bootstrap(2)
