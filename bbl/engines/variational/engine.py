"""Engine `PersistentVI`: approximate posterior of fields and couplings under sparse priors."""

# The scale of each table's prior is estimated. `size` is the number of parameters of a group; sds
# are posterior standard deviations.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bbl._ext.gibbs.gibbs import pack_size
from bbl.checks import choice, flag, generator, integer, real
from bbl.engines.base import Engine
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.traits import PosteriorTraits, Tuned
from bbl.engines.variational.persistent import (
    Budget,
    Likelihood,
    PseudoLikelihoodGradient,
    SampledGradient,
    ascend,
    model_sums,
)
from bbl.engines.variational.priors import PRIORS, ScalePrior, slabbed
from bbl.engines.variational.response import MAX_MULTIPLICATIONS, count_multiplications, response_sd
from bbl.engines.variational.scaled import Approximation, start
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.fields import mean_pseudo_log_likelihood
from bbl.model.gauge import equal_tables
from bbl.model.layout import Layout
from bbl.model.moments import level_counts, pair_counts
from bbl.parallel import ThreadPool
from bbl.rows.sample import Sample

__all__ = ["PersistentVI"]

CHAIN_SHARE = 0.9  # minimum fraction of the requested chains that are run, in packs of 32
LIKELIHOODS = ("sampled", "pseudo")
SDS = ("factorised", "lrvb")
# final relative change in the posterior mean that gives a warning
MAX_CHANGE = 0.01
# change in the couplings' log global scale in the second half that gives a warning
MAX_SCALE_CHANGE = 0.4
# minimum distance over which Adam's steps must be able to move a log scale: 500 iterations at lr =
# 0.01
MIN_TRAVEL = 2.5
# products of couplings and states that justify a thread; 100 binary predictors have 9e6
WORTH = 1e7


