# Pseudo plan: how the rows of a pseudo-likelihood problem are laid out for its kernel, and which metric pays.
"""Choices before a pseudo-likelihood problem is prepared: vector width, sizes, metric; its codes column by column.

n rows of m predictors with `n_levels` (m,) levels; a *column* is the indicator of a non-reference level, D in all. A
*site* is a predictor whose conditional distribution given the others is fitted; *lanes* sites share a vector. A
*composite* is a run of predictors coded as one joint variable. The *metric* of the optimiser is an approximate inverse
Hessian, made from the covariance (D, D) of the columns. A matrix in *panels* of eight has the shape (K, D, 8): panel k
holds its columns 8 k ... 8 k + 7, padded with zeros. Cases are those of ``python -m benchmarks.run --suite fit``.
"""
import numpy as np

from bbl._ext.model.eigen import eigenvectors, inverse

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t

cdef extern from "cpu.h" nogil:
    int cpu_runs(int bytes)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

ctypedef fused column_t:
    uint8_t
    uint16_t

cdef enum:
    TILE_ROWS = 256  # rows that are transposed at a time: they stay in the first-level cache

LANES = {"avx512": 8, "avx2": 4, "sse2": 2, "plain": 1}  # doubles in a vector; sse2 stands for any vectors of 128 bits
LEADING = 32  # eigenvectors of the covariance where only the leading ones are used, a multiple of eight (case family)
SUBSPACE, POWERS = 40, 4  # vectors with which they are found, and multiplications by the covariance: 1 % is enough
LEAST_COMMON = 1.0  # largest eigenvalue up to which they save nothing: W4 has .7, related rows have 1.2 to 5 (family)
MOST_LOGITS = 40  # logits of a predictor up to which they are used: the kernel's PSEUDO_MAX_ROTATED
LEAST_RIDGE = 1e-5  # with which a covariance is inverted, as a share of its mean eigenvalue: digits of a float
SOLVED_AT_ONCE = 256  # blocks of the inverse covariance that are solved in one call, which bounds the memory
WIDE_COLUMNS = 512  # D above which the metric takes most of the time of an iteration (cases W2, MNIST, wide)
MOST_COLUMNS = 3000  # D above which the covariance is not decomposed (case wide)


def widths():
    """Return the names of the vector widths that this processor runs, widest first."""
    return tuple(name for name, lanes in LANES.items() if cpu_runs(8 * lanes))


def choose_lanes(n_levels, width, size_t number_bytes):
    """Return the lanes, numbers of `number_bytes` bytes in a vector of the named `width`, by default the widest.

    They are halved until offsets, lanes times levels, fit 16 bits. Up to four predictors get no vectors of eight.
    """
    if width is not None:
        if width not in widths():
            raise ValueError(f"width must be one of {widths()} on this processor, not {width!r}")
        lanes = LANES[width]
    else:
        lanes = max(LANES[name] for name in widths())
        if len(n_levels) <= 4 and lanes == 8:
            lanes = 4
    if lanes > 1 and number_bytes == 4:
        lanes *= 2
    while lanes > 1 and lanes * int(n_levels.max()) > 65535:
        lanes = lanes // 2 if lanes * number_bytes > 16 else 1
    return lanes


def check_problem(codes, weights, n_levels, neighbours):
    """Raise a ValueError unless the arrays of a problem fit together, weights are positive and levels in range."""
    n, m = codes.shape
    if not (n and 1 <= len(neighbours) <= m == len(n_levels) == neighbours.shape[1] and len(weights) == n):
        raise ValueError("codes, weights, n_levels and mask do not fit together")
    if not (np.isfinite(weights).all() and np.min(weights) > 0.0):
        raise ValueError("weights must be positive numbers")
    if np.min(n_levels) < 2 or np.max(n_levels) > 65535:
        raise ValueError("n_levels must lie between 2 and 65535")


def share_of_neighbours(neighbours):
    """Return the share of pairs of a site and another predictor that are neighbours; `neighbours` is (n_sites, m)."""
    n_sites, m = neighbours.shape
    return (np.count_nonzero(neighbours) - np.count_nonzero(np.diagonal(neighbours))) / max(1, n_sites * (m - 1))


