"""Persistent variational inference: against enumeration, finite differences and another program."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference_variational import Enumerated, evidence, features, rows, settled
from scipy.special import expit
from scipy.stats import halfcauchy, invgamma, kstest, laplace, norm

from bbl._ext.variational import persistent as kernel
from bbl.engines import PersistentVI
from bbl.engines.variational import engine as variational
from bbl.engines.variational import persistent
from bbl.engines.variational.persistent import (
    Budget,
    PseudoLikelihoodGradient,
    SampledGradient,
    _State,
    ascend,
    feature_sums,
    simplex_tables,
)
from bbl.engines.variational.priors import PRIORS, scale_moments, slabbed
from bbl.engines.variational.scaled import Approximation, Groups, start
from bbl.model.chains import Chains
from bbl.model.fields import pseudo_log_likelihood
from bbl.model.gauge import contrasts, simplex_gradient, to_reference
from bbl.model.layout import Layout
from bbl.model.moments import pair_counts
from bbl.model.regressors import to_matrix
from bbl.parallel import ThreadPool
from bbl.rows.sample import Sample

LAYOUTS = [
    Layout([2, 3, 4]),
    Layout([3, 1, 2, 4, 2], [(0, 1), (2, 0), (3, 4), (2, 4)]),
    Layout([2] * 5),
]


# -- priors ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PRIORS)
def test_slopes_of_the_priors_are_those_of_their_densities(name):
    prior, w, d = PRIORS[name], np.linspace(-6.0, 2.0, 17), 1e-6
    assert_allclose(
        prior.hyper_slope(w),
        (prior.log_hyper(w + d) - prior.log_hyper(w - d)) / (2 * d),
        rtol=1e-6,
        atol=1e-8,
    )
    if prior.slope:
        numeric = (prior.log_density(w + d) - prior.log_density(w - d)) / (2 * d)
        assert_allclose(prior.slope(w), numeric, rtol=1e-6, atol=1e-8)


def test_densities_of_log_scales_are_those_of_the_scales():
    u, v = np.linspace(-4.0, 1.0, 11), -0.7
    sigma, s = np.exp(u), np.exp(v)
    assert_allclose(PRIORS["horseshoe"].log_density(u - v), halfcauchy.logpdf(sigma, scale=s) + u)
    rate = s**-2.0
    assert_allclose(
        PRIORS["laplace"].log_density(u - v), np.log(2 * rate) + 2 * u - rate * sigma**2
    )
    student = invgamma.logpdf(sigma**2, 1.5, scale=1.5 * s**2) + np.log(2 * sigma**2)
    assert_allclose(PRIORS["student"].log_density(u - v), student)
    assert_allclose(PRIORS["horseshoe"].log_hyper(u), halfcauchy.logpdf(sigma) + u)
    assert_allclose(
        PRIORS["laplace"].log_hyper(u), halfcauchy.logpdf(sigma**-2.0) + np.log(2) - 2 * u
    )
    assert_allclose(PRIORS["gaussian"].log_hyper(u), norm.logpdf(u))


def test_slopes_are_as_in_the_literature():
    u, v = np.linspace(-4.0, 1.0, 11), -0.7
    assert_allclose(PRIORS["horseshoe"].slope(u - v), 1 - 2 * expit(2 * (u - v)))
    rate = np.exp(-2 * v)
    assert_allclose(PRIORS["laplace"].slope(u - v), 2 - 2 * rate * np.exp(2 * u))
    by_rate = -0.5 * (-PRIORS["laplace"].slope(u - v)).sum() - 0.5 * PRIORS["laplace"].hyper_slope(
        np.array(v)
    )
    assert_allclose(by_rate, (1 - rate * np.exp(2 * u)).sum() + 1 - 2 * expit(2 * np.log(rate)))


def test_the_scale_mixture_of_the_laplace_prior_is_laplace():
    rng = np.random.default_rng(0)
    theta = np.sqrt(rng.exponential(0.3**2, 200_000)) * rng.standard_normal(200_000)
    assert_allclose(
        np.quantile(theta, [0.6, 0.9, 0.99]),
        laplace.ppf([0.6, 0.9, 0.99], scale=0.3 / np.sqrt(2)),
        rtol=0.03,
    )


def test_a_slab_ends_scales_and_its_moments_are_those_of_draws():
    u = np.linspace(-5.0, 6.0, 23)
    scale, share = slabbed(u, 2.0)
    assert_allclose(scale[:3], np.exp(u[:3]), rtol=1e-3)
    assert scale.max() < 2.0
    up, down = slabbed(u + 1e-6, 2.0)[0], slabbed(u - 1e-6, 2.0)[0]
    assert_allclose(scale * share, (up - down) / 2e-6, rtol=1e-5)
    assert_allclose(slabbed(u, np.inf)[0], np.exp(u))
    noise = np.random.default_rng(1).standard_normal(400_000)
    for slab in (1.0, np.inf):
        drawn = slabbed(-1.0 + 0.8 * noise, slab)[0]
        first, second = scale_moments(np.array([-1.0]), np.array([0.8]), slab)
        assert_allclose([first[0], second[0]], [drawn.mean(), (drawn**2).mean()], rtol=0.01)


# -- kernel ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_kernel_changes_gauges_as_the_matrices_do(layout):
    rng = np.random.default_rng(3)
    simplex = rng.normal(size=layout.size)
    h, J = np.empty(layout.D), np.zeros((layout.D, layout.D))
    simplex_tables(layout).couple(simplex, h, J)
    expected = to_matrix(layout, to_reference(layout, simplex))
    assert_allclose(h, expected[0], atol=1e-12)
    assert_allclose(J, expected[1], atol=1e-12)
    G = rng.normal(size=(layout.D, layout.D))
    G = G + G.T
    from bbl.model.regressors import from_matrix

    found = np.empty(layout.size)
    simplex_tables(layout).features(G, 0.0, found)
    assert_allclose(
        found, simplex_gradient(layout, from_matrix(layout, G.diagonal(), G)), atol=1e-11
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_sums_of_features_are_those_of_the_rows(layout):
    sample, tables = rows(layout), simplex_tables(layout)
    expected = sample.weights @ features(layout, sample.codes)
    found = np.empty(layout.size)
    tables.features(pair_counts(sample, layout), sample.total, found)
    assert_allclose(found, expected, atol=1e-11)
    assert_allclose(feature_sums(sample, layout, tables), expected, atol=1e-11)
    half = Sample(sample.codes, sample.weights / 3)
    assert_allclose(feature_sums(half, layout, tables), expected / 3, atol=1e-11)


def test_pairs_with_missing_values_count_as_the_rows_in_which_both_are_known():
    layout = Layout([2, 3, 4])
    sample = rows(layout, 80)
    missing = np.random.default_rng(4).random(sample.codes.shape) < 0.2
    codes = np.where(missing, 0, sample.codes).astype(np.uint8)
    found = feature_sums(
        Sample(codes, sample.weights, missing=missing), layout, simplex_tables(layout)
    )
    each = features(layout, sample.codes) * sample.weights[:, None]
    for scope in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]:
        known = ~missing[:, list(scope)].any(axis=1)
        share = sample.total / sample.weights[known].sum()
        assert_allclose(
            layout.table(found, *scope),
            layout.table(each[known].sum(axis=0), *scope) * share,
            atol=1e-10,
        )


@pytest.mark.parametrize("levels", [[2] * 7, [2, 3, 4, 2], [20] * 12])
def test_bits_of_chains_hold_the_states_after_each_sweep(levels):
    layout = Layout(levels)
    theta = to_reference(layout, np.random.default_rng(5).normal(size=layout.size, scale=0.3))
    h, J = to_matrix(layout, theta)
    marked, plain = (Chains(h, J, levels, 40, 7) for _ in range(2))
    bits, n = marked.sweep_bits(3)
    sums = np.empty(layout.size)
    simplex_tables(layout).features_of_bits(bits, n, sums)
    expected = np.zeros(layout.size)
    for _ in range(3):
        plain.sweep(1)
        expected += features(layout, plain.codes).sum(axis=0)
    assert n == 120
    np.testing.assert_array_equal(marked.codes, plain.codes)
    assert_allclose(sums, expected, atol=1e-9)


def test_arrays_that_do_not_fit_are_refused():
    tables, x = simplex_tables(Layout([2, 2])), np.zeros(3)
    with pytest.raises(ValueError, match="fit the layout"):
        tables.couple(x[:2], np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="no states"):
        tables.features_of_bits(np.zeros((2, 0), dtype=np.uint64), 1.0, x)
    with pytest.raises(ValueError, match="pairs are not"):
        kernel.Tables(
            np.array([2, 2], np.int32), np.arange(3), np.array([[1, 1]]), np.array([2, 3])
        )
    with pytest.raises(ValueError, match="fit the groups"):
        kernel.draw(np.array([0, 3]), x, x, x, np.ones(2), x)
    with pytest.raises(ValueError, match="fit the groups"):
        kernel.gradient_by_scale(np.array([0, 3]), x, x, x, x, np.ones(2))
    with pytest.raises(ValueError, match="not that of the streams"):
        kernel.normal(np.ones((4, 3), np.uint32), x)
    with pytest.raises(ValueError, match="fit the groups"):
        kernel.log_scales(1, x[:2], x[:2], x[:2], x[:2], -1.0, 1.0, x, x)
    with pytest.raises(ValueError, match="fit the groups"):
        kernel.slab(1.0, x, x[:2])
    Q = np.zeros((2, 3))
    with pytest.raises(ValueError, match="do not fit together"):
        kernel.step_scales((0.1, 0.9, 0.9, 1.0, 1.0), Q, Q, x, x, x[:2], Q, Q)
    with pytest.raises(ValueError, match="do not fit together"):
        kernel.step(
            (0.1, 0.9, 0.9, 1.0, 1.0), np.array([0, 3]), Q, np.zeros((2, 2)), Q, x, x, x, Q, Q
        )


@pytest.mark.long
def test_normal_numbers_are_normal_and_independent():
    state = np.random.default_rng(11).integers(1, 2**32, (4, kernel.streams()), dtype=np.uint32)
    begun, x = state.copy(), np.empty(400_000)
    kernel.normal(state, x)
    assert kstest(x, norm.cdf).pvalue > 0.01
    assert_allclose([x.mean(), x.var(), (x**3).mean(), (x**4).mean()], [0, 1, 0, 3], atol=0.05)
    assert 4.3 < abs(x).max() < 5.9 and len(np.unique(x)) > 0.98 * len(x)
    # neighbours: other streams, the partner, the next of a stream
    lags = [1, kernel.streams(), 2 * kernel.streams()]
    assert_allclose(
        [np.corrcoef(y[:-k], y[k:])[0, 1] for k in lags for y in (x, x**2)], 0.0, atol=0.008
    )
    part = np.empty(45)
    kernel.normal(begun, part)
    np.testing.assert_array_equal(part, x[:45])
    kernel.normal(begun, part)  # what was left of the second block is gone
    np.testing.assert_array_equal(part, x[64:109])


def test_blocks_of_tables_add_up_to_the_whole(monkeypatch):
    layout = Layout([3, 2, 4, 3, 2, 5])
    monkeypatch.setattr(persistent, "BLOCK", 20)
    blocks = persistent._blocks(layout.pair_start[1:])
    assert [a for a, _ in blocks] == [0, *(b for _, b in blocks[:-1])] and blocks[-1][1] == len(
        layout.pairs
    )
    assert (
        len(blocks) > 3
        and max(np.diff(layout.pair_start)[lo:hi].sum() for lo, hi in blocks) <= 2 * 20
    )
    assert persistent._blocks(np.zeros(0)) == [(0, 0)] and persistent._blocks(np.array([900])) == [
        (0, 1)
    ]
    rng, tables, D = np.random.default_rng(12), simplex_tables(layout), layout.D
    simplex, bits = rng.normal(size=layout.size), rng.integers(0, 2**63, (D, 2)).astype(np.uint64)
    whole, parts = np.zeros((D, D)), np.zeros((D, D))
    h, own, found, expected = (
        np.empty(D),
        np.empty((len(blocks), D)),
        np.empty(layout.size),
        np.empty(layout.size),
    )
    tables.couple(simplex, h, whole)
    tables.features_of_bits(bits, 128.0, expected)
    for k, cut in enumerate(blocks):
        tables.couple(simplex, own[k], parts, *cut)
        tables.features_of_bits(bits, 128.0, found, *cut)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(found, expected)
    assert_allclose(own.sum(axis=0), h, atol=1e-12)
    with pytest.raises(ValueError, match="pairs do not fit"):
        tables.couple(simplex, h, whole, 3, 99)


@pytest.mark.parametrize(("levels", "draws"), [([2] * 9, 3), ([4, 3, 2, 4, 3], 1), ([20] * 6, 2)])
def test_threads_change_no_bit(monkeypatch, levels, draws):
    monkeypatch.setattr(persistent, "BLOCK", 16)  # so that small models have several
    monkeypatch.setattr(variational, "WORTH", 1.0)
    layout = Layout(levels)
    engine = PersistentVI(n_iter=30, chains=64 * draws, draws=draws)
    fits = [engine.fit(rows(layout), layout, n, rng=np.random.default_rng(3)) for n in (1, 2, 3, 8)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.theta, fits[0].theta)
        np.testing.assert_array_equal(fit.sd, fits[0].sd)
        np.testing.assert_array_equal(fit.history["gradient"], fits[0].history["gradient"])


# -- the ascent ------------------------------------------------------------------------------------
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize(
    ("name", "slab"),
    [
        ("horseshoe", 1.0),
        ("horseshoe", np.inf),
        ("laplace", np.inf),
        ("student", 2.0),
        ("gaussian", np.inf),
    ],
)
@pytest.mark.thinned(3)
def test_the_gradient_of_the_bound_is_that_of_finite_differences(
    name, slab, scale, centred, grouped
):
    layout = Layout([2, 3, 2], [(0, 1), (1, 2)])
    begin = start(
        rows(layout, 30), layout, PRIORS[name], slab, scale, centred=centred, grouped=grouped
    )
    check_gradient(begin)


def test_the_gradient_of_the_bound_without_a_prior_is_that_of_finite_differences():
    layout = Layout([2, 3, 2], [(0, 1), (1, 2)])
    check_gradient(start(rows(layout, 30), layout, PRIORS["flat"], np.inf, 1.0))


def check_gradient(begin):
    """Compare the gradient near `begin` with finite differences of the bound's definition."""
    layout, rng = begin.layout, np.random.default_rng(6)
    likelihood = Enumerated(layout, rows(layout, 30))
    mean = begin.mean + rng.normal(scale=0.3, size=len(begin.mean))
    log_sd = np.log(rng.uniform(0.3, 0.9, len(mean)))
    at = replace(begin, mean=mean, log_sd=log_sd)
    state = _State(at, likelihood, 2, rng, ThreadPool(1))
    state.step((0.0, 0.0, 0.0, 1.0, 1.0))  # without memory the first moment is the gradient itself
    numeric = np.empty((2, len(mean)))
    for k, d in itertools.product(range(len(mean)), [1e-5]):
        for row, array in enumerate((mean, log_sd)):
            array[k] += d
            up = evidence(likelihood, at, state.noise)
            array[k] -= 2 * d
            numeric[row, k] = (up - evidence(likelihood, at, state.noise)) / (2 * d)
            array[k] += d
    assert_allclose(state.first_moments, numeric, rtol=2e-6, atol=2e-6)


