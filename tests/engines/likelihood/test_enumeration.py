"""Exact maximum likelihood on arrays against the enumeration: maxima, moments, information, and all
ways to them.
"""

import itertools
import tracemalloc

import numpy as np
import pytest
import reference as oracle
import reference_likelihood as truth

from bbl.engines.likelihood import influence, solve
from bbl.engines.likelihood import tree as clique_design
from bbl.engines.likelihood.engine import MaximumLikelihood
from bbl.engines.likelihood.influence import LikelihoodInfluence
from bbl.engines.likelihood.solve import Penalty, Solver, tree_order
from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import MAX_PART_CELLS, JunctionTree, perfect_order
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

N_MODELS, MAX_STATES, MAX_SIZE = 300, 300, 60
TOLERANCE = 1e-10


class Model:
    """A random model and table: levels, terms, weights of all states, a penalty, and the oracle's
    indicators.
    """

    def __init__(self, seed, with_penalty=True):
        rng = np.random.default_rng([seed, 3])
        while True:
            m = int(rng.integers(1, 6))
            self.L = [int(L) for L in rng.integers(2, 6, m)]
            order = int(rng.integers(1, min(m, 4) + 1))
            sets = [t for k in range(2, order + 1) for t in itertools.combinations(range(m), k)]
            self.terms = [t for t in sets if rng.random() < 0.6]
            if seed % 2:  # hierarchical: all subsets of each term too
                subsets = [
                    s
                    for t in self.terms
                    for k in range(2, len(t))
                    for s in itertools.combinations(t, k)
                ]
                self.terms = sorted({*self.terms, *subsets})
            self.layout = Layout(self.L, self.terms)
            if np.prod(self.L) <= MAX_STATES and self.layout.size <= MAX_SIZE:
                break
        self.X = truth.indicators(self.L, self.terms)
        self.states = oracle.states(self.L).astype(np.uint8)
        n, p = (
            len(self.states),
            truth.probabilities(self.X, rng.normal(0, 0.7, self.layout.size))[0],
        )
        self.ridge, self.prior = np.zeros(self.layout.size), 0.0
        self.counts = 500 * p * rng.uniform(0.5, 1.5, n)  # any weights, no empty state
        if with_penalty and seed % 3 == 1:  # empty states, which the penalty makes up for
            self.counts = rng.multinomial(40, p).astype(float)
            self.ridge = rng.choice([0.01, 0.1, 1.0], self.layout.size)
        if with_penalty and seed % 3 == 2:
            self.counts, self.prior = (
                rng.multinomial(40, p).astype(float),
                float(rng.choice([0.5, 2.0, 20.0])),
            )
        self.penalty = Penalty(self.ridge, self.prior)
        self.all_counts = self.counts + self.prior / n
        self.theta = truth.maximum(self.X, self.all_counts, self.ridge)
        self.p, self.log_z = truth.probabilities(self.X, self.theta)

    def sample(self):
        """Return the rows that occur, with their weights."""
        seen = np.flatnonzero(self.counts)
        return Sample(self.states[seen], self.counts[seen])

    def solution(self):
        """Return the fit of the package."""
        return Solver(self.layout, TOLERANCE, 200).fit(self.sample(), self.penalty)

    def gradient(self, theta):
        """Return the gradient of the objective by enumeration."""
        p, _ = truth.probabilities(self.X, theta)
        return self.X.T @ (self.all_counts / self.all_counts.sum() - p) - self.ridge * theta

    def value(self, theta):
        """Return the objective by enumeration."""
        p, _ = truth.probabilities(self.X, theta)
        return (
            truth.log_likelihood(p, self.all_counts) / self.all_counts.sum()
            - 0.5 * self.ridge @ theta**2
        )


@pytest.fixture
def tree_only(monkeypatch):
    """No table of all states may be made: all sums are those of junction trees."""
    monkeypatch.setattr(solve, "MAX_STATES", 0)
    monkeypatch.setattr(influence, "MAX_STATES", 0)


