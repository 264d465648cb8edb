"""Genetic algorithm for two-way clustering of ordinal ratings (Li 2014, section 1.3).

An individual consists of a partition of the items and a partition of the users. It is stored as a
row of labels, with the items first. Smaller fitness is better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl._ext.bicluster import genetic as kernel
from bbl.biclustering.cells import Cells
from bbl.memory import check_memory
from bbl.parallel import stop_flag

__all__ = ["Evolved", "Ratings", "evolve"]

CHUNK = 2  # number of generations between checks of the stop flag


class Ratings(NamedTuple):
    """Ratings and the block model; the attributes are in the order of the kernel's arguments.

    The probability of a rating r in a block with mean m is the probability of the interval (r - .5,
    r + .5) under a normal distribution with mean m and standard deviation `sigma`, truncated to the
    scale. The fitness is -2 times the log-likelihood, plus `penalty` for each block.

    Attributes
    ----------
    item, user : ndarray of int32, shape (n,)
        Item and user of each rating.
    rating : ndarray of int32, shape (n,)
        The ratings, where 0 stands for the lowest rating.
    weight : ndarray, shape (n,)
        Frequency of the user's rating of the item.
    items, users, levels : int
        Numbers of items, users, and ratings on the scale.
    sigma : float
    penalty : float
    mle : bool
        Whether m is the maximum-likelihood estimate instead of the mean of the block's ratings.
    """

    item: np.ndarray
    user: np.ndarray
    rating: np.ndarray
    weight: np.ndarray
    items: int
    users: int
    levels: int
    sigma: float
    penalty: float
    mle: bool

    @classmethod
    def from_cells(
        cls, cells: Cells, low: int, high: int, sigma: float, penalty: float, mle: bool
    ) -> Ratings:
        """Return the ratings, given cells with integers between `low` and `high`; rows are items
        and columns are users.

        The penalty for each block is `penalty` times the log of the number of ratings.
        """
        rating = np.rint(cells.value - low).astype(np.int32)
        block_penalty = penalty * float(np.log(cells.weight.sum()))
        levels = high - low + 1
        return cls(
            cells.row,
            cells.column,
            rating,
            cells.weight,
            *cells.shape,
            levels,
            sigma,
            block_penalty,
            mle,
        )

    def fitness(self, population: np.ndarray) -> np.ndarray:
        """Return the fitness (n,) of individuals (n, items + users).

        The labels are replaced by canonical labels in place.
        """
        out = np.empty(len(population))
        kernel.fitness_of(*self, population, out)
        return out


class Evolved(NamedTuple):
    """The result of a run of the genetic algorithm.

    Attributes
    ----------
    items, users : ndarray of int32, shape (items,) and (users,)
        Labels of the best individual.
    fitness : float
        Fitness of the best individual.
    history : ndarray, shape (1 + generations,)
        Smallest fitness of the initial population and of each generation.
    population : ndarray of int32, shape (members, items + users)
        The last population, sorted by increasing fitness.
    population_fitness : ndarray, shape (members,)
    """

    items: np.ndarray
    users: np.ndarray
    fitness: float
    history: np.ndarray
    population: np.ndarray
    population_fitness: np.ndarray


def _first_population(ratings: Ratings, n_individuals: int, stream: np.ndarray) -> np.ndarray:
    """Return the initial population (n_individuals, items + users), and advance the random
    generator.

    `stream` (4,) is the state of the generator. In the first member, each group has one item or
    user. The other members are obtained from it by steps of the Du process: a random item or user
    moves to another group or to a new group. The number of steps equals the number of items or
    users. Crossover never adds groups, so the search starts with as many groups as possible.
    """
    items = ratings.items
    users = ratings.users
    population = np.empty((n_individuals, items + users), dtype=np.int32)
    population[:, :items], population[:, items:] = np.arange(items), np.arange(users)
    for labels in population[1:]:  # the labels are views, because the kernel changes the population
        kernel.du_steps(labels[:items], items, stream)  # the second argument is the number of steps
        kernel.du_steps(labels[items:], users, stream)
    return population


def evolve(ratings: Ratings, seed: int, options: dict) -> Evolved:
    """Run the genetic algorithm once.

    `options` contains the options of `Genetic` from ``population``, the number of individuals, to
    ``refine``; ``crossover``, ``mutation`` and ``elitism`` are passed to the kernel. If ``refine``
    is True, the best individual is improved at the end.
    """
    items = ratings.items
    users = ratings.users
    n_individuals = options["population"]
    # counts of ratings and a deviance for each of the items x users blocks, with 8 bytes each; the
    # population and its children
    check_memory(
        8.0 * items * users * (ratings.levels + 1) + 8.0 * n_individuals * (items + users),
        f"The genetic algorithm on {items} x {users} ratings",
        "Use method='prototype', which is suitable for larger tables.",
    )
    stream = np.random.default_rng(seed).integers(1, 2**64, 4, dtype=np.uint64)
    population = _first_population(ratings, n_individuals, stream)
    fitness = ratings.fitness(population)
    history = [np.array([fitness.min()])]
    stop = stop_flag()
    # the kernel updates both
    best = population[fitness.argmin()].copy()
    best_fitness = fitness.min(keepdims=True)
    n_generations = 0
    breeding = (options["crossover"], options["mutation"], options["elitism"])
    while n_generations < options["generations"] and not stop[0]:
        # for each generation
        least_fitness = np.empty(min(CHUNK, options["generations"] - n_generations))
        # this also replaces the population and its fitness
        kernel.evolve(
            *ratings, population, fitness, *breeding, stream, least_fitness, best, best_fitness
        )
        history.append(least_fitness)
        n_generations += len(least_fitness)
    final_fitness = float(best_fitness[0])
    if options["refine"]:
        best, final_fitness = refine(ratings, best)
    order = np.argsort(fitness, kind="stable")
    return Evolved(
        best[:items],
        best[items:],
        final_fitness,
        np.concatenate(history),
        population[order],
        fitness[order],
    )


def refine(ratings: Ratings, best: np.ndarray) -> tuple[np.ndarray, float]:
    """Move single items and users as long as the fitness decreases; return the labels and the
    fitness.

    The labels have shape (items + users,).
    """
    labels = best.copy()
    # moves labels in place, and returns the fitness
    return labels, kernel.refine(*ratings, labels, stop_flag())
