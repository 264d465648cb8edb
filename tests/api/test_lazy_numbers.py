"""Numeric predictors in data read in batches: results equal those of the same rows in memory."""

import re
import warnings

import lazydata
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.engines.pseudo import blocks
from bbl.errors import DataError, DataWarning, OptionError

FORMULA = "y ~ (a + b + c + u + v)^2 - a:v - b:v - c:v - c:u"


def make_table(n):
    """Return a table of numbers that depend on levels, with large means."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    codes = rng.integers(3, size=(n, 3))
    codes[:, 1] = np.where(rng.random(n) < 0.4, codes[:, 0], codes[:, 1])
    u = 1e4 + codes[:, 0] * 0.5 + y + rng.normal(size=n)
    v = 0.3 * (u - 1e4) - 0.4 * y + rng.normal(0, 2, n)
    levels = np.array(list("pqr"))
    columns = {name: levels[codes[:, k]] for k, name in enumerate("abc")}
    n_rows = 1.0 + np.arange(n) % 2
    return pd.DataFrame({"y": np.array(["no", "yes"])[y], **columns, "u": u, "v": v, "n": n_rows})


@pytest.fixture(scope="module")
def table():
    return make_table(3000)


def assert_same(found, expected, tolerance=1e-9):
    pd.testing.assert_frame_equal(found, expected, rtol=tolerance, atol=1e-10)


@pytest.mark.parametrize("kind", lazydata.KINDS)
@pytest.mark.long
def test_fits_predictions_and_errors_are_those_of_the_table(kind, table, tmp_path):
    source = lazydata.lazy(kind, table, tmp_path)
    lazy, own = (bbl.bbl(FORMULA, data, "n", numeric=["u", "v"]) for data in (source, table))
    assert_same(lazy.means(), own.means(), 1e-12)
    pd.testing.assert_series_equal(lazy.params, own.params, rtol=1e-9)
    new = table.head(50)
    assert_same(lazy.predict(new, "prob").iloc[:, :2], own.predict(new, "prob").iloc[:, :2])
    np.testing.assert_allclose(lazy.logLik(), own.logLik(), rtol=1e-11)
    assert_same(lazy.inference().table(), own.inference().table())
    assert_same(lazy.interactions(("yes", "no")), own.interactions(("yes", "no")))
    columns = ["estimate", "std_error"]
    assert_same(
        lazy.avg_comparisons(["a", "u"]).frame[columns],
        own.avg_comparisons(["a", "u"]).frame[columns],
    )
    assert_same(lazy.evaluate().scores, own.evaluate().scores)
    if kind != "reader":
        assert_same(lazy.evaluate(source).scores, own.evaluate(table).scores)


@pytest.mark.parametrize("method", ["naive", "mf", "ml", "blanket"])
def test_other_methods(method, table, tmp_path):
    formula = "y ~ a + u + v" if method == "naive" else "y ~ a * b + u * v"
    source = lazydata.lazy("folder", table, tmp_path)
    lazy, own = (bbl.bbl(formula, data, method=method, numeric=True) for data in (source, table))
    found, expected = (fit.predict(table, "prob").iloc[:, :2] for fit in (lazy, own))
    # iterative fits of rows in another order
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "options", [{"covariance": "shared"}, {"transform": "normal"}, {"shrink": 0.2}], ids=str
)
def test_options_of_numbers(options, table):
    def source():
        return (table[k : k + 700] for k in range(0, len(table), 700))

    lazy, own = (bbl.bbl(FORMULA, data, numeric=["u", "v"], **options) for data in (source, table))
    found, expected = (fit.predict(table, "prob").iloc[:, :2] for fit in (lazy, own))
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    found, expected = (fit.avg_comparisons("u").frame["std_error"] for fit in (lazy, own))
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_folds_are_those_of_the_table(table, tmp_path):
    source = lazydata.lazy("folder", table, tmp_path)
    told = {"numeric": ["u", "v"], "lambda_": [1e-3, 0.1], "shuffle": True, "seed": 1}
    lazy, own = (bbl.crossVal("y ~ a * b + u * v", data, **told) for data in (source, table))
    assert_same(lazy.cvframe, own.cvframe, 1e-8)


@pytest.mark.long
def test_a_sample_of_the_rows_has_close_standard_errors(monkeypatch, tmp_path):
    table = make_table(24_000)
    own = bbl.bbl(FORMULA, table, numeric=["u", "v"], lambda_=1e-4)
    monkeypatch.setattr(blocks, "MIN_SAMPLE", 3000)
    monkeypatch.setattr(blocks, "ROWS_PER_COLUMN", 1)
    monkeypatch.setattr(blocks, "FULL_FIT_FACTOR", 2)
    source = lazydata.lazy("folder", table, tmp_path)
    lazy = bbl.bbl(FORMULA, source, numeric=["u", "v"], lambda_=1e-4)
    assert not lazy._kept.is_complete
    assert_same(lazy.means(), own.means(), 1e-12)
    np.testing.assert_allclose(lazy.logLik(), own.logLik(), rtol=1e-8)
    found, expected = (fit.avg_comparisons(["a", "u"]).frame for fit in (lazy, own))
    np.testing.assert_allclose(found["estimate"], expected["estimate"], rtol=1e-5)
    np.testing.assert_allclose(found["std_error"], expected["std_error"], rtol=0.1)
    np.testing.assert_allclose(lazy.bse, own.bse, rtol=0.15)
    lazy.save(tmp_path / "fit.bbl", store_data=True)
    again = bbl.load(tmp_path / "fit.bbl")
    pd.testing.assert_series_equal(again.bse, lazy.bse, rtol=1e-12)


@pytest.mark.parametrize("ridge", [0, 0.01, "cv", "firth"])
@pytest.mark.long
def test_regressions_are_those_of_the_table(ridge, table, tmp_path):
    # the values of u are large, and a difference of 1e-9 in a slope is one of 1e-5 in a score
    source = lazydata.lazy("parquet", table, tmp_path)
    options = {"method": "conditional", "ridge": ridge, "numeric": ["u", "v"], "verbose": 0}
    lazy, own = (bbl.bbl("y ~ a*u + v + v:v", data, "n", **options) for data in (source, table))
    found, expected = (np.ravel(fit.coef().h["yes"]["u"]) for fit in (lazy, own))
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=1e-6)
    new = table.head(50)
    assert_same(lazy.predict(new, "prob").iloc[:, :2], own.predict(new, "prob").iloc[:, :2], 1e-6)
    assert_same(lazy.evaluate(source).scores, own.evaluate(table).scores, 1e-6)
    columns = ["estimate", "std_error"]
    found = lazy.avg_comparisons(["a", "u"], newdata=source, weights="n").frame[columns]
    assert_same(found, own.avg_comparisons(["a", "u"]).frame[columns], 1e-6)
    if ridge in (0, "firth"):
        assert_same(lazy.inference().table(), own.inference().table(), 1e-6)
        found, expected = (fit.inference().tests(of=("yes", "no")) for fit in (lazy, own))
        assert_same(found, expected, 1e-6)


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_errors_of_regressions_from_a_sample_of_rows(unit, table, tmp_path):
    """They agree with those from all rows as well as they say, in any unit."""
    scaled = table.assign(u=(table["u"] - 1e4) * unit)
    source = lazydata.lazy("parquet", scaled, tmp_path)
    options = {"method": "conditional", "ridge": 0, "numeric": ["u", "v"], "verbose": 0}
    lazy = bbl.bbl("y ~ a*u + v", source, **options)
    own = bbl.bbl("y ~ a*u + v", scaled, **options)
    rows = (own.inference().table()["group"] == "yes").to_numpy()
    exact = own.inference().table().loc[rows, "se"].to_numpy()
    sampled = lazy.inference(rows=800)
    stated = re.search(r"exact to about ([\d.]+) %", " ".join(str(sampled).split()))
    errors = sampled.table().loc[rows, "se"].to_numpy() / exact - 1.0
    assert (np.abs(errors) > 1e-6).any()
    assert (np.abs(errors) < 4 * float(stated[1]) / 100).all()


def test_averages_are_those_of_the_table(table, tmp_path):
    small = table.head(400)
    source = lazydata.lazy("parquet", small, tmp_path)
    options = {"method": "auto", "numeric": ["u", "v"], "verbose": 0, "seed": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        lazy, own = (bbl.bbl("y ~ a*u + v", data, **options) for data in (source, small))
    np.testing.assert_allclose(lazy.member_weights, own.member_weights, rtol=1e-9)
    assert_same(lazy.predict(small, "prob").iloc[:, :2], own.predict(small, "prob").iloc[:, :2])
    assert_same(lazy.evaluate().scores, own.evaluate().scores)
    for one, other in zip(lazy.members, own.members, strict=True):
        if one.engine.name in ("mf", "pseudo"):
            np.testing.assert_allclose(one.logLik(), other.logLik(), rtol=1e-9)
        for counts, expected in zip(one._counts, other._counts, strict=True):
            np.testing.assert_array_equal(counts, expected)
    lazy.save(tmp_path / "average.bbl", store_data=True)
    loaded = bbl.load(tmp_path / "average.bbl")
    assert_same(loaded.predict(small, "prob"), lazy.predict(small, "prob"))


def test_missing_constant_and_other_columns_are_refused(table):
    def fit(data, **options):
        return bbl.bbl("y ~ a + u", lambda: iter([data[:1000], data[1000:]]), **options)

    holes = table.assign(u=table["u"].where(np.arange(len(table)) % 500 != 3))
    with pytest.raises(DataError, match="'u' has 6 missing values"):
        fit(holes, numeric="u")
    dropped = fit(holes, numeric="u", missing="drop")
    kept = holes.dropna()
    assert_same(dropped.means(), bbl.bbl("y ~ a + u", kept, numeric="u").means(), 1e-12)
    with pytest.raises(DataError, match="'u' has only the value 2"):
        fit(table.assign(u=2.0), numeric="u")
    with pytest.raises(OptionError, match="not a predictor"):
        fit(table, numeric="v")
    with pytest.raises(OptionError, match="xlevels lists levels for 'u'"):
        fit(table, numeric="u", xlevels={"u": ["1", "2"]})
    with pytest.warns(DataWarning, match="only 3 values"):
        fit(table.assign(u=np.arange(len(table)) % 3), numeric="u")
