"""Weighted counts of the levels of every predictor, of rows in memory or in a file."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bbl._ext.model import moments as kernel
from bbl.rows.on_disk import Rows, StoredSample
from bbl.rows.sample import Sample

__all__ = ["level_counts"]


def level_counts(sample: Rows, n_levels, K: int | None = None, gaps: bool = False) -> list[np.ndarray]:
    """Return the weighted count of every level of every predictor.

    Parameters
    ----------
    sample : Sample or StoredSample
        Rows of one group; with a response, counts are split by group. Missing values and groups are not counted.
    n_levels : sequence of int, length m
        Number of levels of each predictor.
    K : int, optional
        Number of groups, where the last ones may have no rows.
    gaps : bool, default False
        Whether missing values are counted too, as one more level.

    Returns
    -------
    list of m ndarrays, shape (L_i,), or (K, L_i) if the sample has a response
    """
    if isinstance(sample, StoredSample):
        if not sample.grouped:
            return sample.sums(("levels", gaps), lambda part: level_counts(part, n_levels, gaps=gaps))
        K = K or 1 + max((y for y, _ in sample.buckets), default=-1)
        groups = [level_counts(sample.group(y), n_levels, gaps=gaps) for y in range(K)]
        return [np.stack(group_counts) for group_counts in zip(*groups, strict=True)]
    return _counts(sample, [int(L) + gaps for L in n_levels], K, gaps)


def _counts(sample: Sample, n_levels: list[int], K: int | None, gaps: bool) -> list[np.ndarray]:
    if sample.y is not None and (sample.y < 0).any():  # of unknown group
        sample = sample.rows(sample.y >= 0)
    K = K or int(sample.response.max(initial=-1 if sample.y is not None else 0)) + 1
    start = np.concatenate(([0], np.cumsum(n_levels, dtype=np.intp)))
    counts = np.zeros((K, start[-1]))
    missing = None if sample.missing is None else sample.missing.view(np.uint8)
    kernel.level_counts(sample.codes, sample.y, sample.weights, missing, gaps, start, counts)
    out = counts[0] if sample.y is None else counts
    return [out[..., first:end] for first, end in pairwise(start.tolist())]
