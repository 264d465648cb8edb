"""Gibbs draws of coefficients and hidden units (-1 or 1) under Li's (2014) conjugate prior."""

# The widened layout, with d parameters, has the hidden units as predictors of two levels after the
# m visible ones. Coefficients are in simplex coding, where a hidden unit is -1 or 1. D counts the
# contrasts of all visible predictors.

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bbl.engines.bayes.conjugate import conjugate_draws
from bbl.memory import check_memory
from bbl.model.elimination import elimination_order
from bbl.model.gauge import contrasts
from bbl.model.layout import Layout
from bbl.model.marginal import CELLS
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["HiddenDraws", "hidden_draws", "summed_exactly", "visible_columns", "widened"]


class HiddenDraws(NamedTuple):
    """Draws of one Gibbs chain of coefficients and hidden units.

    Attributes
    ----------
    coefficients : ndarray, shape (draws, d)
        Coefficients of the widened layout, in simplex coding.
    flips : float
        Mean proportion of units that change their sign in a sweep.
    aligned : float
        Absolute value of a unit's mean over rows, averaged over draws and units. The value is 1 if
        each unit has the same sign in all rows.
    """

    coefficients: np.ndarray
    flips: float
    aligned: float


def widened(layout: Layout, hidden: int, coupled: bool = False) -> Layout:
    """Return the layout with `hidden` units after the predictors, each coupled to all predictors.

    If `coupled` is True, the units also interact with each other.

    Examples
    --------
    >>> widened(Layout([2, 3], []), 2).pairs.tolist()
    [[0, 2], [0, 3], [1, 2], [1, 3]]
    >>> widened(Layout([2], []), 2, coupled=True).pairs.tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    m = layout.m
    units = np.arange(m, m + hidden)
    new_pairs = [(i, k) for i in range(m) for k in units]
    if coupled:
        new_pairs += combinations(units, 2)
    n_levels = np.concatenate([layout.n_levels, np.full(hidden, 2)])
    return Layout(n_levels, np.concatenate([layout.pairs, np.reshape(new_pairs, (-1, 2))]))


def summed_exactly(hidden: int) -> bool:
    """Return whether predictions can sum over all states of `hidden` coupled units.

    Examples
    --------
    >>> summed_exactly(16), summed_exactly(30)
    (True, False)
    """
    units = Layout(np.full(hidden, 2), [*combinations(range(hidden), 2)])
    # None if the tables of the sum would have more cells than `CELLS`, the limit for predictions
    return elimination_order(units.n_levels, units.mask, CELLS) is not None


def visible_columns(wide: Layout, layout: Layout) -> np.ndarray:
    """Return the positions (layout.size,) of a layout's parameters in the widened layout."""
    # `table` then returns the positions of a predictor's fields, or of a pair's couplings
    position = np.arange(wide.size)
    tables = [wide.table(position, i) for i in range(layout.m)]
    tables += [wide.table(position, int(i), int(j)).ravel() for i, j in layout.pairs]
    return np.concatenate(tables)


