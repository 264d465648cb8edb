"""Sort rows and columns by keys that depend only on the content of a table.

The keys do not depend on the names of columns or on the order of rows, columns and levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bbl.rows.sample import Sample

__all__ = ["ContentOrder", "order_by_content"]

# number of rounds of refinement; each round propagates keys between rows that have a level in
# common
ROUNDS = 3
WEIGHT_DIGITS = 1e6  # weights are divided by their mean and compared with this resolution
# odd constants from the finaliser of MurmurHash3 (Appleby 2011, public domain)
FIRST_FACTOR = np.uint64(0xFF51AFD7ED558CCD)
SECOND_FACTOR = np.uint64(0xC4CEB9FE1A85EC53)
SHIFT = np.uint64(33)


@dataclass(frozen=True)
class ContentOrder:
    """Positions of rows (n,) and columns (m,), sorted by keys that depend on their content."""

    rows: np.ndarray
    columns: np.ndarray


def order_by_content(sample: Sample, n_levels: Sequence[int] | np.ndarray) -> ContentOrder:
    """Return an order of the rows within each group, and an order of the columns.

    The method is colour refinement (Weisfeiler & Leman 1968) on the graph of rows and levels: the
    key of a row is a hash of its group, its weight and the keys of its levels; the key of a level
    is a hash of the keys of its rows; the key of a column is a hash of the keys of its levels. Sums
    of 64-bit hashes do not depend on the order of summation. Rows or columns with equal keys remain
    in their original order.

    Parameters
    ----------
    sample : Sample
        Rows that are distinct within each group.
    n_levels : sequence of int, length m
    """
    m = sample.codes.shape[1]
    codes = sample.codes.astype(np.intp)
    if sample.missing is not None:
        codes = np.where(sample.missing, np.asarray(n_levels), codes)
    relative_weights = np.round(sample.weights * (WEIGHT_DIGITS / sample.weights.mean()))
    own_keys = _mix(relative_weights.astype(np.uint64) + _mix(sample.response.astype(np.uint64)))
    row_keys = own_keys
    column_keys = np.zeros(m, dtype=np.uint64)
    for _ in range(ROUNDS):
        new_keys = own_keys.copy()
        for i in range(m):
            level_keys = np.zeros(int(n_levels[i]) + 1, dtype=np.uint64)
            np.add.at(level_keys, codes[:, i], row_keys)
            level_keys = _mix(level_keys)
            column_keys[i] = _mix(level_keys[np.unique(codes[:, i])].sum(keepdims=True))[0]
            new_keys += _mix(level_keys + column_keys[i])[codes[:, i]]
        row_keys = _mix(new_keys)
    return ContentOrder(
        np.lexsort((row_keys, sample.response)), np.argsort(column_keys, kind="stable")
    )


def _mix(keys: np.ndarray) -> np.ndarray:
    """Return hashes of 64-bit keys."""
    keys = (keys ^ (keys >> SHIFT)) * FIRST_FACTOR
    keys = (keys ^ (keys >> SHIFT)) * SECOND_FACTOR
    return keys ^ (keys >> SHIFT)
