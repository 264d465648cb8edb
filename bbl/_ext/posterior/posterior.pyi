"""Type stubs for `bbl._ext.posterior.posterior`."""

from numpy import ndarray as Array

class Target:
    size: int
    def __init__(
        self,
        n_levels: Array,
        start: Array,
        pairs: Array,
        pair_start: Array,
        V: Array,
        group: Array,
        family: Array,
        n: float,
        sums: Array,
        tau: float,
        horseshoe: bool,
        enumerate: bool,
        codes: Array | None = None,
        weights: Array | None = None,
        centre: Array | None = None,
        adjust: Array | None = None,
        tilt: Array | None = None,
    ) -> None: ...
    def value(self, x: Array, gradient_out: Array) -> float: ...
    def coefficients(self, points: Array) -> Array: ...
    def probabilities(self, phi: Array) -> tuple[float, Array]: ...
    def nuts(
        self,
        centre: Array,
        spread: Array,
        x: Array,
        tuner: Array,
        target_acceptance: float,
        stream: Array,
        stop: Array,
        draws_out: Array,
    ) -> float: ...
    def exchange(
        self,
        information: Array,
        x: Array,
        tuner: Array,
        tune: bool,
        steps: int,
        sweeps: int,
        data: Array,
        stream: Array,
        stop: Array,
        draws_out: Array,
    ) -> float: ...

def coefficient_cells(levels: Array, start: Array, pairs: Array, d: int) -> Array: ...
