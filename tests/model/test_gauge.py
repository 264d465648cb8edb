"""Gauges: the same model in simplex coding and in the reference gauge; variances of linear maps."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import states

from bbl.model.gauge import (
    contrasts,
    reference_covariance,
    reference_variance,
    scale_variance,
    simplex_gradient,
    to_reference,
    to_simplex,
    zero_sum,
)
from bbl.model.layout import Layout


def simplex_energy(layout, simplex, x):
    """Return ``sum_i (C_i b_i)(x_i) + sum_ij (C_i B_ij C_j')(x_i, x_j)`` of every row, term by
    term.
    """
    total = np.zeros(len(x))
    for i in range(layout.m):
        total += (contrasts(layout.n_levels[i]) @ layout.table(simplex, i))[x[:, i]]
    for i, j in layout.pairs:
        table = (
            contrasts(layout.n_levels[i])
            @ layout.table(simplex, i, j)
            @ contrasts(layout.n_levels[j]).T
        )
        total += table[x[:, i], x[:, j]]
    return total


def reference_energy(layout, theta, x):
    total = np.zeros(len(x))
    for i in range(layout.m):
        total += np.append(0.0, layout.table(theta, i))[x[:, i]]
    for i, j in layout.pairs:
        total += np.pad(layout.table(theta, i, j), ((1, 0), (1, 0)))[x[:, i], x[:, j]]
    return total


def matrix(layout):
    return to_reference(layout, np.eye(layout.size)).T


LAYOUTS = [
    Layout([2, 3, 4]),
    Layout([3, 1, 2, 4, 2], [(0, 1), (2, 0), (3, 4), (2, 4)]),
    Layout([2, 3], []),
]


@pytest.mark.parametrize("L", [2, 3, 4, 21])
def test_contrasts_are_corners_of_a_simplex(L):
    C = contrasts(L)
    assert_allclose(C.sum(axis=0), 0.0, atol=1e-13)
    assert_allclose(C.T @ C, L / (L - 1) * np.eye(L - 1), atol=1e-13)
    assert_allclose(C @ C.T, (L * np.eye(L) - 1.0) / (L - 1), atol=1e-13)
    np.testing.assert_array_equal(contrasts(2), [[-1.0], [1.0]])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_energies_in_both_gauges_differ_by_a_constant(layout):
    simplex = np.random.default_rng(1).normal(size=layout.size)
    x = states(layout.n_levels)
    difference = simplex_energy(layout, simplex, x) - reference_energy(
        layout, to_reference(layout, simplex), x
    )
    assert np.ptp(difference) < 1e-12


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_there_and_back_again_with_leading_axes(layout):
    simplex = np.random.default_rng(2).normal(size=(3, 2, layout.size))
    theta = to_reference(layout, simplex)
    assert_allclose(to_simplex(layout, theta), simplex, atol=1e-13)
    assert_allclose(theta[1, 0], to_reference(layout, simplex[1, 0]), atol=1e-14)
    for i, j in layout.pairs:
        full = np.pad(layout.table(theta[0, 0], i, j), ((1, 0), (1, 0)))
        C, R = contrasts(layout.n_levels[i]), contrasts(layout.n_levels[j])
        assert_allclose(zero_sum(full), C @ layout.table(simplex[0, 0], i, j) @ R.T, atol=1e-13)


def test_binary_predictors_are_ising_spins():
    layout = Layout([2] * 4)
    h, J = (
        np.random.default_rng(3).normal(size=(2, 4)),
        np.random.default_rng(4).normal(size=(2, 6)),
    )
    theta = to_reference(layout, np.concatenate([h, J], axis=1))
    assert_allclose(theta[:, 4:], 4 * J)
    full = np.zeros((2, 4, 4))
    full[:, layout.pairs[:, 0], layout.pairs[:, 1]] = J
    assert_allclose(theta[:, :4], 2 * h - 2 * (full + full.transpose(0, 2, 1)).sum(axis=-1))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_and_covariances_follow_the_matrix_of_the_map(layout):
    A, rng = matrix(layout), np.random.default_rng(5)
    g, variance = rng.normal(size=(2, layout.size)), rng.random((2, layout.size))
    assert_allclose(simplex_gradient(layout, g), g @ A, atol=1e-12)
    assert_allclose(reference_variance(layout, variance), variance @ (A**2).T, atol=1e-12)
    root = rng.normal(size=(layout.size, layout.size))
    assert_allclose(
        reference_covariance(layout, root @ root.T), A @ root @ root.T @ A.T, atol=1e-10
    )


@pytest.mark.parametrize("layout", LAYOUTS[:2], ids=str)
@pytest.mark.long
def test_the_variance_of_products_of_scales_and_normals_is_that_of_draws(layout):
    rng, n = np.random.default_rng(6), 200_000
    mean, sd = rng.normal(size=layout.size), rng.uniform(0.2, 1.0, layout.size)
    groups = np.repeat(
        np.arange(layout.m + len(layout.pairs)), np.diff([*layout.start, *layout.pair_start[1:]])
    )
    scale_mean, scale_sd = rng.uniform(0.5, 1.5, (2, groups.max(initial=0) + 2))[
        :, : layout.m + len(layout.pairs)
    ]
    scales = scale_mean + scale_sd * rng.standard_normal((n, len(scale_mean)))
    draws = to_reference(
        layout, scales[:, groups] * (mean + sd * rng.standard_normal((n, layout.size)))
    )
    second = scale_mean**2 + scale_sd**2
    closed = reference_variance(layout, second[groups] * sd**2) + scale_variance(
        layout, mean, scale_sd**2
    )
    assert_allclose(closed, draws.var(axis=0), rtol=0.02)


def test_terms_of_three_predictors_have_no_such_gauge():
    layout = Layout([2, 2, 2], [(0, 1, 2)])
    with pytest.raises(ValueError, match="pairs"):
        to_reference(layout, np.zeros(layout.size))


def test_the_map_and_the_variances_are_those_of_another_program(shared):
    stored = json.loads((shared / "data/posterior/toyC_group_L233.json").read_text())
    layout = Layout(stored["L"])
    assert_allclose(matrix(layout), stored["map_to_ref"], atol=1e-9)
    assert_allclose(
        np.sqrt(reference_variance(layout, np.square(stored["mfvi_sd"]))),
        stored["ref_mfvi_sd"],
        rtol=1e-4,
    )
