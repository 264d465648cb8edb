"""Types of the kernel of calibrations."""

from numpy import ndarray as Array

class CalibrationLoss:
    def __init__(self, scores: Array, y: Array, shares: Array, fits_temperature: bool) -> None: ...
    def __call__(self, x: Array) -> tuple[float, Array, Array]: ...
