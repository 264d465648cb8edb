"""Regressors: levels and joint levels of the other predictors that each predictor is regressed on."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from bbl.model.layout import Layout, term_columns
from bbl.model.pairwise import cells as pair_cells

__all__ = ["Regressors", "from_sites", "penalties", "regressors", "to_sites"]


class Regressors:
    """The further predictors that make a term of any order a pair: joint levels of two predictors or more.

    Given all others, predictor i of a term (i, j, k) has a coupling with every joint level of j and k (eq. 13). So
    the sets that terms leave without one of their members stand behind the m predictors as further ones; their code is
    0 where a member is at its reference level, else it counts the joint levels, the last member running fastest. Of a
    model of pairs nothing is added, and all is as in the layout.

    Attributes
    ----------
    sets : list of ndarrays of intp, shapes (S_k, k)
        The sets of k = 2, 3, ... predictors.
    n_levels : ndarray of int32, shape (m + S,)
        Levels of the predictors, then of the sets.
    start : ndarray of intp, shape (m + S + 1,)
        Their first columns among the D of all.
    mask : ndarray of bool, shape (m, m + S)
        What each predictor is regressed on.
    D : int
        Number of columns; the site matrix of a pseudo-likelihood solution is (layout.D, 1 + D).

    Examples
    --------
    >>> wide = regressors(Layout([2, 3, 2], [(0, 1), (0, 1, 2)]))
    >>> [found.tolist() for found in wide.sets], wide.n_levels.tolist()
    ([[[0, 1], [0, 2], [1, 2]]], [2, 3, 2, 3, 2, 3])
    >>> wide.codes(np.array([[1, 2, 0]], dtype=np.uint8))
    array([[1, 2, 0, 2, 0, 0]], dtype=uint8)
    """

    def __init__(self, layout: Layout):
        self.m = layout.m  # not the layout, which keeps its regressors: a circle would stay in memory for a while
        self.sets: list[np.ndarray] = []
        # of each term of order 3, 4, ...: the number of the set without its first, second, ... member
        self.rest: list[np.ndarray] = []
        self.n_levels, self.start, self.mask, self.D = layout.n_levels, layout.start, layout.mask, layout.D
        if layout.order > 2:
            self._add_sets(layout)

    def _add_sets(self, layout: Layout) -> None:
        first, width = layout.m, np.diff(layout.start)
        n_levels = [layout.n_levels]
        self.mask = np.zeros((first, first), dtype=bool)  # that of the layout has the pairs of higher terms too
        i, j = layout.pairs.T
        self.mask[i, j] = self.mask[j, i] = True
        for k, terms in enumerate(layout.terms[1:], 3):
            member_sets = np.stack([np.delete(terms, a, axis=1) for a in range(k)], axis=1)
            distinct_sets, set_of_member = np.unique(member_sets.reshape(-1, k - 1), axis=0, return_inverse=True)
            set_of_member = set_of_member.reshape(-1, k)
            joint = width[distinct_sets].prod(axis=1)
            self.sets.append(distinct_sets.astype(np.intp))
            self.rest.append(first + set_of_member)
            n_levels.append((joint + 1).astype(np.int32))
            near = np.zeros((layout.m, len(distinct_sets)), dtype=bool)
            near[terms, set_of_member] = True
            self.mask = np.concatenate([self.mask, near], axis=1)
            first += len(distinct_sets)
        self.n_levels = np.concatenate(n_levels)
        self.start = np.concatenate(([0], np.cumsum(self.n_levels.astype(np.intp) - 1)))
        self.D = int(self.start[-1])

    @cached_property
    def order(self) -> np.ndarray:
        """Order of the terms that the couplings of each column belong to, shape (D,)."""
        orders = np.repeat(np.arange(2, 3 + len(self.sets)), [self.m, *map(len, self.sets)])
        return np.repeat(orders, self.n_levels - 1)

    def codes(self, codes: np.ndarray) -> np.ndarray:
        """Return the codes (n, m + S) of predictors and sets in some rows; `codes` itself if there are no sets."""
        if not self.sets:
            return codes
        m, top = self.m, int(self.n_levels.max())
        dtype = np.dtype(np.uint8 if top <= 256 else np.uint16 if top <= 65536 else np.int32)
        out = np.empty((len(codes), len(self.n_levels)), dtype=max(dtype, codes.dtype, key=lambda d: d.itemsize))
        out[:, :m] = codes
        width, at = np.diff(self.start), m
        for sets in self.sets:
            for members in sets:
                member_codes = codes[:, members].astype(np.intp)
                joint = member_codes[:, 0] - 1
                for a in range(1, len(members)):
                    joint = joint * width[members[a]] + member_codes[:, a] - 1
                out[:, at] = np.where((member_codes > 0).all(axis=1), joint + 1, 0)
                at += 1
        return out

    @cached_property
    def columns(self) -> list[np.ndarray]:
        """Columns of the site matrix that each predictor uses: the constant, then its regressors."""
        return [self.columns_of(i) for i in range(self.m)]

    def columns_of(self, i: int) -> np.ndarray:
        """Return the `columns` of one predictor."""
        return np.flatnonzero(np.append(True, np.repeat(self.mask[i], np.diff(self.start))))

    def positions(self, part: Layout, involved: np.ndarray) -> np.ndarray:
        """Return which columns are those of `part`, a layout of the predictors `involved` and of terms of theirs."""
        part_regressors = regressors(part)
        set_positions = {self.scope(at): at for at in range(self.m, len(self.n_levels))}
        number = [
            *involved,
            *(set_positions[tuple(involved[s].tolist())] for sets in part_regressors.sets for s in sets),
        ]
        ranges = [np.arange(self.start[at], self.start[at + 1]) for at in number]
        return np.concatenate([np.empty(0, dtype=np.intp), *ranges])

    def scope(self, at: int) -> tuple[int, ...]:
        """Return the predictors of the set (or the predictor) number `at`."""
        if at < self.m:
            return (at,)
        at -= self.m
        for sets in self.sets:
            if at < len(sets):
                return tuple(sets[at].tolist())
            at -= len(sets)
        raise IndexError(at)

    def members(self, column: int) -> list[tuple[int, int]]:
        """Return the predictors and level codes that a column stands for."""
        at = int(np.searchsorted(self.start, column, side="right")) - 1
        scope = self.scope(at)
        levels = np.unravel_index(column - self.start[at], tuple(self.n_levels[list(scope)] - 1))
        return [(i, int(a) + 1) for i, a in zip(scope, levels, strict=True)]


def regressors(layout: Layout) -> Regressors:
    """Return the regressors of a layout, made once for each."""
    attributes = vars(layout)  # the layout keeps them, as it keeps what it works out itself
    if "_regressors" not in attributes:
        attributes["_regressors"] = Regressors(layout)
    return attributes["_regressors"]


def _cells(layout: Layout) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Return where the couplings of terms of order 2, 3, ... stand in a matrix (layout.D, D) of all solutions.

    For each order k rows and columns (P_k,) k times: as each member of its term has a coupling. Made once for each.
    """
    attributes = vars(layout)
    if "_site_cells" not in attributes:
        row, col = pair_cells(layout)
        attributes["_site_cells"] = [[(row, col), (col, row)], *_cells_of_sets(layout)]
    return attributes["_site_cells"]


