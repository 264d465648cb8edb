"""Families of a Bayesian network: counts of a variable with its parents, their marginal likelihood and probabilities.

Variables are the response, number 0, and m predictors, in a fixed order. A *family* is a variable with its parents, at
most two. The variables have L_0, L_1, ... levels; `S` is the sum of these, and `blocks` (M + 1,) are the positions at
which the levels of each of the M = m + 1 variables begin among the S levels of all.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Families"]


class Families:
    """Counts of the families of some rows, and their scores under a Dirichlet prior.

    Attributes
    ----------
    codes : ndarray of intp, shape (n, M)
        Levels of all variables.
    weights : ndarray, shape (n,)
        Numbers of observations.
    n_levels : ndarray of intp, shape (M,)
    blocks : ndarray of intp, shape (M + 1,)
    """

    def __init__(self, codes: np.ndarray, weights: np.ndarray, n_levels: np.ndarray):
        self.codes, self.weights = np.ascontiguousarray(codes, dtype=np.intp), weights
        self.n_levels = n_levels.astype(np.intp)
        self.blocks = np.concatenate([[0], np.cumsum(self.n_levels)])
        self._with_parent: dict[tuple[int, int], np.ndarray] = {}  # counts of `_count_with_parent`

    @property
    def n_variables(self) -> int:
        """Number M of variables."""
        return len(self.n_levels)

    def count_with_others(self, cells: np.ndarray, n_cells: int) -> np.ndarray:
        """Return the counts (n_cells, S) of the rows in each of `n_cells` cells at each level of every variable.

        `cells` (n,) has the cell of each row.
        """
        out = np.empty((n_cells, self.blocks[-1]))
        for k, (start, end) in enumerate(zip(self.blocks[:-1], self.blocks[1:], strict=True)):
            flat_cells = cells * (end - start) + self.codes[:, k]
            out[:, start:end] = np.bincount(flat_cells, self.weights, n_cells * (end - start)).reshape(n_cells, -1)
        return out

    def count_family(self, *variables: int) -> np.ndarray:
        """Return the counts (L_i, L_j, ...) of the joint levels of some variables."""
        shape = tuple(self.n_levels[list(variables)])
        cells = np.ravel_multi_index(tuple(self.codes[:, i] for i in variables), shape)
        return np.bincount(cells, self.weights, int(np.prod(shape))).reshape(shape)

    def scores_alone(self, sample_size: float) -> np.ndarray:
        """Return the score (M,) of each variable without parents; see `scores_with_parents`."""
        counts = np.concatenate([self.count_family(i) for i in range(self.n_variables)])
        prior = np.repeat(sample_size / self.n_levels, self.n_levels)  # (S,): alpha/L_i, as q is 1
        of_all_rows = _gain_by_level(np.array([sample_size]), self.weights.sum(keepdims=True))
        return np.add.reduceat(_gain_by_level(prior, counts), self.blocks[:-1]) - of_all_rows

    def scores_with_parents(self, i: int, j: int | None, sample_size: float) -> np.ndarray:
        """Return the score (M,) of variable `i` with the parents j and k, for every variable k; j may be None.

        The score is the logarithm of the probability of the levels of i given those of its parents, under Dirichlet
        priors of the same `sample_size` alpha for every family (BDeu; Heckerman, Geiger & Chickering 1995):
        ``sum_b [lnG(alpha/q) - lnG(alpha/q + n_b) + sum_a lnG(alpha/(q L_i) + n_ab) - lnG(alpha/(q L_i))]`` over the q
        joint levels b of the parents and the levels a of i, with counts n. lnG is the log gamma function. Entries k = i
        and k = j mean nothing.
        """
        counts = self._count_with_parent(i, j)  # (L_i, L_j, S), or (L_i, 1, S) without j
        # (S,): q = L_j L_k at each level of k
        n_joint = counts.shape[1] * np.repeat(self.n_levels, self.n_levels)
        parent_prior = sample_size / n_joint  # alpha/q
        prior = parent_prior / len(counts)  # alpha/(q L_i)
        by_level = _gain_by_level(prior, counts) - _gain_by_level(parent_prior, counts.sum(axis=0))
        return np.add.reduceat(by_level, self.blocks[:-1])  # sums over the levels of each k

    def _count_with_parent(self, i: int, j: int | None) -> np.ndarray:
        """Return the counts (L_i, L_j, S) of variables i and j with every third variable; (L_i, 1, S) without j."""
        key = (i, -1 if j is None else j)
        if key not in self._with_parent:
            n_parent_levels = 1 if j is None else int(self.n_levels[j])
            cells = self.codes[:, i] * n_parent_levels + (0 if j is None else self.codes[:, j])
            counts = self.count_with_others(cells, int(self.n_levels[i]) * n_parent_levels)
            self._with_parent[key] = counts.reshape(int(self.n_levels[i]), n_parent_levels, -1)
        return self._with_parent[key]

    def log_probabilities(self, i: int, parents: tuple[int, ...], sample_size: float) -> np.ndarray:
        """Return ln P(level of i | levels of its parents), shape (L_i, L_j, ...), of posterior means.

        The prior is that of the scores: `sample_size` rows, spread evenly over all cells.
        """
        counts = self.count_family(i, *parents)
        smoothed = counts + sample_size / counts.size
        return np.log(smoothed / smoothed.sum(axis=0))


def _gain_by_level(prior: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the sum of ``lnG(prior + n) - lnG(prior)`` over all axes of counts n (..., S) but the last, `prior` (S,).

    Most cells of few rows and many levels are empty, and add nothing.
    """
    from scipy.special import gammaln

    S = len(prior)
    filled = np.flatnonzero(counts)
    level, n = filled % S, counts.ravel()[filled]
    return np.bincount(level, gammaln(prior[level] + n), S) - np.bincount(level, minlength=S) * gammaln(prior)
