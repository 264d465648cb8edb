"""Type stubs for `bbl._ext.variational.persistent`."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]
Adam = tuple[float, float, float, float, float]

class Tables:
    size: int
    def __init__(
        self, n_levels: NDArray[np.int32], start: Positions, pairs: Positions, pair_start: Positions
    ) -> None: ...
    def couple(
        self,
        simplex: Floats,
        h: Floats,
        J: Floats,
        first_pair: int = 0,
        end_pair: int | None = None,
    ) -> None: ...
    def features(self, counts: Floats, total: float, simplex: Floats) -> None: ...
    def features_of_bits(
        self,
        bits: NDArray[np.uint64],
        total: float,
        simplex: Floats,
        first_pair: int = 0,
        end_pair: int | None = None,
    ) -> None: ...

def streams() -> int: ...
def normal(state: NDArray[np.uint32], out: Floats) -> None: ...
def draw(
    cuts: Positions, mean: Floats, sd: Floats, noise: Floats, scale: Floats, simplex: Floats
) -> None: ...
def log_scales(
    n_fields: int,
    mean: Floats,
    sd: Floats,
    noise: Floats,
    global_log_scale: Floats,
    low: float,
    high: float,
    log_scale_out: Floats,
    deviation_out: Floats,
) -> None: ...
def slab(slab_scale: float, scale: Floats, slope_out: Floats) -> None: ...
def step_scales(
    adam: Adam,
    noise: Floats,
    gradient: Floats,
    sd: Floats,
    mean: Floats,
    log_sd: Floats,
    first_moment: Floats,
    second_moment: Floats,
) -> None: ...
def gradient_by_scale(
    cuts: Positions,
    mean: Floats,
    sd: Floats,
    noise: Floats,
    gradient: Floats,
    gradient_by_scale_out: Floats,
) -> None: ...
def step(
    adam: Adam,
    cuts: Positions,
    noise: Floats,
    scale: Floats,
    gradient: Floats,
    sd: Floats,
    mean: Floats,
    log_sd: Floats,
    first_moment: Floats,
    second_moment: Floats,
    first_group: int = 0,
    end_group: int | None = None,
) -> float: ...
