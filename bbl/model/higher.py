"""Higher: terms of three predictors and more as kernels read them, and their contributions to energies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.model.layout import Layout
from bbl.model.pairwise import pair_matrix

__all__ = ["Higher", "Tables", "higher", "split"]


class Higher:
    """All terms of three predictors and more of a layout, in a row.

    Attributes
    ----------
    members : ndarray of int32, shape (T, k)
        Predictors of each term, k the highest order; -1 where a term has fewer.
    stride : ndarray of intp, shape (T, k)
        Steps between neighbouring levels of each member in the term's table.
    first : ndarray of intp, shape (T,)
        Where the table starts among `cells`.
    site_first : ndarray of intp, shape (m + 1,)
    site_term : ndarray of int32
        The terms of each predictor, ``site_term[site_first[i] : site_first[i + 1]]``.
    cells : slice
        Where their couplings lie in a parameter vector.
    size : int
        How many these are.
    """

    def __init__(self, layout: Layout):
        width = np.diff(layout.start)
        most = max(layout.order, 3)
        members, stride, first = [], [], []
        for k, (terms, start) in enumerate(zip(layout.terms[1:], layout.term_start[1:], strict=True), 3):
            pad = ((0, 0), (0, most - k))
            after = np.column_stack([width[terms[:, a + 1 :]].prod(axis=1) for a in range(k)])
            has_parameters = np.diff(start) > 0  # none where a member has one level
            members.append(np.pad(terms, pad, constant_values=-1)[has_parameters])
            stride.append(np.pad(after, pad)[has_parameters])
            first.append((start[:-1] - layout.pair_start[-1])[has_parameters])
        none = np.empty((0, most), dtype=np.intp)
        self.members = np.ascontiguousarray(np.concatenate([none, *members]), dtype=np.int32)
        self.stride = np.ascontiguousarray(np.concatenate([none, *stride]), dtype=np.intp)
        self.first = np.concatenate([np.empty(0, dtype=np.intp), *first]).astype(np.intp, copy=False)
        self.cells = slice(int(layout.pair_start[-1]), layout.size)
        self.size = layout.size - self.cells.start
        term, axis = np.nonzero(self.members >= 0)
        site = self.members[term, axis]
        self.site_term = term[np.argsort(site, kind="stable")].astype(np.int32)
        self.site_first = np.concatenate(([0], np.cumsum(np.bincount(site, minlength=layout.m)))).astype(np.intp)

    def __len__(self) -> int:
        return len(self.members)


def higher(layout: Layout) -> Higher:
    """Return the higher terms of a layout, made once for each."""
    attributes = vars(layout)  # the layout keeps them, as it keeps what it works out itself
    if "_higher" not in attributes:
        attributes["_higher"] = Higher(layout)
    return attributes["_higher"]


class Tables(NamedTuple):
    """The couplings of one model in terms of three predictors and more.

    Attributes
    ----------
    terms : Higher
    values : ndarray, shape (terms.size,)
    """

    terms: Higher
    values: np.ndarray


def split(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, Tables | None]:
    """Return fields (D,), the couplings of pairs as a matrix (D, D), and those of higher terms, None without any."""
    h, J = pair_matrix(layout, theta)
    if layout.order <= 2:
        return h, J, None
    return h, J, Tables(higher(layout), np.ascontiguousarray(theta[higher(layout).cells]))
