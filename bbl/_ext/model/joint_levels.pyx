"""Sums over the rows that share two levels, for all pairs of levels."""
import numpy as np


def joint_sums(X, const double[:, ::1] values):
    """Return the sums (D, D, F) of ``X[k, c] X[k, d] values[k]`` over rows k, for columns c < d of X; 0 elsewhere.

    Rows are added in order. The sums (D, F) of a column are completed before the next column is started, so that they
    stay in the L1 cache.

    Parameters
    ----------
    X : ndarray, shape (n, D)
        Mostly zeros; must be C-contiguous.
    values : ndarray, shape (n, F)
        F must be at least 1.
    """
    n_rows, n_columns = X.shape
    nonzero = np.flatnonzero(X != 0.0)  # row by row
    # row k has the entries start[k] ... start[k + 1] - 1
    cdef Py_ssize_t[::1] start = np.searchsorted(nonzero, n_columns * np.arange(n_rows + 1))
    cdef const Py_ssize_t[::1] column = nonzero % max(n_columns, 1)
    cdef const double[::1] entry = X.ravel()[nonzero]
    cdef Py_ssize_t[::1] position = np.array(start)  # first entry of each row in the current or a later column
    cdef Py_ssize_t n = n_rows, D = n_columns, F = values.shape[1], c, k, e, f
    cdef double[:, :, ::1] sums = np.zeros((D, D, F))
    cdef double product
    cdef double *pair_sums
    with nogil:
        for c in range(D):
            for k in range(n):
                if position[k] == start[k + 1] or column[position[k]] != c:
                    continue
                for e in range(position[k] + 1, start[k + 1]):
                    product = entry[position[k]] * entry[e]
                    pair_sums = &sums[c, column[e], 0]
                    for f in range(F):
                        pair_sums[f] += product * values[k, f]
                position[k] += 1
    return np.asarray(sums)
