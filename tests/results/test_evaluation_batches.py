"""Evaluation of many rows read in batches: sums and bins instead of scores, against the same rows
in memory.
"""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import OptionError
from bbl.results import evaluation
from bbl.stats import score_bins
from bbl.stats.evaluation import ScoredRows, areas, score_table
from bbl.stats.metrics import first_largest, least_cost, log_probabilities

matplotlib.use("Agg")
N = 6000
COSTS = np.array([[0.0, 1.0, 4.0], [2.0, 0.0, 1.0], [1.0, 3.0, 0.0]])


def in_batches(table, size):
    return lambda: (table.iloc[k : k + size] for k in range(0, len(table), size))


@pytest.fixture(scope="module")
def tables():
    """Rows of two and of three groups, with predictors that have more states than rows."""
    rng = np.random.default_rng(0)
    found = {}
    for K in (2, 3):
        y = rng.integers(0, K, N)
        x = rng.integers(0, 4, (N, 9))
        x = np.where(rng.random(x.shape) < 0.2, (y % 4)[:, None], x)
        found[K] = pd.DataFrame(x, columns=[f"x{i}" for i in range(9)]).assign(
            y=np.array(["a", "b", "c"])[y],
            n=rng.integers(0, 4, N),
            w=rng.gamma(2.0, size=N) * (rng.random(N) < 0.9),
        )
    return found


@pytest.fixture(scope="module")
def fits(tables):
    return {
        K: bbl.bbl("y ~ . - n - w", table.iloc[:900], method="naive", verbose=0)
        for K, table in tables.items()
    }


@pytest.fixture
def few_rows(monkeypatch):
    """Sums of more than 1,000 rows, added in chunks of 512 rows."""
    monkeypatch.setattr(evaluation, "EXACT_ROWS", 1000)
    monkeypatch.setattr(evaluation, "CHUNK_ROWS", 512)


def assert_same_scores(found, expected):
    """Compare two evaluations: everything but the AUC up to rounding errors."""
    tables = [one.scores.drop(index="AUC") for one in (found, expected)]
    np.testing.assert_allclose(*(table["estimate"] for table in tables), rtol=1e-12)
    np.testing.assert_allclose(*(table["baseline"] for table in tables), rtol=1e-12)
    # losses are binned for their limits
    np.testing.assert_allclose(*tables, rtol=1e-7)
    np.testing.assert_allclose(found.confusion, expected.confusion, rtol=1e-12)
    columns = ["precision", "recall", "F1", "support"]
    np.testing.assert_allclose(found.report[columns], expected.report[columns], rtol=1e-12)
    difference = abs(found.scores.loc["AUC"] - expected.scores.loc["AUC"])
    assert difference["estimate"] <= found.auc_error + 1e-14 and difference.max() < 1e-5
    assert 0.0 < found.auc_error < 1e-4 and expected.auc_error == 0.0


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("weights", [None, "n", "w"])
def test_sums_agree_with_rows_in_memory(K, weights, tables, fits, few_rows):
    table = tables[K]
    names = list("abc")
    costs = pd.DataFrame(COSTS, names, names) if K == 3 else None
    found = fits[K].evaluate(in_batches(table, 700), weights, costs=costs, verbose=0)
    expected = fits[K].evaluate(table, weights, costs=costs)
    assert isinstance(found.rows, score_bins.BinnedRows)
    assert_same_scores(found, expected)
    # the error is at most 1e-5 or shown; other numbers are shown with four digits
    shown = str(found).replace(found._area_note, "")
    assert shown == str(expected) and bool(found._area_note) == (found.auc_error > 1e-5)


@pytest.mark.long
def test_the_size_of_batches_does_not_matter(tables, few_rows):
    table = tables[3].assign(x0=tables[3]["x0"].where(np.arange(N) % 97 != 0))
    fit = bbl.bbl("y ~ . - n - w", table.iloc[:900], method="naive", missing="drop", verbose=0)
    small, large, single = (
        fit.evaluate(in_batches(table, size), "w", verbose=0) for size in (499, 5000, N)
    )
    pd.testing.assert_frame_equal(small.scores, large.scores, rtol=1e-12)
    pd.testing.assert_frame_equal(single.scores, large.scores, rtol=1e-12)
    left_out = (table["x0"].isna() & (table["w"] > 0)).sum()
    assert small.left_out == large.left_out == fit.evaluate(table, "w").left_out == left_out
    assert small.auc_error == pytest.approx(large.auc_error, rel=1e-9)


