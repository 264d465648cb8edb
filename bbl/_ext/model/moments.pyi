"""Signatures of the moments kernel."""

import numpy as np

def one_hot(codes: np.ndarray, start: np.ndarray, out: np.ndarray) -> None: ...
def level_counts(
    codes: np.ndarray,
    y: np.ndarray | None,
    weights: np.ndarray,
    missing: np.ndarray | None,
    gaps: bool,
    start: np.ndarray,
    counts: np.ndarray,
) -> None: ...
def pack(codes: np.ndarray, start: np.ndarray, bits: np.ndarray) -> None: ...
def pair_counts(bits: np.ndarray, counts: np.ndarray, weight: float) -> None: ...
def shared_counts(codes: np.ndarray, start: np.ndarray, counts: np.ndarray, weight: float = 1.0) -> None: ...
