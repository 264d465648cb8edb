"""EffectsMixin: effects of predictors on the scale of probabilities."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bbl.checks import check_keywords, flag
from bbl.errors import BBLError
from bbl.report.page import Part, figure_html
from bbl.results.classifier_base import ClassifierBase
from bbl.results.effects.contrasts import make_comparison_contrasts, make_prediction_contrasts
from bbl.results.effects.effects import find_effects
from bbl.results.effects.refits import ErrorOptions
from bbl.results.effects.rows import make_effect_rows
from bbl.results.effects.table import Effects

__all__ = ["EffectsMixin"]

# cells of training rows up to which a report computes effects: rows times predictors
MAX_REPORTED = 20_000_000
MAX_COMPARED = 60  # predictors whose effects a report computes


class EffectsMixin(ClassifierBase):
    """Predictions and comparisons of levels on the scale of probabilities, with standard errors."""

    @check_keywords
    def predictions(
        self,
        newdata: object = None,
        variables: object = None,
        *,
        weights: Hashable | ArrayLike = None,
        grid: object = None,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return the probability of each group in each row, with standard errors.

        Parameters
        ----------
        newdata, variables, weights, grid, se, level, nboot, seed, n_jobs, verbose
            As in `avg_predictions`, but equal rows are not merged, and weights only leave out the
            rows of weight 0.

        Returns
        -------
        Effects
            The frame has a column ``row``, the label of the row.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
        >>> fit.predictions(grid="mode").frame[["group", "estimate", "std_error"]].round(3)
          group  estimate  std_error
        0    No     0.785      0.014
        1   Yes     0.215      0.014
        """
        contrasts = make_prediction_contrasts(self.labels, variables)
        rows = make_effect_rows(self, newdata, weights, grid, by=None, is_rowwise=True)
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    @check_keywords
    def avg_predictions(
        self,
        by: object = None,
        variables: object = None,
        newdata: object = None,
        grid: object = None,
        *,
        weights: Hashable | ArrayLike = None,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return the average probability of each group, with standard errors.

        Parameters
        ----------
        by : name or list of names, optional
            Predictors, or columns of `newdata`, by whose values rows are averaged separately.
        variables : name, list of names, or dict of name to list of levels, optional
            Predictors that are set, in every row, to each of their levels (or of the given ones) in
            turn.
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns. None for the training rows, with their weights.
        grid : {"balanced", "mode"} or dict of name to levels, optional
            Constructed rows in place of `newdata`. "balanced": all combinations of levels. "mode":
            one row, with the most frequent level of every predictor. A dict: all combinations of
            the given levels of some predictors, others at their most frequent level. Cells of
            `structural_zeros` are left out.
        weights : column name or array_like of shape (n,), optional
            Weights of the new rows in the average. By default those in the column that has the
            weights of the training data (``weights="Freq"`` of the fit), if `newdata` has it; else
            all rows count alike.
        se : {"auto", "bootstrap", False}, default "auto"
            Source of standard errors. ``"auto"``: the delta method, posterior draws, or refits to
            the replicates of a survey, whichever the fit has; if it has none, the note says why.
            ``"bootstrap"``: refits to rows drawn with replacement, or for networks draws of their
            tables from Dirichlet posteriors. False: no standard errors.
        level : float, default 0.95
            Coverage of the intervals.
        nboot : int, default 200
            Refits or draws of ``se="bootstrap"``.
        seed : int or numpy.random.Generator, default 0
            For the bootstrap, and the draws of class shares of a posterior.
        n_jobs : int, optional
            Threads of refits; results do not depend on it.
        verbose : int, default 1
            0 for no progress bar.

        Returns
        -------
        Effects
            Standard errors take the distribution of the predictors as fixed. Missing cells are
            summed out as in ``predict``.

        Raises
        ------
        OptionError
            If a predictor, level, or the bootstrap of this kind of model, does not exist.
        DataError
            If the model has no training rows and neither `newdata` nor `grid` is given.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
        >>> fit.avg_predictions(by="Sex").frame[["group", "Sex", "estimate", "std_error"]].round(3)
          group     Sex  estimate  std_error
        0    No  Female     0.259      0.017
        1   Yes  Female     0.741      0.017
        2    No    Male     0.790      0.010
        3   Yes    Male     0.210      0.010
        """
        contrasts = make_prediction_contrasts(self.labels, variables)
        rows = make_effect_rows(self, newdata, weights, grid, by, is_rowwise=False)
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    @check_keywords
    def comparisons(
        self,
        variables: object = None,
        contrast: object = "reference",
        transform: str = "difference",
        newdata: object = None,
        grid: object = None,
        *,
        cross: bool = False,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return comparisons of levels of predictors in each row, with standard errors.

        Parameters
        ----------
        variables, contrast, transform, newdata, grid, cross, se, level, nboot, seed, n_jobs,
        verbose
            As in `avg_comparisons`.

        Returns
        -------
        Effects
            The frame has a column ``row``, the label of the row.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
        >>> effects = fit.comparisons("Sex", grid={"Class": ["1st", "3rd"]})
        >>> effects.frame[["group", "row", "estimate", "std_error"]].round(3)
          group  row  estimate  std_error
        0    No    0     0.637      0.038
        1   Yes    0    -0.637      0.038
        2    No    1     0.281      0.039
        3   Yes    1    -0.281      0.039
        """
        contrasts = make_comparison_contrasts(
            self.labels, variables, contrast, transform, flag("cross", cross)
        )
        rows = make_effect_rows(self, newdata, None, grid, by=None, is_rowwise=True)
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    @check_keywords
    def avg_comparisons(
        self,
        variables: object = None,
        contrast: object = "reference",
        transform: str = "difference",
        by: object = None,
        newdata: object = None,
        grid: object = None,
        *,
        cross: bool = False,
        weights: Hashable | ArrayLike = None,
        se: str | bool = "auto",
        level: float = 0.95,
        nboot: int = 200,
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> Effects:
        """Return comparisons of levels of predictors, on the scale of average probabilities, with
        standard errors.

        Every row is set to the one level and to the other, all else being as it is; the two average
        probabilities of each group are compared.

        Parameters
        ----------
        variables : name, list of names, or dict of name to pairs or contrast, optional
            Predictors whose levels are compared; all by default. In a dict the value of a predictor
            is a pair (high, low) of its levels, a list of such pairs, or a name that `contrast`
            takes.
        contrast : {"reference", "pairwise", "sequential"} or (high, low), default "reference"
            "reference": each level against the first one. "pairwise": all pairs of levels.
            "sequential": each level against the one before. (high, low): one pair of levels.
        transform : {"difference", "ratio", "lift", "lnoddsratio"}, default "difference"
            Comparison of the average probabilities; "lift" is (high - low) / low, the ratio less 1.
        by, newdata, grid, weights, se, level, nboot, seed, n_jobs, verbose
            As in `avg_predictions`.
        cross : bool, default False
            Whether contrasts of the predictors are contrasted with each other: differences of
            differences, ratios of ratios.

        Returns
        -------
        Effects
            Standard errors take the distribution of the predictors as fixed. Intervals and tests
            are Wald's, on the scale of the estimate; with draws and bootstrap refits intervals are
            percentiles. The column ``note`` says where an interval cannot be given, or may not hold
            its level.

        Raises
        ------
        OptionError
            If a predictor, level, or the bootstrap of this kind of model, does not exist.
        DataError
            If the model has no training rows and neither `newdata` nor `grid` is given.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Age", titanic, weights="Freq", method="ml")
        >>> effects = fit.avg_comparisons({"Class": ("3rd", "1st")}, by="Sex")
        >>> effects.frame[["group", "contrast", "Sex", "estimate"]].round(3)
          group   contrast     Sex  estimate
        0    No  3rd - 1st  Female     0.505
        1   Yes  3rd - 1st  Female    -0.505
        2    No  3rd - 1st    Male     0.170
        3   Yes  3rd - 1st    Male    -0.170
        """
        contrasts = make_comparison_contrasts(
            self.labels, variables, contrast, transform, flag("cross", cross)
        )
        rows = make_effect_rows(self, newdata, weights, grid, by, is_rowwise=False)
        return find_effects(
            self, contrasts, rows, ErrorOptions(se, level, nboot, seed, n_jobs, verbose)
        )

    def _effects_part(self, newdata: object, weights: Any) -> Part:
        """Return the report's section on effects: a table and a figure, or why there are none.

        `newdata` are the rows to average over, None for the training rows; `weights` are theirs.
        """
        predictors = list(self.labels.names)
        # only training rows are limited; without them and without newdata, avg_comparisons raises
        # the error that is shown
        n_rows = self.training.n if newdata is None and self.training is not None else 0
        if n_rows * len(predictors) > MAX_REPORTED:
            return Part(
                "Effects",
                ["Too many rows to compute effects for the report; call avg_comparisons()."],
            )
        try:
            # None for a model without predictors, which the error then names; [] would be refused
            # as an empty list
            effects = self.avg_comparisons(
                predictors[:MAX_COMPARED] or None, newdata=newdata, weights=weights
            )
        except BBLError as error:
            return Part("Effects", [f"Not available: {error}"])
        texts = [
            "The probability that each group would have if every row had the given level of a "
            "predictor, compared with its first level, all else unchanged. Largest differences "
            "come first."
        ]
        if len(predictors) > MAX_COMPARED:
            texts.append(
                f"Only the first {MAX_COMPARED} of {len(predictors)} predictors are compared."
            )
        effects = effects.strongest_first()
        alt_text = (
            "Differences in probability with their intervals. The numbers are in the table above."
        )
        figure = figure_html(
            effects.plot()[0].figure,
            alt_text,
            "Differences in probability, with intervals where available.",
        )
        return Part("Effects", texts, [effects.as_html(), figure])
