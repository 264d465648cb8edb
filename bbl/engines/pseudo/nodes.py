"""Pseudo-likelihood on a cluster by nodes: every worker has all rows, and fits a share of the predictors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bbl.engines.pseudo.solvers import Sites, by_lbfgs, prepared
from bbl.model.layout import Layout
from bbl.model.logz import log_normaliser
from bbl.parallel import serial_blas
from bbl.rows.on_cluster import call, n_threads, remote_value
from bbl.rows.sample import Sample

__all__ = ["by_nodes", "n_shares"]

APART = 32  # predictors of a share, at least: each worker prepares the rows, which takes as long as fitting ten or so


def n_shares(sample: Sample) -> int:
    """Return among how many threads of a cluster the predictors are shared; 1 for rows that stay where they are."""
    if sample.client is None:
        return 1
    return max(1, min(n_threads(sample.client), sample.codes.shape[1] // APART))


def by_nodes(sample: Sample, layout: Layout, precision: str, prior_count: float) -> Callable:
    """Return the solver of rows that all workers get, as `by_lbfgs` does: a predictor's fit is the same to the bit."""
    client, plain_sample = sample.client, Sample(sample.codes, sample.weights)
    rows, shares = remote_value(client, plain_sample), n_shares(sample)

    def solve(engine, sample, layout, lambda_, lambdah, site_theta, sites, workers) -> Callable:
        worker_arguments = remote_value(client, (engine, layout, precision, lambda_, lambdah, site_theta.copy()))
        tasks = [call(client, _share, rows, worker_arguments, prior_count, (k, shares)) for k in range(shares)]
        for share_predictors, theta, solver_report in client.gather(tasks):
            site_theta[np.isin(np.repeat(np.arange(layout.m), np.diff(layout.start)), share_predictors)] = theta
            for name, values in vars(solver_report).items():
                getattr(sites, name)[share_predictors] = values[share_predictors]

        def normaliser(half: bool) -> float:
            with serial_blas():
                return log_normaliser(prepared(plain_sample, layout, precision, prior_count), layout, site_theta, half)

        return normaliser

    return solve


def _share(rows: Sample, told: tuple, prior_count: float, share: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return which predictors a worker has fitted, their rows of the solution, and what the solver reports."""
    engine, layout, precision, lambda_, lambdah, start = told
    theta, sites = start.copy(), Sites(layout.m)
    problem = prepared(rows, layout, precision, prior_count)
    by_lbfgs(problem, precision)(engine, rows, layout, lambda_, lambdah, theta, sites, 1, share=share)
    tasks = np.split(problem.order, range(problem.lanes, layout.m, problem.lanes))[share[0] :: share[1]]
    predictors = np.sort(np.concatenate([np.zeros(0, dtype=np.intp), *tasks]))
    return predictors, theta[np.isin(np.repeat(np.arange(layout.m), np.diff(layout.start)), predictors)], sites
