"""NumbersMixin: methods of fitted Boltzmann machines for numeric predictors."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from bbl.checks import check_keywords
from bbl.design.numbers import NumberFactor
from bbl.errors import DataError, OptionError
from bbl.model.location import singular_number
from bbl.report.canvas import group_numbers
from bbl.report.machine.numbers import covariance_frame, mean_frame
from bbl.report.machine.plot_numbers import (
    ellipse_points,
    plot_discriminants,
    plot_means,
    plot_regions,
)
from bbl.report.text import distinct_names, label_text
from bbl.results.machine.machine import MachineResults
from bbl.stats.student import t_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["NumbersMixin"]

COUPLING_COLUMNS = [
    "group",
    "predictor",
    "level",
    "predictor2",
    "level2",
    "kind",
    "estimate",
    "averaged",
]

GRID = 300  # points of each axis at which decision regions are computed


@dataclass(frozen=True, repr=False)
class NumbersMixin(MachineResults):
    """The location model of numeric predictors: means and covariances."""

    @check_keywords
    def means(self) -> pd.DataFrame:
        """Return the coefficients of the means of the numeric predictors.

        Returns
        -------
        DataFrame
            A row for each ``number`` and ``term``, and a column for each group. The terms are the
            ``mean`` at the reference levels and, for each other level, the difference from this
            mean. A numeric predictor without interactions with categorical predictors has only the
            ``mean``. With ``transform="normal"``, these are means of the normal scores.

        Raises
        ------
        DataError
            If no predictor is numeric.

        Examples
        --------
        >>> import bbl
        >>> data = {"y": ["a", "a", "a", "b", "b", "b"], "u": [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]}
        >>> bbl.bbl("y ~ u", data, numeric="u").means().round(2).loc["u"].T
        term  mean
        a     2.33
        b     4.67
        """
        return mean_frame(self.labels, self._location(), self.design.number_centers)

    @check_keywords
    def covariances(self, group: Hashable = None) -> pd.DataFrame:
        """Return the covariance of the numeric predictors given the levels of the others.

        Parameters
        ----------
        group : group, optional
            A single group. By default, all groups are returned, as the first level of the index.

        Raises
        ------
        DataError
            If no predictor is numeric.
        OptionError
            If the group is unknown.

        Examples
        --------
        >>> import bbl
        >>> data = {"y": ["a", "a", "a", "b", "b", "b"], "u": [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]}
        >>> bbl.bbl("y ~ u", data, numeric="u").covariances("b").round(2)
              u
        u  2.33
        """
        location = self._location()
        if group is not None:
            return covariance_frame(self.labels, location, group_numbers(self.labels, [group])[0])
        numbers = [self.labels.names[i] for i in location.model.numbers]
        return pd.concat(
            {
                name: covariance_frame(self.labels, location, g)
                for g, name in enumerate(self.labels.groups)
            },
            names=distinct_names([*numbers, "group", "number"])[-2:],
        )

    @check_keywords
    def conditional_couplings(self) -> pd.DataFrame:
        """Return the interactions of pairs of predictors given all others, including numeric
        predictors.

        In contrast, the couplings in ``coef()`` and ``interactions()`` describe the distribution of
        the categorical predictors, averaged over the numeric predictors. If two categorical
        predictors shift the mean of the same numeric predictor, this contributes to their coupling.
        Here, this part is subtracted.

        Returns
        -------
        DataFrame
            A row for each group and pair of levels or predictors, with the columns ``group``,
            ``predictor``, ``level``, ``predictor2``, ``level2`` (missing for numeric predictors),
            ``kind``, ``estimate`` and ``averaged``. Kinds: "coupling" of two levels, where
            ``estimate`` holds numeric predictors fixed and ``averaged`` averages over them;
            "slope", the change of the field of a level per unit of a numeric predictor; and
            "partial correlation" of two numeric predictors given all other predictors.

        Raises
        ------
        DataError
            If no predictor is numeric.

        Examples
        --------
        >>> import bbl
        >>> passengers = bbl.datasets.load_titanic_passengers()
        >>> formula = "Survived ~ (Sex + Class + Age)^2"
        >>> fit = bbl.bbl(formula, passengers, numeric="Age", missing="drop", lambda_=0.0)
        >>> frame = fit.conditional_couplings().query("group == 'No' and kind == 'coupling'")
        >>> frame[["level", "level2", "estimate", "averaged"]].round(2)
          level level2  estimate  averaged
        0  Male    2nd     -0.27     -0.47
        1  Male    3rd     -1.36     -1.69
        """
        location = self._location()
        model = location.model
        layout = self.estimate.parameters.layout
        theta = self.estimate.parameters.theta
        names = self.labels.names
        levels = self.labels.levels
        # missing keys become missing values
        rows: list[dict[str, Any]] = []

        for g, group in enumerate(self.labels.groups):
            L = location.precision[g]
            for i, j in itertools.combinations(model.categories.tolist(), 2):
                added = location.level_couplings(i, j)[g]
                has_coupling = layout.index(i, j) >= 0
                if not (has_coupling or (i in model.used and j in model.used)):
                    continue
                J = layout.table(theta[g], i, j) if has_coupling else np.zeros_like(added)
                rows += [
                    {
                        "group": group,
                        "predictor": names[i],
                        "level": levels[i][1 + a],
                        "predictor2": names[j],
                        "level2": levels[j][1 + b],
                        "kind": "coupling",
                        "estimate": coupling - added[a, b],
                        "averaged": coupling,
                    }
                    for (a, b), coupling in np.ndenumerate(J)
                ]
            for i in model.used.tolist():
                rows += [
                    {
                        "group": group,
                        "predictor": names[i],
                        "level": levels[i][1 + a],
                        "predictor2": names[model.numbers[k]],
                        "kind": "slope",
                        "estimate": slope,
                    }
                    for (a, k), slope in np.ndenumerate(location.effects(i)[g] @ L)
                    if slope
                ]
            rows += [
                {
                    "group": group,
                    "predictor": names[model.numbers[k]],
                    "predictor2": names[model.numbers[h]],
                    "kind": "partial correlation",
                    "estimate": -L[k, h] / np.sqrt(L[k, k] * L[h, h]),
                }
                for k, h in itertools.combinations(range(model.q), 2)
                if model.correlated[k, h]
            ]
        return pd.DataFrame(rows, columns=COUPLING_COLUMNS)

    @check_keywords
    def plot_means(self, axes: Any = None) -> list[Axes]:
        """Draw the mean of each numeric predictor in each group, with its 95 % t interval unless
        the fit has a sampling design.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            One for each numeric predictor; a new figure by default.

        Returns
        -------
        list of matplotlib Axes

        Raises
        ------
        DataError
            If no predictor is numeric.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> data = {"y": ["a", "a", "a", "b", "b", "b"], "u": [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]}
        >>> (axis,) = bbl.bbl("y ~ u", data, numeric="u").plot_means()
        >>> axis.get_title()
        'u'
        >>> plt.close()
        """
        location = self._location()
        n, means, products = location.group_means()
        squares = np.maximum(products.diagonal(0, 1, 2), 0.0)
        if location.scores is None:
            means = means + self.design.number_centers
        df = np.maximum(n - 1.0, 1.0)
        quantiles = t_quantile(0.975, df)
        half_width = quantiles[:, None] * np.sqrt(squares / (df * np.maximum(n, 1.0))[:, None])
        if self.survey is not None:  # these intervals assume independently sampled rows
            half_width[:] = np.nan
        rows = []
        for j, i in enumerate(location.model.numbers):
            for g in np.flatnonzero(n > 1.0):
                group = label_text(self.labels.groups[g])
                limits = (means[g, j] - half_width[g, j], means[g, j] + half_width[g, j])
                rows.append((label_text(self.labels.names[i]), group, means[g, j], *limits))
        return plot_means(
            pd.DataFrame(rows, columns=["number", "group", "mean", "low", "high"]), axes
        )

    @check_keywords
    def plot_regions(self, x: Hashable, y: Hashable, ax: Axes | None = None) -> Axes:
        """Draw the decision regions of two numeric predictors, i.e. the regions where each group is
        the most probable.

        The other predictors are set to their first level or their mean. If the model contains the
        training rows, they are shown as points. Each ellipse contains 95 % of the distribution of a
        group at these levels.

        Parameters
        ----------
        x, y : names of two numeric predictors
        ax : matplotlib Axes, optional

        Raises
        ------
        DataError
            If no predictor is numeric.
        OptionError
            If `x` or `y` is not a numeric predictor of the model.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> data = {
        ...     "y": ["a", "a", "a", "a", "b", "b", "b", "b"],
        ...     "u": [1.0, 2.0, 4.0, 2.0, 3.0, 5.0, 6.0, 4.0],
        ...     "v": [2.0, 1.0, 2.0, 1.5, 4.0, 3.0, 5.0, 2.0],
        ... }
        >>> axis = bbl.bbl("y ~ u*v", data, numeric=True).plot_regions("u", "v")
        >>> axis.get_xlabel()
        'u'
        >>> plt.close()
        """
        location = self._location()
        numbers = [self.labels.names[i] for i in location.model.numbers]
        for argument, name in (("x", x), ("y", y)):
            if name not in numbers:
                raise OptionError(
                    f"{argument}={name!r} is not a numeric predictor.",
                    argument=argument,
                    hint=f"Choose from {', '.join(map(repr, numbers))}.",
                )
        pair = [numbers.index(x), numbers.index(y)]
        positions = location.model.numbers[pair]
        factors = [cast(NumberFactor, self.design.predictors[i]) for i in positions]
        rows = self.training
        points = np.zeros((0, 2)) if rows is None else rows.codes[:, positions]
        ellipses = [
            None
            if location.scores is not None or location.n[g] == 0.0
            else (location.C[g, 0, pair], location.S[g][np.ix_(pair, pair)])
            for g in range(len(location.n))
        ]
        # the range of the rows and of the ellipses; of the training rows if there are neither
        shown = [points, *(ellipse_points(*own) for own in ellipses if own is not None)]
        spread = np.array([factor.sd for factor in factors])
        ends = np.vstack(shown) if sum(map(len, shown)) else np.outer([-2.5, 2.5], spread)
        low = ends.min(axis=0) - 0.15 * spread
        high = ends.max(axis=0) + 0.15 * spread
        axes = [np.linspace(a, b, GRID) for a, b in zip(low, high, strict=True)]
        codes = np.zeros((GRID * GRID, len(self.design.predictors)))
        codes[:, positions[0]] = np.tile(axes[0], GRID)
        codes[:, positions[1]] = np.repeat(axes[1], GRID)
        scores = self._class_scores(codes)
        centers = np.array([factor.center for factor in factors])
        return plot_regions(
            (axes[0] + centers[0], axes[1] + centers[1]),
            scores.argmax(axis=1).reshape(GRID, GRID),
            points + centers,
            np.zeros(0, dtype=int) if rows is None else rows.response,
            [own if own is None else (own[0] + centers, own[1]) for own in ellipses],
            (label_text(x), label_text(y)),
            [label_text(group) for group in self.labels.groups],
            ax,
        )

    @check_keywords
    def discriminants(self) -> pd.DataFrame:
        """Return the coefficients of the linear discriminants of the numeric predictors, like R's
        ``lda``.

        The first discriminant is the linear combination of the numeric predictors with the largest
        ratio of between-group to within-group variance. Each subsequent discriminant has the
        largest ratio among the combinations that are uncorrelated, within groups, with the previous
        ones. All discriminants have a within-group variance of 1. Levels of other predictors are
        not taken into account.

        Returns
        -------
        DataFrame
            A row for each numeric predictor, and a column for each discriminant (LD1, LD2, ...).
            The sign of each discriminant is chosen so that its largest coefficient, relative to the
            standard deviation of the predictor, is positive.

        Raises
        ------
        DataError
            If no predictor is numeric, the model does not have classes, or numeric predictors are
            linearly dependent.

        Examples
        --------
        >>> import bbl
        >>> data = {"y": ["a", "a", "a", "b", "b", "b"], "u": [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]}
        >>> bbl.bbl("y ~ u", data, numeric="u").discriminants().round(3)
             LD1
        u  0.655
        """
        found = self._discriminants()
        numbers = [self.labels.names[i] for i in self._location().model.numbers]
        return pd.DataFrame(
            found.coefficients, index=pd.Index(numbers, dtype=object), columns=found.names
        )

    @check_keywords
    def plot_discriminants(self, ax: Axes | None = None) -> Axes:
        """Draw rows and groups on the linear discriminants of the numeric predictors (see
        `discriminants`).

        If the model contains the training rows, they are shown as points on the first two
        discriminants. A plus sign marks the mean of each group, and an ellipse contains 95 % of its
        normal distribution. With a single discriminant, e.g. for two groups, the figure shows
        histograms and normal densities. The origin is the mean of all rows. The percentages in the
        axis labels are proportions of the between-group variance.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        DataError
            If no predictor is numeric, or the model does not have classes.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> data = {"y": ["a", "a", "a", "b", "b", "b"], "u": [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]}
        >>> axis = bbl.bbl("y ~ u", data, numeric="u").plot_discriminants()
        >>> axis.get_xlabel()
        'LD1'
        >>> plt.close()
        """
        location = self._location()
        found = self._discriminants()
        V = found.coefficients
        n, means, products = location.group_means()
        is_shared = location.model.covariance == "shared"
        ellipses: list[tuple[np.ndarray, np.ndarray] | None] = []
        for g, total in enumerate(n):
            if total == 0.0:
                ellipses.append(None)
                continue
            # within groups, discriminants are uncorrelated and have the variance 1
            S = np.eye(V.shape[1]) if is_shared else V.T @ products[g] @ V / max(total - 1.0, 1.0)
            ellipses.append(((means[g] - found.origin) @ V, S))
        rows = self.training
        points = np.zeros((0, V.shape[1]))
        if rows is not None:
            points = (location.numbers(rows.codes) - found.origin) @ V
        return plot_discriminants(
            points,
            np.zeros(0, dtype=int) if rows is None else rows.response,
            ellipses,
            found.labels,
            [label_text(group) for group in self.labels.groups],
            ax,
        )

    def _discriminants(self) -> _Discriminants:
        """Return the linear discriminants. Raises a DataError if the model does not have
        classes.
        """
        from scipy.linalg import eigh

        location = self._location()
        if len(self.labels.groups) < 2:
            raise DataError(
                "Discriminants separate classes, but the formula has no response.",
                hint="Use a formula with a response.",
            )
        n, means, products = location.group_means()
        within = products.sum(axis=0)
        overall = n @ means / n.sum()
        between = (n[:, None] * (means - overall)).T @ (means - overall)
        n_groups = int((n > 0.0).sum())
        within /= n.sum() - n_groups
        scale = np.sqrt(within.diagonal())
        j = singular_number(within, within.diagonal(), np.ones_like(within, dtype=bool))
        if j is not None:
            name = self.labels.names[location.model.numbers[j]]
            raise DataError(
                f"Column {name!r} is constant within groups, or a linear function of the other "
                "numeric predictors, so there are no discriminants.",
                column=name,
                hint=f"Leave {name!r} out of the formula.",
            )
        values, vectors = eigh(between / np.outer(scale, scale), within / np.outer(scale, scale))
        r = min(location.model.q, n_groups - 1)
        vectors = vectors[:, ::-1][:, :r]
        variances = np.maximum(values[::-1][:r], 0.0)
        largest = np.abs(vectors).argmax(axis=0)
        vectors = vectors * np.sign(vectors[largest, np.arange(r)])
        return _Discriminants(
            names=[f"LD{k + 1}" for k in range(r)],
            coefficients=vectors / scale[:, None],
            origin=overall,
            shares=variances / max(variances.sum(), 1e-300),
        )


@dataclass(frozen=True, eq=False)
class _Discriminants:
    """Linear discriminants ``(u - origin) @ coefficients`` of q numeric predictors u.

    Attributes
    ----------
    names : list of r str
    coefficients : ndarray, shape (q, r)
    origin : ndarray, shape (q,)
        Mean of all rows.
    shares : ndarray, shape (r,)
        Proportion of the between-group variance explained by each discriminant.
    """

    names: list[str]
    coefficients: np.ndarray
    origin: np.ndarray
    shares: np.ndarray

    @property
    def labels(self) -> list[str]:
        """Names of the discriminants with their proportions in percent, if there are several."""
        if len(self.names) == 1:
            return self.names
        shares = [f"{100.0 * share:.1f} %" for share in self.shares]
        return [f"{name} ({share})" for name, share in zip(self.names, shares, strict=True)]
