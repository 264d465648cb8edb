"""Posterior of one group's d coefficients, its fields and couplings: log density, mode, and chains
of draws.

Coefficients phi are in simplex coding, which represents the L levels of a predictor by L - 1
contrasts. A point of a chain, of length `size`, is phi; under a horseshoe prior the log scales of
the groups of coefficients and two global log scales, of fields and of couplings, follow. NUTS is
the no-U-turn sampler. A layout holds `start` (m + 1,), at which the fields of each of m predictors
begin in the vector of coefficients, `pairs` (P, 2), and `pair_start` (P + 1,), at which their
couplings begin; D is the number of fields. Its ``table(v, i)`` and ``table(v, i, j)`` are views, in
a vector v, of the fields (L_i - 1,) of predictor i and of the couplings (L_i - 1, L_j - 1) of a
pair.
"""

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

# shares of the warm-up after which the metric is estimated anew
WINDOWS = (0.1, 0.2, 0.4, 0.8, 0.9)
START_STEP = 0.5  # step of a whitened NUTS chain before tuning
# scale of exchange proposals before tuning, times the square root of the dimension
START_SCALE = 1.7
TARGET_ACCEPTANCE = 0.8  # mean acceptance that steps are tuned to
HORSESHOE_ACCEPTANCE = 0.95  # the same under a horseshoe, whose funnels need short steps
# exchange proposals of a draw for each coefficient, where rows are drawn exactly
EXACT_PROPOSALS = 5.0
SWEEP_PROPOSALS = 5  # exchange proposals of a draw where rows are drawn by Gibbs sweeps
CHUNK = 1024  # rows whose scores are held at a time


@dataclass(frozen=True)
class Adjustment:
    """The curvature adjustment of a log pseudo-likelihood (Ribatet, Cooley & Davison 2012).

    The log-likelihood at phi is replaced by the log pseudo-likelihood at ``centre + matrix (phi -
    centre)`` plus ``tilt' (phi - centre)``. Its gradient at the centre is that of the log
    pseudo-likelihood, its curvature there is Godambe's information.

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
        """Return ``matrix' H matrix`` (d, d), the adjusted curvature at the centre; H is `hessian`
        of `adjustment`.
        """
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
        Standard deviation of the normal prior, or of the slab of the horseshoe prior.
    horseshoe : bool
        Whether the prior is the horseshoe, else normal.
    pseudo : bool
        Whether the pseudo-likelihood takes the place of the likelihood.
    adjust : Adjustment or None
        Curvature adjustment of the pseudo-likelihood.
    enumerate : bool
        Whether the kernel makes tables over all states, which the likelihood needs.
    """

    sample: Sample
    layout: Layout
    tau: float
    horseshoe: bool = False
    pseudo: bool = False
    adjust: Adjustment | None = None
    enumerate: bool = True

    def target(self) -> Target:
        """Return the log posterior density as a new kernel object, whose scratch arrays threads
        must not share.
        """
        layout = self.layout
        rows = self.sample
        group, kind = coefficient_groups(layout)
        # of each predictor the matrix (L, L) with a row for each level: a one, then the level's
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
            # the prior, and whether to make tables over all states
            float(self.tau),
            self.horseshoe,
            self.enumerate,
            # the rows, with which the density uses the pseudo-likelihood
            codes=np.ascontiguousarray(rows.codes, dtype=np.int32) if self.pseudo else None,
            weights=rows.weights if self.pseudo else None,
            # the curvature adjustment; the kernel's `adjust` is its matrix
            centre=None if godambe is None else godambe.centre,
            adjust=None if godambe is None else godambe.matrix,
            tilt=None if godambe is None else godambe.tilt,
        )


