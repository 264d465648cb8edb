"""New data: weights in the column of the fit's weights, columns of another type, and intervals and
dates as text.
"""

import datetime

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import DataError, DataWarning, LevelError

TITANIC = bbl.datasets.load_titanic()
PERSONS = bbl.freq2raw(TITANIC, "Freq")


@pytest.fixture(scope="module")
def fit():
    return bbl.bbl("Survived ~ Class*Sex + Age", TITANIC, weights="Freq", method="ml")


def effects(fit, newdata, **weights):
    return fit.avg_predictions(newdata=newdata, **weights).frame["estimate"].to_numpy()


JUDGED = {
    "score": lambda fit, new, **weights: fit.score(new, **weights),
    "pnll": lambda fit, new, **weights: fit.pnll(new, **weights),
    "evaluate": lambda fit, new, **weights: fit.evaluate(new, **weights).scores["estimate"],
    "confusion": lambda fit, new, **weights: fit.evaluate(new, **weights).confusion,
    "avg_predictions": effects,
    "avg_comparisons": lambda fit, new, **weights: fit.avg_comparisons(
        newdata=new, **weights
    ).frame["estimate"],
    "importance": lambda fit, new, **weights: [fit.importance(new, **weights).loss],
}


@pytest.mark.parametrize("name", JUDGED)
def test_the_column_of_the_weights_counts_in_new_data(name, fit, tmp_path):
    judge = JUDGED[name]
    right = np.asarray(judge(fit, PERSONS), dtype=float)
    assert np.asarray(judge(fit, TITANIC), dtype=float) == pytest.approx(right, rel=1e-9)
    fit.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl")
    assert np.asarray(judge(loaded, TITANIC), dtype=float) == pytest.approx(right, rel=1e-9)
    # cells count alike if asked, or without the column
    ones = np.ones(len(TITANIC))
    alike = np.asarray(judge(fit, TITANIC, weights=ones), dtype=float)
    without = np.asarray(judge(fit, TITANIC.drop(columns="Freq")), dtype=float)
    assert alike == pytest.approx(without)
    assert not np.allclose(alike, right)


def test_output_names_the_column_of_weights(fit):
    assert "new rows, weighted by 'Freq'" in str(fit.evaluate(TITANIC))
    assert "weighted" not in str(fit.evaluate(PERSONS))


def test_networks_and_files_have_the_weights_too(tmp_path):
    TITANIC.to_parquet(tmp_path / "cells.parquet")
    network = bbl.networks.bnc("nb", "Survived ~ .", TITANIC, weights="Freq", smooth=1)
    lazy = bbl.bbl("Survived ~ .", tmp_path / "cells.parquet", weights="Freq")
    for model in (network, lazy):
        assert model.score(TITANIC) == pytest.approx(model.score(PERSONS))


def test_weights_that_are_no_weights_in_new_data_are_named(fit):
    with pytest.raises(
        DataError, match="newdata has the column 'Freq', which contained the"
    ) as caught:
        fit.score(TITANIC.assign(Freq=-1))
    assert caught.value.argument == "weights" and "numpy.ones(len(newdata))" in caught.value.hint
    new = TITANIC.assign(Freq=-1)
    assert fit.score(new, weights=np.ones(len(new))) == pytest.approx(
        fit.score(TITANIC.drop(columns="Freq"))
    )


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.integers(1, 4, 400), "b": rng.integers(0, 2, 400)})
    return X, np.where(X["a"] == 3, "hi", "lo")


TYPES = {
    "numbers as text": (lambda x: x, str, r"pandas.to_numeric\((newdata|X)\['a'\]\)"),
    "text as numbers": (str, int, r"(newdata|X)\['a'\].astype\(str\)"),
    "booleans as numbers": (lambda x: x > 1, lambda x: int(x > 1), r"\['a'\].astype\(bool\)"),
    "booleans as text": (lambda x: x > 1, lambda x: str(x > 1), r"\['a'\] == \"True\""),
}


