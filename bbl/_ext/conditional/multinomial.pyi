"""Type stubs for `bbl._ext.conditional.multinomial`."""

from numpy import ndarray as Array

class Panels:
    def __init__(self, functions: Array, precision: str = "double") -> None: ...

class Regression:
    def __init__(
        self,
        functions: Panels,
        group_weights: Array,
        fixed_scores: Array,
        ridge: float,
        offset_penalty: float,
    ) -> None: ...
    def minimise(
        self, x: Array, scale: Array, gtol: float, ftol: float, max_iterations: int, stop: Array
    ) -> tuple[float, float, int]: ...
