"""Interaction graph: predictors as nodes on a circle, their strongest pairwise interactions as
edges.

The *strength* of a pair is the Frobenius norm of its couplings in the zero-sum gauge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.checks import integer
from bbl.design.labels import Labels
from bbl.errors import DataError, OptionError
from bbl.model.gauge import zero_sum
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.model.ranking import interaction_strength
from bbl.report.canvas import (
    LINE_HEIGHT,
    MAX_FONT,
    MIN_FONT,
    MORE_LETTERS,
    TITLE_FONT,
    axes_inches,
    check_axes,
    count_letters,
    diverging_scale,
    draw_colour_bar,
    group_numbers,
    group_title,
    max_lines,
    text_inches,
    title_inches,
    wrap_names,
)
from bbl.report.grid import MOST_PANELS, Grid, grid_columns, note_shown
from bbl.report.text import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection

__all__ = ["draw_graph", "draw_network", "new_graph_axes"]

MAX_NODES = 40  # with more predictors, only those with an edge are drawn
NAME_RADIUS = 1.08  # where names begin, in units of the radius
MARGIN = 0.1  # inches outside the names
# with more nodes, names are not horizontal but run along the radius
MAX_HORIZONTAL_NAMES = 12
MAX_PAIRS = 80  # pairs drawn by default in each of up to 4 graphs
MAX_PAIRS_SMALL = 30  # pairs drawn by default in each of more graphs, which are small


def draw_network(
    labels: Labels,
    parameters: Parameters,
    *,
    groups: Sequence[Any] | None = None,
    top: int | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw the strongest interactions as a graph, one per group.

    Parameters
    ----------
    labels : Labels
    parameters : Parameters
        If they include a pooled fit, differences from the pooled fit are drawn.
    groups : sequence, optional
        Graphs to draw: a group, or a pair ``(a, b)`` for the difference in parameters, group a
        minus group b. All groups by default.
    top : int, optional
        Number of strongest pairs in each graph; by default twice the number of predictors, but
        at least 20 and at most 80, or 30 with more than 4 graphs.
    axes : sequence of matplotlib Axes, optional
        One per graph; a new figure by default.

    Returns
    -------
    list of matplotlib Axes
        The width of an edge is the *strength* of the pair. Its colour shows the sign of the largest
        coupling of non-reference levels: red if positive, blue if negative. All graphs share one
        colour scale. With more than 40 predictors, those without an edge are omitted.

    Raises
    ------
    OptionError
        If a group is unknown, or `axes` has the wrong length.
    DataError
        If the model has no interactions.
    """
    layout = parameters.layout
    if not len(layout.pairs):
        if layout.order > 2:  # largest number of predictors that interact
            raise DataError(
                "The model has no pairs to draw.",
                hint="Draw terms of three or more predictors with plot_terms().",
            )
        raise DataError(
            "The model has no interactions to draw: its formula has no terms such as a:b or .^2."
        )
    theta, titles = _graph_parameters(labels, parameters, groups)
    # (graphs, pairs); `interaction_strength` puts pairs first, then larger terms
    strengths = np.array([interaction_strength(layout, row)[: len(layout.pairs)] for row in theta])
    default = int(np.clip(2 * layout.m, 20, MAX_PAIRS if len(theta) <= 4 else MAX_PAIRS_SMALL))
    n_pairs = default if top is None else integer("top", top, 1)
    # positions in `layout.pairs`, for each graph
    shown_pairs = [_strongest_pairs(row, n_pairs) for row in strengths]
    signed_strengths = [
        np.array([_sign_of_pair(layout, row, pair) for pair in pairs]) * strength[pairs]
        for row, strength, pairs in zip(theta, strengths, shown_pairs, strict=True)
    ]
    # the predictors of each graph
    nodes = [
        np.arange(layout.m) if layout.m <= MAX_NODES else np.unique(layout.pairs[p])
        for p in shown_pairs
    ]
    names = [[labels.names[i] for i in graph_nodes] for graph_nodes in nodes]
    notes = [_shown_pairs_note(len(pairs), len(layout.pairs)) for pairs in shown_pairs]
    panels, bar = (
        new_graph_axes(names, titles, notes)
        if axes is None
        else (check_axes(axes, len(theta)), None)
    )
    # zero: the set of edges may be empty
    scale = _edge_scale(np.concatenate([*signed_strengths, np.zeros(1)]))
    headings = _graph_titles(titles, notes, min(axes_inches(ax)[0] for ax in panels))
    # a new figure may have fewer panels than there are graphs
    graphs = zip(panels, nodes, names, shown_pairs, signed_strengths, headings, strict=False)
    for ax, graph_nodes, node_names, pairs, values, heading in graphs:
        # as positions among the nodes of the graph
        edges = np.searchsorted(graph_nodes, layout.pairs[pairs])
        lines = draw_graph(ax, node_names, edges, values, scale, dashed=values <= 0)
        ax.set_title(heading, fontsize=TITLE_FONT)
    draw_colour_bar(lines, bar, panels, title="Signed strength (dashed: below 0)")
    return panels


