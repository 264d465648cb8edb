"""Plot of parameters: bars or a map of the fields, and maps of the couplings."""

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
from bbl.model.pairwise import cells
from bbl.model.parameters import Parameters
from bbl.report.canvas import (
    MISSING,
    SEQUENTIAL,
    TITLE_FONT,
    TickNames,
    axes_inches,
    check_axes,
    colour_bar,
    colour_limit,
    diverging_colours,
    fit_names,
    group_colours,
    group_numbers,
    group_titles,
    mark_negative,
    named_legend,
    plain_numbers,
    pointed_ends,
    text_inches,
    title_inches,
    wrap_names,
)
from bbl.report.grid import MOST_PANELS, Grid, axes_at, grid_columns, note_shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_parameters"]

MAX_BARS = 150  # fields of all groups; more are drawn as a map
MAX_CELLS = 280  # of a map along an axis; a finer one would lose cells where it has fewer pixels
MAX_SINGLE_COUPLINGS = 400  # levels up to which couplings are drawn one by one, unless all predictors are binary
MIN_MARKED_CELL = 0.15  # inches of a cell in which the mark of a negative value is seen
MIN_LINE_GAP = 0.08  # inches between the lines that separate predictors
NAME_DEPTH = 1.5  # inches for the names beside a map
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
    """Draw the fields of all groups, and a map of the couplings of each group (Figure 2 of Woo & Wang).

    Parameters
    ----------
    labels : Labels
    parameters : Parameters
        Drawn less the pooled ones, or as they are without a pooled fit.
    groups : sequence, optional
        Which groups; all by default.
    errors : array_like, shape (K, D) or (2, K, D), optional
        Half-widths of intervals of the fields of all groups, or how far they reach below and above, drawn on the bars;
        nan for none. Where a map takes their place, a dot
        marks the fields whose interval leaves out zero.
    axes : sequence of matplotlib Axes, optional
        One for the fields, then one per group for the couplings, if the model has any; a new figure by default.

    Returns
    -------
    list of matplotlib Axes
        The fields first. Large models have a map in place of bars, and where the couplings are too many to be drawn
        one by one, the Frobenius norm of each pair's table. Terms of three predictors and more are drawn by
        `bbl.report.machine.plot_terms.plot_term`.

    Raises
    ------
    OptionError
        If a group is unknown, or `axes` has the wrong length.
    DataError
        If `errors` has the wrong shape or is negative.
    """
    shown = group_numbers(labels, groups)
    layout, theta, d = parameters.layout, parameters.shift[shown], "" if parameters.pooled is None else r"\Delta "
    half = None if errors is None else _half_widths(errors, (len(labels.groups), layout.D))[:, shown]
    names = [labels.groups[g] for g in shown]
    n_maps = 0 if not len(layout.pairs) else len(shown) if axes is not None else min(len(shown), MOST_PANELS)
    maps = _Maps.from_layout(labels, layout, n_maps)
    if axes is None:
        drawn, bars = _figure(labels, layout, names, maps, n_maps)
        note_shown(drawn[0], n_maps or len(names), len(names), "maps")
    else:
        drawn, bars = check_axes(axes, 1 + n_maps), [None, None]
    fields = theta[:, : layout.D]
    if fields.size <= MAX_BARS:
        _bars(drawn[0], fields, labels, layout, names, f"Field ${d}h$", half)
    else:
        _field_map(drawn[0], fields, labels, layout, names, f"Field ${d}h$", half, bars[0])
    if n_maps:
        _coupling_maps(drawn[1:], theta[:n_maps], labels, layout, names[:n_maps], d, maps, bars[1])
    return drawn


def _half_widths(errors: ArrayLike, shape: tuple[int, int]) -> np.ndarray:
    """Return `errors` as distances (2, K, D) of the limits below and above, `shape` being (K, D)."""
    half = np.asarray(errors, dtype=float)
    if half.shape not in (shape, (2, *shape)) or (half < 0).any():
        raise DataError(f"errors must hold {shape[0]} x {shape[1]} numbers, none below 0: one per group and field.")
    return np.broadcast_to(half, (2, *shape))


