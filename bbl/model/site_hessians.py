"""Scores and Hessians of the minus log conditional likelihood of sites, summed over rows.

*Site*: the predictor i whose conditional distribution given the others is modelled. *Site solution* ``site_theta``,
shape (layout.D, 1 + D): row (i, a) holds the field of level a >= 1 of site i, then its couplings with the D indicators
of the levels of other predictors (see `Regressors`). A site has p parameters: its rows of ``site_theta`` in the columns
of the constant and of its regressors, flattened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bbl._ext.pseudo import influence as kernel
from bbl.memory import check_memory
from bbl.model.conditional import conditionals
from bbl.model.layout import Layout
from bbl.model.moments import one_hot, usable_rows, usable_weight
from bbl.model.regressors import regressors
from bbl.parallel import serial_blas
from bbl.rows.on_disk import Rows

__all__ = ["ROWS", "site_design", "site_hessians", "site_scores"]

ROWS = 1024  # of a chunk
SPARSE_SHARE = 0.35  # share of nonzeros in the design below which summing them singly is faster than matrix products
SHARED_BYTES = 2**21  # of the sums of sites that are summed together: they stay in the second cache
SHARED_SHARE = 0.5  # least share of the sums of sites together that belong to one of them


def site_hessians(
    sample: Rows, layout: Layout, site_theta: np.ndarray, sites: Iterable[int]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return, for each site, the mean score (p,) and the mean Hessian (p, p) of its minus log conditional likelihood.

    Means are over the weight of the site's usable rows. The p parameters run level by level, and within a level as in
    `Regressors.columns`.
    """
    columns, totals, sites = regressors(layout).columns, usable_weight(sample, layout), list(sites)
    n_parameters = {i: (int(layout.n_levels[i]) - 1) * len(columns[i]) for i in sites}
    check_memory(
        8.0 * sum(float(p) ** 2 for p in n_parameters.values()) + 16.0 * ROWS * layout.size,
        f"Standard errors of {layout.size} parameters",
        "Fit fewer predictors or fewer interactions.",
    )
    scores = np.zeros(site_theta.shape)
    batches = [
        _SparseSums(layout, batch) if len(batch) > 1 else _SiteSums(layout, batch[0])
        for batch in _batches(layout, sites)
    ]
    with serial_blas():
        for Z, P, weights in _chunks(sample, layout, site_theta):
            _add_scores(scores, Z, P, weights, layout)
            for batch in batches:
                batch.add(Z, P, weights)
    found = {}
    for batch in batches:
        for i, H in batch.hessians():
            H /= totals[i]
            found[i] = scores[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel() / totals[i], H
    return {i: found[i] for i in sites}


def site_scores(sample: Rows, layout: Layout, site_theta: np.ndarray, sites: Iterable[int]) -> dict[int, np.ndarray]:
    """Return the mean scores that `site_hessians` returns."""
    columns, totals = regressors(layout).columns, usable_weight(sample, layout)
    scores = np.zeros(site_theta.shape)
    with serial_blas():
        for Z, P, weights in _chunks(sample, layout, site_theta):
            _add_scores(scores, Z, P, weights, layout)
    return {i: scores[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel() / totals[i] for i in sites}


def site_design(codes: np.ndarray, layout: Layout, site_theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the design matrix (n, 1 + D), the constant first, and ``P_i(a | others)`` of eq. (11), (n, layout.D)."""
    regs = regressors(layout)
    X = one_hot(regs.codes(codes), regs)
    _, P = conditionals(X, layout, site_theta[:, 0], site_theta[:, 1:])
    return np.column_stack([np.ones(len(codes)), X]), P


def _chunks(
    sample: Rows, layout: Layout, site_theta: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the results of `site_design` for chunks of rows, and the weights (n, m) of the rows for each site."""
    for chunk in sample.blocks(ROWS):
        Z, P = site_design(chunk.codes, layout, site_theta)
        yield Z, P, chunk.weights[:, None] * usable_rows(chunk, layout)


def _add_scores(scores: np.ndarray, Z: np.ndarray, P: np.ndarray, weights: np.ndarray, layout: Layout) -> None:
    """Add the scores of rows to those of all sites, shape (layout.D, 1 + D), in place."""
    residual = Z[:, 1 : 1 + layout.D] - P
    residual *= np.repeat(weights, layout.n_levels - 1, axis=1)
    scores += residual.T @ Z


def _batches(layout: Layout, sites: Sequence[int]) -> list[Sequence[int]]:
    """Split sites into batches that share most of their columns, and whose sums together are not too large."""
    regs = regressors(layout)
    n_columns = np.array([len(regs.columns[i]) for i in sites], dtype=float)
    n_curvatures = np.array([_n_curvatures(layout, i) for i in sites], dtype=float)
    union = float(len(_union(layout, sites)))
    if (n_columns**2 * n_curvatures).sum() < SHARED_SHARE * union**2 * n_curvatures.sum():
        return [[i] for i in sites]
    batch = np.cumsum(n_curvatures) // (SHARED_BYTES / (4.0 * union * (union + 1.0)))
    return [np.asarray(sites)[batch == b].tolist() for b in np.unique(batch)]


def _n_curvatures(layout: Layout, i: int) -> int:
    return int(layout.n_levels[i]) * (int(layout.n_levels[i]) - 1) // 2


def _union(layout: Layout, sites: Sequence[int]) -> np.ndarray:
    """Return the columns of some sites."""
    columns = regressors(layout).columns
    return np.unique(np.concatenate([np.zeros(1, dtype=np.intp), *(columns[i] for i in sites)]))


class _SparseSums:
    """Hessians of some sites, summed over the pairs of columns that are 1 in a row, for all sites at a time."""

    def __init__(self, layout: Layout, sites: Sequence[int]):
        self.layout, self.sites, self._columns = layout, sites, _union(layout, sites)
        pairs = {L: np.tril_indices(L - 1) for L in np.unique(layout.n_levels[sites]).tolist()}
        self._levels = levels = [pairs[int(layout.n_levels[i])] for i in sites]
        self._a = np.concatenate([layout.start[i] + a for i, (a, _) in zip(sites, levels, strict=True)])
        self._b = np.concatenate([layout.start[i] + b for i, (_, b) in zip(sites, levels, strict=True)])
        self._site = np.repeat(sites, [len(a) for a, _ in levels])
        self._diagonal = np.flatnonzero(self._a == self._b)
        c = len(self._columns)
        self._sums = np.zeros((c * (c + 1) // 2, len(self._a)))

    def add(self, Z: np.ndarray, P: np.ndarray, weights: np.ndarray) -> None:
        """Add rows with design Z (n, 1 + D), probabilities P (n, layout.D) and weights (n, m) for each site."""
        first = P.take(self._a, axis=1)
        curvatures = -first * P.take(self._b, axis=1)
        curvatures[:, self._diagonal] += first[:, self._diagonal]
        curvatures *= weights.take(self._site, axis=1)
        kernel.add_curvatures(Z, self._columns, curvatures, self._sums)

    def hessians(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each site and its Hessian (p, p)."""
        all_columns, at_all = regressors(self.layout).columns, np.arange(len(self._columns))
        larger = np.maximum.outer(at_all, at_all)
        number, first = larger * (larger + 1) // 2 + np.minimum.outer(at_all, at_all), 0
        for i, (a, b) in zip(self.sites, self._levels, strict=True):
            at, q = np.searchsorted(self._columns, all_columns[i]), int(self.layout.n_levels[i]) - 1
            blocks = self._sums[:, first : first + len(a)].T[:, number[np.ix_(at, at)]]
            H = np.zeros((q, len(at), q, len(at)))
            H[a, :, b] = H[b, :, a] = blocks
            first += len(a)
            yield i, H.reshape(q * len(at), -1)


class _SiteSums:
    """The Hessian of one site, summed by matrix products, or of the pairs of columns that are 1 in a sparse row."""

    def __init__(self, layout: Layout, site: int):
        self.layout, self.site = layout, site
        self._columns = regressors(layout).columns[site]
        p = len(self._columns) * (int(layout.n_levels[site]) - 1)
        self._H = np.zeros((p, p))
        self._sparse: _SparseSums | None = None

    def add(self, Z: np.ndarray, P: np.ndarray, weights: np.ndarray) -> None:
        """Add rows; see `_SparseSums.add`."""
        design = Z[:, self._columns]
        if design.mean() < SPARSE_SHARE:
            self._sparse = self._sparse or _SparseSums(self.layout, [self.site])
            self._sparse.add(Z, P, weights)
        else:
            site_levels = slice(self.layout.start[self.site], self.layout.start[self.site + 1])
            _add_hessian(self._H, design, P[:, site_levels], weights[:, self.site])

    def hessians(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the site and its Hessian (p, p)."""
        if self._sparse is not None:
            self._H += next(self._sparse.hessians())[1]
        yield self.site, self._H


def _add_hessian(H: np.ndarray, design: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> None:
    """Add a multinomial-logit Hessian to H (q c, q c) in place: design (n, c), probabilities (n, q), weights (n,)."""
    c = design.shape[1]
    for a in range(probabilities.shape[1]):
        for b in range(a + 1):
            curvature = weights * (probabilities[:, a] * (a == b) - probabilities[:, a] * probabilities[:, b])
            block = design.T @ (design * curvature[:, None])
            H[a * c : (a + 1) * c, b * c : (b + 1) * c] += block
            if a != b:
                H[b * c : (b + 1) * c, a * c : (a + 1) * c] += block
