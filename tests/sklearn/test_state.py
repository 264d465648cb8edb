"""Fitted estimators go to other processes and files as plain values, which pickle, joblib and skops
have names for.
"""

import importlib.util
import pickle
import subprocess
import sys

import numpy as np
import pytest

from bbl.sklearn import (
    BBLClassifier,
    BNClassifier,
    PrototypeBiclustering,
    ScoreFeatures,
    ShooterClassifier,
    ShooterFeatures,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = np.where(X[:, 0] + RNG.normal(size=120) > 0, "up", "down")
CODES = (X > 0).astype(int)
PLAIN = (str, int, float, bool, type(None), np.generic)
ESTIMATORS = {
    "pseudo": BBLClassifier("pseudo", class_weight="balanced"),
    "auto": BBLClassifier(),
    "network": BNClassifier(),
    "aode": BNClassifier("aode"),
    "shooter": ShooterClassifier(2),
    "features": ShooterFeatures(2),
    "scores": ScoreFeatures(),
    "blocks": PrototypeBiclustering(),
}


def answers(model):
    """Return what a fitted estimator says of the rows."""
    if isinstance(model, PrototypeBiclustering):
        return model.row_labels_, model.result_.block_means.to_numpy()
    return (
        (model.predict_proba(CODES),)
        if hasattr(model, "predict_proba")
        else (model.transform(CODES),)
    )


def strange(value):
    """Return what in a state is neither plain, an array of plain values, nor an estimator of such a
    state.
    """
    if isinstance(value, dict):
        return [odd for item in (*value.keys(), *value.values()) for odd in strange(item)]
    if isinstance(value, list | tuple):
        return [odd for item in value for odd in strange(item)]
    if isinstance(value, np.ndarray):
        return strange(value.tolist()) if value.dtype == object else []
    if hasattr(value, "get_params"):
        return strange(value.__getstate__())
    return [] if isinstance(value, PLAIN) else [value]


@pytest.mark.filterwarnings(
    "ignore::bbl.errors.DataWarning", "ignore::bbl.errors.ConvergenceWarning"
)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_state_of_a_fitted_estimator_is_plain_and_whole(name):
    model = ESTIMATORS[name].fit(CODES, Y)
    assert strange(model.__getstate__()) == []
    again = pickle.loads(pickle.dumps(model))  # noqa: S301  # its own bytes
    for one, other in zip(answers(model), answers(again), strict=True):
        np.testing.assert_array_equal(one, other)
    assert type(again.__dict__.get("result_")) is type(model.__dict__.get("result_"))


SKOPS = """
import numpy as np, skops.io as io
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer
from bbl.sklearn import BBLClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
y = (X[:, 0] + rng.normal(size=120) > 0).astype(int)
pipeline = make_pipeline(KBinsDiscretizer(4, encode="ordinal"), BBLClassifier("pseudo", lambda_=0.1)).fit(X, y)
content = io.dumps(pipeline)
unknown = io.get_untrusted_types(data=content)
assert unknown == ["bbl.sklearn.boltzmann.BBLClassifier"], unknown
assert (io.loads(content, trusted=unknown).predict_proba(X) == pipeline.predict_proba(X)).all()
"""  # noqa: E501


@pytest.mark.skipif(importlib.util.find_spec("skops") is None, reason="skops is not installed")
@pytest.mark.long
def test_skops_writes_and_reads_a_pipeline():
    # away from tests/sparse, which skops would import
    subprocess.run([sys.executable, "-c", SKOPS], check=True)
