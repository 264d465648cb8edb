"""Terms of any order: ln Z, energies of incomplete rows, Gibbs sampling and annealing, against
enumeration.
"""

import numpy as np
import pytest
import reference as oracle

from bbl.model.ais import annealed_log_z
from bbl.model.chains import Chains, gibbs
from bbl.model.higher import higher, split
from bbl.model.layout import Layout
from bbl.model.listing import state_energies
from bbl.model.logz import approximate_log_z, exact_log_z
from bbl.model.marginal import MarginalEnergy
from bbl.model.regressors import to_sites
from bbl.model.states import sample_groups, sample_states
from bbl.rows.sample import Sample

LEVELS = [3, 2, 4, 3, 2]
TERMS = [(0, 1), (1, 2), (3, 4), (0, 1, 2), (1, 2, 3), (0, 3, 4), (0, 1, 2, 3)]


def make_model(seed=0, levels=LEVELS, terms=TERMS, scale=0.8):
    layout = Layout(levels, terms)
    return layout, np.random.default_rng(seed).normal(scale=scale, size=layout.size)


def tables_of(layout, theta):
    return {scope: layout.table(theta, *scope) for scope in layout.scopes}


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_ln_z_is_the_sum_over_all_states(order):
    layout, theta = make_model(order, terms=[t for t in TERMS if len(t) <= order])
    truth = oracle.term_log_z(tables_of(layout, theta), LEVELS)
    assert exact_log_z(layout, theta[None])[0] == pytest.approx(truth, abs=1e-11)


