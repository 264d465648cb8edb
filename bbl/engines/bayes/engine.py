"""Posterior: draws from the posterior of fields and couplings, with the true ln Z or without one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from bbl.checks import choice, flag, integer, real
from bbl.engines.base import Engine
from bbl.engines.bayes.conjugate import conjugate_draws
from bbl.engines.bayes.hidden import hidden_draws, summed_exactly, visible_columns, widened
from bbl.engines.bayes.posterior import Problem, adjustment, draw_chains, mode
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.traits import PosteriorTraits
from bbl.errors import DataError, DataWarning, OptionError
from bbl.memory import check_memory
from bbl.model.gauge import to_reference, to_simplex
from bbl.model.layout import Layout
from bbl.parallel import run_tasks
from bbl.rows.sample import Sample
from bbl.stats.diagnostics import effective_sample_size, split_rhat

__all__ = ["Posterior"]

PRIORS = ("normal", "conjugate", "horseshoe")
SAMPLERS = ("auto", "conjugate", "exact", "exchange", "pseudo")
STATES = 2**16  # up to which they are enumerated
FEW = 50  # parameters up to which "auto" takes the exchange algorithm
DRAWN = 1e6  # observations up to which rows can be drawn by sweeps
MAX_RHAT = 1.01  # split R-hat above which there is a warning (Vehtari et al. 2021)
MIN_ESS = 100.0  # effective sample size per chain below which there is a warning (Vehtari et al. 2021)
CHANCE = 6.0  # R-hat less one of chains that have mixed is hardly over this times chains / effective sample size
MANY = " States of so many coupled units are not summed over but annealed; predictions are slow, and have errors."
SHARP = 0.1  # share of a group's observations that c should not be under


@dataclass(frozen=True)
class Posterior(Engine):
    """Draws from the posterior of the fields and couplings of each group.

    Priors are on coefficients in simplex coding, where no level is the reference; the draws are then taken to the
    reference gauge, one by one. Estimates are posterior means.

    Parameters
    ----------
    prior : {"normal", "conjugate", "horseshoe"}, default "normal"
        Independent normal coefficients; those of the thesis, whose posterior is a closed form (see Notes); or normal
        ones whose scales, one for each predictor's fields and each pair's couplings, are half-Cauchy around a global
        scale for fields and one for couplings, which are half-Cauchy too.
    sampler : {"auto", "conjugate", "exact", "exchange", "pseudo"}, default "auto"
        ``"exact"``: the no-U-turn sampler on the true posterior, ln Z and its gradient being summed over all states, of
        which there may be 65,536. ``"exchange"``: the exchange algorithm, which needs rows drawn from the model in
        place of ln Z: exact ones up to 65,536 states, beyond by Gibbs sweeps that start at the data. ``"pseudo"``: the
        pseudo-likelihood in place of the likelihood. ``"auto"`` takes the first that can be had: exact; exchange up to
        50 parameters; pseudo. The conjugate prior has its own.
    chains : int, default 4
    warmup, draws : int, default 1000
        Transitions of a chain that are thrown away, and those that are kept.
    hidden : int, default 0
        Hidden units, -1 or 1, each coupled to all predictors; for the conjugate prior alone. They freeze, see the
        warning. A formula without interactions makes a restricted machine. ``coef()`` is of the predictors, every unit
        being -1; predictions sum the units out.
    c : float, optional
        Of the conjugate prior ``Z^n exp(-c |phi|^2)``; half of a group's observations by default.
    tau : float, default 1.0
        Standard deviation of the normal prior; of the horseshoe the slab, which bounds scales (inf for none).
    seed : int, optional
        For the draws alone, whatever the call's seed is.
    adjust : bool, default True
        Whether the pseudo-likelihood is adjusted to have Godambe's information for its curvature. Every coupling is in
        two conditional distributions, so that without the adjustment intervals of couplings are too narrow.
    sweeps : int, default 5
        Gibbs sweeps for each row of the exchange algorithm, where there are too many states for exact rows.
    hidden_pairs : bool, default False
        Whether hidden units are coupled to each other too; with all pairs of predictors, the full machine. Predictions
        then sum over all states of the units, exactly up to 16 units at least; beyond, there is a warning.

    Raises
    ------
    OptionError
        If an option is out of its range or does not go with the others, or a sampler cannot be used: it says how large
        the model is, and what to use.
    DataError
        If values are missing: they are not summed out.

    Warns
    -----
    ConvergenceWarning
        If R-hat of a parameter is over 1.01, and over what so many draws have by chance, or its effective sample size
        is under 100 a chain.
    DataWarning
        If `c` is under a tenth of a group's observations, or there are hidden units.

    Notes
    -----
    The conjugate prior depends on the number n of observations and cancels the likelihood's ``Z^-n``: the posterior is
    independent normal with mean ``S / 2c`` and variance ``1 / 2c``, S the sum of a contrast over the rows. Its mean
    grows with n without end, and c is nothing but an inverse temperature; with ``c = n / 2`` the mean is that of the
    high-temperature expansion, the moments themselves. It is there for comparison, and for un-normalised scores as
    features; `bbl.sklearn.ScoreFeatures`.

    References
    ----------
    Murray, Ghahramani & MacKay (2006). MCMC for doubly-intractable distributions. UAI.
    Hoffman & Gelman (2014). The no-U-turn sampler. JMLR 15, 1593-1623.
    Ribatet, Cooley & Davison (2012). Bayesian inference from composite likelihoods. Statistica Sinica 22, 813-845.
    Piironen & Vehtari (2017). Sparsity information and regularization in the horseshoe. EJS 11, 5018-5051.
    Li (2014). Biclustering methods and a Bayesian approach to fitting Boltzmann machines. Iowa State, chapter 3.
    """

    prior: str = "normal"
    sampler: str = "auto"
    chains: int = 4
    warmup: int = 1000
    draws: int = 1000
    hidden: int = 0
    c: float | None = None
    tau: float = 1.0
    seed: int | None = None
    adjust: bool = True
    sweeps: int = 5
    hidden_pairs: bool = False
    name = "bayes"
    log_z = "ais"
    samples = True
    sized_by: ClassVar[tuple[str, ...]] = ("draws", "warmup", "chains")

    def __post_init__(self):
        choice("prior", self.prior, PRIORS)
        choice("sampler", self.sampler, SAMPLERS)
        for name, low in (("chains", 1), ("warmup", 10), ("draws", 4), ("hidden", 0), ("sweeps", 1)):
            object.__setattr__(self, name, integer(name, getattr(self, name), low))
        if self.seed is not None:
            object.__setattr__(self, "seed", integer("seed", self.seed, 0))
        flag("adjust", self.adjust)
        if flag("hidden_pairs", self.hidden_pairs) and self.hidden < 2:
            raise OptionError(
                f"hidden_pairs=True couples hidden units, and hidden={self.hidden}. Give hidden=2 or more.",
                argument="hidden_pairs",
            )
        tau = real("tau", self.tau, 0.0, open_low=True, finite=self.prior != "horseshoe")
        object.__setattr__(self, "tau", tau)
        if self.c is not None:
            object.__setattr__(self, "c", real("c", self.c, 0.0, open_low=True))
        conjugate = self.prior == "conjugate"
        if (self.sampler == "conjugate") > conjugate or (conjugate and self.sampler not in ("auto", "conjugate")):
            raise OptionError(
                f"sampler={self.sampler!r} does not go with prior={self.prior!r}: the conjugate prior, and it alone, "
                "has a closed form. Leave sampler='auto'.",
                argument="sampler",
            )
        for name, is_given in (("c", self.c is not None), ("hidden", self.hidden > 0)):
            if is_given and not conjugate:
                raise OptionError(f"{name} is for prior='conjugate', not for prior={self.prior!r}.", argument=name)

    @property
    def penalised(self) -> bool:
        """Always: the prior draws estimates towards zero."""
        return True

    def generator(self, rng: np.random.Generator) -> np.random.Generator:
        """Return the generator of the engine's own seed, if it has one."""
        return rng if self.seed is None else np.random.default_rng(self.seed)

    def resolve(self, layout: Layout) -> str:
        """Return the sampler that is used for this model."""
        if self.prior == "conjugate":
            return "conjugate"
        if self.sampler != "auto":
            return self.sampler
        if n_states(layout) <= STATES:
            return "exact"
        return "exchange" if layout.size <= FEW else "pseudo"

    def widened(self, layout: Layout) -> Layout:
        """Return the layout with the hidden units behind the predictors."""
        return widened(layout, self.hidden, self.hidden_pairs) if self.hidden else layout

    def describe(self, layout: Layout) -> str:
        """Return the posterior and the sampler in words."""
        sampler, states = self.resolve(layout), n_states(layout)
        prior = f"{self.prior} prior" + (f" of tau {self.tau:g}" if self.prior != "conjugate" else "")
        chosen = f", chosen because there are {states:.3g} states" if self.sampler == "auto" and states > STATES else ""
        units = f"{self.hidden} hidden units" + (", coupled to each other" if self.hidden_pairs else "")
        how = {
            "conjugate": f"Gibbs draws with {units}" if self.hidden else "draws of the closed form",
            "exact": "no-U-turn sampler with the exact ln Z",
            "exchange": f"exchange algorithm with {'exact rows' if states <= STATES else 'rows by Gibbs sweeps'}",
            "pseudo": "no-U-turn sampler on the pseudo-likelihood, "
            + ("adjusted to Godambe's information" if self.adjust else "whose intervals of couplings are too narrow"),
        }
        return f"{prior}, {how[sampler]}{chosen}"

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, each with the reason."""
        return super().refusals() | {"missing_marginal": f"method={cls.name!r} does not sum out missing values"}

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout as it is, once the sampler is known to do for it and for the rows."""
        if sample.missing is not None:
            raise DataError(
                f"{self.refusals()['missing_marginal']}. Drop their rows (missing='drop') or give them a level "
                "of their own (missing='level').",
                argument="missing",
            )
        states, sampler = n_states(layout), self.resolve(layout)
        if sampler == "exact" and states > STATES:
            raise OptionError(
                f"sampler='exact' sums over all states, and these {layout.m} predictors have {states:.3g} (at most "
                f"{STATES:,}). Use sampler='exchange' or 'pseudo', or 'auto', which chooses.",
                argument="sampler",
            )
        if sampler == "exchange" and states > STATES and sample.total > DRAWN:
            raise OptionError(
                f"sampler='exchange' draws {sample.total:,.0f} rows by Gibbs sweeps for each proposal (at most "
                f"{DRAWN:,.0f}), as {states:.3g} states are too many to enumerate. Use sampler='pseudo'.",
                argument="sampler",
            )
        if sampler == "conjugate" and self.c is not None:
            n = np.bincount(sample.response, sample.weights).max()
            if self.c < SHARP * n:
                warnings.warn(
                    f"c={self.c:g} is under a tenth of a group's {n:,.0f} observations. The conjugate posterior then "
                    "lies where nearly all rows are in a few ordered states, whatever the data; the default is c=n/2.",
                    DataWarning,
                    stacklevel=5,
                )
        if self.hidden:
            warnings.warn(
                "Hidden units of the conjugate model freeze: with the coefficients integrated out, their signs have a "
                "probability proportional to exp(|S|^2 / 4c), so large where units agree over many rows that none "
                "changes any more. Draws tell of the start, not of the data: they are for comparison with the thesis."
                + ("" if not self.hidden_pairs or summed_exactly(self.hidden) else MANY),
                DataWarning,
                stacklevel=5,
            )
        return layout

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the bytes of all draws, in both gauges, and of the metric of each chain."""
        size = layout.size * (1 if self.prior != "horseshoe" else 2)
        draws_bytes = 8.0 * self.chains * (2 * self.draws + max(self.warmup, self.draws)) * size
        return draws_bytes + 8.0 * (self.chains + 4) * float(size) ** 2

    def path(
        self,
        sample: Sample,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
        rng: np.random.Generator | None = None,
        progress: Callable | None = None,
    ):
        """Fit one group; `values` are None, for nothing is tuned."""
        rng = np.random.default_rng(0) if rng is None else rng
        check_memory(
            self.memory(sample.n, layout),
            f"{self.chains} chains of {self.draws} draws of {layout.size} parameters",
            "Take fewer draws or chains, or a formula with fewer interactions.",
        )
        if self.prior == "conjugate":
            c = 0.5 * sample.total if self.c is None else self.c
            if self.hidden:
                drawn, state = self._with_hidden(sample, layout, c, rng, workers, progress)
                return [self._finish(sample, layout, drawn.mean(axis=(0, 1)), drawn, state)]
            mean, drawn = conjugate_draws(sample, layout, c, (self.chains, self.draws), rng)
            if progress is not None:
                progress()
            return [self._finish(sample, layout, to_reference(layout, mean), to_reference(layout, drawn), {})]
        drawn, state = self._sample(sample, layout, rng, workers, progress)
        drawn = to_reference(layout, drawn)
        return [self._finish(sample, layout, drawn.mean(axis=(0, 1)), drawn, state)]

    def _with_hidden(self, sample, layout, c, rng, workers, progress) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return draws of the visible parameters in the reference gauge; the state has those of all parameters."""
        report_share = None if progress is None else lambda share: progress(share / self.chains)
        shared = (sample, layout, self.hidden, c, (self.warmup, self.draws))
        tasks = [(*shared, stream, report_share, self.hidden_pairs) for stream in rng.spawn(self.chains)]
        chains = run_tasks(hidden_draws, tasks, min(workers, self.chains), shared=True)
        wide = self.widened(layout)
        drawn = to_reference(wide, np.array([chain.coefficients for chain in chains]))
        state = {
            "flips": np.array([chain.flips for chain in chains]),
            "aligned": np.array([chain.aligned for chain in chains]),
            "hidden": drawn,
        }
        return drawn[..., visible_columns(wide, layout)], state

    def _sample(self, sample, layout, rng, workers, progress) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return draws (chains, draws, size) in simplex coding, and what the chains tell of themselves."""
        sampler, states = self.resolve(layout), n_states(layout)
        problem = Problem(sample, layout, self.tau, self.prior == "horseshoe", enumerate=states <= STATES)
        plain = replace(problem, tau=min(self.tau, 10.0), pseudo=sampler == "pseudo" or states > STATES)
        plain = replace(plain, enumerate=not plain.pseudo)
        centre, hessian = mode(plain)
        if plain.pseudo and (self.adjust or sampler == "exchange"):
            adjust = adjustment(plain, centre, hessian)
            hessian = adjust.curvature(hessian)
            plain = replace(plain, adjust=adjust)
        if sampler == "pseudo":
            problem = replace(plain, tau=self.tau)
        run = partial(draw_chains, problem, "exchange" if sampler == "exchange" else "nuts", centre, hessian)
        sweeps = self.sweeps if sampler == "exchange" and states > STATES else 0
        chains = run((self.chains, self.warmup, self.draws), rng, sweeps, workers, progress)
        state = {
            "accepted": np.array([chain.accepted for chain in chains]),
            "diverged": np.array([chain.diverged for chain in chains]),
        }
        return np.array([chain.draws for chain in chains]), state

    def _finish(self, sample, layout, theta, drawn, state) -> EngineFit:
        """Assemble the fit: the log-likelihood at the mean, or the log pseudo-likelihood, and what did not converge."""
        enumerate = n_states(layout) <= STATES
        target = Problem(sample, layout, np.inf, pseudo=not enumerate, enumerate=enumerate).target()
        value = target.value(np.ascontiguousarray(to_simplex(layout, theta)), np.empty(layout.size))
        rhat, ess = split_rhat(drawn, folded=True), effective_sample_size(drawn)
        notes, converged = _notes(layout, rhat, ess, self.chains)
        return EngineFit(
            theta,
            float(value) / sample.total,
            converged=converged,
            notes=notes,
            sd=drawn.std(axis=(0, 1), ddof=1),
            draws=drawn,
            state=state,
        )

    posterior: ClassVar[PosteriorTraits] = PosteriorTraits(lambda engine: "posterior draws", describe, has_draws=True)


def n_states(layout: Layout) -> int:
    """Return the number of states of the predictors."""
    return math.prod(int(L) for L in layout.n_levels)


def _notes(layout: Layout, rhat: np.ndarray, ess: np.ndarray, chains: int) -> tuple[tuple[Note, ...], np.ndarray]:
    """Return a note for each predictor with a parameter that the chains do not know well, and which have none."""
    rhat, ess = np.nan_to_num(rhat, nan=1.0), np.nan_to_num(ess, nan=np.inf)
    over = (rhat > np.maximum(MAX_RHAT, 1.0 + CHANCE * chains / ess)) | (ess < MIN_ESS * chains)
    text, notes, converged = (
        "chains have not mixed, or are too short; raise warmup and draws",
        [],
        np.ones(layout.m, bool),
    )
    predictors = np.full((2, layout.size), -1)
    predictors[0, : layout.D] = np.repeat(np.arange(layout.m), np.diff(layout.start))
    for pair in layout.pairs:
        layout.table(predictors, *map(int, pair))[:] = pair[:, None, None]
    for i in range(layout.m):
        involves_i = (predictors == i).any(axis=0)
        if over[involves_i].any():
            converged[i] = False
            detail = f"R-hat {rhat[involves_i].max():.3f}, effective sample size {ess[involves_i].min():.0f}"
            notes.append(Note(i, -1, text, detail))
    return tuple(notes), converged
