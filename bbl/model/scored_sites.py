"""Newton's method for sites with couplings that are linear in scores (see `bbl.model.scores`).

All sites are updated simultaneously, so each step requires a single pass over the rows, in memory
or in a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from bbl.model.gauge import penalty_metric
from bbl.model.layout import Layout
from bbl.model.moments import usable_rows, usable_weight
from bbl.model.regressors import penalties, regressors
from bbl.model.scores import SiteScores, site_scores_of
from bbl.model.site_hessians import solver
from bbl.parallel import serial_blas
from bbl.rows.sample import Rows, Sample

__all__ = [
    "ScoredFit",
    "ScoredPenalty",
    "fit_scored_sites",
    "scored_hessians",
    "scored_memory",
]

BLOCK_ROWS = 8192  # rows per block in memory
SUFFICIENT_DECREASE = 1e-4  # smallest decrease, as a fraction of the slope's (Armijo)
ROUNDING = 1e-14  # rounding error of an objective, relative to its size
SHORTEST_STEP = 2.0**-30  # fraction of a Newton step at which halving ends
# a parameter that changes by more in the Newton step at the end has no finite optimum
DIVERGING_STEP = 1e-3


@dataclass(frozen=True)
class ScoredPenalty:
    """Penalty and prior that are added to the mean negative log-likelihood of a site.

    Attributes
    ----------
    lambda_, lambdah : float, or tuple of float for orders 2, 3, ..., and float
        L2 penalties on couplings and fields. They apply to all parameters of the tables, as in a
        model without scores.
    prior_count : float
        Pseudocount, as in `PseudoLikelihood`.
    zero_sum : bool
        Whether the penalties apply in the zero-sum gauge.
    """

    lambda_: float | tuple[float, ...] = 0.0
    lambdah: float = 0.0
    prior_count: float = 0.0
    zero_sum: bool = False

    @property
    def is_zero(self) -> bool:
        """Whether couplings have no penalty and the prior count is zero."""
        return not np.any(self.lambda_) and not self.prior_count

    def matrices(self, layout: Layout, sites: list[int]) -> list[np.ndarray]:
        """Return the matrix A (r, r) of each site's penalty ``x' A x / 2``."""
        scores = site_scores_of(layout)
        columns = regressors(layout).columns
        metric = (
            penalty_metric(layout, float(np.max(self.lambda_)), self.lambdah)
            if self.zero_sum
            else np.append(self.lambdah, penalties(layout, self.lambda_))
        )
        out = []
        for i in sites:
            L = int(layout.n_levels[i])
            if self.zero_sum:
                full = np.kron(np.eye(L - 1) - 1.0 / L, metric[np.ix_(columns[i], columns[i])])
                out.append(scores.maps[i].project(full))
            else:
                out.append(np.diag(scores.maps[i].ridge(np.tile(metric[columns[i]], L - 1))))
        return out


@dataclass(frozen=True)
class ScoredFit:
    """Fit of all m sites. Arrays have shape (m,) unless stated otherwise.

    Attributes
    ----------
    site_theta : ndarray, shape (layout.D, 1 + D)
        The site solution.
    value, norm : ndarray
        Minimum of the objective, and the norm of its gradient.
    n_iter : ndarray of int32
    converged : ndarray of bool
        Whether the norm is at most the tolerance, or cannot decrease further because of rounding.
    determined : ndarray of bool, shape (layout.D, 1 + D)
        Whether each parameter has a finite and unique optimum; False for sites that were not
        fitted.
    """

    site_theta: np.ndarray
    value: np.ndarray
    norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    determined: np.ndarray


@dataclass
class _Site:
    """State of Newton's method at one site: the last accepted point and the next step."""

    free: np.ndarray
    value: float = np.inf
    gradient: np.ndarray = field(default_factory=lambda: np.zeros(0))
    hessian: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    step: np.ndarray | None = None
    slope: float = 0.0
    length: float = 1.0
    n_iter: int = 0
    norm: float = np.inf
    is_done: bool = False
    converged: bool = False

    @property
    def candidate(self) -> np.ndarray:
        """The point to evaluate next."""
        return self.free if self.step is None else self.free + self.length * self.step