def hidden_draws(
    rows: Sample,
    layout: Layout,
    hidden: int,
    c: float,
    counts: tuple[int, int],
    rng: np.random.Generator,
    progress: Callable | None = None,
    coupled: bool = False,
) -> HiddenDraws:
    """Draw a chain that alternates between the coefficients and the units of all rows.

    Given the units, coefficients are independent normal variables with standard deviation ``1 /
    sqrt(2 c)``, as in `conjugate_draws`. Their means are the sums over rows of the units, and of
    products of units and contrasts, divided by 2 c. Unit l of a row x is 1 with probability
    ``expit(2 (alpha_l + sum_k beta_lk x_k))``, otherwise -1 (Li 2014, section 3.2.2). If units are
    `coupled` to each other, the sum includes the other units of the row, and the units are drawn
    one after the other.

    A row of weight w counts as w rows, each with its own `hidden` units. `c` is the factor in the
    prior ``Z^n exp(-c|phi|^2)``, and `counts` is (warmup, draws). After each sweep, `progress` is
    called with the fraction of the chain that the sweep represents.
    """
    warmup, draws = counts
    wide = widened(layout, hidden, coupled)
    n = int(rows.total)
    # three arrays of 8 bytes per number, with a number for each observation and each unit or
    # contrast
    check_memory(
        24.0 * n * (hidden + layout.D),
        f"{hidden} hidden units for {n:,} rows",
        "Use fewer hidden units.",
    )
    # (n, m): each observation has its own units
    codes = np.repeat(rows.codes, rows.weights.astype(int), axis=0)
    # (n, D)
    X = np.column_stack([contrasts(int(L))[codes[:, i]] for i, L in enumerate(layout.n_levels)])
    field_positions, cross_positions, pair_positions, pairs = _unit_positions(wide, layout.m)
    out = np.empty((draws, wide.size))
    # coefficients of visible predictors do not depend on the units: they are drawn before the
    # sweeps, as one chain; [1] are its draws (1, draws, size)
    out[:, visible_columns(wide, layout)] = conjugate_draws(rows, layout, c, (1, draws), rng)[1][0]
    units = rng.choice([-1.0, 1.0], (n, hidden))
    flips = aligned = 0.0
    sd = 1.0 / np.sqrt(2.0 * c)  # of each coefficient
    with serial_blas():
        for sweep in range(warmup + draws):
            # fields of the units, couplings to contrasts of predictors, couplings between units
            alpha = units.sum(axis=0) / (2.0 * c) + sd * rng.normal(size=hidden)
            beta = X.T @ units / (2.0 * c) + sd * rng.normal(size=(layout.D, hidden))
            gamma = np.zeros((hidden, hidden))
            gamma[*pairs] = (units.T @ units)[*pairs] / (2.0 * c) + sd * rng.normal(
                size=len(pair_positions)
            )
            new_units = _draw_units(units, alpha + X @ beta, gamma + gamma.T, rng)
            if sweep >= warmup:
                draw = out[sweep - warmup]
                draw[field_positions], draw[cross_positions], draw[pair_positions] = (
                    alpha,
                    beta,
                    gamma[*pairs],
                )
                flips += (new_units != units).mean() / draws
                aligned += np.abs(new_units.mean(axis=0)).mean() / draws
            units = new_units
            if progress is not None:
                progress(1.0 / (warmup + draws))
    return HiddenDraws(out, float(flips), float(aligned))


def _unit_positions(wide: Layout, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the positions of the hidden units' coefficients in the widened layout.

    `m` is the number of visible predictors. The result contains the positions of the fields
    (hidden,), the couplings to the predictors' contrasts (D, hidden) and the couplings between
    units (pairs,). The last element contains the two units of each of these pairs (2, pairs).
    """
    position = np.arange(wide.size)
    units = np.arange(m, wide.m)
    # a unit has a single contrast, so its axis has length 1
    fields = np.array([wide.table(position, k)[0] for k in units])
    cross = [np.concatenate([wide.table(position, i, k) for k in units], axis=1) for i in range(m)]
    pairs = wide.pairs[wide.pairs[:, 0] >= m]
    between_units = np.array([wide.table(position, *pair)[0, 0] for pair in pairs], dtype=int)
    return fields, np.concatenate(cross), between_units, (pairs - m).T


def _draw_units(
    units: np.ndarray, field: np.ndarray, gamma: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return new units (n, hidden), each drawn given the other units of its row.

    `field` (n, hidden) is the effect of the predictors on the units, and `gamma` (hidden, hidden)
    contains the couplings between units.
    """
    # a logistic variable is below the log odds of +1 with the probability of +1
    new_units = units.copy()
    noise = rng.logistic(size=field.shape)
    for k in range(len(gamma)):
        new_units[:, k] = np.where(
            noise[:, k] < 2.0 * (field[:, k] + new_units @ gamma[:, k]), 1.0, -1.0
        )
    return new_units
