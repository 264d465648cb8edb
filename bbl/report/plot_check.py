"""Check plot: whether predicted probabilities hold, as a reliability diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.checks import integer
from bbl.design.labels import Labels
from bbl.errors import DataError
from bbl.report.canvas import given_axes, group_colours, group_numbers, named_legend, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_calibration"]

Z = 1.959963984540054  # 95 % of a standard normal lie within


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
    """Draw the observed share of a group against its predicted probability, and a histogram of the predictions.

    Parameters
    ----------
    labels : Labels
    probabilities : array_like, shape (n, K)
        Predicted probabilities of the groups.
    y : array_like of int, shape (n,)
        The observed groups, as numbers 0..K-1.
    weights : array_like, shape (n,), optional
        How often each row was observed; once by default.
    bins : int, default 10
        Bins of equal width between 0 and 1.
    groups : sequence, optional
        Which groups; all by default, but the second alone of two, since the first has the complement.
    axes : sequence of two matplotlib Axes, optional
        For the diagram and for the histogram; a new figure by default.

    Returns
    -------
    list of two matplotlib Axes
        Each point is a bin at its mean prediction, with the 95 % interval of Wilson (1927) of a binomial share.

    Raises
    ------
    DataError
        If the arrays do not belong together, or probabilities lie outside 0..1.
    OptionError
        If a group is unknown, or `axes` does not hold two.

    Examples
    --------
    >>> labels = Labels("y", ("No", "Yes"), (), ())
    >>> p = np.array([0.1, 0.2, 0.7, 0.9])
    >>> diagram, histogram = plot_calibration(labels, np.column_stack([1 - p, p]), [0, 0, 1, 1], bins=2)
    """
    p, y = np.asarray(probabilities, dtype=float), np.asarray(y)
    weight = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=float)
    bins, K = integer("bins", bins, 1), len(labels.groups)
    if p.shape != (len(y), K) or weight.shape != y.shape or not len(y):
        raise DataError(f"probabilities must be {len(y)} x {K}, rows of y by groups, and weights as long as y.")
    if not ((p >= 0) & (p <= 1)).all() or not np.isin(y, np.arange(K)).all():
        raise DataError(f"probabilities must lie in 0..1, and y be whole numbers in 0..{K - 1}.")
    shown = [1] if groups is None and K == 2 else group_numbers(labels, groups)
    many = len(shown) > 4
    diagram, histogram = _two_axes(many) if axes is None else given_axes(axes, 2)
    diagram.plot([0, 1], [0, 1], color="0.5", linewidth=1, zorder=1)
    edges, lines = np.linspace(0, 1, bins + 1), []
    for k, colour in zip(shown, group_colours(len(shown)), strict=True):
        at = np.minimum((p[:, k] * bins).astype(np.intp), bins - 1)
        total = np.bincount(at, weight, bins)
        full = total > 0
        mean = np.bincount(at, weight * p[:, k], bins)[full] / total[full]
        hits = np.bincount(at, weight * (y == k), bins)[full]
        low, high = wilson(hits, total[full])
        diagram.vlines(mean, low, high, color=colour, linewidth=1.2, alpha=0.3 if many else 1.0)
        diagram.plot(mean, hits / total[full], color=colour, linewidth=1.4, alpha=0.3 if many else 1.0)
        lines += diagram.plot(mean, hits / total[full], "o", color=colour, markersize=4.5, zorder=3)
        histogram.stairs(total, edges, fill=len(shown) == 1, linewidth=1.2, color=colour)
    response, names = short_name(labels.response), [short_name(labels.groups[k]) for k in shown]
    of = f"{response} = {names[0]}" if len(shown) == 1 else f"each {response}"
    diagram.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel=f"Observed share of {of}")
    histogram.set(xlabel=f"Predicted probability of {of}", ylabel="Observations")
    if len(shown) > 1:
        histogram.set_yscale("log")  # most predictions of each of many groups are close to 0
        place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if many else {"loc": "upper left"}
        named_legend(diagram, lines, names, title=response, ncols=1 + len(names) // 12, **place)
    for ax in (diagram, histogram):
        ax.spines[["top", "right"]].set_visible(False)
    return [diagram, histogram]


def wilson(hits: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % limits of Wilson (1927) of the shares ``hits / total``."""
    middle = (hits + Z**2 / 2) / (total + Z**2)
    half = Z / (total + Z**2) * np.sqrt(hits * (total - hits) / total + Z**2 / 4)
    return middle - half, middle + half


def _two_axes(wide: bool) -> list[Axes]:
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(
        2,
        1,
        figsize=(5.6 if wide else 4.4, 5.4),
        sharex=True,
        height_ratios=[4.2, 1.2],
        layout="constrained",
        squeeze=True,
    )
    return list(axes)
