"""Trees: classification trees over levels, for the depth at which each feature first splits."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from bbl.bayesnet.families import Families
from bbl.rows.sample import Sample

__all__ = ["split_depths"]

DEEPEST = 30  # splits above a leaf
SUBSETS = 12  # levels of which all subsets are tried; more are put in an order first
LEAST = 1e-10  # of the largest gain so far, which a split's gain has to exceed


@dataclass
class _Node:
    rows: np.ndarray
    depth: int
    risk: float = 0.0
    feature: int = -1
    children: list[_Node] = field(default_factory=list)


def split_depths(sample: Sample, n_levels: np.ndarray, K: int, drawn: np.ndarray) -> np.ndarray:
    """Return the least depth (m,) at which a tree on the `drawn` rows splits by each feature; inf where it does not.

    Binary splits on subsets of levels by the largest decrease in entropy. Rows that lack the split's feature stay at
    the node. Splits below which no fewer rows are misclassified are undone.

    Parameters
    ----------
    sample : Sample
    n_levels : ndarray, shape (m,)
    K : int
    drawn : ndarray of int
        Rows, possibly repeated.

    Returns
    -------
    ndarray, shape (m,)
        The root has depth 1.
    """
    rows = drawn[sample.response[drawn] >= 0]
    if sample.missing is not None:
        rows = rows[~sample.missing[rows].all(axis=1)]
    drawn_rows = Sample(
        np.ascontiguousarray(sample.codes[rows]),
        np.ones(len(rows)),
        sample.response[rows],
        None if sample.missing is None else sample.missing[rows],
    )
    families = Families([(i, ()) for i in range(len(n_levels))], n_levels, K)
    root = _grow(drawn_rows, families)
    _leaf_risk(root)
    least_depth = np.full(len(n_levels), np.inf)
    todo = [root]
    while todo:
        node = todo.pop()
        if node.children:
            least_depth[node.feature] = min(least_depth[node.feature], node.depth + 1)
            todo.extend(node.children)
    return least_depth


def _grow(sample: Sample, families: Families) -> _Node:
    """Return the tree before splits that gain nothing are undone."""
    root = _Node(np.arange(sample.n), 0)
    todo, largest = [root], 0.0
    while todo:
        node = todo.pop()
        here = sample.rows(node.rows)
        by_class = np.bincount(here.response, minlength=families.K)
        node.risk = float(len(node.rows) - by_class.max())
        if len(node.rows) < 2 or not node.risk or node.depth > DEEPEST:
            continue
        gain, feature, children = _best_split(families, families.count(here))
        if children is None or not gain > LEAST * largest:
            continue
        largest = max(largest, gain)
        node.feature = feature
        goes_left = children[here.codes[:, feature]]
        is_known = np.ones(here.n, dtype=bool) if here.missing is None else ~here.missing[:, feature]
        node.children = [_Node(node.rows[is_known & side], node.depth + 1) for side in (goes_left, ~goes_left)]
        todo.extend(node.children[::-1])
    return root


def _leaf_risk(root: _Node) -> None:
    """Undo, from the leaves up, the splits whose leaves misclassify as many rows as the node would."""
    order = [root]
    for node in order:
        order.extend(node.children)
    below: dict[int, float] = {}
    for node in reversed(order):
        total = sum(below[id(child)] for child in node.children)
        if node.children and total >= node.risk:
            node.children = []
        below[id(node)] = total if node.children else node.risk


@cache
def _subsets(r: int) -> np.ndarray:
    """Return all ways to divide `r` levels in two, as the levels on the side of the last one's opposite."""
    return (np.arange(1, 2 ** (r - 1))[:, None] >> np.arange(r)) & 1


def _best_split(families: Families, counts: np.ndarray) -> tuple[float, int, np.ndarray | None]:
    """Return the largest decrease in entropy (times rows), its feature (the first of equals), and what goes left."""
    levels = np.array(families.n_levels)
    gain = np.full(len(levels), -np.inf)
    child_counts: dict[int, np.ndarray] = {}
    for r in np.unique(levels[levels > 1]):
        tables_of_level = np.flatnonzero(levels == r)
        tables = np.stack([families.table(counts, int(f)) for f in tables_of_level])
        sides = _sides(tables)
        parts = sides @ tables  # (features, divisions, K)
        parent_counts = tables.sum(axis=1)
        remaining_counts = parent_counts[:, None] - parts
        gains = _impurity(parent_counts)[:, None] - _impurity(parts) - _impurity(remaining_counts)
        gains[(parts.sum(axis=2) < 1) | (remaining_counts.sum(axis=2) < 1)] = -np.inf
        at = gains.argmax(axis=1)
        for k, i in enumerate(tables_of_level):
            gain[i], child_counts[int(i)] = gains[k, at[k]], sides[k % len(sides), at[k]].astype(bool)
    feature = int(gain.argmax()) if len(gain) else -1
    return (float(gain[feature]), feature, child_counts.get(feature)) if child_counts else (0.0, -1, None)


def _sides(tables: np.ndarray) -> np.ndarray:
    """Return the divisions of the levels to be tried, shape (features or 1, divisions, r)."""
    F, r, K = tables.shape
    if K > 2 and r <= SUBSETS:
        return _subsets(r)[None].astype(float)
    total = tables.sum(axis=2)
    share = tables / np.where(total > 0, total, 1.0)[:, :, None]
    if K > 2:  # by the first principal component of the shares (Coppersmith, Hong & Hosking 1999)
        centred = (share - share.mean(axis=1, keepdims=True)) * np.sqrt(total)[:, :, None]
        axis = np.linalg.svd(centred, full_matrices=False)[2][:, 0]
        key = (share @ axis[:, :, None])[:, :, 0]
    else:
        key = share[:, :, 0]
    place = np.argsort(np.argsort(np.where(total > 0, key, np.inf), axis=1, kind="stable"), axis=1)
    return (place[:, None, :] < np.arange(1, r)[None, :, None]).astype(float)


def _impurity(counts: np.ndarray) -> np.ndarray:
    """Return rows times entropy, over the last axis."""
    # in this form the ties of small nodes are rounded as R's are
    total = counts.sum(axis=-1, keepdims=True)
    p = counts / np.where(total > 0, total, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return total[..., 0] * np.where(p > 0, -p * np.log(p), 0.0).sum(axis=-1)
