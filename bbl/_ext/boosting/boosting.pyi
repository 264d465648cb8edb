"""Types of the kernel of boosting."""

from numpy import ndarray as Array

def round_of_fields(codes: Array, n_levels: Array, y: Array, weights: Array, rate: float, ridge: float, least: float,
                    entry: float, at_random: bool, state: Array, p: Array, tables: Array) -> None: ...  # fmt: skip
def round_of_pairs(codes: Array, n_levels: Array, pairs: Array, y: Array, weights: Array, rate: float, ridge: float,
                   least: float, entry: float, at_random: bool, state: Array, p: Array,
                   tables: Array) -> None: ...  # fmt: skip
def pair_gains(codes: Array, n_levels: Array, pairs: Array, y: Array, weights: Array, ridge: float, least: float,
               p: Array, gains: Array) -> None: ...  # fmt: skip
