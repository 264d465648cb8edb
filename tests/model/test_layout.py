"""Layout: positions, views, matrices."""

import itertools

import numpy as np
import pytest

from bbl.model.layout import Layout


@pytest.mark.parametrize("pairs", [None, [], [(2, 0), (1, 2), (0, 2)]])
def test_tables_tile_the_vector(pairs):
    layout = Layout([2, 3, 4], pairs)
    seen = np.zeros(layout.size)
    for i in range(3):
        layout.table(seen, i)[...] += 1
    for i, j in layout.pairs:
        layout.table(seen, i, j)[...] += 1
    assert (seen == 1).all()
    expected = (1 + 2 + 3) + sum((layout.n_levels[i] - 1) * (layout.n_levels[j] - 1) for i, j in layout.pairs)
    assert layout.size == expected


def test_pairs_are_sorted_and_unique():
    layout = Layout([2, 3, 4], [(2, 0), (1, 2), (0, 2)])
    assert layout.pairs.tolist() == [[0, 2], [1, 2]]
    assert layout.mask.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert layout.pair_index(2, 1) == 1
    assert layout.pair_index(0, 1) == -1
    with pytest.raises(KeyError):
        layout.table(np.zeros(layout.size), 0, 1)


def test_table_is_a_view_and_transposes():
    layout = Layout([2, 3, 4])
    theta = np.arange(float(layout.size))
    layout.table(theta, 1, 2)[0, 1] = -1.0
    assert (theta == -1.0).sum() == 1
    np.testing.assert_array_equal(layout.table(theta, 2, 1), layout.table(theta, 1, 2).T)
    stacked = np.stack([theta, 2 * theta])
    assert layout.table(stacked, 1, 2).shape == (2, 2, 3)
    assert layout.table(stacked, 2, 1).shape == (2, 3, 2)


def test_matrix_round_trip():
    layout = Layout([3, 2, 4], [(0, 1), (1, 2)])
    theta = np.random.default_rng(0).normal(size=layout.size)
    h, J = layout.to_matrix(theta)
    assert (J == J.T).all()
    for i, j in itertools.combinations(range(3), 2):
        block = J[layout.start[i] : layout.start[i + 1], layout.start[j] : layout.start[j + 1]]
        if layout.mask[i, j]:
            np.testing.assert_array_equal(block, layout.table(theta, i, j))
        else:
            assert not block.any()
    np.testing.assert_array_equal(layout.from_matrix(h, J), theta)


def test_from_matrix_averages_both_triangles():
    layout = Layout([2, 2])
    assert layout.from_matrix(np.zeros(2), np.array([[0.0, 1.0], [3.0, 0.0]]))[2] == 2.0
