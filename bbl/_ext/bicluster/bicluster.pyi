"""Types of the kernel `biclust`."""

import numpy as np

def group_sums(
    start: np.ndarray,
    column: np.ndarray,
    value: np.ndarray,
    weight: np.ndarray,
    group: np.ndarray,
    counts_out: np.ndarray,
    sums_out: np.ndarray,
) -> None: ...
def residual_squares(
    start: np.ndarray,
    column: np.ndarray,
    value: np.ndarray,
    weight: np.ndarray,
    row_group: np.ndarray,
    column_group: np.ndarray,
    mean: np.ndarray,
) -> float: ...
def centre_costs(
    start: np.ndarray,
    column: np.ndarray,
    value: np.ndarray,
    weight: np.ndarray,
    centre: np.ndarray,
    known: np.ndarray,
    cost_out: np.ndarray,
    joint_out: np.ndarray,
) -> None: ...
def add_rows(group: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None: ...
def one_by_one(
    counts: np.ndarray,
    sums: np.ndarray,
    group: np.ndarray,
    size: np.ndarray,
    block_counts: np.ndarray,
    block_sums: np.ndarray,
    order: np.ndarray,
    least: float,
) -> int: ...
