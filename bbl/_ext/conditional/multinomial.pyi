"""Types of the kernel of multinomial regression on dense functions."""

from numpy import ndarray as Array

class Regression:
    def __init__(self, functions: Array, hits: Array, given_scores: Array, ridge: float, slight: float) -> None: ...
    def minimise(self, x: Array, scale: Array, gtol: float, ftol: float, max_iterations: int,
                 stop: Array) -> tuple[float, float, int]: ...  # fmt: skip
