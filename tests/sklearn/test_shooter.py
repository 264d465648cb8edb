"""ShooterClassifier and ShooterFeatures: scikit-learn's own checks, agreement with `shooter`, and
pipelines.
"""

import numpy as np
import pandas as pd
import pytest

import bbl

pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils.estimator_checks import estimator_checks_generator  # noqa: E402

from bbl.sklearn import ShooterClassifier, ShooterFeatures  # noqa: E402

KINDS = (ShooterClassifier(1, 2.0, nfold=2), ShooterFeatures(2))
# with cross-validated refits of three classes, of thirty levels each; raw weights are quick
COSTLY = {
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_f_contiguous_array_estimator",
    "check_fit2d_predict1d",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_sample_weight_equivalence_on_dense_data",
}


def check_name(check):
    return getattr(check, "func", check).__name__


def cases():
    """Yield estimators and their checks; of the costly ones a quick variant, and the whole among
    the long tests.
    """
    for kind in KINDS:
        for estimator, check in estimator_checks_generator(kind):
            name, marks = f"{type(estimator).__name__}-{check_name(check)}", ()
            # scipy must know of it before its import: test_array_api
            if check_name(check) == "check_array_api_input":
                continue
            if check_name(check) in COSTLY and isinstance(estimator, ShooterClassifier):
                yield pytest.param(
                    clone(estimator).set_params(refit=False), check, id=f"{name}-raw"
                )
                marks = pytest.mark.long
            yield pytest.param(estimator, check, id=name, marks=marks)


@pytest.mark.filterwarnings("ignore::bbl.errors.DataWarning")  # some checks give continuous arrays
# whose values separate the classes
@pytest.mark.filterwarnings("ignore::bbl.errors.ConvergenceWarning")
@pytest.mark.parametrize(("estimator", "check"), list(cases()))
@pytest.mark.thinned(3)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 2, (400, 2)), columns=["b", "c"])
    X.insert(0, "a", rng.choice(["x", "y", "z"], 400))
    y = ((X["a"] == "y") & (X["b"] == 1)) ^ (rng.random(400) < 0.1)
    return X, y.map({True: "yes", False: "no"})


def test_the_model_is_that_of_the_formula_to_the_last_bit(table):
    X, y = table
    w = np.arange(400) % 3
    model = ShooterClassifier(2, 12.0, refit=True).fit(X, y, w)
    fit = bbl.shooter("y ~ .", X.assign(y=y), w, order=2, lambda_=12.0, refit=True)
    np.testing.assert_array_equal(model.predict_proba(X), fit.predict(X, type="prob").iloc[:, :-1])
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.result_.coef().equals(fit.coef()) and (0, 1) in fit.chosen


def test_a_regression_on_the_features_is_the_refit(table):
    X, y = table
    fit = bbl.shooter("y ~ .", X.assign(y=y), order=2, lambda_=12.0, refit=True)
    made = make_pipeline(ShooterFeatures(2, 12.0), LogisticRegression(C=1e12, tol=1e-10)).fit(X, y)
    assert np.allclose(made.predict_proba(X), fit.predict(type="prob").iloc[:, :-1], atol=1e-5)
    assert made[0].get_feature_names_out().tolist() == ["a[1]", "a[2]", "b", "a:b[1]", "a:b[2]"]


def test_unknown_levels_and_dropped_rows(table):
    X, y = table
    model = ShooterFeatures(2, 12.0, missing="drop").fit(X, y)
    new = X.head(3).astype(object)
    new.loc[0, "a"] = "never seen"
    new.loc[1, "b"] = None
    out = model.transform(new)
    assert (out[0, [0, 1, 3, 4]] == 0).all() and abs(out[0, 2]) == 1
    assert np.isnan(out[1]).all() and np.isfinite(out[2]).all()
    with pytest.raises(ValueError, match="'a' has unknown levels"):
        model.set_params(unseen="raise").transform(new)


def test_more_orders_than_columns_are_as_many_as_there_are(table):
    X, y = table
    assert ShooterClassifier(9, 6.0, refit=False).fit(X[["b"]], y).result_.penalties == (6.0,)
