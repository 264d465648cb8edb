"""Folds as weights, pooled scores, and the labelled results of crossVal."""

import numpy as np
import pandas as pd
import pytest
import reference as oracle

import bbl
from bbl.errors import OptionError
from bbl.rows.folds import consecutive_folds, shuffled_folds, splitter_folds
from bbl.rows.sample import Sample


def make_sample(weights, y):
    n = len(y)
    return Sample(np.arange(n, dtype=np.uint8)[:, None] % 2, np.asarray(weights, dtype=float), np.asarray(y))


@pytest.mark.parametrize("nfold", [2, 3, 5])
def test_consecutive_folds_are_those_of_r(nfold):
    y = np.random.default_rng(0).integers(0, 3, 50)
    sample = make_sample(np.ones(50), y)
    for got, expected in zip(
        consecutive_folds(sample, nfold).expanded_rows(sample), oracle.contiguous_folds(y, nfold), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_weights_are_cut_as_if_rows_were_repeated():
    weights, y = np.array([3, 1, 4, 1, 5, 9, 2]), np.array([0, 1, 0, 1, 1, 0, 0])
    sample = make_sample(weights, y)
    folds = consecutive_folds(sample, 4)
    expected = oracle.contiguous_folds(np.repeat(y, weights), 4)
    for got, rows in zip(folds.expanded_rows(sample), expected, strict=True):
        np.testing.assert_array_equal(got, rows)
    np.testing.assert_array_equal(folds.held.sum(axis=0), weights)


def test_a_group_smaller_than_the_number_of_folds():
    sample = make_sample([1, 1, 20], [0, 0, 1])
    held = consecutive_folds(sample, 5).held
    np.testing.assert_array_equal(held.sum(axis=0), [1, 1, 20])
    np.testing.assert_array_equal(held[:, 0], [1, 0, 0, 0, 0])


def test_shuffled_folds_keep_sizes_and_differ():
    sample = make_sample([3, 1, 4, 1, 5, 9, 2], [0, 1, 0, 1, 1, 0, 0])
    one = shuffled_folds(sample, 3, np.random.default_rng(1)).held
    again = shuffled_folds(sample, 3, np.random.default_rng(1)).held
    other = shuffled_folds(sample, 3, np.random.default_rng(2)).held
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    np.testing.assert_array_equal(one.sum(axis=0), sample.weights)
    for y in (0, 1):
        regular = consecutive_folds(sample, 3).held[:, sample.y == y].sum(axis=1)
        np.testing.assert_array_equal(one[:, sample.y == y].sum(axis=1), regular)


def test_splitter_folds():
    sklearn = pytest.importorskip("sklearn.model_selection")
    y = np.repeat([0, 1], 10)
    sample = make_sample(np.arange(1, 21), y)
    held = splitter_folds(sample, sklearn.StratifiedKFold(4)).held
    np.testing.assert_array_equal(held.sum(axis=0), sample.weights)
    with pytest.raises(OptionError, match="cv"):
        splitter_folds(sample, [(np.arange(10), np.arange(10, 20))])


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


def test_grid_scores_are_those_of_single_settings(titanic):
    grid = [1e-3, 1e-1]
    args = {"weights": "Freq", "lambdah": 1e-3, "shuffle": True, "seed": 5, "nfold": 3}
    both = bbl.crossVal("Survived ~ .^2", titanic, lambda_=grid, **args)
    for k, value in enumerate(grid):
        one = bbl.crossVal("Survived ~ .^2", titanic, lambda_=value, **args)
        np.testing.assert_allclose(one.cvframe.iloc[0], both.cvframe.iloc[k], atol=1e-9)
    assert both.cvframe.columns.tolist() == ["lambda", "AUC", "ci1", "ci2"]
    assert both.maxscore == both.cvframe["AUC"].max()
    assert both.regstar in grid


def test_weighted_and_expanded_data_give_the_same_table(titanic):
    raw = bbl.freq2raw(titanic, "Freq")
    for method, grid in (("mf", {"eps": [0.2, 0.9]}), ("pseudo", {"lambda_": [0.01, 0.1], "lambdah": 0.01})):
        one = bbl.crossVal("Survived ~ .^2", titanic, "Freq", method, **grid)
        other = bbl.crossVal("Survived ~ .^2", raw, None, method, **grid)
        np.testing.assert_allclose(one.cvframe, other.cvframe, atol=1e-9)
        for a, b in zip(one.folds, other.folds, strict=True):
            np.testing.assert_array_equal(a, b)


def test_results_do_not_depend_on_n_jobs(titanic):
    args = {"weights": "Freq", "method": "mf", "eps": [0.1, 0.5, 0.9]}
    tables = [bbl.crossVal("Survived ~ .^2", titanic, n_jobs=k, **args).cvframe for k in (1, 2, 4)]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0], check_exact=True)


def test_refit_and_the_last_fold(titanic):
    args = {"weights": "Freq", "method": "mf", "eps": [0.5, 0.9]}
    cv = bbl.crossVal("Survived ~ .^2", titanic, **args)
    again = bbl.bbl("Survived ~ .^2", titanic, "Freq", "mf", eps=cv.regstar)
    pd.testing.assert_frame_equal(cv.predict(titanic), again.predict(titanic))
    last = bbl.crossVal("Survived ~ .^2", titanic, refit=False, **args)
    assert last.model.nobs() < again.nobs()
    assert (last.predict(titanic).iloc[:, :2] != again.predict(titanic).iloc[:, :2]).any().any()


@pytest.mark.parametrize("score", ["accuracy", "logloss", "brier"])
def test_other_scores(titanic, score):
    cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", "mf", eps=[0.1, 0.9], score=score, shuffle=True, seed=0)
    assert cv.cvframe.columns.tolist() == ["epsilon", "score"]
    best = cv.cvframe["score"].max() if score == "accuracy" else cv.cvframe["score"].min()
    assert cv.maxscore == best


def test_pooled_predictions_hold_every_observation_once(titanic):
    cv = bbl.crossVal("Survived ~ Class", titanic, "Freq", "naive")
    assert cv.observed["weights"].sum() == titanic["Freq"].sum()
    hits = cv.observed["weights"] @ (cv.pooled["yhat"] == cv.observed["y"])
    accuracy = bbl.crossVal("Survived ~ Class", titanic, "Freq", "naive", use_auc=False).maxscore
    assert hits / 2201 == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"nfold": 0}, "nfold"),
        ({"nfold": 1}, "nfold"),
        ({"nfold": -1}, "nfold"),
        ({"nfold": 1.5}, "nfold"),
        ({"nfold": 2202}, "nfold"),
        ({"nfold": "five"}, "nfold"),
        ({"score": "f1"}, "score"),
        ({"use_auc": "no"}, "use_auc"),
        ({"lambda_": []}, "lambda_"),
        ({"lambda_": [1.0, -1.0]}, "lambda_"),
        ({"lambda_": "x"}, "lambda_"),
        ({"shuffle": 1}, "shuffle"),
        ({"shuffle": True, "seed": "x"}, "seed"),
        ({"shuffle": True, "seed": np.random.RandomState(0)}, "seed"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"log_z": "best"}, "log_z"),
    ],
)
def test_bad_options_are_named(titanic, options, name):
    with pytest.raises(bbl.BBLError, match=name) as caught:
        bbl.crossVal("Survived ~ .", titanic, "Freq", **options)
    assert caught.value.argument == name
