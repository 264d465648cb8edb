"""Replicate weights that are made of the clusters of a plan, against linearised covariances of
totals.
"""

import numpy as np
import pytest

from bbl.stats.survey.plan import SamplingPlan
from bbl.stats.survey.replicates import Replicates, make_replicates

N_STRATA, SIZE = 5, 7


def pairs(n_clusters=2, population=None):
    """A plan of strata with so many clusters each, and values of its rows."""
    rng = np.random.default_rng(n_clusters)
    clusters = np.repeat(np.arange(N_STRATA * n_clusters), SIZE)
    strata = clusters // n_clusters
    sizes = None if population is None else (np.full(len(clusters), float(population)),)
    return SamplingPlan(rng.uniform(1, 3, len(clusters)), strata, (clusters,), sizes), rng.normal(
        size=(len(clusters), 3)
    )


def linearised(plan, X):
    totals = np.zeros((plan.n_units, X.shape[1]))
    plan.totals(X * plan.weights[:, None], np.arange(plan.n), totals)
    E = plan.deviations(totals)
    return E.T @ E


def replicated(plan, X, made):
    E = made.deviations(made.weights.T @ X, plan.weights @ X)
    return E.T @ E


@pytest.mark.parametrize(("mse", "least"), [(False, 2), (True, 1)])
def test_too_few_estimates_have_no_covariance(mse, least):
    made, estimates = Replicates(np.ones((4, 3)), 1.0, np.ones(3), mse), np.full((3, 2), np.nan)
    for n in range(1, 4):
        estimates[n - 1] = n
        assert np.isfinite(made.deviations(estimates, np.ones(2))).all() == (n >= least)
    census = Replicates(np.ones((4, 3)), 1.0, np.zeros(3), mse)
    assert (census.deviations(estimates, np.ones(2)) == 0.0).all()


@pytest.mark.parametrize(("kind", "rho"), [("JKn", 0.0), ("BRR", 0.0), ("Fay", 0.3)])
def test_balanced_replicates_have_the_covariance_of_totals(kind, rho):
    plan, X = pairs()
    made = make_replicates(plan, kind, rho=rho)
    mse = Replicates(made.weights, made.scale, made.rscales, mse=True)
    np.testing.assert_allclose(replicated(plan, X, mse), linearised(plan, X), rtol=1e-10)


@pytest.mark.parametrize("population", [None, 20])
def test_a_jackknife_has_the_covariance_of_totals(population):
    plan, X = pairs(6, population)
    made = make_replicates(plan, "JKn")
    mse = Replicates(made.weights, made.scale, made.rscales, mse=True)
    np.testing.assert_allclose(replicated(plan, X, mse), linearised(plan, X), rtol=1e-10)
    single = SamplingPlan(plan.weights, np.zeros(plan.n, dtype=np.intp), plan.clusters)
    np.testing.assert_allclose(
        replicated(single, X, make_replicates(single, "JK1")), linearised(single, X), rtol=1e-10
    )


@pytest.mark.parametrize("population", [None, 20])
def test_a_bootstrap_has_about_the_covariance_of_totals(population):
    plan, X = pairs(6, population)
    made = make_replicates(plan, "bootstrap", 20_000, rng=np.random.default_rng(0))
    truth = linearised(plan, X)
    np.testing.assert_allclose(replicated(plan, X, made), truth, atol=0.05 * truth.diagonal().max())


def test_estimates_that_are_not_finite_count_nothing():
    made = Replicates(np.ones((4, 3)), 1.0, np.ones(3))
    estimates = np.array([[1.0], [np.nan], [3.0]])
    np.testing.assert_allclose(made.deviations(estimates, np.array([2.0])), [[-1.0], [0.0], [1.0]])
