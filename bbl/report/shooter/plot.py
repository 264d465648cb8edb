"""Figures of a sparse regression: terms by strength, and loss and number of terms along the path of
penalties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.report.canvas import (
    axes_or_new,
    draw_legend,
    group_colours,
    plain_log_axis,
    use_plain_numbers,
    wrap_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_path", "plot_terms"]


def plot_terms(
    names: Sequence[str],
    orders: np.ndarray,
    strength: np.ndarray,
    n_terms: int,
    ax: Axes | None = None,
) -> Axes:
    """Draw the strongest of `n_terms` terms as bars, coloured by order (number of predictors).

    `names`, `orders` and `strength` have one entry per drawn term, strongest first.
    """
    ax = axes_or_new(ax, size=(6.4, max(1.6, 0.9 + 0.24 * len(names))))
    # one for each order; initial: the list of terms may be empty
    colours = group_colours(int(orders.max(initial=1)))
    handles = {}  # for the legend: bars of each order
    for k in np.unique(orders):
        terms_of_order = np.flatnonzero(orders == k)
        handles[f"order {k}"] = ax.barh(
            terms_of_order, strength[terms_of_order], 0.75, color=colours[k - 1]
        )
    ax.set_yticks(np.arange(len(names)), wrap_names(names, room=2.6, size=9), fontsize=9)
    ax.set_ylim(max(len(names), 1) - 0.4, -0.6)  # strongest at the top
    count_note = f" (strongest {len(names)} of {n_terms} terms)" if n_terms > len(names) else ""
    ax.set_xlabel(f"Strength (log-odds){count_note}")
    if not len(names):
        ax.text(0.5, 0.5, "no terms", ha="center", va="center", transform=ax.transAxes)
    else:
        draw_legend(ax, list(handles.values()), list(handles), loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_path(path: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw mean loss (left axis) and number of terms (right axis) against the penalty, or against
    order if there is only one penalty.

    `path` is `ShooterResults.path`: a row for each penalty (``point``, its number on the path) and
    order of terms, with the ``loss`` of the training rows, the losses of held-out rows if they
    were computed, and the number of ``terms``. Return the Axes of the loss.
    """
    from matplotlib.ticker import MaxNLocator

    ax = axes_or_new(ax, size=(6.4, 3.6))
    models = path.groupby("point").tail(1)  # the last row of each penalty has the complete model
    has_path = len(models) > 1
    rows = models if has_path else path
    x = rows["penalty"] if has_path else rows["order"]
    blue, orange = group_colours(2)  # the first two colours of the palette
    handles = [ax.plot(x, rows["loss"], "o-", ms=3.5, color=blue)[0]]
    names = ["training rows"]
    # mean losses of held-out rows, without and with refitting the chosen terms
    for column, style, name in (
        ("held_raw", "s--", "held out, penalised"),
        ("held_refit", "^:", "held out, refitted"),
    ):
        is_known = rows[column].notna()
        if is_known.any():
            handles.append(
                ax.plot(x[is_known], rows.loc[is_known, column], style, ms=4, color=blue)[0]
            )
            names.append(name)
    right = ax.twinx()  # has its own axis for the number of terms
    handles.append(right.plot(x, rows["terms"], ".-", lw=1, color=orange)[0])
    names.append("terms (right)")
    right.set_ylabel("Number of terms")
    right.set_ylim(0.0, None)
    right.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    right.spines["top"].set_visible(False)
    ax.spines["top"].set_visible(False)
    if has_path:
        ax.set_xscale("log")
        plain_log_axis(ax.xaxis, float(x.min()), float(x.max()))
        ax.invert_xaxis()
        # the loss of refits with very many terms may lie outside; including it flattens all curves
        ax.set_ylim(0.0, 1.2 * float(np.nanmax(rows[["loss", "held_raw"]].to_numpy())))
        chosen_penalty = path.loc[path["chosen"], "penalty"]  # of the row marked as the fit
        ax.axvline(chosen_penalty.iloc[0], color="0.6", lw=0.8, ls="--", zorder=0)
    else:
        ax.set_xticks(sorted(set(x)))
    use_plain_numbers(right)
    ax.set(xlabel="Penalty" if has_path else "Order", ylabel="Log-loss")
    draw_legend(ax, handles, names, loc="center left", bbox_to_anchor=(1.14, 0.5))
    return ax
