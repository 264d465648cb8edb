"""PosteriorInference: tables of posterior means, standard deviations, central intervals and
interactions.
"""

from __future__ import annotations

from typing import NoReturn, cast, final

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate
from bbl.checks import real, share
from bbl.design.labels import Labels
from bbl.engines import Engine, EngineFit
from bbl.engines.traits import PosteriorTraits
from bbl.errors import OptionError
from bbl.report.text import fill
from bbl.results.machine.estimate_tables import estimate_table, rank_interactions, untested_table
from bbl.results.machine.estimates import Compared, Estimates, resolve_of

__all__ = ["PosteriorInference"]

# root mean square in the zero-sum gauge above which a pair counts as included
MIN_INCLUDED_COUPLING = 0.05


@final
class PosteriorInference(Estimates):
    """Posterior standard deviations and central intervals, as returned by ``fit.inference()`` for
    methods with a posterior.

    The argument `of` selects the parameters: ``"group"`` for each group, or a pair of groups
    ``(a, b)`` for the difference a minus b. The variances of two groups are added, because
    different groups have different rows. The pooled fit shares rows with each group, so the
    posterior of the differences ``dh`` and ``dJ`` is not available.

    Parameters
    ----------
    labels : Labels
        Names of the groups, the predictors and their levels.
    estimate : Estimate
        Posterior means, and the engine run of each group.
    engine : Engine
        The method of the fit; its ``posterior`` describes the posterior and computes the
        strengths of pairs.

    Attributes
    ----------
    note : str
        Note on the standard deviations and intervals, printed below them.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0)
    >>> fit.inference().table().columns[-4:].tolist()
    ['p', 'lower', 'upper', 'test']
    """

    def __init__(self, labels: Labels, estimate: Estimate, engine: Engine):
        self._labels = labels
        self._estimate = estimate
        self._engine = engine
        # not None: the method has a posterior
        self._posterior = cast(PosteriorTraits, engine.posterior)
        self._posterior_name = self._posterior.name(engine)
        self.note = (
            f"Posterior standard deviations and central intervals ({self._posterior_name}). "
            "Parameters are not tested."
        )

    def _selection(self, of: Compared) -> str | tuple[int, int]:
        """Return the selection of `of`: ``"group"`` or the positions of two groups; ``"pooled"``
        raises an OptionError.
        """
        selection = resolve_of(
            of, list(self._labels.groups), self._estimate.parameters.pooled is not None
        )
        if selection == "pooled":
            raise OptionError(
                f"{self._engine.refusals()['pooled']}: no posterior is available for their "
                "difference.",
                argument="of",
                hint="Use of='group', or two groups.",
            )
        return selection

    def _sds(self, selection: str | tuple[int, int]) -> np.ndarray:
        """Return the posterior standard deviations of all groups (K * size,), or of a difference
        (size,).

        They are nan for groups without rows.
        """
        layout = self._estimate.parameters.layout
        K = len(self._labels.groups)
        no_sds = np.full(layout.size, np.nan)
        # a pooled run comes after the K group runs
        sds = [no_sds if run.sd is None else run.sd for run in self._estimate.fits[:K]]
        return (
            np.concatenate(sds)
            if isinstance(selection, str)
            else np.hypot(sds[selection[0]], sds[selection[1]])
        )

    def _draws(self, selection: str | tuple[int, int]) -> list[np.ndarray | None]:
        """Return the draws (n, size) of each group, or of a difference in a list; None if the fit
        has no draws.

        The draws of all chains are concatenated.
        """
        size = self._estimate.parameters.layout.size
        K = len(self._labels.groups)
        draws = [
            None if run.draws is None else run.draws.reshape(-1, size)
            for run in self._estimate.fits[:K]
        ]
        if isinstance(selection, str):
            return draws
        a = draws[selection[0]]
        b = draws[selection[1]]
        # the draws of two groups are independent
        return [None if a is None or b is None else a - b]

    def _covariance(self, groups: list[int]) -> np.ndarray:
        """Return the posterior covariance (q, q) of the q parameters of `groups`.

        Raises an OptionError if a group does not have draws. Parameters of different groups have
        covariance zero.
        """
        from scipy.linalg import block_diag

        all_draws = self._draws("group")
        draws = [group_draws for g in groups if (group_draws := all_draws[g]) is not None]
        if len(draws) < len(groups):
            raise OptionError(
                f"{self._engine.refusals()['covariances']}.",
                hint="Use bse, or choose method='bayes', which provides draws.",
            )
        return block_diag(*(np.cov(group_draws, rowvar=False) for group_draws in draws))

    def table(self, of: Compared = "group", level: float = 0.95) -> pd.DataFrame:
        """Return every parameter with its posterior mean, sd and central interval.

        Parameters
        ----------
        of : "group" or (group, group), default "group"
        level : float, default 0.95
            Posterior probability of the interval.

        Returns
        -------
        DataFrame
            The columns of ``tidy()`` that identify the parameter (``group``, ``predictor``, ...),
            then ``estimate`` (posterior mean), ``se`` (posterior sd), ``z`` and ``p`` (missing),
            ``lower``, ``upper``, and ``test``, a description of the posterior. The interval has
            equal tails. Its limits are quantiles of the draws or, if there are none, of a normal
            distribution.

        Raises
        ------
        OptionError
            If `of` is ``"pooled"``, or names an unknown group.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl(
        ...     "Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0
        ... )
        >>> table = fit.inference().table()
        >>> bool((table["lower"] < table["upper"]).all())
        True
        """
        from scipy.special import ndtri

        share("level", level)
        selection = self._selection(of)
        frame = estimate_table(self._labels, self._estimate.parameters, of)
        mean = frame["estimate"].to_numpy()
        sd = self._sds(selection)
        # normal limits; if there are draws, their quantiles replace these below
        half_width = float(ndtri(0.5 + level / 2)) * sd
        limits = np.array([mean - half_width, mean + half_width])
        # by limit, group and parameter
        limits = limits.reshape(2, -1, max(self._estimate.parameters.layout.size, 1))
        for k, draws in enumerate(self._draws(selection)):
            if draws is not None:
                limits[:, k] = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        lower, upper = limits.reshape(2, -1)
        return frame.assign(
            se=sd, z=np.nan, p=np.nan, lower=lower, upper=upper, test=self._posterior_name
        )

    def tests(self, of: Compared = "group") -> NoReturn:
        """Raise an OptionError, because a posterior does not provide tests.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl(
        ...     "Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0
        ... )
        >>> fit.inference().tests()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        bbl.errors.OptionError: method='bayes' provides a posterior distribution, not tests. ...
        """
        self._engine.check_equations()  # raises an OptionError with a hint
        raise OptionError("A posterior has no tests.")

    def interactions(
        self, of: Compared = "group", apc: bool = False, tau: float = MIN_INCLUDED_COUPLING
    ) -> pd.DataFrame:
        """Return the interacting pairs, strongest first, with posterior standard deviations and
        inclusion probabilities.

        Parameters
        ----------
        of : "group" or (group, group), default "group"
            For a pair of groups, the columns ``sd`` and ``inclusion`` are missing.
        apc : bool, default False
            Whether to subtract the average-product correction from the strengths; `sd` remains the
            sd of the uncorrected strength.
        tau : float, default 0.05
            Threshold on the root mean square of the couplings of a pair in the zero-sum gauge.
            Pairs above the threshold are counted as included. For two predictors with two levels,
            the root mean square is the absolute value of the Ising coupling.

        Returns
        -------
        DataFrame
            The columns of ``fit.interactions()``, with ``sd`` (posterior sd of the strength) and
            ``inclusion`` (posterior probability that the couplings exceed `tau`) after
            ``strength``; p is missing.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl(
        ...     "Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0
        ... )
        >>> fit.inference().interactions()[["group", "predictor", "predictor2"]]
          group predictor predictor2
        0    No       Sex        Age
        1   Yes       Sex        Age
        """
        real("tau", tau, 0.0)
        self._selection(of)  # raises an OptionError if the selected parameters have no posterior
        parameters = self._estimate.parameters
        groups = list(self._labels.groups)
        frame = untested_table(self._labels, parameters, of, f"no test: {self._posterior_name}")
        sd: float | np.ndarray = np.nan
        inclusion: float | np.ndarray = np.nan
        if not isinstance(of, tuple):
            runs = self._estimate.fits[: len(groups)]
            sds, inclusions = zip(
                *(self._strength_posterior(run, tau) for run in runs), strict=True
            )
            sd = np.concatenate(sds)
            inclusion = np.concatenate(inclusions)
        # These methods have only pairs: no column "order", and P rows per group. Position 3 follows
        # group, predictor and predictor2; `rank_interactions` puts strength between these and sd
        frame.insert(3, "sd", sd)
        frame.insert(4, "inclusion", inclusion)
        return rank_interactions(frame, parameters, of, groups, apc)

    def _strength_posterior(self, run: EngineFit, tau: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the standard deviations (P,) of the strengths and the probabilities (P,) that
        couplings exceed `tau`.

        They refer to the P pairs of one group and are nan for a group without rows. `run` is the
        engine run of the group. Some methods sample the strengths. They use a fixed seed, so that
        repeated calls return the same result.
        """
        layout = self._estimate.parameters.layout
        if run.sd is None:
            no_values = np.full(len(layout.pairs), np.nan)
            return no_values, no_values
        # `tau` is a threshold on the root mean square of a pair's couplings
        return self._posterior.strength(self._engine, layout, run, tau, np.random.default_rng(0))

    def __repr__(self) -> str:
        layout = self._estimate.parameters.layout
        head = f"Posterior of {layout.size} parameters in {len(self._labels.groups)} groups."
        return f"{head}\n{fill(self.note)}"
