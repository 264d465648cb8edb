"""The figures of a sparse regression: terms by strength, and loss and terms along the path of penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.report.canvas import axes_or_new, group_colours, named_legend, plain_numbers, wrap_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_path", "plot_terms"]


def plot_terms(names: Sequence[str], orders: np.ndarray, strength: np.ndarray, of: int, ax: Axes | None = None) -> Axes:
    """Draw the strongest terms as bars, coloured by order.

    Parameters
    ----------
    names : sequence of str
        Strongest first.
    orders, strength : ndarray, shape (T,)
    of : int
        Number of all terms.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    ax = axes_or_new(ax, (6.4, max(1.6, 0.9 + 0.24 * len(names))))
    colours = group_colours(max(3, int(orders.max(initial=1))))
    handles = {}
    for k in np.unique(orders):
        terms_of_order = np.flatnonzero(orders == k)
        handles[f"order {k}"] = ax.barh(terms_of_order, strength[terms_of_order], 0.75, color=colours[k - 1])
    ax.set_yticks(np.arange(len(names)), wrap_names(names, 2.6, 9), fontsize=9)
    ax.set_ylim(max(len(names), 1) - 0.4, -0.6)
    count_note = f" (strongest {len(names)} of {of} terms)" if of > len(names) else ""
    ax.set_xlabel(f"strength, in log odds{count_note}")
    if not len(names):
        ax.text(0.5, 0.5, "no terms", ha="center", va="center", transform=ax.transAxes)
    elif len(handles) > 1:
        named_legend(ax, list(handles.values()), list(handles), loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_path(path: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the mean loss and the number of terms along a path of penalties, or along the orders of one.

    Parameters
    ----------
    path : DataFrame
        As `ShooterResults.path`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        That of the loss; the number of terms has an axis on the right.
    """
    from matplotlib.ticker import MaxNLocator

    ax = axes_or_new(ax, (6.4, 3.6))
    last = path.groupby("point").tail(1)
    several = len(last) > 1
    rows = last if several else path
    at = rows["penalty"] if several else rows["order"]
    blue, red = group_colours(3)[:2]
    handles = [ax.plot(at, rows["loss"], "o-", ms=3.5, color=blue)[0]]
    names = ["training rows"]
    for column, style, name in (("held_raw", "s--", "held out, penalised"), ("held_refit", "^:", "held out, refitted")):
        is_known = rows[column].notna()
        if is_known.any():
            handles.append(ax.plot(at[is_known], rows.loc[is_known, column], style, ms=4, color=blue)[0])
            names.append(name)
    right = ax.twinx()
    handles.append(right.plot(at, rows["terms"], ".-", lw=1, color=red)[0])
    names.append("terms (right)")
    right.set_ylabel("terms")
    right.set_ylim(0.0, None)
    right.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    right.spines["top"].set_visible(False)
    ax.spines["top"].set_visible(False)
    if several:
        ax.set_xscale("log")
        ax.invert_xaxis()
        # refits of very many terms leave the figure: they would hide all the rest
        ax.set_ylim(0.0, 1.2 * float(np.nanmax(rows[["loss", "held_raw"]].to_numpy())))
        chosen = path.loc[path["chosen"], "penalty"]
        ax.axvline(chosen.iloc[0], color="0.6", lw=0.8, ls="--", zorder=0)
    else:
        ax.set_xticks(sorted(set(at)))
    plain_numbers(right)
    ax.set(xlabel="penalty" if several else "order", ylabel="mean of -ln p")
    named_legend(ax, handles, names, loc="center left", bbox_to_anchor=(1.14, 0.5))
    return ax
