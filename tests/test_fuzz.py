"""The fuzz targets on seeded random inputs: they neither crash nor only refuse, so that they stay worth running."""

import numpy as np
import pytest
from fuzz.harness import accepts
from fuzz.predict import whole
from fuzz.targets import TARGETS

RUNS = {"formula": 2000, "kernels": 4000, "predict": 2000, "load": 1500, "gibbs": 2000, "frames": 200}


@pytest.mark.parametrize("name", RUNS)
def test_random_inputs(name):
    target = (TARGETS | {"frames": whole})[name]
    rng = np.random.default_rng(1)
    accepted = sum(accepts(target, rng.bytes(size)) for size in rng.integers(0, 150, RUNS[name]))
    assert 0.01 < accepted / RUNS[name] < 0.99
