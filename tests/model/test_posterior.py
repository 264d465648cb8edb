"""Log posteriors against the oracle; samplers against posteriors that are known; the conjugate
model and its facts.
"""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import reference as oracle
from scipy.special import digamma, polygamma
from scipy.stats import binom, chisquare, norm

from bbl._ext.posterior.posterior import Target
from bbl.engines.bayes.conjugate import conjugate_draws, conjugate_scores, signed_log
from bbl.engines.bayes.posterior import (
    Problem,
    adjustment,
    coefficient_groups,
    draw_chains,
    mode,
    simplex_sums,
)
from bbl.model.gauge import contrasts, to_reference
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from bbl.stats.diagnostics import effective_sample_size, split_rhat

LEVELS, PAIRS = [2, 3, 2, 4], [(0, 1), (1, 3), (2, 3)]
COUNTS = (4, 1000, 1000)


def grid(levels):
    return np.array(list(itertools.product(*map(range, levels))), dtype=np.uint8)


def some_rows(levels=LEVELS, n=60, seed=0):
    rng = np.random.default_rng(seed)
    return Sample(
        grid(levels), rng.multinomial(n, rng.dirichlet(np.ones(np.prod(levels)))).astype(float)
    )


def kept(sample):
    return sample.weighted(sample.weights)


def oracle_parameters(layout, phi):
    """Fields and couplings of all levels by the definition, as the oracle takes them: less those of
    the reference.
    """
    theta = to_reference(layout, phi)
    h = [layout.table(theta, i) for i in range(layout.m)]
    return h, {(i, j): layout.table(theta, i, j) for i, j in layout.pairs.tolist()}


def oracle_value(layout, sample, phi, pseudo=False):
    """Return the log-likelihood or log pseudo-likelihood of coefficients, row by row."""
    h, J = oracle_parameters(layout, phi)
    total = 0.0
    for x, w in zip(sample.codes.astype(int), sample.weights, strict=True):
        E = oracle.energy(h, J, [x])[0]
        if not pseudo:
            total += w * (E - oracle.log_partition(h, J, layout.n_levels))
            continue
        for i, L in enumerate(layout.n_levels):
            others = np.repeat([x], L, axis=0)
            others[:, i] = np.arange(L)
            total += w * (E - oracle.logsumexp(oracle.energy(h, J, others)))
    return total


def half_cauchy(sigma, s):
    """Return ln of the density of ln sigma, sigma half-Cauchy of scale s."""
    return np.log(2.0 / np.pi * sigma / s / (1.0 + (sigma / s) ** 2))


def value_of(problem, x):
    gradient = np.empty(len(x))
    return problem.target().value(np.ascontiguousarray(x), gradient), gradient


PROBLEMS = {
    "exact": {},
    "pseudo": {"pseudo": True, "enumerate": False},
    "horseshoe": {"horseshoe": True},
    "horseshoe without a slab": {"horseshoe": True, "tau": np.inf},
    "horseshoe, pseudo": {"horseshoe": True, "pseudo": True, "enumerate": False, "tau": 0.7},
}


def problem_of(kind, sample, layout):
    return Problem(sample, layout, **{"tau": 0.8, **PROBLEMS[kind]})


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_log_posterior_is_that_of_the_oracle_and_its_gradient_that_of_differences(kind):
    layout, sample = Layout(LEVELS, PAIRS), kept(some_rows())
    problem = problem_of(kind, sample, layout)
    size, rng = problem.target().size, np.random.default_rng(1)

    def truth(x):
        phi, prior = x[: layout.size], norm.logpdf(x[: layout.size], 0.0, problem.tau).sum()
        if problem.horseshoe:
            group, family = coefficient_groups(layout)
            u, v = x[layout.size : -2], x[-2:]
            sigma = np.exp(u) / np.sqrt(1.0 + (np.exp(u) / problem.tau) ** 2)
            prior = norm.logpdf(phi).sum() + half_cauchy(np.exp(u), np.exp(v)[family]).sum()
            phi, prior = sigma[group] * phi, prior + half_cauchy(np.exp(v), 1.0).sum()
        return oracle_value(layout, sample, phi, problem.pseudo) + prior

    a, b = 0.5 * rng.normal(size=(2, size))
    assert value_of(problem, a)[0] - value_of(problem, b)[0] == pytest.approx(
        truth(a) - truth(b), rel=1e-10
    )
    step = 1e-5 * np.eye(size)
    slope = [(value_of(problem, a + e)[0] - value_of(problem, a - e)[0]) / 2e-5 for e in step]
    np.testing.assert_allclose(value_of(problem, a)[1], slope, rtol=1e-6, atol=1e-6)


