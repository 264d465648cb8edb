"""Energy of encoded rows under several models (the exponent of eq. 6)."""

from __future__ import annotations

import itertools
import math

import numpy as np

from bbl._ext import energy as kernel
from bbl.config import check_memory
from bbl.model.layout import Layout

__all__ = ["Energy", "energies"]

MAX_EXPANSION = 4096


class Energy:
    """Energies of rows under K models that share a layout; the couplings are laid out once.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
        One parameter vector per model.

    Examples
    --------
    >>> layout = Layout([2, 2])
    >>> Energy(layout, np.array([[1.0, 2.0, 4.0]]))(np.array([[1, 1], [0, 1]], dtype=np.uint8))
    array([[7.],
           [2.]])
    """

    def __init__(self, layout: Layout, theta: np.ndarray):
        self.layout = layout
        K, D = len(theta), layout.D
        self.h = np.ascontiguousarray(theta[:, :D].T)
        self.J = np.zeros((0, 0, K))
        if len(layout.pairs):
            check_memory(
                8.0 * D * D * K, f"Prediction with {D} levels and {K} groups", "Predict with fewer predictors."
            )
            self.J = np.zeros((D, D, K))
            row, col = layout.cells
            self.J[row, col] = theta[:, D:].T

    def __call__(self, codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
        """Return the energies (n, K) of `codes` (n, m).

        Where `unknown` (n, m) is set, the predictor is summed out: the energy is then the log of the sum of
        ``exp(E)`` over its levels, so that ``E - ln Z`` stays the log-probability of what is known. Beyond 4096
        combinations of levels in a row, the couplings among its unknown predictors are left out.
        """
        if unknown is None or not unknown.any():
            return self._known(codes)
        rows = unknown.any(axis=1)
        out = np.empty((len(codes), self.h.shape[1]))
        out[~rows] = self._known(np.ascontiguousarray(codes[~rows]))
        patterns, which = np.unique(unknown[rows], axis=0, return_inverse=True)
        position = np.flatnonzero(rows)
        for p, pattern in enumerate(patterns):
            at = position[which.ravel() == p]
            out[at] = self._summed(codes[at], np.flatnonzero(pattern))
        return out

    def _known(self, codes: np.ndarray) -> np.ndarray:
        out = np.empty((len(codes), self.h.shape[1]))
        scratch = np.empty(self.layout.m, dtype=np.intp)
        if len(codes) and self.h.shape[1]:
            kernel.energies(codes, self.layout.start, self.h, self.J, scratch, out)
        return out

    def _summed(self, codes: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """Return the log-sum over all level combinations of the `unknown` predictors.

        With more than 4096 combinations each is summed out by itself, given the known ones.
        """
        levels = self.layout.n_levels[unknown].tolist()
        if math.prod(levels) > MAX_EXPANSION:
            base = codes.copy()
            base[:, unknown] = 0
            known = self._known(base)
            return known + sum(self._summed(base, unknown[[u]]) - known for u in range(len(unknown)))
        total = np.full((len(codes), self.h.shape[1]), -np.inf)
        filled = codes.copy()
        for combination in itertools.product(*(range(L) for L in levels)):
            filled[:, unknown] = combination
            np.logaddexp(total, self._known(filled), out=total)
        return total


def energies(codes: np.ndarray, layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the energies (n, K) of `codes` (n, m) under the K parameter vectors `theta` (K, size)."""
    return Energy(layout, theta)(codes)
