"""Couplings that are linear in level scores, expressed by a smaller number of free parameters.

Levels of ordered predictors have scores u_i(a), 0 at the reference level. The coupling of two
ordered predictors is ``J_ij(a, b) = theta_ij u_i(a) u_j(b)`` (linear by linear), and the coupling
of an ordered and a nominal predictor is ``J_ij(a, b) = u_i(a) phi_j(b)`` (row effects); similarly
for terms of any order. Fields are free. Every parameter of the layout is therefore a multiple of
one free parameter, and the derivative with respect to a free parameter is a weighted sum over its
multiples.
"""

# A level with a score of nan, such as "(missing)", has a free parameter of its own. Levels that
# share a free parameter are *tied*; the first of them represents it.

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl.model.layout import Layout, term_columns
from bbl.model.regressors import regressors

__all__ = [
    "ScoreMap",
    "SiteScores",
    "Slope",
    "free_sizes",
    "is_scored",
    "n_free",
    "score_information",
    "score_map",
    "scored_tables",
    "site_scores_of",
    "slopes",
]


@dataclass(frozen=True)
class ScoreMap:
    """Map from r free parameters to p parameters: ``theta = factor * free[index]``.

    Attributes
    ----------
    index : ndarray of intp, shape (p,)
        Index of the free parameter for each parameter.
    factor : ndarray, shape (p,)
        Positive factor of each parameter.
    n : int
        Number r of free parameters.

    Examples
    --------
    >>> linear = ScoreMap(np.array([0, 1, 1]), np.array([1.0, 0.5, 1.0]), 2)
    >>> linear.expand(np.array([3.0, 4.0]))
    array([3., 2., 4.])
    >>> linear.gather(np.array([1.0, 1.0, 1.0]))
    array([1. , 1.5])
    >>> linear.restrict(np.array([3.0, 2.0, 4.0]))
    array([3., 4.])
    """

    index: np.ndarray
    factor: np.ndarray
    n: int

    @cached_property
    def matrix(self):
        """The map as a sparse matrix (p, r)."""
        from scipy import sparse

        p = len(self.index)
        return sparse.csr_matrix((self.factor, (np.arange(p), self.index)), shape=(p, self.n))

    @cached_property
    def first(self) -> np.ndarray:
        """First parameter that each free parameter determines, shape (r,)."""
        return np.unique(self.index, return_index=True)[1]

    def expand(self, free: np.ndarray) -> np.ndarray:
        """Return the parameters (..., p) from the free parameters (..., r)."""
        return free[..., self.index] * self.factor

    def gather(self, gradient: np.ndarray) -> np.ndarray:
        """Return the gradient (r,) with respect to the free parameters from the gradient (p,)."""
        return np.bincount(self.index, gradient * self.factor, self.n)

    def gather_rows(self, values: np.ndarray) -> np.ndarray:
        """Apply `gather` to each row of `values` (n, p)."""
        return values @ self.matrix

    def project(self, matrix: np.ndarray) -> np.ndarray:
        """Return ``A' M A`` (r, r) for the matrix A of the map and a matrix M (p, p), such as a
        Hessian.
        """
        return np.asarray(self.matrix.T @ (matrix @ self.matrix))

    def spread(self, matrix: np.ndarray) -> np.ndarray:
        """Return ``A M A'`` (p, p) for the matrix A of the map and a matrix M (r, r), such as a
        covariance.
        """
        return self.factor[:, None] * matrix[np.ix_(self.index, self.index)] * self.factor

    def restrict(self, theta: np.ndarray) -> np.ndarray:
        """Return the free parameters (r,) that approximate the parameters `theta` (p,) most
        closely.
        """
        return self.gather(theta) / np.bincount(self.index, self.factor**2, self.n)

    def ridge(self, penalties: np.ndarray) -> np.ndarray:
        """Return the L2 penalties (r,) on free parameters that are equivalent to `penalties`
        (p,).
        """
        return np.bincount(self.index, self.factor**2 * penalties, self.n)

    def all_of(self, mask: np.ndarray) -> np.ndarray:
        """Return a mask (r,) of the free parameters for which all dependent parameters are in a
        mask (p,).
        """
        return np.bincount(self.index, ~mask, self.n) == 0

    def firsts(self, mask: np.ndarray) -> np.ndarray:
        """Return a mask (p,) that marks the `first` parameter of each free parameter in a mask
        (r,).
        """
        out = np.zeros(len(self.index), dtype=bool)
        out[self.first[mask]] = True
        return out


