"""Pooled scores and the labelled results of crossVal; its folds against those of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import reference as oracle

import bbl
from bbl.errors import OptionError

ORDERED = "over the consecutive folds more unevenly"
# of penalties that only matter here
STIFF = pytest.mark.filterwarnings("ignore:On the held-out rows, the log-loss")


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


@pytest.mark.long
@STIFF
def test_weighted_and_expanded_data_give_the_same_table(titanic):
    raw = bbl.freq2raw(titanic, "Freq")
    for method, grid in (
        ("mf", {"eps": [0.2, 0.9]}),
        ("pseudo", {"lambda_": [0.01, 0.1], "lambdah": 0.01}),
    ):
        with pytest.warns(bbl.DataWarning, match=ORDERED):
            one = bbl.crossVal("Survived ~ .^2", titanic, "Freq", method, **grid)
        with pytest.warns(bbl.DataWarning, match=ORDERED):
            other = bbl.crossVal("Survived ~ .^2", raw, None, method, **grid)
        np.testing.assert_allclose(one.cvframe, other.cvframe, atol=1e-9)
        counts = np.split(one.observed["weights"], np.cumsum([len(f) for f in one.folds])[:-1])
        for a, b in zip(
            oracle.expanded_folds(one.folds, counts, titanic["Freq"]), other.folds, strict=True
        ):
            np.testing.assert_array_equal(a, b)
        shuffled = [
            bbl.crossVal("Survived ~ .^2", data, w, method, shuffle=True, seed=1, **grid).cvframe
            for data, w in ((titanic, "Freq"), (raw, None))
        ]
        np.testing.assert_allclose(*shuffled, atol=1e-9)


def test_results_do_not_depend_on_n_jobs(titanic):
    args = {"weights": "Freq", "method": "mf", "eps": [0.1, 0.5, 0.9], "shuffle": True, "seed": 1}
    tables = [bbl.crossVal("Survived ~ .^2", titanic, n_jobs=k, **args).cvframe for k in (1, 2, 4)]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0], check_exact=True)


def test_refit_and_the_last_fold(titanic):
    args = {"weights": "Freq", "method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
    cv = bbl.crossVal("Survived ~ .^2", titanic, **args)
    again = bbl.bbl("Survived ~ .^2", titanic, "Freq", "mf", eps=cv.regstar)
    pd.testing.assert_frame_equal(cv.predict(titanic), again.predict(titanic))
    last = bbl.crossVal("Survived ~ .^2", titanic, refit=False, **args)
    assert last.model.nobs() < again.nobs()
    assert (last.predict(titanic).iloc[:, :2] != again.predict(titanic).iloc[:, :2]).any().any()


@pytest.mark.parametrize("score", ["accuracy", "logloss", "brier"])
def test_other_scores(titanic, score):
    cv = bbl.crossVal(
        "Survived ~ .^2", titanic, "Freq", "mf", eps=[0.1, 0.9], score=score, shuffle=True, seed=0
    )
    assert cv.cvframe.columns.tolist() == ["epsilon", "score"]
    best = cv.cvframe["score"].max() if score == "accuracy" else cv.cvframe["score"].min()
    assert cv.maxscore == best


def test_pooled_predictions_hold_every_observation_once(titanic):
    dealt = {"shuffle": True, "seed": 1}
    cv = bbl.crossVal("Survived ~ Class", titanic, "Freq", "naive", **dealt)
    assert cv.observed["weights"].sum() == titanic["Freq"].sum()
    hits = cv.observed["weights"] @ (cv.pooled["yhat"] == cv.observed["y"])
    accuracy = bbl.crossVal(
        "Survived ~ Class", titanic, "Freq", "naive", use_auc=False, **dealt
    ).maxscore
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


def table(n, seed, K=2):
    """Four predictors that go with the response, every level in every third of the rows."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    data = {
        f"x{i}": np.where(rng.random(n) < 0.5, (y + i) % 3, rng.integers(0, 3, n)) for i in range(4)
    }
    return pd.DataFrame({"y": np.array(["no", "yes", "so"])[y], **data})


