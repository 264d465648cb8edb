"""MCMC: elementary symmetric polynomials, the likelihood, and posteriors of small tables against
enumeration.
"""

import json

import numpy as np
import pytest
import reference_blocks as reference
from scipy.stats import chi2

from bbl._ext.bicluster.mcmc import Chain, log_elementary
from bbl.biclustering.cells import Cells
from bbl.biclustering.mcmc import log_likelihood, sample

OPTIONS = {"warmup": 200, "draws": 5000, "thin": 1, "alpha": 1.0, "sigma": 1.0, "step": 1.0}


def load(shared, name):
    return json.loads((shared / "data" / "bicluster" / f"{name}.json").read_text())


def cells_of(Y):
    row, column = np.nonzero(Y)
    return Cells.from_entries(row, column, np.ones(len(row)), np.ones(len(row)), np.shape(Y))


@pytest.mark.parametrize("in_logs", [False, True])
def test_elementary_polynomials_are_sums_over_subsets(in_logs):
    rng = np.random.default_rng(0)
    for n in range(1, 9):
        log_v = rng.normal(size=n) * 3
        expected = [np.log(reference.elementary(np.exp(log_v), k)) for k in range(n + 1)]
        np.testing.assert_allclose(
            log_elementary(log_v, n, in_logs), expected, rtol=1e-12, atol=1e-12
        )


def test_elementary_polynomials_stay_finite_where_doubles_do_not_reach():
    log_v = np.random.default_rng(1).normal(size=400) * 40
    plain, logs = log_elementary(log_v, 300), log_elementary(log_v, 300, True)
    np.testing.assert_allclose(plain, logs, rtol=1e-10)
    np.testing.assert_allclose(
        log_elementary(log_v - 500, 300), logs - 500 * np.arange(301), rtol=1e-10
    )
    with pytest.raises(ValueError, match="top"):
        log_elementary(log_v, 401)


@pytest.mark.parametrize("name", ["rated_toy_I4_J3", "rated_toy_I6_J5", "rated_loglik_I9_J12"])
def test_log_likelihood_is_that_of_the_files_and_of_loops(shared, name):
    data = load(shared, name)
    cells = cells_of(data["Y"])
    for check in data["loglik_checks"]:
        state = (check["gamma"], check["rank"], check["w"])
        assert log_likelihood(cells, check["Q"], check["P"], *state) == pytest.approx(
            check["loglik"], abs=1e-10
        )
        assert reference.rated_loglik(data["Y"], check["P"], check["Q"], *state) == pytest.approx(
            check["loglik"]
        )
        kernel = reference.rated_loglik(data["Y"], check["P"], check["Q"], *state, normalised=False)
        assert kernel == pytest.approx(check["loglik_thesis_kernel_without_e_n"])


def test_without_its_normaliser_the_likelihood_wants_lambda_at_one(shared):
    """The thesis leaves e_n out: then all raters like everything alike, whatever the data say."""
    data = load(shared, "rated_toy_I6_J5")
    P, Q, rank, w = (0, 0, 0, 1, 1, 1), (0, 0, 0, 1, 1), [[1, 2], [2, 1]], data["w"]
    grid = np.linspace(-4, 8, 25)

    def along(normalised):
        return [reference.rated_loglik(data["Y"], P, Q, [g, g], rank, w, normalised) for g in grid]

    assert np.argmax(along(False)) == len(grid) - 1
    assert 0 < np.argmax(along(True)) < len(grid) - 1
    whole = reference.rated_loglik(data["Y"], (0,) * 6, (0,) * 5, [8.0], [[1]], w, normalised=False)
    assert whole >= max(along(False))  # one group of items at rank 1 always wins
    cells = cells_of(data["Y"])
    found = [log_likelihood(cells, Q, P, [g, g], rank, w) for g in grid]
    np.testing.assert_allclose(found, along(True), rtol=1e-12)


