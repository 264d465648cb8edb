"""The Du process: a Markov chain on partitions of items (Li 2014, appendix A)."""

from __future__ import annotations

import numpy as np

from bbl._ext.bicluster import genetic as kernel
from bbl.biclustering.partition import canonical
from bbl.memory import check_memory

__all__ = ["du_draws"]


def du_draws(start: np.ndarray, draws: int, thin: int, rng: np.random.Generator) -> np.ndarray:
    """Return partitions (draws, n) with canonical labels; successive partitions are `thin` steps
    apart.

    The first partition is `thin` steps after the labels `start` (n,).

    Examples
    --------
    >>> du_draws(np.zeros(3, dtype=int), 1, 1, np.random.default_rng(0)).shape
    (1, 3)
    """
    check_memory(4.0 * draws * len(start), f"Storing {draws} partitions", "Increase thin.")
    labels = canonical(start).astype(np.int32)
    stream = rng.integers(1, 2**64, 4, dtype=np.uint64)  # state of the kernel's random generator
    out = np.empty((draws, len(labels)), dtype=np.int32)
    for row in out:
        kernel.du_steps(labels, thin, stream)
        row[:] = labels
    return out
