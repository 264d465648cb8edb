"""Uncertainty: standard errors, tests and criteria of fitted Boltzmann machines."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.covariance import bootstrap
from bbl.checks import choice, generator, integer, share, verb
from bbl.errors import DataError, OptionError
from bbl.parallel import n_workers
from bbl.report.machine.summary import Section, wald_sections
from bbl.results.machine.contrasts import DifferenceInference
from bbl.results.machine.credible import PosteriorInference
from bbl.results.machine.inference import PVALUES, Inference, permuted, ranked, untested
from bbl.results.machine.machine import MachineResults
from bbl.rows.sample import Sample

__all__ = ["Uncertainty"]

TESTED = 2000  # parameters of a group up to which a summary holds the tests that need their covariances


class Uncertainty(MachineResults):
    """How sure a fitted model is of its parameters; computed from its training rows when first asked for."""

    @property
    def claic(self) -> float:
        """Composite-likelihood AIC: ``-2 cl + 2 tr(K H^-1)`` with the log pseudo-likelihood ``cl`` of all groups.

        Compares models of one method on the same rows (Varin & Vidoni 2005); smaller is better. Not on the scale of
        `aic`, which uses the likelihood. With ``missing="marginal"`` it is of the complete rows, whatever rows each
        predictor was fitted to, so that formulas of the same predictors are compared on the same rows.

        Raises
        ------
        DataError
            If no row of a group is complete.
        """
        return -2.0 * sum(v for v, _ in self._composite) + 2.0 * sum(d for _, d in self._composite)

    @property
    def clbic(self) -> float:
        """Composite-likelihood BIC: as `claic`, with the logarithm of each group's number of rows in place of 2."""
        rows, K = self._full_groups(), len(self.labels.groups)
        totals = self.estimate.class_prior * self.nobs()
        if rows.missing is not None:
            totals = np.bincount(rows.complete_rows.response, rows.complete_rows.weights, K).astype(float)
        return float(sum(-2.0 * v + np.log(n) * d for (v, d), n in zip(self._composite, totals, strict=True)))

    @property
    def _composite(self) -> list[tuple[float, float]]:
        rows = self._full_groups()
        without = np.setdiff1d(np.arange(len(self.labels.groups)), rows.complete_rows.response)
        if len(without):
            raise DataError(
                f"no row of group {self.labels.groups[without[0]]!r} is complete, and composite criteria count the "
                "complete rows, the same for all formulas. Compare aic or bic, or fit with missing='level'."
            )
        return self._inference.composite

    def _wald_sections(self) -> list[Section]:
        """Joint tests of predictors and pairs, where they cost little and the method has them."""
        if self.training is None or self.parameters.layout.size > TESTED or not self.engine.solves:
            return []
        try:
            inference = self._inference
        except (DataError, OptionError) as error:
            return [Section("Wald tests", pd.DataFrame(), str(error))]
        of = "group" if self.parameters.pooled is None else "pooled"
        d = "" if self.parameters.pooled is None else "d"
        return wald_sections(inference.tests(of), d, inference.note, self.design.classes)

    @cached_property
    def _inference(self) -> Inference:
        return Inference(self.labels, self.estimate, self.engine, self._full_groups())

    @cached_property
    def _posterior(self) -> PosteriorInference:
        return PosteriorInference(self.labels, self.estimate, self.engine)

    @cached_property
    def _contrasts(self) -> DifferenceInference:
        return DifferenceInference(self.labels, self.estimate, self.engine, self._full_groups())

    def _full_groups(self) -> Sample:
        """Return the training rows; an error if a group has none, and so nothing that could be uncertain."""
        empty = np.flatnonzero(self.estimate.class_prior == 0.0)
        if len(empty):
            raise DataError(
                f"group {self.labels.groups[empty[0]]!r} has no training rows in this fit (of one fold, with "
                "refit=False), so its parameters have no standard errors. Fit all rows."
            )
        rows = self._rows()
        rows.check_whole("Standard errors and tests go")
        return rows

    @verb
    def inference(self) -> Inference | PosteriorInference | DifferenceInference:
        """Return standard errors, intervals and tests of all parameters, of differences, and of pairs.

        Returns
        -------
        Inference, PosteriorInference or DifferenceInference
            ``.table(of)``, ``.tests(of)``, ``.interactions(of)``; for a method with a posterior ``.table(of)`` and
            ``.interactions(of)``, with posterior sds and central intervals in place of standard errors and tests;
            for conditional likelihood both of differences alone, ``of=(a, b)``, with intervals and without tests.

        Raises
        ------
        OptionError
            If the method has no likelihood equations (``"mf"``), or a conditional fit refines another, stopped early or
            has over 5,000 distinct rows.
        DataError
            If a parameter is not determined, a group has no training rows, or the model was saved without them.
        """
        if self.engine.joint:
            return self._contrasts
        return self._posterior if self.engine.posterior else self._inference

    @property
    def bse(self) -> pd.Series:
        """Standard error of every parameter, on the index of `params`; see `Inference.bse`."""
        return self.inference().bse

    @property
    def tvalues(self) -> pd.Series:
        """Statistic z of every parameter that has one, on the index of `params`."""
        return self.inference().tvalues

    @property
    def pvalues(self) -> pd.Series:
        """P-value of every parameter that has a test, on the index of `params`."""
        return self.inference().pvalues

    @verb
    def cov_params(self, group: Any = None) -> pd.DataFrame:
        """Return the covariance of the estimates of all groups, or of one; see `Inference.cov_params`."""
        return self.inference().cov_params(group)

    @verb
    def conf_int(self, alpha: float = 0.05, of: Any = "group") -> pd.DataFrame:
        """Return confidence limits of every parameter; see `Inference.conf_int`."""
        return self.inference().conf_int(alpha, of)

    @verb
    def bootstrap(
        self,
        nboot: int = 200,
        level: float = 0.95,
        *,
        seed: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
    ) -> pd.DataFrame:
        """Return standard errors and percentile intervals of every parameter by the parametric bootstrap.

        Parameters
        ----------
        nboot : int, default 200
            Samples drawn from the fitted groups and fitted again.
        level : float, default 0.95
        seed : int or numpy.random.Generator, optional
        n_jobs : int, optional
            Threads; results do not depend on it.

        Returns
        -------
        DataFrame
            The rows of ``tidy()`` with ``estimate``, ``se``, ``lower``, ``upper``. Where the method has tests there is
            ``test`` too, as in `Inference.table`: what the rows cannot determine has no ``se``, and what is too sparse
            for a normal distribution has no limits, because refits of it scatter as the penalty lets them.
        """
        self.engine.check_density("The parametric bootstrap")
        share("level", level)
        args = (integer("nboot", nboot, 2), generator(seed), n_workers(n_jobs))
        if self.engine.chooses:
            raise OptionError(
                f"{self.engine.refusals()['bootstrap']}; crossVal() tells how well they hold.",
                argument="method",
            )
        refits = bootstrap(self._full_groups(), self.estimate, self.engine, *args)
        frame = self.tidy().drop(columns=["pooled", "difference"])
        frame["se"] = refits.std(axis=0, ddof=1).ravel()
        lower, upper = np.quantile(refits, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        frame["lower"], frame["upper"] = lower.ravel(), upper.ravel()
        if self._why_untested() is None:
            test = self._inference.verdicts()
            frame.loc[~test.isin(["Wald", "exact"]).to_numpy(), "se"] = np.nan
            frame.loc[(test != "Wald").to_numpy(), ["lower", "upper"]] = np.nan
            frame["test"] = test.to_numpy()
        return frame

    def _why_untested(self, of: Any = None) -> str | None:
        """Return why there are no tests (of a joint fit: no intervals of `of`); None if there are."""
        if self.engine.posterior:
            return f"no test: {self.engine.posterior}"
        if self.training is None:
            return "no test: the model was saved without its training rows"
        try:
            if self.engine.joint and isinstance(of, tuple):
                rows = self.training.by_state(self.design.n_levels, len(self.labels.groups))
                self.engine.check_differences(rows.n)
            else:
                self.engine.check_equations()
            self.training.check_whole("Tests go")
        except (DataError, OptionError) as error:
            return f"no test: {error}"
        return None

    @verb
    def interactions(
        self,
        of: Any = "group",
        apc: bool = False,
        *,
        order: int | None = None,
        pvalues: str = "auto",
        n: int = 999,
        seed: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
    ) -> pd.DataFrame:
        """Return the interacting pairs, strongest first, with their tests.

        Parameters
        ----------
        of : "group", "pooled" or (group, group), default "group"
        apc : bool, default False
            Whether to subtract the average-product correction from the strengths of pairs.
        order : int, optional
            Only terms of so many predictors.
        pvalues : {"auto", "permutation"}, default "auto"
            The tests of `Inference.tests`; or permutation tests, which are exact whatever the counts are, are there for
            every method and for pairs whose couplings are not estimable, and ask whether two predictors are independent
            given those that interact with them.
        n : int, default 999
            Permutations of each pair; the smallest p-value is ``1 / (n + 1)``.
        seed : int or numpy.random.Generator, optional
            For ``pvalues="permutation"``.
        n_jobs : int, optional
            Threads of the permutations; results do not depend on it.

        Returns
        -------
        DataFrame
            ``group``, ``predictor``, ``predictor2`` (with terms of three predictors and more ``order`` before them, and
            ``predictor3`` and so on after), ``strength`` (Frobenius norm of the couplings in the zero-sum
            gauge), ``chisq``, ``df``, ``p``, ``p_holm``, ``p_bh``, ``test``; for a method with a posterior ``sd`` and
            ``inclusion`` too, see `PosteriorInference.interactions`; for differences of a conditional fit ``lower`` and
            ``upper``, see `DifferenceInference.interactions`. Without standard errors (mean field) or
            training rows (a model loaded without them) p is missing, and ``test`` says why.

        Raises
        ------
        OptionError
            If permutations are asked for and `of` is not ``"group"``.
        DataError
            If permutations are asked for and the model was saved without its training rows, or a group has more than
            3e9 observations.
        """
        if order is not None:
            frame = self.interactions(of, apc, pvalues=pvalues, n=n, seed=seed, n_jobs=n_jobs)
            asked = integer("order", order, 2)
            own = frame["order"] if "order" in frame else pd.Series(2, index=frame.index)
            return frame[own == asked].reset_index(drop=True)
        groups = list(self.labels.groups)
        if choice("pvalues", pvalues, PVALUES) == "permutation":
            if of != "group":
                raise OptionError(
                    "A permutation test is of the couplings of one group; give of='group', or pvalues='auto'.",
                    argument="of",
                )
            self._rows().check_whole("Permutation tests go")
            args = (integer("n", n, 1), generator(seed), n_workers(n_jobs))
            return ranked(permuted(self.labels, self.parameters, self._rows(), *args), self.parameters, of, groups, apc)
        why = self._why_untested(of)
        if why is None or self.engine.posterior:
            return self.inference().interactions(of, apc)
        return ranked(untested(self.labels, self.parameters, of, why), self.parameters, of, groups, apc)