def posterior(draws, movies, raters):
    """Return the share of draws in each pair of partitions."""
    at = [{tuple(p): k for k, p in enumerate(found)} for found in (movies, raters)]
    counts = np.zeros((len(movies), len(raters)))
    both = np.concatenate([np.hstack([one.columns, one.rows]) for one in draws])
    for labels, count in zip(*np.unique(both, axis=0, return_counts=True), strict=True):
        split = len(movies[0])
        counts[at[0][tuple(labels[:split])], at[1][tuple(labels[split:])]] = count
    return counts / counts.sum()


@pytest.mark.parametrize(
    ("variant", "sigma", "known"),
    [
        ("gamma0_w_fixed", 0.0, True),
        ("gamma_N01_w_fixed", 1.0, True),
        ("gamma_N01_w_dirichlet1", 1.0, False),
    ],
)
@pytest.mark.long
def test_posterior_is_that_of_the_enumeration(shared, variant, sigma, known):
    data = load(shared, "rated_toy_I4_J3")
    cells, w = cells_of(data["Y"]), np.array(data["w"]) if known else None
    draws = [
        sample(cells, seed, OPTIONS | {"sigma": sigma, "draws": 30000}, w) for seed in range(4)
    ]
    got = posterior(draws, data["partitions_movies"], data["partitions_raters"])
    expected = np.array(data[variant]["posterior_P_by_Q"])
    assert 0.5 * np.abs(got - expected).sum() <= 0.02


@pytest.mark.long
def test_similarities_are_those_of_the_enumeration(shared):
    data = load(shared, "rated_toy_I6_J5")
    draws = [sample(cells_of(data["Y"]), seed, OPTIONS, np.array(data["w"])) for seed in range(4)]
    exact = data["gamma_N01_w_fixed"]
    for labels, key, groups in (
        ("columns", "similarity_movies", "p_KP"),
        ("rows", "similarity_raters", "p_KQ"),
    ):
        found = np.concatenate([getattr(one, labels) for one in draws])
        share = np.mean(found[:, :, None] == found[:, None, :], axis=0)
        np.testing.assert_allclose(share, exact[key], rtol=0, atol=0.025)
        size = np.bincount(found.max(axis=1) + 1, minlength=len(exact[groups]) + 1)[1:] / len(found)
        np.testing.assert_allclose(size, list(exact[groups].values()), rtol=0, atol=0.025)


def test_what_the_chain_remembers_is_what_it_would_compute_anew():
    rng = np.random.default_rng(3)
    Y = rng.random((8, 10)) < 0.4
    Y[:, 0] = True
    cells = cells_of(Y)
    stream, stop = rng.integers(1, 2**64, 4, dtype=np.uint64), np.zeros(1, dtype=np.int32)
    chain = Chain(cells.start, cells.column, 10, 1.0, 1.0, 1.0, np.zeros(10), stream, stop)
    chain.set(np.zeros(10, dtype=np.int32), np.zeros(8, dtype=np.int32))
    for _ in range(200):
        chain.run(1)
        P, Q, gamma, rank, w = chain.state()
        assert sorted(set(P)) == list(range(rank.shape[1])) and sorted(set(Q)) == list(
            range(len(gamma))
        )
        assert (np.sort(rank, axis=1) == np.arange(1, rank.shape[1] + 1)).all()
        assert chain.value()[0] == pytest.approx(
            log_likelihood(cells, Q, P, gamma, rank, w), abs=1e-9
        )


def test_a_flag_stops_the_chain():
    cells, stop = cells_of(np.eye(6) + np.eye(6)[::-1]), np.ones(1, dtype=np.int32)
    chain = Chain(
        cells.start,
        cells.column,
        6,
        1.0,
        1.0,
        1.0,
        np.zeros(6),
        np.arange(1, 5, dtype=np.uint64),
        stop,
    )
    chain.set(np.zeros(6, dtype=np.int32), np.zeros(6, dtype=np.int32))
    chain.run(10**9)  # would take hours


