"""Fits that begin at the solution for other weights end where fits from nothing do, in fewer
steps.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.engines import ENGINES, Conditional, MaximumLikelihood, PseudoLikelihood
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

LEVELS = np.array([2, 3, 2, 2])
PAIRS = [(0, 1), (1, 2), (2, 3), (0, 3)]  # a ring: no closed form
FITS = {
    "pseudo": PseudoLikelihood(0.0),
    "pseudo, penalised": PseudoLikelihood(1e-3),
    "pseudo, zero-sum": PseudoLikelihood(1e-3, gauge="zero-sum"),
    "ml": MaximumLikelihood(),
    "ml, penalised": MaximumLikelihood(1e-3, prior_count=1.0),
}


def draw(n=400, seed=0, K=3):
    rng = np.random.default_rng(seed)
    shared = rng.random(n)
    columns = [
        np.minimum((L * (0.5 * shared + 0.5 * rng.random(n))).astype(int), L - 1) for L in LEVELS
    ]
    weights = rng.uniform(0.5, 2.0, n)
    return Sample(
        np.column_stack(columns).astype(np.uint8),
        weights,
        (K * (0.3 * shared + 0.7 * rng.random(n))).astype(np.intp),
    )


def jackknifed(rows):
    return rows.weighted(np.where(np.arange(rows.n) < rows.n // 10, 0.0, rows.weights * 10 / 9))


ROWS = draw()
GAPS = Sample(
    ROWS.codes, ROWS.weights, missing=np.random.default_rng(1).random(ROWS.codes.shape) < 0.05
)


@pytest.mark.parametrize("rows", [ROWS.pooled, GAPS], ids=["complete", "missing"])
@pytest.mark.parametrize("name", FITS)
def test_the_start_does_not_matter(name, rows):
    engine, layout = FITS[name], Layout(LEVELS, PAIRS)
    assert engine.takes_start
    full = engine.fit(rows.collapsed(LEVELS), layout).theta
    replicate = jackknifed(rows).collapsed(LEVELS)
    cold, warm = engine.fit(replicate, layout), engine.fit(replicate, layout, start=full)
    assert np.abs(warm.theta - full).max() > 1e-3
    np.testing.assert_allclose(warm.theta, cold.theta, rtol=0, atol=1e-7)
    assert warm.n_iter.sum() < cold.n_iter.sum()


def test_a_junction_tree_takes_a_start(monkeypatch):
    monkeypatch.setattr("bbl.engines.likelihood.solve.MAX_STATES", 1)
    engine, layout, replicate = (
        MaximumLikelihood(),
        Layout(LEVELS, PAIRS),
        jackknifed(ROWS.pooled).collapsed(LEVELS),
    )
    full = engine.fit(ROWS.pooled.collapsed(LEVELS), layout).theta
    cold, warm = engine.fit(replicate, layout), engine.fit(replicate, layout, start=full)
    np.testing.assert_allclose(warm.theta, cold.theta, rtol=0, atol=1e-7)
    assert warm.n_iter.sum() < cold.n_iter.sum()


@pytest.mark.parametrize("case", ["overlap", "separated", "empty group"])
def test_all_groups_together_take_a_start(case):
    engine, layout, K = Conditional(0.0), Layout(LEVELS, [(0, 1)]), 3
    rows = draw()
    y = rows.response
    if case == "separated":  # group 2 has one level of a predictor only
        y = np.where((rows.codes[:, 1] == 0) & (y == 2), 0, y)
    rows = Sample(rows.codes, rows.weights, y)
    full, replicate = engine.maximum(rows, layout, K), jackknifed(rows)
    if case == "empty group":
        replicate = replicate.weighted(np.where(replicate.response == 0, 0.0, replicate.weights))
    cold = engine.maximum(replicate, layout, K)
    warm = engine.maximum(replicate, layout, K, full.coefficients)
    assert warm.maximum.n_iter < cold.maximum.n_iter
    Z = np.column_stack([np.ones(5), np.random.default_rng(0).integers(0, 2, (5, layout.size))])
    determined = np.array([cold.determined(g, cold.reference) for g in range(K)])
    np.testing.assert_array_equal(
        np.array([warm.determined(g, warm.reference) for g in range(K)]), determined
    )
    np.testing.assert_allclose(
        warm.coefficients[determined], cold.coefficients[determined], atol=1e-8
    )
    if case != "separated":
        np.testing.assert_allclose(warm.probabilities(Z), cold.probabilities(Z), atol=1e-9)
    assert warm.log_likelihood == pytest.approx(cold.log_likelihood, rel=1e-12)


def test_engines_that_take_no_start_are_refitted_all_the_same():
    assert {name for name, engine in ENGINES.items() if engine.takes_start} == {"pseudo", "ml"}
    data = pd.DataFrame(ROWS.codes, columns=list("abcd")).assign(
        y=ROWS.y, w=ROWS.weights, psu=np.arange(400) % 20
    )
    fit = bbl.bbl(
        "y ~ a + b",
        data,
        design=bbl.survey("w", cluster="psu", type="JK1"),
        method="naive",
        verbose=0,
    )
    assert np.isfinite(fit.avg_comparisons(verbose=0).frame["std_error"]).all()


def test_replicates_and_covariances_begin_at_the_fit(monkeypatch):
    """Newton's method would take seven steps or so from zero."""
    data = pd.DataFrame(ROWS.codes, columns=list("abcd")).assign(
        y=ROWS.y, w=ROWS.weights, psu=np.arange(400) % 20
    )
    design = bbl.survey("w", cluster="psu", type="JK1")
    steps, maximise = [], bbl.engines.conditional.maximum.maximise

    def counted(*arguments):
        found = maximise(*arguments)
        steps.append(found.n_iter)
        return found

    monkeypatch.setattr("bbl.engines.conditional.maximum.maximise", counted)
    fit = bbl.bbl("y ~ a + b", data, design=design, method="conditional", ridge=0, verbose=0)
    fit.avg_comparisons(verbose=0)
    fit.conf_int()
    assert len(steps) > 40 and max(steps[1:]) < steps[0] and min(steps[1:]) <= 2
