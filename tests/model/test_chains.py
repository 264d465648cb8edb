"""Tests of bbl.model.chains and listing, bbl.stats.diagnostics and the Gibbs kernel against exact
enumeration.
"""

import json
import signal
import threading
import time

import numpy as np
import pytest
import reference as oracle
from scipy.stats import chisquare

from bbl._ext.gibbs import gibbs as kernel
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.chains import Chains, gibbs
from bbl.model.layout import Layout
from bbl.model.listing import map_state, state_codes, state_energies
from bbl.model.regressors import to_matrix
from bbl.stats.diagnostics import effective_sample_size, split_rhat


def random_model(n_levels, seed, scale=1.0):
    layout = Layout(n_levels)
    theta = np.random.default_rng(seed).uniform(-scale, scale, layout.size)
    return layout, theta, *to_matrix(layout, theta)


def oracle_model(layout, theta):
    h = [layout.table(theta, i) for i in range(layout.m)]
    return h, {(i, j): layout.table(theta, i, j) for i, j in layout.pairs.tolist()}


def state_counts(draws, n_levels):
    index = np.ravel_multi_index(
        draws.reshape(-1, len(n_levels)).T.astype(np.intp), tuple(n_levels)
    )
    return np.bincount(index, minlength=int(np.prod(n_levels)))


def same(a, b):
    names = ("best", "best_energy", "chain_best", "chain_energy", "last", "draws", "energy")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


@pytest.fixture(params=[16, 8, 0], ids=["512-bit", "256-bit", "base"])
def width(request, monkeypatch):
    """Every vector width that this processor has, in turn; 0 is the one that every processor
    has.
    """
    if kernel.lanes(request.param) < request.param:
        pytest.skip(f"this processor has no vectors of {request.param} floats")
    lanes = kernel.lanes
    monkeypatch.setattr(kernel, "lanes", lambda: lanes(request.param))
    return request.param


# -- the distribution ------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_million_draws_pass_the_chi_square_test(seed):
    layout, theta, h, J = random_model([3] * 5, 11)
    found = gibbs(h, J, layout.n_levels, 1000 * 8, 1000, seed, burn_in=20, thin=8)
    assert found.draws.shape == (1000, 1000, 5)
    expected = oracle.probabilities(*oracle_model(layout, theta), layout.n_levels) * 1e6
    assert chisquare(state_counts(found.draws, layout.n_levels), expected).pvalue > 1e-4


@pytest.mark.parametrize("n_levels", [[2, 3, 4, 5], [2] * 9, [9, 2, 3], [17, 3, 5]], ids=str)
@pytest.mark.parametrize("by_levels", [False, True])
@pytest.mark.thinned(5)
def test_both_kernels_at_every_width_sample_mixed_levels(n_levels, by_levels, width, monkeypatch):
    layout, theta, h, J = random_model(n_levels, 5)
    chains = kernel_chains(h, J, n_levels, 256, 7, by_levels, monkeypatch)
    draws, energy = np.empty((256, 400, layout.m), np.uint8), np.empty((256, 400), np.float32)
    chains.sweep(20)
    chains.sweep(400 * 8, 8, draws, energy)
    expected = oracle.probabilities(*oracle_model(layout, theta), n_levels) * draws[..., 0].size
    assert chisquare(state_counts(draws, n_levels), expected).pvalue > 1e-4
    assert np.abs(energy.ravel() - chains.energy(draws.reshape(-1, layout.m))).max() < 1e-5


def kernel_chains(h, J, n_levels, n_chains, seed, by_levels, monkeypatch):
    """Chains with the choice between the two kernels taken out of their hands."""
    pack = kernel.pack_couplings
    monkeypatch.setattr(
        kernel,
        "pack_couplings",
        lambda J, n, s, by, *more, **kw: pack(J, n, s, by_levels, *more, **kw),
    )
    make = Chains._make_packs

    def make_packs(self, seeds):
        self.by_levels = by_levels
        return make(self, seeds)

    monkeypatch.setattr(Chains, "_make_packs", make_packs)
    chains = Chains(h, J, n_levels, n_chains, seed)
    assert chains.by_levels is by_levels
    return chains