def test_draws_are_the_states_of_the_chain():
    rng = np.random.default_rng(5)
    Y = rng.random((5, 6)) < 0.5
    Y[:, 0] = True
    cells = cells_of(Y)
    found = sample(cells, 7, OPTIONS | {"warmup": 3, "draws": 20, "thin": 2})
    own = np.random.default_rng(7)
    stream, stop = own.integers(1, 2**64, 4, dtype=np.uint64), np.zeros(1, dtype=np.int32)
    chain = Chain(cells.start, cells.column, 6, 1.0, 1.0, 1.0, np.zeros(6), stream, stop)
    start = [
        reference.canonical(own.integers(1 + own.integers(min(n, 10)), size=n)) for n in (6, 5)
    ]
    chain.set(*(np.array(labels, dtype=np.int32) for labels in start))
    chain.run(3)
    weights, loyalty = np.zeros(6), np.zeros(5)
    for k in range(20):
        chain.run(2)
        P, Q, gamma, _, w = chain.state()
        assert tuple(found.columns[k]) == reference.canonical(P) and tuple(
            found.rows[k]
        ) == reference.canonical(Q)
        assert found.log_posterior[k] == chain.value()[1]
        weights, loyalty = weights + w / 20, loyalty + 1 / (1 + np.exp(-gamma[Q])) / 20
    np.testing.assert_allclose(found.popularity, weights, rtol=1e-12)
    np.testing.assert_allclose(found.loyalty, loyalty, rtol=1e-12)
    with pytest.raises(ValueError, match="do not fit"):
        chain.record(
            1,
            np.zeros((2, 5), dtype=np.int32),
            np.zeros((2, 5), dtype=np.int32),
            np.zeros(2),
            loyalty,
            w,
        )


def draw_prior(rng, raters, items):
    """Draw partitions, parameters and data from the prior; all partitions have the same
    probability.
    """
    P, Q = (
        np.array(states[rng.integers(len(states))])
        for states in map(reference.partitions, (items, raters))
    )
    gamma, w = rng.normal(size=Q.max() + 1), rng.dirichlet(np.ones(items))
    rank = np.array([rng.permutation(P.max() + 1) + 1 for _ in gamma])
    Y = np.zeros((raters, items), dtype=int)
    for j in range(raters):
        v = w * (1 / (1 + np.exp(-gamma[Q[j]]))) ** rank[Q[j]][P]
        subsets = [s for s in np.ndindex(*(2,) * items) if sum(s) == 1 + j % 3]
        p = np.array([np.prod(v[np.array(s) == 1]) for s in subsets])
        Y[j] = subsets[rng.choice(len(subsets), p=p / p.sum())]
    return P, Q, gamma, w, Y


@pytest.mark.long
def test_ranks_of_the_truth_among_draws_are_uniform():
    """Simulation-based calibration (Talts et al. 2018) of group numbers, pairs, loyalty and
    weights.
    """
    rng, runs, draws, bins = np.random.default_rng(11), 400, 49, 10
    ranks = []
    for seed in range(runs):
        P, Q, gamma, w, Y = draw_prior(rng, 5, 5)
        cells, own = cells_of(Y), np.random.default_rng(seed)
        stream, stop = own.integers(1, 2**64, 4, dtype=np.uint64), np.zeros(1, dtype=np.int32)
        chain = Chain(cells.start, cells.column, 5, 1.0, 1.0, 1.0, np.zeros(5), stream, stop)
        chain.set(np.zeros(5, dtype=np.int32), np.zeros(5, dtype=np.int32))
        chain.run(200)

        def quantities(P, Q, gamma, w):
            return [
                P.max(),
                Q.max(),
                float(P[0] == P[1]),
                float(Q[0] == Q[1]),
                gamma[Q[0]],
                w[0],
                w[3],
            ]

        truth, found = np.array(quantities(P, Q, gamma, w)), []
        for _ in range(draws):
            chain.run(10)
            p, q, g, _, weight = chain.state()
            found.append(quantities(p, q, g, weight))
        below, equal = (np.array(found) < truth).sum(axis=0), (np.array(found) == truth).sum(axis=0)
        ranks.append(below + rng.integers(0, equal + 1))  # ties are broken at random
    for rank in np.array(ranks).T:
        counts = np.bincount(rank * bins // (draws + 1), minlength=bins)
        statistic = ((counts - runs / bins) ** 2 / (runs / bins)).sum()
        assert chi2.sf(statistic, bins - 1) > 1e-3, counts
