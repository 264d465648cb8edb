"""Newton's method for sites whose reference level never occurs."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import bbl
from bbl._ext.pseudo import newton
from bbl.model.gauge import penalty_metric
from bbl.model.layout import Layout
from tests.reference import site_design, site_objective

L = [4, 3, 2]


def rows(seed=0, n=40):
    """Return codes and weights of rows without the first level of the first predictor."""
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, k, n) for k in L])
    codes[:, 0] = rng.integers(1, L[0], n)
    return codes.astype(np.uint8), rng.random(n) + 0.1


def solved(codes, weights, penalty, linear=None, metric=None):
    """Return the solution of all sites and their objectives."""
    layout = Layout(L)
    theta = np.zeros((layout.D, 1 + layout.D))
    value, norm = np.zeros((2, len(L)))
    n_iter, status = np.zeros((2, len(L)), dtype=np.int32)
    mask = (~np.eye(len(L), dtype=bool)).view(np.uint8)
    sites = np.arange(len(L), dtype=np.int32)
    rows = (codes, weights, weights.sum(), layout.start, mask, sites)
    reports = (value, norm, n_iter, status)
    newton.solve_sites(*rows, penalty, 0.0, 1e-10, 100, theta, *reports, linear, metric)
    assert not status.any()
    return theta, value


def test_penalties_and_linear_terms_are_those_of_the_reference_gauge():
    codes, weights = rows()
    D = Layout(L).D
    linear = np.random.default_rng(1).normal(scale=0.05, size=(D, 1 + D))
    theta, value = solved(codes, weights, np.r_[0.2, np.full(D, 0.1)], linear)
    X = site_design(codes, L, None, 0)
    used = np.r_[0, np.arange(L[0], 1 + D)]  # the constant, and the columns of other predictors
    found, slopes = theta[: L[0] - 1, used], linear[: L[0] - 1, used]
    least, gradient, _ = site_objective(found, X, codes[:, 0], weights, 0.1, 0.2)
    assert_allclose(gradient, slopes, atol=1e-13)
    assert value[0] == pytest.approx(least - (found * slopes).sum(), rel=1e-13)


def test_penalties_in_the_zero_sum_gauge_do_not_depend_on_the_reference_level():
    codes, weights = rows()
    metric = penalty_metric(Layout(L), 0.1, 0.2)
    theta, value = solved(codes, weights, np.zeros(len(metric)), metric=metric)
    exchanged = codes.copy()
    exchanged[:, 0] = np.array([1, 0, 2, 3])[codes[:, 0]]
    other, other_value = solved(exchanged, weights, np.zeros(len(metric)), metric=metric)
    assert_allclose(value, other_value, rtol=1e-13)
    assert_allclose(theta[0], -other[0], atol=1e-12)
    assert_allclose(theta[1:3], other[1:3] - other[0], atol=1e-12)


@pytest.mark.filterwarnings("ignore::bbl.errors.DataWarning")
@pytest.mark.filterwarnings("ignore::bbl.errors.ConvergenceWarning")
def test_levels_that_never_occur_have_equal_fields_whatever_the_scale_of_weights():
    data = pd.DataFrame({"x": ["v2", "v1"]})
    found = []
    for scale in (1.0, 0.0005312, 344229.0):
        weights = scale * np.array([1.5, 4.5])
        fit = bbl.bbl("~ x", data, weights, xlevels={"x": ["v0", "v1", "v2", "v3"]}, verbose=0)
        found.append(fit.estimate.parameters.theta[0])
    assert_allclose(found[0][[0, 2]], [found[0][1] + np.log(3.0), 0.0], atol=1e-12)
    assert_allclose(found[1:], found[:1] * 2, rtol=1e-12, atol=1e-12)
