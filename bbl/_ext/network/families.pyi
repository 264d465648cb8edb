"""Type stubs for `bbl._ext.network.families`."""

from numpy import ndarray as Array

def add_counts(
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
def add_level_counts(positions: Array, cells: Array, weights: Array, out: Array) -> None: ...
def add_to_cells(
    codes: Array,
    missing: Array,
    values: Array,
    first: Array,
    scope: Array,
    stride: Array,
    start: Array,
    out: Array,
) -> None: ...
def add_from_cells(
    codes: Array,
    missing: Array,
    table: Array,
    first: Array,
    scope: Array,
    stride: Array,
    start: Array,
    out: Array,
) -> None: ...
def add_forest_sums(
    codes: Array,
    missing: Array,
    table: Array,
    order: Array,
    parent: Array,
    n_levels: Array,
    stride: Array,
    parent_stride: Array,
    start: Array,
    first_cell: Array,
    message_start: Array,
    scratch: Array,
    has_message: Array,
    out: Array,
) -> None: ...
def add_correct(
    unchanged: Array, changed: Array, y: Array, weights: Array, fold: Array, tie: float, out: Array
) -> None: ...
