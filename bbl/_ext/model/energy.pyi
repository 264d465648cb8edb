"""Type stubs for `bbl._ext.model.energy`."""

from numpy import ndarray as Array

def energies(
    codes: Array, start: Array, h: Array, J: Array, columns: Array, out: Array
) -> None: ...
def add_terms(
    codes: Array, members: Array, stride: Array, first: Array, values: Array, out: Array
) -> None: ...
