"""Prototypes: the alternation against loops, starts, empty groups, metrics, and known blocks found
again.
"""

import numpy as np
import pytest
import reference_blocks as reference
from scipy.cluster.hierarchy import fcluster, linkage

from bbl.biclustering.cells import Cells
from bbl.biclustering.methods import Prototype
from bbl.biclustering.partition import canonical, rand_index
from bbl.biclustering.prototype import Table, alternate, fit_once, make_tables
from bbl.biclustering.starts import (
    STARTS,
    Starts,
    cluster_rows,
    cut_tree,
    merge_rows,
    refill_empty_groups,
)


def cells_of(X, w=None):
    row, column = np.nonzero(~np.isnan(X))
    w = np.ones(X.shape) if w is None else w
    return Cells.from_entries(row, column, X[row, column], w[row, column], X.shape)


def ratings(shared, name, level, sets=slice(None)):
    """Return tables of ratings, nan where missing, with their true groups."""
    with np.load(shared / "data" / "bicluster" / f"ratings_{name}.npz") as data:
        X = data["X"][level, sets].astype(float)
        X[X == 0] = np.nan
        return list(zip(X, data["rows"][sets], data["cols"][sets], strict=True))


def squares(X, rows, columns):
    """Return the sum of squares about the block means of a complete table."""
    G, H = np.eye(rows.max() + 1)[rows], np.eye(columns.max() + 1)[columns]
    means = (G.T @ X @ H) / np.maximum(np.outer(G.sum(axis=0), H.sum(axis=0)), 1)
    return float(((X - means[rows][:, columns]) ** 2).sum())


@pytest.fixture(params=[0, 1, 2])
def problem(request):
    """A random table with missing cells and weights, and a start in which a third of the labels are
    wrong.
    """
    rng = np.random.default_rng(request.param)
    rows, columns = rng.integers(3, size=30), rng.integers(4, size=20)
    X = rng.normal(size=(30, 20)) + rng.normal(size=(3, 4))[rows][:, columns] * 2
    rows[:10], columns[:7] = rng.integers(3, size=10), rng.integers(4, size=7)
    X[rng.random(X.shape) < (0.0, 0.3, 0.7)[request.param]] = np.nan
    X[np.arange(20), np.arange(20)] = 1.0
    X[20:, 0] = 0.5
    w = rng.integers(1, 4, X.shape).astype(float)
    return X, w, canonical(rows), canonical(columns)


def test_alternation_is_that_of_loops(problem):
    X, w, rows, columns = problem
    found = alternate(Table(cells_of(X, w)), rows, columns)
    history = [reference.wcss(X, w, rows, columns)]
    for _ in range(found.n_iter):
        rows = reference.assign_rows(X, w, rows, columns, 3, 4, 0.0)
        history.append(reference.wcss(X, w, rows, columns))
        columns = reference.assign_rows(X.T, w.T, columns, rows, 4, 3, 0.0)
        history.append(reference.wcss(X, w, rows, columns))
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.columns, columns)
    np.testing.assert_allclose(found.history, history, rtol=1e-12)
    assert found.converged and found.value == found.history[-1]


@pytest.mark.parametrize("move", ["all", "one"])
def test_objective_never_rises(problem, move):
    X, w, rows, columns = problem
    found = alternate(Table(cells_of(X, w)), rows, columns, move=move)
    assert (np.diff(found.history) <= 1e-12 * found.history[0]).all() and found.history[
        -1
    ] < found.history[0]
    assert found.value == pytest.approx(reference.wcss(X, w, found.rows, found.columns), rel=1e-12)


def test_no_single_move_improves_what_single_moves_ended_at(problem):
    X, w, rows, columns = problem
    found = alternate(Table(cells_of(X, w)), rows, columns, move="one")
    assert found.converged
    for labels, k in ((found.rows, 3), (found.columns, 4)):
        for i in range(len(labels)):
            own = labels[i]
            if (labels == own).sum() > 1:
                for labels[i] in range(k):
                    assert reference.wcss(X, w, found.rows, found.columns) >= found.value * (
                        1 - 1e-9
                    )
                labels[i] = own


