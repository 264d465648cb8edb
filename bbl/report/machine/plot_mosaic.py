"""Mosaic plot of a table of counts, shaded by residuals.

A square is split along x by the levels of the first variable, and each part is split along y by the
levels of the second. The third and fourth variables split the parts along x and y again. The area
of a tile is proportional to the count of its cell. The variables 0..3 are labelled below, on the
left, above and on the right.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.errors import OptionError
from bbl.report.canvas import TITLE_FONT, TickNames, axes_inches, axes_or_new, fit_names, wrap_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_mosaic", "draw_mosaic"]

MAX_VARIABLES = 4  # one for each side of the mosaic
RIGHT = 3  # number of the variable that is labelled on the right
MAX_TILES = 400  # largest number of cells
SIZE = (8.5, 7.0)  # inches of a new figure, width and height
NAME_DEPTH = 1.1  # inches next to the mosaic for the names of levels
# fraction of the total count given to an empty cell, so that its neighbours keep their places
EMPTY_SHARE = 1e-7
# width or height above which a tile is not empty, as a fraction of the mosaic's side
MIN_TILE_SIDE = 1e-5
# margin around the mosaic, as a fraction of its side, for names that are moved by half a line
MARGIN = 0.02
GAP = 0.03  # between the columns, as a fraction of the width; less between later splits
BOUNDS = (-4.0, -2.0, 2.0, 4.0)  # residuals at which the shade changes
DASHED_BELOW = -2.0  # tiles with smaller residuals have dashed edges, to be seen without colours
# colours below -4, in -4..-2, -2..2, 2..4 and above 4
# from RdBu, safe for colour-blind readers
SHADES = ("#2166ac", "#92c5de", "#f7f7f7", "#f4a582", "#b2182b")


def check_mosaic(n_levels: Sequence[int]) -> None:
    """Raise an OptionError if `n_levels` is empty, or if a figure would have too many variables or
    cells.
    """
    n_tiles = float(np.prod(np.array(n_levels, dtype=float)))
    if not 1 <= len(n_levels) <= MAX_VARIABLES or n_tiles > MAX_TILES:
        raise OptionError(
            f"A mosaic shows up to {MAX_VARIABLES} variables and {MAX_TILES} cells, but this "
            f"model has {len(n_levels)} and {n_tiles:.3g}.",
            argument="formula",
            hint="List the residuals with cells(), or fit a model with fewer predictors.",
        )


def draw_mosaic(
    names: Sequence[Hashable],
    levels: Sequence[Sequence],
    counts: np.ndarray,
    residuals: np.ndarray,
    ax: Axes | None,
) -> Axes:
    """Draw a mosaic of counts.

    Parameters
    ----------
    names : sequence of length m
        Variables in splitting order.
    levels : m sequences
        Levels of each variable.
    counts, residuals : ndarray, shape (L_1, ..., L_m)
        Count and Pearson residual of each cell; tiles with a residual below -2 have dashed
        edges.
    ax : matplotlib Axes, optional
        A new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from statsmodels.graphics.mosaicplot import mosaic

    ax = axes_or_new(ax, SIZE)
    # extend: the shades at both ends are for residuals beyond -4 and 4
    shades = ScalarMappable(
        BoundaryNorm(BOUNDS, len(SHADES), extend="both"), ListedColormap(list(SHADES))
    )
    shares = np.maximum(counts / counts.sum(), EMPTY_SHARE)
    # keys are level numbers as text: different levels may have equal names
    cells = {tuple(map(str, cell)): float(share) for cell, share in np.ndenumerate(shares)}

    def tile_style(key: tuple[str, ...]) -> dict:
        """Return the matplotlib options of the tile of a cell."""
        residual = residuals[tuple(map(int, key))]
        is_low = residual < DASHED_BELOW
        edge = {"linestyle": "--" if is_low else "-", "edgecolor": "0.35", "linewidth": 0.7}
        return {"facecolor": shades.to_rgba(residual), **edge}

    # statsmodels computes default shades, which are not used: its divisions by 0 are ignored, and
    # statistic=True avoids default shades that only support up to five levels of a fourth
    # variable
    with np.errstate(divide="ignore", invalid="ignore"):
        options = {
            "axes_label": False,
            "labelizer": lambda _: "",
            "gap": _gaps(counts),
            "statistic": True,
        }
        _, tiles = mosaic(cells, ax=ax, properties=tile_style, **options)
    # (x, y, width, height) of each tile
    boxes = {tuple(map(int, key)): box for key, box in tiles.items()}
    ax.set(xlim=(-MARGIN, 1.0 + MARGIN), ylim=(1.0 + MARGIN, -MARGIN))  # first level at the top
    ax.set_frame_on(False)
    _name_sides(ax, names, levels, boxes)
    bar = ax.figure.colorbar(shades, ax=ax, shrink=0.6, aspect=25, pad=0.02, extend="both")
    bar.set_label("Pearson residual")
    return ax


