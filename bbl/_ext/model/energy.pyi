"""Types of the kernel of energies."""

from numpy import ndarray as Array

def energies(
    codes: Array, start: Array, h: Array, J: Array, columns: Array, out: Array
) -> None: ...
def add_terms(
    codes: Array, members: Array, stride: Array, first: Array, values: Array, out: Array
) -> None: ...
