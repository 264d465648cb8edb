"""Type stubs for `bbl._ext.model.moments`."""

from numpy import ndarray as Array

def one_hot(codes: Array, start: Array, out: Array) -> None: ...
def level_counts(
    codes: Array,
    y: Array | None,
    weights: Array,
    missing: Array | None,
    missing_is_level: bool,
    start: Array,
    counts: Array,
) -> None: ...
def pack(codes: Array, start: Array, bits: Array) -> None: ...
def pair_counts(bits: Array, counts: Array, weight: float) -> None: ...
def shared_counts(codes: Array, start: Array, counts: Array, weight: float = 1.0) -> None: ...
