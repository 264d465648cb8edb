"""MCMC for the partitions of raters and of the items that they rate (section 1.2 of the thesis of
Li 2014).

A group of raters ranks the groups of items and has a lambda in [0, 1], 1 if all items are alike to
it; an item has a weight w, its popularity. With ``v_i = w_i lambda^rank``, for the rank that the
rater's group gives to the group of item i, the set R of the n items that a rater rates has the
probability ``prod_{i in R} v_i / e_n(v)``; e_n is the elementary symmetric polynomial, the sum of
such products over all sets of n items. Rows of a table are raters, columns are items. In `Cells`,
the items of rater j are ``column[start[j]:start[j + 1]]``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl._ext.bicluster.mcmc import Chain
from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import canonical
from bbl.parallel import stop_flag

__all__ = ["MIXED", "Draws", "log_likelihood", "sample"]

MIXED = 1.1  # chains count as mixed up to this split R-hat


class Draws(NamedTuple):
    """Draws of one chain, or of several, whose first axis is then the chain.

    Attributes
    ----------
    rows, columns : ndarray of int32, shape (..., draws, raters) and (..., draws, items)
        Labels of the groups of raters and of items.
    log_posterior : ndarray, shape (..., draws)
        Up to a constant.
    loyalty : ndarray, shape (..., raters)
        Mean of the lambda of each rater's group.
    popularity : ndarray, shape (..., items)
        Mean of w of each item.
    """

    rows: np.ndarray
    columns: np.ndarray
    log_posterior: np.ndarray
    loyalty: np.ndarray
    popularity: np.ndarray

    @property
    def traces(self) -> np.ndarray:
        """Log posterior, number of groups of raters and of items of each draw, shape (..., draws,
        3).
        """
        groups = [labels.max(axis=-1) + 1.0 for labels in (self.rows, self.columns)]
        return np.stack([self.log_posterior, *groups], axis=-1)


def _chain(
    cells: Cells, alpha: float, sigma: float, step: float, popularity, rng: np.random.Generator
) -> Chain:
    """Return a chain without partitions yet; `popularity` (items,) holds the weights w, None for
    equal ones.

    `alpha` is the concentration of the prior of the weights, which alpha = 0 fixes; `sigma` the
    prior standard deviation of the logit of lambda; `step` that of its proposals.
    """
    w = np.ones(cells.shape[1]) if popularity is None else np.asarray(popularity, dtype=float)
    stream = rng.integers(1, 2**64, 4, dtype=np.uint64)  # state of the kernel's generator
    return Chain(
        cells.start,
        cells.column,
        cells.shape[1],
        alpha,
        sigma,
        step,
        np.log(w),
        stream,
        stop_flag(),
    )


def _random_partition(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return random labels (n,) of k groups, some of which may be empty, with k uniform in
    1..min(n, 10).
    """
    return canonical(rng.integers(1 + rng.integers(min(n, 10)), size=n)).astype(np.int32)


def sample(cells: Cells, seed: int, options: dict, popularity: np.ndarray | None = None) -> Draws:
    """Run one chain from random partitions.

    `cells` hold the items (columns) that each rater (row) rated; `options` the options of `Mcmc`
    from ``draws`` to ``step``; `popularity` (items,) fixed weights w, which by default are drawn
    from their posterior.
    """
    rng = np.random.default_rng(seed)
    n = options["draws"]
    alpha = options["alpha"] if popularity is None else 0.0  # 0: the weights are fixed
    chain = _chain(cells, alpha, options["sigma"], options["step"], popularity, rng)
    # items, then raters
    chain.set(_random_partition(cells.shape[1], rng), _random_partition(cells.shape[0], rng))
    rows, columns = (np.zeros((n, size), dtype=np.int32) for size in cells.shape)
    # the kernel fills the draws, and adds up lambda of each rater's group and w of each item
    log_posterior = np.zeros(n)
    loyalty_sum = np.zeros(cells.shape[0])
    weight_sum = np.zeros(cells.shape[1])
    chain.run(options["warmup"])
    chain.record(options["thin"], rows, columns, log_posterior, loyalty_sum, weight_sum)
    return Draws(rows, columns, log_posterior, loyalty_sum / n, weight_sum / n)


def log_likelihood(cells: Cells, rows, columns, gamma, rank, popularity) -> float:
    """Return the log-likelihood of the rated items: eq. 1.1 with the normaliser that the equation
    lacks.

    `rows` (raters,) and `columns` (items,) are labels of a and b groups, `gamma` (a,) the logits of
    lambda, `rank` (a, b) the ranks 1, 2, ... that groups of raters give to groups of items,
    `popularity` (items,) the weights w.
    """
    # priors and proposals are not used
    chain = _chain(
        cells, alpha=0.0, sigma=1.0, step=1.0, popularity=popularity, rng=np.random.default_rng(0)
    )
    chain.set(
        np.ascontiguousarray(columns, dtype=np.int32),
        np.ascontiguousarray(rows, dtype=np.int32),
        gamma,
        rank,
    )
    return chain.value()[0]  # the log-likelihood; the other value is the log posterior
