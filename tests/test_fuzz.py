"""What the fuzzing and sanitizer runs use: targets neither crash nor only refuse, and threads get
the serial bits.

As of the properties, `BBL_HYPOTHESIS=full` tries all random inputs, a usual run a fifth.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz.harness import accepts
from fuzz.predict import whole
from fuzz.targets import TARGETS
from sanitize.kernels import without_a_job

RUNS = {
    "formula": 2000,
    "kernels": 4000,
    "predict": 2000,
    "load": 1500,
    "network": 600,
    "blocks": 600,
    "gibbs": 2000,
    "folds": 1500,
    "frames": 200,
}


@pytest.mark.properties
@pytest.mark.parametrize("name", RUNS)
def test_random_inputs(name):
    target = (TARGETS | {"frames": whole})[name]
    rng = np.random.default_rng(1)
    n = RUNS[name] if os.environ.get("BBL_HYPOTHESIS") else RUNS[name] // 5
    accepted = sum(accepts(target, rng.bytes(size)) for size in rng.integers(0, 150, n))
    assert 0.01 < accepted / n < 0.99


def test_every_kernel_has_a_job_in_threads():
    assert not without_a_job()


@pytest.mark.long
def test_kernels_in_threads():
    root = Path(__file__).resolve().parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, str(root / "tests/sanitize/threads.py"), "2", "4", "8"]
    subprocess.run(command, env=env, check=True, timeout=300)
