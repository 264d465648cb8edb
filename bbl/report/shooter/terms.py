"""Tables of the terms of a model: predictors, levels, weights, and who asked for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from bbl.design.labels import Labels
from bbl.model.layout import Layout
from bbl.names import distinct_names, label_index

__all__ = ["order_counts", "term_frame"]


def term_frame(
    labels: Labels, layout: Layout, theta: np.ndarray, free: np.ndarray, chosen: Mapping[str, np.ndarray] | None = None
) -> pd.DataFrame:
    """Return the terms of each group with their weights, the strongest first, then the single predictors.

    Parameters
    ----------
    labels : Labels
    layout : Layout
    theta : ndarray, shape (K, layout.size)
    free : ndarray of bool, shape (K, layout.size)
        Which parameters a group has.
    chosen : mapping, optional
        ``votes`` (K, size) and ``nodes`` (K, order, size) of terms that predictors asked for.
    """
    rows: list[tuple] = []
    scopes = [(i,) for i in range(layout.m)] + [tuple(t) for terms in layout.terms for t in terms.tolist()]
    for k, group in enumerate(labels.groups):
        for scope in scopes:
            term_table = layout.table(theta[k], *scope)
            if not layout.table(free[k], *scope).any():
                continue
            strength, names = _strength(term_table), tuple(labels.names[i] for i in scope)
            for cell in np.ndindex(term_table.shape):
                levels = tuple(labels.levels[i][a + 1] for i, a in zip(scope, cell, strict=True))
                row: tuple = (group, len(scope), names, levels, float(term_table[cell]), strength)
                if chosen is not None:
                    nodes = tuple(float(layout.table(n, *scope)[cell]) for n in chosen["nodes"][k][: len(scope)])
                    votes = int(layout.table(chosen["votes"][k], *scope)[cell])
                    row = (*row, votes, nodes if len(scope) > 1 else ())
                rows.append(row)
    columns = ["group", "order", "predictors", "levels", "weight", "strength"]
    frame = pd.DataFrame(rows, columns=columns + (["votes", "node_weights"] if chosen is not None else []))
    number = {group: k for k, group in enumerate(labels.groups)}
    keys = pd.DataFrame({"group": frame["group"].map(number), "single": frame["order"] == 1})
    keys["strength"] = -frame["strength"].where(frame["order"] > 1, 0.0)
    return frame.loc[keys.sort_values(["group", "single", "strength"], kind="stable").index].reset_index(drop=True)


def order_counts(labels: Labels, layout: Layout, free: np.ndarray) -> pd.DataFrame:
    """Return the number of terms of each order (rows) in each group (columns)."""
    counts = {1: np.full(len(free), layout.m)}
    for k, (terms, start) in enumerate(zip(layout.terms, layout.term_start, strict=True), 2):
        counts[k] = free[:, start[:-1]].sum(axis=1) if len(terms) else np.zeros(len(free), dtype=int)
    index = pd.Index(list(counts), name=distinct_names([*labels.groups, "order"])[-1])
    return pd.DataFrame(np.array(list(counts.values())), index=index, columns=label_index(labels.groups))


def _strength(table: np.ndarray) -> float:
    """Return the Frobenius norm of a table with its reference levels, less its means over each predictor."""
    full_table = np.zeros([n + 1 for n in table.shape])
    full_table[(slice(1, None),) * table.ndim] = table
    for axis in range(table.ndim):
        full_table -= full_table.mean(axis=axis, keepdims=True)
    return float(np.linalg.norm(full_table))
