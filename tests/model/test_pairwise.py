"""The matrix of couplings of a model of pairs: round trips, cells, one computation for each
layout.
"""

import itertools

import numpy as np
import pytest

from bbl.model.layout import Layout
from bbl.model.regressors import from_matrix, pair_cells, to_matrix


def test_matrix_round_trip():
    layout = Layout([3, 2, 4], [(0, 1), (1, 2)])
    theta = np.random.default_rng(0).normal(size=layout.size)
    h, J = to_matrix(layout, theta)
    assert (J == J.T).all()
    for i, j in itertools.combinations(range(3), 2):
        block = J[layout.start[i] : layout.start[i + 1], layout.start[j] : layout.start[j + 1]]
        if layout.mask[i, j]:
            np.testing.assert_array_equal(block, layout.table(theta, i, j))
        else:
            assert not block.any()
    np.testing.assert_array_equal(from_matrix(layout, h, J), theta)


def test_from_matrix_averages_both_triangles():
    layout = Layout([2, 2])
    assert from_matrix(layout, np.zeros(2), np.array([[0.0, 1.0], [3.0, 0.0]]))[2] == 2.0


def test_cells_are_where_the_tables_lie():
    layout = Layout([3, 1, 2, 4], [(0, 1), (0, 3), (2, 3)])
    row, col = pair_cells(layout)
    assert row.dtype == col.dtype == np.int32 and len(row) == layout.size - layout.D
    where = np.arange(layout.size)
    for i, j in layout.pairs:
        for (a, b), at in np.ndenumerate(layout.table(where, i, j)):
            assert (row[at - layout.D], col[at - layout.D]) == (
                layout.start[i] + a,
                layout.start[j] + b,
            )
    assert pair_cells(layout)[0] is row


def test_a_model_with_higher_terms_has_no_matrix():
    layout = Layout([2, 2, 3], [(0, 1), (0, 1, 2)])
    with pytest.raises(ValueError, match="cannot be stored in a matrix"):
        to_matrix(layout, np.zeros(layout.size))
