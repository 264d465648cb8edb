"""MachineResults: fitted Boltzmann machines, with classes or without: parameters, ln Z, energies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.tuning import Tuning
from bbl.engines import Engine
from bbl.errors import ClassError
from bbl.model.marginal import MarginalEnergy
from bbl.model.parameters import Parameters
from bbl.report.tables import Coefficients
from bbl.results.model import ModelResults
from bbl.rows.sample import Sample

__all__ = ["MachineResults"]

OF_CLASSES = (
    "predict",
    "fitted",
    "residuals",
    "evaluate",
    "score",
    "with_priors",
    "explain",
    "importance",
)  # of `ClassifierResults`


@dataclass(frozen=True, repr=False)
class MachineResults(ModelResults):
    """Fitted Boltzmann machines, one for each response group; one for all rows where there is no response.

    Its attributes are described where users meet them, in `BBLResults`.
    """

    engine: Engine
    estimate: Estimate
    tuning: Tuning | None = None

    def __getattr__(self, name: str) -> Any:
        if name in OF_CLASSES:
            raise ClassError(
                f"{name}() is of models with classes, and {self.formula!r} has no response. Fit a formula with a "
                "response, such as 'y ~ .'; of rows, score_samples() tells how likely they are, and reconstruct() what "
                "is missing in them.",
                argument="formula",
            )
        return object.__getattribute__(self, name)

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
    def class_shares(self) -> np.ndarray:
        """Weighted shares of the groups in the training rows."""
        return self.estimate.class_prior

    @cached_property
    def _energy(self) -> MarginalEnergy:
        return MarginalEnergy(self.params.layout, self.params.theta)

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows; see `Estimate.class_scores`.

        Of one group they are the log-probabilities of the rows.
        """
        return self.estimate.scores_by(self._energy, codes, missing)

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
