# # Pseudo plan: how the rows of a pseudo-likelihood problem are arranged for its kernel, and which metric is
# worthwhile.
"""Choices for a pseudo-likelihood problem: vector width, sizes, metric; and the arrays of codes and the metric.

There are n rows of m predictors with `n_levels` (m,) levels; a *column* is the indicator of a non-reference level, D in
all. A *site* is a predictor whose conditional distribution given the others is fitted; *lanes* sites share a vector. A
*composite* is a run of predictors coded as one joint variable. The *metric* of the optimiser is an approximate inverse
Hessian derived from the covariance (D, D) of the columns: from all its eigenvectors (*kronecker*), from the *leading*
ones only, or, in *wide* problems with many columns, from its inverse. A matrix in *panels* of eight has the shape (K,
D, 8): panel k contains its columns 8 k ... 8 k + 7, padded with zeros. In parentheses: the cases of ``python -m
benchmarks.run --suite fit`` whose times depend on the value.
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
    TILE_ROWS = 256  # rows that are transposed at a time: they stay in the L1 cache

LANES = {"avx512": 8, "avx2": 4, "sse2": 2, "plain": 1}  # doubles per vector; sse2 means any vectors of 128 bits
N_LEADING = 32  # number of leading eigenvectors of the covariance that are used, a multiple of eight (case family)
SUBSPACE_SIZE, SUBSPACE_STEPS = 40, 4  # vectors, multiplications by the covariance that find them, to the 1% needed
MIN_LEADING_EIGENVALUE = 1.0  # skip them if the largest is at most this: W4 has .7, related rows 1.2 to 5 (family)
MAX_LEADING_LOGITS = 40  # maximum logits of a predictor for which they are used: PSEUDO_MAX_ROTATED of the kernel
MIN_RIDGE_SHARE = 1e-5  # smallest ridge for inverting a covariance, relative to its mean eigenvalue: a float's digits
SITES_PER_SOLVE = 256  # sites whose correction of the inverse is computed in one call, to limit memory
WIDE_COLUMNS = 512  # D above which the metric takes most of the time of an iteration (cases W2, MNIST, wide)
MAX_DECOMPOSED_COLUMNS = 3000  # D above which the covariance is neither decomposed nor inverted (case wide)


def widths():
    """Return the names of the vector widths supported by this processor, widest first."""
    return tuple(name for name, lanes in LANES.items() if cpu_runs(8 * lanes))


def choose_lanes(n_levels, width, size_t number_bytes):
    """Return the number of lanes of a vector of the named `width`, by default the widest supported by this processor.

    Lanes contain numbers of `number_bytes` bytes, 8 or 4. Their number is halved until offsets into tables, at most
    lanes times the largest of `n_levels` (m,), fit into 16 bits. For up to four predictors, vectors of eight doubles
    are not used by default, since they would be partly empty.
    """
    if width is not None:
        if width not in widths():
            raise ValueError(f"width must be one of {widths()} on this processor, not {width!r}")
        lanes = LANES[width]
    else:
        lanes = max(LANES[name] for name in widths())
        if len(n_levels) <= 4 and lanes == 8:
            lanes = 4
    if lanes > 1 and number_bytes == 4:  # so far lanes are for doubles
        lanes *= 2
    while lanes > 1 and lanes * int(n_levels.max()) > 65535:
        lanes = lanes // 2 if lanes * number_bytes > 16 else 1  # vectors have at least 16 bytes
    return lanes


def check_problem(codes, weights, n_levels, neighbours):
    """Raise ValueError unless the arrays of a problem match, weights are positive and n_levels is in range.

    Shapes: codes (n, m), weights (n,), n_levels (m,), neighbours (n_sites, m).
    """
    n, m = codes.shape
    if not (n and 1 <= len(neighbours) <= m == len(n_levels) == neighbours.shape[1] and len(weights) == n):
        raise ValueError("codes, weights, n_levels and mask do not fit together")
    if not (np.isfinite(weights).all() and np.min(weights) > 0.0):
        raise ValueError("weights must be positive numbers")
    if np.min(n_levels) < 2 or np.max(n_levels) > 65535:
        raise ValueError("n_levels must lie between 2 and 65535")


def share_of_neighbours(neighbours):
    """Return the proportion of pairs of a site and another predictor that are neighbours; `neighbours` is (n_sites, m).
    """
    n_sites, m = neighbours.shape
    return (np.count_nonzero(neighbours) - np.count_nonzero(np.diagonal(neighbours))) / max(1, n_sites * (m - 1))


def composite_sizes(n, n_levels):
    """Return the maximum number of joint states of a composite, and the bytes of one logit's tables used together.

    A joint state costs an addition for the table, and a composite a load in each of n rows: up to 64 states, fewer if
    there are few rows. The tables of the up to three logits that are computed at once share 36 KiB of the L1 cache.
    """
    return max(8, min(64, n // 8)), 36864 // max(1, min(int(n_levels.max()) - 1, 3))


def kronecker_pays(n, n_levels, D, density):
    """Return whether a metric based on the complete covariance of the columns saves more time than it costs (cases W1
    to W4).

    `n_levels` is (m,), `density` the proportion of pairs of predictors that are neighbours (see `share_of_neighbours`).
    If D > WIDE_COLUMNS, the covariance is inverted instead of decomposed, which is worthwhile for more columns.
    """
    max_levels = n_levels.max()
    max_columns = n // 4 if max_levels == 2 else n // 8  # largest D for which it is worthwhile
    if D > WIDE_COLUMNS:
        max_columns = 4 * n if max_levels == 2 else n
    return bool(density >= 0.5 and D <= min(max_columns, MAX_DECOMPOSED_COLUMNS) and max_levels <= 8)


def leading_pays(n_levels, D, density):
    """Return whether to try leading eigenvectors of the covariance if `kronecker_pays` is false (case family).

    Arguments are as in `kronecker_pays`; the limit is eight levels. Rows related by descent, as in a sequence
    alignment, have a covariance with a few large eigenvalues, which slow down an optimiser whose metric only uses the
    covariance within each predictor. `leading_metric` returns None if the largest eigenvalue is small.
    """
    max_levels = np.max(n_levels)
    return bool(density >= 0.5 and D > WIDE_COLUMNS and 8 < max_levels <= MAX_LEADING_LOGITS + 1)


def read_columns(const code_t[:, ::1] codes, const int32_t[::1] n_levels, column_t[:, ::1] columns):
    """Transpose `codes` (n, m) into `columns` (m, n); return the first predictor with a code out of range, or -1.

    Codes of predictor i must be 0 .. n_levels[i] - 1.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i, tile, first_row, first_bad = m
    cdef int32_t code
    cdef uint32_t max_code
    with nogil:
        for tile in range((n + TILE_ROWS - 1) // TILE_ROWS):
            first_row = tile * TILE_ROWS
            for i in range(m):
                max_code = 0
                for k in range(first_row, min(n, first_row + TILE_ROWS)):
                    code = <int32_t> codes[k, i]
                    max_code = max(max_code, <uint32_t> code)  # interpreted as unsigned, a negative code is a large one
                    columns[i, k] = <column_t> code
                if max_code >= <uint32_t> n_levels[i]:
                    first_bad = min(first_bad, i)
    return first_bad if first_bad < m else -1  # m: none


def kronecker_metric(covariance, D_padded):
    """Return the eigenvectors V of a covariance (D, D), as columns, in panels, and the eigenvalues in decreasing order.

    Returns ``(project, expand, eigenvalues)``: `project` (D_padded / 8, D, 8) contains the panels of V, float32, and
    `expand` (D_padded / 8, D_padded, 8) the panels of V'; `eigenvalues` (D_padded,) are clipped to positive values,
    against rounding errors, and padded with the last one. `D_padded` is D rounded up to a multiple of eight.
    """
    D = len(covariance)
    eigenvalues, vectors = eigenvectors(covariance)  # increasing; columns of `vectors`
    eigenvalues = np.maximum(eigenvalues[::-1], 1e-7 * eigenvalues.mean() + 1e-300)
    V = np.zeros((D_padded, D_padded), dtype=np.float32)
    V[:D, :D] = vectors[:, ::-1]
    del vectors  # limits the number of matrices (D, D) in memory
    project = np.ascontiguousarray(V[:D].reshape(D, D_padded // 8, 8).transpose(1, 0, 2))
    expand = np.ascontiguousarray(V.reshape(D_padded // 8, 8, D_padded).transpose(0, 2, 1))
    return project, expand, np.concatenate((eigenvalues, np.full(D_padded - D, eigenvalues[D - 1])))


def leading_metric(second, mean, D_padded):
    """Return the results of `kronecker_metric` for the first N_LEADING eigenvectors only; None if they are not
    worthwhile.

    `project` is (N_LEADING / 8, D, 8), `expand` (D_padded / 8, N_LEADING, 8), and `eigenvalues` (D_padded,) beyond the
    leading ones are the mean of all others. The covariance ``second - mean mean'`` of the second moments `second` (D,
    D) and means `mean` (D,) is not formed: subspace iteration multiplies by it.
    """
    D = len(mean)
    covariance_product = np.random.default_rng(0).standard_normal((D, SUBSPACE_SIZE))
    for _ in range(SUBSPACE_STEPS):
        basis = np.linalg.qr(covariance_product)[0]
        covariance_product = second @ basis - np.outer(mean, mean @ basis)
    eigenvalues, vectors = np.linalg.eigh(basis.T @ covariance_product)  # of the covariance within the subspace
    leading = eigenvalues[::-1][:N_LEADING]
    if leading[0] <= MIN_LEADING_EIGENVALUE:
        return None
    V = np.zeros((D_padded, N_LEADING), dtype=np.float32)
    V[:D] = basis @ vectors[:, ::-1][:, :N_LEADING]
    project = np.ascontiguousarray(V[:D].reshape(D, N_LEADING // 8, 8).transpose(1, 0, 2))
    expand = np.ascontiguousarray(V.reshape(D_padded // 8, 8, N_LEADING).transpose(0, 2, 1))
    trace = np.trace(second) - mean @ mean
    mean_other = max(trace - leading.sum(), 1e-7 * trace + 1e-300) / (D - N_LEADING)  # positive
    return project, expand, np.concatenate((np.maximum(leading, mean_other), np.full(D_padded - N_LEADING, mean_other)))


def largest_eigenvalue(matrix):
    """Return the largest eigenvalue of a positive semidefinite matrix, with an accuracy of 1% (Lanczos, random start).
    """
    from scipy.sparse.linalg import eigsh
    if not matrix.any():
        return 0.0
    vector = np.random.default_rng(0).standard_normal(len(matrix))
    # ncv: vectors of the basis, each one product with the matrix; the default of 20 is more accurate than needed
    return eigsh(matrix, 1, v0=vector, ncv=12, tol=0.01, return_eigenvectors=False)[0]


def ridged_inverse(matrix, ridge):
    """Return the inverse of ``matrix + ridge I`` for a positive semidefinite matrix (n, n), which is overwritten."""
    matrix[np.diag_indices(len(matrix))] += ridge
    return inverse(matrix)


def wide_metric(covariance, lambda_, penalty_ridge, D_s, start, levels, D_padded):
    """Return the metric of a wide problem: the inverse M of the covariance (D, D) plus a ridge, and corrections.

    `covariance` is a function that returns the covariance as a new array on each call, so that only one matrix of its
    size is in memory at a time. `lambda_` is the penalty of the couplings. The Hessian of a site's couplings is about
    ``s Cov + lambda_ I = s (Cov + lambda_/s I)``, where s is a variance of the site's own columns: the penalty is
    equivalent to the ridge lambda_/s on the covariance Cov. `penalty_ridge` is the smallest such ridge, at the largest
    eigenvalue s of any site's covariance. Sites are the first predictors: they have the first `D_s` of the D columns.
    `start` (n_sites,) is the first column and `levels` (n_sites,) the number of levels of each site; `D_padded` is D
    rounded up to a multiple of eight.

    Returns ``(panels, site_correction, ridge, lowest, highest)``: `panels` (D_padded / 8, D, 8) contains M;
    `site_correction` (D_s, D) contains, for the columns B of each site, the rows ``inv(M[B, B]) M[B, :]``, which remove
    B from M. `lowest` and `highest` approximate the smallest and the largest eigenvalue of the covariance. Arrays are
    float32.
    """
    M = covariance()
    D = len(M)
    highest = largest_eigenvalue(M)
    ridge = max(MIN_RIDGE_SHARE * np.trace(M) / D, penalty_ridge)
    M = ridged_inverse(M, ridge)
    lowest = max(0.0, 1.0 / largest_eigenvalue(M) - ridge)
    # lambda_/s, where during a fit s is about the variance of a column given all others: the median of 1 / diagonal of
    # M
    conditional_ridge = lambda_ * np.median(M.diagonal())
    # invert again if the ridge was too small for most columns: if the new ridge is at least twice as large, and is not
    # small compared with the smallest eigenvalue, to which it is added
    if conditional_ridge > 2.0 * max(ridge, 0.1 * lowest):
        ridge, M = conditional_ridge, ridged_inverse(covariance(), conditional_ridge)
    site_correction = np.empty((D_s, D), dtype=np.float32)
    for size in np.unique(levels):
        site_columns = start[levels == size][:, None] + np.arange(size - 1)  # (sites with this many levels, size - 1)
        for columns in np.split(site_columns, range(SITES_PER_SOLVE, len(site_columns), SITES_PER_SOLVE)):
            M_rows = M[columns]  # (sites, size - 1, D)
            M_blocks = np.take_along_axis(M_rows, columns[:, None], axis=2)  # M[B, B], (sites, size - 1, size - 1)
            # solve takes a hundred times as long as a division
            site_correction[columns] = M_rows / M_blocks if size == 2 else np.linalg.solve(M_blocks, M_rows)
    panels = np.zeros((D_padded // 8, D, 8), dtype=np.float32)
    for first in range(0, D, 8):
        panels[first // 8, :, : min(8, D - first)] = M[:, first : first + 8]
    return panels, site_correction, ridge, lowest, highest
