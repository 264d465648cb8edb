"""Odds of levels against a reference level in two samples: smallest counts and limits for shifts.

The counts of a sample have shape (2, D): counts at each of D levels, and counts at the reference
level.
"""

from __future__ import annotations

import numpy as np

__all__ = ["least_cells", "shifts_from_pooled"]


def least_cells(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the smallest observed or expected count in the 2 x 2 tables of two samples, shape
    (D,).

    `one` and `other` (2, D) contain the counts of the samples. Expected counts have the same
    margins as the observed counts, and equal odds in both samples.

    Examples
    --------
    >>> least_cells(np.array([[3.0], [27.0]]), np.array([[40.0], [130.0]])).tolist()
    [3.0]
    >>> least_cells(np.array([[25.0], [5.0]]), np.array([[40.0], [930.0]])).tolist()
    [1.95]
    """
    cells = np.stack([one, other])
    # 1 replaces 0: empty tables have expected counts of 0
    total = np.maximum(cells.sum(axis=(0, 1)), 1.0)
    expected = cells.sum(axis=1, keepdims=True) * cells.sum(axis=0, keepdims=True) / total
    return np.minimum(cells, expected).min(axis=(0, 1))


def shifts_from_pooled(
    log_ratios: np.ndarray, counts: np.ndarray, sizes: np.ndarray, g: int
) -> np.ndarray:
    """Convert limits (D,) for log odds ratios of group `g` against the other groups to limits for
    shifts.

    The shift is the log odds in the group minus the log odds in all groups combined. It has the
    same sign as the log odds ratio.

    Parameters
    ----------
    log_ratios : ndarray, shape (D,)
        Limits for the log odds in `g` minus the log odds in the other groups combined; may be
        infinite or nan.
    counts : ndarray, shape (K, 2, D)
        Counts of each group.
    sizes : ndarray, shape (K, D)
        Number of observations in each group, including observations at other levels.
    g : int

    Notes
    -----
    Given the margins of the 2 x 2 table of `g` and the other groups, the odds in all groups
    combined are fixed. A log odds ratio therefore determines the cells and the shift, whose
    standard error is s. Given only the group sizes, the estimate d has standard error S, which is
    usually larger. Limits are then moved away from d, as in `bbl.stats.shift.Shift.at`: their
    distance from d is multiplied by S / s. Limits between 0 and d, whose sign must be preserved,
    become ``d (limit / d) ** (S / s)``.
    """
    total = counts.sum(axis=0)
    group_counts = counts[g]
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = np.log(total[0]) - np.log(total[1])
        limits = _recover_log_odds(log_ratios, group_counts, total) - pooled
        estimate = np.log(group_counts[0]) - np.log(group_counts[1]) - pooled
        group_variance = (1.0 / group_counts).sum(axis=0)
        other_variance = (1.0 / (total - group_counts)).sum(axis=0)
        # given the margins a cell has variance 1 / (group + other); the derivative of the log odds
        # of `g` by the cell is `group_variance`
        variance_given_margins = group_variance**2 / (group_variance + other_variance)
        ratios = limits / estimate
        error_ratio = np.maximum(
            np.sqrt(_shift_variance(counts, sizes, g) / variance_given_margins), 1.0
        )
        is_between = (ratios >= 0.0) & (ratios <= 1.0)
        widened_limits = np.where(
            is_between,
            estimate * np.abs(ratios) ** error_ratio,
            estimate + error_ratio * (limits - estimate),
        )
    return np.where(estimate == 0.0, limits, widened_limits)


def _recover_log_odds(log_ratios: np.ndarray, counts: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the log odds (D,) in a sample, given log odds ratios against another sample and the
    margins.

    The margins are the sums of the `counts` (2, D) of the sample, and the counts `total` (2, D) of
    both samples combined.
    """
    # the cell solves cell (n - size - column + cell) = odds_ratio (size - cell) (column - cell), a
    # quadratic equation. Solve for the cell that is smaller than expected; the other one follows
    # without cancellation
    is_low = log_ratios <= 0.0
    # n: observations in both samples; size: in this sample; column: in both samples at the cell's
    # level
    n = total.sum(axis=0)
    size = counts.sum(axis=0)
    column = np.where(is_low, total[0], total[1])
    odds_ratio = np.exp(-np.abs(log_ratios))
    coefficient = n - size - column + odds_ratio * (size + column)
    root = np.sqrt(coefficient**2 + 4.0 * (1.0 - odds_ratio) * odds_ratio * size * column)
    # the root has two forms; the sign of `coefficient` selects the one without cancellation
    cell = np.where(
        coefficient > 0.0,
        2.0 * odds_ratio * size * column / (coefficient + root),
        (root - coefficient) / (2.0 * (1.0 - odds_ratio)),
    )
    log_odds = np.log(cell) - np.log(size - cell)
    return np.where(is_low, log_odds, -log_odds)


def _shift_variance(counts: np.ndarray, sizes: np.ndarray, g: int) -> np.ndarray:
    """Return the variance (D,) of the shift of group `g`, given all group sizes (K, D).

    By the delta method, with multinomial counts n_kc of groups with sizes N_k and derivatives s_kc
    of the shift with respect to these counts, the variance is ``sum_kc n_kc s_kc^2 - sum_k (sum_c
    n_kc s_kc)^2 / N_k``.
    """
    total = counts.sum(axis=0)
    # derivatives of the shift by the counts (K, 2, D)
    slopes = np.broadcast_to(-1.0 / total, counts.shape).copy()
    slopes[g] += 1.0 / counts[g]
    slopes[:, 1] *= -1.0
    # 1 replaces the size of a group without observations
    means = (counts * slopes).sum(axis=1)
    return (counts * slopes**2).sum(axis=(0, 1)) - (means**2 / np.maximum(sizes, 1.0)).sum(axis=0)
