"""Structure search by hill climbing for a Bayesian network of the response and the predictors."""

# There are M variables; number 0 is the response. ``parents[i]`` is the tuple of the parents of
# variable i, at most two. Matrices (M, M) have an entry for each arc, with the parent in rows and
# the child in columns.

from __future__ import annotations

from itertools import permutations

import numpy as np

from bbl.engines.blanket.families import Families
from bbl.stats.metrics import TIE

__all__ = ["RESPONSE", "climb"]

MAX_PARENTS = 2  # class scores of the network are then fields and couplings of pairs
RESPONSE = 0  # number of the response among the nodes of the network


class _Network:
    """The network during the search.

    The score of the network is the sum of `scores`.

    Attributes
    ----------
    parents : list of tuple of int
    scores_alone : ndarray, shape (M,)
        Score of each variable without parents.
    scores : ndarray, shape (M,)
        Score of each variable with its parents; see `Families.scores_with_parents`.
    scores_with, scores_without : ndarray, shape (M, M)
        Entry (k, i) of `scores_with` is the score of variable i with k as an additional parent, or
        -inf if the family would be too large or would contain predictors that do not interact.
        Entry (k, i) of `scores_without` is its score without its parent k, or -inf if k is not a
        parent.
    is_ancestor : ndarray of bool, shape (M, M)
        Entry (k, i) indicates whether there is a path from k to i.
    """

    def __init__(self, families: Families, interacts: np.ndarray, sample_size: float):
        self.families = families
        self.interacts = interacts
        self.sample_size = sample_size
        M = families.n_variables
        self.parents: list[tuple[int, ...]] = [()] * M
        self.scores_alone = families.scores_alone(sample_size)
        self.scores = self.scores_alone.copy()
        self.scores_with = np.empty((M, M))
        self.scores_without = np.full((M, M), -np.inf)
        self.is_ancestor = np.zeros((M, M), dtype=bool)
        self._scores_by_parents: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
        for i in range(M):
            self._set_scores_with(i)

    def add(self, j: int, i: int) -> None:
        """Add the arc from j to i, which must not close a cycle."""
        self._set_parents(i, (*self.parents[i], j))
        # there is a path from j and its ancestors to i and its descendants
        is_source = self.is_ancestor[:, j].copy()
        is_target = self.is_ancestor[i].copy()
        is_source[j] = is_target[i] = True
        self.is_ancestor |= np.logical_and.outer(is_source, is_target)

    def remove(self, j: int, i: int) -> None:
        """Remove the arc from j to i."""
        self._set_parents(i, tuple(k for k in self.parents[i] if k != j))
        # pairs connected by a path of one arc
        is_ancestor = self.has_arc
        new_pairs = self.has_arc
        while new_pairs.any():  # pairs connected by one more arc, but by no shorter path
            new_pairs = (new_pairs.astype(np.float32) @ self.has_arc > 0.0) & ~is_ancestor
            is_ancestor = is_ancestor | new_pairs
        self.is_ancestor = is_ancestor

    @property
    def has_arc(self) -> np.ndarray:
        """Mask (M, M) of the arcs in the network."""
        return np.isfinite(self.scores_without)

    def addition_gains(self) -> np.ndarray:
        """Return the gain (M, M) from adding each arc; -inf if it would close a cycle."""
        # arc (j, i) closes a cycle if there is a path from i to j
        return np.where(self.is_ancestor.T, -np.inf, self.scores_with - self.scores)

    def removal_gains(self) -> np.ndarray:
        """Return the gain (M, M) from removing each arc; -inf for arcs that do not exist."""
        return self.scores_without - self.scores

    def reversal_gains(self, removal_gains: np.ndarray) -> np.ndarray:
        """Return the gain (M, M) from reversing each arc; -inf if it would close a cycle."""
        gains = removal_gains + (self.scores_with - self.scores).T
        # the reversal of the arc (j, i) closes a cycle if j is an ancestor of another parent of i
        for i, parents in enumerate(self.parents):
            for j, k in permutations(parents, 2):
                if self.is_ancestor[j, k]:
                    gains[j, i] = -np.inf
        return gains

    def first_largest(self, gains: np.ndarray) -> tuple[float, int, int]:
        """Return the largest gain, and the parent and child of its arc.

        If there are ties, the first arc is returned.
        """
        largest = float(gains.max())
        parent, child = divmod(int((gains >= largest - self.rounding).argmax()), len(gains))
        return largest, parent, child

    @property
    def rounding(self) -> float:
        """Largest difference in score that is treated as a tie for this network; see `TIE`."""
        return TIE * float(np.abs(self.scores).sum())

    def _set_parents(self, i: int, parents: tuple[int, ...]) -> None:
        """Change the parents of variable i and update all dependent values except `is_ancestor`."""
        self.parents[i] = parents
        self.scores[i] = self._score(i, parents)
        self.scores_without[:, i] = -np.inf
        for j in parents:
            self.scores_without[j, i] = self._score(i, tuple(k for k in parents if k != j))
        self._set_scores_with(i)

    def _set_scores_with(self, i: int) -> None:
        """Set column i of `scores_with` to the scores of variable i with each additional parent.

        If a family contains the response and two predictors, these predictors must interact in the
        formula, because the table of the family becomes their coupling.
        """
        parents = self.parents[i]
        column = np.full(len(self.parents), -np.inf)
        if len(parents) < MAX_PARENTS:
            column[:] = self._scores_with_one_more(i, parents)
            if i == RESPONSE and parents:
                column[~self.interacts[parents[0]]] = -np.inf
            elif RESPONSE in parents:
                column[~self.interacts[i]] = -np.inf
            elif parents and not self.interacts[i, parents[0]]:
                column[RESPONSE] = -np.inf
            column[[i, *parents]] = -np.inf
        self.scores_with[:, i] = column

    def _score(self, i: int, parents: tuple[int, ...]) -> float:
        """Return the score of variable i with the given parents."""
        if not parents:
            return float(self.scores_alone[i])
        return float(self._scores_with_one_more(i, parents[:-1])[parents[-1]])

    def _scores_with_one_more(self, i: int, parents: tuple[int, ...]) -> np.ndarray:
        """Return the scores (M,) of variable i with `parents` and each possible additional parent.

        `parents` contains at most one variable.
        """
        key = (i, parents)
        if key not in self._scores_by_parents:
            parent = parents[0] if parents else None
            self._scores_by_parents[key] = self.families.scores_with_parents(
                i, parent, self.sample_size
            )
        return self._scores_by_parents[key]