def test_levels_lower_the_deviance_that_loops_compute(problem):
    X, _, rows, columns = problem
    codes = np.where(np.isnan(X), np.nan, (X > 0).astype(float) + (X > 1))
    table, _ = make_tables(cells_of(codes), "levels", 3, 1.5)
    found = alternate(table, rows, columns)
    assert (np.diff(found.history) <= 1e-12 * found.history[0]).all() and found.converged
    whole = np.where(np.isnan(codes), -1, codes)
    for value, r, c in (
        (found.history[0], rows, columns),
        (found.value, found.rows, found.columns),
    ):
        assert value == pytest.approx(reference.levels_deviance(whole, r, c, 3, 1.5), rel=1e-12)
    shares = {}
    for g in range(3):
        for h in range(4):
            inside = whole[np.ix_(found.rows == g, found.columns == h)]
            c = np.array([(inside == x).sum() for x in range(3)]) + 0.5
            shares[g, h] = np.log(c / c.sum())
    for i in range(30):  # each row is where it fits best
        fit = [
            sum(shares[g, found.columns[j]][int(x)] for j, x in enumerate(whole[i]) if x >= 0)
            for g in range(3)
        ]
        assert fit[found.rows[i]] >= max(fit) - 1e-9


@pytest.mark.parametrize("unit", [2.0**-500, 2.0**-30, 2.0**500])
def test_pearson_knows_no_unit_not_even_of_constant_blocks(unit):
    X = np.add.outer(np.repeat([0.0, 2.0, 1.0], 4), np.repeat([1.0, 1.0, 3.0], 3)) + np.eye(12, 9)
    found = [
        alternate(
            make_tables(cells_of(own), "pearson", 1, 0.0)[0],
            np.arange(12, dtype=np.int32) % 3,
            np.arange(9, dtype=np.int32) % 3,
        )
        for own in (X, X * unit)
    ]
    np.testing.assert_array_equal(found[0].rows, found[1].rows)
    assert found[0].history.tolist() == found[1].history.tolist()


def test_pearson_finds_shapes_whatever_their_level_and_size():
    rng = np.random.default_rng(3)
    rows, columns = np.repeat([0, 1, 2], 10), np.repeat([0, 1, 2, 3], 5)
    shape = np.array([[1, -1, 2, -2], [-1, 2, -2, 1], [2, 1, -1, -2.0]])
    X = (
        shape[rows][:, columns] * rng.uniform(0.5, 3, (30, 1))
        + rng.normal(0, 3, (30, 1))
        + rng.normal(0, 0.1, (30, 20))
    )
    X[rng.random(X.shape) < 0.2] = np.nan
    table, wide = make_tables(cells_of(X), "pearson", 1, 0.0)
    found = min(
        (fit_once(table, Starts.from_cells(wide), (3, 4), seed, {}) for seed in range(5)),
        key=lambda fit: fit.value,
    )
    assert rand_index(found.rows, rows)[0] == 1.0
    assert found.value == found.history.min() >= 0.0
    squared = min(
        (
            fit_once(Table(table.cells), Starts.from_cells(wide), (3, 4), seed, {})
            for seed in range(5)
        ),
        key=lambda fit: fit.value,
    )
    assert rand_index(squared.rows, rows)[0] < 1.0


def test_starts_use_all_groups_and_find_what_is_apart():
    rng = np.random.default_rng(4)
    true = np.repeat(np.arange(4), 8)
    X = rng.normal(size=(4, 12))[true] * 5 + rng.normal(size=(32, 12))
    X[rng.random(X.shape) < 0.5] = np.nan
    labels = cluster_rows(cells_of(X), 4, np.random.default_rng(0))
    assert rand_index(labels, true)[0] == 1.0
    same = cells_of(np.ones((6, 3)))
    assert sorted(set(cluster_rows(same, 4, np.random.default_rng(0)))) == [0, 1, 2, 3]


