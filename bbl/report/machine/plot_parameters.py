"""Figure of the parameters of a Boltzmann machine: the fields as bars or as a map, the couplings as
maps (matrices of coloured cells). There are K groups, D fields and m predictors; lengths are in
inches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bbl.design.labels import Labels
from bbl.errors import DataError
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.model.regressors import pair_cells
from bbl.report.canvas import (
    LEGEND_FONT,
    MISSING,
    SEQUENTIAL,
    TITLE_FONT,
    TickNames,
    axes_inches,
    check_axes,
    colour_limit,
    diverging_scale,
    draw_colour_bar,
    draw_legend,
    fit_names,
    group_colours,
    group_numbers,
    group_titles,
    mark_negative,
    pointed_ends,
    text_inches,
    title_inches,
    use_plain_numbers,
    wrap_names,
)
from bbl.report.grid import MOST_PANELS, Grid, axes_at, grid_columns, note_shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_parameters"]

MAX_BARS = 150  # fields of all groups; more are drawn as a map
MAX_CELLS = 280  # cells along a side of a map; with more cells than pixels some would be lost
# with more fields, couplings are not drawn individually (except for binary predictors)
MAX_SINGLE_COUPLINGS = 400
MIN_MARKED_CELL = 0.15  # smallest cell, in inches, with visible marks of negative values
MAX_NAMED_LEVELS = 16  # with more fields, a map of couplings names predictors instead of levels
MAX_LARGE_MAPS = 6  # with more maps of couplings, all are small
MIN_LINE_GAP = 0.08  # inches between the lines that separate predictors
NAME_DEPTH = 1.5  # inches for the names to the left of and below a map
GROUP_WIDTH = 2.0  # inches for the names of the groups
GAP = 0.25  # inches between maps


def plot_parameters(
    labels: Labels,
    parameters: Parameters,
    *,
    groups: Sequence | None = None,
    errors: ArrayLike | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw the fields of all groups, and a map of the couplings of each group (Figure 2 of Woo &
    Wang 2022).

    Parameters
    ----------
    labels : Labels
    parameters : Parameters
        If they include a pooled fit, differences from the pooled fit are drawn.
    groups : sequence, optional
        Groups to draw; all by default.
    errors : array_like, shape (K, D) or (2, K, D), optional
        Intervals of the fields of all groups: half-widths, or distances of the lower and upper
        limits from the fields; nan where the interval is missing. Bars are drawn with error bars;
        in a map, dots mark fields whose interval excludes zero.
    axes : sequence of matplotlib Axes, optional
        One for the fields, then one per group for the couplings, if any; a new figure by
        default.

    Returns
    -------
    list of matplotlib Axes
        The fields first. More than `MAX_BARS` fields are drawn as a map. If there are too many
        couplings, a cell shows the Frobenius norm of a pair's couplings. Couplings of three or more
        predictors are not drawn.

    Raises
    ------
    OptionError
        If a group is unknown, or `axes` has the wrong length.
    DataError
        If `errors` has the wrong shape or is negative.
    """
    shown = group_numbers(labels, groups)
    # shift (K, size): parameters, or with a pooled fit their differences from it, with a d before
    # the symbols h and J
    layout = parameters.layout
    theta = parameters.shift[shown]
    d = "" if parameters.pooled is None else r"\Delta "
    # (2, groups shown, D): distances of the lower and upper limits from the fields
    limit_distances = (
        None if errors is None else _read_errors(errors, (len(labels.groups), layout.D))[:, shown]
    )
    group_names = [labels.groups[g] for g in shown]
    # without couplings there are only fields, and the caller's axes are for all groups
    n_maps = (
        0
        if not len(layout.pairs)
        else len(shown)
        if axes is not None
        else min(len(shown), MOST_PANELS)
    )
    map_style = _MapStyle.from_layout(labels, layout, n_maps)
    if axes is None:
        panels, bar_axes = _new_figure(labels, layout, group_names, map_style, n_maps)
        # the note is for maps
        note_shown(panels[0], n_maps or len(group_names), len(group_names), "maps")
    else:
        panels = check_axes(axes, 1 + n_maps)
        bar_axes = [None, None]
    fields = theta[:, : layout.D]
    if fields.size <= MAX_BARS:
        _draw_bars(panels[0], fields, labels, layout, group_names, f"Field ${d}h$", limit_distances)
    else:
        _draw_field_map(
            panels[0],
            fields,
            labels,
            layout,
            group_names,
            f"Field ${d}h$",
            limit_distances,
            bar_axes[0],
        )
    if n_maps:
        _draw_coupling_maps(
            panels[1:],
            theta[:n_maps],
            labels,
            layout,
            group_names[:n_maps],
            d,
            map_style,
            bar_axes[1],
        )
    return panels


