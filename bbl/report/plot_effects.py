"""Effects plot: estimates with their intervals, a panel for each group and a row for each effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.design.labels import Labels
from bbl.report.canvas import (
    LINE_HEIGHT,
    MAX_FONT,
    TITLE_FONT,
    axes_inches,
    check_axes,
    fit_names,
    group_colours,
    group_titles,
    plain_numbers,
    title_inches,
    wrap_names,
)
from bbl.report.grid import MOST_PANELS, Grid, grid_columns, note_shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_effects"]

WIDTH = 3.2  # inches of a panel
NARROW_WIDTH = 2.5  # inches of a panel beside others, so that three of them and the names fit into 13 inches
MAX_NAME_WIDTH = 3.6  # inches of the names beside the panels
ROW = 2.0 * LINE_HEIGHT * MAX_FONT / 72  # inches between rows


def plot_effects(
    labels: Labels,
    groups: Sequence,
    names: Sequence[str],
    values: np.ndarray,
    title: str,
    null: float | None,
    top: int,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw estimates with their intervals.

    Parameters
    ----------
    labels : Labels
    groups : sequence of G labels
        A panel each.
    names : sequence of n str
        Of the rows, the same in all panels.
    values : ndarray, shape (G, 3, n)
        Estimates, lower and upper limits; no point for what is not finite, no line if a limit is not.
    title : str
        Label of the axis of values.
    null : float or None
        Where a vertical line is drawn.
    top : int
        Largest number of rows that are drawn.
    axes : sequence of matplotlib Axes, optional
    """
    n = min(len(names), top)
    rows = np.arange(n, dtype=float)
    if axes is None:
        shown = groups[:MOST_PANELS]
        panels = _new_panels(labels, shown, names[:n], rows, n < len(names))
        note_shown(panels[0], n, len(names), "effects")
    else:
        shown, panels = groups, check_axes(axes, len(groups))
        for ax, text in zip(panels, group_titles(labels, groups, WIDTH), strict=True):
            fit_names(names[:n], rows, axes_inches(ax)[1] / max(n, 1), 1.2, upright=True).label_ticks(ax.yaxis)
            ax.set_title(text, fontsize=TITLE_FONT)
    colour = group_colours(1)[0]
    for ax, (point, low, high) in zip(panels, values[: len(shown), :, :n], strict=True):
        has_interval = np.isfinite(low) & np.isfinite(high)
        ax.hlines(rows[has_interval], low[has_interval], high[has_interval], color=colour, linewidth=1.4)
        drawn = np.isfinite(point)
        ax.plot(point[drawn & has_interval], rows[drawn & has_interval], "o", color=colour, markersize=4.5, zorder=3)
        bare = drawn & ~has_interval  # hollow: there is no interval
        ax.plot(point[bare], rows[bare], "o", color=colour, markersize=4.5, markerfacecolor="white", zorder=3)
        if null is not None:
            ax.axvline(null, color="0.5", linewidth=1, zorder=1)
        ax.set(ylim=(n - 0.5, -0.5))
        ax.set_xlabel(wrap_names([title], 0.9 * axes_inches(ax)[0], MAX_FONT, 2)[0], fontsize=MAX_FONT)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        plain_numbers(ax)
    return panels


def _new_panels(labels: Labels, groups: Sequence, names: Sequence[str], rows: np.ndarray, has_note: bool) -> list[Axes]:
    """Return the panels of a new figure with `names` as tick labels at `rows`, and the groups as titles."""
    tick_names = fit_names(names, rows, ROW, MAX_NAME_WIDTH, upright=True)
    width = WIDTH if len(groups) == 1 else NARROW_WIDTH
    titles = group_titles(labels, groups, width)
    height = max(len(rows) * ROW, 0.8)
    grid = Grid(
        len(groups), grid_columns(len(groups), width, 3), width, height, tick_names.depth + 0.3,
        title_inches(titles) + 0.5, 0.75 + 0.2 * has_note, bar=0.1,
    )  # fmt: skip
    panels = grid.axes(grid.figure())
    for k, (ax, text) in enumerate(zip(panels, titles, strict=True)):
        tick_names.label_ticks(ax.yaxis)
        ax.tick_params(labelleft=k % grid.columns == 0, labelbottom=True)
        ax.set_title(text, fontsize=TITLE_FONT)
    return panels
