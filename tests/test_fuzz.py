"""The fuzz targets on seeded random inputs: they neither crash nor only refuse, so that they stay worth running."""

import numpy as np
import pytest
from fuzz.harness import accepts
from fuzz.targets import TARGETS

RUNS = {"formula": 3000, "kernels": 3000, "predict": 300, "load": 300, "gibbs": 1000}


@pytest.mark.parametrize("name", TARGETS)
def test_random_inputs(name):
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 120, RUNS[name])
    accepted = sum(accepts(TARGETS[name], rng.bytes(size)) for size in sizes)
    assert 0.01 < accepted / RUNS[name] < 0.99
