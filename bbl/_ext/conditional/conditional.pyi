"""Types of the kernel of conditional likelihood by minibatches."""

from numpy import ndarray as Array

class Climber:
    J: Array
    h: Array
    b: Array
    shift: Array
    def __init__(self, start: Array, pairs: Array, means: Array, K: int, scale: tuple[float, float]) -> None: ...
    def epoch(
        self,
        codes: Array,
        y: Array,
        weights: Array,
        given: Array,
        order: Array,
        batch: int,
        rate: float,
        last: float,
        momentum: float,
        ridge: float,
    ) -> float: ...
    def residual_sums(
        self,
        codes: Array,
        y: Array,
        weights: Array,
        given: Array,
        batch: int,
        pairs_out: Array,
        levels_out: Array,
        total_out: Array,
        residuals_out: Array,
    ) -> float: ...
