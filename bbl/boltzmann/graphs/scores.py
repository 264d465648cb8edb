"""Saturated likelihoods of sets of predictors for graphical models, and the scores of a search.

The model of a graph contains all terms of predictors that are joined pairwise. A set of predictors
is a *bit set* `mask`: an integer with bit i for predictor i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.rows.sample import Sample

__all__ = ["GraphScores", "Margins", "members"]

# in tables with more cells, only the positive ones are numbered
MAX_COUNTED_CELLS = 2**22


def members(mask: int) -> list[int]:
    """Return the predictors of a bit set, in increasing order."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


@dataclass(frozen=True)
class GraphScores:
    """The G graphs of a search that have non-negligible weight, with E possible edges.

    Attributes
    ----------
    pairs : ndarray of int, shape (E, 2)
        All pairs of predictors, i.e. the possible edges.
    edges : ndarray of bool, shape (G, E)
        Whether each graph has each edge.
    log_likelihood : ndarray, shape (G,)
        Maximised log-likelihood of the model of each graph.
    n_parameters : ndarray, shape (G,)
        Number of parameters, including those that are not estimable.
    n_graphs : int
        Number of graphs compared, including graphs with negligible weight.
    is_exhaustive : bool
        Whether all possible graphs were compared.
    """

    pairs: np.ndarray
    edges: np.ndarray
    log_likelihood: np.ndarray
    n_parameters: np.ndarray
    n_graphs: int
    is_exhaustive: bool

    def criterion(self, k: float) -> np.ndarray:
        """Return ``-2 log-likelihood + k parameters`` of each graph, shape (G,)."""
        return -2.0 * self.log_likelihood + k * self.n_parameters


class Margins:
    """Marginal tables and likelihoods of sets of predictors, which are cached.

    Parameters
    ----------
    rows : Sample
        Complete rows, which are pooled over the groups.
    n_levels : ndarray of int, shape (m,)

    Attributes
    ----------
    rows : Sample
        One row for each distinct state, with its weight.
    n_levels : list of m int
    """

    def __init__(self, rows: Sample, n_levels: np.ndarray):
        self.rows = rows.pooled.collapsed(n_levels)
        self.n_levels = [int(L) for L in n_levels]
        self._log_likelihoods: dict[int, float] = {0: 0.0}  # by bit set; 0 for the empty set

    def log_likelihood(self, mask: int) -> float:
        """Return the saturated log-likelihood ``sum n ln(n / N)`` of a set of predictors."""
        if mask not in self._log_likelihoods:
            counts = self._positive_counts(mask)
            self._log_likelihoods[mask] = float(counts @ np.log(counts / self.rows.total))
        return self._log_likelihoods[mask]

    def counts(self, mask: int) -> np.ndarray:
        """Return the table of counts of a set of predictors, which are in increasing order."""
        axes = members(mask)
        shape = [self.n_levels[i] for i in axes]
        cells = np.ravel_multi_index(
            tuple(self.rows.codes[:, i].astype(np.intp) for i in axes), shape
        )
        return np.bincount(cells, self.rows.weights, int(np.prod(shape))).reshape(shape)

    def _positive_counts(self, mask: int) -> np.ndarray:
        """Return the positive counts in the table of a set of predictors, in cell order."""
        cells = np.zeros(self.rows.n, dtype=np.intp)
        n_cells = 1
        for i in members(mask):
            cells = cells * self.n_levels[i] + self.rows.codes[:, i]
            n_cells *= self.n_levels[i]
            # renumber the cells that occur, to keep the numbers small
            if n_cells > MAX_COUNTED_CELLS:
                cells = np.unique(cells, return_inverse=True)[1].ravel()
                n_cells = int(cells.max()) + 1
        counts = np.bincount(cells, self.rows.weights)
        return counts[counts > 0.0]
