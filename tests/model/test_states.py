"""Tests of bbl.model.states: samples against exact probabilities, groups, random parameters."""

import numpy as np
import pytest
import reference as oracle
from scipy.stats import chisquare, kstest

from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.layout import Layout
from bbl.model.regressors import to_matrix
from bbl.model.states import random_parameters, sample_groups, sample_states


def oracle_model(layout, theta):
    h = [layout.table(theta, i) for i in range(layout.m)]
    return h, {(i, j): layout.table(theta, i, j) for i, j in layout.pairs.tolist()}


def state_counts(codes, n_levels):
    index = np.ravel_multi_index(codes.T.astype(np.intp), tuple(n_levels))
    return np.bincount(index, minlength=int(np.prod(n_levels)))


@pytest.mark.long
@pytest.mark.parametrize("n_levels", [[3] * 5, [2, 3, 4, 5], [6]], ids=str)
def test_listed_states_are_drawn_with_their_probabilities(n_levels):
    layout = Layout(n_levels)
    theta = random_parameters(layout, rng=1)[0]
    codes = sample_states(*to_matrix(layout, theta), n_levels, 1_000_000, 2)
    assert codes.dtype == np.uint8
    expected = oracle.probabilities(*oracle_model(layout, theta), n_levels) * 1e6
    assert chisquare(state_counts(codes, n_levels), expected).pvalue > 1e-4


@pytest.mark.parametrize("nsample", [100_000, 99_999])
def test_gibbs_takes_over_beyond_the_limit(nsample, monkeypatch):
    monkeypatch.setattr("bbl.model.states.MAX_STATES", 10)
    layout = Layout([3, 2, 4])
    theta = random_parameters(layout, rng=1)[0]
    codes = sample_states(*to_matrix(layout, theta), layout.n_levels, nsample, 2)
    assert codes.shape == (nsample, 3)
    expected = oracle.probabilities(*oracle_model(layout, theta), layout.n_levels) * nsample
    assert chisquare(state_counts(codes, layout.n_levels), expected).pvalue > 1e-4
    halves = [state_counts(part, layout.n_levels) for part in np.array_split(codes, 2)]
    # rows in random order
    assert chisquare(halves[0], halves[1] * halves[0].sum() / halves[1].sum()).pvalue > 1e-6


def test_a_system_that_cannot_be_listed_is_sampled():
    layout = Layout([2] * 60)
    h, J = to_matrix(layout, np.append(np.full(60, -0.5), np.zeros(layout.size - 60)))
    codes = sample_states(h, J, layout.n_levels, 2000, 3, burn_in=20)
    p = 1 / (1 + np.exp(0.5))
    assert codes.mean() == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / codes.size))


@pytest.mark.parametrize("n_levels", [[2, 3], [2] * 30], ids=["listed", "gibbs"])
@pytest.mark.parametrize("nsample", [0, 1, 2])
def test_tiny_samples(n_levels, nsample):
    layout = Layout(n_levels)
    h, J = to_matrix(layout, random_parameters(layout, rng=1)[0])
    codes = sample_states(h, J, n_levels, nsample, 1)
    assert codes.shape == (nsample, layout.m)
    assert np.array_equal(codes, sample_states(h, J, n_levels, nsample, np.random.default_rng(1)))


def test_impossible_states_are_never_drawn():
    h = np.array([-1e5, 0.0, -1e5])  # level 1 and the last one cannot happen
    codes = sample_states(h, np.zeros((3, 3)), [4], 10_000, 1)
    assert set(codes.ravel().tolist()) == {0, 2}


def test_groups_have_their_shares_and_distributions():
    layout = Layout([3, 2, 2])
    theta = random_parameters(layout, rng=3, n_groups=3)
    codes, y = sample_groups(layout, theta, 300_000, [1, 2, 3], 4)
    counts = np.bincount(y, minlength=3)
    assert chisquare(counts, np.array([1, 2, 3]) * 50_000).pvalue > 1e-4
    for k in range(3):
        expected = (
            oracle.probabilities(*oracle_model(layout, theta[k]), layout.n_levels) * counts[k]
        )
        assert chisquare(state_counts(codes[y == k], layout.n_levels), expected).pvalue > 1e-4
    assert np.bincount(y[:1000], minlength=3).min() > 50  # not sorted by group