def fit_scored_sites(
    rows: Rows,
    layout: Layout,
    start: np.ndarray,
    penalty: ScoredPenalty,
    *,
    tolerance: float,
    itmax: int,
    floor: float,
    sites: np.ndarray | None = None,
    workers: int = 1,
) -> ScoredFit:
    """Fit sites to their usable rows by Newton's method with step halving.

    Parameters
    ----------
    rows : Sample or StoredSample
    layout : Layout
        A layout with `scores`.
    start : ndarray, shape (layout.D, 1 + D)
        Initial site solution, which is projected to the nearest solution that is linear in the
        scores.
    penalty : ScoredPenalty
    tolerance : float
        Largest gradient norm that counts as converged.
    itmax : int
        Maximum number of steps per site.
    floor : float
        Gradient norm close to rounding error, below which a site that cannot improve is considered
        converged.
    sites : ndarray of int, optional
        Sites to fit; by default, all predictors with more than one level.
    workers : int, default 1
        Number of threads for reading rows in a file.
    """
    scores = site_scores_of(layout)
    columns = regressors(layout).columns
    fitted = np.flatnonzero(layout.n_levels > 1) if sites is None else np.asarray(sites)
    fitted_sites = [int(i) for i in fitted]
    cells = {
        i: np.ix_(np.arange(layout.start[i], layout.start[i + 1]), columns[i]) for i in fitted_sites
    }
    matrices = dict(zip(fitted_sites, penalty.matrices(layout, fitted_sites), strict=True))
    states = {i: _Site(scores.maps[i].restrict(start[cells[i]].ravel())) for i in fitted_sites}
    totals = usable_weight(rows, layout)
    with serial_blas():
        while active := [i for i in fitted_sites if not states[i].is_done]:
            candidates = {i: states[i].candidate for i in active}
            sums = _evaluate(rows, layout, candidates, penalty.prior_count, totals, workers)
            for i in active:
                _advance(states[i], sums[i], matrices[i], tolerance, itmax, floor)
    site_theta = start.copy()
    determined = np.zeros(start.shape, dtype=bool)
    value, norm = np.zeros((2, layout.m))
    n_iter = np.zeros(layout.m, dtype=np.int32)
    converged = np.ones(layout.m, dtype=bool)
    for i, site in states.items():
        site_theta[cells[i]] = scores.maps[i].expand(site.free).reshape(cells[i][0].size, -1)
        value[i] = site.value
        norm[i] = site.norm
        n_iter[i] = site.n_iter
        converged[i] = site.converged
        solve, is_informed, _ = solver(site.hessian)
        is_determined = is_informed & (np.abs(solve(site.gradient)) < DIVERGING_STEP)
        determined[cells[i]] = is_determined[scores.maps[i].index].reshape(cells[i][0].size, -1)
    return ScoredFit(site_theta, value, norm, n_iter, converged, determined)


def _advance(
    site: _Site,
    sums: tuple[float, np.ndarray, np.ndarray],
    matrix: np.ndarray,
    tolerance: float,
    itmax: int,
    floor: float,
) -> None:
    """Accept or shorten the step of a site, given the sums at the candidate, and compute the next
    step.
    """
    value, gradient, hessian = sums
    candidate = site.candidate
    pull = matrix @ candidate
    value += 0.5 * float(candidate @ pull)
    if site.step is not None:
        error = ROUNDING * max(abs(site.value), float(np.abs(site.free).max(initial=0.0)), 1.0)
        bound = site.value + SUFFICIENT_DECREASE * site.length * site.slope + error
        if not value <= bound:
            site.length *= 0.5
            if site.length < SHORTEST_STEP:
                site.is_done = True
                site.converged = site.norm <= floor
            return
    site.free = candidate
    site.value = value
    site.gradient = gradient + pull
    site.hessian = hessian + matrix
    site.norm = float(np.linalg.norm(site.gradient))
    site.converged = site.norm <= tolerance
    site.is_done = site.converged or site.n_iter >= itmax
    if not site.is_done:
        site.step = -solver(site.hessian)[0](site.gradient)
        site.slope = float(site.gradient @ site.step)
        site.length = 1.0
        site.n_iter += 1


def scored_memory(layout: Layout) -> float:
    """Return the memory in bytes that a fit requires: three Hessians per site, and a block of
    rows.
    """
    scores = site_scores_of(layout)
    hessians = sum(float(site_map.n) ** 2 for site_map in scores.maps)
    most_levels = float(layout.n_levels.max(initial=1))
    # features of all rows in a block, of one site, and a few arrays of its levels
    block = BLOCK_ROWS * (2.0 * float(scores.start[-1]) + 8.0 * most_levels)
    return 24.0 * hessians + 8.0 * block


