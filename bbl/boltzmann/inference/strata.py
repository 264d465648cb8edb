"""Exact conditional distribution of one coupling or field, given the values of other predictors.

A *stratum* is a set of rows that agree in the predictors that are conditioned on.
"""

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from bbl.stats.exact import PowerSeries, hypergeometric

__all__ = ["conditioning", "coupling_family", "field_family", "pair_strata", "strata"]

MAX_HELD = 20  # predictors that are conditioned on
MAX_SUPPORT = 20_000  # values of a conditional distribution


def conditioning(layout: Layout, i: int, j: int) -> np.ndarray:
    """Return the other neighbours of i or of j, whichever are fewer.

    Given these, i and j are independent if and only if ``J_ij = 0`` (the Markov property of eq. 6).
    """
    neighbours = layout.mask[[i, j]]
    neighbours[:, [i, j]] = False
    return np.flatnonzero(neighbours[int(neighbours[0].sum() > neighbours[1].sum())])


def strata(codes: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Return the number (n,) of each row's stratum; rows of a stratum have the same codes of the predictors `fixed`."""
    if not len(fixed):
        return np.zeros(len(codes), dtype=np.intp)
    columns = np.ascontiguousarray(codes[:, fixed])
    n_levels = columns.max(axis=0, initial=0).astype(np.int64) + 1
    if np.log2(n_levels).sum() < 62.0:  # numbers are sorted faster than rows of bytes
        row_keys = columns @ np.append(np.cumprod(n_levels[:0:-1])[::-1], 1)
    else:
        row_keys = columns.view(np.dtype((np.void, columns.itemsize * columns.shape[1])))[:, 0]
    return np.unique(row_keys, return_inverse=True)[1].astype(np.intp)


def pair_strata(sample: Sample, layout: Layout, i: int, j: int) -> np.ndarray | None:
    """Return the stratum (n,) of each row, within which i and j are independent if they have no coupling; -1 if none.

    A row has no stratum if a value that defines it is missing, or if a predictor that shares a term of order three or
    more with i and j is away from its reference level, where the coupling differs. Returns None for over `MAX_HELD`.
    """
    fixed = conditioning(layout, i, j)
    if len(fixed) > MAX_HELD:
        return None
    number = strata(sample.codes, fixed)
    if layout.order > 2:  # the coupling is defined where the other predictors of such terms are at reference
        number[(sample.codes[:, layout.beside(i, j)] != 0).any(axis=1)] = -1
    if sample.missing is not None:
        number[sample.missing[:, [i, j, *fixed]].any(axis=1)] = -1
    return number


def coupling_family(sample: Sample, number: np.ndarray, i: int, a: int, j: int, b: int) -> PowerSeries | None:
    """Return the conditional distribution of how often level a of i goes with level b of j.

    Taken over rows in which i is at its reference level or at a, and j at its reference level or at b. In a stratum
    (`number`, of `pair_strata`) these are a 2 x 2 table whose log odds ratio is ``J_ij(a, b)``, the same in all
    strata. None where no stratum tells anything, or the computation would not end.
    """
    at_a, at_b = sample.codes[:, i], sample.codes[:, j]
    is_used = ((at_a == 0) | (at_a == a)) & ((at_b == 0) | (at_b == b)) & (number >= 0)
    at_a, at_b, w, number = at_a[is_used] == a, at_b[is_used] == b, sample.weights[is_used], number[is_used]
    if not len(w):
        return None
    last = int(number.max()) + 1
    n11, rows, columns, n = (
        np.bincount(number, cell_weights, last) for cell_weights in (w * (at_a & at_b), w * at_a, w * at_b, w)
    )
    support = np.minimum(rows, columns) - np.maximum(0, rows + columns - n)
    if not 0 < support.sum() < MAX_SUPPORT:
        return None
    return hypergeometric(n11, rows, columns, n)


def field_family(sample: Sample, layout: Layout, i: int, a: int) -> PowerSeries | None:
    """Return the binomial distribution of how often i is at level a, among rows with all neighbours at reference."""
    from scipy.special import gammaln

    neighbours = np.flatnonzero(layout.mask[i])
    codes = sample.codes[:, i]
    is_used = ((codes == 0) | (codes == a)) & (sample.codes[:, neighbours] == 0).all(axis=1)
    if sample.missing is not None:
        is_used &= ~sample.missing[:, [i, *neighbours]].any(axis=1)
    n, t = float(sample.weights[is_used].sum()), float(sample.weights[is_used & (codes == a)].sum())
    if not 0 < n < MAX_SUPPORT:
        return None
    k = np.arange(n + 1.0)
    return PowerSeries(-gammaln(k + 1) - gammaln(n - k + 1), round(t), share=1.0)
