"""Errors of standard errors from a sample of rows: derivatives of variances, and their size."""

from dataclasses import replace

import numpy as np
import pytest

from bbl.engines.pseudo.engine import PseudoLikelihood
from bbl.model.drawn_rows import error_rows, residuals_on_counts
from bbl.model.layout import Layout
from bbl.model.scored_influence import influence_of
from bbl.rows.sample import Sample


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(L, size=n) for L in (3, 2, 4, 2)]).astype(np.uint8)
    return Sample(codes, rng.uniform(0.5, 2.0, n))


@pytest.mark.parametrize(
    ("terms", "scores"),
    [
        (None, None),
        ([(0, 1), (1, 2), (0, 3)], None),
        (None, [np.array([1.0, 2.0]), None, np.array([1.0, 3.0, 4.0]), None]),
    ],
)
def test_changes_of_variances_are_derivatives(terms, scores):
    layout = Layout([3, 2, 4, 2], terms, scores=scores)
    rows = draw(80)
    fit = PseudoLikelihood(0.1).path(rows, layout)[0]

    def moved_influence(weights):
        moved = replace(rows, weights=weights)
        return influence_of(moved, layout, fit.site_theta, 0.1, 0.2)

    def variances(weights):
        return weights @ moved_influence(weights)(rows) ** 2

    changes = moved_influence(rows.weights).variance_changes(rows)
    for k, other in ((0, 1), (20, 70)):
        step = np.zeros(80)
        step[[k, other]] = 1e-5, -1e-5  # the total weight is the same
        slope = (variances(rows.weights + step) - variances(rows.weights - step)) / 2e-5
        np.testing.assert_allclose(changes[k] - changes[other], slope, rtol=1e-5, atol=1e-5)


def test_some_rows_represent_the_others():
    drawn_share = np.where(np.arange(20_000) % 4 == 0, 0.0, 0.9)
    positions, factor = error_rows(drawn_share)
    assert len(np.unique(positions)) == len(positions) == 3072 + 1024
    assert factor[drawn_share[positions] > 0].sum() == pytest.approx(15_000)
    assert factor[drawn_share[positions] == 0].sum() == pytest.approx(5000)
    assert len(error_rows(np.zeros(10))[0]) == 10


def test_functions_of_levels_leave_no_residuals():
    layout = Layout([3, 2, 4, 2])
    rows = replace(draw(200), y=np.arange(200) % 2)
    by_level = np.random.default_rng(1).normal(size=(2, 4, 4))
    values = sum(by_level[rows.y, i, rows.codes[:, i]] for i in range(4))[:, None]
    np.testing.assert_allclose(residuals_on_counts(values.copy(), rows, layout), 0.0, atol=1e-12)
    assert np.abs(residuals_on_counts(values, replace(rows, y=None), layout)).max() > 0.1