@pytest.mark.parametrize("block", range(10))
@pytest.mark.thinned(2)
def test_random_models_reach_the_enumerated_maximum(block):
    for seed in range(block * N_MODELS // 10, (block + 1) * N_MODELS // 10):
        model = Model(seed)
        solution = model.solution()
        assert np.linalg.norm(model.gradient(solution.theta)) <= 1e-9, seed
        np.testing.assert_allclose(
            solution.theta, model.theta, rtol=1e-7, atol=1e-7, err_msg=str(seed)
        )
        assert solution.value == pytest.approx(model.value(model.theta), rel=1e-12, abs=1e-12), seed
        assert solution.determined.all() and solution.basis.all()


@pytest.mark.parametrize("block", range(10))
@pytest.mark.thinned(2)
def test_tables_and_trees_sum_as_the_enumeration(block, monkeypatch):
    n_parts = set()
    for seed in range(block * N_MODELS // 10, (block + 1) * N_MODELS // 10):
        model = Model(seed)
        rng = np.random.default_rng(seed)
        theta = rng.normal(0, 1.5, model.layout.size)
        p, log_z = truth.probabilities(model.X, theta)
        table = StateTable(model.layout)
        found_log_z, found = table.log_partition(theta)
        np.testing.assert_allclose(found, p, rtol=1e-11)
        np.testing.assert_array_equal(table.indicators(), model.X)
        np.testing.assert_allclose(table.energies(theta), model.X @ theta, atol=1e-12)
        moments = table.moments(found)
        np.testing.assert_allclose(moments, p @ model.X, rtol=1e-11)
        expected = truth.information(model.X, p)
        np.testing.assert_allclose(table.covariances(found, moments), expected, atol=1e-13)
        assert found_log_z == pytest.approx(log_z, rel=1e-12, abs=1e-12)
        # each clique has one table; most cliques have several
        for part_cells in (MAX_PART_CELLS, 6):
            monkeypatch.setattr(clique_design, "MAX_PART_CELLS", part_cells)
            tree = JunctionTree(model.layout, tree_order(model.layout))
            margins = tree.margins(theta)
            assert margins.log_z == pytest.approx(log_z, rel=1e-12, abs=1e-12)
            np.testing.assert_allclose(tree.moments(margins), p @ model.X, rtol=1e-11)
            np.testing.assert_allclose(tree.information(margins), expected, atol=1e-13)
            sums = tree.moments_of(tree.counts(model.sample()))
            np.testing.assert_allclose(sums, model.counts @ model.X, rtol=1e-12, atol=1e-12)
            assert tree.spread(3.0).sum() == pytest.approx(3.0 * len(tree.cliques))
            n_parts.add(max(map(len, tree.design.parts)))
    assert 1 in n_parts
    assert max(n_parts) > 2


@pytest.mark.long
@pytest.mark.parametrize("prior_count", [0.0, 1.0])
def test_a_fit_on_a_junction_tree_takes_at_most_the_memory_that_is_told(prior_count):
    layout = Layout(np.array([2] * 17))
    codes = np.random.default_rng(1).integers(0, 2, (12, layout.m)).astype(np.uint8)
    rows = Sample(np.ascontiguousarray(codes), np.ones(len(codes)))
    engine = MaximumLikelihood(prior_count=prior_count, itmax=2)
    tracemalloc.start()
    solution = Solver(layout, 1e-8, 2).fit(rows, engine.penalty(layout, 0.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # without it, margins are empty and covariances are needed
    assert solution.determined.all() == bool(prior_count)
    assert peak <= engine.memory(rows.n, layout)
    assert prior_count or peak > 0.3 * engine.memory(rows.n, layout)


@pytest.mark.long
def test_the_closed_form_is_where_newton_ends(monkeypatch):
    n_closed = 0
    for seed in range(N_MODELS):
        model = Model(seed, with_penalty=False)
        solution = model.solution()
        assert (solution.n_iter == 0) <= (perfect_order(model.layout) is not None)
        if solution.n_iter == 0:
            n_closed += 1
            with monkeypatch.context() as patch:
                patch.setattr(Solver, "_fit_closed", lambda *_: None)
                newton = model.solution()
            assert newton.n_iter > 0
            np.testing.assert_allclose(solution.theta, newton.theta, rtol=1e-9, atol=1e-9)
            assert solution.value == pytest.approx(newton.value, rel=1e-12)
    assert n_closed > 100


def test_decomposable_models_with_all_subsets_have_a_closed_form():
    for L, terms in (
        ([2, 3, 4], []),
        ([2, 3, 4], [(0, 1), (1, 2)]),
        ([2, 3, 2, 3], [(0, 1), (0, 2), (1, 2), (0, 1, 2), (2, 3)]),
        ([2, 2, 2, 2], [t for k in (2, 3, 4) for t in itertools.combinations(range(4), k)]),
    ):
        layout, rng = Layout(L, terms), np.random.default_rng(0)
        grid = oracle.states(L).astype(np.uint8)
        solution = Solver(layout, TOLERANCE, 200).fit(
            Sample(grid, rng.uniform(1, 9, len(grid))), Penalty(np.zeros(layout.size), 0.0)
        )
        assert solution.n_iter == 0


@pytest.mark.long
def test_junction_trees_reach_the_enumerated_maximum(tree_only):
    for seed in range(N_MODELS):
        model = Model(seed)
        solution = model.solution()
        assert np.linalg.norm(model.gradient(solution.theta)) <= 1e-9, seed
        assert solution.value == pytest.approx(model.value(model.theta), rel=1e-12, abs=1e-12), seed


@pytest.mark.parametrize("kind", ["states", "tree"])
@pytest.mark.long
def test_covariances_are_the_inverse_information(kind, request):
    if kind == "tree":
        request.getfixturevalue("tree_only")
    for seed in range(60):
        model = Model(seed)
        solution = model.solution()
        sample = model.sample()
        found = LikelihoodInfluence(sample, model.layout, solution, model.penalty)
        share = sample.total / (sample.total + model.prior)
        information = truth.information(model.X, model.p)
        H = np.linalg.inv(information + np.diag(model.ridge))
        expected = share**2 * H @ information @ H / sample.total
        np.testing.assert_allclose(found.covariance(sample), expected, rtol=1e-6, atol=1e-9)
        for part, scope in zip(
            found.terms(sample), truth.scopes(model.L, model.terms), strict=True
        ):
            assert part.shape == (np.prod([model.L[i] - 1 for i in scope]),) * 2


@pytest.mark.long
def test_influences_are_derivatives_of_the_fit_by_the_weights():
    for seed in range(30):
        model = Model(seed)
        sample, solution = model.sample(), model.solution()
        moves = LikelihoodInfluence(sample, model.layout, solution, model.penalty)(sample)
        np.testing.assert_allclose(sample.weights @ moves, 0.0, atol=1e-6)
        for row in (0, sample.n // 2):
            seen = np.flatnonzero(model.counts)[row]
            step = 1e-3 * model.counts[seen]
            up, down = model.all_counts.copy(), model.all_counts.copy()
            for counts, sign in ((up, 1.0), (down, -1.0)):
                counts[seen] += sign * step
                # so that the penalty keeps its part
                counts[:] = _same_total(counts, model, sign * step)
            slope = (
                truth.maximum(model.X, up, model.ridge) - truth.maximum(model.X, down, model.ridge)
            ) / (2 * step)
            np.testing.assert_allclose(moves[row] / sample.total, slope, rtol=1e-4, atol=1e-6)


def _same_total(counts, model, step):
    """Return counts of which those of rows are scaled to their former sum; those of the prior
    stay.
    """
    prior, total = model.prior / len(counts), model.counts.sum()
    return (counts - prior) * total / (total + step) + prior


def test_penalties_are_those_of_finite_differences():
    for seed in range(1, 60, 3):
        model = Model(seed)
        solution = model.solution()
        slopes = [
            (model.value(solution.theta + 1e-5 * e) - model.value(solution.theta - 1e-5 * e)) / 2e-5
            for e in np.eye(model.layout.size)
        ]
        np.testing.assert_allclose(slopes, 0.0, atol=1e-8)


def test_engine_penalises_each_order_by_its_own_number():
    layout = Layout([2, 3, 2, 2], [(0, 1), (0, 2), (1, 2), (2, 3), (0, 1, 2)])
    engine = MaximumLikelihood(lambda_=(0.1, 0.7), lambdah=0.2)
    ridge = engine.penalty(layout, engine.lambda_).ridge
    by_order = {1: 0.2, 2: 0.1, 3: 0.7}
    L = layout.n_levels.tolist()
    terms = [(0, 1), (0, 2), (1, 2), (2, 3), (0, 1, 2)]
    expected = [
        by_order[len(s)]
        for s in truth.scopes(L, terms)
        for _ in range(np.prod([L[i] - 1 for i in s]))
    ]
    np.testing.assert_array_equal(ridge, expected)


def test_independent_predictors_are_naive_bayes():
    rng = np.random.default_rng(5)
    for prior in (0.0, 0.5, 3.0):
        L = [2, 3, 5]
        codes = np.vstack(
            [np.column_stack([rng.integers(0, n, 60) for n in L]), oracle.states(L)[::7]]
        )
        codes = np.vstack([codes, [[min(a, n - 1) for n in L] for a in range(5)]]).astype(np.uint8)
        w = rng.integers(1, 4, len(codes)).astype(float)
        layout = Layout(L, [])
        solution = Solver(layout, TOLERANCE, 200).fit(
            Sample(codes, w), Penalty(np.zeros(layout.size), prior)
        )
        h, _, log_z = oracle.naive_bayes(codes, w, L, prior)
        np.testing.assert_allclose(solution.theta, np.concatenate(h), rtol=1e-9)
        assert truth.probabilities(truth.indicators(L, []), solution.theta)[1] == pytest.approx(
            log_z, rel=1e-10
        )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["states", "tree"])
def test_weights_are_rows_and_order_does_not_matter_to_the_bit(kind, request):
    if kind == "tree":
        request.getfixturevalue("tree_only")
    rng = np.random.default_rng(1)
    for seed in range(30):
        model = Model(seed)
        weights = rng.integers(1, 6, len(model.states)).astype(float)
        solver = Solver(model.layout, TOLERANCE, 200)
        weighted = solver.fit(Sample(model.states, weights), model.penalty)
        rows = rng.permutation(np.repeat(model.states, weights.astype(int), axis=0))
        repeated = solver.fit(Sample(rows, np.ones(len(rows))), model.penalty)
        np.testing.assert_array_equal(weighted.theta, repeated.theta)
        assert (weighted.value, weighted.norm) == (repeated.value, repeated.norm)


def test_rare_states_have_their_digits_whatever_the_reference():
    """One state has 1e9 rows, the others a prior count alone: which level is the reference makes no
    difference.
    """
    layout, p = Layout([5, 2, 4]), []
    penalty = Penalty(np.zeros(layout.size), 1.0)
    for state in ([0, 0, 0], [3, 1, 2]):
        rows = Sample(np.array([state], dtype=np.uint8), np.array([1e9]))
        theta = Solver(layout, TOLERANCE, 200).fit(rows, penalty).theta
        p.append(StateTable(layout).log_partition(theta, None)[1].reshape(5, 2, 4))
    order = [3, 1, 2, 0, 4], [1, 0], [2, 1, 0, 3]  # takes the second state to the first
    np.testing.assert_allclose(p[1][np.ix_(*order)], p[0], rtol=1e-4)


@pytest.mark.parametrize("state", [0, 1])
@pytest.mark.parametrize("count", [1e3, 1e6, 1e9, 3e9])
def test_a_prior_count_beside_any_number_of_rows_has_the_share_that_it_is(count, state):
    layout = Layout([2])
    rows = Sample(np.array([[state]], dtype=np.uint8), np.array([count]))
    theta = Solver(layout, TOLERANCE, 200).fit(rows, Penalty(np.zeros(1), 0.5)).theta
    assert theta[0] == pytest.approx((2 * state - 1) * np.log((count + 0.25) / 0.25), rel=1e-6)


@pytest.mark.parametrize("count", [1.0, 1e3, 1e6, 1e9])
@pytest.mark.thinned(4)
def test_gradients_alone_find_far_maxima_of_heavy_rows(count, monkeypatch):
    """25 rows that leave most of 64 states to the prior count: a junction tree ends where Newton's
    method does.
    """
    layout = Layout([2] * 6, list(itertools.combinations(range(6), 2)))
    penalty = Penalty(np.zeros(layout.size), 1.0)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        codes = (rng.random((25, 6)) < [0.1, 0.5, 0.5, 0.5, 0.5, 0.5]).astype(np.uint8)
        codes[:, 1] = codes[:, 0]
        rows = Sample(codes, np.full(25, count))
        by_newton = Solver(layout, TOLERANCE, 200).fit(rows, penalty)
        with monkeypatch.context() as patch:
            patch.setattr(solve, "MAX_STATES", 0)
            by_gradients = Solver(layout, TOLERANCE, 200).fit(rows, penalty)
        assert by_gradients.norm <= TOLERANCE, seed
        assert by_gradients.value == pytest.approx(by_newton.value, abs=1e-8), seed
        if count < 1e9:  # with more, states rarer than the tolerance have only their first digits
            np.testing.assert_allclose(
                by_gradients.theta, by_newton.theta, rtol=1e-5, err_msg=str(seed)
            )
