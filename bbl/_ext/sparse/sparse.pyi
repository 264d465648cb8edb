"""Signatures of the kernel `sparse`."""

import numpy as np

def slopes(
    link: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    contrasts: np.ndarray,
    slope_out: np.ndarray,
    curve_out: np.ndarray,
) -> float: ...
def gradients(
    codes: np.ndarray,
    states: np.ndarray,
    table: np.ndarray,
    cell: np.ndarray,
    at: np.ndarray,
    slope: np.ndarray,
    out: np.ndarray,
) -> None: ...
def add_terms(
    codes: np.ndarray,
    states: np.ndarray,
    table: np.ndarray,
    cell: np.ndarray,
    at: np.ndarray,
    theta: np.ndarray,
    out: np.ndarray,
) -> None: ...
def descend(
    codes: np.ndarray,
    states: np.ndarray,
    table: np.ndarray,
    cell: np.ndarray,
    at: np.ndarray,
    penalty: np.ndarray,
    group: bool,
    curve: np.ndarray,
    limit: float,
    tolerance: float,
    itmax: int,
    stop: np.ndarray,
    z: np.ndarray,
    theta: np.ndarray,
    intercept: np.ndarray,
) -> int: ...
def descend_gram(
    hessian: np.ndarray,
    at: np.ndarray,
    penalty: np.ndarray,
    group: bool,
    tolerance: float,
    itmax: int,
    stop: np.ndarray,
    slope: np.ndarray,
    theta: np.ndarray,
) -> int: ...
