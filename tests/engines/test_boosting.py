"""Boosting: rounds against the oracle, the mean of models, laws, and what users see."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl._ext.boosting import boosting as kernel
from bbl.engines import Boosting
from bbl.engines.boosting import rounds
from bbl.engines.boosting.rounds import Rows, boost
from bbl.errors import OptionError
from bbl.rows.content import order_by_content
from tests import reference_boosting as oracle

RULE = {"rate": 0.3, "ridge": 0.7, "least": 3.0, "entry": 4.0}


def kernel_rows(seed, n=80, K=3, n_levels=(4, 2, 3, 1, 5)):
    """Codes (m, n), numbers of levels, groups, weights of which some are 0, and probabilities (n,
    K).
    """
    rng = np.random.default_rng(seed)
    codes = np.array([rng.integers(0, L, n) for L in n_levels], dtype=np.int32)
    y = ((codes[0] + codes[2] * (rng.random(n) < 0.6)) % K).astype(np.intp)
    weights = rng.integers(0, 4, n).astype(float)
    return codes, np.array(n_levels, dtype=np.intp), y, weights, rng.dirichlet(np.full(K, 3.0), n)


def stream():
    return np.array([1, 2, 3, 4], dtype=np.uint64)


def frame(x, y):
    levels = {f"x{i}": pd.Categorical([f"l{a}" for a in x[:, i]]) for i in range(x.shape[1])}
    return pd.DataFrame(levels | {"y": [f"g{g}" for g in y]})


@pytest.fixture(scope="module")
def data():
    """Rows in which x0 acts alone, x1 and x2 together only, and x3 and x4 not at all."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 3, (400, 5))
    signal = 1.5 * (x[:, 0] == 2) + 2.5 * ((x[:, 1] == 1) == (x[:, 2] == 1)) - 2.0
    return frame(x, (rng.random(400) < 1 / (1 + np.exp(-signal))).astype(int))


def probabilities(fit, new):
    return fit.predict(new, type="prob").drop(columns="yhat")


# rows of one vector, of several, and with lanes that are not used
@pytest.mark.parametrize("K", [2, 3, 4, 7, 8, 18])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.thinned(5)
def test_a_round_of_fields_is_that_of_the_oracle(seed, K):
    codes, n_levels, y, weights, p = kernel_rows(seed, K=K)
    expected, expected_p = oracle.round_of_fields(codes, n_levels, y, weights, p, **RULE)
    tables, rows = np.zeros((n_levels.sum(), K)), kernel.BoostedRows(y, weights, p)
    kernel.round_of_fields(rows, codes, n_levels, *RULE.values(), False, stream(), tables)
    np.testing.assert_allclose(tables, np.vstack(expected), atol=1e-13)
    np.testing.assert_allclose(rows.p, expected_p, rtol=1e-12)
    loss = -weights @ np.log(rows.p[np.arange(len(y)), y])
    assert rows.loss(weights) == pytest.approx(loss, rel=1e-12)
    # some gain less than the entry
    assert {bool(table.any()) for table in expected} == {True, False}
    before = tables.copy()  # tables that are not zero grow whatever their gain is
    begun = [not table.any() and L > 1 for table, L in zip(expected, n_levels, strict=True)]
    everything = RULE | {"entry": np.inf}
    kernel.round_of_fields(rows, codes, n_levels, *everything.values(), False, stream(), tables)
    changed = [
        bool((new != old).any())
        for new, old in zip(
            np.split(tables, np.cumsum(n_levels)[:-1]),
            np.split(before, np.cumsum(n_levels)[:-1]),
            strict=True,
        )
    ]
    assert not any(c and b for c, b in zip(changed, begun, strict=True)) and any(changed)


