"""Persistent variational inference: a factorised posterior of scaled parameters, by chains that never start anew.

The gradient of the approximation (see `bbl.engines.variational.scaled`) is that of the likelihood at a few
draws of the parameters, for which each draw has Gibbs chains of its own that go on from step to step (Ingraham & Marks
2017, Algorithm 2).

Threads take the draws; where there are more of them than draws, those of a draw take its packs of chains and blocks of
its couplings. The blocks depend on the model alone, and what they sum up is added in their order, so the result does
not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bbl._ext.variational import persistent as kernel
from bbl.engines.variational.scaled import Approximation
from bbl.model.chains import Chains
from bbl.model.conditional import conditionals
from bbl.model.layout import Layout
from bbl.model.moments import known_counts, one_hot, pair_counts
from bbl.parallel import Crew, Stopped, serial_blas, stop_flag
from bbl.rows.sample import Sample

__all__ = ["Budget", "Likelihood", "PseudoLikelihoodGradient", "SampledGradient", "ascend", "model_sums"]

FIRST_DECAY = 0.99  # of the first moment of Adam; it falls to zero with the step
SECOND_DECAY = 0.999  # of the second moment of Adam
LOWEST_LOG_SCALE = -30.0
HIGHEST_LOG_SCALE = 10.0
CHECKS = 40  # records of the history
SMOOTH = 0.9  # weight of the records before, where the posterior mean is smoothed
ROWS = 2048
BLOCK = 2**15  # parameters that one thread takes at a time


class Likelihood(Protocol):
    """Interface of a likelihood in the ascent."""

    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient of the log-likelihood by parameters in simplex coding, all of the rows taken together.

        Threads may call it for different draws q at the same time.
        """


def feature_sums(sample: Sample, layout: Layout, tables: kernel.Tables) -> np.ndarray:
    """Return the sums of the features in simplex coding over the rows, where values are missing over the known ones.

    A pair of which only some rows are known counts as if all rows were like those.
    """
    out, counts, total = np.empty(layout.size), pair_counts(sample, layout), sample.total
    if sample.missing is None:
        tables.features(counts, total, out)
        return out
    known_weight, with_known = known_counts(sample, layout)
    table = np.empty(layout.size)
    of = np.repeat(np.arange(layout.m), layout.n_levels - 1)
    scale = total / np.maximum(known_weight, 1e-300)
    scaled_counts = counts * scale[np.ix_(of, of)]
    tables.features(scaled_counts, total, out)  # right for fields; a pair has margins of its own
    for i, j in layout.pairs:
        two = np.r_[layout.start[i] : layout.start[i + 1], layout.start[j] : layout.start[j + 1]]
        pair_counts_here = scaled_counts[np.ix_(two, two)]
        margins = np.r_[
            with_known[layout.start[i] : layout.start[i + 1], j], with_known[layout.start[j] : layout.start[j + 1], i]
        ]
        np.fill_diagonal(pair_counts_here, margins * scale[i, j])
        pair = Layout(layout.n_levels[[i, j]])
        table = np.empty(pair.size)
        _tables(pair).features(np.ascontiguousarray(pair_counts_here), total, table)
        layout.table(out, int(i), int(j))[...] = pair.table(table, 0, 1)
    return out


def model_sums(sample: Sample, layout: Layout) -> np.ndarray:
    """Return `feature_sums` of a layout whose tables are not at hand."""
    return feature_sums(sample, layout, _tables(layout))


def _tables(layout: Layout) -> kernel.Tables:
    pairs = np.ascontiguousarray(layout.pairs, dtype=np.intp)
    return kernel.Tables(layout.n_levels, layout.start.astype(np.intp), pairs, layout.pair_start.astype(np.intp))


def _blocks(ends: np.ndarray) -> list[tuple[int, int]]:
    """Return where runs of tables begin and end that have about `BLOCK` parameters, given where each table ends."""
    if not len(ends):
        return [(0, 0)]
    at = np.searchsorted(ends, np.arange(BLOCK, ends[-1] - ends[0] + BLOCK, BLOCK) + ends[0])
    cuts = np.unique(np.concatenate([[0], at.clip(max=len(ends) - 1)]))
    cuts[-1] = len(ends)
    return list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)) if len(cuts) > 1 else [(0, len(ends))]


