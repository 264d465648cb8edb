"""Cut points for binning numeric values: quantiles, equal widths, or minimum description length."""

from __future__ import annotations

import numpy as np

__all__ = ["CUTS", "mdl_cuts", "quantile_cuts", "width_cuts"]

CUTS = ("quantile", "width", "mdl")


def quantile_cuts(x: np.ndarray, weights: np.ndarray, bins: int) -> np.ndarray:
    """Return up to `bins` - 1 increasing cuts of x (n,) that form bins of about equal weight.

    Equal values are in the same bin.

    Examples
    --------
    >>> quantile_cuts(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4), 2)
    array([2.5])
    """
    values, value_index = np.unique(x, return_inverse=True)
    cumulative_share = np.cumsum(np.bincount(value_index, weights)) / weights.sum()
    last_cut = len(values) - 2  # at least one value is above the last cut
    targets = np.arange(1, bins) / bins
    cut_after = np.unique([int(np.abs(cumulative_share - target).argmin()) for target in targets])
    return _find_midpoints(values, cut_after[cut_after <= last_cut])


def width_cuts(x: np.ndarray, weights: np.ndarray, bins: int) -> np.ndarray:
    """Return the cuts between bins of equal width; `weights` is ignored. Cuts with all values on
    one side are omitted.
    """
    low = float(x.min())
    high = float(x.max())
    cuts = np.linspace(low, high, bins + 1)[1:-1]
    cuts = _round_cuts(cuts, np.full(len(cuts), (high - low) / bins / 50))  # nearly equal widths
    return cuts[(cuts > low) & (cuts < high)]


def mdl_cuts(x: np.ndarray, weights: np.ndarray, y: np.ndarray, most: int = 32) -> np.ndarray:
    """Return the cuts that minimise the description length of the groups (Fayyad & Irani 1993).

    Parameters
    ----------
    x : ndarray, shape (n,)
    weights : ndarray, shape (n,)
    y : ndarray of int, shape (n,)
        Group of each row.
    most : int, default 32
        Maximum number of cuts.

    Returns
    -------
    ndarray
        The cuts, in increasing order; empty if no cut reduces the description length.

    Examples
    --------
    >>> mdl_cuts(np.arange(20.0), np.ones(20), (np.arange(20) >= 8).astype(int))
    array([7.5])
    """
    values, value_index = np.unique(x, return_inverse=True)
    K = int(y.max(initial=0)) + 1
    counts = np.bincount(value_index * K + y, weights, len(values) * K).reshape(-1, K)
    # (values + 1, K): counts of all lower values
    counts_before = np.vstack([np.zeros(K), np.cumsum(counts, axis=0)])
    cut_after: list[int] = []
    intervals = [(0, len(values))]  # intervals of positions in `values`, still to be cut
    while intervals and len(cut_after) < most:
        # upper intervals first; once `most` is reached, lower intervals remain uncut
        low, high = intervals.pop()
        n_lower = _find_best_cut(counts_before[low : high + 1] - counts_before[low])
        if n_lower:
            cut_after.append(low + n_lower - 1)
            intervals += [(low, low + n_lower), (low + n_lower, high)]
    return _find_midpoints(values, np.array(sorted(cut_after), dtype=np.intp))


def _find_best_cut(counts_before: np.ndarray) -> int:
    """Return the number of values below the best cut of an interval with v values, or 0 if there is
    no cut.

    A cut that divides N rows reduces the description length if it decreases the mean entropy E by
    more than ``(log2(N - 1) + log2(3^k - 2) - (k E - k1 E1 - k2 E2)) / N``, where E1 and E2 are the
    entropies below and above the cut, and k, k1 and k2 are the numbers of groups in total, below
    and above the cut. `counts_before` (v + 1, K) contains the weight of each group before each
    value, followed by the total weight.
    """
    total = counts_before[-1]
    total_weight = total.sum()
    lower = counts_before[1:-1]
    upper = total - counts_before[1:-1]
    if not len(lower):
        return 0
    lower_weights = lower.sum(axis=1)
    upper_weights = upper.sum(axis=1)
    split_entropy = (
        lower_weights * _entropy(lower) + upper_weights * _entropy(upper)
    ) / total_weight
    best = int(split_entropy.argmin())
    entropy = float(_entropy(total[None])[0])
    k, k1, k2 = ((c > 0).sum() for c in (total, lower[best], upper[best]))
    entropy1, entropy2 = (float(_entropy(counts[best : best + 1])[0]) for counts in (lower, upper))
    cost = (
        np.log2(max(total_weight - 1.0, 1.0))
        + np.log2(3.0**k - 2.0)
        - (k * entropy - (k1 * entropy1 + k2 * entropy2))
    )
    cost /= total_weight
    # cut 0 has one value below it
    return best + 1 if entropy - float(split_entropy[best]) > cost else 0


def _entropy(counts: np.ndarray) -> np.ndarray:
    """Return the entropy (rows,) of counts (rows, K) in bits."""
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(share > 0, share * np.log2(share), 0.0).sum(axis=1)


def _find_midpoints(values: np.ndarray, cut_after: np.ndarray) -> np.ndarray:
    """Return rounded midpoints between the values at the positions `cut_after` and the next
    values.
    """
    gaps = values[cut_after + 1] - values[cut_after]
    return _round_cuts(values[cut_after] + gaps / 2, gaps)


def _round_cuts(cuts: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Round cuts (c,) to few digits for labels, each by at most 5 % of its gap in `gaps` (c,)."""
    digits = np.ceil(1.0 - np.log10(np.clip(gaps, 5e-324, 1e308))).astype(int).tolist()
    return np.array(
        [round(cut, n_digits) for cut, n_digits in zip(cuts.tolist(), digits, strict=True)]
    )
