"""Partition: labels of groups; how alike two partitions are, and the one that stands for many draws."""

from __future__ import annotations

import numpy as np

__all__ = ["LOSSES", "canonical", "contingency", "expected_loss", "point_partition", "rand_index", "similarity"]

CANDIDATES = 1000  # draws, the most frequent ones, that the search for a point partition compares


def canonical(labels: np.ndarray) -> np.ndarray:
    """Return the labels numbered in order of first appearance: equal for equal partitions.

    Examples
    --------
    >>> canonical(np.array([2, 0, 2, 1])).tolist()
    [0, 1, 0, 2]
    """
    _, first, group_of_item = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[group_of_item]


def contingency(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return how many items are in group g of one partition and group h of the other, shape (a, b)."""
    one, other = canonical(one), canonical(other)
    counts = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(counts, (one, other), 1.0)
    return counts


def rand_index(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return the Rand index (Rand 1971) and the adjusted one (Hubert & Arabie 1985) of two partitions of n items.

    Examples
    --------
    >>> rand_index(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 2]))
    (0.8333333333333334, 0.5714285714285715)
    """

    def pairs(counts):
        return float((counts * (counts - 1.0)).sum() / 2.0)

    counts = contingency(one, other)
    n = float(counts.sum())
    total = n * (n - 1.0) / 2.0
    if total == 0.0:
        return 1.0, 1.0
    both, pairs_in_one, pairs_in_other = pairs(counts), pairs(counts.sum(axis=1)), pairs(counts.sum(axis=0))
    expected, most = pairs_in_one * pairs_in_other / total, (pairs_in_one + pairs_in_other) / 2.0
    adjusted = 1.0 if most == expected else (both - expected) / (most - expected)
    return (total + 2.0 * both - pairs_in_one - pairs_in_other) / total, adjusted


def similarity(draws: np.ndarray) -> np.ndarray:
    """Return how often each two items are in one group, over draws (n, I) of labels; shape (I, I).

    Examples
    --------
    >>> similarity(np.array([[0, 0, 1], [0, 1, 1]])).tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]]
    """
    total = np.zeros((draws.shape[1], draws.shape[1]))
    for labels in draws:
        total += labels[:, None] == labels
    return total / len(draws)


def _binder(share: np.ndarray) -> float:
    return float((1.0 - 2.0 * share).sum() - (1.0 - 2.0 * np.diag(share)).sum()) / 2.0


def _information(share: np.ndarray) -> float:
    return float(len(share) * np.log(len(share)) - 2.0 * np.log(share.sum(axis=1)).sum())


LOSSES = {"vi": _information, "binder": _binder}


def expected_loss(labels: np.ndarray, share: np.ndarray, loss: str = "vi") -> float:
    """Return the posterior expected loss of a partition, from the similarity matrix `share` (I, I).

    ``"binder"``: pairs of items that are put together or apart against a draw. ``"vi"``: the variation of information
    in nats, as Wade & Ghahramani (2018, eq. 13) bound it, who swap mean and logarithm: exact for a single draw; else
    the part that the partition changes is bounded from below.
    """
    total = sum(LOSSES[loss](share[np.ix_(members, members)]) for members in _members(labels))
    if loss == "binder":
        return float(total + (share.sum() - np.trace(share)) / 2.0)
    return float(total + np.log(share.sum(axis=1)).sum()) / len(labels)


def _members(labels: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(labels == g) for g in np.unique(labels)]


def point_partition(draws: np.ndarray, share: np.ndarray, loss: str = "vi") -> np.ndarray:
    """Return the partition of least expected loss: the best draw, improved by moving one item after the other.

    Parameters
    ----------
    draws : ndarray of int, shape (n, I)
        Canonical labels.
    share : ndarray, shape (I, I)
        Their `similarity`.
    loss : {"vi", "binder"}, default "vi"

    Returns
    -------
    ndarray of int32, shape (I,)

    References
    ----------
    Wade S, Ghahramani Z (2018). Bayesian cluster analysis: point estimation and credible balls. Bayesian Analysis 13,
    559-626. Binder DA (1978). Bayesian cluster analysis. Biometrika 65, 31-38.
    """
    partitions, counts = np.unique(draws, axis=0, return_counts=True)
    partitions = partitions[np.argsort(-counts, kind="stable")[:CANDIDATES]]
    labels = partitions[np.argmin([expected_loss(one, share, loss) for one in partitions])].astype(np.int64)
    cost, moved = LOSSES[loss], True
    while moved:
        moved = False
        for i in range(len(labels)):
            same_group = labels == labels[i]
            group_without_i = same_group.copy()
            group_without_i[i] = False
            gain = cost(share[np.ix_(same_group, same_group)]) - (
                cost(share[np.ix_(group_without_i, group_without_i)]) if group_without_i.any() else 0.0
            )
            best, target = gain - 1e-9 * max(1.0, abs(gain)), labels[i]
            for g in [*np.unique(labels[~same_group]), labels.max() + 1]:
                there = labels == g
                before = cost(share[np.ix_(there, there)]) if there.any() else 0.0
                there[i] = True
                rise = cost(share[np.ix_(there, there)]) - before
                if rise < best:
                    best, target = rise, g
            if target != labels[i]:
                labels[i], moved = target, True
    return canonical(labels)
