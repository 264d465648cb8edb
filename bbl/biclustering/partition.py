"""Partitions of items, represented by labels: comparisons, and point estimates from posterior
draws.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "LOSSES",
    "canonical",
    "contingency",
    "expected_loss",
    "point_partition",
    "rand_index",
    "similarity",
]

# number of the most frequent partitions that are tried as starts for the point estimate
CANDIDATES = 1000


def canonical(labels: np.ndarray) -> np.ndarray:
    """Relabel groups as 0, 1, ... in order of first appearance, so that equal partitions have equal
    labels.

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
    """Return the contingency table (a, b) of two partitions: the number of items in each pair of
    groups.

    `one` and `other` are labels (I,).
    """
    one = canonical(one)
    other = canonical(other)
    counts = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(counts, (one, other), 1.0)
    return counts


def rand_index(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return the Rand index and the adjusted Rand index of two partitions, given labels (n,).

    See Rand (1971) and Hubert & Arabie (1985).

    Examples
    --------
    >>> rand_index(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 2]))
    (0.8333333333333334, 0.5714285714285715)
    """

    def n_pairs(counts: np.ndarray) -> float:
        """Return the number of pairs of items within groups of the given sizes."""
        return float((counts * (counts - 1.0)).sum() / 2.0)

    counts = contingency(one, other)
    n = float(counts.sum())
    total = n * (n - 1.0) / 2.0
    if total == 0.0:  # with a single item, the partitions are equal
        return 1.0, 1.0
    # number of pairs in the same group in both partitions, in the first, and in the second
    in_both = n_pairs(counts)
    in_one = n_pairs(counts.sum(axis=1))
    in_other = n_pairs(counts.sum(axis=0))
    expected = in_one * in_other / total
    largest = (in_one + in_other) / 2.0
    adjusted = 1.0 if largest == expected else (in_both - expected) / (largest - expected)
    return (total + 2.0 * in_both - in_one - in_other) / total, adjusted


def similarity(draws: np.ndarray) -> np.ndarray:
    """Return the proportion of draws where two items are in the same group, shape (I, I).

    `draws` (n, I) contains the labels.

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
    """Return the contribution of a group to the expected Binder loss.

    This is the sum of ``1 - 2 share`` over all pairs of the k members of the group.

    `share` (k, k) contains the similarities of the members.
    """
    return float((1.0 - 2.0 * share).sum() - (1.0 - 2.0 * np.diag(share)).sum()) / 2.0


def _information(share: np.ndarray) -> float:
    """Return the contribution of a group to the expected variation of information.

    This is ``sum_i (ln k - 2 ln sum_j share_ij)``.

    `share` (k, k) contains the similarities of the k members of the group.
    """
    return float(len(share) * np.log(len(share)) - 2.0 * np.log(share.sum(axis=1)).sum())


# contributions of groups to that part of the expected loss that depends on the partition
LOSSES = {"vi": _information, "binder": _binder}


def expected_loss(labels: np.ndarray, share: np.ndarray, loss: str = "vi") -> float:
    """Return the posterior expected loss of a partition, given the similarity matrix `share` (I,
    I).

    ``"binder"``: the number of pairs of items that are in the same group either only in the
    partition or only in the draw. ``"vi"``: the variation of information in nats, approximated by
    the logarithm of a mean instead of the mean of logarithms (Wade & Ghahramani 2018, eq. 13). The
    result is exact for a single draw; otherwise, it is a lower bound on the part of the loss that
    depends on the partition.
    """
    groups = [np.flatnonzero(labels == g) for g in np.unique(labels)]
    total = sum(LOSSES[loss](share[np.ix_(members, members)]) for members in groups)
    # add the part that is the same for all partitions
    if loss == "binder":
        return float(total + (share.sum() - np.trace(share)) / 2.0)
    return float(total + np.log(share.sum(axis=1)).sum()) / len(labels)


def point_partition(draws: np.ndarray, share: np.ndarray, loss: str = "vi") -> np.ndarray:
    """Return the partition with the smallest expected loss, as int32 labels (I,).

    This is the best of the draws, improved by moves of single items.

    `draws` (n, I) contains canonical labels, `share` (I, I) their `similarity`; `loss` is one of
    `LOSSES`.

    References
    ----------
    Wade S, Ghahramani Z (2018). Bayesian cluster analysis: point estimation and credible balls.
    Bayesian Analysis 13, 559-626. Binder DA (1978). Bayesian cluster analysis. Biometrika 65,
    31-38.
    """
    partitions, counts = np.unique(draws, axis=0, return_counts=True)
    partitions = partitions[np.argsort(-counts, kind="stable")[:CANDIDATES]]
    labels = partitions[
        np.argmin([expected_loss(partition, share, loss) for partition in partitions])
    ].astype(np.int64)
    cost = LOSSES[loss]
    has_moved = True
    while has_moved:
        has_moved = False
        for i in range(len(labels)):
            same_group = labels == labels[i]
            group_without_i = same_group.copy()
            group_without_i[i] = False
            # contribution of item i to the cost of its group, of every other group, and of a new
            # group
            cost_in_group = cost(share[np.ix_(same_group, same_group)]) - (
                cost(share[np.ix_(group_without_i, group_without_i)])
                if group_without_i.any()
                else 0.0
            )
            # the cost of another group must be smaller by more than rounding errors
            least_cost = cost_in_group - 1e-9 * max(1.0, abs(cost_in_group))
            target = labels[i]
            for g in [*np.unique(labels[~same_group]), labels.max() + 1]:
                members = labels == g
                cost_without_i = cost(share[np.ix_(members, members)]) if members.any() else 0.0
                members[i] = True
                added_cost = cost(share[np.ix_(members, members)]) - cost_without_i
                if added_cost < least_cost:
                    least_cost = added_cost
                    target = g
            if target != labels[i]:
                labels[i] = target
                has_moved = True
    return canonical(labels)
