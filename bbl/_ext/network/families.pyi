"""Signatures of the kernel `families`."""

import numpy as np

def count(
    codes: np.ndarray,
    missing: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    first: np.ndarray,
    scope: np.ndarray,
    stride: np.ndarray,
    start: np.ndarray,
    out: np.ndarray,
) -> None: ...
def spread(
    codes: np.ndarray,
    missing: np.ndarray,
    values: np.ndarray,
    first: np.ndarray,
    scope: np.ndarray,
    stride: np.ndarray,
    start: np.ndarray,
    out: np.ndarray,
) -> None: ...
def score(
    codes: np.ndarray,
    missing: np.ndarray,
    table: np.ndarray,
    first: np.ndarray,
    scope: np.ndarray,
    stride: np.ndarray,
    start: np.ndarray,
    out: np.ndarray,
) -> None: ...
def forest(
    codes: np.ndarray,
    missing: np.ndarray,
    table: np.ndarray,
    order: np.ndarray,
    parent: np.ndarray,
    n_levels: np.ndarray,
    own: np.ndarray,
    above: np.ndarray,
    start: np.ndarray,
    context: np.ndarray,
    message: np.ndarray,
    scratch: np.ndarray,
    full: np.ndarray,
    out: np.ndarray,
) -> None: ...
def hits(
    rest: np.ndarray,
    part: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    fold: np.ndarray,
    tie: float,
    out: np.ndarray,
) -> None: ...
