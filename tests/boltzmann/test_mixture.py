"""Machines with hidden units: rows drawn from them, and all that reads states, by enumeration."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.boltzmann.mixture import MixtureChains
from bbl.errors import OptionError

OPTIONS = {
    "method": "bayes",
    "prior": "conjugate",
    "chains": 2,
    "draws": 20,
    "warmup": 20,
    "verbose": 0,
    "c": 200.0,
}
MACHINES = {
    "restricted": ("~ .", {"hidden": 3}),
    "semi-restricted": ("~ .^2", {"hidden": 3}),
    "full": ("~ .^2", {"hidden": 3, "hidden_pairs": True}),
    "two classes": ("y ~ .", {"hidden": 3}),
}


def rows():
    """Rows of two clusters, with predictors of 3, 2, 2, 2 and 1 levels."""
    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, 300)
    X = np.where(rng.random((300, 4)) < 0.8, z[:, None], 1 - z[:, None])
    X[:, 0] += rng.integers(0, 2, 300)
    frame = pd.DataFrame(X.astype(str), columns=list("abcd")).assign(e="only")
    return frame.assign(y=np.where(z == 1, "one", "zero"))


def machine(name, table=None, **options):
    formula, units = MACHINES[name]
    table = rows() if table is None else table
    if formula.startswith("~"):
        table = table.drop(columns="y")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bbl.bbl(formula, table, novarOk=True, **OPTIONS | units | options)


@pytest.fixture(scope="module", params=MACHINES)
def fit(request):
    return machine(request.param)


def visible_states(fit):
    """Return codes (S, m) of all states of the predictors."""
    return np.array(list(itertools.product(*(range(len(levels)) for levels in fit.labels.levels))))


def truth(fit):
    """Return P(x | group) (S, K), the mean over draws of sums over all states of the units."""
    states = visible_states(fit)
    draws = fit.estimate.predictive
    units = np.array(list(itertools.product([0, 1], repeat=draws.hidden)))
    wide = np.hstack([np.repeat(states, len(units), axis=0), np.tile(units, (len(states), 1))])
    layout = draws.layout
    p = np.zeros((len(states), len(draws.theta)))
    for g, group_theta in enumerate(draws.theta):
        for theta in group_theta:
            energy = np.zeros(len(wide))
            for i in range(layout.m):
                energy += np.append(0.0, layout.table(theta, i))[wide[:, i]]
            for i, j in layout.pairs.tolist():
                table = np.pad(layout.table(theta, i, j), ((1, 0), (1, 0)))
                energy += table[wide[:, i], wide[:, j]]
            weight = np.exp(energy).reshape(len(states), -1).sum(axis=1)
            p[:, g] += weight / weight.sum() / len(group_theta)
    return p


def shares(frame, fit):
    """Return the shares (S,) of the states in a frame of drawn rows."""
    codes = [frame[name].cat.codes.to_numpy() for name in fit.labels.names]
    sizes = [len(levels) for levels in fit.labels.levels]
    index = np.ravel_multi_index(codes, sizes)
    return np.bincount(index, minlength=np.prod(sizes)) / len(frame)


def distance(p, q):
    """Total variation."""
    return 0.5 * np.abs(p - q).sum()


def test_rows_have_the_distribution_that_the_states_of_the_units_give(fit):
    p = truth(fit)
    drawn = fit.sample(60_000, seed=1)
    if fit.labels.response is None:
        assert distance(shares(drawn, fit), p[:, 0]) < 0.02
        # with all units at -1 the distribution is another one
        layout = fit.estimate.parameters.layout
        frozen = np.zeros(len(p))
        for i in range(layout.m):
            field = np.append(0.0, layout.table(fit.estimate.parameters.theta[0], i))
            frozen += field[visible_states(fit)[:, i]]
        frozen = np.exp(frozen)
        if not len(layout.pairs):
            assert distance(frozen / frozen.sum(), p[:, 0]) > 0.1
    else:
        for g, group in enumerate(fit.labels.groups):
            assert distance(shares(drawn[drawn["y"] == group], fit), p[:, g]) < 0.02
    pd.testing.assert_frame_equal(fit.sample(50, seed=3), fit.sample(50, seed=3))
    assert fit.sample(0).shape[0] == 0


def test_mcsample_draws_from_the_same_and_finds_the_best_row(fit):
    p = truth(fit)
    sampled = fit.mcSample(1000, draws=True, seed=1, verbose=0)
    for g, group in enumerate(fit.labels.groups):
        assert distance(shares(sampled.draws[group], fit), p[:, g]) < 0.02
        best = p[:, g].argmax()
        assert sampled.codes[g].tolist() == visible_states(fit)[best].tolist()
        # the energy less ln Z is the log-probability
        assert sampled.emax[group] - fit.log_z[group] == pytest.approx(np.log(p[best, g]))
        assert sampled.rhat[group] < 1.01
    again = bbl.mcSample(fit, 1000, draws=True, seed=1, verbose=0)
    pd.testing.assert_frame_equal(again.xmax, sampled.xmax)
    assert fit.mcSample(10, seed=1, verbose=0).draws is None


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.thinned(4)
def test_chains_of_machines_with_too_many_states_to_list_have_that_distribution(name):
    # draws are few, as the chains would pass over each of many in a long time only
    # and couplings weak, so that the chains change between clusters
    fit = machine(name, draws=4, c=800.0)
    p = truth(fit)
    chains = MixtureChains(fit.estimate.predictive, 0, 500, np.random.default_rng(1))
    drawn = chains.run(200, 300, 5, 2.0)
    states = drawn.draws.reshape(-1, len(fit.labels.names))
    sizes = [len(levels) for levels in fit.labels.levels]
    index = np.ravel_multi_index(states.T.astype(int), sizes)
    found = np.bincount(index, minlength=len(p)) / len(index)
    assert distance(found, p[:, 0]) < 0.02
    np.testing.assert_allclose(drawn.energy.ravel(), np.log(p[index, 0]) + 2.0, rtol=1e-8)
    assert drawn.best_energy == pytest.approx(np.log(p[:, 0].max()) + 2.0)


@pytest.mark.long
def test_large_machines_are_sampled_by_chains():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        rng.integers(0, 2, (200, 16)).astype(str), columns=list("abcdefghijklmnop")
    )
    table["p"] = table["a"]  # a pair that is always equal
    table["y"] = "one"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = machine("restricted", table, hidden=8, draws=4, c=50.0)
    drawn = fit.sample(300, seed=1)
    assert drawn.shape == (300, 16)
    sampled = fit.mcSample(40, nchains=8, draws=True, thin=2, seed=1, verbose=0)
    assert sampled.draws[fit.labels.groups[0]].shape == (80, 16)
    row = pd.DataFrame({name: [level] for name, level in sampled.xmax.iloc[:, 0].items()})
    energy = fit.score_samples(row).iloc[0] + fit.log_z.iloc[0]
    assert sampled.emax.iloc[0] == pytest.approx(energy)


@pytest.mark.thinned(2)
def test_missing_values_are_filled_by_the_enumeration(fit):
    states = visible_states(fit)
    p = truth(fit) @ fit.class_shares if fit.labels.response else truth(fit)[:, 0]
    # everything but b known, and only c known
    for known in ((0, 2, 3, 4), (2,)):
        row = states[7]
        frame = pd.DataFrame(
            {
                name: [fit.labels.levels[i][row[i]] if i in known else None]
                for i, name in enumerate(fit.labels.names)
            }
        )
        match = (states[:, known] == row[list(known)]).all(axis=1)
        filled = fit.reconstruct(frame, method="exact", verbose=0)
        for level in range(2):
            expected = p[match & (states[:, 1] == level)].sum() / p[match].sum()
            found = filled["b"].iloc[0, level]
            assert found == pytest.approx(expected, abs=1e-10)


def test_the_pseudo_likelihood_has_the_units_summed_out(fit):
    states = visible_states(fit)
    p = truth(fit)
    frame = pd.DataFrame(
        {
            name: [fit.labels.levels[i][code] for code in states[:, i]]
            for i, name in enumerate(fit.labels.names)
        }
    )
    group = len(fit.labels.groups) - 1
    if fit.labels.response:
        frame["y"] = fit.labels.groups[group]
    total = 0.0
    for k, row in enumerate(states):
        for i in range(states.shape[1]):
            others = [j for j in range(states.shape[1]) if j != i]
            match = (states[:, others] == row[others]).all(axis=1)
            total += np.log(p[k, group] / p[match, group].sum())
    assert fit.pnll(frame) == pytest.approx(-total / len(states))


def test_what_has_no_meaning_with_units_is_refused():
    with pytest.raises(OptionError, match="log_z='half' is computed from the rows.*Hint"):
        machine("restricted", log_z="half")
    with pytest.raises(OptionError, match="not sums over terms.*Hint"):
        machine("two classes").explain(rows().head(1))
