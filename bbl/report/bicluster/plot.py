"""Plot of blocks: a table with its rows and columns in their groups; criteria and similarities of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bbl.report.canvas import (
    DIVERGING,
    MISSING,
    SEQUENTIAL,
    axes_inches,
    axes_or_new,
    check_axes,
    colour_bar,
    fit_names,
    named_legend,
    short_name,
    shorten_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_blocks", "plot_selection", "plot_similarity"]

PIXELS = 1500  # rows or columns of an image; a larger table is averaged
NAMED = 40  # rows or columns that are named one by one
NUMBERED = 30  # groups that are numbered
WIDE = 10  # levels that a legend names


def plot_blocks(
    rows: np.ndarray,
    columns: np.ndarray,
    means: np.ndarray,
    cells: tuple[np.ndarray, ...] | None,
    names: Sequence,
    ends: Sequence[Sequence],
    levels: Sequence | None = None,
    rated: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a table with rows and columns in their groups, and lines between the blocks.

    Parameters
    ----------
    rows, columns : ndarray of int, shape (I,) and (J,)
        Labels of the groups.
    means : ndarray, shape (a, b)
        Of the blocks; codes of levels in categorical tables.
    cells : (row, column, value, weight), or None
        The observed cells; None to draw the means.
    names : sequence of three
        What rows, columns and cells are called.
    ends : two sequences
        The names of all rows and of all columns.
    levels : sequence, optional
        Of categorical cells, whose values are codes.
    rated : bool, default False
        Whether cells that are not there are zeros, not missing.
    ax : matplotlib Axes, optional
        A new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    n, m = len(rows), len(columns)
    ax = axes_or_new(ax, _size(n, m))
    cuts = [np.cumsum(np.bincount(labels)) for labels in (rows, columns)]
    image = None if cells is None else _image(rows, columns, cells, rated, levels is not None)
    shown = means if image is None else image
    weight = np.ones(shown.shape) if image is not None else np.outer(*(np.bincount(part) for part in (rows, columns)))
    style = _style(shown.ravel(), weight.ravel(), levels)
    if image is None:
        edges = [np.concatenate(([0], cut)) for cut in cuts]
        picture: Any = ax.pcolormesh(edges[1], edges[0], means, rasterized=True, **style)
    else:
        extent = (0.0, m, n, 0.0)
        nearest = "nearest" if min(n, m) < 300 or levels is not None else "antialiased"
        picture = ax.imshow(image, extent=extent, aspect="auto", interpolation=nearest, **style)
    _lines(ax, cuts, n, m)
    ax.set(xlim=(0, m), ylim=(n, 0))
    _names(ax, (rows, columns), names, ends)
    value_name = short_name(names[2])
    if levels is None:
        title = ("Share " if image is None and rated else "Mean " if image is None else "") + value_name
        colour_bar(picture, None, [ax], title)
    elif len(levels) <= WIDE:
        from matplotlib.patches import Patch

        patches = [Patch(color=style["cmap"](k)) for k in range(len(levels))]
        place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        named_legend(ax, patches, shorten_names(levels, 24), title=value_name, **place)
    return ax


def _size(n: int, m: int) -> tuple[float, float]:
    """Return inches of a figure: much like the table, but neither a ribbon nor a tower."""
    width = 6.0
    return width, float(np.clip(width * n / m, 3.4, 8.0))


def _image(rows, columns, cells, rated: bool, codes: bool) -> np.ndarray:
    """Return the cells in their new order as an image, nan where none is known; large tables are averaged."""
    shape = min(len(rows), PIXELS), min(len(columns), PIXELS)
    at = []
    for labels, pixels, index in zip((rows, columns), shape, cells[:2], strict=True):
        place = np.empty(len(labels), dtype=np.int64)
        place[np.argsort(labels, kind="stable")] = np.arange(len(labels))
        at.append((place * pixels // len(labels))[index])
    pixel = at[0] * shape[1] + at[1]
    if codes:  # an average of codes means nothing
        image = np.full(shape[0] * shape[1], np.nan)
        image[pixel] = cells[2]
        return image.reshape(shape)
    total = np.bincount(pixel, cells[2] * cells[3], shape[0] * shape[1])
    weight = np.bincount(pixel, cells[3], shape[0] * shape[1])
    if rated:
        return (total / (len(rows) * len(columns) / (shape[0] * shape[1]))).reshape(shape)
    return np.where(weight > 0, total / np.maximum(weight, 1e-300), np.nan).reshape(shape)


def _style(shown: np.ndarray, weight: np.ndarray, levels: Sequence | None) -> dict[str, Any]:
    """Return colour map and range: white at zero where values have both signs, without the rarest at either end."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    if levels is not None:
        base = matplotlib.colormaps["tab10" if len(levels) <= WIDE else "viridis"]
        colours = base(np.arange(len(levels))) if len(levels) <= WIDE else base(np.linspace(0, 1, len(levels)))
        listed = ListedColormap(list(colours)).with_extremes(bad=MISSING)
        return {"cmap": listed, "vmin": -0.5, "vmax": len(levels) - 0.5}
    is_known = np.isfinite(shown)
    shown, weight = shown[is_known], weight[is_known]
    low, high = shown.min(), shown.max()
    if weight.sum() > 5000:
        order = np.argsort(shown)
        share = np.cumsum(weight[order]) / weight.sum()
        low, high = (shown[order[min(int(np.searchsorted(share, q)), len(order) - 1)]] for q in (0.005, 0.995))
    both = low < 0.0 < high and min(-low, high) > 0.1 * max(-low, high)
    cmap = matplotlib.colormaps[DIVERGING if both else SEQUENTIAL].with_extremes(bad=MISSING)
    if both:
        low, high = -max(-low, high), max(-low, high)
    return {"cmap": cmap, "vmin": low, "vmax": high if high > low else low + 1.0}


