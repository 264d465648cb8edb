"""Type stubs for `bbl._ext.model.calibration`."""

from numpy import ndarray as Array

class CalibrationLoss:
    def __init__(
        self, scores: Array, y: Array, shares: Array, fits_temperature: bool, ridge: float
    ) -> None: ...
    def __call__(self, x: Array) -> tuple[float, Array, Array]: ...
    def minimise(self, start: Array) -> Array: ...
