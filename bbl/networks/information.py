"""Information: entropies, mutual information and conditional mutual information from tables of counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bbl._ext import moments as kernel
from bbl.networks.families import BLOCK, Families
from bbl.rows.sample import code_dtype
from bbl.rows.stored import Rows, StoredSample

__all__ = ["UNITS", "class_information", "conditional_information", "entropy", "pair_information"]

UNITS = {"log": 1.0, "log2": float(np.log(2.0)), "log10": float(np.log(10.0))}
CELLS = 2**22  # cells of pair tables that are held at a time
DENSE = 2**27  # bytes of all pair tables, up to which they are counted together


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


def _blocks(n_levels: np.ndarray, K: int) -> Iterator[list[int]]:
    """Cut the features into runs whose tables with all later features fit into `CELLS`."""
    after = np.cumsum(n_levels[::-1])[::-1]
    run: list[int] = []
    held = 0
    for i, L in enumerate(n_levels[:-1]):
        need = int(L) * int(after[i]) * K
        if run and held + need > CELLS:
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
    unit = sample.unweighted
    packed = unit and 8.0 * K * int(n_levels.sum()) ** 2 <= DENSE
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
    for run in _blocks(n_levels, K):
        pairs = Families([(j, (i,)) for i in run for j in range(i + 1, m)], n_levels, K)
        counts = pairs.count(sample)
        f = 0
        for i in run:
            for later in _of_equal_levels(n_levels, i):
                yield i, later, np.stack([pairs.table(counts, f + int(j) - i - 1) for j in later])
            f += m - i - 1


def _packed_tables(sample: Rows, n_levels: np.ndarray, K: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield what `_counted_tables` does for rows of weight one, 64 rows at a time by counts of bits."""
    start = np.concatenate(([0], np.cumsum(n_levels))).astype(np.intp)
    D = int(start[-1])
    dense = np.zeros((K, D, D))
    for c in range(K):
        group = sample.group(c)
        for part in group.blocks(BLOCK) if isinstance(group, StoredSample) else [group]:
            # level 0 of the kernel has no bit: here it is what is missing
            codes = part.codes.astype(code_dtype(n_levels + 1)) + np.uint8(1)
            if part.missing is not None:
                codes[part.missing] = 0
            kernel.shared_counts(codes, start, dense[c])
    for i in range(len(n_levels) - 1):
        rows = dense[:, start[i] : start[i + 1]]
        for later in _of_equal_levels(n_levels, i):
            columns = start[later][:, None] + np.arange(n_levels[later[0]])
            yield i, later, np.ascontiguousarray(rows[:, :, columns].transpose(2, 1, 3, 0))


def class_information(sample: Rows, n_levels: np.ndarray, K: int) -> np.ndarray:
    """Return the mutual information (m,) of each feature with the class, in nats."""
    families = Families([(i, ()) for i in range(len(n_levels))], n_levels, K)
    counts = families.count(sample)
    tables = (families.table(counts, f) for f in range(len(n_levels)))
    return np.array([conditional_information(t[:, :, None]) for t in tables])
