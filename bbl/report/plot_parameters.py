"""Plot of parameters: bars or a map of the fields, and maps of the couplings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.design.labels import Labels
from bbl.errors import DataError
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.report.canvas import (
    MISSING,
    SEQUENTIAL,
    colour_limit,
    diverging,
    given_axes,
    group_colours,
    group_numbers,
    named_legend,
    overflow,
    short_name,
    thinned,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_parameters"]

MAX_BARS = 150
MAX_TICKS = 30  # predictors named along the fields; every second, third ... one where there are more
MAX_CELLS = 280  # of a map along an axis; a finer one would lose cells where it has fewer pixels
MAX_BLOCKS = 400  # levels up to which couplings are drawn one by one, unless all predictors are binary


def plot_parameters(
    labels: Labels, parameters: Parameters, *, groups: Sequence | None = None, errors: Any = None, axes: Any = None
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
        one by one, the Frobenius norm of each pair's table.

    Raises
    ------
    OptionError
        If a group is unknown, or `axes` has the wrong length.
    DataError
        If `errors` has the wrong shape or is negative.
    """
    shown = group_numbers(labels, groups)
    layout, theta, d = parameters.layout, parameters.shift[shown], "" if parameters.pooled is None else r"\Delta "
    n_maps = len(shown) if len(layout.pairs) else 0
    drawn = _parameter_axes(n_maps) if axes is None else given_axes(axes, 1 + n_maps)
    names = [short_name(labels.groups[g]) for g in shown]
    fields = theta[:, : layout.D]
    half = None if errors is None else _half_widths(errors, (len(labels.groups), layout.D))[:, shown]
    if fields.size <= MAX_BARS:
        _bars(drawn[0], fields, labels, layout, names, half)
        drawn[0].set_ylabel(f"Field ${d}h$")
    else:
        _field_map(drawn[0], fields, labels, layout, names, f"Field ${d}h$", half)
    if n_maps:
        _coupling_maps(drawn[1:], theta, labels, layout, names, d)
    return drawn


def _half_widths(errors: Any, shape: tuple[int, int]) -> np.ndarray:
    half = np.asarray(errors, dtype=float)
    if half.shape not in (shape, (2, *shape)) or (half < 0).any():
        raise DataError(f"errors must hold {shape[0]} x {shape[1]} numbers, none below 0: one per group and field.")
    return np.broadcast_to(half, (2, *shape))


def _parameter_axes(n_maps: int) -> list[Axes]:
    """Return axes for the fields across the top and, below, a grid of maps."""
    import matplotlib.pyplot as plt

    if not n_maps:
        return [plt.subplots(figsize=(7.6, 3.2), layout="constrained")[1]]
    columns = {1: 1, 2: 2, 3: 3, 4: 2}.get(n_maps, 5)
    rows, side = math.ceil(n_maps / columns), {1: 4.2, 2: 3.5}.get(columns, 3.2 if columns == 3 else 2.1)
    figure = plt.figure(figsize=(max(7.6, columns * side + 0.8), 3.2 + rows * side))
    figure.set_layout_engine("constrained", h_pad=0.1)
    # grids of their own, so that the legend above takes no room from the maps
    halves = figure.add_gridspec(2, 1, height_ratios=[3.2, rows * side])
    grid = halves[1].subgridspec(rows, columns)
    fields = figure.add_subplot(halves[0].subgridspec(1, 1)[0])
    return [fields, *(figure.add_subplot(grid[divmod(k, columns)]) for k in range(n_maps))]


def _level_names(labels: Labels) -> list[str]:
    return [short_name(x, 12) for levels in labels.levels for x in levels[1:]]


def _middles(layout: Layout) -> np.ndarray:
    """Return the middle of each predictor's levels along an axis of levels."""
    return (layout.start[:-1] + layout.start[1:] - 1) / 2


def _turned(names: Sequence[str], room: int = 95) -> int:
    """Return the angle of tick labels: upright once they are too long to stand side by side."""
    return 90 if (max(map(len, names)) + 1) * len(names) > room else 0


def _bars(
    ax: Axes, fields: np.ndarray, labels: Labels, layout: Layout, names: list[str], half: np.ndarray | None
) -> None:
    """Draw one bar per level and group; levels are named below the bars, predictors above."""
    K, D = fields.shape
    width, values = 0.8 / K, np.where(np.isfinite(fields), fields, np.nan)
    x = [np.arange(D) + (k - (K - 1) / 2) * width for k in range(K)]
    bars = [ax.bar(x[k], values[k], width, color=colour) for k, colour in enumerate(group_colours(K))]
    if half is not None:
        cap = min(2.5, 120 / (K * D))
        for k in range(K):
            ax.errorbar(x[k], values[k], half[:, k], fmt="none", ecolor="0.25", elinewidth=0.9, capsize=cap)
    ax.axhline(0, color="0.3", linewidth=0.8)
    for edge in layout.start[1:-1]:
        ax.axvline(edge - 0.5, color="0.8", linewidth=0.8)
    ax.set_xlim(-0.6, D - 0.4)
    ax.margins(y=0.08)
    ax.spines[["top", "right"]].set_visible(False)
    levels = _level_names(labels)
    ax.set_xticks(np.arange(D), levels, rotation=_turned(levels), fontsize="small")
    above = ax.secondary_xaxis("top")
    above.spines["top"].set_visible(False)
    at, predictors = thinned(_middles(layout), labels.names, MAX_TICKS)
    above.set_xticks(at, predictors, rotation=_turned(predictors))
    above.tick_params(length=0)
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "ncols": 1 if K <= 10 else 2}
    named_legend(ax, bars, names, title=short_name(labels.response), **place)


