"""Axes, colours and labels that all figures share. Names are wrapped and shortened to fit the
available space.

Font sizes are in points; widths and heights are in inches (1 inch is 72 points). A *name* or
*label* is a level or predictor of any type. A *text* is the string that is drawn for it.
"""

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
from numpy.typing import ArrayLike

from bbl.design.labels import Labels
from bbl.errors import BBLTypeError, OptionError
from bbl.report.text import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "TickNames",
    "axes_inches",
    "axes_or_new",
    "check_axes",
    "colour_limit",
    "count_letters",
    "diverging_scale",
    "draw_colour_bar",
    "draw_legend",
    "fit_names",
    "group_colours",
    "group_numbers",
    "group_title",
    "group_titles",
    "mark_negative",
    "max_lines",
    "plain_log_axis",
    "pointed_ends",
    "short_name",
    "shorten_names",
    "spread_apart",
    "text_inches",
    "title_inches",
    "use_plain_numbers",
    "wrap_names",
]

# Okabe & Ito's palette, safe for colour-blind readers, ordered so that neighbours also differ in
# grey value; without yellow, which is too faint for bars
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
DIVERGING = "RdBu_r"  # colour map for values of both signs
SEQUENTIAL = "viridis"  # colour map for values of one sign
# magnitudes above this multiple of the quantile 0.98 do not extend a colour scale
OUTLYING = 4.0
MISSING = "0.9"  # grey of cells that are not in the model
MAX_FONT = 10.0  # largest font of the names along an axis, in points
MIN_FONT = 7.0  # smallest font of the names along an axis, in points
TITLE_FONT = 11.0  # font of a panel's title, in points
LEGEND_FONT = 9.5  # font size assumed when wrapping the names in a legend, in points
LINE_HEIGHT = 1.2  # height of a line of text, in units of the font size
# group 1 marks where a line may end; intervals such as "(0.5, 1.25]" are not broken
SEPARATOR = re.compile(r"[(\[]-?[\d.]\S*, \S+[)\]]|[(\[]-inf, \S+[)\]]|([\s_/:,=-]+)")
ESCAPED = str.maketrans({"$": r"\$"})  # dollar signs in names must not start math mode
SHORTEST = 5  # smallest number of characters of a shortened name
MORE_LETTERS = 1.1  # a smaller font must show more than 1.1 times as many letters
BLANK = 0.08  # inches between neighbouring names along an axis
MAX_NAMED_TICKS = 16  # largest number of names that are kept if not all fit


def short_name(label: object, length: int = 24) -> str:
    """Return a label as one line of text with at most `length` characters. The middle of a longer
    label is omitted.
    """
    return shorten_names([label], length)[0].translate(ESCAPED)


def shorten_names(names: Sequence, length: int) -> list[str]:
    """Return a text of at most `length` characters for each name. Different names get different
    texts.

    The middle of long names is omitted, after the same number of characters in all names. If the
    texts are not distinct for any such number, equal texts show the part where their names begin to
    differ, or end with a number.
    """
    texts = [label_text(x) for x in names]
    distinct = list(dict.fromkeys(texts))
    length = max(length, SHORTEST)
    n_kept = length - 1  # characters in addition to the ellipsis
    preferred_texts: dict[str, str] = {}  # texts of long names with 60 % at the beginning
    # first try, leaving out the middle: the first `head` characters of all names are kept, with
    # values of `head` close to 60 % first
    for head in sorted(range(n_kept + 1), key=lambda h: abs(h - 0.6 * n_kept)):
        cut_texts = {
            x: x if len(x) <= length else f"{x[:head]}…{x[len(x) - n_kept + head :]}"
            for x in distinct
        }
        preferred_texts = preferred_texts or cut_texts
        if len(set(cut_texts.values())) == len(distinct):
            return [cut_texts[x] for x in texts]
    alike = [x for x in distinct if Counter(preferred_texts.values())[preferred_texts[x]] > 1]
    # one character before the names begin to differ
    common = max(len(os.path.commonprefix(alike)) - 1, 0)
    head = n_kept // 3
    # second try: the beginning of a name and the part that distinguishes it, with two ellipses
    window_texts = {
        x: f"{x[:head]}…{x[common : common + n_kept - head - 1]}…" for x in alike if len(x) > length
    }
    chosen_texts = {**preferred_texts, **window_texts}
    if len(chosen_texts) > len(set(chosen_texts.values())):  # third: a number at the end
        end_numbers = {x: f"…{distinct.index(x) + 1}" for x in window_texts}
        chosen_texts |= {
            x: x[: max(length - len(number), 0)] + number for x, number in end_numbers.items()
        }
    return [chosen_texts[x] for x in texts]


