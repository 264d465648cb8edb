"""Figures of Bayesian network classifiers: the graph in layers, and the conditional probabilities
of a variable as bars.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.report.canvas import axes_or_new, draw_legend, group_colours, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_probabilities", "plot_structure"]

MAX_CONFIGURATIONS = 40  # drawn parent configurations; more would not be legible
# of all tick labels in a row; with more characters the labels are vertical
MAX_LABEL_CHARACTERS = 60
# nodes in a layer; in wider layers every second node is drawn lower, so that names do not overlap
STAGGER_ABOVE = 6


def plot_structure(
    class_var: Hashable,
    layers: Sequence[Sequence],
    arcs: Sequence[tuple],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the graph with the class at the top and every feature in a layer below its parents.

    Parameters
    ----------
    class_var : hashable
    layers : sequence of sequences of names
        Features of each layer, from top to bottom.
    arcs : sequence of (from, to)
        Arcs from the class, which every feature has, are drawn in a pale colour.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    rows = [[class_var], *layers]
    width = max(map(len, rows))  # nodes in the widest row
    ax = axes_or_new(ax, size=(float(np.clip(0.9 * width, 4.0, 14.0)), 1.2 + 0.9 * len(rows)))
    positions = {}  # (x, y) of each node: x in 0..1, y decreases by 1 from layer to layer
    for depth, row in enumerate(rows):
        for k, name in enumerate(row):
            positions[name] = (
                (k + 0.5) / len(row),
                -depth - 0.3 * (k % 2) * (len(row) > STAGGER_ABOVE),
            )
    fontsize = float(np.clip(90 / width, 5.0, 11.0))
    for parent, child in arcs:
        is_pale = parent == class_var
        ax.annotate(
            "",
            positions[child],
            positions[parent],
            zorder=1 if is_pale else 2,
            arrowprops={
                "arrowstyle": "-|>",
                "color": "0.65" if is_pale else "#0072B2",
                "linewidth": 1.0 if is_pale else 1.6,
                "shrinkA": 9,  # points between the centre of the parent and the arrow
                "shrinkB": 9,  # points between the arrow and the centre of the child
                "connectionstyle": "arc3" if is_pale else "arc3,rad=0.1",
            },
        )
    for name, (x, y) in positions.items():
        box = {
            "boxstyle": "round,pad=0.25",
            "facecolor": "#D55E00" if name == class_var else "white",
        }
        colour = "white" if name == class_var else "black"
        text = short_name(name, length=16)
        ax.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=fontsize,
            color=colour,
            bbox=box,
            zorder=3,
        )
    ax.set(xlim=(-0.05, 1.05), ylim=(-len(rows) + 0.3, 0.5))
    ax.set_axis_off()
    return ax


def plot_probabilities(
    name: Hashable, table: pd.DataFrame, errors: pd.DataFrame, ax: Axes | None = None
) -> Axes:
    """Draw the probabilities of a variable's levels for each parent configuration, with standard
    errors.

    Parameters
    ----------
    name : hashable
        The variable.
    table, errors : DataFrame
        Probabilities and standard errors, with a row for each parent configuration and a column for
        each level. The first `MAX_CONFIGURATIONS` rows are drawn, without error bars where errors
        are nan.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    shown = table.iloc[:MAX_CONFIGURATIONS]
    errors = errors.iloc[:MAX_CONFIGURATIONS]
    n_rows, L = shown.shape  # parent configurations, and levels
    ax = axes_or_new(ax, size=(float(np.clip(1.0 + 0.18 * n_rows * (L + 1), 4.0, 16.0)), 3.4))
    handles = []
    for k, colour in enumerate(group_colours(L)):
        # the L bars of a configuration are centred at its number; a gap of one bar width
        # separates configurations
        x = np.arange(n_rows) + (k + 0.5) / (L + 1) - 0.5 * L / (L + 1)
        heights = shown.iloc[:, k].to_numpy(float)
        se = errors.iloc[:, k].to_numpy(float)
        handles.append(ax.bar(x, heights, 0.9 / (L + 1), color=colour))
        has_se = np.isfinite(se)
        if has_se.any():
            ax.errorbar(
                x[has_se],
                heights[has_se],
                se[has_se],
                fmt="none",
                ecolor="0.2",
                elinewidth=0.8,
                capsize=1.5,
            )
    tick_labels = [
        ", ".join(
            short_name(level, length=12) for level in (row if isinstance(row, tuple) else (row,))
        )
        for row in shown.index
    ]
    is_upright = n_rows * max(map(len, tick_labels)) > MAX_LABEL_CHARACTERS
    ax.set_xticks(
        np.arange(n_rows), tick_labels, rotation=90 if is_upright else 0, fontsize="small"
    )
    parent_names = [short_name(n) for n in table.index.names if n is not None]
    count_note = (
        f"  (first {MAX_CONFIGURATIONS} of {len(table)})" if len(table) > MAX_CONFIGURATIONS else ""
    )
    ax.set(
        xlabel=", ".join(parent_names) + count_note,
        ylabel=f"P({short_name(name)}{' | ' + ', '.join(parent_names) if parent_names else ''})",
    )
    ax.set_ylim(0.0, None)
    draw_legend(
        ax,
        handles,
        [short_name(c, length=16) for c in table.columns],
        title=short_name(name),
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),  # outside, as it would hide bars
    )
    ax.spines[["top", "right"]].set_visible(False)
    return ax
