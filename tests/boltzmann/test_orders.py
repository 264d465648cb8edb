"""Standard errors and tests of terms of any order: influences, cells, the bootstrap, and the level
of the Wald test.
"""

import itertools

import numpy as np
import pytest
import reference as oracle

from bbl.boltzmann.inference.significance import Kind, evidence, of_group
from bbl.boltzmann.inference.strata import pair_strata
from bbl.engines import PseudoLikelihood
from bbl.model.godambe import Influence
from bbl.model.higher import split
from bbl.model.layout import Layout
from bbl.model.states import sample_states
from bbl.model.unpenalised import cell_counts, cell_sizes
from bbl.rows.sample import Sample

LEVELS = [2, 3, 2, 2]
TERMS = [(0, 1), (0, 2), (1, 2), (2, 3), (0, 1, 2)]


def drawn(layout, theta, n, seed):
    h, J, more = split(layout, theta)
    codes = sample_states(h, J, layout.n_levels, n, seed, more=more)
    return Sample(codes, np.ones(n)).collapsed(layout.n_levels)


@pytest.fixture(scope="module")
def model():
    layout = Layout(LEVELS, TERMS)
    theta = np.random.default_rng(0).normal(scale=0.4, size=layout.size)
    return layout, theta, drawn(layout, theta, 6000, 1)


@pytest.mark.parametrize("lambda_", [0.0, 0.02, (0.01, 0.2)])
def test_an_influence_is_what_a_row_more_does(model, lambda_):
    layout, _, rows = model
    engine = PseudoLikelihood(lambda_=lambda_, lambdah=0.01, tolerance=1e-13)
    solved = engine.equations(rows, layout)
    psi = Influence(rows, layout, solved.site_theta, solved.lambda_, solved.lambdah)(rows)
    # the share of row k goes up by e, those of all rows down, so that the weights still sum to one
    for k in (0, rows.n // 2):
        e = 1e-4
        w = rows.weights / rows.total
        up, down = (w * (1 - s) + s * (np.arange(rows.n) == k) for s in (e, -e))
        fits = [engine.fit(Sample(rows.codes, v), layout).theta for v in (up, down)]
        np.testing.assert_allclose((fits[0] - fits[1]) / (2 * e), psi[k], rtol=2e-3, atol=2e-4)


def test_cells_are_counted_at_the_reference_of_what_shares_a_term(model):
    layout, _, rows = model
    expected, absent = cell_sizes(rows, layout)
    at, codes, w = 0, rows.codes.astype(int), rows.weights
    for scope in layout.scopes[layout.m :]:
        held = {j for t in TERMS if set(scope) < set(t) for j in t} - set(scope)
        here = (codes[:, sorted(held)] == 0).all(axis=1)
        for levels in itertools.product(*(range(1, LEVELS[i]) for i in scope)):
            cells = np.array(
                [
                    w[here & (codes[:, scope] == np.array(corner) * levels).all(axis=1)].sum()
                    for corner in itertools.product((0, 1), repeat=len(scope))
                ]
            ).reshape((2,) * len(scope))
            assert absent[at] == (cells == 0).any()
            if len(scope) == 2:
                independent = np.outer(cells.sum(axis=1), cells.sum(axis=0)) / cells.sum()
                assert expected[at] == pytest.approx(independent.min())
            at += 1
    assert at == len(expected)
    pairs = Layout(LEVELS, [t for t in TERMS if len(t) == 2])
    np.testing.assert_array_equal(
        cell_sizes(rows, pairs)[1], (cell_counts(rows, pairs) == 0).any(axis=(0, 1))
    )


def test_expected_cells_have_no_three_way_term(model):
    layout, _, rows = model
    tables = oracle.TermFit(
        rows.codes, rows.weights, LEVELS, [t for t in TERMS if len(t) < 3], 0.0
    ).tables
    assert (0, 1, 2) not in tables
    expected, _ = cell_sizes(rows, layout)
    counts = np.zeros(LEVELS)
    np.add.at(counts, tuple(rows.codes.T.astype(int)), rows.weights)
    for at, b in enumerate((1, 2), len(expected) - 2):
        cells = counts[:, [0, b]].sum(axis=3)
        fitted = np.ones((2, 2, 2))
        for _ in range(500):
            for axis in range(3):
                fitted *= cells.sum(axis=axis, keepdims=True) / fitted.sum(axis=axis, keepdims=True)
        assert expected[at] == pytest.approx(fitted.min(), rel=0.01)


def test_pairs_within_a_term_are_tested_at_its_reference(model):
    layout, _, rows = model
    number = pair_strata(rows, layout, 0, 1)
    np.testing.assert_array_equal(number < 0, rows.codes[:, 2] != 0)
    assert (pair_strata(rows, layout, 2, 3) >= 0).all()


def test_verdicts_of_higher_terms(model):
    layout, theta, rows = model
    full = of_group(evidence(rows, layout, theta))
    higher = slice(layout.pair_start[-1], None)
    assert (full.verdict[higher] == Kind.WALD).all()
    few = evidence(drawn(layout, theta, 150, 2), layout, theta)
    assert not np.isin(few.kind[higher], (Kind.WALD, Kind.EXACT)).any()
    apart = Sample(
        rows.codes[~(rows.codes[:, :3] == 1).all(axis=1)],
        rows.weights[~(rows.codes[:, :3] == 1).all(axis=1)],
    )
    assert evidence(apart, layout, theta).kind[higher].tolist() == [Kind.ABSENT, Kind.WALD]
    statistic, df, p, words = full.tables()
    assert len(p) == layout.m + len(TERMS)
    assert df[-1] == 2 and 0 <= p[-1] <= 1 and words[-1] == "Wald"


@pytest.mark.long
def test_standard_errors_are_those_of_a_parametric_bootstrap(model):
    layout, theta, rows = model
    engine = PseudoLikelihood(lambda_=1e-3, lambdah=1e-3)
    fit = engine.fit(rows, layout)
    solved = engine.equations(rows, layout)
    influence = Influence(rows, layout, solved.site_theta, solved.lambda_, solved.lambdah)
    se = np.sqrt(np.concatenate([t.diagonal() for t in influence.terms(rows)]))
    refits = np.array(
        [engine.fit(drawn(layout, fit.theta, 6000, 100 + k), layout).theta for k in range(400)]
    )
    np.testing.assert_allclose(refits.std(axis=0, ddof=1) / se, 1.0, atol=0.12)


@pytest.mark.long
def test_the_wald_test_of_three_holds_its_level(model):
    layout, theta, _ = model
    null = theta.copy()
    null[layout.pair_start[-1] :] = 0.0
    p = []
    for k in range(600):
        tested = of_group(evidence(drawn(layout, null, 2500, 1000 + k), layout, null))
        own = tested.p[layout.pair_start[-1] :]
        p.append(own)
    p = np.array(p)
    made = ~np.isnan(p)
    assert made.mean() > 0.5
    share = (p[made] < 0.05).mean()
    assert abs(share - 0.05) < 4 * np.sqrt(0.05 * 0.95 / made.sum())