def test_the_gradient_of_the_pseudo_likelihood_is_that_of_finite_differences():
    layout = LAYOUTS[1]
    sample, simplex = rows(layout), np.random.default_rng(7).normal(size=layout.size)
    found, numeric = np.empty((2, layout.size))
    PseudoLikelihoodGradient(sample, layout).gradient(0, simplex, found)
    for k in range(layout.size):
        step = np.zeros(layout.size)
        step[k] = 1e-5
        thetas = (to_reference(layout, simplex + s) for s in (step, -step))
        up, down = (
            sample.weights @ pseudo_log_likelihood(layout, theta, sample.codes) for theta in thetas
        )
        numeric[k] = (up - down) / 2e-5
    assert_allclose(found, numeric, rtol=1e-6, atol=1e-6)


def test_chains_give_the_gradient_of_the_likelihood():
    layout = Layout([2, 3, 4])
    sample, simplex = rows(layout), np.random.default_rng(8).normal(scale=0.4, size=layout.size)
    exact, found = np.empty((2, layout.size))
    Enumerated(layout, sample).gradient(0, simplex, exact)
    SampledGradient(sample, layout, 512, 200, np.random.default_rng(9), [ThreadPool(1)]).gradient(
        0, simplex, found
    )
    assert_allclose(found, exact, atol=0.01 * sample.total)


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "levels", "mean", "sd"),
    [("toyA", [2] * 4, 0.01, 0.005), ("toyC_group_L233", [2, 3, 3], 0.015, 0.01)],
)
def test_normal_priors_give_the_optimum_that_another_program_found(shared, file, levels, mean, sd):
    stored, *_, fit, found = settled(shared / f"data/posterior/{file}.json", tuple(levels))
    assert_allclose(found.simplex, stored["mfvi_mean"], atol=mean)
    assert_allclose(np.sqrt(found.simplex_variance), stored["mfvi_sd"], atol=sd)
    if "ref_mfvi_sd" in stored:
        assert_allclose(fit.sd, stored["ref_mfvi_sd"], rtol=0.04)


