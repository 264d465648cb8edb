"""Methods of fitted Boltzmann machines for standard errors, intervals, tests and interactions."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.covariance import bootstrap as refit_samples
from bbl.boltzmann.inference.significance import MID_P
from bbl.boltzmann.relevance import CHOSEN_BY_ROWS
from bbl.checks import check_keywords, choice, generator, integer, share
from bbl.errors import DataError, OptionError
from bbl.parallel import n_workers
from bbl.results.machine.contrasts import DifferenceInference
from bbl.results.machine.credible import PosteriorInference
from bbl.results.machine.estimate_tables import permutation_table, rank_interactions, untested_table
from bbl.results.machine.estimates import Compared
from bbl.results.machine.inference import PVALUES, Inference
from bbl.results.machine.machine import MachineResults, of_categories
from bbl.stats.survey.sample import check_single_rows

__all__ = ["UncertaintyMixin"]


ROWS = ("auto", "all")  # values of the argument `rows` of ``inference()`` other than a number


class UncertaintyMixin(MachineResults):
    """Standard errors, intervals, tests and interactions of fitted Boltzmann machines."""

    @check_keywords
    def inference(
        self, rows: str | int = "auto"
    ) -> Inference | PosteriorInference | DifferenceInference:
        """Return standard errors, intervals and tests of parameters, differences and interactions.

        Parameters
        ----------
        rows : {"auto", "all"} or int, default "auto"
            Rows of each group used for standard errors and tests. "auto": all rows of a table, and
            at most 50,000 of data read in batches. "all": all rows. An integer: a random sample of
            about this size, which includes all rows with rare levels; the note below the tables
            states the typical error of the standard errors.

        Returns
        -------
        Inference, PosteriorInference or DifferenceInference
            With the methods ``.table(of)``, ``.tests(of)`` and ``.interactions(of)``. If the fit
            has a posterior, ``.table(of)`` and ``.interactions(of)`` return posterior standard
            deviations and central intervals, and tests are not available. A penalised conditional
            fit provides these two methods only for differences, ``of=(a, b)``, with intervals but
            without tests. With ``ridge=0``, a conditional fit provides all three methods.

        Raises
        ------
        OptionError
            If the method has no likelihood equations (``"mf"``), or if a conditional fit refines
            another fit, stopped early or has over 5,000 distinct rows.
        DataError
            If a parameter is not estimable, a group has no training rows, or the model was saved
            without rows.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.inference().table(of=("Yes", "No"))[["predictor", "level", "estimate", "se"]].head(
        ...     2
        ... ).round(3)
          predictor level  estimate    se
        0     Class   2nd    -1.590  0.58
        1     Class   3rd    -3.722  0.52
        """
        if isinstance(rows, str):
            choice("rows", rows, ROWS)
        else:
            rows = integer("rows", rows, 100)
        if not self.estimate.parameters.layout.D and self.estimate.location is None:
            raise OptionError("The model has no predictors, so it has no coefficients to test.")
        if self.engine.joint and not self.engine.has_tests:  # with a penalty
            return self._contrasts  # a DifferenceInference
        if self.engine.posterior:
            return self._posterior
        return self._inference if rows == "auto" else self._inference_from(rows)

    @check_keywords
    def cov_params(self, group: Hashable = None) -> pd.DataFrame:
        """Return the covariance of the estimates of one or all groups (see `Inference.cov_params`).

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.cov_params("Yes").shape
        (9, 9)
        """
        return self.inference().cov_params(group)

    @check_keywords
    def conf_int(self, alpha: float = 0.05, of: Compared = "group") -> pd.DataFrame:
        """Return the confidence limits of every parameter (see `Inference.conf_int`).

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.conf_int().loc["Yes"].head(2).round(2)  # doctest: +NORMALIZE_WHITESPACE
                   lower  upper
        parameter
        Class=2nd  -0.68  -0.15
        Class=3rd  -0.71  -0.18
        """
        return self.inference().conf_int(alpha, of)

    @check_keywords
    @of_categories
    def bootstrap(
        self,
        nboot: int = 200,
        level: float = 0.95,
        *,
        seed: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
    ) -> pd.DataFrame:
        """Return parametric bootstrap standard errors and percentile intervals of all parameters.

        Parameters
        ----------
        nboot : int, default 200
            Number of samples that are drawn from the fitted groups and refitted.
        level : float, default 0.95
        seed : int or numpy.random.Generator, optional
        n_jobs : int, optional
            Number of threads; results do not depend on it.

        Returns
        -------
        DataFrame
            The rows of ``tidy()`` with ``estimate``, ``se``, ``lower``, ``upper`` and, if the
            method has tests, ``test`` as in `Inference.table`: ``se`` is missing for parameters
            that cannot be tested. Limits are missing unless the test is ``"Wald"``, because the
            variation between refits in sparse cells is determined by the penalty.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.bootstrap(nboot=20, seed=1)[["predictor", "level", "estimate", "se"]].head(2).round(
        ...     2
        ... )
          predictor level  estimate    se
        0     Class   2nd      1.17  0.67
        1     Class   3rd      3.27  0.52
        """
        # raises an error if P(row | group) is not modelled, or under a sampling design
        self.engine.check_density("The parametric bootstrap")
        check_single_rows(self.survey, "The parametric bootstrap")
        share("level", level)
        n_samples = integer("nboot", nboot, 2)
        rng = generator(seed)
        workers = n_workers(n_jobs)
        if (
            self.engine.chooses
        ):  # the terms of each group; `refusals` maps unavailable features to reasons
            raise OptionError(
                f"{self.engine.refusals()['bootstrap']}.",
                argument="method",
                hint="Assess predictions with crossVal().",
            )
        # (n_samples, K, size): K groups of `size` parameters, fitted to rows drawn from the model;
        # the rows of `frame` are ordered by group, as these are
        refits = refit_samples(
            self._testable_rows(), self.estimate, self.engine, n_samples, rng, workers
        )
        frame = self.tidy().drop(columns=["pooled", "difference"])  # a pooled fit is not refitted
        frame["se"] = refits.std(axis=0, ddof=1).ravel()
        lower, upper = np.quantile(refits, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        frame["lower"], frame["upper"] = lower.ravel(), upper.ravel()
        if self._reason_without_tests() is None:
            # "Wald", "exact" or `MID_P` (conditional tests of sparse cells, without limits here),
            # or why the parameter is not tested
            tests = self._inference.verdicts()
            frame.loc[~tests.isin(["Wald", "exact", MID_P]).to_numpy(), "se"] = np.nan
            frame.loc[(tests != "Wald").to_numpy(), ["lower", "upper"]] = np.nan
            frame["test"] = tests.to_numpy()
        return frame

    @check_keywords
    @of_categories
    def interactions(
        self,
        of: Compared = "group",
        apc: bool = False,
        *,
        order: int | None = None,
        pvalues: str | None = "auto",
        n: int = 999,
        seed: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
    ) -> pd.DataFrame:
        """Return the interactions with their tests, strongest first.

        Parameters
        ----------
        of : "group", "pooled" or (group, group), default "group"
        apc : bool, default False
            Whether to subtract the average-product correction from the strengths of pairs.
        order : int, optional
            Number of predictors of the interactions to return; all orders by default.
        pvalues : {"auto", "permutation"} or None, default "auto"
            "auto": the tests of `Inference.tests`. "permutation": tests of the conditional
            independence of two predictors given the predictors that interact with them. These are
            exact for any counts and available for every method, even for pairs whose couplings are
            not estimable. None: only strengths, because tests take a long time for predictors with
            many levels.
        n : int, default 999
            Number of permutations for each pair. The smallest possible p-value is ``1 / (n + 1)``;
            the column ``test`` shows where it was reached.
        seed : int or numpy.random.Generator, optional
            Seed for ``pvalues="permutation"``.
        n_jobs : int, optional
            Number of threads for the permutations; results do not depend on it.

        Returns
        -------
        DataFrame
            ``group``, ``predictor``, ``predictor2`` (if there are terms of three or more
            predictors, these are preceded by ``order`` and followed by ``predictor3`` and so on),
            ``strength`` (Frobenius norm of the couplings in the zero-sum gauge), ``chisq``, ``df``,
            ``p``, ``p_holm``, ``p_bh``, ``test``. Methods with a posterior add ``sd`` and
            ``inclusion`` (see `PosteriorInference.interactions`), and differences of a conditional
            fit add ``lower`` and ``upper`` (see `DifferenceInference.interactions`). For methods
            without standard errors (mean field) and models without training rows (loaded from a
            file), p is missing and ``test`` states the reason.

        Raises
        ------
        OptionError
            If permutations are requested and `of` is not ``"group"``.
        DataError
            If permutations are requested and the model was saved without its training rows, or a
            group has more than 3e9 observations.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.interactions()[["group", "predictor", "predictor2", "strength", "p"]].round(3)
          group predictor predictor2  strength      p
        0    No     Class        Sex     2.066  0.000
        1   Yes     Class        Sex     1.976  0.000
        2    No       Sex        Age     0.631  0.000
        3   Yes       Sex        Age     0.200  0.178
        """
        if order is not None:
            frame = self.interactions(of, apc, pvalues=pvalues, n=n, seed=seed, n_jobs=n_jobs)
            # no column: all terms are pairs
            orders = frame["order"] if "order" in frame else pd.Series(2, index=frame.index)
            return frame[orders == integer("order", order, 2)].reset_index(drop=True)
        if pvalues is None:
            frame = untested_table(self.labels, self.estimate.parameters, of, "not requested")
        elif choice("pvalues", pvalues, PVALUES) == "permutation":
            if of != "group":
                raise OptionError(
                    "Permutation tests are only available within single groups.",
                    argument="of",
                    hint="Use of='group', or pvalues='auto'.",
                )
            # raises a DataError for a sampling design
            check_single_rows(self.survey, "A permutation test")
            # raises a DataError for weights that are not counts
            rows = self._all_rows()
            rows.check_whole("Permutation tests require")
            n_permutations = integer("n", n, 1)
            rng = generator(seed)
            workers = n_workers(n_jobs)
            frame = permutation_table(
                self.labels, self.estimate.parameters, rows, n_permutations, rng, workers
            )
        else:
            reason = self._reason_without_tests(of)
            if reason is None or self.engine.posterior:  # a posterior has no tests, but sds
                return self.inference().interactions(of, apc)
            frame = untested_table(self.labels, self.estimate.parameters, of, reason)
        return rank_interactions(frame, self.estimate.parameters, of, list(self.labels.groups), apc)

    def _reason_without_tests(self, of: Compared | None = None) -> str | None:
        """Return the reason why the selected parameters are not tested, or None if they are.

        The reason is a string for the column ``test``. It is also None for a difference between two
        groups of a penalised joint fit, which has an interval but not a test. In this case, the
        table of ``inference()`` contains the reason. By default, `of` selects the parameters of
        each group. The reason is the message of the error that a method ``check_...`` raises if a
        requirement is not met.
        """
        if self.engine.posterior:  # has sds and intervals, but no tests
            return f"no test: {self.engine.posterior.name(self.engine)}"
        if self.training is None and self._kept is None:
            return "no test: the model was saved without its training rows"
        if self.estimate.relevance is not None:  # the predictors were selected on the same rows
            return f"no test: {CHOSEN_BY_ROWS}"
        try:
            if self.engine.joint and self.engine.penalised and isinstance(of, tuple):
                # `by_state` merges equal rows: intervals are available up to a number of distinct
                # rows, `rows.n`
                rows = self._all_rows().by_state(self.design.n_levels, len(self.labels.groups))
                self.engine.joint.check_differences(
                    self.engine, rows.n
                )  # OptionError: no intervals
            else:
                # OptionError: no likelihood equations, which the tests need
                self.engine.check_equations()
            # without a sampling design, weights are counts and must be integers
            if self.survey is None:
                self._check_counts("Tests require")  # DataError
        except (DataError, OptionError) as error:
            return f"no test: {error.message}"
        return None