class SampledGradient:
    """The gradient of the likelihood, the expectations of the model taken over chains that go on from call to call.

    Calls for different draws may run at the same time.

    Parameters
    ----------
    sample : Sample
    layout : Layout
    n_chains : int
        For each draw.
    sweeps : int
        Per call.
    rng : numpy.random.Generator
    crews : sequence of Crew
        The threads of each draw.
    """

    def __init__(
        self, sample: Sample, layout: Layout, n_chains: int, sweeps: int, rng, crews: Sequence[Crew]
    ):  # fmt: skip
        self.tables, self.sweeps, self.total = _tables(layout), sweeps, sample.total
        self.sums = feature_sums(sample, layout, self.tables)
        self.blocks = _blocks(layout.pair_start[1:])
        self.h = np.zeros((len(crews), len(self.blocks), layout.D))
        self.J = [np.zeros((layout.D, layout.D)) for _ in crews]
        none, levels = np.zeros(layout.D), layout.n_levels[layout.n_levels > 1]
        chain_arguments = zip(self.J, rng.spawn(len(crews)), crews, strict=True)
        self.chains = [Chains(none, J, levels, n_chains, stream, crew.workers) for J, stream, crew in chain_arguments]
        self.crews = crews

    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient at `simplex` after some sweeps of the chains of draw q."""
        chains, crew, h, J = self.chains[q], self.crews[q], self.h[q], self.J[q]
        crew.run(
            self.tables.couple,
            [(simplex, field_block, J, *cut) for field_block, cut in zip(h, self.blocks, strict=True)],
        )
        chains.update(h.sum(axis=0), J)
        bits, n = chains.sweep_bits(self.sweeps, crew)
        crew.run(self.tables.features_of_bits, [(bits, n, out, *cut) for cut in self.blocks])
        out *= -self.total / n
        out += self.sums


class PseudoLikelihoodGradient:
    """The gradient of the log pseudo-likelihood, without chains.

    Parameters
    ----------
    sample : Sample
        Rows with missing values are left out.
    layout : Layout
    """

    def __init__(self, sample: Sample, layout: Layout):
        if sample.missing is not None:
            sample = sample.rows(~sample.missing.any(axis=1))
        self.layout, self.tables, self.rows = layout, _tables(layout), sample

    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient at `simplex`."""
        h, J = np.zeros(self.layout.D), np.zeros((self.layout.D, self.layout.D))
        self.tables.couple(simplex, h, J)
        by_theta = np.zeros((self.layout.D, self.layout.D))
        fields = np.zeros(self.layout.D)
        with serial_blas():
            for chunk in self.rows.blocks(ROWS):
                X = one_hot(chunk.codes, self.layout)
                _, P = conditionals(X, self.layout, h, J)
                residual = (X - P) * chunk.weights[:, None]
                fields += residual.sum(axis=0)
                by_theta += residual.T @ X
        by_theta += by_theta.T.copy()
        np.fill_diagonal(by_theta, fields)
        self.tables.features(by_theta, 0.0, out)


