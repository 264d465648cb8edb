"""Contrasts of averages: differences, ratios and log odds ratios, with their derivatives by the
averages.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

__all__ = ["CONTRASTS", "TRANSFORMS", "Transform", "contrast_values", "level_pairs"]

CONTRASTS = ("reference", "pairwise", "sequential")


class Transform(NamedTuple):
    """How averages are compared.

    Attributes
    ----------
    text : str
        Name of the comparison, to be formatted with the names of two levels, the high and the low.
    null : float
        Value if the averages are equal.
    """

    text: str
    null: float


TRANSFORMS = {
    "difference": Transform("{} - {}", 0.0),
    "ratio": Transform("{} / {}", 1.0),
    "lift": Transform("({0} - {1}) / {1}", 0.0),
    "lnoddsratio": Transform("ln(odds({}) / odds({}))", 0.0),
}


def level_pairs(contrast: str, n_levels: int) -> list[tuple[int, int]]:
    """Return the pairs (high, low) of levels that a contrast compares.

    Examples
    --------
    >>> level_pairs("reference", 3), level_pairs("sequential", 3), level_pairs("pairwise", 3)
    ([(1, 0), (2, 0)], [(1, 0), (2, 1)], [(1, 0), (2, 0), (2, 1)])
    """
    if contrast == "reference":
        return [(a, 0) for a in range(1, n_levels)]
    if contrast == "sequential":
        return [(a, a - 1) for a in range(1, n_levels)]
    return [(high, low) for low, high in itertools.combinations(range(n_levels), 2)]


def contrast_values(
    transform: str, averages: np.ndarray, signs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return contrasts of averages, and their derivatives by the averages.

    Parameters
    ----------
    transform : {"difference", "ratio", "lift", "lnoddsratio"}
        "difference": the sum of signed averages. "ratio": the exponential of the sum of their
        signed logarithms. "lift": that ratio less 1. "lnoddsratio": the sum of their signed log
        odds.
    averages : ndarray, shape (s, ...)
    signs : ndarray, shape (s,)
        1 or -1.

    Returns
    -------
    values : ndarray, shape (...)
    derivatives : ndarray, shape (s, ...)

    Examples
    --------
    >>> contrast_values("ratio", np.array([0.5, 0.25]), np.array([1.0, -1.0]))
    (np.float64(2.0), array([ 4., -8.]))
    """
    signs = signs.reshape(-1, *(1,) * (averages.ndim - 1))
    if transform == "difference":
        return (signs * averages).sum(axis=0), np.broadcast_to(signs, averages.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if transform in ("ratio", "lift"):
            value = np.exp((signs * np.log(averages)).sum(axis=0))
            return value - (transform == "lift"), signs * value / averages
        value = (signs * (np.log(averages) - np.log1p(-averages))).sum(axis=0)
        return value, signs / (averages * (1.0 - averages))
