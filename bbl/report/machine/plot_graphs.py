"""Interaction graph of graphical models, with nodes on a circle. The width and colour of an edge
show its probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.report.canvas import check_axes, draw_colour_bar
from bbl.report.machine.plot_interactions import draw_graph, new_graph_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_edges"]

MIN_SHOWN = 0.05  # smallest probability of a drawn edge
MIN_SOLID = 0.5  # smallest probability of a solid edge; others are dashed
PALE_SHARE = 0.25  # fraction of the colour map that is left out: pale edges are invisible on white


def plot_edges(
    names: Sequence, ends: np.ndarray, probability: np.ndarray, ax: Axes | None = None
) -> Axes:
    """Draw a graph with E edges of given probabilities; edges with a probability below 5 % are
    omitted.

    Parameters
    ----------
    names : sequence
        Names of the nodes.
    ends : ndarray of int, shape (E, 2)
        Positions of the ends of each edge in `names`.
    probability : ndarray, shape (E,)
    ax : matplotlib Axes, optional
        A new figure by default.
    """
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    is_shown = probability >= MIN_SHOWN
    order = np.argsort(probability[is_shown], kind="stable")  # most probable edges on top
    ends = ends[is_shown][order]
    probability = probability[is_shown][order]
    title = "Probability of edges"
    # a list with the axes of the graph; and the axes of the colour bar, or None to place it next to
    # the caller's axes
    panels, bar = (
        new_graph_axes([list(names)], [title], notes=[""])
        if ax is None
        else (check_axes([ax], 1), None)
    )
    colours = LinearSegmentedColormap.from_list(
        "edges", colormaps["viridis_r"](np.linspace(PALE_SHARE, 1.0, 64))
    )
    scale = {"cmap": colours, "vmin": 0.0, "vmax": 1.0}
    lines = draw_graph(
        panels[0], list(names), ends, probability, scale, dashed=probability < MIN_SOLID
    )
    panels[0].set_title(title)
    draw_colour_bar(lines, bar, panels, title="Probability (dashed: below 50 %)")
    return panels[0]
