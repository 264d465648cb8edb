"""Types of the kernel of multinomial regression on dense functions."""

import numpy as np

class Regression:
    def __init__(
        self, functions: np.ndarray, hits: np.ndarray, given: np.ndarray, ridge: float, slight: float
    ) -> None: ...
    def minimise(
        self, x: np.ndarray, scale: np.ndarray, gtol: float, ftol: float, rounds: int, stop: np.ndarray
    ) -> tuple[float, float, int]: ...
