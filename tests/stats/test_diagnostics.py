"""Diagnostics of chains against ArviZ 0.23, whose values of fixed arrays are stored here."""

import numpy as np
import pytest

from bbl.errors import OptionError
from bbl.stats.diagnostics import (
    effective_sample_size,
    highest_density,
    monte_carlo_error,
    split_rhat,
    tail_sample_size,
)

# (coefficient, chains, draws, seed): R-hat, bulk-ESS, tail-ESS, mcse, ESS of the mean, interval of
# 90 %
STORED = {
    (0.0, 4, 500, 1): (
        1.00058019,
        2043.03709,
        1993.11765,
        0.00652446049,
        1989.51112,
        -0.396540444,
        0.498520507,
    ),
    (0.6, 4, 501, 2): (
        1.00217127,
        459.824597,
        883.715979,
        0.0168534476,
        466.78559,
        -0.598749967,
        0.570098088,
    ),
    (0.95, 2, 300, 3): (
        1.03911847,
        30.9075068,
        33.4781325,
        0.152347969,
        29.0952284,
        -1.414524,
        1.22669861,
    ),
    (-0.7, 4, 250, 4): (
        1.00867753,
        3000.0,
        782.722387,
        0.00725681241,
        3000.0,
        -0.655479248,
        0.647143333,
    ),
    (0.99, 4, 1000, 5): (
        1.30049895,
        10.772648,
        87.1498104,
        0.710843579,
        10.1549491,
        -3.7965943,
        4.0114663,
    ),
    (0.3, 3, 21, 6): (
        1.00902855,
        43.4550136,
        38.8949186,
        0.0406515627,
        46.2175669,
        -0.366449231,
        0.482825288,
    ),
    (0.5, 2, 8, 7): (
        0.993533841,
        19.2659197,
        19.2659197,
        0.0699734904,
        19.2659197,
        -0.423691711,
        0.364379532,
    ),
}


def chains(coefficient, n_chains, n, seed):
    """Autoregressions, from uniform numbers that every version of numpy draws alike."""
    e = np.random.RandomState(seed).random_sample((n_chains, n)) - 0.5
    x = np.zeros((n_chains, n))
    for t in range(n):
        x[:, t] = coefficient * x[:, t - 1] * (t > 0) + e[:, t]
    return x


@pytest.mark.parametrize("case", STORED, ids=str)
def test_rhat_and_sample_sizes_are_those_of_arviz(case):
    x = chains(*case)
    found = [
        split_rhat(x, folded=True),
        effective_sample_size(x),
        tail_sample_size(x),
        monte_carlo_error(x),
    ]
    found += [effective_sample_size(x, rank=False), *highest_density(x, 0.9)]
    np.testing.assert_allclose(found, STORED[case], rtol=1e-6)


def test_quantities_go_one_by_one_and_constants_have_none():
    x = np.stack([chains(0.5, 4, 100, 1), np.ones((4, 100))], axis=-1)
    for function in (split_rhat, effective_sample_size, tail_sample_size, monte_carlo_error):
        found = function(x)
        assert found[0] == pytest.approx(float(function(x[..., 0])), rel=1e-12) and np.isnan(
            found[1]
        )


def test_folded_rhat_sees_chains_that_differ_in_their_spread():
    x = chains(0.0, 4, 500, 2)
    x[0] *= 3.0
    assert split_rhat(x) < 1.01 < 1.05 < split_rhat(x, folded=True)


def test_the_shortest_interval_holds_its_share():
    x = np.random.default_rng(0).exponential(size=(4, 5000))
    lower, upper = highest_density(x, 0.9)
    assert lower < 0.01 and upper == pytest.approx(-np.log(0.1), abs=0.1)
    lower, upper = highest_density(x, 1.0)
    assert (lower, upper) == (x.min(), x.max())


def test_draws_that_are_none_are_refused():
    for bad in (np.zeros((4, 3)), np.full((4, 100), np.nan), np.zeros(5)):
        with pytest.raises(OptionError, match="draws"):
            tail_sample_size(bad)
