"""Pseudo-likelihood for rows that do not fit into memory, by corrected fits to a random sample."""

# Solutions `theta` (layout.D, 1 + D) are site solutions, with columns for the D columns of the
# `Regressors`. A round consists of one fit of the sample and one pass over all rows; a block is a
# part of the rows. ``rows.summed(function)`` is the sum of ``function(block)`` over all blocks.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bbl._ext.pseudo.pseudo import CONVERGED, STUCK, PseudoProblem
from bbl.engines.engine_fit import NoProgress
from bbl.engines.pseudo.solvers import FINEST, FLOOR, Sites, make_lbfgs_solver, prepare_problem
from bbl.memory import available_memory
from bbl.model.layout import Layout
from bbl.model.logz import log_normaliser
from bbl.model.moments import pair_counts
from bbl.model.regressors import penalties, regressors
from bbl.rows.sample import Rows, Sample
from bbl.rows.staged import Staged
from bbl.rows.stored import StoredSample

__all__ = ["Corrected", "few_enough", "rounds_memory", "sample_size", "site_moments"]

MIN_SAMPLE = 100_000  # minimum number of rows in a sample
ROWS_PER_COLUMN = 100  # minimum number of rows in a sample for each of the D columns
# up to this multiple of the sample size, fitting all rows is faster than rounds
FULL_FIT_FACTOR = 5
FIRST_NORM = 3e-4  # gradient norm at which the first fit of the sample ends
LEAST_RATIO = 0.02  # smallest ratio of gradient norms that a round aims for
# a round aims for this multiple of the previous round's ratio, because a sample cannot do better
TRUST = 0.5
LARGEST_RATIO = 0.2  # largest ratio of gradient norms that a round aims for
SLOW_RATIO = 0.5  # ratio of gradient norms above which a round is slow
STALL_ROUNDS = 2  # number of consecutive slow rounds after which a larger sample is drawn
SAMPLE_GROWTH = 4  # factor of the sample size after a stall
MEMORY_SHARE = 0.5  # fraction of the free memory that a sample may use
MAX_ROUNDS = 100  # maximum number of rounds at one penalty
PAIRS = 4  # number of curvature pairs in L-BFGS: a step and the change in the gradient along it


def sample_size(layout: Layout) -> int:
    """Return the number of rows to draw.

    With this sample size, each round multiplies the error by about 2 sqrt(D / rows).
    """
    return max(MIN_SAMPLE, ROWS_PER_COLUMN * regressors(layout).D)


def few_enough(n: int, layout: Layout) -> bool:
    """Return whether a fit to `n` rows in memory is faster than a fit in rounds."""
    return n <= FULL_FIT_FACTOR * sample_size(layout)


def rounds_memory(layout: Layout) -> float:
    """Return the memory, in bytes, for a fit in rounds, excluding the fit to the sample."""
    # ten matrices, and two for each curvature pair, with 8 bytes per number
    return 8.0 * layout.D * (1 + regressors(layout).D) * (10 + 2 * PAIRS)


@dataclass
class _Point:
    """A solution, and the unpenalised objective of each site at this solution over all rows.

    Attributes
    ----------
    theta : ndarray, shape (layout.D, 1 + D)
    gradient : ndarray, shape (layout.D, 1 + D)
    log_norm : ndarray, shape (m,)
        Mean log normaliser of each site's conditional distribution.
    value : ndarray, shape (m,)
        Objective of each site, i.e. minus the mean conditional log-likelihood given the other
        predictors.
    """

    theta: np.ndarray
    gradient: np.ndarray
    log_norm: np.ndarray
    value: np.ndarray

    def take(self, other: _Point, sites: np.ndarray, rows: np.ndarray) -> None:
        """Copy the solutions of some sites from another point, in place.

        `sites` (m,) and `rows` (layout.D,) are masks of the sites and of their levels.
        """
        for name, values in vars(self).items():
            mask = rows if values.ndim == 2 else sites
            values[mask] = getattr(other, name)[mask]