def test_kernel_choice_follows_the_number_of_levels():
    assert not Chains(*random_model([2] * 100, 1)[2:], [2] * 100, 1, 1).by_levels
    assert not Chains(*random_model([4] * 50, 1)[2:], [4] * 50, 1, 1).by_levels
    assert Chains(*random_model([21] * 30, 1)[2:], [21] * 30, 1, 1).by_levels


@pytest.mark.long
def test_many_predictors_keep_their_means(width):
    """Independent predictors have known level frequencies, whatever their number and place in the
    blocks.
    """
    n_levels = np.array([2, 3, 5, 2, 12, 2, 2, 4] * 8)
    layout = Layout(n_levels)
    h = np.random.default_rng(4).normal(size=layout.D)
    found = gibbs(h, np.zeros((layout.D, layout.D)), n_levels, 300, 128, 3, thin=1)
    n = 300 * 128
    for i, L in enumerate(n_levels):
        weight = np.exp(np.append(0.0, layout.table(h, i)))
        p = weight / weight.sum()
        z = (np.bincount(found.draws[..., i].ravel(), minlength=L) - n * p) / np.sqrt(
            n * p * (1 - p)
        )
        assert np.abs(z).max() < 5.0


def test_codes_beyond_one_byte_survive():
    h = np.full(299, -200.0)
    h[280] = 5.0
    found = gibbs(h, np.zeros((299, 299)), [300], 5, 3, 1, thin=1)
    assert found.draws.dtype == np.uint16
    assert (found.draws == 281).mean() > 0.9
    assert found.best.tolist() == [281]


def test_large_energies_stay_finite():
    layout, _, h, J = random_model([2, 4] * 6, 8, 1e20)
    found = gibbs(h, J, layout.n_levels, 20, 4, 1, thin=1)
    assert np.isfinite(found.energy).all()
    assert (found.last < layout.n_levels).all()


def test_fields_and_beta_bridge_two_models():
    layout, theta, h, J = random_model([3, 2, 4], 6, 2.0)
    chains = Chains(h, J, layout.n_levels, 512, 1)
    draws, energy = np.empty((512, 100, 3), np.uint8), np.empty((512, 100), np.float32)
    between = 0.3 * h + 0.7 * np.arange(layout.D) / 10
    chains.sweep(20, h=between, beta=0.3)
    chains.sweep(800, 8, draws, energy, h=between, beta=0.3)
    mixed = np.append(between, 0.3 * theta[layout.D :])
    expected = oracle.probabilities(*oracle_model(layout, mixed), layout.n_levels) * 51200
    assert chisquare(state_counts(draws, layout.n_levels), expected).pvalue > 1e-4


# -- parameters that change, moments ---------------------------------------------------------------
@pytest.mark.parametrize("by_levels", [False, True])
def test_updated_chains_run_as_chains_made_with_the_new_parameters(by_levels, width, monkeypatch):
    n_levels = [2, 9, 3, 5, 17]
    _, _, h, J = random_model(n_levels, 1)
    _, _, new_h, new_J = random_model(n_levels, 2)
    updated = kernel_chains(h, J, n_levels, 40, 3, by_levels, monkeypatch)
    made = Chains(new_h, new_J, n_levels, 40, 3)
    updated.update(new_h, new_J)
    for chains in (updated, made):
        chains.sweep(7)
    assert np.array_equal(updated.codes, made.codes) and np.array_equal(
        updated.current_energy, made.current_energy
    )
    assert np.array_equal(updated.best_codes, made.best_codes)
    assert np.array_equal(updated.energy(made.codes), made.energy(made.codes))
    updated.update(h)  # the fields alone
    made.sweep(5, h=h)
    updated.sweep(5)
    assert np.array_equal(updated.codes, made.codes)
    new_J *= 0.5  # in place
    updated.update(new_h, new_J)
    made = Chains(new_h, new_J, n_levels, 40, 3)
    made.sweep(7, h=2.0 * new_h, beta=2.0)
    made.sweep(5, h=h, beta=2.0)
    for chains in (updated, made):
        chains.sweep(5)
    assert np.array_equal(updated.codes, made.codes)
    with pytest.raises(ValueError, match="another model"):
        kernel.pack_couplings(
            J, made.n_levels, made.start, by_levels, made.lanes, table=made._table[:-1]
        )


