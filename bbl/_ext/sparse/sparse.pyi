"""Signatures of the kernel `sparse`."""

from numpy import ndarray as Array

def slopes(link: Array, y: Array, weights: Array, contrasts: Array, slope_out: Array, curve_out: Array) -> float: ...
def gradients(codes: Array, states: Array, table: Array, cell: Array, at: Array, slope: Array, out: Array) -> None: ...
def add_terms(codes: Array, states: Array, table: Array, cell: Array, at: Array, theta: Array, out: Array) -> None: ...
def descend(
    codes: Array,
    states: Array,
    table: Array,
    cell: Array,
    at: Array,
    penalty: Array,
    group: bool,
    curve: Array,
    limit: float,
    tolerance: float,
    itmax: int,
    stop: Array,
    z: Array,
    theta: Array,
    intercept: Array,
) -> int: ...
def descend_gram(
    hessian: Array,
    at: Array,
    penalty: Array,
    group: bool,
    tolerance: float,
    itmax: int,
    stop: Array,
    slope: Array,
    theta: Array,
) -> int: ...
