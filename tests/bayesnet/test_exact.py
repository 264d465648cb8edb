"""Tests of Bayesian network classifiers against enumeration: tables, incomplete rows, gradients,
corners.
"""

import bnreference as oracle
import numpy as np
import pytest

from bbl.bayesnet.averaged import average, naive_average, super_parents
from bbl.bayesnet.chowliu import chow_liu, ordered_kdb, spanning_forest
from bbl.bayesnet.dag import Dag, directed_forest, naive
from bbl.bayesnet.families import Families
from bbl.bayesnet.information import class_information, pair_information
from bbl.bayesnet.predict import Network, class_scores, estimate
from bbl.bayesnet.search import climb
from bbl.bayesnet.trees import split_depths
from bbl.bayesnet.weighting import (
    ConditionalLikelihood,
    bootstrap,
    conditional_weights,
    tree_weights,
    weighted,
)
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities


def draw(rng, n, n_levels, K, share=0.0, weights=None, dtype=np.uint8):
    """Return rows with -1 for missing, and the same as a Sample."""
    rows = np.column_stack([rng.integers(0, L, n) for L in n_levels]).reshape(n, len(n_levels))
    rows = oracle.gaps(rows, share, rng)
    y = rng.integers(0, K, n)
    return rows, sample_of(rows, y, np.ones(n) if weights is None else weights, dtype)