def test_rows_with_few_scores_are_merged(tables, few_rows):
    fit = bbl.bbl("y ~ x0 * x1", tables[3], verbose=0)
    found = fit.evaluate(in_batches(tables[3], 700), verbose=0)
    assert isinstance(found.rows, ScoredRows) and found.rows.n < 1000 and found.auc_error == 0.0
    expected = fit.evaluate(tables[3])
    np.testing.assert_allclose(found.scores["estimate"], expected.scores["estimate"], rtol=1e-12)
    # weights that are not counts are not merged, but ties are recognised in bins
    found = fit.evaluate(in_batches(tables[3], 700), "w", verbose=0)
    assert isinstance(found.rows, score_bins.BinnedRows) and found.auc_error == 0.0
    expected = fit.evaluate(tables[3], "w")
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-7)
    np.testing.assert_allclose(found.report, expected.report, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("K", [2, 3])
def test_curves_and_figures(K, tables, fits, few_rows):
    table = tables[K]
    found = fits[K].evaluate(in_batches(table, 700), "n", verbose=0)
    expected = fits[K].evaluate(table, "n")
    for group in "abc"[:K]:
        points, curve = found.roc(group), expected.roc(group)
        assert 100 < len(points) <= len(curve)
        # every point of the binned curve is a point of the exact curve
        position = np.searchsorted(-curve["threshold"], -points["threshold"] * (1 - 1e-12), "right")
        np.testing.assert_allclose(points, curve.iloc[position - 1], rtol=1e-9)
    pairs = zip(found.plot("calibration"), expected.plot("calibration"), strict=True)
    for drawn, wanted in pairs:
        for line, own in zip(drawn.lines, wanted.lines, strict=True):
            np.testing.assert_allclose(line.get_xydata(), own.get_xydata(), rtol=1e-9)
    texts = [
        [text.get_text() for text in one.plot("roc").get_legend().get_texts()]
        for one in (found, expected)
    ]
    assert texts[0] == texts[1]
    plt.close("all")


def test_single_rows_are_refused_with_advice_that_works(tables, fits, few_rows):
    source = in_batches(tables[2], 700)
    found = fits[2].evaluate(source, verbose=0)
    assert found.rows.n == N
    for name in ("class_scores", "observed", "predicted", "weights"):
        with pytest.raises(OptionError, match=r"bbl\.sample_rows\(data, 1_000\)"):
            getattr(found, name)
    sampled = fits[2].evaluate(bbl.sample_rows(source, 1000, verbose=0))
    assert sampled.class_scores.shape == (1000, 2)


def test_infinite_scores_ties_and_few_bins(monkeypatch):
    """The error bound holds with coarse bins, infinite log-odds, and ties at their borders."""
    monkeypatch.setattr(score_bins, "MAX_CELLS", 0)
    rng = np.random.default_rng(1)
    for K in (2, 3):
        scores = rng.normal(size=(3000, K)) * 3
        scores[:300, 0] = -np.inf
        scores[300:500] = 0.0
        scores[300:500, 1] = rng.choice([0.0, 1e-13, -1e-13], 200)  # the border of two bins
        y = rng.integers(0, K, 3000)
        weights = rng.integers(1, 4, 3000).astype(float)
        costs = COSTS[:K, :K]
        exact = ScoredRows(scores, y, first_largest(scores), weights)
        by_cost = ScoredRows(scores, y, least_cost(log_probabilities(scores), costs), weights)
        # the median, at the border, is that of equal scores
        first = np.vstack([np.zeros((3, K)), 3 * np.eye(K), -3 * np.eye(K)])
        sums, cost_sums = score_bins.ScoreBins(first), score_bins.ScoreBins(first, costs)
        for part in np.array_split(np.arange(3000), 7):
            sums.add(scores[part], y[part], weights[part])
            cost_sums.add(scores[part], y[part], weights[part])
        binned = sums.rows(3000)
        np.testing.assert_array_equal(cost_sums.rows(3000).counts, by_cost.counts)
        assert binned.n == 3000 and binned.total == exact.total
        np.testing.assert_allclose(binned.floored, exact.floored)
        np.testing.assert_allclose(
            score_table(binned)[:4, [0, 3]], score_table(exact)[:4, [0, 3]], rtol=1e-12
        )
        errors = abs(areas(binned)[:, 0] - areas(exact)[:, 0])
        bounds = np.array([binned.area_error(k) for k in range(K)])
        assert (errors <= bounds + 1e-14).all() and (bounds > 1e-4).all() and bounds.max() < 0.01


def test_bins_are_narrow_where_log_odds_are_dense():
    """A rare group, and predictors with weak effects; the first rows may differ from all others."""
    rng = np.random.default_rng(2)
    bounds = []
    for centre, spread in ((-7.0, 1.0), (0.0, 0.02), (-7.0, 0.2)):
        log_odds = centre + spread * rng.normal(size=20_000)
        scores = np.column_stack([np.zeros(20_000), log_odds])
        y = (rng.logistic(size=20_000) < spread * rng.normal(size=20_000)).astype(int)
        exact = areas(ScoredRows(scores, y, y, np.ones(20_000)))[1]
        for first in (scores[:5000], np.zeros((5, 2))):
            sums = score_bins.ScoreBins(first)
            sums.add(scores, y, np.ones(20_000))
            binned = sums.rows(20_000)
            bounds.append(binned.area_error(1))
            assert abs(areas(binned)[1] - exact).max() <= 2 * bounds[-1] + 1e-14
    assert max(bounds[::2]) < 5e-5 and max(bounds) < 0.03


def test_one_group_has_no_area(tables, fits, few_rows):
    rows = tables[2].query("y == 'a'")
    found = fits[2].evaluate(in_batches(rows, 700), verbose=0)
    expected = fits[2].evaluate(rows)
    assert np.isnan(found.scores.loc["AUC", "estimate"]) and found.auc_error == 0.0
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-7)