def test_groups_with_one_row_or_none_and_equal_shares():
    layout = Layout([2, 3])
    theta = random_parameters(layout, rng=1, n_groups=4)
    sizes = set()
    for seed in range(20):
        codes, y = sample_groups(layout, theta, 3, rng=seed)
        assert codes.shape == (3, 2) and y.shape == (3,)
        sizes |= set(np.bincount(y, minlength=4).tolist())
    assert {0, 1} <= sizes
    codes, y = sample_groups(layout, theta, 50, [0, 1, 0, 0], 1)
    assert set(y.tolist()) == {1}
    codes, y = sample_groups(layout, theta, 0, rng=1)
    assert codes.shape == (0, 2) and y.shape == (0,)
    assert (
        chisquare(np.bincount(sample_groups(layout, theta, 100_000, rng=1)[1], minlength=4)).pvalue
        > 1e-4
    )


def test_random_parameters_have_the_distribution_asked_for():
    layout = Layout([4] * 40)
    fields = np.arange(layout.size) < layout.D
    theta = random_parameters(layout, "unif", 1.0, 0.5, -2.0, 3.0, 1, n_groups=20)
    assert theta.shape == (20, layout.size)
    assert kstest(theta[:, fields].ravel(), "uniform", (0.5, 1.0)).pvalue > 1e-4
    assert kstest(theta[:, ~fields].ravel()[::10], "uniform", (-5.0, 6.0)).pvalue > 1e-4
    theta = random_parameters(layout, "norm", 1.0, 0.5, -2.0, 3.0, 1, n_groups=20)
    assert kstest((theta[:, fields].ravel() - 1.0) / 0.5, "norm").pvalue > 1e-4
    assert kstest((theta[:, ~fields].ravel()[::10] + 2.0) / 3.0, "norm").pvalue > 1e-4
    assert (
        random_parameters(layout, "norm", 0.3, 0.0, 0.0, 0.0, 1)[0] == np.where(fields, 0.3, 0.0)
    ).all()


def test_seeds_repeat_and_the_global_state_is_left_alone():
    layout = Layout([3, 3, 2])
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global generator must stay as it was
    theta = random_parameters(layout, rng=1, n_groups=2)
    assert np.array_equal(theta, random_parameters(layout, rng=1, n_groups=2))
    assert not np.array_equal(theta, random_parameters(layout, rng=2, n_groups=2))
    first, again, other = (sample_groups(layout, theta, 100, rng=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize(
    ("function", "argument", "value", "error"),
    [
        (sample_states, "nsample", -1, OptionError),
        (sample_states, "nsample", 1.5, BBLTypeError),
        (sample_states, "nsample", 10**15, MemoryError),
        (sample_states, "burn_in", -1, OptionError),
        (sample_states, "thin", 0, OptionError),
        (sample_states, "n_levels", ["a"], OptionError),
        (sample_states, "h", [np.nan, 0.0, 0.0], DataError),
        (sample_groups, "nsample", -1, OptionError),
        (sample_groups, "nsample", 10**15, MemoryError),
        (sample_groups, "prob", [1.0], OptionError),
        (sample_groups, "prob", [1.0, -1.0], OptionError),
        (sample_groups, "prob", [0.0, 0.0], OptionError),
        (sample_groups, "prob", [1.0, np.nan], OptionError),
        (sample_groups, "prob", ["a", "b"], OptionError),
        (random_parameters, "distr", "gamma", OptionError),
        (random_parameters, "distr", 1, BBLTypeError),
        (random_parameters, "dh", -1.0, OptionError),
        (random_parameters, "dJ", np.nan, OptionError),
        (random_parameters, "h0", "x", BBLTypeError),
        (random_parameters, "J0", np.inf, OptionError),
        (random_parameters, "n_groups", 0, OptionError),
    ],
)
def test_bad_arguments_are_named(function, argument, value, error):
    layout = Layout([2, 3])
    defaults = {
        sample_states: {"h": np.zeros(3), "J": np.zeros((3, 3)), "n_levels": [2, 3], "nsample": 2},
        sample_groups: {"layout": layout, "theta": np.zeros((2, 5)), "nsample": 2},
        random_parameters: {"layout": layout},
    }[function]
    with pytest.raises(error, match="rows" if error is MemoryError else argument):
        function(**{**defaults, argument: value})


@pytest.mark.parametrize("function", [sample_states, sample_groups, random_parameters])
def test_a_random_state_is_refused(function):
    layout = Layout([2, 3])
    model = {
        sample_states: (np.zeros(3), np.zeros((3, 3)), [2, 3]),
        sample_groups: (layout, np.zeros((2, 5)), 2),
    }
    with pytest.raises(BBLTypeError, match="default_rng"):
        function(*model.get(function, (layout,)), rng=np.random.RandomState(1))  # noqa: NPY002
