"""Fits to data read in batches: the numbers of the same rows in memory, and what is not
there says so.
"""

from importlib.metadata import version

import lazydata
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import DataError, LevelError, OptionError


@pytest.fixture(scope="module")
def table():
    return lazydata.make_table(n=4000)


@pytest.fixture(scope="module")
def few(table):
    return table.head(1500)


@pytest.fixture(scope="module")
def source(table, tmp_path_factory):
    return lazydata.lazy("folder", table, tmp_path_factory.mktemp("lazy"))


def assert_same_fit(lazy, own, new, tolerance=1e-14):
    np.testing.assert_allclose(
        lazy.estimate.parameters.theta, own.estimate.parameters.theta, rtol=0, atol=tolerance
    )
    assert lazy.labels == own.labels and lazy.nobs() == own.nobs()
    np.testing.assert_allclose(lazy.estimate.log_z, own.estimate.log_z, rtol=1e-12)
    np.testing.assert_allclose(lazy.logLik(), own.logLik(), rtol=1e-12)
    np.testing.assert_allclose(lazy.lkh, own.lkh, rtol=1e-12)
    assert lazy.logLik().df == own.logLik().df
    if lazy.design.classes:
        a, b = (fit.predict(new, type="prob").iloc[:, :-1] for fit in (lazy, own))
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("kind", lazydata.KINDS)
@pytest.mark.thinned(3)
def test_naive_bayes_is_that_of_the_table_to_the_last_bit(kind, few, tmp_path):
    lazy = bbl.bbl("y ~ .", lazydata.lazy(kind, few, tmp_path), method="naive")
    assert_same_fit(lazy, bbl.bbl("y ~ .", few, method="naive"), few.head(50), 0.0)


@pytest.mark.parametrize("formula", ["y ~ .^2", "~ .^2", "y ~ x0 * x1 + x2"])
@pytest.mark.parametrize("log_z", ["auto", "pseudo", "half", "mf"])
@pytest.mark.thinned(5)
def test_mean_field_is_that_of_the_table(formula, log_z, table, source):
    lazy, own = (
        bbl.bbl(formula, data, method="mf", eps=0.5, log_z=log_z) for data in (source, table)
    )
    assert_same_fit(lazy, own, table.head(50))
    assert str(lazy.summary()).replace("data = data", "") == str(own.summary()).replace(
        "data = data", ""
    )


@pytest.mark.parametrize("method", ["naive", "mf"])
@pytest.mark.parametrize("missing", ["drop", "level", "marginal"])
@pytest.mark.long
def test_weights_and_missing_values(method, missing, table, tmp_path):
    table = table.assign(n=np.arange(len(table)) % 4)
    table.loc[table.index % 7 == 0, "x1"] = None
    table.loc[table.index % 11 == 0, "x2"] = None
    source = lazydata.lazy("folder", table, tmp_path)
    lazy, own = (
        bbl.bbl("y ~ .^2", data, "n", method=method, missing=missing) for data in (source, table)
    )
    assert_same_fit(lazy, own, table.head(50))
    assert lazy.design.incomplete == own.design.incomplete > 0


@pytest.mark.long
def test_annealed_log_z_is_drawn_from_the_same_start(table, source):
    lazy, own = (
        bbl.bbl("y ~ x0 * x1 * x2 - x0:x1:x2", d, method="mf", log_z="ais", eps=0.5)
        for d in (source, table)
    )
    np.testing.assert_array_equal(lazy.estimate.log_z, own.estimate.log_z)