def _lines(ax: Axes, cuts: list[np.ndarray], n: int, m: int) -> None:
    """Draw lines between the blocks, thin where there are many."""
    for cut, along, draw in ((cuts[0], m, ax.hlines), (cuts[1], n, ax.vlines)):
        if len(cut) > NUMBERED:  # or the lines would hide the cells
            draw(cut[:-1], 0, along, colors="black", linewidth=0.3, alpha=0.4, zorder=2)
            continue
        width = float(np.clip(18.0 / len(cut), 0.5, 1.4))
        draw(cut[:-1], 0, along, colors="white", linewidth=width + 0.8, zorder=2)
        draw(cut[:-1], 0, along, colors="black", linewidth=width, zorder=3)


def _names(ax: Axes, labels: Sequence[np.ndarray], names: Sequence, ends: Sequence[Sequence]) -> None:
    """Name the rows and the columns of a small table, else number their groups; no ticks and no frame."""
    for k, axis in enumerate((ax.yaxis, ax.xaxis)):
        axis_labels, title = labels[k], short_name(names[k])
        cut = np.cumsum(np.bincount(axis_labels))
        inch = 0.85 * axes_inches(ax)[1 - k] / len(axis_labels)  # what the layout leaves of the axes
        if len(axis_labels) <= NAMED:
            order = np.argsort(axis_labels, kind="stable")
            texts, at = [ends[k][i] for i in order], np.arange(len(axis_labels)) + 0.5
        else:
            texts, at = [str(g) for g in range(len(cut))], cut - np.diff(cut, prepend=0) / 2.0
            title = f"{title} group"
        if len(axis_labels) > NAMED and len(cut) > NUMBERED:
            axis.set_ticks([])
            title = f"{short_name(names[k])}: {len(axis_labels):,} in {len(cut)} groups"
        else:
            fit_names(texts, at, inch, 1.2, upright=k == 0 or len(axis_labels) <= NAMED).label_ticks(axis)
        axis.set_label_text(title)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def plot_selection(selection: pd.DataFrame, names: Sequence, ax: Axes | None = None) -> Axes:
    """Draw the criterion above its least value over the numbers of groups that were tried.

    Parameters
    ----------
    selection : DataFrame
        Columns ``row_groups``, ``column_groups`` and ``criterion``, of a whole grid.
    names : (str, str)
        What rows and columns are called.
    ax : matplotlib Axes, optional
        A new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    ax = axes_or_new(ax, (5.2, 4.2))
    grid = selection.pivot(index="row_groups", columns="column_groups", values="criterion")
    above = grid.to_numpy() - grid.to_numpy().min()
    a, b = above.shape
    top = float(np.quantile(above, 0.6)) or float(above.max()) or 1.0
    image = ax.imshow(above, origin="lower", extent=(0.5, b + 0.5, 0.5, a + 0.5), cmap=f"{SEQUENTIAL}_r", vmax=top)
    i, j = np.unravel_index(above.argmin(), above.shape)
    ax.plot(j + 1, i + 1, marker="*", markersize=15, color="#D55E00", markeredgecolor="white")
    ax.set(xlabel=f"{short_name(names[1])} groups", ylabel=f"{short_name(names[0])} groups")
    ax.set_xticks(range(1, b + 1))
    ax.set_yticks(range(1, a + 1))
    colour_bar(image, None, [ax], "-2 ICL above the best", "max")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def plot_similarity(shares, labels, names: Sequence, ends: Sequence[Sequence], axes: Any = None) -> list[Axes]:
    """Draw how often each two items are in one group, items being in the order of their groups.

    Parameters
    ----------
    shares : two ndarrays, shape (I, I) and (J, J)
    labels : two ndarrays of int
        Groups of rows and of columns.
    names : (str, str)
        What they are called.
    ends : two sequences
        The names of all rows and of all columns.
    axes : sequence of two matplotlib Axes, optional
        A new figure by default.

    Returns
    -------
    list of two matplotlib Axes
    """
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(8.4, 4.0), layout="constrained")[1]
    axes_list = check_axes(axes, 2)
    for ax, share, partition, name, end in zip(axes_list, shares, labels, names, ends, strict=True):
        order, cut = np.argsort(partition, kind="stable"), np.cumsum(np.bincount(partition))
        n = len(partition)
        image = ax.imshow(share[order][:, order], extent=(0, n, n, 0), vmin=0.0, vmax=1.0, cmap=SEQUENTIAL)
        _lines(ax, [cut, cut], n, n)
        _names(ax, (partition, partition), (name, name), (end, end))
    colour_bar(image, None, axes_list, "Probability of one group")
    return axes_list
