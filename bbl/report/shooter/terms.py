"""Tables of the terms that a structure search selected in each group: predictors, levels, weights,
votes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from bbl.design.labels import Labels
from bbl.model.layout import Layout
from bbl.report.text import distinct_names, label_index
from bbl.stats.metrics import rising_ranks

__all__ = ["order_counts", "term_frame"]


def term_frame(
    labels: Labels,
    layout: Layout,
    theta: np.ndarray,
    free: np.ndarray,
    chosen: Mapping[str, np.ndarray] | None = None,
) -> pd.DataFrame:
    """Return a row for each non-reference joint level of each term, strongest terms first and
    single predictors last.

    Parameters
    ----------
    labels : Labels
    layout : Layout
        Position of each term's table in the parameter vectors of length ``size``.
    theta : ndarray, shape (K, size)
        Weights.
    free : ndarray of bool, shape (K, size)
        Whether a group's model has the parameter; terms without any such parameter are omitted.
    chosen : mapping, optional
        Result of a search by predictors. ``votes`` (K, size): number of predictors that selected
        the parameter. ``nodes`` (K, order, size): its weight in the regression of each of the
        term's predictors.
    """
    rows: list[tuple] = []
    terms = [(i,) for i in range(layout.m)] + [
        tuple(t) for order_terms in layout.terms for t in order_terms.tolist()
    ]
    for k, group in enumerate(labels.groups):
        for term in terms:
            weights = layout.table(theta[k], *term)  # (L_1 - 1, L_2 - 1, ...)
            if not layout.table(free[k], *term).any():
                continue
            strength = _strength(weights)
            names = tuple(labels.names[i] for i in term)
            for cell in np.ndindex(weights.shape):
                # + 1: skips the reference level
                levels = tuple(labels.levels[i][a + 1] for i, a in zip(term, cell, strict=True))
                row: tuple = (group, len(term), names, levels, float(weights[cell]), strength)
                if chosen is not None:
                    # weights in the regressions of the term's first, second, ... predictor; a
                    # single predictor has only its own
                    node_weights = tuple(
                        float(layout.table(w, *term)[cell]) for w in chosen["nodes"][k][: len(term)]
                    )
                    votes = int(layout.table(chosen["votes"][k], *term)[cell])
                    row = (*row, votes, node_weights if len(term) > 1 else ())
                rows.append(row)
    columns = ["group", "order", "predictors", "levels", "weight", "strength"]
    frame = pd.DataFrame(
        rows, columns=columns + (["votes", "node_weights"] if chosen is not None else [])
    )
    number = {group: k for k, group in enumerate(labels.groups)}
    # sort rows by group, then terms before single predictors, then decreasing strength of terms
    keys = pd.DataFrame({"group": frame["group"].map(number), "single": frame["order"] == 1})
    # strengths that differ only by rounding keep their order
    keys["strength"] = rising_ranks(
        -frame["strength"].astype(float).where(frame["order"] > 1, 0.0).to_numpy(float)
    )
    return frame.loc[
        keys.sort_values(["group", "single", "strength"], kind="stable").index
    ].reset_index(drop=True)


def order_counts(labels: Labels, layout: Layout, free: np.ndarray) -> pd.DataFrame:
    """Return the number of terms of each order (rows) in each group (columns); `free` is the same
    as in `term_frame`.
    """
    counts = {1: np.full(len(free), layout.m)}  # by order: number of terms in each group, (K,)
    # order 2, 3, ...
    for k, (terms, start) in enumerate(zip(layout.terms, layout.term_start, strict=True), 2):
        # `start`: start of each term's parameters, and end of the last; the first parameter
        # represents the term
        counts[k] = (
            free[:, start[:-1]].sum(axis=1) if len(terms) else np.zeros(len(free), dtype=int)
        )
    # the index is named `order`, unless a group has that name
    index = pd.Index(list(counts), name=distinct_names([*labels.groups, "order"])[-1])
    return pd.DataFrame(
        np.array(list(counts.values())), index=index, columns=label_index(labels.groups)
    )


def _strength(table: np.ndarray) -> float:
    """Return the Frobenius norm of a term's weights (L_1 - 1, L_2 - 1, ...) in the zero-sum gauge.

    Reference levels, with weights of 0, are added to the table, and then its mean over each axis is
    subtracted.
    """
    full_table = np.zeros([n + 1 for n in table.shape])
    full_table[(slice(1, None),) * table.ndim] = table
    for axis in range(table.ndim):
        full_table -= full_table.mean(axis=axis, keepdims=True)
    return float(np.linalg.norm(full_table))