@lru_cache(maxsize=4096)
def _character_width(character: str) -> float:
    """Return the width of a character in units of the font size, in DejaVu Sans, which is wider
    than most fonts.
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    properties = FontProperties(family="DejaVu Sans", size=100)
    one, eleven = (
        text_to_path.get_text_width_height_descent(n * character, properties, False)[0]
        for n in (1, 11)
    )
    # a difference, for 10 characters at 100 points: matplotlib ignores blanks at both ends of a
    # text
    return float(eleven - one) / 1000


def text_inches(text: str, size: float) -> float:
    """Return the width in inches of the longest line of a text in a font of `size` points."""
    return max(sum(map(_character_width, line)) for line in text.split("\n")) * size / 72


def _wrap_text(text: str, room: float, size: float, lines: int, break_words: bool) -> str | None:
    """Wrap a text to at most `lines` lines of `room` inches at `size` points; return None if it
    does not fit.
    """
    if text_inches(text, size) <= room:
        return text
    wrapped: list[str] = []
    remaining = text
    while remaining and len(wrapped) < lines:
        widths = np.cumsum([_character_width(c) for c in remaining]) * size / 72
        n = int(np.searchsorted(widths, room, "right"))  # characters that fit on the line
        if n < len(remaining):
            # end the line after a separator, whose blanks need no space; otherwise break the word
            # or give up
            # + 1: a blank may follow the last character that fits
            separators = SEPARATOR.finditer(remaining)
            breaks = [
                m.end() for m in separators if m[1] and len(remaining[: m.end()].rstrip()) <= n
            ]
            n = breaks[-1] if breaks else n if break_words else 0
        if not n:
            return None
        wrapped.append(remaining[:n].rstrip())
        remaining = remaining[n:]
    return None if remaining else "\n".join(wrapped)


def wrap_names(names: Sequence, room: float, size: float, lines: int = 1) -> list[str]:
    """Return a different text for each name, with at most `lines` lines of `room` inches at `size`
    points.
    """
    return list(_wrap_texts(tuple(map(label_text, names)), round(room, 4), size, lines))


@lru_cache(maxsize=256)
def _wrap_texts(texts: tuple[str, ...], room: float, size: float, lines: int) -> tuple[str, ...]:
    """Shorten all texts to a common length, in small steps, until each can be wrapped; see
    `wrap_names`.
    """
    # on average, letters are hardly narrower than 0.3 times the font size
    max_characters = int(lines * room * 72 / (0.3 * size))
    length = max(SHORTEST, min(max(map(len, texts), default=0), max_characters))
    while True:
        wrapped_texts = []
        for text in shorten_names(texts, length):
            # None if it does not fit
            wrapped = _wrap_text(text, room, size, lines, break_words=lines > 1)
            if wrapped is None and length > SHORTEST:
                break
            wrapped_texts.append((wrapped or text).translate(ESCAPED))
        else:  # no text was too long
            return tuple(wrapped_texts)
        length = max(SHORTEST, min(length - 1, int(0.94 * length)))  # next try: 6 % shorter


def count_letters(texts: Sequence[str]) -> int:
    """Return the number of characters of all texts; a line break counts as one."""
    return sum(len(x.replace("\n", " ")) for x in texts)


def max_lines(room: float, size: float) -> int:
    """Return how many lines of text, 1 to 3, fit into `room` inches at `size` points."""
    return int(np.clip(room / (LINE_HEIGHT * size / 72) - 0.2, 1, 3))  # 0.2 lines remain free


def spread_apart(positions: np.ndarray, gap: float) -> np.ndarray:
    """Return increasing positions (n,), moved as little as possible (least squares) so that they
    are at least `gap` apart.

    The positions are computed by isotonic regression of ``positions - gap * arange(n)``.
    """
    from scipy.optimize import isotonic_regression

    steps = gap * np.arange(len(positions))
    moved = isotonic_regression(positions - steps).x + steps
    return np.where(np.isclose(moved, positions), positions, moved)  # unmoved positions are exact


@dataclass(frozen=True)
class TickNames:
    """Tick labels of an axis.

    Attributes
    ----------
    positions : ndarray, shape (n,)
        Position of each text along the axis.
    texts : list of str
    size : float
        Font size in points.
    upright : bool
        Whether the texts are perpendicular to the axis instead of along it.
    depth : float
        Inches from the axis that the texts occupy.
    """

    positions: np.ndarray
    texts: list[str]
    size: float
    upright: bool
    depth: float

    def label_ticks(self, axis: Any) -> None:
        """Set ticks and labels of a matplotlib axis, or no ticks if its tick labels are switched
        off.
        """
        if not any(
            axis.get_tick_params().get(f"label{side}")
            for side in ("left", "right", "bottom", "top")
        ):
            axis.set_ticks([])
            return
        axis.set_ticks(self.positions, self.texts, fontsize=self.size)
        if axis.axis_name == "x":
            axis.set_tick_params(rotation=90 if self.upright else 0)


def fit_names(
    names: Sequence, positions: ArrayLike, unit: float, max_depth: float, upright: bool = False
) -> TickNames:
    """Return an axis's names as texts that do not overlap.

    The texts run along the axis if all fit in up to three lines without breaking words. Otherwise,
    or with `upright`, they are perpendicular to the axis, in a smaller font, moved apart by up to
    half a line, and shortened to `max_depth` inches. If they still overlap, only every second,
    third, ... name is kept, with a maximum of `MAX_NAMED_TICKS` names.

    Parameters
    ----------
    names : sequence of length n
    positions : array_like, shape (n,)
        Position of each name along the axis, increasing.
    unit : float
        Inches per unit of the axis.
    max_depth : float
        Inches from the axis that the texts may occupy.
    upright : bool, default False
        Whether the texts must be perpendicular to the axis, as on a vertical one.
    """
    # rounded: floating-point errors in the unit must not affect how names are drawn
    positions = np.asarray(positions, dtype=float)
    unit = round(unit, 4)
    # inches between the closest names
    gap = unit * float(np.diff(positions).min()) if len(positions) > 1 else math.inf
    if not upright:
        wrapped = [
            _wrap_text(label_text(x), gap - BLANK, MAX_FONT, 3, break_words=False) for x in names
        ]
        texts = [x.translate(ESCAPED) for x in wrapped if x is not None]
        if len(texts) == len(names):
            lines = max((x.count("\n") for x in texts), default=0) + 1
            return TickNames(
                positions, texts, MAX_FONT, upright=False, depth=lines * LINE_HEIGHT * MAX_FONT / 72
            )
    # only the first name, if nothing else fits
    best = TickNames(
        positions[:1],
        wrap_names(names[:1], max_depth, MIN_FONT),
        MIN_FONT,
        upright=True,
        depth=max_depth,
    )
    most_letters = 0
    # step 1 shows every name; if they do not fit, the next shows at most `MAX_NAMED_TICKS`, the
    # last only the two ends
    second_step = max(2, math.ceil(len(positions) / MAX_NAMED_TICKS))
    # 3: step 2, if there are two names
    for step in (1, *range(second_step, max(3, len(positions)))):
        for size in np.arange(MAX_FONT, MIN_FONT - 0.1, -0.5):
            line_height, ticks = LINE_HEIGHT * size / 72, positions[::step]  # inches; axis units
            # names are moved apart in inches; adding only the shift keeps ticks exact that are not
            # moved
            moved = ticks + (spread_apart(unit * ticks, line_height) - unit * ticks) / unit
            # too far away
            if len(positions) and unit * np.abs(moved - ticks).max() > 0.5 * line_height:
                continue
            texts = wrap_names(names[::step], max_depth, size, max_lines(gap * step, size))
            if count_letters(texts) > MORE_LETTERS * most_letters:
                depth = max(text_inches(x, size) for x in texts)
                best = TickNames(moved, texts, float(size), upright=True, depth=depth)
                most_letters = count_letters(texts)
        if most_letters:
            break
    return best


def group_titles(labels: Labels, names: Sequence, room: float) -> list[str]:
    """Return the title ``response = group`` of each group's panel, in up to three lines of `room`
    inches.
    """
    return wrap_names(
        [group_title(labels, label_text(x)) for x in names], room, TITLE_FONT, lines=3
    )


def group_title(labels: Labels, group: str) -> str:
    """Return the title ``response = group`` of a panel, which is empty if the model has no
    response.
    """
    return "" if labels.response is None else f"{shorten_names([labels.response], 24)[0]} = {group}"


def title_inches(titles: Sequence[str]) -> float:
    """Return the height in inches of the title with the most lines."""
    return LINE_HEIGHT * TITLE_FONT / 72 * max((x.count("\n") + 1 for x in titles), default=0)


def use_plain_numbers(*axes: Axes) -> None:
    """Write tick labels in full, without an offset or power of ten common to all ticks of an
    axis.
    """
    from matplotlib.ticker import ScalarFormatter

    for axis in (side for ax in axes for side in (ax.xaxis, ax.yaxis)):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ScalarFormatter):
            formatter.set_useOffset(False)
            formatter.set_scientific(False)


def plain_log_axis(axis: Any, lowest: float, highest: float) -> None:
    """Write the tick labels of a logarithmic axis in full if it spans less than two powers of
    ten.

    Otherwise matplotlib would write tick labels such as `6 x 10^1`.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    if highest < 100 * lowest:
        axis.set_major_locator(
            LogLocator(subs=(1.0, 2.0, 3.0, 5.0) if highest < 10 * lowest else (1.0, 2.0, 5.0))
        )
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def axes_inches(ax: Axes) -> tuple[float, float]:
    """Return the width and height of axes in inches, before they are shrunk to an equal aspect
    ratio (``original``).
    """
    box = ax.get_position(original=True)
    figure_box = ax.figure.bbox
    dpi = ax.figure.dpi
    return float(box.width * figure_box.width / dpi), float(box.height * figure_box.height / dpi)


