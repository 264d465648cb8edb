"""Partitions: labels, the Du process, Rand indices, similarities and point partitions against
enumeration.
"""

import json

import numpy as np
import pytest
import reference_blocks as reference

import bbl
from bbl._ext.bicluster.genetic import du_steps
from bbl.biclustering.partition import (
    canonical,
    contingency,
    expected_loss,
    point_partition,
    rand_index,
    similarity,
)


def draws(n, seed, size=200):
    """Return random labels of n items that lean towards two groups."""
    rng = np.random.default_rng(seed)
    true = np.arange(n) % 2
    noisy = np.where(rng.random((size, n)) < 0.3, rng.integers(n, size=(size, n)), true)
    return np.array([canonical(labels) for labels in noisy])


def test_canonical_labels_are_those_of_the_oracle():
    rng = np.random.default_rng(0)
    for _ in range(50):
        labels = rng.integers(5, size=8)
        assert tuple(canonical(labels)) == reference.canonical(labels)


def test_du_matrices_are_symmetric_and_those_of_the_file(shared):
    stored = json.loads((shared / "data" / "bicluster" / "du_process.json").read_text())
    seconds = []
    for n in (2, 3, 4, 5):
        T = reference.du_matrix(n)
        assert [list(p) for p in reference.partitions(n)] == stored[str(n)]["states"]
        np.testing.assert_allclose(T, stored[str(n)]["T_float"], rtol=0, atol=1e-15)
        assert (T == T.T).all()
        seconds.append(np.sort(np.abs(np.linalg.eigvalsh(T)))[-2])
    np.testing.assert_allclose(seconds, [1, 2 / 3, 2 / 3, 0.581], atol=5e-4)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_du_steps_of_the_kernel_have_the_frequencies_of_the_matrix(n):
    states = reference.partitions(n)
    at, T, size = {p: k for k, p in enumerate(states)}, reference.du_matrix(n), 2000
    stream = np.random.default_rng(n).integers(1, 2**64, 4, dtype=np.uint64)
    for k, state in enumerate(states):
        counts = np.zeros(len(states))
        for _ in range(size):
            labels = np.array(state, dtype=np.int32)
            du_steps(labels, 1, stream)
            counts[at[tuple(labels)]] += 1
        assert (counts[T[k] == 0] == 0).all()
        z = (counts / size - T[k]) / np.sqrt(np.maximum(T[k] * (1 - T[k]), 1e-12) / size)
        assert np.abs(z[T[k] > 0]).max() < 5


def test_many_du_steps_reach_all_partitions_alike():
    states = reference.partitions(4)
    draws = bbl.du_process(4, 6000, thin=5)
    drawn, counts = np.unique(draws, axis=0, return_counts=True)
    assert [tuple(p) for p in drawn] == sorted(states)
    expected = 6000 / len(states)
    # chi-square, 14 degrees of freedom: p = 1e-4
    assert ((counts - expected) ** 2 / expected).sum() < 42


def test_du_draws_go_on_from_the_start_by_single_moves():
    draws = bbl.du_process(["b", "a", "b", "c", "a"], 200, seed=np.random.default_rng(1))
    assert draws.shape == (200, 5) and draws.dtype == np.int32
    before = np.array([0, 1, 0, 2, 1])
    for labels in draws:
        # without some one item both partitions are equal
        rest = [np.delete(np.stack([before, labels]), i, axis=1) for i in range(5)]
        assert any((canonical(old) == canonical(new)).all() for old, new in rest)
        before = labels
    np.testing.assert_array_equal(bbl.du_process(5, 3), bbl.du_process(range(5), 3))
    assert (bbl.du_process(1, 4) == 0).all()
    for start, name in (([], "start"), ([[0, 1]], "start"), (0, "start")):
        with pytest.raises(bbl.errors.OptionError, match=name):
            bbl.du_process(start)


def test_rand_index_counts_pairs():
    rng = np.random.default_rng(1)
    for _ in range(20):
        p, q = rng.integers(3, size=9), rng.integers(4, size=9)
        assert rand_index(p, q)[0] == pytest.approx(reference.rand_index(p, q), abs=1e-14)
    assert rand_index(p, p) == (1.0, 1.0)
    assert rand_index(np.zeros(5, int), np.arange(5))[0] == 0.0
    assert contingency(np.array([3, 3, 1]), np.array([0, 2, 2])).tolist() == [[1, 1], [0, 1]]


def test_adjusted_rand_index_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(2)
    for _ in range(20):
        p, q = rng.integers(3, size=9), rng.integers(4, size=9)
        assert rand_index(p, q)[1] == pytest.approx(metrics.adjusted_rand_score(p, q), abs=1e-12)


@pytest.mark.long
def test_expected_binder_loss_is_the_mean_over_draws():
    sample = draws(5, 0)
    share = similarity(sample)
    for p in reference.partitions(5):
        wrong = [(1 - reference.rand_index(p, one)) * 10 for one in sample]
        assert expected_loss(np.array(p), share, "binder") == pytest.approx(
            np.mean(wrong), abs=1e-12
        )


def test_expected_variation_is_exact_for_one_draw_and_a_lower_bound_for_more():
    one = draws(5, 1, 1)
    for p in reference.partitions(5):
        value = expected_loss(np.array(p), similarity(one), "vi")
        assert value == pytest.approx(
            reference.variation_of_information(p, tuple(one[0])), abs=1e-12
        )
    sample = draws(5, 2, 40)
    share = similarity(sample)
    # what no partition changes
    own = np.mean([np.log(np.sum(q[:, None] == q, axis=1)).mean() for q in sample])
    swapped = np.log(share.sum(axis=1)).mean()
    for p in reference.partitions(5):
        mean = np.mean([reference.variation_of_information(p, tuple(q)) for q in sample])
        assert expected_loss(np.array(p), share, "vi") - swapped <= mean - own + 1e-12


@pytest.mark.parametrize("loss", ["vi", "binder"])
@pytest.mark.parametrize("seed", range(6))
def test_point_partition_has_the_least_loss_of_all(loss, seed):
    sample = draws(6, seed, 60)
    share = similarity(sample)
    found = point_partition(sample, share, loss)
    least = min(expected_loss(np.array(p), share, loss) for p in reference.partitions(6))
    assert expected_loss(found, share, loss) == pytest.approx(least, abs=1e-9)
