"""Scores, Hessians and inverse Hessians of the conditional likelihoods of sites.

The *score* is the gradient of the log conditional likelihood, and the *Hessian* is the second
derivative of its negative. A Newton step is therefore the inverse Hessian times the score. The p
parameters of a site are the flattened rows of the site in the site solution, restricted to the
columns of the constant and the regressors of the site. A *curvature* of a site is the second
derivative, in one row, with respect to the fields of two levels a >= b of the site. It equals
``p_a ([a = b] - p_b)`` times the weight of the row. A site with L levels has L (L - 1) / 2
curvatures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from bbl._ext.model import eigen
from bbl._ext.pseudo import influence as kernel
from bbl.memory import check_memory
from bbl.model.energy import conditionals
from bbl.model.layout import Layout
from bbl.model.moments import one_hot, usable_rows, usable_weight
from bbl.model.regressors import regressors
from bbl.parallel import serial_blas
from bbl.rows.on_disk import Rows

__all__ = [
    "ROWS",
    "ZERO_EIGENVALUE",
    "ZERO_LOADING",
    "Solve",
    "informed",
    "inverse",
    "site_design",
    "site_hessians",
    "site_scores",
    "solver",
]


# a diagonal element of a mean Hessian below this counts as zero; the square of its inverse is
# finite
NO_INFORMATION = 1e-100
# a Hessian scaled to unit diagonal is treated as regular if all its squared Cholesky pivots are
# larger
MIN_PIVOT = 1e-10
# eigenvalues of a scaled Hessian below this, times the number of parameters, count as zero
ZERO_EIGENVALUE = 1e-13
# a parameter is undetermined if its squared loadings on the zero eigenvectors sum to more than this
ZERO_LOADING = 1e-9

# maps a score (p,) to the inverse Hessian times the score (p,)
Solve = Callable[[np.ndarray], np.ndarray]


def inverse(H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (pseudo-)inverse (p, p) of a Hessian, and a mask of determined parameters.

    A parameter is undetermined if its row of H is zero, or if it contributes to a linear
    combination of parameters along which H is zero. The inverse for the other parameters does not
    depend on undetermined parameters.
    """
    from scipy.linalg import lapack

    cholesky, scale, is_informed = _cholesky(H)
    if cholesky is None:
        return _pseudo_inverse(H, scale, is_informed)
    # lower triangle of the inverse of the scaled Hessian
    inverted = np.tril(lapack.dpotri(cholesky, lower=1)[0])
    inverted += np.tril(inverted, -1).T
    inverted /= scale[:, None]
    inverted /= scale
    return inverted, is_informed  # all True: H would be singular if a row were zero


def solver(H: np.ndarray) -> tuple[Solve, np.ndarray, bool]:
    """Return a function that computes ``inverse(H)[0] @ score``, a mask of determined parameters,
    and whether H is nonsingular.

    If H is nonsingular, this is about three times as fast as computing the inverse.
    """
    from scipy.linalg import lapack

    cholesky, scale, is_informed = _cholesky(H)
    if cholesky is None:
        inverted, is_informed = _pseudo_inverse(H, scale, is_informed)
        return inverted.__matmul__, is_informed, False
    return (
        lambda score: lapack.dpotrs(cholesky, score / scale, lower=1)[0] / scale,
        is_informed,
        True,
    )


def informed(H: np.ndarray, min_information: float) -> np.ndarray:
    """Return a mask of parameters that are independent of directions without information, shape
    (p,).

    H (p, p) is scaled to unit diagonal. A direction without information is an eigenvector with an
    eigenvalue below `min_information`. A parameter is independent if the sum of its squared
    loadings on these directions is less than `min_information`.
    """
    is_informed = H.diagonal() > NO_INFORMATION
    scale = np.sqrt(np.where(is_informed, H.diagonal(), 1.0))
    scaled = H / np.outer(scale, scale)
    eigenvalues, eigenvectors = eigen.eigenvectors(scaled, min_information)
    return is_informed & (
        (eigenvectors[:, eigenvalues < min_information] ** 2).sum(axis=1) < min_information
    )