def check_axes(axes: Any, n: int) -> list[Axes]:
    """Return the caller's axes as a list; raise an OptionError if their number is not `n`."""
    # `axes` may be one Axes, a sequence, or an array from plt.subplots
    axes_list = list(np.ravel(np.asarray(axes, dtype=object)))
    if isinstance(axes, str):  # probably the kind of figure
        raise BBLTypeError(
            f"axes must be matplotlib axes; got {axes!r}.",
            argument="axes",
            value=axes,
            hint="Draw a network with plot_network(). For other figures, pass kind=.",
        )
    if len(axes_list) != n:
        raise OptionError(
            f"axes contains {len(axes_list)} axes, but {n} are needed.",
            argument="axes",
            hint=f"Pass {n} axes.",
        )
    return axes_list


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the caller's axes, or axes of a new figure with this size (width, height)."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def mark_negative(ax: Axes, values: np.ndarray, limit: float) -> None:
    """Mark cells of a map (rows, columns) below ``-0.02 * limit`` with a minus sign, for readers
    who cannot distinguish the colours.

    `limit` is the end of the colour scale. Cells closer to zero are almost white. Cells below
    ``-0.6 * limit`` are dark and have a white mark.
    """
    depth = np.nan_to_num(-values / limit)  # 1 is the darkest colour for negative values
    for is_marked, colour in (((depth > 0.02) & (depth < 0.6), "0.2"), (depth >= 0.6, "white")):
        row, col = np.nonzero(is_marked)
        ax.plot(col, row, "_", color=colour, markersize=5)


