"""Odds of levels against a reference level in two samples: the cells that decide, and limits against both together."""

from __future__ import annotations

import numpy as np

__all__ = ["least_cells", "shifts_from_pooled"]


def least_cells(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the smallest count, observed or expected, of 2 x 2 tables: two samples by level and reference level.

    Parameters
    ----------
    one, other : ndarray, shape (2, D)
        Counts at each of D levels (first row), and at their reference level.

    Returns
    -------
    ndarray, shape (D,)
        Expected are the counts of the same margins if the odds were the same in both samples.

    Examples
    --------
    >>> least_cells(np.array([[3.0], [27.0]]), np.array([[40.0], [130.0]])).tolist()
    [3.0]
    >>> least_cells(np.array([[25.0], [5.0]]), np.array([[40.0], [930.0]])).tolist()
    [1.95]
    """
    cells = np.stack([one, other])
    total = np.maximum(cells.sum(axis=(0, 1)), 1.0)
    expected = cells.sum(axis=1, keepdims=True) * cells.sum(axis=0, keepdims=True) / total
    return np.minimum(cells, expected).min(axis=(0, 1))


def shifts_from_pooled(log_ratios: np.ndarray, counts: np.ndarray, sizes: np.ndarray, g: int) -> np.ndarray:
    """Turn limits of log odds ratios of group `g` and the other groups into limits of its shift from all groups.

    The shift is the log odds of group `g` less the log odds of all groups together. It is zero where the log odds ratio
    is, and has the same sign.

    Parameters
    ----------
    log_ratios : ndarray, shape (D,)
        Limits of the log odds of `g` less those of the other groups together; may be infinite, or nan.
    counts : ndarray, shape (K, 2, D)
        Counts of each group at D levels, and at their reference level.
    sizes : ndarray, shape (K, D)
        Observations of each group, those at further levels included.
    g : int

    Returns
    -------
    ndarray, shape (D,)

    Notes
    -----
    Given the margins of the 2 x 2 table of `g` and the others, the odds of all groups are fixed, and a log odds ratio
    determines the cells. The shift of these cells has the standard error s that holds given the margins. The estimate
    has the standard error S given the sizes of the groups, which is larger where groups differ. So limits are moved
    away from the estimate d: with ``(limit / d) ** (S / s)`` in place of ``limit / d``, which keeps their sign.
    """
    total, one = counts.sum(axis=0), counts[g]
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = np.log(total[0]) - np.log(total[1])
        limits = _log_odds(log_ratios, one, total) - pooled
        estimate = np.log(one[0]) - np.log(one[1]) - pooled
        given_margins = (1.0 / one).sum(axis=0) ** 2 / ((1.0 / one).sum(axis=0) + (1.0 / (total - one)).sum(axis=0))
        ratio = limits / estimate
        moved = estimate * np.sign(ratio) * np.abs(ratio) ** np.sqrt(_variance(counts, sizes, g) / given_margins)
    return np.where(estimate == 0.0, limits, moved)


def _log_odds(log_ratios: np.ndarray, one: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the log odds (D,) of the first sample in 2 x 2 tables of given margins and log odds ratios."""
    # the cell that is smaller than expected, from which the other one of the sample follows without cancellation
    low = log_ratios <= 0.0
    n, size, column = total.sum(axis=0), one.sum(axis=0), np.where(low, total[0], total[1])
    ratio = np.exp(-np.abs(log_ratios))
    b = n - size - column + ratio * (size + column)
    root = np.sqrt(b**2 + 4.0 * (1.0 - ratio) * ratio * size * column)
    cell = np.where(b > 0.0, 2.0 * ratio * size * column / (b + root), (root - b) / (2.0 * (1.0 - ratio)))
    log_odds = np.log(cell) - np.log(size - cell)
    return np.where(low, log_odds, -log_odds)


def _variance(counts: np.ndarray, sizes: np.ndarray, g: int) -> np.ndarray:
    """Return the variance (D,) of the shift of group `g`, given the sizes of all groups (delta method)."""
    total = counts.sum(axis=0)
    slopes = np.broadcast_to(-1.0 / total, counts.shape).copy()
    slopes[g] += 1.0 / counts[g]
    slopes[:, 1] *= -1.0
    means = (counts * slopes).sum(axis=1)
    return (counts * slopes**2).sum(axis=(0, 1)) - (means**2 / np.maximum(sizes, 1.0)).sum(axis=0)