def sample_of(rows, y, weights, dtype=np.uint8):
    missing = rows < 0
    codes = np.ascontiguousarray(np.where(missing, 0, rows).astype(dtype))
    return Sample(
        codes,
        np.asarray(weights, dtype=float),
        y.astype(np.intp),
        missing if missing.any() else None,
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("smooth", [0.0, 0.7])
def test_incomplete_rows_of_any_structure_have_the_sum_over_all_states(seed, smooth):
    rng = np.random.default_rng(seed)
    n_levels, K = rng.integers(1, 4, 6), 2 + seed % 2
    dag = Dag(oracle.random_dag(6, seed % 5, rng))
    rows, sample = draw(rng, 40, n_levels, K, 0.1 * (seed % 3))
    network = estimate(dag, sample, n_levels, K, smooth)
    theta = oracle.tables(dag.families, rows, sample.y, sample.weights, n_levels, K, smooth)
    for f, i in enumerate(dag.features):
        np.testing.assert_allclose(
            network.families.table(network.theta, f), theta[i], rtol=0, atol=1e-15
        )
    new, encoded = draw(rng, 30, n_levels, K, 0.5)
    new[0], encoded.missing[0] = -1, True
    with np.errstate(divide="ignore"):
        want = np.log(
            [oracle.joint(dag.families, theta, network.prior, row, n_levels) for row in new]
        )
    found = network.log_joint(encoded.codes, encoded.missing)
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.exp(found[0]), network.prior, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_forests_of_any_code_type_have_the_sum_over_all_states(dtype):
    rng = np.random.default_rng(5)
    n_levels = np.array([3, 2, 4, 2, 3, 2])
    dag = directed_forest(6, [(0, 3), (3, 1), (3, 2), (4, 5)], root=1)
    rows, sample = draw(rng, 60, n_levels, 3, 0.1, dtype=dtype)
    network = estimate(dag, sample, n_levels, 3, 0.2)
    theta = oracle.tables(dag.families, rows, sample.y, sample.weights, n_levels, 3, 0.2)
    new, encoded = draw(rng, 60, n_levels, 3, 0.6, dtype=dtype)
    want = np.log([oracle.joint(dag.families, theta, network.prior, row, n_levels) for row in new])
    np.testing.assert_allclose(network.log_joint(encoded.codes, encoded.missing), want, rtol=1e-12)


def test_a_forest_and_elimination_agree_where_both_can_be_used():
    """An arc to a lone feature makes the same tree go by elimination."""
    rng = np.random.default_rng(8)
    m, n_levels = 12, np.full(12, 3)
    edges = [(int(rng.integers(0, j)), j) for j in range(1, m - 3)]
    tree = directed_forest(m - 3, edges)
    clique = ((m - 3, ()), (m - 2, (m - 3,)), (m - 1, (m - 3, m - 2)))
    _, sample = draw(rng, 300, n_levels, 2, 0.3)
    apart = estimate(tree, sample, n_levels, 2, 1.0).log_joint(sample.codes, sample.missing)
    others = estimate(Dag(clique), sample, n_levels, 2, 1.0).log_joint(sample.codes, sample.missing)
    together = estimate(Dag(tree.families + clique), sample, n_levels, 2, 1.0)
    found = together.log_joint(sample.codes, sample.missing)
    np.testing.assert_allclose(found, apart + others - np.log(together.prior), rtol=1e-12)


def test_messages_of_hundreds_of_children_do_not_underflow():
    """One missing super-parent of 1500 features: the product of their probabilities is far below
    the least float.
    """
    rng = np.random.default_rng(2)
    m, n = 1501, 4
    n_levels = np.full(m, 10)
    _, sample = draw(rng, 50, n_levels, 2)
    dag = Dag(((0, ()), *((i, (0,)) for i in range(1, m))))
    network = estimate(dag, sample, n_levels, 2, 1.0)
    codes, missing = sample.codes[:n].copy(), np.zeros((n, m), dtype=bool)
    missing[:, 0] = True
    each = []
    for level in range(10):
        codes[:, 0] = level
        each.append(network.log_joint(codes))
    want = np.logaddexp.reduce(each)
    assert want.max() < -2000
    np.testing.assert_allclose(network.log_joint(codes, missing), want, rtol=1e-12)


def test_a_row_without_probability_scores_all_classes_alike_and_has_log_likelihood_minus_infinity():
    dag = Dag(((0, ()), (1, (0,)), (2, (0, 1))))
    rows = np.array([[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1]])
    sample = sample_of(rows, np.array([0, 0, 1, 1]), np.ones(4))
    for structure in (dag, Dag(dag.families[:2])):
        network = estimate(structure, sample, np.array([2, 2, 2]), 2, 0.0)
        new = sample_of(np.array([[0, 1, -1], [0, 1, 0]]), np.zeros(2, dtype=int), np.ones(2))
        joint = network.log_joint(new.codes, new.missing)
        assert np.isneginf(joint).all()
        np.testing.assert_array_equal(np.exp(log_probabilities(class_scores(joint))), 0.5)


def test_weights_are_repeated_rows_to_the_last_bit():
    rng = np.random.default_rng(4)
    n_levels, K = np.array([3, 2, 4, 2]), 3
    weights = rng.integers(1, 5, 60)
    rows, sample = draw(rng, 60, n_levels, K, 0.1, weights)
    again = np.repeat(np.arange(60), weights)
    repeated = sample_of(rows[again], sample.y[again], np.ones(len(again)))
    assert chow_liu(sample, n_levels, K) == chow_liu(repeated, n_levels, K)
    assert ordered_kdb(sample, n_levels, K, 2) == ordered_kdb(repeated, n_levels, K, 2)
    dag = chow_liu(sample, n_levels, K)
    np.testing.assert_array_equal(
        estimate(dag, sample, n_levels, K, 0.5).theta,
        estimate(dag, repeated, n_levels, K, 0.5).theta,
    )
    features = naive(range(4))
    a, b = (naive_average(features, s, n_levels, K, 0.5, 0.3) for s in (sample, repeated))
    np.testing.assert_array_equal(a[0].theta, b[0].theta)
    np.testing.assert_array_equal(a[1], b[1])
    drawn, drawn_again = (
        bootstrap(s, 3, 0.5, np.random.default_rng(1)) for s in (sample, repeated)
    )
    for one, two in zip(drawn, drawn_again, strict=True):
        np.testing.assert_array_equal(one, again[two])
    np.testing.assert_array_equal(
        tree_weights(sample, n_levels, K, drawn), tree_weights(repeated, n_levels, K, drawn_again)
    )
    w = conditional_weights(sample, n_levels, K), conditional_weights(repeated, n_levels, K)
    np.testing.assert_allclose(*w, atol=1e-6)


@pytest.mark.parametrize("learner", ["tan_hc", "tan_hcsp", "fssj", "bsej", "kdb"])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_searches_score_structures_as_a_plain_cross_validation_does(learner, share):
    rng = np.random.default_rng(7)
    n_levels, K = np.array([2, 3, 2, 3]), 2
    weights = rng.integers(1, 4, 70)
    _, sample = draw(rng, 70, n_levels, K, share, weights)
    codes = sample.codes.copy()
    codes[:, 1] = np.where(rng.random(70) < 0.8, (sample.codes[:, 0] + sample.y) % 3, codes[:, 1])
    sample = Sample(codes, sample.weights, sample.y, sample.missing)
    held = np.zeros((3, 70))
    for k, w in enumerate(weights):  # copies of a row fall into different folds
        np.add.at(held[:, k], rng.integers(0, 3, w), 1.0)
    dag, log = climb(
        learner, sample, n_levels, K, held, epsilon=0.0, smooth=0.5, rng=np.random.default_rng(0)
    )
    accuracy = []
    for fold in held:
        network = estimate(dag, sample.weighted(sample.weights - fold), n_levels, K, 0.5)
        test = sample.weighted(fold)
        right = network.log_joint(test.codes, test.missing).argmax(axis=1) == test.y
        accuracy.append(test.weights @ right / test.total)
    assert log[-1] == pytest.approx(np.mean(accuracy), abs=1e-12)
    assert all(b >= a - 2e-8 for a, b in zip(log, log[1:], strict=False))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_gradient_of_the_conditional_likelihood_is_its_finite_difference(share):
    rng = np.random.default_rng(6)
    n_levels, K = np.array([3, 2, 4, 5]), 3
    _, sample = draw(rng, 200, n_levels, K, share, rng.integers(1, 4, 200))
    objective = ConditionalLikelihood(sample, n_levels, K)
    for w in (np.ones(4), rng.random(4), np.array([0.0, 0.2, 1.0, 0.7])):
        steps = 1e-5 * np.eye(4)
        numeric = [(objective(w + s)[0] - objective(w - s)[0]) / 2e-5 for s in steps]
        np.testing.assert_allclose(objective(w)[1], numeric, rtol=1e-5, atol=1e-5)


def test_the_objective_is_the_conditional_likelihood_of_the_weighted_network():
    rng = np.random.default_rng(3)
    n_levels, K = np.array([3, 2, 4]), 2
    _, sample = draw(rng, 100, n_levels, K, 0.2)
    w = np.array([0.3, 1.0, 0.0])
    network = weighted(estimate(naive(range(3)), sample, n_levels, K, 1.0), w)
    log_p = log_probabilities(network.log_joint(sample.codes, sample.missing))
    value = -log_p[np.arange(100), sample.y].sum()
    assert ConditionalLikelihood(sample, n_levels, K)(w)[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(network.families.table(network.theta, 2), 0.25, atol=1e-15)


def test_averaged_naive_bayes_is_the_average_over_all_subsets_of_features():
    rng = np.random.default_rng(9)
    n_levels, K, smooth, prior = np.array([3, 2, 4]), 2, 0.6, 0.3
    rows, sample = draw(rng, 25, n_levels, K)
    from scipy.special import gammaln

    def evidence(i, with_arc):
        classes = [[c] for c in range(K)] if with_arc else [range(K)]
        total, r = 0.0, n_levels[i]
        for group in classes:
            n = np.array(
                [sum(rows[k, i] == x and sample.y[k] in group for k in range(25)) for x in range(r)]
            )
            total += (
                gammaln(r * smooth)
                - gammaln(n.sum() + r * smooth)
                + (gammaln(n + smooth) - gammaln(smooth)).sum()
            )
        return total

    full = estimate(naive(range(3)), sample, n_levels, K, smooth)
    network, arcs = naive_average(naive(range(3)), sample, n_levels, K, smooth, prior)
    joint, evidences = np.zeros((25, K)), []
    for subset in range(8):
        has = [bool(subset >> i & 1) for i in range(3)]
        log_weight = sum(
            evidence(i, has[i]) + np.log(prior if has[i] else 1 - prior) for i in range(3)
        )
        p = np.tile(full.prior, (25, 1))
        for i in range(3):
            with_arc = full.families.table(full.theta, i)
            count = np.bincount(rows[:, i], minlength=n_levels[i])
            without = (count + smooth) / (25 + n_levels[i] * smooth)
            p = p * (with_arc[rows[:, i]] if has[i] else without[rows[:, i]][:, None])
        evidences.append(log_weight)
        joint += np.exp(log_weight) * p
    joint /= np.exp(evidences).sum()
    np.testing.assert_allclose(np.exp(network.log_joint(sample.codes)), joint, rtol=1e-10)


def test_features_without_known_descendants_sum_to_one_in_time_linear_in_arcs():
    rng = np.random.default_rng(0)
    m, n_levels = 200, [2] * 200
    families = Families([(i, tuple(range(max(0, i - 2), i))) for i in range(m)], n_levels, 2)
    theta = rng.random((families.cells, 2))
    network = Network(
        Dag(families.families),
        families,
        np.array([0.3, 0.7]),
        theta / families.sum_over_levels(theta),
    )
    codes = rng.integers(0, 2, (5, m)).astype(np.uint8)
    # the number of paths below the first feature is that of Fibonacci
    missing = np.tile(np.arange(m) > 0, (5, 1))
    want = network.prior * families.table(network.theta, 0)[codes[:, 0]]
    np.testing.assert_allclose(np.exp(network.log_joint(codes, missing)), want, rtol=1e-14)


def test_information_is_that_of_the_tables_cell_by_cell():
    rng = np.random.default_rng(1)
    n_levels, K = np.array([2, 3, 4, 3]), 2
    rows, sample = draw(rng, 80, n_levels, K, 0.2, rng.integers(1, 4, 80))
    information, weight = pair_information(sample, n_levels, K)
    for i in range(4):
        for j in range(i + 1, 4):
            counts = np.zeros((n_levels[i], n_levels[j], K))
            for row, c, w in zip(rows, sample.y, sample.weights, strict=True):
                if row[i] >= 0 and row[j] >= 0:
                    counts[row[i], row[j], c] += w
            assert weight[i, j] == counts.sum()
            assert information[i, j] == pytest.approx(oracle.information(counts), abs=1e-13)
    alone = class_information(sample, n_levels, K)
    counts = np.zeros((n_levels[2], K, 1))
    for row, c, w in zip(rows, sample.y, sample.weights, strict=True):
        if row[2] >= 0:
            counts[row[2], c, 0] += w
    assert alone[2] == pytest.approx(oracle.information(counts), abs=1e-13)


@pytest.mark.parametrize("weights", [None, 3, 1000])
def test_pair_tables_by_bits_and_row_by_row_in_any_runs_give_the_same_information(
    weights, monkeypatch
):
    rng = np.random.default_rng(1)
    n_levels = rng.integers(2, 5, 9)
    w = None if weights is None else rng.integers(1, weights, 400)
    _, sample = draw(rng, 400, n_levels, 2, 0.1, w)
    whole = pair_information(sample, n_levels, 2)
    where = "bbl.bayesnet.information."
    for packed in (32, 0):
        for name in ("PACKED_LEVELS", "PACKED_WEIGHTED_LEVELS"):
            monkeypatch.setattr(where + name, packed)
        for cells in (2**22, 200, 100, 1):
            monkeypatch.setattr(where + "CELLS", cells)
            monkeypatch.setattr(where + "PACKED_CELLS", cells)
            for a, b in zip(whole, pair_information(sample, n_levels, 2), strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_forests_of_largest_weight_are_those_of_all_forests():
    import itertools

    rng = np.random.default_rng(0)
    pairs = list(itertools.combinations(range(5), 2))
    for _ in range(20):
        weights = np.zeros((5, 5))
        weights[np.triu_indices(5, 1)] = rng.normal(size=10).round(2)
        best = -np.inf
        for size in range(5):
            for edges in itertools.combinations(pairs, size):
                dag = directed_forest(5, edges)
                if len(dag.arcs) == size:  # no cycle
                    best = max(best, sum(weights[e] for e in edges))
        assert sum(weights[e] for e in spanning_forest(weights)) == pytest.approx(best)


def test_a_root_turns_its_own_tree_only():
    edges = [(0, 2), (2, 4), (1, 3)]
    assert directed_forest(5, edges).families == ((0, ()), (2, (0,)), (4, (2,)), (1, ()), (3, (1,)))
    assert directed_forest(5, edges, root=4).families == (
        (0, (2,)),
        (2, (4,)),
        (4, ()),
        (1, ()),
        (3, (1,)),
    )


def test_every_pair_without_information_still_makes_a_tree():
    rows = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]] * 2)
    sample = sample_of(rows, np.repeat([0, 1], 4), np.ones(8))
    assert len(chow_liu(sample, np.array([2, 2, 1]), 2).arcs) == 2


