"""SampleResults, GroupParameters, MLEstimate: results of sampling and of fits to one group.

Predictor i has L_i levels; D is the total number of non-reference levels. The energy of a row x in
group y is ``E_y(x) = sum_i h_i(x_i) + sum_(i<j) J_ij(x_i, x_j)`` (plus couplings of larger terms).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.design.labels import Labels
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.report import text
from bbl.report.machine import plot
from bbl.report.machine.summary import Summary, estimate_summary
from bbl.report.machine.tables import Coefficients, Named
from bbl.results.deprecated import Deprecated, DeprecatedNames

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GroupParameters", "MLEstimate", "SampleResults", "tables_memory"]

TABLE_BYTES = 320.0  # approximate memory of a small coupling table in a dict, with its key


@dataclass(frozen=True, repr=False)
class SampleResults:
    """Result of Gibbs sampling from the predictor distribution of each group, as returned by
    `bbl.mcSample`.

    Attributes
    ----------
    xmax : DataFrame
        Most probable configuration visited, as levels: predictors (rows) by groups (columns).
    emax : Series
        Energy ``E_y(x)`` of this configuration x in each group y.
    rhat, ess : Series, or None
        Split R-hat and effective sample size of the energy in each group; None unless draws were
        requested.
    draws : dict of DataFrame, or None
        The draws of each group; None unless they were requested.
    labels : Labels
        Names of the K groups, the m predictors and their levels.
    codes : ndarray, shape (K, m)
        `xmax` as level codes.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> sampled = bbl.mcSample(fit, nsteps=100, seed=1)
    >>> sampled.xmax["Yes"].to_dict()
    {'Class': 'Crew', 'Sex': 'Male', 'Age': 'Adult'}
    >>> sampled.emax.round(3).to_dict()
    {'No': 5.118, 'Yes': 0.295}
    """

    xmax: pd.DataFrame
    emax: pd.Series
    rhat: pd.Series | None
    ess: pd.Series | None
    draws: dict[Any, pd.DataFrame] | None
    labels: Labels
    codes: np.ndarray

    def plot(
        self,
        shape: tuple[int, int] | None = None,
        positions: ArrayLike | None = None,
        axes: Sequence[Axes] | None = None,
    ) -> list[Axes]:
        """Draw `xmax` of each group as an image (Figure 7 of Woo & Wang 2022).

        Parameters
        ----------
        shape : (int, int), optional
            Numbers of rows and columns of the image. The default is a square if the number of
            predictors is a square number, and otherwise a single row.
        positions : array_like of int, shape (m,), optional
            Pixel of each predictor, numbered row by row from 0; required if there are more pixels
            than predictors.
        axes : sequence of matplotlib Axes, optional
            One per group; a new figure by default.

        Returns
        -------
        list of matplotlib Axes

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> sampled = bbl.mcSample(fit, nsteps=100, seed=1)
        >>> [axis.get_title() for axis in sampled.plot()]
        ['No', 'Yes']
        >>> plt.close()
        """
        titles = list(self.labels.groups)
        names = self.labels.names
        return plot.plot_configurations(
            self.codes, shape=shape, positions=positions, axes=axes, titles=titles, names=names
        )

    def __repr__(self) -> str:
        return text.sample_text(self.xmax, self.emax)


def tables_memory(layout: Layout) -> float:
    """Return the approximate memory, in bytes, of the tables and matrices in
    `GroupParameters._from_matrix`.
    """
    # three matrices (D, D) of 8-byte numbers: couplings as fitted, symmetrised, and copied; two
    # tables, (i, j) and (j, i), for each of `layout.count(2)` pairs
    return 24.0 * layout.D**2 + 2.0 * TABLE_BYTES * layout.count(2)


@dataclass(frozen=True, repr=False)
class GroupParameters(Named, DeprecatedNames):
    """Fields and couplings of one group. As in R, ``par["h"]`` is the same as ``par.h``.

    Attributes
    ----------
    h : list of ndarray, shape (L_i - 1,)
        Fields of the non-reference levels of each predictor.
    J : dict of (i, j) to ndarray, shape (L_i - 1, L_j - 1)
        Couplings of every interacting ordered pair, and of larger terms.

    Examples
    --------
    >>> import bbl
    >>> par = bbl.randompar([[0, 1, 2]] * 3, seed=1)
    >>> len(par.h), par.J[0, 1].shape
    (3, (2, 2))
    >>> par["h"] is par.h
    True
    """

    h: list[np.ndarray]
    J: dict[tuple[int, ...], np.ndarray]

    from_matrix = Deprecated("_from_matrix")

    @classmethod
    def _from_matrix(cls, layout: Layout, h: np.ndarray, J: np.ndarray, **attributes: Any) -> Self:
        """Return the parameters with fields `h` (D,) and couplings `J` (D, D).

        Coupling tables are views of one copy of `J`, because models with many predictors have
        millions of them. `attributes` contains the additional attributes of a subclass.
        ``layout.mask`` (m, m) marks interacting predictors, and ``layout.start[i]:layout.start[i +
        1]`` are the columns of predictor i.
        """
        level_slices = [slice(start, stop) for start, stop in itertools.pairwise(layout.start)]
        coupling_matrix = J.copy()
        (first_predictors, second_predictors) = np.nonzero(layout.mask)
        tables: dict[tuple[int, ...], np.ndarray] = {
            (i, j): coupling_matrix[level_slices[i], level_slices[j]]
            for i, j in zip(first_predictors.tolist(), second_predictors.tolist(), strict=True)
        }
        return cls([h[level_slice].copy() for level_slice in level_slices], tables, **attributes)

    def __repr__(self) -> str:
        return text.group_text(self.h, self.J)


@dataclass(frozen=True, repr=False)
class MLEstimate(GroupParameters):
    """A model fitted to integer codes of one group, as returned by `bbl.mlestimate`.

    Attributes
    ----------
    h, J
        As in `GroupParameters`.
    lkh : float
        Maximised objective per observation, summed over predictors.
    lz : float
        ln Z.
    converged : bool
    n_iter : ndarray of int, shape (m,)
        Number of iterations for each predictor.
    sd_h, sd_J : as `h` and `J`, or None
        Posterior standard deviations; if given, `h` and `J` are posterior means. None if the
        method has no posterior.
    history : DataFrame or None
        Convergence history of the fit, if the method records one.

    Examples
    --------
    >>> import numpy as np
    >>> import bbl
    >>> rows = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]])
    >>> par = bbl.mlestimate(rows, lambda_=0.0)
    >>> par.converged, round(par.lz, 3), par.J[0, 1].round(3).tolist()
    (True, 1.609, [[0.693]])
    """

    lkh: float = 0.0
    lz: float = 0.0
    converged: bool = True
    n_iter: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))
    sd_h: list[np.ndarray] | None = None
    sd_J: dict[tuple[int, ...], np.ndarray] | None = None
    history: pd.DataFrame | None = None

    def coef(self) -> Coefficients:
        """Return the coefficients by position and code: ``.h["all"][i]``, ``.J["all"][i, j]``,
        ``.to_frame()``.

        If there are two estimates of a coupling (``symmetrize=False``), their mean is returned (eq.
        18 of Woo & Wang 2022).

        Examples
        --------
        >>> import numpy as np
        >>> import bbl
        >>> rows = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]])
        >>> bbl.mlestimate(rows, lambda_=0.0).coef().to_frame()[["predictor", "estimate"]].round(3)
          predictor  estimate
        0         0     0.000
        1         1     0.000
        2         0     0.693
        """
        levels = tuple(tuple(range(len(h) + 1)) for h in self.h)
        labels = Labels(None, ("all",), tuple(range(len(self.h))), levels)
        layout = self._layout()
        return Coefficients(labels, Parameters(layout, self._vector(layout, self.h, self.J)[None]))

    def _layout(self) -> Layout:
        """Return the layout of the predictors and pairs."""
        pairs = [term for term in self.J if term[0] < term[1]]
        return Layout([len(h) + 1 for h in self.h], np.reshape(pairs, (-1, 2)).astype(np.intp))

    @staticmethod
    def _vector(
        layout: Layout, h: list[np.ndarray], J: dict[tuple[int, ...], np.ndarray]
    ) -> np.ndarray:
        """Return tables as a parameter vector (size,), where the two tables of each pair are
        averaged.
        """
        theta = np.zeros(layout.size)
        for i, fields in enumerate(h):
            layout.table(theta, i)[...] = fields
        for i, j in layout.pairs.tolist():
            layout.table(theta, i, j)[...] = 0.5 * (J[i, j] + J[j, i].T)
        return theta

    def summary(self) -> Summary:
        """Summarise the fit: key statistics, fields and the largest couplings.

        Returns
        -------
        Summary
            Can be displayed as text, HTML or LaTeX; the attribute ``tables`` contains the tables.
            With a posterior, standard deviations are shown next to the estimates.

        Examples
        --------
        >>> import numpy as np
        >>> import bbl
        >>> rows = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]])
        >>> bbl.mlestimate(rows, lambda_=0.1).summary()
        Call:
         mlestimate(xi)
        <BLANKLINE>
        Predictors: 2
        Parameters: 3
        Objective per observation: -1.335881
        ln Z: 1.744964
        Iterations: 4
        Converged: yes
        <BLANKLINE>
        parameters:
        fields h:
               estimate
        0 = 1 0.2548584
        1 = 1 0.2548584
        <BLANKLINE>
        couplings J:
                      estimate
        0 = 1, 1 = 1 0.2534878
        """
        frame = self.coef().to_frame()
        if self.sd_h is not None and self.sd_J is not None:
            layout = self._layout()
            frame["sd"] = self._vector(layout, self.sd_h, self.sd_J)
        facts: dict[str, Any] = {
            "Predictors": len(self.h),
            "Parameters": len(frame),
            "Objective per observation": self.lkh,
            "ln Z": self.lz,
        }
        if len(self.n_iter):
            facts["Iterations"] = int(self.n_iter.max())
        facts["Converged"] = "yes" if self.converged else "no"
        return estimate_summary("Call:\n mlestimate(xi)", facts, frame)

    def __repr__(self) -> str:
        return text.group_text(
            self.h, self.J, {"lkh": self.lkh, "lz": self.lz, "converged": self.converged}
        )
