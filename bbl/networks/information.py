"""Information: entropies, mutual information and conditional mutual information from tables of counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bbl.networks.families import Families
from bbl.rows.sample import Sample

__all__ = ["UNITS", "class_information", "conditional_information", "entropy", "pair_information"]

UNITS = {"log": 1.0, "log2": float(np.log(2.0)), "log10": float(np.log(10.0))}
CELLS = 2**22  # cells of pair tables that are held at a time


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


def pair_information(sample: Sample, n_levels: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
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
    for run in _blocks(n_levels, K):
        pairs = Families([(j, (i,)) for i in run for j in range(i + 1, m)], n_levels, K)
        counts = pairs.count(sample)
        f = 0
        for i in run:
            later = n_levels[i + 1 :]
            for L in np.unique(later):  # features of as many levels go together
                which = np.flatnonzero(later == L)
                tables = np.stack([pairs.table(counts, f + int(w)) for w in which])
                at = (i, i + 1 + which)
                weight[at] = tables.sum(axis=(1, 2, 3))
                information[at] = (
                    entropy(tables.sum(axis=2), (1, 2))
                    + entropy(tables.sum(axis=1), (1, 2))
                    - entropy(tables, (1, 2, 3))
                    - entropy(tables.sum(axis=(1, 2)), 1)
                )
            f += len(later)
    return information, weight


def class_information(sample: Sample, n_levels: np.ndarray, K: int) -> np.ndarray:
    """Return the mutual information (m,) of each feature with the class, in nats."""
    families = Families([(i, ()) for i in range(len(n_levels))], n_levels, K)
    counts = families.count(sample)
    tables = (families.table(counts, f) for f in range(len(n_levels)))
    return np.array([conditional_information(t[:, :, None]) for t in tables])