def _shown_pairs_note(n: int, total: int) -> str:
    """Return the note that a graph shows the `n` strongest of `total` pairs."""
    if not n:
        return "no coupled pairs"
    count = f"{n} strongest" if n > 1 else "strongest"
    return "" if n == total else f"showing the {count} of {total} pairs"


def _graph_titles(titles: list[str], notes: list[str], width: float) -> list[str]:
    """Return the title of each graph and its note on the next line, truncated to `width` inches."""
    lines = zip(
        wrap_names(titles, width, TITLE_FONT, lines=3),
        wrap_names(notes, width, TITLE_FONT, lines=2),
        strict=True,
    )
    return [f"{title}\n{note}" if note else title for title, note in lines]


def new_graph_axes(
    names: list[list], titles: list[str], notes: list[str]
) -> tuple[list[Axes], Axes]:
    """Return axes of a new figure for graphs with these node `names`, titles and notes, and axes
    for its colour bar.
    """
    # number of graphs, and of nodes in the largest
    n = min(len(names), MOST_PANELS)
    n_nodes = max(map(len, names))
    # inches of the circle's radius and of the names outside it
    radius, depth = {1: (1.9, 1.6), 2: (1.5, 1.3)}.get(n, (1.0, 0.95) if n <= 6 else (0.75, 0.62))
    # radial names fit in a font half a point larger than the smallest
    radius = max(radius, _least_radius(n_nodes, MIN_FONT + 0.5))
    depth = min(
        depth,
        max(text_inches(label_text(x), MAX_FONT) for node_names in names for x in node_names)
        + 0.05,
    )
    side = 2 * (NAME_RADIUS * radius + depth + MARGIN)
    three_lines = LINE_HEIGHT * MAX_FONT / 72 * 3  # horizontal names have up to three lines
    height = (
        side
        if n_nodes > MAX_HORIZONTAL_NAMES
        else 2 * (NAME_RADIUS * radius + three_lines + MARGIN)
    )
    head = 0.15 + title_inches(_graph_titles(titles, notes, side))
    grid = Grid(
        n, grid_columns(n, side + 0.15), side, height, left=0.1, head=head, foot=0.1, gap=0.15
    )
    figure = grid.figure(top=0.0, width=0.0, below=0.25 if n < len(names) else 0.0)
    panels = grid.axes(figure)
    note_shown(panels[0], n, len(names), "graphs")
    return panels, grid.bar_axes(figure)


def _edge_scale(values: np.ndarray) -> dict[str, Any]:
    """Return the options ``cmap``, ``vmin``, ``vmax`` of a symmetric colour scale for edges.

    The pale middle of the colour map is omitted, because it would hide weak edges.
    """
    from matplotlib.colors import LinearSegmentedColormap

    scale = diverging_scale(values)
    # positions in the map, 0..1
    strong_colours = np.concatenate([np.linspace(0, 0.28, 64), np.linspace(0.72, 1, 64)])
    return {
        **scale,
        "cmap": LinearSegmentedColormap.from_list("edges", scale["cmap"](strong_colours)),
    }


