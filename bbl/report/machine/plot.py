"""Figures of cross-validation, of true against inferred parameters, and of configurations as
images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

# `@check_keywords`: an unknown keyword raises an error that suggests the closest one
from bbl.checks import check_keywords
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.report.canvas import (
    COLOURS,
    TITLE_FONT,
    axes_inches,
    axes_or_new,
    check_axes,
    fit_names,
    plain_log_axis,
    short_name,
    title_inches,
    use_plain_numbers,
    wrap_names,
)
from bbl.report.grid import Grid, grid_columns
from bbl.report.machine.plot_parameters import plot_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_comparison", "plot_configurations", "plot_cv", "plot_parameters"]

MAX_HEIGHT = 15.0  # inches of a new figure of images
NAME_DEPTH = 1.5  # inches for the names below an image with a single row


class HasParameters(Protocol):
    """An object with fields h and couplings J, such as `GroupParameters`."""

    @property
    def h(self) -> Any: ...

    @property
    def J(self) -> Any: ...


def plot_cv(
    frame: pd.DataFrame,
    best: float | None = None,
    ax: Axes | None = None,
    *,
    symbol: str | None = None,
    title: str | None = None,
    logarithmic: bool = False,
) -> Axes:
    """Draw the score of a cross-validation against the setting (Woo & Wang 2022, Figures 3, 5a,
    6, 8).

    Parameters
    ----------
    frame : DataFrame
        Settings in the first column, scores in the second; ``ci1`` and ``ci2``, if present, are
        the limits of a band.
    best : float, optional
        The setting to mark.
    ax : matplotlib Axes, optional
    symbol, title : str, optional
        Name of the setting in the legend and on the axis; by default the name of the first
        column.
    logarithmic : bool, default False
        Whether the settings' axis is logarithmic, with zero drawn at its left end.
    """
    setting, score = frame.columns[:2]  # names of columns
    ax = axes_or_new(ax, size=(5.2, 3.6))
    table = frame.sort_values(setting, kind="stable")
    x = table[setting].to_numpy(float)
    y = table[score].to_numpy(float)
    symbol = symbol or short_name(setting)
    title = title or short_name(setting)
    ax.plot(x, y, color=COLOURS[0], marker="o", markersize=4.5, linewidth=1.4, zorder=3)
    if {"ci1", "ci2"} <= set(frame.columns):
        low = table["ci1"]
        high = table["ci2"]
        ax.fill_between(
            x, low, high, color=COLOURS[0], alpha=0.18, linewidth=0, label="95% interval"
        )
        if len(x) == 1:  # a band would have no width
            ax.vlines(x, low, high, color=COLOURS[0], linewidth=1.4)
    if best is not None:
        # the score of the setting closest to `best`
        best, best_score = float(best), y[np.argmin(np.abs(x - best))]
        ax.axvline(best, color=COLOURS[1], linestyle=":", linewidth=1.4, zorder=1)
        label = f"best: {symbol} = {best:.3g}"
        # also dotted, so that the legend explains the line
        ax.plot([best], [best_score], "D:", color=COLOURS[1], markersize=7, zorder=4, label=label)
    if logarithmic and len(set(x[np.isfinite(y)])) > 1:  # a logarithmic axis needs two settings
        if x.min() > 0:
            ax.set_xscale("log")
            plain_log_axis(ax.xaxis, x.min(), x.max())
        else:
            # linear from zero to the smallest positive setting
            ax.set_xscale("symlog", linthresh=x[x > 0].min())
    ax.set(xlabel=title, ylabel="Score" if score == "score" else short_name(score))
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)
    use_plain_numbers(ax)
    return ax


@check_keywords
def plot_comparison(
    true: HasParameters | Sequence[Any],
    inferred: HasParameters | Sequence[Any],
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw inferred against true parameters, with fields and couplings in different colours (Woo &
    Wang 2022, Figures 4, 5b-d).

    Parameters
    ----------
    true, inferred : pair (h, J), or an object with attributes h and J
        Fields h and couplings J: each an array, a sequence of arrays, or a mapping to arrays,
        of the same kind in both models.
    ax : matplotlib Axes, optional
    title : str, optional

    Returns
    -------
    matplotlib Axes
        The legend shows the root mean square difference of the fields and of the couplings.

    Raises
    ------
    DataError
        If the two models have different parameters.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import bbl
    >>> levels = [[0, 1, 2]] * 4
    >>> true, other = (bbl.randompar(levels, seed=seed) for seed in (1, 2))
    >>> bbl.plot_comparison(true, other).get_xlabel()
    'True parameter'
    >>> plt.close()
    """
    ax = axes_or_new(ax, size=(4.4, 4.2))
    models = zip(_unpack_parameters(true), _unpack_parameters(inferred), "hJ", strict=True)
    # (true, inferred) fields as flat arrays, and (true, inferred) couplings
    pairs = [
        _flatten_both(true_values, inferred_values, name)
        for true_values, inferred_values, name in models
    ]
    values = np.concatenate([flat for pair in pairs for flat in pair])
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if values.size else (-1.0, 1.0)
    margin = 0.06 * (high - low) or 1.0
    ends = (low - margin, high + margin)  # of both axes
    ax.plot(ends, ends, color="0.5", linewidth=1, zorder=1)
    # fields, then couplings
    for (x, y), marker, colour, name in zip(pairs, "o^", COLOURS, "hJ", strict=False):
        if x.size:
            label = f"${name}$ (rms difference {math.sqrt(np.mean((x - y) ** 2)):.2g})"
            (points,) = ax.plot(x, y, marker, color=colour, alpha=0.8, label=label)
            points.set(
                markersize=5 if x.size < 500 else 2.5,
                markerfacecolor=colour if name == "h" else "none",
            )
    if title:  # titles with math mode are not wrapped
        ax.set_title(
            title
            if "$" in title
            else wrap_names([title], axes_inches(ax)[0], size=12.0, lines=3)[0]
        )
    ax.set(xlim=ends, ylim=ends, aspect="equal")
    ax.set(xlabel="True parameter", ylabel="Inferred parameter")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    ax.spines[["top", "right"]].set_visible(False)
    use_plain_numbers(ax)
    return ax


