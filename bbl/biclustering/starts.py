"""Starts for two-way clustering, which are separate clusterings of the I rows and the J columns.

Centres are arrays (J, centres). `is_observed` has the same shape and is 1 where a centre has a
value and 0 elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl._ext.bicluster import bicluster as kernel
from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import canonical
from bbl.memory import check_memory
from bbl.parallel import serial_blas, stop_flag

__all__ = [
    "STARTS",
    "Starts",
    "cluster_rows",
    "cut_tree",
    "join_random_rows",
    "merge_rows",
    "refill_empty_groups",
]

STARTS = ("kmeans", "hierarchical", "random")

STEPS = 5  # number of steps of Lloyd's algorithm, which do not have to reach an optimum


class _Distances:
    """Squared distances between rows and centres.

    A distance is the mean over jointly observed columns, multiplied by the row's weight.

    Attributes
    ----------
    cells : Cells
        One cell for each observed pair of row and column.
    total : ndarray, shape (I, 1)
        Weight of each row.
    variance : float
        Variance of all cells.
    is_complete : bool
        Whether all pairs of row and column have a cell.
    w : ndarray, shape (I, J), or None
        Weights of a complete table; None if all are 1.
    wx : ndarray, shape (I, J)
        Weights times values of a complete table.
    wxx : ndarray, shape (I, 1)
        Weighted sum of squares of each row of a complete table.
    """

    def __init__(self, cells: Cells):
        self.cells = cells
        self.total = np.bincount(cells.row, cells.weight, cells.shape[0])[:, None]
        mean = np.average(cells.value, weights=cells.weight)
        self.variance = float(np.average((cells.value - mean) ** 2, weights=cells.weight))
        self.is_complete = cells.n == cells.shape[0] * cells.shape[1]
        if self.is_complete:
            self.w = None if (cells.weight == 1.0).all() else cells.weight.reshape(cells.shape)
            x = cells.value.reshape(cells.shape)
            self.wx = x if self.w is None else self.w * x
            self.wxx = (self.wx * x).sum(axis=1)[:, None]

    def __call__(self, centres: np.ndarray, is_observed: np.ndarray) -> np.ndarray:
        """Return the distances (I, centres) from centres (J, centres), which may have unobserved
        values.
        """
        # w (x - c)^2 = w x^2 - 2 w x c + w c^2, by matrix products
        if self.is_complete and is_observed.all():
            cost = self.wx @ (-2.0 * centres)
            cost += (
                (centres * centres).sum(axis=0) if self.w is None else self.w @ (centres * centres)
            )
            cost += self.wxx
            return np.maximum(cost, 0.0, out=cost)
        # the kernel fills two arrays (I, centres): weighted sums of squares over jointly observed
        # columns, and sums of weights
        cost, joint_weight = np.empty((2, self.cells.shape[0], centres.shape[1]))
        kernel.centre_costs(*self.cells.arrays, centres, is_observed, cost, joint_weight)
        # without jointly observed columns, the distance is the variance of all cells
        return self.total * np.where(
            joint_weight > 0.0, cost / np.maximum(joint_weight, 1e-300), self.variance
        )


def _rows_as_centres(cells: Cells, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the given rows as centres, which consist of values and `is_observed`, both (J,
    len(rows)).
    """
    centres, is_observed = np.zeros((2, cells.shape[1], len(rows)))
    for k, i in enumerate(rows):
        row_cells = slice(cells.start[i], cells.start[i + 1])
        column = cells.column[row_cells]
        centres[column, k] = cells.value[row_cells]
        is_observed[column, k] = 1.0
    return centres, is_observed


def cluster_rows(cells: Cells, groups: int, rng: np.random.Generator) -> np.ndarray:
    """Cluster the rows by greedy k-means++ and a few steps of Lloyd's algorithm.

    See Arthur & Vassilvitskii (2007). `cells` contains one cell per observed pair of row and
    column; `groups` is at most I. Return labels, int32 (I,); each of 0..groups-1 occurs.
    """
    distances = _Distances(cells)
    n = cells.shape[0]
    stop = stop_flag()
    seeds = [int(rng.integers(n))]
    # distance of each row from its nearest seed
    nearest = distances(*_rows_as_centres(cells, np.array(seeds)))[:, 0]
    n_candidates = 2 + int(np.log(groups))  # for the next seed
    while len(seeds) < groups:
        if stop[0]:  # set after an interrupt; the labels will not be used
            return np.zeros(n, dtype=np.int32)
        total = nearest.sum()
        candidates = (
            rng.choice(n, n_candidates, p=nearest / total)
            if total > 0.0
            else rng.integers(n, size=n_candidates)
        )
        # distance of each row from its nearest seed if the candidate is added (axis of candidates)
        nearest_with = np.minimum(distances(*_rows_as_centres(cells, candidates)), nearest[:, None])
        best = int(nearest_with.sum(axis=0).argmin())
        nearest = nearest_with[:, best]
        seeds.append(int(candidates[best]))
    centres, is_observed = _rows_as_centres(cells, np.array(seeds))
    for step in range(STEPS + 1):
        cost = distances(centres, is_observed)
        labels = cost.argmin(axis=1).astype(np.int32)
        # -1: every empty group is refilled
        labels = refill_empty_groups(labels, groups, cost.min(axis=1), least=-1.0)
        if step < STEPS:  # the last pass only assigns rows
            weight_sums, value_sums = cells.T.sums(labels, groups)  # (J, groups), for each column
            centres = value_sums / np.maximum(weight_sums, 1e-300)
            is_observed = (weight_sums > 0.0).astype(float)
    return labels