def test_updated_chains_reach_the_new_distribution_and_forget_the_old_best():
    layout, _, h, J = random_model([3, 2, 4], 6, 2.0)
    _, theta, new_h, new_J = random_model([3, 2, 4], 7, 2.0)
    chains = Chains(h, J, layout.n_levels, 512, 1)
    chains.sweep(20)
    chains.update(new_h, new_J)
    draws, energy = np.empty((512, 100, 3), np.uint8), np.empty((512, 100), np.float32)
    chains.sweep(20)
    chains.sweep(800, 8, draws, energy)
    model = oracle_model(layout, theta)
    expected = oracle.probabilities(*model, layout.n_levels) * 51200
    assert chisquare(state_counts(draws, layout.n_levels), expected).pvalue > 1e-4
    assert (chains.best_codes == oracle.highest(*model, layout.n_levels)[0]).all()


def test_a_model_of_another_size_is_no_update():
    _, _, h, J = random_model([2, 3], 1)
    chains = Chains(h, J, [2, 3], 4, 1)
    with pytest.raises(DataError, match=r"h has shape \(2,\)"):
        chains.update(h[:2])
    with pytest.raises(DataError, match=r"J has shape \(2, 2\)"):
        chains.update(h, J[:2, :2])


@pytest.mark.parametrize("n_levels", [[2] * 5, [3, 2, 300, 4]], ids=str)
@pytest.mark.parametrize("n_chains", [1, 37, 200])
def test_moments_count_the_current_states(n_levels, n_chains):
    layout, _, h, J = random_model(n_levels, 4)
    chains = Chains(h, J, n_levels, n_chains, 2, n_jobs=2)
    for _ in range(2):
        chains.sweep(3)
        at = np.column_stack(
            [chains.codes[:, i] == a for i, L in enumerate(n_levels) for a in range(1, L)]
        )
        means, counts = chains.moments()
        assert np.array_equal(counts, at.T.astype(int) @ at)
        assert np.array_equal(means, at.sum(axis=0) / n_chains)
        assert means.shape == (layout.D,)


# -- the highest state -----------------------------------------------------------------------------
@pytest.mark.parametrize("n_levels", [[3] * 5, [2, 3, 4, 5], [2] * 11, [25, 3]], ids=str)
def test_best_is_the_enumerated_maximum(n_levels):
    layout, theta, h, J = random_model(n_levels, 3)
    state, energy = oracle.highest(*oracle_model(layout, theta), n_levels)
    found = gibbs(h, J, n_levels, 300, 64, 5)
    assert found.best.tolist() == state.tolist()
    assert found.best_energy == pytest.approx(energy, abs=1e-12)
    assert found.draws is None and found.energy is None
    codes, top = map_state(h, J, n_levels)
    assert codes.tolist() == state.tolist()
    assert top == pytest.approx(energy, abs=1e-12)
    energies = oracle.energy(*oracle_model(layout, theta), oracle.states(n_levels))
    assert state_energies(h, J, n_levels) == pytest.approx(energies, abs=1e-12)


def test_chain_energies_belong_to_visited_states():
    layout, theta, h, J = random_model([3] * 30, 9)
    found = gibbs(h, J, layout.n_levels, 50, 40, 2, thin=1)
    model = oracle_model(layout, theta)
    assert found.chain_energy == pytest.approx(oracle.energy(*model, found.chain_best), abs=1e-10)
    for best, draws in zip(found.chain_best, found.draws, strict=True):
        assert (draws == best).all(axis=1).any()
    highest = oracle.energy(*model, found.draws.reshape(-1, 30)).reshape(40, 50).max(axis=1)
    assert found.chain_energy == pytest.approx(highest, abs=1e-4)
    assert found.best_energy == found.chain_energy.max()
    assert np.array_equal(found.last, found.draws[:, -1])


