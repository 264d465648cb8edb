"""Posterior of one group's coefficients in simplex coding: log densities, modes, chains that draw from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bbl._ext.posterior.posterior import Target
from bbl.model.conditional import conditionals
from bbl.model.gauge import contrasts, simplex_gradient, to_reference
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.pairwise import to_matrix
from bbl.parallel import run_tasks, serial_blas, stop_flag
from bbl.rows.sample import Sample

__all__ = ["Adjustment", "Chain", "Problem", "adjustment", "coefficient_groups", "draw_chains", "mode", "simplex_sums"]

WINDOWS = (0.1, 0.2, 0.4, 0.8, 0.9)  # of the warm-up: where the metric is estimated anew
START_STEP = 0.5  # step of a whitened NUTS chain before tuning
START_SCALE = 1.7  # scale of exchange proposals before tuning, times the square root of the dimension
TARGET_ACCEPTANCE = 0.8  # mean acceptance that steps are tuned to
HORSESHOE_ACCEPTANCE = 0.95  # the same under a horseshoe, whose funnels need short steps
PROPOSALS = 5.0  # of a draw by exchange with exact rows, for each coefficient
SLOW = 5  # proposals of a draw where rows are drawn by sweeps
ROWS = 1024


@dataclass(frozen=True)
class Adjustment:
    """The curvature adjustment of a log pseudo-likelihood (Ribatet, Cooley & Davison 2012).

    The log pseudo-likelihood at ``centre + matrix (phi - centre)``, plus ``tilt' (phi - centre)``, stands in for the
    log-likelihood at phi: at the centre it has the slope of the log pseudo-likelihood, and Godambe's information for
    its curvature.
    """

    centre: np.ndarray
    matrix: np.ndarray
    tilt: np.ndarray

    def curvature(self, hessian: np.ndarray) -> np.ndarray:
        """Return the curvature that stands in for the `hessian` at the centre."""
        return self.matrix.T @ hessian @ self.matrix


@dataclass(frozen=True)
class Problem:
    """The posterior of one group: its rows, a layout and a prior.

    Attributes
    ----------
    sample : Sample
        Distinct rows, none of them with missing values.
    layout : Layout
    tau : float
        Standard deviation of the normal prior, or the slab of the horseshoe; of coefficients in simplex coding.
    horseshoe : bool
    pseudo : bool
        Whether the pseudo-likelihood takes the place of the likelihood, whose states are then not enumerated.
    adjust : Adjustment or None
        What is done to the pseudo-likelihood.
    enumerate : bool
        Whether tables over all states are at hand; the likelihood needs them.
    """

    sample: Sample
    layout: Layout
    tau: float
    horseshoe: bool = False
    pseudo: bool = False
    adjust: Adjustment | None = None
    enumerate: bool = True

    def target(self) -> Target:
        """Return the log posterior density. It has scratch of its own: each thread needs another."""
        layout, rows = self.layout, self.sample
        group, family = coefficient_groups(layout)
        levels = [int(L) for L in layout.n_levels]
        V = [np.column_stack([np.ones(L), contrasts(L)]).ravel() for L in levels]
        row_arguments: dict = {}
        if self.pseudo:
            row_arguments = {"codes": np.ascontiguousarray(rows.codes, dtype=np.int32), "weights": rows.weights}
        if self.adjust is not None:
            row_arguments |= {"centre": self.adjust.centre, "adjust": self.adjust.matrix, "tilt": self.adjust.tilt}
        return Target(
            layout.n_levels,
            layout.start,
            np.ascontiguousarray(layout.pairs),
            layout.pair_start,
            np.concatenate(V),
            group,
            family,
            rows.total,
            simplex_sums(rows, layout),
            float(self.tau),
            self.horseshoe,
            self.enumerate,
            **row_arguments,
        )


def coefficient_groups(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the group (d,) of each coefficient, and of each group whether it is of fields (0) or couplings (1).

    The coefficients of a predictor are a group, and those of a pair; what has none is no group.
    """
    sizes = np.concatenate([np.diff(layout.start), np.diff(layout.pair_start)])
    family = np.repeat([0, 1], [layout.m, len(layout.pairs)])[sizes > 0]
    sizes = sizes[sizes > 0]
    return np.repeat(np.arange(len(sizes)), sizes).astype(np.int32), family.astype(np.int32)


def simplex_sums(rows: Sample, layout: Layout) -> np.ndarray:
    """Return the weighted sums (d,) over rows of the products of contrasts that the coefficients multiply."""
    out = np.empty(layout.size)
    parts = [contrasts(int(L))[rows.codes[:, i]] for i, L in enumerate(layout.n_levels)]
    for i, C in enumerate(parts):
        layout.table(out, i)[:] = rows.weights @ C
    for i, j in layout.pairs:
        layout.table(out, int(i), int(j))[:] = (parts[i] * rows.weights[:, None]).T @ parts[j]
    return out


