"""Equal rows become one: in the order of states, with weights that are sums in the order of
rows.
"""

import numpy as np
import pytest

from bbl.rows.sample import Sample


@pytest.mark.parametrize(
    "n_levels", [[3], [2, 3, 4], [9] * 9, [2] * 40, [256] * 12, [1, 2] * 60, [4] * 90]
)
@pytest.mark.parametrize("repeats", [1, 3])
def test_equal_rows_are_collapsed_in_order(n_levels, repeats):
    rng, n_levels = np.random.default_rng(0), np.array(n_levels)
    codes = (rng.random((300, len(n_levels))) * n_levels).astype(np.uint8)
    codes[::2, : len(n_levels) // 2] = 0  # many rows begin alike
    codes = codes[rng.integers(0, len(codes), repeats * 300) if repeats > 1 else np.arange(300)]
    weights = rng.random(len(codes))
    found = Sample(codes, weights).collapsed(n_levels)
    states, which = np.unique(codes, axis=0, return_inverse=True)
    np.testing.assert_array_equal(found.codes, states)
    np.testing.assert_array_equal(found.weights, np.bincount(which.ravel(), weights))
    assert found.codes.flags.c_contiguous


def test_without_a_response_all_rows_are_in_the_first_group():
    rows = Sample(np.array([[0, 1], [1, 1]], dtype=np.uint8), np.array([2.0, 3.0]))
    first, second = rows.group(0), rows.group(1)
    np.testing.assert_array_equal(first.codes, rows.codes)
    assert (first.total, second.n) == (5.0, 0) and first.y is None
    np.testing.assert_array_equal(rows.group_totals(2), [first.total, second.total])
