"""Figures of two-way clusterings: the table sorted by groups, the search history, criteria for
numbers of groups, and similarities of items.

The I rows form `a` groups and the J columns form `b` groups. A *block* contains the cells of one
row group and one column group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bbl.report.canvas import (
    COLOURS,
    DIVERGING,
    MISSING,
    SEQUENTIAL,
    axes_inches,
    axes_or_new,
    check_axes,
    draw_colour_bar,
    draw_legend,
    fit_names,
    short_name,
    shorten_names,
    use_plain_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_blocks", "plot_history", "plot_selection", "plot_similarity"]

MAX_PIXELS = 1500  # pixels along a side of an image; cells of a larger table are averaged
# smallest number of cells on the shorter side for which cells are averaged; with fewer, each cell
# covers at least a pixel of the screen
SMOOTHED_FROM = 300
MAX_NAMED = 40  # with more rows or columns, they are not named
MAX_NUMBERED = 30  # with more groups, they are not numbered
MAX_MARKED = 40  # with more steps, a history is drawn without marks
MAX_LEGEND = 10  # with more levels, the legend is omitted
# with more cells, the colour scale ignores the extreme 0.5 % at either end
CLIP_ABOVE = 5000


def plot_blocks(
    rows: np.ndarray,
    columns: np.ndarray,
    means: np.ndarray,
    cells: tuple[np.ndarray, ...] | None,
    names: Sequence,
    item_names: Sequence[Sequence],
    levels: Sequence | None = None,
    rated: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a table sorted by groups of rows and columns, with lines between the blocks.

    Parameters
    ----------
    rows, columns : ndarray of int, shape (I,) and (J,)
        Group of each row and of each column.
    means : ndarray, shape (a, b)
        Block means; for categorical tables, codes of the most frequent levels.
    cells : (row, column, value, weight), or None
        The observed cells, arrays of equal length; None to draw the means.
    names : sequence of three
        Names of the rows, the columns and the values.
    item_names : two sequences
        Names of the rows and of the columns.
    levels : sequence, optional
        Levels of categorical cells, with codes as values.
    rated : bool, default False
        Whether cells are rated pairs with value 1, so that pairs without a cell are zeros
        (unrated) and not missing.
    ax : matplotlib Axes, optional
        A new figure by default.
    """
    n_rows = len(rows)
    n_columns = len(columns)
    ax = axes_or_new(ax, _figure_size(n_rows, n_columns))
    # groups in sorted order
    ends = [np.cumsum(np.bincount(partition)) for partition in (rows, columns)]
    image = (
        None
        if cells is None
        else _cell_image(rows, columns, cells, rated, are_codes=levels is not None)
    )
    values = means if image is None else image
    # for the colour scale, a pixel counts once, a block as often as it has cells
    weight = (
        np.ones(values.shape)
        if image is not None
        else np.outer(np.bincount(rows), np.bincount(columns))
    )
    scale = _colour_scale(values.ravel(), weight.ravel(), levels)
    if image is None:
        edges = [np.concatenate(([0], end)) for end in ends]  # of the blocks
        picture: Any = ax.pcolormesh(edges[1], edges[0], means, rasterized=True, **scale)
    else:
        extent = (0.0, n_columns, n_rows, 0.0)
        # "antialiased" averages neighbouring pixels of large images, but averages of codes are
        # meaningless
        interpolation = (
            "nearest"
            if min(n_rows, n_columns) < SMOOTHED_FROM or levels is not None
            else "antialiased"
        )
        picture = ax.imshow(
            image, extent=extent, aspect="auto", interpolation=interpolation, **scale
        )
    _draw_borders(ax, ends, n_rows, n_columns)
    ax.set(xlim=(0, n_columns), ylim=(n_rows, 0))
    _label_axes(ax, (rows, columns), names, item_names)
    value_name = short_name(names[2])
    if levels is None:
        # block means of rated (1) or unrated (0) pairs are proportions; cells have only the name of
        # the values
        title = (
            "Share " if image is None and rated else "Mean " if image is None else ""
        ) + value_name
        draw_colour_bar(picture, bar=None, axes=[ax], title=title)
    elif len(levels) <= MAX_LEGEND:
        from matplotlib.patches import Patch

        patches = [Patch(color=scale["cmap"](k)) for k in range(len(levels))]
        texts = shorten_names(levels, length=24)
        draw_legend(
            ax, patches, texts, title=value_name, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    return ax


def _figure_size(n: int, m: int) -> tuple[float, float]:
    """Return the width and height of a figure in inches, proportional to n x m cells. The height is
    limited to the range from 3.4 to 8.
    """
    width = 6.0
    return width, float(np.clip(width * n / m, 3.4, 8.0))


def _cell_image(
    rows: np.ndarray,
    columns: np.ndarray,
    cells: tuple[np.ndarray, ...],
    rated: bool,
    are_codes: bool,
) -> np.ndarray:
    """Return the cells, sorted by groups, as an image with at most `MAX_PIXELS` pixels per side.
    The arguments are the same as in `plot_blocks`.

    The value of a pixel is the mean of its cells, or nan if it contains none. For codes, it is the
    code of its last cell. With `rated`, it is the proportion of rated pairs among all pairs in the
    pixel.
    """
    shape = min(len(rows), MAX_PIXELS), min(len(columns), MAX_PIXELS)
    n_pixels = shape[0] * shape[1]
    pixel_row_column = []  # of each cell
    # for rows, then for columns: groups, pixels along the side, and the row or column of each cell
    for partition, side, index in zip((rows, columns), shape, cells[:2], strict=True):
        # position of each row or column, sorted by group
        rank = np.empty(len(partition), dtype=np.int64)
        rank[np.argsort(partition, kind="stable")] = np.arange(len(partition))
        pixel_row_column.append((rank * side // len(partition))[index])
    pixel = pixel_row_column[0] * shape[1] + pixel_row_column[1]
    if are_codes:  # averages of codes are meaningless
        image = np.full(n_pixels, np.nan)
        image[pixel] = cells[2]
        return image.reshape(shape)
    # weighted sum of the values in each pixel
    total = np.bincount(pixel, cells[2] * cells[3], n_pixels)
    weight = np.bincount(pixel, cells[3], n_pixels)
    if rated:  # all values are 1; divide by the mean number of all pairs in a pixel
        return (total / (len(rows) * len(columns) / n_pixels)).reshape(shape)
    return np.where(weight > 0, total / np.maximum(weight, 1e-300), np.nan).reshape(shape)


def _colour_scale(
    values: np.ndarray, weight: np.ndarray, levels: Sequence | None
) -> dict[str, Any]:
    """Return the options ``cmap``, ``vmin``, ``vmax`` for the colours of values (n,) with weights
    (n,).

    With `levels`, values are codes, and each has its own colour. Otherwise the scale is symmetric,
    with white at zero, if values lie clearly on both sides of zero.
    """
    import matplotlib
    from matplotlib.colors import ListedColormap

    if levels is not None:
        base_map = matplotlib.colormaps["tab10" if len(levels) <= MAX_LEGEND else "viridis"]
        # the first colours of a list of ten, or equidistant positions 0..1 of a continuous map
        colours = (
            base_map(np.arange(len(levels)))
            if len(levels) <= MAX_LEGEND
            else base_map(np.linspace(0, 1, len(levels)))
        )
        listed = ListedColormap(list(colours)).with_extremes(bad=MISSING)
        return {"cmap": listed, "vmin": -0.5, "vmax": len(levels) - 0.5}
    is_finite = np.isfinite(values)
    values = values[is_finite]
    weight = weight[is_finite]
    low = values.min()
    high = values.max()
    if weight.sum() > CLIP_ABOVE:
        order = np.argsort(values)
        # cumulative weights: low and high are weighted quantiles
        share = np.cumsum(weight[order]) / weight.sum()
        low, high = (
            values[order[min(int(np.searchsorted(share, q)), len(order) - 1)]]
            for q in (0.005, 0.995)
        )
    # the shorter side is more than a tenth of the longer
    is_symmetric = low < 0.0 < high and min(-low, high) > 0.1 * max(-low, high)
    cmap = matplotlib.colormaps[DIVERGING if is_symmetric else SEQUENTIAL].with_extremes(
        bad=MISSING
    )
    if is_symmetric:
        low, high = -max(-low, high), max(-low, high)
    return {"cmap": cmap, "vmin": low, "vmax": high if high > low else low + 1.0}


def _draw_borders(ax: Axes, ends: list[np.ndarray], n: int, m: int) -> None:
    """Draw lines between the blocks of n x m cells; `ends` are the ends of the row groups and of
    the column groups.
    """
    for end, length, draw in ((ends[0], m, ax.hlines), (ends[1], n, ax.vlines)):
        if len(end) > MAX_NUMBERED:  # thin, as strong lines would hide the cells
            draw(end[:-1], 0, length, colors="black", linewidth=0.3, alpha=0.4, zorder=2)
            continue
        width = float(np.clip(18.0 / len(end), 0.5, 1.4))  # points; thinner with more groups
        draw(end[:-1], 0, length, colors="white", linewidth=width + 0.8, zorder=2)
        draw(end[:-1], 0, length, colors="black", linewidth=width, zorder=3)


def _label_axes(
    ax: Axes, partitions: Sequence[np.ndarray], names: Sequence, item_names: Sequence[Sequence]
) -> None:
    """Label the rows and columns of a small table, or the groups of a large table, and remove ticks
    and frame.

    Each argument has an entry for rows and one for columns; the arguments are the partitions, the
    axis names and the names of the items.
    """
    for k, axis in enumerate((ax.yaxis, ax.xaxis)):  # rows, then columns
        partition = partitions[k]
        title = short_name(names[k])
        ends = np.cumsum(np.bincount(partition))
        # along the height for rows, along the width for columns; labels and colour bar take 15 %
        inches_per_item = 0.85 * axes_inches(ax)[1 - k] / len(partition)
        is_small = len(partition) <= MAX_NAMED
        if is_small:
            order = np.argsort(partition, kind="stable")
            texts = [item_names[k][i] for i in order]
            positions = np.arange(len(partition)) + 0.5
        else:
            # in the middle of each group
            texts = [str(g) for g in range(len(ends))]
            positions = ends - np.diff(ends, prepend=0) / 2.0
            title = f"{title} group"
        if not is_small and len(ends) > MAX_NUMBERED:
            axis.set_ticks([])
            title = f"{short_name(names[k])}: {len(partition):,} in {len(ends)} groups"
        else:
            fit_names(
                texts, positions, inches_per_item, max_depth=1.2, upright=k == 0 or is_small
            ).label_ticks(axis)
        axis.set_label_text(title)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def plot_selection(selection: pd.DataFrame, names: Sequence, ax: Axes | None = None) -> Axes:
    """Draw the difference between the criterion and its minimum as a heat map over the numbers of
    groups. A star marks the minimum.

    `selection` has the columns ``row_groups``, ``column_groups`` and ``criterion``, for a complete
    grid. The criterion is -2 ICL, where ICL is the integrated completed likelihood. `names`
    contains the names of rows and columns.
    """
    ax = axes_or_new(ax, size=(5.2, 4.2))
    grid = selection.pivot(index="row_groups", columns="column_groups", values="criterion")
    excess = grid.to_numpy() - grid.to_numpy().min()  # (row groups, column groups)
    a, b = excess.shape
    # colours distinguish the best 60 %; all others have the last colour
    # the end of a scale must be positive
    vmax = float(np.quantile(excess, 0.6)) or float(excess.max()) or 1.0
    # cells are centred at the numbers of groups, which start at 1
    image = ax.imshow(
        excess,
        origin="lower",
        extent=(0.5, b + 0.5, 0.5, a + 0.5),
        cmap=f"{SEQUENTIAL}_r",
        vmax=vmax,
    )
    i, j = np.unravel_index(excess.argmin(), excess.shape)
    ax.plot(j + 1, i + 1, marker="*", markersize=17, color="black", markeredgecolor="white")
    ax.set(xlabel=f"{short_name(names[1])} groups", ylabel=f"{short_name(names[0])} groups")
    ax.set_xticks(range(1, b + 1))
    ax.set_yticks(range(1, a + 1))
    draw_colour_bar(image, bar=None, axes=[ax], title="-2 ICL minus its minimum", ends="max")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def plot_history(
    history: np.ndarray, axis_names: tuple[str, str], reached: float | None, ax: Axes | None = None
) -> Axes:
    """Draw the objective at each step.

    Parameters
    ----------
    history : ndarray, shape (chains, steps)
        The objective at steps 0, 1, ... of one search, or of several chains.
    axis_names : (str, str)
        Names of the steps and of the objective.
    reached : float, optional
        Final objective after single moves, marked with a dashed line; None if single moves did not
        decrease it.
    ax : matplotlib Axes, optional
        A new figure by default.
    """
    from matplotlib.ticker import MaxNLocator

    ax = axes_or_new(ax, size=(5.6, 3.6))
    n_chains, n_steps = history.shape
    # mark single values if a line would have only a few points
    marker = "o" if n_steps <= MAX_MARKED else None
    for k, values in enumerate(history):
        ax.plot(
            np.arange(n_steps),
            values,
            color=COLOURS[k % len(COLOURS)],
            linewidth=1.4 if n_chains == 1 else 0.7,
            marker=marker,
            markersize=4,
            label=f"chain {k + 1}",
        )
    if reached is not None:
        ax.axhline(reached, color=COLOURS[4], linestyle="--", linewidth=1.0, zorder=1)
        ax.annotate(
            f"{reached:,.2f} after single moves",
            (1.0, reached),
            xytext=(-2, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color=COLOURS[4],
        )
    ax.set(xlabel=axis_names[0], ylabel=axis_names[1])
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    use_plain_numbers(ax)
    ax.spines[["top", "right"]].set_visible(False)
    if 1 < n_chains <= MAX_LEGEND:
        draw_legend(ax, ax.lines[:n_chains], [f"chain {k + 1}" for k in range(n_chains)])
    return ax


def plot_similarity(
    shares: Sequence[np.ndarray],
    partitions: Sequence[np.ndarray],
    names: Sequence,
    item_names: Sequence[Sequence],
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw the posterior probability that two rows, or two columns, are in the same group. The
    probability is the proportion of posterior draws in which they share a group. Items are sorted
    by group.

    Each argument has an entry for rows and one for columns: `shares` (I, I) and (J, J), partitions
    (I,) and (J,), axis names, names of all items, and Axes (a new figure by default).
    """
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(8.4, 4.0), layout="constrained")[1]
    axes_list = check_axes(axes, 2)
    for ax, share, partition, name, items in zip(
        axes_list, shares, partitions, names, item_names, strict=True
    ):
        order = np.argsort(partition, kind="stable")
        ends = np.cumsum(np.bincount(partition))
        n = len(partition)
        image = ax.imshow(
            share[order][:, order], extent=(0, n, n, 0), vmin=0.0, vmax=1.0, cmap=SEQUENTIAL
        )
        _draw_borders(ax, [ends, ends], n, n)
        _label_axes(ax, (partition, partition), (name, name), (items, items))
    draw_colour_bar(image, bar=None, axes=axes_list, title="Probability of same group")
    return axes_list
