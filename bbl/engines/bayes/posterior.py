"""The posterior of a group's d coefficients: its log density, its mode, and chains of draws."""

# A point of a chain, of length `size`, consists of the coefficients phi in simplex coding and,
# under a horseshoe prior, of the log scales of the groups of coefficients and two global log
# scales, of fields and of couplings. NUTS is the no-U-turn sampler.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bbl._ext.model import eigen
from bbl._ext.posterior.posterior import Target
from bbl.model.energy import conditionals
from bbl.model.gauge import contrasts, simplex_gradient, to_reference
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.model.regressors import to_matrix
from bbl.parallel import run_tasks, serial_blas, stop_flag
from bbl.rows.sample import Sample

__all__ = [
    "Adjustment",
    "Chain",
    "Problem",
    "adjustment",
    "coefficient_groups",
    "draw_chains",
    "mode",
    "simplex_sums",
]

# fractions of the warm-up after which the metric is re-estimated
WINDOWS = (0.1, 0.2, 0.4, 0.8, 0.9)
START_STEP = 0.5  # initial step of a whitened NUTS chain
# initial scale of exchange proposals, times the square root of the dimension
START_SCALE = 1.7
TARGET_ACCEPTANCE = 0.8  # target for the mean acceptance probability
HORSESHOE_ACCEPTANCE = 0.95  # the same under a horseshoe prior, whose funnels need short steps
# exchange proposals per draw and coefficient, if rows are drawn exactly
EXACT_PROPOSALS = 5.0
SWEEP_PROPOSALS = 5  # exchange proposals per draw, if rows are drawn by Gibbs sweeps
CHUNK = 1024  # rows whose scores are in memory at once


@dataclass(frozen=True)
class Adjustment:
    """The curvature adjustment of a log pseudo-likelihood (Ribatet, Cooley & Davison 2012).

    The log-likelihood at phi is replaced by the log pseudo-likelihood at ``centre + matrix (phi -
    centre)`` plus ``tilt' (phi - centre)``. At the centre, the result has the same gradient as the
    log pseudo-likelihood, and its curvature is the Godambe information.

    Attributes
    ----------
    centre : ndarray, shape (d,)
    matrix : ndarray, shape (d, d)
    tilt : ndarray, shape (d,)
    """

    centre: np.ndarray
    matrix: np.ndarray
    tilt: np.ndarray

    def curvature(self, hessian: np.ndarray) -> np.ndarray:
        """Return ``matrix' H matrix`` (d, d), the adjusted curvature at the centre.

        H is `hessian` in `adjustment`.
        """
        return self.matrix.T @ hessian @ self.matrix


@dataclass(frozen=True)
class Problem:
    """The posterior of one group: its rows, a layout and a prior.

    Attributes
    ----------
    sample : Sample
        The distinct rows, without missing values.
    layout : Layout
    tau : float
        Standard deviation of the normal prior, or of the slab of the horseshoe prior.
    horseshoe : bool
        Whether the prior is the horseshoe. If not, it is normal.
    pseudo : bool
        Whether to use the pseudo-likelihood instead of the likelihood.
    adjust : Adjustment or None
        Curvature adjustment of the pseudo-likelihood.
    enumerate : bool
        Whether the kernel builds tables of all states, which are required for the likelihood.
    """

    sample: Sample
    layout: Layout
    tau: float
    horseshoe: bool = False
    pseudo: bool = False
    adjust: Adjustment | None = None
    enumerate: bool = True

    def target(self) -> Target:
        """Return the log posterior density as a new kernel object.

        The object contains work arrays, so it must not be shared between threads.
        """
        layout = self.layout
        rows = self.sample
        group, kind = coefficient_groups(layout)
        # for each predictor a matrix (L, L), with a row for each level: a one, followed by its
        # contrasts
        coding_matrices = [
            np.column_stack([np.ones(L), contrasts(L)]).ravel() for L in map(int, layout.n_levels)
        ]
        godambe = self.adjust
        return Target(
            # the layout
            layout.n_levels,
            layout.start,
            np.ascontiguousarray(layout.pairs),
            layout.pair_start,
            np.concatenate(coding_matrices),
            # the groups of coefficients under a horseshoe prior
            group,
            kind,
            # the sufficient statistics
            rows.total,
            simplex_sums(rows, layout),
            # the prior, and whether to build tables of all states
            float(self.tau),
            self.horseshoe,
            self.enumerate,
            # the rows, for the pseudo-likelihood
            codes=np.ascontiguousarray(rows.codes, dtype=np.int32) if self.pseudo else None,
            weights=rows.weights if self.pseudo else None,
            # the curvature adjustment, whose matrix is called `adjust` in the kernel
            centre=None if godambe is None else godambe.centre,
            adjust=None if godambe is None else godambe.matrix,
            tilt=None if godambe is None else godambe.tilt,
        )


