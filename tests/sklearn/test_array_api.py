"""The one check of scikit-learn's that needs scipy to be told of the array API before it is
imported.
"""

import os
import subprocess
import sys

import pytest

sklearn = pytest.importorskip("sklearn")

CODE = """
from bbl.sklearn import BBLClassifier, BinningTransformer, BNClassifier, PrototypeBiclustering, ScoreFeatures
from bbl.sklearn import ShooterClassifier, ShooterFeatures
from sklearn.utils.estimator_checks import estimator_checks_generator

quick = {"order": 1, "lambda_": 5.0, "refit": False}
machines = [BBLClassifier(method) for method in ("pseudo", "mf", "naive")]
networks = BNClassifier(), BNClassifier("aode")
others = PrototypeBiclustering(), BinningTransformer(), ScoreFeatures("mf")
for estimator in (*machines, *networks, *others, ShooterClassifier(**quick), ShooterFeatures(**quick)):
    for given, check in estimator_checks_generator(estimator):
        if getattr(check, "func", check).__name__ == "check_array_api_input":
            check(given)
            print(type(estimator).__name__)
"""  # noqa: E501


@pytest.mark.long
def test_arrays_of_the_array_api_are_taken():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    names = ["BBLClassifier"] * 3 + ["BNClassifier"] * 2
    names += ["PrototypeBiclustering", "BinningTransformer", "ScoreFeatures"]
    names += ["ShooterClassifier", "ShooterFeatures"]
    has_check = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 9)
    assert done.stdout.split() == (names if has_check else []), done.stderr