def _graph_parameters(
    labels: Labels, parameters: Parameters, groups: Sequence[Any] | None
) -> tuple[np.ndarray, list[str]]:
    """Return the parameters (graphs, size) and the titles of the graphs; `groups` is the same as in
    `draw_network`.
    """
    theta = []
    titles = []
    for g in labels.groups if groups is None else groups:
        is_pair = isinstance(g, tuple) and len(g) == 2 and g not in labels.groups
        # `second` is empty for a single group
        first, *second = group_numbers(labels, g if is_pair else [g])
        # a difference between two groups needs no shift: the pooled fit cancels
        theta.append(
            parameters.theta[first] - parameters.theta[second[0]]
            if is_pair
            else parameters.shift[first]
        )
        names = " minus ".join(label_text(labels.groups[k]) for k in (first, *second))
        titles.append(group_title(labels, names))
    if not theta:
        raise OptionError("groups is empty.", argument="groups", hint="Name at least one.")
    return np.array(theta), titles


def _strongest_pairs(strength: np.ndarray, n: int) -> np.ndarray:
    """Return the positions in `strength` of the `n` strongest pairs, strongest last; pairs of
    strength 0 are left out.
    """
    order = np.argsort(strength, kind="stable")[-n:]
    return order[strength[order] > 0]


def _sign_of_pair(layout: Layout, theta: np.ndarray, pair: int) -> float:
    """Return the sign (-1, 0 or 1) of a pair's largest coupling of non-reference levels in the
    zero-sum gauge.

    `theta` (size,) contains the parameters of a graph, and `pair` is a position in
    ``layout.pairs``.
    """
    i, j = layout.pairs[pair]
    # reference levels have couplings of 0 before the change of gauge, and are left out after it
    table = zero_sum(np.pad(layout.table(theta, int(i), int(j)), ((1, 0), (1, 0))))[1:, 1:].ravel()
    return float(np.sign(table[np.abs(table).argmax()])) if table.size else 0.0


