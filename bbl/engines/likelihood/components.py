"""The connected parts of an interaction graph: predictors of different parts are independent in the
model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["Component", "components"]


class Component(NamedTuple):
    """Predictors that interact with each other, directly or through others, and with no predictor
    outside.

    Predictors of structural zeros count as interacting.

    Attributes
    ----------
    predictors : ndarray of intp, shape (c,)
        Numbers of these predictors in the whole model, rising.
    layout : Layout
        Layout of these c predictors alone.
    positions : ndarray of intp, shape (layout.size,)
        Positions of its parameters in the parameter vector of the whole model.
    """

    predictors: np.ndarray
    layout: Layout
    positions: np.ndarray

    def columns(self, rows: Sample) -> Sample:
        """Return the rows with the codes of these predictors alone, without a response."""
        missing = None if rows.missing is None else rows.missing[:, self.predictors]
        if missing is not None and not missing.any():
            missing = None
        return Sample(
            np.ascontiguousarray(rows.codes[:, self.predictors]), rows.weights, None, missing
        )


def components(layout: Layout) -> list[Component]:
    """Return the connected parts of the interaction graph, in the order of their first
    predictors.
    """
    # all pairs interact (m = 0, which has no parts, is left to the code below)
    if layout.complete and layout.m > 1:
        return [Component(np.arange(layout.m), layout, np.arange(layout.size))]
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    n_components, label = connected_components(csr_matrix(layout.joined), directed=False)
    # label (m,): part of each predictor; joined (m, m): whether two share a term or structural
    # zeros
    if n_components == 1:
        return [Component(np.arange(layout.m), layout, np.arange(layout.size))]
    # predictors of each table of fields and of each term (`layout.scopes`), by component
    scopes: list[list[tuple[int, ...]]] = [[] for _ in range(n_components)]
    for scope in layout.scopes:
        scopes[label[scope[0]]].append(scope)
    flat_positions = np.arange(layout.size)
    found_components = []
    for k in range(n_components):
        predictors = np.flatnonzero(label == k)
        # of a predictor within the component
        number = {int(i): new for new, i in enumerate(predictors)}
        terms = [tuple(number[i] for i in scope) for scope in scopes[k] if len(scope) > 1]
        # table(v, *scope): the entries of v of one term; the new layout keeps the order of the
        # terms
        positions = [layout.table(flat_positions, *scope).ravel() for scope in scopes[k]]
        support = layout.support  # structural zeros, whose predictors are all in one component
        if support is not None:
            support = support.renumbered(number) if label[support.scope[0]] == k else None
        sublayout = Layout(layout.n_levels[predictors], terms, support)
        found_components.append(Component(predictors, sublayout, np.concatenate(positions)))
    return found_components