def _cholesky(H: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Scale a Hessian H (p, p) to unit diagonal and factor it.

    Returns the lower Cholesky factor of ``H / outer(scale, scale)`` (None if it is singular), the
    scale (p,), and whether each diagonal element of H is nonzero (p,).
    """
    from scipy.linalg import lapack

    is_informed = H.diagonal() > NO_INFORMATION
    scale = np.sqrt(np.where(is_informed, H.diagonal(), 1.0))
    scaled = H / scale[:, None]
    scaled /= scale
    # the matrix is symmetric, so its transpose avoids a copy
    cholesky, failed_at = lapack.dpotrf(scaled.T, lower=1, overwrite_a=1)
    is_regular = not failed_at and cholesky.diagonal().min() ** 2 > MIN_PIVOT
    return cholesky if is_regular else None, scale, is_informed


def _pseudo_inverse(
    H: np.ndarray, scale: np.ndarray, is_informed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `inverse` for a singular Hessian.

    `scale` and `is_informed` are the last two results of `_cholesky`.
    """
    scales = np.outer(scale, scale)
    # eigenvalues (p,) and eigenvectors in the columns (p, p)
    eigenvalues, eigenvectors = eigen.eigenvectors(H / scales)
    is_curved = eigenvalues > ZERO_EIGENVALUE * len(H)
    determined = is_informed & ((eigenvectors[:, ~is_curved] ** 2).sum(axis=1) < ZERO_LOADING)
    return (eigenvectors[:, is_curved] / eigenvalues[is_curved]) @ eigenvectors[
        :, is_curved
    ].T / scales, determined


ROWS = 1024  # rows per chunk
CACHED_CURVATURES = 200_000  # curvatures of the rows that are added at once
# proportion of nonzeros in the design below which summing them individually is faster than matrix
# products
SPARSE_SHARE = 0.35
SHARED_BYTES = 2**21  # bytes of the sums for a batch of sites, which then fit in the L2 cache
# sites are processed together if a site uses at least this proportion of the common sums
SHARED_SHARE = 0.5


def site_hessians(
    sample: Rows, layout: Layout, site_theta: np.ndarray, sites: Iterable[int]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return the mean score (p,) and the mean Hessian (p, p) of each site.

    Means are weighted over the site's usable rows. The p parameters are ordered by level, and
    within a level as in `Regressors.columns`.
    """
    # columns of each site in the design; weight (m,) of the usable rows
    columns = regressors(layout).columns
    totals = usable_weight(sample, layout)
    sites = list(sites)
    n_parameters = {i: (int(layout.n_levels[i]) - 1) * len(columns[i]) for i in sites}
    # bytes of the Hessians, and of two arrays (ROWS, layout.size) for the callers' next step in
    # `model.godambe`: the influence of each row of a chunk on each parameter (the inverse Hessian
    # times the row's score)
    check_memory(
        8.0 * sum(float(p) ** 2 for p in n_parameters.values()) + 16.0 * ROWS * layout.size,
        f"Standard errors of {layout.size} parameters",
        "Use fewer predictors or fewer interactions.",
    )
    scores = np.zeros(site_theta.shape)
    batches = [
        _SparseSums(layout, batch) if len(batch) > 1 else _SiteSums(layout, batch[0])
        for batch in _split_sites(layout, sites)
    ]
    with serial_blas():  # single-threaded, so that sums do not depend on the number of threads
        for chunk in sample.blocks(ROWS):
            Z, P = site_design(chunk.codes, layout, site_theta)
            # (n, m): zero where the site, or a predictor that it interacts with, is missing
            weights = chunk.weights[:, None] * usable_rows(chunk, layout)
            _add_scores(scores, Z, P, weights, layout)
            for batch in batches:
                batch.add(Z, P, weights)
    results_by_site = {}
    for batch in batches:
        for i, H in batch.hessians():
            H /= totals[i]
            results_by_site[i] = (
                scores[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel() / totals[i],
                H,
            )
    return {i: results_by_site[i] for i in sites}


def site_scores(
    sample: Rows, layout: Layout, site_theta: np.ndarray, sites: Iterable[int]
) -> dict[int, np.ndarray]:
    """Return the mean scores (p,) as in `site_hessians`, without the Hessians."""
    columns = regressors(layout).columns
    totals = usable_weight(sample, layout)
    scores = np.zeros(site_theta.shape)
    with serial_blas():  # single-threaded, so that sums do not depend on the number of threads
        for chunk in sample.blocks(ROWS):
            Z, P = site_design(chunk.codes, layout, site_theta)
            # (n, m): zero where the site, or a predictor that it interacts with, is missing
            weights = chunk.weights[:, None] * usable_rows(chunk, layout)
            _add_scores(scores, Z, P, weights, layout)
    return {
        i: scores[layout.start[i] : layout.start[i + 1]][:, columns[i]].ravel() / totals[i]
        for i in sites
    }


def site_design(
    codes: np.ndarray, layout: Layout, site_theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the design matrix (n, 1 + D) with the constant first, and ``P_i(a | others)``
    (n, layout.D).

    ``P_i(a | others)`` is the conditional probability of level a >= 1 of site i in a row (Woo &
    Wang 2022, eq. 11).
    """
    regs = regressors(layout)
    # `regs.codes` adds codes of joint levels for terms of three or more predictors
    X = one_hot(regs.codes(codes), regs)
    _, P = conditionals(X @ site_theta[:, 1:].T + site_theta[:, 0], layout)
    return np.column_stack([np.ones(len(codes)), X]), P


def _add_scores(
    scores: np.ndarray, Z: np.ndarray, P: np.ndarray, weights: np.ndarray, layout: Layout
) -> None:
    """Add the scores of rows to the `scores` (layout.D, 1 + D) of all sites in place.

    The derivative of a row's log-likelihood with respect to the parameter of level (i, a) and
    column c is ``w_i (x_ia - P_ia) z_c``: x_ia is 1 if the row has the level and 0 otherwise, w_i
    is the weight of the row for site i, and z is the row of the design matrix. The rows have design
    Z (n, 1 + D), probabilities P (n, layout.D), and `weights` (n, m) for each site.
    """
    residual = Z[:, 1 : 1 + layout.D] - P
    residual *= np.repeat(weights, layout.n_levels - 1, axis=1)
    scores += residual.T @ Z


def _split_sites(layout: Layout, sites: Sequence[int]) -> list[Sequence[int]]:
    """Split sites into batches of sites that use mostly the same columns. The sums of a batch fit
    into the cache.
    """
    if len(sites) == 1:
        return [sites]
    regs = regressors(layout)
    n_columns = np.array([len(regs.columns[i]) for i in sites], dtype=float)
    n_curvatures = np.array([_count_curvatures(layout, i) for i in sites], dtype=float)
    n_union = float(len(_list_columns(layout, sites)))  # number of columns used by some site
    # process sites individually if most pairs of these columns would not be used by a given site
    if (n_columns**2 * n_curvatures).sum() < SHARED_SHARE * n_union**2 * n_curvatures.sum():
        return [[i] for i in sites]
    # there are n_union (n_union + 1) / 2 sums of 8 bytes per curvature
    batch_of_site = np.cumsum(n_curvatures) // (SHARED_BYTES / (4.0 * n_union * (n_union + 1.0)))
    return [np.asarray(sites)[batch_of_site == b].tolist() for b in np.unique(batch_of_site)]


def _count_curvatures(layout: Layout, i: int) -> int:
    """Return the number of pairs of non-reference levels a >= b of site i."""
    return int(layout.n_levels[i]) * (int(layout.n_levels[i]) - 1) // 2


def _list_columns(layout: Layout, sites: Sequence[int]) -> np.ndarray:
    """Return the columns of the design that at least one of the sites uses, in increasing order."""
    regs = regressors(layout)
    is_used = np.zeros(1 + regs.D, dtype=bool)
    is_used[0] = True  # the constant, even if there are no sites
    for i in sites:
        is_used[regs.columns[i]] = True
    return np.flatnonzero(is_used)


class _SparseSums:
    """Accumulates the Hessians of several sites over the pairs of columns that are 1 in each row.

    The element for levels a, b and columns t, u is the sum over rows of the curvature of a and b
    times ``z_t z_u``.

    The sums (pairs of columns, curvatures) have one column per curvature, grouped by site. The pair
    of columns t >= u is in row ``t (t + 1) / 2 + u``, where t and u count only the columns that at
    least one site uses.

    Parameters
    ----------
    layout : Layout
    sites : sequence of int
        Predictors.
    """

    def __init__(self, layout: Layout, sites: Sequence[int]):
        self.layout = layout
        self.sites = sites
        self._columns = _list_columns(layout, sites)
        # for each L, the levels (a, b), a >= b, of the curvatures of a site with L levels, where 0
        # is the first non-reference level
        pairs_by_n_levels = {
            L: np.tril_indices(L - 1) for L in np.unique(layout.n_levels[sites]).tolist()
        }
        self._level_pairs = site_pairs = [pairs_by_n_levels[int(layout.n_levels[i])] for i in sites]
        # for each curvature: the columns in P (n, layout.D) of its two levels, and its site
        self._first_levels = np.concatenate(
            [layout.start[i] + a for i, (a, _) in zip(sites, site_pairs, strict=True)]
        )
        self._second_levels = np.concatenate(
            [layout.start[i] + b for i, (_, b) in zip(sites, site_pairs, strict=True)]
        )
        self._site = np.repeat(sites, [len(a) for a, _ in site_pairs])
        self._diagonal = np.flatnonzero(self._first_levels == self._second_levels)
        n_columns = len(self._columns)
        self._sums = np.zeros((n_columns * (n_columns + 1) // 2, len(self._first_levels)))

    def add(self, Z: np.ndarray, P: np.ndarray, weights: np.ndarray) -> None:
        """Add rows with design Z (n, 1 + D), probabilities P (n, layout.D) and weights (n, m) by
        site.
        """
        # a few rows at a time: with many levels the curvatures of all rows do not fit in the cache
        n_rows = max(1, CACHED_CURVATURES // len(self._site))
        for begin in range(0, len(Z), n_rows):
            rows = slice(begin, begin + n_rows)
            first_probabilities = P[rows].take(self._first_levels, axis=1)
            curvatures = -first_probabilities
            curvatures *= P[rows].take(self._second_levels, axis=1)
            curvatures[:, self._diagonal] += first_probabilities[:, self._diagonal]
            curvatures *= weights[rows].take(self._site, axis=1)
            kernel.add_curvatures(Z[rows], self._columns, curvatures, self._sums)

    def hessians(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each site and its Hessian (p, p)."""
        all_columns = regressors(self.layout).columns
        numbers = np.arange(len(self._columns))
        larger = np.maximum.outer(numbers, numbers)
        # `pair_row`: row of the sums for each pair of columns; `offset`: the site's first curvature
        pair_row = larger * (larger + 1) // 2 + np.minimum.outer(numbers, numbers)
        offset = 0
        for i, (a, b) in zip(self.sites, self._level_pairs, strict=True):
            # a, b: the two levels of each curvature, counted from 0; positions: the site's columns
            # among the columns of all sites
            positions = np.searchsorted(self._columns, all_columns[i])
            n_nonreference = int(self.layout.n_levels[i]) - 1
            blocks = self._sums[:, offset : offset + len(a)].T[
                :, pair_row[np.ix_(positions, positions)]
            ]
            H = np.zeros((n_nonreference, len(positions), n_nonreference, len(positions)))
            H[a, :, b] = H[b, :, a] = blocks  # (curvatures, positions, positions)
            offset += len(a)
            yield i, H.reshape(n_nonreference * len(positions), -1)


class _SiteSums:
    """Accumulates the Hessian of one site by matrix products.

    Chunks of rows with a sparse design are instead summed over the pairs of columns that are 1 (see
    `_SparseSums`).

    Parameters
    ----------
    layout : Layout
    site : int
        Predictor.
    """

    def __init__(self, layout: Layout, site: int):
        self.layout = layout
        self.site = site
        self._columns = regressors(layout).columns[site]
        p = len(self._columns) * (int(layout.n_levels[site]) - 1)
        self._H = np.zeros((p, p))
        # sums for the chunks with a sparse design, if any
        self._sparse: _SparseSums | None = None

    def add(self, Z: np.ndarray, P: np.ndarray, weights: np.ndarray) -> None:
        """Add rows (see `_SparseSums.add`)."""
        design = Z[:, self._columns]  # zeros and ones
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


def _add_hessian(
    H: np.ndarray, design: np.ndarray, probabilities: np.ndarray, weights: np.ndarray
) -> None:
    """Add a multinomial-logit Hessian to H (q c, q c) in place, given the design (n, c),
    probabilities (n, q) and weights (n,).

    Block (a, b) of levels is ``sum_k w_k p_ka ([a = b] - p_kb) z_k z_k'``, where z_k is the design
    of row k.
    """
    c = design.shape[1]
    for a in range(probabilities.shape[1]):
        for b in range(a + 1):
            curvature = weights * (
                probabilities[:, a] * (a == b) - probabilities[:, a] * probabilities[:, b]
            )
            block = design.T @ (design * curvature[:, None])
            H[a * c : (a + 1) * c, b * c : (b + 1) * c] += block
            if a != b:
                H[b * c : (b + 1) * c, a * c : (a + 1) * c] += block