@dataclass(frozen=True)
class _Maps:
    """Contents of the maps of couplings, and their size in a new figure."""

    shows_levels: bool  # a cell for each coupling, not one for the norm of each pair
    n: int  # cells along a side
    names: list  # of levels or predictors along a side
    at: np.ndarray  # positions of the names, in cells
    low: float  # least inches of a side
    high: float  # most inches of a side

    @classmethod
    def from_layout(cls, labels: Labels, layout: Layout, n_maps: int) -> _Maps:
        """Return the maps of a model of which `n_maps` groups are drawn."""
        shows_levels = bool(layout.D <= MAX_SINGLE_COUPLINGS or (layout.n_levels == 2).all())
        n = layout.D if shows_levels else layout.m
        names, at = list(labels.names), _middles(layout) if shows_levels else np.arange(layout.m)
        if shows_levels and layout.D <= 16 and n_maps <= 6:  # levels, where they are few
            names = [f"{x}: {y}" for x, levels in zip(names, labels.levels, strict=True) for y in levels[1:]]
            at = np.arange(n)
        low, high = {1: (4.2, 7.0), 2: (2.9, 5.6)}.get(n_maps, (2.4, 3.8) if n_maps <= 6 else (2.0, 2.6))
        gap = float(np.diff(at).min()) if len(at) > 1 else 1.0
        return cls(shows_levels, n, names, at, float(np.clip(0.11 * n / gap, low, high)), high)

    def fits(self, side: float) -> tuple[TickNames, TickNames]:
        """Return the names below and beside a map of `side` inches."""
        inch = side / self.n
        return fit_names(self.names, self.at, inch, NAME_DEPTH), fit_names(
            self.names, self.at, inch, NAME_DEPTH, upright=True
        )


def _field_width(layout: Layout, K: int) -> float:
    """Return the preferred width in inches of the axes of the fields."""
    inches_per_level = max(0.16, 0.07 * K) if K * layout.D <= MAX_BARS else 0.1
    return float(np.clip(inches_per_level * layout.D, 5.8, 11.0))


def _field_fits(labels: Labels, layout: Layout, K: int, width: float) -> tuple[TickNames, TickNames | None]:
    """Return the names below the fields, and those above the bars."""
    inch = width / layout.D
    predictors = fit_names(labels.names, _middles(layout), inch, NAME_DEPTH)
    if K * layout.D > MAX_BARS:
        return predictors, None
    return fit_names(_level_names(labels), np.arange(layout.D), inch, NAME_DEPTH), predictors


def _group_fit(names: list, height: float) -> TickNames:
    """Return the names of the groups beside the map of the fields."""
    return fit_names(names, np.arange(len(names)), height / len(names), GROUP_WIDTH, upright=True)


def _figure(
    labels: Labels, layout: Layout, names: list, maps: _Maps, n_maps: int
) -> tuple[list[Axes], list[Axes | None]]:
    """Return axes for the fields across the top and, below, a grid of maps; and those of their colour bars."""
    K, bars = len(names), len(names) * layout.D <= MAX_BARS
    height = 2.1 if bars else float(np.clip(0.2 * K, 1.2, 6.0))
    left_margin = 0.85 if bars else 0.5 + _group_fit(names, height).depth
    right_margin = 1.0 if not bars else _legend(labels, names)[2] if labels.response is not None else 0.2
    width = left_margin + _field_width(layout, K) + right_margin
    grid = _grid(labels, names[:n_maps], maps, width)
    width = max(width, grid.size[0])
    below, above = _field_fits(labels, layout, K, width - left_margin - right_margin)
    top = 0.2 if above is None else above.depth + 0.25
    low = top + height + below.depth + 0.3
    figure = grid.figure(low, width, 0.3 if 0 < n_maps < K else 0.0)
    fields = axes_at(figure, left_margin, top, width - left_margin - right_margin, height)
    bar = None if bars else axes_at(figure, width - right_margin + 0.15, top, 0.14, height)
    return [fields, *grid.axes(figure, low)], [bar, grid.bar_axes(figure, low) if n_maps else None]


