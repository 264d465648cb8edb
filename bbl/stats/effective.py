"""Effective size of correlated rows: weights by neighbourhoods, and the size that explains mutual information."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bbl.memory import check_memory

__all__ = ["matched_size", "mutual_information", "neighbour_weights"]

BLOCK = 2**24  # cells of a block of comparisons
CONCENTRATIONS = np.logspace(-2.0, 2.0, 30)  # grid of the Dirichlet's concentration, log-uniform


def neighbour_weights(codes: np.ndarray, identity: float) -> np.ndarray:
    """Return one over the number of rows that agree with each row in more than a share `identity` of the columns.

    Parameters
    ----------
    codes : ndarray of int, shape (n, m)
    identity : float
        A row itself counts, and its copies, whatever the share.
    """
    rows, distinct_row, count = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    n, m = rows.shape
    near = np.zeros(n)
    most = m * (1.0 - identity)
    step = max(1, BLOCK // max(n, 1))
    for lo in range(0, n, step):
        differ = np.zeros((len(rows[lo : lo + step]), n), dtype=np.int32)
        for i in range(m):
            differ += rows[lo : lo + step, i, None] != rows[:, i]
        close = differ < most - 1e-9
        close[np.arange(len(close)), lo + np.arange(len(close))] = True
        near[lo : lo + step] = close @ count
    return 1.0 / near[distinct_row.ravel()]


def mutual_information(tables: np.ndarray) -> np.ndarray:
    """Return the mutual information (...,) of tables (..., a, b) of counts or shares, in nats."""
    p = tables / tables.sum(axis=(-2, -1), keepdims=True)
    alone = p.sum(axis=-1)[..., :, None] * p.sum(axis=-2)[..., None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / alone), 0.0).sum(axis=(-2, -1))


def matched_size(
    codes: np.ndarray,
    n_levels: np.ndarray,
    weights: np.ndarray,
    rng: np.random.Generator,
    n_steps: int,
    batch: int,
    progress: Callable | None = None,
) -> float:
    """Return the size of independent rows whose pairs would share as much information by chance as these do.

    Robbins-Monro on the logarithm of the size: pairs of columns are drawn, each with frequencies from its Dirichlet
    posterior, and a table of that many independent rows is drawn from them (Ingraham & Marks 2017, section 8.3.1).

    Parameters
    ----------
    codes : ndarray of int, shape (n, m)
    n_levels : ndarray of int, shape (m,)
    weights : ndarray, shape (n,)
    rng : numpy.random.Generator
    n_steps, batch : int
        Steps, and pairs of columns drawn in each.
    """
    m, L = codes.shape[1], int(n_levels.max())
    check_memory(8.0 * batch * len(CONCENTRATIONS) * L * 4, "An effective sample size", "Use a smaller batch.")
    total, present = weights.sum(), np.arange(L) < n_levels[:, None]
    shares = np.array([np.bincount(codes[:, i], weights, L) for i in range(m)]) / total
    computed_information: dict[tuple[int, int], float] = {}
    log_size = np.log(total)
    for t in range(n_steps):
        i = rng.integers(0, m, batch)
        j = (i + rng.integers(1, m, batch)) % m
        observed = np.mean(
            [_information(codes, weights, computed_information, a, b, L) for a, b in zip(i, j, strict=True)]
        )
        size = max(int(round(np.exp(log_size))), 1)
        p, q = (_frequencies(np.exp(log_size) * shares[k], present[k], rng) for k in (i, j))
        joint = (p[:, :, None] * q[:, None, :]).reshape(batch, -1)
        drawn = rng.multinomial(size, joint / joint.sum(axis=1, keepdims=True)).reshape(batch, L, L)
        log_size += (mutual_information(drawn).mean() - observed) * 10.0 / (t + 1)
        if progress is not None:
            progress(1.0 / n_steps)
    return float(np.exp(log_size))


def _information(codes, weights, known: dict, i: int, j: int, L: int) -> float:
    """Return the mutual information of two columns, worked out when first asked for."""
    pair = (min(i, j), max(i, j))
    if pair not in known:
        cells = codes[:, pair[0]].astype(np.intp) * L + codes[:, pair[1]]
        known[pair] = float(mutual_information(np.bincount(cells, weights, L * L).reshape(L, L)))
    return known[pair]


def _frequencies(counts: np.ndarray, present: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return frequencies (batch, L) drawn given counts (batch, L), the concentration drawn from its posterior too."""
    from scipy.special import gammaln

    alpha, K, N = CONCENTRATIONS[:, None], present.sum(axis=1), counts.sum(axis=1)
    inside = gammaln(counts[:, None, :] + alpha) - gammaln(alpha)
    log_p = np.where(present[:, None, :], inside, 0.0).sum(axis=2)
    log_p += gammaln(K[:, None] * CONCENTRATIONS) - gammaln(N[:, None] + K[:, None] * CONCENTRATIONS)
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    cut = np.cumsum(p, axis=1)
    chosen = CONCENTRATIONS[(cut < rng.random((len(cut), 1)) * cut[:, -1:]).sum(axis=1)]
    drawn = np.where(present, rng.standard_gamma(np.where(present, counts + chosen[:, None], 1.0)), 0.0)
    drawn += 1e-300 * present
    return drawn / drawn.sum(axis=1, keepdims=True)
