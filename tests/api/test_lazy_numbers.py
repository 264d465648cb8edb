"""Numeric predictors in data read in batches: results equal those of the same rows in memory."""

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
@pytest.mark.thinned(3)
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


@pytest.mark.parametrize("method", ["conditional", "auto"])
def test_regressors_need_a_table(method, table):
    with pytest.raises(OptionError, match=f"numeric with method='{method}'"):
        bbl.bbl("y ~ a + u", lambda: iter([table]), numeric="u", method=method)


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