@pytest.mark.parametrize("kind", TYPES)
def test_columns_of_another_type_are_told(kind, numbers):
    fitted, given, advice = TYPES[kind]
    X, y = numbers
    a = X["a"].tolist()
    train = X.assign(a=[fitted(x) for x in a])
    new = X.assign(a=[given(x) for x in a])
    model = bbl.bbl("y ~ a + b", train.assign(y=y), lambdah=0.1, verbose=0)
    with pytest.raises(LevelError, match="unknown levels") as caught:
        model.predict(new)
    assert (
        caught.value.column == "a" and "the same type as in the training data" in caught.value.hint
    )
    with pytest.warns(DataWarning, match=f"Predictions ignore this column.*{advice}") as seen:
        model.predict(new, unseen="ignore")
    # the advice works
    advised = seen[0].message.hint.partition(", ")[2].partition(":")[0]
    right = eval(advised, {"pandas": pd, "newdata": new})  # noqa: S307
    assert model.predict(new.assign(a=right)).equals(model.predict(train))


@pytest.mark.long
@pytest.mark.parametrize("make", [bbl.BBLClassifier, lambda: bbl.BNClassifier(smooth=1)])
def test_estimators_say_that_types_differ(make, numbers):
    X, y = numbers
    model = make().fit(X, y)
    with pytest.warns(DataWarning, match="column 'a' of X has only unknown levels: '"):
        model.predict(X.astype({"a": str}))
    model.predict(X.astype(float))  # equal numbers


def test_a_column_without_known_values_is_told(numbers):
    X, y = numbers
    model = bbl.bbl("y ~ a + b", X.assign(y=y), lambdah=0.1, verbose=0)
    with pytest.warns(DataWarning, match="'a' of newdata has only unknown levels: 7"):
        model.predict(X.assign(a=7), unseen="ignore")
    model.predict(X.assign(a=7).head(3), unseen="ignore")  # a few rare rows
    model.predict(X.assign(a=[7, *X["a"][1:]]), unseen="ignore")  # one known value


def interval_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": pd.cut(rng.random(300), [0, 0.3, 0.6, 1])})
    return table.assign(y=np.where(rng.random(300) < 0.2 + 0.6 * (table["a"].cat.codes == 2), 1, 0))


@pytest.mark.parametrize("is_loaded", [False, True])
def test_intervals_are_their_text(is_loaded, tmp_path):
    table = interval_table()
    model = bbl.bbl("y ~ a", table)
    if is_loaded:
        model.save(tmp_path / "fit.bbl")
        model = bbl.load(tmp_path / "fit.bbl")
    expected = model.predict({"a": [0.1, 0.5, 0.9]}, "prob")
    for values in (
        ["(0.0, 0.3]", "(0.3, 0.6]", "(0.6, 1.0]"],
        ["(0,0.3]", "(0.30, 0.6]", "(0.6, 1]"],  # as R and others write them
        [pd.Interval(0, 0.3), pd.Interval(0.3, 0.6), pd.Interval(0.6, 1)],
    ):
        pd.testing.assert_frame_equal(model.predict({"a": values}, "prob"), expected)
    with pytest.raises(LevelError, match=r"unknown levels: '\[0, 0.3\)'"):
        model.predict({"a": ["[0, 0.3)"]})
    table.to_csv(tmp_path / "rows.csv", index=False)
    again = pd.read_csv(tmp_path / "rows.csv")
    pd.testing.assert_frame_equal(model.predict(again, "prob"), model.predict(table, "prob"))


def test_a_loaded_model_knows_its_own_draws(tmp_path):
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 2, 1)]
    table = interval_table().assign(day=pd.Categorical([days[k % 2] for k in range(300)]))
    model = bbl.bbl("~ a + day", table)
    model.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl")
    draws = loaded.sample(20, seed=0)
    pd.testing.assert_series_equal(
        loaded.score_samples(draws), model.score_samples(model.sample(20, seed=0))
    )
    # and a model that was fitted to text knows intervals
    as_text = bbl.bbl("y ~ a", table.assign(a=table["a"].astype(str)))
    assert (
        as_text.predict(table, "class").tolist()
        == bbl.bbl("y ~ a", table).predict(table, "class").tolist()
    )
