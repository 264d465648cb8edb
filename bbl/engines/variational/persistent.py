"""Persistent variational inference: stochastic maximisation of the evidence lower bound."""

# In each iteration the parameters are drawn Q times from the factorised approximation
# (`bbl.engines.variational.scaled`). The gradient of the likelihood at a draw needs expectations
# under the model, which are estimated by persistent Gibbs chains, one set for each draw (Ingraham &
# Marks 2017, Algorithm 2). Features are the products of contrasts that are multiplied by parameters
# in simplex coding. The parameters of a table form one of G groups with a common scale. The n
# numbers of the approximation are z (size,), the log scales u (G,), and the log global scales v
# (2,); u and v may be absent.
#
# Threads share the draws and, for each draw, packs of chains and blocks of tables. Blocks depend
# only on the model and their sums are added in order, so the result does not depend on the number
# of threads.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl._ext.variational import persistent as kernel
from bbl.engines.variational.scaled import Approximation
from bbl.model.chains import Chains
from bbl.model.energy import conditionals
from bbl.model.layout import Layout
from bbl.model.moments import known_counts, one_hot, pair_counts
from bbl.parallel import Stopped, ThreadPool, serial_blas, stop_flag
from bbl.rows.sample import Sample

__all__ = [
    "Budget",
    "Likelihood",
    "PseudoLikelihoodGradient",
    "SampledGradient",
    "ascend",
    "model_sums",
    "simplex_tables",
]

FIRST_DECAY = 0.99  # decay of Adam's first moment; it decreases to zero with the step size
SECOND_DECAY = 0.999  # decay of Adam's second moment
LOWEST_LOG_SCALE = -30.0  # lower bound of log scales
HIGHEST_LOG_SCALE = 10.0  # upper bound of log scales
RECORDS = 40  # number of records in the history, unless the ascent ends early
SMOOTHING = 0.9  # weight of earlier records in the exponentially smoothed posterior mean
CHUNK = 2048  # rows whose conditional probabilities are in memory at once
BLOCK = 2**15  # number of parameters in a block, which is processed by one thread


class Likelihood(ABC):
    """Interface for the likelihoods used by `ascend`."""

    @abstractmethod
    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient (size,) of the log-likelihood of all rows to `out`.

        The gradient is evaluated at draw q with parameters `simplex` (size,). Several threads may
        call this method concurrently for different draws.
        """


def feature_sums(sample: Sample, layout: Layout, tables: kernel.Tables) -> np.ndarray:
    """Return the sums (layout.size,) over rows of the features in simplex coding.

    With missing values, the sum for a predictor or pair is the mean feature over the rows where it
    is observed, multiplied by the total weight of all rows.
    """
    # counts (D, D)
    out = np.empty(layout.size)
    counts = pair_counts(sample, layout)
    total = sample.total
    if sample.missing is None:
        # from counts of pairs and, on the diagonal, of levels
        tables.features(counts, total, out)
        return out
    # weight of the rows where both predictors of a pair are observed (m, m), and counts of
    # levels in these rows (D, m)
    known_weight, known_margins = known_counts(sample, layout)
    predictor = np.repeat(np.arange(layout.m), layout.n_levels - 1)
    # finite even for pairs that are never observed together
    scale = total / np.maximum(known_weight, 1e-300)
    scaled_counts = counts * scale[np.ix_(predictor, predictor)]
    tables.features(scaled_counts, total, out)  # for fields; the sums for pairs are replaced below
    for i, j in layout.pairs:
        levels_i = slice(*layout.start[i : i + 2])
        levels_j = slice(*layout.start[j : j + 2])
        levels = np.r_[levels_i, levels_j]
        table_counts = scaled_counts[np.ix_(levels, levels)]
        # counts of single levels, on the diagonal, must be restricted to rows where both predictors
        # are observed
        margins = np.r_[known_margins[levels_i, j], known_margins[levels_j, i]]
        np.fill_diagonal(table_counts, margins * scale[i, j])
        pair_layout = Layout(layout.n_levels[[i, j]])
        pair_sums = np.empty(pair_layout.size)
        simplex_tables(pair_layout).features(np.ascontiguousarray(table_counts), total, pair_sums)
        layout.table(out, int(i), int(j))[...] = pair_layout.table(pair_sums, 0, 1)
    return out


def model_sums(sample: Sample, layout: Layout) -> np.ndarray:
    """Return the `feature_sums` of a sample for a layout."""
    return feature_sums(sample, layout, simplex_tables(layout))


def simplex_tables(layout: Layout) -> kernel.Tables:
    """Return the layout in the kernel's format."""
    pairs = np.ascontiguousarray(layout.pairs, dtype=np.intp)
    return kernel.Tables(
        layout.n_levels, layout.start.astype(np.intp), pairs, layout.pair_start.astype(np.intp)
    )