def test_listed_energies_are_those_of_all_states():
    layout, theta = make_model()
    h, J, more = split(layout, theta)
    expected = oracle.term_energy(tables_of(layout, theta), oracle.states(LEVELS))
    np.testing.assert_allclose(state_energies(h, J, LEVELS, more), expected, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("by_levels", [False, True])
def test_gibbs_frequencies_are_the_probabilities(by_levels):
    # many levels make the other of the two sweeps
    levels, terms = ([17, 2, 18], [(0, 1), (0, 1, 2)]) if by_levels else (LEVELS, TERMS)
    layout, theta = make_model(1, levels, terms)
    h, J, more = split(layout, theta)
    chains = Chains(h, J, levels, 2048, 1, more=more)
    assert chains.by_levels == by_levels
    draws, energy = (
        np.empty((2048, 40, len(levels)), dtype=np.uint8),
        np.empty((2048, 40), dtype=np.float32),
    )
    chains.sweep(60)
    chains.sweep(40 * 5, 5, draws, energy)
    rows = draws.reshape(-1, len(levels))
    tables = tables_of(layout, theta)
    np.testing.assert_allclose(energy.ravel(), oracle.term_energy(tables, rows), atol=2e-5)
    counts = np.bincount(
        np.ravel_multi_index(tuple(rows.T.astype(int)), levels), minlength=np.prod(levels)
    )
    p = oracle.term_probabilities(tables, levels)
    z = (counts - len(rows) * p) / np.sqrt(len(rows) * p)
    assert np.sqrt((z**2).mean()) < 1.25  # draws of a chain are a little alike
    assert chains.energy(rows[:50]) == pytest.approx(
        oracle.term_energy(tables, rows[:50]), abs=1e-12
    )


def test_the_highest_state_is_found():
    layout, theta = make_model(2)
    h, J, more = split(layout, theta)
    found = gibbs(h, J, LEVELS, 200, rng=1, more=more)
    E = oracle.term_energy(tables_of(layout, theta), oracle.states(LEVELS))
    assert found.best_energy == pytest.approx(E.max(), abs=1e-12)
    assert found.best.tolist() == oracle.states(LEVELS)[E.argmax()].tolist()


def test_chains_go_on_under_other_couplings():
    layout, theta = make_model(3)
    _, other = make_model(4)
    (h, J, more), (h2, J2, more2) = split(layout, theta), split(layout, other)
    changed, made = (
        Chains(h, J, LEVELS, 64, 5, more=more),
        Chains(h2, J2, LEVELS, 64, 5, more=more2),
    )
    changed.update(h2, J2, more2.values)
    for chains in (changed, made):
        chains.sweep(20)
    np.testing.assert_array_equal(changed.codes, made.codes)


def test_samples_of_few_states_and_of_many_agree():
    layout, theta = make_model(5)
    h, J, more = split(layout, theta)
    expected = oracle.term_probabilities(tables_of(layout, theta), LEVELS)
    listed = sample_states(h, J, LEVELS, 40_000, 1, more=more)
    codes, y = sample_groups(layout, np.stack([theta, theta]), 40_000, [0.5, 0.5], 2)
    assert set(y) == {0, 1}
    for rows in (listed, codes):
        share = (
            np.bincount(
                np.ravel_multi_index(tuple(rows.T.astype(int)), LEVELS), minlength=len(expected)
            )
            / 40_000
        )
        assert np.abs(share - expected).max() < 5 * np.sqrt(expected.max() / 40_000)


def test_annealing_finds_ln_z():
    layout, theta = make_model(6)
    truth = oracle.term_log_z(tables_of(layout, theta), LEVELS)
    found = annealed_log_z(layout, theta, np.zeros(layout.D), 100, 512, rng=1)
    assert abs(found.log_z - truth) < 4 * found.standard_error < 0.2


def test_unknown_predictors_are_summed_out():
    layout, theta = make_model(7)
    theta = np.stack([theta, -0.5 * theta])
    rng = np.random.default_rng(8)
    codes = oracle.states(LEVELS)[rng.integers(0, np.prod(LEVELS), 120)].astype(np.uint8)
    unknown = rng.random(codes.shape) < 0.45
    found = MarginalEnergy(layout, theta)(codes, unknown)
    x = np.where(unknown, -1, codes.astype(int))
    for k in range(2):
        expected = oracle.term_marginal_energy(tables_of(layout, theta[k]), LEVELS, x)
        np.testing.assert_allclose(found[:, k], expected, atol=1e-11)


def test_approximate_ln_z_counts_a_term_once():
    layout, theta = make_model(9)
    rng = np.random.default_rng(1)
    codes = oracle.states(LEVELS)[rng.integers(0, np.prod(LEVELS), 200)]
    sample, w = Sample(codes.astype(np.uint8), np.ones(200)), np.ones(200)
    found = approximate_log_z("half", sample, layout, theta, to_sites(layout, theta))
    fields = 0.0
    tables = tables_of(layout, theta)
    for i in range(layout.m):
        H = np.zeros((200, LEVELS[i]))
        for a in range(LEVELS[i]):
            rows = codes.copy()
            rows[:, i] = a
            for scope, table in tables.items():
                if i in scope:
                    H[:, a] += oracle.term_energy({scope: table}, rows) / len(scope)
        fields += oracle.logsumexp(H).mean()
    # terms that a predictor's reference level leaves out are none of its own
    assert found == pytest.approx(fields, abs=1e-10)
    f, _ = oracle.frequencies(codes, w, LEVELS, 1.0)
    mf = -sum(np.log(own[0]) for own in f)
    for scope, table in tables.items():
        if len(scope) > 1:
            mean = table
            for i in scope:
                mean = np.tensordot(f[i][1:], mean, (0, 0))
            mf -= (len(scope) - 1) * float(mean)
    assert approximate_log_z("mf", sample, layout, theta) == pytest.approx(mf, abs=1e-10)


def test_terms_with_a_constant_predictor_are_nothing():
    layout = Layout([2, 1, 3, 2], [(0, 2), (0, 1, 2), (0, 2, 3)])
    part = layout.without_constants()
    assert part.size == layout.size
    assert [found.tolist() for found in part.terms] == [[[0, 1]], [[0, 1, 2]]]
    assert len(higher(layout)) == 1