def test_an_adjusted_pseudo_likelihood_has_the_slope_and_the_curvature_that_it_should():
    layout, sample = Layout([2, 2, 2]), kept(some_rows([2, 2, 2], n=300))
    plain = Problem(sample, layout, 1.0, pseudo=True, enumerate=False)
    centre, hessian = mode(plain)
    found = adjustment(plain, centre, hessian)
    adjusted = replace(plain, adjust=found)
    np.testing.assert_allclose(value_of(adjusted, centre)[1], value_of(plain, centre)[1], atol=1e-8)
    np.testing.assert_allclose(value_of(adjusted, centre)[1], 0.0, atol=1e-3)
    step = 1e-4 * np.eye(layout.size)
    phi = centre + 0.1
    slope = [(value_of(adjusted, phi + e)[0] - value_of(adjusted, phi - e)[0]) / 2e-4 for e in step]
    np.testing.assert_allclose(value_of(adjusted, phi)[1], slope, rtol=1e-5, atol=1e-4)
    # H K^-1 H of all states, whose scores are enumerated
    states = grid([2, 2, 2])

    def score(x):
        one = Problem(Sample(x[None], np.ones(1)), layout, np.inf, pseudo=True, enumerate=False)
        return value_of(one, centre)[1]

    K = sum(
        w * np.outer(score(x), score(x)) for x, w in zip(sample.codes, sample.weights, strict=True)
    )
    godambe = hessian @ np.linalg.inv(K + np.eye(layout.size)) @ hessian
    eigen = np.linalg.eigvals(np.linalg.solve(hessian, K + np.eye(layout.size)))
    if eigen.real.min() >= 1.0:
        np.testing.assert_allclose(found.curvature(hessian), godambe, rtol=1e-6)
    else:  # no direction is sharper than that of the pseudo-likelihood
        assert np.linalg.eigvalsh(hessian - found.curvature(hessian)).min() > -1e-8
        assert (
            np.linalg.eigvalsh(found.curvature(hessian) - godambe).max()
            < 1e-8 * np.abs(godambe).max()
        )
    assert len(states) == 8


def test_tables_over_all_states_are_those_of_the_oracle():
    layout, rng = Layout(LEVELS, PAIRS), np.random.default_rng(2)
    phi = rng.normal(size=layout.size)
    log_z, p = Problem(kept(some_rows()), layout, 1.0).target().probabilities(phi)
    h, J = oracle_parameters(layout, phi)
    np.testing.assert_allclose(p, oracle.probabilities(h, J, LEVELS), rtol=1e-12)
    x = grid(LEVELS)
    C = [contrasts(L) for L in LEVELS]
    E = sum(C[i][x[:, i]] @ layout.table(phi, i) for i in range(4))
    E = E + sum(
        np.einsum("na,ab,nb->n", C[i][x[:, i]], layout.table(phi, i, j), C[j][x[:, j]])
        for i, j in layout.pairs
    )
    assert log_z == pytest.approx(oracle.logsumexp(E), rel=1e-12)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_weights_are_repeated_rows_to_the_last_bit(kind):
    layout, sample = Layout(LEVELS, PAIRS), kept(some_rows())
    rows = Sample(
        np.repeat(sample.codes, sample.weights.astype(int), axis=0), np.ones(int(sample.total))
    )
    rows = Sample(rows.codes[::-1].copy(), rows.weights).collapsed(LEVELS)
    x = np.random.default_rng(3).normal(size=problem_of(kind, sample, layout).target().size)
    one, other = (
        value_of(problem_of(kind, own.collapsed(LEVELS), layout), x) for own in (sample, rows)
    )
    assert one[0] == other[0] and np.array_equal(one[1], other[1])
    np.testing.assert_allclose(simplex_sums(rows, layout), simplex_sums(sample, layout), rtol=1e-13)


def toy_a(shared):
    truth = json.loads((shared / "data" / "posterior" / "toyA.json").read_text())
    return kept(Sample(grid([2] * 4), np.array(truth["counts"], float))), Layout([2] * 4), truth