def _blocks(ends: np.ndarray) -> list[tuple[int, int]]:
    """Return blocks (first, end) of consecutive tables with about `BLOCK` parameters each.

    `ends` contains the end position of each table's parameters.
    """
    if not len(ends):  # no tables: one empty run
        return [(0, 0)]
    # the tables that contain every BLOCK-th parameter, counted from the end of the first table,
    # because `ends` does not contain its start
    tables = np.searchsorted(ends, np.arange(BLOCK, ends[-1] - ends[0] + BLOCK, BLOCK) + ends[0])
    cuts = np.unique(np.concatenate([[0], tables.clip(max=len(ends) - 1)]))
    cuts[-1] = len(ends)
    return (
        list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
        if len(cuts) > 1
        else [(0, len(ends))]
    )


class SampledGradient(Likelihood):
    """The gradient of the likelihood, with model expectations from persistent Gibbs chains.

    Each draw has `n_chains` chains, which make `sweeps` Gibbs sweeps per call, and its own thread
    pool in `pools`. Draws may run concurrently.
    """

    def __init__(
        self,
        sample: Sample,
        layout: Layout,
        n_chains: int,
        sweeps: int,
        rng: np.random.Generator,
        pools: Sequence[ThreadPool],
    ):
        self.tables = simplex_tables(layout)
        self.sweeps = sweeps
        self.total = sample.total
        self.sums = feature_sums(sample, layout, self.tables)  # (size,)
        self.blocks = _blocks(layout.pair_start[1:])  # runs (first, end) of pairs
        # fields for each draw and block; see `gradient`
        self.h = np.zeros((len(pools), len(self.blocks), layout.D))
        self.J = [np.zeros((layout.D, layout.D)) for _ in pools]  # couplings of each draw
        # chains leave out constant predictors
        zeros = np.zeros(layout.D)
        levels = layout.n_levels[layout.n_levels > 1]
        draws = zip(self.J, rng.spawn(len(pools)), pools, strict=True)
        self.chains = [
            Chains(zeros, J, levels, n_chains, draw_rng, pool.workers)
            for J, draw_rng, pool in draws
        ]
        self.pools = pools

    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient at `simplex` (size,) to `out` (size,), using the chains of draw q."""
        chains = self.chains[q]
        pool = self.pools[q]
        h = self.h[q]
        J = self.J[q]
        # each block adds its fields to a row of h, and writes its couplings to J
        blocks = zip(h, self.blocks, strict=True)
        pool.run(self.tables.couple, [(simplex, fields, J, *block) for fields, block in blocks])
        chains.update(h.sum(axis=0), J)
        # levels of all n_states states that were visited
        bits, n_states = chains.sweep_bits(self.sweeps, pool)
        pool.run(
            self.tables.features_of_bits, [(bits, n_states, out, *block) for block in self.blocks]
        )
        out *= -self.total / n_states  # sums over the rows minus expectations
        out += self.sums


class PseudoLikelihoodGradient(Likelihood):
    """The gradient of the log pseudo-likelihood of the complete rows."""

    def __init__(self, sample: Sample, layout: Layout):
        if sample.missing is not None:
            sample = sample.rows(~sample.missing.any(axis=1))
        self.layout = layout
        self.tables = simplex_tables(layout)
        self.rows = sample

    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient at `simplex` (size,) to `out` (size,).

        `q` is not used.
        """
        h = np.zeros(self.layout.D)
        J = np.zeros((self.layout.D, self.layout.D))
        self.tables.couple(simplex, h, J)  # writes h and J, in the reference gauge
        coupling_gradient = np.zeros((self.layout.D, self.layout.D))
        field_gradient = np.zeros(self.layout.D)
        with serial_blas():
            for chunk in self.rows.blocks(CHUNK):
                X = one_hot(chunk.codes, self.layout)
                _, P = conditionals(X @ J.T + h, self.layout)
                residual = (X - P) * chunk.weights[:, None]
                field_gradient += residual.sum(axis=0)
                coupling_gradient += residual.T @ X
        # a coupling occurs in the conditional distributions of both predictors; the kernel expects
        # fields on the diagonal
        coupling_gradient += coupling_gradient.T.copy()  # a copy: the sum overwrites its operand
        np.fill_diagonal(coupling_gradient, field_gradient)
        # the transpose of the gauge map; 0.0: a gradient has no total
        self.tables.features(coupling_gradient, 0.0, out)