@pytest.fixture(scope="module")
def splits():
    """Positions of training and validation rows in 180 rows, some of which hold positions in no
    part of a fold.
    """
    sklearn = pytest.importorskip("sklearn.model_selection")
    X, groups = np.zeros((180, 1)), np.random.default_rng(0).integers(0, 9, 180)
    splitters = {
        "KFold": sklearn.KFold(4),
        "ShuffleSplit": sklearn.ShuffleSplit(4, train_size=0.3, test_size=0.2, random_state=1),
        "TimeSeriesSplit": sklearn.TimeSeriesSplit(3),
        "GroupKFold": list(sklearn.GroupKFold(3).split(X, None, groups)),
        "repeats": [
            (np.r_[:90, :30], np.r_[90:120, 100:110]),
            (np.arange(180) % 2 == 0, np.arange(180) % 2 == 1),
        ],
    }
    return {k: (s, list(s.split(X)) if hasattr(s, "split") else s) for k, s in splitters.items()}


@STIFF
@pytest.mark.parametrize(
    "name", ["KFold", "ShuffleSplit", "TimeSeriesSplit", "GroupKFold", "repeats"]
)
@pytest.mark.parametrize(
    "what", ["plain", "weights", "weights of zero", "missing dropped", "missing summed out"]
)
@pytest.mark.thinned(3)
def test_training_and_validation_rows_are_those_of_scikit_learn(splits, name, what):
    from sklearn import config_context
    from sklearn.model_selection import cross_val_score

    from bbl.sklearn import BBLClassifier

    data, (cv, pairs), rng = table(180, 5), splits[name], np.random.default_rng(2)
    X, y = data.drop(columns="y").astype(object), data["y"]
    missing = {"missing dropped": "drop", "missing summed out": "marginal"}.get(what, "raise")
    weights = np.ones(180, dtype=int)
    if what.startswith("weights"):
        weights = rng.integers(0 if "zero" in what else 1, 4, 180)
    if missing != "raise":
        X = X.mask(rng.random(X.shape) < 0.05)
    used = weights > 0
    if missing == "drop":  # scikit-learn would score rows without an answer
        used &= ~X.isna().any(axis=1).to_numpy()
        rows = np.arange(180)
        pairs = [[rows[part][used[rows[part]]] for part in pair] for pair in pairs]
    model = BBLClassifier("pseudo", lambda_=0.05, lambdah=0.05, missing=missing, log_z="exact")
    with config_context(enable_metadata_routing=True):
        model = model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        expected = cross_val_score(
            model, X, y, cv=pairs, params={"sample_weight": weights}, error_score="raise"
        )
    got = bbl.crossVal(
        "y ~ .^2",
        X.assign(y=y),
        weights,
        lambda_=0.05,
        lambdah=0.05,
        missing=missing,
        log_z="exact",
        cv=cv,
        verbose=0,
    )
    hit = (got.pooled["yhat"].astype(object) == got.observed["y"].astype(object)).to_numpy()
    fold = np.repeat(np.arange(len(got.folds)), [len(f) for f in got.folds])
    w = got.observed["weights"].to_numpy()
    np.testing.assert_allclose(
        np.bincount(fold, w * hit) / np.bincount(fold, w), expected, atol=1e-12
    )
    for rows, (_, validation) in zip(got.folds, pairs, strict=True):
        chosen = np.arange(180)[validation]
        np.testing.assert_array_equal(np.sort(rows), np.unique(chosen[used[chosen]]))


@STIFF
def test_the_model_of_the_last_fold_has_its_training_rows():
    data, rows = table(60, 1), np.arange(60)
    folds = [(rows[:30], rows[50:]), (rows[10:30], rows[30:40])]
    settings = {
        "lambda_": 0.1,
        "lambdah": 0.1,
        "xlevels": {f"x{i}": [0, 1, 2] for i in range(4)},
        "verbose": 0,
    }
    cv = bbl.crossVal("y ~ .^2", data, cv=folds, refit=False, **settings)
    assert cv.model.model_frame.index.tolist() == list(range(10, 30)) and cv.model.nobs() == 20
    again = bbl.bbl("y ~ .^2", data.iloc[10:30], testNull=False, **settings)
    np.testing.assert_array_equal(
        cv.model.estimate.parameters.theta, again.estimate.parameters.theta
    )