@pytest.mark.parametrize("K", [2, 3, 4, 7, 8, 18])
@pytest.mark.parametrize("seed", range(4))
def test_a_round_of_pairs_and_their_gains_are_those_of_the_oracle(seed, K):
    codes, n_levels, y, weights, p = kernel_rows(seed, K=K)
    pairs = np.array([(0, 1), (0, 4), (1, 2), (2, 4)], dtype=np.intp)
    gains, rows = np.empty(len(pairs)), kernel.BoostedRows(y, weights, p)
    kernel.pair_gains(rows, codes, n_levels, pairs, RULE["ridge"], RULE["least"], gains)
    best = [
        oracle.pair_gain(
            codes[i],
            codes[j],
            n_levels[i],
            n_levels[j],
            y,
            weights,
            p,
            RULE["ridge"],
            RULE["least"],
        )
        for i, j in pairs
    ]
    np.testing.assert_allclose(gains, best, rtol=1e-12)
    expected, expected_p = oracle.round_of_pairs(codes, n_levels, pairs, y, weights, p, **RULE)
    tables = np.zeros((n_levels[pairs].prod(axis=1).sum(), K))
    kernel.round_of_pairs(rows, codes, n_levels, pairs, *RULE.values(), False, stream(), tables)
    np.testing.assert_allclose(
        tables, np.vstack([table.reshape(-1, K) for table in expected]), atol=1e-13
    )
    np.testing.assert_allclose(rows.p, expected_p, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 81])
def test_levels_without_number_and_rows_that_do_not_fill_vectors(n):
    codes, n_levels, y, weights, p = kernel_rows(n, n=n, n_levels=(20, 3, 30, 90))
    rule = RULE | {"entry": 0.0, "least": 1.0}
    expected, expected_p = oracle.round_of_fields(codes, n_levels, y, weights, p, **rule)
    tables, rows = np.zeros((n_levels.sum(), 3)), kernel.BoostedRows(y, weights, p)
    kernel.round_of_fields(rows, codes, n_levels, *rule.values(), False, stream(), tables)
    np.testing.assert_allclose(tables, np.vstack(expected), atol=1e-13)
    np.testing.assert_allclose(rows.p, expected_p, rtol=1e-12)


def test_impossible_groups_stay_finite():
    """The probability of a group that cannot be becomes 0 up to rounding, but its logarithm is
    finite.
    """
    codes, n_levels, y, weights, p = kernel_rows(0)
    rows = kernel.BoostedRows(y, weights, np.array([1e-300, 0.5, 0.5])[None].repeat(len(y), axis=0))
    kernel.round_of_fields(
        rows, codes, n_levels, *RULE.values(), False, stream(), np.zeros((n_levels.sum(), 3))
    )
    assert (rows.p >= 1e-290).all() and np.isfinite(rows.p).all()
    np.testing.assert_allclose(rows.p.sum(axis=1), 1.0, rtol=1e-14)


def test_random_cuts_part_levels_in_two_and_raise_the_likelihood():
    codes, n_levels, y, weights, before = kernel_rows(0)
    seen = set()
    for start in range(40):
        boosted, tables = kernel.BoostedRows(y, weights, before), np.zeros((n_levels.sum(), 3))
        words = np.array([start + 1, 5, 9, 2], dtype=np.uint64)
        kernel.round_of_fields(boosted, codes, n_levels, 0.1, 1.0, 1.0, 0.0, True, words, tables)
        p = boosted.p
        by_predictor = np.split(tables, np.cumsum(n_levels)[:-1])
        assert all(len(np.unique(table, axis=0)) <= 2 for table in by_predictor)
        scores = np.log(before) + sum(
            table[c] for table, c in zip(by_predictor, codes, strict=True)
        )
        np.testing.assert_allclose(p, oracle.softmax(scores), rtol=1e-12)
        rows = np.arange(len(y))
        assert weights @ np.log(p[rows, y]) > weights @ np.log(before[rows, y])
        seen.add(tuple((by_predictor[4] == by_predictor[4][0]).all(axis=1)))
    assert len(seen) > 3  # not always the same cut


@pytest.mark.long
def test_the_best_round_is_kept(monkeypatch):
    codes, n_levels, y, weights, _ = kernel_rows(3, n=200)
    log_shares = np.log(np.bincount(y) / 200)
    held = np.where(np.arange(200) % 4 == 0, 1.0, 0.0)
    rows, pairs = (
        Rows(codes, n_levels, y, 1.0 - held, held),
        np.array([(0, 2), (1, 4)], dtype=np.intp),
    )

    def held_loss(model):
        scores = np.tile(log_shares, (200, 1)) + sum(
            table[(slice(None), *(codes[i] for i in scope))].T for scope, table in model.tables
        )
        return -(held @ np.log(oracle.softmax(scores)[np.arange(200), y])) / held.sum()

    kept = boost(rows, log_shares, pairs, 2, 0.1, np.random.default_rng(0))
    losses = []
    for end in range(kept.rounds + 1):
        monkeypatch.setattr(rounds, "MAX_ROUNDS", end)
        losses.append(held_loss(boost(rows, log_shares, pairs, 0, 0.1, np.random.default_rng(0))))
    assert kept.converged and held_loss(kept) <= min(losses) + 1e-6
    assert held_loss(boost(rows, log_shares, pairs, 0, 0.1, np.random.default_rng(0))) <= losses[0]


