"""Conditional fits of data read in batches whose rows stay in a file: equal to fits to a table."""

import lazydata
import numpy as np
import pandas as pd
import pytest
from lazydata import keep_few, make_correlated

import bbl
from bbl.boltzmann import averaging_all_rows
from bbl.engines.conditional import rounds
from bbl.engines.conditional.discriminative import OFFSET_PENALTY
from bbl.engines.conditional.full_batch import FullBatch
from bbl.errors import DataError

FORMULA = "y ~ . + x0 * x1 + x1 * x2 + x2 * x5 + x3 * x7"


@pytest.fixture(scope="module")
def wide():
    """Three groups, with more states than a table of counts may have."""
    return make_correlated(20_000, 13, K=3)


def assert_same(found, expected, tolerance):
    pd.testing.assert_frame_equal(found, expected, rtol=tolerance, atol=1e-9)


def fit_rounds(data, formula=FORMULA, **options):
    """Fit rows in a file, with a sample of about 3,000 rows of each group."""
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        return bbl.bbl(formula, data, method="conditional", verbose=0, **options)


@pytest.fixture(scope="module")
def fits(wide):
    own = bbl.bbl(FORMULA, wide, method="conditional", ridge=0, verbose=0)
    return fit_rounds(lambda: iter([wide]), ridge=0), own


@pytest.mark.long
def test_estimates_and_likelihood_are_those_of_the_table(fits):
    lazy, own = fits
    assert not lazy._kept.is_complete  # a sample is kept, so the rows were not loaded
    np.testing.assert_allclose(
        lazy.estimate.coefficients, own.estimate.coefficients, rtol=1e-8, atol=1e-9
    )
    assert lazy.estimate.fits[0].grad_norm.max() < 1e-10
    assert lazy.logLik() == pytest.approx(float(own.logLik()), rel=1e-12)
    assert lazy.n_parameters == own.n_parameters
    assert lazy.aic == pytest.approx(own.aic, rel=1e-12)


def test_standard_errors_come_from_the_sample(fits):
    lazy, own = fits
    ratio = lazy.bse / own.bse
    error = lazy.inference().sampling_error[ratio.notna()]
    assert np.sqrt(((ratio - 1) ** 2).mean()) < 0.01
    assert 0.5 < np.sqrt((error**2).mean() / ((ratio - 1) ** 2).mean()) < 2.0
    note = lazy.inference().note
    assert note.startswith("Standard errors from the Fisher information of P(y|x), from 3,")
    assert note.endswith("as in logistic and multinomial regression, with Wald tests.")
    for of in ("group", ("no", "yes")):
        table, expected = (fit.inference().table(of) for fit in fits)
        np.testing.assert_array_equal(table["test"], expected["test"])
        np.testing.assert_allclose(table["z"], expected["z"], rtol=0.04, atol=1e-8)


@pytest.mark.long
def test_all_rows_give_the_standard_errors_of_the_table(fits):
    lazy, own = fits
    exact = lazy.inference(rows="all")
    assert_same(exact.table(), own.inference().table(), 1e-8)
    assert exact.note == own.inference().note


def test_effects_average_over_all_rows(fits):
    lazy, _ = fits
    found, expected = (fit.avg_comparisons("x1").frame for fit in fits)
    np.testing.assert_allclose(found["estimate"], expected["estimate"], rtol=1e-8)
    np.testing.assert_allclose(found["std_error"], expected["std_error"], rtol=0.03)
    assert "of 6,6" in lazy.avg_comparisons("x1").note


def test_sampled_rows_travel_with_the_file(fits, tmp_path):
    fits[0].save(tmp_path / "m.bbl", store_data=True)
    pd.testing.assert_series_equal(bbl.load(tmp_path / "m.bbl").bse, fits[0].bse)


@pytest.mark.parametrize("kind", ["folder", "duckdb", "reader"])
@pytest.mark.long
def test_sources_and_batches_give_the_same_fit(kind, wide, fits, tmp_path):
    lazy = fit_rounds(lazydata.lazy(kind, wide, tmp_path), ridge=0)
    np.testing.assert_allclose(
        lazy.estimate.coefficients, fits[0].estimate.coefficients, rtol=1e-8, atol=1e-9
    )


@pytest.mark.long
def test_batches_of_one_size_give_identical_bits(wide):
    one, other = (
        fit_rounds(
            lambda size=size: (wide[k : k + size] for k in range(0, len(wide), size)), ridge=0
        )
        for size in (1000, 30_000)
    )
    np.testing.assert_array_equal(one.estimate.coefficients, other.estimate.coefficients)


@pytest.mark.long
def test_weights_count_rows(wide):
    table = wide.assign(n=np.arange(len(wide)) % 3)
    lazy = fit_rounds(lambda: iter([table]), weights="n", ridge=0)
    own = bbl.bbl(FORMULA, table, weights="n", method="conditional", ridge=0, verbose=0)
    np.testing.assert_allclose(
        lazy.estimate.coefficients, own.estimate.coefficients, rtol=1e-8, atol=1e-9
    )
    ratio = lazy.bse / own.bse
    assert np.sqrt(((ratio - 1) ** 2).mean()) < 0.015


