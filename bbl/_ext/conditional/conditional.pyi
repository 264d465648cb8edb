"""Type stubs for `bbl._ext.conditional.conditional`."""

from numpy import ndarray as Array

class Climber:
    J: Array
    h: Array
    b: Array
    shift: Array
    def __init__(
        self, start: Array, pairs: Array, means: Array, K: int, kernel_factors: tuple[float, float]
    ) -> None: ...
    def epoch(
        self,
        codes: Array,
        y: Array,
        weights: Array,
        fixed_scores: Array,
        order: Array,
        batch_size: int,
        rate: float,
        final_rate: float,
        momentum: float,
        ridge: float,
    ) -> float: ...
    def residual_sums(
        self,
        codes: Array,
        y: Array,
        weights: Array,
        fixed_scores: Array,
        batch_size: int,
        pairs_out: Array,
        levels_out: Array,
        total_out: Array,
        residuals_out: Array,
    ) -> float: ...
