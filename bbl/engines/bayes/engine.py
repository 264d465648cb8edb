"""Engine `Posterior`: draws from the posterior of fields and couplings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bbl.checks import choice, flag, integer, real
from bbl.engines.base import Engine
from bbl.engines.bayes.conjugate import conjugate_draws
from bbl.engines.bayes.hidden import hidden_draws, summed_exactly, visible_columns, widened
from bbl.engines.bayes.posterior import Problem, adjustment, draw_chains, mode
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.traits import PosteriorTraits
from bbl.errors import BBLTypeError, DataWarning, OptionError
from bbl.memory import check_memory
from bbl.model.gauge import to_reference, to_simplex
from bbl.model.layout import Layout
from bbl.parallel import run_tasks
from bbl.rows.sample import Sample
from bbl.stats.diagnostics import effective_sample_size, split_rhat

__all__ = ["Posterior"]

PRIORS = ("normal", "conjugate", "horseshoe")
SAMPLERS = ("auto", "conjugate", "exact", "exchange", "pseudo")
MAX_STATES = 2**16  # maximum number of states for sums over all of them in the likelihood
# with more states than that, "auto" uses the exchange algorithm up to this number of parameters
EXCHANGE_PARAMETERS = 50
MAX_SWEPT_ROWS = 1e6  # maximum number of observations for the exchange algorithm by Gibbs sweeps
MAX_RHAT = 1.01  # split R-hat above this gives a warning (Vehtari et al. 2021)
# effective sample size per chain below this gives a warning (Vehtari et al. 2021)
MIN_ESS = 100.0
# in chains that have mixed, R-hat - 1 rarely exceeds this times chains / effective sample size
RHAT_CHANCE = 6.0
ANNEALED = (
    " With so many coupled units, sums over states are approximated by annealing, so predictions "
    "are slow and inexact."
)
GREY_ADVICE = (
    "For columns of numbers between -1 and 1, such as grey values, fit "
    "bbl.ScoreFeatures('conjugate')."
)
MIN_C_SHARE = 0.1  # c below this fraction of a group's observations gives a warning


@dataclass(frozen=True)
class Posterior(Engine):
    """Draws from the posterior of the fields and couplings of each group.

    Priors are placed on coefficients in simplex coding, which has no reference level. Each draw is
    then converted to the reference gauge. Estimates are posterior means.

    Parameters
    ----------
    prior : {"normal", "conjugate", "horseshoe"}, default "normal"
        ``"normal"``: independent normal coefficients. ``"conjugate"``: the prior of Li (2014), with
        a closed-form posterior (see Notes). ``"horseshoe"``: normal coefficients with one scale for
        each predictor's fields and one for each pair's couplings. The scales have half-Cauchy
        distributions around two global scales, one for fields and one for couplings, which also
        have half-Cauchy distributions.
    sampler : {"auto", "conjugate", "exact", "exchange", "pseudo"}, default "auto"
        ``"exact"``: the no-U-turn sampler on the exact posterior, with ln Z summed over up to
        65,536 states. ``"exchange"``: the exchange algorithm, which avoids ln Z by drawing rows
        from the model. Draws are exact with up to 65,536 states; otherwise, they come from Gibbs
        sweeps that start from the data. ``"pseudo"``: the no-U-turn sampler on the
        pseudo-likelihood. ``"auto"``: "exact" if possible, otherwise "exchange" for up to 50
        parameters and "pseudo" for more. ``"conjugate"`` can only be used with the conjugate prior.
    chains : int, default 4
    warmup, draws : int, default 1000
        Numbers of transitions that are discarded and kept in each chain.
    hidden : int, default 0
        Number of hidden units with values -1 or 1, each coupled to all predictors. Hidden units
        require the conjugate prior. A warning is issued, because the chains rarely change the signs
        of hidden units. If the formula has no interactions, the model is a restricted Boltzmann
        machine. ``coef()`` returns the parameters of the predictors given that every unit is -1.
        Predictions sum over the units. Predictors must be categorical; for layers of units over
        numeric predictors in [-1, 1], see `bbl.sklearn.ScoreFeatures`.
    c : float, optional
        Factor c in the conjugate prior ``Z^n exp(-c |phi|^2)``. The default is half the number of
        observations in a group.
    tau : float, default 1.0
        Standard deviation of the normal prior, or of the slab that bounds the scales of the
        horseshoe. With inf, the scales are not bounded.
    seed : int, optional
        Random seed for the draws, which overrides the seed of the fitting function.
    adjust : bool, default True
        Whether to adjust the curvature of the pseudo-likelihood so that it matches the Godambe
        information. Without the adjustment, intervals of couplings are too narrow, because every
        coupling occurs in two conditional distributions.
    sweeps : int, default 5
        Number of Gibbs sweeps used to draw rows in the exchange algorithm if there are too many
        states for exact draws.
    hidden_pairs : bool, default False
        Whether hidden units are also coupled to each other (with all pairs of predictors, this is
        the full Boltzmann machine). Predictions sum over all states of the units. This sum is exact
        for up to 16 units, and in some models for more. With more units, it is approximate and a
        warning is issued.

    Raises
    ------
    OptionError
        If an option is out of range or cannot be combined with another option, or if the model is
        too large for the sampler.
    DataError
        If values are missing.

    Warns
    -----
    ConvergenceWarning
        If a parameter's R-hat exceeds 1.01 and is larger than expected by chance for the number of
        draws, or if its effective sample size is below 100 per chain.
    DataWarning
        If `c` is less than a tenth of the number of observations in a group, or if there are hidden
        units.

    Notes
    -----
    The conjugate prior depends on the number n of observations and cancels the factor ``Z^-n`` in
    the likelihood. In the posterior, coefficients are therefore independent and normal with mean
    ``S / 2c`` and variance ``1 / 2c``, where S is the sum of a contrast over the rows. The mean
    grows without bound as n increases, and c only acts as an inverse temperature. With ``c = n /
    2``, the means equal the sample moments, which are the first-order term of the high-temperature
    expansion. The prior is provided for comparison, and for unnormalised scores as features; see
    `bbl.sklearn.ScoreFeatures`.

    References
    ----------
    Murray, Ghahramani & MacKay (2006). MCMC for doubly-intractable distributions. UAI. Hoffman &
    Gelman (2014). The no-U-turn sampler. JMLR 15, 1593-1623. Ribatet, Cooley & Davison (2012).
    Bayesian inference from composite likelihoods. Statistica Sinica 22, 813-845. Piironen & Vehtari
    (2017). Sparsity information and regularization in the horseshoe. EJS 11, 5018-5051. Li (2014).
    Biclustering methods and a Bayesian approach to fitting Boltzmann machines. Iowa State, chapter
    3.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl(
    ...     "Survived ~ Sex * Age",
    ...     titanic,
    ...     "Freq",
    ...     method=bbl.Posterior(draws=500),
    ...     seed=1,
    ...     verbose=0,
    ... )
    >>> fit.posterior.draws.shape
    (4, 500, 2, 3)
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
        if isinstance(self.hidden, tuple | list):
            raise BBLTypeError(
                f"hidden must be an integer, because there is one layer of units; got "
                f"{self.hidden!r}.",
                argument="hidden",
                hint="Pass one number, or fit layers to grey values with bbl.ScoreFeatures("
                f"'conjugate', options={{'hidden': {tuple(self.hidden)}}}).",
                value=self.hidden,
            )
        for name, least in (
            ("chains", 1),
            ("warmup", 10),
            ("draws", 4),
            ("hidden", 0),
            ("sweeps", 1),
        ):
            object.__setattr__(self, name, integer(name, getattr(self, name), least))
        if self.seed is not None:
            object.__setattr__(self, "seed", integer("seed", self.seed, 0))
        flag("adjust", self.adjust)
        if flag("hidden_pairs", self.hidden_pairs) and self.hidden < 2:
            raise OptionError(
                f"hidden_pairs=True requires at least two hidden units, but hidden={self.hidden}.",
                argument="hidden_pairs",
                hint="Use hidden=2 or more.",
            )
        tau = real("tau", self.tau, 0.0, open_low=True, finite=self.prior != "horseshoe")
        object.__setattr__(self, "tau", tau)
        if self.c is not None:
            object.__setattr__(self, "c", real("c", self.c, 0.0, open_low=True))
        conjugate = self.prior == "conjugate"
        # a > b of two booleans: a and not b
        if (self.sampler == "conjugate") > conjugate or (
            conjugate and self.sampler not in ("auto", "conjugate")
        ):
            raise OptionError(
                f"sampler={self.sampler!r} cannot be combined with prior={self.prior!r}: only the "
                "conjugate prior has a closed form.",
                argument="sampler",
                hint="Leave sampler='auto'.",
                value=self.sampler,
            )
        for name, is_given in (("c", self.c is not None), ("hidden", self.hidden > 0)):
            if is_given and not conjugate:
                raise OptionError(
                    f"{name} requires prior='conjugate'; got prior={self.prior!r}.", argument=name
                )

    @property
    def penalised(self) -> bool:
        """Always True, because the prior shrinks estimates towards zero."""
        return True

    @property
    def numbers_advice(self) -> str:
        """Advice to use Li's model for grey values; empty unless the prior is conjugate."""
        return GREY_ADVICE if self.prior == "conjugate" else ""

    def generator(self, rng: np.random.Generator) -> np.random.Generator:
        """Return a generator from the engine's `seed`, or `rng` if it has none."""
        return rng if self.seed is None else np.random.default_rng(self.seed)

    def resolve(self, layout: Layout) -> str:
        """Return the name of the sampler that is used for this model."""
        if self.prior == "conjugate":
            return "conjugate"
        if self.sampler != "auto":
            return self.sampler
        if n_states(layout) <= MAX_STATES:
            return "exact"
        return "exchange" if layout.size <= EXCHANGE_PARAMETERS else "pseudo"

    def widened(self, layout: Layout, max_size: float = math.inf) -> Layout:
        """Return the layout with the hidden units appended to the predictors.

        A ValueError is raised if this layout has more than `max_size` parameters.
        """
        if not self.hidden:
            return layout
        n_unit_pairs = math.comb(self.hidden, 2) if self.hidden_pairs else 0
        # each unit has a field, and a coupling to each non-reference level
        if (
            layout.size + self.hidden * (1 + int((layout.n_levels - 1).sum())) + n_unit_pairs
            > max_size
        ):
            raise ValueError(
                f"a model with hidden={self.hidden} has more than {max_size} parameters"
            )
        return widened(layout, self.hidden, self.hidden_pairs)

    def describe(self, layout: Layout) -> str:
        """Return a description of the posterior and the sampler."""
        sampler = self.resolve(layout)
        states = n_states(layout)
        prior = f"{self.prior} prior" + (
            f" with tau {self.tau:g}" if self.prior != "conjugate" else ""
        )
        is_fallback = self.sampler == "auto" and states > MAX_STATES
        reason = f", chosen because there are {states:.3g} states" if is_fallback else ""
        units = f"{self.hidden} hidden units" + (
            ", coupled to each other" if self.hidden_pairs else ""
        )
        description = {
            "conjugate": f"Gibbs draws with {units}"
            if self.hidden
            else "draws from the closed form",
            "exact": "no-U-turn sampler with the exact ln Z",
            "exchange": (
                "exchange algorithm with "
                f"{'exact rows' if states <= MAX_STATES else 'rows by Gibbs sweeps'}"
            ),
            "pseudo": "no-U-turn sampler on the pseudo-likelihood, "
            + (
                "adjusted to Godambe's information"
                if self.adjust
                else "without adjustment, so intervals for couplings are too narrow"
            ),
        }
        return f"{prior}, {description[sampler]}{reason}"

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, with the reason for each."""
        return super().refusals() | {
            "missing_marginal": f"method={cls.name!r} does not average over missing values"
        }

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout unchanged, after checking the layout and the rows.

        An OptionError is raised if the sampler cannot be used. A warning is issued if it is not
        recommended.
        """
        self.check_missing(sample)
        states = n_states(layout)
        sampler = self.resolve(layout)
        if sampler == "exact" and states > MAX_STATES:
            raise OptionError(
                f"sampler='exact' sums over at most {MAX_STATES:,} states, but these "
                f"{layout.m} predictors have {states:.3g} states.",
                argument="sampler",
                hint="Use sampler='exchange' or 'pseudo', or 'auto' to choose automatically.",
            )
        if sampler == "exchange" and states > MAX_STATES and sample.total > MAX_SWEPT_ROWS:
            raise OptionError(
                f"sampler='exchange' draws {sample.total:,.0f} rows by Gibbs sweeps for each "
                f"proposal, because {states:.3g} states are too many to enumerate. The limit is "
                f"{MAX_SWEPT_ROWS:,.0f} rows.",
                argument="sampler",
                hint="Use sampler='pseudo'.",
            )
        if sampler == "conjugate" and self.c is not None:
            # number of observations of the largest group
            n = np.bincount(sample.response, sample.weights).max()
            if self.c < MIN_C_SHARE * n:
                warnings.warn(
                    DataWarning(
                        f"c={self.c:g} is less than a tenth of a group's {n:,.0f} observations. "
                        "The conjugate posterior then concentrates on a few ordered states, "
                        "regardless of the data. The default is c=n/2.",
                        hint="Omit the c argument, or pass at least c=n/10.",
                    ),
                    stacklevel=5,
                )
        if self.hidden:
            warnings.warn(
                DataWarning(
                    "The hidden units of the conjugate model freeze. With the coefficients "
                    "integrated out, the probability of their signs is proportional to exp(|S|^2 "
                    "/ 4c). When units agree over many rows, the exponent is so large that the "
                    "signs stop changing, and the draws depend on the starting values instead of "
                    "the data. Use these draws only for comparison with Li (2014)."
                    + ("" if not self.hidden_pairs or summed_exactly(self.hidden) else ANNEALED)
                ),
                stacklevel=5,
            )
        return layout

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, for all draws in two codings and for each chain's metric."""
        # the horseshoe has at most as many scales as coefficients
        size = layout.size * (1 if self.prior != "horseshoe" else 2)
        # draws are stored in both codings; a chain also stores the points of its warm-up, then of
        # its draws
        draws_bytes = 8.0 * self.chains * (2 * self.draws + max(self.warmup, self.draws)) * size
        # the metric of each chain, and four more matrices of the same size
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
        """Fit one group, and return a list with one fit.

        `values` must be None, because the engine has no tuned option.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        check_memory(
            self.memory(sample.n, layout),
            f"{self.chains} chains of {self.draws} draws of {layout.size} parameters",
            "Use fewer draws or chains, or a formula with fewer interactions.",
        )
        if self.prior == "conjugate":
            c = 0.5 * sample.total if self.c is None else self.c
            if self.hidden:
                drawn, state = self._with_hidden(sample, layout, c, rng, workers, progress)
                return [self._finish(sample, layout, drawn.mean(axis=(0, 1)), drawn, state)]
            mean, drawn = conjugate_draws(sample, layout, c, (self.chains, self.draws), rng)
            if progress is not None:
                progress()  # without a fraction: all of the work
            return [
                self._finish(
                    sample,
                    layout,
                    to_reference(layout, mean),
                    to_reference(layout, drawn),
                    state={},
                )
            ]
        drawn, state = self._sample(sample, layout, rng, workers, progress)
        drawn = to_reference(layout, drawn)
        return [self._finish(sample, layout, drawn.mean(axis=(0, 1)), drawn, state)]

    def _with_hidden(
        self,
        sample: Sample,
        layout: Layout,
        c: float,
        rng: np.random.Generator,
        workers: int,
        progress,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return draws (chains, draws, size) of the parameters of predictors, and the fit's state.

        Draws are in the reference gauge. ``state["hidden"]`` (chains, draws, size of the widened
        layout) contains the draws of all parameters; ``state["flips"]`` and ``state["aligned"]``
        (chains,) are attributes of `HiddenDraws`.
        """
        report_share = None if progress is None else lambda share: progress(share / self.chains)
        shared = (sample, layout, self.hidden, c, (self.warmup, self.draws))
        tasks = [
            (*shared, chain_rng, report_share, self.hidden_pairs)
            for chain_rng in rng.spawn(self.chains)
        ]
        chains = run_tasks(hidden_draws, tasks, min(workers, self.chains), shared=True)
        wide = self.widened(layout)
        drawn = to_reference(wide, np.array([chain.coefficients for chain in chains]))
        state = {
            "flips": np.array([chain.flips for chain in chains]),
            "aligned": np.array([chain.aligned for chain in chains]),
            "hidden": drawn,
        }
        return drawn[..., visible_columns(wide, layout)], state

    def _sample(
        self,
        sample: Sample,
        layout: Layout,
        rng: np.random.Generator,
        workers: int,
        progress: Callable | None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return draws (chains, draws, size) in simplex coding, and the state of the fit.

        The state contains the mean acceptance probability and the number of divergent transitions
        of each chain.
        """
        sampler = self.resolve(layout)
        states = n_states(layout)
        problem = Problem(
            sample,
            layout,
            self.tau,
            horseshoe=self.prior == "horseshoe",
            enumerate=states <= MAX_STATES,
        )
        # the problem for the normal approximation that chains start from; tau is bounded to make it
        # proper
        approximate = replace(
            problem, tau=min(self.tau, 10.0), pseudo=sampler == "pseudo" or states > MAX_STATES
        )
        approximate = replace(approximate, enumerate=not approximate.pseudo)
        # the mode (size,) and the precision (size, size) of the approximation
        centre, hessian = mode(approximate)
        if approximate.pseudo and (self.adjust or sampler == "exchange"):
            godambe = adjustment(approximate, centre, hessian)
            hessian = godambe.curvature(hessian)
            approximate = replace(approximate, adjust=godambe)
        if sampler == "pseudo":
            # this includes the pseudo-likelihood and its adjustment
            problem = replace(approximate, tau=self.tau)
        kernel = "exchange" if sampler == "exchange" else "nuts"
        sweeps = self.sweeps if sampler == "exchange" and states > MAX_STATES else 0
        counts = (self.chains, self.warmup, self.draws)
        chains = draw_chains(
            problem, kernel, centre, hessian, counts, rng, sweeps, workers, progress
        )
        state = {
            "accepted": np.array([chain.accepted for chain in chains]),
            "diverged": np.array([chain.diverged for chain in chains], dtype=float),
        }
        return np.array([chain.draws for chain in chains]), state

    def _finish(self, sample, layout, theta, drawn, state) -> EngineFit:
        """Return the fit: estimates, mean log (pseudo-)likelihood, and notes on convergence.

        `theta` (size,) contains the estimates and `drawn` (chains, draws, size) the draws, both in
        the reference gauge. `state` contains the other results to be stored.
        """
        lists_states = n_states(layout) <= MAX_STATES
        target = Problem(
            sample, layout, tau=np.inf, pseudo=not lists_states, enumerate=lists_states
        ).target()
        # with tau = inf the prior contributes nothing; the gradient, the second argument, is not
        # used
        value = target.value(np.ascontiguousarray(to_simplex(layout, theta)), np.empty(layout.size))
        rhat = split_rhat(drawn, folded=True)
        ess = effective_sample_size(drawn)
        notes, converged = _notes(layout, rhat, ess, self.chains)
        sd = drawn.std(axis=(0, 1), ddof=1)
        loglik = float(value) / sample.total
        return EngineFit(
            theta, loglik, converged=converged, notes=notes, sd=sd, draws=drawn, state=state
        )

    posterior: ClassVar[PosteriorTraits] = PosteriorTraits(
        name=lambda engine: "posterior draws", describe=describe, has_draws=True
    )


def n_states(layout: Layout) -> int:
    """Return the number of joint states of the predictors."""
    return math.prod(int(L) for L in layout.n_levels)


def _notes(
    layout: Layout, rhat: np.ndarray, ess: np.ndarray, chains: int
) -> tuple[tuple[Note, ...], np.ndarray]:
    """Return notes on predictors with unreliable draws, and a mask (m,) of the reliable predictors.

    `rhat` and `ess` (size,) contain the split R-hat and the effective sample size of each
    parameter. `chains` is the number of chains.
    """
    # parameters that never change have nan
    rhat = np.nan_to_num(rhat, nan=1.0)
    ess = np.nan_to_num(ess, nan=np.inf)
    is_uncertain = (rhat > np.maximum(MAX_RHAT, 1.0 + RHAT_CHANCE * chains / ess)) | (
        ess < MIN_ESS * chains
    )
    text = "the chains have not mixed, or are too short"
    notes = []
    converged = np.ones(layout.m, bool)
    predictors = np.full((2, layout.size), -1)  # the one or two predictors of each parameter
    predictors[0, : layout.D] = np.repeat(np.arange(layout.m), np.diff(layout.start))
    for pair in layout.pairs:  # the table in `predictors` is a view (2, L_i - 1, L_j - 1)
        layout.table(predictors, *map(int, pair))[:] = pair[:, None, None]
    for i in range(layout.m):
        involves_i = (predictors == i).any(axis=0)
        if is_uncertain[involves_i].any():
            converged[i] = False
            detail = (
                f"R-hat {rhat[involves_i].max():.3f}, effective sample size "
                f"{ess[involves_i].min():.0f}"
            )
            notes.append(Note(i, -1, text, detail, hint="Increase warmup and draws."))
    return tuple(notes), converged
