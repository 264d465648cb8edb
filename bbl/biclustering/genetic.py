"""Genetic: two partitions of ordinal ratings, searched by a genetic algorithm (section 1.3 of the thesis)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl._ext.bicluster import genetic as kernel
from bbl.biclustering.cells import Cells
from bbl.memory import check_memory
from bbl.parallel import stop_flag

__all__ = ["Evolved", "Ratings", "evolve"]

CHUNK = 2  # generations between two looks at what may tell the search to stop


class Ratings(NamedTuple):
    """Ratings and the model of a block: what the kernel takes.

    A rating r in a block of mean m has the probability of (r - .5, r + .5) under a normal distribution around m with
    standard deviation sigma, cut to the scale; the fitness is minus twice the log-likelihood plus a penalty for each
    block.
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
    def from_cells(cls, cells: Cells, low: int, high: int, sigma: float, penalty: float, mle: bool) -> Ratings:
        """Take whole numbers in low..high; `penalty` is the factor of ln N for each block."""
        rating = np.rint(cells.value - low).astype(np.int32)
        each = penalty * float(np.log(cells.weight.sum()))
        return cls(cells.row, cells.column, rating, cells.weight, *cells.shape, high - low + 1, sigma, each, mle)

    def fitness(self, population: np.ndarray) -> np.ndarray:
        """Return the fitness of the individuals (n, items + users), whose labels are put in order of appearance."""
        out = np.empty(len(population))
        kernel.fitness_of(*self, population, out)
        return out


class Evolved(NamedTuple):
    """The best partitions of a run, their fitness, the best of each generation, and the last population."""

    items: np.ndarray
    users: np.ndarray
    fitness: float
    history: np.ndarray
    population: np.ndarray
    population_fitness: np.ndarray


def _first_population(ratings: Ratings, members: int, stream: np.ndarray) -> np.ndarray:
    """Return singletons, and what a step of the Du process for each item makes of them.

    Crossover never adds groups, so the search begins with as many as there can be.
    """
    items, users = ratings.items, ratings.users
    population = np.empty((members, items + users), dtype=np.int32)
    population[:, :items], population[:, items:] = np.arange(items), np.arange(users)
    for one in population[1:]:
        kernel.du_steps(one[:items], items, stream)
        kernel.du_steps(one[items:], users, stream)
    return population


def evolve(ratings: Ratings, seed: int, options: dict) -> Evolved:
    """Run the genetic algorithm once.

    Parameters
    ----------
    ratings : Ratings
    seed : int
    options : dict
        ``population``, ``generations``, ``crossover``, ``mutation``, ``elitism``, ``refine``.
    """
    items, users, members = ratings.items, ratings.users, options["population"]
    check_memory(
        8.0 * items * users * ratings.levels + 8.0 * members * (items + users),
        f"The genetic algorithm on {items} x {users} ratings",
        "It is made for small tables; use method='prototype'.",
    )
    stream = np.random.default_rng(seed).integers(1, 2**64, 4, dtype=np.uint64)
    population = _first_population(ratings, members, stream)
    fitness = ratings.fitness(population)
    history, stop = [np.array([fitness.min()])], stop_flag()
    best, least = population[fitness.argmin()].copy(), fitness.min(keepdims=True)
    done = 0
    while done < options["generations"] and not stop[0]:
        step = np.empty(min(CHUNK, options["generations"] - done))
        breeding = (options["crossover"], options["mutation"], options["elitism"])
        kernel.evolve(*ratings, population, fitness, *breeding, stream, step, best, least)
        history.append(step)
        done += len(step)
    top = float(least[0])
    if options["refine"]:
        best, top = refine(ratings, best)
    order = np.argsort(fitness, kind="stable")
    return Evolved(best[:items], best[items:], top, np.concatenate(history), population[order], fitness[order])


def refine(ratings: Ratings, best: np.ndarray) -> tuple[np.ndarray, float]:
    """Return labels and fitness after moves of single items and users, made as long as one lowers the fitness."""
    labels = best.copy()
    top = kernel.refine(*ratings, labels, stop_flag())
    return labels, top