def test_hierarchical_starts_are_those_of_ward_and_compare_what_both_rows_have():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(25, 7))
    tree = merge_rows(cells_of(X))
    for groups in (1, 3, 25):
        expected = fcluster(linkage(X, "ward"), groups, "maxclust")
        assert rand_index(cut_tree(tree, groups), expected)[0] == 1.0
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:, 0] = rng.normal(size=25)  # no row is empty
    # a weight of all cells changes nothing
    heavy = cells_of(X, np.full(X.shape, 3.0))
    np.testing.assert_allclose(merge_rows(heavy), merge_rows(cells_of(X)), rtol=1e-12)
    both = ~np.isnan(X[:, None]) & ~np.isnan(X)
    gap = np.where(both, X[:, None] - X, 0.0) ** 2
    distances = np.sqrt(gap.sum(axis=2) / both.sum(axis=2))
    expected = linkage(distances[np.triu_indices(25, 1)], "ward")
    np.testing.assert_allclose(merge_rows(cells_of(X)), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", STARTS)
def test_starts_use_all_groups_of_both_axes(kind):
    X = np.round(np.random.default_rng(6).normal(size=(9, 4)))
    starts = Starts.from_cells(cells_of(X), kind=kind)
    for axis, n in ((0, 9), (1, 4)):
        for groups in (1, 3, n):
            labels = starts.labels(axis, groups, np.random.default_rng(7))
            assert labels.dtype == np.int32
            assert sorted(set(labels)) == list(range(groups)) and len(labels) == n


def test_a_hierarchical_start_is_the_only_one_whatever_the_seed():
    X = np.kron(np.arange(6.0).reshape(2, 3), np.ones((4, 3)))
    X += np.random.default_rng(8).normal(0, 0.5, X.shape)
    method = Prototype(start="hierarchical", max_groups=4)
    assert method.steps(10, None, X.shape) == 16 and method.steps(10, (2, 2), X.shape) == 1
    fits = [method.fit(cells_of(X), None, 3, np.random.default_rng(seed)) for seed in (0, 1)]
    np.testing.assert_array_equal(fits[0].rows, fits[1].rows)
    assert rand_index(fits[0].rows, np.repeat([0, 1], 4))[0] == 1.0
    assert rand_index(fits[0].columns, np.repeat([0, 1, 2], 3))[0] == 1.0


def test_empty_groups_take_the_rows_that_fit_worst():
    labels = np.array([0, 0, 0, 2], dtype=np.int32)
    assert refill_empty_groups(labels, 4, np.array([1.0, 5.0, 3.0, 9.0]), 0.0).tolist() == [
        0,
        1,
        3,
        2,
    ]
    assert refill_empty_groups(labels, 4, np.array([1.0, 5.0, 3.0, 9.0]), 4.0).tolist() == [
        0,
        1,
        0,
        2,
    ]


def test_empty_groups_are_dropped_on_demand():
    X = np.kron(np.array([[0.0, 9.0], [5.0, 1.0]]), np.ones((4, 4)))
    X += np.random.default_rng(0).normal(0, 0.01, X.shape)
    rows, columns = np.array([0, 0, 0, 0, 1, 1, 1, 2]), np.repeat([0, 1], 4)
    rows[3] = 2  # the third group lies between the others and loses both of its rows
    kept = alternate(Table(cells_of(X)), rows, columns)
    dropped = alternate(Table(cells_of(X)), rows, columns, empty="drop")
    assert kept.rows.max() == 2 and dropped.rows.max() == 1
    assert rand_index(dropped.rows, np.repeat([0, 1], 4))[0] == 1.0


def test_ties_go_to_the_group_with_the_same_pattern_of_cells():
    rng = np.random.default_rng(5)
    rows, columns = np.repeat([0, 1], 30), np.repeat([0, 1, 2], 10)
    X = np.array([[3.0, 3.0, 1.0], [3.0, 5.0, 1.0]])[rows][:, columns]
    rate = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])[rows][:, columns]
    X[rng.random(X.shape) > rate] = np.nan
    X[0] = np.where(columns == 0, 3.0, np.nan)  # fits both groups; the first one rates such columns
    wrong = rows.copy()
    wrong[0] = 1
    found = alternate(Table(cells_of(X)), wrong, columns)
    np.testing.assert_array_equal(found.rows, rows)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("n_levels", [1, 2, 3])
