"""Persistent variational inference: a factorised posterior of scaled parameters, by chains that never start anew.

The gradient of the approximation (see `bbl.model.scaled`) is that of the likelihood at a few draws of the parameters,
for which each draw has Gibbs chains of its own that go on from step to step (Ingraham & Marks 2017, Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bbl._ext import persistent as kernel
from bbl.model.chains import Chains
from bbl.model.conditional import conditionals
from bbl.model.layout import Layout
from bbl.model.moments import known_counts, one_hot, pair_counts
from bbl.model.priors import slabbed
from bbl.model.scaled import Approximation
from bbl.parallel import Stopped, serial_blas, stop_flag
from bbl.rows.sample import Sample

__all__ = ["Budget", "Likelihood", "PseudoLikelihoodGradient", "SampledGradient", "ascend"]

FIRST_DECAY, SECOND_DECAY = 0.99, 0.999  # of Adam; the first falls to zero with the step
LOWEST, HIGHEST = -30.0, 10.0  # of a log scale
CHECKS = 40  # records of the history
SMOOTH = 0.9  # weight of the records before, where the posterior mean is smoothed
ROWS = 2048


class Likelihood(Protocol):
    """What the ascent asks of a likelihood."""

    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient of the log-likelihood by parameters in simplex coding, all of the rows taken together."""


def feature_sums(sample: Sample, layout: Layout, tables: kernel.Tables) -> np.ndarray:
    """Return the sums of the features in simplex coding over the rows, where values are missing over the known ones.

    A pair of which only some rows are known counts as if all rows were like those.
    """
    out, counts, total = np.empty(layout.size), pair_counts(sample, layout), sample.total
    if sample.missing is None:
        tables.features(counts, total, out)
        return out
    known, with_known = known_counts(sample, layout)
    part = np.empty(layout.size)
    of = np.repeat(np.arange(layout.m), layout.n_levels - 1)
    scale = total / np.maximum(known, 1e-300)
    whole = counts * scale[np.ix_(of, of)]
    tables.features(whole, total, out)  # right for fields; a pair has margins of its own
    for i, j in layout.pairs:
        two = np.r_[layout.start[i] : layout.start[i + 1], layout.start[j] : layout.start[j + 1]]
        own = whole[np.ix_(two, two)]
        margins = np.r_[
            with_known[layout.start[i] : layout.start[i + 1], j], with_known[layout.start[j] : layout.start[j + 1], i]
        ]
        np.fill_diagonal(own, margins * scale[i, j])
        pair = Layout(layout.n_levels[[i, j]])
        part = np.empty(pair.size)
        _tables(pair).features(np.ascontiguousarray(own), total, part)
        layout.table(out, int(i), int(j))[...] = pair.table(part, 0, 1)
    return out


def _tables(layout: Layout) -> kernel.Tables:
    pairs = np.ascontiguousarray(layout.pairs, dtype=np.intp)
    return kernel.Tables(layout.n_levels, layout.start.astype(np.intp), pairs, layout.pair_start.astype(np.intp))


class SampledGradient:
    """The gradient of the likelihood, the expectations of the model taken over chains that go on from call to call.

    Parameters
    ----------
    sample : Sample
    layout : Layout
    n_chains : int
        For each draw.
    draws, sweeps : int
        Draws, each of which has chains of its own, and sweeps per call.
    rng : numpy.random.Generator
    """

    def __init__(self, sample: Sample, layout: Layout, n_chains: int, draws: int, sweeps: int, rng):
        self.tables, self.sweeps, self.total = _tables(layout), sweeps, sample.total
        self.sums = feature_sums(sample, layout, self.tables)
        self.h, self.J = np.zeros(layout.D), np.zeros((layout.D, layout.D))
        self.varies = layout.n_levels > 1
        levels = layout.n_levels[self.varies]
        self.chains = [Chains(self.h, self.J, levels, n_chains, own) for own in rng.spawn(draws)]

    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient at `simplex` after some sweeps of the chains of draw q."""
        chains = self.chains[q]
        self.tables.couple(simplex, self.h, self.J)
        chains.update(self.h, self.J)
        bits, n = chains.sweep_bits(self.sweeps)
        self.tables.features_of_bits(bits, n, out)
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
        self.h, self.J = np.zeros(layout.D), np.zeros((layout.D, layout.D))

    def gradient(self, q: int, simplex: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient at `simplex`."""
        self.tables.couple(simplex, self.h, self.J)
        by_theta = np.zeros((self.layout.D, self.layout.D))
        fields = np.zeros(self.layout.D)
        with serial_blas():
            for part in self.rows.blocks(ROWS):
                X = one_hot(part.codes, self.layout)
                _, P = conditionals(X, self.layout, self.h, self.J)
                residual = (X - P) * part.weights[:, None]
                fields += residual.sum(axis=0)
                by_theta += residual.T @ X
        by_theta += by_theta.T.copy()
        np.fill_diagonal(by_theta, fields)
        self.tables.features(by_theta, 0.0, out)


