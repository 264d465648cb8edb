"""Adjusted p-values against statsmodels."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from bbl.stats.wald import adjust


@pytest.mark.parametrize("method", ["holm", "fdr_bh"])
@pytest.mark.parametrize("n", [1, 2, 30, 500])
def test_adjusted_p_values_are_those_of_statsmodels(method, n):
    rng = np.random.default_rng(n)
    p = rng.random(n) ** 3
    p[rng.integers(0, n, n // 3)] = p[0]  # ties
    gaps = np.insert(p, n // 2, np.nan)
    adjusted = adjust(gaps, method)
    np.testing.assert_allclose(
        np.delete(adjusted, n // 2), multipletests(p, method=method)[1], rtol=1e-15
    )
    assert np.isnan(adjusted[n // 2])
    assert (
        len(adjust(np.zeros(0), method)) == 0 and np.isnan(adjust(np.full(3, np.nan), method)).all()
    )