def draw_colour_bar(
    image: Any, bar: Axes | None, axes: list[Axes], title: str, ends: str = "neither"
) -> None:
    """Draw the colour bar of `image` into the axes `bar` or, if None, next to `axes`; `ends` is a
    result of `pointed_ends`.
    """
    placement: dict[str, Any] = (
        {"ax": axes, "shrink": 0.8, "aspect": 30} if bar is None else {"cax": bar}
    )
    use_plain_numbers(axes[0].figure.colorbar(image, label=title, extend=ends, **placement).ax)


def group_numbers(labels: Labels, groups: Sequence | None) -> list[int]:
    """Return the positions in ``labels.groups`` of `groups`, or of all groups if None."""
    if groups is None:
        return list(range(len(labels.groups)))
    unknown = [g for g in groups if g not in labels.groups]
    if unknown or not len(groups):
        group_names = ", ".join(map(repr, labels.groups))
        problem = (
            f"{unknown[0]!r} is not a group of {labels.response!r}"
            if unknown
            else "groups is empty"
        )
        raise OptionError(f"{problem}.", argument="groups", hint=f"Choose from {group_names}.")
    return [labels.groups.index(g) for g in groups]


def group_colours(n: int) -> Sequence:
    """Return a colour for each of `n` groups, from `COLOURS` or, with more groups, from a colour
    map.
    """
    if n <= len(COLOURS):
        return COLOURS[:n]
    import matplotlib

    return list(matplotlib.colormaps[SEQUENTIAL](np.linspace(0, 0.95, n)))