def mode(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior mode (d,) under a normal prior, and the Hessian (d, d) of minus the log density there."""
    from scipy.optimize import minimize

    target = replace(problem, horseshoe=False).target()
    n = max(problem.sample.total, 1.0)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        gradient = np.empty(len(x))
        value = target.value(np.ascontiguousarray(x), gradient)
        return -value / n, -gradient / n

    mode = minimize(objective, np.zeros(target.size), jac=True, method="L-BFGS-B", options={"maxiter": 1000}).x
    hessian = n * _hessian(objective, mode)
    values, vectors = np.linalg.eigh(hessian)
    least = 1.0 / problem.tau**2  # the prior's share; only differences of large numbers can give less
    if values[0] < 0.5 * least:
        hessian = (vectors * np.maximum(values, least)) @ vectors.T
    return mode, hessian


def _hessian(objective: Callable, x: np.ndarray) -> np.ndarray:
    """Return the Hessian by differences of the gradient."""
    step, H = 1e-4, np.empty((len(x), len(x)))
    for k in range(len(x)):
        moved = x.copy()
        moved[k] = x[k] + step
        H[k] = objective(moved)[1]
        moved[k] = x[k] - step
        H[k] = (H[k] - objective(moved)[1]) / (2.0 * step)
    return 0.5 * (H + H.T)


def adjustment(problem: Problem, centre: np.ndarray, hessian: np.ndarray) -> Adjustment:
    """Return the curvature adjustment of the pseudo-likelihood at the mode `centre`, with the `hessian` there.

    With H the Hessian and K the variance of the score, both with the prior's share in them, the curvature becomes
    ``H K^-1 H``. In no direction does it become sharper than that of the pseudo-likelihood itself.
    """
    layout, rows, precision = problem.layout, problem.sample, np.eye(len(centre)) / problem.tau**2
    h, J = to_matrix(layout, to_reference(layout, centre))
    K, slope = np.zeros_like(hessian), np.zeros(len(centre))
    with serial_blas():
        for chunk in rows.blocks(ROWS):
            X = one_hot(chunk.codes, layout)
            residual = X - conditionals(X, layout, h, J)[1]
            score = np.empty((chunk.n, layout.size))
            score[:, : layout.D] = residual
            for i, j in layout.pairs:
                columns_i, columns_j = layout.columns([i]), layout.columns([j])
                cells = (
                    residual[:, columns_i, None] * X[:, None, columns_j]
                    + X[:, columns_i, None] * residual[:, None, columns_j]
                )
                layout.table(score, int(i), int(j))[:] = cells
            score = simplex_gradient(layout, score)
            K += (score * chunk.weights[:, None]).T @ score
            slope += chunk.weights @ score
        L = np.linalg.cholesky(hessian)
        inner = np.linalg.solve(L, np.linalg.solve(L, K + precision).T)
        values, vectors = np.linalg.eigh(0.5 * (inner + inner.T))
        root = (vectors / np.sqrt(np.maximum(values, 1.0))) @ vectors.T
        matrix = np.linalg.solve(L.T, root @ L.T)
    return Adjustment(centre, matrix, slope - matrix.T @ slope)


@dataclass(frozen=True)
class Chain:
    """One chain after its warm-up.

    Attributes
    ----------
    draws : ndarray, shape (draws, d)
        Coefficients in simplex coding.
    accepted : float
        Mean probability of acceptance.
    diverged : int
        Transitions in which the trajectory came apart, where there are trajectories.
    """

    draws: np.ndarray
    accepted: float
    diverged: int


def draw_chains(
    problem: Problem,
    sampler: str,
    centre: np.ndarray,
    hessian: np.ndarray,
    counts: tuple[int, int, int],
    rng: np.random.Generator,
    sweeps: int = 0,
    workers: int = 1,
    progress: Callable | None = None,
) -> list[Chain]:
    """Draw from the posterior by independent chains.

    Parameters
    ----------
    problem : Problem
    sampler : {"nuts", "exchange"}
    centre, hessian : ndarray, shape (d,) and (d, d)
        Of a normal approximation: where chains start, and how they are whitened.
    counts : (chains, warmup, draws)
    rng : Generator
        Each chain has a stream of its own from it.
    sweeps : int, default 0
        Of the exchange algorithm: Gibbs sweeps from the data for each set of drawn rows; 0 for exact rows.
    workers : int, default 1
    progress : callable, optional
        Is told of each share of a chain that is done: of all, they sum to one.
    """
    n_chains, warmup, draws = counts
    with serial_blas():
        spread = _inverse_root(hessian)
    run = _nuts_chain if sampler == "nuts" else _exchange_chain
    report_share = None if progress is None else lambda share: progress(share / n_chains)
    tasks = [
        (problem, centre, spread, hessian, warmup, draws, stream, sweeps, report_share)
        for stream in rng.spawn(n_chains)
    ]
    return run_tasks(run, tasks, min(workers, n_chains), shared=True)


def _inverse_root(hessian: np.ndarray) -> np.ndarray:
    """Return the lower triangle L with ``L L^T = hessian^-1``."""
    try:
        return np.ascontiguousarray(np.linalg.cholesky(np.linalg.inv(hessian)))
    except np.linalg.LinAlgError:  # weights of 1e9 beside a prior of 1: rounding makes the inverse indefinite
        values, vectors = np.linalg.eigh(hessian)
        triangle = np.asarray(np.linalg.qr((vectors / np.sqrt(values)).T, mode="r")).T
        return np.ascontiguousarray(triangle * np.sign(np.diag(triangle)))


def _start(problem: Problem, centre: np.ndarray, spread: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return where a chain starts: a draw from the normal approximation; scales of the horseshoe near their bulk."""
    phi = centre + spread @ rng.normal(size=len(centre))
    if not problem.horseshoe:
        return phi
    group, family = coefficient_groups(problem.layout)
    size = np.bincount(group, phi**2) / np.bincount(group)
    u = 0.5 * np.log(size + 1e-4) + 0.1 * rng.normal(size=len(family))
    return np.concatenate([phi, u, 0.5 * rng.normal(size=2) - 1.0])


def _windows(warmup: int) -> list[int]:
    """Return the lengths of the parts of a warm-up."""
    ends = sorted({0, *(int(share * warmup) for share in WINDOWS), warmup})
    return [b - a for a, b in zip(ends, ends[1:], strict=False)]


def _metric(points: np.ndarray) -> np.ndarray:
    """Return the lower triangle of the covariance of points, drawn a little to a multiple of the identity."""
    n = len(points)
    covariance = np.cov(points.T) * (n / (n + 5.0))
    covariance.flat[:: len(covariance) + 1] += 1e-3 * 5.0 / (n + 5.0)
    return np.ascontiguousarray(np.linalg.cholesky(covariance))


def _nuts_chain(problem, centre, spread, hessian, warmup, draws, rng, sweeps, progress) -> Chain:
    """Run a chain of the no-U-turn sampler; with the horseshoe its metric comes from the warm-up's windows."""
    target, stop = problem.target(), stop_flag()
    x, d = _start(problem, centre, spread, rng), problem.layout.size
    stream = rng.integers(1, 2**63, 4, dtype=np.uint64)
    step = START_STEP
    if problem.horseshoe:
        group, _ = coefficient_groups(problem.layout)
        scale = x[d : d + group.max() + 1] - 0.5 * np.log1p((np.exp(x[d : d + group.max() + 1]) / problem.tau) ** 2)
        x[:d] /= np.exp(scale)[group]
        spread, centre, step = np.eye(target.size), np.zeros(target.size), 0.1
    parts, aim = (_windows(warmup), HORSESHOE_ACCEPTANCE) if problem.horseshoe else ([warmup], TARGET_ACCEPTANCE)
    tuner = _tuner(step)
    for at, length in enumerate(parts):
        points = np.empty((length, target.size))
        target.nuts(centre, spread, x, tuner, aim, stream, stop, points)
        if 0 < at < len(parts) - 1 and length > 2 * target.size:
            spread, centre = _metric(points), points.mean(axis=0)
            tuner = _tuner(START_STEP)
        if progress is not None:
            progress(length / (warmup + draws))
    tuner[0], tuner[5] = tuner[1], 0.0
    points = np.empty((draws, target.size))
    accepted = target.nuts(centre, spread, x, tuner, 0.0, stream, stop, points)
    if progress is not None:
        progress(draws / (warmup + draws))
    return Chain(target.coefficients(points), accepted, int(tuner[5]))


def _tuner(step: float) -> np.ndarray:
    return np.array([np.log(step), np.log(step), 0.0, 0.0, np.log(10.0 * step), 0.0])


def _exchange_chain(problem, centre, spread, hessian, warmup, draws, rng, sweeps, progress) -> Chain:
    """Run a chain of the exchange algorithm."""
    target, stop, rows = replace(problem, enumerate=not sweeps).target(), stop_flag(), problem.sample
    x, d = _start(problem, centre, spread, rng), problem.layout.size
    stream = rng.integers(1, 2**63, 4, dtype=np.uint64)
    data = np.zeros((0, problem.layout.m), dtype=np.int32)
    if sweeps:
        data = np.repeat(np.ascontiguousarray(rows.codes, dtype=np.int32), rows.weights.astype(int), axis=0)
    information = np.ascontiguousarray(hessian - np.eye(d) / problem.tau**2)
    steps = SLOW if sweeps else max(int(PROPOSALS * d), 10)
    tuner = np.array([np.log(START_SCALE / np.sqrt(d)), 0.0])
    points = np.empty((warmup, target.size))
    target.exchange(information, x, tuner, True, steps, sweeps, data, stream, stop, points)
    if progress is not None:
        progress(warmup / (warmup + draws))
    points = np.empty((draws, target.size))
    accepted = target.exchange(information, x, tuner, False, steps, sweeps, data, stream, stop, points)
    if progress is not None:
        progress(draws / (warmup + draws))
    return Chain(np.ascontiguousarray(points[:, :d]), accepted, 0)