def composite_sizes(n, n_levels):
    """Return the most joint states of a composite, and the bytes of the tables of one logit that are used together.

    The tables of the up to three logits that are computed at once share 36 KiB of the first-level cache.
    """
    return max(8, min(64, n // 8)), 36864 // max(1, min(int(n_levels.max()) - 1, 3))


def kronecker_pays(n, n_levels, D, density):
    """Return whether the covariance of the columns, for the metric, saves more time than it costs (cases W1 to W4).

    `density` is the share of pairs of predictors that are neighbours.
    """
    max_levels = n_levels.max()
    max_columns = n // 4 if max_levels == 2 else n // 8
    if D > WIDE_COLUMNS:
        max_columns = 4 * n if max_levels == 2 else n
    return bool(density >= 0.5 and D <= min(max_columns, MOST_COLUMNS) and max_levels <= 8)


def leading_pays(n_levels, D, density):
    """Return whether leading eigenvectors of the covariance may be used, where `kronecker_pays` is false (case family).

    Related rows, as in an alignment of sequences, have a few large eigenvalues, which slow an optimiser down that knows
    each predictor's own columns alone. Where the largest is small, `leading_metric` finds that they do not pay.
    """
    max_levels = np.max(n_levels)
    return bool(density >= 0.5 and D > WIDE_COLUMNS and 8 < max_levels <= MOST_LOGITS + 1)


def read_columns(const code_t[:, ::1] codes, const int32_t[::1] n_levels, column_t[:, ::1] columns):
    """Transpose `codes` (n, m) into `columns` (m, n); return the first predictor with a code out of range, or -1."""
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i, tile, first, first_bad = m
    cdef int32_t code
    cdef uint32_t max_code
    with nogil:
        for tile in range((n + TILE_ROWS - 1) // TILE_ROWS):
            first = tile * TILE_ROWS
            for i in range(m):
                max_code = 0
                for k in range(first, min(n, first + TILE_ROWS)):
                    code = <int32_t> codes[k, i]
                    max_code = max(max_code, <uint32_t> code)  # a negative code is large
                    columns[i, k] = <column_t> code
                if max_code >= <uint32_t> n_levels[i]:
                    first_bad = min(first_bad, i)
    return first_bad if first_bad < m else -1


def kronecker_metric(covariance, D_padded):
    """Return the eigenvectors V of a covariance (D, D), largest eigenvalue first, in panels, and the eigenvalues.

    `project` (D_padded / 8, D, 8) is V, `expand` (D_padded / 8, D_padded, 8) is V'; `eigenvalues` (D_padded,) are kept
    positive. `D_padded` is D rounded up to a multiple of eight.
    """
    D = len(covariance)
    eigenvalues, vectors = eigenvectors(covariance)
    eigenvalues = np.maximum(eigenvalues[::-1], 1e-7 * eigenvalues.mean() + 1e-300)
    V = np.zeros((D_padded, D_padded), dtype=np.float32)
    V[:D, :D] = vectors[:, ::-1]
    del vectors
    project = np.ascontiguousarray(V[:D].reshape(D, D_padded // 8, 8).transpose(1, 0, 2))
    expand = np.ascontiguousarray(V.reshape(D_padded // 8, 8, D_padded).transpose(0, 2, 1))
    return project, expand, np.concatenate((eigenvalues, np.full(D_padded - D, eigenvalues[D - 1])))


def leading_metric(second, mean, D_padded):
    """Return what `kronecker_metric` does for the `LEADING` eigenvectors, or None if the largest eigenvalue is small.

    `expand` is (D_padded / 8, LEADING, 8). The covariance ``second - mean mean'``, for `second` (D, D) and `mean` (D,),
    is not formed. Eigenvalues beyond the leading ones are the mean of the others.
    """
    D = len(mean)
    product = np.random.default_rng(0).standard_normal((D, SUBSPACE))
    for _ in range(POWERS):
        basis = np.linalg.qr(product)[0]
        product = second @ basis - np.outer(mean, mean @ basis)
    eigenvalues, vectors = np.linalg.eigh(basis.T @ product)
    leading = eigenvalues[::-1][:LEADING]
    if leading[0] <= LEAST_COMMON:
        return None
    V = np.zeros((D_padded, LEADING), dtype=np.float32)
    V[:D] = basis @ vectors[:, ::-1][:, :LEADING]
    project = np.ascontiguousarray(V[:D].reshape(D, LEADING // 8, 8).transpose(1, 0, 2))
    expand = np.ascontiguousarray(V.reshape(D_padded // 8, 8, LEADING).transpose(0, 2, 1))
    trace = np.trace(second) - mean @ mean
    others = max(trace - leading.sum(), 1e-7 * trace + 1e-300) / (D - LEADING)
    return project, expand, np.concatenate((np.maximum(leading, others), np.full(D_padded - LEADING, others)))


def largest_eigenvalue(matrix):
    """Return the largest eigenvalue of a positive semidefinite matrix, to 1 % (Lanczos, from a random vector)."""
    from scipy.sparse.linalg import eigsh
    if not matrix.any():
        return 0.0
    vector = np.random.default_rng(0).standard_normal(len(matrix))
    return eigsh(matrix, 1, v0=vector, tol=0.01, return_eigenvectors=False)[0]


def ridged_inverse(matrix, ridge):
    """Return the inverse of ``matrix + ridge I``; the matrix is overwritten."""
    matrix[np.diag_indices(len(matrix))] += ridge
    return inverse(matrix)


def wide_metric(covariance, lambda_, penalty_ridge, D_s, start, levels, D_padded):
    """Return the metric of a wide problem: the inverse M of the covariance (D, D) plus a ridge, and corrections.

    `covariance` is a function that returns it as a new array on each call, so that one matrix of its size is held at a
    time; `lambda_` the penalty of the couplings; `penalty_ridge` the ridge that it amounts to, lambda_ over the largest
    variance of a site's column; `D_s` the number of columns of the sites; `start` and `levels` (n_sites,) the first
    column and the number of levels of each site; `D_padded` D rounded up to a multiple of eight.

    Returns ``(panels, site_correction, ridge, lowest, highest)``: M in panels (D_padded / 8, D, 8); (D_s, D), for the
    columns B of each site the rows ``inv(M[B, B]) M[B, :]``, which remove B from M; the ridge; and about the least and
    the largest eigenvalue of the covariance. Arrays are float32.
    """
    M = covariance()
    D = len(M)
    highest = largest_eigenvalue(M)
    ridge = max(LEAST_RIDGE * np.trace(M) / D, penalty_ridge)
    M = ridged_inverse(M, ridge)
    lowest = max(0.0, 1.0 / largest_eigenvalue(M) - ridge)
    # lambda_ over the median variance of a column given the others, 1 / diagonal of M: the penalty as a ridge for such
    conditional_ridge = lambda_ * np.median(M.diagonal())
    if conditional_ridge > 2.0 * max(ridge, 0.1 * lowest):
        ridge, M = conditional_ridge, ridged_inverse(covariance(), conditional_ridge)
    site_correction = np.empty((D_s, D), dtype=np.float32)
    for size in np.unique(levels):
        site_columns = start[levels == size][:, None] + np.arange(size - 1)  # (sites with this many levels, size - 1)
        for columns in np.split(site_columns, range(SOLVED_AT_ONCE, len(site_columns), SOLVED_AT_ONCE)):
            M_rows = M[columns]
            M_blocks = np.take_along_axis(M_rows, columns[:, None], axis=2)
            site_correction[columns] = np.linalg.solve(M_blocks, M_rows)
    panels = np.zeros((D_padded // 8, D, 8), dtype=np.float32)
    for first in range(0, D, 8):
        panels[first // 8, :, : min(8, D - first)] = M[:, first : first + 8]
    return panels, site_correction, ridge, lowest, highest
