"""Which predictors have a finite optimum without a penalty: proofs by curvature against Newton's method."""

from collections import Counter

import numpy as np
import pytest

from bbl.engines import PseudoLikelihood
from bbl.model.layout import Layout
from bbl.model.regressors import regressors
from bbl.model.unpenalised import ADRIFT, near_optimum, unpenalised
from bbl.rows.sample import Sample


def rows_of(rng, kind):
    """Draw rows of which predictor 0 depends on predictor 1: not at all, wholly, or wholly but in a few rows."""
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
def test_what_curvature_proves_finite_newtons_method_finds_finite(kind):
    """Every verdict of `near_optimum` is that of Newton's method, which it stands in for."""
    rng, seen = np.random.default_rng(len(kind)), Counter()
    for _ in range(24):
        sample, L = rows_of(rng, kind)
        layout = Layout(L, [[(0, 1), (0, 1, 2), (2, 3)], None][rng.integers(2)])
        engine = PseudoLikelihood(
            lambda_=0.0 if layout.order == 2 else (0.0, 0.0), tolerance=10.0 ** -rng.integers(3, 11)
        )
        rows = engine.prepare(sample.collapsed(L), layout)
        site_theta = engine.fit(rows, layout).site_theta
        _, determined = unpenalised(rows, layout, site_theta, at_rest=ADRIFT)
        for i, proved in near_optimum(rows, layout, site_theta, range(layout.m)).items():
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
    assert near_optimum(sample, layout, fit.site_theta, [0, 1, 2]) == {0: True, 1: True, 2: True}
    away = fit.site_theta.copy()
    away[0, 0] += 1.0
    assert near_optimum(sample, layout, away, [0, 1, 2]) == {0: False, 1: True, 2: True}
