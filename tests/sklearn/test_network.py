"""BNClassifier: scikit-learn's own checks, agreement with `networks.bnc`, and what estimators are
put to.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.errors import OptionError

pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_predict  # noqa: E402
from sklearn.utils.estimator_checks import estimator_checks_generator  # noqa: E402

from bbl.sklearn import BBLClassifier, BNClassifier  # noqa: E402

KINDS = (
    BNClassifier(),
    BNClassifier("nb", missing="raise"),
    BNClassifier("aode"),
    BNClassifier("kdb", dag_args={"k": 2, "epsilon": 0.1}),
)
CHECKS = [pair for kind in KINDS for pair in estimator_checks_generator(kind)]


def check_name(check):
    return getattr(check, "func", check).__name__


# needs scipy to be told of the array API before it is imported
ELSEWHERE = {"check_array_api_input"}


@pytest.mark.filterwarnings("ignore::bbl.errors.DataWarning")  # some checks give continuous arrays
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(estimator, check, id=f"{estimator.learner}-{check_name(check)}")
        for estimator, check in CHECKS
        if check_name(check) not in ELSEWHERE
    ],
)
@pytest.mark.thinned(3)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


def test_the_model_is_that_of_the_formula_to_the_last_bit(titanic):
    X, y, w = (
        titanic.drop(columns=["Survived", "Freq"]),
        titanic["Survived"].astype(str),
        titanic["Freq"],
    )
    for options in ({}, {"learner": "nb", "manb_prior": 0.3}, {"learner": "aode", "smooth": 0.5}):
        model = BNClassifier(**options).fit(X, y, w)
        arguments = {"learner": "tan_cl", "smooth": 1.0, **options}
        learner, smooth = arguments.pop("learner"), arguments.pop("smooth")
        data = titanic.assign(Survived=y)
        fit = networks.bnc(learner, "Survived ~ .", data, smooth, weights="Freq", **arguments)
        np.testing.assert_array_equal(model.predict_proba(X), fit.predict(titanic).iloc[:, :-1])
        assert model.result_.structure.class_var == "Survived" and model.classes_.tolist() == [
            "No",
            "Yes",
        ]


def test_missing_cells_and_unknown_levels_are_summed_out():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 3, (90, 4)), columns=list("abcd")).astype(object)
    y = (X["a"] == X["b"]).astype(int)
    X = X.mask(rng.random(X.shape) < 0.1)
    model = BNClassifier("tan_cl").fit(X, y)
    new = X.head(9).copy()
    new.loc[0, "a"] = "never seen"
    blank = new.copy()
    blank.loc[0, "a"] = None
    np.testing.assert_array_equal(model.predict_proba(new), model.predict_proba(blank))
    with pytest.raises(ValueError, match="'a' has unknown levels"):
        clone(model).set_params(unseen="raise").fit(X, y).predict(new)
    dropped = BNClassifier("nb", missing="drop").fit(X, y)
    assert np.isnan(dropped.predict_proba(X)).any(axis=1).tolist() == X.isna().any(axis=1).tolist()


@pytest.mark.long
def test_settings_can_be_searched_and_predictions_cross_validated(titanic):
    data = bbl.freq2raw(titanic, "Freq").sample(frac=0.2, random_state=0).astype(str)
    X, y = data.drop(columns="Survived"), data["Survived"]
    search = GridSearchCV(
        BNClassifier(), {"learner": ["nb", "tan_cl", "aode"], "smooth": [0.1, 1.0]}, cv=3
    ).fit(X, y)
    assert search.best_score_ > 0.7
    assert cross_val_predict(BNClassifier("nb"), X, y, cv=3).shape == y.shape


def test_a_search_draws_by_the_random_state(titanic):
    X, y = titanic.drop(columns=["Survived", "Freq"]), titanic["Survived"].astype(str)
    logs = [
        BNClassifier("tan_hc", dag_args={"k": 4}, random_state=s)
        .fit(X, y, titanic["Freq"])
        .result_.score_log
        for s in (1, 1, 2)
    ]
    assert logs[0] == logs[1] != logs[2]


def test_bad_options_are_named(titanic):
    X, y = titanic[["Class"]], titanic["Survived"].astype(str)
    with pytest.raises(OptionError, match="learner='nbb' is unknown. Hint: Did you mean 'nb'"):
        BNClassifier("nbb").fit(X, y)
    with pytest.raises(OptionError, match="smooth must be in"):
        BNClassifier(smooth=-1).fit(X, y)


@pytest.mark.parametrize("make", [BNClassifier, BBLClassifier])
def test_class_weights_are_weights_of_the_rows_of_a_class(titanic, make):
    X, y, w = (
        titanic.drop(columns=["Survived", "Freq"]),
        titanic["Survived"].astype(str),
        titanic["Freq"],
    )
    options = (
        {"smooth": 0.0, "learner": "nb"}
        if make is BNClassifier
        else {"method": "pseudo", "lambdah": 1e-3}
    )
    weighted = make(class_weight={"Yes": 3}, **options).fit(X, y, w).predict_proba(X)
    repeated = make(**options).fit(X, y, w * np.where(y == "Yes", 3, 1)).predict_proba(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)
    balanced = make(class_weight="balanced", **options).fit(X, y, w)
    np.testing.assert_array_equal(balanced.result_.priors, [0.5, 0.5])
    for wrong, words in (
        ({"Maybe": 1}, "'Maybe'"),
        ("even", "'balanced'"),
        ({"Yes": -1}, "class_weight"),
        ({"Yes": 0, "No": 0}, "class a.*weight"),
    ):
        with pytest.raises(OptionError, match=words):
            make(class_weight=wrong, **options).fit(X, y, w)