class Corrected:
    """Solver that fits one group in rounds (communication-efficient surrogate likelihood).

    Let f be the objective for all rows and f_s the objective for a random sample. Then ``f_s(x) -
    <x, grad f_s(x_k) - grad f(x_k)>`` has the same gradient as f at ``x_k`` and approximately the
    same curvature. Its minimum is ``x_{k+1}``. Rounds converge to the optimum of f regardless of
    the sample, separately for each site (Shamir, Srebro & Zhang 2014; Jordan, Lee & Yang 2019; Fan,
    Guo & Wang 2023).

    If the curvature is poorly estimated from the sample, as for pairs of rare levels, information
    from earlier rounds is used. The steps of these rounds are curvature pairs of L-BFGS, in a
    version where the fit to the sample replaces the initial inverse Hessian.

    Parameters
    ----------
    engine : PseudoLikelihood
    rows : StoredSample
        The rows, without missing values.
    layout : Layout
    workers : int
        Number of threads.

    Attributes
    ----------
    passes : int
        Number of passes over all rows so far.
    sample : Sample
        The sampled rows, encoded for `Regressors`.
    problem : PseudoProblem
        The sampled rows in the kernel's format.
    solve : callable
        The solver from `make_lbfgs_solver` for `problem`. It fits the sampled rows and updates the
        solution in place.
    key : tuple
        Key for caching prepared blocks between passes.
    moments : ndarray, shape (layout.D, 1 + D)
        See `site_moments`.
    point : _Point or None
        The best solution found so far for each site; None before the first round.
    n_site_levels : ndarray of int, shape (m,)
        Number of non-reference levels of each site, which is its number of rows in a solution.
    """

    def __init__(self, engine: Any, rows: StoredSample, layout: Layout, workers: int):
        self.engine = engine
        self.rows = rows
        self.layout = layout
        self.workers = workers
        self.passes = 0
        self.n_site_levels = np.diff(layout.start)
        self.key = (engine.precision, layout.n_levels.tobytes(), *_term_key(layout))
        self.moments = site_moments(rows, layout, engine.prior_count, workers)
        self.point: _Point | None = None
        self._draw(sample_size(layout))  # sets `sample`, `problem` and `solve`

    def fit(self, lambda_: Any, lambdah: float, theta: np.ndarray, itmax: int) -> Sites:
        """Minimise the objectives of all sites from `theta`, in place.

        `lambda_` is the penalty on couplings, or a tuple of penalties for the orders 2, 3, ..., and
        `lambdah` is the penalty on fields. `itmax` is the maximum number of iterations in all
        rounds. Later fits with different penalties start from the best solution of the previous
        fit. Each round proposes a solution, which is accepted for the sites where it reduces the
        gradient norm over all rows. The iteration for a site stops when the tolerance is reached,
        when further rounds do not reduce the norm, or after `itmax` iterations.
        """
        # FINEST is the smallest tolerance, FLOOR (below) a gradient norm near rounding error, for
        # each precision
        m = self.layout.m
        tolerance = max(self.engine.tolerance, FINEST[self.engine.precision])
        # penalties (1 + D,) of the columns
        penalty = np.append(lambdah, penalties(self.layout, lambda_))
        # n_slow: number of consecutive slow rounds of each site
        sites = Sites(m)
        n_slow = np.zeros(m, dtype=int)
        n_iter = np.zeros(m, dtype=np.int32)
        norm = (
            np.full(m, np.inf) if self.point is None else self._gradient_norms(self.point, penalty)
        )
        # aim_ratio: target ratio of the gradient norms after and before the next round
        is_done = norm <= tolerance
        aim_ratio = np.full(m, LEAST_RATIO)
        pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for _ in range(MAX_ROUNDS):
            is_stalled = n_slow >= STALL_ROUNDS
            # a site that stalls near rounding error, or when the sample contains all rows, cannot
            # improve
            is_done |= is_stalled & (
                (norm <= FLOOR[self.engine.precision]) | (len(self.sample.codes) == self.rows.n)
            )
            is_done |= n_iter >= itmax
            if is_done.all():
                break
            if (is_stalled & ~is_done).any():
                self._enlarge(int(np.argmax(np.where(is_done, -1.0, norm))), norm)
                n_slow[:] = 0
                pairs = []
            # gradient norm of the sample's objective at which each site's fit ends; immediately if
            # it is done
            target_norm = (
                np.full(m, FIRST_NORM)
                if self.point is None
                else np.where(is_done, np.inf, aim_ratio * norm)
            )
            # 0.5: the other half of the tolerance is left for the error of the sample
            solve = partial(
                self.solve,
                self.engine,
                self.sample,
                self.layout,
                lambda_,
                lambdah,
                sites=sites,
                tolerance=np.maximum(target_norm, 0.5 * tolerance),
                workers=self.workers,
            )
            trial = self._step(solve, theta, penalty, pairs)
            n_iter += np.where(is_done, 0, sites.n_iter).astype(np.int32)
            new_point = self._evaluate(trial, ~is_done)
            new_norm = self._gradient_norms(new_point, penalty)
            if self.point is not None:
                step = new_point.theta - self.point.theta
                change = new_point.gradient - self.point.gradient + penalty * step
                curvature = self._sum_by_site(step * change)
                # otherwise the step is zero or a rounding error, and the site skips this pair
                is_convex = curvature > 0.0
                inverse = np.where(is_convex, 1.0 / np.where(is_convex, curvature, 1.0), 0.0)
                pairs = [*pairs[1 - PAIRS :], (step, change, inverse)]  # the last PAIRS ones
            aim_ratio = np.clip(
                TRUST * np.where(np.isfinite(norm), new_norm / norm, 0.0),
                LEAST_RATIO,
                LARGEST_RATIO,
            )
            is_better = ~is_done & (new_norm < norm)
            n_slow = np.where(is_done | (new_norm <= SLOW_RATIO * norm), 0, n_slow + 1)
            if self.point is None:
                self.point = new_point
            else:
                self.point.take(new_point, is_better, np.repeat(is_better, self.n_site_levels))
            norm = np.where(is_better, new_norm, norm)
            is_done |= norm <= tolerance
        assert self.point is not None  # noqa: S101  # a first round took place
        theta[:] = self.point.theta
        sites.norm = norm
        sites.n_iter = n_iter
        sites.value = self.point.value + 0.5 * self._sum_by_site(theta**2 * penalty)
        sites.status[:] = np.where(
            norm <= max(tolerance, FLOOR[self.engine.precision]), CONVERGED, STUCK
        )
        return sites

    def normaliser(self, theta: np.ndarray) -> Callable[[bool], float]:
        """Return a function ``normaliser(half)`` that computes eq. (31) over all rows.

        With ``half=True``, terms of k predictors in eq. (31) are multiplied by 1/k, which requires
        a pass over all rows. `theta` is the solution of the last fit.
        """
        assert self.point is not None  # noqa: S101  # there was a fit
        log_norm_sum = float(self.point.log_norm.sum())

        def normaliser(half: bool) -> float:  # ln Z by eq. (31)
            if not half:
                return log_norm_sum
            return (
                self.rows.summed(self._stage(_block_normaliser, theta), self.workers)
                / self.rows.total
            )

        return normaliser

    def state(self) -> dict[str, np.ndarray]:
        """Return the numbers of rows, sampled rows, passes and cluster threads, for the summary."""
        # 0 without a cluster
        numbers = [self.rows.n, len(self.sample.codes), self.passes, self.rows.cluster_threads]
        return {"streamed": np.array(numbers)}

    def _stage(self, function: Callable, *arguments: object) -> Staged:
        """Return a function that prepares a block and evaluates `function` on it.

        `function` is called as ``function(layout, *arguments, problem, block)``, where `problem` is
        the block in the kernel's format.
        """
        prepare = partial(_prepare_block, self.layout, self.engine.precision)
        return Staged(self.key, prepare, partial(function, self.layout, *arguments))

    def _sum_by_site(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (m,) of `values` (layout.D, 1 + D) over the parameters of each site."""
        row_sums = np.append(values.sum(axis=1), 0.0)  # one extra, for a start after the last row
        return np.where(
            self.n_site_levels > 0, np.add.reduceat(row_sums, self.layout.start[:-1]), 0.0
        )

    def _gradient_norms(self, point: _Point, penalty: np.ndarray) -> np.ndarray:
        """Return the norm (m,) of each site's penalised gradient at a point.

        `penalty` (1 + D,) contains the penalty of each column.
        """
        return np.sqrt(self._sum_by_site((point.gradient + penalty * point.theta) ** 2))

    def _evaluate(self, theta: np.ndarray, sites: np.ndarray) -> _Point:
        """Return `theta` and its objectives over all rows, computed in one pass.

        Only the sites in the mask `sites` (m,) are evaluated.
        """
        self.passes += 1
        # the kernel evaluates whole tasks: task t has the sites order[t * lanes : (t + 1) * lanes]
        tasks = np.unique(np.flatnonzero(sites[self.problem.order]) // self.problem.lanes).tolist()
        measure = self._stage(_block_objective, theta, tasks)
        log_norm, gradient = (
            sums / self.rows.total for sums in self.rows.summed(measure, self.workers)
        )
        # a site's objective is its log normaliser minus the sum of its parameters times their
        # moments
        return _Point(
            theta,
            gradient - self.moments,
            log_norm,
            log_norm - self._sum_by_site(theta * self.moments),
        )

    def _step(self, solve: Any, theta: np.ndarray, penalty: np.ndarray, pairs: list) -> np.ndarray:
        """Return the next solution to evaluate, by an L-BFGS step based on the fit to the sample.

        `solve` fits the sample, and `penalty` (1 + D,) contains the penalty of each column. `pairs`
        contains steps and changes in the penalised gradient, both (layout.D, 1 + D), and the
        inverses (m,) of their inner products, oldest first. In the first round, the result is the
        minimum of the sample's objective, starting from `theta`. If q is the penalised gradient, H0
        is the sample's inverse Hessian and ``rho = 1 / step . change``, the first loop is ``a = rho
        step . q, q -= a change`` over pairs from the last to the first. Then ``d = -H0 q``, and the
        second loop is ``d -= (a + rho change . d) step`` from the first pair to the last. All
        products are computed site by site.
        """
        if self.point is None:
            trial = theta.copy()
            solve(site_theta=trial)
            return trial
        # `factors` contains a. Between the loops, the sample's objective is minimised with a linear
        # term that makes q its gradient, which is approximately a step by -H0 q.
        point = self.point
        factors = []
        q = point.gradient + penalty * point.theta
        for step, change, inverse in reversed(pairs):
            factors.append(inverse * self._sum_by_site(step * q))
            q -= np.repeat(factors[-1], self.n_site_levels)[:, None] * change
        # [1] is the gradient; 0.0, 0.0: no penalties, which are added for each column
        sample_gradient = self.problem.objective(point.theta, 0.0, 0.0)[1] + penalty * point.theta
        trial = point.theta.copy()
        # `linear` is subtracted from gradients, so that q remains here
        solve(site_theta=trial, linear=sample_gradient - q)
        trial -= point.theta  # d
        for (step, change, inverse), factor in zip(pairs, reversed(factors), strict=True):
            second_factor = factor + inverse * self._sum_by_site(change * trial)
            trial -= np.repeat(second_factor, self.n_site_levels)[:, None] * step
        return trial + point.theta

    def _draw(self, size: int) -> None:
        """Draw a sample of `size` rows (all rows if there are few) and prepare its solver."""
        takes_all = few_enough(self.rows.n, self.layout) or 2 * size >= self.rows.n
        rng = np.random.default_rng(0)  # a fixed seed makes fits reproducible
        rare = None if takes_all else self.rows.rare_levels(size, self.layout.n_levels)
        heavy = np.inf if takes_all else self.rows.total / size
        drawn = self.rows.draw(self.rows.n if takes_all else size, rng, rare, heavy)
        self.sample = Sample(regressors(self.layout).codes(drawn.codes), drawn.weights)
        self.problem = prepare_problem(
            self.sample, self.layout, self.engine.precision, self.engine.prior_count
        )
        self.solve = make_lbfgs_solver(self.problem, self.engine.precision)

    def _enlarge(self, predictor: int, norm: np.ndarray) -> None:
        """Draw a larger sample, or raise NoProgress if it does not fit into memory."""
        size = SAMPLE_GROWTH * len(self.sample.codes)
        needed = self.engine.memory(min(size, self.rows.n), self.layout)
        if needed > MEMORY_SHARE * available_memory():
            raise NoProgress(predictor, float(norm[predictor]), len(self.sample.codes), self.rows.n)
        self._draw(size)


def site_moments(rows: Rows, layout: Layout, prior_count: float, workers: int = 1) -> np.ndarray:
    """Return the means (layout.D, 1 + D) of products of each site's levels and the columns.

    The columns include the constant. The means are the derivatives of the log numerators of the
    conditional distributions with respect to theta. With a `prior_count`, the observed levels of a
    site are shifted towards equal proportions. Entries are 0 for columns that are not regressors of
    the site.
    """
    regs = regressors(layout)
    if regs.D == layout.D:
        counts = pair_counts(rows, layout, workers) / rows.total
    else:
        name = ("joint levels", *_term_key(layout))
        counts = rows.sums(name, partial(_block_pairs, layout), workers) / rows.total
    # means of the constant and of all columns, (1 + D,)
    means = np.append(1.0, counts.diagonal())
    prior_share = prior_count / (rows.total + prior_count)
    out = np.zeros((layout.D, 1 + regs.D))
    # regressors of site i: 0 is the constant, the others are 1 + column
    for i, columns in enumerate(regs.columns):
        levels = np.arange(layout.start[i], layout.start[i + 1])
        # for each level, its mean (for the constant) followed by the means of its products with all
        # columns
        moments = np.column_stack([means[1 + levels], counts[levels]])[:, columns]
        out[np.ix_(levels, columns)] = moments + prior_share * (
            means[columns] / layout.n_levels[i] - moments
        )
    return out


def _term_key(layout: Layout) -> tuple[bytes, ...]:
    """Return a key that identifies the terms of the layout; it is empty if all pairs interact."""
    return () if layout.complete else tuple(terms.tobytes() for terms in layout.terms)


def _block_pairs(layout: Layout, block: Sample) -> np.ndarray:
    """Return the weighted counts (D, D) of pairs of `Regressors` columns in a block."""
    regs = regressors(layout)
    return pair_counts(Sample(regs.codes(block.codes), block.weights), regs)


def _prepare_block(layout: Layout, precision: str, block: Sample) -> PseudoProblem:
    """Return a block in the kernel's format, without the moments; see `site_moments`."""
    return prepare_problem(
        Sample(regressors(layout).codes(block.codes), block.weights),
        layout,
        precision,
        count_moments=False,
    )


def _block_objective(
    layout: Layout, theta: np.ndarray, tasks: list, problem: PseudoProblem, block: Sample
) -> list:
    """Return the sums over a block of the log normalisers (m,) and their gradients.

    The gradients have shape (layout.D, 1 + D). Only the sites in the kernel's `tasks` are
    evaluated.
    """
    # objectives and gradients are means, here of log normalisers, as the block's problem has no
    # moments; 0.0, 0.0: no penalties
    return [block.total * mean for mean in problem.objective(theta, 0.0, 0.0, tasks=tasks)]


def _block_normaliser(
    layout: Layout, theta: np.ndarray, problem: PseudoProblem, block: Sample
) -> float:
    """Return the sum of the normaliser in eq. (31) over the rows of a block, with factor 1/k."""
    return block.total * log_normaliser(problem, layout, theta, half=True)
