"""MachineResults: fitted Boltzmann machines, with classes or without: parameters, ln Z, energies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.tuning import Tuning
from bbl.checks import choice
from bbl.engines import Engine
from bbl.errors import ClassError, DataError, OptionError
from bbl.model.energy import known_energy
from bbl.model.marginal import MarginalEnergy
from bbl.model.parameters import Parameters
from bbl.report.machine.inference_table import labelled
from bbl.report.machine.tables import Coefficients
from bbl.results.classifier import ClassifierResults
from bbl.results.model import ModelResults
from bbl.rows.on_disk import Rows, StoredSample

__all__ = ["MachineResults"]

BLOCK = 65536  # rows that are scored together
OF_CLASSES = frozenset(name for name in vars(ClassifierResults) if not name.startswith("_"))


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
                f"{name} is of models with classes, and {self.formula!r} has no response. Fit a formula with a "
                "response, such as 'y ~ .'; of rows, score_samples() tells how likely they are, and reconstruct() what "
                "is missing in them.",
                argument="formula",
            )
        return object.__getattribute__(self, name)

    @property
    def parameters(self) -> Parameters:
        """Parameters of all groups as plain arrays."""
        return self.estimate.parameters

    @property
    def params(self) -> pd.Series:
        """Estimate of every parameter by group and name, on the index that `bse`, `conf_int` and others share."""
        return labelled(self.tidy(), "estimate")

    @property
    def log_z(self) -> pd.Series:
        """ln Z of each group."""
        self.engine.check_density("ln Z")
        return pd.Series(self.estimate.log_z, index=list(self.labels.groups), name="log_z")

    @property
    def lkh(self) -> float:
        """The maximised (penalised) objective, summed over predictors and observations of all groups."""
        return self.estimate.lkh

    @property
    def df(self) -> int:
        """Number of parameters of one group (eq. 7, for the terms of the model; of all groups, if they differ)."""
        return self.parameters.layout.size

    @property
    def converged(self) -> bool:
        """Whether every predictor of every group reached its optimum."""
        return self.estimate.converged

    @property
    def history(self) -> pd.DataFrame:
        """How the fits went: a row for each record of each group (and of the pooled fit), first the group.

        With ``method="pvi"``: ``iteration``, ``gradient`` (root mean square of the gradient by the means of the
        standardised parameters), ``change`` (of the posterior mean since the record before, relative),
        ``scale_fields``, ``scale_couplings``.

        Raises
        ------
        DataError
            If the method keeps no record, or the model is from a file, which has none.
        """
        names = [*self.labels.groups, "pooled"]
        kept = [(name, fit.history) for name, fit in zip(names, self.estimate.fits, strict=False) if fit.history]
        if not kept:
            reason = self.engine.refusals().get("history", "the model is from a file, which holds no history")
            raise DataError(f"There is none: {reason}.")
        return pd.concat([pd.DataFrame({"group": name, **own}) for name, own in kept], ignore_index=True)

    @property
    def class_shares(self) -> np.ndarray:
        """Weighted shares of the groups in the training rows."""
        return self.estimate.class_prior

    def _shares(self) -> np.ndarray:
        """Shares (K,) of the groups in the population that the model is of."""
        return self.class_shares

    @cached_property
    def _energy(self) -> MarginalEnergy:
        return MarginalEnergy(self.parameters.layout, self.parameters.theta)

    @cached_property
    def _averaged(self) -> Callable:
        """Energies of rows averaged over draws, where there are any; less ln Z they are log-probabilities."""
        return self._energy if self.estimate.predictive is None else self.estimate.energy()

    def plugged(self, draws: str) -> Self:
        """Return the model that predicts by all its draws, or by their mean."""
        if choice("draws", draws, ("all", "mean")) == "all":
            return self
        if self.estimate.predictive is not None and self.estimate.predictive.hidden:
            raise OptionError(
                "Hidden units have other signs in each chain, so that the mean of the draws is no model. Give "
                "draws='all'.",
                argument="draws",
            )
        found = copy.copy(self)
        vars(found).pop("_averaged", None)
        object.__setattr__(found, "estimate", replace(self.estimate, predictive=None))  # on a copy, not yet seen
        return found

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of rows encoded by ``design.encode``; see `Estimate.class_scores`.

        Of one group they are the log-probabilities of the rows.
        """
        return self.estimate.scores_by(self._averaged, codes, missing)

    def log_scores(self, newdata: Any, normalised: bool, prior: bool, unseen: str) -> pd.DataFrame:
        """Return the scores of rows in every group; see `bbl.log_scores`."""
        if newdata is None:
            rows, index = self._rows(), self._index()
            codes, missing = rows.codes, rows.missing
        else:
            choice("unseen", unseen, ("raise", "ignore"))
            (codes, missing), index = self.design.encode(newdata, unseen), self.design.index(newdata)
        predictive = self.estimate.predictive
        plain = self._energy if predictive is None or not predictive.hidden else predictive.free_energy
        scores = (self._averaged if normalised else plain)(codes, missing)
        if normalised:
            scores = scores - self.estimate.log_z
        if prior:
            with np.errstate(divide="ignore"):
                scores = scores + np.log(self._shares())
        if newdata is not None and (dropped := self.design.dropped(newdata)) is not None:
            scores[dropped] = np.nan
        return pd.DataFrame(scores, index=index, columns=pd.Index(self.labels.groups, dtype=object))

    def check_likelihood(self) -> None:
        """Raise an OptionError if P(row | group) is not modelled."""
        self.engine.check_density("A likelihood")

    def log_likelihood(self, rows: Rows) -> float:
        """Return ``sum_k w_k (E_y(x_k) - ln Z_y)`` of encoded rows, missing predictors summed out."""
        self.check_likelihood()
        if isinstance(rows, StoredSample):
            if not rows.complete or self.estimate.predictive is not None:
                return sum(map(self.log_likelihood, rows.blocks(BLOCK)))
            own = [
                known_energy(rows.group(y), self.parameters.layout, theta)
                for y, theta in enumerate(self.parameters.theta)
            ]
            return sum(energy - n * log_z for (n, energy), log_z in zip(own, self.estimate.log_z, strict=True))
        if rows.missing is not None:  # of a row of which nothing is known, the probability is one
            rows = rows.rows(~rows.missing.all(axis=1))
        summed = self.estimate.predictive is not None and self.estimate.predictive.hidden
        energy = (self._averaged if summed else self._energy)(rows.codes, rows.missing)[
            np.arange(rows.n), rows.response
        ]
        return float(rows.weights @ (energy - self.estimate.log_z[rows.response]))

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all groups."""
        return self.estimate.n_parameters

    def coef(self) -> Coefficients:
        """Return the coefficients: ``.h[group][predictor]``, ``.J[group][a, b]``, ``.h0``, ``.J0``, ``.to_frame()``."""
        return Coefficients(self.labels, self.parameters)

    def tidy(self) -> pd.DataFrame:
        """Return all coefficients as a long frame, one row each."""
        return self.coef().to_frame()