def toy_c(shared):
    truth = json.loads((shared / "data" / "posterior" / "toyC_group_L233.json").read_text())
    return kept(Sample(grid([2, 3, 3]), np.array(truth["counts"], float))), Layout([2, 3, 3]), truth


def drawn(problem, sampler, counts=COUNTS, seed=1, sweeps=0, approximate=None):
    centre, hessian = mode(problem if approximate is None else approximate)
    chains = draw_chains(
        problem, sampler, centre, hessian, counts, np.random.default_rng(seed), sweeps
    )
    return np.array([chain.draws for chain in chains])


@pytest.mark.long
@pytest.mark.parametrize(("sampler", "seed"), [("nuts", 1), ("exchange", 1)])
def test_samplers_reach_the_exact_posterior_of_four_spins(shared, sampler, seed):
    sample, layout, truth = toy_a(shared)
    problem = Problem(sample, layout, 1.0)
    np.testing.assert_allclose(mode(problem)[0], truth["MAP"], atol=1e-4)
    draws = drawn(problem, sampler, seed=seed)
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), truth["exact_mean"], atol=0.01)
    np.testing.assert_allclose(draws.std(axis=(0, 1)), truth["exact_sd"], atol=0.01)
    assert split_rhat(draws, folded=True).max() < 1.01 and effective_sample_size(draws).min() > 800
    correlation = np.corrcoef(draws.reshape(-1, 10).T)
    np.testing.assert_allclose(
        correlation, truth["exact_corr"], atol=0.12 if sampler == "exchange" else 0.07
    )


@pytest.mark.long
def test_rows_by_gibbs_sweeps_from_the_data_reach_it_too(shared):
    sample, layout, truth = toy_a(shared)
    problem = Problem(sample, layout, 1.0)
    draws = drawn(
        replace(problem, enumerate=False), "exchange", (4, 100, 400), sweeps=1, approximate=problem
    )
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), truth["exact_mean"], atol=0.04)
    np.testing.assert_allclose(draws.std(axis=(0, 1)), truth["exact_sd"], atol=0.03)


@pytest.mark.long
def test_the_pseudo_posterior_has_its_own_row_and_the_adjusted_one_the_exact_spread(shared):
    sample, layout, truth = toy_a(shared)
    problem = Problem(sample, layout, 1.0, pseudo=True, enumerate=False)
    draws = drawn(problem, "nuts")
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), truth["pseudo_mean"], atol=0.01)
    np.testing.assert_allclose(draws.std(axis=(0, 1)), truth["pseudo_sd"], atol=0.005)
    adjusted = replace(problem, adjust=adjustment(problem, *mode(problem)))
    draws = drawn(adjusted, "nuts", approximate=problem)
    np.testing.assert_allclose(draws.std(axis=(0, 1)), truth["exact_sd"], atol=0.012)


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["nuts", "exchange"])
def test_samplers_reach_the_exact_posterior_of_three_levels_in_both_gauges(shared, sampler):
    sample, layout, truth = toy_c(shared)
    draws = drawn(
        Problem(sample, layout, 1.0), sampler, COUNTS if sampler == "nuts" else (4, 400, 800)
    )
    sd = np.array(truth["exact_sd"])
    assert np.abs((draws.mean(axis=(0, 1)) - truth["exact_mean"]) / sd).max() < 0.1
    np.testing.assert_allclose(draws.std(axis=(0, 1)), sd, rtol=0.1)
    reference = to_reference(layout, draws)
    sd = np.array(truth["ref_exact_sd"])
    assert np.abs((reference.mean(axis=(0, 1)) - truth["ref_exact_mean"]) / sd).max() < 0.1
    np.testing.assert_allclose(reference.std(axis=(0, 1)), sd, rtol=0.1)


@pytest.mark.long
def test_the_horseshoe_has_one_posterior_by_either_sampler(shared):
    sample, layout, truth = toy_a(shared)
    problem = Problem(sample, layout, 1.0, horseshoe=True)
    one, other = drawn(problem, "nuts", (4, 500, 500)), drawn(problem, "exchange", (4, 300, 700))
    sd = one.std(axis=(0, 1))
    assert np.abs((one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))) / sd).max() < 0.2
    np.testing.assert_allclose(other.std(axis=(0, 1)), sd, rtol=0.12)
    plain = np.array(truth["exact_mean"])
    small = (np.abs(plain) > 0.01) & (np.abs(plain) < 0.1)
    # what is small is drawn to zero,
    assert (np.abs(one.mean(axis=(0, 1)))[small] < np.abs(plain)[small]).all()
    # what is large hardly
    np.testing.assert_allclose(one.mean(axis=(0, 1))[[4, 6]], plain[[4, 6]], atol=0.08)


