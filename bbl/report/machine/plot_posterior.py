"""Figures of posterior draws: traces of chains, histograms of ranks, forest plots of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.report.canvas import (
    COLOURS,
    ESCAPED,
    MAX_FONT,
    check_axes,
    draw_legend,
    group_colours,
    short_name,
    shorten_names,
    wrap_names,
)
from bbl.stats.diagnostics import highest_density

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KINDS", "plot_posterior"]

KINDS = ("trace", "forest", "rank")
MAX_PANELS = 12  # panels per figure
BINS = 20  # bins of a rank histogram
WIDTH = 3.4  # inches of a panel in a new figure


def plot_posterior(
    kind: str,
    draws: np.ndarray,
    groups: Sequence[str],
    names: Sequence[str],
    rhat: np.ndarray,
    top: int,
    level: float,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw traces or ranks of the first group's parameters with the largest R-hat, or a forest plot
    of intervals.

    Parameters
    ----------
    kind : {"trace", "forest", "rank"}
    draws : ndarray, shape (chains, draws, groups, parameters)
        Posterior draws, which are nan for a group without draws.
    groups, names : sequence of str
        Names of groups and parameters.
    rhat : ndarray, shape (groups, parameters)
        Convergence diagnostic, 1 for chains that have mixed.
    top : int
        Number of parameters to draw, at most `MAX_PANELS` in traces and ranks; a forest plot shows
        those with the largest |mean| / sd.
    level : float
        Posterior probability of the intervals of a forest plot.
    axes : sequence of matplotlib Axes, optional
    """
    if kind == "forest":
        return [_draw_forest(draws, groups, names, top, level, axes)]
    # positions in `names`
    worst = np.argsort(-np.nan_to_num(rhat[0]), kind="stable")[: min(top, MAX_PANELS)]
    titles = wrap_names([names[k] for k in worst], WIDTH - 0.5, MAX_FONT, lines=2)
    panels = _new_panels(titles) if axes is None else check_axes(axes, len(worst))
    draw_panel, xlabel, ylabel = (
        (_draw_trace, "Draw", "Value")
        if kind == "trace"
        else (_draw_ranks, "Rank among all draws", "Relative frequency")
    )
    for ax, k, title in zip(panels, worst, titles, strict=True):
        draw_panel(ax, draws[:, :, 0, k])
        ax.set_title(f"{title}\n$\\hat R$ = {rhat[0, k]:.3f}", fontsize=MAX_FONT)
        ax.tick_params(labelsize=MAX_FONT - 1)
        if axes is not None:
            ax.set_xlabel(xlabel, fontsize=MAX_FONT)
            ax.set_ylabel(ylabel, fontsize=MAX_FONT)
    if axes is None:
        figure = panels[0].figure
        figure.suptitle(short_name(groups[0], length=40), fontsize="medium")
        figure.supxlabel(f"{xlabel} (one colour per chain)", fontsize=MAX_FONT)
        figure.supylabel(ylabel, fontsize=MAX_FONT)
    return panels


def _new_panels(titles: Sequence[str]) -> list[Axes]:
    """Return axes of a new figure, one per title, with space for one more line of title."""
    import matplotlib.pyplot as plt

    # one more line than line breaks, plus R-hat
    n = len(titles)
    lines = max(title.count("\n") for title in titles) + 2
    columns = min(n, 3)
    rows = -(-n // columns)  # rounded up
    # inches: 1.45 for a panel without its title, 0.175 for a line of the title, 0.6 for the
    # figure's titles
    size = (max(WIDTH * columns, 4.2), rows * (1.45 + 0.175 * lines) + 0.6)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained")
    panels = list(np.ravel(axes))
    for ax in panels[n:]:
        figure.delaxes(ax)
    return panels[:n]


def _draw_forest(
    draws: np.ndarray,
    groups: Sequence[str],
    names: Sequence[str],
    top: int,
    level: float,
    axes: Sequence[Axes] | None,
) -> Axes:
    """Draw means and highest-density intervals of the `top` parameters with the largest |mean| / sd
    in any group.
    """
    # (groups, parameters)
    mean = draws.mean(axis=(0, 1))
    sd = draws.std(axis=(0, 1), ddof=1)
    has_draws = ~np.isnan(mean).all(axis=1)  # for each group
    # 1e-300: avoids 0 / 0; initial: it may be that no group has draws
    z = np.max(np.abs(mean[has_draws]) / np.maximum(sd[has_draws], 1e-300), axis=0, initial=0.0)
    chosen = np.sort(np.argsort(-z, kind="stable")[:top])  # in the order of `names`
    lower, upper = highest_density(draws[:, :, :, chosen], level)  # (groups, chosen)
    if axes is None:
        import matplotlib.pyplot as plt

        height = 0.9 + len(chosen) * max(0.26, 0.16 * len(groups))
        ax = plt.subplots(figsize=(6.4, height), layout="constrained")[1]
    else:
        (ax,) = check_axes(axes, 1)
    handles = []
    # groups are drawn next to each other in the parameter's row
    offsets = np.linspace(-0.28, 0.28, len(groups)) if len(groups) > 1 else [0.0]
    for g, (colour, offset) in enumerate(zip(group_colours(len(groups)), offsets, strict=True)):
        y = np.arange(len(chosen)) + offset
        ax.hlines(y, lower[g], upper[g], color=colour, linewidth=1.6)
        handles.append(ax.plot(mean[g, chosen], y, "o", color=colour, markersize=5)[0])
    ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_yticks(np.arange(len(chosen)))
    texts = [
        text.translate(ESCAPED) for text in shorten_names([names[k] for k in chosen], length=36)
    ]
    ax.set_yticklabels(texts, fontsize=MAX_FONT - 0.5)
    ax.set_ylim(len(chosen) - 0.4, -0.6)  # first parameter at the top
    ax.set_xlabel(f"Posterior mean and {100 * level:g} % interval")
    if len(groups) > 1:
        draw_legend(
            ax,
            handles,
            shorten_names(groups, length=24),
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )
    else:
        ax.set_title(short_name(groups[0], length=40), fontsize="medium")
    return ax


def _draw_trace(ax: Axes, draws: np.ndarray) -> None:
    """Draw the chains (chains, draws) of a parameter against the draw number."""
    for k, chain in enumerate(draws):
        ax.plot(chain, color=COLOURS[k % len(COLOURS)], linewidth=0.4, alpha=0.8)
    ax.margins(x=0.0)


def _draw_ranks(ax: Axes, draws: np.ndarray) -> None:
    """Draw a histogram of each chain's ranks among all draws (chains, draws) of a parameter."""
    chains, n = draws.shape
    # 0 is the smallest
    ranks = np.argsort(np.argsort(draws.ravel(), kind="stable"), kind="stable").reshape(draws.shape)
    edges = np.linspace(0, chains * n, BINS + 1)
    # proportion of the chain's ranks in each bin, relative to a uniform distribution
    for k, chain_ranks in enumerate(ranks):
        counts = np.histogram(chain_ranks, edges)[0]
        ax.stairs(
            counts / (n / BINS),
            edges / (chains * n),
            baseline=None,
            color=COLOURS[k % len(COLOURS)],
            linewidth=1.0,
        )
    ax.axhline(1.0, color="0.5", linewidth=0.8, linestyle="--")
    ax.set_ylim(bottom=0.0)