def _gaps(counts: np.ndarray) -> list[float]:
    """Return the gap between the tiles of each split, as a fraction of the part that is split.

    Gaps are half as wide in the second split along an axis. With more than four parts to split,
    gaps shrink with the square root of the number of parts, which was found to look best.
    """
    # number of parts before each split
    n_parts = [int(np.prod(counts.shape[:k])) for k in range(counts.ndim)]
    return [GAP / (1 + k // 2) / max(1.0, np.sqrt(n) / 2) for k, n in enumerate(n_parts)]


def _name_sides(
    ax: Axes, names: Sequence[Hashable], levels: Sequence[Sequence], boxes: dict[tuple, tuple]
) -> None:
    """Write the names of variables and levels on the four sides: below, left, above, right.

    `boxes` contains the (x, y, width, height) of each tile, by its level numbers.
    """
    # the remaining space is for names and the colour bar
    width, height = (0.85 * inches for inches in axes_inches(ax))
    sides = [ax.xaxis, ax.yaxis]
    if len(names) > 2:
        sides.append(ax.secondary_xaxis("top").xaxis)
    if len(names) > 3:
        sides.append(ax.secondary_yaxis("right").yaxis)
    ax.tick_params(length=0)
    for number, axis in enumerate(sides):
        is_horizontal = number % 2 == 0
        if number < len(names):
            ticks = _fit_level_names(levels, boxes, number, width if is_horizontal else height)
            axis.set_tick_params(length=0)
            ticks.label_ticks(axis)
            title = wrap_names([names[number]], width if is_horizontal else height, TITLE_FONT)[0]
            axis.set_label_text(title, fontsize=TITLE_FONT)
        else:  # a single variable has no names on the left
            axis.set_ticks([])
    for side in ax.child_axes:
        for spine in side.spines.values():
            spine.set_visible(False)


def _fit_level_names(
    levels: Sequence[Sequence], boxes: dict[tuple, tuple], number: int, inches: float
) -> TickNames:
    """Return the names of the levels of variable `number`, each centred on its tiles along the
    variable's side.

    `boxes` is the same as in `_name_sides`; `inches` is the length of the side. From the third
    variable on, the side is already split into parts by an earlier variable. The names are repeated
    in each part, except for empty tiles. A name is centred on the tiles next to the side or, if
    these are all empty, on the tiles behind them.

    For instance, variable 2 of three is labelled above. In the key (a, b, c) of a tile, ``along``
    selects (a,), the part of the upper side, and ``across`` selects (b,): tiles with the smallest b
    that has counts are next to that side. The names of the levels c are repeated above each level
    a.
    """
    axis = number % 2  # 0 along x, 1 along y
    # levels, in a key of `boxes`, of the earlier variables that split along the side, and of those
    # that split across it
    along = slice(axis, number, 2)
    across = slice(1 - axis, number, 2)
    # for each part of the side: the levels across it of the tiles that are next to it
    strips: dict[tuple, tuple] = {}
    # in order of distance from the side; the last levels are next to the right side
    for key in sorted(boxes, key=lambda key: key[across], reverse=number == RIGHT):
        # a box is (x, y, width, height); 3 - axis: height for the sides along x, width for those
        # along y
        if boxes[key][3 - axis] > MIN_TILE_SIDE:
            strips.setdefault(key[along], key[across])
    # for each part of the side and level: start and end of its tiles
    ranges: dict[tuple, tuple[float, float]] = {}
    for key, box in boxes.items():
        if strips.get(key[along]) == key[across]:
            low, high = ranges.get((*key[along], key[number]), (np.inf, -np.inf))
            # x and width of the tile for the sides along x, y and height for those along y
            ranges[*key[along], key[number]] = (
                min(low, box[axis]),
                max(high, box[axis] + box[axis + 2]),
            )
    if number > 1:
        ranges = {
            key: (low, high) for key, (low, high) in ranges.items() if high - low > MIN_TILE_SIDE
        }
    middles = sorted((0.5 * (low + high), key[-1]) for key, (low, high) in ranges.items())
    names = [levels[number][level] for _, level in middles]
    return fit_names(
        names, [middle for middle, _ in middles], inches, NAME_DEPTH, upright=axis == 1
    )
