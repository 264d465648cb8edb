"""Entropy, mutual information and conditional mutual information from counts.

There are m features and K classes. Level 0 of each feature is the reference level, and D is the
total number of other levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bbl.bayesnet.families import BLOCK, Families
from bbl.model.layout import Layout
from bbl.model.moments import pair_counts
from bbl.rows.sample import Rows, Sample, code_dtype

__all__ = ["UNITS", "class_information", "conditional_information", "entropy", "pair_information"]

# size of a unit of information in nats, by the base of the logarithm
UNITS = {"log": 1.0, "log2": float(np.log(2.0)), "log10": float(np.log(10.0))}
CELLS = 2**22  # maximum number of cells of pair tables that are counted row by row at a time
# maximum number of cells of pair tables that are counted by bits at a time: 128 MiB
PACKED_CELLS = 2**24
# counting by bits takes L * L / 64 operations on words for each pair and row. It is faster than
# counting row by row up to this mean number of levels L per feature. With weights, the limit is
# lower, because the bits of the weights (up to 8) are counted one after another
PACKED_LEVELS = 32
PACKED_WEIGHTED_LEVELS = 8


def _xlogx(p: np.ndarray) -> np.ndarray:
    """Return ``p log p``, or 0 if p is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p), 0.0)


def entropy(counts: np.ndarray, axis: int | tuple[int, ...] | None = None) -> np.ndarray:
    """Return ``-sum p log p`` over `axis` (default: all) for relative frequencies p.

    If all counts are 0, the result is 0.
    """
    total = counts.sum(axis=axis, keepdims=True)
    return -_xlogx(counts / np.where(total > 0, total, 1.0)).sum(axis=axis)


def conditional_information(counts: np.ndarray) -> float:
    """Return the mutual information of X and Y given Z, in nats, from a table (x, y, z).

    It equals ``H(X,Z) + H(Y,Z) - H(X,Y,Z) - H(Z)``, or ``H(X) + H(Y) - H(X,Y)`` if Z has a single
    level. The result is never negative.

    Examples
    --------
    >>> round(float(conditional_information(np.array([[[2.0], [0.0]], [[0.0], [2.0]]]))), 4)
    0.6931
    """
    H = entropy
    information = (
        H(counts.sum(axis=1)) + H(counts.sum(axis=0)) - H(counts) - H(counts.sum(axis=(0, 1)))
    )
    return max(float(information), 0.0)  # can be negative only because of rounding errors


def _split_features(n_levels: np.ndarray, K: int, max_cells: int) -> Iterator[list[int]]:
    """Yield runs of consecutive features.

    Each feature of a run is paired with all later features, and the tables of these pairs have at
    most `max_cells` cells in total. A feature whose tables exceed this limit forms a run by itself.
    The last feature is not in any run, because no features follow it.
    """
    # total number of levels of each feature and all later features
    levels_from = np.cumsum(n_levels[::-1])[::-1]
    run: list[int] = []
    run_cells = 0
    for i, L in enumerate(n_levels[:-1]):
        # also with itself, because `_packed_tables` counts these pairs
        feature_cells = int(L) * int(levels_from[i]) * K
        if run and run_cells + feature_cells > max_cells:
            yield run
            run = []
            run_cells = 0
        run.append(i)
        run_cells += feature_cells
    if run:
        yield run