def is_scored(layout: Layout, predictors) -> bool:
    """Return whether at least one of the predictors has scores."""
    return layout.scores is not None and any(layout.scores[i] is not None for i in predictors)


def scored_tables(layout: Layout) -> np.ndarray:
    """Return a mask of the couplings that involve at least one predictor with scores, shape
    (size,).
    """
    out = np.zeros(layout.size, dtype=bool)
    if layout.scores is None:
        return out
    has_scores = np.array([scores is not None for scores in layout.scores], dtype=bool)
    for terms, start in zip(layout.terms, layout.term_start, strict=True):
        out[start[0] : start[-1]] = np.repeat(has_scores[terms].any(axis=1), np.diff(start))
    return out


def score_information(layout: Layout, counts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the units (size,) of couplings with scores, and a mask (size,) of couplings without
    rows.

    `counts` contains the weights (L_i,) of each predictor's levels. A coupling multiplied by its
    unit is the effect of a difference of two standard deviations in the score, which is comparable
    to a coupling of two nominal levels. The unit is 1 for other parameters. A coupling has no rows
    if the score of a predictor is constant, or if the nominal level or its reference level is
    absent. Other parameters are not marked.
    """
    units = np.ones(layout.size)
    absent = np.zeros(layout.size, dtype=bool)
    if layout.scores is None:
        return units, absent
    for scope in layout.scopes[layout.m :]:
        if not is_scored(layout, scope):
            continue
        unit_table = layout.table(units, *scope)  # views of both arrays
        absent_table = layout.table(absent, *scope)
        for axis, i in enumerate(scope):
            n = counts[i]
            unit = np.ones(len(n) - 1)
            is_absent = (n[1:] == 0.0) | (n[0] == 0.0)
            scores = layout.scores[i]
            if scores is not None:
                is_tied = ~np.isnan(scores)
                weights = np.append(n[0], n[1:][is_tied])
                values = np.append(0.0, scores[is_tied])
                mean = weights @ values / max(weights.sum(), 1.0)
                deviation = np.sqrt(weights @ (values - mean) ** 2 / max(weights.sum(), 1.0))
                unit[is_tied] = 2.0 * deviation / scores[is_tied]
                is_absent[is_tied] = np.count_nonzero(weights) < 2
            along_axis = [-1 if k == axis else 1 for k in range(len(scope))]
            unit_table *= unit.reshape(along_axis)
            absent_table |= is_absent.reshape(along_axis)
    return units, absent


def n_free(layout: Layout) -> int:
    """Return the number of free parameters of a layout."""
    shared = score_map(layout)
    return layout.size if shared is None else shared.n


def free_sizes(layout: Layout) -> np.ndarray:
    """Return the number of free parameters in each table, in the order of `Layout.cuts`."""
    sizes = np.diff(layout.cuts)
    shared = score_map(layout)
    if shared is None:
        return sizes
    # the table of the first parameter of each free one
    tables = np.searchsorted(layout.cuts, shared.first, side="right") - 1
    return np.bincount(tables, minlength=len(sizes))


@dataclass(frozen=True)
class Slope:
    """A free coupling in a table with scores.

    Attributes
    ----------
    scope : tuple of int
        Predictors of the coupling's term.
    levels : tuple of (int or None)
        For each predictor, the code of its level, or None if the coupling is linear in its score.
    position : int
        Position of the first parameter determined by the coupling.
    unit : float
        Value of this parameter, divided by the slope per unit of the scores.
    """

    scope: tuple[int, ...]
    levels: tuple[int | None, ...]
    position: int
    unit: float


def slopes(layout: Layout, ranges: np.ndarray) -> list[Slope]:
    """Return the free couplings of all tables with scores, in the order of the tables.

    `ranges` (m,) contains the difference between the last and the first score of each predictor,
    i.e. the factor that converts the scores in `layout` to the original scores.
    """
    shared = score_map(layout)
    if shared is None:
        return []
    scored = scored_tables(layout)
    firsts = shared.firsts(np.ones(shared.n, dtype=bool)) & scored
    out = []
    for scope in layout.scopes[layout.m :]:
        if not is_scored(layout, scope):
            continue
        positions = layout.table(np.arange(layout.size), *scope)
        for cell in np.argwhere(layout.table(firsts, *scope)).tolist():
            levels: list[int | None] = []
            unit = 1.0
            for i, level in zip(scope, cell, strict=True):
                scores = None if layout.scores is None else layout.scores[i]
                is_tied = scores is not None and not np.isnan(scores[level])
                levels.append(None if is_tied else level + 1)
                if is_tied and scores is not None:
                    unit *= float(scores[level] * ranges[i])
            out.append(Slope(scope, tuple(levels), int(positions[tuple(cell)]), unit))
    return out


def _level_map(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the first of the levels that share a free parameter with each level (D,), and the
    factor of each level (D,).
    """
    first = np.arange(layout.D)
    factor = np.ones(layout.D)
    for i, scores in enumerate(layout.scores or ()):
        if scores is not None:
            is_tied = ~np.isnan(scores)
            levels = np.arange(layout.start[i], layout.start[i + 1])
            first[levels[is_tied]] = levels[is_tied][0]
            factor[levels[is_tied]] = scores[is_tied]
    return first, factor


def score_map(layout: Layout) -> ScoreMap | None:
    """Return the map of a layout's free parameters to its parameters, or None if it has no scores.

    The fields come first. The map is cached in the layout.
    """
    if layout.scores is None:
        return None
    attributes = vars(layout)  # cached like the cached properties of the layout
    if "_score_map" not in attributes:
        first_level, level_factor = _level_map(layout)
        first_level = np.append(first_level, -1)  # entry -1 is for columns of -1
        level_factor = np.append(level_factor, 1.0)
        columns = term_columns(layout)  # (order, size), -1 for terms with fewer predictors
        width = np.diff(layout.start)
        predictor = np.append(np.repeat(np.arange(layout.m), width), -1)
        position = np.arange(layout.size)
        factor = np.ones(layout.size)
        stride = np.ones(layout.size, dtype=np.intp)
        # from the last predictor of a term, which varies fastest in its table
        for member in columns[::-1]:
            is_member = (member >= 0) & (position >= layout.D)
            position = position - np.where(is_member, (member - first_level[member]) * stride, 0)
            factor *= np.where(is_member, level_factor[member], 1.0)
            stride *= np.where(is_member, width[predictor[member]], 1)
        is_first = position == np.arange(layout.size)
        index = (np.cumsum(is_first) - 1)[position]
        attributes["_score_map"] = ScoreMap(index, factor, int(is_first.sum()))
    return attributes["_score_map"]


class SiteScores:
    """Features of the regressors of each site: scores for ordered predictors, otherwise indicators.

    A site's logits are ``h(a) + sum_k c_k(a) sum_f W(k, f) z_f``: here z contains the features of
    the other predictors, and c_k contains the features of the site itself (its scores, or
    indicators of its levels). The r free parameters are the fields h, followed by the rows of W.

    Parameters
    ----------
    layout : Layout

    Attributes
    ----------
    tables : list of ndarray, shapes (L, d)
        Features of the levels of each regressor (see `Regressors`).
    start : ndarray of intp, shape (number of regressors + 1,)
        First feature of each regressor, followed by the number F of features.
    features : list of ndarray of intp
        Features of each site's regressors.
    contrasts : list of ndarray, shapes (L_i - 1, d_i)
        Features of the non-reference levels of each site.
    maps : list of ScoreMap
        The map from each site's r free parameters to its p parameters, flattened by level and
        `Regressors.columns`.
    """

    def __init__(self, layout: Layout):
        regs = regressors(layout)
        first, factor = _level_map(layout)
        blocks = [_features(first, factor, *layout.start[i : i + 2]) for i in range(layout.m)]
        for number in range(layout.m, len(regs.n_levels)):
            scope = regs.scope(number)
            block = blocks[scope[0]]
            for member in scope[1:]:  # joint levels; the last member varies fastest
                block = np.kron(block, blocks[member])
            blocks.append(block)
        self.tables = [np.vstack([np.zeros((1, block.shape[1])), block]) for block in blocks]
        self.start = np.concatenate([[0], np.cumsum([block.shape[1] for block in blocks])])
        self.contrasts = blocks[: layout.m]
        self.features: list[np.ndarray] = []
        self.maps: list[ScoreMap] = []
        # of each column of the regressors: its feature, and its factor (the nonzero of its row)
        column_factor = np.concatenate([np.empty(0), *(block.sum(axis=1) for block in blocks)])
        column_feature = np.concatenate(
            [
                np.empty(0, dtype=np.intp),
                *(
                    start + np.argmax(block != 0.0, axis=1)
                    for start, block in zip(self.start[:-1], blocks, strict=True)
                    if block.size
                ),
            ]
        )
        for site in range(layout.m):
            is_used = np.repeat(regs.mask[site], np.diff(self.start))
            features = np.flatnonzero(is_used)
            self.features.append(features)
            place = np.cumsum(is_used) - 1  # of a feature among the site's
            columns = regs.columns[site][1:] - 1
            own = self.contrasts[site]
            q = len(own)
            index = np.zeros((q, 1 + len(columns)), dtype=np.intp)
            factors = np.ones((q, 1 + len(columns)))
            index[:, 0] = np.arange(q)
            own_feature = np.argmax(own != 0.0, axis=1) if own.size else np.zeros(q, dtype=np.intp)
            index[:, 1:] = q + own_feature[:, None] * len(features) + place[column_feature[columns]]
            factors[:, 1:] = np.outer(own.sum(axis=1), column_factor[columns])
            n = q + own.shape[1] * len(features)
            self.maps.append(ScoreMap(index.ravel(), factors.ravel(), n))

    @cached_property
    def column_map(self):
        """Features of the `Regressors` columns, as a sparse matrix (D, F)."""
        from scipy import sparse

        return sparse.block_diag([table[1:] for table in self.tables], format="csr")

    def design(self, codes: np.ndarray) -> np.ndarray:
        """Return the features (F, n) of rows, given their `Regressors` codes (n, tables)."""
        out = np.empty((int(self.start[-1]), len(codes)))
        for k, table in enumerate(self.tables):
            level = codes[:, k].astype(np.intp)
            for values, feature in zip(
                table.T, range(self.start[k], self.start[k + 1]), strict=True
            ):
                np.take(values, level, out=out[feature])
        return out

    def n_features(self, i: int) -> int:
        """Return the number of features of site i's regressors."""
        return len(self.features[i])


def _features(first: np.ndarray, factor: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Return the features (L - 1, d) of a predictor's levels, given its columns `begin` to `end` -
    1.
    """
    tied = first[begin:end] - begin
    distinct, feature = np.unique(tied, return_inverse=True)
    out = np.zeros((end - begin, len(distinct)))
    out[np.arange(end - begin), feature] = factor[begin:end]
    return out


def site_scores_of(layout: Layout) -> SiteScores:
    """Return the `SiteScores` of a layout, cached in the layout."""
    attributes = vars(layout)
    if "_site_scores" not in attributes:
        attributes["_site_scores"] = SiteScores(layout)
    return attributes["_site_scores"]
