"""Figures of numeric predictors: group means, decision regions of two predictors, and
discriminants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bbl.report.canvas import axes_or_new, check_axes, draw_legend, group_colours, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ELLIPSE", "ellipse_points", "plot_discriminants", "plot_means", "plot_regions"]

ELLIPSE = 0.95  # probability inside an ellipse
POINTS = 200  # of an ellipse
MAX_POINTS = 2000  # rows drawn as points


def plot_means(means: pd.DataFrame, axes: Any = None) -> list[Axes]:
    """Draw the mean of each numeric predictor in each group with its interval, one panel for each
    predictor.

    `means` has the columns ``number``, ``group``, ``mean``, ``low`` and ``high``.
    """
    import matplotlib.pyplot as plt

    numbers = list(dict.fromkeys(means["number"]))
    if axes is None:
        n_columns = min(len(numbers), 4)
        n_rows = -(-len(numbers) // n_columns)
        figure, panels = plt.subplots(
            n_rows,
            n_columns,
            figsize=(2.6 * n_columns + 0.8, 2.8 * n_rows),
            squeeze=False,
            layout="constrained",
        )
        axes = panels.ravel()[: len(numbers)]
        for unused in panels.ravel()[len(numbers) :]:
            figure.delaxes(unused)
    drawn = check_axes(axes, len(numbers))
    for ax, number in zip(drawn, numbers, strict=True):
        own = means[means["number"] == number]
        positions = np.arange(len(own))
        colours = group_colours(len(own))
        for k, row in enumerate(own.itertuples()):
            ax.errorbar(
                k,
                row.mean,
                yerr=[[row.mean - row.low], [row.high - row.mean]],
                fmt="o",
                color=colours[k],
                capsize=3,
            )
        ax.set_xticks(positions, [short_name(group, 14) for group in own["group"]])
        ax.set_xlim(-0.6, len(own) - 0.4)
        ax.set_title(short_name(number), fontsize="medium")
        ax.spines[["top", "right"]].set_visible(False)
    return drawn


def plot_regions(
    grid: tuple[np.ndarray, np.ndarray],
    winner: np.ndarray,
    points: np.ndarray,
    point_groups: np.ndarray,
    ellipses: Sequence[tuple[np.ndarray, np.ndarray] | None],
    names: tuple[str, str],
    groups: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """Draw the regions in which each group is the most probable one, with rows and ellipses.

    Parameters
    ----------
    grid : (ndarray of shape (a,), ndarray of shape (b,))
        Values of the two predictors.
    winner : ndarray of int, shape (b, a)
        The most probable group at each point of the grid.
    points : ndarray, shape (n, 2)
        Rows, which belong to the groups `point_groups` (n,).
    ellipses : sequence of (mean of shape (2,), covariance of shape (2, 2)) or None
        For each group; None draws no ellipse.
    names, groups : sequence of str
    """
    from matplotlib.colors import ListedColormap

    ax = axes_or_new(ax, (5.0, 4.2))
    colours = list(group_colours(len(groups)))
    ax.pcolormesh(
        *grid,
        winner,
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(groups) - 0.5,
        alpha=0.2,
        shading="nearest",
        rasterized=True,
    )
    handles = _draw_groups(ax, points, point_groups, ellipses)
    ax.set_xlim(grid[0][0], grid[0][-1])
    ax.set_ylim(grid[1][0], grid[1][-1])
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    draw_legend(ax, handles, [short_name(group) for group in groups], loc="best")
    return ax


def plot_discriminants(
    points: np.ndarray,
    point_groups: np.ndarray,
    ellipses: Sequence[tuple[np.ndarray, np.ndarray] | None],
    names: Sequence[str],
    groups: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """Draw rows and groups on the first two of r discriminants, or their distributions on one.

    Parameters
    ----------
    points : ndarray, shape (n, r)
        Rows, which belong to the groups `point_groups` (n,).
    ellipses : sequence of (mean of shape (r,), covariance of shape (r, r)) or None
        For each group; None for a group without rows.
    names : sequence of r str
        Labels of the axes.
    groups : sequence of str
    """
    ax = axes_or_new(ax, (6.4, 3.6))
    if len(names) == 1:
        handles = _draw_densities(ax, points, point_groups, ellipses)
        ax.set_ylabel("Density")
        ax.set_ylim(bottom=0.0)
    else:
        first_two = [None if own is None else (own[0][:2], own[1][:2, :2]) for own in ellipses]
        handles = _draw_groups(ax, points, point_groups, first_two)
        for own, colour in zip(first_two, group_colours(len(groups)), strict=True):
            if own is not None:
                ax.plot(*own[0], marker="P", markersize=9, color=colour, markeredgecolor="black")
        ax.set_ylabel(names[1])
        ax.set_aspect("equal", adjustable="datalim")
    ax.set_xlabel(names[0])
    ax.spines[["top", "right"]].set_visible(False)
    draw_legend(ax, handles, [short_name(group) for group in groups], loc="best")
    return ax


def _draw_groups(
    ax: Axes,
    points: np.ndarray,
    point_groups: np.ndarray,
    ellipses: Sequence[tuple[np.ndarray, np.ndarray] | None],
) -> list[Any]:
    """Draw the rows and the ellipse of each group, and return a handle for each."""
    step = max(1, -(-len(points) // MAX_POINTS))
    handles = []
    for g, colour in enumerate(group_colours(len(ellipses))):
        own = points[point_groups == g][::step]
        handles.append(
            ax.scatter(own[:, 0], own[:, 1], s=12, color=colour, edgecolor="white", linewidth=0.3)
        )
        ellipse = ellipses[g]
        if ellipse is not None:
            ax.plot(*ellipse_points(*ellipse).T, color=colour, linewidth=1.2)
    return handles


def _draw_densities(
    ax: Axes,
    points: np.ndarray,
    point_groups: np.ndarray,
    normals: Sequence[tuple[np.ndarray, np.ndarray] | None],
) -> list[Any]:
    """Draw the histogram of each group's rows on one discriminant and its normal density, and
    return a handle for each.
    """
    bins = np.histogram_bin_edges(points[:, 0], "fd").tolist()
    handles = []
    for g, (normal, colour) in enumerate(zip(normals, group_colours(len(normals)), strict=True)):
        own = points[point_groups == g, 0]
        if len(own):
            ax.hist(own, bins=bins, density=True, color=colour, alpha=0.3)
        x = density = np.zeros(0)
        if normal is not None and normal[1][0, 0] > 0.0:  # one row has no density
            mean = float(normal[0][0])
            sd = float(np.sqrt(normal[1][0, 0]))
            x = mean + sd * np.linspace(-4.0, 4.0, POINTS)
            density = np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi))
        handles.append(ax.plot(x, density, color=colour)[0])
    return handles


def ellipse_points(mean: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Return points (POINTS, 2) on the ellipse that has probability `ELLIPSE` under a normal
    distribution.
    """
    angle = np.linspace(0.0, 2.0 * np.pi, POINTS)
    radius = np.sqrt(-2.0 * np.log(1.0 - ELLIPSE))
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    # not by Cholesky: the covariance of a group with few rows may be singular
    variances, directions = np.linalg.eigh(S)
    return mean + radius * circle @ (directions * np.sqrt(np.maximum(variances, 0.0))).T
