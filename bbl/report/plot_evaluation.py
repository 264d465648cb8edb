"""Evaluation plots: the confusion matrix as a map, and ROC curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.design.labels import Labels
from bbl.errors import DataError
from bbl.report.canvas import (
    COLOURS,
    LEGEND_FONT,
    MAX_FONT,
    TITLE_FONT,
    axes_inches,
    axes_or_new,
    draw_legend,
    fit_names,
    group_colours,
    group_numbers,
    shorten_names,
    text_inches,
    wrap_names,
)
from bbl.report.grid import axes_at, note_shown
from bbl.stats.evaluation import Curve, roc_curve
from bbl.stats.metrics import auc

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_confusion", "plot_roc"]

MIN_CELL = 0.62  # side of a cell of a confusion matrix in inches, in a new figure with few groups
MIN_MAP = 2.2  # smallest side of a new figure's map in inches
MAX_MAP = 8.0  # largest side of a new figure's map in inches
MAX_NAME_DEPTH = 2.2  # inches of the group names to the left of and below the map of a new figure
MAX_NUMBERED_GROUPS = 24  # with more groups, cells do not show numbers
MAX_CURVES = 12  # ROC curves per figure
WHITE_ABOVE = 0.55  # proportion above which a cell is dark and its number white


def plot_confusion(
    labels: Labels, counts: np.ndarray, ax: Axes | None = None, min_count: float = 0.0
) -> Axes:
    """Draw a confusion matrix: counts as numbers, and proportions of the observed group (the row)
    as colours.

    `counts` (K, K) are weighted observations by observed group (rows) and predicted group
    (columns). Cells with a count below `min_count` have no number and no colour.
    """
    counts = np.asarray(counts, dtype=float)
    K = len(labels.groups)
    if counts.shape != (K, K):
        raise DataError(
            f"counts must be a {K} x {K} table of observed by predicted groups; got shape "
            f"{counts.shape}."
        )
    row_totals = counts.sum(axis=1, keepdims=True)  # (K, 1): observations of each observed group
    share = np.divide(counts, row_totals, out=np.zeros_like(counts), where=row_totals > 0)
    share[counts < min_count] = 0.0
    texts = [[_count_text(v, min_count) for v in row] for row in counts]
    # inches of the widest number, with a margin of 0.06 on either side
    widest = max(text_inches(x, MAX_FONT) for row in texts for x in row) + 0.12
    if ax is None:
        ax, cell = _new_map_axes(labels, max(MIN_CELL, widest))
    else:
        cell = min(axes_inches(ax)) / K  # inches
        # less space for names than in a new figure, whose margins are as wide as its names
        fit_names(labels.groups, np.arange(K), cell, max_depth=0.9, upright=True).label_ticks(
            ax.yaxis
        )
        fit_names(labels.groups, np.arange(K), cell, max_depth=0.9).label_ticks(ax.xaxis)
    ax.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    if K <= MAX_NUMBERED_GROUPS:
        # in points, so that the widest number with half of its margins fits into a cell
        size = min(MAX_FONT + 1, MAX_FONT * (cell - 0.06) / (widest - 0.06))
        for i in range(K):
            for j in range(K):
                colour = "white" if share[i, j] > WHITE_ABOVE else "black"
                ax.text(j, i, texts[i][j], ha="center", va="center", color=colour, fontsize=size)
    response = shorten_names([labels.response], length=24)[0]
    label_width = max(K * cell, 1.5)  # inches for the axis labels
    ax.set_xlabel(wrap_names([f"Predicted {response}"], label_width, TITLE_FONT, lines=2)[0])
    ax.set_ylabel(wrap_names([f"Observed {response}"], label_width, TITLE_FONT, lines=2)[0])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    # white lines between the cells, at minor ticks without marks
    ax.set_xticks(np.arange(1, K) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, K) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1)
    ax.tick_params(which="minor", length=0)
    return ax


def _count_text(count: float, min_count: float) -> str:
    """Return a number of observations as text."""
    if count < min_count:
        return f"<{min_count:g}"
    return f"{count:,.0f}" if count == int(count) else f"{count:,.1f}"


def _new_map_axes(labels: Labels, min_cell: float) -> tuple[Axes, float]:
    """Return axes of a new figure with the K groups as tick labels, and the size of a cell in
    inches.

    The side of a cell is `min_cell` inches, unless the side of the map would be outside the range
    from `MIN_MAP` to `MAX_MAP`.
    """
    import matplotlib.pyplot as plt

    K = len(labels.groups)
    side = float(np.clip(K * min_cell, MIN_MAP, MAX_MAP))
    cell = side / K
    row_names = fit_names(labels.groups, np.arange(K), cell, MAX_NAME_DEPTH, upright=True)
    column_names = fit_names(labels.groups, np.arange(K), cell, MAX_NAME_DEPTH)
    # inches for the group names, and 0.6 for the axis label
    left_margin = row_names.depth + 0.6
    foot = column_names.depth + 0.6
    figure = plt.figure(figsize=(left_margin + side + 0.2, 0.2 + side + foot))
    ax = axes_at(figure, left_margin, 0.2, side, side)
    row_names.label_ticks(ax.yaxis)
    column_names.label_ticks(ax.xaxis)
    return ax, cell


def plot_roc(
    labels: Labels,
    curve: Callable[[int], Curve],
    *,
    groups: Sequence | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the ROC curve of each group against all other groups, with the area under it in the
    legend.

    Groups that contain none or all of the rows have no curve.

    Parameters
    ----------
    labels : Labels
    curve : callable
        Returns scores that rank rows, given a group number 0..K-1: larger means that the group is
        more probable.
    groups : sequence, optional
        Groups to draw; by default the first twelve, or only the second if there are two.
    ax : matplotlib Axes, optional
    """
    K = len(labels.groups)
    chosen = [1] if groups is None and K == 2 else group_numbers(labels, groups)
    shown = chosen if groups is not None else chosen[:MAX_CURVES]  # group numbers
    is_new_figure = ax is None
    ax = axes_or_new(ax, size=(4.4, 4.2))
    areas = [auc(*curve(k))[0] for k in shown]  # [0]: without the limits
    diagonal = ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, zorder=1)
    lines = []
    names = []
    texts = wrap_names([labels.groups[k] for k in shown], room=1.6, size=LEGEND_FONT, lines=1)
    colours = [COLOURS[0]] if len(shown) == 1 else group_colours(len(shown))
    for k, text, area, colour in zip(shown, texts, areas, colours, strict=True):
        if np.isnan(area):  # the group has none or all of the rows
            continue
        fpr, tpr, _ = roc_curve(*curve(k))
        lines += ax.plot(fpr, tpr, color=colour, linewidth=1.4, zorder=3)
        names.append(f"{text}: AUC {area:.3f}")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.set(xlabel="False positive rate", ylabel="True positive rate")
    ax.spines[["top", "right"]].set_visible(False)
    if lines:
        draw_legend(ax, lines + diagonal, [*names, "chance"], loc="lower right")
    if is_new_figure:
        note_shown(ax, len(shown), len(chosen), "groups")
    return ax
