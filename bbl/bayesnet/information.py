"""Information: entropies, mutual information and conditional mutual information from tables of counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bbl.bayesnet.families import BLOCK, Families
from bbl.model.layout import Layout
from bbl.model.moments import pair_counts
from bbl.rows.sample import Rows, Sample, code_dtype

__all__ = ["UNITS", "class_information", "conditional_information", "entropy", "pair_information"]

UNITS = {"log": 1.0, "log2": float(np.log(2.0)), "log10": float(np.log(10.0))}
CELLS = 2**22  # of the pair tables that are counted row by row at a time
PACKED_CELLS = 2**24  # of the pair tables that are counted by bits at a time: 128 MiB
PACKED_LEVELS = (
    32  # mean levels of a feature up to which bits are faster than rows: a pair takes L * L / 64 words a row
)
PACKED_WEIGHTED_LEVELS = 8  # the same with weights: up to 8 bits of each, or products of matrices


def _xlogx(p: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p), 0.0)


def entropy(counts: np.ndarray, axis: int | tuple[int, ...] | None = None) -> np.ndarray:
    """Return ``-sum p log p`` of the relative frequencies of counts, over `axis`; 0 of no counts."""
    total = counts.sum(axis=axis, keepdims=True)
    return -_xlogx(counts / np.where(total > 0, total, 1.0)).sum(axis=axis)


def conditional_information(counts: np.ndarray) -> float:
    """Return the mutual information of X and Y given Z in nats, from their table (x, y, z).

    ``H(X,Z) + H(Y,Z) - H(X,Y,Z) - H(Z)``; with one level of Z it is ``H(X) + H(Y) - H(X,Y)``.

    Examples
    --------
    >>> round(float(conditional_information(np.array([[[2.0], [0.0]], [[0.0], [2.0]]]))), 4)
    0.6931
    """
    H = entropy
    return float(H(counts.sum(axis=1)) + H(counts.sum(axis=0)) - H(counts) - H(counts.sum(axis=(0, 1))))


def _runs(n_levels: np.ndarray, K: int, cells: int) -> Iterator[list[int]]:
    """Cut the features into runs whose tables with all later features have so many cells at most, or one feature."""
    after = np.cumsum(n_levels[::-1])[::-1]
    run: list[int] = []
    held = 0
    for i, L in enumerate(n_levels[:-1]):
        need = int(L) * int(after[i]) * K
        if run and held + need > cells:
            yield run
            run, held = [], 0
        run.append(i)
        held += need
    if run:
        yield run


def pair_information(sample: Rows, n_levels: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the conditional mutual information of each pair of features given the class, and its rows' weight.

    Parameters
    ----------
    sample : Sample
    n_levels : ndarray, shape (m,)
    K : int
        Classes.

    Returns
    -------
    information, weight : ndarray, shape (m, m)
        Above the diagonal, in nats; each pair over the rows in which both features and the class are known.
    """
    n_levels = np.asarray(n_levels, dtype=np.intp)
    m = len(n_levels)
    information, weight = np.zeros((m, m)), np.zeros((m, m))
    packed = n_levels.sum() <= m * (PACKED_LEVELS if sample.unweighted else PACKED_WEIGHTED_LEVELS)
    for i, later, tables in (_packed_tables if packed else _counted_tables)(sample, n_levels, K):
        weight[i, later] = tables.sum(axis=(1, 2, 3))
        information[i, later] = (
            entropy(tables.sum(axis=2), (1, 2))
            + entropy(tables.sum(axis=1), (1, 2))
            - entropy(tables, (1, 2, 3))
            - entropy(tables.sum(axis=(1, 2)), 1)
        )
    return information, weight


def _of_equal_levels(n_levels: np.ndarray, i: int) -> Iterator[np.ndarray]:
    """Return the features after `i` in sets of as many levels."""
    later = n_levels[i + 1 :]
    for L in np.unique(later):
        yield i + 1 + np.flatnonzero(later == L)


def _counted_tables(sample: Rows, n_levels: np.ndarray, K: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield a feature, later ones, and their tables (later, levels, levels, K); counted row by row, in blocks."""
    m = len(n_levels)
    for run in _runs(n_levels, K, CELLS):
        pairs = Families([(j, (i,)) for i in run for j in range(i + 1, m)], n_levels, K)
        counts = pairs.count(sample)
        f = 0
        for i in run:
            for later in _of_equal_levels(n_levels, i):
                yield i, later, np.stack([pairs.table(counts, f + int(j) - i - 1) for j in later])
            f += m - i - 1


def _packed_tables(sample: Rows, n_levels: np.ndarray, K: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield what `_counted_tables` does, 64 rows at a time by counts of bits; of large weights by products."""
    start = np.concatenate(([0], np.cumsum(n_levels)))
    for run in _runs(n_levels, K, PACKED_CELLS):
        first = start[run[0]]
        counts = _level_pairs(sample, n_levels, K, run)
        for i in run:
            rows = counts[:, start[i] - first : start[i + 1] - first]
            for later in _of_equal_levels(n_levels, i):
                columns = (start[later] - first)[:, None] + np.arange(n_levels[later[0]])
                yield i, later, np.ascontiguousarray(rows[:, :, columns].transpose(2, 1, 3, 0))


def _level_pairs(sample: Rows, n_levels: np.ndarray, K: int, run: list[int]) -> np.ndarray:
    """Return the counts (K, levels of the run, levels of the run and of all later features) of pairs of levels.

    Pairs are counted in squares: the run with itself, then with as many later features at a time.
    """
    m, width = len(n_levels), int(n_levels[run].sum())
    later = [] if run[-1] == m - 2 else range(run[-1] + 1, m, len(run))  # the last feature is in no run
    edges = [run[0], *later, m]
    counts = np.zeros((K, width, int(n_levels[run[0] :].sum())))
    for c in range(K):
        group = sample.group(c)
        for rows in group.chunks(BLOCK):
            # the reference level, which is not counted, stands for what is missing
            codes = rows.codes.astype(code_dtype(n_levels + 1)) + np.uint8(1)
            if rows.missing is not None:
                codes[rows.missing] = 0
            column = 0
            for low, high in pairwise(edges):
                square = np.arange(low, high) if low == run[0] else np.array([*run, *range(low, high)])
                pairs = pair_counts(Sample(codes.take(square, axis=1), rows.weights), Layout(n_levels[square] + 1))
                pairs = pairs[:width, 0 if low == run[0] else width :]
                counts[c, :, column : column + pairs.shape[1]] += pairs
                column += pairs.shape[1]
    return counts


def class_information(sample: Rows, n_levels: np.ndarray, K: int) -> np.ndarray:
    """Return the mutual information (m,) of each feature with the class, in nats."""
    families = Families([(i, ()) for i in range(len(n_levels))], n_levels, K)
    counts = families.count(sample)
    tables = (families.table(counts, f) for f in range(len(n_levels)))
    return np.array([conditional_information(t[:, :, None]) for t in tables])
