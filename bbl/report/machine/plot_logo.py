"""Sequence logos: the levels of each predictor as stacked letters, with information or fields as
heights. There are K groups and m predictors; predictor i has L_i levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.design.labels import Labels
from bbl.errors import DataError, OptionError
from bbl.model.parameters import Parameters
from bbl.model.regressors import pair_cells
from bbl.report.canvas import (
    COLOURS,
    ESCAPED,
    TITLE_FONT,
    TickNames,
    axes_inches,
    check_axes,
    fit_names,
    group_colours,
    group_numbers,
    group_titles,
    shorten_names,
    title_inches,
    use_plain_numbers,
)
from bbl.report.grid import MOST_PANELS, Grid, grid_columns, note_shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_logo", "information", "zero_sum_fields"]

MAX_POSITIONS = 200  # predictors of a logo
NAME_DEPTH = 1.5  # inches for the names below a logo
MAX_HEIGHT = 15.0  # inches of all rows of a new figure, unless its logos have the minimum height
NUCLEOTIDES = {"A": "#009E73", "C": "#0072B2", "G": "#E69F00", "T": "#D55E00", "U": "#D55E00"}
# colours by the residue's chemistry: polar, basic, acidic, hydrophobic
AMINO_ACIDS = {
    letter: colour
    for letters, colour in (
        ("GSTYCQN", "#009E73"),
        ("KRH", "#0072B2"),
        ("DE", "#D55E00"),
        ("AVLIPWFM", "#000000"),
    )
    for letter in letters
}


def _alphabet_colours(labels: Labels) -> dict[str, str] | None:
    """Return the colours of nucleotides or amino acids by letter if all levels are letters of one
    of these alphabets; otherwise return None.

    "-" is allowed. More than 2 different nucleotides, or 9 amino acids, must occur, because fewer
    letters may have a different meaning.
    """
    used = {str(x).upper() for levels in labels.levels for x in levels} - {"-"}
    if len(used) > 2 and used <= set(NUCLEOTIDES):
        return NUCLEOTIDES
    return AMINO_ACIDS if len(used) > 9 and used <= set(AMINO_ACIDS) else None


def information(labels: Labels, counts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the heights of a sequence logo (Schneider & Stephens 1990).

    Parameters
    ----------
    labels : Labels
    counts : sequence of m array_like, shape (K, L_i)
        Counts, or frequencies, of the levels of each predictor in each group.

    Returns
    -------
    list of m ndarrays, shape (K, L_i)
        ``p_i(x) (log2 A - H_i)`` in bits, with the entropy ``H_i`` of the frequencies ``p_i``. A is
        4 for nucleotides, 20 for amino acids, otherwise ``L_i``. There is no correction for small
        samples.
    """
    alphabet = _alphabet_colours(labels)
    # size of the alphabet
    n_letters = None if alphabet is None else 4 if alphabet is NUCLEOTIDES else 20
    heights = []
    for table in counts:
        total = np.sum(table, axis=1, keepdims=True)
        p = np.divide(table, total, out=np.zeros(np.shape(table)), where=total > 0)
        entropy = -(p * np.log2(np.where(p > 0, p, 1.0))).sum(axis=1, keepdims=True)
        # with "-", there may be more levels than letters
        max_entropy = np.log2(max(n_letters or 0, p.shape[1]))
        heights.append(p * np.maximum(max_entropy - entropy, 0.0))
    return heights