def coefficient_groups(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each coefficient (d,), and the kind (G,) of each of G groups: fields (0)
    or couplings (1).

    A group holds the fields of a predictor, or the couplings of a pair; predictors of one level
    have no group.
    """
    sizes = np.concatenate([np.diff(layout.start), np.diff(layout.pair_start)])
    kind = np.repeat([0, 1], [layout.m, len(layout.pairs)])[sizes > 0]
    sizes = sizes[sizes > 0]
    return np.repeat(np.arange(len(sizes)), sizes).astype(np.int32), kind.astype(np.int32)


def simplex_sums(rows: Sample, layout: Layout) -> np.ndarray:
    """Return the sufficient statistics (d,): weighted sums over rows of contrasts and of products
    of two contrasts.

    They are the sums of what the coefficients multiply, in the order of the layout.
    """
    out = np.empty(layout.size)
    # (n, L - 1) each
    coded = [contrasts(int(L))[rows.codes[:, i]] for i, L in enumerate(layout.n_levels)]
    for i, C in enumerate(coded):
        layout.table(out, i)[:] = rows.weights @ C
    for i, j in layout.pairs:
        layout.table(out, int(i), int(j))[:] = (coded[i] * rows.weights[:, None]).T @ coded[j]
    return out


def mode(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior mode (d,) under a normal prior, and the Hessian (d, d) of minus the log
    density there.
    """
    from scipy.optimize import minimize

    target = replace(problem, horseshoe=False).target()
    n = max(problem.sample.total, 1.0)  # observations; 1 without any, as it divides

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the log density per observation, and its gradient."""
        gradient = np.empty(len(x))
        # log density; its gradient is written to `gradient`
        value = target.value(np.ascontiguousarray(x), gradient)
        return -value / n, -gradient / n

    centre = minimize(
        objective, np.zeros(target.size), jac=True, method="L-BFGS-B", options={"maxiter": 1000}
    ).x
    hessian = n * _hessian(objective, centre)
    eigenvalues, eigenvectors = eigen.eigenvectors(hessian.copy())  # rising
    prior_precision = 1.0 / problem.tau**2
    # the prior adds its precision to all eigenvalues: one below half of it is wrong by more than
    # small errors of the differences in `_hessian`
    if eigenvalues[0] < 0.5 * prior_precision:
        hessian = (eigenvectors * np.maximum(eigenvalues, prior_precision)) @ eigenvectors.T
    return centre, hessian


def _hessian(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray
) -> np.ndarray:
    """Return the Hessian (d, d) at `x` by central differences of the gradient, which `objective`
    returns second.
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
    """Return the curvature adjustment of the pseudo-likelihood at the mode `centre` (d,) of its
    posterior.

    H is `hessian` (d, d): that of minus the log posterior at the mode, with the prior's precision.
    K is the sum over the rows of ``score score'`` plus this precision: without any rows H and K are
    equal, and nothing is adjusted. The adjusted curvature is ``H K^-1 H = L V^-1 L'``, with the
    Cholesky factor L of H and ``V = L^-1 K L^-T``. Eigenvalues of V below 1, which would make it
    larger than H in some direction, are raised to 1. The matrix of the adjustment is then ``M =
    L^-T V^-1/2 L'``, as ``M' H M = L V^-1 L'``.

    The sampled density applies M to the pseudo-likelihood alone, with curvature H - P for the
    prior's precision P. Its posterior has the curvature ``M' (H - P) M + P``: about ``M' H M``
    where the rows outweigh the prior.
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
            # [1]: probabilities (rows, D) of the levels given the other predictors
            residual = X - conditionals(X @ J.T + h, layout)[1]
            score = np.empty((chunk.n, layout.size))  # of each row, in the reference gauge
            score[:, : layout.D] = residual
            # a coupling is in the conditional distributions of both predictors
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
    # so that the gradient at the centre stays
    return Adjustment(centre, matrix, tilt=gradient - matrix.T @ gradient)


@dataclass(frozen=True)
class Chain:
    """One chain after its warm-up.

    Attributes
    ----------
    draws : ndarray, shape (draws, d)
        Draws of the coefficients in simplex coding.
    accepted : float
        Mean probability of acceptance.
    diverged : int
        Number of divergent transitions of the no-U-turn sampler, else 0.
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
    `hessian` (d, d), whose covariance is also their metric or that of their proposals. `sampler` is
    ``"nuts"`` or ``"exchange"``, `counts` is (chains, warmup, draws). `sweeps` are the Gibbs sweeps
    from the data by which the exchange algorithm draws rows; 0 for exact draws. `progress` is
    called with shares of the work of all chains, which sum to one.
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
    # weights of 1e9 beside a prior of 1: rounding makes the inverse indefinite
    except np.linalg.LinAlgError:
        eigenvalues, eigenvectors = eigen.eigenvectors(hessian.copy())
        # R of QR is a Cholesky factor up to the signs of its rows
        triangle = np.asarray(np.linalg.qr((eigenvectors / np.sqrt(eigenvalues)).T, mode="r")).T
        return np.ascontiguousarray(triangle * np.sign(np.diag(triangle)))


def _start(
    problem: Problem, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the first point: phi from the normal approximation, scales of the horseshoe near the
    sizes of phi.

    `centre` (d,) is the mean of the approximation, `root` (d, d) the lower Cholesky factor of its
    covariance.
    """
    phi = centre + root @ rng.normal(size=len(centre))
    if not problem.horseshoe:
        return phi
    group, _ = coefficient_groups(problem.layout)
    mean_square = np.bincount(group, phi**2) / np.bincount(group)
    # 1e-4 keeps scales away from 0; the noise lets chains start apart
    log_scales = 0.5 * np.log(mean_square + 1e-4) + 0.1 * rng.normal(size=len(mean_square))
    # the log global scales are near -1
    return np.concatenate([phi, log_scales, 0.5 * rng.normal(size=2) - 1.0])


def _windows(warmup: int) -> list[int]:
    """Return the numbers of transitions of the windows that a warm-up of `warmup` transitions is
    cut into.
    """
    # a set: ends of short warm-ups coincide
    ends = sorted({0, *(int(share * warmup) for share in WINDOWS), warmup})
    return [end - first for first, end in zip(ends, ends[1:], strict=False)]


def _metric(points: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor of the covariance of points (n, size), shrunk towards 0.001
    I.

    The matrix 0.001 I has the weight of 5 points.
    """
    n = len(points)
    covariance = np.cov(points.T) * (n / (n + 5.0))
    covariance.flat[:: len(covariance) + 1] += 1e-3 * 5.0 / (n + 5.0)
    return np.ascontiguousarray(np.linalg.cholesky(covariance))


def _nuts_chain(
    problem: Problem, centre, root, hessian, warmup: int, draws: int, rng, sweeps, progress
) -> Chain:
    """Run a chain of the no-U-turn sampler in the metric ``(root root')^-1``.

    Under a horseshoe prior the metric is estimated in the windows of the warm-up instead. `centre`
    and `root` are as in `_start`. `progress` is called with shares of the chain. `hessian` and
    `sweeps` are not used: the arguments are those of `_exchange_chain`.
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
        x[:d] /= np.exp(log_scales)[group]  # the kernel's points hold phi in units of the scales
        # 0.1, less than START_STEP: the metric is not yet estimated
        root = np.eye(target.size)
        centre = np.zeros(target.size)
        step = 0.1
    windows = _windows(warmup) if problem.horseshoe else [warmup]
    acceptance = HORSESHOE_ACCEPTANCE if problem.horseshoe else TARGET_ACCEPTANCE
    tuner = _tuner(step)
    for window, length in enumerate(windows):
        points = np.empty((length, target.size))
        # writes a point for each transition to `points`, and updates `x`, the last one, and `tuner`
        target.nuts(centre, root, x, tuner, acceptance, stream, stop, points)
        # not from the first window, nor in the last one, and only from enough points for a
        # covariance
        if 0 < window < len(windows) - 1 and length > 2 * target.size:
            root = _metric(points)
            centre = points.mean(axis=0)
            tuner = _tuner(START_STEP)
        if progress is not None:
            progress(length / (warmup + draws))
    # from now on the average step; divergent transitions are counted anew
    tuner[0], tuner[5] = tuner[1], 0.0
    points = np.empty((draws, target.size))
    # 0: the step is tuned no more
    accepted = target.nuts(centre, root, x, tuner, 0.0, stream, stop, points)
    if progress is not None:
        progress(draws / (warmup + draws))
    # `coefficients`: phi (draws, d), no longer in units of the scales; tuner[5]: divergent
    # transitions
    return Chain(target.coefficients(points), accepted, int(tuner[5]))


def _tuner(step: float) -> np.ndarray:
    """Return the state of the kernel's dual averaging, which tunes steps, before any transition.

    Its numbers are: ln step; its average; the running error of the acceptance; the number of
    transitions; the value that ln step is drawn to, here ln of ten times the step (Hoffman & Gelman
    2014); the number of divergent transitions.
    """
    return np.array([np.log(step), np.log(step), 0.0, 0.0, np.log(10.0 * step), 0.0])


def _exchange_chain(
    problem: Problem, centre, root, hessian, warmup: int, draws: int, rng, sweeps, progress
) -> Chain:
    """Run a chain of the exchange algorithm, whose proposals are normal.

    Their covariance is the inverse of `hessian` times the square of a tuned scale. Arguments are as
    in `draw_chains` and `_start`. With `sweeps` rows are drawn by Gibbs sweeps from the data, else
    exactly from a table of all states.
    """
    target = replace(problem, enumerate=not sweeps).target()
    stop = stop_flag()
    rows = problem.sample
    x = _start(problem, centre, root, rng)
    d = problem.layout.size
    stream = rng.integers(1, 2**63, 4, dtype=np.uint64)  # state of the kernel's generator
    # the observations that sweeps start from
    data = np.zeros((0, problem.layout.m), dtype=np.int32)
    if sweeps:
        data = np.repeat(
            np.ascontiguousarray(rows.codes, dtype=np.int32), rows.weights.astype(int), axis=0
        )
    # without the precision of the prior, which the kernel adds
    information = np.ascontiguousarray(hessian - np.eye(d) / problem.tau**2)
    n_proposals = SWEEP_PROPOSALS if sweeps else max(int(EXACT_PROPOSALS * d), 10)
    # ln of the proposals' scale, proposals so far
    tuner = np.array([np.log(START_SCALE / np.sqrt(d)), 0.0])
    points = np.empty((warmup, target.size))
    # writes a point for each draw to `points`, and updates `x` and `tuner`; True: the warm-up tunes
    # the scale of the proposals, which the draws below do not
    target.exchange(information, x, tuner, True, n_proposals, sweeps, data, stream, stop, points)
    if progress is not None:
        progress(warmup / (warmup + draws))
    points = np.empty((draws, target.size))
    accepted = target.exchange(
        information, x, tuner, False, n_proposals, sweeps, data, stream, stop, points
    )
    if progress is not None:
        progress(draws / (warmup + draws))
    # here points hold phi itself, whatever the prior
    return Chain(np.ascontiguousarray(points[:, :d]), accepted, diverged=0)
