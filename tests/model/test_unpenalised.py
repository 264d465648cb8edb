"""Which predictors have a finite optimum without a penalty: proofs by curvature against Newton's
method.
"""

from collections import Counter

import numpy as np
import pytest

from bbl.engines import PseudoLikelihood
from bbl.model import unpenalised as module
from bbl.model.layout import Layout
from bbl.model.regressors import regressors
from bbl.model.unpenalised import (
    DIVERGING_STEP,
    prove_near_optimum,
    unbounded_parameters,
    unpenalised,
)
from bbl.rows.sample import Sample


def rows_of(rng, kind):
    """Draw rows of which predictor 0 depends on predictor 1: not at all, wholly, or wholly but in a
    few rows.
    """
    L, n = rng.integers(2, 4, 4), int(rng.choice([20, 80, 300]))
    codes = rng.integers(0, 12, (n, 4)) % L
    if kind != "free":
        codes[:, 0] = codes[:, 1] % L[0]
    if kind == "nearly separated":
        few = rng.random(n) < 0.05
        codes[few, 0] = (codes[few, 0] + 1) % L[0]
    weights = [np.ones(n), 10.0 ** rng.integers(0, 9, n)][rng.integers(2)]
    missing = rng.random((n, 4)) < 0.05 if rng.random() < 0.3 else None
    if missing is not None:
        codes[missing] = 0
    return Sample(codes.astype(np.uint8), weights, None, missing), L


@pytest.mark.parametrize("kind", ["free", "separated", "nearly separated"])
@pytest.mark.long
def test_what_curvature_proves_finite_newtons_method_finds_finite(kind):
    """Every verdict of `prove_near_optimum` is that of Newton's method, which it stands in for."""
    rng, seen = np.random.default_rng(len(kind)), Counter()
    for _ in range(24):
        sample, L = rows_of(rng, kind)
        layout = Layout(L, [[(0, 1), (0, 1, 2), (2, 3)], None][rng.integers(2)])
        engine = PseudoLikelihood(
            lambda_=0.0 if layout.order == 2 else (0.0, 0.0), tolerance=10.0 ** -rng.integers(3, 11)
        )
        rows = engine.prepare(sample.collapsed(L), layout)
        site_theta = engine.fit(rows, layout).site_theta
        _, determined = unpenalised(rows, layout, site_theta, tol=DIVERGING_STEP)
        for i, proved in prove_near_optimum(rows, layout, site_theta, range(layout.m)).items():
            own = slice(layout.start[i], layout.start[i + 1])
            found = bool(determined[own][:, regressors(layout).columns_of(i)].all())
            assert found or not proved
            seen[proved, found] += 1
    assert seen[True, True] > 5 and seen[False, False] > 5


def test_the_proof_needs_the_gradient_to_be_small():
    """Far from the optimum nothing is said, however good the curvature."""
    codes = np.random.default_rng(3).integers(0, 2, (400, 3)).astype(np.uint8)
    layout, sample = Layout([2, 2, 2]), Sample(codes, np.ones(400)).collapsed([2, 2, 2])
    fit = PseudoLikelihood(lambda_=0.0).fit(sample, layout)
    assert prove_near_optimum(sample, layout, fit.site_theta, [0, 1, 2]) == {
        0: True,
        1: True,
        2: True,
    }
    away = fit.site_theta.copy()
    away[0, 0] += 1.0
    assert prove_near_optimum(sample, layout, away, [0, 1, 2]) == {0: False, 1: True, 2: True}


@pytest.mark.long
def test_levels_that_parameters_tell_in_every_row_need_no_newton_steps(monkeypatch):
    """More predictors than rows: each is told by the others, and Newton's method would take minutes
    to say so.
    """
    rng, m = np.random.default_rng(0), 120
    codes = rng.integers(0, 3, (60, m)).astype(np.uint8)
    codes[:, 5] = (codes[:, 2] + 1) % 3
    layout, sample, asked = Layout(np.full(m, 3)), Sample(codes, np.ones(60)), []
    newton = module.unpenalised
    monkeypatch.setattr(
        module, "unpenalised", lambda *told, **more: asked.append(told[3]) or newton(*told, **more)
    )
    fit = PseudoLikelihood(lambda_=0.0).fit(sample.collapsed(layout.n_levels), layout)
    assert [len(one) for one in asked] == [0]
    assert [i for i, *_ in fit.unbounded] == list(range(m)) and not fit.converged.any()
    assert fit.unbounded[2][2] == 5 and fit.unbounded[5][2] == 2  # the coupling with the copy


def test_a_predictor_that_few_rows_leave_in_doubt_is_named_by_newtons_method():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, (300, 4)).astype(np.uint8)
    codes[:, 0] &= codes[:, 1]  # never alone: quasi-complete separation
    layout, sample = Layout([2, 2, 2, 2]), Sample(codes, np.ones(300)).collapsed([2, 2, 2, 2])
    site_theta = PseudoLikelihood(lambda_=0.0).fit(sample, layout).site_theta
    assert unbounded_parameters(sample, layout, site_theta, 1000) == ((0, 1, 1, 1), (1, 1, 0, 1))
    assert module._find_separated_sites(sample, layout, site_theta, [0, 1]) == set()


def test_all_usable_rows_are_considered_although_a_neighbour_is_not_usable_there():
    """Two rare combinations keep a strong coupling finite. Predictor 2 is missing in their rows, so
    its neighbour, predictor 1, is fitted without them, but predictor 0 is not.
    """
    codes = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1], [0, 1, 0], [1, 0, 0]], np.uint8)
    weights = np.array([1e5, 1e5, 1e5, 1e5, 1.0, 1.0])
    missing = np.zeros(codes.shape, dtype=bool)
    missing[4:, 2] = True
    layout = Layout([2, 2, 2], [(0, 1), (1, 2)])
    fit = PseudoLikelihood(lambda_=0.0).fit(Sample(codes, weights, None, missing), layout)
    assert fit.site_theta[0, 2] > 20.0
    assert fit.unbounded == ((1, 1, 0, 1),) and fit.converged.tolist() == [True, False, True]