def _grid(labels: Labels, names: list, maps: _Maps, width: float) -> Grid:
    """Return a grid of maps that fills a figure of some width, or makes it wider."""
    if not names:
        return Grid(0, 1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    columns = grid_columns(len(names), maps.low + GAP)
    left_margin = maps.fits(maps.low)[1].depth + 0.2
    side = float(np.clip((width - left_margin - 1.0) / columns - GAP, maps.low, min(maps.high, 1.3 * maps.low)))
    below, beside = maps.fits(side)
    head = 0.2 + title_inches(group_titles(labels, names, side))
    return Grid(len(names), columns, side, side, beside.depth + 0.2, head, below.depth + 0.2, GAP)


def _level_names(labels: Labels) -> list:
    return [x for levels in labels.levels for x in levels[1:]]


def _middles(layout: Layout) -> np.ndarray:
    """Return the middle of each predictor's levels along an axis of levels."""
    return (layout.start[:-1] + layout.start[1:] - 1) / 2


def _separate_predictors(ax: Axes, layout: Layout, across: bool = False) -> None:
    """Draw lines between the levels of predictors, unless they would lie too close; `across` for both directions."""
    if axes_inches(ax)[0] > MIN_LINE_GAP * layout.m:
        for edge in layout.start[1:-1] - 0.5:
            ax.axvline(edge, color="0.6", linewidth=0.5)
            if across:
                ax.axhline(edge, color="0.6", linewidth=0.5)


def _legend(labels: Labels, names: list) -> tuple[list[str], str, float]:
    """Return names and title of the legend of the bars, and its inches."""
    texts, title = (
        wrap_names(names, GROUP_WIDTH, 8.5, 3 if len(names) <= 6 else 1),
        wrap_names([labels.response], GROUP_WIDTH, TITLE_FONT, 3)[0],
    )
    columns = 1 if len(names) <= 10 else 2
    inches = columns * (0.6 + max(text_inches(x, 8.5) for x in texts))
    return texts, title, max(inches, text_inches(title, TITLE_FONT) + 0.2)


def _bars(
    ax: Axes, fields: np.ndarray, labels: Labels, layout: Layout, names: list, title: str, half: np.ndarray | None
) -> None:
    """Draw one bar per level and group; levels are named below the bars, predictors above."""
    K = fields.shape[0]
    D = fields.shape[1]
    width, values = 0.8 / K, np.where(np.isfinite(fields), fields, np.nan)
    x = [np.arange(D) + (k - (K - 1) / 2) * width for k in range(K)]
    bars = [ax.bar(x[k], values[k], width, color=colour) for k, colour in enumerate(group_colours(K))]
    if half is not None:
        cap = min(2.5, 120 / (K * D))
        for k in range(K):
            ax.errorbar(x[k], values[k], half[:, k], fmt="none", ecolor="0.25", elinewidth=0.9, capsize=cap)
    ax.axhline(0, color="0.3", linewidth=0.8)
    _separate_predictors(ax, layout)
    ax.set_xlim(-0.5, D - 0.5)
    ax.margins(y=0.08)
    ax.set_ylabel(title)
    ax.spines[["top", "right"]].set_visible(False)
    inch = axes_inches(ax)[0] / D
    below, above = _field_fits(labels, layout, K, inch * D)
    below.label_ticks(ax.xaxis)
    ax.tick_params(axis="x", length=0)
    if above is not None:
        top = ax.secondary_xaxis("top")
        top.spines["top"].set_visible(False)
        top.tick_params(length=0)
        above.label_ticks(top.xaxis)
    plain_numbers(ax)
    if labels.response is not None:
        place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "ncols": 1 if K <= 10 else 2}
        texts, heading, _ = _legend(labels, names)
        named_legend(ax, bars, texts, title=heading, **place)


