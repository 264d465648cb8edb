"""BBLResults: a fitted model; each method only arranges what the rooms below compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.tuning import Tuning
from bbl.checks import choice, flag, real
from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.errors import DataError
from bbl.model.marginal import MarginalEnergy
from bbl.model.moments import level_counts
from bbl.model.parameters import Parameters
from bbl.report import text
from bbl.report.summary import Summary, fit_summary
from bbl.report.tables import Coefficients
from bbl.results.archives import pack
from bbl.results.figures import Figures
from bbl.results.uncertainty import Uncertainty
from bbl.rows.sample import Sample
from bbl.stats.likelihood_ratio import likelihood_ratio
from bbl.stats.scores import link, log_probabilities
from bbl.storage import write_model

__all__ = ["BBLResults", "LogLikelihood", "prediction_frame"]

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


def prediction_frame(
    scores: np.ndarray, groups: tuple, type: str, index: pd.Index, response: Any
) -> pd.DataFrame | pd.Series:
    """Return class scores (n, K) as R's frame of predictions, or the most likely groups alone."""
    columns = pd.Index(groups, dtype=object)
    codes = np.where(np.isnan(scores).any(axis=1), -1, scores.argmax(axis=1))
    best = pd.Series(pd.Categorical.from_codes(codes, columns.infer_objects()), index=index, name="yhat")
    if type == "class":
        return best.rename(response)
    values = link(scores) if type == "link" else np.exp(log_probabilities(scores))
    # not by assignment: a group may be called "yhat" itself
    return pd.concat([pd.DataFrame(values, index=index, columns=columns), best], axis=1)


