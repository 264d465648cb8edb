"""Missing values under exact maximum likelihood: the observed-data likelihood, and what plain EM
finds.
"""

import numpy as np
import pandas as pd
import pytest
import reference as oracle
import reference_likelihood as truth

import bbl
from bbl.engines.likelihood.gaps import IncompleteLikelihood, missing_patterns
from bbl.engines.likelihood.influence import LikelihoodInfluence
from bbl.engines.likelihood.newton import maximise
from bbl.engines.likelihood.solve import Penalty, Solver
from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import components
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

TERMS = {3: [(0, 1), (1, 2)], 4: [(0, 1), (0, 2), (1, 2), (2, 3), (0, 1, 2)]}


def rows_with_gaps(seed, n=300):
    """Return levels, terms and rows (-1: missing) of a random model, most of them with some value
    missing.
    """
    rng = np.random.default_rng([seed, 23])
    L = [int(v) for v in rng.integers(2, 4, rng.choice([3, 4]))]
    terms = TERMS[len(L)]
    X = truth.indicators(L, terms)
    p, _ = truth.probabilities(X, rng.normal(0, 0.6, X.shape[1]))
    x = oracle.states(L)[rng.choice(len(p), n, p=p)]
    x[rng.random(x.shape) < 0.3] = -1
    return L, terms, x[(x >= 0).any(axis=1)]


def sample_of(x, weights=None):
    """Return encoded rows; the code of missing values is 0."""
    weights = np.ones(len(x)) if weights is None else weights
    missing = x < 0
    return Sample(
        np.where(missing, 0, x).astype(np.uint8), weights, None, missing if missing.any() else None
    )


def fit(L, terms, sample, ridge=0.0, prior=0.0):
    """Fit rows with gaps."""
    layout = Layout(L, terms)
    return Solver(layout, 1e-10, 200).fit(sample, Penalty(np.full(layout.size, ridge), prior))


class Traced(IncompleteLikelihood):
    """Writes down the objective at each accepted point."""

    def gradient(self):
        """Return the gradient at a point that the iteration went to."""
        self.trace.append(IncompleteLikelihood.value(self, self.theta))
        return super().gradient()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.thinned(5)
def test_the_likelihood_never_falls_and_ends_where_em_ends(seed):
    L, terms, x = rows_with_gaps(seed)
    layout = Layout(L, terms)
    solution = fit(L, terms, sample_of(x))
    theta, by_em = truth.expectation_maximisation(L, terms, x, np.ones(len(x)), 40)
    assert solution.value * len(x) >= by_em[-1] - 1e-8
    X, may_be = truth.indicators(L, terms), truth.compatible(L, x)
    p, _ = truth.probabilities(X, solution.theta)
    assert solution.value * len(x) == pytest.approx(
        truth.observed_log_likelihood(p, may_be, np.ones(len(x))), rel=1e-12
    )
    shares = may_be * p
    completed = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0)
    assert np.linalg.norm(X.T @ (completed / len(x) - p)) <= 1e-9
    if by_em[-1] - by_em[-2] < 1e-9:
        np.testing.assert_allclose(
            solution.theta[solution.determined], theta[solution.determined], atol=1e-3
        )
    table = StateTable(layout)
    patterns = missing_patterns(table, components(layout)[0], sample_of(x))
    objective = Traced(table, patterns, np.zeros(table.n), np.zeros(layout.size))
    objective.trace = []
    maximise(objective, np.zeros(layout.size), 1e-10, 200)
    assert len(objective.trace) > 3
    assert np.diff(objective.trace).min() >= -1e-13


def test_hessians_are_those_of_finite_differences():
    for seed in range(5):
        L, terms, x = rows_with_gaps(seed)
        layout = Layout(L, terms)
        table = StateTable(layout)
        ridge = np.full(layout.size, 0.1)
        objective = IncompleteLikelihood(
            table,
            missing_patterns(table, components(layout)[0], sample_of(x)),
            np.full(table.n, 0.5),
            ridge,
        )
        theta = np.random.default_rng(seed).normal(0, 0.5, layout.size)

        def gradient(theta, objective=objective):
            objective.value(theta)
            return objective.gradient()

        steps = 1e-5 * np.eye(layout.size)
        slopes = [(objective.value(theta + s) - objective.value(theta - s)) / 2e-5 for s in steps]
        np.testing.assert_allclose(gradient(theta), slopes, atol=1e-9)
        hessian = np.array([(gradient(theta + s) - gradient(theta - s)) / 2e-5 for s in steps])
        gradient(theta)
        np.testing.assert_allclose(objective.curvatures()[0], -hessian, atol=1e-9)


# of maxima in a limit, without a penalty
@pytest.mark.filterwarnings("ignore::bbl.errors.ConvergenceWarning")
def test_rows_without_gaps_are_complete_data_to_the_bit():
    L, terms, x = rows_with_gaps(1)
    x = x[(x >= 0).all(axis=1)]
    frame = pd.DataFrame(x, columns=list("abcd")[: x.shape[1]])
    for options in ({}, {"lambda_": 0.01}, {"prior_count": 1.0}):
        fits = [
            bbl.bbl("~ .^2", frame, method="ml", missing=missing, **options)
            for missing in ("raise", "marginal")
        ]
        np.testing.assert_array_equal(
            fits[0].estimate.parameters.theta, fits[1].estimate.parameters.theta
        )
        assert fits[0].logLik() == fits[1].logLik()


