"""Structural zeros in exact likelihood, on arrays: maxima, degrees of freedom, information, gaps,
by enumeration.
"""

import numpy as np
import pytest
import reference as oracle
import reference_likelihood as truth

from bbl.engines.likelihood.engine import MaximumLikelihood
from bbl.engines.likelihood.influence import LikelihoodInfluence
from bbl.engines.likelihood.solve import Penalty, Solver
from bbl.engines.likelihood.tree import components
from bbl.engines.likelihood.zeros import determined_by_states
from bbl.errors import OptionError
from bbl.model.fields import pseudo_log_likelihood
from bbl.model.layout import Layout
from bbl.model.logz import exact_log_z
from bbl.model.marginal import MarginalEnergy
from bbl.model.states import sample_groups
from bbl.model.support import Support
from bbl.rows.sample import Sample


class Model:
    """A random hierarchical model of pairs with structural zeros of some predictors, and a table of
    counts.
    """

    def __init__(self, seed, groups=1, filled=True):
        rng = np.random.default_rng([seed, 11])
        m = int(rng.integers(2, 5))
        self.L = [int(L) for L in rng.integers(2, 5, m)]
        self.terms = [(i, j) for i in range(m) for j in range(i + 1, m) if rng.random() < 0.5]
        scope = tuple(
            sorted(int(i) for i in rng.choice(m, int(rng.integers(1, m + 1)), replace=False))
        )
        possible = rng.random((groups, *(self.L[i] for i in scope))) < 0.75
        possible.reshape(groups, -1)[:, 0] = True
        possible.reshape(groups, -1)[0, -1] = False
        self.layout = Layout(self.L, self.terms, Support(scope, possible))
        self.X, self.grid = truth.indicators(self.L, self.terms), oracle.states(self.L)
        self.possible = np.array([possible[(g, *self.grid[:, scope].T)] for g in range(groups)])
        counts = rng.poisson(20.0 if filled else 0.8, len(self.grid)) + (1.0 if filled else 0.0)
        self.counts = np.where(self.possible[0], counts, 0.0)
        self.counts[0] += 1.0
        self.theta = rng.normal(size=(groups, self.layout.size))

    @property
    def rows(self):
        seen = self.counts > 0.0
        return Sample(self.grid[seen].astype(np.uint8), self.counts[seen])

    def fit(self, penalty=None):
        nothing = Penalty(np.zeros(self.layout.size), 0.0)
        return Solver(self.layout, 1e-10, 200).fit(self.rows, penalty or nothing)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.thinned(4)
def test_maximum_and_degrees_of_freedom_are_those_of_the_enumeration(seed):
    model = Model(seed, filled=seed % 2 == 0)
    solution, support = model.fit(), model.possible[0]
    keeps = support.copy()
    keeps[support] = truth.facial_set(model.X[support], model.counts[support])
    theta = truth.maximum(model.X, model.counts, support=keeps)
    expected, _ = truth.probabilities(model.X, theta, keeps)
    p, _ = truth.probabilities(model.X, solution.theta, support)
    np.testing.assert_allclose(p[keeps], expected[keeps], rtol=1e-7)
    assert p[~keeps].max(initial=0.0) < 1e-15
    assert solution.basis.sum() == truth.rank_on(model.X, keeps)
    likelihood = truth.log_likelihood(expected, model.counts) / model.counts.sum()
    assert solution.value == pytest.approx(likelihood, rel=1e-9)
    shared = determined_by_states(model.layout)
    for k in range(model.layout.size):
        others = np.delete(model.X, k, axis=1)
        assert shared[k] == (truth.rank_on(others, support) < truth.rank_on(model.X, support))