@pytest.mark.parametrize("name", ["mcsample_titanic", "mcsample_sim"])
def test_best_is_the_exact_maximum_of_the_stored_r_models(name, shared):
    """R prints h of the last predictor as the energy; the enumeration stored beside it is the
    truth.
    """
    case = json.loads((shared / "reference" / "bbl" / f"{name}.json").read_text())
    levels, exact = case["model"]["xlevels"], case["exact"]
    names = list(levels)
    layout = Layout([len(v) for v in levels.values()])
    for group, h in case["model"]["coefficients"]["h"].items():
        theta = np.zeros(layout.size)
        for i, x in enumerate(names):
            layout.table(theta, i)[:] = [h[x][a] for a in levels[x][1:]]
        for pair in case["model"]["coefficients"]["J"][group]:
            layout.table(theta, names.index(pair["i"]), names.index(pair["j"]))[:] = pair["values"]
        H, J = to_matrix(layout, theta)
        found = gibbs(H, J, layout.n_levels, 1000, rng=1)
        assert {x: levels[x][a] for x, a in zip(names, found.best, strict=True)} == exact["map"][
            group
        ]
        assert found.best_energy == pytest.approx(exact["map_energy"][group], abs=1e-12)
        assert map_state(H, J, layout.n_levels)[1] == pytest.approx(
            exact["map_energy"][group], abs=1e-12
        )
        E = state_energies(H, J, layout.n_levels)
        assert np.logaddexp.reduce(E) == pytest.approx(
            exact["log_partition_function"][group], abs=1e-12
        )


def test_state_codes_count_in_the_order_of_the_energies():
    assert np.array_equal(state_codes(np.arange(24), [2, 3, 4]), oracle.states([2, 3, 4]))


# -- seeds, threads, signals -----------------------------------------------------------------------
def test_same_seed_same_bits_for_any_number_of_threads():
    layout, _, h, J = random_model([2, 3, 4] * 10, 1)
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global generator must stay as it was
    runs = [gibbs(h, J, layout.n_levels, 40, 100, 7, 3, 2, n_jobs) for n_jobs in (1, 1, 2, 3, 8)]
    assert all(same(runs[0], run) for run in runs[1:])
    assert not np.array_equal(gibbs(h, J, layout.n_levels, 40, 100, 8, 3, 2).draws, runs[0].draws)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_a_generator_moves_on_and_equals_its_seed():
    layout, _, h, J = random_model([2] * 8, 1)
    rng = np.random.default_rng(5)
    first, second = (gibbs(h, J, layout.n_levels, 10, 4, rng, thin=1) for _ in range(2))
    assert same(first, gibbs(h, J, layout.n_levels, 10, 4, 5, thin=1))
    assert not np.array_equal(first.draws, second.draws)


@pytest.mark.parametrize("n_levels", [[2, 3, 4] * 10, [21] * 12], ids=["few", "many"])
def test_a_chain_does_not_depend_on_the_others(n_levels):
    _, _, h, J = random_model(n_levels, 1)
    few, many = (gibbs(h, J, n_levels, 30, n, 3, thin=1) for n in (5, 200))
    assert np.array_equal(few.draws, many.draws[:5])
    assert len(np.unique(many.draws.reshape(200, -1), axis=0)) == 200


