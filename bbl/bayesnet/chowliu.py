"""Chow-Liu trees (tree-augmented naive Bayes) and Sahami's k-dependence classifier."""

from __future__ import annotations

from typing import get_args

import numpy as np

from bbl.bayesnet.dag import Dag, directed_forest
from bbl.bayesnet.information import class_information, pair_information
from bbl.choices import Criterion
from bbl.rows.on_disk import Rows
from bbl.stats.metrics import TIE, falling_order

__all__ = ["SCORES", "chow_liu", "edge_weights", "ordered_kdb", "spanning_forest"]

SCORES = get_args(Criterion)


def edge_weights(sample: Rows, n_levels: np.ndarray, K: int, score: str) -> np.ndarray:
    """Return the weight (m, m) of an edge between each pair of features, above the diagonal.

    The weight is I (``"loglik"``), ``(N I - d) / n`` (``"aic"``) or ``(N I - d log(N) / 2) / n``
    (``"bic"``), where I is the conditional mutual information given the class, ``d = (r_i - 1)(r_j
    - 1) K`` is the number of free parameters, and N is the weight of the rows where both features
    are known. Dividing by the total weight n puts all pairs on the same scale, which is the scale
    of I if no values are missing (N = n). "aic" and "bic" are -inf if ``N = 0``.
    """
    information, weight = pair_information(sample, n_levels, K)
    if score == "loglik":
        return information
    level_parameters = np.asarray(n_levels, dtype=float) - 1.0
    penalty = np.outer(level_parameters, level_parameters) * K
    if score == "bic":
        penalty = penalty / 2 * np.log(np.maximum(weight, 1.0))  # 1 prevents a negative penalty
    return np.where(weight > 0, weight * information - penalty, -np.inf) / sample.total  # n


def spanning_forest(weights: np.ndarray) -> list[tuple[int, int]]:
    """Return the edges (i, j), i < j, of the maximum spanning forest (Kruskal's algorithm).

    Only pairs with weight >= 0 are included. Only the entries of `weights` (m, m) above the
    diagonal are used, and weights in [-TIE, 0) are treated as zero. In case of ties, the first pair
    is chosen.

    Examples
    --------
    >>> spanning_forest(np.array([[0, 3.0, 2.0], [0, 0, 1.0], [0, 0, 0]]))
    [(0, 1), (0, 2)]
    """
    m = len(weights)
    i, j = np.triu_indices(m, 1)
    candidates = np.flatnonzero(weights[i, j] >= -TIE)
    order = candidates[falling_order(weights[i, j][candidates])]
    representative = list(range(m))
    edges = []

    def find_tree(k: int) -> int:
        """Return the root of the tree that contains node k (union-find with path halving)."""
        while representative[k] != k:
            representative[k] = k = representative[representative[k]]
        return k

    for edge in order:
        a = find_tree(int(i[edge]))
        b = find_tree(int(j[edge]))
        if a != b:
            representative[b] = a
            edges.append((int(i[edge]), int(j[edge])))
            if len(edges) == m - 1:
                break
    return edges


def chow_liu(
    sample: Rows, n_levels: np.ndarray, K: int, score: str = "loglik", root: int | None = None
) -> Dag:
    """Return the tree-augmented naive Bayes with the largest score (Friedman et al. 1997).

    `score` is one of `SCORES`. The tree that contains the feature `root` is directed away from it,
    and every other tree is directed away from its first feature.
    """
    weights = edge_weights(sample, n_levels, K, score)
    return directed_forest(len(n_levels), spanning_forest(weights), root)


def ordered_kdb(sample: Rows, n_levels: np.ndarray, K: int, kdbk: int) -> Dag:
    """Return Sahami's k-dependence classifier (1996).

    Features are ordered by decreasing mutual information with the class. The parents of a feature
    are up to `kdbk` of the earlier features: those with the largest mutual information with this
    feature given the class, in decreasing order. In case of ties, earlier columns come first.
    """
    m = len(n_levels)
    upper_triangle, _ = pair_information(sample, n_levels, K)
    information = upper_triangle + upper_triangle.T
    order = falling_order(class_information(sample, n_levels, K))
    parents: dict[int, tuple[int, ...]] = {}
    for n_before, i in enumerate(order):
        candidates = np.sort(order[:n_before])
        best = candidates[falling_order(information[i, candidates])[:kdbk]]
        parents[int(i)] = tuple(int(p) for p in best)
    return Dag(tuple((i, parents[i]) for i in range(m)))
