"""Moments: weighted counts of levels and of pairs of levels (eqs. 16), over the rows where they are known."""

from __future__ import annotations

from functools import partial

import numpy as np

from bbl._ext.model import moments as kernel
from bbl.model.layout import Layout
from bbl.model.regressors import Regressors
from bbl.rows.counts import level_counts
from bbl.rows.sample import Rows, Sample

__all__ = [
    "frequencies",
    "known_counts",
    "level_counts",
    "log_ratio",
    "one_hot",
    "pair_counts",
    "smoothed",
    "usable_rows",
    "usable_weight",
]

TINY = 1e-300
MAX_BITS = 8  # bits of a weight: matrix products count heavier rows faster
MIN_ROWS_WITH_BIT = 128  # rows that share a bit of their weights: matrix products count fewer rows faster


def frequencies(sample: Rows, layout: Layout, prior_count: float) -> list[np.ndarray]:
    """Return ``f_i(x) = (n_i(x) + c/L_i) / (W_i + c)`` for every predictor, reference level included.

    ``W_i`` is the weight of the rows in which the predictor is known: a sum of whole numbers, so exact.
    """
    return smoothed(level_counts(sample, layout.n_levels), prior_count)


def smoothed(counts: list[np.ndarray], prior_count: float) -> list[np.ndarray]:
    """Return the `frequencies` of levels that were counted."""
    return [(n + prior_count / len(n)) / (n.sum() + prior_count) for n in counts]


def log_ratio(f: np.ndarray) -> np.ndarray:
    """Return ``ln f(x)/f(0)`` for ``x >= 1`` (eq. 23), finite where a level is absent."""
    log = np.log(np.maximum(f, TINY))
    return log[1:] - log[0]


def one_hot(codes: np.ndarray, layout: Layout | Regressors, dtype=np.float64) -> np.ndarray:
    """Return the indicator matrix (n, D) of non-reference levels, or joint levels."""
    if codes.shape[1] == layout.D and (layout.n_levels == 2).all():
        return codes.astype(dtype)
    X = np.zeros((len(codes), layout.D), dtype=dtype)
    kernel.one_hot(codes.astype(np.int32, copy=False) if codes.dtype.kind == "i" else codes, layout.start, X)
    return X


def pair_counts(sample: Rows, layout: Layout | Regressors) -> np.ndarray:
    """Return the weighted counts (D, D) of pairs of non-reference levels; the diagonal holds the level counts.

    Of whole weights they are sums of whole numbers, exact in any order of the rows. A missing value has the code of the
    reference level, which is not counted here.
    """
    return sample.pooled.sums("pairs", partial(_block_pair_counts, layout=layout))


def _block_pair_counts(sample: Sample, layout: Layout | Regressors) -> np.ndarray:
    counts = np.zeros((layout.D, layout.D))
    if sample.unweighted:
        kernel.shared_counts(sample.codes, layout.start, counts)
        return counts
    for chunk in _count_bits(sample, layout, counts).blocks():
        X = one_hot(chunk.codes, layout)
        counts += X.T @ (X * chunk.weights[:, None])
    return counts


def _count_bits(sample: Sample, layout: Layout | Regressors, counts: np.ndarray) -> Sample:
    """Add to `counts` the pair counts of the low bits of whole weights; return the rows with the remaining weights.

    A row whose weight has bit b counts ``2**b`` times there. Where sums would be rounded nothing is counted: they
    depend on their order.
    """
    if not sample.exact:
        return sample
    uncounted = sample.weights.copy()
    bits_of = np.where(uncounted < 1 << MAX_BITS, uncounted, 0.0).astype(np.uint8)
    bits_present = int(np.bitwise_or.reduce(bits_of))
    for b in (b for b in range(MAX_BITS) if bits_present >> b & 1):
        has_bit = bits_of & (1 << b) > 0
        rows = np.count_nonzero(has_bit)
        if rows >= MIN_ROWS_WITH_BIT:
            of_one = sample.codes if rows == sample.n else sample.codes[has_bit]
            kernel.shared_counts(of_one, layout.start, counts, 2.0**b)
            uncounted[has_bit] -= 2.0**b
    uncounted_rows = np.flatnonzero(uncounted)
    return Sample(sample.codes[uncounted_rows], uncounted[uncounted_rows])


def known_counts(sample: Rows, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights with which predictors, and predictors and levels, are known together; sums are exact.

    Returns
    -------
    known : ndarray, shape (m, m)
        Weight of the rows in which both predictors are known.
    counts : ndarray, shape (D, m)
        Weight of the rows with a non-reference level in which the other predictor is known.
    """
    return sample.pooled.sums("known", partial(_block_known_counts, layout=layout))


def _block_known_counts(sample: Sample, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    known_weight, counts = np.zeros((layout.m, layout.m)), np.zeros((layout.D, layout.m))
    for chunk in sample.blocks():
        here = np.ones(chunk.codes.shape) if chunk.missing is None else (~chunk.missing).astype(float)
        weighted = here * chunk.weights[:, None]
        known_weight += here.T @ weighted
        counts += one_hot(chunk.codes, layout).T @ weighted
    return known_weight, counts


def usable_rows(sample: Sample, layout: Layout) -> np.ndarray:
    """Return in which rows (n, m) each predictor and all those that it interacts with are known."""
    if sample.missing is None:
        return np.ones(sample.codes.shape, dtype=bool)
    near = layout.mask | np.eye(layout.m, dtype=bool)
    return sample.missing.astype(np.float32) @ near.astype(np.float32) == 0.0


def usable_weight(sample: Rows, layout: Layout) -> np.ndarray:
    """Return the weight (m,) of each predictor's `usable_rows`."""
    if sample.complete:
        return np.full(layout.m, sample.total)
    return sample.pooled.sums(("usable", layout.mask.tobytes()), partial(_block_usable_weight, layout=layout))


def _block_usable_weight(sample: Sample, layout: Layout) -> np.ndarray:
    if sample.complete:
        return np.full(layout.m, sample.total)
    return sample.weights @ usable_rows(sample, layout)
