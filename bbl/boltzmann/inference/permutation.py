"""Permutation tests of pairs: one predictor is permuted among rows that agree in the neighbours of the pair."""

from __future__ import annotations

import numpy as np

from bbl._ext.model import eigen
from bbl.boltzmann.inference.strata import MAX_HELD, conditioning, strata
from bbl.errors import DataError
from bbl.model.layout import Layout
from bbl.parallel import run_tasks
from bbl.rows.sample import Sample

__all__ = ["permutation_tests"]

MAX_HYPERGEOMETRIC = 10**9  # observations of a table from which numpy's hypergeometric draws fail
MAX_OBSERVATIONS = 3 * 10**9  # scipy's random tables multiply two margins as 64-bit integers
Result = tuple[float, int, float]  # statistic, degrees of freedom, p


def permutation_tests(
    sample: Sample, layout: Layout, n: int, rng: np.random.Generator, workers: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Test the couplings of each pair of a group by permutations.

    Where ``J_ij = 0``, i and j are independent given the neighbours of either (see `conditioning`). So among rows that
    agree in these, every order of the values of i is as likely as the one observed, and the p-value is exact whatever
    the counts are (Phipson & Smyth 2010). The statistic is that of Cochran, Mantel & Haenszel for tables of any size:
    observed less expected counts, summed over strata, in the metric of their covariance.

    Parameters
    ----------
    sample : Sample
        Rows of one group.
    layout : Layout
    n : int
        Permutations of each pair.
    rng : Generator
    workers : int
        Threads; every pair has a generator of its own, so results do not depend on it.

    Returns
    -------
    statistic, df, p : ndarray, shape (P,)
        nan, 0 and nan if no two rows agree, or if one of the two predictors does not vary among rows that agree.

    Raises
    ------
    DataError
        If there are more than 3e9 observations.
    """
    if sample.total > MAX_OBSERVATIONS:
        raise DataError(
            f"Permutation tests draw tables of up to {MAX_OBSERVATIONS:.0e} observations, and a group has "
            f"{sample.total:.4g}. Take pvalues='auto', whose tests need no draws."
        )
    rows = sample.collapsed(layout.n_levels)
    streams = rng.spawn(len(layout.pairs))
    tasks = [(rows, layout, int(i), int(j), n, stream) for (i, j), stream in zip(layout.pairs, streams, strict=True)]
    test_results = run_tasks(_test, tasks, workers)
    statistic, df, p = (np.array([f[k] for f in test_results]) for k in range(3))
    return statistic, df.astype(np.intp), p


def _test(sample: Sample, layout: Layout, i: int, j: int, n: int, rng: np.random.Generator) -> Result:
    """Test the coupling of predictors i and j; see `permutation_tests`.

    To permute the values of i within strata is to draw tables with the margins of those observed.
    """
    no_test = (np.nan, 0, np.nan)
    held = conditioning(layout, i, j)
    if len(held) > MAX_HELD or not sample.n:
        return no_test
    if sample.missing is not None:
        sample = sample.rows(~sample.missing[:, [i, j, *held]].any(axis=1))
    tables = _tables(sample, held, i, j, layout)
    if not len(tables):
        return no_test
    rows, columns, total = tables.sum(axis=2), tables.sum(axis=1), tables.sum(axis=(1, 2))
    V = _covariance(rows, columns, total)
    values, vectors = eigen.eigenvectors(V)
    if values[-1] <= 0.0:
        return no_test
    is_positive = values > 1e-9 * values[-1]
    inverse_root = vectors[:, is_positive] / np.sqrt(values[is_positive])
    expected = (rows[:, 1:, None] * columns[:, None, 1:] / total[:, None, None]).sum(axis=0)
    drawn = sum(_draw(r, c, n, rng) for r, c in _as_integers(rows, columns))
    all_counts = np.concatenate([tables[:, 1:, 1:].sum(axis=0)[None], drawn])
    statistic = (((all_counts - expected).reshape(n + 1, -1) @ inverse_root) ** 2).sum(axis=1)
    as_large = int((statistic[1:] >= statistic[0] * (1.0 - 1e-9)).sum())
    return float(statistic[0]), int(is_positive.sum()), (1.0 + as_large) / (n + 1.0)


def _tables(sample: Sample, held: np.ndarray, i: int, j: int, layout: Layout) -> np.ndarray:
    """Return the counts of i by j in each stratum in which both predictors vary, shape (strata, L_i, L_j)."""
    shape = int(layout.n_levels[i]), int(layout.n_levels[j])
    number = strata(sample.codes, held)
    cell = (number * shape[0] + sample.codes[:, i]) * shape[1] + sample.codes[:, j]
    count = int(number.max(initial=-1)) + 1
    tables = np.bincount(cell, sample.weights, count * shape[0] * shape[1]).reshape(count, *shape)
    varies = [(tables.sum(axis=k) > 0).sum(axis=1) > 1 for k in (1, 2)]
    return tables[varies[0] & varies[1]]


def _covariance(rows: np.ndarray, columns: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the covariance of the non-reference cells, summed over strata, given all margins.

    `rows` (strata, L_i) and `columns` (strata, L_j) are the margins, `total` (strata,) their sums. The covariance has
    shape (C, C) with C = (L_i - 1)(L_j - 1).
    """

    def spread(counts: np.ndarray) -> np.ndarray:
        share = counts[:, 1:] / total[:, None]
        return share[:, :, None] * np.eye(share.shape[1]) - share[:, :, None] * share[:, None, :]

    scale = total**2 / np.maximum(total - 1.0, 1.0)
    size = (rows.shape[1] - 1) * (columns.shape[1] - 1)
    return np.einsum("s,sab,scd->acbd", scale, spread(rows), spread(columns)).reshape(size, size)


def _as_integers(rows: np.ndarray, columns: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the margins as integers, as `_draw` takes them: all 2 x 2 tables, or one larger table each."""
    r, c = np.rint(rows).astype(np.int64), np.rint(columns).astype(np.int64)
    if r.shape[1] == c.shape[1] == 2 and r.sum(axis=1).max() < MAX_HYPERGEOMETRIC:
        return [(r, c)]
    return [(r[k : k + 1], c[k : k + 1]) for k in range(len(r))]


def _draw(rows: np.ndarray, columns: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the non-reference cells of n random tables with these margins, summed over strata.

    The result has shape (n, L_i - 1, L_j - 1).
    """
    from scipy.stats import random_table

    if rows.shape[1] == columns.shape[1] == 2 and rows.sum(axis=1).max() < MAX_HYPERGEOMETRIC:
        first = rng.hypergeometric(rows[:, 1], rows[:, 0], columns[:, 1], size=(n, len(rows)))
        return first.sum(axis=1).astype(float)[:, None, None]
    tables = random_table(rows[0], columns[0]).rvs(size=n, random_state=rng)
    return tables[:, 1:, 1:].astype(float)
