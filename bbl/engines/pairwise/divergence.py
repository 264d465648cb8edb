"""Engine `ContrastiveDivergence`: maximum likelihood by persistent contrastive divergence."""

# The method is also known as stochastic maximum likelihood (Tieleman 2008). Parameters (size,) are
# in simplex coding and belong to G tables.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bbl._ext.gibbs.gibbs import pack_size
from bbl.checks import integer, real
from bbl.engines.base import absent_levels
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.pairwise.base import PairwiseEngine
from bbl.engines.pairwise.penalties import TablePenalty
from bbl.engines.variational.persistent import Likelihood, SampledGradient
from bbl.memory import check_memory
from bbl.model.fields import mean_pseudo_log_likelihood
from bbl.model.gauge import to_reference
from bbl.model.layout import Layout
from bbl.model.moments import level_counts
from bbl.parallel import Stopped, ThreadPool, serial_blas, stop_flag
from bbl.rows.sample import Sample

__all__ = ["ContrastiveDivergence"]

CHAIN_SHARE = 0.9  # minimum fraction of the requested chains that are run, in packs of 32
FIRST_DECAY = 0.97  # decay of Adam's first moment; longer averages make more tables zero
SECOND_DECAY = 0.999  # decay of Adam's second moment
REPORTS = 40  # number of progress reports
# products of couplings and states that justify a thread; 100 binary predictors have 9e6
WORTH = 1e7
# root mean square of the mean gradient over the second half of the iterations, relative to a single
# gradient, that gives a warning
SETTLED = 0.05
# minimum distance that Adam's steps must be able to move a parameter: 500 iterations at lr = 0.01
MIN_TRAVEL = 2.5


