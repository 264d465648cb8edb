"""Exact conditional distributions of couplings and fields, given other predictors.

A *stratum* is a set of rows with the same values of the conditioning predictors. The
*neighbours* of a predictor are the predictors that share a term with it (``layout.mask``).
"""

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from bbl.stats.exact import PowerSeries, hypergeometric

__all__ = ["conditioning", "coupling_family", "field_family", "pair_strata", "strata"]

MAX_HELD = 20  # maximum number of predictors to condition on
MAX_SUPPORT = 20_000  # maximum number of values of a conditional distribution


def conditioning(layout: Layout, i: int, j: int) -> np.ndarray:
    """Return the neighbours of i (except j), or those of j (except i) if there are fewer of them.

    Given these neighbours, i and j are independent if and only if ``J_ij = 0`` (by the Markov
    property of eq. 6 in Woo & Wang 2022).
    """
    is_neighbour = layout.mask[[i, j]]  # (2, m), a copy
    is_neighbour[:, [i, j]] = False
    # row 1, the neighbours of j, if i has more
    return np.flatnonzero(is_neighbour[int(is_neighbour[0].sum() > is_neighbour[1].sum())])


def strata(codes: np.ndarray, conditioned: np.ndarray) -> np.ndarray:
    """Return the stratum (n,) of each row, defined by the codes of the predictors `conditioned`."""
    if not len(conditioned):
        return np.zeros(len(codes), dtype=np.intp)
    columns = np.ascontiguousarray(codes[:, conditioned])
    n_levels = columns.max(axis=0, initial=0).astype(np.int64) + 1
    # states fit into 64-bit integers, which are sorted faster than bytes
    if np.log2(n_levels).sum() < 62.0:
        # place values of a mixed-radix number: products of the numbers of levels of all later
        # predictors
        row_keys = columns @ np.append(np.cumprod(n_levels[:0:-1])[::-1], 1)
    else:  # the bytes of a row as a single item
        row_keys = columns.view(np.dtype((np.void, columns.itemsize * columns.shape[1])))[:, 0]
    return np.unique(row_keys, return_inverse=True)[1].astype(np.intp)


def pair_strata(sample: Sample, layout: Layout, i: int, j: int) -> np.ndarray | None:
    """Return each row's stratum (n,) for testing the coupling of i and j, or -1 if it has none.

    Within a stratum, i and j are independent if they have no coupling. A row has no stratum in two
    cases: if a value that would define the stratum is missing, or if a predictor that shares a term
    of order three or more with i and j is not at its reference level. In the second case, the
    coupling is different. The result is None if the test would condition on more than `MAX_HELD`
    predictors.
    """
    conditioned = conditioning(layout, i, j)
    if len(conditioned) > MAX_HELD:
        return None
    stratum_of_row = strata(sample.codes, conditioned)
    # `beside(i, j)` returns the other predictors in terms of three or more with i and j
    if layout.order > 2:
        stratum_of_row[(sample.codes[:, layout.beside(i, j)] != 0).any(axis=1)] = -1
    if sample.missing is not None:
        stratum_of_row[sample.missing[:, [i, j, *conditioned]].any(axis=1)] = -1
    return stratum_of_row


def coupling_family(
    sample: Sample, stratum_of_row: np.ndarray, i: int, a: int, j: int, b: int
) -> PowerSeries | None:
    """Return the conditional distribution of the number of rows with level a of i and level b of j.

    It is based on the rows where i has level a or its reference level, and j has level b or its
    reference level. These rows form a 2 x 2 table in each stratum. All tables have the same log
    odds ratio ``J_ij(a, b)``. `stratum_of_row` (n,) is the result of `pair_strata`. The result is
    None if no stratum is informative, or if the computation would take too long.
    """
    codes_i = sample.codes[:, i]
    codes_j = sample.codes[:, j]
    is_used = (
        ((codes_i == 0) | (codes_i == a))
        & ((codes_j == 0) | (codes_j == b))
        & (stratum_of_row >= 0)
    )
    at_a = codes_i[is_used] == a
    at_b = codes_j[is_used] == b
    weights = sample.weights[is_used]
    strata_used = stratum_of_row[is_used]
    if not len(weights):
        return None
    n_strata = int(strata_used.max()) + 1
    # for each stratum: the cell of a and b, the margins of a and b, the total
    n11, rows, columns, totals = (
        np.bincount(strata_used, cell_weights, n_strata)
        for cell_weights in (weights * (at_a & at_b), weights * at_a, weights * at_b, weights)
    )
    # for each stratum: the number of possible values of the cell, minus 1
    support_sizes = np.minimum(rows, columns) - np.maximum(0, rows + columns - totals)
    if not 0 < support_sizes.sum() < MAX_SUPPORT:
        return None
    return hypergeometric(n11, rows, columns, totals)


def field_family(sample: Sample, layout: Layout, i: int, a: int) -> PowerSeries | None:
    """Return the binomial distribution of the number of rows where i has level a.

    It is based on the rows where all neighbours of i have their reference levels.
    """
    from scipy.special import gammaln

    neighbours = np.flatnonzero(layout.mask[i])
    codes = sample.codes[:, i]
    is_used = ((codes == 0) | (codes == a)) & (sample.codes[:, neighbours] == 0).all(axis=1)
    if sample.missing is not None:
        is_used &= ~sample.missing[:, [i, *neighbours]].any(axis=1)
    n_rows = float(sample.weights[is_used].sum())
    n_at_level = float(sample.weights[is_used & (codes == a)].sum())
    if not 0 < n_rows < MAX_SUPPORT:
        return None
    counts = np.arange(n_rows + 1.0)
    # Logarithms of binomial coefficients, up to a constant. share=1: tails include all of P(T = t);
    # half of it (mid-p) is only appropriate if margins vary between samples, unlike here.
    return PowerSeries(
        -gammaln(counts + 1) - gammaln(n_rows - counts + 1), round(n_at_level), share=1.0
    )