def test_a_splitter_sees_the_rows_of_the_data():
    data, seen = table(60, 3), []
    data["ward"] = np.arange(60) % 3

    class ByWard:
        def split(self, X, y, groups=None):
            seen.append((len(X), len(y)))
            for ward in range(3):
                yield np.flatnonzero(X["ward"] != ward), np.flatnonzero(X["ward"] == ward)

    weights = np.arange(60) % 4
    for table_ in (data, data.to_dict("list")):
        cv = bbl.crossVal("y ~ . - ward", table_, weights, "naive", cv=ByWard(), verbose=0)
        for ward, rows in enumerate(cv.folds):
            np.testing.assert_array_equal(
                np.sort(rows), np.flatnonzero((np.arange(60) % 3 == ward) & (weights > 0))
            )
    assert seen == [(60, 60)] * 2


@pytest.mark.parametrize(
    ("cv", "match"),
    [
        ([(np.arange(30), [])] * 2, "has no validation rows"),
        ([([], np.arange(30)), (np.arange(30), [31])], "Fold 1 of cv has no training rows"),
        ([(np.arange(30), [60]), (np.arange(30), [31])], "60"),
        ([(np.arange(30), [0.5]), (np.arange(30), [31])], "integer"),
        ([(np.arange(30), [31])], "at least 2 folds"),
        ([np.arange(30)] * 2, "cannot split these [0-9]+ rows into folds"),
        (5, "nfold"),
        ("x", "cannot split these [0-9]+ rows into folds"),
    ],
)
def test_folds_that_are_none_are_refused(cv, match):
    with pytest.raises(OptionError, match=match) as caught:
        bbl.crossVal("y ~ .", table(60, 1), cv=cv)
    assert caught.value.argument == "cv"


def test_a_splitter_of_groups_without_groups_names_the_remedy():
    sklearn = pytest.importorskip("sklearn.model_selection")
    with pytest.raises(OptionError, match=r"splitter.split\(X, y, groups\)"):
        bbl.crossVal("y ~ .", table(60, 1), cv=sklearn.GroupKFold(3))


@STIFF
def test_weights_of_a_thousand_million_are_never_expanded():
    data = table(20, 7)
    data["n"] = 10**9
    settings = {"lambda_": 0.1, "lambdah": 0.1, "verbose": 0}
    for cv in ({"shuffle": True, "seed": 1}, {"cv": [(np.arange(10), np.arange(10, 20))] * 2}):
        found = bbl.crossVal("y ~ .", data, "n", **settings, **cv)
        assert found.observed["weights"].sum() == 20e9 and sum(map(len, found.folds)) <= 100
    with pytest.warns(bbl.DataWarning, match=ORDERED):
        assert bbl.crossVal("y ~ .", data, "n", **settings).observed["weights"].sum() == 20e9
    tuned = bbl.bbl(
        "y ~ .", data, "n", lambda_="cv", lambdah=0.1, calibrate="temperature", verbose=0
    )
    assert tuned.tuning.loss.min() > 0 and tuned.nobs() == 20e9


def test_shuffled_folds_of_a_weighted_table_hold_what_is_expected_of_them():
    data = table(40, 7)
    weights = np.where(np.arange(40) % 2, 10**9, 3)
    cv = bbl.crossVal("y ~ .", data, weights, "naive", shuffle=True, seed=1, verbose=0)
    fold = np.repeat(np.arange(5), [len(f) for f in cv.folds])
    rows, held = np.concatenate(cv.folds), cv.observed["weights"].to_numpy()
    np.testing.assert_array_equal(np.bincount(rows, held), weights)
    heavy = rows % 2 == 1
    # a fifth of each row's copies, within six standard deviations of a hypergeometric count
    assert (abs(held[heavy] - 2e8) < 6 * np.sqrt(1e9 * 0.16)).all() and len(np.unique(fold)) == 5