@pytest.mark.long
def test_averages_of_hundreds_of_features_of_ten_levels_tell_the_classes_apart():
    rng = np.random.default_rng(1)
    m, n = 400, 120
    y = np.arange(n) % 2
    usual = (rng.integers(0, 10, m) + 3 * y[:, None]) % 10
    rows = np.where(rng.random((n, m)) < 0.3, usual, rng.integers(0, 10, (n, m)))
    sample = sample_of(rows[:100], y[:100], np.ones(100))
    network = average(super_parents(m), sample, np.full(m, 10), 2, 1.0)
    new = sample_of(oracle.gaps(rows[100:], 0.05, rng), y[100:], np.ones(20))
    joint = network.log_joint(new.codes, new.missing)
    assert np.isfinite(joint).all() and joint.max() < -745  # exp() of it is zero
    assert (joint.argmax(axis=1) == new.y).mean() > 0.9


def test_an_average_is_the_mean_of_its_members_though_one_gives_a_row_no_probability():
    rng = np.random.default_rng(11)
    n_levels = np.array([3, 3, 3])
    rows, sample = draw(rng, 12, n_levels, 2)
    network = average(super_parents(3), sample, n_levels, 2, 0.0)
    new, encoded = draw(rng, 40, n_levels, 2, 0.3)
    want = np.zeros((40, 2))
    for dag in super_parents(3):
        theta = oracle.tables(dag.families, rows, sample.y, sample.weights, n_levels, 2, 0.0)
        want += [oracle.joint(dag.families, theta, network.prior, row, n_levels) for row in new]
    np.testing.assert_allclose(
        np.exp(network.log_joint(encoded.codes, encoded.missing)), want / 3, atol=1e-15
    )


