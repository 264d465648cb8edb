"""Canvas: axes, colours and labels that all plots share, and the one way in which names are made to fit."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.report.format import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Fit",
    "axes_inches",
    "colour_bar",
    "colour_limit",
    "diverging",
    "fit_names",
    "fitted",
    "given_axes",
    "group_colours",
    "group_numbers",
    "group_title",
    "group_titles",
    "letters",
    "lines_in",
    "mark_negative",
    "named_legend",
    "one_axes",
    "overflow",
    "plain_numbers",
    "short_name",
    "shortened",
    "spread",
    "text_inches",
    "title_inches",
]

# Okabe & Ito's colours, which colour-blind readers can tell apart, in an order in which neighbours differ in grey too;
# yellow, too faint for bars, is left out
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
DIVERGING = "RdBu_r"  # colour map of values of both signs
SEQUENTIAL = "viridis"  # colour map of values of one sign
MISSING = "0.9"  # grey of what is not part of the model
LARGEST = 9.0  # points of the names along an axis
SMALLEST = 6.0  # points of the names along an axis
TITLE = 10.0  # points of the title of a panel
LINE = 1.2  # height of a line of text, in units of its size
ESCAPED = str.maketrans({"$": r"\$"})  # a name is no mathematics


def short_name(label: object, length: int = 24) -> str:
    """Return a label for a figure by itself: on one line, no mathematics, and short by a gap in its middle."""
    return shortened([label], length)[0].translate(ESCAPED)


def shortened(names: Sequence, length: int) -> list[str]:
    """Return names of at most `length` characters, which differ wherever the names do.

    The middle is left out, at the same place of all names if that keeps them apart; else names that would read alike
    show the place where they part, or in the end their number.
    """
    texts = [label_text(x) for x in names]
    different, length = list(dict.fromkeys(texts)), max(length, 5)
    keep = length - 1
    cuts: dict[str, str] = {}
    for head in sorted(range(keep + 1), key=lambda h: abs(h - 0.6 * keep)):
        short_names = {x: x if len(x) <= length else f"{x[:head]}…{x[len(x) - keep + head :]}" for x in different}
        cuts = cuts or short_names
        if len(set(short_names.values())) == len(different):
            return [short_names[x] for x in texts]
    alike = [x for x in different if Counter(cuts.values())[cuts[x]] > 1]
    prefix_length = max(len(os.path.commonprefix(alike)) - 1, 0)
    head = keep // 3
    windows = {x: f"{x[:head]}…{x[prefix_length : prefix_length + keep - head - 1]}…" for x in alike if len(x) > length}
    if len({**cuts, **windows}.keys()) > len(set({**cuts, **windows}.values())):
        ends = {x: f"…{different.index(x) + 1}" for x in windows}
        windows = {x: x[: max(length - len(end), 0)] + end for x, end in ends.items()}
    return [{**cuts, **windows}[x] for x in texts]


@lru_cache(maxsize=4096)
def _em(character: str) -> float:
    """Return the width of a character in units of the size: of DejaVu Sans, wider than most fonts."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    properties = FontProperties(family="DejaVu Sans", size=100)
    one, eleven = (text_to_path.get_text_width_height_descent(n * character, properties, False)[0] for n in (1, 11))
    return float(eleven - one) / 1000  # of the ends, the blank beside the letter does not count


def text_inches(text: str, size: float) -> float:
    """Return the width of the longest line of a text of `size` points."""
    return max(sum(map(_em, line)) for line in text.split("\n")) * size / 72


def _wrapped(text: str, room: float, size: float, lines: int, hard: bool) -> str | None:
    """Return a text in at most `lines` lines of `room` inches, or None; `hard` breaks words too."""
    if text_inches(text, size) <= room:
        return text
    lines_of_text: list[str] = []
    remaining = text
    while remaining and len(lines_of_text) < lines:
        width = np.cumsum([_em(c) for c in remaining]) * size / 72
        n = int(np.searchsorted(width, room, "right"))
        if n < len(remaining):
            breaks = [
                m.end()
                for m in re.finditer(r"[\s_/:,=-]+", remaining[: n + 1])
                if len(remaining[: m.end()].rstrip()) <= n
            ]
            n = breaks[-1] if breaks else n if hard else 0
        if not n:
            return None
        lines_of_text.append(remaining[:n].rstrip())
        remaining = remaining[n:]
    return None if remaining else "\n".join(lines_of_text)


