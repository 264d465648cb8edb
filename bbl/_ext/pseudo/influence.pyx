# Hessians of pseudo-likelihoods, and the influence of rows on their optima, by the few indicators that are 1 in a row.
"""Sums over rows of a sparse design of zeros and ones, for standard errors of pseudo-likelihood estimates.

`design` (n, D) holds the constant and the indicators of all predictors; `columns` (c,) those of one site, or of some
sites, numbered 0, 1, ... A *site* is the predictor whose conditional distribution given the others is fitted.
"""
from libc.stdlib cimport free, malloc

cdef extern from "influence.h" nogil:
    const Py_ssize_t INFLUENCE_ROWS
    ctypedef struct influence_site:
        Py_ssize_t n, c, q, p
        const double *inverse
        const double *constant
        const Py_ssize_t *index
        const double *shares
        double *out
    void add_pairs(const Py_ssize_t *ones, Py_ssize_t n_ones, const double *curvature, Py_ssize_t size,
                   double *sums)
    void add_rows(const influence_site *site, Py_ssize_t first_row, Py_ssize_t n_rows, const Py_ssize_t *ones,
                  const Py_ssize_t *bounds, const double *residuals, const double *weights)


cdef Py_ssize_t list_ones(const double *row, const Py_ssize_t[::1] columns, Py_ssize_t *ones) noexcept nogil:
    """List the numbers of the columns that are 1 in a row, and return how many there are."""
    cdef Py_ssize_t t, n = 0
    for t in range(columns.shape[0]):
        ones[n] = t
        n += row[columns[t]] != 0.0
    return n


def add_curvatures(const double[:, ::1] design, const Py_ssize_t[::1] columns, const double[:, ::1] curvatures,
                   double[:, ::1] sums):
    """Add to `sums` (c (c + 1) / 2, s) those of the `curvatures` (n, s) of the rows in which two columns are 1.

    Columns t >= u have row ``t (t + 1) / 2 + u`` of `sums`.
    """
    cdef Py_ssize_t n = design.shape[0], c = columns.shape[0], size = curvatures.shape[1]
    cdef Py_ssize_t k, n_ones
    cdef Py_ssize_t *ones
    if curvatures.shape[0] != n or sums.shape[0] != c * (c + 1) // 2 or sums.shape[1] != size:
        raise ValueError("design, columns, curvatures and sums do not fit together")
    if n == 0 or size == 0:
        return
    ones = <Py_ssize_t *> malloc(sizeof(Py_ssize_t) * <size_t> (c + 1))
    if ones == NULL:
        raise MemoryError
    with nogil:
        for k in range(n):
            n_ones = list_ones(&design[k, 0], columns, ones)
            add_pairs(ones, n_ones, &curvatures[k, 0], size, &sums[0, 0])
    free(ones)


def add_influences(const double[:, ::1] design, const Py_ssize_t[::1] columns, const double[:, ::1] residuals,
                   const double[::1] weights, const double[:, ::1] inverse, const double[::1] constant,
                   const Py_ssize_t[::1] index, const double[::1] shares, double[:, ::1] out):
    """Add the influence of rows on the parameters of one site to `out` (., n).

    With the `residuals` (n, q) of its levels, the `weights` (n,) of rows, and the `inverse` (q c, q c) of the Hessian,
    the influence of a row is ``weight * (inverse (residual x design) - constant)``; element j, times ``shares[j]``, is
    added to row ``index[j]`` of `out`.
    """
    cdef Py_ssize_t n = design.shape[0], c = columns.shape[0], q = residuals.shape[1], p = inverse.shape[0]
    cdef Py_ssize_t block, first, n_rows, k
    cdef influence_site site
    cdef Py_ssize_t *ones  # of the rows of a block, then where those of each row begin
    cdef Py_ssize_t *bounds
    if (p != q * c or inverse.shape[1] != p or constant.shape[0] != p or index.shape[0] != p or shares.shape[0] != p
            or residuals.shape[0] != n or weights.shape[0] != n or out.shape[1] != n):
        raise ValueError("the arrays of the site do not fit together")
    if n == 0 or p == 0:
        return
    ones = <Py_ssize_t *> malloc(sizeof(Py_ssize_t) * <size_t> (INFLUENCE_ROWS * c + INFLUENCE_ROWS + 1))
    if ones == NULL:
        raise MemoryError
    bounds = ones + INFLUENCE_ROWS * c
    site.n, site.c, site.q, site.p, site.out = n, c, q, p, &out[0, 0]
    site.inverse, site.constant, site.index, site.shares = &inverse[0, 0], &constant[0], &index[0], &shares[0]
    with nogil:
        for block in range((n + INFLUENCE_ROWS - 1) // INFLUENCE_ROWS):
            first = block * INFLUENCE_ROWS
            n_rows = min(INFLUENCE_ROWS, n - first)
            bounds[0] = 0
            for k in range(n_rows):
                bounds[k + 1] = bounds[k] + list_ones(&design[first + k, 0], columns, ones + bounds[k])
            add_rows(&site, first, n_rows, ones, bounds, &residuals[first, 0], &weights[first])
    free(ones)
