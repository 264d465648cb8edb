"""Effective number of correlated rows, computed from similarity weights or mutual information."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bbl._ext.model import neighbours as _kernel
from bbl.memory import check_memory

__all__ = ["MatchedSize", "matched_size", "mutual_information", "neighbour_weights"]

LANES = 64  # number of rows compared at a time by the kernel
STEP = 4096  # number of rows between progress reports
DECAY = 0.6  # step t changes the log size by the relative excess information over t**DECAY
SMALLEST = 2  # rows; one row has no information
LARGEST_LOG_SIZE = 30.0  # of the largest size; without mutual information, no finite size fits
LEAST_INFORMATION = 1e-12  # replaces zero information
MAX_DRIFT = 0.03  # change of the log size between parts of the averaged steps, once converged
MAX_EXCESS = 0.1  # mean relative excess of the information, once converged
ARRAYS = 4  # number of arrays of shape (columns, concentrations, L) in memory at a time
# grid with a log-uniform prior on the concentration of the Dirichlet
CONCENTRATIONS = np.logspace(-2.0, 2.0, 30)


@dataclass(frozen=True)
class MatchedSize:
    """Result of `matched_size`.

    Attributes
    ----------
    size : float
        Number of rows at which expected and observed information are equal.
    converged : bool
        Whether the iteration converged.
    excess : float
        Mean relative excess of expected over observed information.
    """

    size: float
    converged: bool
    excess: float


def neighbour_weights(
    codes: np.ndarray, identity: float, progress: Callable | None = None
) -> np.ndarray:
    """Return the weight (n,) of each row, which is one over the number of its neighbours.

    Parameters
    ----------
    codes : ndarray of int, shape (n, m)
    identity : float
        Rows are neighbours if they agree in more than this proportion of the columns. Each row
        counts as a neighbour of itself and of its copies.
    progress : callable, optional
        Function called with the proportion of row pairs compared since the last call.
    """
    small_codes = codes.astype(np.uint8 if codes.max(initial=0) < 256 else np.int32)
    # distinct rows, the position of each row among them, and their frequencies
    rows, distinct_row, n_copies = np.unique(
        small_codes, axis=0, return_inverse=True, return_counts=True
    )
    n, m = rows.shape
    # enough blocks for n rows; the kernel ignores the zeros after row n - 1
    blocks = np.zeros((-(-n // LANES), LANES, m), dtype=rows.dtype)
    blocks.reshape(-1, m)[:n] = rows
    # agreement in more than the proportion `identity` of the columns; 1e-9 allows for rounding of
    # the product
    max_differences = math.ceil(m * (1.0 - identity) - 1e-9) - 1
    # blocks (blocks, m, LANES): the kernel compares a row with LANES rows at a time, column by
    # column
    blocks = np.ascontiguousarray(blocks.transpose(0, 2, 1))
    n_neighbours = n_copies.copy()
    for begin in range(0, n, STEP):
        end = min(n, begin + STEP)
        _kernel.count_neighbours(rows, blocks, n_copies, max_differences, n_neighbours, begin, end)
        if progress is not None:
            # each row is compared with all later rows
            progress((end - begin) * (2 * n - begin - end) / n**2)
    return 1.0 / n_neighbours[distinct_row.ravel()]


def mutual_information(tables: np.ndarray) -> np.ndarray:
    """Return the mutual information (...,) in nats of tables (..., a, b) of counts or
    proportions.
    """
    p = tables / tables.sum(axis=(-2, -1), keepdims=True)
    independent = p.sum(axis=-1)[..., :, None] * p.sum(axis=-2)[..., None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / independent), 0.0).sum(axis=(-2, -1))


def matched_size(
    codes: np.ndarray,
    n_levels: np.ndarray,
    weights: np.ndarray,
    rng: np.random.Generator,
    n_steps: int,
    batch: int,
    progress: Callable | None = None,
) -> MatchedSize:
    """Return the number of rows at which independent columns have, by chance, as much mutual
    information as `codes`.

    Information here means the mean mutual information of pairs of columns. Each step draws pairs of
    columns. For each column, level frequencies are drawn from its Dirichlet posterior at the
    current size, and tables of this size are drawn with independent columns that have these
    frequencies (Ingraham & Marks 2017, section 8.3.1). The information in these tables is nearly
    inversely proportional to the size. Step t = 0, 1, ... therefore adds ``(t + 1)**-DECAY`` times
    the relative excess of this information over the observed information of the same pairs to the
    log size. The result is the mean over the second half of the steps (Polyak & Juditsky 1992). The
    initial size is the number of rows, because the information that arises by chance decreases with
    size in this range. At very small sizes, it increases with size, because a small number of rows
    contains little information.

    Parameters
    ----------
    codes : ndarray of int, shape (n, m)
    n_levels : ndarray of int, shape (m,)
    weights : ndarray, shape (n,)
    rng : numpy.random.Generator
    n_steps : int
        Number of steps.
    batch : int
        Number of column pairs drawn in each step.
    progress : callable, optional
        Function called with the proportion of steps completed since the last call.
    """
    m = codes.shape[1]
    L = int(n_levels.max())
    check_memory(
        8.0 * min(2 * batch, m) * len(CONCENTRATIONS) * L * ARRAYS,
        "An effective sample size",
        "Use a smaller batch.",
    )
    is_level = np.arange(L) < n_levels[:, None]
    # (m, L): observed level proportions of each column
    shares = np.array([np.bincount(codes[:, i], weights, L) for i in range(m)]) / weights.sum()
    information_of_pair: dict[tuple[int, int], float] = {}
    log_size = float(np.log(max(len(codes), SMALLEST)))
    log_sizes = np.empty(n_steps)
    excesses = np.empty(n_steps)  # information by chance, relative to the observed
    total_observed = 0.0
    for t in range(n_steps):
        i = rng.integers(0, m, batch)
        j = (i + rng.integers(1, m, batch)) % m  # a column other than i
        pairs = zip(i, j, strict=True)
        observed = np.mean(
            [_cached_information(codes, weights, information_of_pair, a, b, L) for a, b in pairs]
        )
        total_observed += float(observed)
        size = int(round(np.exp(log_size)))
        # a column usually occurs in several pairs
        columns, position = np.unique([i, j], return_inverse=True)
        counts = np.exp(log_size) * shares[columns]
        cumulative = _concentration_probabilities(counts, is_level[columns])
        # frequencies (batch, L) of the two columns of each pair
        p, q = (
            _draw_frequencies(counts[k], is_level[columns[k]], cumulative[k], rng)
            for k in position.reshape(2, batch)
        )
        cell_p = (p[:, :, None] * q[:, None, :]).reshape(batch, -1)
        tables = rng.multinomial(size, cell_p / cell_p.sum(axis=1, keepdims=True)).reshape(
            batch, L, L
        )
        by_chance = mutual_information(tables).mean()
        # excess information by chance means too few rows; relative to the mean of all steps, so
        # that the noise in one step does not change the scale
        scale = max(total_observed / (t + 1), LEAST_INFORMATION)
        excesses[t] = (by_chance - observed) / scale
        step = np.clip(excesses[t], -1.0, 1.0) / (t + 1) ** DECAY
        log_size = float(np.clip(log_size + step, np.log(SMALLEST), LARGEST_LOG_SIZE))
        log_sizes[t] = log_size
        if progress is not None:
            progress(1.0 / n_steps)
    half = n_steps // 2
    # after convergence, both halves of the averaged steps have the same mean
    early = log_sizes[half : half + (n_steps - half) // 2]
    drift = float(log_sizes[half:].mean() - early.mean()) if len(early) else np.inf
    excess = float(excesses[half:].mean())
    return MatchedSize(
        size=float(np.exp(log_sizes[half:].mean())),
        converged=abs(drift) < MAX_DRIFT and abs(excess) < MAX_EXCESS,
        excess=excess,
    )


def _cached_information(
    codes: np.ndarray,
    weights: np.ndarray,
    cache: dict[tuple[int, int], float],
    i: int,
    j: int,
    L: int,
) -> float:
    """Return the mutual information of columns i and j, which have at most L levels.

    Values are cached in `cache` with the pair (lower column, higher column) as key.
    """
    pair = (min(i, j), max(i, j))
    if pair not in cache:
        cells = codes[:, pair[0]].astype(np.intp) * L + codes[:, pair[1]]
        cache[pair] = float(mutual_information(np.bincount(cells, weights, L * L).reshape(L, L)))
    return cache[pair]


def _concentration_probabilities(counts: np.ndarray, is_level: np.ndarray) -> np.ndarray:
    """Return the cumulative posterior probabilities (n, concentrations) of `CONCENTRATIONS`, up to
    a factor, given `counts` (n, L).

    Counts n_l of K levels with sum N have the probability ``Gamma(K a) / Gamma(N + K a) prod_l
    Gamma(n_l + a) / Gamma(a)`` under a prior with concentration a. `is_level` (n, L) marks the
    codes that are levels of each column.
    """
    from scipy.special import gammaln

    # number of levels K and total count N of each column; log_p (n, concentrations):
    # log-probability of its counts
    concentrations = CONCENTRATIONS[:, None]
    K = is_level.sum(axis=1)
    N = counts.sum(axis=1)
    log_terms = gammaln(counts[:, None, :] + concentrations) - gammaln(concentrations)
    log_p = np.where(is_level[:, None, :], log_terms, 0.0).sum(axis=2)
    log_p += gammaln(K[:, None] * CONCENTRATIONS) - gammaln(
        N[:, None] + K[:, None] * CONCENTRATIONS
    )
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    return np.cumsum(p, axis=1)


def _draw_frequencies(
    counts: np.ndarray, is_level: np.ndarray, cumulative: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw frequencies (batch, L) from Dirichlet posteriors given `counts` (batch, L).

    The concentration of each prior is drawn first, with the `cumulative` probabilities (batch,
    concentrations) from `_concentration_probabilities`. `is_level` (batch, L) marks the codes that
    are levels of each column; the frequencies of other codes are zero.
    """
    # inverse distribution function: the first concentration whose cumulative probability reaches a
    # uniform number
    concentration = CONCENTRATIONS[
        (cumulative < rng.random((len(cumulative), 1)) * cumulative[:, -1:]).sum(axis=1)
    ]
    # codes that are not levels get shape 1; their draws are set to 0
    gamma = np.where(
        is_level, rng.standard_gamma(np.where(is_level, counts + concentration[:, None], 1.0)), 0.0
    )
    gamma += 1e-300 * is_level  # gammas with small shapes may all underflow to zero
    return gamma / gamma.sum(axis=1, keepdims=True)
