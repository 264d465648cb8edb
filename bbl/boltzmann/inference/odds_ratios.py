"""Conditional log odds ratios of two predictors and their variances, computed from couplings.

A *scope* is the tuple of predictors that a table of parameters refers to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from bbl.boltzmann.inference.strata import (
    MAX_HELD,
    MAX_SUPPORT,
    conditioning,
    coupling_family,
    strata,
)
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["ConditionalRatio", "LogOddsRatios", "conditional_ratio", "log_odds_ratios"]

# maximum number of entries of the matrix that maps couplings to the log odds ratios of a pair
MAX_CONTRASTS = 2**22


class LogOddsRatios(NamedTuple):
    """Log odds ratios of a pair of predictors, relative to both reference levels.

    Attributes
    ----------
    modifiers : tuple of int
        Other predictors in terms that contain both predictors, in increasing order.
    levels : ndarray of int, shape (n, 2 + number of modifiers)
        Levels of both predictors (at least 1) and of the modifiers.
    estimate, se : ndarray, shape (n,)
        Log odds ratios and their standard errors; nan if one of the couplings is not estimable.
    """

    modifiers: tuple[int, ...]
    levels: np.ndarray
    estimate: np.ndarray
    se: np.ndarray


def log_odds_ratios(
    layout: Layout, theta: np.ndarray, covariance: np.ndarray, i: int, j: int
) -> LogOddsRatios:
    """Return the log odds ratios of predictors i and j, given all other predictors.

    The log odds ratio of two levels, relative to the reference levels, is the sum of the couplings
    of all terms that contain both predictors, at the levels of the other predictors. Couplings of
    reference levels are 0.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (size,)
    covariance : ndarray, shape (size, size)
        Covariance of `theta`; nan for parameters that are not estimable.
    i, j : int

    Raises
    ------
    OptionError
        If the pair has too many combinations of levels.
    """
    scopes = [scope for scope in layout.scopes if i in scope and j in scope]
    modifiers = tuple(sorted({k for scope in scopes for k in scope} - {i, j}))
    level_ranges = [
        range(1, layout.n_levels[i]),
        range(1, layout.n_levels[j]),
        *(range(layout.n_levels[k]) for k in modifiers),
    ]
    parameter_numbers = np.arange(layout.size)
    parameters_by_scope = {  # tables of positions in theta, axes: i, j, modifiers of the scope
        scope: layout.table(parameter_numbers, i, j, *(k for k in scope if k not in (i, j)))
        for scope in scopes
    }
    used_parameters = np.sort(
        np.concatenate([parameters.ravel() for parameters in parameters_by_scope.values()])
    )
    n_ratios = float(np.prod([float(len(levels)) for levels in level_ranges]))
    if n_ratios * len(used_parameters) > MAX_CONTRASTS:
        raise OptionError(
            f"A pair has {n_ratios:.3g} odds ratios, too many to list, because it interacts with "
            f"{len(modifiers)} other predictors.",
            argument="pairs",
            hint=(
                "Leave this pair out of pairs, or use a formula with fewer terms of three "
                "predictors."
            ),
        )
    levels = np.array(list(product(*level_ranges)), dtype=np.intp).reshape(-1, len(level_ranges))
    # one row for each ratio, with 1 at the parameters to be summed; codes minus 1 are positions in
    # tables of couplings
    contrasts = np.zeros((len(levels), len(used_parameters)))
    for scope, parameters in parameters_by_scope.items():
        # columns of `levels`, after those for i and j
        columns = [modifiers.index(k) + 2 for k in scope if k not in (i, j)]
        table_positions = levels[:, [0, 1, *columns]] - 1
        # couplings of reference levels are 0
        rows = np.flatnonzero((table_positions >= 0).all(axis=1))
        # for each of these ratios, the parameter number, converted to its column
        contrasts[
            rows, np.searchsorted(used_parameters, parameters[tuple(table_positions[rows].T)])
        ] = 1.0
    used_covariance = covariance[np.ix_(used_parameters, used_parameters)]
    is_undetermined = np.isnan(used_covariance.diagonal())
    used_covariance = np.where(
        np.logical_or.outer(is_undetermined, is_undetermined), 0.0, used_covariance
    )
    is_known = ~(contrasts[:, is_undetermined] != 0.0).any(axis=1)
    variance = np.einsum("ij,ij->i", contrasts @ used_covariance, contrasts)  # c' V c of each row c
    return LogOddsRatios(
        modifiers,
        levels,
        np.where(is_known, contrasts @ theta[used_parameters], np.nan),
        np.where(is_known, np.sqrt(np.maximum(variance, 0.0)), np.nan),
    )


@dataclass(frozen=True)
class ConditionalRatio:
    """The conditional estimate of a log odds ratio, with an exact confidence interval.

    Attributes
    ----------
    estimate, lower, upper : float
        Infinite if a cell of the tables is empty; nan if `reason` is not empty.
    reason : str
        Reason why the interval is missing, or an empty string.
    """

    estimate: float = np.nan
    lower: float = np.nan
    upper: float = np.nan
    reason: str = ""


def conditional_ratio(
    sample: Sample,
    layout: Layout,
    i: int,
    j: int,
    levels: np.ndarray,
    modifiers: tuple[int, ...],
    level: float,
) -> ConditionalRatio:
    """Return a conditional estimate and exact confidence interval for a log odds ratio.

    Rows that have the given levels of the modifiers, and the same values of the neighbours of i (or
    j), form 2 x 2 tables with a common odds ratio. Conditional on all margins, the first cells of
    these tables have Fisher's distribution. Each tail includes the full probability of the observed
    count, so the coverage is at least `level`, as in R's fisher.test for a single table.

    Parameters
    ----------
    sample : Sample
        Rows of the group.
    layout : Layout
    i, j : int
    levels : ndarray of int
        One row of ``LogOddsRatios.levels``.
    modifiers : tuple of int
    level : float
        Confidence level.
    """
    if layout.support is not None:
        return ConditionalRatio(reason="no exact interval with structural zeros")
    conditioned = conditioning(layout, i, j)
    if len(conditioned) > MAX_HELD:
        return ConditionalRatio(
            reason=(
                f"no exact interval: it would require conditioning on more than {MAX_HELD} "
                "predictors"
            )
        )
    is_used = (sample.codes[:, list(modifiers)] == levels[2:]).all(axis=1)
    if sample.missing is not None:
        is_used &= ~sample.missing[:, [i, j, *conditioned]].any(axis=1)
    codes = sample.codes
    is_used &= ((codes[:, i] == 0) | (codes[:, i] == levels[0])) & (
        (codes[:, j] == 0) | (codes[:, j] == levels[1])
    )
    rows = sample.rows(is_used & (sample.weights > 0))
    if not all(len(np.unique(rows.codes[:, k])) == 2 for k in (i, j)):
        return ConditionalRatio(reason="a row or a column of the 2 x 2 table is empty")
    family = coupling_family(
        rows, strata(rows.codes, conditioned), i, int(levels[0]), j, int(levels[1])
    )
    if family is None:
        return ConditionalRatio(
            reason="too many rows for an exact interval"
            if rows.total >= MAX_SUPPORT
            else "among rows with the same values of the other predictors, only one of the two "
            "levels occurs"
        )
    lower, upper = replace(family, share=1.0).limits(level)
    return ConditionalRatio(family.estimate, lower, upper)