@dataclass(frozen=True)
class ContrastiveDivergence(PairwiseEngine):
    """Fit pairwise models by persistent contrastive divergence (Tieleman 2008).

    The likelihood is maximised by Adam. Its gradient contains expectations under the model, which
    are estimated by persistent Gibbs chains. The method is a version of persistent variational
    inference (`PersistentVI`) that returns a point estimate. It is provided for comparison, and for
    models that are too large for ``method="ml"``.

    Parameters
    ----------
    lambda_ : float, default 1e-5
        Penalty on couplings, on the scale of the log-likelihood per observation.
    lambdah : float, default 0.0
        L2 penalty on fields.
    penalty : {"l2", "l1", "group"}, default "l2"
        Penalty on the couplings of a pair; see `ProbabilityFlow`. With "l1" and "group", most
        tables that are zero at the optimum are exactly zero in the estimate.
    n_iter : int, default 2000
        Number of iterations.
    sweeps : int, default 3
        Gibbs sweeps in each iteration.
    chains : int, default 100
        Number of Gibbs chains. Chains are run in batches of 32, and a batch takes no longer than a
        single chain. The smallest number of batches with at least 90% of the requested chains is
        used.
    lr : float, default 0.01
        Initial step size of Adam, which decreases linearly to zero.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.

    References
    ----------
    Tieleman T (2008). Training restricted Boltzmann machines using approximations to the likelihood
    gradient. ICML, 1064-1071.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl(
    ...     "Survived ~ .^2",
    ...     titanic,
    ...     "Freq",
    ...     method=bbl.ContrastiveDivergence(lambda_=0.01),
    ...     seed=1,
    ...     verbose=0,
    ... )
    >>> round(fit.score(), 3)
    0.791
    """

    n_iter: int = 2000
    sweeps: int = 3
    chains: int = 100
    lr: float = 0.01
    name = "pcd"
    needs = "pairs"
    samples = True
    sized_by: ClassVar[tuple[str, ...]] = ("chains",)

    def __post_init__(self):
        super().__post_init__()
        for name in ("n_iter", "sweeps", "chains"):
            object.__setattr__(self, name, integer(name, getattr(self, name), 1))
        object.__setattr__(self, "lr", real("lr", self.lr, 0.0, 1.0, open_low=True))

    @property
    def n_chains(self) -> int:
        """Number of chains in whole batches, which is at least 90% of `chains`."""
        return math.ceil(CHAIN_SHARE * self.chains / pack_size()) * pack_size()

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, of parameters, matrices (D, D), chains and state bits."""
        D = float(layout.D)
        chain_bytes = (8.0 * layout.m + 32.0) * self.n_chains
        bit_bytes = D * self.sweeps * (self.n_chains / 8.0 + 8.0)
        return 8.0 * (10.0 * layout.size + 4.0 * D**2) + chain_bytes + bit_bytes

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
        """Fit one group at each penalty in `values`, always with the same random numbers.

        With missing values, the moments of a pair are computed from the rows where both predictors
        are observed. `progress` is called with a note and the fraction of the work that was done
        since the previous call.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        engines = [self] if values is None else [replace(self, lambda_=float(v)) for v in values]
        check_memory(
            self.memory(sample.n, layout),
            f"Contrastive divergence of {layout.size:,} parameters",
            "Use fewer predictors or chains.",
        )
        report = None if progress is None else lambda share: progress(share / len(engines), "")
        # copies have the same random numbers and, for chains, the same generators
        return [e._fit(sample, layout, deepcopy(rng), report, workers) for e in engines]

    def _fit(
        self,
        sample: Sample,
        layout: Layout,
        rng: np.random.Generator,
        report: Callable[[float], object] | None,
        workers: int,
    ) -> EngineFit:
        """Fit one group; `report` is called with fractions of the fit."""
        if not layout.D:  # no parameters
            return EngineFit(np.zeros(0), 0.0, converged=np.ones(layout.m, dtype=bool))
        n_products = float(layout.D) ** 2 * self.n_chains * self.sweeps
        threads = min(workers, max(1, int(n_products / WORTH)))
        penalty = TablePenalty(layout, self.penalty, self.lambda_, self.lambdah)
        with ThreadPool(threads) as pool, serial_blas():
            likelihood = SampledGradient(sample, layout, self.n_chains, self.sweeps, rng, [pool])
            simplex, unsettled = self._ascend(likelihood, sample.total, penalty, report)
        notes: tuple[Note, ...] = ()
        if not self.lambdah:
            notes = absent_levels(level_counts(sample, layout.n_levels), hint="Set lambdah > 0.")
        # the sum of step sizes, which decrease linearly to zero
        is_settled = unsettled <= SETTLED and self.lr * self.n_iter / 2.0 >= MIN_TRAVEL
        if not is_settled:
            what = "the chains and parameters had not converged"
            detail = f"after {self.n_iter} iterations"
            notes += (Note(-1, -1, what, detail, hint="Increase n_iter."),)
        theta = to_reference(layout, simplex)
        return EngineFit(
            theta,
            mean_pseudo_log_likelihood(layout, theta, sample),
            grad_norm=np.full(layout.m, unsettled),
            n_iter=np.full(layout.m, self.n_iter),
            converged=np.full(layout.m, is_settled),
            notes=notes,
        )

    def _ascend(
        self,
        likelihood: Likelihood,
        total: float,
        penalty: TablePenalty,
        report: Callable[[float], object] | None,
    ) -> tuple[np.ndarray, float]:
        """Return the parameters (size,) and a measure of non-convergence.

        The measure is the root mean square of the mean gradient over the second half of the
        iterations, relative to that of a single gradient. `total` is the total weight of the rows.
        All parameters of a table have the same step size, which makes the proximal step for a norm
        exact.
        """
        stop = stop_flag()
        size = len(penalty.ridge)
        simplex = np.zeros(size)
        gradient = np.empty(size)
        first_moment = np.zeros(size)
        second_moment = np.zeros(len(penalty.sizes))  # one for each table
        mean_gradient = np.zeros(size)
        interval = max(1, self.n_iter // REPORTS)
        for t in range(1, self.n_iter + 1):
            if stop[0]:
                raise Stopped
            likelihood.gradient(0, simplex, gradient)
            gradient /= total
            gradient -= penalty.ridge * simplex
            first_moment += (1.0 - FIRST_DECAY) * (gradient - first_moment)
            squares = penalty.sum_tables(gradient**2) / penalty.sizes
            second_moment += (1.0 - SECOND_DECAY) * (squares - second_moment)
            root = np.sqrt(second_moment / (1.0 - SECOND_DECAY**t))
            rate = self.lr * (1.0 - (t - 1) / self.n_iter) / np.maximum(root, 1e-300)
            step = penalty.spread(rate) * first_moment / (1.0 - FIRST_DECAY**t)
            simplex = penalty.shrink(simplex + step, rate)
            if 2 * t > self.n_iter:
                mean_gradient += gradient
            if report is not None and (t % interval == 0 or t == self.n_iter):
                report(((t - 1) % interval + 1) / self.n_iter)
        mean_gradient /= self.n_iter - self.n_iter // 2
        violation = penalty.violation(simplex, -mean_gradient) / np.maximum(root, 1e-300)
        return simplex, float(np.sqrt(np.sum(violation**2) / size))
