"""BBLResults: a fitted model; each method only arranges what the rooms below compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.tuning import Tuning
from bbl.checks import real, verb
from bbl.engines import Engine
from bbl.model.marginal import MarginalEnergy
from bbl.model.parameters import Parameters
from bbl.report import text
from bbl.report.summary import Section, Summary, fit_summary
from bbl.report.tables import Coefficients
from bbl.results.archives import pack, unpack
from bbl.results.classifier import ClassifierResults
from bbl.results.figures import Figures
from bbl.results.uncertainty import Uncertainty
from bbl.rows.sample import Sample
from bbl.stats.likelihood_ratio import likelihood_ratio

__all__ = ["BBLResults"]


@dataclass(frozen=True, repr=False)
class BBLResults(Figures, Uncertainty, ClassifierResults):
    """A fitted Boltzmann Bayes learner; made by `bbl.bbl`.

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

    kind = "bbl"

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

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows; see `Estimate.class_scores`."""
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

    def pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return what the model file holds."""
        return pack(self, store_data)

    @classmethod
    def unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> BBLResults:
        """Return the model of `pack`."""
        return cls(**unpack(meta, arrays))

    def coef(self) -> Coefficients:
        """Return the coefficients: ``.h[group][predictor]``, ``.J[group][a, b]``, ``.h0``, ``.J0``, ``.to_frame()``."""
        return Coefficients(self.labels, self.params)

    def tidy(self) -> pd.DataFrame:
        """Return all coefficients as a long frame, one row each."""
        return self.coef().to_frame()

    @verb
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
        return fit_summary(self.call, self.labels, tests, self._facts(), self._sections)

    @cached_property
    def _sections(self) -> list[Section]:
        """What the summary adds to naive Bayes; a model from a file has it from there."""
        stored = None if self.stored is None else self.stored.sections
        return self._wald_sections() if stored is None else stored

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

    def _missing_text(self) -> str:
        return text.missing_text(self.design.missing, self.design.incomplete)

    def __repr__(self) -> str:
        more = f"\n\nMissing values: {self._missing_text()}" if self.design.incomplete else ""
        return text.fit_text(self.call, self.labels, self.params) + more