@pytest.mark.parametrize("formula", ["y ~ .^2", "y ~ x0 * x1"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.thinned(2)
def test_cross_validation_is_that_of_the_table(formula, shuffle, table, source):
    told = {"method": "mf", "eps": [0.0, 0.5, 0.9], "shuffle": shuffle, "seed": 2}
    lazy, own = (bbl.crossVal(formula, data, **told) for data in (source, table))
    np.testing.assert_allclose(lazy.cvframe, own.cvframe, rtol=1e-12)
    np.testing.assert_allclose(
        lazy.model.estimate.parameters.theta, own.model.estimate.parameters.theta, atol=1e-14
    )
    np.testing.assert_allclose(lazy.evaluate().accuracy, own.evaluate().accuracy, rtol=1e-12)
    last = bbl.crossVal(formula, source, refit=False, **told).model
    np.testing.assert_allclose(
        last.estimate.parameters.theta,
        bbl.crossVal(formula, table, refit=False, **told).model.estimate.parameters.theta,
    )


@pytest.mark.long
@pytest.mark.parametrize("score", ["accuracy", "logloss", "brier"])
def test_every_score_of_naive_bayes_and_its_calibration(score, table, source):
    told = {"method": "naive", "score": score, "calibrate": "temperature"}
    lazy, own = (bbl.crossVal("y ~ .", data, **told) for data in (source, table))
    np.testing.assert_allclose(lazy.cvframe, own.cvframe, rtol=1e-9)
    np.testing.assert_allclose(
        lazy.model.predict(table, "prob").iloc[:, 0], own.model.predict(table, "prob").iloc[:, 0]
    )


@pytest.mark.long
def test_tuning_and_calibration_inside_a_fit(table, source):
    lazy, own = (
        bbl.bbl("y ~ .^2", data, method="mf", eps="cv", calibrate="offset")
        for data in (source, table)
    )
    np.testing.assert_allclose(lazy.tuning.loss, own.tuning.loss, rtol=1e-9)
    assert lazy.engine.eps == own.engine.eps
    np.testing.assert_allclose(
        lazy.estimate.calibration.offset, own.estimate.calibration.offset, rtol=1e-6
    )


@pytest.mark.long
def test_left_out_rows_are_sampled_where_they_are_many(monkeypatch, table, source):
    whole = bbl.crossVal("y ~ .", source, method="naive").maxscore
    monkeypatch.setattr("bbl.rows.fold_assignment.MAX_VALIDATED_ROWS", 2000)
    found = bbl.crossVal("y ~ .", source, method="naive")
    assert len(found.observed) == 2000
    assert found.maxscore != whole and found.maxscore == pytest.approx(whole, abs=0.03)


def test_ordered_rows_are_warned_of(table, tmp_path):
    ordered = lazydata.lazy("folder", table.sort_values("x1"), tmp_path)
    with pytest.warns(bbl.DataWarning, match="The levels of 'x1' .* The rows are ordered"):
        bbl.crossVal("y ~ .", ordered, method="naive")


@pytest.mark.filterwarnings(
    "ignore:weights are not all integers:bbl.DataWarning", "error:The levels of:bbl.DataWarning"
)
def test_rows_of_large_weights_that_are_not_whole_do_not_look_ordered(table, tmp_path):
    weighted = lazydata.lazy("folder", table.assign(w=1000.5), tmp_path)
    bbl.crossVal("y ~ .", weighted, weights="w", method="naive", calibrate="temperature")


def test_a_fit_whose_probabilities_are_off_is_warned_of(table):
    copies = table[["y"]].assign(**{f"x{i}": table["x2"] for i in range(9)})
    with pytest.warns(
        bbl.DataWarning, match="On the training rows, the log-loss .* for the class proportions"
    ):
        bbl.bbl("y ~ .", lambda: iter([copies]), method="naive")


@pytest.mark.long
def test_the_model_has_no_training_rows_but_all_that_is_told_of_them(table, source, tmp_path):
    fit = bbl.bbl("y ~ .", source, method="naive")
    for what in (
        fit.fitted,
        fit.residuals,
        lambda: fit.model_frame,
        lambda: fit.weights,
        fit.predict,
        fit.explain,
    ):
        with pytest.raises(DataError, match="does not keep the order.*read in batches.*Hint"):
            what()
    assert fit.evaluate(table).accuracy > 0.5
    fit.save(tmp_path / "model.bbl")
    again = bbl.load(tmp_path / "model.bbl")
    assert again.logLik() == fit.logLik() and str(again.summary()) == str(fit.summary())


def test_what_needs_all_rows_says_so_before_any_is_read(source):
    def never():
        yield pd.DataFrame({"y": ["a", "b"], "x": [0, 1]})
        raise AssertionError("read")

    for method in ("pvi", "bayes", "shbm"):
        with pytest.raises(
            OptionError, match=f"method='{method}' requires all rows in memory.*'mf'.*'naive'"
        ):
            bbl.bbl("y ~ x", never, method=method)
    with pytest.raises(OptionError, match="method='auto' requires all rows in memory"):
        bbl.crossVal("y ~ x", never, method="auto")
    with pytest.raises(
        OptionError, match="cv, which gives row positions, requires all rows in memory"
    ):
        bbl.crossVal("y ~ x", never, method="naive", cv=[([0], [1]), ([1], [0])])


def test_more_folds_than_rows(source):
    with pytest.raises(
        OptionError, match=r"nfold must be between 2 and 4000, the number of rows; got 5000"
    ):
        bbl.crossVal("y ~ .", source, method="naive", nfold=5000)


# networks


@pytest.mark.parametrize("learner", ["nb", "tan_cl", "aode", "kdb"])
@pytest.mark.parametrize("features", [9, 3])
@pytest.mark.thinned(3)
def test_networks_are_those_of_the_table(learner, features, few, tmp_path):
    table = few[["y", *(f"x{i}" for i in range(features))]].assign(n=np.arange(len(few)) % 3 + 1)
    table.loc[table.index % 5 == 0, "x1"] = None
    table.loc[table.index % 77 == 0, "y"] = None
    args = {"dag_args": {"search": "information"}} if learner == "kdb" else {}
    told = {"smooth": 1, "weights": "n", **args}
    source = lazydata.lazy("folder", table, tmp_path)
    lazy, own = (bbl.networks.bnc(learner, "y ~ .", data, **told) for data in (source, table))
    if learner != "aode":
        assert lazy.modelstring == own.modelstring
        for one, other in ((lazy.params, own.params), (lazy.params_se, own.params_se)):
            assert one.keys() == other.keys()
            for name, frame in one.items():
                pd.testing.assert_frame_equal(frame, other[name])
    pd.testing.assert_frame_equal(lazy.predict(table), own.predict(table))
    assert lazy.nobs() == own.nobs()
    np.testing.assert_allclose(lazy.logLik(), own.logLik(), rtol=1e-12)
    lazy.save(tmp_path / "network.bbl")
    assert bbl.load(tmp_path / "network.bbl").summary().tables.keys() == own.summary().tables.keys()


def test_trees_of_unweighted_rows_are_counted_by_bits_in_blocks(monkeypatch, table, source):
    monkeypatch.setattr("bbl.bayesnet.information.BLOCK", 700)
    lazy, own = (bbl.networks.tan_cl("y", data) for data in (source, table))
    assert lazy.modelstring == own.modelstring


def test_structures_by_hand_and_averages_over_subsets(table, source):
    graph = bbl.networks.nb("y ~ .", source)
    lazy, own = (bbl.networks.lp(graph, data, smooth=1, manb_prior=0.5) for data in (source, table))
    np.testing.assert_allclose(lazy.manb_arc_posterior, own.manb_arc_posterior, rtol=1e-12)
    with pytest.raises(OptionError, match="wanbia requires all rows in memory"):
        bbl.networks.lp(graph, source, smooth=1, wanbia=True)
    with pytest.raises(OptionError, match="awnb_trees requires all rows in memory"):
        bbl.networks.bnc("nb", "y ~ .", source, awnb_trees=3)
    with pytest.raises(OptionError, match="learner='tan_hc' requires all rows in memory"):
        bbl.networks.tan_hc("y ~ .", source)
    with pytest.raises(OptionError, match=r"cv\(\) requires all rows in memory"):
        bbl.networks.cv(bbl.networks.lp(graph, source), source)


# predictions


@pytest.mark.parametrize("kind", lazydata.KINDS)
@pytest.mark.thinned(3)
def test_predictions_come_in_batches_with_the_rows_of_the_table(kind, few, tmp_path):
    fit = bbl.bbl("y ~ .", few, method="naive")
    frames = list(fit.predict(lazydata.lazy(kind, few, tmp_path), type="prob"))
    expected = fit.predict(few, type="prob")
    gives_a_million_rows = kind == "duckdb" and version("duckdb") < "2"
    assert len(frames) > 1 or kind in ("polars", "reader") or gives_a_million_rows
    whole = pd.concat(frames)
    assert whole.index.tolist() == expected.index.tolist()
    pd.testing.assert_frame_equal(whole, expected, check_index_type=False)


@pytest.mark.long
def test_predictions_are_written_to_parquet(table, source, tmp_path):
    for fit in (bbl.bbl("y ~ .", table, method="naive"), bbl.networks.bnc("nb", "y ~ .", table)):
        path = tmp_path / "predicted.parquet"
        assert fit.predict_batches(source, to=path) == len(table)
        pd.testing.assert_frame_equal(
            pd.read_parquet(path), fit.predict(table, type="prob"), check_dtype=False
        )
        assert fit.predict_batches(table, type="class", to=path) == len(table)
        assert pd.read_parquet(path)["y"].tolist() == fit.predict(table, type="class").tolist()


def test_predictions_that_fail_leave_no_file(table, tmp_path):
    fit = bbl.bbl("y ~ .", table, method="naive")

    def rows():
        yield table.head(10)
        yield table.head(10).assign(x1="new")

    with pytest.raises(LevelError, match="column 'x1' has unknown levels: 'new'"):
        fit.predict_batches(rows, to=tmp_path / "predicted.parquet")
    assert not list(tmp_path.iterdir())
    with pytest.warns(bbl.DataWarning, match="column 'x1' of newdata has only unknown levels"):
        assert fit.predict_batches(rows, unseen="ignore", to=tmp_path / "predicted.parquet") == 20
    with pytest.raises(DataError, match="newdata has no column 'x1'"):
        list(fit.predict(lambda: iter([table.drop(columns="x1")])))
    with pytest.raises(DataError, match="newdata is missing"):
        fit.predict_batches(None)


@pytest.mark.parametrize("type", ["prob", "class"])
def test_predictions_are_written_to_csv(table, source, tmp_path, type):
    fit = bbl.bbl("y ~ .", table, method="naive")
    path = tmp_path / "predicted.csv"
    assert fit.predict_batches(source, type, to=path) == len(table)
    expected = pd.DataFrame(fit.predict(table, type=type))
    assert path.read_text() == expected.to_csv(index=False, lineterminator="\n")
    assert list(tmp_path.glob("predicted*")) == [path]
    with pytest.raises(bbl.errors.OptionError, match=r"ends in \.csv or \.parquet"):
        fit.predict_batches(source, type, to=tmp_path / "predicted.xlsx")


@pytest.mark.parametrize("model", ["machine", "network"])
def test_predictions_of_polars_are_polars(table, model):
    pl = pytest.importorskip("polars")
    fit = (
        bbl.bbl("y ~ .", table, method="naive")
        if model == "machine"
        else bbl.networks.bnc("nb", "y ~ .", table)
    )
    new = table.astype(object).head(9)
    predicted = fit.predict(pl.DataFrame(new.to_dict("list")), type="prob")
    expected = fit.predict(new, type="prob")
    assert isinstance(predicted, pl.DataFrame)
    assert predicted.columns == list(map(str, expected.columns))
    np.testing.assert_array_equal(
        predicted[:, :-1].to_numpy(), expected.iloc[:, :-1].to_numpy(dtype=float)
    )
    classes = fit.predict(pl.DataFrame(new.to_dict("list")), type="class")
    assert classes.to_list() == fit.predict(new, type="class").tolist()
    assert predicted["yhat"].to_list() == classes.to_list()
