"""Weighted counts of the levels of every predictor, of rows in memory or in a file."""

from __future__ import annotations

import numpy as np

from bbl.rows.sample import Sample
from bbl.rows.stored import Rows, StoredSample

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
        return [np.stack(own) for own in zip(*groups, strict=True)]
    return _counts(sample, [int(L) + gaps for L in n_levels], K, gaps)


def _counts(sample: Sample, n_levels: list[int], K: int | None, gaps: bool) -> list[np.ndarray]:
    if sample.y is not None and (sample.y < 0).any():  # of unknown group
        sample = sample.rows(sample.y >= 0)
    K = K or int(sample.response.max(initial=-1 if sample.y is not None else 0)) + 1
    offset = 0 if sample.y is None else sample.y
    counts = []
    for i, L in enumerate(n_levels):
        own, weights = sample.codes[:, i].astype(np.intp), sample.weights
        if sample.missing is not None and gaps:
            own[sample.missing[:, i]] = L - 1
        elif sample.missing is not None:
            weights = np.where(sample.missing[:, i], 0.0, weights)
        counts.append(np.bincount(offset * L + own, weights, K * L).reshape(K, L))
    return [c[0] for c in counts] if sample.y is None else counts
