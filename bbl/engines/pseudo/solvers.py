"""Solvers for the pseudo-likelihood: Newton's method, L-BFGS, and dual coordinate ascent.

L-BFGS and dual coordinate ascent run in threads or on a cluster.
"""

# Site solutions `site_theta` have shape (layout.D, 1 + D), with columns for the field and for the D
# columns of the `Regressors`. A fit starts from the site's rows of the solution and overwrites
# them. The kernel solves `problem.lanes` sites together, as one task, in the order `problem.order`
# (m,).

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bbl._ext.pseudo import dual, newton
from bbl._ext.pseudo.pseudo import CONVERGED, ITMAX, STUCK, PseudoProblem
from bbl.model.gauge import penalty_metric
from bbl.model.layout import Layout
from bbl.model.logz import log_normaliser
from bbl.model.regressors import penalties, regressors
from bbl.parallel import run_tasks, serial_blas, stop_flag
from bbl.rows.on_cluster import call, n_threads, remote_value
from bbl.rows.sample import Sample

__all__ = [
    "FINEST",
    "FLOOR",
    "POLISH_SIZE",
    "Sites",
    "Solution",
    "make_cluster_solver",
    "make_lbfgs_solver",
    "make_solver",
    "solve_by_newton",
    "is_small",
    "prefers_dual_ascent",
    "n_shares",
    "prepare_problem",
]


# smallest tolerance of the gradient norm, for each precision
FINEST = {"double": 0.0, "single": 1e-5}
FLOOR = {"double": 1e-8, "single": 1e-4}  # gradient norm at which a stuck fit counts as converged
# Newton's method is used alone up to this number of multiplications for a site's Hessian
NEWTON_WORK = 3e4
NEWTON_SIZE = 256  # Newton's method is used alone up to this number of parameters of a site
# Dual coordinate ascent is used for models with all pairs of predictors, more than DUAL_COLUMNS
# columns D and on average at least DUAL_LEVELS levels, unless there are many rows for each column
# or the penalty is weak: lambda_ times the total weight must be at least DUAL_PENALTY rows of the
# largest weight. With 21 levels and lambda_=.01, it takes .23 of the time of L-BFGS for 5,000
# related rows and D = 4000, .6 or (unrelated rows) .85 for D = 1200, and 2.2 for 20,000 rows and D
# = 1200; with lambda_=.001, 5,000 rows and D = 1200, it takes 2.4 times as long.
DUAL_COLUMNS = 512
DUAL_LEVELS = 9
DUAL_ROWS = 5.0  # maximum number of rows for each column
DUAL_PENALTY = 12.0
DUAL_EPOCHS = 60  # fits that have not converged after so many visits to all rows go on by L-BFGS
# strength of the proximal term of the fields, in penalties for each other predictor
DUAL_PROXIMAL = 2.0
POLISH_SIZE = 1024  # Newton's method follows L-BFGS up to this number of parameters of a site


class Sites:
    """Reports on the fits of m sites, as arrays of shape (m,).

    Attributes
    ----------
    value : ndarray
        Minimum of the objective, which is minus the mean conditional log-likelihood of the site
        given the other predictors, plus the penalty.
    norm : ndarray
        Norm of the gradient at the minimum.
    n_iter, n_eval : ndarray of int32
        Number of iterations, and of evaluations of the objective.
    status : ndarray of int32
        CONVERGED, ITMAX or STUCK, as returned by the kernel.
    """

    def __init__(self, m: int):
        self.value = np.zeros(m)
        self.norm = np.zeros(m)
        self.n_iter, self.n_eval, self.status = (np.zeros(m, dtype=np.int32) for _ in range(3))

    def take(
        self,
        sites: list[int] | np.ndarray,
        other: Sites,
        other_sites: np.ndarray,
        share: float = 1.0,
    ) -> None:
        """Copy the reports on `other_sites` in `other` to `sites`.

        `other` contains the reports on a fit to the fraction `share` of all rows.
        """
        # objectives are means over rows, so this one is multiplied by the share; norms are kept to
        # assess the convergence of that fit
        for name, values in vars(self).items():
            values[sites] = getattr(other, name)[other_sites] * (share if name == "value" else 1)


# site_theta, reports, and a function normaliser(half) that returns ln Z by eq. (31), or None
Solution = tuple[np.ndarray, Sites, Callable | None]


