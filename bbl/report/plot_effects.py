"""Effects plot: estimates with their intervals, one panel per group and one row per effect."""

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
    title_inches,
    use_plain_numbers,
    wrap_names,
)
from bbl.report.grid import (
    MOST_PANELS,
    NO_INTERVAL,
    NOTE_HEIGHT,
    Grid,
    grid_columns,
    note_shown,
    note_text,
    share_limits,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_effects"]

WIDTH = 3.2  # inches of a panel
# inches of each of several panels, so that three of them and the names fit into 13 inches
NARROW_WIDTH = 2.5
MAX_NAME_WIDTH = 3.6  # inches of the names to the left of the panels
ROW = 1.6 * LINE_HEIGHT * MAX_FONT / 72  # inches between rows


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
        One panel for each group.
    names : sequence of n str
        Names of the effects, the rows of every panel.
    values : ndarray, shape (G, 3, n)
        Estimates, lower and upper limits. Non-finite estimates have no point, and intervals with a
        non-finite limit have no line.
    title : str
        Label of the value axis.
    null : float or None
        Value of no effect, marked by a vertical line; None for no line.
    top : int
        Largest number of rows to draw, starting with the first.
    axes : sequence of matplotlib Axes, optional
    """
    from matplotlib.ticker import MaxNLocator

    n = min(len(names), top)
    rows = np.arange(n, dtype=float)  # vertical positions
    if axes is None:
        shown_groups = groups[:MOST_PANELS]
        # points in the shown rows without an interval
        point, low, high = (values[: len(shown_groups), k, :n] for k in range(3))
        is_hollow = np.isfinite(point) & ~(np.isfinite(low) & np.isfinite(high))
        n_notes = (n < len(names)) + (len(shown_groups) < len(groups)) + bool(is_hollow.any())
        panels = _new_panels(labels, shown_groups, names[:n], rows, n_notes)
        note_shown(panels[0], n, len(names), "effects")
        note_shown(panels[0], len(shown_groups), len(groups))  # above the note of effects
    else:
        shown_groups = groups
        panels = check_axes(axes, len(groups))
        for ax, text in zip(panels, group_titles(labels, groups, WIDTH), strict=True):
            # less space for names than in a new figure, whose margin is as wide as its names
            fit_names(
                names[:n], rows, axes_inches(ax)[1] / max(n, 1), max_depth=1.2, upright=True
            ).label_ticks(ax.yaxis)
            ax.set_title(text, fontsize=TITLE_FONT)
    colour = group_colours(1)[0]
    lacking = []  # hollow points of each panel
    for ax, (point, low, high) in zip(panels, values[: len(shown_groups), :, :n], strict=True):
        has_interval = np.isfinite(low) & np.isfinite(high)
        ax.hlines(
            rows[has_interval], low[has_interval], high[has_interval], color=colour, linewidth=1.4
        )
        has_point = np.isfinite(point)
        ax.plot(
            point[has_point & has_interval],
            rows[has_point & has_interval],
            "o",
            color=colour,
            markersize=4.5,
            zorder=3,
        )
        lacks_interval = has_point & ~has_interval  # such points are hollow
        if lacks_interval.any():
            lacking += ax.plot(
                point[lacks_interval],
                rows[lacks_interval],
                "o",
                color=colour,
                markersize=4.5,
                markerfacecolor="white",
                zorder=3,
            )
        if null is not None:
            ax.axvline(null, color="0.5", linewidth=1, zorder=1)
        ax.set(ylim=(n - 0.5, -0.5))  # first row at the top
        ax.set_xlabel(
            wrap_names([title], 0.9 * axes_inches(ax)[0], MAX_FONT, lines=2)[0], fontsize=MAX_FONT
        )
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        use_plain_numbers(ax)
        if axes is None:  # few ticks, with space for long numbers
            ax.xaxis.set_major_locator(MaxNLocator(4))
    if axes is None:
        share_limits(panels)
        if lacking:
            note_text(panels[0], NO_INTERVAL)
    return panels


def _new_panels(
    labels: Labels, groups: Sequence, names: Sequence[str], rows: np.ndarray, n_notes: int
) -> list[Axes]:
    """Return the panels of a new figure with `names` as tick labels at `rows`, and the groups as
    titles.

    Space is reserved for `n_notes` notes of `note_shown`.
    """
    tick_names = fit_names(names, rows, ROW, MAX_NAME_WIDTH, upright=True)
    width = WIDTH if len(groups) == 1 else NARROW_WIDTH
    titles = group_titles(labels, groups, width)
    height = max(len(rows) * ROW, 0.8)
    grid = Grid(
        n=len(groups),
        columns=grid_columns(len(groups), width, max_columns=3),
        width=width,
        height=height,
        left=tick_names.depth + 0.3,  # depth: inches occupied by the names
        head=title_inches(titles) + 0.5,
        foot=0.75 + NOTE_HEIGHT * n_notes,
        bar=0.1,
    )
    panels = grid.axes(grid.figure())
    for k, (ax, text) in enumerate(zip(panels, titles, strict=True)):
        tick_names.label_ticks(ax.yaxis)
        ax.tick_params(labelleft=k % grid.columns == 0, labelbottom=True)
        ax.set_title(text, fontsize=TITLE_FONT)
    return panels
