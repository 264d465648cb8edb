"""Terms of three or more predictors ("higher terms"), in the kernels' format."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.model.layout import Layout
from bbl.model.regressors import pair_matrix

__all__ = ["Higher", "Tables", "higher", "split"]


class Higher:
    """The T higher terms of a layout that have parameters, of order at most k.

    Attributes
    ----------
    members : ndarray of int32, shape (T, k)
        Predictors of each term, padded with -1 if a term has fewer than k.
    stride : ndarray of intp, shape (T, k)
        Distance between adjacent levels of each member in the term's flat table.
    first : ndarray of intp, shape (T,)
        Start of each table in `cells`.
    site_first : ndarray of intp, shape (m + 1,)
        Start of each predictor's terms in `site_term`.
    site_term : ndarray of int32
        The terms of each predictor, concatenated: predictor i is in the terms
        ``site_term[site_first[i] : site_first[i + 1]]``.
    cells : slice
        Position of all tables in a parameter vector.
    size : int
        Length of `cells`.
    """

    def __init__(self, layout: Layout):
        n_nonreference = np.diff(layout.start)
        # number of columns of the arrays; 3 if there are no higher terms
        max_order = max(layout.order, 3)
        members = []
        stride = []
        first = []
        for k, (terms, start) in enumerate(
            zip(layout.terms[1:], layout.term_start[1:], strict=True), 3
        ):
            padding = ((0, 0), (0, max_order - k))
            # levels of the last member are contiguous in the table
            strides = np.column_stack(
                [n_nonreference[terms[:, a + 1 :]].prod(axis=1) for a in range(k)]
            )
            has_parameters = np.diff(start) > 0  # none where a member has one level
            members.append(np.pad(terms, padding, constant_values=-1)[has_parameters])
            stride.append(np.pad(strides, padding)[has_parameters])
            # relative to the end of the pairs' tables
            first.append((start[:-1] - layout.pair_start[-1])[has_parameters])
        no_terms = np.empty((0, max_order), dtype=np.intp)
        self.members = np.ascontiguousarray(np.concatenate([no_terms, *members]), dtype=np.int32)
        self.stride = np.ascontiguousarray(np.concatenate([no_terms, *stride]), dtype=np.intp)
        self.first = np.concatenate([np.empty(0, dtype=np.intp), *first]).astype(
            np.intp, copy=False
        )
        self.cells = slice(int(layout.pair_start[-1]), layout.size)
        self.size = layout.size - self.cells.start
        term, axis = np.nonzero(self.members >= 0)  # for each membership of a predictor in a term
        predictor = self.members[term, axis]
        self.site_term = term[np.argsort(predictor, kind="stable")].astype(np.int32)
        self.site_first = np.concatenate(
            ([0], np.cumsum(np.bincount(predictor, minlength=layout.m)))
        ).astype(np.intp)

    def __len__(self) -> int:
        return len(self.members)


def higher(layout: Layout) -> Higher:
    """Return the higher terms of a layout, cached in the layout."""
    attributes = vars(layout)  # cached like the cached properties of the layout
    if "_higher" not in attributes:
        attributes["_higher"] = Higher(layout)
    return attributes["_higher"]


class Tables(NamedTuple):
    """Couplings of the higher terms of one model."""

    terms: Higher
    values: np.ndarray  # (terms.size,): couplings, in the order of the tables


def split(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, Tables | None]:
    """Split a parameter vector into fields (D,), pair couplings (D, D) and the tables of higher
    terms.
    """
    h, J = pair_matrix(layout, theta)
    if layout.order <= 2:
        return h, J, None
    return h, J, Tables(higher(layout), np.ascontiguousarray(theta[higher(layout).cells]))
