"""`method="auto"` for many rows read in batches: settings from a sample, members from all rows."""

from dataclasses import replace

import numpy as np
import pytest
from lazydata import keep_few, make_correlated

import bbl
from bbl.api.machine import fit as fit_module
from bbl.boltzmann import averaging_all_rows
from bbl.rows.fold_assignment import FoldAssignment

FORMULA = "y ~ . + x0 * x1 + x1 * x2 + x2 * x5 + x3 * x7"


@pytest.fixture(scope="module")
def wide():
    """Three groups, one of them rare, with more states than a table of counts may have."""
    table = make_correlated(24_000, 13, K=3)
    is_rare = table["y"] == "perhaps"
    return table[~is_rare | (np.cumsum(is_rare) <= 400)]


def fit_many(table, patch, **options):
    """Fit `table` in batches, with a sample of 5,000 rows."""
    patch.setattr(averaging_all_rows, "SAMPLE_ROWS", 5000)
    patch.setattr(averaging_all_rows, "GROUP_ROWS", 300)
    patch.setattr(averaging_all_rows, "HELD_OUT_ROWS", 2000)
    patch.setattr(fit_module, "MANY_ROWS", 10_000)
    keep_few(patch)
    batches = range(0, len(table), 4000)
    return bbl.bbl(
        FORMULA,
        lambda: (table[k : k + 4000] for k in batches),
        method="auto",
        verbose=0,
        **options,
    )


@pytest.fixture(scope="module")
def fit(wide):
    with pytest.MonkeyPatch.context() as patch:
        return fit_many(wide, patch)


def test_members_that_read_batches_are_fitted_to_all_rows(fit, wide):
    rows = fit.tuning["rows"]
    sampled = rows.min()
    assert 5000 <= sampled < 6000  # with at least 300 of the rare group
    streaming = rows.index.str.split().str[0].isin(["mf", "pseudo", "conditional"])
    assert streaming.any()
    # all rows but the held-out fold
    assert (rows[streaming] > 0.85 * len(wide)).all()
    assert (rows[~streaming] == sampled).all()
    assert fit.nobs() == len(wide)


def test_the_summary_tells_the_rows_of_each_member(fit):
    text = " ".join(str(fit.summary()).split())
    sampled = fit.tuning["rows"].min()
    assert f"Rows: settings chosen on {sampled:,} random rows; mf" in text
    assert f"fitted to all {fit.tuning['rows'].max():,} rows that are not held out" in text
    parts = replace(fit, _member_rows=(sampled + 1,) * (len(fit.members) - 1) + (sampled,))
    names = list(fit.names)
    expected = f"rows that are not held out; {names[-1]} to the {sampled:,}"
    assert expected in " ".join(str(parts.summary()).split())


def test_a_member_is_the_fit_to_these_rows(fit):
    # the parameters of mean field are functions of counts of all rows of the other folds
    member = fit.members[0]
    assert member.engine.name == "mf"
    theta = member.estimate.parameters.theta
    assert np.isfinite(theta).all()
    shares = member.estimate.class_prior
    assert shares.sum() == pytest.approx(1.0)
    assert 0.01 < shares[1] < 0.04  # the rare group has its share of all rows


@pytest.mark.long
def test_probabilities_are_calibrated_on_rows_left_out(fit, wide):
    test = make_correlated(24_000, 13, K=3)
    test = test[~test.index.isin(wide.index)]
    p = fit.predict(test, type="prob")
    assert np.isfinite(p[["no", "perhaps", "yes"]].to_numpy()).all()
    held_out = fit.evaluate(wide).log_loss.loss
    assert abs(held_out - fit.log_loss.loss) < 0.05


def test_saved_averages_keep_their_rows(fit, tmp_path):
    fit.save(tmp_path / "m.bbl")
    loaded = bbl.load(tmp_path / "m.bbl")
    assert loaded.tuning.equals(fit.tuning)
    assert str(loaded.summary()).split("\n")[-12:] == str(fit.summary()).split("\n")[-12:]


@pytest.mark.long
def test_few_rows_are_loaded(wide):
    table = wide.iloc[:6000]
    lazy = bbl.bbl("y ~ x0 * x1 + x2", lambda: iter([table]), method="auto", verbose=0)
    own = bbl.bbl("y ~ x0 * x1 + x2", table, method="auto", verbose=0)
    assert "rows" not in lazy.tuning
    np.testing.assert_allclose(lazy.tuning["log_loss"], own.tuning["log_loss"], rtol=1e-12)
    np.testing.assert_allclose(lazy.member_weights, own.member_weights, rtol=1e-9)


def test_small_data_have_fewer_folds_or_none():
    assignment = FoldAssignment(50, None, least=100)
    assert assignment.of_rows(150) is None
    assert assignment.of_rows(1000).nfold == 10
    assert assignment.of_rows(10**9).nfold == 50
    assert FoldAssignment(5).of_rows(3).nfold == 5