def test_slices_of_the_work_do_not_change_it(monkeypatch):
    layout, _, h, J = random_model([3] * 8, 1)
    whole = gibbs(h, J, layout.n_levels, 50, 40, 3, 7, 4)
    monkeypatch.setattr("bbl.model.chains.SLICE_SECONDS", 0.0)
    assert same(whole, gibbs(h, J, layout.n_levels, 50, 40, 3, 7, 4))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_interrupt_ends_a_long_run(n_jobs):
    layout, _, h, J = random_model([3] * 100, 1, 0.1)
    sent = []

    def interrupt():
        sent.append(time.perf_counter())
        signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(0.4, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        gibbs(h, J, layout.n_levels, 10**9, 64, 1, n_jobs=n_jobs)
    assert time.perf_counter() - sent[0] < 1.0
    timer.join()
    assert gibbs(h, J, layout.n_levels, 2, 64, 1, n_jobs=n_jobs).best.shape == (100,)


def test_the_models_are_left_alone_and_may_be_read_only():
    layout, _, h, J = random_model([2, 3], 1)
    for array in (h, J):
        array.setflags(write=False)
    before = h.copy(), J.copy()
    gibbs(h, J, layout.n_levels, 5, 2, 1)
    assert np.array_equal(h, before[0]) and np.array_equal(J, before[1])


# -- bad arguments ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("n_sweeps", 0, OptionError),
        ("n_sweeps", -5, OptionError),
        ("n_sweeps", 1.5, BBLTypeError),
        ("n_sweeps", "many", BBLTypeError),
        ("n_sweeps", None, BBLTypeError),
        ("n_sweeps", True, BBLTypeError),
        ("n_chains", 0, OptionError),
        ("n_chains", 2.0, BBLTypeError),
        ("burn_in", -1, OptionError),
        ("burn_in", "x", BBLTypeError),
        ("thin", 0, OptionError),
        ("thin", 11, OptionError),
        ("thin", 1.0, BBLTypeError),
        ("thin", True, BBLTypeError),
        ("n_jobs", 0, OptionError),
        ("n_levels", [2, 1], OptionError),
        ("n_levels", [], OptionError),
        ("n_levels", [2.0, 2.0], OptionError),
        ("n_levels", 2, OptionError),
        ("n_levels", [2**32 + 2, 2], OptionError),
        ("n_levels", np.array([2**64 - 2, 2], dtype=np.uint64), OptionError),
        ("h", [0.0], DataError),
        ("h", [0.0, np.nan], DataError),
        ("h", [0.0, np.inf], DataError),
        ("h", ["a", "b"], BBLTypeError),
        ("h", [0.0, 1j], BBLTypeError),
        ("J", np.zeros((2, 3)), DataError),
        ("J", [[0.0, 1e31], [1e31, 0.0]], DataError),
        ("J", [[0.0, 1.0], [2.0, 0.0]], DataError),
        ("J", [[1.0, 0.0], [0.0, 0.0]], DataError),
        ("J", None, BBLTypeError),
    ],
)
def test_bad_arguments_are_named(argument, value, error):
    arguments = {
        "h": [0.0, 1.0],
        "J": np.zeros((2, 2)),
        "n_levels": [2, 2],
        "n_sweeps": 10,
        "rng": 1,
    }
    with pytest.raises(error, match=argument) as caught:
        gibbs(**{**arguments, argument: value})
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    "seed", [np.random.RandomState(1), "x", 1.5, -1, True], ids=["legacy", "x", "1.5", "-1", "bool"]
)
def test_bad_seeds_are_refused(seed):
    with pytest.raises((BBLTypeError, OptionError), match="seed") as caught:
        gibbs([0.0, 1.0], np.zeros((2, 2)), [2, 2], 10, rng=seed)
    assert caught.value.argument == "seed"


def test_too_many_states_are_not_listed():
    with pytest.raises(OptionError, match=r"2\.1e\+06 states.*gibbs"):
        map_state(np.zeros(21), np.zeros((21, 21)), [2] * 21)


def test_memory_is_checked_before_draws_are_allocated():
    with pytest.raises(MemoryError, match=r"draws.*GiB.*thin"):
        gibbs(np.zeros(2), np.zeros((2, 2)), [2, 2], 10**13, 2, 1, thin=1)


