"""The method `mcSample` of fitted Boltzmann machines, which runs Gibbs chains for every group."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bbl.boltzmann.mixture import MixtureDraws, draw_chains
from bbl.capabilities import WITH_ZEROS
from bbl.checks import check_keywords, flag, generator, integer
from bbl.design.labels import Labels
from bbl.errors import ConvergenceWarning, OptionError
from bbl.model.chains import GibbsDraws, gibbs
from bbl.model.higher import split
from bbl.parallel import progress_bar
from bbl.report.machine.tables import category_frame
from bbl.results.machine.draws import SampleResults
from bbl.results.machine.machine import MachineResults, of_categories
from bbl.stats.diagnostics import effective_sample_size, split_rhat

__all__ = ["ChainOptions", "ChainsMixin", "sample_chains"]

MAX_RHAT = 1.1  # split R-hat above which the chains have not mixed
# smallest number of draws, per chain and in total, for a warning: with fewer, split R-hat is often
# large by chance
MIN_CHAIN_DRAWS = 20
MIN_DRAWS = 100


@dataclass(frozen=True)
class ChainOptions:
    """Arguments of `mcSample`, before validation."""

    nsteps: int
    nchains: int
    draws: bool
    thin: int
    seed: int | np.random.Generator | None
    verbose: int


def sample_chains(fit: MachineResults, options: ChainOptions) -> SampleResults:
    """Run the chains of all groups of a fit. Called directly by public functions."""
    nsteps = integer("nsteps", options.nsteps, 1)
    thin = integer("thin", options.thin, 1)
    nchains = integer("nchains", options.nchains, 1)
    keeps_draws = flag("draws", options.draws)
    rng = generator(options.seed)
    fit.engine.check_density("mcSample")
    if fit.estimate.parameters.layout.support is not None:
        raise OptionError(
            f"{WITH_ZEROS['`mcSample`']}.",
            argument="fit",
            hint=(
                "Draw independent rows with sample(), or list the counts of all rows with cells()."
            ),
        )
    layout = fit.estimate.parameters.layout
    labels = fit.labels
    # a predictor with one level has no parameters and is not sampled
    varies = np.ones(layout.m, dtype=bool) if fit._hidden is not None else layout.n_levels > 1
    varying_layout = layout if varies.all() else layout.without_constants()
    burn_in = nsteps // 2
    n_sweeps = nsteps - burn_in
    # if draws are kept, at least one; None: none
    draw_thin = min(thin, n_sweeps) if keeps_draws else None
    # with `best`, `best_energy` and, if draws are kept, `draws` (chains, draws, varying predictors)
    # and their `energy`
    chains_by_group: list[GibbsDraws | MixtureDraws] = []
    with progress_bar(len(labels.groups), "mcSample", options.verbose) as progress:
        for g, theta in enumerate(fit.estimate.parameters.theta):
            if fit._hidden is not None:
                counts = (nchains, burn_in, n_sweeps)
                log_z = float(fit.estimate.log_z[g])
                chains_by_group.append(
                    draw_chains(fit._hidden, g, counts, draw_thin or n_sweeps, log_z, rng)
                )
            else:
                h, J, higher_terms = split(varying_layout, theta)
                chains_by_group.append(
                    gibbs(
                        h,
                        J,
                        varying_layout.n_levels,
                        n_sweeps,
                        nchains,
                        rng,
                        burn_in,
                        draw_thin,
                        more=higher_terms,
                    )
                )
            progress()
    groups = list(labels.groups)
    best_codes = np.zeros((len(groups), layout.m), dtype=np.intp)
    # best: the most probable state that was visited
    best_codes[:, varies] = [chains.best for chains in chains_by_group]
    xmax = {
        group: [labels.levels[predictor][code] for predictor, code in enumerate(codes)]
        for group, codes in zip(groups, best_codes, strict=True)
    }
    draws_by_group = rhat = ess = None
    if keeps_draws:
        draws_by_group = {
            group: _decode_draws(np.asarray(chains.draws), varies, labels)
            for group, chains in zip(groups, chains_by_group, strict=True)
        }
        # (chains, draws) of each group
        energies = [np.asarray(chains.energy) for chains in chains_by_group]
        if energies[0].shape[1] >= 4:  # split R-hat requires two draws per half
            rhat = pd.Series(
                [float(split_rhat(energy)) for energy in energies], index=groups, name="rhat"
            )
            ess = pd.Series(
                [float(effective_sample_size(energy)) for energy in energies],
                index=groups,
                name="ess",
            )
            if energies[0].shape[1] >= MIN_CHAIN_DRAWS and energies[0].size >= MIN_DRAWS:
                _warn_unmixed(rhat)
    xmax_frame = pd.DataFrame(xmax, index=pd.Index(labels.names, dtype=object), columns=groups)
    emax = pd.Series([chains.best_energy for chains in chains_by_group], index=groups, name="emax")
    return SampleResults(xmax_frame, emax, rhat, ess, draws_by_group, labels, best_codes)


def _warn_unmixed(rhat: pd.Series) -> None:
    """Warn if the split R-hat (a Series by group) exceeds MAX_RHAT in any group."""
    unmixed = rhat[rhat > MAX_RHAT]
    if len(unmixed):
        shown = ", ".join(f"{value:.2f} in group {group!r}" for group, value in unmixed.items())
        warnings.warn(
            ConvergenceWarning(
                f"The chains have not mixed: the split R-hat of the energy is {shown}, but it "
                f"should be below {MAX_RHAT}.",
                hint="Increase nsteps, and do not use these draws as a sample.",
            ),
            stacklevel=5,
        )


def _decode_draws(draws: np.ndarray, varies: np.ndarray, labels: Labels) -> pd.DataFrame:
    """Return draws as a frame with the levels of all m predictors.

    The draws are codes (chains, draws, varying predictors). `varies` (m,) marks the predictors with
    several levels; the other predictors have code 0.
    """
    codes = np.zeros((draws.shape[0] * draws.shape[1], len(varies)), dtype=np.intp)
    codes[:, varies] = draws.reshape(len(codes), -1)
    columns = dict(zip(labels.names, zip(codes.T, labels.levels, strict=True), strict=True))
    return category_frame(columns, pd.RangeIndex(len(codes)))


class ChainsMixin(MachineResults):
    """Gibbs chains of a fitted Boltzmann machine."""

    @check_keywords
    @of_categories
    def mcSample(
        self,
        nsteps: int = 1000,
        *,
        nchains: int = 64,
        draws: bool = False,
        thin: int = 1,
        seed: int | np.random.Generator | None = None,
        verbose: int = 1,
    ) -> SampleResults:
        """Sample the predictors of each response group by Gibbs sampling (see `bbl.mcSample`).

        Parameters
        ----------
        nsteps, nchains, draws, thin, seed, verbose
            As in `bbl.mcSample`.

        Returns
        -------
        SampleResults

        Raises
        ------
        OptionError, BBLTypeError
            If an argument is out of range; the message names it.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.mcSample(nsteps=100, seed=1).xmax
                  No    Yes
        Class   Crew   Crew
        Sex     Male   Male
        Age    Adult  Adult
        """
        return sample_chains(self, ChainOptions(nsteps, nchains, draws, thin, seed, verbose))
