"""Waterfall plot: how contributions add up, from a baseline to the log-odds of one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.report.canvas import (
    COLOURS,
    LINE_HEIGHT,
    MAX_FONT,
    TITLE_FONT,
    axes_inches,
    fit_names,
    text_inches,
    use_plain_numbers,
    wrap_names,
)
from bbl.report.grid import axes_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_waterfall"]

WIDTH = 4.6  # inches of the panel
MAX_NAME_WIDTH = 3.2  # inches of the names to the left of the bars
GAP = 1.7 * LINE_HEIGHT * MAX_FONT / 72  # inches between bars


def plot_waterfall(
    names: Sequence[str],
    values: np.ndarray,
    *,
    title: str = "Log-odds",
    top: int = 12,
    ax: Axes | None = None,
) -> Axes:
    """Draw the baseline, the contributions (largest first) and the sum as bars. Each bar starts
    where the previous one ends.

    Parameters
    ----------
    names : sequence of n str
        The baseline, then the contributions.
    values : ndarray, shape (n,)
        Their values, of any sign; the bars end at their sum.
    title : str, default "Log-odds"
        Label of the axis.
    top : int, default 12
        Number of contributions with their own bar; the smaller ones share one bar.
    ax : matplotlib Axes, optional
    """
    names = list(names)
    values = np.asarray(values, dtype=float)
    # positions of contributions, largest first
    order = 1 + np.argsort(-np.abs(values[1:]), kind="stable")
    shown = order[:top]
    remaining = order[top:]
    labels = [names[0], *(names[k] for k in shown)]
    steps = [values[0], *values[shown]]  # signed lengths of all bars except the sum
    if len(remaining):
        labels.append(f"{len(remaining)} others")
        steps.append(values[remaining].sum())
    labels.append("sum")
    ends = np.cumsum(steps)  # ends of the bars
    y = np.arange(len(labels), dtype=float)
    if ax is None:
        ax = _new_axes(labels, y)
    else:
        # less space for names than in a new figure, whose margin is as wide as its names
        fit_names(
            labels, y, axes_inches(ax)[1] / len(labels), max_depth=1.4, upright=True
        ).label_ticks(ax.yaxis)
    # the last bar, the sum, starts at zero
    starts = [0.0, *ends[:-1], 0.0]
    widths = [*steps, ends[-1]]
    for k, (start, step) in enumerate(zip(starts, widths, strict=True)):
        # grey: baseline and sum; red: positive; blue: negative
        colour = "0.6" if k in (0, len(labels) - 1) else COLOURS[4 if step > 0 else 0]
        ax.barh(k, step, left=start, height=0.65, color=colour, zorder=2)
        offset = 4 if step >= 0 else -4  # points between bar and number
        ax.annotate(
            f"{step:+.2f}",
            (start + step, k),
            xytext=(offset, 0),
            textcoords="offset points",
            ha="left" if step >= 0 else "right",
            va="center",
            fontsize=8,
        )
    # thin lines from the end of each bar to the start of the next; bars extend 0.65 / 2 above and
    # below their position
    ax.vlines(ends, y[:-1] - 0.33, y[:-1] + 1.33, color="0.6", linewidth=0.8, zorder=1)
    ax.axvline(0.0, color="0.5", linewidth=1, zorder=1)
    low = min(0.0, ends.min())
    high = max(0.0, ends.max())
    margin = 0.16 * ((high - low) or 1.0)  # space for the numbers next to the bars
    ax.set(ylim=(len(labels) - 0.5, -0.5), xlim=(low - margin, high + margin))
    ax.set_xlabel(wrap_names([title], axes_inches(ax)[0], TITLE_FONT, lines=2)[0])
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    use_plain_numbers(ax)
    return ax


def _new_axes(labels: Sequence[str], positions: np.ndarray) -> Axes:
    """Return axes of a new figure with space for one bar per label; tick `labels` are set at
    `positions`.
    """
    import matplotlib.pyplot as plt

    needs_two_lines = max(text_inches(x, MAX_FONT) for x in labels) > MAX_NAME_WIDTH
    gap = GAP * (1.6 if needs_two_lines else 1.0)
    tick_names = fit_names(labels, positions, gap, MAX_NAME_WIDTH, upright=True)
    # depth: inches occupied by the names
    height = len(labels) * gap
    left_margin = tick_names.depth + 0.3
    figure = plt.figure(figsize=(left_margin + WIDTH + 0.2, 0.15 + height + 0.75))
    ax = axes_at(figure, left_margin, 0.15, WIDTH, height)
    tick_names.label_ticks(ax.yaxis)
    return ax
