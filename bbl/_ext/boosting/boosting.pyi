"""Type stubs for `bbl._ext.boosting.boosting`."""

from numpy import ndarray as Array

class BoostedRows:
    def __init__(self, y: Array, weights: Array, p: Array) -> None: ...
    @property
    def p(self) -> Array: ...
    def loss(self, weights: Array) -> float: ...

def round_of_fields(
    rows: BoostedRows,
    codes: Array,
    n_levels: Array,
    rate: float,
    ridge: float,
    least: float,
    entry: float,
    at_random: bool,
    state: Array,
    tables: Array,
) -> None: ...
def round_of_pairs(
    rows: BoostedRows,
    codes: Array,
    n_levels: Array,
    pairs: Array,
    rate: float,
    ridge: float,
    least: float,
    entry: float,
    at_random: bool,
    state: Array,
    tables: Array,
) -> None: ...
def pair_gains(
    rows: BoostedRows,
    codes: Array,
    n_levels: Array,
    pairs: Array,
    ridge: float,
    least: float,
    gains: Array,
) -> None: ...
