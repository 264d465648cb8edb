"""Calibration plot: reliability diagrams of predicted probabilities in bins, with histograms of the
predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.checks import integer
from bbl.design.labels import Labels
from bbl.errors import DataError
from bbl.report.canvas import (
    COLOURS,
    LEGEND_FONT,
    TITLE_FONT,
    axes_inches,
    check_axes,
    draw_legend,
    group_colours,
    group_numbers,
    group_titles,
    shorten_names,
    title_inches,
    use_plain_numbers,
    wrap_names,
)
from bbl.report.grid import MOST_PANELS, Grid, grid_columns, note_shown
from bbl.report.text import label_text
from bbl.stats.evaluation import CalibrationCounts, calibration_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_calibration", "plot_calibration"]

MAX_LARGE_PANELS = 9  # with more groups, the panels of a new figure are small


def plot_calibration(
    labels: Labels,
    probabilities: Any,
    y: Any,
    weights: Any = None,
    *,
    bins: int = 10,
    groups: Sequence | None = None,
    axes: Any = None,
) -> list[Axes]:
    """Draw a group's observed proportion against its predicted probability, and a histogram of the
    predictions.

    Parameters
    ----------
    labels : Labels
    probabilities : array_like, shape (n, K)
        Predicted probabilities of the groups.
    y : array_like of int, shape (n,)
        The observed groups, as numbers 0..K-1.
    weights : array_like, shape (n,), optional
        Frequency of each row; 1 by default.
    bins : int, default 10
        Number of bins of equal width between 0 and 1.
    groups : sequence, optional
        Groups to draw; by default, all groups, or only the second if there are two, since the first
        is its complement.
    axes : sequence of matplotlib Axes, optional
        One diagram and one histogram for all groups, or a diagram and a histogram for each
        group. A new figure by default.

    Returns
    -------
    list of matplotlib Axes
        Diagram and histogram of each group. Each point is a bin: its mean prediction against
        the observed proportion, with Wilson's (1927) 95 % interval for a binomial proportion,
        given the bin's total weight. A new figure shows at most 24 groups.

    Raises
    ------
    DataError
        If the arrays do not match, or probabilities are outside 0..1.
    OptionError
        If a group is unknown, or `axes` has the wrong length.

    Examples
    --------
    >>> labels = Labels("y", ("No", "Yes"), (), ())
    >>> p = np.array([0.1, 0.2, 0.7, 0.9])
    >>> diagram, histogram = plot_calibration(
    ...     labels, np.column_stack([1 - p, p]), [0, 0, 1, 1], bins=2
    ... )
    """
    p = np.asarray(probabilities, dtype=float)
    y = np.asarray(y)
    weight = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=float)
    bins = integer("bins", bins, 1)
    K = len(labels.groups)
    if p.shape != (len(y), K) or weight.shape != y.shape or not len(y):
        raise DataError(
            f"probabilities must have shape ({len(y)}, {K}), one row for each element of y and "
            "one column for each group, and weights must have the same length as y."
        )
    if not ((p >= 0) & (p <= 1)).all() or not np.isin(y, np.arange(K)).all():
        raise DataError(
            f"probabilities must be between 0 and 1, and y must contain integers from 0 to {K - 1}."
        )
    return draw_calibration(labels, calibration_counts(p, y, weight, bins), groups, axes)


def draw_calibration(
    labels: Labels,
    counts: CalibrationCounts,
    groups: Sequence | None = None,
    axes: Any = None,
) -> list[Axes]:
    """Draw a calibration plot from the counts (K, bins) of predicted probabilities in bins.

    See `plot_calibration`.
    """
    K, bins = counts.total.shape
    shown = [1] if groups is None and K == 2 else group_numbers(labels, groups)
    names = [labels.groups[k] for k in shown]
    # whether all groups are drawn in one diagram
    share_axes = (
        axes is not None and np.size(np.asarray(axes, dtype=object)) == 2 and len(shown) > 1
    )
    if axes is None:
        panels = _new_axes(labels, names)
        note_shown(panels[0], len(panels) // 2, len(shown), "groups")
    else:
        panels = check_axes(axes, 2 if share_axes else 2 * len(shown))
    pairs = list(zip(panels[::2], panels[1::2], strict=True))  # (diagram, histogram)
    colours = group_colours(len(shown)) if share_axes else [COLOURS[0]] * len(shown)
    lines = []
    for diagram, _ in pairs:
        diagram.plot([0, 1], [0, 1], color="0.5", linewidth=1, zorder=1)
    # all groups share one pair of panels, or each has its own; a new figure may have fewer pairs
    # than groups
    for k, colour, (diagram, histogram) in zip(
        shown, colours, pairs * (len(shown) if share_axes else 1), strict=False
    ):
        binned = _Bins.from_counts(*(count[k] for count in counts))
        diagram.vlines(binned.mean, binned.low, binned.high, color=colour, linewidth=1.2)
        lines += diagram.plot(
            binned.mean, binned.share, "o-", color=colour, linewidth=1.4, markersize=4.5, zorder=3
        )
        histogram.stairs(
            binned.total,
            np.linspace(0, 1, bins + 1),
            fill=not share_axes,
            linewidth=1.2,
            color=colour,
        )
    _label_axes(labels, names, pairs, share_axes)
    if share_axes:
        response = wrap_names([labels.response], room=2.0, size=TITLE_FONT, lines=2)[0]
        draw_legend(
            pairs[0][0],
            lines,
            wrap_names(names, room=2.0, size=LEGEND_FONT, lines=2),
            title=response,
            loc="upper left",
        )
    return panels


@dataclass(frozen=True)
class _Bins:
    """Predicted probabilities of one group, binned. All arrays except `total` have one entry per
    nonempty bin.
    """

    total: np.ndarray  # weight of the rows in each bin, shape (bins,)
    mean: np.ndarray  # mean prediction
    share: np.ndarray  # observed proportion of the group
    low: np.ndarray  # 95 % limits of the proportion
    high: np.ndarray

    @classmethod
    def from_counts(cls, total: np.ndarray, in_group: np.ndarray, p_sum: np.ndarray) -> _Bins:
        """Return the bins of one group, given its row of `CalibrationCounts`, (bins,) each."""
        from statsmodels.stats.proportion import proportion_confint

        has_rows = total > 0
        n = total[has_rows]
        n_in_group = in_group[has_rows]
        low, high = proportion_confint(n_in_group, n, method="wilson")
        return cls(total, p_sum[has_rows] / n, n_in_group / n, low, high)


def _label_axes(
    labels: Labels, names: list, pairs: list[tuple[Axes, Axes]], share_axes: bool
) -> None:
    """Set the limits, titles and axis labels of (diagram, histogram) `pairs`.

    `names` contains the groups; with `share_axes`, one pair shows all of them. Only the outer
    panels have axis labels.
    """
    is_single = len(names) == 1
    response = shorten_names([labels.response], length=24)[0]
    width, height = axes_inches(pairs[0][0])
    of_groups = (
        f" of {response} = {label_text(names[0])}"
        if is_single
        else f" of each {response}"
        if share_axes
        else ""
    )
    # upper end of the count axis
    tallest = max(histogram.get_ylim()[1] for _, histogram in pairs)
    titles = group_titles(labels, names, width)
    # a shared pair has no title
    for (diagram, histogram), title in zip(pairs, titles, strict=False):
        diagram.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        histogram.set(xlim=(-0.02, 1.02), ylim=(0.0, tallest))
        if not is_single:
            histogram.set_yscale("log")  # with many groups, most predictions are close to 0
            histogram.set_ylim(0.5, 1.5 * tallest)  # from below one observation
        if not is_single and not share_axes:
            diagram.set_title(title, fontsize=TITLE_FONT)
            diagram.set_xticks([0.0, 0.5, 1.0])
        if diagram.yaxis.get_tick_params()["labelleft"]:
            diagram.set_ylabel(
                wrap_names(["Observed proportion" + of_groups], height, TITLE_FONT, lines=2)[0]
            )
            histogram.set_ylabel("Observations" if is_single or share_axes else "Obs.")
        if histogram.xaxis.get_tick_params()["labelbottom"]:
            histogram.set_xlabel(
                wrap_names(["Predicted probability" + of_groups], width, TITLE_FONT, lines=2)[0]
            )
        for ax in (diagram, histogram):
            ax.spines[["top", "right"]].set_visible(False)
        use_plain_numbers(diagram, histogram)


def _new_axes(labels: Labels, groups: list) -> list[Axes]:
    """Return axes of a new figure, in a grid: for each group a diagram and, below it, the
    histogram.
    """
    n = min(len(groups), MOST_PANELS)
    # inches of a diagram with its histogram: for a single one, for up to `MAX_LARGE_PANELS`, for
    # more
    width, height = {1: (3.5, 4.5)}.get(n, (2.4, 3.2) if n <= MAX_LARGE_PANELS else (1.8, 2.4))
    columns = grid_columns(n, width + 0.25)
    head = 0.2 + (title_inches(group_titles(labels, groups, width)) if n > 1 else 0.0)
    grid = Grid(n, columns, width, height, left=0.85, head=head, foot=0.7, gap=0.35, bar=0.0)
    figure = grid.figure(below=0.25 if n < len(groups) else 0.0)
    axes_list: list[Axes] = []
    # a panel is divided: 73 % for the diagram, 21 % below for the histogram
    for ax in grid.axes(figure):
        box = ax.get_position()
        labelbottom = ax.xaxis.get_tick_params()["labelbottom"]
        histogram = figure.add_axes((box.x0, box.y0, box.width, 0.21 * box.height), sharex=ax)
        histogram.tick_params(
            labelleft=ax.yaxis.get_tick_params()["labelleft"], labelbottom=labelbottom
        )
        ax.set_position((box.x0, box.y0 + 0.27 * box.height, box.width, 0.73 * box.height))
        ax.tick_params(labelbottom=False)
        axes_list += [ax, histogram]
    return axes_list