@dataclass(frozen=True, repr=False)
class BBLResults(Figures, Uncertainty):
    """A fitted Boltzmann Bayes learner; made by `bbl.bbl`.

    Attributes
    ----------
    call : str
        The call that made it.
    design : Design
        Formula, factors and their levels: encodes new data like the training data.
    sample : Sample or None
        The encoded training rows; None in a model that was loaded from a file without them.
    index : pandas.Index or None
        Labels of the training rows (those of positive weight).
    engine : Engine
        The inference method and its options.
    estimate : Estimate
        Parameters, ln Z and convergence of every group.
    tuning : Tuning or None
        What cross-validation inside the fit found, if there was any.
    """

    call: str
    design: Design
    sample: Sample | None
    index: pd.Index | None
    engine: Engine
    estimate: Estimate
    tuning: Tuning | None = None

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

    def _rows(self) -> Sample:
        if self.sample is None:
            raise DataError(
                "This model was saved without its training rows; give newdata=, or save it with store_data=True."
            )
        return self.sample

    def _index(self) -> pd.Index:
        return pd.RangeIndex(self._rows().n) if self.index is None else self.index

    @property
    def weights(self) -> pd.Series:
        """Frequency weights of the training rows."""
        return pd.Series(self._rows().weights, index=self._index(), name="weights")

    @property
    def model_frame(self) -> pd.DataFrame:
        """The training rows as the model sees them: the response and the predictors, as categories.

        What was missing is missing here too with ``missing="marginal"``, and a level with ``missing="level"``; rows
        that were dropped are not here, nor in anything else that is told of the training rows.
        """
        rows = self._rows()
        columns = {self.labels.response: (rows.response, self.labels.groups)}
        codes = rows.codes if rows.missing is None else np.where(rows.missing, -1, rows.codes.astype(np.intp))
        for i, (name, levels) in enumerate(zip(self.labels.names, self.labels.levels, strict=True)):
            columns[name] = (codes[:, i], levels)
        return pd.DataFrame(
            {
                k: pd.Categorical.from_codes(codes.astype(np.intp), pd.Index(levels, dtype=object))
                for k, (codes, levels) in columns.items()
            },
            index=self._index(),
        )

    @cached_property
    def _energy(self) -> MarginalEnergy:
        return MarginalEnergy(self.params.layout, self.params.theta)

    def _scores(self, codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
        return self.estimate.class_scores(self._energy, codes, unknown)

    def _new_scores(self, newdata: Any, unseen: str) -> np.ndarray:
        """Class scores (n, K) of new rows; nan where the row is dropped."""
        scores = self._scores(*self.design.encode(newdata, unseen))
        if (dropped := self.design.dropped(newdata)) is not None:
            scores[dropped] = np.nan
        return scores

    def _own_scores(self) -> np.ndarray:
        """Class scores (n, K) of the training rows."""
        return self._scores(self._rows().codes, self._rows().missing)

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
            On the index of `newdata`: one column per group, then ``yhat``; for ``type="class"`` the groups alone. A
            missing value is treated as in the fit (`missing` of `bbl.bbl`): it is an error, is a level like others, is
            summed out, or (where the fit dropped such rows) its row is missing here.

        Raises
        ------
        DataError, LevelError
            If columns are missing, or values are missing in spite of the policy, or unknown; they are named.
        """
        choice("type", type, TYPES)
        choice("unseen", unseen, ("raise", "ignore"))
        if newdata is None:
            return self._frame(self._own_scores(), type, self._index())
        return self._frame(self._new_scores(newdata, unseen), type, self.design.index(newdata))

    def _frame(self, scores: np.ndarray, type: str, index: pd.Index) -> pd.DataFrame | pd.Series:
        return prediction_frame(scores, self.labels.groups, type, index, self.labels.response)

    def fitted(self) -> pd.DataFrame:
        """Return the probability of each group for the training rows."""
        return pd.DataFrame(self.predict(type="prob")).iloc[:, :-1]

    def residuals(self) -> pd.Series:
        """Return, as R does, 1 where the predicted group is the observed one and 0 elsewhere."""
        rows = self._rows()
        hit = self._own_scores().argmax(axis=1) == rows.response
        return pd.Series(hit.astype(int), index=self._index(), name="residuals")

    @cached_property
    def _log_likelihood(self) -> float:
        rows = self._rows()
        if rows.missing is not None:  # of a row of which nothing is known, the probability is one
            rows = rows.rows(~rows.missing.all(axis=1))
        energy = self._energy(rows.codes, rows.missing)[np.arange(rows.n), rows.response]
        return float(rows.weights @ (energy - self.estimate.log_z[rows.response]))

    def logLik(self) -> LogLikelihood:
        """Return ``sum_k w_k (E_y(x_k) - ln Z_y)``, with the parameters of all groups as its ``df``.

        With ``missing="marginal"`` it is the log-likelihood of what is known: missing predictors are summed out.
        """
        return LogLikelihood(self._log_likelihood, self.df * len(self.labels.groups), self.nobs())

    @cached_property
    def _counts(self) -> list[np.ndarray]:
        """Weighted counts (K, L_i) of every level: what summaries need of the training rows."""
        return level_counts(self._rows(), self.params.layout.n_levels, len(self.labels.groups))

    def nobs(self) -> int:
        """Return the number of observations: the sum of the weights."""
        return self._nobs

    @cached_property
    def _nobs(self) -> int:
        return round(self._rows().total)

    @property
    def aic(self) -> float:
        """``-2 logLik + 2 df``. With an approximate ln Z or a penalty in force it only ranks like with like."""
        return -2.0 * self.logLik() + 2.0 * self.logLik().df

    @property
    def bic(self) -> float:
        """``-2 logLik + df ln(nobs)``; see `aic`."""
        return float(-2.0 * self.logLik() + np.log(self.nobs()) * self.logLik().df)

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
        tests = likelihood_ratio(self._counts, c)
        return fit_summary(self.call, self.labels, tests, self._facts(), self._wald_sections())

    def _facts(self) -> dict[str, Any]:
        """Title and value of what the summary says about the fit."""
        log_lik = self.logLik()
        settings = ", ".join(
            f"{k} = {v:.7g}" if isinstance(v, float) else f"{k} = {v}" for k, v in vars(self.engine).items()
        )
        if self.tuning is not None and self.tuning.option is not None:
            settings += f"; {self.tuning.option} chosen by cross-validated log-loss"
        calibration = self.estimate.calibration
        return {
            "Fit method": self.engine.name,
            "Settings": settings,
            "Observations": self.nobs(),
            **({} if self.design.missing == "raise" else {"Missing values": self._missing_text()}),
            "Parameters": log_lik.df,
            "Log-likelihood": float(log_lik),
            "AIC": self.aic,
            "BIC": self.bic,
            f"ln Z ({self.estimate.log_z_kind})": ", ".join(f"{g}: {z:.6g}" for g, z in self.log_z.items()),
            "Calibration": "none"
            if calibration is None
            else f"temperature {calibration.temperature:.4g}, offsets "
            + ", ".join(f"{g}: {b:.4g}" for g, b in zip(self.labels.groups, calibration.offset, strict=True)),
            "Converged": "yes" if self.converged else "no",
        }

    def save(self, path, *, store_data: bool = False) -> None:
        """Write the model to a file that `bbl.load` reads: versioned, checked by a digest, without pickle.

        Parameters
        ----------
        path : str or path-like
        store_data : bool, default False
            Whether the encoded training rows go into the file too; without them, what needs them
            (``fitted``, ``residuals``, ``model_frame``, ``predict()`` without newdata) is not there after loading.

        Raises
        ------
        OSError, BBLTypeError
            If the file cannot be written; an older file of that name is then left as it was.
        """
        write_model(path, *pack(self, flag("store_data", store_data)))

    def _missing_text(self) -> str:
        return text.missing_text(self.design.missing, self.design.incomplete)

    def __repr__(self) -> str:
        more = f"\n\nMissing values: {self._missing_text()}" if self.design.incomplete else ""
        return text.fit_text(self.call, self.labels, self.params) + more
