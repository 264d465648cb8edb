"""FiguresMixin: figures of fitted Boltzmann machines."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import check_keywords, choice, flag, near_match
from bbl.choices import EvaluationFigure
from bbl.errors import DataError, OptionError
from bbl.report.machine.plot import plot_cv
from bbl.report.machine.plot_interactions import draw_network
from bbl.report.machine.plot_logo import draw_logo, information, zero_sum_fields
from bbl.report.machine.plot_parameters import plot_parameters
from bbl.report.machine.plot_terms import plot_term, strongest_term
from bbl.results.classifier import ClassifierResults
from bbl.results.evaluation import FIGURES
from bbl.results.machine.machine import of_categories
from bbl.results.machine.numbers import NumbersMixin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FiguresMixin"]


class FiguresMixin(NumbersMixin):
    """Figures of a fitted Boltzmann machine: parameters, interactions, sequence logos."""

    @check_keywords
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

        Only couplings of pairs are drawn; see `plot_terms` for terms of three or more predictors.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            Where to draw; a new figure by default.
        intervals : bool, default False
            Whether to add the 95 % intervals of ``inference()`` to the bars; an interval is
            extended to include the penalised estimate if necessary.
        groups : sequence, optional
            Groups to draw; all by default.
        kind : str, default "parameters"
            One of "parameters", "coefficients", "confusion", "roc", "calibration", "cv".
            "parameters": fields and couplings. "coefficients": the fields with their confidence
            intervals, as in ``inference().plot()``. "confusion", "roc", "calibration": figures of
            ``evaluate(newdata, weights).plot(kind)``. "cv": the cross-validation inside the fit
            (with ``lambda_="cv"``).
        newdata, weights : optional
            As in `evaluate`; the training rows by default.

        Returns
        -------
        list of matplotlib Axes, or one
            The fields, followed by the couplings of each group. A new figure shows up to 24 heat
            maps, with a note if there are more. If all predictors are numeric, their means are
            drawn (see `plot_means`).

        Raises
        ------
        OptionError, DataError
            If a group is unknown; with `intervals`, also the errors of ``inference()``.

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
                    f"kind={kind!r} requires classes, but {self.formula!r} has no response.",
                    value=kind,
                )
            return self.evaluate(newdata, weights).plot(cast(EvaluationFigure, kind), groups, axes)
        if kind == "coefficients":
            return self.inference().plot(ax=axes)
        if kind == "cv":
            return self._plot_tuning(axes)
        part = self._categorical
        if part is not self and not part.design.predictors:
            return self.plot_means(axes)
        # distances (2, K, D) of the fields' lower and upper limits from their estimates
        field_errors = None
        if flag("intervals", intervals):
            # with a pooled fit the bars show differences from it
            table = self.inference().table(
                "group" if self.estimate.parameters.pooled is None else "pooled"
            )
            limit_distances = np.array(
                [table["estimate"] - table["lower"], table["upper"] - table["estimate"]]
            )
            # nan: no bar to an infinite limit; 0: a penalised estimate outside its limit
            limit_distances = np.where(
                np.isfinite(limit_distances), np.maximum(limit_distances, 0.0), np.nan
            )
            field_errors = limit_distances.reshape(2, *self.estimate.parameters.theta.shape)[
                :, :, : self.estimate.parameters.layout.D
            ]
        return plot_parameters(
            part.labels, part.estimate.parameters, groups=groups, errors=field_errors, axes=axes
        )

    def _plot_tuning(self, ax: Axes | None) -> Axes:
        """Draw the out-of-fold log-loss against the settings of the tuned option.

        Raises a DataError if no option was tuned.
        """
        # the option tuned by cross-validation: its names, symbol and scale; None without one
        tuned = self.engine.tuned
        if self.tuning is None or self.tuning.option is None or tuned is None:
            raise DataError(
                "This fit was not tuned by cross-validation.",
                hint="Fit with lambda_='cv' (or eps='cv'), or use crossVal().",
            )
        # `values` and `loss` (S,) of the S settings; `chosen` is the position of the selected one
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

    @check_keywords
    @of_categories
    def plot_network(
        self,
        groups: Sequence[Any] | None = None,
        top: int | None = None,
        axes: Sequence[Axes] | None = None,
    ) -> list[Axes]:
        """Draw the strongest interactions in each group as a graph of the predictors.

        Parameters
        ----------
        groups : sequence, optional
            Groups, or pairs ``(a, b)`` of groups for the difference of their parameters, a minus b;
            all groups by default.
        top : int, optional
            Number of pairs to draw; by default twice the number of predictors, but at least 20 and
            at most 80 (30 with more than 4 graphs).
        axes : sequence of matplotlib Axes, optional
            One per graph; a new figure by default.

        Returns
        -------
        list of matplotlib Axes
            The width of an edge shows the strength of the pair (Frobenius norm of its couplings in
            the zero-sum gauge). Edges are red if the strongest coupling of the pair is positive,
            and blue and dashed if it is negative.

        Raises
        ------
        DataError
            If the model has no interactions.
        OptionError
            If a group is unknown.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> [axis.get_title() for axis in fit.plot_network(groups=[("Yes", "No")])]
        ['Survived = Yes minus No']
        >>> plt.close()
        """
        return draw_network(
            self.labels, self.estimate.parameters, groups=groups, top=top, axes=axes
        )

    @check_keywords
    @of_categories
    def plot_logo(
        self,
        kind: Literal["information", "fields"] = "information",
        groups: Sequence[Any] | None = None,
        axes: Sequence[Axes] | None = None,
    ) -> list[Axes]:
        """Draw the levels of each predictor as stacked letters, one logo per group.

        Parameters
        ----------
        kind : {"information", "fields"}, default "information"
            Height of the letters: their frequency times the information of the position, in bits
            (Schneider & Stephens 1990); or the fields (``dh`` with a pooled fit) in the zero-sum
            gauge, where letters below the axis are rarer in the group.
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

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> [axis.get_title() for axis in fit.plot_logo()]
        ['Survived = No', 'Survived = Yes']
        >>> plt.close()
        """
        if choice("kind", kind, ("information", "fields")) == "information":
            heights = information(self.labels, self._counts)
            title = "Bits"
        else:
            d = "" if self.estimate.parameters.pooled is None else r"\Delta "
            heights = zero_sum_fields(self.estimate.parameters)
            title = f"Field ${d}h$"
        return draw_logo(self.labels, heights, groups=groups, ylabel=title, axes=axes)

    @check_keywords
    @of_categories
    def plot_terms(
        self,
        term: Sequence[Any] | None = None,
        groups: Sequence[Any] | None = None,
        axes: Sequence[Axes] | None = None,
    ) -> list[Axes]:
        """Draw the couplings of a term of three or more predictors as a grid of heat maps.

        Parameters
        ----------
        term : sequence of predictor names, optional
            By default the strongest term of the highest order. The rows of a heat map are the
            levels of the first predictor, and the columns are the levels of the second. Each
            combination of levels of the other predictors has its own map.
        groups : sequence, optional
            Groups to draw; all by default.
        axes : sequence of matplotlib Axes, optional
            One for each group and combination; by default a new figure with up to 24 maps.

        Returns
        -------
        list of matplotlib Axes
            One for each heat map, group by group.

        Raises
        ------
        DataError
            If the model has no terms of three or more predictors.
        OptionError
            If `term` is not such a term, or a group is unknown.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex * Age", titanic, weights="Freq", verbose=0)
        >>> len(fit.plot_terms(groups=["Yes"]))
        1
        >>> plt.close()
        """
        layout = self.estimate.parameters.layout
        names = list(self.labels.names)
        # their positions; raises a DataError if no term has three predictors
        predictors = strongest_term(self.estimate.parameters)
        if term is not None:
            term_names = [] if isinstance(term, str) else list(term)
            unknown = [name for name in term_names if name not in names]
            predictors = tuple(names.index(name) for name in term_names if name in names)
            # fewer than three different predictors, a repeated one, or not a term of the model
            if (
                unknown
                or len(set(predictors)) < 3
                or len(set(predictors)) < len(predictors)
                or layout.index(*predictors) < 0
            ):
                near = near_match(unknown[0], names) if unknown else ""
                raise OptionError(
                    f"term={term!r} is not a term of three or more predictors in this model.",
                    argument="term",
                    hint=f"{near}List the terms with interactions(order=3).",
                    value=term,
                )
        return plot_term(self.labels, self.estimate.parameters, predictors, groups, axes)
