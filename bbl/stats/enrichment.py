"""Whether the known ones among all pairs come early in a ranked list: hypergeometric and rank test."""

from __future__ import annotations

import numpy as np

__all__ = ["hypergeometric", "rank_test"]

NORMAL_FROM = 20  # known, and unknown, pairs from which on rank sums are taken for normal
PERMUTATIONS = 9999  # of the ranks of fewer pairs


def hypergeometric(known: np.ndarray, taken: np.ndarray, pairs: int, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many known pairs are among the first of a list, and the probability of as many by chance.

    Parameters
    ----------
    known : ndarray of bool, shape (n,)
        Of the listed pairs, in their order.
    taken : ndarray of int, shape (T,)
        Lengths of the beginnings that are looked at.
    pairs, total : int
        All pairs, and the known ones among them.

    Examples
    --------
    >>> found, p = hypergeometric(np.array([True, True, False]), np.array([2]), pairs=10, total=3)
    >>> int(found[0]), float(p[0].round(4))
    (2, 0.0667)
    """
    from scipy.stats import hypergeom

    n_known_above = np.concatenate([[0], np.cumsum(known)])[taken]
    return n_known_above, hypergeom.sf(n_known_above - 1, pairs, total, taken)


def rank_test(known: np.ndarray, pairs: int, total: int) -> tuple[float, float]:
    """Return the probability that a known pair comes before another one, and the p-value of its being over a half.

    Pairs that are not listed share the last rank. Mann and Whitney's test with its correction for ties; with fewer than
    20 known or other pairs the share of 9,999 random choices of the known ones that are as early (always the same).

    Parameters
    ----------
    known : ndarray of bool, shape (n,)
        Of the listed pairs, in their order.
    pairs, total : int
        All pairs, and the known ones among them.

    Examples
    --------
    >>> area, p = rank_test(np.array([True, True, False]), pairs=10, total=3)
    >>> round(area, 4), p < 0.2
    (0.8095, True)
    """
    from scipy.stats import mannwhitneyu

    n_unknown = pairs - total
    if not total or not n_unknown:
        return float("nan"), float("nan")
    n = len(known)
    score = np.concatenate([np.arange(pairs, pairs - n, -1.0), np.zeros(pairs - n)])
    of_known = np.concatenate([known, np.arange(pairs - n) < total - known.sum()])
    test = mannwhitneyu(score[of_known], score[~of_known], alternative="greater", method="asymptotic")
    area = float(test.statistic) / (total * n_unknown)
    if min(total, n_unknown) >= NORMAL_FROM:
        return area, float(test.pvalue)
    rank = np.concatenate([np.arange(n), np.full(pairs - n, 0.5 * (n + pairs - 1))])  # mean ranks
    rng, rank_sum = np.random.default_rng(0), rank[of_known].sum()
    drawn = np.array([rank[rng.choice(pairs, total, replace=False)].sum() for _ in range(PERMUTATIONS)])
    return area, float((1 + (drawn <= rank_sum + 1e-9).sum()) / (PERMUTATIONS + 1))
