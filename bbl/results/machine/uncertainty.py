"""Bootstrap and table of interactions of fitted Boltzmann machines: methods of the result classes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.covariance import bootstrap as refit_samples
from bbl.checks import choice, generator, integer, share, verb
from bbl.errors import DataError, OptionError
from bbl.parallel import n_workers
from bbl.results.machine.estimates import Compared
from bbl.results.machine.inference import PVALUES, permutation_table, rank_interactions, untested_table
from bbl.results.machine.machine import MachineResults

__all__ = ["bootstrap", "interactions"]


@verb
def bootstrap(
    self: MachineResults,
    nboot: int = 200,
    level: float = 0.95,
    *,
    seed: int | np.random.Generator | None = None,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Return the standard error and percentile interval of every parameter by the parametric bootstrap.

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
        ``test`` too, as in `Inference.table`: a parameter that cannot be tested has no ``se``, and one whose test is
        not ``"Wald"`` has no limits, because the penalty decides how refits of sparse cells scatter.
    """
    self.engine.check_density("The parametric bootstrap")
    share("level", level)
    n_samples, rng, workers = integer("nboot", nboot, 2), generator(seed), n_workers(n_jobs)
    if self.engine.chooses:
        raise OptionError(
            f"{self.engine.refusals()['bootstrap']}; crossVal() tells how well they hold.", argument="method"
        )
    refits = refit_samples(self._testable_rows(), self.estimate, self.engine, n_samples, rng, workers)
    frame = self.tidy().drop(columns=["pooled", "difference"])
    frame["se"] = refits.std(axis=0, ddof=1).ravel()
    lower, upper = np.quantile(refits, [0.5 - level / 2, 0.5 + level / 2], axis=0)
    frame["lower"], frame["upper"] = lower.ravel(), upper.ravel()
    if _why_untested(self) is None:
        tests = self._inference.verdicts()
        frame.loc[~tests.isin(["Wald", "exact"]).to_numpy(), "se"] = np.nan
        frame.loc[(tests != "Wald").to_numpy(), ["lower", "upper"]] = np.nan
        frame["test"] = tests.to_numpy()
    return frame


@verb
def interactions(
    self: MachineResults,
    of: Compared = "group",
    apc: bool = False,
    *,
    order: int | None = None,
    pvalues: str = "auto",
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
        Only interactions of `order` predictors.
    pvalues : {"auto", "permutation"}, default "auto"
        The tests of `Inference.tests`; or permutation tests of whether two predictors are independent given the
        predictors that interact with them. Permutation tests are exact whatever the counts are, and exist for every
        method and for pairs whose couplings are not estimable.
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
        frame = interactions(self, of, apc, pvalues=pvalues, n=n, seed=seed, n_jobs=n_jobs)
        orders = frame["order"] if "order" in frame else pd.Series(2, index=frame.index)
        return frame[orders == integer("order", order, 2)].reset_index(drop=True)
    if choice("pvalues", pvalues, PVALUES) == "permutation":
        if of != "group":
            raise OptionError(
                "A permutation test is of the couplings of one group; give of='group', or pvalues='auto'.",
                argument="of",
            )
        self._rows().check_whole("Permutation tests go")
        n_permutations, rng, workers = integer("n", n, 1), generator(seed), n_workers(n_jobs)
        frame = permutation_table(self.labels, self.parameters, self._rows(), n_permutations, rng, workers)
    else:
        reason = _why_untested(self, of)
        if reason is None or self.engine.posterior:
            return self.inference().interactions(of, apc)
        frame = untested_table(self.labels, self.parameters, of, reason)
    return rank_interactions(frame, self.parameters, of, list(self.labels.groups), apc)


def _why_untested(self: MachineResults, of: Compared | None = None) -> str | None:
    """Return why the interactions have no tests, as the text of the column ``test``; None if they have tests.

    None too if groups are fitted jointly, `of` is a pair of groups, and their difference has intervals.
    """
    if self.engine.posterior:
        return f"no test: {self.engine.posterior.name(self.engine)}"
    if self.training is None:
        return "no test: the model was saved without its training rows"
    try:
        if self.engine.joint and isinstance(of, tuple):
            rows = self.training.by_state(self.design.n_levels, len(self.labels.groups))
            self.engine.joint.check_differences(self.engine, rows.n)
        else:
            self.engine.check_equations()
        self.training.check_whole("Tests go")
    except (DataError, OptionError) as error:
        return f"no test: {error}"
    return None