@dataclass(frozen=True)
class Budget:
    """Number of iterations and step sizes of the ascent.

    Attributes
    ----------
    n_iter : int
    tol : float or None
        If the relative change in the posterior mean (see `ascend`) is below this value,
        `_Schedule.finish` is called. If None, it is never called.
    draws : int
        Number of parameter draws in each iteration.
    lr : float
        Initial step size of Adam; it decreases linearly to zero.
    average : float
        Final fraction of the iterations over which the approximation is averaged.
    """

    n_iter: int
    tol: float | None
    draws: int
    lr: float
    average: float


def ascend(
    likelihood: Likelihood,
    begin: Approximation,
    budget: Budget,
    rng: np.random.Generator,
    progress: Callable | None = None,
    workers: int = 1,
) -> tuple[Approximation, dict[str, np.ndarray]]:
    """Maximise the evidence lower bound by Adam, and return the average and the history.

    Parameters
    ----------
    likelihood : Likelihood
    begin : Approximation
        Initial approximation.
    budget : Budget
    rng : numpy.random.Generator
        Generator for the draws.
    progress : callable, optional
        Function that is called with fractions of the work and a note with the relative change.
    workers : int, default 1
        Number of threads. The result does not depend on it.

    Returns
    -------
    Approximation
    history : dict of ndarray
        Arrays with one entry for each record. ``iteration`` is the iteration. ``gradient`` is the
        root mean square gradient with respect to the means of z since the last record. ``change``
        is the relative change in the posterior mean since the last record, smoothed over about ten
        records. ``scale_fields`` and ``scale_couplings`` are the global scales.
    """
    schedule = _Schedule(budget)
    history = _History(budget.n_iter, begin)
    stop = stop_flag()
    with ThreadPool(workers) as pool:
        state = _State(begin, likelihood, budget.draws, rng, pool)
        while schedule.running:
            if stop[0]:
                raise Stopped
            squared_gradient = state.step(schedule.next_adam())
            if schedule.t > schedule.average_from:
                state.add_to_average()
            if history.add_gradient(schedule.t, squared_gradient) or not schedule.running:
                change = history.record(schedule.t, state.current)
                if budget.tol is not None and change < budget.tol:
                    schedule.finish()
                if progress is not None:
                    progress(history.interval / budget.n_iter, f"change {change:.1e}")
    return state.averaged, history.columns