@pytest.mark.long
def test_rare_pairs_that_the_sample_lacks(wide):
    # ten rows of a pair of levels, none of which are rare on their own
    pair = (wide["x0"] == "c") & (wide["x1"] == "c")
    table = wide[~pair | (np.cumsum(pair) <= 10)]
    lazy = fit_rounds(lambda: iter([table]), ridge=0)
    own = bbl.bbl(FORMULA, table, method="conditional", ridge=0, verbose=0)
    np.testing.assert_allclose(
        lazy.estimate.coefficients, own.estimate.coefficients, rtol=1e-7, atol=1e-7
    )


@pytest.mark.long
def test_levels_without_rows_of_a_group_are_found_from_counts(wide):
    table = wide[~((wide["x3"] == "c") & (wide["y"] == "yes"))]
    table = table[~((table["x1"] == "b") & (table["x2"] == "b") & (table["y"] == "no"))]
    with pytest.warns(bbl.ConvergenceWarning):
        lazy = fit_rounds(lambda: iter([table]), ridge=0)
    with pytest.warns(bbl.ConvergenceWarning):
        own = bbl.bbl(FORMULA, table, method="conditional", ridge=0, verbose=0)
    expected = own.inference().table()
    found = lazy.inference().table()
    is_tested = (expected["test"] == "Wald").to_numpy()
    assert 0 < is_tested.sum() < len(expected)
    np.testing.assert_array_equal(found["test"] == "Wald", is_tested)
    np.testing.assert_allclose(
        found["estimate"][is_tested], expected["estimate"][is_tested], rtol=1e-7, atol=1e-8
    )
    assert lazy.logLik() == pytest.approx(float(own.logLik()), rel=1e-10)
    assert [fit.unbounded for fit in lazy.estimate.fits] == [
        fit.unbounded for fit in own.estimate.fits
    ]


@pytest.mark.parametrize("ridge", [None, 1e-4, 1e-2])
@pytest.mark.long
def test_penalised_fits_are_at_the_optimum_of_all_rows(wide, ridge):
    lazy = fit_rounds(lambda: iter([wide]), ridge=ridge)
    assert lazy._kept is None
    own = bbl.bbl(FORMULA, wide, method="conditional", ridge=ridge, verbose=0)
    layout = own.estimate.parameters.layout
    rows = own.training
    objective = FullBatch(
        rows.codes, rows.response, rows.weights, layout, 3, 0.5, own.engine.ridge, OFFSET_PENALTY
    )
    values = []
    for fit in (lazy, own):
        constant = fit.estimate.coefficients[:, 0]
        unknowns = objective.to_vector(fit.estimate.parameters.theta, constant - constant.mean())
        values.append(objective(unknowns))
    assert np.abs(values[0][1]).max() < 1e-6  # single precision
    assert values[0][0] < values[1][0] + 1e-7
    assert lazy.estimate.fits[0].grad_norm.max() < 1e-10
    np.testing.assert_allclose(
        lazy.estimate.parameters.theta, own.estimate.parameters.theta, atol=2e-3
    )
    assert "ridge" in str(lazy.summary())


def test_ridges_are_compared_on_a_sample(wide, monkeypatch, tmp_path):
    monkeypatch.setattr(averaging_all_rows, "SAMPLE_ROWS", 1000)
    monkeypatch.setattr(averaging_all_rows, "GROUP_ROWS", 100)
    lazy = fit_rounds(lambda: iter([wide]), "y ~ .", ridge="cv", seed=1)
    tuning = lazy.tuning
    assert 998 <= tuning.rows < 1003
    # ridges of the grid, which are penalties per row, for thirty times as many rows
    ratio = len(wide) / tuning.rows
    np.testing.assert_allclose(
        np.log10(tuning.values * ratio), np.round(np.log10(tuning.values * ratio)), atol=1e-3
    )
    assert lazy.engine.ridge == tuning.values[tuning.chosen]
    own = fit_rounds(lambda: iter([wide]), "y ~ .", ridge=lazy.engine.ridge)
    np.testing.assert_array_equal(lazy.estimate.coefficients, own.estimate.coefficients)
    assert lazy.estimate.fits[0].grad_norm.max() < 1e-10
    assert f"on {tuning.rows:,} random rows" in " ".join(str(lazy.summary()).split())
    lazy.save(tmp_path / "m.bbl")
    assert repr(bbl.load(tmp_path / "m.bbl").tuning) == repr(tuning)
    # the loss of fits to 800 rows
    full = lazy.evaluate(wide).log_loss.loss
    assert full - 0.005 < lazy.log_loss.loss < full + 0.06


def test_fits_that_need_all_rows_load_them(wide):
    for options in (
        {"ridge": "firth"},
        {"ridge": 1e-3, "early_stopping": True},
        {"ridge": 1e-3, "calibrate": "temperature", "seed": 1},
    ):
        formula = "y ~ x0 + x1"
        own = bbl.bbl(formula, wide, method="conditional", verbose=0, **options)
        lazy = fit_rounds(lambda: iter([wide]), formula, **options)
        np.testing.assert_array_equal(lazy.estimate.coefficients, own.estimate.coefficients)


def test_doubtful_maxima_have_a_note(wide, monkeypatch):
    monkeypatch.setattr(rounds, "is_certain", lambda *arguments, **options: False)
    with pytest.warns(bbl.ConvergenceWarning, match="checked only in a sample"):
        fit_rounds(lambda: iter([wide]), ridge=0)


def test_models_from_files_need_the_data_for_all_rows(fits, tmp_path):
    fits[0].save(tmp_path / "m.bbl", store_data=True)
    with pytest.raises(DataError, match="random sample"):
        bbl.load(tmp_path / "m.bbl").inference(rows="all")
