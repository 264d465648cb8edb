"""Conditional log odds ratios of two predictors with their variances, from the couplings that hold both."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from bbl.errors import OptionError
from bbl.model.layout import Layout

__all__ = ["LogOddsRatios", "log_odds_ratios"]

MAX_CONTRASTS = 2**22  # entries of the matrix from the couplings to the log odds ratios of a pair


class LogOddsRatios(NamedTuple):
    """Log odds ratios of a pair of predictors, against the reference level of each.

    Attributes
    ----------
    modifiers : tuple of int
        Other predictors that some term of the model holds with both, ascending.
    levels : ndarray of int, shape (n, 2 + number of modifiers)
        Levels of both predictors, 1 or more, and of the modifiers.
    estimate, se : ndarray, shape (n,)
        nan where the rows do not determine one of the couplings.
    """

    modifiers: tuple[int, ...]
    levels: np.ndarray
    estimate: np.ndarray
    se: np.ndarray


def log_odds_ratios(layout: Layout, theta: np.ndarray, covariance: np.ndarray, i: int, j: int) -> LogOddsRatios:
    """Return the log odds ratios of predictors i and j given all others.

    The log odds ratio of two levels against the reference levels is the sum of the couplings of all terms that hold
    both, at the levels that the other predictors of these terms have; a coupling of a reference level is 0.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (size,)
    covariance : ndarray, shape (size, size)
        Of the estimates `theta`; nan for those that the rows do not determine.
    """
    scopes = [scope for scope in layout.scopes if i in scope and j in scope]
    modifiers = tuple(sorted({k for scope in scopes for k in scope} - {i, j}))
    ranges = [
        range(1, layout.n_levels[i]),
        range(1, layout.n_levels[j]),
        *(range(layout.n_levels[k]) for k in modifiers),
    ]
    numbers = np.arange(layout.size)
    tables = {scope: layout.table(numbers, i, j, *(k for k in scope if k not in (i, j))) for scope in scopes}
    used = np.sort(np.concatenate([table.ravel() for table in tables.values()]))
    n = float(np.prod([float(len(levels)) for levels in ranges]))
    if n * len(used) > MAX_CONTRASTS:
        raise OptionError(
            f"The odds ratios of a pair have {n:.3g} combinations of levels, too many to list: the pair interacts with "
            f"{len(modifiers)} other predictors. Give pairs= without it, or fit fewer terms of three predictors.",
            argument="pairs",
        )
    levels = np.array(list(product(*ranges)), dtype=np.intp).reshape(-1, len(ranges))
    contrasts = np.zeros((len(levels), len(used)))
    for scope, table in tables.items():
        columns = [modifiers.index(k) + 2 for k in scope if k not in (i, j)]
        at = levels[:, [0, 1, *columns]] - 1
        rows = np.flatnonzero((at >= 0).all(axis=1))
        contrasts[rows, np.searchsorted(used, table[tuple(at[rows].T)])] = 1.0
    block = covariance[np.ix_(used, used)]
    unknown = np.isnan(block.diagonal())
    block = np.where(np.logical_or.outer(unknown, unknown), 0.0, block)
    is_known = ~(contrasts[:, unknown] != 0.0).any(axis=1)
    variance = np.einsum("ij,ij->i", contrasts @ block, contrasts)
    return LogOddsRatios(
        modifiers,
        levels,
        np.where(is_known, contrasts @ theta[used], np.nan),
        np.where(is_known, np.sqrt(np.maximum(variance, 0.0)), np.nan),
    )