class _Schedule:
    """Iterations and step sizes. Step sizes decrease linearly to zero at iteration `end`."""

    def __init__(self, budget: Budget):
        self.budget = budget
        self.t = 0
        self.end = budget.n_iter
        # fraction of the initial step size at which the current decline began, and its iteration
        self.share_at_decline = 1.0
        self.decline_from = 0
        self.first_weight = 0.0  # sum of the weights of all gradients in Adam's first moment
        self.finishing = False  # whether `finish` has moved the end forward

    @property
    def running(self) -> bool:
        """Whether iterations remain."""
        return self.t < self.end

    @property
    def average_from(self) -> float:
        """The iteration after which the approximation is averaged.

        The fraction `average` refers to all iterations, or to the iterations after the call to
        `finish`.
        """
        return self.end - max(
            1.0, self.budget.average * (self.end - (self.decline_from if self.finishing else 0))
        )

    @property
    def share(self) -> float:
        """The current fraction of the initial step size."""
        return self.share_at_decline * (
            1.0 - (self.t - self.decline_from) / (self.end - self.decline_from)
        )

    def next_adam(self) -> tuple[float, float, float, float, float]:
        """Advance by one iteration, and return Adam's step size, decays and bias corrections."""
        share = self.share
        # the shorter the steps, the higher the weight of the latest gradient
        decay = FIRST_DECAY * share
        self.t += 1
        self.first_weight = decay * self.first_weight + 1.0 - decay
        return (
            self.budget.lr * share,
            decay,
            SECOND_DECAY,
            1.0 / self.first_weight,
            1.0 / (1.0 - SECOND_DECAY**self.t),
        )

    def finish(self) -> None:
        """Let the step size decrease to zero over a tenth of the iterations, or until the end."""
        end = self.t + max(self.budget.n_iter // 10, 1)
        if not self.finishing and end < self.end:
            self.share_at_decline = self.share
            self.decline_from = self.t
            self.end = end
            self.finishing = True


class _History:
    """Records of the ascent; see `ascend`."""

    def __init__(self, n_iter: int, begin: Approximation):
        self.interval = max(1, n_iter // RECORDS)  # iterations between records
        self.smoothed_mean = begin.simplex  # posterior mean (size,), smoothed over records
        self.size = max(begin.layout.size, 1)
        # mean square of the gradient, summed over the iterations since the last record
        self.mean_square_sum = 0.0
        self.records: list[tuple] = []  # rows of the history

    def add_gradient(self, t: int, squared_gradient: float) -> bool:
        """Add the squared gradient norm of iteration t, and return whether a record is due."""
        self.mean_square_sum += squared_gradient / self.size
        return t % self.interval == 0

    def record(self, t: int, current: Approximation) -> float:
        """Add a record and return the relative change of the smoothed posterior mean."""
        smoothed = SMOOTHING * self.smoothed_mean + (1.0 - SMOOTHING) * current.simplex
        change = float(
            np.linalg.norm(smoothed - self.smoothed_mean)
            / max(float(np.linalg.norm(smoothed)), 1e-300)
        )
        rms = np.sqrt(self.mean_square_sum / (t - self.records[-1][0] if self.records else t))
        self.records.append((t, rms, change, *current.global_scales))
        self.smoothed_mean = smoothed
        self.mean_square_sum = 0.0
        return change

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The history, in the form returned by `ascend`."""
        names = ("iteration", "gradient", "change", "scale_fields", "scale_couplings")
        values = np.array(self.records, dtype=float).reshape(-1, len(names)).T
        return dict(zip(names, values, strict=True))


class _State:
    """The current approximation, Adam's moments, and work arrays for Q draws.

    `mean`, `log_sd` and `sd` (n,) belong to the approximation, and `noise` (Q, n) to the draws. For
    each draw, `simplex` (Q, size) contains the parameters, `gradient` (Q, size) the gradient of the
    log-likelihood with respect to the parameters, `scale` (Q, G) the scales, and `scale_gradient`
    (Q, n - size) the gradient of the log posterior with respect to u and v. `first_moments` and
    `second_moments` (2, n) contain Adam's moments of the gradients with respect to means and log
    sds. `sums` (2, n) contains the sums of means and log sds for averaging.
    """

    def __init__(
        self,
        begin: Approximation,
        likelihood: Likelihood,
        draws: int,
        rng: np.random.Generator,
        pool: ThreadPool,
    ):
        n = len(begin.mean)
        size = begin.layout.size
        groups = begin.groups
        self.begin = begin
        self.likelihood = likelihood
        self.groups = groups
        self.size = size
        self.pool = pool
        self.blocks = _blocks(groups.cuts[1:])
        # states of each draw's random generators, which run in parallel: four words each, not all
        # zero
        self.streams = rng.integers(1, 2**32, (draws, 4, kernel.streams()), dtype=np.uint32)
        self.mean = begin.mean.copy()
        self.log_sd = begin.log_sd.copy()
        self.first_moments = np.zeros((2, n))
        self.second_moments = np.zeros((2, n))
        # for each block; see `step`
        self.sd, self.squared_gradients = np.exp(self.log_sd), np.zeros(len(self.blocks))
        self.noise = np.empty((draws, n))
        self.simplex, self.gradient = np.empty((2, draws, size))
        self.scale = np.empty((draws, len(groups)))
        self.scale_gradient = np.empty((draws, n - size))
        self.sums = np.zeros((2, n))
        self.n_summed = 0

    @property
    def current(self) -> Approximation:
        """A copy of the current approximation."""
        return replace(self.begin, mean=self.mean.copy(), log_sd=self.log_sd.copy())

    @property
    def averaged(self) -> Approximation:
        """The average of all added approximations."""
        (mean, log_sd) = self.sums / self.n_summed
        return replace(self.begin, mean=mean, log_sd=log_sd)

    def add_to_average(self) -> None:
        """Add the current means and log sds to the average."""
        self.sums[0] += self.mean
        self.sums[1] += self.log_sd
        self.n_summed += 1

    def step(self, adam: tuple) -> float:
        """Take one step with the step size, decays and corrections from `_Schedule.next_adam`.

        The result is the sum of squared gradients with respect to the means of z.
        """
        self.pool.run(self.draw, [(q,) for q in range(len(self.noise))])
        self.pool.run(self.step_block, [(adam, k) for k in range(len(self.blocks))])
        self.step_scales(adam)
        return float(self.squared_gradients.sum())

    def draw(self, q: int) -> None:
        """Sample the parameters and scales of draw q, and compute the gradients.

        Gradients are with respect to the parameters, u and v.
        """
        b = self.begin
        groups = self.groups
        noise = self.noise[q]
        prior = self.begin.prior
        kernel.normal(self.streams[q], noise)
        # an empty slice if the prior gives all groups the global scale
        u_entries = slice(self.size, self.size + len(groups) if prior.slope else self.size)
        v = (
            self.mean[-2:] + self.sd[-2:] * noise[-2:]
            if b.scale is None
            else np.full(2, np.log(b.scale))
        )
        # log scales, their differences from v, and derivatives in u: of the log bounded scale, and
        # of the posterior
        u, w, log_slope, by_u = np.empty((4, len(groups)))
        bounds = (LOWEST_LOG_SCALE, HIGHEST_LOG_SCALE)
        kernel.log_scales(
            groups.fields,
            self.mean[u_entries],
            self.sd[u_entries],
            noise[u_entries],
            v,
            *bounds,
            u,
            w,
        )
        scale = np.exp(u, out=self.scale[q])
        kernel.slab(b.slab, scale, log_slope)  # bounds `scale` in place
        if b.centred:  # the approximation is of the parameters themselves
            prior_precision = 1.0 / scale**2
            scale[...] = 1.0
        # writes the parameters to theta
        theta = self.simplex[q]
        kernel.draw(groups.cuts, self.mean, self.sd, noise, scale, theta)
        self.likelihood.gradient(q, theta, self.gradient[q])
        # the kernel's step subtracts the slope of a standard normal prior, which is `theta` if
        # scales are 1
        if prior.flat:
            self.gradient[q] += theta
        if b.centred:
            self.gradient[q] += theta - theta * prior_precision[groups.of_parameter]
        if not self.scale_gradient.size:
            return
        if b.centred:  # the slope of theta's normal prior in the log of the bounded scale
            squares = np.add.reduceat(theta**2, groups.cuts[:-1])
            by_u = squares * prior_precision - np.diff(groups.cuts)
        else:
            kernel.gradient_by_scale(groups.cuts, self.mean, self.sd, noise, self.gradient[q], by_u)
            # from the gradient of the log-likelihood in the bounded scales to the gradient in their
            # logarithms
            by_u *= scale
        by_u *= log_slope  # to the gradient in u
        if prior.slope:
            prior_slope = prior.slope(w)
            np.add(by_u, prior_slope, out=self.scale_gradient[q, : len(groups)])
            by_u = np.negative(prior_slope, out=by_u)  # from here on in v, as w = u - v
        if b.scale is None:  # without a prior slope, u is v
            self.scale_gradient[q, -2:] = groups.sum_by_kind(by_u) + prior.hyper_slope(v)

    def step_block(self, adam: tuple, k: int) -> None:
        """Take the step in z for block k, which is a range of groups."""
        first, end = self.blocks[k]
        arrays = (
            self.groups.cuts,
            self.noise,
            self.scale,
            self.gradient,
            self.sd,
            self.mean,
            self.log_sd,
        )
        self.squared_gradients[k] = kernel.step(
            adam, *arrays, self.first_moments, self.second_moments, first, end
        )
        block = slice(self.groups.cuts[first], self.groups.cuts[end])
        np.exp(self.log_sd[block], out=self.sd[block])

    def step_scales(self, adam: tuple) -> None:
        """Take the step in u and v, if they are estimated."""
        if not self.scale_gradient.size:
            return
        numbers = (self.sd, self.mean, self.log_sd)
        kernel.step_scales(
            adam, self.noise, self.scale_gradient, *numbers, self.first_moments, self.second_moments
        )
        if self.begin.prior.slope:
            u_mean = self.mean[self.size : self.size + len(self.groups)]
            np.clip(u_mean, LOWEST_LOG_SCALE, HIGHEST_LOG_SCALE, out=u_mean)
        np.exp(self.log_sd[self.size :], out=self.sd[self.size :])
