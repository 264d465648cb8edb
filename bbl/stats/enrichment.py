"""Tests of whether known pairs are ranked early in a list: hypergeometric test and rank test.

`pairs` is the number of all pairs and `total` the number of known pairs, whether listed or not.
"""

from __future__ import annotations

import numpy as np

__all__ = ["hypergeometric", "rank_test"]

# minimum number of known and of unknown pairs for the normal approximation of rank sums
NORMAL_FROM = 20
PERMUTATIONS = 9999  # random permutations if there are fewer known or unknown pairs


def hypergeometric(
    known: np.ndarray, taken: np.ndarray, pairs: int, total: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of known pairs among the first pairs of a list, with p-values.

    Parameters
    ----------
    known : ndarray of bool, shape (n,)
        Whether each listed pair is known, in the order of the list.
    taken : ndarray of int, shape (T,)
        Numbers of pairs at the start of the list to test.
    pairs, total : int
        Numbers of all pairs and of all known pairs, whether listed or not.

    Returns
    -------
    n_known, p : ndarray, shape (T,)
        Number of known pairs among the first ``taken[t]``, and the probability of at least as many
        known pairs in a random order.

    Examples
    --------
    >>> n_known, p = hypergeometric(np.array([True, True, False]), np.array([2]), pairs=10, total=3)
    >>> int(n_known[0]), float(p[0].round(4))
    (2, 0.0667)
    """
    from scipy.stats import hypergeom

    n_known = np.concatenate([[0], np.cumsum(known)])[taken]  # 0 among the first 0 pairs
    # P(more than n_known - 1); scipy's M: number of pairs, n: of known pairs, N: of pairs drawn
    return n_known, hypergeom.sf(n_known - 1, M=pairs, n=total, N=taken)


def rank_test(known: np.ndarray, pairs: int, total: int) -> tuple[float, float]:
    """Return the AUC of known against unknown pairs, and the p-value of a one-sided test for AUC >
    1/2.

    The AUC is the probability that a known pair is ranked before an unknown pair. The test is a
    Mann-Whitney test with correction for ties. Pairs that are not listed share the last rank. With
    fewer than 20 known or unknown pairs, p is the proportion of 9,999 random permutations (with a
    fixed seed) that rank the known pairs at least as early. See `hypergeometric` for the arguments.

    Examples
    --------
    >>> area, p = rank_test(np.array([True, True, False]), pairs=10, total=3)
    >>> round(area, 4), p < 0.2
    (0.8095, True)
    """
    from scipy.stats import mannwhitneyu

    n_unknown = pairs - total  # listed or not
    if not total or not n_unknown:
        return float("nan"), float("nan")
    n = len(known)
    # listed pairs get decreasing scores, unlisted pairs 0, whatever their order
    score = np.concatenate([np.arange(pairs, pairs - n, -1.0), np.zeros(pairs - n)])
    # among unlisted pairs, the known ones first
    is_known = np.concatenate([known, np.arange(pairs - n) < total - known.sum()])
    test = mannwhitneyu(
        score[is_known], score[~is_known], alternative="greater", method="asymptotic"
    )
    area = float(test.statistic) / (total * n_unknown)  # U statistic over the number of comparisons
    if min(total, n_unknown) >= NORMAL_FROM:
        return area, float(test.pvalue)
    ranks = np.concatenate([np.arange(n), np.full(pairs - n, 0.5 * (n + pairs - 1))])  # mean ranks
    rng = np.random.default_rng(0)
    rank_sum = ranks[is_known].sum()
    rank_sums = np.array(
        [ranks[rng.choice(pairs, total, replace=False)].sum() for _ in range(PERMUTATIONS)]
    )
    return area, float((1 + (rank_sums <= rank_sum + 1e-9).sum()) / (PERMUTATIONS + 1))
