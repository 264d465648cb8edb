"""Structure plot: the graph of a Bayesian network classifier in layers, and the bars of a table of probabilities."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.report.canvas import group_colours, named_legend, one_axes, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_probabilities", "plot_structure"]

MOST = 40  # rows of a table that are drawn


def plot_structure(
    class_var: Hashable, layers: Sequence[Sequence], arcs: Sequence[tuple], *, ax: Axes | None = None
) -> Axes:
    """Draw a graph: the class on top, every feature in a layer below its parents.

    Parameters
    ----------
    class_var : hashable
    layers : sequence of sequences of names
        Features from the top down.
    arcs : sequence of (from, to)
        Those from the class are drawn pale.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    rows = [[class_var], *layers]
    width = max(map(len, rows))
    ax = one_axes(ax, (float(np.clip(0.9 * width, 4.0, 14.0)), 1.2 + 0.9 * len(rows)))
    place = {}
    for depth, row in enumerate(rows):
        for k, name in enumerate(row):
            # every second node of a wide layer stands lower, so that names do not run into each other
            place[name] = ((k + 0.5) / len(row), -depth - 0.3 * (k % 2) * (len(row) > 6))
    size = float(np.clip(90 / width, 5.0, 9.0))
    for a, b in arcs:
        pale = a == class_var
        ax.annotate(
            "",
            place[b],
            place[a],
            zorder=1 if pale else 2,
            arrowprops={
                "arrowstyle": "-|>",
                "color": "0.85" if pale else "#0072B2",
                "linewidth": 0.7 if pale else 1.3,
                "shrinkA": 9,
                "shrinkB": 9,
                "connectionstyle": "arc3" if pale else "arc3,rad=0.1",
            },
        )
    for name, (x, y) in place.items():
        box = {"boxstyle": "round,pad=0.25", "facecolor": "#D55E00" if name == class_var else "white"}
        colour = "white" if name == class_var else "black"
        text = short_name(name, 16)
        ax.text(x, y, text, ha="center", va="center", fontsize=size, color=colour, bbox=box, zorder=3)
    ax.set(xlim=(-0.05, 1.05), ylim=(-len(rows) + 0.3, 0.5))
    ax.set_axis_off()
    return ax


def plot_probabilities(name: Hashable, table: pd.DataFrame, errors: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the probabilities of a variable's levels in each configuration of its parents, with their standard errors.

    Parameters
    ----------
    name : hashable
        The variable.
    table, errors : DataFrame
        A row for each configuration, a column for each level; errors that are missing are not drawn.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Of more than 40 configurations the first.
    """
    shown, errors = table.iloc[:MOST], errors.iloc[:MOST]
    rows, r = shown.shape
    ax = one_axes(ax, (float(np.clip(1.0 + 0.18 * rows * (r + 1), 4.0, 16.0)), 3.4))
    handles = []
    for k, colour in enumerate(group_colours(r)):
        at = np.arange(rows) + (k + 0.5) / (r + 1) - 0.5 * r / (r + 1)
        spread = errors.iloc[:, k].to_numpy(float)
        bars = ax.bar(at, shown.iloc[:, k], 0.9 / (r + 1), color=colour)
        has_spread = np.isfinite(spread)
        if has_spread.any():
            heights = shown.iloc[:, k].to_numpy(float)[has_spread]
            ax.errorbar(
                at[has_spread], heights, spread[has_spread], fmt="none", ecolor="0.2", elinewidth=0.8, capsize=1.5
            )
        handles.append(bars)
    names = [
        ", ".join(short_name(label, 12) for label in (row if isinstance(row, tuple) else (row,))) for row in shown.index
    ]
    upright = rows * max(map(len, names)) > 60
    ax.set_xticks(np.arange(rows), names, rotation=90 if upright else 0, fontsize="small")
    parent_names = [short_name(n) for n in table.index.names if n is not None]
    count_note = f"  (first {MOST} of {len(table)})" if len(table) > MOST else ""
    ax.set(
        xlabel=", ".join(parent_names) + count_note,
        ylabel=f"P({short_name(name)}{' | ' + ', '.join(parent_names) if parent_names else ''})",
    )
    ax.set_ylim(0.0, None)
    named_legend(ax, handles, [short_name(c, 16) for c in table.columns], title=short_name(name))
    ax.spines[["top", "right"]].set_visible(False)
    return ax
