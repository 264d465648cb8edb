"""MachineResults: fitted Boltzmann machines: parameters, ln Z, energies, class scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.tuning import Tuning
from bbl.checks import choice, verb
from bbl.engines import Engine
from bbl.model.marginal import MarginalEnergy
from bbl.model.parameters import Parameters
from bbl.report.tables import Coefficients
from bbl.results.classifier import ClassifierResults
from bbl.rows.sample import Sample

__all__ = ["MachineResults"]


@dataclass(frozen=True, repr=False)
class MachineResults(ClassifierResults):
    """Fitted Boltzmann machines, one for each response group.

    Attributes
    ----------
    call, design, sample, index
        As in every `ClassifierResults`.
    engine : Engine
        The inference method and its options.
    estimate : Estimate
        Parameters, ln Z and convergence of every group.
    tuning : Tuning or None
        What cross-validation inside the fit found, if there was any.
    """

    engine: Engine
    estimate: Estimate
    tuning: Tuning | None = None

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

    @cached_property
    def _energy(self) -> MarginalEnergy:
        return MarginalEnergy(self.params.layout, self.params.theta)

    @cached_property
    def _averaged(self) -> Callable:
        return self._energy if self.estimate.predictive is None else self.estimate.energy()

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows; see `Estimate.class_scores`."""
        return self.estimate.scores_by(self._averaged, codes, missing)

    @verb
    def predict(
        self, newdata: Any = None, type: str = "link", unseen: str = "raise", *, draws: str = "all"
    ) -> pd.DataFrame | pd.Series:
        """Predict the response group of each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors' columns; others are ignored. None for the training rows.
        type : {"link", "prob", "class"}, default "link"
            ``F_y(x)`` of eq. (29), the probabilities of eq. (28), or the most likely group alone.
        unseen : {"raise", "ignore"}, default "raise"
            Whether a level that the model does not know is an error, or its predictor is summed out in that row.
        draws : {"all", "mean"}, default "all"
            Where the method has draws from a posterior: whether the probability of a row in a group is averaged over
            them (200 draws, 50 where ln Z is annealed, evenly spaced), or that at their mean.

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
        choice("draws", draws, ("all", "mean"))
        plugged = self if draws == "all" else replace(self, estimate=replace(self.estimate, predictive=None))
        return ClassifierResults.predict(plugged, newdata, type, unseen)

    def log_scores(self, newdata: Any, normalised: bool, prior: bool, unseen: str) -> pd.DataFrame:
        """Return the scores of rows in every group; see `bbl.log_scores`."""
        if newdata is None:
            rows, index = self._rows(), self._index()
            codes, missing = rows.codes, rows.missing
        else:
            choice("unseen", unseen, ("raise", "ignore"))
            (codes, missing), index = self.design.encode(newdata, unseen), self.design.index(newdata)
        scores = (self._averaged if normalised else self._energy)(codes, missing)
        if normalised:
            scores = scores - self.estimate.log_z
        if prior:
            with np.errstate(divide="ignore"):
                scores = scores + np.log(self.estimate.class_prior)
        if newdata is not None and (dropped := self.design.dropped(newdata)) is not None:
            scores[dropped] = np.nan
        return pd.DataFrame(scores, index=index, columns=pd.Index(self.labels.groups, dtype=object))

    def log_likelihood(self, rows: Sample) -> float:
        """Return ``sum_k w_k (E_y(x_k) - ln Z_y)`` of encoded rows, missing predictors summed out."""
        if rows.missing is not None:  # of a row of which nothing is known, the probability is one
            rows = rows.rows(~rows.missing.all(axis=1))
        energy = self._energy(rows.codes, rows.missing)[np.arange(rows.n), rows.response]
        return float(rows.weights @ (energy - self.estimate.log_z[rows.response]))

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all groups."""
        return self.df * len(self.labels.groups)

    def coef(self) -> Coefficients:
        """Return the coefficients: ``.h[group][predictor]``, ``.J[group][a, b]``, ``.h0``, ``.J0``, ``.to_frame()``."""
        return Coefficients(self.labels, self.params)

    def tidy(self) -> pd.DataFrame:
        """Return all coefficients as a long frame, one row each."""
        return self.coef().to_frame()