def is_small(n: int, layout: Layout) -> bool:
    """Return whether computing Hessians of `n` rows is fast (under a millisecond)."""
    # non-reference levels of a site
    max_site_levels = float(layout.n_levels.max(initial=1)) - 1.0
    # too large even without regressors, which take long to list
    if n * max_site_levels**2 >= NEWTON_WORK:
        return False
    regs = regressors(layout)
    # nonzero features of a row: the constant, and one for each regressor
    max_nonzeros = 1.0 + regs.mask.sum(axis=1).max(initial=0)
    max_parameters = max_site_levels * (1.0 + (regs.mask @ (regs.n_levels - 1)).max(initial=0))
    return n * (max_site_levels * max_nonzeros) ** 2 < NEWTON_WORK and max_parameters < NEWTON_SIZE


def solve_by_newton(
    engine, sample, layout, lambda_, lambdah, site_theta, sites, workers, only=None, linear=None
) -> None:
    """Fit all sites, or the sites in `only`, by Newton's method, in place.

    This function overwrites `site_theta` and `sites`. `sample` contains the codes for `Regressors`.
    `lambda_` and `lambdah` are the penalties on couplings and on fields. `linear` (layout.D, 1 +
    D), if given, is subtracted from the gradients. `workers` is not used, but is required by the
    signature of solvers (see `make_lbfgs_solver`).
    """
    fitted_sites = np.arange(layout.m) if only is None else only
    regs = regressors(layout)
    newton.solve_sites(
        sample.codes,
        sample.weights,
        sample.total,
        regs.start,
        regs.mask.view(np.uint8),  # the kernel does not accept bool
        fitted_sites.astype(np.int32),
        # penalties of the constant and the columns; in the zero-sum gauge they are the last
        # argument
        np.zeros(1 + regs.D) if engine.zero_sum else np.append(lambdah, penalties(layout, lambda_)),
        engine.prior_count,
        engine.tolerance,
        engine.itmax,
        site_theta,
        sites.value,
        sites.norm,
        sites.n_iter,
        sites.status,
        linear,
        # max: the single penalty, a number or in a tuple, since models in this gauge only have
        # pairs
        penalty_metric(layout, float(np.max(lambda_)), lambdah) if engine.zero_sum else None,
    )


def prefers_dual_ascent(engine, sample: Sample, layout: Layout, lambda_) -> bool:
    """Return whether dual coordinate ascent is expected to be faster than L-BFGS.

    `engine` is a `PseudoLikelihood`, and `sample` contains complete rows.
    """
    has_all_pairs = layout.order == 2 and len(layout.pairs) == layout.m * (layout.m - 1) // 2
    if engine.zero_sum or not has_all_pairs:
        return False
    # the kernel needs two levels of each predictor
    has_usable_levels = layout.n_levels.min() > 1 and layout.n_levels.max() <= dual.MAX_LOGITS + 1
    is_large = max(DUAL_COLUMNS + 1, (DUAL_LEVELS - 1) * layout.m) <= layout.D <= dual.MAX_COLUMNS
    has_few_rows = sample.n <= DUAL_ROWS * layout.D
    # max: the single penalty, a number or in a tuple
    penalty_in_rows = float(np.max(lambda_)) * sample.total / float(sample.weights.max())
    is_penalised = penalty_in_rows >= DUAL_PENALTY
    return bool(has_usable_levels and is_large and has_few_rows and is_penalised)


def _solve_task(problem: PseudoProblem, task: int, settings: tuple, keywords: dict) -> None:
    """Fit the sites of a task by L-BFGS.

    `settings` contains both penalties, the tolerance, the maximum number of iterations, and the
    solution. The solution is overwritten. `keywords` contains further arguments for the kernel,
    including the arrays for its reports.
    """
    lambda_, lambdah, tolerance, itmax, theta = settings
    problem.solve(task, lambda_, lambdah, tolerance, itmax, theta, stop=stop_flag(), **keywords)


def prepare_problem(
    sample: Sample,
    layout: Layout,
    precision: str,
    prior_count: float = 0.0,
    count_moments: bool = True,
) -> PseudoProblem:
    """Return the rows in the format of the L-BFGS kernel.

    `sample` contains the codes for `Regressors`. If `count_moments` (`counted` in the kernel) is
    False, moments are not computed, and the problem can only be used for log normalisers. This is
    sufficient for rows with known moments.
    """
    regs = regressors(layout)
    with serial_blas():
        return PseudoProblem(
            sample.codes,
            sample.weights,
            regs.n_levels,
            regs.mask,
            width=None,  # the best vector instructions of the processor
            precision=precision,
            prior_count=prior_count,
            counted=count_moments,
        )


