# Influence: sums for standard errors of pseudo-likelihood estimates, over the few design columns that are 1 in a row.
"""Hessians of pseudo-likelihoods, and the influence of rows of data on the estimates, from a sparse 0/1 design.

`design` (n, D) contains, for n rows of data, the intercept column and the indicators of all predictors' levels.
`columns` (c,) lists the columns that are used; below, a column is identified by its position in `columns`: 0, 1, ..., c
- 1. A *site* is a predictor whose conditional distribution given the others is fitted; q is the number of its
non-reference levels. The *influence* of a row is its effect on the estimates of the site's q c parameters.
"""
from libc.stdlib cimport free, malloc

cdef extern from "influence.h" nogil:
    const Py_ssize_t INFLUENCE_ROWS
    const Py_ssize_t INFLUENCE_SLICE
    ctypedef struct influence_site:
        Py_ssize_t n, c, q, p
        const double *inverse
        const double *offset
        const Py_ssize_t *out_row
        const double *factor
        double *out
    void add_curvatures_of_row(const Py_ssize_t *active, Py_ssize_t n_active, const double *curvature, Py_ssize_t size,
                               double *sums)
    void add_influences_of_rows(const influence_site *site, Py_ssize_t first_row, Py_ssize_t n_rows,
                                const Py_ssize_t *active, const Py_ssize_t *active_start, const double *residuals,
                                const double *weights, double *slice)


cdef Py_ssize_t list_active(const double *row, const Py_ssize_t[::1] columns, Py_ssize_t *active) noexcept nogil:
    """Write the positions in `columns` (c,) of the columns that are 1 in a `row` (D,) of the design to `active` (c,).

    Returns their number.
    """
    cdef Py_ssize_t t, n_active = 0
    for t in range(columns.shape[0]):  # without a branch: the next t overwrites the entry unless column t is 1
        active[n_active] = t
        n_active += row[columns[t]] != 0.0
    return n_active


def add_curvatures(const double[:, ::1] design, const Py_ssize_t[::1] columns, const double[:, ::1] curvatures,
                   double[:, ::1] sums):
    """Add to `sums` (c (c + 1) / 2, s), for each pair of columns, the `curvatures` (n, s) of the rows where both are 1.

    Columns t >= u have row ``t (t + 1) / 2 + u`` of `sums`. The s curvatures of a row of data can be, for instance, the
    covariances ``p_a (1[a = b] - p_b)`` of each pair of levels of a site.
    """
    cdef Py_ssize_t n = design.shape[0], c = columns.shape[0], size = curvatures.shape[1]
    cdef Py_ssize_t k, n_active
    cdef Py_ssize_t *active  # columns that are 1 in a row
    if curvatures.shape[0] != n or sums.shape[0] != c * (c + 1) // 2 or sums.shape[1] != size:
        raise ValueError("design, columns, curvatures and sums do not fit together")
    if n == 0 or size == 0:
        return
    active = <Py_ssize_t *> malloc(sizeof(Py_ssize_t) * <size_t> (c + 1))  # not empty, even if c = 0
    if active == NULL:
        raise MemoryError
    with nogil:
        for k in range(n):
            n_active = list_active(&design[k, 0], columns, active)
            add_curvatures_of_row(active, n_active, &curvatures[k, 0], size, &sums[0, 0])
    free(active)


def add_influences(const double[:, ::1] design, const Py_ssize_t[::1] columns, const double[:, ::1] residuals,
                   const double[::1] weights, const double[:, ::1] inverse, const double[::1] offset,
                   const Py_ssize_t[::1] out_rows, const double[::1] factors, double[:, ::1] out):
    """Add the influence of n rows of data on the q c parameters of one site to `out` (any number of rows, n).

    The influence of a row is ``weight * (inverse (residual x design) - offset)``, with the `residuals` (n, q) of the
    site's levels, the `weights` (n,) of the rows, and the `inverse` (q c, q c) of the site's Hessian. `offset` (q c,),
    the inverse times the gradient of the penalty, is the same for all rows; ``residual x design`` is a Kronecker
    product, column by column within each level. Element j, times ``factors[j]``, is added to row ``out_rows[j]`` of
    `out`.
    """
    cdef Py_ssize_t n = design.shape[0], c = columns.shape[0], q = residuals.shape[1], p = inverse.shape[0]
    cdef Py_ssize_t block, first_row, n_rows, k
    cdef Py_ssize_t block_size = min(INFLUENCE_ROWS, n)
    cdef influence_site site  # the arguments, in the struct described in influence.h
    cdef Py_ssize_t *active  # columns that are 1 in the rows of a block, row by row
    cdef Py_ssize_t *active_start  # (block_size + 1,) position in `active` at which each row starts
    cdef double *slice  # (p, INFLUENCE_SLICE) some columns of the inverse
    if (p != q * c or inverse.shape[1] != p or offset.shape[0] != p or out_rows.shape[0] != p or factors.shape[0] != p
            or residuals.shape[0] != n or weights.shape[0] != n or out.shape[1] != n):
        raise ValueError("the arrays of the site do not fit together")
    if n == 0 or p == 0:
        return
    # one block of memory for both arrays
    active = <Py_ssize_t *> malloc(sizeof(Py_ssize_t) * <size_t> (block_size * c + block_size + 1))
    slice = <double *> malloc(sizeof(double) * <size_t> (p * INFLUENCE_SLICE))
    if active == NULL or slice == NULL:
        free(active)
        free(slice)
        raise MemoryError
    active_start = active + block_size * c
    site.n, site.c, site.q, site.p, site.out = n, c, q, p, &out[0, 0]
    site.inverse, site.offset, site.out_row, site.factor = &inverse[0, 0], &offset[0], &out_rows[0], &factors[0]
    with nogil:
        for block in range((n + block_size - 1) // block_size):
            first_row = block * block_size
            n_rows = min(block_size, n - first_row)
            active_start[0] = 0
            for k in range(n_rows):
                active_start[k + 1] = active_start[k] + list_active(&design[first_row + k, 0], columns,
                                                                    active + active_start[k])
            add_influences_of_rows(&site, first_row, n_rows, active, active_start, &residuals[first_row, 0],
                                   &weights[first_row], slice)
    free(active)
    free(slice)