def _read_errors(errors: ArrayLike, shape: tuple[int, int]) -> np.ndarray:
    """Return `errors` as distances (2, K, D) of the lower and upper limits from the fields; `shape`
    is (K, D).

    Raises a DataError if they have a different shape or are negative.
    """
    limit_distances = np.asarray(errors, dtype=float)
    if limit_distances.shape not in (shape, (2, *shape)) or (limit_distances < 0).any():
        raise DataError(
            f"errors must contain {shape[0]} x {shape[1]} non-negative numbers, one per group "
            "and field."
        )
    return np.broadcast_to(limit_distances, (2, *shape))


@dataclass(frozen=True)
class _MapStyle:
    """Layout of the square heat maps of couplings: kind of cells, names and sizes."""

    # whether a cell is a coupling of two levels, not the norm of a pair of predictors
    shows_levels: bool
    n: int  # cells along a side: D levels, or m predictors
    names: list  # levels or predictors along a side
    name_positions: np.ndarray  # position of each name along a side, in cells
    min_side: float  # smallest side in a new figure, in inches
    max_side: float  # largest side in a new figure, in inches

    @classmethod
    def from_layout(cls, labels: Labels, layout: Layout, n_maps: int) -> _MapStyle:
        """Choose cells, names and sizes for `n_maps` maps, one per group."""
        shows_levels = bool(layout.D <= MAX_SINGLE_COUPLINGS or (layout.n_levels == 2).all())
        n = layout.D if shows_levels else layout.m
        names = list(labels.names)
        positions = _predictor_middles(layout) if shows_levels else np.arange(layout.m)
        are_large = n_maps <= MAX_LARGE_MAPS
        if shows_levels and layout.D <= MAX_NAMED_LEVELS and are_large:
            names = [
                f"{x}: {y}"
                for x, levels in zip(names, labels.levels, strict=True)
                for y in levels[1:]
            ]
            positions = np.arange(n)
        # smallest and largest side in inches; names are 0.16 inches apart, more than enough for a
        # line of the smallest font
        low, high = {1: (4.2, 7.0), 2: (2.9, 5.6)}.get(
            n_maps, (2.4, 3.8) if are_large else (2.0, 2.6)
        )
        # cells between the closest names
        gap = float(np.diff(positions).min()) if len(positions) > 1 else 1.0
        return cls(
            shows_levels, n, names, positions, float(np.clip(0.16 * n / gap, low, high)), high
        )

    def tick_names(self, side: float) -> tuple[TickNames, TickNames]:
        """Return the names below a map of `side` inches, and those to its left."""
        cell = side / self.n
        below = fit_names(self.names, self.name_positions, cell, NAME_DEPTH)
        return below, fit_names(self.names, self.name_positions, cell, NAME_DEPTH, upright=True)


def _field_width(layout: Layout, K: int) -> float:
    """Return the width in inches of the axes for the fields of K groups in a new figure."""
    inches_per_level = max(0.16, 0.07 * K) if K * layout.D <= MAX_BARS else 0.1
    return float(np.clip(inches_per_level * layout.D, 5.8, 11.0))


