"""Families of variables in a Bayesian network: counts, marginal likelihoods and probabilities."""

# A *family* is a variable with its parents, at most two. Variables are the response, number 0, and
# m predictors, in a fixed order; in total there are M = m + 1, with L_0, L_1, ... levels. `S` is
# the sum of these numbers, and `blocks` (M + 1,) are the positions at which each variable's levels
# begin among all S.

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl._ext.network import families as kernel

__all__ = ["Families"]


class Families:
    """Row counts for each family of variables, and family scores under a Dirichlet prior.

    Attributes
    ----------
    codes : ndarray of intp, shape (n, M)
        Levels of all variables.
    weights : ndarray, shape (n,)
        Number of observations in each row.
    n_levels : ndarray of intp, shape (M,)
    blocks : ndarray of intp, shape (M + 1,)
    """

    def __init__(self, codes: np.ndarray, weights: np.ndarray, n_levels: np.ndarray):
        self.codes = np.ascontiguousarray(codes, dtype=np.intp)
        self.weights = np.ascontiguousarray(weights, dtype=float)
        self.n_levels = n_levels.astype(np.intp)
        self.blocks = np.concatenate([[0], np.cumsum(self.n_levels)])
        # positions of the levels among all S levels
        self._positions = (self.codes + self.blocks[:-1]).astype(np.int32)
        # (1, S)
        self._alone = _FilledCells.of(
            self.count_with_others(np.zeros(len(weights), dtype=np.intp), 1)
        )
        # caches for `_count_with_parent` and `_parent_gain_by_level`
        self._with_parent: dict[tuple[int, int | None], _FilledCells] = {}
        self._parent_gains: dict[tuple[int | None, float], np.ndarray] = {}

    @property
    def n_variables(self) -> int:
        """Number M of variables."""
        return len(self.n_levels)

    def count_with_others(self, cells: np.ndarray, n_cells: int) -> np.ndarray:
        """Return the row counts (n_cells, S) for each cell and each level of every variable.

        `cells` (n,) contains the cell of each row, numbered from 0 to `n_cells` - 1.
        """
        counts = np.zeros((n_cells, self.blocks[-1]))
        kernel.add_level_counts(self._positions, cells, self.weights, counts)
        return counts

    def count_family(self, *variables: int) -> np.ndarray:
        """Return the counts (L_i, L_j, ...) of joint levels of several variables."""
        shape = tuple(self.n_levels[list(variables)])
        cells = np.ravel_multi_index(tuple(self.codes[:, i] for i in variables), shape)
        return np.bincount(cells, self.weights, int(np.prod(shape))).reshape(shape)

    def scores_alone(self, sample_size: float) -> np.ndarray:
        """Return the score (M,) of each variable without parents; see `scores_with_parents`."""
        prior = np.repeat(sample_size / self.n_levels, self.n_levels)  # (S,): alpha/L_i, with q = 1
        of_all_rows = _FilledCells.of(self.weights.sum(keepdims=True)).gain_by_level(
            np.array([sample_size])
        )
        return np.add.reduceat(self._alone.gain_by_level(prior), self.blocks[:-1]) - of_all_rows

    def scores_with_parents(self, i: int, j: int | None, sample_size: float) -> np.ndarray:
        """Return the scores (M,) of variable `i` with parents `j` and k, for every variable k.

        If `j` is None, k is the only parent. The score is the log probability of the data for
        variable i given its parents, under Dirichlet priors with the same `sample_size` alpha for
        every family (BDeu; Heckerman, Geiger & Chickering 1995): ``sum_b [lnG(alpha/q) -
        lnG(alpha/q + n_b) + sum_a lnG(alpha/(q L_i) + n_ab) - lnG(alpha/(q L_i))]`` over the q
        joint levels b of the parents and the levels a of i, with counts n. lnG is the log gamma
        function. The entries for k = i and k = j are not meaningful.
        """
        # (S,): q L_i at each level of k
        n_joint = (
            self.n_levels[i]
            * (1 if j is None else self.n_levels[j])
            * np.repeat(self.n_levels, self.n_levels)
        )
        by_level = self._count_with_parent(i, j).gain_by_level(sample_size / n_joint)
        # sums over the levels of each k
        return np.add.reduceat(
            by_level - self._parent_gain_by_level(j, sample_size), self.blocks[:-1]
        )

    def _parent_gain_by_level(self, j: int | None, sample_size: float) -> np.ndarray:
        """Return the parents' part of the score, summed over j, for each level of k, shape (S,).

        The terms are ``lnG(alpha/q + n_b) - lnG(alpha/q)``; see `scores_with_parents`.
        """
        key = (j, sample_size)
        if key not in self._parent_gains:
            n_joint = (1 if j is None else self.n_levels[j]) * np.repeat(
                self.n_levels, self.n_levels
            )
            counts = self._alone if j is None else self._count_with_parent(j, None)
            self._parent_gains[key] = counts.gain_by_level(sample_size / n_joint)
        return self._parent_gains[key]

    def _count_with_parent(self, i: int, j: int | None) -> _FilledCells:
        """Return the counts (L_i, L_j, S) of i, j and any variable, or (L_i, S) if j is None."""
        key = (i, j)
        if key not in self._with_parent:
            n_parent_levels = 1 if j is None else int(self.n_levels[j])
            cells = self.codes[:, i] * n_parent_levels + (0 if j is None else self.codes[:, j])
            counts = self.count_with_others(cells, int(self.n_levels[i]) * n_parent_levels)
            self._with_parent[key] = _FilledCells.of(counts)
        return self._with_parent[key]

    def log_probabilities(self, i: int, parents: tuple[int, ...], sample_size: float) -> np.ndarray:
        """Return the log posterior mean of P(level of i | levels of its parents), (L_i, L_j, ...).

        The prior is the same as for the scores: `sample_size` rows, spread evenly over all cells.
        """
        counts = self.count_family(i, *parents)
        smoothed = counts + sample_size / counts.size
        return np.log(smoothed / smoothed.sum(axis=0))


@dataclass(frozen=True)
class _FilledCells:
    """The cells of a table (..., S) that have positive counts.

    With few rows and many levels, most cells are empty.

    Attributes
    ----------
    levels : ndarray of int32, shape (cells,)
        Positions of the cells on the last axis.
    counts : ndarray, shape (cells,)
    n_by_level : ndarray of intp, shape (S,)
        Number of filled cells at each position on the last axis.
    """

    levels: np.ndarray
    counts: np.ndarray
    n_by_level: np.ndarray

    @classmethod
    def of(cls, table: np.ndarray) -> _FilledCells:
        """Return the filled cells of a table of counts."""
        S = table.shape[-1]
        filled = np.flatnonzero(table)
        levels = (filled % S).astype(np.int32)
        return cls(levels, table.ravel()[filled], np.bincount(levels, minlength=S))

    def gain_by_level(self, prior: np.ndarray) -> np.ndarray:
        """Return the sums (S,) of ``lnG(prior + n) - lnG(prior)`` over the counts n at each level.

        `prior` has shape (S,).
        """
        from scipy.special import gammaln

        gains = np.bincount(self.levels, gammaln(prior[self.levels] + self.counts), len(prior))
        return gains - self.n_by_level * gammaln(prior)