def make_lbfgs_solver(problem: PseudoProblem, precision: str, share: tuple[int, int] = (0, 1)):
    """Return a function ``solve`` that fits all sites of a prepared `problem`, in place.

    ``solve`` has the same arguments as `solve_by_newton`, and `tolerance` (m,), which contains a
    tolerance for each site and overrides the engine's tolerance. Sites in the same task as one of
    those in `only` are fitted as well. It returns the normaliser of a `Solution`. With ``share=(k,
    n_shares)``, it fits only the sites in tasks k, k + n_shares, and so on.
    """
    # the sites of each task
    task_sites = np.split(problem.order, range(problem.lanes, len(problem.order), problem.lanes))

    def solve(
        engine,
        sample,
        layout,
        lambda_,
        lambdah,
        site_theta,
        sites,
        workers,
        tolerance=None,
        linear=None,
        only=None,
    ):
        """Write `site_theta` and `sites`, and return the normaliser, or None after an interrupt."""
        regs = regressors(layout)
        site_tolerance = np.full(layout.m, engine.tolerance) if tolerance is None else tolerance
        site_tolerance = np.maximum(site_tolerance, FINEST[precision])
        column_penalties = penalties(layout, lambda_)
        # the penalty on pairs, from the columns of single predictors, which come first
        pair_penalty = float(column_penalties[0]) if len(column_penalties) else 0.0
        keywords = {
            "linear": linear,
            "zero_sum": engine.zero_sum,
            # differences from the penalty on pairs, for terms of higher order
            "more": None
            if (column_penalties == pair_penalty).all()
            else column_penalties - pair_penalty,
            "grad_norm": sites.norm,
            "n_iter": sites.n_iter,
            "n_eval": sites.n_eval,
            "status": sites.status,
            "value": sites.value,
        }
        tasks = [  # the sites of a task share the smallest of their tolerances
            (
                task,
                (
                    pair_penalty,
                    lambdah,
                    float(site_tolerance[sites_of_task].min()),
                    engine.itmax,
                    site_theta,
                ),
                keywords,
            )
            for task, sites_of_task in enumerate(task_sites)
            if only is None or np.isin(sites_of_task, only).any()
        ]
        stop = stop_flag()
        # shared: threads write to the same arrays, each to the entries of its own sites
        run_tasks(partial(_solve_task, problem), tasks[share[0] :: share[1]], workers, shared=True)
        if stop[0]:  # interrupted: the fit is not used
            return None
        # A quasi-Newton line search may fail near rounding error, and is slow on flat objectives:
        # finish such fits by Newton's method if they have few parameters.
        unfinished = np.flatnonzero((sites.status == ITMAX) | (sites.status == STUCK))
        n_columns = 1 + regs.mask[unfinished] @ (regs.n_levels - 1)
        n_parameters = (layout.n_levels[unfinished] - 1) * n_columns
        unfinished = unfinished[n_parameters < POLISH_SIZE]
        if len(unfinished) and precision == "double":
            solve_by_newton(
                engine,
                sample,
                layout,
                lambda_,
                lambdah,
                site_theta,
                sites,
                workers,
                unfinished,
                linear,
            )
        # the remaining gradient is a rounding error
        sites.status[(sites.status == STUCK) & (sites.norm <= FLOOR[precision])] = CONVERGED
        return partial(log_normaliser, problem, layout, site_theta)

    return solve


def make_dual_solver(
    sample: Sample,
    layout: Layout,
    precision: str,
    prior_count: float,
    share: tuple[int, int] = (0, 1),
) -> Callable:
    """Return a function ``solve`` that fits all sites by dual coordinate ascent, in place.

    ``solve`` has the same arguments as `solve_by_newton`, except for the last two, and returns the
    normaliser of a `Solution`. Sites that do not converge are then fitted by L-BFGS. With
    ``share=(k, n_shares)``, only the sites k, k + n_shares, and so on are fitted.
    """
    problem = dual.DualProblem(
        sample.codes, sample.weights, layout.n_levels, prior_count, precision == "single"
    )

    def solve(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers):
        """Write `site_theta` and `sites`, and return the normaliser, or None after an interrupt."""
        penalty = float(np.max(lambda_))
        tolerance = max(engine.tolerance, FINEST[precision])
        stop = stop_flag()
        fit_site = partial(
            problem.solve,
            lambda_=penalty,
            lambdah=lambdah,
            rho=max(0.0, DUAL_PROXIMAL * penalty / max(1, layout.m - 1) - lambdah),
            tolerance=tolerance,
            max_epochs=min(engine.itmax, DUAL_EPOCHS),
            theta=site_theta,
            value=sites.value,
            grad_norm=sites.norm,
            n_iter=sites.n_iter,
            n_eval=sites.n_eval,
            status=sites.status,
            stop=stop,
        )
        fitted_sites = np.arange(layout.m)[share[0] :: share[1]]
        # shared: threads write to the same arrays, each to the entries of its own sites
        run_tasks(fit_site, [(i,) for i in fitted_sites.tolist()], workers, shared=True)
        if stop[0]:  # interrupted: the fit is not used
            return None
        unfinished = fitted_sites[sites.status[fitted_sites] != CONVERGED]
        if (sites.n_iter[unfinished] < engine.itmax).any():
            report = Sites(layout.m)
            finish = make_solver(sample, layout, precision, prior_count, is_dual=False)
            finish(
                engine,
                sample,
                layout,
                lambda_,
                lambdah,
                site_theta,
                report,
                workers,
                only=unfinished,
            )
            report.n_iter += sites.n_iter
            report.n_eval += sites.n_eval
            sites.take(unfinished, report, unfinished)
        return partial(_normaliser_of_rows, sample, layout, precision, prior_count, site_theta)

    return solve