def _field_tick_names(
    labels: Labels, layout: Layout, K: int, width: float
) -> tuple[TickNames, TickNames | None]:
    """Return the names below and above the fields of K groups, on axes of `width` inches.

    Bars have levels below and predictors above; a map has predictors below and None above.
    """
    inches_per_level = width / max(layout.D, 1)
    predictors = fit_names(labels.names, _predictor_middles(layout), inches_per_level, NAME_DEPTH)
    if K * layout.D > MAX_BARS:
        return predictors, None
    levels = [x for predictor_levels in labels.levels for x in predictor_levels[1:]]
    return fit_names(levels, np.arange(layout.D), inches_per_level, NAME_DEPTH), predictors


def _group_tick_names(names: list, height: float) -> TickNames:
    """Return the group names to the left of the map of the fields, which is `height` inches
    high.
    """
    return fit_names(names, np.arange(len(names)), height / len(names), GROUP_WIDTH, upright=True)


def _new_figure(
    labels: Labels, layout: Layout, names: list, map_style: _MapStyle, n_maps: int
) -> tuple[list[Axes], list[Axes | None]]:
    """Return axes of a new figure for the fields and, below them, the maps; and the axes of two
    colour bars.

    `names` contains the groups; the first `n_maps` of them have a map. The first colour bar is for
    the fields (None if they are not a map), the second for the couplings (None if there are no
    maps).
    """
    K = len(names)
    is_map = len(names) * layout.D > MAX_BARS
    height = float(np.clip(0.2 * K, 1.2, 6.0)) if is_map else 2.1
    left_margin = 0.5 + _group_tick_names(names, height).depth if is_map else 0.85
    if is_map:
        right_margin = 1.0  # for the colour bar
    elif labels.response is None:
        right_margin = 0.2  # without a legend
    else:
        _, _, right_margin = _legend_texts(labels, names)  # the width of the legend
    width = left_margin + _field_width(layout, K) + right_margin
    grid = _map_grid(labels, names[:n_maps], map_style, width)
    width = max(width, grid.size[0])
    below, above = _field_tick_names(labels, layout, K, width - left_margin - right_margin)
    top = 0.2 if above is None else above.depth + 0.25
    maps_top = top + height + below.depth + 0.3
    # below: a note
    figure = grid.figure(top=maps_top, width=width, below=0.3 if 0 < n_maps < K else 0.0)
    fields = axes_at(figure, left_margin, top, width - left_margin - right_margin, height)
    bar = axes_at(figure, width - right_margin + 0.15, top, 0.14, height) if is_map else None
    return [fields, *grid.axes(figure, maps_top)], [
        bar,
        grid.bar_axes(figure, maps_top) if n_maps else None,
    ]


def _map_grid(labels: Labels, names: list, map_style: _MapStyle, width: float) -> Grid:
    """Return a grid with a map for each group in `names`; sides are enlarged by up to 30 % to fill
    `width` inches.
    """
    if not names:  # an empty grid, of size 0
        return Grid(
            n=0, columns=1, width=0.0, height=0.0, left=0.0, head=0.0, foot=0.0, gap=0.0, bar=0.0
        )
    min_side = map_style.min_side
    max_side = min(map_style.max_side, 1.3 * map_style.min_side)
    columns = grid_columns(len(names), min_side + GAP)
    left_margin = map_style.tick_names(min_side)[1].depth + 0.2
    # 1.0: the colour bar
    side = float(np.clip((width - left_margin - 1.0) / columns - GAP, min_side, max_side))
    below, left_names = map_style.tick_names(side)
    head = 0.2 + title_inches(group_titles(labels, names, side))
    return Grid(
        n=len(names),
        columns=columns,
        width=side,
        height=side,
        left=left_names.depth + 0.2,
        head=head,
        foot=below.depth + 0.2,
        gap=GAP,
    )


def _predictor_middles(layout: Layout) -> np.ndarray:
    """Return the midpoint of each predictor's levels on an axis of the D levels, shape (m,)."""
    return (layout.start[:-1] + layout.start[1:] - 1) / 2