def _field_map(
    ax: Axes,
    fields: np.ndarray,
    labels: Labels,
    layout: Layout,
    names: list,
    title: str,
    half: np.ndarray | None,
    bar: Axes | None,
) -> None:
    """Draw groups by levels as colours; predictors are named in the middle of their levels."""
    colours = diverging_colours(fields)
    image = ax.imshow(fields, aspect="auto", interpolation="nearest", **colours)
    if half is not None:
        row, col = np.nonzero((fields > half[0]) | (-fields > half[1]))
        ax.plot(col, row, "o", color="black", markersize=min(3.0, 200 / layout.D), markeredgewidth=0)
    _separate_predictors(ax, layout)
    width, height = axes_inches(ax)
    _field_fits(labels, layout, len(names), width)[0].label_ticks(ax.xaxis)
    ax.tick_params(length=0)
    if labels.response is None:
        ax.set_yticks([])
    else:
        _group_fit(names, height).label_ticks(ax.yaxis)
        ax.set_ylabel(wrap_names([labels.response], height, TITLE_FONT, 2)[0])
    colour_bar(image, bar, [ax], title, pointed_ends(fields, colours["vmax"]))


def _coupling_maps(
    axes: list[Axes],
    theta: np.ndarray,
    labels: Labels,
    layout: Layout,
    names: list,
    d: str,
    content: _Maps,
    bar: Axes | None,
) -> None:
    """Draw the couplings of each group as a map; all maps share one colour scale."""
    import matplotlib

    title = f"Coupling ${d}J$" if content.shows_levels else rf"Coupling strength $\Vert {d}J\Vert$"
    if content.shows_levels:
        row, col = cells(layout)
        maps = np.full((len(theta), layout.D, layout.D), np.nan)
        couplings = theta[:, layout.D : layout.pair_start[-1]]
        maps[:, row, col] = maps[:, col, row] = couplings
        colours = diverging_colours(couplings)
    else:
        i, j = layout.pairs.T
        couplings = theta[:, layout.D : layout.pair_start[-1]]
        squares = np.add.reduceat(couplings**2, layout.pair_start[:-1] - layout.D, axis=1)
        maps = np.full((len(theta), layout.m, layout.m), np.nan)
        maps[:, i, j] = maps[:, j, i] = np.sqrt(squares)
        colours = {"cmap": matplotlib.colormaps[SEQUENTIAL].with_extremes(bad=MISSING), "vmin": 0.0}
        colours["vmax"] = colour_limit(np.sqrt(squares))
    sides = [min(axes_inches(ax)) for ax in axes]
    titles = group_titles(labels, names, min(sides))
    for k, ax in enumerate(axes):
        extent = (-0.5, content.n - 0.5, content.n - 0.5, -0.5)
        image = ax.imshow(_coarsened(maps[k]), extent=extent, interpolation="nearest", **colours)
        ax.set_title(titles[k], fontsize=TITLE_FONT)
        below, beside = content.fits(sides[k])
        below.label_ticks(ax.xaxis)
        beside.label_ticks(ax.yaxis)
        if content.shows_levels:
            ax.tick_params(length=0)
            _separate_predictors(ax, layout, across=True)
            if sides[k] > MIN_MARKED_CELL * content.n:
                mark_negative(ax, maps[k], colours["vmax"])
    colour_bar(image, bar, axes, title, pointed_ends(maps, colours["vmax"], low=content.shows_levels))


def _coarsened(values: np.ndarray) -> np.ndarray:
    """Return a map (n, n) of at most MAX_CELLS a side: cells are merged to the one of largest magnitude."""
    step = math.ceil(len(values) / MAX_CELLS)  # cells merged along a side
    if step == 1:
        return values
    n = math.ceil(len(values) / step)
    padded = np.full((n * step, n * step), np.nan)
    padded[: len(values), : len(values)] = values
    cells = padded.reshape(n, step, n, step).swapaxes(1, 2).reshape(n, n, step * step)
    largest = np.nan_to_num(np.abs(cells), nan=-1.0).argmax(axis=2)
    return np.take_along_axis(cells, largest[..., None], axis=2)[..., 0]