def draw_graph(
    ax: Axes,
    names: list,
    edges: np.ndarray,
    values: np.ndarray,
    scale: dict[str, Any],
    dashed: np.ndarray,
) -> LineCollection:
    """Draw nodes with their names, and edges between them; return the drawn edges.

    `edges` (n, 2) contains positions in `names`, `values` (n,) contains signed strengths or
    probabilities, `scale` contains the options of their colours (as from `_edge_scale`), and
    `dashed` (n,) marks dashed edges.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    # clockwise from the top
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(names)) / max(len(names), 1)
    nodes = np.column_stack([np.cos(angle), np.sin(angle)])
    t = np.linspace(0, 1, 25)[:, None]  # curve parameter
    curves = []
    # quadratic Bezier curves, bent towards the centre so that edges along the rim are separated;
    # longer edges are bent more
    for a, b in edges:
        half_distance = np.linalg.norm(nodes[a] - nodes[b]) / 2
        # with few nodes, edges are straight: the control point is the midpoint of the nodes
        control = (
            (nodes[a] + nodes[b]) / 2 * (1.0 if len(names) < 8 else 0.85 - 0.3 * half_distance)
        )
        curves.append((1 - t) ** 2 * nodes[a] + 2 * t * (1 - t) * control + t**2 * nodes[b])
    widest = float(np.clip(150 / max(len(names), 1), 2.0, 5.0))  # points
    widths = np.maximum(widest * np.minimum(np.abs(values) / scale["vmax"], 1.0), 0.6)
    # readable without colours
    styles = [(0, (2.5, 1.2)) if is_dashed else "solid" for is_dashed in dashed]
    norm = Normalize(scale["vmin"], scale["vmax"])
    lines = LineCollection(
        curves, array=values, cmap=scale["cmap"], norm=norm, linewidths=widths, linestyles=styles
    )
    ax.add_collection(lines)
    ax.plot(
        *nodes.T,
        "o",
        color="0.25",
        markersize=float(np.clip(160 / max(len(names), 1), 2.0, 7.0)),
        zorder=3,
    )
    ax.set_aspect("equal")
    ax.set_axis_off()
    width, height = axes_inches(ax)
    radius = _name_nodes(ax, names, nodes, angle, width, height)
    # limits in units of the radius: the circle is centred in the axes
    ax.set(
        xlim=np.array([-0.5, 0.5]) * width / radius, ylim=np.array([-0.5, 0.5]) * height / radius
    )
    return lines


def _least_radius(n: int, size: float) -> float:
    """Return the radius in inches of a circle with space for n radial names of `size` points around
    it.
    """
    return n * LINE_HEIGHT * size / 72 / (2 * np.pi * NAME_RADIUS)


def _name_nodes(
    ax: Axes, names: list, nodes: np.ndarray, angle: np.ndarray, width: float, height: float
) -> float:
    """Write the names of the nodes outside the circle; return the radius in inches that leaves
    space for them.

    `nodes` (n, 2) and `angle` (n,) contain positions on the unit circle; `width` and `height` are
    the size of the axes in inches. A smaller font is used only if clearly more letters can be shown
    with it.
    """
    n = len(names)
    is_radial = len(names) > MAX_HORIZONTAL_NAMES
    # best choice so far: font size, texts, radius; -1: the first font is used even if it shows no
    # letters
    most_letters = -1
    best = (MIN_FONT, [""] * n, 1.0)
    for size in np.arange(MAX_FONT, MIN_FONT - 0.1, -0.5):
        longest = max((text_inches(label_text(x), size) for x in names), default=0.0)
        # inches outside the circle for names, on the left and right, and above and below; the
        # circle gets the rest
        side_margin = min(longest + 0.03, 0.225 * width)
        above = (
            min(longest + 0.03, 0.225 * height)
            if is_radial
            else min(3 * LINE_HEIGHT * size / 72, 0.15 * height)
        )
        radius = min(width / 2 - side_margin, height / 2 - above) - MARGIN
        radius /= NAME_RADIUS  # names start outside the circle
        rim = NAME_RADIUS * radius
        # vertical distance of the second node from the top one
        fall = rim * (1 - np.cos(2 * np.pi / max(n, 3)))
        # space for the lines of a radial name: from one node to the next along the rim
        height_of_name = 2 * np.pi * rim / max(n, 1) if is_radial else 2 * fall
        texts = wrap_names(names, side_margin, size, max_lines(height_of_name, size))
        # radial names that overlap show no letters
        n_letters = count_letters(texts) * (not is_radial or radius >= _least_radius(n, size))
        # if no letters were shown so far, use the smaller font
        if n_letters > MORE_LETTERS * most_letters or not most_letters:
            most_letters = n_letters
            best = (float(size), texts, radius)
    size, texts, radius = best
    # if names overlap, every step-th is shown
    step = max(1, math.ceil(_least_radius(n, size) / radius)) if is_radial else 1
    # up to a full step before the first name, where the circle closes
    for k in range(0, max(n - step + 1, 1), step):
        (x, y) = nodes[k]
        degrees = np.degrees(angle[k]) % 360
        is_left = 90 < degrees < 270
        ax.annotate(
            texts[k],
            (NAME_RADIUS * x, NAME_RADIUS * y),
            rotation=(degrees - 180 if is_left else degrees) if is_radial else 0,
            rotation_mode="anchor",
            # horizontal names near the top and bottom are centred above and below their nodes
            ha="center" if not is_radial and abs(x) < 0.2 else "right" if is_left else "left",
            va="center" if is_radial or abs(x) >= 0.2 else "bottom" if y > 0 else "top",
            fontsize=size,
        )
    return radius