def pair_information(sample: Rows, n_levels: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mutual information of each pair of features given the class, and the weights of
    the rows.

    Returns
    -------
    information : ndarray, shape (m, m)
        Information in nats, above the diagonal, from the rows where both features and the class are
        known.
    weight : ndarray, shape (m, m)
        Total weight of these rows, above the diagonal.
    """
    n_levels = np.asarray(n_levels, dtype=np.intp)
    m = len(n_levels)
    information = np.zeros((m, m))
    weight = np.zeros((m, m))
    # `unweighted`: all weights are 1
    counts_by_bits = n_levels.sum() <= m * (
        PACKED_LEVELS if sample.unweighted else PACKED_WEIGHTED_LEVELS
    )
    for i, later, tables in (_packed_tables if counts_by_bits else _counted_tables)(
        sample, n_levels, K
    ):
        # `tables` (later features, levels of i, levels of later features, K); entropies of the
        # table of each later feature, as in `conditional_information`
        weight[i, later] = tables.sum(axis=(1, 2, 3))
        information[i, later] = (
            entropy(tables.sum(axis=2), (1, 2))
            + entropy(tables.sum(axis=1), (1, 2))
            - entropy(tables, (1, 2, 3))
            - entropy(tables.sum(axis=(1, 2)), 1)
        )
    return information, weight


def _group_later_features(n_levels: np.ndarray, i: int) -> Iterator[np.ndarray]:
    """Yield arrays of those features after `i` that have the same number of levels."""
    later_levels = n_levels[i + 1 :]
    for L in np.unique(later_levels):
        yield i + 1 + np.flatnonzero(later_levels == L)


def _counted_tables(
    sample: Rows, n_levels: np.ndarray, K: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each feature i, arrays of later features, and the tables of i with each of these
    features.

    The tables have shape (later features, levels of i, levels of the later feature, K) and are
    counted row by row.
    """
    m = len(n_levels)
    for run in _split_features(n_levels, K, CELLS):
        pairs = Families([(j, (i,)) for i in run for j in range(i + 1, m)], n_levels, K)
        counts = pairs.count(sample)
        first_pair = 0  # position of the pair (i, i + 1)
        for i in run:
            for later in _group_later_features(n_levels, i):
                # the pairs (i, i + 1), (i, i + 2), ... are consecutive
                yield (
                    i,
                    later,
                    np.stack([pairs.table(counts, first_pair + int(j) - i - 1) for j in later]),
                )
            first_pair += m - i - 1


def _packed_tables(
    sample: Rows, n_levels: np.ndarray, K: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the same tables as `_counted_tables`, but count 64 rows at a time, stored as bits.

    Large weights are counted by matrix products.
    """
    level_start = np.concatenate(([0], np.cumsum(n_levels)))
    for run in _split_features(n_levels, K, PACKED_CELLS):
        start = level_start - level_start[run[0]]  # first column of each feature in `counts`
        # (K, levels of the run, levels from the run on)
        counts = _count_level_pairs(sample, n_levels, K, run)
        for i in run:
            feature_counts = counts[:, start[i] : start[i + 1]]
            for later in _group_later_features(n_levels, i):
                # (later features, their levels)
                columns = start[later][:, None] + np.arange(n_levels[later[0]])
                yield (
                    i,
                    later,
                    np.ascontiguousarray(feature_counts[:, :, columns].transpose(2, 1, 3, 0)),
                )


def _count_level_pairs(sample: Rows, n_levels: np.ndarray, K: int, run: list[int]) -> np.ndarray:
    """Return the counts of level pairs, shape (K, levels of the run, levels of the run and of later
    features).

    Pairs are counted first within the run, then between the run and blocks of ``len(run)`` later
    features. A single later feature is counted together with the run.
    """
    m = len(n_levels)
    run_levels = int(n_levels[run].sum())
    # each block also counts the pairs within the run, which is wasteful for a single later feature
    block_starts = [] if run[-1] == m - 2 else range(run[-1] + 1, m, len(run))
    block_edges = [run[0], *block_starts, m]
    counts = np.zeros((K, run_levels, int(n_levels[run[0] :].sum())))
    for c in range(K):
        group = sample.group(c)  # the rows of class c
        # at most this many rows of a file are read at a time; rows in memory are a single chunk
        for rows in group.chunks(BLOCK):
            # missing values are coded as level 0, the reference level, which `pair_counts` does not
            # count
            codes = rows.codes.astype(code_dtype(n_levels + 1)) + np.uint8(1)
            if rows.missing is not None:
                codes[rows.missing] = 0
            column = 0
            for low, high in pairwise(block_edges):
                is_run = low == run[0]
                features = np.arange(low, high) if is_run else np.array([*run, *range(low, high)])
                run_and_block = Sample(codes.take(features, axis=1), rows.weights)
                # with an additional level for missing values, no level of a feature is a reference
                # level
                block_counts = pair_counts(run_and_block, Layout(n_levels[features] + 1))
                # rows: levels of the run; columns: levels of the block; the first block is the run
                # itself
                block_counts = block_counts[:run_levels, 0 if is_run else run_levels :]
                counts[c, :, column : column + block_counts.shape[1]] += block_counts
                column += block_counts.shape[1]
    return counts


def class_information(sample: Rows, n_levels: np.ndarray, K: int) -> np.ndarray:
    """Return the mutual information (m,) of each feature with the class, in nats."""
    families = Families([(i, ()) for i in range(len(n_levels))], n_levels, K)
    counts = families.count(sample)
    # each table has shape (levels, K)
    tables = (families.table(counts, f) for f in range(len(n_levels)))
    # Z has a single level
    return np.array([conditional_information(table[:, :, None]) for table in tables])