def _separate_predictors(ax: Axes, layout: Layout, across: bool = False) -> None:
    """Draw vertical lines between predictors on an axis of levels if there is enough space; with
    `across`, also draw horizontal lines.
    """
    if axes_inches(ax)[0] > MIN_LINE_GAP * layout.m:
        for edge in layout.start[1:-1] - 0.5:
            ax.axvline(edge, color="0.6", linewidth=0.5)
            if across:
                ax.axhline(edge, color="0.6", linewidth=0.5)


def _legend_texts(labels: Labels, names: list) -> tuple[list[str], str, float]:
    """Return the labels, the title and the width (in inches) of the legend for the bars of the
    groups `names`.
    """
    texts = wrap_names(names, GROUP_WIDTH, LEGEND_FONT, lines=3 if len(names) <= 6 else 1)
    title = wrap_names([labels.response], GROUP_WIDTH, TITLE_FONT, lines=3)[0]
    columns = 1 if len(names) <= 10 else 2
    inches = columns * (0.6 + max(text_inches(x, LEGEND_FONT) for x in texts))
    return texts, title, max(inches, text_inches(title, TITLE_FONT) + 0.2)


def _draw_bars(
    ax: Axes,
    fields: np.ndarray,
    labels: Labels,
    layout: Layout,
    names: list,
    title: str,
    errors: np.ndarray | None,
) -> None:
    """Draw fields (K, D) as one bar per level and group; predictors are named above them.

    `names` contains the groups, `title` labels the vertical axis, and `errors` (2, K, D) contains
    the distances of the limits, or is None.
    """
    K = len(fields)
    D = fields.shape[1]
    # the bars of a level fill 80 % of its space
    width = 0.8 / K
    values = np.where(np.isfinite(fields), fields, np.nan)
    x = [np.arange(D) + (k - (K - 1) / 2) * width for k in range(K)]
    bars = [
        ax.bar(x[k], values[k], width, color=colour) for k, colour in enumerate(group_colours(K))
    ]
    if errors is not None:
        cap = min(2.5, 120 / (K * D))  # points; shorter with more bars
        for k in range(K):
            ax.errorbar(
                x[k],
                values[k],
                errors[:, k],
                fmt="none",
                ecolor="0.25",
                elinewidth=0.9,
                capsize=cap,
            )
    ax.axhline(0, color="0.3", linewidth=0.8)
    _separate_predictors(ax, layout)
    ax.set_xlim(-0.5, D - 0.5)
    ax.margins(y=0.08)
    ax.set_ylabel(title)
    ax.spines[["top", "right"]].set_visible(False)
    below, above = _field_tick_names(labels, layout, K, axes_inches(ax)[0])
    below.label_ticks(ax.xaxis)
    ax.tick_params(axis="x", length=0)
    if above is not None:
        top = ax.secondary_xaxis("top")
        top.spines["top"].set_visible(False)
        top.tick_params(length=0)
        above.label_ticks(top.xaxis)
    use_plain_numbers(ax)
    if labels.response is not None:
        texts, heading, _ = _legend_texts(labels, names)
        columns = 1 if K <= 10 else 2
        draw_legend(
            ax,
            bars,
            texts,
            title=heading,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            ncols=columns,
        )


def _draw_field_map(
    ax: Axes,
    fields: np.ndarray,
    labels: Labels,
    layout: Layout,
    names: list,
    title: str,
    errors: np.ndarray | None,
    bar: Axes | None,
) -> None:
    """Draw fields (K, D) as a map, with dots where the interval of `errors` (2, K, D) excludes
    zero.

    `names` contains the groups, `title` labels the colour bar, and `bar` is its axes, or None to
    place it next to the map.
    """
    colours = diverging_scale(fields)
    image = ax.imshow(fields, aspect="auto", interpolation="nearest", **colours)
    if errors is not None:
        row, col = np.nonzero((fields > errors[0]) | (-fields > errors[1]))
        ax.plot(
            col, row, "o", color="black", markersize=min(3.0, 200 / layout.D), markeredgewidth=0
        )
    _separate_predictors(ax, layout)
    width, height = axes_inches(ax)
    _field_tick_names(labels, layout, len(names), width)[0].label_ticks(ax.xaxis)
    ax.tick_params(length=0)
    if labels.response is None:
        ax.set_yticks([])
    else:
        _group_tick_names(names, height).label_ticks(ax.yaxis)
        ax.set_ylabel(wrap_names([labels.response], height, TITLE_FONT, lines=2)[0])
    draw_colour_bar(image, bar, [ax], title, pointed_ends(fields, colours["vmax"]))


