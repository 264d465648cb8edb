"""Type stubs for `bbl._ext.bicluster.genetic`."""

from numpy import ndarray as Array

def fitness_of(
    item: Array,
    user: Array,
    rating: Array,
    weight: Array,
    items: int,
    users: int,
    levels: int,
    sigma: float,
    penalty: float,
    mle: bool,
    population: Array,
    fitness_out: Array,
) -> None: ...
def evolve(
    item: Array,
    user: Array,
    rating: Array,
    weight: Array,
    items: int,
    users: int,
    levels: int,
    sigma: float,
    penalty: float,
    mle: bool,
    population: Array,
    fitness: Array,
    crossover: float,
    mutation: float,
    elite: bool,
    stream: Array,
    best_out: Array,
    champion: Array,
    champion_fitness: Array,
) -> None: ...
def refine(
    item: Array,
    user: Array,
    rating: Array,
    weight: Array,
    items: int,
    users: int,
    levels: int,
    sigma: float,
    penalty: float,
    mle: bool,
    labels: Array,
    stop: Array,
) -> float: ...
def du_steps(labels: Array, steps: int, stream: Array) -> None: ...