def test_corners_have_sensible_tables():
    none = sample_of(np.zeros((4, 0), dtype=int), np.array([0, 0, 1, 0]), np.ones(4))
    for dag in (naive(()), *super_parents(0), chow_liu(none, np.zeros(0, dtype=int), 2)):
        network = estimate(dag, none, np.zeros(0, dtype=int), 2, 0.0)
        np.testing.assert_allclose(np.exp(network.log_joint(none.codes)), [[0.75, 0.25]] * 4)
    one = sample_of(np.array([[0], [1], [0], [0]]), np.array([0, 0, 0, 2]), np.ones(4))
    assert chow_liu(one, np.array([3]), 3) == naive([0]) == super_parents(1)[0]
    network = estimate(naive([0]), one, np.array([3]), 3, 0.0)
    # a class without rows
    np.testing.assert_allclose(network.families.table(network.theta, 0)[:, 1], 1 / 3)
    # one with one row
    np.testing.assert_allclose(network.families.table(network.theta, 0)[:, 2], [1, 0, 0])
    np.testing.assert_allclose(
        estimate(naive([0]), one, np.array([3]), 3, 1.0).prior, [4 / 7, 1 / 7, 2 / 7]
    )


def test_rows_of_unknown_class_count_for_nothing():
    rng = np.random.default_rng(12)
    n_levels = np.array([2, 3, 2])
    _, sample = draw(rng, 60, n_levels, 2)
    known = np.arange(60) % 4 > 0
    blank = Sample(sample.codes, sample.weights, np.where(known, sample.y, -1), None)
    rest = sample.rows(known)
    assert chow_liu(blank, n_levels, 2) == chow_liu(rest, n_levels, 2)
    a, b = (estimate(chow_liu(rest, n_levels, 2), s, n_levels, 2, 0.3) for s in (blank, rest))
    np.testing.assert_array_equal(a.theta, b.theta)
    np.testing.assert_array_equal(a.prior, b.prior)
    held = np.eye(3)[np.arange(60) % 3].T
    ends = [
        climb("tan_hc", s, n_levels, 2, h, epsilon=0.0, smooth=1.0, rng=np.random.default_rng(0))
        for s, h in ((blank, held), (rest, held[:, known]))
    ]
    assert ends[0] == ends[1]
    assert conditional_weights(blank, n_levels, 2) == pytest.approx(
        conditional_weights(rest, n_levels, 2)
    )


