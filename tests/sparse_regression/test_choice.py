"""The choice of terms: orders, the path, held-out rows, the refit, and what cannot be told
apart.
"""

import json

import numpy as np
import pytest
import reference_sparse as reference

from bbl.sparse import choice
from bbl.sparse.choice import choose, ebic
from bbl.sparse.orders import grow, largest_penalty
from bbl.sparse.products import Problem
from bbl.sparse.refit import refit
from bbl.sparse.tables import term_features
from bbl.sparse.workingset import Descent, Penalty


def signs(n, m, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (n, m)).astype(np.uint8)


def product(codes, *terms):
    return sum(b * np.prod(2.0 * codes[:, list(t)] - 1, axis=1) for b, t in terms)


def test_parity_of_three_is_noise_to_lower_orders_and_found_through_a_pair():
    codes = signs(4000, 8)
    ones = np.ones(len(codes))
    parity = (product(codes, (1.0, (0, 1, 2))) > 0).astype(int)
    problem = Problem.make(codes, (2,) * 8, parity, 2, ones)
    penalty = Penalty((150.0,) * 3)
    assert not grow(problem, penalty)[-1].weights
    assert not grow(problem, penalty, "all")[-1].weights
    noise = np.random.default_rng(1).logistic(size=len(codes))
    y = (product(codes, (2.0, (0, 1, 2)), (2.0, (0, 1))) + noise > 0).astype(int)
    problem = Problem.make(codes, (2,) * 8, y, 2, ones)
    assert not grow(problem, penalty)[-1].weights
    found = grow(problem, penalty, "all")
    assert (0, 1) in found[1].weights
    assert {*found[2].weights} >= {(0, 1, 2)}


def test_the_working_set_is_found_from_anywhere_and_by_rows_as_from_the_hessian(monkeypatch):
    codes = signs(500, 12)
    noise = np.random.default_rng(1).normal(size=500)
    y = (product(codes, (1.0, (0,)), (1.0, (0, 3)), (1.5, (0, 3, 5))) + noise > 0).astype(int)
    problem = Problem.make(codes, (2,) * 12, y, 2, np.ones(500))
    penalty = Penalty((20.0, 22.0, 24.0))
    cold = grow(problem, penalty)
    warm = grow(problem, penalty, "heredity", grow(problem, penalty.scaled(0.7)))
    made = Descent.__init__

    def by_rows(self, *given):
        made(self, *given)
        self.few = 0

    monkeypatch.setattr(Descent, "__init__", by_rows)
    rows = grow(problem, penalty)
    for a, b, c in zip(cold, warm, rows, strict=True):
        assert a.weights.keys() == b.weights.keys() == c.weights.keys()
        assert (
            a.objective
            == pytest.approx(b.objective, rel=1e-11)
            == pytest.approx(c.objective, rel=1e-11)
        )


@pytest.mark.long
def test_a_term_of_many_levels_is_the_same_by_rows_as_from_the_hessian(monkeypatch):
    rng = np.random.default_rng(3)
    codes = np.column_stack(
        [rng.integers(0, 12, 600), rng.integers(0, 12, 600), rng.integers(0, 2, 600)]
    )
    y = (codes[:, 0] + codes[:, 1] + rng.integers(0, 12, 600)) // 12
    problem = Problem.make(codes.astype(np.uint8), (12, 12, 2), y, 3, np.ones(600))
    penalty, values = Penalty((2.5, 2.5)), []
    for few in (10**6, 0):
        monkeypatch.setattr("bbl.sparse.workingset.GRAM_SIZE", few)
        values.append(grow(problem, penalty)[-1])
    assert (0, 1) in values[0].weights
    assert values[0].objective == pytest.approx(values[1].objective, rel=1e-10)
    assert max(v.violation for v in values) <= 1e-6


def test_no_term_comes_in_above_the_largest_penalty_and_one_just_below():
    codes = signs(300, 6)
    y = (product(codes, (1.0, (0, 1))) > 0).astype(int)
    problem = Problem.make(codes, (2,) * 6, y, 2, np.ones(300))
    for screen in ("heredity", "all"):
        top = largest_penalty(problem, True, screen)
        for factor, some in ((1.001, False), (0.99, True)):
            assert bool(grow(problem, Penalty((factor * top,) * 2), screen)[-1].weights) is some


def test_the_refit_is_the_maximum_of_the_likelihood():
    rng = np.random.default_rng(5)
    codes = np.column_stack([rng.integers(0, L, 400) for L in (2, 3, 2)]).astype(np.uint8)
    y, w = (
        (codes[:, 1] + rng.integers(0, 2, 400) * codes[:, 0]) % 3,
        rng.integers(1, 4, 400).astype(float),
    )
    y = np.where(rng.random(400) < 0.3, rng.integers(0, 3, 400), y)
    problem = Problem.make(codes, (2, 3, 2), y, 3, w)
    terms = {(0,): np.zeros((1, 2)), (1,): np.zeros((2, 2)), (0, 1): np.zeros((2, 2))}
    found = refit(problem, terms, np.zeros(2))
    assert not found.unbounded
    cells = np.zeros((2, 3, 3))
    np.add.at(cells, (codes[:, 0], codes[:, 1], y), w)
    log = np.log(cells / cells.sum(axis=2, keepdims=True))
    # a table of its own for each of the six states
    assert found.loss == pytest.approx(-(cells * log).sum(), rel=1e-9)
    df = 2 * (1 + 1 + 2 + 2)
    want = 2 * found.loss + df * np.log(w.sum()) + 2 * 0.5 * (2 * np.log(3) + np.log(3))
    assert ebic(problem, list(terms), found.loss) == pytest.approx(want)


