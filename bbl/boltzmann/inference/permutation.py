"""Permutation tests of pairs, which permute one predictor within strata of the pair's neighbours.

A *stratum* is a set of rows with the same values of the conditioning predictors. Predictor i has
L_i levels, and P is the number of tested pairs.
"""

from __future__ import annotations

import numpy as np

from bbl._ext.model import eigen
from bbl.boltzmann.inference.strata import MAX_HELD, conditioning, strata
from bbl.errors import DataError
from bbl.model.layout import Layout
from bbl.parallel import run_tasks
from bbl.rows.sample import Sample

__all__ = ["permutation_tests"]

MAX_HYPERGEOMETRIC = 10**9  # numpy's hypergeometric draws fail for tables with more observations
MAX_OBSERVATIONS = 3 * 10**9  # scipy's random tables multiply two margins as 64-bit integers
Result = tuple[float, int, float]  # statistic, degrees of freedom, p


def permutation_tests(
    sample: Sample, layout: Layout, n: int, rng: np.random.Generator, workers: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Test the couplings of each pair in a group by permutations.

    If ``J_ij = 0``, i and j are independent given the neighbours of either (see `conditioning`).
    All permutations of the values of i within strata of these neighbours are then equally probable,
    and the p-value is exact, however small the counts are (Phipson & Smyth 2010). The test uses the
    generalised Cochran-Mantel-Haenszel statistic, i.e. a quadratic form in observed minus expected
    counts, summed over strata, with the inverse of their covariance.

    Parameters
    ----------
    sample : Sample
        Rows of one group.
    layout : Layout
    n : int
        Number of permutations for each pair.
    rng : Generator
    workers : int
        Number of threads. Each pair has its own generator, so results do not depend on the number
        of threads.

    Returns
    -------
    statistic, df, p : ndarray, shape (P,)
        These are nan, 0 and nan if no two rows are in the same stratum, or if one of the two
        predictors does not vary within strata.

    Raises
    ------
    DataError
        If there are more than 3e9 observations.
    """
    if sample.total > MAX_OBSERVATIONS:
        raise DataError(
            f"Permutation tests support at most {MAX_OBSERVATIONS:.0e} observations per group, "
            f"but a group has {sample.total:.4g}.",
            hint="Use pvalues='auto', which does not use permutations.",
        )
    rows = sample.collapsed(layout.n_levels)
    streams = rng.spawn(len(layout.pairs))
    tasks = [
        (rows, layout, int(i), int(j), n, stream)
        for (i, j), stream in zip(layout.pairs, streams, strict=True)
    ]
    test_results = run_tasks(_test_pair, tasks, workers)
    # one array for each component of the results
    statistic, df, p = (np.array([result[item] for result in test_results]) for item in range(3))
    return statistic, df.astype(np.intp), p


def _test_pair(
    sample: Sample, layout: Layout, i: int, j: int, n: int, rng: np.random.Generator
) -> Result:
    """Test the coupling of predictors i and j; see `permutation_tests`.

    Permuting the values of i within strata is the same as drawing tables with the observed margins.
    The statistic is ``d' V^- d``, where d contains observed minus expected counts of non-reference
    levels, and V^- is the pseudo-inverse of their covariance.
    """
    no_test = (np.nan, 0, np.nan)
    conditioned = conditioning(layout, i, j)
    if len(conditioned) > MAX_HELD or not sample.n:
        return no_test
    if sample.missing is not None:
        sample = sample.rows(~sample.missing[:, [i, j, *conditioned]].any(axis=1))
    tables = _count_tables(sample, conditioned, i, j, layout)
    if not len(tables):
        return no_test
    rows = tables.sum(axis=2)
    columns = tables.sum(axis=1)
    total = tables.sum(axis=(1, 2))
    covariance = _cell_covariance(rows, columns, total)
    # in increasing order
    eigenvalues, eigenvectors = eigen.eigenvectors(covariance)
    if eigenvalues[-1] <= 0.0:
        return no_test
    # relative rounding errors of eigenvalues are far below 1e-9, so smaller ones are zero
    is_positive = eigenvalues > 1e-9 * eigenvalues[-1]
    # a matrix R with R R' = V^-
    inverse_root = eigenvectors[:, is_positive] / np.sqrt(eigenvalues[is_positive])
    expected = (rows[:, 1:, None] * columns[:, None, 1:] / total[:, None, None]).sum(axis=0)
    drawn = sum(
        _draw_tables(row_margins, column_margins, n, rng)
        for row_margins, column_margins in _integer_margins(rows, columns)
    )
    # row 0 has the observed counts (L_i - 1, L_j - 1), the others the n drawn counts
    all_counts = np.concatenate([tables[:, 1:, 1:].sum(axis=0)[None], drawn])
    statistic = (((all_counts - expected).reshape(n + 1, -1) @ inverse_root) ** 2).sum(axis=1)
    # 1 - 1e-9: treat statistics that only differ by rounding as equal
    n_as_large = int((statistic[1:] >= statistic[0] * (1.0 - 1e-9)).sum())
    return float(statistic[0]), int(is_positive.sum()), (1.0 + n_as_large) / (n + 1.0)


def _count_tables(
    sample: Sample, conditioned: np.ndarray, i: int, j: int, layout: Layout
) -> np.ndarray:
    """Return the tables (strata, L_i, L_j) of i by j for strata where both predictors vary."""
    shape = int(layout.n_levels[i]), int(layout.n_levels[j])
    stratum_of_row = strata(sample.codes, conditioned)
    cell_of_row = (stratum_of_row * shape[0] + sample.codes[:, i]) * shape[1] + sample.codes[:, j]
    n_strata = int(stratum_of_row.max(initial=-1)) + 1
    tables = np.bincount(cell_of_row, sample.weights, n_strata * shape[0] * shape[1]).reshape(
        n_strata, *shape
    )
    # for j and i: whether at least two levels occur in a stratum
    varies = [(tables.sum(axis=k) > 0).sum(axis=1) > 1 for k in (1, 2)]
    return tables[varies[0] & varies[1]]


def _cell_covariance(rows: np.ndarray, columns: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the covariance of the non-reference cells, summed over strata, given all margins.

    `rows` (strata, L_i) and `columns` (strata, L_j) are the margins, and `total` (strata,) contains
    their sums. The covariance has shape (C, C) with C = (L_i - 1)(L_j - 1).
    """

    def spread(counts: np.ndarray) -> np.ndarray:
        """Return the covariance (strata, L - 1, L - 1) of the level indicators of a random row.

        One row is drawn from each stratum. `counts` (strata, L) contains the margins of one
        predictor. The reference level has no indicator.
        """
        shares = counts[:, 1:] / total[:, None]
        return (
            shares[:, :, None] * np.eye(shares.shape[1]) - shares[:, :, None] * shares[:, None, :]
        )

    # given its margins, the covariance of a table is n^2 / (n - 1) times the product of the two
    # multinomial covariances of one draw
    scale = total**2 / np.maximum(total - 1.0, 1.0)
    size = (rows.shape[1] - 1) * (columns.shape[1] - 1)
    return np.einsum("s,sab,scd->acbd", scale, spread(rows), spread(columns)).reshape(size, size)


def _integer_margins(rows: np.ndarray, columns: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split the integer margins of strata into items for `_draw_tables`.

    `rows` has shape (strata, L_i) and `columns` (strata, L_j). All 2 x 2 tables form one item,
    except those with too many observations for numpy's hypergeometric draws. These exceptions and
    all larger tables are separate items.
    """
    row_margins = np.rint(rows).astype(np.int64)
    column_margins = np.rint(columns).astype(np.int64)
    if (
        row_margins.shape[1] == column_margins.shape[1] == 2
        and row_margins.sum(axis=1).max() < MAX_HYPERGEOMETRIC
    ):
        return [(row_margins, column_margins)]
    return [(row_margins[k : k + 1], column_margins[k : k + 1]) for k in range(len(row_margins))]


def _draw_tables(
    rows: np.ndarray, columns: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the non-reference cells (n, L_i - 1, L_j - 1) of n random tables, summed over strata.

    The margins `rows` (strata, L_i) and `columns` (strata, L_j) are an item from
    `_integer_margins`, which has a single stratum if the table is larger than 2 x 2.
    """
    from scipy.stats import random_table

    if rows.shape[1] == columns.shape[1] == 2 and rows.sum(axis=1).max() < MAX_HYPERGEOMETRIC:
        # cell (1, 1): number of rows at level 1 of i among columns[:, 1] draws from a stratum
        counts = rng.hypergeometric(rows[:, 1], rows[:, 0], columns[:, 1], size=(n, len(rows)))
        return counts.sum(axis=1).astype(float)[:, None, None]
    tables = random_table(rows[0], columns[0]).rvs(size=n, random_state=rng)
    return tables[:, 1:, 1:].astype(float)
