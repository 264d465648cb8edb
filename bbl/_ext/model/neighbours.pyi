"""Type stubs for `bbl._ext.model.neighbours`."""

from numpy import ndarray as Array

def count_neighbours(
    rows: Array,
    blocks: Array,
    n_copies: Array,
    max_differences: int,
    n_neighbours: Array,
    begin: int,
    end: int,
) -> None: ...