def test_terms_that_separate_are_told_and_stay_finite():
    codes = signs(200, 5)
    y = codes[:, 2].astype(int)
    found = choose(
        Problem.make(codes, (2,) * 5, y, 2, np.ones(200)), order=2, lambda_=(20.0, 20.0), refit=True
    )
    assert found.refitted and (2,) in found.unbounded
    assert 10 < abs(found.weights[(2,)][0, 0]) < 50
    noisy = np.where(np.arange(200) % 10 == 0, 1 - y, y)
    problem = Problem.make(codes, (2,) * 5, noisy, 2, np.ones(200))
    assert not choose(problem, order=2, lambda_=(20.0, 20.0), refit=True).unbounded


def test_a_column_twice_and_levels_that_never_meet_are_no_harm():
    rng = np.random.default_rng(6)
    a = rng.integers(0, 3, 300)
    b = np.where(a == 0, 0, rng.integers(0, 3, 300))  # (0, 1) and (0, 2) never occur
    codes = np.column_stack([a, a, b, rng.integers(0, 2, 300)]).astype(np.uint8)
    y = ((a + b + rng.integers(0, 3, 300)) > 3).astype(int)
    problem = Problem.make(codes, (3, 3, 3, 2), y, 2, np.ones(300))
    for lambda_ in ("ebic", (5.0, 5.0)):
        found = choose(problem, order=2, lambda_=lambda_, refit=True)
        assert all(np.isfinite(w).all() for w in found.weights.values())
        assert all(s.violation <= 1e-6 for p in found.path for s in p.stages)


def test_weights_of_any_size_give_the_same_model():
    codes = signs(150, 6)
    y = (
        product(codes, (1.0, (0,)), (1.0, (1, 2))) + np.random.default_rng(7).normal(size=150) > 0
    ).astype(int)
    small = grow(Problem.make(codes, (2,) * 6, y, 2, np.ones(150)), Penalty((8.0, 8.0)), "all")[-1]
    large = grow(
        Problem.make(codes, (2,) * 6, y, 2, np.full(150, 1e9)), Penalty((8e9, 8e9)), "all"
    )[-1]
    assert small.weights.keys() == large.weights.keys()
    assert all(np.allclose(small.weights[t], large.weights[t], atol=1e-7) for t in small.weights)


def test_more_predictors_than_rows():
    codes = signs(30, 80)
    y = codes[:, 0].astype(int)
    problem = Problem.make(codes, (2,) * 80, y, 2, np.ones(30))
    found = choose(problem, order=2, rng=np.random.default_rng(0), nfold=3)
    assert [*found.weights] == [(0,)]


@pytest.mark.long
def test_held_out_rows_prefer_a_refit_of_the_right_terms_and_no_refit_of_noise():
    rng = np.random.default_rng(8)
    codes = signs(600, 30)
    clear = (product(codes, (2.0, (0,)), (2.0, (0, 1))) + rng.logistic(size=600) > 0).astype(int)
    noise = rng.integers(0, 2, 600)
    for y, level, right in ((clear, 60.0, True), (noise, 12.0, False)):
        problem = Problem.make(codes, (2,) * 30, y, 2, np.ones(600))
        found = choose(problem, order=2, lambda_=(level,) * 2, rng=rng)
        raw, again = found.path[0].held_out_loss
        assert found.refitted is right and (again < raw) == right


@pytest.mark.long
def test_the_path_of_folds_ends_twelve_penalties_after_the_best_with_the_same_choice(monkeypatch):
    codes, rng = signs(300, 10), np.random.default_rng(6)
    y = (product(codes, (1.0, (0,)), (1.0, (1, 2))) + rng.logistic(size=300) > 0).astype(int)
    problem = Problem.make(codes, (2,) * 10, y, 2, np.ones(300))
    found = choose(problem, order=2, lambda_="cv", rng=np.random.default_rng(1))
    assert len(found.path) == found.chosen + 1 + choice.PATIENCE < choice.PATH_LENGTH
    monkeypatch.setattr(choice, "PATIENCE", choice.PATH_LENGTH)
    whole = choose(problem, order=2, lambda_="cv", rng=np.random.default_rng(1))
    assert (
        len(whole.path) > len(found.path)
        and whole.chosen == found.chosen
        and whole.refitted == found.refitted
    )
    for mine, its in zip(found.path, whole.path, strict=False):
        np.testing.assert_array_equal(mine.held_out_loss, its.held_out_loss)


