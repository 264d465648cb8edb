"""Conditional mutual information: not below zero."""

import numpy as np
import pandas as pd
import pytest

from bbl import networks
from bbl.bayesnet.information import conditional_information


@pytest.mark.parametrize("seed", range(20))
def test_information_given_one_of_both_columns_is_zero(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 60_000, (5, 2)).astype(float)
    data = pd.DataFrame([(i, j, j, counts[i, j]) for i in range(5) for j in range(2)])
    found = networks.cmi(0, 1, data, z=2, weights=3)
    assert 0.0 <= found < 1e-10


def test_independent_tables_have_none():
    rng = np.random.default_rng(1)
    for _ in range(50):
        table = np.outer(rng.integers(1, 99, 4), rng.integers(1, 99, 3))[:, :, None]
        assert 0.0 <= conditional_information(table.astype(float)) < 1e-12
