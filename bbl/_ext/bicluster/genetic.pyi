"""Types of the kernel `genetic`."""

import numpy as np

def fitness_of(
    item: np.ndarray,
    user: np.ndarray,
    rating: np.ndarray,
    weight: np.ndarray,
    items: int,
    users: int,
    levels: int,
    sigma: float,
    penalty: float,
    mle: bool,
    population: np.ndarray,
    fitness_out: np.ndarray,
) -> None: ...
def evolve(
    item: np.ndarray,
    user: np.ndarray,
    rating: np.ndarray,
    weight: np.ndarray,
    items: int,
    users: int,
    levels: int,
    sigma: float,
    penalty: float,
    mle: bool,
    population: np.ndarray,
    fitness: np.ndarray,
    crossover: float,
    mutation: float,
    elite: bool,
    stream: np.ndarray,
    best_out: np.ndarray,
    champion: np.ndarray,
    champion_fitness: np.ndarray,
) -> None: ...
def refine(
    item: np.ndarray,
    user: np.ndarray,
    rating: np.ndarray,
    weight: np.ndarray,
    items: int,
    users: int,
    levels: int,
    sigma: float,
    penalty: float,
    mle: bool,
    label: np.ndarray,
    stop: np.ndarray,
) -> float: ...
def du_steps(labels: np.ndarray, steps: int, stream: np.ndarray) -> None: ...
