"""Coefficient plot: estimates with their intervals, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.report.canvas import (
    LINE_HEIGHT,
    MAX_FONT,
    TITLE_FONT,
    axes_inches,
    fit_names,
    group_colours,
    named_legend,
    plain_numbers,
    wrap_names,
)
from bbl.report.grid import axes_at, note_shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_coefficients"]

MOST_ROWS = 40  # coefficients of a new figure
WIDTH = 4.2  # inches of the panel
NAMES = 3.4  # most inches of the names
MARKS = "osD^vP"  # one for each group, in turn


def plot_coefficients(
    names: Sequence[str],
    groups: Sequence,
    estimate: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    title: str = "Estimate",
    ax: Axes | None = None,
) -> Axes:
    """Draw estimates with their intervals: a line for each name, with a point for each group.

    Parameters
    ----------
    names : sequence of n str
    groups : sequence of K labels
    estimate, lower, upper : ndarray, shape (K, n)
        Nan where there is none; a limit that is missing or infinite has no line.
    title : str, default "Estimate"
        Below the axis.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        A new figure shows the first 40, and says so.
    """
    K, n = estimate.shape
    shown = n if ax is not None else min(n, MOST_ROWS)
    gap = max(1.6, 0.8 + 0.5 * K) * LINE_HEIGHT * MAX_FONT / 72
    at = np.arange(shown, dtype=float)
    if ax is None:
        ax = _new_axes(names[:shown], at, gap, shown < n, K)
        note_shown(ax, shown, n, "coefficients")
    else:
        fit_names(names, at, axes_inches(ax)[1] / max(n, 1), 1.2, upright=True).label_ticks(ax.yaxis)
    colours = group_colours(K)
    handles = []
    for k in range(K):
        y = at + (0.0 if K == 1 else 0.5 * (k / (K - 1) - 0.5))
        low, high, middle = (column[k, :shown] for column in (lower, upper, estimate))
        drawn = np.isfinite(low) & np.isfinite(high)
        ax.hlines(y[drawn], low[drawn], high[drawn], color=colours[k], linewidth=1.4)
        handles += ax.plot(middle, y, MARKS[k % len(MARKS)], color=colours[k], markersize=4.5, zorder=3)
    ax.axvline(0.0, color="0.5", linewidth=1, zorder=1)
    ax.set(ylim=(shown - 0.5, -0.5), xlabel=title)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    if K > 1:
        texts = wrap_names(groups, 2.0, 8.5, 1)
        named_legend(ax, handles, texts, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2 if K > 3 else K)
    plain_numbers(ax)
    return ax


def _new_axes(names: Sequence[str], at: np.ndarray, gap: float, cut: bool, K: int) -> Axes:
    """Return axes of a new figure with room for the names, and the names put."""
    import matplotlib.pyplot as plt

    fitted_names = fit_names(names, at, gap, NAMES, upright=True)
    head = 0.15 if K == 1 else 0.15 + LINE_HEIGHT * TITLE_FONT / 72 * (1 if K <= 3 else (K + 1) // 2) * 1.3
    foot, height = 0.55 + 0.25 * cut, max(len(at) * gap, 0.8)
    left_margin = fitted_names.depth + 0.3
    figure = plt.figure(figsize=(left_margin + WIDTH + 0.2, head + height + foot))
    ax = axes_at(figure, left_margin, head, WIDTH, height)
    fitted_names.label_ticks(ax.yaxis)
    return ax
