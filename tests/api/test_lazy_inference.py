"""Standard errors, tests, effects and evaluations of fits of data read in batches: equal to those
of the same rows in memory, and close to them where only a sample is kept.
"""

import functools
import json

import lazydata
import numpy as np
import pandas as pd
import pytest
from lazydata import keep_few, make_correlated

import bbl
from bbl.design.streams import passes
from bbl.errors import DataError, OptionError
from bbl.rows.kept import keep_rows
from bbl.rows.on_disk import CodeFile
from bbl.rows.sample import Sample, level_counts
from bbl.rows.stored import balanced_rates

METHODS = ("pseudo", "naive", "ml")
FORMULAS = {"pseudo": "y ~ x0 * x1 + x1 * x2 + x3", "naive": "y ~ .", "ml": "y ~ x0 * x1 + x2"}


@pytest.fixture(scope="module")
def table():
    return make_correlated(4000, 9)


@pytest.fixture(scope="module")
def wide():
    """Three groups of many rows with more states than a table of counts may have."""
    table = make_correlated(20_000, 13, K=3)
    return table.assign(x5=np.where(np.arange(20_000) % 1000 == 7, "rare", table["x5"]))


@pytest.fixture(scope="module")
def sampled(wide):
    """A fit that keeps a sample of the rows of each group, and the fit to the table."""
    formula = "y ~ . + x0 * x1 * x2 - x0:x1:x2 + x2 * x5"
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        lazy = bbl.bbl(formula, lambda: iter([wide]), lambda_=1e-4)
    return lazy, bbl.bbl(formula, wide, lambda_=1e-4)


def assert_same(found, expected, tolerance=1e-10):
    pd.testing.assert_frame_equal(found, expected, rtol=tolerance, atol=1e-12)


