"""Hidden units of the thesis' conjugate machine: Gibbs draws of its coefficients and of the units of every row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bbl.memory import check_memory
from bbl.model.conjugate import conjugate_draws
from bbl.model.gauge import contrasts
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["HiddenDraws", "hidden_draws", "visible_columns", "widened"]


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


def widened(layout: Layout, hidden: int) -> Layout:
    """Return the layout with predictors of two levels behind the others, each interacting with all visible ones.

    Examples
    --------
    >>> widened(Layout([2, 3], []), 2).pairs.tolist()
    [[0, 2], [0, 3], [1, 2], [1, 3]]
    """
    m = layout.m
    units = np.arange(m, m + hidden)
    new = np.column_stack([np.repeat(np.arange(m), hidden), np.tile(units, m)])
    levels = np.concatenate([layout.n_levels, np.full(hidden, 2)])
    return Layout(levels, np.concatenate([layout.pairs, new]))


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
) -> HiddenDraws:
    """Draw by turns the coefficients given the units of all rows, and the units given the coefficients.

    Given the units, coefficients are normal, as in `conjugate_draws`; a unit of a row is 1 with probability
    ``expit(2 (alpha_l + sum_k beta_lk x_k))`` and -1 else (Li 2014, section 3.2.2, with l = j + n_o).

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
    """
    warmup, draws = counts
    wide, n = widened(layout, hidden), int(rows.total)
    check_memory(24.0 * n * (hidden + layout.D), f"{hidden} hidden units of {n:,} rows", "Take fewer hidden units.")
    codes = np.repeat(rows.codes, rows.weights.astype(int), axis=0)
    X = np.column_stack([contrasts(int(L))[codes[:, i]] for i, L in enumerate(layout.n_levels)])
    columns = visible_columns(wide, layout)
    where = np.arange(wide.size)
    own = np.array([wide.table(where, layout.m + k)[0] for k in range(hidden)])
    cross = np.concatenate(
        [np.concatenate([wide.table(where, i, layout.m + k) for k in range(hidden)], axis=1) for i in range(layout.m)]
    )
    out = np.empty((draws, wide.size))
    out[:, columns] = conjugate_draws(rows, layout, c, (1, draws), rng)[1][0]
    u = rng.choice([-1.0, 1.0], (n, hidden))
    flips = aligned = 0.0
    sd = 1.0 / np.sqrt(2.0 * c)
    with serial_blas():
        for sweep in range(warmup + draws):
            alpha = u.sum(axis=0) / (2.0 * c) + sd * rng.normal(size=hidden)
            beta = X.T @ u / (2.0 * c) + sd * rng.normal(size=(layout.D, hidden))
            field = alpha + X @ beta
            after = np.where(rng.logistic(size=field.shape) < 2.0 * field, 1.0, -1.0)
            if sweep >= warmup:
                at = sweep - warmup
                out[at, own], out[at, cross] = alpha, beta
                flips += (after != u).mean() / draws
                aligned += np.abs(after.mean(axis=0)).mean() / draws
            u = after
            if progress is not None:
                progress(1.0 / (warmup + draws))
    return HiddenDraws(out, float(flips), float(aligned))