@pytest.mark.long
def test_sds_and_strengths_are_those_of_draws_from_the_approximation():
    layout, rng = Layout([2, 3, 3]), np.random.default_rng(10)
    groups = Groups(layout)
    n = Approximation.length(layout, PRIORS["horseshoe"], None)
    at = Approximation(
        layout, PRIORS["horseshoe"], 1.0, None, rng.normal(size=n), np.log(rng.uniform(0.2, 0.6, n))
    )
    x = at.mean + np.exp(at.log_sd) * rng.standard_normal((100_000, n))
    scale = slabbed(x[:, layout.size : layout.size + len(groups)], 1.0)[0]
    simplex = scale[:, groups.of_parameter] * x[:, : layout.size]
    theta = to_reference(layout, simplex)
    assert_allclose(at.sd, theta.std(axis=0), rtol=0.02)
    assert_allclose(at.theta, theta.mean(axis=0), atol=0.02)
    i, j = layout.pairs[2]
    tables = contrasts(3) @ layout.table(simplex[:2000], i, j) @ contrasts(3).T
    drawn = at.strengths(np.random.default_rng(0), 2000)[:, 2]
    assert_allclose(
        np.quantile(drawn, [0.2, 0.5, 0.8]),
        np.quantile(np.sqrt((tables**2).sum(axis=(1, 2))), [0.2, 0.5, 0.8]),
        rtol=0.1,
    )


