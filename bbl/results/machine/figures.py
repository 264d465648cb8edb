"""Figures of fitted Boltzmann machines: methods of the result classes. A *term* is a set of interacting predictors."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import choice, flag, near_match, verb
from bbl.errors import DataError, OptionError
from bbl.report.machine.plot import plot_cv
from bbl.report.machine.plot_interactions import plot_network as draw_network
from bbl.report.machine.plot_logo import information, zero_sum_fields
from bbl.report.machine.plot_logo import plot_logo as draw_logo
from bbl.report.machine.plot_parameters import plot_parameters
from bbl.report.machine.plot_terms import plot_term, strongest_term
from bbl.results.classifier import ClassifierResults
from bbl.results.evaluation import FIGURES
from bbl.results.machine.machine import MachineResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot", "plot_logo", "plot_network", "plot_terms"]


@verb
def plot(
    self: MachineResults,
    axes=None,
    intervals: bool = False,
    groups: Sequence | None = None,
    *,
    kind: str = "parameters",
    newdata: object = None,
    weights: Hashable | ArrayLike = None,
):
    """Draw fields as bars and couplings of each group as a heat map (the paper's Figure 2), or another figure.

    The couplings are those of pairs; `plot_terms` draws terms of three predictors and more.

    Parameters
    ----------
    axes : sequence of matplotlib Axes, optional
        Where to draw; a new figure by default.
    intervals : bool, default False
        Whether bars have the 95 % intervals of ``inference()``; where a penalised estimate lies outside of its
        interval, the interval is drawn to the estimate.
    groups : sequence, optional
        Groups to draw; all by default.
    kind : {"parameters", "coefficients", "confusion", "roc", "calibration", "cv"}, default "parameters"
        The parameters; the fields with their confidence intervals, see ``inference().plot()``; one of three figures
        of ``evaluate(newdata, weights).plot(kind)``; or the cross-validation inside the fit (with ``lambda_="cv"``).
    newdata, weights : optional
        As in `evaluate`; the training rows by default.

    Returns
    -------
    list of matplotlib Axes, or one
        The fields, then the couplings of each group; a new figure has up to 24 maps, with a note if there are more.

    Raises
    ------
    OptionError, DataError
        If a group is unknown; with `intervals`, what ``inference()`` raises.
    """
    if choice("kind", kind, ("parameters", "coefficients", *FIGURES, "cv")) in FIGURES:
        if not isinstance(self, ClassifierResults):
            raise DataError(f"kind={kind!r} is of predictions, and {self.formula!r} has no response; it makes none.")
        return self.evaluate(newdata, weights).plot(kind, groups, axes)
    if kind == "coefficients":
        return self.inference().plot(ax=axes)
    if kind == "cv":
        return _plot_tuning(self, axes)
    field_errors = None  # distances (2, K, D) of the lower and upper limits of the fields from their estimates
    if flag("intervals", intervals):
        table = self.inference().table("group" if self.parameters.pooled is None else "pooled")
        distances = np.array([table["estimate"] - table["lower"], table["upper"] - table["estimate"]])
        # nan: no bar to an infinite limit; 0: a penalised estimate beyond its limit
        distances = np.where(np.isfinite(distances), np.maximum(distances, 0.0), np.nan)
        field_errors = distances.reshape(2, *self.parameters.theta.shape)[:, :, : self.parameters.layout.D]
    return plot_parameters(self.labels, self.parameters, groups=groups, errors=field_errors, axes=axes)


def _plot_tuning(self: MachineResults, ax: Axes | None) -> Axes:
    """Draw the out-of-fold log-loss against the settings of the tuned option."""
    tuned = self.engine.tuned
    if self.tuning is None or self.tuning.option is None or tuned is None:
        raise DataError(
            "There was no cross-validation in this fit; fit with lambda_='cv' (or eps='cv'), or use crossVal()."
        )
    frame = pd.DataFrame({tuned.column: self.tuning.values, "log-loss": self.tuning.loss})
    best = float(self.tuning.values[self.tuning.chosen])
    return plot_cv(frame, best=best, ax=ax, symbol=tuned.symbol, title=tuned.title, logarithmic=tuned.logarithmic)


@verb
def plot_terms(self: MachineResults, term: Sequence | None = None, groups: Sequence | None = None, axes=None):
    """Draw the couplings of a term of three predictors or more as small multiples of heat maps.

    Parameters
    ----------
    term : sequence of predictor names, optional
        By default the strongest term of the highest order. Rows of a map are the levels of the first predictor,
        columns those of the second; each combination of levels of the other predictors has a map.
    groups : sequence, optional
        Groups to draw; all by default.
    axes : sequence of matplotlib Axes, optional
        One for each group and combination; a new figure, of up to 24 maps, by default.

    Returns
    -------
    list of matplotlib Axes
        Group by group.

    Raises
    ------
    DataError
        If the model has no terms of three predictors or more.
    OptionError
        If `term` is no such term, or a group is unknown.
    """
    layout, names = self.parameters.layout, list(self.labels.names)
    scope = strongest_term(self.parameters)
    if term is not None:
        term_names = [] if isinstance(term, str) else list(term)
        unknown = [name for name in term_names if name not in names]
        scope = tuple(names.index(name) for name in term_names if name in names)
        if unknown or len(set(scope)) < 3 or len(set(scope)) < len(scope) or layout.index(*scope) < 0:
            hint = near_match(unknown[0], names) if unknown else ""
            raise OptionError(
                f"term={term!r} is no term of three predictors or more of this model{hint or '.'} "
                "interactions(order=3) lists them.",
                argument="term",
            )
    return plot_term(self.labels, self.parameters, scope, groups, axes)


@verb
def plot_logo(self: MachineResults, kind: str = "information", groups: Sequence | None = None, axes=None):
    """Draw the levels of each predictor as stacked letters, one logo per group.

    Parameters
    ----------
    kind : {"information", "fields"}, default "information"
        Height of the letters: their frequency times the information of the position, in bits (Schneider & Stephens
        1990); or the fields (``dh`` with a pooled fit) in the zero-sum gauge, where the fields of a predictor sum to
        zero over its levels and letters below the axis are rarer in the group.
    groups : sequence, optional
        Groups to draw; all by default.
    axes : sequence of matplotlib Axes, optional
        One per group; a new figure by default.

    Returns
    -------
    list of matplotlib Axes

    Raises
    ------
    OptionError
        If there are more than 200 predictors, or a group is unknown.
    """
    if choice("kind", kind, ("information", "fields")) == "information":
        heights, title = information(self.labels, self._counts), "Bits"
    else:
        d = "" if self.parameters.pooled is None else r"\Delta "
        heights, title = zero_sum_fields(self.parameters), f"Field ${d}h$"
    return draw_logo(self.labels, heights, groups=groups, ylabel=title, axes=axes)


@verb
def plot_network(self: MachineResults, groups: Sequence | None = None, top: int | None = None, axes=None):
    """Draw the strongest interactions of each group as a graph of the predictors.

    Parameters
    ----------
    groups : sequence, optional
        Groups, and pairs ``(a, b)`` of groups for the parameters of a less those of b; all groups by default.
    top : int, optional
        Number of pairs to draw; by default twice the number of predictors, 20 at least and 80 at most (30 in more
        than 4 graphs).
    axes : sequence of matplotlib Axes, optional
        One per graph; a new figure by default.

    Returns
    -------
    list of matplotlib Axes
        The width of an edge is the strength of the pair (Frobenius norm of its couplings in the zero-sum gauge). Edges
        are red where the strongest coupling of a pair is positive, blue and dashed where that is negative.

    Raises
    ------
    DataError
        If the model has no interactions.
    OptionError
        If a group is unknown.
    """
    return draw_network(self.labels, self.parameters, groups=groups, top=top, axes=axes)