def fitted(names: Sequence, room: float, size: float, lines: int = 1) -> list[str]:
    """Return names in at most `lines` lines of `room` inches at `size` points, which differ wherever the names do."""
    return list(_fitted(tuple(map(label_text, names)), round(room, 4), size, lines))


@lru_cache(maxsize=256)
def _fitted(texts: tuple[str, ...], room: float, size: float, lines: int) -> tuple[str, ...]:
    most = int(lines * room * 72 / (0.3 * size))  # letters are hardly narrower than 0.3 on average
    length = max(5, min(max(map(len, texts), default=0), most))
    while True:
        fitted_lines = []
        for text in shortened(texts, length):
            wrapped = _wrapped(text, room, size, lines, lines > 1)
            if wrapped is None and length > 5:
                break
            fitted_lines.append((wrapped or text).translate(ESCAPED))
        else:
            return tuple(fitted_lines)
        length = max(5, min(length - 1, int(0.94 * length)))


def letters(texts: Sequence[str]) -> int:
    """Return how much of some names their fitted texts show."""
    return sum(len(x.replace("\n", " ")) for x in texts)


def lines_in(room: float, size: float) -> int:
    """Return how many lines of a name, up to three, have room between its neighbours."""
    return int(np.clip(room / (LINE * size / 72) - 0.2, 1, 3))


