"""Folds as weights: R's blocks, shuffled copies, and the positions of a splitter."""

import numpy as np
import pytest
import reference as oracle

from bbl.errors import OptionError
from bbl.memory import MemoryLimitError
from bbl.rows import folds as rows_folds
from bbl.rows.folds import consecutive_folds, shuffled_folds, splitter_folds, stratified_folds
from bbl.rows.sample import Sample


def make_sample(weights, y):
    n = len(y)
    return Sample(
        np.arange(n, dtype=np.uint8)[:, None] % 2, np.asarray(weights, dtype=float), np.asarray(y)
    )


def expanded(folds, sample):
    """Return the rows of the weight-expanded data that each fold holds, group by group."""
    order = np.argsort(sample.response, kind="stable")
    parts = [order[held[order] > 0] for held in folds.validation_weights]
    counts = [held[part] for held, part in zip(folds.validation_weights, parts, strict=True)]
    return oracle.expanded_folds(parts, counts, sample.weights)


@pytest.mark.parametrize("nfold", [2, 3, 5])
def test_consecutive_folds_are_those_of_r(nfold):
    y = np.random.default_rng(0).integers(0, 3, 50)
    sample = make_sample(np.ones(50), y)
    got = expanded(consecutive_folds(sample, nfold), sample)
    for rows, expected in zip(got, oracle.contiguous_folds(y, nfold), strict=True):
        np.testing.assert_array_equal(rows, expected)


def test_weights_are_cut_as_if_rows_were_repeated():
    weights, y = np.array([3, 1, 4, 1, 5, 9, 2]), np.array([0, 1, 0, 1, 1, 0, 0])
    sample = make_sample(weights, y)
    folds = consecutive_folds(sample, 4)
    for rows, expected in zip(
        expanded(folds, sample), oracle.contiguous_folds(np.repeat(y, weights), 4), strict=True
    ):
        np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(folds.validation_weights.sum(axis=0), weights)
    np.testing.assert_array_equal(
        folds.train + folds.validation_weights, np.broadcast_to(weights, (4, 7))
    )


def test_a_group_smaller_than_the_number_of_folds():
    sample = make_sample([1, 1, 20], [0, 0, 1])
    held = consecutive_folds(sample, 5).validation_weights
    np.testing.assert_array_equal(held.sum(axis=0), [1, 1, 20])
    np.testing.assert_array_equal(held[:, 0], [1, 0, 0, 0, 0])


@pytest.mark.parametrize("copies", [rows_folds.MAX_SINGLE_COPIES, 0], ids=["one by one", "counted"])
def test_shuffled_folds_keep_sizes_and_differ(monkeypatch, copies):
    monkeypatch.setattr(rows_folds, "MAX_SINGLE_COPIES", copies)
    sample = make_sample([3, 1, 4, 1, 5, 9, 2], [0, 1, 0, 1, 1, 0, 0])
    one = shuffled_folds(sample, 3, np.random.default_rng(1)).validation_weights
    again = shuffled_folds(sample, 3, np.random.default_rng(1)).validation_weights
    other = shuffled_folds(sample, 3, np.random.default_rng(2)).validation_weights
    np.testing.assert_array_equal(one, again)
    assert (one != other).any() and (one >= 0).all()
    np.testing.assert_array_equal(one.sum(axis=0), sample.weights)
    for y in (0, 1):
        regular = consecutive_folds(sample, 3).validation_weights[:, sample.y == y].sum(axis=1)
        np.testing.assert_array_equal(one[:, sample.y == y].sum(axis=1), regular)


def test_shuffled_folds_of_rows_are_a_cut_of_their_random_order():
    sample = make_sample(np.ones(30), np.zeros(30, dtype=int))
    order = np.random.default_rng(4).permutation(30)
    for rows, held in zip(
        np.split(order, 3),
        shuffled_folds(sample, 3, np.random.default_rng(4)).validation_weights,
        strict=True,
    ):
        np.testing.assert_array_equal(np.flatnonzero(held), np.sort(rows))


