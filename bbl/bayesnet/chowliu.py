"""Chow-Liu: the tree-augmented naive Bayes of largest (penalised) likelihood, and Sahami's k-dependence classifier."""

from __future__ import annotations

import numpy as np

from bbl.bayesnet.dag import Dag, directed_forest
from bbl.bayesnet.information import class_information, pair_information
from bbl.rows.on_disk import Rows
from bbl.stats.ties import TIE, falling_order

__all__ = ["SCORES", "chow_liu", "edge_weights", "ordered_kdb", "spanning_forest"]

SCORES = ("loglik", "aic", "bic")


def edge_weights(sample: Rows, n_levels: np.ndarray, K: int, score: str) -> np.ndarray:
    """Return the weight of each pair above the diagonal, shape (m, m); a negative one is not worth its parameters.

    The conditional mutual information I for ``"loglik"``; for ``"aic"`` and ``"bic"`` the gain per row of the sample,
    ``N I - d`` and ``N I - d log(N) / 2`` over the sample's weight, with ``d = (r_i - 1)(r_j - 1) r_C`` and N the
    weight of the rows in which the pair is known; -inf if there are none.
    """
    information, weight = pair_information(sample, n_levels, K)
    if score == "loglik":
        return information
    free = np.asarray(n_levels, dtype=float) - 1.0
    price = np.outer(free, free) * K
    if score == "bic":
        price = price / 2 * np.log(np.maximum(weight, 1.0))
    return np.where(weight > 0, weight * information - price, -np.inf) / sample.total


def spanning_forest(weights: np.ndarray) -> list[tuple[int, int]]:
    """Return the edges of the maximum spanning forest over the weights that are not negative (Kruskal).

    Of pairs of equal weight, as `falling_order` has it, the first is taken; a weight of less than rounding is zero.

    Examples
    --------
    >>> spanning_forest(np.array([[0, 3.0, 2.0], [0, 0, 1.0], [0, 0, 0]]))
    [(0, 1), (0, 2)]
    """
    m = len(weights)
    i, j = np.triu_indices(m, 1)
    candidates = np.flatnonzero(weights[i, j] >= -TIE)
    order = candidates[falling_order(weights[i, j][candidates])]
    root, edges = list(range(m)), []

    def find(k: int) -> int:
        while root[k] != k:
            root[k] = k = root[root[k]]
        return k

    for e in order:
        a, b = find(int(i[e])), find(int(j[e]))
        if a != b:
            root[b] = a
            edges.append((int(i[e]), int(j[e])))
            if len(edges) == m - 1:
                break
    return edges


def chow_liu(sample: Rows, n_levels: np.ndarray, K: int, score: str = "loglik", root: int | None = None) -> Dag:
    """Return the tree-augmented naive Bayes that maximises a decomposable score (Friedman et al. 1997).

    Parameters
    ----------
    sample : Sample
    n_levels : ndarray, shape (m,)
    K : int
        Classes.
    score : {"loglik", "aic", "bic"}
    root : int, optional
        Feature from which its tree is directed away; every other tree is directed away from its first feature.

    Returns
    -------
    Dag
    """
    weights = edge_weights(sample, n_levels, K, score)
    return directed_forest(len(n_levels), spanning_forest(weights), root)


def ordered_kdb(sample: Rows, n_levels: np.ndarray, K: int, kdbk: int) -> Dag:
    """Return Sahami's k-dependence classifier (1996).

    Features are taken in the order of their information about the class; each has as parents the (up to) `kdbk` ones
    before it that tell most about it given the class, the most telling first. Of equal ones the first column is taken.
    """
    m = len(n_levels)
    upper, _ = pair_information(sample, n_levels, K)
    information = upper + upper.T
    order = falling_order(class_information(sample, n_levels, K))
    parents: dict[int, tuple[int, ...]] = {}
    for place, i in enumerate(order):
        before = np.sort(order[:place])
        best = before[falling_order(information[i, before])[:kdbk]]
        parents[int(i)] = tuple(int(p) for p in best)
    return Dag(tuple((i, parents[i]) for i in range(m)))