def draw_legend(ax: Axes, handles: list, names: list[str], **options: Any) -> None:
    """Draw a legend; `options` are passed to ``ax.legend``, which by default would omit names that
    begin with an underscore.
    """
    # created with placeholders, which are then replaced by the names
    legend = ax.legend(handles, ["-"] * len(names), frameon=False, fontsize="small", **options)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(name)


def colour_limit(values: np.ndarray) -> float:
    """Return the end of a colour scale: the largest magnitude or, with more than 5000 values, the
    0.995 quantile of the magnitudes.

    The quantile prevents a few extreme values from making all others pale. With more than 50
    values, those beyond `OUTLYING` times the 0.98 quantile are ignored. They are fields of levels
    that never occur in a group, and would make all other cells white.
    """
    magnitude = np.abs(values[np.isfinite(values)])
    if not magnitude.size:
        return 1.0
    limit = np.quantile(magnitude, 0.995) if magnitude.size > 5000 else magnitude.max()
    if magnitude.size > 50 and limit > (end := OUTLYING * np.quantile(magnitude, 0.98)) > 0.0:
        limit = magnitude[magnitude <= end].max()
    return float(limit or magnitude.max() or 1.0)  # the end of a scale must be positive


def diverging_scale(values: np.ndarray) -> dict[str, Any]:
    """Return the options ``cmap``, ``vmin``, ``vmax`` of a symmetric colour scale for `values` that
    is white at zero.
    """
    import matplotlib

    limit = colour_limit(values)
    return {
        "cmap": matplotlib.colormaps[DIVERGING].with_extremes(bad=MISSING),
        "vmin": -limit,
        "vmax": limit,
    }


def pointed_ends(values: np.ndarray, limit: float, low: bool = True) -> str:
    """Return the value of matplotlib's ``extend``: which ends of a colour bar are pointed because
    values exceed `limit`.

    `low` indicates whether the scale extends below zero.
    """
    if not (np.abs(values[np.isfinite(values)]) > limit).any():
        return "neither"
    return "both" if low else "max"
