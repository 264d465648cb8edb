"""Cells: the observed cells of a table, their order, repeats and sums."""

import numpy as np
import pytest

from bbl._ext.bicluster import bicluster as kernel
from bbl.biclustering.cells import Cells


@pytest.fixture
def table():
    """A table of 7 x 5 with missing cells, and its cells in random order."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 5))
    X[rng.random((7, 5)) < 0.4] = np.nan
    row, column = np.nonzero(~np.isnan(X))
    order = rng.permutation(len(row))
    weight = rng.integers(1, 4, (7, 5)).astype(float)
    parts = (row[order], column[order], X[row, column][order], weight[row, column][order])
    return X, weight, Cells.from_entries(*parts, (7, 5))


def test_cells_are_sorted_from_both_sides(table):
    X, weight, cells = table
    for side, dense, w in ((cells, X, weight), (cells.T, X.T, weight.T)):
        row, column = np.nonzero(~np.isnan(dense))
        np.testing.assert_array_equal(side.row, row)
        np.testing.assert_array_equal(side.column, column)
        np.testing.assert_array_equal(side.value, dense[row, column])
        np.testing.assert_array_equal(side.weight, w[row, column])


def test_a_weight_is_the_same_as_repeating():
    rng = np.random.default_rng(1)
    row, column, value = (
        rng.integers(4, size=30),
        rng.integers(3, size=30),
        rng.normal(size=30).round(1),
    )
    weight = rng.integers(1, 5, 30)
    once = Cells.from_entries(row, column, value, weight.astype(float), (4, 3))
    order = rng.permutation(weight.sum())
    parts = (np.repeat(part, weight)[order] for part in (row, column, value))
    many = Cells.from_entries(*parts, np.ones(weight.sum()), (4, 3))
    for one, other in zip(
        (*once.arrays, *once.averaged().arrays),
        (*many.arrays, *many.averaged().arrays),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_repeated_pairs_are_averaged_by_weight():
    cells = Cells.from_entries(
        np.array([0, 0, 1]),
        np.array([1, 1, 0]),
        np.array([1.0, 4.0, 0.1]),
        np.array([2.0, 1.0, 3.0]),
        (2, 2),
    )
    means = cells.averaged()
    assert means.value.tolist() == [2.0, 0.1] and means.weight.tolist() == [3.0, 3.0]
    assert means.averaged() is means


def test_sums_over_groups_are_those_of_the_dense_table(table):
    X, weight, cells = table
    group = np.array([1, 0, 1, 2, 0], dtype=np.int32)
    counts, sums = cells.sums(group, 3)
    known = ~np.isnan(X)
    for h in range(3):
        np.testing.assert_allclose(counts[:, h], (weight * known)[:, group == h].sum(axis=1))
        np.testing.assert_allclose(
            sums[:, h], (weight * np.nan_to_num(X))[:, group == h].sum(axis=1), atol=1e-14
        )


def test_kernels_refuse_arrays_that_do_not_fit(table):
    _, _, cells = table
    group, out = np.zeros(5, dtype=np.int32), np.empty((7, 1))
    with pytest.raises(ValueError, match="do not fit"):
        kernel.group_sums(
            cells.start, cells.column, cells.value[1:], cells.weight, group, out, out.copy()
        )
    with pytest.raises(ValueError, match="do not fit"):
        kernel.group_sums(*cells.arrays, group, out[1:], out[1:].copy())
    with pytest.raises(ValueError, match="do not fit"):
        kernel.add_rows(group, out, out)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.centre_costs(*cells.arrays, out, out, out, out[1:])
