"""Type stubs for `bbl._ext.sparse.sparse`."""

from numpy import ndarray as Array

def slopes(
    link: Array, y: Array, weights: Array, contrasts: Array, slope_out: Array, curve_out: Array
) -> float: ...
def gradients(
    states: Array,
    n_states: Array,
    table: Array,
    table_start: Array,
    theta_start: Array,
    slope: Array,
    gradient_out: Array,
) -> None: ...
def add_terms(
    states: Array,
    n_states: Array,
    table: Array,
    table_start: Array,
    theta_start: Array,
    theta: Array,
    link: Array,
) -> None: ...
def descend(
    states: Array,
    n_states: Array,
    table: Array,
    table_start: Array,
    theta_start: Array,
    penalty: Array,
    group: bool,
    curve: Array,
    max_intercept: float,
    tolerance: float,
    itmax: int,
    stop: Array,
    z: Array,
    theta: Array,
    intercept: Array,
) -> int: ...
def descend_gram(
    hessian: Array,
    theta_start: Array,
    penalty: Array,
    group: bool,
    tolerance: float,
    itmax: int,
    stop: Array,
    slope: Array,
    theta: Array,
) -> int: ...
