"""Classification trees on categorical features, and the depth of the first split on each feature.

There are m features and K classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from bbl.bayesnet.families import Families
from bbl.rows.sample import Sample

__all__ = ["split_depths"]

# deeper nodes are not split; this is the default of R's rpart, which bnclassify uses
MAX_DEPTH = 30
# if there are more levels r, only the r - 1 divisions of ordered levels are tried instead of all
# subsets
MAX_LEVELS_FOR_SUBSETS = 12
# minimum gain of a split, as a proportion of the largest gain so far; smaller gains are rounding
# errors
MIN_GAIN_SHARE = 1e-10


@dataclass
class _Node:
    """A node of a tree."""

    rows: np.ndarray  # positions of its rows
    depth: int  # number of splits above the node
    risk: float = 0.0  # number of misclassified rows if the node is a leaf
    feature: int = -1  # feature of its split; -1 without a split
    children: list[_Node] = field(default_factory=list)  # left and right child; empty for a leaf


def split_depths(sample: Sample, n_levels: np.ndarray, K: int, drawn: np.ndarray) -> np.ndarray:
    """Grow a tree on the rows `drawn`; return the smallest depth (m,) of a split on each feature.

    `drawn` contains row positions. The split of the root has depth 1; the depth is inf for features
    without a split. A split assigns a subset of a feature's levels to the left child; the split
    with the largest decrease in entropy is chosen. Rows where the feature is missing are not
    assigned to a child. A split is undone if its leaves do not misclassify fewer rows than the
    unsplit node.
    """
    # rows with a known class and at least one known feature
    rows = drawn[sample.response[drawn] >= 0]
    if sample.missing is not None:
        rows = rows[~sample.missing[rows].all(axis=1)]
    drawn_rows = Sample(  # codes, weights, response, missing
        np.ascontiguousarray(sample.codes[rows]),
        np.ones(len(rows)),
        sample.response[rows],
        None if sample.missing is None else sample.missing[rows],
    )
    root = _grow(drawn_rows, Families([(i, ()) for i in range(len(n_levels))], n_levels, K))
    _prune(root)
    least_depth = np.full(len(n_levels), np.inf)
    todo = [root]
    while todo:
        node = todo.pop()
        if node.children:
            least_depth[node.feature] = min(least_depth[node.feature], node.depth + 1)
            todo.extend(node.children)
    return least_depth


def _grow(sample: Sample, families: Families) -> _Node:
    """Return the root of the unpruned tree.

    `families` describes the table (r, K) of each feature, where features have no parents.
    """
    root = _Node(np.arange(sample.n), 0)
    todo = [root]
    largest_gain = 0.0
    while todo:
        node = todo.pop()
        node_sample = sample.rows(node.rows)
        class_counts = np.bincount(node_sample.response, minlength=families.K)
        node.risk = float(len(node.rows) - class_counts.max())
        if len(node.rows) < 2 or not node.risk or node.depth > MAX_DEPTH:
            continue
        gain, feature, left_levels = _find_best_split(families, families.count(node_sample))
        if left_levels is None or not gain > MIN_GAIN_SHARE * largest_gain:
            continue
        largest_gain = max(largest_gain, gain)
        node.feature = feature
        goes_left = left_levels[node_sample.codes[:, feature]]
        missing = node_sample.missing
        is_known = np.ones(node_sample.n, dtype=bool) if missing is None else ~missing[:, feature]
        node.children = [
            _Node(node.rows[is_known & side], node.depth + 1) for side in (goes_left, ~goes_left)
        ]
        todo.extend(node.children[::-1])  # the left child is processed next
    return root


def _prune(root: _Node) -> None:
    """Undo splits that do not decrease misclassification, in place and from the leaves to the root.

    The leaves of such a split do not misclassify fewer rows than the node would as a leaf.
    """
    nodes = [root]
    for node in nodes:  # parents come before their children
        nodes.extend(node.children)
    leaf_risk: dict[int, float] = {}  # misclassified rows in the leaves below each node
    for node in reversed(nodes):
        split_risk = sum(leaf_risk[id(child)] for child in node.children)
        if node.children and split_risk >= node.risk:
            node.children = []
        leaf_risk[id(node)] = split_risk if node.children else node.risk


@cache
def _list_subsets(r: int) -> np.ndarray:
    """Return all divisions of `r` levels into two sets, shape (2 ** (r - 1) - 1, r); entries are 1
    for levels on the left and 0 otherwise.

    The last level is always on the right, because a division and its mirror image define the same
    split.
    """
    # bit a of a division's number is for level a
    return (np.arange(1, 2 ** (r - 1))[:, None] >> np.arange(r)) & 1


def _find_best_split(
    families: Families, counts: np.ndarray
) -> tuple[float, int, np.ndarray | None]:
    """Return the gain, the feature and the left levels (r,) of the best split of a node.

    The gain is the number of rows times the decrease in entropy. `counts` (cells, K) contains the
    tables of `families`. If no split is possible, the result is ``(0.0, -1, None)``.
    """
    n_levels = np.array(families.n_levels)
    best_gain = np.full(len(n_levels), -np.inf)
    left_levels: dict[int, np.ndarray] = {}
    for r in np.unique(n_levels[n_levels > 1]):
        features = np.flatnonzero(n_levels == r)
        tables = np.stack([families.table(counts, int(f)) for f in features])  # (features, r, K)
        divisions = _list_divisions(tables)
        left = divisions @ tables  # (features, divisions, K)
        # (features, K): the node's rows for which each feature is known
        parent = tables.sum(axis=1)
        right = parent[:, None] - left
        gains = _total_entropy(parent)[:, None] - _total_entropy(left) - _total_entropy(right)
        # both children must have rows
        gains[(left.sum(axis=2) < 1) | (right.sum(axis=2) < 1)] = -np.inf
        best = gains.argmax(axis=1)
        for k, i in enumerate(features):
            best_gain[i] = gains[k, best[k]]
            # one set of divisions for each feature, or one for all features
            left_levels[int(i)] = divisions[k % len(divisions), best[k]].astype(bool)
    feature = int(best_gain.argmax()) if len(best_gain) else -1
    return (
        (float(best_gain[feature]), feature, left_levels.get(feature))
        if left_levels
        else (0.0, -1, None)
    )


def _list_divisions(tables: np.ndarray) -> np.ndarray:
    """Return the divisions to try for F features with r levels, given their count tables `tables`
    (F, r, K).

    The shape is (F, divisions, r), or (1, divisions, r) if the divisions are the same for all
    features; entries are 1 for levels on the left. With two classes, the best division is one of
    the r - 1 divisions of the levels ordered by the proportion of a class (Breiman et al. 1984,
    theorem 4.5), so other subsets are not tried.
    """
    _, r, K = tables.shape
    if K > 2 and r <= MAX_LEVELS_FOR_SUBSETS:
        return _list_subsets(r)[None].astype(float)
    level_totals = tables.sum(axis=2)
    class_shares = tables / np.where(level_totals > 0, level_totals, 1.0)[:, :, None]
    # order levels by the first principal component of their class proportions (Coppersmith, Hong &
    # Hosking 1999)
    if K > 2:
        centred = (class_shares - class_shares.mean(axis=1, keepdims=True)) * np.sqrt(level_totals)[
            :, :, None
        ]
        # (F, K): the first right singular vector of each feature
        component = np.linalg.svd(centred, full_matrices=False)[2][:, 0]
        level_key = (class_shares @ component[:, :, None])[:, :, 0]
    else:
        level_key = class_shares[:, :, 0]
    # argsort returns the order of the levels, and argsort of this order returns their ranks; levels
    # without rows come last
    rank = np.argsort(
        np.argsort(np.where(level_totals > 0, level_key, np.inf), axis=1, kind="stable"), axis=1
    )
    # in division t, the t levels with the lowest ranks are on the left
    return (rank[:, None, :] < np.arange(1, r)[None, :, None]).astype(float)


def _total_entropy(counts: np.ndarray) -> np.ndarray:
    """Return the number of rows times the entropy of their classes (...), given class counts (...,
    K).
    """
    # computed in this form, ties of small nodes are rounded as in R
    total = counts.sum(axis=-1, keepdims=True)
    p = counts / np.where(total > 0, total, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return total[..., 0] * np.where(p > 0, -p * np.log(p), 0.0).sum(axis=-1)