def test_sahamis_classifier_takes_features_by_their_information():
    rng = np.random.default_rng(3)
    n_levels, K = np.array([2, 2, 3, 2]), 2
    _, sample = draw(rng, 150, n_levels, K)
    codes = sample.codes.copy()
    codes[:, 3] = np.where(rng.random(150) < 0.9, sample.y, codes[:, 3])
    codes[:, 0] = np.where(rng.random(150) < 0.7, sample.y, codes[:, 0])
    sample = Sample(codes, sample.weights, sample.y)
    order = np.argsort(-class_information(sample, n_levels, K))
    assert order[:2].tolist() == [3, 0]
    given = pair_information(sample, n_levels, K)[0]
    given = given + given.T
    dag = ordered_kdb(sample, n_levels, K, 2)
    assert dag.features == (0, 1, 2, 3)
    for place, i in enumerate(order):
        best = sorted(order[:place], key=lambda j, i=i: -given[i, j])[:2]
        assert dag.parents[int(i)] == tuple(best)


def test_trees_split_by_what_tells_most_and_know_the_depth():
    rng = np.random.default_rng(0)
    n = 400
    a, b, noise = rng.integers(0, 4, n), rng.integers(0, 2, n), rng.integers(0, 3, n)
    y = np.where(a < 2, 0, np.where(b == 1, 1, 2))
    sample = sample_of(np.column_stack([noise, b, a]), y, np.ones(n))
    assert split_depths(sample, np.array([3, 2, 4]), 3, np.arange(n)).tolist() == [np.inf, 2.0, 1.0]
    two = sample_of(np.column_stack([noise, b, a]), (y > 0).astype(int), np.ones(n))
    assert split_depths(two, np.array([3, 2, 4]), 2, np.arange(n)).tolist() == [np.inf, np.inf, 1.0]