def _cells_of_sets(layout: Layout) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Return the cells of terms of order 3, 4, ..."""
    out: list[Any] = []
    wide = regressors(layout)
    if not wide.sets:
        return out
    width, levels = np.diff(layout.start), term_columns(layout)
    for k, (terms, start, other_sets) in enumerate(
        zip(layout.terms[1:], layout.term_start[1:], wide.rest, strict=True), 3
    ):
        count, rows = np.diff(start), levels[:k, start[0] : start[-1]]
        member_columns = [np.repeat(terms[:, a], count) for a in range(k)]
        local = [rows[a] - layout.start[member_columns[a]] for a in range(k)]
        cells = []
        for a in range(k):
            joint = np.zeros(rows.shape[1], dtype=np.intp)
            for b in (b for b in range(k) if b != a):
                joint = joint * width[member_columns[b]] + local[b]
            cells.append((rows[a], joint + np.repeat(wide.start[other_sets[:, a]], count)))
        out.append(cells)
    return out


def to_sites(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return parameters as the site matrix (layout.D, 1 + D) in which every member of a term has the same couplings.

    Row (i, a) holds ``h_i(a)`` and then the couplings of that level with the columns of the `Regressors`.

    Examples
    --------
    >>> to_sites(Layout([2, 2, 2], [(0, 1), (0, 1, 2)]), np.arange(5.0))
    array([[0., 0., 3., 0., 0., 0., 4.],
           [1., 3., 0., 0., 0., 4., 0.],
           [2., 0., 0., 0., 4., 0., 0.]])
    """
    wide = regressors(layout)
    out = np.zeros((layout.D, 1 + wide.D))
    out[:, 0] = theta[: layout.D]
    for cells, start in zip(_cells(layout), layout.term_start, strict=True):
        for row, col in cells:
            out[row, 1 + col] = theta[start[0] : start[-1]]
    return out


def from_sites(layout: Layout, site_theta: np.ndarray, symmetrize: bool = True) -> np.ndarray:
    """Return a site matrix (layout.D, 1 + D) as the flat vector of fields and couplings.

    A coupling is the mean of what the members of its term say (eq. 18), or with ``symmetrize=False`` what the first
    does.
    """
    theta, flat = np.empty(layout.size), site_theta.ravel()
    theta[: layout.D] = site_theta[:, 0]
    for cells, start in zip(_cells(layout), layout.term_start, strict=True):
        couplings = theta[start[0] : start[-1]]
        for k, (row, col) in enumerate(cells if symmetrize else cells[:1]):
            at = np.multiply(row, site_theta.shape[1], dtype=np.intp)
            at += col
            at += 1
            if k:
                couplings += flat.take(at)
            else:
                flat.take(at, out=couplings, mode="clip")  # any mode but "raise", which buffers what it writes
        if symmetrize:
            couplings /= len(cells)
    return theta


def penalties(layout: Layout, lambda_: float | tuple[float, ...]) -> np.ndarray:
    """Return the penalty (D,) of each column's couplings: the same for all, or one for each order 2, 3, ..."""
    wide = regressors(layout)
    if isinstance(lambda_, tuple):
        return np.asarray(lambda_)[wide.order - 2]
    out = np.empty(wide.D)
    out.fill(lambda_)
    return out