@dataclass(frozen=True)
class Budget:
    """How long the ascent takes and how it steps.

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

    Returns
    -------
    Approximation
    history : dict of ndarray
        ``iteration``; ``gradient``: root mean square of the gradient by the means of z since the record before;
        ``change``: of the posterior mean since then, relative, smoothed over about ten records; ``scale_fields``,
        ``scale_couplings``: global scales.
    """
    state, stop = _State(begin, budget.draws), stop_flag()
    schedule, history = _Schedule(budget), _History(budget.n_iter, begin)
    while schedule.running:
        if stop[0]:
            raise Stopped
        rng.standard_normal(out=state.noise)
        moved = state.step(likelihood, schedule.adam())
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
    """What is recorded some forty times on the way."""

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

    def __init__(self, begin: Approximation, draws: int):
        n, size, G = len(begin.mean), begin.layout.size, len(begin.groups)
        self.begin, self.groups, self.size = begin, begin.groups, size
        self.mean, self.log_sd = begin.mean.copy(), begin.log_sd.copy()
        self.first, self.second = np.zeros((2, n)), np.zeros((2, n))
        self.noise, self.sd = np.empty((draws, n)), np.empty(n)
        self.simplex, self.gradient = np.empty((2, draws, size))
        self.products = np.empty((draws, G))
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

    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the log scales u (Q, G) and the logarithms v (Q, 2) of the global ones at the draws."""
        b, rest = self.begin, slice(self.size, None)
        x = self.mean[rest] + self.sd[rest] * self.noise[:, rest]
        v = np.full((len(x), 2), np.log(b.scale)) if b.scale is not None else x[:, -2:]
        u = x[:, : len(self.groups)] if b.prior.slope else self.groups.of_kind(v)
        return np.clip(u, LOWEST, HIGHEST), v

    def step(self, likelihood: Likelihood, adam: tuple) -> float:
        """Take one step with the noise at hand; return the sum of the squared gradients by the means of z."""
        np.exp(self.log_sd, out=self.sd)
        u, v = self.scales()
        scale, slope = slabbed(u, self.begin.slab)
        for q, (own, simplex) in enumerate(zip(scale, self.simplex, strict=True)):
            kernel.draw(self.groups.cuts, self.mean, self.sd, self.noise[q], own, simplex)
            likelihood.gradient(q, simplex, self.gradient[q])
        z = (self.groups.cuts, self.noise, scale, self.gradient, self.sd, self.mean, self.log_sd)
        moved = kernel.step(adam, *z, self.first, self.second, self.products)
        self.step_scales(adam, self.products * scale * slope, u, v)
        return moved

    def step_scales(self, adam: tuple, by_u: np.ndarray, u: np.ndarray, v: np.ndarray) -> None:
        """Take the step of u and v, given the gradients (Q, G) of the log-likelihood by u."""
        prior, parts = self.begin.prior, []
        if prior.slope:
            own = prior.slope(u - self.groups.of_kind(v))
            parts.append(by_u + own)
            by_u = -own
        if self.begin.scale is None:
            parts.append(self.groups.by_kind(by_u) + prior.hyper_slope(v))
        if not parts:
            return
        gradient, rest = np.concatenate(parts, axis=1), slice(self.size, None)
        away = self.sd[rest] * self.noise[:, rest]
        told = ((gradient.mean(axis=0), self.mean), ((gradient * away).mean(axis=0) + 1.0, self.log_sd))
        for k, (by, x) in enumerate(told):
            kernel.climb(adam, by, x[rest], self.first[k, rest], self.second[k, rest])
        if prior.slope:
            scales = self.mean[self.size : self.size + len(self.groups)]
            np.clip(scales, LOWEST, HIGHEST, out=scales)