def _draw_coupling_maps(
    axes: list[Axes],
    theta: np.ndarray,
    labels: Labels,
    layout: Layout,
    names: list,
    d: str,
    map_style: _MapStyle,
    bar: Axes | None,
) -> None:
    """Draw the couplings of each row of `theta` (K, size) as a symmetric map; all maps share one
    colour scale.

    `names` contains the groups. `d` is a prefix of the symbol J in the title of the colour bar,
    which is drawn in the axes `bar` or, if None, next to the maps.
    """
    import matplotlib

    title = (
        f"Coupling ${d}J$" if map_style.shows_levels else rf"Coupling strength $\Vert {d}J\Vert$"
    )
    couplings = theta[:, layout.D : layout.pair_start[-1]]
    if map_style.shows_levels:
        row, col = pair_cells(layout)  # the two levels, 0..D-1, of each coupling
        maps = np.full((len(theta), layout.D, layout.D), np.nan)
        maps[:, row, col] = maps[:, col, row] = couplings
        colours = diverging_scale(couplings)
    else:
        i, j = layout.pairs.T  # the two predictors of each pair
        # Frobenius norm of each pair's couplings, which are contiguous, (K, pairs)
        norms = np.sqrt(np.add.reduceat(couplings**2, layout.pair_start[:-1] - layout.D, axis=1))
        maps = np.full((len(theta), layout.m, layout.m), np.nan)
        maps[:, i, j] = maps[:, j, i] = norms
        cmap = matplotlib.colormaps[SEQUENTIAL].with_extremes(bad=MISSING)
        colours = {"cmap": cmap, "vmin": 0.0, "vmax": colour_limit(norms)}
    sides = [min(axes_inches(ax)) for ax in axes]
    is_marked = map_style.shows_levels and max(sides) > MIN_MARKED_CELL * map_style.n
    if is_marked and (couplings < 0).any():
        title += " (–: below 0)"
    titles = group_titles(labels, names, min(sides))
    for k, ax in enumerate(axes):
        extent = (-0.5, map_style.n - 0.5, map_style.n - 0.5, -0.5)
        image = ax.imshow(_coarsen(maps[k]), extent=extent, interpolation="nearest", **colours)
        ax.set_title(titles[k], fontsize=TITLE_FONT)
        below, left_names = map_style.tick_names(sides[k])
        below.label_ticks(ax.xaxis)
        left_names.label_ticks(ax.yaxis)
        if map_style.shows_levels:
            ax.tick_params(length=0)
            _separate_predictors(ax, layout, across=True)
            if sides[k] > MIN_MARKED_CELL * map_style.n:
                mark_negative(ax, maps[k], colours["vmax"])
    draw_colour_bar(
        image, bar, axes, title, pointed_ends(maps, colours["vmax"], low=map_style.shows_levels)
    )


def _coarsen(values: np.ndarray) -> np.ndarray:
    """Return a map (n, n) with at most `MAX_CELLS` cells per side. Cells are merged into blocks,
    and each block has the value of its cell with the largest magnitude.
    """
    step = math.ceil(len(values) / MAX_CELLS)  # cells merged along a side
    if step == 1:
        return values
    n = math.ceil(len(values) / step)
    padded = np.full((n * step, n * step), np.nan)
    padded[: len(values), : len(values)] = values
    # cells of each block
    merged = padded.reshape(n, step, n, step).swapaxes(1, 2).reshape(n, n, step * step)
    # position in the block; numbers before nan
    largest = np.nan_to_num(np.abs(merged), nan=-1.0).argmax(axis=2)
    return np.take_along_axis(merged, largest[..., None], axis=2)[..., 0]
