"""Type stubs for `bbl._ext.bicluster.mcmc`."""

from numpy import ndarray as Array

def log_elementary(log_v: Array, top: int, in_logs: bool = False) -> Array: ...

class Chain:
    def __init__(
        self,
        start: Array,
        item: Array,
        items: int,
        alpha: float,
        sigma: float,
        step: float,
        log_w: Array,
        stream: Array,
        stop: Array,
    ) -> None: ...
    def set(
        self, P: Array, Q: Array, gamma: Array | None = None, rank: Array | None = None
    ) -> None: ...
    def run(self, sweeps: int) -> None: ...
    def record(
        self,
        thin: int,
        Q_out: Array,
        P_out: Array,
        value_out: Array,
        lambda_out: Array,
        w_out: Array,
    ) -> None: ...
    def state(self) -> tuple[Array, Array, Array, Array, Array]: ...
    def value(self) -> tuple[float, float]: ...
