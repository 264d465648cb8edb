"""MCMC for partitions of raters and of rated items (Li 2014, section 1.2). Raters are the rows of a
table, and items its columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl._ext.bicluster.mcmc import Chain
from bbl.biclustering.cells import Cells
from bbl.biclustering.partition import canonical
from bbl.parallel import stop_flag

__all__ = ["MIXED", "Draws", "log_likelihood", "sample"]

# A group of raters ranks the groups of items and has a parameter lambda in [0, 1], which is 1 if
# the group does not distinguish items. An item has a weight w, its popularity. Let ``v_i = w_i
# lambda^rank``, where rank is given by the rater's group to the group of item i. The set R of the n
# items rated by a rater then has the probability ``prod_{i in R} v_i / e_n(v)``. The elementary
# symmetric polynomial e_n is the sum of such products over all sets of n items.

MIXED = 1.1  # chains have mixed if split R-hat is at most this


class Draws(NamedTuple):
    """The draws of one chain, or of several chains along the first axis.

    Attributes
    ----------
    rows, columns : ndarray of int32, shape (..., draws, raters) and (..., draws, items)
        Labels of the groups of raters and of items.
    log_posterior : ndarray, shape (..., draws)
        Log posterior density, up to a constant.
    loyalty : ndarray, shape (..., raters)
        Mean lambda of each rater's group.
    popularity : ndarray, shape (..., items)
        Mean w of each item.
    """

    rows: np.ndarray
    columns: np.ndarray
    log_posterior: np.ndarray
    loyalty: np.ndarray
    popularity: np.ndarray

    @property
    def traces(self) -> np.ndarray:
        """Log posterior and numbers of groups of raters and of items in each draw, shape (...,
        draws, 3).
        """
        groups = [labels.max(axis=-1) + 1.0 for labels in (self.rows, self.columns)]
        return np.stack([self.log_posterior, *groups], axis=-1)


def _chain(
    cells: Cells, alpha: float, sigma: float, step: float, popularity, rng: np.random.Generator
) -> Chain:
    """Return a chain without partitions.

    `popularity` (items,) contains the weights w; None means equal weights. `alpha` is the
    concentration of the prior on the weights (0 fixes them), `sigma` the prior standard deviation
    of the logit of lambda, and `step` the proposal standard deviation.
    """
    w = np.ones(cells.shape[1]) if popularity is None else np.asarray(popularity, dtype=float)
    stream = rng.integers(1, 2**64, 4, dtype=np.uint64)  # state of the kernel's random generator
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
    """Return random labels (n,) of k groups, where k is drawn uniformly from 1 to min(n, 10).

    Some groups may be empty.
    """
    return canonical(rng.integers(1 + rng.integers(min(n, 10)), size=n)).astype(np.int32)


def sample(cells: Cells, seed: int, options: dict, popularity: np.ndarray | None = None) -> Draws:
    """Run one chain from random partitions.

    `cells` contains the items (columns) that were rated by each rater (row), and `options` the
    options of `Mcmc` from ``draws`` to ``step``. If given, `popularity` (items,) contains fixed
    weights w; otherwise, w is drawn from its posterior.
    """
    rng = np.random.default_rng(seed)
    n = options["draws"]
    alpha = options["alpha"] if popularity is None else 0.0  # 0 fixes the weights
    chain = _chain(cells, alpha, options["sigma"], options["step"], popularity, rng)
    # items, then raters
    chain.set(_random_partition(cells.shape[1], rng), _random_partition(cells.shape[0], rng))
    rows, columns = (np.zeros((n, size), dtype=np.int32) for size in cells.shape)
    # the kernel stores the draws, and sums up lambda of each rater's group and w of each item
    log_posterior = np.zeros(n)
    loyalty_sum = np.zeros(cells.shape[0])
    weight_sum = np.zeros(cells.shape[1])
    chain.run(options["warmup"])
    chain.record(options["thin"], rows, columns, log_posterior, loyalty_sum, weight_sum)
    return Draws(rows, columns, log_posterior, loyalty_sum / n, weight_sum / n)


def log_likelihood(cells: Cells, rows, columns, gamma, rank, popularity) -> float:
    """Return the log-likelihood of the rated items, which is eq. 1.1 with its normalising constant.

    `rows` (raters,) and `columns` (items,) are labels of a and b groups, `gamma` (a,) contains the
    logits of lambda, `rank` (a, b) the rank 1, 2, ... that each group of raters gives to each group
    of items, and `popularity` (items,) the weights w.
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