@pytest.mark.long
def test_without_a_prior_the_optimum_has_the_sds_and_moments_of_equation_10():
    layout = Layout([2, 3, 2])
    sample, draws = rows(layout, 200), np.random.default_rng(13).standard_normal((4000, 16))
    likelihood = Enumerated(layout, sample)
    begin = start(sample, layout, PRIORS["flat"], np.inf, 1.0)
    budget = Budget(4000, None, 3, 0.02, 0.3)
    found, _ = ascend(likelihood, begin, budget, np.random.default_rng(0))
    noise = np.concatenate([draws, -draws])[:, : layout.size]
    sd = np.exp(found.log_sd)
    logits = (found.mean + sd * noise) @ likelihood.F.T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected = (p / p.sum(axis=1, keepdims=True)) @ likelihood.F  # of the features, at each draw
    assert_allclose(expected.mean(axis=0), likelihood.sums / sample.total, atol=0.004)
    assert_allclose(sd * sample.total * (noise * expected).mean(axis=0), 1.0, atol=0.08)


@pytest.mark.parametrize("centred", [False, True])
def test_ungrouped_sds_and_strengths_are_those_of_draws(centred):
    layout, rng = Layout([2, 3, 3]), np.random.default_rng(14)
    n = Approximation.length(layout, PRIORS["horseshoe"], None, grouped=False)
    assert n == 2 * layout.size + 2
    mean = rng.normal(size=n)
    log_sd = np.log(rng.uniform(0.2, 0.6, n))
    at = Approximation(layout, PRIORS["horseshoe"], 1.0, None, mean, log_sd, centred, False)
    x = mean + np.exp(log_sd) * rng.standard_normal((100_000, n))
    scale = 1.0 if centred else slabbed(x[:, layout.size : 2 * layout.size], 1.0)[0]
    simplex = scale * x[:, : layout.size]
    theta = to_reference(layout, simplex)
    assert_allclose(at.sd, theta.std(axis=0), rtol=0.02)
    assert_allclose(at.theta, theta.mean(axis=0), atol=0.02)
    i, j = layout.pairs[2]
    tables = contrasts(3) @ layout.table(simplex[:2000], i, j) @ contrasts(3).T
    drawn = at.strengths(np.random.default_rng(0), 2000)[:, 2]
    assert_allclose(
        np.quantile(drawn, [0.2, 0.5, 0.8]),
        np.quantile(np.sqrt((tables**2).sum(axis=(1, 2))), [0.2, 0.5, 0.8]),
        rtol=0.1,
    )


