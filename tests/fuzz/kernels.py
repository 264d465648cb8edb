"""Any codes, levels and weights into the kernels, through the checks that stand before them."""

import numpy as np

from bbl._ext.pseudo.plan import widths
from bbl._ext.pseudo.pseudo import PseudoProblem, memory_estimate
from bbl.api.machine.onegroup import _coded_sample
from bbl.engines.pseudo.engine import PseudoLikelihood
from bbl.engines.pseudo.solvers import Sites, solve_by_newton
from bbl.errors import DataError
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.model.moments import one_hot, pair_counts
from bbl.model.regressors import to_matrix
from fuzz.harness import ODD

DTYPES = ("u1", "u1", "u2", "i4", "i1", "i2", "u4", "i8", "u8", "f4", "f8", "?")
WIDE = 600  # non-reference levels; larger ones only cost time


def kernels(source) -> None:
    """Pass one drawn problem to one drawn kernel; closed forms check what comes back."""
    kernel = source.pick((energy, moments, newton, pseudo))
    n, m = source.pick((*range(10), 70)), source.integer(1, 9)
    L = None if source.maybe(2) else [source.integer(0, 5) for _ in range(m)]
    if L and source.maybe(8):
        L[0] = source.pick((*ODD, 300, 2.5, -1.0, float("nan"), float("inf"), "x", None))
    xi = source.array(source.pick(DTYPES), n, m)
    if not source.maybe(4) and xi.dtype != bool:
        xi = xi % xi.dtype.type(3)
    weights = (
        None
        if source.maybe(2)
        else source.array(source.pick(("u1", "i8", "f8")), n + source.maybe(16))
    )
    if kernel is pseudo:
        L = [source.integer(1, 5) for _ in range(m)]
        xi = source.array(source.pick(("u1", "u2", "i4")), n, m) % source.pick((3, 3, 120))
        return pseudo(source, xi, np.ones(n) if weights is None else weights, L)
    missing = source.pick(("raise", "drop", "level", "marginal"))
    sample, n_levels = _coded_sample(xi, weights, L, missing, PseudoLikelihood())
    assert sample.n and (sample.codes >= 0).all() and (sample.codes < n_levels).all()
    layout = Layout(
        n_levels,
        [p for p in source.array("u1", 3, 2) % m if p[0] != p[1]] if source.maybe(4) else None,
    )
    if layout.D <= WIDE:
        kernel(source, sample, layout)


def energy(source, sample, layout) -> None:
    """The energies are sums over a row's columns and pairs of columns."""
    theta = source.array("f8", source.integer(1, 3), min(layout.size, 64))
    theta = np.resize(
        np.nan_to_num(theta, posinf=1e9, neginf=-1e9).clip(-1e9, 1e9), (len(theta), layout.size)
    )
    X = one_hot(sample.codes, layout)
    truth = [X @ t[: layout.D] + ((X @ to_matrix(layout, t)[1]) * X).sum(axis=1) / 2 for t in theta]
    np.testing.assert_allclose(energies(sample.codes, layout, theta).T, truth, rtol=1e-9, atol=1e-3)


def moments(source, sample, layout) -> None:
    """The counts are products of indicators."""
    X = one_hot(sample.codes, layout)
    np.testing.assert_array_equal(pair_counts(sample, layout), X.T @ (X * sample.weights[:, None]))


def options(source) -> PseudoLikelihood:
    """Draw penalties and limits; what is out of range is refused."""
    lambda_, lambdah, tolerance = source.array("f8", 3).tolist()
    return PseudoLikelihood(
        lambda_=lambda_, lambdah=lambdah, tolerance=tolerance, itmax=source.integer(0, 9)
    )


def newton(source, sample, layout) -> None:
    """What comes back is finite, and a status that there is."""
    o, sites = options(source), Sites(layout.m)
    theta = np.zeros((layout.D, 1 + layout.D))
    if layout.D <= 64:
        solve_by_newton(o, sample, layout, o.lambda_, o.lambdah, theta, sites, 1)
    assert np.isfinite(theta).all() and set(sites.status) <= {0, 1, 2, 3}


def pseudo(source, codes, weights, n_levels) -> None:
    """Unchecked arrays, since the problem checks its own; every width, the objective where it ends,
    and its value.
    """
    o = options(source)
    mask = (
        source.array("u1", len(n_levels), len(n_levels)) % 2
        if source.maybe(4)
        else np.ones([len(n_levels)] * 2)
    )
    mask = np.maximum(mask, mask.T)
    try:
        width, precision = (
            source.pick((None, *widths())),
            source.pick(("double", "mixed", "single")),
        )
        assert min(memory_estimate(len(codes), np.maximum(n_levels, 2), width, precision)) > 0
        problem = PseudoProblem(codes, weights, n_levels, mask, width, precision)
    except ValueError as error:  # a documented one
        raise DataError(str(error)) from None
    theta = problem.start()
    task = source.integer(0, problem.n_tasks - 1)
    found = problem.solve(task, o.lambda_, o.lambdah, o.tolerance, o.itmax, theta)
    assert set(found["status"]) <= {0, 1, 2, 3}
    finite = np.isfinite(theta).all()
    # weights of 1e-300 or 1e300 add up to 0 or infinity
    assert finite or (found["status"] == 3).any()
    if finite and source.maybe(4):
        linear = None if source.maybe(2) else 0.1 * theta
        value, gradient = problem.objective(theta, o.lambda_, o.lambdah, linear=linear)
        assert value.shape == (len(n_levels),) and gradient.shape == theta.shape
        problem.log_normaliser(theta, source.maybe(2))
