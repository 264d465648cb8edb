"""Pseudo-likelihood of rows too many for memory: fits of a random sample, each corrected to all rows by one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bbl._ext.pseudo.pseudo import CONVERGED, STUCK, PseudoProblem
from bbl.engines.engine_fit import NoProgress
from bbl.engines.pseudo.solvers import FINEST, FLOOR, Sites, by_lbfgs, prepared
from bbl.memory import available_memory
from bbl.model.layout import Layout
from bbl.model.logz import log_normaliser
from bbl.model.moments import level_counts, pair_counts
from bbl.model.regressors import penalties, regressors
from bbl.rows.on_cluster import Staged
from bbl.rows.sample import Sample
from bbl.rows.stored import StoredSample

__all__ = ["Corrected", "few_enough", "rounds_memory", "sample_size"]

SAMPLE = 100_000  # least number of rows of a sample
PER_COLUMN = 100  # least number of rows of a sample for each non-reference level
ENOUGH = 100  # rows of a level in the sample: of a rarer one all are taken, while they are the smaller half
FEW = 5  # times as many rows as the sample: a fit of them all takes less than rounds do
FIRST_NORM = 3e-4  # gradient norm to which the sample is fitted first
LEAST_RATIO = 0.02  # ratio of gradient norms that a round aims at, at best
TRUST = 0.5  # a round aims at this share of the ratio that the previous round reached: the sample cannot do better
LARGEST_RATIO = 0.2  # ratio of gradient norms that a round aims at, at worst
SLOW_RATIO = 0.5  # ratio of gradient norms above which a round is slow
STALL_ROUNDS = 2  # slow rounds in a row after which a larger sample is drawn
SAMPLE_GROWTH = 4  # factor of the sample size after a stall
MEMORY_SHARE = 0.5  # share of the free memory that a sample may take
MOST = 100  # rounds at one penalty
PAIRS = 4  # steps and changes of the gradient that are remembered


def sample_size(layout: Layout) -> int:
    """Return how many rows are drawn: a round then leaves about 2 sqrt(D / size) of the error."""
    return max(SAMPLE, PER_COLUMN * regressors(layout).D)


def few_enough(n: int, layout: Layout) -> bool:
    """Return whether `n` rows are so few that rounds would save nothing: they are fitted in memory."""
    return n <= FEW * sample_size(layout)


def rounds_memory(layout: Layout) -> float:
    """Return the bytes of the matrices (layout.D, 1 + D) that rounds hold beside a fit of the sample."""
    return 8.0 * layout.D * (1 + regressors(layout).D) * (10 + 2 * PAIRS)


@dataclass
class _Point:
    """Parameters, and the objective of all rows there without its penalties.

    Shapes: theta, gradient (layout.D, 1 + D); log_norm, the mean log normaliser, and value (m,).
    """

    theta: np.ndarray
    gradient: np.ndarray
    log_norm: np.ndarray
    value: np.ndarray

    def take(self, other: _Point, sites: np.ndarray, rows: np.ndarray) -> None:
        """Take some predictors, a mask of `sites` and of their `rows`, of another point."""
        for name, values in vars(self).items():
            selected = rows if values.ndim == 2 else sites
            values[selected] = getattr(other, name)[selected]


class Corrected:
    """Fits of one group by rounds (communication-efficient surrogate likelihood).

    With f the objective of all rows and f_s that of a random sample, ``f_s(x) - <x, grad f_s(x_k) - grad f(x_k)>`` has
    the gradient of all rows at ``x_k``, and nearly their curvature: ``x_{k+1}`` is its minimum. A round costs a fit of
    the sample and one pass over all rows, and rounds end at the optimum of all rows, whatever the sample was. Each
    predictor has rounds of its own. (Shamir, Srebro & Zhang 2014; Jordan, Lee & Yang 2019; Fan, Guo & Wang 2023.)

    Where the sample knows little of the curvature, as of two rare levels together, the rounds before tell more: they
    are the pairs of L-BFGS, whose start metric is the fit of the sample.

    Parameters
    ----------
    engine : PseudoLikelihood
    rows : StoredSample
        Without missing values.
    layout : Layout
    workers : int
        Threads, of fits and of passes.

    Attributes
    ----------
    passes : int
        Over all rows, so far.
    sample : Sample
        What was drawn; codes are those of the `Regressors`.
    """

    def __init__(self, engine: Any, rows: StoredSample, layout: Layout, workers: int):
        self.engine, self.rows, self.layout, self.workers = engine, rows, layout, workers
        self.passes, self.width = 0, np.diff(layout.start)
        self.key = (engine.precision, layout.n_levels.tobytes(), *_terms(layout))
        self.moments = _moments(rows, layout, engine.prior_count)
        self.point: _Point | None = None
        self._draw(sample_size(layout))

    def fit(self, lambda_: Any, lambdah: float, theta: np.ndarray, itmax: int) -> Sites:
        """Minimise all objectives from `theta`, in place; `itmax` is the most iterations in all rounds.

        A second fit goes on from what is known of the first.
        """
        m, finest = self.layout.m, max(self.engine.tolerance, FINEST[self.engine.precision])
        penalty = np.append(lambdah, penalties(self.layout, lambda_))
        sites, slow, n_iter = Sites(m), np.zeros(m, dtype=int), np.zeros(m, dtype=np.int32)
        norm = np.full(m, np.inf) if self.point is None else self._norms(self.point, penalty)
        done, reduction = norm <= finest, np.full(m, LEAST_RATIO)
        pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for _ in range(MOST):
            stalled = slow >= STALL_ROUNDS
            done |= stalled & ((norm <= FLOOR[self.engine.precision]) | (len(self.sample.codes) == self.rows.n))
            done |= n_iter >= itmax
            if done.all():
                break
            if (stalled & ~done).any():
                self._enlarge(int(np.argmax(np.where(done, -1.0, norm))), norm)
                slow[:], pairs = 0, []
            aim = np.full(m, FIRST_NORM) if self.point is None else np.where(done, np.inf, reduction * norm)
            solver_options = {"tolerance": np.maximum(aim, 0.5 * finest), "workers": self.workers}
            solve = partial(
                self.solve, self.engine, self.sample, self.layout, lambda_, lambdah, sites=sites, **solver_options
            )
            trial = self._step(solve, theta, penalty, pairs)
            n_iter += np.where(done, 0, sites.n_iter).astype(np.int32)
            new = self._pass(trial, ~done)
            now = self._norms(new, penalty)
            if self.point is not None:
                step = new.theta - self.point.theta
                change = new.gradient - self.point.gradient + penalty * step
                product = self._by_site(step * change)
                good = product > 0.0
                pairs = [*pairs[1 - PAIRS :], (step, change, np.where(good, 1.0 / np.where(good, product, 1.0), 0.0))]
            reduction = np.clip(TRUST * np.where(np.isfinite(norm), now / norm, 0.0), LEAST_RATIO, LARGEST_RATIO)
            better = ~done & (now < norm)
            slow = np.where(done | (now <= SLOW_RATIO * norm), 0, slow + 1)
            if self.point is None:
                self.point = new
            else:
                self.point.take(new, better, np.repeat(better, self.width))
            norm = np.where(better, now, norm)
            done |= norm <= finest
        assert self.point is not None  # noqa: S101  # no norm is infinite now
        theta[:] = self.point.theta
        sites.norm, sites.n_iter = norm, n_iter
        sites.value = self.point.value + 0.5 * self._by_site(theta**2 * penalty)
        sites.status[:] = np.where(norm <= max(finest, FLOOR[self.engine.precision]), CONVERGED, STUCK)
        return sites

    def normaliser(self, theta: np.ndarray):
        """Return the function of eq. (31) over all rows at the last fit's solution; with its factor it is a pass."""
        assert self.point is not None  # noqa: S101  # there was a fit
        log_norm_sum = float(self.point.log_norm.sum())

        def of(half: bool) -> float:
            if not half:
                return log_norm_sum
            return self.rows.summed(self._staged(_block_normaliser, theta), self.workers) / self.rows.total

        return of

    def told(self) -> dict[str, np.ndarray]:
        """Return what the summary says of the rounds: rows, those drawn, passes so far, threads of a cluster."""
        numbers = [self.rows.n, len(self.sample.codes), self.passes, self.rows.cluster_threads]
        return {"streamed": np.array(numbers)}

    def _staged(self, then: Callable, *told: Any) -> Staged:
        """Return the function of blocks that prepares them and calls ``then(layout, *told, problem, block)``."""
        first = partial(_prepared_block, self.layout, self.engine.precision)
        return Staged(self.key, first, partial(then, self.layout, *told))

    def _by_site(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (m,) of values (layout.D, 1 + D) over the parameters of each predictor."""
        sums = np.append(values.sum(axis=1), 0.0)
        return np.where(self.width > 0, np.add.reduceat(sums, self.layout.start[:-1]), 0.0)

    def _norms(self, point: _Point, penalty: np.ndarray) -> np.ndarray:
        return np.sqrt(self._by_site((point.gradient + penalty * point.theta) ** 2))

    def _pass(self, theta: np.ndarray, sites: np.ndarray) -> _Point:
        """Return the objective of all rows, of the tasks that have some of the `sites`; elsewhere it is none."""
        self.passes += 1
        tasks = np.unique(np.flatnonzero(sites[self.problem.order]) // self.problem.lanes).tolist()
        measure = self._staged(_block_objective, theta, tasks)
        log_norm, gradient = (row_sums / self.rows.total for row_sums in self.rows.summed(measure, self.workers))
        return _Point(theta, gradient - self.moments, log_norm, log_norm - self._by_site(theta * self.moments))

    def _step(self, solve: Any, theta: np.ndarray, penalty: np.ndarray, pairs: list) -> np.ndarray:
        """Return where the next pass looks: the minimum of the corrected objective, by what `pairs` know (L-BFGS)."""
        if self.point is None:
            trial = theta.copy()
            solve(site_theta=trial)
            return trial
        at, shares = self.point, []
        correction = at.gradient + penalty * at.theta
        for step, change, scale in reversed(pairs):
            shares.append(scale * self._by_site(step * correction))
            correction -= np.repeat(shares[-1], self.width)[:, None] * change
        sample_gradient = self.problem.objective(at.theta, 0.0, 0.0)[1] + penalty * at.theta
        trial = at.theta.copy()
        solve(site_theta=trial, linear=sample_gradient - correction)
        trial -= at.theta
        for (step, change, scale), share in zip(pairs, reversed(shares), strict=True):
            next_share = share + scale * self._by_site(change * trial)
            trial -= np.repeat(next_share, self.width)[:, None] * step
        return trial + at.theta

    def _draw(self, size: int) -> None:
        """Draw a sample of that many rows, and prepare the solver for it."""
        every = few_enough(self.rows.n, self.layout) or 2 * size >= self.rows.n
        rng = np.random.default_rng(0)
        drawn = self.rows.draw(self.rows.n if every else size, rng, None if every else self._rare(size))
        self.sample = Sample(regressors(self.layout).codes(drawn.codes), drawn.weights)
        self.problem = prepared(self.sample, self.layout, self.engine.precision, self.engine.prior_count)
        self.solve = by_lbfgs(self.problem, self.engine.precision)

    def _rare(self, size: int) -> list[np.ndarray] | None:
        """Return the levels of each predictor whose rows are all taken, at most half of the sample, if any are."""
        level_weights = level_counts(self.rows, self.layout.n_levels)
        counts = np.sort(np.concatenate(level_weights))
        fits = counts[np.cumsum(counts) <= size / 2]
        scarce = fits[fits < ENOUGH * self.rows.total / size].max(initial=0.0)
        return (
            [
                np.flatnonzero((weights_of_levels > 0) & (weights_of_levels <= scarce))
                for weights_of_levels in level_weights
            ]
            if scarce
            else None
        )

    def _enlarge(self, predictor: int, norm: np.ndarray) -> None:
        """Draw a larger sample, if there is memory for it."""
        size = SAMPLE_GROWTH * len(self.sample.codes)
        needed = self.engine.memory(min(size, self.rows.n), self.layout)
        if needed > MEMORY_SHARE * available_memory():
            raise NoProgress(predictor, float(norm[predictor]), len(self.sample.codes), self.rows.n)
        self._draw(size)


def _moments(rows: StoredSample, layout: Layout, prior_count: float) -> np.ndarray:
    """Return the empirical moments (layout.D, 1 + D) that go with theta, mixed with a `prior_count`; zero elsewhere."""
    wide = regressors(layout)
    if wide.D == layout.D:
        counts = pair_counts(rows, layout) / rows.total
    else:
        name = ("joint levels", *_terms(layout))
        counts = rows.sums(name, partial(_block_pairs, layout)) / rows.total
    mean, mix = np.append(1.0, counts.diagonal()), prior_count / (rows.total + prior_count)
    out = np.zeros((layout.D, 1 + wide.D))
    for i, columns in enumerate(wide.columns):
        site_levels = np.arange(layout.start[i], layout.start[i + 1])
        site_moments = np.column_stack([mean[1 + site_levels], counts[site_levels]])[:, columns]
        out[np.ix_(site_levels, columns)] = site_moments + mix * (mean[columns] / layout.n_levels[i] - site_moments)
    return out


def _terms(layout: Layout) -> tuple[bytes, ...]:
    """Return what tells the terms of layouts of the same levels apart; all pairs are not listed."""
    return () if layout.complete else tuple(terms.tobytes() for terms in layout.terms)


def _block_pairs(layout: Layout, part: Sample) -> np.ndarray:
    """Return the counts (D, D) of pairs of columns in a block."""
    wide = regressors(layout)
    return pair_counts(Sample(wide.codes(part.codes), part.weights), wide)


def _prepared_block(layout: Layout, precision: str, part: Sample) -> PseudoProblem:
    return prepared(Sample(regressors(layout).codes(part.codes), part.weights), layout, precision, counted=False)


def _block_objective(layout: Layout, theta: np.ndarray, tasks: list, problem: PseudoProblem, part: Sample) -> list:
    """Return the sums over a block of the log normalisers (m,) and of their gradients (layout.D, 1 + D)."""
    return [part.total * each for each in problem.objective(theta, 0.0, 0.0, tasks=tasks)]


def _block_normaliser(layout: Layout, theta: np.ndarray, problem: PseudoProblem, part: Sample) -> float:
    return part.total * log_normaliser(problem, layout, theta, True)