def test_interactions_that_no_row_tells_of_are_not_estimable():
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2, (600, 3))
    x[:300, 2] = -1  # b and c are never known together
    x[300:, 1] = -1
    solution = fit([2, 2, 2], [(0, 1), (0, 2), (1, 2)], sample_of(x))
    assert solution.norm <= 1e-10
    assert solution.basis.sum() == 5
    assert not solution.determined[-1]  # of b:c


def test_maxima_in_a_limit_are_found_as_those_of_complete_rows():
    """Rows of which one value alone is known say nothing of interactions: a face of the others is a
    face of all.
    """
    counts = np.array([0, 3, 5, 2, 4, 6, 1, 0], dtype=float)  # Haberman's table
    x = np.repeat(oracle.states([2, 2, 2]), counts.astype(int), axis=0)
    pairs = [(0, 1), (0, 2), (1, 2)]
    only_first = np.column_stack([np.repeat([0, 1], [10, 11]), np.full((21, 2), -1)])
    solution, complete = (
        fit([2, 2, 2], pairs, sample_of(rows)) for rows in (np.vstack([x, only_first]), x)
    )
    assert solution.norm <= 1e-10
    assert not solution.determined.any()
    assert solution.basis.sum() == complete.basis.sum() == 5
    p, _ = truth.probabilities(truth.indicators([2, 2, 2], pairs), solution.theta)
    assert p[counts == 0].max() < 1e-16
    np.testing.assert_allclose(p[:4] / p[:4].sum(), counts[:4] / counts[:4].sum(), atol=1e-9)


def test_rows_of_which_nothing_is_known_do_not_count():
    L, terms, x = rows_with_gaps(2)
    with_blanks = np.vstack([x, np.full((5, len(L)), -1)])
    one, other = fit(L, terms, sample_of(x)), fit(L, terms, sample_of(with_blanks))
    np.testing.assert_array_equal(one.theta, other.theta)
    assert one.value * len(x) == pytest.approx(other.value * len(with_blanks), rel=1e-14)


def test_weights_are_rows_and_order_does_not_matter_to_the_bit():
    L, terms, x = rows_with_gaps(3)
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 4, len(x)).astype(float)
    repeated = rng.permutation(np.repeat(x, weights.astype(int), axis=0))
    one, other = fit(L, terms, sample_of(x, weights)), fit(L, terms, sample_of(repeated))
    np.testing.assert_array_equal(one.theta, other.theta)
    assert one.value == other.value


@pytest.mark.parametrize(("ridge", "prior"), [(0.0, 0.0), (0.05, 0.0), (0.0, 5.0)])
def test_covariances_are_the_inverse_of_the_observed_information(ridge, prior):
    for seed in (0, 2, 3, 5):
        L, terms, x = rows_with_gaps(seed, 600)
        layout, sample = Layout(L, terms), sample_of(x)
        solution = fit(L, terms, sample, ridge, prior)
        penalty = Penalty(np.full(layout.size, ridge), prior)
        found = LikelihoodInfluence(sample, layout, solution, penalty)
        X, may_be = truth.indicators(L, terms), truth.compatible(L, x)
        p, _ = truth.probabilities(X, solution.theta)
        shares = may_be * p
        shares /= shares.sum(axis=1, keepdims=True)
        means = shares @ X
        within = (X.T * shares.sum(axis=0)) @ X - means.T @ means
        complete = truth.information(X, p)
        observed = len(x) * complete - within
        H = np.linalg.inv(
            observed + prior * complete + (len(x) + prior) * ridge * np.eye(layout.size)
        )
        np.testing.assert_allclose(
            found.covariance(sample), H @ observed @ H, rtol=1e-7, atol=1e-10
        )
        even = prior * (X.mean(axis=0) - p @ X) - (len(x) + prior) * ridge * solution.theta
        moves = len(x) * (means - p @ X + even / len(x)) @ H
        np.testing.assert_allclose(found(sample), moves, rtol=1e-6, atol=1e-7)


@pytest.mark.long
def test_values_missing_at_random_bias_complete_rows_alone():
    """Whether b is missing depends on a and c, which are known: complete rows and pairwise counts
    are biased.
    """
    L, terms = [2, 2, 2], [(0, 1), (0, 2), (1, 2)]
    X = truth.indicators(L, terms)
    theta = np.array([0.2, -0.3, 0.1, 0.9, -0.6, 0.7])
    p, _ = truth.probabilities(X, theta)
    estimates, pairwise = {"marginal": [], "drop": []}, []
    for number in range(400):
        rng = np.random.default_rng([number, 31])
        x = oracle.states(L)[rng.choice(8, 1000, p=p)].astype(float)
        # b is missing where a and c agree, most of the time; all that decides is known
        x[(x[:, 0] == x[:, 2]) & (rng.random(1000) < 0.6), 1] = np.nan
        frame = pd.DataFrame(x, columns=["a", "b", "c"])
        pairwise.append(np.nanmean(x[:, 0] * x[:, 1]))  # share of a = b = 1 in rows that have both
        for missing, of in estimates.items():
            of.append(
                bbl.bbl(
                    "~ (a + b + c)^2", frame, method="ml", missing=missing
                ).estimate.parameters.theta[0]
            )
    bias = {missing: np.mean(of, axis=0) - theta for missing, of in estimates.items()}
    error = {
        missing: np.std(of, axis=0, ddof=1) / np.sqrt(400) for missing, of in estimates.items()
    }
    assert np.abs(bias["marginal"] / error["marginal"]).max() < 2.0
    assert np.abs(bias["drop"] / error["drop"]).max() > 20.0
    pairwise_bias = np.mean(pairwise) - p @ X[:, 3]
    assert abs(pairwise_bias) > 10.0 * np.std(pairwise, ddof=1) / np.sqrt(400)
