"""Coefficient plot: estimates with their intervals, one row for each coefficient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.report.canvas import (
    LEGEND_FONT,
    LINE_HEIGHT,
    MAX_FONT,
    TITLE_FONT,
    axes_inches,
    draw_legend,
    fit_names,
    group_colours,
    use_plain_numbers,
    wrap_names,
)
from bbl.report.grid import NO_INTERVAL, NOTE_HEIGHT, axes_at, note_shown, note_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_coefficients"]

MAX_ROWS = 40  # coefficients of a new figure
WIDTH = 4.2  # inches of the panel
MAX_NAME_WIDTH = 3.4  # inches of the names to the left of the panel
MARKERS = "osD^vP"  # one per group, in turn


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
    """Draw estimates with their intervals, one row per name and one point per group.

    Parameters
    ----------
    names : sequence of n str
        All are drawn if `ax` is given, otherwise at most `MAX_ROWS`: those with the largest
        ratio of |estimate| to interval width in any group.
    groups : sequence of K labels
    estimate, lower, upper : ndarray, shape (K, n)
        Points and ends of the intervals; there is no point for nan, and a hollow point without
        a line if an end is not finite.
    title : str, default "Estimate"
        Label of the axis.
    ax : matplotlib Axes, optional
    """
    K, n = estimate.shape
    n_shown = n if ax is not None else min(n, MAX_ROWS)
    if n_shown < n:
        shown = _order_by_distance_from_zero(estimate, lower, upper)[:n_shown]
        names = [names[k] for k in shown]
        estimate = estimate[:, shown]
        lower = lower[:, shown]
        upper = upper[:, shown]
    # inches between rows: half a line per group, but at least 1.6 lines
    gap = max(1.6, 0.8 + 0.5 * K) * LINE_HEIGHT * MAX_FONT / 72
    rows = np.arange(n_shown, dtype=float)  # vertical positions
    if ax is None:
        is_hollow = np.isfinite(estimate) & ~(np.isfinite(lower) & np.isfinite(upper))
        n_notes = int(n_shown < n) + int(is_hollow.any())
        ax = _new_axes(names, rows, gap, n_notes=n_notes, K=K)
        note_shown(ax, n_shown, n, "coefficients", "strongest")
        if is_hollow.any():
            note_text(ax, NO_INTERVAL)
    else:
        # less space for names than in a new figure, whose margin is as wide as its names
        fit_names(
            names, rows, axes_inches(ax)[1] / max(n, 1), max_depth=1.2, upright=True
        ).label_ticks(ax.yaxis)
    colours = group_colours(K)
    handles = []
    for k in range(K):
        # groups are spread over half of the gap between rows
        y = rows + (0.0 if K == 1 else 0.5 * (k / (K - 1) - 0.5))
        low = lower[k]
        high = upper[k]
        point = estimate[k]
        has_interval = np.isfinite(low) & np.isfinite(high)
        ax.hlines(
            y[has_interval], low[has_interval], high[has_interval], color=colours[k], linewidth=1.4
        )
        style = {"marker": MARKERS[k % len(MARKERS)], "color": colours[k], "markersize": 4.5}
        handles += ax.plot(
            point[has_interval], y[has_interval], linestyle="none", zorder=3, **style
        )
        ax.plot(
            point[~has_interval],
            y[~has_interval],
            linestyle="none",
            zorder=3,
            markerfacecolor="white",
            **style,
        )
    ax.axvline(0.0, color="0.5", linewidth=1, zorder=1)
    ax.set(ylim=(n_shown - 0.5, -0.5), xlabel=title)  # first row at the top
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    if K > 1:
        texts = wrap_names(groups, room=2.0, size=LEGEND_FONT, lines=1)
        draw_legend(
            ax, handles, texts, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2 if K > 3 else K
        )
    use_plain_numbers(ax)
    return ax


def _order_by_distance_from_zero(
    estimate: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Return the positions (n,) of coefficients (K, n), by decreasing ratio of |estimate| to
    interval width.

    The largest ratio over the groups is used; coefficients without an interval come last.
    """
    interval_width = np.where(np.isfinite(lower) & np.isfinite(upper), upper - lower, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.abs(np.nan_to_num(estimate)) / interval_width
    # the distance is infinite for an interval of width 0, or nan if the estimate is also 0
    return np.argsort(
        -np.nan_to_num(distance, posinf=np.finfo(float).max).max(axis=0), kind="stable"
    )


def _new_axes(names: Sequence[str], rows: np.ndarray, gap: float, n_notes: int, K: int) -> Axes:
    """Return axes of a new figure with `names` as tick labels at `rows`, `gap` inches apart.

    Space is reserved for a legend of K groups above the axes, and for `n_notes` notes of
    `note_text` below.
    """
    import matplotlib.pyplot as plt

    tick_names = fit_names(names, rows, gap, MAX_NAME_WIDTH, upright=True)
    # the legend has one row for up to three groups, otherwise rows of two; 1.3: 30 % spare height
    head = (
        0.15
        if K == 1
        else 0.15 + LINE_HEIGHT * TITLE_FONT / 72 * (1 if K <= 3 else (K + 1) // 2) * 1.3
    )
    foot = 0.6 + NOTE_HEIGHT * n_notes
    height = max(len(rows) * gap, 0.8)
    left_margin = tick_names.depth + 0.3  # depth: inches occupied by the names
    figure = plt.figure(figsize=(left_margin + WIDTH + 0.2, head + height + foot))
    ax = axes_at(figure, left_margin, head, WIDTH, height)
    tick_names.label_ticks(ax.yaxis)
    return ax