def coefficient_groups(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each coefficient, shape (d,), and the kind of each group, shape (G,).

    A group consists of the fields of a predictor (kind 0), or of the couplings of a pair (kind 1);
    predictors with a single level do not belong to a group.
    """
    sizes = np.concatenate([np.diff(layout.start), np.diff(layout.pair_start)])
    kind = np.repeat([0, 1], [layout.m, len(layout.pairs)])[sizes > 0]
    sizes = sizes[sizes > 0]
    return np.repeat(np.arange(len(sizes)), sizes).astype(np.int32), kind.astype(np.int32)


def simplex_sums(rows: Sample, layout: Layout) -> np.ndarray:
    """Return the sufficient statistics (d,) in the order of the layout.

    The statistics are weighted sums, over rows, of contrasts and of products of two contrasts.
    """
    out = np.empty(layout.size)
    # (n, L - 1) for each predictor
    coded = [contrasts(int(L))[rows.codes[:, i]] for i, L in enumerate(layout.n_levels)]
    for i, C in enumerate(coded):
        layout.table(out, i)[:] = rows.weights @ C
    for i, j in layout.pairs:
        layout.table(out, int(i), int(j))[:] = (coded[i] * rows.weights[:, None]).T @ coded[j]
    return out


def mode(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior mode (d,) and the negative Hessian (d, d) under a normal prior."""
    from scipy.optimize import minimize

    target = replace(problem, horseshoe=False).target()
    n = max(problem.sample.total, 1.0)  # number of observations, at least 1 to divide by it

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative log density per observation, and its gradient."""
        gradient = np.empty(len(x))
        # log density; writes its gradient to `gradient`
        value = target.value(np.ascontiguousarray(x), gradient)
        return -value / n, -gradient / n

    centre = minimize(
        objective, np.zeros(target.size), jac=True, method="L-BFGS-B", options={"maxiter": 1000}
    ).x
    hessian = n * _hessian(objective, centre)
    eigenvalues, eigenvectors = eigen.eigenvectors(hessian.copy())  # in increasing order
    prior_precision = 1.0 / problem.tau**2
    # the prior adds its precision to all eigenvalues, so an eigenvalue below half of it means more
    # than small errors in the finite differences of `_hessian`
    if eigenvalues[0] < 0.5 * prior_precision:
        hessian = (eigenvectors * np.maximum(eigenvalues, prior_precision)) @ eigenvectors.T
    return centre, hessian


def _hessian(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray
) -> np.ndarray:
    """Return the Hessian (d, d) at `x`, computed by central differences of the gradient.

    The gradient is the second result of `objective`.
    """
    step = 1e-4
    H = np.empty((len(x), len(x)))
    for k in range(len(x)):
        shifted = x.copy()
        shifted[k] = x[k] + step
        H[k] = objective(shifted)[1]
        shifted[k] = x[k] - step
        H[k] = (H[k] - objective(shifted)[1]) / (2.0 * step)
    return 0.5 * (H + H.T)


def adjustment(problem: Problem, centre: np.ndarray, hessian: np.ndarray) -> Adjustment:
    """Return the curvature adjustment of the pseudo-likelihood at its posterior mode `centre` (d,).

    H is `hessian` (d, d), the Hessian of minus the log posterior at the mode, including the prior's
    precision. K is the sum of ``score score'`` over the rows plus the prior's precision. Without
    rows, H and K are therefore equal and nothing is adjusted. The adjusted curvature is ``H K^-1 H
    = L V^-1 L'``, with the Cholesky factor L of H and ``V = L^-1 K L^-T``. Eigenvalues of V below 1
    would make this curvature larger than H in some direction, so they are replaced by 1. The matrix
    of the adjustment is then ``M = L^-T V^-1/2 L'``, because ``M' H M = L V^-1 L'``.

    The sampled density applies M only to the pseudo-likelihood. Its curvature is H - P, where P is
    the prior's precision. The posterior then has curvature ``M' (H - P) M + P``, which is close to
    ``M' H M`` if the data dominate the prior.
    """
    layout = problem.layout
    rows = problem.sample
    prior_precision = np.eye(len(centre)) / problem.tau**2
    h, J = to_matrix(layout, to_reference(layout, centre))  # fields (D,) and couplings (D, D)
    # sums over rows of score score' and of the score
    score_squares = np.zeros_like(hessian)
    gradient = np.zeros(len(centre))
    with serial_blas():
        for chunk in rows.blocks(CHUNK):
            X = one_hot(chunk.codes, layout)  # indicators (rows, D) of the non-reference levels
            # [1]: conditional probabilities (rows, D) of the levels given the other predictors
            residual = X - conditionals(X @ J.T + h, layout)[1]
            score = np.empty((chunk.n, layout.size))  # of each row, in the reference gauge
            score[:, : layout.D] = residual
            # a coupling occurs in the conditional distributions of both predictors
            for i, j in layout.pairs:
                columns_i = layout.columns([i])
                columns_j = layout.columns([j])
                layout.table(score, int(i), int(j))[:] = (
                    residual[:, columns_i, None] * X[:, None, columns_j]
                    + X[:, columns_i, None] * residual[:, None, columns_j]
                )
            score = simplex_gradient(layout, score)
            score_squares += (score * chunk.weights[:, None]).T @ score
            gradient += chunk.weights @ score
        L = np.linalg.cholesky(hessian)
        # V
        whitened_variance = np.linalg.solve(
            L, np.linalg.solve(L, score_squares + prior_precision).T
        )
        eigenvalues, eigenvectors = eigen.eigenvectors(
            0.5 * (whitened_variance + whitened_variance.T)
        )
        root = (eigenvectors / np.sqrt(np.maximum(eigenvalues, 1.0))) @ eigenvectors.T  # V^-1/2
        matrix = np.linalg.solve(L.T, root @ L.T)
    # the tilt keeps the gradient at the centre unchanged
    return Adjustment(centre, matrix, tilt=gradient - matrix.T @ gradient)


@dataclass(frozen=True)
class Chain:
    """The result of one chain after its warm-up.

    Attributes
    ----------
    draws : ndarray, shape (draws, d)
        Draws of the coefficients in simplex coding.
    accepted : float
        Mean acceptance probability.
    diverged : int
        Number of divergent transitions of the no-U-turn sampler; 0 with the exchange algorithm.
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

    Chains start at draws from the normal approximation with mean `centre` (d,) and precision
    `hessian` (d, d). The covariance of this approximation is also the metric of the chains, or the
    covariance of their proposals. `sampler` is ``"nuts"`` or ``"exchange"``, and `counts` is
    (chains, warmup, draws). `sweeps` is the number of Gibbs sweeps, starting from the data, used to
    draw rows in the exchange algorithm; 0 means exact draws. `progress` is called with fractions of
    the total work, which sum to one.
    """
    n_chains, warmup, draws = counts
    with serial_blas():
        root = _inverse_root(hessian)
    run_chain = _nuts_chain if sampler == "nuts" else _exchange_chain
    report_share = None if progress is None else lambda share: progress(share / n_chains)
    tasks = [
        (problem, centre, root, hessian, warmup, draws, chain_rng, sweeps, report_share)
        for chain_rng in rng.spawn(n_chains)
    ]
    # shared: in threads, as `progress` cannot be pickled
    return run_tasks(run_chain, tasks, min(workers, n_chains), shared=True)


def _inverse_root(hessian: np.ndarray) -> np.ndarray:
    """Return the lower triangle L with ``L L^T = hessian^-1``."""
    try:
        return np.ascontiguousarray(np.linalg.cholesky(np.linalg.inv(hessian)))
    # weights of 1e9 with a prior of 1: rounding makes the inverse indefinite
    except np.linalg.LinAlgError:
        eigenvalues, eigenvectors = eigen.eigenvectors(hessian.copy())
        # the R of a QR factorisation is a Cholesky factor up to the signs of its rows
        triangle = np.asarray(np.linalg.qr((eigenvectors / np.sqrt(eigenvalues)).T, mode="r")).T
        return np.ascontiguousarray(triangle * np.sign(np.diag(triangle)))


def _start(
    problem: Problem, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the first point of a chain.

    The coefficients phi are drawn from the normal approximation with mean `centre` (d,) and
    covariance ``root root'``, where `root` (d, d) is a lower Cholesky factor. The scales of the
    horseshoe start at values close to the size of phi.
    """
    phi = centre + root @ rng.normal(size=len(centre))
    if not problem.horseshoe:
        return phi
    group, _ = coefficient_groups(problem.layout)
    mean_square = np.bincount(group, phi**2) / np.bincount(group)
    # 1e-4 keeps scales away from 0; the noise makes chains start at different points
    log_scales = 0.5 * np.log(mean_square + 1e-4) + 0.1 * rng.normal(size=len(mean_square))
    # the log global scales are near -1
    return np.concatenate([phi, log_scales, 0.5 * rng.normal(size=2) - 1.0])


def _windows(warmup: int) -> list[int]:
    """Return the number of transitions in each window of a warm-up."""
    # a set, because window ends coincide in short warm-ups
    ends = sorted({0, *(int(share * warmup) for share in WINDOWS), warmup})
    return [end - first for first, end in zip(ends, ends[1:], strict=False)]


def _metric(points: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor of the shrunk covariance of points (n, size).

    The covariance is shrunk towards 0.001 I, which counts as 5 points.
    """
    n = len(points)
    covariance = np.cov(points.T) * (n / (n + 5.0))
    covariance.flat[:: len(covariance) + 1] += 1e-3 * 5.0 / (n + 5.0)
    return np.ascontiguousarray(np.linalg.cholesky(covariance))


def _nuts_chain(
    problem: Problem, centre, root, hessian, warmup: int, draws: int, rng, sweeps, progress
) -> Chain:
    """Run a chain of the no-U-turn sampler in the metric ``(root root')^-1``.

    Under a horseshoe prior, the metric is estimated in the windows of the warm-up instead. `centre`
    and `root` are the same as in `_start`. `progress` is called with fractions of the chain.
    `hessian` and `sweeps` are not used, but are part of the signature of `_exchange_chain`.
    """
    target = problem.target()
    stop = stop_flag()
    x = _start(problem, centre, root, rng)
    d = problem.layout.size
    stream = rng.integers(1, 2**63, 4, dtype=np.uint64)  # state of the kernel's generator
    step = START_STEP
    if problem.horseshoe:
        group, _ = coefficient_groups(problem.layout)
        log_scales = x[d : d + group.max() + 1]
        # bounded by the slab
        log_scales = log_scales - 0.5 * np.log1p((np.exp(log_scales) / problem.tau) ** 2)
        x[:d] /= np.exp(log_scales)[group]  # the kernel's points contain phi in units of the scales
        # 0.1, less than START_STEP, because the metric has not been estimated yet
        root = np.eye(target.size)
        centre = np.zeros(target.size)
        step = 0.1
    windows = _windows(warmup) if problem.horseshoe else [warmup]
    acceptance = HORSESHOE_ACCEPTANCE if problem.horseshoe else TARGET_ACCEPTANCE
    tuner = _tuner(step)
    for window, length in enumerate(windows):
        points = np.empty((length, target.size))
        # writes a point for each transition to `points`, and updates `x`, the last point, and
        # `tuner`
        target.nuts(centre, root, x, tuner, acceptance, stream, stop, points)
        # not in the first and last windows, and only if there are enough points for a covariance
        if 0 < window < len(windows) - 1 and length > 2 * target.size:
            root = _metric(points)
            centre = points.mean(axis=0)
            tuner = _tuner(START_STEP)
        if progress is not None:
            progress(length / (warmup + draws))
    # use the average step from now on, and restart the count of divergent transitions
    tuner[0], tuner[5] = tuner[1], 0.0
    points = np.empty((draws, target.size))
    # 0: no further tuning of the step
    accepted = target.nuts(centre, root, x, tuner, 0.0, stream, stop, points)
    if progress is not None:
        progress(draws / (warmup + draws))
    # `coefficients` returns phi (draws, d), no longer in units of the scales; tuner[5] is the
    # number of divergent transitions
    return Chain(target.coefficients(points), accepted, int(tuner[5]))


def _tuner(step: float) -> np.ndarray:
    """Return the initial state of the kernel's dual averaging, which tunes the step size.

    The elements are the log step, its average, the running error of the acceptance probability, the
    number of transitions, the target of the log step's shrinkage (the log of ten times the initial
    step; Hoffman & Gelman 2014), and the number of divergent transitions.
    """
    return np.array([np.log(step), np.log(step), 0.0, 0.0, np.log(10.0 * step), 0.0])


def _exchange_chain(
    problem: Problem, centre, root, hessian, warmup: int, draws: int, rng, sweeps, progress
) -> Chain:
    """Run a chain of the exchange algorithm with normal proposals.

    The covariance of the proposals is the inverse of `hessian` times the square of a tuned scale.
    The arguments are the same as in `draw_chains` and `_start`. If `sweeps` is positive, rows are
    drawn by Gibbs sweeps that start from the data. If it is 0, rows are drawn exactly from a table
    of all states.
    """
    target = replace(problem, enumerate=not sweeps).target()
    stop = stop_flag()
    rows = problem.sample
    x = _start(problem, centre, root, rng)
    d = problem.layout.size
    stream = rng.integers(1, 2**63, 4, dtype=np.uint64)  # state of the kernel's generator
    # the observations at which sweeps start
    data = np.zeros((0, problem.layout.m), dtype=np.int32)
    if sweeps:
        data = np.repeat(
            np.ascontiguousarray(rows.codes, dtype=np.int32), rows.weights.astype(int), axis=0
        )
    # without the precision of the prior, which the kernel adds
    information = np.ascontiguousarray(hessian - np.eye(d) / problem.tau**2)
    n_proposals = SWEEP_PROPOSALS if sweeps else max(int(EXACT_PROPOSALS * d), 10)
    # ln of the proposals' scale, and the number of proposals so far
    tuner = np.array([np.log(START_SCALE / np.sqrt(d)), 0.0])
    points = np.empty((warmup, target.size))
    # writes a point for each draw to `points`, and updates `x` and `tuner`; True: the scale of the
    # proposals is tuned, but only during the warm-up
    target.exchange(information, x, tuner, True, n_proposals, sweeps, data, stream, stop, points)
    if progress is not None:
        progress(warmup / (warmup + draws))
    points = np.empty((draws, target.size))
    accepted = target.exchange(
        information, x, tuner, False, n_proposals, sweeps, data, stream, stop, points
    )
    if progress is not None:
        progress(draws / (warmup + draws))
    # points contain phi itself here, with any prior
    return Chain(np.ascontiguousarray(points[:, :d]), accepted, diverged=0)