@dataclass(frozen=True)
class PersistentVI(Engine):
    """Fit fields and couplings by persistent variational inference (Ingraham & Marks 2017).

    The priors are scale mixtures of normals on fields and couplings in simplex coding, which treats
    all levels in the same way. A scale is estimated for each table, so most couplings shrink to
    zero, and the others shrink very little. The posterior is approximated by a factorised
    distribution, and the estimates are its means. Row weights can be any positive numbers.

    Parameters
    ----------
    prior : {"horseshoe", "laplace", "student", "gaussian", "flat"}, default "horseshoe"
        Prior of a table's scale. ``"horseshoe"``: half-Cauchy. ``"laplace"`` and ``"student"``: the
        marginal prior of a coupling is Laplace, or Student's t with 3 degrees of freedom.
        ``"gaussian"``: all tables have the global scale. ``"flat"``: no prior, i.e. plain
        persistent variational inference (Ingraham & Marks 2017, eq. 10) without shrinkage. In this
        case, couplings without a finite maximum likelihood estimate increase with `n_iter`.
    likelihood : {"sampled", "pseudo"}, default "sampled"
        "sampled" uses the likelihood, with persistent Gibbs chains. "pseudo" uses the
        pseudo-likelihood, which is fast because it does not require chains. Its standard deviations
        are too small, however, because each coupling occurs in two conditional distributions.
    slab : float, default 1.0
        Upper bound on the scales of a heavy-tailed prior ("horseshoe", "student"), in simplex
        coding (for two levels, the scale of the Ising coupling). The bound keeps couplings finite
        even if they have no finite optimum. With ``inf``, scales are not bounded, as in the paper.
    scale : float, optional
        Global scale of fields and couplings. By default, both scales are estimated.
    n_iter : int, default 20000
        Number of iterations. 5,000 iterations are sufficient for preliminary results. The global
        scale is the last parameter to converge.
    tol : float, optional
        Tolerance for early stopping. If the smoothed posterior mean changes by less than this
        fraction within a fortieth of the iterations, the step size decreases to zero over a tenth
        of the iterations. 0.003 is a reasonable value. By default, all iterations are used.
    sweeps : int, default 3
        Gibbs sweeps in each iteration.
    chains : int, default 100
        Total number of Gibbs chains for all draws. Each draw runs batches of 32 chains, which take
        no longer than one chain, and uses the smallest number of batches that provides at least 90%
        of the chains (100 chains for 3 draws become 96; 40 chains for one draw become 64).
    draws : int, default 3
        Number of parameter draws in each iteration. Each draw has its own chains.
    lr : float, default 0.01
        Initial step size of Adam, which decreases linearly to zero.
    seed : int or numpy.random.Generator, optional
        Random seed for the fit, which overrides the seed of the fitting function.
    average : float, default 0.1
        Final fraction of the iterations over which the approximation is averaged.
    sd : {"factorised", "lrvb"}, default "factorised"
        How posterior standard deviations are computed. "factorised" uses the approximation; these
        standard deviations are too small if parameters depend on each other. "lrvb" uses linear
        response, which sums over all states and is therefore limited to a small number of
        predictors. Pair strengths always use "factorised".
    centred : bool, default False
        Whether to approximate the posterior of the parameters theta and their log scales, instead
        of theta / scale and the log scales (Ingraham & Marks 2017, eq. 11). In a centred
        approximation, a coupling and its scale cannot both approach zero, so sparse priors shrink
        less. The option is provided for comparison. It is not available with ``prior="flat"``.
    grouped : bool, default True
        Whether to use one scale for each table instead of one for each parameter in simplex coding.
        With more than two levels, the result with one scale for each parameter depends on the order
        of the levels. With two levels, both choices are equivalent.
    empirical_bayes : bool, default False
        Whether to fix each scale at the exponential of its posterior mean logarithm for estimates
        and standard deviations (empirical Bayes) instead of averaging over it. The term ``exp(2 s)
        / 2`` in Ingraham & Marks 2017, eq. 12, is then omitted. The fit itself does not change. The
        option is not available with ``prior="flat"`` or ``centred=True``, because estimates then do
        not involve scales.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range or cannot be combined with another option.

    References
    ----------
    Ingraham J, Marks D (2017). Variational inference for sparse and undirected models. ICML, PMLR
    70:1607-1616.

    Giordano R, Broderick T, Jordan M (2018). Covariances, robustness, and variational Bayes.
    Journal of Machine Learning Research 19(51):1-49.

    Piironen J, Vehtari A (2017). Sparsity information and regularization in the horseshoe and other
    shrinkage priors. Electronic Journal of Statistics 11:5018-5051.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl(
    ...     "Survived ~ .^2",
    ...     titanic,
    ...     "Freq",
    ...     method=bbl.PersistentVI(n_iter=1000),
    ...     seed=1,
    ...     verbose=0,
    ... )
    >>> round(fit.score(), 3)
    0.788
    """

    prior: str = "horseshoe"
    likelihood: str = "sampled"
    slab: float = 1.0
    scale: float | None = None
    n_iter: int = 20000
    tol: float | None = None
    sweeps: int = 3
    chains: int = 100
    draws: int = 3
    lr: float = 0.01
    seed: Any = None
    average: float = 0.1
    sd: str = "factorised"
    centred: bool = False
    grouped: bool = True
    empirical_bayes: bool = False
    name = "pvi"
    tuned = Tuned(
        "scale",
        "scale",
        r"$s$",
        r"Global scale $s$",
        (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
        simpler="smaller",
        logarithmic=True,
    )
    needs = "pairs"
    log_z = "half"
    samples = True
    weights = "real"
    sized_by: ClassVar[tuple[str, ...]] = ("draws", "chains")

    def __post_init__(self):
        choice("prior", self.prior, tuple(PRIORS))
        choice("likelihood", self.likelihood, LIKELIHOODS)
        choice("sd", self.sd, SDS)
        if self.sd == "lrvb" and self.likelihood != "sampled":
            raise OptionError(
                "sd='lrvb' requires the full likelihood, not likelihood='pseudo'.",
                argument="sd",
                hint="Use likelihood='sampled', or sd='factorised'.",
            )
        for name in ("centred", "grouped", "empirical_bayes"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        self._check_combination()
        for name, above, at_most in (
            ("slab", 0.0, np.inf),
            ("lr", 0.0, 1.0),
            ("average", 0.0, 1.0),
        ):
            checked_value = real(
                name, getattr(self, name), above, at_most, open_low=True, finite=name != "slab"
            )
            object.__setattr__(self, name, checked_value)
        for name in ("scale", "tol"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, real(name, getattr(self, name), 0.0, open_low=True))
        for name in ("n_iter", "sweeps", "chains", "draws"):
            object.__setattr__(self, name, integer(name, getattr(self, name), 1))
        if self.draws > self.chains:
            raise OptionError(
                f"chains={self.chains} is less than draws={self.draws}, but each draw requires "
                "its own chain.",
                argument="chains",
                hint=f"Use at least chains={self.draws}.",
            )
        if self.seed is not None:
            generator(self.seed)  # raises an error if the seed is invalid

    def _check_combination(self) -> None:
        """Raise an OptionError if options cannot be combined."""
        if self.prior == "flat":
            for name, default in (("scale", None), ("centred", False), ("empirical_bayes", False)):
                if getattr(self, name) != default:
                    raise OptionError(
                        f"{name}={getattr(self, name)!r} requires scales, but prior='flat' "
                        "has none.",
                        argument=name,
                        hint=f"Omit the {name} argument, or use prior='gaussian'.",
                    )
        if self.centred and self.empirical_bayes:
            raise OptionError(
                "empirical_bayes=True has no effect with centred=True, because these estimates do "
                "not depend on scales.",
                argument="empirical_bayes",
                hint="Leave out centred or empirical_bayes.",
            )
        for name in ("centred", "empirical_bayes"):
            if self.sd == "lrvb" and getattr(self, name):
                raise OptionError(
                    f"sd='lrvb' is not available with {name}=True.",
                    argument="sd",
                    hint=f"Use sd='factorised', or omit the {name} argument.",
                )

    def posterior_name(self, layout: Layout | None = None) -> str:
        """Return the name of the approximation and the type of its standard deviations.

        `layout` is not used.
        """
        return "factorised variational posterior" + ", sds by linear response" * (self.sd == "lrvb")

    @property
    def _prior(self) -> ScalePrior:
        """The prior on the scales."""
        return PRIORS[self.prior]

    @property
    def _slab(self) -> float:
        """Upper bound on the scales, which is inf (no bound) for light-tailed priors."""
        return self.slab if self._prior.heavy else np.inf

    @property
    def _global_scale(self) -> float | None:
        """The global scale: None if it is estimated, and 1 with the flat prior."""
        return 1.0 if self._prior.flat else self.scale

    @property
    def n_chains(self) -> int:
        """Number of chains per draw, in whole batches.

        The total number of chains is at least 90% of `chains`.
        """
        return math.ceil(CHAIN_SHARE * self.chains / (self.draws * pack_size())) * pack_size()

    @property
    def penalised(self) -> bool:
        """Always True, because estimates are posterior means even with a flat prior."""
        return True

    @property
    def setting(self) -> float:
        """The global scale; nan if it is estimated."""
        return float("nan") if self.scale is None else self.scale

    def generator(self, rng: np.random.Generator) -> np.random.Generator:
        """Return a generator from the engine's `seed`, or `rng` if it has none."""
        return rng if self.seed is None else generator(self.seed)

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory of a fit, in bytes.

        This includes the approximation, Adam's moments, draws, chains and, with linear response,
        all states. `n` and `settings` have no effect.
        """
        D = float(layout.D)
        Q = self.draws
        free_levels = layout.n_levels - 1.0
        # number of parameters; without pairs in the layout, assume all pairs
        size = layout.size if layout.count(2) else D + (D**2 - float((free_levels**2).sum())) / 2.0
        # bytes of the chains, and of the bits of all levels after each sweep, in words of 8 bytes
        chain_bytes = Q * (8.0 * layout.m + 32.0) * self.n_chains + Q * D * self.sweeps * (
            self.n_chains / 8.0 + 8.0
        )
        # entries of a matrix (states, size) of features; the number of multiplications is this
        # times `size`
        n_features = (
            min(count_multiplications(layout), MAX_MULTIPLICATIONS) / max(size, 1.0)
            if self.sd == "lrvb"
            else 0.0
        )
        # 10 parameter vectors, plus 3 for each draw; 2 matrices (D, D), plus 2 for each draw; 4
        # arrays of features
        return (
            8.0 * size * (10 + 3 * Q) + 8.0 * D**2 * (2 + 2 * Q) + chain_bytes + 32.0 * n_features
        )

    def path(
        self,
        sample: Sample,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
        *,
        rng: np.random.Generator | None = None,
        progress: Callable | None = None,
    ) -> list[EngineFit]:
        """Fit one group at each scale in `values`, always with the same random numbers.

        With missing values, the moments of a pair are computed from the rows where both predictors
        are observed. The pseudo-likelihood only uses complete rows. `progress` is called with a
        note and the fraction of the work that was done since the previous call.
        """
        self._check_response(layout)
        rng = self.generator(np.random.default_rng(0)) if rng is None else rng
        engines = [self] if values is None else [replace(self, scale=float(v)) for v in values]
        task = f"Variational inference of {layout.size:,} parameters"
        check_memory(self.memory(sample.n, layout), task, "Use fewer predictors, draws or chains.")
        report_share = (
            None
            if progress is None
            else lambda share, note="": progress(share / len(engines), note)
        )
        # copies have the same random numbers and, for chains, the same generators
        return [
            engine._fit(sample, layout, deepcopy(rng), report_share, workers) for engine in engines
        ]

    def _fit(
        self,
        sample: Sample,
        layout: Layout,
        rng: np.random.Generator,
        progress: Callable | None,
        workers: int,
    ) -> EngineFit:
        """Fit one group.

        `progress` is called with fractions of the fit and a note.
        """
        # initial approximation
        begin = start(
            sample,
            layout,
            self._prior,
            self._slab,
            self._global_scale,
            centred=self.centred,
            grouped=self.grouped,
        )
        if not layout.D:  # no parameters
            return EngineFit(
                np.zeros(0), 0.0, converged=np.ones(layout.m, dtype=bool), sd=np.zeros(0)
            )
        draw_threads, inner_threads = self._threads(sample, layout, workers)
        budget = Budget(self.n_iter, self.tol, self.draws, self.lr, self.average)
        with ExitStack() as stack:  # ends the threads of the thread pools
            likelihood: Likelihood
            if self.likelihood == "sampled":
                pools = [stack.enter_context(ThreadPool(inner_threads)) for _ in range(self.draws)]
                likelihood = SampledGradient(sample, layout, self.n_chains, self.sweeps, rng, pools)
            else:
                likelihood = PseudoLikelihoodGradient(sample, layout)
            approximation, history = ascend(likelihood, begin, budget, rng, progress, draw_threads)
        approximation = replace(approximation, empirical_bayes=self.empirical_bayes)
        unsettled = self._unsettled(history)
        sd, sd_notes = self._sd(sample, layout, approximation)
        theta = approximation.theta
        return EngineFit(
            theta,
            mean_pseudo_log_likelihood(layout, theta, sample),
            grad_norm=np.full(layout.m, history["gradient"][-1]),
            n_iter=np.full(layout.m, int(history["iteration"][-1])),
            converged=np.full(layout.m, not unsettled),
            notes=(*unsettled, *sd_notes, *_separated(sample, layout)),
            sd=sd,
            state={"mean": approximation.mean, "log_sd": approximation.log_sd},
            history=history,
        )

    def _check_response(self, layout: Layout) -> None:
        """Raise an OptionError if linear response would sum over too many states."""
        if self.sd == "lrvb" and count_multiplications(layout) > MAX_MULTIPLICATIONS:
            raise OptionError(
                f"sd='lrvb' sums over all states of the predictors. For {layout.m} predictors "
                f"with {layout.size:,} parameters, each step takes "
                f"{count_multiplications(layout):.1e} multiplications, but the limit is "
                f"{MAX_MULTIPLICATIONS:.1e}, which is enough for 14 predictors with two levels "
                "and all pairs.",
                argument="sd",
                hint="Use sd='factorised', or choose method='bayes'.",
            )

    def _sd(
        self, sample: Sample, layout: Layout, posterior: Approximation
    ) -> tuple[np.ndarray, tuple[Note, ...]]:
        """Return the requested sds (size,), or factorised sds and a note if unavailable."""
        if self.sd != "lrvb":
            return posterior.sd, ()
        sds = response_sd(
            posterior, model_sums(sample, layout), sample.total, np.random.default_rng(0)
        )
        if np.isfinite(sds).all():
            return sds, ()
        message = (
            "linear response is not available, because the bound is flat with respect to at "
            "least one scale parameter. Factorised standard deviations are used instead"
        )
        return posterior.sd, (
            Note(
                predictor=-1,
                level=-1,
                what=message,
                hint="Use prior='gaussian', for which linear response is available.",
            ),
        )

    def _threads(self, sample: Sample, layout: Layout, workers: int) -> tuple[int, int]:
        """Return the number of threads for draws, and for batches and blocks within each draw.

        Chains are processed in batches, and parameters in blocks. A thread is only used if there is
        enough work for it.
        """
        n_states = self.n_chains * self.sweeps if self.likelihood == "sampled" else sample.n
        n_products = float(layout.D) ** 2 * n_states * self.draws
        workers = min(workers, max(1, int(n_products / WORTH)))
        return min(workers, self.draws), max(1, workers // self.draws)

    def _unsettled(self, history: dict[str, np.ndarray]) -> tuple[Note, ...]:
        """Return a note if the fit has not converged according to the `history` of `ascend`."""
        # one entry for each record
        t = history["iteration"]
        scale = history["scale_couplings"]
        scale_at_half = scale[np.searchsorted(t, t[-1] / 2)]
        last_scale = scale[-1]
        # the slab bounds the scales, so changes beyond it do not matter; [0]: the scales, without
        # their slopes
        bounded_at_half, bounded_last = slabbed(np.log([scale_at_half, last_scale]), self._slab)[0]
        is_settled = (
            history["change"][-1] <= MAX_CHANGE
            and abs(np.log(bounded_last / bounded_at_half)) <= MAX_SCALE_CHANGE
        )
        # the largest possible change of a log scale: the sum of step sizes, which decrease linearly
        # to zero
        max_travel = self.lr * t[-1] / 2.0
        if is_settled and max_travel >= MIN_TRAVEL:
            return ()
        detail = f"after {t[-1]:.0f} iterations"
        if self._global_scale is None:
            detail += (
                f"; in the second half of the iterations, the global scale of couplings changed "
                f"from {scale_at_half:.2g} to {last_scale:.2g}"
            )
        return (
            Note(
                predictor=-1,
                level=-1,
                what="the approximation had not converged",
                detail=detail,
                hint=(
                    "Increase n_iter, or pass a scale."
                    if self._global_scale is None
                    else "Increase n_iter until the changes become small."
                ),
            ),
        )

    def approximation(self, layout: Layout, fit: EngineFit) -> Approximation:
        """Return the approximate posterior of a fit.

        A ValueError is raised if the stored arrays do not match the layout.
        """
        mean = fit.state["mean"]
        log_sd = fit.state["log_sd"]
        scale = self._global_scale
        n = Approximation.length(layout, self._prior, scale, self.grouped)
        if len(mean) != n or len(log_sd) != n:
            raise ValueError("the approximation belongs to a different model")
        return Approximation(
            layout,
            self._prior,
            self._slab,
            scale,
            mean,
            log_sd,
            self.centred,
            self.grouped,
            self.empirical_bayes,
        )

    def strengths(self, layout: Layout, fit: EngineFit, rng: np.random.Generator) -> np.ndarray:
        """Return posterior draws (n_draws, n_pairs) of the strength of each pair."""
        return self.approximation(layout, fit).strengths(rng)

    posterior: ClassVar[PosteriorTraits] = PosteriorTraits(
        name=posterior_name, describe=posterior_name, keeps_history=True, strengths=strengths
    )


def _separated(sample: Sample, layout: Layout) -> tuple[Note, ...]:
    """Return a note for each predictor with a one-to-one relationship to another predictor.

    Two predictors with k > 1 observed levels have such a relationship if only k cells of their
    joint table have rows.
    """
    # differences of real-valued weights would leave rounding errors in empty cells
    sample = sample.complete_rows.counted
    # numbers of rows with two non-reference levels (D, D), and of those with each level, (L_i,) of
    # each predictor
    counts = pair_counts(sample, layout)
    level_weights = level_counts(sample, layout.n_levels)
    n_observed = np.array([(n > 0).sum() for n in level_weights])  # number of observed levels
    # counts of the reference levels
    reference_weights = np.concatenate([n[:1] for n in level_weights])
    separated: set[int] = set()
    for positions, _, a, b in equal_tables(layout):  # T pairs with a by b levels
        i, j = layout.pairs[positions].T
        if a < 2 or b < 2:
            continue
        rows = layout.start[i, None] + np.arange(a - 1)
        columns = layout.start[j, None] + np.arange(b - 1)
        # weights of the levels of i (T, a - 1) and of j (T, b - 1), and of the cells of each table:
        # without reference levels (T, a - 1, b - 1), with the reference level of j only (T, a - 1)
        # or of i only (T, b - 1), and with both (T,)
        inner = counts[rows[:, :, None], columns[:, None, :]]
        weights_i = np.stack([level_weights[k][1:] for k in i])
        weights_j = np.stack([level_weights[k][1:] for k in j])
        with_reference_j = weights_i - inner.sum(axis=2)
        with_reference_i = weights_j - inner.sum(axis=1)
        with_both = reference_weights[i] - with_reference_i.sum(axis=1)
        n_edge_cells = (
            (with_reference_j > 0).sum(axis=1)
            + (with_reference_i > 0).sum(axis=1)
            + (with_both > 0)
        )
        n_cells = (inner > 0).sum(axis=(1, 2)) + n_edge_cells
        for k in np.flatnonzero(
            (n_cells == n_observed[i]) & (n_cells == n_observed[j]) & (n_cells > 1)
        ):
            separated |= {int(i[k]), int(j[k])}
    message = (
        "and another predictor determine each other; only the prior keeps their couplings finite"
    )
    return tuple(Note(predictor=i, level=-1, what=message) for i in sorted(separated))