def make_solver(
    sample: Sample,
    layout: Layout,
    precision: str,
    prior_count: float,
    is_dual: bool,
    share: tuple[int, int] = (0, 1),
) -> Callable:
    """Return the result of `make_dual_solver` if `is_dual` is True, else of `make_lbfgs_solver`."""
    if is_dual:
        return make_dual_solver(sample, layout, precision, prior_count, share)
    problem = prepare_problem(sample, layout, precision, prior_count)
    return make_lbfgs_solver(problem, precision, share)


def _normaliser_of_rows(
    sample: Sample,
    layout: Layout,
    precision: str,
    prior_count: float,
    site_theta: np.ndarray,
    half: bool,
) -> float:
    """Return ln Z by eq. (31) from rows that are not prepared for L-BFGS.

    If `half` is True, couplings of k predictors are multiplied by 1/k.
    """
    problem = prepare_problem(sample, layout, precision, prior_count, count_moments=False)
    with serial_blas():
        return log_normaliser(problem, layout, site_theta, half)


# minimum number of predictors in a share: preparing the rows takes a worker as long as about ten
# fits
MIN_SHARE = 32


def n_shares(sample: Sample) -> int:
    """Return the number of shares of predictors, with at most one share per cluster thread."""
    if sample.client is None:  # the client of a Dask cluster
        return 1
    return max(1, min(n_threads(sample.client), sample.codes.shape[1] // MIN_SHARE))


def make_cluster_solver(
    sample: Sample, layout: Layout, precision: str, prior_count: float
) -> Callable:
    """Return a solver as in `make_lbfgs_solver`, with predictors divided among cluster workers.

    Fits are bitwise identical to local fits. `sample` contains the codes for `Regressors` and the
    ``client`` of the cluster.
    """
    # the sample is sent without the client
    client = sample.client
    plain_sample = Sample(sample.codes, sample.weights)
    remote_rows = remote_value(client, plain_sample)
    share_count = n_shares(sample)

    def solve(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers) -> Callable:
        """Fit all sites in place and return the normaliser of a `Solution`.

        `sample` and `workers` are not used.
        """
        arguments = remote_value(
            client, (engine, layout, precision, lambda_, lambdah, site_theta.copy())
        )
        tasks = [
            call(client, _solve_share, remote_rows, arguments, prior_count, (k, share_count))
            for k in range(share_count)
        ]
        for predictors, theta, share_sites in client.gather(tasks):
            # rows of the solution are levels; np.repeat gives each level's predictor
            site_theta[
                np.isin(np.repeat(np.arange(layout.m), np.diff(layout.start)), predictors)
            ] = theta
            # copies the reports on the share's predictors
            for name, values in vars(share_sites).items():
                getattr(sites, name)[predictors] = values[predictors]

        return partial(
            _normaliser_of_rows, plain_sample, layout, precision, prior_count, site_theta
        )

    return solve


def _solve_share(
    rows: Sample, arguments: tuple, prior_count: float, share: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, Sites]:
    """Fit one share of the predictors on a worker.

    The result contains the predictors, their rows of the solution, and reports (m,). `share` is
    ``(k, n_shares)``, as in `make_lbfgs_solver`, and `rows` contains the codes for `Regressors`.
    `arguments` contains the engine, the layout, the precision, both penalties and the initial
    solution (layout.D, 1 + D).
    """
    engine, layout, precision, lambda_, lambdah, start = arguments
    theta = start.copy()
    sites = Sites(layout.m)
    is_dual = prefers_dual_ascent(engine, rows, layout, lambda_)
    solve = make_solver(rows, layout, precision, prior_count, is_dual, share)
    solve(engine, rows, layout, lambda_, lambdah, theta, sites, workers=1)
    predictors = np.flatnonzero(sites.n_eval)  # those of the share: all others are not evaluated
    return (
        predictors,
        theta[np.isin(np.repeat(np.arange(layout.m), np.diff(layout.start)), predictors)],
        sites,
    )
