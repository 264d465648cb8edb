"""Search for the structure of a Bayesian network of response and predictors: hill climbing by the score of families.

M variables, of which number 0 is the response. ``parents[i]`` is the tuple of the parents of variable i, at most two.
Matrices (M, M) have the parent in rows and the child in columns.
"""

from __future__ import annotations

import numpy as np

from bbl.engines.blanket.families import Families
from bbl.stats.ties import TIE

__all__ = ["climb"]

MAX_PARENTS = 2  # with two, the class scores of a network are fields and couplings of pairs
RESPONSE = 0


class _Network:
    """A network on its way up the hill.

    Attributes
    ----------
    parents : list of tuple of int
    scores : ndarray, shape (M,)
        Score of each variable with its parents.
    scores_with : ndarray, shape (M, M)
        Entry (k, i): score of variable i with its parents and k; -inf where k may not become a parent.
    is_ancestor : ndarray of bool, shape (M, M)
        Entry (k, i): whether a path leads from k to i.
    """

    def __init__(self, families: Families, interacts: np.ndarray, sample_size: float):
        self.families, self.interacts, self.sample_size = families, interacts, sample_size
        M = families.n_variables
        self.parents: list[tuple[int, ...]] = [()] * M
        self.scores_alone = families.scores_alone(sample_size)
        self.scores = self.scores_alone.copy()
        self.scores_with = np.empty((M, M))
        self.is_ancestor = np.zeros((M, M), dtype=bool)
        self._known: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
        for i in range(M):
            self._update_scores_with(i)

    def _scores_with_one_more(self, i: int, parents: tuple[int, ...]) -> np.ndarray:
        """Return the score (M,) of variable i with `parents`, at most one, and each variable as a further parent."""
        key = (i, parents)
        if key not in self._known:
            self._known[key] = self.families.scores_with_parents(i, parents[0] if parents else None, self.sample_size)
        return self._known[key]

    def score(self, i: int, parents: tuple[int, ...]) -> float:
        """Return the score of variable i with some parents."""
        if not parents:
            return float(self.scores_alone[i])
        return float(self._scores_with_one_more(i, parents[:-1])[parents[-1]])

    def _update_scores_with(self, i: int) -> None:
        """Set column i of `scores_with`, after its parents changed."""
        parents = self.parents[i]
        column = np.full(len(self.parents), -np.inf)
        if len(parents) < MAX_PARENTS:
            column[:] = self._scores_with_one_more(i, parents)
            if i == RESPONSE and parents:  # both parents are in one table of the response
                column[~self.interacts[parents[0]]] = -np.inf
            elif RESPONSE in parents:
                column[~self.interacts[i]] = -np.inf
            elif parents and not self.interacts[i, parents[0]]:
                column[RESPONSE] = -np.inf
            column[[i, *parents]] = -np.inf
        self.scores_with[:, i] = column

    def set_parents(self, i: int, parents: tuple[int, ...]) -> None:
        """Give variable i other parents; `find_ancestors` must follow."""
        self.scores[i] = self.score(i, parents)
        self.parents[i] = parents
        self._update_scores_with(i)

    def find_ancestors(self) -> None:
        """Set `is_ancestor` from the parents."""
        M = len(self.parents)
        reached = np.zeros((M, M), dtype=bool)
        for i, parents in enumerate(self.parents):
            reached[list(parents), i] = True
        while True:
            further = reached | (reached.astype(np.float32) @ reached.astype(np.float32) > 0.0)
            if (further == reached).all():
                break
            reached = further
        self.is_ancestor = reached

    def best_addition(self) -> tuple[float, int, int]:
        """Return the gain of the best further arc, and its parent and child."""
        gains = np.where(self.is_ancestor.T, -np.inf, self.scores_with - self.scores)
        np.fill_diagonal(gains, -np.inf)
        return self._first_largest(gains)

    def best_removal(self) -> tuple[float, int, int]:
        """Return the gain of the best removal of an arc, and its parent and child."""
        gains = np.full(self.scores_with.shape, -np.inf)
        for i, parents in enumerate(self.parents):
            for j in parents:
                gains[j, i] = self.score(i, _without(parents, j)) - self.scores[i]
        return self._first_largest(gains)

    def best_reversal(self) -> tuple[float, int, int]:
        """Return the gain of the best reversal of an arc, and its present parent and child."""
        gains = np.full(self.scores_with.shape, -np.inf)
        for i, parents in enumerate(self.parents):
            for j in parents:
                others = _without(parents, j)
                has_other_path = any(self.is_ancestor[j, k] for k in others)
                if not has_other_path:
                    loss = self.scores[i] - self.score(i, others)
                    gains[j, i] = self.scores_with[i, j] - self.scores[j] - loss
        return self._first_largest(gains)

    def _first_largest(self, gains: np.ndarray) -> tuple[float, int, int]:
        """Return the largest of some gains (M, M), and its row and column: the first of equal ones."""
        largest = float(gains.max(initial=-np.inf))
        row, column = divmod(int((gains >= largest - self.rounding).argmax()), len(gains))
        return largest, row, column

    @property
    def rounding(self) -> float:
        """Difference of scores below which they are equal."""
        return TIE * float(np.abs(self.scores).sum())


def climb(families: Families, interacts: np.ndarray, sample_size: float) -> list[tuple[int, ...]]:
    """Return the parents of each variable, found by hill climbing from the network without arcs.

    In each step the arc is added, removed or reversed that raises the score most, the probability of all variables
    under Dirichlet priors (see `Families.scores_with_parents`), until none raises it. Two networks that have the same
    score for all rows differ in directions alone; of equal arcs that from the earlier variable is added.

    Parameters
    ----------
    families : Families
    interacts : ndarray of bool, shape (M, M)
        Whether the model may have a coupling of two variables; only families with the response ask for it.
    sample_size : float
        Imaginary sample size of the priors.
    """
    network = _Network(families, interacts, sample_size)
    while True:
        gain, j, i = network.best_addition()
        changes = {i: (*network.parents[i], j)}
        for best, is_reversed in ((network.best_removal(), False), (network.best_reversal(), True)):
            if best[0] > gain + network.rounding:
                gain, j, i = best
                changes = {i: _without(network.parents[i], j)}
                if is_reversed:
                    changes[j] = (*network.parents[j], i)
        if not gain > network.rounding:
            return network.parents
        for child, parents in changes.items():
            network.set_parents(child, parents)
        network.find_ancestors()


def _without(parents: tuple[int, ...], parent: int) -> tuple[int, ...]:
    """Return parents without one of them."""
    return tuple(k for k in parents if k != parent)
