"""Hidden units of the thesis' conjugate machine: Gibbs draws of its coefficients and of the units of every row."""

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
    """Draws of one chain.

    Attributes
    ----------
    coefficients : ndarray, shape (draws, d)
        Of the `widened` layout, in simplex coding.
    flips : float
        Share of the units that change their sign in a sweep.
    aligned : float
        Mean over units of the size of their mean over rows: 1 where each unit has one sign for all rows.
    """

    coefficients: np.ndarray
    flips: float
    aligned: float


def widened(layout: Layout, hidden: int, coupled: bool = False) -> Layout:
    """Return the layout with predictors of two levels behind the others, each interacting with all visible ones.

    With `coupled`, they interact with each other too.

    Examples
    --------
    >>> widened(Layout([2, 3], []), 2).pairs.tolist()
    [[0, 2], [0, 3], [1, 2], [1, 3]]
    >>> widened(Layout([2], []), 2, coupled=True).pairs.tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    m = layout.m
    units = np.arange(m, m + hidden)
    new = [(i, k) for i in range(m) for k in units]
    if coupled:
        new += combinations(units, 2)
    levels = np.concatenate([layout.n_levels, np.full(hidden, 2)])
    return Layout(levels, np.concatenate([layout.pairs, np.reshape(new, (-1, 2))]))


def summed_exactly(hidden: int) -> bool:
    """Return whether the states of units that are coupled to each other are few enough to be summed for each row.

    Examples
    --------
    >>> summed_exactly(16), summed_exactly(30)
    (True, False)
    """
    units = Layout(np.full(hidden, 2), [*combinations(range(hidden), 2)])
    return elimination_order(units.n_levels, units.mask, CELLS) is not None


def visible_columns(wide: Layout, layout: Layout) -> np.ndarray:
    """Return where the parameters of `layout` lie among those of the widened one."""
    where = np.arange(wide.size)
    tables = [wide.table(where, i) for i in range(layout.m)]
    tables += [wide.table(where, int(i), int(j)).ravel() for i, j in layout.pairs]
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
    """Draw by turns the coefficients given the units of all rows, and the units given the coefficients.

    Given the units, coefficients are normal, as in `conjugate_draws`; a unit of a row is 1 with probability
    ``expit(2 (alpha_l + sum_k beta_lk x_k))`` and -1 else (Li 2014, section 3.2.2, with l = j + n_o). Where units are
    coupled to each other, the sum is over the other units too, and they are drawn one after the other.

    Parameters
    ----------
    rows : Sample
        A row of weight w has w units of its own for each hidden unit.
    layout : Layout
    hidden : int
    c : float
    counts : (warmup, draws)
    rng : Generator
    progress : callable, optional
    coupled : bool, default False
        Whether units are coupled to each other too.
    """
    warmup, draws = counts
    wide, n = widened(layout, hidden, coupled), int(rows.total)
    check_memory(24.0 * n * (hidden + layout.D), f"{hidden} hidden units of {n:,} rows", "Take fewer hidden units.")
    codes = np.repeat(rows.codes, rows.weights.astype(int), axis=0)
    X = np.column_stack([contrasts(int(L))[codes[:, i]] for i, L in enumerate(layout.n_levels)])
    unit_fields, cross, between, pairs = _places(wide, layout.m)
    out = np.empty((draws, wide.size))
    out[:, visible_columns(wide, layout)] = conjugate_draws(rows, layout, c, (1, draws), rng)[1][0]
    u = rng.choice([-1.0, 1.0], (n, hidden))
    flips = aligned = 0.0
    sd = 1.0 / np.sqrt(2.0 * c)
    with serial_blas():
        for sweep in range(warmup + draws):
            alpha = u.sum(axis=0) / (2.0 * c) + sd * rng.normal(size=hidden)
            beta = X.T @ u / (2.0 * c) + sd * rng.normal(size=(layout.D, hidden))
            field = alpha + X @ beta
            gamma = np.zeros((hidden, hidden))
            gamma[*pairs] = (u.T @ u)[*pairs] / (2.0 * c) + sd * rng.normal(size=len(between))
            after = _units(u, field, gamma + gamma.T, rng)
            if sweep >= warmup:
                at = sweep - warmup
                out[at, unit_fields], out[at, cross], out[at, between] = alpha, beta, gamma[*pairs]
                flips += (after != u).mean() / draws
                aligned += np.abs(after.mean(axis=0)).mean() / draws
            u = after
            if progress is not None:
                progress(1.0 / (warmup + draws))
    return HiddenDraws(out, float(flips), float(aligned))


def _places(wide: Layout, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return where the units' fields lie, their couplings to predictors and to each other, and the latter's units."""
    where, units = np.arange(wide.size), np.arange(m, wide.m)
    unit_fields = np.array([wide.table(where, k)[0] for k in units])
    cross = [np.concatenate([wide.table(where, i, k) for k in units], axis=1) for i in range(m)]
    pairs = wide.pairs[wide.pairs[:, 0] >= m]
    between = np.array([wide.table(where, *pair)[0, 0] for pair in pairs], dtype=int)
    return unit_fields, np.concatenate(cross), between, (pairs - m).T


def _units(u: np.ndarray, field: np.ndarray, gamma: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return new units (n, hidden), drawn one after the other given the others of their row."""
    after, noise = u.copy(), rng.logistic(size=field.shape)
    for k in range(len(gamma)):
        after[:, k] = np.where(noise[:, k] < 2.0 * (field[:, k] + after @ gamma[:, k]), 1.0, -1.0)
    return after