def test_trees_take_features_of_many_levels_and_many_classes():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 60, 3000)
    y = np.where(x % 3 == 0, 0, np.where(x % 3 == 1, 1, 2))
    sample = sample_of(np.column_stack([x, rng.integers(0, 2, 3000)]), y, np.ones(3000))
    assert split_depths(sample, np.array([60, 2]), 3, np.arange(3000))[0] == 1.0


def test_a_context_has_a_copy_of_every_table_and_rows_use_theirs():
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.integers(0, L, 90) for L in (2, 3, 4)])
    sample = sample_of(rows, rng.integers(0, 2, 90), np.ones(90))
    families = Families([(0, ()), (1, (0,))], [2, 3, 4], 2, (2, 4))
    counts = families.count(sample)
    for value in range(4):
        part = sample.rows(rows[:, 2] == value)
        alone = Families(families.families, [2, 3, 4], 2)
        want = alone.count(part)
        for f in range(2):
            np.testing.assert_array_equal(families.table(counts, f)[value], alone.table(want, f))
    out = families.score(counts, sample.codes, None, np.zeros((90, 2)))
    k = 17
    value = rows[k, 2]
    want = (
        families.table(counts, 0)[value, rows[k, 0]]
        + families.table(counts, 1)[value, rows[k, 0], rows[k, 1]]
    )
    np.testing.assert_array_equal(out[k], want)


def test_a_table_that_would_not_fit_is_refused_with_its_size():
    n_levels = np.full(4, 60000)
    with pytest.raises(MemoryError, match="cells for each of 2 classes"):
        Families([(0, (1, 2, 3))], n_levels, 2)


def test_structures_know_what_they_are():
    dag = Dag(((2, ()), (0, (2,)), (1, (2, 0)), (3, ())))
    assert dag.layers == ((2, 3), (0,), (1,))
    assert dag.components == ((2, 0, 1), (3,)) and dag.is_semi_naive and dag.most_parents == 2
    assert dag.ancestors(1) == {0, 2}
    assert not Dag(dag.families[:2] + ((1, (2,)), (3, ()))).is_semi_naive
    assert dag.without(0).families == ((2, ()), (1, (2,)), (3, ()))
    with pytest.raises(ValueError, match="cycle"):
        Dag(((0, (1,)), (1, (0,)))).layers  # noqa: B018
    assert isinstance(
        estimate(dag, draw(np.random.default_rng(0), 9, [2] * 4, 2)[1], [2] * 4, 2, 1.0), Network
    )


@pytest.mark.parametrize("score", ["aic", "bic"])
def test_a_penalty_keeps_no_arc_between_features_never_seen_together(score):
    codes = np.array([[0, 0], [1, 0], [0, 0], [0, 1]], dtype=np.uint8)
    missing = np.array([[False, True], [False, True], [True, False], [True, False]])
    for n_levels in ([2, 2], [2, 1]):  # a feature of one level costs nothing
        sample = Sample(
            np.minimum(codes, np.array(n_levels, dtype=np.uint8) - 1),
            np.ones(4),
            np.arange(4) % 2,
            missing,
        )
        assert not chow_liu(sample, np.array(n_levels), 2, score).arcs
        assert chow_liu(sample, np.array(n_levels), 2, "loglik").arcs
