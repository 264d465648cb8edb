"""Figures of fitted Boltzmann machines that take their inference, evaluation or tuning: `plot`, a
method.

K groups with D fields each: a field for every level of a predictor but the reference level. Fields
are the first D of the `size` parameters of a group, couplings of interacting predictors follow.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import choice, flag, verb
from bbl.choices import EvaluationFigure
from bbl.errors import DataError
from bbl.report.machine.plot import plot_cv
from bbl.report.machine.plot_parameters import plot_parameters
from bbl.results.classifier import ClassifierResults
from bbl.results.evaluation import FIGURES
from bbl.results.machine.machine import MachineResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FiguresMixin"]


class FiguresMixin(MachineResults):
    """The figure that a fitted Boltzmann machine draws by default."""

    @verb
    def plot(
        self,
        axes: Any = None,
        intervals: bool = False,
        groups: Sequence[Any] | None = None,
        *,
        kind: Literal["parameters", "coefficients", "cv"] | EvaluationFigure = "parameters",
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
    ) -> Any:
        """Draw fields as bars and couplings of each group as a heat map (Woo & Wang 2022, Figure
        2), or another figure.

        The couplings are those of pairs; `plot_terms` draws terms of three predictors and more.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            Where to draw; a new figure by default.
        intervals : bool, default False
            Whether bars have the 95 % intervals of ``inference()``; where a penalised estimate lies
            outside of its interval, the interval is drawn to the estimate.
        groups : sequence, optional
            Groups to draw; all by default.
        kind : str, default "parameters"
            One of "parameters", "coefficients", "confusion", "roc", "calibration", "cv".
            "parameters": fields and couplings. "coefficients": the fields with their confidence
            intervals, as ``inference().plot()``. "confusion", "roc", "calibration": figures of
            ``evaluate(newdata, weights).plot(kind)``. "cv": the cross-validation inside the fit
            (with ``lambda_="cv"``).
        newdata, weights : optional
            As in `evaluate`; the training rows by default.

        Returns
        -------
        list of matplotlib Axes, or one
            The fields, then the couplings of each group; a new figure has up to 24 maps, with a
            note if there are more.

        Raises
        ------
        OptionError, DataError
            If a group is unknown; with `intervals`, what ``inference()`` raises.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> axes = fit.plot(groups=["Yes"])
        >>> [axis.get_title() for axis in axes]
        ['', 'Survived = Yes']
        >>> plt.close()
        """
        if choice("kind", kind, ("parameters", "coefficients", *FIGURES, "cv")) in FIGURES:
            if not isinstance(self, ClassifierResults):
                raise DataError(
                    f"kind={kind!r} is for predictions, and {self.formula!r} has no response.",
                    value=kind,
                )
            return self.evaluate(newdata, weights).plot(cast(EvaluationFigure, kind), groups, axes)
        if kind == "coefficients":
            return self.inference().plot(ax=axes)
        if kind == "cv":
            return self._plot_tuning(axes)
        # distances (2, K, D) of the lower and upper limits of the fields from their estimates
        field_errors = None
        if flag("intervals", intervals):
            # with a pooled fit the bars show differences from it
            table = self.inference().table("group" if self.parameters.pooled is None else "pooled")
            limit_distances = np.array(
                [table["estimate"] - table["lower"], table["upper"] - table["estimate"]]
            )
            # nan: no bar to an infinite limit; 0: a penalised estimate beyond its limit
            limit_distances = np.where(
                np.isfinite(limit_distances), np.maximum(limit_distances, 0.0), np.nan
            )
            field_errors = limit_distances.reshape(2, *self.parameters.theta.shape)[
                :, :, : self.parameters.layout.D
            ]
        return plot_parameters(
            self.labels, self.parameters, groups=groups, errors=field_errors, axes=axes
        )

    def _plot_tuning(self, ax: Axes | None) -> Axes:
        """Draw the out-of-fold log-loss against the settings of the tuned option; a DataError if
        none was tuned.
        """
        # the option that cross-validation varies: its names, symbol and scale; None without one
        tuned = self.engine.tuned
        if self.tuning is None or self.tuning.option is None or tuned is None:
            raise DataError(
                "There was no cross-validation in this fit.",
                hint="Fit with lambda_='cv' (or eps='cv'), or use crossVal().",
            )
        # `values` and `loss` (S,) of the S settings; `chosen` is the position of one of them
        frame = pd.DataFrame({tuned.column: self.tuning.values, "log-loss": self.tuning.loss})
        chosen_setting = float(self.tuning.values[self.tuning.chosen])
        return plot_cv(
            frame,
            best=chosen_setting,
            ax=ax,
            symbol=tuned.symbol,
            title=tuned.title,
            logarithmic=tuned.logarithmic,
        )