@pytest.mark.long
@pytest.mark.parametrize(
    "few", [0, 3, 10**4], ids=["thinned", "thinned, then one by one", "one by one"]
)
def test_draws_without_replacement_have_the_hypergeometric_distribution(monkeypatch, few):
    """Every way of drawing, against the probabilities of all counts."""
    from scipy.stats import chisquare, multivariate_hypergeom

    monkeypatch.setattr(rows_folds, "MAX_SINGLE_DRAWS", few)
    copies, rng, n = np.array([5, 1, 4, 2]), np.random.default_rng(3), 3000
    for size in (4, 9):
        draws = np.array([rows_folds.draw_copies(copies, size, rng) for _ in range(n)])
        assert (draws.sum(axis=1) == size).all() and (draws >= 0).all() and (draws <= copies).all()
        found, counts = np.unique(draws, axis=0, return_counts=True)
        p = multivariate_hypergeom.pmf(found, copies, size)
        rare = p * n < 5
        expected = np.append(p[~rare], 1 - p[~rare].sum()) * n
        assert chisquare(np.append(counts[~rare], counts[rare].sum()), expected).pvalue > 1e-4


def test_draws_from_as_many_copies_as_can_be_counted():
    copies, rng = np.array([2**52, 1, 2**51, 2**40]), np.random.default_rng(0)
    taken = np.array([rows_folds.draw_copies(copies, 2**50, rng) for _ in range(50)])
    assert (taken.sum(axis=1) == 2**50).all() and (taken >= 0).all() and (taken <= copies).all()
    mean, p = copies * (2**50 / copies.sum()), copies / copies.sum()
    assert (abs(taken.mean(axis=0) - mean) < 5 * np.sqrt(2**50 * p * (1 - p) / 50) + 1).all()


def test_positions_that_occur_twice_count_twice_and_weights_multiply():
    weights = np.array([2.0, 0.0, 1.0, 3.0])
    folds = splitter_folds(
        [([0, 0, 2], [3, 1]), ([-1], np.array([True, False, True, False]))], None, None, weights
    )
    np.testing.assert_array_equal(folds.train, [[4, 0, 1, 0], [0, 0, 0, 3]])
    np.testing.assert_array_equal(folds.validation_weights, [[0, 0, 0, 3], [2, 0, 1, 0]])
    assert len(folds) == 2


def test_a_splitter_of_scikit_learn_holds_every_row_once():
    sklearn = pytest.importorskip("sklearn.model_selection")
    y, weights = np.repeat([0, 1], 10), np.arange(1.0, 21.0)
    folds = splitter_folds(sklearn.StratifiedKFold(4), np.zeros((20, 1)), y, weights)
    np.testing.assert_array_equal(folds.validation_weights.sum(axis=0), weights)
    np.testing.assert_array_equal(
        folds.train + folds.validation_weights, np.broadcast_to(weights, (4, 20))
    )
    with pytest.raises(OptionError, match="cv"):
        splitter_folds([(np.arange(10), np.arange(10, 20))], None, y, weights)


def test_folds_that_would_not_fit_into_memory_are_refused():
    with pytest.raises(MemoryLimitError, match="nfold"):
        consecutive_folds(make_sample([1e9] * 20, [0, 1] * 10), 2 * 10**10)


@pytest.mark.parametrize("weights", [[1] * 47, [3, 1, 2] * 15 + [1, 1], [10**8] * 47])
def test_stratified_folds_are_of_one_size_in_each_group_to_within_one(weights):
    sample = make_sample(weights, [0, 1, 1] * 15 + [0, -1])
    folds = stratified_folds(sample, 4, np.random.default_rng(2))
    for y in (0, 1):
        sizes = folds.validation_weights[:, sample.y == y].sum(axis=1)
        assert np.ptp(sizes) <= 1 and sizes.sum() == sample.weights[sample.y == y].sum()
    assert not folds.validation_weights[:, sample.y < 0].any()
    np.testing.assert_array_equal(folds.train, sample.weights - folds.validation_weights)
    again = stratified_folds(sample, 4, np.random.default_rng(3))
    assert (again.validation_weights != folds.validation_weights).any()
