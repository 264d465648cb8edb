"""Moments: weighted counts of levels and pairs of levels (eq. 16), ignoring missing values.

Equation numbers refer to Woo & Wang (2022). Weights are called *exact* if they are integers,
because their sums do not depend on the order of summation.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np

from bbl._ext.model import moments as kernel
from bbl.model.layout import Layout
from bbl.model.regressors import Regressors
from bbl.rows.sample import Rows, Sample, level_counts

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

TINY = 1e-300  # replaces zero proportions, whose logarithms are not finite
MAX_BITS = 8  # rows of weight 2**8 or more are counted by matrix products, which is faster
# if a bit is set in the weights of fewer rows, it is also counted by matrix products
MIN_ROWS_WITH_BIT = 128


def frequencies(sample: Rows, layout: Layout, prior_count: float) -> list[np.ndarray]:
    """Return ``f_i(x) = (n_i(x) + c/L_i) / (W_i + c)`` (L_i,) for each predictor.

    Here, ``n_i(x)`` is the weight of the rows with level x of predictor i, ``W_i`` is the weight of
    the rows with a known value of predictor i, and c is the `prior_count`.
    """
    return smoothed(level_counts(sample, layout.n_levels), prior_count)


def smoothed(counts: list[np.ndarray], prior_count: float) -> list[np.ndarray]:
    """Return smoothed proportions (L_i,) of each predictor's levels, given their counts (L_i,). See
    `frequencies` for the formula.
    """
    return [(n + prior_count / len(n)) / (n.sum() + prior_count) for n in counts]


def log_ratio(f: np.ndarray) -> np.ndarray:
    """Return ``ln f(x)/f(0)`` for ``x >= 1`` (eq. 23), which is finite even for absent levels."""
    log = np.log(np.maximum(f, TINY))
    return log[1:] - log[0]


def one_hot(codes: np.ndarray, layout: Layout | Regressors, dtype=np.float64) -> np.ndarray:
    """Return the indicators (n, D) of the non-reference levels (or joint levels) in rows.

    The rows are `codes` (n, m). The indicator of a numeric regressor is replaced by its value.
    """
    if codes.dtype.kind == "f":
        return _indicators_and_numbers(codes, cast(Layout, layout))
    if codes.shape[1] == layout.D and (layout.n_levels == 2).all():
        return codes.astype(dtype)  # codes 0 and 1 are the indicators
    X = np.zeros((len(codes), layout.D), dtype=dtype)
    # the kernel accepts uint8, uint16 and int32
    kernel.one_hot(
        codes.astype(np.int32, copy=False) if codes.dtype.kind == "i" else codes, layout.start, X
    )
    return X


def _indicators_and_numbers(codes: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the result of `one_hot` for rows with numeric regressors."""
    X = np.zeros((len(codes), layout.D))
    for i, first in enumerate(layout.start[:-1]):
        width = int(layout.n_levels[i]) - 1
        is_number = layout.is_number[i]
        own = codes[:, [i]]
        X[:, first : first + width] = own if is_number else own == np.arange(1, width + 1)
    return X


def pair_counts(sample: Rows, layout: Layout | Regressors, workers: int = 1) -> np.ndarray:
    """Return the weighted counts of pairs of non-reference levels, shape (D, D).

    The diagonal contains the counts of levels. Missing values are coded as the reference level,
    which is not counted. The counts are exact if weights are integers. Rows in a file are counted
    by `workers` threads.
    """
    # pair counts do not depend on the terms, so they are stored under one name; rows with joint
    # levels are always in memory, not in a file
    return sample.pooled.sums("pairs", partial(_block_pair_counts, layout=layout), workers)


def _block_pair_counts(sample: Sample, layout: Layout | Regressors) -> np.ndarray:
    """Return the result of `pair_counts` for one block of rows."""
    counts = np.zeros((layout.D, layout.D))
    if sample.unweighted:  # all weights are 1
        kernel.shared_counts(sample.codes, layout.start, counts)
        return counts
    # the rows whose weights are not yet in `counts`
    for chunk in _count_bits(sample, layout, counts).blocks():
        X = one_hot(chunk.codes, layout)
        counts += X.T @ (X * chunk.weights[:, None])
    return counts


def _count_bits(sample: Sample, layout: Layout | Regressors, counts: np.ndarray) -> Sample:
    """Add the pair counts for the low bits of exact weights to `counts`, and return the remaining
    rows.

    The remaining rows have weights without these bits. A row is counted ``2**b`` times for each bit
    b that is set in its weight. Weights that are not exact are left unchanged, because the result
    would depend on the order of summation.
    """
    if not sample.exact:
        return sample
    remaining = sample.weights.copy()
    # 0 for weights of 256 or more
    low_bits = np.where(remaining < 1 << MAX_BITS, remaining, 0.0).astype(np.uint8)
    bits_present = int(np.bitwise_or.reduce(low_bits))  # bits set in the weight of some row
    for b in (b for b in range(MAX_BITS) if bits_present >> b & 1):
        has_bit = low_bits & (1 << b) > 0
        n_rows = np.count_nonzero(has_bit)
        if n_rows >= MIN_ROWS_WITH_BIT:
            codes_with_bit = sample.codes if n_rows == sample.n else sample.codes[has_bit]
            kernel.shared_counts(codes_with_bit, layout.start, counts, 2.0**b)
            remaining[has_bit] -= 2.0**b
    remaining_rows = np.flatnonzero(remaining)
    return Sample(sample.codes[remaining_rows], remaining[remaining_rows])


def known_counts(sample: Rows, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the rows where two predictors are known, in total and by level.

    Returns
    -------
    known : ndarray, shape (m, m)
        Weight of the rows where both predictors are known.
    counts : ndarray, shape (D, m)
        Weight of the rows with a given non-reference level (row of `counts`) where a given
        predictor (column) is known.
    """
    return sample.pooled.sums("known", partial(_block_known_counts, layout=layout))


def _block_known_counts(sample: Sample, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `known_counts` for one block of rows."""
    known_weight = np.zeros((layout.m, layout.m))
    counts = np.zeros((layout.D, layout.m))
    for chunk in sample.blocks():
        is_known = (
            np.ones(chunk.codes.shape) if chunk.missing is None else (~chunk.missing).astype(float)
        )
        weighted = is_known * chunk.weights[:, None]
        known_weight += is_known.T @ weighted
        counts += one_hot(chunk.codes, layout).T @ weighted
    return known_weight, counts


def usable_rows(sample: Sample, layout: Layout) -> np.ndarray:
    """Return a mask of the usable rows of each predictor, shape (n, m)."""
    if sample.missing is None:
        return np.ones(sample.codes.shape, dtype=bool)
    # `mask` (m, m): whether two predictors interact; the product counts the missing values among a
    # predictor and its neighbours
    neighbours = layout.mask | np.eye(layout.m, dtype=bool)
    return sample.missing.astype(np.float32) @ neighbours.astype(np.float32) == 0.0


def usable_weight(sample: Rows, layout: Layout) -> np.ndarray:
    """Return the weight of the usable rows of each predictor, shape (m,)."""
    if sample.complete:  # no missing values; `total` is the sum of weights
        return np.full(layout.m, sample.total)
    return sample.pooled.sums(
        ("usable", layout.mask.tobytes()), partial(_block_usable_weight, layout=layout)
    )


def _block_usable_weight(sample: Sample, layout: Layout) -> np.ndarray:
    """Return the result of `usable_weight` for one block of rows."""
    if sample.complete:
        return np.full(layout.m, sample.total)
    return sample.weights @ usable_rows(sample, layout)
