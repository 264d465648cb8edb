"""Estimators of ordered responses: the declared order, the order of columns, and refusals."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score

import bbl
from bbl.errors import LevelError
from bbl.sklearn import BBLClassifier

RNG = np.random.default_rng(0)
X = pd.DataFrame({name: RNG.integers(0, 3, 300).astype(str) for name in "ab"})
LATENT = X["a"].astype(int) - X["b"].astype(int) + RNG.logistic(size=300)
LEVELS = ["low", "mid", "high"]
Y = pd.Series(pd.Categorical.from_codes(np.digitize(LATENT, [-0.7, 0.9]), LEVELS, ordered=True))


def estimator(logits="cumulative", **options):
    return BBLClassifier(
        "conditional", pairs="none", options={"ridge": 0.0, "logits": logits, **options}
    )


@pytest.mark.long
@pytest.mark.parametrize("logits", ["adjacent", "cumulative"])
def test_columns_are_sorted_and_the_order_is_the_declared_one(logits):
    model = estimator(logits).fit(X, Y)
    assert model.classes_.tolist() == sorted(LEVELS)
    assert list(model.result_.labels.groups) == LEVELS
    fit = bbl.bbl(
        "y ~ a + b", X.assign(y=Y), method="conditional", ridge=0, logits=logits, verbose=0
    )
    p = fit.predict(X, type="prob")
    np.testing.assert_allclose(model.predict_proba(X), p[model.classes_.tolist()], atol=1e-14)
    assert (model.predict(X) == p["yhat"]).all()
    assert log_loss(Y.astype(str), model.predict_proba(X)) == pytest.approx(-fit.logLik() / 300)
    scores = cross_val_score(model, X, Y, cv=3, scoring="neg_log_loss")
    nominal = cross_val_score(estimator("nominal"), X, Y.astype(str), cv=3, scoring="neg_log_loss")
    np.testing.assert_allclose(scores, nominal, atol=0.05)


def test_numbers_are_in_order_and_strings_are_not():
    numbers = estimator().fit(X, Y.cat.codes.to_numpy() * 10)
    declared = estimator().fit(X, Y)
    np.testing.assert_allclose(numbers.result_.thresholds, declared.result_.thresholds)
    assert numbers.classes_.tolist() == [0, 10, 20]
    with pytest.raises(LevelError, match=r"y = pd.Categorical\(y, categories=\['high'"):
        estimator().fit(X, Y.astype(str))


def test_the_order_is_not_used_without_logits():
    declared = BBLClassifier("conditional").fit(X, Y)
    assert list(declared.result_.labels.groups) == sorted(LEVELS)