def spread(at: np.ndarray, gap: float) -> np.ndarray:
    """Return ascending positions, moved as little as possible (least squares) so that they lie `gap` apart."""
    pools: list[tuple[float, int]] = []  # pools of adjacent violators: mean and size
    for x in at - gap * np.arange(len(at)):
        pools.append((x, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (b, n), (a, m) = pools.pop(), pools.pop()
            pools.append(((a * m + b * n) / (m + n), m + n))
    moved = np.repeat([p[0] for p in pools], [p[1] for p in pools]) + gap * np.arange(len(at))
    return np.where(np.isclose(moved, at), at, moved)


@dataclass(frozen=True)
class Fit:
    """Names made to fit along an axis.

    Attributes
    ----------
    at : ndarray
        Where they stand along the axis.
    texts : list of str
    size : float
        Points.
    upright : bool
        Whether they run away from the axis rather than along it.
    depth : float
        Inches that they take beside the axis.
    """

    at: np.ndarray
    texts: list[str]
    size: float
    upright: bool
    depth: float

    def put(self, axis: Any) -> None:
        """Name the ticks of a matplotlib axis, unless its tick labels are off."""
        if not any(axis.get_tick_params().get(f"label{side}") for side in ("left", "right", "bottom", "top")):
            axis.set_ticks([])
            return
        axis.set_ticks(self.at, self.texts, fontsize=self.size)
        if axis.axis_name == "x":
            axis.set_tick_params(rotation=90 if self.upright else 0)


def fit_names(names: Sequence, at: Any, inch: float, deep: float, upright: bool = False) -> Fit:
    """Return names as they fit along an axis.

    They stand along it where they have room in up to three lines; else, or with `upright`, they run away from it, in a
    smaller size, moved apart by up to half a line, and shortened to `deep` inches. Where even that is too little, every
    second, third ... is left out, and no more than 16 stay.

    Parameters
    ----------
    names : sequence of length n
    at : array_like, shape (n,)
        Where they belong along the axis, ascending.
    inch : float
        Inches of one unit of the axis.
    deep : float
        Inches that they may take beside the axis.
    upright : bool, default False
        As the names of a vertical axis.
    """
    at, inch = np.asarray(at, dtype=float), round(inch, 4)  # no rounding error turns the choice
    gap = inch * float(np.diff(at).min()) if len(at) > 1 else math.inf
    if not upright:  # along the axis, if no word has to be broken; with a blank between neighbours
        texts = [_wrapped(label_text(x), gap - 0.08, LARGEST, 3, hard=False) for x in names]
        level = [x.translate(ESCAPED) for x in texts if x is not None]
        if len(level) == len(names):
            lines = max((x.count("\n") for x in level), default=0) + 1
            return Fit(at, level, LARGEST, False, lines * LINE * LARGEST / 72)
    best, most = Fit(at[:1], fitted(names[:1], deep, SMALLEST), SMALLEST, True, deep), 0.0
    for step in (1, *range(max(2, math.ceil(len(at) / 16)), max(3, len(at)))):
        for size in np.arange(LARGEST, SMALLEST - 0.1, -0.5):
            line, kept_positions = LINE * size / 72, at[::step]
            moved = kept_positions + (spread(inch * kept_positions, line) - inch * kept_positions) / inch
            if len(at) and inch * np.abs(moved - kept_positions).max() > 0.5 * line:
                continue
            fitting = fitted(names[::step], deep, size, lines_in(gap * step, size))
            if letters(fitting) > 1.1 * most:  # a smaller size has to show more of the names
                depth = max(text_inches(x, size) for x in fitting)
                best, most = Fit(moved, fitting, float(size), True, depth), letters(fitting)
        if most:
            break
    return best


def group_titles(labels: Labels, names: Sequence, room: float) -> list[str]:
    """Return the titles of panels, one per group, in up to three lines of `room` inches."""
    return fitted([group_title(labels, label_text(x)) for x in names], room, TITLE, 3)


def group_title(labels: Labels, group: str) -> str:
    """Return the title of a panel about one group, or several; empty where there is no response."""
    return "" if labels.response is None else f"{shortened([labels.response], 24)[0]} = {group}"


def title_inches(titles: Sequence[str]) -> float:
    """Return the height of the highest of some titles."""
    return LINE * TITLE / 72 * max((x.count("\n") + 1 for x in titles), default=0)


def plain_numbers(*axes: Axes) -> None:
    """Write the numbers of axes in full: without an offset or a power of ten that belongs to all of them."""
    from matplotlib.ticker import ScalarFormatter

    for axis in (side for ax in axes for side in (ax.xaxis, ax.yaxis)):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ScalarFormatter):
            formatter.set_useOffset(False)
            formatter.set_scientific(False)


def axes_inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes."""
    box, figure_box, dpi = ax.get_position(original=True), ax.figure.bbox, ax.figure.dpi
    return float(box.width * figure_box.width / dpi), float(box.height * figure_box.height / dpi)


def given_axes(axes: Any, n: int) -> list[Axes]:
    """Return the caller's axes as a list of the right length."""
    axes_list = list(np.ravel(np.asarray(axes, dtype=object)))
    if len(axes_list) != n:
        raise OptionError(f"axes holds {len(axes_list)} axes, but {n} are to be drawn; give {n}.", argument="axes")
    return axes_list


def one_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the caller's axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def mark_negative(ax: Axes, values: np.ndarray, most: float) -> None:
    """Mark the cells below zero with a minus, for those who see no colours."""
    share = np.nan_to_num(-values / most)
    for marked, colour in (((share > 0.02) & (share < 0.6), "0.2"), (share >= 0.6, "white")):
        row, col = np.nonzero(marked)
        ax.plot(col, row, "_", color=colour, markersize=5)


def colour_bar(image: Any, bar: Axes | None, axes: list[Axes], title: str, ends: str = "neither") -> None:
    """Draw a colour bar in axes of its own, or beside axes of the caller's."""
    where: dict[str, Any] = {"ax": axes, "shrink": 0.8, "aspect": 30} if bar is None else {"cax": bar}
    plain_numbers(axes[0].figure.colorbar(image, label=title, extend=ends, **where).ax)


def group_numbers(labels: Labels, groups: Sequence | None) -> list[int]:
    """Return the numbers of the groups a caller names; all by default."""
    if groups is None:
        return list(range(len(labels.groups)))
    unknown = [g for g in groups if g not in labels.groups]
    if unknown or not len(groups):
        group_names = ", ".join(map(repr, labels.groups))
        wrong = f"{unknown[0]!r} is no group of {labels.response!r}" if unknown else "groups is empty"
        raise OptionError(f"{wrong}; choose from {group_names}.", argument="groups")
    return [labels.groups.index(g) for g in groups]


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
