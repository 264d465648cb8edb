"""Data read in batches whose rows, levels, weights and batches are unusual."""

import numpy as np
import pandas as pd
import pytest
from lazydata import keep_few

import bbl
from bbl.errors import LevelError
from bbl.rows import fold_assignment

FORMULA = "y ~ (x0 + x1 + x2)^2 + x3 + x4 + x5"
OPTIONS = {
    "pseudo": {"lambda_": 1e-4, "tolerance": 1e-11},
    "conditional": {"ridge": 0},
    "naive": {},
}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Keep a sample of about 300 rows of groups with more than 600, and no table of counts."""
    keep_few(monkeypatch, 300)
    monkeypatch.setattr(fold_assignment, "MAX_TABLE_CELLS", 100)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 2400
    y = rng.integers(2, size=n)
    columns = {"y": np.array(["no", "yes"])[y]}
    factor = rng.normal(size=n)
    for i in range(6):
        value = 0.6 * factor + 0.4 * y * (i % 2) + rng.normal(size=n)
        columns[f"x{i}"] = np.array(list("abc"))[np.digitize(value, [-0.3, 0.9])]
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def owns(table):
    """The fits to the table by each method."""
    return {method: fit(table, method) for method in ("pseudo", "conditional")}


def in_batches(table, size=500):
    return lambda: (table.iloc[k : k + size] for k in range(0, len(table), size))


def fit(data, method="pseudo", **options):
    return bbl.bbl(FORMULA, data, method=method, verbose=0, **OPTIONS[method], **options)


def assert_same_fit(lazy, own, tolerance=1e-7):
    """Compare the parameters and the exact standard errors of two fits."""
    found, expected = (one.inference(rows="all").table(("no", "yes")) for one in (lazy, own))
    np.testing.assert_array_equal(found["test"] == "Wald", expected["test"] == "Wald")
    both = (expected["test"] == "Wald").to_numpy()
    assert both.any()
    for column in ("estimate", "se"):
        np.testing.assert_allclose(
            found[column][both], expected[column][both], rtol=tolerance, atol=1e-8
        )


def assert_close_errors(lazy, own):
    """Compare the standard errors from the kept sample to those of all rows."""
    ratio = (lazy.bse / own.bse).to_numpy()
    assert 0.0 < np.median(np.abs(ratio[np.isfinite(ratio)] - 1.0)) < 0.1


@pytest.mark.long
@pytest.mark.parametrize("method", ["pseudo", "conditional"])
def test_batches_that_lack_a_group(method, table, owns):
    ordered = table.sort_values("y", kind="stable")  # most batches have one group
    lazy = fit(in_batches(ordered), method)
    assert not lazy._kept.is_complete
    assert_same_fit(lazy, owns[method])
    assert_close_errors(lazy, owns[method])


@pytest.mark.long
def test_one_row_in_each_batch(table):
    rows = table.iloc[:60]
    one, other = (
        bbl.bbl("y ~ x0 + x1", in_batches(rows, size), method="naive", verbose=0)
        for size in (1, 60)
    )
    np.testing.assert_array_equal(one.estimate.parameters.theta, other.estimate.parameters.theta)
    pd.testing.assert_series_equal(one.bse, other.bse)
    for size in (1, 60):
        found = one.evaluate(in_batches(rows, size)).scores
        np.testing.assert_allclose(found, one.evaluate(rows).scores, rtol=1e-12)


@pytest.mark.parametrize("method", ["pseudo", "conditional"])
def test_rare_levels_and_a_constant_predictor(method, table):
    rare = table.copy()
    x0, x1, x2 = (rare.columns.get_loc(name) for name in ("x0", "x1", "x2"))
    rare.iloc[700, x2] = "single"  # a level of one row
    rare.iloc[100:2400:300, x0] = "rare"  # never together with the next
    rare.iloc[150:2400:300, x1] = "rare"
    rare["x5"] = "same"
    with pytest.warns(bbl.ConvergenceWarning):
        lazy, own = (fit(data, method, novarOk=True) for data in (in_batches(rare), rare))
    assert_same_fit(lazy, own, 1e-6)
    kept = lazy._kept.sample.codes
    names = [factor.name for factor in lazy.design.predictors]
    for name, level, n in (("x2", "single", 1), ("x0", "rare", 8), ("x1", "rare", 8)):
        i = names.index(name)
        code = list(lazy.design.predictors[i].levels).index(level)
        assert (kept[:, i] == code).sum() == n  # all of these rows are kept


@pytest.mark.parametrize("options", [{"ridge": 1e-3}, {"ridge": 1e-5, "scale": 0.0}])
def test_penalised_fits_with_columns_that_never_occur(options, table):
    rare = table.assign(x5="same", x4=table["x3"])
    rare.iloc[700, rare.columns.get_loc("x2")] = "single"
    lazy = bbl.bbl(
        FORMULA, in_batches(rare), method="conditional", novarOk=True, verbose=0, **options
    )
    assert lazy.estimate.fits[0].grad_norm.max() < 1e-9
    assert np.isfinite(lazy.estimate.parameters.theta).all()


def test_a_few_rows_with_most_of_the_weight(table):
    heavy = table.assign(n=np.where(np.arange(len(table)) % 240 == 7, 10**8, 1))
    lazy, own = (fit(data, "naive", weights="n") for data in (in_batches(heavy), heavy))
    assert lazy.nobs() == own.nobs() > 10**9
    np.testing.assert_allclose(
        lazy.estimate.parameters.theta, own.estimate.parameters.theta, rtol=1e-12
    )
    np.testing.assert_allclose(lazy.bse, own.bse, rtol=1e-6)
    lazy, own = (fit(data, weights="n") for data in (in_batches(heavy), heavy))
    assert (lazy._kept.sample.weights > 1e7).sum() == 10
    np.testing.assert_allclose(
        lazy.estimate.parameters.theta, own.estimate.parameters.theta, rtol=1e-6, atol=1e-7
    )


def test_rows_of_no_weight_change_nothing(table):
    weighted = table.assign(n=1)
    more = pd.concat([weighted, weighted.iloc[:500].assign(n=0)])
    one, other = (fit(in_batches(data), weights="n") for data in (weighted, more))
    np.testing.assert_allclose(
        one.estimate.parameters.theta, other.estimate.parameters.theta, atol=1e-9
    )
    assert one.nobs() == other.nobs() == len(table)


def test_unknown_groups_of_new_rows_are_named(table):
    lazy = fit(in_batches(table), "naive")
    new = table.iloc[:400].copy()
    new.iloc[50, 0] = "perhaps"
    for data in (new, in_batches(new, 100)):
        with pytest.raises(LevelError, match="unknown levels: 'perhaps'"):
            lazy.evaluate(data)


@pytest.mark.long
@pytest.mark.parametrize("method", ["pseudo", "conditional"])
def test_threads_and_sizes_of_batches_change_no_bits(method, table):
    first = fit(in_batches(table, 2400), method, n_jobs=1)
    for size, n_jobs in ((100, 1), (500, 2)):
        other = fit(in_batches(table, size), method, n_jobs=n_jobs)
        np.testing.assert_array_equal(
            first.estimate.parameters.theta, other.estimate.parameters.theta
        )
        pd.testing.assert_series_equal(first.bse, other.bse, rtol=0.0, atol=0.0)


@pytest.mark.long
@pytest.mark.parametrize("method", ["pseudo", "conditional"])
def test_the_order_of_rows_may_differ_in_each_pass(method, table, owns):
    rng = np.random.default_rng(1)

    def batches():
        """Yield the rows in another order, as a query may return them."""
        shuffled = table.sample(frac=1.0, random_state=rng)
        yield shuffled.iloc[:1000]
        yield shuffled.iloc[1000:]

    lazy = fit(batches, method)
    assert_same_fit(lazy, owns[method])
    np.testing.assert_allclose(
        lazy.evaluate().scores["estimate"], lazy.evaluate(table).scores["estimate"], rtol=1e-10
    )