def test_ungrouped_scales_of_two_levels_are_the_grouped_ones():
    layout = Layout([2] * 4)
    sample = rows(layout)
    options = {"n_iter": 50, "chains": 32, "draws": 1, "seed": 3}
    grouped, ungrouped = (
        PersistentVI(grouped=grouped, **options).fit(sample, layout) for grouped in (True, False)
    )
    np.testing.assert_array_equal(grouped.theta, ungrouped.theta)
    assert_allclose(grouped.sd, ungrouped.sd, rtol=1e-12)


@pytest.mark.parametrize("slab", [1.0, np.inf])
def test_empirical_bayes_leaves_out_the_variance_of_log_scales(slab):
    layout = Layout([2, 3, 3])
    sample = rows(layout)
    options = {"n_iter": 50, "chains": 32, "draws": 1, "seed": 3, "slab": slab}
    engines = [PersistentVI(empirical_bayes=value, **options) for value in (False, True)]
    fits = [engine.fit(sample, layout) for engine in engines]
    for name in ("mean", "log_sd"):
        np.testing.assert_array_equal(fits[0].state[name], fits[1].state[name])
    at = engines[1].approximation(layout, fits[1])
    u = at.mean[layout.size : layout.size + len(at.groups)]
    scale = slabbed(u, slab)[0][at.groups.of_parameter]  # equation 12 without its optional term
    assert_allclose(at.simplex, at.mean[: layout.size] * scale)
    assert_allclose(np.sqrt(at.simplex_variance), scale * np.exp(at.log_sd[: layout.size]))
    assert_allclose(fits[1].theta, to_reference(layout, at.simplex))
    assert np.linalg.norm(fits[0].theta - fits[1].theta) > 1e-3


