# Pseudo plan: how the rows of a pseudo-likelihood problem are laid out for its kernel, and which metric pays.
"""What is decided of a pseudo-likelihood problem before it is prepared, and its codes column by column."""
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
    READ = 256

FLAT = 1e-5  # of the mean eigenvalue of a covariance: the least ridge with which it is inverted
LANES = {"avx512": 8, "avx2": 4, "sse2": 2, "plain": 1}  # sse2 stands for any vectors of 128 bits


def widths():
    """Return the names of the vector widths that this processor runs, widest first."""
    return tuple(name for name, lanes in LANES.items() if cpu_runs(8 * lanes))


def choose_lanes(n_levels, width, size_t real):
    """Return the numbers of `real` bytes per vector: of `width`, or the widest that pays; fewer if offsets need it.

    Offsets, lanes times levels, are kept in 16 bits.
    """
    if width is not None:
        if width not in widths():
            raise ValueError(f"width must be one of {widths()} on this processor, not {width!r}")
        lanes = LANES[width]
    else:
        lanes = max(LANES[name] for name in widths())
        if len(n_levels) <= 4 and lanes == 8:
            lanes = 4
    if lanes > 1 and real == 4:
        lanes *= 2
    while lanes > 1 and lanes * int(n_levels.max()) > 65535:
        lanes = lanes // 2 if lanes * real > 16 else 1
    return lanes


def composite_sizes(n, n_levels):
    """Return how many joint states a composite may have, and the bytes of a chunk's tables for one logit."""
    return max(8, min(64, n // 8)), 36864 // max(1, min(int(n_levels.max()) - 1, 3))


def kronecker_pays(n, n_levels, D, density):
    """Return whether the eigenvectors of the predictors' covariance are worth their price (measured)."""
    top = n_levels.max()
    most = n // 4 if top == 2 else n // 8
    if D > 512:  # iterations then cost so much that even a covariance of few rows saves more
        most = 4 * n if top == 2 else n
    return bool(density >= 0.5 and D <= min(most, 3000) and top <= 8)


def read_columns(const code_t[:, ::1] codes, const int32_t[::1] n_levels, column_t[:, ::1] columns):
    """Copy `codes` (n, m) to `columns` (m, n); return the first predictor with a code out of range, or -1."""
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i, tile, first, bad = m
    cdef int32_t code
    cdef uint32_t top
    with nogil:
        for tile in range((n + READ - 1) // READ):  # so many rows stay in the first-level cache
            first = tile * READ
            for i in range(m):
                top = 0
                for k in range(first, min(n, first + READ)):
                    code = <int32_t> codes[k, i]
                    top = max(top, <uint32_t> code)
                    columns[i, k] = <column_t> code
                if top >= <uint32_t> n_levels[i]:
                    bad = min(bad, i)
    return bad if bad < m else -1


def kronecker_metric(covariance, padded):
    """Return the eigenvectors of a covariance (D, D) in panels of eight, by rows and by columns, and the eigenvalues.

    Shapes (padded / 8, D, 8), (padded / 8, padded, 8) and (padded,).
    """
    D = len(covariance)
    value, vector = eigenvectors(covariance)
    value = np.maximum(value[::-1], 1e-7 * value.mean() + 1e-300)
    full = np.zeros((padded, padded), dtype=np.float32)
    full[:D, :D] = vector[:, ::-1]
    del vector
    project = np.ascontiguousarray(full[:D].reshape(D, padded // 8, 8).transpose(1, 0, 2))
    expand = np.ascontiguousarray(full.reshape(padded // 8, 8, padded).transpose(0, 2, 1))
    return project, expand, np.concatenate((value, np.full(padded - D, value[D - 1])))


def largest(matrix):
    """Return about the largest eigenvalue of a positive semidefinite matrix (Lanczos, from a random vector)."""
    from scipy.sparse.linalg import eigsh
    if not matrix.any():
        return 0.0
    start = np.random.default_rng(0).standard_normal(len(matrix))
    return eigsh(matrix, 1, v0=start, tol=0.01, return_eigenvectors=False)[0]


def ridged_inverse(matrix, ridge):
    """Return the inverse of ``matrix + ridge I``, in its place."""
    matrix[np.diag_indices(len(matrix))] += ridge
    return inverse(matrix)


def wide_metric(covariance, lambda_, weight, rows, start, levels, padded):
    """Return how a wide problem with a penalty knows the covariance (D, D) of its columns.

    Parameters
    ----------
    covariance : callable
        Returns it anew, so that one matrix of its size is there at a time.
    lambda_, weight : float
        The penalty, and the ridge that it stands for.
    rows : int
        Columns of the predictors that respond.
    start, levels : ndarray of int, shape (n_sites,)
        Their first columns, and their levels.
    padded : int
        Columns of the panels.

    Returns
    -------
    panels : ndarray of float32, shape (padded / 8, D, 8)
        The inverse with a ridge.
    own : ndarray of float32, shape (rows, D)
        Its rows of each predictor, times the inverse of the predictor's own block.
    ridge, lowest, highest : float
        The ridge, and about the extreme eigenvalues of the covariance.
    """
    full = covariance()
    D = len(full)
    highest = largest(full)
    ridge = max(FLAT * np.trace(full) / D, weight)
    full = ridged_inverse(full, ridge)
    lowest = max(0.0, 1.0 / largest(full) - ridge)
    apart = lambda_ * np.median(full.diagonal())  # curvature falls with the variance that others leave
    if apart > 2.0 * max(ridge, 0.1 * lowest):
        ridge, full = apart, ridged_inverse(covariance(), apart)
    own = np.empty((rows, D), dtype=np.float32)
    for size in np.unique(levels):
        every = start[levels == size][:, None] + np.arange(size - 1)
        for columns in np.split(every, range(READ, len(every), READ)):
            part = full[columns]
            own[columns] = np.linalg.solve(np.take_along_axis(part, columns[:, None], axis=2), part)
    panels = np.zeros((padded // 8, D, 8), dtype=np.float32)
    for first in range(0, D, 8):
        panels[first // 8, :, : min(8, D - first)] = full[:, first : first + 8]
    return panels, own, ridge, lowest, highest