def scored_hessians(
    rows: Rows, layout: Layout, site_theta: np.ndarray, sites: list[int]
) -> dict[int, np.ndarray]:
    """Return the mean Hessian of each site with respect to its free parameters, shape (r, r)."""
    scores = site_scores_of(layout)
    columns = regressors(layout).columns
    free = {
        i: scores.maps[i].restrict(
            site_theta[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel()
        )
        for i in sites
    }
    with serial_blas():
        sums = _evaluate(rows, layout, free, 0.0, usable_weight(rows, layout), 1)
    return {i: hessian for i, (_, _, hessian) in sums.items()}


def _evaluate(
    rows: Rows,
    layout: Layout,
    free: dict[int, np.ndarray],
    prior_count: float,
    totals: np.ndarray,
    workers: int,
) -> dict[int, tuple[float, np.ndarray, np.ndarray]]:
    """Return the mean negative log-likelihood, its gradient and its Hessian at each site.

    `free` contains the free parameters of the sites to evaluate, and `totals` (m,) contains the
    weights of their usable rows.
    """
    prior_share = prior_count / (totals + prior_count)
    block_sums = partial(_block_sums, layout, free, prior_share)
    if rows.in_memory:
        sums: list[np.ndarray] = []
        for block in rows.blocks(BLOCK_ROWS):
            terms = block_sums(block)
            if not sums:
                sums = terms
                continue
            for total, term in zip(sums, terms, strict=True):
                total += term
    else:
        sums = cast(Any, rows).summed(block_sums, workers)
    out = {}
    for k, i in enumerate(free):
        packed = sums[k] / totals[i]
        r = len(free[i])
        out[i] = float(packed[0]), packed[1 : 1 + r], packed[1 + r :].reshape(r, r)
    return out


def _block_sums(
    layout: Layout, free: dict[int, np.ndarray], prior_share: np.ndarray, block: Sample
) -> list[np.ndarray]:
    """Return an array with the value, gradient (r,) and Hessian (r * r,) of each site, summed over
    a block.

    `prior_share` (m,) contains the weight of uniform level proportions in the targets of each site.
    """
    scores = site_scores_of(layout)
    Z = scores.design(regressors(layout).codes(block.codes))
    usable = usable_rows(block, layout)
    return [
        _site_sums(
            scores,
            i,
            parameters,
            Z,
            block.codes[:, i].astype(np.intp),
            block.weights * usable[:, i],
            float(prior_share[i]),
        )
        for i, parameters in free.items()
    ]


def _site_sums(
    scores: SiteScores,
    i: int,
    free: np.ndarray,
    all_features: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    prior_share: float,
) -> np.ndarray:
    """Return the value, gradient and Hessian of a site, summed over rows, in one array.

    `all_features` (F, n) contains the features of the rows, and `codes` (n,) contains their levels
    at the site.
    """
    C = scores.contrasts[i]  # (q, d)
    q, d = C.shape
    Z = all_features[scores.features[i]]  # (f, n)
    f = len(Z)
    n = len(codes)
    W = free[q:].reshape(d, f)
    log_odds = C @ (W @ Z)  # (q, n), against the reference level
    log_odds += free[:q, None]
    largest = np.maximum(log_odds.max(axis=0), 0.0)
    P = np.exp(log_odds - largest)
    reference = np.exp(-largest)
    total = P.sum(axis=0) + reference
    P /= total
    log_norm = largest + np.log(total)
    # targets: indicators of the levels, mixed with equal proportions
    target = np.zeros((q + 1, n))
    target[codes, np.arange(n)] = 1.0 - prior_share
    target += prior_share / (q + 1)
    target = target[1:]
    out = np.empty(1 + len(free) + len(free) ** 2)
    out[0] = weights @ (log_norm - np.einsum("an,an->n", target, log_odds))
    residual = (P - target) * weights
    gradient = out[1 : 1 + len(free)]
    gradient[:q] = residual.sum(axis=1)
    gradient[q:] = ((C.T @ residual) @ Z.T).ravel()
    H = out[1 + len(free) :].reshape(len(free), len(free))
    weighted = P * weights
    H[:q, :q] = -(weighted @ P.T)
    H.flat[: q * len(free) : len(free) + 1] += weighted.sum(axis=1)
    mean = C.T @ P  # (d, n)
    for k in range(d):
        rows_k = slice(q + k * f, q + (k + 1) * f)
        # covariance of each level with the site's feature k
        block = (weighted * (C[:, k, None] - mean[k])) @ Z.T
        H[:q, rows_k] = block
        H[rows_k, :q] = block.T
        for j in range(k + 1):
            curvature = (C[:, k] * C[:, j]) @ weighted - weights * mean[k] * mean[j]
            block = (Z * curvature) @ Z.T
            rows_j = slice(q + j * f, q + (j + 1) * f)
            H[rows_k, rows_j] = block
            H[rows_j, rows_k] = block.T
    return out
