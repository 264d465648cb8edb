"""The linear term of pseudo-likelihood objectives, and problems that are one block of more rows."""

import numpy as np
import pytest

from bbl._ext.pseudo import newton
from bbl._ext.pseudo.plan import widths
from bbl._ext.pseudo.pseudo import PseudoProblem
from tests.ext.test_pseudo import design, example, fit, free_columns, oracle


def slope(seed, theta, n_levels, mask):
    """A linear term of the size of a gradient, with numbers where no parameters are too."""
    return 0.05 * np.random.default_rng(seed).normal(size=theta.shape)


def free(theta, n_levels, mask):
    """Where theta has parameters."""
    start, _ = design(n_levels)
    out = np.zeros(theta.shape, dtype=bool)
    for i in range(len(n_levels)):
        out[np.ix_(np.arange(start[i], start[i + 1]), free_columns(n_levels, mask, i))] = True
    return out


@pytest.mark.parametrize("width", widths())
@pytest.mark.parametrize("seed", range(4))
def test_linear_term_is_taken_off_objective_and_gradient(seed, width):
    codes, weights, n_levels, mask, theta = example(seed, density=[0.15, 0.7, 1.0][seed % 3])
    linear, used = slope(seed, theta, n_levels, mask), free(theta, n_levels, mask)
    start, _ = design(n_levels)
    value, gradient = oracle(codes, weights, n_levels, mask, theta, 0.1, 0.2)
    taken = np.add.reduceat((theta * linear).sum(axis=1), start[:-1])
    got = PseudoProblem(codes, weights, n_levels, mask, width=width).objective(
        theta, 0.1, 0.2, linear=linear
    )
    np.testing.assert_allclose(got[0], value - taken, rtol=1e-12)
    np.testing.assert_allclose(
        got[1], gradient - np.where(used, linear, 0.0), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("precision", ["double", "single"])
def test_gradient_with_linear_term_is_that_of_finite_differences(precision):
    codes, weights, n_levels, mask, theta = example(3, n=300, m=5, most=5, density=1.0)
    linear = slope(3, theta, n_levels, mask)
    double = PseudoProblem(codes, weights, n_levels, mask)
    gradient = PseudoProblem(codes, weights, n_levels, mask, precision=precision).objective(
        theta, 0.1, 0.2, linear=linear
    )[1]
    step, rows, cols = 1e-5, *np.nonzero(theta)
    for row, col in zip(rows[::7], cols[::7], strict=True):
        ends = []
        for sign in (1, -1):
            moved = theta.copy()
            moved[row, col] += sign * step
            ends.append(double.objective(moved, 0.1, 0.2, linear=linear)[0].sum())
        numeric = (ends[0] - ends[1]) / (2 * step)
        assert gradient[row, col] == pytest.approx(
            numeric, abs=1e-8 if precision == "double" else 1e-5
        )


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("width", widths())
def test_both_solvers_end_where_the_gradient_is_the_linear_term(width, precision):
    codes, weights, n_levels, mask, theta = example(5, n=400, m=6, most=4, density=0.7)
    linear, used = slope(5, theta, n_levels, mask), free(theta, n_levels, mask)
    found, out = fit(
        PseudoProblem(codes, weights, n_levels, mask, width, precision), 0.1, 0.2, linear=linear
    )
    assert (out["status"] == 0).all()
    start, D = design(n_levels)
    other, m = PseudoProblem(codes, weights, n_levels, mask).start(), len(n_levels)
    value, norm, n_iter, status = (
        np.zeros(m),
        np.zeros(m),
        np.zeros(m, dtype=np.int32),
        np.zeros(m, dtype=np.int32),
    )
    newton.solve_sites(
        codes,
        weights.astype(float),
        float(weights.sum()),
        start.astype(np.intp),
        np.ascontiguousarray(mask).view(np.uint8),
        np.arange(m, dtype=np.int32),
        np.append(0.2, np.full(D, 0.1)),
        0.0,
        1e-10,
        100,
        other,
        value,
        norm,
        n_iter,
        status,
        linear,
    )
    np.testing.assert_allclose(found, other, atol=1e-9)
    np.testing.assert_allclose(out["value"], value, rtol=1e-12)
    gradient = oracle(codes, weights, n_levels, mask, other, 0.1, 0.2)[1]
    np.testing.assert_allclose(gradient[used], linear[used], atol=1e-12)


def test_linear_term_of_zeros_changes_no_bit():
    codes, weights, n_levels, mask, theta = example(7, n=500, m=9)
    problem = PseudoProblem(codes, weights, n_levels, mask)
    without, with_zeros = fit(problem, 1e-3)[0], fit(problem, 1e-3, linear=np.zeros_like(theta))[0]
    assert without.tobytes() == with_zeros.tobytes()


@pytest.mark.parametrize("prior_count", [0.0, 3.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_uncounted_blocks_and_moments_of_all_rows_are_the_whole(seed, prior_count):
    codes, weights, n_levels, mask, theta = example(seed, n=700, m=8)
    whole = PseudoProblem(codes, weights, n_levels, mask, prior_count=prior_count)
    value, gradient = whole.objective(theta, 0.0, 0.0)
    none = np.zeros_like(theta)
    independent = PseudoProblem(codes, weights, n_levels, mask, counted=False).objective(
        none, 0.0, 0.0
    )[1]
    moments = independent - whole.objective(none, 0.0, 0.0)[1]
    start, _ = design(n_levels)
    sums, rest = np.zeros_like(value), np.zeros_like(gradient)
    for first in range(0, 700, 150):
        part = slice(first, first + 150)
        block = PseudoProblem(codes[part], weights[part], n_levels, mask, counted=False)
        assert block.metric == "blocks"
        share = weights[part].sum() / weights.sum()
        own = [block.objective(theta, 0.0, 0.0, tasks=[t]) for t in range(block.n_tasks)]
        sums += share * np.sum([each[0] for each in own], axis=0)
        rest += share * np.sum([each[1] for each in own], axis=0)
    np.testing.assert_allclose(rest - moments, gradient, atol=1e-14)
    np.testing.assert_allclose(
        sums - np.add.reduceat((theta * moments).sum(axis=1), start[:-1]), value, rtol=1e-13
    )


def test_linear_terms_and_tasks_that_do_not_fit_are_refused():
    codes, weights, n_levels, mask, theta = example(2, n=100, m=4)
    problem = PseudoProblem(codes, weights, n_levels, mask)
    with pytest.raises(ValueError, match="linear must have shape"):
        problem.objective(theta, 0.1, 0.1, linear=theta[:, 1:].copy())
    with pytest.raises(ValueError, match="nothing to minimise"):
        PseudoProblem(codes, weights, n_levels, mask, counted=False).solve(
            0, 0.1, 0.1, 1e-6, 9, theta.copy()
        )
    with pytest.raises(ValueError, match="tasks must lie between"):
        problem.objective(theta, 0.1, 0.1, tasks=[problem.n_tasks])
