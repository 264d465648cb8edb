"""Types of the kernel of conditional likelihood by minibatches."""

import numpy as np

class Climber:
    J: np.ndarray
    h: np.ndarray
    b: np.ndarray
    shift: np.ndarray
    def __init__(
        self, start: np.ndarray, pairs: np.ndarray, means: np.ndarray, K: int, scale: tuple[float, float]
    ) -> None: ...
    def epoch(
        self,
        codes: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        given: np.ndarray,
        order: np.ndarray,
        batch: int,
        rate: float,
        last: float,
        momentum: float,
        ridge: float,
    ) -> float: ...
    def residual_sums(
        self,
        codes: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        given: np.ndarray,
        batch: int,
        pairs_out: np.ndarray,
        levels_out: np.ndarray,
        total_out: np.ndarray,
        residuals_out: np.ndarray,
    ) -> float: ...
