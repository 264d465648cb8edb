"""Network plot: predictors on a circle, joined by their strongest interactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.checks import integer
from bbl.design.labels import Labels
from bbl.errors import DataError, OptionError
from bbl.model.parameters import Parameters
from bbl.model.ranking import interaction_strength, zero_sum
from bbl.report.canvas import diverging, given_axes, grid_axes, group_numbers, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_network"]

MAX_NODES = 40  # predictors up to which those without an edge are drawn too
MOST = (80, 30)  # pairs drawn by default at most: in up to 4 graphs, and in each of more, which are small


def plot_network(
    labels: Labels,
    parameters: Parameters,
    *,
    groups: Sequence | None = None,
    top: int | None = None,
    strength: Any = None,
    axes: Any = None,
) -> list[Axes]:
    """Draw the strongest interactions as a graph, one per group.

    Parameters
    ----------
    labels : Labels
    parameters : Parameters
        Drawn less the pooled ones, or as they are without a pooled fit.
    groups : sequence, optional
        What to draw: groups, and pairs ``(a, b)`` of groups for the parameters of a less those of b. All groups by
        default.
    top : int, optional
        How many pairs to draw, the strongest; by default twice the number of predictors, but 20 at least, and at most
        80, or 30 in more than 4 graphs.
    strength : array_like, shape (len(groups), P), optional
        Strengths of all pairs; by default the Frobenius norms of the couplings in the zero-sum gauge.
    axes : sequence of matplotlib Axes, optional
        One per graph; a new figure by default.

    Returns
    -------
    list of matplotlib Axes
        Edges are as wide as they are strong, and have the colour of their strongest coupling: red where the two levels
        (other than the reference) attract, blue where they repel each other. All graphs share one scale. Of more than
        40 predictors, those without an edge are left out.

    Raises
    ------
    OptionError
        If a group is unknown, or `axes` has the wrong length.
    DataError
        If the model has no interactions, or `strength` has the wrong shape.
    """
    layout = parameters.layout
    if not len(layout.pairs):
        raise DataError("The model has no interactions to draw; its formula holds no terms like a:b or .^2.")
    theta, titles = _chosen(labels, parameters, groups)
    if strength is None:
        strengths = np.array([interaction_strength(layout, row) for row in theta])
    else:
        strengths = np.asarray(strength, dtype=float)
        if strengths.shape != (len(theta), len(layout.pairs)):
            raise DataError(f"strength must have the shape {(len(theta), len(layout.pairs))}: graphs by pairs.")
    few = int(np.clip(2 * layout.m, 20, MOST[len(theta) > 4])) if top is None else integer("top", top, 1)
    best = [_strongest(row, few) for row in strengths]
    signed = [
        np.array([_sign(layout, row, p) for p in pairs]) * s[pairs]
        for row, s, pairs in zip(theta, strengths, best, strict=True)
    ]
    columns = {1: 1, 2: 2, 3: 3, 4: 2}.get(len(theta), 4)
    size = {1: 5.0, 2: 4.0}.get(columns, 3.2)
    if axes is None:
        drawn = grid_axes(len(theta), columns, size, 0.95 * size, layout="compressed")
    else:
        drawn = given_axes(axes, len(theta))
    scale = diverging(np.concatenate([*signed, np.zeros(1)]))
    for ax, pairs, values, title in zip(drawn, best, signed, titles, strict=True):
        nodes = np.arange(layout.m) if layout.m <= MAX_NODES else np.unique(layout.pairs[pairs])
        names, edges = [short_name(labels.names[i], 12) for i in nodes], np.searchsorted(nodes, layout.pairs[pairs])
        lines, pad = _graph(ax, names, edges, values, scale)
        shown = "" if len(pairs) == len(layout.pairs) else f"\n{len(pairs)} of {len(layout.pairs)} pairs"
        ax.set_title(title + shown, fontsize="medium", pad=6 + pad)
    bar = drawn[0].figure.colorbar(lines, ax=drawn, shrink=0.6, aspect=25)
    bar.set_label("Coupling strength, signed")
    return drawn


def _chosen(labels: Labels, parameters: Parameters, groups: Sequence | None) -> tuple[np.ndarray, list[str]]:
    """Return parameters and title of each graph."""
    theta, titles = [], []
    for g in labels.groups if groups is None else groups:
        pair = isinstance(g, tuple) and len(g) == 2 and g not in labels.groups
        numbers = group_numbers(labels, g if pair else [g])
        theta.append(
            parameters.theta[numbers[0]] - parameters.theta[numbers[1]] if pair else parameters.shift[numbers[0]]
        )
        names = " less ".join(short_name(labels.groups[k], 16) for k in numbers)
        titles.append(f"{short_name(labels.response)} = {names}")
    if not theta:
        raise OptionError("groups is empty; name at least one.", argument="groups")
    return np.array(theta), titles


def _strongest(strength: np.ndarray, n: int) -> np.ndarray:
    """Return the `n` strongest pairs, the strongest last; those of strength zero are left out."""
    order = np.argsort(strength, kind="stable")[-n:]
    return order[strength[order] > 0]


def _sign(layout: Any, theta: np.ndarray, pair: int) -> float:
    """Return the sign of the largest coupling of non-reference levels in the zero-sum gauge."""
    i, j = layout.pairs[pair]
    table = zero_sum(np.pad(layout.table(theta, int(i), int(j)), ((1, 0), (1, 0))))[1:, 1:].ravel()
    return float(np.sign(table[np.abs(table).argmax()])) if table.size else 0.0


def _graph(
    ax: Axes, names: list[str], edges: np.ndarray, values: np.ndarray, scale: dict[str, Any]
) -> tuple[Any, float]:
    """Draw nodes, their names, and edges (n, 2) between them; return the edges drawn and `_node_names`."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    angle = np.pi / 2 - 2 * np.pi * np.arange(len(names)) / max(len(names), 1)
    place = np.column_stack([np.cos(angle), np.sin(angle)])
    t = np.linspace(0, 1, 25)[:, None]
    curves = []
    for a, b in edges:  # quadratic Bezier curves, drawn to the middle so that those along the rim come apart
        far = np.linalg.norm(place[a] - place[b]) / 2
        middle = (place[a] + place[b]) / 2 * (1.0 if len(names) < 8 else 0.85 - 0.3 * far)
        curves.append((1 - t) ** 2 * place[a] + 2 * t * (1 - t) * middle + t**2 * place[b])
    widest = float(np.clip(150 / max(len(names), 1), 2.0, 5.0))  # points
    widths = np.maximum(widest * np.minimum(np.abs(values) / scale["vmax"], 1.0), 0.4)
    norm = Normalize(scale["vmin"], scale["vmax"])
    lines = LineCollection(curves, array=values, cmap=scale["cmap"], norm=norm, linewidths=widths, capstyle="round")
    ax.add_collection(lines)
    ax.plot(*place.T, "o", color="0.25", markersize=float(np.clip(160 / max(len(names), 1), 2.0, 7.0)), zorder=3)
    ends = np.array([place.min(axis=0) - 0.25, place.max(axis=0) + 0.25])
    ax.set(xlim=ends[:, 0], ylim=ends[:, 1], aspect="equal")
    ax.set_axis_off()
    return lines, _node_names(ax, names, place, angle)


def _node_names(ax: Axes, names: list[str], place: np.ndarray, angle: np.ndarray) -> float:
    """Name the nodes outside the circle: level where they are few, else along the radius.

    Return by how many points the names may stand out above the axes.
    """
    inches = ax.get_window_extent().width / ax.figure.dpi / 2.5  # of one unit
    room = 72 * inches * 2 * np.pi / max(len(names), 1)  # points of the circle for each name
    size = float(np.clip(0.8 * room, 5.0, 9.0))
    step = max(1, round(size / room))
    radial = len(names) > 12
    for n in range(0, len(names), step):
        x, y = place[n]
        turn = np.degrees(angle[n]) % 360
        left = 90 < turn < 270
        ax.annotate(
            names[n],
            (1.07 * x, 1.07 * y),
            rotation=(turn - 180 if left else turn) if radial else 0,
            rotation_mode="anchor",
            ha="center" if not radial and abs(x) < 0.2 else "right" if left else "left",
            va="center" if radial or abs(x) >= 0.2 else "bottom" if y > 0 else "top",
            fontsize=size,
        )
    return max(0.0, 0.6 * size * max(map(len, names), default=0) - 72 * 0.18 * inches) if radial else 0.0