def test_a_fit_is_the_mean_of_five_models(data, monkeypatch):
    models = []

    def spy(rows, *arguments):
        models.append((rows, boost(rows, *arguments)))
        return models[-1][1]

    orders = []

    def spy_order(sample, n_levels):
        orders.append(order_by_content(sample, n_levels))
        return orders[-1]

    monkeypatch.setattr("bbl.engines.boosting.engine.boost", spy)
    monkeypatch.setattr("bbl.engines.boosting.engine.order_by_content", spy_order)
    fit = bbl.bbl("y ~ .^2", data, method="boosting", verbose=0)
    assert len(models) == 5 and len(orders) == 1
    np.testing.assert_array_equal(
        sum(rows.validation_weights for rows, _ in models),
        models[0][0].train + models[0][0].validation_weights,
    )
    rows = models[0][0]
    scores = np.log(np.bincount(rows.y, rows.train + rows.validation_weights) / 400)
    for _, model in models:
        tables = [
            table[(slice(None), *(rows.codes[i] for i in scope))].T for scope, table in model.tables
        ]
        scores = scores + sum(tables) / 5
    columns = orders[0].columns  # models have them in the order of their content
    states = pd.DataFrame(
        {f"x{i}": [f"l{a}" for a in row] for i, row in zip(columns, rows.codes, strict=True)}
    )
    np.testing.assert_allclose(probabilities(fit, states), oracle.softmax(scores), rtol=1e-9)
    # nothing is tuned
    assert fit.n_parameters <= 2 * (10 + 4 * 10) and fit.engine.setting != fit.engine.setting


def test_pairs_that_act_together_alone_are_found(data):
    fit = bbl.bbl("y ~ .^2", data, method="boosting", pairs=1, verbose=0)
    assert "x1:x2" in fit.relevant().index
    without = bbl.bbl("y ~ .^2", data, method="boosting", pairs=0, verbose=0)
    fields_alone = bbl.bbl("y ~ .", data, method="boosting", verbose=0)
    assert (without.relevant()["order"] == 1).all()
    pd.testing.assert_frame_equal(
        probabilities(without, data), probabilities(fields_alone, data), check_exact=True
    )
    assert fit.log_loss.loss < without.log_loss.loss - 0.05


def test_weights_are_repeated_rows_and_order_does_not_matter_to_the_last_bit(data):
    weights = np.random.default_rng(0).integers(1, 5, len(data))
    weighted = bbl.bbl("y ~ .^2", data, weights, method="boosting", verbose=0)
    repeated = data.loc[data.index.repeat(weights)].sample(frac=1.0, random_state=1)
    other = bbl.bbl("y ~ .^2", repeated, method="boosting", verbose=0)
    pd.testing.assert_frame_equal(weighted.predict(data), other.predict(data), check_exact=True)


def test_seeds_reproduce_and_differ(data):
    fits = [
        bbl.bbl("y ~ .^2", data, method="boosting", seed=seed, verbose=0).predict(data)
        for seed in (1, 1, 2)
    ]
    pd.testing.assert_frame_equal(fits[0], fits[1], check_exact=True)
    assert not fits[0].equals(fits[2])


def test_weights_of_a_billion_come_to_the_maximum_of_the_likelihood(data):
    fit = bbl.bbl("y ~ x0 + x3", data, np.full(len(data), 10**9), method="boosting", verbose=0)
    truth = bbl.bbl("y ~ x0 + x3", data, method="conditional", ridge=0, verbose=0)
    np.testing.assert_allclose(probabilities(fit, data), probabilities(truth, data), atol=0.01)