@pytest.mark.parametrize("seed", range(20))
def test_information_and_penalties_are_those_of_the_enumeration(seed):
    model = Model(seed)
    support, N, prior = model.possible[0], model.counts.sum(), 3.0
    ridge = np.full(model.layout.size, 0.01)
    solution = model.fit(Penalty(ridge, prior))
    counts = model.counts + prior * support / support.sum()
    theta = truth.maximum(model.X, counts, ridge, support)
    np.testing.assert_allclose(solution.theta, theta, atol=1e-8)
    p, _ = truth.probabilities(model.X, theta, support)
    information, share = truth.information(model.X, p), N / (N + prior)
    inverse = np.linalg.inv(information + np.diag(ridge))
    influence = LikelihoodInfluence(model.rows, model.layout, solution, Penalty(ridge, prior))
    expected = share**2 * inverse @ information @ inverse / N
    np.testing.assert_allclose(influence.covariance(model.rows), expected, rtol=1e-6, atol=1e-12)
    total = sum(weights @ influence(chunk) for chunk, weights in [(model.rows, model.rows.weights)])
    np.testing.assert_allclose(total, 0.0, atol=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_sums_and_margins_of_rows_leave_out_what_cannot_occur(seed):
    model = Model(seed, groups=1 + seed % 3)
    energy = np.where(model.possible.T, model.X @ model.theta.T, -np.inf)
    np.testing.assert_allclose(
        exact_log_z(model.layout, model.theta), oracle.logsumexp(energy, axis=0), rtol=1e-12
    )
    codes, rng = model.grid.astype(np.uint8), np.random.default_rng(seed)
    unknown = rng.random(codes.shape) < 0.5
    expected = np.empty_like(energy)
    for r, (row, gone) in enumerate(zip(codes, unknown, strict=True)):
        alike = (model.grid[:, ~gone] == row[~gone]).all(axis=1)
        with np.errstate(divide="ignore"):
            expected[r] = np.log(np.exp(energy[alike]).sum(axis=0))
    marginal = MarginalEnergy(model.layout, model.theta)
    np.testing.assert_allclose(marginal(codes, unknown), expected, atol=1e-12)
    np.testing.assert_allclose(marginal(codes), energy, atol=1e-12)
    rows = np.flatnonzero(model.possible[0])
    pseudo = pseudo_log_likelihood(model.layout.of_group(0), model.theta[0], codes[rows])
    for r, found in zip(rows, pseudo, strict=True):
        total = 0.0
        for i in range(len(model.L)):
            alike = (np.delete(model.grid, i, axis=1) == np.delete(model.grid[r], i)).all(axis=1)
            total += energy[r, 0] - np.log(np.exp(energy[alike, 0]).sum())
        assert found == pytest.approx(total, abs=1e-12)


def test_draws_are_in_cells_that_can_occur_with_their_probabilities():
    model = Model(4, groups=2)
    codes, y = sample_groups(model.layout, model.theta, 40_000, rng=1)
    state = np.ravel_multi_index(tuple(codes.T.astype(int)), model.L)
    for g in range(2):
        p, _ = truth.probabilities(model.X, model.theta[g], model.possible[g])
        shares = np.bincount(state[y == g], minlength=len(p)) / (y == g).sum()
        assert not shares[~model.possible[g]].any()
        np.testing.assert_allclose(shares, p, atol=0.015)


def test_gaps_are_summed_over_the_cells_that_can_occur():
    rng = np.random.default_rng(2)
    for seed in range(6):
        model = Model(seed)
        support = model.possible[0]
        drawn = rng.choice(len(model.grid), 400, p=model.counts / model.counts.sum())
        x = model.grid[drawn].copy()
        x[rng.random(x.shape) < 0.2] = -1
        missing = x < 0
        rows = Sample(np.where(missing, 0, x).astype(np.uint8), np.ones(len(x)), None, missing)
        solution = Solver(model.layout, 1e-10, 200).fit(
            rows, Penalty(np.zeros(model.layout.size), 0.0)
        )
        known = ~missing.all(axis=1)
        may_be = truth.compatible(model.L, x[known]) & support
        theta = solution.theta
        for _ in range(3):  # steps of plain EM do not move the maximum
            p, _ = truth.probabilities(model.X, theta, support)
            shares = may_be * p
            counts = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0)
            theta = truth.maximum(model.X, counts, support=support)
        p, _ = truth.probabilities(model.X, solution.theta, support)
        after, _ = truth.probabilities(model.X, theta, support)
        np.testing.assert_allclose(p, after, atol=2e-7)


def test_zeros_join_predictors():
    support = Support((0, 2), np.array([[[True, True], [True, False]]]))
    parts = components(Layout([2, 3, 2, 2], [(1, 3)], support))
    assert [part.predictors.tolist() for part in parts] == [[0, 2], [1, 3]]
    assert (
        parts[0].layout.support == Support((0, 1), support.possible)
        and parts[1].layout.support is None
    )
    moved = Layout([2, 2, 3, 2], [], support.permuted([2, 0, 1, 3])).support
    assert (
        moved.scope == (0, 1)
        and moved.possible.tolist() == support.possible.transpose(0, 2, 1).tolist()
    )


def test_too_many_states_are_refused_before_the_fit():
    support = Support((0, 1), np.array([[[True, True], [True, False]]]))
    wide = Layout(np.full(17, 2), [(i, i + 1) for i in range(1, 16)], support)
    with pytest.raises(
        OptionError, match="connect 17 predictors with 1.31e[+]05 states.*a formula with fewer"
    ):
        MaximumLikelihood().layout(Sample(np.zeros((1, 17), dtype=np.uint8), np.ones(1)), wide)
    narrow = Layout(np.full(40, 2), [(i, i + 1) for i in range(2, 39)], support)
    MaximumLikelihood().layout(Sample(np.zeros((1, 40), dtype=np.uint8), np.ones(1)), narrow)