def zero_sum_fields(parameters: Parameters) -> list[np.ndarray]:
    """Return the fields in the zero-sum gauge, which has no reference level: fields and couplings
    sum to zero.

    Parameters
    ----------
    parameters : Parameters
        If they include a pooled fit, differences from the pooled fit are used.

    Returns
    -------
    list of m ndarrays, shape (K, L_i)
        ``f_i(x) - mean_x f_i(x)`` with ``f_i(x) = h_i(x) + sum_j mean_x' J_ij(x, x')``, where
        means include the reference level; likewise for couplings of more predictors.
    """
    layout = parameters.layout
    theta = parameters.shift
    # for each coupling J_ij(x, x') of a pair, the two fields, 0..D-1, of these levels: h_i(x) and
    # h_j(x')
    row, col = pair_cells(layout)
    # predictor of each field, (D,)
    n_levels = np.repeat(layout.n_levels, np.diff(layout.start))
    fields = theta[:, : layout.D].copy()
    # pairs, in group k
    for k, couplings in enumerate(theta[:, layout.D : layout.pair_start[-1]]):
        # add to each field the mean of its couplings over the levels of the other predictor (0 at
        # the reference level)
        fields[k] += np.bincount(row, couplings / n_levels[col], layout.D)
        fields[k] += np.bincount(col, couplings / n_levels[row], layout.D)
    for term in layout.scopes[layout.m + len(layout.pairs) :]:  # terms of three or more predictors
        couplings = layout.table(theta, *term)  # (K, L_i - 1, L_j - 1, ...)
        for a, i in enumerate(term):
            other_axes = tuple(1 + b for b in range(len(term)) if b != a)
            n_other_cells = np.prod([layout.n_levels[j] for j in term if j != i])
            # mean over the joint levels of the others, including reference levels
            fields[:, layout.start[i] : layout.start[i + 1]] += (
                couplings.sum(axis=other_axes) / n_other_cells
            )
    # fields of reference levels are 0
    tables = [
        np.pad(table, ((0, 0), (1, 0))) for table in np.split(fields, layout.start[1:-1], axis=1)
    ]
    return [table - table.mean(axis=1, keepdims=True) for table in tables]


