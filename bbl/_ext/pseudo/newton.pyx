# Newton: the pseudo-likelihood problems of small predictors, one after the other, to machine precision.
"""Pseudo-likelihood fits by Newton's method, one site after the other; newton.h describes the algorithm.

A *site* is the predictor whose conditional distribution given the others is fitted. Predictor j has the *columns*
``start[j]`` to ``start[j + 1] - 1``, indicators of its non-reference levels; D columns in all. A row of ``theta``
belongs to one non-reference level of a site: the field in column 0, the coupling to column c in column 1 + c.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc

cdef extern from "newton.h" nogil:
    ctypedef struct newton_site:
        Py_ssize_t n, q, C, n_params
        const int32_t *active
        const Py_ssize_t *row_start
        const int32_t *response
        const double *weight
        double total, mix
        const double *penalty
        const double *linear
        const double *metric
    int newton_solve(const newton_site *s, double tolerance, int itmax, double *x, double *scratch, double *value_out,
                     double *grad_norm_out, int32_t *n_iter_out)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t


cdef Py_ssize_t list_active_columns(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, const uint8_t[:, ::1] mask,
                                    Py_ssize_t i, int32_t *local_of, int32_t *columns, int32_t *active,
                                    Py_ssize_t *row_start, int32_t *response) noexcept nogil:
    """Number site i's neighbour columns 1, 2, ... and list those that are 1 in each row; return their number plus one.

    Writes `local_of` (D,) column -> number, `columns` number -> column, `active` and `row_start` (n + 1,) the lists of
    all rows, each led by 0 for the constant, and `response` (n,) the site's codes.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], j, k, c, n_listed = 0
    cdef Py_ssize_t C = 1
    for j in range(m):
        if mask[i, j]:
            for c in range(start[j], start[j + 1]):
                columns[C] = <int32_t> c
                local_of[c] = <int32_t> C
                C += 1
    for k in range(n):
        row_start[k] = n_listed
        active[n_listed] = 0
        n_listed += 1
        for j in range(m):
            if mask[i, j] and codes[k, j]:
                active[n_listed] = local_of[start[j] + codes[k, j] - 1]
                n_listed += 1
        response[k] = <int32_t> codes[k, i]
    row_start[n] = n_listed
    return C


cdef int solve_site(newton_site *s, Py_ssize_t first, const int32_t *columns, double tolerance, int itmax, double *x,
                    double *scratch, double[:, ::1] theta, const double[:, ::1] linear, double *site_linear,
                    double *value, double *norm, int32_t *n_iter) noexcept nogil:
    """Minimise one site's objective from `theta`, in place, whose rows first ... first + q - 1 are the site's.

    `x`, `site_linear` (q C,) and `scratch` are working memory; `value`, `norm`, `n_iter` are written. Returns a status.
    """
    cdef Py_ssize_t a, c
    cdef int status
    for a in range(s.q):
        x[a * s.C] = theta[first + a, 0]
        for c in range(1, s.C):
            x[a * s.C + c] = theta[first + a, 1 + columns[c]]
    s.linear = NULL
    if linear is not None:
        for a in range(s.q):
            site_linear[a * s.C] = linear[first + a, 0]
            for c in range(1, s.C):
                site_linear[a * s.C + c] = linear[first + a, 1 + columns[c]]
        s.linear = site_linear
    status = newton_solve(s, tolerance, itmax, x, scratch, value, norm, n_iter)
    for a in range(s.q):
        theta[first + a, 0] = x[a * s.C]
        for c in range(1, s.C):
            theta[first + a, 1 + columns[c]] = x[a * s.C + c]
    return status