@pytest.mark.long
def test_draws_by_a_stream_do_not_depend_on_threads(shared):
    sample, layout, _ = toy_a(shared)
    problem = Problem(sample, layout, 1.0)
    for sampler in ("nuts", "exchange"):
        centre, hessian = mode(problem)
        one, two = (
            draw_chains(
                problem, sampler, centre, hessian, (3, 50, 40), np.random.default_rng(5), 0, workers
            )
            for workers in (1, 3)
        )
        for a, b in zip(one, two, strict=True):
            assert np.array_equal(a.draws, b.draws)
        assert not np.array_equal(one[0].draws, one[1].draws)


@pytest.mark.long
def test_conjugate_draws_are_independent_normals_of_the_closed_form():
    layout, sample = Layout(LEVELS, PAIRS), kept(some_rows(n=200))
    mean, draws = conjugate_draws(sample, layout, 25.0, (4, 5000), np.random.default_rng(0))
    np.testing.assert_allclose(mean, simplex_sums(sample, layout) / 50.0)
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), mean, atol=5 / np.sqrt(50 * 20000))
    np.testing.assert_allclose(draws.std(axis=(0, 1)), 1 / np.sqrt(50.0), rtol=0.03)
    assert split_rhat(draws, folded=True).max() < 1.005
    assert effective_sample_size(draws).min() > 15000


@pytest.mark.parametrize("c", [1, 100, 200])
def test_the_conjugate_mean_has_the_divergence_that_is_known(shared, c):
    sample, layout, truth = toy_a(shared)
    mean, _ = conjugate_draws(sample, layout, float(c), (1, 1), np.random.default_rng(0))
    np.testing.assert_allclose(mean, 200 * np.array(truth["moments"]) / (2.0 * c), atol=1e-12)
    p = Problem(sample, layout, 1.0).target().probabilities(mean)[1]
    empirical = np.array(truth["counts"]) / 200.0
    seen = empirical > 0
    divergence = float(empirical[seen] @ np.log(empirical[seen] / p[seen]))
    assert divergence == pytest.approx(truth["conjugate_KL_emp_model"][str(c)], abs=1e-8)


def test_the_conjugate_mean_grows_with_the_data_and_c_is_a_temperature():
    layout, sample = Layout(LEVELS, PAIRS), kept(some_rows())
    once = conjugate_draws(sample, layout, 10.0, (1, 1), np.random.default_rng(0))[0]
    twice = conjugate_draws(
        sample.weighted(2 * sample.weights), layout, 10.0, (1, 1), np.random.default_rng(0)
    )[0]
    cold = conjugate_draws(sample, layout, 5.0, (1, 1), np.random.default_rng(0))[0]
    np.testing.assert_allclose(twice, 2 * once)
    np.testing.assert_allclose(cold, 2 * once)
    X, new = np.random.default_rng(1).uniform(-1, 1, (2, 30, 5))
    w = np.arange(30.0)
    np.testing.assert_allclose(
        conjugate_scores(X, w, 2.0, new), 5 * conjugate_scores(X, w, 10.0, new)
    )


def test_conjugate_scores_of_numbers_are_eq_3_5_and_those_of_spins_the_energy_of_the_machine():
    rng = np.random.default_rng(0)
    X, new, w = (
        rng.uniform(-1, 1, (20, 4)),
        rng.uniform(-1, 1, (6, 4)),
        rng.integers(1, 4, 20).astype(float),
    )
    alpha = w @ X / 6.0
    beta = np.einsum("k,ki,kj->ij", w, X, X) / 6.0
    truth = [
        x @ alpha + sum(beta[i, j] * x[i] * x[j] for i, j in itertools.combinations(range(4), 2))
        for x in new
    ]
    np.testing.assert_allclose(conjugate_scores(X, w, 3.0, new), truth)
    sample, layout = kept(some_rows([2, 2, 2])), Layout([2, 2, 2])
    mean = conjugate_draws(sample, layout, 3.0, (1, 1), rng)[0]
    log_z, p = Problem(sample, layout, 1.0).target().probabilities(mean)
    scores = conjugate_scores(
        2.0 * sample.codes - 1, sample.weights, 3.0, 2.0 * grid([2, 2, 2]) - 1
    )
    np.testing.assert_allclose(scores, np.log(p) + log_z, atol=1e-12)