@pytest.mark.long
def test_folds_look_far_enough_where_a_product_enters_late(monkeypatch):
    """Predictors of a parity enter by chance, long after the held-out loss began to rise; then it
    falls to a third.
    """
    codes, rng = signs(1000, 12), np.random.default_rng(5)
    y = (product(codes, (1.0, (1, 2))) > 0) ^ (rng.random(1000) < 0.02)
    problem = Problem.make(codes, (2,) * 12, y.astype(int), 2, np.ones(1000))
    found = choose(problem, order=3, lambda_="cv", rng=np.random.default_rng(1))
    losses = np.array([point.held_out_loss for point in found.path])
    assert losses[found.chosen].min() == losses.min() < losses[:5].min() / 3
    assert (1, 2) in found.weights and len(found.path) > found.chosen + 5

    hopeless = np.isinf(losses[:, 1])
    assert hopeless[-5:].all() and not hopeless[: found.chosen].any()
    monkeypatch.setattr(choice, "HOPELESS", np.inf)
    again = choose(problem, order=3, lambda_="cv", rng=np.random.default_rng(1))
    everything = np.array([point.held_out_loss for point in again.path])
    assert again.chosen == found.chosen and again.refitted == found.refitted
    np.testing.assert_array_equal(everything[~hopeless], losses[~hopeless])
    assert everything[hopeless, 1].min() > 2 * losses.min()


def test_refits_are_judged_where_a_fold_has_the_only_row_of_a_class(monkeypatch):
    # a class without rows takes a hundred Newton steps
    monkeypatch.setattr(choice, "PATH_LENGTH", 2)
    codes, rng = signs(12, 3, 1), np.random.default_rng(2)
    y = np.append(rng.integers(0, 2, 11), 2)
    problem = Problem.make(codes, (2,) * 3, y, 3, np.ones(12))
    found = choose(problem, order=1, lambda_="cv", refit=True, rng=np.random.default_rng(1))
    assert np.isfinite(found.path[0].held_out_loss[1])


@pytest.mark.long
def test_a_refit_chosen_by_folds_is_that_of_the_chosen_terms():
    codes, rng = signs(600, 8, 1), np.random.default_rng(2)
    y = (
        product(codes, (2.0, (0,)), (1.5, (1, 2)), (1.0, (1,))) + rng.logistic(size=600) > 0
    ).astype(int)
    problem = Problem.make(codes, (2,) * 8, y, 2, np.ones(600))
    found = choose(problem, order=2, lambda_="cv", refit=True, rng=np.random.default_rng(1))
    last = found.path[found.chosen].stages[-1]
    expected = refit(problem, last.weights, last.intercept)
    assert (
        found.refitted
        and list(found.weights) == list(expected.weights)
        and found.loss == expected.loss
    )


@pytest.mark.long
@pytest.mark.usefixtures("shared")
def test_the_three_way_term_of_the_toy_with_three_levels_is_found(shared):
    folder = shared / "data" / "highorder"
    data = np.load(folder / "cat3_toy_s0.npz")
    true = json.loads((folder / "cat3_toy_s0.json").read_text())["terms"]
    triple = next(tuple(sorted(v for v, _ in t)) for t in true if len(t) == 3)
    rows = data["train"].astype(np.uint8)
    for i in triple:
        others = [j for j in range(rows.shape[1]) if j != i]
        given = (rows[:, others], [3] * len(others), rows[:, i].astype(int), 3, np.ones(len(rows)))
        found = choose(Problem.make(*given), order=2, refit=False)
        pairs = [t for t in found.weights if len(t) == 2]
        assert [tuple(sorted((i, *(others[k] for k in t)))) for t in pairs] == [triple]


@pytest.mark.usefixtures("shared")
def test_the_first_order_of_the_synthetic_data_has_the_recorded_objective(shared):
    folder = shared / "data" / "highorder"
    data = np.load(folder / "syn_small_s1.npz")
    codes = np.unpackbits(data["Xbits"], axis=1)[:10000, :2000]
    y = (data["y"][:10000] > 0).astype(int)
    recorded = json.loads((folder / "baselines.json").read_text())["syn_small_s1"]["shooter"][
        "order1"
    ]
    problem = Problem.make(codes[:8000], (2,) * 2000, y[:8000], 2, np.ones(8000))
    stage = grow(problem, Penalty((80.0,)))[0]
    assert stage.objective == pytest.approx(recorded["objective"], rel=1e-11)
    assert len(stage.weights) == recorded["n_selected"]
    columns = term_features(codes[8000:], (2,) * 2000, [*stage.weights], None)
    link = columns @ np.concatenate([*stage.weights.values()])[:, 0] + stage.intercept
    assert ((link > 0) != y[8000:]).mean() == pytest.approx(recorded["test2000"])


def test_the_reference_itself_knows_a_minimum():
    codes = signs(50, 1)
    y = codes[:, 0].astype(int)
    y[:10] = 1 - y[:10]
    w = np.ones(50)
    link = np.full((50, 1), np.log(y.mean() / (1 - y.mean())))
    _, at_zero = reference.judged(codes, (2,), y, w, link, [], [(0,)], (1.0,))
    assert at_zero > 1