def _field_map(
    ax: Axes,
    fields: np.ndarray,
    labels: Labels,
    layout: Layout,
    names: list[str],
    title: str,
    half: np.ndarray | None,
) -> None:
    """Draw groups by levels as colours; predictors are named in the middle of their levels."""
    colours = diverging(fields)
    image = ax.imshow(fields, aspect="auto", interpolation="nearest", **colours)
    if half is not None:
        row, col = np.nonzero((fields > half[0]) | (-fields > half[1]))
        ax.plot(col, row, "o", color="black", markersize=min(3.0, 200 / layout.D), markeredgewidth=0)
    at, predictors = thinned(_middles(layout), labels.names, MAX_TICKS)
    ax.set_xticks(at, predictors, rotation=_turned(predictors), fontsize="small")
    ax.set_yticks(np.arange(len(names)), names, fontsize="small")
    ax.set_ylabel(short_name(labels.response))
    ax.figure.colorbar(image, ax=ax, label=title, extend=overflow(fields, colours["vmax"]))


def _coupling_maps(
    axes: list[Axes], theta: np.ndarray, labels: Labels, layout: Layout, names: list[str], d: str
) -> None:
    """Draw the couplings of each group as a map; all maps share one colour scale."""
    import matplotlib

    blocks = layout.D <= MAX_BLOCKS or (layout.n_levels == 2).all()
    title = f"Coupling ${d}J$" if blocks else rf"Coupling strength $\Vert {d}J\Vert$"
    if blocks:
        row, col = layout.cells
        maps = np.full((len(theta), layout.D, layout.D), np.nan)
        maps[:, row, col] = maps[:, col, row] = theta[:, layout.D :]
        colours = diverging(theta[:, layout.D :])
    else:
        i, j = layout.pairs.T
        squares = np.add.reduceat(theta[:, layout.D :] ** 2, layout.pair_start[:-1] - layout.D, axis=1)
        maps = np.full((len(theta), layout.m, layout.m), np.nan)
        maps[:, i, j] = maps[:, j, i] = np.sqrt(squares)
        colours = {"cmap": matplotlib.colormaps[SEQUENTIAL].with_extremes(bad=MISSING), "vmin": 0.0}
        colours["vmax"] = colour_limit(np.sqrt(squares))
    for k, ax in enumerate(axes):
        n = len(maps[k])
        image = ax.imshow(
            _coarsened(maps[k]), extent=(-0.5, n - 0.5, n - 0.5, -0.5), interpolation="nearest", **colours
        )
        ax.set_title(f"{short_name(labels.response)} = {names[k]}", fontsize="medium")
        _map_ticks(ax, labels, layout, blocks, small=len(axes) > 4)
    ends = overflow(maps, colours["vmax"], low=blocks)
    axes[0].figure.colorbar(image, ax=axes, label=title, extend=ends, shrink=0.8, aspect=30, anchor=(0.0, 1.0))


def _coarsened(values: np.ndarray) -> np.ndarray:
    """Return a map of at most MAX_CELLS a side: of the cells that share a place, the largest in magnitude stands."""
    step = math.ceil(len(values) / MAX_CELLS)
    if step == 1:
        return values
    n = math.ceil(len(values) / step)
    padded = np.full((n * step, n * step), np.nan)
    padded[: len(values), : len(values)] = values
    cells = padded.reshape(n, step, n, step).swapaxes(1, 2).reshape(n, n, step * step)
    largest = np.nan_to_num(np.abs(cells), nan=-1.0).argmax(axis=2)
    return np.take_along_axis(cells, largest[..., None], axis=2)[..., 0]


def _map_ticks(ax: Axes, labels: Labels, layout: Layout, blocks: bool, small: bool) -> None:
    """Name levels where they are few, else predictors; lines part the predictors."""
    if blocks and layout.D <= 16 and not small:
        owner = np.repeat(np.arange(layout.m), np.diff(layout.start))
        at = np.arange(layout.D)
        names = [f"{short_name(labels.names[i], 12)}: {x}" for i, x in zip(owner, _level_names(labels), strict=True)]
    else:
        middles = _middles(layout) if blocks else np.arange(layout.m)
        at, names = thinned(middles, labels.names, 6 if small else 16)
    size = "x-small" if small else "small"
    ax.set_xticks(at, names, rotation=_turned(names, room=20 if small else 40), fontsize=size)
    ax.set_yticks(at, names, fontsize=size)
    if blocks and layout.m <= MAX_TICKS:
        ax.tick_params(length=0)
        for edge in layout.start[1:-1] - 0.5:
            ax.axhline(edge, color="0.6", linewidth=0.5)
            ax.axvline(edge, color="0.6", linewidth=0.5)