def _unpack_parameters(parameters: HasParameters | Sequence) -> tuple[Iterable, Iterable]:
    """Return fields h and couplings J of a pair, or of an object with these attributes."""
    if isinstance(parameters, Sequence):
        h, J = parameters
        return h, J
    if not hasattr(parameters, "h") or not hasattr(parameters, "J"):
        raise BBLTypeError(
            f"{type(parameters).__name__} has no fields h and couplings J to compare.",
            hint="Pass results of mlestimate() or randompar(), or pairs (h, J), such as a fit's "
            "(fit.coef().h[group], fit.coef().J[group]).",
        )
    return parameters.h, parameters.J


def _flatten_both(
    true: Iterable[Any], inferred: Iterable[Any], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the fields, or the couplings, of two models as flat arrays in the same order; `name`
    is ``h`` or ``J``.

    Raises a DataError if the models have different parameters.
    """
    if isinstance(true, Mapping) and isinstance(inferred, Mapping):
        missing_keys = [key for key in true if key not in inferred]
        if missing_keys:
            raise DataError(
                f"The inferred {name} does not contain {missing_keys[0]!r}.",
                hint="Compare models with the same predictors and pairs.",
            )
        true, inferred = [true[key] for key in true], [inferred[key] for key in true]
    flat = []  # one array per model
    for values in (true, inferred):
        arrays = list(values.values()) if isinstance(values, Mapping) else list(values)
        flat.append(
            np.concatenate([np.ravel(np.asarray(a, dtype=float)) for a in arrays] or [np.empty(0)])
        )
    if len(flat[0]) != len(flat[1]):
        raise DataError(
            f"There are {len(flat[0])} true and {len(flat[1])} inferred {name}.",
            hint="Compare models with the same parameters.",
        )
    return flat[0], flat[1]


def plot_configurations(
    codes: ArrayLike,
    shape: tuple[int, int] | None = None,
    titles: Sequence | None = None,
    *,
    positions: ArrayLike | None = None,
    names: Sequence | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw one configuration per group as an image in which higher level codes are darker (Figure 7
    of Woo & Wang 2022).

    Parameters
    ----------
    codes : array_like of int, shape (K, m)
        Level codes of the m predictors.
    shape : (int, int), optional
        Rows and columns of the image; by default a square if m is a square number, otherwise a
        single row.
    titles : sequence of length K, optional
    positions : array_like of int, shape (m,), optional
        Pixel of each predictor, counted row by row from 0; 0..m-1 by default. Other pixels are
        drawn as code 0.
    names : sequence of length m, optional
        Names of the predictors, written below an image with a single row.
    axes : sequence of K matplotlib Axes, optional
    """
    codes = np.atleast_2d(np.asarray(codes))
    K, m = codes.shape
    if shape is None:
        side = math.isqrt(m)
        shape = (side, side) if side * side == m else (1, m)
    pixels = np.arange(m) if positions is None else np.asarray(positions)
    n_pixels = shape[0] * shape[1]
    if positions is None and n_pixels != m:
        raise OptionError(
            f"shape={shape} has {n_pixels} pixels, but there are {m} predictors.",
            argument="shape",
            hint="Pass positions too.",
        )
    if (
        pixels.shape != (m,)
        or (pixels < 0).any()
        or (pixels >= n_pixels).any()
        or len(np.unique(pixels)) < m
    ):
        raise OptionError(
            f"positions must be {m} distinct integers between 0 and {n_pixels - 1}.",
            argument="positions",
        )
    if titles is not None and len(titles) != K:
        raise OptionError(
            f"There are {K} configurations, but {len(titles)} titles.", argument="titles"
        )
    if names is not None and len(names) != m:
        raise OptionError(f"There are {m} predictors, but {len(names)} names.", argument="names")
    panel_titles = [""] * K if titles is None else list(titles)
    images = np.zeros((K, n_pixels))
    images[:, pixels] = codes
    order = np.argsort(pixels)  # predictors from left to right, in an image with a single row
    # only for a single row
    names_below = [] if names is None or shape[0] > 1 else [names[i] for i in order]
    panels = (
        _new_image_axes(panel_titles, shape, names_below, pixels[order])
        if axes is None
        else check_axes(axes, K)
    )
    panel_titles = wrap_names(
        panel_titles, min(axes_inches(ax)[0] for ax in panels), TITLE_FONT, lines=3
    )
    for k, ax in enumerate(panels):
        # vmax is at least 1, as the end of a scale must be positive
        ax.imshow(
            images[k].reshape(shape),
            cmap="Greys",
            vmin=0,
            vmax=max(images.max(), 1),
            interpolation="nearest",
        )
        ax.set_xticks([])
        ax.set_yticks([])
        if names_below:
            fit_names(
                names_below, pixels[order], axes_inches(ax)[0] / n_pixels, NAME_DEPTH
            ).label_ticks(ax.xaxis)
            ax.tick_params(length=0)
        ax.set_title(panel_titles[k], fontsize=TITLE_FONT)
    return panels


def _new_image_axes(
    titles: Sequence, shape: tuple[int, int], names: list, pixels: np.ndarray
) -> list[Axes]:
    """Return axes of a new figure, one per image, in a grid that is at most `MAX_HEIGHT` high.

    `titles` contains a title for each image, and `shape` contains the numbers of rows and columns
    of an image. `names`, if any, are written below the columns `pixels` of an image with a single
    row.
    """
    K = len(titles)
    # inches: a single row is wider
    width = float(np.clip(0.3 * shape[1], 1.3, 9.0)) if shape[0] == 1 else 1.3
    foot = 0.15 + (fit_names(names, pixels, width / shape[1], NAME_DEPTH).depth if names else 0.0)
    columns = grid_columns(K, width + 0.15)
    rows = math.ceil(K / columns)
    head = 0.15 + title_inches(wrap_names(titles, width, TITLE_FONT, lines=3))
    height = max(width * shape[0] / shape[1], 0.15)
    if rows * (height + head) > MAX_HEIGHT:
        height = max(MAX_HEIGHT / rows - head, 0.1)
    grid = Grid(K, columns, width, height, left=0.1, head=head, foot=foot, gap=0.15, bar=0.0)
    return grid.axes(grid.figure())
