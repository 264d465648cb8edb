"""The genetic algorithm: its fitness against loops, the best known partitions, and what an
individual may be.
"""

import json

import numpy as np
import pytest
import reference_blocks as reference
from scipy.optimize import minimize_scalar

from bbl._ext.bicluster import genetic as kernel
from bbl.biclustering.cells import Cells
from bbl.biclustering.genetic import Ratings, evolve, refine
from bbl.biclustering.methods import Genetic

OPTIONS = {
    "population": 6,
    "generations": 50,
    "crossover": 0.8,
    "mutation": 0.2,
    "elitism": True,
    "refine": False,
}


@pytest.fixture(scope="module")
def sets(shared):
    return json.loads((shared / "data" / "bicluster" / "ga_table12.json").read_text())["sets"]


def cells_of(X):
    row, column = np.nonzero(~np.isnan(X))
    return Cells.from_entries(row, column, X[row, column], np.ones(len(row)), X.shape)


def some_ratings(missing=0.3, seed=0, mle=False, penalty=1.0):
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 6, (8, 6)).astype(float)
    X[rng.random(X.shape) < missing] = np.nan
    X[np.arange(6), np.arange(6)], X[6:, 0] = 3.0, 4.0
    return X, Ratings.from_cells(cells_of(X), 1, 5, 0.5, penalty, mle)


@pytest.mark.parametrize("penalty", [1.0, 0.5])
def test_fitness_is_that_of_loops(penalty):
    X, ratings = some_ratings(penalty=penalty)
    rng = np.random.default_rng(1)
    population = np.column_stack(
        [rng.integers(4, size=(20, 8)), rng.integers(3, size=(20, 6))]
    ).astype(np.int32)
    expected = [reference.fitness(X, tuple(one[:8]), tuple(one[8:]), penalty) for one in population]
    np.testing.assert_allclose(ratings.fitness(population), expected, rtol=1e-12)
    assert [tuple(one[:8]) for one in population] == [
        reference.canonical(one[:8]) for one in population
    ]


def test_mean_of_highest_likelihood_is_the_best_of_all_means():
    X, ratings = some_ratings(0.1, mle=True)
    one = np.repeat([0, 1, 0], [4, 4, 6]).astype(np.int32)[None]
    value = ratings.penalty * 2
    for rows in (slice(0, 4), slice(4, 8)):
        block = X[rows][~np.isnan(X[rows])]
        value += minimize_scalar(
            lambda m, block=block: reference.block_deviance(block, m),
            bounds=(0, 6),
            method="bounded",
        ).fun
    assert ratings.fitness(one)[0] == pytest.approx(value, rel=1e-6)
    top = Ratings.from_cells(
        cells_of(np.where(np.arange(4) < 4, 5.0, 1.0).reshape(2, 2)), 1, 5, 0.5, 0.0, True
    )
    # all 5: no finite mean
    assert top.fitness(np.zeros((1, 4), dtype=np.int32))[0] == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("penalty", ["bic", "thesis"])
@pytest.mark.long
def test_best_known_partitions_are_found(sets, penalty):
    key = {"bic": "pen1", "thesis": "pen0.5"}[penalty]
    for one in sets:
        X = np.array(one["ratings"], dtype=float)
        found = Genetic(penalty=penalty).fit(cells_of(X), None, 4, np.random.default_rng(0))
        assert found.criterion == pytest.approx(one[key]["best_found"], abs=1e-6)
        factor = {"bic": 1.0, "thesis": 0.5}[penalty]
        assert reference.fitness(
            X, tuple(found.rows), tuple(found.columns), factor
        ) == pytest.approx(found.criterion)
        assert found.criterion <= one[key]["true_fitness"] + 1e-6


def test_best_fitness_never_rises_with_elitism_and_may_without():
    _, ratings = some_ratings()
    kept = evolve(ratings, 0, OPTIONS | {"generations": 200})
    lost = evolve(ratings, 0, OPTIONS | {"generations": 200, "elitism": False})
    assert len(kept.history) == len(lost.history) == 201
    assert (np.diff(kept.history) <= 0).all() and (np.diff(lost.history) > 0).any()
    assert kept.fitness == kept.history[-1] and lost.fitness == lost.history.min()


def test_crossover_alone_adds_no_groups_and_mutation_keeps_labels_in_order():
    _, ratings = some_ratings()
    for mutation in (0.0, 1.0):
        run = evolve(ratings, 3, OPTIONS | {"mutation": mutation, "crossover": 1.0})
        for one in run.population:
            for labels in (one[:8], one[8:]):
                assert tuple(labels) == reference.canonical(labels)
    start = np.column_stack([np.tile([0, 0, 1, 1], (2, 2)), np.tile([0, 1, 1], (2, 2))]).astype(
        np.int32
    )
    fitness, best = ratings.fitness(start), np.empty(100)
    kernel.evolve(
        *ratings,
        start,
        fitness,
        1.0,
        0.0,
        False,
        np.array([1, 2, 3, 4], dtype=np.uint64),
        best,
        start[0].copy(),
        np.zeros(1),
    )
    assert start[:, :8].max() <= 1 and start[:, 8:].max() <= 1
    np.testing.assert_array_equal(fitness, ratings.fitness(start))


def test_no_single_move_improves_what_is_refined():
    X, ratings = some_ratings()
    run = evolve(ratings, 1, OPTIONS | {"generations": 1})
    one, value = refine(ratings, np.concatenate([run.items, run.users]))
    assert value < run.fitness and value == ratings.fitness(one[None])[0]
    for i in range(14):
        for g in range(8 if i < 8 else 6):
            other = one.copy()
            other[i] = g
            assert reference.fitness(X, tuple(other[:8]), tuple(other[8:])) >= value - 1e-9


def test_weights_equal_repeated_ratings():
    X, _ = some_ratings(0.0)
    row, column = np.nonzero(~np.isnan(X))
    weight = np.random.default_rng(2).integers(1, 4, len(row))
    one = Cells.from_entries(row, column, X[row, column], weight.astype(float), X.shape)
    row, column = np.repeat(row, weight), np.repeat(column, weight)
    many = Cells.from_entries(row, column, X[row, column], np.ones(len(row)), X.shape)
    runs = [evolve(Ratings.from_cells(c, 1, 5, 0.5, 1.0, False), 5, OPTIONS) for c in (one, many)]
    np.testing.assert_array_equal(runs[0].history, runs[1].history)
    np.testing.assert_array_equal(runs[0].population, runs[1].population)


def test_log_shares_are_the_likelihood_of_single_ratings():
    shares = Genetic().log_shares(np.array([[1.2, 3.0], [4.9, 0.8]]))
    for mean, row in (
        (1.2, shares[0, 0]),
        (3.0, shares[0, 1]),
        (4.9, shares[1, 0]),
        (0.8, shares[1, 1]),
    ):
        expected = [-0.5 * reference.block_deviance([r], mean) for r in range(1, 6)]
        np.testing.assert_allclose(row, expected, rtol=1e-9, atol=1e-12)


def test_kernel_refuses_populations_that_do_not_fit():
    _, ratings = some_ratings()
    with pytest.raises(ValueError, match="does not fit"):
        ratings.fitness(np.zeros((2, 5), dtype=np.int32))
    with pytest.raises(ValueError, match="do not fit"):
        ratings._replace(user=ratings.user[1:]).fitness(np.zeros((2, 14), dtype=np.int32))
