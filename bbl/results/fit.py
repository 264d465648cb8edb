"""BBLResults: a fitted model; each method only arranges what the rooms below compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bbl.checks import real, verb
from bbl.report import text
from bbl.report.summary import Section, Summary, fit_summary
from bbl.results.archives import pack, unpack
from bbl.results.figures import Figures
from bbl.results.posterior import PosteriorDraws
from bbl.stats.likelihood_ratio import likelihood_ratio

__all__ = ["BBLResults"]


@dataclass(frozen=True, repr=False)
class BBLResults(Figures):
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

    kind = "bbl"

    def pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return what the model file holds."""
        return pack(self, store_data)

    @classmethod
    def unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> BBLResults:
        """Return the model of `pack`."""
        return cls(**unpack(meta, arrays))

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
    def posterior(self) -> PosteriorDraws:
        """The draws from the posterior, with ``.summary()`` and ``.plot()``; for ``method="bayes"``."""
        return PosteriorDraws.of(self.labels, self.estimate, self.engine)

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
            **({"Posterior": self.engine.describe(self.params.layout)} if self.engine.posterior else {}),
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
