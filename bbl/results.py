"""Results: what the verbs return; frozen, each method only arranges what the rooms below compute."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, real
from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.design.sample import Sample
from bbl.engines import Engine
from bbl.estimate import Estimate
from bbl.model.energy import Energy
from bbl.model.inference import likelihood_ratio
from bbl.model.layout import Layout
from bbl.model.moments import level_counts
from bbl.model.parameters import Parameters
from bbl.model.predict import class_scores, link, log_probabilities
from bbl.report import plot, text
from bbl.report.summary import Summary, fit_summary
from bbl.report.tables import Coefficients

__all__ = ["BBLResults", "CVResults", "GroupParameters", "LogLikelihood", "MLEstimate", "SampleResults"]

TYPES = ("link", "prob", "class")


class LogLikelihood(float):
    """A log-likelihood: a float that knows its degrees of freedom and number of observations."""

    df: int
    nobs: int

    def __new__(cls, value: float, df: int, nobs: int):
        self = super().__new__(cls, value)
        self.df, self.nobs = df, nobs
        return self

    def __repr__(self) -> str:
        return f"'log Lik.' {float(self):.7g} (df={self.df})"


@dataclass(frozen=True, repr=False)
class BBLResults:
    """A fitted Boltzmann Bayes learner; made by `bbl.bbl`.

    Attributes
    ----------
    call : str
        The call that made it.
    design : Design
        Formula, factors and their levels: encodes new data like the training data.
    sample : Sample
        The encoded training rows.
    index : pandas.Index
        Labels of the training rows (those of positive weight).
    engine : Engine
        The inference method and its options.
    estimate : Estimate
        Parameters, ln Z and convergence of every group.
    """

    call: str
    design: Design
    sample: Sample
    index: pd.Index
    engine: Engine
    estimate: Estimate

    @property
    def labels(self) -> Labels:
        """Names of the response, its groups, the predictors and their levels."""
        return self.design.labels

    @property
    def params(self) -> Parameters:
        """Parameters of all groups as plain arrays."""
        return self.estimate.parameters

    @property
    def log_z(self) -> pd.Series:
        """ln Z of each group."""
        return pd.Series(self.estimate.log_z, index=list(self.labels.groups), name="log_z")

    @property
    def lkh(self) -> float:
        """The maximised (penalised) objective, summed over predictors and observations of all groups."""
        return self.estimate.lkh

    @property
    def df(self) -> int:
        """Number of parameters of one group (eq. 7, for the pairs of the model)."""
        return self.params.layout.size

    @property
    def converged(self) -> bool:
        """Whether every predictor of every group reached its optimum."""
        return self.estimate.converged

    @property
    def formula(self) -> str:
        """The formula as it was given."""
        return self.design.terms.text

    @property
    def weights(self) -> pd.Series:
        """Frequency weights of the training rows."""
        return pd.Series(self.sample.weights, index=self.index, name="weights")

    @property
    def model_frame(self) -> pd.DataFrame:
        """The training rows as the model sees them: the response and the predictors, as categories."""
        columns = {self.labels.response: (self.sample.y, self.labels.groups)}
        for i, (name, levels) in enumerate(zip(self.labels.names, self.labels.levels, strict=True)):
            columns[name] = (self.sample.codes[:, i], levels)
        return pd.DataFrame(
            {
                k: pd.Categorical.from_codes(codes.astype(np.intp), pd.Index(levels, dtype=object))
                for k, (codes, levels) in columns.items()
            },
            index=self.index,
        )

    @cached_property
    def _energy(self) -> Energy:
        return Energy(self.params.layout, self.params.theta)

    def _scores(self, codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
        return class_scores(self._energy(codes, unknown), self.estimate.log_z, self.estimate.prior)

    def coef(self) -> Coefficients:
        """Return the coefficients: ``.h[group][predictor]``, ``.J[group][a, b]``, ``.h0``, ``.J0``, ``.to_frame()``."""
        return Coefficients(self.labels, self.params)

    def tidy(self) -> pd.DataFrame:
        """Return all coefficients as a long frame, one row each."""
        return self.coef().to_frame()

    def predict(self, newdata=None, type: str = "link", unseen: str = "raise") -> pd.DataFrame | pd.Series:
        """Predict the response group of each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns; others are ignored. None for the training rows.
        type : {"link", "prob", "class"}, default "link"
            ``F_y(x)`` of eq. (29), the probabilities of eq. (28), or the most likely group alone.
        unseen : {"raise", "ignore"}, default "raise"
            Whether a level that the model does not know is an error, or its predictor is summed out in that row.

        Returns
        -------
        DataFrame or Series
            On the index of `newdata`: one column per group, then ``yhat``; for ``type="class"`` the groups alone.

        Raises
        ------
        DataError, LevelError
            If columns are missing, or values are missing or unknown; they are named.
        """
        choice("type", type, TYPES)
        choice("unseen", unseen, ("raise", "ignore"))
        if newdata is None:
            return self._frame(self._scores(self.sample.codes), type, self.index)
        codes, unknown = self.design.encode(newdata, unseen)
        return self._frame(self._scores(codes, unknown), type, self.design.index(newdata))

    def _frame(self, scores: np.ndarray, type: str, index: pd.Index) -> pd.DataFrame | pd.Series:
        groups = pd.Index(self.labels.groups, dtype=object)
        best = pd.Series(
            pd.Categorical.from_codes(scores.argmax(axis=1), groups.infer_objects()), index=index, name="yhat"
        )
        if type == "class":
            return best.rename(self.labels.response)
        values = link(scores) if type == "link" else np.exp(log_probabilities(scores))
        frame = pd.DataFrame(values, index=index, columns=groups)
        frame["yhat"] = best
        return frame

    def fitted(self) -> pd.DataFrame:
        """Return the probability of each group for the training rows."""
        return self.predict(type="prob").drop(columns="yhat")

    def residuals(self) -> pd.Series:
        """Return, as R does, 1 where the predicted group is the observed one and 0 elsewhere."""
        hit = self._scores(self.sample.codes).argmax(axis=1) == self.sample.y
        return pd.Series(hit.astype(int), index=self.index, name="residuals")

    @cached_property
    def _log_likelihood(self) -> float:
        energy = self._energy(self.sample.codes)[np.arange(self.sample.n), self.sample.y]
        return float(self.sample.weights @ (energy - self.estimate.log_z[self.sample.y]))

    def logLik(self) -> LogLikelihood:
        """Return ``sum_k w_k (E_y(x_k) - ln Z_y)``, with the parameters of all groups as its ``df``."""
        return LogLikelihood(self._log_likelihood, self.df * len(self.labels.groups), self.nobs())

    def nobs(self) -> int:
        """Return the number of observations: the sum of the weights."""
        return round(self.sample.total)

    @property
    def aic(self) -> float:
        """``-2 logLik + 2 df``. With an approximate ln Z or a penalty in force it only ranks like with like."""
        return -2.0 * self.logLik() + 2.0 * self.logLik().df

    @property
    def bic(self) -> float:
        """``-2 logLik + df ln(nobs)``; see `aic`."""
        return -2.0 * self.logLik() + np.log(self.nobs()) * self.logLik().df

    def summary(self, prior_count: float = 0.0) -> Summary:
        """Summarise the fit, and test each predictor by naive Bayes.

        Parameters
        ----------
        prior_count : float, default 0.0
            Pseudocount of the naive Bayes coefficients in the tables.

        Returns
        -------
        Summary
            Prints as text; has HTML and LaTeX forms and ``.tables``. The tests are the likelihood-ratio tests of
            eq. (27), for every predictor by itself.
        """
        c = real("prior_count", prior_count, 0.0)
        tests = likelihood_ratio(level_counts(self.sample, self.params.layout.n_levels), c)
        return fit_summary(self.call, self.labels, tests, self._facts())

    def _facts(self) -> dict[str, Any]:
        """Title and value of what the summary says about the fit."""
        log_lik = self.logLik()
        settings = ", ".join(f"{k} = {v}" for k, v in vars(self.engine).items())
        return {
            "Fit method": self.engine.name,
            "Settings": settings,
            "Observations": self.nobs(),
            "Parameters": log_lik.df,
            "Log-likelihood": float(log_lik),
            "AIC": self.aic,
            "BIC": self.bic,
            f"ln Z ({self.estimate.log_z_kind})": ", ".join(f"{g}: {z:.6g}" for g, z in self.log_z.items()),
            "Converged": "yes" if self.converged else "no",
        }

    def plot(self, axes=None):
        """Draw the fields as bars and the couplings of each group as a heat map (the paper's Figure 2).

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        list of matplotlib Axes
        """
        return plot.plot_parameters(self.labels, self.params, axes=axes)

    def __repr__(self) -> str:
        return text.fit_text(self.call, self.labels, self.params)


@dataclass(frozen=True, repr=False)
class CVResults:
    """Cross-validation; made by `bbl.crossVal`.

    Attributes
    ----------
    cvframe : DataFrame
        One row per setting: ``lambda`` or ``epsilon``, and ``AUC``, ``ci1``, ``ci2`` or ``score``.
    regstar : float
        The best setting.
    maxscore : float
        Its score.
    score : str
        Which score was taken.
    folds : list of ndarray
        Validated rows of each fold, as positions in the weight-expanded data, in the order they were pooled.
    pooled : DataFrame
        Validation predictions at `regstar`, fold by fold: the link of each group, ``yhat``, ``y``, ``weights``.
    model : BBLResults
        The refit on all rows at `regstar`, or R's fit of the last fold.
    """

    cvframe: pd.DataFrame
    regstar: float
    maxscore: float
    score: str
    folds: list[np.ndarray]
    pooled: pd.DataFrame
    model: BBLResults

    def predict(self, newdata=None, type: str = "link", unseen: str = "raise") -> pd.DataFrame | pd.Series:
        """Predict with `model`; see `BBLResults.predict`."""
        return self.model.predict(newdata, type, unseen)

    def plot(self, ax=None):
        """Draw the score against the setting (the paper's Figures 3, 5a, 6, 8); return the Axes."""
        return plot.plot_cv(self.cvframe, best=self.regstar, ax=ax)

    def __repr__(self) -> str:
        return text.cv_text(self.cvframe, self.regstar, self.maxscore)


@dataclass(frozen=True, repr=False)
class SampleResults:
    """Gibbs sampling of each group's predictor distribution; made by `bbl.mcSample`.

    Attributes
    ----------
    xmax : DataFrame
        Predictors by groups: the visited configuration of highest energy, as levels.
    emax : Series
        Its energy ``E_y``.
    rhat, ess : Series, or None
        Split R-hat and effective sample size of each group's energy, if draws were asked for.
    draws : dict of DataFrame, or None
        The draws of each group, if they were asked for.
    labels : Labels
    codes : ndarray, shape (K, m)
        `xmax` as level codes.
    """

    xmax: pd.DataFrame
    emax: pd.Series
    rhat: pd.Series | None
    ess: pd.Series | None
    draws: dict[Any, pd.DataFrame] | None
    labels: Labels
    codes: np.ndarray

    def plot(self, shape: tuple[int, int] | None = None, axes=None):
        """Draw `xmax` of each group as an image of the given shape (the paper's Figure 7); return the Axes."""
        return plot.plot_configurations(self.codes, shape=shape, titles=list(self.labels.groups), axes=axes)

    def __repr__(self) -> str:
        return text.sample_text(self.xmax, self.emax)


@dataclass(frozen=True)
class GroupParameters:
    """Fields and couplings of one group.

    Attributes
    ----------
    h : list of ndarray, shape (L_i - 1,)
        Fields of the non-reference levels.
    J : dict of (i, j) to ndarray, shape (L_i - 1, L_j - 1)
        Couplings of every interacting ordered pair.
    """

    h: list[np.ndarray]
    J: dict[tuple[int, int], np.ndarray] = field(repr=False)

    @classmethod
    def from_matrix(cls, layout: Layout, h: np.ndarray, J: np.ndarray, **more):
        """Cut fields (D,) and couplings (D, D) into tables."""
        cut = [slice(a, b) for a, b in itertools.pairwise(layout.start)]
        tables = {(int(i), int(j)): J[cut[i], cut[j]].copy() for i, j in np.argwhere(layout.mask)}
        return cls([h[c].copy() for c in cut], tables, **more)


@dataclass(frozen=True)
class MLEstimate(GroupParameters):
    """One group fitted from integer codes; made by `bbl.mlestimate`.

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
    """

    lkh: float = 0.0
    lz: float = 0.0
    converged: bool = True
    n_iter: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))