@pytest.mark.long
def test_the_centred_approximation_shrinks_less():
    layout = Layout([2] * 6)
    codes = np.random.default_rng(15).integers(0, 2, (200, 6)).astype(np.uint8)
    sample = Sample(codes, np.ones(200))  # independent: no couplings
    begins = [
        start(sample, layout, PRIORS["horseshoe"], 1.0, 0.01, centred=centred)
        for centred in (False, True)
    ]
    noncentred, centred = (
        ascend(
            Enumerated(layout, sample),
            begin,
            Budget(3000, None, 3, 0.01, 0.1),
            np.random.default_rng(0),
        )[0]
        for begin in begins
    )
    rms = [np.sqrt(np.mean(a.simplex[layout.D :] ** 2)) for a in (noncentred, centred)]
    assert rms[1] > 1.5 * rms[0], rms


@pytest.mark.long
def test_an_early_end_still_lets_the_steps_fall_to_zero():
    layout = Layout([2, 2])
    sample = rows(layout, 40)
    begin = start(sample, layout, PRIORS["gaussian"], np.inf, 1.0)
    told = []
    made = Enumerated(layout, sample)
    budget = Budget(4000, 1e-2, 3, 0.01, 0.1)
    found, history = ascend(
        made, begin, budget, np.random.default_rng(0), lambda share, note: told.append(share)
    )
    assert 400 <= history["iteration"][-1] < 4000
    long, _ = ascend(made, begin, Budget(4000, None, 3, 0.01, 0.1), np.random.default_rng(1))
    assert_allclose(found.simplex, long.simplex, atol=0.02)
    assert sum(told) <= 1.0