@dataclass(frozen=True)
class Budget:
    """Number of iterations and step sizes of the ascent.

    Attributes
    ----------
    n_iter : int
    tol : float or None
        Relative change of the posterior mean (see `ascend`) at which the steps start to fall to zero at once.
    draws : int
    lr : float
        First step of Adam; it falls to zero linearly.
    average : float
        Share of the iterations, at the end, over which the approximation is averaged.
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
    """Climb the evidence lower bound by Adam, and return the approximation with the history of the way.

    Parameters
    ----------
    likelihood : Likelihood
    begin : Approximation
    budget : Budget
    rng : numpy.random.Generator
        Of the draws.
    progress : callable, optional
        Told of each share that is done, and of the relative change.
    workers : int, default 1
        Threads, which the result does not depend on.

    Returns
    -------
    Approximation
    history : dict of ndarray
        ``iteration``; ``gradient``: root mean square of the gradient by the means of z since the record before;
        ``change``: of the posterior mean since then, relative, smoothed over about ten records; ``scale_fields``,
        ``scale_couplings``: global scales.
    """
    schedule, history, stop = _Schedule(budget), _History(budget.n_iter, begin), stop_flag()
    with Crew(workers) as crew:
        state = _State(begin, likelihood, budget.draws, rng, crew)
        while schedule.running:
            if stop[0]:
                raise Stopped
            moved = state.step(schedule.adam())
            if schedule.t > schedule.average_from:
                state.gather()
            if history.due(schedule.t, moved) or not schedule.running:
                change = history.record(schedule.t, state.now)
                if budget.tol is not None and change < budget.tol:
                    schedule.finish()
                if progress is not None:
                    progress(history.every / budget.n_iter, f"change {change:.1e}")
    return state.averaged, history.columns


class _Schedule:
    """The step size from iteration to iteration, and when to end."""

    def __init__(self, budget: Budget):
        self.budget, self.t, self.end = budget, 0, budget.n_iter
        self.share_from, self.since = 1.0, 0
        self.first_weight = 0.0
        self.finishing = False

    @property
    def running(self) -> bool:
        return self.t < self.end

    @property
    def average_from(self) -> float:
        return self.end - max(1.0, self.budget.average * (self.end - (self.since if self.finishing else 0)))

    def adam(self) -> tuple[float, float, float, float, float]:
        """Return the numbers of the next step of Adam."""
        share = self.share_from * (1.0 - (self.t - self.since) / (self.end - self.since))
        decay = FIRST_DECAY * share
        self.t += 1
        self.first_weight = decay * self.first_weight + 1.0 - decay
        unbias = 1.0 / (1.0 - SECOND_DECAY**self.t)
        return self.budget.lr * share, decay, SECOND_DECAY, 1.0 / self.first_weight, unbias

    def finish(self) -> None:
        """Let the steps fall to zero over a tenth of the iterations, if that is before the end."""
        end = self.t + max(self.budget.n_iter // 10, 1)
        if not self.finishing and end < self.end:
            share = self.share_from * (1.0 - (self.t - self.since) / (self.end - self.since))
            self.share_from, self.since, self.end, self.finishing = share, self.t, end, True


class _History:
    """Record of the ascent at some forty iterations."""

    def __init__(self, n_iter: int, begin: Approximation):
        self.every = max(1, n_iter // CHECKS)
        self.smooth = begin.simplex
        self.size = max(begin.layout.size, 1)
        self.sum = 0.0
        self.rows: list[tuple] = []

    def due(self, t: int, moved: float) -> bool:
        self.sum += moved / self.size
        return t % self.every == 0

    def record(self, t: int, now: Approximation) -> float:
        smooth = SMOOTH * self.smooth + (1.0 - SMOOTH) * now.simplex
        change = float(np.linalg.norm(smooth - self.smooth) / max(float(np.linalg.norm(smooth)), 1e-300))
        rms = np.sqrt(self.sum / (t - self.rows[-1][0] if self.rows else t))
        self.rows.append((t, rms, change, *now.global_scales))
        self.smooth, self.sum = smooth, 0.0
        return change

    @property
    def columns(self) -> dict[str, np.ndarray]:
        names = ("iteration", "gradient", "change", "scale_fields", "scale_couplings")
        values = np.array(self.rows, dtype=float).reshape(-1, len(names)).T
        return dict(zip(names, values, strict=True))


class _State:
    """The approximation while it moves, with what Adam remembers."""

    def __init__(self, begin: Approximation, likelihood: Likelihood, draws: int, rng: np.random.Generator, crew: Crew):
        n, size, groups = len(begin.mean), begin.layout.size, begin.groups
        self.begin, self.likelihood, self.groups, self.size = begin, likelihood, groups, size
        self.crew, self.blocks = crew, _blocks(groups.cuts[1:])
        # four words a stream, one of which at least is not zero
        self.streams = rng.integers(1, 2**32, (draws, 4, kernel.streams()), dtype=np.uint32)
        self.mean, self.log_sd = begin.mean.copy(), begin.log_sd.copy()
        self.first, self.second = np.zeros((2, n)), np.zeros((2, n))
        self.sd, self.moved = np.exp(self.log_sd), np.zeros(len(self.blocks))
        self.noise = np.empty((draws, n))
        self.simplex, self.gradient = np.empty((2, draws, size))
        self.scale = np.empty((draws, len(groups)))
        self.by_scales = np.empty((draws, n - size))
        self.sum, self.gathered = np.zeros((2, n)), 0

    @property
    def now(self) -> Approximation:
        b = self.begin
        return Approximation(b.layout, b.prior, b.slab, b.scale, self.mean.copy(), self.log_sd.copy())

    @property
    def averaged(self) -> Approximation:
        b, (mean, log_sd) = self.begin, self.sum / self.gathered
        return Approximation(b.layout, b.prior, b.slab, b.scale, mean, log_sd)

    def gather(self) -> None:
        self.sum[0] += self.mean
        self.sum[1] += self.log_sd
        self.gathered += 1

    def step(self, adam: tuple) -> float:
        """Take one step; return the sum of the squared gradients by the means of z."""
        self.crew.run(self.look, [(q,) for q in range(len(self.noise))])
        self.crew.run(self.climb, [(adam, k) for k in range(len(self.blocks))])
        self.climb_scales(adam)
        return float(self.moved.sum())

    def look(self, q: int) -> None:
        """Write the gradients at draw q: by its parameters, and by its log scales u and the global ones v."""
        b, groups, noise, prior = self.begin, self.groups, self.noise[q], self.begin.prior
        kernel.normal(self.streams[q], noise)
        log_scales = slice(self.size, self.size + len(groups) if prior.slope else self.size)
        v = self.mean[-2:] + self.sd[-2:] * noise[-2:] if b.scale is None else np.full(2, np.log(b.scale))
        u, w, share, by_u = np.empty((4, len(groups)))
        ends = (LOWEST_LOG_SCALE, HIGHEST_LOG_SCALE, u, w)
        kernel.log_scales(groups.fields, self.mean[log_scales], self.sd[log_scales], noise[log_scales], v, *ends)
        scale = np.exp(u, out=self.scale[q])
        kernel.slab(b.slab, scale, share)
        kernel.draw(groups.cuts, self.mean, self.sd, noise, scale, self.simplex[q])
        self.likelihood.gradient(q, self.simplex[q], self.gradient[q])
        if not self.by_scales.size:
            return
        kernel.products(groups.cuts, self.mean, self.sd, noise, self.gradient[q], by_u)
        by_u *= scale
        by_u *= share
        if prior.slope:
            slope = prior.slope(w)
            np.add(by_u, slope, out=self.by_scales[q, : len(groups)])
            by_u = np.negative(slope, out=by_u)
        if b.scale is None:
            self.by_scales[q, -2:] = groups.by_kind(by_u) + prior.hyper_slope(v)

    def climb(self, adam: tuple, k: int) -> None:
        """Take the step of block k of z."""
        lo, hi = self.blocks[k]
        z = (self.groups.cuts, self.noise, self.scale, self.gradient, self.sd, self.mean, self.log_sd)
        self.moved[k] = kernel.step(adam, *z, self.first, self.second, lo, hi)
        block = slice(self.groups.cuts[lo], self.groups.cuts[hi])
        np.exp(self.log_sd[block], out=self.sd[block])

    def climb_scales(self, adam: tuple) -> None:
        """Take the step of u and v."""
        if not self.by_scales.size:
            return
        x = (self.sd, self.mean, self.log_sd)
        kernel.step_scales(adam, self.noise, self.by_scales, *x, self.first, self.second)
        scale_range = slice(self.size, None)
        if self.begin.prior.slope:
            scales = self.mean[self.size : self.size + len(self.groups)]
            np.clip(scales, LOWEST_LOG_SCALE, HIGHEST_LOG_SCALE, out=scales)
        np.exp(self.log_sd[scale_range], out=self.sd[scale_range])
