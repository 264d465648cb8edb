"""Ties: numbers that differ only by rounding count as equal, and the first of equal numbers is
taken.
"""

from __future__ import annotations

import numpy as np

__all__ = ["TIE", "falling_order", "first_largest", "rising_ranks"]

# relative difference below which sums are equal; rounding of a thousand summed logarithms is about
# 1e-14
TIE = 1e-12


def first_largest(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the position of the largest value along an axis, the first of equal ones.

    Values are equal if they differ by less than 1e-12 times the larger of 1 and the largest
    absolute value.

    Examples
    --------
    >>> first_largest(np.array([[0.3, 0.1 + 0.2, 0.2], [-np.inf, 1.0, 1.1]])).tolist()
    [0, 2]
    """
    largest = values.max(axis=axis, keepdims=True)
    tolerance = np.where(np.isfinite(largest), TIE * np.maximum(1.0, np.abs(largest)), 0.0)
    return (values >= largest - tolerance).argmax(axis=axis)


def rising_ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank (n,) of each value, from 0 for the smallest; equal values have one rank, and
    infinite values are equal to each other alone.

    Neighbours in rising order are equal if they differ by less than 1e-12 times the larger of 1
    and their size.

    Examples
    --------
    >>> rising_ranks(np.array([0.3, 0.1, 0.1 + 0.2, np.inf])).tolist()
    [1, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    rising = values[order]
    below = rising[:-1]
    above = rising[1:]
    with np.errstate(invalid="ignore"):  # inf - inf
        is_near = above - below <= TIE * np.maximum(1.0, np.abs(below))
    is_near &= np.isfinite(below) & np.isfinite(above)
    rank = np.zeros(len(values), dtype=np.intp)
    rank[order[1:]] = np.cumsum(~is_near & (above != below))
    return rank


def falling_order(values: np.ndarray) -> np.ndarray:
    """Return the positions of finite values (n,) from the largest down; equal ones keep their
    order.

    Neighbours in falling order are equal if they differ by less than 1e-12 times the larger of 1
    and their size.

    Examples
    --------
    >>> falling_order(np.array([0.1, 0.3, 0.1 + 0.2])).tolist()
    [1, 2, 0]
    """
    order = np.argsort(-values, kind="stable")
    falling = values[order]
    tolerance = TIE * np.maximum(1.0, np.abs(falling[:-1]))
    rank = np.zeros(len(values), dtype=np.intp)
    rank[order[1:]] = np.cumsum(falling[:-1] - falling[1:] > tolerance)
    return np.argsort(rank, kind="stable")
