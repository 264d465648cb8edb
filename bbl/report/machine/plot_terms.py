"""Figure of the couplings of one *term*, a set of three or more interacting predictors, as small
heat maps. Rows are non-reference levels of the first predictor, columns of the second; there is one
map for each group and each combination of levels of the other predictors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.design.labels import Labels
from bbl.errors import DataError
from bbl.model.parameters import Parameters
from bbl.model.ranking import interaction_strength
from bbl.report.canvas import (
    TITLE_FONT,
    axes_inches,
    check_axes,
    diverging_scale,
    draw_colour_bar,
    fit_names,
    group_numbers,
    mark_negative,
    pointed_ends,
    title_inches,
    wrap_names,
)
from bbl.report.grid import MOST_PANELS, Grid, axes_at, grid_columns, note_shown
from bbl.report.text import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_term", "strongest_term"]

CELL = 0.32  # inches of a cell
MIN_SIDE = 1.0  # inches of a panel's side
MAX_SIDE = 3.2  # inches of a panel's side


def strongest_term(parameters: Parameters) -> tuple[int, ...]:
    """Return the positions of the predictors in the strongest term of the highest order. Raises a
    DataError if this order is below 3.
    """
    layout = parameters.layout
    if layout.order <= 2:
        raise DataError(
            "The model has no terms of three or more predictors.",
            hint="Draw fields and pairs with plot().",
        )
    n_lower = sum(map(len, layout.terms[:-1]))  # number of terms of lower order, which come first
    # largest strength of each term in any group
    strength = np.array(
        [interaction_strength(layout, row)[n_lower:] for row in parameters.shift]
    ).max(axis=0)
    return tuple(layout.terms[-1][int(strength.argmax())].tolist())


def plot_term(
    labels: Labels,
    parameters: Parameters,
    term: Sequence[int],
    groups: Sequence[Any] | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw the couplings of a term as maps of the first predictor by the second, one for each joint
    level of the others.

    Parameters
    ----------
    labels : Labels
    parameters : Parameters
        If they include a pooled fit, differences from the pooled fit are drawn.
    term : sequence of int
        Positions of three or more predictors: rows are levels of the first, columns of the
        second.
    groups : sequence, optional
        Groups to draw; all by default.
    axes : sequence of matplotlib Axes, optional
        One for each group and joint level; by default a new figure with up to 24 maps.

    Returns
    -------
    list of matplotlib Axes
        One for each map, group by group.

    Raises
    ------
    OptionError
        If a group is unknown, or `axes` has the wrong length.
    """
    shown = group_numbers(labels, groups)
    # d is a prefix of the symbol J if couplings are differences from the pooled fit
    layout = parameters.layout
    d = "" if parameters.pooled is None else r"\Delta "
    rows, columns, *other_levels = ([label_text(x) for x in labels.levels[i][1:]] for i in term)
    table = layout.table(parameters.shift[shown], *term)  # (groups, L_i - 1, L_j - 1, ...)
    # (groups, rows, columns, joint levels of the others)
    table = table.reshape(*table.shape[:3], -1)
    others = zip((label_text(labels.names[i]) for i in term[2:]), other_levels, strict=True)
    joint = [
        " ".join(levels)
        for levels in product(*([f"{name} = {x}" for x in levels] for name, levels in others))
    ]
    # for each map, the two lines of its title: the group, and the levels of the other predictors
    heads = [
        (f"{labels.response} = {label_text(labels.groups[g])}", levels)
        for g in shown
        for levels in joint
    ]
    # group by group, as `heads`
    maps = np.moveaxis(table, -1, 1).reshape(-1, len(rows), len(columns))
    n = len(maps) if axes is not None else min(len(maps), MOST_PANELS)
    bar = None  # place the colour bar next to the caller's axes
    if axes is None:
        panels, bar = _new_axes(heads[:n], rows, columns, maps_per_group=len(joint))
        note_shown(panels[0], n, len(maps), "maps")
    else:
        panels = check_axes(axes, n)
    colours = diverging_scale(maps[:n])
    width, height = axes_inches(panels[0])
    below = fit_names(columns, np.arange(len(columns)), width / max(len(columns), 1), max_depth=1.2)
    left_names = fit_names(
        rows, np.arange(len(rows)), height / max(len(rows), 1), max_depth=1.2, upright=True
    )
    titles = _map_titles(heads[:n], width)
    for k, ax in enumerate(panels):
        image = ax.imshow(maps[k], interpolation="nearest", aspect="auto", **colours)
        ax.set_title(titles[k], fontsize=TITLE_FONT)
        ax.tick_params(length=0)
        below.label_ticks(ax.xaxis)
        left_names.label_ticks(ax.yaxis)
        if ax.xaxis.get_tick_params()["labelbottom"]:  # only the outer panels have names
            ax.set_xlabel(wrap_names([labels.names[term[1]]], width, TITLE_FONT)[0])
        if ax.yaxis.get_tick_params()["labelleft"]:
            ax.set_ylabel(wrap_names([labels.names[term[0]]], height, TITLE_FONT)[0])
        mark_negative(ax, maps[k], colours["vmax"])
    draw_colour_bar(
        image, bar, panels, f"Coupling ${d}J$ (–: below 0)", pointed_ends(maps[:n], colours["vmax"])
    )
    return panels


def _map_titles(heads: list[tuple[str, str]], width: float) -> list[str]:
    """Return the titles of maps from their `heads`: the group and, below it, the levels of the
    other predictors.

    Lines are truncated to the `width` of a map in inches.
    """
    # 0.2: titles may extend into the gaps between maps
    lines = [
        wrap_names(texts, width + 0.2, TITLE_FONT, lines=2) for texts in zip(*heads, strict=True)
    ]
    return [f"{group}\n{levels}" for group, levels in zip(*lines, strict=True)]


def _new_axes(
    heads: list[tuple[str, str]], rows: list[str], columns: list[str], maps_per_group: int
) -> tuple[list[Axes], Axes]:
    """Return axes of a new figure for the maps, one for each of `heads`, and axes for its colour
    bar.

    `rows` and `columns` are the names of the levels along a map's sides.
    """
    # 0.4 inches more than the height, for titles
    width = float(np.clip(CELL * len(columns), MIN_SIDE + 0.4, MAX_SIDE))
    height = float(np.clip(CELL * len(rows), MIN_SIDE, MAX_SIDE))
    # one row of panels per group, if it is narrower than 12 inches
    n_columns = (
        maps_per_group
        if maps_per_group * (width + 0.3) < 12
        else grid_columns(len(heads), width + 0.3)
    )
    below = fit_names(columns, np.arange(len(columns)), width / max(len(columns), 1), max_depth=1.2)
    left_names = fit_names(
        rows, np.arange(len(rows)), height / max(len(rows), 1), max_depth=1.2, upright=True
    )
    head = 0.2 + title_inches(_map_titles(heads, width))
    grid = Grid(
        n=len(heads),
        columns=n_columns,
        width=width,
        height=height,
        left=0.55 + left_names.depth,
        head=head,
        foot=0.5 + below.depth,
        gap=0.3,
        bar=1.0,
    )
    figure = grid.figure()
    # the colour bar is 0.14 inches wide, in the right margin of the grid
    return grid.axes(figure), axes_at(
        figure, grid.size[0] - 0.85, head, 0.14, float(np.clip(height, 1.0, 4.0))
    )
