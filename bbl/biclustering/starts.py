"""Starts: one-way clustering of the rows by k-means, over the cells that rows have in common."""

from __future__ import annotations

import numpy as np

from bbl._ext.bicluster import bicluster as kernel
from bbl.biclustering.cells import Cells
from bbl.parallel import stop_flag

__all__ = ["one_way", "refill"]

STEPS = 5  # of Lloyd's algorithm: a start need not be an optimum


class _Distances:
    """Squared distances of all rows from centres, averaged over the cells that both know, times the row's weight."""

    def __init__(self, cells: Cells):
        self.cells = cells
        self.total = np.bincount(cells.row, cells.weight, cells.shape[0])[:, None]
        mean = np.average(cells.value, weights=cells.weight)
        self.variance = float(np.average((cells.value - mean) ** 2, weights=cells.weight))
        self.full = cells.n == cells.shape[0] * cells.shape[1]
        if self.full:  # the cells are the matrix
            self.w = None if (cells.weight == 1.0).all() else cells.weight.reshape(cells.shape)
            x = cells.value.reshape(cells.shape)
            self.wx = x if self.w is None else self.w * x
            self.wxx = (self.wx * x).sum(axis=1)[:, None]

    def __call__(self, centre: np.ndarray, known: np.ndarray) -> np.ndarray:
        if self.full and known.all():
            cost = self.wx @ (-2.0 * centre)
            cost += (centre * centre).sum(axis=0) if self.w is None else self.w @ (centre * centre)
            cost += self.wxx
            return np.maximum(cost, 0.0, out=cost)
        cost, joint = np.empty((2, self.cells.shape[0], centre.shape[1]))
        kernel.centre_costs(*self.cells.arrays, centre, known, cost, joint)
        # rows that have nothing in common with a centre are as far away as any two cells are
        return self.total * np.where(joint > 0.0, cost / np.maximum(joint, 1e-300), self.variance)


def _rows_as_centres(cells: Cells, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre, is_observed = np.zeros((2, cells.shape[1], len(rows)))
    for k, i in enumerate(rows):
        row_cells = slice(cells.start[i], cells.start[i + 1])
        centre[cells.column[row_cells], k], is_observed[cells.column[row_cells], k] = cells.value[row_cells], 1.0
    return centre, is_observed


def one_way(cells: Cells, groups: int, rng: np.random.Generator) -> np.ndarray:
    """Cluster the rows: seeds by greedy k-means++ (Arthur & Vassilvitskii 2007), then a few steps of Lloyd's algorithm.

    Parameters
    ----------
    cells : Cells
        One cell per pair, of shape (I, J).
    groups : int
        At most I.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int32, shape (I,)
        Labels 0..groups-1, all of which occur.
    """
    distances, n, stop = _Distances(cells), cells.shape[0], stop_flag()
    seeds = [int(rng.integers(n))]
    nearest = distances(*_rows_as_centres(cells, np.array(seeds)))[:, 0]
    tries = 2 + int(np.log(groups))
    while len(seeds) < groups:
        if stop[0]:
            return np.zeros(n, dtype=np.int32)
        total = nearest.sum()
        chosen = rng.choice(n, tries, p=nearest / total) if total > 0.0 else rng.integers(n, size=tries)
        closer = np.minimum(distances(*_rows_as_centres(cells, chosen)), nearest[:, None])
        best = int(closer.sum(axis=0).argmin())
        nearest = closer[:, best]
        seeds.append(int(chosen[best]))
    centre, is_observed = _rows_as_centres(cells, np.array(seeds))
    for step in range(STEPS + 1):
        cost = distances(centre, is_observed)
        labels = cost.argmin(axis=1).astype(np.int32)
        labels = refill(labels, groups, cost.min(axis=1), least=-1.0)
        if step < STEPS:
            counts, sums = cells.T.sums(labels, groups)
            centre, is_observed = sums / np.maximum(counts, 1e-300), (counts > 0.0).astype(float)
    return labels


def refill(labels: np.ndarray, groups: int, misfit: np.ndarray, least: float) -> np.ndarray:
    """Give each empty group the row that fits its own group worst, if its `misfit` exceeds `least`."""
    size = np.bincount(labels, minlength=groups)
    empty = np.flatnonzero(size == 0)
    if not len(empty):
        return labels
    labels, misfit = labels.copy(), misfit.copy()
    for group in empty:
        worst = int(np.where(size[labels] > 1, misfit, -np.inf).argmax())
        if not (misfit[worst] > least and size[labels[worst]] > 1):
            break
        size[labels[worst]] -= 1
        labels[worst], size[group], misfit[worst] = group, 1, -np.inf
    return labels
