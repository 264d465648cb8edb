"""PosteriorInference: posterior sds, central intervals and the pairs of a fit with a posterior, under its labels."""

from __future__ import annotations

from typing import NoReturn, cast, final

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate
from bbl.checks import real, share
from bbl.design.labels import Labels
from bbl.engines import Engine, EngineFit
from bbl.engines.traits import PosteriorTraits
from bbl.errors import OptionError
from bbl.results.machine.estimates import Compared, Estimates
from bbl.results.machine.inference import compared, compared_frame, ranked, untested

__all__ = ["PosteriorInference"]

MIN_INCLUDED_COUPLING = 0.05  # root mean square in the zero-sum gauge above which a pair counts as included


@final
class PosteriorInference(Estimates):
    """Posterior sds and central intervals; made by ``fit.inference()`` where the method has a posterior.

    `of` says which parameters are meant: ``"group"`` for each group's own, or a pair of groups ``(a, b)`` for those of
    a less those of b, which share no rows. The pooled fit does share its rows with each group, so there is no
    posterior of ``dh`` and ``dJ``.

    Parameters
    ----------
    labels : Labels
    estimate : Estimate
    engine : Engine

    Attributes
    ----------
    note : str
        What the numbers mean.
    """

    def __init__(self, labels: Labels, estimate: Estimate, engine: Engine):
        self._labels, self._estimate, self._engine = labels, estimate, engine
        self._posterior = cast(PosteriorTraits, engine.posterior)
        self._name = self._posterior.name(engine)
        self.note = f"Posterior standard deviations and central intervals: {self._name}. There are no tests."

    def _selection(self, of: Compared) -> str | tuple[int, int]:
        """Return ``"group"`` or the numbers of two groups; an OptionError for ``"pooled"``."""
        selection = compared(of, list(self._labels.groups), self._estimate.parameters.pooled is not None)
        if selection == "pooled":
            raise OptionError(
                f"{self._engine.refusals()['pooled']}, so there is none of their difference. Give of='group', or two "
                "groups.",
                argument="of",
            )
        return selection

    def _sds(self, selection: str | tuple[int, int]) -> np.ndarray:
        """Return the posterior sds (rows * size,) of all groups, or of a difference; nan for a group without rows."""
        layout, K = self._estimate.parameters.layout, len(self._labels.groups)
        missing = np.full(layout.size, np.nan)
        sds = [missing if fit.sd is None else fit.sd for fit in self._estimate.fits[:K]]
        return np.concatenate(sds) if isinstance(selection, str) else np.hypot(sds[selection[0]], sds[selection[1]])

    def _draws(self, selection: str | tuple[int, int]) -> list[np.ndarray | None]:
        """Return the draws (n, size) of all groups, or of a difference; None where the method or group has none."""
        size = self._estimate.parameters.layout.size
        draws = [None if fit.draws is None else fit.draws.reshape(-1, size) for fit in self._estimate.fits]
        if isinstance(selection, str):
            return draws[: len(self._labels.groups)]
        a, b = draws[selection[0]], draws[selection[1]]
        return [None if a is None or b is None else a - b]

    def _covariance(self, g: int) -> np.ndarray:
        draws = self._draws("group")[g]
        if draws is None:
            raise OptionError(
                f"{self._engine.refusals()['covariances']}; see bse, or take method='bayes', which has draws."
            )
        return np.atleast_2d(np.cov(draws, rowvar=False))

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
            The columns of `Inference.table`: those of ``tidy()`` that name the parameter, then ``estimate`` (posterior
            mean), ``se`` (posterior sd), ``z`` and ``p`` (missing: there is no test), ``lower``, ``upper``, and
            ``test``, which says where the sd comes from. The interval has equal tails: quantiles of the draws where
            there are draws, else those of a normal distribution.

        Raises
        ------
        OptionError
            If `of` asks for differences from the pooled fit, or for groups that there are not.
        """
        from scipy.special import ndtri

        share("level", level)
        selection, frame = self._selection(of), compared_frame(self._labels, self._estimate.parameters, of)
        mean, sd = frame["estimate"].to_numpy(), self._sds(selection)
        half = float(ndtri(0.5 + level / 2)) * sd
        limits = np.array([mean - half, mean + half]).reshape(2, -1, self._estimate.parameters.layout.size)
        for row, draws in enumerate(self._draws(selection)):
            if draws is not None:
                limits[:, row] = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        lower, upper = limits.reshape(2, -1)
        return frame.assign(se=sd, z=np.nan, p=np.nan, lower=lower, upper=upper, test=self._name)

    def tests(self, of: Compared = "group") -> NoReturn:
        """Raise an OptionError: a posterior has no tests."""
        self._engine.check_equations()
        raise OptionError("A posterior has no tests.")

    def interactions(
        self, of: Compared = "group", apc: bool = False, tau: float = MIN_INCLUDED_COUPLING
    ) -> pd.DataFrame:
        """Return the interacting pairs, strongest first, with what the posterior says of their strength.

        Parameters
        ----------
        of : "group" or (group, group), default "group"
            Two groups have the strengths of their difference alone.
        apc : bool, default False
            Whether to subtract the average-product correction from the strengths; `sd` stays that of the strength.
        tau : float, default 0.05
            Root mean square of a pair's couplings in the zero-sum gauge above which the pair counts as there; of two
            predictors with two levels, the Ising coupling.

        Returns
        -------
        DataFrame
            The columns of ``fit.interactions()``, with ``sd`` (posterior sd of the strength) and ``inclusion``
            (posterior probability that the couplings exceed `tau`) after ``strength``; p is missing.
        """
        real("tau", tau, 0.0)
        self._selection(of)
        parameters, groups = self._estimate.parameters, list(self._labels.groups)
        pairs = untested(self._labels, parameters, of, f"no test: {self._name}")
        if isinstance(of, tuple):
            pairs.insert(3, "sd", np.nan)
            pairs.insert(4, "inclusion", np.nan)
        else:
            sds, inclusions = zip(
                *(self._strength(fit, tau) for fit in self._estimate.fits[: len(groups)]), strict=True
            )
            pairs.insert(3, "sd", np.concatenate(sds))
            pairs.insert(4, "inclusion", np.concatenate(inclusions))
        return ranked(pairs, parameters, of, groups, apc)

    def _strength(self, fit: EngineFit, tau: float) -> tuple[np.ndarray, np.ndarray]:
        """Return sd and inclusion probability (P,) of a group's pairs, from a fixed seed; nan without rows."""
        layout = self._estimate.parameters.layout
        if fit.sd is None:
            nothing = np.full(len(layout.pairs), np.nan)
            return nothing, nothing
        return self._posterior.strength(self._engine, layout, fit, tau, np.random.default_rng(0))

    def __repr__(self) -> str:
        layout = self._estimate.parameters.layout
        return f"Posterior of {layout.size} parameters of {len(self._labels.groups)} groups.\n{self.note}"
