"""Canvas: axes, colours and labels that all plots share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.report.text import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "colour_limit",
    "diverging",
    "given_axes",
    "grid_axes",
    "group_colours",
    "group_numbers",
    "named_legend",
    "one_axes",
    "overflow",
    "short_name",
    "thinned",
]

# Okabe & Ito's colours, which colour-blind readers can tell apart; yellow, too faint for bars, is left out
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DIVERGING, SEQUENTIAL = "RdBu_r", "viridis"
MISSING = "0.9"  # grey of what is not part of the model


def short_name(label: object, length: int = 24) -> str:
    """Return a label for a figure: short, on one line, and no mathematics."""
    text = label_text(label)
    text = text if len(text) <= length else text[: length - 1] + "…"
    return text.replace("$", r"\$")


def given_axes(axes: Any, n: int) -> list[Axes]:
    """Return the caller's axes as a list of the right length."""
    found = list(np.ravel(np.asarray(axes, dtype=object)))
    if len(found) != n:
        raise OptionError(f"axes holds {len(found)} axes, but {n} are to be drawn; give {n}.", argument="axes")
    return found


def one_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the caller's axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def grid_axes(n: int, columns: int, width: float, height: float, layout: str = "constrained") -> list[Axes]:
    """Return `n` axes of a new figure, row by row; each takes `width` by `height` inches.

    Axes of a fixed aspect need the layout ``"compressed"``, or their titles may be cut off.
    """
    import matplotlib.pyplot as plt

    rows = math.ceil(n / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(columns * width, rows * height), layout=layout, squeeze=False)
    for ax in axes.ravel()[n:]:
        figure.delaxes(ax)
    return list(axes.ravel()[:n])


def group_numbers(labels: Labels, groups: Sequence | None) -> list[int]:
    """Return the numbers of the groups a caller names; all by default."""
    if groups is None:
        return list(range(len(labels.groups)))
    unknown = [g for g in groups if g not in labels.groups]
    if unknown or not len(groups):
        known = ", ".join(map(repr, labels.groups))
        wrong = f"{unknown[0]!r} is no group of {labels.response!r}" if unknown else "groups is empty"
        raise OptionError(f"{wrong}; choose from {known}.", argument="groups")
    return [labels.groups.index(g) for g in groups]


def thinned(at: np.ndarray, names: Sequence, most: int) -> tuple[np.ndarray, list[str]]:
    """Return every k-th tick and its name, so that at most `most` are left."""
    step = math.ceil(len(names) / most)
    return at[::step], [short_name(n, 12) for n in names[::step]]


def group_colours(n: int) -> Sequence:
    """Return a colour for each of `n` groups."""
    if n <= len(COLOURS):
        return COLOURS[:n]
    import matplotlib

    return list(matplotlib.colormaps[SEQUENTIAL](np.linspace(0, 0.95, n)))


def named_legend(ax: Axes, handles: list, names: list[str], **options: Any) -> None:
    """Draw a legend whose names may be anything: matplotlib would leave out those that begin with an underscore."""
    legend = ax.legend(handles, ["-"] * len(names), frameon=False, fontsize="small", **options)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(name)


def colour_limit(values: np.ndarray) -> float:
    """Return the largest magnitude of a colour scale; among many values the rarest 1 in 200 do not count."""
    size = np.abs(values[np.isfinite(values)])
    if not size.size:
        return 1.0
    top = np.quantile(size, 0.995) if size.size > 5000 else size.max()
    return float(top or size.max() or 1.0)


def diverging(values: np.ndarray) -> dict[str, Any]:
    """Return a colour map with white at zero and the same reach on both sides."""
    import matplotlib

    limit = colour_limit(values)
    return {"cmap": matplotlib.colormaps[DIVERGING].with_extremes(bad=MISSING), "vmin": -limit, "vmax": limit}


def overflow(values: np.ndarray, limit: float, low: bool = True) -> str:
    """Return which ends of a colour bar are to be pointed, because values lie beyond `limit`."""
    if not (np.abs(values[np.isfinite(values)]) > limit).any():
        return "neither"
    return "both" if low else "max"
