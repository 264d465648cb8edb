"""Sparse regression of few rows with huge weights: it ends, though coordinate descent cannot reach
its optimum.
"""

import warnings

import numpy as np
import pandas as pd

import bbl
from bbl.sparse.workingset import Descent

MAX_STEPS = 1000  # 385 were measured; 6,077 without the end after steps whose sweeps ran out


def test_a_descent_whose_sweeps_run_out_comes_to_an_end(monkeypatch):
    rng = np.random.default_rng(1)
    data = pd.DataFrame(
        {
            name: rng.integers(0, L, 40).astype(str)
            for name, L in zip("abcd", (4, 5, 6, 4), strict=True)
        }
    )
    data["y"] = rng.integers(0, 3, 40).astype(str)
    data["w"] = rng.integers(1, 10, 40) * 10**9
    steps, newton_target = [], Descent._newton_target

    def counted(self, *arguments):
        steps.append(len(self.theta))
        return newton_target(self, *arguments)

    monkeypatch.setattr(Descent, "_newton_target", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bbl.shooter("y ~ a + b + c + d", data, weights="w", order=1, lambda_=20.0, verbose=0)
    assert 50 < len(steps) <= MAX_STEPS
