"""Weighted counts of the levels of every predictor, for rows in memory, in a file or on a cluster.

n rows, m predictors, K response groups, L_i levels of predictor i. A *block* is a `Sample` of some
of the rows: codes (n, m), weights (n,), groups `y` (n,) or None, `response` (n,) with zeros for
None, marks of missing values `missing` (n, m) or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from bbl._ext.model import moments as kernel
from bbl.rows.sample import Rows, Sample

__all__ = ["level_counts"]


def level_counts(
    sample: Rows,
    n_levels: Sequence[int] | np.ndarray,
    K: int | None = None,
    gaps: bool = False,
    once: bool = False,
) -> list[np.ndarray]:
    """Return the weighted count of every level of every predictor.

    Parameters
    ----------
    sample : Rows
        Rows of one group, or with a response. Missing values, and rows of an unknown group, are not
        counted.
    n_levels : sequence of int, length m
        Number of levels of each predictor.
    K : int, optional
        Number of groups; needed if the last groups may have no rows.
    gaps : bool, default False
        Whether missing values are counted, as one more level.
    once : bool, default False
        Whether each row counts once, whatever its weight.

    Returns
    -------
    list of m ndarrays, shape (L_i,), or (K, L_i) if the sample has a response; L_i + 1 in place of
    L_i with `gaps`
    """
    count_block = partial(
        _block_level_counts, n_levels=[int(L) + gaps for L in n_levels], K=K, gaps=gaps, once=once
    )
    # rows outside of memory store the sums of their blocks under this key
    return sample.grouped_sums(("levels", gaps, once), count_block, K)


def _block_level_counts(
    sample: Sample, n_levels: list[int], K: int | None, gaps: bool, once: bool
) -> list[np.ndarray]:
    """Return `level_counts` of rows in memory; here `n_levels` includes the level of missing
    values, if `gaps`.
    """
    if sample.y is not None and (sample.y < 0).any():  # rows of unknown group
        sample = sample.rows(sample.y >= 0)
    # by default the greatest group that occurs, + 1; `initial` is for no rows: no group, or without
    # a response the one
    K = K or int(sample.response.max(initial=-1 if sample.y is not None else 0)) + 1
    # of each predictor's columns in `counts`
    column_edges = np.concatenate(([0], np.cumsum(n_levels, dtype=np.intp)))
    counts = np.zeros((K, column_edges[-1]))
    missing = None if sample.missing is None else sample.missing.view(np.uint8)
    # adds the weights to `counts`, in place
    weights = np.ones(sample.n) if once else sample.weights
    kernel.level_counts(sample.codes, sample.y, weights, missing, gaps, column_edges, counts)
    count_table = counts[0] if sample.y is None else counts  # without a response K is 1
    return [count_table[..., start:end] for start, end in pairwise(column_edges.tolist())]