def refill_empty_groups(
    labels: np.ndarray, groups: int, misfit: np.ndarray, least: float
) -> np.ndarray:
    """Return `labels` (I,) after the worst-fitting row has been moved into each empty group.

    The worst-fitting row has the largest `misfit` (I,); it is moved only if the misfit exceeds
    `least`.

    A row that is alone in its group is not moved.
    """
    size = np.bincount(labels, minlength=groups)
    empty = np.flatnonzero(size == 0)
    if not len(empty):
        return labels
    labels = labels.copy()
    misfit = misfit.copy()
    for group in empty:
        worst = int(np.where(size[labels] > 1, misfit, -np.inf).argmax())
        if not (misfit[worst] > least and size[labels[worst]] > 1):  # no row is suitable
            break
        size[labels[worst]] -= 1
        labels[worst] = group
        size[group] = 1
        misfit[worst] = -np.inf
    return labels


def join_random_rows(cells: Cells, groups: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `groups` random rows, and assign each row to the nearest of them; return int32 labels
    (I,).

    The random rows are the prototypes of Li (2014).
    """
    seeds = rng.choice(cells.shape[0], groups, replace=False)
    labels = _Distances(cells)(*_rows_as_centres(cells, seeds)).argmin(axis=1).astype(np.int32)
    labels[seeds] = np.arange(groups)  # no group is empty, even if two prototypes are equal
    return labels


def merge_rows(cells: Cells) -> np.ndarray:
    """Merge two or more rows by Ward's method; return the tree (I - 1, 4) from `linkage`.

    The squared distance between two rows is the mean squared difference over their jointly observed
    columns; without such columns, it is the variance of all cells.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    n, m = cells.shape
    # distances, sums and weights, and twice the condensed half; centres and their masks
    check_memory(
        32.0 * n**2 + 16.0 * n * m,
        f"Hierarchical clustering of {n} rows or columns",
        "Choose start='kmeans'.",
    )
    distances = _Distances(cells)
    # distances between rows, divided by the weight of the first row, are means over columns
    squared = distances(*_rows_as_centres(cells, np.arange(n))) / distances.total
    # the weights of jointly observed columns are those of the first row
    squared = 0.5 * (squared + squared.T)
    np.fill_diagonal(squared, 0.0)
    return linkage(np.sqrt(squareform(squared, checks=False)), "ward")


def cut_tree(tree: np.ndarray, groups: int) -> np.ndarray:
    """Return the labels (I,) of `groups` groups, obtained by cutting a tree (I - 1, 4) of merges.

    Examples
    --------
    >>> tree = np.array([[1.0, 2.0, 0.1, 2.0], [0.0, 3.0, 1.0, 3.0]])
    >>> cut_tree(tree, 2).tolist(), cut_tree(tree, 1).tolist()
    ([0, 1, 1], [0, 0, 0])
    """
    n = len(tree) + 1
    # merge k creates node n + k; a node without a parent is a group
    root = np.arange(2 * n - 1)
    # the root of a parent is known before the roots of its parts
    for step in range(n - groups - 1, -1, -1):
        root[tree[step, :2].astype(np.int64)] = root[n + step]
    return canonical(root[:n]).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Starts:
    """Initial groups for `alternate`, from separate clusterings of the two axes of a table.

    Attributes
    ----------
    kind : {"kmeans", "hierarchical", "random"}
    sides : (Cells, Cells)
        The cells by row, and by column.
    trees : tuple of ndarray
        The merges of rows and of columns for "hierarchical" (see `merge_rows`); otherwise empty.
    """

    kind: str
    sides: tuple[Cells, Cells]
    trees: tuple[np.ndarray, ...] = ()

    @classmethod
    def from_cells(cls, cells: Cells, n_levels: int = 1, kind: str = "kmeans") -> Starts:
        """Return the starts for a table; `cells` of shape (I, J L) are returned by
        `make_tables`.
        """
        sides = (cells, _transposed(cells, n_levels))
        trees: tuple[np.ndarray, ...] = ()
        if kind == "hierarchical":
            with serial_blas():  # results then do not depend on the number of threads
                trees = tuple(merge_rows(side) for side in sides)
        return cls(kind, sides, trees)

    def labels(self, axis: int, groups: int, rng: np.random.Generator) -> np.ndarray:
        """Return the group of each row (axis 0) or column (axis 1), int32; all groups occur."""
        side = self.sides[axis]
        if self.kind == "kmeans":
            return cluster_rows(side, groups, rng)
        if self.kind == "hierarchical":
            return cut_tree(self.trees[axis], groups)
        return join_random_rows(side, groups, rng)


def _transposed(cells: Cells, n_levels: int) -> Cells:
    """Transpose cells (I, J L), which have one column for each level of each column of the table,
    to cells (J, I L).
    """
    if n_levels == 1:
        return cells.T
    column, level = np.divmod(cells.column, n_levels)
    row_level = cells.row * np.int64(n_levels) + level
    shape = (cells.shape[1] // n_levels, cells.shape[0] * n_levels)
    return Cells.from_entries(column, row_level, cells.value, cells.weight, shape)
