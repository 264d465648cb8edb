"""Grid: new figures of equal panels, placed by the inch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.report.canvas import LARGEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_PANELS", "Grid", "balanced", "placed", "shown_note"]

MOST_PANELS = 24  # of a new figure
WIDEST = 14.0  # inches of a new figure


def balanced(n: int, width: float, most: int = 6) -> int:
    """Return the columns of a grid of `n` panels of `width` inches that is not too wide; its rows are about full."""
    columns = max(1, min(n, most, int(WIDEST / width)))
    return math.ceil(n / math.ceil(n / columns))


def shown_note(ax: Axes, shown: int, of: int, what: str = "groups") -> None:
    """Say below a figure that it shows some alone."""
    if shown < of:
        ax.figure.text(
            0.5, 0.005, f"showing the first {shown} of {of} {what}", fontsize=LARGEST, ha="center", va="bottom"
        )


def placed(figure: Any, left: float, top: float, width: float, height: float) -> Axes:
    """Return new axes at inches from the left and the top of a figure."""
    figure_width, figure_height = figure.get_size_inches()
    return figure.add_axes(
        (left / figure_width, 1 - (top + height) / figure_height, width / figure_width, height / figure_height)
    )


@dataclass(frozen=True)
class Grid:
    """Equal panels in rows, by the inch: what the names beside them need is known before the figure is made.

    Attributes
    ----------
    n, columns : int
    width, height : float
        Of a panel.
    left, head, foot : float
        Room for what stands left of all panels, above each, and below all.
    gap : float, default 0.25
        Between the columns.
    bar : float, default 1.0
        Room right of all panels, for a colour bar.
    """

    n: int
    columns: int
    width: float
    height: float
    left: float
    head: float
    foot: float
    gap: float = 0.25
    bar: float = 1.0

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of all."""
        rows = math.ceil(self.n / self.columns)
        return (
            self.left + self.columns * (self.width + self.gap) + self.bar,
            rows * (self.head + self.height) + self.foot,
        )

    def figure(self, top: float = 0.0, width: float = 0.0, below: float = 0.0) -> Any:
        """Return a new figure, at least `width` wide, with room for what stands above and below the panels."""
        import matplotlib.pyplot as plt

        return plt.figure(figsize=(max(width, self.size[0]), self.size[1] + top + below))

    def axes(self, figure: Any, top: float = 0.0) -> list[Axes]:
        """Return the panels; those at the left and at the bottom alone bear tick labels."""
        panels = []
        for k in range(self.n):
            row, column = divmod(k, self.columns)
            down = top + row * (self.head + self.height) + self.head
            panels.append(placed(figure, self.left + column * (self.width + self.gap), down, self.width, self.height))
            panels[-1].tick_params(labelleft=column == 0, labelbottom=k + self.columns >= self.n)
        return panels

    def bar_axes(self, figure: Any, top: float = 0.0) -> Axes:
        """Return axes for a colour bar beside the first row."""
        bar_left = self.left + self.columns * (self.width + self.gap)
        return placed(figure, bar_left, top + self.head, 0.14, float(np.clip(self.height, 2.0, 4.0)))