def draw_logo(
    labels: Labels,
    heights: Sequence[np.ndarray],
    *,
    groups: Sequence[Any] | None = None,
    ylabel: str = "Bits",
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw the levels of every predictor as stacked letters, one logo per group.

    Parameters
    ----------
    labels : Labels
        Level names with more than one letter are drawn as words. Nucleotides and amino acids have
        their usual colours.
    heights : sequence of m array_like, shape (K, L_i)
        Heights of the letters, from `information` or `zero_sum_fields`; negative ones are drawn
        below the axis.
    groups : sequence, optional
        Groups to draw; all by default.
    ylabel : str, default "Bits"
    axes : sequence of matplotlib Axes, optional
        One per group; a new figure by default.

    Returns
    -------
    list of matplotlib Axes
        One per group, with the same axis limits.

    Raises
    ------
    OptionError
        If a group is unknown, `axes` has the wrong length, or there are more than 200 predictors.
    DataError
        If `heights` do not match the levels, or are not finite.

    Examples
    --------
    >>> labels = Labels(
    ...     "y", ("site", "control"), ("1", "2"), (("A", "C", "G", "T"), ("A", "C", "G", "T"))
    ... )
    >>> counts = [[[8, 1, 1, 0], [3, 2, 3, 2]], [[0, 0, 0, 10], [1, 2, 3, 4]]]
    >>> axes = draw_logo(labels, information(labels, counts))
    """
    shown = group_numbers(labels, groups)
    m = len(labels.names)
    if m > MAX_POSITIONS:
        raise OptionError(
            f"A logo has space for {MAX_POSITIONS} predictors, but there are {m}.",
            hint="Fit a model with fewer predictors.",
        )
    shape = [(len(labels.groups), len(levels)) for levels in labels.levels]
    tables = [np.asarray(table, dtype=float) for table in heights]
    if [t.shape for t in tables] != shape or not all(np.isfinite(t).all() for t in tables):
        raise DataError("heights must contain one finite (groups, levels) table per predictor.")
    n_panels = len(shown) if axes is not None else min(len(shown), MOST_PANELS)
    names = [labels.groups[k] for k in shown[:n_panels]]
    panels = _new_axes(labels, names) if axes is None else check_axes(axes, len(shown))
    note_shown(panels[0], n_panels, len(shown), "logos")
    # heights of the highest stack above the axis, and of the lowest below it
    top = max((np.where(t[shown] > 0, t[shown], 0).sum(axis=1).max() for t in tables), default=0.0)
    bottom = min(
        (np.where(t[shown] < 0, t[shown], 0).sum(axis=1).min() for t in tables), default=0.0
    )
    margin = 0.04 * (top - bottom) or 1.0
    letters = [
        [x.translate(ESCAPED) for x in shorten_names(levels, length=12)] for levels in labels.levels
    ]
    if _alphabet_colours(labels) is not None:  # capitals fill the height better
        letters = [[x.upper() for x in levels] for levels in letters]
    colours = _level_colours(labels)
    titles = group_titles(labels, names, min(axes_inches(ax)[0] for ax in panels))
    # a new figure may have fewer panels
    for k, ax, title in zip(shown, panels, titles, strict=False):
        for i, table in enumerate(tables):
            _stack_letters(ax, i, table[k], letters[i], colours[i])
        _fit_predictor_names(labels, axes_inches(ax)[0]).label_ticks(ax.xaxis)
        ax.tick_params(axis="x", length=0)
        ax.set(xlim=(-0.6, m - 0.4), ylim=(bottom - margin if bottom < 0 else 0.0, top + margin))
        ax.set_title(title, fontsize=TITLE_FONT)
        if ax.yaxis.get_tick_params()["labelleft"]:  # a panel on the left
            ax.set_ylabel(ylabel)
        ax.axhline(0, color="0.3", linewidth=0.8)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
    use_plain_numbers(*panels)
    return panels


def _fit_predictor_names(labels: Labels, width: float) -> TickNames:
    """Return the names of the predictors below a logo of `width` inches."""
    m = len(labels.names)
    return fit_names(labels.names, np.arange(m), width / (m + 0.2), NAME_DEPTH)


def _new_axes(labels: Labels, groups: list) -> list[Axes]:
    """Return axes of a new figure, one per group, wide enough for the names of the levels."""
    n = len(groups)
    m = len(labels.names)
    longest_name = max((len(str(x)) for levels in labels.levels for x in levels), default=1)
    width = float(
        np.clip(0.4 + m * (0.36 if longest_name == 1 else 1.0), 1.5 if n > 3 else 3.0, 12.0)
    )
    columns = 1 if n <= 3 else grid_columns(n, width + 0.25)
    head = 0.15 + title_inches(group_titles(labels, groups, width))
    height = float(np.clip(MAX_HEIGHT / math.ceil(n / columns) - head, 0.6, 1.3))
    grid = Grid(
        n=n,
        columns=columns,
        width=width,
        height=height,
        left=0.75,
        head=head,
        foot=_fit_predictor_names(labels, width).depth + 0.25,
        bar=0.0,
    )
    return grid.axes(grid.figure(below=0.25 if n < len(labels.groups) else 0.0))


def _level_colours(labels: Labels) -> list[Sequence]:
    """Return a list of L_i colours for the levels of each predictor i.

    Letters of an alphabet have its colours; other levels have the same colour in all predictors if
    there are enough colours.
    """
    alphabet = _alphabet_colours(labels)
    if alphabet is not None:
        return [[alphabet.get(str(x).upper(), "0.5") for x in levels] for levels in labels.levels]
    distinct = list(dict.fromkeys(x for levels in labels.levels for x in levels))
    if len(distinct) <= len(COLOURS):
        return [[COLOURS[distinct.index(x)] for x in levels] for levels in labels.levels]
    return [group_colours(len(levels)) for levels in labels.levels]


def _stack_letters(
    ax: Axes, x: int, heights: np.ndarray, texts: Sequence, colours: Sequence
) -> None:
    """Stack the letters of one predictor at position `x`, the tallest farthest from zero.

    `heights`, `texts` and `colours` have one entry per level; letters with negative height are
    drawn below zero.
    """
    ends = {1.0: 0.0, -1.0: 0.0}  # ends of the stacks above and below zero
    for a in np.argsort(np.abs(heights), kind="stable"):
        sign = 1.0 if heights[a] > 0 else -1.0
        if heights[a]:
            low = min(ends[sign], ends[sign] + heights[a])
            _draw_letter(ax, texts[a], x, low, abs(heights[a]), colours[a])
        ends[sign] += heights[a]


@lru_cache(maxsize=512)
def _letter_outline(text: str) -> Any:
    """Return the outline of a text in bold letters of size 1, as a path."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), text, size=1, prop=FontProperties(family="DejaVu Sans", weight="bold"))


def _draw_letter(ax: Axes, text: str, x: float, low: float, height: float, colour: str) -> None:
    """Draw a label centred at `x` from `low` upwards, stretched to `height` and width 0.9; narrow
    letters remain narrower.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.transforms import Affine2D

    if not text.strip():  # blanks have no path in matplotlib
        return
    path = _letter_outline(text)
    box = path.get_extents()
    # letters narrower than 0.55, such as I, are not stretched to the full width
    x_scale = 0.9 / max(box.width, 0.55)
    centred = Affine2D().translate(-(box.x0 + box.x1) / 2, -box.y0)
    stretched = centred.scale(x_scale, height / box.height).translate(x, low)
    ax.add_patch(PathPatch(path.transformed(stretched), facecolor=colour, edgecolor="none"))