def test_more_predictors_than_rows_and_than_pairs_are_compared_of(monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (60, 70))
    table = frame(x, x[:, 3] ^ (rng.random(60) < 0.1))
    fit = bbl.bbl("y ~ .^2", table, method="boosting", novarOk=True, verbose=0)
    assert fit.score() > 0.8 and "x3" in fit.relevant().index
    monkeypatch.setattr(rounds, "MAX_CELLS", 3)
    assert (
        bbl.bbl("y ~ .^2", table, method="boosting", novarOk=True, verbose=0).relevant()["order"]
        == 1
    ).all()


def test_one_level_groups_absent_from_a_fold_and_few_rows():
    x = np.random.default_rng(0).integers(0, 3, (60, 4))
    x[:, 3] = 0
    table = frame(x, np.where(np.arange(60) == 0, 2, x[:, 0] > 0).astype(int))
    cv = bbl.crossVal("y ~ .^2", table, method="boosting", novarOk=True, shuffle=True, verbose=0)
    assert np.isfinite(cv.cvframe["score"]).all()
    fit = bbl.bbl("y ~ .^2", table, method="boosting", novarOk=True, verbose=0)
    assert np.isfinite(probabilities(fit, table).to_numpy()).all()
    for n in (2, 3, 7):
        few = bbl.bbl(
            "y ~ .^2",
            table.iloc[-n:].assign(y=["g0", "g1"] * (n // 2) + ["g0"] * (n % 2)),
            method="boosting",
            novarOk=True,
            verbose=0,
        )
        assert np.isfinite(few.predict(type="prob").iloc[:, :2].to_numpy()).all()


def test_a_deterministic_class_is_learnt_and_stays_finite():
    x = np.array(np.meshgrid(*[[0, 1]] * 4)).reshape(4, -1).T.repeat(40, axis=0)
    fit = bbl.bbl("y ~ .^2", frame(x, x[:, 0] ^ x[:, 1]), method="boosting", verbose=0)
    assert fit.log_loss.loss < 1e-3 and np.isfinite(fit.estimate.parameters.theta).all()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::bbl.DataWarning")
def test_of_noise_it_says_little():
    rng = np.random.default_rng(5)
    excess = []
    for _ in range(8):
        table = frame(rng.integers(0, 2, (200, 10)), rng.integers(0, 2, 200))
        fit = bbl.bbl("y ~ .^2", table, method="boosting", verbose=0)
        p = probabilities(fit, table).to_numpy()
        excess.append(-0.5 * np.log(p).sum(axis=1).mean() - np.log(2))  # against fair coins
    assert np.mean(excess) < 0.02


def test_files_keep_the_fit(data, tmp_path):
    fit = bbl.bbl("y ~ .^2", data, method="boosting", rate=0.1, calibrate="temperature", verbose=0)
    fit.save(tmp_path / "model.bbl")
    loaded = bbl.load(tmp_path / "model.bbl")
    assert loaded.engine == Boosting(rate=0.1)
    pd.testing.assert_frame_equal(loaded.predict(data), fit.predict(data), check_exact=True)


def test_what_boosting_cannot_tell_is_refused(data):
    with pytest.raises(OptionError, match=r"rate must be in \(0, 1\]; got 0"):
        bbl.bbl("y ~ .", data, method="boosting", rate=0)
    with pytest.raises(OptionError, match="pairs must be"):
        bbl.bbl("y ~ .", data, method="boosting", pairs=-1)
    fit = bbl.bbl("y ~ .", data, method="boosting", verbose=0)
    for ask in (lambda: fit.bse, lambda: fit.inference().table(of=("g0", "g1")), fit.cov_params):
        with pytest.raises(OptionError, match="stops before its optimum"):
            ask()
    with pytest.raises(OptionError, match="cannot average over"):
        bbl.bbl("y ~ .", data.mask(data == "l0"), method="boosting", missing="marginal")


def test_the_loss_that_a_fit_tells_is_that_of_its_predictions(data):
    fit = bbl.bbl("y ~ .^2", data, method="boosting", verbose=0)
    p = probabilities(fit, data).to_numpy()[np.arange(len(data)), [int(g[1]) for g in data["y"]]]
    assert fit.lkh == pytest.approx(np.log(p).sum(), rel=1e-10)