@pytest.fixture(scope="module")
def of_table(table):
    """A function that returns the fit of a method to the table."""
    return functools.cache(lambda method: bbl.bbl(FORMULAS[method], table, method=method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["folder", "duckdb", "reader"])
@pytest.mark.long
def test_inference_is_that_of_the_table(method, kind, table, of_table, tmp_path):
    source = lazydata.lazy(kind, table, tmp_path)
    lazy, own = bbl.bbl(FORMULAS[method], source, method=method), of_table(method)
    for of in ("group", "pooled", ("yes", "no")):
        assert_same(lazy.inference().table(of), own.inference().table(of))
        assert_same(lazy.inference().tests(of), own.inference().tests(of))
        assert_same(lazy.interactions(of), own.interactions(of))
    pd.testing.assert_series_equal(lazy.bse, own.bse, rtol=1e-10)
    assert_same(lazy.conf_int(), own.conf_int())
    assert_same(lazy.cov_params("yes"), own.cov_params("yes"))
    assert lazy.inference().note == own.inference().note
    assert str(lazy.summary()).split("\n")[4:] == str(own.summary()).split("\n")[4:]


@pytest.mark.long
def test_weights_and_a_level_of_the_first_file_only(table, tmp_path):
    table = table.assign(n=np.arange(len(table)) % 4)
    table.loc[:20, "x1"] = "first"
    source = lazydata.lazy("folder", table, tmp_path)
    lazy, own = (bbl.bbl("y ~ x0 * x1 + x2", data, "n") for data in (source, table))
    assert_same(lazy.inference().table("pooled"), own.inference().table("pooled"))
    repeated = table.loc[table.index.repeat(table["n"])]
    assert_same(
        lazy.inference().table(), bbl.bbl("y ~ x0 * x1 + x2", repeated).inference().table(), 1e-6
    )


def test_real_weights_have_no_tests_but_evaluations(table):
    table = table.assign(w=np.linspace(0.5, 1.5, len(table)))
    with pytest.warns(bbl.DataWarning, match="not all integers"):
        lazy = bbl.bbl("y ~ x0 * x1", lambda: iter([table]), "w")
    with pytest.raises(DataError, match="integer weights"):
        lazy.bse  # noqa: B018
    assert "no test" in lazy.interactions()["test"].iloc[0]
    np.testing.assert_allclose(lazy.evaluate().accuracy, lazy.evaluate(table).accuracy, rtol=1e-12)


@pytest.mark.long
def test_comparisons_effects_and_evaluations_are_those_of_the_table(table, tmp_path):
    source = lazydata.lazy("folder", table, tmp_path)
    pairs = [
        tuple(bbl.bbl(formula, data) for data in (source, table))
        for formula in ("y ~ x0 + x1 + x2", "y ~ x0 * x1 + x2")
    ]
    (small, own_small), (lazy, own) = pairs
    columns = ["ratio", "df", "p", "test", "clAIC"]
    assert_same(bbl.anova(small, lazy)[columns], bbl.anova(own_small, own)[columns], 1e-8)
    assert str(bbl.etable([small, lazy])) == str(bbl.etable([own_small, own]))
    assert_same(lazy.avg_comparisons("x0").frame, own.avg_comparisons("x0").frame, 1e-9)
    assert_same(lazy.evaluate().scores, own.evaluate().scores, 1e-9)
    assert_same(lazy.evaluate().scores, lazy.evaluate(table).scores, 1e-9)
    np.testing.assert_allclose([lazy.claic, lazy.clbic], [own.claic, own.clbic], rtol=1e-10)


@pytest.mark.long
def test_effects_and_evaluations_read_the_data_again(sampled, wide):
    lazy, own = sampled
    for keywords in ({}, {"by": "x1"}, {"by": ["x1", "x2"]}, {"transform": "ratio"}):
        found = lazy.avg_comparisons("x0", **keywords).frame
        expected = own.avg_comparisons("x0", **keywords).frame
        assert found.columns.equals(expected.columns)
        np.testing.assert_allclose(found["estimate"], expected["estimate"], atol=1e-6)
        np.testing.assert_allclose(found["std_error"], expected["std_error"], rtol=0.1)
    found, expected = (fit.avg_predictions(by="x2").frame for fit in (lazy, own))
    np.testing.assert_allclose(found["estimate"], expected["estimate"], atol=1e-6)
    assert "exact to about" in lazy.avg_comparisons("x0").note
    np.testing.assert_allclose(lazy.evaluate().scores, own.evaluate().scores, atol=1e-6)
    assert str(lazy.evaluate()).count("training rows") > 1
    with pytest.raises(OptionError, match="bootstrap would have to read the data again"):
        lazy.avg_comparisons("x0", se="bootstrap")


@pytest.mark.parametrize(
    "options",
    [
        {"method": "conditional", "ridge": 0},
        {"method": "conditional"},
        {"method": "conditional", "ridge": "cv"},
        {"method": "boosting"},
        {"method": "blanket"},
        {"method": "auto"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.long
def test_methods_that_need_all_rows_load_their_codes(options, stored, table, tmp_path):
    if stored:  # too many states for a table of counts
        table = make_correlated(1000, 15)
    formula = "y ~ ." if stored else "y ~ x0 * x1 + x2"
    source = lazydata.lazy("folder", table, tmp_path)
    lazy, own = (bbl.bbl(formula, data, **options) for data in (source, table))
    found, expected = (fit.predict(table, "prob").iloc[:, :-1] for fit in (lazy, own))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert lazy.training is None
    assert_same(lazy.evaluate().scores, own.evaluate().scores)
    if options.get("ridge") == 0:
        pd.testing.assert_series_equal(lazy.bse, own.bse, rtol=1e-10)
        assert lazy.logLik() == pytest.approx(own.logLik(), rel=1e-12)
        assert_same(lazy.inference().tests(), own.inference().tests())
        assert_same(lazy.avg_comparisons("x0").frame, own.avg_comparisons("x0").frame, 1e-8)
    lazy.save(tmp_path / "fit.bbl", store_data=True)
    assert_same(bbl.load(tmp_path / "fit.bbl").evaluate().scores, lazy.evaluate().scores)


@pytest.mark.parametrize("method", ["conditional", "boosting"])
def test_weighted_rows_that_are_loaded_are_calibrated_as_those_of_a_table(method, tmp_path):
    table = make_correlated(300, 3).assign(n=np.arange(300) % 3)
    source = lazydata.lazy("folder", table, tmp_path)
    lazy, own = (
        bbl.bbl("y ~ x1 + x2", data, "n", method=method, calibrate="offset")
        for data in (source, table)
    )
    found, expected = (fit.predict(table, "prob").iloc[:, :-1] for fit in (lazy, own))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_folds_of_loaded_rows(tmp_path):
    table = make_correlated(1000, 15)
    source = lazydata.lazy("folder", table, tmp_path)
    told = {"method": "conditional", "ridge": [0.01, 0.1], "shuffle": True, "seed": 1}
    lazy, own = (bbl.crossVal("y ~ .", data, **told) for data in (source, table))
    assert_same(lazy.cvframe, own.cvframe, 1e-8)


@pytest.mark.parametrize("kind", lazydata.KINDS)
@pytest.mark.thinned(5)
def test_new_rows_in_batches_are_those_of_the_table(kind, table, tmp_path):
    fit = bbl.bbl("y ~ x0 * x1 + x2", table.head(500))
    table = table.assign(n=np.arange(len(table)) % 3)
    source = lazydata.lazy(kind, table, tmp_path)
    for weights in (None, "n"):
        found, expected = (fit.evaluate(data, weights) for data in (source, table))
        assert_same(found.scores, expected.scores, 1e-12)
        assert str(found) == str(expected)
        if kind == "reader":
            return
        found, expected = (
            fit.avg_comparisons("x0", by="x1", newdata=data, weights=weights)
            for data in (source, table)
        )
        assert_same(found.frame, expected.frame, 1e-9)
        assert str(found) == str(expected)


@pytest.mark.long
def test_a_source_that_has_changed_since_the_fit_is_named(wide, tmp_path):
    paths = lazydata.write_parts(wide, tmp_path / "parts")
    tables = [wide.head(7000), wide.tail(13_000)]
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        fit, other = (
            bbl.bbl("y ~ .", data, method="naive") for data in (paths, lambda: iter(tables))
        )
    assert fit.evaluate().accuracy == other.evaluate().accuracy > 0.3
    wide.head(20).to_parquet(paths[1])
    tables[1] = wide.tail(1)
    for model, match in (
        (fit, f"{paths[1].name}.* changed since the fit"),
        (other, "batch 1 of .* changed since the fit: it had 13,000 rows then and has 1 rows now"),
    ):
        for call_ in (model.evaluate, lambda model=model: model.avg_comparisons("x0")):
            with pytest.raises(DataError, match=match):
                call_()
        assert model.bse.notna().all()


@pytest.mark.long
def test_a_file_of_the_same_number_of_rows_that_was_written_is_named(wide, tmp_path, monkeypatch):
    paths = lazydata.write_parts(wide, tmp_path / "parts")
    keep_few(monkeypatch)
    fit = bbl.bbl("y ~ .", paths, method="naive")
    before = fit.evaluate().accuracy
    other = wide.iloc[: len(pd.read_parquet(paths[1]))]
    other.to_parquet(paths[1])
    for call_ in (fit.evaluate, lambda: fit.avg_comparisons("x0")):
        with pytest.raises(DataError, match=f"{paths[1].name}.* changed since the fit"):
            call_()
    assert fit.evaluate(paths).accuracy != before
    encode = passes.encode_rows

    def encode_and_write(*arguments):
        n = encode(*arguments)
        other.sample(frac=1, random_state=0).to_parquet(paths[1])
        return n

    monkeypatch.setattr(passes, "encode_rows", encode_and_write)
    with pytest.raises(DataError, match=f"{paths[1].name}.* changed between the two passes"):
        bbl.bbl("y ~ .", paths, method="naive")


@pytest.mark.long
def test_the_numbers_of_the_reference_for_batches_of_any_size(shared, tmp_path):
    folder = shared / "reference" / "streams"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    expected = json.loads((folder / "stream_a.json").read_text())
    table = pd.read_csv(folder / "stream_a.csv", dtype=str)
    for size in (1, 512, 3000):
        # rows of a batch each, after a large batch; or batches of equal size
        sizes = [2990, *[1] * 10] if size == 1 else [size] * (1 + 3000 // size)
        ends = np.cumsum(sizes)
        batches = [table[end - n : end] for n, end in zip(sizes, ends, strict=True)]

        def source(batches=batches):
            return (batch for batch in batches if len(batch))

        fit = bbl.bbl("y ~ .^2", source, lambda_=0, lambdah=0, tolerance=1e-13)
        found = fit.inference().table().groupby("group")
        for group in "ab":
            of_group = found.get_group(group)
            key = f"pseudo lambda_=0, group {group}: "
            np.testing.assert_allclose(
                of_group["estimate"],
                expected[f"{key}estimates in the order of inference().table()"],
                atol=1e-8,
            )
            np.testing.assert_allclose(of_group["se"], expected[f"{key}se"], rtol=1e-8)
        evaluation = fit.evaluate(source)
        loss, accuracy, brier = expected["evaluate in sample, pseudo: log-loss, accuracy, Brier"]
        scores = evaluation.scores["estimate"]
        np.testing.assert_allclose(
            scores[["log-loss", "accuracy", "Brier score", "AUC"]],
            [loss, accuracy, brier, expected["auc"]],
            rtol=1e-9,
        )
        effects = fit.avg_comparisons("v0", newdata=source).frame
        np.testing.assert_allclose(
            effects[["estimate", "std_error"]].to_numpy().ravel(),
            expected["avg_comparisons v0 (pseudo): estimate, std_error of in-memory bbl"],
            rtol=1e-7,
        )
    for formula in ("y ~ .", "y ~ .^2"):
        fit = bbl.bbl(formula, source, method="conditional", ridge=0)
        found = fit.inference().table()
        found = found[found["group"] == "b"]
        key = f"conditional ridge=0 {formula}: "
        np.testing.assert_allclose(
            found["estimate"], expected[f"{key}estimates of the groups after the first"], atol=1e-8
        )
        np.testing.assert_allclose(found["se"], expected[f"{key}se"], rtol=1e-8)
        assert float(fit.logLik()) == pytest.approx(expected[f"{key}logLik"], rel=1e-10)


def test_an_interrupted_pass_leaves_the_fit_as_it_was(wide):
    interrupts = [False]

    def source():
        yield wide.head(13_000)
        if interrupts[0]:
            raise KeyboardInterrupt
        yield wide.tail(7000)

    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        fit = bbl.bbl("y ~ . + x0 * x1", source)
    before = fit.evaluate().accuracy
    interrupts[0] = True
    for call_ in (
        fit.evaluate,
        lambda: fit.avg_comparisons("x0"),
        lambda: fit.inference(rows="all"),
        lambda: bbl.sample_rows(source, 10),
    ):
        with pytest.raises(KeyboardInterrupt):
            call_()
    interrupts[0] = False
    assert fit.evaluate().accuracy == before
    assert fit.avg_comparisons("x0").frame["std_error"].notna().all()


@pytest.mark.long
def test_a_reader_and_a_loaded_model_cannot_read_again(wide, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        fit = bbl.bbl("y ~ .", lazydata.lazy("reader", wide, tmp_path), method="naive")
    fit.save(tmp_path / "fit.bbl", store_data=True)
    for model in (fit, bbl.load(tmp_path / "fit.bbl")):
        for call_ in (model.evaluate, lambda model=model: model.avg_comparisons("x0")):
            with pytest.raises(DataError, match="newdata="):
                call_()
        assert model.avg_comparisons("x0", newdata=wide.head(100)).frame["std_error"].notna().all()


@pytest.mark.long
def test_models_of_samples_are_compared_by_wald_tests(wide):
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        lazy = [
            bbl.bbl(formula, lambda: iter([wide]), lambda_=1e-5)
            for formula in ("y ~ .", "y ~ . + x0 * x1 + x3 * x4")
        ]
    own = [
        bbl.bbl(formula, wide, lambda_=1e-5) for formula in ("y ~ .", "y ~ . + x0 * x1 + x3 * x4")
    ]
    found, expected = (bbl.anova(*fits).iloc[1] for fits in (lazy, own))
    assert found["test"] == "Wald" and found["df"] == expected["df"] == 24
    # the composite likelihood ratio, scaled to a chi-square distribution, has nearly the same p
    assert abs(np.log10(found["p"]) / np.log10(expected["p"]) - 1.0) < 0.1
    np.testing.assert_allclose(found["clAIC"], expected["clAIC"], rtol=1e-5)
    odds = [fits[1].odds_ratios([("x0", "x1")]) for fits in (lazy, own)]
    np.testing.assert_allclose(odds[0]["odds_ratio"], odds[1]["odds_ratio"], rtol=1e-4)


@pytest.mark.long
def test_kept_rows_travel_in_the_file(table, sampled, tmp_path):
    lazy = bbl.bbl("y ~ x0 * x1", lambda: iter([table]))
    for fit in (lazy, sampled[0]):
        fit.save(tmp_path / "fit.bbl", store_data=True)
        again = bbl.load(tmp_path / "fit.bbl")
        assert again.training is None
        pd.testing.assert_series_equal(again.bse, fit.bse, rtol=1e-12)
        assert again.inference().note == fit.inference().note
        fit.save(tmp_path / "fit.bbl")
        with pytest.raises(DataError, match="no training rows"):
            bbl.load(tmp_path / "fit.bbl").bse  # noqa: B018


@pytest.mark.long
def test_errors_of_a_sample_are_close_and_known(sampled):
    lazy, own = sampled
    kept = lazy.inference()
    assert "3,025 of 6,683" in kept.note and "exact to about" in kept.note
    found = kept.table()
    exact = own.inference().table()
    np.testing.assert_allclose(found["estimate"], exact["estimate"], atol=1e-5)
    is_tested = (found["test"] == "Wald") & (exact["test"] == "Wald")
    assert is_tested.mean() > 0.8
    error = (found["se"] / exact["se"] - 1.0)[is_tested].to_numpy()
    claimed = kept.sampling_error.to_numpy()[is_tested]
    assert np.sqrt((error**2).mean()) < 0.03
    assert np.abs(error).max() < 0.12
    assert 0.5 < np.sqrt((error**2).mean()) / np.sqrt((claimed**2).mean()) < 2.0
    # the estimates without the penalty, which tests are about, are those of all rows
    centre = (found["lower"] + found["upper"]) / 2.0 - (exact["lower"] + exact["upper"]) / 2.0
    assert (centre.abs() / exact["se"])[is_tested].max() < 0.1
    for of in ("pooled", ("yes", "no")):
        found, exact = (fit.inference().tests(of) for fit in (lazy, own))
        both = found["chisq"].notna() & exact["chisq"].notna() & (found["df"] == exact["df"])
        assert both.any()
        np.testing.assert_allclose(found["chisq"][both], exact["chisq"][both], rtol=0.2, atol=0.3)
    assert not found["test"].str.contains("exact").any()


def test_effects_without_errors_name_a_method_that_has_them(wide):
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        lazy = bbl.bbl("y ~ . + x0 * x1", lambda: iter([wide]), log_z="half", verbose=0)
    note = lazy.avg_predictions().note
    assert "Hint: Fit with method='conditional' and ridge=0." in note
    assert "bootstrap" not in note


@pytest.mark.parametrize("kind", ["folder", "duckdb"])
@pytest.mark.long
def test_all_rows_are_read_again_for_exact_errors(kind, wide, tmp_path):
    formula = "y ~ . + x0 * x1 + x2 * x5"
    source = lazydata.lazy(kind, wide, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        lazy = bbl.bbl(formula, source, tolerance=1e-12)
    own = bbl.bbl(formula, wide, tolerance=1e-12)
    columns = ["estimate", "se", "z", "p", "lower", "upper"]
    found, expected = lazy.inference(rows="all"), own.inference()
    assert found.note == expected.note
    for of in ("group", ("yes", "no")):
        assert_same(found.table(of)[columns], expected.table(of)[columns], 1e-6)
        assert found.table(of)["test"].equals(expected.table(of)["test"])


@pytest.mark.long
def test_a_strong_penalty_has_errors_but_no_tests(wide):
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        fit = bbl.bbl("y ~ . + x0 * x1", lambda: iter([wide]), lambda_=0.3)
    table = fit.inference().table()
    moved = table[table["test"] == "not tested: the penalty is too strong"]
    assert len(moved) and moved["se"].notna().all() and moved["p"].isna().all()


def test_naive_bayes_beyond_memory_is_exact(wide):
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        lazy = bbl.bbl("y ~ .", lambda: iter([wide]), method="naive")
    assert not lazy._kept.is_complete
    own = bbl.bbl("y ~ .", wide, method="naive")
    pd.testing.assert_series_equal(lazy.bse, own.bse, rtol=1e-10)
    columns = ["estimate", "se", "z", "p"]
    assert_same(
        lazy.inference().table(("yes", "no"))[columns],
        own.inference().table(("yes", "no"))[columns],
        1e-8,
    )
    assert "exact to" not in lazy.inference().note


def test_a_number_of_rows_samples_a_table_too(wide):
    fit = bbl.bbl("y ~ x0 * x1 + x2 * x5", wide)
    exact = fit.inference()
    few = fit.inference(rows=2000)
    assert "2,0" in few.note and (few.sampling_error > 0.0).any()
    both = few.bse.notna() & exact.bse.notna()
    assert both.mean() > 0.9
    np.testing.assert_allclose(few.bse[both], exact.bse[both], rtol=0.15)
    # the estimates without the penalty, which tests are about, come from all rows that are kept
    tables = [inference.table() for inference in (few, exact)]
    is_tested = (tables[0]["test"] == "Wald") & (tables[1]["test"] == "Wald")
    assert is_tested.mean() > 0.5
    found, expected = ((table["lower"] + table["upper"])[is_tested] for table in tables)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert fit.inference(rows="all").bse.equals(exact.bse)
    for rows, error in (("some", OptionError), (3, OptionError), (1.5, bbl.errors.BBLTypeError)):
        with pytest.raises(error):
            fit.inference(rows=rows)


def test_sums_over_kept_rows_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    n_levels = np.array([3, 2, 4])
    codes = np.column_stack([rng.integers(L, size=20_000) for L in n_levels]).astype(np.uint8)
    codes[:, 0] = np.where(codes[:, 0] == 2, 0, codes[:, 0])
    codes[[5, 7000], 0] = 2  # a rare level of two rows
    weights = np.where(np.arange(20_000) % 4000 == 3, 5e4, 1.0)  # five rows with half the weight
    file = CodeFile(3, np.uint8, weighted=True)
    file.append((0, 0), Sample(codes, weights))
    kept = keep_rows(file.finish(), n_levels, 1, size=1000, is_few=lambda n: n <= 1000)
    assert not kept.is_complete and kept.n_rows == (20_000,) and kept.n_kept[0] < 1100
    assert (kept.sample.codes[:, 0] == 2).sum() == 2
    assert (kept.sample.weights > 1e4).sum() == 5
    for found, expected in zip(
        level_counts(kept.sample.pooled, n_levels),
        level_counts(Sample(codes, weights), n_levels),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    thinner = kept.thinned(500, n_levels)
    assert thinner.n_kept[0] < 600 and (thinner.sample.codes[:, 0] == 2).sum() == 2
    np.testing.assert_allclose(thinner.sample.total, weights.sum(), rtol=1e-10)


def test_scarce_levels_are_drawn_as_often_as_possible():
    rng = np.random.default_rng(1)
    n = 100_000
    codes = np.column_stack([rng.choice(4, n, p=p) for p in ([0.5, 0.3, 0.193, 0.007], [0.25] * 4)])
    sample = Sample(codes.astype(np.uint8), np.ones(n))
    n_levels = np.array([4, 4])
    file = CodeFile(2, np.uint8)
    for block in sample.blocks(7000):
        file.append((0, 0), block)
    kept = keep_rows(file.finish(), n_levels, 1, size=20_000, is_few=lambda _: False)
    is_scarce = kept.sample.codes[:, 0] == 3
    assert is_scarce.sum() == (codes[:, 0] == 3).sum()
    assert (kept.expansion[is_scarce] == 1.0).all()
    assert abs(kept.n_kept[0] - 20_000) < 500
    # the sum of the expansions estimates the number of rows without bias
    assert abs(kept.expansion.sum() / n - 1.0) < 0.03
    few = balanced_rates(level_counts(sample, n_levels), n, 1000)
    drawn, expansion = few.draw(sample, 0)
    in_parts = [few.draw(block, k * 7000)[0] for k, block in enumerate(sample.blocks(7000))]
    assert np.array_equal(drawn, np.concatenate([k * 7000 + d for k, d in enumerate(in_parts)]))
    # not all rows of the scarce level fit into half of 1,000, but far more than in proportion
    assert 100 < (codes[drawn, 0] == 3).sum() < 500
    assert abs(len(drawn) - 1000) < 150
    assert abs(expansion.sum() / n - 1.0) < 0.15


def test_rows_of_single_effects_and_explanations_have_no_order(table):
    fit = bbl.bbl("y ~ x0 * x1", lambda: iter([table]))
    for call_ in (fit.explain, lambda: fit.comparisons("x0"), fit.predict):
        with pytest.raises(DataError, match="training rows"):
            call_()


@pytest.mark.parametrize("kind", lazydata.KINDS)
@pytest.mark.thinned(3)
def test_sample_rows_does_not_depend_on_the_source(kind, table, tmp_path):
    drawn = bbl.sample_rows(lazydata.lazy(kind, table, tmp_path), 50, seed=3)
    expected = bbl.sample_rows(table, 50, seed=3)
    assert drawn.index.equals(expected.index) and len(drawn) == 50
    assert (
        drawn.astype(str).to_numpy().tolist()
        == table.loc[drawn.index].astype(str).to_numpy().tolist()
    )


@pytest.mark.long
def test_sample_rows_are_drawn_with_equal_probability():
    data = pd.DataFrame({"row": np.arange(40)})
    rng = np.random.default_rng(0)
    counts = np.zeros(40)
    for _ in range(400):
        rows = bbl.sample_rows(lambda: (data[k : k + 7] for k in range(0, 40, 7)), 10, seed=rng)
        assert rows["row"].is_monotonic_increasing
        counts[rows["row"]] += 1
    # binomial: mean 100, standard deviation 8.7
    assert np.abs(counts - 100).max() < 4 * 8.7
    assert len(bbl.sample_rows(data, 100)) == 40
    with pytest.raises(OptionError):
        bbl.sample_rows(data, 0)
