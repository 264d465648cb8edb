"""Signatures of the kernel `families`."""

from numpy import ndarray as Array

def count(
    codes: Array,
    missing: Array,
    y: Array,
    weights: Array,
    first: Array,
    scope: Array,
    stride: Array,
    start: Array,
    out: Array,
) -> None: ...
def spread(
    codes: Array, missing: Array, values: Array, first: Array, scope: Array, stride: Array, start: Array, out: Array
) -> None: ...
def score(
    codes: Array, missing: Array, table: Array, first: Array, scope: Array, stride: Array, start: Array, out: Array
) -> None: ...
def forest(
    codes: Array,
    missing: Array,
    table: Array,
    order: Array,
    parent: Array,
    n_levels: Array,
    own: Array,
    above: Array,
    start: Array,
    context: Array,
    message: Array,
    scratch: Array,
    full: Array,
    out: Array,
) -> None: ...
def hits(rest: Array, part: Array, y: Array, weights: Array, fold: Array, tie: float, out: Array) -> None: ...