def climb(families: Families, interacts: np.ndarray, sample_size: float) -> list[tuple[int, ...]]:
    """Return the parents of each variable, found by hill climbing from the empty network.

    Each step adds, removes or reverses the arc for which the score increases most. The search stops
    when the score cannot be increased further. The score is the log probability of all variables
    under Dirichlet priors (see `Families.scores_with_parents`). Networks that differ only in the
    directions of arcs may have equal scores. In this case, the arc from the earlier variable is
    added.

    Parameters
    ----------
    families : Families
    interacts : ndarray of bool, shape (M, M)
        Whether each pair of predictors may have a coupling. This is only used for families that
        contain the response.
    sample_size : float
        Imaginary sample size of the priors.
    """
    network = _Network(families, interacts, sample_size)
    while True:
        removal_gains = network.removal_gains()
        addition, removal, reversal = (
            network.first_largest(gains)
            for gains in (
                network.addition_gains(),
                removal_gains,
                network.reversal_gains(removal_gains),
            )
        )
        gain, parent, child = addition
        for other in (removal, reversal):  # only if clearly better
            if other[0] > gain + network.rounding:
                gain, parent, child = other
        if not gain > network.rounding:
            return network.parents
        if (gain, parent, child) != addition:  # a removal or a reversal
            network.remove(parent, child)
            parent, child = child, parent
        if (gain, child, parent) != removal:  # an addition, or the new arc of a reversal
            network.add(parent, child)