def solve_sites(const code_t[:, ::1] codes, const double[::1] weights, double total, const Py_ssize_t[::1] start,
                const uint8_t[:, ::1] mask, const int32_t[::1] sites, const double[::1] penalty,
                double prior_count, double tolerance, int itmax, double[:, ::1] theta, double[::1] value,
                double[::1] grad_norm, int32_t[::1] n_iter, int32_t[::1] status,
                const double[:, ::1] linear=None, const double[:, ::1] metric=None):
    """Minimise the penalised negative pseudo-log-likelihood of each of `sites` from `theta`, in place.

    Shapes: codes (n, m), weights (n,) with sum `total`, start (m + 1,), mask (n_sites, m) with 1 for the neighbours of
    each site, penalty (1 + D,) ridge penalties of the fields and of the couplings of each column, theta (., 1 + D).
    A `prior_count` c gives each row's observed level the target 1 - c/(total + c); all levels share the rest.
    ``sum(theta * linear)``, if `linear` is given, is subtracted from the objectives. A `metric` Q (1 + D, 1 + D) adds
    ``tr(x' M x Q) / 2`` for the parameters x of a site, one row for each level, with ``M = I - 1 1'/L``. `value`,
    `grad_norm`, `n_iter` and `status` (a solver_status) are written at the sites.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], D = start[m], t, i, j, k, C
    cdef Py_ssize_t max_params = 0, max_logits = 1, max_columns = 1
    cdef newton_site s
    cdef int32_t *local_of
    cdef int32_t *columns
    cdef int32_t *active
    cdef int32_t *response
    cdef Py_ssize_t *row_start
    cdef double *x
    cdef double *site_linear
    cdef double *site_penalty
    cdef double *Q = NULL
    for t in range(sites.shape[0]):
        i = sites[t]
        C = 1
        for j in range(m):
            if mask[i, j]:
                C += start[j + 1] - start[j]
        max_logits = max(max_logits, start[i + 1] - start[i])
        max_params = max(max_params, C * (start[i + 1] - start[i]))
        max_columns = max(max_columns, C)
    # one piece for all integers: local_of (D + 1), columns (D + 1), active (n (m + 1)), response (n)
    local_of = <int32_t *> malloc(sizeof(int32_t) * <size_t> (2 * (D + 1) + n * (m + 1) + n))
    row_start = <Py_ssize_t *> malloc(sizeof(Py_ssize_t) * <size_t> (n + 1))
    # and one for x (p), the scratch of newton_solve (2 p^2 + 3 p + q), site_linear (p), site_penalty (1 + D)
    x = <double *> malloc(sizeof(double) * <size_t> (2 * max_params * max_params + 5 * max_params + max_logits + 1 + D))
    if metric is not None:
        Q = <double *> malloc(sizeof(double) * <size_t> (max_columns * max_columns))
    try:
        if local_of == NULL or row_start == NULL or x == NULL or (metric is not None and Q == NULL):
            raise MemoryError
        columns = local_of + D + 1
        active = columns + D + 1
        response = active + n * (m + 1)
        site_linear = x + 2 * max_params * max_params + 4 * max_params + max_logits
        site_penalty = site_linear + max_params
        for t in range(sites.shape[0]):
            i = sites[t]
            with nogil:
                s.n, s.q = n, start[i + 1] - start[i]
                s.C = list_active_columns(codes, start, mask, i, local_of, columns, active, row_start, response)
                s.n_params = s.q * s.C
                s.active, s.row_start, s.response, s.weight = active, row_start, response, &weights[0]
                site_penalty[0] = penalty[0]
                for j in range(1, s.C):
                    site_penalty[j] = penalty[1 + columns[j]]
                for j in range(s.C if metric is not None else 0):
                    for k in range(s.C):
                        Q[j * s.C + k] = metric[1 + columns[j] if j else 0, 1 + columns[k] if k else 0]
                s.total, s.mix, s.penalty, s.metric = total, prior_count / (total + prior_count), site_penalty, Q
                status[i] = solve_site(&s, start[i], columns, tolerance, itmax, x, x + s.n_params, theta,
                                       linear, site_linear, &value[i], &grad_norm[i], &n_iter[i])
            PyErr_CheckSignals()
    finally:
        free(local_of)
        free(row_start)
        free(x)
        free(Q)