def test_a_pattern_counts_pairs_whether_they_have_one_level_or_several(n_levels):
    rng = np.random.default_rng(5)
    rows, columns = np.repeat([0, 1], 30), np.repeat([0, 1, 2], 10)
    rate = np.array([[1.0, 0.1, 0.5], [0.1, 1.0, 0.5]])[rows][:, columns]
    row, column = np.nonzero(rng.random(rate.shape) < rate)
    # every pair has all levels, so that all costs are tied
    level = np.tile(np.arange(n_levels), len(row))
    row, column = np.repeat(row, n_levels), np.repeat(column, n_levels)
    cells = Cells.from_entries(row, column, level, np.ones(len(row)), rate.shape)
    table, _ = make_tables(cells, "levels", n_levels, 1.0)
    wrong = rows.copy()
    wrong[[0, 1, 40]] = 1, 1, 0
    np.testing.assert_array_equal(alternate(table, wrong, columns).rows, rows)


@pytest.mark.parametrize("name", ["fixed", "random"])
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.thinned(3)
def test_blocks_without_noise_are_found_again_from_one_start(shared, name, level):
    # two prototypes of set 1 are equal
    for X, rows, columns in ratings(shared, name, level, slice(2, 8)):
        table, wide = make_tables(cells_of(X), "squared", 1, 3.0)
        found = fit_once(table, Starts.from_cells(wide), (5, 5), 0, {})
        assert rand_index(found.rows, rows)[0] == rand_index(found.columns, columns)[0] == 1.0


@pytest.mark.long
def test_blocks_are_found_again_with_nine_cells_in_ten_missing(shared):
    scores = []
    for X, rows, columns in ratings(shared, "random", 3, slice(2, 12)):
        table, wide = make_tables(cells_of(X), "squared", 1, 3.0)
        found = min(
            (fit_once(table, Starts.from_cells(wide), (5, 5), seed, {}) for seed in range(4)),
            key=lambda fit: fit.value,
        )
        scores.append((rand_index(found.rows, rows)[0], rand_index(found.columns, columns)[0]))
    assert np.mean(scores, axis=0).min() > 0.99  # 0.993 and 0.988 without the pattern of cells


@pytest.fixture(scope="module")
def nci60(shared):
    """The table, and its fit from three starts."""
    with np.load(shared / "data" / "bicluster" / "nci60.npz") as data:
        X = data["x"].astype(float)
    return X, Prototype().fit(cells_of(X), (100, 10), 3, np.random.default_rng(0))


@pytest.mark.long
def test_nci60_reaches_its_error(nci60):
    X, found = nci60
    assert squares(X, found.rows, found.columns) / X.size <= 0.445
    assert (np.diff(found.history) <= 1e-12 * found.history[0]).all()


@pytest.mark.long
@pytest.mark.parametrize("name", ["fixed", "random"])
def test_reconstruction_table(shared, name):
    """Every cell of the table of perfect reconstructions, from one start and from ten."""
    # 99: two prototypes are equal
    want = {"fixed": (100, 100, 100, 0, 0), "random": (98.5, 99, 99, 45, 47.5)}[name]
    got = []
    for level, starts in ((0, 1), (1, 1), (2, 1), (3, 1), (3, 10)):
        perfect = 0
        for X, rows, columns in ratings(shared, name, level):
            found = Prototype().fit(cells_of(X), (5, 5), starts, np.random.default_rng(0))
            perfect += (
                rand_index(found.rows, rows)[0] == rand_index(found.columns, columns)[0] == 1.0
            )
        got.append(perfect)
    assert (np.array(got) >= want).all(), got


@pytest.mark.long
def test_nci60_error_is_below_that_of_spectral_biclustering(nci60):
    cluster = pytest.importorskip("sklearn.cluster")
    X, found = nci60
    for method, table in (
        ("bistochastic", X - X.min() + 1),
        ("log", X - X.min() + 1),
        ("scale", X - X.min() + 1),
    ):
        model = cluster.SpectralBiclustering((100, 10), method=method, random_state=0).fit(table)
        assert squares(X, found.rows, found.columns) < 0.9 * squares(
            X, model.row_labels_, model.column_labels_
        )
