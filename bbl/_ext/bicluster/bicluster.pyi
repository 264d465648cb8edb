"""Type stubs for `bbl._ext.bicluster.bicluster`."""

from numpy import ndarray as Array

def group_sums(
    start: Array,
    column: Array,
    value: Array,
    weight: Array,
    column_group: Array,
    counts_out: Array,
    sums_out: Array,
) -> None: ...
def residual_squares(
    start: Array,
    column: Array,
    value: Array,
    weight: Array,
    row_group: Array,
    column_group: Array,
    mean: Array,
) -> float: ...
def centre_costs(
    start: Array,
    column: Array,
    value: Array,
    weight: Array,
    centre: Array,
    is_known: Array,
    cost_out: Array,
    joint_weight_out: Array,
) -> None: ...
def add_rows(group: Array, rows: Array, out: Array) -> None: ...
def one_by_one(
    counts: Array,
    sums: Array,
    row_group: Array,
    size: Array,
    block_counts: Array,
    block_sums: Array,
    order: Array,
    min_gain: float,
) -> int: ...
