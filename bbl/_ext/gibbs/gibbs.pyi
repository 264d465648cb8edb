"""Type stubs for `bbl._ext.gibbs.gibbs`."""

import numpy as np
from numpy.typing import NDArray

def pack_size() -> int: ...
def lanes(max_lanes: int = 16) -> int: ...
def pack_couplings(
    J: NDArray[np.float64],
    n_levels: NDArray[np.int32],
    start: NDArray[np.intp],
    by_levels: bool,
    lanes: int,
    table: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]: ...
def start_states(
    n_levels: NDArray[np.int32], codes: NDArray[np.int32], stream: NDArray[np.uint32]
) -> None: ...
def run(
    table: NDArray[np.float32],
    h: NDArray[np.float32],
    beta: float,
    n_levels: NDArray[np.int32],
    start: NDArray[np.intp],
    by_levels: bool,
    lanes: int,
    codes: NDArray[np.int32],
    stream: NDArray[np.uint32],
    energy: NDArray[np.float32],
    best: NDArray[np.float32],
    best_codes: NDArray[np.int32],
    n_sweeps: int,
    thin: int = 0,
    sweeps_since_draw: int = 0,
    first_draw: int = 0,
    draws: NDArray[np.uint8] | None = None,
    energies: NDArray[np.float32] | None = None,
    bits: NDArray[np.uint64] | None = None,
    first_word: int = 0,
    chains: int = 0,
    terms: tuple | None = None,
) -> None: ...
