"""Cuts: where numbers are cut into bins: by quantiles, equal widths, or what tells groups apart."""

from __future__ import annotations

import numpy as np

__all__ = ["CUTS", "mdl_cuts", "quantile_cuts", "width_cuts"]

CUTS = ("quantile", "width", "mdl")


def quantile_cuts(x: np.ndarray, weights: np.ndarray, bins: int) -> np.ndarray:
    """Return up to `bins` - 1 ascending cuts that leave about as much weight in each bin; ties stay together.

    Examples
    --------
    >>> quantile_cuts(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4), 2)
    array([2.5])
    """
    values, at = np.unique(x, return_inverse=True)
    share = np.cumsum(np.bincount(at, weights)) / weights.sum()
    last = len(values) - 2  # the last cut has to leave something above it
    wanted = np.arange(1, bins) / bins
    where = np.unique([int(np.abs(share - w).argmin()) for w in wanted])
    return _between(values, where[where <= last])


def width_cuts(x: np.ndarray, weights: np.ndarray, bins: int) -> np.ndarray:
    """Return the cuts between bins of equal width that hold something on both sides; weights do not matter."""
    low, high = float(x.min()), float(x.max())
    cuts = np.linspace(low, high, bins + 1)[1:-1]
    cuts = _short(cuts, np.full(len(cuts), (high - low) / bins))
    return cuts[(cuts > low) & (cuts < high)]


def mdl_cuts(x: np.ndarray, weights: np.ndarray, y: np.ndarray, most: int = 32) -> np.ndarray:
    """Return the cuts that tell groups apart by more than they cost to describe (Fayyad & Irani 1993).

    Parameters
    ----------
    x : ndarray, shape (n,)
    weights : ndarray, shape (n,)
    y : ndarray of int, shape (n,)
        Group of each row.
    most : int, default 32
        Cuts at most.

    Returns
    -------
    ndarray
        Ascending; empty where no cut pays.

    Examples
    --------
    >>> mdl_cuts(np.arange(20.0), np.ones(20), (np.arange(20) >= 8).astype(int))
    array([7.5])
    """
    values, at = np.unique(x, return_inverse=True)
    K = int(y.max(initial=0)) + 1
    counts = np.bincount(at * K + y, weights, len(values) * K).reshape(-1, K)
    above = np.vstack([np.zeros(K), np.cumsum(counts, axis=0)])  # of the values before each
    cut_positions: list[int] = []
    parts = [(0, len(values))]
    while parts and len(cut_positions) < most:
        low, high = parts.pop()
        cut = _best_cut(above[low : high + 1] - above[low])
        if cut:
            cut_positions.append(low + cut - 1)
            parts += [(low, low + cut), (low + cut, high)]
    return _between(values, np.array(sorted(cut_positions), dtype=np.intp))


def _best_cut(above: np.ndarray) -> int:
    """Return how many values belong to the lower part of the best cut that pays; 0 if none does."""
    total = above[-1]
    n = total.sum()
    counts_above, counts_below = above[1:-1], total - above[1:-1]
    if not len(counts_above):
        return 0
    n1, n2 = counts_above.sum(axis=1), counts_below.sum(axis=1)
    split = (n1 * _entropy(counts_above) + n2 * _entropy(counts_below)) / n
    at = int(split.argmin())
    entropy_of_all = float(_entropy(total[None])[0])
    k, k1, k2 = ((c > 0).sum() for c in (total, counts_above[at], counts_below[at]))
    parts = k1 * float(_entropy(counts_above[at : at + 1])[0]) + k2 * float(_entropy(counts_below[at : at + 1])[0])
    price = (np.log2(max(n - 1.0, 1.0)) + np.log2(3.0**k - 2.0) - (k * entropy_of_all - parts)) / n
    return at + 1 if entropy_of_all - float(split[at]) > price else 0


def _entropy(counts: np.ndarray) -> np.ndarray:
    """Return the entropy of each row in bits."""
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(share > 0, share * np.log2(share), 0.0).sum(axis=1)


def _between(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return the middles between values and the next ones."""
    gap = values[where + 1] - values[where]
    return _short(values[where] + gap / 2, gap)


def _short(cuts: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return cuts with few digits, none moved by more than a thousandth of its room: they become labels."""
    digits = np.ceil(-np.log10(2e-3) - np.log10(np.clip(room, 5e-324, 1e308))).astype(int).tolist()
    return np.array([round(cut, n_digits) for cut, n_digits in zip(cuts.tolist(), digits, strict=True)])