def test_the_signed_log_has_the_second_case_of_eq_3_6_between_minus_two_and_two():
    t = np.array([-1e300, -2.0, -1.0, 0.0, 1.999999, 2.0, np.e**5])
    expected = [-np.log(1e300), -np.log(2), -np.log(2) / 2, 0.0, np.log(2), np.log(2), 5.0]
    np.testing.assert_allclose(signed_log(t), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("n", "share"), [(12, 0.5), (40, 0.9), (400, 0.02), (1000, 0.37), (10**9, 0.6)]
)
def test_exchange_with_one_spin_has_the_logarithm_of_the_odds_of_a_beta_variable(n, share):
    """Under an all but flat prior; drawn rows are then binomial: by inversion, by rejection, of
    either half.
    """
    ones = round(n * share)
    counts = np.array([n - ones, ones], float)
    problem = Problem(Sample(grid([2]), counts), Layout([2]), 100.0)
    draws = 2.0 * drawn(problem, "exchange", (4, 200, 1000), n)[..., 0]
    sd = np.sqrt(polygamma(1, counts).sum())
    error = sd / np.sqrt(float(effective_sample_size(draws)))
    assert abs(draws.mean() - (digamma(counts[1]) - digamma(counts[0]))) < 4.5 * error
    assert draws.std() == pytest.approx(sd, rel=4.5 * error / sd)


def test_what_does_not_fit_together_is_refused_by_the_kernel():
    target = Problem(kept(some_rows()), Layout(LEVELS, PAIRS), 1.0).target()
    with pytest.raises(ValueError, match="does not fit"):
        target.value(np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match="do not fit"):
        target.coefficients(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="no states"):
        Problem(
            kept(some_rows()), Layout(LEVELS, PAIRS), 1.0, enumerate=False, pseudo=True
        ).target().probabilities(np.zeros(target.size))
    with pytest.raises(ValueError, match="arrays of a chain"):
        target.nuts(
            *[np.zeros(2)] * 1,
            np.eye(2),
            np.zeros(2),
            np.zeros(6),
            0.8,
            np.ones(4, np.uint64),
            np.zeros(1, np.int32),
            np.zeros((1, 2)),
        )
    assert isinstance(target, Target)


def ranks_of(sampler, fits=1000, levels=(2, 3, 2, 2), tau=0.5, n=50, kept_draws=39):
    """Return the ranks (fits, size) of the truth among draws that are all but independent, and its
    coverage at 95 %.
    """
    layout, states, rng = Layout(levels), grid(levels), np.random.default_rng(12)
    model = Problem(Sample(states, np.ones(len(states))), layout, tau).target()
    warmup = 100 if sampler == "nuts" else 30  # each draw of the latter takes 70 proposals
    ranks, inside = np.empty((2, fits, layout.size))
    for fit in range(fits):
        phi = tau * rng.normal(size=layout.size)
        counts = rng.multinomial(n, model.probabilities(phi)[1]).astype(float)
        problem = Problem(Sample(states, counts).weighted(counts), layout, tau)
        draws = drawn(problem, sampler, (1, warmup, 2 * kept_draws), fit)[0]
        draws, truth = to_reference(layout, draws), to_reference(layout, phi)
        ranks[fit] = (draws[::2] < truth).sum(axis=0)
        low, high = np.quantile(draws, [0.025, 0.975], axis=0, method="weibull")
        inside[fit] = (low <= truth) & (truth <= high)
    return ranks.astype(int), inside


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["nuts", "exchange"])
def test_ranks_of_the_truth_are_uniform_and_intervals_cover_it(sampler):
    """Simulation-based calibration (Talts et al. 2018) of a thousand models that are drawn from the
    prior.
    """
    ranks, inside = ranks_of(sampler)
    p = [chisquare(np.bincount(own // 4, minlength=10)).pvalue for own in ranks.T]
    assert min(p) * len(p) > 0.01
    assert 0.93 < inside.mean() < 0.97
    low, high = binom.ppf([1e-4, 1 - 1e-4], len(inside), 0.95)
    assert (low <= inside.sum(axis=0)).all() and (inside.sum(axis=0) <= high).all()
