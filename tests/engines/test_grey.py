"""Machines of grey values: closed form, units summed out by enumeration, draws by quadrature."""

import itertools

import numpy as np
import pytest

from bbl.engines.bayes.conjugate import conjugate_scores
from bbl.engines.bayes.grey import GreyMachine, fit_grey, truncated_exponential


def test_without_units_scores_are_the_closed_form():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 6))
    new = rng.uniform(-1, 1, (9, 6))
    found = fit_grey(X, 7.0).scores(new)
    np.testing.assert_allclose(found, conjugate_scores(X, np.ones(40), 7.0, new))
    assert not fit_grey(X, 7.0, pairs=False).beta.any()


@pytest.mark.parametrize("slope", [-30.0, -1.5, -1e-9, 0.0, 1e-4, 2.0, 800.0])
def test_numbers_have_the_density_of_the_inverse_distribution_function(slope):
    x = np.sort(truncated_exponential(np.full(40_000, slope), np.random.default_rng(1)))
    assert np.isfinite(x).all() and x[0] >= -1.0 and x[-1] <= 1.0
    grid = np.linspace(-1, 1, 200_001)
    density = np.exp(slope * grid - abs(slope))
    cdf = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    cdf /= cdf[-1]
    distance = np.abs(np.interp(x, grid, cdf) - (np.arange(len(x)) + 0.5) / len(x)).max()
    assert distance < 1.63 / np.sqrt(len(x))  # Kolmogorov-Smirnov at 1 %


def machine(hidden, seed=0, m=2, scale=0.6):
    rng = np.random.default_rng(seed)
    sizes = [m, *hidden]
    beta = np.triu(rng.normal(size=(m, m)), 1)
    return GreyMachine(
        rng.normal(size=m) * scale,
        (beta + beta.T) * scale,
        tuple(rng.normal(size=q) * scale for q in hidden),
        tuple(rng.normal(size=(a, b)) * scale for a, b in itertools.pairwise(sizes)),
    )


def log_sum(own, X):
    """ln of the sum over all units of exp(energy), by enumeration."""
    sizes = [len(field) for field in own.fields]
    energies = []
    for state in itertools.product([-1.0, 1.0], repeat=sum(sizes)):
        units = np.split(np.array(state), np.cumsum(sizes)[:-1]) if sizes else []
        energy = X @ own.alpha + 0.5 * ((X @ own.beta) * X).sum(axis=1)
        below = X
        for field, weight, layer in zip(own.fields, own.weights, units, strict=True):
            energy = energy + (below @ weight) @ layer + field @ layer
            below = np.broadcast_to(layer, (len(X), len(layer)))
        energies.append(energy)
    return np.logaddexp.reduce(energies, axis=0)


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_one_layer_is_summed_out_exactly(hidden):
    own = machine(hidden)
    X = np.random.default_rng(1).uniform(-1, 1, (20, 2))
    np.testing.assert_allclose(own.scores(X), log_sum(own, X))


def test_two_layers_have_a_close_lower_bound():
    own = machine((4, 3), scale=0.3)
    X = np.random.default_rng(1).uniform(-1, 1, (50, 2))
    gap = log_sum(own, X) - own.scores(X)
    assert (gap > -1e-12).all() and gap.max() < 0.3
    assert np.ptp(gap) < 0.05  # nearly a constant, which scores of one class may have
    assert np.corrcoef(own.scores(X), log_sum(own, X))[0, 1] > 0.99


@pytest.mark.long
@pytest.mark.parametrize("hidden", [(), (3,), (3, 2)])
def test_rows_have_the_density_of_the_units_summed_out(hidden):
    own = machine(hidden, seed=3)
    X = own.sample(20_000, 60, np.random.default_rng(2))
    # cells of a 40 x 40 midpoint grid against shares of an 8 x 8 one
    centres = (np.arange(40) + 0.5) / 20.0 - 1.0
    grid = np.array(list(itertools.product(centres, centres)))
    p = np.exp(log_sum(own, grid)).reshape(8, 5, 8, 5).sum(axis=(1, 3))
    shares = np.histogram2d(X[:, 0], X[:, 1], bins=8, range=[[-1, 1], [-1, 1]])[0]
    assert 0.5 * np.abs(shares / len(X) - p / p.sum()).sum() < 0.03


def test_units_follow_two_clusters():
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], 200)
    X = np.clip(0.6 * sign[:, None] + 0.2 * rng.normal(size=(200, 5)), -1, 1)
    own = fit_grey(X, 100.0, (3,), pairs=False, rng=np.random.default_rng(1))
    # every unit is coupled to the common sign of the numbers: all its weights agree
    assert all(abs(np.sign(weight).sum()) == 5 for weight in own.weights[0].T)
    assert own.weights[0].shape == (5, 3)
    deep = fit_grey(X, 100.0, (4, 2), pairs=False, rng=np.random.default_rng(1))
    assert [w.shape for w in deep.weights] == [(5, 4), (4, 2)]
    drawn = deep.sample(50, 20, np.random.default_rng(1))
    assert drawn.shape == (50, 5) and np.abs(drawn).max() <= 1.0
