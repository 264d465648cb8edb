"""New figures with a grid of equal panels. Lengths are in inches, measured from the left and from
the top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bbl.report.canvas import MAX_FONT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "MOST_PANELS",
    "NOTE_HEIGHT",
    "NO_INTERVAL",
    "Grid",
    "axes_at",
    "grid_columns",
    "note_shown",
    "note_text",
    "share_limits",
]

NO_INTERVAL = "hollow: no interval"  # note on points

MOST_PANELS = 24  # most panels of a new figure
NOTE_HEIGHT = 0.2  # inches of a note below a figure
MAX_WIDTH = 14.0  # inches of all panels of a new figure side by side


def grid_columns(n: int, width: float, max_columns: int = 6) -> int:
    """Return the number of columns for `n` panels of `width` inches: at most `max_columns`, and at
    most `MAX_WIDTH` inches.

    Among the layouts with the fewest rows, the one with the fewest columns is chosen. Its rows have
    nearly equal numbers of panels.
    """
    columns = max(1, min(n, max_columns, int(MAX_WIDTH / width)))
    return math.ceil(n / math.ceil(n / columns))


def note_shown(ax: Axes, n_shown: int, n: int, noun: str = "groups", which: str = "first") -> None:
    """Write a note such as ``showing the first 3 of 5 groups`` below the figure of `ax`, unless all
    `n` are shown.

    `which` replaces the word ``first``, and `noun` replaces the word ``groups``. Further notes are
    placed above earlier ones.
    """
    if n_shown < n:
        note_text(ax, f"showing the {which} {n_shown} of {n} {noun}")


def note_text(ax: Axes, text: str) -> None:
    """Write a note below the figure of `ax`; further notes are placed above earlier ones."""
    bottom = 0.005 + len(ax.figure.texts) * NOTE_HEIGHT * ax.figure.dpi / ax.figure.bbox.height
    ax.figure.text(0.5, bottom, text, fontsize=MAX_FONT, ha="center", va="bottom")


def share_limits(panels: list[Axes]) -> None:
    """Give all panels the same horizontal limits, so that they can be compared."""
    limits = [ax.get_xlim() for ax in panels]
    for ax in panels:
        ax.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Return new axes of this width and height, `left` and `top` inches from the left and top of
    the figure.
    """
    figure_width, figure_height = figure.get_size_inches()
    return figure.add_axes(
        (
            left / figure_width,
            1 - (top + height) / figure_height,
            width / figure_width,
            height / figure_height,
        )
    )


@dataclass(frozen=True)
class Grid:
    """Equal panels in rows, filled row by row.

    Attributes
    ----------
    n, columns : int
        Number of panels, and number of panels per row.
    width, height : float
        Size of a panel in inches.
    left, head, foot : float
        Inches to the left of all panels, above each panel (for its title), and below all panels.
    gap : float, default 0.25
        Inches between columns.
    bar : float, default 1.0
        Inches to the right of all panels, for a colour bar.
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
        """Width and height of the grid with its margins, in inches."""
        rows = math.ceil(self.n / self.columns)
        return (
            self.left + self.columns * (self.width + self.gap) + self.bar,
            rows * (self.head + self.height) + self.foot,
        )

    def figure(self, top: float = 0.0, width: float = 0.0, below: float = 0.0) -> Figure:
        """Return a new figure, at least `width` inches wide, with `top` inches above the grid and
        `below` inches below it.
        """
        import matplotlib.pyplot as plt

        return plt.figure(figsize=(max(width, self.size[0]), self.size[1] + top + below))

    def axes(self, figure: Figure, top: float = 0.0) -> list[Axes]:
        """Return new axes for all panels, the first row `top` inches below the figure's top.

        Only the leftmost panels and the lowest panel of each column have tick labels.
        """
        panels = []
        for k in range(self.n):
            row, column = divmod(k, self.columns)
            panel_top = top + row * (self.head + self.height) + self.head
            panels.append(
                axes_at(
                    figure,
                    self.left + column * (self.width + self.gap),
                    panel_top,
                    self.width,
                    self.height,
                )
            )
            panels[-1].tick_params(labelleft=column == 0, labelbottom=k + self.columns >= self.n)
        return panels

    def bar_axes(self, figure: Figure, top: float = 0.0) -> Axes:
        """Return new axes for a colour bar, 0.14 inches wide, to the right of the first row; `top`
        is the same as in `axes`.
        """
        bar_left = self.left + self.columns * (self.width + self.gap)
        return axes_at(
            figure, bar_left, top + self.head, 0.14, float(np.clip(self.height, 2.0, 4.0))
        )
