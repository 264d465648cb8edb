"""Types of the kernel `eigen`."""

from numpy.typing import NDArray

def eigenvectors(matrix: NDArray) -> tuple[NDArray, NDArray]: ...
