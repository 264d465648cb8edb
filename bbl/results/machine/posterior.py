"""PosteriorDraws: draws of fields and couplings, their summaries and convergence diagnostics.

Draws have shape (chains, n, K, size): n draws of each chain, K groups with `size` parameters each.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate
from bbl.checks import arguments, choice, integer, share
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.engines.traits import PosteriorTraits
from bbl.errors import BBLError, OptionError
from bbl.model.layout import Layout
from bbl.report.canvas import group_numbers
from bbl.report.machine.plot_posterior import KINDS, plot_posterior
from bbl.report.machine.tables import parameter_columns, parameter_names
from bbl.report.text import distinct_names
from bbl.results.deprecated import Deprecated, DeprecatedNames
from bbl.stats.diagnostics import (
    effective_sample_size,
    highest_density,
    monte_carlo_error,
    split_rhat,
    tail_sample_size,
)

__all__ = ["PosteriorDraws"]


@dataclass(frozen=True, repr=False, eq=False)
class PosteriorDraws(DeprecatedNames):
    """Draws from the posterior of the parameters (``fit.posterior``) for methods with a sampler.

    Attributes
    ----------
    labels : Labels
        Names of the groups, the predictors and their levels.
    layout : Layout
        Position of each parameter on the last axis of `draws`.
    draws : ndarray, shape (chains, draws, groups, parameters)
        In the reference gauge, in the order of ``fit.tidy()``; nan for a group without rows.
    what : str
        Description of the posterior and its sampler.
    state : tuple of dict
        Sampler statistics of each group, as arrays by chain, such as ``accepted`` and ``diverged``.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0)
    >>> fit.posterior.draws.shape
    (4, 1000, 2, 3)
    >>> fit.posterior.names
    ['Sex[Male]', 'Age[Child]', 'Sex[Male]:Age[Child]']
    """

    labels: Labels
    layout: Layout
    draws: np.ndarray
    what: str
    state: tuple[dict[str, np.ndarray], ...] = ()

    of = Deprecated("_of", "fit.posterior")

    @classmethod
    def _of(cls, labels: Labels, estimate: Estimate, engine: Engine) -> PosteriorDraws:
        """Return the draws of all groups of a fit. Raises an OptionError if the fit has none.

        `labels` contains the names of groups, predictors and levels, `estimate` is the fit, and
        `engine` contains its method and options.
        """
        # the run on all rows pooled may follow; draws (chains, n, size)
        runs = estimate.fits[: len(labels.groups)]
        template = next((run.draws for run in runs if run.draws is not None), None)
        if template is None:
            raise OptionError(
                f"{engine.refusals()['draws']}.", argument="method", hint="Choose method='bayes'."
            )
        no_draws = np.full_like(template, np.nan)
        draws = np.stack([no_draws if run.draws is None else run.draws for run in runs], axis=2)
        layout = estimate.parameters.layout
        description = cast(PosteriorTraits, engine.posterior).describe(engine, layout)
        return cls(labels, layout, draws, description, tuple(run.state for run in runs))

    def to_frame(self) -> pd.DataFrame:
        """Return the draws as a frame.

        Rows are indexed by ``chain`` and ``draw``, and columns by ``group`` and ``parameter``.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl(
        ...     "Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0
        ... )
        >>> fit.posterior.to_frame().shape
        (4000, 6)
        """
        chains, n, K, size = self.draws.shape
        rows = pd.MultiIndex.from_product([range(chains), range(n)], names=["chain", "draw"])
        columns = pd.MultiIndex.from_product(
            [list(self.labels.groups), self.names], names=["group", "parameter"]
        )
        return pd.DataFrame(self.draws.reshape(chains * n, K * size), index=rows, columns=columns)

    def to_arviz(self) -> Any:
        """Return the draws for ArviZ: the variable ``theta`` of the posterior, by group and
        parameter.

        The type is ``InferenceData`` with ArviZ 0.x, and xarray's ``DataTree`` with ArviZ 1.0 or
        later.

        Raises
        ------
        BBLError
            If ArviZ is not installed.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl(
        ...     "Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0
        ... )
        >>> fit.posterior.to_arviz().posterior["theta"].dims
        ('chain', 'draw', 'group', 'parameter')
        """
        try:
            import arviz
        except ImportError as error:
            raise BBLError(
                "to_arviz() requires ArviZ, which is not installed.",
                hint=(
                    "Run pip install arviz, or use to_frame() and summary(), which do not "
                    "require it."
                ),
            ) from error
        coords = {"group": distinct_names(map(str, self.labels.groups)), "parameter": self.names}
        draws: dict[str, Any] = {"theta": self.draws}
        # `arguments`: names. ArviZ 1.0 and later takes one dict of all sections, such as
        # "posterior" and "prior"
        if "posterior" not in arguments(arviz.from_dict):
            draws = {"posterior": draws}
        return arviz.from_dict(draws, coords=coords, dims={"theta": ["group", "parameter"]})

    @property
    def names(self) -> list[str]:
        """Name of each parameter: ``Sex[Male]``, ``Class[2nd]:Sex[Male]``."""
        return distinct_names(parameter_names(self.labels, self.layout))

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Return the mean, standard deviation and shortest interval of every parameter, and Monte
        Carlo diagnostics.

        Parameters
        ----------
        level : float, default 0.95
            Posterior probability of the intervals.

        Returns
        -------
        DataFrame
            The columns of ``tidy()`` that identify the parameter, then ``mean``, ``sd``,
            ``hdi_lower`` and ``hdi_upper`` (the shortest interval with probability `level`),
            ``mcse`` (Monte Carlo standard error of the mean), ``ess_bulk``, ``ess_tail`` (effective
            sample sizes) and ``rhat`` (Vehtari et al. 2021).

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl(
        ...     "Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0
        ... )
        >>> fit.posterior.summary()[["mean", "sd", "rhat"]].shape
        (6, 3)
        """
        share("level", level)
        mean = self.draws.mean(axis=(0, 1))
        sd = self.draws.std(axis=(0, 1), ddof=1)
        lower, upper = highest_density(self.draws, level)
        columns = {"mean": mean, "sd": sd, "hdi_lower": lower, "hdi_upper": upper}
        values = {name: v.ravel() for name, v in (columns | self._diagnostics).items()}
        return pd.DataFrame({**parameter_columns(self.labels, self.layout), **values})

    @cached_property
    def _diagnostics(self) -> dict[str, np.ndarray]:
        """Convergence diagnostics (K, size) by name, as in `summary`; nan for groups without
        rows.
        """
        diagnostics = {
            name: np.full(self.draws.shape[2:], np.nan)
            for name in ("mcse", "ess_bulk", "ess_tail", "rhat")
        }
        for g in range(self.draws.shape[2]):
            draws = self.draws[:, :, g]  # (chains, n, size)
            if not np.isnan(draws).any():
                diagnostics["mcse"][g] = monte_carlo_error(draws)
                diagnostics["ess_bulk"][g], diagnostics["ess_tail"][g] = (
                    effective_sample_size(draws),
                    tail_sample_size(draws),
                )
                # folded: sensitive to scale as well as location
                diagnostics["rhat"][g] = split_rhat(draws, folded=True)
        return diagnostics

    def plot(
        self,
        kind: Literal["forest", "trace", "rank"] = "forest",
        group: Hashable = None,
        top: int = 20,
        level: float = 0.95,
        axes: Any = None,
    ) -> Any:
        """Draw intervals of the parameters, traces of the chains, or ranks of their draws.

        Parameters
        ----------
        kind : {"forest", "trace", "rank"}, default "forest"
            "forest": means with shortest intervals, a row for each parameter. "trace": the values
            of each chain, draw by draw. "rank": histograms of each chain's ranks among all draws,
            which are uniform if the chains have mixed.
        group : optional
            The group; by default the first, or all groups in a forest plot.
        top : int, default 20
            Number of parameters: those with the largest R-hat in traces and ranks, those with the
            largest ratio of mean to standard deviation in forests. Traces and ranks show at most
            12.
        level : float, default 0.95
            Posterior probability of the intervals.
        axes : sequence of matplotlib Axes, optional
            One for a forest, otherwise one for each parameter; a new figure by default.

        Returns
        -------
        list of matplotlib Axes

        Raises
        ------
        OptionError
            If `kind` or `group` is unknown.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl(
        ...     "Survived ~ Sex * Age", titanic, "Freq", method="bayes", seed=1, verbose=0
        ... )
        >>> len(fit.posterior.plot("trace", group="Yes", top=2))
        2
        >>> plt.close()
        """
        choice("kind", kind, KINDS)
        share("level", level)
        top = integer("top", top, 1)
        groups = self.labels.groups if kind == "forest" else self.labels.groups[:1]
        group_positions = group_numbers(self.labels, groups if group is None else [group])
        draws = self.draws[:, :, group_positions]
        group_names = [str(self.labels.groups[g]) for g in group_positions]
        return plot_posterior(
            kind,
            draws,
            group_names,
            self.names,
            self._diagnostics["rhat"][group_positions],
            top,
            level,
            axes,
        )

    def __repr__(self) -> str:
        chains, n, K, size = self.draws.shape
        rhat = self._diagnostics["rhat"]
        ess = self._diagnostics["ess_bulk"]
        diagnosis = (
            f"Largest R-hat {np.nanmax(rhat):.3f}, smallest effective sample size "
            f"{np.nanmin(ess):.0f}."
        )
        diverged = sum(int(state["diverged"].sum()) for state in self.state if "diverged" in state)
        divergences = f" {diverged} divergent transitions." if diverged else ""
        return (
            f"{chains} chains with {n} draws of {size} parameters in {K} groups: "
            f"{self.what}.\n{diagnosis}{divergences}\n.draws, .to_frame(), .summary(), .plot()"
        )