def test_the_kernel_refuses_arrays_that_do_not_fit():
    chains = Chains(np.zeros(2), np.zeros((2, 2)), [2, 2], 4, 1)
    (pack,) = chains._packs
    fixed = (
        chains._table,
        np.zeros(2, np.float32),
        1.0,
        chains.n_levels,
        chains.start,
        False,
        chains.lanes,
    )
    state = [pack.codes, pack.stream, pack.energy, pack.best, pack.best_codes]
    for position in range(5):
        wrong = [a[..., :-1].copy() if k == position else a for k, a in enumerate(state)]
        with pytest.raises(ValueError, match="do not fit"):
            kernel.run(*fixed, *wrong, 1)
    draws, energies = np.empty((4, 3, 2), np.uint8), np.empty((4, 3), np.float32)
    for bad in (
        {"thin": 0},
        {"thin": 1, "first_draw": 1},
        {"thin": 2, "sweeps_since_draw": 2},
        {"thin": 1, "energies": energies[:3]},
    ):
        with pytest.raises(ValueError, match="do not fit"):
            kernel.run(*fixed, *state, 3, **{"draws": draws, "energies": energies, **bad})
    with pytest.raises(ValueError, match="do not fit"):
        kernel.pack_couplings(np.zeros((2, 3)), chains.n_levels, chains.start, False, 4)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.start_states(chains.n_levels, pack.codes[:1], pack.stream)


# -- diagnostics -----------------------------------------------------------------------------------
def ar1(rho, shape, seed):
    noise = np.random.default_rng(seed).normal(size=shape)
    x = np.empty(shape)
    x[:, 0] = noise[:, 0] / np.sqrt(1 - rho**2)
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
@pytest.mark.parametrize("rank", [True, False])
@pytest.mark.thinned(3)
def test_effective_sample_size_of_an_autoregression(rho, rank):
    x = ar1(rho, (8, 20000), 1)
    assert effective_sample_size(x, rank) == pytest.approx(x.size * (1 - rho) / (1 + rho), rel=0.1)
    assert split_rhat(x, rank) < 1.01


def test_rhat_against_its_definition():
    x = np.random.default_rng(2).normal(size=(3, 10)) + [[0.0], [1.0], [2.0]]
    split = np.concatenate((x[:, :5], x[:, 5:]))
    W, B = split.var(axis=1, ddof=1).mean(), 5 * split.mean(axis=1).var(ddof=1)
    assert split_rhat(x, rank=False) == pytest.approx(np.sqrt((W * 4 / 5 + B / 5) / W))


def test_rhat_sees_chains_apart_and_trends():
    x = ar1(0.2, (4, 1000), 3)
    apart, trend = x.copy(), x + np.linspace(-2, 2, 1000)
    apart[0] += 2.0
    assert split_rhat(x) < 1.01 < 1.1 < min(split_rhat(apart), split_rhat(trend))
    assert effective_sample_size(apart) < 0.05 * effective_sample_size(x)
    # ranks are all that counts
    assert split_rhat(np.exp(3 * x)) == pytest.approx(split_rhat(x), abs=1e-12)


def test_diagnostics_of_several_quantities_and_constant_ones():
    draws = np.random.default_rng(1).integers(0, 2, (4, 100, 3)).astype(float)
    draws[..., 1] = 1.0
    draws[..., 2] = np.arange(4)[:, None]
    rhat, ess = split_rhat(draws), effective_sample_size(draws)
    assert rhat.shape == ess.shape == (3,)
    assert np.isnan(rhat[1]) and np.isnan(ess[1]) and rhat[2] == np.inf
    assert rhat[0] == split_rhat(draws[..., 0]) < 1.1 and 100 < ess[0] < 2000
    assert 1 <= ess[2] < 20


@pytest.mark.parametrize(
    "draws", [np.zeros((2, 3)), np.zeros(9), [[0.0, 1.0, np.nan, 2.0]]], ids=["short", "1-d", "nan"]
)
def test_diagnostics_refuse_what_they_cannot_judge(draws):
    for function in (split_rhat, effective_sample_size):
        with pytest.raises(OptionError, match="draws"):
            function(draws)


def test_energies_of_well_mixed_chains_have_rhat_one():
    layout, _, h, J = random_model([3] * 6, 2, 0.5)
    found = gibbs(h, J, layout.n_levels, 1000, 16, 1, burn_in=50, thin=1)
    assert split_rhat(found.energy) < 1.01
    assert 3000 < effective_sample_size(found.energy) < 20000
