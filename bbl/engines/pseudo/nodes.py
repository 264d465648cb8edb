"""Pseudo-likelihood on a cluster: every worker has all rows and fits a share of the predictors.

Each of m predictors is a site: it is regressed on the others. A solution `site_theta` has shape
(layout.D, 1 + D): a row for each non-reference level of each site, with its field and its couplings
to the D columns of the `Regressors`, the levels of predictors and of sets of predictors. `Sites`
are reports on the fits, arrays (m,). The kernel fits `problem.lanes` sites at a time, as one task,
in the order `problem.order` (m,).

`remote_value` sends a value to a worker, and `call` has a worker call a function. Both return
futures, which may be arguments of `call`; ``client.gather`` waits for results.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bbl.engines.pseudo.solvers import Sites, by_lbfgs, prepare_problem
from bbl.model.layout import Layout
from bbl.model.logz import log_normaliser
from bbl.parallel import serial_blas
from bbl.rows.on_cluster import call, n_threads, remote_value
from bbl.rows.sample import Sample

__all__ = ["by_nodes", "n_shares"]

# least predictors of a share: preparing the rows takes a worker as long as about ten fits
MIN_SHARE = 32


def n_shares(sample: Sample) -> int:
    """Return the number of shares of the predictors, one for each thread of a cluster; 1 without a
    cluster.
    """
    if sample.client is None:  # the client of a Dask cluster
        return 1
    return max(1, min(n_threads(sample.client), sample.codes.shape[1] // MIN_SHARE))


def by_nodes(sample: Sample, layout: Layout, precision: str, prior_count: float) -> Callable:
    """Return the solver of `by_lbfgs` with predictors shared out to the workers; fits are the same
    to the bit.

    `sample` holds the codes of the `Regressors` and the ``client`` of the cluster.
    """
    # without the client, to be sent
    client = sample.client
    plain_sample = Sample(sample.codes, sample.weights)
    remote_rows = remote_value(client, plain_sample)
    share_count = n_shares(sample)

    def solve(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers) -> Callable:
        """Fit all sites in place; return the normaliser of a `Solution`. `sample` and `workers` are
        not used.
        """
        arguments = remote_value(
            client, (engine, layout, precision, lambda_, lambdah, site_theta.copy())
        )
        tasks = [
            call(client, _solve_share, remote_rows, arguments, prior_count, (k, share_count))
            for k in range(share_count)
        ]
        for predictors, theta, share_sites in client.gather(tasks):
            # rows of the solution are levels; np.repeat gives the predictor of each
            site_theta[
                np.isin(np.repeat(np.arange(layout.m), np.diff(layout.start)), predictors)
            ] = theta
            # copies the reports on the share's predictors
            for name, values in vars(share_sites).items():
                getattr(sites, name)[predictors] = values[predictors]

        def normaliser(half: bool) -> float:
            """Return ln Z by eq. (31) on the rows; with `half`, couplings of k predictors have the
            factor 1/k.
            """
            # only the workers have prepared the rows so far
            with serial_blas():
                return log_normaliser(
                    prepare_problem(plain_sample, layout, precision, prior_count),
                    layout,
                    site_theta,
                    half,
                )

        return normaliser

    return solve


def _solve_share(
    rows: Sample, arguments: tuple, prior_count: float, share: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, Sites]:
    """Fit one share of the predictors on a worker; return these, their rows of the solution, and
    reports (m,).

    `share` is ``(k, n_shares)`` as in `by_lbfgs`, `rows` holds the codes of the `Regressors`;
    `arguments` holds the engine, layout, precision, both penalties and the solution (layout.D, 1 +
    D) to start from.
    """
    engine, layout, precision, lambda_, lambdah, start = arguments
    theta = start.copy()
    sites = Sites(layout.m)
    problem = prepare_problem(rows, layout, precision, prior_count)
    by_lbfgs(problem, precision, share)(
        engine, rows, layout, lambda_, lambdah, theta, sites, workers=1
    )
    tasks = np.split(problem.order, range(problem.lanes, layout.m, problem.lanes))[
        share[0] :: share[1]
    ]
    # zeros: this share may have no tasks
    predictors = np.sort(np.concatenate([np.zeros(0, dtype=np.intp), *tasks]))
    return (
        predictors,
        theta[np.isin(np.repeat(np.arange(layout.m), np.diff(layout.start)), predictors)],
        sites,
    )
